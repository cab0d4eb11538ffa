/* SPDX-License-Identifier: Apache-2.0 */
/* Judgement: suspicions become confirmed or withdrawn, and a confirmed anomaly, or an end in failure alone, becomes the
 * attempt's one advice. Everything that waits has one number, `judge_at_us`; EV_TICK looks at it. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"
#include "controlplane/domain/nodefault.h"

#include <stdio.h>
#include <utlist.h>

#define POSTPONE_US       60000000LL /* looked at again at the latest; reconnecting brings it forward */
#define LATE_US           2000000LL  /* a look later than this: the control plane stood still, and what happened meanwhile ... */
#define LOOK_AGAIN_US     60000000LL /* ... is on its way */

/* ---- what waits: a heap by time for the fleet, a list for each cluster -------------------------------------------- */

/* Ties are broken by what the attempts are, so that the same events always lead to the same order. */
static bool sooner(const struct attempt *a, const struct attempt *b)
{
    int r;

    if (a->judge_at_us != b->judge_at_us)
        return a->judge_at_us < b->judge_at_us;
    r = strcmp(a->job->uid, b->job->uid);
    return r ? r < 0 : a->index < b->index;
}

static void heap_put(struct fleet *f, size_t i, struct attempt *a)
{
    f->judge[i] = a;
    a->judge_slot = (uint32_t) i;
}

/* Moves the one at @i to where its time belongs. */
static void heap_settle(struct fleet *f, size_t i)
{
    struct attempt *a = f->judge[i];
    size_t child;

    for (; i > 0 && sooner(a, f->judge[(i - 1) / 2]); i = (i - 1) / 2)
        heap_put(f, i, f->judge[(i - 1) / 2]);
    for (; (child = 2 * i + 1) < f->n_judge; i = child) {
        if (child + 1 < f->n_judge && sooner(f->judge[child + 1], f->judge[child]))
            child++;
        if (!sooner(f->judge[child], a))
            break;
        heap_put(f, i, f->judge[child]);
    }
    heap_put(f, i, a);
}

void fleet_judge_unlink(struct fleet *f, struct attempt *a)
{
    size_t i = a->judge_slot;
    struct attempt *last;

    if (!a->judge_at_us)
        return;
    a->judge_at_us = 0;
    DL_DELETE2(a->job->cluster->judged, a, judge_prev, judge_next);
    last = f->judge[--f->n_judge];
    if (last == a)
        return;
    heap_put(f, i, last);
    heap_settle(f, i);
}

/* @at_us is of the wall clock as the event that is applied knows it. */
void fleet_judge_at(struct fleet *f, struct attempt *a, int64_t at_us)
{
    int64_t mono_us = at_us - f->now_us + f->mono_us;

    if (!a->judge_at_us) {
        if (f->n_judge == f->cap_judge) {
            size_t cap = f->cap_judge ? f->cap_judge * 2 : 64;
            struct attempt **v = realloc(f->judge, cap * sizeof(*v));
            if (!v) {
                f->oom = true;
                return;
            }
            f->judge = v;
            f->cap_judge = cap;
        }
        DL_APPEND2(a->job->cluster->judged, a, judge_prev, judge_next);
        heap_put(f, f->n_judge++, a);
    }
    a->judge_at_us = mono_us > 0 ? mono_us : 1;
    heap_settle(f, a->judge_slot);
}

struct attempt *fleet_judge_due(const struct fleet *f, int64_t mono_us)
{
    return f->n_judge && f->judge[0]->judge_at_us <= mono_us ? f->judge[0] : NULL;
}

void fleet_judge_by(struct fleet *f, struct attempt *a, int64_t at_us)
{
    if (!a->judge_at_us || at_us - f->now_us + f->mono_us < a->judge_at_us)
        fleet_judge_at(f, a, at_us);
}

int64_t fleet_wait_us(const struct fleet *f, int64_t now_us, int64_t mono_us)
{
    int64_t wait_us = f->n_judge ? f->judge[0]->judge_at_us - mono_us : INT64_MAX;
    const struct entry *e;

    if (f->n_lost_untold)
        return 0;
    DL_FOREACH2 (f->due_list, e, due_next)
        if (e->due_us - now_us < wait_us)
            wait_us = e->due_us - now_us;
    return wait_us == INT64_MAX ? -1 : wait_us > 0 ? wait_us : 0;
}

