/* SPDX-License-Identifier: Apache-2.0 */
/* WatchService.
 *
 * A watch is two positions and no queue: first it walks what exists, cluster by cluster and job by job in the order of their
 * keys, then it follows the change log by sequence number, from where the log was when the walk began. So what came or went
 * meanwhile is told in any case. It sends while its transport takes messages, and looks each resource up at the moment of
 * sending, so what a watcher gets is never older than the event it stands for. A watcher that falls behind the change log's
 * floor is cut off, whichever way it is behind; so is one that takes nothing for long. It costs nobody anything.
 *
 * Bodies of audit events are not in memory: a watch that comes to one pauses until a worker has read it and some after it.
 *
 * The resume token is "<store uuid>.<sequence>.<filter>"; it means the position, and is refused for another store,
 * principal or filter. */

#include "advisor/v1/watch_service.pb-c.h"

#include <stdio.h>
#include <utlist.h>

#include "common/buf.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/num.h"
#include "controlplane/api/find.h"
#include "controlplane/shapes/shapes.h"

/* What may wait at the transport before the watch pauses: above half of the transport's limit (serve.c), so that its
 * "writable" wakes the watch again. */
#define QUEUE_HIGH_BYTES (3 * (API_STREAM_QUEUE_BYTES / 4))

/* So many bookmark intervals without taking anything of what waits end a watch. */
#define STALL_BOOKMARKS 4

/* How long a resume token of a replica that is ahead may wait for this one. */
#define BEHIND_WAIT_US 2000000

/* Names that are collected at one time, unless a job has more; and jobs that are looked at for them. */
#define CHUNK_NAMES 256
#define NAMES_MAX_BYTES (64u << 20) /* more than one job has */
#define CHUNK_JOBS  20000

/* Audit events read at once, for one watch. */
#define AUDIT_AHEAD 64

/* Where the walk over the state is. */
enum walk { WALK_FLEET, WALK_CLUSTER, WALK_NODES, WALK_JOBS, WALK_OVER };

struct watch {
    struct api_call *call;
    bool kinds[RESOURCE_KIND_END_];
    char cluster[65]; /* "" for all */
    char filter[17];  /* hash of kinds, cluster, principal and its rights */
    uint64_t rights;  /* of the caller when it began */
    enum walk walk;
    char at_cluster[65];
    char at[RESOURCE_KEY_MAX]; /* the last node or job of it whose names were taken */
    struct adv_buf names;      /* the next ones to send: of each its kind, a byte, "<cluster>" and "<key>" */
    size_t n_names, next_name; /* how many it has; the place of the one to send */
    bool synced;
    bool begun;
    const Advisor__V1__WatchRequest *behind; /* waits for this replica to read as far as its token; the call's */
    uint64_t seq; /* of the last change looked at */
    int64_t sent_mono_us;
    int64_t moved_mono_us; /* when it last took something, or there was nothing to take */
    /* audit events from the store, of this watch's filter: all from number audit_from on up to audit_upto */
    struct audit_row *audit;
    size_t n_audit;
    uint64_t audit_from, audit_upto;
    bool audit_reading;
    struct watch *prev, *next;
};

static void audit_clear(struct watch *w)
{
    for (size_t i = 0; i < w->n_audit; i++)
        audit_row_done(&w->audit[i]);
    free(w->audit);
    w->audit = NULL;
    w->n_audit = 0;
    w->audit_from = w->audit_upto = 0;
}

static void watch_free(struct watch *w)
{
    adv_buf_done(&w->names);
    audit_clear(w);
    free(w);
}

static const char *token_of(struct api *api, const struct watch *w, uint64_t seq, char buf[TOKEN_RESUME_SIZE])
{
    const struct store *st = turn_store(api->turn);

    return token_resume(store_uuid(st), store_term(st), seq, w->filter, buf);
}

/* ---- one resource by its key in the change log -------------------------------------------------------------------- */

