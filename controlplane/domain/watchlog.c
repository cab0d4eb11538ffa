/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of changes addressed by sequence number: slot = seq modulo capacity. A change costs no allocation: clusters are
 * few, so their names are kept once for ever; most keys fit into their slot. */

/* A table that cannot grow leaves the new element out instead of ending the program. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(e) ((void) (e))

#include "controlplane/domain/watchlog.h"

#define KEY_INLINE 48 /* of attempts and anomalies; an action's is longer */

struct watchlog_slot {
    struct change change;
    char *heap; /* a longer key */
    char key[KEY_INLINE];
};

struct watchlog_name {
    UT_hash_handle hh;
    char name[];
};

int watchlog_init(struct watchlog *w, size_t capacity, uint64_t last_seq)
{
    *w = (struct watchlog) { .cap = capacity, .first = last_seq + 1, .last = last_seq };
    w->ring = calloc(capacity, sizeof(*w->ring));
    return w->ring ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

void watchlog_done(struct watchlog *w)
{
    struct watchlog_name *n, *next;

    for (size_t i = 0; w->ring && i < w->cap; i++)
        free(w->ring[i].heap);
    HASH_ITER(hh, w->names, n, next) {
        HASH_DEL(w->names, n);
        free(n);
    }
    free(w->ring);
    *w = (struct watchlog) { 0 };
}

static const char *name_of(struct watchlog *w, const char *cluster)
{
    size_t len = strlen(cluster);
    struct watchlog_name *n = NULL;

    if (w->last_name && strcmp(w->last_name, cluster) == 0)
        return w->last_name;
    HASH_FIND(hh, w->names, cluster, len, n);
    if (!n) {
        n = calloc(1, sizeof(*n) + len + 1);
        if (!n)
            return NULL;
        memcpy(n->name, cluster, len);
        HASH_ADD_KEYPTR(hh, w->names, n->name, len, n);
        if (!n->hh.tbl) {
            free(n);
            return NULL;
        }
    }
    return w->last_name = n->name;
}

int watchlog_append(struct watchlog *w, uint64_t seq, uint64_t revision, enum resource_kind kind, const char *cluster,
                    const char *key)
{
    struct watchlog_slot *slot = &w->ring[seq % w->cap];
    const char *name = name_of(w, cluster);
    size_t len = strlen(key);
    char *heap = NULL;

    if (!name || (len >= KEY_INLINE && !(heap = strdup(key))))
        return -ADV_RESOURCE_EXHAUSTED;
    free(slot->heap);
    slot->heap = heap;
    if (!heap)
        memcpy(slot->key, key, len + 1);
    slot->change = (struct change) { seq, revision, kind, name, heap ? heap : slot->key };
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
    return &w->ring[(seq + 1) % w->cap].change;
}
