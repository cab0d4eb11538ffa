/* SPDX-License-Identifier: Apache-2.0 */
/* The n-th allocation fails, n = 0, 1, 2 … until none does: for every event of a story, for the codec and for loading.
 * Nothing may crash or leak, and lost memory must be said (intents->oom, an error): a result that differs from the one
 * with enough memory and says nothing is a defect. The linker sends our own calls here (--wrap, see meson.build); those
 * of shared libraries pass by. */

#include "tests/unit/store/sample.h"

#include <stdarg.h>
#include <ftw.h>
#include <utlist.h>

#include "controlplane/store/codec.h"
#include "controlplane/store/store.h"

static long fail_in = -1; /* allocations until one fails; -1: none does */
static bool failed;

static bool fails(void)
{
    if (fail_in < 0 || fail_in-- > 0)
        return false;
    failed = true;
    return true;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
int __real_vasprintf(char **ret, const char *fmt, va_list ap);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_vasprintf(char **ret, const char *fmt, va_list ap);

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}
char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}
char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? NULL : __real_strndup(s, n);
}
int __wrap_vasprintf(char **ret, const char *fmt, va_list ap)
{
    return fails() ? -1 : __real_vasprintf(ret, fmt, ap);
}

static void arm(long n)
{
    failed = false;
    fail_in = n;
}

static void disarm(void)
{
    fail_in = -1;
}

/* ---- a story that touches everything ---------------------------------------------------------------------------- */

static const char *const one_node[] = { "n1" }, *const two_nodes[] = { "n2", "n3.example.org" }, *const gone[] = { "8" },
                         *const gone_node[] = { "n9" };
static const struct job_obs running[] = {
    { .job_id = "7", .state = JOB_RUNNING, .state_raw = "RUNNING", .batch = true, .requeueable = true, .submit_unix = 5,
      .nodes = "n[1-4]", .user = "alice", .account = "x", .partition = "main", .qos = "q", .detail_known = true,
      .name = "train", .stdout_path = "/o", .excluded_nodes = "n8", .required_nodes = "n1", .num_nodes = 4, .reason = "r",
      .comment = "{\"advisor\":{\"workflow\":\"w\",\"policy\":\"p\"}}", .hash = 70 },
    { .job_id = "8", .state = JOB_RUNNING, .state_raw = "RUNNING", .batch = true, .submit_unix = 5, .nodes = "n5",
      .restart_count = 2, .incarnation_unix = 3, .hash = 80 },
};
static const struct job_obs ended = { .job_id = "7", .state = JOB_FAILED, .state_raw = "FAILED", .batch = true,
                                      .requeueable = true, .submit_unix = 5, .nodes = "n[1-4]", .exit_code = 1,
                                      .end_unix = 1000000, .start_unix = 900000, .hash = 71 };
static const struct job_obs again = { .job_id = "7", .state = JOB_RUNNING, .state_raw = "RUNNING", .batch = true,
                                      .requeueable = true, .submit_unix = 6, .restart_count = 1, .incarnation_unix = 5,
                                      .nodes = "n[2-5]", .hash = 72, .detail_known = true, .comment = "{\"advisor\":{\"x\":1}}" };
static const struct job_obs reused = { .job_id = "8", .state = JOB_PENDING, .state_raw = "PENDING", .batch = true,
                                       .submit_unix = 900, .incarnation_unix = 900, .hash = 81 };
static const struct node_obs nodes[] = { { "n1", "IDLE", "why", true, 1 }, { "n2", "IDLE", "", true, 2 }, { "n3", "X", "", true, 4 },
                                         { "n4", "X", "", true, 8 },       { "n9", "X", "", false, 16 } };
static char advice_name[RESOURCE_NAME_MAX];

#define STORY 24

static struct event event_at(int i, int64_t *now_us)
{
    struct event ev = { .cluster = "a", .principal = "somebody", .request_id = i < 2 ? (i ? "r1" : "r0") : NULL,
                        .request_hash = "h" };