static bool fill_entry(struct adv_arena *ar, const struct entry *e, Advisor__V1__WatchResponse *m)
{
    if (!e)
        return false;
    switch ((int) e->kind) {
    case RESOURCE_EXCLUSION:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_EXCLUSION;
        return (m->exclusion = shape_exclusion(ar, (const struct exclusion *) e)) != NULL;
    case RESOURCE_INCIDENT:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_INCIDENT;
        return (m->incident = shape_incident(ar, (const struct incident *) e)) != NULL;
    case RESOURCE_WINDOW:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_MAINTENANCE_WINDOW;
        return (m->maintenance_window = shape_window(ar, (const struct window *) e)) != NULL;
    case RESOURCE_CHECKPOINT:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_AUDIT_CHECKPOINT;
        return (m->audit_checkpoint = shape_checkpoint(ar, (const struct checkpoint *) e)) != NULL;
    case RESOURCE_POLICY:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_POLICY;
        return (m->policy = shape_policy(ar, (const struct policy_doc *) e)) != NULL;
    }
    return false;
}

/* Fills the resource of @m; false when it is gone or never had a body of its own here. */
static bool fill(struct adv_arena *ar, struct cluster *c, enum resource_kind kind, const char *key,
                 Advisor__V1__WatchResponse *m)
{
    struct job *j = NULL;
    struct attempt *a = NULL;
    struct anomaly *an;
    struct action *ac;
    struct evidence *ev;
    struct node *n = NULL;
    char uid[64], other[RESOURCE_KEY_MAX];
    const char *rest;
    uint32_t index;

    if (kind == RESOURCE_CLUSTER) {
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_CLUSTER_RESOURCE;
        return (m->cluster_resource = shape_cluster(ar, c)) != NULL;
    }
    if (kind == RESOURCE_NODE) {
        HASH_FIND_STR(c->nodes, key, n);
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_NODE;
        return n && (m->node = shape_node(ar, c, n));
    }
    if (entry_size(kind))
        return fill_entry(ar, entry_find(c, kind, key), m);
    if (!resource_key_parse(key, uid, &index, &rest) || !(j = fleet_find_job_uid(c, uid)))
        return false;
    a = job_attempt(j, index);
    switch ((int) kind) {
    case RESOURCE_EVIDENCE:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_EVIDENCE;
        if (a)
            DL_FOREACH (a->evidence, ev)
                if (adv_streq(ev->uid, rest))
                    return (m->evidence = shape_evidence(ar, ev)) != NULL;
        return false;
    case RESOURCE_JOB:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_JOB;
        return (m->job = shape_job(ar, j)) != NULL;
    case RESOURCE_ATTEMPT:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_ATTEMPT;
        return a && (m->attempt = shape_attempt(ar, a));
    case RESOURCE_ADVICE:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_ADVICE;
        return a && a->advice && (m->advice = shape_advice(ar, a->advice));
    case RESOURCE_ANOMALY:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_ANOMALY;
        if (a)
            DL_FOREACH (a->anomalies, an)
                if (adv_streq(an->uid, rest))
                    return (m->anomaly = shape_anomaly(ar, an)) != NULL;
        return false;
    case RESOURCE_ACTION:
        m->resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_ACTION;
        if (a)
            DL_FOREACH (a->actions, ac)
                if (adv_streq(resource_key(RESOURCE_ACTION, ac, other), key))
                    return (m->action = shape_action(ar, ac)) != NULL;
        return false;
    }
    return false;
}

/* ---- audit events -------------------------------------------------------------------------------------------------- */

static void pump(struct api *api, struct watch *w);

static const struct audit_row *audit_row_of(const struct watch *w, uint64_t seq)
{
    for (size_t i = 0; i < w->n_audit; i++)
        if (w->audit[i].rowid == seq)
            return &w->audit[i];
    return NULL;
}

static void audit_again(void *arg, const struct adv_err *err)
{
    struct api_call *call = arg;

    if (err && call->user && !call->ops->ended(call))
        call->ops->fail(call, err);
    else if (call->user && !call->ops->ended(call))
        pump(call->api, call->user);
    call->ops->unref(call);
}

static void audit_cb(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    struct api_call *call = arg;
    struct watch *w = call->user;

    if (w)
        w->audit_reading = false;
    if (w && !err && (w->audit = calloc(n + 1, sizeof(*w->audit)))) {
        for (size_t i = 0; i < n && audit_row_copy(&w->audit[i], &rows[i]); i++)
            w->n_audit++;
        if (w->n_audit == AUDIT_AHEAD || w->n_audit < n)
            w->audit_upto = w->n_audit ? w->audit[w->n_audit - 1].rowid : 0; /* there may be more after it */
    } else if (w) {
        w->audit_upto = 0;
        w->audit_from = 1;
    }
    if (w && !call->ops->ended(call) && (err || !w->audit_upto)) {
        struct adv_err oom = { 0 };
        (void) adv_err_set(&oom, ADV_RESOURCE_EXHAUSTED, "no memory");
        call->ops->fail(call, err ? err : &oom);
    } else if (w && !call->ops->ended(call)) {
        turn_read(call->api->turn, audit_again, call);
        return;
    }
    call->ops->unref(call);
}

