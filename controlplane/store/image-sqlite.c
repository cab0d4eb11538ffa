/* SPDX-License-Identifier: Apache-2.0 */
/* Images of SQLite stores.
 *
 * Reading needs no lock of ours: one read transaction sees one moment, and in WAL mode holds nobody up. Writing makes a new
 * file beside the old one, complete and synced, and renames it; the old one's log is taken in and removed before, since SQLite
 * would apply it to whatever has the name. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/failpoint.h"
#include "common/num.h"
#include "controlplane/store/dbfile.h"
#include "controlplane/store/engine.h"
#include "controlplane/store/image-engine.h"

struct sqlite_image {
    struct image base;
    sqlite3 *db;
};

static int db_error(struct adv_err *err, sqlite3 *db, int rc, const char *what)
{
    bool corrupt = rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB;

    if (corrupt)
        return adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "%s: %s", what, db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
    return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_UNAVAILABLE", "%s: %s", what,
                              db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

static int exec(sqlite3 *db, const char *sql, const char *what, struct adv_err *err)
{
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : db_error(err, db, rc, what);
}

/* Of a file that is there. */
static int open_db(const char *path, sqlite3 **ret, struct adv_err *err)
{
    struct stat sb;
    int rc, r;

    if (stat(path, &sb) < 0)
        return adv_err_set_errno(err, errno == ENOENT ? ADV_NOT_FOUND : ADV_UNAVAILABLE, errno, "store %s", path);
    rc = sqlite3_open_v2(path, ret, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        r = db_error(err, *ret, rc, path);
        (void) sqlite3_close(*ret);
        *ret = NULL;
        return r;
    }
    (void) sqlite3_busy_timeout(*ret, 10000);
    return 0;
}

/* The first column of the first row; "" without one. */
static int get_text(sqlite3 *db, const char *sql, char *buf, size_t size, struct adv_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);

    buf[0] = '\0';
    if (rc == SQLITE_OK && (rc = sqlite3_step(s)) == SQLITE_ROW && sqlite3_column_text(s, 0))
        (void) snprintf(buf, size, "%s", (const char *) sqlite3_column_text(s, 0));
    (void) sqlite3_finalize(s);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : db_error(err, db, rc, sql);
}

static int get_number(sqlite3 *db, const char *sql, uint64_t *ret, struct adv_err *err)
{
    char text[32];
    int r = get_text(db, sql, text, sizeof(text), err);

    if (r < 0)
        return r;
    *ret = 0;
    if (text[0] && adv_parse_u64(text, 0, UINT64_MAX, ret, NULL) < 0)
        return adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "%s: '%s' is no number", sql, text);
    return 0;
}

