/* SPDX-License-Identifier: Apache-2.0 */
/* What goes, and what the audit log takes from outside.
 *
 * Excerpts go first, then whole jobs, then the audit log from its old end, where a checkpoint says how far it had come.
 * A user's data go on request: of jobs that are past, since the scheduler would tell the others again. Audit events keep
 * who did what to which job (a uid); their details, which may have a person's words, are erased with the job's. */

#include "controlplane/domain/internal.h"

#include <stdio.h>
#include <utlist.h>

#include "controlplane/domain/entries.h"

#define CHECKPOINTS_KEPT 64

/* ---- audit ------------------------------------------------------------------------------------------------------ */

int fleet_apply_audit_append(struct intents *in, struct cluster *c, struct event *ev)
{
    fleet_audit_outside(in, c, ev, ev->u.audit.observe_us, ev->u.audit.verb, ev->u.audit.subject, ev->u.audit.event_id,
                        ev->u.audit.detail);
    ev->u.audit.ret_seq = c->audit_seq;
    return 0;
}

static void drop_entry(struct fleet *f, struct intents *in, struct entry *e)
{
    fleet_entry_due(f, e, 0);
    fleet_touch_gone(in, e->kind, e, e->cluster);
    HASH_DEL(e->cluster->entries[e->kind], e);
    entry_free(e);
}

int fleet_apply_audit_cut(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                          struct adv_err *err)
{
    struct entry *first = NULL;
    struct checkpoint *cp;
    char name[2 * RESOURCE_NAME_MAX];

    /* the newest event always stays: it says where the chain goes on */
    if (!ev->u.cut.seq || ev->u.cut.seq >= c->audit_seq)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "cluster %s: event %llu is not an old one", c->name,
                           (unsigned long long) ev->u.cut.seq);
    cp = (struct checkpoint *) fleet_entry_new(f, in, c, RESOURCE_CHECKPOINT, NULL, ev);
    if (!cp)
        return 0;
    cp->seq = ev->u.cut.seq;
    cp->record_us = ev->u.cut.record_us;
    (void) str_set(in, &cp->hash, ev->u.cut.hash);
    (void) str_set(in, &cp->signature, ev->u.cut.signature);
    (void) str_set(in, &cp->key_id, ev->u.cut.key_id);
    (void) str_set(in, &cp->store_uuid, ev->u.cut.store_uuid);
    fleet_audit_cut(in, c, cp->seq);
    fleet_audit(in, c, ev, 0, "audit.cut", resource_name(RESOURCE_CHECKPOINT, c->name, cp->e.uid, name),
                "events up to %llu were removed by age", (unsigned long long) cp->seq);
    for (struct entry *e = c->entries[RESOURCE_CHECKPOINT]; e; e = e->hh.next)
        if (!first || strcmp(e->uid, first->uid) < 0)
            first = e;
    if (HASH_COUNT(c->entries[RESOURCE_CHECKPOINT]) > CHECKPOINTS_KEPT)
        drop_entry(f, in, first);
    return 0;
}

/* ---- by age ----------------------------------------------------------------------------------------------------- */

/* The sentence quotes the line, the others do not. */
static void forget_quotes(struct intents *in, struct attempt *a)
{
    struct advice *ad = a->advice;

    for (uint32_t i = 0; ad && i < ad->n_reasons; i++)
        if (adv_streq(str_or(ad->reasons[i].code), "signature") && strchr(str_or(ad->reasons[i].sentence), '"')) {
            fleet_str_take(&ad->reasons[i].sentence,
                           fleet_strf(in, "The log showed it (rule %s).", str_or(ad->reasons[i].param)));
            fleet_touch_advice(in, ad);
        }
}

static bool forget_excerpts(struct intents *in, struct attempt *a, int64_t before_us)
{
    struct anomaly *an;
    bool any = false;

    DL_FOREACH (a->anomalies, an)
        if (an->excerpt && (!before_us || an->record_us < before_us)) {
            (void) str_set(in, &an->excerpt, NULL);
            fleet_touch_anomaly(in, an);
            any = true;
        }
    if (any)
        forget_quotes(in, a);
    return any;
}

/* An agent that is away may never come back; if it does, it tells what its scheduler still lists. */
static bool heard(const struct cluster *c)
{
    return c->agent_state != AGENT_UNREACHABLE && c->agent_state != AGENT_NEVER_SEEN;
}

/* Since when nothing was heard of the job; INT64_MAX while something may still be. */
static int64_t last_heard(const struct job *j)
{
    const struct attempt *last = fleet_last_attempt(j);
    int64_t at = j->first_seen_us;

    if (!j->gone && (heard(j->cluster) || !(last && job_state_terminal(last->state))))
        return INT64_MAX;
    for (uint32_t i = 0; i < j->n_attempts; i++) {
        const struct attempt *a = j->attempts[i];
        if (a->ms.end_observed_us > at)
            at = a->ms.end_observed_us;
        if (a->advice && a->advice->status_us > at)
            at = a->advice->status_us;
    }
    return at;
}

