/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/auth.h"

#include <criterion/criterion.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "mint.h"

static char dir[] = "/tmp/advisor-auth-XXXXXX";
static char bindings_path[64], keys_path[64];
static uv_loop_t loop;
static struct auth *auth;

static void put(const char *path, const char *text)
{
    char tmp[80];
    (void) snprintf(tmp, sizeof(tmp), "%s.new", path);
    FILE *f = fopen(tmp, "w");
    (void) fputs(text, f);
    (void) fclose(f);
    (void) rename(tmp, path);
}

static void put_keys(EVP_PKEY *k, const char *kid)
{
    adv_auto_free char *jwk = mint_jwk(k, kid, "");
    char text[1024];
    (void) snprintf(text, sizeof(text), "{\"keys\":[%s]}", jwk);
    put(keys_path, text);
}

static void put_bindings(const char *rest)
{
    char text[4096];
    (void) snprintf(text, sizeof(text),
                    "issuers:\n  - {alias: corp, issuer: 'https://login', audience: [advisor], keys: %s, skew: 0s}\n%s", keys_path,
                    rest);
    put(bindings_path, text);
}

static void setup(void)
{
    cr_assert_not_null(mkdtemp(dir));
    (void) snprintf(bindings_path, sizeof(bindings_path), "%s/auth.yaml", dir);
    (void) snprintf(keys_path, sizeof(keys_path), "%s/jwks.json", dir);
    (void) uv_loop_init(&loop);
}

static void open_auth(const char *path)
{
    const struct auth_config cfg = { .bindings_path = path, .check_ms = 20 };
    struct adv_err err = { 0 };
    cr_assert_eq(auth_new(&loop, &cfg, &auth, &err), 0, "%s", err.msg);
}

static void teardown(void)
{
    auth = auth_free(auth);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    (void) unlink(bindings_path);
    (void) unlink(keys_path);
    (void) rmdir(dir);
}

TestSuite(identity, .init = setup, .fini = teardown);

static struct identity *by_token(const char *token, int64_t now_s, struct adv_err *err)
{
    char header[4096];
    struct identity *id = NULL;
    int n = snprintf(header, sizeof(header), "Bearer %s", token);

    return auth_by_header(auth, header, (size_t) n, now_s, &id, err) < 0 ? NULL : id;
}

/* Runs the loop until the token is taken, or refused for another reason than keys that are being read. */
static struct identity *wait_token(const char *token, int64_t now_s, struct adv_err *err)
{
    struct identity *id = NULL;
    int64_t until = adv_mono_us() + 20000000;

    while (!(id = by_token(token, now_s, err)) && adv_streq(err->reason, "TOKEN_KEYS_UNAVAILABLE") && adv_mono_us() < until)
        (void) uv_run(&loop, UV_RUN_ONCE);
    return id;
}

static char *token_for(EVP_PKEY *k, const char *kid, const char *more, int64_t exp)
{
    char header[128], claims[512];
    (void) snprintf(header, sizeof(header), "{\"alg\":\"ES256\",\"kid\":\"%s\"}", kid);
    (void) snprintf(claims, sizeof(claims), "{\"iss\":\"https://login\",\"sub\":\"42\",\"aud\":\"advisor\",\"exp\":%lld%s}",
                    (long long) exp, more);
    return mint_token(k, JWT_ES256, header, claims);
}

Test(identity, certificates_without_a_file)
{
    struct auth_name n;

    open_auth(NULL);
    cr_assert(auth_name_parse("advisor:operator:alice", &n));
    ADV_AUTO(identity) id = auth_by_certificate(auth, &n, 0);
    cr_assert_str_eq(identity_principal(id), "operator:alice");
    cr_assert_str_eq(identity_user(id), "");
    cr_assert(grants_allow(identity_grants(id), ROLE_OPERATOR, "any", NULL, NULL, ""));
    cr_assert(auth_name_parse("advisor:user:joe", &n));
    ADV_AUTO(identity) joe = auth_by_certificate(auth, &n, 77);
    cr_assert_str_eq(identity_user(joe), "joe");
    cr_assert_eq(identity_expires_s(joe), 77);
    cr_assert(grants_allow(identity_grants(joe), ROLE_READER, "a", "acc", "joe", identity_user(joe)));
    cr_assert(!grants_allow(identity_grants(joe), ROLE_READER, "a", "acc", "ann", identity_user(joe)));
    cr_assert(!auth_takes_tokens(auth));
}

