/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SOURCES_MEASURE_H
#define CONTROLPLANE_SOURCES_MEASURE_H

/* What samples say of an attempt. Idle is only what every device of every node shows, in samples without a gap, up to now
 * and for the whole window. Anything missing makes it unknown, and unknown is never idle: no series, a host without one,
 * fewer series than were seen before, samples too far apart or too old, values that are no numbers, a server that says
 * its answer is not whole. One device that works is enough for "busy", which speaks against nothing: collectives spin. Pure.
 *
 * Thread: any.  Blocks: no. */

#include "controlplane/sources/answer.h"

enum idleness { IDLE_UNKNOWN, IDLE_NO, IDLE_YES };

#define MEASURE_DETAIL_MAX 128

/* @nodes: host list of the attempt. @most_series: the most that were ever seen of it; raised here. @ret_detail:
 * for people. */
enum idleness measure_idle(const struct source_measure *m, const struct source_answer *a, const char *nodes, int64_t now_us,
                           size_t *most_series, char ret_detail[MEASURE_DETAIL_MAX]);

/* A counter's way: of the series together the highest. */
struct measure_counter {
    bool known;
    int64_t ts_us; /* of the newest sample */
    double value;
};
/* Whether it rose since the call before, by fresh samples; the first call only learns. @ret_stale: there is no fresh sample. */
bool measure_rose(const struct source_measure *m, const struct source_answer *a, int64_t now_us, struct measure_counter *c,
                  bool *ret_stale);

#endif
