/* SPDX-License-Identifier: Apache-2.0 */

/* SipHash-1-3 (Aumasson, Bernstein): short, fast on short keys, and without the key nobody can
 * choose names that fall into one bucket. */

#include "common/hash.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static uint64_t key[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void draw_key(void)
{
    if (getrandom(key, sizeof(key), GRND_NONBLOCK) != (ssize_t) sizeof(key))
        key[0] = (uint64_t) (uintptr_t) &key; /* before the pool is ready: at least the layout */
}

static uint64_t rotl(uint64_t x, int b)
{
    return x << b | x >> (64 - b);
}

static void round_(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

unsigned int adv_hash_bytes(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t tail = (uint64_t) len << 56, m;

    (void) pthread_once(&once, draw_key);
    uint64_t v[4] = { key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                      key[0] ^ UINT64_C(0x6c7967656e657261),
                      key[1] ^ UINT64_C(0x7465646279746573) };
    for (; len >= 8; len -= 8, p += 8) {
        memcpy(&m, p, sizeof(m));
        v[3] ^= m;
        round_(v);
        v[0] ^= m;
    }
    for (size_t i = 0; i < len; i++)
        tail |= (uint64_t) p[i] << (8 * i);
    v[3] ^= tail;
    round_(v);
    v[0] ^= tail;
    v[2] ^= 0xFF;
    round_(v);
    round_(v);
    round_(v);
    m = v[0] ^ v[1] ^ v[2] ^ v[3];
    return (unsigned int) (m ^ m >> 32);
}
