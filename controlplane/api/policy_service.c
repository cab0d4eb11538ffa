/* SPDX-License-Identifier: Apache-2.0 */
/* PolicyService: versioned documents of the fleet as a whole. */

#include <stdio.h>

#include "advisor/v1/policy_service.pb-c.h"

#include "common/digest.h"
#include "common/num.h"
#include "controlplane/api/find.h"
#include "controlplane/api/policy_document.h"
#include "controlplane/shapes/shapes.h"

/* Big documents in lists are many bytes. */
#define LIST_MAX_BYTES (8 << 20)

static bool name_of(const char *name, const char **ret_id)
{
    if (!adv_startswith(name, "policies/") || !cluster_id_valid(name + strlen("policies/"))) /* the same rule */
        return false;
    *ret_id = name + strlen("policies/");
    return true;
}

static int bad_name(const char *field, const char *name, struct adv_err *err)
{
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MALFORMED", "%s \"%.80s\": expected policies/<id>", field, name);
    return adv_err_field(err, "%s", field);
}

/* Policies are fleet-wide: whoever may see anything at all may see them. */
static int get_policy(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                      ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetPolicyRequest *q = (const void *) req;
    const struct policy_doc *p;
    const char *id;

    (void) caller;
    if (!name_of(q->name, &id))
        return bad_name("name", q->name, err);
    p = policy_doc_find(turn_fleet(api->turn), id, q->version);
    if (!p)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "POLICY_NOT_FOUND", "%.80s: no such policy or version", q->name);
    REPLY(m, Advisor__V1__GetPolicyResponse, advisor__v1__get_policy_response__init);
    m->policy = shape_policy(ar, p);
    return 0;
}

/* By name and then by version: "pretrain" before "pretrain-long", whose uids stand the other way round. */
static int by_version(const void *a, const void *b)
{
    const struct policy_doc *x = *(const struct policy_doc *const *) a, *y = *(const struct policy_doc *const *) b;
    int r = strcmp(str_or(x->name), str_or(y->name));

    return r ? r : x->version < y->version ? -1 : x->version > y->version;
}

static int list_policies(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                         struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListPoliciesRequest *q = (const void *) req;
    struct fleet *f = turn_fleet(api->turn);
    const struct policy_doc **all;
    char after[128];
    size_t bytes = 0, n = 0;
    uint32_t limit;
    int r;

    (void) caller;
    if ((r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "policies", after, sizeof(after), err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListPoliciesResponse, advisor__v1__list_policies_response__init);
    m->policies = adv_arena_alloc(ar, limit * sizeof(*m->policies));
    all = adv_arena_alloc(ar, (HASH_COUNT(f->global->entries[RESOURCE_POLICY]) + 1) * sizeof(*all));
    if (!m->policies || !all)
        return -ADV_RESOURCE_EXHAUSTED;
    for (const struct entry *e = f->global->entries[RESOURCE_POLICY]; e; e = e->hh.next)
        if (strcmp(str_or(((const struct policy_doc *) e)->name), after) > 0)
            all[n++] = (const struct policy_doc *) e;
    qsort(all, n, sizeof(*all), by_version);
    for (size_t i = 0; i < n; i++) {
        const struct policy_doc *p = all[i];
        if (i + 1 < n && adv_streq(str_or(all[i + 1]->name), str_or(p->name)))
            continue; /* an old version */
        if (m->n_policies == limit || bytes > LIST_MAX_BYTES) {
            m->next_page_token = token_page(ar, "policies", after);
            break;
        }
        if (!(m->policies[m->n_policies] = shape_policy(ar, p)))
            return -ADV_RESOURCE_EXHAUSTED;
        m->n_policies++;
        bytes += strlen(str_or(p->document));
        (void) snprintf(after, sizeof(after), "%s", str_or(p->name));
    }
    return 0;
}

static int list_policy_versions(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                                struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListPolicyVersionsRequest *q = (const void *) req;
    struct fleet *f = turn_fleet(api->turn);
    const struct policy_doc *newest;
    char before[32];
    uint64_t version = 0;
    size_t bytes = 0;
    uint32_t limit;
    const char *id;
    int r;

    (void) caller;
    if (!name_of(q->parent, &id))
        return bad_name("parent", q->parent, err);
    if ((r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "versions", before, sizeof(before), err)) < 0)
        return r;
    newest = policy_doc_find(f, id, 0);
    if (!newest)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "POLICY_NOT_FOUND", "%.80s: no such policy", q->parent);
    version = newest->version;
    if (*before && adv_parse_u64(before, 1, version, &version, NULL) < 0) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", "page_token: expected one of this list");
        return adv_err_field(err, "page_token");
    }
    REPLY(m, Advisor__V1__ListPolicyVersionsResponse, advisor__v1__list_policy_versions_response__init);
    m->policies = adv_arena_alloc(ar, limit * sizeof(*m->policies));
    if (!m->policies)
        return -ADV_RESOURCE_EXHAUSTED;
    for (; version > 0; version--) {
        char uid[96];
        const struct policy_doc *p;
        (void) snprintf(uid, sizeof(uid), "%.64s/%010llu", id, (unsigned long long) version);
        p = (const struct policy_doc *) entry_find(f->global, RESOURCE_POLICY, uid);
        if (!p)
            continue;
        if (m->n_policies == limit || bytes > LIST_MAX_BYTES) {
            m->next_page_token = token_page(ar, "versions", shape_printf(ar, "%llu", (unsigned long long) version));
            break;
        }
        if (!(m->policies[m->n_policies] = shape_policy(ar, p)))
            return -ADV_RESOURCE_EXHAUSTED;
        m->n_policies++;
        bytes += strlen(str_or(p->document));
    }
    return 0;
}

