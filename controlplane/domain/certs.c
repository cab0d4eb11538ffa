/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates of a cluster's agents: who may come to one, and which are refused.
 *
 * An enrolment token is used once. The same key may use it again while it lives, so that an answer that was lost on its way
 * is no lost enrolment; it gains nothing by that. Whoever shows a token that is not good is told no more than that.
 *
 * A certificate knows the second of its issue, a revocation the microsecond: one covers the other if the beginning of that
 * second lies before it. So what was issued before a revocation is always covered, and what is issued in the same second
 * after it is made valid from the next second on (cluster_cert_not_before_s()). */

#include "controlplane/domain/internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"

#define ENROLMENTS_MAX  256   /* open or remembered, per cluster */
#define REVOCATIONS_MAX 10000 /* per cluster; looked through at each Hello */
#define REMEMBER_US     (30 * 86400 * INT64_C(1000000)) /* an enrolment after its end */
#define VALID_MIN_US    INT64_C(1000000)
#define VALID_MAX_US    (30 * 86400 * INT64_C(1000000))
#define VALID_US        (86400 * INT64_C(1000000))

void enrolment_free(struct enrolment *e)
{
    if (!e)
        return;
    free(e->uid);
    free(e->token_sha256);
    free(e->principal);
    free(e->key_sha256);
    free(e->serial);
    free(e);
}

void revocation_free(struct revocation *r)
{
    if (!r)
        return;
    free(r->uid);
    free(r->serial);
    free(r->reason);
    free(r->principal);
    free(r);
}

