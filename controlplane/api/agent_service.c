/* SPDX-License-Identifier: Apache-2.0 */
/* AgentService: binds the session state machine (session/) to a stream and to the turn, and hands log bytes to the
 * watcher.
 *
 * Admission: a session is *arriving* from its first byte until its state is whole here (or it stands by). Only so many
 * arrive at one time; others are told, before they have sent anything, when to come again, each at another moment. So when
 * a whole fleet reconnects, those who were let in are answered at once, and what the rest costs is one refused call. */

/* A table that cannot grow leaves the new element out instead of ending the program. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(e) ((void) (e))

#include "advisor/v1/agent_service.pb-c.h"

#include <stdio.h>
#include <sys/random.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/uuid.h"
#include "controlplane/api/find.h"
#include "controlplane/api/handoff.h"
#include "controlplane/session/session.h"

#define ARRIVING_MAX_US    (30 * INT64_C(1000000)) /* a slow one keeps its place no longer */
#define ARRIVING_PER_AGENT 4 /* sessions of one cluster: one that was lost, one that comes, and both of a second agent */
#define RETRY_MIN_MS       250
#define RETRY_SPREAD_MS    750

struct agent_session {
    struct api_call *call;
    struct session *session;
    bool arriving;
    int64_t opened_mono_us;
    unsigned n_revocations; /* of its cluster, when its certificate was last compared with them */
    struct agent_group *group; /* NULL: its cluster is not known before Hello */
    struct agent_push *push; /* its log stream */
    bool to_flush;
    struct agent_session *prev, *next;
    struct agent_session *group_prev, *group_next;
    struct agent_session *flush_prev, *flush_next;
};

/* A log stream lives as long as its session, and a session has one: what an older one still has on its way would read as
 * a file that begins anew. A message is scanned as work (logs.c); only then the next is asked for. */
struct agent_push {
    struct log_work work;
    struct api_call *call;
    struct agent_group *group; /* of the session named by the first message; NULL before it */
    struct agent_session *as; /* NULL before the first message, and after the end */
    const Advisor__V1__PushLogsRequest *msg; /* being scanned */
    size_t chunk, at;                        /* of it, the next to scan */
    unsigned n_revocations;
    uint64_t received;
    struct agent_push *prev, *next; /* the group's */
};

/* What belongs to one cluster, and has to hear of its changes. It lives as long as there is something in it. */
struct agent_group {
    char cluster[65];
    struct agent_session *sessions;
    struct agent_push *pushes;
    uint64_t told_seq; /* newest change that they heard of */
    UT_hash_handle hh;
};

/* ---- what the state machine needs --------------------------------------------------------------------------------- */

/* The session outlives its call while events are outstanding, so these take the API as context where they can. */
struct session_ctx {
    struct api *api;
    struct api_call *call; /* NULL once closed */
    struct turn_order order;
    unsigned refs;
};

static void ctx_unref(struct session_ctx *x)
{
    if (--x->refs == 0)
        free(x);
}

/* An event that borrows its texts from the message, which lives as long as the call, needs the call to be held. */
struct ctx_event {
    struct turn_event te;
    struct session_ctx *x;
    struct api_call *call; /* NULL: the event of a closed session, whose texts are the session's own */
    session_event_cb cb;
    void *arg;
};

/* What the callbacks of this turn bring about is told when all have come: agent_service_changed(). */
static void flush_later(struct session_ctx *x)
{
    struct agent_session *as = x->call ? x->call->user : NULL; /* a session_slot's first member */

    if (!as || as->to_flush)
        return;
    as->to_flush = true;
    DL_APPEND2(x->api->to_flush, as, flush_prev, flush_next);
}

static void ctx_event_done(struct turn_event *te, const struct adv_err *err)
{
    struct ctx_event *e = ADV_CONTAINER_OF(te, struct ctx_event, te);

    e->cb(e->arg, &te->ev, err);
    flush_later(e->x);
    if (e->call)
        e->call->ops->unref(e->call);
    ctx_unref(e->x);
    free(e);
}

