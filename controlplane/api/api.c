/* SPDX-License-Identifier: Apache-2.0 */
/* What all services share: roles, pages, the path of a read and of a write. */

#include "controlplane/api/find.h"
#include "controlplane/api/handoff.h"

#include <stdio.h>

#include "common/clock.h"
#include "common/digest.h"
#include "common/log.h"

#define REPLY_ARENA_BYTES (64 << 20)
#define TICK_MS           1000

/* ---- callers ---------------------------------------------------------------------------------------------------- */

int api_authorize(const struct api_caller *caller, const struct api_method *m, struct adv_err *err)
{
    const struct grants *g;

    if (m->role == ROLE_NONE || (!caller->authenticated && *caller->principal))
        return 0;
    if (!caller->identity)
        return adv_err_set_reason(err, ADV_UNAUTHENTICATED, "NO_IDENTITY",
                                  "expected a certificate with a URI name advisor:<role>:<name>, or a token");
    g = identity_grants(caller->identity);
    if (grants_none(g))
        return adv_err_set_reason(err, ADV_PERMISSION_DENIED, "NOT_BOUND", "%s: no binding gives it a role",
                                  caller->principal);
    if (!grants_any(g, m->role))
        return adv_err_set_reason(err, ADV_PERMISSION_DENIED, "ROLE_TOO_LOW", "%s needs role %s, which %s does not have",
                                  m->path, role_name(m->role), caller->principal);
    return 0;
}

bool api_may(const struct api_caller *caller, enum api_role role, const char *cluster, const char *account,
             const char *user)
{
    if (!caller->identity)
        return !caller->authenticated || caller->trusted;
    return grants_allow(identity_grants(caller->identity), role, cluster, account, user, identity_user(caller->identity));
}

bool api_may_see_job(const struct api_caller *caller, const struct job *j)
{
    const char *cluster = j->cluster->name, *account = str_or(j->account), *user = str_or(j->user);

    return api_may(caller, ROLE_READER, cluster, account, user) ||
           (caller->acting == ROLE_DETECTOR && api_may(caller, ROLE_DETECTOR, cluster, account, user));
}

bool api_may_see_cluster(const struct api_caller *caller, const char *cluster)
{
    return api_may(caller, ROLE_READER, cluster, NULL, NULL) ||
           (caller->acting == ROLE_DETECTOR && caller->identity &&
            grants_some_of_cluster(identity_grants(caller->identity), ROLE_DETECTOR, cluster));
}

bool api_may_see_all(const struct api_caller *caller, const char *cluster)
{
    if (!caller->identity)
        return !caller->authenticated || caller->trusted;
    return grants_whole_cluster(identity_grants(caller->identity), ROLE_READER, cluster);
}

bool api_may_see_entry(const struct api_caller *caller, const struct entry *e)
{
    const struct job *j;
    struct resource_path p;

    if (e->kind != RESOURCE_INCIDENT || api_may_see_all(caller, e->cluster->name) ||
        resource_path_parse(str_or(((const struct incident *) e)->subject), &p, NULL) < 0 || !p.job_uid)
        return true;
    j = fleet_find_job_uid(e->cluster, p.job_uid);
    return j && api_may_see_job(caller, j); /* of one that is gone nobody knows any more whose it was */
}

int api_check(const struct api_caller *caller, enum api_role role, const char *cluster, const char *account,
              const char *user, struct adv_err *err)
{
    if (api_may(caller, role, cluster, account, user))
        return 0;
    if (cluster && !api_may_see_cluster(caller, cluster))
        return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered", cluster);
    return adv_err_set_reason(err, ADV_PERMISSION_DENIED, "ROLE_TOO_LOW", "%s does not have role %s for %s%s",
                              caller->principal, role_name(role), account || user ? "this job on " : "all of ",
                              cluster ? cluster : "the fleet");
}

/* ---- pages ------------------------------------------------------------------------------------------------------ */

int api_page_size(uint32_t asked, uint32_t *ret, struct adv_err *err)
{
    if (asked > 1000) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "PAGE_SIZE_OUT_OF_RANGE", "page_size %u: expected 0 to 1000",
                                  asked);
        return adv_err_field(err, "page_size");
    }
    *ret = asked ? asked : 100;
    return 0;
}

