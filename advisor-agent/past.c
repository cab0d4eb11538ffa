/* SPDX-License-Identifier: Apache-2.0 */

/* Attempts that the scheduler forgot before this agent saw their end: while it was away for longer than the scheduler keeps
 * ended jobs, or between two looks. Accounting is asked how they ended; it lags, so more than once. Nothing waits for the
 * answer, and where there is none the end stays unknown. */

#include "advisor-agent/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/utf8.h"

#define PAST_MAX      1024 /* to be asked about; more than that are left unknown */
#define LAG_FIRST_US  2000000 /* accounting is some seconds late; doubled each time */
#define CANCELLED_FRESH_S 120
#define LAG_TRIES     7       /* two minutes in all */
#define CANCELLED_MAX (PAST_MAX / 4) /* by whom a job was cancelled is good to know, how one ended is needed */
#define DOWN_FIRST_US 5000000 /* accounting is away; doubled up to the next */
#define DOWN_MAX_US   300000000

struct past {
    char job[JOURNAL_JOB_SIZE];
    uint32_t restarts;
    int64_t submit_s, due_us;
    unsigned tries; /* answers in which the end was not there yet */
    bool life_known;
    struct journal_life life; /* as the journal has it; its end is not known */
    uint32_t uid;   /* of the job's owner */
    bool cancelled; /* that it was is known; by whom is asked */
    bool asked;     /* in the question under way */
};

struct pasts {
    struct past v[PAST_MAX];
    size_t n;
    bool busy;
    int64_t down_us;      /* wait after accounting did not answer; 0: it did */
    int64_t ask_after_us; /* then */
};

/* @l: NULL: the journal does not know it */
static void add(struct agent *a, const char *job, uint32_t restarts, int64_t submit_s, uint32_t uid, bool cancelled,
                const struct journal_life *l)
{
    struct pasts *p = a->pasts;
    struct past *n, *oldest = NULL; /* of the cancelled ones that may give way */
    size_t n_cancelled = 0;

    if (!a->accounting || !submit_s || strlen(job) >= ADAPTER_ID_SIZE)
        return;
    if (!p && !(p = a->pasts = calloc(1, sizeof(*p))))
        return;
    for (size_t i = 0; i < p->n; i++) {
        struct past *x = &p->v[i];
        if (x->submit_s == submit_s && strcmp(x->job, job) == 0)
            return;
        n_cancelled += x->cancelled;
        if (x->cancelled && !x->asked && !oldest)
            oldest = x;
    }
    if (cancelled && n_cancelled >= CANCELLED_MAX)
        return; /* who cancelled so many stays unknown */
    if (p->n == PAST_MAX && !cancelled && oldest) {
        /* answers come in the order of the list: what is behind moves up */
        size_t at = (size_t) (oldest - p->v);
        memmove(oldest, oldest + 1, (p->n - at - 1) * sizeof(*oldest));
        p->n--;
    }
    if (p->n == PAST_MAX) {
        static struct adv_ratelimit limit;
        if (adv_log_ratelimit(&limit, 1))
            adv_warn("agent", "too many jobs vanished at once: how this one ended stays unknown", ADV_FS("job", job));
        return;
    }
    n = &p->v[p->n++];
    *n = (struct past) { .restarts = restarts, .submit_s = submit_s, .uid = uid, .cancelled = cancelled, .due_us = adv_mono_us() };
    if (l && l->restarts == restarts && l->submit_s == submit_s) {
        n->life_known = true;
        n->life = *l;
    }
    (void) snprintf(n->job, sizeof(n->job), "%s", job);
}

void past_vanished(struct agent *a, const advisor_v1_JobObservation *o)
{
    switch (o->state) {
    case advisor_v1_JobState_JOB_STATE_PENDING:
    case advisor_v1_JobState_JOB_STATE_CONFIGURING:
    case advisor_v1_JobState_JOB_STATE_RUNNING:
    case advisor_v1_JobState_JOB_STATE_SUSPENDED:
    case advisor_v1_JobState_JOB_STATE_COMPLETING:
    case advisor_v1_JobState_JOB_STATE_UNSPECIFIED:
        add(a, o->job_id, o->restart_count, o->submit_unix, o->uid, false, a->journal ? journal_life(a->journal, o->job_id) : NULL);
        return;
    default:
        return; /* its end was seen */
    }
}

void past_unseen(struct agent *a, const char *job, const struct journal_life *l)
{
    if (!l->ended_s)
        add(a, job, l->restarts, l->submit_s, l->uid, false, l);
}

void past_cancelled(struct agent *a, const struct adapter_job *job)
{
    if (job->end_s + CANCELLED_FRESH_S < agent_wall_us(a) / 1000000) /* an old story: the agent was just started */
        return;
    add(a, job->id, job->restart_count, job->submit_s, job->uid, true, NULL);
}

/* Answered or given up: not to be asked again after the next start. @ended_s must not be later than the end, since from it
 * follows which later attempts can be of the same job. */
static void settle(struct agent *a, const struct past *x, int64_t ended_s)
{
    const struct journal_life *l;
    struct journal_life n = x->life;
    struct adv_err err;

    if (!a->journal || !x->life_known || journal_life(a->journal, x->job))
        return; /* the id has a meaning again */
    n.ended_s = ended_s;
    if (journal_append_life(a->journal, x->job, &n, &err) < 0)
        adv_info("agent", "the end of a job is not journalled, it is asked for again after a restart", ADV_FS("why", err.msg));
    else if ((l = journal_life(a->journal, x->job)) && l->submit_s == x->submit_s)
        journal_forget_job(a->journal, x->job);
}

