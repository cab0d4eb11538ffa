/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_BUF_H
#define ADV_COMMON_BUF_H

/* Growable byte buffer with a maximum fixed at init.
 *
 * @data is always readable and NUL-terminated after @len (the terminator is not counted). A failed
 * append leaves the content as it was and makes the buffer refuse further appends until
 * adv_buf_reset(), so a writer may append many times and look at adv_buf_error() once.
 *
 * Errors of every append: -ADV_RESOURCE_EXHAUSTED (over the maximum, or no memory).
 * Thread: one owner.  Blocks: no, unless said otherwise. */

#include <stdarg.h>
#include <stdint.h>

#include "common/macros.h"

struct adv_buf {
    char *data; /* read freely; write only through the functions below */
    size_t len;
    char *base_; /* private from here on */
    size_t cap_;
    size_t max_;
    int error_;
};

void adv_buf_init(struct adv_buf *b, size_t max_bytes);

/* Frees the content; @b is then as after init. Tolerates NULL and zeroed memory. */
void adv_buf_done(struct adv_buf *b);

/* Forgets content and error, keeps the memory. */
void adv_buf_reset(struct adv_buf *b);

int adv_buf_append(struct adv_buf *b, const void *bytes, size_t len);
int adv_buf_append_str(struct adv_buf *b, const char *s);
int adv_buf_append_byte(struct adv_buf *b, uint8_t byte);
int adv_buf_appendf(struct adv_buf *b, const char *fmt, ...) ADV_PRINTF(2, 3);
int adv_buf_vappendf(struct adv_buf *b, const char *fmt, va_list ap) ADV_PRINTF(2, 0);

/* Room for @len more bytes at the end, to be filled by the caller and then counted with
 * adv_buf_commit().
 * NULL on failure. The pointer is valid until the next call on @b. */
void *adv_buf_reserve(struct adv_buf *b, size_t len);
void adv_buf_commit(struct adv_buf *b, size_t len);

/* Appends what @fd has, to its end. What passed through the stack is wiped, as it may be a key.
 * Errors: as append; -ADV_UNAVAILABLE: the read failed, errno says why.  Blocks: for @fd. */
int adv_buf_read(struct adv_buf *b, int fd);

/* Drops the first @len bytes (at most all). Amortised O(1). */
void adv_buf_consume(struct adv_buf *b, size_t len);

/* Drops all after the first @len bytes. */
void adv_buf_truncate(struct adv_buf *b, size_t len);

/* Hands the content over as malloc'd, NUL-terminated memory; @b is then empty. @ret_len may be
 * NULL.
 * NULL when memory is gone (the content then stays). */
adv_must_check char *adv_buf_steal(struct adv_buf *b, size_t *ret_len);

/* 0, or the code of the first failed append since init/reset. */
static inline int adv_buf_error(const struct adv_buf *b)
{
    return b->error_;
}

/* How many bytes may still be appended. */
static inline size_t adv_buf_room(const struct adv_buf *b)
{
    return b->max_ - b->len;
}

ADV_DEFINE_DONE(adv_buf, adv_buf_done);

#endif
