/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_JWT_H
#define CONTROLPLANE_AUTH_JWT_H

/* Bearer tokens: JSON Web Tokens (RFC 7519) as compact JWS (RFC 7515), checked after RFC 8725.
 *
 * Two steps, because the issuer has to be known before its keys can be asked: jwt_open() takes a token apart and believes
 * nothing; jwt_check() verifies the signature first and everything else after it. What jwt_claim_*() tell means something
 * only after jwt_check() said yes.
 *
 * All errors are -ADV_UNAUTHENTICATED with one of these reasons, or -ADV_RESOURCE_EXHAUSTED (no memory):
 *   TOKEN_MALFORMED      not a compact JWS of a JSON object, too long, "crit", or a claim of the wrong type
 *   TOKEN_ALGORITHM      an algorithm that the issuer's list does not hold; "none" and HS* never are on it
 *   TOKEN_ISSUER         not of this issuer
 *   TOKEN_KEY_UNKNOWN    no key of its kid and algorithm
 *   TOKEN_SIGNATURE      not signed by that key
 *   TOKEN_EXPIRED, TOKEN_NOT_YET_VALID (also issued in the future)
 *   TOKEN_AUDIENCE       not meant for us
 *   TOKEN_SUBJECT        no subject, or one that is no name
 *
 * Pure: time comes as an argument. Any thread (one owner an object), never blocks. */

#include "controlplane/auth/jwks.h"

#define JWT_MAX_BYTES   (8 << 10) /* half of what the transport takes as metadata */
#define JWT_MAX_SUBJECT 96        /* with its alias it has to fit into a principal's name */
#define JWT_MAX_GROUPS  256

struct jwt;

struct jwt_rules {
    const char *issuer;
    const char *const *audiences; /* one of them has to be meant */
    size_t n_audiences;
    unsigned algs; /* JWT_ALG_BIT()s */
    int64_t skew_s;
};

/* Owner: caller. @bytes is copied. Errors: TOKEN_MALFORMED, TOKEN_ALGORITHM. */
adv_must_check int jwt_open(const char *bytes, size_t len, struct jwt **ret, struct adv_err *err);
struct jwt *jwt_free(struct jwt *t); /* returns NULL, tolerates NULL */

/* The "iss" that the token claims; "" without one. Not verified. */
const char *jwt_unverified_issuer(const struct jwt *t);

adv_must_check int jwt_check(const struct jwt *t, const struct jwks *keys, const struct jwt_rules *rules, int64_t now_s,
                             struct adv_err *err);

/* After jwt_check(). Borrowed. "" for an absent claim, or one that is no text of at most 255 bytes without control
 * characters. */
const char *jwt_claim_text(const struct jwt *t, const char *name);
bool jwt_claim_true(const struct jwt *t, const char *name);
/* The @i-th text of a claim that is a list of texts (or one text); NULL past the end. Texts that are none are "". */
const char *jwt_claim_item(const struct jwt *t, const char *name, size_t i);
int64_t jwt_expiry_s(const struct jwt *t);

ADV_DEFINE_CLEANUP(jwt, jwt_free);

#endif
