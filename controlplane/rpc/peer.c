/* SPDX-License-Identifier: Apache-2.0 */

/* Who is at the other end, copied out of core's auth context so that it stays readable when the
 * call has gone. */

#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "common/digest.h"
#include "controlplane/rpc/internal.h"

#define MAX_SANS 64

struct peer {
    struct rpc_peer pub;
    char *common_name, *address;
    char *sans[MAX_SANS], *uris[MAX_SANS];
};

struct rpc_peer *rpc_peer_free(struct rpc_peer *pub)
{
    if (!pub)
        return NULL;
    struct peer *p = ADV_CONTAINER_OF(pub, struct peer, pub);
    for (size_t i = 0; i < p->pub.n_sans; i++)
        free(p->sans[i]);
    for (size_t i = 0; i < p->pub.n_uris; i++)
        free(p->uris[i]);
    free(p->common_name);
    free(p->address);
    free(p);
    return NULL;
}

/* NULL on no memory; a value with a NUL inside is no identity and becomes "". */
static char *copy(const grpc_auth_property *prop)
{
    bool bad = prop && memchr(prop->value, 0, prop->value_length);

    return strndup(prop && !bad ? prop->value : "", prop && !bad ? prop->value_length : 0);
}

static const grpc_auth_property *first(const grpc_auth_context *ctx, const char *name)
{
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(ctx, name);

    return grpc_auth_property_iterator_next(&it);
}

/* Copies the values of all properties of that name; false when memory is gone. */
static bool collect(const grpc_auth_context *ctx, const char *name, char *values[MAX_SANS], size_t *ret_n)
{
    grpc_auth_property_iterator it = grpc_auth_context_find_properties_by_name(ctx, name);
    const grpc_auth_property *prop;

    while (*ret_n < MAX_SANS && (prop = grpc_auth_property_iterator_next(&it))) {
        values[*ret_n] = copy(prop);
        if (!values[*ret_n])
            return false;
        (*ret_n)++;
    }
    return true;
}

static int64_t time_s(const ASN1_TIME *t)
{
    int days = 0, seconds = 0;
    ASN1_TIME *epoch = ASN1_TIME_set(NULL, 0);
    bool ok = epoch && ASN1_TIME_diff(&days, &seconds, epoch, t) == 1;

    ASN1_TIME_free(epoch);
    return ok ? (int64_t) days * 86400 + seconds : 0;
}

static void serial(const X509 *x, char out[41])
{
    BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(x), NULL);
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
}

static void read_cert(const grpc_auth_property *pem, const struct rpc_tls *tls, struct rpc_peer *pub)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    BIO *bio = BIO_new_mem_buf(pem->value, (int) pem->value_length);
    X509 *x = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    if (x && X509_digest(x, EVP_sha256(), digest, &n) == 1 && n == 32)
        (void) adv_hex(digest, 32, pub->cert_sha256);
    if (x) {
        serial(x, pub->cert_serial);
        pub->cert_not_before_s = time_s(X509_get0_notBefore(x));
        pub->cert_not_after_s = time_s(X509_get0_notAfter(x));
        pub->by_second_ca = rpc_tls_by_second_ca(tls, x);
    }
    X509_free(x);
    BIO_free(bio);
    ERR_clear_error();
}

struct rpc_peer *rpc_peer_new(grpc_call *call, const struct rpc_tls *tls)
{
    struct peer *p = calloc(1, sizeof(*p));
    grpc_auth_context *ctx = grpc_call_auth_context(call);
    char *addr = grpc_call_get_peer(call);
    bool ok = p != NULL;

    if (ok) {
        p->address = strdup(addr ? addr : "");
        p->common_name = copy(ctx ? first(ctx, GRPC_X509_CN_PROPERTY_NAME) : NULL);
        ok = p->address && p->common_name;
    }
    if (ok && ctx) {
        const grpc_auth_property *pem = first(ctx, GRPC_X509_PEM_CERT_PROPERTY_NAME);

        p->pub.authenticated = grpc_auth_context_peer_is_authenticated(ctx) && pem;
        ok = collect(ctx, GRPC_X509_SAN_PROPERTY_NAME, p->sans, &p->pub.n_sans) &&
             collect(ctx, GRPC_PEER_URI_PROPERTY_NAME, p->uris, &p->pub.n_uris);
        if (pem)
            read_cert(pem, tls, &p->pub);
    }
    gpr_free(addr);
    if (ctx)
        grpc_auth_context_release(ctx);
    if (!ok) {
        if (p)
            (void) rpc_peer_free(&p->pub);
        return NULL;
    }
    p->pub.common_name = p->common_name;
    p->pub.address = p->address;
    p->pub.sans = (const char *const *) p->sans;
    p->pub.uris = (const char *const *) p->uris;
    return &p->pub;
}
