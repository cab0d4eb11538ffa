/* SPDX-License-Identifier: Apache-2.0 */

/* States: DOWN (no call), HELLO (sent, not answered), ACTIVE, and ENDING for one loop turn.
 *
 * One timer drives heartbeats and the silence limit. Sending is one function, pump(), that gives
 * the stream what has room; it is called whenever anything may have changed. Statuses and actions go
 * first, then state, then telemetry: that speaks of attempts which the control plane knows from the
 * state alone, and what it hears of others is lost. A quarter of the call's queue is left to heartbeats. */

#include "advisor-agent/session.h"

#include <pb_decode.h>
#include <pb_encode.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "advisor-agent/wire/codec.h"

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"

#define OUTBOX_MAX     8192
#define TELEMETRY_MAX  (OUTBOX_MAX / 2) /* reports in the outbox beyond which no telemetry is taken that can wait */
#define ROOM_BYTES     (SESSION_QUEUE_BYTES / 4 * 3) /* of the call's queue, for all but heartbeats */
#define STATE_BYTES    (32u * 1024) /* of one update */
#define STATE_WINDOW   8            /* updates not yet acknowledged */
#define SENT_MAX       64           /* heartbeats whose answers may still come */
#define HELLO_WAIT_MS  20000
#define LOG_CHUNK_MAX  (32u * 1024)
#define LOG_EXTRA      512u         /* what a log message has around the bytes */
#define LIMIT_MIN      (8u * 1024)  /* a control plane that takes less is not one to talk to */
#define RENEW_WAIT_MS  20000
#define DENIED_WAIT_MS 30000 /* a person has to do something first */

enum session_state { DOWN, HELLO, ACTIVE };

struct out {
    struct out *next;
    uint64_t seq; /* in this session; 0: not sent in it */
    unsigned refused; /* times that the control plane ended the call over what was under way, this among it */
    advisor_v1_SessionRequest msg;
};

struct session {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct wire_conn *conn;
    struct wire_call *call, *logs, *renewal;
    session_renew_cb renew_cb;
    void *renew_arg;
    struct adv_err renew_err;
    char renew_reason[64];
    advisor_v1_RenewResponse *renewed;
    const struct session_ops *ops;
    void *ctx;
    enum session_state state;
    bool closing;
    bool logs_full;
    uint64_t logs_taken; /* bytes, ever */
    bool granted; /* holds the lease; a standby has nothing to tell */
    char id[64];
    uint64_t next_seq, acked_seq, heartbeat_id, pull_id;
    uint64_t state_seq; /* of the last update sent */
    unsigned states_out;
    uint32_t heartbeat_ms, silence_ms;
    size_t state_bytes, log_bytes; /* of one update, of one log message's chunk: ours, or the other side's if lower */
    int64_t next_heartbeat_us, heard_us; /* monotonic */
    int64_t hello_boot_us;
    struct {
        uint64_t id;
        int64_t boot_us;
    } sent[SENT_MAX];
    struct out *first, **last;
    size_t n_out;
    advisor_v1_SessionResponse in; /* 40 kB: not for the stack */
    uint64_t state_seqs[STATE_WINDOW];
};

static void pump(struct session *s);
static void on_timer(uv_timer_t *timer);

/* @ret_size: bytes that it takes in the call's queue; may be NULL. */
static int encode_send(struct wire_call *call, const pb_msgdesc_t *fields, const void *msg, size_t *ret_size,
                       struct adv_err *err)
{
    size_t size;
    adv_auto_free uint8_t *buf = NULL;

    if (!pb_get_encoded_size(&size, fields, msg) || !(buf = malloc(size + 1)))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a message");
    pb_ostream_t os = pb_ostream_from_buffer(buf, size);
    if (!pb_encode(&os, fields, msg))
        return adv_err_set(err, ADV_INTERNAL, "encode: %s", PB_GET_ERROR(&os));
    if (ret_size)
        *ret_size = size + WIRE_FRAME_HEAD;
    return wire_call_send(call, buf, os.bytes_written, err);
}

