/* SPDX-License-Identifier: Apache-2.0 */
/* Incidents: what a person should look at, told once however often it happens while nobody has. */

#include "controlplane/domain/internal.h"

#include "controlplane/domain/entries.h"

#include <stdarg.h>
#include <stdio.h>

#define SUMMARY_MAX 400

uint32_t incidents_open(const struct cluster *c)
{
    uint32_t n = 0;

    for (const struct entry *e = c->entries[RESOURCE_INCIDENT]; e; e = e->hh.next)
        n += !((const struct incident *) e)->closed;
    return n;
}

static struct incident *find_open(const struct cluster *c, enum incident_kind kind, const char *subject)
{
    for (struct entry *e = c->entries[RESOURCE_INCIDENT]; e; e = e->hh.next) {
        struct incident *i = (struct incident *) e;
        if (!i->closed && i->kind == kind && adv_streq(str_or(i->subject), subject))
            return i;
    }
    return NULL;
}

void fleet_incident(struct fleet *f, struct intents *in, struct cluster *c, enum incident_kind kind, const char *subject,
                    const struct event *ev, const char *fmt, ...)
{
    struct incident *i = find_open(c, kind, subject);
    char text[SUMMARY_MAX], name[2 * RESOURCE_NAME_MAX];
    struct event by_itself = *ev;
    va_list ap;
    bool fresh = !i;

    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    by_itself.request_id = NULL; /* no call made it */
    if (!i) {
        i = (struct incident *) fleet_entry_new(f, in, c, RESOURCE_INCIDENT, NULL, &by_itself);
        if (!i)
            return;
        i->kind = kind;
        i->open_us = ev->now_us;
        (void) str_set(in, &i->subject, subject);
    }
    i->count++;
    i->update_us = ev->now_us;
    (void) str_set(in, &i->summary, text);
    fleet_touch_entry(in, &i->e);
    fleet_touch_cluster(in, c);
    if (fresh)
        fleet_audit(in, c, ev, 0, "incident.open", resource_name(RESOURCE_INCIDENT, c->name, i->e.uid, name), "%s", text);
}

int fleet_apply_incident_close(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err)
{
    char name[2 * RESOURCE_NAME_MAX];
    struct incident *i;
    struct entry *e;
    int r = fleet_entry_get(c, RESOURCE_INCIDENT, ev->u.entry.uid, ev->u.entry.if_revision, &e, err);

    if (r < 0)
        return r;
    i = (struct incident *) e;
    if (i->closed)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "INCIDENT_CLOSED", "%.64s closed it already",
                                  str_or(i->closed_by));
    i->closed = true;
    i->close_us = ev->now_us;
    (void) str_set(in, &i->closed_by, ev->principal);
    (void) str_set(in, &i->close_reason, ev->u.entry.reason);
    fleet_touch_entry(in, &i->e);
    fleet_touch_cluster(in, c);
    fleet_audit(in, c, ev, 0, "incident.close", resource_name(RESOURCE_INCIDENT, c->name, i->e.uid, name), "%s",
                str_or(i->close_reason));
    return 0;
}
