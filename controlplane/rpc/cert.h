/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_CERT_H
#define ADV_CONTROLPLANE_RPC_CERT_H

/* What the server needs to know of a client's certificate, which core has verified and gives as PEM, without the whole of
 * d2i_X509(): that one also builds the public key, for 80 us with OpenSSL 3, a tenth of what a connection costs in all.
 * Private to rpc/.
 * Thread: any.  Blocks: no. */

#include <openssl/x509.h>
#include <stdint.h>

#include "common/err.h"

struct rpc_cert_facts {
    char sha256[65]; /* hex of the DER bytes */
    char serial[41]; /* lower-case hex without zeros in front; "" when it is negative or longer */
    int64_t not_before_s, not_after_s; /* since 1970 */
    bool by_second_ca;
};

/* @second_ca is the subject of the second authority; NULL: there is none.
 * Errors: -ADV_INVALID_ARGUMENT (not a certificate), -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int rpc_cert_read(const char *pem, size_t len, const X509_NAME *second_ca, struct rpc_cert_facts *ret,
                                 struct adv_err *err);

#endif
