/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_MODEL_H
#define CONTROLPLANE_DOMAIN_MODEL_H

/* The nouns of the product as plain structs: clusters, nodes, jobs, attempts, anomalies, advice, actions.
 *
 * Enum numbers equal those of proto/advisor/v1/types.proto (asserted at compile time in controlplane/shapes), so that
 * conversion is a cast. Strings are heap copies owned by their struct, NULL meaning empty; str_or() reads them.
 * Points in time are wall-clock microseconds (`_us`), except the scheduler's own (`_unix`, seconds by its clock).
 *
 * Owner: everything hangs below one `struct fleet` (fleet.h) and belongs to the loop thread. */

#include <stdbool.h>
#include <stdint.h>

#include "common/hash.h"

#include "common/hostlist.h"
#include "controlplane/domain/order.h"

enum adv_mode { MODE_UNSET = 0, MODE_OFF = 1, MODE_OBSERVE = 2, MODE_APPROVE = 3, MODE_ACT = 4 };

enum job_state {
    JOB_UNKNOWN = 0,
    JOB_PENDING = 1,
    JOB_CONFIGURING = 2,
    JOB_RUNNING = 3,
    JOB_SUSPENDED = 4,
    JOB_COMPLETING = 5,
    JOB_COMPLETED = 6,
    JOB_FAILED = 7,
    JOB_TIMEOUT = 8,
    JOB_OUT_OF_MEMORY = 9,
    JOB_NODE_FAIL = 10,
    JOB_BOOT_FAIL = 11,
    JOB_CANCELLED = 12,
    JOB_PREEMPTED = 13,
    JOB_SPECIAL_EXIT = 14,
    JOB_DEADLINE = 15,
    JOB_REVOKED = 16,
    JOB_REQUEUED = 17,
    JOB_STATE_LAST_ = JOB_REQUEUED
};

enum cancelled_by { CANCELLED_BY_UNKNOWN = 0, CANCELLED_BY_OWNER = 1, CANCELLED_BY_ADVISOR = 2, CANCELLED_BY_OTHER = 3 };
enum telemetry_state { TELEMETRY_UNSET = 0, TELEMETRY_COMPLETE = 1, TELEMETRY_PARTIAL = 2, TELEMETRY_LOST = 3 };
enum anomaly_kind { ANOMALY_KIND_UNSET = 0, ANOMALY_CRASH = 1, ANOMALY_HANG = 2, ANOMALY_STRAGGLER = 3 };
enum anomaly_status { ANOMALY_STATUS_UNSET = 0, ANOMALY_SUSPICION = 1, ANOMALY_CONFIRMED = 2, ANOMALY_WITHDRAWN = 3 };
enum desired_state {
    DESIRED_UNSET = 0,
    DESIRED_NO_ACTION = 1,
    DESIRED_RESTARTED = 2,
    DESIRED_TERMINATED = 3,
    DESIRED_PLACEMENT = 4,
    DESIRED_DAG_RELEASED = 5,
    DESIRED_REQUEUEABLE = 6,
    DESIRED_PRESERVED = 7
};
/* What the job's comment says about it while it runs with requeueing switched off. */
enum make_requeueable { MAKE_REQUEUEABLE_UNSAID = 0, MAKE_REQUEUEABLE_YES = 1, MAKE_REQUEUEABLE_NO = 2 };
enum actionability { ACTIONABILITY_UNSET = 0, ACTION_SHADOW = 1, ACTION_NEEDS_APPROVAL = 2, ACTION_ACTIONABLE = 3 };
enum disposition {
    DISPOSITION_UNSET = 0,
    DISPOSITION_PENDING = 1,
    DISPOSITION_CONVERGED = 2,
    DISPOSITION_ABANDONED = 3,
    DISPOSITION_SUPERSEDED = 4
};
enum agent_state {
    AGENT_UNSET = 0,
    AGENT_NEVER_SEEN = 1,
    AGENT_CONNECTED = 2,
    AGENT_RESYNCING = 3,
    AGENT_UNREACHABLE = 4,
    AGENT_SCHEDULER_UNAVAILABLE = 5
};
enum retryable { RETRYABLE_MAYBE = 0, RETRYABLE_YES = 1, RETRYABLE_NO = 2 };
enum command_result { COMMAND_UNSET = 0, COMMAND_ACCEPTED = 1, COMMAND_REFUSED = 2, COMMAND_TIMED_OUT = 3, COMMAND_NOT_SENT = 4 };
enum observed { OBSERVED_UNSET = 0, OBSERVED_YES = 1, OBSERVED_NO = 2, OBSERVED_UNKNOWN = 3 };
/* enum disposition_reason and verbs are carried as numbers of the proto: only few are named here. */
enum {
    REASON_UNSET = 0,
    REASON_EXPIRED = 3,
    REASON_ATTEMPT_SUPERSEDED = 4,
    REASON_JOB_GONE = 5,
    REASON_REJECTED = 9,
    REASON_MAINTENANCE = 15,
    REASON_MODE_TOO_LOW = 19,
    REASON_LAST_ = 19
};
enum { VERB_PRESERVE = 1, VERB_INTERRUPT = 2, VERB_MAKE_REQUEUEABLE = 3, VERB_CANCEL = 6 };

