/* SPDX-License-Identifier: Apache-2.0 */
/* States: NEW (waits for Hello), HELLO (Hello is being stored), ACTIVE (holds the lease), STANDBY, ENDED.
 *
 *   state    message                  becomes
 *   NEW      Hello                    HELLO; anything else ends the call
 *   HELLO    (stored)                 ACTIVE or STANDBY, Welcome is sent
 *   ACTIVE   Heartbeat                lease extended, HeartbeatAck; one without an epoch extends nothing
 *   ACTIVE   Pull                     answered now or when there is something
 *   ACTIVE   numbered message         event; Ack once durable. Several *flights* may be under way: small messages, whose
 *                                     texts are copied. Any other message waits until all have landed.
 *                                     An agent that waits for each Ack has one: to ask for what is not
 *                                     there yet costs a write to the connection, before the commit
 *   STANDBY  Heartbeat                takes the lease if it is free (then ACTIVE), else HeartbeatAck without grant; one that
 *                                     is blind leaves it to one that sees
 *   STANDBY  anything else            ends the call: a standby has nothing to tell
 *
 * The holder of a lease is a session, not an agent process: when a connection breaks and the same process is back
 * before its old session was noticed to be dead, that old one can neither extend the lease nor, when it is closed at
 * last, take it away from the new one.
 *
 * An agent that has not seen its scheduler for long is blind. Its lease is not extended while another agent of the cluster
 * stands by that does see it: when the lease has run out the session ends, and the other one takes it as after any other
 * holder. Where nobody sees, or nobody else is there, all stays as it is.
 *
 * A lease is extended only from inside a read: an owner whose store is away stops extending, so its agents stop acting
 * in time. */

#include "controlplane/session/session.h"

#include <stdio.h>
#include <utlist.h>

#include "common/arena.h"
#include "common/utf8.h"
#include "controlplane/shapes/shapes.h"

#define ARENA_BYTES      (4 << 20)
#define ORDER_EXTRA_BYTES 16 /* tags and lengths around an order, and around a batch */
#define BATCH_MAX        8  /* agent_service.options: AdviceBatch.advice */
#define INTENTS_MAX      32 /* agent_service.options: LeaseGrant.open_intents */
#define FOCUS_MAX        64 /* agent_service.options: Focus.job_ids */
#define STALE_SCHED_MS   90000 /* the agent cannot see its scheduler for this long: it is blind */
#define SIGHT_BEATS      2 /* heartbeats that a standby's word of what it sees is believed for: one may be late, not more, since
                            * where the scheduler itself is away all go blind within a poll, and the last must not stand
                            * for what nobody sees */
#define SKEW_S           30    /* less is lost among heartbeats that wait; scheduler credentials notice from a few seconds */
#define SKEW_MAX_S       INT64_C(31536000000) /* a thousand years: more is no clock */
#define FOCUS_FOR_MS     600000
#define FOCUS_EVERY_US   250000 /* how often it is looked whether the set changed */
#define EPOCH_MAX        (UINT64_C(1) << 62) /* far below where a term or counter would wrap */
#define TICK_US          1000000 /* session_tick() comes this often */
#define FLIGHTS_MAX      16 /* more save little in a transaction */
#define FLIGHTS_BYTES    (16 << 10) /* of their texts; one alone may have more */
#define FLIGHT_TEXTS     4

enum session_state { SESSION_NEW, SESSION_HELLO, SESSION_ACTIVE, SESSION_STANDBY, SESSION_ENDED };

struct session {
    const struct session_ops *ops;
    void *ctx;
    enum session_state state;
    char session_id[64];
    char store_uuid[64];
    char principal[128];
    char serial[41];
    int64_t issued_s;
    char cluster[65];
    char instance[65];
    char journal[65];
    /* What Hello said of the agent; a standby needs it when it takes the lease. */
    char agent_version[64], scheduler[128], ceiling_reason[512];
    enum adv_mode ceiling;
    bool preserve_in_approve; /* the ceiling's */
    uint32_t forget_after_s;  /* by its Hello */
    bool journal_persistent;
    bool authenticated;
    uint32_t heartbeat_interval_ms, silence_timeout_ms;
    bool rearm_children;
    struct limits {
        uint32_t message_bytes, orders, focus_jobs, open_intents, exclude_nodes_bytes;
    } limits; /* of what is sent: ours, or the agent's if lower */
    uint64_t next_seq;
    uint64_t msg_seq; /* of the message under way */
    uint64_t heartbeat_id;
    int64_t skew_s; /* of its clock, by that heartbeat */
    uint64_t pull_id; /* 0: none outstanding */
    uint64_t orders_through;
    bool answered; /* a Pull of this session was answered */
    enum adv_mode mode_told;
    int64_t heard_mono_us, ticked_mono_us;
    char *focus; /* the set as told last, NULL for none */
    int64_t focus_mono_us, focus_looked_us;
    bool focus_waits; /* something changed since it was looked at */
    const Advisor__V1__SessionRequest *msg; /* under way */
    struct adv_arena event_arena;           /* arrays of the event under way */
    unsigned outstanding;                   /* callbacks to come */
    unsigned flights;                       /* of these */
    size_t flight_bytes;
    bool eager;                             /* the agent does not wait for its Acks, so several fly */
    unsigned flown;                         /* since there was none */
    bool msg_waits;                         /* for the flights */
    bool next_waits;                        /* next() waits for a flight */
    uint64_t ack_seq;                       /* to be told by session_flush(); 0: nothing */
    bool closed;
};

/* A small numbered message whose event is under way: the event's texts live here. */
struct flight {
    struct session *s;
    uint64_t seq;
    size_t bytes;
    char texts[];
};

int64_t session_wall_us(int64_t wall_ms)
{
    return wall_ms < 0 || wall_ms > 253402300799000 /* 9999-12-31 */ ? 0 : wall_ms * 1000;
}

static void session_maybe_free(struct session *s)
{
    if (!s->closed || s->outstanding)
        return;
    adv_arena_done(&s->event_arena);
    free(s->focus);
    free(s);
}

