/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/rpc/inflate.h"

#include <zlib.h>

#define GZIP_WINDOW (16 + MAX_WBITS) /* 16: with the header of gzip */

static int inflate_all(z_stream *z, size_t cap, size_t max, uint8_t **buf, size_t *n)
{
    int r = Z_OK;

    while (r == Z_OK) {
        if (!*buf || *n == cap) {
            uint8_t *p;

            if (*buf && cap > max)
                break; /* one byte more than it may be was made */
            if (*buf)
                cap *= 2;
            cap = cap < max + 1 ? cap : max + 1;
            p = realloc(*buf, cap);
            if (!p)
                return Z_MEM_ERROR;
            *buf = p;
        }
        z->next_out = *buf + *n;
        z->avail_out = (uInt) (cap - *n);
        r = inflate(z, Z_NO_FLUSH);
        *n = (size_t) (z->next_out - *buf);
    }
    return r;
}

int rpc_inflate(const uint8_t *in, size_t len, size_t max, uint8_t **ret, size_t *ret_len, struct adv_err *err)
{
    z_stream z = { .next_in = (Bytef *) (uintptr_t) in, .avail_in = (uInt) len };
    adv_auto_free uint8_t *buf = NULL;
    size_t n = 0;
    bool whole;
    int r;

    *ret = NULL;
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    r = inflate_all(&z, len * 4 + 1024, max, &buf, &n);
    whole = r == Z_STREAM_END && z.avail_in == 0;
    (void) inflateEnd(&z);
    if (r == Z_MEM_ERROR)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if (n > max)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE",
                                  "message becomes more than this method's limit of %zu bytes", max);
    if (!whole)
        return adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "MALFORMED_MESSAGE", "message is not gzip, or not all of it");
    *ret = ADV_STEAL(buf);
    *ret_len = n;
    return 0;
}
