/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_API_HANDOFF_H
#define CONTROLPLANE_API_HANDOFF_H

/* Calls that change a cluster which another replica owns go to it through the store. For api/ alone.
 * Thread: loop thread.  Blocks: no. */

#include "controlplane/api/api.h"

void handoff_start(struct api *api);
void handoff_tick(struct api *api);
/* The store was lost, or we stop: all that wait here hear @why. */
void handoff_reset(struct api *api, const struct adv_err *why);
void handoff_free(struct api *api);

/* @cluster (FLEET_CLUSTER for fleet-wide things) is another replica's. */
bool handoff_needed(struct api *api, const char *cluster);
/* Hands @call over; its reply or failure follows. */
void handoff_call(struct api_call *call, const char *cluster, const ProtobufCMessage *req);

/* The formats in the store, for handoff.c and for fuzzing; false: malformed. The error's reason lives as long as @api. */
bool handoff_unpack_caller(const void *bytes, size_t len, struct api_caller *ret);
bool handoff_unpack_error(struct api *api, const void *bytes, size_t len, struct adv_err *ret);

#endif