static void rearm(struct session *s, int64_t wait_ms)
{
    (void) uv_timer_start(&s->timer, on_timer, (uint64_t) (wait_ms > 0 ? wait_ms : 0), 0);
}

/* Ends the session and tells it; the connection dials again by its own rule. */
static void end(struct session *s, const char *why, int64_t retry_after_ms)
{
    bool was = s->state != DOWN;

    s->state = DOWN;
    s->call = wire_call_cancel(s->call);
    s->logs = wire_call_cancel(s->logs);
    for (struct out *o = s->first; o; o = o->next)
        o->seq = 0;
    if (was) {
        adv_warn("session", "session ended, will dial again", ADV_FS("why", why));
        s->ops->lost(s->ctx, why);
    }
    if (retry_after_ms >= 0)
        wire_conn_restart(s->conn, (uint64_t) retry_after_ms);
}

/* Sending */

static bool send_unnumbered(struct session *s, const advisor_v1_SessionRequest *m)
{
    struct adv_err err;

    if (encode_send(s->call, advisor_v1_SessionRequest_fields, m, NULL, &err) < 0) {
        end(s, err.msg, 1000);
        return false;
    }
    return true;
}

static void heartbeat(struct session *s)
{
    advisor_v1_SessionRequest m = advisor_v1_SessionRequest_init_zero;

    m.which_message = advisor_v1_SessionRequest_heartbeat_tag;
    s->ops->heartbeat(s->ctx, &m.message.heartbeat);
    m.message.heartbeat.id = ++s->heartbeat_id;
    m.message.heartbeat.agent_wall_ms = adv_wall_us() / 1000;
    s->sent[s->heartbeat_id % SENT_MAX].id = s->heartbeat_id;
    s->sent[s->heartbeat_id % SENT_MAX].boot_us = adv_boot_us();
    s->next_heartbeat_us = adv_mono_us() + (int64_t) s->heartbeat_ms * 1000;
    (void) send_unnumbered(s, &m);
}

static void pull(struct session *s)
{
    advisor_v1_SessionRequest m = advisor_v1_SessionRequest_init_zero;

    m.which_message = advisor_v1_SessionRequest_pull_tag;
    m.message.pull.id = ++s->pull_id;
    (void) send_unnumbered(s, &m);
}

static void hello(struct session *s)
{
    advisor_v1_SessionRequest m = advisor_v1_SessionRequest_init_zero;
    advisor_v1_Hello h = advisor_v1_Hello_init_zero;

    s->ops->hello(s->ctx, &h);
    h.agent_wall_ms = adv_wall_us() / 1000;
    m.which_message = advisor_v1_SessionRequest_hello_tag;
    m.message.hello = &h;
    s->hello_boot_us = adv_boot_us();
    (void) send_unnumbered(s, &m);
}

enum state_sent { STATE_SENT, STATE_NONE, STATE_LATER };

static enum state_sent send_state(struct session *s)
{
    advisor_v1_SessionRequest m = advisor_v1_SessionRequest_init_zero;
    advisor_v1_StateUpdate u = advisor_v1_StateUpdate_init_zero;
    struct adv_err err;

    if (s->states_out == STATE_WINDOW || wire_call_queued_bytes(s->call) > SESSION_QUEUE_BYTES / 2)
        return STATE_LATER; /* more than half: on_drained() comes */
    if (!s->ops->take_state(s->ctx, s->state_bytes, &u))
        return STATE_NONE;
    m.seq = s->next_seq;
    m.which_message = advisor_v1_SessionRequest_state_update_tag;
    m.message.state_update = &u;
    if (encode_send(s->call, advisor_v1_SessionRequest_fields, &m, NULL, &err) < 0) {
        end(s, err.msg, 1000); /* it counts as sent, so only a new session can mend it */
        return STATE_LATER;
    }
    s->state_seqs[s->states_out++] = s->next_seq++;
    return STATE_SENT;
}

static bool under_way(const struct session *s)
{
    bool any = s->states_out > 0;

    for (const struct out *o = s->first; o && !any; o = o->next)
        any = o->seq != 0;
    return any;
}

