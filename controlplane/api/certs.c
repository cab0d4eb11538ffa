/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates of agents: FleetService's enrolments and revocations, AgentService's Enrol and Renew.
 *
 * A certificate is signed before the event that allows it is stored, because the event names its serial; it leaves this
 * process only once that is durable. What was signed for a refused request is forgotten. */

#include "advisor/v1/agent_service.pb-c.h"
#include "advisor/v1/fleet_service.pb-c.h"

#include <fcntl.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/api/find.h"
#include "controlplane/api/handoff.h"
#include "controlplane/api/token.h"
#include "controlplane/auth/ca.h"
#include "controlplane/session/session.h"
#include "controlplane/shapes/shapes.h"

#define PEM_MAX (64 << 10)
#define HASHED  "sha256:"

static int no_agent_ca(struct adv_err *err)
{
    return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "NO_AGENT_CA",
                              "agents' certificates are not issued here: the site's own authority does it");
}

/* ---- enrolments ------------------------------------------------------------------------------------------------- */

static int server_ca(struct api *api, struct adv_arena *ar, char **ret, struct adv_err *err)
{
    adv_auto_close int fd = open(api->enrol.server_ca, O_RDONLY | O_CLOEXEC);
    char *text = adv_arena_alloc(ar, PEM_MAX + 1);
    size_t n = 0;
    ssize_t got = -1;

    if (!text)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    while (fd >= 0 && n < PEM_MAX && (got = read(fd, text + n, PEM_MAX - n)) > 0)
        n += (size_t) got;
    if (got != 0)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "NO_AGENT_CA", "the authority for enrolment bundles cannot be read");
    text[n] = '\0';
    *ret = text;
    return 0;
}

static Advisor__V1__Enrolment *shape_enrolment(struct adv_arena *ar, const struct enrolment *e)
{
    Advisor__V1__Enrolment *m = adv_arena_alloc(ar, sizeof(*m));

    if (!m)
        return NULL;
    advisor__v1__enrolment__init(m);
    m->id = e->uid;
    m->cluster = e->cluster->name;
    m->principal = (char *) (uintptr_t) str_or(e->principal);
    m->create_time = shape_time_us(ar, e->create_us);
    m->expire_time = shape_time_us(ar, e->expire_us);
    m->redeem_time = shape_time_us(ar, e->redeem_us);
    m->serial = (char *) (uintptr_t) str_or(e->serial);
    m->voided = e->voided;
    return m;
}

static Advisor__V1__Revocation *shape_revocation(struct adv_arena *ar, const struct revocation *r)
{
    Advisor__V1__Revocation *m = adv_arena_alloc(ar, sizeof(*m));

    if (!m)
        return NULL;
    advisor__v1__revocation__init(m);
    m->cluster = r->cluster->name;
    m->serial = (char *) (uintptr_t) str_or(r->serial);
    m->before_time = shape_time_us(ar, r->before_us);
    m->reason = (char *) (uintptr_t) str_or(r->reason);
    m->principal = (char *) (uintptr_t) str_or(r->principal);
    m->create_time = shape_time_us(ar, r->create_us);
    return m;
}

static int enrolment_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                           struct adv_err *err)
{
    const struct cluster *c = fleet_find_cluster(turn_fleet(api->turn), ev->cluster);
    const struct enrolment *e = c ? fleet_find_enrolment(c, ev->u.enrol.token_sha256) : NULL;
    Advisor__V1__EnrolmentBundle *b = adv_arena_alloc(ar, sizeof(*b));
    int r;

    if (!e) /* it is remembered longer than request ids are */
        return adv_err_set(err, ADV_INTERNAL, "the enrolment is not there");
    REPLY(m, Advisor__V1__CreateEnrolmentResponse, advisor__v1__create_enrolment_response__init);
    if (!b)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    advisor__v1__enrolment_bundle__init(b);
    if ((r = server_ca(api, ar, &b->ca_certificates, err)) < 0)
        return r;
    b->cluster = c->name;
    b->expire_time = shape_time_us(ar, e->expire_us);
    b->servers = api->enrol.servers;
    b->n_servers = api->enrol.n_servers;
    b->server_name = api->enrol.server_name;
    m->bundle = b;
    m->enrolment = shape_enrolment(ar, e);
    return 0;
}

