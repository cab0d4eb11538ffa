/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_WATCHLOG_H
#define CONTROLPLANE_DOMAIN_WATCHLOG_H

/* The newest changes of the fleet, in order, without gaps: which resource changed, not its content. A watcher keeps
 * its own position (a sequence number) and reads forward; one that falls behind the floor has to start again. So a slow
 * watcher costs nothing but its number.
 *
 * Thread: loop thread.  Blocks: no.  Memory: bounded by the capacity. */

#include "controlplane/domain/model.h"

struct change {
    uint64_t seq;      /* fleet-wide, rises by one */
    uint64_t revision; /* of the cluster, rises by one within it */
    enum resource_kind kind;
    const char *cluster; /* the same pointer for the same cluster, as long as the log lives */
    const char *key;     /* resource_key() */
};

struct watchlog {
    struct watchlog_slot *ring;
    struct watchlog_name *names;
    const char *last_name;
    size_t cap;
    uint64_t first; /* lowest sequence kept; first > last: empty */
    uint64_t last;  /* newest sequence */
};

adv_must_check int watchlog_init(struct watchlog *w, size_t capacity, uint64_t last_seq);
void watchlog_done(struct watchlog *w);

/* Appends; @seq must be last + 1. Copies the strings. Errors: -ADV_RESOURCE_EXHAUSTED (nothing changed). */
adv_must_check int watchlog_append(struct watchlog *w, uint64_t seq, uint64_t revision, enum resource_kind kind,
                                   const char *cluster, const char *key);

/* The change after @seq; NULL when there is none yet. @ret_gone is set when it is no longer kept.
 * Borrowed until the next append. */
const struct change *watchlog_after(const struct watchlog *w, uint64_t seq, bool *ret_gone);

#endif
