/* SPDX-License-Identifier: Apache-2.0 */
/* What a store that several replicas share does besides. Replicas are stores of one process here, or processes where one has
 * to be killed or stopped. */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "controlplane/store/dbsync.h"
#include "controlplane/store/image.h"
#include "tests/contract/store/contract.h"

TestSuite(shared, .init = contract_setup, .fini = contract_teardown, .timeout = 300);

/* ---- the calls of sharing, waited for --------------------------------------------------------------------------- */

#define ROWS 64

static struct {
    int64_t sent_us;
    uint64_t seq;
    struct store_owner rows[ROWS];
    size_t n;
} owners;

static void on_owners(void *arg, int64_t sent_us, uint64_t seq, const struct store_owner *rows, size_t n, const struct adv_err *err)
{
    (void) arg;
    owners.sent_us = sent_us;
    owners.seq = seq;
    owners.n = n < ROWS ? n : ROWS;
    if (n)
        memcpy(owners.rows, rows, owners.n * sizeof(*rows));
    kit_answer(err);
}

static int renew(struct store *st)
{
    store_renew(st, on_owners, NULL);
    return kit_wait();
}

static int claim(struct store *st, const char *cluster)
{
    store_claim(st, &cluster, 1, on_owners, NULL);
    return kit_wait();
}

/* What the claim before was for. */
static bool had(void)
{
    return owners.n == 1 && owners.rows[0].mine;
}

static int release(struct store *st, const char *cluster)
{
    store_release(st, cluster ? &cluster : NULL, cluster ? 1 : 0, on_done, NULL);
    return kit_wait();
}

static int want(struct store *st, const char *cluster, const char *journal)
{
    store_want(st, cluster, journal, on_done, NULL);
    return kit_wait();
}

static const struct store_owner *owner_row(const char *cluster)
{
    for (size_t i = 0; i < owners.n; i++)
        if (adv_streq(owners.rows[i].cluster, cluster))
            return &owners.rows[i];
    return NULL;
}

/* What a poll brought, as text: "seq:kind:cluster:key:length ..." */
static struct {
    char changes[8192];
    uint64_t first, last;
    size_t n;
    bool more;
    uint64_t todo[ROWS], answers[ROWS];
    size_t n_todo, n_answers;
    char text[256]; /* of the first todo or answer */
} news;

static void on_news(void *arg, const struct store_news *ns, const struct adv_err *err)
{
    size_t at = 0;

    (void) arg;
    memset(&news, 0, sizeof(news));
    for (size_t i = 0; ns && i < ns->n_changes; i++) {
        const struct store_change *ch = &ns->changes[i];
        if (i == 0)
            news.first = ch->seq;
        news.last = ch->seq;
        news.n++;
        if (at < sizeof(news.changes) - 300)
            at += (size_t) snprintf(news.changes + at, sizeof(news.changes) - at, "%s%llu:%d:%s:%s:%s", i ? " " : "",
                                    (unsigned long long) ch->seq, (int) ch->kind, ch->cluster, ch->key,
                                    ch->record ? "record" : "gone");
    }
    if (ns) {
        news.more = ns->more;
        news.n_todo = ns->n_todo;
        news.n_answers = ns->n_answers;
        for (size_t i = 0; i < ns->n_todo && i < ROWS; i++)
            news.todo[i] = ns->todo[i].id;
        for (size_t i = 0; i < ns->n_answers && i < ROWS; i++)
            news.answers[i] = ns->answers[i].id;
        if (ns->n_todo)
            (void) snprintf(news.text, sizeof(news.text), "%s %s %.*s %.*s", ns->todo[0].cluster, ns->todo[0].method,
                            (int) ns->todo[0].request_len, (const char *) ns->todo[0].request, (int) ns->todo[0].caller_len,
                            (const char *) ns->todo[0].caller);
        if (ns->n_answers)
            (void) snprintf(news.text, sizeof(news.text), "%.*s %llu", (int) ns->answers[0].request_len,
                            (const char *) ns->answers[0].request, (unsigned long long) ns->answers[0].seq);
    }
    kit_answer(err);
}

static int poll_store(struct store *st, uint64_t after, uint64_t upto)
{
    store_poll(st, after, upto, on_news, NULL);
    return kit_wait();
}

static uint64_t handed_id;

static void on_id(void *arg, uint64_t id, const struct adv_err *err)
{
    (void) arg;
    handed_id = id;
    kit_answer(err);
}

static uint64_t hand_off(struct store *st, const char *cluster, const char *request)
{
    store_hand_off(st, &(struct store_handoff) { .cluster = cluster, .method = "/a.B/C", .request = request,
                                                 .request_len = strlen(request), .caller = "who", .caller_len = 3 }, on_id, NULL);
    cr_assert_eq(kit_wait(), 0, "%s", kit_err.msg);
    cr_assert_neq(handed_id, 0);
    return handed_id;
}

static void answer(struct store *st, uint64_t id, const char *reply, uint64_t seq)
{
    store_answer(st, &(struct store_handoff) { .id = id, .cluster = "alpha", .method = "", .request = reply,
                                               .request_len = strlen(reply), .seq = seq }, on_done, NULL);
    cr_assert_eq(kit_wait(), 0, "%s", kit_err.msg);
}

/* Commits @n changes of one job each in @cluster, guarded by @epoch; 0 or the error. */
static int write_jobs(struct store *st, const char *cluster, uint64_t epoch, const char *prefix, int n)
{
    struct cluster c = { .name = (char *) (uintptr_t) cluster, .owner_epoch = epoch };
    struct store_txn *t = store_txn_new(st);

    store_txn_guard(t, &c);
    for (int i = 0; i < n; i++) {
        char uid[32];
        struct job j = { .cluster = &c, .uid = uid, .job_id = uid };
        (void) snprintf(uid, sizeof(uid), "%s%d", prefix, i);
        store_txn_put(t, RESOURCE_JOB, cluster, &j);
        store_txn_change(t, 1, RESOURCE_JOB, cluster, uid);
    }
    return commit(st, t);
}

/* Makes @cluster, owned by @st with epoch 1. */
static void make_cluster(struct store *st, const char *cluster)
{
    struct cluster c = { .name = (char *) (uintptr_t) cluster };
    struct store_txn *t = store_txn_new(st);

    store_txn_own(t, &c);
    store_txn_put(t, RESOURCE_CLUSTER, cluster, &c);
    store_txn_change(t, 1, RESOURCE_CLUSTER, cluster, "");
    cr_assert_eq(commit(st, t), 0, "%s", kit_err.msg);
}

static void opened(struct store **a, struct store **b)
{
    *a = must_open("one");
    *b = must_open("two");
    (void) fleet_free(load(*a, NULL));
    (void) fleet_free(load(*b, NULL));
}

static void expire(const char *cluster)
{
    contract_sql("UPDATE owners SET until_at = NOW(6) - INTERVAL 1 SECOND WHERE cluster = '%s'", cluster);
}