int64_t fleet_next_deadline(const struct fleet *f)
{
    int64_t wait_us = fleet_wait_us(f, f->now_us, f->mono_us);

    return wait_us < 0 ? 0 : f->now_us + wait_us > 0 ? f->now_us + wait_us : 1;
}

/* ---- consent on existing advice --------------------------------------------------------------------------------- */

void fleet_advice_close(struct advice *ad)
{
    struct cluster *c = ad->attempt->job->cluster;

    if (ad->open)
        DL_DELETE(c->open_advice, ad);
    ad->open = false;
}

void fleet_advice_open(struct advice *ad)
{
    struct cluster *c = ad->attempt->job->cluster;

    if (!ad->open)
        DL_APPEND(c->open_advice, ad);
    ad->open = true;
    ad->order_rev = 0; /* the turn numbers it when the change is stored */
}

/* Lowers one open advice to what consent now allows; never raises. */
void fleet_advice_lower(struct intents *in, struct advice *ad, const struct event *ev)
{
    char *why[POLICY_MAX_MODE_REASONS], name[RESOURCE_NAME_MAX];
    size_t n = 0;
    enum adv_mode m = policy_job_consent(ad->attempt->job, why, &n);
    bool asked = m == MODE_APPROVE && attempt_judged(ad->attempt), /* of the others a person is asked nothing */
        kept = m == MODE_APPROVE && ad->desired == DESIRED_PRESERVED &&
               (ad->attempt->job->cluster->preserve_in_approve || !ad->attempt->job->cluster->ceiling_told);
    enum actionability to = m == MODE_ACT || kept || (asked && advice_approved(ad)) ? ACTION_ACTIONABLE :
                            asked                                                   ? ACTION_NEEDS_APPROVAL :
                                                                                      ACTION_SHADOW;

    if (to < ad->actionability && ad->disposition == DISPOSITION_PENDING) {
        ad->actionability = to;
        ad->disposition_reason = REASON_MODE_TOO_LOW;
        ad->update_us = ev->now_us;
        (void) str_set(in, &ad->status_detail, n ? why[0] : "consent was lowered");
        if (ad->open)
            ad->order_rev = 0;
        fleet_touch_advice(in, ad);
        fleet_audit(in, ad->attempt->job->cluster, ev, 0, "advice.lowered", advice_resource_name(ad->attempt, name), "%s",
              n ? why[0] : "");
    }
    for (size_t i = 0; i < n; i++)
        free(why[i]);
}

void fleet_cluster_lower(struct intents *in, struct cluster *c, const struct event *ev)
{
    struct advice *ad, *next;

    DL_FOREACH_SAFE(c->open_advice, ad, next)
        fleet_advice_lower(in, ad, ev);
}

/* ---- anomalies -------------------------------------------------------------------------------------------------- */

void fleet_mint_uid(struct fleet *f, int64_t now_us, char buf[32])
{
    (void) snprintf(buf, 32, "%012llx%06llx", (unsigned long long) (now_us / 1000) & 0xffffffffffffULL,
                    (unsigned long long) (f->next_uid++ & 0xffffff));
}

void fleet_anomaly_status(struct intents *in, struct anomaly *an, enum anomaly_status s, const struct event *ev,
                           const char *why)
{
    char name[RESOURCE_NAME_MAX];

    if (an->status == s)
        return;
    if (s == ANOMALY_SUSPICION && an->terminal && !fleet_has_suspicion(an->attempt, true))
        an->attempt->quiet_us = ev->mono_us; /* one that is opened again has a grace of its own, too */
    an->status = s;
    an->status_us = ev->now_us;
    (void) str_set(in, &an->status_reason, why);
    fleet_touch_anomaly(in, an);
    if (anomaly_of_rhythm(an))
        fleet_touch_attempt(in, an->attempt); /* its activity is another now */
    fleet_audit(in, an->attempt->job->cluster, ev, an->observe_us,
          s == ANOMALY_CONFIRMED   ? "anomaly.confirmed" :
          s == ANOMALY_WITHDRAWN   ? "anomaly.withdrawn" :
                                     "anomaly.suspicion",
          attempt_resource_name(an->attempt, name), "%s: %s", an->rule ? an->rule : "scheduler state", why);
}

