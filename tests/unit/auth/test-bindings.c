/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/auth/bindings.h"

#include <criterion/criterion.h>

#define ISSUER                                                                                                       \
    "issuers:\n"                                                                                                     \
    "  - alias: corp\n"                                                                                              \
    "    issuer: https://login\n"                                                                                    \
    "    audience: [advisor]\n"                                                                                      \
    "    keys: https://login/jwks\n"

static struct bindings *parsed(const char *text)
{
    struct bindings *b = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(bindings_parse("auth.yaml", text, strlen(text), &b, &err), 0, "%s", err.msg);
    return b;
}

static struct grants *resolved(struct bindings *b, enum api_role role, const char *name, const char *second)
{
    const char *names[] = { name, second };
    bool token = adv_startswith(name, "jwt");
    struct grants *g = bindings_resolve(b, names, second ? 2 : 1, role_rights(role), token);

    cr_assert_not_null(g);
    return g;
}

Test(bindings, whole_file)
{
    ADV_AUTO(bindings) b = parsed(
        "issuers:\n"
        "  - alias: corp\n"
        "    issuer: https://login\n"
        "    audience: [advisor, other]\n"
        "    keys: https://login/jwks\n"
        "    ca: /etc/ca.pem\n"
        "    algorithms: [PS256, EdDSA]\n"
        "    skew: 5s\n"
        "    refresh: 1m\n"
        "    user_claim: uid\n"
        "    groups_claim: roles\n"
        "  - alias: ci\n"
        "    issuer: https://ci\n"
        "    audience: [advisor]\n"
        "    keys: /etc/ci.json\n"
        "bindings:\n"
        "  - {principals: ['jwt:ci:*'], role: detector}\n");
    size_t n;
    const struct bindings_issuer *is = bindings_issuers(b, &n);

    cr_assert_eq(n, 2);
    cr_assert_str_eq(is[0].alias, "corp");
    cr_assert_str_eq(is[0].issuer, "https://login");
    cr_assert_eq(is[0].n_audiences, 2);
    cr_assert_str_eq(is[0].audiences[1], "other");
    cr_assert_str_eq(is[0].keys, "https://login/jwks");
    cr_assert_str_eq(is[0].ca, "/etc/ca.pem");
    cr_assert_eq(is[0].algs, JWT_ALG_BIT(JWT_PS256) | JWT_ALG_BIT(JWT_EDDSA));
    cr_assert_eq(is[0].skew_s, 5);
    cr_assert_eq(is[0].refresh_ms, 60000);
    cr_assert_str_eq(is[0].user_claim, "uid");
    cr_assert_str_eq(is[0].groups_claim, "roles");
    cr_assert_null(is[1].ca);
    cr_assert_eq(is[1].algs, JWT_ALGS_DEFAULT);
    cr_assert_eq(is[1].skew_s, 60);
    cr_assert_eq(is[1].refresh_ms, 600000);
    cr_assert_str_eq(is[1].user_claim, "preferred_username");
    cr_assert_str_eq(is[1].groups_claim, "groups");
}

Test(bindings, none_is_said)
{
    ADV_AUTO(bindings) b = parsed("bindings: []\n");
    ADV_AUTO(grants) g = resolved(b, ROLE_OPERATOR, "operator:alice", NULL);
    size_t n;

    (void) bindings_issuers(b, &n);
    cr_assert_eq(n, 0);
    cr_assert(grants_allow(g, ROLE_OPERATOR, "any", NULL, NULL, ""));
}

Test(bindings, globs_that_can_match_are_taken)
{
    ADV_AUTO(bindings) b = parsed(
        "bindings:\n"
        "  - {principals: ['operator:a[1]*', '*:!x'], role: reader, clusters: ['*', 'a?-_9*', '?'], accounts: ['ml_a.b-*@x', 'Phys']}\n");

    cr_assert_not_null(b);
}

