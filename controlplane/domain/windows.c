/* SPDX-License-Identifier: Apache-2.0 */
/* Maintenance windows. While one is open:
 *  - nothing new becomes executable (policy.c lowers the mode), and a person's approval is refused;
 *  - executable advice whose first step was not begun is lowered when it opens: nobody wants jobs set in motion then. What
 *    is begun is brought to its end, since a job left half way would need somebody to look after it;
 *  - silence of a running job is no evidence (judge.c), neither then nor for the grace after it. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"

#include "controlplane/domain/entries.h"

#include <stdio.h>
#include <utlist.h>

#define WINDOW_MAX_US   (30 * 86400 * 1000000LL)
#define PAST_SLACK_US   (60 * 1000000LL)
#define WINDOWS_MAX     256 /* planned or open on one cluster */

void fleet_windows_sum(struct cluster *c, int64_t now_us)
{
    c->maintenance_until_us = 0;
    for (const struct entry *e = c->entries[RESOURCE_WINDOW]; e; e = e->hh.next) {
        const struct window *w = (const struct window *) e;
        bool over = w->state == WINDOW_OVER || now_us >= w->end_us, open = w->state == WINDOW_OPEN || now_us >= w->start_us;
        if (!over && open && w->end_us > c->maintenance_until_us)
            c->maintenance_until_us = w->end_us;
    }
}

static void audit(struct intents *in, const struct window *w, const struct event *ev, const char *verb)
{
    char name[2 * RESOURCE_NAME_MAX];

    fleet_audit(in, w->e.cluster, ev, 0, verb, resource_name(RESOURCE_WINDOW, w->e.cluster->name, w->e.uid, name),
                "%lld to %lld: %s", (long long) (w->start_us / 1000000), (long long) (w->end_us / 1000000),
                str_or(w->reason));
}

static void lower_what_was_not_begun(struct intents *in, struct cluster *c, const struct event *ev)
{
    struct advice *ad, *next;
    char name[RESOURCE_NAME_MAX];

    DL_FOREACH_SAFE (c->open_advice, ad, next) {
        if (ad->actionability != ACTION_ACTIONABLE || ad->disposition != DISPOSITION_PENDING ||
            ad->desired == DESIRED_NO_ACTION || attempt_requeue_recorded(ad->attempt))
            continue;
        ad->actionability = ACTION_SHADOW;
        ad->disposition_reason = REASON_MAINTENANCE;
        ad->update_us = ev->now_us;
        ad->order_rev = 0;
        (void) str_set(in, &ad->status_detail, "a maintenance window began");
        fleet_touch_advice(in, ad);
        fleet_audit(in, c, ev, 0, "advice.lowered", advice_resource_name(ad->attempt, name), "a maintenance window began");
    }
}

/* Moves @w along to what it is at the event's time. */
static void move(struct fleet *f, struct intents *in, struct window *w, const struct event *ev)
{
    enum window_state to = ev->now_us >= w->end_us     ? WINDOW_OVER :
                           ev->now_us >= w->start_us   ? WINDOW_OPEN :
                                                         WINDOW_PLANNED;

    fleet_entry_due(f, &w->e, to == WINDOW_OVER ? 0 : to == WINDOW_OPEN ? w->end_us : w->start_us);
    if (to == w->state)
        return;
    w->state = to;
    fleet_touch_entry(in, &w->e);
    fleet_touch_cluster(in, w->e.cluster);
    fleet_windows_sum(w->e.cluster, ev->now_us);
    if (to == WINDOW_PLANNED)
        return;
    w->e.cluster->listen_us = ev->mono_us;
    audit(in, w, ev, to == WINDOW_OPEN ? "maintenance.begin" : "maintenance.end");
    if (to == WINDOW_OPEN)
        lower_what_was_not_begun(in, w->e.cluster, ev);
    else
        fleet_want_requeueable_all(f, in, w->e.cluster, ev); /* what was lowered, and jobs that were started meanwhile */
}

static int bad_time(struct adv_err *err, const char *field, const char *expected)
{
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "%s: expected %s", field, expected);
    return adv_err_field(err, "%s", field);
}

int fleet_apply_window_create(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev,
                              struct adv_err *err)
{
    int64_t start_us = ev->u.window.start_us ? ev->u.window.start_us : ev->now_us;
    struct window *w;
    size_t n = 0;

    if (start_us < ev->now_us - PAST_SLACK_US)
        return bad_time(err, "start_time", "a time that is not past");
    if (ev->u.window.end_us <= start_us || ev->u.window.end_us <= ev->now_us ||
        ev->u.window.end_us - start_us > WINDOW_MAX_US)
        return bad_time(err, "end_time", "a time in the future, after start_time and at most 30 days after it");
    for (const struct entry *e = c->entries[RESOURCE_WINDOW]; e; e = e->hh.next)
        n += ((const struct window *) e)->state != WINDOW_OVER;
    if (n >= WINDOWS_MAX)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "WINDOW_LIMIT",
                                  "cluster %s has %d windows planned or open, which is the most", c->name, WINDOWS_MAX);
    w = (struct window *) fleet_entry_new(f, in, c, RESOURCE_WINDOW, NULL, ev);
    if (!w)
        return 0;
    (void) snprintf(ev->u.window.ret_uid, sizeof(ev->u.window.ret_uid), "%s", w->e.uid);
    w->start_us = start_us;
    w->end_us = ev->u.window.end_us;
    w->create_us = ev->now_us;
    (void) str_set(in, &w->reason, ev->u.window.reason);
    (void) str_set(in, &w->owner, ev->principal);
    audit(in, w, ev, "maintenance.plan");
    move(f, in, w, ev);
    return 0;
}

int fleet_apply_window_end(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                           struct adv_err *err)
{
    struct window *w;
    struct entry *e;
    int r = fleet_entry_get(c, RESOURCE_WINDOW, ev->u.entry.uid, ev->u.entry.if_revision, &e, err);

    if (r < 0)
        return r;
    w = (struct window *) e;
    if (w->state == WINDOW_OVER)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "WINDOW_OVER", "it is over already");
    w->end_us = ev->now_us;
    if (w->start_us > ev->now_us)
        w->start_us = ev->now_us; /* it never opened */
    (void) str_set(in, &w->ended_by, ev->principal);
    move(f, in, w, ev);
    return 0;
}

void fleet_window_due(struct fleet *f, struct intents *in, struct window *w, const struct event *ev)
{
    move(f, in, w, ev);
}
