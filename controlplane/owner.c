/* SPDX-License-Identifier: Apache-2.0 */
/* One question to the store at a time, chosen by tick(): a renewal when it is due; else a claim for what agents wait for
 * or what a renewal showed to be free; else a wish for what is another's.
 *
 * A claim is two steps: the store says what was got and the newest change at that moment; once memory has followed up to
 * there, nothing an earlier owner wrote is missing, and nothing it still writes can be committed. Only then does the cluster
 * count as owned here.
 *
 * After a reload nothing is owned, although the store may still name this replica: such clusters are claimed anew, by a new
 * epoch, since a transaction of unknown outcome may land under the old one at any time. */

#include "controlplane/owner.h"

#include <stdio.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"

#define TICK_MS       50
#define CLAIM_MAX     500
#define WANT_WAIT_US  (3 * 1000000LL) /* an agent that knocked waits that long before it is sent away */
#define WANT_EVERY_US (200 * 1000LL)
#define RENEW_PARTS   6  /* of the lease: how often it is renewed */
#define RETRY_US      (500 * 1000LL)
#define ROWLESS_EVERY_US (60 * 1000000LL) /* the same is told again, as long as its agent knocks */

struct want {
    char cluster[65];
    char journal[65];
    int64_t since_us;
    bool asked; /* its owner was told */
    bool claimed; /* in the claim that the store was asked for last */
    bool rowless; /* and is not in the store's table of owners: nobody can own it */
    owner_cb cb;
    void *arg;
    struct want *prev, *next;
};

/* A claim whose changes are still being read. */
struct claim {
    struct owner *o;
    int64_t until_us;
    struct store_owner *rows;
    size_t n;
};

struct owner {
    uv_loop_t *loop;
    struct turn *turn;
    struct store *st;
    struct owner_config cfg;
    const struct owner_ops *ops;
    void *ops_arg;
    struct turn_observer observer;
    uv_timer_t timer;
    struct want *wants;
    char (*candidates)[65]; /* free, or ours by the store alone */
    size_t n_candidates, cap_candidates;
    int64_t renew_at_us, want_at_us;
    int64_t claimed_us; /* when the last claim was answered */
    bool busy;      /* a question is with the store */
    bool following; /* a claim is being followed */
    uint64_t life;  /* of the fleet: answers to questions of an earlier one are void */
    uint64_t asked_life;
    struct want *asked_want;
    char rowless[65]; /* the cluster that was told of last, and when */
    int64_t rowless_us;
    bool stopping, stopped;
    void (*stop_done)(void *);
    void *stop_arg;
};

static void tick(struct owner *o);

static void not_owner(struct adv_err *err, const char *cluster, bool rowless)
{
    (void) adv_err_set_reason(err, ADV_UNAVAILABLE, "NOT_OWNER",
                              rowless ? "cluster %.64s has no row in the database's table of owners, "
                                        "so that no replica can own it" :
                                        "cluster %.64s belongs to another replica at present; come back",
                              cluster);
    err->retry_after_ms = 1000;
}

static void end_want(struct owner *o, struct want *w, const struct adv_err *err)
{
    if (o->asked_want == w)
        o->asked_want = NULL;
    DL_DELETE(o->wants, w);
    w->cb(w->arg, err);
    free(w);
}

static void end_wants(struct owner *o)
{
    struct adv_err err = { 0 };
    struct want *w, *next;

    DL_FOREACH_SAFE (o->wants, w, next) {
        not_owner(&err, w->cluster, w->rowless);
        end_want(o, w, &err);
    }
}

/* Those whose cluster is owned now, and those that waited too long. Memory equals the store. */
static void settle_wants(struct owner *o)
{
    struct fleet *f = turn_fleet(o->turn);
    int64_t now_us = adv_boot_us();
    struct want *w, *next;
    struct adv_err err = { 0 };

    DL_FOREACH_SAFE (o->wants, w, next) {
        const struct cluster *c = fleet_find_any_cluster(f, w->cluster);
        if (!c || c->owned) { /* not registered: who asked will find that out */
            end_want(o, w, NULL);
        } else if (now_us - w->since_us > WANT_WAIT_US) {
            not_owner(&err, w->cluster, w->rowless);
            end_want(o, w, &err);
        }
    }
}

