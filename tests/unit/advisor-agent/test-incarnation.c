/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "advisor-agent/internal.h"
#include "common/clock.h"

#define NOW_S (adv_wall_us() / 1000000)

static char dir[64];
static struct agent_config cfg = { .cluster = (char *) "c", .poll_ms = 1000 };
static struct agent a;

static void open_journal(void)
{
    a.journal = journal_free(a.journal);
    cr_assert_eq(journal_open(dir, true, NULL, &a.journal, NULL), 0);
}

static void setup(void)
{
    strcpy(dir, "/tmp/incarnation-XXXXXX");
    cr_assert(mkdtemp(dir));
    a = (struct agent) { .cfg = &cfg, .forget_after_s = 300 };
    open_journal();
}

static void teardown(void)
{
    char cmd[100];

    a.journal = journal_free(a.journal);
    (void) snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    cr_assert_eq(system(cmd), 0);
}

TestSuite(incarnation, .init = setup, .fini = teardown, .timeout = 60);

/* A read of job 7, begun @ago_s ago. */
static int64_t look_back(int64_t ago_s, uint32_t restarts, int64_t submit_s, enum adapter_job_state state, int64_t end_s)
{
    struct adapter_job job = { .id = "7", .uid = 500, .restart_count = restarts, .submit_s = submit_s, .state = state,
                               .end_s = end_s };

    a.look_boot_us = adv_boot_us() - ago_s * 1000000;
    a.look_wall_us = adv_wall_us() - ago_s * 1000000;
    return agent_first_submit(&a, &job);
}

static int64_t look(uint32_t restarts, int64_t submit_s, enum adapter_job_state state)
{
    return look_back(0, restarts, submit_s, state, 0);
}

Test(incarnation, is_followed_while_it_is_watched)
{
    int64_t t = NOW_S;

    cr_assert_eq(look(0, t - 900, ADAPTER_JOB_RUNNING), t - 900);
    cr_assert_eq(look(1, t - 500, ADAPTER_JOB_PENDING), t - 900);
    cr_assert_eq(look(0, t - 900, ADAPTER_JOB_RUNNING), t - 900, "a read that came late");
    cr_assert_eq(look(1, t - 500, ADAPTER_JOB_RUNNING), t - 900, "and changed nothing");
    cr_assert_eq(look(4, t - 100, ADAPTER_JOB_RUNNING), t - 900, "some attempts were not seen");
    cr_assert_eq(look(2, t - 300, ADAPTER_JOB_RUNNING), t - 900, "late again");
    open_journal();
    cr_assert_eq(look(4, t - 100, ADAPTER_JOB_RUNNING), t - 900, "the same attempt needs no watching");
    cr_assert_eq(look(4, t - 99, ADAPTER_JOB_RUNNING), 0, "another submit time with as many restarts");
    cr_assert_eq(look(4, t - 100, ADAPTER_JOB_RUNNING), 0, "a doubt stays");
    cr_assert_eq(look(0, t, ADAPTER_JOB_RUNNING), t, "until an attempt 0 tells");
}

/* As a requeue of a running job is seen: first the count is raised, then the submit time. */
Test(incarnation, the_count_rises_before_the_submit_time)
{
    int64_t t = NOW_S;

    cr_assert_eq(look(0, t - 900, ADAPTER_JOB_RUNNING), t - 900);
    cr_assert_eq(look(1, t - 900, ADAPTER_JOB_PENDING), t - 900);
    cr_assert_eq(look(1, t - 500, ADAPTER_JOB_PENDING), t - 900);
    cr_assert_eq(look(1, t - 500, ADAPTER_JOB_RUNNING), t - 900);
    cr_assert_eq(look(1, t - 400, ADAPTER_JOB_RUNNING), 0, "another submit time with as many restarts");
}

Test(incarnation, first_seen_later_is_unknown)
{
    cr_assert_eq(look(1, 1000, ADAPTER_JOB_RUNNING), 0);
    cr_assert_eq(look(2, 2000, ADAPTER_JOB_RUNNING), 0);
    cr_assert_eq(look(0, 0, ADAPTER_JOB_RUNNING), 0, "no submit time");
}

Test(incarnation, another_user_has_the_id)
{
    int64_t t = NOW_S;
    struct adapter_job other = { .id = "7", .uid = 501, .restart_count = 1, .submit_s = t, .state = ADAPTER_JOB_RUNNING };

    cr_assert_eq(look(0, t - 900, ADAPTER_JOB_RUNNING), t - 900);
    cr_assert_eq(agent_first_submit(&a, &other), 0);
}

