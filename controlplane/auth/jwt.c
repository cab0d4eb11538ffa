/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/jwt.h"

#include <math.h>

#include "common/json.h"
#include "common/utf8.h"
#include "controlplane/auth/text.h"

#define MAX_TEXT  255
#define MAX_TIMES 1e13 /* seconds; beyond it a double no longer counts single ones, and nobody means it */

struct jwt {
    char *bytes;
    size_t signed_len; /* header.payload */
    uint8_t *signature;
    size_t signature_len;
    json_t *header, *claims;
    enum jwt_alg alg;
};

static int refuse(struct adv_err *err, enum adv_code code, const char *reason, const char *fmt, ...) ADV_PRINTF(4, 5);
static int refuse(struct adv_err *err, enum adv_code code, const char *reason, const char *fmt, ...)
{
    char text[200];
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return adv_err_set_reason(err, code, reason, "token: %s", text);
}

static int no_memory(struct adv_err *err)
{
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
}

struct jwt *jwt_free(struct jwt *t)
{
    if (!t)
        return NULL;
    json_decref(t->header);
    json_decref(t->claims);
    free(t->signature);
    free(t->bytes);
    free(t);
    return NULL;
}

/* A part that is a JSON object in base64url. */
static int part_object(const char *part, size_t len, const char *what, json_t **ret, struct adv_err *err)
{
    adv_auto_free uint8_t *raw = malloc(base64url_room(len));
    ADV_JSON_AUTO json_t *v = NULL;
    struct adv_err why;
    ssize_t n;

    if (!raw)
        return no_memory(err);
    n = base64url_decode(part, len, raw);
    if (n < 0)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "the %s is not base64url", what);
    /* the parser would mend bad bytes, which makes two names one */
    if (!adv_utf8_valid(raw, (size_t) n) || adv_json_parse(raw, (size_t) n, JWT_MAX_BYTES, &v, &why) < 0)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "the %s is no JSON", what);
    if (!json_is_object(v))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "the %s is no JSON object", what);
    *ret = ADV_STEAL(v);
    return 0;
}

/* "JWT", "at+jwt", "application/at+jwt" or nothing said. */
static bool type_ok(const json_t *typ)
{
    const char *s = json_string_value(typ);

    if (!typ)
        return true;
    if (s && strncasecmp(s, "application/", strlen("application/")) == 0)
        s += strlen("application/");
    return s && (strcasecmp(s, "jwt") == 0 || strcasecmp(s, "at+jwt") == 0);
}

static int read_header(struct jwt *t, struct adv_err *err)
{
    const json_t *alg = json_object_get(t->header, "alg"), *kid = json_object_get(t->header, "kid");

    if (!json_is_string(alg))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "no \"alg\" in the header");
    t->alg = jwt_alg_from_name(json_string_value(alg));
    if (t->alg == JWT_ALG_NONE)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_ALGORITHM", "algorithm \"%.20s\" is not accepted", json_string_value(alg));
    if (json_object_get(t->header, "crit"))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "\"crit\" in the header: no extension is known here");
    if (!type_ok(json_object_get(t->header, "typ")))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "\"typ\" in the header: expected JWT or at+jwt");
    if (kid && (!json_is_string(kid) || json_string_length(kid) > MAX_TEXT))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "\"kid\" in the header: expected a text of at most %d bytes", MAX_TEXT);
    return 0;
}

int jwt_open(const char *bytes, size_t len, struct jwt **ret, struct adv_err *err)
{
    ADV_AUTO(jwt) t = calloc(1, sizeof(*t));
    const char *dot1 = memchr(bytes, '.', len), *dot2, *end = bytes + len;
    ssize_t n;
    int r;

    if (!t)
        return no_memory(err);
    if (len > JWT_MAX_BYTES)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "%zu bytes, expected at most %d", len, JWT_MAX_BYTES);
    dot2 = dot1 ? memchr(dot1 + 1, '.', (size_t) (end - dot1 - 1)) : NULL;
    if (!dot2 || memchr(dot2 + 1, '.', (size_t) (end - dot2 - 1)))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "expected three parts with dots between them");
    if ((r = part_object(bytes, (size_t) (dot1 - bytes), "header", &t->header, err)) < 0 ||
        (r = read_header(t, err)) < 0 ||
        (r = part_object(dot1 + 1, (size_t) (dot2 - dot1 - 1), "payload", &t->claims, err)) < 0)
        return r;
    t->bytes = strndup(bytes, len);
    t->signature = malloc(base64url_room((size_t) (end - dot2)));
    if (!t->bytes || !t->signature)
        return no_memory(err);
    t->signed_len = (size_t) (dot2 - bytes);
    n = base64url_decode(dot2 + 1, (size_t) (end - dot2 - 1), t->signature);
    if (n <= 0)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "the signature is not base64url");
    t->signature_len = (size_t) n;
    *ret = ADV_STEAL(t);
    return 0;
}

const char *jwt_unverified_issuer(const struct jwt *t)
{
    const char *s = json_string_value(json_object_get(t->claims, "iss"));

    return s ? s : "";
}

