/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/slurm/parse.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "adapters/slurm/conf.h"

static struct adapter_observation *jobs(const char *text)
{
    return slurm_parse_jobs(strdup(text), strlen(text));
}

/* The same job as 22.05 (raw wait status) and as 24.11 and 26.05 (code:signal) print it. */
Test(parse, releases)
{
    static const char *const exits[] = { "768", "3:0" };

    for (size_t i = 0; i < 2; i++) {
        char line[512];
        (void) snprintf(line, sizeof(line),
                        "1|1|N/A|N/A|N/A|FAILED|2|1|1|%s|1795972201|1795972201|1795972202|1795972203|4294901759|n[1-2]|u|"
                        "1001|acct|main|normal|2|(null)|NonZeroExitCode|\n",
                        exits[i]);
        struct adapter_observation *o = jobs(line);
        cr_assert(o->complete && o->n_jobs == 1, "%s", o->err.msg);
        const struct adapter_job *j = &o->jobs[0];
        cr_expect_str_eq(j->id, "1");
        cr_expect_eq(j->state, ADAPTER_JOB_FAILED);
        cr_expect_eq(j->exit.code, 3);
        cr_expect_eq(j->exit.signal, 0);
        cr_expect_eq(j->restart_count, 2);
        cr_expect_eq(j->end_s, 1795972203);
        cr_expect_eq(j->priority, 4294901759);
        cr_expect_str_eq(j->nodes, "n[1-2]");
        cr_expect_str_eq(j->reason, "NonZeroExitCode");
        cr_expect(j->batch && j->requeueable && !j->held);
        (void) adapter_observation_free(o);
    }
}

Test(parse, kinds)
{
    struct adapter_observation *o = jobs(
        "2|2|1|N/A|N/A|PENDING|0|1|1|0|5|N/A|N/A|N/A|0||u|1|a|main|q|1|(null)|JobHeldUser|\n"
        "4|4|N/A|4|0|PENDING|0|1|1|0:0|5|N/A|N/A|N/A|0||u|1|a|main|q|2-4|(null)|JobHeldUser|\n"
        "7|7|N/A|N/A|N/A|COMPLETING|1|1|1|0|5|5|5|9|0|n1|u|1|a|main|q|1K|(null)|job requeued in held state|\n"
        "8|8|N/A|N/A|N/A|PENDING|1|1|1|0|5|126|126|N/A|0||u|1|a|main|q|1|(null)|job requeued in held state|\n"
        "9|9|N/A|N/A|N/A|SPECIAL_EXIT|1|1|1|0|5|126|126|N/A|0||u|1|a|main|q|1|(null)|JobHeldUser|\n"
        "10|10|N/A|N/A|N/A|PENDING|1|1|1|0|5|6|6|N/A|0||u|1|a|main|q|1|(null)|BadConstraints|\n"
        "11|11|N/A|N/A|N/A|OUT_OF_MEMORY|1|0|0|0:125|5|6|6|7|1||u|1|a|main|q|1|(null)|Out|Of|Memory|\n"
        "12|12|N/A|N/A|N/A|PENDING|1|1|2|0:0|5|126|126|N/A|0||u|1|a|main|q|1|(null)|launch failed requeued held|\n");
    cr_assert(o->complete && o->n_jobs == 8, "%s", o->err.msg);
    cr_expect_str_eq(o->jobs[0].id, "2_1");
    cr_expect(o->jobs[0].held && !o->jobs[0].held_by_requeue);
    cr_expect_str_eq(o->jobs[1].id, "4");
    cr_expect_eq(o->jobs[1].node_count, 2);
    cr_expect(o->jobs[2].completing && o->jobs[2].state == ADAPTER_JOB_UNKNOWN_STATE && o->jobs[2].held_by_requeue);
    cr_expect_eq(o->jobs[2].node_count, 1024);
    cr_expect(o->jobs[3].held_by_requeue);
    cr_expect(o->jobs[4].held && o->jobs[4].state == ADAPTER_JOB_SPECIAL_EXIT);
    cr_expect(!o->jobs[5].held);
    cr_expect_eq(o->jobs[6].exit.signal, 125);
    cr_expect_str_eq(o->jobs[6].reason, "Out|Of|Memory");
    cr_expect(!o->jobs[6].batch && !o->jobs[6].requeueable);
    cr_expect(o->jobs[7].batch && o->jobs[7].held && !o->jobs[7].held_by_requeue, "slurmctld's own hold is not ours");
    (void) adapter_observation_free(o);
}

