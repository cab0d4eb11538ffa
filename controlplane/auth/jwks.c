/* SPDX-License-Identifier: Apache-2.0 */
/* A key remembers the one family of algorithms it may be used with, so that a token cannot choose to have an RSA key used
 * as something else; and the "alg" of its JWK, if there is one, is the only algorithm it is used for. */

#include "controlplane/auth/jwks.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>

#include "common/json.h"
#include "common/utf8.h"
#include "controlplane/auth/text.h"

#define RSA_MIN_BITS 2048
#define RSA_MAX_BITS 8192 /* verification of larger ones costs milliseconds */
#define MAX_MEMBER   2048 /* characters of n, x, y: 8192 bits are 1366 */
#define MAX_KID      255

enum family { FAMILY_RSA, FAMILY_P256, FAMILY_P384, FAMILY_P521, FAMILY_ED25519 };

static const struct {
    const char *name;
    enum family family;
    bool pss;
    const char *digest; /* NULL: the algorithm has its own */
} algs[JWT_ALG_LAST_ + 1] = {
    [JWT_ALG_NONE] = { "", FAMILY_RSA, false, NULL },
    [JWT_RS256] = { "RS256", FAMILY_RSA, false, "SHA256" },
    [JWT_RS384] = { "RS384", FAMILY_RSA, false, "SHA384" },
    [JWT_RS512] = { "RS512", FAMILY_RSA, false, "SHA512" },
    [JWT_PS256] = { "PS256", FAMILY_RSA, true, "SHA256" },
    [JWT_PS384] = { "PS384", FAMILY_RSA, true, "SHA384" },
    [JWT_PS512] = { "PS512", FAMILY_RSA, true, "SHA512" },
    [JWT_ES256] = { "ES256", FAMILY_P256, false, "SHA256" },
    [JWT_ES384] = { "ES384", FAMILY_P384, false, "SHA384" },
    [JWT_ES512] = { "ES512", FAMILY_P521, false, "SHA512" },
    [JWT_EDDSA] = { "EdDSA", FAMILY_ED25519, false, NULL },
};

static const struct {
    const char *crv, *group;
    enum family family;
    size_t field_bytes;
} curves[] = {
    { "P-256", "P-256", FAMILY_P256, 32 },
    { "P-384", "P-384", FAMILY_P384, 48 },
    { "P-521", "P-521", FAMILY_P521, 66 },
};

struct key {
    EVP_PKEY *pkey;
    enum family family;
    enum jwt_alg only; /* JWT_ALG_NONE: any of the family */
    char kid[MAX_KID + 1];
};

struct jwks {
    struct key keys[JWKS_MAX_KEYS];
    size_t n;
};

const char *jwt_alg_name(enum jwt_alg alg)
{
    return algs[alg].name;
}

enum jwt_alg jwt_alg_from_name(const char *name)
{
    for (int a = JWT_ALG_NONE + 1; a <= JWT_ALG_LAST_; a++)
        if (adv_streq(name, algs[a].name))
            return (enum jwt_alg) a;
    return JWT_ALG_NONE;
}

/* ---- one key ---------------------------------------------------------------------------------------------------- */

/* The bytes of a base64url member; -1 when it is absent or no such text. */
static ssize_t member_bytes(const json_t *jwk, const char *name, uint8_t *ret)
{
    const json_t *v = json_object_get(jwk, name);
    size_t len = json_is_string(v) ? json_string_length(v) : 0;

    return len > 0 && len <= MAX_MEMBER ? base64url_decode(json_string_value(v), len, ret) : -1;
}

static EVP_PKEY *from_params(const char *type, OSSL_PARAM_BLD *bld)
{
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(bld);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *pkey = NULL;

    if (!params || !ctx || EVP_PKEY_fromdata_init(ctx) != 1 ||
        EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params) != 1) {
        EVP_PKEY_free(pkey);
        pkey = NULL;
    }
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return pkey;
}

static EVP_PKEY *rsa_key(const json_t *jwk)
{
    uint8_t n_bytes[base64url_room(MAX_MEMBER)], e_bytes[base64url_room(MAX_MEMBER)];
    ssize_t n_len = member_bytes(jwk, "n", n_bytes), e_len = member_bytes(jwk, "e", e_bytes);
    EVP_PKEY *pkey = NULL;

    if (n_len <= 0 || e_len <= 0 || e_len > 8)
        return NULL;
    BIGNUM *n = BN_bin2bn(n_bytes, (int) n_len, NULL), *e = BN_bin2bn(e_bytes, (int) e_len, NULL);
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    /* an exponent of 1 makes every message its own signature; an even one is none */
    if (n && e && bld && BN_num_bits(n) >= RSA_MIN_BITS && BN_num_bits(n) <= RSA_MAX_BITS && BN_is_odd(n) &&
        BN_is_odd(e) && !BN_is_one(e) && OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
        OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_RSA_E, e) == 1)
        pkey = from_params("RSA", bld);
    OSSL_PARAM_BLD_free(bld);
    BN_free(e);
    BN_free(n);
    return pkey;
}

