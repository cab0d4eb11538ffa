/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_PKI_H
#define ADVISOR_AGENT_PKI_H

/* The agent's key and certificate as files: made, put in their places, looked at. The private key never leaves this host,
 * and this module.
 *
 * Two files cannot be replaced at one moment. A new pair is written beside the old one (".new", synced), then the key is
 * moved into its place, then the certificate; pki_recover() finishes what a crash in between left.
 *
 * Thread: any, one owner an object.  Blocks: reads and writes small files. */

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* A new key (EC P-256) and its signing request. */
struct pki_request;
/* Errors: -ADV_INTERNAL (OpenSSL). Owner: caller. */
adv_must_check int pki_request_new(struct pki_request **ret, struct adv_err *err);
struct pki_request *pki_request_free(struct pki_request *r); /* returns NULL, tolerates NULL */
/* PKCS #10, DER. Borrowed. */
const uint8_t *pki_request_der(const struct pki_request *r, size_t *ret_len);

/* Puts the key of @r and the certificate chain that was given for it (PEM) into the files.
 * Errors: -ADV_INVALID_ARGUMENT (no PEM, or of another key); -ADV_UNAVAILABLE (files; the old pair stays, or
 *         pki_recover() finishes). */
adv_must_check int pki_install(const struct pki_request *r, const void *chain, size_t chain_len, const char *cert_path,
                               const char *key_path, struct adv_err *err);

/* Writes @len bytes into @path at one moment, as a file of @mode. Errors: -ADV_UNAVAILABLE. */
adv_must_check int pki_write_file(const char *path, const void *bytes, size_t len, unsigned mode, struct adv_err *err);

/* At the start: finishes an install that was interrupted. True when it did something. */
bool pki_recover(const char *cert_path, const char *key_path);

/* Both files can be replaced by this process. Errors: -ADV_PERMISSION_DENIED, which folder. */
adv_must_check int pki_writable(const char *cert_path, const char *key_path, struct adv_err *err);

/* Others than the owner and the group of the file can read the key, or its group can write it; @ret_mode says how. */
bool pki_key_exposed(const char *key_path, unsigned *ret_mode);

struct pki_cert {
    int64_t not_before_s, not_after_s;
    char serial[41];
    char name[320]; /* its first URI name, "advisor:agent:..."; "" without one, or where it is longer */
};
/* Errors: -ADV_NOT_FOUND (file); -ADV_INVALID_ARGUMENT (no certificate in it). */
adv_must_check int pki_look(const char *cert_path, struct pki_cert *ret, struct adv_err *err);

ADV_DEFINE_CLEANUP(pki_request, pki_request_free);

#endif
