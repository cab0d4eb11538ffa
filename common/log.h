/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_LOG_H
#define ADV_COMMON_LOG_H

/* One line = one event:
 *
 *     adv_warn("session", "agent unreachable, advice is held", ADV_FS("cluster", name),
 *              ADV_FI("silent_ms", ms));
 *
 *     time=2026-01-02T03:04:05.123456Z level=warn topic=session
 *         event="agent unreachable, advice is held" cluster=a silent_ms=31000      (on one line)
 *
 * Warnings say what happens next. Values may come from outside: text is quoted, escaped and cut at
 * ADV_LOG_VALUE_MAX bytes; a line never passes ADV_LOG_LINE_MAX bytes (fields that do not fit are
 * left out and `cut=1` says so). Secrets and job environments do not belong here.
 *
 * Any thread: a line is one write(2). May block if the log's reader does. Keeps errno. */

#include <stdint.h>

#include "common/macros.h"

#define ADV_LOG_VALUE_MAX 200
#define ADV_LOG_LINE_MAX  4096

enum adv_log_level {
    ADV_LOG_DEBUG,
    ADV_LOG_INFO,
    ADV_LOG_WARN,
    ADV_LOG_ERROR,
};

enum adv_log_format {
    ADV_LOG_TEXT,
    ADV_LOG_JSON,
};

/* Call once before threads exist; without it: text, INFO and above, stderr. @fd is borrowed. */
void adv_log_init(enum adv_log_format format, enum adv_log_level min_level, int fd);

/* Any thread. */
void adv_log_set_level(enum adv_log_level min_level);
bool adv_log_enabled(enum adv_log_level level);

/* One key=value. Keys are static text of [a-z0-9_]. */
struct adv_field {
    const char *key; /* NULL ends a list */
    enum { ADV_FIELD_STR, ADV_FIELD_I64, ADV_FIELD_U64 } type;
    union {
        const char *s; /* NULL is written as "-" */
        int64_t i;
        uint64_t u;
    } v;
};

#define ADV_FS(k, val) ((struct adv_field){ .key = (k), .type = ADV_FIELD_STR, .v.s = (val) })
#define ADV_FI(k, val) ((struct adv_field){ .key = (k), .type = ADV_FIELD_I64, .v.i = (val) })
#define ADV_FU(k, val) ((struct adv_field){ .key = (k), .type = ADV_FIELD_U64, .v.u = (val) })
#define ADV_FEND       ((struct adv_field){ .key = NULL })

/* The arguments after @topic are the event's text and then any number of fields. */
#define adv_debug(topic, ...) ADV_LOG_(ADV_LOG_DEBUG, topic, __VA_ARGS__)
#define adv_info(topic, ...)  ADV_LOG_(ADV_LOG_INFO, topic, __VA_ARGS__)
#define adv_warn(topic, ...)  ADV_LOG_(ADV_LOG_WARN, topic, __VA_ARGS__)
#define adv_error(topic, ...) ADV_LOG_(ADV_LOG_ERROR, topic, __VA_ARGS__)
#define ADV_LOG_(level, topic, ...)                                                                \
    (adv_log_enabled(level) ? adv_log_write((level), (topic), __VA_ARGS__, ADV_FEND) : (void) 0)

/* Behind the macros: fields are `struct adv_field` by value, ended by ADV_FEND. */
void adv_log_write(enum adv_log_level level, const char *topic, const char *event, ...);

/* Lets @per_second events through in each second of monotonic time. Zero-initialise; may be static
 * and shared by threads. */
struct adv_ratelimit {
    uint64_t state_;      /* second << 32 | count in it */
    uint64_t suppressed_; /* since the last take */
};

bool adv_log_ratelimit(struct adv_ratelimit *rl, unsigned int per_second);

/* How many were held back since the last call; for a field of the next line that gets through. */
uint64_t adv_ratelimit_take_suppressed(struct adv_ratelimit *rl);

#endif
