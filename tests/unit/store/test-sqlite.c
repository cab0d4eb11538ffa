/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/store/sample.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utlist.h>

#include "controlplane/store/store.h"
#include "tests/unit/store/faultvfs.h"

#define KILLS 50

static char dir[64], path[96];
static uv_loop_t loop;

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

static struct adv_err committed;
static bool commit_called;

static uint64_t commit_first;

static void on_commit(void *arg, uint64_t first_seq, const struct adv_err *err)
{
    (void) arg;
    commit_called = true;
    commit_first = first_seq;
    committed = err ? *err : (struct adv_err) { 0 };
}

/* 0 or the error's code. */
static int commit(struct store *st, struct store_txn *t)
{
    commit_called = false;
    store_commit(st, t, on_commit, NULL);
    while (!commit_called)
        (void) uv_run(&loop, UV_RUN_ONCE);
    return -(int) committed.code;
}

static struct fleet *new_fleet(void)
{
    struct fleet_config cfg = { .lease_us = 1000000 };
    struct fleet *f;

    policy_defaults(&cfg.policy);
    f = fleet_new(&cfg);
    cr_assert(f);
    return f;
}

static struct adv_err loaded;
static bool load_called;

static void on_load(void *arg, const struct adv_err *err)
{
    (void) arg;
    load_called = true;
    loaded = err ? *err : (struct adv_err) { 0 };
}

/* 0 or the error's code. */
static int load_into(struct store *st, struct fleet *f, struct watchlog *w, struct adv_err *err)
{
    load_called = false;
    store_load(st, f, w, on_load, NULL);
    while (!load_called)
        (void) uv_run(&loop, UV_RUN_ONCE);
    *err = loaded;
    return -(int) loaded.code;
}

static struct fleet *load(struct store *st, struct watchlog *w)
{
    struct watchlog own = { 0 };
    struct fleet *f = new_fleet();
    struct adv_err err = { 0 };

    cr_assert_eq(load_into(st, f, w ? w : &own, &err), 0, "%s", err.msg);
    watchlog_done(&own);
    return f;
}

/* Two clusters, some jobs with attempts, each attempt with anomalies, advice and actions. */
static struct fleet *make_fleet(void)
{
    struct fleet *f = new_fleet();
    int k = 1;

    for (int c = 0; c < 2; c++) {
        struct cluster *cl = calloc(1, sizeof(*cl));
        sample_cluster(cl, c ? "beta" : "alpha", k++);
        cr_assert_eq(fleet_load_cluster(f, cl), 0);
        for (int i = 0; i < 3; i++) {
            struct node *n = calloc(1, sizeof(*n));
            sample_node(n, k++);
            cr_assert_eq(fleet_load_node(cl, n), 0);
        }
        for (int i = 0; i < 2; i++) {
            struct enrolment *e = calloc(1, sizeof(*e));
            struct revocation *r = calloc(1, sizeof(*r));
            sample_enrolment(e, k++);
            cr_assert_eq(fleet_load_enrolment(cl, e), 0);
            sample_revocation(r, k++);
            cr_assert_eq(fleet_load_revocation(cl, r), 0);
        }
        for (int i = 0; i < 3; i++) {
            struct job *j = calloc(1, sizeof(*j));
            sample_job(j, k++);
            cr_assert_eq(fleet_load_job(f, cl, j), 0);
            for (uint32_t n = 0; n < 3; n++) {
                struct attempt *a = calloc(1, sizeof(*a));
                struct advice *ad = calloc(1, sizeof(*ad));
                sample_attempt(a, j->first_index + n, k++);
                cr_assert_eq(fleet_load_attempt(f, j, a), 0);
                sample_advice(ad, k++);
                fleet_load_advice(a, ad);
                for (int x = 0; x < 3; x++) {
                    struct anomaly *an = calloc(1, sizeof(*an));
                    struct action *ac = calloc(1, sizeof(*ac));
                    sample_anomaly(an, 100000 + k++); /* six digits: their order as texts is that of the numbers */
                    fleet_load_anomaly(a, an);
                    sample_action(ac, 100000 + k++);
                    fleet_load_action(a, ac);
                }
            }
        }
    }
    return f;
}