    *now_us = 1000000LL * 1000000 + i * 1000000LL;
    switch (i) {
    case 0:
        ev.type = EV_CLUSTER_CREATE;
        break;
    case 1:
        ev.type = EV_SET_MODE;
        ev.u.set_mode.mode = MODE_ACT;
        ev.u.set_mode.reason = "because";
        break;
    case 2:
    case 18:
        ev.type = EV_AGENT_HELLO;
        ev.u.hello.instance_id = i == 2 ? "s1" : "s2";
        ev.u.hello.journal_id = "j1";
        ev.u.hello.journal_persistent = true;
        ev.u.hello.ceiling = MODE_ACT;
        ev.u.hello.ceiling_reason = "none";
        ev.u.hello.agent_version = "1";
        ev.u.hello.scheduler = "slurm";
        ev.u.hello.highest_epoch.term = i == 2 ? 0 : 9; /* the second time: the store is behind */
        break;
    case 3:
        ev.type = EV_STATE_UPDATE;
        ev.u.state.instance_id = "s1";
        ev.u.state.full_begin = ev.u.state.full_end = true;
        ev.u.state.jobs = running;
        ev.u.state.n_jobs = 2;
        ev.u.state.nodes = nodes;
        ev.u.state.n_nodes = 5;
        ev.u.state.digest = 31 ^ 70 ^ 80;
        break;
    case 4:
    case 5:
    case 6:
    case 14:
        ev.type = EV_FINDING;
        ev.u.finding.job_id = "7";
        ev.u.finding.kind = FINDING_SIGNATURE;
        ev.u.finding.anomaly = ANOMALY_CRASH;
        ev.u.finding.rule = i == 5 ? "ib" : i == 14 ? "late" : "ecc";
        ev.u.finding.rules_version = "v";
        ev.u.finding.fault_class = i == 14 ? "application_bug" : "gpu_hardware";
        ev.u.finding.retryable = i == 14 ? RETRYABLE_NO : RETRYABLE_YES;
        ev.u.finding.precedence = i == 14 ? 99 : 90 - i;
        ev.u.finding.terminal = true;
        ev.u.finding.blame = BLAME_NODE;
        ev.u.finding.nodes = i == 6 ? two_nodes : one_node;
        ev.u.finding.n_nodes = i == 6 ? 2 : 1;
        ev.u.finding.ranks = "1";
        ev.u.finding.stream = "stdout";
        ev.u.finding.offset = (uint64_t) i * 10;
        ev.u.finding.excerpt = "é";
        ev.u.finding.excerpt_sha256 = "00";
        break;
    case 7:
        ev.type = EV_FINDING;
        ev.u.finding.job_id = "7";
        ev.u.finding.kind = FINDING_PROGRESS;
        ev.u.finding.step = 5;
        break;
    case 8:
        ev.type = EV_TELEMETRY;
        ev.u.telemetry.job_id = "7";
        ev.u.telemetry.state = TELEMETRY_PARTIAL;
        ev.u.telemetry.reason = "shed";
        break;
    case 9:
        ev.type = EV_STATE_UPDATE;
        ev.u.state.instance_id = "s1";
        ev.u.state.jobs = &ended;
        ev.u.state.n_jobs = 1;
        ev.u.state.digest = 31 ^ 71 ^ 80;
        break;
    case 10:
    case 15:
        ev.type = EV_TICK;
        *now_us += 100000000;
        break;
    case 11:
    case 12:
        ev.type = EV_ACTION;
        ev.u.action.journal_id = "j1";
        ev.u.action.journal_seq = 1;
        ev.u.action.advice_name = advice_name;
        ev.u.action.generation = 1;
        ev.u.action.verb = 4;
        ev.u.action.read_before = "FAILED";
        ev.u.action.outcome = i == 12;
        ev.u.action.command = COMMAND_ACCEPTED;
        ev.u.action.observed = OBSERVED_YES;
        ev.u.action.reason = "x";
        ev.u.action.detail = "y";
        break;
    case 13:
        ev.type = EV_ADVICE_STATUS;
        ev.u.status.advice_name = advice_name;
        ev.u.status.observed_generation = 1;
        ev.u.status.epoch.counter = 1;
        ev.u.status.disposition = DISPOSITION_PENDING;
        ev.u.status.reason = 17;
        ev.u.status.detail = "later";
        break;
    case 16:
        ev.type = EV_STATE_UPDATE;
        ev.u.state.instance_id = "s1";
        ev.u.state.jobs = &again;
        ev.u.state.n_jobs = 1;
        ev.u.state.gone_jobs = gone;
        ev.u.state.n_gone_jobs = 1;
        ev.u.state.gone_nodes = gone_node;
        ev.u.state.n_gone_nodes = 1;
        ev.u.state.digest = 15 ^ 72;
        break;
    case 17:
        ev.type = EV_AGENT_GONE;
        ev.u.gone.instance_id = "s1";
        ev.u.gone.why = "lost";
        break;
    case 19:
        ev.type = EV_AGENT_REPORT;
        ev.u.report.instance_id = "s2";
        ev.u.report.ceiling = MODE_OBSERVE;
        ev.u.report.ceiling_reason = "lowered";
        ev.u.report.mode_confirmed = true;
        break;
    case 20:
        ev.type = EV_STATE_UPDATE;
        ev.u.state.instance_id = "s2";
        ev.u.state.full_begin = ev.u.state.full_end = true;
        ev.u.state.jobs = &reused; /* 7 is missing: gone */
        ev.u.state.n_jobs = 1;
        ev.u.state.digest = 81;
        break;
    case 21:
        ev.type = EV_AGENT_GONE;
        ev.u.gone.instance_id = "s2";
        break;
    case 22:
        ev.type = EV_LEASE_TAKE;
        ev.u.take.instance_id = "s3";
        ev.u.take.journal_id = "j3";
        *now_us += 1000000000;
        break;
    default:
        ev.type = EV_SET_MODE;
        ev.u.set_mode.mode = MODE_OFF;
        *now_us += 1000000000;
        break;
    }
    return ev;
}