/* True when the event numbered @seq can be sent now; else it is being read, and the watch goes on then. */
static bool audit_ready(struct api *api, struct watch *w, uint64_t seq)
{
    struct audit_query q = { .after_rowid = seq - 1, .limit = AUDIT_AHEAD };

    if (w->audit_reading) /* what it will have is not there yet, though the range says so */
        return false;
    if (seq >= w->audit_from && seq <= w->audit_upto)
        return true;
    audit_clear(w);
    (void) snprintf(q.cluster, sizeof(q.cluster), "%s", w->cluster);
    w->audit_from = seq;
    w->audit_upto = turn_watchlog(api->turn)->last; /* what is committed by now will be in the answer */
    w->audit_reading = true;
    w->call->ops->ref(w->call);
    store_list_audit(turn_store(api->turn), &q, audit_cb, w->call);
    return false;
}

static int send_event(struct api *api, struct watch *w, Advisor__V1__WatchEventType type, enum resource_kind kind,
                      const char *cluster, const char *key, uint64_t revision, uint64_t seq, bool with_token)
{
    struct cluster *c = kind == RESOURCE_NONE ? NULL : fleet_find_any_cluster(turn_fleet(api->turn), cluster);
    char name[2 * RESOURCE_NAME_MAX];
    Advisor__V1__WatchResponse m = ADVISOR__V1__WATCH_RESPONSE__INIT;
    char token[TOKEN_RESUME_SIZE];
    ADV_AUTO_DONE(adv_arena) ar;

    adv_arena_init(&ar, 4 << 20);
    m.type = type;
    m.kind = (Advisor__V1__ResourceKind) kind;
    m.name = (char *) (uintptr_t) resource_name(kind, cluster, key, name);
    m.cluster = (char *) (uintptr_t) cluster;
    m.revision = revision;
    if (kind == RESOURCE_AUDIT) {
        const struct audit_row *row = audit_row_of(w, seq);
        m.resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE_AUDIT;
        if (!row || !(m.audit = shape_audit(&ar, row))) { /* it was removed since, by age */
            m.resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE__NOT_SET;
            m.type = ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_REMOVED;
        }
    } else if (kind != RESOURCE_NONE && (!c || !fill(&ar, c, kind, key, &m))) {
        m.resource_case = ADVISOR__V1__WATCH_RESPONSE__RESOURCE__NOT_SET;
        m.type = ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_REMOVED;
    }
    if (adv_arena_exhausted(&ar)) { /* that it does not fit says nothing about whether it is there */
        struct adv_err err = { 0 };
        (void) adv_err_set_reason(&err, ADV_RESOURCE_EXHAUSTED, "REPLY_TOO_LARGE", "%.160s does not fit into a message", name);
        w->call->ops->fail(w->call, &err);
        return -ADV_ABORTED;
    }
    if (with_token)
        m.resume_token = (char *) (uintptr_t) token_of(api, w, seq, token);
    w->sent_mono_us = adv_mono_us();
    return w->call->ops->send(w->call, &m.base);
}

static void cut_off(struct watch *w)
{
    struct adv_err err = { 0 };

    (void) adv_err_set_reason(&err, ADV_RESOURCE_EXHAUSTED, "WATCHER_TOO_SLOW",
                              "this watcher reads too slowly: resume from the last token");
    w->call->ops->fail(w->call, &err);
}

