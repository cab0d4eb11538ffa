/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_API_WORKFLOW_NAME_H
#define CONTROLPLANE_API_WORKFLOW_NAME_H

/* Resource names of workflows, "clusters/a/workflows/run%207": what jobs write, percent-encoded.
 * Pure. Any thread, never blocks. */

#include "common/arena.h"

#define WORKFLOW_MAX       256                     /* bytes, as jobs may write it */
#define WORKFLOW_NAME_SIZE (3 * WORKFLOW_MAX + 96) /* with its cluster */

/* NULL: no memory. */
adv_must_check char *workflow_name(struct adv_arena *ar, const char *cluster, const char *workflow);
/* The other way round; the cluster is not looked at but for its length. False: it is no such name. */
adv_must_check bool workflow_name_parse(const char *name, char ret_cluster[65], char ret_workflow[WORKFLOW_MAX + 1]);

#endif
