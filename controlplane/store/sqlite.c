/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite engine.
 *
 * Two connections: the writer belongs to whoever runs a commit (one worker at a time, by contract), the reader to audit
 * reads (serialised by a mutex). WAL lets both go on at once; synchronous=FULL makes COMMIT mean "on disk". A second
 * process is kept out by a lock file, not by SQLite's own locks, so that the file may be looked at while it serves.
 *
 * A transaction is a list of rows made on the loop thread; the worker only binds and steps. */

/* A table that cannot grow leaves the new element out instead of ending the program. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(e) ((void) (e))

#include "controlplane/store/store.h"

#include <assert.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "common/uuid.h"
#include "controlplane/store/codec.h"

#define WATCHLOG_CAPACITY 8192
#define CHANGES_KEPT      100000 /* rows; older change history is gone for resumes anyway */
#define REQUEST_KEEP_US   (24 * 3600 * 1000000LL)

/* Each migration runs once, in order, in its own transaction. Never edit one that was released. */
static const char migration_1[] =
    "CREATE TABLE clusters(name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE jobs(uid TEXT PRIMARY KEY, cluster TEXT NOT NULL, job_id TEXT NOT NULL, record BLOB NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE attempts(job_uid TEXT NOT NULL, idx INTEGER NOT NULL, record BLOB NOT NULL,"
    " PRIMARY KEY(job_uid, idx)) WITHOUT ROWID;"
    "CREATE TABLE anomalies(uid TEXT PRIMARY KEY, job_uid TEXT NOT NULL, idx INTEGER NOT NULL, record BLOB NOT NULL)"
    " WITHOUT ROWID;"
    "CREATE TABLE advice(job_uid TEXT NOT NULL, idx INTEGER NOT NULL, record BLOB NOT NULL,"
    " PRIMARY KEY(job_uid, idx)) WITHOUT ROWID;"
    "CREATE TABLE actions(journal_id TEXT NOT NULL, seq INTEGER NOT NULL, job_uid TEXT NOT NULL, idx INTEGER NOT NULL,"
    " record BLOB NOT NULL, PRIMARY KEY(job_uid, idx, journal_id, seq)) WITHOUT ROWID;"
    "CREATE TABLE changes(seq INTEGER PRIMARY KEY, cluster TEXT NOT NULL, revision INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, name TEXT NOT NULL);"
    "CREATE TABLE audit(id INTEGER PRIMARY KEY AUTOINCREMENT, cluster TEXT NOT NULL, seq INTEGER NOT NULL,"
    " prev_hash TEXT NOT NULL, hash TEXT NOT NULL, principal TEXT NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,"
    " detail TEXT NOT NULL, observe_us INTEGER NOT NULL, record_us INTEGER NOT NULL, UNIQUE(cluster, seq));"
    "CREATE TABLE requests(id TEXT PRIMARY KEY, hash TEXT NOT NULL, record_us INTEGER NOT NULL) WITHOUT ROWID;";

static const char *const migrations[] = { migration_1 };

enum stmt {
    PUT_CLUSTER,
    PUT_JOB,
    PUT_ATTEMPT,
    PUT_ANOMALY,
    PUT_ADVICE,
    PUT_ACTION,
    PUT_CHANGE,
    PUT_AUDIT,
    PUT_REQUEST,
    TRIM_CHANGES,
    TRIM_REQUESTS,
    STMT_COUNT_
};