static int document_ok(const char *document, struct adv_err *err)
{
    struct adv_err why = { 0 };
    int r;

    if (strlen(document) > POLICY_DOCUMENT_MAX) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TEXT_TOO_LONG", "document: expected at most %d bytes",
                                  POLICY_DOCUMENT_MAX);
        return adv_err_field(err, "document");
    }
    r = policy_document_check(document, &why);
    if (r == 0)
        return 0;
    if (r == -ADV_RESOURCE_EXHAUSTED)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "POLICY_INVALID", "%s", why.msg);
    return adv_err_field(err, "document%s%s", *why.field ? "." : "", why.field);
}

static int validate_policy(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                           struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ValidatePolicyRequest *q = (const void *) req;
    Advisor__V1__PolicyProblem *problem;
    struct adv_err why = { 0 };

    (void) api;
    (void) caller;
    (void) err;
    REPLY(m, Advisor__V1__ValidatePolicyResponse, advisor__v1__validate_policy_response__init);
    if (document_ok(q->document, &why) == 0)
        return 0;
    problem = adv_arena_alloc(ar, sizeof(*problem));
    m->problems = adv_arena_alloc(ar, sizeof(*m->problems));
    if (!problem || !m->problems)
        return -ADV_RESOURCE_EXHAUSTED;
    advisor__v1__policy_problem__init(problem);
    problem->key = adv_arena_strdup(ar, adv_startswith(why.field, "document.") ? why.field + strlen("document.") : "");
    problem->message = adv_arena_strdup(ar, why.msg);
    m->problems[m->n_problems++] = problem;
    return 0;
}

static int simulate_policy(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                           struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    (void) api;
    (void) caller;
    (void) req;
    (void) ar;
    (void) ret;
    return adv_err_set_reason(err, ADV_UNIMPLEMENTED, "POLICY_NOT_EVALUATED",
                              "this control plane keeps policies and does not judge by them yet");
}

static int apply_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                       struct adv_err *err)
{
    struct fleet *f = turn_fleet(api->turn);
    const struct entry *e = ev->u.policy.ret_changed ? NULL :
                                                       entry_find_request(f->global, RESOURCE_POLICY, ev->request_id);
    const struct policy_doc *p = e ? (const struct policy_doc *) e : policy_doc_find(f, ev->u.policy.name, 0);

    if (!p)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "POLICY_NOT_FOUND", "policies/%.64s: no such policy",
                                  ev->u.policy.name);
    REPLY(m, Advisor__V1__ApplyPolicyResponse, advisor__v1__apply_policy_response__init);
    m->policy = shape_policy(ar, p);
    m->changed = ev->u.policy.ret_changed || e; /* the repeated call that made a version is told so again */
    return 0;
}

struct dry_run {
    struct api_call *call;
    const Advisor__V1__ApplyPolicyRequest *q;
    char sha[ADV_SHA256_HEX_SIZE];
    uint64_t if_revision;
};

