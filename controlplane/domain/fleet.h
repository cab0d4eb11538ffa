/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_FLEET_H
#define CONTROLPLANE_DOMAIN_FLEET_H

/* The fleet: all clusters, jobs and attempts, and the one function that changes them.
 *
 *     fleet_apply(fleet, event, intents)
 *
 * is pure: no clock (time comes with the event), no I/O. What it changed is listed in @intents; the caller (turn.c)
 * stores that in one transaction and only then shows it. Events that make no sense are refused by an error and change
 * nothing; what comes from a peer is never an assertion.
 *
 * Thread: loop thread.  Blocks: no.  Memory: an allocation failure sets intents->oom; the caller then drops the fleet
 * and loads it from the store again. */

#include "common/digest.h"
#include "controlplane/domain/decide.h"

struct fleet_config {
    struct policy policy;
    int64_t lease_us;
    int64_t owner_lease_us; /* of replicas over one store; 0: there are no others */
    uint32_t max_jobs; /* that are kept of one cluster; 0: the default */
    /* Whether a job's own progress pattern can be used; @ret_why says why not. Pure; NULL: any can. */
    bool (*progress_check)(const char *pattern, char *ret_why, size_t cap);
    bool log_detection; /* logs are watched at all; false: a failed state is an anomaly at once */
};

/* Where fleet-wide things stand: a cluster by form only, with an audit chain and an owner, in no list. */
#define FLEET_CLUSTER "_fleet"

RB_HEAD(workflows, workflow); /* workflows.h */

struct fleet {
    struct cluster *clusters;
    struct order clusters_in_order; /* the same, by name */
    struct workflows workflows_in_order;
    struct cluster *global; /* FLEET_CLUSTER; never NULL */
    struct fleet_config cfg;
    struct attempt **judge;     /* heap: attempts with judge_at_us, the soonest first */
    size_t n_judge, cap_judge;
    struct entry *due_list;     /* entries with due_us */
    size_t n_lost_untold;       /* clusters with lost_untold */
    uint64_t next_uid; /* below it: used. The store starts it at its newest change, so that no two lives mint the same */
    int64_t now_us;    /* wall clock of the newest event; 0 before the first */
    int64_t mono_us;   /* the same by CLOCK_BOOTTIME */
    uint64_t store_term;
    bool oom;          /* something could not be put down for later: the next event says so */
    uint64_t dropped_events; /* findings for attempts that do not exist, and the like */
};

/* Something happened. Strings are borrowed from the event's owner for the time of fleet_apply(). */
enum event_type {
    EV_NONE,
    EV_CLUSTER_CREATE,
    EV_SET_MODE,
    EV_AGENT_HELLO,
    EV_AGENT_GONE,
    EV_AGENT_REPORT, /* ceiling or observation age changed */
    EV_LEASE_TAKE,   /* a standby asks for the lease */
    EV_STATE_UPDATE,
    EV_FINDING,
    EV_TELEMETRY, /* what the agent says of a log */
    EV_SOURCE,    /* what a source of logs says, or cannot say, of an attempt's log */
    EV_SOURCES,   /* which sources of a cluster answer */
    EV_LOG_STREAM, /* the agent's stream of log bytes began or broke */
    EV_WITNESS,    /* something says, or no longer, that an attempt stands still */
    EV_LOG_SHED,  /* bytes of a log that did not arrive, counted here; -ADV_NOT_FOUND when there is no such attempt yet */
    EV_ADVICE_STATUS,
    EV_ACTION,
    EV_APPROVAL, /* a person's yes or no to an advice */
    EV_VERDICT,  /* a person's judgement of an advice */
    EV_REPORT_ANOMALY,  /* of a detector outside */
    EV_REPORT_EVIDENCE, /* of the same */
    EV_REPORT_PROGRESS, /* of the same: progress, checkpoint, resumed */
    EV_ATTRIBUTION,     /* what came of asking a provider about an attempt */
    EV_EXCLUSION_ADD,
    EV_EXCLUSION_LIFT,
    EV_WINDOW_CREATE,
    EV_WINDOW_END,
    EV_INCIDENT_CLOSE,
    EV_POLICY_APPLY, /* of FLEET_CLUSTER */
    EV_ENROL_CREATE, /* an enrolment token was made */
    EV_ENROL_REDEEM, /* an agent shows it */
    EV_CERT_RENEW,   /* a live agent gets its next certificate */
    EV_CERT_REVOKE,
    EV_AUDIT_APPEND, /* an event of somebody outside */
    EV_AUDIT_CUT,    /* old audit events go */
    EV_RETENTION,    /* old excerpts and jobs go */
    EV_FORGET,       /* what is known of a user goes */
    EV_TICK,
};

