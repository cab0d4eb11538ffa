/* SPDX-License-Identifier: Apache-2.0 */
/* Policies as documents: every change is a version of its own. Nothing is judged by them yet. */

#include "controlplane/domain/internal.h"

#include "controlplane/domain/entries.h"

#include <stdio.h>

#define POLICIES_MAX 1000  /* names */
#define VERSIONS_MAX 10000 /* of one */

struct policy_doc *policy_doc_find(const struct fleet *f, const char *name, uint64_t version_or_0)
{
    struct policy_doc *best = NULL;

    for (struct entry *e = f->global->entries[RESOURCE_POLICY]; e; e = e->hh.next) {
        struct policy_doc *p = (struct policy_doc *) e;
        if (!adv_streq(str_or(p->name), name) || (version_or_0 && p->version != version_or_0))
            continue;
        if (!best || p->version > best->version)
            best = p;
    }
    return best;
}

static size_t names(const struct fleet *f)
{
    size_t n = 0;

    for (struct entry *e = f->global->entries[RESOURCE_POLICY]; e; e = e->hh.next)
        n += ((struct policy_doc *) e)->version == 1;
    return n;
}

int fleet_apply_policy(struct fleet *f, struct intents *in, struct event *ev, struct adv_err *err)
{
    struct policy_doc *was = policy_doc_find(f, ev->u.policy.name, 0), *p;
    char uid[96], name[2 * RESOURCE_NAME_MAX];
    int r = 0;

    if (was && (r = fleet_entry_unchanged(&was->e, ev->u.policy.if_revision, err)) < 0)
        return r;
    if (!was && ev->u.policy.if_revision)
        return adv_err_set_reason(err, ADV_ABORTED, "ETAG_MISMATCH", "policies/%.64s: there is none", ev->u.policy.name);
    if (was && adv_streq(str_or(was->document_sha256), ev->u.policy.document_sha256))
        return 0; /* as it is */
    if ((was && was->version >= VERSIONS_MAX) || (!was && names(f) >= POLICIES_MAX))
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "POLICY_LIMIT", "there are %d policies, or %d versions of one: "
                                  "that is the most", POLICIES_MAX, VERSIONS_MAX);
    (void) snprintf(uid, sizeof(uid), "%.64s/%010llu", ev->u.policy.name, was ? (unsigned long long) was->version + 1 : 1ULL);
    p = (struct policy_doc *) fleet_entry_new(f, in, f->global, RESOURCE_POLICY, uid, ev);
    if (!p)
        return 0;
    ev->u.policy.ret_changed = true;
    p->version = was ? was->version + 1 : 1;
    p->create_us = ev->now_us;
    (void) str_set(in, &p->name, ev->u.policy.name);
    (void) str_set(in, &p->document, ev->u.policy.document);
    (void) str_set(in, &p->document_sha256, ev->u.policy.document_sha256);
    (void) str_set(in, &p->owner, ev->principal);
    (void) str_set(in, &p->reason, ev->u.policy.reason);
    fleet_audit(in, f->global, ev, 0, "policy.apply", resource_name(RESOURCE_POLICY, FLEET_CLUSTER, uid, name),
                "version %llu, sha256 %s%s%s", (unsigned long long) p->version, str_or(p->document_sha256),
                p->reason ? ": " : "", str_or(p->reason));
    return 0;
}
