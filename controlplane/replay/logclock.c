/* SPDX-License-Identifier: Apache-2.0 */
/* Stamps stand near the begin of a line, behind what a launcher puts there; a bar's time may stand anywhere. Text of users
 * can have anything that looks like a date, so what is further than HEAD_MAX into the line is not one. */

#include "controlplane/replay/logclock.h"

#include <stdbool.h>
#include <string.h>

#include "common/macros.h"

#define HEAD_MAX 72
#define LINE_MAX 4096
#define SECOND   INT64_C(1000000)
#define DAY      (86400 * SECOND)
#define JUMP_MAX (2 * DAY) /* more than a job is silent for */
#define STEP_MAX (DAY / 2) /* a step that is said to take longer is none */
#define BACK_MAX (3600 * SECOND) /* of clocks that differ; further back is another run */
#define BACK_BAR (60 * SECOND)

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Exactly @n digits at @p; -1 if they are none. */
static int64_t digits(const char *p, size_t n)
{
    int64_t v = 0;

    for (size_t i = 0; i < n; i++) {
        if (!digit(p[i]))
            return -1;
        v = v * 10 + (p[i] - '0');
    }
    return v;
}

static size_t count_digits(const char *p, const char *end)
{
    size_t n = 0;

    while (p + n < end && n < 18 && digit(p[n]))
        n++;
    return n;
}

/* ".123456" or ",123": microseconds. */
static int64_t fraction(const char *p, const char *end)
{
    int64_t us = 0, scale = SECOND / 10;

    if (p >= end || (*p != '.' && *p != ','))
        return 0;
    for (p++; p < end && digit(*p) && scale > 0; p++, scale /= 10)
        us += (*p - '0') * scale;
    return us;
}

/* "10:00:00.5" at @p; -1 if it is none. */
static int64_t clock_time(const char *p, const char *end)
{
    int64_t h, m, s;

    if (end - p < 8 || p[2] != ':' || p[5] != ':')
        return -1;
    h = digits(p, 2);
    m = digits(p + 3, 2);
    s = digits(p + 6, 2);
    if (h < 0 || m < 0 || s < 0 || h > 23 || m > 59 || s > 60)
        return -1;
    return ((h * 60 + m) * 60 + s) * SECOND + fraction(p + 8, end);
}

static int64_t day_of_year(int64_t month, int64_t day)
{
    static const int16_t before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };

    return month < 1 || month > 12 || day < 1 || day > 31 ? -1 : before[month - 1] + day;
}

static int64_t dated(int64_t year, int64_t month, int64_t day, int64_t time_us)
{
    int64_t doy = day_of_year(month, day);

    if (doy < 0 || year < 0 || time_us < 0)
        return -1;
    if (month > 2 && year % 4 == 0)
        doy++;
    return (year * 365 + (year + 3) / 4 + doy) * DAY + time_us;
}

/* "2024-01-31 10:00:00" */
static int64_t date_at(const char *p, const char *end)
{
    if (end - p < 19 || (p[4] != '-' && p[4] != '/') || p[7] != p[4] || !strchr("T ,_", p[10]))
        return -1;
    return digits(p, 4) < 1990 ? -1 : dated(digits(p, 4), digits(p + 5, 2), digits(p + 8, 2), clock_time(p + 11, end));
}

/* "Jan 31 10:00:00", "Jan  1 10:00:00" */
static int64_t month_at(const char *p, const char *end)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    if (end - p < 15 || p[3] != ' ' || p[6] != ' ')
        return -1;
    for (int64_t m = 0; m < 12; m++)
        if (memcmp(p, names + 3 * m, 3) == 0)
            return dated(1, m + 1, digits(p + (p[4] == ' ' ? 5 : 4), p[4] == ' ' ? 1 : 2), clock_time(p + 7, end));
    return -1;
}

/* "I0131 10:00:00.5"; libtorch leaves the month's zero out: "E131 10:00:00.5" */
static int64_t glog_at(const char *p, const char *end)
{
    size_t n;

    if (!strchr("IWEF", *p))
        return -1;
    n = count_digits(p + 1, end);
    if ((n != 3 && n != 4) || end - p < (ptrdiff_t) n + 10 || p[n + 1] != ' ')
        return -1;
    return dated(1, digits(p + 1, n - 2), digits(p + n - 1, 2), clock_time(p + n + 2, end));
}

/* "[ 1234.567890]" */
static int64_t uptime_at(const char *p, const char *end)
{
    size_t n;
    int64_t s;

    for (p++; p < end && *p == ' '; p++)
        ;
    n = count_digits(p, end);
    if (n == 0 || n > 9 || p + n + 2 > end || p[n] != '.')
        return -1;
    s = digits(p, n) * SECOND + fraction(p + n, end);
    p += n + 1;
    n = count_digits(p, end);
    return n >= 1 && p + n < end && p[n] == ']' ? s : -1;
}

/* "[10:00<", "[1:10:00<", "[01:10, " */
static int64_t bar_at(const char *p, const char *end)
{
    int64_t s = 0;
    int parts = 0;

    for (p++; parts < 3; p++) {
        size_t n = count_digits(p, end);
        if (n == 0 || n > 3)
            return -1;
        s = s * 60 + digits(p, n);
        parts++;
        p += n;
        if (p >= end)
            return -1;
        if (*p != ':')
            break;
    }
    return parts >= 2 && (*p == '<' || *p == ',') ? s * SECOND : -1;
}

