/* SPDX-License-Identifier: Apache-2.0 */
/* Exclusions by people. One of a node at a time is in force; it is a constraint of what is decided later and changes
 * nothing that exists. Those that are over stay as history. */

#include "controlplane/domain/internal.h"

#include <stdio.h>

#include "controlplane/domain/entries.h"

#define EXCLUSIONS_MAX 1024 /* in force on one cluster: a longer list is another cluster, or a mistake */

bool exclusion_active(const struct exclusion *x)
{
    return x->state == EXCLUSION_ACTIVE;
}

const struct exclusion *exclusion_of_node(const struct cluster *c, const char *node)
{
    for (const struct entry *e = c->entries[RESOURCE_EXCLUSION]; e; e = e->hh.next) {
        const struct exclusion *x = (const struct exclusion *) e;
        if (exclusion_active(x) && adv_streq(str_or(x->node), node))
            return x;
    }
    return NULL;
}

bool exclusions_add(const struct cluster *c, struct adv_hostlist *all)
{
    for (const struct entry *e = c->entries[RESOURCE_EXCLUSION]; e; e = e->hh.next) {
        const struct exclusion *x = (const struct exclusion *) e;
        if (exclusion_active(x) && x->node && adv_hostlist_add(all, x->node, NULL) == -ADV_RESOURCE_EXHAUSTED)
            return false;
    }
    return true;
}

uint32_t exclusions_active(const struct cluster *c)
{
    uint32_t n = 0;

    for (const struct entry *e = c->entries[RESOURCE_EXCLUSION]; e; e = e->hh.next)
        n += exclusion_active((const struct exclusion *) e);
    return n;
}

static void touch_node(struct intents *in, struct cluster *c, const char *name)
{
    struct node *n = NULL;

    HASH_FIND_STR(c->nodes, name, n);
    if (n) /* it shows its exclusions */
        fleet_touch(in, RESOURCE_NODE, n, c);
}

static void audit(struct intents *in, const struct exclusion *x, const struct event *ev, const char *verb, const char *why)
{
    char name[2 * RESOURCE_NAME_MAX];

    fleet_audit(in, x->e.cluster, ev, 0, verb,
                resource_name(RESOURCE_EXCLUSION, x->e.cluster->name, x->e.uid, name), "node %.255s%s%s", str_or(x->node),
                why && *why ? ": " : "", str_or(why));
}

int fleet_apply_exclusion_add(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev,
                              struct adv_err *err)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(1);
    const char *node = str_or(ev->u.exclusion.node);
    struct exclusion *x;

    if (!hl) {
        in->oom = true;
        return 0;
    }
    if (!*node || adv_hostlist_add(hl, node, NULL) < 0) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NODE_NAME_MALFORMED", "node \"%.64s\": expected one node's name",
                                  node);
        return adv_err_field(err, "node");
    }
    if (ev->u.exclusion.expire_us && ev->u.exclusion.expire_us <= ev->now_us) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "expire_time: expected a time in the future");
        return adv_err_field(err, "expire_time");
    }
    if (exclusion_of_node(c, node))
        return adv_err_set_reason(err, ADV_ALREADY_EXISTS, "EXCLUSION_EXISTS", "node %.64s is excluded already", node);
    if (exclusions_active(c) >= EXCLUSIONS_MAX)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "EXCLUSION_LIMIT",
                                  "cluster %s has %d exclusions in force, which is the most", c->name, EXCLUSIONS_MAX);
    x = (struct exclusion *) fleet_entry_new(f, in, c, RESOURCE_EXCLUSION, NULL, ev);
    if (!x)
        return 0;
    (void) snprintf(ev->u.exclusion.ret_uid, sizeof(ev->u.exclusion.ret_uid), "%s", x->e.uid);
    x->state = EXCLUSION_ACTIVE;
    x->create_us = ev->now_us;
    x->expire_us = ev->u.exclusion.expire_us;
    (void) str_set(in, &x->node, node);
    (void) str_set(in, &x->reason, ev->u.exclusion.reason);
    (void) str_set(in, &x->owner, ev->principal);
    fleet_entry_due(f, &x->e, x->expire_us);
    touch_node(in, c, node);
    fleet_touch_cluster(in, c);
    audit(in, x, ev, "exclusion.add", x->reason);
    return 0;
}

static void end(struct fleet *f, struct intents *in, struct exclusion *x, enum exclusion_state to, const struct event *ev)
{
    x->state = to;
    fleet_entry_due(f, &x->e, 0);
    fleet_touch_entry(in, &x->e);
    touch_node(in, x->e.cluster, str_or(x->node));
    fleet_touch_cluster(in, x->e.cluster);
    audit(in, x, ev, to == EXCLUSION_LIFTED ? "exclusion.lift" : "exclusion.expire", x->lift_reason);
}

int fleet_apply_exclusion_lift(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                               struct adv_err *err)
{
    struct exclusion *x;
    struct entry *e;
    int r = fleet_entry_get(c, RESOURCE_EXCLUSION, ev->u.entry.uid, ev->u.entry.if_revision, &e, err);

    if (r < 0)
        return r;
    x = (struct exclusion *) e;
    if (!exclusion_active(x))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "EXCLUSION_OVER", "node %.64s: it %s already", str_or(x->node),
                                  x->state == EXCLUSION_LIFTED ? "was lifted" : "expired");
    x->lift_us = ev->now_us;
    (void) str_set(in, &x->lifted_by, ev->principal);
    (void) str_set(in, &x->lift_reason, ev->u.entry.reason);
    end(f, in, x, EXCLUSION_LIFTED, ev);
    return 0;
}

void fleet_exclusion_due(struct fleet *f, struct intents *in, struct exclusion *x, const struct event *ev)
{
    end(f, in, x, EXCLUSION_EXPIRED, ev);
}