static void add_candidate(struct owner *o, const char *cluster)
{
    if (o->n_candidates == o->cap_candidates) {
        size_t cap = o->cap_candidates ? o->cap_candidates * 2 : 16;
        void *p = realloc(o->candidates, cap * sizeof(*o->candidates));
        if (!p)
            return; /* the next renewal tells it again */
        o->candidates = p;
        o->cap_candidates = cap;
    }
    (void) snprintf(o->candidates[o->n_candidates++], sizeof(*o->candidates), "%s", cluster);
}

/* ---- renewals --------------------------------------------------------------------------------------------------- */

static int by_cluster(const void *a, const void *b)
{
    return strcmp(((const struct store_owner *) a)->cluster, ((const struct store_owner *) b)->cluster);
}

static const struct store_owner *find_row(const struct store_owner *rows, size_t n, const char *cluster)
{
    struct store_owner key;

    (void) snprintf(key.cluster, sizeof(key.cluster), "%s", cluster);
    return n ? bsearch(&key, rows, n, sizeof(*rows), by_cluster) : NULL;
}

/* Extends what is still ours; false when something was lost. What became ours after the question was sent may be missing
 * in the answer. */
static bool take_renewal(struct owner *o, struct cluster *c, const struct store_owner *row, int64_t sent_us)
{
    if (!c->owned || c->owned_since_us >= sent_us)
        return true;
    if (!row || !row->mine || row->epoch != c->owner_epoch) {
        struct adv_err err = { 0 };
        (void) adv_err_set_reason(&err, ADV_ABORTED, "STORE_NOT_OWNER",
                                  row ? "cluster %s was taken by another replica, or anew under this one's name" :
                                        "cluster %s was taken by another replica, "
                                        "or its row in the table of owners is gone",
                                  c->name);
        turn_fail(o->turn, &err);
        return false;
    }
    c->owned_until_us = sent_us + o->cfg.lease_us;
    return true;
}

struct renewal {
    struct owner *o;
    uint64_t life;
    int64_t sent_us;
    struct store_owner *rows;
    size_t n;
};

static void released_cb(void *arg, const struct adv_err *err)
{
    struct owner *o = arg;

    o->busy = false;
    if (err)
        adv_warn("owner", "giving up clusters failed; their leases will end by themselves", ADV_FS("error", err->msg));
    tick(o);
}

/* Another replica asks for clusters on behalf of agents that knocked there. */
static void give_up_wanted(struct owner *o, const struct store_owner *rows, size_t n)
{
    const char *names[CLAIM_MAX];
    size_t given = 0;

    for (size_t i = 0; i < n && given < CLAIM_MAX; i++) {
        struct cluster *c = rows[i].mine && *rows[i].wanted && !adv_streq(rows[i].wanted, store_replica(o->st)) ?
                                fleet_find_cluster(turn_fleet(o->turn), rows[i].cluster) :
                                NULL;
        if (!c || !c->owned || (o->ops && !o->ops->may_give_up(o->ops_arg, c->name, rows[i].wanted_journal)))
            continue;
        adv_info("owner", "giving a cluster up to the replica where its agent is", ADV_FS("cluster", c->name),
                 ADV_FS("replica", rows[i].wanted));
        fleet_give_up(turn_fleet(o->turn), c);
        if (o->ops)
            o->ops->gave_up(o->ops_arg, c->name);
        names[given++] = rows[i].cluster;
    }
    if (!given)
        return;
    turn_rearm(o->turn);
    o->busy = true;
    store_release(o->st, names, given, released_cb, o);
}