/* ---- guards ----------------------------------------------------------------------------------------------------- */

Test(shared, only_the_owner_writes)
{
    struct store *a, *b;
    struct cluster alpha = { .name = (char[]) { "alpha" }, .owner_epoch = 1 }, beta = { .name = (char[]) { "beta" }, .owner_epoch = 1 };
    struct store_txn *t;

    opened(&a, &b);
    make_cluster(a, "alpha");
    make_cluster(b, "beta");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 2), 0, "%s", kit_err.msg);
    cr_assert_eq(write_jobs(b, "alpha", 1, "y", 1), -ADV_ABORTED, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_NOT_OWNER");
    cr_assert_eq(write_jobs(a, "alpha", 2, "z", 1), -ADV_ABORTED, "an epoch that is not (yet)");
    cr_assert_eq(write_jobs(a, "alpha", 0, "z", 1), -ADV_ABORTED);
    cr_assert_eq(write_jobs(a, "gamma", 1, "z", 1), -ADV_ABORTED, "no such cluster");
    /* all of several, or nothing */
    t = store_txn_new(a);
    store_txn_guard(t, &alpha);
    store_txn_guard(t, &beta);
    store_txn_put(t, RESOURCE_CLUSTER, "alpha", &alpha);
    store_txn_change(t, 1, RESOURCE_CLUSTER, "alpha", "");
    cr_assert_eq(commit(a, t), -ADV_ABORTED);
    cr_assert_str_eq(kit_err.reason, "STORE_NOT_OWNER");
    cr_assert_eq(contract_number("SELECT count(*) FROM changes"), 4);
    cr_assert_eq(contract_number("SELECT count(*) FROM objects WHERE kind = 2"), 2);
    cr_assert_eq(claim(a, "beta"), 0);
    cr_assert(!had());
    expire("beta");
    cr_assert_eq(claim(a, "beta"), 0);
    cr_assert(had());
    beta.owner_epoch = owners.rows[0].epoch;
    t = store_txn_new(a);
    store_txn_guard(t, &alpha);
    store_txn_guard(t, &beta);
    store_txn_put(t, RESOURCE_CLUSTER, "alpha", &alpha);
    store_txn_change(t, 1, RESOURCE_CLUSTER, "alpha", "");
    cr_assert_eq(commit(a, t), 0, "%s", kit_err.msg);
    cr_assert_eq(commit_first, 5, "what was refused took no number");
    cr_assert_eq(write_jobs(b, "beta", 1, "y", 1), -ADV_ABORTED, "the owner before");
    close_store(a);
    close_store(b);
}

Test(shared, a_lapsed_owner_writes_until_another_takes_it)
{
    struct store *a, *b;

    opened(&a, &b);
    make_cluster(a, "alpha");
    expire("alpha");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 1), 0, "nobody else can have written");
    cr_assert_eq(claim(b, "alpha"), 0);
    cr_assert(had());
    cr_assert_eq(write_jobs(a, "alpha", 1, "y", 1), -ADV_ABORTED);
    cr_assert_eq(write_jobs(b, "alpha", 2, "y", 1), 0);
    close_store(a);
    close_store(b);
}

Test(shared, a_cluster_is_made_once)
{
    struct store *a, *b;
    struct cluster c = { .name = (char[]) { "alpha" } };
    struct store_txn *t;

    opened(&a, &b);
    make_cluster(a, "alpha");
    t = store_txn_new(b);
    store_txn_own(t, &c);
    c.revision = 77;
    store_txn_put(t, RESOURCE_CLUSTER, "alpha", &c);
    store_txn_change(t, 1, RESOURCE_CLUSTER, "alpha", "");
    cr_assert_eq(commit(b, t), -ADV_ABORTED, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_NOT_OWNER");
    cr_assert_eq(contract_number("SELECT count(*) FROM changes"), 1);
    cr_assert_eq(contract_number("SELECT count(*) FROM owners WHERE cluster = 'alpha' AND owner = 'one' AND epoch = 1"), 1);
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 1), 0);
    close_store(a);
    close_store(b);
}

/* ---- ownership -------------------------------------------------------------------------------------------------- */

/* A backup is put back that does not know a cluster: that one can be made again, and nobody's old epoch fits. */
Test(shared, a_cluster_made_since_the_backup)
{
    char dir[] = "/tmp/adv-contract-XXXXXX", file[64];
    struct store_config here = contract_config;
    struct image *im = NULL;
    struct adv_err err = { 0 };
    struct store *a = must_open("one");

    cr_assert(mkdtemp(dir));
    (void) snprintf(file, sizeof(file), "%s/backup.db", dir);
    (void) fleet_free(load(a, NULL));
    make_cluster(a, "alpha");
    cr_assert_eq(image_open(&here, &im, &err), 0, "%s", err.msg);
    cr_assert_eq(image_write(im, &(struct store_config) { .url = file }, 1, &err), 0, "%s", err.msg);
    (void) image_close(im);
    make_cluster(a, "beta");
    close_store(a);
    contract_sql("DELETE FROM replicas");
    cr_assert_eq(image_open(&(struct store_config) { .url = file }, &im, &err), 0, "%s", err.msg);
    cr_assert_eq(image_write(im, &here, 2, &err), 0, "%s", err.msg);
    (void) image_close(im);
    a = must_open("one");
    (void) fleet_free(load(a, NULL));
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 1), -ADV_ABORTED);
    cr_assert_eq(write_jobs(a, "beta", 1, "x", 1), -ADV_ABORTED);
    cr_assert_eq(claim(a, FLEET_CLUSTER), 0);
    cr_assert_eq(owners.n, 1);
    make_cluster(a, "beta");
    cr_assert_eq(write_jobs(a, "beta", 1, "x", 1), 0);
    close_store(a);
    (void) unlink(file);
    (void) snprintf(file, sizeof(file), "%s/backup.db.lock", dir);
    (void) unlink(file);
    (void) rmdir(dir);
}