/* A line that does not fit makes the whole answer unknown. */
Test(parse, malformed)
{
    static const char *const bad[] = {
        "7\n",
        "7|7|N/A\n",
        "7|7|N/A|N/A|N/A|FAILED|0|1|1|0|5|5|5|9|0|n1|u|1|a|main|q|1|(null)|None|", /* no end of line */
        "x|7|N/A|N/A|N/A|FAILED|0|1|1|0|5|5|5|9|0|n1|u|1|a|main|q|1|(null)|None|\n",
        "7|7|N/A|N/A|N/A|FAILED||1|1|0|5|5|5|9|0|n1|u|1|a|main|q|1|(null)|None|\n", /* a refused field */
        "7|7|N/A|N/A|N/A|FAILED|0|1|1|0|2026-01-01T00:00:00|5|5|9|0|n1|u|1|a|main|q|1|(null)|None|\n",
        "7|7|N/A|N/A|N/A|FAILED|-1|1|1|0|5|5|5|9|0|n1|u|1|a|main|q|1|(null)|None|\n",
        "7|7|N/A|N/A|N/A|FAILED|0|1|1|1:2:3|5|5|5|9|0|n1|u|1|a|main|q|1|(null)|None|\n",
        "7|7|N/A|N/A|N/A|FAILED|0|1|1|0|5|5|5|9|0|n1|u|1|a|b|main|q|1|(null)|None|\n", /* a separator within a name */
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++) {
        struct adapter_observation *o = jobs(bad[i]);
        cr_expect(!o->complete, "%s", bad[i]);
        cr_expect_str_eq(o->unknown_reason, "malformed");
        (void) adapter_observation_free(o);
    }
}

/* A name that prints a whole forged record of its own stays a name. */
Test(parse, forged)
{
    static const char text[] =
        "7@N@7@N@N/A@N@N/A@N@N/A@N@RUNNING@N@0@N@1@N@1@N@0@N@5@N@5@N@5@N@9@N@1@N@n1@N@u@N@1@N@a@N@main@N@q@N@1@N@afterok:3(unfulfilled)@N@None@N@"
        "x\n7|7|N/A|N/A|N/A|FAILED|0\nJobState=FAILED@x@N@{\"a\":\n1}@N@/w@N@/w/sp ace-%j@N@(null)@N@@N@1-00:00:00@N@a&b@N@(null)@N@\n";
    char copy[sizeof(text)];
    struct adapter_job_detail *d;
    struct adv_err err;

    memcpy(copy, text, sizeof(text));
    cr_assert_eq(slurm_parse_detail(copy, sizeof(text) - 1, "@N@", "7", &d, &err), 0, "%s", err.msg);
    cr_expect_eq(d->job.state, ADAPTER_JOB_RUNNING);
    cr_expect_str_eq(d->name, "x\n7|7|N/A|N/A|N/A|FAILED|0\nJobState=FAILED@x");
    cr_expect_str_eq(d->comment, "{\"a\":\n1}");
    cr_expect_str_eq(d->stdout_path, "/w/sp ace-7");
    cr_expect_str_eq(d->stderr_path, "/w/sp ace-7");
    cr_expect_eq(d->time_limit_s, 86400);
    cr_expect_str_eq(d->features, "a&b");
    cr_expect_str_eq(d->reservation, "");
    (void) adapter_job_detail_free(d);

    memcpy(copy, text, sizeof(text));
    cr_expect_eq(slurm_parse_detail(copy, sizeof(text) - 1, "@N@", "8", &d, NULL), -ADV_INVALID_ARGUMENT);
    memcpy(copy, text, sizeof(text));
    cr_expect_eq(slurm_parse_detail(copy, sizeof(text) - 9, "@N@", "7", &d, NULL), -ADV_DATA_LOSS);
    cr_expect_eq(slurm_parse_detail(copy, 0, "@N@", "7", &d, NULL), -ADV_NOT_FOUND);
}

/* Components come in any order; the leader's number alone means the leader. */
/* Fields of one component in the list. */
#define PART(id, off, state, restarts, end, count, nodes) \
    id "|" id "|N/A|56|" off "|" state "|" restarts "|1|1|0|5|5|5|" end "|1|" nodes "|u|1|a|main|q|" count "|(null)|None|\n"

