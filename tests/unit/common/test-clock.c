/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"

#include <criterion/criterion.h>
#include <time.h>

static const struct {
    const char *text;
    int64_t us;
    const char *back; /* NULL: as text */
} good[] = {
    { "1970-01-01T00:00:00.000000Z", 0, NULL },
    { "2026-01-02T03:04:05.123456Z", INT64_C(1767323045123456), NULL },
    { "2026-01-02t03:04:05.1234567z", INT64_C(1767323045123456), "2026-01-02T03:04:05.123456Z" },
    { "2026-01-02 03:04:05Z", INT64_C(1767323045000000), "2026-01-02T03:04:05.000000Z" },
    { "2026-01-02T05:34:05+02:30", INT64_C(1767323045000000), "2026-01-02T03:04:05.000000Z" },
    { "2026-01-01T19:04:05-08:00", INT64_C(1767323045000000), "2026-01-02T03:04:05.000000Z" },
    { "2024-02-29T23:59:60Z", INT64_C(1709251199999999), "2024-02-29T23:59:59.999999Z" },
    { "0001-01-01T00:00:00.000000Z", INT64_C(-62135596800000000), NULL },
    { "9999-12-31T23:59:59.999999Z", INT64_C(253402300799999999), NULL },
    { "1969-12-31T23:59:59.999999Z", -1, NULL },
};

Test(clock, rfc3339_good)
{
    char out[ADV_RFC3339_SIZE];

    for (size_t i = 0; i < ADV_ARRAY_LEN(good); i++) {
        int64_t us = 42;

        cr_assert_eq(adv_rfc3339_parse(good[i].text, &us, NULL), 0, "%s", good[i].text);
        cr_assert_eq(us, good[i].us, "%s: %ld", good[i].text, (long) us);
        cr_assert_str_eq(adv_rfc3339_format(us, out), good[i].back ? good[i].back : good[i].text);
    }
}

Test(clock, rfc3339_bad)
{
    static const char *const bad[] = {
        "",
        "2026",
        "2026-01-02",
        "2026-13-02T03:04:05Z",
        "2026-02-29T00:00:00Z",
        "2026-01-02T24:00:00Z",
        "2026-01-02T03:04:05",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05Zx",
        "2026-01-02T03:04:05+24:00",
        "2026-1-02T03:04:05Z",
        "0000-01-01T00:00:00Z",
        "2026-01-02T03:04:61Z",
        " 2026-01-02T03:04:05Z",
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++) {
        struct adv_err e;
        int64_t us = 42;

        cr_assert_eq(adv_rfc3339_parse(bad[i], &us, &e), -ADV_INVALID_ARGUMENT, "%s", bad[i]);
        cr_assert_eq(us, 42);
    }
}

Test(clock, agrees_with_the_c_library)
{
    for (int64_t s = -3000000000; s < 5000000000; s += 86399 * 37) {
        char out[ADV_RFC3339_SIZE], want[64];
        time_t t = (time_t) s;
        struct tm tm;

        cr_assert_not_null(gmtime_r(&t, &tm));
        (void) strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S.000000Z", &tm);
        cr_assert_str_eq(adv_rfc3339_format(s * 1000000, out), want);
    }
}

Test(clock, a_wall_clock_that_was_set)
{
    const int64_t hour = INT64_C(3600000000), year = 365 * 24 * hour;
    int64_t distance = 50 * year;

    cr_assert(adv_wall_held(&distance, 50 * year + hour, hour));
    cr_assert(adv_wall_held(&distance, 50 * year + 30 * hour, 29 * hour), "it runs a little fast");
    cr_assert_not(adv_wall_held(&distance, 51 * year, 30 * hour), "ahead");
    cr_assert(adv_wall_held(&distance, 51 * year + hour, 31 * hour), "believed once it has held");
    cr_assert_not(adv_wall_held(&distance, hour, 32 * hour), "1970");
}

Test(clock, extremes_and_order)
{
    char out[ADV_RFC3339_SIZE];

    cr_assert_str_eq(adv_rfc3339_format(INT64_MAX, out), "9999-12-31T23:59:59.999999Z");
    cr_assert_str_eq(adv_rfc3339_format(INT64_MIN, out), "0001-01-01T00:00:00.000000Z");
    int64_t a = adv_mono_us(), b = adv_boot_us(), c = adv_wall_us();
    cr_assert_leq(a, adv_mono_us());
    cr_assert_leq(b, adv_boot_us());
    cr_assert_gt(c, INT64_C(1600000000000000));
}
