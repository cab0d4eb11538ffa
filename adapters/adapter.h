/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_ADAPTERS_ADAPTER_H
#define ADV_ADAPTERS_ADAPTER_H

/* The one contract between the agent and a scheduler. An adapter reads (describe, observe, nodes, inspect) and does
 * one verb to one job (act). It knows the scheduler's habits and nothing of policy; who may do what is asked of the
 * host right before each write.
 *
 * Three facts are never mixed: the command was accepted, the wanted state was observed, and neither is known. A list
 * that may be incomplete is UNKNOWN, never empty. Doing nothing is always an allowed answer.
 *
 * Every operation is asynchronous: its callback is called exactly once, never from inside the call that started it,
 * on the loop thread. Nothing here blocks. Operations may be repeated: a verb whose effect is already there answers
 * ALREADY_SATISFIED and sends nothing.
 *
 * Text from a scheduler is bytes: it may hold newlines or invalid UTF-8. NUL ends it. Ids are written as people write
 * them: "123", "46_5" (array task), "56" (a heterogeneous job, whose components are "56+0", "56+1"; no verb takes one of these).
 *
 * Thread: loop thread for everything in this header. */

#include <stdint.h>

#include "common/err.h"

#define ADAPTER_OPS_VERSION 3
#define ADAPTER_ID_SIZE     32 /* "4294967295_4294967295" and its NUL */

/* ---- what a scheduler shows ------------------------------------------------------------------------------------ */

enum adapter_job_state {
    ADAPTER_JOB_UNKNOWN_STATE = 0, /* not understood, or (while completing) not visible */
    ADAPTER_JOB_PENDING,
    ADAPTER_JOB_CONFIGURING,
    ADAPTER_JOB_RUNNING,
    ADAPTER_JOB_SUSPENDED,
    ADAPTER_JOB_STOPPED,
    ADAPTER_JOB_COMPLETED,
    ADAPTER_JOB_CANCELLED,
    ADAPTER_JOB_FAILED,
    ADAPTER_JOB_TIMEOUT,
    ADAPTER_JOB_OUT_OF_MEMORY,
    ADAPTER_JOB_NODE_FAIL,
    ADAPTER_JOB_BOOT_FAIL,
    ADAPTER_JOB_PREEMPTED,
    ADAPTER_JOB_DEADLINE,
    ADAPTER_JOB_REQUEUED,
    ADAPTER_JOB_REQUEUE_HOLD,
    ADAPTER_JOB_SPECIAL_EXIT,
    ADAPTER_JOB_REVOKED,
    ADAPTER_JOB_STATE_MAX_,
};

#define ADAPTER_STATE_BIT(state) (1u << (state))

/* "FAILED"; static text. */
const char *adapter_job_state_name(enum adapter_job_state state);
/* True for states after which the attempt no longer runs nor waits (COMPLETED, CANCELLED, FAILED, ...). */
bool adapter_job_state_ended(enum adapter_job_state state);

struct adapter_exit {
    bool known;
    int code;   /* 0..255 */
    int signal; /* 0: not by a signal */
};

/* One job as the bulk observation shows it. Strings are never NULL and belong to the observation or detail.
 *
 * A heterogeneous job is one job, under its leader's number ("56"): `nodes` and `node_count` are those of all components,
 * and it is completing as long as not all of them have ended. The rest is the leader's. */
struct adapter_job {
    char id[ADAPTER_ID_SIZE];
    uint32_t raw_id;    /* the scheduler's record number; for the last task of an array it equals array_id */
    uint32_t array_id;  /* 0: not of an array */
    int64_t array_task; /* -1: none */
    uint32_t het_id;    /* leader's id; 0: not heterogeneous */
    int32_t het_offset; /* -1: none; 0 is the leader, which speaks for all */
    enum adapter_job_state state; /* end or base state; UNKNOWN_STATE while completing hides it */
    bool completing;
    const char *state_text; /* as printed */
    uint32_t restart_count;
    bool requeueable;
    bool batch;
    struct adapter_exit exit;
    int64_t submit_s, eligible_s, start_s, end_s; /* unix seconds by the scheduler's clock; 0: unset */
    uint64_t priority;
    bool held;             /* pending and not to be started until released */
    bool held_by_requeue;  /* held, and the scheduler says: since it was requeued into hold */
    const char *reason;
    const char *nodes; /* compressed host list; "" when none */
    const char *user;
    uint32_t uid;
    const char *account, *partition, *qos;
    uint32_t node_count; /* allocated, or the least asked for */
    const char *dependency; /* what it waits for, in the scheduler's own syntax; "" when nothing */
};