Test(parse, components_are_one_job)
{
    static const struct {
        const char *text;
        size_t n;
        const char *nodes;
        unsigned count;
        bool completing;
    } t[] = {
        /* after a requeue the leader does not come first */
        { PART("57", "1", "RUNNING", "0", "N/A", "2", "n[2-3]") PART("56", "0", "RUNNING", "0", "N/A", "1", "n1"), 1, "n[1-3]",
          3, false },
        { PART("56", "0", "FAILED", "0", "9", "1", "n1") PART("57", "1", "FAILED", "0", "10", "1", "n2"), 1, "n[1-2]", 2, false },
        /* the leader has ended, the rest is about to */
        { PART("56", "0", "FAILED", "0", "9", "1", "n1") PART("57", "1", "RUNNING", "0", "N/A", "1", "n2"), 1, "n[1-2]", 2, true },
        { PART("56", "0", "FAILED", "0", "9", "1", "n1") PART("57", "1", "COMPLETING", "0", "N/A", "1", "n2"), 1, "n[1-2]", 2,
          true },
        /* a component that a person cancelled, then the leader's next attempt */
        { PART("56", "0", "RUNNING", "0", "N/A", "1", "n1") PART("57", "1", "CANCELLED", "0", "9", "1", "n2"), 1, "n1", 1, false },
        { PART("56", "0", "PENDING", "1", "N/A", "1", "") PART("57", "1", "CANCELLED", "0", "9", "1", "n2"), 1, "", 1, false },
        /* no leader: it is not there, and neither is the job */
        { PART("57", "1", "RUNNING", "0", "N/A", "1", "n2"), 0, NULL, 0, false },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct adapter_observation *o = jobs(t[i].text);
        cr_assert(o->complete && o->n_jobs == t[i].n, "%zu: %s", i, o->err.msg);
        if (t[i].n) {
            cr_expect_str_eq(o->jobs[0].id, "56", "%zu", i);
            cr_expect_str_eq(o->jobs[0].nodes, t[i].nodes, "%zu: %s", i, o->jobs[0].nodes);
            cr_expect_eq(o->jobs[0].node_count, t[i].count, "%zu: %u", i, o->jobs[0].node_count);
            cr_expect_eq(o->jobs[0].completing, t[i].completing, "%zu", i);
            cr_expect(o->jobs[0].requeueable, "%zu", i);
        }
        (void) adapter_observation_free(o);
    }
    struct adapter_observation *o = jobs(PART("56", "0", "RUNNING", "0", "N/A", "1", "n[1-"));
    cr_expect(!o->complete, "nodes that cannot be read are not no nodes");
    (void) adapter_observation_free(o);
}

Test(parse, components_in_full)
{
    static const char text[] =
        "57@57@N/A@56@1@CANCELLED@0@0@1@0@6@7@5@9@1@n1@u@1@a@other@q@1@@None@x@@/w@@@n1@1:00@big@r1@\n"
        "56@56@N/A@56@0@RUNNING@0@1@1@0@5@5@5@9@1@n2@u@1@a@main@q@1@@None@x@@/w@@@@1:00@@@\n";
    static const char *const ids[] = { "56", "56+0", "56+1", "57" };
    static const char more[] = "56+1|6|n9\n56+0|5|n8\n", other[] = "56+1|7|n9\n56+0|5|n8\n";

    for (size_t i = 0; i < ADV_ARRAY_LEN(ids); i++) {
        char copy[sizeof(text)];
        struct adapter_job_detail *d = NULL;
        memcpy(copy, text, sizeof(text));
        int r = slurm_parse_detail(copy, sizeof(text) - 1, "@", ids[i], &d, NULL);
        memset(copy, 'x', sizeof(copy)); /* nothing points into it */
        cr_assert_eq(r, i > 1 ? -ADV_INVALID_ARGUMENT : 0, "%s", ids[i]);
        if (i > 1)
            continue;
        cr_expect_str_eq(d->job.id, "56");
        cr_expect(!d->job.requeueable, "no part of it may be left behind");
        cr_assert_eq(d->n_parts, 2);
        cr_expect_str_eq(d->parts[0].id, "56+0");
        cr_expect_str_eq(d->parts[1].id, "56+1");
        cr_expect_eq(d->parts[1].state, ADAPTER_JOB_CANCELLED);
        cr_expect_str_eq(d->parts[1].partition, "other");
        cr_expect_str_eq(d->parts[1].features, "big");
        cr_expect_str_eq(d->parts[1].reservation, "r1");
        cr_expect_str_eq(d->parts[1].required_nodes, "n1");
        char one[sizeof(more)], two[sizeof(other)]; /* are cut */
        memcpy(one, more, sizeof(more));
        memcpy(two, other, sizeof(other));
        cr_assert_eq(slurm_parse_excluded(two, strlen(two), d, NULL), -ADV_ABORTED);
        cr_assert_eq(slurm_parse_excluded(one, strlen(one), d, NULL), 0);
        cr_expect_str_eq(d->excluded_nodes, "n8");
        cr_expect_str_eq(d->parts[1].excluded_nodes, "n9");
        (void) adapter_job_detail_free(d);
    }
}

