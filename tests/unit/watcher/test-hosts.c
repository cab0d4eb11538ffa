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