enum approval { APPROVAL_NONE = 0, APPROVAL_APPROVED = 1, APPROVAL_REJECTED = 2 };
enum verdict { VERDICT_NONE = 0, VERDICT_RIGHT = 1, VERDICT_WRONG = 2 };

/* What says, independently of its log, that an attempt stands still; see pulse.h. */
enum witness_kind {
    WITNESS_NONE = 0,
    WITNESS_DEVICE_IDLE,   /* power, SM or link activity of its devices; it has to be told again every few minutes */
    WITNESS_IO_STOPPED,    /* no bytes read or written; the same */
    WITNESS_WATCHDOG_LINE, /* somebody's watchdog spoke; a log line by a rule of kind hang is one by itself */
    WITNESS_RANKS_STOPPED, /* ranks stand behind the others, further than ever before */
    WITNESS_KIND_END_
};

/* Fencing number: (term, counter), term first. */
struct epoch {
    uint64_t term;
    uint64_t counter;
};
int epoch_cmp(struct epoch a, struct epoch b);

/* One resource of the fleet as the change log and the store see it. The numbers are stored: never reuse one. A kind may
 * refer to objects of lower numbers only, since they are loaded in this order. */
enum resource_kind {
    RESOURCE_NONE = 0,
    RESOURCE_CLUSTER = 1,
    RESOURCE_JOB = 2,
    RESOURCE_ATTEMPT = 3,
    RESOURCE_ANOMALY = 4,
    RESOURCE_ADVICE = 5,
    RESOURCE_ACTION = 6,
    RESOURCE_AUDIT = 7, /* a row of the audit log, not an object */
    RESOURCE_NODE = 8,
    RESOURCE_EXCLUSION = 9,
    RESOURCE_INCIDENT = 10,
    RESOURCE_WINDOW = 11,
    RESOURCE_EVIDENCE = 12,
    RESOURCE_POLICY = 13,
    RESOURCE_ENROLMENT = 14,
    RESOURCE_REVOCATION = 15,
    RESOURCE_CHECKPOINT = 16,
    RESOURCE_KIND_END_
};
/* Kinds that Watch shows to nobody: who was enrolled and refused is in the audit log. */
static inline bool resource_kind_hidden(enum resource_kind k)
{
    return k == RESOURCE_ENROLMENT || k == RESOURCE_REVOCATION;
}

/* A token with which an agent may come to its first certificate; of the token itself only the hash is known. */
struct enrolment {
    struct cluster *cluster; /* owner */
    char *uid;
    char *token_sha256;
    char *principal; /* who made it */
    int64_t create_us;
    int64_t expire_us;
    int64_t redeem_us;  /* 0: not used */
    char *key_sha256;   /* of the key that used it: that one may use it again */
    char *serial;       /* of the certificate that it gave last */
    bool voided;        /* by a revocation */
    bool reused;        /* shown again with another key */
    uint64_t revision;
    bool dirty;
    UT_hash_handle hh; /* cluster->enrolments, by uid */
};

