/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_DBSYNC_H
#define CONTROLPLANE_STORE_DBSYNC_H

/* A dbconn for those who have time: opening a store, tools. It has a loop of its own and each call blocks.
 *
 * Thread: one owner.  Blocks: yes, each query up to its timeout. */

#include "controlplane/store/dbconn.h"

struct dbsync;

/* Connects. Errors: as dbconn_query(). */
adv_must_check int dbsync_open(const struct dbconn_config *cfg, uint32_t timeout_ms, struct dbsync **ret, struct adv_err *err);
struct dbsync *dbsync_close(struct dbsync *s); /* returns NULL */
const struct dbserver *dbsync_server(const struct dbsync *s);

/* Runs the statements of @sql. @row (may be NULL) gets each row; when it returns negative the rest of the rows is passed
 * over, and that is returned with what it put into @err. */
typedef int (*dbsync_row_cb)(void *arg, const struct dbrow *row, struct adv_err *err);
adv_must_check int dbsync_run(struct dbsync *s, const char *sql, size_t len, dbsync_row_cb row, void *arg, struct adv_err *err);
adv_must_check int dbsync_exec(struct dbsync *s, struct adv_err *err, const char *fmt, ...) ADV_PRINTF(3, 4);
/* The first column of the first row; "" when there is none or it is NULL. */
adv_must_check int dbsync_text(struct dbsync *s, const char *sql, char *buf, size_t size, struct adv_err *err);

ADV_DEFINE_CLEANUP(dbsync, dbsync_close);

#endif