/* One component of a heterogeneous job, the leader's own included. */
#define ADAPTER_PARTS_MAX 128
struct adapter_part {
    char id[ADAPTER_ID_SIZE]; /* "56+1" */
    enum adapter_job_state state;
    bool completing;
    bool requeueable;
    uint32_t restart_count;
    int64_t submit_s, eligible_s;
    uint32_t node_count;
    const char *nodes, *partition, *features, *reservation, *excluded_nodes, *required_nodes;
};

/* One job in full. Everything is owned by it. */
struct adapter_job_detail {
    struct adapter_job job;
    const char *name;
    const char *comment;
    const char *workdir;
    const char *stdout_path; /* patterns resolved; "" when unknown */
    const char *stderr_path; /* "" when unknown; equals stdout_path when joined */
    const char *stdout_pattern; /* as submitted; "" where the scheduler shows only the result */
    const char *excluded_nodes; /* compressed host list */
    const char *required_nodes;
    const char *features;    /* what the job asks of nodes, in the scheduler's own syntax; "" when nothing */
    const char *reservation; /* "" when none */
    int64_t time_limit_s; /* 0: unknown, -1: none */
    struct adapter_part *parts; /* components of a heterogeneous job, in the order of their offsets; n_parts 0: not one */
    size_t n_parts;
    void *priv_;
};

struct adapter_job_detail *adapter_job_detail_free(struct adapter_job_detail *d);
ADV_DEFINE_CLEANUP(adapter_job_detail, adapter_job_detail_free);

enum adapter_node_base {
    ADAPTER_NODE_UNKNOWN = 0,
    ADAPTER_NODE_IDLE,
    ADAPTER_NODE_MIXED,
    ADAPTER_NODE_ALLOCATED,
    ADAPTER_NODE_DOWN,
    ADAPTER_NODE_FUTURE,
};
enum adapter_node_flag {
    ADAPTER_NODE_DRAIN = 1 << 0,
    ADAPTER_NODE_FAIL = 1 << 1,
    ADAPTER_NODE_MAINT = 1 << 2,
    ADAPTER_NODE_RESERVED = 1 << 3,
    ADAPTER_NODE_NOT_RESPONDING = 1 << 4,
    ADAPTER_NODE_COMPLETING = 1 << 5,
    ADAPTER_NODE_POWERED_DOWN = 1 << 6, /* usable: the scheduler will boot it */
    ADAPTER_NODE_REBOOT = 1 << 7,
    ADAPTER_NODE_PLANNED = 1 << 8,
};

struct adapter_node {
    const char *name;
    const char *state_text;
    enum adapter_node_base base;
    unsigned flags;
    const char *reason;     /* free text of an administrator, bytes; "" when none */
    const char *partitions; /* comma separated */
    const char *features;   /* comma separated */
};

/* May a new job be started there, now or after what runs there ends? */
bool adapter_node_usable(const struct adapter_node *n);

/* ---- results of reading ---------------------------------------------------------------------------------------- */

enum adapter_sight {
    ADAPTER_SIGHT_UNKNOWN = 0,
    ADAPTER_SIGHT_FULL,    /* all jobs of the cluster are shown to us */
    ADAPTER_SIGHT_PARTIAL, /* others' jobs are hidden from us */
};
enum adapter_privilege {
    ADAPTER_PRIVILEGE_UNKNOWN = 0,
    ADAPTER_PRIVILEGE_NONE,
    ADAPTER_PRIVILEGE_OPERATOR, /* may control others' jobs */
    ADAPTER_PRIVILEGE_ADMIN,
};

enum adapter_verb {
    ADAPTER_VERB_PRESERVE = 0,     /* keep an ended job from being forgotten: back in the queue, held */
    ADAPTER_VERB_INTERRUPT,        /* stop a running job, back in the queue, held; never touches an ended one */
    ADAPTER_VERB_MAKE_REQUEUEABLE, /* let a live job be requeued later */
    ADAPTER_VERB_CONSTRAIN,        /* set the nodes to avoid and an early start on a waiting job */
    ADAPTER_VERB_RELEASE,          /* open our hold */
    ADAPTER_VERB_CANCEL,
    ADAPTER_VERB_REARM_CHILD,      /* give a waiting job its dependencies on a requeued one back, all of its list */
    ADAPTER_VERB_MAX_,
};
#define ADAPTER_VERB_BIT(verb) (1u << (verb))
const char *adapter_verb_name(enum adapter_verb verb); /* "preserve"; static text */

