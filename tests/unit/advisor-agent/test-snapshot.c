/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "advisor-agent/snapshot.h"

static int64_t first_submit(void *ctx, const struct adapter_job *job)
{
    return job->restart_count == 0 ? job->submit_s : 0;
}

/* The other side: what it has after the updates. */
struct mirror {
    struct {
        char id[40];
        uint64_t hash;
    } items[9000];
    size_t n;
    bool full;
};
static struct mirror m;

static void set(const char *id, uint64_t hash)
{
    for (size_t i = 0; i < m.n; i++)
        if (strcmp(m.items[i].id, id) == 0) {
            m.items[i].hash = hash;
            return;
        }
    (void) snprintf(m.items[m.n].id, 40, "%s", id);
    m.items[m.n++].hash = hash;
}

static void del(const char *id)
{
    for (size_t i = 0; i < m.n; i++)
        if (strcmp(m.items[i].id, id) == 0) {
            m.items[i] = m.items[--m.n];
            return;
        }
    cr_assert_fail("%s was not there", id);
}

static size_t sync_all(struct snapshot *s, size_t budget)
{
    advisor_v1_StateUpdate u;
    size_t updates = 0;

    while (snapshot_take(s, budget, &u)) {
        uint64_t x = 0;
        updates++;
        if (u.full_begin) {
            m.n = 0;
            m.full = true;
        }
        for (pb_size_t i = 0; i < u.jobs_count; i++)
            set(u.jobs[i].job_id, u.jobs[i].hash);
        for (pb_size_t i = 0; i < u.nodes_count; i++)
            set(u.nodes[i].name, u.nodes[i].hash);
        for (pb_size_t i = 0; i < u.gone_job_ids_count; i++)
            del(u.gone_job_ids[i]);
        for (pb_size_t i = 0; i < u.gone_nodes_count; i++)
            del(u.gone_nodes[i]);
        if (u.full_end)
            m.full = false;
        for (size_t i = 0; i < m.n; i++)
            x ^= m.items[i].hash;
        cr_assert_eq(u.digest, m.full ? 0 : x);
        cr_assert_lt(updates, 10000);
    }
    cr_assert(!snapshot_pending(s));
    return updates;
}

static struct adapter_job *make(size_t n)
{
    struct adapter_job *jobs = calloc(n, sizeof(*jobs));

    for (size_t i = 0; i < n; i++) {
        jobs[i] = (struct adapter_job) { .state = ADAPTER_JOB_RUNNING, .state_text = "RUNNING",
                                         .submit_s = 100, .reason = "None", .nodes = "n[1-4]",
                                         .user = "u\xff", .uid = 1000, .account = "a", .partition = "p",
                                         .qos = "q", .batch = true };
        (void) snprintf(jobs[i].id, sizeof(jobs[i].id), "%zu", i + 1);
    }
    return jobs;
}

static void observe(struct snapshot *s, struct adapter_job *jobs, size_t n)
{
    struct adapter_observation o = { .complete = true, .jobs = jobs, .n_jobs = n, .read_wall_us = 5000000 };
    cr_assert_eq(snapshot_observe(s, &o, NULL), 0);
}

static char seen[256];

static void on_dependent(void *arg, const advisor_v1_JobObservation *o, const char *before)
{
    (void) snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s<%s ", o->job_id, before);
}

static bool names(const char *dependency, const char *parent, const char *child)
{
    return strstr(dependency, parent) != NULL;
}

static const char *dependents(const struct snapshot *s, const char *parent, int64_t since_s)
{
    seen[0] = '\0';
    snapshot_dependents(s, names, parent, since_s, on_dependent, NULL);
    return seen;
}

