/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_WORKFLOWS_H
#define CONTROLPLANE_DOMAIN_WORKFLOWS_H

/* Which jobs of a cluster name the same workflow (job.workflow), in the order of the names, for lists that are walked a
 * page at a time. Nothing is stored of a workflow, and nothing told of it but its jobs: it is here as long as a job names it.
 *
 * Thread: loop thread.  Blocks: no.  Cost: O(log n) of all workflows, each. */

#include "controlplane/domain/fleet.h"

struct workflow {
    struct cluster *cluster;
    char *name;
    struct job *jobs; /* never empty; by workflow_prev, workflow_next */
    struct order_node by_name; /* cluster->workflows_in_order */
    RB_ENTRY(workflow) link;   /* fleet->workflows_in_order: by name, then cluster */
};

/* The first after the place of that name and cluster, which need not exist; of one cluster, or (NULL) of all. "" and "": the
 * first of all. NULL: none. Borrowed, until the fleet changes. */
struct workflow *workflow_after(const struct fleet *f, const struct cluster *only_or_null, const char *name, const char *cluster);
/* NULL: none of its jobs names it. Borrowed, until the fleet changes. */
struct workflow *workflow_find(const struct cluster *c, const char *name);

#endif