struct session *session_new(const struct session_config *cfg, const struct session_ops *ops, void *ctx)
{
    struct session *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->ops = ops;
    s->ctx = ctx;
    s->next_seq = 1;
    s->heartbeat_interval_ms = cfg->heartbeat_interval_ms;
    s->silence_timeout_ms = cfg->silence_timeout_ms;
    s->rearm_children = cfg->rearm_children;
    s->authenticated = cfg->peer_cluster != NULL;
    (void) snprintf(s->session_id, sizeof(s->session_id), "%s", cfg->session_id);
    (void) snprintf(s->store_uuid, sizeof(s->store_uuid), "%s", cfg->store_uuid);
    (void) snprintf(s->principal, sizeof(s->principal), "%s", cfg->principal);
    (void) snprintf(s->cluster, sizeof(s->cluster), "%s", str_or(cfg->peer_cluster));
    (void) snprintf(s->serial, sizeof(s->serial), "%s", str_or(cfg->serial));
    s->issued_s = cfg->issued_s;
    s->heard_mono_us = ops->mono_us(ctx);
    adv_arena_init(&s->event_arena, ARENA_BYTES);
    return s;
}

const char *session_cluster(const struct session *s)
{
    return s->state == SESSION_ACTIVE || s->state == SESSION_STANDBY ? s->cluster : NULL;
}

const char *session_id(const struct session *s)
{
    return s->session_id;
}

const char *session_journal(const struct session *s)
{
    return s->journal;
}

bool session_active(const struct session *s)
{
    return s->state == SESSION_ACTIVE;
}

static uint32_t lower(uint32_t ours, uint32_t theirs)
{
    return theirs && theirs < ours ? theirs : ours;
}

static void take_limits(struct session *s, const Advisor__V1__Limits *l)
{
    static const Advisor__V1__Limits unsaid = ADVISOR__V1__LIMITS__INIT;

    l = l ? l : &unsaid;
    s->limits = (struct limits) {
        .message_bytes = lower(SESSION_MESSAGE_BYTES, l->message_bytes),
        .orders = lower(BATCH_MAX, l->orders),
        .focus_jobs = lower(FOCUS_MAX, l->focus_jobs),
        .open_intents = lower(INTENTS_MAX, l->open_intents),
        .exclude_nodes_bytes = lower(DECIDE_EXCLUDE_TEXT_MAX, l->exclude_nodes_bytes),
    };
}

static void end_with(struct session *s, const struct adv_err *err)
{
    if (s->state == SESSION_ENDED)
        return;
    s->state = SESSION_ENDED;
    s->ops->fail(s->ctx, err);
}

static void refuse(struct session *s, enum adv_code code, const char *reason, const char *fmt, ...) ADV_PRINTF(4, 5);
static void refuse(struct session *s, enum adv_code code, const char *reason, const char *fmt, ...)
{
    struct adv_err err;
    char text[200];
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void) adv_err_set_reason(&err, code, reason, "%s", text);
    end_with(s, &err);
}

/* What the agent is to obey. A store that was found behind its journal is met with observation until a person sets the mode
 * again, whatever is stored. */
static enum adv_mode mode_of(const struct cluster *c)
{
    return c->epoch_warning && c->mode > MODE_OBSERVE ? MODE_OBSERVE : c->mode;
}

static struct event base_event(const struct session *s, enum event_type type)
{
    return (struct event) { .type = type, .cluster = s->cluster, .principal = s->principal };
}

/* The message is done with: ask for the next, if there is room for it. */
static void next_message(struct session *s)
{
    s->msg = NULL;
    adv_arena_done(&s->event_arena);
    adv_arena_init(&s->event_arena, ARENA_BYTES);
    s->next_waits = s->flights && (!s->eager || s->flights >= FLIGHTS_MAX || s->flight_bytes >= FLIGHTS_BYTES);
    if (!s->next_waits && s->state != SESSION_ENDED && !s->closed && s->ops->next(s->ctx))
        s->eager = true;
}

/* ---- to the agent ----------------------------------------------------------------------------------------------- */

static void send_ack(struct session *s, uint64_t seq)
{
    Advisor__V1__SessionResponse m = ADVISOR__V1__SESSION_RESPONSE__INIT;
    Advisor__V1__Ack ack = ADVISOR__V1__ACK__INIT;

    s->ack_seq = 0;
    ack.durable_through_seq = seq;
    m.message_case = ADVISOR__V1__SESSION_RESPONSE__MESSAGE_ACK;
    m.ack = &ack;
    s->ops->send(s->ctx, &m);
}

static void send_resync(struct session *s, const char *why)
{
    Advisor__V1__SessionResponse m = ADVISOR__V1__SESSION_RESPONSE__INIT;
    Advisor__V1__ResyncRequest r = ADVISOR__V1__RESYNC_REQUEST__INIT;

    r.reason = (char *) (uintptr_t) why;
    m.message_case = ADVISOR__V1__SESSION_RESPONSE__MESSAGE_RESYNC;
    m.resync = &r;
    s->ops->send(s->ctx, &m);
}

static Advisor__V1__OpenIntent *shape_intent(struct adv_arena *ar, const struct action *ac)
{
    char name[RESOURCE_NAME_MAX];
    Advisor__V1__OpenIntent *m = adv_arena_alloc(ar, sizeof(*m));

    if (!m)
        return NULL;
    advisor__v1__open_intent__init(m);
    m->journal_seq = ac->journal_seq;
    m->epoch = shape_epoch(ar, ac->epoch);
    m->advice = adv_arena_strdup(ar, advice_resource_name(ac->attempt, name));
    m->generation = ac->generation;
    m->job_id = ac->attempt->job->job_id;
    m->restart_count = ac->attempt->index;
    m->verb = (Advisor__V1__Verb) ac->verb;
    return m;
}

/* The lease as it stands, never beyond what this replica still holds of its own. On a fresh grant also the writes whose
 * outcome nobody knows. */
static Advisor__V1__LeaseGrant *shape_grant(struct session *s, struct adv_arena *ar, const struct cluster *c,
                                            bool fresh, bool settle)
{
    Advisor__V1__LeaseGrant *g = adv_arena_alloc(ar, sizeof(*g));
    const struct advice *ad;
    const struct action *ac;

    if (!g)
        return NULL;
    advisor__v1__lease_grant__init(g);
    g->epoch = shape_epoch(ar, c->epoch);
    g->lease_ms = (uint32_t) (fleet_lease_left_us(c, s->session_id, s->ops->mono_us(s->ctx)) / 1000);
    g->settle = settle;
    if (!fresh)
        return g;
    g->open_intents = adv_arena_alloc(ar, INTENTS_MAX * sizeof(*g->open_intents));
    if (!g->open_intents)
        return NULL;
    DL_FOREACH (c->open_advice, ad)
        DL_FOREACH (ad->attempt->actions, ac)
            if (!ac->outcome_us && g->n_open_intents < s->limits.open_intents)
                g->open_intents[g->n_open_intents++] = shape_intent(ar, ac);
    g->settle = settle || g->n_open_intents > 0;
    return adv_arena_exhausted(ar) ? NULL : g;
}

