/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/domain/internal.h"

#include "controlplane/domain/keep.h"

#include <stdarg.h>
#include <stdio.h>
#include <utlist.h>

#define KEEP_SHARE 3 /* of the time that the scheduler keeps an ended job: the rest is for the agent, and for one that is slow */

static bool keeps(const struct advice *ad)
{
    return ad && (ad->desired == DESIRED_PRESERVED || ad->preserve) && ad->disposition == DISPOSITION_PENDING;
}

bool attempt_judged(const struct attempt *a)
{
    return a->advice && a->advice->desired != DESIRED_REQUEUEABLE && a->advice->desired != DESIRED_PRESERVED;
}

bool attempt_kept_by(const struct attempt *a, uint32_t index, enum job_state state, bool held)
{
    return keeps(a->advice) && index == a->index + 1 && (state == JOB_PENDING ? held : !job_state_running(state)) &&
           (!job_state_terminal(state) || state == JOB_REQUEUED); /* on its way into the hold */
}

bool attempt_kept(const struct attempt *a)
{
    const struct attempt *last = fleet_last_attempt(a->job);

    return last != a && last && attempt_kept_by(a, last->index, last->state, a->job->held);
}

bool attempt_stands(const struct attempt *a)
{
    return fleet_is_last(a) || attempt_kept(a);
}

/* ---- decisions that are none --------------------------------------------------------------------------------------- */

static void say(struct intents *in, struct decision *d, const char *code, const char *param, const char *fmt, ...)
    ADV_PRINTF(5, 6);
static void say(struct intents *in, struct decision *d, const char *code, const char *param, const char *fmt, ...)
{
    struct advice_reason *r = &d->reasons[d->n_reasons++];
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&r->sentence, fmt, ap) < 0)
        r->sentence = NULL;
    va_end(ap);
    r->code = strdup(code);
    r->param = strdup(str_or(param));
    in->oom |= !r->code || !r->param || !r->sentence;
}

static enum adv_mode mode_of(const struct job *j)
{
    char *why[POLICY_MAX_MODE_REASONS];
    size_t n = 0;
    enum adv_mode m = policy_job_mode(j, why, &n);

    for (size_t i = 0; i < n; i++)
        free(why[i]);
    return m;
}

/* ---- requeueable --------------------------------------------------------------------------------------------------- */

/* It was done, or tried, for an earlier attempt of the job: whoever switched it off again meant it. */
static bool made_before(const struct job *j)
{
    const struct action *ac;

    for (uint32_t i = 0; i < j->n_attempts; i++)
        DL_FOREACH (j->attempts[i]->actions, ac)
            if (ac->verb == VERB_MAKE_REQUEUEABLE && ac->observed != OBSERVED_NO && ac->command != COMMAND_NOT_SENT)
                return true;
    return false;
}

static bool may_be_made(const struct job *j, const struct policy *p)
{
    return j->make_requeueable == MAKE_REQUEUEABLE_YES ||
           (j->make_requeueable == MAKE_REQUEUEABLE_UNSAID && p->make_requeueable_opted_in);
}

/* It was lowered, and consent is back, or it expired while it waited for the site's budget: unlike a restart, this sets nothing old
 * in motion. */
static void raise_again(struct intents *in, struct advice *ad, const struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    bool expired = ad->disposition == DISPOSITION_ABANDONED && ad->disposition_reason == REASON_EXPIRED;

    if (ad->desired != DESIRED_REQUEUEABLE ||
        !(expired || (ad->disposition == DISPOSITION_PENDING && ad->actionability != ACTION_ACTIONABLE)))
        return;
    if (expired) {
        ad->generation++; /* to the agent the old one is over */
        ad->disposition = DISPOSITION_PENDING;
        ad->status_us = ev->now_us;
    }
    ad->actionability = ACTION_ACTIONABLE;
    ad->disposition_reason = REASON_UNSET;
    ad->update_us = ev->now_us;
    (void) str_set(in, &ad->status_detail, NULL);
    fleet_advice_open(ad);
    ad->order_rev = 0;
    fleet_touch_advice(in, ad);
    fleet_audit(in, ad->attempt->job->cluster, ev, 0, "advice.raised", advice_resource_name(ad->attempt, name),
                expired ? "it expired before it was done, and is still wanted: generation %llu" : "consent for it is back (generation %llu)",
                (unsigned long long) ad->generation);
}

