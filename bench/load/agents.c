/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet: one agent a cluster, each with a Session and a PushLogs call over a connection of its own, heartbeats, one
 * Pull outstanding, numbered updates, resume after a reconnect and back-off as the real one has. The jobs of an agent are
 * made up from their slot's number, generation and state, so that a million of them cost five bytes each here. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/v1/fleet_service.pb-c.h"
#include "advisor-agent/wire/codec.h"
#include "bench/load/load.h"
#include "common/clock.h"

#define CHUNK          512 /* records of one update, as the agent's */
#define STATE_WINDOW   4
#define TICK_MS        20
#define CONNECT_MAX_US 20000000
#define BACKOFF_MIN_MS 1000
#define BACKOFF_MAX_MS 60000

enum agent_state { IDLE, CONNECTING, HELLO, SYNCING, READY };
enum slot_state { SLOT_PENDING, SLOT_RUNNING, SLOT_COMPLETED, SLOT_FAILED };

struct agent {
    unsigned index;
    enum agent_state state;
    X509 *cert;
    struct link *link;
    struct link_call *session, *logs;
    Advisor__V1__Epoch epoch;
    int mode;
    uint32_t heartbeat_ms;
    uint64_t seq, acked, heartbeat_id, pull_id;
    uint64_t digest;
    bool known; /* a whole state was sent once, and may be resumed */
    size_t snap_at; /* of nodes and jobs, while SYNCING */
    uint8_t *slot_state;
    uint32_t *slot_gen;
    unsigned next_slot; /* the next to fail */
    unsigned attempts;
    int64_t began_us, hello_us, due_us, beat_us;
    int64_t provoked_us; /* 0: none */
    char advice[256];
    uint64_t advice_gen;
    unsigned flip;
    uint64_t changes_due; /* changes in the update under way */
    uint64_t changes_seq;
};

static struct {
    struct agent *v;
    unsigned n, jobs, nodes, parallel;
    unsigned connecting, ready;
    bool running_only;
    uv_timer_t tick;
    bool ticking;
    int64_t began_us;
    /* of a storm */
    bool reporting;
    uint64_t refused, lost, tries;
    struct samples answers, attempts;
    char why[128];
    /* of changes */
    bool changing;
    unsigned batch, changers;
    uint64_t changed;
    int64_t until_us;
    /* of advice */
    bool provoking, hold;
    unsigned provoked, to_provoke, advised;
    double rate;
    unsigned next_agent;
    struct samples advice;
    /* of commits */
    bool committing;
    unsigned committers, window;
    uint64_t committed;
    struct samples commits;
} fl;

static void agent_connect(struct agent *a);
static void start_ticking(void);

/* ---- made-up jobs ----------------------------------------------------------------------------------------------- */

static uint64_t job_hash(const struct agent *a, unsigned slot)
{
    return mix(mix(a->index + 1, slot + 1), (uint64_t) a->slot_gen[slot] * 8 + a->slot_state[slot]) | 1;
}

static uint64_t node_hash(const struct agent *a, unsigned node)
{
    return mix(a->index + 1, 0x10000000ULL + node) | 1;
}

static unsigned job_number(const struct agent *a, unsigned slot)
{
    return a->slot_gen[slot] * fl.jobs + slot + 1;
}

struct texts {
    char id[16], nodes[40], user[16], account[16], partition[16], qos[16], reason[24];
    char name[40], comment[120], path[96];
};

