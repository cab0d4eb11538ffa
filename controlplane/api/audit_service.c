/* SPDX-License-Identifier: Apache-2.0 */
/* AuditService: pages read from the store by a worker. audit_append.c and audit_verify.c have the rest. */

#include "controlplane/api/audit.h"

#include <stdio.h>

#include "common/num.h"
#include "controlplane/api/find.h"
#include "controlplane/shapes/shapes.h"

struct audit_read {
    struct api_call *call;
    uint32_t limit;
    uint64_t upto; /* no event after it was looked at; 0: all were */
};

/* Whoever may see all of a cluster sees all its events; others those about jobs that they may see. */
static bool visible(struct api_call *call, const struct audit_row *row)
{
    const struct api_caller *caller = &call->caller;
    struct resource_path p;
    struct cluster *c;
    struct job *j;

    if (adv_streq(row->cluster, FLEET_CLUSTER))
        return api_may_see_all(caller, NULL);
    if (api_may_see_all(caller, row->cluster))
        return true;
    if (!api_may_see_cluster(caller, row->cluster) || !turn_ready(call->api->turn) ||
        resource_path_parse(str_or(row->subject), &p, NULL) < 0 || !p.job_uid)
        return false;
    c = fleet_find_cluster(turn_fleet(call->api->turn), row->cluster);
    j = c ? fleet_find_job_uid(c, p.job_uid) : NULL;
    return j && api_may_see_job(caller, j);
}

static void fill_and_reply(struct api_call *call, uint32_t limit, uint64_t upto, const struct audit_row *rows, size_t n)
{
    Advisor__V1__ListAuditEventsResponse m = ADVISOR__V1__LIST_AUDIT_EVENTS_RESPONSE__INIT;
    struct adv_err err = { 0 };
    char key[32];
    ADV_AUTO_DONE(adv_arena) ar;

    adv_arena_init(&ar, 64 << 20);
    m.events = adv_arena_alloc(&ar, (n + 1) * sizeof(*m.events));
    for (size_t i = 0; m.events && i < n && i < limit; i++)
        if (visible(call, &rows[i]))
            m.events[m.n_events++] = shape_audit(&ar, &rows[i]);
    if (n > limit)
        upto = rows[limit - 1].rowid;
    if (upto) {
        (void) snprintf(key, sizeof(key), "%llu", (unsigned long long) upto);
        m.next_page_token = token_page(&ar, "audit", key);
    }
    if (adv_arena_exhausted(&ar) || !m.next_page_token) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "the answer is too large: ask for a smaller page");
        call->ops->fail(call, &err);
        return;
    }
    call->ops->reply(call, &m.base);
}

static void rows_cb(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    struct audit_read *a = arg;

    if (err)
        a->call->ops->fail(a->call, err);
    else if (!a->call->ops->ended(a->call))
        fill_and_reply(a->call, a->limit, a->upto, rows, n);
    a->call->ops->unref(a->call);
    free(a);
}

int audit_parent(struct api_call *call, const char *parent, bool all_too, char ret_cluster[65], struct adv_err *err)
{
    struct cluster *c;
    int r;

    ret_cluster[0] = '\0';
    if (adv_streq(parent, "clusters/" FLEET_CLUSTER)) { /* no cluster that anybody could register */
        (void) strcpy(ret_cluster, FLEET_CLUSTER);
        return 0;
    }
    if (all_too && adv_streq(parent, "clusters/-"))
        return 0;
    if ((r = api_find_cluster(call->api, &call->caller, "parent", parent, &c, err)) == 0)
        (void) snprintf(ret_cluster, 65, "%s", c->name);
    return r;
}

static int make_query(struct api_call *call, const Advisor__V1__ListAuditEventsRequest *q, struct audit_query *ret,
                      struct adv_err *err)
{
    char after[32];
    uint32_t limit;
    int r;