Test(parse, nonce_is_new)
{
    char a[SLURM_NONCE_SIZE], b[SLURM_NONCE_SIZE];

    slurm_nonce(a);
    slurm_nonce(b);
    cr_expect_str_neq(a, b);
    cr_expect_eq(strlen(a), SLURM_NONCE_SIZE - 1);
}

Test(parse, excluded)
{
    struct adapter_job job = { .id = "3_1", .submit_s = 9, .state_text = "", .reason = "", .nodes = "", .user = "",
                               .account = "", .partition = "", .qos = "" };
    struct adapter_job_detail *d = slurm_detail_new(&job);
    char text[] = "3_0|9|n1\n3_1|9|n[2-3]\n", later[] = "3_1|10|n1\n";

    cr_assert_eq(slurm_parse_excluded(text, strlen(text), d, NULL), 0);
    cr_expect_str_eq(d->excluded_nodes, "n[2-3]");
    cr_expect_eq(slurm_parse_excluded(later, strlen(later), d, NULL), -ADV_ABORTED);
    (void) adapter_job_detail_free(d);
}

Test(parse, paths)
{
    static const struct {
        const char *pattern, *want;
        int64_t task;
    } t[] = {
        { "/a/%x-%j", "/a/na me-105", -1 }, { "/a/%5j", "/a/00105", -1 },
        { "/a/%A_%a", "/a/99_7", 7 },       { "", "/w/slurm-105.out", -1 },
        { "", "/w/slurm-99_7.out", 7 },     { "/a/\\%j", "/a/%j", -1 },
        { "rel/%u", "/w/rel/me", -1 },      { "/a/%N.%n.%t.%s", "/a/n3.0.0.batch", -1 },
        { "/a/%%", "/a/%", -1 },            { "/a/%3b", "/a/007", 7 },
        { "/dev/null", "/dev/null", -1 },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO_DONE(adv_buf) b = { 0 };
        struct adapter_job job = { .raw_id = 105, .array_id = 99, .array_task = t[i].task, .user = "me", .nodes = "n[3-4]" };

        adv_buf_init(&b, 1024);
        cr_assert_eq(slurm_expand_path(t[i].pattern, &job, "na me", "/w", &b, NULL), 0);
        cr_expect_str_eq(b.data, t[i].want);
    }
    ADV_AUTO_DONE(adv_buf) b = { 0 };
    adv_buf_init(&b, 1024);
    cr_expect_eq(slurm_expand_path("/a/%q", &(struct adapter_job) { .array_task = -1 }, "", "", &b, NULL),
                 -ADV_INVALID_ARGUMENT);
}

Test(parse, nodes)
{
    const char *text = "n1|idle|main*|(null)|none|\nn1|idle|gpu|(null)|none|\nn2|drained*|main*|(null)|gpu \"fell\noff|\nn3|mixed~|main*|(null)|none|\n"
                       "n4|maint|main*|(null)|none|\nn5|down*|main*|(null)|Not responding|\nn6|draining|main*|(null)|x|\nn7|strange|main*|(null)|none|\n";
    static const bool usable[] = { true, false, true, false, false, false, false };
    struct adapter_node_list *l = slurm_parse_nodes(strdup(text), strlen(text));

    cr_assert(l->complete && l->n_nodes == 7, "%zu %s", l->n_nodes, l->err.msg);
    cr_expect_str_eq(l->nodes[0].partitions, "gpu,main");
    cr_expect_str_eq(l->nodes[1].reason, "gpu \"fell\noff");
    for (size_t i = 0; i < 7; i++)
        cr_expect_eq(adapter_node_usable(&l->nodes[i]), usable[i], "%s", l->nodes[i].name);
    (void) adapter_node_list_free(l);
}

