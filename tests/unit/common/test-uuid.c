/* SPDX-License-Identifier: Apache-2.0 */
#include "common/uuid.h"

#include <criterion/criterion.h>

Test(uuid, ordered_and_valid)
{
    char last[ADV_UUID_SIZE] = "", u[ADV_UUID_SIZE];

    for (int64_t us = INT64_C(1767323045000000); us < INT64_C(1767323045000000) + 3000; us++) {
        cr_assert_eq(adv_uuid_v7(us, u, NULL), 0);
        cr_assert(adv_uuid_valid(u), "%s", u);
        cr_assert_eq(u[14], '7');
        cr_assert(strchr("89ab", u[19]));
        cr_assert_gt(strncmp(u, last, 18), 0, "%s after %s", u, last);
        memcpy(last, u, sizeof(u));
    }
    cr_assert(adv_startswith(u, "019b7ca9-8c8a-")); /* 1767323045002 ms */
}

Test(uuid, validation)
{
    cr_assert(!adv_uuid_valid(NULL));
    cr_assert(!adv_uuid_valid(""));
    cr_assert(adv_uuid_valid("019b7ba1-1111-7abc-8def-0123456789ab"));
    cr_assert(!adv_uuid_valid("019b7ba1-1111-7abc-8def-0123456789a"));
    cr_assert(!adv_uuid_valid("019b7ba1-1111-7abc-8def-0123456789abc"));
    cr_assert(!adv_uuid_valid("019B7BA1-1111-7abc-8def-0123456789ab"));
    cr_assert(!adv_uuid_valid("019b7ba1x1111-7abc-8def-0123456789ab"));
}
