/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_WIRE_H
#define ADVISOR_WIRE_H

/* A gRPC client on HTTP/2: bytes in, bytes out. It keeps one connection to one target alive and
 * runs calls of any kind over it; what the bytes mean is the caller's business.
 *
 * Thread: everything here belongs to the thread of the loop given to wire_conn_new(). Only a name
 *         that is not an address uses a libuv worker, for getaddrinfo.
 * Blocks: never, apart from reading three small certificate files before each TLS connect.
 *
 * Callbacks may call anything in this header, including wire_call_cancel() on their own call and
 * wire_conn_free() on their own connection.
 *
 * What a hostile server can make this client hold is bounded: per call one message of max_message
 * bytes, one stream window and max_headers bytes; per connection one read buffer, 64 kB unsent
 * bytes and nghttp2's own fixed limits. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct uv_loop_s;
struct wire_conn;
struct wire_call;

struct wire_config {
    const char *target;      /* host:port, [v6]:port or unix:path; several, by commas, are tried in turn */
    const char *server_name; /* name to verify and to send as authority; NULL: the host */
    const char *ca_path;     /* PEM; NULL: the system's store */
    const char *cert_path;   /* PEM client chain; NULL: no client certificate */
    const char *key_path;    /* PEM */
    bool insecure;           /* no TLS; refused unless the peer is loopback or a unix socket */
    const char *user_agent;
    /* Zero means the default in brackets. */
    uint64_t connect_timeout_ms;     /* DNS to SETTINGS, each attempt (20 s) */
    uint64_t keepalive_interval_ms;  /* silence after which a PING is sent (30 s) */
    uint64_t keepalive_timeout_ms;   /* the PING's answer must come within (10 s) */
    uint64_t backoff_min_ms;         /* (1 s) */
    uint64_t backoff_max_ms;         /* (60 s) */
    size_t max_message_bytes;        /* received (4 MB) */
    size_t max_headers_bytes;        /* all header bytes of one call (16 kB) */
    size_t max_send_queue_bytes;     /* per call (1 MB) */
    size_t stream_window_bytes;      /* 1024 .. 16 MB (64 kB - 1) */
};

enum wire_state {
    WIRE_STATE_CONNECTING, /* DNS, TCP, TLS, SETTINGS */
    WIRE_STATE_READY,
    WIRE_STATE_DRAINING, /* the server said GOAWAY: running calls finish, new ones wait for the
                          * next connection, which is made when the last running call has ended */
    WIRE_STATE_BACKOFF,  /* waiting before the next attempt; err tells why */
};

struct wire_conn_ops {
    /* @err is NULL for CONNECTING and READY. May be NULL. */
    void (*on_state)(void *ctx, enum wire_state state, const struct adv_err *err);
};

/* Checks @cfg, copies it and starts connecting from the next loop turn; keeps reconnecting until
 * wire_conn_free(). Sets SIGPIPE to ignored if it still has its default action.
 * Owner:   the caller; NULL ops are allowed.
 * Errors:  -ADV_INVALID_ARGUMENT (target, key without certificate, …); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int wire_conn_new(struct uv_loop_s *loop, const struct wire_config *cfg,
                                 const struct wire_conn_ops *ops, void *ctx,
                                 struct wire_conn **ret_conn, struct adv_err *err);
/* Ends all calls without further callbacks. The memory goes away in a later loop turn, so let the
 * loop run once more before closing it. Returns NULL. */
struct wire_conn *wire_conn_free(struct wire_conn *conn);

enum wire_state wire_conn_state(const struct wire_conn *conn);

/* Drops the present connection, calls fail with UNAVAILABLE; reconnects not before
 * @retry_after_ms (jittered up to a quarter more), with freshly read certificates. Also moves a
 * pending attempt. */
void wire_conn_restart(struct wire_conn *conn, uint64_t retry_after_ms);

/* The expiry of the client certificate in use, seconds since 1970; 0 without TLS or before the
 * first connect. */
int64_t wire_conn_cert_expiry_s(const struct wire_conn *conn);

struct wire_metadata {
    const char *name; /* lower case; a name ending in -bin has its value base64-encoded for it */
    const void *value;
    size_t len;
};

struct wire_status {
    enum adv_code code;
    const char *message; /* valid UTF-8, "" if none */
    const uint8_t *details; /* grpc-status-details-bin decoded: a google.rpc.Status */
    size_t details_len;
    bool from_server; /* false: made here (deadline, lost connection, …) */
};

struct wire_call_ops {
    /* One whole message, valid during the call. */
    void (*on_message)(void *ctx, struct wire_call *call, const uint8_t *data, size_t len);
    /* The end, exactly once, after the last message; the call is gone when this returns. */
    void (*on_closed)(void *ctx, struct wire_call *call, const struct wire_status *status);
    /* The send queue has fallen below a quarter after it was above half or refused a message. May
     * be NULL. */
    void (*on_drained)(void *ctx, struct wire_call *call);
};

enum wire_call_flags {
    /* Wait for a connection, however long (up to the deadline). Without it a call fails with
     * UNAVAILABLE if the connection is in back-off or the attempt under way fails. */
    WIRE_CALL_WAIT_READY = 1,
};

/* Starts a call of "/package.Service/Method". @deadline_ms from now, 0 for none.
 * Owner:   the library; valid until on_closed returns or wire_call_cancel() is called. Callbacks
 *          never come from within this function.
 * Errors:  -ADV_INVALID_ARGUMENT (path or metadata); -ADV_UNAVAILABLE (in back-off);
 *          -ADV_RESOURCE_EXHAUSTED. No callback is made then. */
adv_must_check int wire_call_start(struct wire_conn *conn, const char *path,
                                   const struct wire_metadata *metadata, size_t n_metadata,
                                   uint64_t deadline_ms, unsigned flags,
                                   const struct wire_call_ops *ops, void *ctx,
                                   struct wire_call **ret_call, struct adv_err *err);

/* Queues one message, copying it.
 * Errors:  -ADV_RESOURCE_EXHAUSTED (queue full: nothing was taken, wait for on_drained; a message
 *          is always taken when the queue is empty); -ADV_FAILED_PRECONDITION (half-closed or
 *          already ended). */
adv_must_check int wire_call_send(struct wire_call *call, const void *data, size_t len,
                                  struct adv_err *err);
/* No more messages from this side. */
void wire_call_half_close(struct wire_call *call);
/* Ends the call at once; no callback follows and @call is invalid. Returns NULL; takes NULL. */
struct wire_call *wire_call_cancel(struct wire_call *call);

/* Stops and restarts the flow of messages; while paused at most one stream window is buffered. */
void wire_call_pause(struct wire_call *call);
void wire_call_resume(struct wire_call *call);
size_t wire_call_queued_bytes(const struct wire_call *call);

#endif
