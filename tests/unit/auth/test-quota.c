/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/quota.h"

#include <criterion/criterion.h>
#include <stdio.h>

static int begin(struct quota *q, const char *who, int64_t now_us, struct quota_entry **e, struct adv_err *err)
{
    *e = NULL;
    return quota_begin(q, who, now_us, e, err);
}

Test(quota, in_flight)
{
    const struct quota_config cfg = { .in_flight = 2 };
    ADV_AUTO(quota) q = quota_new(&cfg);
    struct quota_entry *a, *b, *c, *d;
    struct adv_err err = { 0 };

    cr_assert_eq(begin(q, "x", 1, &a, NULL), 0);
    cr_assert_eq(begin(q, "x", 1, &b, NULL), 0);
    cr_assert_eq(begin(q, "x", 1, &c, &err), -ADV_RESOURCE_EXHAUSTED);
    cr_assert_str_eq(err.reason, "TOO_MANY_CALLS");
    cr_assert_gt(err.retry_after_ms, 0);
    cr_assert_null(c);
    cr_assert_eq(begin(q, "y", 1, &d, NULL), 0, "others are not touched");
    quota_end(q, a);
    cr_assert_eq(begin(q, "x", 1, &c, NULL), 0);
    quota_end(q, b);
    quota_end(q, c);
    quota_end(q, d);
    quota_end(q, NULL);
}

Test(quota, rate)
{
    const struct quota_config cfg = { .per_second = 10, .burst = 20 };
    ADV_AUTO(quota) q = quota_new(&cfg);
    struct quota_entry *e;
    struct adv_err err = { 0 };
    int64_t now = 1000000;
    unsigned n = 0;

    for (; begin(q, "x", now, &e, &err) == 0; n++)
        quota_end(q, e);
    cr_assert_eq(n, 20, "%u", n);
    cr_assert_str_eq(err.reason, "RATE_LIMITED");
    cr_assert(err.retry_after_ms > 0 && err.retry_after_ms <= 101, "%d", err.retry_after_ms);
    int wait = 0;
    cr_assert(quota_spent(q, "x", now, &wait) && wait == err.retry_after_ms);
    cr_assert(!quota_spent(q, "y", now, &wait));
    now += err.retry_after_ms * 1000; /* the hint is enough */
    cr_assert_eq(begin(q, "x", now, &e, NULL), 0);
    quota_end(q, e);
    cr_assert_lt(begin(q, "x", now, &e, NULL), 0);
    now += 1000000; /* a second is ten calls */
    for (n = 0; begin(q, "x", now, &e, NULL) == 0; n++)
        quota_end(q, e);
    cr_assert_eq(n, 10, "%u", n);
    now += INT64_C(400) * 86400 * 1000000; /* a long absence is one burst, not more */
    for (n = 0; begin(q, "x", now, &e, NULL) == 0; n++)
        quota_end(q, e);
    cr_assert_eq(n, 20, "%u", n);
}

Test(quota, slow_rates_and_clocks_that_stand)
{
    const struct quota_config cfg = { .per_second = 1 };
    ADV_AUTO(quota) q = quota_new(&cfg);
    struct quota_entry *e;
    int64_t now = 5;
    unsigned n = 0;

    for (int i = 0; i < 100000; i++, now += 100) { /* ten seconds in steps of 100 us */
        if (begin(q, "x", now, &e, NULL) < 0)
            continue;
        n++;
        quota_end(q, e);
    }
    cr_assert(n >= 10 && n <= 11, "%u", n);
    cr_assert_lt(begin(q, "x", now - 1000000, &e, NULL), 0, "a clock that goes back gives nothing");
}

Test(quota, no_limits)
{
    const struct quota_config cfg = { 0 };
    ADV_AUTO(quota) q = quota_new(&cfg);
    struct quota_entry *e[1000];

    for (size_t i = 0; i < ADV_ARRAY_LEN(e); i++)
        cr_assert_eq(begin(q, "x", 1, &e[i], NULL), 0);
    for (size_t i = 0; i < ADV_ARRAY_LEN(e); i++)
        quota_end(q, e[i]);
}

Test(quota, memory_is_bounded)
{
    const struct quota_config cfg = { .in_flight = 4, .per_second = 10, .burst = 10, .max_entries = 50 };
    ADV_AUTO(quota) q = quota_new(&cfg);
    struct quota_entry *known, *e, *held[100];
    size_t n_held = 0, refused = 0;
    char who[32];

    cr_assert_eq(begin(q, "known", 1, &known, NULL), 0);
    for (int i = 0; i < 100000; i++) { /* names that come once */
        (void) snprintf(who, sizeof(who), "n%d", i);
        cr_assert_eq(begin(q, who, 1 + i * INT64_C(100000), &e, NULL), 0, "%d", i);
        quota_end(q, e);
        cr_assert_leq(quota_count(q), 50);
    }
    for (int i = 0; i < 100; i++) { /* names that stay: those without a place share one */
        (void) snprintf(who, sizeof(who), "m%d", i);
        if (begin(q, who, INT64_C(20000000000), &held[n_held], NULL) == 0)
            n_held++;
        else
            refused++;
    }
    cr_assert_eq(n_held, 49 + 4, "%zu", n_held);
    cr_assert_eq(refused, 47, "%zu", refused);
    cr_assert_eq(begin(q, "known", INT64_C(20000000000), &e, NULL), 0, "who was there before is not locked out");
    quota_end(q, e);
    quota_end(q, known);
    while (n_held)
        quota_end(q, held[--n_held]);
}
