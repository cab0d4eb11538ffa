/* SPDX-License-Identifier: Apache-2.0 */
/* A client's certificate. What is read of one that OpenSSL can read is what OpenSSL says of it. */

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdint.h>

#include "controlplane/rpc/cert.h"

/* The number of @text in hex, without zeros in front. */
static bool same_serial(const X509 *x, const char *text)
{
    BIGNUM *want = ASN1_INTEGER_to_BN(X509_get0_serialNumber(x), NULL), *got = NULL;
    bool same;

    if (!*text) /* zero, or one that is not told */
        same = BN_is_zero(want) || BN_is_negative(want) || BN_num_bytes(want) > 20;
    else
        same = BN_hex2bn(&got, text) && BN_cmp(want, got) == 0;
    BN_free(want);
    BN_free(got);
    return same;
}

static bool same_time(const ASN1_TIME *t, int64_t s)
{
    ASN1_TIME *got = ASN1_TIME_set(NULL, (time_t) s);
    bool same = got && ASN1_TIME_compare(t, got) == 0;

    ASN1_TIME_free(got);
    return same;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    BIO *bio = BIO_new_mem_buf(data, (int) size);
    X509 *x = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    struct rpc_cert_facts f, own = { 0 };
    int r = rpc_cert_read((const char *) data, size, NULL, &f, NULL);

    if (x && r == 0) {
        if (!same_serial(x, f.serial) || !same_time(X509_get0_notBefore(x), f.not_before_s) ||
            !same_time(X509_get0_notAfter(x), f.not_after_s) || f.by_second_ca)
            abort();
        if (rpc_cert_read((const char *) data, size, X509_get_issuer_name(x), &own, NULL) < 0 || !own.by_second_ca)
            abort();
    }
    X509_free(x);
    BIO_free(bio);
    ERR_clear_error();
    return 0;
}
