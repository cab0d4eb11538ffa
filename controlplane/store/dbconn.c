/* SPDX-License-Identifier: Apache-2.0 */
/* A connection is made by a worker (dial_run) and handed over to the loop, which puts its socket into non-blocking mode
 * and from then on uses only the connector's _start/_cont calls: each says what to wait for, a poll handle waits.
 *
 * Three layers of state: the link (down, dialling, up), the step within the query that runs, the queue. run() is the one
 * place that moves on; it is called from handles' callbacks only, so no caller sees its callback before its call
 * returns.
 *
 * A link that is cut in the middle of anything is shut down before the connector closes it, so that neither its farewell
 * nor the rest of a result that it wants to read can wait for a peer that is not there.
 *
 * Left: one thread a connection with blocking calls. It needs no stack switching inside the connector, but then a
 * deadline means closing a descriptor under a thread that uses it. */

#include "controlplane/store/dbconn.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <utlist.h>

#include <errmsg.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <openssl/err.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/num.h"

#define BACKOFF_MIN_MS    100
#define BACKOFF_MAX_MS    5000
#define ROWS_AT_ONCE      200 /* then the loop gets its turn */
#define PASSWORD_MAX      1024
#define IDLE_WRITE_S      15 /* the server ends a session that wrote, holds locks and went silent */
#define IDLE_READ_S       120
#define IDLE_SESSION_S    (24 * 3600)
/* Plugins that hand the server the password itself, or ask on the terminal, are not among them. */
#define AUTH_PLUGINS      "mysql_native_password,client_ed25519,caching_sha2_password,sha256_password,parsec,auth_socket,unix_socket"

enum link { LINK_DOWN, LINK_DIALLING, LINK_UP };
enum step { STEP_IDLE, STEP_QUERY, STEP_FETCH, STEP_NEXT };

/* The part of a link that libuv holds on to until its close callback. */
struct wire {
    uv_poll_t poll;
    MYSQL *m;
};

struct dbconn {
    uv_loop_t *loop;
    struct dbconn_config cfg;
    enum link link;
    struct wire *wire;
    struct dbserver server;
    uint64_t session; /* counts links */
    bool had_session;

    struct dbquery *queue; /* its head runs when step is not IDLE */
    enum step step;
    bool started; /* the step's _start was called and waits */
    MYSQL_RES *res;
    bool running;    /* callbacks are being called, and run() follows */
    bool drop_asked; /* by one of them, while its query runs */

    uv_timer_t timer; /* the next deadline, or the end of the pause */
    uv_idle_t kick;
    int64_t retry_us; /* not before */
    uint32_t pause_ms;

    bool closing, closed_down;
    int handles;
    void (*closed)(void *);
    void *closed_arg;
};

/* ---- what an error means ---------------------------------------------------------------------------------------- */