struct adapter_description {
    const char *scheduler; /* "slurm" */
    const char *version;
    const char *cluster;
    unsigned verbs; /* ADAPTER_VERB_BIT set of what this adapter can do here */
    enum adapter_privilege privilege;
    enum adapter_sight sight;
    bool accounting;       /* history can be asked for */
    int64_t forget_after_s; /* an ended job is forgotten after this; 0: unknown */
};

/* A list of all jobs. Absence of a single job from a complete observation is a hint: ask inspect before believing. */
struct adapter_observation {
    bool complete; /* false: UNKNOWN; jobs must not be used to conclude that something is absent */
    const char *unknown_reason; /* bounded text: "unavailable", "partial_sight", "mass_disappearance", "malformed" */
    struct adapter_job *jobs;
    size_t n_jobs;
    int64_t read_wall_us; /* when the read was begun */
    struct adv_err err;   /* details when not complete */
    void *priv_;
};
struct adapter_observation *adapter_observation_free(struct adapter_observation *o);
ADV_DEFINE_CLEANUP(adapter_observation, adapter_observation_free);

struct adapter_node_list {
    bool complete;
    struct adapter_node *nodes;
    size_t n_nodes;
    struct adv_err err;
    void *priv_;
};
struct adapter_node_list *adapter_node_list_free(struct adapter_node_list *l);
ADV_DEFINE_CLEANUP(adapter_node_list, adapter_node_list_free);

enum adapter_found {
    ADAPTER_FOUND_UNKNOWN = 0, /* err says why */
    ADAPTER_FOUND,
    ADAPTER_FOUND_GONE, /* the scheduler answered, we may see all jobs, and it has no such job */
};

/* What accounting remembers of an attempt that the scheduler itself has forgotten. */
enum adapter_past {
    ADAPTER_PAST_UNKNOWN = 0, /* accounting was not to be asked, or does not tell the end (yet) */
    ADAPTER_PAST_ENDED,
    ADAPTER_PAST_NONE, /* it answered, and knows no such attempt */
};
#define ADAPTER_HISTORY_MAX 40 /* attempts of one question */

struct adapter_attempt_id {
    char id[ADAPTER_ID_SIZE];
    int64_t submit_s; /* of the attempt, as the scheduler showed it */
};
struct adapter_end { /* the rest is set where it ENDED */
    enum adapter_past found;
    enum adapter_job_state state;
    const char *state_text; /* "CANCELLED by 1000" */
    struct adapter_exit exit;
    int64_t start_s, end_s; /* 0: not known */
    const char *nodes;      /* compressed host list; "" when none */
    bool canceller_known;
    uint32_t canceller_uid; /* who cancelled it */
};

/* ---- acting ---------------------------------------------------------------------------------------------------- */

struct adapter_action {
    enum adapter_verb verb;
    const char *id;
    const char *tag; /* stands in each log line this action causes */

    /* The attempt meant. Compared with a fresh read right before the write. For PRESERVE and INTERRUPT this is the
     * attempt to end; for CONSTRAIN and RELEASE the waiting successor. */
    int64_t expect_submit_s; /* the scheduler's submit time of that attempt; must be known */
    uint32_t expect_restarts;
    unsigned allowed_states; /* ADAPTER_STATE_BIT set; 0: the verb's own set. Can only narrow the verb's set. */

    /* CONSTRAIN. What we added earlier is @excluded of the last result, together with @exclude of any later CONSTRAIN
     * whose outcome is not known; what is in the job and in neither list is the user's. */
    const char *const *exclude; /* nodes we want avoided */
    size_t n_exclude;
    const char *const *exclude_before; /* what we added earlier; those no longer in @exclude are taken out again */
    size_t n_exclude_before;

    /* CANCEL: only a job that waits in the hold that a requeue made. Who was released, by whomever, is not cancelled. */
    bool only_in_hold;

    /* REARM_CHILD: the job that failed and was requeued, and must be seen waiting as this attempt; what the child's list was before
     * that failure, "" or NULL: not known; only told, never written. */
    const char *parent;
    uint32_t parent_restarts;
    const char *dependency_before;

    /* RELEASE, CONSTRAIN: when set, a differing comment is a person's sign and stops us. */
    const char *expect_comment;