/* Something in the outbox may be what the control plane cannot take: then each of it goes alone, so that it is known which. */
static bool one_by_one(const struct session *s)
{
    bool any = false;

    for (const struct out *o = s->first; o && !any; o = o->next)
        any = o->refused > 0;
    return any;
}

static bool is_telemetry(const struct out *o)
{
    return o->msg.which_message == advisor_v1_SessionRequest_telemetry_tag;
}

/* False: not all of it, on_drained() or a new session goes on. */
static bool send_outbox(struct session *s, bool telemetry)
{
    bool alone = one_by_one(s);

    if (alone && under_way(s)) /* the Ack goes on */
        return false;
    for (struct out *o = s->first; o; o = o->next) {
        struct adv_err err;
        if (o->seq || is_telemetry(o) != telemetry)
            continue;
        if (wire_call_queued_bytes(s->call) >= ROOM_BYTES)
            return false;
        o->msg.seq = s->next_seq;
        int r = encode_send(s->call, advisor_v1_SessionRequest_fields, &o->msg, NULL, &err);
        if (r == -ADV_RESOURCE_EXHAUSTED)
            return false;
        if (r < 0) {
            end(s, err.msg, 1000);
            return false;
        }
        o->seq = s->next_seq++;
        if (alone)
            return false;
    }
    return true;
}

static void pump(struct session *s)
{
    enum state_sent sent;

    if (s->state != ACTIVE || !s->granted || !send_outbox(s, false))
        return;
    while ((sent = send_state(s)) == STATE_SENT)
        ;
    if (sent == STATE_NONE)
        (void) send_outbox(s, true);
}

static void drop_out(struct session *s, struct out **pp)
{
    struct out *o = *pp;

    *pp = o->next;
    if (!*pp)
        s->last = pp;
    s->n_out--;
    free(o);
}

/* Does @m say anew, of the same thing, what @o says? */
static bool supersedes(const advisor_v1_SessionRequest *m, const struct out *o)
{
    const advisor_v1_AttemptRef *x, *y;

    if (o->msg.which_message != m->which_message)
        return false;
    if (m->which_message == advisor_v1_SessionRequest_advice_status_tag)
        return strcmp(o->msg.message.advice_status.advice, m->message.advice_status.advice) == 0;
    if (m->which_message != advisor_v1_SessionRequest_telemetry_tag)
        return false;
    x = &o->msg.message.telemetry.attempt;
    y = &m->message.telemetry.attempt;
    return x->restart_count == y->restart_count && x->submit_unix == y->submit_unix && strcmp(x->job_id, y->job_id) == 0;
}

static int enqueue(struct session *s, const advisor_v1_SessionRequest *m, size_t telemetry_max, struct adv_err *err)
{
    struct out *o;

    for (struct out **pp = &s->first; *pp; pp = &(*pp)->next) {
        if ((*pp)->seq || !supersedes(m, *pp))
            continue;
        if (is_telemetry(*pp)) {
            (*pp)->msg = *m;
            return 0;
        }
        drop_out(s, pp); /* the new one goes behind the actions that led to it */
        break;
    }
    if (m->which_message == advisor_v1_SessionRequest_telemetry_tag && s->n_out >= telemetry_max)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "too many reports wait for the control plane");
    for (struct out **pp = &s->first; s->n_out >= OUTBOX_MAX && *pp; pp = &(*pp)->next)
        if (!(*pp)->seq && (*pp)->msg.which_message != advisor_v1_SessionRequest_action_tag) {
            drop_out(s, pp);
            break;
        }
    o = s->n_out < 2 * OUTBOX_MAX ? calloc(1, sizeof(*o)) : NULL;
    if (!o)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "too many reports wait for the control plane");
    o->msg = *m;
    *s->last = o;
    s->last = &o->next;
    s->n_out++;
    pump(s);
    return 0;
}

