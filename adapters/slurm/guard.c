/* SPDX-License-Identifier: Apache-2.0 */

/* The guards: what must be true of a fresh read right before a write. Slurm has no compare-and-set, so this is all that
 * stands between a stale decision and a revived cancelled job. Each guard is one function and one reason; they are
 * asked in the order of the table, and the first that objects ends the action without a write.
 *
 * A guard that is never seen to matter is a guard nobody can trust: in a test build ADVISOR_TEST_DISABLE_GUARD switches
 * guards off by name ("completing,state"), and the tests show the harm that then follows. */

#include "adapters/slurm/internal.h"

#define FAILURES                                                                                            \
    (ADAPTER_STATE_BIT(ADAPTER_JOB_FAILED) | ADAPTER_STATE_BIT(ADAPTER_JOB_TIMEOUT) |                         \
     ADAPTER_STATE_BIT(ADAPTER_JOB_OUT_OF_MEMORY) | ADAPTER_STATE_BIT(ADAPTER_JOB_NODE_FAIL) |                \
     ADAPTER_STATE_BIT(ADAPTER_JOB_BOOT_FAIL))
#define RUNS                                                                                                \
    (ADAPTER_STATE_BIT(ADAPTER_JOB_CONFIGURING) | ADAPTER_STATE_BIT(ADAPTER_JOB_RUNNING) |                    \
     ADAPTER_STATE_BIT(ADAPTER_JOB_SUSPENDED) | ADAPTER_STATE_BIT(ADAPTER_JOB_STOPPED))
#define WAITS ADAPTER_STATE_BIT(ADAPTER_JOB_PENDING)
#define HOLDS (ADAPTER_STATE_BIT(ADAPTER_JOB_REQUEUE_HOLD) | ADAPTER_STATE_BIT(ADAPTER_JOB_SPECIAL_EXIT))

unsigned slurm_verb_states(enum adapter_verb verb)
{
    switch (verb) {
    case ADAPTER_VERB_PRESERVE:
        return FAILURES;
    case ADAPTER_VERB_INTERRUPT:
        return RUNS;
    case ADAPTER_VERB_MAKE_REQUEUEABLE:
        return RUNS | WAITS;
    case ADAPTER_VERB_CONSTRAIN:
    case ADAPTER_VERB_RELEASE:
    case ADAPTER_VERB_REARM_CHILD:
        return WAITS;
    case ADAPTER_VERB_CANCEL:
        return RUNS | WAITS | HOLDS;
    default:
        return 0;
    }
}

bool slurm_proven_failure(const struct adapter_job *job)
{
    return (FAILURES & ADAPTER_STATE_BIT(job->state)) != 0;
}

enum adapter_reason slurm_end_reason(enum adapter_job_state state)
{
    if (state == ADAPTER_JOB_CANCELLED)
        return ADAPTER_REASON_CANCELLED_BY_USER;
    return state == ADAPTER_JOB_COMPLETED ? ADAPTER_REASON_COMPLETED : ADAPTER_REASON_WRONG_STATE;
}

bool slurm_guard_off(const char *name)
{
#ifdef ADV_FAILPOINTS
    const char *list = getenv("ADVISOR_TEST_DISABLE_GUARD");
    size_t n = strlen(name);

    for (; list && *list; list += strcspn(list, ",") + (list[strcspn(list, ",")] == ','))
        if (strncmp(list, name, n) == 0 && (list[n] == ',' || list[n] == '\0'))
            return true;
#else
    (void) name;
#endif
    return false;
}

/* ---- the guards ---- */

/* A set is requeued as a whole or not at all. A user may cancel one component of a running set, and the others run on: a
 * requeue would leave that one where it is, or bring it back after the set's end. A component that failed by itself beside
 * others that run, or one that is of another attempt, does not come along either: then nothing is done. */
static enum adapter_reason guard_het_components(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    enum adapter_reason r = ADAPTER_REASON_OK;

    for (size_t i = 0; i < d->n_parts; i++) {
        const struct adapter_part *p = &d->parts[i];
        bool ended = adapter_job_state_ended(p->state);

        if (p->state == ADAPTER_JOB_CANCELLED)
            return ADAPTER_REASON_CANCELLED_BY_USER;
        if (p->state == ADAPTER_JOB_COMPLETED)
            return ADAPTER_REASON_COMPLETED;
        if (p->restart_count != d->job.restart_count || (act->verb == ADAPTER_VERB_INTERRUPT && ended))
            r = ADAPTER_REASON_INVALID;
        else if ((p->state == ADAPTER_JOB_UNKNOWN_STATE || (act->verb == ADAPTER_VERB_PRESERVE && !ended)) &&
                 r == ADAPTER_REASON_OK)
            r = ADAPTER_REASON_COMPLETING_WAIT;
    }
    return r;
}

/* Same count but another submit time, or a smaller count: the number belongs to another job now. */
static enum adapter_reason guard_identity(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    if (d->job.restart_count < act->expect_restarts)
        return ADAPTER_REASON_ID_REUSED;
    if (d->job.restart_count == act->expect_restarts && d->job.submit_s != act->expect_submit_s)
        return ADAPTER_REASON_ID_REUSED;
    return ADAPTER_REASON_OK;
}

/* A later attempt exists. When it waits just where PRESERVE or INTERRUPT would have put it, that is our wish (or our
 * own late command). */
static enum adapter_reason guard_attempt(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    bool makes_hold = act->verb == ADAPTER_VERB_PRESERVE || act->verb == ADAPTER_VERB_INTERRUPT;

    if (d->job.restart_count == act->expect_restarts)
        return ADAPTER_REASON_OK;
    if (makes_hold && d->job.restart_count == act->expect_restarts + 1 && d->job.held_by_requeue)
        return ADAPTER_REASON_ALREADY_SATISFIED;
    return ADAPTER_REASON_ATTEMPT_SUPERSEDED;
}

