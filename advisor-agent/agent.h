/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_AGENT_H
#define ADVISOR_AGENT_AGENT_H

/* The agent: looks at the scheduler, keeps a session with the control plane, carries out advice, and
 * follows logs. It owns the parts; main.c chooses the adapter.
 *
 * Thread: loop thread.  Blocks: on the journal's fdatasync. */

#include "advisor-agent/config.h"

#include "adapters/adapter.h"

struct agent;
struct uv_loop_s;

/* The host to give to the adapter's constructor, valid as long as the agent. */
adv_must_check int agent_new(struct uv_loop_s *loop, const struct agent_config *cfg,
                             struct adapter_runner *runner, struct agent **ret, struct adv_err *err);
struct adapter_host *agent_host(struct agent *a);
/* Begins. @adapter stays the caller's. */
adv_must_check int agent_start(struct agent *a, struct adapter *adapter, struct adv_err *err);
/* Starts nothing more and closes all handles. Then free the adapter and the runner, run the loop until
 * it has no more handles, and free the agent. */
void agent_stop(struct agent *a);
struct agent *agent_free(struct agent *a);

#endif