static void make_job(const struct agent *a, unsigned slot, Advisor__V1__JobObservation *m, struct texts *t)
{
    static const char *const partitions[] = { "gpu", "gpu-long", "cpu", "debug" }, *const qos[] = { "normal", "high", "low" };
    unsigned id = job_number(a, slot), node = fl.nodes ? slot % fl.nodes : slot;
    enum slot_state s = a->slot_state[slot];
    int64_t now = adv_wall_us() / 1000000;

    advisor__v1__job_observation__init(m);
    (void) snprintf(t->id, sizeof(t->id), "%u", id);
    (void) snprintf(t->user, sizeof(t->user), "user%03u", id % 200);
    (void) snprintf(t->account, sizeof(t->account), "acct%02u", id % 40);
    (void) snprintf(t->partition, sizeof(t->partition), "%s", partitions[id % 4]);
    (void) snprintf(t->qos, sizeof(t->qos), "%s", qos[id % 3]);
    (void) snprintf(t->reason, sizeof(t->reason), "%s", s == SLOT_PENDING ? "Priority" : "None");
    t->nodes[0] = '\0';
    if (s != SLOT_PENDING)
        (void) snprintf(t->nodes, sizeof(t->nodes), "node[%04u-%04u]", node, node + 3);
    (void) snprintf(t->name, sizeof(t->name), "train-llama-%u", id % 1000);
    (void) snprintf(t->comment, sizeof(t->comment), "%s",
                    id % 3 == 0 || fl.running_only ? "{\"advisor\":{\"policy\":\"pretrain\",\"max_restarts\":5}}" : "");
    (void) snprintf(t->path, sizeof(t->path), "/lustre/proj/%s/%s/runs/exp-%u/slurm-%u.out", t->account, t->user, id % 50, id);
    m->job_id = t->id;
    m->restart_count = 0;
    m->requeueable = m->batch = m->detail_known = 1;
    m->submit_unix = m->incarnation_unix = 1700000000 + id;
    m->eligible_unix = m->submit_unix;
    m->user = t->user;
    m->uid = 10000 + id % 200;
    m->account = t->account;
    m->partition = t->partition;
    m->qos = t->qos;
    m->reason = t->reason;
    m->num_nodes = 4;
    m->name = (ProtobufCBinaryData) { strlen(t->name), (uint8_t *) t->name };
    m->comment = (ProtobufCBinaryData) { strlen(t->comment), (uint8_t *) t->comment };
    m->stdout_path = (ProtobufCBinaryData) { strlen(t->path), (uint8_t *) t->path };
    m->nodes = t->nodes;
    m->hash = job_hash(a, slot);
    m->state_raw = (char *) (uintptr_t) "PENDING";
    m->state = ADVISOR__V1__JOB_STATE__JOB_STATE_PENDING;
    if (s == SLOT_PENDING)
        return;
    m->start_unix = now - 7200;
    m->state_raw = (char *) (uintptr_t) "RUNNING";
    m->state = ADVISOR__V1__JOB_STATE__JOB_STATE_RUNNING;
    if (s == SLOT_RUNNING)
        return;
    m->end_unix = now;
    m->state_raw = (char *) (uintptr_t) (s == SLOT_FAILED ? "NODE_FAIL" : "COMPLETED");
    m->state = s == SLOT_FAILED ? ADVISOR__V1__JOB_STATE__JOB_STATE_NODE_FAIL :
                                  ADVISOR__V1__JOB_STATE__JOB_STATE_COMPLETED;
}

static void make_slots(struct agent *a)
{
    a->slot_state = calloc(fl.jobs + 1, 1);
    a->slot_gen = calloc(fl.jobs + 1, sizeof(*a->slot_gen));
    if (!a->slot_state || !a->slot_gen)
        die("no memory");
    a->digest = 0;
    for (unsigned i = 0; i < fl.jobs; i++) {
        a->slot_state[i] = fl.running_only || i % 10 >= 6 ? i % 10 == 9 && !fl.running_only ? SLOT_COMPLETED : SLOT_RUNNING :
                                                            SLOT_PENDING;
        a->digest ^= job_hash(a, i);
    }
    for (unsigned i = 0; i < fl.nodes; i++)
        a->digest ^= node_hash(a, i);
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

static void send_message(struct agent *a, Advisor__V1__SessionRequest *m, bool numbered)
{
    size_t n;
    const uint8_t *bytes;

    m->seq = numbered ? ++a->seq : 0;
    bytes = pack(&m->base, &n);
    link_send(a->session, bytes, n, false);
}

static void send_heartbeat(struct agent *a)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__Heartbeat h = ADVISOR__V1__HEARTBEAT__INIT;

    h.id = ++a->heartbeat_id;
    h.epoch = &a->epoch;
    h.cluster_mode = (Advisor__V1__Mode) a->mode;
    h.agent_wall_ms = adv_wall_us() / 1000;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_HEARTBEAT;
    m.heartbeat = &h;
    send_message(a, &m, false);
}

