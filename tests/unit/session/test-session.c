/* SPDX-License-Identifier: Apache-2.0 */
/* The session state machine against a fleet, with the turn played by hand: events wait until run(), reads until
 * run_reads(), and all that is sent is kept. */

#include <criterion/criterion.h>
#include <stdio.h>
#include <utlist.h>

#include "controlplane/session/session.h"

#define SENT_MAX   64
#define EVENTS_MAX 32

struct peer {
    struct session *session;
    char id[16];
    bool next, failed;
    struct adv_err why;
    bool ready; /* next() came and no message is under way */
    bool has_more; /* the agent sends without waiting: next() finds the next message there */
    unsigned nexts, reads;
    size_t sent_at_next;
    struct submitted {
        struct event ev;
        session_event_cb cb;
        void *arg;
    } events[EVENTS_MAX]; /* in order */
    size_t n_events;
    bool hold_events;
    struct {
        session_read_cb cb;
        void *arg;
    } read;
    bool hold_reads, in_read;
    Advisor__V1__SessionResponse *sent[SENT_MAX];
    size_t n_sent;
};

static struct fleet *fleet;
static int64_t now_us;
static uint64_t revision;
static bool store_away;

/* ---- the world -------------------------------------------------------------------------------------------------- */

static int apply(struct event *ev, struct adv_err *err)
{
    struct intents in;
    int r;

    intents_init(&in);
    ev->now_us = ev->mono_us = now_us;
    r = fleet_apply(fleet, ev, &in, err);
    cr_assert_not(in.oom);
    for (size_t i = 0; i < in.n; i++) {
        revision++;
        if (in.v[i].kind == RESOURCE_ADVICE) {
            struct advice *ad = in.v[i].object;
            ad->revision = revision;
            if (ad->open && !ad->order_rev)
                ad->order_rev = revision;
        }
    }
    intents_done(&in);
    return r;
}

static bool is_small(const struct event *ev)
{
    return ev->type == EV_ADVICE_STATUS || ev->type == EV_ACTION || ev->type == EV_TELEMETRY;
}

static void op_submit(void *ctx, const struct event *ev, session_event_cb cb, void *arg)
{
    struct peer *p = ctx;

    cr_assert_lt(p->n_events, EVENTS_MAX);
    for (size_t i = 0; i < p->n_events; i++)
        cr_assert(is_small(&p->events[i].ev) && (is_small(ev) || ev->type == EV_AGENT_GONE), "events %d and %d at one time",
                  (int) p->events[i].ev.type, (int) ev->type);
    p->events[p->n_events++] = (struct submitted) { *ev, cb, arg };
}

/* The first of what was submitted is the caller's. */
static struct submitted take(struct peer *p)
{
    struct submitted first = p->events[0];

    cr_assert_gt(p->n_events, 0);
    memmove(&p->events[0], &p->events[1], --p->n_events * sizeof(p->events[0]));
    return first;
}

static int commit(struct event *ev, const struct adv_err *refused, struct adv_err *err)
{
    if (store_away)
        return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_UNAVAILABLE", "away");
    if (refused->code && ev->type != EV_AGENT_GONE)
        return adv_err_set_reason(err, refused->code, refused->reason, "what came before it was refused");
    return apply(ev, err);
}

/* Turns: each applies what waits and says that it is durable, or not. */
static void run(struct peer *p)
{
    struct adv_err refused = { 0 };

    while (p->n_events && !p->hold_events) {
        for (size_t n = p->n_events; n; n--) {
            struct submitted e = take(p);
            struct adv_err err = { 0 };
            int r = commit(&e.ev, &refused, &err);
            if (r < 0)
                refused = err;
            e.cb(e.arg, &e.ev, r < 0 ? &err : NULL);
        }
        if (p->session)
            session_flush(p->session);
    }
}

static void read_now(struct peer *p)
{
    struct adv_err err = { 0 };
    session_read_cb cb = p->read.cb;

    if (!cb)
        return;
    p->read.cb = NULL;
    if (store_away)
        (void) adv_err_set_reason(&err, ADV_UNAVAILABLE, "STORE_UNAVAILABLE", "away");
    p->in_read = true;
    cb(p->read.arg, store_away ? &err : NULL);
    p->in_read = false;
}

static void op_read(void *ctx, session_read_cb cb, void *arg)
{
    struct peer *p = ctx;

    cr_assert_null(p->read.cb);
    p->reads++;
    p->read.cb = cb;
    p->read.arg = arg;
    if (!p->hold_reads)
        read_now(p);
}

static struct fleet *op_fleet(void *ctx)
{
    (void) ctx;
    return fleet;
}

static int64_t op_mono_us(void *ctx)
{
    (void) ctx;
    return now_us;
}

static void op_send(void *ctx, const Advisor__V1__SessionResponse *msg)
{
    struct peer *p = ctx;
    size_t n = advisor__v1__session_response__get_packed_size(msg);
    uint8_t *bytes = malloc(n + 1);

    cr_assert_lt(p->n_sent, SENT_MAX);
    cr_assert_eq(advisor__v1__session_response__pack(msg, bytes), n);
    p->sent[p->n_sent] = advisor__v1__session_response__unpack(NULL, n, bytes);
    cr_assert(p->sent[p->n_sent++]);
    free(bytes);
}

static bool op_next(void *ctx)
{
    struct peer *p = ctx;

    cr_assert_not(p->ready, "next() twice");
    p->ready = true;
    p->nexts++;
    p->sent_at_next = p->n_sent;
    return p->has_more;
}

static void op_fail(void *ctx, const struct adv_err *err)
{
    struct peer *p = ctx;

    cr_assert_not(p->failed, "failed twice");
    p->failed = true;
    p->why = *err;
}

static const struct session_ops ops = { op_submit, op_read, op_fleet, op_mono_us, op_mono_us, op_send, op_next, op_fail };

static void setup(void)
{
    struct fleet_config cfg = { .lease_us = 5000000, .log_detection = true };
    struct event ev = { .type = EV_CLUSTER_CREATE, .cluster = "a" };

    policy_defaults(&cfg.policy);
    cfg.policy.log_settle_us = 1;
    now_us = 1000000LL * 1000000;
    fleet = fleet_new(&cfg);
    fleet_load_done(fleet, true, 0, 0);
    cr_assert_eq(apply(&ev, NULL), 0);
    ev = (struct event) { .type = EV_SET_MODE, .cluster = "a" };
    ev.u.set_mode.mode = MODE_ACT;
    cr_assert_eq(apply(&ev, NULL), 0);
}

static void teardown(void)
{
    (void) fleet_free(fleet);
}

TestSuite(session, .init = setup, .fini = teardown, .timeout = 60);

static struct cluster *cluster(void)
{
    return fleet->clusters;
}

static void open_peer(struct peer *p, const char *id)
{
    struct session_config cfg = { .session_id = id, .store_uuid = "u", .peer_cluster = "a", .principal = "agent:a",
                                  .heartbeat_interval_ms = 1000, .silence_timeout_ms = 10000 };

    *p = (struct peer) { .ready = true };
    p->session = session_new(&cfg, &ops, p);
    cr_assert(p->session);
}

static void drop_sent(struct peer *p)
{
    for (size_t i = 0; i < p->n_sent; i++)
        advisor__v1__session_response__free_unpacked(p->sent[i], NULL);
    p->n_sent = 0;
}

/* The session is gone with its last callback. */
static void lose(struct peer *p)
{
    session_close(p->session, "lost");
    p->session = NULL;
}

static void close_peer(struct peer *p)
{
    p->hold_events = false;
    lose(p);
    read_now(p);
    run(p);
    drop_sent(p);
}

static const Advisor__V1__SessionResponse *last(const struct peer *p, Advisor__V1__SessionResponse__MessageCase kind)
{
    for (size_t i = p->n_sent; i > 0; i--)
        if (p->sent[i - 1]->message_case == kind)
            return p->sent[i - 1];
    return NULL;
}
#define LAST(p, KIND) last(p, ADVISOR__V1__SESSION_RESPONSE__MESSAGE_##KIND)

/* ---- messages of an agent --------------------------------------------------------------------------------------- */

static void say(struct peer *p, const Advisor__V1__SessionRequest *m)
{
    p->ready = false;
    session_message(p->session, m);
    run(p);
}

static Advisor__V1__Epoch *seen_epoch; /* Hello's highest */
static Advisor__V1__Limits *agent_limits;

static const char *hello_agent_version, *hello_scheduler; /* of the next hellos */
static bool hello_forgets;                                /* its journal does not last */
static Advisor__V1__Mode hello_ceiling = ADVISOR__V1__MODE__MODE_ACT;

