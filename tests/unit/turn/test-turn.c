/* SPDX-License-Identifier: Apache-2.0 */
/* The turn over a real SQLite file whose disk can be made to fail. What callbacks and observers see is compared with
 * what a second connection reads from the file: nothing may be shown that is not there. */

#include "tests/unit/store/sample.h"

#include <ftw.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "controlplane/turn.h"
#include "tests/unit/store/faultvfs.h"

static char dir[64], path[96];
static uv_loop_t loop;
static struct store *st;
static struct turn *t;
static sqlite3 *reader;
static uv_timer_t guard;

struct probe {
    struct turn_event te;
    char cluster[32], hash[8], request[16];
    int called, code;
    const char *reason;
    uint64_t order; /* of the answer */
};
static uint64_t answers;

struct watcher {
    struct turn_observer o;
    unsigned changed, reset;
};
static struct watcher seen;

static int rm(const char *name, const struct stat *sb, int flag, struct FTW *f)
{
    (void) sb, (void) flag, (void) f;
    return remove(name);
}

/* Every cluster in memory, with its revision, is in the file, and no other. */
static void nothing_unwritten(void)
{
    sqlite3_stmt *s = NULL;
    unsigned rows = 0;

    cr_assert_eq(sqlite3_prepare_v2(reader, "SELECT cluster, max(revision) FROM changes GROUP BY cluster", -1, &s, NULL),
                 SQLITE_OK, "%s", sqlite3_errmsg(reader));
    while (sqlite3_step(s) == SQLITE_ROW) {
        const struct cluster *c = fleet_find_cluster(turn_fleet(t), (const char *) sqlite3_column_text(s, 0));
        cr_assert(c);
        cr_assert_eq(c->revision, (uint64_t) sqlite3_column_int64(s, 1), "cluster %s: memory is at %llu, the file at %lld",
                     c->name, (unsigned long long) c->revision, (long long) sqlite3_column_int64(s, 1));
        rows++;
    }
    (void) sqlite3_finalize(s);
    cr_assert_eq(rows, HASH_COUNT(turn_fleet(t)->clusters), "%u clusters in the file, %u in memory", rows,
                 HASH_COUNT(turn_fleet(t)->clusters));
}

static void on_changed(struct turn_observer *o)
{
    ((struct watcher *) o)->changed++;
    nothing_unwritten();
}

static void on_reset(struct turn_observer *o)
{
    ((struct watcher *) o)->reset++;
}

static void on_done(struct turn_event *te, const struct adv_err *err)
{
    struct probe *p = (struct probe *) te;

    p->called++;
    p->code = err ? (int) err->code : 0;
    p->reason = err ? err->reason : NULL;
    p->order = ++answers;
    if (!err)
        nothing_unwritten();
}

static struct probe *submit(struct probe *p, enum event_type type, const char *cluster)
{
    *p = (struct probe) { .te = { .ev = { .type = type }, .done = on_done } };
    (void) snprintf(p->cluster, sizeof(p->cluster), "%s", cluster);
    p->te.ev.cluster = p->cluster;
    if (type == EV_SET_MODE)
        p->te.ev.u.set_mode.mode = MODE_ACT;
    turn_submit(t, &p->te);
    return p;
}

static struct probe *with_request(struct probe *p, enum event_type type, const char *cluster, const char *id, const char *hash)
{
    *p = (struct probe) { .te = { .ev = { .type = type }, .done = on_done } };
    (void) snprintf(p->cluster, sizeof(p->cluster), "%s", cluster);
    (void) snprintf(p->request, sizeof(p->request), "%s", id);
    (void) snprintf(p->hash, sizeof(p->hash), "%s", hash);
    p->te.ev.cluster = p->cluster;
    p->te.ev.request_id = p->request;
    p->te.ev.request_hash = p->hash;
    p->te.ev.u.set_mode.mode = MODE_ACT;
    turn_submit(t, &p->te);
    return p;
}