static struct fleet *new_fleet(void)
{
    struct fleet_config cfg = { .lease_us = 1000000, .log_detection = true };

    struct fleet *f;

    policy_defaults(&cfg.policy);
    f = fleet_new(&cfg);
    if (f)
        fleet_load_done(f, true, 0, 0);
    return f;
}

static int apply(struct fleet *f, int i, bool *ret_oom)
{
    struct intents in;
    struct adv_err err = { 0 };
    int64_t now_us;
    struct event ev = event_at(i, &now_us);
    int r;

    intents_init(&in);
    ev.now_us = ev.mono_us = now_us;
    r = fleet_apply(f, &ev, &in, &err);
    *ret_oom = in.oom;
    intents_done(&in);
    return r;
}

/* The fleet after the first @n events. */
static struct fleet *told(int n)
{
    struct fleet *f = new_fleet();
    bool oom;

    for (int i = 0; i < n; i++) {
        cr_assert_eq(apply(f, i, &oom), 0, "event %d", i);
        cr_assert_not(oom);
        if (i == 10) {
            struct attempt *a = job_attempt(fleet_find_job(f->clusters, "7"), 0);
            cr_assert(a->advice && a->advice->desired == DESIRED_RESTARTED);
            (void) advice_resource_name(a, advice_name);
        }
    }
    return f;
}

/* All that would be stored, as bytes. */
static void dump(const struct fleet *f, struct adv_buf *out)
{
    for (const struct cluster *c = f->clusters; c; c = c->hh.next) {
        cr_assert_eq(codec_encode(RESOURCE_CLUSTER, c, out), 0);
        for (const struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            cr_assert_eq(codec_encode(RESOURCE_JOB, j, out), 0);
            for (uint32_t i = 0; i < j->n_attempts; i++) {
                const struct anomaly *an;
                const struct action *ac;
                cr_assert_eq(codec_encode(RESOURCE_ATTEMPT, j->attempts[i], out), 0);
                DL_FOREACH (j->attempts[i]->anomalies, an)
                    cr_assert_eq(codec_encode(RESOURCE_ANOMALY, an, out), 0);
                DL_FOREACH (j->attempts[i]->actions, ac)
                    cr_assert_eq(codec_encode(RESOURCE_ACTION, ac, out), 0);
                if (j->attempts[i]->advice)
                    cr_assert_eq(codec_encode(RESOURCE_ADVICE, j->attempts[i]->advice, out), 0);
            }
        }
    }
}

Test(oom, every_event, .timeout = 120)
{
    unsigned failures = 0;

    for (int e = 0; e < STORY; e++) {
        ADV_AUTO_DONE(adv_buf) want;
        struct fleet *f = told(e + 1);
        adv_buf_init(&want, 1 << 20);
        dump(f, &want);
        (void) fleet_free(f);
        for (long n = 0;; n++) {
            bool oom;
            int r;
            f = told(e);
            arm(n);
            r = apply(f, e, &oom);
            disarm();
            if (failed && !oom && r == 0) {
                ADV_AUTO_DONE(adv_buf) got;
                adv_buf_init(&got, 1 << 20);
                dump(f, &got);
                cr_assert(got.len == want.len && memcmp(got.data, want.data, got.len) == 0,
                          "event %d, allocation %ld: a different result, and nobody says that memory ran out", e, n);
            }
            failures += failed;
            (void) fleet_free(f);
            if (!failed) {
                cr_assert_eq(r, 0);
                break;
            }
            cr_assert_lt(n, 5000);
        }
    }
    cr_assert_gt(failures, 200);
}

/* ---- codec and store -------------------------------------------------------------------------------------------- */

Test(oom, codec)
{
    struct advice *ad = calloc(1, sizeof(*ad));
    ADV_AUTO_DONE(adv_buf) whole;
    long n;

    sample_advice(ad, 1);
    adv_buf_init(&whole, 1 << 20);
    cr_assert_eq(codec_encode(RESOURCE_ADVICE, ad, &whole), 0);
    for (n = 0;; n++) {
        ADV_AUTO_DONE(adv_buf) b;
        int r;
        adv_buf_init(&b, 1 << 20);
        arm(n);
        r = codec_encode(RESOURCE_ADVICE, ad, &b);
        disarm();
        cr_assert_eq(r, failed ? -ADV_RESOURCE_EXHAUSTED : 0, "allocation %ld", n);
        if (!failed)
            break;
    }
    cr_assert_gt(n, ADVICE_MAX_REASONS);
    for (n = 0;; n++) {
        struct advice *back = calloc(1, sizeof(*back));
        int r;
        arm(n);
        r = codec_decode(RESOURCE_ADVICE, whole.data, whole.len, back);
        disarm();
        cr_assert_eq(r, failed ? -ADV_RESOURCE_EXHAUSTED : 0, "allocation %ld", n);
        advice_free(back);
        if (!failed)
            break;
    }
    advice_free(ad);
}

