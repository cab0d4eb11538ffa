/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_PUMP_H
#define ADV_CONTROLPLANE_RPC_PUMP_H

/* gRPC core's completion queue and a libuv loop in one thread. Private to rpc/.
 *
 * Core's I/O is done by whoever waits in grpc_completion_queue_next(), and there is no descriptor that says when it has
 * something; so the loop waits there instead of in its own poll, and a second thread, which does nothing else, wakes it when
 * the loop's own descriptor becomes ready. Two threads that hand every event over (the former design) cost a switch of
 * threads for each of the three events of a call: with both on one core, three times the time of the call itself.
 *
 * Any uv_run(UV_RUN_DEFAULT) does it; nothing else has to know. One pump serves all servers of a process; they share a loop.
 *
 * Thread: loop thread. */

#include <grpc/grpc.h>
#include <uv.h>

#include "common/err.h"

struct rpc_pump;

/* Called after each batch of events that was worked off. May be removed from within. */
struct rpc_pumped {
    void (*after)(struct rpc_pumped *m);
    struct rpc_pumped *prev, *next;
};

/* The process's pump, made if there is none. Errors: -ADV_RESOURCE_EXHAUSTED; -ADV_INVALID_ARGUMENT (another loop). */
adv_must_check int rpc_pump_get(uv_loop_t *loop, struct rpc_pump **ret, struct adv_err *err);
/* Nothing of the caller's may be outstanding. The last one ends the pump; @closed comes from the loop once its handles are
 * closed (at once, from the loop too, for others). */
void rpc_pump_put(struct rpc_pump *p, void (*closed)(void *arg), void *arg);

grpc_completion_queue *rpc_pump_cq(const struct rpc_pump *p);
void rpc_pump_add(struct rpc_pump *p, struct rpc_pumped *m);
void rpc_pump_remove(struct rpc_pump *p, struct rpc_pumped *m);

/* Makes the loop turn, as an event of one of its descriptors would, without the thread that watches these.
 * Thread: any, while the pump is held. */
void rpc_pump_wake(struct rpc_pump *p);

/* Works off events until *@flag. Blocks: until then. */
void rpc_pump_wait(struct rpc_pump *p, const bool *flag);

#endif