static void hello_owned(void *arg, const struct adv_err *err)
{
    struct ctx_event *e = arg;

    if (err)
        ctx_event_done(&e->te, err);
    else
        turn_submit(e->x->api->turn, &e->te);
}

static void op_submit(void *ctx, const struct event *ev, session_event_cb cb, void *arg)
{
    struct session_ctx *x = ctx;
    struct ctx_event *e = calloc(1, sizeof(*e));
    struct adv_err err = { 0 };

    if (!e) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        cb(arg, ev, &err);
        return;
    }
    x->refs++;
    *e = (struct ctx_event) { .te = { .ev = *ev, .done = ctx_event_done }, .x = x, .call = x->call, .cb = cb, .arg = arg };
    if (ev->type != EV_AGENT_GONE) /* that it is gone is so whatever it said */
        e->te.order = &x->order;
    if (e->call)
        e->call->ops->ref(e->call);
    if (ev->type == EV_AGENT_HELLO && x->api->owner && handoff_needed(x->api, ev->cluster))
        owner_want(x->api->owner, ev->cluster, ev->u.hello.journal_id, hello_owned, e);
    else
        turn_submit(x->api->turn, &e->te);
}

static void op_read(void *ctx, session_read_cb cb, void *arg)
{
    turn_read(((struct session_ctx *) ctx)->api->turn, cb, arg);
}

static struct fleet *op_fleet(void *ctx)
{
    return turn_fleet(((struct session_ctx *) ctx)->api->turn);
}

static int64_t op_mono_us(void *ctx)
{
    (void) ctx;
    return adv_boot_us(); /* leases go on while the host sleeps */
}

static int64_t op_wall_us(void *ctx)
{
    (void) ctx;
    return adv_wall_us();
}

static void op_fail(void *ctx, const struct adv_err *err)
{
    struct session_ctx *x = ctx;

    if (!x->call)
        return;
    adv_info("session", "ending an agent's session", ADV_FS("principal", x->call->caller.principal),
             ADV_FS("code", adv_code_name(err->code)), ADV_FS("why", err->msg));
    x->call->ops->fail(x->call, err);
}

static void op_send(void *ctx, const Advisor__V1__SessionResponse *msg)
{
    struct session_ctx *x = ctx;
    struct adv_err err = { 0 };

    if (x->call && x->call->ops->send(x->call, &msg->base) == -ADV_RESOURCE_EXHAUSTED) {
        (void) adv_err_set_reason(&err, ADV_RESOURCE_EXHAUSTED, "AGENT_TOO_SLOW", "the agent does not read its stream");
        op_fail(ctx, &err);
    }
}

static bool op_next(void *ctx)
{
    struct session_ctx *x = ctx;

    return x->call && x->call->ops->read_next(x->call);
}

static const struct session_ops ops = { op_submit, op_read, op_fleet, op_mono_us, op_wall_us, op_send, op_next, op_fail };

/* ---- Session ---------------------------------------------------------------------------------------------------- */

struct session_slot {
    struct agent_session as;
    struct session_ctx *ctx;
};

static struct agent_group *find_group(const struct api *api, const char *cluster)
{
    struct agent_group *g = NULL;

    HASH_FIND_STR(api->groups, cluster, g);
    return g;
}

/* Made when it is not there. NULL: no memory. */
static struct agent_group *need_group(struct api *api, const char *cluster)
{
    struct agent_group *g = find_group(api, cluster);

    if (g || !(g = calloc(1, sizeof(*g))))
        return g;
    (void) snprintf(g->cluster, sizeof(g->cluster), "%s", cluster);
    HASH_ADD_STR(api->groups, cluster, g);
    if (g->hh.tbl)
        return g;
    free(g);
    return NULL;
}

static void drop_group(struct api *api, struct agent_group *g)
{
    if (g->sessions || g->pushes)
        return;
    HASH_DEL(api->groups, g);
    free(g);
}

