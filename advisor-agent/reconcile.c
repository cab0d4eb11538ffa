/* SPDX-License-Identifier: Apache-2.0 */

#include "advisor-agent/reconcile.h"

#include <string.h>

#include "common/jobcomment.h"

#define W(t)             ((struct reconcile_next) { .what = RECONCILE_WAIT, .text = (t) })
#define KEEP             ((struct reconcile_next) { .what = RECONCILE_KEEP, .text = "the job waits in our hold", \
                                                   .why = advisor_v1_DispositionReason_DISPOSITION_REASON_DESIRED_STATE_OBSERVED })
#define STEP(v)          ((struct reconcile_next) { .what = RECONCILE_STEP, .verb = ADAPTER_VERB_##v })
#define END(d, r, t)                                                       \
    ((struct reconcile_next) { .what = RECONCILE_END,                      \
                               .disposition = advisor_v1_Disposition_DISPOSITION_##d, \
                               .why = advisor_v1_DispositionReason_DISPOSITION_REASON_##r, \
                               .text = (t) })

bool reconcile_approved(const advisor_v1_AdviceOrder *o)
{
    return o->approved_generation != 0 && o->approved_generation == o->generation;
}

bool reconcile_consents(const char *comment, bool approved)
{
    struct adv_jobcomment c;

    adv_jobcomment_parse(comment, &c);
    return c.mode == ADV_JOBCOMMENT_ACT || (approved && c.mode == ADV_JOBCOMMENT_APPROVE);
}

bool reconcile_preserves(const advisor_v1_AdviceOrder *o)
{
    return o->desired_state == advisor_v1_DesiredState_DESIRED_STATE_PRESERVED ||
           (o->preserve && o->desired_state == advisor_v1_DesiredState_DESIRED_STATE_RESTARTED &&
            o->actionability == advisor_v1_Actionability_ACTIONABILITY_NEEDS_APPROVAL);
}

bool reconcile_allows(const advisor_v1_AdviceOrder *o, const char *comment)
{
    struct adv_jobcomment c;

    if (reconcile_consents(comment, reconcile_approved(o) || reconcile_preserves(o))) {
        adv_jobcomment_parse(comment, &c);
        return o->desired_state != advisor_v1_DesiredState_DESIRED_STATE_REQUEUEABLE ||
               c.make_requeueable != ADV_JOBCOMMENT_REQUEUE_NO;
    }
    return false;
}

static struct reconcile_next on_requeueable(const struct reconcile_view *v)
{
    const struct adapter_job *j = &v->job->job;

    if (v->order->submit_unix && j->submit_s != v->order->submit_unix)
        return END(ABANDONED, JOB_ID_REUSED, "the id belongs to another job now");
    if (j->requeueable)
        return v->made_requeueable ? END(CONVERGED, DESIRED_STATE_OBSERVED, "the job can be requeued")
                                   : END(CONVERGED, ALREADY_SATISFIED, "the job could be requeued already");
    if (v->made_requeueable)
        return END(ABANDONED, CONFLICTING_USER_ACTION, "somebody has switched requeueing off again");
    switch (j->state) {
    case ADAPTER_JOB_CONFIGURING:
    case ADAPTER_JOB_RUNNING:
    case ADAPTER_JOB_SUSPENDED:
    case ADAPTER_JOB_STOPPED:
        if (!j->completing)
            return STEP(MAKE_REQUEUEABLE);
        break;
    default:
        break;
    }
    return END(ABANDONED, NOT_REQUEUEABLE, "the attempt has ended before it could be made requeueable");
}

/* The attempt that the advice speaks of is the newest. */
static struct reconcile_next on_attempt(const struct reconcile_view *v)
{
    const struct adapter_job *j = &v->job->job;

