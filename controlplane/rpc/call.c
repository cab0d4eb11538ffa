/* SPDX-License-Identifier: Apache-2.0 */

/* One call, from core's "there is a request" to the release of its grpc_call.
 *
 * Core's rules that shape this file: batches of one call are serialised, but sending and receiving
 * ones may overlap; at most one operation of each kind is outstanding; RECV_CLOSE_ON_SERVER tells
 * of cancellation and must have come back before the call is released; the status is sent once.
 *
 * State is a handful of flags instead of an enum, because reading and writing proceed
 * independently:
 *
 *   close_armed     RECV_CLOSE is under way. A unary call that is answered inside on_message has it
 *   in the same batch
 *                   as the answer (three events for a call in all); others arm it alone.
 *   finishing       the outcome is decided: nothing more is read or queued.
 *   status_started  the status batch is with core.
 *   ended           RECV_CLOSE came back; on_closed was called.
 *
 * A call is released when it has ended and no batch is outstanding. Its memory lives as long as
 * someone refers to it: the server while unreleased, each outstanding batch, and handlers. */

#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/utf8.h"
#include "controlplane/rpc/accept.h"
#include "controlplane/rpc/door.h"
#include "controlplane/rpc/inflate.h"
#include "controlplane/rpc/internal.h"

#define WINDOW_BYTES (64 << 10) /* of a stream: what a client may send before anybody reads */

static void on_close(struct rpc_tag *tag, bool ok);
static void on_recv(struct rpc_tag *tag, bool ok);
static void on_send(struct rpc_tag *tag, bool ok);
static void on_status(struct rpc_tag *tag, bool ok);

/* ---- references, release ---- */

int rpc_call_new(struct rpc_server *srv, struct rpc_call **ret)
{
    struct rpc_call *call = calloc(1, sizeof(*call));

    if (!call)
        return -ADV_RESOURCE_EXHAUSTED;
    call->srv = srv;
    call->refs = 1;
    call->q_tail = &call->q_head;
    call->t_close.fn = on_close;
    call->t_recv.fn = on_recv;
    call->t_send.fn = on_send;
    call->t_status.fn = on_status;
    call->status_text = call->status_details = grpc_empty_slice();
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    *ret = call;
    return 0;
}

struct rpc_call *rpc_call_ref(struct rpc_call *call)
{
    call->refs++;
    return call;
}

static void drop_refs(struct rpc_call *call, int n)
{
    call->refs -= n;
    if (call->refs > 0)
        return;
    (void) rpc_peer_free(call->peer);
    adv_arena_done(&call->arena); /* not earlier: who holds a reference may still read the message */
    free(call);
}

struct rpc_call *rpc_call_unref(struct rpc_call *call)
{
    if (call)
        drop_refs(call, 1);
    return NULL;
}

static void drop_queue(struct rpc_call *call)
{
    for (struct rpc_out *o = call->q_head, *next; o; o = next) {
        next = o->next;
        call->q_bytes -= o->len;
        call->q_messages--;
        grpc_byte_buffer_destroy(o->bytes);
        free(o);
    }
    call->q_head = NULL;
    call->q_tail = &call->q_head;
}

void rpc_call_free_unstarted(struct rpc_call *call)
{
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    (void) rpc_call_unref(call);
}

/* Gives the grpc_call back once all is over; the server's own reference is then the caller's to
 * drop. The server looks whether it was the last one after each batch of events. */
static bool maybe_release(struct rpc_call *call)
{
    struct rpc_server *srv = call->srv;

    if (!call->ended || call->pending > 0 || !call->call)
        return false;
    grpc_call_unref(call->call);
    call->call = NULL;
    drop_queue(call);
    grpc_byte_buffer_destroy(call->reply);
    grpc_slice_unref(call->status_text);
    grpc_slice_unref(call->status_details);
    if (call->prev)
        call->prev->next = call->next;
    else
        srv->calls = call->next;
    if (call->next)
        call->next->prev = call->prev;
    srv->stats.calls_live--;
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    return true;
}

/* ---- batches ---- */

