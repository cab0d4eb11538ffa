/* SPDX-License-Identifier: Apache-2.0 */
/* Agents: who holds the lease of a cluster, what the site allows, and what became of advice and actions. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"

#include <utlist.h>

bool fleet_lease_free(const struct cluster *c, int64_t mono_us)
{
    return !c->holder_journal || (mono_us >= c->lease_until_mono_us && mono_us >= c->taken_until_us);
}

bool fleet_lease_extend(struct fleet *f, struct cluster *c, const char *instance, int64_t mono_us)
{
    if (!c->holder_instance || !adv_streq(c->holder_instance, str_or(instance)))
        return false;
    c->lease_until_mono_us = mono_us + f->cfg.lease_us;
    return true;
}

int64_t fleet_lease_left_us(const struct cluster *c, const char *instance, int64_t mono_us)
{
    if (!c->holder_instance || !adv_streq(c->holder_instance, str_or(instance)) || mono_us >= c->lease_until_mono_us ||
        mono_us >= c->owned_until_us)
        return 0;
    /* never beyond what this replica still holds of its own */
    return (c->lease_until_mono_us < c->owned_until_us ? c->lease_until_mono_us : c->owned_until_us) - mono_us;
}

void fleet_agent_sees(struct cluster *c, const char *instance, int64_t mono_us, int64_t for_us)
{
    bool same = adv_streq(str_or(c->who_sees), instance);

    if (!for_us && !same)
        return;
    if (!same) {
        free(c->who_sees);
        c->who_sees = strdup(instance);
    }
    c->who_sees_us = c->who_sees ? mono_us + for_us : 0; /* without memory nobody sees: all stays as it is */
}

bool fleet_other_agent_sees(const struct cluster *c, const char *instance, int64_t mono_us)
{
    return mono_us < c->who_sees_us && !adv_streq(str_or(c->who_sees), instance);
}

void fleet_agent_blind(struct cluster *c, bool blind)
{
    if (blind && c->holder_journal && adv_streq(str_or(c->blind_journal), c->holder_journal))
        return;
    free(c->blind_journal);
    /* without memory it takes its place again */
    c->blind_journal = blind && c->holder_journal ? strdup(c->holder_journal) : NULL;
}

static void grant(struct fleet *f, struct intents *in, struct cluster *c, const char *instance, const char *journal,
                  const struct event *ev)
{
    if (c->epoch.term < f->store_term)
        c->epoch = (struct epoch) { f->store_term, 0 }; /* the store was restored, copied or promoted */
    c->epoch.counter++;
    c->lease_until_mono_us = ev->mono_us + f->cfg.lease_us;
    c->lease_us = f->cfg.lease_us;
    (void) str_set(in, &c->holder_instance, instance);
    (void) str_set(in, &c->holder_journal, journal);
    (void) str_set(in, &c->blind_journal, NULL);
    c->who_sees_us = 0; /* it may have been this one, in an earlier session */
    c->in_full = false;
    fleet_touch_cluster(in, c);
}

static void take_ceiling(struct fleet *f, struct intents *in, struct cluster *c, enum adv_mode mode, const char *why,
                         bool preserve_in_approve, const struct event *ev)
{
    bool ch = c->ceiling != mode || c->preserve_in_approve != preserve_in_approve, first = !c->ceiling_told;

    c->ceiling_told = true;
    c->ceiling = mode;
    c->preserve_in_approve = preserve_in_approve;
    ch |= str_set(in, &c->ceiling_reason, why);
    if (ch) {
        fleet_touch_cluster(in, c);
        fleet_cluster_lower(in, c, ev);
        fleet_want_requeueable_all(f, in, c, ev);
    } else if (first) { /* what was kept meanwhile for want of knowledge */
        fleet_cluster_lower(in, c, ev);
    }
}

/* What is known of the agent that holds the lease is its own, and nothing of who held it before. */
static void take_facts(struct intents *in, struct cluster *c, bool journal_persistent, const char *version, const char *scheduler)
{
    c->journal_persistent = journal_persistent;
    (void) str_set(in, &c->agent_version, version);
    (void) str_set(in, &c->scheduler, scheduler);
    c->mode_effective_us = 0; /* until this agent says that it obeys it */
}

