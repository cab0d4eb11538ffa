/* SPDX-License-Identifier: Apache-2.0 */

/* What becomes of a job that is gone before its end was seen. */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "advisor-agent/internal.h"

#define S INT64_C(1000000)

static adapter_history_cb cb;
static void *cb_arg;
static struct adapter_attempt_id asked[ADAPTER_HISTORY_MAX];
static size_t n_asked;

static void fake_history(struct adapter *x, const struct adapter_attempt_id *ids, size_t n, adapter_history_cb fn, void *arg)
{
    cr_assert_null(cb, "asked while another question is open");
    cr_assert_leq(n, ADAPTER_HISTORY_MAX);
    memcpy(asked, ids, n * sizeof(*ids));
    n_asked = n;
    cb = fn;
    cb_arg = arg;
}

static const struct adapter_ops fake_ops = { .name = "fake", .history = fake_history };
static struct adapter fake = { &fake_ops };

static int64_t first_submit(void *ctx, const struct adapter_job *job)
{
    return 0;
}

static void setup(struct agent *a)
{
    struct adapter_observation o = { .complete = true };

    *a = (struct agent) { .adapter = &fake, .accounting = true, .snapshot = snapshot_new(first_submit, NULL) };
    cr_assert_eq(snapshot_observe(a->snapshot, &o, NULL), 0);
    cb = NULL;
}

static void vanish(struct agent *a, const char *id, advisor_v1_JobState state)
{
    advisor_v1_JobObservation o = { .state = state, .submit_unix = 1000, .restart_count = 2 };

    (void) snprintf(o.job_id, sizeof(o.job_id), "%s", id);
    past_vanished(a, &o);
}

static void answer(const struct adapter_end *ends, size_t n, const struct adv_err *err)
{
    adapter_history_cb fn = cb;

    cr_assert_not_null(fn);
    cb = NULL;
    fn(cb_arg, ends, n, err);
}

static size_t told(struct agent *a, advisor_v1_JobEnd *ret)
{
    advisor_v1_StateUpdate u;
    size_t n = 0;

    while (snapshot_take(a->snapshot, 32768, &u))
        for (pb_size_t i = 0; i < u.ended_count; i++, n++)
            *ret = u.ended[i];
    return n;
}

static void teardown(struct agent *a)
{
    past_free(a);
    a->snapshot = snapshot_free(a->snapshot);
}

Test(past, an_end_is_told_once)
{
    struct agent a;
    advisor_v1_JobEnd m;
    int64_t now = adv_mono_us();

    setup(&a);
    past_tick(&a, now);
    cr_expect_null(cb, "nothing to ask");
    vanish(&a, "7", advisor_v1_JobState_JOB_STATE_RUNNING);
    vanish(&a, "7", advisor_v1_JobState_JOB_STATE_RUNNING);
    vanish(&a, "8", advisor_v1_JobState_JOB_STATE_FAILED); /* its end was seen */
    past_tick(&a, now + S);
    cr_assert_eq(n_asked, 1);
    cr_expect_str_eq(asked[0].id, "7");
    cr_expect_eq(asked[0].submit_s, 1000);
    past_tick(&a, now + 2 * S); /* one question at a time */
    answer(&(struct adapter_end) { ADAPTER_PAST_ENDED, ADAPTER_JOB_CANCELLED, "CANCELLED by 1000", { true, 0, 15 }, 1001, 1002, "n1" },
           1, NULL);
    (void) told(&a, &m);
    cr_expect_str_eq(m.job_id, "7");
    cr_expect_eq(m.restart_count, 2);
    cr_expect_eq(m.submit_unix, 1000);
    cr_expect_eq(m.state, advisor_v1_JobState_JOB_STATE_CANCELLED);
    cr_expect_str_eq(m.state_raw, "CANCELLED by 1000");
    cr_expect_eq(m.end_unix, 1002);
    past_tick(&a, now + 1000 * S);
    cr_expect_null(cb);
    teardown(&a);
}

/* Accounting lags: it is asked again, further and further apart, and given up at last. */
Test(past, what_is_not_there_yet_is_asked_again_and_given_up)
{
    static const enum adapter_past says[] = { ADAPTER_PAST_UNKNOWN, ADAPTER_PAST_NONE };
    advisor_v1_JobEnd m;

    for (size_t k = 0; k < ADV_ARRAY_LEN(says); k++) {
        struct agent a;
        int64_t now = adv_mono_us();
        unsigned n = 0;

        setup(&a);
        vanish(&a, "7", advisor_v1_JobState_JOB_STATE_RUNNING);
        for (int s = 1; s < 3600; s++) {
            past_tick(&a, now + s * S);
            if (!cb)
                continue;
            n++;
            answer(&(struct adapter_end) { .found = says[k] }, 1, NULL);
        }
        cr_expect(n > 3 && n < 10, "asked %u times", n);
        cr_expect_eq(told(&a, &m), 0);
        teardown(&a);
    }
}

