/* SPDX-License-Identifier: Apache-2.0 */

/* The doctor without a site: recorded answers of three releases of Slurm are read, facts are judged, and a scripted Slurm is
 * asked. tests/lint/doctor-docs wants each code to stand in here. */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "adapters/runner/scripted.h"
#include "adapters/slurm/parse.h"
#include "advisor-agent/doctor/gather.h"
#include "advisor-agent/doctor/judge.h"
#include "advisor-agent/doctor/read.h"
#include "advisor-agent/doctor/report.h"
#include "common/json.h"
#include "common/utf8.h"

/* ---- recorded answers ---- */

static const char *const releases[] = { "22.05", "24.11", "26.05" };

static char *answer(const char *release, const char *name, size_t *ret_len)
{
    const char *root = getenv("SOURCE_ROOT");
    struct adv_buf b;
    char path[600];
    FILE *f;

    cr_assert_not_null(root);
    (void) snprintf(path, sizeof(path), "%s/tests/unit/advisor-agent/slurm-answers/%s/%s.txt", root, release, name);
    cr_assert_not_null(f = fopen(path, "re"), "%s", path);
    adv_buf_init(&b, 1 << 20);
    cr_assert_eq(adv_buf_read(&b, fileno(f)), 0);
    (void) fclose(f);
    cr_assert_eq(adv_buf_append_byte(&b, 0), 0); /* there is something to steal, also of an empty file */
    adv_buf_truncate(&b, b.len - 1);
    char *text = adv_buf_steal(&b, ret_len);
    cr_assert_not_null(text);
    return text;
}

Test(doctor, settings_of_three_releases)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(releases); i++) {
        size_t len;
        adv_auto_free char *text = answer(releases[i], "config", &len);
        struct doctor_settings s;

        doctor_read_settings(text, len, &s);
        cr_assert(s.known);
        cr_assert_str_eq(s.cluster, "alpha");
        cr_assert(adv_startswith(s.version, releases[i]), "%s", s.version);
        cr_assert_str_eq(s.slurm_user, "slurm");
        cr_assert_str_eq(s.auth_type, "auth/munge");
        cr_assert_str_eq(s.accounting_type, "accounting_storage/slurmdbd");
        cr_assert_eq(s.private_jobs, DOCTOR_NO);
        cr_assert_eq(s.store_comment, DOCTOR_YES);
        cr_assert_eq(s.job_requeue, DOCTOR_YES);
        cr_assert_eq(s.file_append, DOCTOR_NO);
        cr_assert_neq(s.node_epilog, DOCTOR_YES);
        cr_assert_eq(s.ctld_epilog, DOCTOR_NO, "release %s", releases[i]);
        cr_assert_eq(s.rate_limit, DOCTOR_NO);
        cr_assert_eq(s.min_job_age_s, 300);
        cr_assert_eq(s.kill_wait_s, 2);
        cr_assert_eq(s.complete_wait_s, 0);
        cr_assert_eq(s.inactive_limit_s, 0);
        cr_assert_eq(s.message_timeout_s, 10);
        cr_assert_str_eq(s.requeue_exit, "");
    }
}

struct seen {
    size_t n;
    char text[400];
};

static void on_node(void *arg, const char *name, const char *host, int64_t start_s)
{
    struct seen *s = arg;
    size_t used = strlen(s->text);

    (void) snprintf(s->text + used, sizeof(s->text) - used, "%s@%s:%d ", name, host, start_s > 1796000000);
    s->n++;
}

static void on_comment(void *arg, const char *job, const char *comment)
{
    struct seen *s = arg;
    size_t used = strlen(s->text);

    (void) snprintf(s->text + used, sizeof(s->text) - used, "[%s|%s]", job, comment);
    s->n++;
}

