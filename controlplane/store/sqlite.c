/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite engine.
 *
 * Two connections: the writer belongs to whoever loads (a worker of libuv's) or runs a commit (a thread of its own, worker.h), one
 * at a time by contract; the reader to
 * audit reads, of which one runs at a time and the others wait on the loop: however many there are, they hold one of libuv's
 * few workers, and a commit never waits for one. WAL lets both go on at once; synchronous=FULL makes COMMIT mean "on disk". A second
 * process is kept out by locks of ours (dbfile.h), not by SQLite's own, so that the file may be looked at while it
 * serves.
 *
 * A transaction is a list of rows made on the loop thread; the worker only binds and steps. */

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/json.h"
#include "common/log.h"
#include "common/num.h"
#include "common/uuid.h"
#include "controlplane/store/dbfile.h"
#include "controlplane/store/engine.h"
#include "controlplane/store/walvfs.h"
#include "controlplane/store/worker.h"

/* Each migration runs once, in order, in its own transaction. Never edit one that was released. */
static const char migration_1[] =
    "CREATE TABLE objects(cluster TEXT NOT NULL, kind INTEGER NOT NULL, key TEXT NOT NULL, record BLOB NOT NULL,"
    " PRIMARY KEY(cluster, kind, key)) WITHOUT ROWID;"
    "CREATE TABLE changes(seq INTEGER PRIMARY KEY, cluster TEXT NOT NULL, revision INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, key TEXT NOT NULL);"
    /* id: the number of the event's change, so that ids rise in the order of commits */
    "CREATE TABLE audit(id INTEGER PRIMARY KEY, cluster TEXT NOT NULL, seq INTEGER NOT NULL,"
    " prev_hash TEXT NOT NULL, hash TEXT NOT NULL, principal TEXT NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,"
    " detail TEXT NOT NULL, salt TEXT NOT NULL, detail_hash TEXT NOT NULL, event_id TEXT NOT NULL,"
    " observe_us INTEGER NOT NULL, record_us INTEGER NOT NULL, UNIQUE(cluster, seq));"
    "CREATE INDEX audit_cluster ON audit(cluster);" /* and id, which is the row's own number */
    "CREATE INDEX audit_subject ON audit(cluster, subject);"
    "CREATE INDEX audit_event ON audit(cluster, event_id) WHERE event_id != '';"
    "CREATE TABLE requests(id TEXT PRIMARY KEY, hash TEXT NOT NULL, record_us INTEGER NOT NULL) WITHOUT ROWID;";

static const struct {
    const char *sql;
    /* The oldest program that can live with the schema from here on; what it reads stays until a later release. */
    unsigned min_reader;
} migrations[] = { { migration_1, 1 } };
const unsigned sqlite_schema_version = ADV_ARRAY_LEN(migrations);

enum stmt { PUT_OBJECT, DELETE_OBJECT, PUT_CHANGE, PUT_AUDIT, ERASE_AUDIT, CUT_AUDIT, PUT_REQUEST, TRIM_CHANGES, TRIM_REQUESTS,
            GET_SEALED, BEGIN, COMMIT, STMT_COUNT_ };

/* ?1..?10 texts, ?11..?15 numbers, ?20 the record */
static const char *const stmt_sql[STMT_COUNT_] = {
    [PUT_OBJECT] = "INSERT OR REPLACE INTO objects(cluster, kind, key, record) VALUES(?1, ?11, ?2, ?20)",
    [DELETE_OBJECT] = "DELETE FROM objects WHERE cluster = ?1 AND kind = ?11 AND key = ?2",
    [PUT_CHANGE] = "INSERT INTO changes(seq, cluster, revision, kind, key) VALUES(?12, ?1, ?13, ?11, ?2)",
    [PUT_AUDIT] = ("INSERT INTO audit(id, cluster, seq, prev_hash, hash, principal, verb, subject, detail, salt, detail_hash,"
                   " event_id, observe_us, record_us)"
                   " VALUES(?12, ?1, ?11, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?14, ?15)"),
    /* what is below begins with the subject and '/', which is followed by '0' */
    [ERASE_AUDIT] = "UPDATE audit SET detail = '', salt = '' WHERE cluster = ?1 AND (subject = ?2"
                    " OR (subject >= ?2 || '/' AND subject < ?2 || '0'))",
    [CUT_AUDIT] = "DELETE FROM audit WHERE cluster = ?1 AND seq <= ?11",
    [PUT_REQUEST] = "INSERT OR REPLACE INTO requests(id, hash, record_us) VALUES(?1, ?2, ?11)", /* one of long ago */
    [TRIM_CHANGES] = "DELETE FROM changes WHERE seq <= ?11",
    [TRIM_REQUESTS] = "DELETE FROM requests WHERE record_us < ?11",
    [GET_SEALED] = "SELECT value FROM meta WHERE key = 'sealed'",
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
};

#define BUSY_MS 5000 /* another process backs it up, or seals it */

struct sqlite_store {
    struct store base;
    sqlite3 *db, *reader;
    struct store_worker *worker; /* of commits */
    struct audit_work *reads; /* the first one is under way */
    sqlite3_stmt *stmts[STMT_COUNT_];
    struct dbfile file;
    bool truncate_log; /* what was erased is still in it */
    uv_work_t look;
    struct adv_err look_err;
    store_cb look_cb;
    void *look_arg;
    uint64_t last_seq; /* of changes; the writer's */
};

static int db_error(struct adv_err *err, sqlite3 *db, int rc, const char *what)
{
    enum adv_code code = rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? ADV_DATA_LOSS : ADV_UNAVAILABLE;

    if (rc == SQLITE_FULL)
        return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_FULL", "store: %s: %s", what, sqlite3_errstr(rc));
    if ((rc & 0xff) == SQLITE_READONLY)
        return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_READ_ONLY", "store: %s: %s", what, sqlite3_errstr(rc));
    return adv_err_set_reason(err, code, code == ADV_DATA_LOSS ? "STORE_CORRUPT" : "STORE_UNAVAILABLE",
                              "store: %s: %s", what, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

static int exec(sqlite3 *db, const char *sql, const char *what, struct adv_err *err)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : db_error(err, db, rc, what);
}

static int open_db(const char *path, int flags, sqlite3 **ret, struct adv_err *err)
{
    int rc = sqlite3_open_v2(path, ret, flags, flags & SQLITE_OPEN_READWRITE ? walvfs_name() : NULL), r;

    if (rc != SQLITE_OK) {
        r = db_error(err, *ret, rc, path);
        (void) sqlite3_close(*ret);
        *ret = NULL;
        return r;
    }
    (void) sqlite3_busy_timeout(*ret, BUSY_MS);
    return 0;
}

static struct sqlite_store *sqlite_of(struct store *base)
{
    return ADV_CONTAINER_OF(base, struct sqlite_store, base);
}

/* @buf is "" when the key is not there. */
static int get_meta(struct sqlite_store *st, const char *key, char *buf, size_t size, struct adv_err *err)
{
    sqlite3_stmt *s = NULL;
    const char *text;
    int rc = sqlite3_prepare_v2(st->db, "SELECT value FROM meta WHERE key = ?1", -1, &s, NULL);

    buf[0] = '\0';
    if (rc == SQLITE_OK && (rc = sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC)) == SQLITE_OK &&
        (rc = sqlite3_step(s)) == SQLITE_ROW && (text = (const char *) sqlite3_column_text(s, 0)))
        (void) snprintf(buf, size, "%s", text);
    (void) sqlite3_finalize(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : db_error(err, st->db, rc, "meta");
}

/* A file with tables but without ours belongs to somebody else; looked at before anything is written to it. */
static int check_ours(struct sqlite_store *st, struct adv_err *err)
{
    sqlite3_stmt *s = NULL;
    bool foreign = false;
    int rc = sqlite3_prepare_v2(st->db, "SELECT count(*), sum(name IN ('meta', 'objects', 'changes')) FROM sqlite_master"
                                        " WHERE type = 'table'",
                                -1, &s, NULL);

    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW)
        foreign = sqlite3_column_int(s, 0) > 0 && sqlite3_column_int(s, 1) < 3;
    (void) sqlite3_finalize(s);
    if (rc != SQLITE_ROW)
        return db_error(err, st->db, rc, st->file.path);
    return foreign ? adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_FOREIGN",
                                        "store %s: an SQLite file of another program", st->file.path) :
                     0;
}

