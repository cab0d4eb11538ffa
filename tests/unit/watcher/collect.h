/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_TESTS_WATCHER_COLLECT_H
#define ADV_TESTS_WATCHER_COLLECT_H

/* Findings as text, one a line, for comparison. */

#include <criterion/criterion.h>

#include "common/buf.h"
#include "controlplane/watcher/watcher.h"

static inline struct watcher_rules *shipped_rules(void)
{
    struct watcher_rules *rules = NULL;
    struct adv_err e;

    cr_assert_eq(watcher_rules_load(ADVISOR_RULES_DIR, &rules, &e), 0, "%s", e.msg);
    return rules;
}

static inline void collect(void *ctx, const struct watcher_finding *f)
{
    struct adv_buf *b = ctx;
    char hex[ADV_SHA256_HEX_SIZE];

    (void) adv_buf_appendf(b,
                           "%s %s at=%llu step=%lld/%lld%s rank=%d local=%d task=%d node=%s "
                           "from=%s dev=%s code=%d tb=%d [%s] %.8s\n",
                           watcher_finding_type_name(f->type), f->rule->id,
                           (unsigned long long) f->offset, (long long) f->step,
                           (long long) f->total, f->step_inferred ? "?" : "", f->rank,
                           f->local_rank, f->task, f->node, f->reporter, f->device, f->code,
                           f->in_traceback, f->excerpt, adv_hex(f->sha256, sizeof(f->sha256), hex));
}

/* Scans @text in pieces of @piece bytes (0: at once); the result is malloc'd. */
static inline char *scan_pieces(struct watcher_rules *rules, enum watcher_scope stream,
                                const char *node, const char *text, size_t len, size_t piece)
{
    struct watcher_scan_options o = { .stream = stream, .node = node, .fn = collect };
    ADV_AUTO(watcher_scan) s = NULL;
    ADV_AUTO_DONE(adv_buf) out = { 0 };

    adv_buf_init(&out, 64 << 20);
    o.ctx = &out;
    cr_assert_eq(watcher_scan_new(rules, &o, &s, NULL), 0);
    if (piece == 0)
        piece = len ? len : 1;
    for (size_t at = 0; at < len; at += piece) {
        /* A copy of its own, so that a read beyond the piece is seen. */
        size_t n = len - at < piece ? len - at : piece;
        adv_auto_free char *copy = malloc(n);
        memcpy(copy, text + at, n);
        cr_assert_eq(watcher_scan_feed(s, at, copy, n, 0, 1000, NULL), 0);
        cr_assert_leq(watcher_scan_memory(s), WATCHER_SCAN_MAX_BYTES);
    }
    watcher_scan_finish(s, 2000);
    cr_assert_leq(watcher_scan_memory(s), WATCHER_SCAN_MAX_BYTES);
    cr_assert_eq(adv_buf_error(&out), 0);
    char *result = adv_buf_steal(&out, NULL);
    return result ? result : strdup("");
}

static inline char *scan_text(struct watcher_rules *rules, const char *text)
{
    return scan_pieces(rules, WATCHER_SCOPE_APPLICATION, NULL, text, strlen(text), 0);
}

#endif
