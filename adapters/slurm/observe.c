/* SPDX-License-Identifier: Apache-2.0 */

/* The poll: one squeue. What makes it careful is when its answer may be believed:
 *
 *  - where PrivateData hides jobs, only between two proofs of full sight;
 *  - an empty list only on a second look, between two pings;
 *  - a list in which most of the living jobs of the last one are missing is UNKNOWN at first. It is believed on the
 *    second sight of it, with full sight, a ping, and accounting saying that a sample of the missing has ended; where
 *    there is no accounting, on the third. Jobs that had ended before do not count: slurmctld forgets those in heaps.
 *    A slurmctld that lost its state is right against accounting, which shows its jobs as running for ever: after ten
 *    such observations it is believed.
 */

#include "adapters/slurm/internal.h"

#include <stdio.h>

#define MASS_MIN    10 /* fewer missing jobs than this are never called a mass */
#define SAMPLE_MAX  40 /* of the missing ones, asked of accounting */
#define GIVE_UP     10 /* observations after which slurmctld is believed against accounting */

enum { OBSERVE_START, OBSERVE_LIST, OBSERVE_PING_BEFORE, OBSERVE_PING_AFTER, OBSERVE_ACCOUNTING };

struct observe_task {
    struct slurm_task t;
    struct adapter_observation *o;
    int64_t began_wall_us;
    bool second_look; /* between pings and with fresh sight */
    bool listed;
    char (*sample)[ADAPTER_ID_SIZE];
    bool *sample_ended;
    size_t n_sample;
    adapter_observe_cb cb;
    void *arg;
};

static uint64_t job_key(const struct adapter_job *j)
{
    if (j->array_task >= 0)
        return (uint64_t) j->array_id << 32 | (uint64_t) j->array_task;
    return (uint64_t) j->raw_id << 32 | UINT32_MAX;
}

static void key_id(uint64_t key, char out[ADAPTER_ID_SIZE])
{
    uint32_t task = (uint32_t) key;

    if (task == UINT32_MAX)
        (void) snprintf(out, ADAPTER_ID_SIZE, "%u", (uint32_t) (key >> 32));
    else
        (void) snprintf(out, ADAPTER_ID_SIZE, "%u_%u", (uint32_t) (key >> 32), task);
}

static int by_key(const void *a, const void *b)
{
    uint64_t x, y;

    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y;
}

static void finish(struct observe_task *p)
{
    adapter_observe_cb cb = p->cb;
    void *arg = p->arg;
    struct adapter_observation *o = ADV_STEAL(p->o);

    o->read_wall_us = p->began_wall_us;
    if (!o->complete)
        slurm_log(p->t.a, ADAPTER_LOG_WARNING, "observation is unknown (%s): %s", o->unknown_reason, o->err.msg);
    cb(arg, o);
    free(p->sample);
    free(p->sample_ended);
    slurm_task_done(&p->t);
    free(p);
}

static void finish_unknown(struct observe_task *p, const char *reason, const struct adv_err *err)
{
    if (!p->o && !(p->o = calloc(1, sizeof(*p->o))))
        abort();
    p->o->complete = false;
    p->o->unknown_reason = reason;
    if (err)
        p->o->err = *err;
    finish(p);
}

/* Remembers who was alive, for the next comparison. */
static void remember(struct slurm_adapter *a, const struct adapter_observation *o)
{
    uint64_t *keys = malloc((o->n_jobs ? o->n_jobs : 1) * sizeof(*keys));
    size_t n = 0;

    if (!keys)
        return; /* the older memory serves: it can only make us more careful */
    for (size_t i = 0; i < o->n_jobs; i++)
        if (!adapter_job_state_ended(o->jobs[i].state))
            keys[n++] = job_key(&o->jobs[i]);
    qsort(keys, n, sizeof(*keys), by_key);
    free(a->live);
    a->live = keys;
    a->n_live = n;
    a->suspect = 0;
}

/* Counts the living ones of last time that are not in @o at all, and samples them. */
static size_t count_missing(struct observe_task *p)
{
    struct slurm_adapter *a = p->t.a;
    const struct adapter_observation *o = p->o;
    size_t missing = 0;
    uint64_t *keys;

    if (!a->n_live || !(keys = malloc((o->n_jobs ? o->n_jobs : 1) * sizeof(*keys))))
        return a->n_live;
    for (size_t i = 0; i < o->n_jobs; i++)
        keys[i] = job_key(&o->jobs[i]);
    qsort(keys, o->n_jobs, sizeof(*keys), by_key);
    free(p->sample);
    free(p->sample_ended);
    p->sample = calloc(SAMPLE_MAX, sizeof(*p->sample));
    p->sample_ended = calloc(SAMPLE_MAX, sizeof(*p->sample_ended));
    p->n_sample = 0;
    for (size_t i = 0; i < a->n_live; i++) {
        if (bsearch(&a->live[i], keys, o->n_jobs, sizeof(*keys), by_key))
            continue;
        missing++;
        if (p->sample && p->sample_ended && p->n_sample < SAMPLE_MAX)
            key_id(a->live[i], p->sample[p->n_sample++]);
    }
    free(keys);
    return missing;
}

static void ask_list(struct observe_task *p)
{
    ADV_AUTO_DONE(adv_buf) fmt = { 0 };
    struct adapter_runner *r = p->t.a->host->runner;

    adv_buf_init(&fmt, 4096);
    if (slurm_job_format("|", &fmt) < 0)
        abort();
    const char *const argv[] = { "squeue", "-h", "-r", "-a", "-t", "all", "-O", fmt.data, NULL };
    p->t.step = OBSERVE_LIST;
    p->began_wall_us = r->ops->wall_us(r);
    slurm_task_run(&p->t, argv);
}

