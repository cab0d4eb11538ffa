/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "controlplane/sources/cursor.h"

#define S     1000000000LL
#define LATE  (10 * S)
#define BACK  (100 * S)
#define LIMIT 4

/* A log of @n lines, each (time, hash), asked as a server would answer. */
struct log {
    struct cursor_seen v[64];
    size_t n;
};

static size_t asked;

/* One question at @now; returns how many lines were new, their hashes in @ret. */
static size_t ask(struct cursor *c, const struct log *l, int64_t now, uint64_t *ret, bool *more)
{
    struct source_line lines[LIMIT];
    struct source_answer a = { .lines = lines };
    int64_t start = cursor_start(c, now, LATE, BACK);

    asked++;
    for (size_t i = 0; i < l->n && a.n_lines < LIMIT; i++)
        if (l->v[i].ts_ns >= start && l->v[i].ts_ns < now)
            lines[a.n_lines++] = (struct source_line) { .ts_ns = l->v[i].ts_ns, .hash = l->v[i].hash };
    cr_assert_eq(cursor_take(c, &a, start, now, LIMIT, LATE, more), 0);
    for (size_t i = 0; i < a.n_lines; i++)
        ret[i] = lines[i].hash;
    return a.n_lines;
}

static size_t ask_all(struct cursor *c, const struct log *l, int64_t now)
{
    uint64_t got[LIMIT];
    size_t n = 0;
    bool more = true;

    for (int i = 0; more && i < 50; i++)
        n += ask(c, l, now, got, &more);
    cr_assert(!more);
    return n;
}

Test(sources_cursor, each_line_once_late_ones_too)
{
    struct log l = { { { 1000 * S, 1 }, { 1001 * S, 2 }, { 1001 * S, 3 } }, 3 };
    struct cursor c;

    cursor_init(&c, 1000 * S, 1000 * S);
    cr_assert_eq(ask_all(&c, &l, 1005 * S), 3);
    cr_assert_eq(ask_all(&c, &l, 1006 * S), 0);
    l = (struct log) { { { 999 * S, 9 }, { 1000 * S, 1 }, { 1000 * S + 5, 4 }, { 1001 * S, 2 }, { 1001 * S, 3 }, { 1004 * S, 5 } }, 6 };
    cr_assert_eq(ask_all(&c, &l, 1007 * S), 2); /* 4 came late, 5 is new; 9 is of another attempt */
    cr_assert_eq(ask_all(&c, &l, 1008 * S), 0);
    cr_assert_eq(c.lost, 0);
    cursor_done(&c);
}

Test(sources_cursor, pages_go_on_and_end)
{
    struct log l = { .n = 40 };
    struct cursor c;

    for (size_t i = 0; i < l.n; i++)
        l.v[i] = (struct cursor_seen) { 1000 * S + (int64_t) (i / 3) * S, 100 + i }; /* three of each moment */
    cursor_init(&c, 1000 * S, 1000 * S);
    cr_assert_eq(ask_all(&c, &l, 1050 * S), 40);
    cr_assert_eq(c.lost, 0);
    cr_assert_eq(ask_all(&c, &l, 1051 * S), 0);
    cursor_done(&c);
}

Test(sources_cursor, a_moment_fuller_than_a_page_is_a_loss_that_shows)
{
    struct log l = { .n = 18 };
    struct cursor c;

    for (size_t i = 0; i < l.n; i++)
        l.v[i] = (struct cursor_seen) { i < 15 ? 1000 * S : 1001 * S, 100 + i };
    cursor_init(&c, 1000 * S, 1000 * S);
    cr_assert_eq(ask_all(&c, &l, 1010 * S), 4 + 3);
    cr_assert_gt(c.lost, 0);
    cursor_done(&c);
}

Test(sources_cursor, what_is_beyond_the_backlog_is_a_loss_only_if_it_was_not_read)
{
    struct log none = { .n = 0 };
    struct cursor c;

    cursor_init(&c, 1000 * S, 1000 * S);
    for (int64_t now = 1000 * S; now < 3000 * S; now += 50 * S)
        cr_assert_eq(ask_all(&c, &none, now), 0);
    cr_assert_eq(c.lost, 0); /* quiet, and heard all the time */
    cr_assert_eq(ask_all(&c, &none, 4000 * S), 0);
    cr_assert_eq(c.lost, 1); /* nobody asked for a long while */
    cursor_done(&c);
}

Test(sources_cursor, memory_is_bounded)
{
    static struct source_line lines[5000];
    struct source_answer a = { .lines = lines };
    struct cursor c;
    bool more;

    cursor_init(&c, 0, 0);
    for (int round = 0; round < 5; round++) {
        int64_t base = 1000 * S + round * S;
        for (size_t i = 0; i < ADV_ARRAY_LEN(lines); i++)
            lines[i] = (struct source_line) { .ts_ns = base + (int64_t) i, .hash = (uint64_t) i };
        a.n_lines = ADV_ARRAY_LEN(lines);
        cr_assert_eq(cursor_take(&c, &a, cursor_start(&c, base + S, LATE, 10000 * S), base + S, 10000, LATE, &more), 0);
        cr_assert_leq(c.n_seen, CURSOR_SEEN_MAX);
        cr_assert_eq(a.n_lines, ADV_ARRAY_LEN(lines));
        cr_assert_gt(cursor_start(&c, base + S, LATE, 10000 * S), base); /* what was forgotten is not asked for again */
    }
    cursor_done(&c);
}