void fleet_drop_job(struct fleet *f, struct intents *in, struct job *j)
{
    struct cluster *c = j->cluster;
    struct anomaly *an;
    struct action *ac;
    struct evidence *e;

    for (uint32_t i = 0; i < j->n_attempts; i++) {
        struct attempt *a = j->attempts[i];
        DL_FOREACH (a->anomalies, an)
            fleet_touch_gone(in, RESOURCE_ANOMALY, an, c);
        DL_FOREACH (a->actions, ac)
            fleet_touch_gone(in, RESOURCE_ACTION, ac, c);
        DL_FOREACH (a->evidence, e)
            fleet_touch_gone(in, RESOURCE_EVIDENCE, e, c);
        if (a->advice)
            fleet_touch_gone(in, RESOURCE_ADVICE, a->advice, c);
        fleet_touch_gone(in, RESOURCE_ATTEMPT, a, c);
    }
    fleet_touch_gone(in, RESOURCE_JOB, j, c);
    fleet_forget_job(f, c, j->uid);
}

static int64_t entry_over_us(const struct entry *e)
{
    if (e->kind == RESOURCE_EXCLUSION) {
        const struct exclusion *x = (const struct exclusion *) e;
        return x->state == EXCLUSION_LIFTED ? x->lift_us : x->state == EXCLUSION_EXPIRED ? x->expire_us : INT64_MAX;
    }
    if (e->kind == RESOURCE_INCIDENT)
        return ((const struct incident *) e)->closed ? ((const struct incident *) e)->close_us : INT64_MAX;
    if (e->kind == RESOURCE_WINDOW)
        return ((const struct window *) e)->state == WINDOW_OVER ? ((const struct window *) e)->end_us : INT64_MAX;
    return INT64_MAX;
}

void fleet_apply_retention(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev)
{
    size_t begun = in->n, limit = ev->u.retention.limit;
    struct job *j, *next;
    struct entry *e, *e_next;

    ev->u.retention.ret_more = false;
    for (int k = RESOURCE_NONE; k < RESOURCE_KIND_END_; k++)
        HASH_ITER(hh, c->entries[k], e, e_next)
            if (entry_over_us(e) < ev->u.retention.jobs_before_us)
                drop_entry(f, in, e);
    HASH_ITER(hh_uid, c->jobs_by_uid, j, next) {
        if (in->n - begun >= limit || in->oom) {
            ev->u.retention.ret_more = !in->oom;
            return;
        }
        if (last_heard(j) < ev->u.retention.jobs_before_us) {
            fleet_drop_job(f, in, j);
            continue;
        }
        if (j->gone) /* perhaps while it ran, as far as anybody knows: its rhythm is not kept for years */
            fleet_pulse_forget(fleet_last_attempt(j));
        for (uint32_t i = 0; ev->u.retention.excerpts_before_us && i < j->n_attempts; i++)
            (void) forget_excerpts(in, j->attempts[i], ev->u.retention.excerpts_before_us);
    }
}

/* ---- a user ------------------------------------------------------------------------------------------------------ */

static void forget_job(struct fleet *f, struct intents *in, struct job *j)
{
    struct evidence *e;
    char name[RESOURCE_NAME_MAX];

    (void) str_set(in, &j->user, NULL);
    (void) str_set(in, &j->display_name, NULL);
    (void) str_set(in, &j->comment, NULL);
    (void) str_set(in, &j->comment_error, NULL);
    (void) str_set(in, &j->progress, NULL);
    (void) str_set(in, &j->stdout_path, NULL);
    fleet_set_workflow(f, in, j, NULL);
    j->uid_number = 0;
    fleet_touch_job(in, j);
    for (uint32_t i = 0; i < j->n_attempts; i++) {
        struct attempt *a = j->attempts[i];
        (void) forget_excerpts(in, a, 0);
        if (a->telemetry_reason) { /* may name a path */
            (void) str_set(in, &a->telemetry_reason, NULL);
            fleet_touch_attempt(in, a);
        }
        if (a->advice) { /* people's words */
            (void) str_set(in, &a->advice->status_detail, NULL);
            (void) str_set(in, &a->advice->approval_reason, NULL);
            (void) str_set(in, &a->advice->verdict_why, NULL);
            fleet_touch_advice(in, a->advice);
        }
        DL_FOREACH (a->evidence, e) {
            (void) str_set(in, &e->summary, NULL);
            (void) str_set(in, &e->excerpt_ref, NULL);
            fleet_touch(in, RESOURCE_EVIDENCE, e, j->cluster);
        }
    }
    fleet_audit_erase(in, j->cluster, job_resource_name(j, name));
}

int fleet_apply_forget(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err)
{
    size_t begun = in->n;
    char name[RESOURCE_NAME_MAX];
    struct job *j, *next;

    if (!ev->u.forget.user || !*ev->u.forget.user) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TEXT_MISSING", "user: expected a user name");
        return adv_err_field(err, "user");
    }
    ev->u.forget.ret_forgotten = ev->u.forget.ret_present = ev->u.forget.ret_listed = 0;
    ev->u.forget.ret_more = false;
    HASH_ITER(hh_uid, c->jobs_by_uid, j, next) {
        if (!adv_streq(str_or(j->user), ev->u.forget.user))
            continue;
        if (!j->gone && heard(c)) {
            ev->u.forget.ret_present++;
        } else if (in->n - begun >= ev->u.forget.limit) {
            ev->u.forget.ret_more = true;
        } else {
            forget_job(f, in, j);
            ev->u.forget.ret_forgotten++;
            if (!j->gone) { /* an agent that comes back must not find that all is as it was */
                fleet_job_set_hash(c, j, true, 0);
                ev->u.forget.ret_listed++;
            }
        }
    }
    if (ev->u.forget.ret_forgotten) /* not whom */
        fleet_audit(in, c, ev, 0, "user.forget", cluster_resource_name(c, name), "%u jobs of one user",
                    ev->u.forget.ret_forgotten);
    return 0;
}
