/* SPDX-License-Identifier: Apache-2.0 */
/* Entries, common to all their kinds. */

#include "controlplane/domain/internal.h"

#include "controlplane/domain/entries.h"

#include <stdio.h>
#include <utlist.h>

size_t entry_size(enum resource_kind kind)
{
    switch ((int) kind) {
    case RESOURCE_EXCLUSION:
        return sizeof(struct exclusion);
    case RESOURCE_INCIDENT:
        return sizeof(struct incident);
    case RESOURCE_WINDOW:
        return sizeof(struct window);
    case RESOURCE_POLICY:
        return sizeof(struct policy_doc);
    case RESOURCE_CHECKPOINT:
        return sizeof(struct checkpoint);
    default:
        return 0;
    }
}

struct entry *entry_find(const struct cluster *c, enum resource_kind kind, const char *uid)
{
    struct entry *e = NULL;

    if (uid)
        HASH_FIND_STR(c->entries[kind], uid, e);
    return e;
}

struct entry *entry_find_request(const struct cluster *c, enum resource_kind kind, const char *request_id)
{
    for (struct entry *e = c->entries[kind]; e && request_id && *request_id; e = e->hh.next)
        if (e->request_id && adv_streq(e->request_id, request_id))
            return e;
    return NULL;
}

bool entry_current(const struct entry *e)
{
    const struct policy_doc *p = (const struct policy_doc *) e;
    char uid[96];

    if (e->kind != RESOURCE_POLICY)
        return true;
    (void) snprintf(uid, sizeof(uid), "%.64s/%010llu", str_or(p->name), (unsigned long long) p->version + 1);
    return !entry_find(e->cluster, RESOURCE_POLICY, uid);
}

void entry_free(struct entry *e)
{
    if (!e)
        return;
    if (e->kind == RESOURCE_EXCLUSION) {
        struct exclusion *x = (struct exclusion *) e;
        free(x->node);
        free(x->reason);
        free(x->owner);
        free(x->lifted_by);
        free(x->lift_reason);
    } else if (e->kind == RESOURCE_INCIDENT) {
        struct incident *i = (struct incident *) e;
        free(i->summary);
        free(i->subject);
        free(i->closed_by);
        free(i->close_reason);
    } else if (e->kind == RESOURCE_WINDOW) {
        struct window *w = (struct window *) e;
        free(w->reason);
        free(w->owner);
        free(w->ended_by);
    } else if (e->kind == RESOURCE_POLICY) {
        struct policy_doc *p = (struct policy_doc *) e;
        free(p->name);
        free(p->document);
        free(p->document_sha256);
        free(p->owner);
        free(p->reason);
    } else if (e->kind == RESOURCE_CHECKPOINT) {
        struct checkpoint *cp = (struct checkpoint *) e;
        free(cp->hash);
        free(cp->signature);
        free(cp->key_id);
        free(cp->store_uuid);
    }
    free(e->uid);
    free(e->request_id);
    free(e);
}

int fleet_load_entry(struct cluster *c, enum resource_kind kind, struct entry *e)
{
    e->kind = kind;
    e->cluster = c;
    if (!e->uid || entry_find(c, kind, e->uid))
        return -ADV_DATA_LOSS;
    HASH_ADD_KEYPTR(hh, c->entries[kind], e->uid, strlen(e->uid), e);
    return e->hh.tbl ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

/* ---- for the files of the state machine ---------------------------------------------------------------------------- */

struct entry *fleet_entry_new(struct fleet *f, struct intents *in, struct cluster *c, enum resource_kind kind,
                              const char *uid_or_null, const struct event *ev)
{
    struct entry *e = calloc(1, entry_size(kind));
    char uid[32];

    fleet_mint_uid(f, ev->now_us, uid);
    if (e) {
        e->uid = strdup(uid_or_null ? uid_or_null : uid);
        e->kind = kind;
        if (ev->request_id && *ev->request_id)
            e->request_id = strdup(ev->request_id);
    }
    if (!e || !e->uid || (ev->request_id && *ev->request_id && !e->request_id) || fleet_load_entry(c, kind, e) < 0) {
        entry_free(e);
        in->oom = true;
        return NULL;
    }
    fleet_touch_entry(in, e);
    return e;
}

void fleet_touch_entry(struct intents *in, struct entry *e)
{
    fleet_touch(in, e->kind, e, e->cluster);
}

void fleet_entry_due(struct fleet *f, struct entry *e, int64_t at_us)
{
    if (e->due_us && !at_us)
        DL_DELETE2(f->due_list, e, due_prev, due_next);
    else if (!e->due_us && at_us)
        DL_APPEND2(f->due_list, e, due_prev, due_next);
    e->due_us = at_us;
}

/* Each row is numbered when it is stored, so one that is still to be is not what the caller read. */
int fleet_entry_unchanged(const struct entry *e, uint64_t if_revision, struct adv_err *err)
{
    char name[2 * RESOURCE_NAME_MAX];

    if (!if_revision || (!e->dirty && e->revision == if_revision))
        return 0;
    return adv_err_set_reason(err, ADV_ABORTED, "ETAG_MISMATCH", "%.200s changed since it was read",
                              resource_name(e->kind, e->cluster->name, e->uid, name));
}

int fleet_entry_get(const struct cluster *c, enum resource_kind kind, const char *uid, uint64_t if_revision,
                    struct entry **ret, struct adv_err *err)
{
    struct entry *e = entry_find(c, kind, uid);
    char name[2 * RESOURCE_NAME_MAX];

    if (!e) {
        (void) resource_name(kind, c->name, str_or(uid), name);
        return kind == RESOURCE_EXCLUSION ?
                   adv_err_set_reason(err, ADV_NOT_FOUND, "EXCLUSION_NOT_FOUND", "%.200s: no such exclusion", name) :
               kind == RESOURCE_INCIDENT ?
                   adv_err_set_reason(err, ADV_NOT_FOUND, "INCIDENT_NOT_FOUND", "%.200s: no such incident", name) :
                   adv_err_set_reason(err, ADV_NOT_FOUND, "WINDOW_NOT_FOUND", "%.200s: no such maintenance window", name);
    }
    *ret = e;
    return fleet_entry_unchanged(e, if_revision, err);
}
