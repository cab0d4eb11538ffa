/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_WIRE_CALL_H
#define ADVISOR_WIRE_CALL_H

/* One gRPC call without a connection under it: what is queued to be sent, what has arrived, and how
 * it ended. h2.c moves its bytes, conn.c its deadlines; tests drive it alone. */

#include "advisor-agent/wire/codec.h"
#include "advisor-agent/wire/wire.h"
#include "common/buf.h"

struct wire_h2;

struct wire_field {
    char *name;
    char *value;
};

struct wire_call {
    struct wire_call *prev, *next; /* the connection's list */
    struct wire_conn *conn;        /* NULL once unlinked, and in tests */
    void (*on_gone)(struct wire_call *c); /* after on_closed; conn.c takes it off its list */
    struct wire_h2 *h2;            /* NULL before the stream exists and after it has gone */
    int32_t stream_id;
    unsigned refs;
    unsigned flags;

    const struct wire_call_ops *ops; /* NULL: no more callbacks */
    void *ctx;
    char *path;
    struct wire_field *fields; /* user's metadata, encoded */
    size_t n_fields;
    int64_t deadline_mono_ms; /* 0: none */

    /* Sending. */
    struct adv_buf out; /* framed messages not yet taken by the stream */
    size_t max_queue_bytes;
    bool want_drained;
    bool half_closed;
    bool eof_taken; /* the stream knows of the half-close */
    bool doomed;    /* conn.c: to be ended with the connection */

    /* Receiving. */
    struct wire_deframer in;
    struct adv_buf held; /* DATA that came while paused, at most one window; not yet given back */
    bool paused;
    bool delivering;

    /* The answer's headers. */
    size_t max_headers_bytes;
    size_t headers_bytes;
    int http_status;
    bool grpc_type;
    bool have_status;
    bool ended; /* the verdict below is final; on_closed may still wait for held data */
    enum adv_code code;
    char *message;
    uint8_t *details;
    size_t details_len;
    bool from_server;
};

adv_must_check int call_new(const char *path, const struct wire_metadata *metadata,
                            size_t n_metadata, const struct wire_config *cfg,
                            const struct wire_call_ops *ops, void *ctx,
                            struct wire_call **ret_call, struct adv_err *err);
struct wire_call *call_ref(struct wire_call *c);
struct wire_call *call_unref(struct wire_call *c);

/* Moves up to @room queued bytes to @dst; *ret_eof: nothing more will ever come. */
size_t call_take(struct wire_call *c, uint8_t *dst, size_t room, bool *ret_eof);
/* Calls on_drained if it is due. */
void call_drained(struct wire_call *c);

/* Arrived header or trailer. Errors: -ADV_RESOURCE_EXHAUSTED (too many bytes). */
adv_must_check int call_header(struct wire_call *c, const char *name, size_t name_len,
                               const char *value, size_t len);
/* The first header block is complete: may decide that the call has failed (then c->ended). */
void call_headers_done(struct wire_call *c);
/* Arrived DATA; delivers messages. *ret_consumed bytes may be given back to the stream's window
 * now. A bad message ends the call (then c->ended). */
void call_data(struct wire_call *c, const uint8_t *data, size_t len, size_t *ret_consumed);
/* The server closed the stream; @h2_code is the reset's code or 0. */
void call_remote_closed(struct wire_call *c, uint32_t h2_code);
/* Ends the call from this side, unless it has ended. */
void call_end(struct wire_call *c, enum adv_code code, const char *fmt, ...) ADV_PRINTF(3, 4);
/* Delivers what may be delivered, and the end if it is reached. Returns bytes for the window. */
size_t call_deliver(struct wire_call *c);

ADV_DEFINE_CLEANUP(wire_call, call_unref);

#endif