static void put_fleet(struct store_txn *t, const struct fleet *f)
{
    for (struct cluster *c = f->clusters; c; c = c->hh.next) {
        store_txn_put(t, RESOURCE_CLUSTER, c->name, c);
        for (struct node *n = c->nodes; n; n = n->hh.next)
            store_txn_put(t, RESOURCE_NODE, c->name, n);
        for (struct enrolment *e = c->enrolments; e; e = e->hh.next)
            store_txn_put(t, RESOURCE_ENROLMENT, c->name, e);
        for (struct revocation *r = c->revocations; r; r = r->hh.next)
            store_txn_put(t, RESOURCE_REVOCATION, c->name, r);
        for (struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            store_txn_put(t, RESOURCE_JOB, c->name, j);
            for (uint32_t i = 0; i < j->n_attempts; i++) {
                struct attempt *a = j->attempts[i];
                struct anomaly *an;
                struct action *ac;
                store_txn_put(t, RESOURCE_ATTEMPT, c->name, a);
                if (a->advice)
                    store_txn_put(t, RESOURCE_ADVICE, c->name, a->advice);
                DL_FOREACH (a->anomalies, an)
                    store_txn_put(t, RESOURCE_ANOMALY, c->name, an);
                DL_FOREACH (a->actions, ac)
                    store_txn_put(t, RESOURCE_ACTION, c->name, ac);
            }
        }
    }
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

Test(sqlite, a_newer_schema_is_refused)
{
    struct adv_err err = { 0 };

    (void) store_close(must_open());
    sql("UPDATE meta SET value = '99' WHERE key = 'schema_version'");
    cr_assert_eq(open_code(&err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_TOO_NEW");
    sql("UPDATE meta SET value = '1' WHERE key = 'schema_version'");
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
            r = load_into(st, f, &w, &err);
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

/* ---- writing and reading back ----------------------------------------------------------------------------------- */

Test(sqlite, all_kinds_come_back)
{
    struct fleet *f = make_fleet(), *g;
    struct store *st = must_open();
    struct store_txn *t = store_txn_new(st);

    put_fleet(t, f);
    cr_assert_eq(commit(st, t), 0);
    g = load(st, NULL);
    same_fleet(f, g, "same process");
    (void) fleet_free(g);
    (void) store_close(st);
    st = must_open();
    g = load(st, NULL);
    same_fleet(f, g, "after reopening");
    (void) fleet_free(g);
    /* a second write replaces */
    f->clusters->mode = MODE_OFF;
    f->clusters->jobs_by_uid->attempts[0]->exit_code = 77;
    t = store_txn_new(st);
    put_fleet(t, f);
    cr_assert_eq(commit(st, t), 0);
    g = load(st, NULL);
    same_fleet(f, g, "written again");
    (void) fleet_free(g);
    (void) store_close(st);
    (void) fleet_free(f);
}

Test(sqlite, rows_without_their_owner_are_data_loss)
{
    static const char *const cuts[] = {
        "DELETE FROM objects WHERE kind = 1 AND cluster = 'alpha'",
        "DELETE FROM objects WHERE kind = 2 AND key IN (SELECT key FROM objects WHERE kind = 2 LIMIT 1)",
        "DELETE FROM objects WHERE kind = 3 AND key IN (SELECT max(key) FROM objects WHERE kind = 3)",
        "UPDATE objects SET record = x'0801ff' WHERE kind = 3 AND key IN (SELECT min(key) FROM objects WHERE kind = 3)",
        "UPDATE objects SET record = x'' WHERE kind = 2",
        "UPDATE objects SET key = 'nonsense' WHERE kind = 5 AND key IN (SELECT min(key) FROM objects WHERE kind = 5)",
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(cuts); i++) {
        struct fleet *f = make_fleet(), *g = new_fleet();
        struct watchlog w = { 0 };
        struct adv_err err = { 0 };
        struct store *st;
        struct store_txn *t;
        (void) snprintf(path, sizeof(path), "%s/%zu.db", dir, i);
        st = must_open();
        t = store_txn_new(st);
        put_fleet(t, f);
        cr_assert_eq(commit(st, t), 0);
        sql(cuts[i]);
        cr_assert_eq(load_into(st, g, &w, &err), -ADV_DATA_LOSS, "%s: %s", cuts[i], err.msg);
        watchlog_done(&w);
        (void) fleet_free(f);
        (void) fleet_free(g);
        (void) store_close(st);
    }
}

static void put_changes(struct store *st, uint64_t from, uint64_t to)
{
    struct store_txn *t = store_txn_new(st);

    for (uint64_t s = from; s <= to; s++)
        store_txn_change(t, s + 7, RESOURCE_JOB, "alpha", "x");
    cr_assert_eq(commit(st, t), 0);
    cr_assert_eq(commit_first, from);
}

Test(sqlite, changes)
{
    struct store *st = must_open();
    struct watchlog w = { 0 };
    const struct change *c;
    bool gone;

    (void) fleet_free(load(st, &w));
    cr_assert_eq(w.last, 0);
    cr_assert_null(watchlog_after(&w, 0, &gone));
    cr_assert_not(gone);
    watchlog_done(&w);

    put_changes(st, 1, 20);
    (void) fleet_free(load(st, &w));
    cr_assert_eq(w.last, 20);
    c = watchlog_after(&w, 0, &gone);
    cr_assert(c && c->seq == 1 && c->revision == 8 && c->kind == RESOURCE_JOB);
    cr_assert_str_eq(c->cluster, "alpha");
    watchlog_done(&w);

    /* a gap: what came before is not told, since something between is missing */
    sql("DELETE FROM changes WHERE seq = 10");
    (void) fleet_free(load(st, &w));
    cr_assert_eq(w.first, 11);
    cr_assert_eq(w.last, 20);
    cr_assert_null(watchlog_after(&w, 9, &gone));
    cr_assert(gone);
    c = watchlog_after(&w, 10, &gone);
    cr_assert(c && c->seq == 11);
    watchlog_done(&w);

    /* more than the ring holds */
    put_changes(st, 21, 40000);
    (void) fleet_free(load(st, &w));
    cr_assert_eq(w.last, 40000);
    cr_assert_eq(w.first, 40000 - 32768 + 1);
    watchlog_done(&w);
    (void) store_close(st);
}

Test(sqlite, old_changes_are_trimmed)
{
    struct store *st = must_open();
    struct watchlog w = { 0 };
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;

    put_changes(st, 1, 150000);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, "SELECT count(*), min(seq) FROM changes", -1, &s, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_step(s), SQLITE_ROW);
    cr_assert_leq(sqlite3_column_int(s, 0), 101024);
    cr_assert_geq(sqlite3_column_int(s, 0), 100000);
    (void) sqlite3_finalize(s);
    (void) sqlite3_close(db);
    (void) fleet_free(load(st, &w));
    cr_assert_eq(w.last, 150000);
    watchlog_done(&w);
    (void) store_close(st);
}

static int64_t wall_us(void)
{
    struct timespec ts;

    (void) clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static void put_request(struct store *st, const char *id, const char *hash, int64_t at_us, int want)
{
    struct store_txn *t = store_txn_new(st);
    struct request_record r = { (char *) (uintptr_t) id, (char *) (uintptr_t) hash, at_us };

    store_txn_request(t, &r);
    cr_assert_eq(commit(st, t), want, "%s", committed.msg);
}

Test(sqlite, requests)
{
    struct store *st = must_open();
    int64_t day = 24 * 3600 * 1000000LL, now = wall_us();
    char hash[65];

    put_request(st, "old", "aa", now - day - 1000, 0);
    cr_assert_eq(store_find_request(st, "old", hash), -ADV_NOT_FOUND, "older than a day");
    put_request(st, "one", "bb", now - 5, 0);
    cr_assert_eq(store_find_request(st, "one", hash), 0);
    cr_assert_str_eq(hash, "bb");
    cr_assert_eq(store_find_request(st, "two", hash), -ADV_NOT_FOUND);
    (void) store_close(st);
    st = must_open();
    (void) fleet_free(load(st, NULL));
    cr_assert_eq(store_find_request(st, "one", hash), 0);
    /* of a commit that fails: known meanwhile, forgotten with the reload */
    atomic_store(&fault_mode, FAULT_FULL);
    put_request(st, "three", "cc", now, -ADV_UNAVAILABLE);
    atomic_store(&fault_mode, FAULT_NONE);
    cr_assert_eq(store_find_request(st, "three", hash), 0);
    (void) fleet_free(load(st, NULL));
    cr_assert_eq(store_find_request(st, "three", hash), -ADV_NOT_FOUND);
    cr_assert_eq(store_find_request(st, "one", hash), 0);
    (void) store_close(st);
}

/* ---- audit ------------------------------------------------------------------------------------------------------ */

static uint64_t page_ids[64];
static size_t page_n;
static bool page_called;
static char page_first[512];
static size_t page_erased;
static struct {
    char salt[8], detail_hash[8], event_id[8];
} page_last;

static void on_page(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    (void) arg;
    cr_assert_null(err, "%s", err ? err->msg : "");
    page_n = n;
    page_called = true;
    page_erased = 0;
    for (size_t i = 0; i < n; i++) {
        page_ids[i] = rows[i].rowid;
        page_erased += !*rows[i].detail && !*rows[i].salt;
        (void) snprintf(page_last.salt, sizeof(page_last.salt), "%s", rows[i].salt);
        (void) snprintf(page_last.detail_hash, sizeof(page_last.detail_hash), "%s", rows[i].detail_hash);
        (void) snprintf(page_last.event_id, sizeof(page_last.event_id), "%s", rows[i].event_id);
    }
    if (n)
        (void) snprintf(page_first, sizeof(page_first), "%s %llu %.20s %.20s %.20s %.20s %lld %lld", rows[0].cluster,
                        (unsigned long long) rows[0].seq, rows[0].principal, rows[0].verb, rows[0].subject, rows[0].detail,
                        (long long) rows[0].observe_us, (long long) rows[0].record_us);
}

static size_t page(struct store *st, struct audit_query q)
{
    page_called = false;
    store_list_audit(st, &q, on_page, NULL);
    while (!page_called)
        (void) uv_run(&loop, UV_RUN_ONCE);
    return page_n;
}

Test(sqlite, audit_pages)
{
    struct store *st = must_open();
    struct store_txn *t = store_txn_new(st);
    struct cluster c[2] = { { .name = (char[]) { "alpha" } }, { .name = (char[]) { "beta" } } };
    uint64_t after = 0;
    size_t total = 0, n;

    for (uint64_t i = 0; i < 50; i++) {
        char id[16], subject[64];
        struct audit_record r = { .cluster = &c[i % 2], .seq = i / 2 + 1, .prev_hash = (char[]) { "p" },
                                  .hash = (char[]) { "h" }, .detail = (char[]) { "d" }, .salt = (char[]) { "s" },
                                  .detail_hash = (char[]) { "dh" }, .observe_us = (int64_t) i,
                                  .record_us = (int64_t) (1000 + i) };
        r.principal = i < 40 ? (char[]) { "admin:root" } : (char[]) { "detector:x" };
        r.verb = i % 5 ? (char[]) { "mode.set" } : (char[]) { "cluster.create" };
        (void) snprintf(subject, sizeof(subject), i % 2 ? "clusters/beta%%x/jobs/%llu" : "clusters/alpha",
                        (unsigned long long) (i / 10));
        r.subject = subject;
        (void) snprintf(id, sizeof(id), "e%llu", (unsigned long long) i);
        r.event_id = i >= 40 ? id : NULL;
        store_txn_audit(t, i, &r);
    }
    cr_assert_eq(commit(st, t), 0, "%s", committed.msg);
    do {
        n = page(st, (struct audit_query) { .after_rowid = after, .limit = 7 });
        for (size_t i = 0; i < n; i++) {
            cr_assert_gt(page_ids[i], after);
            after = page_ids[i];
        }
        if (total == 0)
            cr_assert_str_eq(page_first, "alpha 1 admin:root cluster.create clusters/alpha d 0 1000");
        total += n;
    } while (n == 7);
    cr_assert_eq(total, 50);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .limit = 60 }), 25);
    cr_assert_eq(page(st, (struct audit_query) { .verb = "cluster.create", .limit = 60 }), 10);
    cr_assert_eq(page(st, (struct audit_query) { .subject_prefix = "clusters/beta%", .limit = 60 }), 25);
    cr_assert_eq(page(st, (struct audit_query) { .subject_prefix = "clusters/%", .limit = 60 }), 0, "a prefix, not a pattern");
    cr_assert_eq(page(st, (struct audit_query) { .limit = 0 }), 0);
    cr_assert_eq(page(st, (struct audit_query) { .principal = "detector:x", .limit = 60 }), 10);
    cr_assert_eq(page(st, (struct audit_query) { .from_us = 1010, .before_us = 1020, .limit = 60 }), 10);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .from_us = 1010, .before_us = 1020, .limit = 60 }), 5);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .event_ids = (const char *const[]) { "e41", "e42", "e43", "'\"", "" },
                                                 .n_event_ids = 5, .limit = 60 }), 2, "of this cluster: e41 and e43");
    cr_assert_str_eq(page_last.event_id, "e43");
    cr_assert_str_eq(page_last.salt, "s");
    cr_assert_str_eq(page_last.detail_hash, "dh");
    /* the same number twice in one cluster is refused, and with it the whole transaction */
    t = store_txn_new(st);
    store_txn_put(t, RESOURCE_CLUSTER, "alpha", &c[0]);
    store_txn_audit(t, 1, &(struct audit_record) { .cluster = &c[0], .seq = 1 });
    cr_assert_eq(commit(st, t), -ADV_UNAVAILABLE);
    struct fleet *f = load(st, NULL);
    cr_assert_null(f->clusters);
    (void) fleet_free(f);
    /* erasing: of the subject and what is below it, and of nobody whose name only begins alike */
    t = store_txn_new(st);
    store_txn_audit_erase(t, "beta", "clusters/beta%x/jobs/1");
    store_txn_audit_erase(t, "alpha", "clusters/beta%x/jobs/2");
    store_txn_audit_erase(t, "beta", "clusters/beta%x/job");
    cr_assert_eq(commit(st, t), 0, "%s", committed.msg);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .limit = 60 }), 25);
    cr_assert_eq(page_erased, 5);
    cr_assert_str_eq(page_last.detail_hash, "dh");
    t = store_txn_new(st);
    store_txn_audit_erase(t, "beta", "clusters/beta%x");
    cr_assert_eq(commit(st, t), 0, "%s", committed.msg);
    cr_assert_eq(page(st, (struct audit_query) { .limit = 60 }), 50);
    cr_assert_eq(page_erased, 25);
    /* removing what is old, of one cluster */
    t = store_txn_new(st);
    store_txn_audit_cut(t, "beta", 10);
    cr_assert_eq(commit(st, t), 0, "%s", committed.msg);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .limit = 60 }), 15);
    cr_assert(adv_startswith(page_first, "beta 11 "), "%s", page_first);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "alpha", .limit = 60 }), 25);
    (void) store_close(st);
}

/* ---- failure ---------------------------------------------------------------------------------------------------- */

/* Whichever write or sync fails: the commit says so, nothing of it is there, and the next one works. */
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
            cr_assert_eq(r, -ADV_UNAVAILABLE, "n=%ld: %s", n, committed.msg);
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
        cr_assert_eq(commit(st, t), -ADV_UNAVAILABLE, "mode %d: %s", modes[i], committed.msg);
        cr_assert_str_eq(committed.reason, "STORE_UNAVAILABLE");
        atomic_store(&fault_mode, FAULT_NONE);
        g = load(st, NULL);
        cr_assert_null(g->clusters);
        (void) fleet_free(g);
    }
    t = store_txn_new(st);
    put_fleet(t, f);
    cr_assert_eq(commit(st, t), 0, "%s", committed.msg);
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