static bool join_group(struct api *api, struct agent_session *as, const char *cluster)
{
    as->group = need_group(api, cluster);
    if (as->group)
        DL_APPEND2(as->group->sessions, as, group_prev, group_next);
    return as->group != NULL;
}

static void leave_group(struct api *api, struct agent_session *as)
{
    if (!as->group)
        return;
    DL_DELETE2(as->group->sessions, as, group_prev, group_next);
    drop_group(api, as->group);
}

static void drop_flush(struct api *api, struct agent_session *as)
{
    if (as->to_flush)
        DL_DELETE2(api->to_flush, as, flush_prev, flush_next);
    as->to_flush = false;
}

static bool crowded(const struct api *api, const struct api_call *call)
{
    const struct agent_group *g = call->caller.authenticated ? find_group(api, call->caller.cluster) : NULL;
    const struct agent_session *as;
    unsigned same = 0;

    if (api->n_arriving >= api->cfg.admission)
        return true;
    if (g)
        DL_FOREACH2 (g->sessions, as, group_next)
            same += as->arriving;
    return same >= ARRIVING_PER_AGENT;
}

static int retry_ms(void)
{
    uint32_t r = 0;

    if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != (ssize_t) sizeof(r))
        r = (uint32_t) adv_mono_us();
    return RETRY_MIN_MS + (int) (r % RETRY_SPREAD_MS);
}

static void arrived(struct api *api, struct agent_session *as)
{
    if (!as->arriving)
        return;
    api->n_arriving--;
    as->arriving = false;
    as->call->ops->arrived(as->call);
}

/* The agent's state is whole here, or it has none to send. */
static void look_whether_arrived(struct api *api, struct agent_session *as)
{
    const char *cluster = session_cluster(as->session);
    const struct cluster *c = as->arriving && cluster ? fleet_find_cluster(turn_fleet(api->turn), cluster) : NULL;

    if (as->arriving && (adv_mono_us() - as->opened_mono_us > ARRIVING_MAX_US ||
                         (c && (!session_active(as->session) || c->digest_ok))))
        arrived(api, as);
}

/* Compares the caller's certificate with revocations that are new. */
static bool ended_by_revocation(struct api *api, struct api_call *call, const char *cluster, unsigned *n_seen)
{
    const struct cluster *c = cluster && call->caller.authenticated ? fleet_find_cluster(turn_fleet(api->turn), cluster) : NULL;
    struct adv_err err = { 0 };

    if (!c || HASH_COUNT(c->revocations) == *n_seen)
        return false;
    *n_seen = HASH_COUNT(c->revocations);
    if (!cluster_cert_revoked(c, call->caller.serial, call->caller.issued_s))
        return false;
    (void) adv_err_set_reason(&err, ADV_PERMISSION_DENIED, "CERTIFICATE_REVOKED", "certificate %.40s was revoked",
                              call->caller.serial);
    call->ops->fail(call, &err);
    return true;
}