Test(shared, claims)
{
    struct store *a, *b;
    int64_t before_us = adv_boot_us();

    opened(&a, &b);
    cr_assert_eq(renew(a), 0, "%s", kit_err.msg);
    cr_assert_geq(owners.sent_us, before_us);
    cr_assert_leq(owners.sent_us, adv_boot_us());
    cr_assert(owner_row(FLEET_CLUSTER) && owner_row(FLEET_CLUSTER)->free && !owner_row(FLEET_CLUSTER)->mine);
    cr_assert_eq(claim(a, FLEET_CLUSTER), 0);
    cr_assert_eq(owners.n, 1);
    cr_assert(owners.rows[0].mine);
    cr_assert_eq(owners.rows[0].epoch, 1);
    cr_assert_eq(owners.seq, 0);
    make_cluster(a, "alpha");
    /* held: that it is there is told, and nothing changes hands */
    cr_assert_eq(claim(b, "alpha"), 0);
    cr_assert_eq(owners.n, 1);
    cr_assert(!owners.rows[0].mine && !owners.rows[0].free && owners.rows[0].epoch == 1);
    cr_assert_eq(renew(b), 0);
    cr_assert_null(owner_row("alpha"), "another's is not told");
    /* one's own: a new epoch */
    cr_assert_eq(claim(a, "alpha"), 0);
    cr_assert_eq(owners.rows[0].epoch, 2);
    cr_assert_eq(owners.seq, 1, "the newest change at that moment");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 1), -ADV_ABORTED);
    cr_assert_eq(write_jobs(a, "alpha", 2, "x", 1), 0);
    /* released: free at once */
    cr_assert_eq(release(a, "alpha"), 0);
    cr_assert_eq(renew(b), 0);
    cr_assert(owner_row("alpha") && owner_row("alpha")->free);
    cr_assert_eq(write_jobs(a, "alpha", 2, "x", 1), -ADV_ABORTED);
    cr_assert_eq(claim(b, "alpha"), 0);
    cr_assert_eq(owners.rows[0].epoch, 3);
    cr_assert_eq(owners.seq, 2);
    cr_assert_eq(release(a, "alpha"), 0, "of another's: nothing");
    cr_assert_eq(write_jobs(b, "alpha", 3, "x", 1), 0);
    /* all at once */
    make_cluster(b, "beta");
    cr_assert_eq(release(b, NULL), 0);
    cr_assert_eq(renew(a), 0);
    cr_assert(owner_row("alpha")->free && owner_row("beta")->free && owner_row(FLEET_CLUSTER)->mine);
    cr_assert_eq(claim(a, "nothing-of-that-name"), 0);
    cr_assert_eq(owners.n, 0, "what has no row is not told");
    close_store(a);
    close_store(b);
}

/* By the database's time alone: a lease of two seconds, renewed, then not. */
Test(shared, leases_end_by_database_time)
{
    struct store *a, *b;
    int64_t end_us;

    contract_config.owner_lease_us = 2000000;
    opened(&a, &b);
    make_cluster(a, "alpha");
    end_us = adv_mono_us() + 3500000;
    while (adv_mono_us() < end_us) {
        cr_assert_eq(renew(a), 0);
        cr_assert(owner_row("alpha")->mine && !owner_row("alpha")->free);
        cr_assert_eq(claim(b, "alpha"), 0);
        cr_assert(owners.n == 1 && !had(), "taken although renewed");
        contract_sql("DO SLEEP(0.2)");
    }
    contract_sql("DO SLEEP(2.1)");
    cr_assert_eq(claim(b, "alpha"), 0);
    cr_assert(had());
    cr_assert_eq(renew(a), 0);
    cr_assert_null(owner_row("alpha"));
    close_store(a);
    close_store(b);
}

Test(shared, wishes)
{
    struct store *a, *b;

    opened(&a, &b);
    make_cluster(a, "alpha");
    cr_assert_eq(want(b, "alpha", "journal-7"), 0);
    cr_assert_eq(renew(a), 0);
    cr_assert_str_eq(owner_row("alpha")->wanted, "two");
    cr_assert_str_eq(owner_row("alpha")->wanted_journal, "journal-7");
    cr_assert_eq(claim(a, "alpha"), 0);
    cr_assert_str_eq(owners.rows[0].wanted, "two", "a new epoch of the same owner");
    cr_assert_eq(want(a, "alpha", "own"), 0, "one's own: nothing");
    cr_assert_eq(want(b, "nothing-of-that-name", "x"), 0);
    cr_assert_eq(renew(a), 0);
    cr_assert_str_eq(owner_row("alpha")->wanted_journal, "journal-7");
    cr_assert_eq(release(a, "alpha"), 0);
    cr_assert_eq(claim(b, "alpha"), 0);
    cr_assert_str_eq(owners.rows[0].wanted, "", "forgotten when it changes hands");
    cr_assert_str_eq(owners.rows[0].wanted_journal, "");
    close_store(a);
    close_store(b);
}

/* Two that claim the same ones at the same time: each is had once. */
static struct store_owner got[2][ROWS];
static size_t n_got[2];
static int answers_left;

static void on_race(void *arg, int64_t sent_us, uint64_t seq, const struct store_owner *rows, size_t n, const struct adv_err *err)
{
    size_t who = (size_t) (uintptr_t) arg;

    (void) sent_us, (void) seq;
    cr_assert_null(err, "%s", err ? err->msg : "");
    n_got[who] = 0;
    for (size_t i = 0; i < n; i++)
        if (rows[i].mine)
            got[who][n_got[who]++] = rows[i];
    answers_left--;
}

Test(shared, two_that_claim_the_same)
{
    const char *names[20];
    char text[20][16];
    struct store *a, *b;

    opened(&a, &b);
    for (int i = 0; i < 20; i++) {
        (void) snprintf(text[i], sizeof(text[i]), "c%d", i);
        names[i] = text[i];
        make_cluster(a, names[i]);
    }
    for (int round = 0; round < 20; round++) {
        contract_sql("UPDATE owners SET owner = ''");
        answers_left = 2;
        store_claim(a, names, 20, on_race, (void *) (uintptr_t) 0);
        store_claim(b, names, 20, on_race, (void *) (uintptr_t) 1);
        while (answers_left)
            (void) uv_run(&loop, UV_RUN_ONCE);
        cr_assert_eq(n_got[0] + n_got[1], 20);
        for (size_t i = 0; i < n_got[0]; i++)
            for (size_t k = 0; k < n_got[1]; k++)
                cr_assert_str_neq(got[0][i].cluster, got[1][k].cluster);
    }
    close_store(a);
    close_store(b);
}

/* ---- following -------------------------------------------------------------------------------------------------- */

Test(shared, following)
{
    struct store *a, *b;
    struct cluster c = { .name = (char[]) { "alpha" }, .owner_epoch = 1 };
    struct store_txn *t;
    char hash[65];

    opened(&a, &b);
    cr_assert_eq(poll_store(b, 0, 0), 0, "%s", kit_err.msg);
    cr_assert_eq(news.n, 0);
    make_cluster(a, "alpha");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 2), 0);
    cr_assert_eq(poll_store(b, 0, 0), 0, "%s", kit_err.msg);
    cr_assert_str_eq(news.changes, "1:1:alpha::record 2:2:alpha:x0:record 3:2:alpha:x1:record");
    cr_assert_not(news.more);
    cr_assert_eq(poll_store(b, 3, 0), 0);
    cr_assert_eq(news.n, 0);
    /* as it is now, gone, an event without an object, a request id */
    t = store_txn_new(a);
    store_txn_guard(t, &c);
    store_txn_delete(t, RESOURCE_JOB, "alpha", "x0");
    store_txn_change(t, 2, RESOURCE_JOB, "alpha", "x0");
    store_txn_audit(t, 3, &(struct audit_record) { .cluster = &c, .seq = 9 });
    store_txn_request(t, &(struct request_record) { (char[]) { "r1" }, (char[]) { "ab" }, adv_wall_us() });
    cr_assert_eq(commit(a, t), 0, "%s", kit_err.msg);
    cr_assert_eq(store_find_request(b, "r1", hash), -ADV_NOT_FOUND);
    cr_assert_eq(poll_store(b, 1, 0), 0);
    cr_assert_str_eq(news.changes, "2:2:alpha:x0:gone 3:2:alpha:x1:record 4:2:alpha:x0:gone 5:7:alpha:9:gone");
    cr_assert_eq(store_find_request(b, "r1", hash), 0);
    cr_assert_str_eq(hash, "ab");
    cr_assert_eq(poll_store(b, 1, 3), 0);
    cr_assert_str_eq(news.changes, "2:2:alpha:x0:gone 3:2:alpha:x1:record");
    close_store(a);
    close_store(b);
}