static void send_heartbeat_ack(struct session *s, struct cluster *c, bool fresh)
{
    Advisor__V1__SessionResponse m = ADVISOR__V1__SESSION_RESPONSE__INIT;
    Advisor__V1__HeartbeatAck ack = ADVISOR__V1__HEARTBEAT_ACK__INIT;
    ADV_AUTO_DONE(adv_arena) ar;

    adv_arena_init(&ar, ARENA_BYTES);
    ack.id = s->heartbeat_id;
    ack.cluster_mode = (Advisor__V1__Mode) mode_of(c);
    if (s->state == SESSION_ACTIVE && fleet_lease_left_us(c, s->session_id, s->ops->mono_us(s->ctx)) > 0)
        ack.grant = shape_grant(s, &ar, c, fresh, fresh);
    s->mode_told = mode_of(c);
    m.message_case = ADVISOR__V1__SESSION_RESPONSE__MESSAGE_HEARTBEAT_ACK;
    m.heartbeat_ack = &ack;
    s->ops->send(s->ctx, &m);
}

static void send_welcome(struct session *s, struct cluster *c, bool granted, bool resumed, bool settle)
{
    Advisor__V1__SessionResponse m = ADVISOR__V1__SESSION_RESPONSE__INIT;
    Advisor__V1__Welcome w = ADVISOR__V1__WELCOME__INIT;
    Advisor__V1__Limits l = ADVISOR__V1__LIMITS__INIT;
    ADV_AUTO_DONE(adv_arena) ar;
    char version[] = ADVISOR_VERSION;

    adv_arena_init(&ar, ARENA_BYTES);
    w.session_id = s->session_id;
    w.store_uuid = s->store_uuid;
    w.server_version = version;
    w.heartbeat_interval_ms = s->heartbeat_interval_ms;
    w.silence_timeout_ms = s->silence_timeout_ms;
    l.message_bytes = SESSION_MESSAGE_BYTES;
    l.log_message_bytes = SESSION_LOG_MESSAGE_BYTES;
    w.limits = &l;
    w.send_snapshot = granted && !resumed;
    w.cluster_mode = (Advisor__V1__Mode) mode_of(c);
    if (granted)
        w.grant = shape_grant(s, &ar, c, true, settle);
    else
        w.lease_holder = adv_streq(str_or(c->holder_journal), s->journal) ? (char *) (uintptr_t) "" : c->holder_journal;
    if (granted && !w.grant) {
        refuse(s, ADV_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for the welcome");
        return;
    }
    s->mode_told = mode_of(c);
    m.message_case = ADVISOR__V1__SESSION_RESPONSE__MESSAGE_WELCOME;
    m.welcome = &w;
    s->ops->send(s->ctx, &m);
}

static Advisor__V1__AdviceOrder *shape_order(struct adv_arena *ar, const struct advice *ad, bool rearm_children, int64_t now_us)
{
    char name[RESOURCE_NAME_MAX];
    const struct job *j = ad->attempt->job;
    Advisor__V1__AdviceOrder *m = adv_arena_alloc(ar, sizeof(*m));
    int64_t age_ms = (now_us - ad->update_us) / 1000, left_ms = (int64_t) ad->valid_for_ms - (age_ms > 0 ? age_ms : 0);

    if (!m)
        return NULL;
    advisor__v1__advice_order__init(m);
    m->name = adv_arena_strdup(ar, advice_resource_name(ad->attempt, name));
    m->generation = ad->generation;
    m->attempt = shape_ref(ar, ad->attempt);
    m->submit_unix = j->submit_unix;
    m->incarnation_unix = j->incarnation_unix;
    m->desired_state = (Advisor__V1__DesiredState) ad->desired;
    m->actionability = (Advisor__V1__Actionability) ad->actionability;
    m->exclude_nodes = ad->exclude_nodes ? ad->exclude_nodes : (char *) (uintptr_t) "";
    m->valid_for_ms = left_ms < 0 ? 0 : left_ms > UINT32_MAX ? UINT32_MAX : (uint32_t) left_ms;
    m->correlation_id = ad->correlation_id;
    m->may_interrupt = ad->may_interrupt;
    m->requeued_by_advice = attempt_requeue_recorded(ad->attempt);
    m->approved_generation = advice_approved(ad) ? ad->generation : 0;
    m->preserve = ad->preserve;
    m->rearm_children = rearm_children;
    return m;
}

static int by_order_rev(const void *a, const void *b)
{
    const struct advice *x = *(const struct advice *const *) a, *y = *(const struct advice *const *) b;

    return x->order_rev < y->order_rev ? -1 : x->order_rev > y->order_rev;
}

/* Answers the waiting Pull if there is something new, oldest first. */
static void answer_pull(struct session *s, struct cluster *c)
{
    Advisor__V1__SessionResponse m = ADVISOR__V1__SESSION_RESPONSE__INIT;
    Advisor__V1__AdviceBatch batch = ADVISOR__V1__ADVICE_BATCH__INIT;
    Advisor__V1__AdviceOrder *orders[BATCH_MAX];
    const struct advice *ad, **found = NULL;
    size_t n = 0, total = 0, bytes = ORDER_EXTRA_BYTES;
    ADV_AUTO_DONE(adv_arena) ar;

    adv_arena_init(&ar, ARENA_BYTES);
    if (!s->pull_id || s->state != SESSION_ACTIVE || c->agent_state != AGENT_CONNECTED || !c->digest_ok)
        return;
    DL_FOREACH (c->open_advice, ad)
        total += ad->order_rev > s->orders_through;
    if ((!total && s->answered) || !(found = adv_arena_alloc(&ar, (total + 1) * sizeof(*found))))
        return;
    DL_FOREACH (c->open_advice, ad)
        if (ad->order_rev > s->orders_through)
            found[n++] = ad;
    qsort(found, n, sizeof(*found), by_order_rev);
    for (size_t i = 0; i < n && batch.n_advice < s->limits.orders; i++) {
        bool fits = strlen(str_or(found[i]->exclude_nodes)) <= s->limits.exclude_nodes_bytes;
        if (fits && !(orders[batch.n_advice] = shape_order(&ar, found[i], s->rearm_children, s->ops->fleet(s->ctx)->now_us)))
            break; /* no memory: the next Pull asks again */
        if (fits) {
            size_t order = advisor__v1__advice_order__get_packed_size(orders[batch.n_advice]) + ORDER_EXTRA_BYTES;
            if (bytes + order > s->limits.message_bytes && batch.n_advice)
                break; /* the next Pull has it */
            fits = bytes + order <= s->limits.message_bytes;
            bytes += fits ? order : 0;
        }
        s->orders_through = found[i]->order_rev;
        batch.n_advice += fits; /* more than the agent takes is not sent: doing nothing is always allowed */
    }
    batch.more = n > 0 && found[n - 1]->order_rev > s->orders_through;
    if (!batch.n_advice && s->answered)
        return;
    s->answered = true; /* the first answer comes even when it is empty: "there is nothing" is news then */
    batch.pull_id = s->pull_id;
    batch.advice = orders;
    m.message_case = ADVISOR__V1__SESSION_RESPONSE__MESSAGE_ADVICE_BATCH;
    m.advice_batch = &batch;
    s->pull_id = 0;
    s->ops->send(s->ctx, &m);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *) a, *(char *const *) b);
}