static void say_hello_as(struct peer *p, const char *cl, const char *instance, const char *journal, const char *version)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__Hello h = ADVISOR__V1__HELLO__INIT;
    Advisor__V1__Ceiling c = ADVISOR__V1__CEILING__INIT;
    char *versions[] = { (char *) (uintptr_t) version };

    c.mode = hello_ceiling;
    if (hello_agent_version)
        h.agent_version = (char *) (uintptr_t) hello_agent_version;
    if (hello_scheduler)
        h.scheduler = (char *) (uintptr_t) hello_scheduler;
    h.cluster = (char *) (uintptr_t) cl;
    h.instance_id = (char *) (uintptr_t) instance;
    h.journal_id = (char *) (uintptr_t) journal;
    h.journal_persistent = !hello_forgets;
    h.api_versions = versions;
    h.n_api_versions = 1;
    h.ceiling = &c;
    h.highest_epoch = seen_epoch;
    h.limits = agent_limits;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_HELLO;
    m.hello = &h;
    say(p, &m);
}

static void say_hello(struct peer *p, const char *journal)
{
    say_hello_as(p, "a", "i1", journal, "advisor.v1");
}

static int64_t agent_wall_ms; /* as heartbeats say it; 0: not at all */
static uint64_t blind_ms;      /* the same */

static void say_heartbeat(struct peer *p, uint64_t id, bool holds)
{
    static Advisor__V1__SessionRequest m; /* a held read looks at it again */
    static Advisor__V1__Heartbeat hb;
    static Advisor__V1__Epoch e;

    advisor__v1__session_request__init(&m);
    advisor__v1__heartbeat__init(&hb);
    advisor__v1__epoch__init(&e);
    hb.id = id;
    hb.epoch = holds ? &e : NULL;
    hb.agent_wall_ms = agent_wall_ms;
    hb.observation_age_ms = blind_ms;
    hb.cluster_mode = ADVISOR__V1__MODE__MODE_ACT;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_HEARTBEAT;
    m.heartbeat = &hb;
    say(p, &m);
}

static void say_pull(struct peer *p, uint64_t id)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__Pull q = ADVISOR__V1__PULL__INIT;

    q.id = id;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_PULL;
    m.pull = &q;
    say(p, &m);
}

/* @n jobs from id @first on, in one state. */
static void say_jobs(struct peer *p, uint64_t seq, unsigned first, unsigned n, Advisor__V1__JobState st, bool full)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__StateUpdate u = ADVISOR__V1__STATE_UPDATE__INIT;
    Advisor__V1__JobObservation *jobs = calloc(n + 1, sizeof(*jobs)), **v = calloc(n + 1, sizeof(*v));
    char (*ids)[16] = calloc(n + 1, sizeof(*ids));
    char nodes[] = "n[1-2]", raw[] = "X", comment[] = "{\"advisor\":{}}";

    u.digest = full ? 0 : cluster_digest(cluster());
    for (unsigned i = 0; i < n; i++) {
        struct job *old;
        advisor__v1__job_observation__init(&jobs[i]);
        (void) snprintf(ids[i], sizeof(ids[i]), "%u", first + i);
        old = fleet_find_job(cluster(), ids[i]);
        jobs[i].job_id = ids[i];
        jobs[i].state = st;
        jobs[i].state_raw = raw;
        jobs[i].batch = jobs[i].requeueable = jobs[i].detail_known = true;
        jobs[i].submit_unix = 5;
        jobs[i].nodes = nodes;
        jobs[i].end_unix = st == ADVISOR__V1__JOB_STATE__JOB_STATE_FAILED ? now_us / 1000000 : 0;
        jobs[i].comment.data = (uint8_t *) comment;
        jobs[i].comment.len = sizeof(comment) - 1;
        jobs[i].hash = (uint64_t) (first + i) * 1000 + (uint64_t) st;
        if (!full && old && old->present)
            u.digest ^= old->hash;
        u.digest ^= jobs[i].hash;
        v[i] = &jobs[i];
    }
    u.full_begin = u.full_end = full;
    u.jobs = v;
    u.n_jobs = n;
    m.seq = seq;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_STATE_UPDATE;
    m.state_update = &u;
    say(p, &m);
    free(jobs);
    free(v);
    free(ids);
}

static void finding(unsigned job, const char *node, uint64_t offset)
{
    char id[16];
    const char *nodes[] = { node };
    struct event ev = { .type = EV_FINDING, .cluster = "a" };

    (void) snprintf(id, sizeof(id), "%u", job);
    ev.u.finding.job_id = id;
    ev.u.finding.kind = FINDING_SIGNATURE;
    ev.u.finding.anomaly = ANOMALY_CRASH;
    ev.u.finding.rule = "ecc";
    ev.u.finding.fault_class = "gpu_hardware";
    ev.u.finding.retryable = RETRYABLE_YES;
    ev.u.finding.precedence = 90;
    ev.u.finding.terminal = true;
    ev.u.finding.blame = BLAME_NODE;
    ev.u.finding.nodes = nodes;
    ev.u.finding.n_nodes = 1;
    ev.u.finding.offset = offset;
    cr_assert_eq(apply(&ev, NULL), 0);
}

static void tick(void)
{
    int64_t d;

    now_us += 1000;
    while ((d = fleet_next_deadline(fleet)) && d <= now_us) {
        struct event ev = { .type = EV_TICK };
        cr_assert_eq(apply(&ev, NULL), 0);
    }
}

/* An active session whose cluster has @n jobs that failed on a bad node: that many orders wait. */
static void with_orders(struct peer *p, unsigned n)
{
    open_peer(p, "s1");
    say_hello(p, "j1");
    say_jobs(p, 1, 100, n, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
    for (unsigned i = 0; i < n; i++)
        finding(100 + i, "n1", 5);
    say_jobs(p, 2, 100, n, ADVISOR__V1__JOB_STATE__JOB_STATE_FAILED, false);
    tick();
    cr_assert_not(p->failed, "%s", p->why.msg);
}

/* ---- every state and message ------------------------------------------------------------------------------------ */

enum in { IN_NEW, IN_ACTIVE, IN_STANDBY, IN_ENDED };
enum msg { MSG_HELLO, MSG_HEARTBEAT, MSG_PULL, MSG_UPDATE, MSG_NOTHING };

static const struct {
    enum in in;
    enum msg msg;
    int code; /* the call ends with it; 0: goes on */
    const char *reason;
    Advisor__V1__SessionResponse__MessageCase sent; /* 0: nothing */
} table[] = {
#define SENT(kind) ADVISOR__V1__SESSION_RESPONSE__MESSAGE_##kind
    { IN_NEW, MSG_HELLO, 0, NULL, SENT(WELCOME) },
    { IN_NEW, MSG_HEARTBEAT, ADV_INVALID_ARGUMENT, "HELLO_FIRST", 0 },
    { IN_NEW, MSG_PULL, ADV_INVALID_ARGUMENT, "HELLO_FIRST", 0 },
    { IN_NEW, MSG_UPDATE, ADV_INVALID_ARGUMENT, "HELLO_FIRST", 0 },
    { IN_NEW, MSG_NOTHING, ADV_INVALID_ARGUMENT, "MESSAGE_UNKNOWN", 0 },
    { IN_ACTIVE, MSG_HELLO, ADV_INVALID_ARGUMENT, "HELLO_FIRST", 0 },
    { IN_ACTIVE, MSG_HEARTBEAT, 0, NULL, SENT(HEARTBEAT_ACK) },
    { IN_ACTIVE, MSG_PULL, 0, NULL, 0 }, /* nothing is known of the cluster yet */
    { IN_ACTIVE, MSG_UPDATE, 0, NULL, SENT(ACK) },
    { IN_ACTIVE, MSG_NOTHING, ADV_INVALID_ARGUMENT, "MESSAGE_UNKNOWN", 0 },
    { IN_STANDBY, MSG_HELLO, ADV_INVALID_ARGUMENT, "HELLO_FIRST", 0 },
    { IN_STANDBY, MSG_HEARTBEAT, 0, NULL, SENT(HEARTBEAT_ACK) },
    { IN_STANDBY, MSG_PULL, 0, NULL, 0 },
    { IN_STANDBY, MSG_UPDATE, ADV_FAILED_PRECONDITION, "NOT_LEASE_HOLDER", 0 },
    { IN_STANDBY, MSG_NOTHING, ADV_INVALID_ARGUMENT, "MESSAGE_UNKNOWN", 0 },
    /* what comes after the end is not looked at */
    { IN_ENDED, MSG_HELLO, 0, NULL, 0 },
    { IN_ENDED, MSG_HEARTBEAT, 0, NULL, 0 },
    { IN_ENDED, MSG_PULL, 0, NULL, 0 },
    { IN_ENDED, MSG_UPDATE, 0, NULL, 0 },
    { IN_ENDED, MSG_NOTHING, 0, NULL, 0 },
#undef SENT
};

Test(session, states_and_messages)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(table); i++) {
        Advisor__V1__SessionRequest nothing = ADVISOR__V1__SESSION_REQUEST__INIT;
        struct peer holder, p;
        teardown();
        setup();
        if (table[i].in == IN_STANDBY) {
            open_peer(&holder, "s0");
            say_hello(&holder, "j0");
        }
        open_peer(&p, "s1");
        if (table[i].in == IN_ACTIVE || table[i].in == IN_STANDBY)
            say_hello(&p, "j1");
        cr_assert_eq(session_active(p.session), table[i].in == IN_ACTIVE);
        if (table[i].in == IN_ENDED) {
            say(&p, &nothing);
            cr_assert(p.failed);
            p.failed = false;
        }
        drop_sent(&p);
        switch (table[i].msg) {
        case MSG_HELLO: say_hello(&p, "j1"); break;
        case MSG_HEARTBEAT: say_heartbeat(&p, 1, table[i].in == IN_ACTIVE); break;
        case MSG_PULL: say_pull(&p, 1); break;
        case MSG_UPDATE: say_jobs(&p, 1, 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true); break;
        case MSG_NOTHING: say(&p, &nothing); break;
        }
        cr_assert_eq(p.failed, table[i].code != 0, "row %zu: %s", i, p.failed ? p.why.msg : "goes on");
        if (p.failed) {
            cr_assert_eq((int) p.why.code, table[i].code, "row %zu: %s", i, p.why.msg);
            cr_assert_str_eq(p.why.reason, table[i].reason, "row %zu", i);
        }
        cr_assert_eq(p.ready, !p.failed && table[i].in != IN_ENDED, "row %zu: next", i);
        if (table[i].sent)
            cr_assert(last(&p, table[i].sent), "row %zu", i);
        else
            cr_assert_eq(p.n_sent, 0, "row %zu", i);
        close_peer(&p);
        if (table[i].in == IN_STANDBY)
            close_peer(&holder);
    }
}

