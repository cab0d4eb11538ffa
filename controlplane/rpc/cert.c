/* SPDX-License-Identifier: Apache-2.0 */

/* Walks from the outside in: Certificate { TBSCertificate { [0] version, serialNumber, signature, issuer, validity { … } …,
 * and leaves what comes after. Each piece is taken apart by OpenSSL's own functions for it. */

#include "controlplane/rpc/cert.h"

#include <openssl/asn1.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "common/digest.h"

struct der {
    const unsigned char *p, *end;
};

/* Enters the next element, which has to be that one; @ret is its content. */
static bool enter(struct der *d, int want_tag, int want_class, struct der *ret)
{
    const unsigned char *p = d->p;
    int tag, class;
    long len;
    int r = ASN1_get_object(&p, &len, &tag, &class, d->end - d->p);

    if ((r & 0x80) || (r & 1) || tag != want_tag || class != want_class || len < 0 || len > d->end - p)
        return false; /* an error, an indefinite length, another element */
    *ret = (struct der) { p, p + len };
    d->p = p + len;
    return true;
}

static int64_t time_s(struct der *d)
{
    ASN1_TIME *t = d2i_ASN1_TIME(NULL, &d->p, d->end - d->p), *epoch = ASN1_TIME_set(NULL, 0);
    int days = 0, seconds = 0;
    bool ok = t && epoch && ASN1_TIME_diff(&days, &seconds, epoch, t) == 1;

    ASN1_TIME_free(t);
    ASN1_TIME_free(epoch);
    return ok ? (int64_t) days * 86400 + seconds : INT64_MIN;
}

static bool serial(struct der *d, char out[41])
{
    ASN1_INTEGER *i = d2i_ASN1_INTEGER(NULL, &d->p, d->end - d->p);
    BIGNUM *n = i ? ASN1_INTEGER_to_BN(i, NULL) : NULL;
    char *hex = n && !BN_is_negative(n) ? BN_bn2hex(n) : NULL;
    const char *p = hex;
    size_t len = 0;

    while (p && *p == '0')
        p++;
    if (p && strlen(p) <= 40)
        for (; p[len]; len++)
            out[len] = p[len] >= 'A' && p[len] <= 'F' ? (char) (p[len] - 'A' + 'a') : p[len];
    out[len] = '\0';
    OPENSSL_free(hex);
    BN_free(n);
    ASN1_INTEGER_free(i);
    return n != NULL;
}

static bool issued_by(struct der *d, const X509_NAME *ca, bool *ret)
{
    struct der skipped, here = *d;
    X509_NAME *issuer;

    if (!enter(d, V_ASN1_SEQUENCE, V_ASN1_UNIVERSAL, &skipped))
        return false;
    *ret = false;
    if (!ca)
        return true;
    issuer = d2i_X509_NAME(NULL, &here.p, d->p - here.p);
    *ret = issuer && X509_NAME_cmp(issuer, ca) == 0;
    X509_NAME_free(issuer);
    return issuer != NULL;
}

static bool walk(struct der whole, const X509_NAME *second_ca, struct rpc_cert_facts *f)
{
    struct der cert, tbs, version, signature, validity;

    if (!enter(&whole, V_ASN1_SEQUENCE, V_ASN1_UNIVERSAL, &cert) ||
        !enter(&cert, V_ASN1_SEQUENCE, V_ASN1_UNIVERSAL, &tbs))
        return false;
    (void) enter(&tbs, 0, V_ASN1_CONTEXT_SPECIFIC, &version); /* left out in version 1 */
    if (!serial(&tbs, f->serial) || !enter(&tbs, V_ASN1_SEQUENCE, V_ASN1_UNIVERSAL, &signature) ||
        !issued_by(&tbs, second_ca, &f->by_second_ca) ||
        !enter(&tbs, V_ASN1_SEQUENCE, V_ASN1_UNIVERSAL, &validity))
        return false;
    f->not_before_s = time_s(&validity);
    f->not_after_s = f->not_before_s == INT64_MIN ? INT64_MIN : time_s(&validity);
    return f->not_after_s != INT64_MIN;
}

int rpc_cert_read(const char *pem, size_t len, const X509_NAME *second_ca, struct rpc_cert_facts *ret, struct adv_err *err)
{
    BIO *bio = len <= INT32_MAX ? BIO_new_mem_buf(pem, (int) len) : NULL;
    struct rpc_cert_facts f = { 0 };
    char *name = NULL, *header = NULL;
    unsigned char *data = NULL;
    uint8_t digest[ADV_SHA256_LEN];
    long n = 0;
    int r = 0;

    if (!bio)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if (PEM_read_bio(bio, &name, &header, &data, &n) != 1 || strcmp(name, PEM_STRING_X509) != 0 ||
        !walk((struct der) { data, data + n }, second_ca, &f))
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "not a certificate");
    if (r == 0)
        r = adv_sha256(data, (size_t) n, digest, err);
    if (r == 0) {
        (void) adv_hex(digest, sizeof(digest), f.sha256);
        *ret = f;
    }
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(data);
    BIO_free(bio);
    ERR_clear_error();
    return r;
}
