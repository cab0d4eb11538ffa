/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_STORE_H
#define CONTROLPLANE_STORE_STORE_H

/* What must survive. One interface over two engines: SQLite (one file, one process, WAL, synchronous=FULL) and
 * MySQL/MariaDB (InnoDB, any number of replicas).
 *
 * A turn's changes are one transaction: collected in a `store_txn` on the loop thread (objects are encoded there and
 * then, so they may change again at once), committed by the engine, answered on the loop. "Committed" means on disk.
 *
 * Format: one row an object in one table, (cluster, kind, key) and `record`, in protobuf wire format with the field
 * numbers of codec.c. Unknown fields are skipped and missing ones are zero, so the previous version reads what this one
 * writes. Fleet-wide objects stand under FLEET_CLUSTER. Migrations are numbered and run under a lock when the store is
 * opened.
 *
 * A shared store (MySQL) has more than one writer. Each cluster is then owned by one replica, by a lease in the database's
 * own time; a transaction is guarded by the ownership of every cluster it touches, and what other replicas write is
 * followed. docs/internals/ownership.md tells the whole. An unshared store owns everything for ever.
 *
 * Thread: loop thread, unless said otherwise. Every callback comes on the loop, never before the function returned; but where
 * there is no memory for the question itself, from within (-ADV_RESOURCE_EXHAUSTED): store_commit(), store_list_audit(),
 * store_hand_off(), store_answer(). */

#include <uv.h>

#include "controlplane/domain/fleet.h"
#include "controlplane/domain/watchlog.h"

struct store;
struct store_txn;

struct store_config {
    const char *url;           /* a path (SQLite), or mysql://USER@HOST[:PORT]/DATABASE, mysql://USER@/DATABASE?socket=PATH */
    const char *password_file; /* MySQL; NULL or "" for none */
    const char *tls_ca;        /* MySQL: the server's CA, PEM; NULL or "" for no TLS */
    const char *replica;       /* who this process is, 1..64 characters, new at each start */
    int64_t owner_lease_us;    /* shared stores */
    int64_t timeout_us;        /* shared stores: a statement that takes longer has failed */
    bool accept_lossy;         /* MySQL: serve although innodb_flush_log_at_trx_commit is not 1 */
};

/* Opens or creates the store, takes its lock (SQLite), runs migrations.
 * Errors: -ADV_FAILED_PRECONDITION (another process has it open; its file has several names; written by a newer version; not
 * a store of ours; sealed by a copy; the engine is not built in), -ADV_UNAVAILABLE (the file system or server refused),
 * -ADV_DATA_LOSS (corrupt), -ADV_INVALID_ARGUMENT (url).
 * Blocks: yes, at start only. */
adv_must_check int store_open(uv_loop_t *loop, const struct store_config *cfg, struct store **ret, struct adv_err *err);
/* Nothing may be outstanding. Returns NULL. Blocks: until closed. The loop has to run once more. */
struct store *store_close(struct store *st);

/* @wake, called on any thread, makes the loop turn sooner than its own descriptors would (rpc_server_wake()). NULL: they
 * do. It is not called any more when this has returned. */
void store_set_wake(struct store *st, void (*wake)(void *arg), void *arg);

const char *store_uuid(const struct store *st);
uint64_t store_term(const struct store *st);
bool store_shared(const struct store *st);
/* There was none when it was opened (no file or an empty one; a database without tables of ours). */
bool store_made(const struct store *st);
const char *store_replica(const struct store *st);

/* Reads everything into @f and the newest changes into @w; both are the store's until @cb. Nothing else may be
 * outstanding. Errors: -ADV_UNAVAILABLE, -ADV_DATA_LOSS, -ADV_RESOURCE_EXHAUSTED. */
typedef void (*store_cb)(void *arg, const struct adv_err *err_or_null);
void store_load(struct store *st, struct fleet *f, struct watchlog *w, store_cb cb, void *arg);

/* Unshared stores only. Looks whether what is served is still what the store's name leads to: somebody may have
 * removed or replaced the file. Loads and commits look by themselves, an owner asks every now and then between them.
 * One may be outstanding, beside whatever else. It is a worker that looks: where the file system hangs, @cb is late
 * and nothing else; then nothing is concluded, as it is with a commit that hangs.
 * Errors: -ADV_UNAVAILABLE: STORE_REPLACED; STORE_FILE: the file system does not say. */