static void send_pull(struct agent *a)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__Pull p = ADVISOR__V1__PULL__INIT;

    p.id = ++a->pull_id;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_PULL;
    m.pull = &p;
    send_message(a, &m, false);
}

/* An update of what the slots in @slots are now; @gone are job numbers. */
static void send_update(struct agent *a, const unsigned *slots, size_t n, char (*gone)[16], size_t n_gone, bool begin,
                        bool end, unsigned first_node, unsigned n_nodes)
{
    static Advisor__V1__JobObservation jobs[CHUNK];
    static Advisor__V1__JobObservation *job_ptrs[CHUNK];
    static Advisor__V1__NodeObservation nodes[CHUNK];
    static Advisor__V1__NodeObservation *node_ptrs[CHUNK];
    static struct texts texts[CHUNK];
    static char names[CHUNK][16];
    static char *gone_ptrs[CHUNK];
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__StateUpdate u = ADVISOR__V1__STATE_UPDATE__INIT;

    for (size_t i = 0; i < n; i++) {
        make_job(a, slots[i], &jobs[i], &texts[i]);
        job_ptrs[i] = &jobs[i];
    }
    for (unsigned i = 0; i < n_nodes; i++) {
        advisor__v1__node_observation__init(&nodes[i]);
        (void) snprintf(names[i], sizeof(names[i]), "node%04u", first_node + i);
        nodes[i].name = names[i];
        nodes[i].state_raw = (char *) (uintptr_t) "ALLOCATED";
        nodes[i].available = 1;
        nodes[i].hash = node_hash(a, first_node + i);
        node_ptrs[i] = &nodes[i];
    }
    for (size_t i = 0; i < n_gone; i++)
        gone_ptrs[i] = gone[i];
    u.full_begin = begin;
    u.full_end = end;
    u.jobs = job_ptrs;
    u.n_jobs = n;
    u.nodes = node_ptrs;
    u.n_nodes = n_nodes;
    u.gone_job_ids = gone_ptrs;
    u.n_gone_job_ids = n_gone;
    u.digest = a->state == SYNCING && !end ? 0 : a->digest;
    u.observe_wall_ms = adv_wall_us() / 1000;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_STATE_UPDATE;
    m.state_update = &u;
    send_message(a, &m, true);
}

/* The next pieces of the snapshot, as far as the window goes. */
static void send_snapshot(struct agent *a)
{
    size_t all = (size_t) fl.nodes + fl.jobs;
    unsigned slots[CHUNK];

    while (a->state == SYNCING && a->snap_at <= all && a->seq - a->acked < STATE_WINDOW) {
        size_t at = a->snap_at, n_nodes = 0, n = 0;
        if (at < fl.nodes) {
            n_nodes = fl.nodes - at < CHUNK ? fl.nodes - at : CHUNK;
            a->snap_at += n_nodes;
        } else {
            for (size_t i = at - fl.nodes; i < fl.jobs && n < CHUNK; i++)
                slots[n++] = (unsigned) i;
            a->snap_at += n;
        }
        if (a->snap_at == all)
            a->snap_at++;
        send_update(a, slots, n, NULL, 0, at == 0, a->snap_at > all, (unsigned) at, (unsigned) n_nodes);
    }
}

/* ---- changes ---------------------------------------------------------------------------------------------------- */