Test(session, hello_that_is_refused)
{
    static const struct {
        const char *cluster, *instance, *journal, *version;
        int code;
    } t[] = {
        { "a", "i1", "j1", "advisor.v9", ADV_FAILED_PRECONDITION },
        { "b", "i1", "j1", "advisor.v1", ADV_PERMISSION_DENIED },
        { "", "i1", "j1", "advisor.v1", ADV_PERMISSION_DENIED },
        { "a", "", "j1", "advisor.v1", ADV_INVALID_ARGUMENT },
        { "a", "i1", "", "advisor.v1", ADV_INVALID_ARGUMENT },
        { "a", "i1", "j2345678901234567890123456789012345678901234567890123456789012345", "advisor.v1", ADV_INVALID_ARGUMENT },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct peer p;
        open_peer(&p, "s1");
        say_hello_as(&p, t[i].cluster, t[i].instance, t[i].journal, t[i].version);
        cr_assert(p.failed && (int) p.why.code == t[i].code, "row %zu: %s", i, p.why.msg);
        cr_assert_null(session_cluster(p.session));
        cr_assert_null(cluster()->holder_instance);
        close_peer(&p);
    }
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

Test(session, numbers_have_no_gaps)
{
    static const uint64_t bad[] = { 0, 1, 3, 4, UINT64_MAX };

    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++) {
        struct peer p;
        open_peer(&p, "s1");
        say_hello(&p, "j1");
        say_jobs(&p, 1, 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
        cr_assert_eq(LAST(&p, ACK)->ack->durable_through_seq, 1);
        say_jobs(&p, bad[i], 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
        cr_assert(p.failed && p.why.code == ADV_OUT_OF_RANGE, "%s", p.why.msg);
        cr_assert_eq(LAST(&p, ACK)->ack->durable_through_seq, 1);
        close_peer(&p);
    }
}

/* An acknowledgement comes after the commit, and not at all when it failed. */
Test(session, acknowledged_is_durable)
{
    struct peer p;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    store_away = true;
    say_jobs(&p, 1, 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
    store_away = false;
    cr_assert_null(LAST(&p, ACK));
    cr_assert(p.failed && p.why.code == ADV_UNAVAILABLE);
    cr_assert_not(p.ready);
    close_peer(&p);
}

/* ---- several at one time ---------------------------------------------------------------------------------------- */

/* A new status of the first order; the message is gone when this returns. */
static void say_status(struct peer *p, uint64_t seq, const char *advice, Advisor__V1__Disposition d, const char *detail)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__AdviceStatusReport r = ADVISOR__V1__ADVICE_STATUS_REPORT__INIT;
    Advisor__V1__Epoch e = ADVISOR__V1__EPOCH__INIT;
    char *name = strdup(advice), *text = strdup(detail);

    e.term = cluster()->epoch.term;
    e.counter = cluster()->epoch.counter;
    r.advice = name;
    r.detail = text;
    r.observed_generation = 1;
    r.epoch = &e;
    r.disposition = d;
    m.seq = seq;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_ADVICE_STATUS;
    m.advice_status = &r;
    say(p, &m);
    memset(name, 'x', strlen(name));
    memset(text, 'x', strlen(text));
    free(name);
    free(text);
}

static void say_telemetry(struct peer *p, uint64_t seq, size_t bytes)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__TelemetryReport r = ADVISOR__V1__TELEMETRY_REPORT__INIT;
    Advisor__V1__AttemptRef ref = ADVISOR__V1__ATTEMPT_REF__INIT;
    char *job = calloc(bytes + 1, 1);

    memset(job, '1', bytes);
    ref.job_id = job;
    r.attempt = &ref;
    r.state = ADVISOR__V1__TELEMETRY_STATE__TELEMETRY_STATE_LOST;
    m.seq = seq;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_TELEMETRY;
    m.telemetry = &r;
    say(p, &m);
    free(job);
}

static unsigned count(const struct peer *p, Advisor__V1__SessionResponse__MessageCase kind)
{
    unsigned n = 0;

    for (size_t i = 0; i < p->n_sent; i++)
        n += p->sent[i]->message_case == kind;
    return n;
}

static const char *first_advice(char name[RESOURCE_NAME_MAX])
{
    return advice_resource_name(cluster()->open_advice->attempt, name);
}

/* The agent does not wait for its Acks: what it says next is there when it is asked for. */
static void sends_ahead(struct peer *p)
{
    p->has_more = true;
    say_heartbeat(p, 1, true);
    drop_sent(p);
}

#define PENDING   ADVISOR__V1__DISPOSITION__DISPOSITION_PENDING
#define ABANDONED ADVISOR__V1__DISPOSITION__DISPOSITION_ABANDONED

Test(session, small_messages_share_a_turn_and_an_ack)
{
    char name[RESOURCE_NAME_MAX], detail[16];
    const struct advice *ad;
    uint64_t audit;
    struct peer p;

    with_orders(&p, 1);
    ad = cluster()->open_advice;
    audit = cluster()->audit_seq;
    sends_ahead(&p);
    p.hold_events = true;
    for (unsigned i = 0; i < 16; i++) {
        cr_assert(p.ready, "%u", i);
        (void) snprintf(detail, sizeof(detail), "look %u", i);
        say_status(&p, 3 + i, first_advice(name), PENDING, detail);
    }
    cr_assert_not(p.ready, "more than a session may have under way");
    cr_assert_eq(p.n_events, 16);
    cr_assert_eq(p.n_sent, 0, "acknowledged before it was stored");
    p.hold_events = false;
    run(&p);
    cr_assert(p.ready);
    cr_assert_eq(count(&p, ADVISOR__V1__SESSION_RESPONSE__MESSAGE_ACK), 1);
    cr_assert_eq(LAST(&p, ACK)->ack->durable_through_seq, 18);
    cr_assert_str_eq(ad->status_detail, "look 15");
    cr_assert_eq(cluster()->audit_seq, audit + 16, "each has its event");
    say_status(&p, 19, first_advice(name), PENDING, "look 16");
    cr_assert_eq(LAST(&p, ACK)->ack->durable_through_seq, 19);
    close_peer(&p);
}

Test(session, small_messages_are_bounded_by_bytes)
{
    struct peer p;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    sends_ahead(&p);
    p.hold_events = true;
    say_telemetry(&p, 1, 10000);
    cr_assert(p.ready);
    say_telemetry(&p, 2, 10000);
    cr_assert_not(p.ready);
    p.hold_events = false;
    run(&p);
    cr_assert(p.ready);
    cr_assert_eq(LAST(&p, ACK)->ack->durable_through_seq, 2);
    p.hold_events = true;
    say_telemetry(&p, 3, 100000); /* one alone is taken whatever it has */
    cr_assert_not(p.ready);
    p.hold_events = false;
    run(&p);
    cr_assert(p.ready);
    close_peer(&p);
}

/* Whatever else comes is handled when all before it is stored, and what was stored is acknowledged first. */
Test(session, others_wait_for_small_messages)
{
    char name[RESOURCE_NAME_MAX];
    unsigned reads;
    struct peer p;

    with_orders(&p, 1);
    sends_ahead(&p);
    p.hold_events = true;
    say_status(&p, 3, first_advice(name), PENDING, "one");
    say_status(&p, 4, first_advice(name), PENDING, "two");
    reads = p.reads;
    say_heartbeat(&p, 2, true);
    cr_assert_not(p.ready);
    cr_assert_eq(p.reads, reads);
    now_us += 60 * 1000000LL; /* who waits for the store is not silent */
    session_tick(p.session);
    session_tick(p.session);
    cr_assert_not(p.failed);
    now_us -= 60 * 1000000LL;
    p.hold_events = false;
    run(&p);
    cr_assert(p.ready);
    cr_assert_eq(p.reads, reads + 1);
    cr_assert_eq(p.n_sent, 2);
    cr_assert_eq(p.sent[0]->message_case, ADVISOR__V1__SESSION_RESPONSE__MESSAGE_ACK);
    cr_assert_eq(p.sent[0]->ack->durable_through_seq, 4);
    cr_assert_eq(p.sent[1]->message_case, ADVISOR__V1__SESSION_RESPONSE__MESSAGE_HEARTBEAT_ACK);

    p.hold_events = true;
    say_status(&p, 5, first_advice(name), PENDING, "three");
    say_jobs(&p, 6, 200, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, false);
    cr_assert_eq(p.n_events, 1, "an update beside a status");
    cr_assert_not(p.ready);
    close_peer(&p);
}

Test(session, after_a_refused_one_nothing_is_acknowledged)
{
    char name[RESOURCE_NAME_MAX];
    const struct advice *ad;
    struct peer p;

    with_orders(&p, 1);
    ad = cluster()->open_advice;
    sends_ahead(&p);
    p.hold_events = true;
    say_status(&p, 3, first_advice(name), PENDING, "good");
    say_status(&p, 4, first_advice(name), 99, "bad");
    say_status(&p, 5, first_advice(name), ABANDONED, "too late");
    p.hold_events = false;
    run(&p);
    cr_assert(p.failed);
    cr_assert_str_eq(p.why.reason, "STATUS_MALFORMED");
    cr_assert_eq(p.n_sent, 0);
    cr_assert_str_eq(ad->status_detail, "good");
    cr_assert_eq(ad->disposition, DISPOSITION_PENDING);
    close_peer(&p);
}

Test(session, a_store_that_fails_acknowledges_none_of_several)
{
    char name[RESOURCE_NAME_MAX];
    struct peer p;

    with_orders(&p, 1);
    sends_ahead(&p);
    p.hold_events = true;
    for (uint64_t seq = 3; seq < 8; seq++)
        say_status(&p, seq, first_advice(name), PENDING, seq % 2 ? "odd" : "even");
    store_away = true;
    p.hold_events = false;
    run(&p);
    store_away = false;
    cr_assert(p.failed && p.why.code == ADV_UNAVAILABLE);
    cr_assert_eq(p.n_sent, 0);
    close_peer(&p);
}

/* What came before the connection was lost takes effect, the goodbye after it; nobody is told (the leak check sees the rest). */
Test(session, close_with_several_outstanding)
{
    char name[RESOURCE_NAME_MAX];
    const struct advice *ad;
    struct peer p;

    with_orders(&p, 1);
    ad = cluster()->open_advice;
    sends_ahead(&p);
    p.hold_events = true;
    say_status(&p, 3, first_advice(name), PENDING, "one");
    say_status(&p, 4, first_advice(name), ABANDONED, "two");
    lose(&p);
    cr_assert_eq(p.n_events, 3);
    cr_assert_eq(p.events[2].ev.type, EV_AGENT_GONE);
    for (size_t i = 0; i < 3; i++) {
        struct submitted e = take(&p);
        cr_assert_eq(apply(&e.ev, NULL), 0);
        e.cb(e.arg, &e.ev, NULL);
    }
    cr_assert_eq(p.n_sent, 0);
    cr_assert_eq(ad->disposition, DISPOSITION_ABANDONED);
    cr_assert_eq(cluster()->agent_state, AGENT_UNREACHABLE);
}

/* To ask for what is not there yet would cost a write: an agent that waits for each Ack is asked with it. */
Test(session, who_waits_for_acks_is_asked_after_them)
{
    char name[RESOURCE_NAME_MAX], detail[16];
    struct peer p;

    with_orders(&p, 1);
    for (unsigned i = 0; i < 3; i++) {
        drop_sent(&p);
        p.hold_events = true;
        (void) snprintf(detail, sizeof(detail), "look %u", i);
        say_status(&p, 3 + i, first_advice(name), PENDING, detail);
        cr_assert_not(p.ready, "%u: asked for the next before this one is stored", i);
        p.hold_events = false;
        run(&p);
        cr_assert(p.ready);
        cr_assert_eq(p.sent_at_next, 1, "asked before it was told");
        cr_assert_eq(LAST(&p, ACK)->ack->durable_through_seq, 3 + i);
    }
    p.has_more = true; /* now it sends ahead */
    say_status(&p, 6, first_advice(name), PENDING, "one");
    p.hold_events = true;
    say_status(&p, 7, first_advice(name), PENDING, "two");
    cr_assert(p.ready);
    p.has_more = false; /* and now no more */
    p.hold_events = false;
    run(&p);
    p.hold_events = true;
    say_status(&p, 8, first_advice(name), PENDING, "three");
    cr_assert_not(p.ready);
    close_peer(&p);
}

Test(session, heartbeats_rise)
{
    static const uint64_t bad[] = { 0, 4, 5 };

    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++) {
        struct peer p;
        open_peer(&p, "s1");
        say_hello(&p, "j1");
        say_heartbeat(&p, 3, true);
        say_heartbeat(&p, 5, true);
        cr_assert_eq(LAST(&p, HEARTBEAT_ACK)->heartbeat_ack->id, 5);
        cr_assert_not(p.failed);
        say_heartbeat(&p, bad[i], true);
        cr_assert(p.failed);
        cr_assert_str_eq(p.why.reason, "HEARTBEAT_OUT_OF_ORDER");
        close_peer(&p);
    }
}

