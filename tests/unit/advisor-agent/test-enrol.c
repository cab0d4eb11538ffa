/* SPDX-License-Identifier: Apache-2.0 */
#include "advisor-agent/enrol.h"

#include <criterion/criterion.h>

#include "advisor-agent/renew.h"
#include "common/digest.h"

#define CA "-----BEGIN CERTIFICATE-----\\nMII\\n-----END CERTIFICATE-----\\n"
#define TOKEN "adv-enrol-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define REST "\"token\":\"" TOKEN "\",\"caCertificates\":\"" CA "\""

Test(bundle, whole)
{
    static const char text[] = "{\"cluster\":\"alpha\"," REST ",\"expireTime\":\"2026-01-02T03:04:05Z\",\"servers\":[\"a:1\",\"[::1]:2\"],"
                               "\"serverName\":\"advisor.example\",\"more\":1}";
    ADV_AUTO(enrol_bundle) b = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(enrol_bundle_parse(text, strlen(text), &b, &err), 0, "%s", err.msg);
    cr_assert_str_eq(b->cluster, "alpha");
    cr_assert_str_eq(b->token, TOKEN);
    cr_assert_str_eq(b->server_name, "advisor.example");
    cr_assert_eq(b->n_servers, 2);
    cr_assert_str_eq(b->servers[1], "[::1]:2");
    cr_assert_eq(b->expire_us, INT64_C(1767323045000000));
    cr_assert_eq(strncmp(b->ca, "-----BEGIN", 10), 0);
}

Test(bundle, least)
{
    static const char text[] = "{\"cluster\":\"a\"," REST ",\"servers\":[],\"serverName\":\"\",\"expireTime\":null}";
    ADV_AUTO(enrol_bundle) b = NULL;

    cr_assert_eq(enrol_bundle_parse(text, strlen(text), &b, NULL), 0);
    cr_assert_eq(b->n_servers, 0);
    cr_assert_str_eq(b->server_name, "");
}

Test(bundle, bad)
{
    static const struct {
        const char *text, *field;
    } t[] = {
        { "", "" },
        { "[]", "" },
        { "{}", "cluster" },
        { "{\"cluster\":7," REST "}", "cluster" },
        { "{\"cluster\":\"Alpha\"," REST "}", "cluster" },
        { "{\"cluster\":\"a/../b\"," REST "}", "cluster" },
        { "{\"cluster\":\"a b\"," REST "}", "cluster" },
        { "{\"cluster\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"," REST "}", "cluster" },
        { "{\"cluster\":\"a\",\"caCertificates\":\"" CA "\"}", "token" },
        { "{\"cluster\":\"a\",\"token\":\"x\"}", "caCertificates" },
        { "{\"cluster\":\"a\",\"token\":\"x\",\"caCertificates\":\"nothing\"}", "caCertificates" },
        { "{\"cluster\":\"a\"," REST ",\"servers\":\"a:1\"}", "servers" },
        { "{\"cluster\":\"a\"," REST ",\"servers\":[7]}", "servers" },
        { "{\"cluster\":\"a\"," REST ",\"servers\":[\"a:1\\nb\"]}", "servers" },
        { "{\"cluster\":\"a\"," REST ",\"serverName\":\"a b\"}", "serverName" },
        { "{\"cluster\":\"a\"," REST ",\"expireTime\":\"tomorrow\"}", "expireTime" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct enrol_bundle *b = NULL;
        struct adv_err err = { 0 };

        cr_assert_eq(enrol_bundle_parse(t[i].text, strlen(t[i].text), &b, &err), -ADV_INVALID_ARGUMENT, "%s", t[i].text);
        cr_assert_str_eq(err.field, t[i].field, "%s: %s", t[i].text, err.msg);
        cr_assert_null(b);
        cr_assert_null(strstr(err.msg, TOKEN), "a secret in a message");
    }
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    cr_assert_not_null(f);
    (void) fputs(text, f);
    (void) fclose(f);
}

/* A bundle that was used here is refused before anything is sent: nothing listens at the target, and an answer of the network
 * would be another one. */
Test(enrol, a_used_bundle_is_a_slip)
{
    static const char *const files[] = { "b.json", "agent.crt.bundle" };
    char dir[] = "/tmp/advisor-enrol-XXXXXX", path[2][80], cert[80], key[80], ca[80], marker[66];
    uint8_t raw[ADV_SHA256_LEN];
    struct agent_config cfg = { .cluster = (char *) (uintptr_t) "", .target = (char *) (uintptr_t) "256.0.0.1:1",
                                .server_name = (char *) (uintptr_t) "", .tls_cert = cert, .tls_key = key, .tls_ca = ca };
    struct adv_err err = { 0 };

    cr_assert_not_null(mkdtemp(dir));
    for (size_t i = 0; i < ADV_ARRAY_LEN(files); i++)
        (void) snprintf(path[i], sizeof(path[i]), "%s/%s", dir, files[i]);
    (void) snprintf(cert, sizeof(cert), "%s/agent.crt", dir);
    (void) snprintf(key, sizeof(key), "%s/agent.key", dir);
    (void) snprintf(ca, sizeof(ca), "%s/ca.crt", dir);
    cr_assert_eq(adv_sha256(TOKEN, strlen(TOKEN), raw, NULL), 0);
    (void) snprintf(marker, sizeof(marker), "%s\n", adv_hex(raw, sizeof(raw), (char[ADV_SHA256_HEX_SIZE]) { 0 }));
    put(path[0], "{\"cluster\":\"alpha\"," REST "}");
    put(path[1], marker);
    cr_assert_eq(enrol_run(&cfg, path[0], &err), -ADV_FAILED_PRECONDITION, "%s", err.msg);
    cr_assert_not_null(strstr(err.msg, "was used here before"), "%s", err.msg);
    for (size_t i = 0; i < ADV_ARRAY_LEN(files); i++)
        cr_assert_eq(unlink(path[i]), 0);
    cr_assert_eq(rmdir(dir), 0, "something was left");
}

Test(renew, due_after_two_thirds)
{
    const int64_t day = 86400, from = 1700000000;

    cr_assert_eq(renew_due_s(from, from + 90 * day, 0), from + 60 * day);
    cr_assert_lt(renew_due_s(from, from + 90 * day, UINT32_MAX), from + 69 * day);
    cr_assert_gt(renew_due_s(from, from + 90 * day, UINT32_MAX), from + 68 * day);
    for (int64_t life = 1; life < 100; life++)
        for (uint32_t r = 0; r < UINT32_MAX - 1000000000; r += 1000000000)
            cr_assert_lt(renew_due_s(from, from + life, r), from + life, "%d", (int) life);
    cr_assert_eq(renew_due_s(from, from - 5, 7), from - 5, "a certificate without a life");
}
