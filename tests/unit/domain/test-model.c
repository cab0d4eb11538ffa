/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "controlplane/domain/model.h"

Test(model, job_ids)
{
    static const struct {
        const char *s;
        bool ok;
    } t[] = {
        { "1", true },
        { "4294967295", true },
        { "46_5", true },
        { "56+1", true },
        { "46_4294967295", true },
        { "", false },
        { "46_", false },
        { "_5", false },
        { "46_5_6", false },
        { "46_5+1", false },
        { "46_[1-5]", false },
        { "12345678901", false },
        { "1 ", false },
        { " 1", false },
        { "1;rm", false },
        { "-1", false },
        { "1\n", false },
        { "0x10", false },
        { "1_23456789012345678901234567890123", false },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_eq(sched_job_id_valid(t[i].s), t[i].ok, "\"%s\"", t[i].s);
    cr_assert_not(sched_job_id_valid(NULL));
}

Test(model, cluster_ids)
{
    static const struct {
        const char *s;
        bool ok;
    } t[] = {
        { "a", true },    { "cluster-1_x", true }, { "", false },    { "1a", false },  { "-a", false }, { "A", false },
        { "a/b", false }, { "a b", false },        { "a.b", false }, { "ä", false },
        { "a123456789012345678901234567890123456789012345678901234567890123", true },   /* 64 */
        { "a1234567890123456789012345678901234567890123456789012345678901234", false }, /* 65 */
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_eq(cluster_id_valid(t[i].s), t[i].ok, "\"%s\"", t[i].s);
    cr_assert_not(cluster_id_valid(NULL));
}

Test(model, resource_names)
{
    static const struct {
        const char *name, *cluster, *job, *attempt, *node;
        uint32_t index;
        bool advice;
    } t[] = {
        { .name = "clusters/a", .cluster = "a" },
        { .name = "clusters/-", .cluster = "-" },
        { .name = "clusters/a/jobs/u1", .cluster = "a", .job = "u1" },
        { .name = "clusters/a/nodes/n1.example.org", .cluster = "a", .node = "n1.example.org" },
        { .name = "clusters/a/jobs/u1/attempts/0", .cluster = "a", .job = "u1", .attempt = "0" },
        { .name = "clusters/a/jobs/u1/attempts/4294967295", .cluster = "a", .job = "u1", .attempt = "4294967295",
          .index = UINT32_MAX },
        { .name = "clusters/a/jobs/u1/attempts/3/advice", .cluster = "a", .job = "u1", .attempt = "3", .index = 3,
          .advice = true },
        { .name = "clusters/a/jobs/nodes", .cluster = "a", .job = "nodes" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct resource_path p;
        struct adv_err err = { 0 };
        cr_assert_eq(resource_path_parse(t[i].name, &p, &err), 0, "%s: %s", t[i].name, err.msg);
        cr_assert_str_eq(str_or(p.cluster), str_or(t[i].cluster));
        cr_assert_str_eq(str_or(p.job_uid), str_or(t[i].job));
        cr_assert_str_eq(str_or(p.attempt), str_or(t[i].attempt));
        cr_assert_str_eq(str_or(p.node), str_or(t[i].node));
        cr_assert(p.attempt_index == t[i].index && p.advice == t[i].advice);
        cr_assert(p.cluster >= p.scratch && p.cluster < p.scratch + sizeof(p.scratch), "points into the result");
    }
}

Test(model, resource_names_that_are_none)
{
    static const char *const t[] = {
        "", "/", "clusters", "clusters/", "cluster/a", "clusters/A", "clusters/a/", "/clusters/a", "clusters//a",
        "clusters/a/jobs", "clusters/a/jobs/", "clusters/a/job/u", "clusters/a/jobs/u/attempts", "clusters/a/jobs/u/attempts/",
        "clusters/a/jobs/u/attempts/x", "clusters/a/jobs/u/attempts/-1", "clusters/a/jobs/u/attempts/4294967296",
        "clusters/a/jobs/u/attempts/1/advices", "clusters/a/jobs/u/attempts/1/advice/x", "clusters/a/jobs/u/x/1",
        "clusters/a/nodes", "clusters/a/nodes/n1/x", "clusters/a/nodes/n1/attempts/1",
    };
    char too_long[300];

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct resource_path p;
        struct adv_err err = { 0 };
        cr_assert_eq(resource_path_parse(t[i], &p, &err), -ADV_INVALID_ARGUMENT, "\"%s\" was taken", t[i]);
        cr_assert_str_eq(err.field, "name");
        cr_assert_str_eq(err.reason, "NAME_MALFORMED");
    }
    memset(too_long, 'a', sizeof(too_long));
    memcpy(too_long, "clusters/a/jobs/", 16);
    too_long[299] = '\0';
    cr_assert_eq(resource_path_parse(too_long, &(struct resource_path) { 0 }, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(resource_path_parse(NULL, &(struct resource_path) { 0 }, NULL), -ADV_INVALID_ARGUMENT);
}

Test(model, names_round_trip)
{
    struct cluster c = { .name = (char[]) { "alpha" } };
    struct job j = { .cluster = &c, .uid = (char[]) { "0123456789ab000001" } };
    struct attempt a = { .job = &j, .index = 12 };
    char buf[RESOURCE_NAME_MAX];
    struct resource_path p;

    cr_assert_eq(resource_path_parse(advice_resource_name(&a, buf), &p, NULL), 0);
    cr_assert_str_eq(p.cluster, "alpha");
    cr_assert_str_eq(p.job_uid, j.uid);
    cr_assert(p.attempt_index == 12 && p.advice);
    cr_assert_str_eq(attempt_resource_name(&a, buf), "clusters/alpha/jobs/0123456789ab000001/attempts/12");
    cr_assert_str_eq(job_resource_name(&j, buf), "clusters/alpha/jobs/0123456789ab000001");
    cr_assert_str_eq(cluster_resource_name(&c, buf), "clusters/alpha");
}

Test(model, epochs)
{
    const struct epoch e[] = { { 0, 0 }, { 0, 1 }, { 0, UINT64_MAX }, { 1, 0 }, { UINT64_MAX, 0 } };

    for (int i = 0; i < (int) ADV_ARRAY_LEN(e); i++)
        for (int k = 0; k < (int) ADV_ARRAY_LEN(e); k++)
            cr_assert_eq(epoch_cmp(e[i], e[k]), i < k ? -1 : i > k);
}

/* Each state is exactly one of: not begun, running, ending, over; and failed is a kind of over. */
Test(model, states)
{
    for (int i = 0; i <= JOB_STATE_LAST_; i++) {
        enum job_state s = (enum job_state) i;
        cr_assert_not(job_state_terminal(s) && job_state_running(s), "%s", job_state_name(s));
        if (job_state_failed(s))
            cr_assert(job_state_terminal(s), "%s", job_state_name(s));
        cr_assert_str_neq(job_state_name(s), i ? "UNKNOWN" : "");
    }
    cr_assert_not(job_state_failed(JOB_CANCELLED));
    cr_assert_not(job_state_failed(JOB_COMPLETED));
    cr_assert_not(job_state_terminal(JOB_COMPLETING));
    cr_assert_str_eq(job_state_name((enum job_state) 9999), "UNKNOWN");
    cr_assert_str_eq(disposition_reason_name(UINT32_MAX), "UNKNOWN");
    cr_assert_str_eq(verb_name(UINT32_MAX), "UNKNOWN");
}

Test(model, modes)
{
    enum adv_mode m = MODE_UNSET;

    cr_assert(mode_from_name("ACT", &m) && m == MODE_ACT);
    cr_assert(mode_from_name("off", &m) && m == MODE_OFF);
    cr_assert_not(mode_from_name("unset", &m));
    cr_assert_not(mode_from_name("", &m));
    cr_assert_not(mode_from_name(NULL, &m));
    cr_assert_not(mode_from_name("act ", &m));
    cr_assert_eq(m, MODE_OFF);
}

Test(model, nodes_add)
{
    struct adv_hostlist *all = adv_hostlist_new(ATTEMPT_MAX_NODES);

    cr_assert_eq(nodes_add(all, "n[1-3]"), 0);
    cr_assert_eq(nodes_add(all, "n[3-5]"), 0);
    cr_assert_eq(adv_hostlist_count(all), 5);
    cr_assert_eq(nodes_add(all, "n[9-"), 0, "malformed: left out");
    cr_assert_eq(nodes_add(all, "m[1-65535]"), 0, "too many: left out");
    cr_assert_eq(adv_hostlist_count(all), 5);
    (void) adv_hostlist_free(all);
}
