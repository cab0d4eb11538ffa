/* SPDX-License-Identifier: Apache-2.0 */
/* Construction, and linking of what the store gives back. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"

#include <utlist.h>

#include "controlplane/domain/entries.h"

struct fleet *fleet_new(const struct fleet_config *cfg)
{
    struct fleet *f = calloc(1, sizeof(*f));

    if (!f)
        return NULL;
    f->cfg = *cfg;
    f->global = calloc(1, sizeof(*f->global));
    if (!f->global || !(f->global->name = strdup(FLEET_CLUSTER)))
        return fleet_free(f);
    return f;
}

struct fleet *fleet_free(struct fleet *f)
{
    struct cluster *c, *next;

    if (!f)
        return NULL;
    HASH_ITER(hh, f->clusters, c, next) {
        HASH_DEL(f->clusters, c);
        cluster_free(c);
    }
    cluster_free(f->global);
    free(f->judge);
    free(f);
    return NULL;
}

int fleet_load_cluster(struct fleet *f, struct cluster *c)
{
    if (!c->name || fleet_find_cluster(f, c->name))
        return -ADV_DATA_LOSS;
    if (adv_streq(c->name, FLEET_CLUSTER)) {
        cluster_free(f->global);
        f->global = c;
        return 0;
    }
    HASH_ADD_KEYPTR(hh, f->clusters, c->name, strlen(c->name), c);
    if (!c->hh.tbl)
        return -ADV_RESOURCE_EXHAUSTED;
    order_add(&f->clusters_in_order, &c->by_name, c->name);
    return 0;
}

int fleet_load_job(struct fleet *f, struct cluster *c, struct job *j)
{
    struct job *old;

    if (!j->uid || !j->job_id || fleet_find_job_uid(c, j->uid))
        return -ADV_DATA_LOSS;
    j->cluster = c;
    if (fleet_workflow_join(f, j) < 0)
        return -ADV_RESOURCE_EXHAUSTED;
    HASH_ADD_KEYPTR(hh_uid, c->jobs_by_uid, j->uid, strlen(j->uid), j);
    if (!j->hh_uid.tbl) {
        fleet_workflow_leave(f, j);
        return -ADV_RESOURCE_EXHAUSTED;
    }
    old = fleet_find_job(c, j->job_id);
    if (old && strcmp(old->uid, j->uid) < 0) {
        HASH_DELETE(hh_id, c->jobs_by_id, old);
        old = NULL;
    }
    if (!old) {
        HASH_ADD_KEYPTR(hh_id, c->jobs_by_id, j->job_id, strlen(j->job_id), j);
        if (!j->hh_id.tbl) { /* the caller frees it */
            HASH_DELETE(hh_uid, c->jobs_by_uid, j);
            fleet_workflow_leave(f, j);
            return -ADV_RESOURCE_EXHAUSTED;
        }
    }
    order_add(&c->jobs_in_order, &j->by_uid, j->uid);
    if (j->present)
        c->digest ^= j->hash;
    fleet_recount(j);
    return 0;
}

int fleet_load_node(struct cluster *c, struct node *n)
{
    struct node *known = NULL;

    if (!n->name)
        return -ADV_DATA_LOSS;
    HASH_FIND_STR(c->nodes, n->name, known);
    if (known)
        return -ADV_DATA_LOSS;
    n->cluster = c;
    HASH_ADD_KEYPTR(hh, c->nodes, n->name, strlen(n->name), n);
    if (!n->hh.tbl)
        return -ADV_RESOURCE_EXHAUSTED;
    order_add(&c->nodes_in_order, &n->by_name, n->name);
    c->digest ^= n->hash;
    return 0;
}

int fleet_load_attempt(struct fleet *f, struct job *j, struct attempt *a)
{
    struct attempt **v;

    (void) f;
    if (a->index != j->first_index + j->n_attempts)
        return -ADV_DATA_LOSS; /* they come in order and without gaps */
    v = realloc(j->attempts, (j->n_attempts + 1) * sizeof(*v));
    if (!v)
        return -ADV_RESOURCE_EXHAUSTED;
    a->job = j;
    j->attempts = v;
    v[j->n_attempts++] = a;
    j->cluster->n_attempts++;
    fleet_recount(j);
    return 0;
}

