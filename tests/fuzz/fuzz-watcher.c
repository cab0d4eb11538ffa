/* SPDX-License-Identifier: Apache-2.0 */

/* A log of any bytes, scanned at once and in pieces: both must tell the same, excerpts must be UTF-8, memory must stay in
 * its bound. The first byte decides on the stream, the pieces and a gap. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/utf8.h"
#include "controlplane/watcher/watcher.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void digest(void *ctx, const struct watcher_finding *f)
{
    uint64_t *sum = ctx;
    size_t len = strnlen(f->excerpt, sizeof(f->excerpt));

    if (len == sizeof(f->excerpt) || !adv_utf8_valid(f->excerpt, len) ||
        !adv_utf8_valid(f->node, strlen(f->node)) ||
        !adv_utf8_valid(f->reporter, strlen(f->reporter)) || f->step < -1 || f->rank < -1)
        abort();
    *sum = *sum * 1000003u + f->offset * 31u + (uint64_t) (f->step + 2) * 7u + (uint64_t) f->type +
           f->sha256[0] + len;
}

static uint64_t scan(struct watcher_rules *rules, enum watcher_scope stream, const uint8_t *data,
                     size_t size, size_t piece)
{
    uint64_t sum = 1;
    struct watcher_scan_options o = {
        .stream = stream, .node = "nodea", .fn = digest, .ctx = &sum
    };
    struct watcher_scan *s = NULL;

    if (watcher_scan_new(rules, &o, &s, NULL) < 0)
        abort();
    for (size_t at = 0; at < size; at += piece) {
        if (watcher_scan_feed(s, at, data + at, size - at < piece ? size - at : piece, 0, 1, NULL) <
                0 ||
            watcher_scan_memory(s) > WATCHER_SCAN_MAX_BYTES)
            abort();
    }
    watcher_scan_finish(s, 2);
    (void) watcher_scan_free(s);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct watcher_rules *rules;
    enum watcher_scope stream;
    size_t piece;

    if (!rules && watcher_rules_load(ADVISOR_RULES_DIR, &rules, NULL) < 0)
        abort();
    if (size < 1)
        return 0;
    stream = (enum watcher_scope)(data[0] % 3);
    piece = 1 + data[0] / 3;
    data++;
    size--;
    if (scan(rules, stream, data, size, size + 1) != scan(rules, stream, data, size, piece))
        abort();
    return 0;
}
