/* SPDX-License-Identifier: Apache-2.0 */

/* A call is a small state machine between the application and an HTTP/2 stream.
 *
 * Model: DATA is cut into messages and handed over at once, unless the application has paused the
 * call; then bytes gather in `held` and are not given back to the stream's window, so the server
 * stops after one window. A message that is larger than the window still arrives, because bytes of
 * a message under assembly are given back as they come; max_message bounds that.
 *
 * The verdict (code, message, details) is formed once, by the first of: a trailer, a protocol
 * violation, a reset, or this side. It is shown only after all data that came before it.
 *
 * Invariants: no callback after ops is NULL; on_closed exactly once; a reference is held around
 * every callback, because it may cancel the call. */

#include "advisor-agent/wire/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"

/* A server's message is for people; more than this is noise. */
#define MESSAGE_MAX 4096u

static char *field_value(const struct wire_metadata *m)
{
    size_t n = strlen(m->name);

    if (n > 4 && strcmp(m->name + n - 4, "-bin") == 0) {
        char *text = malloc((m->len + 2) / 3 * 4 + 1);
        if (text)
            (void) wire_base64_encode(m->value, m->len, text);
        return text;
    }
    return strndup(m->len ? m->value : "", m->len);
}

int call_new(const char *path, const struct wire_metadata *metadata, size_t n_metadata,
             const struct wire_config *cfg, const struct wire_call_ops *ops, void *ctx,
             struct wire_call **ret_call, struct adv_err *err)
{
    ADV_AUTO(wire_call) c = NULL;
    const char *slash = path && path[0] == '/' ? strchr(path + 1, '/') : NULL;

    if (!slash || slash == path + 1 || !slash[1] || strchr(slash + 1, '/') || strlen(path) > 512)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "bad method path");
    for (const char *p = path; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f)
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "bad method path");
    c = calloc(1, sizeof(*c));
    if (!c)
        goto no_memory;
    c->refs = 1;
    c->ops = ops;
    c->ctx = ctx;
    c->max_queue_bytes = cfg->max_send_queue_bytes;
    c->max_headers_bytes = cfg->max_headers_bytes;
    c->in.max_bytes = cfg->max_message_bytes;
    /* A message is taken whole when the queue is empty, so the buffer itself has no lower limit. */
    adv_buf_init(&c->out, SIZE_MAX / 2);
    adv_buf_init(&c->held, cfg->stream_window_bytes + 65536);
    c->path = strdup(path);
    c->fields = calloc(n_metadata + 1, sizeof(*c->fields));
    if (!c->path || !c->fields)
        goto no_memory;
    for (size_t i = 0; i < n_metadata; i++) {
        if (!wire_metadata_legal(metadata[i].name, metadata[i].value, metadata[i].len))
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "bad metadata '%.60s'",
                               metadata[i].name);
        struct wire_field *f = &c->fields[c->n_fields++];
        f->name = strdup(metadata[i].name);
        f->value = field_value(&metadata[i]);
        if (!f->name || !f->value)
            goto no_memory;
    }
    *ret_call = ADV_STEAL(c);
    return 0;
no_memory:
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a call");
}

struct wire_call *call_ref(struct wire_call *c)
{
    c->refs++;
    return c;
}

struct wire_call *call_unref(struct wire_call *c)
{
    if (!c || --c->refs > 0)
        return NULL;
    for (size_t i = 0; i < c->n_fields; i++) {
        free(c->fields[i].name);
        free(c->fields[i].value);
    }
    free(c->fields);
    free(c->path);
    free(c->message);
    free(c->details);
    adv_buf_done(&c->out);
    adv_buf_done(&c->held);
    wire_deframer_done(&c->in);
    free(c);
    return NULL;
}

size_t call_take(struct wire_call *c, uint8_t *dst, size_t room, bool *ret_eof)
{
    size_t n = c->out.len < room ? c->out.len : room;

    if (n)
        memcpy(dst, c->out.data, n);
    adv_buf_consume(&c->out, n);
    *ret_eof = c->eof_taken = c->half_closed && c->out.len == 0;
    return n;
}

void call_drained(struct wire_call *c)
{
    if (!c->want_drained || c->out.len > c->max_queue_bytes / 4)
        return;
    c->want_drained = false;
    if (c->out.len == 0 && c->max_queue_bytes > 0) {
        /* An idle call should not keep the room of its busiest moment. */
        adv_buf_done(&c->out);
        adv_buf_init(&c->out, SIZE_MAX / 2);
    }
    if (c->ops && c->ops->on_drained && !c->ended)
        c->ops->on_drained(c->ctx, c);
}

static bool name_is(const char *name, size_t len, const char *want)
{
    return strlen(want) == len && memcmp(name, want, len) == 0;
}

/* Digits only; -1 otherwise. */
static int small_number(const char *text, size_t len)
{
    int n = 0;

    if (len == 0 || len > 3)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        n = n * 10 + (text[i] - '0');
    }
    return n;
}