void fleet_load_anomaly(struct attempt *a, struct anomaly *an)
{
    an->attempt = a;
    if (!fleet_make_room(NULL, a, an)) {
        anomaly_free(an);
        return;
    }
    DL_APPEND(a->anomalies, an);
    a->n_anomalies++;
}

void fleet_load_advice(struct attempt *a, struct advice *ad)
{
    ad->attempt = a;
    advice_free(a->advice);
    a->advice = ad;
    ad->open = false;
    if (ad->disposition == DISPOSITION_PENDING && ad->actionability == ACTION_ACTIONABLE) {
        DL_APPEND(a->job->cluster->open_advice, ad);
        ad->open = true;
        ad->order_rev = ad->revision; /* every session of the new process hears of it */
    }
}

void fleet_load_action(struct attempt *a, struct action *ac)
{
    ac->attempt = a;
    DL_APPEND(a->actions, ac);
    a->n_actions++;
}

void fleet_load_evidence(struct attempt *a, struct evidence *e)
{
    e->attempt = a;
    DL_APPEND(a->evidence, e);
    a->n_evidence++;
}

/* The last holder may be at work until a whole lease is over, and nothing destructive exists before its state is whole. */
void fleet_take_over(struct fleet *f, struct cluster *c, uint64_t epoch, int64_t until_us, int64_t now_us, int64_t mono_us)
{
    int64_t wait_us;
    struct job *j;

    f->now_us = now_us;
    f->mono_us = mono_us;
    c->owned = true;
    c->listen_us = mono_us;
    c->owner_epoch = epoch;
    c->owned_since_us = mono_us;
    c->owned_until_us = until_us;
    c->in_full = false;
    c->ceiling_told = c->preserve_in_approve = false; /* it was told to another process, or an earlier one */
    (void) str_set(NULL, &c->holder_instance, NULL);

    if (c != f->global && c->agent_state != AGENT_NEVER_SEEN && c->agent_state != AGENT_UNREACHABLE) {
        c->agent_state = AGENT_UNREACHABLE;
        f->n_lost_untold += !c->lost_untold;
        c->lost_untold = true;
    }
    c->lease_until_mono_us = mono_us + f->cfg.lease_us;
    wait_us = c->lease_us > f->cfg.lease_us ? c->lease_us : f->cfg.lease_us;
    /* If the store's clock jumped ahead, an owner that does not know it yet extends leases as long as it believes in its own. */
    c->taken_until_us = mono_us + (wait_us > f->cfg.owner_lease_us ? wait_us : f->cfg.owner_lease_us);
    c->digest_ok = false;
    fleet_windows_sum(c, now_us);
    for (struct entry *e = c->entries[RESOURCE_WINDOW]; e; e = e->hh.next) {
        const struct window *w = (const struct window *) e;
        if (w->state != WINDOW_OVER)
            fleet_entry_due(f, e, w->state == WINDOW_OPEN ? w->end_us : w->start_us);
    }
    for (struct entry *e = c->entries[RESOURCE_EXCLUSION]; e; e = e->hh.next) {
        const struct exclusion *x = (const struct exclusion *) e;
        if (x->state == EXCLUSION_ACTIVE && x->expire_us)
            fleet_entry_due(f, e, x->expire_us);
    }
    for (j = c->jobs_by_uid; j; j = j->hh_uid.next) {
        struct attempt *a = fleet_last_attempt(j), *prev = a ? attempt_prev(a) : NULL;
        if (prev && attempt_kept(prev))
            a = prev;
        if (!a || (j->gone && !job_state_terminal(a->state)))
            continue;
        if (job_state_failed(a->state) && !a->history && !attempt_judged(a) && now_us - a->ms.end_observed_us < 3600 * 1000000LL)
            fleet_judge_at(f, a, now_us);
        else if (job_state_running(a->state) && fleet_has_suspicion(a, true))
            fleet_judge_at(f, a, now_us + f->cfg.policy.suspicion_grace_us);
        if (job_state_running(a->state) && a->rhythm_bound_us)
            fleet_judge_by(f, a, now_us + f->cfg.policy.suspicion_grace_us);
        if (a->advice && advice_awaits_approval(a->advice))
            fleet_judge_by(f, a, fleet_approval_until(a->advice));
    }
}