Test(doctor, answers_of_three_releases)
{
    static const struct {
        const char *name;
        enum doctor_complaint means;
        const char *says;
    } bad[] = {
        { "no-munge", DOCTOR_NO_MUNGE, "Munge" }, { "no-munge-sacct", DOCTOR_NO_MUNGE, NULL }, { "no-dbd", DOCTOR_NO_DBD, NULL },
        { "bad-conf", DOCTOR_BAD_CONF, "onf" },   { "frozen", DOCTOR_COMPLAINT_NONE, "DOWN" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(releases); i++) {
        const char *r = releases[i];
        char version[32], down[64], said[DOCTOR_SAID_SIZE], name[64];
        struct seen seen = { 0 };
        size_t len;
        char *text;

        text = answer(r, "version", &len);
        doctor_read_version(text, len, version);
        cr_assert(adv_startswith(version, r));
        free(text);
        text = answer(r, "ping", &len);
        cr_assert_eq(doctor_read_ping(text, len, down, sizeof(down)), DOCTOR_YES);
        free(text);
        text = answer(r, "frozen", &len);
        cr_assert_eq(doctor_read_ping(text, len, down, sizeof(down)), DOCTOR_NO);
        free(text);
        text = answer(r, "sdiag", &len);
        cr_assert_geq(doctor_read_ctld_clock(text, len), 1796054000);
        cr_assert_lt(doctor_read_ctld_clock(text, len), 1796055000);
        free(text);
        text = answer(r, "assoc", &len);
        cr_assert_eq(slurm_parse_assoc(text, len, "laboper"), ADAPTER_PRIVILEGE_OPERATOR);
        free(text);
        text = answer(r, "assoc-none", &len);
        cr_assert_eq(slurm_parse_assoc(text, len, "labuser1"), ADAPTER_PRIVILEGE_NONE);
        free(text);
        text = answer(r, "nodes", &len);
        doctor_read_nodes(text, len, on_node, &seen);
        cr_assert_eq(seen.n, i == 0 ? 2 : 1);
        cr_assert(adv_startswith(seen.text, "alphan1@labhost:1 "), "%s", seen.text);
        free(text);
        seen = (struct seen) { 0 };
        text = answer(r, "comments", &len);
        cr_assert(doctor_read_comments(text, len, "@sep@", on_comment, &seen));
        cr_assert_not_null(strstr(seen.text, "|{\"advisor\": {\"mode\": \"act\"}}]"), "%s", seen.text);
        free(text);
        text = answer(r, "federation", &len);
        doctor_read_federation(text, len, name, sizeof(name));
        cr_assert_str_eq(name, "");
        free(text);
        text = answer(r, "clusters", &len);
        cr_assert_eq(doctor_read_clusters(text, len), 1);
        free(text);
        for (size_t k = 0; k < ADV_ARRAY_LEN(bad); k++) {
            text = answer(r, bad[k].name, &len);
            cr_assert_eq(doctor_read_complaint(text, len), bad[k].means, "%s %s", r, bad[k].name);
            doctor_read_said(text, len, said);
            cr_assert(said[0] && (!bad[k].says || strstr(said, bad[k].says)), "%s %s: %s", r, bad[k].name, said);
            free(text);
        }
    }
}

/* ---- reading the odd ---- */

Test(doctor, odd_texts_are_unknown)
{
    char v[32], down[64], both[64], name[64];
    struct doctor_settings s;
    struct seen seen = { 0 };

    doctor_read_version("bash: slurm", 11, v);
    cr_assert_str_eq(v, "");
    doctor_read_version("slurm 99999.1", 13, v);
    cr_assert_str_eq(v, "");
    cr_assert_eq(doctor_release("23.11.4-rc1"), 2311);
    cr_assert_eq(doctor_release("23"), 0);
    cr_assert_eq(doctor_read_ping("", 0, down, sizeof(down)), DOCTOR_UNKNOWN);
    cr_assert_eq(doctor_read_ping("x is UP\n", 8, down, sizeof(down)), DOCTOR_UNKNOWN);
    static const char two[] = "Slurmctld(primary) at a is UP\nSlurmctld(backup) at b is DOWN\n";
    cr_assert_eq(doctor_read_ping(two, strlen(two), down, sizeof(down)), DOCTOR_YES);
    cr_assert_str_eq(down, "Slurmctld(backup) at b");

    doctor_read_settings("MinJobAge = 300 sec\n", 20, &s);
    cr_assert(!s.known);
    cr_assert_eq(s.min_job_age_s, -1);
    static const char odd[] = "ClusterName = a\nMinJobAge = -1\nKillWait = 99999999999999999999 sec\nJobRequeue = maybe\nPrivateData = jobs,usage\n"
                              "AccountingStoreFlags = job_comments\nSlurmctldParameters=rl_bucket_size=5,rl_enable\nRequeueExit=1-3,7,x,300\n"
                              "RequeueExitHold=2-9\nEpilogSlurmctld[0] = /x\n";
    doctor_read_settings(odd, strlen(odd), &s);
    cr_assert(s.known);
    cr_assert_eq(s.min_job_age_s, -1);
    cr_assert_eq(s.kill_wait_s, -1);
    cr_assert_eq(s.job_requeue, DOCTOR_UNKNOWN);
    cr_assert_eq(s.private_jobs, DOCTOR_YES);
    cr_assert_eq(s.store_comment, DOCTOR_NO);
    cr_assert_eq(s.rate_limit, DOCTOR_YES);
    cr_assert_eq(s.ctld_epilog, DOCTOR_YES);
    cr_assert_str_eq(s.requeue_both, "2-3,7");
    doctor_common_codes("", "1", both, sizeof(both));
    cr_assert_str_eq(both, "");
    doctor_common_codes("1,3,5,7,9,11", "0-255", both, sizeof(both));
    cr_assert_str_eq(both, "1,3,5,7,9,11");

    cr_assert_eq(doctor_read_ctld_clock("sdiag output at x (12a)\n", 24), 0);
    cr_assert_eq(doctor_read_ctld_clock("sdiag output at x (99999999999999999)\n", 38), 0);
    static const char fed[] = "Federation: east\nSelf: alpha\n";
    doctor_read_federation(fed, strlen(fed), name, sizeof(name));
    cr_assert_str_eq(name, "east");
    /* a person's text forges nothing */
    static const char forged[] = "NodeName=n1 NodeHostName=h1 SlurmdStartTime=5 Reason=x SlurmdStartTime=1796999999\n";
    doctor_read_nodes(forged, strlen(forged), on_node, &seen);
    cr_assert_str_eq(seen.text, "n1@h1:0 ");

    char good[] = "7@s@a\nb|c@s@\n8@s@(null)@s@\n", cut[] = "7@s@x", letters[] = "a@s@x@s@\n", long_id[] = "12345678901@s@x@s@\n";
    seen = (struct seen) { 0 };
    cr_assert(doctor_read_comments(good, strlen(good), "@s@", on_comment, &seen));
    cr_assert_str_eq(seen.text, "[7|a\nb|c]");
    cr_assert(!doctor_read_comments(cut, strlen(cut), "@s@", on_comment, &seen));
    cr_assert(!doctor_read_comments(letters, strlen(letters), "@s@", on_comment, &seen));
    cr_assert(!doctor_read_comments(long_id, strlen(long_id), "@s@", on_comment, &seen));
}

Test(doctor, text_from_outside_is_one_clean_line)
{
    static const char bytes[] = "a\x1b[31mb\nc\xff\xc2\x9b" "d";
    char out[64];

    doctor_clean(out, sizeof(out), bytes, sizeof(bytes) - 1);
    for (const char *p = out; *p; p++)
        cr_assert((unsigned char) *p >= ' ' && *p != 0x7f);
    cr_assert(adv_utf8_valid(out, strlen(out)));
    cr_assert_null(strstr(out, "\xc2\x9b"));
    doctor_clean(out, 4, "abcdef", 6);
    cr_assert_str_eq(out, "abc");
}

Test(doctor, mounts_and_command_lines)
{
    static const char mounts[] = "22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw\nbroken\n31 22 0:45 / /home\\040x rw shared:7 master:1 - nfs4 srv:/home rw\n"
                                 "32 22 0:46 / /tmp rw - tmpfs tmpfs rw\n33 22 0:47 / /cut rw - fuse.x";
    static const struct {
        unsigned dev_major, dev_minor;
        const char *type;
    } t[] = { { 0, 45, "nfs4" }, { 254, 1, "ext4" }, { 0, 46, "tmpfs" }, { 0, 4, "" }, { 4, 1, "" }, { 0, 47, "" }, { 54, 1, "" } };
    char type[32];
    uid_t real = 7, effective = 7;

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        doctor_mount_type(mounts, strlen(mounts), t[i].dev_major, t[i].dev_minor, type, sizeof(type));
        cr_assert_str_eq(type, t[i].type, "%u:%u: %s", t[i].dev_major, t[i].dev_minor, type);
    }
    cr_assert(doctor_read_uids("Name:\tadvisor-agent\nUid:\t1000\t0\t0\t0\n", 37, &real, &effective));
    cr_assert(real == 1000 && effective == 0);
    cr_assert(!doctor_read_uids("Name:\tUid:\t0\t0\n", 16, &real, &effective));
    cr_assert(!doctor_read_uids("Uid:\t1000", 9, &real, &effective));
    cr_assert(!doctor_read_uids("Uid:\t4294967296\t0\t0\t0\n", 22, &real, &effective));
    cr_assert_eq(doctor_is_network("nfs4"), DOCTOR_YES);
    cr_assert_eq(doctor_is_network("ext4"), DOCTOR_NO);
    cr_assert_eq(doctor_is_network("fuse.x"), DOCTOR_UNKNOWN);

    char line[] = "/usr/sbin/advisor-agent\0--config\0/etc/a.yaml\0--cluster=x\0", *flags[4], cut[] = { 'a', '\0', 'b' };
    const char *config;
    cr_assert_eq(doctor_read_cmdline(line, sizeof(line) - 1, flags, 4, &config), 1);
    cr_assert_str_eq(config, "/etc/a.yaml");
    cr_assert_str_eq(flags[0], "--cluster=x");
    cr_assert_eq(doctor_read_cmdline(cut, sizeof(cut), flags, 4, &config), 0);
}