    int deadline_ms; /* for the whole action; 0: the adapter's default */
};

enum adapter_command {
    ADAPTER_COMMAND_NOT_SENT = 0,
    ADAPTER_COMMAND_ACCEPTED,
    ADAPTER_COMMAND_REFUSED,
    ADAPTER_COMMAND_TIMED_OUT, /* no clear answer: it may have been carried out, or still be */
};
enum adapter_observed {
    ADAPTER_OBSERVED_UNKNOWN = 0,
    ADAPTER_OBSERVED_YES,
    ADAPTER_OBSERVED_NO, /* and can no longer come from this command */
};
enum adapter_reason {
    ADAPTER_REASON_OK = 0,
    ADAPTER_REASON_ALREADY_SATISFIED,
    ADAPTER_REASON_CONFLICT_USER_ACTION,
    ADAPTER_REASON_ATTEMPT_SUPERSEDED,
    ADAPTER_REASON_GONE,
    ADAPTER_REASON_ID_REUSED,
    ADAPTER_REASON_CANCELLED_BY_USER,
    ADAPTER_REASON_COMPLETED,
    ADAPTER_REASON_COMPLETING_WAIT, /* ask again once completing has ended */
    ADAPTER_REASON_FORBIDDEN,
    ADAPTER_REASON_UNAVAILABLE, /* may be asked again */
    ADAPTER_REASON_NOT_REQUEUEABLE,
    ADAPTER_REASON_NOT_BATCH,
    ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE,
    ADAPTER_REASON_INVALID,
    ADAPTER_REASON_LEASE_LOST, /* the host did not authorize the write */
    ADAPTER_REASON_WRONG_STATE,
    ADAPTER_REASON_MAX_,
};
enum adapter_tristate { ADAPTER_MAYBE = 0, ADAPTER_YES, ADAPTER_NO };

const char *adapter_command_name(enum adapter_command c);
const char *adapter_observed_name(enum adapter_observed o);
const char *adapter_reason_name(enum adapter_reason r); /* "already_satisfied" */

struct adapter_result {
    enum adapter_command command;
    enum adapter_observed observed;
    enum adapter_reason reason;
    /* PRESERVE, INTERRUPT that were observed: did the command bring back a job that a person had cancelled or that
     * had completed? YES: put it right with CANCEL (expectation: @after) and raise an incident. MAYBE: somebody acted
     * between read and write and accounting no longer tells what; raise an incident, and leave the job held. */
    enum adapter_tristate revived_wrongly;
    const struct adapter_job_detail *before; /* the read the decision was made on; NULL when there was none */
    const struct adapter_job_detail *after;  /* the last read after the command; NULL when there was none */
    const char *const *notes;                /* for people: "node x9 is not in the cluster: dropped" */
    size_t n_notes;
    const char *const *excluded; /* CONSTRAIN: the entries that are ours in the job now; record them */
    size_t n_excluded;
    struct adv_err err; /* what a tool said, when there is more to say */
};

/* ---- the host's side ------------------------------------------------------------------------------------------- */

enum adapter_run_end {
    ADAPTER_RUN_EXITED = 0,
    ADAPTER_RUN_SIGNALED,
    ADAPTER_RUN_TIMED_OUT,   /* deadline or kill_at reached; the child was killed */
    ADAPTER_RUN_NOT_STARTED, /* nothing ran */
    ADAPTER_RUN_OVERFLOW,    /* more output than allowed; the child was killed */
};

struct adapter_run_opts {
    const char *const *env;   /* the whole environment, "K=V", NULL ended; NULL: the host's own */
    int deadline_ms;          /* must be > 0 */
    int64_t kill_at_boot_us;  /* 0: none; no child of this call lives beyond it */
    size_t max_output_bytes;  /* of stdout; stderr is cut at 64 KiB */
};

struct adapter_run_result {
    enum adapter_run_end end;
    int exit_code; /* EXITED */
    const char *out; /* NUL-terminated, borrowed for the callback */
    size_t out_len;
    const char *err;
    size_t err_len;
    int64_t took_us;
};

typedef void (*adapter_run_cb)(void *arg, const struct adapter_run_result *res);
typedef void (*adapter_timer_cb)(void *arg);