/* What ApplyPolicy would answer, from memory that equals the store. */
static void dry_run_now(void *arg, const struct adv_err *err)
{
    struct dry_run *d = arg;
    struct api_call *call = d->call;
    struct adv_err e = { 0 };

    if (call->ops->ended(call)) {
        /* nobody waits any more */
    } else if (err) {
        call->ops->fail(call, err);
    } else {
        const struct policy_doc *was = policy_doc_find(turn_fleet(call->api->turn), d->q->policy_id, 0);
        Advisor__V1__ApplyPolicyResponse m = ADVISOR__V1__APPLY_POLICY_RESPONSE__INIT;
        Advisor__V1__Policy p = ADVISOR__V1__POLICY__INIT;
        char name[96];
        if (d->if_revision && (!was || was->e.revision != d->if_revision)) {
            (void) adv_err_set_reason(&e, ADV_ABORTED, "ETAG_MISMATCH", "policies/%.64s changed since it was read",
                                      d->q->policy_id);
            call->ops->fail(call, &e);
        } else {
            (void) snprintf(name, sizeof(name), "policies/%s", d->q->policy_id);
            m.changed = !was || !adv_streq(str_or(was->document_sha256), d->sha);
            p.name = name;
            p.version = (was ? was->version : 0) + (m.changed ? 1 : 0);
            p.document = d->q->document;
            p.document_sha256 = d->sha;
            m.policy = &p;
            call->ops->reply(call, &m.base);
        }
    }
    call->ops->unref(call);
    free(d);
}

static void apply_policy(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__ApplyPolicyRequest *q = (const void *) req;
    struct event ev = { .type = EV_POLICY_APPLY, .cluster = FLEET_CLUSTER };
    struct dry_run *d = calloc(1, sizeof(*d));
    uint8_t raw[ADV_SHA256_LEN];
    struct adv_err err = { 0 };

    if (!d) {
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        goto fail;
    }
    if (!cluster_id_valid(q->policy_id)) {
        (void) adv_err_set_reason(&err, ADV_INVALID_ARGUMENT, "POLICY_ID_MALFORMED",
                                  "policy_id: expected 1 to 64 of a-z, 0-9, '-', '_', beginning with a letter");
        (void) adv_err_field(&err, "policy_id");
        goto fail;
    }
    if (api_text("reason", q->reason, 0, API_REASON_MAX, &err) < 0 || document_ok(q->document, &err) < 0 ||
        shape_entry_etag_parse(q->etag, &ev.u.policy.if_revision, &err) < 0 ||
        api_check(&call->caller, call->method->role, NULL, NULL, NULL, &err) < 0 ||
        adv_sha256(q->document, strlen(q->document), raw, &err) < 0)
        goto fail;
    (void) adv_hex(raw, sizeof(raw), d->sha);
    d->call = call;
    d->q = q;
    d->if_revision = ev.u.policy.if_revision;
    if (q->dry_run) {
        call->ops->ref(call);
        turn_read(call->api->turn, dry_run_now, d);
        return;
    }
    ev.u.policy.name = q->policy_id;
    ev.u.policy.document = q->document;
    ev.u.policy.document_sha256 = call->scratch;
    ev.u.policy.reason = q->reason;
    (void) strcpy(call->scratch, d->sha);
    free(d);
    api_write(call, req, q->request_id, &ev, apply_built);
    return;
fail:
    free(d);
    call->ops->fail(call, &err);
}

#define ROW(name, lower, ROLE, ...)                                                                          \
    { "/advisor.v1.PolicyService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,            \
      &advisor__v1__##lower##_response__descriptor, ROLE, 128 << 10, __VA_ARGS__ }
const struct api_method policy_service_methods[] = {
    ROW(GetPolicy, get_policy, ROLE_READER, .read = get_policy),
    ROW(ListPolicies, list_policies, ROLE_READER, .read = list_policies),
    ROW(ListPolicyVersions, list_policy_versions, ROLE_READER, .read = list_policy_versions),
    ROW(ApplyPolicy, apply_policy, ROLE_OPERATOR, .call = apply_policy),
    ROW(ValidatePolicy, validate_policy, ROLE_READER, .read = validate_policy),
    ROW(SimulatePolicy, simulate_policy, ROLE_READER, .read = simulate_policy),
};
const size_t policy_service_n = ADV_ARRAY_LEN(policy_service_methods);
