/* SPDX-License-Identifier: Apache-2.0 */

/* One command after the other: a doctor is in no hurry, and a slurmctld that is ill should not be asked by many at once. The
 * tools run as the agent's do: with a copy of slurm.conf whose credentials live for ten seconds, and a fixed environment. So
 * whatever answers here answers the agent as well, munge and the short life of credentials included. */

#include "advisor-agent/doctor/gather.h"

#include <stdio.h>

#include "adapters/slurm/conf.h"
#include "adapters/slurm/parse.h"
#include "advisor-agent/doctor/read.h"
#include "common/hostlist.h"
#include "common/jobcomment.h"

#define TTL_S         10 /* as the adapter's default */
#define OUTPUT_MAX    (64u << 20)
#define PATIENCE_MS   4000  /* a refusal that took longer is slowness, and not worth another wait */
#define AHEAD_SLACK_S 2

struct run {
    bool done;
    struct doctor_answer *answer;
    char **out;
    size_t *len;
};

static void on_run(void *arg, const struct adapter_run_result *res)
{
    static const enum doctor_end ends[] = {
        [ADAPTER_RUN_EXITED] = DOCTOR_ANSWERED,     [ADAPTER_RUN_SIGNALED] = DOCTOR_REFUSED, [ADAPTER_RUN_TIMED_OUT] = DOCTOR_SILENT,
        [ADAPTER_RUN_NOT_STARTED] = DOCTOR_NO_TOOL, [ADAPTER_RUN_OVERFLOW] = DOCTOR_TOO_MUCH,
    };
    struct run *r = arg;
    struct doctor_answer *a = r->answer;

    a->end = res->end == ADAPTER_RUN_EXITED && res->exit_code ? DOCTOR_REFUSED : ends[res->end];
    a->exit_code = res->exit_code;
    a->took_ms = res->took_us / 1000;
    if (a->end == DOCTOR_REFUSED) { /* a release may put it on either */
        a->complaint = doctor_read_complaint(res->err, res->err_len);
        if (!a->complaint)
            a->complaint = doctor_read_complaint(res->out, res->out_len);
        doctor_read_said(res->err, res->err_len, a->said);
        if (!a->said[0])
            doctor_read_said(res->out, res->out_len, a->said);
    } else if (strstr(res->err, "error:")) {
        doctor_read_said(res->err, res->err_len, a->said);
    }
    if (r->out && (*r->out = malloc(res->out_len + 1))) {
        if (res->out_len)
            memcpy(*r->out, res->out, res->out_len);
        (*r->out)[res->out_len] = '\0';
        *r->len = res->out_len;
    }
    r->done = true;
}