static const char *const stmt_sql[STMT_COUNT_] = {
    [PUT_CLUSTER] = "INSERT OR REPLACE INTO clusters(name, record) VALUES(?1, ?8)",
    [PUT_JOB] = "INSERT OR REPLACE INTO jobs(uid, cluster, job_id, record) VALUES(?1, ?2, ?3, ?8)",
    [PUT_ATTEMPT] = "INSERT OR REPLACE INTO attempts(job_uid, idx, record) VALUES(?1, ?6, ?8)",
    [PUT_ANOMALY] = "INSERT OR REPLACE INTO anomalies(uid, job_uid, idx, record) VALUES(?1, ?2, ?6, ?8)",
    [PUT_ADVICE] = "INSERT OR REPLACE INTO advice(job_uid, idx, record) VALUES(?1, ?6, ?8)",
    [PUT_ACTION] = "INSERT OR REPLACE INTO actions(journal_id, seq, job_uid, idx, record) VALUES(?1, ?7, ?2, ?6, ?8)",
    [PUT_CHANGE] = "INSERT INTO changes(seq, cluster, revision, kind, name) VALUES(?6, ?1, ?7, ?9, ?2)",
    /* the record columns of an audit row come as text values */
    [PUT_AUDIT] = ("INSERT INTO audit(cluster, seq, prev_hash, hash, principal, verb, subject, detail, observe_us,"
                  " record_us) VALUES(?1, ?6, ?2, ?3, ?4, ?5, ?10, ?11, ?7, ?9)"),
    [PUT_REQUEST] = "INSERT OR REPLACE INTO requests(id, hash, record_us) VALUES(?1, ?2, ?6)",
    [TRIM_CHANGES] = "DELETE FROM changes WHERE seq <= ?6",
    [TRIM_REQUESTS] = "DELETE FROM requests WHERE record_us < ?6",
};

/* One statement with its values: ?1..?5, ?10, ?11 texts; ?6, ?7, ?9 numbers; ?8 the record. Offsets into txn->bytes,
 * 0 meaning none. */
struct row {
    enum stmt stmt;
    uint32_t text[7];
    int64_t number[3];
    uint32_t blob, blob_len;
};

struct store_txn {
    struct store *st;
    struct row *rows;
    size_t n, cap;
    struct adv_buf bytes;
    bool oom;
};

struct request_entry {
    char *id;
    char hash[65];
    int64_t record_us;
    UT_hash_handle hh;
};

struct store {
    uv_loop_t *loop;
    sqlite3 *db, *reader;
    uv_mutex_t reader_lock;
    sqlite3_stmt *stmts[STMT_COUNT_];
    int lock_fd;
    char uuid[ADV_UUID_SIZE];
    uint64_t term;
    char *path;
    struct request_entry *requests; /* oldest first */
    bool committing;
};

static int db_error(struct adv_err *err, sqlite3 *db, int rc, const char *what)
{
    enum adv_code code = rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? ADV_DATA_LOSS : ADV_UNAVAILABLE;

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
    int rc = sqlite3_open_v2(path, ret, flags, NULL), r;

    if (rc != SQLITE_OK) {
        r = db_error(err, *ret, rc, path);
        (void) sqlite3_close(*ret);
        *ret = NULL;
        return r;
    }
    (void) sqlite3_busy_timeout(*ret, 5000);
    return 0;
}

static int take_lock(struct store *st, const char *path, struct adv_err *err)
{
    adv_auto_free char *lock = NULL;

    if (asprintf(&lock, "%s.lock", path) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    st->lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (st->lock_fd < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "store: lock file %s", lock);
    if (flock(st->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_LOCKED",
                                  "store %s: another advisord has it open (lock %s)", path, lock);
    return 0;
}

/* @buf is "" when the key is not there. */
static int get_meta(struct store *st, const char *key, char *buf, size_t size, struct adv_err *err)
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
static int check_ours(struct store *st, struct adv_err *err)
{
    sqlite3_stmt *s = NULL;
    bool foreign = false;
    int rc = sqlite3_prepare_v2(st->db, "SELECT count(*), sum(name IN ('meta', 'clusters', 'jobs')) FROM sqlite_master"
                                        " WHERE type = 'table'",
                                -1, &s, NULL);

    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW)
        foreign = sqlite3_column_int(s, 0) > 0 && sqlite3_column_int(s, 1) < 3;
    (void) sqlite3_finalize(s);
    if (rc != SQLITE_ROW)
        return db_error(err, st->db, rc, st->path);
    return foreign ? adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_FOREIGN",
                                        "store %s: an SQLite file of another program", st->path) :
                     0;
}

static int set_meta(struct store *st, const char *key, const char *value, struct adv_err *err)
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