/* Attempts that wait for confirmation want a closer look. Told when the set changes, and again before it runs out. */
static void send_focus(struct session *s, struct cluster *c)
{
    Advisor__V1__SessionResponse m = ADVISOR__V1__SESSION_RESPONSE__INIT;
    Advisor__V1__Focus f = ADVISOR__V1__FOCUS__INIT;
    char *ids[FOCUS_MAX], set[FOCUS_MAX * 34] = "";
    int64_t now_us = s->ops->mono_us(s->ctx);
    const struct attempt *a;
    size_t n = 0;

    if (s->focus_looked_us && now_us - s->focus_looked_us < FOCUS_EVERY_US) {
        s->focus_waits = true; /* the next tick looks: all that wait for anything are gone through */
        return;
    }
    s->focus_looked_us = now_us;
    s->focus_waits = false;
    for (a = c->judged; a && f.n_job_ids < s->limits.focus_jobs; a = a->judge_next)
        if (!job_state_terminal(a->state) && fleet_has_suspicion(a, false)) /* others wait for their rhythm, say: all is well */
            ids[f.n_job_ids++] = a->job->job_id;
    qsort(ids, f.n_job_ids, sizeof(ids[0]), by_text);
    for (size_t i = 0; i < f.n_job_ids; i++)
        n += (size_t) snprintf(set + n, sizeof(set) - n, "%.32s ", ids[i]);
    if (adv_streq(set, str_or(s->focus)) && (!*set || now_us - s->focus_mono_us < FOCUS_FOR_MS * 1000LL / 2))
        return;
    free(s->focus);
    s->focus = strdup(set);
    s->focus_mono_us = now_us;
    f.job_ids = ids;
    f.for_ms = FOCUS_FOR_MS;
    m.message_case = ADVISOR__V1__SESSION_RESPONSE__MESSAGE_FOCUS;
    m.focus = &f;
    s->ops->send(s->ctx, &m);
}

void session_flush(struct session *s)
{
    if (s->state == SESSION_ENDED || s->closed)
        return;
    if (s->ack_seq)
        send_ack(s, s->ack_seq);
    if (s->next_waits)
        next_message(s); /* after the answer: with it goes what the connection has to say of its window */
}

void session_changed(struct session *s)
{
    struct cluster *c;

    if (s->state != SESSION_ACTIVE && s->state != SESSION_STANDBY)
        return;
    c = fleet_find_cluster(s->ops->fleet(s->ctx), s->cluster);
    if (!c)
        return;
    if (mode_of(c) != s->mode_told)
        send_heartbeat_ack(s, c, false);
    if (s->state == SESSION_ACTIVE) {
        send_focus(s, c);
        answer_pull(s, c);
    }
}

/* ---- from the agent --------------------------------------------------------------------------------------------- */

static struct epoch epoch_of(const Advisor__V1__Epoch *e)
{
    return e ? (struct epoch) { e->term, e->counter } : (struct epoch) { 0 };
}

static bool id_ok(const char *s)
{
    return s && *s && strlen(s) < 65;
}

/* Common end of an event: true when the session may go on. */
static bool event_done(struct session *s, const struct adv_err *err)
{
    s->outstanding--;
    if (s->closed) {
        session_maybe_free(s);
        return false;
    }
    if (err) {
        end_with(s, err);
        return false;
    }
    return s->state != SESSION_ENDED;
}

static void submit(struct session *s, const struct event *ev, session_event_cb cb)
{
    s->outstanding++;
    s->ops->submit(s->ctx, ev, cb, s);
}

/* Refuses a text over its limit (agent_service.options has the agent's own); true when it was refused. */
static bool too_long(struct session *s, const char *field, const char *text, size_t max)
{
    if (strlen(str_or(text)) <= max)
        return false;
    refuse(s, ADV_INVALID_ARGUMENT, "TEXT_TOO_LONG", "%s: %zu bytes, expected at most %zu", field, strlen(text), max);
    return true;
}

static void hello_cb(void *arg, const struct event *ev, const struct adv_err *err)
{
    struct session *s = arg;
    struct cluster *c;

    if (!event_done(s, err))
        return;
    c = fleet_find_cluster(s->ops->fleet(s->ctx), s->cluster);
    if (!c)
        return;
    s->state = ev->u.hello.ret_granted ? SESSION_ACTIVE : SESSION_STANDBY;
    send_welcome(s, c, ev->u.hello.ret_granted, ev->u.hello.ret_resumed, ev->u.hello.ret_settle);
    next_message(s);
}

/* One without a known mode allows nothing. */
static void note_ceiling(struct session *s, const Advisor__V1__Ceiling *ceiling)
{
    const char *why = ceiling ? str_or(ceiling->reason) : "";

    s->preserve_in_approve = ceiling && ceiling->preserve_in_approve;
    s->ceiling = ceiling && ceiling->mode <= (Advisor__V1__Mode) MODE_ACT ? (enum adv_mode) ceiling->mode : MODE_UNSET;
    (void) snprintf(s->ceiling_reason, sizeof(s->ceiling_reason), "%.*s",
                    (int) adv_utf8_cut(why, strlen(why), sizeof(s->ceiling_reason) - 1), why);
}