void fleet_withdraw_all(struct intents *in, struct attempt *a, const struct event *ev, const char *why)
{
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION)
            fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, why);
}

static void confirm_all(struct intents *in, struct attempt *a, const struct event *ev, const char *why)
{
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION && !anomaly_of_rhythm(an))
            fleet_anomaly_status(in, an, ANOMALY_CONFIRMED, ev, why);
    if (!a->ms.anomaly_confirmed_us) {
        a->ms.anomaly_confirmed_us = ev->now_us;
        fleet_touch_attempt(in, a);
    }
}

bool fleet_has_suspicion(const struct attempt *a, bool terminal_only)
{
    const struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION && (an->terminal || !terminal_only))
            return true;
    return false;
}

/* Withdrawn ones, and those that came too late, count nothing. */
static bool less_weighty(const struct anomaly *a, const struct anomaly *b)
{
    bool aw = a->status == ANOMALY_WITHDRAWN || a->late, bw = b->status == ANOMALY_WITHDRAWN || b->late;

    if (aw != bw)
        return aw;
    return anomaly_weightier(b, a);
}

/* Makes room by dropping the least weighty when something weightier than it comes. */
bool fleet_make_room(struct intents *in, struct attempt *a, const struct anomaly *candidate)
{
    struct anomaly *an, *least = NULL;

    if (a->n_anomalies < ATTEMPT_MAX_ANOMALIES)
        return true;
    DL_FOREACH (a->anomalies, an)
        if (!least || less_weighty(an, least))
            least = an;
    if (!least || !less_weighty(least, candidate))
        return false;
    if (in)
        fleet_touch_gone(in, RESOURCE_ANOMALY, least, a->job->cluster); /* the audit log keeps its story */
    DL_DELETE(a->anomalies, least);
    a->n_anomalies--;
    anomaly_free(least);
    return true;
}

struct anomaly *fleet_anomaly_add(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct anomaly *an;
    char uid[32];

    if (a->n_anomalies >= ATTEMPT_MAX_ANOMALIES)
        return NULL;
    an = calloc(1, sizeof(*an));
    if (!an) {
        in->oom = true;
        return NULL;
    }
    an->attempt = a;
    fleet_mint_uid(f, ev->now_us, uid);
    (void) str_set(in, &an->uid, uid);
    an->record_us = an->status_us = ev->now_us;
    DL_APPEND(a->anomalies, an);
    a->n_anomalies++;
    fleet_touch_anomaly(in, an);
    return an;
}

/* An end in failure that no log line explains. */
static void anomaly_from_state(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    const struct anomaly candidate = { .status = ANOMALY_CONFIRMED };
    struct anomaly *an = fleet_make_room(in, a, &candidate) ? fleet_anomaly_add(f, in, a, ev) : NULL;
    char why[TELEMETRY_WHY_MAX];
    enum telemetry_state seen = attempt_telemetry(a, why);

    if (!an)
        return;
    an->kind = ANOMALY_CRASH;
    an->retryable = RETRYABLE_MAYBE;
    an->observe_us = a->ms.end_observed_us;
    (void) str_set(in, &an->reporter, "scheduler");
    (void) str_set(in, &an->fault_class,
                   a->state == JOB_NODE_FAIL || a->state == JOB_BOOT_FAIL ? "node_failure" :
                   a->state == JOB_OUT_OF_MEMORY                          ? "host_memory" :
                                                                            "unknown");
    fleet_str_take(&an->status_reason,
             fleet_strf(in, "The scheduler reports %s (exit code %u, signal %u) and no known fault is in the log%s%s.",
                  job_state_name(a->state), a->exit_code, a->exit_signal,
                  seen == TELEMETRY_LOST || seen == TELEMETRY_UNSET ? ", which could not be read: " :
                  a->source_gap                                     ? ", which was not read in full: " :
                                                                      "",
                  seen == TELEMETRY_LOST || a->source_gap ? why :
                  seen == TELEMETRY_UNSET                 ? "nothing was heard of it" :
                                                            ""));
    an->status = ANOMALY_CONFIRMED;
}

