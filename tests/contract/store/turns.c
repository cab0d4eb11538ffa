/* SPDX-License-Identifier: Apache-2.0 */
/* Turns and keepers of ownership over one shared store: whole replicas but for the wire, all in this process. What another
 * replica does at just the wrong moment is done by statements on the database. */

#include <inttypes.h>
#include <stdio.h>

#include "advisor/v1/fleet_service.pb-c.h"
#include "common/clock.h"
#include "controlplane/api/api.h"
#include "tests/contract/store/contract.h"

TestSuite(turns, .init = contract_setup, .fini = contract_teardown, .timeout = 120);

struct replica {
    struct store *st;
    struct turn *t;
    struct owner *o; /* NULL: it takes nothing */
    struct api *api; /* NULL: no calls */
    struct turn_observer observer;
    unsigned changed, resets, loads;
};

static void on_changed(struct turn_observer *o)
{
    ADV_CONTAINER_OF(o, struct replica, observer)->changed++;
}

static void on_reset(struct turn_observer *o)
{
    ADV_CONTAINER_OF(o, struct replica, observer)->resets++;
}

static void on_loaded(struct turn_observer *o)
{
    ADV_CONTAINER_OF(o, struct replica, observer)->loads++;
}

static void start(struct replica *r, const char *name, bool takes, bool calls)
{
    struct fleet_config cfg = { .lease_us = 1000000, .owner_lease_us = contract_config.owner_lease_us };
    struct adv_err err = { 0 };

    *r = (struct replica) { .st = must_open(name), .observer = { .changed = on_changed, .reset = on_reset, .loaded = on_loaded } };
    policy_defaults(&cfg.policy);
    cr_assert_eq(turn_new(&loop, r->st, &cfg, &r->t, &err), 0, "%s", err.msg);
    turn_observe(r->t, &r->observer);
    if (takes)
        cr_assert_eq(owner_new(&loop, r->t, &(struct owner_config) { contract_config.owner_lease_us }, &r->o, &err), 0, "%s", err.msg);
    if (calls)
        cr_assert_eq(api_new(&loop, r->t, NULL, &(struct api_config) { .owner = r->o, .max_sessions = 1 }, &r->api, &err), 0, "%s",
                     err.msg);
}

static void on_stopped(void *arg)
{
    *(bool *) arg = true;
}

static void stop(struct replica *r)
{
    bool stopped = false;

    if (r->api)
        api_stop(r->api);
    if (r->o) {
        owner_stop(r->o, on_stopped, &stopped);
        while (!stopped)
            (void) uv_run(&loop, UV_RUN_ONCE);
    }
    stopped = false;
    turn_stop(r->t, on_stopped, &stopped);
    while (!stopped)
        (void) uv_run(&loop, UV_RUN_ONCE);
    if (r->api)
        api_free(r->api);
    owner_free(r->o);
    turn_free(r->t);
    for (int i = 0; i < 10; i++)
        (void) uv_run(&loop, UV_RUN_NOWAIT);
    (void) store_close(r->st);
}

static void woken(uv_timer_t *h)
{
    (void) h;
}

/* Lets things happen until @cond holds. */
#define UNTIL(cond, ms)                                                                                                  \
    do {                                                                                                                 \
        int64_t end_us_ = adv_mono_us() + (ms) * 1000LL;                                                                 \
        uv_timer_t wake_;                                                                                                \
        (void) uv_timer_init(&loop, &wake_);                                                                             \
        (void) uv_timer_start(&wake_, woken, 5, 5);                                                                      \
        while (!(cond) && adv_mono_us() < end_us_)                                                                       \
            (void) uv_run(&loop, UV_RUN_ONCE);                                                                           \
        uv_close((uv_handle_t *) &wake_, NULL);                                                                          \
        (void) uv_run(&loop, UV_RUN_NOWAIT);                                                                             \
    } while (0)

#define WAIT_FOR(cond)                                                                                                   \
    do {                                                                                                                 \
        UNTIL(cond, 30000);                                                                                              \
        cr_assert(cond);                                                                                                 \
    } while (0)

struct call {
    struct turn_event te;
    int called, code;
};

static void on_event(struct turn_event *te, const struct adv_err *err)
{
    struct call *c = ADV_CONTAINER_OF(te, struct call, te);

    c->called++;
    c->code = err ? (int) err->code : 0;
}

static int apply(struct replica *r, const struct event *ev)
{
    struct call c = { .te = { .ev = *ev, .done = on_event } };

    turn_submit(r->t, &c.te);
    WAIT_FOR(c.called);
    return -c.code;
}

static const struct cluster *cluster_at(const struct replica *r, const char *name)
{
    return fleet_find_any_cluster(turn_fleet(r->t), name);
}

