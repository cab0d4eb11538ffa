/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/sources/cursor.h"

void cursor_init(struct cursor *c, int64_t begin_ns, int64_t now_ns)
{
    *c = (struct cursor) { .begin_ns = begin_ns, .read_ns = now_ns };
}

void cursor_done(struct cursor *c)
{
    free(c->seen);
    *c = (struct cursor) { 0 };
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t cursor_start(struct cursor *c, int64_t now_ns, int64_t late_ns, int64_t backlog_ns)
{
    int64_t start = later(c->begin_ns, c->floor_ns);

    if (c->paging)
        start = later(start, c->page_ns);
    else if (c->newest_ns)
        start = later(start, c->newest_ns - late_ns);
    if (start < now_ns - backlog_ns) {
        if (c->paging || c->read_ns < now_ns - backlog_ns) /* what lies between was never asked for */
            c->lost++;
        c->begin_ns = start = now_ns - backlog_ns;
        c->paging = false;
    }
    return start;
}

static int by_time(const void *a, const void *b)
{
    const struct cursor_seen *x = a, *y = b;

    if (x->ts_ns != y->ts_ns)
        return x->ts_ns < y->ts_ns ? -1 : 1;
    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : 0;
}

/* Of @n, room for that many more. */
static bool grow(struct cursor *c, size_t n)
{
    size_t cap = c->cap_seen ? c->cap_seen : 64;
    struct cursor_seen *more;

    while (cap < c->n_seen + n)
        cap *= 2;
    if (cap == c->cap_seen)
        return true;
    more = realloc(c->seen, cap * sizeof(*more));
    if (!more)
        return false;
    c->seen = more;
    c->cap_seen = cap;
    return true;
}

/* What is too old to be asked for again, and what is too much. */
static void forget(struct cursor *c, int64_t late_ns)
{
    int64_t from = c->paging ? c->page_ns - late_ns : c->newest_ns - late_ns;
    size_t n = 0;

    while (n < c->n_seen && c->seen[n].ts_ns < from)
        n++;
    if (c->n_seen - n > CURSOR_SEEN_MAX) {
        n = c->n_seen - CURSOR_SEEN_MAX;
        while (n < c->n_seen && c->seen[n].ts_ns == c->seen[n - 1].ts_ns) /* of a moment all or none is remembered */
            n++;
        c->floor_ns = c->seen[n - 1].ts_ns + 1;
    }
    memmove(c->seen, c->seen + n, (c->n_seen - n) * sizeof(*c->seen));
    c->n_seen -= n;
    if (c->cap_seen > 256 && c->n_seen < c->cap_seen / 8) { /* a burst is over */
        struct cursor_seen *less = realloc(c->seen, c->cap_seen / 4 * sizeof(*less));
        if (less) {
            c->seen = less;
            c->cap_seen /= 4;
        }
    }
}

int cursor_take(struct cursor *c, struct source_answer *a, int64_t start_ns, int64_t end_ns, int64_t limit, int64_t late_ns,
                bool *ret_more)
{
    bool full = a->n_lines >= (size_t) limit;
    int64_t last_ns = a->n_lines ? a->lines[a->n_lines - 1].ts_ns : 0;
    size_t n = 0, n_before = c->n_seen;

    if (!grow(c, a->n_lines))
        return -ADV_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < a->n_lines; i++) {
        struct cursor_seen s = { a->lines[i].ts_ns, a->lines[i].hash };

        if (s.ts_ns < start_ns || s.ts_ns >= end_ns || bsearch(&s, c->seen, n_before, sizeof(s), by_time))
            continue;
        a->lines[n++] = a->lines[i];
        c->seen[c->n_seen++] = s;
        c->newest_ns = later(c->newest_ns, s.ts_ns);
    }
    a->n_lines = n;
    qsort(c->seen, c->n_seen, sizeof(*c->seen), by_time);
    c->paging = full && last_ns < end_ns;
    c->read_ns = later(c->read_ns, c->paging ? last_ns : end_ns);
    if (c->paging) {
        c->page_ns = last_ns;
        if (last_ns <= start_ns) { /* a page of one moment: what else that moment has cannot be told from what was had */
            c->page_ns = last_ns + 1;
            c->lost++;
        }
    }
    forget(c, late_ns);
    *ret_more = c->paging;
    return 0;
}
