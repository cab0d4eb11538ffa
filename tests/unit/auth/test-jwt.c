/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/jwt.h"

#include <criterion/criterion.h>

#include "mint.h"

#define NOW 1700000000
#define HEADER "{\"alg\":\"ES256\",\"kid\":\"k\",\"typ\":\"JWT\"}"
#define GOOD_CLAIMS \
    "{\"iss\":\"https://issuer\",\"sub\":\"alice\",\"aud\":\"advisor\",\"exp\":1700000300,\"iat\":1699999990}"

static EVP_PKEY *key;
static struct jwks *keys;
static const char *const audiences[] = { "advisor", "https://advisor.example" };
static const struct jwt_rules rules = { "https://issuer", audiences, 2, JWT_ALGS_DEFAULT, 60 };

static void setup(void)
{
    adv_auto_free char *jwk = NULL;
    char text[1024];

    key = mint_key("P-256");
    jwk = mint_jwk(key, "k", "");
    (void) snprintf(text, sizeof(text), "{\"keys\":[%s]}", jwk);
    cr_assert_eq(jwks_parse(text, strlen(text), &keys, NULL), 0);
}

static void teardown(void)
{
    EVP_PKEY_free(key);
    keys = jwks_free(keys);
}

/* "" when the token is good, else the reason. */
static const char *verdict(const char *token, const struct jwt_rules *ru, int64_t now_s)
{
    ADV_AUTO(jwt) t = NULL;
    struct adv_err err = { 0 };
    int r = jwt_open(token, strlen(token), &t, &err);

    if (r == 0)
        r = jwt_check(t, keys, ru, now_s, &err);
    if (r == 0)
        return "";
    cr_assert_eq(r, -ADV_UNAUTHENTICATED, "%s", err.msg);
    cr_assert(err.reason && *err.msg);
    return err.reason;
}

static const char *minted(const char *header, const char *claims, int64_t now_s)
{
    adv_auto_free char *token = mint_token(key, JWT_ES256, header, claims);

    return verdict(token, &rules, now_s);
}

TestSuite(jwt, .init = setup, .fini = teardown);

Test(jwt, good)
{
    adv_auto_free char *token = mint_token(key, JWT_ES256, HEADER,
                                           "{\"iss\":\"https://issuer\",\"sub\":\"alice\",\"aud\":[\"x\",\"advisor\"],"
                                           "\"exp\":1700000300.5,\"groups\":[\"a\",7,\"b\"],\"email\":\"a@b\","
                                           "\"email_verified\":true,\"one\":\"two\",\"bad\":\"a\\nb\"}");
    ADV_AUTO(jwt) t = NULL;

    cr_assert_eq(jwt_open(token, strlen(token), &t, NULL), 0);
    cr_assert_str_eq(jwt_unverified_issuer(t), "https://issuer");
    cr_assert_eq(jwt_check(t, keys, &rules, NOW, NULL), 0);
    cr_assert_str_eq(jwt_claim_text(t, "sub"), "alice");
    cr_assert_str_eq(jwt_claim_text(t, "nothing"), "");
    cr_assert_str_eq(jwt_claim_text(t, "groups"), "");
    cr_assert_str_eq(jwt_claim_text(t, "bad"), "", "control characters are no name");
    cr_assert(jwt_claim_true(t, "email_verified") && !jwt_claim_true(t, "email"));
    cr_assert_str_eq(jwt_claim_item(t, "groups", 0), "a");
    cr_assert_str_eq(jwt_claim_item(t, "groups", 1), "");
    cr_assert_str_eq(jwt_claim_item(t, "groups", 2), "b");
    cr_assert_null(jwt_claim_item(t, "groups", 3));
    cr_assert_str_eq(jwt_claim_item(t, "one", 0), "two");
    cr_assert_null(jwt_claim_item(t, "one", 1));
    cr_assert_null(jwt_claim_item(t, "nothing", 0));
    cr_assert_eq(jwt_expiry_s(t), 1700000300);
}

