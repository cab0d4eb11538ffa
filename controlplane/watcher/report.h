/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_REPORT_H
#define ADV_WATCHER_REPORT_H

/* A finding of a scan as the event that the domain takes. advisord and the tools that judge a log offline both make their
 * events here, so what a test of rules shows is what would happen.
 * Thread: any.  Blocks: no. */

#include "common/hostlist.h"
#include "controlplane/domain/fleet.h"
#include "controlplane/watcher/watcher.h"

#define WATCHER_REPORT_NODES 64 /* of one line; those beyond are left out */

/* The texts that an event borrows. Zeroed by watcher_report_fill(). */
struct watcher_report {
    struct adv_hostlist *hosts;
    const char *nodes[WATCHER_REPORT_NODES];
    char rule[96], version[WATCHER_RULES_VERSION_SIZE], fault_class[32], ranks[32];
    char excerpt[WATCHER_EXCERPT_SIZE], sha[ADV_SHA256_HEX_SIZE];
};

/* False: the domain takes no events of this finding (notices). Otherwise the type and the
 * finding of @ev are set but for what says whose it is (cluster, job, restart count, stream); @ev borrows from @r.
 * @version is that of the rule set. Owner of @r: caller, watcher_report_done(). */
bool watcher_report_fill(struct watcher_report *r, const struct watcher_finding *f, const char *version, struct event *ev);
/* What a line of a node's log says that may end a job there: the class of that fault. "" for none: a notice, what would be the same
 * on any node, and what only makes it slow. */
const char *watcher_report_ends(const struct watcher_finding *f);
void watcher_report_done(struct watcher_report *r);

#endif