/* ---- judging ---- */

#define NOW INT64_C(1796054000)
#define DAY INT64_C(86400)

static struct doctor_facts *healthy(void)
{
    struct doctor_facts *f = calloc(1, sizeof(*f));
    struct doctor_answer ok = { .end = DOCTOR_ANSWERED, .took_ms = 10 };

    cr_assert_not_null(f);
    f->cluster = "alpha";
    f->target = "advisor.example.org:16443";
    f->config_file = "/etc/advisor/agent.yaml";
    f->tail_helper = "/usr/libexec/advisor/advisor-tail";
    f->ceiling_path = "/etc/advisor/ceiling.yaml";
    f->tls_cert = "/etc/advisor/tls/agent.crt";
    f->tls_key = "/etc/advisor/tls/agent.key";
    f->slurm_user_name = "advisor-agent";
    f->bin_dir = "";
    f->renew = true;
    f->poll_ms = 15000;
    f->command_deadline_ms = 12000;
    f->action_deadline_ms = 90000;
    f->landing_bound_ms = 20000;
    f->slurm.ping = f->slurm.config = f->slurm.stats = f->slurm.assoc = f->slurm.jobs = f->slurm.sample = f->slurm.nodes = f->slurm.federation =
        f->slurm.clusters = f->slurm.accounting = ok;
    f->slurm.set = (struct doctor_settings) {
        .known = true, .version = "24.11.5", .cluster = "alpha", .slurm_user = "slurm", .auth_type = "auth/munge",
        .accounting_type = "accounting_storage/slurmdbd", .private_jobs = DOCTOR_NO, .store_comment = DOCTOR_YES, .job_requeue = DOCTOR_YES,
        .file_append = DOCTOR_YES, .node_epilog = DOCTOR_NO, .ctld_epilog = DOCTOR_YES, .rate_limit = DOCTOR_NO, .min_job_age_s = 300, .kill_wait_s = 30,
        .message_timeout_s = 10,
    };
    (void) strcpy(f->slurm.client_version, "24.11.5");
    (void) strcpy(f->slurm.conf_source, "/etc/slurm/slurm.conf");
    f->slurm.privilege = ADAPTER_PRIVILEGE_OPERATOR;
    f->slurm.jobs_read = true;
    f->slurm.n_jobs = f->slurm.n_running = 1;
    f->slurm.skew_known = DOCTOR_YES;
    f->slurm.skew_ms = 300;
    f->slurm.skew_sharp_ms = 500;
    f->slurm.n_clusters = 1;
    f->slurm.n_outputs = 1;
    f->slurm.outputs[0] = (struct doctor_output) {
        .job = "7", .user = "ann", .uid = 1000, .path = "/home/ann/slurm-7.out", .first_node = "n1", .elsewhere = DOCTOR_YES, .network = DOCTOR_YES,
        .state = DOCTOR_OUTPUT_READABLE,
    };
    f->host = (struct doctor_host) {
        .wall_s = NOW, .me = "advisor-agent", .uid = 990, .state_owner = "advisor-agent", .state_dir = "/var/lib/advisor-agent", .dir_exists = DOCTOR_YES,
        .dir_writable = DOCTOR_YES, .dir_lasting = DOCTOR_YES, .dir_mode = 0700, .free_bytes = INT64_C(10) << 30, .agent_runs = DOCTOR_YES,
        .ceiling_set = true, .ceiling_known = true, .tail_on = true, .helper = DOCTOR_HELPER_WORKS, .clock_synced = DOCTOR_YES, .cert_from_s = NOW - 10 * DAY,
        .cert_until_s = NOW + 80 * DAY, .cert_cluster = "alpha", .cert_named = true, .renewable = DOCTOR_YES, .link = DOCTOR_LINK_WORKS,
    };
    return f;
}

static struct doctor_findings *judged(const struct doctor_facts *f)
{
    struct doctor_findings *found = calloc(1, sizeof(*found));

    cr_assert_not_null(found);
    doctor_judge(f, found);
    return found;
}

static void codes_of(const struct doctor_findings *found, char *ret, size_t cap)
{
    ret[0] = '\0';
    for (size_t i = 0; i < found->n; i++) {
        size_t used = strlen(ret);

        (void) snprintf(ret + used, cap - used, "%s%s", used ? " " : "", found->list[i].kind->code);
    }
}