int api_cluster_name(const char *field, const char *name, struct resource_path *ret, struct adv_err *err)
{
    int r = resource_path_parse_field(field, name, ret, err);

    if (r == 0 && !resource_path_is_cluster(ret))
        r = adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MALFORMED", "%s \"%.64s\": expected clusters/<id>", field, name);
    return r < 0 ? adv_err_field(err, "%s", field) : 0;
}

static int find_named(struct api *api, const struct api_caller *caller, const char *id, struct cluster **ret, struct adv_err *err)
{
    *ret = fleet_find_cluster(turn_fleet(api->turn), id);
    if (*ret && api_may_see_cluster(caller, id))
        return 0;
    return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered", id);
}

int api_find_cluster(struct api *api, const struct api_caller *caller, const char *field, const char *name,
                     struct cluster **ret, struct adv_err *err)
{
    struct resource_path p;
    int r = api_cluster_name(field, name, &p, err);

    return r < 0 ? r : find_named(api, caller, p.cluster, ret, err);
}

int api_find_parent(struct api *api, const struct api_caller *caller, const char *parent, struct cluster **ret,
                    bool *ret_all, struct adv_err *err)
{
    struct resource_path p;
    int r = resource_path_parse_field("parent", parent, &p, err);

    if (r < 0)
        return r;
    *ret = NULL;
    if (ret_all)
        *ret_all = adv_streq(p.cluster, "-") && resource_path_is_cluster(&p);
    if (ret_all && *ret_all)
        return 0;
    if (!resource_path_is_cluster(&p)) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MALFORMED", "parent \"%.64s\": expected clusters/<id>%s",
                                  parent, ret_all ? " or clusters/-" : "");
        return adv_err_field(err, "parent");
    }
    return find_named(api, caller, p.cluster, ret, err);
}

/* ---- reads ------------------------------------------------------------------------------------------------------ */

struct pending_read {
    struct api_call *call;
    const ProtobufCMessage *req;
};

/* Handlers return a bare code when there is no room for the answer. */
static void fail_call(struct api_call *call, const struct adv_arena *ar, struct adv_err *err)
{
    if (err->code == ADV_OK && adv_arena_exhausted(ar))
        (void) adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "REPLY_TOO_LARGE",
                                  "the answer is too large: ask for a smaller page");
    else if (err->code == ADV_OK)
        (void) adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory");
    call->ops->fail(call, err);
}

static void read_now(void *arg, const struct adv_err *err)
{
    struct pending_read *p = arg;
    struct api_call *call = p->call;
    ProtobufCMessage *reply = NULL;
    struct adv_err e = { 0 };
    ADV_AUTO_DONE(adv_arena) ar;

    adv_arena_init(&ar, REPLY_ARENA_BYTES);
    if (call->ops->ended(call)) {
        /* nobody waits any more, and the request is gone with the call */
    } else if (err) {
        call->ops->fail(call, err);
    } else if (call->method->read(call->api, &call->caller, p->req, &ar, &reply, &e) < 0 || adv_arena_exhausted(&ar) || !reply) {
        fail_call(call, &ar, &e);
    } else {
        call->ops->reply(call, reply);
    }
    call->ops->unref(call);
    free(p);
}

void api_dispatch(struct api_call *call, const ProtobufCMessage *req)
{
    struct pending_read *p;
    struct adv_err err = { 0 };

    if (!call->method->read) {
        if (call->method->call)
            call->method->call(call, req);
        else
            call->method->message(call, req);
        return;
    }
    p = malloc(sizeof(*p));
    if (!p) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        call->ops->fail(call, &err);
        return;
    }
    *p = (struct pending_read) { call, req };
    call->ops->ref(call);
    turn_read(call->api->turn, read_now, p);
}

/* ---- writes ----------------------------------------------------------------------------------------------------- */

struct api_write {
    struct turn_event te;
    struct api_call *call;
    api_build build;
    char request_id[216]; /* as it is remembered: with whose it is */
    char hash[65];
    char cluster[65];
    char name[RESOURCE_NAME_MAX];
};

