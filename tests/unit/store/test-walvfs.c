/* SPDX-License-Identifier: Apache-2.0 */
/* The log's pieces, over a disk whose calls are counted and can fail. What others see is asked of connections of their own. */

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/macros.h"
#include "controlplane/store/walvfs.h"
#include "tests/unit/store/faultvfs.h"

static char dir[64], path[96];
static sqlite3 *db, *other;

static int run(sqlite3 *on, const char *sql)
{
    return sqlite3_exec(on, sql, NULL, NULL, NULL);
}

static void must(sqlite3 *on, const char *sql)
{
    cr_assert_eq(run(on, sql), SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(on));
}

static long number(sqlite3 *on, const char *sql)
{
    sqlite3_stmt *s = NULL;
    long n;

    cr_assert_eq(sqlite3_prepare_v2(on, sql, -1, &s, NULL), SQLITE_OK, "%s", sqlite3_errmsg(on));
    cr_assert_eq(sqlite3_step(s), SQLITE_ROW, "%s: %s", sql, sqlite3_errmsg(on));
    n = (long) sqlite3_column_int64(s, 0);
    (void) sqlite3_finalize(s);
    return n;
}

static sqlite3 *open_one(const char *vfs)
{
    sqlite3 *one = NULL;

    cr_assert_eq(sqlite3_open_v2(path, &one, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, vfs), SQLITE_OK);
    must(one, "PRAGMA synchronous=FULL; PRAGMA journal_mode=WAL; PRAGMA cache_size=8");
    return one;
}

static void setup(void)
{
    fault_install();
    (void) snprintf(dir, sizeof(dir), "/tmp/adv-walvfs-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/a.db", dir);
    cr_assert(walvfs_name());
    cr_assert_eq(walvfs_name(), walvfs_name());
    db = open_one(walvfs_name());
    must(db, "CREATE TABLE t(k INTEGER PRIMARY KEY, v BLOB)");
    other = open_one(NULL);
}

static int rm(const char *name, const struct stat *sb, int flag, struct FTW *f)
{
    (void) sb, (void) flag, (void) f;
    return remove(name);
}

static void teardown(void)
{
    cr_assert_eq(sqlite3_close(other), SQLITE_OK);
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
    (void) nftw(dir, rm, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(walvfs, .init = setup, .fini = teardown, .timeout = 60);

/* FEW rows are more pages than the cache of the connection has, MANY are more than are kept. */
#define FEW  INSERT_ROWS("25")
#define MANY INSERT_ROWS("200")
#define INSERT_ROWS(n) "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " n ")" \
                       " INSERT OR REPLACE INTO t SELECT i, hex(randomblob(1500)) FROM n"

Test(walvfs, a_commit_is_one_write_and_one_sync)
{
    long before;

    must(db, "INSERT INTO t VALUES(1, randomblob(20000))");
    before = atomic_load(&fault_ops);
    must(db, "UPDATE t SET v = randomblob(20000)");
    cr_assert_eq(atomic_load(&fault_ops) - before, 2);
    cr_assert_eq(number(other, "SELECT length(v) FROM t"), 20000);
}

Test(walvfs, what_spills_is_read_back_and_shown_whole)
{
    must(db, "BEGIN");
    must(db, MANY);
    cr_assert_eq(number(db, "SELECT sum(length(v)) FROM t"), 600000);
    cr_assert_eq(number(other, "SELECT count(*) FROM t"), 0);
    must(db, "COMMIT");
    cr_assert_eq(number(other, "SELECT sum(length(v)) FROM t"), 600000);
    must(other, "PRAGMA wal_checkpoint(TRUNCATE)");
    must(db, "UPDATE t SET v = 'x' WHERE k = 3");
    cr_assert_eq(number(other, "SELECT length(v) FROM t WHERE k = 3"), 1);
    must(other, "PRAGMA integrity_check");
}

/* What was rolled back is never written over what another connection has committed since. */
Test(walvfs, what_was_rolled_back_is_forgotten)
{
    must(db, FEW);
    for (int i = 0; i < 20; i++) {
        char sql[80];
        must(other, "PRAGMA wal_checkpoint(TRUNCATE)"); /* no page has to be read from the log meanwhile */
        must(db, "BEGIN");
        must(db, i % 2 ? MANY : "UPDATE t SET v = hex(randomblob(1500))");
        must(db, "ROLLBACK");
        walvfs_drop(db);
        (void) snprintf(sql, sizeof(sql), "UPDATE t SET v = 'from the other %d'", i);
        must(other, sql);
        (void) snprintf(sql, sizeof(sql), "SELECT count(*) FROM t WHERE v = 'from the other %d'", i);
        cr_assert_eq(number(db, sql), 25);
        must(db, "UPDATE t SET v = v || '.'");
        (void) snprintf(sql, sizeof(sql), "SELECT count(*) FROM t WHERE v = 'from the other %d.'", i);
        cr_assert_eq(number(other, sql), 25);
        must(db, FEW);
    }
    cr_assert_eq(number(other, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
}

/* Whichever call to the disk fails: the transaction fails, or all of it is there. */
Test(walvfs, each_call_fails_once)
{
    unsigned failures = 0;
    bool none = false;

    must(db, MANY);
    for (long n = 0; !none; n++) {
        long sum = number(other, "SELECT sum(length(v)) FROM t");
        bool ok;
        atomic_store(&fault_countdown, n);
        ok = run(db, "BEGIN") == SQLITE_OK && run(db, "UPDATE t SET v = v || '0123456789'") == SQLITE_OK &&
             run(db, "COMMIT") == SQLITE_OK;
        none = atomic_exchange(&fault_countdown, -1) >= 0;
        if (!ok) {
            failures++;
            (void) run(db, "ROLLBACK");
            walvfs_drop(db);
        }
        cr_assert_eq(number(other, "SELECT sum(length(v)) FROM t"), sum + (ok ? 2000 : 0), "call %ld", n);
        cr_assert_eq(number(db, "SELECT sum(length(v)) FROM t"), sum + (ok ? 2000 : 0), "call %ld", n);
        cr_assert_lt(n, 1000);
    }
    cr_assert_geq(failures, 5);
    cr_assert_eq(number(other, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
}

Test(walvfs, a_full_disk_says_so_until_there_is_room)
{
    atomic_store(&fault_mode, FAULT_FULL);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(run(db, "INSERT INTO t VALUES(1, 'x')"), SQLITE_FULL);
        walvfs_drop(db);
    }
    atomic_store(&fault_mode, FAULT_NONE);
    must(db, "INSERT INTO t VALUES(1, 'x')");
    cr_assert_eq(number(other, "SELECT count(*) FROM t"), 1);
}