    if (v->order->submit_unix && j->submit_s != v->order->submit_unix)
        return END(ABANDONED, JOB_ID_REUSED, "the id belongs to another job now");
    if (j->completing)
        return W("completing");
    switch (j->state) {
    case ADAPTER_JOB_FAILED:
    case ADAPTER_JOB_OUT_OF_MEMORY:
    case ADAPTER_JOB_NODE_FAIL:
    case ADAPTER_JOB_BOOT_FAIL:
        return STEP(PRESERVE);
    case ADAPTER_JOB_CONFIGURING:
    case ADAPTER_JOB_RUNNING:
    case ADAPTER_JOB_SUSPENDED:
    case ADAPTER_JOB_STOPPED:
        if (reconcile_preserves(v->order))
            return v->order->actionability == advisor_v1_Actionability_ACTIONABILITY_ACTIONABLE
                       ? END(ABANDONED, CONSTRAINT_UNSATISFIABLE, "the attempt has not ended")
                       : END(PENDING, MODE_TOO_LOW, "the advice is not to be carried out yet");
        return v->order->may_interrupt ? STEP(INTERRUPT) : W("still running");
    case ADAPTER_JOB_COMPLETED:
        return END(ABANDONED, ALREADY_SATISFIED, "the job has completed");
    case ADAPTER_JOB_CANCELLED:
        return END(ABANDONED, CONFLICTING_USER_ACTION, "the job was cancelled");
    case ADAPTER_JOB_TIMEOUT:
        return END(ABANDONED, CONSTRAINT_UNSATISFIABLE, "the job has used up its time limit");
    case ADAPTER_JOB_DEADLINE:
    case ADAPTER_JOB_REVOKED:
        return END(ABANDONED, CONSTRAINT_UNSATISFIABLE, "the scheduler ended the job for good");
    default: /* the scheduler is about to do something itself, or cannot say */
        return W("not settled");
    }
}

/* The attempt after it: ours if we made it. */
static struct reconcile_next on_successor(const struct reconcile_view *v)
{
    const struct adapter_job *j = &v->job->job;

    if (!v->requeued_by_us)
        return END(SUPERSEDED, ATTEMPT_SUPERSEDED, "the job was requeued by somebody else");
    switch (j->state) {
    case ADAPTER_JOB_CANCELLED:
        return END(ABANDONED, CONFLICTING_USER_ACTION, "the waiting job was cancelled");
    case ADAPTER_JOB_PENDING:
        if (j->completing)
            return W("completing");
        if (strcmp(j->reason, "BadConstraints") == 0) {
            struct reconcile_next next = STEP(CONSTRAIN);
            next.without_ours = true;
            return v->ours_excluded ? next : reconcile_without_ours();
        }
        if (!j->held && reconcile_preserves(v->order))
            return END(ABANDONED, CONFLICTING_USER_ACTION, "somebody has released the job");
        if (!j->held)
            return END(CONVERGED, DESIRED_STATE_OBSERVED, "the successor waits for its nodes");
        if (!j->held_by_requeue)
            return END(ABANDONED, CONFLICTING_USER_ACTION, "somebody else holds the job now");
        if (reconcile_preserves(v->order) && v->comment_changed)
            return END(ABANDONED, CONFLICTING_USER_ACTION, "the job's comment was changed while it was held");
        if (reconcile_preserves(v->order))
            return KEEP;
        if (!v->constrained)
            return STEP(CONSTRAIN);
        return STEP(RELEASE);
    case ADAPTER_JOB_UNKNOWN_STATE:
    case ADAPTER_JOB_REQUEUED:
    case ADAPTER_JOB_REQUEUE_HOLD:
    case ADAPTER_JOB_SPECIAL_EXIT:
        return W("not settled");
    default:
        if (reconcile_preserves(v->order))
            return END(ABANDONED, CONFLICTING_USER_ACTION, "somebody has released the job");
        return END(CONVERGED, DESIRED_STATE_OBSERVED, "the successor was started");
    }
}

struct reconcile_next reconcile_next(const struct reconcile_view *v)
{
    const advisor_v1_AdviceOrder *o = v->order;
    uint32_t n = o->attempt.restart_count;
    struct reconcile_next next;