static const struct {
    unsigned number;
    enum adv_code code;
    const char *reason;
} errors[] = {
    { CR_SERVER_GONE_ERROR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_SERVER_LOST, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_SERVER_LOST_EXTENDED, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_CONNECTION_ERROR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_CONN_HOST_ERROR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_UNKNOWN_HOST, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_IPSOCK_ERROR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_SOCKET_CREATE_ERROR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_SERVER_HANDSHAKE_ERR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_MALFORMED_PACKET, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_SSL_CONNECTION_ERROR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { CR_OUT_OF_MEMORY, ADV_RESOURCE_EXHAUSTED, NULL },
    { ER_SERVER_SHUTDOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_NORMAL_SHUTDOWN, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_NEW_ABORTING_CONNECTION, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_CONNECTION_KILLED, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_QUERY_INTERRUPTED, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_NET_READ_ERROR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_NET_READ_INTERRUPTED, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_NET_ERROR_ON_WRITE, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_NET_WRITE_INTERRUPTED, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_UNKNOWN_COM_ERROR, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" }, /* Galera: "WSREP has not yet prepared node" */
    { ER_ERROR_DURING_COMMIT, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { 1969 /* MariaDB: max_statement_time */, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { 4031 /* MySQL: disconnected because of inactivity */, ADV_UNAVAILABLE, "STORE_UNAVAILABLE" },
    { ER_CON_COUNT_ERROR, ADV_UNAVAILABLE, "STORE_BUSY" },
    { ER_TOO_MANY_USER_CONNECTIONS, ADV_UNAVAILABLE, "STORE_BUSY" },
    { ER_USER_LIMIT_REACHED, ADV_UNAVAILABLE, "STORE_BUSY" },
    { ER_OUT_OF_RESOURCES, ADV_UNAVAILABLE, "STORE_BUSY" },
    { ER_OUTOFMEMORY, ADV_UNAVAILABLE, "STORE_BUSY" },
    { ER_CANT_CREATE_THREAD, ADV_UNAVAILABLE, "STORE_BUSY" },
    { ER_OPTION_PREVENTS_STATEMENT, ADV_UNAVAILABLE, "STORE_READ_ONLY" }, /* read_only, super_read_only */
    { ER_READ_ONLY_MODE, ADV_UNAVAILABLE, "STORE_READ_ONLY" },
    { ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION, ADV_UNAVAILABLE, "STORE_READ_ONLY" },
    { ER_INNODB_READ_ONLY, ADV_UNAVAILABLE, "STORE_READ_ONLY" },
    { ER_OPEN_AS_READONLY, ADV_UNAVAILABLE, "STORE_READ_ONLY" },
    { ER_DISK_FULL, ADV_UNAVAILABLE, "STORE_FULL" },
    { ER_RECORD_FILE_FULL, ADV_UNAVAILABLE, "STORE_FULL" },
    { ER_TEMP_FILE_WRITE_FAILURE, ADV_UNAVAILABLE, "STORE_FULL" },
    { 3675 /* MySQL: ER_DISK_FULL_NOWAIT */, ADV_UNAVAILABLE, "STORE_FULL" },
    { ER_LOCK_DEADLOCK, ADV_ABORTED, "STORE_DEADLOCK" },
    { ER_CHECKREAD, ADV_ABORTED, "STORE_DEADLOCK" }, /* MariaDB 11: the row changed since the snapshot */
    { ER_LOCK_WAIT_TIMEOUT, ADV_ABORTED, "STORE_LOCK_WAIT" },
    { ER_LOCK_TABLE_FULL, ADV_ABORTED, "STORE_LOCK_WAIT" },
    { ER_DUP_ENTRY, ADV_ALREADY_EXISTS, "STORE_DUPLICATE" },
    { ER_DUP_KEY, ADV_ALREADY_EXISTS, "STORE_DUPLICATE" },
    { ER_WARN_DATA_OUT_OF_RANGE, ADV_OUT_OF_RANGE, "STORE_OUT_OF_RANGE" },
    { ER_DATA_OUT_OF_RANGE, ADV_OUT_OF_RANGE, "STORE_OUT_OF_RANGE" },
    { ER_DATA_TOO_LONG, ADV_OUT_OF_RANGE, "STORE_OUT_OF_RANGE" },
    { ER_NET_PACKET_TOO_LARGE, ADV_OUT_OF_RANGE, "STORE_OUT_OF_RANGE" },
    { ER_TOO_BIG_ROWSIZE, ADV_OUT_OF_RANGE, "STORE_OUT_OF_RANGE" },
    { CR_NET_PACKET_TOO_LARGE, ADV_OUT_OF_RANGE, "STORE_OUT_OF_RANGE" },
    { ER_ACCESS_DENIED_ERROR, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { ER_DBACCESS_DENIED_ERROR, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { ER_TABLEACCESS_DENIED_ERROR, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { ER_SPECIFIC_ACCESS_DENIED_ERROR, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { ER_ACCESS_DENIED_NO_PASSWORD_ERROR, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { ER_HOST_NOT_PRIVILEGED, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { ER_HOST_IS_BLOCKED, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { ER_MUST_CHANGE_PASSWORD_LOGIN, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { CR_AUTH_PLUGIN_ERR, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { CR_PLUGIN_NOT_ALLOWED, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { CR_AUTH_PLUGIN_CANNOT_LOAD, ADV_PERMISSION_DENIED, "STORE_ACCESS_DENIED" },
    { ER_BAD_DB_ERROR, ADV_FAILED_PRECONDITION, "STORE_NO_DATABASE" },
    { ER_NO_DB_ERROR, ADV_FAILED_PRECONDITION, "STORE_NO_DATABASE" },
    { ER_NOT_KEYFILE, ADV_DATA_LOSS, "STORE_CORRUPT" },
    { ER_CRASHED_ON_USAGE, ADV_DATA_LOSS, "STORE_CORRUPT" },
    { ER_CRASHED_ON_REPAIR, ADV_DATA_LOSS, "STORE_CORRUPT" },
    { ER_INDEX_CORRUPT, ADV_DATA_LOSS, "STORE_CORRUPT" },
    { ER_TABLE_CORRUPT, ADV_DATA_LOSS, "STORE_CORRUPT" },
};

int db_error(struct adv_err *err, unsigned number, const char *message)
{
    enum adv_code code = ADV_INTERNAL;
    const char *reason = "STORE_SQL";

    for (size_t i = 0; i < ADV_ARRAY_LEN(errors); i++)
        if (errors[i].number == number) {
            code = errors[i].code;
            reason = errors[i].reason;
            break;
        }
    /* 'Got error 28 "No space left on device" from storage engine': which error it was is in the text alone */
    if (number == ER_GET_ERRNO || number == ER_ERROR_ON_WRITE || number == ER_ERROR_ON_READ || number == ER_CANT_CREATE_TABLE) {
        bool full = strstr(message, "No space left") || strstr(message, "No more room") || strstr(message, "rrcode: 28");
        code = ADV_UNAVAILABLE;
        reason = full ? "STORE_FULL" : "STORE_UNAVAILABLE";
    }
    return adv_err_set_reason(err, code, reason, "database: %s (%u)", message, number);
}

static int lost(struct adv_err *err, const char *what)
{
    return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_UNAVAILABLE", "database: %s", what);
}

void db_quote(struct adv_buf *b, const void *bytes, size_t len)
{
    const char *p = bytes, *end = p + len, *plain;

    (void) adv_buf_append_byte(b, '\'');
    while (p < end) {
        for (plain = p; p < end && *p != '\'' && *p != '\\' && *p != '\0'; p++)
            ;
        (void) adv_buf_append(b, plain, (size_t) (p - plain));
        if (p < end) {
            (void) adv_buf_append_byte(b, '\\');
            (void) adv_buf_append_byte(b, *p ? (uint8_t) *p : '0');
            p++;
        }
    }
    (void) adv_buf_append_byte(b, '\'');
}

/* ---- dialling, on a worker -------------------------------------------------------------------------------------- */

struct dial {
    uv_work_t work;
    struct dbconn *c; /* its configuration does not change, and it waits for us before it goes */
    MYSQL *m;
    struct dbserver server;
    struct adv_err err;
    int r;
};

static bool given(const char *s)
{
    return s && *s;
}

static int read_password(const char *path, char buf[PASSWORD_MAX], struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, PASSWORD_MAX);

    if (n < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "store.password_file %s", path);
    if (n == PASSWORD_MAX)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "store.password_file %s: longer than %d bytes", path, PASSWORD_MAX - 1);
    while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\r'))
        n--;
    buf[n] = '\0';
    return 0;
}

static int my_error(struct dial *d, const char *doing)
{
    int r = db_error(&d->err, mysql_errno(d->m), mysql_error(d->m));

    adv_err_wrap(&d->err, "%s", doing);
    return r;
}

/* Runs one statement; its one row's columns go to @ret, the missing ones are "". */
static int ask(struct dial *d, const char *sql, char ret[][64], unsigned n)
{
    MYSQL_RES *res;
    MYSQL_ROW row;

    if (mysql_query(d->m, sql) != 0)
        return my_error(d, sql);
    res = mysql_store_result(d->m);
    if (!res)
        return mysql_errno(d->m) ? my_error(d, sql) : 0;
    row = mysql_fetch_row(res);
    for (unsigned i = 0; i < n; i++)
        (void) snprintf(ret[i], 64, "%s", row && i < mysql_num_fields(res) && row[i] ? row[i] : "");
    mysql_free_result(res);
    return 0;
}

static void set_options(const struct dbconn_config *cfg, MYSQL *m)
{
    unsigned timeout_s = (cfg->connect_timeout_ms + 999) / 1000, no = 0;
    unsigned protocol = cfg->url.socket[0] ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP;
    my_bool yes = 1;

    if (timeout_s == 0)
        timeout_s = 1;
    (void) mysql_options(m, MYSQL_OPT_NONBLOCK, NULL);
    (void) mysql_options(m, MYSQL_OPT_PROTOCOL, &protocol);
    (void) mysql_options(m, MYSQL_OPT_CONNECT_TIMEOUT, &timeout_s);
    (void) mysql_options(m, MYSQL_OPT_READ_TIMEOUT, &timeout_s);
    (void) mysql_options(m, MYSQL_OPT_WRITE_TIMEOUT, &timeout_s);
    (void) mysql_options(m, MYSQL_OPT_LOCAL_INFILE, &no); /* a server may ask for any of our files otherwise */
    (void) mysql_options(m, MARIADB_OPT_RESTRICTED_AUTH, AUTH_PLUGINS);
    (void) mysql_options(m, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    (void) mysql_optionsv(m, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "advisord");
    (void) mysql_optionsv(m, MYSQL_OPT_CONNECT_ATTR_ADD, "advisor_purpose", cfg->purpose);
    if (given(cfg->tls_ca)) {
        (void) mysql_ssl_set(m, NULL, NULL, cfg->tls_ca, NULL, NULL);
        (void) mysql_options(m, MYSQL_OPT_SSL_ENFORCE, &yes);
        (void) mysql_options(m, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
    }
}

static int log_in(struct dial *d, const struct dbconn_config *cfg)
{
    char password[PASSWORD_MAX] = "";
    int r = 0;

    if (given(cfg->password_file) && (r = read_password(cfg->password_file, password, &d->err)) < 0)
        return r;
    if (!mysql_real_connect(d->m, cfg->url.host[0] ? cfg->url.host : NULL, cfg->url.user, password, cfg->url.database,
                            cfg->url.port, cfg->url.socket[0] ? cfg->url.socket : NULL, CLIENT_MULTI_STATEMENTS))
        r = my_error(d, "connecting");
    explicit_bzero(password, sizeof(password));
    return r;
}

static int prepare_session(struct dial *d, const struct dbconn_config *cfg)
{
    char v[5][64], sql[512];
    uint64_t number;
    int r;

    (void) snprintf(sql, sizeof(sql),
                    "SET NAMES binary, SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
                    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', SESSION time_zone = '+00:00', SESSION autocommit = 1,"
                    " SESSION innodb_lock_wait_timeout = %d, SESSION wait_timeout = %d",
                    cfg->lock_wait_ms > 1000 ? (int) (cfg->lock_wait_ms / 1000) : 1, IDLE_SESSION_S);
    if ((r = ask(d, sql, NULL, 0)) < 0 ||
        (r = ask(d, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", NULL, 0)) < 0 ||
        (r = ask(d, "SELECT VERSION(), CONNECTION_ID(), @@max_allowed_packet, @@global.read_only, @@version_comment", v, 5)) < 0)
        return r;
    (void) snprintf(d->server.version, sizeof(d->server.version), "%s", v[0]);
    d->server.mariadb = strstr(v[0], "MariaDB") || strstr(v[4], "MariaDB") || strstr(v[4], "mariadb");
    d->server.read_only = !adv_streq(v[3], "0") && !adv_streq(v[3], "OFF");
    if (adv_parse_u64(v[1], 0, UINT64_MAX, &number, &d->err) < 0 ||
        adv_parse_u64(v[2], 1024, UINT64_MAX, &d->server.max_allowed_packet, &d->err) < 0)
        return -(int) d->err.code;
    d->server.thread_id = number;
    if (!d->server.mariadb)
        return 0;
    (void) snprintf(sql, sizeof(sql), "SET SESSION idle_write_transaction_timeout = %d, idle_readonly_transaction_timeout = %d",
                    IDLE_WRITE_S, IDLE_READ_S);
    return ask(d, sql, NULL, 0);
}

/* With a binary log that is not synced, recovery after a crash of the machine throws away what InnoDB had prepared and
 * the log does not have, acknowledged or not. */
static int check_durable(struct dial *d)
{
    char v[3][64];
    int r = ask(d, "SELECT @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog", v, 3);

    if (r < 0)
        return r;
    if (!adv_streq(v[0], "1"))
        return adv_err_set_reason(&d->err, ADV_FAILED_PRECONDITION, "STORE_NOT_DURABLE",
                                  "database: innodb_flush_log_at_trx_commit is %s, so a commit may be lost; expected 1", v[0]);
    if (!adv_streq(v[1], "0") && !adv_streq(v[2], "1"))
        return adv_err_set_reason(&d->err, ADV_FAILED_PRECONDITION, "STORE_NOT_DURABLE",
                                  "database: it writes a binary log and sync_binlog is %s, so a commit may be lost; expected 1",
                                  v[2]);
    return 0;
}

/* See dbconn.h. The lock is the server's to release, when it has taken the session apart: whatever that did is then
 * done or undone. A session that sleeps is one whose end the server has not noticed; it is ended. One that still does
 * something is left to finish: that takes no longer than its locks let it wait, and a rollback forced on a server that
 * is short of disk can end the server (seen with MariaDB 10.11). */
static int take_fence(struct dial *d, const struct dbconn_config *cfg)
{
    unsigned timeout_s = cfg->connect_timeout_ms / 1000 ? cfg->connect_timeout_ms / 1000 : 1;
    ADV_AUTO_DONE(adv_buf) b;
    char v[1][64], sql[80];
    int r;

    adv_buf_init(&b, 1024);
    (void) adv_buf_append_str(&b, "SELECT id FROM information_schema.processlist WHERE command = 'Sleep' AND id = IS_USED_LOCK(");
    db_quote(&b, cfg->fence, strlen(cfg->fence));
    (void) adv_buf_append_str(&b, ")");
    if (adv_buf_error(&b))
        return adv_err_set(&d->err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if ((r = ask(d, b.data, v, 1)) < 0)
        return r;
    if (v[0][0]) {
        (void) snprintf(sql, sizeof(sql), "KILL %s", v[0]);
        (void) mysql_query(d->m, sql); /* gone by itself, or not ours: the lock will tell */
    }
    adv_buf_reset(&b);
    (void) adv_buf_append_str(&b, "SELECT GET_LOCK(");
    db_quote(&b, cfg->fence, strlen(cfg->fence));
    /* a second less than the connector waits for the answer */
    (void) adv_buf_appendf(&b, ", %u)", timeout_s > 1 ? timeout_s - 1 : 0);
    if ((r = ask(d, b.data, v, 1)) < 0)
        return r;
    return adv_streq(v[0], "1") ? 0 : lost(&d->err, "what was sent there last is still going on");
}

static void dial_run(uv_work_t *work)
{
    struct dial *d = work->data;
    const struct dbconn_config *cfg = &d->c->cfg;

    ERR_clear_error();
    d->m = mysql_init(NULL);
    if (!d->m) {
        d->r = adv_err_set(&d->err, ADV_RESOURCE_EXHAUSTED, "database: no memory");
        return;
    }
    set_options(cfg, d->m);
    if ((d->r = log_in(d, cfg)) < 0 || (d->r = prepare_session(d, cfg)) < 0 ||
        (!cfg->accept_not_durable && (d->r = check_durable(d)) < 0) || (cfg->fence && (d->r = take_fence(d, cfg)) < 0)) {
        mysql_close(d->m);
        d->m = NULL;
    }
    mysql_thread_end();
}

/* ---- the link --------------------------------------------------------------------------------------------------- */

static void run(struct dbconn *c, int ready);

static int64_t now_us(const struct dbconn *c)
{
    return (int64_t) uv_now(c->loop) * 1000;
}

static void handle_closed(uv_handle_t *h)
{
    struct dbconn *c = h->data;

    if (--c->handles)
        return;
    if (c->closed)
        c->closed(c->closed_arg);
    free(c);
}

static void wire_closed(uv_handle_t *h)
{
    struct dbconn *c = h->data;

    free(ADV_CONTAINER_OF((uv_poll_t *) h, struct wire, poll));
    handle_closed((uv_handle_t *) &c->timer);
}

static void kick_cb(uv_idle_t *h)
{
    (void) uv_idle_stop(h);
    run(h->data, 0);
}

static void kick(struct dbconn *c)
{
    (void) uv_idle_start(&c->kick, kick_cb);
}

static void timer_cb(uv_timer_t *h);

static void arm_timer(struct dbconn *c)
{
    struct dbquery *q;
    int64_t at_us = INT64_MAX, wait_us;

    DL_FOREACH (c->queue, q)
        if (q->deadline_us_ < at_us)
            at_us = q->deadline_us_;
    if (c->queue && c->link == LINK_DOWN && c->retry_us < at_us)
        at_us = c->retry_us;
    if (at_us == INT64_MAX) {
        (void) uv_timer_stop(&c->timer);
        return;
    }
    wait_us = at_us - now_us(c);
    (void) uv_timer_start(&c->timer, timer_cb, wait_us > 0 ? (uint64_t) (wait_us + 999) / 1000 : 0, 0);
}

/* @clean: nothing is under way, so the server may be told goodbye. */
static void cut(struct dbconn *c, bool clean)
{
    struct wire *w = ADV_STEAL(c->wire);

    if (!w)
        return;
    c->link = LINK_DOWN;
    (void) uv_idle_stop(&c->kick);
    (void) uv_poll_stop(&w->poll);
    if (!clean)
        (void) shutdown(mysql_get_socket(w->m), SHUT_RDWR);
    uv_close((uv_handle_t *) &w->poll, wire_closed); /* from here on libuv does not look at the descriptor */
    if (c->res) {
        mysql_free_result(c->res);
        c->res = NULL;
    }
    mysql_close(w->m);
    c->step = STEP_IDLE;
    c->started = false;
}

static void end_query(struct dbconn *c, struct dbquery *q, enum dboutcome outcome, const struct adv_err *err)
{
    DL_DELETE(c->queue, q);
    q->outcome = outcome;
    q->done(q, err);
}

/* Cuts the link and ends the query that ran on it. */
static void fail_link(struct dbconn *c, const struct adv_err *err)
{
    struct dbquery *q = c->step != STEP_IDLE ? c->queue : NULL;

    adv_debug("dbconn", "connection lost", ADV_FS("purpose", c->cfg.purpose), ADV_FS("why", err->msg));
    cut(c, false);
    if (q)
        end_query(c, q, DB_UNKNOWN, err);
}

static void lose(struct dbconn *c, const char *why)
{
    struct adv_err err = { 0 };

    (void) lost(&err, why);
    c->running = true;
    fail_link(c, &err);
    c->running = false;
    run(c, 0);
}

static void poll_cb(uv_poll_t *h, int status, int events)
{
    struct dbconn *c = h->data;

    if (status < 0)
        lose(c, uv_strerror(status));
    else if (c->step == STEP_IDLE) /* the server has nothing to say unasked, but that it goes */
        lose(c, "the server closed the connection");
    else
        run(c, (events & (UV_READABLE | UV_DISCONNECT) ? MYSQL_WAIT_READ : 0) | (events & UV_WRITABLE ? MYSQL_WAIT_WRITE : 0));
}

static void poll_for(struct dbconn *c, int events)
{
    uv_ref((uv_handle_t *) &c->wire->poll);
    (void) uv_poll_start(&c->wire->poll, events, poll_cb);
}

/* An idle connection watches for its end, which nobody waits for: it does not keep the loop going. */
static void poll_idle(struct dbconn *c)
{
    poll_for(c, UV_READABLE | UV_DISCONNECT);
    uv_unref((uv_handle_t *) &c->wire->poll);
}

static void after_failed_dial(struct dbconn *c)
{
    uint32_t r = 0;

    c->pause_ms = c->pause_ms ? c->pause_ms * 2 : BACKOFF_MIN_MS;
    if (c->pause_ms > BACKOFF_MAX_MS)
        c->pause_ms = BACKOFF_MAX_MS;
    if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != (ssize_t) sizeof(r))
        r = 0; /* then without jitter */
    c->retry_us = now_us(c) + (int64_t) c->pause_ms * (1000 - r % 500);
}

static void close_handles(struct dbconn *c)
{
    uv_close((uv_handle_t *) &c->timer, handle_closed);
    uv_close((uv_handle_t *) &c->kick, handle_closed);
}

static void close_down(struct dbconn *c)
{
    struct adv_err err = { 0 };
    struct dbquery *q;
    bool sent = c->step != STEP_IDLE, dialling = c->link == LINK_DIALLING;

    c->closed_down = true;
    c->running = true;
    cut(c, !sent);
    (void) lost(&err, "closing");
    while ((q = c->queue)) {
        end_query(c, q, sent ? DB_UNKNOWN : DB_NOT_SENT, &err);
        sent = false;
    }
    if (!dialling)
        close_handles(c);
}

static int take_link(struct dbconn *c, struct dial *d)
{
    struct wire *w = calloc(1, sizeof(*w));
    /* This also puts the socket into non-blocking mode. The connector believes it blocks, and copes; on one that does, its
     * reads and writes on TLS would hold us. */
    int r = w ? uv_poll_init(c->loop, &w->poll, mysql_get_socket(d->m)) : UV_ENOMEM;

    if (r < 0) {
        free(w);
        return lost(&d->err, uv_strerror(r));
    }
    w->poll.data = c;
    w->m = ADV_STEAL(d->m);
    c->handles++;
    c->wire = w;
    c->link = LINK_UP;
    c->server = d->server;
    c->session++;
    c->had_session = true;
    c->pause_ms = 0;
    poll_idle(c);
    return 0;
}

static void dial_done(uv_work_t *work, int status)
{
    struct dial *d = work->data;
    struct dbconn *c = d->c;

    if (status < 0)
        d->r = lost(&d->err, uv_strerror(status));
    if (c->closed_down) {
        if (d->m)
            mysql_close(d->m);
        free(d);
        close_handles(c);
        return;
    }
    c->link = LINK_DOWN;
    if (d->r == 0)
        d->r = take_link(c, d);
    if (d->m)
        mysql_close(d->m);
    if (d->r < 0) {
        struct dbquery *waiting = ADV_STEAL(c->queue), *q;
        adv_debug("dbconn", "cannot connect", ADV_FS("purpose", c->cfg.purpose), ADV_FS("why", d->err.msg));
        after_failed_dial(c);
        c->running = true; /* what callbacks ask for now waits for the next attempt */
        while ((q = waiting)) {
            DL_DELETE(waiting, q);
            q->outcome = DB_NOT_SENT;
            q->done(q, &d->err);
        }
        c->running = false;
    } else {
        adv_debug("dbconn", "connected", ADV_FS("purpose", c->cfg.purpose), ADV_FS("version", c->server.version),
                  ADV_FU("thread", c->server.thread_id));
    }
    free(d);
    run(c, 0);
}

static void dial(struct dbconn *c)
{
    struct dial *d = calloc(1, sizeof(*d));

    if (!d) {
        after_failed_dial(c);
        return;
    }
    d->c = c;
    d->work.data = d;
    c->link = LINK_DIALLING;
    (void) uv_queue_work(c->loop, &d->work, dial_run, dial_done);
}

/* ---- running a query -------------------------------------------------------------------------------------------- */

enum verdict { V_WAIT, V_ON, V_LOST, V_REFUSED, V_DONE };

/* The server's own word is an answer, and the connection goes on; the connector's means that it is broken. */
static enum verdict answer(struct dbconn *c, struct adv_err *err)
{
    unsigned number = mysql_errno(c->wire->m);

    (void) db_error(err, number, mysql_error(c->wire->m));
    if ((number >= CR_MIN_ERROR && number <= CR_MAX_ERROR) || (number >= CER_MIN_ERROR && number <= CER_MAX_ERROR))
        return V_LOST;
    c->queue->server_errno = number;
    /* said as the last word before the server hangs up */
    if (number == ER_SERVER_SHUTDOWN || number == ER_CONNECTION_KILLED || number == ER_NORMAL_SHUTDOWN || number == 4031)
        return V_LOST;
    return V_REFUSED;
}

static int wait_of(int st)
{
    return (st & MYSQL_WAIT_READ ? UV_READABLE : 0) | (st & MYSQL_WAIT_WRITE ? UV_WRITABLE : 0) |
           (st & MYSQL_WAIT_EXCEPT ? UV_PRIORITIZED : 0);
}

/* After a statement's answer has arrived: it has rows to fetch, or is complete. */
static enum verdict take_result(struct dbconn *c, struct adv_err *err)
{
    MYSQL *m = c->wire->m;
    struct dbquery *q = c->queue;

    c->res = mysql_use_result(m);
    if (c->res) {
        c->step = STEP_FETCH;
        return V_ON;
    }
    if (mysql_field_count(m) != 0)
        return answer(c, err);
    if (q->statement)
        q->statement(q, q->statements, mysql_affected_rows(m));
    q->statements++;
    c->step = STEP_NEXT;
    return V_ON;
}

static enum verdict step_query(struct dbconn *c, int ready, struct adv_err *err)
{
    struct dbquery *q = c->queue;
    int r = 0, st = c->started ? mysql_real_query_cont(&r, c->wire->m, ready) :
                                 mysql_real_query_start(&r, c->wire->m, q->sql, q->len);

    c->started = st != 0;
    if (st) {
        poll_for(c, wait_of(st));
        return V_WAIT;
    }
    return r ? answer(c, err) : take_result(c, err);
}

static enum verdict step_fetch(struct dbconn *c, int ready, unsigned *rows, struct adv_err *err)
{
    struct dbquery *q = c->queue;
    MYSQL_ROW row = NULL;
    int st = c->started ? mysql_fetch_row_cont(&row, c->res, ready) : mysql_fetch_row_start(&row, c->res);

    c->started = st != 0;
    if (st) {
        poll_for(c, wait_of(st));
        return V_WAIT;
    }
    if (row) {
        struct dbrow view = { q->statements, mysql_num_fields(c->res), row, mysql_fetch_lengths(c->res) };
        if (q->row)
            q->row(q, &view);
        if (++*rows < ROWS_AT_ONCE || c->drop_asked)
            return V_ON;
        (void) uv_poll_stop(&c->wire->poll);
        kick(c);
        return V_WAIT;
    }
    if (mysql_errno(c->wire->m))
        return answer(c, err);
    mysql_free_result(c->res); /* read to its end: nothing to wait for */
    c->res = NULL;
    if (q->statement)
        q->statement(q, q->statements, 0);
    q->statements++;
    c->step = STEP_NEXT;
    return V_ON;
}

static enum verdict step_next(struct dbconn *c, int ready, struct adv_err *err)
{
    int r = 0, st;

    if (!c->started && !mysql_more_results(c->wire->m))
        return V_DONE;
    st = c->started ? mysql_next_result_cont(&r, c->wire->m, ready) : mysql_next_result_start(&r, c->wire->m);
    c->started = st != 0;
    if (st) {
        poll_for(c, wait_of(st));
        return V_WAIT;
    }
    if (r > 0)
        return answer(c, err);
    return r < 0 ? V_DONE : take_result(c, err);
}

/* Until the query at the head of the queue ends or has to wait. */
static enum verdict go_on(struct dbconn *c, int ready, struct adv_err *err)
{
    enum verdict v = V_ON;
    unsigned rows = 0;

    while (v == V_ON) {
        ERR_clear_error(); /* or what another connection left there is taken for this one's */
        switch (c->step) {
        case STEP_QUERY:
            v = step_query(c, ready, err);
            break;
        case STEP_FETCH:
            v = step_fetch(c, ready, &rows, err);
            break;
        case STEP_NEXT:
            v = step_next(c, ready, err);
            break;
        case STEP_IDLE:
            return V_WAIT;
        }
        ready = 0;
        if (c->drop_asked && v == V_ON) {
            (void) lost(err, "the connection was given up");
            return V_LOST;
        }
    }
    return v;
}

/* Whether the server has hung up, so far unseen: an idle connection has nothing to read. */
static bool hung_up(const struct dbconn *c)
{
    struct pollfd p = { .fd = mysql_get_socket(c->wire->m), .events = POLLIN | POLLRDHUP };

    return poll(&p, 1, 0) != 0;
}

/* Takes the next query up. False: there is nothing to run now. */
static bool begin_next(struct dbconn *c)
{
    struct dbquery *q;
    struct adv_err err = { 0 };

    while ((q = c->queue)) {
        if (q->session && (c->link != LINK_UP || q->session != c->session)) {
            (void) lost(&err, "the session of this transaction has ended");
            end_query(c, q, DB_NOT_SENT, &err);
            continue;
        }
        if (c->link == LINK_UP && hung_up(c)) {
            cut(c, false);
            continue;
        }
        if (c->link == LINK_UP) {
            c->step = STEP_QUERY;
            c->started = false;
            q->ran_in = c->session;
            return true;
        }
        if (c->link == LINK_DOWN && now_us(c) >= c->retry_us)
            dial(c);
        return false;
    }
    return false;
}

static void run(struct dbconn *c, int ready)
{
    struct adv_err err = { 0 };
    struct dbquery *q;

    if (c->running)
        return;
    c->running = true;
    while (!c->closing && (c->step != STEP_IDLE || begin_next(c))) {
        enum verdict v = go_on(c, ready, &err);
        ready = 0;
        if (v == V_WAIT)
            break;
        c->drop_asked = false;
        if (v == V_LOST) {
            fail_link(c, &err);
            continue;
        }
        q = c->queue;
        c->step = STEP_IDLE;
        poll_idle(c);
        end_query(c, q, v == V_DONE ? DB_DONE : DB_REFUSED, v == V_DONE ? NULL : &err);
    }
    c->running = false;
    if (c->closing)
        close_down(c);
    else
        arm_timer(c);
}

static void timer_cb(uv_timer_t *h)
{
    struct dbconn *c = h->data;
    struct dbquery *q, *next;
    struct adv_err err = { 0 };
    int64_t now = now_us(c);

    c->running = true;
    if (c->step != STEP_IDLE && c->queue->deadline_us_ <= now) {
        (void) lost(&err, "no answer within the deadline");
        fail_link(c, &err);
    }
    for (q = c->queue; q && !c->closing; q = next) {
        next = q->next;
        if (q->deadline_us_ > now || (q == c->queue && c->step != STEP_IDLE))
            continue;
        (void) lost(&err, c->link == LINK_UP ? "busy until the deadline" : "not reachable within the deadline");
        end_query(c, q, DB_NOT_SENT, &err);
        next = c->queue; /* the callback may have changed it */
    }
    c->running = false;
    run(c, 0);
}

/* ---- outside ---------------------------------------------------------------------------------------------------- */

static void init_library(void)
{
    (void) signal(SIGPIPE, SIG_IGN); /* TLS writes with write(2) */
    (void) mysql_library_init(0, NULL, NULL);
}

int dbconn_new(uv_loop_t *loop, const struct dbconn_config *cfg, struct dbconn **ret, struct adv_err *err)
{
    static uv_once_t once = UV_ONCE_INIT;
    struct dbconn *c = calloc(1, sizeof(*c));

    if (!c)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "database: no memory");
    uv_once(&once, init_library);
    c->loop = loop;
    c->cfg = *cfg;
    (void) uv_timer_init(loop, &c->timer);
    (void) uv_idle_init(loop, &c->kick);
    c->timer.data = c->kick.data = c;
    c->handles = 2;
    *ret = c;
    return 0;
}

void dbconn_close(struct dbconn *c, void (*closed)(void *arg), void *arg)
{
    assert(!c->closing);
    c->closing = true;
    c->closed = closed;
    c->closed_arg = arg;
    if (!c->running)
        close_down(c);
    else
        c->drop_asked = c->step != STEP_IDLE;
}

void dbconn_query(struct dbconn *c, struct dbquery *q)
{
    q->outcome = DB_NOT_SENT;
    q->statements = 0;
    q->server_errno = 0;
    q->ran_in = 0;
    uv_update_time(c->loop);
    q->deadline_us_ = now_us(c) + (int64_t) q->timeout_ms * 1000;
    DL_APPEND(c->queue, q);
    if (!c->running) {
        arm_timer(c);
        if (c->step == STEP_IDLE)
            kick(c);
    }
}

void dbconn_drop(struct dbconn *c)
{
    if (!c->running)
        lose(c, "the connection was given up");
    else if (c->step != STEP_IDLE)
        c->drop_asked = true;
    else
        cut(c, true);
}

const struct dbserver *dbconn_server(const struct dbconn *c)
{
    return c->had_session ? &c->server : NULL;
}