/* Drops what is done with. */
static void sweep(struct pasts *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].due_us)
            p->v[n++] = p->v[i];
    p->n = n;
}

/* The owner first: who runs the agent may cancel jobs of his own. */
static advisor_v1_CancelledBy cancelled_by(const struct past *x, const struct adapter_end *e)
{
    if (e->state != ADAPTER_JOB_CANCELLED || !e->canceller_known)
        return advisor_v1_CancelledBy_CANCELLED_BY_UNSPECIFIED;
    return e->canceller_uid == x->uid      ? advisor_v1_CancelledBy_CANCELLED_BY_OWNER
           : e->canceller_uid == geteuid() ? advisor_v1_CancelledBy_CANCELLED_BY_ADVISOR
                                           : advisor_v1_CancelledBy_CANCELLED_BY_OTHER;
}

static void tell(struct agent *a, const struct past *x, const struct adapter_end *e)
{
    advisor_v1_JobEnd m = {
        .restart_count = x->restarts,
        .submit_unix = x->submit_s,
        .state = snapshot_state_of(e->state, false),
        .exit_code = e->exit.known ? (uint32_t) e->exit.code : 0,
        .exit_signal = e->exit.known ? (uint32_t) e->exit.signal : 0,
        .start_unix = e->start_s,
        .end_unix = e->end_s,
        .cancelled_by = cancelled_by(x, e),
        .nodes = (char *) (uintptr_t) e->nodes,
    };
    struct adv_err err;

    (void) snprintf(m.job_id, sizeof(m.job_id), "%s", x->job);
    (void) adv_utf8_lossy_buf(m.state_raw, sizeof(m.state_raw), e->state_text, strlen(e->state_text));
    adv_info("agent", x->cancelled ? "a cancelled job, as accounting tells it" : "a job that the scheduler forgot, as accounting tells it", ADV_FS("job", x->job),
             ADV_FI("restarts", x->restarts), ADV_FS("state", e->state_text), ADV_FS("nodes", e->nodes));
    if (snapshot_ended(a->snapshot, &m, &err) < 0)
        adv_warn("agent", "the end of a job cannot be told", ADV_FS("why", err.msg));
    else if (a->session)
        session_state_changed(a->session);
}

static void on_history(void *arg, const struct adapter_end *ends, size_t n, const struct adv_err *err)
{
    struct agent *a = arg;
    struct pasts *p = a->pasts;
    int64_t now = adv_mono_us();
    size_t k = 0;

    p->busy = false;
    if (a->closing)
        return;
    if (err) {
        p->down_us = !p->down_us ? DOWN_FIRST_US : 2 * p->down_us < DOWN_MAX_US ? 2 * p->down_us : DOWN_MAX_US;
        p->ask_after_us = now + p->down_us;
        adv_info("agent", "accounting does not say how vanished jobs ended, will ask again", ADV_FU("jobs", p->n),
                 ADV_FI("after_s", p->down_us / 1000000), ADV_FS("why", err->msg));
    } else {
        p->down_us = 0;
    }
    for (size_t i = 0; i < p->n && k < n; i++) {
        struct past *x = &p->v[i];
        if (!x->asked)
            continue;
        const struct adapter_end *e = &ends[k++];
        x->asked = false;
        if (err) {
            continue;
        } else if (e->found == ADAPTER_PAST_ENDED) {
            if (!x->cancelled || e->state == ADAPTER_JOB_CANCELLED)
                tell(a, x, e);
            settle(a, x, e->end_s);
            x->due_us = 0;
        } else if (++x->tries == LAG_TRIES) {
            adv_info("agent", x->cancelled ? "accounting does not tell by whom a job was cancelled"
                                           : "a job is gone from the scheduler, and accounting does not tell its end", ADV_FS("job", x->job),
                     ADV_FS("accounting", e->found == ADAPTER_PAST_NONE ? "knows no such attempt" : "shows it unfinished"));
            settle(a, x, 1); /* some time: nothing follows from it */
            x->due_us = 0;
        } else {
            x->due_us = now + ((int64_t) LAG_FIRST_US << (x->tries - 1));
        }
    }
    sweep(p);
}

void past_tick(struct agent *a, int64_t now)
{
    struct adapter_attempt_id ask[ADAPTER_HISTORY_MAX];
    struct pasts *p = a->pasts;
    size_t n = 0;

    if (!p || p->busy || !p->n || now < p->ask_after_us || snapshot_ends_room(a->snapshot) < ADAPTER_HISTORY_MAX)
        return;
    for (size_t i = 0; i < p->n && n < ADAPTER_HISTORY_MAX; i++) {
        struct past *x = &p->v[i];
        if (x->due_us > now)
            continue;
        x->asked = true;
        ask[n].submit_s = x->submit_s;
        (void) snprintf(ask[n].id, sizeof(ask[n].id), "%.*s", (int) sizeof(ask[n].id) - 1, x->job);
        n++;
    }
    if (!n)
        return;
    p->busy = true;
    a->adapter->ops->history(a->adapter, ask, n, on_history, a);
}

void past_free(struct agent *a)
{
    free(a->pasts);
    a->pasts = NULL;
}
