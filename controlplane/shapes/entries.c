/* SPDX-License-Identifier: Apache-2.0 */
/* What people and outside detectors set: exclusions, incidents, windows, policies, evidence. */

#include "controlplane/shapes/internal.h"

#include "common/digest.h"
#include "common/num.h"

#define SAME(domain, proto) _Static_assert((int) (domain) == (int) (proto), #domain " differs from the API")
SAME(EXCLUSION_LIFTED, ADVISOR__V1__EXCLUSION_STATE__EXCLUSION_STATE_LIFTED);
SAME(INCIDENT_STORE_BEHIND, ADVISOR__V1__INCIDENT_KIND__INCIDENT_KIND_STORE_BEHIND);
SAME(INCIDENT_AGENT_TWICE, ADVISOR__V1__INCIDENT_KIND__INCIDENT_KIND_AGENT_TWICE);
SAME(WINDOW_OVER, ADVISOR__V1__MAINTENANCE_STATE__MAINTENANCE_STATE_OVER);
#undef SAME

char *shape_entry_etag(struct adv_arena *ar, const struct entry *e)
{
    return shape_printf(ar, "r%llu", (unsigned long long) e->revision);
}

int shape_entry_etag_parse(const char *etag, uint64_t *ret_revision, struct adv_err *err)
{
    *ret_revision = 0;
    if (!*etag)
        return 0;
    if (*etag != 'r' || adv_parse_u64(etag + 1, 1, INT64_MAX, ret_revision, NULL) < 0) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "ETAG_MALFORMED",
                                  "etag \"%.40s\": expected the text that the resource carried", etag);
        return adv_err_field(err, "etag");
    }
    return 0;
}

static char *name_of(struct adv_arena *ar, const struct entry *e)
{
    char name[2 * RESOURCE_NAME_MAX];

    return adv_arena_strdup(ar, resource_name(e->kind, e->cluster->name, e->uid, name));
}

Advisor__V1__Exclusion *shape_exclusion(struct adv_arena *ar, const struct exclusion *x)
{
    MESSAGE(m, Advisor__V1__Exclusion, advisor__v1__exclusion__init);
    m->name = name_of(ar, &x->e);
    m->node = shape_printf(ar, "clusters/%s/nodes/%s", x->e.cluster->name, str_or(x->node));
    m->reason = text(x->reason);
    m->owner = text(x->owner);
    m->state = (Advisor__V1__ExclusionState) x->state;
    m->create_time = shape_time_us(ar, x->create_us);
    m->expire_time = shape_time_us(ar, x->expire_us);
    m->lift_time = shape_time_us(ar, x->lift_us);
    m->lifted_by = text(x->lifted_by);
    m->lift_reason = text(x->lift_reason);
    m->etag = shape_entry_etag(ar, &x->e);
    m->revision = x->e.revision;
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__Incident *shape_incident(struct adv_arena *ar, const struct incident *i)
{
    MESSAGE(m, Advisor__V1__Incident, advisor__v1__incident__init);
    m->name = name_of(ar, &i->e);
    m->kind = (Advisor__V1__IncidentKind) i->kind;
    m->state = i->closed ? ADVISOR__V1__INCIDENT_STATE__INCIDENT_STATE_CLOSED :
                           ADVISOR__V1__INCIDENT_STATE__INCIDENT_STATE_OPEN;
    m->summary = text(i->summary);
    m->subject = text(i->subject);
    m->count = i->count;
    m->open_time = shape_time_us(ar, i->open_us);
    m->update_time = shape_time_us(ar, i->update_us);
    m->close_time = shape_time_us(ar, i->close_us);
    m->closed_by = text(i->closed_by);
    m->close_reason = text(i->close_reason);
    m->etag = shape_entry_etag(ar, &i->e);
    m->revision = i->e.revision;
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__MaintenanceWindow *shape_window(struct adv_arena *ar, const struct window *w)
{
    MESSAGE(m, Advisor__V1__MaintenanceWindow, advisor__v1__maintenance_window__init);
    m->name = name_of(ar, &w->e);
    m->start_time = shape_time_us(ar, w->start_us);
    m->end_time = shape_time_us(ar, w->end_us);
    m->reason = text(w->reason);
    m->owner = text(w->owner);
    m->state = (Advisor__V1__MaintenanceState) w->state;
    m->create_time = shape_time_us(ar, w->create_us);
    m->ended_by = text(w->ended_by);
    m->etag = shape_entry_etag(ar, &w->e);
    m->revision = w->e.revision;
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__Policy *shape_policy(struct adv_arena *ar, const struct policy_doc *p)
{
    MESSAGE(m, Advisor__V1__Policy, advisor__v1__policy__init);
    m->name = shape_printf(ar, "policies/%s", str_or(p->name));
    m->version = p->version;
    m->document = text(p->document);
    m->document_sha256 = text(p->document_sha256);
    m->owner = text(p->owner);
    m->reason = text(p->reason);
    m->create_time = shape_time_us(ar, p->create_us);
    m->etag = shape_entry_etag(ar, &p->e);
    m->revision = p->e.revision;
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__AuditCheckpoint *shape_checkpoint(struct adv_arena *ar, const struct checkpoint *cp)
{
    size_t n = strlen(str_or(cp->signature)) / 2;

    MESSAGE(m, Advisor__V1__AuditCheckpoint, advisor__v1__audit_checkpoint__init);
    m->name = name_of(ar, &cp->e);
    m->cluster = text(cp->e.cluster->name);
    m->seq = cp->seq;
    m->hash = text(cp->hash);
    m->record_time = shape_time_us(ar, cp->record_us);
    m->key_id = text(cp->key_id);
    m->store_uuid = text(cp->store_uuid);
    m->signature.data = adv_arena_alloc(ar, n + 1);
    if (m->signature.data && adv_unhex(str_or(cp->signature), m->signature.data, n))
        m->signature.len = n;
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__Evidence *shape_evidence(struct adv_arena *ar, const struct evidence *e)
{
    char name[RESOURCE_NAME_MAX];

    MESSAGE(m, Advisor__V1__Evidence, advisor__v1__evidence__init);
    m->uid = text(e->uid);
    m->attempt = adv_arena_strdup(ar, attempt_resource_name(e->attempt, name));
    m->name = shape_printf(ar, "%s/evidence/%s", name, str_or(e->uid));
    m->source = text(e->source);
    m->kind = text(e->kind);
    m->window_start_time = shape_time_us(ar, e->window_start_us);
    m->window_end_time = shape_time_us(ar, e->window_end_us);
    m->nodes = shape_hosts(ar, e->nodes, &m->n_nodes);
    m->ranks = shape_words(ar, e->ranks, &m->n_ranks);
    m->weight_percent = e->weight_percent;
    m->summary = text(e->summary);
    m->excerpt_ref = text(e->excerpt_ref);
    m->excerpt_sha256 = text(e->excerpt_sha256);
    m->reporter = text(e->reporter);
    m->observe_time = shape_time_us(ar, e->observe_us);
    m->record_time = shape_time_us(ar, e->record_us);
    m->revision = e->revision;
    m->fault_class = text(e->fault_class);
    m->rule = text(e->rule);
    return adv_arena_exhausted(ar) ? NULL : m;
}