Test(session, a_clock_that_is_off_is_told_once_and_changes_no_lease)
{
    static const struct {
        int64_t ahead_s, told_s;
    } clocks[] = { { 0, 0 }, { 29, 0 }, { -29, 0 }, { 3600, 3600 }, { 3610, 3600 }, { 36000, 36000 }, { -3600, -3600 },
                  { -36000, -36000 }, { 10, 0 } };
    struct peer p;
    uint64_t id = 0;
    int64_t left, changed;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    say_heartbeat(&p, ++id, true);
    cr_assert_eq(cluster()->agent_skew_s, 0, "an agent that does not tell its clock");
    left = cluster()->lease_until_mono_us - now_us;
    for (size_t i = 0; i < ADV_ARRAY_LEN(clocks); i++) {
        agent_wall_ms = now_us / 1000 + clocks[i].ahead_s * 1000;
        say_heartbeat(&p, ++id, true);
        cr_assert_not(p.failed);
        cr_assert_eq(cluster()->agent_skew_s, clocks[i].told_s, "%zu: %lld", i, (long long) cluster()->agent_skew_s);
        cr_assert_eq(cluster()->lease_until_mono_us - now_us, left);
        cr_assert(LAST(&p, HEARTBEAT_ACK)->heartbeat_ack->grant);
        changed = (int64_t) cluster()->audit_seq;
        say_heartbeat(&p, ++id, true);
        cr_assert_eq(changed, (int64_t) cluster()->audit_seq, "told again");
    }
    agent_wall_ms = INT64_MIN; /* no clock, but what a peer may send */
    say_heartbeat(&p, ++id, true);
    agent_wall_ms = INT64_MAX;
    say_heartbeat(&p, ++id, true);
    cr_assert_not(p.failed);
    agent_wall_ms = 0;
    close_peer(&p);
}

