/* SPDX-License-Identifier: Apache-2.0 */
/* Events → domain → commit → expose; see turn.h for the contract.
 *
 * States: idle (memory equals store), committing (one transaction under way, or what others wrote before it is being
 * read), polling (a shared store: what others wrote is being read), offline (a commit or poll failed; the store is loaded
 * again, by timer), stopping. Events that arrive meanwhile form the next turn: that is the group commit.
 *
 * With a shared store the numbers of a turn's changes may have others before them. Those are read and applied first, so
 * that the change log has no gap and no watcher sees the later before the earlier. */

#include "controlplane/turn.h"

#include <stdio.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/utf8.h"
#include "common/uuid.h"

#define TURN_MAX_EVENTS  512
#define TURN_MAX_CHANGES 20000 /* a turn takes no further event beyond: one transaction stays some megabytes */
#define RELOAD_RETRY_MS 1000
#define REFUSE_US       2000000 /* a full or read-only store is loaded, and read from for so long before the next write is tried */
#define LOOK_MS         500 /* a store of our own: whether it is still the one that its name leads to */
#define POLL_MS         200 /* how old what other replicas wrote may be here */
/* Older than this, and the process or the host has stood still: nothing is answered before the store was asked again. */
#define FRESH_MAX_US    (2 * 1000000LL)

enum turn_state { TURN_IDLE, TURN_COMMITTING, TURN_POLLING, TURN_OFFLINE, TURN_STOPPED };

struct read_waiter {
    turn_read_cb cb;
    void *arg;
    uint64_t seq; /* memory must have got that far */
    struct read_waiter *prev, *next;
};

struct turn {
    uv_loop_t *loop;
    struct store *st;
    struct fleet_config cfg;
    struct fleet *fleet;
    struct watchlog watchlog;
    struct fleet *next_fleet; /* being loaded */
    struct watchlog next_watchlog;
    bool loading;
    struct adv_err load_err; /* of the first load */
    enum turn_state state;
    bool running; /* inside turn_run(): callbacks may submit */
    bool stopping;
    struct turn_event *queue;   /* waiting */
    struct turn_event *current; /* in the turn under way */
    struct intents intents;
    struct read_waiter *reads;
    struct turn_observer *observers;
    uv_timer_t deadline; /* next EV_TICK */
    uv_timer_t retry;
    uv_timer_t poll; /* of a shared store; a look at one of our own */
    bool looking;
    bool poll_again; /* there was more than one answer holds */
    int64_t asked_us; /* when the load, poll or commit under way was sent, by CLOCK_BOOTTIME */
    int64_t fresh_us; /* shared stores: memory is what the store was at that time, or later */
    bool failing;        /* turn_fail() was called */
    struct adv_err fail;
    uint64_t commit_seq; /* of the turn's first change, while what came before it is being read */
    const struct turn_handoffs *handoffs;
    void *handoffs_arg;
    uv_idle_t kick; /* runs the turn from the loop, never from within turn_submit() */
    struct turn_event tick;
    bool tick_queued;
    char why[160]; /* the store is away */
    const char *why_reason;
    bool outcome_open; /* of the transaction that just failed: it may be stored */
    int64_t refuse_until_us; /* by CLOCK_BOOTTIME: no event is taken before, as the store could not be written */
    int handles;   /* to be closed */
    void (*stop_done)(void *);
    void *stop_arg;
};

static void turn_run(struct turn *t);
static void maybe_stopped(struct turn *t);
static void go_offline(struct turn *t, const struct adv_err *why);
static void retry_cb(uv_timer_t *h);

/* What a caller is told: people look elsewhere for room than for a server. */
static const char *reason_of(const struct adv_err *why)
{
    if (adv_streq(str_or(why->reason), "STORE_FULL"))
        return "STORE_FULL";
    if (adv_streq(str_or(why->reason), "STORE_READ_ONLY"))
        return "STORE_READ_ONLY";
    if (adv_streq(str_or(why->reason), "STORE_REPLACED"))
        return "STORE_REPLACED";
    return "STORE_UNAVAILABLE";
}

