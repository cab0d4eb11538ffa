/* SPDX-License-Identifier: Apache-2.0 */
/* Facts are gathered one a line, sorted, and summed up run by run. */

#include "controlplane/domain/report.h"
#include "controlplane/domain/keep.h"

#include <utlist.h>

struct fact {
    const struct attempt *a;
    const char *fault_class;
    unsigned interval;
    uint64_t ms;
};

struct facts {
    struct fact *v;
    size_t n, cap;
    bool oom;
};

static void put(struct facts *f, const struct attempt *a, unsigned interval, uint64_t ms)
{
    if (f->n == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 256;
        struct fact *v = realloc(f->v, cap * sizeof(*v));
        if (!v) {
            f->oom = true;
            return;
        }
        f->v = v;
        f->cap = cap;
    }
    f->v[f->n++] = (struct fact) { a, report_class(a), interval, ms };
}

static int by_row(const void *x, const void *y)
{
    const struct fact *a = x, *b = y;
    int r = strcmp(a->a->job->cluster->name, b->a->job->cluster->name);

    if (r == 0)
        r = strcmp(a->fault_class, b->fault_class);
    if (r == 0 && a->interval != b->interval)
        r = a->interval < b->interval ? -1 : 1;
    return r ? r : a->ms < b->ms ? -1 : a->ms > b->ms;
}

static bool same_row(const struct fact *a, const struct fact *b)
{
    return a->a->job->cluster == b->a->job->cluster && adv_streq(a->fault_class, b->fault_class) && a->interval == b->interval;
}

/* Behind the last fact of the row that begins at @i. */
static size_t row_end(const struct facts *f, size_t i)
{
    size_t k = i + 1;

    while (k < f->n && same_row(&f->v[i], &f->v[k]))
        k++;
    return k;
}

static const struct anomaly *ground(const struct attempt *a)
{
    const struct anomaly *an;

    if (a->advice && a->advice->anomaly_uid)
        DL_FOREACH (a->anomalies, an)
            if (adv_streq(an->uid, a->advice->anomaly_uid))
                return an;
    return NULL;
}

const char *report_class(const struct attempt *a)
{
    const struct anomaly *an = ground(a);

    return an && an->fault_class ? an->fault_class : "none";
}

uint64_t report_nearest_rank(const uint64_t *v, size_t n, unsigned percent)
{
    size_t rank = n / 100 * percent + (n % 100 * percent + 99) / 100; /* ceil(n * percent / 100), whatever n is */

    return v[(rank ? rank : 1) - 1];
}

static bool within(const struct report_query *q, int64_t at_us)
{
    return at_us && (!q->start_us || at_us >= q->start_us) && (!q->end_us || at_us < q->end_us);
}

static void put_interval(struct facts *f, const struct attempt *a, enum report_interval i, int64_t from_us, int64_t to_us)
{
    if (from_us && to_us >= from_us)
        put(f, a, i, (uint64_t) (to_us - from_us) / 1000);
}

static void latency_of(struct facts *f, const struct report_query *q, const struct attempt *a)
{
    const struct milestones *ms = &a->ms;
    const struct anomaly *an = ground(a);

    if (!within(q, ms->end_observed_us))
        return;
    if (an && an->rule)
        put_interval(f, a, REPORT_SIGNAL_TO_ANOMALY, an->observe_us, an->record_us);
    put_interval(f, a, REPORT_END_TO_CONFIRMED, ms->end_observed_us, ms->anomaly_confirmed_us);
    put_interval(f, a, REPORT_END_TO_ADVISED, ms->end_observed_us, ms->advised_us);
    put_interval(f, a, REPORT_END_TO_FIRST_COMMAND, ms->end_observed_us, ms->first_command_us);
    put_interval(f, a, REPORT_END_TO_CONVERGED, ms->end_observed_us, ms->converged_us);
    put_interval(f, a, REPORT_END_TO_STARTED, ms->end_observed_us, ms->successor_started_us);
    put_interval(f, a, REPORT_END_TO_PRODUCTIVE, ms->end_observed_us, ms->successor_productive_us);
}

static void outcome_of(struct facts *f, const struct report_query *q, const struct attempt *a)
{
    if (attempt_judged(a) && within(q, a->advice->create_us))
        put(f, a, 0, 0);
}

