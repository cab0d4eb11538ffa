/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_DOCTOR_HOST_H
#define ADVISOR_DOCTOR_HOST_H

/* Looks at this host: the agent's folder, ceiling, helper, certificate and connection, and the output files of running jobs.
 * Nothing is changed; the state folder's lock is tried and given back at once, as the watchdog does.
 *
 * Thread: the loop's.  Blocks: on local files, and in each call for as long as it says. */

#include <uv.h>

#include "advisor-agent/config.h"
#include "advisor-agent/doctor/gather.h"

/* The name of the effective user, or its number. */
void doctor_user_name(char *ret, size_t cap);

/* Fills @f->host but for its link and clock_stepped_ms. @a runs the helper. Blocks: some seconds at most. */
void doctor_look(const struct doctor_asking *a, const struct agent_config *c, struct doctor_facts *f);

/* Connects to the control plane and leaves again, without a session. Blocks: @wait_ms at most. */
void doctor_link(uv_loop_t *loop, const struct agent_config *c, int wait_ms, struct doctor_facts *f);

/* Opens the output files found with their owners' rights, by the helper, and reads nothing of them. Blocks: @wait_ms at most. */
void doctor_outputs(uv_loop_t *loop, const struct agent_config *c, int wait_ms, struct doctor_facts *f);

#endif