    switch (o->desired_state) {
    case advisor_v1_DesiredState_DESIRED_STATE_NO_ACTION:
        return END(CONVERGED, ALREADY_SATISFIED, "nothing is to be done");
    case advisor_v1_DesiredState_DESIRED_STATE_RESTARTED:
    case advisor_v1_DesiredState_DESIRED_STATE_REQUEUEABLE:
    case advisor_v1_DesiredState_DESIRED_STATE_PRESERVED:
        break;
    default:
        return END(ABANDONED, UNSUPPORTED_BY_AGENT, "this agent does not know the desired state");
    }
    if (o->required_features_count > 0) /* none are known */
        return END(ABANDONED, UNSUPPORTED_BY_AGENT, "the advice needs a feature this agent lacks");
    if (o->actionability != advisor_v1_Actionability_ACTIONABILITY_ACTIONABLE &&
        !(o->actionability == advisor_v1_Actionability_ACTIONABILITY_NEEDS_APPROVAL && reconcile_preserves(o)))
        return END(PENDING, MODE_TOO_LOW, "the advice is not to be carried out yet");
    if (v->found == ADAPTER_FOUND_GONE)
        return END(ABANDONED, JOB_GONE, "the scheduler no longer knows the job");
    if (v->found != ADAPTER_FOUND)
        return END(PENDING, SCHEDULER_UNAVAILABLE, "the job cannot be read at present");
    if (o->incarnation_unix == 0 || v->first_submit_s == 0)
        return END(PENDING, NOT_AUTHORIZED_BY_CLUSTER, "which job the id means is not confirmed");
    if (o->incarnation_unix != v->first_submit_s || v->job->job.restart_count < n)
        return END(ABANDONED, JOB_ID_REUSED, "the id belongs to another job now");
    if (v->job->job.restart_count > n + 1 ||
        (v->job->job.restart_count > n && o->desired_state == advisor_v1_DesiredState_DESIRED_STATE_REQUEUEABLE))
        return END(SUPERSEDED, ATTEMPT_SUPERSEDED, "the job has been restarted since");
    if (o->desired_state == advisor_v1_DesiredState_DESIRED_STATE_REQUEUEABLE)
        next = on_requeueable(v);
    else
        next = v->job->job.restart_count == n ? on_attempt(v) : on_successor(v);
    /* What has ended needs no consent any more. */
    if (next.what != RECONCILE_END && !reconcile_allows(o, v->job->comment))
        return END(ABANDONED, OPTED_OUT, "the job's comment does not ask for a restart");
    if (next.what == RECONCILE_STEP && v->comment_changed)
        return END(ABANDONED, CONFLICTING_USER_ACTION, "the job's comment was changed while it was held");
    return next;
}

struct reconcile_next reconcile_without_ours(void)
{
    return END(ABANDONED, CONSTRAINT_UNSATISFIABLE, "the job cannot run without the nodes to avoid");
}

struct reconcile_next reconcile_after(const struct adapter_result *res, enum adapter_verb verb)
{
    switch (res->reason) {
    case ADAPTER_REASON_CONFLICT_USER_ACTION:
        return END(ABANDONED, CONFLICTING_USER_ACTION, "somebody has changed the job");
    case ADAPTER_REASON_CANCELLED_BY_USER:
        return END(ABANDONED, CONFLICTING_USER_ACTION, "the job was cancelled");
    case ADAPTER_REASON_ID_REUSED:
        return END(ABANDONED, JOB_ID_REUSED, "the id belongs to another job now");
    case ADAPTER_REASON_GONE:
        return END(ABANDONED, JOB_GONE, "the scheduler no longer knows the job");
    case ADAPTER_REASON_FORBIDDEN:
        return END(ABANDONED, FORBIDDEN_BY_SCHEDULER, "the scheduler forbids it");
    case ADAPTER_REASON_NOT_REQUEUEABLE:
        return END(ABANDONED, NOT_REQUEUEABLE, "the job is not requeueable");
    case ADAPTER_REASON_NOT_BATCH:
        return END(ABANDONED, NOT_REQUEUEABLE, "not a batch job");
    case ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE:
        return END(ABANDONED, CONSTRAINT_UNSATISFIABLE, "the job cannot run with these constraints");
    case ADAPTER_REASON_INVALID:
        return END(ABANDONED, UNSUPPORTED_BY_AGENT, "the scheduler does not understand the step");
    case ADAPTER_REASON_UNAVAILABLE:
        return END(PENDING, SCHEDULER_UNAVAILABLE, "the scheduler does not answer");
    default:
        /* Done, already so, or overtaken by events: the next look tells. */
        return W(adapter_verb_name(verb));
    }
}
