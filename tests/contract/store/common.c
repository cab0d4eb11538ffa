/* SPDX-License-Identifier: Apache-2.0 */
/* What every store does; run on each engine. */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "tests/contract/store/contract.h"

#define KILLS 30
#define DAY_US (24 * 3600 * 1000000LL)

TestSuite(store, .init = contract_setup, .fini = contract_teardown, .timeout = 300);

static int open_code(struct adv_err *err)
{
    struct store *st = NULL;
    int r = contract_open("other", &st, err);

    close_store(st);
    return r;
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

Test(store, keeps_its_identity)
{
    char uuid[64];
    struct store *st = must_open("one");

    (void) snprintf(uuid, sizeof(uuid), "%s", store_uuid(st));
    cr_assert_eq(strlen(uuid), 36);
    cr_assert_eq(store_term(st), 1);
    cr_assert_str_eq(store_replica(st), "one");
    cr_assert_eq(store_shared(st), contract_shared());
    close_store(st);
    st = must_open("two");
    cr_assert_str_eq(store_uuid(st), uuid);
    cr_assert_eq(store_term(st), 1);
    struct fleet *f = load(st, NULL);
    cr_assert_eq(f->store_term, 1);
    (void) fleet_free(f);
    close_store(st);
}

Test(store, a_schema_that_is_too_new)
{
    struct adv_err err = { 0 };

    close_store(must_open("one"));
    contract_sql("UPDATE meta SET value = '99' WHERE `key` = 'schema_version'");
    cr_assert_eq(open_code(&err), 0, "a newer schema that this program can live with: %s", err.msg);
    cr_assert_eq(contract_number("SELECT value FROM meta WHERE `key` = 'schema_version'"), 99, "and leaves as it is");
    contract_sql("UPDATE meta SET value = '99' WHERE `key` = 'min_reader'");
    cr_assert_eq(open_code(&err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_TOO_NEW");
}

Test(store, a_sealed_one_is_not_served)
{
    struct store *st = must_open("one");
    struct fleet *f = new_fleet();
    struct watchlog w = { 0 };
    struct adv_err err = { 0 };

    contract_sql("INSERT INTO meta VALUES('sealed', 'copied to elsewhere')");
    cr_assert_eq(load_into(st, f, &w), -ADV_FAILED_PRECONDITION, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_SEALED");
    watchlog_done(&w);
    (void) fleet_free(f);
    close_store(st);
    cr_assert_eq(open_code(&err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_SEALED");
    cr_assert(strstr(err.msg, "copied to elsewhere"), "%s", err.msg);
}

Test(store, tables_of_somebody_else)
{
    struct adv_err err = { 0 };

    contract_sql("CREATE TABLE notes(t INT); INSERT INTO notes VALUES(7)");
    cr_assert_eq(open_code(&err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_FOREIGN");
    cr_assert_eq(contract_number("SELECT t FROM notes"), 7);
    contract_sql("DROP TABLE notes");
    cr_assert_eq(open_code(&err), 0, "%s", err.msg);
}

/* ---- writing and reading back ----------------------------------------------------------------------------------- */

Test(store, all_kinds_come_back)
{
    struct fleet *f = make_fleet(), *g;
    struct store *st = must_open("one");
    struct store_txn *t = store_txn_new(st);

    put_fleet(t, f);
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    g = load(st, NULL);
    same_fleet(f, g, "same process");
    (void) fleet_free(g);
    close_store(st);
    st = must_open("two");
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
    close_store(st);
    (void) fleet_free(f);
}

Test(store, rows_without_their_owner_are_data_loss)
{
    static const char *const cuts[] = {
        "DELETE FROM objects WHERE cluster = 'alpha' AND kind = 1",
        "DELETE FROM objects WHERE `key` = (SELECT k FROM (SELECT min(`key`) k FROM objects WHERE kind = 2) x)",
        "DELETE FROM objects WHERE `key` = (SELECT k FROM (SELECT max(`key`) k FROM objects WHERE kind = 3) x)",
        "UPDATE objects SET record = x'0801ff' WHERE `key` = (SELECT k FROM (SELECT min(`key`) k FROM objects WHERE kind = 3) x)",
        "UPDATE objects SET record = x'' WHERE kind = 2",
        "UPDATE objects SET `key` = 'nonsense' WHERE `key` = (SELECT k FROM (SELECT min(`key`) k FROM objects WHERE kind = 5) x)",
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(cuts); i++) {
        struct fleet *f = make_fleet(), *g = new_fleet();
        struct watchlog w = { 0 };
        struct store *st = must_open("one");
        struct store_txn *t = store_txn_new(st);
        put_fleet(t, f);
        cr_assert_eq(commit(st, t), 0);
        contract_sql("%s", cuts[i]);
        cr_assert_eq(load_into(st, g, &w), -ADV_DATA_LOSS, "%s: %s", cuts[i], kit_err.msg);
        cr_assert_str_eq(kit_err.reason, "STORE_CORRUPT");
        watchlog_done(&w);
        (void) fleet_free(f);
        (void) fleet_free(g);
        contract_sql("DELETE FROM objects");
        close_store(st);
    }
}

static struct job simple_job(struct cluster *c, char *uid)
{
    return (struct job) { .cluster = c, .uid = uid, .job_id = uid };
}

static struct cluster *simple_cluster(struct fleet *f, const char *name)
{
    struct cluster *c = calloc(1, sizeof(*c));

    c->name = strdup(name);
    cr_assert_eq(fleet_load_cluster(f, c), 0);
    return c;
}

/* Names that only some databases tell apart, and bytes that only some keep. */
Test(store, names_are_bytes)
{
    static const char *const uids[] = { "a", "A", "a ", " a", "a'b", "a\\b", "a\\", "a\"", "a%", "a_", "ä", "a\xcc\x88", "a;--",
                                        "\xff\xfe", "a\nb", "NULL", "0", "00" };
    struct fleet *f = new_fleet(), *g;
    struct cluster *c = simple_cluster(f, "alpha");
    struct store *st = must_open("one");
    struct store_txn *t = store_txn_new(st);

    store_txn_put(t, RESOURCE_CLUSTER, "alpha", c);
    for (size_t i = 0; i < ADV_ARRAY_LEN(uids); i++) {
        struct job j = simple_job(c, (char *) (uintptr_t) uids[i]);
        j.account = (char *) (uintptr_t) uids[ADV_ARRAY_LEN(uids) - 1 - i];
        store_txn_put(t, RESOURCE_JOB, "alpha", &j);
    }
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    g = load(st, NULL);
    cr_assert_eq(HASH_CNT(hh_uid, g->clusters->jobs_by_uid), ADV_ARRAY_LEN(uids));
    for (size_t i = 0; i < ADV_ARRAY_LEN(uids); i++) {
        struct job *j = fleet_find_job_uid(g->clusters, uids[i]);
        cr_assert(j, "'%s' is missing", uids[i]);
        cr_assert_str_eq(j->account, uids[ADV_ARRAY_LEN(uids) - 1 - i]);
    }
    (void) fleet_free(g);
    (void) fleet_free(f);
    close_store(st);
}

Test(store, writes_and_deletes_in_their_order)
{
    static const char *const plan[] = { "+a", "-a", "+b", "-b", "+b", "-never", "+c", "+c", "-c", "+d" };
    struct fleet *f = new_fleet(), *g;
    struct cluster *c = simple_cluster(f, "alpha");
    struct store *st = must_open("one");
    struct store_txn *t = store_txn_new(st);

    store_txn_put(t, RESOURCE_CLUSTER, "alpha", c);
    for (size_t i = 0; i < ADV_ARRAY_LEN(plan); i++) {
        struct job j = simple_job(c, (char *) (uintptr_t) plan[i] + 1);
        char number[16];
        (void) snprintf(number, sizeof(number), "%zu", i);
        j.qos = number;
        if (plan[i][0] == '+')
            store_txn_put(t, RESOURCE_JOB, "alpha", &j);
        else
            store_txn_delete(t, RESOURCE_JOB, "alpha", plan[i] + 1);
    }
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    g = load(st, NULL);
    cr_assert_eq(HASH_CNT(hh_uid, g->clusters->jobs_by_uid), 2);
    cr_assert_str_eq(fleet_find_job_uid(g->clusters, "b")->qos, "4", "the newest of several writes");
    cr_assert(fleet_find_job_uid(g->clusters, "d"));
    (void) fleet_free(g);
    (void) fleet_free(f);
    close_store(st);
}

/* More than a database takes at once. */
Test(store, a_transaction_of_many_megabytes)
{
    struct fleet *f = new_fleet(), *g;
    struct cluster *c = simple_cluster(f, "alpha");
    struct store *st = must_open("one");
    struct store_txn *t = store_txn_new(st);
    struct watchlog w = { 0 };
    static char comment[1001], large[3u << 20];

    memset(comment, '\'', 1000); /* each doubles on its way */
    memset(large, 'x', sizeof(large) - 1);
    store_txn_put(t, RESOURCE_CLUSTER, "alpha", c);
    for (int i = 0; i < 20000; i++) {
        char uid[32];
        struct job j = simple_job(c, uid);
        (void) snprintf(uid, sizeof(uid), "j%05d", i);
        j.comment = i == 10000 ? large : comment;
        store_txn_put(t, RESOURCE_JOB, "alpha", &j);
        store_txn_change(t, (uint64_t) i + 1, RESOURCE_JOB, "alpha", uid);
    }
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    cr_assert_eq(commit_first, 1);
    g = load(st, &w);
    cr_assert_eq(HASH_CNT(hh_uid, g->clusters->jobs_by_uid), 20000);
    cr_assert_str_eq(fleet_find_job_uid(g->clusters, "j19999")->comment, comment);
    cr_assert_str_eq(fleet_find_job_uid(g->clusters, "j10000")->comment, large);
    cr_assert_eq(w.last, 20000);
    watchlog_done(&w);
    (void) fleet_free(g);
    (void) fleet_free(f);
    close_store(st);
}

/* Rows of a later version are passed over; what else it wrote stays readable. */
Test(store, what_a_newer_version_wrote)
{
    struct fleet *f = make_fleet(), *g;
    struct store *st = must_open("one");
    struct store_txn *t = store_txn_new(st);
    struct watchlog w = { 0 };

    put_fleet(t, f);
    store_txn_change(t, 1, RESOURCE_CLUSTER, "alpha", "");
    cr_assert_eq(commit(st, t), 0);
    contract_sql("INSERT INTO objects(cluster, kind, `key`, record) VALUES('alpha', 900, 'new', x'ff')");
    contract_sql("UPDATE changes SET kind = 900");
    g = load(st, &w);
    same_fleet(f, g, "beside a new kind");
    cr_assert_eq(w.last, 1);
    watchlog_done(&w);
    (void) fleet_free(g);
    (void) fleet_free(f);
    close_store(st);
}

/* ---- changes ---------------------------------------------------------------------------------------------------- */

static void put_changes(struct store *st, uint64_t from, uint64_t to)
{
    struct store_txn *t = store_txn_new(st);

    for (uint64_t s = from; s <= to; s++)
        store_txn_change(t, s + 7, RESOURCE_JOB, "alpha", "x");
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    cr_assert_eq(commit_first, from);
}

Test(store, changes)
{
    struct store *st = must_open("one");
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
    cr_assert_str_eq(c->key, "x");
    watchlog_done(&w);

    /* a gap: what came before is not told, since something between is missing */
    contract_sql("DELETE FROM changes WHERE seq = 10");
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
    close_store(st);
}

Test(store, old_changes_are_removed)
{
    struct store *st = must_open("one");
    struct watchlog w = { 0 };
    int64_t end_us = adv_mono_us() + 60 * 1000000LL;
    uint64_t last = 0;

    for (; last < 140000; last += 4000)
        put_changes(st, last + 1, last + 4000);
    while (contract_number("SELECT count(*) FROM changes") > 104096) {
        cr_assert_lt(adv_mono_us(), end_us, "%llu rows", (unsigned long long) contract_number("SELECT count(*) FROM changes"));
        put_changes(st, last + 1, last + 1024);
        last += 1024;
    }
    cr_assert_geq(contract_number("SELECT count(*) FROM changes"), 100000);
    (void) fleet_free(load(st, &w));
    cr_assert_eq(w.last, last);
    cr_assert_eq(w.last - w.first, 32767);
    watchlog_done(&w);
    close_store(st);
}

/* ---- request ids ------------------------------------------------------------------------------------------------ */

static void put_request(struct store *st, const char *id, const char *hash, int64_t at_us)
{
    struct store_txn *t = store_txn_new(st);

    store_txn_request(t, &(struct request_record) { (char *) (uintptr_t) id, (char *) (uintptr_t) hash, at_us });
    store_txn_change(t, 1, RESOURCE_CLUSTER, "alpha", "");
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
}

Test(store, requests)
{
    struct store *st = must_open("one");
    int64_t now = adv_wall_us();
    char hash[65];

    put_request(st, "old", "aa", now - DAY_US - 1000);
    cr_assert_eq(store_find_request(st, "old", hash), -ADV_NOT_FOUND, "older than a day");
    put_request(st, "kept", "aa", now - DAY_US + 2000000);
    put_request(st, "one", "bb", now - 5);
    put_request(st, "ONE ", "cc", now - 5);
    cr_assert_eq(store_find_request(st, "one", hash), 0);
    cr_assert_str_eq(hash, "bb");
    cr_assert_eq(store_find_request(st, "two", hash), -ADV_NOT_FOUND);
    close_store(st);
    st = must_open("two");
    (void) fleet_free(load(st, NULL));
    cr_assert_eq(store_find_request(st, "one", hash), 0);
    cr_assert_str_eq(hash, "bb");
    cr_assert_eq(store_find_request(st, "ONE ", hash), 0);
    cr_assert_str_eq(hash, "cc");
    cr_assert_eq(store_find_request(st, "old", hash), -ADV_NOT_FOUND);
    close_store(st);
}

Test(store, many_requests)
{
    struct store *st = must_open("one");
    int64_t now = adv_wall_us();
    char id[32], hash[65];

    for (int i = 0; i < 5; i++) {
        struct store_txn *t = store_txn_new(st);
        for (int k = 0; k < 500; k++) {
            (void) snprintf(id, sizeof(id), "r%d", i * 500 + k);
            store_txn_request(t, &(struct request_record) { id, (char[]) { "ab" }, now - 1000 + i % 2 });
            store_txn_change(t, 1, RESOURCE_CLUSTER, "alpha", "");
        }
        cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    }
    (void) fleet_free(load(st, NULL));
    for (int i = 0; i < 2500; i++) {
        (void) snprintf(id, sizeof(id), "r%d", i);
        cr_assert_eq(store_find_request(st, id, hash), 0, "%s", id);
    }
    close_store(st);
}

/* ---- audit ------------------------------------------------------------------------------------------------------ */

static uint64_t page_ids[64];
static size_t page_n, page_erased;
static char page_first[512], page_last[64];

static void on_page(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    (void) arg;
    page_n = n;
    page_erased = 0;
    for (size_t i = 0; i < n; i++) {
        page_ids[i] = rows[i].rowid;
        page_erased += !*rows[i].detail && !*rows[i].salt;
        (void) snprintf(page_last, sizeof(page_last), "%.15s %.15s %.15s", rows[i].salt, rows[i].detail_hash, rows[i].event_id);
    }
    if (n)
        (void) snprintf(page_first, sizeof(page_first), "%s %llu %.20s %.20s %.20s %.20s %.20s %.20s %lld %lld", rows[0].cluster,
                        (unsigned long long) rows[0].seq, rows[0].prev_hash, rows[0].hash, rows[0].principal, rows[0].verb,
                        rows[0].subject, rows[0].detail, (long long) rows[0].observe_us, (long long) rows[0].record_us);
    kit_answer(err);
}

static size_t page(struct store *st, struct audit_query q)
{
    store_list_audit(st, &q, on_page, NULL);
    cr_assert_eq(kit_wait(), 0, "%s", kit_err.msg);
    return page_n;
}

/* Fifty events, of alpha and beta in turns. */
static void put_events(struct store *st)
{
    struct cluster c[2] = { { .name = (char[]) { "alpha" } }, { .name = (char[]) { "beta" } } };
    struct store_txn *t = store_txn_new(st);

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
        store_txn_audit(t, i + 1, &r);
        if (i % 3 == 0) /* events are numbered among the changes */
            store_txn_change(t, i, RESOURCE_JOB, "alpha", "x");
    }
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
}

Test(store, audit_pages)
{
    static const char *const ids[] = { "e41", "e42", "e43", "'\"", "\\", "", "E45" };
    struct store *st = must_open("one");
    uint64_t after = 0;
    size_t total = 0, n;

    put_events(st);
    do {
        n = page(st, (struct audit_query) { .after_rowid = after, .limit = 7 });
        for (size_t i = 0; i < n; i++) {
            cr_assert_gt(page_ids[i], after);
            after = page_ids[i];
        }
        if (total == 0)
            cr_assert_str_eq(page_first, "alpha 1 p h admin:root cluster.create clusters/alpha d 0 1000");
        total += n;
    } while (n == 7);
    cr_assert_eq(total, 50);
    cr_assert_eq(after, 67);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .limit = 60 }), 25);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "BETA", .limit = 60 }), 0);
    cr_assert_eq(page(st, (struct audit_query) { .verb = "cluster.create", .limit = 60 }), 10);
    cr_assert_eq(page(st, (struct audit_query) { .subject_prefix = "clusters/beta%", .limit = 60 }), 25);
    cr_assert_eq(page(st, (struct audit_query) { .subject_prefix = "clusters/%", .limit = 60 }), 0, "a prefix, not a pattern");
    cr_assert_eq(page(st, (struct audit_query) { .limit = 0 }), 0);
    cr_assert_eq(page(st, (struct audit_query) { .principal = "detector:x", .limit = 60 }), 10);
    cr_assert_eq(page(st, (struct audit_query) { .from_us = 1010, .before_us = 1020, .limit = 60 }), 10);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .from_us = 1010, .before_us = 1020, .limit = 60 }), 5);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .event_ids = ids, .n_event_ids = ADV_ARRAY_LEN(ids),
                                                 .limit = 60 }), 2, "of this cluster: e41 and e43");
    cr_assert_str_eq(page_last, "s dh e43");
    close_store(st);
}

