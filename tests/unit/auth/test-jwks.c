/* SPDX-License-Identifier: Apache-2.0 */
/* The vectors are those of RFC 7515 A.2 and A.3 and RFC 8037 A.4. */
#include "controlplane/auth/jwks.h"

#include <criterion/criterion.h>

#include "mint.h"

#define RFC_RSA                                                                                                       \
    "\"kty\":\"RSA\",\"n\":\"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1"    \
    "Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-"    \
    "KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2eth"    \
    "FkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ\",\"e\":\"AQAB\""
#define RFC_EC                                                                                                        \
    "\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","                            \
    "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\""
#define RFC_ED "\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\""
#define RFC_CLAIMS                                                                                                    \
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"

static struct jwks *set_of(const char *keys)
{
    struct adv_err err = { 0 };
    struct jwks *s = NULL;
    char text[8192];

    (void) snprintf(text, sizeof(text), "{\"keys\":[%s]}", keys);
    cr_assert_eq(jwks_parse(text, strlen(text), &s, &err), 0, "%s: %s", keys, err.msg);
    return s;
}

static enum jwks_answer verify(const struct jwks *s, enum jwt_alg alg, const char *kid, const char *signed_text,
                               const char *signature)
{
    uint8_t sig[1024];
    ssize_t n = base64url_decode(signature, strlen(signature), sig);

    cr_assert_gt(n, 0);
    return jwks_verify(s, alg, kid, signed_text, strlen(signed_text), sig, (size_t) n);
}

static const struct {
    enum jwt_alg alg;
    const char *jwk, *signed_text, *signature;
} rfc[] = {
    { JWT_RS256, RFC_RSA, "eyJhbGciOiJSUzI1NiJ9." RFC_CLAIMS,
      "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dn"
      "ZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC"
      "-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw" },
    { JWT_ES256, RFC_EC, "eyJhbGciOiJFUzI1NiJ9." RFC_CLAIMS,
      "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q" },
    { JWT_EDDSA, RFC_ED, "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc",
      "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg" },
};

Test(jwks, vectors_of_the_rfcs)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(rfc); i++) {
        char jwk[2048], wrong[512];
        (void) snprintf(jwk, sizeof(jwk), "{%s}", rfc[i].jwk);
        ADV_AUTO(jwks) s = set_of(jwk);

        cr_assert_eq(verify(s, rfc[i].alg, "", rfc[i].signed_text, rfc[i].signature), JWKS_GOOD, "%zu", i);
        (void) snprintf(wrong, sizeof(wrong), "%s", rfc[i].signature);
        wrong[10] = wrong[10] == 'A' ? 'B' : 'A';
        cr_assert_eq(verify(s, rfc[i].alg, "", rfc[i].signed_text, wrong), JWKS_BAD);
        (void) snprintf(wrong, sizeof(wrong), "%s", rfc[i].signed_text);
        wrong[30] = wrong[30] == 'A' ? 'B' : 'A';
        cr_assert_eq(verify(s, rfc[i].alg, "", wrong, rfc[i].signature), JWKS_BAD);
        for (int a = JWT_ALG_NONE; a <= JWT_ALG_LAST_; a++)
            if (a != (int) rfc[i].alg)
                cr_assert_neq(verify(s, (enum jwt_alg) a, "", rfc[i].signed_text, rfc[i].signature), JWKS_GOOD);
    }
}

Test(jwks, every_algorithm)
{
    static const struct {
        const char *type;
        enum jwt_alg alg;
    } t[] = {
        { "RSA", JWT_RS256 },   { "RSA", JWT_RS384 },   { "RSA", JWT_RS512 },   { "RSA", JWT_PS256 },
        { "RSA", JWT_PS384 },   { "RSA", JWT_PS512 },   { "P-256", JWT_ES256 }, { "P-384", JWT_ES384 },
        { "P-521", JWT_ES512 }, { "ED25519", JWT_EDDSA },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        EVP_PKEY *k = mint_key(t[i].type);
        adv_auto_free char *jwk = mint_jwk(k, "k", "");
        adv_auto_free char *token = mint_token(k, t[i].alg, "{}", "{}");
        ADV_AUTO(jwks) s = set_of(jwk);
        char *dot = strrchr(token, '.');

        *dot = '\0';
        cr_assert_eq(verify(s, t[i].alg, "k", token, dot + 1), JWKS_GOOD, "%s", jwt_alg_name(t[i].alg));
        cr_assert_eq(verify(s, t[i].alg, "other", token, dot + 1), JWKS_UNKNOWN);
        cr_assert_eq(jwt_alg_from_name(jwt_alg_name(t[i].alg)), t[i].alg);
        EVP_PKEY_free(k);
    }
    cr_assert_eq(jwt_alg_from_name("none"), JWT_ALG_NONE);
    cr_assert_eq(jwt_alg_from_name("HS256"), JWT_ALG_NONE);
    cr_assert_eq(jwt_alg_from_name(""), JWT_ALG_NONE);
}

