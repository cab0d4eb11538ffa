/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership and handoffs of the MySQL engine. Points in time are the database's own; a replica compares none of them with a
 * clock of its own, and counts its leases from before it asked. */

#include "controlplane/store/mysql-engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "common/clock.h"

#define TRIES    3
#define TOLD_MAX 1000

/* ---- ownership -------------------------------------------------------------------------------------------------- */

static void ask(struct mysql_store *st);

static int take_row(struct lease_run *a, const struct dbrow *row)
{
    struct store_owner *o;
    uint64_t mine, no_owner;

    if (row->n == 1)
        return my_u64(row, 0, &a->seq) ? 0 : my_bad_row(&a->err, "sequence");
    if (a->n == a->cap) {
        size_t cap = a->cap ? a->cap * 2 : 64;
        o = realloc(a->rows, cap * sizeof(*o));
        if (!o)
            return adv_err_set(&a->err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        a->rows = o;
        a->cap = cap;
    }
    o = &a->rows[a->n];
    if (row->n != 6 || !my_u64(row, 1, &mine) || !my_u64(row, 2, &no_owner) || !my_u64(row, 3, &o->epoch))
        return my_bad_row(&a->err, "owners");
    a->n++;
    (void) snprintf(o->cluster, sizeof(o->cluster), "%s", my_text(row, 0));
    o->mine = mine;
    o->free = no_owner && !mine;
    (void) snprintf(o->wanted, sizeof(o->wanted), "%s", my_text(row, 4));
    (void) snprintf(o->wanted_journal, sizeof(o->wanted_journal), "%s", my_text(row, 5));
    return 0;
}

static void ask_row(struct dbquery *q, const struct dbrow *row)
{
    struct mysql_store *st = q->arg;

    if (st->ask.r == 0)
        st->ask.r = take_row(&st->ask, row);
}

static void end_ask(struct mysql_store *st)
{
    struct lease_run a = st->ask; /* the callback may ask again */
    const struct adv_err *err = a.r < 0 ? &a.err : NULL;

    st->ask = (struct lease_run) { 0 };
    if (a.r < 0)
        my_outside(&a.err);
    if (a.owners_cb)
        a.owners_cb(a.arg, a.sent_us, a.seq, err ? NULL : a.rows, err ? 0 : a.n, err);
    else
        a.cb(a.arg, err);
    adv_buf_done(&a.sql);
    free(a.rows);
}

static void ask_done(struct dbquery *q, const struct adv_err *err)
{
    struct mysql_store *st = q->arg;
    struct lease_run *a = &st->ask;

    if (err && err->code == ADV_ABORTED && q->outcome == DB_REFUSED && ++a->tries < TRIES) {
        ask(st); /* each begins with a ROLLBACK */
        return;
    }
    if (err) {
        a->err = *err;
        a->r = -(int) err->code;
    }
    end_ask(st);
}

static void ask(struct mysql_store *st)
{
    struct lease_run *a = &st->ask;

    a->n = 0;
    a->r = 0;
    a->sent_us = adv_boot_us();
    a->q = (struct dbquery) { .sql = a->sql.data, .len = a->sql.len, .timeout_ms = st->timeout_ms, .row = ask_row,
                              .done = ask_done, .arg = st };
    dbconn_query(st->lease, &a->q);
}

static void ask_failed_cb(uv_timer_t *h)
{
    end_ask(h->data);
}

static struct adv_buf *begin(struct mysql_store *st, store_owners_cb owners_cb, store_cb cb, void *arg)
{
    struct lease_run *a = &st->ask;

    *a = (struct lease_run) { .owners_cb = owners_cb, .cb = cb, .arg = arg };
    adv_buf_init(&a->sql, 1u << 20);
    (void) adv_buf_append_str(&a->sql, "ROLLBACK;"); /* of what an earlier one that was refused left open */
    return &a->sql;
}

static void send_ask(struct mysql_store *st)
{
    struct lease_run *a = &st->ask;

    if (!adv_buf_error(&a->sql)) {
        ask(st);
        return;
    }
    a->r = adv_err_set(&a->err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    (void) uv_timer_start(&st->ask_failed, ask_failed_cb, 0, 0);
}

static void put(struct adv_buf *b, const char *sql, const char *value)
{
    (void) adv_buf_append_str(b, sql);
    my_quote(b, value);
}

static void put_lease(struct adv_buf *b, const char *sql, const struct mysql_store *st)
{
    (void) adv_buf_appendf(b, "%sNOW(6) + INTERVAL %" PRId64 " MICROSECOND", sql, st->owner_lease_us);
}

static void put_in(struct adv_buf *b, const char *const *clusters, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(b, i ? "," : " AND cluster IN (", clusters[i]);
    (void) adv_buf_append_str(b, n ? ")" : " AND FALSE");
}

static void put_columns(struct adv_buf *b, const struct mysql_store *st)
{
    put(b, ";SELECT last FROM sequence WHERE id = 1;SELECT cluster, owner = ", st->base.replica);
    (void) adv_buf_append_str(b, ", owner = '' OR until_at < NOW(6), epoch, wanted, wanted_journal FROM owners");
}

void my_renew(struct store *base, store_owners_cb cb, void *arg)
{
    struct mysql_store *st = mysql_of(base);
    struct adv_buf *b = begin(st, cb, NULL, arg);

    put_lease(b, "UPDATE owners SET until_at = ", st);
    put(b, " WHERE owner = ", base->replica);
    put(b, ";INSERT INTO replicas VALUES(", base->replica);
    put_lease(b, ", ", st);
    (void) adv_buf_append_str(b, ") ON DUPLICATE KEY UPDATE until_at = VALUES(until_at)");
    put_columns(b, st);
    put(b, " WHERE owner = '' OR until_at < NOW(6) OR owner = ", base->replica);
    send_ask(st);
}

/* What an owner before wrote in these clusters holds their rows until it is committed: the number that is read after the
 * rows were had is not below any of it. Assignments are made from left to right, so the owner's comes last. */
void my_claim(struct store *base, const char *const *clusters, size_t n, store_owners_cb cb, void *arg)
{
    struct mysql_store *st = mysql_of(base);
    struct adv_buf *b = begin(st, cb, NULL, arg);

    put(b, "START TRANSACTION;UPDATE owners SET wanted = IF(owner = ", base->replica);
    put(b, ", wanted, ''), wanted_journal = IF(owner = ", base->replica);
    put_lease(b, ", wanted_journal, ''), epoch = epoch + 1, until_at = ", st);
    put(b, ", owner = ", base->replica);
    put(b, " WHERE (owner = '' OR until_at < NOW(6) OR owner = ", base->replica);
    (void) adv_buf_append_byte(b, ')');
    put_in(b, clusters, n);
    put_columns(b, st);
    (void) adv_buf_append_str(b, " WHERE TRUE");
    put_in(b, clusters, n);
    (void) adv_buf_append_str(b, ";COMMIT");
    send_ask(st);
}

void my_release(struct store *base, const char *const *clusters, size_t n, store_cb cb, void *arg)
{
    struct mysql_store *st = mysql_of(base);
    struct adv_buf *b = begin(st, NULL, cb, arg);

    put(b, "UPDATE owners SET owner = '' WHERE owner = ", base->replica);
    if (clusters)
        put_in(b, clusters, n);
    else
        put(b, ";DELETE FROM replicas WHERE replica = ", base->replica);
    send_ask(st);
}

void my_want(struct store *base, const char *cluster, const char *journal, store_cb cb, void *arg)
{
    struct mysql_store *st = mysql_of(base);
    struct adv_buf *b = begin(st, NULL, cb, arg);

    put(b, "UPDATE owners SET wanted = ", base->replica);
    put(b, ", wanted_journal = ", journal);
    put(b, " WHERE owner NOT IN ('', ", base->replica);
    put(b, ") AND cluster = ", cluster);
    send_ask(st);
}

/* ---- handoffs --------------------------------------------------------------------------------------------------- */

struct handoff_run {
    struct mysql_store *st;
    struct dbquery q;
    struct adv_buf sql;
    uint64_t id;
    unsigned tries;
    store_id_cb id_cb; /* this or @cb */
    store_cb cb;
    void *arg;
};

static void end_handoff(struct handoff_run *h, const struct adv_err *err)
{
    struct adv_err e = { 0 };

    if (err) {
        e = *err;
        my_outside(&e);
    }
    if (h->id_cb)
        h->id_cb(h->arg, err ? 0 : h->id, err ? &e : NULL);
    else
        h->cb(h->arg, err ? &e : NULL);
    adv_buf_done(&h->sql);
    free(h);
}

static void handoff_done(struct dbquery *q, const struct adv_err *err)
{
    struct handoff_run *h = q->arg;
    struct adv_err e = { 0 };

    if (err && (q->outcome == DB_UNKNOWN || err->code == ADV_ABORTED) && ++h->tries < TRIES) {
        dbconn_query(h->st->side, q); /* done twice it does no more: the id is the same */
    } else if (err && q->outcome == DB_UNKNOWN) {
        (void) adv_err_set_reason(&e, ADV_UNAVAILABLE, "STORE_OUTCOME_UNKNOWN", "store: its answer was lost: %.200s", err->msg);
        end_handoff(h, &e);
    } else {
        end_handoff(h, err);
    }
}

static struct handoff_run *new_handoff(struct mysql_store *st, store_id_cb id_cb, store_cb cb, void *arg)
{
    struct handoff_run *h = calloc(1, sizeof(*h));

    if (h) {
        *h = (struct handoff_run) { .st = st, .id_cb = id_cb, .cb = cb, .arg = arg };
        adv_buf_init(&h->sql, SIZE_MAX / 2);
    }
    return h;
}

/* False: no memory; @h is gone. */
static bool send_handoff(struct handoff_run *h)
{
    if (adv_buf_error(&h->sql)) {
        adv_buf_done(&h->sql);
        free(h);
        return false;
    }
    h->q = (struct dbquery) { .sql = h->sql.data, .len = h->sql.len, .timeout_ms = h->st->timeout_ms, .done = handoff_done,
                              .arg = h };
    dbconn_query(h->st->side, &h->q);
    return true;
}

void my_hand_off(struct store *base, const struct store_handoff *o, store_id_cb cb, void *arg)
{
    struct handoff_run *h = new_handoff(mysql_of(base), cb, NULL, arg);
    struct adv_err err = { 0 };

    if (h && getrandom(&h->id, sizeof(h->id), 0) != (ssize_t) sizeof(h->id)) {
        adv_buf_done(&h->sql);
        free(h);
        h = NULL;
    }
    if (h) {
        h->id = h->id >> 1 | 1; /* never 0, and a number wherever somebody takes it as signed */
        (void) adv_buf_appendf(&h->sql, "INSERT IGNORE INTO handoffs(id, made_at, answered, cluster, from_replica, method,"
                                        " request, caller) VALUES(%" PRIu64 ", NOW(6), 0, ", h->id);
        my_quote(&h->sql, o->cluster);
        my_comma_quote(&h->sql, base->replica);
        my_comma_quote(&h->sql, o->method);
        (void) adv_buf_append_byte(&h->sql, ',');
        db_quote(&h->sql, o->request, o->request_len);
        (void) adv_buf_append_byte(&h->sql, ',');
        db_quote(&h->sql, o->caller, o->caller_len);
        (void) adv_buf_append_byte(&h->sql, ')');
        if (send_handoff(h))
            return;
    }
    (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    cb(arg, 0, &err);
}

void my_answer(struct store *base, const struct store_handoff *o, store_cb cb, void *arg)
{
    struct handoff_run *h = new_handoff(mysql_of(base), NULL, cb, arg);
    struct adv_err err = { 0 };

    if (h) {
        (void) adv_buf_append_str(&h->sql, "UPDATE handoffs SET answered = 1, request = '', caller = '', reply = ");
        db_quote(&h->sql, o->request, o->request_len);
        (void) adv_buf_appendf(&h->sql, ", seq = %" PRIu64 " WHERE id = %" PRIu64 " AND answered = 0", o->seq, o->id);
        if (send_handoff(h))
            return;
    }
    (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    cb(arg, &err);
}

struct removal {
    struct mysql_store *st;
    struct dbquery q;
    struct adv_buf sql;
    unsigned tries;
};

static void removed(struct dbquery *q, const struct adv_err *err)
{
    struct removal *rm = q->arg;
    struct mysql_store *st = rm->st;

    if (err && ++rm->tries < TRIES) {
        dbconn_query(st->side, q); /* else every poll would bring them again until they go with their age */
        return;
    }
    /* they are gone, or go with their age: only the newest need be known still */
    if (st->n_told > TOLD_MAX) {
        memmove(st->told, st->told + (st->n_told - TOLD_MAX), TOLD_MAX * sizeof(*st->told));
        st->n_told = TOLD_MAX;
    }
    adv_buf_done(&rm->sql);
    free(rm);
}

void my_remove_told(struct mysql_store *st, const struct store_handoff *answers, size_t n)
{
    uint64_t *told = realloc(st->told, (st->n_told + n) * sizeof(*told));
    struct removal *rm = calloc(1, sizeof(*rm));

    if (told) {
        st->told = told;
        for (size_t i = 0; i < n; i++)
            st->told[st->n_told++] = answers[i].id;
    }
    if (!rm)
        return; /* told again, which does no harm: nobody waits for it then */
    rm->st = st;
    adv_buf_init(&rm->sql, 64 + n * 24);
    for (size_t i = 0; i < n; i++)
        (void) adv_buf_appendf(&rm->sql, "%s%" PRIu64, i ? "," : "DELETE FROM handoffs WHERE id IN (", answers[i].id);
    (void) adv_buf_append_byte(&rm->sql, ')');
    rm->q = (struct dbquery) { .sql = rm->sql.data, .len = rm->sql.len, .timeout_ms = st->timeout_ms, .done = removed, .arg = rm };
    dbconn_query(st->side, &rm->q);
}