static char dir[64], path[96];
static uv_loop_t loop;

static void setup(void)
{
    (void) snprintf(dir, sizeof(dir), "/tmp/adv-oom-XXXXXX");
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

static bool called;
static int code;

static void on_done(void *arg, const struct adv_err *err)
{
    (void) arg;
    called = true;
    code = err ? -(int) err->code : 0;
}

static int load_into(struct store *st, struct fleet *f, struct watchlog *w)
{
    called = false;
    store_load(st, f, w, on_done, NULL);
    while (!called)
        (void) uv_run(&loop, UV_RUN_ONCE);
    return code;
}

static void on_commit(void *arg, uint64_t first_seq, const struct adv_err *err)
{
    (void) arg, (void) first_seq;
    called = true;
    code = err ? -(int) err->code : 0;
}

static void put_all(struct store_txn *t, struct fleet *f)
{
    struct audit_record r = { .cluster = f->clusters, .seq = 1 };
    struct request_record q = { (char[]) { "id" }, (char[]) { "hash" }, 1 };

    for (struct cluster *c = f->clusters; c; c = c->hh.next) {
        store_txn_put(t, RESOURCE_CLUSTER, c->name, c);
        for (struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            store_txn_put(t, RESOURCE_JOB, c->name, j);
            for (uint32_t i = 0; i < j->n_attempts; i++) {
                struct anomaly *an;
                struct action *ac;
                store_txn_put(t, RESOURCE_ATTEMPT, c->name, j->attempts[i]);
                DL_FOREACH (j->attempts[i]->anomalies, an)
                    store_txn_put(t, RESOURCE_ANOMALY, c->name, an);
                DL_FOREACH (j->attempts[i]->actions, ac)
                    store_txn_put(t, RESOURCE_ACTION, c->name, ac);
                if (j->attempts[i]->advice)
                    store_txn_put(t, RESOURCE_ADVICE, c->name, j->attempts[i]->advice);
            }
        }
    }
    store_txn_audit(t, 1, &r);
    store_txn_request(t, &q);
    store_txn_change(t, 1, RESOURCE_JOB, "a", "x");
}

/* A transaction that lost a row for want of memory is refused as a whole; loading says it, and works the next time. */
Test(oom, store, .init = setup, .fini = teardown, .timeout = 120)
{
    struct fleet *f = told(STORY), *g;
    struct store *st = NULL;
    struct adv_err err = { 0 };
    long n;

    cr_assert_eq(store_open(&loop, &(struct store_config) { .url = path, .replica = "test" }, &st, &err), 0, "%s", err.msg);
    for (n = 0;; n++) {
        struct watchlog w = { 0 };
        struct store_txn *t;
        bool lost;
        arm(n);
        t = store_txn_new(st);
        if (t)
            put_all(t, f);
        disarm();
        lost = failed;
        if (!t)
            continue;
        called = false;
        store_commit(st, t, on_commit, NULL);
        while (!called)
            (void) uv_run(&loop, UV_RUN_ONCE);
        cr_assert_eq(code, lost ? -ADV_RESOURCE_EXHAUSTED : 0, "allocation %ld: %d", n, code);
        g = new_fleet();
        cr_assert_eq(load_into(st, g, &w), 0);
        if (lost)
            cr_assert_null(g->clusters);
        else
            same_fleet(f, g, "in the end");
        watchlog_done(&w);
        (void) fleet_free(g);
        if (!lost)
            break;
        cr_assert_lt(n, 5000);
    }
    for (n = 0;; n++) {
        struct watchlog w = { 0 };
        int r;
        g = new_fleet();
        arm(n);
        r = load_into(st, g, &w);
        disarm();
        cr_assert_eq(r, failed ? -ADV_RESOURCE_EXHAUSTED : 0, "allocation %ld: %d", n, r);
        if (r == 0)
            same_fleet(f, g, "loaded");
        watchlog_done(&w);
        (void) fleet_free(g);
        if (!failed)
            break;
        cr_assert_lt(n, 20000);
        n += n > 200 ? 37 : 0; /* the rest is the ring of changes */
    }
    (void) fleet_free(f);
    (void) store_close(st);
}
