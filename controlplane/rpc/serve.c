/* SPDX-License-Identifier: Apache-2.0 */
/* A thin layer: each call gets a `struct served` that carries the API's view of it. The role of the caller comes from
 * the certificate's URI name; without TLS (loopback only) everybody is an unauthenticated administrator. */

#include "controlplane/rpc/serve.h"

#include <stdio.h>

#include "proto/descriptors.h"

struct serve;

/* What a method row of the server carries: the API's row, and where it is served. */
struct row_user {
    const struct api_method *method;
    struct serve *serve;
};

struct serve {
    struct api *api;
    struct rpc_server *server;
    struct rpc_method *table;
    struct row_user *users;
    bool insecure;
};

struct served {
    struct api_call base;
    struct rpc_call *call;
    unsigned refs;
};

static struct served *served_of(const struct api_call *call)
{
    return ADV_CONTAINER_OF(call, struct served, base);
}

static void served_unref(struct served *s)
{
    if (--s->refs > 0)
        return;
    (void) rpc_call_unref(s->call);
    free(s);
}

static void op_reply(struct api_call *call, const ProtobufCMessage *msg)
{
    rpc_call_reply(served_of(call)->call, msg);
}

static void op_fail(struct api_call *call, const struct adv_err *err)
{
    rpc_call_fail(served_of(call)->call, err);
}

static int op_send(struct api_call *call, const ProtobufCMessage *msg)
{
    return rpc_stream_send(served_of(call)->call, msg);
}

static size_t op_queued_bytes(const struct api_call *call)
{
    return rpc_stream_queued_bytes(served_of(call)->call);
}

static void op_read_next(struct api_call *call)
{
    rpc_stream_read_next(served_of(call)->call);
}

static void op_finish(struct api_call *call)
{
    rpc_stream_finish(served_of(call)->call);
}

static bool op_ended(const struct api_call *call)
{
    return rpc_call_ended(served_of(call)->call);
}

static void op_ref(struct api_call *call)
{
    served_of(call)->refs++;
}

static void op_unref(struct api_call *call)
{
    served_unref(served_of(call));
}

static const struct api_call_ops call_ops = { op_reply,    op_fail,   op_send, op_queued_bytes, op_read_next,
                                              op_finish,   op_ended,  op_ref,  op_unref };

/* Who calls; ROLE_NONE when the certificate says nothing of ours. */
static void caller_of(struct serve *s, struct rpc_call *call, struct api_caller *ret)
{
    const struct rpc_peer *peer = rpc_call_peer(call);

    *ret = (struct api_caller) { .role = ROLE_NONE };
    if (s->insecure) {
        ret->role = ROLE_ADMIN;
        (void) snprintf(ret->principal, sizeof(ret->principal), "insecure:%.100s", peer ? peer->address : "?");
        return;
    }
    for (size_t i = 0; peer && peer->authenticated && i < peer->n_uris; i++)
        if (api_caller_from_uri(peer->uris[i], ret))
            return;
}

static int authorize(void *user, struct rpc_call *call, struct adv_err *err)
{
    const struct row_user *row = rpc_call_method(call)->user;
    struct api_caller caller;

    if (!row)
        return 0; /* reflection: any certificate of our CA */
    caller_of(user, call, &caller);
    return api_authorize(&caller, row->method, err);
}

static void on_open(struct rpc_call *call)
{
    const struct row_user *row = rpc_call_method(call)->user;
    struct served *s = calloc(1, sizeof(*s));
    struct adv_err err = { 0 };

    if (!s) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        rpc_call_fail(call, &err);
        return;
    }
    s->base.ops = &call_ops;
    s->base.api = row->serve->api;
    s->base.method = row->method;
    caller_of(row->serve, call, &s->base.caller);
    s->call = rpc_call_ref(call);
    s->refs = 1;
    rpc_call_set_user(call, s);
    if (row->method->open)
        row->method->open(&s->base);
}

static void on_message(struct rpc_call *call, const ProtobufCMessage *msg)
{
    struct served *s = rpc_call_user(call);

    if (!s)
        return;
    if (s->base.method->shape == API_UNARY || s->base.method->shape == API_SERVER_STREAM)
        api_dispatch(&s->base, msg);
    else
        s->base.method->message(&s->base, msg);
}

static void on_half_close(struct rpc_call *call)
{
    struct served *s = rpc_call_user(call);

    if (s && s->base.method->half_close)
        s->base.method->half_close(&s->base);
}

static void on_writable(struct rpc_call *call)
{
    struct served *s = rpc_call_user(call);

    if (s && s->base.method->writable)
        s->base.method->writable(&s->base);
}

static void on_closed(struct rpc_call *call, bool cancelled)
{
    struct served *s = rpc_call_user(call);

    if (!s)
        return;
    if (s->base.method->closed)
        s->base.method->closed(&s->base, cancelled);
    rpc_call_set_user(call, NULL);
    served_unref(s);
}

int serve_new(uv_loop_t *loop, struct api *api, const struct rpc_config *cfg, struct serve **ret, struct adv_err *err)
{
    static const enum rpc_kind kinds[] = {
        [API_UNARY] = RPC_UNARY,
        [API_SERVER_STREAM] = RPC_SERVER_STREAM,
        [API_CLIENT_STREAM] = RPC_CLIENT_STREAM,
        [API_BIDI] = RPC_BIDI,
    };
    struct rpc_config rc = *cfg;
    struct serve *s = calloc(1, sizeof(*s));
    const struct api_method *m;
    size_t n;
    int r;

    m = api_methods(&n);
    if (s) {
        s->table = calloc(n, sizeof(*s->table));
        s->users = calloc(n, sizeof(*s->users));
    }
    if (!s || !s->table || !s->users) {
        (void) serve_free(s);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    s->api = api;
    s->insecure = cfg->insecure;
    for (size_t i = 0; i < n; i++) {
        s->users[i] = (struct row_user) { &m[i], s };
        s->table[i] = (struct rpc_method) {
            .path = m[i].path,
            .kind = kinds[m[i].shape],
            .request = m[i].request,
            .response = m[i].response,
            .on_open = on_open,
            .on_message = on_message,
            .on_half_close = on_half_close,
            .on_writable = on_writable,
            .on_closed = on_closed,
            .max_request_bytes = m[i].max_request_bytes,
            .send_queue_bytes = API_STREAM_QUEUE_BYTES,
            .send_queue_messages = API_STREAM_QUEUE_BYTES, /* a message is at least a byte: the bytes limit it */
            .user = &s->users[i],
        };
    }
    rc.descriptor_set = advisor_descriptor_set;
    rc.descriptor_set_len = advisor_descriptor_set_len;
    rc.authorize = authorize;
    rc.user = s;
    r = rpc_server_new(loop, &rc, s->table, n, &s->server, err);
    if (r < 0) {
        (void) serve_free(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct rpc_server *serve_server(struct serve *s)
{
    return s->server;
}

void serve_stop(struct serve *s, int grace_ms, void (*stopped)(void *arg), void *arg)
{
    rpc_server_stop(s->server, grace_ms, stopped, arg);
}

struct serve *serve_free(struct serve *s)
{
    if (!s)
        return NULL;
    (void) rpc_server_free(s->server);
    free(s->table);
    free(s->users);
    free(s);
    return NULL;
}