/* ---- decision --------------------------------------------------------------------------------------------------- */

static bool same_orders(const struct advice *ad, const struct decision *d)
{
    return ad->desired == d->desired && adv_streq(str_or(ad->exclude_nodes), str_or(d->exclude_nodes)) &&
           ad->may_interrupt == d->may_interrupt;
}

static void take_prose(struct advice *ad, struct decision *d)
{
    for (size_t i = 0; i < ADVICE_MAX_REASONS; i++) {
        free(ad->reasons[i].code);
        free(ad->reasons[i].param);
        free(ad->reasons[i].sentence);
        ad->reasons[i] = d->reasons[i];
        d->reasons[i] = (struct advice_reason) { 0 };
    }
    ad->n_reasons = d->n_reasons;
    fleet_str_take(&ad->summary, ADV_STEAL(d->summary));
}

/* A requeue of this attempt was begun and is not known to have failed. */
bool attempt_requeue_recorded(const struct attempt *a)
{
    const struct action *ac;

    DL_FOREACH (a->actions, ac)
        if ((ac->verb == VERB_PRESERVE || ac->verb == VERB_INTERRUPT) &&
            !(ac->outcome_us && (ac->observed == OBSERVED_NO || ac->command == COMMAND_NOT_SENT)))
            return true;
    return false;
}

/* It was interrupted, or that is under way: what it says now are its last words, for a stopped process is continued to be
 * ended. An agent that died may never tell how it went. */
#define LAST_WORDS_US (60 * 1000000LL)
static bool being_replaced(const struct attempt *a, int64_t now_us)
{
    const struct action *ac;

    DL_FOREACH (a->actions, ac)
        if ((ac->verb == VERB_PRESERVE || ac->verb == VERB_INTERRUPT) &&
            (ac->observed == OBSERVED_YES || (!ac->outcome_us && now_us - ac->record_us < LAST_WORDS_US)))
            return true;
    return false;
}

/* An order to interrupt what goes on again: a command whose effect nobody saw is no reason to send it once more. */
static bool spares(const struct attempt *a, const struct decision *d, int64_t now_us)
{
    return a->advice->may_interrupt && d->desired == DESIRED_NO_ACTION && job_state_running(a->state) &&
           !being_replaced(a, now_us);
}

void fleet_spare(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    if (a->advice && a->advice->may_interrupt && a->advice->disposition == DISPOSITION_PENDING &&
        job_state_running(a->state) && (straggler_alone(a) ? !straggler_stands(a) || straggler_others(a) : !decide_best_anomaly(a)))
        fleet_decide_and_put(f, in, a, ev);
}

