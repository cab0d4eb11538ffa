/* SPDX-License-Identifier: Apache-2.0 */

/* The agent's session over a wire that takes what it has room for and is emptied when the test says so:
 * what goes first, what waits, and what is left for heartbeats. */

#include <criterion/criterion.h>
#include <pb_decode.h>
#include <pb_encode.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "advisor-agent/session.h"
#include "advisor-agent/wire/codec.h"

struct wire_conn {
    const struct wire_conn_ops *ops;
    void *ctx;
};

struct wire_call {
    const struct wire_call_ops *ops;
    void *ctx;
    size_t queued;
    bool refused;
    bool logs;
};

static struct wire_conn conn;
static struct wire_call calls[2]; /* Session, PushLogs */
static enum wire_state conn_state;
static char sent[4000]; /* kinds, in order, of the session's messages */
static uint64_t last_seq;
static unsigned n_lost;
static unsigned states_left; /* updates that take_state() has */
static size_t status_bytes;

int wire_conn_new(uv_loop_t *loop, const struct wire_config *cfg, const struct wire_conn_ops *ops, void *ctx,
                  struct wire_conn **ret, struct adv_err *err)
{
    conn = (struct wire_conn) { ops, ctx };
    *ret = &conn;
    return 0;
}

struct wire_conn *wire_conn_free(struct wire_conn *c)
{
    return NULL;
}

enum wire_state wire_conn_state(const struct wire_conn *c)
{
    return conn_state;
}

void wire_conn_restart(struct wire_conn *c, uint64_t retry_after_ms)
{
}

int64_t wire_conn_cert_expiry_s(const struct wire_conn *c)
{
    return 0;
}

int wire_call_start(struct wire_conn *c, const char *path, const struct wire_metadata *metadata, size_t n_metadata,
                    uint64_t deadline_ms, unsigned flags, const struct wire_call_ops *ops, void *ctx,
                    struct wire_call **ret, struct adv_err *err)
{
    bool logs = strstr(path, "PushLogs") != NULL;

    calls[logs] = (struct wire_call) { .ops = ops, .ctx = ctx, .logs = logs };
    *ret = &calls[logs];
    return 0;
}

static void note(const void *data, size_t len)
{
    static const char *const names[] = {
        [advisor_v1_SessionRequest_hello_tag] = "hello",
        [advisor_v1_SessionRequest_heartbeat_tag] = "heartbeat",
        [advisor_v1_SessionRequest_state_update_tag] = "state",
        [advisor_v1_SessionRequest_pull_tag] = "pull",
        [advisor_v1_SessionRequest_advice_status_tag] = "status",
        [advisor_v1_SessionRequest_action_tag] = "action",
        [advisor_v1_SessionRequest_telemetry_tag] = "telemetry",
    };
    advisor_v1_SessionRequest m = advisor_v1_SessionRequest_init_zero;
    pb_istream_t is = pb_istream_from_buffer(data, len);

    cr_assert(pb_decode(&is, advisor_v1_SessionRequest_fields, &m), "%s", PB_GET_ERROR(&is));
    if (m.seq) {
        cr_assert_eq(m.seq, last_seq + 1);
        last_seq = m.seq;
    }
    if (strlen(sent) < sizeof(sent) - 20)
        (void) snprintf(sent + strlen(sent), sizeof(sent) - strlen(sent), "%s ", names[m.which_message]);
    pb_release(advisor_v1_SessionRequest_fields, &m);
}

int wire_call_send(struct wire_call *c, const void *data, size_t len, struct adv_err *err)
{
    if (c->queued && c->queued + len > SESSION_QUEUE_BYTES) {
        c->refused = true;
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "full");
    }
    c->queued += len;
    if (!c->logs)
        note(data, len);
    return 0;
}

void wire_call_half_close(struct wire_call *c)
{
}

struct wire_call *wire_call_cancel(struct wire_call *c)
{
    return NULL;
}

size_t wire_call_queued_bytes(const struct wire_call *c)
{
    return c->queued;
}

/* The agent */

static void op_hello(void *ctx, advisor_v1_Hello *h)
{
    h->cluster = (char *) (uintptr_t) "c";
}

static void op_heartbeat(void *ctx, advisor_v1_Heartbeat *h)
{
}

static void op_welcome(void *ctx, const advisor_v1_Welcome *w, int64_t at)
{
}

static void op_ack(void *ctx, const advisor_v1_HeartbeatAck *a, int64_t at)
{
}

static void op_order(void *ctx, const advisor_v1_AdviceOrder *o)
{
}

static void op_nothing(void *ctx)
{
}

static void op_focus(void *ctx, const advisor_v1_Focus *f)
{
}

static void op_resync(void *ctx, const char *why)
{
}

static void op_lost(void *ctx, const char *why)
{
    n_lost++;
}

static bool op_take_state(void *ctx, size_t budget, advisor_v1_StateUpdate *ret)
{
    if (!states_left)
        return false;
    states_left--;
    ret->digest = 1;
    return true;
}

