/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "advisor-agent/steady.h"

#define S    INT64_C(1000000)
#define WALL (INT64_C(1700000000) * S)

Test(steady, follows_the_clock_and_its_small_steps)
{
    struct steady s = { 0 };

    cr_assert_eq(steady_wall_us(&s, WALL, 5 * S), WALL);
    cr_assert_eq(steady_wall_us(&s, WALL + 10 * S, 15 * S), WALL + 10 * S);
    for (int i = 0; i < 100; i++) /* slewed by a minute and more in all */
        cr_assert_eq(steady_wall_us(&s, WALL + (10 + 2 * i) * S, (15 + i) * S), WALL + (10 + 2 * i) * S);
    cr_assert(!steady_jumped(&s, WALL + 210 * S, 115 * S, NULL));
}

Test(steady, a_jump_changes_nothing_and_is_told_once)
{
    static const int64_t jumps[] = { 3600 * S, -3600 * S, 36000 * S, -36000 * S, 3 * S, -3 * S };

    for (size_t i = 0; i < sizeof(jumps) / sizeof(*jumps); i++) {
        struct steady s = { 0 };
        int64_t told = -1;

        (void) steady_wall_us(&s, WALL, 0);
        cr_assert_eq(steady_wall_us(&s, WALL + 1 * S + jumps[i], 1 * S), WALL + 1 * S);
        cr_assert(steady_jumped(&s, WALL + 2 * S + jumps[i], 2 * S, &told));
        cr_assert_eq(told, jumps[i]);
        cr_assert(!steady_jumped(&s, WALL + 3 * S + jumps[i], 3 * S, &told));
        cr_assert_eq(steady_wall_us(&s, WALL + 4 * S + jumps[i], 4 * S), WALL + 4 * S);
        cr_assert(steady_jumped(&s, WALL + 5 * S, 5 * S, &told)); /* it is mended */
        cr_assert_eq(told, 0);
        cr_assert_eq(steady_wall_us(&s, WALL + 6 * S, 6 * S), WALL + 6 * S);
        cr_assert(!steady_jumped(&s, WALL + 7 * S, 7 * S, &told));
    }
}