/* Certificates that are refused. */
struct revocation {
    struct cluster *cluster; /* owner */
    char *uid;
    char *serial;      /* lower-case hex; NULL: all issued before before_us */
    int64_t before_us;
    char *reason;
    char *principal;
    int64_t create_us;
    uint64_t revision;
    bool dirty;
    UT_hash_handle hh; /* cluster->revocations, by uid */
};

/* The head of everything that hangs on a cluster by an id of its own, first member of each: exclusions, incidents,
 * maintenance windows, policies. Common work on them is in entries.h. */
struct entry {
    enum resource_kind kind;
    struct cluster *cluster; /* owner */
    char *uid;
    char *request_id; /* of the call that made it: a repeated call finds it again */
    uint64_t revision;
    bool dirty;
    int64_t due_us; /* when EV_TICK has to look at it; 0 = never. On the fleet's list while not 0 */
    struct entry *due_prev, *due_next;
    UT_hash_handle hh; /* cluster->entries[kind] by uid */
};

enum exclusion_state { EXCLUSION_NONE = 0, EXCLUSION_ACTIVE = 1, EXCLUSION_EXPIRED = 2, EXCLUSION_LIFTED = 3 };

/* A node that later recoveries avoid because a person said so. */
struct exclusion {
    struct entry e;
    char *node;
    char *reason;
    char *owner;
    enum exclusion_state state;
    int64_t create_us;
    int64_t expire_us; /* 0: until lifted */
    int64_t lift_us;
    char *lifted_by;
    char *lift_reason;
};

enum incident_kind { INCIDENT_NONE = 0, INCIDENT_JOB_REVIVED = 1, INCIDENT_STORE_BEHIND = 2, INCIDENT_AGENT_TWICE = 3 };

/* Something that a person should look at. */
struct incident {
    struct entry e;
    enum incident_kind kind;
    bool closed;
    char *summary;
    char *subject; /* resource name */
    uint32_t count;
    int64_t open_us;
    int64_t update_us;
    int64_t close_us;
    char *closed_by;
    char *close_reason;
};

enum window_state { WINDOW_NONE = 0, WINDOW_PLANNED = 1, WINDOW_OPEN = 2, WINDOW_OVER = 3 };

/* A time in which people work on the cluster. */
struct window {
    struct entry e;
    enum window_state state;
    int64_t start_us;
    int64_t end_us;
    char *reason;
    char *owner;
    int64_t create_us;
    char *ended_by; /* NULL: it ended by itself */
};

/* How far an audit chain had come when what lies before was removed. */
struct checkpoint {
    struct entry e;
    uint64_t seq;
    char *hash;
    int64_t record_us;
    char *signature; /* hex; NULL: there was no key */
    char *key_id;
    char *store_uuid;
};

/* One version of one policy; uid "<name>/<version, 10 digits>". Hangs on FLEET_CLUSTER. */
struct policy_doc {
    struct entry e;
    char *name;
    uint64_t version;
    char *document;
    char *document_sha256;
    char *owner;
    char *reason;
    int64_t create_us;
};

struct node {
    struct cluster *cluster; /* owner */
    char *name;
    char *state_raw;
    char *reason;
    bool available;
    uint64_t hash;
    bool seen_in_full; /* runtime */
    uint64_t revision;
    bool dirty;
    struct order_node by_name; /* cluster->nodes_in_order */
    UT_hash_handle hh;
};

/* Something wrong with an attempt. At most ATTEMPT_MAX_ANOMALIES each, the weightiest kept. */
struct anomaly {
    char *uid;
    struct attempt *attempt; /* owner */
    enum anomaly_kind kind;
    enum anomaly_status status;
    char *fault_class;
    char *rule;
    char *rules_version;
    enum retryable retryable;
    int32_t precedence; /* of the rule: root cause above consequence */
    bool terminal;      /* the line by itself means the process is about to die */
    char *named;        /* host list: what the text names; whether they are the attempt's shows later, perhaps */
    uint32_t blame;     /* enum finding_blame */
    char *nodes;        /* host list: the attempt's nodes that the evidence blames */
    char *ranks;        /* comma separated */
    char *stream;
    uint64_t offset;
    char *excerpt;
    char *excerpt_sha256;
    char *reporter; /* "watcher", "scheduler", or the principal of who reported it */
    bool reported;  /* by somebody outside */
    bool late;      /* reported when the attempt was judged or past: kept, and counted by nothing */
    int64_t observe_us;
    int64_t record_us;
    int64_t status_us;
    char *status_reason;
    uint64_t step_at;            /* last step seen when it was opened */
    uint32_t progress_after;     /* new steps seen since */
    uint32_t regained;           /* runtime: of them, those seen after the steps had fallen back */
    uint32_t sign_at;            /* runtime: signs of life before its newest line ... */
    int64_t line_mono_us;        /* runtime: ... and when that came, CLOCK_BOOTTIME */
    uint32_t repeats;            /* further lines of the same rule */
    uint64_t last_offset;        /* of the newest of them: an offset at or below it is read again, not news */
    uint64_t revision;
    bool dirty;
    struct anomaly *prev, *next; /* attempt's list */
};

