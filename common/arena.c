/* SPDX-License-Identifier: Apache-2.0 */

/* Chunks double from 1 KiB to 64 KiB; a piece larger than the next chunk gets a chunk of its own
 * size. The remainder of a left chunk is lost, which costs less than looking for it. */

#include "common/arena.h"

#include <stddef.h>

#define ALIGN       16
#define FIRST_CHUNK 1024
#define LAST_CHUNK  65536

struct adv_arena_chunk_ {
    struct adv_arena_chunk_ *next;
    size_t size, used;
    _Alignas(max_align_t) char data[];
};

void adv_arena_init(struct adv_arena *a, size_t budget_bytes)
{
    *a = (struct adv_arena){ .budget_ = budget_bytes };
}

void adv_arena_done(struct adv_arena *a)
{
    if (!a)
        return;
    for (struct adv_arena_chunk_ *c = a->chunks_, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    adv_arena_init(a, a->budget_);
}

void *adv_arena_alloc(struct adv_arena *a, size_t size)
{
    struct adv_arena_chunk_ *c = a->chunks_;

    if (size > SIZE_MAX - ALIGN ||
        (size = (size + ALIGN - 1) & ~(size_t) (ALIGN - 1)) > a->budget_ - a->used_) {
        a->exhausted_ = true;
        return NULL;
    }
    if (size == 0)
        size = ALIGN < a->budget_ - a->used_ ? ALIGN : 0;
    if (!c || c->size - c->used < size) {
        size_t want = c && c->size < LAST_CHUNK ? c->size * 2 : c ? LAST_CHUNK : FIRST_CHUNK;

        if (want < size)
            want = size;
        c = malloc(sizeof(*c) + want);
        if (!c) {
            a->exhausted_ = true;
            return NULL;
        }
        *c = (struct adv_arena_chunk_){ .next = a->chunks_, .size = want };
        a->chunks_ = c;
    }
    void *p = c->data + c->used;
    c->used += size;
    a->used_ += size;
    return p;
}

void *adv_arena_zalloc(struct adv_arena *a, size_t size)
{
    void *p = adv_arena_alloc(a, size);

    return p ? memset(p, 0, size) : NULL;
}

char *adv_arena_strdup(struct adv_arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = adv_arena_alloc(a, n);

    return p ? memcpy(p, s, n) : NULL;
}

bool adv_arena_exhausted(const struct adv_arena *a)
{
    return a->exhausted_;
}

size_t adv_arena_used(const struct adv_arena *a)
{
    return a->used_;
}
