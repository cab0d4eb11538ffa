/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_MYSQL_ENGINE_H
#define CONTROLPLANE_STORE_MYSQL_ENGINE_H

/* The parts of the MySQL engine among themselves; mysql.c tells how they work together. */

#include "controlplane/store/dbsync.h"
#include "controlplane/store/engine.h"

#define MY_META_COMMENT "Advisor" /* by which a database is known as ours */
#define MY_FIRST_EPOCH  1         /* of a new cluster's ownership; the domain knows it, too */

/* A commit on its way; mysql-commit.c. */
struct commit_run {
    store_commit_cb cb;
    void *arg;
    struct adv_buf *chunks; /* what is sent, one after the other */
    size_t n_chunks, next;
    unsigned n_guards, n_changes;
    unsigned in_chunk; /* statements in the chunk that is being made, then in the last one */
    unsigned owned_from, owned_to; /* those of the first chunk that make us owner of something */
    size_t sequence_chunk;
    unsigned at_sequence; /* that statement's place in it; the one that looks at the history is before it */
    uint64_t mark, first_seq;
    unsigned tries;
    int64_t give_up_us; /* CLOCK_BOOTTIME after which nothing is tried again */
    struct dbquery q;
    struct adv_buf look;
    struct adv_err err;
    uv_timer_t pause;
};

/* The store on its way into memory; mysql-read.c. */
struct load_run {
    store_cb cb;
    void *arg;
    struct fleet *f;
    struct watchlog *w;
    enum load_step { LOAD_BEGIN, LOAD_OBJECTS, LOAD_REQUESTS, LOAD_CHANGES, LOAD_END } step;
    struct adv_buf sql;
    struct dbquery q;
    unsigned rows; /* of the page */
    char uuid[40], sealed[200];
    uint64_t term, min_reader, last_seq;
    char cluster[65], key[256], request[256]; /* the last row so far */
    unsigned kind;
    int64_t record_us;
    uint64_t seq;
    struct adv_err err;
    int r;
};

/* One page of what happened; mysql-read.c. */
struct poll_run {
    store_poll_cb cb;
    void *arg;
    uint64_t after, upto;
    struct adv_buf sql, bytes; /* @bytes: texts and records of what came */
    struct dbquery q;
    struct store_change *changes;
    struct store_handoff *handoffs; /* todo, then answers */
    size_t n_changes, n_todo, n_answers;
    uint64_t last_seq, term;
    uint64_t mark_there; /* of change @after; 0: it is not there */
    uint64_t mark;       /* of the newest in the page */
    char uuid[40];
    bool full; /* there is more than a page holds */
    struct adv_err err;
    int r;
};

/* A question about ownership; mysql-share.c. */
struct lease_run {
    store_owners_cb owners_cb; /* this or @cb */
    store_cb cb;
    void *arg;
    struct adv_buf sql;
    struct dbquery q;
    unsigned tries;
    int64_t sent_us;
    uint64_t seq;
    struct store_owner *rows;
    size_t n, cap;
    struct adv_err err;
    int r;
};

struct trim_run {
    struct dbquery q;
    bool busy;
    char sql[512];
};

struct mysql_store {
    struct store base;
    struct dbconn_config conf;
    char fence[65], lease_fence[65];
    uint32_t timeout_ms;
    int64_t owner_lease_us;
    size_t chunk_max;
    struct dbconn *write; /* loads, commits and polls: one at a time by contract */
    struct dbconn *lease; /* ownership: no large commit holds a renewal up */
    struct dbconn *side;  /* audit pages, handoffs, old rows */
    uint64_t known_seq;   /* the newest change known */
    uint64_t mark_seq, mark; /* the newest change whose mark is known, to see when another history is put in its place */
    struct commit_run commit;
    struct load_run load;
    struct poll_run poll;
    struct lease_run ask;
    struct trim_run trim;
    uv_timer_t poll_failed, ask_failed; /* an error from before anything was sent, told from the loop */
    uint64_t *told; /* answers to handoffs that were told and may not be removed yet */
    size_t n_told;
    int handles;
};

static inline struct mysql_store *mysql_of(struct store *base)
{
    return ADV_CONTAINER_OF(base, struct mysql_store, base);
}

/* ---- schema: mysql-schema.c ---- */

extern const unsigned my_schema_version; /* what this program knows */

/* Makes or migrates the tables of a connected database, under a lock, and looks whether it is ours.
 * Errors: -ADV_FAILED_PRECONDITION (STORE_FOREIGN, STORE_TOO_NEW), -ADV_UNAVAILABLE (STORE_BUSY), as dbsync_run(). */
adv_must_check int my_migrate(struct dbsync *s, const char *database, struct adv_err *err);
/* "" when it is not there. */
adv_must_check int my_get_meta(struct dbsync *s, const char *name, char *buf, size_t size, struct adv_err *err);
/* 0 when it is not there. */
adv_must_check int my_get_meta_number(struct dbsync *s, const char *name, uint64_t *ret, struct adv_err *err);

/* ---- the store's operations ---- */

void my_commit(struct store *base, struct store_txn *t, store_commit_cb cb, void *arg);
void my_load(struct store *base, struct fleet *f, struct watchlog *w, store_cb cb, void *arg);
void my_poll(struct store *base, uint64_t after, uint64_t upto, store_poll_cb cb, void *arg);
void my_list_audit(struct store *base, const struct audit_query *q, store_audit_cb cb, void *arg);
void my_renew(struct store *base, store_owners_cb cb, void *arg);
void my_claim(struct store *base, const char *const *clusters, size_t n, store_owners_cb cb, void *arg);
void my_release(struct store *base, const char *const *clusters, size_t n, store_cb cb, void *arg);
void my_want(struct store *base, const char *cluster, const char *journal, store_cb cb, void *arg);
void my_hand_off(struct store *base, const struct store_handoff *o, store_id_cb cb, void *arg);
void my_answer(struct store *base, const struct store_handoff *o, store_cb cb, void *arg);

/* Answers that were told: they are removed, and not told again meanwhile. */
void my_remove_told(struct mysql_store *st, const struct store_handoff *answers, size_t n);

/* ---- small things: mysql.c ---- */

/* What the database said, as the rest of the program is told it. */
void my_outside(struct adv_err *err);
/* A column; false or "" when it is missing, NULL or (numbers) none. */
bool my_u64(const struct dbrow *row, unsigned column, uint64_t *ret);
bool my_i64(const struct dbrow *row, unsigned column, int64_t *ret);
const char *my_text(const struct dbrow *row, unsigned column);
int my_bad_row(struct adv_err *err, const char *table);
/* Appends a text as a literal; the second with a comma before it. */
void my_quote(struct adv_buf *b, const char *s);
void my_comma_quote(struct adv_buf *b, const char *s);

#endif