/* What a job waited for before it changed last is known, and since when it is not so any more. */
Test(snapshot, dependents)
{
    struct snapshot *s = snapshot_new(first_submit, NULL);
    struct adapter_job *jobs = make(2);
    struct adapter_observation o = { .complete = true, .jobs = jobs, .n_jobs = 2, .read_wall_us = 100000000 };

    jobs[0].dependency = "any:77,ok:9";
    cr_assert_eq(snapshot_observe(s, &o, NULL), 0);
    cr_expect_str_eq(dependents(s, "77", 0), "1<any:77,ok:9 ");
    cr_expect_str_eq(dependents(s, "78", 0), "");
    o.read_wall_us = 200000000;
    jobs[0].dependency = "ok:9";
    cr_assert_eq(snapshot_observe(s, &o, NULL), 0);
    cr_expect_str_eq(dependents(s, "77", 190), "1<any:77,ok:9 ");
    cr_expect_str_eq(dependents(s, "77", 201), "", "long ago");
    cr_expect_str_eq(dependents(s, "9", 190), "1<any:77,ok:9 ");
    cr_expect_str_eq(dependents(s, "9", 201), "1<ok:9 ");
    jobs[0].dependency = "";
    cr_assert_eq(snapshot_observe(s, &o, NULL), 0);
    cr_expect_str_eq(dependents(s, "77", 0), "", "one change is remembered");
    cr_expect_str_eq(dependents(s, "9", 0), "1<ok:9 ");
    jobs[0].restart_count++; /* another attempt, another story */
    cr_assert_eq(snapshot_observe(s, &o, NULL), 0);
    cr_expect_str_eq(dependents(s, "9", 0), "");
    free(jobs);
    snapshot_free(s);
}

Test(snapshot, full_then_deltas)
{
    struct snapshot *s = snapshot_new(first_submit, NULL);
    struct adapter_job *jobs = make(3000);
    const char *id;
    size_t n = 0;

    cr_assert(!snapshot_pending(s));
    observe(s, jobs, 3000);
    cr_assert_gt(sync_all(s, 32768), 5);
    cr_assert_eq(m.n, 3000);
    cr_assert_neq(snapshot_digest(s), 0);
    observe(s, jobs, 3000);
    cr_assert_eq(sync_all(s, 32768), 0);
    jobs[7].state = ADAPTER_JOB_FAILED;
    observe(s, jobs, 3000);
    cr_assert_eq(sync_all(s, 32768), 1);
    cr_assert_eq(snapshot_find(s, "8")->state, advisor_v1_JobState_JOB_STATE_FAILED);
    /* Absent is a question, not an answer. */
    observe(s, jobs, 2998);
    cr_assert_eq(sync_all(s, 32768), 0);
    while ((id = snapshot_next_missing(s)))
        n++;
    cr_assert_eq(n, 2);
    snapshot_gone(s, "3000");
    cr_assert_eq(sync_all(s, 32768), 1);
    cr_assert_eq(m.n, 2999);
    snapshot_restart(s);
    cr_assert_gt(sync_all(s, 32768), 5);
    cr_assert_eq(m.n, 2999);
    free(jobs);
    snapshot_free(s);
}

Test(snapshot, details_belong_to_an_attempt)
{
    struct snapshot *s = snapshot_new(first_submit, NULL);
    struct adapter_job *jobs = make(1);
    struct adapter_job_detail d = { .name = "train", .comment = "c", .stdout_path = "/o", .stderr_path = "",
                                    .excluded_nodes = "", .required_nodes = "" };

    observe(s, jobs, 1);
    cr_assert_str_eq(snapshot_next_detail(s), "1");
    cr_assert_null(snapshot_next_detail(s));
    d.job = jobs[0];
    cr_assert_eq(snapshot_detail(s, &d, NULL), 0);
    observe(s, jobs, 1);
    cr_assert(snapshot_find(s, "1")->detail_known);
    cr_assert_eq(snapshot_find(s, "1")->incarnation_unix, 100);
    cr_assert_null(snapshot_next_detail(s));
    jobs[0].state = ADAPTER_JOB_FAILED; /* looked at again, but not forgotten */
    observe(s, jobs, 1);
    cr_assert(snapshot_find(s, "1")->detail_known);
    cr_assert_str_eq(snapshot_next_detail(s), "1");
    jobs[0].restart_count = 1;
    jobs[0].submit_s = 200;
    observe(s, jobs, 1);
    cr_assert(!snapshot_find(s, "1")->detail_known);
    cr_assert_eq(snapshot_find(s, "1")->incarnation_unix, 0);
    cr_assert_str_eq(snapshot_next_detail(s), "1");
    (void) sync_all(s, 32768);
    free(jobs);
    snapshot_free(s);
}