Test(doctor, a_healthy_site_gives_nothing)
{
    adv_auto_free struct doctor_facts *f = healthy();
    adv_auto_free struct doctor_findings *found = judged(f);
    char codes[400];

    codes_of(found, codes, sizeof(codes));
    cr_assert_str_eq(codes, "");
    cr_assert_eq(found->n_unchecked, 0, "%s: %s", found->unchecked[0].check, found->unchecked[0].why);
    cr_assert_eq(doctor_exit_code(found), 0);
    for (int v = 0; v < ADAPTER_VERB_MAX_; v++)
        cr_assert_eq(doctor_may(f, (enum adapter_verb) v), DOCTOR_YES);
}

/* What nobody was asked about is not told as good, and not as bad either. */
Test(doctor, nothing_known_is_nothing_found)
{
    adv_auto_free struct doctor_facts *f = healthy();
    adv_auto_free struct doctor_findings *found = NULL;
    char codes[400];

    memset(&f->slurm, 0, sizeof(f->slurm));
    f->host = (struct doctor_host) { .free_bytes = -1, .journal_code = -ADV_NOT_FOUND, .tail_on = true, .ceiling_set = true, .ceiling_known = true };
    f->target = "";
    found = judged(f);
    codes_of(found, codes, sizeof(codes));
    cr_assert_str_eq(codes, "");
    cr_assert_geq(found->n_unchecked, 5);
    cr_assert_eq(doctor_may(f, ADAPTER_VERB_PRESERVE), DOCTOR_UNKNOWN);
}

