/* SPDX-License-Identifier: Apache-2.0 */
/* A thin layer: each call gets a `struct served` that carries the API's view of it, and who calls.
 *
 * A bearer token, when there is one, says who calls; otherwise the client certificate does, by the first URI name in it that
 * is one of ours. A certificate of the agents' own authority makes an agent and nothing else, so that its key is not worth
 * an administrator's. Without TLS (loopback only) everybody is everybody.
 *
 * Whoever cannot show who they are is counted by address: guessing tokens, or enrolment tokens, is not for free. */

#include "controlplane/rpc/serve.h"

#include <stdio.h>
#include <utlist.h>

#include "common/clock.h"
#include "proto/descriptors.h"

/* Failed attempts of one address: a tool with an expired token that retries once a second stays below. */
#define FAILURES_PER_SECOND 5
#define FAILURES_BURST      100
#define TICK_MS             1000

struct serve;

/* What a method row of the server carries: the API's row, and where it is served. */
struct row_user {
    const struct api_method *method;
    struct serve *serve;
};

struct serve {
    uv_timer_t tick;
    struct api *api;
    struct auth *auth;
    struct quota *quota, *failures;
    struct served *calls;
    struct rpc_server *server;
    struct rpc_method *table;
    struct row_user *users;
    bool insecure;
};

struct served {
    struct api_call base;
    struct serve *serve;
    struct rpc_call *call;
    struct quota_entry *quota;
    unsigned refs;
    struct served *prev, *next; /* serve->calls, until closed */
};

static struct served *served_of(const struct api_call *call)
{
    return ADV_CONTAINER_OF(call, struct served, base);
}

static void served_unref(struct served *s)
{
    if (--s->refs > 0)
        return;
    (void) identity_unref(s->base.caller.identity);
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

static bool op_read_next(struct api_call *call)
{
    return rpc_stream_read_next(served_of(call)->call);
}

static void op_finish(struct api_call *call)
{
    rpc_stream_finish(served_of(call)->call);
}

static void op_arrived(struct api_call *call)
{
    rpc_call_arrived(served_of(call)->call);
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
                                              op_finish,   op_arrived, op_ended, op_ref, op_unref };

/* ---- who calls -------------------------------------------------------------------------------------------------- */

/* The address without its port. */
static void host_of(const struct rpc_peer *peer, char out[128])
{
    const char *address = peer ? peer->address : "", *colon = strrchr(address, ':');

    (void) snprintf(out, 128, "%.*s", (int) (colon && colon != address ? colon - address : (ssize_t) strlen(address)), address);
}

static int by_certificate(struct serve *s, const struct rpc_peer *peer, struct api_caller *ret, struct adv_err *err)
{
    for (size_t i = 0; peer && peer->authenticated && i < peer->n_uris; i++) {
        struct auth_name name;

        if (!auth_name_parse(peer->uris[i], &name) || (name.role == ROLE_AGENT && !cluster_id_valid(name.name)) ||
            (name.role != ROLE_AGENT && peer->by_second_ca))
            continue;
        ret->identity = auth_by_certificate(s->auth, &name, peer->cert_not_after_s);
        if (!ret->identity)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
        if (name.role == ROLE_AGENT) {
            (void) snprintf(ret->cluster, sizeof(ret->cluster), "%s", name.name);
            (void) snprintf(ret->serial, sizeof(ret->serial), "%s", peer->cert_serial);
            ret->issued_s = peer->cert_not_before_s;
        }
        return 0;
    }
    return 0;
}

static int spent(struct adv_err *err, int retry_after_ms)
{
    (void) adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "RATE_LIMITED", "too many failed attempts from this address");
    err->retry_after_ms = retry_after_ms;
    return -ADV_RESOURCE_EXHAUSTED;
}

static void count_failure(struct serve *s, const char *host)
{
    struct quota_entry *e = NULL;

    if (quota_begin(s->failures, host, adv_mono_us(), &e, NULL) == 0)
        quota_end(s->failures, e);
}

static int by_token(struct serve *s, const char *header, size_t len, const struct rpc_peer *peer, struct api_caller *ret,
                    struct adv_err *err)
{
    int64_t now_s = adv_wall_us() / 1000000;
    char host[128];
    int wait_ms, r;

    ret->identity = auth_by_header_again(s->auth, header, len, now_s);
    if (ret->identity)
        return 0;
    host_of(peer, host);
    if (quota_spent(s->failures, host, adv_mono_us(), &wait_ms))
        return spent(err, wait_ms);
    r = auth_by_header(s->auth, header, len, now_s, &ret->identity, err);
    if (r == -ADV_UNAUTHENTICATED)
        count_failure(s, host);
    return r;
}

/* Fills @ret; without an identity when the caller shows none. Errors: of a token that is not good. */
static int identify(struct serve *s, struct rpc_call *call, struct api_caller *ret, struct adv_err *err)
{
    const struct rpc_peer *peer = rpc_call_peer(call);
    const char *header;
    size_t len;
    int r;

    *ret = (struct api_caller) { .authenticated = !s->insecure };
    if (s->insecure) {
        (void) snprintf(ret->principal, sizeof(ret->principal), "insecure:%.100s", peer ? peer->address : "?");
        return 0;
    }
    if (rpc_call_metadata_count(call, "authorization") > 1) /* whom a proxy before us believed may be the other one */
        return adv_err_set_reason(err, ADV_UNAUTHENTICATED, "AUTHORIZATION_MALFORMED",
                                  "authorization: the header was sent more than once, expected one");
    header = rpc_call_metadata(call, "authorization", &len);
    r = header ? by_token(s, header, len, peer, ret, err) : by_certificate(s, peer, ret, err);
    if (ret->identity)
        (void) snprintf(ret->principal, sizeof(ret->principal), "%s", identity_principal(ret->identity));
    else if (r == 0)
        host_of(peer, ret->principal);
    return r;
}

