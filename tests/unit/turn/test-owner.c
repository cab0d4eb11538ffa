/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper of ownership over a turn and a shared store that does nothing by itself: each answer comes when the test says so,
 * which a real database cannot be made to do. */

#include "tests/unit/store/sample.h"

#include "common/clock.h"
#include "controlplane/owner.h"
#include "controlplane/store/engine.h"

static uv_loop_t loop;
static struct turn *turn;
static struct owner *owner;

static struct {
    struct store base;
    /* what is outstanding; NULL: nothing */
    store_cb load, release, want;
    store_commit_cb commit;
    store_poll_cb poll;
    store_owners_cb renew, claim;
    void *load_arg, *release_arg, *commit_arg, *poll_arg, *renew_arg, *claim_arg, *want_arg;
    bool claims_spare; /* the last claim was for it, too */
    int64_t asked_us; /* the renewal */
    uint64_t seq;
    unsigned n_changes; /* of the commit */
} fake;

static struct store *fake_close(struct store *st)
{
    (void) st;
    return NULL;
}

static void fake_load(struct store *st, struct fleet *f, struct watchlog *w, store_cb cb, void *arg)
{
    (void) st, (void) f;
    cr_assert_eq(watchlog_init(w, 100, fake.seq), 0);
    fake.load = cb;
    fake.load_arg = arg;
}

static void fake_commit(struct store *st, struct store_txn *t, store_commit_cb cb, void *arg)
{
    (void) st;
    fake.n_changes = (unsigned) t->n_changes;
    fake.commit = cb;
    fake.commit_arg = arg;
}

static void fake_poll(struct store *st, uint64_t after, uint64_t upto, store_poll_cb cb, void *arg)
{
    (void) st, (void) after, (void) upto;
    fake.poll = cb;
    fake.poll_arg = arg;
}

static void fake_renew(struct store *st, store_owners_cb cb, void *arg)
{
    (void) st;
    fake.asked_us = adv_boot_us();
    fake.renew = cb;
    fake.renew_arg = arg;
}

static void fake_claim(struct store *st, const char *const *clusters, size_t n, store_owners_cb cb, void *arg)
{
    (void) st;
    fake.claims_spare = false;
    for (size_t i = 0; i < n; i++)
        fake.claims_spare |= adv_streq(clusters[i], "spare");
    fake.claim = cb;
    fake.claim_arg = arg;
}

static void fake_want(struct store *st, const char *cluster, const char *journal, store_cb cb, void *arg)
{
    (void) st, (void) cluster, (void) journal;
    fake.want = cb;
    fake.want_arg = arg;
}

static void fake_release(struct store *st, const char *const *clusters, size_t n, store_cb cb, void *arg)
{
    (void) st, (void) clusters, (void) n;
    fake.release = cb;
    fake.release_arg = arg;
}

static const struct store_ops ops = { .name = "fake", .shared = true, .close = fake_close, .load = fake_load, .commit = fake_commit,
                                      .poll = fake_poll, .renew = fake_renew, .claim = fake_claim, .want = fake_want, .release = fake_release };

/* Polls and loads are answered at once, by nothing. */
static void turn_loop(void)
{
    store_poll_cb poll;
    store_cb load, release;

    (void) uv_run(&loop, UV_RUN_ONCE);
    poll = fake.poll;
    load = fake.load;
    release = fake.release;
    fake.poll = NULL;
    fake.load = fake.release = NULL;
    if (poll)
        poll(fake.poll_arg, &(struct store_news) { 0 }, NULL);
    if (load)
        load(fake.load_arg, NULL);
    if (release)
        release(fake.release_arg, NULL);
}

static void wake_cb(uv_timer_t *h)
{
    (void) h;
    if (fake.load) { /* turn_new() runs the loop by itself */
        store_cb load = fake.load;
        fake.load = NULL;
        load(fake.load_arg, NULL);
    }
}

