/* SPDX-License-Identifier: Apache-2.0 */
/* FleetService, second part: maintenance windows, exclusions, incidents, which are alike: got and listed by uid, made,
 * ended. */

#include <stdio.h>

#include "advisor/v1/fleet_service.pb-c.h"

#include "controlplane/api/find.h"
#include "controlplane/shapes/shapes.h"

/* ---- reads ------------------------------------------------------------------------------------------------------ */

static int not_found(enum resource_kind kind, const char *what, struct adv_err *err)
{
    switch ((int) kind) {
    case RESOURCE_EXCLUSION:
        return adv_err_set_reason(err, ADV_NOT_FOUND, "EXCLUSION_NOT_FOUND", "%.200s: no such exclusion", what);
    case RESOURCE_INCIDENT:
        return adv_err_set_reason(err, ADV_NOT_FOUND, "INCIDENT_NOT_FOUND", "%.200s: no such incident", what);
    default:
        return adv_err_set_reason(err, ADV_NOT_FOUND, "WINDOW_NOT_FOUND", "%.200s: no such maintenance window", what);
    }
}

/* By its resource name. */
static int get_entry(struct api *api, const struct api_caller *caller, enum resource_kind kind, const char *name,
                     const struct entry **ret, struct adv_err *err)
{
    struct resource_path p;
    struct cluster *c;
    int r = resource_path_parse(name, &p, err);

    if (r < 0)
        return r;
    if (p.entry_kind != kind || !p.entry_uid) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MALFORMED", "name \"%.64s\": expected %s", name,
                                  kind == RESOURCE_EXCLUSION   ? "clusters/<id>/exclusions/<uid>" :
                                  kind == RESOURCE_INCIDENT    ? "clusters/<id>/incidents/<uid>" :
                                                                 "clusters/<id>/windows/<uid>");
        return adv_err_field(err, "name");
    }
    c = fleet_find_cluster(turn_fleet(api->turn), p.cluster);
    if (!c || !api_may_see_cluster(caller, p.cluster))
        return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered", p.cluster);
    *ret = entry_find(c, kind, p.entry_uid);
    if (*ret && api_may_see_entry(caller, *ret))
        return 0;
    return not_found(kind, name, err);
}

struct page {
    const struct newest *v;
    size_t n;
    char *next_token;
};

struct query {
    const char *list; /* in tokens */
    enum resource_kind kind;
    const char *parent;
    uint32_t page_size;
    const char *page_token;
    bool (*wanted)(const struct entry *e, const void *req);
    const void *req;
};

static int list_entries(struct api *api, const struct api_caller *caller, const struct query *q, struct adv_arena *ar,
                        struct page *ret, struct adv_err *err)
{
    struct fleet *f = turn_fleet(api->turn);
    struct cluster *only;
    struct newest *all;
    char after[64];
    uint32_t limit;
    size_t n = 0;
    bool every;
    int r;

    if ((r = api_find_parent(api, caller, q->parent, &only, &every, err)) < 0 ||
        (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, q->list, after, sizeof(after), err)) < 0)
        return r;
    for (struct cluster *c = f->clusters; c; c = c->hh.next)
        n += HASH_COUNT(c->entries[q->kind]);
    all = adv_arena_alloc(ar, (n + 1) * sizeof(*all));
    if (!all)
        return -ADV_RESOURCE_EXHAUSTED;
    n = 0;
    for (struct cluster *c = f->clusters; c; c = c->hh.next) {
        if (every ? !api_may_see_cluster(caller, c->name) : c != only)
            continue;
        for (const struct entry *e = c->entries[q->kind]; e; e = e->hh.next)
            if (q->wanted(e, q->req) && api_may_see_entry(caller, e) && (!*after || strcmp(e->uid, after) < 0))
                all[n++] = (struct newest) { e->uid, e };
    }
    *ret = (struct page) { .v = all, .next_token = (char *) (uintptr_t) "" };
    ret->n = newest_page(ar, q->list, all, n, limit, &ret->next_token);
    return 0;
}

/* A list call of @Kind: `list_<things>`. */
#define LIST(fn, Req, Resp, resp_init, field, KIND, word, shape, Struct, filter)                                        \
    static int fn(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,  \
                  ProtobufCMessage **ret, struct adv_err *err)                                                          \
    {                                                                                                                   \
        const Req *q = (const void *) req;                                                                              \
        const struct query query = { word, KIND, q->parent, q->page_size, q->page_token, filter, q };                   \
        struct page page;                                                                                               \
        int r = list_entries(api, caller, &query, ar, &page, err);                                                      \
        if (r < 0)                                                                                                      \
            return r;                                                                                                   \
        REPLY(m, Resp, resp_init);                                                                                      \
        m->field = adv_arena_alloc(ar, (page.n + 1) * sizeof(*m->field));                                               \
        for (size_t i = 0; m->field && i < page.n; i++)                                                                 \
            if ((m->field[i] = shape(ar, (const struct Struct *) page.v[i].object)))                                           \
                m->n_##field++;                                                                                         \
        m->next_page_token = page.next_token;                                                                           \
        return adv_arena_exhausted(ar) ? -ADV_RESOURCE_EXHAUSTED : 0;                                                   \
    }