/* A request alone is a number, too, or it would not be followed. */
Test(shared, a_request_id_without_a_change)
{
    struct store *a, *b;
    struct store_txn *t;
    char hash[65];

    opened(&a, &b);
    t = store_txn_new(a);
    store_txn_request(t, &(struct request_record) { (char[]) { "r1" }, (char[]) { "ab" }, adv_wall_us() });
    cr_assert_eq(commit(a, t), 0, "%s", kit_err.msg);
    cr_assert_eq(poll_store(b, 0, 0), 0);
    cr_assert_str_eq(news.changes, "1:0:::gone");
    cr_assert_eq(store_find_request(b, "r1", hash), 0);
    close_store(a);
    close_store(b);
}

Test(shared, more_than_a_page)
{
    struct store *a, *b;
    uint64_t last = 0;
    int pages = 0;

    opened(&a, &b);
    make_cluster(a, "alpha");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 3000), 0);
    do {
        cr_assert_eq(poll_store(b, last, 0), 0);
        cr_assert_eq(news.first, last + 1);
        last = news.last;
        pages++;
    } while (news.more);
    cr_assert_eq(last, 3001);
    cr_assert_geq(pages, 3);
    close_store(a);
    close_store(b);
}

Test(shared, what_is_no_longer_kept)
{
    struct store *a, *b;

    opened(&a, &b);
    make_cluster(a, "alpha");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 10), 0);
    contract_sql("DELETE FROM changes WHERE seq <= 5");
    cr_assert_eq(poll_store(b, 3, 0), -ADV_OUT_OF_RANGE, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "HISTORY_COMPACTED");
    cr_assert_eq(poll_store(b, 5, 0), 0, "%s", kit_err.msg);
    cr_assert_eq(news.n, 6);
    contract_sql("DELETE FROM changes");
    cr_assert_eq(poll_store(b, 5, 0), -ADV_OUT_OF_RANGE);
    cr_assert_eq(poll_store(b, 11, 0), 0);
    close_store(a);
    close_store(b);
}

/* Yesterday's backup, a copy, another database: whatever is put in its place is noticed. */
Test(shared, another_history_in_its_place)
{
    static const char *const replacements[] = {
        "UPDATE meta SET value = '0198d9b7-0000-7000-8000-000000000001' WHERE `key` = 'store_uuid'",
        "UPDATE meta SET value = '2' WHERE `key` = 'term'",
        "DELETE FROM changes WHERE seq > 4; UPDATE sequence SET last = 4",
        /* the same numbers again, by others */
        "UPDATE changes SET mark = mark - 1 WHERE seq > 4",
    };
    static const char *const backs[] = {
        "UPDATE meta SET value = '%s' WHERE `key` = 'store_uuid'",
        "UPDATE meta SET value = '1' WHERE `key` = 'term'",
        "DO 1",
        "DO 1",
    };
    struct store *a, *b;
    char uuid[64];

    opened(&a, &b);
    make_cluster(a, "alpha");
    (void) snprintf(uuid, sizeof(uuid), "%s", store_uuid(a));
    for (size_t i = 0; i < ADV_ARRAY_LEN(replacements); i++) {
        uint64_t last = contract_number("SELECT last FROM sequence");
        while (last < 10 + i) {
            cr_assert_eq(write_jobs(a, "alpha", 1, "x", 1), 0);
            last++;
        }
        cr_assert_eq(poll_store(b, i == 2 ? 8 : last - 1, 0), 0, "%zu: %s", i, kit_err.msg); /* learns what is there */
        last = news.last;
        contract_sql("%s", replacements[i]);
        cr_assert_eq(poll_store(b, last, 0), -ADV_ABORTED, "%zu: %s", i, kit_err.msg);
        cr_assert_str_eq(kit_err.reason, "STORE_REPLACED");
        if (i == 0)
            contract_sql(backs[i], uuid);
        else
            contract_sql("%s", backs[i]);
        /* loading takes over what is there now */
        (void) fleet_free(load(b, NULL));
        (void) fleet_free(load(a, NULL));
        cr_assert_eq(poll_store(b, contract_number("SELECT last FROM sequence"), 0), 0, "%zu: %s", i, kit_err.msg);
    }
    close_store(a);
    close_store(b);
}

/* The same found by who writes and does not ask: a commit lands only behind the history that is known. */
Test(shared, a_commit_onto_another_history)
{
    static const char *const replacements[] = {
        "UPDATE meta SET value = '0198d9b7-0000-7000-8000-000000000001' WHERE `key` = 'store_uuid'",
        "UPDATE meta SET value = '7' WHERE `key` = 'term'",
        "DELETE FROM changes WHERE seq > 4; UPDATE sequence SET last = 4",
        /* the same numbers again, by others; and more of them */
        "UPDATE changes SET mark = mark - 1 WHERE seq > 2",
        ("UPDATE changes SET mark = mark - 1 WHERE seq > 2; INSERT INTO changes SELECT seq + 1000, 9, '', 0, 0, '' FROM changes;"
         "UPDATE sequence SET last = 2000"),
        /* one that was never there */
        "DELETE FROM changes; UPDATE sequence SET last = 2000",
    };
    struct store *a, *b;
    struct store_txn *t;
    struct cluster alpha = { .name = (char[]) { "alpha" }, .owner_epoch = 1 };

    opened(&a, &b);
    make_cluster(a, "alpha");
    for (size_t i = 0; i < ADV_ARRAY_LEN(replacements); i++) {
        uint64_t last;
        cr_assert_eq(write_jobs(a, "alpha", 1, "x", 6), 0, "%zu: %s", i, kit_err.msg);
        contract_sql("%s", replacements[i]);
        last = contract_number("SELECT last FROM sequence");
        cr_assert_eq(write_jobs(a, "alpha", 1, "lost", 1), -ADV_ABORTED, "%zu: %s", i, kit_err.msg);
        cr_assert_str_eq(kit_err.reason, "STORE_REPLACED");
        t = store_txn_new(a);
        store_txn_guard(t, &alpha);
        cr_assert_eq(commit(a, t), -ADV_ABORTED, "guards alone, too: %zu: %s", i, kit_err.msg);
        cr_assert_str_eq(kit_err.reason, "STORE_REPLACED");
        cr_assert_eq(contract_number("SELECT count(*) FROM objects WHERE `key` LIKE 'lost%%'"), 0);
        cr_assert_eq(contract_number("SELECT last FROM sequence"), last);
        (void) fleet_free(load(a, NULL)); /* takes over what is there now */
        cr_assert_eq(write_jobs(a, "alpha", 1, "x", 1), 0, "%zu: %s", i, kit_err.msg);
        cr_assert_eq(commit_first, last + 1);
    }
    close_store(a);
    close_store(b);
}

