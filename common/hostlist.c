/* SPDX-License-Identifier: Apache-2.0 */

/* Names are kept in an array in order of appearance; a second array of positions, sorted by name,
 * makes lookup a binary search. Names mostly arrive sorted, so an insert into the index is an
 * append. A hash table would cost more memory per job than the names themselves.
 *
 * Expansion is counted before anything is allocated: the product of all dimensions must fit the
 * limit. Output compresses the last run of digits of each name: for every (text before, text after)
 * the numbers become ranges. A number that is zero-padded keeps its width; "9" and "10" join
 * because 10 printed with width 1 is "10". */

#include "common/hostlist.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_DIMENSIONS 8
#define MAX_DIGITS     18 /* stays inside 64 bits */

struct adv_hostlist {
    char **names;
    uint32_t *index; /* positions in @names, sorted by strcmp */
    size_t n, cap, max;
};

struct adv_hostlist *adv_hostlist_new(size_t max_hosts)
{
    struct adv_hostlist *hl = calloc(1, sizeof(*hl));

    if (hl)
        hl->max = max_hosts < UINT32_MAX ? max_hosts : UINT32_MAX;
    return hl;
}

static void truncate_to(struct adv_hostlist *hl, size_t n)
{
    size_t o = 0;

    if (n >= hl->n)
        return;
    for (size_t i = 0; i < hl->n; i++) {
        if (hl->index[i] < n)
            hl->index[o++] = hl->index[i];
    }
    for (size_t i = n; i < hl->n; i++)
        free(hl->names[i]);
    hl->n = n;
}

struct adv_hostlist *adv_hostlist_free(struct adv_hostlist *hl)
{
    if (!hl)
        return NULL;
    truncate_to(hl, 0);
    free(hl->names);
    free(hl->index);
    free(hl);
    return NULL;
}

/* Position in the index where @name is or would stand. */
static bool find(const struct adv_hostlist *hl, const char *name, size_t *ret_at)
{
    size_t lo = 0, hi = hl->n;

    if (hi > 0 && strcmp(hl->names[hl->index[hi - 1]], name) < 0) {
        *ret_at = hi; /* the common case: sorted input */
        return false;
    }
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(hl->names[hl->index[mid]], name);

        if (c == 0) {
            *ret_at = mid;
            return true;
        }
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *ret_at = lo;
    return false;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static int no_memory(struct adv_err *err)
{
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "host list: no memory");
}

static int add(struct adv_hostlist *hl, const char *name, struct adv_err *err)
{
    size_t at;

    if (find(hl, name, &at))
        return 0;
    if (hl->n >= hl->max)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "host list: more than %zu hosts", hl->max);
    if (hl->n == hl->cap) {
        size_t cap = hl->cap ? hl->cap * 2 : 4;
        char **names = realloc(hl->names, cap * sizeof(*names));

        if (!names)
            return no_memory(err);
        hl->names = names;
        uint32_t *idx = realloc(hl->index, cap * sizeof(*idx));
        if (!idx)
            return no_memory(err);
        hl->index = idx;
        hl->cap = cap;
    }
    char *copy = strdup(name);
    if (!copy)
        return no_memory(err);
    memmove(hl->index + at + 1, hl->index + at, (hl->n - at) * sizeof(*hl->index));
    hl->index[at] = (uint32_t) hl->n;
    hl->names[hl->n++] = copy;
    return 0;
}

int adv_hostlist_add(struct adv_hostlist *hl, const char *name, struct adv_err *err)
{
    size_t len = strlen(name);

    if (len == 0 || len > ADV_HOST_NAME_MAX)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "host name of %zu characters", len);
    for (size_t i = 0; i < len; i++) {
        if (!name_char(name[i]))
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "host name: unexpected character at %zu",
                               i + 1);
    }
    return add(hl, name, err);
}

/* One bracket: the text between '[' and ']'. */
struct dim {
    const char *start, *end;
    uint64_t count;
};

struct range {
    uint64_t lo, hi;
    int width;
};

/* Reads the next "a" or "a-b" of a bracket; @p moves behind it and its comma. */
static bool next_range(const char **p, const char *end, struct range *r)
{
    const char *s = *p;
    uint64_t v[2] = { 0, 0 };
    int i = 0, len[2] = { 0, 0 };

    for (; s < end && *s != ','; s++) {
        if (*s == '-' && i == 0 && len[0] > 0) {
            i = 1;
        } else if (*s >= '0' && *s <= '9' && len[i] < MAX_DIGITS) {
            v[i] = v[i] * 10 + (uint64_t) (*s - '0');
            len[i]++;
        } else {
            return false;
        }
    }
    if (len[i] == 0 || (i == 1 && v[1] < v[0]))
        return false;
    if (s < end && s + 1 == end)
        return false; /* trailing comma */
    *r = (struct range){ v[0], i ? v[1] : v[0], len[0] };
    *p = s < end ? s + 1 : s;
    return true;
}

