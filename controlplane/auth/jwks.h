/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_JWKS_H
#define CONTROLPLANE_AUTH_JWKS_H

/* The public keys with which an issuer signs its tokens (RFC 7517, 7518, 8037), and the one question they answer.
 *
 * Keys that cannot sign our tokens are passed over: other uses, other curves, secrets (kty "oct"), RSA below 2048 bits.
 * Pure. Any thread (one owner an object), never blocks. */

#include <stdint.h>

#include "common/err.h"

enum jwt_alg {
    JWT_ALG_NONE, /* not one of ours; "none" and HS* are never */
    JWT_RS256,
    JWT_RS384,
    JWT_RS512,
    JWT_PS256,
    JWT_PS384,
    JWT_PS512,
    JWT_ES256,
    JWT_ES384,
    JWT_ES512,
    JWT_EDDSA, /* Ed25519 */
    JWT_ALG_LAST_ = JWT_EDDSA
};
#define JWT_ALG_BIT(a)   (1u << (a))
#define JWT_ALGS_DEFAULT (JWT_ALG_BIT(JWT_RS256) | JWT_ALG_BIT(JWT_ES256) | JWT_ALG_BIT(JWT_EDDSA))

const char *jwt_alg_name(enum jwt_alg alg);
/* JWT_ALG_NONE when it is none of ours. */
enum jwt_alg jwt_alg_from_name(const char *name);

#define JWKS_MAX_BYTES (256 << 10) /* the largest public sets are some 30 kB */
#define JWKS_MAX_KEYS  64

struct jwks;

/* Errors: -ADV_INVALID_ARGUMENT (no JWK set; two keys of one kid and type; no key of use);
 *         -ADV_RESOURCE_EXHAUSTED (too large, no memory). */
adv_must_check int jwks_parse(const void *json, size_t len, struct jwks **ret, struct adv_err *err);
struct jwks *jwks_free(struct jwks *s); /* returns NULL, tolerates NULL */
size_t jwks_count(const struct jwks *s);

enum jwks_answer {
    JWKS_GOOD,
    JWKS_BAD,     /* a key that fits, another signature */
    JWKS_UNKNOWN, /* no key of that kid and algorithm */
};
/* Did one of our keys sign @bytes? Without @kid ("") it must be the only key that fits the algorithm: a token is never
 * tried on a whole set. */
enum jwks_answer jwks_verify(const struct jwks *s, enum jwt_alg alg, const char *kid, const void *bytes, size_t len,
                             const uint8_t *signature, size_t signature_len);

ADV_DEFINE_CLEANUP(jwks, jwks_free);

#endif
