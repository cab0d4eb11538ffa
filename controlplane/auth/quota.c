/* SPDX-License-Identifier: Apache-2.0 */
/* A bucket of tokens in millionths, so that no rounding loses any: it fills by per_second and holds burst. An entry whose bucket is full and that has
 * nothing in flight says nothing that a new one would not, so it may go. Entries stand in order of last use; the first ones
 * are looked at when room is needed, a few each time, so that no call pays for all. */

#include "controlplane/auth/quota.h"

#include <utlist.h>

#include "common/hash.h"

#define DEFAULT_MAX_ENTRIES 16384
#define LOOK_AT             8
#define ONE                 INT64_C(1000000)

struct quota_entry {
    char *who; /* NULL: shared by all who found no room */
    uint32_t in_flight;
    int64_t tokens; /* millionths */
    int64_t at_us;
    struct quota_entry *prev, *next; /* by last use */
    UT_hash_handle hh;
};

struct quota {
    struct quota_config cfg;
    struct quota_entry *by_who;
    struct quota_entry *by_use;
    struct quota_entry shared;
};

void quota_configure(struct quota *q, const struct quota_config *cfg)
{
    q->cfg = *cfg;
    if (q->cfg.burst < q->cfg.per_second)
        q->cfg.burst = q->cfg.per_second;
    if (!q->cfg.max_entries)
        q->cfg.max_entries = DEFAULT_MAX_ENTRIES;
}

struct quota *quota_new(const struct quota_config *cfg)
{
    struct quota *q = calloc(1, sizeof(*q));

    if (!q)
        return NULL;
    quota_configure(q, cfg);
    q->shared.tokens = (int64_t) q->cfg.burst * ONE;
    return q;
}

static void drop(struct quota *q, struct quota_entry *e)
{
    HASH_DEL(q->by_who, e);
    DL_DELETE(q->by_use, e);
    free(e->who);
    free(e);
}

struct quota *quota_free(struct quota *q)
{
    if (!q)
        return NULL;
    while (q->by_use)
        drop(q, q->by_use);
    free(q);
    return NULL;
}

size_t quota_count(const struct quota *q)
{
    return HASH_COUNT(q->by_who);
}

static void refill(const struct quota *q, struct quota_entry *e, int64_t now_us)
{
    int64_t full = (int64_t) q->cfg.burst * ONE, passed_us = now_us - e->at_us;

    if (passed_us > 0) {
        /* more than an hour fills any bucket; without the cut a long absence would overflow */
        int64_t us = passed_us < 3600000000 ? passed_us : 3600000000;
        e->tokens += us * q->cfg.per_second;
        e->at_us = now_us;
    }
    if (e->tokens > full || passed_us >= 3600000000)
        e->tokens = full;
}

static bool idle(const struct quota *q, struct quota_entry *e, int64_t now_us)
{
    if (e->in_flight)
        return false;
    refill(q, e, now_us);
    return !q->cfg.per_second || e->tokens == (int64_t) q->cfg.burst * ONE;
}

static void make_room(struct quota *q, int64_t now_us)
{
    struct quota_entry *e = q->by_use, *next;

    for (int i = 0; e && i < LOOK_AT; i++, e = next) {
        next = e->next;
        if (idle(q, e, now_us))
            drop(q, e);
    }
}

static struct quota_entry *entry_of(struct quota *q, const char *who, int64_t now_us)
{
    struct quota_entry *e = NULL;

    HASH_FIND_STR(q->by_who, who, e);
    if (e) {
        DL_DELETE(q->by_use, e);
        DL_APPEND(q->by_use, e);
        return e;
    }
    if (HASH_COUNT(q->by_who) >= q->cfg.max_entries)
        make_room(q, now_us);
    if (HASH_COUNT(q->by_who) >= q->cfg.max_entries || !(e = calloc(1, sizeof(*e))))
        return &q->shared;
    e->who = strdup(who);
    if (!e->who) {
        free(e);
        return &q->shared;
    }
    e->tokens = (int64_t) q->cfg.burst * ONE;
    e->at_us = now_us;
    HASH_ADD_KEYPTR(hh, q->by_who, e->who, strlen(e->who), e);
    DL_APPEND(q->by_use, e);
    return e;
}

static int wait_ms(const struct quota *q, const struct quota_entry *e)
{
    return (int) ((ONE - e->tokens) / q->cfg.per_second / 1000) + 1;
}

bool quota_spent(struct quota *q, const char *who, int64_t now_us, int *ret_retry_after_ms)
{
    struct quota_entry *e = NULL;

    if (!q->cfg.per_second)
        return false;
    HASH_FIND_STR(q->by_who, who, e);
    if (!e && HASH_COUNT(q->by_who) >= q->cfg.max_entries)
        e = &q->shared;
    if (!e)
        return false;
    refill(q, e, now_us);
    if (e->tokens >= ONE)
        return false;
    *ret_retry_after_ms = wait_ms(q, e);
    return true;
}

int quota_begin(struct quota *q, const char *who, int64_t now_us, struct quota_entry **ret, struct adv_err *err)
{
    struct quota_entry *e = entry_of(q, who, now_us);

    refill(q, e, now_us);
    if (q->cfg.in_flight && e->in_flight >= q->cfg.in_flight) {
        (void) adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "TOO_MANY_CALLS",
                                  "%.100s has %u calls under way, which is the limit", who, e->in_flight);
        if (err)
            err->retry_after_ms = 1000;
        return -ADV_RESOURCE_EXHAUSTED;
    }
    if (q->cfg.per_second && e->tokens < ONE) {
        (void) adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "RATE_LIMITED", "%.100s makes more than %u calls a second",
                                  who, q->cfg.per_second);
        if (err)
            err->retry_after_ms = wait_ms(q, e);
        return -ADV_RESOURCE_EXHAUSTED;
    }
    if (q->cfg.per_second)
        e->tokens -= ONE;
    e->in_flight++;
    *ret = e;
    return 0;
}

void quota_end(struct quota *q, struct quota_entry *e)
{
    (void) q;
    if (e)
        e->in_flight--;
}