static int no_memory(struct watch *w)
{
    struct adv_err err = { 0 };

    (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
    w->call->ops->fail(w->call, &err);
    return -ADV_ABORTED;
}

static uint64_t rights_of(const struct api_call *call)
{
    return call->caller.identity ? identity_rights(call->caller.identity) : 0;
}

/* What the caller may see is another thing than when the watch began: what it was told no longer holds together. */
static bool ended_by_rights(struct watch *w)
{
    struct adv_err err = { 0 };

    if (rights_of(w->call) == w->rights)
        return false;
    (void) adv_err_set_reason(&err, ADV_ABORTED, "PERMISSIONS_CHANGED",
                              "what %.100s may see has changed: start again without a token", w->call->caller.principal);
    w->call->ops->fail(w->call, &err);
    return true;
}

static bool visible(struct api *api, const struct watch *w, const struct change *ch)
{
    const struct api_caller *caller = &w->call->caller;
    char uid[64];
    const char *rest;
    uint32_t index;
    const struct entry *e;
    struct cluster *c;
    struct job *j;

    if (ch->kind == RESOURCE_POLICY)
        return true; /* fleet-wide, like its list */
    if (!api_may_see_cluster(caller, ch->cluster))
        return false;
    if (api_may_see_all(caller, ch->cluster))
        return true;
    c = fleet_find_cluster(turn_fleet(api->turn), ch->cluster);
    switch ((int) ch->kind) {
    case RESOURCE_CLUSTER:
    case RESOURCE_NODE:
    case RESOURCE_EXCLUSION:
    case RESOURCE_WINDOW:
        return true;
    case RESOURCE_INCIDENT:
        e = c ? entry_find(c, RESOURCE_INCIDENT, ch->key) : NULL;
        return !e || api_may_see_entry(caller, e);
    case RESOURCE_EVIDENCE:
    case RESOURCE_JOB:
    case RESOURCE_ATTEMPT:
    case RESOURCE_ANOMALY:
    case RESOURCE_ADVICE:
    case RESOURCE_ACTION:
        j = c && resource_key_parse(ch->key, uid, &index, &rest) ? fleet_find_job_uid(c, uid) : NULL;
        return !j || api_may_see_job(caller, j); /* whose a removed one was is not known: its name is all that is told */
    default:
        return false;
    }
}

static bool wanted(struct api *api, const struct watch *w, const struct change *ch)
{
    return w->kinds[ch->kind] && (!w->cluster[0] || adv_streq(w->cluster, ch->cluster)) && visible(api, w, ch);
}

/* ---- the state -------------------------------------------------------------------------------------------------- */

static bool add_name(struct watch *w, enum resource_kind kind, const struct cluster *c, const void *object)
{
    char text[RESOURCE_KEY_MAX];
    const char *key;

    if (!w->kinds[kind])
        return true;
    key = resource_key(kind, object, text);
    w->n_names++;
    return adv_buf_append_byte(&w->names, (uint8_t) kind) == 0 &&
           adv_buf_append(&w->names, c->name, strlen(c->name) + 1) == 0 &&
           adv_buf_append(&w->names, key, strlen(key) + 1) == 0;
}

static bool collect_job(struct watch *w, const struct job *j)
{
    const struct cluster *c = j->cluster;
    const struct anomaly *an;
    const struct action *ac;
    const struct evidence *ev;

    if (!add_name(w, RESOURCE_JOB, c, j))
        return false;
    for (uint32_t i = 0; i < j->n_attempts; i++) {
        const struct attempt *a = j->attempts[i];
        if (!add_name(w, RESOURCE_ATTEMPT, c, a))
            return false;
        DL_FOREACH (a->anomalies, an)
            if (!add_name(w, RESOURCE_ANOMALY, c, an))
                return false;
        if (a->advice && !add_name(w, RESOURCE_ADVICE, c, a->advice))
            return false;
        DL_FOREACH (a->actions, ac)
            if (!add_name(w, RESOURCE_ACTION, c, ac))
                return false;
        DL_FOREACH (a->evidence, ev)
            if (!add_name(w, RESOURCE_EVIDENCE, c, ev))
                return false;
    }
    return true;
}

static bool collect_entries(struct api *api, struct watch *w, const struct cluster *c)
{
    for (int k = RESOURCE_NONE; k < RESOURCE_KIND_END_; k++)
        for (const struct entry *e = c->entries[k]; e; e = e->hh.next) {
            const struct change ch = { .kind = (enum resource_kind) k, .cluster = c->name, .key = e->uid };
            if (entry_current(e) && visible(api, w, &ch) && !add_name(w, (enum resource_kind) k, c, e))
                return false;
        }
    return true;
}

/* The next one by name that the watch is about. */
static struct cluster *next_cluster(const struct fleet *f, const struct watch *w)
{
    const struct order *all = &f->clusters_in_order;
    const struct order_node *o;

    if (*w->cluster) /* the only one */
        return *w->at_cluster ? NULL : fleet_find_cluster(f, w->cluster);
    for (o = order_after(all, w->at_cluster); o; o = order_after(all, o->key))
        if (api_may_see_cluster(&w->call->caller, o->key))
            return ADV_CONTAINER_OF(o, struct cluster, by_name);
    return NULL;
}

static bool collect_nodes(struct watch *w, const struct cluster *c)
{
    const struct order_node *o = w->kinds[RESOURCE_NODE] ? order_after(&c->nodes_in_order, w->at) : NULL;

    for (; o && w->n_names < CHUNK_NAMES; o = order_after(&c->nodes_in_order, o->key)) {
        if (!add_name(w, RESOURCE_NODE, c, ADV_CONTAINER_OF(o, struct node, by_name)))
            return false;
        (void) snprintf(w->at, sizeof(w->at), "%s", o->key);
    }
    if (!o) {
        w->walk = WALK_JOBS;
        w->at[0] = '\0';
    }
    return true;
}

static bool collect_jobs(struct watch *w, const struct cluster *c, size_t *budget)
{
    const bool *k = w->kinds;
    bool any = k[RESOURCE_JOB] || k[RESOURCE_ATTEMPT] || k[RESOURCE_ANOMALY] || k[RESOURCE_ADVICE] || k[RESOURCE_ACTION] ||
               k[RESOURCE_EVIDENCE];
    const struct order_node *o = any ? order_after(&c->jobs_in_order, w->at) : NULL;

    for (; o && w->n_names < CHUNK_NAMES && *budget; o = order_after(&c->jobs_in_order, o->key), --*budget) {
        const struct job *j = ADV_CONTAINER_OF(o, struct job, by_uid);
        if (api_may_see_job(&w->call->caller, j) && !collect_job(w, j))
            return false;
        (void) snprintf(w->at, sizeof(w->at), "%s", o->key);
    }
    if (!o)
        w->walk = WALK_CLUSTER;
    return true;
}

/* Takes the next names, when those before were sent; none: the walk is over, or @budget is. False: no memory. */
static bool collect(struct api *api, struct watch *w, size_t *budget)
{
    const struct fleet *f = turn_fleet(api->turn);
    struct cluster *c;
    bool ok = true;

    adv_buf_reset(&w->names);
    w->n_names = w->next_name = 0;
    while (ok && !w->n_names && w->walk != WALK_OVER && *budget) {
        c = fleet_find_cluster(f, w->at_cluster);
        switch (w->walk) {
        case WALK_FLEET:
            w->walk = WALK_CLUSTER;
            ok = w->cluster[0] || collect_entries(api, w, f->global);
            break;
        case WALK_CLUSTER:
            c = next_cluster(f, w);
            w->walk = c ? WALK_NODES : WALK_OVER;
            if (!c)
                break;
            (void) snprintf(w->at_cluster, sizeof(w->at_cluster), "%s", c->name);
            w->at[0] = '\0';
            ok = add_name(w, RESOURCE_CLUSTER, c, c) && collect_entries(api, w, c);
            break;
        case WALK_NODES:
            ok = collect_nodes(w, c);
            break;
        case WALK_JOBS:
            ok = collect_jobs(w, c, budget);
            break;
        case WALK_OVER:
            break;
        }
    }
    return ok;
}

/* Sends what there is while the transport takes it. Memory equals the store. */
static void pump(struct api *api, struct watch *w)
{
    const struct watchlog *log = turn_watchlog(api->turn);
    const struct change *ch;
    size_t budget = CHUNK_JOBS;
    bool gone;
    int r = 0;

    if (!w->begun || w->call->ops->ended(w->call) || ended_by_rights(w))
        return;
    (void) watchlog_after(log, w->seq, &gone);
    if (gone) { /* also of one that is still at the state: what happened since it began is not kept any more */
        cut_off(w);
        return;
    }
    while (r == 0 && w->call->ops->queued_bytes(w->call) < QUEUE_HIGH_BYTES) {
        w->moved_mono_us = adv_mono_us();
        if (w->next_name == w->names.len && w->walk != WALK_OVER) {
            if (!collect(api, w, &budget))
                r = no_memory(w);
            else if (!w->n_names && !budget)
                return; /* the next tick goes on */
        } else if (w->next_name < w->names.len) {
            enum resource_kind kind = (enum resource_kind) w->names.data[w->next_name];
            const char *cluster = w->names.data + w->next_name + 1, *key = cluster + strlen(cluster) + 1;
            w->next_name = (size_t) (key + strlen(key) + 1 - w->names.data);
            r = send_event(api, w, ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_STATE, kind, cluster, key, 0, 0,
                           false);
        } else if (!w->synced) {
            w->synced = true;
            adv_buf_done(&w->names);
            w->next_name = 0;
            r = send_event(api, w, ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_SYNCED, RESOURCE_NONE, "", "", 0,
                           w->seq, true);
        } else if ((ch = watchlog_after(log, w->seq, &gone))) {
            if (wanted(api, w, ch) && ch->kind == RESOURCE_AUDIT && !audit_ready(api, w, ch->seq))
                return;
            w->seq = ch->seq;
            if (!wanted(api, w, ch))
                continue;
            r = send_event(api, w, ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_CHANGED, ch->kind, ch->cluster,
                           ch->key, ch->revision, ch->seq, true);
        } else {
            return;
        }
    }
    if (r == -ADV_RESOURCE_EXHAUSTED)
        cut_off(w);
}

/* ---- the start -------------------------------------------------------------------------------------------------- */

struct watch_start {
    struct api_call *call;
    const Advisor__V1__WatchRequest *req;
};

static int behind(struct adv_err *err)
{
    (void) adv_err_set_reason(err, ADV_UNAVAILABLE, "REPLICA_BEHIND",
                              "resume_token: this replica has not read that far yet; try again");
    err->retry_after_ms = 500;
    return -ADV_UNAVAILABLE;
}

static int begin(struct api *api, struct watch *w, const Advisor__V1__WatchRequest *q, struct adv_err *err)
{
    const struct watchlog *log = turn_watchlog(api->turn);
    uint8_t raw[ADV_SHA256_LEN];
    struct cluster *c;
    char text[256];
    bool all, gone;
    int r;

    if ((r = api_find_parent(api, &w->call->caller, q->parent, &c, &all, err)) < 0)
        return r;
    for (size_t i = 0; i < q->n_kinds; i++) {
        if ((int) q->kinds[i] <= RESOURCE_NONE || (int) q->kinds[i] >= RESOURCE_KIND_END_ ||
            resource_kind_hidden((enum resource_kind) q->kinds[i])) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "KIND_UNKNOWN", "kinds: %d is not a resource kind",
                                      (int) q->kinds[i]);
            return adv_err_field(err, "kinds[%zu]", i);
        }
        w->kinds[q->kinds[i]] = true;
    }
    for (int k = RESOURCE_CLUSTER; q->n_kinds == 0 && k < RESOURCE_KIND_END_; k++)
        w->kinds[k] = k != RESOURCE_AUDIT && !resource_kind_hidden((enum resource_kind) k);
    if (!all)
        (void) snprintf(w->cluster, sizeof(w->cluster), "%s", c->name);
    w->rights = rights_of(w->call);
    r = snprintf(text, sizeof(text), "%s|%s|%llx|", w->cluster, w->call->caller.principal, (unsigned long long) w->rights);
    for (int k = RESOURCE_CLUSTER; k < RESOURCE_KIND_END_; k++)
        text[r++] = w->kinds[k] ? '1' : '0';
    if ((r = adv_sha256(text, (size_t) r, raw, err)) < 0)
        return r;
    (void) adv_hex(raw, 8, w->filter);
    w->seq = log->last;
    if (*q->resume_token) {
        const struct store *st = turn_store(api->turn);
        if ((r = token_resume_parse(q->resume_token, store_uuid(st), store_term(st), w->filter, &w->seq, err)) < 0)
            return r;
        if (w->seq > log->last) /* of a replica that is ahead of this one, or made up */
            return store_shared(turn_store(api->turn)) ? behind(err) : token_resume_invalid(err);
        (void) watchlog_after(log, w->seq, &gone);
        if (gone)
            return adv_err_set_reason(err, ADV_OUT_OF_RANGE, "HISTORY_COMPACTED",
                                      "changes before %llu are no longer kept: start without a token",
                                      (unsigned long long) log->first);
        w->synced = true; /* the state was sent before the token was given */
        w->walk = WALK_OVER;
    }
    w->begun = true;
    return 0;
}