static void send_changes(struct agent *a)
{
    unsigned slots[CHUNK];
    char gone[CHUNK][16];
    size_t n = 0, n_gone = 0;

    while (n < fl.batch && n < CHUNK) {
        unsigned s = random32() % fl.jobs;
        bool twice = false;
        for (size_t i = 0; i < n; i++)
            twice = twice || slots[i] == s;
        if (twice)
            continue;
        a->digest ^= job_hash(a, s);
        if (a->slot_state[s] == SLOT_COMPLETED) {
            (void) snprintf(gone[n_gone++], sizeof(gone[0]), "%u", job_number(a, s));
            a->slot_gen[s]++;
            a->slot_state[s] = SLOT_PENDING;
        } else {
            a->slot_state[s]++;
        }
        a->digest ^= job_hash(a, s);
        slots[n++] = s;
    }
    a->changes_due = n + n_gone;
    send_update(a, slots, n, gone, n_gone, false, false, 0, 0);
    a->changes_seq = a->seq;
}

/* ---- advice ----------------------------------------------------------------------------------------------------- */

static void provoke(struct agent *a)
{
    unsigned s = a->next_slot++;

    a->digest ^= job_hash(a, s);
    a->slot_state[s] = SLOT_FAILED;
    a->digest ^= job_hash(a, s);
    a->provoked_us = now_us();
    send_update(a, &s, 1, NULL, 0, false, false, 0, 0);
    fl.provoked++;
}

static void send_status(struct agent *a, const char *name, uint64_t generation, int disposition)
{
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__AdviceStatusReport r = ADVISOR__V1__ADVICE_STATUS_REPORT__INIT;
    char detail[64];

    (void) snprintf(detail, sizeof(detail), "look %u at the job", a->flip++);
    r.advice = (char *) (uintptr_t) name;
    r.observed_generation = generation;
    r.epoch = &a->epoch;
    r.disposition = (Advisor__V1__Disposition) disposition;
    r.reason = disposition == ADVISOR__V1__DISPOSITION__DISPOSITION_ABANDONED ?
                   ADVISOR__V1__DISPOSITION_REASON__DISPOSITION_REASON_CONFLICTING_USER_ACTION :
                   ADVISOR__V1__DISPOSITION_REASON__DISPOSITION_REASON_UNSPECIFIED;
    r.detail = detail;
    r.observe_wall_ms = adv_wall_us() / 1000;
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_ADVICE_STATUS;
    m.advice_status = &r;
    send_message(a, &m, true);
}

static void maybe_end_advice(void)
{
    if (!fl.provoking || fl.advised < fl.to_provoke)
        return;
    fl.provoking = false;
    show("advised", fl.advised);
    samples_show(&fl.advice, "advice_ms");
    command_done();
}

static void on_batch(struct agent *a, const Advisor__V1__AdviceBatch *b)
{
    for (size_t i = 0; i < b->n_advice; i++) {
        const Advisor__V1__AdviceOrder *o = b->advice[i];
        if (!a->provoked_us)
            continue; /* told again, of an earlier session */
        samples_add(&fl.advice, now_us() - a->provoked_us);
        a->provoked_us = 0;
        (void) snprintf(a->advice, sizeof(a->advice), "%s", o->name);
        a->advice_gen = o->generation;
        fl.advised++;
        if (!fl.hold)
            send_status(a, o->name, o->generation, ADVISOR__V1__DISPOSITION__DISPOSITION_ABANDONED);
    }
    send_pull(a);
    maybe_end_advice();
}

static void provoke_due(void)
{
    double due = (double) (now_us() - fl.began_us) / 1e6 * fl.rate;

    while (fl.provoked < fl.to_provoke && (double) fl.provoked < due) {
        struct agent *a = NULL;
        for (unsigned tries = 0; tries < fl.n; tries++) {
            struct agent *t = &fl.v[fl.next_agent++ % fl.n];
            if (t->state == READY && !t->provoked_us && t->next_slot < fl.jobs) {
                a = t;
                break;
            }
        }
        if (!a)
            return; /* all wait for theirs */
        provoke(a);
        link_flush(a->link);
    }
}

void cmd_advice(void)
{
    fl.to_provoke = (unsigned) arg("count", 100);
    fl.rate = (double) arg("rate", 50);
    fl.hold = arg("hold", 0) != 0;
    fl.provoked = fl.advised = 0;
    fl.next_agent = 0;
    fl.provoking = true;
    fl.began_us = now_us();
}

