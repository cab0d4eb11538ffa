/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/hosts.h"

#include <stdio.h>
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

/* Reads "2, 3" and "0-7,12" into @set. */
static bool read_ranks(const char *list, size_t len, bool set[HOSTS_RANKS_MAX])
{
    int first = -1, v = -1;

    for (size_t i = 0; i <= len; i++) {
        char c = i < len ? list[i] : ',';
        if (c >= '0' && c <= '9') {
            v = (v < 0 ? 0 : v * 10) + (c - '0');
            if (v >= HOSTS_RANKS_MAX)
                return false;
        } else if (c == '-' && v >= 0 && first < 0) {
            first = v;
            v = -1;
        } else if ((c == ',' || c == ' ') && v >= 0) {
            for (int r = first < 0 ? v : first; r <= v; r++)
                set[r] = true;
            first = v = -1;
        } else if ((c != ',' && c != ' ') || first >= 0) {
            return false;
        }
    }
    return true;
}

/* False: it does not fit. */
static bool add_text(char *dst, size_t cap, const char *text)
{
    size_t have = strlen(dst);
    int n = snprintf(dst + have, cap - have, "%s%s", have ? "," : "", text);

    return n >= 0 && (size_t) n < cap - have;
}

bool hosts_missing(const struct hosts *h, const char *list, size_t len, bool came, char *ret_names, size_t names_cap,
                   char *ret_ranks, size_t ranks_cap)
{
    bool set[HOSTS_RANKS_MAX] = { false }, named[HOSTS_MAX] = { false }, known = true, fits = true;
    unsigned n_missing = 0, n_hosts = 0;
    int end = came ? (h && h->total <= HOSTS_RANKS_MAX ? (int) h->total : 0) : HOSTS_RANKS_MAX;

    ret_names[0] = ret_ranks[0] = '\0';
    if (!read_ranks(list, len, set))
        return false;
    for (int r = 0; r < end; r++) {
        char text[12];
        uint8_t at = h ? h->at[r] : 0;
        if (set[r] == came)
            continue;
        n_missing++;
        (void) snprintf(text, sizeof(text), "%d", r);
        fits = fits && add_text(ret_ranks, ranks_cap, text);
        if (at == 0 || at == CONTRADICTED) {
            known = false;
        } else if (!named[at - 1]) {
            named[at - 1] = true;
            n_hosts++;
        }
    }
    if (!fits)
        ret_ranks[0] = '\0';
    if (!h || !known || 2 * n_hosts > h->n)
        return n_missing > 0;
    fits = true;
    for (unsigned i = 0; i < h->n; i++)
        fits = fits && (!named[i] || add_text(ret_names, names_cap, h->name[i]));
    if (!fits)
        ret_names[0] = '\0';
    return n_missing > 0;
}