static bool start(struct rpc_call *call, const grpc_op *ops, size_t n, struct rpc_tag *tag)
{
    call->pending++;
    call->refs++;
    RPC_TAG_GIVE(tag);
    grpc_call_error e = grpc_call_start_batch(call->call, ops, n, tag, NULL);
    if (e == GRPC_CALL_OK)
        return true;
    call->pending--;
    call->refs--;
    adv_error("rpc", "gRPC core refused a batch, the call is cancelled",
              ADV_FS("error", grpc_call_error_to_string(e)),
              ADV_FS("method", call->method ? call->method->path : NULL));
    call->cancelled_here = true;
    (void) grpc_call_cancel_with_status(call->call, GRPC_STATUS_INTERNAL, "internal error", NULL);
    return false;
}

/* First line of each tag's function. */
static void taken(struct rpc_call *call)
{
    call->pending--;
}

/* Last line of each tag's function. */
static void done(struct rpc_call *call)
{
    drop_refs(call, maybe_release(call) ? 2 : 1);
}

static void arm_close(struct rpc_call *call)
{
    grpc_op op = { .op = GRPC_OP_RECV_CLOSE_ON_SERVER };

    if (call->close_armed)
        return;
    op.data.recv_close_on_server.cancelled = &call->cancelled_flag;
    call->close_armed = start(call, &op, 1, &call->t_close);
}

static void arm_recv(struct rpc_call *call)
{
    grpc_op op = { .op = GRPC_OP_RECV_MESSAGE };

    call->recv = NULL;
    op.data.recv_message.recv_message = &call->recv;
    call->recv_pending = start(call, &op, 1, &call->t_recv);
}

static void send_status(struct rpc_call *call)
{
    grpc_op ops[4] = { { 0 } };
    size_t n = 0;

    if (call->status_started || call->ended || call->send_pending || call->q_head)
        return;
    call->status_started = true;
    if (!call->close_armed) {
        ops[n].op = GRPC_OP_RECV_CLOSE_ON_SERVER;
        ops[n++].data.recv_close_on_server.cancelled = &call->cancelled_flag;
        call->close_armed = call->close_in_status = true;
    }
    if (!call->initial_sent) {
        ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
        call->initial_sent = true;
    }
    if (call->reply) {
        ops[n].op = GRPC_OP_SEND_MESSAGE;
        ops[n++].data.send_message.send_message = call->reply;
    }
    ops[n].op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    ops[n].data.send_status_from_server.status = call->status;
    ops[n].data.send_status_from_server.status_details =
        call->status == GRPC_STATUS_OK ? NULL : &call->status_text;
    if (call->has_details) {
        call->trailer = (grpc_metadata){
            .key = grpc_slice_from_static_string("grpc-status-details-bin"),
            .value = call->status_details,
        };
        ops[n].data.send_status_from_server.trailing_metadata_count = 1;
        ops[n].data.send_status_from_server.trailing_metadata = &call->trailer;
    }
    n++;
    if (!start(call, ops, n, &call->t_status) && call->close_in_status) {
        call->close_in_status = call->close_armed = false;
        arm_close(call);
    }
}

static void pump(struct rpc_call *call)
{
    struct rpc_out *o = call->q_head;
    grpc_op ops[2] = { { 0 } };
    size_t n = 0;

    if (call->send_pending || call->status_started || call->ended)
        return;
    if (!o) {
        if (call->finishing)
            send_status(call);
        return;
    }
    call->q_head = o->next;
    if (!o->next)
        call->q_tail = &call->q_head;
    if (!call->initial_sent) {
        ops[n++].op = GRPC_OP_SEND_INITIAL_METADATA;
        call->initial_sent = true;
    }
    ops[n].op = GRPC_OP_SEND_MESSAGE;
    ops[n++].data.send_message.send_message = o->bytes;
    call->sending_len = o->len;
    call->send_pending = start(call, ops, n, &call->t_send);
    if (!call->send_pending) {
        call->q_bytes -= o->len;
        call->q_messages--;
    }
    grpc_byte_buffer_destroy(o->bytes); /* core took the slices out */
    free(o);
}

/* ---- the end ---- */

static void know_connection(struct rpc_call *call)
{
    char *address = grpc_call_get_peer(call->call);

    call->keyed = address && rpc_accept_key(address, &call->key);
    gpr_free(address);
}

