/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of changes addressed by sequence number: slot = seq modulo capacity. */

#include "controlplane/domain/watchlog.h"

int watchlog_init(struct watchlog *w, size_t capacity, uint64_t last_seq)
{
    *w = (struct watchlog) { .cap = capacity, .first = last_seq + 1, .last = last_seq };
    w->ring = calloc(capacity, sizeof(*w->ring));
    return w->ring ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

void watchlog_done(struct watchlog *w)
{
    for (size_t i = 0; w->ring && i < w->cap; i++) {
        free(w->ring[i].cluster);
        free(w->ring[i].key);
    }
    free(w->ring);
    *w = (struct watchlog) { 0 };
}

int watchlog_append(struct watchlog *w, uint64_t seq, uint64_t revision, enum resource_kind kind, const char *cluster,
                    const char *key)
{
    struct change *slot = &w->ring[seq % w->cap];
    adv_auto_free char *c = strdup(cluster), *n = strdup(key);

    if (!c || !n)
        return -ADV_RESOURCE_EXHAUSTED;
    free(slot->cluster);
    free(slot->key);
    *slot = (struct change) { seq, revision, kind, ADV_STEAL(c), ADV_STEAL(n) };
    w->last = seq;
    if (w->last - w->first + 1 > w->cap)
        w->first = w->last - w->cap + 1;
    return 0;
}

const struct change *watchlog_after(const struct watchlog *w, uint64_t seq, bool *ret_gone)
{
    *ret_gone = false;
    if (seq >= w->last)
        return NULL;
    if (seq + 1 < w->first) {
        *ret_gone = true;
        return NULL;
    }
    return &w->ring[(seq + 1) % w->cap];
}
