/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_AUTH_MINT_H
#define TESTS_UNIT_AUTH_MINT_H

/* Keys, key sets and signed tokens for tests: what an issuer does. */

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include "controlplane/auth/jwks.h"
#include "controlplane/auth/text.h"

/* "RSA", "P-256", "P-384", "P-521", "ED25519" */
static inline EVP_PKEY *mint_key(const char *type)
{
    if (adv_streq(type, "RSA"))
        return EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t) 2048);
    if (adv_streq(type, "ED25519"))
        return EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    return EVP_PKEY_Q_keygen(NULL, NULL, "EC", type);
}

static inline void mint_bn(EVP_PKEY *k, const char *param, size_t pad, char *out)
{
    BIGNUM *n = NULL;
    uint8_t bytes[1024];
    int len;

    (void) EVP_PKEY_get_bn_param(k, param, &n);
    len = pad ? BN_bn2binpad(n, bytes, (int) pad) : BN_bn2bin(n, bytes);
    BN_free(n);
    (void) base64url_encode(bytes, (size_t) len, out);
}

/* One JWK as JSON; @more stands inside of it, e.g. "\"alg\":\"RS256\",". */
static inline char *mint_jwk(EVP_PKEY *k, const char *kid, const char *more)
{
    char a[2048] = "", b[2048] = "", group[32] = "", *out = NULL;
    int r = -1;

    if (EVP_PKEY_is_a(k, "RSA")) {
        mint_bn(k, OSSL_PKEY_PARAM_RSA_N, 0, a);
        mint_bn(k, OSSL_PKEY_PARAM_RSA_E, 0, b);
        r = asprintf(&out, "{\"kty\":\"RSA\",%s\"kid\":\"%s\",\"n\":\"%s\",\"e\":\"%s\"}", more, kid, a, b);
    } else if (EVP_PKEY_is_a(k, "EC")) {
        size_t f = (size_t) (EVP_PKEY_get_bits(k) + 7) / 8;
        const char *crv = f == 32 ? "P-256" : f == 48 ? "P-384" : "P-521";
        (void) EVP_PKEY_get_group_name(k, group, sizeof(group), NULL);
        mint_bn(k, OSSL_PKEY_PARAM_EC_PUB_X, f, a);
        mint_bn(k, OSSL_PKEY_PARAM_EC_PUB_Y, f, b);
        r = asprintf(&out, "{\"kty\":\"EC\",%s\"kid\":\"%s\",\"crv\":\"%s\",\"x\":\"%s\",\"y\":\"%s\"}", more, kid, crv, a, b);
    } else {
        uint8_t raw[32];
        size_t n = sizeof(raw);
        (void) EVP_PKEY_get_raw_public_key(k, raw, &n);
        (void) base64url_encode(raw, n, a);
        r = asprintf(&out, "{\"kty\":\"OKP\",%s\"kid\":\"%s\",\"crv\":\"Ed25519\",\"x\":\"%s\"}", more, kid, a);
    }
    return r < 0 ? NULL : out;
}

/* header.payload.signature; the header's alg says how it is signed unless @as does. */
static inline char *mint_token(EVP_PKEY *k, enum jwt_alg alg, const char *header, const char *payload)
{
    static const char *const digests[] = { NULL,     "SHA256", "SHA384", "SHA512", "SHA256", "SHA384",
                                           "SHA512", "SHA256", "SHA384", "SHA512", NULL };
    char h[4096], p[16384], *text = NULL, *out = NULL;
    uint8_t sig[1024], raw[132];
    size_t n = sizeof(sig);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *pctx = NULL;

    (void) base64url_encode(header, strlen(header), h);
    (void) base64url_encode(payload, strlen(payload), p);
    if (asprintf(&text, "%s.%s", h, p) < 0 || EVP_DigestSignInit_ex(ctx, &pctx, digests[alg], NULL, NULL, k, NULL) != 1)
        abort();
    if (alg >= JWT_PS256 && alg <= JWT_PS512) {
        (void) EVP_PKEY_CTX_set_rsa_padding(pctx, RSA_PKCS1_PSS_PADDING);
        (void) EVP_PKEY_CTX_set_rsa_pss_saltlen(pctx, RSA_PSS_SALTLEN_DIGEST);
    }
    if (EVP_DigestSign(ctx, sig, &n, (const uint8_t *) text, strlen(text)) != 1)
        abort();
    if (alg >= JWT_ES256 && alg <= JWT_ES512) {
        const uint8_t *der = sig;
        int f = (EVP_PKEY_get_bits(k) + 7) / 8;
        ECDSA_SIG *es = d2i_ECDSA_SIG(NULL, &der, (long) n);
        (void) BN_bn2binpad(ECDSA_SIG_get0_r(es), raw, f);
        (void) BN_bn2binpad(ECDSA_SIG_get0_s(es), raw + f, f);
        ECDSA_SIG_free(es);
        n = (size_t) f * 2;
        memcpy(sig, raw, n);
    }
    EVP_MD_CTX_free(ctx);
    (void) base64url_encode(sig, n, h);
    if (asprintf(&out, "%s.%s", text, h) < 0)
        abort();
    free(text);
    return out;
}

#endif