static int read_info(sqlite3 *db, const char *path, struct image_info *info, struct adv_err *err)
{
    uint64_t ours, min_reader;
    int r;

    info->engine = "sqlite";
    if ((r = get_number(db, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('meta', 'objects', 'changes',"
                            " 'audit', 'requests')", &ours, err)) < 0)
        return r;
    if (ours != 5)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_FOREIGN", "%s: not a store of Advisor", path);
    if ((r = get_text(db, "SELECT value FROM meta WHERE key = 'store_uuid'", info->uuid, sizeof(info->uuid), err)) < 0 ||
        (r = get_text(db, "SELECT value FROM meta WHERE key = 'sealed'", info->sealed, sizeof(info->sealed), err)) < 0 ||
        (r = get_number(db, "SELECT value FROM meta WHERE key = 'term'", &info->term, err)) < 0 ||
        (r = get_number(db, "SELECT value FROM meta WHERE key = 'schema_version'", &info->schema_version, err)) < 0 ||
        (r = get_number(db, "SELECT value FROM meta WHERE key = 'min_reader'", &min_reader, err)) < 0)
        return r;
    if (min_reader > sqlite_schema_version)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_TOO_NEW", "%s: made by a newer version", path);
    return get_number(db, "SELECT coalesce(max(seq), 0) FROM changes", &info->last_seq, err);
}

static struct image *close_image(struct image *base)
{
    struct sqlite_image *im = ADV_CONTAINER_OF(base, struct sqlite_image, base);

    (void) sqlite3_close(im->db);
    free(im);
    return NULL;
}

static int each(struct image *base, enum image_table table, image_row_cb row, void *arg, struct adv_err *err)
{
    struct sqlite_image *im = ADV_CONTAINER_OF(base, struct sqlite_image, base);
    struct image_cell cells[IMAGE_COLUMNS_MAX];
    char sql[512];
    size_t at = (size_t) snprintf(sql, sizeof(sql), "SELECT "), n = 0;
    sqlite3_stmt *s = NULL;
    int rc, r = 0;

    for (const struct image_column *c = image_columns[table]; c->name; c++, n++)
        at += (size_t) snprintf(sql + at, sizeof(sql) - at, "%s`%s`", n ? ", " : "", c->name);
    (void) snprintf(sql + at, sizeof(sql) - at, " FROM %s ORDER BY %s", image_table_names[table], image_order[table]);
    rc = sqlite3_prepare_v2(im->db, sql, -1, &s, NULL);
    while (r == 0 && (rc == SQLITE_OK || rc == SQLITE_ROW)) {
        rc = sqlite3_step(s);
        if (rc != SQLITE_ROW)
            break;
        for (size_t i = 0; i < n; i++) {
            const void *bytes = sqlite3_column_type(s, (int) i) == SQLITE_BLOB ? sqlite3_column_blob(s, (int) i) :
                                                                                 sqlite3_column_text(s, (int) i);
            cells[i] = (struct image_cell) { bytes ? bytes : "", (size_t) sqlite3_column_bytes(s, (int) i) };
        }
        r = row(arg, cells, err);
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = db_error(err, im->db, rc, image_table_names[table]);
    (void) sqlite3_finalize(s);
    return r;
}

static int check(struct image *base, struct adv_err *err)
{
    struct sqlite_image *im = ADV_CONTAINER_OF(base, struct sqlite_image, base);
    char said[256];
    int r = get_text(im->db, "PRAGMA integrity_check(1)", said, sizeof(said), err);

    if (r < 0 || adv_streq(said, "ok"))
        return r;
    return adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "SQLite's integrity check: %.200s", said);
}

static const struct image_ops ops = { .each = each, .check = check, .close = close_image };

int sqlite_image_open(const struct store_config *cfg, struct image **ret, struct adv_err *err)
{
    struct sqlite_image *im = calloc(1, sizeof(*im));
    int r;

    if (!im)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    im->base.ops = &ops;
    if ((r = open_db(cfg->url, &im->db, err)) < 0 || (r = exec(im->db, "BEGIN", cfg->url, err)) < 0 ||
        (r = read_info(im->db, cfg->url, &im->base.info, err)) < 0) {
        (void) close_image(&im->base);
        return r;
    }
    *ret = &im->base;
    return 0;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static int sync_path(const char *path, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%s", path);
    return 0;
}

static int sync_folder_of(const char *path, struct adv_err *err)
{
    adv_auto_free char *folder = strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;

    if (!folder)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if (slash == folder)
        slash[1] = '\0';
    else if (slash)
        *slash = '\0';
    return sync_path(slash ? folder : ".", err);
}

/* @path with something at its end. */
static const char *beside(const char *path, const char *end, char *buf, size_t size)
{
    (void) snprintf(buf, size, "%s%s", path, end);
    return buf;
}

static void remove_with_log(const char *path)
{
    static const char *const ends[] = { "", "-wal", "-shm", "-journal", ".lock" };
    char name[4096];

    for (size_t i = 0; i < ADV_ARRAY_LEN(ends); i++)
        (void) unlink(beside(path, ends[i], name, sizeof(name)));
}

/* The locks that who serves it holds. */
static int take_locks(const char *path, struct dbfile *f, struct adv_err *err)
{
    int r = dbfile_take(path, false, f, err);

    if (r < 0 && adv_streq(str_or(err->reason), "STORE_LOCKED"))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_SERVED",
                                  "store %s: an advisord serves it; stop that first", path);
    return r;
}

/* One file without a log beside it, and on disk. */
static int finish_file(const char *path, struct adv_err *err)
{
    sqlite3 *db = NULL;
    int r;

    if ((r = open_db(path, &db, err)) < 0)
        return r;
    r = exec(db, "PRAGMA journal_mode=DELETE", path, err);
    (void) sqlite3_close(db);
    return r < 0 ? r : sync_path(path, err);
}

int image_backup_sqlite(const char *path, const char *to, struct adv_err *err)
{
    sqlite3 *from = NULL, *into = NULL;
    struct image_info info = { 0 };
    sqlite3_backup *b;
    char tmp[4096];
    struct stat sb;
    int r, rc, fd;

    (void) beside(to, ".new", tmp, sizeof(tmp));
    if (stat(to, &sb) == 0)
        return adv_err_set(err, ADV_ALREADY_EXISTS, "%s: is there already", to);
    remove_with_log(tmp);
    if ((fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) < 0) /* nobody else's to read */
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%s", tmp);
    (void) close(fd);
    r = open_db(path, &from, err);
    if (r == 0)
        r = read_info(from, path, &info, err);
    if (r == 0)
        r = open_db(tmp, &into, err);
    if (r == 0) {
        b = sqlite3_backup_init(into, "main", from, "main");
        /* in one go: what is written meanwhile goes to the log and is not waited for */
        rc = b ? sqlite3_backup_step(b, -1) : sqlite3_errcode(into);
        if (b)
            (void) sqlite3_backup_finish(b);
        if (rc != SQLITE_DONE)
            r = db_error(err, into, rc, tmp);
    }
    (void) sqlite3_close(from);
    (void) sqlite3_close(into);
    if (r == 0)
        r = finish_file(tmp, err);
    if (r == 0 && rename(tmp, to) < 0)
        r = adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%s", to);
    if (r == 0)
        r = sync_folder_of(to, err);
    if (r < 0)
        remove_with_log(tmp);
    return r;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct insert {
    sqlite3 *db;
    sqlite3_stmt *s;
    enum image_table table;
};

static int insert_row(void *arg, const struct image_cell *cells, struct adv_err *err)
{
    struct insert *in = arg;
    int n = 0, rc;

    for (const struct image_column *c = image_columns[in->table]; c->name; c++, cells++) {
        int64_t number;
        n++;
        if (adv_streq(c->name, "record"))
            (void) sqlite3_bind_blob64(in->s, n, cells->bytes, cells->len, SQLITE_STATIC);
        else if (!c->number)
            (void) sqlite3_bind_text(in->s, n, cells->bytes, (int) cells->len, SQLITE_STATIC);
        else if (adv_parse_i64(cells->bytes, INT64_MIN, INT64_MAX, &number, NULL) == 0)
            (void) sqlite3_bind_int64(in->s, n, number);
        else
            return adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "%s.%s: no number", image_table_names[in->table], c->name);
    }
    rc = sqlite3_step(in->s);
    (void) sqlite3_reset(in->s);
    return rc == SQLITE_DONE ? 0 : db_error(err, in->db, rc, "writing");
}

static int insert_table(sqlite3 *db, struct image *im, enum image_table table, struct adv_err *err)
{
    struct insert in = { .db = db, .table = table };
    char sql[512];
    size_t at = (size_t) snprintf(sql, sizeof(sql), "INSERT INTO %s(", image_table_names[table]);
    const struct image_column *c;
    int rc, r;

    for (c = image_columns[table]; c->name; c++)
        at += (size_t) snprintf(sql + at, sizeof(sql) - at, "%s`%s`", c == image_columns[table] ? "" : ", ", c->name);
    for (c = image_columns[table]; c->name; c++)
        at += (size_t) snprintf(sql + at, sizeof(sql) - at, "%s?", c == image_columns[table] ? ") VALUES(" : ", ");
    (void) snprintf(sql + at, sizeof(sql) - at, ")");
    rc = sqlite3_prepare_v2(db, sql, -1, &in.s, NULL);
    r = rc == SQLITE_OK ? image_each(im, table, insert_row, &in, err) : db_error(err, db, rc, sql);
    (void) sqlite3_finalize(in.s);
    return r;
}

static int fill(sqlite3 *db, struct image *im, uint64_t term, struct adv_err *err)
{
    char sql[256];
    int r = exec(db, "BEGIN IMMEDIATE; DELETE FROM objects; DELETE FROM changes; DELETE FROM audit; DELETE FROM requests", "writing", err);

    ADV_FAILPOINT("image.begun");
    for (int t = 0; r == 0 && t < IMAGE_TABLES_; t++)
        r = insert_table(db, im, (enum image_table) t, err);
    ADV_FAILPOINT("image.before_commit");
    (void) snprintf(sql, sizeof(sql), "INSERT OR REPLACE INTO meta(key, value) VALUES('store_uuid', '%.39s'), ('term', '%" PRIu64 "');"
                                      "COMMIT", im->info.uuid, term);
    return r < 0 ? r : exec(db, sql, "writing", err);
}

/* A new store, with the tables as this program makes them. */
static int make_store(const char *path, struct adv_err *err)
{
    uv_loop_t loop;
    struct store *st = NULL;
    int r;

    if (uv_loop_init(&loop) != 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    r = store_open(&loop, &(struct store_config) { .url = path, .replica = "tool" }, &st, err);
    (void) store_close(st);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&loop);
    return r;
}

/* What is there is a store of ours, or nothing, or cannot be read at all. */
static int check_ours(const char *path, struct adv_err *err)
{
    struct image_info info = { 0 };
    struct adv_err e = { 0 };
    sqlite3 *db = NULL;
    int r = open_db(path, &db, &e);

    if (r == 0)
        r = read_info(db, path, &info, &e);
    (void) sqlite3_close(db);
    if (r == 0 || r == -ADV_NOT_FOUND || r == -ADV_DATA_LOSS)
        return 0;
    if (err)
        *err = e;
    return r;
}

/* Takes the log into the file. If that cannot be done, the log still holds what the file does not: it is put aside until the
 * new file is in place, and back if that fails. */
static int drop_log(const char *path, bool *ret_aside, struct adv_err *err)
{
    sqlite3 *db = NULL;
    char name[4096], aside[4096];
    struct adv_err e = { 0 };
    int rc = SQLITE_ERROR;

    if (open_db(path, &db, &e) == 0)
        rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    (void) beside(path, "-wal", name, sizeof(name));
    (void) beside(path, "-wal.old", aside, sizeof(aside));
    /* before SQLite closes it, which would remove it */
    *ret_aside = rc != SQLITE_OK && rename(name, aside) == 0;
    if (rc != SQLITE_OK && !*ret_aside && errno != ENOENT) {
        int saved = errno;
        (void) sqlite3_close(db);
        return adv_err_set_errno(err, ADV_UNAVAILABLE, saved, "%s", name);
    }
    (void) sqlite3_close(db);
    (void) unlink(name);
    (void) unlink(beside(path, "-shm", name, sizeof(name)));
    return 0;
}

static void end_log(const char *path, bool put_back)
{
    char name[4096], aside[4096];

    (void) beside(path, "-wal", name, sizeof(name));
    (void) beside(path, "-wal.old", aside, sizeof(aside));
    (void) (put_back ? rename(aside, name) : unlink(aside));
}

int sqlite_image_write(struct image *im, const struct store_config *cfg, uint64_t term, struct adv_err *err)
{
    struct dbfile file = { 0 };
    sqlite3 *db = NULL;
    bool aside = false;
    char tmp[4096];
    int r;

    if ((r = check_ours(cfg->url, err)) < 0 || (r = take_locks(cfg->url, &file, err)) < 0)
        return r;
    (void) beside(file.path, ".new", tmp, sizeof(tmp));
    remove_with_log(tmp);
    if ((r = make_store(tmp, err)) == 0 && (r = open_db(tmp, &db, err)) == 0)
        r = fill(db, im, term, err);
    (void) sqlite3_close(db);
    ADV_FAILPOINT("image.after_commit");
    if (r == 0)
        r = finish_file(tmp, err);
    ADV_FAILPOINT("image.before_drop_log");
    if (r == 0 && (r = drop_log(file.path, &aside, err)) == 0) {
        ADV_FAILPOINT("image.before_rename");
        if (rename(tmp, file.path) < 0)
            r = adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%s", file.path);
        if (aside)
            end_log(file.path, r < 0);
    }
    ADV_FAILPOINT("image.after_rename");
    if (r == 0)
        r = sync_folder_of(file.path, err);
    remove_with_log(tmp);
    dbfile_done(&file);
    return r;
}

/* ---- marks ------------------------------------------------------------------------------------------------------ */

static int run_bound(sqlite3 *db, const char *sql, const char *text, struct adv_err *err)
{
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);

    if (rc == SQLITE_OK && text)
        rc = sqlite3_bind_text(s, 1, text, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(s);
    (void) sqlite3_finalize(s);
    return rc == SQLITE_DONE ? 0 : db_error(err, db, rc, sql);
}

/* Who serves it looks at the mark in every transaction, so that from this commit on none is carried out. */
int sqlite_image_seal(const struct store_config *cfg, const char *how, struct adv_err *err)
{
    struct image_info info = { 0 };
    sqlite3 *db = NULL;
    int r;

    if ((r = open_db(cfg->url, &db, err)) < 0 || (r = exec(db, "PRAGMA synchronous=FULL", cfg->url, err)) < 0 ||
        (r = exec(db, "BEGIN IMMEDIATE", cfg->url, err)) < 0 || (r = read_info(db, cfg->url, &info, err)) < 0)
        goto out;
    if (how && info.sealed[0]) {
        r = adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_SEALED", "store %s: it was %s before", cfg->url, info.sealed);
        goto out;
    }
    r = how ? run_bound(db, "INSERT INTO meta(key, value) VALUES('sealed', ?1)", how, err) :
              run_bound(db, "DELETE FROM meta WHERE key = 'sealed'", NULL, err);
    if (r == 0)
        r = exec(db, "COMMIT", cfg->url, err);
out:
    (void) sqlite3_close(db);
    return r;
}

int sqlite_image_promote(const struct store_config *cfg, uint64_t term, uint64_t *ret_term, struct adv_err *err)
{
    struct dbfile file;
    struct image_info info = { 0 };
    sqlite3 *db = NULL;
    char sql[128];
    int r;

    if (access(cfg->url, F_OK) < 0) /* a lock beside nothing would only be left behind */
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "store %s", cfg->url);
    if ((r = take_locks(cfg->url, &file, err)) < 0)
        return r;
    if ((r = open_db(cfg->url, &db, err)) < 0 ||
        (r = exec(db, "PRAGMA synchronous=FULL; BEGIN IMMEDIATE", cfg->url, err)) < 0 ||
        (r = read_info(db, cfg->url, &info, err)) < 0)
        goto out;
    *ret_term = term ? term : info.term + 1;
    (void) snprintf(sql, sizeof(sql), "UPDATE meta SET value = '%" PRIu64 "' WHERE key = 'term'; COMMIT", *ret_term);
    r = exec(db, sql, cfg->url, err);
out:
    (void) sqlite3_close(db);
    dbfile_done(&file);
    return r;
}