void fleet_put_advice(struct fleet *f, struct intents *in, struct attempt *a, struct decision *d, const struct event *ev)
{
    struct advice *ad = a->advice;
    char uid[32], name[RESOURCE_NAME_MAX];
    bool fresh = false;

    if (ad && (ad->disposition == DISPOSITION_CONVERGED || ad->disposition == DISPOSITION_SUPERSEDED) &&
        ad->desired != DESIRED_NO_ACTION && attempt_judged(a))
        return; /* done and past: later evidence changes no history */
    if (ad && ad->desired == DESIRED_RESTARTED && attempt_requeue_recorded(a) && !spares(a, d, ev->now_us) &&
        !(ad->preserve && advice_awaits_approval(ad))) {
        return; /* the attempt is being replaced already: evidence that comes now changes no order */
    }
    if (ad && same_orders(ad, d)) {
        take_prose(ad, d);
        fleet_touch_advice(in, ad);
        return;
    }
    if (!ad) {
        ad = calloc(1, sizeof(*ad));
        if (!ad) {
            in->oom = true;
            return;
        }
        ad->attempt = a;
        ad->create_us = ev->now_us;
        fleet_mint_uid(f, ev->now_us, uid);
        (void) str_set(in, &ad->correlation_id, uid);
        a->advice = ad;
        fresh = true;
    }
    ad->generation++;
    if (fresh || d->actionability < ad->actionability || ad->desired == DESIRED_REQUEUEABLE)
        ad->actionability = d->actionability; /* consent never rises for advice that exists */
    ad->preserve = d->desired == DESIRED_RESTARTED && ad->actionability == ACTION_NEEDS_APPROVAL &&
                   (ad->preserve || ad->desired == DESIRED_PRESERVED);
    ad->desired = d->desired;
    ad->may_interrupt = d->may_interrupt;
    ad->valid_for_ms = f->cfg.policy.valid_for_ms;
    fleet_str_take(&ad->exclude_nodes, ADV_STEAL(d->exclude_nodes));
    fleet_str_take(&ad->people_nodes, ADV_STEAL(d->people_nodes));
    (void) str_set(in, &ad->anomaly_uid, d->anomaly ? d->anomaly->uid : NULL);
    take_prose(ad, d);
    ad->update_us = ad->status_us = ev->now_us;
    (void) str_set(in, &ad->status_detail, NULL);
    if (d->desired == DESIRED_NO_ACTION) {
        ad->disposition = DISPOSITION_CONVERGED;
        ad->disposition_reason = 2; /* already satisfied */
        if (ad->open)
            ad->order_rev = 0; /* the agent has to hear that there is nothing to do any more */
    } else {
        ad->disposition = DISPOSITION_PENDING;
        ad->disposition_reason = ad->actionability == ACTION_ACTIONABLE                ? REASON_UNSET :
                                 a->job->cluster->maintenance_until_us ? REASON_MAINTENANCE :
                                                                         REASON_MODE_TOO_LOW;
        if (ad->actionability == ACTION_ACTIONABLE || ad->preserve)
            fleet_advice_open(ad);
        else if (ad->open)
            ad->order_rev = 0; /* what it was kept for is not wanted any more */
    }
    if (advice_awaits_approval(ad))
        fleet_judge_by(f, a, fleet_approval_until(ad));
    if (!a->ms.advised_us && attempt_judged(a)) {
        a->ms.advised_us = ev->now_us;
        fleet_touch_attempt(in, a);
    }
    fleet_touch_advice(in, ad);
    fleet_audit(in, a->job->cluster, ev, 0, fresh ? "advice.create" : "advice.change", advice_resource_name(a, name),
          "generation %llu %s%s%s: %s", (unsigned long long) ad->generation, desired_name(ad->desired),
          ad->exclude_nodes ? " without " : "", str_or(ad->exclude_nodes), str_or(ad->summary));
}

void fleet_decide_and_put(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct decision d;

    fleet_attribute(in, a);
    decide_attempt(a, &f->cfg.policy, ev->now_us, &d);
    if (d.oom)
        in->oom = true;
    else if (d.not_before_us > ev->now_us)
        fleet_judge_at(f, a, d.not_before_us);
    else if (!attempt_judged(a) && d.desired == DESIRED_RESTARTED && !d.node_named && fleet_ask_left_us(f, a, ev) > 0)
        fleet_judge_at(f, a, ev->now_us + fleet_ask_left_us(f, a, ev));
    else
        fleet_put_advice(f, in, a, &d, ev);
    decision_done(&d);
}

/* Its log is read in full and says nothing, but that of one of its nodes does. */
static bool explained_by_node(struct intents *in, const struct attempt *a, const struct policy *p, int64_t now_us)
{
    struct nodefault nf;
    bool r;

    if (!attempt_log_whole(a) || !nodefault_may_explain(a))
        return false;
    nodefault_find(a, p, now_us, &nf);
    in->oom |= nf.oom;
    r = nf.nodes && nf.observed;
    nodefault_done(&nf);
    return r;
}

static void judge_failed(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    const struct anomaly *best = decide_best_anomaly(a);
    const struct cluster *c = a->job->cluster;
    int64_t since_us = a->ms.end_observed_us > c->agent_state_us ? a->ms.end_observed_us : c->agent_state_us;
    int64_t wait_us = since_us + f->cfg.policy.fallback_delay_us; /* nothing was heard while the agent was away */

    fleet_ask(f, in, a, ev);

    if (!best && explained_by_node(in, a, &f->cfg.policy, ev->now_us) && a->ms.end_observed_us >= c->agent_state_us)
        wait_us = a->ms.end_observed_us + f->cfg.policy.log_settle_us;
    /* what only somebody outside says waits for the log, too. A log that is LOST now may be found a moment later: its file
     * may just have been made */
    if ((!best || best->reported) && f->cfg.log_detection && ev->now_us < wait_us) {
        fleet_judge_at(f, a, wait_us);
        return;
    }
    if (!best)
        anomaly_from_state(f, in, a, ev);
    confirm_all(in, a, ev, "the attempt ended in failure");
    fleet_decide_and_put(f, in, a, ev);
}

