/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "controlplane/domain/rhythm.h"

#define S     1000000LL
#define FLOOR (900 * S)
#define WALL  (1700000000LL * S)

static struct rhythm r;
static int64_t now, wall;

static void begin(void)
{
    rhythm_init(&r, WALL);
    now = 5000 * S;
    wall = WALL + 60 * S;
}

static void pass(double s)
{
    now += (int64_t) (s * 1e6);
    wall += (int64_t) (s * 1e6);
}

static void sign(enum rhythm_sign_kind kind, uint32_t series, int64_t count, int64_t total)
{
    rhythm_sign(&r, &(struct rhythm_sign) { kind, series, count, total, now, wall });
}

static int64_t steps(int64_t from, int n, double every)
{
    for (int i = 0; i < n; i++) {
        pass(every);
        sign(RHYTHM_STEP, 1, from + i, -1);
    }
    return from + n;
}

static bool slow(void)
{
    struct rhythm_pace p;

    rhythm_pace(&r, &p);
    return p.slow;
}

Test(rhythm, nothing_is_known_before_it_was_seen)
{
    begin();
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), 0);
    cr_assert_eq(rhythm_usual_us(&r), 0);
    (void) steps(1, 4, 10);
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), 0, "the first gaps belong to the start");
    cr_assert_eq(rhythm_phase(&r), RHYTHM_PHASE_START);
    (void) steps(5, 4, 10);
    cr_assert_eq(rhythm_usual_us(&r), 10 * S);
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), 2 * FLOOR, "no pause was seen yet: the first may be long");
    cr_assert_eq(rhythm_phase(&r), RHYTHM_PHASE_WORK);
}

Test(rhythm, the_bound_comes_from_its_own_gaps_and_pauses)
{
    int64_t n;

    begin();
    n = steps(1, 20, 1800); /* a line each half hour */
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), 8 * 1800 * S);
    begin();
    n = steps(1, 30, 10);
    for (int i = 0; i < 3; i++) {
        pass(i == 1 ? 700 : 600); /* a checkpoint, and an evaluation */
        sign(RHYTHM_CHECKPOINT, 0, n, -1);
        n = steps(n, 10, 10);
        n = steps(n, 1, 120);
        n = steps(n, 10, 10);
    }
    cr_assert(rhythm_knows_pauses(&r));
    cr_assert_eq(rhythm_usual_us(&r), 10 * S, "pauses are no part of the rhythm");
    cr_assert_eq(rhythm_longest_us(&r), 700 * S);
    /* twice the longest, a third of it since only three were seen, and a pause of the other kind */
    cr_assert_eq(rhythm_bound_us(&r, 60 * S), (2 * 700 + 120) * S + 700 * S / 3);
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), rhythm_bound_us(&r, 60 * S));
    cr_assert_eq(rhythm_bound_us(&r, 2 * FLOOR), 2 * FLOOR);
    cr_assert_eq(rhythm_sure_us(&r, FLOOR), FLOOR);
}

/* A launcher that restarts inside the job is silent as long as it was at the start, and says so only afterwards; nobody can
 * tell it from a hang before. What took more than an hour was no start alone. */
Test(rhythm, a_start_like_its_own_is_a_reason_for_silence)
{
    begin();
    wall += 1140 * S;
    (void) steps(1, 60, 10);
    cr_assert_eq(rhythm_bound_us(&r, 60 * S), 1210 * S * 3 / 2);
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), 1210 * S * 3 / 2 > 2 * FLOOR ? 1210 * S * 3 / 2 : 2 * FLOOR);
    cr_assert_eq(rhythm_sure_us(&r, FLOOR), 2 * FLOOR, "its pauses are not known");
    begin();
    wall += 40000 * S;
    (void) steps(1, 60, 10);
    cr_assert_eq(rhythm_bound_us(&r, 60 * S), 3600 * S * 3 / 2);
}

/* An evaluation with lines of its own came before any two lines of the training, which come each 38 minutes. */
Test(rhythm, first_signs_that_are_close_are_not_taken_for_all)
{
    begin();
    wall += 2700 * S;
    for (int i = 1; i <= 10; i++) {
        pass(50);
        sign(RHYTHM_STEP, 3, i, 11);
    }
    pass(2300);
    cr_assert_gt(rhythm_bound_us(&r, FLOOR), 2300 * S);
}

