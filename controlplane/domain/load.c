/* SPDX-License-Identifier: Apache-2.0 */
/* Construction, and linking of what the store gives back. */

#include "controlplane/domain/internal.h"

#include <utlist.h>

struct fleet *fleet_new(const struct fleet_config *cfg)
{
    struct fleet *f = calloc(1, sizeof(*f));

    if (f)
        f->cfg = *cfg;
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
    free(f);
    return NULL;
}

int fleet_load_cluster(struct fleet *f, struct cluster *c)
{
    if (!c->name || fleet_find_cluster(f, c->name))
        return -ADV_DATA_LOSS;
    HASH_ADD_KEYPTR(hh, f->clusters, c->name, strlen(c->name), c);
    return c->hh.tbl ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

int fleet_load_job(struct fleet *f, struct cluster *c, struct job *j)
{
    struct job *old;

    (void) f;
    if (!j->uid || !j->job_id || fleet_find_job_uid(c, j->uid))
        return -ADV_DATA_LOSS;
    j->cluster = c;
    HASH_ADD_KEYPTR(hh_uid, c->jobs_by_uid, j->uid, strlen(j->uid), j);
    if (!j->hh_uid.tbl)
        return -ADV_RESOURCE_EXHAUSTED;
    old = fleet_find_job(c, j->job_id);
    if (old && strcmp(old->uid, j->uid) < 0) {
        HASH_DELETE(hh_id, c->jobs_by_id, old);
        old = NULL;
    }
    if (!old) {
        HASH_ADD_KEYPTR(hh_id, c->jobs_by_id, j->job_id, strlen(j->job_id), j);
        if (!j->hh_id.tbl) { /* the caller frees it */
            HASH_DELETE(hh_uid, c->jobs_by_uid, j);
            return -ADV_RESOURCE_EXHAUSTED;
        }
    }
    if (j->present)
        c->digest ^= j->hash;
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
    return 0;
}

void fleet_load_anomaly(struct attempt *a, struct anomaly *an)
{
    an->attempt = a;
    if (!fleet_make_room(a, an)) {
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

void fleet_load_done(struct fleet *f, int64_t now_us, int64_t mono_us)
{
    struct cluster *c;
    struct job *j;

    for (c = f->clusters; c; c = c->hh.next) {
        if (c->agent_state != AGENT_NEVER_SEEN)
            c->agent_state = AGENT_UNREACHABLE;
        c->lease_until_mono_us = mono_us + f->cfg.lease_us;
        for (j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            struct attempt *a = fleet_last_attempt(j);
            if (!a || j->gone)
                continue;
            if (job_state_failed(a->state) && !a->advice && now_us - a->ms.end_observed_us < 3600 * 1000000LL)
                fleet_judge_at(f, a, now_us);
            else if (job_state_running(a->state) && fleet_has_suspicion(a, true))
                fleet_judge_at(f, a, now_us + f->cfg.policy.suspicion_grace_us);
        }
    }
}