Test(session, a_wrong_digest_asks_for_everything)
{
    struct peer p;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    say_jobs(&p, 1, 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
    cr_assert_null(LAST(&p, RESYNC));
    cluster()->digest ^= 1;
    say_jobs(&p, 2, 1, 0, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, false);
    cr_assert_null(LAST(&p, RESYNC), "the helper tells our digest back");
    cluster()->digest ^= 2;
    {
        Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
        Advisor__V1__StateUpdate u = ADVISOR__V1__STATE_UPDATE__INIT;
        u.digest = 12345;
        m.seq = 3;
        m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_STATE_UPDATE;
        m.state_update = &u;
        say(&p, &m);
    }
    cr_assert(LAST(&p, RESYNC));
    cr_assert_eq(cluster()->agent_state, AGENT_RESYNCING);
    close_peer(&p);
}

/* ---- the lease -------------------------------------------------------------------------------------------------- */

Test(session, the_lease_grows_only_inside_a_read)
{
    struct peer p;
    int64_t until;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    cr_assert_eq(LAST(&p, WELCOME)->welcome->grant->lease_ms, 5000);
    until = cluster()->lease_until_mono_us;
    now_us += 1000000;
    p.hold_reads = true;
    say_heartbeat(&p, 1, true);
    cr_assert_eq(cluster()->lease_until_mono_us, until, "the read has not come");
    cr_assert_null(LAST(&p, HEARTBEAT_ACK));
    read_now(&p);
    run(&p);
    cr_assert_eq(cluster()->lease_until_mono_us, now_us + 5000000);
    cr_assert(LAST(&p, HEARTBEAT_ACK)->heartbeat_ack->grant);
    /* the store is away: no more */
    until = cluster()->lease_until_mono_us;
    now_us += 1000000;
    drop_sent(&p);
    store_away = true;
    say_heartbeat(&p, 2, true);
    read_now(&p);
    store_away = false;
    cr_assert_eq(cluster()->lease_until_mono_us, until);
    cr_assert_eq(p.n_sent, 0);
    cr_assert(p.failed && p.why.code == ADV_UNAVAILABLE);
    close_peer(&p);
}

Test(session, a_standby_waits_for_both_lease_and_silence)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    cr_assert_null(LAST(&b, WELCOME)->welcome->grant);
    cr_assert_str_eq(LAST(&b, WELCOME)->welcome->lease_holder, "j1");
    cr_assert_not(session_active(b.session));
    cr_assert_str_eq(session_cluster(b.session), "a");
    say_heartbeat(&b, 1, false);
    cr_assert_null(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant);
    now_us += 6000000; /* the lease ran out, but its holder is still connected */
    say_heartbeat(&b, 2, false);
    cr_assert_null(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant);
    close_peer(&a);
    say_heartbeat(&b, 3, false);
    cr_assert(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant);
    cr_assert(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant->settle, "another acted before");
    cr_assert(LAST(&b, RESYNC));
    cr_assert(session_active(b.session));
    cr_assert_eq(cluster()->agent_state, AGENT_RESYNCING);
    close_peer(&b);
}

/* What is known of the agent is what the new holder said, not what the one before it did. */
Test(session, a_standby_takes_the_lease_with_its_own_facts)
{
    struct peer a, b;

    hello_agent_version = "1.0";
    hello_scheduler = "slurm 22.05";
    open_peer(&a, "s1");
    say_hello(&a, "j1");
    cr_assert(cluster()->journal_persistent);
    cluster()->mode_effective_us = 1; /* it obeyed */
    hello_agent_version = "1.1";
    hello_scheduler = "slurm 24.05";
    hello_forgets = true;
    hello_ceiling = ADVISOR__V1__MODE__MODE_APPROVE;
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    cr_assert_str_eq(cluster()->agent_version, "1.0", "a standby is not the cluster's agent");
    close_peer(&a);
    now_us += 6000000;
    say_heartbeat(&b, 1, false);
    cr_assert(session_active(b.session));
    cr_assert_str_eq(cluster()->agent_version, "1.1");
    cr_assert_str_eq(cluster()->scheduler, "slurm 24.05");
    cr_assert_not(cluster()->journal_persistent);
    cr_assert_eq(cluster()->ceiling, MODE_APPROVE);
    cr_assert_eq(cluster()->mode_effective_us, 0);
    close_peer(&b);
}

/* One more than it, and it would begin at 0 again. */
Test(session, epochs_that_no_store_ever_granted)
{
    Advisor__V1__Epoch e = ADVISOR__V1__EPOCH__INIT;
    struct epoch before = cluster()->epoch;
    struct peer p;

    seen_epoch = &e;
    for (int i = 0; i < 2; i++) {
        e.term = i ? 1 : UINT64_MAX;
        e.counter = i ? UINT64_MAX : 1;
        open_peer(&p, "s1");
        say_hello(&p, "j1");
        cr_assert(p.failed);
        cr_assert_eq(p.why.code, ADV_INVALID_ARGUMENT);
        cr_assert_str_eq(p.why.reason, "HELLO_MALFORMED");
        cr_assert_eq(epoch_cmp(cluster()->epoch, before), 0);
        cr_assert_null(cluster()->epoch_warning);
        close_peer(&p);
    }
    seen_epoch = NULL;
}

Test(session, a_standby_does_not_take_a_running_lease)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    close_peer(&a); /* gone, but its agent may act until the lease ends */
    now_us += 4900000;
    say_heartbeat(&b, 1, false);
    cr_assert_not(session_active(b.session));
    now_us += 200000;
    say_heartbeat(&b, 2, false);
    cr_assert(session_active(b.session));
    close_peer(&b);
}

/* The control plane is restarted with a lower agent.lease, or another replica has one: what was granted runs on. */
Test(session, a_lease_lasts_as_long_as_it_was_granted_for)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    close_peer(&a);
    fleet->cfg.lease_us = 1000000;
    fleet_take_over(fleet, cluster(), 0, INT64_MAX, now_us, now_us);
    now_us += 4900000;
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    cr_assert_not(session_active(b.session), "the first may act for another 100 ms");
    now_us += 200000;
    say_heartbeat(&b, 1, false);
    cr_assert(session_active(b.session));
    cr_assert_eq(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant->lease_ms, 1000);
    close_peer(&b);
}

/* The store's clock jumped ahead: the owner before does not know yet that it is none any more, and extends what it granted.
 * That the holder was here for a moment makes the wait no shorter. */
Test(session, who_takes_over_waits_for_the_owner_before)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    close_peer(&a);
    fleet->cfg.owner_lease_us = 10000000;
    fleet_take_over(fleet, cluster(), 1, now_us + 10000000, now_us, now_us);
    open_peer(&a, "s2");
    say_hello(&a, "j1");
    cr_assert(session_active(a.session), "the same agent needs no wait");
    cr_assert_eq(LAST(&a, WELCOME)->welcome->grant->lease_ms, 5000);
    close_peer(&a);
    now_us += 9000000;
    cluster()->owned_until_us = INT64_MAX;
    open_peer(&b, "s3");
    say_hello(&b, "j2");
    cr_assert_not(session_active(b.session));
    now_us += 1000000;
    say_heartbeat(&b, 1, false);
    cr_assert(session_active(b.session));
    close_peer(&b);
}

/* The take-over was slow to be stored: the standby's next heartbeat was sent before it heard of its grant. */
Test(session, a_heartbeat_that_crosses_the_grant_loses_no_lease)
{
    struct peer a, b;
    int64_t until;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    close_peer(&a);
    now_us += 6000000;
    say_heartbeat(&b, 1, false);
    cr_assert(session_active(b.session));
    until = cluster()->lease_until_mono_us;
    now_us += 1000000;
    drop_sent(&b);
    say_heartbeat(&b, 2, false);
    cr_assert_not(b.failed, "%s", b.why.msg);
    cr_assert(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant, "or it stands by for ever, as the holder");
    cr_assert_eq(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant->lease_ms, 4000, "what is left, not more");
    cr_assert(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant->settle, "as it was granted");
    cr_assert_eq(cluster()->lease_until_mono_us, until, "it does not say that it holds it");
    say_heartbeat(&b, 3, true);
    cr_assert_eq(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant->lease_ms, 5000);
    cr_assert_eq(cluster()->lease_until_mono_us, until + 1000000);
    close_peer(&b);
}

/* One heartbeat of each, a second later. */
static void beat_both(struct peer *holder, struct peer *standby, uint64_t id, uint64_t holder_blind_ms, uint64_t standby_blind_ms)
{
    now_us += 1000000;
    blind_ms = standby_blind_ms;
    if (standby)
        say_heartbeat(standby, id, false);
    blind_ms = holder_blind_ms;
    say_heartbeat(holder, id, true);
    blind_ms = 0;
}

static unsigned lease_ms_of(const struct peer *p)
{
    return LAST(p, HEARTBEAT_ACK)->heartbeat_ack->grant ? LAST(p, HEARTBEAT_ACK)->heartbeat_ack->grant->lease_ms : 0;
}

