/* SPDX-License-Identifier: Apache-2.0 */
/* Job names, log excerpts and reasons are written by users of the clusters, and an operator reads them on a terminal
 * that obeys escape sequences. So all text goes through text_escape() once, when it enters a table or a paragraph;
 * columns are counted after that. Widths follow the usual rule (East Asian wide: two, combining: none) without asking
 * the locale, because output must not depend on it. */

#include "ctl/text.h"

#include <inttypes.h>
#include <time.h>

#include "common/utf8.h"

/* The next character of valid UTF-8; *@p moves behind it. */
static uint32_t next_char(const char **p)
{
    const unsigned char *s = (const unsigned char *) *p;
    uint32_t c = *s++;
    int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : 0;

    if (more)
        c &= 0x3Fu >> more;
    while (more-- > 0 && (*s & 0xC0) == 0x80)
        c = c << 6 | (*s++ & 0x3F);
    *p = (const char *) s;
    return c;
}

struct range {
    uint32_t lo, hi;
};

static bool in_ranges(uint32_t c, const struct range *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c >= r[i].lo && c <= r[i].hi)
            return true;
    return false;
}

/* Format characters: they show nothing themselves and change how their neighbours are shown. */
static bool is_format(uint32_t c)
{
    static const struct range r[] = { { 0x00AD, 0x00AD }, { 0x061C, 0x061C }, { 0x200B, 0x200F }, { 0x2028, 0x202E },
                                      { 0x2060, 0x206F }, { 0xFEFF, 0xFEFF }, { 0xFFF9, 0xFFFB }, { 0xE0000, 0xE0FFF } };

    return in_ranges(c, r, ADV_ARRAY_LEN(r));
}

static size_t columns_of(uint32_t c)
{
    static const struct range none[] = { { 0x0300, 0x036F }, { 0x0483, 0x0489 }, { 0x0591, 0x05BD }, { 0x064B, 0x065F },
                                         { 0x1AB0, 0x1AFF }, { 0x1DC0, 0x1DFF }, { 0x20D0, 0x20FF }, { 0xFE00, 0xFE0F },
                                         { 0xFE20, 0xFE2F } };
    static const struct range wide[] = { { 0x1100, 0x115F },   { 0x2E80, 0x303E },   { 0x3041, 0xA4CF },
                                         { 0xAC00, 0xD7A3 },   { 0xF900, 0xFAFF },   { 0xFE30, 0xFE6F },
                                         { 0xFF00, 0xFF60 },   { 0xFFE0, 0xFFE6 },   { 0x1F300, 0x1F64F },
                                         { 0x1F680, 0x1F6FF }, { 0x1F900, 0x1F9FF }, { 0x20000, 0x3FFFD } };

    if (in_ranges(c, none, ADV_ARRAY_LEN(none)))
        return 0;
    return in_ranges(c, wide, ADV_ARRAY_LEN(wide)) ? 2 : 1;
}

void text_escape(struct adv_buf *out, const char *s)
{
    adv_auto_free char *clean = s ? adv_utf8_lossy(s, strlen(s)) : NULL;

    for (const char *p = clean; p && *p;) {
        const char *start = p;
        uint32_t c = next_char(&p);

        if (c == '\n' || c == '\t' || c == '\r')
            (void) adv_buf_appendf(out, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
        else if (c < 0x20 || (c >= 0x7F && c < 0xA0))
            (void) adv_buf_appendf(out, "\\x%02x", (unsigned) c);
        else if (is_format(c))
            (void) adv_buf_appendf(out, "\\u{%x}", (unsigned) c);
        else
            (void) adv_buf_append(out, start, (size_t) (p - start));
    }
}

size_t text_columns(const char *s)
{
    size_t n = 0;

    while (*s)
        n += columns_of(next_char(&s));
    return n;
}

/* Where a prefix of at most @columns columns ends. */
static const char *prefix_end(const char *s, size_t columns)
{
    size_t n = 0;

    while (*s) {
        const char *next = s;

        n += columns_of(next_char(&next));
        if (n > columns)
            break;
        s = next;
    }
    return s;
}

void text_fit(struct adv_buf *out, const char *s, size_t columns)
{
    const char *end = prefix_end(s, columns);

    if (*end == '\0') {
        (void) adv_buf_append_str(out, s);
    } else if (columns > 0) {
        end = prefix_end(s, columns - 1);
        (void) adv_buf_append(out, s, (size_t) (end - s));
        (void) adv_buf_append_str(out, "…");
    }
}

void text_wrap(FILE *out, const char *s, size_t columns, size_t indent)
{
    size_t room = columns > indent + 20 ? columns - indent : 20;

    do {
        const char *end = columns ? prefix_end(s, room) : s + strlen(s), *cut = end;

        if (*end && *end != ' ') { /* back to the last blank, if there is one */
            while (cut > s && *cut != ' ')
                cut--;
            if (cut == s)
                cut = end;
        }
        (void) fprintf(out, "%*s%.*s\n", (int) indent, "", (int) (cut - s), s);
        for (s = cut; *s == ' ';)
            s++;
    } while (*s);
}

const char *text_span(int64_t us, char out[TEXT_TIME_SIZE])
{
    const char *sign = us < 0 ? "-" : "";
    uint64_t u = us < 0 ? 0 - (uint64_t) us : (uint64_t) us, s = u / 1000000;

    if (u < 999500)
        (void) snprintf(out, TEXT_TIME_SIZE, "%s%" PRIu64 "ms", sign, (u + 500) / 1000);
    else if (u < 59950000)
        (void) snprintf(out, TEXT_TIME_SIZE, "%s%" PRIu64 ".%" PRIu64 "s", sign, (u + 50000) / 1000000,
                        (u + 50000) / 100000 % 10);
    else if (s < 3600)
        (void) snprintf(out, TEXT_TIME_SIZE, "%s%" PRIu64 "m%02" PRIu64 "s", sign, s / 60, s % 60);
    else if (s < 86400)
        (void) snprintf(out, TEXT_TIME_SIZE, "%s%" PRIu64 "h%02" PRIu64 "m", sign, s / 3600, s / 60 % 60);
    else
        (void) snprintf(out, TEXT_TIME_SIZE, "%s%" PRIu64 "d%02" PRIu64 "h", sign, s / 86400, s / 3600 % 24);
    return out;
}

const char *text_clock(int64_t wall_us, char out[TEXT_TIME_SIZE])
{
    time_t s = (time_t) (wall_us / 1000000);
    struct tm tm;
    size_t n;

    if (wall_us <= 0 || !localtime_r(&s, &tm) || (n = strftime(out, TEXT_TIME_SIZE - 5, "%Y-%m-%d %H:%M:%S", &tm)) == 0)
        (void) strcpy(out, "-");
    else
        (void) snprintf(out + n, TEXT_TIME_SIZE - n, ".%03d", (int) (wall_us / 1000 % 1000));
    return out;
}