/* ---- receiving -------------------------------------------------------------------------------------------------- */

static const struct link_call_ops log_ops;

static void on_welcome(struct agent *a, const Advisor__V1__Welcome *w)
{
    Advisor__V1__PushLogsRequest q = ADVISOR__V1__PUSH_LOGS_REQUEST__INIT;
    const uint8_t *bytes;
    size_t n;

    if (!w->grant || !w->grant->epoch)
        die("agent %u: no lease was granted (holder %s)", a->index, w->lease_holder);
    a->epoch = (Advisor__V1__Epoch) ADVISOR__V1__EPOCH__INIT;
    a->epoch.term = w->grant->epoch->term;
    a->epoch.counter = w->grant->epoch->counter;
    a->mode = (int) w->cluster_mode;
    a->heartbeat_ms = w->heartbeat_interval_ms;
    a->beat_us = now_us() + (int64_t) (random32() % (a->heartbeat_ms + 1)) * 1000;
    a->attempts = 0;
    samples_add(&fl.answers, now_us() - a->hello_us);
    samples_add(&fl.attempts, now_us() - a->began_us);
    fl.connecting--;
    a->logs = link_call(a->link, "/advisor.v1.AgentService/PushLogs", &log_ops, a);
    q.session_id = w->session_id;
    bytes = pack(&q.base, &n);
    link_send(a->logs, bytes, n, false);
    send_heartbeat(a);
    send_pull(a);
    a->state = SYNCING;
    a->snap_at = 0;
    if (w->send_snapshot)
        send_snapshot(a);
    else
        a->snap_at = SIZE_MAX;
    if (!w->send_snapshot) {
        a->state = READY;
        fl.ready++;
    }
}

static void on_ack(struct agent *a, uint64_t through)
{
    if (fl.committing && a->index < fl.committers && fl.window)
        fl.committed += through - a->acked;
    a->acked = through;
    if (a->state == SYNCING) {
        if (a->snap_at > (size_t) fl.nodes + fl.jobs && a->acked == a->seq) {
            a->state = READY;
            a->known = true;
            fl.ready++;
        } else {
            send_snapshot(a);
        }
        return;
    }
    if (a->changes_due && a->acked >= a->changes_seq) {
        fl.changed += a->changes_due;
        a->changes_due = 0;
        if (fl.changing)
            send_changes(a);
    }
    while (fl.committing && a->index < fl.committers && a->seq - a->acked < fl.window)
        send_status(a, a->advice, a->advice_gen, ADVISOR__V1__DISPOSITION__DISPOSITION_PENDING);
}

static void on_message(void *ctx, struct link_call *c, const uint8_t *data, size_t len)
{
    struct agent *a = ctx;
    Advisor__V1__SessionResponse *m = advisor__v1__session_response__unpack(NULL, len, data);

    if (!m)
        die("agent %u: a message cannot be read", a->index);
    switch (m->message_case) {
    case ADVISOR__V1__SESSION_RESPONSE__MESSAGE_WELCOME:
        on_welcome(a, m->welcome);
        break;
    case ADVISOR__V1__SESSION_RESPONSE__MESSAGE_ACK:
        on_ack(a, m->ack->durable_through_seq);
        break;
    case ADVISOR__V1__SESSION_RESPONSE__MESSAGE_ADVICE_BATCH:
        on_batch(a, m->advice_batch);
        break;
    case ADVISOR__V1__SESSION_RESPONSE__MESSAGE_HEARTBEAT_ACK:
        a->mode = (int) m->heartbeat_ack->cluster_mode;
        break;
    case ADVISOR__V1__SESSION_RESPONSE__MESSAGE_RESYNC:
        die("agent %u: the server asks for a resync: %s", a->index, m->resync->reason);
    default:
        break;
    }
    advisor__v1__session_response__free_unpacked(m, NULL);
}

