/* SPDX-License-Identifier: Apache-2.0 */

/* Anything an agent may say: frames of [length, 2 bytes little endian][message] pass the door into the session state
 * machine and the fleet. Two sessions share one cluster, the first byte of a frame picks one. After each frame the fleet
 * must be consistent, and everything said must encode. Ticks come between, so judgement runs too. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "controlplane/rpc/door.h"
#include "controlplane/session/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PENDING_MAX 32 /* more than a session may have under way, and a goodbye */

struct world {
    struct fleet *fleet;
    int64_t now_us;
    uint64_t revision;
};

struct peer {
    struct world *w;
    struct session *session;
    bool ended, ready;
    struct { struct event ev; session_event_cb cb; void *arg; } pending[PENDING_MAX];
    unsigned n_pending;
};

/* What turn.c does after applying: number the changes. */
static void settle(struct world *w, struct intents *in)
{
    for (size_t i = 0; i < in->n; i++) {
        w->revision++;
        if (in->v[i].kind == RESOURCE_ADVICE) {
            struct advice *ad = in->v[i].object;
            ad->revision = w->revision;
            if (ad->open && !ad->order_rev)
                ad->order_rev = w->revision;
        }
    }
    intents_done(in);
}

static int apply(struct world *w, struct event *ev, struct adv_err *err)
{
    struct intents in;
    int r;

    intents_init(&in);
    ev->now_us = ev->mono_us = w->now_us;
    r = fleet_apply(w->fleet, ev, &in, err);
    settle(w, &in);
    return r;
}

static bool is_small(enum event_type type)
{
    return type == EV_ADVICE_STATUS || type == EV_ACTION || type == EV_TELEMETRY;
}

static void op_submit(void *ctx, const struct event *ev, session_event_cb cb, void *arg)
{
    struct peer *p = ctx;

    if (p->n_pending == PENDING_MAX)
        abort(); /* a bounded number, by contract */
    for (unsigned i = 0; i < p->n_pending; i++)
        if (!is_small(p->pending[i].ev.type) || !(is_small(ev->type) || ev->type == EV_AGENT_GONE))
            abort(); /* all others alone */
    p->pending[p->n_pending].ev = *ev;
    p->pending[p->n_pending].cb = cb;
    p->pending[p->n_pending++].arg = arg;
}

/* A turn, or several; what comes after a refused event is refused. */
static void run_pending(struct peer *p)
{
    struct adv_err err = { 0 };
    int r = 0;

    while (p->n_pending) {
        struct event ev = p->pending[0].ev;
        session_event_cb cb = p->pending[0].cb;
        void *arg = p->pending[0].arg;
        memmove(&p->pending[0], &p->pending[1], --p->n_pending * sizeof(p->pending[0]));
        if (r == 0 || ev.type == EV_AGENT_GONE)
            r = apply(p->w, &ev, &err);
        cb(arg, &ev, r < 0 ? &err : NULL);
    }
    if (p->session)
        session_flush(p->session);
}

static void op_read(void *ctx, session_read_cb cb, void *arg)
{
    (void) ctx;
    cb(arg, NULL);
}

static struct fleet *op_fleet(void *ctx)
{
    return ((struct peer *) ctx)->w->fleet;
}

static int64_t op_mono_us(void *ctx)
{
    return ((struct peer *) ctx)->w->now_us;
}

static void op_send(void *ctx, const Advisor__V1__SessionResponse *msg)
{
    size_t n = protobuf_c_message_get_packed_size(&msg->base);
    uint8_t *bytes = malloc(n + 1);

    (void) ctx;
    if (protobuf_c_message_pack(&msg->base, bytes) != n)
        abort();
    free(bytes);
}

static bool op_next(void *ctx)
{
    ((struct peer *) ctx)->ready = true;
    return true; /* several may be under way */
}

static void op_fail(void *ctx, const struct adv_err *err)
{
    if (err->code == ADV_OK)
        abort();
    ((struct peer *) ctx)->ended = true;
}

