/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "advisor-agent/lease.h"

#define S 1000000ll

Test(lease, counts_from_when_it_was_asked_for)
{
    struct lease l = { 0 };

    cr_assert(!lease_may_write(&l, 0, 0, 0));
    lease_grant(&l, (struct journal_epoch) { 1, 1 }, 45000, 100 * S, 100 * S, false);
    cr_assert(lease_may_write(&l, 101 * S, 10000, 20000));
    cr_assert(lease_may_write(&l, 115 * S - 1, 10000, 20000));
    cr_assert(!lease_may_write(&l, 115 * S, 10000, 20000));
    cr_assert(lease_valid(&l, 145 * S - 1));
    cr_assert(!lease_valid(&l, 145 * S));
    cr_assert_eq(lease_kill_at_boot_us(&l, 20000), 125 * S);
    cr_assert(!lease_may_write(&l, 101 * S, -1, 20000));
}

Test(lease, late_answers_do_not_shorten_or_revive)
{
    struct lease l = { 0 };

    lease_grant(&l, (struct journal_epoch) { 1, 2 }, 45000, 100 * S, 100 * S, false);
    lease_grant(&l, (struct journal_epoch) { 1, 2 }, 45000, 90 * S, 90 * S, false);
    cr_assert_eq(l.end_boot_us, 145 * S);
    lease_grant(&l, (struct journal_epoch) { 1, 1 }, 45000, 200 * S, 200 * S, false);
    cr_assert_eq(l.end_boot_us, 145 * S);
    cr_assert_eq(l.epoch.counter, 2);
    lease_drop(&l);
    cr_assert(!lease_may_write(&l, 101 * S, 0, 0));
}

Test(lease, settling_waits_for_a_good_read_and_the_bound)
{
    struct lease l = { 0 };

    lease_good_read(&l, 90 * S, 20000); /* before the grant: worth nothing */
    lease_grant(&l, (struct journal_epoch) { 1, 1 }, 100000, 100 * S, 100 * S, true);
    cr_assert(!lease_may_write(&l, 150 * S, 1000, 20000));
    lease_good_read(&l, 99 * S, 20000); /* it may not show what came between */
    cr_assert(!lease_may_write(&l, 121 * S, 1000, 20000));
    lease_good_read(&l, 105 * S, 20000);
    lease_good_read(&l, 110 * S, 20000); /* does not begin anew */
    cr_assert(!lease_may_write(&l, 125 * S - 1, 1000, 20000));
    cr_assert(lease_may_write(&l, 125 * S, 1000, 20000));
    /* A new epoch begins anew. */
    lease_grant(&l, (struct journal_epoch) { 1, 2 }, 100000, 126 * S, 126 * S, true);
    cr_assert(!lease_may_write(&l, 127 * S, 1000, 20000));
}

Test(lease, an_unknown_outcome_settles_anew)
{
    struct lease l = { 0 };

    lease_grant(&l, (struct journal_epoch) { 1, 1 }, 100000, 100 * S, 100 * S, false);
    cr_assert(lease_may_write(&l, 101 * S, 1000, 20000));
    lease_unsettle(&l, 110 * S);
    cr_assert(!lease_may_write(&l, 140 * S, 1000, 20000));
    lease_good_read(&l, 109 * S, 20000); /* begun while the command ran */
    cr_assert(!lease_may_write(&l, 140 * S, 1000, 20000));
    lease_good_read(&l, 111 * S, 20000);
    cr_assert(!lease_may_write(&l, 131 * S - 1, 1000, 20000));
    cr_assert(lease_may_write(&l, 131 * S, 1000, 20000));
}

Test(lease, terms_outrank_counters)
{
    struct journal_epoch a = { 1, 900 }, b = { 2, 1 };

    cr_assert_lt(journal_epoch_cmp(a, b), 0);
    cr_assert_gt(journal_epoch_cmp(b, a), 0);
    cr_assert_eq(journal_epoch_cmp(a, a), 0);
}
