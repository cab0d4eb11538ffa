/* SPDX-License-Identifier: Apache-2.0 */
/* What people say to advice.
 *
 * A yes counts for one generation: the person saw these constraints and no others. It makes that generation executable
 * where consent says "ask first", and raises nothing: it is refused where consent is less by now, and every limit is
 * looked at again by the agent before each write. A no, or no answer in time, ends the generation. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"

int64_t fleet_approval_until(const struct advice *ad)
{
    return ad->update_us + (int64_t) ad->valid_for_ms * 1000;
}

static int find_advice(struct cluster *c, const char *name, struct advice **ret, struct adv_err *err)
{
    struct resource_path p;
    struct job *j;
    struct attempt *a;
    int r = resource_path_parse(name, &p, err);

    if (r < 0)
        return r;
    j = fleet_find_job_uid(c, p.job_uid);
    a = j && p.attempt ? job_attempt(j, p.attempt_index) : NULL;
    if (!a || !adv_streq(p.cluster, c->name))
        return adv_err_set_reason(err, ADV_NOT_FOUND, "ATTEMPT_NOT_FOUND", "%.200s: no such attempt", name);
    if (!a->advice)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "ADVICE_NOT_FOUND", "attempt %u of job %s was not judged", a->index,
                                  a->job->job_id);
    *ret = a->advice;
    return 0;
}

static int same_generation(const struct advice *ad, uint64_t generation, struct adv_err *err)
{
    if (!generation) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "GENERATION_MISSING", "generation: expected the one that was read");
        return adv_err_field(err, "generation");
    }
    if (generation != ad->generation)
        return adv_err_set_reason(err, ADV_ABORTED, "GENERATION_MISMATCH", "the advice is at generation %llu now, not %llu",
                                  (unsigned long long) ad->generation, (unsigned long long) generation);
    return 0;
}

static int not_awaiting(const struct advice *ad, struct adv_err *err)
{
    return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "NOT_AWAITING_APPROVAL", "generation %llu is %s and %s",
                              (unsigned long long) ad->generation,
                              ad->desired == DESIRED_NO_ACTION              ? "nothing to do" :
                              ad->actionability == ACTION_ACTIONABLE        ? "executable already" :
                              ad->actionability == ACTION_NEEDS_APPROVAL    ? "waiting for approval" :
                                                                              "for reading only",
                              disposition_name(ad->disposition));
}

/* Whether consent still goes as far as a person's yes. */
static int consent_holds(const struct advice *ad, struct adv_err *err)
{
    char *why[POLICY_MAX_MODE_REASONS];
    size_t n = 0;
    enum adv_mode m = policy_job_consent(ad->attempt->job, why, &n);
    int r = m >= MODE_APPROVE ? 0 : adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "MODE_TOO_LOW", "%.200s",
                                                       n ? str_or(why[0]) : "consent was lowered");

    for (size_t i = 0; i < n; i++)
        free(why[i]);
    return r;
}

static void keep(struct intents *in, struct advice *ad, const struct event *ev)
{
    ad->approval = ev->u.approval.decision;
    ad->approval_generation = ad->generation;
    ad->approval_us = ev->now_us;
    (void) str_set(in, &ad->approval_by, ev->principal);
    (void) str_set(in, &ad->approval_reason, ev->u.approval.reason);
}

static int approve(struct intents *in, struct advice *ad, const struct event *ev, struct adv_err *err)
{
    int r;

    if (!advice_awaits_approval(ad) || !attempt_stands(ad->attempt) || ev->now_us >= fleet_approval_until(ad))
        return not_awaiting(ad, err);
    if (ad->attempt->job->cluster->maintenance_until_us)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "MAINTENANCE", "a maintenance window is open");
    if ((r = consent_holds(ad, err)) < 0)
        return r;
    keep(in, ad, ev);
    ad->actionability = ACTION_ACTIONABLE;
    ad->disposition_reason = REASON_UNSET;
    ad->status_us = ev->now_us;
    (void) str_set(in, &ad->status_detail, NULL);
    fleet_advice_open(ad);
    return 0;
}