/* It renews and renews what it cannot use, while one that could waits. */
Test(session, a_blind_holder_makes_room_for_one_that_sees)
{
    struct peer a, b;
    struct epoch before;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    say_jobs(&a, 1, 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    beat_both(&a, &b, 1, 90000, 0); /* not for long yet */
    cr_assert_eq(lease_ms_of(&a), 5000);
    for (uint64_t id = 2; id < 6; id++) { /* what it has it keeps, and no more */
        beat_both(&a, &b, id, 91000, 0);
        cr_assert_not(a.failed, "%s", a.why.msg);
        cr_assert_eq(lease_ms_of(&a), 5000 - (id - 1) * 1000);
        cr_assert_eq(lease_ms_of(&b), 0);
    }
    cr_assert_eq(cluster()->agent_state, AGENT_SCHEDULER_UNAVAILABLE);
    before = cluster()->epoch;
    beat_both(&a, &b, 6, 91000, 0);
    cr_assert(a.failed && a.why.code == ADV_ABORTED);
    cr_assert_str_eq(a.why.reason, "NOT_LEASE_HOLDER");
    cr_assert_not(session_active(b.session));
    close_peer(&a);
    open_peer(&a, "s3"); /* it is back first */
    say_hello(&a, "j1");
    cr_assert_null(LAST(&a, WELCOME)->welcome->grant, "its place is not kept");
    blind_ms = 92000;
    say_heartbeat(&a, 1, false);
    cr_assert_not(session_active(a.session));
    blind_ms = 0;
    say_heartbeat(&b, 7, false);
    cr_assert(session_active(b.session));
    cr_assert(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant->settle, "another acted before");
    cr_assert_gt(epoch_cmp(cluster()->epoch, before), 0);
    /* And back, when it is the other way round. */
    for (uint64_t id = 8; id < 14 && !b.failed; id++)
        beat_both(&b, &a, id, 91000, 0);
    cr_assert(b.failed);
    close_peer(&b);
    say_heartbeat(&a, 20, false);
    cr_assert(session_active(a.session));
    close_peer(&a);
}

/* It comes again and again before its lease has ended, with a new process or a new connection. */
Test(session, a_blind_holder_that_reconnects_makes_room)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    beat_both(&a, &b, 1, 91000, 0);
    for (uint64_t id = 2; id < 5; id++) {
        cr_assert_not(a.failed, "%s", a.why.msg);
        close_peer(&a);
        now_us += 1000000;
        say_heartbeat(&b, id, false);
        cr_assert_not(session_active(b.session), "what the first was granted is not over");
        open_peer(&a, "s3");
        say_hello(&a, "j1");
        cr_assert_null(LAST(&a, WELCOME)->welcome->grant, "it takes its place again");
        blind_ms = 91000;
        say_heartbeat(&a, 1, false);
        blind_ms = 0;
    }
    now_us += 2000000; /* the end of what it was granted */
    say_heartbeat(&b, 10, false);
    cr_assert(session_active(b.session));
    close_peer(&a);
    close_peer(&b);
}

/* That it was blind once says nothing when it has seen since. */
Test(session, a_holder_that_saw_again_keeps_its_place)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    beat_both(&a, &b, 1, 91000, 0);
    beat_both(&a, &b, 2, 0, 0);
    close_peer(&a);
    open_peer(&a, "s3");
    say_hello(&a, "j1");
    cr_assert(LAST(&a, WELCOME)->welcome->grant);
    close_peer(&a);
    close_peer(&b);
}

/* The scheduler is away for everybody; the standby has seen it a poll later than the holder, and is not heard of after that. */
Test(session, a_holder_keeps_its_lease_when_nobody_sees)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    beat_both(&a, &b, 1, 91000, 0);
    cr_assert_lt(lease_ms_of(&a), 5000);
    for (uint64_t id = 2; id < 9; id++)
        beat_both(&a, NULL, id, 91000, 0);
    cr_assert_not(a.failed, "%s", a.why.msg);
    cr_assert_eq(lease_ms_of(&a), 5000);
    beat_both(&a, &b, 9, 91000, 0);
    cr_assert_lt(lease_ms_of(&a), 5000);
    now_us -= 1000000;
    beat_both(&a, &b, 10, 91000, 91000); /* it takes its word back */
    cr_assert_eq(lease_ms_of(&a), 5000);
    close_peer(&a);
    close_peer(&b);
}

/* Its own word, from when it saw, keeps nobody out but others. */
Test(session, what_an_agent_said_does_not_speak_against_it)
{
    struct peer a, b, c;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    open_peer(&c, "s3");
    say_hello(&c, "j3");
    now_us += 5000000;
    say_heartbeat(&b, 1, false);
    close_peer(&a);
    blind_ms = 91000;
    say_heartbeat(&c, 1, false);
    cr_assert_not(session_active(c.session), "another one sees");
    say_heartbeat(&b, 2, false);
    blind_ms = 0;
    cr_assert(session_active(b.session));
    close_peer(&b);
    close_peer(&c);
}

/* Sight comes back in time. */
Test(session, a_holder_that_sees_again_keeps_its_lease)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    for (uint64_t id = 1; id < 4; id++)
        beat_both(&a, &b, id, 91000, 0);
    cr_assert_lt(lease_ms_of(&a), 5000);
    beat_both(&a, &b, 4, 0, 0);
    cr_assert_eq(lease_ms_of(&a), 5000);
    cr_assert_not(session_active(b.session));
    close_peer(&a);
    close_peer(&b);
}

/* Nobody sees, nobody else is there, or the other one was last heard of long ago: to take the lease away would mend nothing. */
Test(session, a_blind_holder_keeps_what_nobody_else_could_use)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    for (uint64_t id = 1; id < 10; id++)
        beat_both(&a, NULL, id, 91000, 0);
    cr_assert_eq(lease_ms_of(&a), 5000);
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    for (uint64_t id = 10; id < 20; id++)
        beat_both(&a, &b, id, 91000, 92000);
    cr_assert_eq(lease_ms_of(&a), 5000);
    beat_both(&a, &b, 20, 0, 0); /* it sees, and goes */
    close_peer(&b);
    now_us += 10000000;
    for (uint64_t id = 21; id < 31; id++)
        beat_both(&a, NULL, id, 91000, 0);
    cr_assert_not(a.failed, "%s", a.why.msg);
    cr_assert_eq(lease_ms_of(&a), 5000);
    close_peer(&a);
}

/* The one that saw is gone as well: better blind than nobody. */
Test(session, a_blind_agent_takes_what_nobody_wants)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    for (uint64_t id = 1; !a.failed; id++) {
        cr_assert_lt(id, 10);
        beat_both(&a, &b, id, 91000, 0);
    }
    close_peer(&a);
    close_peer(&b);
    open_peer(&a, "s3");
    say_hello(&a, "j1");
    cr_assert_not(session_active(a.session));
    blind_ms = 99000;
    say_heartbeat(&a, 1, false);
    cr_assert_not(session_active(a.session), "the other one may be on its way");
    now_us += 2000000; /* two heartbeats */
    say_heartbeat(&a, 2, false);
    blind_ms = 0;
    cr_assert(session_active(a.session));
    close_peer(&a);
}

/* It cannot journal the epoch, say. */
Test(session, a_holder_that_takes_nothing_makes_room)
{
    struct peer a, b;

    open_peer(&a, "s1");
    say_hello(&a, "j1");
    open_peer(&b, "s2");
    say_hello(&b, "j2");
    now_us += 4900000;
    say_heartbeat(&a, 1, false);
    cr_assert_not(a.failed, "%s", a.why.msg);
    now_us += 200000;
    say_heartbeat(&a, 2, false);
    cr_assert(a.failed && a.why.code == ADV_ABORTED);
    cr_assert_str_eq(a.why.reason, "NOT_LEASE_HOLDER");
    close_peer(&a);
    say_heartbeat(&b, 1, false);
    cr_assert(LAST(&b, HEARTBEAT_ACK)->heartbeat_ack->grant);
    close_peer(&b);
}

