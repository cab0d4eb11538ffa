/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_DECIDE_H
#define CONTROLPLANE_DOMAIN_DECIDE_H

/* The decision: what should happen next to an attempt that ended (or is confirmed stuck). Pure and total: the same
 * history, evidence and policy give the same answer, whatever the order in which they arrived.
 *
 *  end state          evidence                                   desired     when
 *  COMPLETED          any                                        NO_ACTION   at once
 *  CANCELLED          any                                        NO_ACTION   at once
 *  PREEMPTED, REQUEUED, REVOKED, DEADLINE, SPECIAL_EXIT          NO_ACTION   at once
 *  TIMEOUT            any                                        NO_ACTION   at once
 *  failed, running    class user_cancel, time_limit, preemption  NO_ACTION   after log_settle: somebody wanted it
 *  failed, running    any, after the program said it was done    NO_ACTION   after log_settle
 *  failed             class not retryable (user fault)           NO_ACTION   after log_settle
 *  failed             retryable, nodes of the attempt blamed     RESTARTED   after log_settle, without them
 *  failed             retryable or maybe, no node blamed         RESTARTED   after shared_cause_window
 *  failed             none; progress seen or ran long enough     RESTARTED   after fallback_delay + window, once
 *  failed             none; died at the start                    NO_ACTION   after fallback_delay
 *  failed             any, the scheduler forgot the job          NO_ACTION   after log_settle
 *  failed             any, ended longer ago than advice is valid NO_ACTION   at once
 *  failed             no rule's, or retryable and no node blamed; RESTARTED  after log_settle, without them
 *                     but evidence blames some (nodefault.h)
 *  running            confirmed by grace                         RESTARTED   (may_interrupt), without nodes that evidence blames
 *  running            slow for 30 min, and a restart pays        RESTARTED   (may_interrupt; restart.stragglers), once
 *  running            the same, and others are slow, too         NO_ACTION   a cause that they share is likelier
 *  running            none (withdrawn by progress)               NO_ACTION   at once
 *  failed             undecided at a third of the time that the scheduler keeps it: keep.h
 * Evidence about nodes changes which nodes are left out, how long is waited, and whether an end that nothing else explains is known;
 * where the log names nodes itself it is told beside them. It never changes what is not retryable, was wanted, or was finished.
 * Nodes that people exclude (exclusions) are left out by every RESTARTED besides those that the evidence blames.
 * RESTARTED falls back to NO_ACTION on: too few nodes left, more exclusions than an agent takes, restart limit, same signature again on other nodes without a new checkpoint,
 * no new checkpoint in N attempts, not requeueable, not a batch job. */

#include "controlplane/domain/policy.h"

/* An agent takes no longer list of excluded nodes (agent_service.options: AdviceOrder.exclude_nodes). */
#define DECIDE_EXCLUDE_TEXT_MAX 4095

struct decision {
    enum desired_state desired;
    enum actionability actionability;
    char *exclude_nodes;
    char *people_nodes; /* of them: those that only people exclude */
    struct advice_reason reasons[ADVICE_MAX_REASONS];
    uint32_t n_reasons;
    char *summary;
    const struct anomaly *anomaly; /* that it rests on; NULL for none */
    bool may_interrupt;
    bool node_named;       /* something blames a node of the attempt */
    int64_t not_before_us; /* 0: now; else decide again then (more evidence may come) */
    bool oom;              /* memory ran out: the rest means nothing */
};

void decision_done(struct decision *d);

/* A word that the rules have for a class of faults, "unknown" included. */
bool fault_class_known(const char *fault_class);

/* Terminal before hints, then precedence; among what ranks print when a peer is gone (precedence 30..63) the first that was
 * seen, whatever its precedence; then whether nodes are named, then where it stands in the log. A total order over anomalies
 * of different rules. */
bool anomaly_weightier(const struct anomaly *a, const struct anomaly *b);

/* Its class says that somebody, or the scheduler, wanted the end. */
bool anomaly_on_purpose(const struct anomaly *an);

/* The weightiest anomaly that is not withdrawn; NULL for none. Where only symptoms are left and the first thing that was seen
 * is that somebody ended a step, it is that. */
const struct anomaly *decide_best_anomaly(const struct attempt *a);

/* @now_us is the time of the event. Fills @ret (release with decision_done). */
void decide_attempt(const struct attempt *a, const struct policy *p, int64_t now_us, struct decision *ret);

#endif