Test(identity, names_in_certificates)
{
    static const char *const bad[] = { "", "advisor:", "advisor:operator", "advisor:operator:", "advisor:root:x", "advisor::x",
                                       "Advisor:operator:x", "http://x", "advisor:none:x", "advisor:operator:a\nb",
                                       "advisor:verylongroleindeed:x",
                                       "advisor:reader:01234567890123456789012345678901234567890123456789012345678901234" };
    struct auth_name n;

    open_auth(NULL);
    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++)
        cr_assert(!auth_name_parse(bad[i], &n), "%s", bad[i]);
    cr_assert(auth_name_parse("advisor:agent:alpha", &n) && n.role == ROLE_AGENT);
    cr_assert_str_eq(n.name, "alpha");
    cr_assert_str_eq(n.principal, "agent:alpha");
}

Test(identity, a_token_and_what_its_claims_name)
{
    EVP_PKEY *k = mint_key("P-256");
    adv_auto_free char *token = token_for(k, "k", ",\"groups\":[\"sre\"],\"preferred_username\":\"joe\"", 2000);
    adv_auto_free char *mail = token_for(k, "k", ",\"email\":\"a@x.org\",\"email_verified\":true", 2000);
    adv_auto_free char *unverified = token_for(k, "k", ",\"email\":\"a@x.org\"", 2000);
    struct adv_err err = { 0 };

    put_keys(k, "k");
    put_bindings("bindings:\n  - {principals: ['jwt-group:corp:sre'], role: operator, clusters: [a]}\n"
                 "  - {principals: ['jwt-email:corp:*@x.org'], role: reader}\n");
    open_auth(bindings_path);
    cr_assert(auth_takes_tokens(auth));
    ADV_AUTO(identity) id = wait_token(token, 1000, &err);
    cr_assert_not_null(id, "%s", err.msg);
    cr_assert_str_eq(identity_principal(id), "jwt:corp:42");
    cr_assert_str_eq(identity_user(id), "joe");
    cr_assert_eq(identity_expires_s(id), 2000);
    cr_assert(grants_allow(identity_grants(id), ROLE_OPERATOR, "a", NULL, NULL, "joe"));
    cr_assert(!grants_allow(identity_grants(id), ROLE_OPERATOR, "b", NULL, NULL, "joe"));
    char header[4096];
    int n = snprintf(header, sizeof(header), "Bearer %s", token);
    ADV_AUTO(identity) again = auth_by_header_again(auth, header, (size_t) n, 1999);
    cr_assert_eq(again, id, "remembered");
    cr_assert_null(auth_by_header_again(auth, header, (size_t) n, 2000));
    cr_assert_null(auth_by_header_again(auth, header, (size_t) n - 1, 1999));
    cr_assert_null(by_token(token, 2000, &err));
    cr_assert_str_eq(err.reason, "TOKEN_EXPIRED", "not longer than it is valid");
    ADV_AUTO(identity) m = by_token(mail, 1000, &err);
    cr_assert(grants_any(identity_grants(m), ROLE_READER));
    ADV_AUTO(identity) u = by_token(unverified, 1000, &err);
    cr_assert(grants_none(identity_grants(u)));
    EVP_PKEY_free(k);
}

Test(identity, headers)
{
    static const char *const bad[] = { "", "Bearer", "Basic dXNlcjpwYXNz", "Bearer\tx", "bearerx" };
    struct identity *id = NULL;
    struct adv_err err = { 0 };
    EVP_PKEY *k = mint_key("P-256");
    adv_auto_free char *other = mint_token(k, JWT_ES256, "{\"alg\":\"ES256\"}", "{\"iss\":\"https://else\"}");

    put_keys(k, "k");
    put_bindings("");
    open_auth(bindings_path);
    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++) {
        cr_assert_eq(auth_by_header(auth, bad[i], strlen(bad[i]), 1, &id, &err), -ADV_UNAUTHENTICATED);
        cr_assert_str_eq(err.reason, "AUTHORIZATION_MALFORMED");
    }
    cr_assert_eq(auth_by_header(auth, "bearer x.y.z", 12, 1, &id, &err), -ADV_UNAUTHENTICATED);
    cr_assert_str_eq(err.reason, "TOKEN_MALFORMED");
    cr_assert_null(by_token(other, 1, &err));
    cr_assert_str_eq(err.reason, "TOKEN_ISSUER");
    EVP_PKEY_free(k);
}

Test(identity, rotated_keys_are_found)
{
    EVP_PKEY *old = mint_key("P-256"), *new = mint_key("P-256");
    adv_auto_free char *first = token_for(old, "1", "", 5000), *second = token_for(new, "2", "", 5000);
    struct adv_err err = { 0 };
    int64_t until = adv_mono_us() + 30000000;

    put_keys(old, "1");
    put_bindings("bindings: [{principals: ['jwt:corp:*'], role: reader}]\n");
    open_auth(bindings_path);
    ADV_AUTO(identity) id = wait_token(first, 1000, &err);
    cr_assert_not_null(id, "%s", err.msg);
    cr_assert_null(by_token(second, 1000, &err));
    cr_assert_str_eq(err.reason, "TOKEN_KEY_UNKNOWN", "just read, so not read again at once");
    put_keys(new, "2");
    struct identity *found = NULL;
    while (!(found = by_token(second, 1000, &err)) && adv_mono_us() < until)
        (void) uv_run(&loop, UV_RUN_ONCE); /* the file check ticks */
    cr_assert_not_null(found, "%s", err.msg);
    (void) identity_unref(found);
    cr_assert_null(by_token(first, 1000, &err), "what the old key signed is no longer taken");
    cr_assert_str_eq(err.reason, "TOKEN_KEY_UNKNOWN");
    EVP_PKEY_free(old);
    EVP_PKEY_free(new);
}

