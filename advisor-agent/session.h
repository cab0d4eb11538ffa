/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_SESSION_H
#define ADVISOR_AGENT_SESSION_H

/* The agent's side of AgentService: one connection, one Session call and one PushLogs call, made
 * again and again. agent_service.proto tells the protocol.
 *
 * What must not be lost (actions, statuses, telemetry) is queued here until it is acknowledged and is
 * sent again, renumbered, in the next session. Observations are not queued: session_ops.take_state()
 * is asked for the newest when there is room.
 *
 * Thread: loop thread.  Blocks: no. Only lost() and take_state() may come from within a call here. */

#include "advisor/v1/agent_service.pb.h"

#include "advisor-agent/wire/wire.h"

/* The largest message that is taken. */
#define SESSION_MESSAGE_BYTES (256u << 10)
/* wire_config.max_send_queue_bytes must be this. */
#define SESSION_QUEUE_BYTES   (256u << 10)

struct session;

struct session_ops {
    /* Fills Hello; what it points to must live until the next call. */
    void (*hello)(void *ctx, advisor_v1_Hello *ret);
    void (*heartbeat)(void *ctx, advisor_v1_Heartbeat *ret);
    /* Answered; @sent_boot_us is when the Hello left. */
    void (*welcome)(void *ctx, const advisor_v1_Welcome *w, int64_t sent_boot_us);
    void (*heartbeat_ack)(void *ctx, const advisor_v1_HeartbeatAck *a, int64_t sent_boot_us);
    void (*order)(void *ctx, const advisor_v1_AdviceOrder *o);
    /* A Pull was answered: all orders that there are have come at least once. */
    void (*pulled)(void *ctx);
    void (*focus)(void *ctx, const advisor_v1_Focus *f);
    void (*resync)(void *ctx, const char *reason);
    /* The session has ended; it will be made anew. */
    void (*lost)(void *ctx, const char *why);
    bool (*take_state)(void *ctx, size_t budget_bytes, advisor_v1_StateUpdate *ret);
    /* The log stream takes more. */
    void (*logs_ready)(void *ctx);
    /* A new stream for logs: what the one before took last may be lost. */
    void (*logs_opened)(void *ctx);
};

adv_must_check int session_new(struct uv_loop_s *loop, const struct wire_config *wire,
                               const struct session_ops *ops, void *ctx, struct session **ret,
                               struct adv_err *err);
struct session *session_free(struct session *s);

bool session_active(const struct session *s);
/* Not acknowledged yet. */
size_t session_outbox_count(const struct session *s);

/* Queued until acknowledged. A newer status of the same advice, or telemetry of the same attempt, replaces
 * one that was not sent. The queue is bounded: telemetry is refused when half of it is full (tell it later)
 * or, if it is @last of its attempt and could not be told later, when it is full; beyond the whole the oldest telemetry
 * and statuses go, actions stay.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int session_send_status(struct session *s, const advisor_v1_AdviceStatusReport *m,
                                       struct adv_err *err);
adv_must_check int session_send_action(struct session *s, const advisor_v1_ActionReport *m,
                                       struct adv_err *err);
adv_must_check int session_send_telemetry(struct session *s, const advisor_v1_TelemetryReport *m, bool last,
                                          struct adv_err *err);
/* State has changed: take_state() will be asked. */
void session_state_changed(struct session *s);
/* A heartbeat now, out of turn (the ceiling has changed). */
void session_heartbeat_now(struct session *s);
/* Ends the session, calling lost(), and stays away for @retry_after_ms. May be called from within any op. */
void session_give_up(struct session *s, const char *why, int64_t retry_after_ms);
/* Asks for the next certificate (AgentService.Renew) with this signing request. @cb comes once, later, with the chain (PEM) or
 * with @err, whose reason is one of the control plane's; not after session_free().
 * Errors: -ADV_FAILED_PRECONDITION (no session, or one is asked for already); -ADV_UNAVAILABLE; -ADV_RESOURCE_EXHAUSTED. */
typedef void (*session_renew_cb)(void *arg, const void *chain, size_t len, const struct adv_err *err);
adv_must_check int session_renew(struct session *s, const void *csr, size_t len, session_renew_cb cb, void *arg,
                                 struct adv_err *err);
/* When the certificate that the present connection shows expires; 0 without one. */
int64_t session_cert_expiry_s(const struct session *s);

/* False: not now, logs_ready() follows. */
bool session_push_log(struct session *s, const advisor_v1_LogChunk *chunk, const void *data,
                      size_t len);
/* Bytes that session_push_log() has taken since the beginning, and how many of them do not wait here any more. False: no
 * stream is open, what was taken last may be lost. */
bool session_logs_count(const struct session *s, uint64_t *ret_taken, uint64_t *ret_left);

#endif
