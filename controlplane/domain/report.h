/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_REPORT_H
#define CONTROLPLANE_DOMAIN_REPORT_H

/* Numbers about the past, from what the fleet holds: how long things took, and what advice came to. Pure.
 *
 * What is not known is left out of every number: an interval of which one end is missing, or that would be negative because
 * clocks differ or the later fact came first; a verdict on another generation than the one that stands.
 *
 * Thread: loop thread.  Blocks: no. */

#include "controlplane/domain/fleet.h"

struct report_query {
    const struct fleet *fleet;
    const struct cluster *only; /* NULL: all */
    int64_t start_us, end_us;   /* from, and before; 0: no limit */
    const char *fault_class;    /* "": all */
    bool (*may_see)(const void *ctx, const struct job *j);
    const void *ctx;
};

/* Numbers of enum LatencyInterval. */
enum report_interval {
    REPORT_SIGNAL_TO_ANOMALY = 1,
    REPORT_END_TO_CONFIRMED = 2,
    REPORT_END_TO_ADVISED = 3,
    REPORT_END_TO_FIRST_COMMAND = 4,
    REPORT_END_TO_CONVERGED = 5,
    REPORT_END_TO_STARTED = 6,
    REPORT_END_TO_PRODUCTIVE = 7,
};

struct latency_row {
    const char *cluster, *fault_class; /* borrowed from the fleet */
    enum report_interval interval;
    uint64_t count, p50_ms, p95_ms, p99_ms, max_ms;
};

struct outcome_row {
    const char *cluster, *fault_class; /* borrowed from the fleet */
    uint64_t advice, no_action, restarted;
    uint64_t shadow, awaiting_approval, approved, rejected; /* of restarted */
    uint64_t pending, converged, abandoned, superseded;     /* of restarted */
    uint64_t started, productive, completed;                /* of restarted and converged */
    uint64_t restarted_right, restarted_wrong, no_action_right, no_action_wrong;
};

/* Rows by cluster, class, interval.
 * Owner:  caller, free().
 * Errors: -ADV_RESOURCE_EXHAUSTED (NO_MEMORY). */
adv_must_check int report_latency(const struct report_query *q, struct latency_row **ret, size_t *ret_n, struct adv_err *err);
adv_must_check int report_outcome(const struct report_query *q, struct outcome_row **ret, size_t *ret_n, struct adv_err *err);

/* The nearest-rank percentile: the smallest of @v, which is sorted and not empty, such that at least @percent of all are not
 * greater. @percent is 1..100. */
uint64_t report_nearest_rank(const uint64_t *v, size_t n, unsigned percent);

/* Class of the anomaly that its advice rests on; "none" without one. */
const char *report_class(const struct attempt *a);

#endif
