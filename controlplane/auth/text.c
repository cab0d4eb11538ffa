/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/text.h"

bool glob_match(const char *p, const char *s)
{
    const char *star = NULL, *back = NULL;

    while (*s) {
        if (*p == '*') {
            star = p++;
            back = s;
        } else if (*p == *s || *p == '?') {
            p++;
            s++;
        } else if (star) {
            p = star + 1;
            s = ++back;
        } else {
            return false;
        }
    }
    while (*p == '*')
        p++;
    return !*p;
}

static int value_of(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' :
           c >= 'a' && c <= 'z' ? c - 'a' + 26 :
           c >= '0' && c <= '9' ? c - '0' + 52 :
           c == '-'             ? 62 :
           c == '_'             ? 63 :
                                  -1;
}

ssize_t base64url_decode(const char *text, size_t len, uint8_t *ret)
{
    size_t n = 0;
    uint32_t acc = 0;
    unsigned bits = 0;

    if (len % 4 == 1)
        return -1;
    for (size_t i = 0; i < len; i++) {
        int v = value_of(text[i]);

        if (v < 0)
            return -1;
        acc = acc << 6 | (uint32_t) v;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            ret[n++] = (uint8_t) (acc >> bits);
            acc &= (1u << bits) - 1;
        }
    }
    return acc ? -1 : (ssize_t) n;
}

const char *base64url_encode(const void *bytes, size_t len, char *out)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const uint8_t *b = bytes;
    char *o = out;
    uint32_t acc = 0;
    unsigned bits = 0;

    for (size_t i = 0; i < len; i++) {
        acc = (acc << 8 | b[i]) & 0xffff;
        for (bits += 8; bits >= 6; bits -= 6)
            *o++ = alphabet[acc >> (bits - 6) & 63];
    }
    if (bits)
        *o++ = alphabet[acc << (6 - bits) & 63];
    *o = '\0';
    return out;
}