int api_request_hash(const ProtobufCMessage *req, char ret_hex[65], struct adv_err *err)
{
    size_t n = protobuf_c_message_get_packed_size(req);
    adv_auto_free uint8_t *bytes = malloc(n + 1);
    uint8_t raw[ADV_SHA256_LEN];
    struct adv_sha256 h;
    int r;

    if (!bytes)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    n = protobuf_c_message_pack(req, bytes);
    if ((r = adv_sha256_init(&h, err)) < 0)
        return r;
    if ((r = adv_sha256_update(&h, req->descriptor->name, strlen(req->descriptor->name), err)) == 0 &&
        (r = adv_sha256_update(&h, bytes, n, err)) == 0)
        r = adv_sha256_final(&h, raw, err);
    adv_sha256_done(&h);
    if (r == 0)
        (void) adv_hex(raw, sizeof(raw), ret_hex);
    return r;
}

static void write_reply(struct api_write *w)
{
    struct api_call *call = w->call;
    ProtobufCMessage *reply = NULL;
    struct adv_err err = { 0 };
    ADV_AUTO_DONE(adv_arena) ar;

    adv_arena_init(&ar, REPLY_ARENA_BYTES);
    if (w->build(call->api, &w->te.ev, &ar, &reply, &err) < 0 || adv_arena_exhausted(&ar) || !reply)
        fail_call(call, &ar, &err);
    else
        call->ops->reply(call, reply);
}

static void write_done(struct turn_event *te, const struct adv_err *err)
{
    struct api_write *w = ADV_CONTAINER_OF(te, struct api_write, te);

    if (err)
        w->call->ops->fail(w->call, err);
    else
        write_reply(w);
    w->call->ops->unref(w->call);
    free(w);
}

int api_request_id(const char *request_id, struct adv_err *err)
{
    if (strlen(request_id) <= 64)
        return 0;
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "REQUEST_ID_TOO_LONG", "request_id: expected at most 64 characters");
    return adv_err_field(err, "request_id");
}

/* Submits the event of a caller who was found allowed. */
static void write_event(struct api_call *call, const ProtobufCMessage *req, const char *request_id,
                        const struct event *ev, api_build build, const struct attempt *a, api_fill fill)
{
    struct api_write *w = calloc(1, sizeof(*w));
    const char *home = ev->type == EV_CLUSTER_CREATE ? FLEET_CLUSTER : str_or(ev->cluster);
    struct adv_err err = { 0 };

    if (handoff_needed(call->api, home)) {
        free(w);
        handoff_call(call, home, req);
        return;
    }
    if (!w || api_request_hash(req, w->hash, &err) < 0) {
        free(w);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        call->ops->fail(call, &err);
        return;
    }
    if (api_request_id(request_id, &err) < 0) {
        free(w);
        call->ops->fail(call, &err);
        return;
    }
    w->call = call;
    w->build = build;
    w->te.ev = *ev;
    w->te.done = write_done;
    if (!*request_id)
        request_id = call->handoff_id;
    if (*request_id) /* an id is its caller's own: nobody can use up another's, or be answered with what another did */
        (void) snprintf(w->request_id, sizeof(w->request_id), "%zu:%s:%s", strlen(call->caller.principal),
                        call->caller.principal, request_id);
    (void) snprintf(w->cluster, sizeof(w->cluster), "%s", str_or(ev->cluster));
    w->te.ev.cluster = w->cluster;
    w->te.ev.principal = call->caller.principal;
    w->te.ev.request_id = w->request_id;
    w->te.ev.request_hash = w->hash;
    if (fill) {
        (void) attempt_resource_name(a, w->name);
        fill(&w->te.ev, a, w->name);
    }
    call->ops->ref(call);
    turn_submit(call->api->turn, &w->te);
}

void api_write(struct api_call *call, const ProtobufCMessage *req, const char *request_id, const struct event *ev,
               api_build build)
{
    struct adv_err err = { 0 };

    if (api_check(&call->caller, call->method->role, ev->cluster, NULL, NULL, &err) < 0)
        call->ops->fail(call, &err);
    else
        write_event(call, req, request_id, ev, build, NULL, NULL);
}

struct pending_write {
    struct api_call *call;
    const ProtobufCMessage *req;
    const char *request_id, *name; /* the request's */
    const Advisor__V1__AttemptRef *ref;
    struct event ev;
    api_fill fill;
    api_build build;
};