static bool owns(const struct replica *r, const char *name)
{
    const struct cluster *c = cluster_at(r, name);

    return c && c->owned && !c->unborn;
}

static void make(struct replica *r, const char *name)
{
    WAIT_FOR(owns(r, FLEET_CLUSTER));
    cr_assert_eq(apply(r, &(struct event) { .type = EV_CLUSTER_CREATE, .cluster = name }), 0);
}

/* One job of a full snapshot, which @follower sees, then the same one in another state, and so on: updates that come without
 * the cluster's own row. */
static void observe(struct replica *r, const struct replica *follower, const char *name, int times)
{
    struct event hello = { .type = EV_AGENT_HELLO, .cluster = name };

    hello.u.hello.instance_id = "i1";
    hello.u.hello.journal_id = "j1";
    hello.u.hello.serial = "";
    hello.u.hello.issued_s = INT64_MAX;
    hello.u.hello.ceiling = MODE_ACT;
    cr_assert_eq(apply(r, &hello), 0);
    for (int i = 0; i < times; i++) {
        struct job_obs o = { .job_id = "7", .state = JOB_RUNNING, .state_raw = "RUNNING", .submit_unix = 1000, .nodes = "n1",
                             .user = "u", .detail_known = true, .name = i % 2 ? "x" : "y", .comment = "", .hash = (uint64_t) i + 1 };
        struct event ev = { .type = EV_STATE_UPDATE, .cluster = name };
        ev.u.state.instance_id = "i1";
        ev.u.state.full_begin = ev.u.state.full_end = i == 0;
        ev.u.state.jobs = &o;
        ev.u.state.n_jobs = 1;
        ev.u.state.digest = o.hash;
        cr_assert_eq(apply(r, &ev), 0);
        if (i == 0)
            WAIT_FOR(turn_watchlog(follower->t)->last == turn_watchlog(r->t)->last);
    }
}

/* Who owns a cluster next goes on numbering where the one before it was, also when only its jobs had changed. */
Test(turns, revisions_rise_from_owner_to_owner)
{
    struct replica a, b;
    uint64_t last;

    start(&a, "one", true, false);
    start(&b, "two", false, false);
    make(&a, "alpha");
    observe(&a, &b, "alpha", 12);
    last = contract_number("SELECT MAX(revision) FROM changes WHERE cluster = 'alpha'");
    cr_assert_eq(cluster_at(&a, "alpha")->revision, last);
    WAIT_FOR(cluster_at(&b, "alpha") && turn_watchlog(b.t)->last == contract_number("SELECT last FROM sequence"));
    cr_assert_eq(cluster_at(&b, "alpha")->revision, last);
    stop(&a);
    stop(&b);
    start(&b, "two", true, false); /* which has loaded it */
    cr_assert_eq(cluster_at(&b, "alpha")->revision, contract_number("SELECT MAX(revision) FROM changes WHERE cluster = 'alpha'"));
    start(&a, "one", false, false);
    WAIT_FOR(owns(&b, "alpha"));
    observe(&b, &a, "alpha", 12);
    last = contract_number("SELECT last FROM sequence");
    WAIT_FOR(turn_watchlog(a.t)->last == last);
    stop(&b);
    cr_assert_eq(owner_new(&loop, a.t, &(struct owner_config) { contract_config.owner_lease_us }, &a.o, NULL), 0);
    WAIT_FOR(owns(&a, "alpha")); /* which has followed it */
    cr_assert_eq(apply(&a, &(struct event) { .type = EV_SET_MODE, .cluster = "alpha", .u.set_mode = { .mode = MODE_ACT } }), 0);
    cr_assert_eq(contract_number("SELECT COUNT(*) FROM (SELECT 1 FROM changes WHERE kind <> 0 GROUP BY cluster, revision"
                                 " HAVING COUNT(*) > 1) x"), 0);
    stop(&a);
}

/* Somebody else wrote what this replica believes to own: nobody is shown that, and memory is loaded anew. */
Test(turns, a_change_of_another_ends_the_belief_of_owning)
{
    struct replica a;
    unsigned changed;

    start(&a, "one", true, false);
    make(&a, "alpha");
    changed = a.changed;
    /* the keeper would find it out only at its next renewal, in ten seconds */
    contract_sql("UPDATE owners SET owner = 'two', epoch = epoch + 1 WHERE cluster = 'alpha';"
                 "UPDATE sequence SET last = last + 1;"
                 "INSERT INTO changes(seq, mark, cluster, revision, kind, `key`) SELECT last, 5, 'alpha', 1000, %d, '1' FROM sequence",
                 (int) RESOURCE_AUDIT);
    UNTIL(a.resets, 3000);
    cr_assert_eq(a.resets, 1);
    cr_assert_eq(a.changed, changed, "somebody was told of it");
    WAIT_FOR(a.loads);
    cr_assert_not(owns(&a, "alpha"));
    cr_assert_eq(cluster_at(&a, "alpha")->owner_epoch, 0);
    stop(&a);
}