static int set_meta(struct sqlite_store *st, const char *key, const char *value, struct adv_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(st->db, "INSERT OR REPLACE INTO meta(key, value) VALUES(?1, ?2)", -1, &s, NULL);

    if (rc == SQLITE_OK) {
        (void) sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
        (void) sqlite3_bind_text(s, 2, value, -1, SQLITE_STATIC);
        rc = sqlite3_step(s);
    }
    (void) sqlite3_finalize(s);
    return rc == SQLITE_DONE ? 0 : db_error(err, st->db, rc, "meta");
}

static int get_meta_number(struct sqlite_store *st, const char *key, uint64_t *ret, struct adv_err *err)
{
    char text[64];
    int r = get_meta(st, key, text, sizeof(text), err);

    if (r < 0)
        return r;
    *ret = 0;
    if (text[0] && adv_parse_u64(text, 0, UINT64_MAX, ret, NULL) < 0)
        return adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "store %s: %s is no number", st->file.path, key);
    return 0;
}

static int set_meta_number(struct sqlite_store *st, const char *key, uint64_t value, struct adv_err *err)
{
    char text[32];

    (void) snprintf(text, sizeof(text), "%" PRIu64, value);
    return set_meta(st, key, text, err);
}

static int run_migrations(struct sqlite_store *st, struct adv_err *err)
{
    uint64_t version, min_reader;
    int r;

    if ((r = get_meta_number(st, "schema_version", &version, err)) < 0 ||
        (r = get_meta_number(st, "min_reader", &min_reader, err)) < 0)
        return r;
    if (min_reader > ADV_ARRAY_LEN(migrations))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_TOO_NEW",
                                  "store %s: its schema, version %" PRIu64 ", needs a program that knows version %" PRIu64
                                  "; this one knows %zu", st->file.path, version, min_reader, ADV_ARRAY_LEN(migrations));
    if (version >= ADV_ARRAY_LEN(migrations))
        return 0;
    for (; version < ADV_ARRAY_LEN(migrations); version++) {
        if ((r = exec(st->db, migrations[version].sql, "migrating", err)) < 0)
            return r;
        if (migrations[version].min_reader > min_reader)
            min_reader = migrations[version].min_reader;
    }
    r = set_meta_number(st, "schema_version", version, err);
    return r < 0 ? r : set_meta_number(st, "min_reader", min_reader, err);
}