/* An agent that comes again takes its place at once: it is known by its journal. If two run with one journal, which a copied
 * state folder makes, each takes it from the other, for ever. A run that was put out and comes back, while the one that did
 * it is there, tells that from a restart: a run that ended never comes again. */
static void note_process(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev, bool same)
{
    const char *process = ev->u.hello.process;
    bool took = same && process && c->holder_process && c->holder_instance && !adv_streq(process, c->holder_process);
    char name[RESOURCE_NAME_MAX];

    if (took && adv_streq(str_or(c->ousted_process), process))
        fleet_incident(f, in, c, INCIDENT_AGENT_TWICE, cluster_resource_name(c, name), ev,
                       "two agents run with one journal (%.64s) and put each other out: "
                       "stop one, and give it a state folder of its own",
                       str_or(ev->u.hello.journal_id));
    if (took)
        (void) str_set(in, &c->ousted_process, c->holder_process);
    else if (!same)
        (void) str_set(in, &c->ousted_process, NULL);
    (void) str_set(in, &c->holder_process, process);
}

void fleet_apply_hello(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev)
{
    bool same = adv_streq(str_or(c->holder_journal), str_or(ev->u.hello.journal_id));
    bool resumed = ev->u.hello.resume && same && !c->in_full &&
                   epoch_cmp(ev->u.hello.resume_epoch, c->epoch) == 0 && ev->u.hello.resume_digest == c->digest;
    bool yields = same && adv_streq(str_or(c->blind_journal), str_or(ev->u.hello.journal_id)) &&
                  fleet_other_agent_sees(c, str_or(ev->u.hello.instance_id), ev->mono_us);
    char name[RESOURCE_NAME_MAX];

    if (epoch_cmp(ev->u.hello.highest_epoch, c->epoch) > 0) {
        /* An agent remembers more than the store: the store was restored or replaced. */
        c->epoch.term = ev->u.hello.highest_epoch.term + 1;
        c->epoch.counter = 0;
        fleet_str_take(&c->epoch_warning,
                 fleet_strf(in, "the store is behind epoch %llu.%llu, which the agent has seen: set the mode again to confirm",
                      (unsigned long long) ev->u.hello.highest_epoch.term,
                      (unsigned long long) ev->u.hello.highest_epoch.counter));
        fleet_audit(in, c, ev, 0, "cluster.store_behind", cluster_resource_name(c, name), "%s", str_or(c->epoch_warning));
        fleet_incident(f, in, c, INCIDENT_STORE_BEHIND, cluster_resource_name(c, name), ev, "%s", str_or(c->epoch_warning));
        fleet_cluster_lower(in, c, ev);
    }
    if (yields || (!same && !fleet_lease_free(c, ev->mono_us))) {
        ev->u.hello.ret_granted = false;
        ev->u.hello.ret_epoch = c->epoch;
        fleet_audit(in, c, ev, 0, "agent.standby", cluster_resource_name(c, name), "journal %.64s waits for %s%.64s",
              str_or(ev->u.hello.journal_id), yields ? "an agent that sees the scheduler" : "journal ",
              yields ? "" : str_or(c->holder_journal));
        return;
    }
    ev->u.hello.ret_settle = c->holder_journal && !same;
    note_process(f, in, c, ev, same);
    grant(f, in, c, ev->u.hello.instance_id, ev->u.hello.journal_id, ev);
    ev->u.hello.ret_granted = true;
    ev->u.hello.ret_resumed = resumed;
    ev->u.hello.ret_epoch = c->epoch;
    take_facts(in, c, ev->u.hello.journal_persistent, ev->u.hello.agent_version, ev->u.hello.scheduler);
    fleet_set_agent_state(in, c, resumed ? AGENT_CONNECTED : AGENT_RESYNCING, ev);
    c->digest_ok = resumed; /* equal digests: equal states, even if this process only read its own from the store */
    if (resumed)
        fleet_agent_back(f, c, ev);
    take_ceiling(f, in, c, ev->u.hello.ceiling, ev->u.hello.ceiling_reason, ev->u.hello.preserve_in_approve, ev);
    c->forget_after_s = ev->u.hello.forget_after_s;
    fleet_audit(in, c, ev, 0, "agent.connected", cluster_resource_name(c, name), "epoch %llu.%llu, journal %.64s%s",
          (unsigned long long) c->epoch.term, (unsigned long long) c->epoch.counter, str_or(ev->u.hello.journal_id),
          resumed ? ", state resumed" : "");
}

