/* SPDX-License-Identifier: Apache-2.0 */
#include "common/arena.h"

#include <criterion/criterion.h>

Test(arena, pieces_do_not_overlap)
{
    ADV_AUTO_DONE(adv_arena) a;
    char *p[500];

    adv_arena_init(&a, 10 << 20);
    for (size_t i = 0; i < 500; i++) {
        size_t n = i * 37 % 3000 + (i == 250 ? 200000 : 0);

        p[i] = adv_arena_alloc(&a, n);
        cr_assert_not_null(p[i]);
        cr_assert_eq((uintptr_t) p[i] % 16, 0);
        memset(p[i], (int) i, n);
    }
    for (size_t i = 0; i < 500; i++) {
        for (size_t k = 0; k < i * 37 % 3000; k++)
            cr_assert_eq((unsigned char) p[i][k], (unsigned char) i);
    }
    cr_assert(!adv_arena_exhausted(&a));
}

Test(arena, budget)
{
    ADV_AUTO_DONE(adv_arena) a;

    adv_arena_init(&a, 100);
    cr_assert_not_null(adv_arena_alloc(&a, 90));
    cr_assert_null(adv_arena_alloc(&a, 5));
    cr_assert(adv_arena_exhausted(&a));
    cr_assert_null(adv_arena_alloc(&a, SIZE_MAX));
    adv_arena_done(&a);
    cr_assert(!adv_arena_exhausted(&a));
    cr_assert_str_eq(adv_arena_strdup(&a, "x"), "x");
    cr_assert_eq(adv_arena_used(&a), 16);
}