static int sealed_error(struct adv_err *err, const char *path, const char *how)
{
    return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_SEALED", "store %s: it was %.150s and is not to be served",
                              path, how);
}

static int migrate(struct sqlite_store *st, struct adv_err *err)
{
    char uuid[ADV_UUID_SIZE], sealed[256];
    int r;

    if ((r = exec(st->db, "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL)"
                          " WITHOUT ROWID;", "opening", err)) < 0 ||
        (r = run_migrations(st, err)) < 0 || (r = get_meta(st, "sealed", sealed, sizeof(sealed), err)) < 0)
        return r;
    if (sealed[0])
        return sealed_error(err, st->file.path, sealed);
    if ((r = get_meta(st, "store_uuid", st->base.uuid, sizeof(st->base.uuid), err)) < 0)
        return r;
    if (!st->base.uuid[0]) {
        if ((r = adv_uuid_v7(adv_wall_us(), uuid, err)) < 0 || (r = set_meta(st, "store_uuid", uuid, err)) < 0 ||
            (r = set_meta(st, "term", "1", err)) < 0)
            return r;
        memcpy(st->base.uuid, uuid, sizeof(uuid));
    }
    r = get_meta_number(st, "term", &st->base.term, err);
    return r < 0 ? r : exec(st->db, "COMMIT", "migrating", err);
}

static int find_last_seq(struct sqlite_store *st, struct adv_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(st->db, "SELECT coalesce(max(seq), 0) FROM changes", -1, &s, NULL);

    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW)
        st->last_seq = (uint64_t) sqlite3_column_int64(s, 0);
    (void) sqlite3_finalize(s);
    return rc == SQLITE_ROW ? 0 : db_error(err, st->db, rc, "changes");
}

/* A file that was moved away leaves its log behind, which SQLite would take for that of whatever is put in its place,
 * and apply to that. So all of it goes to where it belongs, wherever that is by now, and the log is empty.
 *
 * When the last connection is closed SQLite writes its log to the file and removes what lies beside it, by name: that
 * may be another store's by now, with what was committed there. So nothing is removed. And where a log lies beside
 * the very file that is not the one that is open, the two were put there together: what is ours would spoil them. */