/* The same process is back before its dead connection was noticed. */
Test(session, an_old_session_takes_nothing_from_the_new)
{
    struct peer old, new;
    int64_t until;

    open_peer(&old, "s1");
    say_hello(&old, "j1");
    say_jobs(&old, 1, 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
    open_peer(&new, "s2");
    say_hello(&new, "j1");
    cr_assert(LAST(&new, WELCOME)->welcome->grant);
    until = cluster()->lease_until_mono_us;
    now_us += 1000;
    say_heartbeat(&old, 1, true); /* was on its way */
    cr_assert(old.failed && old.why.code == ADV_ABORTED);
    cr_assert_eq(cluster()->lease_until_mono_us, until);
    close_peer(&old);
    cr_assert_eq(cluster()->agent_state, AGENT_RESYNCING);
    say_jobs(&new, 1, 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
    cr_assert_not(new.failed, "%s", new.why.msg);
    cr_assert_eq(cluster()->agent_state, AGENT_CONNECTED);
    close_peer(&new);
    cr_assert_eq(cluster()->agent_state, AGENT_UNREACHABLE);
}

Test(session, an_old_sessions_update_is_refused)
{
    struct peer old, new;

    open_peer(&old, "s1");
    say_hello(&old, "j1");
    open_peer(&new, "s2");
    say_hello(&new, "j1");
    say_jobs(&old, 1, 1, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
    cr_assert(old.failed);
    cr_assert_str_eq(old.why.reason, "NOT_LEASE_HOLDER");
    cr_assert_null(cluster()->jobs_by_id);
    close_peer(&old);
    close_peer(&new);
}

/* ---- orders ----------------------------------------------------------------------------------------------------- */

Test(session, one_pull_at_a_time)
{
    struct peer p;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    say_pull(&p, 1);
    cr_assert_not(p.failed);
    say_pull(&p, 2);
    cr_assert(p.failed);
    cr_assert_str_eq(p.why.reason, "PULL_OUTSTANDING");
    close_peer(&p);
    open_peer(&p, "s2");
    say_hello(&p, "j1");
    say_pull(&p, 0);
    cr_assert(p.failed && p.why.code == ADV_INVALID_ARGUMENT);
    close_peer(&p);
}

Test(session, batches_are_limited_and_lose_nothing)
{
    struct peer p;
    bool seen[20] = { false };
    unsigned total = 0;

    with_orders(&p, 20);
    for (uint64_t pull = 1; pull <= 3; pull++) {
        const Advisor__V1__AdviceBatch *b;
        drop_sent(&p);
        say_pull(&p, pull);
        cr_assert(LAST(&p, ADVICE_BATCH));
        b = LAST(&p, ADVICE_BATCH)->advice_batch;
        cr_assert_eq(b->pull_id, pull);
        cr_assert_eq(b->n_advice, pull < 3 ? 8 : 4);
        cr_assert_eq(!!b->more, pull < 3);
        for (size_t i = 0; i < b->n_advice; i++) {
            unsigned k = (unsigned) strtoul(b->advice[i]->attempt->job_id, NULL, 10) - 100;
            cr_assert(k < 20 && !seen[k], "told twice");
            seen[k] = true;
            total++;
            cr_assert_str_eq(b->advice[i]->exclude_nodes, "n1");
            cr_assert_eq(b->advice[i]->actionability, ADVISOR__V1__ACTIONABILITY__ACTIONABILITY_ACTIONABLE);
        }
    }
    cr_assert_eq(total, 20);
    drop_sent(&p);
    say_pull(&p, 4); /* nothing more: waits */
    session_changed(p.session);
    cr_assert_null(LAST(&p, ADVICE_BATCH));
    say_jobs(&p, 3, 900, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, false);
    finding(900, "n2", 5);
    say_jobs(&p, 4, 900, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_FAILED, false);
    tick();
    session_changed(p.session);
    cr_assert(LAST(&p, ADVICE_BATCH));
    cr_assert_eq(LAST(&p, ADVICE_BATCH)->advice_batch->pull_id, 4);
    cr_assert_eq(LAST(&p, ADVICE_BATCH)->advice_batch->n_advice, 1);
    close_peer(&p);
}

Test(session, the_agents_lower_limits_are_kept)
{
    Advisor__V1__Limits l = ADVISOR__V1__LIMITS__INIT;
    struct peer p;
    unsigned total = 0;
    char *more;

    l.orders = 3;
    l.exclude_nodes_bytes = 2;
    l.focus_jobs = 1000; /* ours is lower */
    agent_limits = &l;
    with_orders(&p, 8);
    cr_assert_eq(LAST(&p, WELCOME)->welcome->limits->message_bytes, SESSION_MESSAGE_BYTES);
    cr_assert_eq(LAST(&p, WELCOME)->welcome->limits->log_message_bytes, SESSION_LOG_MESSAGE_BYTES);
    more = strdup("n10");
    free(cluster()->open_advice->next->exclude_nodes);
    cluster()->open_advice->next->exclude_nodes = more;
    for (uint64_t pull = 1; pull <= 3; pull++) {
        drop_sent(&p);
        say_pull(&p, pull);
        cr_assert(LAST(&p, ADVICE_BATCH));
        cr_assert_eq(LAST(&p, ADVICE_BATCH)->advice_batch->n_advice, pull < 3 ? 3 : 1);
        total += (unsigned) LAST(&p, ADVICE_BATCH)->advice_batch->n_advice;
    }
    cr_assert_eq(total, 7, "all but the one whose list is too long");
    close_peer(&p);
    agent_limits = NULL;
}

Test(session, a_batch_fits_the_agents_message)
{
    Advisor__V1__Limits l = ADVISOR__V1__LIMITS__INIT;
    struct peer p;
    unsigned total = 0;

    l.message_bytes = 600;
    agent_limits = &l;
    with_orders(&p, 8);
    for (uint64_t pull = 1; total < 8; pull++) {
        const Advisor__V1__SessionResponse *m;
        cr_assert_leq(pull, 8);
        drop_sent(&p);
        say_pull(&p, pull);
        cr_assert((m = LAST(&p, ADVICE_BATCH)));
        cr_assert_gt(m->advice_batch->n_advice, 0);
        cr_assert_lt(m->advice_batch->n_advice, 8);
        cr_assert_leq(advisor__v1__session_response__get_packed_size(m), 600);
        total += (unsigned) m->advice_batch->n_advice;
        cr_assert_eq(!!m->advice_batch->more, total < 8);
    }
    cr_assert_eq(total, 8);
    close_peer(&p);
    agent_limits = NULL;
}

Test(session, an_exclude_list_that_is_too_long_is_not_sent)
{
    struct peer p;
    struct advice *ad;
    char *longest = calloc(1, 4097);
    size_t n;

    with_orders(&p, 3);
    memset(longest, 'n', 4095);
    ad = cluster()->open_advice;
    free(ad->exclude_nodes);
    ad->exclude_nodes = strdup(longest); /* just fits */
    memset(longest, 'n', 4096);
    free(ad->next->exclude_nodes);
    ad->next->exclude_nodes = longest;
    say_pull(&p, 1);
    cr_assert_eq(LAST(&p, ADVICE_BATCH)->advice_batch->n_advice, 2);
    n = 0;
    for (size_t i = 0; i < 2; i++)
        n += strlen(LAST(&p, ADVICE_BATCH)->advice_batch->advice[i]->exclude_nodes);
    cr_assert_eq(n, 4095 + 2);
    close_peer(&p);
}

Test(session, orders_grow_old)
{
    struct peer p;
    uint32_t fresh = (uint32_t) fleet->cfg.policy.valid_for_ms;

    with_orders(&p, 1);
    say_pull(&p, 1);
    cr_assert_leq(LAST(&p, ADVICE_BATCH)->advice_batch->advice[0]->valid_for_ms, fresh);
    cr_assert_geq(LAST(&p, ADVICE_BATCH)->advice_batch->advice[0]->valid_for_ms, fresh - 1000);
    close_peer(&p);
    now_us += 1800 * 1000000LL;
    open_peer(&p, "s2");
    say_hello(&p, "j1");
    say_jobs(&p, 1, 100, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_FAILED, true);
    say_pull(&p, 1);
    cr_assert_leq(LAST(&p, ADVICE_BATCH)->advice_batch->advice[0]->valid_for_ms, fresh - 1800000);
    close_peer(&p);
    now_us += 3600 * 1000000LL;
    open_peer(&p, "s3");
    say_hello(&p, "j1");
    say_jobs(&p, 1, 100, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_FAILED, true);
    say_pull(&p, 1);
    cr_assert_eq(LAST(&p, ADVICE_BATCH)->advice_batch->advice[0]->valid_for_ms, 0, "over");
    close_peer(&p);
}

Test(session, nothing_before_the_state_is_known)
{
    struct peer p, q;

    with_orders(&p, 1);
    close_peer(&p);
    open_peer(&q, "s2");
    say_hello(&q, "j1");
    cr_assert(LAST(&q, WELCOME)->welcome->send_snapshot);
    say_pull(&q, 1);
    session_changed(q.session);
    cr_assert_null(LAST(&q, ADVICE_BATCH));
    say_jobs(&q, 1, 100, 1, ADVISOR__V1__JOB_STATE__JOB_STATE_FAILED, true);
    session_changed(q.session);
    cr_assert(LAST(&q, ADVICE_BATCH));
    close_peer(&q);
}

Test(session, a_standby_gets_no_orders)
{
    struct peer p, q;

    with_orders(&p, 1);
    open_peer(&q, "s2");
    say_hello(&q, "j2");
    say_pull(&q, 1);
    session_changed(q.session);
    cr_assert_null(LAST(&q, ADVICE_BATCH));
    close_peer(&q);
    close_peer(&p);
}

Test(session, a_new_mode_is_told_at_once)
{
    struct event ev = { .type = EV_SET_MODE, .cluster = "a" };
    struct peer p;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    drop_sent(&p);
    session_changed(p.session);
    cr_assert_null(LAST(&p, HEARTBEAT_ACK));
    ev.u.set_mode.mode = MODE_OFF;
    cr_assert_eq(apply(&ev, NULL), 0);
    session_changed(p.session);
    cr_assert_eq(LAST(&p, HEARTBEAT_ACK)->heartbeat_ack->cluster_mode, ADVISOR__V1__MODE__MODE_OFF);
    close_peer(&p);
}

Test(session, a_store_that_is_behind_is_met_with_observation)
{
    Advisor__V1__Epoch e = ADVISOR__V1__EPOCH__INIT;
    struct event ev = { .type = EV_SET_MODE, .cluster = "a" };
    struct peer p;

    ev.u.set_mode.mode = MODE_ACT;
    cr_assert_eq(apply(&ev, NULL), 0);
    e.term = 7;
    seen_epoch = &e;
    open_peer(&p, "s1");
    say_hello(&p, "j1");
    seen_epoch = NULL;
    cr_assert_eq(LAST(&p, WELCOME)->welcome->grant->epoch->term, 8);
    cr_assert_eq(LAST(&p, WELCOME)->welcome->cluster_mode, ADVISOR__V1__MODE__MODE_OBSERVE);
    drop_sent(&p);
    session_changed(p.session);
    cr_assert_null(LAST(&p, HEARTBEAT_ACK), "told already");
    cr_assert_eq(apply(&ev, NULL), 0); /* a person confirms */
    session_changed(p.session);
    cr_assert_eq(LAST(&p, HEARTBEAT_ACK)->heartbeat_ack->cluster_mode, ADVISOR__V1__MODE__MODE_ACT);
    close_peer(&p);
}

/* ---- ends ------------------------------------------------------------------------------------------------------- */

static void pass_seconds(struct peer *p, int n)
{
    while (n-- > 0) {
        now_us += 1000000;
        session_tick(p->session);
    }
}

static const Advisor__V1__Focus *newest_focus(const struct peer *p)
{
    const Advisor__V1__SessionResponse *m = last(p, ADVISOR__V1__SESSION_RESPONSE__MESSAGE_FOCUS);

    return m ? m->focus : NULL;
}

/* A job whose silence will be looked at, should it come, is well: looking closer at all of those would be as much as no focus. */
Test(session, focus_is_on_what_is_suspected)
{
    struct event ev = { .type = EV_TELEMETRY, .cluster = "a" };
    struct peer p;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    say_jobs(&p, 1, 100, 2, ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING, true);
    ev.u.telemetry.job_id = "100";
    ev.u.telemetry.state = TELEMETRY_COMPLETE;
    cr_assert_eq(apply(&ev, NULL), 0);
    for (unsigned i = 1; i <= 60; i++) {
        ev = (struct event) { .type = EV_FINDING, .cluster = "a" };
        ev.u.finding.job_id = "100";
        ev.u.finding.kind = FINDING_PROGRESS;
        ev.u.finding.step = i;
        ev.u.finding.series = 1;
        now_us += 10000000;
        cr_assert_eq(apply(&ev, NULL), 0);
    }
    session_changed(p.session);
    cr_assert(cluster()->judged, "its rhythm is learned: it is going to be looked at");
    cr_assert(!newest_focus(&p) || newest_focus(&p)->n_job_ids == 0);
    finding(101, "n1", 5);
    session_changed(p.session); /* so soon after the last look that the tick does it */
    now_us += 1000000;
    session_tick(p.session);
    cr_assert(newest_focus(&p) && newest_focus(&p)->n_job_ids == 1);
    cr_assert_str_eq(newest_focus(&p)->job_ids[0], "101");
    close_peer(&p);
}

Test(session, a_ceiling_reason_has_a_limit_in_heartbeats_too)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__Heartbeat hb = ADVISOR__V1__HEARTBEAT__INIT;
    Advisor__V1__Ceiling ceiling = ADVISOR__V1__CEILING__INIT;
    Advisor__V1__Epoch e = ADVISOR__V1__EPOCH__INIT;
    char text[513];
    struct peer p;

    memset(text, 'x', sizeof(text));
    text[511] = '\0';
    ceiling.mode = ADVISOR__V1__MODE__MODE_OBSERVE;
    ceiling.reason = text;
    hb.id = 1;
    hb.epoch = &e;
    hb.ceiling = &ceiling;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_HEARTBEAT;
    m.heartbeat = &hb;
    open_peer(&p, "s1");
    say_hello(&p, "j1");
    say(&p, &m);
    cr_assert_not(p.failed, "%s", p.why.msg);
    cr_assert_eq(strlen(str_or(cluster()->ceiling_reason)), 511);
    hb.id = 2;
    text[511] = 'x';
    text[512] = '\0';
    say(&p, &m);
    cr_assert(p.failed && p.why.code == ADV_INVALID_ARGUMENT);
    cr_assert_str_eq(p.why.reason, "TEXT_TOO_LONG");
    close_peer(&p);
}

/* What an agent said while the loop did not listen is still to be read. */
Test(session, a_loop_that_was_held_up_blames_nobody)
{
    struct peer p;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    pass_seconds(&p, 9);
    now_us += 3600 * 1000000LL;
    session_tick(p.session);
    cr_assert_not(p.failed);
    pass_seconds(&p, 1);
    cr_assert(p.failed, "but one that says nothing after that is silent");
    close_peer(&p);
}

Test(session, silence)
{
    struct peer p;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    pass_seconds(&p, 9);
    cr_assert_not(p.failed);
    say_heartbeat(&p, 1, true);
    pass_seconds(&p, 10);
    cr_assert_not(p.failed);
    pass_seconds(&p, 1);
    cr_assert(p.failed && p.why.code == ADV_DEADLINE_EXCEEDED);
    session_tick(p.session);
    close_peer(&p);
    /* from before Hello, too */
    open_peer(&p, "s2");
    now_us += 11000000;
    session_tick(p.session);
    cr_assert(p.failed);
    close_peer(&p);
}

/* Closed while an event, or a read, is under way: the callback comes to nobody, and all is freed (the leak check sees). */
Test(session, close_with_something_outstanding)
{
    struct peer p;
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__StateUpdate u = ADVISOR__V1__STATE_UPDATE__INIT;
    struct submitted e;

    open_peer(&p, "s1");
    say_hello(&p, "j1");
    u.full_begin = u.full_end = true;
    m.seq = 1;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_STATE_UPDATE;
    m.state_update = &u;
    p.ready = false;
    drop_sent(&p);
    session_message(p.session, &m);
    e = take(&p);
    lose(&p); /* submits its own goodbye */
    cr_assert_eq(p.n_events, 1);
    cr_assert_eq(p.events[0].ev.type, EV_AGENT_GONE);
    cr_assert_eq(apply(&e.ev, NULL), 0);
    e.cb(e.arg, &e.ev, NULL);
    cr_assert_eq(p.n_sent, 0);
    cr_assert_not(p.ready);
    run(&p);
    cr_assert_eq(cluster()->agent_state, AGENT_UNREACHABLE);

    open_peer(&p, "s2");
    say_hello(&p, "j1");
    p.hold_reads = true;
    say_heartbeat(&p, 1, true);
    drop_sent(&p);
    lose(&p);
    run(&p);
    read_now(&p);
    cr_assert_eq(p.n_sent, 0);

    open_peer(&p, "s3"); /* before Hello */
    lose(&p);
    cr_assert_eq(p.n_events, 0);
}

/* The order of what a lost connection leaves behind: Hello waits for its commit, then the goodbye follows. */
Test(session, close_while_hello_is_stored)
{
    struct peer p;
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__Hello h = ADVISOR__V1__HELLO__INIT;
    char version[] = "advisor.v1", *versions[] = { version }, cl[] = "a", id[] = "i", jn[] = "j";
    struct submitted e;

    open_peer(&p, "s1");
    h.cluster = cl;
    h.instance_id = id;
    h.journal_id = jn;
    h.api_versions = versions;
    h.n_api_versions = 1;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_HELLO;
    m.hello = &h;
    session_message(p.session, &m);
    e = take(&p);
    lose(&p);
    cr_assert_eq(apply(&e.ev, NULL), 0);
    cr_assert(e.ev.u.hello.ret_granted);
    e.cb(e.arg, &e.ev, NULL);
    run(&p);
    cr_assert_null(cluster()->holder_instance);
    cr_assert_eq(p.n_sent, 0);
}

Test(session, times_that_no_clock_shows)
{
    cr_assert_eq(session_wall_us(1700000000123), 1700000000123000);
    cr_assert_eq(session_wall_us(0), 0);
    cr_assert_eq(session_wall_us(-1), 0);
    cr_assert_eq(session_wall_us(INT64_MAX), 0);
    cr_assert_eq(session_wall_us(INT64_MIN), 0);
}