/* ---- checks ----------------------------------------------------------------------------------------------------- */

/* Seconds of a NumericDate. */
static int time_claim(const struct jwt *t, const char *name, bool *ret_there, double *ret, struct adv_err *err)
{
    const json_t *v = json_object_get(t->claims, name);

    *ret_there = v != NULL;
    if (!v)
        return 0;
    *ret = json_number_value(v);
    if (!json_is_number(v) || !isfinite(*ret) || *ret < 0 || *ret > MAX_TIMES)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "\"%s\": expected seconds since 1970", name);
    return 0;
}

static int check_times(const struct jwt *t, const struct jwt_rules *rules, int64_t now_s, struct adv_err *err)
{
    bool has_exp, has_nbf, has_iat;
    double exp, nbf, iat, now = (double) now_s, skew = (double) rules->skew_s;
    int r;

    if ((r = time_claim(t, "exp", &has_exp, &exp, err)) < 0 || (r = time_claim(t, "nbf", &has_nbf, &nbf, err)) < 0 ||
        (r = time_claim(t, "iat", &has_iat, &iat, err)) < 0)
        return r;
    if (!has_exp)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_MALFORMED", "no \"exp\": a token without an end is not accepted");
    if (now >= exp + skew)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_EXPIRED", "expired %.0f s ago", now - exp);
    if (has_nbf && now < nbf - skew)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_NOT_YET_VALID", "valid in %.0f s", nbf - now);
    if (has_iat && now < iat - skew)
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_NOT_YET_VALID", "issued %.0f s in the future", iat - now);
    return 0;
}

static bool meant_for(const struct jwt_rules *rules, const json_t *aud)
{
    const char *s = json_string_value(aud);

    for (size_t i = 0; s && i < rules->n_audiences; i++)
        if (adv_streq(s, rules->audiences[i]))
            return true;
    return false;
}

static int check_audience(const struct jwt *t, const struct jwt_rules *rules, struct adv_err *err)
{
    const json_t *aud = json_object_get(t->claims, "aud"), *one;
    size_t i;

    if (meant_for(rules, aud))
        return 0;
    json_array_foreach (aud, i, one)
        if (meant_for(rules, one))
            return 0;
    return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_AUDIENCE", "\"aud\" does not name this control plane");
}

/* Printable text in one line. */
static bool text_ok(const json_t *v, size_t max)
{
    const char *s = json_string_value(v);
    size_t len = s ? json_string_length(v) : 0;

    if (!s || len > max || strlen(s) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char) s[i] < 0x20 || s[i] == 0x7f)
            return false;
    return true;
}

int jwt_check(const struct jwt *t, const struct jwks *keys, const struct jwt_rules *rules, int64_t now_s,
              struct adv_err *err)
{
    const char *kid = json_string_value(json_object_get(t->header, "kid"));
    const json_t *sub = json_object_get(t->claims, "sub");
    int r;

    if (!(rules->algs & JWT_ALG_BIT(t->alg)))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_ALGORITHM", "algorithm %s is not on the issuer's list", jwt_alg_name(t->alg));
    if (!adv_streq(jwt_unverified_issuer(t), rules->issuer))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_ISSUER", "\"iss\" is not %.100s", rules->issuer);
    switch (jwks_verify(keys, t->alg, kid ? kid : "", t->bytes, t->signed_len, t->signature, t->signature_len)) {
    case JWKS_UNKNOWN:
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_KEY_UNKNOWN", "no %s key with kid \"%.64s\"", jwt_alg_name(t->alg), kid ? kid : "");
    case JWKS_BAD:
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_SIGNATURE", "the signature is wrong");
    case JWKS_GOOD:
        break;
    }
    if ((r = check_times(t, rules, now_s, err)) < 0 || (r = check_audience(t, rules, err)) < 0)
        return r;
    if (!text_ok(sub, JWT_MAX_SUBJECT) || !*json_string_value(sub))
        return refuse(err, ADV_UNAUTHENTICATED, "TOKEN_SUBJECT", "\"sub\": expected a name of 1 to %d bytes", JWT_MAX_SUBJECT);
    return 0;
}

/* ---- claims ----------------------------------------------------------------------------------------------------- */

const char *jwt_claim_text(const struct jwt *t, const char *name)
{
    const json_t *v = json_object_get(t->claims, name);

    return text_ok(v, MAX_TEXT) ? json_string_value(v) : "";
}

bool jwt_claim_true(const struct jwt *t, const char *name)
{
    return json_is_true(json_object_get(t->claims, name));
}

const char *jwt_claim_item(const struct jwt *t, const char *name, size_t i)
{
    const json_t *v = json_object_get(t->claims, name);

    if (json_is_array(v))
        v = json_array_get(v, i);
    else if (i > 0)
        v = NULL;
    return !v ? NULL : text_ok(v, MAX_TEXT) ? json_string_value(v) : "";
}

int64_t jwt_expiry_s(const struct jwt *t)
{
    return (int64_t) json_number_value(json_object_get(t->claims, "exp"));
}
