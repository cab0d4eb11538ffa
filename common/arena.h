/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_ARENA_H
#define ADV_COMMON_ARENA_H

/* Memory of one request: allocated piece by piece under a budget, freed at once.
 *
 * Running out is an outcome for that request alone: adv_arena_alloc() gives NULL and
 * adv_arena_exhausted() stays true.
 * Thread: one owner.  Blocks: no. */

#include <stdint.h>

#include "common/macros.h"

struct adv_arena_chunk_;

struct adv_arena {
    struct adv_arena_chunk_ *chunks_; /* newest first; the only one with room */
    size_t used_, budget_;
    bool exhausted_;
};

/* No memory is taken before the first allocation. The budget counts what is handed out, rounded up
 * to 16 bytes each. */
void adv_arena_init(struct adv_arena *a, size_t budget_bytes);
void adv_arena_done(struct adv_arena *a); /* frees all; @a is then as after init */

/* Not zeroed, aligned for any type. NULL: over the budget, or no memory. */
adv_must_check void *adv_arena_alloc(struct adv_arena *a, size_t size);
adv_must_check void *adv_arena_zalloc(struct adv_arena *a, size_t size);
adv_must_check char *adv_arena_strdup(struct adv_arena *a, const char *s);

bool adv_arena_exhausted(const struct adv_arena *a);
size_t adv_arena_used(const struct adv_arena *a);

ADV_DEFINE_DONE(adv_arena, adv_arena_done);

#endif