static void empty_log_if_moved(struct sqlite_store *st)
{
    struct adv_err err = { 0 };

    if (!st->worker || dbfile_check(&st->file, &err) == 0) /* no worker: it was never served */
        return;
    (void) sqlite3_db_config(st->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (dbfile_has_other_log(&st->file)) {
        adv_warn("store", "its log was replaced by another one: what it held is not written to the file, both are left as they are",
                 ADV_FS("path", st->file.path));
        return;
    }
    (void) sqlite3_busy_timeout(st->db, 0);
    if (sqlite3_wal_checkpoint_v2(st->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) != SQLITE_OK)
        adv_warn("store", "its log could not be emptied: it belongs to the file that was removed or replaced",
                 ADV_FS("path", st->file.path), ADV_FS("error", sqlite3_errmsg(st->db)));
}

static struct store *sqlite_close(struct store *base)
{
    struct sqlite_store *st = sqlite_of(base);

    for (int i = 0; i < STMT_COUNT_; i++)
        (void) sqlite3_finalize(st->stmts[i]);
    (void) sqlite3_close(st->reader);
    empty_log_if_moved(st);
    (void) store_worker_free(st->worker);
    (void) sqlite3_close(st->db);
    dbfile_done(&st->file);
    free(st);
    return NULL;
}

static void sqlite_load(struct store *base, struct fleet *f, struct watchlog *w, store_cb cb, void *arg);
static void sqlite_commit(struct store *base, struct store_txn *t, store_commit_cb cb, void *arg);
static void sqlite_list_audit(struct store *base, const struct audit_query *q, store_audit_cb cb, void *arg);

static void sqlite_set_wake(struct store *base, void (*wake)(void *arg), void *arg)
{
    store_worker_set_wake(sqlite_of(base)->worker, wake, arg);
}

/* ---- looking ---------------------------------------------------------------------------------------------------- */

static void look_run(uv_work_t *work)
{
    struct sqlite_store *st = work->data;

    st->look_err = (struct adv_err) { 0 };
    (void) !dbfile_check(&st->file, &st->look_err);
}

static void look_done(uv_work_t *work, int status)
{
    struct sqlite_store *st = work->data;

    if (status < 0)
        (void) adv_err_set(&st->look_err, ADV_UNAVAILABLE, "store: worker: %s", uv_strerror(status));
    st->look_cb(st->look_arg, st->look_err.code == ADV_OK ? NULL : &st->look_err);
}

static void sqlite_look(struct store *base, store_cb cb, void *arg)
{
    struct sqlite_store *st = sqlite_of(base);

    st->look.data = st;
    st->look_cb = cb;
    st->look_arg = arg;
    (void) uv_queue_work(base->loop, &st->look, look_run, look_done);
}

static const struct store_ops sqlite_ops = {
    .name = "sqlite",
    .close = sqlite_close,
    .look = sqlite_look,
    .load = sqlite_load,
    .commit = sqlite_commit,
    .list_audit = sqlite_list_audit,
    .set_wake = sqlite_set_wake,
};

int sqlite_store_open(uv_loop_t *loop, const struct store_config *cfg, struct store **ret, struct adv_err *err)
{
    struct sqlite_store *st = calloc(1, sizeof(*st));
    int r;

    if (!st)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    st->base.ops = &sqlite_ops;
    st->base.loop = loop;
    (void) snprintf(st->base.replica, sizeof(st->base.replica), "%s", str_or(cfg->replica));
    r = dbfile_take(cfg->url, true, &st->file, err);
    if (r == 0)
        r = open_db(st->file.path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, &st->db, err);
    if (r == 0)
        r = check_ours(st, err);
    if (r == 0) {
        (void) chmod(st->file.path, 0600);
        /* secure_delete: what is forgotten is not left in pages that are free */
        r = exec(st->db, "PRAGMA synchronous=FULL; PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON;"
                         " PRAGMA cache_size=-32768; PRAGMA wal_autocheckpoint=8000; PRAGMA secure_delete=ON;", "opening", err);
    }
    if (r == 0)
        r = migrate(st, err);
    for (int i = 0; r == 0 && i < STMT_COUNT_; i++) {
        int rc = sqlite3_prepare_v3(st->db, stmt_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &st->stmts[i], NULL);
        if (rc != SQLITE_OK)
            r = db_error(err, st->db, rc, stmt_sql[i]);
    }
    if (r == 0)
        r = find_last_seq(st, err);
    if (r == 0)
        r = open_db(st->file.path, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, &st->reader, err);
    if (r == 0)
        r = dbfile_settle(&st->file, err);
    if (r == 0)
        r = store_worker_new(loop, &st->worker, err);
    st->base.made = st->file.is_new;
    if (r < 0) {
        (void) sqlite_close(&st->base);
        return r;
    }
    *ret = &st->base;
    return 0;
}

/* ---- loading ---------------------------------------------------------------------------------------------------- */

struct load_work {
    uv_work_t work;
    struct sqlite_store *st;
    struct fleet *f;
    struct watchlog *w;
    store_cb cb;
    void *arg;
    struct adv_err err;
    int r;
};

/* Calls @row for each row of @sql. */
static int each_row(struct load_work *l, const char *sql, int64_t arg, int (*row)(struct load_work *, sqlite3_stmt *))
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(l->st->db, sql, -1, &s, NULL), r = 0;

    if (rc == SQLITE_OK && sqlite3_bind_parameter_count(s))
        rc = sqlite3_bind_int64(s, 1, arg);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(s);
        if (rc != SQLITE_ROW || (r = row(l, s)) < 0)
            break;
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = db_error(&l->err, l->st->db, rc, "loading");
    (void) sqlite3_finalize(s);
    return r;
}

