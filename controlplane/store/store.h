/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_STORE_H
#define CONTROLPLANE_STORE_STORE_H

/* What must survive. One interface; the engine behind it is SQLite (one file, WAL, synchronous=FULL).
 *
 * A turn's changes are one transaction: collected in a `store_txn` on the loop thread (objects are encoded there and
 * then, so they may change again at once), committed by a worker, answered on the loop. "Committed" means on disk.
 *
 * Format: one row an object, its key in columns and the rest in `record`, in protobuf wire format with the field
 * numbers of codec.c. Unknown fields are skipped and missing ones are zero, so the previous version reads what this one
 * writes. Migrations are numbered and run under the write lock when the store is opened.
 *
 * Thread: loop thread, unless said otherwise. */

#include <uv.h>

#include "controlplane/domain/fleet.h"
#include "controlplane/domain/watchlog.h"

struct store;
struct store_txn;

/* Opens or creates the store at @path, takes its lock, runs migrations.
 * Errors: -ADV_FAILED_PRECONDITION (another process has it open; written by a newer version; not a store of ours),
 * -ADV_UNAVAILABLE (the file system refused; sys_errno), -ADV_DATA_LOSS (corrupt).
 * Blocks: yes, at start only. */
adv_must_check int store_open(uv_loop_t *loop, const char *path, struct store **ret, struct adv_err *err);
/* No commit may be outstanding. Returns NULL. Blocks: until closed. */
struct store *store_close(struct store *st);

const char *store_uuid(const struct store *st);
uint64_t store_term(const struct store *st);

/* Reads everything into @f and the newest changes into @w. Errors: -ADV_UNAVAILABLE, -ADV_DATA_LOSS,
 * -ADV_RESOURCE_EXHAUSTED. Blocks: yes (start, and after a failed commit). */
adv_must_check int store_load(struct store *st, struct fleet *f, struct watchlog *w, struct adv_err *err);

/* NULL when memory is gone. */
struct store_txn *store_txn_new(struct store *st);
void store_txn_free(struct store_txn *t);
/* Encodes one changed object (by its kind) or record. A failure is kept and reported by the commit. */
void store_txn_put(struct store_txn *t, enum resource_kind kind, const void *object);
void store_txn_audit(struct store_txn *t, const struct audit_record *r);
void store_txn_request(struct store_txn *t, const struct request_record *r);
void store_txn_change(struct store_txn *t, uint64_t seq, uint64_t revision, enum resource_kind kind, const char *cluster,
                      const char *name);

/* Commits @t (taken over) and calls @cb on the loop. One commit may be outstanding at a time.
 * @cb's error: -ADV_UNAVAILABLE (disk full, I/O error; nothing of it is stored). */
typedef void (*store_commit_cb)(void *arg, const struct adv_err *err_or_null);
void store_commit(struct store *st, struct store_txn *t, store_commit_cb cb, void *arg);

/* Answers what an earlier call with this id was: 0 and @ret_hash filled, or -ADV_NOT_FOUND. From memory, and of the
 * transaction under way too. */
int store_find_request(const struct store *st, const char *request_id, char ret_hash[65]);

/* A page of the audit log, read by a worker. Rows are valid during the callback. */
struct audit_query {
    char cluster[65];          /* "" for all */
    uint64_t after_rowid;
    char subject_prefix[256];
    char verb[64];
    uint32_t limit;
};
typedef void (*store_audit_cb)(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err_or_null);
void store_list_audit(struct store *st, const struct audit_query *q, store_audit_cb cb, void *arg);

#endif