static void on_hello(struct session *s, const Advisor__V1__Hello *h)
{
    struct event ev;
    bool speaks = false;

    for (size_t i = 0; i < h->n_api_versions; i++)
        speaks = speaks || adv_streq(h->api_versions[i], "advisor.v1");
    if (!speaks) {
        refuse(s, ADV_FAILED_PRECONDITION, "API_VERSION_UNSUPPORTED", "hello.api_versions: expected advisor.v1 among them");
        return;
    }
    if (s->authenticated && !adv_streq(s->cluster, str_or(h->cluster))) {
        refuse(s, ADV_PERMISSION_DENIED, "WRONG_CLUSTER", "hello.cluster \"%.64s\": the certificate is for cluster %s",
               str_or(h->cluster), s->cluster);
        return;
    }
    if (!cluster_id_valid(h->cluster) || !id_ok(h->instance_id) || !id_ok(h->journal_id)) {
        refuse(s, ADV_INVALID_ARGUMENT, "HELLO_MALFORMED",
               "hello: expected a cluster id, and instance_id and journal_id of 1 to 64 characters");
        return;
    }
    if (h->highest_epoch && (h->highest_epoch->term > EPOCH_MAX || h->highest_epoch->counter > EPOCH_MAX)) {
        refuse(s, ADV_INVALID_ARGUMENT, "HELLO_MALFORMED", "hello.highest_epoch %llu.%llu: no store ever granted one",
               (unsigned long long) h->highest_epoch->term, (unsigned long long) h->highest_epoch->counter);
        return;
    }
    if (too_long(s, "hello.agent_version", h->agent_version, 63) || too_long(s, "hello.scheduler", h->scheduler, 127) ||
        too_long(s, "hello.ceiling.reason", h->ceiling ? h->ceiling->reason : "", 511))
        return;
    (void) snprintf(s->cluster, sizeof(s->cluster), "%s", h->cluster);
    (void) snprintf(s->instance, sizeof(s->instance), "%s", h->instance_id);
    (void) snprintf(s->journal, sizeof(s->journal), "%s", h->journal_id);
    ev = base_event(s, EV_AGENT_HELLO);
    ev.u.hello.serial = s->serial;
    ev.u.hello.issued_s = s->issued_s;
    ev.u.hello.instance_id = s->session_id;
    ev.u.hello.process = s->instance;
    ev.u.hello.journal_id = s->journal;
    s->journal_persistent = h->journal_persistent;
    (void) snprintf(s->agent_version, sizeof(s->agent_version), "%s", str_or(h->agent_version));
    (void) snprintf(s->scheduler, sizeof(s->scheduler), "%s", str_or(h->scheduler));
    note_ceiling(s, h->ceiling);
    ev.u.hello.journal_persistent = s->journal_persistent;
    ev.u.hello.highest_epoch = epoch_of(h->highest_epoch);
    ev.u.hello.agent_version = s->agent_version;
    ev.u.hello.scheduler = s->scheduler;
    ev.u.hello.ceiling = s->ceiling;
    ev.u.hello.ceiling_reason = s->ceiling_reason;
    s->forget_after_s = h->forget_after_s;
    ev.u.hello.preserve_in_approve = s->preserve_in_approve;
    ev.u.hello.forget_after_s = s->forget_after_s;
    if (h->resume) {
        ev.u.hello.resume = true;
        ev.u.hello.resume_epoch = epoch_of(h->resume->epoch);
        ev.u.hello.resume_digest = h->resume->digest;
    }
    take_limits(s, h->limits);
    s->state = SESSION_HELLO;
    submit(s, &ev, hello_cb);
}

static void take_cb(void *arg, const struct event *ev, const struct adv_err *err)
{
    struct session *s = arg;
    struct cluster *c;

    if (!event_done(s, err))
        return;
    c = fleet_find_cluster(s->ops->fleet(s->ctx), s->cluster);
    if (!c)
        return;
    if (ev->u.take.ret_granted) {
        s->state = SESSION_ACTIVE;
        s->orders_through = 0;
    }
    send_heartbeat_ack(s, c, ev->u.take.ret_granted);
    if (ev->u.take.ret_granted)
        send_resync(s, "the lease was taken over");
    next_message(s);
}

static void report_cb(void *arg, const struct event *ev, const struct adv_err *err)
{
    struct session *s = arg;

    (void) ev;
    if (event_done(s, err))
        next_message(s);
}

/* How far the agent's clock is ahead of ours; small differences count as none. */
static int64_t skew_of(struct session *s, const Advisor__V1__Heartbeat *hb)
{
    int64_t skew_s = 0;

    if (!hb->agent_wall_ms || __builtin_sub_overflow(hb->agent_wall_ms / 1000, s->ops->wall_us(s->ctx) / 1000000, &skew_s) ||
        (skew_s < SKEW_S && skew_s > -SKEW_S))
        return 0;
    return skew_s < -SKEW_MAX_S ? -SKEW_MAX_S : skew_s > SKEW_MAX_S ? SKEW_MAX_S : skew_s;
}

static bool skew_changed(int64_t old_s, int64_t new_s)
{
    return (old_s != 0) != (new_s != 0) || new_s - old_s >= SKEW_S || old_s - new_s >= SKEW_S;
}

