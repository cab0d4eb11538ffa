/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_JOBCOMMENT_H
#define ADV_COMMON_JOBCOMMENT_H

/* What a job's comment says about being looked after: {"advisor": {...}}, or the older {"APS": {...}}. Both ends read it:
 * the control plane when it judges, the agent again right before each write.
 *
 * Any thread, never blocks. */

#include <stdint.h>

#include "common/err.h"

/* Ordered; the numbers are those of the API's Mode. */
enum adv_jobcomment_mode {
    ADV_JOBCOMMENT_UNSET = 0, /* does not opt in */
    ADV_JOBCOMMENT_OFF = 1,
    ADV_JOBCOMMENT_OBSERVE = 2,
    ADV_JOBCOMMENT_APPROVE = 3,
    ADV_JOBCOMMENT_ACT = 4,
};

/* May a job that was submitted with requeueing switched off be made requeueable while it runs? */
enum adv_jobcomment_requeue {
    ADV_JOBCOMMENT_REQUEUE_UNSAID = 0, /* what was submitted stands, unless the site has it otherwise */
    ADV_JOBCOMMENT_REQUEUE_YES = 1,
    ADV_JOBCOMMENT_REQUEUE_NO = 2, /* never, whatever the site has */
};

struct adv_jobcomment {
    enum adv_jobcomment_mode mode;
    enum adv_jobcomment_requeue make_requeueable;
    char policy[64];
    char workflow[257];
    char progress[201]; /* a pattern of its own progress line; not looked into here */
    uint32_t max_restarts; /* 0: not said (a job that says 0 is in mode observe) */
    char error[160];       /* set when the comment speaks of Advisor but cannot be understood; never consent then */
};

/* A comment that is not a JSON object is somebody's own text: no opt-in, and no error unless it mentions "advisor" or
 * "APS". Never guesses. `mode: off` wins over everything else. Cannot fail. */
void adv_jobcomment_parse(const char *comment, struct adv_jobcomment *ret);

/* Reads "off", "observe", "approve", "act" in any case. */
bool adv_jobcomment_mode_from_name(const char *s, enum adv_jobcomment_mode *ret);

#endif