int session_send_status(struct session *s, const advisor_v1_AdviceStatusReport *m, struct adv_err *err)
{
    advisor_v1_SessionRequest r = advisor_v1_SessionRequest_init_zero;

    r.which_message = advisor_v1_SessionRequest_advice_status_tag;
    r.message.advice_status = *m;
    return enqueue(s, &r, 0, err);
}

int session_send_action(struct session *s, const advisor_v1_ActionReport *m, struct adv_err *err)
{
    advisor_v1_SessionRequest r = advisor_v1_SessionRequest_init_zero;

    r.which_message = advisor_v1_SessionRequest_action_tag;
    r.message.action = *m;
    return enqueue(s, &r, 0, err);
}

int session_send_telemetry(struct session *s, const advisor_v1_TelemetryReport *m, bool last, struct adv_err *err)
{
    advisor_v1_SessionRequest r = advisor_v1_SessionRequest_init_zero;

    r.which_message = advisor_v1_SessionRequest_telemetry_tag;
    r.message.telemetry = *m;
    return enqueue(s, &r, last ? OUTBOX_MAX : TELEMETRY_MAX, err);
}

void session_state_changed(struct session *s)
{
    pump(s);
}

void session_heartbeat_now(struct session *s)
{
    if (s->state == ACTIVE)
        heartbeat(s);
}

void session_give_up(struct session *s, const char *why, int64_t retry_after_ms)
{
    if (s->state != DOWN)
        end(s, why, retry_after_ms);
}

bool session_active(const struct session *s)
{
    return s->state == ACTIVE;
}

size_t session_outbox_count(const struct session *s)
{
    return s->n_out;
}

/* Logs */

static const struct wire_call_ops log_ops;

static void open_logs(struct session *s)
{
    advisor_v1_PushLogsRequest m = advisor_v1_PushLogsRequest_init_zero;
    struct adv_err err;

    if (wire_call_start(s->conn, "/advisor.v1.AgentService/PushLogs", NULL, 0, 0, 0, &log_ops, s,
                        &s->logs, &err) < 0) {
        adv_warn("session", "no log stream, will try again", ADV_FS("why", err.msg));
        return;
    }
    (void) snprintf(m.session_id, sizeof(m.session_id), "%s", s->id);
    s->logs_full = encode_send(s->logs, advisor_v1_PushLogsRequest_fields, &m, NULL, &err) < 0;
    s->ops->logs_opened(s->ctx);
    s->ops->logs_ready(s->ctx);
}

static void on_log_message(void *ctx, struct wire_call *call, const uint8_t *data, size_t len)
{
}

static void on_log_closed(void *ctx, struct wire_call *call, const struct wire_status *st)
{
    struct session *s = ctx;

    s->logs = NULL;
    if (s->state == ACTIVE) /* made again with a later heartbeat */
        adv_warn("session", "log stream ended, will open it again", ADV_FS("code", adv_code_name((int) st->code)),
                 ADV_FS("why", st->message));
}

static void on_log_drained(void *ctx, struct wire_call *call)
{
    struct session *s = ctx;

    s->logs_full = false;
    s->ops->logs_ready(s->ctx);
}

static const struct wire_call_ops log_ops = { on_log_message, on_log_closed, on_log_drained };

bool session_push_log(struct session *s, const advisor_v1_LogChunk *chunk, const void *data,
                      size_t len)
{
    advisor_v1_PushLogsRequest m = advisor_v1_PushLogsRequest_init_zero;
    advisor_v1_LogChunk c = *chunk;
    pb_bytes_array_t *bytes;
    struct adv_err err;
    size_t size;
    int r = 0;

    if (!s->logs || s->logs_full || len > LOG_CHUNK_MAX)
        return false;
    bytes = malloc(PB_BYTES_ARRAY_T_ALLOCSIZE(len));
    if (!bytes)
        return false;
    c.data = bytes;
    m.chunks_count = 1;
    m.chunks = &c;
    for (size_t at = 0, n; r == 0 && (at < len || at == 0); at += n ? n : 1) {
        n = len - at < s->log_bytes ? len - at : s->log_bytes;
        c.offset = chunk->offset + at;
        c.dropped_before = at ? 0 : chunk->dropped_before;
        bytes->size = (pb_size_t) n;
        memcpy(bytes->bytes, (const uint8_t *) data + at, n);
        r = encode_send(s->logs, advisor_v1_PushLogsRequest_fields, &m, &size, &err);
        if (r == 0)
            s->logs_taken += size;
        if (r == -ADV_RESOURCE_EXHAUSTED)
            s->logs_full = true;
        if (r < 0 && at) /* part of it was sent: a new stream says it all again */
            s->logs = wire_call_cancel(s->logs);
    }
    free(bytes);
    return r == 0;
}