static const char *text_of(sqlite3_stmt *s, int column)
{
    const char *t = (const char *) sqlite3_column_text(s, column);

    return t ? t : "";
}

static int load_object(struct load_work *l, sqlite3_stmt *s)
{
    return store_load_row(l->f, text_of(s, 0), (enum resource_kind) sqlite3_column_int(s, 1), text_of(s, 2),
                          sqlite3_column_blob(s, 3), (size_t) sqlite3_column_bytes(s, 3), &l->err);
}

static int load_request(struct load_work *l, sqlite3_stmt *s)
{
    return store_requests_add(&l->st->base, text_of(s, 0), text_of(s, 1), sqlite3_column_int64(s, 2), &l->err);
}

static int load_change(struct load_work *l, sqlite3_stmt *s)
{
    return store_load_change(l->w, (uint64_t) sqlite3_column_int64(s, 0), (uint64_t) sqlite3_column_int64(s, 1),
                             sqlite3_column_int(s, 2), text_of(s, 3), text_of(s, 4), &l->err);
}

/* A copy may have been made, and this one sealed, while we serve. */
static int check_sealed(struct sqlite_store *st, struct adv_err *err)
{
    sqlite3_stmt *s = st->stmts[GET_SEALED];
    int rc = sqlite3_step(s), r = 0;

    if (rc == SQLITE_ROW)
        r = sealed_error(err, st->file.path, (const char *) sqlite3_column_text(s, 0));
    else if (rc != SQLITE_DONE)
        r = db_error(err, st->db, rc, "meta");
    (void) sqlite3_reset(s);
    return r;
}

static int load_all(struct load_work *l)
{
    uint64_t first;
    int r;

    if ((r = dbfile_check(&l->st->file, &l->err)) < 0 || (r = check_sealed(l->st, &l->err)) < 0 ||
        (r = each_row(l, "SELECT cluster, kind, key, record FROM objects ORDER BY cluster, kind, key", 0, load_object)) < 0 ||
        (r = each_row(l, "SELECT id, hash, record_us FROM requests ORDER BY record_us", 0, load_request)) < 0 ||
        (r = find_last_seq(l->st, &l->err)) < 0)
        return r;
    first = l->st->last_seq > STORE_WATCHLOG_CAPACITY ? l->st->last_seq - STORE_WATCHLOG_CAPACITY : 0;
    if (watchlog_init(l->w, STORE_WATCHLOG_CAPACITY, first) < 0)
        return adv_err_set(&l->err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    return each_row(l, "SELECT seq, revision, kind, cluster, key FROM changes WHERE seq > ?1 ORDER BY seq", (int64_t) first,
                    load_change);
}

static void load_run(uv_work_t *work)
{
    struct load_work *l = work->data;

    l->r = load_all(l);
}

static void load_done(uv_work_t *work, int status)
{
    struct load_work *l = work->data;

    if (status < 0)
        l->r = adv_err_set(&l->err, ADV_UNAVAILABLE, "store: worker: %s", uv_strerror(status));
    l->cb(l->arg, l->r < 0 ? &l->err : NULL);
    free(l);
}

static void sqlite_load(struct store *base, struct fleet *f, struct watchlog *w, store_cb cb, void *arg)
{
    struct load_work *l = calloc(1, sizeof(*l));
    struct adv_err err = { 0 };

    if (!l) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        cb(arg, &err);
        return;
    }
    store_requests_clear(base);
    *l = (struct load_work) { .st = sqlite_of(base), .f = f, .w = w, .cb = cb, .arg = arg };
    l->work.data = l;
    (void) uv_queue_work(base->loop, &l->work, load_run, load_done);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct commit_work {
    struct sqlite_store *st;
    const struct store_txn *txn;
    store_commit_cb cb;
    void *arg;
    struct adv_err err;
    int r;
};

static void bind_text(sqlite3_stmt *s, int at, const struct store_txn *t, uint32_t text)
{
    (void) sqlite3_bind_text(s, at, txn_text(t, text), -1, SQLITE_STATIC);
}

static int step(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);

    (void) sqlite3_reset(s);
    return rc == SQLITE_DONE ? 0 : rc;
}