Test(store, audit_is_erased_and_cut)
{
    struct store *st = must_open("one");
    struct cluster c = { .name = (char[]) { "beta" } };
    struct store_txn *t;

    put_events(st);
    /* the subject and what is below it, and of nobody whose name only begins alike; and in the order of these calls */
    t = store_txn_new(st);
    store_txn_audit_erase(t, "beta", "clusters/beta%x/jobs/1");
    store_txn_audit_erase(t, "alpha", "clusters/beta%x/jobs/2");
    store_txn_audit_erase(t, "beta", "clusters/beta%x/job");
    store_txn_audit(t, 1, &(struct audit_record) { .cluster = &c, .seq = 26, .subject = (char[]) { "clusters/beta%x/jobs/1" },
                                                   .detail = (char[]) { "new" }, .salt = (char[]) { "s" } });
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .limit = 60 }), 26);
    cr_assert_eq(page_erased, 5);
    t = store_txn_new(st);
    store_txn_audit_erase(t, "beta", "clusters/beta%x");
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    cr_assert_eq(page(st, (struct audit_query) { .limit = 60 }), 51);
    cr_assert_eq(page_erased, 26);
    /* what is old goes, of one cluster; hashes of details stay */
    t = store_txn_new(st);
    store_txn_audit_cut(t, "beta", 10);
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "beta", .limit = 15 }), 15);
    cr_assert(adv_startswith(page_first, "beta 11 "), "%s", page_first);
    cr_assert_str_eq(page_last, " dh e49");
    cr_assert_eq(page(st, (struct audit_query) { .cluster = "alpha", .limit = 60 }), 25);
    close_store(st);
}