static void write_attempt_now(void *arg, const struct adv_err *err)
{
    struct pending_write *p = arg;
    struct api_call *call = p->call;
    struct adv_err e = { 0 };
    struct attempt *a;

    if (call->ops->ended(call)) {
        /* nobody waits any more */
    } else if (err) {
        call->ops->fail(call, err);
    } else if (find_attempt(call->api, &call->caller, p->name, p->ref, &a, &e) < 0) {
        call->ops->fail(call, &e);
    } else if (api_check(&call->caller, call->method->role, a->job->cluster->name, str_or(a->job->account),
                         str_or(a->job->user), &e) < 0) {
        call->ops->fail(call, &e);
    } else {
        p->ev.cluster = a->job->cluster->name;
        write_event(call, p->req, p->request_id, &p->ev, p->build, a, p->fill);
    }
    call->ops->unref(call);
    free(p);
}

void api_write_attempt(struct api_call *call, const ProtobufCMessage *req, const char *request_id, const char *name,
                       const Advisor__V1__AttemptRef *ref, const struct event *ev, api_fill fill, api_build build)
{
    struct pending_write *p = malloc(sizeof(*p));
    struct adv_err err = { 0 };

    if (!p) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        call->ops->fail(call, &err);
        return;
    }
    *p = (struct pending_write) { call, req, request_id, name, ref, *ev, fill, build };
    call->ops->ref(call);
    turn_read(call->api->turn, write_attempt_now, p);
}

int api_time(const char *field, const Google__Protobuf__Timestamp *t, int64_t *ret_us, struct adv_err *err)
{
    *ret_us = 0;
    if (!t)
        return 0;
    if (t->seconds <= 0 || t->seconds > 253402300799 || t->nanos < 0 || t->nanos > 999999999) { /* 9999-12-31 */
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TIME_MALFORMED", "%s: expected a time between 1970 and 9999",
                                  field);
        return adv_err_field(err, "%s", field);
    }
    *ret_us = t->seconds * 1000000 + t->nanos / 1000;
    return 0;
}

int api_text(const char *field, const char *text, size_t min, size_t max, struct adv_err *err)
{
    size_t n = 0;

    for (const char *p = text; *p; p++) {
        n += ((unsigned char) *p & 0xC0) != 0x80; /* the door has seen that it is UTF-8 */
        if ((unsigned char) *p < 0x20 || *p == 0x7f) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TEXT_MALFORMED", "%s: has a control character", field);
            return adv_err_field(err, "%s", field);
        }
    }
    if (n < min)
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TEXT_MISSING", "%s: expected %zu to %zu characters", field,
                                  min, max);
    else if (n > max)
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TEXT_TOO_LONG", "%s: %zu characters, expected at most %zu",
                                  field, n, max);
    else
        return 0;
    return adv_err_field(err, "%s", field);
}

int api_word(const char *field, const char *word, size_t min, size_t max, const char *also, struct adv_err *err)
{
    size_t n = strlen(word);
    bool ok = n >= min && n <= max;

    for (const char *p = word; ok && *p; p++)
        ok = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr(also, *p);
    if (ok)
        return 0;
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "WORD_MALFORMED", "%s: expected %zu to %zu letters, digits or \"%s\"",
                              field, min, max, also);
    return adv_err_field(err, "%s", field);
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static const struct {
    const struct api_method *v;
    const size_t *n;
} services[] = {
    { agent_service_methods, &agent_service_n }, { cert_methods, &cert_methods_n }, { fleet_service_methods, &fleet_service_n },
    { job_service_methods, &job_service_n },     { advice_service_methods, &advice_service_n },
    { audit_service_methods, &audit_service_n }, { watch_service_methods, &watch_service_n },
    { entries_methods, &entries_n },             { policy_service_methods, &policy_service_n },
    { retention_methods, &retention_n },         { signal_service_methods, &signal_service_n },
    { report_service_methods, &report_service_n }, { otlp_methods, &otlp_n },
    { workflow_methods, &workflow_n },
};

const struct api_method *api_methods(size_t *ret_n)
{
    static struct api_method all[128];
    static size_t n;

    if (!n)
        for (size_t i = 0; i < ADV_ARRAY_LEN(services); i++)
            for (size_t k = 0; k < *services[i].n && n < ADV_ARRAY_LEN(all); k++)
                all[n++] = services[i].v[k];
    *ret_n = n;
    return all;
}