static void session_open(struct api_call *call)
{
    struct api *api = call->api;
    struct session_slot *slot = calloc(1, sizeof(*slot));
    struct session_ctx *x = calloc(1, sizeof(*x));
    char id[ADV_UUID_SIZE];
    struct adv_err err = { 0 };
    struct session_config cfg = {
        .session_id = id,
        .store_uuid = store_uuid(turn_store(api->turn)),
        .peer_cluster = call->caller.authenticated ? call->caller.cluster : NULL,
        .principal = call->caller.principal,
        .serial = call->caller.serial,
        .issued_s = call->caller.authenticated ? call->caller.issued_s : INT64_MAX,
        .heartbeat_interval_ms = api->cfg.heartbeat_interval_ms,
        .silence_timeout_ms = api->cfg.silence_timeout_ms,
        .rearm_children = api->cfg.rearm_children,
    };

    if (api->stopping || !turn_takes_events(api->turn) || api->n_sessions >= api->cfg.max_sessions) {
        (void) adv_err_set_reason(&err, api->n_sessions >= api->cfg.max_sessions ? ADV_RESOURCE_EXHAUSTED : ADV_UNAVAILABLE,
                                  "NOT_NOW", "the control plane takes no session now");
        err.retry_after_ms = RETRY_MIN_MS + retry_ms();
    } else if (crowded(api, call)) {
        (void) adv_err_set_reason(&err, ADV_UNAVAILABLE, "NOT_NOW", "many agents are arriving: come again in a moment");
        err.retry_after_ms = retry_ms();
    } else if (!slot || !x || adv_uuid_v7(adv_wall_us(), id, &err) < 0) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
    } else {
        *x = (struct session_ctx) { .api = api, .call = call, .refs = 1 };
        slot->as.session = session_new(&cfg, &ops, x);
        if (!slot->as.session)
            (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        else
            (void) (call->caller.authenticated && join_group(api, &slot->as, call->caller.cluster)); /* or with Hello */
    }
    if (err.code) {
        free(slot);
        free(x);
        call->ops->fail(call, &err);
        return;
    }
    slot->ctx = x;
    slot->as.call = call;
    slot->as.opened_mono_us = adv_mono_us();
    slot->as.arriving = true;
    call->user = slot;
    api->n_arriving++;
    api->n_sessions++;
    DL_APPEND(api->sessions, &slot->as);
}

static void session_on_message(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__SessionRequest *m = (const void *) req;
    struct session_slot *slot = call->user;
    struct adv_err err = { 0 };

    if (!slot)
        return;
    if (!slot->as.group && m->message_case == ADVISOR__V1__SESSION_REQUEST__MESSAGE_HELLO &&
        cluster_id_valid(m->hello->cluster) && !join_group(call->api, &slot->as, m->hello->cluster)) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        call->ops->fail(call, &err);
        return;
    }
    session_message(slot->as.session, m);
}

static void session_half_close(struct api_call *call)
{
    call->ops->finish(call);
}

static void push_unlink(struct agent_push *p)
{
    logs_work_cancel(p->call->api, &p->work);
    if (p->as) {
        p->as->push = NULL;
        logs_closed(p->call->api, p->group->cluster);
    }
    p->as = NULL;
    p->msg = NULL;
}

static void push_end(struct agent_push *p, enum adv_code code, const char *reason, const char *text)
{
    struct adv_err err = { 0 };

    push_unlink(p);
    (void) adv_err_set_reason(&err, code, reason, "%s", text);
    p->call->ops->fail(p->call, &err);
}

static void session_closed(struct api_call *call, bool cancelled)
{
    struct session_slot *slot = call->user;

    if (!slot)
        return;
    call->user = NULL;
    arrived(call->api, &slot->as);
    if (slot->as.push)
        push_end(slot->as.push, ADV_FAILED_PRECONDITION, "SESSION_NOT_LIVE", "the session of this log stream has ended");
    DL_DELETE(call->api->sessions, &slot->as);
    drop_flush(call->api, &slot->as);
    leave_group(call->api, &slot->as);
    call->api->n_sessions--;
    slot->ctx->call = NULL;
    session_close(slot->as.session, cancelled ? "the connection was lost" : "the agent ended the session");
    ctx_unref(slot->ctx);
    free(slot);
}

/* ---- PushLogs --------------------------------------------------------------------------------------------------- */

static bool is_session(const struct agent_session *as, const char *id)
{
    return adv_streq(session_id(as->session), id) && session_cluster(as->session);
}