static void create_enrolment(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__CreateEnrolmentRequest *q = (const void *) req;
    struct event ev = { .type = EV_ENROL_CREATE };
    struct adv_err err = { 0 };
    struct resource_path p;
    int r = call->api->enrol.ca ? api_cluster_name("parent", q->parent, &p, &err) : no_agent_ca(&err);

    if (r == 0 && q->valid_for_ms > 1000ull * 86400 * 365) { /* the product below must fit; the fleet has the real limit */
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "DURATION_OUT_OF_RANGE", "valid_for_ms: expected 1 second to 30 days");
        r = adv_err_field(&err, "valid_for_ms");
    }
    if (r == 0 && (strlen(q->token_sha256) != 64 || strspn(q->token_sha256, "0123456789abcdef") != 64)) {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "TOKEN_HASH_MALFORMED", "token_sha256: expected 64 digits of lower-case hex");
        r = adv_err_field(&err, "token_sha256");
    }
    if (r < 0) {
        call->ops->fail(call, &err);
        return;
    }
    ev.cluster = p.cluster;
    (void) strcpy(ev.u.enrol.token_sha256, q->token_sha256);
    ev.u.enrol.valid_us = (int64_t) q->valid_for_ms * 1000;
    api_write(call, req, q->request_id, &ev, enrolment_built);
}

static int find_admin_parent(struct api *api, const struct api_caller *caller, const char *parent, struct cluster **ret,
                             struct adv_err *err)
{
    int r = api_find_parent(api, caller, parent, ret, NULL, err);

    return r < 0 ? r : api_check(caller, ROLE_ADMIN, (*ret)->name, NULL, NULL, err);
}

