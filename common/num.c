/* SPDX-License-Identifier: Apache-2.0 */

/* strtol and friends skip blanks, take signs and prefixes, depend on errno and need four checks at
 * each call site. Here digits are read by hand; a decimal fraction is kept as an integer numerator
 * over a power of ten, so no floating point rounds a duration. */

#include "common/num.h"

#include <inttypes.h>
#include <stdio.h>

/* Reads decimal digits; false when there is none or the value passes UINT64_MAX. */
static bool read_digits(const char **p, uint64_t *ret, bool *ret_overflow)
{
    uint64_t v = 0;
    const char *start = *p;

    *ret_overflow = false;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t) (**p - '0'), &v))
            *ret_overflow = true;
    }
    *ret = v;
    return *p != start;
}

int adv_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct adv_err *err)
{
    const char *p = text;
    uint64_t v;
    bool over;

    if (!read_digits(&p, &v, &over) || *p != '\0')
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "not a whole number: \"%.40s\"", text);
    if (over || v < min || v > max)
        return adv_err_set(err, ADV_OUT_OF_RANGE, "%.40s is outside %" PRIu64 "..%" PRIu64, text,
                           min, max);
    *ret = v;
    return 0;
}

int adv_parse_i64(const char *text, int64_t min, int64_t max, int64_t *ret, struct adv_err *err)
{
    bool neg = text[0] == '-', over;
    const char *p = text + (neg ? 1 : 0);
    uint64_t v;

    if (!read_digits(&p, &v, &over) || *p != '\0')
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "not a whole number: \"%.40s\"", text);
    over = over || v > (uint64_t) INT64_MAX + (neg ? 1U : 0U);
    int64_t s = over ? 0 : neg ? (int64_t) (0 - v) : (int64_t) v;
    if (over || s < min || s > max)
        return adv_err_set(err, ADV_OUT_OF_RANGE, "%.40s is outside %" PRId64 "..%" PRId64, text,
                           min, max);
    *ret = s;
    return 0;
}

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit duration_units[] = {
    { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
};

static const struct unit size_units[] = {
    { "", 1 },
    { "B", 1 },
    { "KiB", INT64_C(1) << 10 },
    { "MiB", INT64_C(1) << 20 },
    { "GiB", INT64_C(1) << 30 },
    { "TiB", INT64_C(1) << 40 },
    { "KB", 1000 },
    { "kB", 1000 },
    { "MB", 1000000 },
    { "GB", 1000000000 },
    { "TB", INT64_C(1000000000000) },
};

static int parse_units(const char *text, const struct unit *units, size_t n, const char *what,
                       int64_t min, int64_t max, int64_t *ret, struct adv_err *err)
{
    const char *p = text;
    uint64_t whole, frac = 0, scale = 1;
    bool over, fraction = false;

    if (!read_digits(&p, &whole, &over))
        goto bad;
    if (*p == '.') {
        fraction = true;
        if (*++p < '0' || *p > '9')
            goto bad;
        for (; *p >= '0' && *p <= '9'; p++) {
            if (scale < 1000000) { /* six digits are enough for any unit here */
                frac = frac * 10 + (uint64_t) (*p - '0');
                scale *= 10;
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t v, f;

        if (strcmp(p, units[i].name) != 0)
            continue;
        if (fraction && units[i].factor == 1)
            goto bad; /* half a byte, half a millisecond */
        uint64_t factor = (uint64_t) units[i].factor;
        f = frac * (factor / scale) + frac * (factor % scale) / scale;
        if (over || __builtin_mul_overflow(whole, factor, &v) || __builtin_add_overflow(v, f, &v) ||
            v > (uint64_t) INT64_MAX || (int64_t) v < min || (int64_t) v > max)
            return adv_err_set(err, ADV_OUT_OF_RANGE, "%s %.40s is out of range", what, text);
        *ret = (int64_t) v;
        return 0;
    }
bad:
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "not a %s: \"%.40s\"", what, text);
}

int adv_parse_duration_ms(const char *text, int64_t min_ms, int64_t max_ms, int64_t *ret_ms,
                          struct adv_err *err)
{
    return parse_units(text, duration_units, ADV_ARRAY_LEN(duration_units),
                       "duration (200ms, 1.5s, 5m, 2h, 1d)", min_ms, max_ms, ret_ms, err);
}

int adv_parse_size(const char *text, int64_t min_bytes, int64_t max_bytes, int64_t *ret_bytes,
                   struct adv_err *err)
{
    return parse_units(text, size_units, ADV_ARRAY_LEN(size_units), "size (4096, 64KiB, 10MB)",
                       min_bytes, max_bytes, ret_bytes, err);
}

static const char *format_units(int64_t v, const struct unit *units, size_t n, const char *zero,
                                char out[ADV_NUM_TEXT_SIZE])
{
    const struct unit *best = &units[0];

    if (v == 0) {
        (void) snprintf(out, ADV_NUM_TEXT_SIZE, "%s", zero);
        return out;
    }
    for (size_t i = 0; i < n; i++) {
        if (v % units[i].factor == 0 && units[i].factor > best->factor)
            best = &units[i];
    }
    (void) snprintf(out, ADV_NUM_TEXT_SIZE, "%" PRId64 "%s", v / best->factor, best->name);
    return out;
}

const char *adv_format_duration_ms(int64_t ms, char out[ADV_NUM_TEXT_SIZE])
{
    return format_units(ms, duration_units, ADV_ARRAY_LEN(duration_units), "0s", out);
}

const char *adv_format_size(int64_t bytes, char out[ADV_NUM_TEXT_SIZE])
{
    return format_units(bytes, size_units, 6, "0", out); /* plain and binary units only */
}
