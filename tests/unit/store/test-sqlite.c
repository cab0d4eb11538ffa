/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utlist.h>

#include "common/clock.h"
#include "controlplane/store/dbfile.h"
#include "controlplane/store/engine.h"
#include "controlplane/store/image-engine.h"
#include "tests/unit/store/faultvfs.h"
#include "tests/unit/store/storekit.h"

#define KILLS 200

static char dir[64], path[96];

static void setup(void)
{
    fault_install();
    (void) snprintf(dir, sizeof(dir), "/tmp/adv-store-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/a.db", dir);
    cr_assert_eq(uv_loop_init(&loop), 0);
}

static int rm(const char *name, const struct stat *sb, int flag, struct FTW *f)
{
    (void) sb, (void) flag, (void) f;
    return remove(name);
}

static void teardown(void)
{
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    (void) nftw(dir, rm, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(sqlite, .init = setup, .fini = teardown, .timeout = 120);

/* ---- helpers ---------------------------------------------------------------------------------------------------- */

static int open_at(struct store **ret, struct adv_err *err)
{
    return store_open(&loop, &(struct store_config) { .url = path, .replica = "test" }, ret, err);
}

static struct store *must_open(void)
{
    struct store *st = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(open_at(&st, &err), 0, "%s", err.msg);
    return st;
}

static int open_code(struct adv_err *err)
{
    struct store *st = NULL;
    int r = open_at(&st, err);

    (void) store_close(st);
    return r;
}

static void sql(const char *text)
{
    sqlite3 *db = NULL;
    char *msg = NULL;

    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, text, NULL, NULL, &msg), SQLITE_OK, "%s: %s", text, msg);
    (void) sqlite3_close(db);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

Test(sqlite, opens_and_keeps_its_identity)
{
    char uuid[64];
    struct store *st = must_open();
    struct stat sb;

    (void) snprintf(uuid, sizeof(uuid), "%s", store_uuid(st));
    cr_assert_eq(strlen(uuid), 36);
    cr_assert_eq(store_term(st), 1);
    cr_assert_eq(stat(path, &sb), 0);
    cr_assert_eq(sb.st_mode & 0777, 0600);
    (void) store_close(st);
    st = must_open();
    cr_assert_str_eq(store_uuid(st), uuid);
    (void) store_close(st);
}

Test(sqlite, a_second_opener_is_refused)
{
    struct store *st = must_open();
    struct adv_err err = { 0 };

    cr_assert_eq(open_code(&err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_LOCKED");
    (void) store_close(st);
    cr_assert_eq(open_code(&err), 0);
}

/* By another process, while this one serves: nothing is acknowledged from then on. */
Test(sqlite, sealed_while_serving)
{
    struct store *st = must_open();
    struct fleet *f = make_fleet();
    struct store_txn *t = store_txn_new(st);
    struct adv_err err = { 0 };

    put_fleet(t, f);
    cr_assert_eq(commit(st, t), 0);
    sql("INSERT INTO meta VALUES('sealed', 'copied away')");
    t = store_txn_new(st);
    put_fleet(t, f);
    cr_assert_eq(commit(st, t), -ADV_FAILED_PRECONDITION, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_SEALED");
    (void) fleet_free(f);
    (void) store_close(st);
    cr_assert_eq(open_code(&err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    sql("DELETE FROM meta WHERE key = 'sealed'");
    cr_assert_eq(open_code(&err), 0, "%s", err.msg);
}

Test(sqlite, a_file_of_another_program_is_refused_and_left_alone)
{
    struct adv_err err = { 0 };
    struct stat before, after;

    sql("CREATE TABLE notes(t); INSERT INTO notes VALUES('mine')");
    cr_assert_eq(stat(path, &before), 0);
    cr_assert_eq(open_code(&err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_FOREIGN");
    cr_assert_eq(stat(path, &after), 0);
    cr_assert_eq(before.st_size, after.st_size);
    cr_assert_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

Test(sqlite, a_folder_that_is_not_there)
{
    struct adv_err err = { 0 };

    (void) snprintf(path, sizeof(path), "%s/no/such/a.db", dir);
    cr_assert_eq(open_code(&err), -ADV_UNAVAILABLE, "%s", err.msg);
    cr_assert_neq(err.sys_errno, 0);
}

Test(sqlite, not_a_database)
{
    struct adv_err err = { 0 };
    FILE *f = fopen(path, "we");

    for (int i = 0; i < 10000; i++)
        (void) fputc('x', f);
    (void) fclose(f);
    cr_assert_eq(open_code(&err), -ADV_DATA_LOSS, "%s", err.msg);
}

/* Bytes of the file are overwritten page by page: opening and loading either refuse with DATA_LOSS or UNAVAILABLE, or
 * (the page was not needed) succeed; they never crash, and never mint a new identity. */
Test(sqlite, corrupt_pages_are_data_loss)
{
    struct fleet *f = make_fleet();
    struct store *st = must_open();
    struct store_txn *t = store_txn_new(st);
    char uuid[64], copy[128];
    adv_auto_free char *bytes = NULL;
    struct stat sb;
    unsigned lost = 0;
    int fd;

    put_fleet(t, f);
    cr_assert_eq(commit(st, t), 0);
    (void) snprintf(uuid, sizeof(uuid), "%s", store_uuid(st));
    (void) store_close(st); /* the last connection moves all into the main file */
    (void) fleet_free(f);
    cr_assert_eq(stat(path, &sb), 0);
    bytes = malloc((size_t) sb.st_size);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(read(fd, bytes, (size_t) sb.st_size), sb.st_size);
    (void) close(fd);
    (void) snprintf(copy, sizeof(copy), "%s/b.db", dir);
    (void) strcpy(path, copy);
    for (off_t at = 0; at < sb.st_size; at += 4096) {
        struct adv_err err = { 0 };
        struct watchlog w = { 0 };
        char junk[4096];
        int r;
        memset(junk, 0xa5, sizeof(junk));
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        cr_assert_eq(write(fd, bytes, (size_t) sb.st_size), sb.st_size);
        cr_assert_eq(pwrite(fd, junk, sizeof(junk), at), 4096);
        (void) close(fd);
        st = NULL;
        r = open_at(&st, &err);
        if (r == 0) {
            cr_assert_str_eq(store_uuid(st), uuid);
            f = new_fleet();
            r = load_into(st, f, &w);
            watchlog_done(&w);
            (void) fleet_free(f);
        }
        (void) store_close(st);
        if (r < 0)
            cr_assert(r == -ADV_DATA_LOSS, "page at %ld: %d %s", (long) at, r, err.msg);
        lost += r < 0;
    }
    cr_assert_geq(lost, 5);
}

/* ---- requests ----------------------------------------------------------------------------------- */

/* Of a commit that fails: known meanwhile, forgotten with the reload. */
Test(sqlite, requests_of_a_failed_commit)
{
    struct store *st = must_open();
    struct store_txn *t = store_txn_new(st);
    char hash[65];

    store_txn_request(t, &(struct request_record) { (char[]) { "one" }, (char[]) { "aa" }, adv_wall_us() });
    cr_assert_eq(commit(st, t), 0);
    atomic_store(&fault_mode, FAULT_FULL);
    t = store_txn_new(st);
    store_txn_request(t, &(struct request_record) { (char[]) { "three" }, (char[]) { "cc" }, adv_wall_us() });
    cr_assert_eq(commit(st, t), -ADV_UNAVAILABLE);
    atomic_store(&fault_mode, FAULT_NONE);
    cr_assert_eq(store_find_request(st, "three", hash), 0);
    (void) fleet_free(load(st, NULL));
    cr_assert_eq(store_find_request(st, "three", hash), -ADV_NOT_FOUND);
    cr_assert_eq(store_find_request(st, "one", hash), 0);
    (void) store_close(st);
}

/* ---- failure ---------------------------------------------------------------------------------------------------- */

/* Whichever write or sync fails: the commit says so, nothing of it is there, and the next one works. */
static void set_clock(int seconds)
{
    char name[96], text[16];
    int fd, n = snprintf(text, sizeof(text), "%d", seconds);

    (void) snprintf(name, sizeof(name), "%s/offset", dir);
    fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && write(fd, text, (size_t) n) == n);
    (void) close(fd);
    cr_assert_eq(setenv("ADVISOR_WALL_OFFSET", name, 1), 0);
}

/* A replica that only follows learns of all of them: they end there, too, and their ids can be used again. */
Test(sqlite, request_ids_end_with_their_day)
{
    struct store *st = must_open();
    const int64_t now_us = adv_wall_us(), day_us = 24 * 3600 * 1000000LL;
    char hash[65];

    set_clock(0);
    cr_assert_eq(store_requests_add(st, "first", "h1", now_us, NULL), 0);
    cr_assert_eq(store_requests_add(st, "ahead", "h2", now_us + day_us, NULL), 0, "of a replica whose clock is wrong");
    cr_assert_eq(store_requests_add(st, "behind", "h3", now_us, NULL), 0);
    cr_assert_eq(store_requests_add(st, "behind", "other", now_us, NULL), 0);
    cr_assert_eq(store_find_request(st, "behind", hash), 0);
    cr_assert_str_eq(hash, "h3", "the first counts");
    set_clock(25 * 3600);
    cr_assert_eq(store_requests_add(st, "behind", "h4", now_us + day_us, NULL), 0);
    cr_assert_eq(store_find_request(st, "behind", hash), 0);
    cr_assert_str_eq(hash, "h4");
    cr_assert_eq(store_find_request(st, "ahead", hash), 0);
    set_clock(0);
    cr_assert_eq(store_find_request(st, "first", hash), -ADV_NOT_FOUND, "it is not kept");
    cr_assert_eq(unsetenv("ADVISOR_WALL_OFFSET"), 0);
    (void) store_close(st);
}

/* ---- images ----------------------------------------------------------------------------------------------------- */

struct sick_image {
    struct image base;
    int reads; /* of tables */
};

static int sick_each(struct image *im, enum image_table table, image_row_cb row, void *arg, struct adv_err *err)
{
    (void) table, (void) row, (void) arg;
    return ++ADV_CONTAINER_OF(im, struct sick_image, base)->reads <= IMAGE_TABLES_ ?
               0 :
               adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_UNAVAILABLE", "the connection is gone");
}

Test(sqlite, a_file_that_cannot_be_had_is_told_of_or_not)
{
    struct adv_err err = { 0 };
    struct dbfile f;

    cr_assert_eq(dbfile_take("/dev/null/none/x.db", true, &f, &err), -ADV_UNAVAILABLE);
    cr_assert_str_eq(err.reason, "STORE_FILE");
    cr_assert_eq(err.sys_errno, ENOTDIR);
    cr_assert_eq(dbfile_take("/dev/null/none/x.db", true, &f, NULL), -ADV_UNAVAILABLE);
}

/* Once it is committed it may be served: that it could not be read back does not mean that it is not there. */
Test(sqlite, an_image_that_cannot_be_read_back)
{
    static const struct image_ops sick_ops = { .each = sick_each };
    struct sick_image im = { .base = { .ops = &sick_ops, .info = { .uuid = "0198d9b7-0000-7000-8000-000000000001", .term = 4 } } };
    struct store *st;
    struct adv_err err = { 0 };

    cr_assert_lt(image_write(&im.base, &(struct store_config) { .url = path }, 5, &err), 0);
    cr_assert_str_eq(err.reason, "STORE_OUTCOME_UNKNOWN", "%s", err.msg);
    st = must_open();
    cr_assert_str_eq(store_uuid(st), "0198d9b7-0000-7000-8000-000000000001");
    cr_assert_eq(store_term(st), 5);
    (void) store_close(st);
}

Test(sqlite, an_image_is_not_written_over_what_is_no_store)
{
    static const struct image_ops sick_ops = { .each = sick_each };
    struct sick_image im = { .base = { .ops = &sick_ops, .info = { .uuid = "0198d9b7-0000-7000-8000-000000000001", .term = 4 } } };
    struct adv_err err = { 0 };

    sql("CREATE TABLE accounts(a); INSERT INTO accounts VALUES(1)");
    cr_assert_eq(image_write(&im.base, &(struct store_config) { .url = path }, 5, &err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_FOREIGN");
    sql("INSERT INTO accounts VALUES(2)");
}

Test(sqlite, an_image_of_a_newer_version)
{
    struct image *im = NULL;
    struct adv_err err = { 0 };

    (void) store_close(must_open());
    cr_assert_eq(image_open(&(struct store_config) { .url = path }, &im, &err), 0, "%s", err.msg);
    im = image_close(im);
    sql("UPDATE meta SET value = '99' WHERE key = 'min_reader'");
    cr_assert_eq(image_open(&(struct store_config) { .url = path }, &im, &err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_TOO_NEW");
}

Test(sqlite, a_failed_commit_leaves_nothing)
{
    struct fleet *f = make_fleet(), *g;
    struct store *st = must_open();
    struct store_txn *t = store_txn_new(st);
    unsigned failures = 0;

    put_fleet(t, f);
    cr_assert_eq(commit(st, t), 0);
    for (long n = 0;; n++) {
        struct cluster *c = f->clusters;
        enum adv_mode was = c->mode;
        uint64_t was_revision = c->revision;
        int r;
        c->mode = was == MODE_ACT ? MODE_OFF : MODE_ACT;
        c->revision++;
        t = store_txn_new(st);
        put_fleet(t, f);
        store_txn_change(t, 1, RESOURCE_CLUSTER, "alpha", "");
        atomic_store(&fault_countdown, n);
        r = commit(st, t);
        bool none = atomic_exchange(&fault_countdown, -1) >= 0;
        if (r < 0) {
            failures++;
            cr_assert_eq(r, -ADV_UNAVAILABLE, "n=%ld: %s", n, kit_err.msg);
            c->mode = was;
            c->revision = was_revision;
        }
        g = load(st, NULL);
        same_fleet(f, g, r < 0 ? "after a failed commit" : "after a commit");
        (void) fleet_free(g);
        if (none)
            break;
        cr_assert_lt(n, 10000);
    }
    cr_assert_geq(failures, 2);
    (void) fleet_free(f);
    (void) store_close(st);
}

Test(sqlite, a_full_disk_and_a_lost_one)
{
    static const enum fault modes[] = { FAULT_FULL, FAULT_SYNC, FAULT_GONE };
    struct fleet *f = make_fleet(), *g;
    struct store *st = must_open();
    struct store_txn *t;

    for (size_t i = 0; i < ADV_ARRAY_LEN(modes); i++) {
        t = store_txn_new(st);
        put_fleet(t, f);
        atomic_store(&fault_mode, modes[i]);
        cr_assert_eq(commit(st, t), -ADV_UNAVAILABLE, "mode %d: %s", modes[i], kit_err.msg);
        cr_assert_str_eq(kit_err.reason, modes[i] == FAULT_FULL ? "STORE_FULL" : "STORE_UNAVAILABLE");
        atomic_store(&fault_mode, FAULT_NONE);
        g = load(st, NULL);
        cr_assert_null(g->clusters);
        (void) fleet_free(g);
    }
    t = store_txn_new(st);
    put_fleet(t, f);
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    g = load(st, NULL);
    same_fleet(f, g, "once the disk is back");
    (void) fleet_free(g);
    (void) fleet_free(f);
    (void) store_close(st);
}

static void writer(int fd)
{
    struct store *st = must_open();
    struct fleet *f = load(st, NULL);
    struct cluster *c = f->clusters;

    if (!c) {
        c = calloc(1, sizeof(*c));
        c->name = strdup("alpha");
        cr_assert_eq(fleet_load_cluster(f, c), 0);
    }
    for (uint64_t n = c->revision;;) {
        struct store_txn *t = store_txn_new(st);
        struct job j = { .cluster = c, .hash = 0 };
        char uid[32];
        c->revision = ++n;
        (void) snprintf(uid, sizeof(uid), "j%llu", (unsigned long long) n);
        j.uid = uid;
        j.job_id = uid;
        store_txn_put(t, RESOURCE_JOB, "alpha", &j);
        store_txn_put(t, RESOURCE_CLUSTER, c->name, c);
        store_txn_change(t, n, RESOURCE_JOB, "alpha", uid);
        if (commit(st, t) < 0)
            _exit(3);
        if (write(fd, &n, sizeof(n)) != sizeof(n)) /* acknowledged */
            _exit(4);
    }
}

/* What was acknowledged before the kill is there, and what is there is whole: row, change and counter go together. */
Test(sqlite, kill_loses_nothing_acknowledged)
{
    uint64_t told = 0;

    for (int round = 0; round < KILLS; round++) {
        struct timespec pause = { 0, (round % 10) * 3000000L + 1000000L };
        int fds[2], status;
        uint64_t n, got = 0, last = 0;
        pid_t pid;
        cr_assert_eq(pipe(fds), 0);
        pid = fork();
        if (pid == 0) {
            (void) close(fds[0]);
            cr_assert_eq(uv_loop_fork(&loop), 0);
            writer(fds[1]);
            _exit(5);
        }
        (void) close(fds[1]);
        cr_assert_eq(read(fds[0], &n, sizeof(n)), sizeof(n), "the writer died by itself");
        got = n;
        (void) nanosleep(&pause, NULL);
        (void) kill(pid, SIGKILL);
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFSIGNALED(status), "round %d: status %d", round, status);
        while (read(fds[0], &n, sizeof(n)) == sizeof(n))
            got = n;
        (void) close(fds[0]);
        if (got > told)
            told = got;

        struct watchlog w = { 0 };
        struct store *st = must_open();
        struct fleet *f = load(st, &w);
        cr_assert(f->clusters);
        last = f->clusters->revision;
        cr_assert_geq(last, told, "round %d: %llu acknowledged, %llu found", round, (unsigned long long) told,
                      (unsigned long long) last);
        cr_assert_leq(last, told + 1);
        cr_assert_eq(HASH_CNT(hh_uid, f->clusters->jobs_by_uid), last);
        cr_assert_eq(w.last, last);
        watchlog_done(&w);
        (void) fleet_free(f);
        (void) store_close(st);
    }
    cr_log_info("%llu rows over %d kills", (unsigned long long) told, KILLS);
}

/* ---- readers ---------------------------------------------------------------------------------------------------- */

#define READS 64

static unsigned reads_done, reads_before_commit;

static void on_read(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    (void) arg, (void) rows;
    cr_assert_null(err);
    cr_assert_eq(n, 0);
    reads_done++;
}

static void on_commit_beside(void *arg, uint64_t first_seq, const struct adv_err *err)
{
    (void) arg, (void) first_seq;
    reads_before_commit = reads_done;
    kit_answer(err);
}

/* However many read the audit log, a commit has a worker. */
Test(sqlite, a_commit_does_not_wait_for_readers)
{
    const struct audit_query q = { .verb = "none", .limit = 10 };
    struct store *st = must_open();
    struct fleet *f = load(st, NULL);
    struct store_txn *t = store_txn_new(st);

    (void) fleet_free(f);
    cr_assert(t);
    reads_done = 0;
    for (int i = 0; i < READS; i++)
        store_list_audit(st, &q, on_read, NULL);
    store_commit(st, t, on_commit_beside, NULL);
    cr_assert_eq(kit_wait(), 0);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(reads_done, READS);
    cr_assert_lt(reads_before_commit, READS / 2, "the commit came after %u of %d reads", reads_before_commit, READS);
    close_store(st);
}

static size_t page_rows;
static uint64_t page_first;

static void on_page(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    (void) arg;
    page_rows = n;
    page_first = n ? rows[0].rowid : 0;
    kit_answer(err);
}

/* A filter that finds little looks at a bounded number of events in one call, and says how far it came. */
Test(sqlite, a_read_is_bounded)
{
    struct audit_query q = { .verb = "rare", .limit = 10 };
    uint64_t upto = 7;
    sqlite3 *db = NULL;

    (void) store_close(must_open());
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000)"
                                  " INSERT INTO audit SELECT i * 2, 'alpha', i, '', '', 'p',"
                                  " CASE WHEN i = 30000 THEN 'rare' ELSE 'often' END, 's', '', '', '', '', 0, 1 FROM n",
                              NULL, NULL, NULL),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
    struct store *st = must_open();
    q.ret_upto = &upto;
    for (int all = 0; all < 2; all++) {
        q.after_rowid = 0;
        (void) snprintf(q.cluster, sizeof(q.cluster), "%s", all ? "" : "alpha");
        store_list_audit(st, &q, on_page, NULL);
        cr_assert_eq(kit_wait(), 0);
        cr_assert_eq(page_rows, 0);
        cr_assert_eq(upto, 2 * STORE_AUDIT_SCAN);
        q.after_rowid = upto;
        store_list_audit(st, &q, on_page, NULL);
        cr_assert_eq(kit_wait(), 0);
        cr_assert_eq(page_rows, 1);
        cr_assert_eq(page_first, 60000);
        cr_assert_eq(upto, 4 * STORE_AUDIT_SCAN);
        q.after_rowid = upto;
        store_list_audit(st, &q, on_page, NULL);
        cr_assert_eq(kit_wait(), 0);
        cr_assert_eq(page_rows, 0);
        cr_assert_eq(upto, 0, "that was all");
    }
    close_store(st);
}
