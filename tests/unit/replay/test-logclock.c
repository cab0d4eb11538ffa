/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/replay/logclock.h"

#include <criterion/criterion.h>
#include <string.h>

#define SECOND INT64_C(1000000)

static int64_t seconds(struct logclock *c, const char *line)
{
    return logclock_line(c, line, strlen(line)) / SECOND;
}

/* Two lines of one form and what passed between them. */
static const struct {
    const char *first, *second;
    int64_t passed_s;
} pairs[] = {
    { "[2024-05-01 03:56:11] still running", "[2024-05-01 04:56:13] still running", 3602 },
    { "2024-02-28T23:59:59.500 | INFO | a", "2024-03-01T00:00:00.500 | INFO | b", 86401 },
    { "2023-12-31 23:59:50,100 a", "2024-01-01 00:00:10,100 b", 20 },
    { "2024/01/31 10:00:00 a", "2024/01/31 10:00:07 b", 7 },
    { "[default7]:[2024-01-31 10:00:00,1] a", "[default3]:[2024-01-31 10:00:07,1] b", 7 },
    { "Jan 31 10:00:00 nodea kernel: a", "Feb  1 10:00:00 nodea kernel: b", 86400 },
    { "[Wed Jan 27 23:04:35 2021] NVRM: a", "[Thu Jan 28 00:04:35 2021] NVRM: b", 3600 },
    { "I1115 16:00:39.451247 1 a.py:5] a", "E1115 16:00:41.451247 1 a.py:5] b", 2 },
    { "[rank7]:[E626 05:14:36.39 a.cpp:1] a", "[rank2]:[E626 05:15:36.39 a.cpp:1] b", 60 },
    { "[ 1843.308145] a", "[ 1853.308145] b", 10 },
    { " 4%|# | 10/100 [00:50<07:30, 5.0s/it]", " 5%|# | 11/100 [01:00<07:30, 5.0s/it]", 10 },
    { "0it [59:59, ?it/s]", "7it [1:00:09,  1.4s/it]", 10 },
    { " iteration 7/ 100 | elapsed time per iteration (ms): 2500.0 | a", " iteration 9/ 100 | elapsed time per iteration (ms): 2500.0 | a", 5 },
    { "completed step: 4, seconds: 64.5, loss: 1", "completed step: 5, seconds: 64.5, loss: 1", 64 },
    /* what is no time, or of another run */
    { "2024-01-31 10:00:00 a", "2024-01-31 09:59:00 b", 0 },
    { "2024-01-31 10:00:00 a", "2024-01-20 09:59:00 b", 0 },
    { "2024-01-31 10:00:00 a", "2024-02-20 09:59:00 b", 0 },
    { "2024-13-41 10:00:00 a", "2024-13-41 10:00:30 a", 0 },
    { "step 10", "step 11", 0 },
    { "version 1.2.3-4 10:00:00", "version 1.2.3-4 10:00:05", 0 },
    { "", "", 0 },
};

Test(logclock, forms)
{
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        struct logclock c;
        logclock_init(&c, 1000 * SECOND);
        cr_expect_eq(seconds(&c, pairs[i].first), 1000, "row %zu", i);
        cr_expect_eq(seconds(&c, pairs[i].second), 1000 + pairs[i].passed_s, "row %zu: %lld", i, (long long) c.now_us / SECOND - 1000);
    }
}

/* Two writers whose clocks differ: time is not counted twice. */
Test(logclock, forms_together)
{
    struct logclock c;

    logclock_init(&c, 0);
    (void) seconds(&c, "2024-01-31 10:00:00 a");
    (void) seconds(&c, "I0131 23:00:00.0 1 b");
    (void) seconds(&c, "2024-01-31 10:00:30 a");
    cr_expect_eq(seconds(&c, "I0131 23:00:30.0 1 b"), 30);
}

/* A bar in a bar, and one that begins anew. */
Test(logclock, bars)
{
    struct logclock c;

    logclock_init(&c, 0);
    (void) seconds(&c, " 1/10 [1:10:00<9:00:00]");
    (void) seconds(&c, " 1/500 [00:05<10:00]");
    cr_expect_eq(seconds(&c, " 1/10 [1:10:00<9:00:00]"), 0);
    cr_expect_eq(seconds(&c, " 2/500 [00:10<10:00]"), 5);
    cr_expect_eq(seconds(&c, " 500/500 [10:05<00:00]"), 600);
    cr_expect_eq(seconds(&c, " 1/500 [00:05<10:00]"), 600);
    cr_expect_eq(seconds(&c, " 2/500 [00:15<10:00]"), 610);
}

/* Nobody knows how long it took what was left out. */
Test(logclock, left_out)
{
    struct logclock c;

    logclock_init(&c, 0);
    (void) seconds(&c, "2024-01-31 10:00:00 a");
    (void) seconds(&c, "[...]\n");
    cr_expect_eq(seconds(&c, "2024-01-31 14:00:00 a"), 0);
    cr_expect_eq(seconds(&c, "2024-01-31 14:00:04 a"), 4);
}

/* How long a step takes is known although the lines have stamps. */
Test(logclock, step_time)
{
    struct logclock c;

    logclock_init(&c, 0);
    (void) seconds(&c, "[2024-01-31 10:00:00] iteration 7/ 100 | elapsed time per iteration (s): 111.25 |");
    cr_expect_eq(c.step_us, 111250000);
    cr_expect_eq(seconds(&c, "[2024-01-31 10:00:10] iteration 8/ 100 | elapsed time per iteration (s): 111.25 |"), 10);
}