void fleet_apply_gone(struct intents *in, struct cluster *c, const struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    if (!adv_streq(str_or(c->holder_instance), str_or(ev->u.gone.instance_id)))
        return; /* a standby, or an agent that was followed by another */
    (void) str_set(in, &c->holder_instance, NULL);
    fleet_set_agent_state(in, c, AGENT_UNREACHABLE, ev);
    fleet_audit(in, c, ev, 0, "agent.unreachable", cluster_resource_name(c, name), "%s", str_or(ev->u.gone.why));
}

/* People are told: times of the cluster and ours do not compare then, and its scheduler's credentials may be refused.
 * Nothing is decided by it; leases are counted on clocks that nobody sets. */
static void take_skew(struct intents *in, struct cluster *c, const struct event *ev)
{
    int64_t s = ev->u.report.clock_skew_s;
    char name[RESOURCE_NAME_MAX];

    if (c->agent_skew_s == s)
        return;
    c->agent_skew_s = s;
    fleet_touch_cluster(in, c);
    if (s)
        fleet_audit(in, c, ev, 0, "agent.clock", cluster_resource_name(c, name), "the agent's clock is %lld s %s",
                    (long long) (s < 0 ? -s : s), s < 0 ? "behind" : "ahead");
    else
        fleet_audit(in, c, ev, 0, "agent.clock", cluster_resource_name(c, name), "the agent's clock is right again");
}

void fleet_tell_lost(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    c->lost_untold = false;
    f->n_lost_untold--;
    if (c->agent_state != AGENT_UNREACHABLE)
        return; /* it is here already */
    c->agent_state_us = ev->now_us;
    c->listen_us = ev->mono_us;
    fleet_audit(in, c, ev, 0, "agent.unreachable", cluster_resource_name(c, name),
                "the control plane that it was connected to is gone");
}

void fleet_apply_report(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev)
{
    if (!adv_streq(str_or(c->holder_instance), str_or(ev->u.report.instance_id)))
        return;
    if (ev->u.report.ceiling != MODE_UNSET)
        take_ceiling(f, in, c, ev->u.report.ceiling, ev->u.report.ceiling_reason, ev->u.report.preserve_in_approve, ev);
    if (ev->u.report.scheduler_unavailable && c->agent_state == AGENT_CONNECTED)
        fleet_set_agent_state(in, c, AGENT_SCHEDULER_UNAVAILABLE, ev);
    else if (!ev->u.report.scheduler_unavailable && c->agent_state == AGENT_SCHEDULER_UNAVAILABLE)
        fleet_set_agent_state(in, c, c->digest_ok ? AGENT_CONNECTED : AGENT_RESYNCING, ev);
    take_skew(in, c, ev);
    if (ev->u.report.mode_confirmed && !c->mode_effective_us) {
        c->mode_effective_us = ev->now_us;
        fleet_touch_cluster(in, c);
    }
}

void fleet_apply_take(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    ev->u.take.ret_granted = fleet_lease_free(c, ev->mono_us) && !c->holder_instance;
    if (ev->u.take.ret_granted) {
        (void) str_set(in, &c->holder_process, NULL);
        (void) str_set(in, &c->ousted_process, NULL);
        grant(f, in, c, ev->u.take.instance_id, ev->u.take.journal_id, ev);
        take_facts(in, c, ev->u.take.journal_persistent, ev->u.take.agent_version, ev->u.take.scheduler);
        c->digest_ok = false;
        fleet_set_agent_state(in, c, AGENT_RESYNCING, ev);
        take_ceiling(f, in, c, ev->u.take.ceiling, ev->u.take.ceiling_reason, ev->u.take.preserve_in_approve, ev);
        c->forget_after_s = ev->u.take.forget_after_s;
        fleet_audit(in, c, ev, 0, "agent.takeover", cluster_resource_name(c, name), "epoch %llu.%llu, journal %.64s",
              (unsigned long long) c->epoch.term, (unsigned long long) c->epoch.counter, str_or(ev->u.take.journal_id));
    }
    ev->u.take.ret_epoch = c->epoch;
}