/* Memory equals the store. */
static void try_begin(struct api_call *call, struct watch *w, const Advisor__V1__WatchRequest *req)
{
    struct adv_err err = { 0 };
    int r = begin(call->api, w, req, &err);

    w->behind = NULL;
    if (r == 0)
        pump(call->api, w);
    else if (adv_streq(str_or(err.reason), "REPLICA_BEHIND") && adv_mono_us() - w->sent_mono_us < BEHIND_WAIT_US)
        w->behind = req;
    else
        call->ops->fail(call, &err);
}

static void start_read(void *arg, const struct adv_err *err)
{
    struct watch_start *s = arg;
    struct api_call *call = s->call;

    if (call->ops->ended(call)) {
        /* gone meanwhile */
    } else if (err) {
        call->ops->fail(call, err);
    } else {
        try_begin(call, call->user, s->req);
    }
    call->ops->unref(call);
    free(s);
}

static void watch_open(struct api_call *call)
{
    struct watch *w = calloc(1, sizeof(*w));
    struct adv_err err = { 0 };

    if (!w || call->api->stopping) {
        free(w);
        (void) adv_err_set(&err, ADV_UNAVAILABLE, "not now");
        call->ops->fail(call, &err);
        return;
    }
    adv_buf_init(&w->names, NAMES_MAX_BYTES);
    w->call = call;
    w->sent_mono_us = w->moved_mono_us = adv_mono_us();
    call->user = w;
    DL_APPEND(call->api->watches, w);
}