static int trim(struct sqlite_store *st, enum stmt what, int64_t before)
{
    (void) sqlite3_bind_int64(st->stmts[what], 11, before);
    return step(st->stmts[what]);
}

/* @seq is the number of the last change written. */
static int run_row(struct sqlite_store *st, const struct store_txn *t, const struct row *row, uint64_t *seq)
{
    static const enum stmt stmts[] = { [ROW_PUT] = PUT_OBJECT,      [ROW_DELETE] = DELETE_OBJECT, [ROW_CHANGE] = PUT_CHANGE,
                                       [ROW_REQUEST] = PUT_REQUEST, [ROW_AUDIT] = PUT_CHANGE,
                                       [ROW_AUDIT_ERASE] = ERASE_AUDIT, [ROW_AUDIT_CUT] = CUT_AUDIT };
    sqlite3_stmt *s = st->stmts[stmts[row->type]];
    int rc;

    if (row->type == ROW_REQUEST) {
        bind_text(s, 1, t, row->key);
        bind_text(s, 2, t, row->text[0]);
        (void) sqlite3_bind_int64(s, 11, row->time_us[0]);
        rc = step(s);
        return rc ? rc : trim(st, TRIM_REQUESTS, row->time_us[0] - STORE_REQUEST_KEEP_US);
    }
    bind_text(s, 1, t, row->cluster);
    bind_text(s, 2, t, row->key);
    (void) sqlite3_bind_int64(s, 11, row->type == ROW_AUDIT_CUT ? (int64_t) row->audit_seq : row->kind);
    if (row->type == ROW_PUT)
        (void) sqlite3_bind_blob(s, 20, t->bytes.data + row->blob, (int) row->blob_len, SQLITE_STATIC);
    if (row->type == ROW_CHANGE || row->type == ROW_AUDIT) {
        (void) sqlite3_bind_int64(s, 12, (int64_t) ++*seq);
        (void) sqlite3_bind_int64(s, 13, (int64_t) row->number);
    }
    rc = step(s);
    if (rc == 0 && row->type == ROW_AUDIT) {
        s = st->stmts[PUT_AUDIT];
        bind_text(s, 1, t, row->cluster);
        for (int i = 0; i < AUDIT_TEXTS; i++)
            bind_text(s, 2 + i, t, row->text[i]);
        (void) sqlite3_bind_int64(s, 11, (int64_t) row->audit_seq);
        (void) sqlite3_bind_int64(s, 12, (int64_t) *seq);
        (void) sqlite3_bind_int64(s, 14, row->time_us[1]);
        (void) sqlite3_bind_int64(s, 15, row->time_us[0]);
        rc = step(s);
    }
    if (rc == 0 && (row->type == ROW_CHANGE || row->type == ROW_AUDIT) && *seq % 1024 == 0 && *seq > STORE_CHANGES_KEPT)
        rc = trim(st, TRIM_CHANGES, (int64_t) (*seq - STORE_CHANGES_KEPT));
    return rc;
}

/* The log keeps what a transaction erased until it comes round: too long where hardly anything is written. While
 * somebody reads, it cannot be cut, so the next transaction tries again. */
static void truncate_log(struct sqlite_store *st, const struct store_txn *t)
{
    for (size_t i = 0; i < t->n && !st->truncate_log; i++)
        st->truncate_log = t->rows[i].type == ROW_AUDIT_ERASE;
    if (!st->truncate_log)
        return;
    (void) sqlite3_busy_timeout(st->db, 0);
    st->truncate_log = sqlite3_wal_checkpoint_v2(st->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) != SQLITE_OK;
    (void) sqlite3_busy_timeout(st->db, BUSY_MS);
}

static void commit_run(void *arg)
{
    struct commit_work *w = arg;
    struct sqlite_store *st = w->st;
    uint64_t seq = st->last_seq;
    int rc = step(st->stmts[BEGIN]);

    if (rc != 0) {
        w->r = db_error(&w->err, st->db, rc, "writing");
        return;
    }
    w->r = check_sealed(st, &w->err);
    for (size_t i = 0; w->r == 0 && rc == 0 && i < w->txn->n; i++)
        rc = run_row(st, w->txn, &w->txn->rows[i], &seq);
    ADV_FAILPOINT("sqlite.before_commit");
    if (rc == 0 && w->r == 0)
        rc = step(st->stmts[COMMIT]);
    if (rc != 0)
        w->r = db_error(&w->err, st->db, rc, "writing");
    if (w->r < 0) {
        (void) sqlite3_exec(st->db, "ROLLBACK", NULL, NULL, NULL);
        walvfs_drop(st->db);
        return;
    }
    st->last_seq = seq;
    w->r = dbfile_check(&st->file, &w->err); /* what went to a file without a name is not stored */
    if (w->r < 0 && !adv_streq(w->err.reason, "STORE_REPLACED"))
        w->err.reason = "STORE_OUTCOME_UNKNOWN";
    if (w->r == 0)
        truncate_log(st, w->txn);
}