void fleet_give_up(struct fleet *f, struct cluster *c)
{
    struct attempt *a, *next;
    struct entry *e, *e_next;

    c->owned = false;
    f->n_lost_untold -= c->lost_untold;
    c->lost_untold = false;
    c->owned_until_us = 0;
    c->lease_until_mono_us = 0;
    c->taken_until_us = 0;
    c->digest_ok = false;
    c->in_full = false;
    (void) str_set(NULL, &c->holder_instance, NULL);
    DL_FOREACH_SAFE2 (c->judged, a, next, judge_next)
        fleet_judge_unlink(f, a);
    DL_FOREACH_SAFE2 (f->due_list, e, e_next, due_next)
        if (e->cluster == c)
            fleet_entry_due(f, e, 0);
}

void fleet_load_done(struct fleet *f, bool own_all, int64_t now_us, int64_t mono_us)
{
    struct cluster *c;

    if (!own_all)
        return;
    fleet_take_over(f, f->global, 0, INT64_MAX, now_us, mono_us);
    for (c = f->clusters; c; c = c->hh.next)
        fleet_take_over(f, c, 0, INT64_MAX, now_us, mono_us);
}

/* ---- following -------------------------------------------------------------------------------------------------- */

void fleet_unlink_job(struct fleet *f, struct cluster *c, struct job *j)
{
    fleet_workflow_leave(f, j);
    HASH_DELETE(hh_uid, c->jobs_by_uid, j);
    order_remove(&c->jobs_in_order, &j->by_uid);
    if (fleet_find_job(c, j->job_id) == j)
        HASH_DELETE(hh_id, c->jobs_by_id, j);
    if (j->present)
        c->digest ^= j->hash;
    c->n_jobs -= j->counted;
    c->n_running -= j->counted_running;
    j->counted = j->counted_running = false;
}

void fleet_forget_job(struct fleet *f, struct cluster *c, const char *uid)
{
    struct job *j = fleet_find_job_uid(c, uid);

    if (!j)
        return;
    for (uint32_t i = 0; i < j->n_attempts; i++) {
        fleet_judge_unlink(f, j->attempts[i]);
        if (j->attempts[i]->advice)
            fleet_advice_close(j->attempts[i]->advice);
        c->n_attempts--;
    }
    fleet_unlink_job(f, c, j);
    job_free(j);
}

void fleet_forget_node(struct cluster *c, const char *name)
{
    struct node *n = NULL;

    HASH_FIND_STR(c->nodes, name, n);
    if (!n)
        return;
    c->digest ^= n->hash;
    HASH_DEL(c->nodes, n);
    order_remove(&c->nodes_in_order, &n->by_name);
    node_free(n);
}

void fleet_forget_entry(struct fleet *f, struct cluster *c, enum resource_kind kind, const char *uid)
{
    struct entry *e = entry_find(c, kind, uid);

    if (!e)
        return;
    fleet_entry_due(f, e, 0);
    HASH_DEL(c->entries[kind], e);
    entry_free(e);
}

void fleet_forget_of_attempt(struct attempt *a, enum resource_kind kind, const char *key)
{
    struct evidence *ev, *ev_next;
    struct anomaly *an, *an_next;
    struct action *ac, *ac_next;
    char own[RESOURCE_KEY_MAX];

    if (kind == RESOURCE_ADVICE && a->advice) {
        fleet_advice_close(a->advice);
        advice_free(a->advice);
        a->advice = NULL;
    }
    DL_FOREACH_SAFE (a->anomalies, an, an_next)
        if (kind == RESOURCE_ANOMALY && adv_streq(resource_key(kind, an, own), key)) {
            DL_DELETE(a->anomalies, an);
            a->n_anomalies--;
            anomaly_free(an);
        }
    DL_FOREACH_SAFE (a->actions, ac, ac_next)
        if (kind == RESOURCE_ACTION && adv_streq(resource_key(kind, ac, own), key)) {
            DL_DELETE(a->actions, ac);
            a->n_actions--;
            action_free(ac);
        }
    DL_FOREACH_SAFE (a->evidence, ev, ev_next)
        if (kind == RESOURCE_EVIDENCE && adv_streq(resource_key(kind, ev, own), key)) {
            DL_DELETE(a->evidence, ev);
            a->n_evidence--;
            evidence_free(ev);
        }
}
