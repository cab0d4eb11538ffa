/* SPDX-License-Identifier: Apache-2.0 */

/* nghttp2 keeps HTTP/2's rules; this file translates between its callbacks and calls.
 *
 * Windows: automatic WINDOW_UPDATE is off. The connection's window is given back at once, since
 * each stream's own window already bounds what can be held; otherwise one paused call would stop
 * the others. A stream's bytes are given back when call.c has used them.
 *
 * Floods: nghttp2 limits queued answers (PING, SETTINGS), CONTINUATION frames and SETTINGS entries
 * by itself and fails the session; push is switched off; header bytes are counted per call. */

#include "advisor-agent/wire/h2.h"

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The connection's window; only speed depends on it. */
#define CONNECTION_WINDOW (1 << 20)
/* Header names and values the client always sends, see wire_h2_open(). */
#define FIXED_FIELDS 9

struct wire_h2 {
    nghttp2_session *session;
    const struct wire_h2_ops *ops;
    void *ctx;
    char *authority;
    const char *user_agent;
    bool tls;
    bool have_settings;
};

static struct wire_call *stream_call(struct wire_h2 *h2, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(h2->session, stream_id);
}

/* The stream no longer belongs to the call. */
static void detach(struct wire_h2 *h2, struct wire_call *c)
{
    (void) nghttp2_session_set_stream_user_data(h2->session, c->stream_id, NULL);
    c->h2 = NULL;
    (void) call_unref(c);
}

/* Shows progress to the call; lets go of the stream once the verdict is there. */
static void settle(struct wire_h2 *h2, struct wire_call *c)
{
    if (!c->ended)
        return;
    (void) call_ref(c);
    if (c->h2) {
        /* Both sides done: the stream closes by itself. */
        if (!c->from_server || !c->eof_taken)
            (void) nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, c->stream_id,
                                             c->from_server ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL);
        detach(h2, c);
    }
    (void) call_deliver(c);
    (void) call_unref(c);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *user)
{
    struct wire_h2 *h2 = user;
    struct wire_call *c = stream_call(h2, frame->hd.stream_id);

    if (!c || frame->hd.type != NGHTTP2_HEADERS)
        return 0;
    if (call_header(c, (const char *) name, name_len, (const char *) value, len) < 0) {
        call_end(c, ADV_RESOURCE_EXHAUSTED, "received headers larger than max (%zu bytes)",
                 c->max_headers_bytes);
        settle(h2, c);
    }
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct wire_h2 *h2 = user;
    struct wire_call *c;

    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK) && !h2->have_settings) {
            h2->have_settings = true;
            h2->ops->on_settings(h2->ctx);
        }
        break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK)
            h2->ops->on_ping_ack(h2->ctx);
        break;
    case NGHTTP2_GOAWAY: {
        char debug[128];
        size_t n = frame->goaway.opaque_data_len;
        (void) snprintf(debug, sizeof(debug), "%.*s", (int) (n < 100 ? n : 100),
                        n ? (const char *) frame->goaway.opaque_data : "");
        h2->ops->on_goaway(h2->ctx, frame->goaway.error_code, debug);
        break;
    }
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        c = stream_call(h2, frame->hd.stream_id);
        if (!c)
            break;
        if (frame->hd.type == NGHTTP2_HEADERS)
            call_headers_done(c);
        if (!c->ended && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
            call_remote_closed(c, 0);
        settle(h2, c);
        break;
    default:
        break;
    }
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t len, void *user)
{
    struct wire_h2 *h2 = user;
    struct wire_call *c = stream_call(h2, stream_id);
    size_t consumed;

    (void) nghttp2_session_consume_connection(session, len);
    if (!c) {
        (void) nghttp2_session_consume_stream(session, stream_id, len);
        return 0;
    }
    (void) call_ref(c);
    call_data(c, data, len, &consumed);
    (void) nghttp2_session_consume_stream(session, stream_id, consumed);
    settle(h2, c);
    (void) call_unref(c);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user)
{
    struct wire_h2 *h2 = user;
    struct wire_call *c = stream_call(h2, stream_id);

    if (!c)
        return 0;
    (void) call_ref(c);
    call_remote_closed(c, error_code);
    detach(h2, c);
    (void) call_deliver(c);
    (void) call_unref(c);
    return 0;
}

static ssize_t read_out(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t length,
                        uint32_t *data_flags, nghttp2_data_source *source, void *user)
{
    struct wire_h2 *h2 = user;
    struct wire_call *c = stream_call(h2, stream_id);
    bool eof;

    if (!c)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    size_t n = call_take(c, buf, length, &eof);
    if (eof)
        *data_flags |= NGHTTP2_DATA_FLAG_EOF;
    else if (n == 0)
        return NGHTTP2_ERR_DEFERRED;
    return (ssize_t) n;
}

/* A DATA frame has left: the moment to ask the application for more. */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct wire_h2 *h2 = user;

    if (frame->hd.type == NGHTTP2_DATA) {
        struct wire_call *c = stream_call(h2, frame->hd.stream_id);
        if (c) {
            (void) call_ref(c);
            call_drained(c);
            (void) call_unref(c);
        }
    }
    return 0;
}

/* A request that could not be sent, for instance because a GOAWAY came first. */
static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int error,
                             void *user)
{
    struct wire_h2 *h2 = user;

    if (frame->hd.type == NGHTTP2_HEADERS) {
        struct wire_call *c = stream_call(h2, frame->hd.stream_id);
        if (c) {
            (void) call_ref(c);
            call_end(c, ADV_UNAVAILABLE, "the request could not be sent: %s",
                     nghttp2_strerror(error));
            detach(h2, c);
            (void) call_deliver(c);
            (void) call_unref(c);
        }
    }
    return 0;
}