/* One's own commit behind numbers of others: while those are read its mark stays known. */
Test(shared, another_history_below_a_commit)
{
    struct store *a, *b;

    opened(&a, &b);
    make_cluster(a, "alpha");
    make_cluster(b, "beta");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 3), 0); /* 3 to 5 */
    cr_assert_eq(write_jobs(b, "beta", 1, "y", 1), 0);  /* 6, while 5 is not known there */
    cr_assert_eq(commit_first, 6);
    cr_assert_eq(poll_store(b, 2, 5), 0, "%s", kit_err.msg);
    contract_sql("UPDATE changes SET mark = mark - 1 WHERE seq = 6");
    cr_assert_eq(poll_store(b, 6, 0), -ADV_ABORTED, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_REPLACED");
    cr_assert_eq(poll_store(b, 5, 0), -ADV_ABORTED, "also when it is read again: %s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_REPLACED");
    close_store(a);
    close_store(b);
}

Test(shared, guards_alone)
{
    struct store *a, *b;
    struct cluster alpha = { .name = (char[]) { "alpha" }, .owner_epoch = 1 };
    struct store_txn *t;

    opened(&a, &b);
    make_cluster(a, "alpha");
    t = store_txn_new(a);
    store_txn_guard(t, &alpha);
    cr_assert_eq(commit(a, t), 0, "%s", kit_err.msg);
    cr_assert_eq(commit_first, 2);
    cr_assert_eq(contract_number("SELECT last FROM sequence"), 1);
    t = store_txn_new(b);
    store_txn_guard(t, &alpha);
    cr_assert_eq(commit(b, t), -ADV_ABORTED, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_NOT_OWNER");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 1), 0, "%s", kit_err.msg);
    cr_assert_eq(commit_first, 2);
    close_store(a);
    close_store(b);
}

/* Two processes write as fast as they can; who follows sees each number once, in order, with none missing. */
Test(shared, numbers_without_gaps_over_two_writers)
{
    struct store *c = must_open("reader");
    pid_t pid[2];
    uint64_t last = 0;
    unsigned seen[2] = { 0, 0 };
    int64_t end_us;

    (void) fleet_free(load(c, NULL));
    for (int i = 0; i < 2; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            char name[32];
            struct store *st;
            const char *cluster = i ? "beta" : "alpha";
            cr_assert_eq(uv_loop_init(&loop), 0); /* the parent's stays the parent's */
            (void) snprintf(name, sizeof(name), "writer-%d", i);
            st = must_open(name);
            (void) fleet_free(load(st, NULL));
            make_cluster(st, cluster);
            for (int k = 0; k < 300; k++)
                if (write_jobs(st, cluster, 1, "x", 1 + k % 7) < 0)
                    _exit(3);
            _exit(0);
        }
    }
    end_us = adv_mono_us() + 60 * 1000000LL;
    while (last < 2 * (1 + 300 / 7 * 28 + 1 + 2 + 3 + 4 + 5 + 6)) {
        cr_assert_eq(poll_store(c, last, 0), 0, "%s", kit_err.msg);
        if (news.n) {
            cr_assert_eq(news.first, last + 1);
            cr_assert_eq(news.last, last + news.n);
            last = news.last;
            seen[0] += strstr(news.changes, "alpha") != NULL;
            seen[1] += strstr(news.changes, "beta") != NULL;
        }
        cr_assert_lt(adv_mono_us(), end_us, "stuck at %llu", (unsigned long long) last);
    }
    for (int i = 0; i < 2; i++) {
        int status;
        cr_assert_eq(waitpid(pid[i], &status, 0), pid[i]);
        cr_assert_eq(status, 0);
    }
    cr_assert_geq(seen[0], 3);
    cr_assert_geq(seen[1], 3);
    cr_assert_eq(contract_number("SELECT last FROM sequence"), last);
    cr_assert_eq(contract_number("SELECT count(DISTINCT seq) FROM changes"), last);
    close_store(c);
}

/* ---- handoffs --------------------------------------------------------------------------------------------------- */

Test(shared, handoffs)
{
    struct store *a, *b;
    uint64_t one, two;

    opened(&a, &b);
    make_cluster(a, "alpha");
    one = hand_off(b, "alpha", "please 'do' this\\");
    two = hand_off(b, "alpha", "and this");
    cr_assert_neq(one, two);
    for (int i = 0; i < 2; i++) { /* until it is answered */
        cr_assert_eq(poll_store(a, 1, 0), 0);
        cr_assert_eq(news.n_todo, 2);
        cr_assert_eq(news.todo[0], one, "oldest first");
        cr_assert_eq(news.todo[1], two);
        cr_assert_str_eq(news.text, "alpha /a.B/C please 'do' this\\ who");
    }
    cr_assert_eq(poll_store(a, 0, 1), 0);
    cr_assert_eq(news.n_todo, 0, "not while a gap is read");
    cr_assert_eq(poll_store(b, 1, 0), 0);
    cr_assert_eq(news.n_todo + news.n_answers, 0, "not the owner");
    answer(a, one, "done", 17);
    answer(a, one, "done again", 18);
    cr_assert_eq(poll_store(a, 1, 0), 0);
    cr_assert_eq(news.n_todo, 1);
    cr_assert_eq(poll_store(b, 1, 0), 0);
    cr_assert_eq(news.n_answers, 1);
    cr_assert_eq(news.answers[0], one);
    cr_assert_str_eq(news.text, "done 17", "the first answer counts");
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(poll_store(b, 1, 0), 0);
        cr_assert_eq(news.n_answers, 0, "told once");
    }
    /* the next owner carries out what is open */
    cr_assert_eq(release(a, "alpha"), 0);
    cr_assert_eq(poll_store(a, 1, 0), 0);
    cr_assert_eq(news.n_todo, 0);
    cr_assert_eq(claim(b, "alpha"), 0);
    cr_assert_eq(poll_store(b, 1, 0), 0);
    cr_assert_eq(news.n_todo, 1);
    cr_assert_eq(news.todo[0], two);
    answer(b, two, "by myself", 1);
    cr_assert_eq(poll_store(b, 1, 0), 0);
    cr_assert_eq(news.n_answers, 1);
    close_store(a);
    close_store(b);
}

/* ---- the database in trouble ------------------------------------------------------------------------------------ */

static bool ticking;
static int64_t worst_gap_us, last_tick_us;