struct parser {
    struct adv_hostlist *hl;
    const char *text; /* whole input, for positions */
    struct dim dims[MAX_DIMENSIONS];
    size_t n_dims;
    char name[ADV_HOST_NAME_MAX + 1];
};

static int bad(const struct parser *ps, const char *at, const char *what, struct adv_err *err)
{
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "host list: %s at character %zu", what,
                       (size_t) (at - ps->text) + 1);
}

/* Finds the end of one comma-separated entry, its brackets and how many hosts it stands for. */
static int scan_entry(struct parser *ps, const char *s, const char **ret_end, uint64_t *ret_count,
                      struct adv_err *err)
{
    uint64_t count = 1;

    ps->n_dims = 0;
    for (; *s && *s != ','; s++) {
        if (*s != '[') {
            if (!name_char(*s))
                return bad(ps, s, "unexpected character", err);
            continue;
        }
        const char *close = strchr(s, ']');
        if (!close)
            return bad(ps, s, "bracket is not closed", err);
        if (ps->n_dims == MAX_DIMENSIONS)
            return bad(ps, s, "too many brackets", err);
        struct dim *d = &ps->dims[ps->n_dims++];
        *d = (struct dim){ .start = s + 1, .end = close };
        const char *p = d->start;
        do {
            struct range r;

            if (!next_range(&p, d->end, &r))
                return bad(ps, p, "bad range", err);
            d->count += r.hi - r.lo + 1;
        } while (p < d->end);
        if (__builtin_mul_overflow(count, d->count, &count) || count > ps->hl->max)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "host list: more than %zu hosts",
                               ps->hl->max);
        s = close;
    }
    *ret_end = s;
    *ret_count = count;
    return 0;
}

/* Appends all names made from [s, end) after the first @len characters of ps->name. */
static int expand(struct parser *ps, const char *s, const char *end, size_t dim, size_t len,
                  struct adv_err *err)
{
    const char *stop = dim < ps->n_dims ? ps->dims[dim].start - 1 : end;
    size_t plain = (size_t) (stop - s);

    if (len + plain > ADV_HOST_NAME_MAX)
        return bad(ps, s, "name is too long", err);
    memcpy(ps->name + len, s, plain);
    len += plain;
    if (dim == ps->n_dims) {
        ps->name[len] = '\0';
        return add(ps->hl, ps->name, err);
    }
    const struct dim *d = &ps->dims[dim];
    const char *p = d->start;
    do {
        struct range r;

        if (!next_range(&p, d->end, &r))
            return bad(ps, p, "bad range", err);
        for (uint64_t v = r.lo; v <= r.hi; v++) {
            int n = snprintf(ps->name + len, sizeof(ps->name) - len, "%0*" PRIu64, r.width, v);

            if (n < 0 || (size_t) n >= sizeof(ps->name) - len)
                return bad(ps, p, "name is too long", err);
            int e = expand(ps, d->end + 1, end, dim + 1, len + (size_t) n, err);
            if (e < 0)
                return e;
        }
    } while (p < d->end);
    return 0;
}

int adv_hostlist_parse(struct adv_hostlist *hl, const char *text, struct adv_err *err)
{
    struct parser ps = { .hl = hl, .text = text };
    size_t before = hl->n;
    int r = 0;

    for (const char *s = text; *s;) {
        const char *end = s;
        uint64_t count;

        r = scan_entry(&ps, s, &end, &count, err);
        if (r == 0 && end == s)
            r = bad(&ps, s, "empty entry", err);
        if (r == 0)
            r = expand(&ps, s, end, 0, 0, err);
        if (r < 0)
            break;
        s = end;
        if (*s == ',' && *++s == '\0') {
            r = bad(&ps, s, "empty entry", err);
            break;
        }
    }
    if (r < 0)
        truncate_to(hl, before);
    return r;
}

bool adv_hostlist_contains(const struct adv_hostlist *hl, const char *name)
{
    size_t at;

    return find(hl, name, &at);
}

bool adv_hostlist_remove(struct adv_hostlist *hl, const char *name)
{
    size_t at;

    if (!find(hl, name, &at))
        return false;
    uint32_t pos = hl->index[at];
    free(hl->names[pos]);
    memmove(hl->names + pos, hl->names + pos + 1, (hl->n - pos - 1) * sizeof(*hl->names));
    memmove(hl->index + at, hl->index + at + 1, (hl->n - at - 1) * sizeof(*hl->index));
    hl->n--;
    for (size_t i = 0; i < hl->n; i++) {
        if (hl->index[i] > pos)
            hl->index[i]--;
    }
    return true;
}

