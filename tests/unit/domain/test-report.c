/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles and rows of reports; the counts of outcomes are tested over the API. */

#include <criterion/criterion.h>
#include <utlist.h>

#include "controlplane/domain/report.h"

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
static bool no_memory;

void *__wrap_realloc(void *p, size_t size)
{
    return no_memory ? NULL : __real_realloc(p, size);
}

Test(report, nearest_rank_is_a_value_that_was_measured)
{
    uint64_t v[200];

    for (size_t i = 0; i < ADV_ARRAY_LEN(v); i++)
        v[i] = i + 1;
    cr_expect_eq(report_nearest_rank(v, 1, 50), 1);
    cr_expect_eq(report_nearest_rank(v, 1, 99), 1);
    cr_expect_eq(report_nearest_rank(v, 2, 50), 1);
    cr_expect_eq(report_nearest_rank(v, 2, 51), 2);
    cr_expect_eq(report_nearest_rank(v, 3, 50), 2);
    cr_expect_eq(report_nearest_rank(v, 5, 30), 2); /* 1.5, the next rank */
    cr_expect_eq(report_nearest_rank(v, 20, 95), 19);
    cr_expect_eq(report_nearest_rank(v, 21, 95), 20);
    cr_expect_eq(report_nearest_rank(v, 100, 99), 99);
    cr_expect_eq(report_nearest_rank(v, 101, 99), 100);
    cr_expect_eq(report_nearest_rank(v, 200, 1), 2);
    cr_expect_eq(report_nearest_rank(v, 200, 100), 200);
}

static bool all(const void *ctx, const struct job *j)
{
    (void) ctx;
    (void) j;
    return true;
}

static struct job *add_job(struct cluster *c, const char *uid, uint32_t n)
{
    struct job *j = calloc(1, sizeof(*j));

    j->cluster = c;
    j->uid = strdup(uid);
    j->job_id = strdup(uid);
    j->attempts = calloc(n, sizeof(struct attempt *));
    for (uint32_t i = 0; i < n; i++) {
        j->attempts[i] = calloc(1, sizeof(struct attempt));
        j->attempts[i]->job = j;
        j->attempts[i]->index = i;
    }
    j->n_attempts = n;
    HASH_ADD_KEYPTR(hh_uid, c->jobs_by_uid, j->uid, strlen(j->uid), j);
    return j;
}

static void blame(struct attempt *a, const char *fault_class, int64_t observe_us, int64_t record_us)
{
    struct anomaly *an = calloc(1, sizeof(*an));

    an->uid = strdup("u");
    an->attempt = a;
    an->rule = strdup("r");
    an->fault_class = strdup(fault_class);
    an->observe_us = observe_us;
    an->record_us = record_us;
    DL_APPEND(a->anomalies, an);
    a->advice = calloc(1, sizeof(*a->advice));
    a->advice->attempt = a;
    a->advice->anomaly_uid = strdup("u");
}

Test(report, unknown_and_negative_intervals_are_left_out)
{
    const struct fleet_config cfg = { .lease_us = 1000000 };
    struct fleet *f = fleet_new(&cfg);
    struct report_query q = { .fleet = f, .fault_class = "", .may_see = all };
    struct intents in;
    struct adv_err err = { 0 };
    struct event ev = { .type = EV_CLUSTER_CREATE, .cluster = "alpha", .now_us = 1, .principal = "t" };
    struct latency_row *rows = NULL;
    struct cluster *c;
    struct job *j;
    size_t n = 0;

    fleet_load_done(f, true, 1, 1);
    intents_init(&in);
    cr_assert_eq(fleet_apply(f, &ev, &in, &err), 0);
    intents_done(&in);
    c = fleet_find_cluster(f, "alpha");
    j = add_job(c, "j1", 4);
    for (uint32_t i = 0; i < 4; i++)
        j->attempts[i]->ms.end_observed_us = 1000000 * (int64_t) (i + 1);
    blame(j->attempts[0], "storage", 100000, 350999);
    j->attempts[0]->ms.advised_us = 1000000 + 250000;
    blame(j->attempts[1], "storage", 900, 800); /* the clocks differ */
    j->attempts[1]->ms.advised_us = 2000000 + 150000;
    j->attempts[2]->ms.advised_us = 2999999; /* before the end was seen */
    j->attempts[3]->ms.advised_us = 4000000;
    j->attempts[3]->ms.converged_us = 4001999;

    cr_assert_eq(report_latency(&q, &rows, &n, &err), 0);
    cr_assert_eq(n, 4);
    cr_expect_str_eq(rows[0].fault_class, "none");
    cr_expect(rows[0].interval == REPORT_END_TO_ADVISED && rows[0].count == 1 && rows[0].max_ms == 0);
    cr_expect(rows[1].interval == REPORT_END_TO_CONVERGED && rows[1].count == 1 && rows[1].p50_ms == 1);
    cr_expect_str_eq(rows[2].fault_class, "storage");
    cr_expect(rows[2].interval == REPORT_SIGNAL_TO_ANOMALY && rows[2].count == 1 && rows[2].max_ms == 250);
    cr_expect(rows[3].interval == REPORT_END_TO_ADVISED && rows[3].count == 2 && rows[3].p50_ms == 150 && rows[3].p95_ms == 250 &&
              rows[3].max_ms == 250);
    free(rows);
    /* from, and before */
    q.start_us = 2000000;
    q.end_us = 4000000;
    q.fault_class = "storage";
    cr_assert_eq(report_latency(&q, &rows, &n, &err), 0);
    cr_expect(n == 1 && rows[0].count == 1 && rows[0].max_ms == 150);
    free(rows);
    no_memory = true;
    cr_expect_eq(report_latency(&q, &rows, &n, &err), -ADV_RESOURCE_EXHAUSTED);
    cr_expect_str_eq(err.reason, "NO_MEMORY");
    no_memory = false;
    q.fault_class = "no_such";
    cr_assert_eq(report_latency(&q, &rows, &n, &err), 0);
    cr_expect_eq(n, 0);
    free(rows);
    (void) fleet_free(f);
}
