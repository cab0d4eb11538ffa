/* SPDX-License-Identifier: Apache-2.0 */

/* Calendar arithmetic is done here (days from civil, proleptic Gregorian) instead of timegm/gmtime:
 * no locale, no TZ lookup, same answer everywhere, and it stays usable in pure code. */

#include "common/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/num.h"

#define US_PER_S   INT64_C(1000000)
#define US_PER_DAY (86400 * US_PER_S)

static int64_t read_clock(clockid_t id)
{
    struct timespec ts;

    (void) clock_gettime(id, &ts);
    return (int64_t) ts.tv_sec * US_PER_S + ts.tv_nsec / 1000;
}

int64_t adv_mono_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t adv_boot_us(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

#ifdef ADV_FAILPOINTS
/* Tests make the wall clock jump for one program: ADVISOR_WALL_OFFSET names a file with seconds to add. */
static int64_t wall_offset_us(void)
{
    const char *path = getenv("ADVISOR_WALL_OFFSET");
    char text[32];
    int64_t seconds = 0;
    ssize_t n;
    int fd = path && *path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return 0;
    n = read(fd, text, sizeof(text) - 1);
    (void) close(fd);
    if (n > 0) {
        text[n] = '\0';
        if (adv_parse_i64(text, -100000, 100000, &seconds, NULL) < 0)
            seconds = 0;
    }
    return seconds * US_PER_S;
}
#else
static int64_t wall_offset_us(void)
{
    return 0;
}
#endif

int64_t adv_wall_us(void)
{
    return read_clock(CLOCK_REALTIME) + wall_offset_us();
}

static int64_t days_from_civil(int64_t y, int m, int d)
{
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t yoe = y - era * 400;
    int64_t doy = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;

    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static void civil_from_days(int64_t z, int64_t *y, int *m, int *d)
{
    z += 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097;
    int64_t doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;

    *d = (int) (doy - (153 * mp + 2) / 5 + 1);
    *m = (int) (mp < 10 ? mp + 3 : mp - 9);
    *y = yoe + era * 400 + (*m <= 2);
}

bool adv_wall_held(int64_t *distance_us, int64_t wall_us, int64_t boot_us)
{
    const int64_t slack_us = 3600 * US_PER_S, was_us = *distance_us;

    *distance_us = wall_us - boot_us;
    return *distance_us - was_us <= slack_us && was_us - *distance_us <= slack_us;
}

const char *adv_rfc3339_format(int64_t wall_us, char out[ADV_RFC3339_SIZE])
{
    const int64_t lo = days_from_civil(1, 1, 1) * US_PER_DAY;
    const int64_t hi = days_from_civil(10000, 1, 1) * US_PER_DAY - 1;
    int64_t t = wall_us < lo ? lo : wall_us > hi ? hi : wall_us;
    int64_t days = t / US_PER_DAY, rest = t % US_PER_DAY, y;
    int m, d;

    if (rest < 0) {
        rest += US_PER_DAY;
        days--;
    }
    civil_from_days(days, &y, &m, &d);
    unsigned int sec = (unsigned int) (rest / US_PER_S);
    (void) snprintf(out, ADV_RFC3339_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ",
                    (unsigned int) y % 10000, (unsigned int) m % 100, (unsigned int) d % 100,
                    sec / 3600 % 100, sec / 60 % 60, sec % 60, (unsigned int) (rest % US_PER_S));
    return out;
}

/* Reads exactly @n digits. */
static bool digits(const char **p, int n, int *ret)
{
    int v = 0;

    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        v = v * 10 + (**p - '0');
    }
    *ret = v;
    return true;
}

static bool literal(const char **p, const char *any)
{
    if (**p == '\0' || !strchr(any, **p))
        return false;
    (*p)++;
    return true;
}

static int days_in_month(int y, int m)
{
    static const int n[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

    return m == 2 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0) ? 29 : n[m - 1];
}

int adv_rfc3339_parse(const char *text, int64_t *ret_wall_us, struct adv_err *err)
{
    const char *p = text;
    int y, mo, d, h, mi, s, oh = 0, om = 0, sign = 1;
    int64_t frac = 0;

    if (!digits(&p, 4, &y) || !literal(&p, "-") || !digits(&p, 2, &mo) || !literal(&p, "-") ||
        !digits(&p, 2, &d) || !literal(&p, "Tt ") || !digits(&p, 2, &h) || !literal(&p, ":") ||
        !digits(&p, 2, &mi) || !literal(&p, ":") || !digits(&p, 2, &s))
        goto bad;
    if (*p == '.') {
        int64_t unit = 100000;

        p++;
        if (*p < '0' || *p > '9')
            goto bad;
        for (; *p >= '0' && *p <= '9'; p++, unit /= 10)
            frac += unit * (*p - '0');
    }
    if (*p == 'Z' || *p == 'z') {
        p++;
    } else {
        sign = *p == '-' ? -1 : 1;
        if (!literal(&p, "+-") || !digits(&p, 2, &oh) || !literal(&p, ":") || !digits(&p, 2, &om))
            goto bad;
    }
    if (*p != '\0' || y < 1 || mo < 1 || mo > 12 || d < 1 || d > days_in_month(y, mo) || h > 23 ||
        mi > 59 || s > 60 || oh > 23 || om > 59)
        goto bad;
    if (s == 60) {
        s = 59;
        frac = US_PER_S - 1;
    }
    int64_t sec =
        days_from_civil(y, mo, d) * 86400 + h * 3600 + mi * 60 + s - sign * (oh * 3600 + om * 60);
    *ret_wall_us = sec * US_PER_S + frac;
    return 0;
bad:
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "not an RFC 3339 time: \"%.40s\"", text);
}
