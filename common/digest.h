/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_DIGEST_H
#define ADV_COMMON_DIGEST_H

/* SHA-256. Any thread (one owner per object), never blocks.
 * Errors of all: -ADV_RESOURCE_EXHAUSTED (no memory), -ADV_INTERNAL (crypto library refused). */

#include <stdint.h>

#include "common/err.h"

#define ADV_SHA256_LEN      32
#define ADV_SHA256_HEX_SIZE 65

struct adv_sha256 {
    void *ctx_;
};

adv_must_check int adv_sha256(const void *bytes, size_t len, uint8_t ret[ADV_SHA256_LEN],
                              struct adv_err *err);

adv_must_check int adv_sha256_init(struct adv_sha256 *h, struct adv_err *err);
adv_must_check int adv_sha256_update(struct adv_sha256 *h, const void *bytes, size_t len,
                                     struct adv_err *err);
/* Ends the computation; @h then only takes adv_sha256_done(). */
adv_must_check int adv_sha256_final(struct adv_sha256 *h, uint8_t ret[ADV_SHA256_LEN],
                                    struct adv_err *err);
void adv_sha256_done(struct adv_sha256 *h);

/* Lower-case hex of @len bytes into @out of 2 * len + 1 bytes. Returns @out. */
const char *adv_hex(const void *bytes, size_t len, char *out);
/* And back: 2 * @len lower-case hex digits, no more. */
adv_must_check bool adv_unhex(const char *hex, void *ret_bytes, size_t len);

ADV_DEFINE_DONE(adv_sha256, adv_sha256_done);

#endif
