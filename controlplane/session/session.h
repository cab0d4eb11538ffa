/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SESSION_SESSION_H
#define CONTROLPLANE_SESSION_SESSION_H

/* The control plane's half of AgentService.Session as a state machine without I/O: messages and time go in, events for
 * the fleet and messages for the agent come out through `struct session_ops`. proto/advisor/v1/agent_service.proto tells
 * the protocol.
 *
 * The caller gives the next message only after session_ops.next() was called. Of what tells of one thing (statuses,
 * actions, telemetry) a session of an agent that sends several has several under way, so that one transaction takes them;
 * they are copied, within bounds.
 * Everything else waits for what came before it and is alone, so its event may borrow the message's texts until it is done.
 * Either way order holds, and a slow store pushes back to the agent.
 *
 * Thread: loop thread.  Blocks: no. */

#include "advisor/v1/agent_service.pb-c.h"

#include "controlplane/domain/fleet.h"

struct session;

typedef void (*session_event_cb)(void *arg, const struct event *ev, const struct adv_err *err);
typedef void (*session_read_cb)(void *arg, const struct adv_err *err);

struct session_ops {
    /* Applies a copy of @ev and calls @cb when it is durable (never before this returns), or @err says why not. Events are
     * applied in the order of these calls; when one fails, those submitted before its @cb fail too, EV_AGENT_GONE excepted. */
    void (*submit)(void *ctx, const struct event *ev, session_event_cb cb, void *arg);
    /* Calls @cb when memory equals the store. May call at once. */
    void (*read)(void *ctx, session_read_cb cb, void *arg);
    /* The fleet, inside the callbacks of read and submit and inside session_changed(). */
    struct fleet *(*fleet)(void *ctx);
    int64_t (*mono_us)(void *ctx); /* the clock of struct event.mono_us */
    int64_t (*wall_us)(void *ctx);
    void (*send)(void *ctx, const Advisor__V1__SessionResponse *msg);
    /* Ready for the next message. True: it is here already, and will be given soon. */
    bool (*next)(void *ctx);
    /* Ends the call with this error; session_closed() follows. */
    void (*fail)(void *ctx, const struct adv_err *err);
};

/* What this side takes; the API's table of calls has the same. */
#define SESSION_MESSAGE_BYTES     (1 << 20)
#define SESSION_LOG_MESSAGE_BYTES (256 << 10)

struct session_config {
    const char *session_id;   /* random, not guessable */
    const char *store_uuid;
    const char *peer_cluster; /* the cluster of the certificate; NULL: not authenticated (insecure): Hello's is taken */
    const char *principal;    /* for the audit log */
    const char *serial;       /* of its certificate; "" without one */
    int64_t issued_s;         /* of its certificate; INT64_MAX without one */
    uint32_t heartbeat_interval_ms;
    uint32_t silence_timeout_ms;
    bool rearm_children;      /* said in every order */
};

adv_must_check struct session *session_new(const struct session_config *cfg, const struct session_ops *ops, void *ctx);
/* Frees once nothing is outstanding; callbacks of submit and read may still come and are then swallowed. @why is static
 * text. */
void session_close(struct session *s, const char *why);

/* One message of the agent. Valid until next(). */
void session_message(struct session *s, const Advisor__V1__SessionRequest *msg);

/* After the callbacks of a turn: acknowledges, once, all that became durable with it, and asks for more. */
void session_flush(struct session *s);

/* Something was committed: answers a waiting Pull, tells a new mode, a new focus. */
void session_changed(struct session *s);

/* Call about once a second: ends a session that has been silent for too long. */
void session_tick(struct session *s);

/* The cluster, once Hello was accepted; NULL before. */
const char *session_cluster(const struct session *s);
const char *session_id(const struct session *s);
const char *session_journal(const struct session *s);
/* May act: it holds the lease. */
bool session_active(const struct session *s);

/* An agent's time in milliseconds as ours; what no clock shows is 0, which means that it is not known. */
int64_t session_wall_us(int64_t wall_ms);

#endif
