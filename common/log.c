/* SPDX-License-Identifier: Apache-2.0 */

/* A line is built on the stack and written once, so threads need no lock and a forked child cannot
 * inherit a held one. Text from outside is escaped to printable ASCII plus valid UTF-8: a job name
 * cannot forge a second line nor drive a terminal. */

#include "common/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/utf8.h"

static struct {
    enum adv_log_format format;
    int level;
    int fd;
} conf = { ADV_LOG_TEXT, ADV_LOG_INFO, STDERR_FILENO };

static const char *const level_names[] = { "debug", "info", "warn", "error" };

struct line {
    char data[ADV_LOG_LINE_MAX];
    size_t len;
    bool full;
};

#define LINE_RESERVE 16 /* for " cut=1", the brace and the newline */

void adv_log_init(enum adv_log_format format, enum adv_log_level min_level, int fd)
{
    conf.format = format;
    conf.fd = fd;
    adv_log_set_level(min_level);
}

void adv_log_set_level(enum adv_log_level min_level)
{
    __atomic_store_n(&conf.level, (int) min_level, __ATOMIC_RELAXED);
}

bool adv_log_enabled(enum adv_log_level level)
{
    return (int) level >= __atomic_load_n(&conf.level, __ATOMIC_RELAXED);
}

static void put(struct line *l, const char *bytes, size_t len)
{
    if (l->full || l->len + len > sizeof(l->data) - LINE_RESERVE) {
        l->full = true;
        return;
    }
    memcpy(l->data + l->len, bytes, len);
    l->len += len;
}

static void put_str(struct line *l, const char *s)
{
    put(l, s, strlen(s));
}

static bool plain(const char *s)
{
    if (*s == '\0')
        return false;
    for (; *s; s++) {
        if (*s <= ' ' || *s == '"' || *s == '=' || *s == '\\' || *s == 0x7F)
            return false; /* bytes above 0x7F are quoted or pass: both fine */
    }
    return true;
}

/* Writes @s in quotes. JSON and logfmt share the escapes; control characters are \u00XX in both. */
static void put_quoted(struct line *l, const char *s)
{
    put(l, "\"", 1);
    for (; *s; s++) {
        unsigned char c = (unsigned char) *s;
        char esc[8];

        if (c == '"' || c == '\\') {
            esc[0] = '\\';
            esc[1] = (char) c;
            put(l, esc, 2);
        } else if (c == '\n') {
            put(l, "\\n", 2);
        } else if (c == '\t') {
            put(l, "\\t", 2);
        } else if (c < 0x20 || c == 0x7F) {
            (void) snprintf(esc, sizeof(esc), "\\u%04x", c);
            put(l, esc, 6);
        } else {
            put(l, s, 1);
        }
    }
    put(l, "\"", 1);
}

static void put_value(struct line *l, const char *s)
{
    char cut[ADV_LOG_VALUE_MAX + 4];
    size_t len, n;

    if (!s)
        s = "-";
    len = strnlen(s, ADV_LOG_VALUE_MAX + 1);
    n = adv_utf8_lossy_buf(cut, ADV_LOG_VALUE_MAX + 1, s,
                           len < ADV_LOG_VALUE_MAX ? len : ADV_LOG_VALUE_MAX);
    if (len > ADV_LOG_VALUE_MAX)
        memcpy(cut + n, "\xE2\x80\xA6", 4); /* … and the NUL; @cut has the room */
    if (conf.format == ADV_LOG_TEXT && plain(cut))
        put_str(l, cut);
    else
        put_quoted(l, cut);
}

static void put_key(struct line *l, const char *key)
{
    if (conf.format == ADV_LOG_TEXT) {
        if (l->len > 0)
            put(l, " ", 1);
        put_str(l, key);
        put(l, "=", 1);
    } else {
        put(l, l->len > 0 ? ",\"" : "{\"", 2);
        put_str(l, key);
        put(l, "\":", 2);
    }
}

static void put_field(struct line *l, const char *key, const char *value)
{
    size_t before = l->len;

    put_key(l, key);
    put_value(l, value);
    if (l->full)
        l->len = before;
}

static void put_number(struct line *l, const struct adv_field *f)
{
    size_t before = l->len;
    char num[24];

    if (f->type == ADV_FIELD_I64)
        (void) snprintf(num, sizeof(num), "%" PRId64, f->v.i);
    else
        (void) snprintf(num, sizeof(num), "%" PRIu64, f->v.u);
    put_key(l, f->key);
    put_str(l, num);
    if (l->full)
        l->len = before;
}

void adv_log_write(enum adv_log_level level, const char *topic, const char *event, ...)
{
    int keep = errno;
    struct line l;
    char time[ADV_RFC3339_SIZE];
    va_list ap;

    l.len = 0;
    l.full = false;
    put_field(&l, "time", adv_rfc3339_format(adv_wall_us(), time));
    put_field(&l, "level", level_names[level]);
    put_field(&l, "topic", topic);
    put_field(&l, "event", event);
    va_start(ap, event);
    for (;;) {
        struct adv_field f = va_arg(ap, struct adv_field);

        if (!f.key)
            break;
        if (f.type == ADV_FIELD_STR)
            put_field(&l, f.key, f.v.s);
        else
            put_number(&l, &f);
    }
    va_end(ap);
    const char *tail = conf.format == ADV_LOG_TEXT ? (l.full ? " cut=1\n" : "\n")
                                                   : (l.full ? ",\"cut\":1}\n" : "}\n");
    memcpy(l.data + l.len, tail, strlen(tail));
    l.len += strlen(tail);
    ssize_t n;
    do
        n = write(conf.fd, l.data, l.len);
    while (n < 0 && errno == EINTR);
    errno = keep;
}

bool adv_log_ratelimit(struct adv_ratelimit *rl, unsigned int per_second)
{
    uint64_t now = (uint64_t) (adv_mono_us() / 1000000) & 0xFFFFFFFF;
    uint64_t old = __atomic_load_n(&rl->state_, __ATOMIC_RELAXED), want;

    do {
        uint64_t count = old >> 32 == now ? (old & 0xFFFFFFFF) : 0;

        if (count >= per_second) {
            (void) __atomic_add_fetch(&rl->suppressed_, 1, __ATOMIC_RELAXED);
            return false;
        }
        want = now << 32 | (count + 1);
    } while (!__atomic_compare_exchange_n(&rl->state_, &old, want, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

uint64_t adv_ratelimit_take_suppressed(struct adv_ratelimit *rl)
{
    return __atomic_exchange_n(&rl->suppressed_, 0, __ATOMIC_RELAXED);
}
