/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/hosts.h"

#include <stdbool.h>
#include <string.h>

#define CONTRADICTED 255

_Static_assert(HOSTS_MAX < CONTRADICTED, "an index fits");

static bool same_host(const char *known, const char *name, size_t len)
{
    size_t n = strlen(known), less = n < len ? n : len;

    return memcmp(known, name, less) == 0 && (n == len || (n < len ? name[less] : known[less]) == '.');
}

/* One above its index; 0: there is no room for it. */
static uint8_t name_at(struct hosts *h, const char *name, size_t len)
{
    for (unsigned i = 0; i < h->n; i++)
        if (same_host(h->name[i], name, len))
            return (uint8_t) (i + 1);
    if (h->n == HOSTS_MAX)
        return 0;
    memcpy(h->name[h->n], name, len);
    h->name[h->n][len] = '\0';
    return (uint8_t) ++h->n;
}

void hosts_note(struct hosts *h, int rank, int64_t total, const char *name, size_t len)
{
    uint8_t at;

    if (rank < 0 || rank >= HOSTS_RANKS_MAX || len == 0 || len >= HOSTS_NAME_SIZE || (total >= 0 && rank >= total))
        return;
    if (total >= 0 && total < h->total)
        return; /* of a part of the job */
    if (total > h->total) {
        memset(h, 0, sizeof(*h));
        h->total = total;
    }
    at = name_at(h, name, len);
    h->at[rank] = h->at[rank] == 0 || h->at[rank] == at ? at : CONTRADICTED;
}

const char *hosts_of(const struct hosts *h, int rank)
{
    uint8_t at = rank < 0 || rank >= HOSTS_RANKS_MAX ? 0 : h->at[rank];

    return at == 0 || at == CONTRADICTED ? NULL : h->name[at - 1];
}