static int migrate(struct store *st, struct adv_err *err)
{
    char text[64], uuid[ADV_UUID_SIZE];
    unsigned long version = 0;
    int r;

    if ((r = exec(st->db, "BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL)"
                          " WITHOUT ROWID;", "opening", err)) < 0 ||
        (r = get_meta(st, "schema_version", text, sizeof(text), err)) < 0)
        return r;
    version = strtoul(text, NULL, 10);
    if (version > ADV_ARRAY_LEN(migrations))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_TOO_NEW",
                                  "store %s: schema %lu is newer than this program's %zu", st->path, version,
                                  ADV_ARRAY_LEN(migrations));
    for (; version < ADV_ARRAY_LEN(migrations); version++)
        if ((r = exec(st->db, migrations[version], "migrating", err)) < 0)
            return r;
    (void) snprintf(text, sizeof(text), "%lu", version);
    if ((r = set_meta(st, "schema_version", text, err)) < 0)
        return r;
    if ((r = get_meta(st, "store_uuid", st->uuid, sizeof(st->uuid), err)) < 0)
        return r;
    if (!st->uuid[0]) {
        if ((r = adv_uuid_v7(adv_wall_us(), uuid, err)) < 0 || (r = set_meta(st, "store_uuid", uuid, err)) < 0 ||
            (r = set_meta(st, "term", "1", err)) < 0)
            return r;
        memcpy(st->uuid, uuid, sizeof(uuid));
    }
    if ((r = get_meta(st, "term", text, sizeof(text), err)) < 0)
        return r;
    st->term = strtoul(text, NULL, 10);
    return exec(st->db, "COMMIT", "migrating", err);
}

