/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_FEED_H
#define CONTROLPLANE_FEED_H

/* Asks sources (sources/) about the attempts that run or have just ended, and feeds what they say: lines of job logs to the
 * scans of the API, node logs to scans of their own whose findings are evidence, measurements as witnesses and signs of
 * life. What a source cannot tell is told, too: as a gap in the telemetry of the attempts it is asked about, and of the
 * cluster.
 *
 * Asked about is only what this replica owns, and no job whose comment switches Advisor off.
 *
 * Thread: loop thread.  Blocks: no, but for feed_new(), which reads the file of sources. */

#include "controlplane/api/api.h"

struct feed;

/* @path: file of sources; "": there are none. @api and @turn outlive it.
 * Errors: those of sources_config_load(); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int feed_new(uv_loop_t *loop, struct turn *turn, struct api *api, const char *path, struct feed **ret,
                            struct adv_err *err);
/* Asks no more, and lets go of @api. Before turn_stop(). Takes NULL. */
void feed_stop(struct feed *f);
/* After turn_stop()'s callback; the loop has to run once more. Returns NULL, takes NULL. */
struct feed *feed_free(struct feed *f);

#endif