static void end(struct rpc_call *call, bool cancelled)
{
    if (call->ended)
        return;
    call->ended = true;
    call->finishing = call->status_started = true;
    drop_queue(call);
    if (cancelled) {
        call->srv->stats.calls_cancelled++;
        if (!call->cancelled_here && !call->srv->stopping)
            rpc_resets_note(call->srv, call->call);
    } else if (!call->heard) {
        know_connection(call); /* an answer without a look at the request, which may be on its way */
        if (call->keyed)
            rpc_accept_explain(&call->key, WINDOW_BYTES);
    }
    if (call->opened && call->method->on_closed)
        call->method->on_closed(call, cancelled);
}

static void on_close(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = ADV_CONTAINER_OF(tag, struct rpc_call, t_close);

    taken(call);
    end(call, !ok || call->cancelled_flag);
    done(call);
}

static void on_status(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = ADV_CONTAINER_OF(tag, struct rpc_call, t_status);

    taken(call);
    if (call->close_in_status)
        end(call, !ok || call->cancelled_flag);
    done(call);
}

static void half_close(struct rpc_call *call)
{
    if (!call->finishing && !call->ended && call->method->on_half_close)
        call->method->on_half_close(call);
}

/* Core gives the same empty message for a half close and for a reset or lost stream. A reset has
 * closed our sending side too, so sending the initial metadata tells them apart; without that to
 * send, the cancellation mostly comes in the same batch of events, so the batch is worked off
 * first. */
static void probe_half_close(struct rpc_call *call)
{
    grpc_op op = { .op = GRPC_OP_SEND_INITIAL_METADATA };

    if (!call->initial_sent) {
        call->initial_sent = call->probing = true;
        call->send_pending = start(call, &op, 1, &call->t_send);
    } else {
        call->next_half_closed = call->srv->half_closed;
        call->srv->half_closed = rpc_call_ref(call);
    }
}

void rpc_call_half_closes(struct rpc_server *srv)
{
    while (srv->half_closed) {
        struct rpc_call *call = srv->half_closed;

        srv->half_closed = call->next_half_closed;
        half_close(call);
        (void) rpc_call_unref(call);
    }
}

static void on_send(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = ADV_CONTAINER_OF(tag, struct rpc_call, t_send);
    const struct rpc_method *m = call->method;

    taken(call);
    call->send_pending = false;
    if (call->probing) {
        call->probing = false;
        if (ok)
            half_close(call);
        pump(call);
        done(call);
        return;
    }
    call->q_bytes -= call->sending_len;
    call->q_messages--;
    if (ok) {
        call->srv->stats.messages_out++;
        call->srv->stats.bytes_out += call->sending_len;
        if (call->keyed)
            rpc_accept_explain_sent(&call->key, call->sending_len);
        pump(call);
    } else {
        drop_queue(call); /* RECV_CLOSE tells the rest */
    }
    if (call->was_full && call->q_bytes <= m->send_queue_bytes / 2 &&
        call->q_messages <= m->send_queue_messages / 2) {
        call->was_full = false;
        if (m->on_writable && !call->finishing)
            m->on_writable(call);
    }
    done(call);
}

static void finish(struct rpc_call *call)
{
    call->finishing = true;
    call->flush_by_mono_us = adv_mono_us() + (int64_t) call->srv->cfg.flush_timeout_ms * 1000;
    pump(call);
}

void rpc_call_sweep(struct rpc_server *srv, int64_t now_mono_us)
{
    struct adv_err err;

    for (struct rpc_call *call = srv->calls; call; call = call->next) {
        if (!call->finishing && !call->ended && !call->heard &&
            now_mono_us - call->begun_mono_us > srv->cfg.request_timeout_ms * INT64_C(1000)) {
            (void) adv_err_set_reason(&err, ADV_DEADLINE_EXCEEDED, "NO_REQUEST",
                                      "no message came within %d ms", srv->cfg.request_timeout_ms);
            rpc_call_refuse(call, &err);
        }
        if (!call->finishing || call->ended || now_mono_us < call->flush_by_mono_us)
            continue;
        call->flush_by_mono_us = INT64_MAX;
        call->cancelled_here = true;
        (void) grpc_call_cancel_with_status(call->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                            "client does not read", NULL);
    }
}

