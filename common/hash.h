/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_HASH_H
#define ADV_COMMON_HASH_H

/* uthash with a keyed hash function. Include this instead of <uthash.h>: keys here are names that
 * users choose, and uthash's own functions can be made to collide (and do not pass clang's
 * -Wimplicit-fallthrough). Iteration is in order of insertion, so the random key changes no result.
 */

#include <stddef.h>

/* SipHash-1-3 of @len bytes under a key drawn once for the process. Any thread, never blocks. */
unsigned int adv_hash_bytes(const void *bytes, size_t len);

#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = adv_hash_bytes((keyptr), (keylen)))

#include <uthash.h> /* IWYU pragma: export */

#endif