/* Who a piece of evidence is from, as far as it matters for belief. Stored: never reuse a number. */
enum evidence_origin {
    EVIDENCE_OF_OUTSIDE = 0,  /* a detector, or the watcher's notices */
    EVIDENCE_OF_SOURCE = 1,   /* what our own sources read in node logs */
    EVIDENCE_OF_PROVIDER = 2, /* an attribution that we asked for; its weight is its confidence */
};

/* What somebody observed and what may explain an anomaly. At most ATTEMPT_MAX_EVIDENCE each attempt. nodefault.h says when a
 * decision rests on it. */
struct evidence {
    char *uid;
    struct attempt *attempt; /* owner */
    char *source;
    char *kind;
    int64_t window_start_us;
    int64_t window_end_us;
    char *nodes; /* host list */
    char *ranks; /* comma separated */
    uint32_t weight_percent;
    char *summary;
    char *excerpt_ref;
    char *excerpt_sha256;
    char *reporter;
    int64_t observe_us;
    int64_t record_us;
    char *request_id; /* of the call that made it */
    char *fault_class; /* of the fault that it shows; NULL: it shows none */
    char *rule;        /* by which that was found */
    enum evidence_origin origin;
    bool late;         /* from outside, when the attempt was judged or past; or an attribution that a later one corrects: kept, and
                        * no decision counts it */
    uint64_t revision;
    bool dirty;
    struct evidence *prev, *next; /* attempt's list, oldest first */
};

struct advice_reason {
    char *code;
    char *param;
    char *sentence;
};
#define ADVICE_MAX_REASONS 12

struct advice {
    struct attempt *attempt; /* owner */
    uint64_t generation;
    enum desired_state desired;
    enum actionability actionability;
    char *exclude_nodes; /* host list */
    char *people_nodes;  /* host list: those of them that only people exclude */
    struct advice_reason reasons[ADVICE_MAX_REASONS];
    uint32_t n_reasons;
    char *summary;
    uint64_t valid_for_ms;
    char *correlation_id;
    char *anomaly_uid;
    bool may_interrupt;
    bool preserve; /* the job is kept in our hold although this is not carried out yet */
    /* status as the agent reported it, for `observed_generation` */
    uint64_t observed_generation;
    enum disposition disposition;
    uint32_t disposition_reason;
    char *status_detail;
    int64_t status_us;
    int64_t create_us;
    int64_t update_us;
    /* what people said; each counts for its own generation only */
    enum approval approval;
    uint64_t approval_generation;
    char *approval_by;
    char *approval_reason;
    int64_t approval_us;
    enum verdict verdict;
    uint64_t verdict_generation;
    char *verdict_by;
    char *verdict_why;
    int64_t verdict_us;
    uint64_t order_rev; /* rises whenever an agent has to hear of it again */
    uint64_t revision;
    bool dirty;
    bool open;                  /* on the cluster's list of what agents may still have to do */
    struct advice *prev, *next; /* cluster's open list */
};

struct action {
    struct attempt *attempt; /* owner */
    char *journal_id;
    uint64_t journal_seq;
    uint64_t generation;
    struct epoch epoch;
    uint32_t verb;
    char *read_before;
    enum command_result command;
    enum observed observed;
    char *reason;
    char *detail;
    int64_t observe_us;
    int64_t record_us;
    int64_t outcome_us; /* 0: only the intent is known */
    uint64_t revision;
    bool dirty;
    struct action *prev, *next; /* attempt's list, oldest first */
};