static void tick(uv_timer_t *h)
{
    int64_t now = adv_mono_us();

    (void) h;
    if (ticking && last_tick_us && now - last_tick_us > worst_gap_us)
        worst_gap_us = now - last_tick_us;
    last_tick_us = now;
}

/* It hangs in the middle: the commit ends with its deadline and says that nobody knows; after a reload it is there or not,
 * and stays so. The loop never stands still. */
Test(shared, a_hung_database)
{
    static uv_timer_t ticks;
    struct store *a, *b;
    uint64_t epoch = 1, last;

    contract_config.timeout_us = 500000;
    opened(&a, &b);
    make_cluster(a, "alpha");
    (void) uv_timer_init(&loop, &ticks);
    (void) uv_timer_start(&ticks, tick, 10, 10);
    for (int i = 0; i < 3; i++) {
        char prefix[8];
        uint64_t before, after;
        (void) snprintf(prefix, sizeof(prefix), "h%d-", i);
        contract_lab("freeze");
        ticking = true;
        last_tick_us = worst_gap_us = 0;
        cr_assert_eq(write_jobs(a, "alpha", epoch, prefix, 3), -ADV_UNAVAILABLE, "%s", kit_err.msg);
        cr_assert(adv_streq(kit_err.reason, "STORE_OUTCOME_UNKNOWN") || i > 0, "%s", kit_err.reason);
        cr_assert_eq(poll_store(a, 1, 0), -ADV_UNAVAILABLE);
        cr_assert_eq(renew(a), -ADV_UNAVAILABLE);
        ticking = false;
        cr_assert_lt(worst_gap_us, 300000, "the loop stood still for %lld us", (long long) worst_gap_us);
        contract_lab("thaw");
        while (renew(a) < 0)
            cr_assert_eq(kit_err.code, ADV_UNAVAILABLE);
        /* what is there when memory has been loaded stays */
        struct watchlog w = { 0 };
        struct fleet *f = new_fleet();
        while (load_into(a, f, &w) < 0) {
            watchlog_done(&w);
            (void) fleet_free(f);
            w = (struct watchlog) { 0 };
            f = new_fleet();
        }
        last = w.last;
        before = contract_number("SELECT count(*) FROM objects WHERE `key` LIKE '%s%%'", prefix);
        watchlog_done(&w);
        (void) fleet_free(f);
        contract_sql("DO SLEEP(0.3)");
        after = contract_number("SELECT count(*) FROM objects WHERE `key` LIKE '%s%%'", prefix);
        cr_assert_eq(before, after, "it landed behind the reload");
        cr_assert(before == 0 || before == 3);
        cr_assert_eq(contract_number("SELECT last FROM sequence"), last);
        cr_assert_eq(write_jobs(a, "alpha", epoch, "next", 1), 0, "%s", kit_err.msg);
        cr_assert_eq(commit_first, last + 1);
    }
    uv_close((uv_handle_t *) &ticks, NULL);
    close_store(a);
    close_store(b);
}

/* Killed and started again under load: nothing acknowledged is lost, nothing is there twice, and who follows gets it all. */
Test(shared, a_killed_database)
{
    struct store *a, *b;
    uint64_t last = 0, acknowledged = 0;

    opened(&a, &b);
    make_cluster(a, "alpha");
    for (int round = 0; round < 5; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct timespec pause = { 0, 20000000L * (round + 1) };
            (void) nanosleep(&pause, NULL);
            contract_lab("kill");
            contract_lab("start");
            _exit(0);
        }
        for (int k = 0, fails = 0; k < 200 || fails == 0; k++) {
            char prefix[32];
            (void) snprintf(prefix, sizeof(prefix), "r%d-%d-", round, k);
            if (write_jobs(a, "alpha", 1, prefix, 1) == 0) {
                acknowledged++;
                continue;
            }
            cr_assert_eq(kit_err.code, ADV_UNAVAILABLE, "%s", kit_err.msg);
            fails++;
            if (k > 20000 || waitpid(pid, NULL, WNOHANG) == pid) {
                pid = 0;
                break;
            }
        }
        if (pid)
            (void) waitpid(pid, NULL, 0);
    }
    while (write_jobs(a, "alpha", 1, "end", 1) < 0)
        cr_assert_eq(kit_err.code, ADV_UNAVAILABLE, "%s", kit_err.msg);
    acknowledged++;
    do {
        while (poll_store(b, last, 0) < 0)
            cr_assert_eq(kit_err.code, ADV_UNAVAILABLE, "%s", kit_err.msg);
        if (news.n)
            cr_assert_eq(news.first, last + 1);
        last = news.n ? news.last : last;
    } while (news.more || news.n);
    cr_assert_eq(contract_number("SELECT last FROM sequence"), last);
    cr_assert_eq(contract_number("SELECT count(*) FROM objects WHERE kind = 2"), last - 1, "one number a job");
    cr_assert_geq(last - 1, acknowledged);
    close_store(a);
    close_store(b);
}

struct proxy {
    pid_t pid;
    int in;
    unsigned port;
};

static struct proxy start_proxy(const char *how, unsigned after)
{
    struct proxy p;
    char number[16], line[32] = "";
    int in[2], out[2];

    (void) snprintf(number, sizeof(number), "%u", after);
    cr_assert_eq(pipe(in), 0);
    cr_assert_eq(pipe(out), 0);
    p.pid = fork();
    if (p.pid == 0) {
        (void) dup2(in[0], 0);
        (void) dup2(out[1], 1);
        (void) close(in[1]);
        (void) execl(getenv("ADVISOR_MARIADB_LAB"), "mariadb-lab", "--dir", getenv("ADVISOR_MARIADB_DIR"), "proxy", how, number,
                     (char *) NULL);
        _exit(127);
    }
    (void) close(in[0]);
    (void) close(out[1]);
    cr_assert_gt(read(out[0], line, sizeof(line) - 1), 0);
    (void) close(out[0]);
    p.in = in[1];
    p.port = (unsigned) strtoul(line, NULL, 10);
    return p;
}