bool session_logs_count(const struct session *s, uint64_t *ret_taken, uint64_t *ret_left)
{
    size_t queued = s->logs ? wire_call_queued_bytes(s->logs) : 0;

    *ret_taken = s->logs_taken;
    *ret_left = queued < s->logs_taken ? s->logs_taken - queued : 0;
    return s->logs != NULL;
}

/* Renewal of the certificate */

static void on_renewal(void *ctx, struct wire_call *call, const uint8_t *data, size_t len)
{
    struct session *s = ctx;
    pb_istream_t is = pb_istream_from_buffer(data, len);

    if (!s->renewed)
        s->renewed = calloc(1, sizeof(*s->renewed));
    if (s->renewed && !pb_decode(&is, advisor_v1_RenewResponse_fields, s->renewed)) {
        free(s->renewed);
        s->renewed = NULL;
    }
}

static void on_renewal_closed(void *ctx, struct wire_call *call, const struct wire_status *st)
{
    struct session *s = ctx;
    advisor_v1_RenewResponse *m = ADV_STEAL(s->renewed);
    struct wire_hints hints;

    s->renewal = NULL;
    if (st->code == ADV_OK && m) {
        s->renew_cb(s->renew_arg, m->certificate_chain.bytes, m->certificate_chain.size, NULL);
    } else {
        wire_read_hints(st->details, st->details_len, &hints);
        (void) snprintf(s->renew_reason, sizeof(s->renew_reason), "%s", hints.reason);
        (void) adv_err_set_reason(&s->renew_err, st->code == ADV_OK ? ADV_INTERNAL : st->code, s->renew_reason, "%s",
                                  st->code == ADV_OK ? "the answer cannot be read" : st->message);
        s->renew_cb(s->renew_arg, NULL, 0, &s->renew_err);
    }
    free(m);
}

static const struct wire_call_ops renewal_ops = { on_renewal, on_renewal_closed, NULL };

int session_renew(struct session *s, const void *csr, size_t len, session_renew_cb cb, void *arg, struct adv_err *err)
{
    advisor_v1_RenewRequest m = advisor_v1_RenewRequest_init_zero;
    adv_auto_free pb_bytes_array_t *bytes = malloc(PB_BYTES_ARRAY_T_ALLOCSIZE(len));
    int r;

    if (s->state != ACTIVE || s->renewal)
        return adv_err_set(err, ADV_FAILED_PRECONDITION, s->renewal ? "a renewal is under way" : "no session");
    if (!bytes)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    bytes->size = (pb_size_t) len;
    memcpy(bytes->bytes, csr, len);
    m.csr = bytes;
    (void) snprintf(m.session_id, sizeof(m.session_id), "%s", s->id);
    if ((r = wire_call_start(s->conn, "/advisor.v1.AgentService/Renew", NULL, 0, RENEW_WAIT_MS, 0, &renewal_ops, s,
                             &s->renewal, err)) < 0)
        return r;
    if ((r = encode_send(s->renewal, advisor_v1_RenewRequest_fields, &m, NULL, err)) < 0) {
        s->renewal = wire_call_cancel(s->renewal);
        return r;
    }
    s->renew_cb = cb;
    s->renew_arg = arg;
    wire_call_half_close(s->renewal);
    return 0;
}

int64_t session_cert_expiry_s(const struct session *s)
{
    return wire_conn_cert_expiry_s(s->conn);
}

