/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/args.h"

#include <criterion/criterion.h>

#define MAX_ARGV 12

static int parse(const char *const *line, struct args *a, struct adv_err *err)
{
    char *argv[MAX_ARGV + 1] = { (char *) (uintptr_t) "advisorctl" };
    int argc = 1;

    for (; line[argc - 1]; argc++)
        argv[argc] = (char *) (uintptr_t) line[argc - 1];
    return args_parse(argc, argv, a, err);
}

Test(args, good)
{
    static const struct {
        const char *line[MAX_ARGV];
        enum command_id id;
        const char *word0, *word1, *flags; /* flags joined by blanks */
    } t[] = {
        { { "clusters" }, CMD_CLUSTERS, NULL, NULL, "" },
        { { "cluster", "create", "a" }, CMD_CLUSTER_CREATE, "a", NULL, "" },
        { { "cluster", "get", "a" }, CMD_CLUSTER_GET, "a", NULL, "" },
        { { "cluster", "enrol", "a", "--out", "f", "--valid=1h" }, CMD_CLUSTER_ENROL, "a", NULL, "" },
        { { "cluster", "enrolments", "a" }, CMD_CLUSTER_ENROLMENTS, "a", NULL, "" },
        { { "cluster", "revoke", "a", "--serial", "ab:cd", "--reason=lost" }, CMD_CLUSTER_REVOKE, "a", NULL, "" },
        { { "--token-file", "t", "cluster", "revocations", "a" }, CMD_CLUSTER_REVOCATIONS, "a", NULL, "--token_file=t" },
        { { "--server", "h:1", "nodes", "a", "-o", "json" }, CMD_NODES, "a", NULL, "--server=h:1 --output=json" },
        { { "nodes", "--server-name=x", "a", "-ojson" }, CMD_NODES, "a", NULL, "--server_name=x --output=json" },
        { { "--insecure", "mode", "a", "act", "--wait", "--reason", "why not" }, CMD_MODE, "a", "act", "--insecure=true" },
        { { "jobs", "--cluster=a", "--user", "u", "--state", "failed,running" }, CMD_JOBS, NULL, NULL, "" },
        { { "explain", "--", "-odd/1" }, CMD_EXPLAIN, "-odd/1", NULL, "" },
        { { "watch", "--since=" }, CMD_WATCH, NULL, NULL, "" },
        { { "rules", "test", "--scope=node", "--node", "n1", "f", "g", "h" }, CMD_RULES_TEST, "f", "g", "" },
        { { "rules", "lint", "dir" }, CMD_RULES_LINT, "dir", NULL, "" },
        { { "doctor", "-o", "json", "--agent-config=f", "--agent", "p" }, CMD_DOCTOR, NULL, NULL, "--output=json" },
        { { "completion", "bash" }, CMD_COMPLETION, "bash", NULL, "" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct adv_err err = { 0 };
        char flags[256] = "";
        ADV_AUTO_DONE(args) a;

        cr_assert_eq(parse(t[i].line, &a, &err), 0, "row %zu: %s", i, err.msg);
        cr_assert_eq(a.command->id, t[i].id);
        cr_assert(adv_streq(a.word[0], t[i].word0));
        cr_assert(adv_streq(a.word[1], t[i].word1));
        for (int k = 0; k < a.n_flags; k++) {
            (void) strcat(flags, k ? " " : "");
            (void) strcat(flags, a.flags[k]);
        }
        cr_assert_str_eq(flags, t[i].flags);
    }
}

Test(args, options)
{
    static const char *const line[] = { "mode", "a", "act", "--wait", "--reason=because", NULL };
    ADV_AUTO_DONE(args) a;

    cr_assert_eq(parse(line, &a, NULL), 0);
    cr_assert_str_eq(a.option[OPT_REASON], "because");
    cr_assert_not_null(a.option[OPT_WAIT]);
    cr_assert_null(a.option[OPT_USER]);
}

Test(args, bad)
{
    static const struct {
        const char *line[MAX_ARGV], *says;
    } t[] = {
        { { NULL }, "no command" },
        { { "frobnicate" }, "unknown command \"frobnicate\"" },
        { { "cluster" }, "cluster: expected create, get, enrol" },
        { { "cluster", "drop" }, "cluster: expected create, get, enrol" },
        { { "audit", "drop" }, "unexpected \"drop\"" },
        { { "window" }, "window: expected create or end" },
        { { "nodes" }, "expected CLUSTER" },
        { { "nodes", "a", "b" }, "unexpected \"b\"" },
        { { "nodes", "a", "b", "c", "d" }, "unexpected \"b\"" },
        { { "rules" }, "rules: expected test or lint" },
        { { "rules", "test" }, "rules test: expected FILE..." },
        { { "rules", "lint", "a", "--scope=node" }, "does not take --scope" },
        { { "clusters", "--colour" }, "unknown option --colour" },
        { { "clusters", "-x" }, "unknown option -x" },
        { { "clusters", "--user", "u" }, "does not take --user" },
        { { "jobs", "--user" }, "--user needs a value" },
        { { "jobs", "--user=a", "--user=b" }, "given twice" },
        { { "advice", "--actions=yes" }, "takes no value" },
        { { "clusters", "-o" }, "needs a value" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct adv_err err = { 0 };
        ADV_AUTO_DONE(args) a;

        cr_assert_eq(parse(t[i].line, &a, &err), -ADV_INVALID_ARGUMENT, "row %zu", i);
        cr_assert_not_null(strstr(err.msg, t[i].says), "row %zu says %s", i, err.msg);
    }
}

Test(args, help_needs_no_words)
{
    static const char *const lines[][3] = { { "--help", NULL }, { "mode", "--help", NULL }, { "-h", "cluster", NULL } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(lines); i++) {
        ADV_AUTO_DONE(args) a;

        cr_assert_eq(parse(lines[i], &a, NULL), 0);
        cr_assert(a.help);
    }
}

Test(args, job_path)
{
    static const struct {
        const char *text;
        bool attempt_allowed;
        int r;
        const char *cluster, *job;
        int64_t attempt;
    } t[] = {
        { "a/12", false, 0, "a", "12", -1 },    { "a/46_5/2", true, 0, "a", "46_5", 2 },
        { "a/56+1", true, 0, "a", "56+1", -1 }, { "a/12/0", false, -ADV_INVALID_ARGUMENT, "", "", 0 },
        { "a", true, -ADV_INVALID_ARGUMENT, "", "", 0 },    { "/1", true, -ADV_INVALID_ARGUMENT, "", "", 0 },
        { "a/", true, -ADV_INVALID_ARGUMENT, "", "", 0 },   { "a/1/x", true, -ADV_INVALID_ARGUMENT, "", "", 0 },
        { "a/1/-1", true, -ADV_INVALID_ARGUMENT, "", "", 0 }, { "a/1/2/3", true, -ADV_INVALID_ARGUMENT, "", "", 0 },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        char cluster[ARGS_PART_SIZE], job[ARGS_PART_SIZE];
        int64_t attempt;

        cr_assert_eq(args_job_path(t[i].text, t[i].attempt_allowed, cluster, job, &attempt, NULL), t[i].r, "%s", t[i].text);
        if (t[i].r == 0) {
            cr_assert_str_eq(cluster, t[i].cluster);
            cr_assert_str_eq(job, t[i].job);
            cr_assert_eq(attempt, t[i].attempt);
        }
    }
}