/* The job's comment does not ask for it any more. */
static void lower_unasked(struct intents *in, struct advice *ad, const struct event *ev)
{
    static const char why[] = "the job's comment does not ask for it any more";
    char name[RESOURCE_NAME_MAX];

    if (ad->desired != DESIRED_REQUEUEABLE || ad->disposition != DISPOSITION_PENDING || !ad->open ||
        ad->actionability != ACTION_ACTIONABLE)
        return;
    ad->actionability = ACTION_SHADOW;
    ad->disposition_reason = REASON_MODE_TOO_LOW;
    ad->update_us = ev->now_us;
    ad->order_rev = 0;
    (void) str_set(in, &ad->status_detail, why);
    fleet_touch_advice(in, ad);
    fleet_audit(in, ad->attempt->job->cluster, ev, 0, "advice.lowered", advice_resource_name(ad->attempt, name), "%s", why);
}

void fleet_want_requeueable(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    const struct job *j = a->job;
    struct decision d = { .desired = DESIRED_REQUEUEABLE, .actionability = ACTION_ACTIONABLE };

    if (a->advice && !may_be_made(j, &f->cfg.policy))
        lower_unasked(in, a->advice, ev);
    if (a->state != JOB_RUNNING || j->requeueable || !j->batch || j->gone || attempt_judged(a) || a->unseen || !fleet_is_last(a) ||
        !may_be_made(j, &f->cfg.policy) || made_before(j) || mode_of(j) != MODE_ACT)
        return;
    if (a->advice) {
        raise_again(in, a->advice, ev);
        return;
    }
    say(in, &d, "requeue_off", NULL, "The job was submitted with requeueing switched off, so it could not be restarted once it has ended.");
    if (j->make_requeueable == MAKE_REQUEUEABLE_YES)
        say(in, &d, "requeue_asked", NULL, "Its comment asks for that to be changed (make_requeueable).");
    else
        say(in, &d, "requeue_by_site", NULL, "The site has it changed for jobs that opt in (decide.make_requeueable).");
    if (!(d.summary = strdup("Make it requeueable while it runs, so that it can be restarted if it fails.")))
        in->oom = true;
    fleet_put_advice(f, in, a, &d, ev);
    decision_done(&d);
}

void fleet_want_requeueable_all(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev)
{
    struct job *j, *next;

    HASH_ITER (hh_id, c->jobs_by_id, j, next) {
        struct attempt *a = j->requeueable || j->gone ? NULL : fleet_last_attempt(j);
        if (a)
            fleet_want_requeueable(f, in, a, ev);
    }
}

void why_not_requeueable(const struct attempt *a, const struct policy *p, char buf[WHY_NOT_REQUEUEABLE_MAX])
{
    const struct advice *ad = a->advice;
    char *why[POLICY_MAX_MODE_REASONS];
    size_t n = 0;
    enum adv_mode m = policy_job_mode(a->job, why, &n);

    if (ad && ad->desired == DESIRED_REQUEUEABLE && ad->disposition == DISPOSITION_CONVERGED)
        (void) snprintf(buf, WHY_NOT_REQUEUEABLE_MAX, "it was made requeueable while it ran, and somebody has changed that back");
    else if (ad && ad->desired == DESIRED_REQUEUEABLE)
        (void) snprintf(buf, WHY_NOT_REQUEUEABLE_MAX, "it was to be made requeueable while it ran, which is %s (%s)%s%.200s",
                        disposition_name(ad->disposition), disposition_reason_name(ad->disposition_reason),
                        ad->status_detail ? ": " : "", str_or(ad->status_detail));
    else if (made_before(a->job))
        (void) snprintf(buf, WHY_NOT_REQUEUEABLE_MAX, "an earlier attempt was made requeueable, and somebody has changed that back");
    else if (a->job->make_requeueable == MAKE_REQUEUEABLE_NO)
        (void) snprintf(buf, WHY_NOT_REQUEUEABLE_MAX, "its comment forbids to change that (\"make_requeueable\": false)");
    else if (!may_be_made(a->job, p))
        (void) snprintf(buf, WHY_NOT_REQUEUEABLE_MAX,
                        "its comment does not ask for that to be changed while it runs (\"make_requeueable\": true)");
    else if (m != MODE_ACT)
        (void) snprintf(buf, WHY_NOT_REQUEUEABLE_MAX, "that is changed in mode act only: %.300s", n ? str_or(why[0]) : "the mode is less");
    else
        (void) snprintf(buf, WHY_NOT_REQUEUEABLE_MAX, "it was not seen running with its comment before it ended");
    for (size_t i = 0; i < n; i++)
        free(why[i]);
}