/* Accounting is away: nothing is given up, and it is not asked each second. */
Test(past, an_accounting_that_is_away_is_left_alone)
{
    struct agent a;
    advisor_v1_JobEnd m;
    struct adv_err err;
    int64_t now = adv_mono_us();
    unsigned n = 0;

    (void) adv_err_set(&err, ADV_UNAVAILABLE, "away");
    setup(&a);
    vanish(&a, "7", advisor_v1_JobState_JOB_STATE_RUNNING);
    past_tick(&a, now + S);
    for (int i = 0; i < 20; i++, n++) {
        answer(&(struct adapter_end) { .found = ADAPTER_PAST_UNKNOWN }, 1, &err);
        past_tick(&a, adv_mono_us() + S);
        cr_assert_null(cb, "asked again at once");
        past_tick(&a, adv_mono_us() + 301 * S);
    }
    answer(&(struct adapter_end) { ADAPTER_PAST_ENDED, ADAPTER_JOB_FAILED, "FAILED", { true, 1, 0 }, 1001, 1002, "" }, 1, NULL);
    (void) told(&a, &m);
    cr_expect_str_eq(m.job_id, "7");
    teardown(&a);
}

Test(past, many_at_once)
{
    struct agent a;
    char id[16];
    advisor_v1_JobEnd m;
    int64_t now = adv_mono_us();
    struct adapter_end ends[ADAPTER_HISTORY_MAX] = { { .found = ADAPTER_PAST_UNKNOWN } };
    size_t asked_in_all = 0;

    setup(&a);
    for (int i = 0; i < 5000; i++) {
        (void) snprintf(id, sizeof(id), "%d", i + 1);
        vanish(&a, id, advisor_v1_JobState_JOB_STATE_RUNNING);
    }
    for (size_t i = 0; i < ADAPTER_HISTORY_MAX; i++)
        ends[i] = (struct adapter_end) { ADAPTER_PAST_ENDED, ADAPTER_JOB_COMPLETED, "COMPLETED", { true, 0, 0 }, 1, 2, "" };
    /* while nothing can be sent no more is asked than can be kept */
    for (past_tick(&a, now + S); cb; past_tick(&a, now + S)) {
        asked_in_all += n_asked;
        answer(ends, n_asked, NULL);
    }
    cr_expect(asked_in_all > 200 && asked_in_all <= SNAPSHOT_ENDS_MAX, "%zu", asked_in_all);
    size_t n_told = told(&a, &m);
    for (past_tick(&a, now + S); cb; past_tick(&a, now + S)) {
        answer(ends, n_asked, NULL);
        n_told += told(&a, &m);
    }
    cr_expect_eq(n_told, 1024, "%zu", n_told);
    teardown(&a);
}

Test(past, without_accounting_nothing_is_asked)
{
    struct agent a;

    setup(&a);
    a.accounting = false;
    vanish(&a, "7", advisor_v1_JobState_JOB_STATE_RUNNING);
    past_tick(&a, adv_mono_us() + S);
    cr_expect_null(cb);
    teardown(&a);
}

