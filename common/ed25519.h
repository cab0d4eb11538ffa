/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_ED25519_H
#define ADV_COMMON_ED25519_H

/* Ed25519 signatures with keys from PEM files.
 * Any thread (a key may be used by several at once).  Blocks: loading reads one file. */

#include <stdint.h>

#include "common/digest.h"

#define ADV_ED25519_SIZE 64

struct adv_ed25519;

/* A private key (which verifies as well), or with @is_public a public one. Owner: caller.
 * Errors: -ADV_NOT_FOUND / -ADV_PERMISSION_DENIED (file), -ADV_INVALID_ARGUMENT (not such a key),
 * -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int adv_ed25519_load(const char *path, bool is_public, struct adv_ed25519 **ret, struct adv_err *err);
struct adv_ed25519 *adv_ed25519_free(struct adv_ed25519 *k); /* returns NULL, tolerates NULL */

/* SHA-256 of the raw public key, hex. */
const char *adv_ed25519_id(const struct adv_ed25519 *k);

/* Errors: -ADV_FAILED_PRECONDITION (a public key), -ADV_INTERNAL. */
adv_must_check int adv_ed25519_sign(const struct adv_ed25519 *k, const void *bytes, size_t len,
                                    uint8_t ret[ADV_ED25519_SIZE], struct adv_err *err);
/* False also for a signature of another length. */
bool adv_ed25519_verify(const struct adv_ed25519 *k, const void *bytes, size_t len, const void *signature, size_t sig_len);

ADV_DEFINE_CLEANUP(adv_ed25519, adv_ed25519_free);

#endif