Test(jwks, a_key_is_used_for_what_it_says)
{
    static const char *const t[] = { "\"alg\":\"RS512\",", "\"use\":\"enc\",", "\"key_ops\":[\"encrypt\"],",
                                     "\"alg\":\"HS256\",", "\"alg\":\"ES256\",", "\"use\":7," };
    static const char good[] = "{" RFC_ED "}";

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        char keys[4096];
        (void) snprintf(keys, sizeof(keys), "{%s%s},%s", t[i], RFC_RSA, good);
        ADV_AUTO(jwks) s = set_of(keys);
        cr_assert_eq(verify(s, JWT_RS256, "", rfc[0].signed_text, rfc[0].signature), JWKS_UNKNOWN, "%s", t[i]);
        cr_assert_eq(jwks_count(s), i == 0 ? 2u : 1u, "%s", t[i]);
    }
    ADV_AUTO(jwks) s = set_of("{\"alg\":\"RS256\",\"use\":\"sig\",\"key_ops\":[\"verify\"]," RFC_RSA "}");
    cr_assert_eq(verify(s, JWT_RS256, "", rfc[0].signed_text, rfc[0].signature), JWKS_GOOD);
}

Test(jwks, without_kid_it_must_be_the_only_one)
{
    EVP_PKEY *k = mint_key("P-256");
    adv_auto_free char *other = mint_jwk(k, "b", "");
    char keys[4096];

    (void) snprintf(keys, sizeof(keys), "{\"kid\":\"a\",%s},%s", RFC_EC, other);
    ADV_AUTO(jwks) s = set_of(keys);
    cr_assert_eq(verify(s, JWT_ES256, "", rfc[1].signed_text, rfc[1].signature), JWKS_UNKNOWN);
    cr_assert_eq(verify(s, JWT_ES256, "a", rfc[1].signed_text, rfc[1].signature), JWKS_GOOD);
    cr_assert_eq(verify(s, JWT_ES256, "b", rfc[1].signed_text, rfc[1].signature), JWKS_BAD);
    EVP_PKEY_free(k);
}

/* r or s of zero, too long, too short, DER instead of two numbers */
Test(jwks, odd_signatures)
{
    ADV_AUTO(jwks) s = set_of("{" RFC_EC "}");
    uint8_t sig[80] = { 0 };

    for (size_t n = 0; n <= sizeof(sig); n++)
        cr_assert_eq(jwks_verify(s, JWT_ES256, "", "x", 1, sig, n), JWKS_BAD, "%zu", n);
    memset(sig, 0xff, sizeof(sig));
    for (size_t n = 0; n <= sizeof(sig); n++)
        cr_assert_eq(jwks_verify(s, JWT_ES256, "", "x", 1, sig, n), JWKS_BAD, "%zu", n);
}

Test(jwks, malformed)
{
    static const char *const t[] = {
        "", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[]}", "{\"keys\":[7]}", "{\"keys\":[{}]}", "nonsense", "{\"keys\":[{" RFC_EC "}]}x",
        /* a point that is not on the curve */
        "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
        "\"y\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\"}]}",
        /* the wrong length for the curve */
        "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-384\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
        "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}",
        "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"secp256k1\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
        "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}]}",
        "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AAAA\"}]}",
        "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"X25519\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}",
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75\"}]}",
        /* RSA too small, and with an exponent of 1 */
        "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}",
        "{\"keys\":[{" RFC_EC "},{" RFC_EC ",\"kid\":\"\xff\"}]}",
        "{\"keys\":[{\"kid\":\"a\"," RFC_EC "},{\"kid\":\"a\"," RFC_EC "}]}",
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct adv_err err = { 0 };
        struct jwks *s = NULL;

        cr_assert_eq(jwks_parse(t[i], strlen(t[i]), &s, &err), -ADV_INVALID_ARGUMENT, "%s", t[i]);
        cr_assert_null(s);
        cr_assert(*err.msg);
    }
}

Test(jwks, rsa_exponent_one_signs_anything)
{
    char keys[4096], *e;

    (void) snprintf(keys, sizeof(keys), "{\"keys\":[{%s}]}", RFC_RSA);
    e = strstr(keys, "\"AQAB\"");
    memcpy(e, "\"AQ\"  ", 6);
    struct jwks *s = NULL;
    cr_assert_eq(jwks_parse(keys, strlen(keys), &s, NULL), -ADV_INVALID_ARGUMENT);
}

Test(jwks, too_many)
{
    adv_auto_free char *text = malloc(JWKS_MAX_BYTES + 100);
    struct jwks *s = NULL;
    size_t n = 0;

    n += (size_t) sprintf(text, "{\"keys\":[");
    for (int i = 0; i <= JWKS_MAX_KEYS; i++)
        n += (size_t) sprintf(text + n, "%s{%s,\"kid\":\"%d\"}", i ? "," : "", RFC_ED, i);
    n += (size_t) sprintf(text + n, "]}");
    cr_assert_eq(jwks_parse(text, n, &s, NULL), -ADV_RESOURCE_EXHAUSTED);
    memset(text, ' ', JWKS_MAX_BYTES + 1);
    cr_assert_eq(jwks_parse(text, JWKS_MAX_BYTES + 1, &s, NULL), -ADV_RESOURCE_EXHAUSTED);
}