Test(jwt, claims)
{
#define CLAIMS(rest) "{\"iss\":\"https://issuer\",\"sub\":\"alice\",\"aud\":\"advisor\"," rest "}"
    static const struct {
        const char *claims;
        int64_t now_s;
        const char *reason;
    } t[] = {
        { GOOD_CLAIMS, NOW, "" },
        { GOOD_CLAIMS, 1700000359, "" }, /* within the skew */
        { GOOD_CLAIMS, 1700000360, "TOKEN_EXPIRED" },
        { GOOD_CLAIMS, 1699999930, "" },
        { GOOD_CLAIMS, 1699999929, "TOKEN_NOT_YET_VALID" }, /* issued in the future */
        { CLAIMS("\"exp\":1700000300,\"nbf\":1700000060"), NOW, "" },
        { CLAIMS("\"exp\":1700000300,\"nbf\":1700000061"), NOW, "TOKEN_NOT_YET_VALID" },
        { CLAIMS("\"iat\":1"), NOW, "TOKEN_MALFORMED" }, /* no end */
        { CLAIMS("\"exp\":\"1700000300\""), NOW, "TOKEN_MALFORMED" },
        { CLAIMS("\"exp\":1e300"), NOW, "TOKEN_MALFORMED" },
        { CLAIMS("\"exp\":-1"), NOW, "TOKEN_MALFORMED" },
        { CLAIMS("\"exp\":null"), NOW, "TOKEN_MALFORMED" },
        { CLAIMS("\"exp\":1700000300,\"nbf\":true"), NOW, "TOKEN_MALFORMED" },
        { "{\"iss\":\"https://other\",\"sub\":\"a\",\"aud\":\"advisor\",\"exp\":1700000300}", NOW, "TOKEN_ISSUER" },
        { "{\"sub\":\"a\",\"aud\":\"advisor\",\"exp\":1700000300}", NOW, "TOKEN_ISSUER" },
        { "{\"iss\":[\"https://issuer\"],\"sub\":\"a\",\"aud\":\"advisor\",\"exp\":1700000300}", NOW, "TOKEN_ISSUER" },
        { "{\"iss\":\"https://issuer\",\"sub\":\"a\",\"aud\":\"other\",\"exp\":1700000300}", NOW, "TOKEN_AUDIENCE" },
        { "{\"iss\":\"https://issuer\",\"sub\":\"a\",\"aud\":[],\"exp\":1700000300}", NOW, "TOKEN_AUDIENCE" },
        { "{\"iss\":\"https://issuer\",\"sub\":\"a\",\"aud\":[\"x\",7,null],\"exp\":1700000300}", NOW, "TOKEN_AUDIENCE" },
        { "{\"iss\":\"https://issuer\",\"sub\":\"a\",\"exp\":1700000300}", NOW, "TOKEN_AUDIENCE" },
        { "{\"iss\":\"https://issuer\",\"sub\":\"a\",\"aud\":\"https://advisor.example\",\"exp\":1700000300}", NOW, "" },
        { "{\"iss\":\"https://issuer\",\"aud\":\"advisor\",\"exp\":1700000300}", NOW, "TOKEN_SUBJECT" },
        { "{\"iss\":\"https://issuer\",\"sub\":\"\",\"aud\":\"advisor\",\"exp\":1700000300}", NOW, "TOKEN_SUBJECT" },
        { "{\"iss\":\"https://issuer\",\"sub\":7,\"aud\":\"advisor\",\"exp\":1700000300}", NOW, "TOKEN_SUBJECT" },
        { "{\"iss\":\"https://issuer\",\"sub\":\"a\\nb\",\"aud\":\"advisor\",\"exp\":1700000300}", NOW, "TOKEN_SUBJECT" },
        { "{\"iss\":\"https://issuer\",\"sub\":\"0123456789012345678901234567890123456789012345678901234567890123456789"
          "012345678901234567890123456\",\"aud\":\"advisor\",\"exp\":1700000300}", NOW, "TOKEN_SUBJECT" },
        { "[]", NOW, "TOKEN_MALFORMED" },
        { "", NOW, "TOKEN_MALFORMED" },
        { "{\"a\":1,\"a\":2}", NOW, "TOKEN_MALFORMED" }, /* which of the two? */
        { "{\"sub\":\"\xff\"}", NOW, "TOKEN_MALFORMED" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_str_eq(minted(HEADER, t[i].claims, t[i].now_s), t[i].reason, "%s", t[i].claims);
}

Test(jwt, headers)
{
    static const struct {
        const char *header, *reason;
    } t[] = {
        { "{\"alg\":\"ES256\",\"kid\":\"k\"}", "" },
        { "{\"alg\":\"ES256\"}", "" }, /* there is one key only */
        { "{\"alg\":\"ES256\",\"kid\":\"k\",\"typ\":\"at+jwt\"}", "" },
        { "{\"alg\":\"ES256\",\"kid\":\"k\",\"typ\":\"application/at+JWT\"}", "" },
        { "{\"alg\":\"ES256\",\"kid\":\"k\",\"jku\":\"https://evil\",\"jwk\":{}}", "" }, /* never looked at */
        { "{\"alg\":\"ES256\",\"kid\":\"k\",\"typ\":\"secevent+jwt\"}", "TOKEN_MALFORMED" },
        { "{\"alg\":\"ES256\",\"kid\":\"k\",\"typ\":7}", "TOKEN_MALFORMED" },
        { "{\"alg\":\"ES256\",\"kid\":\"k\",\"crit\":[\"exp\"]}", "TOKEN_MALFORMED" },
        { "{\"alg\":\"ES256\",\"kid\":7}", "TOKEN_MALFORMED" },
        { "{\"alg\":\"ES256\",\"kid\":\"other\"}", "TOKEN_KEY_UNKNOWN" },
        { "{\"alg\":\"none\"}", "TOKEN_ALGORITHM" },
        { "{\"alg\":\"None\"}", "TOKEN_ALGORITHM" },
        { "{\"alg\":\"HS256\",\"kid\":\"k\"}", "TOKEN_ALGORITHM" },
        { "{\"alg\":\"es256\",\"kid\":\"k\"}", "TOKEN_ALGORITHM" },
        { "{\"alg\":\"ES512\",\"kid\":\"k\"}", "TOKEN_ALGORITHM" }, /* not on the list */
        { "{\"alg\":\"RS256\",\"kid\":\"k\"}", "TOKEN_KEY_UNKNOWN" }, /* the key is of another family */
        { "{\"alg\":[\"ES256\"]}", "TOKEN_MALFORMED" },
        { "{\"kid\":\"k\"}", "TOKEN_MALFORMED" },
        { "{\"alg\":\"ES256\",\"alg\":\"none\"}", "TOKEN_MALFORMED" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_str_eq(minted(t[i].header, GOOD_CLAIMS, NOW), t[i].reason, "%s", t[i].header);
}

/* Every single change of a good token is noticed: this is what a signature is for. */
Test(jwt, no_byte_can_be_changed)
{
    adv_auto_free char *token = mint_token(key, JWT_ES256, HEADER, GOOD_CLAIMS);
    static const char letters[] = "AZaz09-_.";

    cr_assert_str_eq(verdict(token, &rules, NOW), "");
    for (size_t i = 0; token[i]; i++) {
        char was = token[i];

        for (const char *c = letters; *c; c++) {
            token[i] = *c;
            if (*c != was)
                cr_assert_str_neq(verdict(token, &rules, NOW), "", "byte %zu: %c for %c", i, *c, was);
        }
        token[i] = was;
    }
}

Test(jwt, shapes)
{
    static const char *const t[] = { "", ".", "..", "a.b", "a.b.c.d", "....", "e30.e30.", "e30.e30", "{}.{}.x", " e30.e30.e30" };
    adv_auto_free char *token = mint_token(key, JWT_ES256, HEADER, GOOD_CLAIMS);
    adv_auto_free char *big = malloc(JWT_MAX_BYTES + 2);
    struct jwt *j = NULL;

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_str_eq(verdict(t[i], &rules, NOW), "TOKEN_MALFORMED", "%s", t[i]);
    for (size_t n = 0; n < strlen(token); n++)
        if (jwt_open(token, n, &j, NULL) == 0) {
            cr_assert(jwt_check(j, keys, &rules, NOW, NULL) < 0);
            j = jwt_free(j);
        }
    memset(big, 'A', JWT_MAX_BYTES + 1);
    big[JWT_MAX_BYTES + 1] = '\0';
    big[100] = big[200] = '.';
    cr_assert_str_eq(verdict(big, &rules, NOW), "TOKEN_MALFORMED");
}

/* The public key as an HMAC secret: the classic. */
Test(jwt, another_key_of_the_same_kid)
{
    EVP_PKEY *other = mint_key("P-256");
    adv_auto_free char *token = mint_token(other, JWT_ES256, HEADER, GOOD_CLAIMS);

    cr_assert_str_eq(verdict(token, &rules, NOW), "TOKEN_SIGNATURE");
    EVP_PKEY_free(other);
}