static void gather(struct facts *f, const struct report_query *q,
                   void (*of)(struct facts *f, const struct report_query *q, const struct attempt *a))
{
    for (const struct cluster *c = q->fleet->clusters; c; c = c->hh.next)
        if (!q->only || c == q->only)
            for (const struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next) {
                if (!q->may_see(q->ctx, j))
                    continue;
                for (uint32_t i = 0; i < j->n_attempts; i++)
                    if (!*q->fault_class || adv_streq(report_class(j->attempts[i]), q->fault_class))
                        of(f, q, j->attempts[i]);
            }
    if (f->n)
        qsort(f->v, f->n, sizeof(*f->v), by_row);
}

static int no_memory(struct adv_err *err)
{
    return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for the report");
}

int report_latency(const struct report_query *q, struct latency_row **ret, size_t *ret_n, struct adv_err *err)
{
    struct facts f = { 0 };
    adv_auto_free struct fact *facts = NULL;
    adv_auto_free uint64_t *ms = NULL;
    struct latency_row *rows;
    size_t n = 0;

    gather(&f, q, latency_of);
    facts = f.v;
    ms = malloc((f.n + 1) * sizeof(*ms));
    rows = calloc(f.n + 1, sizeof(*rows));
    if (f.oom || !ms || !rows) {
        free(rows);
        return no_memory(err);
    }
    for (size_t i = 0; i < f.n; i++)
        ms[i] = f.v[i].ms;
    for (size_t i = 0, k; i < f.n; i = k) {
        k = row_end(&f, i);
        rows[n++] = (struct latency_row) { .cluster = f.v[i].a->job->cluster->name,
                                           .fault_class = f.v[i].fault_class,
                                           .interval = (enum report_interval) f.v[i].interval,
                                           .count = k - i,
                                           .p50_ms = report_nearest_rank(ms + i, k - i, 50),
                                           .p95_ms = report_nearest_rank(ms + i, k - i, 95),
                                           .p99_ms = report_nearest_rank(ms + i, k - i, 99),
                                           .max_ms = ms[k - 1] };
    }
    *ret = rows;
    *ret_n = n;
    return 0;
}

static void count_restart(struct outcome_row *r, const struct attempt *a)
{
    const struct advice *ad = a->advice;
    bool current = ad->approval_generation == ad->generation, converged = ad->disposition == DISPOSITION_CONVERGED;

    r->restarted++;
    r->shadow += ad->actionability == ACTION_SHADOW;
    r->awaiting_approval += advice_awaits_approval(ad);
    r->approved += current && ad->approval == APPROVAL_APPROVED;
    r->rejected += current && ad->approval == APPROVAL_REJECTED;
    r->pending += ad->disposition == DISPOSITION_PENDING;
    r->converged += converged;
    r->abandoned += ad->disposition == DISPOSITION_ABANDONED;
    r->superseded += ad->disposition == DISPOSITION_SUPERSEDED;
    r->started += converged && a->ms.successor_started_us;
    r->productive += converged && a->ms.successor_productive_us;
    r->completed += converged && a->ms.job_completed_us;
}

static void count_outcome(struct outcome_row *r, const struct attempt *a)
{
    const struct advice *ad = a->advice;
    enum verdict v = ad->verdict_generation == ad->generation ? ad->verdict : VERDICT_NONE;

    r->advice++;
    if (ad->desired == DESIRED_RESTARTED) {
        count_restart(r, a);
        r->restarted_right += v == VERDICT_RIGHT;
        r->restarted_wrong += v == VERDICT_WRONG;
    } else if (ad->desired == DESIRED_NO_ACTION) {
        r->no_action++;
        r->no_action_right += v == VERDICT_RIGHT;
        r->no_action_wrong += v == VERDICT_WRONG;
    }
}

int report_outcome(const struct report_query *q, struct outcome_row **ret, size_t *ret_n, struct adv_err *err)
{
    struct facts f = { 0 };
    adv_auto_free struct fact *facts = NULL;
    struct outcome_row *rows;
    size_t n = 0;

    gather(&f, q, outcome_of);
    facts = f.v;
    rows = calloc(f.n + 1, sizeof(*rows));
    if (f.oom || !rows) {
        free(rows);
        return no_memory(err);
    }
    for (size_t i = 0, k; i < f.n; i = k, n++) {
        k = row_end(&f, i);
        rows[n].cluster = f.v[i].a->job->cluster->name;
        rows[n].fault_class = f.v[i].fault_class;
        for (size_t m = i; m < k; m++)
            count_outcome(&rows[n], f.v[m].a);
    }
    *ret = rows;
    *ret_n = n;
    return 0;
}