void rpc_call_fail(struct rpc_call *call, const struct adv_err *err)
{
    char text[sizeof(err->msg) * 3];

    if (call->finishing || call->ended)
        return;
    call->status = (grpc_status_code) err->code;
    if (err->code == ADV_OK || (int) err->code > ADV_UNAUTHENTICATED || (int) err->code < 0)
        call->status = GRPC_STATUS_UNKNOWN;
    (void) adv_utf8_lossy_buf(text, sizeof(text), err->msg, strlen(err->msg));
    call->status_text = grpc_slice_from_copied_string(text);
    call->has_details = rpc_status_details(err, &call->status_details);
    drop_queue(call);
    finish(call);
}

/* The door's or the table's no, or a handler's. */
void rpc_call_refuse(struct rpc_call *call, const struct adv_err *err)
{
    call->srv->stats.calls_refused++;
    rpc_call_fail(call, err);
}

/* ---- receiving ---- */

static bool client_streams(const struct rpc_call *call)
{
    return call->method->kind == RPC_CLIENT_STREAM || call->method->kind == RPC_BIDI;
}

static int decode_flat(struct rpc_call *call, grpc_slice flat, bool gzip, ProtobufCMessage **ret,
                       struct adv_err *err)
{
    adv_auto_free uint8_t *plain = NULL;
    const uint8_t *bytes = GRPC_SLICE_START_PTR(flat);
    size_t len = GRPC_SLICE_LENGTH(flat);

    if (gzip) {
        int r = rpc_inflate(bytes, len, call->method->max_request_bytes, &plain, &len, err);

        if (r < 0)
            return r;
        bytes = plain;
    }
    return rpc_door_decode(call->method->request, bytes, len, &call->arena, ret, err);
}

static int decode(struct rpc_call *call, grpc_byte_buffer *bb, ProtobufCMessage **ret,
                  struct adv_err *err)
{
    size_t len = grpc_byte_buffer_length(bb);
    grpc_byte_buffer_reader reader;
    bool gzip = bb->type == GRPC_BB_RAW && bb->data.raw.compression == GRPC_COMPRESS_GZIP &&
                call->method->gzip;

    if (bb->type != GRPC_BB_RAW || (bb->data.raw.compression != GRPC_COMPRESS_NONE && !gzip))
        return adv_err_set_reason(err, ADV_UNIMPLEMENTED, "COMPRESSION_NOT_SUPPORTED",
                                  "compressed messages are not accepted, send them plain");
    if (len > call->method->max_request_bytes)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE",
                                  "message of %zu bytes is over this method's limit of %zu", len,
                                  call->method->max_request_bytes);
    call->srv->stats.messages_in++;
    call->srv->stats.bytes_in += len;
    if (bb->data.raw.slice_buffer.count == 1)
        return decode_flat(call, bb->data.raw.slice_buffer.slices[0], gzip, ret, err);
    /* the reader would inflate by itself, without a limit */
    bb->data.raw.compression = GRPC_COMPRESS_NONE;
    if (!grpc_byte_buffer_reader_init(&reader, bb))
        return adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "MALFORMED_MESSAGE",
                                  "message cannot be read");
    grpc_slice flat = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    int r = decode_flat(call, flat, gzip, ret, err);
    grpc_slice_unref(flat);
    return r;
}

static void heard(struct rpc_call *call, size_t bytes)
{
    if (!call->heard)
        know_connection(call);
    call->heard = true;
    if (call->keyed)
        rpc_accept_explain(&call->key, bytes);
}

static void on_recv(struct rpc_tag *tag, bool ok)
{
    struct rpc_call *call = ADV_CONTAINER_OF(tag, struct rpc_call, t_recv);
    grpc_byte_buffer *bb = call->recv;
    ProtobufCMessage *msg = NULL;
    struct adv_err err;

    taken(call);
    call->recv = NULL;
    call->recv_pending = false;
    if (call->finishing || call->ended) {
        /* too late */
    } else if (bb) {
        heard(call, grpc_byte_buffer_length(bb));
        if (decode(call, bb, &msg, &err) < 0)
            rpc_call_refuse(call, &err);
        else
            call->method->on_message(call, msg);
        if (!client_streams(call) && !call->finishing)
            arm_close(call); /* the answer comes later: learn of cancellation meanwhile */
    } else if (client_streams(call)) {
        call->half_closed = true;
        if (ok)
            probe_half_close(call);
    } else {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "NO_REQUEST",
                                  "the request message is missing");
        rpc_call_refuse(call, &err);
    }
    grpc_byte_buffer_destroy(bb);
    done(call);
}