static void heartbeat_read_cb(void *arg, const struct adv_err *err)
{
    struct session *s = arg;
    struct fleet *f;
    struct cluster *c;
    const Advisor__V1__Heartbeat *hb;
    struct event ev;
    bool stale, obeyed, heard, holds, yields;
    int64_t now_us = s->ops->mono_us(s->ctx);

    if (!event_done(s, err))
        return;
    f = s->ops->fleet(s->ctx);
    c = fleet_find_cluster(f, s->cluster);
    hb = s->msg->heartbeat;
    if (!c)
        return;
    stale = hb->observation_age_ms > STALE_SCHED_MS;
    if (s->state == SESSION_STANDBY) {
        fleet_agent_sees(c, s->session_id, now_us, stale ? 0 : SIGHT_BEATS * (int64_t) s->heartbeat_interval_ms * 1000);
        if (hb->ceiling && hb->ceiling->mode <= (Advisor__V1__Mode) MODE_ACT)
            note_ceiling(s, hb->ceiling);
        if (fleet_lease_free(c, now_us) && !c->holder_instance &&
            !(stale && fleet_other_agent_sees(c, s->session_id, now_us))) {
            ev = base_event(s, EV_LEASE_TAKE);
            ev.u.take.instance_id = s->session_id;
            ev.u.take.journal_id = s->journal;
            ev.u.take.journal_persistent = s->journal_persistent;
            ev.u.take.agent_version = s->agent_version;
            ev.u.take.scheduler = s->scheduler;
            ev.u.take.ceiling = s->ceiling;
            ev.u.take.ceiling_reason = s->ceiling_reason;
            ev.u.take.preserve_in_approve = s->preserve_in_approve;
            ev.u.take.forget_after_s = s->forget_after_s;
            submit(s, &ev, take_cb);
            return;
        }
        send_heartbeat_ack(s, c, false);
        next_message(s);
        return;
    }
    if (c->owned_until_us <= now_us) {
        refuse(s, ADV_UNAVAILABLE, "NOT_OWNER", "this replica could not renew its ownership of cluster %s", s->cluster);
        return;
    }
    /* An agent that holds nothing has not heard of its grant yet: this heartbeat and the answer crossed each other. It
     * hears of it again, or it would stand by for ever as the holder. Or it cannot take it (it could not journal the
     * epoch): then nothing is extended, and at the end of the lease the session ends, so that others can have it. */
    heard = hb->epoch != NULL;
    holds = adv_streq(str_or(c->holder_instance), s->session_id);
    yields = stale && holds && fleet_other_agent_sees(c, s->session_id, now_us);
    if (holds && (yields || !stale)) /* at once: it may come again before its lease has ended, and again and again */
        fleet_agent_blind(c, yields);
    if (heard && !yields ? !fleet_lease_extend(f, c, s->session_id, now_us) :
                           fleet_lease_left_us(c, s->session_id, now_us) == 0) {
        refuse(s, ADV_ABORTED, "NOT_LEASE_HOLDER",
               yields ? "this agent has not seen its scheduler for long, and another agent of cluster %s does" :
               heard  ? "another agent of cluster %s holds the lease now" :
                        "the lease of cluster %s ended and was not taken by this agent",
               s->cluster);
        return;
    }
    obeyed = (enum adv_mode) hb->cluster_mode == mode_of(c) && !hb->write_in_flight;
    if (hb->ceiling || stale != (c->agent_state == AGENT_SCHEDULER_UNAVAILABLE) || (!c->mode_effective_us && obeyed) ||
        skew_changed(c->agent_skew_s, s->skew_s)) {
        ev = base_event(s, EV_AGENT_REPORT);
        ev.u.report.instance_id = s->session_id;
        ev.u.report.scheduler_unavailable = stale;
        ev.u.report.mode_confirmed = obeyed;
        ev.u.report.clock_skew_s = skew_changed(c->agent_skew_s, s->skew_s) ? s->skew_s : c->agent_skew_s;
        if (hb->ceiling && hb->ceiling->mode <= (Advisor__V1__Mode) MODE_ACT) {
            ev.u.report.ceiling = (enum adv_mode) hb->ceiling->mode;
            ev.u.report.ceiling_reason = hb->ceiling->reason;
            ev.u.report.preserve_in_approve = hb->ceiling->preserve_in_approve;
        }
        send_heartbeat_ack(s, c, !heard);
        submit(s, &ev, report_cb);
        return;
    }
    send_heartbeat_ack(s, c, !heard);
    send_focus(s, c);
    next_message(s);
}

static void on_heartbeat(struct session *s, const Advisor__V1__Heartbeat *hb)
{
    if (hb->id <= s->heartbeat_id) {
        refuse(s, ADV_INVALID_ARGUMENT, "HEARTBEAT_OUT_OF_ORDER", "heartbeat.id %llu: expected more than %llu",
               (unsigned long long) hb->id, (unsigned long long) s->heartbeat_id);
        return;
    }
    if (too_long(s, "heartbeat.ceiling.reason", hb->ceiling ? hb->ceiling->reason : "", sizeof(s->ceiling_reason) - 1))
        return;
    s->heartbeat_id = hb->id;
    s->skew_s = skew_of(s, hb);
    s->outstanding++;
    s->ops->read(s->ctx, heartbeat_read_cb, s);
}

static void pull_read_cb(void *arg, const struct adv_err *err)
{
    struct session *s = arg;
    struct cluster *c;

    if (!event_done(s, err))
        return;
    c = fleet_find_cluster(s->ops->fleet(s->ctx), s->cluster);
    if (c)
        answer_pull(s, c);
    next_message(s);
}

static void on_pull(struct session *s, const Advisor__V1__Pull *p)
{
    if (s->pull_id || !p->id) {
        refuse(s, ADV_INVALID_ARGUMENT, "PULL_OUTSTANDING", "pull %llu: %s", (unsigned long long) p->id,
               p->id ? "one is outstanding already" : "its id must not be 0");
        return;
    }
    s->pull_id = p->id;
    s->outstanding++;
    s->ops->read(s->ctx, pull_read_cb, s);
}

static void numbered_cb(void *arg, const struct event *ev, const struct adv_err *err)
{
    struct session *s = arg;

    if (!event_done(s, err))
        return;
    send_ack(s, s->msg_seq);
    if (ev->u.state.ret_resync)
        send_resync(s, "digest mismatch");
    next_message(s);
}

static void handle(struct session *s, const Advisor__V1__SessionRequest *msg);

static void landed_cb(void *arg, const struct event *ev, const struct adv_err *err)
{
    struct flight *fl = arg;
    struct session *s = fl->s;
    uint64_t seq = fl->seq;

    (void) ev;
    s->flight_bytes -= fl->bytes;
    if (--s->flights == 0) {
        s->eager = s->flown > 1;
        s->flown = 0;
    }
    free(fl);
    if (!event_done(s, err))
        return;
    s->ack_seq = seq;
    if (s->msg_waits && !s->flights) {
        s->msg_waits = false;
        session_flush(s);
        handle(s, s->msg);
    }
}

/* Where @ev has texts of its message. */
static size_t message_texts(struct event *ev, const char **ret[FLIGHT_TEXTS])
{
    size_t n = 0;

    if (ev->type == EV_ADVICE_STATUS) {
        ret[n++] = &ev->u.status.advice_name;
        ret[n++] = &ev->u.status.detail;
    } else if (ev->type == EV_ACTION) {
        ret[n++] = &ev->u.action.advice_name;
        ret[n++] = &ev->u.action.read_before;
        ret[n++] = &ev->u.action.reason;
        ret[n++] = &ev->u.action.detail;
    } else if (ev->type == EV_TELEMETRY) {
        ret[n++] = &ev->u.telemetry.job_id;
        ret[n++] = &ev->u.telemetry.reason;
    }
    return n;
}

/* Submits @ev without holding the message. */
static void take_off(struct session *s, struct event *ev)
{
    const char **texts[FLIGHT_TEXTS];
    size_t n = message_texts(ev, texts), bytes = sizeof(struct flight);
    struct flight *fl;
    char *at;

    for (size_t i = 0; i < n; i++)
        bytes += strlen(str_or(*texts[i])) + 1;
    fl = malloc(bytes);
    if (!fl) {
        refuse(s, ADV_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for message %llu", (unsigned long long) s->msg_seq);
        return;
    }
    *fl = (struct flight) { s, s->msg_seq, bytes };
    at = fl->texts;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(str_or(*texts[i])) + 1;
        memcpy(at, str_or(*texts[i]), len);
        *texts[i] = at;
        at += len;
    }
    s->eager |= s->flights > 0;
    s->flights++;
    s->flown++;
    s->flight_bytes += bytes;
    s->outstanding++;
    s->ops->submit(s->ctx, ev, landed_cb, fl);
    next_message(s);
}

