/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_STEADY_H
#define ADVISOR_AGENT_STEADY_H

/* The wall clock without its jumps. What the journal writes down has to be wall time, since it is read after a restart;
 * but what is counted from it ("writes in the last hour", "this hold has expired") must not change because somebody set
 * the clock. So wall time is taken once and goes on by the clock since boot, which nobody sets; small steps, as time
 * daemons make them, are followed. Leases need none of this: they live on the clock since boot alone.
 *
 * Pure: both clocks are arguments.   Thread: any, one object in one. */

#include <stdbool.h>
#include <stdint.h>

#define STEADY_STEP_US 2000000 /* larger ones are jumps; time daemons slew or step by less once they run */

struct steady { /* all zero: not begun */
    bool begun;
    int64_t base_us; /* wall minus boot that counts */
    int64_t jump_us; /* how far the wall clock is off that: 0, or more than a step either way */
};

/* @wall_us, or what it would be without jumps since the first call. */
int64_t steady_wall_us(struct steady *s, int64_t wall_us, int64_t boot_us);

/* Whether the wall clock has jumped since the last call, by more than a step: *@ret_jump_us (may be NULL) is then how far
 * it is off; 0 says that it came back. */
bool steady_jumped(struct steady *s, int64_t wall_us, int64_t boot_us, int64_t *ret_jump_us);

#endif