struct job_obs {
    const char *job_id;
    enum job_state state;
    const char *state_raw;
    bool completing;
    uint32_t restart_count;
    bool requeueable;
    bool batch;
    uint32_t exit_code;
    uint32_t exit_signal;
    int64_t submit_unix;
    int64_t eligible_unix;
    int64_t start_unix;
    int64_t end_unix;
    int64_t incarnation_unix;
    bool held;
    const char *reason;
    const char *nodes;
    const char *user;
    uint32_t uid;
    const char *account;
    const char *partition;
    const char *qos;
    bool detail_known;
    const char *name;        /* lossy text */
    const char *comment;     /* lossy text */
    const char *stdout_path; /* lossy text */
    const char *excluded_nodes;
    const char *required_nodes;
    uint32_t num_nodes;
    uint64_t hash;
};

/* How the newest attempt of a job that the scheduler forgot has ended, as accounting tells it. */
struct job_end {
    const char *job_id;
    uint32_t restart_count;
    int64_t submit_unix; /* of this attempt */
    enum job_state state;
    const char *state_raw;
    uint32_t exit_code;
    uint32_t exit_signal;
    int64_t start_unix, end_unix;
    const char *nodes;
    enum cancelled_by cancelled_by;
};

struct node_obs {
    const char *name;
    const char *state_raw;
    const char *reason;
    bool available;
    uint64_t hash;
};

/* A notice says that something is wrong with a machine, if not with the job: it becomes evidence, and nothing rests on it. */
enum finding_kind { FINDING_SIGNATURE, FINDING_PROGRESS, FINDING_CHECKPOINT, FINDING_RESUMED, FINDING_FINISHED, FINDING_RECOVERED,
                    FINDING_NOTICE };
/* What the number of a progress line counts. */
enum finding_unit { UNIT_STEP, UNIT_ITEM, UNIT_EPOCH, UNIT_NONE /* there is none: a sign of life */ };
/* LEAD: what is named is where to look first; one such finding is no evidence against it, two of two attempts are. */
enum finding_blame { BLAME_NONE, BLAME_NODE, BLAME_REPORTER, BLAME_LEAD };

/* One possible cause, by a provider. */
struct attribution {
    const char *fault_class;
    const char *const *nodes; /* host names, whatever it said */
    size_t n_nodes;
    uint32_t confidence_percent;
    const char *summary, *provider;
};

