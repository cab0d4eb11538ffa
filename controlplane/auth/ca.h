/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_CA_H
#define CONTROLPLANE_AUTH_CA_H

/* The authority for agents' certificates, and the tokens with which an agent comes to its first one.
 *
 * A certificate is bound to one cluster by its URI name "advisor:agent:<cluster>". Of a signing request only the public key
 * is used; its signature proves that the sender holds the private one, which never leaves the agent's host.
 *
 * Pure but for ca_load() and ca_refresh() (read two files) and the random source. Thread: loop thread.  Blocks: those two;
 * an issue takes some 100 us with an EC key, 2 ms with RSA. */

#include <stdint.h>

#include "common/err.h"

#define CA_CSR_MAX_BYTES (8 << 10)
#define CA_SERIAL_SIZE   41 /* 20 bytes in hex and a NUL */

struct ca;

/* Errors: -ADV_NOT_FOUND / -ADV_PERMISSION_DENIED (files); -ADV_INVALID_ARGUMENT (no PEM, key of another certificate, no
 *         CA, expired). Owner: caller. */
adv_must_check int ca_load(const char *cert_path, const char *key_path, int64_t now_s, struct ca **ret,
                           struct adv_err *err);
struct ca *ca_free(struct ca *ca); /* returns NULL, tolerates NULL */

/* Loads the files anew if they have changed; bad ones leave the old ones in force, with an error. */
adv_must_check int ca_refresh(struct ca *ca, int64_t now_s, struct adv_err *err);

struct ca_request {
    const char *cluster;
    const void *csr; /* PKCS #10, DER */
    size_t csr_len;
    int64_t not_before_s, not_after_s; /* cut at the CA's own end */
};

struct ca_cert {
    char *chain_pem; /* the certificate, then the CA's file; owned by the caller */
    char serial[CA_SERIAL_SIZE];
    int64_t not_after_s;
};

/* Errors: -ADV_INVALID_ARGUMENT, field "csr", reason CSR_MALFORMED, CSR_SIGNATURE or CSR_KEY;
 *         -ADV_FAILED_PRECONDITION, CA_EXPIRED; -ADV_INTERNAL; -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int ca_issue(struct ca *ca, const struct ca_request *req, struct ca_cert *ret, struct adv_err *err);

/* The first half of ca_issue() alone: is this a request we would sign? @ret_key_sha256 is the hash of its public key, by
 * which a request is known again. */
adv_must_check int ca_check_csr(const void *csr, size_t len, char ret_key_sha256[65], struct adv_err *err);

/* Serial numbers as people paste them: hex of either case, ':' between bytes, zeros in front. Writes lower-case hex
 * without zeros in front. Errors: -ADV_INVALID_ARGUMENT, field "serial". */
adv_must_check int ca_serial_parse(const char *text, char ret[CA_SERIAL_SIZE], struct adv_err *err);

/* ---- enrolment tokens ---- */

#define ENROL_TOKEN_SIZE 64 /* "adv-enrol-", 43 characters for 32 random bytes, NUL */

/* The hash under which a token is stored. False when @token is none by its form. */
bool enrol_token_hash(const char *token, char ret_sha256[65]);

ADV_DEFINE_CLEANUP(ca, ca_free);

#endif