static void stamp(struct logclock *c, unsigned form, int64_t at_us)
{
    int64_t last_us = c->form[form].last_us, back_us = form >= LOGCLOCK_BAR ? BACK_BAR : BACK_MAX;

    if (last_us < 0 || at_us < last_us - back_us || at_us - last_us > JUMP_MAX) {
        c->form[form].base_us = c->now_us - at_us; /* the first of its form, or of another run */
        c->form[form].last_us = at_us;
    } else if (at_us > last_us) {
        c->form[form].last_us = at_us;
        if (c->form[form].base_us + at_us > c->now_us)
            c->now_us = c->form[form].base_us + at_us;
    }
}

/* The form of the bar whose time begins at @p: bars are told apart by the count before that, "571/801 [". */
static unsigned bar_form(struct logclock *c, const char *line, const char *p)
{
    int64_t length = 0;
    const char *q = p;

    while (q > line && q[-1] == ' ')
        q--;
    for (int64_t scale = 1; q > line && digit(q[-1]) && scale < INT64_C(1000000000000); q--, scale *= 10)
        length += (q[-1] - '0') * scale;
    if (q == line || q[-1] != '/')
        length = 0;
    for (unsigned i = 0; i < ADV_ARRAY_LEN(c->bar); i++)
        if (c->bar[i] == length)
            return LOGCLOCK_BAR + i;
    c->next_bar = (c->next_bar + 1) % ADV_ARRAY_LEN(c->bar);
    c->bar[c->next_bar] = length;
    c->form[LOGCLOCK_BAR + c->next_bar].last_us = -1;
    return LOGCLOCK_BAR + c->next_bar;
}

/* The number behind @key, with its blanks and signs between; -1 if there is none. In millionths. */
static int64_t number_after(const char *line, const char *end, const char *key)
{
    const char *p = memmem(line, (size_t) (end - line), key, strlen(key));
    size_t n;

    if (!p)
        return -1;
    for (p += strlen(key); p < end && strchr(" =:\"'", *p); p++)
        ;
    n = count_digits(p, end);
    return n == 0 || n > 9 ? -1 : digits(p, n) * SECOND + fraction(p + n, end);
}

/* Lines that say how long each step took; most of those have no stamp, and then time @moves by it. */
static void told(struct logclock *c, const char *line, const char *end, bool moves)
{
    static const struct {
        const char *step, *time;
        int64_t unit_us;
    } table[] = {
        { "iteration", "elapsed time per iteration (ms)", 1000 },
        { "iteration", "elapsed time per iteration (s)", SECOND },
        { "completed step", "seconds", SECOND },
        { "global_step", "train_step_timing in s", SECOND },
        { "step ", "step_time", SECOND },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(table); i++) {
        int64_t step = number_after(line, end, table[i].step), time, n;
        if (step < 0 || (time = number_after(line, end, table[i].time)) <= 0)
            continue;
        step /= SECOND;
        time = time / SECOND * table[i].unit_us + time % SECOND * table[i].unit_us / SECOND;
        n = step - c->step;
        if (moves && c->step >= 0 && n > 0 && n <= 1000 && time <= STEP_MAX && n * time <= STEP_MAX)
            c->now_us += n * time;
        c->step = step;
        if (time <= STEP_MAX)
            c->step_us = time;
        return;
    }
}

void logclock_init(struct logclock *c, int64_t now_us)
{
    *c = (struct logclock) { .now_us = now_us, .step = -1 };
    for (unsigned i = 0; i < LOGCLOCK_FORMS; i++)
        c->form[i].last_us = -1;
}

int64_t logclock_line(struct logclock *c, const char *line, size_t len)
{
    const char *end = line + (len > LINE_MAX ? LINE_MAX : len), *head = line + (len > HEAD_MAX ? HEAD_MAX : len);
    int64_t before_us = c->now_us, at_us = -1;

    while (end > line && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' '))
        end--;
    if ((end - line == 5 && memcmp(line, "[...]", 5) == 0) || (end - line == 3 && memcmp(line, "...", 3) == 0)) {
        for (unsigned i = 0; i < LOGCLOCK_FORMS; i++)
            c->form[i].last_us = -1;
        c->step = -1;
        return c->now_us;
    }
    for (const char *p = line; p < end && p < head && at_us < 0; p++) {
        bool begins = p == line || !(digit(p[-1]) || (p[-1] >= 'A' && p[-1] <= 'Z') || (p[-1] >= 'a' && p[-1] <= 'z'));
        enum logclock_form form = LOGCLOCK_DATE;
        if (!begins)
            continue;
        if (digit(*p))
            at_us = date_at(p, end);
        if (at_us < 0 && *p >= 'A' && *p <= 'W' && (at_us = month_at(p, end)) >= 0)
            form = LOGCLOCK_MONTH;
        if (at_us < 0 && *p >= 'E' && *p <= 'W' && (at_us = glog_at(p, end)) >= 0)
            form = LOGCLOCK_GLOG;
        if (at_us < 0 && *p == '[' && p == line && (at_us = uptime_at(p, end)) >= 0)
            form = LOGCLOCK_UPTIME;
        if (at_us >= 0)
            stamp(c, form, at_us);
    }
    if (at_us < 0) {
        for (const char *p = line; (p = memchr(p, '[', (size_t) (end - p))); p++)
            if ((at_us = bar_at(p, end)) >= 0) {
                stamp(c, bar_form(c, line, p), at_us);
                break;
            }
    }
    told(c, line, end, c->now_us == before_us);
    return c->now_us;
}