#define GET(fn, Req, Resp, resp_init, field, KIND, shape, Struct)                                                       \
    static int fn(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,  \
                  ProtobufCMessage **ret, struct adv_err *err)                                                          \
    {                                                                                                                   \
        const struct entry *e;                                                                                          \
        int r = get_entry(api, caller, KIND, ((const Req *) (const void *) req)->name, &e, err);                        \
        if (r < 0)                                                                                                      \
            return r;                                                                                                   \
        REPLY(m, Resp, resp_init);                                                                                      \
        m->field = shape(ar, (const struct Struct *) e);                                                                \
        return 0;                                                                                                       \
    }

static bool exclusion_wanted(const struct entry *e, const void *req)
{
    const Advisor__V1__ListExclusionsRequest *q = req;
    const struct exclusion *x = (const struct exclusion *) e;

    return (q->show_over || exclusion_active(x)) && (!*q->node || adv_streq(q->node, str_or(x->node)));
}

static bool incident_wanted(const struct entry *e, const void *req)
{
    return ((const Advisor__V1__ListIncidentsRequest *) req)->show_closed || !((const struct incident *) e)->closed;
}

static bool window_wanted(const struct entry *e, const void *req)
{
    return ((const Advisor__V1__ListMaintenanceWindowsRequest *) req)->show_over ||
           ((const struct window *) e)->state != WINDOW_OVER;
}

GET(get_exclusion, Advisor__V1__GetExclusionRequest, Advisor__V1__GetExclusionResponse,
    advisor__v1__get_exclusion_response__init, exclusion, RESOURCE_EXCLUSION, shape_exclusion, exclusion)
GET(get_incident, Advisor__V1__GetIncidentRequest, Advisor__V1__GetIncidentResponse,
    advisor__v1__get_incident_response__init, incident, RESOURCE_INCIDENT, shape_incident, incident)
GET(get_window, Advisor__V1__GetMaintenanceWindowRequest, Advisor__V1__GetMaintenanceWindowResponse,
    advisor__v1__get_maintenance_window_response__init, window, RESOURCE_WINDOW, shape_window, window)
LIST(list_exclusions, Advisor__V1__ListExclusionsRequest, Advisor__V1__ListExclusionsResponse,
     advisor__v1__list_exclusions_response__init, exclusions, RESOURCE_EXCLUSION, "exclusions", shape_exclusion, exclusion,
     exclusion_wanted)
LIST(list_incidents, Advisor__V1__ListIncidentsRequest, Advisor__V1__ListIncidentsResponse,
     advisor__v1__list_incidents_response__init, incidents, RESOURCE_INCIDENT, "incidents", shape_incident, incident,
     incident_wanted)
LIST(list_windows, Advisor__V1__ListMaintenanceWindowsRequest, Advisor__V1__ListMaintenanceWindowsResponse,
     advisor__v1__list_maintenance_windows_response__init, windows, RESOURCE_WINDOW, "windows", shape_window, window,
     window_wanted)

/* ---- writes ----------------------------------------------------------------------------------------------------- */

/* What the event made: by the uid that it tells, or, when the call is repeated, by the call's id. */
static const struct entry *made(struct api *api, const struct event *ev, enum resource_kind kind, const char *uid,
                                struct adv_err *err)
{
    const struct cluster *c = fleet_find_cluster(turn_fleet(api->turn), ev->cluster);
    const struct entry *e = !c ? NULL : *uid ? entry_find(c, kind, uid) : entry_find_request(c, kind, ev->request_id);

    if (!e)
        (void) not_found(kind, "what the first call with this id made", err);
    return e;
}

#define BUILT(fn, Resp, resp_init, field, KIND, shape, Struct, uid)                                                     \
    static int fn(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,                \
                  struct adv_err *err)                                                                                  \
    {                                                                                                                   \
        const struct entry *e = made(api, ev, KIND, uid, err);                                                          \
        if (!e)                                                                                                         \
            return -ADV_NOT_FOUND;                                                                                      \
        REPLY(m, Resp, resp_init);                                                                                      \
        m->field = shape(ar, (const struct Struct *) e);                                                                \
        return 0;                                                                                                       \
    }
BUILT(add_exclusion_built, Advisor__V1__AddExclusionResponse, advisor__v1__add_exclusion_response__init, exclusion,
      RESOURCE_EXCLUSION, shape_exclusion, exclusion, ev->u.exclusion.ret_uid)
BUILT(lift_exclusion_built, Advisor__V1__LiftExclusionResponse, advisor__v1__lift_exclusion_response__init, exclusion,
      RESOURCE_EXCLUSION, shape_exclusion, exclusion, ev->u.entry.uid)
BUILT(create_window_built, Advisor__V1__CreateMaintenanceWindowResponse,
      advisor__v1__create_maintenance_window_response__init, window, RESOURCE_WINDOW, shape_window, window,
      ev->u.window.ret_uid)
BUILT(end_window_built, Advisor__V1__EndMaintenanceWindowResponse, advisor__v1__end_maintenance_window_response__init,
      window, RESOURCE_WINDOW, shape_window, window, ev->u.entry.uid)
