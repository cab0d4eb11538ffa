/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hostlist.h"

#include <criterion/criterion.h>
#include <stdio.h>

static void expect_format(const struct adv_hostlist *hl, const char *want)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 100000);
    cr_assert_eq(adv_hostlist_format(hl, &b, NULL), 0);
    cr_assert_str_eq(b.data, want);
}

Test(hostlist, good)
{
    static const struct {
        const char *text;
        size_t n;
        const char *first, *last, *back;
    } t[] = {
        { "", 0, NULL, NULL, "" },
        { "x", 1, "x", "x", "x" },
        { "n[1-3,07-09],x,rack[1-2]n[1-4]", 15, "n1", "rack2n4",
          "n[1-3,07-09],rack1n[1-4],rack2n[1-4],x" },
        { "n3,n1,n2", 3, "n3", "n2", "n[1-3]" },
        { "n[008-011]", 4, "n008", "n011", "n[008-011]" },
        { "n[9-10]", 2, "n9", "n10", "n[9-10]" },
        { "n[1-3]-ib", 3, "n1-ib", "n3-ib", "n[1-3]-ib" },
        { "n1,n01,n001", 3, "n1", "n001", "n[1,01,001]" },
        { "n[1,1-2,2]", 2, "n1", "n2", "n[1-2]" },
        { "n[5]", 1, "n5", "n5", "n5" },
        { "a.b-c_d[1-2]", 2, "a.b-c_d1", "a.b-c_d2", "a.b-c_d[1-2]" },
        { "[1-3]", 3, "1", "3", "[1-3]" },
        { "n[99-101]", 3, "n99", "n101", "n[99-101]" },
        { "n,n1", 2, "n", "n1", "n,n1" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(1000);
        ADV_AUTO(adv_hostlist) again = adv_hostlist_new(1000);
        struct adv_err e = { 0 };

        cr_assert_eq(adv_hostlist_parse(hl, t[i].text, &e), 0, "%s: %s", t[i].text, e.msg);
        cr_assert_eq(adv_hostlist_count(hl), t[i].n, "%s", t[i].text);
        if (t[i].n) {
            cr_assert_str_eq(adv_hostlist_nth(hl, 0), t[i].first);
            cr_assert_str_eq(adv_hostlist_nth(hl, t[i].n - 1), t[i].last);
        }
        expect_format(hl, t[i].back);
        cr_assert_eq(adv_hostlist_parse(again, t[i].back, NULL), 0);
        cr_assert_eq(adv_hostlist_count(again), t[i].n);
        for (size_t k = 0; k < t[i].n; k++)
            cr_assert(adv_hostlist_contains(again, adv_hostlist_nth(hl, k)));
    }
}

Test(hostlist, bad)
{
    static const struct {
        const char *text;
        int r;
    } t[] = {
        { ",", -ADV_INVALID_ARGUMENT },
        { "a,", -ADV_INVALID_ARGUMENT },
        { "a,,b", -ADV_INVALID_ARGUMENT },
        { "n[", -ADV_INVALID_ARGUMENT },
        { "n[]", -ADV_INVALID_ARGUMENT },
        { "n[1", -ADV_INVALID_ARGUMENT },
        { "n]", -ADV_INVALID_ARGUMENT },
        { "n[3-1]", -ADV_INVALID_ARGUMENT },
        { "n[1-]", -ADV_INVALID_ARGUMENT },
        { "n[-1]", -ADV_INVALID_ARGUMENT },
        { "n[1,]", -ADV_INVALID_ARGUMENT },
        { "n[,1]", -ADV_INVALID_ARGUMENT },
        { "n[a-b]", -ADV_INVALID_ARGUMENT },
        { "n[1-2-3]", -ADV_INVALID_ARGUMENT },
        { "n 1", -ADV_INVALID_ARGUMENT },
        { "n;rm", -ADV_INVALID_ARGUMENT },
        { "n[[1]]", -ADV_INVALID_ARGUMENT },
        { "\xC3\xA9", -ADV_INVALID_ARGUMENT },
        { "n[1-999999999]", -ADV_RESOURCE_EXHAUSTED },
        { "n[0-999999999999999999]", -ADV_RESOURCE_EXHAUSTED },
        { "n[1234567890123456789]", -ADV_INVALID_ARGUMENT },
        { "a[1-99]b[1-99]c[1-99]d[1-99]", -ADV_RESOURCE_EXHAUSTED },
        { "a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]i[1]", -ADV_INVALID_ARGUMENT },
        { "y[1-60],z[1-41]", -ADV_RESOURCE_EXHAUSTED },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(100);
        struct adv_err e = { 0 };

        cr_assert_eq(adv_hostlist_add(hl, "keep", NULL), 0);
        cr_assert_eq(adv_hostlist_parse(hl, t[i].text, &e), t[i].r, "%s: %s", t[i].text, e.msg);
        cr_assert(e.msg[0]);
        cr_assert_eq(adv_hostlist_count(hl), 1, "nothing is added on an error: %s", t[i].text);
        cr_assert(adv_hostlist_contains(hl, "keep"));
    }
}

Test(hostlist, name_length)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(100);
    char name[ADV_HOST_NAME_MAX + 2];

    memset(name, 'a', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    cr_assert_eq(adv_hostlist_add(hl, name, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(adv_hostlist_parse(hl, name, NULL), -ADV_INVALID_ARGUMENT);
    name[ADV_HOST_NAME_MAX] = '\0';
    cr_assert_eq(adv_hostlist_add(hl, name, NULL), 0);
    cr_assert_eq(adv_hostlist_add(hl, "", NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(adv_hostlist_add(hl, "a[1]", NULL), -ADV_INVALID_ARGUMENT);
}

Test(hostlist, set_operations)
{
    ADV_AUTO(adv_hostlist) a = adv_hostlist_new(10);
    ADV_AUTO(adv_hostlist) b = adv_hostlist_new(10);

    cr_assert_eq(adv_hostlist_parse(a, "n[1-5]", NULL), 0);
    cr_assert_eq(adv_hostlist_parse(b, "n[4-8]", NULL), 0);
    cr_assert(adv_hostlist_remove(a, "n2"));
    cr_assert(!adv_hostlist_remove(a, "n2"));
    cr_assert(!adv_hostlist_contains(a, "n2"));
    cr_assert_str_eq(adv_hostlist_nth(a, 1), "n3");
    cr_assert_eq(adv_hostlist_union(a, b, NULL), 0);
    expect_format(a, "n[1,3-8]");
    adv_hostlist_minus(a, b);
    expect_format(a, "n[1,3]");
    cr_assert_eq(adv_hostlist_parse(b, "z[1-5]", NULL), 0);
    cr_assert_eq(adv_hostlist_union(a, b, NULL), -ADV_RESOURCE_EXHAUSTED);
    expect_format(a, "n[1,3]");
    adv_hostlist_minus(a, a);
    cr_assert_eq(adv_hostlist_count(a), 0);
}

Test(hostlist, big_and_shuffled)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(20000);
    uint32_t x = 1;

    for (int i = 0; i < 20000; i++) {
        char name[16];

        x = x * 1664525 + 1013904223;
        (void) snprintf(name, sizeof(name), "n%05u", (unsigned int) (x % 20000));
        cr_assert_eq(adv_hostlist_add(hl, name, NULL), 0);
    }
    cr_assert_eq(adv_hostlist_parse(hl, "n[00000-19999]", NULL), 0);
    cr_assert_eq(adv_hostlist_count(hl), 20000);
    expect_format(hl, "n[00000-19999]");
}
