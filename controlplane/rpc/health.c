/* SPDX-License-Identifier: Apache-2.0 */

/* grpc.health.v1 over the same table as every other service. Health answers without authorize(): a
 * load balancer has no role. A watcher gets the status at once and then each change. */

#include "controlplane/rpc/internal.h"
#include "grpc/health/v1/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckResponse response_t;
typedef Grpc__Health__V1__HealthCheckRequest request_t;

#define SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define UNKNOWN     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

struct entry {
    struct entry *next;
    bool serving;
    char name[];
};

struct watcher {
    struct watcher *next;
    struct rpc_call *call;
    char name[];
};

struct rpc_health {
    struct entry *entries;
    struct watcher *watchers;
    bool down; /* the server stops: nothing serves */
};

static struct entry *find(const struct rpc_health *h, const char *name)
{
    for (struct entry *e = h->entries; e; e = e->next) {
        if (strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

static bool serving(const struct rpc_health *h, const struct entry *e)
{
    return e->serving && !h->down;
}

static void notify(const struct rpc_health *h, struct watcher *w)
{
    const struct entry *e = find(h, w->name);
    response_t res = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    struct adv_err err;

    res.status = !e ? UNKNOWN : serving(h, e) ? SERVING : NOT_SERVING;
    if (rpc_stream_send(w->call, &res.base) == -ADV_RESOURCE_EXHAUSTED) {
        (void) adv_err_set_reason(&err, ADV_RESOURCE_EXHAUSTED, "SLOW_WATCHER", "does not read");
        rpc_call_fail(w->call, &err);
    }
}

static void check(struct rpc_call *call, const ProtobufCMessage *msg)
{
    const request_t *req = (const request_t *) msg;
    const struct rpc_health *h = rpc_call_server(call)->health;
    const struct entry *e = find(h, req->service);
    response_t res = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    struct adv_err err;

    if (!e) {
        (void) adv_err_set_reason(&err, ADV_NOT_FOUND, "UNKNOWN_SERVICE", "no such service: %.100s",
                                  req->service);
        rpc_call_fail(call, &err);
        return;
    }
    res.status = serving(h, e) ? SERVING : NOT_SERVING;
    rpc_call_reply(call, &res.base);
}

static void watch(struct rpc_call *call, const ProtobufCMessage *msg)
{
    const request_t *req = (const request_t *) msg;
    struct rpc_health *h = rpc_call_server(call)->health;
    size_t len = strlen(req->service) + 1;
    struct watcher *w = malloc(sizeof(*w) + len);

    if (!w) {
        struct adv_err err;

        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        rpc_call_fail(call, &err);
        return;
    }
    w->call = call;
    memcpy(w->name, req->service, len);
    w->next = h->watchers;
    h->watchers = w;
    notify(h, w);
}

static void watch_closed(struct rpc_call *call, bool cancelled)
{
    struct rpc_health *h = rpc_call_server(call)->health;

    (void) cancelled;
    for (struct watcher **p = &h->watchers; *p; p = &(*p)->next) {
        if ((*p)->call == call) {
            struct watcher *w = *p;

            *p = w->next;
            free(w);
            return;
        }
    }
}

const struct rpc_method rpc_health_methods[] = {
    { .path = "/grpc.health.v1.Health/Check",
      .kind = RPC_UNARY,
      .request = &grpc__health__v1__health_check_request__descriptor,
      .response = &grpc__health__v1__health_check_response__descriptor,
      .on_message = check,
      .max_request_bytes = 1024 },
    { .path = "/grpc.health.v1.Health/Watch",
      .kind = RPC_SERVER_STREAM,
      .request = &grpc__health__v1__health_check_request__descriptor,
      .response = &grpc__health__v1__health_check_response__descriptor,
      .on_message = watch,
      .on_closed = watch_closed,
      .max_request_bytes = 1024,
      .send_queue_messages = 16 },
};
const size_t rpc_n_health_methods = ADV_ARRAY_LEN(rpc_health_methods);

int rpc_health_set(struct rpc_server *srv, const char *service, bool is_serving,
                   struct adv_err *err)
{
    struct rpc_health *h = srv->health;
    struct entry *e = find(h, service);

    if (e && e->serving == is_serving)
        return 0;
    if (!e) {
        size_t len = strlen(service) + 1;

        e = malloc(sizeof(*e) + len);
        if (!e)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
        memcpy(e->name, service, len);
        e->next = h->entries;
        h->entries = e;
    }
    e->serving = is_serving;
    for (struct watcher *w = h->watchers, *next; w; w = next) {
        next = w->next;
        if (strcmp(w->name, service) == 0)
            notify(h, w);
    }
    return 0;
}

void rpc_health_all(struct rpc_server *srv, bool is_serving)
{
    srv->health->down = !is_serving;
    for (struct watcher *w = srv->health->watchers, *next; w; w = next) {
        next = w->next;
        notify(srv->health, w);
    }
}

int rpc_health_new(struct rpc_server *srv, struct adv_err *err)
{
    srv->health = calloc(1, sizeof(*srv->health));
    if (!srv->health)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    return rpc_health_set(srv, "", true, err);
}

void rpc_health_free(struct rpc_server *srv)
{
    if (!srv->health)
        return;
    for (struct entry *e = srv->health->entries, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    for (struct watcher *w = srv->health->watchers, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(srv->health);
    srv->health = NULL;
}