int call_header(struct wire_call *c, const char *name, size_t name_len, const char *value,
                size_t len)
{
    c->headers_bytes += name_len + len + 32;
    if (c->headers_bytes > c->max_headers_bytes)
        return -ADV_RESOURCE_EXHAUSTED;
    if (c->ended)
        return 0;
    if (name_is(name, name_len, ":status")) {
        c->http_status = small_number(value, len);
    } else if (name_is(name, name_len, "content-type")) {
        static const char type[] = "application/grpc";
        size_t n = sizeof(type) - 1;
        c->grpc_type = len >= n && memcmp(value, type, n) == 0 &&
                       (len == n || value[n] == '+' || value[n] == ';');
    } else if (name_is(name, name_len, "grpc-status") && !c->have_status) {
        int code = small_number(value, len);
        c->have_status = true;
        c->code = code < 0 || code > (int) ADV_UNAUTHENTICATED ? ADV_UNKNOWN : (enum adv_code) code;
    } else if (name_is(name, name_len, "grpc-message") && !c->message) {
        adv_auto_free char *text = strndup(value, len);
        if (text) {
            size_t n = wire_percent_decode(text, len);
            c->message = adv_utf8_lossy(text, adv_utf8_cut(text, n, MESSAGE_MAX));
        }
    } else if (name_is(name, name_len, "grpc-status-details-bin") && !c->details) {
        c->details = malloc(len / 4 * 3 + 3);
        if (c->details && wire_base64_decode(value, len, c->details, &c->details_len) < 0) {
            free(c->details);
            c->details = NULL;
        }
    }
    return 0;
}

void call_end(struct wire_call *c, enum adv_code code, const char *fmt, ...)
{
    va_list ap;
    char text[512];

    if (c->ended)
        return;
    c->ended = true;
    c->code = code;
    if (!c->delivering)
        adv_buf_reset(&c->held);
    free(c->message);
    free(c->details);
    c->details = NULL;
    c->details_len = 0;
    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    c->message = strdup(text);
}

void call_headers_done(struct wire_call *c)
{
    if (c->ended || c->have_status)
        return;
    if (c->http_status >= 100 && c->http_status < 200) {
        c->http_status = 0; /* interim, the real one follows */
        return;
    }
    if (c->http_status != 200)
        call_end(c, wire_code_of_http(c->http_status), "the server answered HTTP status %d",
                 c->http_status);
    else if (!c->grpc_type)
        call_end(c, ADV_UNKNOWN, "the server's content type is not gRPC");
}

void call_remote_closed(struct wire_call *c, uint32_t h2_code)
{
    if (c->ended)
        return;
    if (c->have_status)
        c->ended = c->from_server = true;
    else if (h2_code)
        call_end(c, wire_code_of_h2(h2_code), "stream reset by the server, HTTP/2 error %u",
                 h2_code);
    else
        call_end(c, ADV_INTERNAL, "the server closed the stream without a status");
}

/* Cuts @data into messages until it is used up, the call is paused or has ended. */
static size_t deframe(struct wire_call *c, const uint8_t *data, size_t len)
{
    size_t done = 0;

    while (done < len && !c->paused && c->ops) {
        struct adv_err err;
        size_t used;
        bool complete;
        int r = wire_deframer_feed(&c->in, data + done, len - done, &used, &complete, &err);
        if (r < 0) {
            c->ended = false; /* a bad message outweighs a status that came after it */
            call_end(c, (enum adv_code) -r, "%s", err.msg);
            c->from_server = false;
            return len;
        }
        done += used;
        if (!complete)
            continue;
        if (c->ops->on_message)
            c->ops->on_message(c->ctx, c, c->in.body ? c->in.body : (const uint8_t *) "",
                               c->in.need);
        wire_deframer_next(&c->in);
    }
    return c->ops ? done : len;
}

void call_data(struct wire_call *c, const uint8_t *data, size_t len, size_t *ret_consumed)
{
    *ret_consumed = len;
    if (c->ended || !c->ops)
        return;
    if (c->http_status != 200 || !c->grpc_type) {
        call_end(c, ADV_INTERNAL, "data before a gRPC header");
        return;
    }
    (void) call_ref(c);
    size_t done = 0;
    if (c->held.len == 0 && !c->delivering) {
        c->delivering = true;
        done = deframe(c, data, len);
        c->delivering = false;
    }
    if (done < len && c->ops && !c->ended) {
        if (adv_buf_append(&c->held, data + done, len - done) < 0) {
            call_end(c, ADV_RESOURCE_EXHAUSTED, "the server sent more than its window");
        } else {
            *ret_consumed = done;
        }
    }
    (void) call_unref(c);
}

size_t call_deliver(struct wire_call *c)
{
    size_t freed = 0;

    if (c->delivering || !c->ops)
        return 0;
    (void) call_ref(c);
    c->delivering = true;
    while (c->held.len > 0 && !c->paused && c->ops) {
        /* A callback may pause: what is not used stays. Nothing appends meanwhile, for reading
         * from the connection never happens inside a callback. */
        size_t done = deframe(c, (const uint8_t *) c->held.data, c->held.len);
        adv_buf_consume(&c->held, done);
        freed += done;
    }
    if (c->held.len == 0 && freed > 0)
        adv_buf_reset(&c->held);
    c->delivering = false;
    if (c->ended && c->held.len == 0 && c->ops) {
        if (c->code == ADV_OK && !wire_deframer_idle(&c->in)) {
            c->ended = false;
            call_end(c, ADV_INTERNAL, "the server ended within a message");
            c->from_server = false;
        }
        const struct wire_call_ops *ops = c->ops;
        struct wire_status status = {
            .code = c->code,
            .message = c->message ? c->message : "",
            .details = c->details,
            .details_len = c->details_len,
            .from_server = c->from_server,
        };
        c->ops = NULL;
        if (ops->on_closed)
            ops->on_closed(c->ctx, c, &status);
        if (c->on_gone)
            c->on_gone(c);
    }
    (void) call_unref(c);
    return freed;
}
