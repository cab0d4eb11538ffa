/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/hosts.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct hosts h;

static void note(int rank, int64_t total, const char *name)
{
    hosts_note(&h, rank, total, name, strlen(name));
}

static const char *of(int rank)
{
    const char *s = hosts_of(&h, rank);

    return s ? s : "-";
}

Test(hosts, what_was_said)
{
    memset(&h, 0, sizeof(h));
    cr_expect_str_eq(of(0), "-");
    note(3, 16, "n1");
    note(8, 16, "n2");
    cr_expect_str_eq(of(3), "n1");
    cr_expect_str_eq(of(8), "n2");
    cr_expect_str_eq(of(4), "-");
    cr_expect_str_eq(of(-1), "-");
    cr_expect_str_eq(of(HOSTS_RANKS_MAX), "-");
    note(3, 16, "n1"); /* again */
    note(3, 2, "n9");  /* of a part of the job */
    cr_expect_str_eq(of(3), "n1");
    note(3, -1, "n2"); /* contradicted: not known, for good */
    note(3, 16, "n1");
    cr_expect_str_eq(of(3), "-");
    cr_expect_str_eq(of(8), "n2");
    note(5, 16, "n1.example.org"); /* the same host */
    note(5, 16, "n1");
    cr_expect_str_eq(of(5), "n1");
    note(6, 16, "n10"); /* not that one */
    note(6, 16, "n1");
    cr_expect_str_eq(of(6), "-");
    note(9, 32, "n3"); /* what was said before was of a part */
    cr_expect_str_eq(of(8), "-");
    cr_expect_str_eq(of(9), "n3");
}

Test(hosts, limits)
{
    char name[HOSTS_NAME_SIZE + 1];

    memset(&h, 0, sizeof(h));
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    note(1, -1, name);
    note(2, -1, "");
    note(16, 16, "n1"); /* no such rank */
    note(HOSTS_RANKS_MAX, -1, "n1");
    for (int i = 0; i < HOSTS_RANKS_MAX; i++)
        cr_expect_str_eq(of(i), "-", "%d", i);
    for (int i = 0; i < HOSTS_MAX + 5; i++) {
        (void) snprintf(name, sizeof(name), "n%d", i);
        note(i, -1, name);
    }
    cr_expect_str_eq(of(HOSTS_MAX - 1), "n127");
    cr_expect_str_eq(of(HOSTS_MAX), "-");
}

/* "names|ranks", "no" for no list. */
static const char *missing(const char *list, bool came)
{
    static char text[128];
    char names[40], ranks[20];

    if (!hosts_missing(&h, list, strlen(list), came, names, sizeof(names), ranks, sizeof(ranks)))
        return "no";
    (void) snprintf(text, sizeof(text), "%s|%s", names, ranks);
    return text;
}

Test(hosts, who_is_missing)
{
    char names[8], ranks[8];

    memset(&h, 0, sizeof(h));
    cr_expect_str_eq(missing("3", false), "|3"); /* nobody said where it runs, */
    cr_expect_str_eq(missing("3", true), "no");  /* or how many there are */
    cr_expect(hosts_missing(NULL, "3", 1, false, names, sizeof(names), ranks, sizeof(ranks)));
    cr_expect_not(hosts_missing(NULL, "3", 1, true, names, sizeof(names), ranks, sizeof(ranks)));
    for (int i = 0; i < 7; i++)
        note(i, 8, i < 2 ? "n1" : i < 4 ? "n2" : i < 6 ? "n3" : "n4");
    cr_expect_str_eq(missing("2, 3", false), "n2|2,3");
    cr_expect_str_eq(missing("2-3,5", false), "n2,n3|2,3,5");
    cr_expect_str_eq(missing("3 4", false), "n2,n3|3,4");
    cr_expect_str_eq(missing("0,2,4", false), "|0,2,4"); /* most hosts: it is no host that is missing */
    cr_expect_str_eq(missing("7", false), "|7");         /* it runs nobody knows where */
    cr_expect_str_eq(missing("3,7", false), "|3,7");
    cr_expect_str_eq(missing("7, 0,1,3,2,6,4", true), "n3|5"); /* those that came, in any order */
    cr_expect_str_eq(missing("0-7", true), "no");
    cr_expect_str_eq(missing("0-4,6-7", true), "n3|5");
    note(5, 8, "n1"); /* contradicted */
    cr_expect_str_eq(missing("5", false), "|5");
    cr_expect_str_eq(missing("0,1,2,3,4,5,6,7,100,101", false), "|"); /* no room for so many */
    /* what is no list */
    cr_expect_str_eq(missing("2,x", false), "no");
    cr_expect_str_eq(missing("2-3-4", false), "no");
    cr_expect_str_eq(missing("2-", false), "no");
    cr_expect_str_eq(missing("-2", false), "no");
    cr_expect_str_eq(missing("9999999999", false), "no");
    cr_expect_str_eq(missing("", false), "no");
    cr_expect_str_eq(missing(" , ", false), "no");
    /* nor one of names for which there is no room */
    cr_expect(hosts_missing(&h, "2", 1, false, names, 2, ranks, sizeof(ranks)));
    cr_expect_str_eq(names, "");
    cr_expect_str_eq(ranks, "2");
}