struct milestones {
    int64_t first_suspicion_us;
    int64_t end_observed_us;
    int64_t anomaly_confirmed_us;
    int64_t advised_us;
    int64_t first_command_us;
    int64_t converged_us;
    int64_t successor_started_us;
    int64_t successor_productive_us;
    int64_t job_completed_us;
};

/* What became of the question that a provider of attributions is asked about an attempt, once in each phase. */
enum attribution_state { ATTRIBUTION_NOT_ASKED = 0, ATTRIBUTION_ASKED = 1, ATTRIBUTION_ANSWERED = 2, ATTRIBUTION_NONE = 3 };
enum attribution_phase { ATTRIBUTION_FAST = 1, ATTRIBUTION_SLOW = 2 };

#define ATTEMPT_MAX_ANOMALIES 8
#define ATTEMPT_MAX_NODES     65536
/* No list of that many names is longer: reaching it means that memory ran out. */
#define HOST_LIST_TEXT_MAX    (ATTEMPT_MAX_NODES * (ADV_HOST_NAME_MAX + 1))
#define ATTEMPT_MAX_ACTIONS   64
#define ATTEMPT_MAX_EVIDENCE  32

struct attempt {
    struct job *job; /* owner */
    uint32_t index;  /* the scheduler's restart count */
    enum job_state state;
    char *state_raw;
    uint32_t exit_code;
    uint32_t exit_signal;
    enum cancelled_by cancelled_by;
    char *nodes;
    int64_t submit_unix; /* of this attempt; 0: not seen */
    int64_t start_unix;
    int64_t end_unix;
    enum telemetry_state telemetry;
    char *telemetry_reason;
    uint64_t dropped_bytes; /* as the agent counts them, or @shed_bytes if that is more */
    uint64_t shed_bytes;    /* gaps in what arrived */
    int64_t shed_us;        /* the last of either; 0: none */
    int64_t shed_mono_us;   /* runtime: the same by CLOCK_BOOTTIME; 0: it was not here */
    bool shed_over;         /* runtime: and since long enough that what is heard now is all there is */
    char *source_fed;       /* the source of logs that lines of it came from; NULL: none */
    char *source_gap;       /* why what sources have of its log is not known; NULL: it is, or none was to tell */
    struct milestones ms;
    uint64_t last_step; /* of the run; where it shows none, the last number that rose */
    uint64_t last_checkpoint_step;
    uint64_t resumed_from_step;
    bool has_steps;            /* last_step is a step of the run */
    uint32_t checkpoints_seen; /* complete ones, also those whose step nobody said */
    int64_t rhythm_bound_us;   /* of its silence, as far as it was learned; 0: not known */
    struct pulse *pulse;       /* runtime: pulse.h; NULL until it is needed */
    uint32_t steps_seen; /* progress lines, and reports; 0 = nothing learned */
    uint32_t steps_reported; /* of them, by somebody outside: they say nothing of the log */
    int64_t last_progress_us;
    int64_t finished_us; /* the program said that its work is done, and no new step came after; 0: it did not */
    int64_t progress_stored_us; /* runtime: when the counters above were last put into the store */
    bool unseen;
    bool history; /* over long before anybody looked: told, and never judged, whoever asks later */
    struct anomaly *anomalies;
    uint32_t n_anomalies;
    struct action *actions;
    uint32_t n_actions;
    struct evidence *evidence;
    uint32_t n_evidence;
    enum attribution_state attribution_fast, attribution_slow;
    int64_t attribution_us;      /* when it was decided to ask; 0: it was not */
    int64_t attribution_mono_us; /* runtime: the same by CLOCK_BOOTTIME; 0: that was not here, and nobody asks */
    char *attribution_note;      /* why there is no attribution, or what of it was left out */
    struct advice *advice; /* NULL until judged */
    int64_t judge_at_us;   /* when to look again, by CLOCK_BOOTTIME; 0 = nothing pending */
    int64_t quiet_us;      /* runtime, CLOCK_BOOTTIME: since when the grace of its suspicions counts, as far as that is the
                            * attempt's own matter: the first of them, its newest progress, its log became readable */
    uint64_t revision;
    bool dirty;
    uint32_t judge_slot;                     /* in the fleet's heap, with judge_at_us */
    struct attempt *judge_prev, *judge_next; /* cluster's list of attempts with judge_at_us */
    struct attempt *slow_prev, *slow_next;   /* cluster's list of attempts with pulse->slow_us */
};