void store_look(struct store *st, store_cb cb, void *arg);

/* ---- writing ---- */

/* NULL when memory is gone. */
struct store_txn *store_txn_new(struct store *st);
void store_txn_free(struct store_txn *t);
/* The transaction holds only while this replica owns @c by the epoch it knows. First of all; shared stores only (else
 * nothing). Once a cluster is enough. */
void store_txn_guard(struct store_txn *t, const struct cluster *c);
/* @c is new: this replica is its first owner. */
void store_txn_own(struct store_txn *t, const struct cluster *c);
/* Encodes one changed object by its kind. A failure is kept and reported by the commit. */
void store_txn_put(struct store_txn *t, enum resource_kind kind, const char *cluster, const void *object);
void store_txn_delete(struct store_txn *t, enum resource_kind kind, const char *cluster, const char *key);
void store_txn_request(struct store_txn *t, const struct request_record *r);
/* Something changed: the rows are numbered by the store in the order of these calls, from the number that the commit's
 * callback tells. An audit event is a change of its own (kind RESOURCE_AUDIT). */
void store_txn_change(struct store_txn *t, uint64_t revision, enum resource_kind kind, const char *cluster,
                      const char *key);
void store_txn_audit(struct store_txn *t, uint64_t revision, const struct audit_record *r);
/* Empties detail and salt of the events of @cluster whose subject is @subject or lies below it ("<subject>/…"). */
void store_txn_audit_erase(struct store_txn *t, const char *cluster, const char *subject);
/* Removes the events of @cluster up to @through_seq. */
void store_txn_audit_cut(struct store_txn *t, const char *cluster, uint64_t through_seq);

/* Commits @t (taken over). One commit may be outstanding at a time. @first_seq is the number of the first change; with a
 * shared store there may be numbers of others between the last one known and it: follow before showing anything. A
 * transaction of guards alone writes nothing; @first_seq is then the number that the next change would have.
 * Errors: -ADV_UNAVAILABLE (disk full, I/O error: nothing of it is stored; reasons STORE_OUTCOME_UNKNOWN (its answer was
 * lost; SQLite: its file could not be looked at any more), STORE_REPLACED (SQLite: the file is not where it was): it
 * may be), -ADV_ABORTED (nothing is stored; reason STORE_NOT_OWNER: a guard did
 * not hold; STORE_REPLACED: the database does not hold the history that is known here). */
typedef void (*store_commit_cb)(void *arg, uint64_t first_seq, const struct adv_err *err_or_null);
void store_commit(struct store *st, struct store_txn *t, store_commit_cb cb, void *arg);

/* Answers what an earlier call with this id was: 0 and @ret_hash filled, or -ADV_NOT_FOUND. From memory, and of the
 * transaction under way too. */
int store_find_request(const struct store *st, const char *request_id, char ret_hash[65]);

/* ---- audit ---- */

/* A page of the audit log. Rows are valid during the callback. */
struct audit_query {
    char cluster[65];          /* "" for all */
    uint64_t after_rowid;
    char subject_prefix[256];
    char verb[64];
    char principal[128];
    int64_t from_us, before_us; /* record time at or after, before; 0 for any */
    /* Not NULL: only events of @cluster with one of these ids (copied). At most 200. */
    const char *const *event_ids;
    size_t n_event_ids;
    uint32_t limit;
    /* Not NULL, and valid until the callback: no more than STORE_AUDIT_SCAN events need be looked at, so that a filter that
     * finds little does not keep others waiting. Told is the id up to which they were, 0 for all. */
    uint64_t *ret_upto;
};
#define STORE_AUDIT_SCAN 20000
/* A deep copy; false: no memory, *@ret is empty. Released with audit_row_done(). */
adv_must_check bool audit_row_copy(struct audit_row *ret, const struct audit_row *r);
void audit_row_done(struct audit_row *r);

typedef void (*store_audit_cb)(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err_or_null);
void store_list_audit(struct store *st, const struct audit_query *q, store_audit_cb cb, void *arg);

/* ---- sharing: only for stores that are shared ---- */