/* Bytes of the scheduler as text that can be shown. */
static const char *lossy(struct adv_arena *ar, const ProtobufCBinaryData *b, size_t max)
{
    size_t cap = (b->len < max ? b->len : max) * 3 + 1;
    char *s;

    if (!b->len)
        return "";
    s = adv_arena_alloc(ar, cap);
    if (s)
        (void) adv_utf8_lossy_buf(s, cap, b->data, b->len < max ? b->len : max);
    return s ? s : "";
}

static void take_job(struct adv_arena *ar, struct job_obs *o, const Advisor__V1__JobObservation *m)
{
    *o = (struct job_obs) {
        .job_id = m->job_id,
        .state = (enum job_state) m->state,
        .state_raw = m->state_raw,
        .completing = m->completing,
        .restart_count = m->restart_count,
        .requeueable = m->requeueable,
        .batch = m->batch,
        .exit_code = m->exit_code,
        .exit_signal = m->exit_signal,
        .submit_unix = m->submit_unix,
        .eligible_unix = m->eligible_unix,
        .start_unix = m->start_unix,
        .end_unix = m->end_unix,
        .incarnation_unix = m->incarnation_unix,
        .held = m->held,
        .reason = m->reason,
        .nodes = m->nodes,
        .user = m->user,
        .uid = m->uid,
        .account = m->account,
        .partition = m->partition,
        .qos = m->qos,
        .detail_known = m->detail_known,
        .excluded_nodes = m->excluded_nodes,
        .required_nodes = m->required_nodes,
        .num_nodes = m->num_nodes,
        .hash = m->hash,
    };
    if (m->detail_known) {
        o->name = lossy(ar, &m->name, 1024);
        o->comment = lossy(ar, &m->comment, 4096);
        o->stdout_path = lossy(ar, &m->stdout_path, 4096);
    }
}

static bool on_state(struct session *s, const Advisor__V1__StateUpdate *u, struct event *ev)
{
    struct adv_arena *ar = &s->event_arena;
    struct job_obs *jobs = adv_arena_alloc(ar, (u->n_jobs + 1) * sizeof(*jobs));
    struct node_obs *nodes = adv_arena_alloc(ar, (u->n_nodes + 1) * sizeof(*nodes));
    struct job_end *ended = adv_arena_alloc(ar, (u->n_ended + 1) * sizeof(*ended));

    if (!jobs || !nodes || !ended) {
        refuse(s, ADV_RESOURCE_EXHAUSTED, "UPDATE_TOO_LARGE", "state_update: %zu jobs and %zu nodes are too many at once",
               u->n_jobs, u->n_nodes);
        return false;
    }
    for (size_t i = 0; i < u->n_jobs; i++)
        take_job(ar, &jobs[i], u->jobs[i]);
    for (size_t i = 0; i < u->n_nodes; i++)
        nodes[i] = (struct node_obs) { u->nodes[i]->name, u->nodes[i]->state_raw, u->nodes[i]->reason,
                                       u->nodes[i]->available != 0, u->nodes[i]->hash };
    for (size_t i = 0; i < u->n_ended; i++) {
        const Advisor__V1__JobEnd *m = u->ended[i];
        ended[i] = (struct job_end) { m->job_id, m->restart_count, m->submit_unix, (enum job_state) m->state, m->state_raw,
                                      m->exit_code, m->exit_signal, m->start_unix, m->end_unix, m->nodes,
                                      m->cancelled_by <= (Advisor__V1__CancelledBy) CANCELLED_BY_OTHER
                                          ? (enum cancelled_by) m->cancelled_by
                                          : CANCELLED_BY_UNKNOWN };
    }
    if (adv_arena_exhausted(ar)) {
        refuse(s, ADV_RESOURCE_EXHAUSTED, "UPDATE_TOO_LARGE", "state_update: too much text at once");
        return false;
    }
    ev->type = EV_STATE_UPDATE;
    ev->u.state.instance_id = s->session_id;
    ev->u.state.full_begin = u->full_begin;
    ev->u.state.full_end = u->full_end;
    ev->u.state.jobs = jobs;
    ev->u.state.n_jobs = u->n_jobs;
    ev->u.state.nodes = nodes;
    ev->u.state.n_nodes = u->n_nodes;
    ev->u.state.gone_jobs = (const char *const *) u->gone_job_ids;
    ev->u.state.n_gone_jobs = u->n_gone_job_ids;
    ev->u.state.ended = ended;
    ev->u.state.n_ended = u->n_ended;
    ev->u.state.gone_nodes = (const char *const *) u->gone_nodes;
    ev->u.state.n_gone_nodes = u->n_gone_nodes;
    ev->u.state.digest = u->digest;
    ev->u.state.observe_us = session_wall_us(u->observe_wall_ms);
    return true;
}

static bool on_status(struct session *s, const Advisor__V1__AdviceStatusReport *m, struct event *ev)
{
    if (too_long(s, "advice_status.advice", m->advice, 255) || too_long(s, "advice_status.detail", m->detail, 511))
        return false;
    ev->type = EV_ADVICE_STATUS;
    ev->u.status.advice_name = m->advice;
    ev->u.status.observed_generation = m->observed_generation;
    ev->u.status.epoch = epoch_of(m->epoch);
    ev->u.status.disposition = (enum disposition) m->disposition;
    ev->u.status.reason = (uint32_t) m->reason;
    ev->u.status.detail = m->detail;
    ev->u.status.observe_us = session_wall_us(m->observe_wall_ms);
    return true;
}

static bool on_action(struct session *s, const Advisor__V1__ActionReport *m, struct event *ev)
{
    if (too_long(s, "action.advice", m->advice, 255) || too_long(s, "action.read_before", m->read_before, 511) ||
        too_long(s, "action.reason", m->reason, 63) || too_long(s, "action.detail", m->detail, 1023))
        return false;
    ev->type = EV_ACTION;
    ev->u.action.journal_id = s->journal;
    ev->u.action.journal_seq = m->journal_seq;
    ev->u.action.epoch = epoch_of(m->epoch);
    ev->u.action.advice_name = m->advice;
    ev->u.action.generation = m->generation;
    ev->u.action.verb = (uint32_t) m->verb;
    ev->u.action.outcome = m->phase == ADVISOR__V1__ACTION_PHASE__ACTION_PHASE_OUTCOME;
    ev->u.action.read_before = m->read_before;
    ev->u.action.command = (enum command_result) m->command;
    ev->u.action.observed = (enum observed) m->observed;
    ev->u.action.reason = m->reason;
    ev->u.action.detail = m->detail;
    ev->u.action.observe_us = session_wall_us(m->observe_wall_ms);
    return true;
}

