/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_ENGINE_H
#define ADV_WATCHER_ENGINE_H

/* Matching: one Hyperscan database finds which rules speak of which line, PCRE2 then confirms on that one line and
 * captures. hs.h and pcre2.h stay in engine.c. Used by this folder alone.
 * Thread: one. Blocks: engine_new() takes up to a second. */

#include <stdint.h>

#include "common/err.h"

struct watcher_rule;
struct engine;

enum engine_capture {
    ENGINE_CAPTURE_STEP = 0,
    ENGINE_CAPTURE_TOTAL,
    ENGINE_CAPTURE_RANK,
    ENGINE_CAPTURE_LOCAL_RANK,
    ENGINE_CAPTURE_TASK,
    ENGINE_CAPTURE_NODE,
    ENGINE_CAPTURE_DEVICE,
    ENGINE_CAPTURE_CODE,
    ENGINE_CAPTURE_MISSING,
    ENGINE_CAPTURE_PRESENT,
    ENGINE_N_CAPTURES,
};

struct engine_span {
    const char *s; /* NULL: not there */
    size_t len;
};

struct engine_match {
    struct engine_span capture[ENGINE_N_CAPTURES];
};

/* bytes of a line that count; also the most that one engine_scan() takes */
#define ENGINE_LINE_MAX  16384
#define ENGINE_WORK_SIZE (ENGINE_LINE_MAX + 64)

/* @rules are borrowed and must outlive the engine.
 * Errors: -ADV_INVALID_ARGUMENT (a pattern; message "file:line:column: ..."), -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int engine_new(const struct watcher_rule *rules, size_t n_rules, struct engine **ret,
                              struct adv_err *err);
struct engine *engine_free(struct engine *e);

/* For each line of @text with candidates, in order: the line without its '\n' and the rules in ascending order.
 * @text is at most ENGINE_LINE_MAX bytes and made of whole lines; only the last may lack its '\n'. */
typedef void (*engine_line_fn)(void *ctx, const char *line, size_t len, size_t offset,
                               const uint16_t *rules, size_t n);
void engine_scan(struct engine *e, const char *text, size_t len, engine_line_fn fn, void *ctx);

/* True when @rule matches @line, of which @body is the offset behind the launcher's prefix. */
bool engine_confirm(struct engine *e, size_t rule, const char *line, size_t len, size_t body,
                    struct engine_match *ret);

/* Where @rule's pattern begins to match in @line; 0 when it does not. */
size_t engine_find(struct engine *e, size_t rule, const char *line, size_t len);

/* A work area of ENGINE_WORK_SIZE bytes for the caller of engine_scan() to prepare text in. */
char *engine_work(struct engine *e);

/* An excerpt of at most @cap - 1 bytes of @line around @start: valid UTF-8, secrets replaced by "***". */
size_t engine_excerpt(struct engine *e, const char *line, size_t len, size_t start, char *dst,
                      size_t cap);

/* How often PCRE2 gave up on a line because of its limits. */
uint64_t engine_limit_hits(const struct engine *e);

size_t engine_database_bytes(const struct engine *e);
/* For bench/scan, which scans with it and nothing else. Lives as long as @e. */
struct hs_database;
const struct hs_database *engine_database(const struct engine *e);

#endif