/* The connection or its session is over: comes back after the back-off. */
static void agent_lost(struct agent *a, const char *why)
{
    if (a->state == CONNECTING || a->state == HELLO)
        fl.connecting--;
    else if (a->state == READY)
        fl.ready--;
    if ((fl.changing || fl.provoking || fl.committing) && (a->state == SYNCING || a->state == READY))
        die("agent %u lost its session: %s", a->index, why); /* it would be missed in the figures */
    if (a->state != CONNECTING)
        fl.refused++;
    else
        fl.lost++;
    if (!fl.why[0])
        (void) snprintf(fl.why, sizeof(fl.why), "%s", why);
    a->state = IDLE;
    a->session = a->logs = NULL;
    a->due_us = now_us() + (int64_t) wire_backoff_ms(++a->attempts, BACKOFF_MIN_MS, BACKOFF_MAX_MS, random32()) * 1000;
}

static void on_session_closed(void *ctx, struct link_call *c, const struct wire_status *st)
{
    struct agent *a = ctx;
    struct wire_hints hints;
    char why[128];

    (void) snprintf(why, sizeof(why), "%.100s", st->message);
    wire_read_hints(st->details, st->details_len, &hints);
    if (!adv_streq(hints.reason, "NOT_NOW")) /* then the connection is of use still, as the agent's own session.c has it */
        a->link = link_close(a->link);
    agent_lost(a, why);
    if (hints.retry_after_ms >= 0)
        a->due_us = now_us() + hints.retry_after_ms * 1000;
}

static void on_logs_message(void *ctx, struct link_call *c, const uint8_t *data, size_t len)
{
}

static void on_logs_closed(void *ctx, struct link_call *c, const struct wire_status *st)
{
    struct agent *a = ctx;

    a->logs = NULL;
}

static const struct link_call_ops session_ops = { on_message, on_session_closed };
static const struct link_call_ops log_ops = { on_logs_message, on_logs_closed };

/* ---- connecting ------------------------------------------------------------------------------------------------- */

static void on_ready(void *ctx)
{
    struct agent *a = ctx;
    Advisor__V1__SessionRequest m = ADVISOR__V1__SESSION_REQUEST__INIT;
    Advisor__V1__Hello h = ADVISOR__V1__HELLO__INIT;
    Advisor__V1__Resume resume = ADVISOR__V1__RESUME__INIT;
    Advisor__V1__Ceiling ceiling = ADVISOR__V1__CEILING__INIT;
    Advisor__V1__Verb verbs[] = { 1, 2, 4, 5, 6 };
    char id[32], journal[64];
    char *api = (char *) (uintptr_t) "advisor.v1";

    (void) snprintf(journal, sizeof(journal), "0190b2c8-7e3a-7000-8000-%012u", a->index);
    h.cluster = (char *) (uintptr_t) cluster_id(a->index, id);
    h.agent_version = (char *) (uintptr_t) "0.1.0";
    h.api_versions = &api;
    h.n_api_versions = 1;
    h.instance_id = journal;
    h.journal_id = journal;
    h.journal_persistent = 1;
    h.scheduler = (char *) (uintptr_t) "slurm 24.11.5";
    h.verbs = verbs;
    h.n_verbs = ADV_ARRAY_LEN(verbs);
    ceiling.mode = ADVISOR__V1__MODE__MODE_ACT;
    h.ceiling = &ceiling;
    h.agent_wall_ms = adv_wall_us() / 1000;
    if (a->epoch.term)
        h.highest_epoch = &a->epoch;
    if (a->known) {
        resume.epoch = &a->epoch;
        resume.digest = a->digest;
        h.resume = &resume;
    }
    a->state = HELLO;
    a->seq = a->acked = a->heartbeat_id = a->pull_id = 0;
    a->hello_us = now_us();
    a->session = link_call(a->link, "/advisor.v1.AgentService/Session", &session_ops, a);
    m.message_case = ADVISOR__V1__SESSION_REQUEST__MESSAGE_HELLO;
    m.hello = &h;
    send_message(a, &m, false);
}

