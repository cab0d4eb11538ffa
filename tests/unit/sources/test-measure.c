/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <math.h>

#include "controlplane/sources/measure.h"

#define NOW 2000000000LL
#define N   37 /* five seconds apart: three minutes */

static struct source_sample samples[3][N];
static struct source_series series[3];
static struct source_answer answer;
static struct source_measure m;
static size_t most;
static char detail[MEASURE_DETAIL_MAX];

/* Two idle devices on n1 and n2, up to now. */
static void idle(void)
{
    m = (struct source_measure) { .is = MEASURE_DEVICE_IDLE, .below = 90, .window_ms = 180000, .max_age_ms = 20000,
                                  .node_label = (char *) (uintptr_t) "Hostname" };
    for (size_t s = 0; s < 3; s++) {
        for (size_t i = 0; i < N; i++)
            samples[s][i] = (struct source_sample) { NOW - (int64_t) (N - 1 - i) * 5000000, 60 + (double) s };
        series[s] = (struct source_series) { .samples = samples[s], .n = N };
    }
    (void) strcpy(series[0].host, "n1");
    (void) strcpy(series[1].host, "n2");
    (void) strcpy(series[2].host, "n2");
    answer = (struct source_answer) { .series = series, .n_series = 2 };
    most = 0;
}

static enum idleness judge(void)
{
    return measure_idle(&m, &answer, "n[1-2].example.org", NOW, &most, detail);
}

TestSuite(sources_measure, .init = idle);

Test(sources_measure, idle_is_every_device_for_the_whole_window)
{
    cr_assert_eq(judge(), IDLE_YES);
    cr_assert_str_eq(detail, "2 series for 180 s");
}

Test(sources_measure, one_that_works_is_enough)
{
    samples[1][5].value = 300;
    cr_assert_eq(judge(), IDLE_NO);
    series[0].n = 0; /* whatever else is missing */
    cr_assert_eq(judge(), IDLE_NO);
}

Test(sources_measure, a_gap_is_unknown)
{
    series[0].n = N - 5; /* its last samples are missing */
    cr_assert_eq(judge(), IDLE_UNKNOWN);
    cr_assert_str_eq(detail, "a gap in the samples of n1");
    idle();
    for (size_t i = 10; i < N; i++) /* a hole in the middle */
        samples[0][i - (i < 15)] = samples[0][i];
    series[0].samples = samples[0] + 10;
    series[0].n = N - 10;
    cr_assert_eq(judge(), IDLE_UNKNOWN); /* the window is not covered */
    idle();
    for (size_t i = 0; i < 10; i++)
        samples[0][i].ts_us -= 30000000;
    cr_assert_eq(judge(), IDLE_UNKNOWN);
}

Test(sources_measure, what_is_missing_is_unknown)
{
    answer.n_series = 0;
    cr_assert_eq(judge(), IDLE_UNKNOWN);
    idle();
    answer.n_series = 1; /* a host without one */
    cr_assert_eq(judge(), IDLE_UNKNOWN);
    cr_assert_str_eq(detail, "no series of n2");
    idle();
    answer.n_series = 3;
    cr_assert_eq(judge(), IDLE_YES);
    answer.n_series = 2; /* there were three */
    cr_assert_eq(judge(), IDLE_UNKNOWN);
    idle();
    answer.partial = true;
    cr_assert_eq(judge(), IDLE_UNKNOWN);
    idle();
    samples[0][3].value = NAN;
    cr_assert_eq(judge(), IDLE_UNKNOWN);
    idle();
    for (size_t i = 0; i < N; i++) /* of a clock that is ahead */
        samples[0][i].ts_us += 60000000;
    cr_assert_eq(judge(), IDLE_UNKNOWN);
}

Test(sources_measure, counters_stand_still_or_do_not)
{
    m.counter = true;
    m.below = 0;
    cr_assert_eq(judge(), IDLE_YES);
    samples[1][N - 1].value += 1;
    cr_assert_eq(judge(), IDLE_NO);
    m.below = 10; /* a second */
    cr_assert_eq(judge(), IDLE_YES);
    idle();
    m.counter = true;
    m.below = 0;
    for (size_t i = 20; i < N; i++) /* began anew */
        samples[0][i].value = 0;
    cr_assert_eq(judge(), IDLE_NO);
}

Test(sources_measure, a_counter_that_rises_by_fresh_samples_is_a_sign)
{
    struct measure_counter c = { 0 };
    bool stale;

    cr_assert_not(measure_rose(&m, &answer, NOW, &c, &stale)); /* only learns */
    cr_assert_not(stale);
    cr_assert_not(measure_rose(&m, &answer, NOW, &c, &stale)); /* the same samples again */
    samples[0][N - 1] = (struct source_sample) { NOW + 5000000, 70 };
    cr_assert(measure_rose(&m, &answer, NOW + 5000000, &c, &stale));
    samples[0][N - 1] = (struct source_sample) { NOW + 10000000, 70 };
    cr_assert_not(measure_rose(&m, &answer, NOW + 10000000, &c, &stale));
    samples[0][N - 1].value = 80;
    cr_assert_not(measure_rose(&m, &answer, NOW + 60000000, &c, &stale)); /* of a while ago */
    cr_assert(stale);
}