struct event {
    enum event_type type;
    int64_t now_us;         /* wall clock of the turn */
    int64_t mono_us;        /* CLOCK_BOOTTIME of the turn, for leases */
    uint8_t seed[16];       /* random, of the turn: what is drawn by lot comes from it */
    const char *principal;  /* who caused it, for the audit log */
    const char *cluster;    /* cluster id; all but EV_TICK */
    const char *request_id; /* of the API call that caused it; "" or NULL for none */
    const char *request_hash; /* hex digest of that call's content */
    union {
        struct {
            enum adv_mode mode;
            const char *reason;
            uint64_t if_version; /* mode_us that the caller saw; 0: any */
        } set_mode;
        struct {
            const char *serial; /* of its certificate; "" without one */
            int64_t issued_s;   /* of its certificate; INT64_MAX without one */
            const char *instance_id;
            const char *process; /* as the agent calls its run; NULL: not told */
            const char *journal_id;
            bool journal_persistent;
            struct epoch highest_epoch;
            const char *agent_version;
            const char *scheduler;
            enum adv_mode ceiling;
            const char *ceiling_reason;
            bool preserve_in_approve;
            uint32_t forget_after_s; /* 0: not known */
            bool resume;
            struct epoch resume_epoch;
            uint64_t resume_digest;
            /* results */
            bool ret_granted;
            bool ret_resumed;
            bool ret_settle; /* another holder came before */
            struct epoch ret_epoch;
        } hello;
        struct {
            const char *instance_id;
            const char *why;
        } gone;
        struct {
            char token_sha256[65];
            int64_t valid_us; /* 0: a day */
        } enrol;
        struct {
            char token_sha256[65];
            char key_sha256[65];
            char serial[41];      /* of the certificate that it is to get */
            int64_t not_before_s; /* of the same */
            bool ret_refused;     /* nothing is given, and it was written down that somebody tried */
        } redeem;
        struct {
            char old_serial[41];
            char serial[41];
            int64_t old_issued_s;
        } renew;
        struct {
            char serial[41];   /* "": all issued before */
            int64_t before_us; /* 0: now */
            const char *reason;
            char ret_uid[32];
        } revoke;
        struct {
            const char *instance_id;
            enum adv_mode ceiling;
            const char *ceiling_reason;
            bool preserve_in_approve; /* counts where the ceiling is told */
            bool scheduler_unavailable;
            bool mode_confirmed; /* the agent has heard of the current mode */
            int64_t clock_skew_s; /* see struct cluster */
        } report;
        struct {
            const char *instance_id;
            const char *journal_id;
            /* what its Hello said, and its heartbeats since */
            bool journal_persistent;
            const char *agent_version;
            const char *scheduler;
            enum adv_mode ceiling;
            const char *ceiling_reason;
            bool preserve_in_approve;
            uint32_t forget_after_s;
            bool ret_granted;
            struct epoch ret_epoch;
        } take;
        struct {
            const char *instance_id;
            bool full_begin;
            bool full_end;
            const struct job_obs *jobs;
            size_t n_jobs;
            const char *const *gone_jobs;
            size_t n_gone_jobs;
            const struct job_end *ended;
            size_t n_ended;
            const struct node_obs *nodes;
            size_t n_nodes;
            const char *const *gone_nodes;
            size_t n_gone_nodes;
            uint64_t digest;
            int64_t observe_us;
            bool ret_resync; /* the digest did not match: ask for a full snapshot */
        } state;
        struct {
            const char *job_id;
            uint32_t restart_count;
            int64_t submit_unix; /* of the attempt meant; 0: not said */
            enum finding_kind kind;
            uint64_t step; /* progress, checkpoint, resumed; 0 unknown */
            enum finding_unit unit; /* progress */
            uint64_t total;         /* progress; 0 unknown */
            bool late;              /* progress: output of a rank that came after later steps of others: a sign of life,
                                     * no step that goes on */
            uint32_t series;        /* progress: numbers of different series are never compared */
            /* signature */
            enum anomaly_kind anomaly;
            const char *rule;
            const char *rules_version;
            const char *fault_class;
            enum retryable retryable;
            int32_t precedence;
            bool terminal;
            enum finding_blame blame;
            const char *const *nodes;
            size_t n_nodes;
            const char *ranks;
            const char *stream;
            uint64_t offset;
            const char *excerpt;
            const char *excerpt_sha256;
            int64_t observe_us;
            bool outside; /* not the agent's own reading of the log: it may come late, and its silence means nothing */
        } finding;
        struct {
            const char *job_id;
            uint32_t restart_count;
            int64_t submit_unix; /* of the attempt meant; 0: not said */
            enum telemetry_state state;
            const char *reason;
            uint64_t dropped_bytes;
        } telemetry;
        struct {
            const char *job_id;
            uint32_t restart_count;
            int64_t submit_unix; /* of the attempt meant; 0: not said */
            const char *fed;     /* lines came from it: its name; NULL: none so far */
            const char *gap;     /* why its lines are not known; NULL: they are */
        } source;
        struct {
            const char *unknown; /* NULL: all answer */
        } sources;
        struct {
            bool open;
        } log_stream;
        struct {
            const char *job_id;
            uint32_t restart_count;
            int64_t submit_unix; /* of the attempt meant; 0: not said */
            enum witness_kind kind;
            bool holds;         /* false: no longer */
            const char *source; /* who says so; at most 31 bytes are kept */
            const char *detail; /* for people, or the ranks; at most 127 bytes are kept */
        } witness;
        struct {
            const char *job_id;
            uint32_t restart_count;
            int64_t submit_unix; /* of the attempt meant; 0: not said */
            uint64_t bytes; /* more than told before */
        } shed;
        struct {
            const char *advice_name;
            uint64_t observed_generation;
            struct epoch epoch;
            enum disposition disposition;
            uint32_t reason;
            const char *detail;
            int64_t observe_us;
        } status;
        struct {
            const char *journal_id;
            uint64_t journal_seq;
            struct epoch epoch;
            const char *advice_name;
            uint64_t generation;
            uint32_t verb;
            bool outcome; /* false: intent */
            const char *read_before;
            enum command_result command;
            enum observed observed;
            const char *reason;
            const char *detail;
            int64_t observe_us;
        } action;
        struct {
            const char *attempt_name; /* resource name of the attempt, or of its advice */
            uint64_t generation;
            enum approval decision;
            const char *reason;
        } approval;
        struct {
            const char *attempt_name;
            uint64_t generation;
            enum verdict value;
            const char *why;
        } verdict;
        struct {
            const char *attempt_name;
            enum anomaly_kind kind;
            const char *fault_class; /* "": unknown */
            const char *rule;
            enum retryable retryable;
            const char *const *nodes; /* host names */
            size_t n_nodes;
            const char *const *ranks;
            size_t n_ranks;
            const char *excerpt;
            int64_t observe_us; /* 0: now */
        } anomaly;
        struct {
            const char *attempt_name;
            const char *source, *kind;
            int64_t window_start_us, window_end_us; /* 0: not told */
            const char *const *nodes; /* host names */
            size_t n_nodes;
            const char *const *ranks;
            size_t n_ranks;
            uint32_t weight_percent;
            const char *summary, *excerpt_ref, *excerpt_sha256;
            const char *fault_class, *rule; /* NULL or "": none */
            enum evidence_origin origin;
            int64_t observe_us; /* 0: now */
            char ret_uid[32];
        } evidence;
        struct {
            const char *attempt_name;
            enum attribution_phase phase;
            const struct attribution *v; /* likeliest first */
            size_t n;
            const char *note; /* why there is none, or what of the answer was left out already; NULL: nothing */
            bool answered;    /* false: there is none, and it says why */
        } attribution;
        struct {
            const char *attempt_name;
            enum finding_kind kind; /* not a signature */
            uint64_t step;
            int64_t observe_us; /* 0: now */
        } progress;
        struct {
            const char *node;
            const char *reason;
            int64_t expire_us; /* 0: until lifted */
            char ret_uid[32];
        } exclusion;
        struct {
            int64_t start_us; /* 0: now */
            int64_t end_us;
            const char *reason;
            char ret_uid[32];
        } window;
        struct {
            const char *uid;
            uint64_t if_revision; /* that the caller read; 0: any */
            const char *reason;
        } entry; /* lift, end, close */
        struct {
            const char *name;
            const char *document;
            const char *document_sha256;
            const char *reason;
            uint64_t if_revision;
            bool ret_changed;
        } policy;
        struct {
            const char *verb;
            const char *subject;
            const char *event_id;
            const char *detail;
            int64_t observe_us;
            uint64_t ret_seq;
        } audit;
        struct {
            uint64_t seq; /* up to it */
            const char *hash;
            const char *signature, *key_id, *store_uuid;
            int64_t record_us; /* that was signed */
        } cut;
        struct {
            int64_t excerpts_before_us; /* recorded before; 0: keep all */
            int64_t jobs_before_us;     /* last heard of before */
            uint32_t limit;             /* changes */
            bool ret_more;
        } retention;
        struct {
            const char *user;
            uint32_t limit;
            uint32_t ret_forgotten;
            uint32_t ret_present; /* left alone: the agent would tell it again */
            uint32_t ret_listed;  /* forgotten, but an agent that comes back will tell it again */
            bool ret_more;
        } forget;
    } u;
};