#define REFUSED(a, c, words) (a) = (struct doctor_answer) { .end = DOCTOR_REFUSED, .exit_code = 1, .complaint = (c), .took_ms = 20, .said = words }
/* One change to a healthy site, and all that is found then. */
#define CASES(X)                                                                                                                                        \
    X("AGENT_CONFIG_INVALID", (void) strcpy(h->config_error, "line 3: unknown key"))                                                                    \
    X("AGENT_CONFIG_INCOMPLETE", h->no_cluster = true)                                                                                                  \
    X("AGENT_CONFIG_INVALID", (h->defaults_only = true, h->ceiling_set = false, c->job_requeue = DOCTOR_NO))                                             \
    X("NOT_AGENT_USER", h->other_user = true)                                                                                                           \
    X("NO_SLURM_CONF", (s->conf_code = -ADV_UNAVAILABLE, s->no_conf = true))                                                                            \
    X("SLURM_CONF_UNREADABLE", s->conf_code = -ADV_UNAVAILABLE)                                                                                         \
    X("SLURM_CONF_BAD", REFUSED(s->ping, DOCTOR_BAD_CONF, "Parse error"))                                                                               \
    X("SLURM_TOOLS_MISSING", (void) strcpy(s->tools_missing, "sacct"))                                                                                  \
    X("MUNGE_DOWN", REFUSED(s->ping, DOCTOR_NO_MUNGE, "Munge encode failed"))                                                                           \
    X("CREDENTIAL_REFUSED", REFUSED(s->ping, DOCTOR_BAD_CREDENTIAL, "Protocol authentication error"))                                                   \
    X("SHORT_TTL_REFUSED", REFUSED(s->ping, DOCTOR_BAD_CREDENTIAL, "x"); s->ping_own_conf.end = DOCTOR_ANSWERED)                                        \
    X("AUTH_NOT_MUNGE", (void) strcpy(c->auth_type, "auth/slurm"))                                                                                      \
    X("SLURMCTLD_DOWN", REFUSED(s->ping, DOCTOR_COMPLAINT_NONE, "Slurmctld(primary) at a is DOWN"))                                                     \
    X("SLURMCTLD_SILENT", REFUSED(s->ping, DOCTOR_COMPLAINT_NONE, "DOWN"); s->ping.took_ms = 10000)                                                     \
    X("SLURMCTLD_SILENT", s->ping.end = DOCTOR_SILENT)                                                                                                  \
    X("SLURMCTLD_BACKUP_DOWN", (void) strcpy(s->controllers_down, "Slurmctld(backup) at b"))                                                            \
    X("SLURMCTLD_SLOW", s->jobs.took_ms = 3000)                                                                                                         \
    X("ANSWER_UNREADABLE", c->known = false)                                                                                                            \
    X("ANSWER_UNREADABLE", s->ping.end = DOCTOR_TOO_MUCH)                                                                                               \
    X("JOB_LIST_UNREADABLE", s->jobs_read = false)                                                                                                      \
    X("VERSION_UNTRIED", (void) strcpy(c->version, "27.11.0"))                                                                                          \
    X("CLIENT_NEWER", (void) strcpy(s->client_version, "26.05.1"))                                                                                      \
    X("RATE_LIMITED", c->rate_limit = DOCTOR_YES)                                                                                                       \
    X("CLUSTER_NAME_DIFFERS", (void) strcpy(c->cluster, "beta"))                                                                                        \
    X("FEDERATED", (void) strcpy(s->federation_name, "east"))                                                                                           \
    X("SEVERAL_CLUSTERS", s->n_clusters = 2)                                                                                                            \
    X("OPERATOR_MISSING", s->privilege = ADAPTER_PRIVILEGE_NONE)                                                                                        \
    X("OPERATOR_MISSING", (s->privilege = ADAPTER_PRIVILEGE_UNKNOWN, s->user_unknown = true))                                                           \
    X("OPERATOR_MISSING JOBS_HIDDEN", (s->privilege = ADAPTER_PRIVILEGE_NONE, c->private_jobs = DOCTOR_YES))                                            \
    X("RIGHTS_UNKNOWN", s->privilege = ADAPTER_PRIVILEGE_UNKNOWN)                                                                                       \
    X("MORE_RIGHTS_THAN_NEEDED", s->privilege = ADAPTER_PRIVILEGE_ADMIN)                                                                                \
    X("MORE_RIGHTS_THAN_NEEDED", s->superuser = true)                                                                                                   \
    X("ACCOUNTING_ABSENT", (void) strcpy(c->accounting_type, "accounting_storage/none"))                                                                \
    X("SLURMDBD_UNREACHABLE", REFUSED(s->accounting, DOCTOR_NO_DBD, "Connection refused"))                                                              \
    X("ACCOUNTING_NO_COMMENT", c->store_comment = DOCTOR_NO)                                                                                            \
    X("MIN_JOB_AGE_BELOW_POLL", c->min_job_age_s = 30)                                                                                                  \
    X("MIN_JOB_AGE_SHORT", c->min_job_age_s = 120)                                                                                                      \
    X("MIN_JOB_AGE_ZERO", c->min_job_age_s = 0)                                                                                                         \
    X("JOB_REQUEUE_OFF", c->job_requeue = DOCTOR_NO)                                                                                                    \
    X("REQUEUE_EXIT_SET", (void) strcpy(c->requeue_exit, "1"))                                                                                          \
    X("REQUEUE_EXIT_OVERLAP REQUEUE_EXIT_SET",                                                                                                          \
      ((void) strcpy(c->requeue_exit, "1"), (void) strcpy(c->requeue_exit_hold, "1"), (void) strcpy(c->requeue_both, "1")))                             \
    X("KILL_WAIT_LONG", c->kill_wait_s = 120)                                                                                                           \
    X("COMPLETE_WAIT_LONG", c->complete_wait_s = 60)                                                                                                    \
    X("INACTIVE_LIMIT_SET", c->inactive_limit_s = 60)                                                                                                   \
    X("NODE_EPILOG_SET", c->node_epilog = DOCTOR_YES)                                                                                                   \
    X("CTLD_EPILOG_ABSENT", c->ctld_epilog = DOCTOR_NO)                                                                                                 \
    X("MESSAGE_TIMEOUT_LONG", c->message_timeout_s = 60)                                                                                                \
    X("OUTPUT_TRUNCATED", c->file_append = DOCTOR_NO)                                                                                                   \
    X("CLOCK_SKEW", s->skew_ms = -3000)                                                                                                                 \
    X("CLOCK_SKEW_LARGE", s->skew_ms = 6000)                                                                                                            \
    X("CLOCK_NOT_SYNCED", h->clock_synced = DOCTOR_NO)                                                                                                  \
    X("CLOCK_STEPPED", h->clock_stepped_ms = -5000)                                                                                                     \
    X("CLOCK_WENT_BACK", h->journal_ahead_s = 3600)                                                                                                     \
    X("NODE_CLOCK_AHEAD", ((void) strcpy(s->node_ahead, "n1"), s->node_ahead_s = 60))                                                                   \
    X("TAIL_HELPER_MISSING", h->helper = DOCTOR_HELPER_MISSING)                                                                                         \
    X("TAIL_HELPER_NOT_RUNNABLE", h->helper = DOCTOR_HELPER_NOT_OURS)                                                                                   \
    X("TAIL_HELPER_NO_RIGHTS", h->helper = DOCTOR_HELPER_NO_RIGHTS)                                                                                     \
    X("TAIL_HELPER_ODD", h->helper = DOCTOR_HELPER_ODD)                                                                                                 \
    X("TAIL_HELPER_FOR_ALL", h->helper_for_all = true)                                                                                                  \
    X("TAIL_OFF", h->tail_on = false)                                                                                                                   \
    X("OUTPUT_UNREADABLE", s->outputs[0].state = DOCTOR_OUTPUT_DENIED)                                                                                  \
    X("OUTPUT_NOT_HERE", s->outputs[0].state = DOCTOR_OUTPUT_ABSENT)                                                                                    \
    X("OUTPUT_HANGS", s->outputs[0].state = DOCTOR_OUTPUT_HUNG)                                                                                         \
    X("", s->outputs[0].state = DOCTOR_OUTPUT_NO_LOG)                                                                                                   \
    X("OUTPUT_NODE_LOCAL", s->outputs[0].network = DOCTOR_NO)                                                                                           \
    X("STATE_DIR_MISSING", (h->dir_exists = DOCTOR_NO, h->dir_creatable = DOCTOR_NO))                                                                   \
    X("STATE_DIR_NOT_WRITABLE", h->dir_writable = DOCTOR_NO)                                                                                            \
    X("STATE_DIR_OPEN", (h->dir_open = true, h->dir_mode = 0777))                                                                                       \
    X("STATE_DIR_VOLATILE", h->dir_lasting = DOCTOR_NO)                                                                                                 \
    X("DISK_FULL", h->free_bytes = 4096)                                                                                                                \
    X("DISK_NEARLY_FULL", h->free_bytes = 100 << 20)                                                                                                    \
    X("JOURNAL_DAMAGED", h->journal_code = -ADV_DATA_LOSS)                                                                                              \
    X("JOURNAL_UNREADABLE", h->journal_code = -ADV_PERMISSION_DENIED)                                                                                   \
    X("STEPS_OPEN", (h->agent_runs = DOCTOR_NO, h->open_steps = 1))                                                                                     \
    X("HOLDS_UNATTENDED", (h->agent_runs = DOCTOR_NO, h->holds = 2))                                                                                    \
    X("DUPLICATE_AGENT", (void) strcpy(h->other_agent, "Process 7 is an agent"))                                                                        \
    X("CEILING_NOT_SET", h->ceiling_set = false)                                                                                                        \
    X("CEILING_UNUSABLE", h->ceiling_known = false)                                                                                                     \
    X("CEILING_OFF", h->ceiling_off = true)                                                                                                             \
    X("JOB_COMMENT_MALFORMED", (s->n_comments = 7, (void) strcpy(s->comments[0].job, "9")))                                                             \
    X("NOT_ENROLLED", h->cert_code = -ADV_NOT_FOUND)                                                                                                    \
    X("CERT_UNREADABLE", h->cert_code = -ADV_INVALID_ARGUMENT)                                                                                          \
    X("CERT_UNREADABLE", h->link = DOCTOR_LINK_FILES)                                                                                                   \
    X("CERT_EXPIRED", h->cert_until_s = NOW - 1)                                                                                                        \
    X("CERT_NOT_YET_VALID", h->cert_from_s = NOW + 100)                                                                                                 \
    X("CERT_NEAR_EXPIRY", h->cert_until_s = NOW + 2 * DAY)                                                                                              \
    X("CERT_OTHER_CLUSTER", (void) strcpy(h->cert_cluster, "beta"))                                                                                     \
    X("KEY_EXPOSED", h->key_mode = 0644)                                                                                                                \
    X("CERT_NOT_RENEWABLE", h->renewable = DOCTOR_NO)                                                                                                   \
    X("CONTROL_PLANE_UNREACHABLE", h->link = DOCTOR_LINK_UNREACHABLE)                                                                                   \
    X("CONTROL_PLANE_TLS", h->link = DOCTOR_LINK_TLS)                                                                                                   \
    X("CONTROL_PLANE_REFUSES", h->link = DOCTOR_LINK_REFUSED)                                                                                           \
    X("CONTROL_PLANE_PLAIN", h->insecure = true)