static void commit_done(void *arg)
{
    struct commit_work *w = arg;

    w->cb(w->arg, w->r < 0 ? 0 : w->st->last_seq + 1 - w->txn->n_changes, w->r < 0 ? &w->err : NULL);
    free(w);
}

static void sqlite_commit(struct store *base, struct store_txn *t, store_commit_cb cb, void *arg)
{
    struct commit_work *w = calloc(1, sizeof(*w));
    struct adv_err err = { 0 };

    if (!w) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        cb(arg, 0, &err);
        return;
    }
    *w = (struct commit_work) { .st = sqlite_of(base), .txn = t, .cb = cb, .arg = arg };
    store_worker_run(w->st->worker, commit_run, commit_done, w);
}

/* ---- audit pages ------------------------------------------------------------------------------------------------ */

struct audit_work {
    uv_work_t work;
    struct sqlite_store *st;
    struct audit_query q;
    char *ids; /* of q.event_ids: a JSON list */
    struct audit_row *rows;
    size_t n;
    int64_t upto; /* ids that are looked at; 0: all */
    store_audit_cb cb;
    void *arg;
    struct adv_err err;
    int r;
    struct audit_work *prev, *next;
};

static char *column_dup(sqlite3_stmt *s, int i)
{
    const char *t = (const char *) sqlite3_column_text(s, i);

    return strdup(t ? t : "");
}

#define AUDIT_SELECT                                                                                                     \
    "SELECT id, cluster, seq, prev_hash, hash, principal, verb, subject, detail, salt, detail_hash, event_id,"           \
    " observe_us, record_us FROM audit"
#define AUDIT_OF_CLUSTER " WHERE cluster = ?2 AND"
#define AUDIT_OF_IDS     " WHERE cluster = ?2 AND event_id != '' AND event_id IN (SELECT value FROM json_each(?9)) AND"
#define AUDIT_WHERE                                                                                                      \
    " id > ?1"                                                                                                           \
    " AND (?3 = '' OR substr(subject, 1, length(?3)) = ?3) AND (?4 = '' OR verb = ?4)"                                   \
    " AND (?6 = '' OR principal = ?6) AND record_us >= ?7 AND (?8 = 0 OR record_us < ?8) AND (?10 = 0 OR id <= ?10)"                                \
    " ORDER BY id LIMIT ?5"