/* What a turn changed. */
struct intent {
    enum resource_kind kind;
    void *object;            /* struct cluster, job, attempt, anomaly, advice, action, node; NULL: it is gone */
    struct cluster *cluster;
    char *gone_key; /* of what is gone */
};

struct audit_record {
    struct cluster *cluster;
    uint64_t seq;
    char *prev_hash;
    char *hash; /* hex SHA-256 over the canonical bytes, see fleet.c */
    char *principal;
    char *verb;
    char *subject;
    char *detail;
    char *salt;        /* random, hex */
    char *detail_hash; /* hex SHA-256 over salt and detail: what the chain covers, so that both may be erased later */
    char *event_id;    /* of an event of somebody outside; NULL for ours */
    int64_t observe_us;
    int64_t record_us;
};

/* Rows of the audit log that a turn changes: never what is chained, only what the chain does not cover. */
struct audit_change {
    struct cluster *cluster;
    char *erase_below;    /* resource name: the details of events about it, and about what is below it, are erased */
    uint64_t cut_through; /* 0, or: events up to this seq are removed */
};

/* An audit event as the store gives it back. */
struct audit_row {
    char cluster[65];
    uint64_t seq;
    char *prev_hash, *hash, *principal, *verb, *subject, *detail, *salt, *detail_hash, *event_id;
    int64_t observe_us, record_us;
    uint64_t rowid; /* order of record over all clusters */
};