struct job {
    struct cluster *cluster; /* owner */
    char *uid;
    char *job_id; /* as people write it */
    char *display_name;
    char *user;
    uint32_t uid_number;
    char *account;
    char *partition;
    char *qos;
    int64_t submit_unix;      /* of the newest attempt: changes at each requeue */
    int64_t incarnation_unix; /* first submit; 0 until confirmed */
    int64_t first_seen_us;
    bool batch;
    bool requeueable;
    bool held;
    bool gone; /* the scheduler forgot it, or its id belongs to another submission */
    char *reason;
    char *excluded_nodes;
    char *required_nodes;
    uint32_t num_nodes;
    char *stdout_path;
    char *comment; /* raw bytes as text, lossy */
    /* from the comment */
    enum adv_mode opt_mode; /* MODE_UNSET: not opted in */
    char *policy;
    char *workflow;
    char *comment_error;
    char *progress; /* pattern of its own progress line */
    enum make_requeueable make_requeueable;
    uint32_t max_restarts;
    uint64_t hash; /* of the agent's record */
    bool present;  /* in the agent's current state (counts in the digest) */
    bool counted, counted_running; /* runtime: in the cluster's numbers below */
    bool seen_in_full;
    struct attempt **attempts; /* in order, without gaps: attempts[i]->index == first_index + i */
    uint32_t n_attempts;
    uint32_t first_index;      /* restart count of attempts[0]: what was before it nobody saw */
    uint64_t revision;
    bool dirty;
    struct order_node by_uid; /* cluster->jobs_in_order */
    struct workflow *in_workflow; /* the one that it names; NULL: none */
    struct job *workflow_prev, *workflow_next;
    UT_hash_handle hh_uid; /* cluster->jobs_by_uid */
    UT_hash_handle hh_id;  /* cluster->jobs_by_id: newest submission of an id */
};

struct slow_begin {
    char job[64]; /* its uid; "": none */
    int64_t us;   /* CLOCK_BOOTTIME */
};