static EVP_PKEY *ec_key(const json_t *jwk, enum family *ret_family)
{
    const char *crv = json_string_value(json_object_get(jwk, "crv"));
    uint8_t x[base64url_room(MAX_MEMBER)], y[base64url_room(MAX_MEMBER)], point[1 + 2 * 66];
    ssize_t x_len = member_bytes(jwk, "x", x), y_len = member_bytes(jwk, "y", y);

    for (size_t i = 0; i < ADV_ARRAY_LEN(curves); i++) {
        size_t f = curves[i].field_bytes;
        EVP_PKEY *pkey = NULL;

        if (!adv_streq(crv, curves[i].crv))
            continue;
        if (x_len != (ssize_t) f || y_len != (ssize_t) f)
            return NULL;
        point[0] = POINT_CONVERSION_UNCOMPRESSED;
        memcpy(point + 1, x, f);
        memcpy(point + 1 + f, y, f);
        OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
        if (bld && OSSL_PARAM_BLD_push_utf8_string(bld, OSSL_PKEY_PARAM_GROUP_NAME, curves[i].group, 0) == 1 &&
            OSSL_PARAM_BLD_push_octet_string(bld, OSSL_PKEY_PARAM_PUB_KEY, point, 1 + 2 * f) == 1)
            pkey = from_params("EC", bld); /* refuses a point that is not on the curve */
        OSSL_PARAM_BLD_free(bld);
        *ret_family = curves[i].family;
        return pkey;
    }
    return NULL;
}

static EVP_PKEY *ed25519_key(const json_t *jwk)
{
    uint8_t x[base64url_room(MAX_MEMBER)];
    ssize_t len = member_bytes(jwk, "x", x);

    if (!adv_streq(json_string_value(json_object_get(jwk, "crv")), "Ed25519") || len != 32)
        return NULL;
    return EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x, 32);
}

/* For signatures, as far as the key says what it is for. */
static bool for_signatures(const json_t *jwk)
{
    const json_t *use = json_object_get(jwk, "use"), *ops = json_object_get(jwk, "key_ops"), *op;
    size_t i;

    if (use && !adv_streq(json_string_value(use), "sig"))
        return false;
    if (!ops)
        return true;
    json_array_foreach (ops, i, op)
        if (adv_streq(json_string_value(op), "verify"))
            return true;
    return false;
}

/* False when the key is of no use here. */
static bool read_key(const json_t *jwk, struct key *ret)
{
    const char *kty = json_string_value(json_object_get(jwk, "kty"));
    const json_t *kid = json_object_get(jwk, "kid"), *alg = json_object_get(jwk, "alg");
    struct key k = { 0 };

    if (!json_is_object(jwk) || !kty || !for_signatures(jwk))
        return false;
    if (kid && (!json_is_string(kid) || json_string_length(kid) > MAX_KID))
        return false;
    if (alg && (k.only = jwt_alg_from_name(json_string_value(alg))) == JWT_ALG_NONE)
        return false;
    if (kid)
        (void) strcpy(k.kid, json_string_value(kid));
    if (adv_streq(kty, "RSA")) {
        k.family = FAMILY_RSA;
        k.pkey = rsa_key(jwk);
    } else if (adv_streq(kty, "EC")) {
        k.pkey = ec_key(jwk, &k.family);
    } else if (adv_streq(kty, "OKP")) {
        k.family = FAMILY_ED25519;
        k.pkey = ed25519_key(jwk);
    }
    if (!k.pkey || (k.only && algs[k.only].family != k.family)) {
        EVP_PKEY_free(k.pkey);
        return false;
    }
    *ret = k;
    return true;
}

/* ---- the set ---------------------------------------------------------------------------------------------------- */

struct jwks *jwks_free(struct jwks *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->n; i++)
        EVP_PKEY_free(s->keys[i].pkey);
    free(s);
    return NULL;
}

size_t jwks_count(const struct jwks *s)
{
    return s->n;
}