static const struct session_ops ops = { op_hello, op_heartbeat, op_welcome, op_ack, op_order, op_nothing, op_focus,
                                        op_resync, op_lost, op_take_state, op_nothing, op_nothing };

static struct session *s;

static void setup(void)
{
    struct wire_config wire = { .target = "x" };

    status_bytes = 300;
    cr_assert_eq(session_new(uv_default_loop(), &wire, &ops, NULL, &s, NULL), 0);
}

static void teardown(void)
{
    s = session_free(s);
    (void) uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(uv_default_loop()), 0);
}

TestSuite(agent_session, .init = setup, .fini = teardown, .timeout = 60);

static void give(const advisor_v1_SessionResponse *m)
{
    size_t size;
    adv_auto_free uint8_t *buf = NULL;

    cr_assert(pb_get_encoded_size(&size, advisor_v1_SessionResponse_fields, m));
    cr_assert((buf = malloc(size + 1)));
    pb_ostream_t os = pb_ostream_from_buffer(buf, size);
    cr_assert(pb_encode(&os, advisor_v1_SessionResponse_fields, m));
    calls[0].ops->on_message(calls[0].ctx, &calls[0], buf, os.bytes_written);
}

static void welcome(void)
{
    static advisor_v1_SessionResponse m; /* large */

    memset(&m, 0, sizeof(m));
    sent[0] = '\0';
    last_seq = 0;
    conn_state = WIRE_STATE_READY;
    conn.ops->on_state(conn.ctx, WIRE_STATE_READY, NULL);
    m.which_message = advisor_v1_SessionResponse_welcome_tag;
    strcpy(m.message.welcome.session_id, "s");
    m.message.welcome.heartbeat_interval_ms = 100000;
    m.message.welcome.silence_timeout_ms = 300000;
    m.message.welcome.has_grant = true;
    give(&m);
}

static void ack(uint64_t seq)
{
    static advisor_v1_SessionResponse m;

    m.which_message = advisor_v1_SessionResponse_ack_tag;
    m.message.ack.durable_through_seq = seq;
    give(&m);
}

static void drain(void)
{
    calls[0].queued = 0;
    calls[0].ops->on_drained(calls[0].ctx, &calls[0]);
}

static int telemetry_of(unsigned job, bool last)
{
    advisor_v1_TelemetryReport m = { .has_attempt = true, .state = advisor_v1_TelemetryState_TELEMETRY_STATE_LOST };

    (void) snprintf(m.attempt.job_id, sizeof(m.attempt.job_id), "%u", job);
    return session_send_telemetry(s, &m, last, NULL);
}

static int telemetry(unsigned job)
{
    return telemetry_of(job, false);
}

static void status(unsigned n)
{
    advisor_v1_AdviceStatusReport m = { .observed_generation = 1 };

    (void) snprintf(m.advice, sizeof(m.advice), "advice %u", n);
    memset(m.detail, 'x', status_bytes);
    cr_assert_eq(session_send_status(s, &m, NULL), 0);
}

static unsigned count(const char *kind)
{
    unsigned n = 0;

    for (const char *p = sent; (p = strstr(p, kind)); p++)
        n++;
    return n;
}

/* Telemetry of an attempt that is not known there is lost. */
Test(agent_session, telemetry_goes_behind_the_state_that_it_speaks_of)
{
    cr_assert_eq(telemetry(7), 0);
    status(1);
    states_left = 3;
    welcome();
    cr_assert_str_eq(sent, "hello pull status state state state telemetry ");
    sent[0] = '\0';
    states_left = 1;
    cr_assert_eq(telemetry(8), 0); /* before it was said that there is news */
    session_state_changed(s);
    cr_assert_str_eq(sent, "state telemetry ");
}

/* The window of states is full: what is not sent may be of the very attempt. */
Test(agent_session, telemetry_waits_while_states_wait)
{
    states_left = 10;
    welcome();
    cr_assert_eq(telemetry(7), 0);
    status(1);
    cr_assert_eq(count("telemetry"), 0);
    cr_assert_eq(count("status"), 1);
    ack(8);
    cr_assert_eq(count("state "), 10);
    cr_assert_eq(count("telemetry"), 1);
    cr_assert(strstr(sent, "state telemetry "), "%s", sent);
}

/* A queue that is less than half full is not heard of when it is empty: nothing may wait for that. */
Test(agent_session, state_waits_for_a_queue_that_is_more_than_half_full)
{
    welcome();
    calls[0].queued = SESSION_QUEUE_BYTES / 2 + 1;
    states_left = 1;
    session_state_changed(s);
    cr_assert_eq(count("state "), 0);
    calls[0].queued--;
    session_state_changed(s);
    cr_assert_eq(count("state "), 1);
}