static void tick_cb(uv_timer_t *h)
{
    struct api *api = h->data;

    agent_service_tick(api);
    watch_service_tick(api);
    logs_tick(api);
    handoff_tick(api);
    retention_tick(api);
}

static void changed_cb(struct turn_observer *o)
{
    struct api *api = ADV_CONTAINER_OF(o, struct api, observer);

    agent_service_changed(api);
    watch_service_changed(api);
    logs_changed(api);
}

static void reset_cb(struct turn_observer *o)
{
    struct api *api = ADV_CONTAINER_OF(o, struct api, observer);
    struct adv_err err = { 0 };

    (void) adv_err_set_reason(&err, ADV_UNAVAILABLE, "STORE_UNAVAILABLE", "the store was lost; come back");
    err.retry_after_ms = 1000;
    agent_service_reset(api, &err);
    watch_service_reset(api, &err);
    handoff_reset(api, &err);
}

void api_set_rules(struct api *api, struct watcher_rules *rules)
{
    api->rules = rules;
    logs_set_rules(api);
}

int api_new(uv_loop_t *loop, struct turn *turn, struct watcher_rules *rules, const struct api_config *cfg,
            struct api **ret, struct adv_err *err)
{
    struct api *api = calloc(1, sizeof(*api));

    if (!api)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    api->loop = loop;
    api->turn = turn;
    api->rules = rules;
    api->cfg = *cfg;
    api->observer.changed = changed_cb;
    api->observer.reset = reset_cb;
    api->owner = cfg->owner;
    if (retention_start(api, err) < 0) {
        free(api);
        return -ADV_RESOURCE_EXHAUSTED;
    }
    if (logs_new(api) < 0) {
        retention_free(api);
        free(api);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    turn_observe(turn, &api->observer);
    handoff_start(api);
    agent_service_start(api);
    (void) uv_timer_init(loop, &api->tick);
    api->tick.data = api;
    (void) uv_timer_start(&api->tick, tick_cb, TICK_MS, TICK_MS);
    *ret = api;
    return 0;
}

static void enrol_done(struct api_enrol *e)
{
    for (size_t i = 0; i < e->n_servers; i++)
        free(e->servers[i]);
    free(e->servers);
    free(e->server_name);
    free(e->server_ca);
    *e = (struct api_enrol) { 0 };
}

int api_set_enrol(struct api *api, const struct api_enrol *enrol, struct adv_err *err)
{
    struct api_enrol e = { .ca = enrol->ca, .cert_life_ms = enrol->cert_life_ms };
    bool ok = (e.server_name = strdup(enrol->server_name)) && (e.server_ca = strdup(enrol->server_ca)) &&
              (e.servers = calloc(enrol->n_servers + 1, sizeof(*e.servers)));

    for (; ok && e.n_servers < enrol->n_servers; e.n_servers += ok)
        ok = (e.servers[e.n_servers] = strdup(enrol->servers[e.n_servers])) != NULL;
    if (!ok) {
        enrol_done(&e);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    enrol_done(&api->enrol);
    api->enrol = e;
    return 0;
}

void api_stop(struct api *api)
{
    struct adv_err err = { 0 };

    api->stopping = true;
    (void) adv_err_set_reason(&err, ADV_UNAVAILABLE, "STOPPING", "the control plane is stopping; come back");
    err.retry_after_ms = 1000;
    agent_service_reset(api, &err);
    watch_service_reset(api, &err);
    handoff_reset(api, &err);
}

static void closed_cb(uv_handle_t *h)
{
    free(h->data);
}

void api_maybe_free(struct api *api)
{
    if (!api->freed || api->pending || api->errands || retention_busy(api) || uv_is_closing((uv_handle_t *) &api->tick))
        return;
    handoff_free(api);
    retention_free(api);
    uv_close((uv_handle_t *) &api->tick, closed_cb);
}

void api_free(struct api *api)
{
    if (!api)
        return;
    turn_unobserve(api->turn, &api->observer);
    turn_set_handoffs(api->turn, NULL, NULL);
    otlp_free(api);
    logs_free(api);
    enrol_done(&api->enrol);
    (void) uv_timer_stop(&api->tick);
    api->freed = true;
    api_maybe_free(api);
}