/* The advice of that name, or NULL: then *@ret is 0 (not known: of another store, perhaps; the agent need not tell it
 * again) or the error of a name that makes no sense. */
static struct advice *find_advice(struct fleet *f, struct cluster *c, const char *name, int *ret, struct adv_err *err)
{
    struct resource_path p;
    struct job *j;
    struct attempt *a;

    *ret = resource_path_parse(name, &p, err);
    if (*ret < 0)
        return NULL;
    j = fleet_find_job_uid(c, p.job_uid);
    a = j && p.attempt ? job_attempt(j, p.attempt_index) : NULL;
    if (p.advice && a && a->advice && adv_streq(p.cluster, c->name))
        return a->advice;
    f->dropped_events++;
    return NULL;
}

int fleet_apply_status(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                        struct adv_err *err)
{
    struct advice *ad;
    char name[RESOURCE_NAME_MAX];
    int r;

    ad = find_advice(f, c, ev->u.status.advice_name, &r, err);
    if (!ad)
        return r;
    if (ev->u.status.observed_generation != ad->generation || epoch_cmp(ev->u.status.epoch, c->epoch) != 0)
        return 0; /* stale: changes nothing */
    if (ad->desired == DESIRED_NO_ACTION) {
        fleet_advice_close(ad); /* heard */
        ad->observed_generation = ad->generation;
        fleet_touch_advice(in, ad);
        return 0;
    }
    if (ad->disposition == DISPOSITION_ABANDONED &&
        (ad->disposition_reason == REASON_REJECTED || ad->disposition_reason == REASON_EXPIRED)) {
        fleet_advice_close(ad); /* heard; a person's no, or silence, stands, whatever the agent makes of it */
        ad->observed_generation = ad->generation;
        fleet_touch_advice(in, ad);
        return 0;
    }
    if (ev->u.status.disposition == DISPOSITION_UNSET || ev->u.status.disposition > DISPOSITION_SUPERSEDED ||
        ev->u.status.reason > REASON_LAST_)
        return adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "STATUS_MALFORMED", "advice %.200s: unknown disposition %d",
                                  ev->u.status.advice_name, (int) ev->u.status.disposition);
    if (ad->disposition == DISPOSITION_SUPERSEDED && ev->u.status.disposition == DISPOSITION_PENDING &&
        !attempt_requeue_recorded(ad->attempt)) { /* a job in our hold goes on waiting for a person's word */
        fleet_advice_close(ad); /* the agent waits for nothing that can still come */
        ad->observed_generation = ad->generation;
        fleet_touch_advice(in, ad);
        return 0;
    }
    if (ad->observed_generation == ad->generation && ad->disposition == ev->u.status.disposition &&
        ad->disposition_reason == ev->u.status.reason && adv_streq(str_or(ad->status_detail), str_or(ev->u.status.detail)))
        return 0;
    ad->observed_generation = ad->generation;
    ad->disposition = ev->u.status.disposition;
    ad->disposition_reason = ev->u.status.reason;
    ad->status_us = ev->now_us;
    (void) str_set(in, &ad->status_detail, ev->u.status.detail);
    if (ad->disposition != DISPOSITION_PENDING)
        fleet_advice_close(ad);
    if (ad->disposition == DISPOSITION_CONVERGED && !ad->attempt->ms.converged_us && attempt_judged(ad->attempt)) {
        ad->attempt->ms.converged_us = ev->now_us;
        fleet_touch_attempt(in, ad->attempt);
    }
    fleet_touch_advice(in, ad);
    fleet_audit(in, c, ev, ev->u.status.observe_us, "advice.status", advice_resource_name(ad->attempt, name),
          "generation %llu %s: %s%s%s", (unsigned long long) ad->generation, disposition_name(ad->disposition),
          disposition_reason_name(ad->disposition_reason), ad->status_detail ? ", " : "", str_or(ad->status_detail));
    if (ad->desired == DESIRED_REQUEUEABLE && ad->disposition == DISPOSITION_ABANDONED)
        fleet_want_requeueable(f, in, ad->attempt, ev); /* one that expired while it waited */
    return 0;
}