/* ---- preserved ----------------------------------------------------------------------------------------------------- */

/* When it ended, by our clock. Whoever heard of it late has less time left. */
static int64_t ended_us(const struct attempt *a)
{
    int64_t by_cluster = (a->end_unix - a->job->cluster->agent_skew_s) * 1000000;

    return a->end_unix && by_cluster < a->ms.end_observed_us ? by_cluster : a->ms.end_observed_us;
}

/* Is a restart what it comes to, by what is known now? */
static bool would_restart(struct fleet *f, struct intents *in, const struct attempt *a, const struct event *ev)
{
    struct decision d;
    bool r;

    decide_attempt(a, &f->cfg.policy, ev->now_us, &d);
    in->oom |= d.oom;
    r = !d.oom && d.desired == DESIRED_RESTARTED;
    decision_done(&d);
    return r;
}

static void preserve_undecided(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct decision d = { .desired = DESIRED_PRESERVED, .actionability = ACTION_ACTIONABLE };
    uint32_t forget_s = a->job->cluster->forget_after_s;

    say(in, &d, "undecided", NULL, "It is not decided yet what becomes of it; by what is known so far it would be restarted.");
    say(in, &d, "forgotten_soon", NULL, "The scheduler forgets an ended job after %u s, of which a third is over.", forget_s);
    if (!(d.summary = strdup("Keep the job in a hold until it is decided: the scheduler would forget it.")))
        in->oom = true;
    fleet_put_advice(f, in, a, &d, ev);
    decision_done(&d);
}

static void preserve_awaiting(struct intents *in, struct advice *ad, const struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    ad->preserve = true;
    fleet_advice_open(ad);
    fleet_touch_advice(in, ad);
    fleet_audit(in, ad->attempt->job->cluster, ev, 0, "advice.preserve", advice_resource_name(ad->attempt, name),
                "generation %llu awaits a person's word: the job is kept in a hold until then", (unsigned long long) ad->generation);
}

void fleet_keep(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct cluster *c = a->job->cluster;
    struct advice *ad = a->advice;
    bool awaiting = ad && advice_awaits_approval(ad) && !ad->preserve, undecided = (!ad || ad->desired == DESIRED_REQUEUEABLE) &&
                                                                                   a->judge_at_us;
    int64_t from_us, until_us;
    enum adv_mode m;

    if (!job_state_failed(a->state) || !(awaiting || undecided) || !c->forget_after_s || a->history || a->unseen || a->job->gone ||
        !fleet_is_last(a) || fleet_switched_off(a->job))
        return;
    from_us = ended_us(a) + (int64_t) c->forget_after_s * 1000000 / KEEP_SHARE;
    until_us = ended_us(a) + (int64_t) c->forget_after_s * 1000000;
    if (ev->now_us >= until_us)
        return;
    if (ev->now_us < from_us) {
        fleet_judge_by(f, a, from_us);
        return;
    }
    m = mode_of(a->job);
    /* what awaits a person's word is not ours to touch before that without the ceiling's leave, in whatever mode the cluster is by now */
    if (awaiting ? !(m >= MODE_APPROVE && c->preserve_in_approve) : m != MODE_ACT && !(m == MODE_APPROVE && c->preserve_in_approve))
        return;
    if (c->agent_state != AGENT_CONNECTED || !c->digest_ok)
        return; /* looked at again when it is back */
    if (awaiting)
        preserve_awaiting(in, ad, ev);
    else if (would_restart(f, in, a, ev))
        preserve_undecided(f, in, a, ev);
}