/* What was sent and not acknowledged keeps its place behind the state in the next session. */
Test(agent_session, telemetry_that_is_sent_again_goes_behind_the_state_again)
{
    welcome();
    cr_assert_eq(telemetry(7), 0);
    session_give_up(s, "test", 0);
    cr_assert_eq(n_lost, 1);
    states_left = 2;
    welcome();
    cr_assert_str_eq(sent, "hello pull state state telemetry ");
    ack(last_seq);
    cr_assert_eq(session_outbox_count(s), 0);
}

Test(agent_session, newer_telemetry_of_an_attempt_replaces_what_waits)
{
    cr_assert_eq(telemetry(7), 0);
    cr_assert_eq(telemetry(7), 0);
    cr_assert_eq(telemetry(8), 0);
    cr_assert_eq(session_outbox_count(s), 2);
}

/* It can be told later; a status or an action is told once. */
Test(agent_session, telemetry_is_refused_before_anything_is_shed)
{
    unsigned n = 0;

    while (telemetry(n) == 0)
        cr_assert_lt(++n, 10000);
    cr_assert_geq(n, 4000);
    status(1);
    cr_assert_eq(session_outbox_count(s), n + 1);
    cr_assert_eq(telemetry(n - 1), 0); /* in place of what it said before */
}

/* Nor the last of an attempt, which has room where others have none. It sheds nothing either. */
Test(agent_session, the_last_telemetry_of_an_attempt_has_room)
{
    unsigned n = 0;

    while (telemetry(n) == 0)
        cr_assert_lt(++n, 10000);
    for (; telemetry_of(n, true) == 0; n++)
        cr_assert_lt(n, 10000);
    cr_assert_geq(n, 8000);
    cr_assert_eq(session_outbox_count(s), n);
    status(1);
    cr_assert_eq(session_outbox_count(s), n, "the oldest goes");
}

/* A flood of reports leaves room, so that a heartbeat is neither refused, which would end the session, nor late. */
Test(agent_session, a_heartbeat_has_room_behind_a_flood_of_reports)
{
    status_bytes = 500;
    for (unsigned i = 0; i < 2000; i++)
        status(i);
    welcome();
    cr_assert_leq(calls[0].queued, SESSION_QUEUE_BYTES / 4 * 3 + 1000);
    cr_assert_geq(calls[0].queued, SESSION_QUEUE_BYTES / 2); /* so that it is heard when it is drained */
    cr_assert(!calls[0].refused);
    for (int i = 0; i < 100; i++)
        session_heartbeat_now(s);
    cr_assert_eq(n_lost, 0);
    cr_assert_eq(count("heartbeat"), 100);
    while (last_seq < 2000) {
        uint64_t before = last_seq;
        drain();
        cr_assert_gt(last_seq, before);
    }
    ack(2000);
    cr_assert_eq(session_outbox_count(s), 0);
}

static void refuse(enum adv_code code)
{
    struct wire_status st = { .code = code, .message = "test", .from_server = true };

    calls[0].ops->on_closed(calls[0].ctx, &calls[0], &st);
}

/* Or it would be sent first again in every session, for ever, and nothing else of the cluster be heard. */
Test(agent_session, what_the_control_plane_cannot_take_is_dropped_and_nothing_else)
{
    states_left = 1;
    status(1);
    status(2);
    status(3);
    welcome();
    cr_assert_str_eq(sent, "hello pull status status status state ");
    refuse(ADV_INVALID_ARGUMENT); /* over the second, but that cannot be known yet */
    cr_assert_eq(session_outbox_count(s), 3);
    states_left = 1;
    welcome();
    cr_assert_str_eq(sent, "hello pull status ");
    ack(1);
    cr_assert_str_eq(sent, "hello pull status status ");
    refuse(ADV_INVALID_ARGUMENT);
    cr_assert_eq(session_outbox_count(s), 1);
    welcome();
    cr_assert_str_eq(sent, "hello pull status ");
    ack(1);
    cr_assert_str_eq(sent, "hello pull status state ");
    cr_assert_eq(session_outbox_count(s), 0);
}

/* What a state update may be to blame for, and what is refused for another reason, costs no report. */
Test(agent_session, nothing_is_dropped_for_another_reason)
{
    status(1);
    for (int i = 0; i < 4; i++) {
        welcome();
        refuse(i ? ADV_UNAVAILABLE : ADV_INVALID_ARGUMENT);
    }
    states_left = 1;
    welcome();
    ack(1);
    cr_assert_eq(telemetry(7), 0);
    cr_assert_eq(count("state "), 1);
    refuse(ADV_INVALID_ARGUMENT);
    cr_assert_eq(session_outbox_count(s), 1);
    states_left = 1;
    welcome();
    cr_assert_str_eq(sent, "hello pull state ");
    refuse(ADV_INVALID_ARGUMENT); /* the state alone */
    cr_assert_eq(session_outbox_count(s), 1);
    welcome();
    cr_assert_str_eq(sent, "hello pull telemetry ");
    ack(1);
    cr_assert_eq(session_outbox_count(s), 0);
}