void doctor_ask(const struct doctor_asking *a, const char *slurm_conf, const char *const argv[], int deadline_ms, struct doctor_answer *ret,
                char **ret_out, size_t *ret_len)
{
    const char *inherited = getenv("PATH");
    char conf[4200], path[4200];
    const char *const env[] = { conf, path, "LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "HOME=/", NULL };
    int64_t left_ms = (a->until_mono_us - a->runner->ops->mono_us(a->runner)) / 1000;
    struct adapter_run_opts opts = { .env = env, .deadline_ms = deadline_ms, .max_output_bytes = OUTPUT_MAX };
    size_t unused = 0;
    struct run r = { .answer = ret, .out = ret_out, .len = ret_len ? ret_len : &unused };

    *ret = (struct doctor_answer) { 0 };
    if (ret_out)
        *ret_out = NULL;
    if (left_ms > 0) {
        (void) snprintf(conf, sizeof(conf), "SLURM_CONF=%s", slurm_conf);
        (void) snprintf(path, sizeof(path), "PATH=%s", inherited ? inherited : "/usr/bin:/bin");
        if (opts.deadline_ms > left_ms)
            opts.deadline_ms = (int) left_ms;
        a->runner->ops->run(a->runner, argv, &opts, on_run, &r);
        while (!r.done)
            a->pump(a->ctx);
    } else {
        (void) snprintf(ret->said, sizeof(ret->said), "the doctor's own time was over");
    }
    if (ret_out && !*ret_out) {
        *ret_len = 0;
        if (!(*ret_out = calloc(1, 1)))
            abort(); /* an answer that is lost here would read as an empty one */
    }
}

/* ---- asking ---- */

struct asking {
    const struct doctor_asking *a;
    struct doctor_facts *f;
    struct slurm_conf *conf;
};

/* A tool of Slurm; argv[0] is its bare name. Returns its output when it answered, else NULL. Owner: caller. */
static char *ask(struct asking *k, const char *const argv[], struct doctor_answer *ret, size_t *ret_len)
{
    char tool[4200];
    const char *with[12] = { tool };
    char *out;

    (void) snprintf(tool, sizeof(tool), "%s%s%s", k->f->bin_dir, k->f->bin_dir[0] ? "/" : "", argv[0]);
    for (size_t i = 1; i < ADV_ARRAY_LEN(with) - 1 && argv[i]; i++)
        with[i] = argv[i];
    doctor_ask(k->a, slurm_conf_path(k->conf), with, (int) k->f->command_deadline_ms, ret, &out, ret_len);
    if (ret->end == DOCTOR_ANSWERED)
        return out;
    if (ret->said[0] && ret->end == DOCTOR_NOT_ASKED)
        k->f->out_of_time = true;
    free(out);
    return NULL;
}

static void ask_tools(struct asking *k)
{
    static const char *const tools[] = { "scontrol", "squeue", "scancel", "sinfo", "sacct" };
    struct doctor_slurm *s = &k->f->slurm;
    size_t used = 0;

    for (size_t i = 0; i < ADV_ARRAY_LEN(tools); i++) {
        const char *const argv[] = { tools[i], "-V", NULL };
        struct doctor_answer a;
        size_t len;
        adv_auto_free char *out = ask(k, argv, &a, &len);

        if (out && i == 0)
            doctor_read_version(out, len, s->client_version);
        if (a.end == DOCTOR_NO_TOOL || (a.end == DOCTOR_REFUSED && (a.exit_code == 126 || a.exit_code == 127)))
            used += (size_t) snprintf(s->tools_missing + used, sizeof(s->tools_missing) - used, "%s%s", used ? ", " : "", tools[i]);
    }
}

/* Is slurmctld there, by our copy of slurm.conf? Where it is not: is it there by the site's own? */
static bool ask_ping(struct asking *k)
{
    static const char *const argv[] = { "scontrol", "ping", NULL };
    struct doctor_slurm *s = &k->f->slurm;
    size_t len;
    adv_auto_free char *out = ask(k, argv, &s->ping, &len);

    if (out) {
        if (doctor_read_ping(out, len, s->controllers_down, sizeof(s->controllers_down)) == DOCTOR_NO) {
            s->ping.end = DOCTOR_REFUSED; /* whatever the exit code says */
            doctor_read_said(out, len, s->ping.said);
        }
        return s->ping.end == DOCTOR_ANSWERED;
    }
    if (s->ping.end == DOCTOR_REFUSED && s->ping.took_ms < PATIENCE_MS && s->ping.complaint != DOCTOR_NO_MUNGE && s->ping.complaint != DOCTOR_BAD_CONF && s->conf_source[0]) {
        char tool[4200];
        const char *const own[] = { tool, "ping", NULL };

        (void) snprintf(tool, sizeof(tool), "%s%sscontrol", k->f->bin_dir, k->f->bin_dir[0] ? "/" : "");
        doctor_ask(k->a, s->conf_source, own, (int) k->f->command_deadline_ms, &s->ping_own_conf, NULL, NULL);
    }
    return false;
}

static void ask_settings(struct asking *k)
{
    static const char *const argv[] = { "scontrol", "show", "config", NULL };
    struct doctor_slurm *s = &k->f->slurm;
    size_t len;
    adv_auto_free char *out = ask(k, argv, &s->config, &len);

    if (out)
        doctor_read_settings(out, len, &s->set);
}

static void ask_clock(struct asking *k)
{
    static const char *const argv[] = { "sdiag", NULL };
    struct doctor_slurm *s = &k->f->slurm;
    struct adapter_runner *r = k->a->runner;
    int64_t before_us = r->ops->wall_us(r);
    size_t len;
    adv_auto_free char *out = ask(k, argv, &s->stats, &len);
    int64_t after_us = r->ops->wall_us(r), theirs_s = out ? doctor_read_ctld_clock(out, len) : 0;

    if (!theirs_s || after_us < before_us)
        return;
    /* it was read between the two, and cut to a whole second */
    s->skew_known = DOCTOR_YES;
    s->skew_sharp_ms = (after_us - before_us) / 2000 + 500;
    s->skew_ms = theirs_s * 1000 + 500 - (before_us + after_us) / 2000;
}

static void ask_rights(struct asking *k)
{
    struct doctor_slurm *s = &k->f->slurm;
    const char *who = k->f->slurm_user_name;
    char users[300];
    const char *const argv[] = { "scontrol", "-o", "show", "assoc_mgr", "flags=users", users, NULL };

    if (adv_streq(who, "root") || (s->set.known && adv_streq(who, s->set.slurm_user))) {
        s->superuser = true;
        return;
    }
    (void) snprintf(users, sizeof(users), "users=%s", who);
    size_t len;
    adv_auto_free char *out = ask(k, argv, &s->assoc, &len);
    if (!out)
        return;
    s->privilege = slurm_parse_assoc(out, len, who);
    /* rights come from slurmdbd alone: without it nobody has any */
    s->user_unknown = s->privilege == ADAPTER_PRIVILEGE_UNKNOWN && strstr(out, "Association Manager state") && !strstr(out, "UserName=");
}

static void want_output(struct doctor_slurm *s, const struct adapter_job *j)
{
    struct doctor_output *o = &s->outputs[s->n_outputs];

    for (size_t i = 0; i < s->n_outputs; i++)
        if (s->outputs[i].uid == j->uid)
            return; /* another user's tells more */
    if (s->n_outputs == DOCTOR_OUTPUTS_MAX || !j->batch || j->state != ADAPTER_JOB_RUNNING || j->completing)
        return;
    *o = (struct doctor_output) { .uid = j->uid };
    (void) snprintf(o->job, sizeof(o->job), "%s", j->id);
    doctor_clean(o->user, sizeof(o->user), j->user, strlen(j->user));
    s->n_outputs++;
}

static void ask_jobs(struct asking *k)
{
    struct doctor_slurm *s = &k->f->slurm;
    ADV_AUTO_DONE(adv_buf) fmt = { 0 };
    ADV_AUTO(adapter_observation) o = NULL;
    size_t len;

    adv_buf_init(&fmt, 4096);
    if (slurm_job_format("|", &fmt) < 0)
        abort();
    const char *const argv[] = { "squeue", "-h", "-r", "-a", "-t", "all", "-O", fmt.data, NULL };
    char *out = ask(k, argv, &s->jobs, &len);
    if (!out)
        return;
    if (s->jobs.said[0]) { /* a refused field shows on stderr, at times with exit code 0 */
        free(out);
        (void) snprintf(s->jobs_why, sizeof(s->jobs_why), "%s", s->jobs.said);
        return;
    }
    if (!(o = slurm_parse_jobs(out, len))) /* takes out */
        return;
    s->jobs_read = o->complete;
    if (!o->complete) {
        doctor_clean(s->jobs_why, sizeof(s->jobs_why), o->err.msg, strlen(o->err.msg));
        return;
    }
    s->n_jobs = o->n_jobs;
    for (size_t i = 0; i < o->n_jobs; i++) {
        s->n_running += o->jobs[i].state == ADAPTER_JOB_RUNNING && o->jobs[i].batch;
        want_output(s, &o->jobs[i]);
    }
}

static void on_comment(void *arg, const char *job, const char *comment)
{
    struct doctor_slurm *s = arg;
    struct adv_jobcomment c;

    adv_jobcomment_parse(comment, &c);
    if (!c.error[0])
        return;
    if (s->n_comments < DOCTOR_COMMENTS_MAX) {
        struct doctor_comment *x = &s->comments[s->n_comments];

        (void) snprintf(x->job, sizeof(x->job), "%.20s", job);
        doctor_clean(x->why, sizeof(x->why), c.error, strlen(c.error));
    }
    s->n_comments++;
}

static void ask_comments(struct asking *k)
{
    struct doctor_slurm *s = &k->f->slurm;
    char sep[SLURM_NONCE_SIZE], fmt[128];
    const char *const argv[] = { "squeue", "-h", "-a", "-t", "pending,running", "-O", fmt, NULL };
    size_t len;

    slurm_nonce(sep); /* a comment may hold anything but what nobody can guess */
    (void) snprintf(fmt, sizeof(fmt), "JobID:%s,Comment:%s", sep, sep);
    adv_auto_free char *out = ask(k, argv, &s->sample, &len);
    if (out && !doctor_read_comments(out, len, sep, on_comment, s)) {
        s->sample.end = DOCTOR_REFUSED;
        (void) snprintf(s->sample.said, sizeof(s->sample.said), "squeue prints comments otherwise than expected");
    }
}

/* ---- nodes ---- */

struct nodes {
    struct asking *k;
    int64_t theirs_s; /* slurmctld's clock; 0: not known */
};

static bool same_host(const char *a, const char *b)
{
    size_t n = strcspn(a, "."), m = strcspn(b, ".");

    return n && n == m && strncasecmp(a, b, n) == 0;
}

static void on_node(void *arg, const char *name, const char *host, int64_t start_s)
{
    struct nodes *n = arg;
    struct doctor_slurm *s = &n->k->f->slurm;
    int64_t ahead_s = start_s && n->theirs_s ? start_s - n->theirs_s - AHEAD_SLACK_S : 0;

    if (ahead_s > s->node_ahead_s) {
        s->node_ahead_s = ahead_s;
        (void) snprintf(s->node_ahead, sizeof(s->node_ahead), "%s", name);
    }
    for (size_t i = 0; i < s->n_outputs; i++)
        if (adv_streq(s->outputs[i].first_node, name) && host[0])
            s->outputs[i].elsewhere = same_host(host, n->k->a->host) ? DOCTOR_NO : DOCTOR_YES;
}

static void ask_nodes(struct asking *k)
{
    static const char *const argv[] = { "scontrol", "-o", "show", "nodes", NULL };
    struct doctor_slurm *s = &k->f->slurm;
    struct adapter_runner *r = k->a->runner;
    size_t len;
    adv_auto_free char *out = ask(k, argv, &s->nodes, &len);
    struct nodes n = { .k = k, .theirs_s = s->skew_known == DOCTOR_YES ? (r->ops->wall_us(r) / 1000 + s->skew_ms) / 1000 : 0 };

    if (out)
        doctor_read_nodes(out, len, on_node, &n);
}

static void ask_output(struct asking *k, struct doctor_output *o)
{
    ADV_AUTO(adapter_job_detail) d = NULL;
    ADV_AUTO(adv_hostlist) hosts = adv_hostlist_new(100000);
    ADV_AUTO_DONE(adv_buf) fmt = { 0 };
    char nonce[SLURM_NONCE_SIZE];
    struct doctor_answer a;
    size_t len;

    adv_buf_init(&fmt, 8192);
    slurm_nonce(nonce);
    if (slurm_detail_format(nonce, &fmt) < 0)
        abort();
    const char *const argv[] = { "squeue", "-h", "-r", "-t", "all", "-j", o->job, "-O", fmt.data, NULL };
    adv_auto_free char *out = ask(k, argv, &a, &len);
    /* a job that ended meanwhile has nothing to tell */
    if (!out || slurm_parse_detail(out, len, nonce, o->job, &d, NULL) < 0 || d->job.uid != o->uid || d->job.state != ADAPTER_JOB_RUNNING)
        return;
    if (strlen(d->stdout_path) < sizeof(o->path))
        (void) strcpy(o->path, d->stdout_path);
    if (hosts && adv_hostlist_parse(hosts, d->job.nodes, NULL) == 0 && adv_hostlist_count(hosts))
        doctor_clean(o->first_node, sizeof(o->first_node), adv_hostlist_nth(hosts, 0), strlen(adv_hostlist_nth(hosts, 0)));
}

/* ---- the rest ---- */

static void ask_clusters(struct asking *k)
{
    static const char *const federation[] = { "scontrol", "show", "federation", NULL };
    static const char *const clusters[] = { "sacctmgr", "-n", "-P", "show", "cluster", "format=Cluster", NULL };
    struct doctor_slurm *s = &k->f->slurm;
    size_t len;
    adv_auto_free char *fed = ask(k, federation, &s->federation, &len);

    if (fed)
        doctor_read_federation(fed, len, s->federation_name, sizeof(s->federation_name));
    if (s->accounting.end != DOCTOR_ANSWERED)
        return;
    adv_auto_free char *out = ask(k, clusters, &s->clusters, &len);
    if (out)
        s->n_clusters = doctor_read_clusters(out, len);
}

static void ask_accounting(struct asking *k)
{
    static const char *const argv[] = { "sacct", "-n", "-X", "-P", "-j", "1", "-o", SLURM_ACCT_FIELDS, NULL };
    struct doctor_slurm *s = &k->f->slurm;
    size_t len;

    if (s->set.known && !strstr(s->set.accounting_type, "slurmdbd"))
        return;
    free(ask(k, argv, &s->accounting, &len));
}

void doctor_gather(const struct doctor_asking *a, struct doctor_facts *f)
{
    struct doctor_slurm *s = &f->slurm;
    struct asking k = { .a = a, .f = f };
    struct adv_err err = { 0 };
    const char *source;
    int r = slurm_conf_new(a->slurm_conf, a->scratch, TTL_S, &k.conf, &err);

    if (r == 0)
        r = slurm_conf_refresh(k.conf, &err);
    if (r < 0) {
        s->conf_code = r;
        s->no_conf = adv_streq(err.reason, "NO_SLURM_CONF") || err.sys_errno == ENOENT;
        doctor_clean(s->conf_said, sizeof(s->conf_said), err.msg, strlen(err.msg));
        (void) slurm_conf_free(k.conf);
        return;
    }
    if ((source = slurm_conf_source(k.conf)))
        (void) snprintf(s->conf_source, sizeof(s->conf_source), "%s", source);
    ask_tools(&k);
    if (ask_ping(&k)) {
        ask_settings(&k);
        ask_clock(&k);
        ask_rights(&k);
        ask_jobs(&k);
        ask_comments(&k);
        for (size_t i = 0; i < s->n_outputs; i++)
            ask_output(&k, &s->outputs[i]);
        ask_nodes(&k);
    }
    /* slurmdbd is another daemon, but what is wrong with munge or slurm.conf is wrong for both */
    if (s->ping.complaint != DOCTOR_NO_MUNGE && s->ping.complaint != DOCTOR_BAD_CONF && s->ping.end != DOCTOR_NO_TOOL)
        ask_accounting(&k);
    if (s->ping.end == DOCTOR_ANSWERED)
        ask_clusters(&k);
    (void) slurm_conf_free(k.conf);
}
