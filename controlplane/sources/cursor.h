/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SOURCES_CURSOR_H
#define CONTROLPLANE_SOURCES_CURSOR_H

/* How far one log has been read by asking again and again for what came since, so that each line is taken once although
 * lines arrive late and in any order.
 *
 * Each request begins `late` before the newest line that was seen; lines already taken are known by their hash. A page that is
 * full goes on at its last line. What cannot be had (older than the backlog, or more lines of one and the same moment than a
 * page holds) is left out and shows in `lost`, once and for all. Memory is bounded by CURSOR_SEEN_MAX; beyond it the
 * tolerance for late lines shrinks. Pure.
 *
 * Thread: one owner.  Blocks: no. */

#include "controlplane/sources/answer.h"

#define CURSOR_SEEN_MAX 4096

struct cursor_seen {
    int64_t ts_ns;
    uint64_t hash;
};

struct cursor {
    int64_t begin_ns;  /* nothing before it is taken */
    int64_t newest_ns; /* 0: none yet */
    int64_t read_ns;   /* up to here nothing is missing */
    int64_t floor_ns;  /* what is older was seen and forgotten */
    bool paging;       /* the last page was full */
    int64_t page_ns;   /* ... and this is where the next one begins */
    struct cursor_seen *seen; /* in order */
    size_t n_seen, cap_seen;
    uint64_t lost; /* how often something was left out */
};

/* What was before @now_ns and is not asked for is nobody's loss. */
void cursor_init(struct cursor *c, int64_t begin_ns, int64_t now_ns);
void cursor_done(struct cursor *c);

/* Where the next request begins: at @now_ns. */
int64_t cursor_start(struct cursor *c, int64_t now_ns, int64_t late_ns, int64_t backlog_ns);

/* Lines of the answer that are new come to the front of @a->lines, still in order; @a->n_lines becomes their number. Lines outside of
 * @start_ns..@end_ns are not taken. Returns whether there is more to ask for at once.
 * Errors: -ADV_RESOURCE_EXHAUSTED (nothing changed). */
adv_must_check int cursor_take(struct cursor *c, struct source_answer *a, int64_t start_ns, int64_t end_ns, int64_t limit,
                               int64_t late_ns, bool *ret_more);

#endif
