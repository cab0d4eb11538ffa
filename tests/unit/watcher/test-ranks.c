/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "controlplane/watcher/ranks.h"

static struct ranks rk;
static char text[128];

static void level(int from, int to, int n)
{
    for (int s = from; s <= to; s++)
        for (int i = 0; i < n; i++)
            ranks_step(&rk, i, s);
}

Test(ranks, who_stays_behind_is_told)
{
    level(1, 20, 6);
    cr_assert_not(ranks_behind(&rk, text, sizeof(text)), "a pause finds all of them at one step");
    for (int i = 0; i < 6; i++)
        if (i != 3 && i != 5)
            ranks_step(&rk, i, 21);
    cr_assert(ranks_behind(&rk, text, sizeof(text)));
    cr_assert_str_eq(text, "3,5");
}

Test(ranks, habits_are_no_sign)
{
    for (int s = 1; s <= 60; s++) { /* rank 1 prints each tenth step */
        ranks_step(&rk, 0, s);
        if (s % 10 == 0)
            ranks_step(&rk, 1, s);
    }
    for (int s = 61; s <= 200; s++) {
        ranks_step(&rk, 0, s);
        if (s % 10 == 0)
            ranks_step(&rk, 1, s);
    }
    for (int s = 201; s <= 209; s++) {
        ranks_step(&rk, 0, s);
        cr_assert_not(ranks_behind(&rk, text, sizeof(text)));
    }
    ranks_step(&rk, 0, 210);
    cr_assert(ranks_behind(&rk, text, sizeof(text)));
}

Test(ranks, who_came_back_may_be_as_far_behind_again)
{
    level(1, 20, 3);
    ranks_step(&rk, 1, 21);
    ranks_step(&rk, 2, 21);
    cr_assert(ranks_behind(&rk, text, sizeof(text))); /* rank 0 saves before it prints */
    cr_assert_str_eq(text, "0");
    ranks_step(&rk, 0, 21);
    level(22, 40, 3);
    ranks_step(&rk, 1, 41);
    ranks_step(&rk, 2, 41);
    cr_assert_not(ranks_behind(&rk, text, sizeof(text)));
}

Test(ranks, nobody_is_behind_without_names_or_after_a_restart)
{
    for (int s = 1; s < 30; s++)
        ranks_step(&rk, -1, s);
    cr_assert_not(ranks_behind(&rk, text, sizeof(text)));
    level(1000, 1020, 4);
    ranks_step(&rk, 2, 500); /* from a checkpoint */
    cr_assert_not(ranks_behind(&rk, text, sizeof(text)));
    cr_assert_str_eq(text, "");
}

Test(ranks, many_ranks_stay_within_bounds)
{
    char small[8];

    level(1, 20, 512);
    cr_assert_eq(rk.n, RANKS_MAX);
    ranks_step(&rk, 0, 21);
    cr_assert(ranks_behind(&rk, small, sizeof(small)));
    cr_assert_str_eq(small, "1,2,3,4");
}