Test(parse, answers)
{
    static const struct {
        const char *text;
        enum slurm_answer want;
    } t[] = {
        { "Job is pending execution for job 5", SLURM_ANSWER_PENDING },
        { "slurm_update error: Job is no longer pending execution", SLURM_ANSWER_FINISHED },
        { "Job has already finished for job 5", SLURM_ANSWER_FINISHED },
        { "Requested operation is presently disabled for job 5", SLURM_ANSWER_DISABLED },
        { "Only batch jobs are accepted or processed for job 5", SLURM_ANSWER_NOT_BATCH },
        { "Invalid job id specified for job 5", SLURM_ANSWER_NO_JOB },
        { "slurm_suspend error:Access/permission denied", SLURM_ANSWER_DENIED },
        { "slurm_update error: Invalid user id", SLURM_ANSWER_DENIED },
        { "slurm_update error: Invalid node name specified", SLURM_ANSWER_BAD_NODE },
        { "slurm_update error: Job dependency problem", SLURM_ANSWER_DEPENDENCY },
        { "Unexpected message received for job 5", SLURM_ANSWER_UNCLEAR },
        { "Unable to contact slurm controller (connect failure)", SLURM_ANSWER_UNCLEAR },
        { "Socket timed out on send/recv operation", SLURM_ANSWER_UNCLEAR },
        { "", SLURM_ANSWER_UNCLEAR },
        { "a text of a later release", SLURM_ANSWER_UNCLEAR },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_expect_eq(slurm_parse_answer(t[i].text), t[i].want, "%s", t[i].text);
}

Test(parse, site)
{
    struct slurm_site s;
    const char *text = "Configuration data as of x\nAccountingStorageType   = accounting_storage/slurmdbd\n"
                       "ClusterName             = c1\nMinJobAge               = 60 sec\n"
                       "PrivateData             = accounts,jobs\nSlurmUser               = slurm(64030)\n"
                       "SLURM_VERSION           = 22.05.8\n";

    cr_assert_eq(slurm_parse_config(text, strlen(text), &s, NULL), 0);
    cr_expect(s.private_jobs && s.accounting && s.min_job_age_s == 60);
    cr_expect_str_eq(s.slurm_user, "slurm");
    cr_expect_str_eq(s.version, "22.05.8");
    cr_assert_eq(slurm_parse_config("ClusterName = c\nPrivateData = none\n", 35, &s, NULL), 0);
    cr_expect(!s.private_jobs);
    cr_assert_eq(slurm_parse_config("ClusterName = c\n", 16, &s, NULL), 0);
    cr_expect(s.private_jobs, "not told is not seen");
    cr_expect_eq(slurm_parse_config("x", 1, &s, NULL), -ADV_DATA_LOSS);
}

Test(parse, assoc)
{
    static const struct {
        const char *text;
        enum adapter_privilege want;
    } t[] = {
        { "User Records\nUserName=me(5) DefAccount=a DefWckey= AdminLevel=Operator\n", ADAPTER_PRIVILEGE_OPERATOR },
        { "UserName=me(5) AdminLevel=Administrator", ADAPTER_PRIVILEGE_ADMIN },
        { "UserName=me(5) AdminLevel=None\n", ADAPTER_PRIVILEGE_NONE },
        { "UserName=me(5) DefAccount=a\nUserName=x(6) AdminLevel=Operator\n", ADAPTER_PRIVILEGE_UNKNOWN },
        { "UserName=notme(5) AdminLevel=Operator\n", ADAPTER_PRIVILEGE_UNKNOWN },
        { "", ADAPTER_PRIVILEGE_UNKNOWN },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_expect_eq(slurm_parse_assoc(t[i].text, strlen(t[i].text), "me"), t[i].want, "%s", t[i].text);
}

Test(parse, ids)
{
    uint32_t base;
    int64_t task;
    int32_t offset;
    static const char *const bad[] = { "", "x", "1_", "_1", "1+", "1_2+3", "0", "-1", "1 2", "4294967296", "1,2", "1_[1-3]" };

    cr_assert_eq(slurm_parse_id("46_5", &base, &task, &offset, NULL), 0);
    cr_expect(base == 46 && task == 5 && offset == -1);
    cr_assert_eq(slurm_parse_id("56+1", &base, &task, &offset, NULL), 0);
    cr_expect(base == 56 && task == -1 && offset == 1);
    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++)
        cr_expect_eq(slurm_parse_id(bad[i], &base, &task, &offset, NULL), -ADV_INVALID_ARGUMENT, "%s", bad[i]);
}

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    (void) snprintf(path, sizeof(path), "%s/%s", dir, name);
    cr_assert_not_null(f = fopen(path, "w"));
    (void) fputs(text, f);
    (void) fclose(f);
}