/* The grace is counted by the clock that nobody sets, and only while somebody listens and nobody works on the cluster.
 * @late: this look comes later than it should have. */
static void judge_running(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev, bool late)
{
    const struct cluster *c = a->job->cluster;
    const struct anomaly *an;
    int64_t grace_us = f->cfg.policy.suspicion_grace_us, left = fleet_silence_left_us(f, in, a, ev), wait_us;
    bool suspected = false, user_fault = false;

    fleet_judge_silence(f, in, a, ev);
    fleet_judge_straggler(f, in, a, ev);
    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION && an->terminal) {
            suspected = true;
            user_fault = user_fault || an->retryable == RETRYABLE_NO;
        }
    if (!suspected)
        return;
    if (c->maintenance_until_us) {
        fleet_judge_by(f, a, c->maintenance_until_us + grace_us);
        return;
    }
    if (!a->quiet_us)
        a->quiet_us = ev->mono_us; /* it was opened by an owner before */
    wait_us = (a->quiet_us > c->listen_us ? a->quiet_us : c->listen_us) + grace_us - ev->mono_us;
    if (wait_us < left)
        wait_us = left; /* its own rhythm allows for more */
    if (wait_us <= 0 && c->logs_down)
        wait_us = POSTPONE_US;
    else if (wait_us <= 0 && late)
        wait_us = LOOK_AGAIN_US;
    if (wait_us > 0) {
        fleet_judge_by(f, a, ev->now_us + wait_us);
        return;
    }
    /* Silence is evidence only where the log is read in full and had shown progress before. */
    if (!fleet_heard(a) || a->steps_seen <= a->steps_reported || user_fault)
        return;
    confirm_all(in, a, ev, "no progress followed for the grace time");
    fleet_decide_and_put(f, in, a, ev);
}

/* Nobody wants this job looked at. */
bool fleet_switched_off(const struct job *j)
{
    return j->cluster->mode == MODE_OFF || j->cluster->ceiling == MODE_OFF || j->opt_mode == MODE_OFF;
}

static void judge(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev, bool late)
{
    struct cluster *c = a->job->cluster;

    if (fleet_switched_off(a->job) || !attempt_stands(a) || (a->job->gone && !job_state_terminal(a->state)) || a->history)
        return;
    if (c->agent_state != AGENT_CONNECTED || !c->digest_ok) {
        fleet_judge_at(f, a, ev->now_us + POSTPONE_US);
        return;
    }
    if (job_state_failed(a->state))
        judge_failed(f, in, a, ev);
    else if (job_state_running(a->state)) {
        fleet_shed_check(f, in, a, ev);
        judge_running(f, in, a, ev, late);
    }
    else if (job_state_terminal(a->state)) {
        bool had = a->anomalies != NULL;
        fleet_withdraw_all(in, a, ev, a->state == JOB_COMPLETED ? "the attempt completed all the same" :
                                a->state == JOB_CANCELLED ? "the job was cancelled" :
                                                            "the attempt ended for another reason");
        if (had || a->state == JOB_TIMEOUT)
            fleet_decide_and_put(f, in, a, ev);
    }
}

void fleet_judge(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    bool late = a->judge_at_us && ev->mono_us - a->judge_at_us > LATE_US;

    fleet_judge_unlink(f, a);
    if (a->advice && advice_awaits_approval(a->advice) && ev->now_us >= fleet_approval_until(a->advice))
        fleet_approval_expire(in, a->advice, ev);
    else
        judge(f, in, a, ev, late);
    if (a->advice && advice_awaits_approval(a->advice) && attempt_stands(a))
        fleet_judge_by(f, a, fleet_approval_until(a->advice));
    fleet_keep(f, in, a, ev);
}
