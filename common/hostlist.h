/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_HOSTLIST_H
#define ADV_COMMON_HOSTLIST_H

/* Slurm host lists: "n[1-3,07-09],x,rack[1-2]n[1-4]" as an ordered set of names.
 *
 * The order is that of first appearance (rank i -> host i works); output is compressed and depends
 * on the set only, not on its order. Names are [A-Za-z0-9._-]. Lookup is O(log n). Thread: one
 * owner.  Blocks: no. */

#include "common/buf.h"
#include "common/err.h"

struct adv_hostlist;

#define ADV_HOST_NAME_MAX 255 /* as DNS has it */

/* @max_hosts bounds the set for its life: "n[1-999999999]" is refused before it is expanded. NULL:
 * no memory. */
adv_must_check struct adv_hostlist *adv_hostlist_new(size_t max_hosts);
struct adv_hostlist *adv_hostlist_free(struct adv_hostlist *hl); /* returns NULL, tolerates NULL */

/* Adds all hosts of @text; "" adds none. On an error nothing is added.
 * Errors: -ADV_INVALID_ARGUMENT (malformed, message says where); -ADV_RESOURCE_EXHAUSTED (too many,
 *         no memory). */
adv_must_check int adv_hostlist_parse(struct adv_hostlist *hl, const char *text,
                                      struct adv_err *err);

/* Adds one plain name; a name that is there already is no error. */
adv_must_check int adv_hostlist_add(struct adv_hostlist *hl, const char *name, struct adv_err *err);

bool adv_hostlist_contains(const struct adv_hostlist *hl, const char *name);
/* True when it was there. */
bool adv_hostlist_remove(struct adv_hostlist *hl, const char *name);

/* @hl |= @other; on an error @hl is as before. */
adv_must_check int adv_hostlist_union(struct adv_hostlist *hl, const struct adv_hostlist *other,
                                      struct adv_err *err);
/* @hl &= ~@other. */
void adv_hostlist_minus(struct adv_hostlist *hl, const struct adv_hostlist *other);

size_t adv_hostlist_count(const struct adv_hostlist *hl);
/* Borrowed until the next change; NULL when @i is past the end. */
const char *adv_hostlist_nth(const struct adv_hostlist *hl, size_t i);

/* Appends the compressed form, which adv_hostlist_parse and Slurm read back to the same set.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int adv_hostlist_format(const struct adv_hostlist *hl, struct adv_buf *out,
                                       struct adv_err *err);

ADV_DEFINE_CLEANUP(adv_hostlist, adv_hostlist_free);

#endif