/* Receiving */

static size_t lower(size_t ours, size_t theirs)
{
    if (!theirs)
        return ours;
    theirs = theirs < LIMIT_MIN ? LIMIT_MIN : theirs;
    return theirs < ours ? theirs : ours;
}

/* An update has a record more than its budget at most, which is as large as texts of the scheduler can be. */
static void take_limits(struct session *s, const advisor_v1_Limits *l)
{
    s->state_bytes = lower(STATE_BYTES, l ? l->message_bytes / 2 : 0);
    s->log_bytes = lower(LOG_CHUNK_MAX + LOG_EXTRA, l ? l->log_message_bytes : 0) - LOG_EXTRA;
}

static void on_welcome(struct session *s, const advisor_v1_Welcome *w)
{
    if (s->state != HELLO) {
        end(s, "a second Welcome", 1000);
        return;
    }
    (void) snprintf(s->id, sizeof(s->id), "%s", w->session_id);
    s->state = ACTIVE;
    s->granted = w->has_grant;
    s->heartbeat_ms = w->heartbeat_interval_ms >= 100 ? w->heartbeat_interval_ms : 100;
    s->silence_ms = w->silence_timeout_ms >= 2 * s->heartbeat_ms ? w->silence_timeout_ms
                                                                 : 2 * s->heartbeat_ms;
    take_limits(s, w->has_limits ? &w->limits : NULL);
    s->next_heartbeat_us = adv_mono_us() + (int64_t) s->heartbeat_ms * 1000;
    adv_info("session", "session opened", ADV_FS("session", s->id), ADV_FS("server", w->server_version),
             ADV_FI("lease", w->has_grant), ADV_FI("snapshot", w->send_snapshot));
    s->ops->welcome(s->ctx, w, s->hello_boot_us);
    if (s->state != ACTIVE)
        return;
    pull(s);
    if (w->has_grant)
        open_logs(s);
    pump(s);
    rearm(s, 0);
}

static void on_ack(struct session *s, uint64_t through)
{
    unsigned kept = 0;

    if (through >= s->next_seq || through < s->acked_seq) {
        end(s, "an Ack of what was not sent", 1000);
        return;
    }
    s->acked_seq = through;
    for (struct out **pp = &s->first; *pp;) {
        if ((*pp)->seq && (*pp)->seq <= through)
            drop_out(s, pp);
        else
            pp = &(*pp)->next;
    }
    for (unsigned i = 0; i < s->states_out; i++)
        if (s->state_seqs[i] > through)
            s->state_seqs[kept++] = s->state_seqs[i];
    s->states_out = kept;
    pump(s);
}

static void on_batch(struct session *s, const advisor_v1_AdviceBatch *b)
{
    if (b->pull_id != s->pull_id)
        return;
    if (b->advice_count) /* the first batch of a session comes even when it is empty */
        ADV_FAILPOINT("agent.order_received");
    for (pb_size_t i = 0; i < b->advice_count && s->state == ACTIVE; i++)
        s->ops->order(s->ctx, &b->advice[i]);
    if (s->state == ACTIVE) {
        if (!b->more)
            s->ops->pulled(s->ctx);
        pull(s);
    }
}

static void on_heartbeat_ack(struct session *s, const advisor_v1_HeartbeatAck *a)
{
    /* Unasked ones repeat the last id, 0 before the first heartbeat: counted from the Hello then. */
    if (a->id > s->heartbeat_id || (a->id != 0 && s->sent[a->id % SENT_MAX].id != a->id))
        return;
    s->granted = a->has_grant;
    s->ops->heartbeat_ack(s->ctx, a, a->id ? s->sent[a->id % SENT_MAX].boot_us : s->hello_boot_us);
    if (s->state == ACTIVE && a->has_grant && !s->logs)
        open_logs(s);
    pump(s);
}