int store_open(uv_loop_t *loop, const char *path, struct store **ret, struct adv_err *err)
{
    struct store *st = calloc(1, sizeof(*st));
    int r;

    if (!st)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    st->loop = loop;
    st->lock_fd = -1;
    st->path = strdup(path);
    (void) uv_mutex_init(&st->reader_lock);
    if (!st->path)
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    else
        r = take_lock(st, path, err);
    if (r == 0)
        r = open_db(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, &st->db, err);
    if (r == 0)
        r = check_ours(st, err);
    if (r == 0) {
        (void) chmod(path, 0600);
        r = exec(st->db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;", "opening", err);
    }
    if (r == 0)
        r = migrate(st, err);
    for (int i = 0; r == 0 && i < STMT_COUNT_; i++) {
        int rc = sqlite3_prepare_v3(st->db, stmt_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &st->stmts[i], NULL);
        if (rc != SQLITE_OK)
            r = db_error(err, st->db, rc, stmt_sql[i]);
    }
    if (r == 0)
        r = open_db(path, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, &st->reader, err);
    if (r < 0) {
        (void) store_close(st);
        return r;
    }
    *ret = st;
    return 0;
}

struct store *store_close(struct store *st)
{
    struct request_entry *e, *next;

    if (!st)
        return NULL;
    for (int i = 0; i < STMT_COUNT_; i++)
        (void) sqlite3_finalize(st->stmts[i]);
    (void) sqlite3_close(st->reader);
    (void) sqlite3_close(st->db);
    if (st->lock_fd >= 0)
        (void) close(st->lock_fd);
    HASH_ITER(hh, st->requests, e, next) {
        HASH_DEL(st->requests, e);
        free(e->id);
        free(e);
    }
    uv_mutex_destroy(&st->reader_lock);
    free(st->path);
    free(st);
    return NULL;
}

const char *store_uuid(const struct store *st)
{
    return st->uuid;
}

uint64_t store_term(const struct store *st)
{
    return st->term;
}

/* ---- loading ---------------------------------------------------------------------------------------------------- */

struct loader {
    struct store *st;
    struct fleet *f;
    struct adv_err *err;
};

static int bad_row(struct loader *l, const char *table, int r)
{
    return adv_err_set_reason(l->err, r == -ADV_RESOURCE_EXHAUSTED ? ADV_RESOURCE_EXHAUSTED : ADV_DATA_LOSS,
                              "STORE_CORRUPT", "store: a row of table %s cannot be read", table);
}

static struct job *find_job_anywhere(struct fleet *f, const char *uid)
{
    for (struct cluster *c = f->clusters; c; c = c->hh.next) {
        struct job *j = fleet_find_job_uid(c, uid);
        if (j)
            return j;
    }
    return NULL;
}

static int load_cluster(struct loader *l, sqlite3_stmt *s)
{
    struct cluster *c = calloc(1, sizeof(*c));
    int r = c ? codec_decode(RESOURCE_CLUSTER, sqlite3_column_blob(s, 0), (size_t) sqlite3_column_bytes(s, 0), c) :
                -ADV_RESOURCE_EXHAUSTED;

    if (r == 0)
        r = fleet_load_cluster(l->f, c);
    if (r < 0)
        cluster_free(c);
    return r;
}

static int load_job(struct loader *l, sqlite3_stmt *s)
{
    struct cluster *c = fleet_find_cluster(l->f, (const char *) sqlite3_column_text(s, 1));
    struct job *j = calloc(1, sizeof(*j));
    int r = j ? codec_decode(RESOURCE_JOB, sqlite3_column_blob(s, 0), (size_t) sqlite3_column_bytes(s, 0), j) :
                -ADV_RESOURCE_EXHAUSTED;

    if (r == 0)
        r = c ? fleet_load_job(l->f, c, j) : -ADV_DATA_LOSS;
    if (r < 0)
        job_free(j);
    return r;
}

static int load_attempt(struct loader *l, sqlite3_stmt *s)
{
    struct job *j = find_job_anywhere(l->f, (const char *) sqlite3_column_text(s, 1));
    struct attempt *a = calloc(1, sizeof(*a));
    int r = a ? codec_decode(RESOURCE_ATTEMPT, sqlite3_column_blob(s, 0), (size_t) sqlite3_column_bytes(s, 0), a) :
                -ADV_RESOURCE_EXHAUSTED;

    if (r == 0)
        r = j ? fleet_load_attempt(l->f, j, a) : -ADV_DATA_LOSS;
    if (r < 0)
        attempt_free(a);
    return r;
}

static struct attempt *attempt_of(struct loader *l, sqlite3_stmt *s)
{
    struct job *j = find_job_anywhere(l->f, (const char *) sqlite3_column_text(s, 1));

    return j ? job_attempt(j, (uint32_t) sqlite3_column_int64(s, 2)) : NULL;
}

#define LOAD_BELOW(type, KIND)                                                                                         \
    static int load_##type(struct loader *l, sqlite3_stmt *s)                                                          \
    {                                                                                                                  \
        struct attempt *a = attempt_of(l, s);                                                                          \
        struct type *o = calloc(1, sizeof(*o));                                                                        \
        int r = o ? codec_decode(KIND, sqlite3_column_blob(s, 0), (size_t) sqlite3_column_bytes(s, 0), o) :            \
                    -ADV_RESOURCE_EXHAUSTED;                                                                           \
        if (r == 0 && !a)                                                                                              \
            r = -ADV_DATA_LOSS;                                                                                        \
        if (r < 0)                                                                                                     \
            type##_free(o);                                                                                            \
        else                                                                                                           \
            fleet_load_##type(a, o);                                                                                   \
        return r;                                                                                                      \
    }
LOAD_BELOW(anomaly, RESOURCE_ANOMALY)
LOAD_BELOW(advice, RESOURCE_ADVICE)
LOAD_BELOW(action, RESOURCE_ACTION)
#undef LOAD_BELOW

static int load_request(struct loader *l, sqlite3_stmt *s)
{
    struct request_entry *e = calloc(1, sizeof(*e));

    if (!e || !(e->id = strdup((const char *) sqlite3_column_text(s, 0)))) {
        free(e);
        return -ADV_RESOURCE_EXHAUSTED;
    }
    (void) snprintf(e->hash, sizeof(e->hash), "%s", (const char *) sqlite3_column_text(s, 1));
    e->record_us = sqlite3_column_int64(s, 2);
    HASH_ADD_KEYPTR(hh, l->st->requests, e->id, strlen(e->id), e);
    if (!e->hh.tbl) {
        free(e->id);
        free(e);
        return -ADV_RESOURCE_EXHAUSTED;
    }
    return 0;
}

static int load_each(struct loader *l, const char *table, const char *sql, int (*row)(struct loader *, sqlite3_stmt *))
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(l->st->db, sql, -1, &s, NULL), r = 0;

    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(s);
        if (rc != SQLITE_ROW)
            break;
        if ((r = row(l, s)) < 0) {
            r = bad_row(l, table, r);
            break;
        }
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = db_error(l->err, l->st->db, rc, table);
    (void) sqlite3_finalize(s);
    return r;
}