int fleet_load_enrolment(struct cluster *c, struct enrolment *e)
{
    struct enrolment *known = NULL;

    if (!e->uid || !e->token_sha256)
        return -ADV_DATA_LOSS;
    HASH_FIND_STR(c->enrolments, e->uid, known);
    if (known)
        return -ADV_DATA_LOSS;
    e->cluster = c;
    HASH_ADD_KEYPTR(hh, c->enrolments, e->uid, strlen(e->uid), e);
    return e->hh.tbl ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

int fleet_load_revocation(struct cluster *c, struct revocation *r)
{
    if (!r->uid || fleet_find_revocation(c, r->uid))
        return -ADV_DATA_LOSS;
    r->cluster = c;
    HASH_ADD_KEYPTR(hh, c->revocations, r->uid, strlen(r->uid), r);
    return r->hh.tbl ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

struct enrolment *fleet_find_enrolment(const struct cluster *c, const char *token_sha256)
{
    for (struct enrolment *e = c->enrolments; e; e = e->hh.next)
        if (adv_streq(e->token_sha256, token_sha256))
            return e;
    return NULL;
}

struct revocation *fleet_find_revocation(const struct cluster *c, const char *uid)
{
    struct revocation *r = NULL;

    HASH_FIND_STR(c->revocations, uid, r);
    return r;
}

void fleet_forget_enrolment(struct cluster *c, const char *uid)
{
    struct enrolment *e = NULL;

    HASH_FIND_STR(c->enrolments, uid, e);
    if (e)
        HASH_DEL(c->enrolments, e);
    enrolment_free(e);
}

void fleet_forget_revocation(struct cluster *c, const char *uid)
{
    struct revocation *r = fleet_find_revocation(c, uid);

    if (r)
        HASH_DEL(c->revocations, r);
    revocation_free(r);
}

bool cluster_cert_revoked(const struct cluster *c, const char *serial, int64_t issued_s)
{
    for (const struct revocation *r = c->revocations; r; r = r->hh.next)
        if (r->serial ? adv_streq(r->serial, serial) : issued_s < (r->before_us + 999999) / 1000000)
            return true;
    return false;
}

int64_t cluster_cert_not_before_s(const struct cluster *c, int64_t now_us)
{
    int64_t s = now_us / 1000000;

    for (const struct revocation *r = c->revocations; r; r = r->hh.next)
        if (!r->serial && s < (r->before_us + 999999) / 1000000)
            s = (r->before_us + 999999) / 1000000;
    return s;
}

int fleet_check_cert(const struct cluster *c, const char *serial, int64_t issued_s, struct adv_err *err)
{
    if (!cluster_cert_revoked(c, serial, issued_s))
        return 0;
    return adv_err_set_reason(err, ADV_PERMISSION_DENIED, "CERTIFICATE_REVOKED", "certificate %.40s of cluster %s was revoked",
                              serial, c->name);
}

/* ---- enrolment -------------------------------------------------------------------------------------------------- */

static void forget_old(struct intents *in, struct cluster *c, int64_t now_us)
{
    struct enrolment *e, *next;

    HASH_ITER(hh, c->enrolments, e, next) {
        if (now_us - e->expire_us < REMEMBER_US)
            continue;
        fleet_touch_gone(in, RESOURCE_ENROLMENT, e, c);
        HASH_DEL(c->enrolments, e);
        enrolment_free(e);
    }
}

static int valid_us(const struct event *ev, int64_t *ret, struct adv_err *err)
{
    *ret = ev->u.enrol.valid_us ? ev->u.enrol.valid_us : VALID_US;
    if (*ret >= VALID_MIN_US && *ret <= VALID_MAX_US)
        return 0;
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "DURATION_OUT_OF_RANGE", "valid_for_ms: expected 1 second to 30 days");
    return adv_err_field(err, "valid_for_ms");
}

int fleet_apply_enrol_create(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err)
{
    char name[RESOURCE_NAME_MAX], uid[32];
    struct enrolment *e;
    int64_t valid;
    int r = valid_us(ev, &valid, err);

    if (r < 0)
        return r;
    if (fleet_find_enrolment(c, ev->u.enrol.token_sha256))
        return adv_err_set_reason(err, ADV_ALREADY_EXISTS, "ENROLMENT_EXISTS", "this token is registered already");
    forget_old(in, c, ev->now_us);
    if (HASH_COUNT(c->enrolments) >= ENROLMENTS_MAX)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "TOO_MANY_ENROLMENTS",
                                  "cluster %s: %d enrolments are remembered; they are forgotten 30 days after their end", c->name,
                                  ENROLMENTS_MAX);
    fleet_mint_uid(f, ev->now_us, uid);
    e = calloc(1, sizeof(*e));
    if (!e || !(e->uid = strdup(uid)) || !(e->token_sha256 = strdup(ev->u.enrol.token_sha256))) {
        in->oom = true;
        enrolment_free(e);
        return 0;
    }
    e->create_us = ev->now_us;
    e->expire_us = ev->now_us + valid;
    (void) str_set(in, &e->principal, ev->principal);
    if (fleet_load_enrolment(c, e) < 0) {
        in->oom = true;
        enrolment_free(e);
        return 0;
    }
    fleet_touch(in, RESOURCE_ENROLMENT, e, c);
    fleet_audit(in, c, ev, 0, "enrolment.create", cluster_resource_name(c, name), "enrolment %s, valid for %" PRId64 " s", e->uid,
                valid / 1000000);
    return 0;
}

int fleet_enrolment_refused(struct adv_err *err)
{
    return adv_err_set_reason(err, ADV_UNAUTHENTICATED, "ENROLMENT_REFUSED",
                              "the token is not known, has expired, or was used");
}