bool rpc_stream_read_next(struct rpc_call *call)
{
    if (call->finishing || call->ended || call->recv_pending || call->half_closed ||
        !client_streams(call))
        return false;
    adv_arena_done(&call->arena);
    arm_recv(call);
    return call->recv != NULL; /* core hands over at once what it has; on_recv() comes from the queue */
}

static int64_t to_mono_us(gpr_timespec deadline)
{
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0)
        return INT64_MAX;
    gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
    return adv_mono_us() + left.tv_sec * 1000000 + left.tv_nsec / 1000;
}

void rpc_call_arrived(struct rpc_call *call)
{
    if (!call->call || !rpc_accept_has_new())
        return;
    if (!call->keyed)
        know_connection(call);
    if (call->keyed)
        rpc_accept_called(&call->key);
}

void rpc_call_begin(struct rpc_call *call)
{
    struct rpc_server *srv = call->srv;
    struct rpc_entry *entry = NULL;
    const grpc_slice *path = &call->details.method;
    struct adv_err err;

    call->next = srv->calls;
    if (srv->calls)
        srv->calls->prev = call;
    srv->calls = call;
    srv->stats.calls_started++;
    srv->stats.calls_live++;
    call->deadline_mono_us = to_mono_us(call->details.deadline);
    call->begun_mono_us = adv_mono_us();
    (void) rpc_call_ref(call);
    HASH_FIND(hh, srv->methods, GRPC_SLICE_START_PTR(*path), GRPC_SLICE_LENGTH(*path), entry);
    call->method = entry ? &entry->method : NULL;
    if (!entry || !entry->method.arrives)
        rpc_call_arrived(call);
    if (!entry) {
        (void) adv_err_set_reason(
            &err, ADV_UNIMPLEMENTED, "UNKNOWN_METHOD", "no such method: %.*s",
            (int) adv_utf8_cut(GRPC_SLICE_START_PTR(*path), GRPC_SLICE_LENGTH(*path), 120),
            (const char *) GRPC_SLICE_START_PTR(*path));
        rpc_call_refuse(call, &err);
    } else if (!entry->builtin && srv->cfg.authorize &&
               srv->cfg.authorize(srv->cfg.user, call, &err) < 0) {
        rpc_call_refuse(call, &err);
    } else {
        call->opened = true;
        if (call->method->on_open)
            call->method->on_open(call);
        if (!call->finishing && client_streams(call))
            arm_close(call);
        if (!call->finishing)
            arm_recv(call);
    }
    done(call);
}

/* ---- sending ---- */

static grpc_byte_buffer *pack(const ProtobufCMessage *msg, size_t *ret_len)
{
    size_t len = protobuf_c_message_get_packed_size(msg);
    grpc_slice s = grpc_slice_malloc(len);

    (void) protobuf_c_message_pack(msg, GRPC_SLICE_START_PTR(s));
    grpc_byte_buffer *bb = grpc_raw_byte_buffer_create(&s, 1);
    grpc_slice_unref(s);
    *ret_len = len;
    return bb;
}

void rpc_call_reply(struct rpc_call *call, const ProtobufCMessage *msg)
{
    size_t len;

    if (call->finishing || call->ended)
        return;
    assert(call->method->kind == RPC_UNARY || call->method->kind == RPC_CLIENT_STREAM);
    assert(msg->descriptor == call->method->response);
    call->reply = pack(msg, &len);
    call->status = GRPC_STATUS_OK;
    call->srv->stats.messages_out++;
    call->srv->stats.bytes_out += len;
    finish(call);
}

static bool full(struct rpc_call *call, size_t len)
{
    const struct rpc_method *m = call->method;

    /* one message always fits, whatever its size */
    if (call->q_messages == 0 ||
        (call->q_messages < m->send_queue_messages && call->q_bytes + len <= m->send_queue_bytes))
        return false;
    call->was_full = true;
    return true;
}