Test(identity, a_changed_file_changes_rights_at_once)
{
    EVP_PKEY *k = mint_key("P-256");
    adv_auto_free char *token = token_for(k, "k", "", 5000);
    struct adv_err err = { 0 }, cut = { 0 };
    struct auth_name n;
    uint64_t before;
    int64_t until = adv_mono_us() + 20000000;

    put_keys(k, "k");
    put_bindings("bindings:\n  - {principals: ['jwt:corp:42'], role: operator}\n  - {principals: ['reader:bob'], role: reader}\n");
    open_auth(bindings_path);
    ADV_AUTO(identity) id = wait_token(token, 1000, &err);
    cr_assert(auth_name_parse("advisor:reader:bob", &n));
    ADV_AUTO(identity) bob = auth_by_certificate(auth, &n, 0);
    cr_assert(grants_any(identity_grants(id), ROLE_OPERATOR));
    before = auth_generation(auth);

    put(bindings_path, ""); /* cut to nothing: changes nothing */
    cr_assert_eq(auth_reload(auth, NULL, &cut), -ADV_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(cut.msg, bindings_path), "%s", cut.msg);
    cr_assert_not_null(strstr(cut.msg, ":1:1: nothing in it"), "%s", cut.msg);
    put(bindings_path, "bindings: [oops]\n"); /* changes nothing */
    cr_assert_eq(auth_reload(auth, NULL, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(auth_generation(auth), before);
    cr_assert(grants_any(identity_grants(id), ROLE_OPERATOR));

    put_bindings("bindings:\n  - {principals: ['jwt:corp:42'], role: reader, clusters: [a]}\n"
                 "  - {principals: ['reader:bob'], role: reader, clusters: [b]}\n");
    while (auth_generation(auth) == before && adv_mono_us() < until)
        (void) uv_run(&loop, UV_RUN_ONCE);
    cr_assert(!grants_any(identity_grants(id), ROLE_OPERATOR));
    cr_assert(grants_allow(identity_grants(id), ROLE_READER, "a", NULL, NULL, ""));
    cr_assert(!grants_allow(identity_grants(bob), ROLE_READER, "a", NULL, NULL, ""));
    ADV_AUTO(identity) fresh = by_token(token, 1000, &err);
    cr_assert_not_null(fresh, "the issuer's keys are still there: %s", err.msg);

    put(bindings_path, "issuers:\n  - {alias: corp, issuer: 'https://another', audience: [x], keys: /nowhere}\n"
                       "bindings: [{principals: ['jwt:corp:*'], role: admin}]\n");
    cr_assert_eq(auth_reload(auth, NULL, &err), 0, "%s", err.msg);
    cr_assert(grants_none(identity_grants(id)), "another issuer under the same alias gives the old one's tokens nothing");
    EVP_PKEY_free(k);
}

Test(identity, keys_that_cannot_be_read)
{
    EVP_PKEY *k = mint_key("P-256");
    adv_auto_free char *token = token_for(k, "k", "", 5000);
    struct adv_err err = { 0 };

    put_bindings("");
    open_auth(bindings_path);
    cr_assert_null(by_token(token, 1000, &err));
    cr_assert_str_eq(err.reason, "TOKEN_KEYS_UNAVAILABLE");
    cr_assert_eq(err.code, ADV_UNAVAILABLE);
    cr_assert_gt(err.retry_after_ms, 0);
    EVP_PKEY_free(k);
}

Test(identity, no_such_file)
{
    const struct auth_config cfg = { .bindings_path = "/nowhere/auth.yaml" };
    struct adv_err err = { 0 };

    cr_assert_eq(auth_new(&loop, &cfg, &auth, &err), -ADV_NOT_FOUND);
    cr_assert_null(auth);
}

Test(identity, outlives_its_maker)
{
    struct auth_name n;

    open_auth(NULL);
    cr_assert(auth_name_parse("advisor:reader:x", &n));
    struct identity *id = auth_by_certificate(auth, &n, 0);
    auth = auth_free(auth);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(grants_any(identity_grants(id), ROLE_READER));
    (void) identity_unref(id);
}