int fleet_apply_action(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                        struct adv_err *err)
{
    struct action *ac = NULL, *t;
    struct attempt *a;
    struct advice *ad;
    char name[RESOURCE_NAME_MAX];
    int r;

    ad = find_advice(f, c, ev->u.action.advice_name, &r, err);
    if (!ad)
        return r;
    a = ad->attempt;
    DL_FOREACH (a->actions, t)
        if (t->journal_seq == ev->u.action.journal_seq && adv_streq(t->journal_id, str_or(ev->u.action.journal_id)))
            ac = t;
    if (ac && ac->outcome_us)
        return 0; /* heard before */
    if (!ac) {
        if (a->n_actions >= ATTEMPT_MAX_ACTIONS) {
            f->dropped_events++; /* the agent's own budget stops long before */
            return 0;
        }
        ac = calloc(1, sizeof(*ac));
        if (!ac) {
            in->oom = true;
            return 0;
        }
        ac->attempt = a;
        ac->journal_seq = ev->u.action.journal_seq;
        ac->generation = ev->u.action.generation;
        ac->epoch = ev->u.action.epoch;
        ac->verb = ev->u.action.verb;
        ac->observe_us = ev->u.action.observe_us;
        ac->record_us = ev->now_us;
        if (!(ac->journal_id = strdup(str_or(ev->u.action.journal_id))))
            in->oom = true;
        DL_APPEND(a->actions, ac);
        a->n_actions++;
    }
    (void) str_set(in, &ac->read_before, ev->u.action.read_before);
    if (ac->verb == VERB_CANCEL && !ev->u.action.outcome) /* the one reason for which an agent ever cancels */
        fleet_incident(f, in, c, INCIDENT_JOB_REVIVED, job_resource_name(a->job, name), ev,
                       "Job %.40s had been cancelled or had completed when a requeue for its recovery took effect; it is "
                       "cancelled again.", str_or(a->job->job_id));
    if (ev->u.action.outcome) {
        ac->command = ev->u.action.command;
        ac->observed = ev->u.action.observed;
        ac->outcome_us = ev->now_us;
        (void) str_set(in, &ac->reason, ev->u.action.reason);
        (void) str_set(in, &ac->detail, ev->u.action.detail);
        if (ac->command == COMMAND_ACCEPTED && !a->ms.first_command_us && ac->verb != VERB_MAKE_REQUEUEABLE) {
            a->ms.first_command_us = ev->now_us;
            fleet_touch_attempt(in, a);
        }
    }
    fleet_touch(in, RESOURCE_ACTION, ac, c);
    fleet_audit(in, c, ev, ev->u.action.observe_us, ev->u.action.outcome ? "action.outcome" : "action.intent",
          advice_resource_name(a, name), "%s (journal %llu, epoch %llu.%llu)%s%s%s%s%s%s", verb_name(ac->verb),
          (unsigned long long) ac->journal_seq, (unsigned long long) ac->epoch.term,
          (unsigned long long) ac->epoch.counter, ev->u.action.outcome ? ": command " : "",
          ev->u.action.outcome ? command_name(ac->command) : "", ev->u.action.outcome ? ", observed " : "",
          ev->u.action.outcome ? observed_name(ac->observed) : "", ac->detail ? ", " : "", str_or(ac->detail));
    if (ev->u.action.outcome)
        fleet_spare(f, in, a, ev); /* it went on meanwhile, and is not to be interrupted a second time */
    return 0;
}