int fleet_apply_enrol_redeem(struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err)
{
    struct enrolment *e = fleet_find_enrolment(c, ev->u.redeem.token_sha256);
    char name[RESOURCE_NAME_MAX];
    bool again;

    if (!e || e->voided || ev->now_us >= e->expire_us)
        return fleet_enrolment_refused(err);
    again = e->redeem_us != 0;
    if (again && !adv_streq(e->key_sha256, ev->u.redeem.key_sha256)) {
        /* Somebody else holds the token too: a person should know, once. */
        ev->u.redeem.ret_refused = true;
        if (!e->reused) {
            e->reused = true;
            fleet_touch(in, RESOURCE_ENROLMENT, e, c);
            fleet_audit(in, c, ev, 0, "enrolment.reuse", cluster_resource_name(c, name),
                        "enrolment %s: shown again with another key, refused", e->uid);
        }
        return 0;
    }
    if (ev->u.redeem.not_before_s < cluster_cert_not_before_s(c, 0)) /* revoked between the question and this */
        return adv_err_set_reason(err, ADV_ABORTED, "CERTIFICATE_REVOKED", "the agents of cluster %s were revoked just now",
                                  c->name);
    e->redeem_us = ev->now_us;
    (void) str_set(in, &e->key_sha256, ev->u.redeem.key_sha256);
    (void) str_set(in, &e->serial, ev->u.redeem.serial);
    fleet_touch(in, RESOURCE_ENROLMENT, e, c);
    fleet_audit(in, c, ev, 0, "enrolment.redeem", cluster_resource_name(c, name), "enrolment %s%s: certificate %s", e->uid,
                again ? " again, by the same key" : "", ev->u.redeem.serial);
    return 0;
}

int fleet_apply_cert_renew(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err)
{
    char name[RESOURCE_NAME_MAX];
    int r = fleet_check_cert(c, ev->u.renew.old_serial, ev->u.renew.old_issued_s, err);

    if (r < 0)
        return r;
    fleet_audit(in, c, ev, 0, "certificate.renew", cluster_resource_name(c, name), "certificate %s follows %s",
                ev->u.renew.serial, ev->u.renew.old_serial);
    return 0;
}

/* ---- revocation ------------------------------------------------------------------------------------------------- */

static struct revocation *make_revocation(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev)
{
    struct revocation *r = calloc(1, sizeof(*r));
    bool one = ev->u.revoke.serial[0] != '\0';

    fleet_mint_uid(f, ev->now_us, ev->u.revoke.ret_uid);
    if (!r || !(r->uid = strdup(ev->u.revoke.ret_uid)) || (one && !(r->serial = strdup(ev->u.revoke.serial)))) {
        in->oom = true;
        revocation_free(r);
        return NULL;
    }
    r->before_us = one ? 0 : ev->u.revoke.before_us ? ev->u.revoke.before_us : ev->now_us;
    r->create_us = ev->now_us;
    (void) str_set(in, &r->reason, ev->u.revoke.reason);
    (void) str_set(in, &r->principal, ev->principal);
    if (fleet_load_revocation(c, r) < 0) {
        in->oom = true;
        revocation_free(r);
        return NULL;
    }
    return r;
}

/* Used ones too: the key that used one could come to another certificate by it. */
static void void_enrolments(struct intents *in, struct cluster *c, const struct revocation *r)
{
    for (struct enrolment *e = c->enrolments; e; e = e->hh.next) {
        if (e->voided || (r->serial ? !adv_streq(e->serial, r->serial) : e->create_us >= r->before_us))
            continue;
        e->voided = true;
        fleet_touch(in, RESOURCE_ENROLMENT, e, c);
    }
}

int fleet_apply_cert_revoke(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err)
{
    char name[RESOURCE_NAME_MAX], when[ADV_RFC3339_SIZE];
    struct revocation *r;

    if (ev->u.revoke.before_us > ev->now_us) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TIME_IN_FUTURE", "before_time: expected a time that is not in the future");
        return adv_err_field(err, "before_time");
    }
    if (HASH_COUNT(c->revocations) >= REVOCATIONS_MAX)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "TOO_MANY_REVOCATIONS", "cluster %s has %d revocations", c->name,
                                  REVOCATIONS_MAX);
    r = make_revocation(f, in, c, ev);
    if (!r)
        return 0;
    void_enrolments(in, c, r);
    fleet_touch(in, RESOURCE_REVOCATION, r, c);
    fleet_audit(in, c, ev, 0, "certificate.revoke", cluster_resource_name(c, name), "%s%s%s%s",
                r->serial ? "certificate " : "all issued before ",
                r->serial ? r->serial : adv_rfc3339_format(r->before_us, when), r->reason ? ": " : "", str_or(r->reason));
    return 0;
}