static int enqueue(struct rpc_call *call, grpc_byte_buffer *bb, size_t len)
{
    struct rpc_out *o = malloc(sizeof(*o));

    if (!o) {
        grpc_byte_buffer_destroy(bb);
        return -ADV_RESOURCE_EXHAUSTED;
    }
    *o = (struct rpc_out){ .bytes = bb, .len = len };
    *call->q_tail = o;
    call->q_tail = &o->next;
    call->q_bytes += len;
    call->q_messages++;
    if (call->q_bytes > call->method->send_queue_bytes / 2 ||
        call->q_messages > call->method->send_queue_messages / 2)
        call->was_full = true;
    pump(call);
    return 0;
}

int rpc_stream_send(struct rpc_call *call, const ProtobufCMessage *msg)
{
    size_t len;

    if (call->finishing || call->ended)
        return -ADV_CANCELLED;
    assert(call->method->kind == RPC_SERVER_STREAM || call->method->kind == RPC_BIDI);
    assert(msg->descriptor == call->method->response);
    if (full(call, protobuf_c_message_get_packed_size(msg)))
        return -ADV_RESOURCE_EXHAUSTED;
    grpc_byte_buffer *bb = pack(msg, &len);
    return enqueue(call, bb, len);
}

struct rpc_bytes {
    int refs;
    grpc_slice slice;
};

struct rpc_bytes *rpc_bytes_new(const ProtobufCMessage *msg)
{
    struct rpc_bytes *b = malloc(sizeof(*b));

    if (!b)
        return NULL;
    b->refs = 1;
    b->slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(msg));
    (void) protobuf_c_message_pack(msg, GRPC_SLICE_START_PTR(b->slice));
    return b;
}

struct rpc_bytes *rpc_bytes_ref(struct rpc_bytes *b)
{
    b->refs++;
    return b;
}

struct rpc_bytes *rpc_bytes_unref(struct rpc_bytes *b)
{
    if (b && --b->refs == 0) {
        grpc_slice_unref(b->slice);
        free(b);
    }
    return NULL;
}

int rpc_stream_send_bytes(struct rpc_call *call, struct rpc_bytes *b)
{
    size_t len = GRPC_SLICE_LENGTH(b->slice);

    if (call->finishing || call->ended)
        return -ADV_CANCELLED;
    if (full(call, len))
        return -ADV_RESOURCE_EXHAUSTED;
    return enqueue(call, grpc_raw_byte_buffer_create(&b->slice, 1), len);
}

size_t rpc_stream_queued_bytes(const struct rpc_call *call)
{
    return call->q_bytes;
}

void rpc_stream_finish(struct rpc_call *call)
{
    if (call->finishing || call->ended)
        return;
    call->status = GRPC_STATUS_OK;
    finish(call);
}

/* ---- questions ---- */

const struct rpc_method *rpc_call_method(const struct rpc_call *call)
{
    return call->method;
}

struct rpc_server *rpc_call_server(const struct rpc_call *call)
{
    return call->srv;
}

void rpc_call_set_user(struct rpc_call *call, void *user)
{
    call->user = user;
}

void *rpc_call_user(const struct rpc_call *call)
{
    return call->user;
}

bool rpc_call_ended(const struct rpc_call *call)
{
    return call->ended;
}

int64_t rpc_call_deadline_mono_us(const struct rpc_call *call)
{
    return call->deadline_mono_us;
}

const struct rpc_peer *rpc_call_peer(struct rpc_call *call)
{
    if (!call->peer && call->call)
        call->peer = rpc_peer_new(call->srv, call->call);
    return call->peer;
}

size_t rpc_call_metadata_count(const struct rpc_call *call, const char *key)
{
    size_t n = 0;

    for (size_t i = 0; call->call && i < call->metadata.count; i++)
        n += grpc_slice_str_cmp(call->metadata.metadata[i].key, key) == 0;
    return n;
}

const char *rpc_call_metadata(const struct rpc_call *call, const char *key, size_t *ret_len)
{
    for (size_t i = 0; call->call && i < call->metadata.count; i++) {
        const grpc_metadata *m = &call->metadata.metadata[i];

        if (grpc_slice_str_cmp(m->key, key) == 0) {
            *ret_len = GRPC_SLICE_LENGTH(m->value);
            return (const char *) GRPC_SLICE_START_PTR(m->value);
        }
    }
    return NULL;
}
