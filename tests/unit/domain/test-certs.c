/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "controlplane/domain/fleet.h"

#define S INT64_C(1000000)

static struct fleet *fleet;
static int64_t now_us;
static char verb[64]; /* of the last audit event, "" without one */

static int apply(struct event *ev, struct adv_err *err)
{
    struct intents in;
    int r;

    intents_init(&in);
    ev->now_us = ev->mono_us = now_us;
    ev->principal = "admin:root";
    if (!ev->cluster)
        ev->cluster = "a";
    *err = (struct adv_err) { 0 };
    r = fleet_apply(fleet, ev, &in, err);
    cr_assert(!in.oom);
    (void) snprintf(verb, sizeof(verb), "%s", in.n_audit ? in.audit[in.n_audit - 1].verb : "");
    cr_assert(r == 0 || (in.n == 0 && in.n_audit == 0), "an error changed something");
    intents_done(&in);
    return r;
}

static void setup(void)
{
    const struct fleet_config cfg = { .lease_us = 45 * S };
    struct event ev = { .type = EV_CLUSTER_CREATE };
    struct adv_err err;

    fleet = fleet_new(&cfg);
    fleet_load_done(fleet, true, 0, 0);
    now_us = 1700000000 * S + 500000;
    cr_assert_eq(apply(&ev, &err), 0);
}

static void teardown(void)
{
    fleet = fleet_free(fleet);
}

TestSuite(certs, .init = setup, .fini = teardown);

static struct cluster *a(void)
{
    return fleet_find_cluster(fleet, "a");
}

static const struct enrolment *make(const char *token, int64_t valid_us)
{
    struct event ev = { .type = EV_ENROL_CREATE, .u.enrol.valid_us = valid_us };
    struct adv_err err;

    (void) snprintf(ev.u.enrol.token_sha256, sizeof(ev.u.enrol.token_sha256), "%s", token);
    cr_assert_eq(apply(&ev, &err), 0, "%s", err.msg);
    return fleet_find_enrolment(a(), token);
}

/* "" when a certificate was given, else the reason. */
static const char *redeem(const char *cluster, const char *token, const char *key)
{
    struct event ev = { .type = EV_ENROL_REDEEM, .cluster = cluster, .u.redeem.serial = "77" };
    static struct adv_err err;

    (void) snprintf(ev.u.redeem.token_sha256, sizeof(ev.u.redeem.token_sha256), "%s", token);
    (void) snprintf(ev.u.redeem.key_sha256, sizeof(ev.u.redeem.key_sha256), "%s", key);
    ev.u.redeem.not_before_s = cluster_cert_not_before_s(a(), now_us);
    if (apply(&ev, &err) < 0)
        return err.reason;
    return ev.u.redeem.ret_refused ? "refused" : "";
}

static const char *revoke_it(const char *serial, int64_t before_us)
{
    struct event ev = { .type = EV_CERT_REVOKE, .u.revoke.before_us = before_us, .u.revoke.reason = "lost" };
    static struct adv_err err;

    (void) snprintf(ev.u.revoke.serial, sizeof(ev.u.revoke.serial), "%s", serial);
    return apply(&ev, &err) < 0 ? err.reason : "";
}

static const char *hello(const char *serial, int64_t issued_s)
{
    struct event ev = { .type = EV_AGENT_HELLO };
    static struct adv_err err;

    ev.u.hello.serial = serial;
    ev.u.hello.issued_s = issued_s;
    ev.u.hello.instance_id = "i";
    ev.u.hello.journal_id = "j";
    return apply(&ev, &err) < 0 ? err.reason : "";
}