static int load_changes(struct store *st, struct watchlog *w, uint64_t *ret_last, struct adv_err *err)
{
    sqlite3_stmt *s = NULL;
    uint64_t first = 0, last = 0;
    int rc, r = 0;

    rc = sqlite3_prepare_v2(st->db, "SELECT coalesce(max(seq), 0) FROM changes", -1, &s, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW)
        last = (uint64_t) sqlite3_column_int64(s, 0);
    (void) sqlite3_finalize(s);
    if (rc != SQLITE_ROW)
        return db_error(err, st->db, rc, "changes");
    *ret_last = last;
    first = last > WATCHLOG_CAPACITY ? last - WATCHLOG_CAPACITY : 0;
    if (watchlog_init(w, WATCHLOG_CAPACITY, first) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    rc = sqlite3_prepare_v2(st->db, "SELECT seq, revision, kind, cluster, name FROM changes WHERE seq > ?1 ORDER BY seq",
                            -1, &s, NULL);
    if (rc == SQLITE_OK)
        (void) sqlite3_bind_int64(s, 1, (int64_t) first);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(s);
        if (rc != SQLITE_ROW)
            break;
        if ((uint64_t) sqlite3_column_int64(s, 0) != w->last + 1) { /* a gap: history begins after it */
            watchlog_done(w);
            if (watchlog_init(w, WATCHLOG_CAPACITY, (uint64_t) sqlite3_column_int64(s, 0) - 1) < 0) {
                r = -ADV_RESOURCE_EXHAUSTED;
                break;
            }
        }
        r = watchlog_append(w, (uint64_t) sqlite3_column_int64(s, 0), (uint64_t) sqlite3_column_int64(s, 1),
                            (enum resource_kind) sqlite3_column_int(s, 2), (const char *) sqlite3_column_text(s, 3),
                            (const char *) sqlite3_column_text(s, 4));
        if (r < 0)
            break;
    }
    (void) sqlite3_finalize(s);
    if (r < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    return rc == SQLITE_DONE ? 0 : db_error(err, st->db, rc, "changes");
}

int store_load(struct store *st, struct fleet *f, struct watchlog *w, struct adv_err *err)
{
    struct loader l = { st, f, err };
    struct request_entry *e, *next;
    int r;

    HASH_ITER(hh, st->requests, e, next) {
        HASH_DEL(st->requests, e);
        free(e->id);
        free(e);
    }
    f->store_term = st->term;
    if ((r = load_each(&l, "clusters", "SELECT record FROM clusters ORDER BY name", load_cluster)) < 0 ||
        (r = load_each(&l, "jobs", "SELECT record, cluster FROM jobs ORDER BY uid", load_job)) < 0 ||
        (r = load_each(&l, "attempts", "SELECT record, job_uid FROM attempts ORDER BY job_uid, idx", load_attempt)) < 0 ||
        (r = load_each(&l, "anomalies", "SELECT record, job_uid, idx FROM anomalies ORDER BY uid", load_anomaly)) < 0 ||
        (r = load_each(&l, "advice", "SELECT record, job_uid, idx FROM advice ORDER BY job_uid, idx", load_advice)) < 0 ||
        (r = load_each(&l, "actions", "SELECT record, job_uid, idx FROM actions ORDER BY job_uid, idx, journal_id, seq", load_action)) <
            0 ||
        (r = load_each(&l, "requests", "SELECT id, hash, record_us FROM requests ORDER BY record_us", load_request)) < 0)
        return r;
    return load_changes(st, w, &f->next_uid, err);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct store_txn *store_txn_new(struct store *st)
{
    struct store_txn *t = calloc(1, sizeof(*t));

    if (t) {
        t->st = st;
        adv_buf_init(&t->bytes, 256u << 20);
        (void) adv_buf_append_byte(&t->bytes, 0); /* offset 0 is "none" */
    }
    return t;
}

void store_txn_free(struct store_txn *t)
{
    if (!t)
        return;
    adv_buf_done(&t->bytes);
    free(t->rows);
    free(t);
}

static struct row *add_row(struct store_txn *t, enum stmt stmt)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 32;
        struct row *p = realloc(t->rows, cap * sizeof(*p));
        if (!p) {
            t->oom = true;
            return NULL;
        }
        t->rows = p;
        t->cap = cap;
    }
    t->rows[t->n] = (struct row) { .stmt = stmt };
    return &t->rows[t->n++];
}

