/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_TURN_H
#define CONTROLPLANE_TURN_H

/* The one place where an event becomes a decision, a commit and something shown.
 *
 * Events queue up; a turn applies what is there to the fleet (domain/fleet.h), numbers the changes, commits them in one
 * transaction, and only then answers: first the events' own callbacks, then observers, then waiting reads. While a
 * commit is under way memory is ahead of the store, so reads wait: whatever anybody sees is on disk.
 *
 * An event of a cluster that changes nothing is answered from memory, too, but with a shared store only once a transaction
 * has found that memory is still the owner's.
 *
 * When a commit fails, memory is thrown away and loaded from the store again; the turn's events fail with
 * -ADV_UNAVAILABLE, and so does everything else until the store is back. Nothing acknowledged is ever lost by it. Where
 * the events may be stored all the same they hear STORE_OUTCOME_UNKNOWN or STORE_REPLACED: who repeats one with its
 * request id learns it.
 *
 * Thread: loop thread. */

#include <uv.h>

#include "controlplane/store/store.h"

struct turn;
struct turn_event;

/* @err is NULL when the event took effect and is durable. Owner of @te again: the callback. */
typedef void (*turn_done_cb)(struct turn_event *te, const struct adv_err *err);

/* Events of one peer, of which several may wait: when one of them was refused, none that is still waiting takes effect. Zero
 * at first. */
struct turn_order {
    enum adv_code code; /* ADV_OK: none was refused */
    const char *reason;
};

/* An event with a request id that was carried out before (24 h) succeeds and changes nothing; with another hash it
 * fails with -ADV_ALREADY_EXISTS, REQUEST_ID_REUSED. */
struct turn_event {
    struct event ev;       /* now_us and mono_us are filled by the turn */
    struct turn_order *order; /* NULL, or the caller's until the callback */
    turn_done_cb done;     /* never NULL; called from the loop (only after turn_stop() from within turn_submit()) */
    struct adv_err err;    /* the turn's */
    bool failed;           /* the turn's */
    struct turn_event *prev, *next;
};

struct turn_observer {
    /* Something was committed. */
    void (*changed)(struct turn_observer *o);
    /* The store was lost: every pointer into the fleet and every session is void. */
    void (*reset)(struct turn_observer *o);
    /* May be NULL. The fleet was loaded anew. */
    void (*loaded)(struct turn_observer *o);
    struct turn_observer *prev, *next;
};

/* Loads the fleet. The store stays the caller's. Blocks: while loading. */
adv_must_check int turn_new(uv_loop_t *loop, struct store *st, const struct fleet_config *cfg, struct turn **ret,
                            struct adv_err *err);
/* Stops taking events; @done is called once nothing is outstanding. Waiting events and reads get -ADV_UNAVAILABLE. What a worker does
 * for the store (a commit, a load, a look at the file) cannot be called off: where the file system hangs, @done is as
 * late as that, whatever grace there is for a stop. */
void turn_stop(struct turn *t, void (*done)(void *arg), void *arg);
/* After turn_stop()'s callback; the loop has to run once more to close handles. */
void turn_free(struct turn *t);

/* Takes @te over until its callback. Never blocks. */
void turn_submit(struct turn *t, struct turn_event *te);

/* Runs @cb when memory equals the store: at once, or after the commit under way; with a shared store as it was at most two
 * seconds ago, also when the process has stood still since. @err is set when the store is away. */
typedef void (*turn_read_cb)(void *arg, const struct adv_err *err);
void turn_read(struct turn *t, turn_read_cb cb, void *arg);

/* The same, once change @seq has been seen here too (of another replica). */
void turn_read_after(struct turn *t, uint64_t seq, turn_read_cb cb, void *arg);

/* For the keeper of ownership (owner.h), from within turn_read(): memory cannot be trusted any more; load it again. No
 * event takes effect and no read is answered from it after this. */
void turn_fail(struct turn *t, const struct adv_err *why);
/* What waits to be judged has changed otherwise than by an event. */
void turn_rearm(struct turn *t);

/* Calls of other replicas, and their answers to ours; told while memory equals the store. */
struct turn_handoffs {
    void (*todo)(void *arg, const struct store_handoff *h);
    void (*answer)(void *arg, const struct store_handoff *h);
};
void turn_set_handoffs(struct turn *t, const struct turn_handoffs *h, void *arg);

void turn_observe(struct turn *t, struct turn_observer *o);
void turn_unobserve(struct turn *t, struct turn_observer *o);

/* Valid only inside the callbacks above, and for fleet_lease_extend() at any time. */
struct fleet *turn_fleet(struct turn *t);
const struct watchlog *turn_watchlog(const struct turn *t);
struct store *turn_store(struct turn *t);
/* False while the store is away. */
bool turn_ready(const struct turn *t);
/* Not for two seconds after a store was loaded again that was full or could only be read: reads are answered meanwhile, events
 * are refused without trying. */
bool turn_takes_events(const struct turn *t);

#endif
