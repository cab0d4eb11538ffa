/* SPDX-License-Identifier: Apache-2.0 */
/* Events of somebody outside, once each however often they are sent.
 *
 * Whether an event is in the log is asked of the store, and one call is carried out at a time: so two calls with the same
 * event cannot both find it missing. The log itself is the memory of what was stored; nothing else grows with it. Only the
 * owner of a cluster gets here (handoff.c), so there is one such place for each log. */

#include "controlplane/api/audit.h"

#include <stdio.h>
#include <utlist.h>

#include "controlplane/api/handoff.h"

#define EVENTS_MAX    200
#define EVENT_ID_MAX  64
#define VERB_MAX      48
#define SUBJECT_MAX   200

struct item {
    struct turn_event te;
    struct append *a;
    char verb[VERB_MAX + 8];
    int64_t observe_us;
    Advisor__V1__AppendAuditResult result;
    char message[256];
};

struct append {
    struct api_call *call;
    const Advisor__V1__AppendAuditEventsRequest *q;
    char cluster[65];
    struct item *items;
    size_t n, outstanding;
    struct adv_err err; /* the first; code 0: none */
    struct append *prev, *next;
};

static void start_next(struct api *api);

static void finish(struct append *a)
{
    struct api *api = a->call->api;
    Advisor__V1__AppendAuditEventsResponse m = ADVISOR__V1__APPEND_AUDIT_EVENTS_RESPONSE__INIT;
    Advisor__V1__AppendAuditResult *results[EVENTS_MAX];

    DL_DELETE(api->appends, a);
    if (a->err.code != ADV_OK) {
        a->call->ops->fail(a->call, &a->err);
    } else {
        for (size_t i = 0; i < a->n; i++)
            results[i] = &a->items[i].result;
        m.n_results = a->n;
        m.results = results;
        a->call->ops->reply(a->call, &m.base);
    }
    a->call->ops->unref(a->call);
    free(a->items);
    free(a);
    start_next(api);
}

static void refuse_item(struct item *it, const struct adv_err *err)
{
    (void) snprintf(it->message, sizeof(it->message), "%s", err->msg);
    it->result.status = ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_REFUSED;
    it->result.reason = (char *) (uintptr_t) err->reason;
    it->result.message = it->message;
}

/* Looks at each event by itself. */
static void check_item(struct item *it, const Advisor__V1__NewAuditEvent *e)
{
    struct adv_err err = { 0 };
    bool verb_ok = *e->verb >= 'a' && *e->verb <= 'z' &&
                   strspn(e->verb, "abcdefghijklmnopqrstuvwxyz0123456789._") == strlen(e->verb) && strlen(e->verb) <= VERB_MAX;

    advisor__v1__append_audit_result__init(&it->result);
    it->result.event_id = e->event_id;
    if (api_word("event_id", e->event_id, 1, EVENT_ID_MAX, "._:-", &err) < 0 ||
        api_text("subject", e->subject, 1, SUBJECT_MAX, &err) < 0 ||
        api_text("detail", e->detail, 0, API_REASON_MAX, &err) < 0 ||
        api_time("observe_time", e->observe_time, &it->observe_us, &err) < 0) {
        refuse_item(it, &err);
    } else if (!verb_ok) {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "WORD_MALFORMED",
                                  "verb: expected 1 to 48 of a-z, 0-9, '.' and '_', beginning with a letter");
        refuse_item(it, &err);
    } else if (adv_startswith(e->verb, "ext.")) {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "WORD_MALFORMED",
                                  "verb \"%.60s\": expected it without \"ext.\", which is put before it", e->verb);
        refuse_item(it, &err);
    }
    (void) snprintf(it->verb, sizeof(it->verb), "ext.%.*s", VERB_MAX, e->verb);
}

static void duplicate_or_reused(struct item *it, bool same, uint64_t seq)
{
    struct adv_err err = { 0 };

    if (same) {
        it->result.status = ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_DUPLICATE;
        it->result.seq = seq;
    } else {
        (void) adv_err_set_reason(&err, ADV_ALREADY_EXISTS, "EVENT_ID_REUSED", "event_id: it was used for another event");
        refuse_item(it, &err);
    }
}

/* As far as what is stored can be compared: an erased detail counts as any. */
static bool same_as_row(const struct item *it, const Advisor__V1__NewAuditEvent *e, const struct audit_row *r)
{
    char hash[ADV_SHA256_HEX_SIZE];

    return adv_streq(it->verb, r->verb) && adv_streq(e->subject, r->subject) && it->observe_us == r->observe_us &&
           (!*r->salt || (audit_detail_hash(r->salt, e->detail, hash) && adv_streq(hash, r->detail_hash)));
}

static bool same_as_item(const struct append *a, size_t i, size_t k)
{
    const Advisor__V1__NewAuditEvent *x = a->q->events[i], *y = a->q->events[k];

    return adv_streq(x->verb, y->verb) && adv_streq(x->subject, y->subject) && adv_streq(x->detail, y->detail) &&
           a->items[i].observe_us == a->items[k].observe_us;
}