static void on_link_closed(void *ctx, const char *why)
{
    struct agent *a = ctx;

    a->link = NULL;
    if (a->state != IDLE)
        agent_lost(a, why);
}

static const struct link_ops link_ops = { on_ready, on_link_closed };

static void agent_connect(struct agent *a)
{
    a->state = CONNECTING;
    a->began_us = now_us();
    fl.connecting++;
    fl.tries++;
    if (a->link) {
        on_ready(a);
        link_flush(a->link);
        return;
    }
    a->link = link_open(&load.env, a->cert, false, &link_ops, a);
}

static void report_connected(void)
{
    double s = (double) (now_us() - fl.began_us) / 1e6;

    show("agents", fl.n);
    show("seconds", s);
    show("refused", (double) fl.refused);
    show("lost", (double) fl.lost);
    show("tries", (double) fl.tries);
    samples_show(&fl.answers, "answer_ms");
    samples_show(&fl.attempts, "attempt_ms");
    if (fl.why[0])
        (void) fprintf(stderr, "fleetload: first refusal: %s\n", fl.why);
    fl.reporting = false;
    fl.parallel = fl.n; /* one that is lost later comes back by itself */
    command_done();
}

static void on_tick(uv_timer_t *t)
{
    int64_t now = now_us();
    bool waiting = fl.reporting;

    for (unsigned i = 0; i < fl.n; i++) {
        struct agent *a = &fl.v[i];
        if (a->state == IDLE && now >= a->due_us && fl.connecting < fl.parallel)
            agent_connect(a);
        else if ((a->state == CONNECTING || a->state == HELLO) && now - a->began_us > CONNECT_MAX_US) {
            a->link = link_close(a->link);
            agent_lost(a, "no answer for 20 s");
        } else if (a->state >= SYNCING && now >= a->beat_us) {
            a->beat_us += (int64_t) a->heartbeat_ms * 1000;
            send_heartbeat(a);
            link_flush(a->link);
        }
    }
    if (fl.provoking)
        provoke_due();
    if (waiting && fl.ready == fl.n)
        report_connected();
    if (fl.changing && now >= fl.until_us) {
        fl.changing = false;
        show("seconds", (double) (now - fl.began_us) / 1e6);
        show("changes", (double) fl.changed);
        command_done();
    }
    if (fl.committing && now >= fl.until_us) {
        fl.committing = false;
        show("seconds", (double) (now - fl.began_us) / 1e6);
        show("commits", (double) fl.committed);
        command_done();
    }
}