static char *get_file(const char *path)
{
    static char text[4096];
    FILE *f = fopen(path, "r");

    cr_assert_not_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    (void) fclose(f);
    return text;
}

Test(parse, client_conf)
{
    char dir[] = "/tmp/adv-conf-XXXXXX", source[64], missing[64];
    struct slurm_conf *c;
    struct adv_err err;

    cr_assert_not_null(mkdtemp(dir));
    (void) snprintf(source, sizeof(source), "%s/site.conf", dir);
    (void) snprintf(missing, sizeof(missing), "%s/none.conf", dir);
    put_file(dir, "site.conf", "ClusterName=c\n include part.conf # here\nInclude gone.conf\nMinJobAge=5");
    put_file(dir, "part.conf", "authinfo = socket=/run/m,ttl=300 # x\n");

    cr_assert_eq(slurm_conf_new(missing, dir, 10, &c, NULL), 0);
    cr_expect_eq(slurm_conf_refresh(c, &err), -ADV_UNAVAILABLE);
    c = slurm_conf_free(c);

    cr_assert_eq(slurm_conf_new(source, dir, 10, &c, NULL), 0);
    cr_assert_eq(slurm_conf_refresh(c, &err), 0, "%s", err.msg);
    const char *text = get_file(slurm_conf_path(c));
    cr_expect_not_null(strstr(text, "\nAuthInfo=socket=/run/m,ttl=10\n"), "%s", text);
    cr_expect_null(strstr(text, "300"));
    cr_expect_not_null(strstr(text, "Include /tmp/adv-conf-"), "%s", text);
    cr_expect_not_null(strstr(text, "\nMinJobAge=5\n"));

    put_file(dir, "part.conf", "# no more of it, and longer\n");
    cr_assert_eq(slurm_conf_refresh(c, &err), 0, "%s", err.msg);
    cr_expect_not_null(strstr(get_file(slurm_conf_path(c)), "\nAuthInfo=ttl=10\n"));
    c = slurm_conf_free(c);
    static const char *const names[] = { "site.conf", "part.conf", "slurm.conf" };
    for (size_t i = 0; i < 3; i++) {
        (void) snprintf(missing, sizeof(missing), "%s/%s", dir, names[i]);
        (void) remove(missing);
    }
    (void) remove(dir);
}

Test(parse, acct_covers)
{
    cr_expect(slurm_acct_covers("7", "7"));
    cr_expect(slurm_acct_covers("7_2", "7_2"));
    cr_expect(slurm_acct_covers("7_[1-3]", "7_2"));
    cr_expect(slurm_acct_covers("7_[1,4-5]", "7_5"));
    cr_expect(slurm_acct_covers("7_[1-3%2]", "7_3"));
    cr_expect(!slurm_acct_covers("7_[1-3]", "7_4"));
    cr_expect(!slurm_acct_covers("7_[1-3]", "17_2"));
    cr_expect(!slurm_acct_covers("7_[1-3]", "7"));
    cr_expect(!slurm_acct_covers("7_[x]", "7_1"));
    cr_expect(!slurm_acct_covers("7_[", "7_1"));
}

Test(parse, who_cancelled)
{
    static const struct {
        const char *text;
        bool known;
        uint32_t uid;
    } t[] = {
        { "CANCELLED by 1000", true, 1000 },       { "CANCELLED by 0", true, 0 },
        { "CANCELLED by 4294967294", true, 4294967294u }, { "CANCELLED by 4294967295", false, 0 },
        { "CANCELLED by 99999999999999999999", false, 0 }, { "CANCELLED", false, 0 },
        { "CANCELLED by ", false, 0 },             { "CANCELLED by alice", false, 0 },
        { "CANCELLED by 1000x", false, 0 },        { "CANCELLED by -1", false, 0 },
        { "FAILED", false, 0 },                    { "", false, 0 },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        uint32_t uid = 0;
        cr_assert_eq(slurm_acct_canceller(t[i].text, &uid), t[i].known, "%s", t[i].text);
        cr_assert_eq(uid, t[i].uid, "%s", t[i].text);
    }
}