struct read {
    const struct replica *r;
    int called;
    uint64_t last; /* change that memory had seen */
};

static void on_read(void *arg, const struct adv_err *err)
{
    struct read *rd = arg;

    rd->called++;
    rd->last = err ? UINT64_MAX : turn_watchlog(rd->r->t)->last;
}

/* A process that was stopped for a while does not answer from what it knew before. */
Test(turns, who_stood_still_asks_first)
{
    struct replica a, b;
    struct read rd = { .r = &b };

    start(&a, "one", true, false);
    make(&a, "alpha");
    stop(&a);
    start(&b, "two", false, false);
    turn_read(b.t, on_read, &rd);
    cr_assert_eq(rd.called, 1, "as a rule it answers at once");
    contract_sql("UPDATE sequence SET last = last + 1;"
                 "INSERT INTO changes(seq, mark, cluster, revision, kind, `key`) SELECT last, 5, 'alpha', 1000, %d, '9' FROM sequence;"
                 "DO SLEEP(2.5)", (int) RESOURCE_AUDIT); /* the loop stands still meanwhile */
    rd.called = 0;
    turn_read(b.t, on_read, &rd);
    WAIT_FOR(rd.called);
    cr_assert_eq(rd.last, contract_number("SELECT last FROM sequence"));
    stop(&b);
}

/* That nothing has to be changed is an answer that only the owner can give. */
Test(turns, an_event_that_changes_nothing_is_guarded)
{
    struct event gone = { .type = EV_AGENT_GONE, .cluster = "alpha", .u.gone = { .instance_id = "nobody", .why = "test" } };
    struct replica a;
    uint64_t last;

    start(&a, "one", true, false);
    make(&a, "alpha");
    make(&a, "beta");
    last = contract_number("SELECT last FROM sequence");
    cr_assert_eq(apply(&a, &gone), 0);
    cr_assert_eq(contract_number("SELECT last FROM sequence"), last, "nothing is written for it");
    contract_sql("UPDATE owners SET owner = 'two', epoch = epoch + 1 WHERE cluster = 'alpha'");
    cr_assert_eq(apply(&a, &gone), -ADV_UNAVAILABLE);
    WAIT_FOR(a.loads);
    WAIT_FOR(owns(&a, "beta"));
    cr_assert_not(owns(&a, "alpha"));
    stop(&a);
}

static void on_id(void *arg, uint64_t id, const struct adv_err *err)
{
    cr_assert_null(err, "%s", err ? err->msg : "");
    *(uint64_t *) arg = id;
}

/* A call that was handed over to the owner by the database, which does not know yet that it is that (it has just loaded, or
 * is claiming): it is left alone. Handed over once more it would be two calls, each with an id of its own. */
Test(turns, a_call_is_handed_over_once)
{
    Advisor__V1__SetClusterModeRequest q = ADVISOR__V1__SET_CLUSTER_MODE_REQUEST__INIT;
    uint8_t bytes[256];
    struct replica a, b;
    uint64_t id = 0;

    start(&a, "one", true, false);
    make(&a, "alpha");
    stop(&a);
    start(&a, "one", false, true);
    start(&b, "two", false, false);
    q.name = (char[]) { "clusters/alpha" };
    q.mode = ADVISOR__V1__MODE__MODE_ACT;
    cr_assert_lt(advisor__v1__set_cluster_mode_request__get_packed_size(&q), sizeof(bytes));
    contract_sql("UPDATE owners SET owner = 'one', epoch = epoch + 1, until_at = NOW(6) + INTERVAL 1 HOUR WHERE cluster = 'alpha'");
    store_hand_off(b.st, &(struct store_handoff) { .cluster = "alpha", .method = "/advisor.v1.FleetService/SetClusterMode",
                                                   .request = bytes,
                                                   .request_len = advisor__v1__set_cluster_mode_request__pack(&q, bytes),
                                                   .caller = "5 10:admin:root", .caller_len = 15 }, on_id, &id);
    WAIT_FOR(id);
    UNTIL(false, 1500);
    cr_assert_eq(contract_number("SELECT COUNT(*) FROM handoffs"), 1, "handed over once more");
    cr_assert_eq(contract_number("SELECT COUNT(*) FROM handoffs WHERE answered = 1"), 0, "answered by who does not own it");
    /* once it knows, it carries it out */
    cr_assert_eq(owner_new(&loop, a.t, &(struct owner_config) { contract_config.owner_lease_us }, &a.o, NULL), 0);
    WAIT_FOR(owns(&a, "alpha") && cluster_at(&a, "alpha")->mode == MODE_ACT);
    stop(&b);
    stop(&a);
}