static void on_message(void *ctx, struct wire_call *call, const uint8_t *data, size_t len)
{
    struct session *s = ctx;
    pb_istream_t is = pb_istream_from_buffer(data, len);
    advisor_v1_SessionResponse *m = &s->in;

    if (!pb_decode(&is, advisor_v1_SessionResponse_fields, m)) {
        char why[128];
        (void) snprintf(why, sizeof(why), "a message cannot be read: %s", PB_GET_ERROR(&is));
        end(s, why, 5000);
        return;
    }
    if (s->state == HELLO && m->which_message != advisor_v1_SessionResponse_welcome_tag &&
        m->which_message != advisor_v1_SessionResponse_goodbye_tag) {
        end(s, "no Welcome first", 1000);
        return;
    }
    if (m->which_message == advisor_v1_SessionResponse_heartbeat_ack_tag)
        s->heard_us = adv_mono_us();
    switch (m->which_message) {
    case advisor_v1_SessionResponse_welcome_tag:
        on_welcome(s, &m->message.welcome);
        break;
    case advisor_v1_SessionResponse_heartbeat_ack_tag:
        on_heartbeat_ack(s, &m->message.heartbeat_ack);
        break;
    case advisor_v1_SessionResponse_ack_tag:
        on_ack(s, m->message.ack.durable_through_seq);
        break;
    case advisor_v1_SessionResponse_advice_batch_tag:
        on_batch(s, &m->message.advice_batch);
        break;
    case advisor_v1_SessionResponse_resync_tag:
        s->ops->resync(s->ctx, m->message.resync.reason);
        pump(s);
        break;
    case advisor_v1_SessionResponse_focus_tag:
        s->ops->focus(s->ctx, &m->message.focus);
        break;
    case advisor_v1_SessionResponse_goodbye_tag:
        end(s, m->message.goodbye.reason, m->message.goodbye.retry_after_ms);
        break;
    default: /* of a later version */
        break;
    }
}

/* The control plane cannot take something that it was sent. Sent first again for ever, that would keep all else away. */
static void blame(struct session *s)
{
    size_t n = 0;

    for (struct out *o = s->first; o; o = o->next)
        n += o->seq != 0;
    for (struct out **pp = &s->first; *pp;) {
        struct out *o = *pp;
        o->refused += o->seq != 0;
        if (!o->seq || o->refused < 2 || n != 1 || s->states_out) {
            pp = &o->next;
            continue;
        }
        adv_error("session", "a report that the control plane cannot take is dropped",
                  ADV_FI("kind", o->msg.which_message), ADV_FU("refused", o->refused),
                  ADV_FS("advice", o->msg.which_message == advisor_v1_SessionRequest_advice_status_tag
                                       ? o->msg.message.advice_status.advice
                                   : o->msg.which_message == advisor_v1_SessionRequest_action_tag ? o->msg.message.action.advice
                                                                                                : ""));
        drop_out(s, pp);
    }
}

/* How long to stay away after the control plane has ended or refused the call. */
static int64_t refused_wait_ms(const struct wire_status *st, const struct wire_hints *hints)
{
    if (hints->retry_after_ms >= 0)
        return hints->retry_after_ms;
    if (adv_streq(hints->reason, "IDENTITY_EXPIRED"))
        return 0; /* the next connection reads the certificate anew */
    if (st->code == ADV_PERMISSION_DENIED || st->code == ADV_UNAUTHENTICATED)
        return DENIED_WAIT_MS;
    return st->code == ADV_RESOURCE_EXHAUSTED ? 10000 : 2000;
}

static void on_closed(void *ctx, struct wire_call *call, const struct wire_status *st)
{
    struct session *s = ctx;
    struct wire_hints hints;
    int64_t wait_ms = -1;
    bool keep = false;
    char why[256];

    s->call = NULL;
    (void) snprintf(why, sizeof(why), "%s: %.200s", adv_code_name((int) st->code), st->message);
    /* If the connection is lost it is dialled again anyway; if the server has refused us, wait. */
    if (st->from_server) {
        wire_read_hints(st->details, st->details_len, &hints);
        wait_ms = refused_wait_ms(st, &hints);
        if (st->code == ADV_INVALID_ARGUMENT && s->state == ACTIVE)
            blame(s);
        keep = adv_streq(hints.reason, "NOT_NOW") && hints.retry_after_ms >= 0;
    }
    end(s, why, keep ? -1 : wait_ms);
    if (keep) /* a place comes free soon, and a new connection costs more than a call */
        rearm(s, wait_ms);
    else if (st->from_server || wire_conn_state(s->conn) != WIRE_STATE_BACKOFF)
        rearm(s, 1000);
}