static void watch_message(struct api_call *call, const ProtobufCMessage *req)
{
    struct watch_start *s = malloc(sizeof(*s));
    struct adv_err err = { 0 };

    if (!s || !call->user) {
        free(s);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        call->ops->fail(call, &err);
        return;
    }
    *s = (struct watch_start) { call, (const void *) req };
    call->ops->ref(call);
    turn_read(call->api->turn, start_read, s);
}

static void go_on(struct api *api, struct watch *w)
{
    if (w->behind && !w->call->ops->ended(w->call))
        try_begin(w->call, w, w->behind);
    else
        pump(api, w);
}

static void pump_read(void *arg, const struct adv_err *err)
{
    struct api_call *call = arg;

    if (!err && call->user && !call->ops->ended(call))
        go_on(call->api, call->user);
    call->ops->unref(call);
}

static void watch_writable(struct api_call *call)
{
    call->ops->ref(call);
    turn_read(call->api->turn, pump_read, call);
}

static void watch_closed(struct api_call *call, bool cancelled)
{
    struct watch *w = call->user;

    (void) cancelled;
    if (!w)
        return;
    call->user = NULL;
    DL_DELETE(call->api->watches, w);
    watch_free(w);
}

void watch_service_changed(struct api *api)
{
    struct watch *w, *next;

    DL_FOREACH_SAFE (api->watches, w, next)
        go_on(api, w);
}

