/* SPDX-License-Identifier: Apache-2.0 */
#include "common/num.h"

#include <criterion/criterion.h>

Test(num, i64)
{
    static const struct {
        const char *text;
        int64_t min, max;
        int r;
        int64_t v;
    } t[] = {
        { "0", 0, 1, 0, 0 },
        { "-5", -5, 5, 0, -5 },
        { "9223372036854775807", INT64_MIN, INT64_MAX, 0, INT64_MAX },
        { "-9223372036854775808", INT64_MIN, INT64_MAX, 0, INT64_MIN },
        { "9223372036854775808", INT64_MIN, INT64_MAX, -ADV_OUT_OF_RANGE, 0 },
        { "-9223372036854775809", INT64_MIN, INT64_MAX, -ADV_OUT_OF_RANGE, 0 },
        { "99999999999999999999999999", INT64_MIN, INT64_MAX, -ADV_OUT_OF_RANGE, 0 },
        { "6", 0, 5, -ADV_OUT_OF_RANGE, 0 },
        { "", 0, 5, -ADV_INVALID_ARGUMENT, 0 },
        { "-", 0, 5, -ADV_INVALID_ARGUMENT, 0 },
        { " 1", 0, 5, -ADV_INVALID_ARGUMENT, 0 },
        { "1 ", 0, 5, -ADV_INVALID_ARGUMENT, 0 },
        { "+1", 0, 5, -ADV_INVALID_ARGUMENT, 0 },
        { "0x1", 0, 5, -ADV_INVALID_ARGUMENT, 0 },
        { "1.0", 0, 5, -ADV_INVALID_ARGUMENT, 0 },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        int64_t v = 77;

        cr_assert_eq(adv_parse_i64(t[i].text, t[i].min, t[i].max, &v, NULL), t[i].r, "\"%s\"",
                     t[i].text);
        cr_assert_eq(v, t[i].r ? 77 : t[i].v);
    }
}

Test(num, u64)
{
    uint64_t v = 7;

    cr_assert_eq(adv_parse_u64("18446744073709551615", 0, UINT64_MAX, &v, NULL), 0);
    cr_assert_eq(v, UINT64_MAX);
    cr_assert_eq(adv_parse_u64("18446744073709551616", 0, UINT64_MAX, &v, NULL), -ADV_OUT_OF_RANGE);
    cr_assert_eq(adv_parse_u64("-1", 0, UINT64_MAX, &v, NULL), -ADV_INVALID_ARGUMENT);
}

Test(num, duration)
{
    static const struct {
        const char *text;
        int r;
        int64_t ms;
    } t[] = {
        { "1.5s", 0, 1500 },
        { "200ms", 0, 200 },
        { "5m", 0, 300000 },
        { "2h", 0, 7200000 },
        { "1d", 0, 86400000 },
        { "0s", 0, 0 },
        { "0.0015s", 0, 1 },
        { "0.1d", 0, 8640000 },
        { "1.123456789s", 0, 1123 },
        { "5", -ADV_INVALID_ARGUMENT, 0 },
        { "1.5ms", -ADV_INVALID_ARGUMENT, 0 },
        { "s", -ADV_INVALID_ARGUMENT, 0 },
        { "1.s", -ADV_INVALID_ARGUMENT, 0 },
        { "-1s", -ADV_INVALID_ARGUMENT, 0 },
        { "1 s", -ADV_INVALID_ARGUMENT, 0 },
        { "1S", -ADV_INVALID_ARGUMENT, 0 },
        { "9223372036854775807d", -ADV_OUT_OF_RANGE, 0 },
        { "101d", -ADV_OUT_OF_RANGE, 0 },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        int64_t v = 77;

        cr_assert_eq(adv_parse_duration_ms(t[i].text, 0, INT64_C(8640000000), &v, NULL), t[i].r,
                     "\"%s\"", t[i].text);
        cr_assert_eq(v, t[i].r ? 77 : t[i].ms, "\"%s\" %ld", t[i].text, (long) v);
    }
}

Test(num, size)
{
    static const struct {
        const char *text;
        int r;
        int64_t v;
    } t[] = {
        { "4096", 0, 4096 },
        { "64KiB", 0, 65536 },
        { "10MB", 0, 10000000 },
        { "1.5GiB", 0, INT64_C(1610612736) },
        { "0", 0, 0 },
        { "7B", 0, 7 },
        { "1.5", -ADV_INVALID_ARGUMENT, 0 },
        { "64kib", -ADV_INVALID_ARGUMENT, 0 },
        { "99999999TiB", -ADV_OUT_OF_RANGE, 0 },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        int64_t v = 77;

        cr_assert_eq(adv_parse_size(t[i].text, 0, INT64_MAX, &v, NULL), t[i].r, "\"%s\"",
                     t[i].text);
        cr_assert_eq(v, t[i].r ? 77 : t[i].v);
    }
}

Test(num, text_reads_back)
{
    static const int64_t t[] = {
        0, 1, 999, 1000, 1500, 60000, 61000, 3600000, 86400000, 123456789, INT64_C(1) << 40
    };
    char out[ADV_NUM_TEXT_SIZE];

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        int64_t v;

        cr_assert_eq(
            adv_parse_duration_ms(adv_format_duration_ms(t[i], out), 0, INT64_MAX, &v, NULL), 0);
        cr_assert_eq(v, t[i]);
        cr_assert_eq(adv_parse_size(adv_format_size(t[i], out), 0, INT64_MAX, &v, NULL), 0);
        cr_assert_eq(v, t[i]);
    }
    cr_assert_str_eq(adv_format_size(65536, out), "64KiB");
    cr_assert_str_eq(adv_format_duration_ms(90000, out), "90s");
}