static unsigned bit_seen[128];

static void expect_codes(const struct doctor_facts *f, const char *want)
{
    adv_auto_free struct doctor_findings *found = judged(f);
    size_t n;
    const struct doctor_kind *kinds = doctor_kinds(&n);
    char codes[1000];

    codes_of(found, codes, sizeof(codes));
    cr_assert_str_eq(codes, want);
    for (size_t i = 0; i < found->n; i++) {
        cr_assert(found->list[i].what[0] && found->list[i].cure[0] && found->list[i].kind->means[0], "%s", codes);
        cr_assert(adv_utf8_valid(found->list[i].what, strlen(found->list[i].what)), "%s", codes);
        bit_seen[found->list[i].kind - kinds]++;
    }
}

Test(doctor, each_fault_gives_its_code_alone)
{
    size_t n;
    const struct doctor_kind *kinds = doctor_kinds(&n);

    cr_assert_lt(n, ADV_ARRAY_LEN(bit_seen));
#define X(want, change)                                                                                                                                 \
    {                                                                                                                                                   \
        adv_auto_free struct doctor_facts *f = healthy();                                                                                               \
        struct doctor_slurm *s = &f->slurm;                                                                                                             \
        struct doctor_settings *c = &s->set;                                                                                                            \
        struct doctor_host *h = &f->host;                                                                                                               \
        (void) s, (void) c, (void) h;                                                                                                                   \
        change;                                                                                                                                         \
        expect_codes(f, want);                                                                                                                          \
    }
    CASES(X)
#undef X
    for (size_t i = 0; i < n; i++)
        cr_assert(bit_seen[i], "%s was never found", kinds[i].code);
}

/* Who looks as another user than the agent is never the one whose rights are mended, nor is what only he may not do a fault. */
Test(doctor, another_user_is_not_the_agent)
{
    static const char *const only_his[] = { "STATE_DIR_NOT_WRITABLE", "JOURNAL_UNREADABLE", "TAIL_HELPER_NOT_RUNNABLE", "TAIL_HELPER_NO_RIGHTS",
                                            "CERT_UNREADABLE", "CERT_NOT_RENEWABLE", "CEILING_UNUSABLE" };
    unsigned not_looked = 0;

#define X(want, change)                                                                                                                                 \
    {                                                                                                                                                   \
        adv_auto_free struct doctor_facts *f = healthy();                                                                                               \
        struct doctor_slurm *s = &f->slurm;                                                                                                             \
        struct doctor_settings *c = &s->set;                                                                                                            \
        struct doctor_host *h = &f->host;                                                                                                               \
        (void) s, (void) c, (void) h;                                                                                                                   \
        change;                                                                                                                                         \
        h->other_user = true;                                                                                                                           \
        h->uid = 1001;                                                                                                                                  \
        (void) strcpy(h->me, "alice");                                                                                                                  \
        adv_auto_free struct doctor_findings *found = judged(f);                                                                                        \
        for (size_t i = 0; i < found->n; i++) {                                                                                                         \
            cr_assert_null(strstr(found->list[i].cure, "alice"), "%s: %s", want, found->list[i].cure);                                                  \
            for (size_t k = 0; k < ADV_ARRAY_LEN(only_his); k++)                                                                                        \
                cr_assert_str_neq(found->list[i].kind->code, only_his[k]);                                                                              \
        }                                                                                                                                               \
        for (size_t i = 0; i < found->n_unchecked; i++)                                                                                                 \
            not_looked += strstr(found->unchecked[i].why, "seen as alice") != NULL;                                                                     \
    }
    CASES(X)
#undef X
    cr_assert_gt(not_looked, 5);

    /* what anybody sees is told, with the agent's name in the cure */
    adv_auto_free struct doctor_facts *f = healthy();
    f->host.other_user = f->host.helper_for_all = true;
    (void) strcpy(f->host.me, "root");
    (void) strcpy(f->host.state_owner, "keeper");
    f->slurm.privilege = ADAPTER_PRIVILEGE_NONE;
    f->host.ceiling_known = false; /* root may read whatever can be read */
    f->host.journal_code = -ADV_DATA_LOSS;
    f->host.uid = 0;
    adv_auto_free struct doctor_findings *found = judged(f);
    char codes[400];
    codes_of(found, codes, sizeof(codes));
    cr_assert_str_eq(codes, "OPERATOR_MISSING JOURNAL_DAMAGED CEILING_UNUSABLE NOT_AGENT_USER TAIL_HELPER_FOR_ALL");
    cr_assert_not_null(strstr(found->list[4].cure, "id -gn keeper"), "%s", found->list[4].cure);
}

/* A cure is done as it stands: it opts nobody in, and ends no hold that is somebody else's. */
Test(doctor, cures_are_safe)
{
    adv_auto_free struct doctor_facts *f = healthy();
    f->slurm.n_comments = 1;
    (void) strcpy(f->slurm.comments[0].job, "9");
    f->host.journal_code = -ADV_DATA_LOSS;
    f->host.ceiling_set = false;
    adv_auto_free struct doctor_findings *found = judged(f);
    cr_assert_eq(found->n, 3);
    cr_assert_not_null(strstr(found->list[0].cure, "ask the owners of the others"), "%s", found->list[0].cure);
    cr_assert_not_null(strstr(found->list[0].cure, "job requeued in held state"), "%s", found->list[0].cure);
    cr_assert_not_null(strstr(found->list[0].cure, "start the agent."), "%s", found->list[0].cure);
    for (size_t i = 1; i < 3; i++) {
        if (adv_streq(found->list[i].kind->code, "JOB_COMMENT_MALFORMED"))
            cr_assert(strstr(found->list[i].cure, "scontrol show job 9") && !strstr(found->list[i].cure, "mode"), "%s", found->list[i].cure);
        else
            cr_assert_not_null(strstr(found->list[i].cure, "If there is none yet"), "%s", found->list[i].cure);
    }
}