/* Of reflection, which has no row of the API: whoever may call anything. */
static int authorize(void *user, struct rpc_call *call, struct adv_err *err)
{
    struct api_caller caller;
    int r;

    if (rpc_call_method(call)->user)
        return 0; /* on_open does it, where there is a place for what it finds */
    r = identify(user, call, &caller, err);
    if (r == 0 && caller.authenticated && !caller.identity)
        r = adv_err_set_reason(err, ADV_UNAUTHENTICATED, "NO_IDENTITY", "expected a certificate or a token");
    (void) identity_unref(caller.identity);
    return r;
}

/* Who shows no identity may only call what asks for none, and is counted by address. */
static int admit(struct served *d, struct adv_err *err)
{
    struct serve *s = d->serve;
    struct api_caller *caller = &d->base.caller;
    int64_t now_us = adv_mono_us();
    int wait_ms, r;

    if ((r = identify(s, d->call, caller, err)) < 0)
        return r;
    caller->acting = d->base.method->role;
    if (caller->authenticated && !caller->identity && quota_spent(s->failures, caller->principal, now_us, &wait_ms))
        return spent(err, wait_ms);
    if ((r = api_authorize(caller, d->base.method, err)) < 0)
        return r;
    if (caller->authenticated && !caller->identity)
        count_failure(s, caller->principal); /* such calls are rare: an agent's first one */
    return s->insecure ? 0 : quota_begin(s->quota, caller->principal, now_us, &d->quota, err);
}

static void on_open(struct rpc_call *call)
{
    const struct row_user *row = rpc_call_method(call)->user;
    struct served *s = calloc(1, sizeof(*s));
    struct adv_err err = { 0 };

    if (!s) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        rpc_call_refuse(call, &err);
        return;
    }
    s->base.ops = &call_ops;
    s->base.api = row->serve->api;
    s->base.method = row->method;
    s->serve = row->serve;
    s->call = rpc_call_ref(call);
    s->refs = 1;
    if (admit(s, &err) < 0) {
        rpc_call_refuse(call, &err);
        served_unref(s);
        return;
    }
    DL_APPEND(row->serve->calls, s);
    rpc_call_set_user(call, s);
    if (row->method->open)
        row->method->open(&s->base);
}

/* Ends the calls of those whose certificate or token has expired. */
static void on_tick(uv_timer_t *t)
{
    struct serve *s = t->data;
    int64_t now_s = adv_wall_us() / 1000000;
    struct served *d, *next;
    struct adv_err err = { 0 };

    DL_FOREACH_SAFE (s->calls, d, next) {
        struct identity *id = d->base.caller.identity;

        if (!id || !identity_expires_s(id) || now_s < identity_expires_s(id))
            continue;
        (void) adv_err_set_reason(&err, ADV_UNAUTHENTICATED, "IDENTITY_EXPIRED", "the certificate or token of %.100s has expired",
                                  identity_principal(id));
        rpc_call_fail(d->call, &err);
    }
}

/* ---- the calls -------------------------------------------------------------------------------------------------- */

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
    DL_DELETE(s->serve->calls, s);
    quota_end(s->serve->quota, s->quota);
    s->quota = NULL;
    rpc_call_set_user(call, NULL);
    served_unref(s);
}

void serve_set_quota(struct serve *s, const struct quota_config *quota)
{
    quota_configure(s->quota, quota);
}

static void serve_destroy(struct serve *s)
{
    if (!s)
        return;
    (void) rpc_server_free(s->server);
    (void) quota_free(s->quota);
    (void) quota_free(s->failures);
    free(s->table);
    free(s->users);
    free(s);
}

int serve_new(uv_loop_t *loop, struct api *api, struct auth *auth, const struct quota_config *quota,
              const struct rpc_config *cfg, struct serve **ret, struct adv_err *err)
{
    static const struct quota_config failures = { .per_second = FAILURES_PER_SECOND, .burst = FAILURES_BURST };
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
        s->quota = quota_new(quota);
        s->failures = quota_new(&failures);
    }
    if (!s || !s->table || !s->users || !s->quota || !s->failures) {
        serve_destroy(s);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    s->api = api;
    s->auth = auth;
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
            .gzip = m[i].gzip,
            .arrives = m[i].arrives,
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
        serve_destroy(s);
        return r;
    }
    (void) uv_timer_init(loop, &s->tick);
    s->tick.data = s;
    (void) uv_timer_start(&s->tick, on_tick, TICK_MS, TICK_MS);
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

static void on_tick_closed(uv_handle_t *h)
{
    serve_destroy(h->data);
}

struct serve *serve_free(struct serve *s)
{
    if (!s)
        return NULL;
    s->server = rpc_server_free(s->server);
    uv_close((uv_handle_t *) &s->tick, on_tick_closed);
    return NULL;
}