/* The connection is cut at every point of a commit's talk, byte by byte: the answer is always right. */
Test(shared, a_cut_anywhere_in_a_commit)
{
    struct store *b = must_open("two");
    int stored = 0, told_wrong = 0, known = 0;
    char direct[sizeof(contract_url)];

    (void) fleet_free(load(b, NULL));
    make_cluster(b, "alpha");
    (void) snprintf(direct, sizeof(direct), "%s", contract_url);
    for (unsigned after = 1500; after < 2300; after += 20) {
        struct proxy p = start_proxy("close", after);
        struct store *a;
        char prefix[16];
        uint64_t there;
        int r;
        (void) snprintf(contract_url, sizeof(contract_url), "mysql://advisor@127.0.0.1:%u/advisor", p.port);
        (void) snprintf(prefix, sizeof(prefix), "c%u-", after);
        struct adv_err err = { 0 };
        if (contract_open("one", &a, &err) < 0) { /* cut while opening */
            cr_assert_eq(err.code, ADV_UNAVAILABLE, "%s", err.msg);
        } else {
            r = claim(a, "alpha");
            if (r == 0 && !had()) {
                expire("alpha");
                r = claim(a, "alpha");
            }
            if (r == 0 && had()) {
                r = write_jobs(a, "alpha", owners.rows[0].epoch, prefix, 1);
                there = contract_number("SELECT count(*) FROM objects WHERE `key` LIKE '%s%%'", prefix);
                stored += there == 1;
                known += r == 0 || !adv_streq(kit_err.reason, "STORE_OUTCOME_UNKNOWN");
                if (r == 0 ? there != 1 : !adv_streq(kit_err.reason, "STORE_OUTCOME_UNKNOWN") && there != 0)
                    told_wrong++;
            }
            close_store(a);
        }
        expire("alpha");
        (void) close(p.in);
        (void) waitpid(p.pid, NULL, 0);
    }
    (void) snprintf(contract_url, sizeof(contract_url), "%s", direct);
    cr_assert_eq(told_wrong, 0);
    cr_assert_geq(stored, 5);
    cr_assert_geq(known, 5);
    close_store(b);
}

/* ---- locks, modes, space ---------------------------------------------------------------------------------------- */

static struct dbsync *second_client(void)
{
    struct dbconn_config cfg = { .connect_timeout_ms = 5000, .lock_wait_ms = 20000, .purpose = "test" };
    struct dbsync *s = NULL;
    struct adv_err err = { 0 };

    cfg.password_file = getenv("ADVISOR_MARIADB_PASSWORD_FILE");
    cr_assert_eq(dburl_parse(contract_url, &cfg.url, &err), 0);
    cr_assert_eq(dbsync_open(&cfg, 30000, &s, &err), 0, "%s", err.msg);
    return s;
}

static void *run_late(void *arg)
{
    struct dbsync *s = arg;
    struct adv_err err = { 0 };
    int r;

    /* the other half of a deadlock: holds the numbers, wants the owner's row, which the commit holds */
    r = dbsync_exec(s, &err, "UPDATE owners SET touched = touched + 1 WHERE cluster = 'alpha'");
    cr_assert_eq(dbsync_exec(s, &err, r == 0 ? "COMMIT" : "ROLLBACK"), 0, "%s", err.msg);
    return (void *) (intptr_t) r;
}

Test(shared, a_deadlock_is_gone_through)
{
    struct store *a, *b;
    struct adv_err err = { 0 };
    int theirs = 0;

    opened(&a, &b);
    make_cluster(a, "alpha");
    for (int i = 0; i < 10; i++) {
        struct dbsync *s = second_client();
        pthread_t thread;
        void *r;
        char prefix[8];
        /* cheaper for InnoDB to throw away is who changed less: let it be us */
        cr_assert_eq(dbsync_exec(s, &err, "START TRANSACTION; INSERT INTO handoffs SELECT seq, '', '', NOW(6), '', '', '', 1, '', 0"
                                          " FROM seq_%d001_to_%d900; UPDATE sequence SET last = last WHERE id = 1;"
                                          "SELECT * FROM sequence FOR UPDATE", i + 1, i + 1), 0, "%s", err.msg);
        (void) snprintf(prefix, sizeof(prefix), "d%d-", i);
        cr_assert_eq(pthread_create(&thread, NULL, run_late, s), 0);
        cr_assert_eq(write_jobs(a, "alpha", 1, prefix, 2), 0, "%s", kit_err.msg);
        cr_assert_eq(pthread_join(thread, &r), 0);
        theirs += (int) (intptr_t) r < 0;
        (void) dbsync_close(s);
        cr_assert_eq(contract_number("SELECT count(*) FROM objects WHERE `key` LIKE '%s%%'", prefix), 2);
    }
    cr_log_info("%d of 10 deadlocks went against the other side", theirs);
    cr_assert_eq(contract_number("SELECT last FROM sequence"), 21);
    close_store(a);
    close_store(b);
}

Test(shared, a_lock_that_is_not_given)
{
    struct store *a, *b;
    struct dbsync *s = NULL;
    struct adv_err err = { 0 };
    int64_t began_us;

    contract_config.timeout_us = 2000000;
    opened(&a, &b);
    make_cluster(a, "alpha");
    s = second_client();
    cr_assert_eq(dbsync_exec(s, &err, "START TRANSACTION; UPDATE sequence SET last = last + 1 WHERE id = 1"), 0);
    began_us = adv_mono_us();
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 2), -ADV_UNAVAILABLE, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_BUSY");
    cr_assert_lt(adv_mono_us() - began_us, 15000000);
    cr_assert_eq(dbsync_exec(s, &err, "ROLLBACK"), 0);
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 2), 0, "%s", kit_err.msg);
    cr_assert_eq(commit_first, 2);
    (void) dbsync_close(s);
    close_store(a);
    close_store(b);
}

Test(shared, read_only)
{
    struct store *a, *b;

    opened(&a, &b);
    make_cluster(a, "alpha");
    contract_lab("sql 'SET GLOBAL read_only = 1'");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 2), -ADV_UNAVAILABLE, "%s", kit_err.msg);
    cr_assert_str_eq(kit_err.reason, "STORE_READ_ONLY");
    cr_assert_eq(renew(a), -ADV_UNAVAILABLE);
    cr_assert_str_eq(kit_err.reason, "STORE_READ_ONLY");
    cr_assert_eq(poll_store(b, 0, 0), 0, "reading goes on");
    contract_lab("sql 'SET GLOBAL read_only = 0'");
    cr_assert_eq(write_jobs(a, "alpha", 1, "x", 2), 0, "%s", kit_err.msg);
    cr_assert_eq(renew(a), 0);
    close_store(a);
    close_store(b);
}

/* Only where mariadb-lab gave it a disk of its own. */
static void fill_up(size_t size, const char *prefix, const char *reason)
{
    static char comment[200001];
    struct cluster c = { .name = (char[]) { "alpha" }, .owner_epoch = 1 };
    struct store *a, *b;
    int64_t end_us;
    uint64_t there;
    int r = 0, written = 0;

    if (!getenv("ADVISOR_MARIADB_DISK"))
        cr_skip("no disk of its own");
    contract_config.timeout_us = 3000000;
    memset(comment, 'x', size);
    opened(&a, &b);
    make_cluster(a, "alpha");
    contract_lab("fill");
    for (; r == 0 && written < 20000; written++) {
        struct store_txn *t = store_txn_new(a);
        char uid[32];
        struct job j = { .cluster = &c, .uid = uid, .job_id = uid, .comment = comment };
        (void) snprintf(uid, sizeof(uid), "%s%d", prefix, written);
        store_txn_guard(t, &c);
        store_txn_put(t, RESOURCE_JOB, "alpha", &j);
        store_txn_change(t, 1, RESOURCE_JOB, "alpha", uid);
        r = commit(a, t);
    }
    written--; /* acknowledged */
    cr_assert_eq(r, -ADV_UNAVAILABLE, "%d rows on a full disk: %s", written, kit_err.msg);
    cr_assert(!reason || adv_streq(kit_err.reason, reason), "%s: %s", kit_err.reason, kit_err.msg);
    contract_lab("unfill");
    end_us = adv_mono_us() + 60 * 1000000LL;
    while (write_jobs(a, "alpha", 1, "after", 1) < 0) {
        cr_assert_eq(kit_err.code, ADV_UNAVAILABLE, "%s", kit_err.msg);
        cr_assert_lt(adv_mono_us(), end_us, "%s", kit_err.msg);
        contract_lab("start"); /* if it did not live through that */
    }
    there = contract_number("SELECT count(*) FROM objects WHERE `key` LIKE '%s%%'", prefix);
    /* the one that was not acknowledged may have been stored after all */
    cr_assert(there == (uint64_t) written || (!reason && there == (uint64_t) written + 1), "%d acknowledged, %llu there", written,
              (unsigned long long) there);
    cr_assert_eq(contract_number("SELECT count(*) FROM changes"), contract_number("SELECT last FROM sequence"));
    contract_sql("DELETE FROM objects; DELETE FROM changes; DELETE FROM owners WHERE cluster = 'alpha'");
    close_store(a);
    close_store(b);
}