#define WAIT_FOR(cond)                                                                                                   \
    do {                                                                                                                 \
        int64_t end_us_ = adv_mono_us() + 20000000;                                                                      \
        while (!(cond)) {                                                                                                \
            turn_loop();                                                                                                 \
            cr_assert_lt(adv_mono_us(), end_us_, "%s does not come", #cond);                                             \
        }                                                                                                                \
    } while (0)

static void answer_renewal(const struct store_owner *rows, size_t n)
{
    store_owners_cb cb = fake.renew;

    fake.renew = NULL;
    cb(fake.renew_arg, fake.asked_us, fake.seq, rows, n, NULL);
}

static void answer_commit(void)
{
    store_commit_cb cb = fake.commit;
    uint64_t first = fake.seq + 1;

    fake.commit = NULL;
    fake.seq += fake.n_changes;
    cb(fake.commit_arg, first, NULL);
}

static unsigned resets;
static bool done, stopped;
static int code;

static void on_changed(struct turn_observer *o)
{
    (void) o;
}

static void on_reset(struct turn_observer *o)
{
    (void) o;
    resets++;
}

static void on_done(struct turn_event *te, const struct adv_err *err)
{
    (void) te;
    done = true;
    code = err ? (int) err->code : 0;
}

static void on_stopped(void *arg)
{
    (void) arg;
    stopped = true;
}

static void answer_claim(const struct store_owner *rows, size_t n)
{
    store_owners_cb cb = fake.claim;

    fake.claim = NULL;
    cb(fake.claim_arg, adv_boot_us(), 0, rows, n, NULL);
}

static void answer_want(void)
{
    store_cb cb = fake.want;

    fake.want = NULL;
    cb(fake.want_arg, NULL);
}

static void on_wanted(void *arg, const struct adv_err *err)
{
    (void) err;
    --*(unsigned *) arg;
}

static uv_timer_t wake;

/* A turn and an owner over the fake store; nothing is owned yet. */
static void begin(struct turn_observer *o)
{
    const int64_t lease_us = 3000000;
    struct fleet_config cfg = { .lease_us = 1000000, .owner_lease_us = lease_us };
    struct adv_err err = { 0 };

    policy_defaults(&cfg.policy);
    cr_assert_eq(uv_loop_init(&loop), 0);
    (void) uv_timer_init(&loop, &wake);
    (void) uv_timer_start(&wake, wake_cb, 5, 5);
    fake.base.ops = &ops;
    fake.base.loop = &loop;
    (void) strcpy(fake.base.replica, "one");
    cr_assert_eq(turn_new(&loop, &fake.base, &cfg, &turn, &err), 0, "%s", err.msg);
    if (o)
        turn_observe(turn, o);
    cr_assert_eq(owner_new(&loop, turn, &(struct owner_config) { lease_us }, &owner, &err), 0);
}

/* After the owner has stopped. */
static void end(void)
{
    stopped = false;
    turn_stop(turn, on_stopped, NULL);
    WAIT_FOR(stopped);
    owner_free(owner);
    turn_free(turn);
    uv_close((uv_handle_t *) &wake, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    store_requests_clear(&fake.base);
    cr_assert_eq(uv_loop_close(&loop), 0);
}

static void load_foreign(const char *name)
{
    struct cluster *c = calloc(1, sizeof(*c));

    cr_assert(c && (c->name = strdup(name)));
    cr_assert_eq(fleet_load_cluster(turn_fleet(turn), c), 0);
}

/* However many agents knock here whose clusters are another's, and however slow the store is: what is free is claimed. */
Test(owner, wishes_do_not_keep_what_is_free, .timeout = 60)
{
    static const struct store_owner is_free[] = { { .cluster = FLEET_CLUSTER, .free = true } },
                                    is_mine[] = { { .cluster = FLEET_CLUSTER, .mine = true, .epoch = 1 } },
                                    spare[] = { { .cluster = FLEET_CLUSTER, .mine = true, .epoch = 1 },
                                                { .cluster = "spare", .free = true } };
    unsigned waiting = 50;

    begin(NULL);
    load_foreign("spare");
    WAIT_FOR(fake.renew);
    answer_renewal(is_free, 1);
    WAIT_FOR(fake.claim);
    answer_claim(is_mine, 1);
    WAIT_FOR(turn_fleet(turn)->global->owned);
    for (unsigned i = 0; i < 50; i++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "other%u", i);
        load_foreign(name);
        owner_want(owner, name, "j", on_wanted, &waiting);
    }
    while (!fake.want) { /* first it is tried to get them, and whether something else is free is asked, too */
        WAIT_FOR(fake.claim || fake.want || fake.renew);
        if (fake.claim)
            answer_claim(NULL, 0);
        else if (fake.renew)
            answer_renewal(is_mine, 1);
    }
    while (!fake.renew) { /* each wish is answered as slowly as the loop turns; then a renewal is due */
        WAIT_FOR(fake.claim || fake.want || fake.renew);
        if (fake.want)
            answer_want();
        else if (fake.claim)
            answer_claim(NULL, 0);
        if (!fake.renew)
            turn_loop();
    }
    cr_assert_gt(waiting, 0);
    answer_renewal(spare, 2);
    WAIT_FOR(fake.claim || fake.want || fake.renew);
    cr_assert(fake.claim && fake.claims_spare, "something else is asked first");
    answer_claim(NULL, 0);

    owner_stop(owner, on_stopped, NULL);
    cr_assert_eq(waiting, 0);
    while (!stopped) {
        turn_loop();
        if (fake.want)
            answer_want();
        if (fake.renew)
            answer_renewal(is_mine, 1);
        if (fake.claim)
            answer_claim(NULL, 0);
    }
    end();
}

Test(owner, a_cluster_made_while_a_renewal_is_under_way, .timeout = 60)
{
    static const struct store_owner is_free[] = { { .cluster = FLEET_CLUSTER, .free = true } },
                                    is_mine[] = { { .cluster = FLEET_CLUSTER, .mine = true, .epoch = 1 } },
                                    both[] = { { .cluster = FLEET_CLUSTER, .mine = true, .epoch = 1 },
                                               { .cluster = "alpha", .mine = true, .epoch = 1 } };
    struct turn_observer o = { .changed = on_changed, .reset = on_reset };
    struct turn_event te = { .ev = { .type = EV_CLUSTER_CREATE, .cluster = "alpha" }, .done = on_done };
    const struct cluster *c;
    store_owners_cb claim;

    begin(&o);
    WAIT_FOR(fake.renew);
    answer_renewal(is_free, 1);
    WAIT_FOR(fake.claim);
    claim = fake.claim;
    fake.claim = NULL;
    claim(fake.claim_arg, adv_boot_us(), 0, is_mine, 1, NULL);
    WAIT_FOR(turn_fleet(turn)->global->owned);

    WAIT_FOR(fake.renew); /* it has been asked what is ours ... */
    turn_submit(turn, &te);
    WAIT_FOR(fake.commit);
    answer_renewal(is_mine, 1); /* ... and answers what was when the new cluster was not there yet */
    WAIT_FOR(!fake.renew);
    answer_commit();
    WAIT_FOR(done);
    cr_assert_eq(code, 0);
    WAIT_FOR(fake.renew);
    cr_assert_eq(resets, 0, "memory was dropped");
    c = fleet_find_cluster(turn_fleet(turn), "alpha");
    cr_assert(c && c->owned);
    answer_renewal(both, 2);
    WAIT_FOR(fake.renew);
    cr_assert_eq(c->owned_until_us - turn_fleet(turn)->global->owned_until_us, 0, "both are extended");
    cr_assert_eq(resets, 0);
    answer_renewal(is_mine, 1); /* and now it is lost */
    WAIT_FOR(resets);

    owner_stop(owner, on_stopped, NULL);
    WAIT_FOR(stopped);
    end();
}
