/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_ENGINE_H
#define CONTROLPLANE_STORE_ENGINE_H

/* What store.c and the engines share, and nobody else sees: a transaction as a list of rows, the engine's operations,
 * and the way of a row into the fleet. store.c keeps what both engines need alike: encoding, request ids, transactions. */

#include "common/buf.h"
#include "controlplane/store/store.h"

#define STORE_WATCHLOG_CAPACITY 32768
#define STORE_CHANGES_KEPT      100000 /* rows; older change history is gone for resumes anyway */
#define STORE_REQUEST_KEEP_US   (24 * 3600 * 1000000LL)

enum row_type { ROW_GUARD, ROW_OWN, ROW_PUT, ROW_DELETE, ROW_REQUEST, ROW_CHANGE, ROW_AUDIT, ROW_AUDIT_ERASE, ROW_AUDIT_CUT };

#define AUDIT_TEXTS 9

/* Texts and bytes are offsets into store_txn.bytes; texts end in a NUL there, offset 0 is "". */
struct row {
    enum row_type type;
    enum resource_kind kind;
    uint32_t cluster, key;     /* ROW_REQUEST: key is its id; ROW_AUDIT_ERASE: the subject */
    uint64_t number;           /* guard: epoch of ownership; change, audit: the cluster's revision */
    uint32_t text[AUDIT_TEXTS]; /* request: hash; audit: prev_hash, hash, principal, verb, subject, detail, salt,
                                 * detail_hash, event_id */
    int64_t time_us[2];        /* request, audit: record; audit: observe */
    uint64_t audit_seq;        /* audit; audit_cut: events of the cluster up to it go */
    uint32_t blob, blob_len;   /* put: the record */
};

struct store_txn {
    struct store *st;
    struct row *rows;
    size_t n, cap;
    size_t n_changes; /* ROW_CHANGE and ROW_AUDIT */
    struct adv_buf bytes;
    bool oom;
};

static inline const char *txn_text(const struct store_txn *t, uint32_t at)
{
    return t->bytes.data + at;
}

struct store_ops {
    const char *name;
    bool shared;
    struct store *(*close)(struct store *st);
    void (*look)(struct store *st, store_cb cb, void *arg); /* unshared only */
    void (*load)(struct store *st, struct fleet *f, struct watchlog *w, store_cb cb, void *arg);
    /* @t stays the caller's; store.c frees it after @cb. */
    void (*commit)(struct store *st, struct store_txn *t, store_commit_cb cb, void *arg);
    void (*set_wake)(struct store *st, void (*wake)(void *arg), void *arg); /* NULL: not needed */
    void (*list_audit)(struct store *st, const struct audit_query *q, store_audit_cb cb, void *arg);
    /* shared only */
    void (*poll)(struct store *st, uint64_t after, uint64_t upto, store_poll_cb cb, void *arg);
    void (*renew)(struct store *st, store_owners_cb cb, void *arg);
    void (*claim)(struct store *st, const char *const *clusters, size_t n, store_owners_cb cb, void *arg);
    void (*release)(struct store *st, const char *const *clusters, size_t n, store_cb cb, void *arg);
    void (*want)(struct store *st, const char *cluster, const char *journal, store_cb cb, void *arg);
    void (*hand_off)(struct store *st, const struct store_handoff *h, store_id_cb cb, void *arg);
    void (*answer)(struct store *st, const struct store_handoff *h, store_cb cb, void *arg);
};

struct request_entry;

/* First member of each engine's own struct. */
struct store {
    const struct store_ops *ops;
    uv_loop_t *loop;
    char uuid[40];
    uint64_t term;
    char replica[65];
    struct request_entry *requests; /* oldest first */
    bool committing;
    bool made; /* by store_open() */
};

extern const unsigned sqlite_schema_version; /* what this program knows */
int sqlite_store_open(uv_loop_t *loop, const struct store_config *cfg, struct store **ret, struct adv_err *err);
int mysql_store_open(uv_loop_t *loop, const struct store_config *cfg, struct store **ret, struct adv_err *err);

/* Engines call these while loading; any one thread. */

/* Forgets all request ids. */
void store_requests_clear(struct store *st);
/* Remembers one, and forgets those that are older than STORE_REQUEST_KEEP_US. One that is remembered stays as it is until then. */
adv_must_check int store_requests_add(struct store *st, const char *id, const char *hash, int64_t record_us,
                                      struct adv_err *err);
/* Decodes one row of `objects` and links it into @f; rows come in the order of (cluster, kind, key).
 * Errors: -ADV_DATA_LOSS (STORE_CORRUPT, names the row), -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int store_load_row(struct fleet *f, const char *cluster, enum resource_kind kind, const char *key,
                                  const void *record, size_t len, struct adv_err *err);
/* One row of `changes`, in order of seq; a gap begins the history anew after it. @w was made empty at @first. */
adv_must_check int store_load_change(struct watchlog *w, uint64_t seq, uint64_t revision, int kind, const char *cluster,
                                     const char *key, struct adv_err *err);

#endif