/* The bounds themselves. */
Test(doctor, bounds)
{
    static const struct {
        int64_t age_s, poll_ms;
        const char *codes;
    } t[] = {
        { 179, 15000, "MIN_JOB_AGE_SHORT" },      { 180, 15000, "" },  { 31, 15000, "MIN_JOB_AGE_SHORT" }, { 30, 15000, "MIN_JOB_AGE_BELOW_POLL" },
        { 300, 120000, "MIN_JOB_AGE_SHORT" },     { 300, 75000, "" },  { 2, 1001, "MIN_JOB_AGE_BELOW_POLL" }, { -1, 15000, "" },
        { INT32_MAX, 15000, "" },                 { 300, 600000, "MIN_JOB_AGE_BELOW_POLL" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        adv_auto_free struct doctor_facts *f = healthy();

        f->slurm.set.min_job_age_s = t[i].age_s;
        f->poll_ms = t[i].poll_ms;
        expect_codes(f, t[i].codes);
    }
    adv_auto_free struct doctor_facts *f = healthy();
    f->slurm.skew_ms = 2400; /* but known to half a second */
    expect_codes(f, "");
    f->slurm.skew_ms = 2500;
    expect_codes(f, "CLOCK_SKEW");
    f->host.cert_from_s = NOW - 2 * DAY; /* lives for a week: renewed when a third is left */
    f->host.cert_until_s = NOW + 5 * DAY;
    f->slurm.skew_ms = 0;
    expect_codes(f, "");
}

/* A dead slurmctld is one finding, not twenty. */
Test(doctor, one_cause_is_one_finding)
{
    adv_auto_free struct doctor_facts *f = healthy();
    adv_auto_free struct doctor_findings *found = NULL;
    char codes[200];

    memset(&f->slurm, 0, sizeof(f->slurm));
    REFUSED(f->slurm.ping, DOCTOR_NO_MUNGE, "Munge encode failed");
    found = judged(f);
    codes_of(found, codes, sizeof(codes));
    cr_assert_str_eq(codes, "MUNGE_DOWN");
    cr_assert_eq(doctor_exit_code(found), 2);
    cr_assert_geq(found->n_unchecked, 2);
}

Test(doctor, reports)
{
    adv_auto_free struct doctor_facts *f = healthy();
    adv_auto_free struct doctor_findings *found = NULL;
    ADV_AUTO_DONE(adv_buf) text;
    ADV_AUTO_DONE(adv_buf) json;
    ADV_AUTO_DONE(adv_buf) docs;
    ADV_JSON_AUTO json_t *root = NULL;
    json_t *list;
    size_t n;

    adv_buf_init(&text, 1 << 20);
    adv_buf_init(&json, 1 << 20);
    adv_buf_init(&docs, 1 << 20);
    f->slurm.privilege = ADAPTER_PRIVILEGE_NONE;
    f->slurm.set.job_requeue = DOCTOR_NO;
    found = judged(f);
    cr_assert_eq(doctor_report_text(f, found, 60, &text), 0);
    cr_assert_not_null(strstr(text.data, "1 fault, 1 warning, 0 notes"), "%s", text.data);
    cr_assert_lt(strstr(text.data, "OPERATOR_MISSING"), strstr(text.data, "JOB_REQUEUE_OFF"));
    cr_assert_not_null(strstr(text.data, "sacctmgr modify user advisor-agent"), "%s", text.data);
    for (char *line = text.data, *nl; (nl = strchr(line, '\n')); line = nl + 1)
        cr_assert_leq(nl - line, 80, "%.100s", line);
    cr_assert_eq(doctor_report_json(f, found, &json), 0);
    cr_assert_eq(adv_json_parse(json.data, json.len, 1 << 20, &root, NULL), 0, "%s", json.data);
    list = json_object_get(root, "findings");
    cr_assert_eq(json_array_size(list), 2);
    cr_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "code")), "OPERATOR_MISSING");
    cr_assert_str_eq(json_string_value(json_object_get(json_object_get(root, "verbs"), "preserve")), "no");
    cr_assert_eq(doctor_report_docs(&docs), 0);
    (void) doctor_kinds(&n);
    size_t rows = 0;
    for (const char *p = docs.data; (p = strstr(p, "\n| `")); p++)
        rows++;
    cr_assert_eq(rows, n);
}

/* ---- a scripted Slurm ---- */

struct bench {
    char dir[64], conf[96];
    struct adapter_runner *r;
    struct doctor_facts *f;
};

static void pump(void *ctx)
{
    runner_scripted_spin(ctx, 1000000); /* virtual: to the next answer */
}

static void gather(struct bench *b, const char *script, bool conf)
{
    struct adv_err err = { 0 };

    *b = (struct bench) { .dir = "/tmp/adv-doctor-XXXXXX", .f = healthy() };
    cr_assert_not_null(mkdtemp(b->dir));
    (void) snprintf(b->conf, sizeof(b->conf), "%s/site.conf", b->dir);
    if (conf) {
        FILE *f = fopen(b->conf, "w");
        cr_assert_not_null(f);
        (void) fputs("ClusterName=alpha\n", f);
        (void) fclose(f);
    }
    cr_assert_eq(runner_scripted_new(script, &b->r, &err), 0, "%s", err.msg);
    struct doctor_asking a = {
        .runner = b->r, .pump = pump, .ctx = b->r, .scratch = b->dir, .slurm_conf = b->conf, .host = "h1",
        .until_mono_us = b->r->ops->mono_us(b->r) + 60 * INT64_C(1000000),
    };
    memset(&b->f->slurm, 0, sizeof(b->f->slurm));
    doctor_gather(&a, b->f);
    cr_assert_null(runner_scripted_error(b->r), "%s", runner_scripted_error(b->r));
}

