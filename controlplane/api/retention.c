/* SPDX-License-Identifier: Apache-2.0 */
/* What goes by age, and what goes on request.
 *
 * Every retention.interval each cluster that is owned here is gone through: excerpts and jobs in events of a bounded size,
 * then the old end of its audit log in pieces, each with a checkpoint that is signed here and stored with it. Other events
 * come in between, so nobody waits for it.
 *
 * Ages are told by the wall clock, which may be wrong for a while. So nothing goes in a round before which it was set to
 * another time, and of the audit log only what lies before the first young event: one event with a wrong time neither takes
 * those before it along nor is looked for.
 *
 * A cut leaves an event itself. So nothing is cut of which all is the events of earlier cuts: in a quiet cluster each would
 * be cut by the next one, for ever. But a whole piece of them always goes: what is old behind it would never be seen.
 *
 * Where a cluster's events make the store fail, the round ends with it. The next one begins behind it, or those after it would never
 * have their turn. */

#include <stdio.h>

#include "advisor/v1/fleet_service.pb-c.h"

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/api/audit.h"
#include "controlplane/api/handoff.h"

#define PIECE_CHANGES 2000
#define PIECE_EVENTS  1000
#define FAILED_MAX    3 /* clusters in a row */

struct retention {
    struct api *api;
    struct turn_event te;
    char (*clusters)[65]; /* still to do, last first */
    size_t n;
    char cluster[65]; /* under way */
    char ended_at[65]; /* the last round ended early with this one; "" */
    unsigned failed; /* clusters in a row */
    bool busy;
    int64_t next_mono_us;
    int64_t clock_us;  /* of adv_wall_held() */
    int64_t cutoff_us; /* audit events recorded before are old */
    char hash[ADV_SHA256_HEX_SIZE];
    char signature[2 * ADV_ED25519_SIZE + 1];
};

static void next_cluster(struct retention *r);
static void age_audit(struct retention *r);

static void over(struct retention *r)
{
    free(r->clusters);
    r->clusters = NULL;
    r->n = 0;
    r->busy = false;
    r->next_mono_us = adv_mono_us() + r->api->cfg.retention.interval_ms * 1000;
    if (r->api->freed)
        api_maybe_free(r->api);
}

/* That one cluster fails, or is another replica's by now, is no reason to keep what is old of all others. Where several fail
 * one after the other it is not they. */
static void failed(struct retention *r, const struct adv_err *err)
{
    bool away = ++r->failed >= FAILED_MAX || !turn_ready(r->api->turn);

    adv_warn("retention", away ? "stopped, will go on at the next time" : "this cluster is passed over until the next time",
             ADV_FS("cluster", r->cluster), ADV_FS("why", err->msg));
    if (away) {
        (void) strcpy(r->ended_at, r->cluster);
        over(r);
    } else {
        next_cluster(r);
    }
}

static void cluster_done(struct retention *r)
{
    r->failed = 0;
    next_cluster(r);
}

static void cut_done(struct turn_event *te, const struct adv_err *err)
{
    struct retention *r = ADV_CONTAINER_OF(te, struct retention, te);

    if (err)
        failed(r, err);
    else
        age_audit(r); /* more may be old */
}