struct request_record {
    char *request_id;
    char *hash;
    int64_t record_us;
};

struct intents {
    struct intent *v;
    size_t n, cap;
    struct audit_record *audit;
    size_t n_audit, cap_audit;
    struct audit_change *audit_changes;
    size_t n_audit_changes, cap_audit_changes;
    struct request_record *requests;
    size_t n_requests, cap_requests;
    bool oom;
};

/* What `hash` of an audit event has to be, by its other fields; and `detail_hash`. False: no memory. */
bool audit_hash(const struct audit_row *r, char ret_hex[ADV_SHA256_HEX_SIZE]);
bool audit_detail_hash(const char *salt, const char *detail, char ret_hex[ADV_SHA256_HEX_SIZE]);

void intents_init(struct intents *in);
/* Clears the dirty marks of what is listed and frees the lists. */
void intents_done(struct intents *in);

struct fleet *fleet_new(const struct fleet_config *cfg);
struct fleet *fleet_free(struct fleet *f); /* returns NULL */

/* Applies one event. Errors leave the fleet as it was:
 * -ADV_NOT_FOUND (cluster, job, advice), -ADV_ALREADY_EXISTS, -ADV_ABORTED (revision), -ADV_INVALID_ARGUMENT,
 * -ADV_FAILED_PRECONDITION (not the holder of the lease). Results are in the event's ret_ members. */
adv_must_check int fleet_apply(struct fleet *f, struct event *ev, struct intents *out, struct adv_err *err);

/* For logs that are judged afterwards: nothing more comes of @a's, and that is known. From now on its silence counts even if
 * no rhythm was learned. */
void fleet_nothing_more(struct fleet *f, struct attempt *a, int64_t now_us);

/* How long until EV_TICK has something to do; 0 when it has, -1 for never. Attempts are waited for by CLOCK_BOOTTIME
 * (@mono_us), so that no clock that is set judges one too early or hours late; what people named a time for by the wall
 * clock (@now_us). */
int64_t fleet_wait_us(const struct fleet *f, int64_t now_us, int64_t mono_us);
/* The same as a time of the wall clock, as if that had not been set since the newest event; 0 for never. */
int64_t fleet_next_deadline(const struct fleet *f);

/* Something is suspected of it that is neither confirmed nor withdrawn. */
bool fleet_has_suspicion(const struct attempt *a, bool terminal_only);

struct cluster *fleet_find_cluster(const struct fleet *f, const char *name);
struct cluster *fleet_find_any_cluster(const struct fleet *f, const char *name); /* FLEET_CLUSTER too */
struct job *fleet_find_job(const struct cluster *c, const char *job_id); /* newest submission of that id */
struct job *fleet_find_job_uid(const struct cluster *c, const char *uid);
struct attempt *job_attempt(const struct job *j, uint32_t index);
/* Is @a what somebody means who says when it was submitted? 0: they do not say. */
bool attempt_meant(const struct attempt *a, int64_t submit_unix);

/* What that reporter said by that rule; NULL for nothing, or nothing that is kept. */
struct anomaly *fleet_find_report(const struct attempt *a, const char *reporter, const char *rule);
/* The error of an id that no cluster may have. */
int fleet_cluster_id_malformed(const char *id, struct adv_err *err);

struct enrolment *fleet_find_enrolment(const struct cluster *c, const char *token_sha256);
/* The one error that strangers get, whatever it was. */
int fleet_enrolment_refused(struct adv_err *err);
struct revocation *fleet_find_revocation(const struct cluster *c, const char *uid);