/* One change of another replica, or of this one, with the object as it is now. Valid during the callback. */
struct store_change {
    uint64_t seq, revision;
    enum resource_kind kind; /* RESOURCE_NONE: of a newer version */
    const char *cluster, *key;
    const void *record; /* NULL: the object is gone, or the change has none (audit) */
    size_t len;
};

/* A call that another replica took for a cluster that this one owns; or, when @answered, the answer to one of ours. */
struct store_handoff {
    uint64_t id;
    const char *cluster;
    const char *method;  /* path of the call */
    const void *request; /* its message, packed; of an answer: the reply, packed, or an error as the API packs it */
    size_t request_len;
    const void *caller;  /* who called, as the API packs it */
    size_t caller_len;
    int64_t age_us;      /* by database time */
    uint64_t seq;        /* of an answer: the change that has to be seen before it is told */
};

struct store_news {
    const struct store_change *changes; /* in order of seq, without a gap after the one asked for */
    size_t n_changes;
    bool more; /* ask again at once */
    const struct store_handoff *todo; /* open ones of clusters that this replica owns, oldest first */
    size_t n_todo;
    const struct store_handoff *answers; /* to what this replica handed off; told once */
    size_t n_answers;
};

/* What happened after change @after; up to change @upto, if that is not 0 (then without handoffs). New request ids are
 * learned on the way. One poll or commit may be outstanding at a time.
 * Errors: -ADV_UNAVAILABLE; -ADV_ABORTED (STORE_REPLACED: another store, another term, or numbers that went back: a backup
 * was put in place); -ADV_OUT_OF_RANGE (HISTORY_COMPACTED: load again). */
typedef void (*store_poll_cb)(void *arg, const struct store_news *news, const struct adv_err *err_or_null);
void store_poll(struct store *st, uint64_t after, uint64_t upto, store_poll_cb cb, void *arg);

/* Brings @f up to date with one change: the object is decoded over the one that is there, made, or removed; the cluster's
 * revision is never below a change's. Errors: load again: -ADV_ABORTED (STORE_NOT_OWNER: it is of a cluster that is owned
 * here, so that somebody else owns it by now), -ADV_DATA_LOSS, -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int store_follow(struct fleet *f, const struct store_change *ch, struct adv_err *err);

/* A cluster in the table of owners. */
struct store_owner {
    char cluster[65];
    bool mine;
    bool free;      /* no owner, or its lease is over by database time */
    uint64_t epoch; /* of ownership; rises with each change of hands */
    char wanted[65];         /* the replica that asks for it; "" for none */
    char wanted_journal[65]; /* the agent that knocked there */
};

/* Extends the lease of all that is ours, and tells all that is ours or free. @sent_us is the CLOCK_BOOTTIME before the
 * statement was sent: leases told as ours end at @sent_us + owner_lease_us, or later.
 * One of renew, claim, release and want may be outstanding at a time, beside a commit or poll. */
typedef void (*store_owners_cb)(void *arg, int64_t sent_us, uint64_t seq, const struct store_owner *rows, size_t n,
                                const struct adv_err *err_or_null);
void store_renew(struct store *st, store_owners_cb cb, void *arg);

/* Takes those of @clusters that are free, or ours already (then by a new epoch, so that nothing of an earlier transaction
 * can land any more). Tells of all of @clusters that are in the table of owners whose they are now, and the newest change
 * @seq at that moment: memory has to follow up to it before what was got counts as the owner's. */
void store_claim(struct store *st, const char *const *clusters, size_t n, store_owners_cb cb, void *arg);

/* Gives up @clusters (NULL: all). */
void store_release(struct store *st, const char *const *clusters, size_t n, store_cb cb, void *arg);

/* Asks the owner of @cluster for it, on behalf of an agent with that journal. The wish is forgotten when it changes hands. */
void store_want(struct store *st, const char *cluster, const char *journal, store_cb cb, void *arg);

/* Hands a call to the owner of its cluster: id, age and seq are not read. @cb tells its id. Any number may be outstanding. */
typedef void (*store_id_cb)(void *arg, uint64_t id, const struct adv_err *err_or_null);
void store_hand_off(struct store *st, const struct store_handoff *h, store_id_cb cb, void *arg);
/* Answers one of store_news.todo: its id, and the answer in request and seq; nothing else of @h is read. */
void store_answer(struct store *st, const struct store_handoff *h, store_cb cb, void *arg);

#endif