/* While COMPLETING, a failed job, a completed one and one its user cancelled look alike where the end state is not
 * shown, and a requeue revives all three; a new StartTime set then is lost. An end state that is shown may be acted on
 * (that is the time before dependents are judged). A job of ours on its way back may always be cancelled. */
static enum adapter_reason guard_completing(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    if (!d->job.completing)
        return ADAPTER_REASON_OK;
    if (act->verb == ADAPTER_VERB_PRESERVE && adapter_job_state_ended(d->job.state))
        return ADAPTER_REASON_OK;
    if (act->verb == ADAPTER_VERB_CANCEL && d->job.held_by_requeue)
        return ADAPTER_REASON_OK;
    return ADAPTER_REASON_COMPLETING_WAIT;
}

static enum adapter_reason guard_state(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    unsigned allowed = slurm_verb_states(act->verb);
    enum adapter_job_state state = d->job.state;

    if (act->verb == ADAPTER_VERB_CANCEL && state == ADAPTER_JOB_CANCELLED)
        return ADAPTER_REASON_ALREADY_SATISFIED;
    if (act->verb == ADAPTER_VERB_CANCEL && d->job.completing && d->job.held_by_requeue)
        return ADAPTER_REASON_OK;
    if (act->verb == ADAPTER_VERB_RELEASE && (RUNS & ADAPTER_STATE_BIT(state)))
        return ADAPTER_REASON_ALREADY_SATISFIED; /* the owner opened it, and it runs */
    if (act->allowed_states)
        allowed &= act->allowed_states;
    return allowed & ADAPTER_STATE_BIT(state) ? ADAPTER_REASON_OK : slurm_end_reason(state);
}

static enum adapter_reason guard_batch(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    return d->job.batch ? ADAPTER_REASON_OK : ADAPTER_REASON_NOT_BATCH;
}

static enum adapter_reason guard_requeueable(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    return d->job.requeueable ? ADAPTER_REASON_OK : ADAPTER_REASON_NOT_REQUEUEABLE;
}

static enum adapter_reason guard_not_yet(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    return d->job.requeueable ? ADAPTER_REASON_ALREADY_SATISFIED : ADAPTER_REASON_OK;
}

/* Only the hold that a requeue made is ours to open, and only a job in it is ours to change. Another kind of hold is a
 * person's. A job that cannot run with what it is given is changed back also when it is not held. */
static enum adapter_reason guard_our_hold(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    if (d->job.held_by_requeue)
        return ADAPTER_REASON_OK;
    if (d->job.held)
        return ADAPTER_REASON_CONFLICT_USER_ACTION;
    if (act->verb == ADAPTER_VERB_CONSTRAIN)
        return strcmp(d->job.reason, "BadConstraints") == 0 ? ADAPTER_REASON_OK : ADAPTER_REASON_WRONG_STATE;
    return ADAPTER_REASON_ALREADY_SATISFIED;
}

static enum adapter_reason guard_only_in_hold(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    return !act->only_in_hold || d->job.held_by_requeue || d->job.state == ADAPTER_JOB_CANCELLED
               ? ADAPTER_REASON_OK
               : ADAPTER_REASON_CONFLICT_USER_ACTION;
}

/* The one sign an owner can give on a job held by us that is sure to be seen. */
static enum adapter_reason guard_comment(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    if (!act->expect_comment || strcmp(act->expect_comment, d->comment) == 0)
        return ADAPTER_REASON_OK;
    return ADAPTER_REASON_CONFLICT_USER_ACTION;
}

/* Slurm does not judge what is held, so there is nothing to give back, and who holds it has plans of his own. */
static enum adapter_reason guard_child_held(const struct adapter_action *act, const struct adapter_job_detail *d)
{
    return d->job.held ? ADAPTER_REASON_CONFLICT_USER_ACTION : ADAPTER_REASON_OK;
}

#define V(name) ADAPTER_VERB_BIT(ADAPTER_VERB_##name)
#define ALL     (ADAPTER_VERB_BIT(ADAPTER_VERB_MAX_) - 1)
static const struct {
    const char *name;
    unsigned verbs;
    enum adapter_reason (*ask)(const struct adapter_action *act, const struct adapter_job_detail *d);
} guards[] = {
    { "identity", ALL, guard_identity },
    { "attempt", ALL, guard_attempt },
    { "completing", ALL, guard_completing },
    { "het_components", V(PRESERVE) | V(INTERRUPT), guard_het_components },
    { "state", ALL, guard_state },
    { "batch", V(PRESERVE) | V(INTERRUPT), guard_batch },
    { "requeueable", V(PRESERVE) | V(INTERRUPT), guard_requeueable },
    { "not_yet", V(MAKE_REQUEUEABLE), guard_not_yet },
    { "comment", V(RELEASE) | V(CONSTRAIN), guard_comment },
    { "only_in_hold", V(CANCEL), guard_only_in_hold },
    { "our_hold", V(RELEASE) | V(CONSTRAIN), guard_our_hold },
    { "child_held", V(REARM_CHILD), guard_child_held },
};

enum adapter_reason slurm_guard(const struct adapter_action *action, const struct adapter_job_detail *before,
                                const char **ret_guard)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(guards); i++) {
        enum adapter_reason r;

        if (!(guards[i].verbs & ADAPTER_VERB_BIT(action->verb)))
            continue;
        r = guards[i].ask(action, before);
        if (r == ADAPTER_REASON_OK || slurm_guard_off(guards[i].name))
            continue;
        *ret_guard = guards[i].name;
        return r;
    }
    *ret_guard = NULL;
    return ADAPTER_REASON_OK;
}
