/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_WIRE_TLS_H
#define ADVISOR_WIRE_TLS_H

/* A TLS client without I/O: cipher bytes in and out by memory, plain bytes on the other side.
 * TLS 1.2 or later, ALPN h2, the server's name verified. The only user of OpenSSL's SSL. */

#include <stdint.h>

#include "advisor-agent/wire/wire.h"
#include "common/buf.h"

struct tls;

/* Reads the certificate files of @cfg anew. @name is verified, as an address if it is one.
 * Errors: -ADV_FAILED_PRECONDITION (a file is missing or bad). Blocks: on those files. */
adv_must_check int tls_new(const struct wire_config *cfg, const char *name, struct tls **ret_tls,
                           struct adv_err *err);
struct tls *tls_free(struct tls *t);

/* Takes cipher bytes from the network; more than a few records at once are refused. */
adv_must_check int tls_input(struct tls *t, const uint8_t *data, size_t len, struct adv_err *err);
/* Appends the cipher bytes waiting to be sent to @out. */
adv_must_check int tls_output(struct tls *t, struct adv_buf *out, struct adv_err *err);

/* 1 done, 0 needs more input. Errors: -ADV_UNAUTHENTICATED (a certificate is refused by either
 * side, as far as the alert tells); -ADV_UNAVAILABLE. */
adv_must_check int tls_handshake(struct tls *t, struct adv_err *err);
/* Plain bytes, 0 = needs more input. -ADV_UNAVAILABLE also when the peer has closed. */
adv_must_check int64_t tls_read(struct tls *t, uint8_t *buf, size_t room, struct adv_err *err);
adv_must_check int tls_write(struct tls *t, const uint8_t *data, size_t len, struct adv_err *err);
void tls_close_notify(struct tls *t);

/* Expiry of our own certificate, seconds since 1970, 0 = none. */
int64_t tls_cert_expiry_s(const struct tls *t);

#endif