void fleet_forget_enrolment(struct cluster *c, const char *uid);
void fleet_forget_revocation(struct cluster *c, const char *uid);

/* A requeue of @a was begun under its advice and is not known to have failed. */
bool attempt_requeue_recorded(const struct attempt *a);

/* True while @instance may act on @c at @mono_us. Extends its lease by heartbeat; not stored, see session. */
bool fleet_lease_extend(struct fleet *f, struct cluster *c, const char *instance, int64_t mono_us);
/* What is left of the lease that session @instance holds; 0: it holds none. */
int64_t fleet_lease_left_us(const struct cluster *c, const char *instance, int64_t mono_us);
/* The lease is free for another journal. */
bool fleet_lease_free(const struct cluster *c, int64_t mono_us);
/* An agent that stands by, in session @instance, has said that it sees its scheduler; believed for @for_us. 0: it does not see it
 * any more. Not stored, see session. */
void fleet_agent_sees(struct cluster *c, const char *instance, int64_t mono_us, int64_t for_us);
/* An agent in another session than @instance does. */
bool fleet_other_agent_sees(const struct cluster *c, const char *instance, int64_t mono_us);
/* The lease of the holder is left to run out since it does not see its scheduler while another does (@blind): if it comes again,
 * before its end or later, it stands by behind that one. Or it sees again. */
void fleet_agent_blind(struct cluster *c, bool blind);

/* XOR over the hashes of what the agent says it holds. */
uint64_t cluster_digest(const struct cluster *c);

/* Loading: objects made by the store, linked into the fleet without events. */
/* Those that return an error leave the object with the caller: -ADV_DATA_LOSS, -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int fleet_load_cluster(struct fleet *f, struct cluster *c);                 /* takes over */
adv_must_check int fleet_load_job(struct fleet *f, struct cluster *c, struct job *j);      /* takes over */
adv_must_check int fleet_load_node(struct cluster *c, struct node *n);                     /* takes over */
adv_must_check int fleet_load_enrolment(struct cluster *c, struct enrolment *e);           /* takes over */
adv_must_check int fleet_load_revocation(struct cluster *c, struct revocation *r);         /* takes over */
adv_must_check int fleet_load_attempt(struct fleet *f, struct job *j, struct attempt *a);  /* takes over */
void fleet_load_anomaly(struct attempt *a, struct anomaly *an);                            /* takes over */
void fleet_load_advice(struct attempt *a, struct advice *ad);                              /* takes over */
void fleet_load_action(struct attempt *a, struct action *ac);                              /* takes over */
void fleet_load_evidence(struct attempt *a, struct evidence *e);                           /* takes over */
/* After everything is loaded. With @own_all every cluster is taken over as by fleet_take_over(), for ever. */
void fleet_load_done(struct fleet *f, bool own_all, int64_t now_us, int64_t mono_us);

/* Following what another replica wrote to a cluster that is not owned here. */
void fleet_unlink_job(struct fleet *f, struct cluster *c, struct job *j); /* off the tables; the caller's, with all below it */
void fleet_forget_job(struct fleet *f, struct cluster *c, const char *uid);
void fleet_forget_node(struct cluster *c, const char *name);
void fleet_forget_of_attempt(struct attempt *a, enum resource_kind kind, const char *key); /* anomaly, advice, action,
                                                                                               * evidence */
void fleet_forget_entry(struct fleet *f, struct cluster *c, enum resource_kind kind, const char *uid);
/* This replica owns @c from now on, by ownership @epoch, until @until_us (CLOCK_BOOTTIME) at first: its agent counts as
 * unreachable and its last lease as held until a whole one is over; what waits to be judged is taken up. */
void fleet_take_over(struct fleet *f, struct cluster *c, uint64_t epoch, int64_t until_us, int64_t now_us, int64_t mono_us);
/* It is another's: nothing is judged here any more. */
void fleet_give_up(struct fleet *f, struct cluster *c);

/* The job's newest state, or whether it is gone, may have changed: brings the cluster's numbers up to date. */
void fleet_recount(struct job *j);

/* Sets *@dst to a copy of @src ("" and NULL are the same). True when it changed. */
bool str_set(struct intents *in, char **dst, const char *src);

#endif