BUILT(close_incident_built, Advisor__V1__CloseIncidentResponse, advisor__v1__close_incident_response__init, incident,
      RESOURCE_INCIDENT, shape_incident, incident, ev->u.entry.uid)

static void add_exclusion(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__AddExclusionRequest *q = (const void *) req;
    struct event ev = { .type = EV_EXCLUSION_ADD };
    struct adv_err err = { 0 };
    struct resource_path p;

    if (api_cluster_name("parent", q->parent, &p, &err) < 0 || api_text("reason", q->reason, 1, API_REASON_MAX, &err) < 0 ||
        api_time("expire_time", q->expire_time, &ev.u.exclusion.expire_us, &err) < 0) {
        call->ops->fail(call, &err);
        return;
    }
    ev.cluster = p.cluster;
    ev.u.exclusion.node = q->node;
    ev.u.exclusion.reason = q->reason;
    api_write(call, req, q->request_id, &ev, add_exclusion_built);
}

static void create_window(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__CreateMaintenanceWindowRequest *q = (const void *) req;
    struct event ev = { .type = EV_WINDOW_CREATE };
    struct adv_err err = { 0 };
    struct resource_path p;

    if (api_cluster_name("parent", q->parent, &p, &err) < 0 || api_text("reason", q->reason, 1, API_REASON_MAX, &err) < 0 ||
        api_time("start_time", q->start_time, &ev.u.window.start_us, &err) < 0 ||
        api_time("end_time", q->end_time, &ev.u.window.end_us, &err) < 0) {
        call->ops->fail(call, &err);
        return;
    }
    ev.cluster = p.cluster;
    ev.u.window.reason = q->reason;
    api_write(call, req, q->request_id, &ev, create_window_built);
}

/* Lift, end, close: one existing entry by name. */
static void on_entry(struct api_call *call, const ProtobufCMessage *req, enum event_type type, enum resource_kind kind,
                     const char *name, const char *etag, const char *reason, const char *request_id, api_build build)
{
    struct event ev = { .type = type };
    struct adv_err err = { 0 };
    struct resource_path p;

    if (resource_path_parse(name, &p, &err) == 0 && (p.entry_kind != kind || !p.entry_uid)) {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "NAME_MALFORMED", "name \"%.64s\": it names something else",
                                  name);
        (void) adv_err_field(&err, "name");
    }
    if (err.code == ADV_OK)
        (void) !api_text("reason", reason, 0, API_REASON_MAX, &err);
    if (err.code == ADV_OK)
        (void) !shape_entry_etag_parse(etag, &ev.u.entry.if_revision, &err);
    if (err.code != ADV_OK) {
        call->ops->fail(call, &err);
        return;
    }
    ev.cluster = p.cluster;
    ev.u.entry.uid = strrchr(name, '/') + 1; /* the request lives until the event is done */
    ev.u.entry.reason = reason;
    api_write(call, req, request_id, &ev, build);
}

static void lift_exclusion(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__LiftExclusionRequest *q = (const void *) req;

    on_entry(call, req, EV_EXCLUSION_LIFT, RESOURCE_EXCLUSION, q->name, q->etag, q->reason, q->request_id,
             lift_exclusion_built);
}

static void end_window(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__EndMaintenanceWindowRequest *q = (const void *) req;

    on_entry(call, req, EV_WINDOW_END, RESOURCE_WINDOW, q->name, q->etag, "", q->request_id, end_window_built);
}

static void close_incident(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__CloseIncidentRequest *q = (const void *) req;

    on_entry(call, req, EV_INCIDENT_CLOSE, RESOURCE_INCIDENT, q->name, q->etag, q->reason, q->request_id,
             close_incident_built);
}

#define ROW(name, lower, ROLE, ...)                                                                          \
    { "/advisor.v1.FleetService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE, 64 << 10, __VA_ARGS__ }
const struct api_method entries_methods[] = {
    ROW(CreateMaintenanceWindow, create_maintenance_window, ROLE_OPERATOR, .call = create_window),
    ROW(GetMaintenanceWindow, get_maintenance_window, ROLE_READER, .read = get_window),
    ROW(ListMaintenanceWindows, list_maintenance_windows, ROLE_READER, .read = list_windows),
    ROW(EndMaintenanceWindow, end_maintenance_window, ROLE_OPERATOR, .call = end_window),
    ROW(AddExclusion, add_exclusion, ROLE_OPERATOR, .call = add_exclusion),
    ROW(GetExclusion, get_exclusion, ROLE_READER, .read = get_exclusion),
    ROW(ListExclusions, list_exclusions, ROLE_READER, .read = list_exclusions),
    ROW(LiftExclusion, lift_exclusion, ROLE_OPERATOR, .call = lift_exclusion),
    ROW(GetIncident, get_incident, ROLE_READER, .read = get_incident),
    ROW(ListIncidents, list_incidents, ROLE_READER, .read = list_incidents),
    ROW(CloseIncident, close_incident, ROLE_OPERATOR, .call = close_incident),
};
const size_t entries_n = ADV_ARRAY_LEN(entries_methods);