static void set_unavailable(const struct turn *t, struct adv_err *err)
{
    if (t->stopping) {
        (void) adv_err_set_reason(err, ADV_UNAVAILABLE, "STOPPING", "the control plane is stopping; come back");
    } else {
        (void) adv_err_set_reason(err, ADV_UNAVAILABLE, t->why_reason, "the store is not available (%s); try again", t->why);
    }
    err->retry_after_ms = RELOAD_RETRY_MS;
}

static void set_why(struct turn *t, const struct adv_err *why)
{
    t->why_reason = reason_of(why);
    (void) snprintf(t->why, sizeof(t->why), "%.*s", (int) adv_utf8_cut(why->msg, strlen(why->msg), 150), why->msg);
}

/* The store could be read when it failed last, but not written. */
static bool cannot_write(const struct turn *t)
{
    return adv_streq(t->why_reason, "STORE_FULL") || adv_streq(t->why_reason, "STORE_READ_ONLY");
}

static int64_t refuse_left_us(const struct turn *t)
{
    int64_t left_us = t->refuse_until_us ? t->refuse_until_us - adv_boot_us() : 0;

    return left_us > 0 ? left_us : 0;
}

static void kick_cb(uv_idle_t *h)
{
    (void) uv_idle_stop(h);
    turn_run(h->data);
}

static void kick(struct turn *t)
{
    if (!t->running)
        (void) uv_idle_start(&t->kick, kick_cb);
}

static void tick_done(struct turn_event *te, const struct adv_err *err)
{
    struct turn *t = ADV_CONTAINER_OF(te, struct turn, tick);

    (void) err;
    t->tick_queued = false;
}

static void deadline_cb(uv_timer_t *h)
{
    struct turn *t = h->data;

    if (t->tick_queued || t->state == TURN_OFFLINE || t->stopping)
        return;
    t->tick = (struct turn_event) { .ev = { .type = EV_TICK }, .done = tick_done };
    t->tick_queued = true;
    turn_submit(t, &t->tick);
}

static void arm_deadline(struct turn *t)
{
    int64_t wait_us = fleet_wait_us(t->fleet, adv_wall_us(), adv_boot_us());

    if (wait_us < 0 || t->tick_queued || t->stopping) {
        (void) uv_timer_stop(&t->deadline);
        return;
    }
    if (wait_us < refuse_left_us(t))
        wait_us = refuse_left_us(t);
    (void) uv_timer_start(&t->deadline, deadline_cb, (uint64_t) (wait_us / 1000) + 1, 0);
}

static void load_cb(void *arg, const struct adv_err *err)
{
    struct turn_observer *o, *next;
    struct turn *t = arg;

    t->loading = false;
    if (err) {
        if (t->load_err.code == ADV_OK)
            t->load_err = *err;
        t->next_fleet = fleet_free(t->next_fleet);
        watchlog_done(&t->next_watchlog);
        if (t->fleet && !t->stopping) {
            adv_warn("turn", "store still unavailable, will retry", ADV_FS("error", err->msg),
                     ADV_FI("retry_ms", RELOAD_RETRY_MS));
            (void) uv_timer_start(&t->retry, retry_cb, RELOAD_RETRY_MS, 0);
        }
        maybe_stopped(t);
        return;
    }
    fleet_load_done(t->next_fleet, !store_shared(t->st), adv_wall_us(), adv_boot_us());
    (void) fleet_free(t->fleet);
    watchlog_done(&t->watchlog);
    t->fleet = ADV_STEAL(t->next_fleet);
    t->watchlog = t->next_watchlog;
    t->next_watchlog = (struct watchlog) { 0 };
    t->fleet->next_uid = t->watchlog.last;
    t->fresh_us = t->asked_us;
    t->state = TURN_IDLE;
    t->refuse_until_us = cannot_write(t) ? adv_boot_us() + REFUSE_US : 0;
    adv_info("turn", "state loaded from the store");
    t->running = true;
    DL_FOREACH_SAFE (t->observers, o, next)
        if (o->loaded)
            o->loaded(o);
    t->running = false;
    turn_run(t);
}