Test(rhythm, long_gaps_that_go_on_are_a_new_rhythm)
{
    begin();
    (void) steps(1, 30, 10);
    (void) steps(31, 70, 100);
    cr_assert_eq(rhythm_usual_us(&r), 100 * S);
}

Test(rhythm, a_flush_is_one_sign)
{
    begin();
    for (int i = 0, n = 1; i < 20; i++) {
        pass(300);
        for (int k = 0; k < 50; k++)
            sign(RHYTHM_STEP, 1, n++, -1);
    }
    cr_assert_eq(rhythm_usual_us(&r), 300 * S);
}

/* A buffer of 50 lines, which a checkpoint flushes, too: what a flush shows took the time before it, however few lines it has. */
Test(rhythm, a_flush_of_few_lines_is_no_slow_machine)
{
    int64_t n = 1;

    begin();
    for (int i = 0; i < 60; i++) {
        bool whole = i < 30 || i % 2; /* later it saves more often */
        pass(whole ? 50 * 20 : 5 * 20);
        for (int k = 0; k < (whole ? 50 : 5); k++)
            sign(RHYTHM_STEP, 1, n++, -1);
        if (!whole)
            sign(RHYTHM_CHECKPOINT, 0, n, -1);
        cr_assert_not(slow(), "flush %d", i);
    }
    for (int i = 0; i < 12 && !slow(); i++) { /* and one that is */
        pass(50 * 40);
        for (int k = 0; k < 50; k++)
            sign(RHYTHM_STEP, 1, n++, -1);
    }
    cr_assert(slow());
}

/* Four blocks that agree by chance, where single steps differ by a third, do not say that a block of 1.27 times is slow. */
Test(rhythm, a_few_blocks_that_agree_say_little)
{
    static const double swing[8] = { 0.62, 0.75, 0.9, 1, 1, 1.15, 1.3, 1.42 };
    int64_t n = 1;

    begin();
    for (int block = 0; block < 9; block++)
        for (int i = 0; i < 8; i++) {
            pass(50 * swing[i] * (block > 4 ? 1.27 : 1));
            sign(RHYTHM_STEP, 1, n++, -1);
            cr_assert_not(slow(), "block %d", block);
        }
}

Test(rhythm, what_nobody_heard_is_no_gap)
{
    int64_t n;

    begin();
    n = steps(1, 30, 10);
    rhythm_break(&r);
    pass(90000);
    n = steps(n, 10, 10);
    cr_assert_eq(rhythm_longest_us(&r), 0);
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), 2 * FLOOR);
}

Test(rhythm, an_end_has_no_rhythm)
{
    begin();
    for (int i = 1; i <= 50; i++) {
        pass(10);
        sign(RHYTHM_STEP, 1, i, 50);
    }
    cr_assert_eq(rhythm_phase(&r), RHYTHM_PHASE_ENDING);
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), 8 * FLOOR, "what follows may take long");
    sign(RHYTHM_FINISHED, 0, -1, -1);
    cr_assert_eq(rhythm_bound_us(&r, FLOOR), 0);
    pass(10);
    sign(RHYTHM_STEP, 2, 1, 50); /* another stage */
    cr_assert_eq(rhythm_phase(&r), RHYTHM_PHASE_WORK);
}

Test(rhythm, a_restart_inside_is_a_start)
{
    begin();
    pass(1200); /* it needed twenty minutes to start */
    (void) steps(1, 30, 10);
    sign(RHYTHM_RESUMED, 0, 20, -1);
    cr_assert_eq(rhythm_phase(&r), RHYTHM_PHASE_START);
    cr_assert_geq(rhythm_bound_us(&r, FLOOR), 2 * 1200 * S);
    (void) steps(20, 10, 10);
    cr_assert_eq(rhythm_phase(&r), RHYTHM_PHASE_WORK);
}

