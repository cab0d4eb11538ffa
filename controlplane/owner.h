/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_OWNER_H
#define CONTROLPLANE_OWNER_H

/* Which clusters this replica owns, when several share a store. docs/internals/ownership.md tells the protocol.
 *
 * The keeper renews the leases of what is owned, takes what has no owner, takes for an agent that knocks what is free, asks
 * its owner otherwise, and gives up what another replica asks for when no agent of it is at work here. Whatever it is told
 * counts from before the question was sent, on CLOCK_BOOTTIME. When ownership was lost otherwise than by giving it up,
 * memory cannot be trusted: it is loaded again (turn_fail()), and all sessions end.
 *
 * With an unshared store it does nothing: everything is owned for ever.
 *
 * Thread: loop thread.  Blocks: no. */

#include "controlplane/turn.h"

struct owner;

struct owner_ops {
    /* May @cluster be given up for another replica, where the agent with @journal knocked? */
    bool (*may_give_up)(void *arg, const char *cluster, const char *journal);
    /* It was given up: end what works on it here. */
    void (*gave_up)(void *arg, const char *cluster);
};

struct owner_config {
    int64_t lease_us; /* store_config.owner_lease_us */
};

adv_must_check int owner_new(uv_loop_t *loop, struct turn *turn, const struct owner_config *cfg, struct owner **ret,
                             struct adv_err *err);
/* NULL: no agents here. */
void owner_set_ops(struct owner *o, const struct owner_ops *ops, void *arg);

/* An agent of @cluster is here. @cb comes once the cluster is owned, with an error if it could not be had in time
 * (-ADV_UNAVAILABLE, NOT_OWNER), never from within. */
typedef void (*owner_cb)(void *arg, const struct adv_err *err);
void owner_want(struct owner *o, const char *cluster, const char *journal, owner_cb cb, void *arg);

/* Gives up everything, so that others need not wait for the leases to end; before turn_stop(). Waiting wants fail. */
void owner_stop(struct owner *o, void (*done)(void *arg), void *arg);
/* After owner_stop()'s callback; the loop has to run once more. */
void owner_free(struct owner *o);

#endif