static bool on_telemetry(struct session *s, const Advisor__V1__TelemetryReport *m, struct event *ev)
{
    if (too_long(s, "telemetry.reason", m->reason, 127))
        return false;
    ev->type = EV_TELEMETRY;
    ev->u.telemetry.job_id = m->attempt ? m->attempt->job_id : "";
    ev->u.telemetry.restart_count = m->attempt ? m->attempt->restart_count : 0;
    ev->u.telemetry.submit_unix = m->attempt ? m->attempt->submit_unix : 0;
    ev->u.telemetry.state = m->state <= (Advisor__V1__TelemetryState) TELEMETRY_LOST ? (enum telemetry_state) m->state :
                                                                                      TELEMETRY_UNSET;
    ev->u.telemetry.reason = m->reason;
    ev->u.telemetry.dropped_bytes = m->dropped_bytes;
    return true;
}

static void on_numbered(struct session *s, const Advisor__V1__SessionRequest *msg)
{
    struct event ev = base_event(s, EV_NONE);

    if (msg->seq != s->next_seq) {
        refuse(s, ADV_OUT_OF_RANGE, "SEQUENCE_GAP", "seq %llu: expected %llu", (unsigned long long) msg->seq,
               (unsigned long long) s->next_seq);
        return;
    }
    s->msg_seq = s->next_seq++;
    switch (msg->message_case) {
    case ADVISOR__V1__SESSION_REQUEST__MESSAGE_STATE_UPDATE:
        if (!on_state(s, msg->state_update, &ev))
            return;
        break;
    case ADVISOR__V1__SESSION_REQUEST__MESSAGE_ADVICE_STATUS:
        if (!on_status(s, msg->advice_status, &ev))
            return;
        break;
    case ADVISOR__V1__SESSION_REQUEST__MESSAGE_ACTION:
        if (!on_action(s, msg->action, &ev))
            return;
        break;
    case ADVISOR__V1__SESSION_REQUEST__MESSAGE_TELEMETRY:
        if (!on_telemetry(s, msg->telemetry, &ev))
            return;
        break;
    default:
        refuse(s, ADV_INVALID_ARGUMENT, "MESSAGE_UNKNOWN", "message %d carries a seq but is not a stored kind",
               (int) msg->message_case);
        return;
    }
    if (ev.type == EV_STATE_UPDATE)
        submit(s, &ev, numbered_cb);
    else
        take_off(s, &ev);
}

static bool is_small(const Advisor__V1__SessionRequest *msg)
{
    return msg->message_case == ADVISOR__V1__SESSION_REQUEST__MESSAGE_ADVICE_STATUS ||
           msg->message_case == ADVISOR__V1__SESSION_REQUEST__MESSAGE_ACTION ||
           msg->message_case == ADVISOR__V1__SESSION_REQUEST__MESSAGE_TELEMETRY;
}

static void handle(struct session *s, const Advisor__V1__SessionRequest *msg)
{
    switch (msg->message_case) {
    case ADVISOR__V1__SESSION_REQUEST__MESSAGE_HELLO:
        on_hello(s, msg->hello);
        break;
    case ADVISOR__V1__SESSION_REQUEST__MESSAGE_HEARTBEAT:
        on_heartbeat(s, msg->heartbeat);
        break;
    case ADVISOR__V1__SESSION_REQUEST__MESSAGE_PULL:
        on_pull(s, msg->pull);
        break;
    default:
        on_numbered(s, msg);
        break;
    }
}

void session_message(struct session *s, const Advisor__V1__SessionRequest *msg)
{
    if (s->state == SESSION_ENDED || s->closed)
        return;
    s->heard_mono_us = s->ops->mono_us(s->ctx);
    s->msg = msg;
    if (msg->message_case == ADVISOR__V1__SESSION_REQUEST__MESSAGE__NOT_SET) {
        refuse(s, ADV_INVALID_ARGUMENT, "MESSAGE_UNKNOWN", "a message without a known content");
        return;
    }
    if ((s->state == SESSION_NEW) != (msg->message_case == ADVISOR__V1__SESSION_REQUEST__MESSAGE_HELLO)) {
        refuse(s, ADV_INVALID_ARGUMENT, "HELLO_FIRST", s->state == SESSION_NEW ? "expected hello first" :
                                                                               "hello comes once, and first");
        return;
    }
    if (s->state == SESSION_STANDBY && msg->message_case != ADVISOR__V1__SESSION_REQUEST__MESSAGE_HEARTBEAT &&
        msg->message_case != ADVISOR__V1__SESSION_REQUEST__MESSAGE_PULL) {
        refuse(s, ADV_FAILED_PRECONDITION, "NOT_LEASE_HOLDER", "another agent of cluster %s holds the lease", s->cluster);
        return;
    }
    s->msg_waits = s->flights && !is_small(msg);
    if (!s->msg_waits)
        handle(s, msg);
}

void session_tick(struct session *s)
{
    int64_t now_us = s->ops->mono_us(s->ctx), late_us = now_us - s->ticked_mono_us - TICK_US;
    struct cluster *c;

    /* A loop that was held up, or a host that slept, has not listened either: what was said meanwhile is still to be read. */
    if (s->ticked_mono_us && late_us > TICK_US / 2)
        s->heard_mono_us += late_us;
    s->ticked_mono_us = now_us;
    if (s->focus_waits && s->state == SESSION_ACTIVE && !s->closed && (c = fleet_find_cluster(s->ops->fleet(s->ctx), s->cluster)))
        send_focus(s, c);
    if (s->state == SESSION_ENDED || s->closed || s->msg || s->flights)
        return;
    if (now_us - s->heard_mono_us > (int64_t) s->silence_timeout_ms * 1000)
        refuse(s, ADV_DEADLINE_EXCEEDED, "AGENT_SILENT", "nothing heard for %u ms", s->silence_timeout_ms);
}

static void gone_cb(void *arg, const struct event *ev, const struct adv_err *err)
{
    (void) ev;
    (void) err;
    (void) event_done(arg, NULL);
}

void session_close(struct session *s, const char *why)
{
    struct event ev;
    bool had = s->instance[0] != '\0';

    if (s->closed)
        return;
    s->closed = true;
    s->state = SESSION_ENDED;
    s->msg = NULL;
    if (had) {
        ev = base_event(s, EV_AGENT_GONE);
        ev.u.gone.instance_id = s->session_id;
        ev.u.gone.why = why;
        submit(s, &ev, gone_cb);
        return;
    }
    session_maybe_free(s);
}