static uint32_t put_text(struct store_txn *t, const char *s)
{
    uint32_t at = (uint32_t) t->bytes.len;

    if (adv_buf_append(&t->bytes, str_or(s), strlen(str_or(s)) + 1) < 0)
        t->oom = true;
    return at;
}

static void put_attempt_key(struct row *row, struct store_txn *t, int slot, const struct attempt *a)
{
    row->text[slot] = put_text(t, a->job->uid);
    row->number[0] = a->index;
}

void store_txn_put(struct store_txn *t, enum resource_kind kind, const void *object)
{
    static const enum stmt stmts[] = {
        [RESOURCE_CLUSTER] = PUT_CLUSTER, [RESOURCE_JOB] = PUT_JOB,       [RESOURCE_ATTEMPT] = PUT_ATTEMPT,
        [RESOURCE_ANOMALY] = PUT_ANOMALY, [RESOURCE_ADVICE] = PUT_ADVICE, [RESOURCE_ACTION] = PUT_ACTION,
    };
    struct row *row = add_row(t, stmts[kind]);

    if (!row)
        return;
    switch (kind) {
    case RESOURCE_CLUSTER:
        row->text[0] = put_text(t, ((const struct cluster *) object)->name);
        break;
    case RESOURCE_JOB: {
        const struct job *j = object;
        row->text[0] = put_text(t, j->uid);
        row->text[1] = put_text(t, j->cluster->name);
        row->text[2] = put_text(t, j->job_id);
        break;
    }
    case RESOURCE_ATTEMPT:
        put_attempt_key(row, t, 0, object);
        break;
    case RESOURCE_ANOMALY: {
        const struct anomaly *an = object;
        row->text[0] = put_text(t, an->uid);
        put_attempt_key(row, t, 1, an->attempt);
        break;
    }
    case RESOURCE_ADVICE:
        put_attempt_key(row, t, 0, ((const struct advice *) object)->attempt);
        break;
    case RESOURCE_ACTION: {
        const struct action *ac = object;
        row->text[0] = put_text(t, ac->journal_id);
        put_attempt_key(row, t, 1, ac->attempt);
        row->number[1] = (int64_t) ac->journal_seq;
        break;
    }
    case RESOURCE_AUDIT:
    case RESOURCE_NONE:
        break;
    }
    row->blob = (uint32_t) t->bytes.len;
    if (codec_encode(kind, object, &t->bytes) < 0)
        t->oom = true;
    row->blob_len = (uint32_t) t->bytes.len - row->blob;
}

void store_txn_audit(struct store_txn *t, const struct audit_record *r)
{
    struct row *row = add_row(t, PUT_AUDIT);

    if (!row)
        return;
    row->text[0] = put_text(t, r->cluster->name);
    row->text[1] = put_text(t, r->prev_hash);
    row->text[2] = put_text(t, r->hash);
    row->text[3] = put_text(t, r->principal);
    row->text[4] = put_text(t, r->verb);
    row->text[5] = put_text(t, r->subject);
    row->text[6] = put_text(t, r->detail);
    row->number[0] = (int64_t) r->seq;
    row->number[1] = r->observe_us;
    row->number[2] = r->record_us;
}

static void forget_requests(struct store *st, int64_t before_us)
{
    struct request_entry *e;

    while ((e = st->requests) && e->record_us < before_us) {
        HASH_DEL(st->requests, e);
        free(e->id);
        free(e);
    }
}

