/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_DBCONN_H
#define CONTROLPLANE_STORE_DBCONN_H

/* One connection to a MySQL or MariaDB server, on the loop and never in its way.
 *
 * Queries wait in a queue and run one after the other; each has a deadline. It connects when there is something to ask,
 * and again after it was lost, with a jittered pause between attempts that failed. What a lost connection means is told
 * exactly: either the server never saw a query, or it refused it, or nobody knows (enum dboutcome). A query whose
 * deadline passes takes the connection with it.
 *
 * The session: literals and results are bytes (names compare bytewise, whatever the database's collation is), sql_mode
 * strict, time zone UTC, each statement its own transaction unless START TRANSACTION says otherwise, READ COMMITTED. A
 * server whose COMMIT does not mean "on disk" is refused (STORE_NOT_DURABLE).
 *
 * Only a connection's making blocks, on a libuv worker: Connector/C resolves names, shakes TLS hands and logs in with
 * blocking calls even in its non-blocking mode (measured with 3.3.20: a server that stops in between would have held
 * the loop for the whole connect timeout).
 *
 * An idle connection does not keep uv_run() going.
 *
 * Thread: loop thread.  The first one of a process also ignores SIGPIPE. */

#include <uv.h>

#include "common/buf.h"
#include "common/err.h"
#include "controlplane/store/dburl.h"

struct dbconn;

struct dbconn_config {
    struct dburl url;
    char *password_file; /* NULL or "": none. Read at each connect; a line end at its end does not count */
    char *tls_ca;        /* NULL or "": no TLS. Else TLS is required, and the server's name is verified */
    uint32_t connect_timeout_ms; /* whole seconds, at least one; holds for each step of connecting */
    uint32_t lock_wait_ms;       /* how long a statement waits for a lock of others; whole seconds, at least one */
    bool accept_not_durable;
    const char *purpose; /* "write"; in log lines and the server's process list */
    /* NULL, or a name of at most 64 characters: a new session begins only when every earlier one with this name has
     * ended at the server (an idle one is killed there, another waited for). So nothing that was sent on a lost connection happens after the next
     * one is up. */
    const char *fence;
};

/* What a session found. */
struct dbserver {
    char version[64];
    bool mariadb;
    bool read_only;
    uint64_t thread_id;
    uint64_t max_allowed_packet; /* bytes of one query's text */
};

enum dboutcome {
    DB_DONE,     /* every statement was carried out */
    DB_NOT_SENT, /* the server has not seen it */
    DB_REFUSED,  /* the server answered with an error at statement @statements; the ones before it were carried out */
    DB_UNKNOWN,  /* sent, and the connection lost: any part of it may have been carried out, or may yet be */
};

/* One row, valid during the callback. Columns are bytes with a NUL after them; NULL is SQL's NULL. */
struct dbrow {
    unsigned statement; /* which of the query's, from 0 */
    unsigned n;
    char *const *column;
    const unsigned long *len;
};

/* One or more statements separated by ';', sent at once. The struct and @sql are the caller's, and stay as they are
 * until @done, which is called exactly once. Callbacks come from the loop, never from within dbconn_query(); they may
 * call everything here. */
struct dbquery {
    const char *sql;
    size_t len;
    uint32_t timeout_ms; /* from dbconn_query(), so with waiting and connecting */
    uint64_t session;    /* 0: any; else it runs in this session (@ran_in of another query) or not at all */
    void (*row)(struct dbquery *q, const struct dbrow *row);                                /* may be NULL */
    void (*statement)(struct dbquery *q, unsigned statement, uint64_t rows_affected);       /* may be NULL */
    void (*done)(struct dbquery *q, const struct adv_err *err_or_null);
    void *arg; /* the caller's */

    enum dboutcome outcome; /* valid in @done */
    unsigned statements;    /* carried out */
    unsigned server_errno;  /* of DB_REFUSED */
    uint64_t ran_in;        /* the session, 0 when not sent */

    int64_t deadline_us_; /* private from here on */
    struct dbquery *prev, *next;
};

/* Does not connect yet. Copies @cfg; its strings and @name stay the caller's and must live on.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int dbconn_new(uv_loop_t *loop, const struct dbconn_config *cfg, struct dbconn **ret, struct adv_err *err);

/* All queries end (their callbacks come from within, or right after the callback that calls this). @closed is called
 * from the loop, after a worker that is still connecting has come back. Nothing may be asked after this. */
void dbconn_close(struct dbconn *c, void (*closed)(void *arg), void *arg);

/* Errors of @done (see db_error() for those the server tells):
 *   -ADV_UNAVAILABLE STORE_UNAVAILABLE   not reachable, lost, or past its deadline
 *   -ADV_FAILED_PRECONDITION STORE_NOT_DURABLE, STORE_NO_DATABASE
 *   -ADV_PERMISSION_DENIED STORE_ACCESS_DENIED
 *   -ADV_RESOURCE_EXHAUSTED              no memory */
void dbconn_query(struct dbconn *c, struct dbquery *q);

/* Ends the session; its query gets DB_UNKNOWN, from within or right after the callback that calls this. What waits runs
 * in the next one. */
void dbconn_drop(struct dbconn *c);

/* The newest session's; NULL before there was one. */
const struct dbserver *dbconn_server(const struct dbconn *c);

/* Fills @err for error @number of a server or of the connector, and returns its negative code. The table is in
 * dbconn.c:
 *   UNAVAILABLE         STORE_UNAVAILABLE, STORE_READ_ONLY, STORE_FULL, STORE_BUSY
 *   ABORTED             STORE_DEADLOCK, STORE_LOCK_WAIT
 *   ALREADY_EXISTS      STORE_DUPLICATE
 *   OUT_OF_RANGE        STORE_OUT_OF_RANGE
 *   PERMISSION_DENIED   STORE_ACCESS_DENIED
 *   FAILED_PRECONDITION STORE_NO_DATABASE
 *   DATA_LOSS           STORE_CORRUPT
 *   INTERNAL            STORE_SQL (any other: a statement of ours that this server does not take) */
int db_error(struct adv_err *err, unsigned number, const char *message);

/* Appends @bytes as a literal, with its quotes. */
void db_quote(struct adv_buf *b, const void *bytes, size_t len);

#endif