static bool ambiguous(const struct jwks *s, const struct key *k)
{
    for (size_t i = 0; i < s->n; i++)
        if (k->kid[0] && s->keys[i].family == k->family && adv_streq(s->keys[i].kid, k->kid) &&
            (!s->keys[i].only || !k->only || s->keys[i].only == k->only))
            return true;
    return false;
}

static int malformed(struct adv_err *err, const char *what)
{
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "not a set of keys: %s", what);
}

int jwks_parse(const void *json, size_t len, struct jwks **ret, struct adv_err *err)
{
    ADV_JSON_AUTO json_t *root = NULL;
    ADV_AUTO(jwks) s = calloc(1, sizeof(*s));
    const json_t *keys, *jwk;
    size_t i;
    int r;

    if (!s)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if (!adv_utf8_valid(json, len))
        return malformed(err, "expected UTF-8");
    if ((r = adv_json_parse(json, len, JWKS_MAX_BYTES, &root, err)) < 0)
        return r;
    keys = json_object_get(root, "keys");
    if (!json_is_array(keys))
        return malformed(err, "expected an object with a list \"keys\"");
    if (json_array_size(keys) > JWKS_MAX_KEYS)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%zu keys, expected at most %d", json_array_size(keys),
                           JWKS_MAX_KEYS);
    json_array_foreach (keys, i, jwk) {
        struct key k;

        if (!read_key(jwk, &k))
            continue;
        if (ambiguous(s, &k)) {
            EVP_PKEY_free(k.pkey);
            ERR_clear_error();
            return malformed(err, "two keys of one kid");
        }
        s->keys[s->n++] = k;
    }
    ERR_clear_error();
    if (!s->n)
        return adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "%zu keys, none of use: expected RSA from 2048 bits, EC on P-256, P-384 or P-521, or Ed25519",
                           json_array_size(keys));
    *ret = ADV_STEAL(s);
    return 0;
}

/* ---- signatures ------------------------------------------------------------------------------------------------- */

/* JOSE writes r and s one behind the other, OpenSSL wants them as ASN.1. */
static int ec_der(enum family family, const uint8_t *sig, size_t len, uint8_t **ret)
{
    size_t f = 0;
    int n = -1;

    for (size_t i = 0; i < ADV_ARRAY_LEN(curves); i++)
        if (curves[i].family == family)
            f = curves[i].field_bytes;
    if (len != 2 * f)
        return -1;
    ECDSA_SIG *es = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(sig, (int) f, NULL), *s = BN_bin2bn(sig + f, (int) f, NULL);
    if (es && r && s && ECDSA_SIG_set0(es, r, s) == 1) {
        r = s = NULL;
        n = i2d_ECDSA_SIG(es, ret);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(es);
    return n;
}

static bool signed_by(const struct key *k, enum jwt_alg alg, const void *bytes, size_t len, const uint8_t *sig,
                      size_t sig_len)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *pctx = NULL; /* owned by ctx */
    uint8_t *der = NULL;
    bool ok = ctx && EVP_DigestVerifyInit_ex(ctx, &pctx, algs[alg].digest, NULL, NULL, k->pkey, NULL) == 1;

    if (ok && algs[alg].pss)
        ok = EVP_PKEY_CTX_set_rsa_padding(pctx, RSA_PKCS1_PSS_PADDING) == 1 &&
             EVP_PKEY_CTX_set_rsa_pss_saltlen(pctx, RSA_PSS_SALTLEN_DIGEST) == 1;
    if (ok && (k->family == FAMILY_P256 || k->family == FAMILY_P384 || k->family == FAMILY_P521)) {
        int n = ec_der(k->family, sig, sig_len, &der);
        ok = n > 0;
        sig = der;
        sig_len = ok ? (size_t) n : 0;
    }
    ok = ok && EVP_DigestVerify(ctx, sig, sig_len, bytes, len) == 1;
    OPENSSL_free(der);
    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return ok;
}

enum jwks_answer jwks_verify(const struct jwks *s, enum jwt_alg alg, const char *kid, const void *bytes, size_t len,
                             const uint8_t *signature, size_t signature_len)
{
    const struct key *fits = NULL;

    for (size_t i = 0; alg != JWT_ALG_NONE && i < s->n; i++) {
        const struct key *k = &s->keys[i];

        if (k->family != algs[alg].family || (k->only && k->only != alg) || (*kid && !adv_streq(k->kid, kid)))
            continue;
        if (fits)
            return JWKS_UNKNOWN;
        fits = k;
    }
    if (!fits)
        return JWKS_UNKNOWN;
    return signed_by(fits, alg, bytes, len, signature, signature_len) ? JWKS_GOOD : JWKS_BAD;
}
