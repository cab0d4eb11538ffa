/* SPDX-License-Identifier: Apache-2.0 */
#include "common/utf8.h"

#include <criterion/criterion.h>

#define R "\xEF\xBF\xBD"

static const struct {
    const char *in;
    size_t len;
    bool valid;
    const char *lossy;
} t[] = {
    { "", 0, true, "" },
    { "abc", 3, true, "abc" },
    { "a\0b", 3, true, "a" R "b" },
    { "\xC3\xA9", 2, true, "\xC3\xA9" },
    { "\xE2\x82\xAC", 3, true, "\xE2\x82\xAC" },
    { "\xF0\x9F\x98\x80", 4, true, "\xF0\x9F\x98\x80" },
    { "\xF4\x8F\xBF\xBF", 4, true, "\xF4\x8F\xBF\xBF" },
    { "\xF4\x90\x80\x80", 4, false, R R R R }, /* above U+10FFFF */
    { "\xED\xA0\x80", 3, false, R R R },       /* surrogate */
    { "\xC0\xAF", 2, false, R R },             /* overlong */
    { "\xE0\x80\xAF", 3, false, R R R },       /* overlong */
    { "\xE2\x82", 2, false, R },               /* cut off */
    { "\xE2\x82"
      "a",
      3, false, R "a" },
    { "\xFF\xFE", 2, false, R R },
    { "x\x80y", 3, false, "x" R "y" },
};

Test(utf8, table)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        adv_auto_free char *s = adv_utf8_lossy(t[i].in, t[i].len);

        cr_assert_eq(adv_utf8_valid(t[i].in, t[i].len), t[i].valid, "row %zu", i);
        cr_assert_str_eq(s, t[i].lossy, "row %zu", i);
        cr_assert(adv_utf8_valid(s, strlen(s)));
    }
}

Test(utf8, buffer_cuts_between_characters)
{
    const char in[] = "a\xE2\x82\xAC\xF0\x9F\x98\x80\xFFz";

    for (size_t cap = 1; cap < 20; cap++) {
        char out[20];
        size_t n = adv_utf8_lossy_buf(out, cap, in, sizeof(in) - 1);

        cr_assert_lt(n, cap);
        cr_assert_eq(out[n], '\0');
        cr_assert(adv_utf8_valid(out, n));
    }
}

Test(utf8, cut)
{
    const char in[] = "a\xE2\x82\xAC\xF0\x9F\x98\x80";
    static const size_t want[] = { 0, 1, 1, 1, 4, 4, 4, 4, 8, 8 };

    for (size_t max = 0; max < ADV_ARRAY_LEN(want); max++)
        cr_assert_eq(adv_utf8_cut(in, 8, max), want[max], "max %zu", max);
}