Test(shared, a_full_disk)
{
    fill_up(2000, "f", "STORE_FULL");
}

/* MariaDB 10.11 tries for seconds to store a large value, cannot undo it for want of disk, and ends: a crash as any other. */
Test(shared, a_full_disk_and_large_values)
{
    fill_up(200000, "l", NULL);
}

/* A replica that stops in the middle of a commit of several pieces holds its locks for a bounded time. */
Test(shared, a_stopped_replica_stops_nobody)
{
    struct store *b;
    int64_t began_us;
    int status;
    pid_t pid;

    contract_config.owner_lease_us = 1000000;
    pid = fork();
    if (pid == 0) {
        static char comment[3000];
        struct cluster c = { .name = (char[]) { "alpha" }, .owner_epoch = 1 };
        struct store *a;
        struct store_txn *t;
        (void) setenv("ADVISOR_FAILPOINT", "mysql.before_commit=stop@2", 1);
        cr_assert_eq(uv_loop_init(&loop), 0);
        a = must_open("one");
        (void) fleet_free(load(a, NULL));
        make_cluster(a, "alpha");
        memset(comment, 'x', sizeof(comment) - 1);
        t = store_txn_new(a);
        store_txn_guard(t, &c);
        for (int i = 0; i < 3000; i++) {
            char uid[32];
            struct job j = { .cluster = &c, .uid = uid, .job_id = uid, .comment = comment };
            (void) snprintf(uid, sizeof(uid), "s%d", i);
            store_txn_put(t, RESOURCE_JOB, "alpha", &j);
            store_txn_change(t, 1, RESOURCE_JOB, "alpha", uid);
        }
        _exit(commit(a, t) == 0 || adv_streq(kit_err.reason, "STORE_OUTCOME_UNKNOWN") ? 1 : 7);
    }
    cr_assert_eq(waitpid(pid, &status, WUNTRACED), pid);
    cr_assert(WIFSTOPPED(status), "status %d", status);
    b = must_open("two");
    (void) fleet_free(load(b, NULL));
    cr_assert_eq(contract_number("SELECT count(*) FROM changes"), 1);
    began_us = adv_mono_us();
    do {
        if (claim(b, "alpha") < 0)
            cr_assert_eq(kit_err.code, ADV_UNAVAILABLE, "%s", kit_err.msg);
        cr_assert_lt(adv_mono_us() - began_us, 60000000);
    } while (kit_err.code || !had());
    cr_assert_eq(write_jobs(b, "alpha", 2, "x", 1), 0, "%s", kit_err.msg);
    (void) kill(pid, SIGCONT);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7, "it was not stored, and is told so: %d", status);
    cr_assert_eq(contract_number("SELECT count(*) FROM objects WHERE `key` LIKE 's%%'"), 0);
    close_store(b);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

Test(shared, what_is_needed_of_the_server)
{
    struct adv_err err = { 0 };
    struct store *st = NULL;

    contract_lab("sql 'SET GLOBAL innodb_flush_log_at_trx_commit = 2'");
    cr_assert_eq(contract_open("one", &st, &err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_NOT_DURABLE");
    contract_config.accept_lossy = true;
    cr_assert_eq(contract_open("one", &st, &err), 0, "%s", err.msg);
    close_store(st);
    contract_config.accept_lossy = false;
    contract_lab("sql 'SET GLOBAL innodb_flush_log_at_trx_commit = 1'");
    contract_lab("sql 'SET GLOBAL max_allowed_packet = 524288'");
    cr_assert_eq(contract_open("one", &st, &err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_str_eq(err.reason, "STORE_PACKET_TOO_SMALL");
    contract_lab("sql 'SET GLOBAL max_allowed_packet = 16777216'");
    contract_config.url = "mysql://advisor@/";
    cr_assert_eq(contract_open("one", &st, &err), -ADV_INVALID_ARGUMENT, "%s", err.msg);
}

/* Several that open an empty database at once: one makes the tables, the others wait for it, and all mean the same store. */
Test(shared, opened_by_many_at_once)
{
    pid_t pid[6];
    char uuid[64];
    struct store *st;

    for (size_t i = 0; i < ADV_ARRAY_LEN(pid); i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            char name[16], sql[256];
            (void) snprintf(name, sizeof(name), "r%zu", i);
            cr_assert_eq(uv_loop_init(&loop), 0);
            st = must_open(name);
            (void) snprintf(sql, sizeof(sql), "REPLACE INTO meta VALUES('test-%zu', '%s')", i, store_uuid(st));
            contract_sql("%s", sql);
            _exit(0);
        }
    }
    for (size_t i = 0; i < ADV_ARRAY_LEN(pid); i++) {
        int status;
        cr_assert_eq(waitpid(pid[i], &status, 0), pid[i]);
        cr_assert_eq(status, 0);
    }
    st = must_open("last");
    (void) snprintf(uuid, sizeof(uuid), "%s", store_uuid(st));
    cr_assert_eq(contract_number("SELECT count(*) FROM meta WHERE `key` LIKE 'test-%%' AND value = '%s'", uuid),
                 ADV_ARRAY_LEN(pid));
    close_store(st);
}

/* A migration that was cut off anywhere is run again from its beginning. */
Test(shared, a_migration_that_was_cut_off)
{
    struct store *st;
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        (void) setenv("ADVISOR_FAILPOINT", "mysql.migrating=kill", 1);
        cr_assert_eq(uv_loop_init(&loop), 0);
        (void) must_open("one");
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status));
    cr_assert_eq(contract_number("SELECT count(*) FROM meta WHERE `key` = 'schema_version'"), 0);
    contract_sql("DROP TABLE audit");
    st = must_open("two");
    make_cluster(st, "alpha");
    close_store(st);
}
