/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_RENEW_H
#define ADVISOR_AGENT_RENEW_H

/* Keeps the agent's certificate alive: asks for the next one in its session once two thirds of the present one's life are
 * over, puts it into the files, and sees to it that a connection does not outlive its certificate when a newer one is there
 * (also when somebody else has put it there).
 *
 * Thread: loop thread.  Blocks: reads and writes small files, at a renewal. */

#include "advisor-agent/config.h"
#include "advisor-agent/session.h"

struct renew;

/* NULL: no memory. @cfg is borrowed. */
adv_must_check struct renew *renew_new(const struct agent_config *cfg);
struct renew *renew_free(struct renew *r); /* returns NULL, tolerates NULL */

/* Call about once a second. @s may be NULL or not active. */
void renew_tick(struct renew *r, struct session *s, int64_t now_mono_us, int64_t now_wall_us);

/* When a certificate that lives from @not_before_s to @not_after_s is to be renewed. Pure; @random spreads agents that were
 * enrolled together over a tenth of the life. */
int64_t renew_due_s(int64_t not_before_s, int64_t not_after_s, uint32_t random);

#endif