void watch_service_tick(struct api *api)
{
    int64_t now_us = adv_mono_us();
    struct watch *w, *next;

    if (!turn_ready(api->turn))
        return;
    DL_FOREACH_SAFE (api->watches, w, next) {
        if (w->behind)
            watch_writable(w->call);
        if (!w->begun || w->call->ops->ended(w->call) || ended_by_rights(w))
            continue;
        if (w->call->ops->queued_bytes(w->call) < QUEUE_HIGH_BYTES) {
            w->moved_mono_us = now_us;
            if (!w->synced)
                watch_writable(w->call); /* its walk stopped half-way */
        } else if (now_us - w->moved_mono_us > STALL_BOOKMARKS * (int64_t) api->cfg.bookmark_ms * 1000) {
            cut_off(w);
            continue;
        }
        if (w->synced && now_us - w->sent_mono_us > (int64_t) api->cfg.bookmark_ms * 1000 && !w->call->ops->ended(w->call))
            (void) send_event(api, w, ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_BOOKMARK, RESOURCE_NONE, "", "", 0,
                              w->seq, true);
    }
}

void watch_service_reset(struct api *api, const struct adv_err *why)
{
    struct watch *w, *next;

    DL_FOREACH_SAFE (api->watches, w, next)
        w->call->ops->fail(w->call, why);
}

const struct api_method watch_service_methods[] = {
    { "/advisor.v1.WatchService/Watch", API_SERVER_STREAM, &advisor__v1__watch_request__descriptor,
      &advisor__v1__watch_response__descriptor, ROLE_READER, 64 << 10, .open = watch_open, .message = watch_message,
      .writable = watch_writable, .closed = watch_closed },
};
const size_t watch_service_n = ADV_ARRAY_LEN(watch_service_methods);