static const struct session_ops ops = { op_submit, op_read, op_fleet, op_mono_us, op_mono_us, op_send, op_next, op_fail };

static void open_session(struct peer *p)
{
    static unsigned opened;
    char id[32];
    const struct session_config cfg = { .session_id = id, .store_uuid = "u", .peer_cluster = "a", .principal = "agent:a",
                                        .heartbeat_interval_ms = 1000, .silence_timeout_ms = 10000 };

    (void) snprintf(id, sizeof(id), "s%u", ++opened);
    p->session = session_new(&cfg, &ops, p);
    p->ended = false;
    p->ready = true;
}

static void close_session(struct peer *p)
{
    session_close(p->session, "end of input");
    p->session = NULL; /* freed with its last event */
    run_pending(p);
}

/* What must hold whatever was said. */
static void check(const struct fleet *f)
{
    for (const struct cluster *c = f->clusters; c; c = c->hh.next) {
        uint64_t digest = 0;
        for (const struct node *n = c->nodes; n; n = n->hh.next)
            digest ^= n->hash;
        for (const struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            if (j->present)
                digest ^= j->hash;
            for (uint32_t i = 0; i < j->n_attempts; i++) {
                const struct advice *ad = j->attempts[i]->advice;
                if (j->attempts[i]->index != j->first_index + i || j->attempts[i]->n_anomalies > ATTEMPT_MAX_ANOMALIES)
                    abort();
                if (ad && ad->desired == DESIRED_RESTARTED && ad->generation == 1 && ad->disposition == DISPOSITION_PENDING &&
                    (j->attempts[i]->state == JOB_COMPLETED || j->attempts[i]->state == JOB_CANCELLED) &&
                    ad->create_us > j->attempts[i]->ms.end_observed_us)
                    abort(); /* advice to revive what ended well or was cancelled */
            }
        }
        if (digest != c->digest)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fleet_config cfg = { .lease_us = 5000000, .log_detection = true };
    struct world w = { .now_us = 1000000000 };
    struct peer peers[2] = { { .w = &w }, { .w = &w } };
    struct event ev = { .type = EV_CLUSTER_CREATE, .cluster = "a" };
    struct adv_err err = { 0 };

    policy_defaults(&cfg.policy);
    w.fleet = fleet_new(&cfg);
    fleet_load_done(w.fleet, true, 0, 0);
    (void) apply(&w, &ev, &err);
    ev = (struct event) { .type = EV_SET_MODE, .cluster = "a" };
    ev.u.set_mode.mode = MODE_ACT;
    (void) apply(&w, &ev, &err);
    open_session(&peers[0]);
    open_session(&peers[1]);
    while (size >= 3) {
        struct peer *p = &peers[data[0] & 1];
        size_t n = data[1] | (size_t) data[2] << 8;
        ADV_AUTO_DONE(adv_arena) arena = { 0 };
        ProtobufCMessage *msg = NULL;
        int64_t due;

        w.now_us += (int64_t) (data[0] >> 1) * 100000;
        data += 3;
        size -= 3;
        if (n > size)
            n = size;
        if (rpc_door_decode(&advisor__v1__session_request__descriptor, data, n, &arena, &msg, &err) == 0 && p->ready &&
            !p->ended) {
            p->ready = false;
            session_message(p->session, (const void *) msg);
            if (!p->ready || p->ended || size % 3 == 0 || !p->n_pending || !is_small(p->pending[0].ev.type))
                run_pending(p); /* else the next message finds it under way */
        }
        data += n;
        size -= n;
        while ((due = fleet_next_deadline(w.fleet)) && due <= w.now_us) {
            ev = (struct event) { .type = EV_TICK };
            (void) apply(&w, &ev, &err);
        }
        session_changed(peers[0].session);
        session_changed(peers[1].session);
        session_tick(p->session);
        check(w.fleet);
        if (p->ended) {
            close_session(p);
            open_session(p);
        }
    }
    close_session(&peers[0]);
    close_session(&peers[1]);
    (void) fleet_free(w.fleet);
    return 0;
}