/* Both lists: uids sort by time of creation. */
#define LIST(type, Type, plural)                                                                                             \
    static int list_##plural(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,                  \
                             struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)                              \
    {                                                                                                                        \
        const Advisor__V1__List##Type##sRequest *q = (const void *) req;                                                     \
        struct newest *all;                                                                                                  \
        struct cluster *c;                                                                                                   \
        char after[64];                                                                                                      \
        uint32_t limit;                                                                                                      \
        size_t n = 0;                                                                                                        \
        int r;                                                                                                               \
                                                                                                                             \
        if ((r = find_admin_parent(api, caller, q->parent, &c, err)) < 0 ||                                                  \
            (r = api_page_size(q->page_size, &limit, err)) < 0 ||                                                            \
            (r = token_page_parse(q->page_token, #plural, after, sizeof(after), err)) < 0)                                   \
            return r;                                                                                                        \
        REPLY(m, Advisor__V1__List##Type##sResponse, advisor__v1__list_##plural##_response__init);                           \
        m->plural = adv_arena_alloc(ar, limit * sizeof(*m->plural));                                                         \
        all = adv_arena_alloc(ar, (HASH_COUNT(c->plural) + 1) * sizeof(*all));                                               \
        if (!m->plural || !all)                                                                                              \
            return -ADV_RESOURCE_EXHAUSTED;                                                                                  \
        for (const struct type *o = c->plural; o; o = o->hh.next)                                                            \
            if (!*after || strcmp(o->uid, after) < 0)                                                                        \
                all[n++] = (struct newest) { o->uid, o };                                                                    \
        n = newest_page(ar, #plural, all, n, limit, &m->next_page_token);                                                    \
        for (; m->n_##plural < n; m->n_##plural++)                                                                           \
            m->plural[m->n_##plural] = shape_##type(ar, all[m->n_##plural].object);                                          \
        return 0;                                                                                                            \
    }
LIST(enrolment, Enrolment, enrolments)
LIST(revocation, Revocation, revocations)
#undef LIST

/* ---- revocation ------------------------------------------------------------------------------------------------- */

static int revocation_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                            struct adv_err *err)
{
    const struct cluster *c = fleet_find_cluster(turn_fleet(api->turn), ev->cluster);
    const struct revocation *r = c ? fleet_find_revocation(c, ev->u.revoke.ret_uid) : NULL;

    /* carried out before under this request id: the one that says the same */
    for (const struct revocation *o = c ? c->revocations : NULL; o && !r; o = o->hh.next)
        if (adv_streq(str_or(o->serial), ev->u.revoke.serial) && adv_streq(str_or(o->reason), str_or(ev->u.revoke.reason)) &&
            (!ev->u.revoke.before_us || o->before_us == ev->u.revoke.before_us))
            r = o;
    if (!r)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered", str_or(ev->cluster));
    REPLY(m, Advisor__V1__RevokeAgentResponse, advisor__v1__revoke_agent_response__init);
    m->revocation = shape_revocation(ar, r);
    return 0;
}

static void revoke_agent(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__RevokeAgentRequest *q = (const void *) req;
    struct event ev = { .type = EV_CERT_REVOKE };
    struct adv_err err = { 0 };
    struct resource_path p;
    int r = api_cluster_name("name", q->name, &p, &err);

    if (r == 0)
        r = api_text("reason", q->reason, 0, API_REASON_MAX, &err);
    if (r == 0 && *q->serial)
        r = ca_serial_parse(q->serial, ev.u.revoke.serial, &err);
    if (r == 0 && *q->serial && q->before_time) {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "SERIAL_MALFORMED", "before_time: expected none beside serial");
        r = adv_err_field(&err, "before_time");
    }
    if (r == 0 && q->before_time) {
        int64_t s = q->before_time->seconds;
        /* before 1970 nothing was issued; what does not fit is far in the future, and refused as such */
        ev.u.revoke.before_us = s < 1 ? 1 : s < INT64_MAX / 2000000 ? s * 1000000 + q->before_time->nanos / 1000 : INT64_MAX;
    }
    if (r < 0) {
        call->ops->fail(call, &err);
        return;
    }
    ev.cluster = p.cluster;
    ev.u.revoke.reason = q->reason;
    api_write(call, req, q->request_id, &ev, revocation_built);
}

/* ---- certificates ----------------------------------------------------------------------------------------------- */

struct cert_call {
    struct turn_event te;
    struct api_call *call;
    const ProtobufCMessage *req;
    char cluster[65];
    struct ca_cert cert;
};

static struct cert_call *cert_call_free(struct cert_call *cc)
{
    cc->call->ops->unref(cc->call);
    free(cc->cert.chain_pem);
    free(cc);
    return NULL;
}

static void cert_call_fail(struct cert_call *cc, const struct adv_err *err)
{
    cc->call->ops->fail(cc->call, err);
    (void) cert_call_free(cc);
}

static void reply_enrolled(struct cert_call *cc)
{
    Advisor__V1__EnrolResponse m = ADVISOR__V1__ENROL_RESPONSE__INIT;

    m.certificate_chain = (ProtobufCBinaryData) { strlen(cc->cert.chain_pem), (uint8_t *) cc->cert.chain_pem };
    m.expire_unix = cc->cert.not_after_s;
    cc->call->ops->reply(cc->call, &m.base);
}

static void reply_renewed(struct cert_call *cc)
{
    Advisor__V1__RenewResponse m = ADVISOR__V1__RENEW_RESPONSE__INIT;

    m.certificate_chain = (ProtobufCBinaryData) { strlen(cc->cert.chain_pem), (uint8_t *) cc->cert.chain_pem };
    m.expire_unix = cc->cert.not_after_s;
    cc->call->ops->reply(cc->call, &m.base);
}

static void cert_done(struct turn_event *te, const struct adv_err *err)
{
    struct cert_call *cc = ADV_CONTAINER_OF(te, struct cert_call, te);
    struct adv_err e = { 0 };

    if (err) {
        cert_call_fail(cc, err);
        return;
    }
    if (te->ev.type == EV_ENROL_REDEEM && te->ev.u.redeem.ret_refused) {
        (void) fleet_enrolment_refused(&e);
        cert_call_fail(cc, &e);
        return;
    }
    if (te->ev.type == EV_ENROL_REDEEM)
        reply_enrolled(cc);
    else
        reply_renewed(cc);
    (void) cert_call_free(cc);
}

/* Signs, for the cluster as it stands now. */
static int issue(struct cert_call *cc, const struct cluster *c, const ProtobufCBinaryData *csr, int64_t *ret_not_before_s,
                 struct adv_err *err)
{
    struct api *api = cc->call->api;
    int64_t now_us = adv_wall_us();
    struct ca_request req = { .cluster = c->name, .csr = csr->data, .csr_len = csr->len };
    struct adv_err why;

    if (ca_refresh(api->enrol.ca, now_us / 1000000, &why) < 0)
        adv_error("api", "the agent CA's files have changed and are not usable, the old ones stay", ADV_FS("why", why.msg));
    req.not_before_s = *ret_not_before_s = cluster_cert_not_before_s(c, now_us);
    req.not_after_s = req.not_before_s + api->enrol.cert_life_ms / 1000;
    return ca_issue(api->enrol.ca, &req, &cc->cert, err);
}

static void submit(struct cert_call *cc)
{
    cc->te.done = cert_done;
    cc->te.ev.cluster = cc->cluster;
    turn_submit(cc->call->api->turn, &cc->te);
}

/* Takes over the answer: @next runs with memory equal to the store. */
static void begin(struct api_call *call, const ProtobufCMessage *req, const char *cluster, turn_read_cb next)
{
    struct cert_call *cc = call->api->enrol.ca ? calloc(1, sizeof(*cc)) : NULL;
    struct adv_err err = { 0 };

    if (!cc) {
        if (call->api->enrol.ca)
            (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        else
            (void) no_agent_ca(&err);
        call->ops->fail(call, &err);
        return;
    }
    cc->call = call;
    cc->req = req;
    (void) snprintf(cc->cluster, sizeof(cc->cluster), "%s", cluster);
    call->ops->ref(call);
    turn_read(call->api->turn, next, cc);
}

/* To another replica goes the token's hash, so that it does not stand in the store. */
static bool token_hash(const struct api_call *call, const char *token, char ret[65])
{
    if (!call->caller.trusted || !adv_startswith(token, HASHED))
        return enrol_token_hash(token, ret);
    (void) snprintf(ret, 65, "%.64s", token + strlen(HASHED));
    return strlen(token + strlen(HASHED)) == 64;
}

static int enrol_event(struct cert_call *cc, struct adv_err *err)
{
    const Advisor__V1__EnrolRequest *q = (const void *) cc->req;
    const struct cluster *c = fleet_find_cluster(turn_fleet(cc->call->api->turn), cc->cluster);
    struct event *ev = &cc->te.ev;
    const struct enrolment *e;
    int r = ca_check_csr(q->csr.data, q->csr.len, ev->u.redeem.key_sha256, err);

    if (r < 0)
        return r;
    ev->type = EV_ENROL_REDEEM;
    if (!c || !token_hash(cc->call, q->token, ev->u.redeem.token_sha256) ||
        !(e = fleet_find_enrolment(c, ev->u.redeem.token_sha256)))
        return fleet_enrolment_refused(err);
    if ((r = issue(cc, c, &q->csr, &ev->u.redeem.not_before_s, err)) < 0)
        return r;
    (void) strcpy(ev->u.redeem.serial, cc->cert.serial);
    (void) snprintf(cc->call->caller.principal, sizeof(cc->call->caller.principal), "enrolment:%s", e->uid);
    ev->principal = cc->call->caller.principal;
    return 0;
}

static void enrol_now(void *arg, const struct adv_err *err)
{
    struct cert_call *cc = arg;
    struct adv_err e = { 0 };

    if (err)
        cert_call_fail(cc, err);
    else if (enrol_event(cc, &e) < 0)
        cert_call_fail(cc, &e);
    else
        submit(cc);
}

static void enrol(struct api_call *call, const ProtobufCMessage *req)
{
    Advisor__V1__EnrolRequest q = *(const Advisor__V1__EnrolRequest *) req;
    char hashed[sizeof(HASHED) + 64] = HASHED;
    struct adv_err err = { 0 };

    if (!token_hash(call, q.token, hashed + strlen(HASHED))) {
        (void) fleet_enrolment_refused(&err);
        call->ops->fail(call, &err);
    } else if (handoff_needed(call->api, q.cluster)) {
        q.token = hashed;
        handoff_call(call, q.cluster, &q.base);
    } else {
        begin(call, req, q.cluster, enrol_now);
    }
}

static int renew_event(struct cert_call *cc, struct adv_err *err)
{
    const Advisor__V1__RenewRequest *q = (const void *) cc->req;
    const struct api_caller *caller = &cc->call->caller;
    struct cluster *c = fleet_find_cluster(turn_fleet(cc->call->api->turn), cc->cluster);
    struct event *ev = &cc->te.ev;
    int64_t not_before_s;
    int r;

    if (!c)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered", cc->cluster);
    ev->type = EV_CERT_RENEW;
    if ((r = issue(cc, c, &q->csr, &not_before_s, err)) < 0)
        return r;
    (void) strcpy(ev->u.renew.serial, cc->cert.serial);
    (void) snprintf(ev->u.renew.old_serial, sizeof(ev->u.renew.old_serial), "%s", caller->serial);
    ev->u.renew.old_issued_s = caller->authenticated ? caller->issued_s : INT64_MAX;
    ev->principal = caller->principal;
    return 0;
}

static void renew_now(void *arg, const struct adv_err *err)
{
    struct cert_call *cc = arg;
    struct adv_err e = { 0 };

    if (err)
        cert_call_fail(cc, err);
    else if (renew_event(cc, &e) < 0)
        cert_call_fail(cc, &e);
    else
        submit(cc);
}

static void renew(struct api_call *call, const ProtobufCMessage *req)
{
    const char *cluster = agent_service_cluster(call, ((const Advisor__V1__RenewRequest *) req)->session_id);
    struct adv_err err = { 0 };

    if (!cluster) {
        (void) adv_err_set_reason(&err, ADV_FAILED_PRECONDITION, "SESSION_NOT_LIVE",
                                  "session_id: expected the id of a live session of this agent");
        (void) adv_err_field(&err, "session_id");
        call->ops->fail(call, &err);
        return;
    }
    begin(call, req, cluster, renew_now);
}

#define ROW(service, name, lower, ROLE, ...)                                                                                 \
    { "/advisor.v1." #service "/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,                             \
      &advisor__v1__##lower##_response__descriptor, ROLE, 64 << 10, __VA_ARGS__ }
const struct api_method cert_methods[] = {
    ROW(FleetService, CreateEnrolment, create_enrolment, ROLE_ADMIN, .call = create_enrolment),
    ROW(FleetService, ListEnrolments, list_enrolments, ROLE_ADMIN, .read = list_enrolments),
    ROW(FleetService, RevokeAgent, revoke_agent, ROLE_ADMIN, .call = revoke_agent),
    ROW(FleetService, ListRevocations, list_revocations, ROLE_ADMIN, .read = list_revocations),
    ROW(AgentService, Enrol, enrol, ROLE_NONE, .call = enrol),
    ROW(AgentService, Renew, renew, ROLE_AGENT, .call = renew),
};
const size_t cert_methods_n = ADV_ARRAY_LEN(cert_methods);