static bool push_step(struct log_work *w)
{
    struct agent_push *p = ADV_CONTAINER_OF(w, struct agent_push, work);
    const Advisor__V1__PushLogsRequest *q = p->msg;
    size_t room = LOGS_SLICE_BYTES;

    while (room > 0 && p->chunk < q->n_chunks) {
        const Advisor__V1__LogChunk *c = q->chunks[p->chunk];
        size_t left = c->data.len - p->at, n = left < room ? left : room;
        if (c->attempt)
            logs_chunk(p->call->api, p->group->cluster, c->attempt->job_id, c->attempt->restart_count,
                       c->attempt->submit_unix, c->stream, c->offset + p->at, c->data.data + p->at, n, p->at ? 0 : c->dropped_before,
                       session_wall_us(c->observe_wall_ms));
        p->received += n;
        p->at += n;
        room -= n < room ? n : room;
        if (p->at == c->data.len) {
            p->chunk++;
            p->at = 0;
            room -= room < 64 ? room : 64; /* an empty chunk is work too */
        }
    }
    if (p->chunk < q->n_chunks)
        return true;
    p->msg = NULL;
    (void) p->call->ops->read_next(p->call);
    return false;
}

static struct agent_session *find_session(struct api *api, const struct api_call *call, const char *id)
{
    const struct agent_group *g;
    struct agent_session *as;

    if (call->caller.authenticated) {
        if ((g = find_group(api, call->caller.cluster)))
            DL_FOREACH2 (g->sessions, as, group_next)
                if (is_session(as, id))
                    return as;
        return NULL;
    }
    DL_FOREACH (api->sessions, as)
        if (is_session(as, id))
            return as;
    return NULL;
}

const char *agent_service_cluster(const struct api_call *call, const char *id)
{
    struct agent_session *as = find_session(call->api, call, id);

    return as ? session_cluster(as->session) : NULL;
}

static void push_open(struct api_call *call)
{
    struct agent_push *p = calloc(1, sizeof(*p));
    struct adv_err err = { 0 };

    if (!p) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        call->ops->fail(call, &err);
        return;
    }
    p->work.step = push_step;
    p->call = call;
    call->user = p;
}

/* The first message names the session. */
static bool push_bind(struct agent_push *p, const char *id)
{
    struct agent_session *as = find_session(p->call->api, p->call, id);
    struct adv_err err = { 0 };

    if (!as) {
        (void) adv_err_set_reason(&err, ADV_FAILED_PRECONDITION, "SESSION_NOT_LIVE",
                                  "session_id: expected the id of a live session of this agent");
        (void) adv_err_field(&err, "session_id");
        p->call->ops->fail(p->call, &err);
        return false;
    }
    if (!session_active(as->session)) {
        push_end(p, ADV_FAILED_PRECONDITION, "NOT_LEASE_HOLDER", "another agent of the cluster holds the lease");
        return false;
    }
    if (as->push)
        push_end(as->push, ADV_ABORTED, "LOG_STREAM_REPLACED", "the session has opened another log stream");
    p->as = as;
    as->push = p;
    if (!p->group) {
        p->group = as->group;
        DL_APPEND(p->group->pushes, p);
    }
    logs_opened(p->call->api, p->group->cluster);
    return true;
}

static void push_message(struct api_call *call, const ProtobufCMessage *req)
{
    struct agent_push *p = call->user;

    if (!p || (!p->as && !push_bind(p, ((const Advisor__V1__PushLogsRequest *) req)->session_id)))
        return;
    p->msg = (const void *) req;
    p->chunk = p->at = 0;
    logs_work(call->api, &p->work);
}

static void push_half_close(struct api_call *call)
{
    Advisor__V1__PushLogsResponse m = ADVISOR__V1__PUSH_LOGS_RESPONSE__INIT;

    m.received_bytes = call->user ? ((struct agent_push *) call->user)->received : 0;
    call->ops->reply(call, &m.base);
}

static void push_closed(struct api_call *call, bool cancelled)
{
    struct agent_push *p = call->user;

    (void) cancelled;
    if (!p)
        return;
    push_unlink(p);
    if (p->group) {
        DL_DELETE(p->group->pushes, p);
        drop_group(call->api, p->group);
    }
    free(p);
    call->user = NULL;
}

/* ---- from the API's life ------------------------------------------------------------------------------------------ */