Test(rhythm, a_slow_node_is_seen_and_its_end_too)
{
    struct rhythm_pace p;
    int64_t n;

    begin();
    n = steps(1, 300, 10);
    cr_assert_not(slow());
    n = steps(n, 90, 13);
    rhythm_pace(&r, &p);
    cr_assert(p.slow);
    cr_assert_float_eq(p.usual_us, 10e6, 1e5);
    cr_assert_float_eq(p.now_us, 13e6, 1e5);
    cr_assert_lt(p.since_us, wall);
    cr_assert_gt(p.since_us, wall - 90 * 13 * S - 300 * S);
    n = steps(n, 90, 10);
    cr_assert_not(slow());
}

Test(rhythm, drift_is_no_slow_node)
{
    begin();
    for (int i = 0; i < 4000; i++) { /* three times slower in the end */
        pass(5 * (1 + 2.0 * i / 4000));
        sign(RHYTHM_STEP, 1, i, -1);
        cr_assert_not(slow(), "step %d", i);
    }
}

Test(rhythm, a_slow_start_is_none_and_pauses_are_none)
{
    int64_t n;

    begin();
    n = steps(1, 60, 30); /* the first epoch fills the caches */
    n = steps(n, 200, 10);
    for (int i = 0; i < 20; i++) {
        n = steps(n, 10, 10);
        n = steps(n, 1, 200);
        cr_assert_not(slow());
    }
}

Test(rhythm, a_clock_that_is_set_is_none)
{
    int64_t n;

    begin();
    n = steps(1, 200, 10);
    for (int i = 0; i < 40; i++) {
        wall += i % 2 ? 3600 * S : -3600 * S;
        n = steps(n, 7, 10);
        cr_assert_not(slow());
        cr_assert_eq(rhythm_usual_us(&r), 10 * S);
    }
}

Test(rhythm, other_counters_and_other_ranks_do_not_disturb)
{
    begin();
    for (int i = 1; i < 900; i++) {
        pass(i < 500 ? 10 : 14);
        sign(RHYTHM_ITEM, 7, i * 37 % 1000, 1000);
        sign(RHYTHM_STEP, 1, i, -1);
        sign(RHYTHM_STEP, 1, i - 1, -1);
        sign(RHYTHM_STEP, 1, i, -1);
        if (i < 500)
            cr_assert_not(slow());
    }
    cr_assert(slow());
}

Test(rhythm, another_start_forgets_the_pace)
{
    begin();
    (void) steps(1, 300, 10);
    sign(RHYTHM_RESUMED, 0, 200, -1);
    (void) steps(200, 300, 20); /* on half the nodes */
    cr_assert_not(slow());
    (void) steps(10, 300, 40); /* steps fell back without a word */
    cr_assert_not(slow());
}

Test(rhythm, items_are_slow_only_when_far_slower)
{
    int64_t n = 0;

    begin();
    for (int i = 0; i < 100; i++) {
        pass(30);
        sign(RHYTHM_ITEM, 3, n += 3000, -1);
    }
    for (int i = 0; i < 60; i++) {
        pass(30);
        sign(RHYTHM_ITEM, 3, n += 1500, -1);
        cr_assert_not(slow());
    }
    for (int i = 0; i < 30; i++) {
        pass(60);
        sign(RHYTHM_ITEM, 3, n += 10, -1);
    }
    cr_assert(slow());
}

Test(rhythm, a_restart_pays_only_when_all_is_known)
{
    struct rhythm_gain g = { .left = 10000, .since_checkpoint = 100, .start_us = 300 * S, .queue_us = 600 * S,
                             .usual_us = 10e6, .now_us = 13e6 };

    cr_assert(rhythm_restart_pays(&g)); /* 30,000 s against 1,900 s */
    g.left = 600;
    cr_assert_not(rhythm_restart_pays(&g)); /* 1,800 s */
    g.left = 10000;
    g.queue_us = -1;
    cr_assert_not(rhythm_restart_pays(&g), "nobody knows the queue");
    g.queue_us = 40000 * S;
    cr_assert_not(rhythm_restart_pays(&g));
    g.queue_us = 0;
    g.now_us = 9e6;
    cr_assert_not(rhythm_restart_pays(&g));
}
