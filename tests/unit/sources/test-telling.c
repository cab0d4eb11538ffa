/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "controlplane/sources/telling.h"

#define SECOND 1000000LL
#define DAY    (86400 * SECOND)

static struct telling t;
static int64_t now = 1000 * DAY;

static enum telling_how fault(const char *rule, const char *host)
{
    return telling_next(&t, rule, host, true, now);
}

static enum telling_how of_host(unsigned i)
{
    char host[16];

    (void) snprintf(host, sizeof(host), "n%u", i);
    return fault("cable", host);
}

static void afresh(void)
{
    t = (struct telling) { 0 };
}

TestSuite(sources_telling, .init = afresh);

Test(sources_telling, once_and_again_when_it_goes_on)
{
    cr_assert_eq(fault("xid", "n1"), TELL);
    now += TELLING_AGAIN_US - 1;
    cr_assert_eq(fault("xid", "n1"), TELL_NOT);
    cr_assert_eq(fault("xid", "n2"), TELL);
    cr_assert_eq(fault("cable", "n1"), TELL); /* there is plenty */
    now += 1;
    cr_assert_eq(fault("xid", "n1"), TELL);
}

Test(sources_telling, what_is_left_out_is_made_known_each_time)
{
    for (unsigned i = 0; i < TELLING_FAULTS_MAX; i++)
        cr_assert_eq(of_host(i), TELL);
    cr_assert_eq(of_host(20), TELL_MORE);
    cr_assert_eq(of_host(21), TELL_NOT, "it is known of this time");
    now += TELLING_AGAIN_US;
    cr_assert_eq(of_host(20), TELL_MORE, "it goes on");
    now += 2 * DAY;
    for (unsigned i = 30; i < 30 + TELLING_FAULTS_MAX; i++)
        cr_assert_eq(of_host(i), TELL, "the old ones make room");
    cr_assert_eq(of_host(0), TELL_MORE);
    cr_assert_eq(of_host(99), TELL_NOT);
    cr_assert_eq(of_host(30), TELL_NOT, "the same");
}

/* n1 had something days ago, and what ends the attempt is something else, while a fault that n2 has had before recurs. */
Test(sources_telling, that_a_host_was_told_long_ago_hides_nothing)
{
    for (unsigned i = 1; i <= TELLING_FAULTS_PLENTY; i++)
        cr_assert_eq(of_host(i), TELL);
    cr_assert_eq(fault("xid", "n1"), TELL_NOT, "n1 is told, and of now");
    now += 7 * DAY;
    cr_assert_eq(fault("xid", "n1"), TELL);
    cr_assert_eq(of_host(2), TELL);
    afresh();
    for (unsigned i = 1; i <= TELLING_FAULTS_PLENTY; i++)
        cr_assert_eq(of_host(i), TELL);
    now += 300 * SECOND; /* the decision may look at less than half an hour */
    cr_assert_eq(fault("xid", "n1"), TELL);
    for (unsigned i = 10; t.n < TELLING_FAULTS_MAX; i++)
        cr_assert_eq(of_host(i), TELL);
    now += 300 * SECOND;
    cr_assert_eq(fault("bus", "n1"), TELL_MORE, "no room, and n1 was not told of this time");
}

Test(sources_telling, what_is_for_people_is_told_while_there_is_room)
{
    char host[16];

    for (unsigned i = 0; i < TELLING_OTHERS_MAX; i++) {
        (void) snprintf(host, sizeof(host), "n%u", i);
        cr_assert_eq(telling_next(&t, "notice", host, false, now), TELL);
    }
    cr_assert_eq(telling_next(&t, "notice", "n9", false, now), TELL_NOT);
    now += 2 * DAY;
    cr_assert_eq(telling_next(&t, "notice", "n9", false, now), TELL_NOT);
    cr_assert_eq(telling_next(&t, "notice", "n0", false, now), TELL);
    for (unsigned i = 0; i < TELLING_FAULTS_MAX; i++)
        cr_assert_eq(of_host(i), TELL, "faults have room of their own");
    cr_assert_eq(of_host(20), TELL_MORE);
}