Test(bindings, bad_files_say_where)
{
    static const struct {
        const char *text, *says;
    } t[] = {
        { "", "auth.yaml:1:1: nothing in it" },
        { "# nothing yet\n", "nothing in it" },
        { "{}", "nothing in it" },
        { "---\n...\n", "expected a mapping" },
        { "bindings:\n  - principals: ['reader:a']\n    role: reader\n    clusters: [beta, '!alpha']\n",
          "auth.yaml:4:22: cluster \"!alpha\" can match none" },
        { "bindings: [{principals: ['reader:a'], role: reader, clusters: ['[ab']}]", "cluster \"[ab\" can match none" },
        { "bindings: [{principals: ['reader:a'], role: reader, clusters: ['Prod-*']}]", "cluster \"Prod-*\"" },
        { "bindings: [{principals: ['reader:a'], role: reader, clusters: ['1*']}]", "the first of a-z" },
        { "bindings: [{principals: ['reader:a'], role: reader, accounts: ['!hr']}]", "auth.yaml:1:64: account \"!hr\" can match none" },
        { "bindings: [{principals: ['reader:a'], role: reader, accounts: ['ml-[ab']}]", "account \"ml-[ab\"" },
        { "bindings: [{principals: ['reader:a', 'bob'], role: reader}]", "auth.yaml:1:38: principal \"bob\"" },
        { "binding: []", "key \"binding\" is not known" },
        { "[]", "expected a mapping" },
        { "bindings: 7", "expected a list" },
        { "bindings: [7]", "expected a mapping" },
        { "bindings: [{role: reader}]", "\"principals\" is missing" },
        { "bindings: [{principals: ['reader:a']}]", "\"role\" is missing" },
        { "bindings: [{principals: [], role: reader}]", "empty list" },
        { "bindings: [{principals: ['reader:a'], role: agent}]", "role \"agent\"" },
        { "bindings: [{principals: ['reader:a'], role: root}]", "role \"root\"" },
        { "bindings: [{principals: ['reader:a'], role: reader, role: admin}]", "stands here twice" },
        { "bindings: [{principals: ['reader:a'], role: reader, cluster: ['a']}]", "key \"cluster\"" },
        { "bindings: [{principals: ['reader:a'], role: reader, clusters: 'a'}]", "expected a list" },
        { "bindings: [{principals: ['reader:a'], role: reader, clusters: ['']}]", "text of 0 bytes" },
        { "bindings: [{principals: ['alice'], role: reader}]", "principal \"alice\"" },
        { "bindings: [{principals: ['agent:alpha'], role: reader}]", "principal \"agent:alpha\"" },
        { "bindings: [{principals: ['jwt:corp:alice'], role: reader}]", "alias of an issuer" },
        { ISSUER "bindings: [{principals: ['jwt:corp:'], role: reader}]", "alias of an issuer" },
        { ISSUER "bindings: [{principals: ['jwt:cor:x'], role: reader}]", "alias of an issuer" },
        { ISSUER "bindings: [{principals: ['jwt-groups:corp:x'], role: reader}]", "principal" },
        { "bindings: []\n" ISSUER, "behind \"bindings\"" },
        { "issuers: [{alias: corp}]", "is missing" },
        { "issuers: [{alias: 'Corp:x'}]", "alias \"Corp:x\"" },
        { "issuers: [{alias: corp, issuer: i, audience: [a], keys: 'http://x'}]", "keys: expected" },
        { "issuers: [{alias: corp, issuer: i, audience: [a], keys: 'jwks.json'}]", "keys: expected" },
        { "issuers: [{alias: corp, issuer: i, audience: [a], keys: /k, ca: /c}]", "\"ca\" is of use only" },
        { "issuers: [{alias: corp, issuer: i, audience: [a], keys: /k, algorithms: [none]}]", "algorithm \"none\"" },
        { "issuers: [{alias: corp, issuer: i, audience: [a], keys: /k, algorithms: [HS256]}]", "algorithm \"HS256\"" },
        { "issuers: [{alias: corp, issuer: i, audience: [a], keys: /k, skew: 5}]", "5" },
        { "issuers: [{alias: corp, issuer: i, audience: [a], keys: /k, skew: 1h}]", "1h" },
        { ISSUER "  - {alias: corp, issuer: i, audience: [a], keys: /k}", "a second issuer \"corp\"" },
        { ISSUER "  - {alias: b, issuer: 'https://login', audience: [a], keys: /k}", "a second entry for this issuer" },
        { "bindings: &a [*a]", "anchor" },
        { "bindings: []\n---\nbindings: []", "second document" },
        { "bindings: [", "auth.yaml:2:" },
        { "bindings: [{principals: [\"reader:a\\nb\"], role: reader}]", "control character" },
        { "\xff", "UTF-8" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bindings *b = NULL;
        struct adv_err err = { 0 };

        cr_assert_eq(bindings_parse("auth.yaml", t[i].text, strlen(t[i].text), &b, &err), -ADV_INVALID_ARGUMENT, "%s", t[i].text);
        cr_assert_not_null(strstr(err.msg, t[i].says), "%s: \"%s\" lacks \"%s\"", t[i].text, err.msg, t[i].says);
        cr_assert_not_null(strstr(err.msg, "auth.yaml:"), "%s", err.msg);
        cr_assert_null(b);
    }
}

Test(bindings, certificates_are_limited_when_they_are_named)
{
    ADV_AUTO(bindings) b = parsed("bindings:\n"
                                  "  - {principals: ['operator:alice'], role: admin, clusters: ['prod-*']}\n"
                                  "  - {principals: ['operator:alice'], role: reader}\n"
                                  "  - {principals: ['admin:low'], role: reader}\n"
                                  "  - {principals: ['reader:bob'], role: user}\n");
    ADV_AUTO(grants) alice = resolved(b, ROLE_OPERATOR, "operator:alice", NULL);
    ADV_AUTO(grants) low = resolved(b, ROLE_ADMIN, "admin:low", NULL);
    ADV_AUTO(grants) bob = resolved(b, ROLE_READER, "reader:bob", NULL);
    ADV_AUTO(grants) carol = resolved(b, ROLE_OPERATOR, "operator:carol", NULL);

    cr_assert(grants_allow(alice, ROLE_OPERATOR, "prod-1", NULL, NULL, ""));
    cr_assert(!grants_allow(alice, ROLE_ADMIN, "prod-1", NULL, NULL, ""), "never above the certificate");
    cr_assert(!grants_allow(alice, ROLE_OPERATOR, "dev", NULL, NULL, ""));
    cr_assert(grants_allow(alice, ROLE_READER, "dev", "any", "any", ""), "bindings add up");
    cr_assert(!grants_allow(alice, ROLE_OPERATOR, NULL, NULL, NULL, ""), "the fleet is more than prod-*");
    cr_assert(grants_allow(low, ROLE_READER, "dev", NULL, NULL, ""));
    cr_assert(!grants_any(low, ROLE_OPERATOR));
    cr_assert(!grants_allow(bob, ROLE_READER, "dev", "a", "bob", ""), "a certificate of a reader names no user");
    cr_assert(grants_allow(carol, ROLE_OPERATOR, "dev", NULL, NULL, ""));
    cr_assert(grants_allow(carol, ROLE_OPERATOR, NULL, NULL, NULL, ""));
    cr_assert(!grants_any(carol, ROLE_ADMIN));
}

Test(bindings, certificates_of_any_role_are_no_tokens)
{
    ADV_AUTO(bindings) b = parsed(ISSUER "bindings:\n  - {principals: ['*:alice'], role: admin}\n");
    ADV_AUTO(grants) cert = resolved(b, ROLE_ADMIN, "operator:alice", NULL);
    ADV_AUTO(grants) token = resolved(b, ROLE_ADMIN, "jwt:corp:alice", NULL);
    ADV_AUTO(grants) group = resolved(b, ROLE_ADMIN, "jwt:corp:1", "jwt-group:corp:alice");

    cr_assert(grants_allow(cert, ROLE_ADMIN, "a", NULL, NULL, ""));
    cr_assert(grants_none(token) && grants_none(group), "an issuer's subjects and groups can be called anything");
}

Test(bindings, tokens_have_what_is_bound_and_no_more)
{
    ADV_AUTO(bindings) b = parsed(ISSUER "bindings:\n"
                                         "  - {principals: ['jwt:corp:*'], role: user}\n"
                                         "  - {principals: ['jwt-group:corp:sre'], role: operator, clusters: [a], accounts: [ml-*]}\n"
                                         "  - {principals: ['jwt-email:corp:*@x.org'], role: detector, clusters: [b]}\n");
    ADV_AUTO(grants) plain = resolved(b, ROLE_ADMIN, "jwt:corp:1", NULL);
    ADV_AUTO(grants) sre = resolved(b, ROLE_ADMIN, "jwt:corp:1", "jwt-group:corp:sre");
    ADV_AUTO(grants) det = resolved(b, ROLE_ADMIN, "jwt:corp:1", "jwt-email:corp:d@x.org");
    ADV_AUTO(grants) nobody = resolved(b, ROLE_ADMIN, "jwt:other:1", NULL);

    cr_assert(grants_none(nobody) && !grants_any(nobody, ROLE_READER));
    /* role user: clusters are seen, jobs only one's own */
    cr_assert(grants_allow(plain, ROLE_READER, "a", NULL, NULL, "joe"));
    cr_assert(grants_allow(plain, ROLE_READER, "a", "acc", "joe", "joe"));
    cr_assert(!grants_allow(plain, ROLE_READER, "a", "acc", "ann", "joe"));
    cr_assert(!grants_allow(plain, ROLE_READER, "a", "acc", "", ""), "no name is nobody's name");
    cr_assert(grants_allow(plain, ROLE_USER, "a", "acc", "joe", "joe"));
    cr_assert(!grants_allow(plain, ROLE_USER, "a", NULL, NULL, "joe"), "the whole cluster is not one's own");
    cr_assert(!grants_whole_cluster(plain, ROLE_READER, "a"));
    /* accounts */
    cr_assert(grants_allow(sre, ROLE_OPERATOR, "a", "ml-1", "ann", "joe"));
    cr_assert(!grants_allow(sre, ROLE_OPERATOR, "a", "hr", "ann", "joe"));
    cr_assert(!grants_allow(sre, ROLE_OPERATOR, "b", "ml-1", "ann", "joe"));
    cr_assert(!grants_allow(sre, ROLE_OPERATOR, "a", NULL, NULL, "joe"), "some accounts are not the cluster");
    cr_assert(grants_allow(sre, ROLE_READER, "a", "hr", "joe", "joe"), "as a user of one's own");
    /* detectors */
    cr_assert(grants_allow(det, ROLE_DETECTOR, "b", "x", "y", ""));
    cr_assert(!grants_allow(det, ROLE_DETECTOR, "a", "x", "y", ""));
    cr_assert(grants_whole_cluster(det, ROLE_DETECTOR, "b"));
    cr_assert(!grants_whole_cluster(det, ROLE_READER, "b"), "who may signal may not read");
}

Test(bindings, fleet_as_a_whole)
{
    ADV_AUTO(bindings) b = parsed("bindings:\n"
                                  "  - {principals: ['admin:some'], role: admin, clusters: [a]}\n"
                                  "  - {principals: ['admin:star'], role: admin, clusters: [x, '*']}\n"
                                  "  - {principals: ['admin:acc'], role: admin, accounts: [x]}\n");
    ADV_AUTO(grants) some = resolved(b, ROLE_ADMIN, "admin:some", NULL);
    ADV_AUTO(grants) star = resolved(b, ROLE_ADMIN, "admin:star", NULL);
    ADV_AUTO(grants) acc = resolved(b, ROLE_ADMIN, "admin:acc", NULL);

    cr_assert(!grants_allow(some, ROLE_ADMIN, NULL, NULL, NULL, ""));
    cr_assert(grants_allow(some, ROLE_READER, NULL, NULL, NULL, ""), "somebody who may see something may ask");
    cr_assert(grants_allow(some, ROLE_ADMIN, "a", NULL, NULL, ""));
    cr_assert(grants_allow(star, ROLE_ADMIN, NULL, NULL, NULL, ""));
    cr_assert(!grants_allow(acc, ROLE_ADMIN, NULL, NULL, NULL, ""));
    cr_assert(!grants_allow(acc, ROLE_ADMIN, "a", NULL, NULL, ""));
}

Test(bindings, digest_tells_a_change)
{
    ADV_AUTO(bindings) a = parsed("bindings: [{principals: ['reader:a'], role: reader, clusters: [x, y]}]");
    ADV_AUTO(bindings) same = parsed("bindings: [{principals: ['reader:*'], role: reader, clusters: [x, y]}]");
    ADV_AUTO(bindings) other = parsed("bindings: [{principals: ['reader:a'], role: reader, clusters: [xy]}]");
    ADV_AUTO(bindings) moved = parsed("bindings: [{principals: ['reader:a'], role: reader, accounts: [x, y]}]");
    ADV_AUTO(grants) g = resolved(a, ROLE_READER, "reader:a", NULL);
    ADV_AUTO(grants) gs = resolved(same, ROLE_READER, "reader:a", NULL);
    ADV_AUTO(grants) go = resolved(other, ROLE_READER, "reader:a", NULL);
    ADV_AUTO(grants) gm = resolved(moved, ROLE_READER, "reader:a", NULL);

    cr_assert_eq(grants_digest(g), grants_digest(gs));
    cr_assert_neq(grants_digest(g), grants_digest(go));
    cr_assert_neq(grants_digest(g), grants_digest(gm));
    cr_assert(!grants_any(grants_nothing(), ROLE_READER));
}

Test(bindings, too_large)
{
    adv_auto_free char *text = malloc(BINDINGS_MAX_BYTES + 2);
    struct bindings *b = NULL;

    memset(text, '#', BINDINGS_MAX_BYTES + 1);
    cr_assert_eq(bindings_parse("x", text, BINDINGS_MAX_BYTES + 1, &b, NULL), -ADV_RESOURCE_EXHAUSTED);
}