struct cluster {
    char *name;
    enum adv_mode mode;
    int64_t mode_us;
    int64_t mode_effective_us; /* when the agent confirmed the current mode; 0 = not yet */
    struct epoch epoch;
    enum agent_state agent_state;
    int64_t agent_state_us;
    char *agent_version;
    char *scheduler;
    enum adv_mode ceiling;
    char *ceiling_reason;
    bool preserve_in_approve; /* runtime: the ceiling's word, */
    bool ceiling_told;        /* and that it was told to this process; before that it is not known, and nothing is lowered for it */
    uint32_t forget_after_s;  /* runtime: how long the scheduler keeps an ended job; 0: not known */
    int64_t agent_skew_s; /* how far the agent's wall clock is ahead of ours; 0: not worth mentioning */
    bool journal_persistent;
    char *holder_journal;  /* who held the lease last */
    char *holder_process;  /* runtime: the run of an agent that it is; NULL: not known */
    char *ousted_process;  /* runtime: the one before of the same journal, whose session was still there; NULL: none */
    char *holder_instance; /* runtime: the session that holds it now; NULL = nobody */
    char *blind_journal;   /* runtime: whose lease is left to run out since it does not see the scheduler; NULL: nobody's */
    char *who_sees;        /* runtime: the session of the agent that stood by and said last that it does; NULL: none */
    int64_t who_sees_us;   /* runtime, CLOCK_BOOTTIME: until then that is believed; 0: not */
    int64_t lease_until_mono_us; /* runtime: until then nobody else may be granted the lease */
    int64_t lease_us;      /* how long the newest grant may last: a replica with a shorter setting waits that long, too */
    int64_t taken_until_us; /* runtime: until then whoever owned the cluster before, or was granted its lease by it, may
                             * still be at work; nothing that happens here makes it shorter */
    char *sources_unknown; /* what is not known because sources of logs and metrics do not answer; NULL: all do */
    bool logs_down;        /* its agent's log stream is broken; false until one was seen to break */
    int64_t listen_us;     /* runtime, CLOCK_BOOTTIME: since when silence on it means something: its agent, its log stream
                            * or a maintenance window came or went then, or the owner */
    bool in_full;          /* a full snapshot is under way */
    bool digest_ok;        /* state complete and confirmed by digest */
    int64_t observe_us;
    uint64_t digest;     /* runtime: XOR over the hashes of present jobs and nodes */
    char *epoch_warning; /* set when an agent showed a newer epoch than the store: OBSERVE until confirmed */
    struct node *nodes;
    struct job *jobs_by_uid;
    struct job *jobs_by_id;
    struct order jobs_in_order;  /* the same, by uid: by the time when they were first seen */
    struct order nodes_in_order; /* by name */
    struct order workflows_in_order; /* workflows.h, by name */
    struct order_node by_name;       /* fleet->clusters_in_order */
    struct advice *open_advice;
    struct attempt *judged; /* runtime: attempts that wait to be judged */
    struct attempt *slow;   /* runtime: attempts that are slow, as measured here */
    struct slow_begin slow_began[2]; /* runtime: which jobs became slow last, the newest first; they may be over */
    struct entry *entries[RESOURCE_KIND_END_]; /* by kind, then by uid */
    int64_t maintenance_until_us; /* runtime: end of the last open maintenance window; 0 = none is open */
    struct enrolment *enrolments;
    struct revocation *revocations;
    uint64_t audit_seq;
    char *audit_hash; /* hex of the last audit event */
    /* Ownership, runtime; for shared stores. An unshared store owns everything by epoch 0 for ever. */
    bool owned;            /* by this replica */
    bool lost_untold;      /* its agent went with the owner before: the next EV_TICK writes that down */
    uint64_t owner_epoch;  /* of our own ownership */
    int64_t owned_since_us; /* CLOCK_BOOTTIME: what was asked of the store before then says nothing of our ownership */
    int64_t owned_until_us; /* CLOCK_BOOTTIME by which our lease of it ends at the latest; INT64_MAX for ever */
    size_t n_attempts; /* runtime: of all its jobs, for the limit */
    uint32_t n_jobs, n_running; /* runtime: jobs that the scheduler still knows; of those, running */
    uint64_t revision;
    uint64_t shown_revision; /* scratch of the turn */
    bool guarded;            /* scratch of the turn */
    bool unborn;             /* runtime: not in the store yet; cleared by the turn */
    bool dirty;
    UT_hash_handle hh;
};

/* "" for NULL. */
static inline const char *str_or(const char *s)
{
    return s ? s : "";
}

const char *mode_name(enum adv_mode m);            /* "observe" */
bool mode_from_name(const char *s, enum adv_mode *ret);
const char *job_state_name(enum job_state s);      /* "FAILED" */
const char *desired_name(enum desired_state d);    /* "RESTARTED" */
const char *disposition_name(enum disposition d);  /* "CONVERGED" */
const char *disposition_reason_name(uint32_t r);   /* "EXPIRED" */
const char *verb_name(uint32_t v);                 /* "preserve" */
const char *telemetry_name(enum telemetry_state t);
const char *anomaly_status_name(enum anomaly_status s);
const char *retryable_name(enum retryable r);      /* "yes" */
const char *agent_state_name(enum agent_state s);
const char *command_name(enum command_result c);
const char *observed_name(enum observed o);

/* Ended for good as far as this attempt goes (COMPLETING is not). */
bool job_state_terminal(enum job_state s);
/* Ended badly, by itself or its machine: what Advisor exists for. */
bool job_state_failed(enum job_state s);
bool job_state_running(enum job_state s);

/* A person approved its current generation. */
bool advice_approved(const struct advice *ad);
/* It may become executable by a person's yes: pending, and not too old. */
bool advice_awaits_approval(const struct advice *ad);

/* What is known of its log, by the agent's reading and by sources together; @ret_why is for people, "" for none. */
#define TELEMETRY_WHY_MAX 512
enum telemetry_state attempt_telemetry(const struct attempt *a, char ret_why[TELEMETRY_WHY_MAX]);