/* The same number twice in one cluster is refused, and with it the whole transaction. */
Test(store, a_refused_transaction_leaves_nothing)
{
    struct store *st = must_open("one");
    struct cluster c = { .name = (char[]) { "alpha" } };
    struct store_txn *t = store_txn_new(st);

    store_txn_audit(t, 1, &(struct audit_record) { .cluster = &c, .seq = 1 });
    cr_assert_eq(commit(st, t), 0);
    t = store_txn_new(st);
    store_txn_put(t, RESOURCE_CLUSTER, "alpha", &c);
    store_txn_change(t, 2, RESOURCE_CLUSTER, "alpha", "");
    store_txn_audit(t, 3, &(struct audit_record) { .cluster = &c, .seq = 1 });
    cr_assert_eq(commit(st, t), -ADV_UNAVAILABLE, "%s", kit_err.msg);
    cr_assert_eq(contract_number("SELECT count(*) FROM objects"), 0);
    cr_assert_eq(contract_number("SELECT count(*) FROM changes"), 1);
    /* the next one works, and is numbered as if it had not been */
    t = store_txn_new(st);
    store_txn_put(t, RESOURCE_CLUSTER, "alpha", &c);
    store_txn_change(t, 2, RESOURCE_CLUSTER, "alpha", "");
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
    cr_assert_eq(commit_first, 2);
    close_store(st);
}