static void stored(struct turn_event *te, const struct adv_err *err)
{
    struct item *it = ADV_CONTAINER_OF(te, struct item, te);
    struct append *a = it->a;

    if (err && a->err.code == ADV_OK)
        a->err = *err;
    it->result.status = ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_STORED;
    it->result.seq = te->ev.u.audit.ret_seq;
    if (--a->outstanding)
        return;
    for (size_t i = 0; i < a->n; i++) /* repeated within the call: where the first one stands */
        for (size_t k = 0; k < i; k++)
            if (a->items[i].result.status == ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_DUPLICATE &&
                !a->items[i].result.seq && adv_streq(a->items[i].result.event_id, a->items[k].result.event_id))
                a->items[i].result.seq = a->items[k].result.seq;
    finish(a);
}

static void submit(struct append *a)
{
    a->outstanding = 1; /* ours, until all are submitted */
    for (size_t i = 0; i < a->n; i++) {
        struct item *it = &a->items[i];
        const Advisor__V1__NewAuditEvent *e = a->q->events[i];
        if (it->result.status != ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_UNSPECIFIED)
            continue;
        it->a = a;
        it->te = (struct turn_event) { .ev = { .type = EV_AUDIT_APPEND, .cluster = a->cluster,
                                               .principal = a->call->caller.principal },
                                       .done = stored };
        it->te.ev.u.audit.verb = it->verb;
        it->te.ev.u.audit.subject = e->subject;
        it->te.ev.u.audit.event_id = e->event_id;
        it->te.ev.u.audit.detail = e->detail;
        it->te.ev.u.audit.observe_us = it->observe_us;
        a->outstanding++;
        turn_submit(a->call->api->turn, &it->te);
    }
    if (--a->outstanding == 0)
        finish(a);
}

static void looked_up(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    struct append *a = arg;

    if (err) {
        a->err = *err;
        finish(a);
        return;
    }
    for (size_t i = 0; i < a->n; i++) {
        struct item *it = &a->items[i];
        for (size_t k = 0; k < n && !it->result.status; k++)
            if (adv_streq(rows[k].event_id, it->result.event_id))
                duplicate_or_reused(it, same_as_row(it, a->q->events[i], &rows[k]), rows[k].seq);
        for (size_t k = 0; k < i && !it->result.status; k++)
            if (adv_streq(a->items[k].result.event_id, it->result.event_id) &&
                a->items[k].result.status != ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_REFUSED)
                duplicate_or_reused(it, same_as_item(a, i, k), 0);
    }
    submit(a);
}

static void look_up(struct append *a)
{
    struct audit_query query = { .limit = EVENTS_MAX };
    const char *ids[EVENTS_MAX];

    for (size_t i = 0; i < a->n; i++)
        if (!a->items[i].result.status)
            ids[query.n_event_ids++] = a->items[i].result.event_id;
    if (!query.n_event_ids) {
        submit(a);
        return;
    }
    query.event_ids = ids;
    (void) snprintf(query.cluster, sizeof(query.cluster), "%s", a->cluster);
    (void) snprintf(query.principal, sizeof(query.principal), "%s", a->call->caller.principal);
    store_list_audit(turn_store(a->call->api->turn), &query, looked_up, a);
}

/* The first of the list is the one under way. */
static void start_next(struct api *api)
{
    if (api->appends)
        look_up(api->appends);
}

void audit_append(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__AppendAuditEventsRequest *q = (const void *) req;
    struct append *a = calloc(1, sizeof(*a));
    struct adv_err err = { 0 };
    bool first = !call->api->appends;

    if (q->n_events < 1 || q->n_events > EVENTS_MAX) {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "COUNT_OUT_OF_RANGE", "events: %zu, expected 1 to %d", q->n_events,
                                  EVENTS_MAX);
        (void) adv_err_field(&err, "events");
        goto fail;
    }
    if (a)
        a->items = calloc(q->n_events, sizeof(*a->items));
    if (!a || !a->items) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        goto fail;
    }
    if (audit_parent(call, q->parent, false, a->cluster, &err) < 0)
        goto fail;
    if (adv_streq(a->cluster, FLEET_CLUSTER)) { /* our own, of which nobody outside says anything */
        (void) adv_err_set_reason(&err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %s is not registered", a->cluster);
        goto fail;
    }
    if (api_check(&call->caller, call->method->role, a->cluster, NULL, NULL, &err) < 0)
        goto fail;
    if (handoff_needed(call->api, a->cluster)) {
        char cluster[65];
        (void) strcpy(cluster, a->cluster);
        free(a->items);
        free(a);
        handoff_call(call, cluster, req);
        return;
    }
    a->call = call;
    a->q = q;
    a->n = q->n_events;
    for (size_t i = 0; i < a->n; i++)
        check_item(&a->items[i], q->events[i]);
    call->ops->ref(call);
    DL_APPEND(call->api->appends, a);
    if (first)
        start_next(call->api);
    return;
fail:
    if (a)
        free(a->items);
    free(a);
    call->ops->fail(call, &err);
}