/* What was answered or given up is not asked again by the next run; what an id means now is never overwritten. */
Test(past, the_journal_knows_what_was_asked)
{
    char dir[] = "/tmp/adv-past-XXXXXX", path[64];
    struct journal_life l = { .first_submit_s = 1000, .uid = 7, .restarts = 2, .submit_s = 1000 };
    struct agent a;
    advisor_v1_JobEnd m;
    int64_t now = adv_mono_us();

    cr_assert_not_null(mkdtemp(dir));
    setup(&a);
    cr_assert_eq(journal_open(dir, true, NULL, &a.journal, NULL), 0);
    for (int i = 7; i <= 9; i++) {
        char id[8];
        (void) snprintf(id, sizeof(id), "%d", i);
        cr_assert_eq(journal_append_life(a.journal, id, &l, NULL), 0);
        vanish(&a, id, advisor_v1_JobState_JOB_STATE_RUNNING);
        journal_forget_job(a.journal, id);
    }
    struct journal_life other = { .first_submit_s = 5000, .uid = 8, .submit_s = 5000 };
    cr_assert_eq(journal_append_life(a.journal, "9", &other, NULL), 0);
    struct adapter_end ended = { ADAPTER_PAST_ENDED, ADAPTER_JOB_FAILED, "FAILED", { true, 1, 0 }, 1001, 1060, "n1" };
    past_tick(&a, now + S);
    answer((struct adapter_end[]) { ended, { .found = ADAPTER_PAST_NONE }, ended }, 3, NULL);
    for (int s = 2; s < 600; s++) {
        past_tick(&a, now + s * S);
        if (cb)
            answer(&(struct adapter_end) { .found = ADAPTER_PAST_NONE }, 1, NULL);
    }
    cr_expect_eq(told(&a, &m), 2);
    a.journal = journal_free(a.journal);
    cr_assert_eq(journal_open(dir, true, NULL, &a.journal, NULL), 0);
    cr_expect_eq(journal_life(a.journal, "7")->ended_s, 1060);
    cr_expect_eq(journal_life(a.journal, "8")->ended_s, 1);
    cr_expect_eq(journal_life(a.journal, "9")->submit_s, 5000);
    for (int i = 7; i <= 8; i++) {
        char id[8];
        (void) snprintf(id, sizeof(id), "%d", i);
        past_unseen(&a, id, journal_life(a.journal, id));
    }
    past_tick(&a, now + 700 * S);
    cr_expect_null(cb);
    a.journal = journal_free(a.journal);
    teardown(&a);
    (void) snprintf(path, sizeof(path), "%s/journal", dir);
    (void) remove(path);
    (void) snprintf(path, sizeof(path), "%s/lock", dir);
    (void) remove(path);
    (void) remove(dir);
}

static void cancel(struct agent *a, unsigned id)
{
    struct adapter_job j = { .state = ADAPTER_JOB_CANCELLED, .submit_s = 1000, .end_s = agent_wall_us(a) / 1000000 };

    (void) snprintf(j.id, sizeof(j.id), "%u", id);
    past_cancelled(a, &j);
}

/* By whom jobs were cancelled is asked beside what became of the others, never in its place. */
Test(past, cancelled_jobs_give_way_to_vanished_ones)
{
    struct adapter_end ends[ADAPTER_HISTORY_MAX] = { 0 };
    struct agent a;
    int64_t now = adv_mono_us();
    size_t cancelled = 0, vanished = 0;
    char id[16];

    setup(&a);
    for (unsigned i = 0; i < 2000; i++)
        cancel(&a, 10000 + i);
    for (unsigned i = 0; i < 1024; i++) { /* as many as there is room for in all */
        (void) snprintf(id, sizeof(id), "%u", 50000 + i);
        vanish(&a, id, advisor_v1_JobState_JOB_STATE_RUNNING);
    }
    for (past_tick(&a, now + S); cb; past_tick(&a, now + S)) {
        for (size_t i = 0; i < n_asked; i++)
            *(asked[i].id[0] == '5' ? &vanished : &cancelled) += 1;
        answer(ends, n_asked, NULL);
    }
    cr_assert(vanished == 1024 && cancelled == 0, "%zu %zu", vanished, cancelled);
    teardown(&a);
    /* alone they have a quarter of it; each is asked for as often as the others */
    setup(&a);
    for (unsigned i = 0; i < 2000; i++)
        cancel(&a, 10000 + i);
    for (int s = 1; s < 600; s++)
        for (past_tick(&a, now + s * S); cb; past_tick(&a, now + s * S)) {
            cancelled += n_asked;
            answer(ends, n_asked, NULL);
        }
    cr_assert_eq(cancelled, 7 * 256);
    teardown(&a);
}

/* One that is asked about at this moment is answered: it stays in its place. */
Test(past, what_is_asked_does_not_give_way)
{
    struct adapter_end ends[ADAPTER_HISTORY_MAX] = { 0 };
    struct agent a;
    advisor_v1_JobEnd m;
    char id[16];

    setup(&a);
    cancel(&a, 7);
    past_tick(&a, adv_mono_us() + S);
    cr_assert_eq(n_asked, 1);
    cancel(&a, 8);
    for (unsigned i = 0; i < 1100; i++) {
        (void) snprintf(id, sizeof(id), "%u", 50000 + i);
        vanish(&a, id, advisor_v1_JobState_JOB_STATE_RUNNING);
    }
    ends[0] = (struct adapter_end) { ADAPTER_PAST_ENDED, ADAPTER_JOB_CANCELLED, "CANCELLED by 1000", { true, 0, 15 }, 1001, 1002, "n1" };
    answer(ends, 1, NULL);
    cr_assert_eq(told(&a, &m), 1);
    cr_assert_str_eq(m.job_id, "7");
    teardown(&a);
}