/* Only an agent at work holds a cluster here; the same agent that knocks elsewhere has left this session behind. */
static bool may_give_up(void *arg, const char *cluster, const char *journal)
{
    const struct agent_group *g = find_group(arg, cluster);
    struct agent_session *as;

    if (g)
        DL_FOREACH2 (g->sessions, as, group_next)
            if (session_active(as->session) && !adv_streq(session_journal(as->session), journal))
                return false;
    return true;
}

static void gave_up(void *arg, const char *cluster)
{
    const struct agent_group *g = find_group(arg, cluster);
    struct agent_session *as, *next;
    struct adv_err err = { 0 };

    if (!g)
        return;
    (void) adv_err_set_reason(&err, ADV_UNAVAILABLE, "NOT_OWNER", "cluster %.64s belongs to another replica now", cluster);
    err.retry_after_ms = 100;
    DL_FOREACH_SAFE2 (g->sessions, as, next, group_next)
        if (session_cluster(as->session))
            as->call->ops->fail(as->call, &err);
}

static const struct owner_ops owner_ops = { may_give_up, gave_up };

void agent_service_start(struct api *api)
{
    if (api->owner)
        owner_set_ops(api->owner, &owner_ops, api);
}

void agent_service_tick(struct api *api)
{
    struct agent_session *as, *next;

    DL_FOREACH_SAFE (api->sessions, as, next) {
        if (turn_ready(api->turn))
            look_whether_arrived(api, as);
        session_tick(as->session);
    }
}

static void tell_group(struct api *api, struct agent_group *g)
{
    struct agent_session *as, *next;
    struct agent_push *p, *p_next;

    DL_FOREACH_SAFE2 (g->sessions, as, next, group_next) {
        if (ended_by_revocation(api, as->call, session_cluster(as->session), &as->n_revocations))
            continue;
        look_whether_arrived(api, as);
        session_changed(as->session);
    }
    DL_FOREACH_SAFE (g->pushes, p, p_next)
        (void) ended_by_revocation(api, p->call, g->cluster, &p->n_revocations);
}

/* Only the clusters that changed are told, each once. Calls that fail by it are closed later, never within. */
void agent_service_changed(struct api *api)
{
    const struct watchlog *log = turn_watchlog(api->turn);
    uint64_t seq = api->told_seq < log->last ? api->told_seq : log->last;
    const struct change *ch;
    const char *cluster = NULL;
    struct agent_group *g, *next;
    struct agent_session *as;
    bool gone;

    while ((as = api->to_flush)) {
        drop_flush(api, as);
        session_flush(as->session);
    }
    api->told_seq = log->last;
    for (; (ch = watchlog_after(log, seq, &gone)); seq = ch->seq) {
        if (ch->cluster == cluster)
            continue;
        cluster = ch->cluster;
        g = find_group(api, cluster);
        if (!g || g->told_seq == log->last)
            continue;
        g->told_seq = log->last;
        tell_group(api, g);
    }
    if (gone) /* more than the log holds */
        HASH_ITER(hh, api->groups, g, next)
            tell_group(api, g);
}

void agent_service_reset(struct api *api, const struct adv_err *why)
{
    struct agent_session *as, *next;

    DL_FOREACH_SAFE (api->sessions, as, next)
        as->call->ops->fail(as->call, why);
}

const struct api_method agent_service_methods[] = {
    { "/advisor.v1.AgentService/Session", API_BIDI, &advisor__v1__session_request__descriptor,
      &advisor__v1__session_response__descriptor, ROLE_AGENT, SESSION_MESSAGE_BYTES, .arrives = true, .open = session_open,
      .message = session_on_message, .half_close = session_half_close, .closed = session_closed },
    { "/advisor.v1.AgentService/PushLogs", API_CLIENT_STREAM, &advisor__v1__push_logs_request__descriptor,
      &advisor__v1__push_logs_response__descriptor, ROLE_AGENT, SESSION_LOG_MESSAGE_BYTES, .open = push_open, .message = push_message,
      .half_close = push_half_close, .closed = push_closed },
};
const size_t agent_service_n = ADV_ARRAY_LEN(agent_service_methods);