/* How far this read goes: w->upto. */
static int audit_bound(struct audit_work *w)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(w->st->reader,
                                w->q.cluster[0] ? "SELECT count(*), max(id) FROM (SELECT id FROM audit WHERE cluster = ?2 AND"
                                                  " id > ?1 ORDER BY id LIMIT ?3)" :
                                                  "SELECT count(*), max(id) FROM (SELECT id FROM audit WHERE id > ?1"
                                                  " ORDER BY id LIMIT ?3)",
                                -1, &s, NULL);

    if (rc == SQLITE_OK) {
        (void) sqlite3_bind_int64(s, 1, (int64_t) w->q.after_rowid);
        if (w->q.cluster[0])
            (void) sqlite3_bind_text(s, 2, w->q.cluster, -1, SQLITE_STATIC);
        (void) sqlite3_bind_int64(s, 3, STORE_AUDIT_SCAN);
        rc = sqlite3_step(s);
        if (rc == SQLITE_ROW && sqlite3_column_int64(s, 0) == STORE_AUDIT_SCAN)
            w->upto = sqlite3_column_int64(s, 1);
    }
    (void) sqlite3_finalize(s);
    return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static void audit_run(uv_work_t *work)
{
    struct audit_work *w = work->data;
    sqlite3_stmt *s = NULL;
    int rc = SQLITE_OK;

    if (w->q.ret_upto && (rc = audit_bound(w)) != SQLITE_OK) {
        w->r = db_error(&w->err, w->st->reader, rc, "audit");
        return;
    }
    rc = sqlite3_prepare_v2(w->st->reader,
                            w->ids           ? AUDIT_SELECT AUDIT_OF_IDS AUDIT_WHERE :
                            w->q.cluster[0] ? AUDIT_SELECT AUDIT_OF_CLUSTER AUDIT_WHERE :
                                              AUDIT_SELECT " WHERE" AUDIT_WHERE,
                            -1, &s, NULL);
    if (rc == SQLITE_OK) {
        (void) sqlite3_bind_int64(s, 1, (int64_t) w->q.after_rowid);
        if (w->q.cluster[0])
            (void) sqlite3_bind_text(s, 2, w->q.cluster, -1, SQLITE_STATIC);
        (void) sqlite3_bind_text(s, 3, w->q.subject_prefix, -1, SQLITE_STATIC);
        (void) sqlite3_bind_text(s, 4, w->q.verb, -1, SQLITE_STATIC);
        (void) sqlite3_bind_int64(s, 5, w->q.limit);
        (void) sqlite3_bind_text(s, 6, w->q.principal, -1, SQLITE_STATIC);
        (void) sqlite3_bind_int64(s, 7, w->q.from_us);
        (void) sqlite3_bind_int64(s, 8, w->q.before_us);
        (void) sqlite3_bind_int64(s, 10, w->upto);
        if (w->ids)
            (void) sqlite3_bind_text(s, 9, w->ids, -1, SQLITE_STATIC);
        while ((rc = sqlite3_step(s)) == SQLITE_ROW && w->n < w->q.limit) {
            struct audit_row *r = &w->rows[w->n++];
            r->rowid = (uint64_t) sqlite3_column_int64(s, 0);
            (void) snprintf(r->cluster, sizeof(r->cluster), "%s", (const char *) sqlite3_column_text(s, 1));
            r->seq = (uint64_t) sqlite3_column_int64(s, 2);
            r->prev_hash = column_dup(s, 3);
            r->hash = column_dup(s, 4);
            r->principal = column_dup(s, 5);
            r->verb = column_dup(s, 6);
            r->subject = column_dup(s, 7);
            r->detail = column_dup(s, 8);
            r->salt = column_dup(s, 9);
            r->detail_hash = column_dup(s, 10);
            r->event_id = column_dup(s, 11);
            r->observe_us = sqlite3_column_int64(s, 12);
            r->record_us = sqlite3_column_int64(s, 13);
            if (!r->prev_hash || !r->hash || !r->principal || !r->verb || !r->subject || !r->detail || !r->salt ||
                !r->detail_hash || !r->event_id) {
                rc = SQLITE_NOMEM;
                break;
            }
        }
    }
    if (rc != SQLITE_DONE && rc != SQLITE_ROW)
        w->r = db_error(&w->err, w->st->reader, rc, "audit");
    (void) sqlite3_finalize(s);
}

static void audit_done(uv_work_t *work, int status);

static void audit_next(struct sqlite_store *st)
{
    if (st->reads)
        (void) uv_queue_work(st->base.loop, &st->reads->work, audit_run, audit_done);
}

static void audit_done(uv_work_t *work, int status)
{
    struct audit_work *w = work->data;

    DL_DELETE(w->st->reads, w);
    audit_next(w->st);
    if (status < 0)
        w->r = adv_err_set(&w->err, ADV_UNAVAILABLE, "store: worker: %s", uv_strerror(status));
    if (w->q.ret_upto)
        *w->q.ret_upto = (uint64_t) w->upto;
    w->cb(w->arg, w->rows, w->r < 0 ? 0 : w->n, w->r < 0 ? &w->err : NULL);
    for (size_t i = 0; i < w->n; i++)
        audit_row_done(&w->rows[i]);
    free(w->rows);
    free(w->ids);
    free(w);
}

/* As JSON, which binds a list of any length to one parameter. */
static char *json_list(const char *const *items, size_t n)
{
    json_t *list = json_array();
    char *text = NULL;

    for (size_t i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_string(items[i])) < 0)
            break;
    if (list && json_array_size(list) == n)
        text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

static void sqlite_list_audit(struct store *base, const struct audit_query *q, store_audit_cb cb, void *arg)
{
    struct audit_work *w = calloc(1, sizeof(*w));
    struct adv_err err = { 0 };

    if (w)
        w->rows = calloc(q->limit ? q->limit : 1, sizeof(*w->rows));
    if (!w || !w->rows || (q->event_ids && !(w->ids = json_list(q->event_ids, q->n_event_ids)))) {
        if (w)
            free(w->rows);
        free(w);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        cb(arg, NULL, 0, &err);
        return;
    }
    w->st = sqlite_of(base);
    w->q = *q;
    w->q.event_ids = NULL; /* the caller's */
    w->cb = cb;
    w->arg = arg;
    w->work.data = w;
    DL_APPEND(w->st->reads, w);
    if (w->st->reads == w)
        audit_next(w->st);
}