static void done(struct bench *b)
{
    char path[128];

    b->r->ops->free(b->r);
    free(b->f);
    (void) snprintf(path, sizeof(path), "%s/slurm.conf", b->dir);
    (void) unlink(path);
    (void) unlink(b->conf);
    cr_assert_eq(rmdir(b->dir), 0);
}

#define TOOLS                                                                                                                                           \
    "> scontrol -V\n< slurm-wlm 24.11.5\n> squeue -V\n< slurm-wlm 24.11.5\n> scancel -V\n< slurm-wlm 24.11.5\n> sinfo -V\n< slurm-wlm 24.11.5\n"         \
    "> sacct -V\n< slurm-wlm 24.11.5\n"
#define UP     "> scontrol ping\n< Slurmctld(primary) at h1 is UP\n"
#define CONFIG "> scontrol show config\n< ClusterName = alpha\n< SLURM_VERSION = 24.11.5\n< SlurmUser = slurm(64030)\n< AuthType = auth/munge\n"          \
               "< AccountingStorageType = accounting_storage/slurmdbd\n< AccountingStoreFlags = job_comment\n< MinJobAge = 300 sec\n< PrivateData = none\n"

Test(doctor, asks_a_healthy_slurm)
{
    struct bench b;
    char script[4000], codes[300];

    (void) snprintf(script, sizeof(script),
                    TOOLS UP CONFIG "> sdiag\n< sdiag output at now (%lld)\n"
                                    "> scontrol -o show assoc_mgr flags=users users=advisor-agent\n< Current Association Manager state\n"
                                    "< UserName=advisor-agent(990) DefAccount=root DefWckey= AdminLevel=Operator\n"
                                    "> squeue -h -r -a -t all -O *\n> squeue -h -a -t pending,running -O *\n< 7${nonce}{\"advisor\": {\"mo${nonce}\n"
                                    "> scontrol -o show nodes\n< NodeName=n1 NodeHostName=h1 SlurmdStartTime=%lld\n"
                                    "> sacct -n -X -P -j 1 -o *\n> scontrol show federation\n> sacctmgr -n -P show cluster format=Cluster\n< alpha\n",
                    (long long) 1700000000, (long long) 1700003600);
    gather(&b, script, true);
    cr_assert_eq(b.f->slurm.ping.end, DOCTOR_ANSWERED);
    cr_assert(b.f->slurm.set.known);
    cr_assert_eq(b.f->slurm.privilege, ADAPTER_PRIVILEGE_OPERATOR);
    cr_assert(b.f->slurm.jobs_read, "%s", b.f->slurm.jobs_why);
    cr_assert_eq(b.f->slurm.skew_known, DOCTOR_YES);
    cr_assert_eq(b.f->slurm.n_comments, 1);
    cr_assert_eq(b.f->slurm.n_clusters, 1);
    cr_assert_str_eq(b.f->slurm.node_ahead, "n1");
    cr_assert_str_eq(b.f->slurm.client_version, "24.11.5");
    adv_auto_free struct doctor_findings *found = judged(b.f);
    codes_of(found, codes, sizeof(codes));
    cr_assert_not_null(strstr(codes, "JOB_COMMENT_MALFORMED"), "%s", codes);
    done(&b);
}

/* Nothing is run without a slurm.conf: the tools would look for one for a minute. */
Test(doctor, no_slurm_conf_no_command)
{
    struct bench b;
    char codes[300];

    gather(&b, "# no command is expected\n", false);
    adv_auto_free struct doctor_findings *found = judged(b.f);
    codes_of(found, codes, sizeof(codes));
    cr_assert_str_eq(codes, "NO_SLURM_CONF");
    done(&b);
}

/* Each command hangs: all of them together have their time, and no more. */
Test(doctor, a_slurm_that_hangs_is_bounded)
{
    struct bench b;
    char codes[300];
    int64_t began_us;

    struct adapter_runner *r = NULL;
    cr_assert_eq(runner_scripted_new("# clock\n", &r, NULL), 0);
    began_us = r->ops->mono_us(r);
    r->ops->free(r);
    gather(&b, "> ** \n= timeout\n@ 20000\n? any\n", true);
    cr_assert_leq(b.r->ops->mono_us(b.r) - began_us, INT64_C(130) * 1000000);
    adv_auto_free struct doctor_findings *found = judged(b.f);
    codes_of(found, codes, sizeof(codes));
    cr_assert_null(strstr(codes, "OPERATOR"), "%s", codes);
    done(&b);
}

Test(doctor, garbage_answers)
{
    static const char *const lines[] = { "< \n", "< \x01\x02%n%s\xff\n", "< ClusterName\n< =\n", "! error: \xc3\n= 3\n", "= lost\n" };

    for (size_t i = 0; i < ADV_ARRAY_LEN(lines); i++) {
        struct bench b;
        char script[300];

        (void) snprintf(script, sizeof(script), "> ** \n%s? any\n", lines[i]);
        gather(&b, script, true);
        adv_auto_free struct doctor_findings *found = judged(b.f);
        ADV_AUTO_DONE(adv_buf) json;
        adv_buf_init(&json, 1 << 20);
        cr_assert_eq(doctor_report_json(b.f, found, &json), 0);
        cr_assert_geq(found->n + found->n_unchecked, 1, "case %zu", i);
        for (size_t k = 0; k < found->n; k++)
            cr_assert(!adv_streq(found->list[k].kind->code, "OPERATOR_MISSING"), "case %zu", i);
        done(&b);
    }
}

Test(doctor, a_short_ttl_that_is_refused)
{
    struct bench b;
    char codes[300];

    gather(&b, TOOLS "> scontrol ping\n! scontrol: error: Protocol authentication error\n= 1\n> scontrol ping\n< Slurmctld(primary) at h1 is UP\n"
                     "> sacct -n -X -P -j 1 -o *\n! sacct: error: Problem talking to the database: Connection refused\n= 1\n", true);
    adv_auto_free struct doctor_findings *found = judged(b.f);
    codes_of(found, codes, sizeof(codes));
    cr_assert_str_eq(codes, "SHORT_TTL_REFUSED SLURMDBD_UNREACHABLE");
    done(&b);
}