int wire_h2_new(const struct wire_config *cfg, const char *authority, bool tls,
                const struct wire_h2_ops *ops, void *ctx, struct wire_h2 **ret_h2,
                struct adv_err *err)
{
    nghttp2_session_callbacks *cb = NULL;
    nghttp2_option *opt = NULL;
    struct wire_h2 *h2 = calloc(1, sizeof(*h2));
    const nghttp2_settings_entry settings[] = {
        { NGHTTP2_SETTINGS_ENABLE_PUSH, 0 },
        { NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t) cfg->stream_window_bytes },
        { NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t) cfg->max_headers_bytes },
    };

    if (!h2 || nghttp2_session_callbacks_new(&cb) || nghttp2_option_new(&opt))
        goto no_memory;
    h2->ops = ops;
    h2->ctx = ctx;
    h2->tls = tls;
    h2->authority = strdup(authority);
    h2->user_agent = cfg->user_agent;
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data_chunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_frame_not_send);
    nghttp2_option_set_no_auto_window_update(opt, 1);
    nghttp2_option_set_no_closed_streams(opt, 1);
    if (!h2->authority || nghttp2_session_client_new2(&h2->session, cb, h2, opt) ||
        nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings, ADV_ARRAY_LEN(settings)) ||
        nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW))
        goto no_memory;
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(opt);
    *ret_h2 = h2;
    return 0;
no_memory:
    if (cb)
        nghttp2_session_callbacks_del(cb);
    if (opt)
        nghttp2_option_del(opt);
    (void) wire_h2_free(h2);
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for an HTTP/2 session");
}

struct wire_h2 *wire_h2_free(struct wire_h2 *h2)
{
    if (!h2)
        return NULL;
    if (h2->session)
        nghttp2_session_del(h2->session);
    free(h2->authority);
    free(h2);
    return NULL;
}

int wire_h2_feed(struct wire_h2 *h2, const uint8_t *data, size_t len, struct adv_err *err)
{
    ssize_t n = nghttp2_session_mem_recv(h2->session, data, len);

    if (n < 0)
        return adv_err_set(err, ADV_UNAVAILABLE, "HTTP/2: %s", nghttp2_strerror((int) n));
    return 0;
}

int64_t wire_h2_pull(struct wire_h2 *h2, const uint8_t **ret_data, struct adv_err *err)
{
    ssize_t n = nghttp2_session_mem_send(h2->session, ret_data);

    if (n < 0)
        return adv_err_set(err, ADV_UNAVAILABLE, "HTTP/2: %s", nghttp2_strerror((int) n));
    return n;
}

bool wire_h2_finished(struct wire_h2 *h2)
{
    return !nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session);
}

static nghttp2_nv field(const char *name, const char *value)
{
    return (nghttp2_nv) {
        .name = (uint8_t *) (uintptr_t) name,
        .namelen = strlen(name),
        .value = (uint8_t *) (uintptr_t) value,
        .valuelen = strlen(value),
    };
}

int wire_h2_open(struct wire_h2 *h2, struct wire_call *call, uint64_t timeout_ms,
                 struct adv_err *err)
{
    adv_auto_free nghttp2_nv *nv = calloc(FIXED_FIELDS + call->n_fields, sizeof(*nv));
    nghttp2_data_provider provider = { .read_callback = read_out };
    char timeout[16];
    size_t n = 0;

    if (!nv)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a call");
    nv[n++] = field(":method", "POST");
    nv[n++] = field(":scheme", h2->tls ? "https" : "http");
    nv[n++] = field(":path", call->path);
    nv[n++] = field(":authority", h2->authority);
    if (timeout_ms) {
        wire_timeout_text(timeout_ms, timeout);
        nv[n++] = field("grpc-timeout", timeout);
    }
    nv[n++] = field("te", "trailers");
    nv[n++] = field("content-type", "application/grpc");
    nv[n++] = field("user-agent", h2->user_agent);
    nv[n++] = field("grpc-accept-encoding", "identity");
    for (size_t i = 0; i < call->n_fields; i++)
        nv[n++] = field(call->fields[i].name, call->fields[i].value);
    int32_t id = nghttp2_submit_request(h2->session, NULL, nv, n, &provider, call);
    if (id < 0)
        return adv_err_set(err, ADV_UNAVAILABLE, "HTTP/2: %s", nghttp2_strerror(id));
    call->stream_id = id;
    call->h2 = h2;
    (void) call_ref(call);
    return 0;
}

void wire_h2_kick(struct wire_call *call)
{
    if (call->h2)
        (void) nghttp2_session_resume_data(call->h2->session, call->stream_id);
}

void wire_h2_reset(struct wire_call *call)
{
    struct wire_h2 *h2 = call->h2;

    if (!h2)
        return;
    (void) nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, call->stream_id,
                                     NGHTTP2_CANCEL);
    detach(h2, call);
}

void wire_h2_consumed(struct wire_call *call, size_t len)
{
    if (call->h2 && len)
        (void) nghttp2_session_consume_stream(call->h2->session, call->stream_id, len);
}

void wire_h2_ping(struct wire_h2 *h2)
{
    (void) nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, NULL);
}

void wire_h2_goaway(struct wire_h2 *h2)
{
    (void) nghttp2_session_terminate_session(h2->session, NGHTTP2_NO_ERROR);
}