/* Drops nothing: the fleet that was shown last stays until the new one is whole. */
static void start_load(struct turn *t)
{
    struct adv_err err = { 0 };

    t->loading = true;
    t->asked_us = adv_boot_us();
    t->next_fleet = fleet_new(&t->cfg);
    t->next_watchlog = (struct watchlog) { 0 };
    if (t->next_fleet) {
        store_load(t->st, t->next_fleet, &t->next_watchlog, load_cb, t);
        return;
    }
    (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
    load_cb(t, &err);
}

static void retry_cb(uv_timer_t *h)
{
    start_load(h->data);
}

/* With @err all; without, those whose change has been seen. One of them may find out that memory cannot be trusted: from
 * there on none is answered from it. */
static void run_reads(struct turn *t, const struct adv_err *err)
{
    struct read_waiter *w, *next, *list = t->reads, *later = NULL;
    struct adv_err failed = { 0 };

    t->reads = NULL;
    DL_FOREACH_SAFE (list, w, next) {
        if (!err && t->failing) {
            set_unavailable(t, &failed);
            err = &failed;
        }
        if (!err && w->seq > t->watchlog.last) {
            DL_DELETE(list, w);
            DL_APPEND(later, w);
            continue;
        }
        DL_DELETE(list, w);
        w->cb(w->arg, err);
        free(w);
    }
    DL_CONCAT(later, t->reads);
    t->reads = later;
}

static void finish_events(struct turn *t, const struct adv_err *err)
{
    struct turn_event *te, *next, *list = t->current;

    t->current = NULL;
    DL_FOREACH_SAFE (list, te, next)
        te->done(te, err ? err : te->failed ? &te->err : NULL);
}

static void fail_queue(struct turn *t)
{
    struct adv_err err = { 0 };

    set_unavailable(t, &err);
    DL_CONCAT(t->current, t->queue);
    t->queue = NULL;
    finish_events(t, &err);
}

static void go_offline(struct turn *t, const struct adv_err *why)
{
    struct adv_err err = { 0 }, open;
    struct turn_observer *o, *next;

    adv_error("turn", "the store failed: dropping memory and loading the store again", ADV_FS("error", why->msg));
    t->state = TURN_OFFLINE;
    t->failing = false;
    set_why(t, why);
    (void) uv_timer_stop(&t->deadline);
    intents_done(&t->intents);
    set_unavailable(t, &err);
    open = err;
    if (t->outcome_open && adv_streq(open.reason, "STORE_UNAVAILABLE"))
        open.reason = "STORE_OUTCOME_UNKNOWN"; /* of these alone: what waits was not tried */
    t->outcome_open = false;
    finish_events(t, &open);
    fail_queue(t);
    DL_FOREACH_SAFE (t->observers, o, next)
        o->reset(o);
    run_reads(t, &err);
    if (!t->stopping)
        (void) uv_timer_start(&t->retry, retry_cb, RELOAD_RETRY_MS, 0);
}

static bool is_fresh(const struct turn *t)
{
    return !store_shared(t->st) || adv_boot_us() - t->fresh_us <= FRESH_MAX_US;
}

static void tell_changed(struct turn *t)
{
    struct turn_observer *o, *next;

    DL_FOREACH_SAFE (t->observers, o, next)
        o->changed(o);
    if (is_fresh(t))
        run_reads(t, NULL); /* else after the next poll */
}

static void expose(struct turn *t)
{
    intents_done(&t->intents);
    t->state = TURN_IDLE;
    finish_events(t, NULL);
    tell_changed(t);
}

/* ---- what others wrote ------------------------------------------------------------------------------------------ */

/* Applies changes of the store to memory and to the change log. Objects come as they are now, so their order among each
 * other does not matter, but that an owner has to be there first. */
static int follow(struct turn *t, const struct store_news *news, struct adv_err *err)
{
    int r = 0;

    for (int kind = RESOURCE_CLUSTER; kind < RESOURCE_ATTEMPT; kind++)
        for (size_t i = 0; r == 0 && i < news->n_changes; i++)
            if ((int) news->changes[i].kind == kind)
                r = store_follow(t->fleet, &news->changes[i], err);
    for (size_t i = 0; r == 0 && i < news->n_changes; i++) {
        const struct store_change *ch = &news->changes[i];
        if (ch->kind >= RESOURCE_ATTEMPT)
            r = store_follow(t->fleet, ch, err);
        if (r == 0 && watchlog_append(&t->watchlog, ch->seq, ch->revision, ch->kind, ch->cluster, ch->key) < 0)
            r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    return r;
}

static void poll_cb(void *arg, const struct store_news *news, const struct adv_err *err)
{
    struct turn *t = arg;
    struct adv_err e = { 0 };

    if (!err && follow(t, news, &e) < 0)
        err = &e;
    if (err) {
        go_offline(t, err);
        turn_run(t);
        return;
    }
    t->state = TURN_IDLE;
    t->fresh_us = t->asked_us;
    t->poll_again = news->more;
    t->running = true; /* callbacks may submit; turn_run() takes it up */
    if (news->n_changes)
        tell_changed(t);
    run_reads(t, NULL); /* newer there is nothing, however long it took */
    if (t->handoffs && !t->stopping && !t->failing) {
        for (size_t i = 0; i < news->n_todo; i++)
            t->handoffs->todo(t->handoffs_arg, &news->todo[i]);
        for (size_t i = 0; i < news->n_answers; i++)
            t->handoffs->answer(t->handoffs_arg, &news->answers[i]);
    }
    t->running = false;
    turn_run(t);
}

static void start_poll(struct turn *t)
{
    t->state = TURN_POLLING;
    t->poll_again = false;
    t->asked_us = adv_boot_us();
    store_poll(t->st, t->watchlog.last, 0, poll_cb, t);
}

static void poll_timer_cb(uv_timer_t *h)
{
    struct turn *t = h->data;

    if (t->state == TURN_IDLE && !t->running && !t->stopping && !t->failing)
        start_poll(t);
    else
        t->poll_again = true;
}

static void look_cb(void *arg, const struct adv_err *err)
{
    struct turn *t = arg;

    t->looking = false;
    if (err && t->state == TURN_IDLE && !t->stopping && !t->failing)
        go_offline(t, err);
    turn_run(t);
}

/* Heartbeats extend leases without a write: they, too, must end when another file has taken the store's place. */
static void look_timer_cb(uv_timer_t *h)
{
    struct turn *t = h->data;

    if (t->state != TURN_IDLE || t->stopping || t->looking)
        return;
    t->looking = true;
    store_look(t->st, look_cb, t);
}

static void set_revision(const struct intent *i, uint64_t rev)
{
    switch (i->kind) {
    case RESOURCE_JOB:
        ((struct job *) i->object)->revision = rev;
        break;
    case RESOURCE_ATTEMPT:
        ((struct attempt *) i->object)->revision = rev;
        break;
    case RESOURCE_ANOMALY:
        ((struct anomaly *) i->object)->revision = rev;
        break;
    case RESOURCE_ADVICE: {
        struct advice *ad = i->object;
        ad->revision = rev;
        if (ad->open && !ad->order_rev)
            ad->order_rev = rev;
        break;
    }
    case RESOURCE_ACTION:
        ((struct action *) i->object)->revision = rev;
        break;
    case RESOURCE_NODE:
        ((struct node *) i->object)->revision = rev;
        break;
    case RESOURCE_EXCLUSION:
    case RESOURCE_INCIDENT:
    case RESOURCE_WINDOW:
    case RESOURCE_POLICY:
    case RESOURCE_CHECKPOINT:
        ((struct entry *) i->object)->revision = rev;
        break;
    case RESOURCE_EVIDENCE:
        ((struct evidence *) i->object)->revision = rev;
        break;
    case RESOURCE_ENROLMENT:
        ((struct enrolment *) i->object)->revision = rev;
        break;
    case RESOURCE_REVOCATION:
        ((struct revocation *) i->object)->revision = rev;
        break;
    case RESOURCE_CLUSTER:
    case RESOURCE_AUDIT:
    case RESOURCE_NONE:
    case RESOURCE_KIND_END_:
        break;
    }
}

/* Names of crash tests for "the turn that writes such a thing". */
static void record_points(const struct intents *in)
{
    for (size_t i = 0; i < in->n; i++) {
        switch (in->v[i].kind) {
        case RESOURCE_ANOMALY:
            ADV_FAILPOINT("turn.record_anomaly");
            break;
        case RESOURCE_ADVICE:
            ADV_FAILPOINT("turn.record_advice");
            break;
        case RESOURCE_ACTION:
            ADV_FAILPOINT("turn.record_action");
            break;
        default:
            break;
        }
    }
}

static const char *intent_key(const struct intent *it, char buf[RESOURCE_KEY_MAX])
{
    return it->object ? resource_key(it->kind, it->object, buf) : str_or(it->gone_key);
}

/* What @te is about; NULL when it is of no cluster in particular, or of one that is not owned here. */
static struct cluster *owned_cluster_of(const struct turn *t, const struct turn_event *te)
{
    struct cluster *c = te->ev.type == EV_POLICY_APPLY ? t->fleet->global : fleet_find_any_cluster(t->fleet, te->ev.cluster);

    return c && c->owned && !c->unborn && !te->failed ? c : NULL;
}

/* That something is so and need not be changed is only worth something from the owner. (That it is refused changes nothing
 * anywhere, whoever says it.) */
static bool anything_to_guard(const struct turn *t)
{
    const struct turn_event *te;

    if (store_shared(t->st))
        DL_FOREACH (t->current, te)
            if (owned_cluster_of(t, te))
                return true;
    return false;
}

/* Numbers what changed and writes it down: objects first, cluster rows last, since numbering changes them. */
static void record(struct turn *t, struct store_txn *txn)
{
    struct intents *in = &t->intents;
    const struct turn_event *te;
    char key[RESOURCE_KEY_MAX];
    struct cluster *c;

    for (size_t i = 0; i < in->n; i++) {
        c = in->v[i].cluster;
        if (c->guarded)
            continue;
        c->guarded = true;
        if (c->unborn)
            store_txn_own(txn, c);
        else
            store_txn_guard(txn, c);
    }
    DL_FOREACH (t->current, te) {
        c = owned_cluster_of(t, te);
        if (!c || c->guarded)
            continue;
        c->guarded = true;
        store_txn_guard(txn, c);
    }
    for (size_t i = 0; i < in->n; i++) {
        struct intent *it = &in->v[i];
        const char *own = intent_key(it, key);
        it->cluster->revision++;
        if (!it->object) {
            store_txn_delete(txn, it->kind, it->cluster->name, own);
        } else {
            set_revision(it, it->cluster->revision);
            if (it->kind != RESOURCE_CLUSTER)
                store_txn_put(txn, it->kind, it->cluster->name, it->object);
        }
        store_txn_change(txn, it->cluster->revision, it->kind, it->cluster->name, own);
    }
    for (size_t i = 0; i < in->n_audit; i++) {
        in->audit[i].cluster->revision++;
        store_txn_audit(txn, in->audit[i].cluster->revision, &in->audit[i]);
    }
    for (size_t i = 0; i < in->n_audit_changes; i++) {
        const struct audit_change *ch = &in->audit_changes[i];
        if (ch->erase_below)
            store_txn_audit_erase(txn, ch->cluster->name, ch->erase_below);
        if (ch->cut_through)
            store_txn_audit_cut(txn, ch->cluster->name, ch->cut_through);
    }
    for (size_t i = 0; i < in->n_requests; i++)
        store_txn_request(txn, &in->requests[i]);
    for (size_t i = 0; i < in->n; i++) {
        c = in->v[i].cluster;
        if (!c->guarded)
            continue; /* an earlier intent's, too */
        c->guarded = false;
        store_txn_put(txn, RESOURCE_CLUSTER, c->name, c);
    }
    DL_FOREACH (t->current, te)
        if ((c = owned_cluster_of(t, te)))
            c->guarded = false;
}

/* What was made by the transaction exists from now on, and is owned from now on. */
static void end_births(struct turn *t)
{
    for (size_t i = 0; i < t->intents.n; i++) {
        struct cluster *c = t->intents.v[i].cluster;
        if (!c->unborn)
            continue;
        c->unborn = false;
        c->owned_since_us = adv_boot_us();
    }
}

/* What was committed becomes the newest part of the change log, from number @seq on, in the order of record(). */
static int show_changes(struct turn *t, uint64_t seq)
{
    const struct intents *in = &t->intents;
    uint64_t revision;
    char key[RESOURCE_KEY_MAX];
    int r = 0;

    for (size_t i = in->n; i-- > 0;)
        in->v[i].cluster->shown_revision = in->v[i].cluster->revision; /* counted back below */
    for (size_t i = 0; i < in->n; i++)
        in->v[i].cluster->shown_revision--;
    for (size_t i = 0; i < in->n_audit; i++)
        in->audit[i].cluster->shown_revision--;
    for (size_t i = 0; r == 0 && i < in->n; i++) {
        revision = ++in->v[i].cluster->shown_revision;
        r = watchlog_append(&t->watchlog, seq++, revision, in->v[i].kind, in->v[i].cluster->name,
                            intent_key(&in->v[i], key));
    }
    for (size_t i = 0; r == 0 && i < in->n_audit; i++) {
        revision = ++in->audit[i].cluster->shown_revision;
        (void) snprintf(key, sizeof(key), "%llu", (unsigned long long) in->audit[i].seq);
        r = watchlog_append(&t->watchlog, seq++, revision, RESOURCE_AUDIT, in->audit[i].cluster->name, key);
    }
    return r;
}

static void commit_done(struct turn *t, const struct adv_err *err)
{
    struct adv_err oom = { 0 };

    if (!err && show_changes(t, t->commit_seq) < 0) {
        (void) adv_err_set(&oom, ADV_RESOURCE_EXHAUSTED, "no memory");
        err = &oom;
    }
    if (err) {
        go_offline(t, err);
        turn_run(t);
        return;
    }
    t->outcome_open = false;
    ADV_FAILPOINT("turn.after_commit");
    t->fresh_us = t->asked_us; /* what others had written before it was followed */
    end_births(t);
    t->running = true; /* callbacks may submit; the loop below takes it up */
    expose(t);
    t->running = false;
    turn_run(t);
}

static void gap_cb(void *arg, const struct store_news *news, const struct adv_err *err)
{
    struct turn *t = arg;
    struct adv_err e = { 0 };

    if (!err && follow(t, news, &e) < 0)
        err = &e;
    if (!err && t->watchlog.last + 1 < t->commit_seq)
        store_poll(t->st, t->watchlog.last, t->commit_seq - 1, gap_cb, t);
    else
        commit_done(t, err);
}

static void commit_cb(void *arg, uint64_t first_seq, const struct adv_err *err)
{
    struct turn *t = arg;
    struct adv_err e = { 0 };

    t->commit_seq = first_seq;
    /* What was committed is stored, even if what others wrote before it cannot be read now. */
    t->outcome_open = !err || adv_streq(str_or(err->reason), "STORE_OUTCOME_UNKNOWN");
    if (!err && store_shared(t->st) && first_seq <= t->watchlog.last) {
        (void) adv_err_set_reason(&e, ADV_ABORTED, "STORE_REPLACED",
                                  "store: it gave out number %llu, although %llu is known: its history is not the one known here",
                                  (unsigned long long) first_seq, (unsigned long long) t->watchlog.last);
        err = &e;
    }
    if (!err && first_seq > t->watchlog.last + 1)
        store_poll(t->st, t->watchlog.last, first_seq - 1, gap_cb, t);
    else
        commit_done(t, err);
}

static void start_commit(struct turn *t)
{
    struct store_txn *txn = store_txn_new(t->st);
    struct adv_err err = { 0 };

    if (txn && !t->intents.oom)
        record(t, txn);
    if (!txn || t->intents.oom) {
        store_txn_free(txn);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        go_offline(t, &err);
        return;
    }
    record_points(&t->intents);
    ADV_FAILPOINT("turn.before_commit");
    t->state = TURN_COMMITTING;
    t->asked_us = adv_boot_us();
    store_commit(t->st, txn, commit_cb, t);
}

/* Whether the call behind @ev was carried out before: 1 yes, 0 no, or the error of an id used for two things. */
static int seen_before(const struct turn *t, const struct event *ev, struct adv_err *err)
{
    const char *was = NULL;
    char hash[65];

    if (!ev->request_id || !*ev->request_id)
        return 0;
    for (size_t i = 0; i < t->intents.n_requests; i++)
        if (adv_streq(str_or(t->intents.requests[i].request_id), ev->request_id))
            was = t->intents.requests[i].hash;
    if (!was && store_find_request(t->st, ev->request_id, hash) == 0)
        was = hash;
    if (!was)
        return 0;
    if (adv_streq(was, str_or(ev->request_hash)))
        return 1;
    return adv_err_set_reason(err, ADV_ALREADY_EXISTS, "REQUEST_ID_REUSED", "request_id: it was used for another request");
}

static int apply_one(struct turn *t, struct turn_event *te)
{
    struct turn_order *order = te->order;
    int r;

    if (order && order->code)
        return adv_err_set_reason(&te->err, order->code, order->reason, "what came before it was refused");
    r = seen_before(t, &te->ev, &te->err);
    if (r == 0)
        r = fleet_apply(t->fleet, &te->ev, &t->intents, &te->err);
    if (r < 0 && order)
        *order = (struct turn_order) { te->err.code, te->err.reason };
    return r;
}

static void apply_queue(struct turn *t)
{
    int64_t now_us = adv_wall_us(), mono_us = adv_boot_us();
    uint8_t seed[sizeof(t->queue->ev.seed)];
    size_t n = 0;

    intents_init(&t->intents);
    if (adv_random(seed, sizeof(seed), NULL) < 0)
        t->intents.oom = true; /* nothing may be guessable */
    while (t->queue && n++ < TURN_MAX_EVENTS && t->intents.n < TURN_MAX_CHANGES && !t->intents.oom) {
        struct turn_event *te = t->queue;
        DL_DELETE(t->queue, te);
        DL_APPEND(t->current, te);
        te->ev.now_us = now_us;
        te->ev.mono_us = mono_us;
        memcpy(te->ev.seed, seed, sizeof(seed));
        te->failed = apply_one(t, te) < 0;
    }
}

static void maybe_stopped(struct turn *t)
{
    struct adv_err err = { 0 };

    if (!t->stopping || t->state == TURN_COMMITTING || t->state == TURN_POLLING || t->state == TURN_STOPPED ||
        t->loading || t->looking)
        return;
    t->state = TURN_STOPPED;
    set_unavailable(t, &err);
    DL_CONCAT(t->current, t->queue);
    t->queue = NULL;
    finish_events(t, &err);
    run_reads(t, &err);
    (void) uv_timer_stop(&t->deadline);
    (void) uv_timer_stop(&t->retry);
    (void) uv_timer_stop(&t->poll);
    (void) uv_idle_stop(&t->kick);
    t->stop_done(t->stop_arg);
}

static void turn_run(struct turn *t)
{
    if (t->running)
        return;
    t->running = true;
    if (t->failing && t->state == TURN_IDLE)
        go_offline(t, &t->fail);
    if (t->state == TURN_IDLE && t->queue && refuse_left_us(t))
        fail_queue(t);
    while (t->state == TURN_IDLE && t->queue && !t->stopping && !t->failing && !refuse_left_us(t)) {
        apply_queue(t);
        if (t->intents.n || t->intents.n_audit || t->intents.n_requests || t->intents.oom || anything_to_guard(t))
            start_commit(t);
        else
            expose(t);
    }
    if (t->state == TURN_IDLE && is_fresh(t))
        run_reads(t, NULL);
    if (t->state == TURN_IDLE && t->failing)
        go_offline(t, &t->fail);
    if (t->state == TURN_IDLE) {
        arm_deadline(t);
        if (t->poll_again && !t->stopping)
            start_poll(t);
    } else if (t->state == TURN_OFFLINE) {
        fail_queue(t);
    }
    t->running = false;
    maybe_stopped(t);
    if ((t->state == TURN_OFFLINE || refuse_left_us(t)) && t->queue)
        kick(t); /* submitted by a callback that was just told no: it hears the same from the loop */
}

void turn_submit(struct turn *t, struct turn_event *te)
{
    struct adv_err err = { 0 };

    te->failed = false;
    te->err = (struct adv_err) { 0 };
    if (t->state == TURN_STOPPED) {
        set_unavailable(t, &err);
        te->done(te, &err);
        return;
    }
    DL_APPEND(t->queue, te);
    kick(t);
}

void turn_read_after(struct turn *t, uint64_t seq, turn_read_cb cb, void *arg)
{
    struct adv_err err = { 0 };
    struct read_waiter *w;

    if (t->state == TURN_IDLE && !t->running && !t->stopping && !t->failing && t->watchlog.last >= seq && is_fresh(t)) {
        cb(arg, NULL);
        return;
    }
    set_unavailable(t, &err);
    if (t->state == TURN_OFFLINE || t->state == TURN_STOPPED || t->stopping || t->failing || !(w = calloc(1, sizeof(*w)))) {
        cb(arg, &err);
        return;
    }
    w->cb = cb;
    w->arg = arg;
    w->seq = seq;
    DL_APPEND(t->reads, w);
    t->poll_again |= t->watchlog.last < seq || !is_fresh(t);
    kick(t);
}

void turn_read(struct turn *t, turn_read_cb cb, void *arg)
{
    turn_read_after(t, 0, cb, arg);
}

void turn_fail(struct turn *t, const struct adv_err *why)
{
    if (t->failing)
        return;
    t->failing = true;
    t->fail = *why;
    set_why(t, why);
    (void) uv_idle_start(&t->kick, kick_cb);
}

void turn_rearm(struct turn *t)
{
    if (t->state == TURN_IDLE && !t->running)
        arm_deadline(t);
}

void turn_set_handoffs(struct turn *t, const struct turn_handoffs *h, void *arg)
{
    t->handoffs = h;
    t->handoffs_arg = arg;
}

void turn_observe(struct turn *t, struct turn_observer *o)
{
    DL_APPEND(t->observers, o);
}

void turn_unobserve(struct turn *t, struct turn_observer *o)
{
    DL_DELETE(t->observers, o);
}

struct fleet *turn_fleet(struct turn *t)
{
    return t->fleet;
}

const struct watchlog *turn_watchlog(const struct turn *t)
{
    return &t->watchlog;
}

struct store *turn_store(struct turn *t)
{
    return t->st;
}

bool turn_ready(const struct turn *t)
{
    return t->state != TURN_OFFLINE && t->state != TURN_STOPPED && !t->stopping;
}

bool turn_takes_events(const struct turn *t)
{
    return turn_ready(t) && !refuse_left_us(t);
}

int turn_new(uv_loop_t *loop, struct store *st, const struct fleet_config *cfg, struct turn **ret, struct adv_err *err)
{
    struct turn *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    t->loop = loop;
    t->st = st;
    t->cfg = *cfg;
    t->state = TURN_OFFLINE;
    (void) snprintf(t->why, sizeof(t->why), "starting");
    t->why_reason = "STORE_UNAVAILABLE";
    (void) uv_timer_init(loop, &t->deadline);
    (void) uv_timer_init(loop, &t->retry);
    (void) uv_timer_init(loop, &t->poll);
    (void) uv_idle_init(loop, &t->kick);
    t->deadline.data = t->retry.data = t->poll.data = t->kick.data = t;
    t->handles = 4;
    start_load(t);
    while (t->loading)
        (void) uv_run(loop, UV_RUN_ONCE);
    if (t->state == TURN_IDLE) {
        if (store_shared(st))
            (void) uv_timer_start(&t->poll, poll_timer_cb, POLL_MS, POLL_MS);
        else
            (void) uv_timer_start(&t->poll, look_timer_cb, LOOK_MS, LOOK_MS);
        *ret = t;
        return 0;
    }
    if (err)
        *err = t->load_err;
    r = -(int) t->load_err.code;
    turn_free(t);
    (void) uv_run(loop, UV_RUN_NOWAIT);
    return r;
}

void turn_stop(struct turn *t, void (*done)(void *arg), void *arg)
{
    t->stopping = true;
    t->stop_done = done;
    t->stop_arg = arg;
    kick(t);
}

static void closed_cb(uv_handle_t *h)
{
    struct turn *t = h->data;

    if (--t->handles)
        return; /* libuv still has the others on its list */
    (void) fleet_free(t->fleet);
    watchlog_done(&t->watchlog);
    free(t);
}

void turn_free(struct turn *t)
{
    if (!t)
        return;
    uv_close((uv_handle_t *) &t->deadline, closed_cb);
    uv_close((uv_handle_t *) &t->retry, closed_cb);
    uv_close((uv_handle_t *) &t->poll, closed_cb);
    uv_close((uv_handle_t *) &t->kick, closed_cb);
}
