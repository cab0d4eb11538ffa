/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_QUOTA_H
#define CONTROLPLANE_AUTH_QUOTA_H

/* How much one client may ask for at a time: calls in flight and calls a second, per principal; and, for those who have not
 * shown who they are, failed attempts per address.
 *
 * The table has a bound: entries that are idle and full again are forgotten first; when all are busy, newcomers share one
 * entry, so a flood of names can neither grow memory nor lock known ones out.
 *
 * Pure: time comes as an argument. Thread: loop thread.  Blocks: no. */

#include <stdint.h>

#include "common/err.h"

struct quota_config {
    uint32_t in_flight;  /* 0: no limit */
    uint32_t per_second; /* 0: no limit; at most 1,000,000 */
    uint32_t burst;      /* calls that may come at once; at least per_second */
    size_t max_entries;  /* 0: 16,384 */
};

struct quota;
struct quota_entry;

/* NULL: no memory. Owner: caller. */
adv_must_check struct quota *quota_new(const struct quota_config *cfg);
struct quota *quota_free(struct quota *q); /* every call has been given back; returns NULL, tolerates NULL */
/* For calls from now on. */
void quota_configure(struct quota *q, const struct quota_config *cfg);

/* One call of @who begins; quota_end() gives it back.
 * Errors: -ADV_RESOURCE_EXHAUSTED, reason TOO_MANY_CALLS (in flight) or RATE_LIMITED, with retry_after_ms; nothing has
 *         to be given back then. */
adv_must_check int quota_begin(struct quota *q, const char *who, int64_t now_us, struct quota_entry **ret,
                                struct adv_err *err);
void quota_end(struct quota *q, struct quota_entry *e); /* tolerates NULL */

/* A call of @who would be refused for its rate; nothing is counted. @ret_retry_after_ms as in quota_begin(). */
bool quota_spent(struct quota *q, const char *who, int64_t now_us, int *ret_retry_after_ms);

size_t quota_count(const struct quota *q);

ADV_DEFINE_CLEANUP(quota, quota_free);

#endif