/* Runs commands and timers: on this host, on another one, or from a script in tests. */
struct adapter_runner;
struct adapter_runner_ops {
    const char *name;
    /* Calls @cb exactly once, later. argv and opts are copied. */
    void (*run)(struct adapter_runner *r, const char *const argv[], const struct adapter_run_opts *opts,
                adapter_run_cb cb, void *arg);
    void (*after)(struct adapter_runner *r, int delay_ms, adapter_timer_cb cb, void *arg);
    int64_t (*mono_us)(struct adapter_runner *r);
    int64_t (*wall_us)(struct adapter_runner *r);
    /* Ends what runs; outstanding callbacks are called (TIMED_OUT; timers: as if due) before it returns. */
    void (*free)(struct adapter_runner *r);
};
struct adapter_runner {
    const struct adapter_runner_ops *ops;
};

/* One scheduler write, about to happen. */
struct adapter_write {
    const struct adapter_action *action;
    const struct adapter_job_detail *before;
    const char *const *argv;
    int landing_bound_ms; /* after this long since its start the command can no longer take effect */
    int deadline_ms;      /* of the command itself */
};
typedef void (*adapter_authorize_cb)(void *arg, bool allowed, int64_t kill_at_boot_us);

enum adapter_log_level { ADAPTER_LOG_DEBUG, ADAPTER_LOG_INFO, ADAPTER_LOG_WARNING };

struct adapter_host {
    void *ctx;
    struct adapter_runner *runner;
    /* Called after the fresh read and the guards, right before EACH write: journal the intent, check lease, ceiling,
     * budget and the job's comment, then answer through @cb, at once or later (once). Not allowed = NOT_SENT. */
    void (*authorize)(void *ctx, const struct adapter_write *w, adapter_authorize_cb cb, void *arg);
    void (*log)(void *ctx, enum adapter_log_level level, const char *line); /* may be NULL */
};

/* An adapter_host.log that writes to the program's log, topic "adapter". */
void adapter_host_log(void *ctx, enum adapter_log_level level, const char *line);

/* ---- the adapter ----------------------------------------------------------------------------------------------- */

struct adapter;
/* @d is NULL when the scheduler could not be asked; @err says why. Borrowed for the callback. */
typedef void (*adapter_describe_cb)(void *arg, const struct adapter_description *d, const struct adv_err *err);
/* The callback owns @o, @l, @d. */
typedef void (*adapter_observe_cb)(void *arg, struct adapter_observation *o);
typedef void (*adapter_nodes_cb)(void *arg, struct adapter_node_list *l);
typedef void (*adapter_inspect_cb)(void *arg, enum adapter_found found, struct adapter_job_detail *d,
                                   const struct adv_err *err);
/* One of @ends for each attempt asked about, borrowed for the callback; all UNKNOWN where @err is set. */
typedef void (*adapter_history_cb)(void *arg, const struct adapter_end *ends, size_t n, const struct adv_err *err);
/* @res is borrowed for the callback. */
typedef void (*adapter_act_cb)(void *arg, const struct adapter_result *res);

struct adapter_ops {
    const char *name;
    int version; /* ADAPTER_OPS_VERSION */
    void (*describe)(struct adapter *a, adapter_describe_cb cb, void *arg);
    void (*observe)(struct adapter *a, adapter_observe_cb cb, void *arg);
    void (*nodes)(struct adapter *a, adapter_nodes_cb cb, void *arg);
    void (*inspect)(struct adapter *a, const char *id, adapter_inspect_cb cb, void *arg);
    /* @attempts is copied; at most ADAPTER_HISTORY_MAX. */
    void (*history)(struct adapter *a, const struct adapter_attempt_id *attempts, size_t n, adapter_history_cb cb, void *arg);
    /* How many times longer than usual the host should wait between looks that nothing depends on: 1 while the scheduler
     * answers well, more while it is slow or refuses. */
    unsigned (*pace)(const struct adapter *a);
    /* Does @dependency of @child name @parent's end (both ids)? Pure. NULL: the scheduler has no such thing. */
    bool (*depends)(const char *dependency, const char *parent, const char *child);
    /* @action is copied. */
    void (*act)(struct adapter *a, const struct adapter_action *action, adapter_act_cb cb, void *arg);
    /* Starts no more commands. Outstanding callbacks still come (UNAVAILABLE, or what their running command says);
     * the memory goes with the last of them. Free the adapter before its runner. */
    void (*free)(struct adapter *a);
};
struct adapter {
    const struct adapter_ops *ops;
};

static inline struct adapter *adapter_free(struct adapter *a)
{
    if (a)
        a->ops->free(a);
    return NULL;
}

#endif
