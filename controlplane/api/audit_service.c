/* SPDX-License-Identifier: Apache-2.0 */
/* AuditService: pages read from the store by a worker. */

#include "advisor/v1/audit_service.pb-c.h"

#include <stdio.h>

#include "common/num.h"
#include "controlplane/api/find.h"
#include "controlplane/shapes/shapes.h"

struct audit_read {
    struct api_call *call;
    uint32_t limit;
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

static void fill_and_reply(struct api_call *call, uint32_t limit, const struct audit_row *rows, size_t n)
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
    if (n > limit) {
        (void) snprintf(key, sizeof(key), "%llu", (unsigned long long) rows[limit - 1].rowid);
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
        fill_and_reply(a->call, a->limit, rows, n);
    a->call->ops->unref(a->call);
    free(a);
}

static void list_audit_events(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__ListAuditEventsRequest *q = (const void *) req;
    struct audit_query query = { 0 };
    struct audit_read *a = NULL;
    struct resource_path p;
    struct adv_err err = { 0 };
    char after[32];
    uint32_t limit;

    if (resource_path_parse(q->parent, &p, &err) < 0 || api_page_size(q->page_size, &limit, &err) < 0 ||
        token_page_parse(q->page_token, "audit", after, sizeof(after), &err) < 0 ||
        (*after && adv_parse_u64(after, 0, INT64_MAX, &query.after_rowid, &err) < 0))
        goto fail;
    if (strlen(q->subject_prefix) >= sizeof(query.subject_prefix) || strlen(q->verb) >= sizeof(query.verb)) {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "FILTER_TOO_LONG", "subject_prefix or verb is too long");
        goto fail;
    }
    if (!adv_streq(p.cluster, "-") && (!fleet_find_cluster(turn_fleet(call->api->turn), p.cluster) ||
                                       !api_may_see_cluster(&call->caller, p.cluster))) {
        (void) adv_err_set_reason(&err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered", p.cluster);
        goto fail;
    }
    a = malloc(sizeof(*a));
    if (!a) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        goto fail;
    }
    if (!adv_streq(p.cluster, "-"))
        (void) snprintf(query.cluster, sizeof(query.cluster), "%s", p.cluster);
    (void) strcpy(query.subject_prefix, q->subject_prefix);
    (void) strcpy(query.verb, q->verb);
    query.limit = limit + 1; /* one more tells whether there is a next page */
    *a = (struct audit_read) { call, limit };
    call->ops->ref(call);
    store_list_audit(turn_store(call->api->turn), &query, rows_cb, a);
    return;
fail:
    call->ops->fail(call, &err);
}

const struct api_method audit_service_methods[] = {
    { "/advisor.v1.AuditService/ListAuditEvents", API_UNARY, &advisor__v1__list_audit_events_request__descriptor,
      &advisor__v1__list_audit_events_response__descriptor, ROLE_READER, 64 << 10, .call = list_audit_events },
};
const size_t audit_service_n = ADV_ARRAY_LEN(audit_service_methods);