/* Memory equals the store: what is owned here is settled. */
static void renewal_read(void *arg, const struct adv_err *err)
{
    struct renewal *r = arg;
    struct owner *o = r->o;
    struct fleet *f = turn_fleet(o->turn);
    bool whole = !err && r->life == o->life && !o->stopping;

    o->busy = false;
    if (whole) {
        qsort(r->rows, r->n, sizeof(*r->rows), by_cluster);
        whole = take_renewal(o, f->global, find_row(r->rows, r->n, FLEET_CLUSTER), r->sent_us);
        for (struct cluster *c = f->clusters; whole && c; c = c->hh.next)
            whole = take_renewal(o, c, find_row(r->rows, r->n, c->name), r->sent_us);
    }
    if (whole) {
        o->n_candidates = 0;
        for (size_t i = 0; i < r->n; i++) {
            const struct cluster *c = fleet_find_any_cluster(f, r->rows[i].cluster);
            if (c && !c->owned && (r->rows[i].mine || r->rows[i].free))
                add_candidate(o, c->name);
        }
        give_up_wanted(o, r->rows, r->n);
    }
    free(r->rows);
    free(r);
    tick(o);
}

static struct store_owner *copy_rows(const struct store_owner *rows, size_t n)
{
    struct store_owner *v = malloc((n + 1) * sizeof(*v));

    if (v && n)
        memcpy(v, rows, n * sizeof(*v));
    return v;
}

static void renewed_cb(void *arg, int64_t sent_us, uint64_t seq, const struct store_owner *rows, size_t n,
                       const struct adv_err *err)
{
    struct owner *o = arg;
    struct renewal *r = NULL;

    (void) seq;
    if (!err && (!(r = calloc(1, sizeof(*r))) || !(r->rows = copy_rows(rows, n)))) {
        free(r);
        r = NULL;
    }
    if (!r) {
        adv_warn("owner", "renewing ownership failed, will retry", ADV_FS("error", err ? err->msg : "no memory"));
        o->busy = false;
        o->renew_at_us = adv_boot_us() + RETRY_US;
        tick(o);
        return;
    }
    r->o = o;
    r->life = o->asked_life;
    r->sent_us = sent_us;
    r->n = n;
    o->renew_at_us = sent_us + o->cfg.lease_us / RENEW_PARTS;
    turn_read(o->turn, renewal_read, r);
}

/* ---- claims ----------------------------------------------------------------------------------------------------- */

/* Memory has seen what the owners before wrote. */
static void claim_read(void *arg, const struct adv_err *err)
{
    struct claim *cl = arg;
    struct owner *o = cl->o;
    struct fleet *f = turn_fleet(o->turn);
    int64_t now_us = adv_boot_us();

    o->following = false;
    if (!err && o->asked_life == o->life && !o->stopping) {
        f->next_uid = f->next_uid > turn_watchlog(o->turn)->last ? f->next_uid : turn_watchlog(o->turn)->last;
        for (size_t i = 0; i < cl->n; i++) {
            struct cluster *c = fleet_find_any_cluster(f, cl->rows[i].cluster);
            if (!c || c->owned || !cl->rows[i].mine || cl->until_us <= now_us)
                continue;
            fleet_take_over(f, c, cl->rows[i].epoch, cl->until_us, adv_wall_us(), now_us);
            adv_info("owner", "this replica owns a cluster now", ADV_FS("cluster", c->name),
                     ADV_FU("epoch", cl->rows[i].epoch));
        }
        turn_rearm(o->turn);
        settle_wants(o);
    }
    free(cl->rows);
    free(cl);
    tick(o);
}

/* Notes which wishes can never come true: clusters that are registered, and have no row that says whose they are.
 * @rows: sorted. True when there is something of ours in them. */