Test(certs, a_token_is_used_once)
{
    const struct enrolment *e = make("t1", 0);

    cr_assert_str_eq(verb, "enrolment.create");
    cr_assert_eq(e->expire_us, now_us + 86400 * S);
    cr_assert_str_eq(e->principal, "admin:root");
    struct event again = { .type = EV_ENROL_CREATE, .u.enrol.token_sha256 = "t1" };
    struct adv_err err;
    cr_assert_eq(apply(&again, &err), -ADV_ALREADY_EXISTS);
    cr_assert_str_eq(err.reason, "ENROLMENT_EXISTS");
    cr_assert_str_eq(redeem("a", "nothing", "k1"), "ENROLMENT_REFUSED");
    cr_assert_str_eq(redeem("nowhere", "t1", "k1"), "ENROLMENT_REFUSED", "which clusters there are is not told");
    cr_assert_str_eq(redeem("a", "t1", "k1"), "");
    cr_assert_str_eq(verb, "enrolment.redeem");
    cr_assert_str_eq(e->serial, "77");
    cr_assert_str_eq(redeem("a", "t1", "k1"), "", "the same key: its answer was lost");
    cr_assert_str_eq(redeem("a", "t1", "k2"), "refused");
    cr_assert_str_eq(verb, "enrolment.reuse", "a person should know");
    cr_assert_str_eq(redeem("a", "t1", "k3"), "refused");
    cr_assert_str_eq(verb, "", "once");
    cr_assert_str_eq(redeem("a", "t1", "k1"), "");
    now_us = e->expire_us;
    cr_assert_str_eq(redeem("a", "t1", "k1"), "ENROLMENT_REFUSED", "nobody's any more");
}

