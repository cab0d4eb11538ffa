/* SPDX-License-Identifier: Apache-2.0 */

/* The time is an argument: the core and the tests mint ids without reading a clock. */

#include "common/uuid.h"

#include <stdio.h>
#include <sys/random.h>

int adv_uuid_v7(int64_t wall_us, char ret_text[ADV_UUID_SIZE], struct adv_err *err)
{
    uint8_t b[16];

    if (getrandom(b, sizeof(b), 0) != (ssize_t) sizeof(b))
        return adv_err_set_errno(err, ADV_INTERNAL, errno, "getrandom");
    uint64_t us = wall_us < 0 ? 0 : (uint64_t) wall_us;
    uint64_t ms = us / 1000, sub = us % 1000 * 4096 / 1000;

    for (int i = 0; i < 6; i++)
        b[i] = (uint8_t) (ms >> (40 - 8 * i));
    b[6] = (uint8_t) (0x70 | (sub >> 8));
    b[7] = (uint8_t) sub;
    b[8] = (uint8_t) (0x80 | (b[8] & 0x3F));
    char *o = ret_text;
    for (int i = 0; i < 16; i++) {
        static const char hex[] = "0123456789abcdef";

        if (i == 4 || i == 6 || i == 8 || i == 10)
            *o++ = '-';
        *o++ = hex[b[i] >> 4];
        *o++ = hex[b[i] & 15];
    }
    *o = '\0';
    return 0;
}

int adv_random(void *ret, size_t len, struct adv_err *err)
{
    if (getrandom(ret, len, 0) != (ssize_t) len)
        return adv_err_set_errno(err, ADV_INTERNAL, errno, "getrandom");
    return 0;
}

bool adv_uuid_valid(const char *text)
{
    if (!text)
        return false;
    for (int i = 0; i < ADV_UUID_SIZE - 1; i++) {
        char c = text[i];
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return text[ADV_UUID_SIZE - 1] == '\0';
}