static bool take_claim(struct owner *o, const struct store_owner *rows, size_t n)
{
    int64_t now_us = adv_boot_us();
    bool any = false;
    struct want *w;

    DL_FOREACH (o->wants, w) {
        if (!w->claimed)
            continue;
        w->rowless = !find_row(rows, n, w->cluster);
        if (!w->rowless || (adv_streq(o->rowless, w->cluster) && now_us - o->rowless_us < ROWLESS_EVERY_US))
            continue;
        (void) snprintf(o->rowless, sizeof(o->rowless), "%s", w->cluster);
        o->rowless_us = now_us;
        adv_error("owner",
                  "a cluster has no row in the database's table of owners: no replica can own it, and its agents are sent away",
                  ADV_FS("cluster", w->cluster), ADV_FS("see", "advisord store check"));
    }
    for (size_t i = 0; i < n; i++)
        any |= rows[i].mine;
    return any;
}

static void claimed_cb(void *arg, int64_t sent_us, uint64_t seq, const struct store_owner *rows, size_t n,
                       const struct adv_err *err)
{
    struct owner *o = arg;
    struct store_owner *copy = err ? NULL : copy_rows(rows, n);
    struct claim *cl = NULL;

    o->busy = false;
    o->claimed_us = adv_boot_us();
    if (copy)
        qsort(copy, n, sizeof(*copy), by_cluster);
    if (err) {
        adv_warn("owner", "claiming clusters failed, will retry", ADV_FS("error", err->msg));
        o->renew_at_us = adv_boot_us() + RETRY_US; /* which tells what is free once more */
    } else if (copy && take_claim(o, copy, n) && (cl = calloc(1, sizeof(*cl)))) {
        cl->o = o;
        cl->rows = copy;
        cl->n = n;
        cl->until_us = sent_us + o->cfg.lease_us;
        o->following = true;
        turn_read_after(o->turn, seq, claim_read, cl);
        return;
    }
    free(copy);
    tick(o);
}

static void wanted_cb(void *arg, const struct adv_err *err)
{
    struct owner *o = arg;

    o->busy = false;
    if (!err && o->asked_want)
        o->asked_want->asked = true;
    o->asked_want = NULL;
    tick(o);
}

