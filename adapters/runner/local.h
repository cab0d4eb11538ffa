/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_ADAPTERS_RUNNER_LOCAL_H
#define ADV_ADAPTERS_RUNNER_LOCAL_H

/* Runs an adapter's commands as children on this host, on a libuv loop.
 * Thread: the loop's.  Blocks: only for fork(2). */

#include <uv.h>

#include "adapters/adapter.h"

/* Owner: caller, runner->ops->free(). @loop must outlive it, and must be run afterwards until it has no more handles.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int runner_local_new(uv_loop_t *loop, struct adapter_runner **ret, struct adv_err *err);

#endif
