/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_REPLAY_REPLAY_H
#define ADV_REPLAY_REPLAY_H

/* Judges a log offline: the bytes go through the scan (watcher/), its findings through the events of report.h into a
 * fleet of one cluster and one job, and time is let pass until the domain has decided. All of it is the code that advisord
 * runs; what is made up is only the scheduler around it (see replay_options).
 *
 * Thread: the thread of the rule set.  Blocks: no (it computes). */

#include "controlplane/domain/model.h"
#include "controlplane/watcher/watcher.h"

/* What the log led to, as it happened. @line is 1 for the first; 0: not of a line (the end of the attempt, time). */
struct replay_step {
    size_t line;
    const struct watcher_finding *finding; /* NULL for what the domain did */
    const char *verb, *detail;             /* of the audit event, of what the domain did */
};
typedef void (*replay_step_fn)(void *ctx, const struct replay_step *step);

struct replay_options {
    struct watcher_rules *rules;
    enum watcher_scope stream; /* what the log is */
    const char *node;          /* host of a node log; or NULL */
    /* Hosts of the attempt. NULL: all that findings name or that print lines, and others besides, so that no name is taken
     * for the attempt's by luck and none is left out as foreign. */
    const char *nodes;
    bool progressed; /* the log is a piece: the attempt had shown progress before it begins */
    /* How the attempt ended. JOB_UNKNOWN: it ends in failure if a fault that ends a process stands at the end of the log,
     * and otherwise runs on in silence. */
    enum job_state state;
    replay_step_fn fn; /* or NULL */
    void *ctx;
};

#define REPLAY_REASONS ADVICE_MAX_REASONS

struct replay_verdict {
    bool anomaly; /* something is wrong with the attempt: the rest of this block is about it */
    enum anomaly_kind kind;
    char fault_class[32];
    char rule[96]; /* "" when only the scheduler's state says so */
    enum retryable retryable;
    bool stands; /* of a running attempt: it is suspected, and too little is known to do anything about it */
    bool on_purpose; /* ended by a person, a limit or the scheduler: the class says by which, and nothing is wrong */
    char *nodes; /* host list of those blamed; NULL for none. Owned. */
    char *ranks; /* owned */
    char excerpt[WATCHER_EXCERPT_SIZE];
    size_t line;

    enum desired_state desired; /* NO_ACTION or RESTARTED; NO_ACTION when nothing was decided */
    bool interrupts;            /* a running attempt */
    bool user_fault;            /* it would fail again in the same way: its owner is told */
    char *exclude_nodes;        /* owned */
    char *summary;              /* owned; NULL when nothing was decided */
    /* Where nothing is wrong with the attempt: what its log has for the administrators (the weightiest notice); "" and NULL
     * for nothing. Nothing is done about it. */
    char notice_class[32];
    char notice_rule[96];
    bool notice_hang; /* something stands still */
    char *notice_nodes; /* owned */
    size_t n_consequences;      /* further faults in the log, of less weight */
    struct watcher_scan_stats stats;
};

/* Errors: -ADV_RESOURCE_EXHAUSTED; -ADV_INVALID_ARGUMENT (@nodes is no host list). Owner of @ret: caller,
 * replay_verdict_done(). */
adv_must_check int replay_run(const struct replay_options *o, const char *bytes, size_t len, struct replay_verdict *ret,
                              struct adv_err *err);
void replay_verdict_done(struct replay_verdict *v);

/* The word for people: RESTART_EXCLUDING_NODES, RESTART, TERMINATE (its owner has to mend it) or NO_ACTION. Static. */
const char *replay_outcome(const struct replay_verdict *v);
/* "crash", "hang", "straggler" or "none". Static. */
const char *replay_kind(const struct replay_verdict *v);

ADV_DEFINE_DONE(replay_verdict, replay_verdict_done);

#endif
