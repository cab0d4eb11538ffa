/* SPDX-License-Identifier: Apache-2.0 */

/* The buffer keeps a gap at the front after consume, so that cutting lines from a long stream does
 * not move the rest each time; the gap is closed when space is needed and the gap is at least as
 * big as what would be moved. An empty buffer points at one static NUL, which is never written. */

#include "common/buf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/err.h"

static char empty[1];

static int fail(struct adv_buf *b)
{
    b->error_ = -ADV_RESOURCE_EXHAUSTED;
    return b->error_;
}

/* Makes room for @extra bytes and the terminator. */
static int grow(struct adv_buf *b, size_t extra)
{
    if (b->error_)
        return b->error_;
    if (extra > b->max_ || b->len > b->max_ - extra)
        return fail(b);
    size_t gap = b->base_ ? (size_t) (b->data - b->base_) : 0;
    size_t need = b->len + extra + 1;
    if (b->base_ && gap + need <= b->cap_)
        return 0;
    if (b->base_ && need <= b->cap_ && gap >= b->len) {
        memmove(b->base_, b->data, b->len + 1);
        b->data = b->base_;
        return 0;
    }
    size_t cap = b->cap_ ? b->cap_ : 64;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    if (cap > b->max_ + 1 && b->max_ < SIZE_MAX)
        cap = b->max_ + 1;
    char *mem = malloc(cap);
    if (!mem)
        return fail(b);
    memcpy(mem, b->data, b->len);
    mem[b->len] = '\0';
    free(b->base_);
    b->base_ = b->data = mem;
    b->cap_ = cap;
    return 0;
}

void adv_buf_init(struct adv_buf *b, size_t max_bytes)
{
    *b = (struct adv_buf){ .data = empty, .max_ = max_bytes };
}

void adv_buf_done(struct adv_buf *b)
{
    if (!b)
        return;
    free(b->base_);
    adv_buf_init(b, b->max_);
}

void adv_buf_reset(struct adv_buf *b)
{
    b->len = 0;
    b->error_ = 0;
    if (b->base_) {
        b->data = b->base_;
        b->data[0] = '\0';
    }
}

void *adv_buf_reserve(struct adv_buf *b, size_t len)
{
    return grow(b, len) < 0 ? NULL : b->data + b->len;
}

void adv_buf_commit(struct adv_buf *b, size_t len)
{
    b->len += len;
    if (b->base_)
        b->data[b->len] = '\0';
}

int adv_buf_append(struct adv_buf *b, const void *bytes, size_t len)
{
    int r = grow(b, len);

    if (r < 0)
        return r;
    if (len > 0)
        memcpy(b->data + b->len, bytes, len);
    adv_buf_commit(b, len);
    return 0;
}

int adv_buf_append_str(struct adv_buf *b, const char *s)
{
    return adv_buf_append(b, s, strlen(s));
}

int adv_buf_append_byte(struct adv_buf *b, uint8_t byte)
{
    return adv_buf_append(b, &byte, 1);
}

int adv_buf_vappendf(struct adv_buf *b, const char *fmt, va_list ap)
{
    va_list again;

    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        return fail(b);
    int r = grow(b, (size_t) n);
    if (r < 0)
        return r;
    (void) vsnprintf(b->data + b->len, (size_t) n + 1, fmt, ap);
    adv_buf_commit(b, (size_t) n);
    return 0;
}

int adv_buf_appendf(struct adv_buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int r = adv_buf_vappendf(b, fmt, ap);
    va_end(ap);
    return r;
}

int adv_buf_read(struct adv_buf *b, int fd)
{
    char chunk[4096];
    ssize_t n;
    int r = 0, saved;

    do {
        n = read(fd, chunk, sizeof(chunk));
        if (n > 0)
            r = adv_buf_append(b, chunk, (size_t) n);
        else if (n < 0 && errno != EINTR)
            r = -ADV_UNAVAILABLE;
    } while (r == 0 && n != 0);
    saved = errno;
    explicit_bzero(chunk, sizeof(chunk));
    errno = saved;
    return r;
}

void adv_buf_consume(struct adv_buf *b, size_t len)
{
    if (len >= b->len) {
        b->len = 0;
        if (b->base_) {
            b->data = b->base_;
            b->data[0] = '\0';
        }
        return;
    }
    b->data += len;
    b->len -= len;
}

void adv_buf_truncate(struct adv_buf *b, size_t len)
{
    if (len < b->len) {
        b->len = len;
        b->data[len] = '\0';
    }
}

char *adv_buf_steal(struct adv_buf *b, size_t *ret_len)
{
    char *mem = b->base_;

    if (!mem) {
        mem = calloc(1, 1);
        if (!mem)
            return NULL;
    } else if (b->data != mem) {
        memmove(mem, b->data, b->len + 1);
    }
    if (ret_len)
        *ret_len = b->len;
    adv_buf_init(b, b->max_);
    return mem;
}
