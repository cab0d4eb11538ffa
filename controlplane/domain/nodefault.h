/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_NODEFAULT_H
#define CONTROLPLANE_DOMAIN_NODEFAULT_H

/* What the evidence of an attempt says of its nodes. Pure, and the same whatever the order in which the evidence came.
 *
 * A piece of evidence *counts* if all of this holds:
 *   - it names a fault class that a node can be replaced for (nodefault_class), and nodes of the attempt;
 *   - who says so is believed: what our own sources read in node logs; a detector outside only where the policy trusts it
 *     (policy.trusted_reporters) and it gives a weight of NODEFAULT_WEIGHT_MIN or more; a provider of attributions only with
 *     the confidence that the policy wants;
 *   - it speaks of about the time of the end: not earlier than NODEFAULT_BEFORE_US before it, nor than the attempt's last
 *     progress (what it survived did not end it), nor later than NODEFAULT_AFTER_US behind it, clocks apart
 *     (NODEFAULT_SKEW_US). An attribution is about the attempt and has no time.
 *   - a detector outside said it before the attempt was judged (evidence.late).
 *
 * Evidence about more nodes than NODEFAULT_NODES_MAX, or more than half of the attempt's, names nobody: what happens to so
 * many at one time has a cause that they share. Nor does it where not all of it is known: a source had more than it tells,
 * or the attempt's room for evidence is used up.  One node always may be named. */

#include "controlplane/domain/policy.h"

/* Peers of a node that is gone notice by a timeout of their own, of half an hour where somebody has raised it; node logs are
 * stamped by the nodes' clocks, the end by the scheduler's, progress by ours. */
#define NODEFAULT_BEFORE_US  (1800 * 1000000LL)
#define NODEFAULT_AFTER_US   (60 * 1000000LL)
#define NODEFAULT_SKEW_US    (60 * 1000000LL)
#define NODEFAULT_NODES_MAX  8
#define NODEFAULT_WEIGHT_MIN 60 /* what our sources give to a fault in a node log */
/* The kind of evidence by which a source says that it has more about the nodes than it tells. */
#define NODEFAULT_KIND_MORE  "node-log-more"

struct nodefault {
    char *nodes;              /* host list that is blamed; NULL for none */
    const char *fault_class;  /* of the weightiest; borrowed */
    const char *shared;       /* why nobody is blamed although something counts; NULL: that is not so */
    uint32_t n_nodes;         /* that what counts names, blamed or not */
    const struct evidence *by[ATTEMPT_MAX_EVIDENCE]; /* what counts, the weightiest first, then what is nearest to the end; borrowed */
    uint32_t n_by;
    bool observed; /* not all that blames is attributions: somebody saw something */
    bool oom; /* memory ran out: the rest means nothing */
};

/* Fills @ret (release with nodefault_done). @now_us is of the event; it counts as the end of an attempt that still runs. */
void nodefault_find(const struct attempt *a, const struct policy *p, int64_t now_us, struct nodefault *ret);
void nodefault_done(struct nodefault *nf);

/* When it was, as near to @end_us as any of it: of what goes on not the first part counts but the last before the end. */
int64_t nodefault_at_us(const struct evidence *e, int64_t end_us);

/* Faults of this class are a node's own, and another node does not have them. */
bool nodefault_class(const char *fault_class);
/* It is believed and names what can count; whether it is of the right time is another matter. */
bool nodefault_believed(const struct evidence *e, const struct policy *p);
/* An end like @a's is explained by a fault of a node: not one that memory, somebody or the program's own success explains. */
bool nodefault_may_explain(const struct attempt *a);

#endif