void store_txn_request(struct store_txn *t, const struct request_record *r)
{
    struct row *row = add_row(t, PUT_REQUEST);
    struct request_entry *e = calloc(1, sizeof(*e));

    forget_requests(t->st, r->record_us - REQUEST_KEEP_US);
    if (!row || !e || !(e->id = strdup(r->request_id))) {
        t->oom = true;
        free(e);
        return;
    }
    row->text[0] = put_text(t, r->request_id);
    row->text[1] = put_text(t, r->hash);
    row->number[0] = r->record_us;
    /* known at once: a commit that fails reloads the store and forgets it */
    (void) snprintf(e->hash, sizeof(e->hash), "%s", r->hash);
    e->record_us = r->record_us;
    HASH_ADD_KEYPTR(hh, t->st->requests, e->id, strlen(e->id), e);
    if (!e->hh.tbl) {
        t->oom = true;
        free(e->id);
        free(e);
        return;
    }
    row = add_row(t, TRIM_REQUESTS);
    if (row)
        row->number[0] = r->record_us - REQUEST_KEEP_US;
}

void store_txn_change(struct store_txn *t, uint64_t seq, uint64_t revision, enum resource_kind kind, const char *cluster,
                      const char *name)
{
    struct row *row = add_row(t, PUT_CHANGE);

    if (!row)
        return;
    row->text[0] = put_text(t, cluster);
    row->text[1] = put_text(t, name);
    row->number[0] = (int64_t) seq;
    row->number[1] = (int64_t) revision;
    row->number[2] = kind;
    if (seq % 1024 == 0 && seq > CHANGES_KEPT && (row = add_row(t, TRIM_CHANGES)))
        row->number[0] = (int64_t) (seq - CHANGES_KEPT);
}

int store_find_request(const struct store *st, const char *request_id, char ret_hash[65])
{
    struct request_entry *e = NULL;

    HASH_FIND_STR(st->requests, request_id, e);
    if (!e || adv_wall_us() - e->record_us > REQUEST_KEEP_US)
        return -ADV_NOT_FOUND;
    memcpy(ret_hash, e->hash, sizeof(e->hash));
    return 0;
}

struct commit_work {
    uv_work_t work;
    struct store *st;
    struct store_txn *txn;
    store_commit_cb cb;
    void *arg;
    struct adv_err err;
    int r;
};

static int run_row(struct store *st, const struct store_txn *t, const struct row *row)
{
    static const int text_at[] = { 1, 2, 3, 4, 5, 10, 11 }, number_at[] = { 6, 7, 9 };
    sqlite3_stmt *s = st->stmts[row->stmt];
    int rc;

    (void) sqlite3_reset(s);
    (void) sqlite3_clear_bindings(s);
    for (size_t i = 0; i < ADV_ARRAY_LEN(text_at); i++)
        if (row->text[i])
            (void) sqlite3_bind_text(s, text_at[i], t->bytes.data + row->text[i], -1, SQLITE_STATIC);
    for (size_t i = 0; i < ADV_ARRAY_LEN(number_at); i++)
        (void) sqlite3_bind_int64(s, number_at[i], row->number[i]);
    if (row->blob)
        (void) sqlite3_bind_blob(s, 8, t->bytes.data + row->blob, (int) row->blob_len, SQLITE_STATIC);
    rc = sqlite3_step(s);
    (void) sqlite3_reset(s);
    return rc == SQLITE_DONE ? 0 : rc;
}

static void commit_run(uv_work_t *work)
{
    struct commit_work *w = work->data;
    struct store *st = w->st;
    int rc = 0;

    if (w->txn->oom) {
        w->r = adv_err_set(&w->err, ADV_RESOURCE_EXHAUSTED, "store: no memory for a transaction");
        return;
    }
    if ((w->r = exec(st->db, "BEGIN IMMEDIATE", "writing", &w->err)) < 0)
        return;
    for (size_t i = 0; rc == 0 && i < w->txn->n; i++)
        rc = run_row(st, w->txn, &w->txn->rows[i]);
    ADV_FAILPOINT("sqlite.before_commit");
    if (rc != 0)
        w->r = db_error(&w->err, st->db, rc, "writing");
    else
        w->r = exec(st->db, "COMMIT", "writing", &w->err);
    if (w->r < 0)
        (void) sqlite3_exec(st->db, "ROLLBACK", NULL, NULL, NULL);
}

static void commit_done(uv_work_t *work, int status)
{
    struct commit_work *w = work->data;

    w->st->committing = false;
    if (status < 0)
        w->r = adv_err_set(&w->err, ADV_UNAVAILABLE, "store: worker: %s", uv_strerror(status));
    store_txn_free(w->txn);
    w->cb(w->arg, w->r < 0 ? &w->err : NULL);
    free(w);
}

