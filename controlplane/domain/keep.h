/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_KEEP_H
#define CONTROLPLANE_DOMAIN_KEEP_H

/* What is ordered so that a later decision can be carried out at all. Neither is a judgement.
 *
 * REQUEUEABLE: a running attempt whose job was submitted with requeueing switched off can be recovered only if that is changed
 * before it ends. Ordered once a job, in mode ACT alone, and only where the job's comment asks for it ("make_requeueable": true)
 * or, with decide.make_requeueable = opted_in, does not forbid it. Whoever switches it off again has the last word.
 *
 * PRESERVED: the scheduler forgets an ended job after a while (cluster.forget_after_s); after a third of that a failed attempt
 * which is still undecided, and would be restarted by what is known so far, is put into our hold. So is one whose restart waits
 * for a person's yes, if the site's ceiling has preserve_in_approve. Never one that would be left as it is: a job with its
 * owner's fault, that died at its start, used up its restarts, and so on, stays FAILED. The decision then goes on from the hold;
 * if it is to leave the job alone, the agent cancels the job that waits: it ends CANCELLED, which is as near to FAILED as
 * Slurm lets it come.
 *
 * Pure. */

#include "controlplane/domain/fleet.h"
#include "controlplane/domain/policy.h"

/* Its advice is the outcome of a judgement, and not only one of the two above. */
bool attempt_judged(const struct attempt *a);

/* Its advice wants the job to wait in our hold, and as far as is known it does, or will: the newest attempt of the job is only
 * the one that waits there. Such an attempt is judged as if it were the newest. */
bool attempt_kept(const struct attempt *a);
/* The same, asked before the next attempt is known: of one that waits as told. */
bool attempt_kept_by(const struct attempt *a, uint32_t index, enum job_state state, bool held);
/* The newest of its job, or kept. */
bool attempt_stands(const struct attempt *a);

/* Why a job that ended with requeueing switched off was not made requeueable while it ran: a clause without a full stop. */
#define WHY_NOT_REQUEUEABLE_MAX 400
void why_not_requeueable(const struct attempt *a, const struct policy *p, char buf[WHY_NOT_REQUEUEABLE_MAX]);

struct intents;
struct event;
/* Looks whether a running attempt, or all of a cluster, should be made requeueable. */
void fleet_want_requeueable(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
void fleet_want_requeueable_all(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev);
/* Preserves @a if it is time, or sees to it that it is looked at again when it is. */
void fleet_keep(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);

#endif