static bool start_claim(struct owner *o)
{
    const struct fleet *f = turn_fleet(o->turn);
    const char *names[CLAIM_MAX];
    struct want *w;
    size_t n = 0;

    DL_FOREACH (o->wants, w) {
        w->claimed = n < CLAIM_MAX;
        if (w->claimed)
            names[n++] = w->cluster;
    }
    while (n < CLAIM_MAX && o->n_candidates) {
        const struct cluster *c = fleet_find_any_cluster(f, o->candidates[--o->n_candidates]);
        if (c && !c->owned)
            names[n++] = c->name;
    }
    if (!n)
        return false;
    o->busy = true;
    o->asked_life = o->life;
    store_claim(o->st, names, n, claimed_cb, o);
    return true;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static void stopped_cb(void *arg, const struct adv_err *err)
{
    struct owner *o = arg;

    (void) err;
    o->stopped = true;
    (void) uv_timer_stop(&o->timer);
    turn_unobserve(o->turn, &o->observer);
    o->stop_done(o->stop_arg);
}

static void check_expiry(struct owner *o)
{
    const struct fleet *f = turn_fleet(o->turn);
    int64_t now_us = adv_boot_us();
    struct adv_err err = { 0 };

    for (const struct cluster *c = f->global; c; c = c == f->global ? f->clusters : c->hh.next)
        if (c->owned && c->owned_until_us <= now_us) {
            (void) adv_err_set_reason(&err, ADV_UNAVAILABLE, "STORE_NOT_OWNER",
                                      "ownership of %s could not be renewed in time", c->name);
            turn_fail(o->turn, &err);
            return;
        }
}

/* Memory equals the store: it may be looked at. */
static void tick_read(void *arg, const struct adv_err *err)
{
    struct owner *o = arg;
    int64_t now_us = adv_boot_us();
    struct want *w;

    if (err || o->stopping || o->stopped)
        return;
    check_expiry(o);
    settle_wants(o);
    if (o->busy || o->following)
        return;
    if (now_us >= o->renew_at_us) {
        o->busy = true;
        o->asked_life = o->life;
        store_renew(o->st, renewed_cb, o);
        return;
    }
    if (o->wants ? now_us >= o->want_at_us : o->n_candidates > 0) {
        /* What is free comes first, however many wish for what is another's: those wishes have no end on a slow store. */
        if ((o->n_candidates || now_us - o->claimed_us > WANT_EVERY_US) && start_claim(o))
            return;
        DL_FOREACH (o->wants, w)
            if (!w->asked && now_us - w->since_us > WANT_EVERY_US) { /* a claim did not get it */
                o->busy = true;
                o->asked_want = w;
                store_want(o->st, w->cluster, w->journal, wanted_cb, o);
                return;
            }
        o->want_at_us = now_us + WANT_EVERY_US;
    }
}

static void tick(struct owner *o)
{
    if (o->stopped)
        return;
    if (o->stopping) {
        if (!o->busy && !o->following) {
            o->busy = true;
            store_release(o->st, NULL, 0, stopped_cb, o);
        }
        return;
    }
    if (turn_ready(o->turn))
        turn_read(o->turn, tick_read, o);
}

static void timer_cb(uv_timer_t *h)
{
    struct owner *o = h->data;

    if (turn_ready(o->turn) && !o->stopping)
        turn_read(o->turn, tick_read, o);
}

static void ignore_changed(struct turn_observer *ob)
{
    (void) ob;
}

static void reset_cb(struct turn_observer *ob)
{
    struct owner *o = ADV_CONTAINER_OF(ob, struct owner, observer);

    o->life++;
    o->n_candidates = 0;
    end_wants(o);
}

static void loaded_cb(struct turn_observer *ob)
{
    struct owner *o = ADV_CONTAINER_OF(ob, struct owner, observer);

    o->renew_at_us = 0; /* at once */
}

void owner_want(struct owner *o, const char *cluster, const char *journal, owner_cb cb, void *arg)
{
    struct want *w = calloc(1, sizeof(*w));
    struct adv_err err = { 0 };

    if (!w || o->stopping) {
        free(w);
        not_owner(&err, cluster, false);
        cb(arg, &err);
        return;
    }
    (void) snprintf(w->cluster, sizeof(w->cluster), "%s", cluster);
    (void) snprintf(w->journal, sizeof(w->journal), "%s", journal);
    w->since_us = adv_boot_us();
    w->cb = cb;
    w->arg = arg;
    DL_APPEND(o->wants, w);
    o->want_at_us = 0;
}

void owner_set_ops(struct owner *o, const struct owner_ops *ops, void *arg)
{
    o->ops = ops;
    o->ops_arg = arg;
}

int owner_new(uv_loop_t *loop, struct turn *turn, const struct owner_config *cfg, struct owner **ret, struct adv_err *err)
{
    struct owner *o = calloc(1, sizeof(*o));

    if (!o)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    o->loop = loop;
    o->turn = turn;
    o->st = turn_store(turn);
    o->cfg = *cfg;
    o->observer.changed = ignore_changed;
    o->observer.reset = reset_cb;
    o->observer.loaded = loaded_cb;
    turn_observe(turn, &o->observer);
    (void) uv_timer_init(loop, &o->timer);
    o->timer.data = o;
    if (store_shared(o->st))
        (void) uv_timer_start(&o->timer, timer_cb, 0, TICK_MS);
    *ret = o;
    return 0;
}

void owner_stop(struct owner *o, void (*done)(void *arg), void *arg)
{
    o->stopping = true;
    o->stop_done = done;
    o->stop_arg = arg;
    end_wants(o);
    if (store_shared(o->st))
        tick(o);
    else
        stopped_cb(o, NULL);
}

static void closed_cb(uv_handle_t *h)
{
    struct owner *o = h->data;

    free(o->candidates);
    free(o);
}

void owner_free(struct owner *o)
{
    if (o)
        uv_close((uv_handle_t *) &o->timer, closed_cb);
}