static void audit_rows(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    struct retention *r = arg;
    const struct cluster *c;
    uint8_t raw[ADV_ED25519_SIZE];
    char text[512];
    struct adv_err e = { 0 };
    uint64_t seq;
    size_t old = 0;
    bool worth_it; /* something else goes than events of cuts, or there may be something else behind them */

    if (err) {
        failed(r, err);
        return;
    }
    if (r->api->stopping) { /* the fleet may be gone already */
        over(r);
        return;
    }
    c = fleet_find_any_cluster(turn_fleet(r->api->turn), r->cluster);
    while (old < n && rows[old].record_us < r->cutoff_us)
        old++;
    n = old;
    worth_it = n == PIECE_EVENTS;
    seq = n ? rows[n - 1].seq : 0;
    if (n && c && seq >= c->audit_seq) /* the newest event always stays */
        seq = --n ? rows[n - 1].seq : 0;
    for (size_t i = 0; i < n && !worth_it; i++)
        worth_it = !adv_streq(rows[i].verb, "audit.cut");
    if (!n || !c || !worth_it) {
        cluster_done(r);
        return;
    }
    (void) snprintf(r->hash, sizeof(r->hash), "%s", rows[n - 1].hash);
    r->signature[0] = '\0';
    r->te = (struct turn_event) { .ev = { .type = EV_AUDIT_CUT, .cluster = r->cluster }, .done = cut_done };
    r->te.ev.u.cut.seq = seq;
    r->te.ev.u.cut.hash = r->hash;
    r->te.ev.u.cut.record_us = adv_wall_us();
    r->te.ev.u.cut.store_uuid = store_uuid(turn_store(r->api->turn));
    if (r->api->cfg.signer) {
        if (!audit_checkpoint_text(r->te.ev.u.cut.store_uuid, r->cluster, seq, r->hash, r->te.ev.u.cut.record_us, text) ||
            adv_ed25519_sign(r->api->cfg.signer, text, strlen(text), raw, &e) < 0) {
            failed(r, &e); /* what cannot be vouched for stays */
            return;
        }
        r->te.ev.u.cut.signature = adv_hex(raw, sizeof(raw), r->signature);
        r->te.ev.u.cut.key_id = adv_ed25519_id(r->api->cfg.signer);
    }
    turn_submit(r->api->turn, &r->te);
}

static void age_audit(struct retention *r)
{
    struct audit_query q = { .limit = PIECE_EVENTS }; /* the oldest there are */

    if (!r->api->cfg.retention.audit_ms || r->api->stopping) {
        cluster_done(r);
        return;
    }
    r->cutoff_us = adv_wall_us() - r->api->cfg.retention.audit_ms * 1000;
    (void) snprintf(q.cluster, sizeof(q.cluster), "%s", r->cluster);
    store_list_audit(turn_store(r->api->turn), &q, audit_rows, r);
}

static void objects_done(struct turn_event *te, const struct adv_err *err)
{
    struct retention *r = ADV_CONTAINER_OF(te, struct retention, te);

    if (err)
        failed(r, err);
    else if (te->ev.u.retention.ret_more && !r->api->stopping)
        turn_submit(r->api->turn, &r->te);
    else
        age_audit(r);
}

static void next_cluster(struct retention *r)
{
    const struct retention_config *cfg = &r->api->cfg.retention;
    int64_t now_us = adv_wall_us();

    if (!r->n || r->api->stopping) {
        over(r);
        return;
    }
    (void) strcpy(r->cluster, r->clusters[--r->n]);
    r->te = (struct turn_event) { .ev = { .type = EV_RETENTION, .cluster = r->cluster }, .done = objects_done };
    r->te.ev.u.retention.limit = PIECE_CHANGES;
    r->te.ev.u.retention.excerpts_before_us = cfg->excerpts_ms ? now_us - cfg->excerpts_ms * 1000 : 0;
    r->te.ev.u.retention.jobs_before_us = cfg->jobs_ms ? now_us - cfg->jobs_ms * 1000 : 0;
    turn_submit(r->api->turn, &r->te);
}

/* Puts the cluster that the last round ended with last, and those that were to come after it first. */
static void begin_behind(struct retention *r)
{
    char (*turned)[65];
    size_t at = 0;

    while (at < r->n && !adv_streq(r->clusters[at], r->ended_at))
        at++;
    r->ended_at[0] = '\0';
    if (at == r->n || !(turned = calloc(r->n, sizeof(*turned))))
        return;
    for (size_t i = 0; i < r->n; i++)
        memcpy(turned[i], r->clusters[(at + i) % r->n], sizeof(*turned));
    free(r->clusters);
    r->clusters = turned;
}

