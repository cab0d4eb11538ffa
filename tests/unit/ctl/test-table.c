/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/table.h"

#include <criterion/criterion.h>

static const char *const heads[] = { "JOB", "STATE", "SUMMARY", NULL };

static char *print(const struct table *t, size_t columns)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    cr_assert_eq(table_print(t, f, columns, false, 0), 0);
    (void) fclose(f);
    return text;
}

Test(table, aligned)
{
    adv_auto_free char *text = NULL;
    ADV_AUTO_DONE(table) t;

    table_init(&t, heads);
    table_cell(&t, "a/%d", 12);
    table_cell(&t, "running");
    table_cell(&t, "%s", "evil\033[2J\nname");
    table_cell(&t, "a/3");
    table_cell(&t, "failed");
    table_cell(&t, "%s", "");
    text = print(&t, 0);
    cr_assert_str_eq(text, "JOB   STATE    SUMMARY\n"
                           "a/12  running  evil\\x1b[2J\\nname\n"
                           "a/3   failed\n");
}

Test(table, widest_gives_way)
{
    adv_auto_free char *text = NULL;
    ADV_AUTO_DONE(table) t;

    table_init(&t, heads);
    table_cell(&t, "a/12");
    table_cell(&t, "running");
    table_cell(&t, "a sentence that is much too long for the line");
    text = print(&t, 30);
    cr_assert_str_eq(text, "JOB   STATE    SUMMARY\n"
                           "a/12  running  a sentence tha…\n");
    free(text);
    text = print(&t, 1); /* no room at all: columns stay readable */
    cr_assert_str_eq(text, "JOB   STATE   SUMMA…\n"
                           "a/12  runni…  a sen…\n");
}

Test(table, empty)
{
    adv_auto_free char *text = NULL;
    ADV_AUTO_DONE(table) t;

    table_init(&t, heads);
    text = print(&t, 80);
    cr_assert_str_eq(text, "JOB  STATE  SUMMARY\n");
}