Test(snapshot, nodes)
{
    struct snapshot *s = snapshot_new(first_submit, NULL);
    struct adapter_node nodes[2] = { { "n1", "IDLE", ADAPTER_NODE_IDLE, 0, "", "p" },
                                     { "n2", "IDLE+DRAIN", ADAPTER_NODE_IDLE, ADAPTER_NODE_DRAIN, "bad", "p" } };
    struct adapter_node_list l = { .complete = true, .nodes = nodes, .n_nodes = 2 };

    observe(s, NULL, 0);
    cr_assert_eq(snapshot_nodes(s, &l, NULL), 0);
    (void) sync_all(s, 32768);
    cr_assert_eq(m.n, 2);
    cr_assert_eq(snapshot_nodes(s, &l, NULL), 0);
    cr_assert(!snapshot_pending(s));
    l.n_nodes = 1;
    cr_assert_eq(snapshot_nodes(s, &l, NULL), 0);
    (void) sync_all(s, 32768);
    cr_assert_eq(m.n, 1);
    snapshot_free(s);
}

static size_t take_ends(struct snapshot *s, char *ids, size_t size)
{
    advisor_v1_StateUpdate u;
    size_t n = 0;

    ids[0] = '\0';
    while (snapshot_take(s, 32768, &u))
        for (pb_size_t i = 0; i < u.ended_count; i++, n++)
            (void) snprintf(ids + strlen(ids), size - strlen(ids), "%s=%s ", u.ended[i].job_id, u.ended[i].nodes);
    return n;
}

/* They are told once, again to a control plane that may not have them, and never without bound. */
Test(snapshot, ends)
{
    struct snapshot *s = snapshot_new(first_submit, NULL);
    advisor_v1_JobEnd e = { .job_id = "7", .nodes = (char[]) { "n1\xff" } };
    char ids[SNAPSHOT_ENDS_MAX * 32];

    cr_assert_eq(snapshot_ended(s, &e, NULL), 0);
    cr_assert(!snapshot_pending(s), "nothing is known of the jobs yet");
    observe(s, NULL, 0);
    cr_expect_eq(take_ends(s, ids, sizeof(ids)), 1);
    cr_expect_str_eq(ids, "7=n1\xef\xbf\xbd ");
    cr_expect(!snapshot_pending(s));
    e.nodes = NULL;
    (void) snprintf(e.job_id, sizeof(e.job_id), "8");
    cr_assert_eq(snapshot_ended(s, &e, NULL), 0);
    cr_expect_eq(take_ends(s, ids, sizeof(ids)), 1);
    cr_expect_str_eq(ids, "8= ");
    snapshot_ends_again(s);
    cr_expect_eq(take_ends(s, ids, sizeof(ids)), 2);
    cr_expect_eq(snapshot_digest(s), 0);
    for (int i = 0; i < SNAPSHOT_ENDS_MAX + 10; i++) {
        (void) snprintf(e.job_id, sizeof(e.job_id), "%d", 100 + i);
        cr_assert_eq(snapshot_ended(s, &e, NULL), 0);
    }
    cr_expect_eq(take_ends(s, ids, sizeof(ids)), SNAPSHOT_ENDS_MAX);
    cr_expect_eq(strncmp(ids, "110= ", 5), 0, "%.20s", ids);
    snapshot_free(s);
}