static void start_ticking(void)
{
    if (fl.ticking)
        return;
    fl.ticking = true;
    (void) uv_timer_init(load.loop, &fl.tick);
    (void) uv_timer_start(&fl.tick, on_tick, TICK_MS, TICK_MS);
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

static void begin_counting(void)
{
    fl.reporting = true;
    fl.refused = fl.lost = fl.tries = 0;
    fl.why[0] = '\0';
    fl.answers.n = fl.attempts.n = 0;
    fl.began_us = now_us();
}

/* agents n=N jobs=J nodes=M running=0|1 parallel=P: connects those that are not, and waits until all are. */
void cmd_agents(void)
{
    unsigned n = (unsigned) arg("n", 1);
    char uri[64], id[32];

    if (!fl.v) {
        fl.v = calloc(20000, sizeof(*fl.v));
        fl.jobs = (unsigned) arg("jobs", 0);
        fl.nodes = (unsigned) arg("nodes", 0);
        fl.running_only = arg("running", 0) != 0;
    }
    if (!fl.v || n > 20000)
        die("at most 20000 agents");
    for (; fl.n < n; fl.n++) {
        struct agent *a = &fl.v[fl.n];
        a->index = fl.n;
        (void) snprintf(uri, sizeof(uri), "advisor:agent:%s", cluster_id(fl.n, id));
        a->cert = link_env_issue(&load.env, uri);
        make_slots(a);
    }
    fl.parallel = (unsigned) arg("parallel", 16);
    begin_counting();
    start_ticking();
}

/* storm: cuts all connections at once; all agents come back at once. */
void cmd_storm(void)
{
    begin_counting();
    for (unsigned i = 0; i < fl.n; i++) {
        struct agent *a = &fl.v[i];
        a->link = link_close(a->link);
        a->session = a->logs = NULL;
        a->state = IDLE;
        a->attempts = 0;
        a->due_us = 0;
        a->known = true;
    }
    fl.ready = fl.connecting = 0;
    fl.parallel = fl.n;
    for (unsigned i = 0; i < fl.n; i++)
        agent_connect(&fl.v[i]);
}

/* changes seconds=S batch=B agents=A: A agents send updates of B changed jobs, each when the last one is durable. */
void cmd_changes(void)
{
    fl.batch = (unsigned) arg("batch", 100);
    fl.changers = (unsigned) arg("agents", fl.n);
    fl.changed = 0;
    fl.changing = true;
    fl.began_us = now_us();
    fl.until_us = fl.began_us + arg("seconds", 5) * 1000000;
    for (unsigned i = 0; i < fl.changers && i < fl.n; i++)
        if (!fl.v[i].changes_due) {
            send_changes(&fl.v[i]);
            link_flush(fl.v[i].link);
        }
}

/* commits seconds=S agents=A window=W: A agents report a new status of their advice, W at a time each. */
void cmd_commits(void)
{
    fl.committers = (unsigned) arg("agents", 1);
    fl.window = (unsigned) arg("window", 1);
    fl.committed = 0;
    fl.committing = true;
    fl.began_us = now_us();
    fl.until_us = fl.began_us + arg("seconds", 5) * 1000000;
    for (unsigned i = 0; i < fl.committers && i < fl.n; i++) {
        struct agent *a = &fl.v[i];
        if (!a->advice[0])
            die("agent %u has no advice yet: \"advice hold=1\" first", i);
        a->acked = a->seq; /* what an earlier command left on its way is not counted */
        while (a->seq - a->acked < fl.window)
            send_status(a, a->advice, a->advice_gen, ADVISOR__V1__DISPOSITION__DISPOSITION_PENDING);
        link_flush(a->link);
    }
}

/* ---- clusters --------------------------------------------------------------------------------------------------- */

static struct {
    unsigned n;
    bool modes;
    int mode;
} making;

static void clusters_done(void *ctx, unsigned long n, const char *failed);

static bool next_cluster(void *ctx, unsigned long i, const uint8_t **bytes, size_t *len)
{
    Advisor__V1__CreateClusterRequest c = ADVISOR__V1__CREATE_CLUSTER_REQUEST__INIT;
    Advisor__V1__SetClusterModeRequest m = ADVISOR__V1__SET_CLUSTER_MODE_REQUEST__INIT;
    char id[32], name[64];

    if (i >= making.n)
        return false;
    (void) snprintf(name, sizeof(name), "clusters/%s", cluster_id((unsigned) i, id));
    c.cluster_id = id;
    m.name = name;
    m.mode = (Advisor__V1__Mode) making.mode;
    *bytes = pack(making.modes ? &m.base : &c.base, len);
    return true;
}

static const struct burst_ops cluster_ops = { next_cluster, clusters_done };

static void clusters_done(void *ctx, unsigned long n, const char *failed)
{
    if (failed)
        die("making clusters: %s", failed);
    if (!making.modes) {
        making.modes = true;
        burst(&load.env, load.admin, "/advisor.v1.FleetService/SetClusterMode", 64, &cluster_ops, NULL, NULL);
        return;
    }
    command_done();
}

/* clusters n=N mode=M: registers N clusters and sets their mode. */
void cmd_clusters(void)
{
    making.n = (unsigned) arg("n", 1);
    making.mode = (int) arg("mode", ADVISOR__V1__MODE__MODE_ACT);
    making.modes = false;
    burst(&load.env, load.admin, "/advisor.v1.FleetService/CreateCluster", 64, &cluster_ops, NULL, NULL);
}