/* ---- kill ------------------------------------------------------------------------------------------------------- */

static void writer(int fd, int round)
{
    char name[32];
    struct store *st;
    struct fleet *f;
    struct cluster *c;

    (void) snprintf(name, sizeof(name), "writer-%d", round);
    st = must_open(name);
    f = load(st, NULL);
    c = f->clusters ? f->clusters : simple_cluster(f, "alpha");
    for (uint64_t n = c->revision;;) {
        struct store_txn *t = store_txn_new(st);
        char uid[32];
        struct job j = simple_job(c, uid);
        c->revision = ++n;
        (void) snprintf(uid, sizeof(uid), "j%llu", (unsigned long long) n);
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
Test(store, a_killed_process_loses_nothing_acknowledged)
{
    uint64_t told = 0;

    for (int round = 0; round < KILLS; round++) {
        struct timespec pause = { 0, (round % 10) * 3000000L + 1000000L };
        int fds[2], status;
        uint64_t n, last;
        pid_t pid;
        cr_assert_eq(pipe(fds), 0);
        pid = fork();
        if (pid == 0) {
            (void) close(fds[0]);
            cr_assert_eq(uv_loop_fork(&loop), 0);
            writer(fds[1], round);
            _exit(5);
        }
        (void) close(fds[1]);
        cr_assert_eq(read(fds[0], &n, sizeof(n)), sizeof(n), "the writer died by itself");
        told = n > told ? n : told;
        (void) nanosleep(&pause, NULL);
        (void) kill(pid, SIGKILL);
        cr_assert_eq(waitpid(pid, &status, 0), pid);
        cr_assert(WIFSIGNALED(status), "round %d: status %d", round, status);
        while (read(fds[0], &n, sizeof(n)) == sizeof(n))
            told = n > told ? n : told;
        (void) close(fds[0]);

        struct watchlog w = { 0 };
        struct store *st = must_open("reader");
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
        close_store(st);
        told = last;
    }
    cr_log_info("%llu rows over %d kills", (unsigned long long) told, KILLS);
}