/* The hole: away while the same user's next job got the id, first seen when it had been requeued. */
Test(incarnation, not_watched_is_unknown)
{
    int64_t t = NOW_S;

    cr_assert_eq(look_back(299, 0, t - 900, ADAPTER_JOB_RUNNING, 0), t - 900);
    cr_assert_eq(look(1, t - 100, ADAPTER_JOB_RUNNING), 0, "it may have ended right after that look");
}

Test(incarnation, end_of_the_old_tells_when_the_id_can_come_again)
{
    int64_t t = NOW_S;

    cr_assert_eq(look_back(5000, 0, t - 9000, ADAPTER_JOB_FAILED, t - 5000), t - 9000);
    open_journal(); /* no matter how long nobody looked */
    cr_assert_eq(look(1, t - 4701, ADAPTER_JOB_RUNNING), t - 9000, "requeued before it can have been forgotten");
    cr_assert_eq(look_back(5000, 0, t - 9000, ADAPTER_JOB_FAILED, t - 5000), t - 9000);
    cr_assert_eq(look_back(0, 1, t - 4701, ADAPTER_JOB_FAILED, t - 4000), t - 9000);
    cr_assert_eq(look(2, t - 3700, ADAPTER_JOB_RUNNING), 0, "the id was free at that moment");
}

Test(incarnation, after_a_restart_half_the_time_counts)
{
    int64_t t = NOW_S;

    cr_assert_eq(look_back(100, 0, t - 900, ADAPTER_JOB_RUNNING, 0), t - 900);
    open_journal();
    cr_assert_eq(look(1, t - 50, ADAPTER_JOB_RUNNING), t - 900);
    cr_assert_eq(look_back(0, 0, t - 10, ADAPTER_JOB_RUNNING, 0), t - 10);
    cr_assert_eq(look_back(200, 0, t - 10, ADAPTER_JOB_RUNNING, 0), t - 10);
    cr_assert_eq(journal_compact_now(a.journal, NULL), 0);
    open_journal();
    cr_assert_eq(look(1, t - 5, ADAPTER_JOB_RUNNING), 0);
}

/* What is completing or suspended may have an end that is long past, so such looks do not count. */
Test(incarnation, looks_at_what_may_have_ended_do_not_count)
{
    static const enum adapter_job_state states[] = { ADAPTER_JOB_SUSPENDED, ADAPTER_JOB_STOPPED, ADAPTER_JOB_UNKNOWN_STATE };
    int64_t t = NOW_S;

    for (size_t i = 0; i < ADV_ARRAY_LEN(states); i++) {
        cr_assert_eq(look_back(400, 0, t - 900 - (int64_t) i, ADAPTER_JOB_RUNNING, 0), t - 900 - (int64_t) i);
        cr_assert_eq(look_back(1, 0, t - 900 - (int64_t) i, states[i], 0), t - 900 - (int64_t) i);
        cr_assert_eq(look(1, t, ADAPTER_JOB_RUNNING), 0);
    }
}

Test(incarnation, what_we_interrupted_is_ours_for_ever)
{
    int64_t t = NOW_S;
    struct journal_intent in = { .epoch = { 1, 1 }, .advice = "a", .job = "7", .submit_s = t - 9000, .verb = "interrupt" };
    uint64_t seq;

    for (int i = 0; i < 2; i++) {
        cr_assert_eq(look_back(5000, 0, t - 9000, ADAPTER_JOB_RUNNING, 0), t - 9000);
        cr_assert_eq(journal_append_intent(a.journal, &in, (t - 4900) * 1000000, &seq, NULL), 0);
        open_journal();
        cr_assert_eq(look(1, i ? t - 4000 : t - 4899, ADAPTER_JOB_PENDING), i ? 0 : t - 9000);
        cr_assert_eq(look(0, t, ADAPTER_JOB_PENDING), t); /* from the beginning */
    }
}

/* MinJobAge 0, or not told: only what two looks cannot have missed. */
Test(incarnation, unknown_memory_of_the_scheduler)
{
    int64_t t = NOW_S;

    a.forget_after_s = 0;
    cr_assert_eq(look(0, t - 900, ADAPTER_JOB_RUNNING), t - 900);
    cr_assert_eq(look(0, t - 900, ADAPTER_JOB_FAILED), t - 900);
    cr_assert_eq(look(1, t, ADAPTER_JOB_PENDING), t - 900);
    cr_assert_eq(look_back(3, 1, t, ADAPTER_JOB_RUNNING, 0), t - 900);
    cr_assert_eq(look(2, t + 1, ADAPTER_JOB_RUNNING), 0);
}

/* What an older version wrote does not say which attempt it saw. */
Test(incarnation, old_records_vouch_for_nothing)
{
    struct journal_life old = { .first_submit_s = 1000, .uid = 500 };

    cr_assert_eq(journal_append_life(a.journal, "7", &old, NULL), 0);
    cr_assert_eq(look(1, 1001, ADAPTER_JOB_RUNNING), 0);
}
