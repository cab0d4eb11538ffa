/* SPDX-License-Identifier: Apache-2.0 */

/* One decoder step serves validity and repair. A bad sequence costs one U+FFFD per maximal subpart,
 * as Unicode recommends, so a truncated character is one mark and not three. */

#include "common/utf8.h"

#include <stdint.h>

/* Length of the character at @p (1..4), or 0 when bad; *ret_skip is then how many bytes belong to
 * the bad part. */
static size_t step(const uint8_t *p, size_t n, size_t *ret_skip)
{
    uint8_t lo = 0x80, hi = 0xBF;
    size_t need;

    *ret_skip = 1;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    if (p[0] < 0xE0) {
        need = 2;
    } else if (p[0] < 0xF0) {
        need = 3;
        if (p[0] == 0xE0)
            lo = 0xA0;
        else if (p[0] == 0xED)
            hi = 0x9F;
    } else {
        need = 4;
        if (p[0] == 0xF0)
            lo = 0x90;
        else if (p[0] == 0xF4)
            hi = 0x8F;
    }
    for (size_t i = 1; i < need; i++) {
        if (i >= n || p[i] < lo || p[i] > hi) {
            *ret_skip = i;
            return 0;
        }
        lo = 0x80;
        hi = 0xBF;
    }
    return need;
}

bool adv_utf8_valid(const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    size_t i = 0, skip = 1;

    while (i < len) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        size_t n = step(p + i, len - i, &skip);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

size_t adv_utf8_lossy_buf(char *dst, size_t cap, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;
    size_t i = 0, o = 0, skip = 1;

    while (i < len) {
        size_t n = p[i] == 0 ? 0 : step(p + i, len - i, &skip);
        const void *src = n ? (const void *) (p + i) : "\xEF\xBF\xBD";
        size_t out = n ? n : 3;

        if (o + out + 1 > cap)
            break;
        memcpy(dst + o, src, out);
        o += out;
        i += n ? n : p[i] == 0 ? 1 : skip;
    }
    dst[o] = '\0';
    return o;
}

char *adv_utf8_lossy(const void *bytes, size_t len)
{
    if (len > (SIZE_MAX - 1) / 3)
        return NULL;
    /* Most text is fine as it is and holds no NUL: then no three-fold room is needed. */
    bool clean = adv_utf8_valid(bytes, len) && (len == 0 || !memchr(bytes, 0, len));
    size_t cap = clean ? len + 1 : 3 * len + 1;
    char *s = malloc(cap);

    if (s)
        (void) adv_utf8_lossy_buf(s, cap, bytes, len);
    return s;
}

size_t adv_utf8_cut(const void *bytes, size_t len, size_t max)
{
    const uint8_t *p = bytes;
    size_t n = len < max ? len : max;

    if (n < len) {
        size_t i = n;
        while (i > 0 && n - i < 3 && (p[i] & 0xC0) == 0x80)
            i--;
        if ((p[i] & 0xC0) != 0x80)
            n = i;
    }
    return n;
}