static void ping(struct observe_task *p, int step)
{
    static const char *const argv[] = { "scontrol", "ping", NULL };

    p->t.step = step;
    slurm_task_run(&p->t, argv);
}

static void mass_unknown(struct observe_task *p, size_t missing)
{
    struct slurm_adapter *a = p->t.a;
    struct adv_err err;

    a->suspect++;
    (void) adv_err_set(&err, ADV_UNAVAILABLE, "%zu of %zu living jobs are missing at once: waiting for confirmation",
                       missing, a->n_live);
    finish_unknown(p, "mass_disappearance", &err);
}

static void ask_accounting(struct observe_task *p)
{
    ADV_AUTO_DONE(adv_buf) ids = { 0 };

    adv_buf_init(&ids, SAMPLE_MAX * ADAPTER_ID_SIZE);
    for (size_t i = 0; i < p->n_sample; i++)
        slurm_acct_add_id(&ids, p->sample[i]);
    const char *const argv[] = { "sacct", "-n", "-X", "-P", "-j", ids.data, "-o", SLURM_ACCT_FIELDS, NULL };
    p->t.step = OBSERVE_ACCOUNTING;
    slurm_task_run(&p->t, argv);
}

/* The list is there and we saw everything: is it plausible? */
static void judge(struct observe_task *p)
{
    struct slurm_adapter *a = p->t.a;
    size_t missing = count_missing(p);
    bool mass = missing > MASS_MIN && missing * 2 > a->n_live;

    if ((p->o->n_jobs == 0 || mass) && !p->second_look) {
        p->second_look = true;
        ping(p, OBSERVE_PING_BEFORE);
    } else if (mass && a->suspect == 0) {
        mass_unknown(p, missing);
    } else if (mass && a->site.accounting) {
        ask_accounting(p);
    } else if (mass && a->suspect < 2) {
        mass_unknown(p, missing);
    } else {
        remember(a, p->o);
        finish(p);
    }
}

static void on_sight_after(void *arg, enum adapter_sight sight, enum adapter_privilege privilege,
                           const struct adv_err *err)
{
    struct observe_task *p = arg;

    if (sight != ADAPTER_SIGHT_FULL)
        finish_unknown(p, sight == ADAPTER_SIGHT_PARTIAL ? "partial_sight" : "unavailable", err);
    else if (p->second_look)
        ping(p, OBSERVE_PING_AFTER);
    else
        judge(p);
}

static void on_sight_before(void *arg, enum adapter_sight sight, enum adapter_privilege privilege,
                            const struct adv_err *err)
{
    struct observe_task *p = arg;

    if (sight != ADAPTER_SIGHT_FULL)
        finish_unknown(p, sight == ADAPTER_SIGHT_PARTIAL ? "partial_sight" : "unavailable", err);
    else
        ask_list(p);
}

static void on_acct_row(void *arg, const struct slurm_acct_row *row)
{
    struct observe_task *p = arg;

    for (size_t i = 0; i < p->n_sample; i++)
        if (slurm_acct_covers(row->id, p->sample[i]))
            p->sample_ended[i] = adapter_job_state_ended(row->state);
}

static void observe_resume(struct slurm_task *t)
{
    struct observe_task *p = ADV_CONTAINER_OF(t, struct observe_task, t);
    struct slurm_adapter *a = t->a;
    struct adv_err err = { 0 };

    switch (t->step) {
    case OBSERVE_START:
        slurm_sight(a, false, false, on_sight_before, p);
        return;

    case OBSERVE_LIST:
        if (!slurm_task_ok(t) || strstr(t->err, "error:")) { /* a refused field shows on stderr, at times with rc 0 */
            (void) slurm_task_error(t, "squeue", &err);
            finish_unknown(p, "unavailable", &err);
            return;
        }
        p->o = adapter_observation_free(p->o);
        if (!(p->o = slurm_parse_jobs(ADV_STEAL(t->out), t->out_len)))
            abort();
        if (!p->o->complete)
            finish(p);
        else if (a->site.private_jobs || p->second_look)
            slurm_sight(a, true, false, on_sight_after, p);
        else
            judge(p);
        return;

    case OBSERVE_PING_BEFORE:
    case OBSERVE_PING_AFTER:
        if (!slurm_task_ok(t)) {
            (void) slurm_task_error(t, "scontrol ping", &err);
            finish_unknown(p, "unavailable", &err);
        } else if (t->step == OBSERVE_PING_BEFORE) {
            slurm_sight(a, true, false, on_sight_before, p);
        } else {
            judge(p);
        }
        return;

    default:
        if (slurm_task_ok(t))
            slurm_parse_acct(t->out, t->out_len, on_acct_row, p);
        for (size_t i = 0; i < p->n_sample; i++)
            if (!p->sample_ended[i] && a->suspect < GIVE_UP) {
                (void) adv_err_set(&err, ADV_UNAVAILABLE, "job %s is missing, and accounting does not say it ended",
                                   p->sample[i]);
                a->suspect++;
                finish_unknown(p, "mass_disappearance", &err);
                return;
            }
        remember(a, p->o);
        finish(p);
        return;
    }
}

void slurm_observe(struct adapter *base, adapter_observe_cb cb, void *arg)
{
    struct observe_task *p = calloc(1, sizeof(*p));

    if (!p)
        abort();
    slurm_task_init(&p->t, slurm_of(base), observe_resume);
    p->cb = cb;
    p->arg = arg;
    slurm_task_start(&p->t);
}