static void wait_for(const int *flag)
{
    while (!*flag)
        (void) uv_run(&loop, UV_RUN_ONCE);
}

static void guard_cb(uv_timer_t *h)
{
    (void) h;
    (void) fprintf(stderr, "nothing happens any more\n");
    abort();
}

static void start(void)
{
    struct fleet_config cfg = { .lease_us = 1000000 };
    struct adv_err err = { 0 };

    policy_defaults(&cfg.policy);
    cr_assert_eq(store_open(&loop, &(struct store_config) { .url = path, .replica = "test" }, &st, &err), 0, "%s", err.msg);
    cr_assert_eq(turn_new(&loop, st, &cfg, &t, &err), 0, "%s", err.msg);
    cr_assert_eq(sqlite3_open_v2(path, &reader, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    (void) sqlite3_busy_timeout(reader, 5000);
    seen = (struct watcher) { { .changed = on_changed, .reset = on_reset } };
    turn_observe(t, &seen.o);
}

static void setup(void)
{
    fault_install();
    (void) snprintf(dir, sizeof(dir), "/tmp/adv-turn-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/a.db", dir);
    cr_assert_eq(uv_loop_init(&loop), 0);
    (void) uv_timer_init(&loop, &guard);
    (void) uv_timer_start(&guard, guard_cb, 30000, 0);
    start();
}

static int stopped;

static void on_stopped(void *arg)
{
    (void) arg;
    stopped++;
}

static void stop(void)
{
    if (!stopped)
        turn_stop(t, on_stopped, NULL);
    wait_for(&stopped);
    cr_assert_eq(stopped, 1);
}

static void teardown(void)
{
    stop();
    turn_free(t);
    uv_close((uv_handle_t *) &guard, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    (void) sqlite3_close(reader);
    (void) store_close(st);
    cr_assert_eq(uv_loop_close(&loop), 0);
    (void) nftw(dir, rm, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(turn, .init = setup, .fini = teardown, .timeout = 60);

/* ---- order and grouping ----------------------------------------------------------------------------------------- */

Test(turn, answers_come_in_order_and_never_from_within_submit)
{
    struct probe p[300];

    for (size_t i = 0; i < ADV_ARRAY_LEN(p); i++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "c%zu", i);
        (void) submit(&p[i], EV_CLUSTER_CREATE, name);
        cr_assert_eq(p[i].called, 0);
    }
    wait_for(&p[299].called);
    for (size_t i = 0; i < ADV_ARRAY_LEN(p); i++) {
        cr_assert_eq(p[i].called, 1);
        cr_assert_eq(p[i].code, 0);
        cr_assert_eq(p[i].order, i + 1);
    }
    /* all of them waited together: one transaction */
    cr_assert_eq(seen.changed, 1);
    cr_assert_eq(turn_watchlog(t)->last, 600); /* the cluster and an audit event each */
}

Test(turn, what_arrives_during_a_commit_is_the_next)
{
    struct probe first, p[50];

    (void) submit(&first, EV_CLUSTER_CREATE, "a");
    (void) uv_run(&loop, UV_RUN_NOWAIT); /* the turn begins */
    for (size_t i = 0; i < ADV_ARRAY_LEN(p); i++)
        (void) submit(&p[i], EV_SET_MODE, "a");
    wait_for(&p[49].called);
    cr_assert_eq(first.order, 1);
    cr_assert_eq(seen.changed, 2);
    for (size_t i = 0; i < ADV_ARRAY_LEN(p); i++)
        cr_assert(p[i].code == 0 && p[i].order == i + 2);
}

Test(turn, an_event_that_is_refused_fails_alone)
{
    struct probe a, b, c, d;

    (void) submit(&a, EV_CLUSTER_CREATE, "a");
    (void) submit(&b, EV_CLUSTER_CREATE, "a");
    (void) submit(&c, EV_SET_MODE, "nowhere");
    (void) submit(&d, EV_SET_MODE, "a");
    wait_for(&d.called);
    cr_assert_eq(a.code, 0);
    cr_assert_eq(b.code, ADV_ALREADY_EXISTS);
    cr_assert_eq(c.code, ADV_NOT_FOUND);
    cr_assert_eq(d.code, 0);
}

/* In the same turn and in the next; others are not concerned. */
Test(turn, after_a_refused_one_none_of_its_order_takes_effect)
{
    struct turn_order one = { 0 }, other = { 0 };
    struct { const char *cluster; struct turn_order *order; int code; } rows[] = {
        { "a", &one, 0 },           { "a", &one, ADV_ALREADY_EXISTS }, { "b", &one, ADV_ALREADY_EXISTS },
        { "c", &other, 0 },         { "d", NULL, 0 },                  { "e", &one, ADV_ALREADY_EXISTS },
        { "f", &other, 0 },
    };
    struct probe p[ADV_ARRAY_LEN(rows)], late;

    for (size_t i = 0; i < ADV_ARRAY_LEN(rows); i++)
        submit(&p[i], EV_CLUSTER_CREATE, rows[i].cluster)->te.order = rows[i].order;
    (void) uv_run(&loop, UV_RUN_NOWAIT); /* the turn begins */
    submit(&late, EV_CLUSTER_CREATE, "g")->te.order = &one;
    wait_for(&late.called);
    for (size_t i = 0; i < ADV_ARRAY_LEN(rows); i++)
        cr_assert(p[i].code == rows[i].code && p[i].order == i + 1, "%zu: %d", i, p[i].code);
    cr_assert_eq(late.code, ADV_ALREADY_EXISTS);
    cr_assert_eq(HASH_COUNT(turn_fleet(t)->clusters), 4);
}

Test(turn, many_events_are_several_turns)
{
    static struct probe p[1100];

    for (size_t i = 0; i < ADV_ARRAY_LEN(p); i++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "c%zu", i);
        (void) submit(&p[i], EV_CLUSTER_CREATE, name);
    }
    wait_for(&p[1099].called);
    cr_assert_eq(seen.changed, 3);
    for (size_t i = 0; i < ADV_ARRAY_LEN(p); i++)
        cr_assert(p[i].code == 0 && p[i].order == i + 1);
}

static struct probe chained;

static void done_and_more(struct turn_event *te, const struct adv_err *err)
{
    on_done(te, err);
    (void) submit(&chained, EV_SET_MODE, "a");
}

Test(turn, a_callback_may_submit)
{
    struct probe p = { .te = { .ev = { .type = EV_CLUSTER_CREATE, .cluster = "a" }, .done = done_and_more } };

    turn_submit(t, &p.te);
    wait_for(&chained.called);
    cr_assert_eq(chained.code, 0);
}

/* ---- reads ------------------------------------------------------------------------------------------------------ */

struct read {
    int called, code;
    bool cluster_there;
};

static void on_read(void *arg, const struct adv_err *err)
{
    struct read *r = arg;

    r->called++;
    r->code = err ? (int) err->code : 0;
    if (!err)
        nothing_unwritten();
    r->cluster_there = fleet_find_cluster(turn_fleet(t), "a") != NULL;
}

Test(turn, reads_wait_for_the_commit)
{
    struct read at_once = { 0 }, waiting = { 0 }, after = { 0 };
    struct probe p;

    turn_read(t, on_read, &at_once);
    cr_assert(at_once.called == 1 && at_once.code == 0 && !at_once.cluster_there);
    (void) submit(&p, EV_CLUSTER_CREATE, "a");
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    cr_assert(fleet_find_cluster(turn_fleet(t), "a"), "memory is ahead now");
    turn_read(t, on_read, &waiting);
    cr_assert_eq(waiting.called, 0);
    wait_for(&waiting.called);
    cr_assert_eq(p.called, 1, "the event is answered before reads");
    cr_assert(waiting.code == 0 && waiting.cluster_there);
    turn_read(t, on_read, &after);
    cr_assert(after.called == 1 && after.cluster_there);
}

static void on_read_that_fails(void *arg, const struct adv_err *err)
{
    struct adv_err why = { 0 };

    on_read(arg, err);
    (void) adv_err_set(&why, ADV_ABORTED, "ownership is lost");
    turn_fail(t, &why);
}

/* Who finds out that memory cannot be trusted is the last that is answered from it. */
Test(turn, no_read_and_no_event_after_memory_is_given_up)
{
    struct read first = { 0 }, second = { 0 }, third = { 0 };
    struct probe p, q;

    (void) submit(&p, EV_CLUSTER_CREATE, "a");
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    turn_read(t, on_read_that_fails, &first);
    turn_read(t, on_read, &second);
    (void) submit(&q, EV_SET_MODE, "a");
    wait_for(&first.called);
    cr_assert_eq(first.code, 0);
    cr_assert(!second.called || second.code == ADV_UNAVAILABLE, "answered with %d", second.code);
    turn_read(t, on_read, &third);
    cr_assert(!third.called || third.code == ADV_UNAVAILABLE, "answered with %d", third.code);
    wait_for(&second.called);
    wait_for(&third.called);
    wait_for(&q.called);
    cr_assert_eq(p.code, 0);
    cr_assert(second.code == ADV_UNAVAILABLE && third.code == ADV_UNAVAILABLE);
    cr_assert_eq(q.code, ADV_UNAVAILABLE);
    cr_assert_eq(seen.reset, 1);
    while (!turn_ready(t))
        (void) uv_run(&loop, UV_RUN_ONCE);
}

/* ---- what goes -------------------------------------------------------------------------------------------------- */

static int64_t count(const char *sql)
{
    sqlite3_stmt *s = NULL;
    int64_t n = -1;

    cr_assert_eq(sqlite3_prepare_v2(reader, sql, -1, &s, NULL), SQLITE_OK, "%s", sqlite3_errmsg(reader));
    if (sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    (void) sqlite3_finalize(s);
    return n;
}

Test(turn, what_goes_is_deleted_under_its_own_key)
{
    struct probe a, x, y, gone;
    char lifted[64];

    (void) submit(&a, EV_CLUSTER_CREATE, "a");
    x = y = (struct probe) { .te = { .ev = { .type = EV_EXCLUSION_ADD, .cluster = "a" }, .done = on_done } };
    x.te.ev.u.exclusion.node = "n1";
    y.te.ev.u.exclusion.node = "n2";
    x.te.ev.u.exclusion.reason = y.te.ev.u.exclusion.reason = "r";
    turn_submit(t, &x.te);
    turn_submit(t, &y.te);
    wait_for(&y.called);
    cr_assert_eq(count("SELECT count(*) FROM objects WHERE kind = 9"), 2);
    (void) snprintf(lifted, sizeof(lifted), "%s", fleet_find_cluster(turn_fleet(t), "a")->entries[RESOURCE_EXCLUSION]->uid);
    x = (struct probe) { .te = { .ev = { .type = EV_EXCLUSION_LIFT, .cluster = "a" }, .done = on_done } };
    x.te.ev.u.entry.uid = lifted;
    x.te.ev.u.entry.reason = "";
    turn_submit(t, &x.te);
    gone = (struct probe) { .te = { .ev = { .type = EV_RETENTION, .cluster = "a" }, .done = on_done } };
    gone.te.ev.u.retention.jobs_before_us = INT64_MAX - 1;
    gone.te.ev.u.retention.limit = 10;
    turn_submit(t, &gone.te);
    wait_for(&gone.called);
    cr_assert_eq(gone.code, 0);
    cr_assert_eq(count("SELECT count(*) FROM objects WHERE kind = 9"), 1, "one went, and only one");
    stop();
    turn_free(t);
    t = NULL;
    (void) sqlite3_close(reader);
    (void) store_close(st);
    stopped = 0;
    start(); /* what is loaded is what is left */
    (void) submit(&a, EV_SET_MODE, "a");
    wait_for(&a.called);
    cr_assert_eq(a.code, 0);
    cr_assert_eq(HASH_COUNT(fleet_find_cluster(turn_fleet(t), "a")->entries[RESOURCE_EXCLUSION]), 1);
}

/* ---- request ids ------------------------------------------------------------------------------------------------ */

Test(turn, a_request_id_counts_once)
{
    struct probe a, b, c, d, e, f;
    uint64_t revision;

    (void) with_request(&a, EV_CLUSTER_CREATE, "a", "r1", "h1");
    (void) with_request(&b, EV_CLUSTER_CREATE, "a", "r1", "h1"); /* the same, in the same turn */
    (void) with_request(&c, EV_SET_MODE, "a", "r1", "h2");       /* another thing */
    wait_for(&c.called);
    cr_assert_eq(a.code, 0);
    cr_assert_eq(b.code, 0, "again: no error");
    cr_assert_eq(c.code, ADV_ALREADY_EXISTS);
    cr_assert_str_eq(c.reason, "REQUEST_ID_REUSED");
    revision = fleet_find_cluster(turn_fleet(t), "a")->revision;
    (void) with_request(&d, EV_CLUSTER_CREATE, "a", "r1", "h1"); /* later */
    wait_for(&d.called);
    cr_assert_eq(d.code, 0);
    cr_assert_eq(fleet_find_cluster(turn_fleet(t), "a")->revision, revision);
    /* one that was refused is not remembered */
    (void) with_request(&e, EV_SET_MODE, "nowhere", "r2", "h3");
    wait_for(&e.called);
    cr_assert_eq(e.code, ADV_NOT_FOUND);
    (void) with_request(&f, EV_SET_MODE, "a", "r2", "h4");
    wait_for(&f.called);
    cr_assert_eq(f.code, 0);
}

/* ---- the store fails -------------------------------------------------------------------------------------------- */

static void until_events_are_taken(void)
{
    for (int64_t end = adv_mono_us() + 60000000; !turn_takes_events(t);) {
        cr_assert_lt(adv_mono_us(), end);
        (void) uv_run(&loop, UV_RUN_NOWAIT);
    }
}

static void fails_and_comes_back(enum fault fault)
{
    struct probe a, p[3], late, early, again;
    struct read waiting = { 0 }, offline = { 0 }, readable = { 0 };
    unsigned changed;

    (void) submit(&a, EV_CLUSTER_CREATE, "a");
    wait_for(&a.called);
    changed = seen.changed;
    atomic_store(&fault_mode, fault);
    (void) submit(&p[0], EV_CLUSTER_CREATE, "b");
    (void) submit(&p[1], EV_SET_MODE, "a");
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    (void) submit(&p[2], EV_CLUSTER_CREATE, "c"); /* behind the commit that fails */
    turn_read(t, on_read, &waiting);
    wait_for(&waiting.called);
    wait_for(&p[2].called);
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(p[i].called, 1);
        cr_assert_eq(p[i].code, ADV_UNAVAILABLE, "event %zu: %d", i, p[i].code);
        cr_assert_str_eq(p[i].reason, fault == FAULT_FULL ? "STORE_FULL" : "STORE_UNAVAILABLE");
    }
    cr_assert_eq(waiting.code, ADV_UNAVAILABLE);
    cr_assert_eq(seen.reset, 1);
    cr_assert_eq(seen.changed, changed, "nothing is shown");
    cr_assert_not(turn_ready(t));
    (void) submit(&late, EV_SET_MODE, "a");
    turn_read(t, on_read, &offline);
    cr_assert(offline.called && offline.code == ADV_UNAVAILABLE);
    wait_for(&late.called);
    cr_assert_eq(late.code, ADV_UNAVAILABLE);
    atomic_store(&fault_mode, FAULT_NONE);
    while (!turn_ready(t))
        (void) uv_run(&loop, UV_RUN_ONCE);
    nothing_unwritten();
    cr_assert(fleet_find_cluster(turn_fleet(t), "a"));
    cr_assert_null(fleet_find_cluster(turn_fleet(t), "b"));
    cr_assert_eq(fleet_find_cluster(turn_fleet(t), "a")->mode, MODE_OBSERVE);
    if (fault == FAULT_FULL) { /* the next write is tried later; what was stored can be read at once */
        cr_assert_not(turn_takes_events(t));
        turn_read(t, on_read, &readable);
        cr_assert(readable.called && readable.code == 0);
        (void) submit(&early, EV_CLUSTER_CREATE, "b");
        wait_for(&early.called);
        cr_assert_eq(early.code, ADV_UNAVAILABLE);
        cr_assert_str_eq(early.reason, "STORE_FULL");
        cr_assert(turn_ready(t), "and nothing is dropped for it");
        until_events_are_taken();
    }
    (void) submit(&again, EV_CLUSTER_CREATE, "b");
    wait_for(&again.called);
    cr_assert_eq(again.code, 0);
}

Test(turn, a_full_disk)
{
    fails_and_comes_back(FAULT_FULL);
}

Test(turn, a_sync_that_fails)
{
    fails_and_comes_back(FAULT_SYNC);
}

Test(turn, a_disk_that_is_gone)
{
    fails_and_comes_back(FAULT_GONE);
}

static int retries;
static struct probe stubborn;

static void done_and_retry(struct turn_event *te, const struct adv_err *err)
{
    cr_assert(err && err->code == ADV_UNAVAILABLE && err->retry_after_ms > 0);
    if (++retries < 20)
        turn_submit(t, te);
}

/* Who tries again from the callback hears no again, at once, and the loop is not starved meanwhile. */
Test(turn, trying_again_from_the_callback)
{
    struct probe a;

    (void) submit(&a, EV_CLUSTER_CREATE, "a");
    wait_for(&a.called);
    atomic_store(&fault_mode, FAULT_GONE);
    stubborn = (struct probe) { .te = { .ev = { .type = EV_SET_MODE, .cluster = "a" }, .done = done_and_retry } };
    stubborn.te.ev.u.set_mode.mode = MODE_ACT;
    turn_submit(t, &stubborn.te);
    for (int i = 0; retries < 20; i++) {
        cr_assert_lt(i, 200);
        (void) uv_run(&loop, UV_RUN_ONCE);
    }
    atomic_store(&fault_mode, FAULT_NONE);
}

/* Random events, failures and restarts: what was answered with success is in the file, always. */
Test(turn, random_failures_lose_nothing_acknowledged)
{
    static struct probe p[400];
    unsigned failed = 0;

    srand(7);
    for (size_t i = 0; i < ADV_ARRAY_LEN(p);) {
        size_t n = (size_t) rand() % 8 + 1, from = i;
        char name[16];
        if (rand() % 4 == 0)
            atomic_store(&fault_countdown, rand() % 6);
        for (; i < ADV_ARRAY_LEN(p) && i < from + n; i++) {
            (void) snprintf(name, sizeof(name), "c%zu", i);
            (void) submit(&p[i], EV_CLUSTER_CREATE, name);
            if (rand() % 3 == 0)
                (void) uv_run(&loop, UV_RUN_NOWAIT);
        }
        wait_for(&p[i - 1].called);
        atomic_store(&fault_countdown, -1);
        if (!turn_takes_events(t)) {
            failed++;
            until_events_are_taken();
        }
        if (failed > 5)
            break; /* a second each */
        nothing_unwritten();
        for (size_t k = 0; k < i; k++) {
            (void) snprintf(name, sizeof(name), "c%zu", k);
            cr_assert_eq(p[k].called, 1);
            cr_assert_eq(fleet_find_cluster(turn_fleet(t), name) != NULL, p[k].code == 0, "cluster %s, code %d", name,
                         p[k].code);
        }
    }
    cr_assert_geq(failed, 3);
}

/* ---- stopping --------------------------------------------------------------------------------------------------- */

Test(turn, stop_commits_what_is_under_way_and_refuses_the_rest)
{
    struct probe a, b, c;
    struct read r = { 0 };

    (void) submit(&a, EV_CLUSTER_CREATE, "a");
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    (void) submit(&b, EV_CLUSTER_CREATE, "b");
    turn_read(t, on_read, &r);
    turn_stop(t, on_stopped, NULL);
    cr_assert_not(turn_ready(t));
    wait_for(&stopped);
    cr_assert_eq(a.code, 0);
    cr_assert(b.called == 1 && b.code == ADV_UNAVAILABLE);
    cr_assert_str_eq(b.reason, "STOPPING");
    cr_assert_eq(r.called, 1);
    (void) submit(&c, EV_CLUSTER_CREATE, "c");
    cr_assert(c.called == 1 && c.code == ADV_UNAVAILABLE);
    cr_assert_str_eq(c.reason, "STOPPING");
    nothing_unwritten();
}

Test(turn, stop_while_the_store_is_away)
{
    struct probe a, b;

    atomic_store(&fault_mode, FAULT_GONE);
    (void) submit(&a, EV_CLUSTER_CREATE, "a");
    wait_for(&a.called);
    cr_assert_eq(a.code, ADV_UNAVAILABLE);
    (void) submit(&b, EV_CLUSTER_CREATE, "b");
    turn_stop(t, on_stopped, NULL);
    wait_for(&stopped);
    cr_assert_eq(b.code, ADV_UNAVAILABLE);
    atomic_store(&fault_mode, FAULT_NONE);
}

static void done_and_stop(struct turn_event *te, const struct adv_err *err)
{
    on_done(te, err);
    turn_stop(t, on_stopped, NULL);
}

Test(turn, stop_from_a_callback)
{
    struct probe p = { .te = { .ev = { .type = EV_CLUSTER_CREATE, .cluster = "a" }, .done = done_and_stop } };

    turn_submit(t, &p.te);
    wait_for(&stopped);
    cr_assert_eq(p.code, 0);
}

/* What one life wrote the next one has, with its change history and without the lease. */
Test(turn, the_next_life)
{
    struct probe a, hello;
    const struct cluster *c;

    (void) submit(&a, EV_CLUSTER_CREATE, "a");
    hello = (struct probe) { .te = { .ev = { .type = EV_AGENT_HELLO, .cluster = "a" }, .done = on_done } };
    hello.te.ev.u.hello.instance_id = "s1";
    hello.te.ev.u.hello.journal_id = "j1";
    turn_submit(t, &hello.te);
    wait_for(&hello.called);
    cr_assert(hello.te.ev.u.hello.ret_granted);
    uint64_t last = turn_watchlog(t)->last;
    stop();
    turn_free(t);
    (void) uv_run(&loop, UV_RUN_NOWAIT);
    (void) sqlite3_close(reader);
    (void) store_close(st);
    stopped = 0;
    start();
    nothing_unwritten();
    c = fleet_find_cluster(turn_fleet(t), "a");
    cr_assert_eq(c->agent_state, AGENT_UNREACHABLE);
    cr_assert_null(c->holder_instance);
    cr_assert_str_eq(c->holder_journal, "j1");
    cr_assert_not(fleet_lease_free(c, 0), "the old lease may still be in force somewhere");
    cr_assert_eq(turn_watchlog(t)->last, last);
    cr_assert_eq(turn_fleet(t)->next_uid, last);
}
