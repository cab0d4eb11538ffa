/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_SNAPSHOT_H
#define ADVISOR_AGENT_SNAPSHOT_H

/* The newest complete picture of the scheduler: one record for each job and node, with a hash, and
 * what of it the control plane has been sent. Pure: observations go in, StateUpdates come out.
 *
 * An observation that is not complete must not be given to it. A job that is absent is only a
 * candidate: snapshot_next_missing() names it, the caller inspects it and says snapshot_gone().
 *
 * Thread: one owner.  Blocks: no. */

#include "advisor/v1/agent_service.pb.h"

#include "adapters/adapter.h"

struct snapshot;

/* First submit time of @job if it is confirmed, else 0; may learn it from @job. */
typedef int64_t (*snapshot_first_submit_cb)(void *ctx, const struct adapter_job *job);

adv_must_check struct snapshot *snapshot_new(snapshot_first_submit_cb first_submit, void *ctx);
struct snapshot *snapshot_free(struct snapshot *s);

/* Errors of all: -ADV_RESOURCE_EXHAUSTED; what was taken until then stays. */
adv_must_check int snapshot_observe(struct snapshot *s, const struct adapter_observation *o,
                                    struct adv_err *err);
adv_must_check int snapshot_detail(struct snapshot *s, const struct adapter_job_detail *d,
                                   struct adv_err *err);
adv_must_check int snapshot_nodes(struct snapshot *s, const struct adapter_node_list *l,
                                  struct adv_err *err);
void snapshot_gone(struct snapshot *s, const char *job_id);
/* How an attempt ended that the scheduler has forgotten; copied. The last SNAPSHOT_ENDS_MAX are kept, so that they can be
 * sent to a control plane that may not have got them. */
#define SNAPSHOT_ENDS_MAX 256
adv_must_check int snapshot_ended(struct snapshot *s, const advisor_v1_JobEnd *e, struct adv_err *err);
/* How many more can be taken without losing one that was not sent. */
size_t snapshot_ends_room(const struct snapshot *s);
/* From now on those are sent again. */
void snapshot_ends_again(struct snapshot *s);

/* Ids to look at, each named once until the next observation; NULL: none left. */
const char *snapshot_next_missing(struct snapshot *s);
const char *snapshot_next_detail(struct snapshot *s);

/* Borrowed until the next change; NULL: not known. */
const advisor_v1_JobObservation *snapshot_find(const struct snapshot *s, const char *job_id);
/* Calls @fn for every job. */
void snapshot_each(const struct snapshot *s, void (*fn)(void *arg, const advisor_v1_JobObservation *o),
                   void *arg);
/* Calls @fn for each job whose dependencies name @parent, as @names says (adapter_ops.depends), or named it until @since_s
 * (unix seconds) or later. @before: its dependencies then; "" where they are not known. */
void snapshot_dependents(const struct snapshot *s, bool (*names)(const char *dependency, const char *parent, const char *child),
                         const char *parent, int64_t since_s,
                         void (*fn)(void *arg, const advisor_v1_JobObservation *o, const char *before), void *arg);
size_t snapshot_count(const struct snapshot *s);
uint64_t snapshot_digest(const struct snapshot *s);

/* From now on a full snapshot is sent. */
void snapshot_restart(struct snapshot *s);
/* Is there something to send? A full snapshot only once there was a complete observation. */
bool snapshot_pending(const struct snapshot *s);
/* Fills @ret with what is to be sent next, about @budget_bytes of it, and counts it as sent. What
 * @ret points to is valid until the next change; nothing of it is to be freed. False: nothing. */
bool snapshot_take(struct snapshot *s, size_t budget_bytes, advisor_v1_StateUpdate *ret);

enum _advisor_v1_JobState snapshot_state_of(enum adapter_job_state state, bool completing);

ADV_DEFINE_CLEANUP(snapshot, snapshot_free);

#endif