void retention_tick(struct api *api)
{
    struct retention *r = api->retention;
    const struct fleet *f;
    size_t n = 1;

    if (!r || r->busy || api->stopping || !turn_ready(api->turn) || adv_mono_us() < r->next_mono_us)
        return;
    if (!adv_wall_held(&r->clock_us, adv_wall_us(), adv_boot_us())) {
        adv_warn("retention", "the clock was set to another time: nothing goes until it has held for an interval");
        over(r);
        return;
    }
    f = turn_fleet(api->turn);
    for (const struct cluster *c = f->clusters; c; c = c->hh.next)
        n++;
    r->clusters = calloc(n, sizeof(*r->clusters));
    if (!r->clusters)
        return;
    r->n = 0;
    if (f->global->owned)
        (void) strcpy(r->clusters[r->n++], FLEET_CLUSTER);
    for (const struct cluster *c = f->clusters; c; c = c->hh.next)
        if (c->owned)
            (void) snprintf(r->clusters[r->n++], sizeof(*r->clusters), "%s", c->name);
    begin_behind(r);
    r->busy = true;
    r->failed = 0;
    next_cluster(r);
}

bool retention_busy(const struct api *api)
{
    return api->retention && api->retention->busy;
}

int retention_start(struct api *api, struct adv_err *err)
{
    const struct retention_config *cfg = &api->cfg.retention;

    if (!cfg->interval_ms)
        return 0;
    api->retention = calloc(1, sizeof(*api->retention));
    if (!api->retention)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    api->retention->api = api;
    (void) adv_wall_held(&api->retention->clock_us, adv_wall_us(), adv_boot_us());
    api->retention->next_mono_us = adv_mono_us() + cfg->interval_ms * 1000; /* not while everybody reconnects */
    return 0;
}

void retention_free(struct api *api)
{
    free(api->retention);
    api->retention = NULL;
}

/* ---- a user ----------------------------------------------------------------------------------------------------- */

struct forget {
    struct turn_event te;
    struct api_call *call;
    char cluster[65];
    uint32_t forgotten, listed;
};

static void forget_done(struct turn_event *te, const struct adv_err *err)
{
    struct forget *g = ADV_CONTAINER_OF(te, struct forget, te);
    struct api_call *call = g->call;
    Advisor__V1__ForgetUserResponse m = ADVISOR__V1__FORGET_USER_RESPONSE__INIT;

    if (!err) {
        g->forgotten += te->ev.u.forget.ret_forgotten;
        g->listed += te->ev.u.forget.ret_listed;
        if (te->ev.u.forget.ret_more) {
            turn_submit(call->api->turn, &g->te);
            return;
        }
    }
    if (err) {
        call->ops->fail(call, err);
    } else {
        m.forgotten_jobs = g->forgotten;
        m.present_jobs = te->ev.u.forget.ret_present + g->listed;
        call->ops->reply(call, &m.base);
    }
    call->ops->unref(call);
    free(g);
}

/* Repeating it does no harm, so the request id is only looked at for its length. */
static void forget_user(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__ForgetUserRequest *q = (const void *) req;
    struct forget *g = calloc(1, sizeof(*g));
    struct adv_err err = { 0 };
    struct resource_path p;

    if (!g)
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
    else if (api_cluster_name("parent", q->parent, &p, &err) == 0 && api_text("user", q->user, 1, 256, &err) == 0 &&
             api_request_id(q->request_id, &err) == 0)
        (void) !api_check(&call->caller, call->method->role, p.cluster, NULL, NULL, &err);
    if (!g || err.code != ADV_OK) {
        free(g);
        call->ops->fail(call, &err);
        return;
    }
    if (handoff_needed(call->api, p.cluster)) {
        free(g);
        handoff_call(call, p.cluster, req);
        return;
    }
    (void) snprintf(g->cluster, sizeof(g->cluster), "%s", p.cluster);
    g->call = call;
    g->te = (struct turn_event) { .ev = { .type = EV_FORGET, .cluster = g->cluster, .principal = call->caller.principal },
                                  .done = forget_done };
    g->te.ev.u.forget.user = q->user;
    g->te.ev.u.forget.limit = PIECE_CHANGES;
    call->ops->ref(call);
    turn_submit(call->api->turn, &g->te);
}

const struct api_method retention_methods[] = {
    { "/advisor.v1.FleetService/ForgetUser", API_UNARY, &advisor__v1__forget_user_request__descriptor,
      &advisor__v1__forget_user_response__descriptor, ROLE_ADMIN, 64 << 10, .call = forget_user },
};
const size_t retention_n = ADV_ARRAY_LEN(retention_methods);