int adv_hostlist_union(struct adv_hostlist *hl, const struct adv_hostlist *other,
                       struct adv_err *err)
{
    size_t before = hl->n;

    for (size_t i = 0; i < other->n; i++) {
        int r = add(hl, other->names[i], err);

        if (r < 0) {
            truncate_to(hl, before);
            return r;
        }
    }
    return 0;
}

void adv_hostlist_minus(struct adv_hostlist *hl, const struct adv_hostlist *other)
{
    if (hl == other) {
        truncate_to(hl, 0);
        return;
    }
    for (size_t i = 0; i < other->n; i++)
        (void) adv_hostlist_remove(hl, other->names[i]);
}

size_t adv_hostlist_count(const struct adv_hostlist *hl)
{
    return hl->n;
}

const char *adv_hostlist_nth(const struct adv_hostlist *hl, size_t i)
{
    return i < hl->n ? hl->names[i] : NULL;
}

/* A name cut around its last run of digits. */
struct part {
    const char *name;
    size_t pre, num; /* lengths of the text before and of the digits; the rest is the text after */
    uint64_t value;
};

static struct part split(const char *name)
{
    struct part p = { .name = name };
    size_t end = strlen(name);

    p.pre = end;
    while (end > 0 && (name[end - 1] < '0' || name[end - 1] > '9'))
        end--;
    if (end == 0)
        return p;
    size_t start = end;
    while (start > 0 && end - start < MAX_DIGITS && name[start - 1] >= '0' &&
           name[start - 1] <= '9')
        start--;
    p.pre = start;
    p.num = end - start;
    for (size_t i = start; i < end; i++)
        p.value = p.value * 10 + (uint64_t) (name[i] - '0');
    return p;
}

static int same_group(const struct part *a, const struct part *b)
{
    int c = memcmp(a->name, b->name, a->pre < b->pre ? a->pre : b->pre);

    if (c != 0)
        return c;
    if (a->pre != b->pre)
        return a->pre < b->pre ? -1 : 1;
    if (!a->num != !b->num)
        return a->num ? 1 : -1;
    return strcmp(a->name + a->pre + a->num, b->name + b->pre + b->num);
}

static int compare_parts(const void *pa, const void *pb)
{
    const struct part *a = pa, *b = pb;
    int c = same_group(a, b);

    if (c != 0)
        return c;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return a->num < b->num ? -1 : a->num > b->num;
}

/* True when @b is the number after @a as a range "a-b" would print it. */
static bool follows(const struct part *a, const struct part *b)
{
    char want[24];
    int n = snprintf(want, sizeof(want), "%0*" PRIu64, (int) a->num, a->value + 1);

    return n > 0 && (size_t) n == b->num && memcmp(want, b->name + b->pre, b->num) == 0;
}

/* Prints one group of @n parts that share the text before and after their number. */
static void format_group(const struct part *p, size_t n, struct adv_buf *out)
{
    (void) adv_buf_append(out, p->name, p->pre);
    if (p->num > 0 && n > 1)
        (void) adv_buf_append_byte(out, '[');
    for (size_t i = 0; i < n && p->num > 0;) {
        size_t j = i;

        while (j + 1 < n && follows(&p[j], &p[j + 1]))
            j++;
        if (i > 0)
            (void) adv_buf_append_byte(out, ',');
        (void) adv_buf_append(out, p[i].name + p[i].pre, p[i].num);
        if (j > i) {
            (void) adv_buf_append_byte(out, '-');
            (void) adv_buf_append(out, p[j].name + p[j].pre, p[j].num);
        }
        i = j + 1;
    }
    if (p->num > 0 && n > 1)
        (void) adv_buf_append_byte(out, ']');
    (void) adv_buf_append_str(out, p->name + p->pre + p->num);
}

int adv_hostlist_format(const struct adv_hostlist *hl, struct adv_buf *out, struct adv_err *err)
{
    if (hl->n == 0)
        return 0;
    adv_auto_free struct part *parts = malloc(hl->n * sizeof(*parts));
    if (!parts)
        return no_memory(err);
    for (size_t i = 0; i < hl->n; i++)
        parts[i] = split(hl->names[i]);
    qsort(parts, hl->n, sizeof(*parts), compare_parts);
    for (size_t i = 0; i < hl->n;) {
        size_t j = i + 1;

        while (j < hl->n && same_group(&parts[i], &parts[j]) == 0)
            j++;
        if (i > 0)
            (void) adv_buf_append_byte(out, ',');
        format_group(&parts[i], j - i, out);
        i = j;
    }
    if (adv_buf_error(out))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "host list: text is over its limit");
    return 0;
}