void store_commit(struct store *st, struct store_txn *t, store_commit_cb cb, void *arg)
{
    struct commit_work *w = calloc(1, sizeof(*w));
    struct adv_err err = { 0 };

    if (!w) {
        store_txn_free(t);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        cb(arg, &err);
        return;
    }
    assert(!st->committing);
    *w = (struct commit_work) { .st = st, .txn = t, .cb = cb, .arg = arg };
    w->work.data = w;
    st->committing = true;
    (void) uv_queue_work(st->loop, &w->work, commit_run, commit_done);
}

/* ---- audit pages ------------------------------------------------------------------------------------------------ */

struct audit_work {
    uv_work_t work;
    struct store *st;
    struct audit_query q;
    struct audit_row *rows;
    size_t n;
    store_audit_cb cb;
    void *arg;
    struct adv_err err;
    int r;
};

static char *column_dup(sqlite3_stmt *s, int i)
{
    const char *t = (const char *) sqlite3_column_text(s, i);

    return strdup(t ? t : "");
}

static void audit_run(uv_work_t *work)
{
    struct audit_work *w = work->data;
    sqlite3_stmt *s = NULL;
    int rc;

    uv_mutex_lock(&w->st->reader_lock);
    rc = sqlite3_prepare_v2(w->st->reader,
                            "SELECT id, cluster, seq, prev_hash, hash, principal, verb, subject, detail, observe_us,"
                            " record_us FROM audit WHERE id > ?1 AND (?2 = '' OR cluster = ?2)"
                            " AND (?3 = '' OR substr(subject, 1, length(?3)) = ?3) AND (?4 = '' OR verb = ?4)"
                            " ORDER BY id LIMIT ?5",
                            -1, &s, NULL);
    if (rc == SQLITE_OK) {
        (void) sqlite3_bind_int64(s, 1, (int64_t) w->q.after_rowid);
        (void) sqlite3_bind_text(s, 2, w->q.cluster, -1, SQLITE_STATIC);
        (void) sqlite3_bind_text(s, 3, w->q.subject_prefix, -1, SQLITE_STATIC);
        (void) sqlite3_bind_text(s, 4, w->q.verb, -1, SQLITE_STATIC);
        (void) sqlite3_bind_int64(s, 5, w->q.limit);
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
            r->observe_us = sqlite3_column_int64(s, 9);
            r->record_us = sqlite3_column_int64(s, 10);
            if (!r->prev_hash || !r->hash || !r->principal || !r->verb || !r->subject || !r->detail) {
                rc = SQLITE_NOMEM;
                break;
            }
        }
    }
    if (rc != SQLITE_DONE && rc != SQLITE_ROW)
        w->r = db_error(&w->err, w->st->reader, rc, "audit");
    (void) sqlite3_finalize(s);
    uv_mutex_unlock(&w->st->reader_lock);
}

static void audit_done(uv_work_t *work, int status)
{
    struct audit_work *w = work->data;

    if (status < 0)
        w->r = adv_err_set(&w->err, ADV_UNAVAILABLE, "store: worker: %s", uv_strerror(status));
    w->cb(w->arg, w->rows, w->r < 0 ? 0 : w->n, w->r < 0 ? &w->err : NULL);
    for (size_t i = 0; i < w->n; i++) {
        free(w->rows[i].prev_hash);
        free(w->rows[i].hash);
        free(w->rows[i].principal);
        free(w->rows[i].verb);
        free(w->rows[i].subject);
        free(w->rows[i].detail);
    }
    free(w->rows);
    free(w);
}

void store_list_audit(struct store *st, const struct audit_query *q, store_audit_cb cb, void *arg)
{
    struct audit_work *w = calloc(1, sizeof(*w));
    struct adv_err err = { 0 };

    if (w)
        w->rows = calloc(q->limit ? q->limit : 1, sizeof(*w->rows));
    if (!w || !w->rows) {
        free(w);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        cb(arg, NULL, 0, &err);
        return;
    }
    w->st = st;
    w->q = *q;
    w->cb = cb;
    w->arg = arg;
    w->work.data = w;
    (void) uv_queue_work(st->loop, &w->work, audit_run, audit_done);
}