    *ret = (struct audit_query) { 0 };
    if ((r = audit_parent(call, q->parent, true, ret->cluster, err)) < 0 ||
        (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "audit", after, sizeof(after), err)) < 0 ||
        (r = api_time("start_time", q->start_time, &ret->from_us, err)) < 0 ||
        (r = api_time("end_time", q->end_time, &ret->before_us, err)) < 0)
        return r;
    if (*after && adv_parse_u64(after, 0, INT64_MAX, &ret->after_rowid, NULL) < 0) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "PAGE_TOKEN_INVALID",
                                  "page_token: expected the next_page_token of the same list");
        return adv_err_field(err, "page_token");
    }
    if (strlen(q->subject_prefix) >= sizeof(ret->subject_prefix) || strlen(q->verb) >= sizeof(ret->verb) ||
        strlen(q->principal) >= sizeof(ret->principal))
        return adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "FILTER_TOO_LONG", "subject_prefix, verb or principal is too long");
    (void) strcpy(ret->subject_prefix, q->subject_prefix);
    (void) strcpy(ret->verb, q->verb);
    (void) strcpy(ret->principal, q->principal);
    ret->limit = limit + 1; /* one more tells whether there is a next page */
    return 0;
}

static void list_audit_events(struct api_call *call, const ProtobufCMessage *req)
{
    struct audit_query query;
    struct audit_read *a = malloc(sizeof(*a));
    struct adv_err err = { 0 };

    if (!a || make_query(call, (const void *) req, &query, &err) < 0) {
        if (!a)
            (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        free(a);
        call->ops->fail(call, &err);
        return;
    }
    *a = (struct audit_read) { call, query.limit - 1, 0 };
    if (query.subject_prefix[0] || query.verb[0] || query.principal[0] || query.from_us || query.before_us)
        query.ret_upto = &a->upto;
    call->ops->ref(call);
    store_list_audit(turn_store(call->api->turn), &query, rows_cb, a);
}

static int list_audit_checkpoints(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                                  struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListAuditCheckpointsRequest *q = (const void *) req;
    struct fleet *f = turn_fleet(api->turn);
    struct cluster *c = f->global;
    struct newest *all;
    char after[64];
    uint32_t limit;
    size_t n = 0;
    int r;

    if ((!adv_streq(q->parent, "clusters/" FLEET_CLUSTER) &&
         (r = api_find_parent(api, caller, q->parent, &c, NULL, err)) < 0) ||
        (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "checkpoints", after, sizeof(after), err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListAuditCheckpointsResponse, advisor__v1__list_audit_checkpoints_response__init);
    m->checkpoints = adv_arena_alloc(ar, limit * sizeof(*m->checkpoints));
    all = adv_arena_alloc(ar, (HASH_COUNT(c->entries[RESOURCE_CHECKPOINT]) + 1) * sizeof(*all));
    if (!m->checkpoints || !all)
        return -ADV_RESOURCE_EXHAUSTED;
    for (const struct entry *e = c->entries[RESOURCE_CHECKPOINT]; e; e = e->hh.next)
        if (!*after || strcmp(e->uid, after) < 0)
            all[n++] = (struct newest) { e->uid, e };
    n = newest_page(ar, "checkpoints", all, n, limit, &m->next_page_token);
    while (m->n_checkpoints < n) {
        m->checkpoints[m->n_checkpoints] = shape_checkpoint(ar, all[m->n_checkpoints].object);
        if (!m->checkpoints[m->n_checkpoints++])
            return -ADV_RESOURCE_EXHAUSTED;
    }
    return 0;
}

#define ROW(name, lower, ROLE, SIZE, ...)                                                                    \
    { "/advisor.v1.AuditService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE, SIZE, __VA_ARGS__ }
const struct api_method audit_service_methods[] = {
    ROW(ListAuditEvents, list_audit_events, ROLE_READER, 64 << 10, .call = list_audit_events),
    ROW(AppendAuditEvents, append_audit_events, ROLE_DETECTOR, 512 << 10, .call = audit_append),
    ROW(VerifyAudit, verify_audit, ROLE_READER, 64 << 10, .call = audit_verify),
    ROW(ListAuditCheckpoints, list_audit_checkpoints, ROLE_READER, 64 << 10, .read = list_audit_checkpoints),
};
const size_t audit_service_n = ADV_ARRAY_LEN(audit_service_methods);
