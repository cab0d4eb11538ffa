/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_PULSE_H
#define CONTROLPLANE_DOMAIN_PULSE_H

/* Whether a running attempt moves. Its signs of life go into its rhythm (rhythm.h); what comes of it is at most two
 * anomalies, told by reporter "rhythm":
 *
 *  rule             kind       opened                                            then
 *  rhythm-silence   hang       silence beyond the attempt's own rhythm           CONFIRMED with a second witness, and only
 *                              (SUSPICION: shown, and nothing rests on it)       then acted upon; WITHDRAWN by any sign
 *  rhythm-slow      straggler  slow for long, measured by itself (CONFIRMED)     WITHDRAWN when the pace is back; acted
 *                                                                                upon only with restart.stragglers
 *
 * Witnesses are what says independently of its log that an attempt stands still, see enum witness_kind. That devices are
 * busy is none, and nothing that they are not is taken from it either: collectives spin.
 *
 * Where nobody listens nothing is silent. No silence is counted while the agent is away or its log stream is down, while
 * the log is not read in full, in a maintenance window, or while the attempt is suspended; after each of them it begins
 * anew. An attempt that showed no rhythm yet is never silent.
 *
 * Memory: one struct pulse for each running attempt that showed progress. It is not stored; of the rhythm the bound is
 * (attempt.rhythm_bound_us), so that another replica can judge what began to hang before it came. Pure. */

#include "controlplane/domain/model.h"
#include "controlplane/domain/rhythm.h"

#define PULSE_REPORTER "rhythm"
#define PULSE_SILENCE  "rhythm-silence"
#define PULSE_SLOW     "rhythm-slow"

/* A silence is looked at twice before it counts: what the control plane itself slept through, or what is on its way still,
 * shows in between. */
#define PULSE_LOOK_AGAIN_US (60 * 1000000LL)

struct witness {
    bool holds;
    int64_t since_mono_us, seen_mono_us; /* CLOCK_BOOTTIME */
    char source[32];
    char detail[128];
};

struct pulse {
    struct rhythm rhythm;
    /* By CLOCK_BOOTTIME, which nobody sets: what came after what, and how long ago, rests on these alone. */
    int64_t sign_us;    /* newest sign */
    int64_t outside_us; /* newest sign that came from somebody outside; no part of the rhythm */
    int64_t listen_us;  /* since when the attempt runs on after it was stopped, or its log is read */
    int64_t told_us;    /* since when the suspicion of its silence stands; 0: it was not told here */
    uint32_t signs;
    uint32_t bound_of; /* gaps that the stored bound was made of */
    int64_t slow_us;       /* since when its slowness stands, as told here; 0: it does not */
    int64_t first_start_us; /* how long it took until the first sign; -1: nobody listened all the time */
    int64_t count, total;  /* step and last step of the counter that its pace is of; -1: not known */
    bool restart_asked;    /* for being slow; once an attempt */
    struct witness witness[WITNESS_KIND_END_];
};

/* How long slowness has to stand before anything is done about it. */
#define STRAGGLER_SUSTAINED_US (1800 * 1000000LL)

/* Its slowness, where a restart was asked for and it still stands; NULL for none. */
const struct anomaly *straggler_stands(const struct attempt *a);
/* A restart was asked for because it is slow, and nothing else is confirmed of it: with its slowness the order falls, whatever is
 * suspected. */
bool straggler_alone(const struct attempt *a);
/* Another job of the cluster is slow, or became so within an hour of when @a did: a cause that they share is likelier than a node of
 * @a's. Cost: O(1), but for jobs that the scheduler forgot while they were slow. */
bool straggler_others(const struct attempt *a);
/* It is not slow any more, or nobody knows; with nothing in memory of it that is so already. */
void attempt_not_slow(struct attempt *a);
/* What a restart of a slow attempt would gain and cost; what is not known is below 0. All that was done counts as lost unless an
 * attempt of the job was seen to resume. The queue is the longest that this job, or any of its partition that started within a day
 * before @now_unix, had to wait, or that one waits now; it is looked for only where all else pays. Cost of that: O(attempts of the
 * cluster). */
void straggler_gain(const struct attempt *a, int64_t now_unix, struct rhythm_gain *ret);

const char *witness_name(enum witness_kind k); /* "DEVICE_IDLE" */

/* Ours, made from the rhythm. */
bool anomaly_of_rhythm(const struct anomaly *an);

/* What can be said of an attempt that runs. Numbers are those of the API. */
enum activity {
    ACTIVITY_UNKNOWN = 0, /* not running, not readable, or nobody listens */
    ACTIVITY_LEARNING = 1,
    ACTIVITY_MOVING = 2,
    ACTIVITY_SILENT = 3, /* beyond its own rhythm */
    ACTIVITY_SLOW = 4,
};
/* With one sentence why, into @ret_why (for ACTIVITY_UNKNOWN of an attempt that does not run: ""). */
#define ACTIVITY_WHY_MAX 256
enum activity attempt_activity(const struct attempt *a, char ret_why[ACTIVITY_WHY_MAX]);

#endif