static void on_drained(void *ctx, struct wire_call *call)
{
    pump(ctx);
}

static const struct wire_call_ops call_ops = { on_message, on_closed, on_drained };

static void open_session(struct session *s)
{
    struct adv_err err;

    if (s->state != DOWN)
        return;
    if (wire_call_start(s->conn, "/advisor.v1.AgentService/Session", NULL, 0, 0, 0, &call_ops, s,
                        &s->call, &err) < 0) {
        rearm(s, 1000);
        return;
    }
    s->state = HELLO;
    s->next_seq = 1;
    s->acked_seq = 0;
    s->heartbeat_id = 0;
    s->pull_id = 0;
    s->states_out = 0;
    s->heard_us = adv_mono_us();
    memset(s->sent, 0, sizeof(s->sent));
    hello(s);
    rearm(s, 1000);
}

static void on_state(void *ctx, enum wire_state state, const struct adv_err *err)
{
    struct session *s = ctx;

    switch (state) {
    case WIRE_STATE_READY:
        open_session(s);
        break;
    case WIRE_STATE_DRAINING: /* ours would hold the old connection open for ever */
        adv_info("session", "the server closes the connection, moving to a new one",
                 ADV_FS("why", err->msg));
        if (s->call)
            wire_call_half_close(s->call);
        if (s->logs)
            wire_call_half_close(s->logs);
        break;
    case WIRE_STATE_BACKOFF:
        adv_warn("session", "not connected, will dial again", ADV_FS("why", err->msg));
        break;
    case WIRE_STATE_CONNECTING:
        break;
    }
}

static const struct wire_conn_ops conn_ops = { .on_state = on_state };

static void on_timer(uv_timer_t *timer)
{
    struct session *s = timer->data;
    int64_t now = adv_mono_us(), wait = 1000;

    if (s->state == DOWN) {
        if (wire_conn_state(s->conn) == WIRE_STATE_READY)
            open_session(s);
    } else if (s->state == HELLO) {
        if (now - s->heard_us > HELLO_WAIT_MS * 1000ll)
            end(s, "no answer to Hello", 1000);
    } else if (now - s->heard_us > (int64_t) s->silence_ms * 1000) {
        end(s, "no heartbeat answer within the silence limit", 0);
    } else {
        if (now >= s->next_heartbeat_us)
            heartbeat(s);
        wait = (s->next_heartbeat_us - now) / 1000 + 1;
    }
    rearm(s, wait < 1000 ? wait : 1000);
}

int session_new(uv_loop_t *loop, const struct wire_config *wire, const struct session_ops *ops,
                void *ctx, struct session **ret, struct adv_err *err)
{
    struct session *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a session");
    s->loop = loop;
    s->ops = ops;
    s->ctx = ctx;
    s->last = &s->first;
    r = wire_conn_new(loop, wire, &conn_ops, s, &s->conn, err);
    if (r < 0) {
        free(s);
        return r;
    }
    (void) uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    (void) uv_timer_start(&s->timer, on_timer, 1000, 0);
    *ret = s;
    return 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct session *s = handle->data;

    while (s->first)
        drop_out(s, &s->first);
    free(s->renewed);
    free(s);
}

struct session *session_free(struct session *s)
{
    if (!s || s->closing)
        return NULL;
    s->closing = true;
    s->state = DOWN;
    s->call = s->logs = s->renewal = NULL; /* freed with the connection */
    s->conn = wire_conn_free(s->conn);
    uv_close((uv_handle_t *) &s->timer, on_timer_closed);
    return NULL;
}