Test(certs, tokens_end_and_are_forgotten)
{
    struct event ev = { .type = EV_ENROL_CREATE, .u.enrol.valid_us = S - 1 };
    struct adv_err err;

    cr_assert_eq(apply(&ev, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_str_eq(err.reason, "DURATION_OUT_OF_RANGE");
    ev.u.enrol.valid_us = 31 * 86400 * S;
    cr_assert_eq(apply(&ev, &err), -ADV_INVALID_ARGUMENT);
    (void) make("short", 60 * S);
    now_us += 60 * S;
    cr_assert_str_eq(redeem("a", "short", "k"), "ENROLMENT_REFUSED");
    now_us += 29 * 86400 * S;
    (void) make("next", 0);
    cr_assert_not_null(fleet_find_enrolment(a(), "short"));
    now_us += 2 * 86400 * S;
    (void) make("third", 0);
    cr_assert_null(fleet_find_enrolment(a(), "short"));
    cr_assert_not_null(fleet_find_enrolment(a(), "next"));
}

Test(certs, only_so_many)
{
    struct event ev = { .type = EV_ENROL_CREATE };
    struct adv_err err;
    char token[32];

    for (int i = 0; i < 256; i++) {
        (void) snprintf(token, sizeof(token), "t%d", i);
        (void) make(token, 0);
    }
    (void) snprintf(ev.u.enrol.token_sha256, sizeof(ev.u.enrol.token_sha256), "one more");
    cr_assert_eq(apply(&ev, &err), -ADV_RESOURCE_EXHAUSTED);
    cr_assert_str_eq(err.reason, "TOO_MANY_ENROLMENTS");
}

Test(certs, one_is_revoked)
{
    cr_assert_str_eq(hello("5", 1), "");
    (void) make("five", 0);
    cr_assert_str_eq(redeem("a", "five", "k"), "");
    cr_assert_str_eq(revoke_it("77", 0), "");
    cr_assert_str_eq(redeem("a", "five", "k"), "ENROLMENT_REFUSED", "nor another one by the same token");
    cr_assert_str_eq(revoke_it("5", 0), "");
    cr_assert_str_eq(verb, "certificate.revoke");
    cr_assert_str_eq(hello("5", 1), "CERTIFICATE_REVOKED");
    cr_assert_str_eq(hello("55", 1), "");
    cr_assert_str_eq(hello("", 1), "");
    struct event ev = { .type = EV_CERT_RENEW, .u.renew.old_serial = "5", .u.renew.serial = "6", .u.renew.old_issued_s = 1 };
    struct adv_err err;
    cr_assert_eq(apply(&ev, &err), -ADV_PERMISSION_DENIED, "what is revoked is not renewed");
    (void) strcpy(ev.u.renew.old_serial, "7");
    cr_assert_eq(apply(&ev, &err), 0);
    cr_assert_str_eq(verb, "certificate.renew");
}

Test(certs, all_until_now_are_revoked)
{
    int64_t s = now_us / S; /* half a second of it is over */
    const struct enrolment *open = make("open", 0), *used = make("used", 0);

    cr_assert_str_eq(redeem("a", "used", "k"), "");
    cr_assert_str_eq(hello("1", s), "");
    now_us += 1;
    cr_assert_str_eq(revoke_it("", 0), "");
    cr_assert_str_eq(hello("1", s - 1000), "CERTIFICATE_REVOKED");
    cr_assert_str_eq(hello("1", s), "CERTIFICATE_REVOKED", "issued in this second, perhaps before");
    cr_assert_eq(cluster_cert_not_before_s(a(), now_us), s + 1);
    cr_assert_str_eq(hello("1", s + 1), "", "issued from now on");
    cr_assert_str_eq(hello("", INT64_MAX), "", "without a certificate there is none to revoke");
    cr_assert(open->voided && used->voided);
    cr_assert_str_eq(redeem("a", "open", "k"), "ENROLMENT_REFUSED");
    cr_assert_str_eq(redeem("a", "used", "k"), "ENROLMENT_REFUSED", "whoever has the key has the token too, perhaps");
    (void) make("new", 0);
    cr_assert_str_eq(redeem("a", "new", "k"), "");
    /* an exact second */
    now_us = (s + 10) * S;
    cr_assert_str_eq(revoke_it("", 0), "");
    cr_assert_str_eq(hello("1", s + 9), "CERTIFICATE_REVOKED");
    cr_assert_str_eq(hello("1", s + 10), "");
    cr_assert_eq(cluster_cert_not_before_s(a(), now_us), s + 10);
    cr_assert_eq(cluster_cert_not_before_s(a(), now_us + 5 * S), s + 15);
}

Test(certs, revoked_before_a_time)
{
    int64_t s = now_us / S;

    (void) make("open", 0);
    cr_assert_str_eq(revoke_it("", now_us + 1), "TIME_IN_FUTURE");
    cr_assert_str_eq(revoke_it("", (s - 100) * S), "");
    cr_assert_str_eq(hello("1", s - 101), "CERTIFICATE_REVOKED");
    cr_assert_str_eq(hello("1", s - 100), "");
    cr_assert_str_eq(redeem("a", "open", "k"), "", "made after that time");
}

Test(certs, only_so_many_revocations)
{
    char serial[41];

    for (int i = 1; i <= 10000; i++) {
        (void) snprintf(serial, sizeof(serial), "%x", i);
        cr_assert_str_eq(revoke_it(serial, 0), "");
    }
    cr_assert_str_eq(revoke_it("ffffff", 0), "TOO_MANY_REVOCATIONS");
    cr_assert_str_eq(hello("2710", 1), "CERTIFICATE_REVOKED");
}

/* A certificate that was signed before a revocation but would be given after it. */
Test(certs, revoked_while_being_issued)
{
    struct event ev = { .type = EV_ENROL_REDEEM, .u.redeem.token_sha256 = "t", .u.redeem.key_sha256 = "k", .u.redeem.serial = "1" };
    struct adv_err err;

    (void) make("t", 0);
    ev.u.redeem.not_before_s = cluster_cert_not_before_s(a(), now_us);
    cr_assert_str_eq(revoke_it("", now_us - 1), ""); /* the token is younger, so it stays; the second is the same */
    cr_assert_eq(apply(&ev, &err), -ADV_ABORTED);
    cr_assert_str_eq(err.reason, "CERTIFICATE_REVOKED");
}