/* The attempt before, or NULL when nobody saw one. */
struct attempt *attempt_prev(const struct attempt *a);

/* Resource names, written into @buf. */
#define RESOURCE_NAME_MAX 256
const char *cluster_resource_name(const struct cluster *c, char buf[RESOURCE_NAME_MAX]);
const char *job_resource_name(const struct job *j, char buf[RESOURCE_NAME_MAX]);
const char *attempt_resource_name(const struct attempt *a, char buf[RESOURCE_NAME_MAX]);
const char *advice_resource_name(const struct attempt *a, char buf[RESOURCE_NAME_MAX]);

/* The key of an object within its cluster, by which the store and the change log know it; keys sort like their objects:
 *   cluster "", job "<uid>", attempt and advice "<uid>/<index, 10 digits>", anomaly and evidence "<attempt>/<uid>",
 *   action "<attempt>/<journal id>/<seq, 20 digits>", node "<name>", audit event "<seq>", an entry, an enrolment and a
 *   revocation its uid. */
#define RESOURCE_KEY_MAX 200
const char *resource_key(enum resource_kind kind, const void *object, char buf[RESOURCE_KEY_MAX]);
/* The resource name of what has that key; actions, which are no resources, are called "<advice's name>#<journal id>/<seq>". */
const char *resource_name(enum resource_kind kind, const char *cluster, const char *key, char buf[2 * RESOURCE_NAME_MAX]);
/* Takes a key of a thing of a job apart. @ret_rest is what follows the attempt's index, "" for nothing. False: it is none. */
bool resource_key_parse(const char *key, char ret_job_uid[64], uint32_t *ret_index, const char **ret_rest);

/* Takes "clusters/a/jobs/u/attempts/1/advice" apart. @ret_parts get pointers into @scratch (a copy of @name);
 * parts not present are NULL. Errors: -ADV_INVALID_ARGUMENT, field "name". */
struct resource_path {
    char scratch[RESOURCE_NAME_MAX];
    const char *cluster;
    const char *job_uid;
    const char *attempt; /* digits, checked */
    uint32_t attempt_index;
    bool advice;
    const char *node;
    enum resource_kind entry_kind; /* exclusion, incident, window; RESOURCE_NONE for none of them */
    const char *entry_uid;
};
adv_must_check int resource_path_parse(const char *name, struct resource_path *ret, struct adv_err *err);
/* The same of a request's @field, which the error names. */
adv_must_check int resource_path_parse_field(const char *field, const char *name, struct resource_path *ret, struct adv_err *err);
/* It names a cluster (or "-") and nothing below it. */
bool resource_path_is_cluster(const struct resource_path *p);

/* 1..64 of a-z, 0-9, '-', '_', beginning with a letter. */
bool cluster_id_valid(const char *s);

/* A scheduler's job id as people write it: "123", "46_5", "56+1". */
bool sched_job_id_valid(const char *s);

/* Adds the hosts of list @text to @all, which was made for ATTEMPT_MAX_NODES; what is malformed or would be too many is
 * left out. Errors: -ADV_RESOURCE_EXHAUSTED (no memory, and nothing else). */
adv_must_check int nodes_add(struct adv_hostlist *all, const char *text);
/* @some is more than one node, and more than half of @all: what happens to them has a cause that they share. Without memory
 * it is. */
bool nodes_most(const char *some, const char *all);

/* Whether a certificate of one of its agents was revoked. @serial is "" when it is not known. */
bool cluster_cert_revoked(const struct cluster *c, const char *serial, int64_t issued_s);
/* From when a certificate that is issued now has to be valid, so that no revocation before covers it: now, or less than a
 * second later. */
int64_t cluster_cert_not_before_s(const struct cluster *c, int64_t now_us);

void enrolment_free(struct enrolment *e);
void revocation_free(struct revocation *r);
void node_free(struct node *n);
void anomaly_free(struct anomaly *a);
void advice_free(struct advice *a);
void action_free(struct action *a);
void evidence_free(struct evidence *e);
void attempt_free(struct attempt *a); /* with all below it */
void job_free(struct job *j);
void workflow_free(struct workflow *w); /* its jobs are left as they are */
void cluster_free(struct cluster *c);

#endif
