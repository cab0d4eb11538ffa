/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_WORKER_H
#define CONTROLPLANE_STORE_WORKER_H

/* A thread that runs one thing after another and is answered on the loop: what uv_queue_work() does, with a shorter way
 * back, for what callers wait for.
 *
 * Thread: loop thread. */

#include <uv.h>

#include "common/err.h"

struct store_worker;

/* Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int store_worker_new(uv_loop_t *loop, struct store_worker **ret, struct adv_err *err);
/* Nothing may be under way. The loop has to run once more. Returns NULL. Blocks: until the thread has ended. */
struct store_worker *store_worker_free(struct store_worker *w);

/* @run on the thread, then @done on the loop, never before this returns. One at a time; @done may begin the next. The loop
 * stays alive meanwhile. */
void store_worker_run(struct store_worker *w, void (*run)(void *arg), void (*done)(void *arg), void *arg);

/* @wake, called on the thread, makes the loop turn, as uv_async_send() would, which is used without one (NULL). It is not
 * called any more when this has returned. */
void store_worker_set_wake(struct store_worker *w, void (*wake)(void *arg), void *arg);

#endif