static int reject(struct intents *in, struct advice *ad, const struct event *ev, struct adv_err *err)
{
    bool begun = ad->desired != DESIRED_PRESERVED && attempt_requeue_recorded(ad->attempt),
         open = ad->actionability == ACTION_ACTIONABLE && ad->disposition == DISPOSITION_PENDING &&
                ad->desired != DESIRED_NO_ACTION && !begun;

    if (!advice_awaits_approval(ad) && !open)
        return not_awaiting(ad, err);
    keep(in, ad, ev);
    if (open || ad->open) { /* one that is only kept is told to the agent, too */
        ad->actionability = ACTION_SHADOW; /* stays on the open list until the agent has heard that it is no more */
        ad->order_rev = 0;
    }
    ad->disposition = DISPOSITION_ABANDONED;
    ad->disposition_reason = REASON_REJECTED;
    ad->status_us = ev->now_us;
    (void) str_set(in, &ad->status_detail, ev->u.approval.reason);
    return 0;
}

int fleet_apply_approval(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err)
{
    bool yes = ev->u.approval.decision == APPROVAL_APPROVED;
    char name[RESOURCE_NAME_MAX];
    struct advice *ad;
    int r;

    if ((r = find_advice(c, ev->u.approval.attempt_name, &ad, err)) < 0 ||
        (r = same_generation(ad, ev->u.approval.generation, err)) < 0 ||
        (r = yes ? approve(in, ad, ev, err) : reject(in, ad, ev, err)) < 0)
        return r;
    fleet_touch_advice(in, ad);
    fleet_audit(in, c, ev, 0, yes ? "advice.approve" : "advice.reject", advice_resource_name(ad->attempt, name),
                "generation %llu%s%s", (unsigned long long) ad->generation, ad->approval_reason ? ": " : "",
                str_or(ad->approval_reason));
    return 0;
}

void fleet_approval_expire(struct intents *in, struct advice *ad, const struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    ad->disposition = DISPOSITION_ABANDONED;
    ad->disposition_reason = REASON_EXPIRED;
    if (ad->open) { /* its job is kept: to be given back */
        ad->actionability = ACTION_SHADOW;
        ad->order_rev = 0;
    }
    ad->status_us = ev->now_us;
    (void) str_set(in, &ad->status_detail, "nobody approved it in time");
    fleet_touch_advice(in, ad);
    fleet_audit(in, ad->attempt->job->cluster, ev, 0, "advice.expire", advice_resource_name(ad->attempt, name),
                "generation %llu: nobody approved it in time", (unsigned long long) ad->generation);
}

int fleet_apply_verdict(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err)
{
    char name[RESOURCE_NAME_MAX];
    struct advice *ad;
    int r;

    if (ev->u.verdict.value != VERDICT_RIGHT && ev->u.verdict.value != VERDICT_WRONG) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "VERDICT_MALFORMED", "verdict: expected RIGHT or WRONG");
        return adv_err_field(err, "verdict");
    }
    if ((r = find_advice(c, ev->u.verdict.attempt_name, &ad, err)) < 0 ||
        (r = same_generation(ad, ev->u.verdict.generation, err)) < 0)
        return r;
    ad->verdict = ev->u.verdict.value;
    ad->verdict_generation = ad->generation;
    ad->verdict_us = ev->now_us;
    (void) str_set(in, &ad->verdict_by, ev->principal);
    (void) str_set(in, &ad->verdict_why, ev->u.verdict.why);
    fleet_touch_advice(in, ad);
    fleet_audit(in, c, ev, 0, "advice.verdict", advice_resource_name(ad->attempt, name), "generation %llu %s%s%s",
                (unsigned long long) ad->generation, ad->verdict == VERDICT_RIGHT ? "right" : "wrong",
                ad->verdict_why ? ": " : "", str_or(ad->verdict_why));
    return 0;
}
