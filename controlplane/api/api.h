/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_API_API_H
#define CONTROLPLANE_API_API_H

/* The Advisor API as handlers of messages, whatever carries them. A transport (rpc/serve.c) implements
 * `struct api_call_ops`, finds the method by its path in api_methods(), checks the caller with api_authorize(), and
 * hands messages over. One file a service.
 *
 * Thread: loop thread.  Blocks: no. */

#include <protobuf-c/protobuf-c.h>

#include "advisor/v1/types.pb-c.h"
#include "google/protobuf/timestamp.pb-c.h"

#include "common/arena.h"
#include "common/ed25519.h"
#include "controlplane/api/token.h"
#include "controlplane/auth/auth.h"
#include "controlplane/domain/entries.h"
#include "controlplane/owner.h"
#include "controlplane/watcher/rules.h"

struct api;
struct api_call;

/* Who calls, derived by the server: from the certificate's URI name "advisor:<role>:<name>", or from a token. Made by the
 * transport, which gives its reference of @identity back when the call has ended. */
struct api_caller {
    struct identity *identity; /* NULL: nobody, or not authenticated */
    char principal[128];       /* "operator:alice", "jwt:corp:1234", "agent:alpha" */
    bool authenticated;        /* false: insecure transport, loopback only: everybody there may everything */
    enum api_role acting;      /* the role that the method needs */
    /* Of an agent: its cluster ("" for others, and when not authenticated), and its certificate. */
    char cluster[65];
    char serial[41];
    int64_t issued_s;
    bool trusted; /* another replica has checked all that there is to check */
};

struct api_call_ops {
    void (*reply)(struct api_call *call, const ProtobufCMessage *msg);
    void (*fail)(struct api_call *call, const struct adv_err *err);
    int (*send)(struct api_call *call, const ProtobufCMessage *msg); /* -ADV_RESOURCE_EXHAUSTED: its queue is full */
    size_t (*queued_bytes)(const struct api_call *call);
    bool (*read_next)(struct api_call *call); /* whether a message is here already */
    void (*finish)(struct api_call *call);
    void (*arrived)(struct api_call *call); /* of a method that `arrives`: its beginning is over */
    bool (*ended)(const struct api_call *call);
    void (*ref)(struct api_call *call);
    void (*unref)(struct api_call *call);
};

/* Embedded in the transport's own call. */
struct api_call {
    const struct api_call_ops *ops;
    struct api *api;
    const struct api_method *method;
    struct api_caller caller;
    char scratch[72];    /* a short text of the request's own that its event needs */
    char handoff_id[40]; /* of a call of another replica: stands in for a missing request id */
    void *user; /* the stream's own state */
};

enum api_shape { API_UNARY, API_SERVER_STREAM, API_CLIENT_STREAM, API_BIDI };

struct api_method {
    const char *path; /* "/advisor.v1.JobService/ListJobs" */
    enum api_shape shape;
    const ProtobufCMessageDescriptor *request, *response;
    enum api_role role; /* what a caller has to be; ROLE_NONE: nobody in particular, the request itself is the proof */
    size_t max_request_bytes;
    bool gzip; /* a message may be compressed; its size is that of what comes out */
    bool arrives; /* begins with work: the transport lets only so many begin at one time */
    /* A pure read: runs while memory equals the store. Texts in the answer may be borrowed from the fleet. */
    int (*read)(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                ProtobufCMessage **ret, struct adv_err *err);
    /* Anything else with one answer. */
    void (*call)(struct api_call *call, const ProtobufCMessage *req);
    /* Streams. */
    void (*open)(struct api_call *call);
    void (*message)(struct api_call *call, const ProtobufCMessage *req);
    void (*half_close)(struct api_call *call);
    void (*writable)(struct api_call *call);
    void (*closed)(struct api_call *call, bool cancelled);
};

/* Queue of a server stream at the transport; its count of messages is not limited beyond that. */
#define API_STREAM_QUEUE_BYTES (1 << 20)

/* How long what is kept; 0: for ever. */
struct retention_config {
    int64_t interval_ms, excerpts_ms, jobs_ms, audit_ms;
};

struct api_config {
    uint32_t heartbeat_interval_ms;
    uint32_t silence_timeout_ms;
    bool rearm_children; /* of a job that is restarted, get their dependencies back */
    struct owner *owner;  /* outlives the API; NULL: everything is owned */
    uint32_t bookmark_ms; /* Watch: this long without an event brings a bookmark */
    size_t max_sessions;
    size_t admission; /* agents that say hello or send their whole state at one time */
    size_t max_streams; /* logs that are read at one time; 0: 50,000 */
    struct adv_ed25519 *signer; /* of audit checkpoints; outlives the API; NULL: they are not signed */
    struct retention_config retention;
};

struct ca;

/* Of certificates for agents. */
struct api_enrol {
    struct ca *ca; /* borrowed, outlives the API; NULL: certificates are not issued here */
    int64_t cert_life_ms;
    /* What bundles tell. */
    char **servers;
    size_t n_servers;
    char *server_name;
    char *server_ca; /* path of a PEM file */
};

adv_must_check int api_new(uv_loop_t *loop, struct turn *turn, struct watcher_rules *rules, const struct api_config *cfg,
                           struct api **ret, struct adv_err *err);
/* From now on logs are read with @rules (borrowed until the next call), those that are under way too. */
void api_set_rules(struct api *api, struct watcher_rules *rules);
/* Copies the texts. Errors: -ADV_RESOURCE_EXHAUSTED (the old ones stay). */
adv_must_check int api_set_enrol(struct api *api, const struct api_enrol *enrol, struct adv_err *err);
/* Ends all streams (agents are told to come back). Before turn_stop(). */
void api_stop(struct api *api);
/* After all calls are closed; the loop has to run once more. */
void api_free(struct api *api);

const struct api_method *api_methods(size_t *ret_n);
adv_must_check int api_authorize(const struct api_caller *caller, const struct api_method *m, struct adv_err *err);

/* Whether @caller has @role where the thing stands: @cluster (NULL: the fleet as a whole), and @account and @user of the
 * job for things of a job (both NULL for the cluster as a whole). Every handler asks it for what it is about to show or
 * change; what a caller may not see does not exist for it (NOT_FOUND, left out of lists). */
bool api_may(const struct api_caller *caller, enum api_role role, const char *cluster, const char *account,
             const char *user);
/* To see it as READER; as DETECTOR too in calls that need that role, whose callers may point at what they may not read. */
bool api_may_see_job(const struct api_caller *caller, const struct job *j);
/* An incident about a job goes with the job; everything else hangs on the cluster, which is taken as visible. */
bool api_may_see_entry(const struct api_caller *caller, const struct entry *e);
bool api_may_see_cluster(const struct api_caller *caller, const char *cluster);
/* Everything of the cluster, all users' jobs: for what cannot be told apart by job. */
bool api_may_see_all(const struct api_caller *caller, const char *cluster);
/* api_may() as an error: -ADV_NOT_FOUND for a cluster that @caller may not see, -ADV_PERMISSION_DENIED. */
adv_must_check int api_check(const struct api_caller *caller, enum api_role role, const char *cluster, const char *account,
                             const char *user, struct adv_err *err);

/* Ends @api once api_free() was called and no store's answer is outstanding. */
void api_maybe_free(struct api *api);

/* For the transport: one message of a unary call or of a server stream. @req is valid until the call ends. */
void api_dispatch(struct api_call *call, const ProtobufCMessage *req);

/* ---- for the services ---- */

struct api {
    uv_loop_t *loop;
    struct turn *turn;
    struct watcher_rules *rules;
    struct api_config cfg;
    struct api_enrol enrol;
    uv_timer_t tick;
    struct turn_observer observer;
    struct agent_session *sessions; /* agent_service.c */
    struct agent_session *to_flush; /* agent_service.c: of these, who has something to say after the callbacks of a turn */
    struct agent_group *groups;     /* agent_service.c: sessions and log streams by cluster */
    uint64_t told_seq;              /* newest change that sessions heard of */
    size_t n_arriving;              /* sessions that are being admitted */
    struct watch *watches;          /* watch_service.c */
    struct logs *logs;              /* logs.c */
    size_t n_sessions;
    struct retention *retention;    /* retention.c */
    struct append *appends;         /* audit_append.c */
    struct export *exports;         /* otlp_service.c */
    size_t n_exports;
    struct owner *owner;      /* NULL: everything is owned */
    struct pending *pending;  /* handoff.c */
    struct answer *early_answers; /* handoff.c */
    struct errand *errands;   /* handoff.c */
    struct reason *reasons;   /* handoff.c */
    bool stopping;
    bool freed; /* api_free() was called */
};

extern const struct api_method fleet_service_methods[], job_service_methods[], advice_service_methods[],
    audit_service_methods[], watch_service_methods[], agent_service_methods[], entries_methods[],
    policy_service_methods[], cert_methods[], retention_methods[], signal_service_methods[], report_service_methods[], otlp_methods[],
    workflow_methods[];
extern const size_t fleet_service_n, job_service_n, advice_service_n, audit_service_n, watch_service_n, agent_service_n,
    entries_n, policy_service_n, cert_methods_n, retention_n, signal_service_n, report_service_n, otlp_n, workflow_n;

void agent_service_start(struct api *api);
/* The cluster of a live session of this caller; NULL when there is none of that id. */
const char *agent_service_cluster(const struct api_call *call, const char *session_id);
void agent_service_tick(struct api *api);
void agent_service_changed(struct api *api);
void agent_service_reset(struct api *api, const struct adv_err *why);
adv_must_check int retention_start(struct api *api, struct adv_err *err);
void retention_tick(struct api *api);
bool retention_busy(const struct api *api);
void retention_free(struct api *api);
void watch_service_tick(struct api *api);
void watch_service_changed(struct api *api);
void watch_service_reset(struct api *api, const struct adv_err *why);

/* Page arguments: 1..1000, 0 means 100. Errors: -ADV_INVALID_ARGUMENT, field "page_size". */
adv_must_check int api_page_size(uint32_t asked, uint32_t *ret, struct adv_err *err);
/* "clusters/<id>" in @field. Errors: -ADV_INVALID_ARGUMENT. */
adv_must_check int api_cluster_name(const char *field, const char *name, struct resource_path *ret, struct adv_err *err);
/* The same, and the cluster. Errors: also -ADV_NOT_FOUND (what @caller may not see, too). */
adv_must_check int api_find_cluster(struct api *api, const struct api_caller *caller, const char *field, const char *name,
                                    struct cluster **ret, struct adv_err *err);
/* "clusters/<id>" (or "clusters/-" when @ret_all is given). Errors: -ADV_INVALID_ARGUMENT, -ADV_NOT_FOUND (also what
 * @caller may not see). */
adv_must_check int api_find_parent(struct api *api, const struct api_caller *caller, const char *parent,
                                   struct cluster **ret, bool *ret_all, struct adv_err *err);

/* SHA-256 of a request's type and bytes, hex: what makes two requests the same. */
adv_must_check int api_request_hash(const ProtobufCMessage *req, char ret_hex[65], struct adv_err *err);

/* A write with one answer: @build makes the reply once the event is durable. Checks request ids, and that the caller has
 * the method's role for the event's cluster as a whole. */
struct api_write;
typedef int (*api_build)(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                         struct adv_err *err);
void api_write(struct api_call *call, const ProtobufCMessage *req, const char *request_id, const struct event *ev,
               api_build build);
/* The same about one attempt, by name or reference: the caller needs the method's role where its job stands. @fill gets
 * the attempt and its resource name, which lives until the event is done, and completes the event. */
typedef void (*api_fill)(struct event *ev, const struct attempt *a, const char *attempt_name);
void api_write_attempt(struct api_call *call, const ProtobufCMessage *req, const char *request_id, const char *name,
                       const Advisor__V1__AttemptRef *ref, const struct event *ev, api_fill fill, api_build build);

/* Errors: -ADV_INVALID_ARGUMENT (REQUEST_ID_TOO_LONG). */
adv_must_check int api_request_id(const char *request_id, struct adv_err *err);
/* A text of a caller: @min to @max characters, none of them a control character.
 * Errors: -ADV_INVALID_ARGUMENT (TEXT_MISSING, TEXT_TOO_LONG, TEXT_MALFORMED), field @field. */
adv_must_check int api_text(const char *field, const char *text, size_t min, size_t max, struct adv_err *err);
/* A time of a caller; 0 for none. Errors: -ADV_INVALID_ARGUMENT (TIME_MALFORMED), field @field. */
adv_must_check int api_time(const char *field, const Google__Protobuf__Timestamp *t, int64_t *ret_us, struct adv_err *err);
/* A word of a caller: @min to @max of letters, digits and @also.
 * Errors: -ADV_INVALID_ARGUMENT (WORD_MALFORMED), field @field. */
adv_must_check int api_word(const char *field, const char *word, size_t min, size_t max, const char *also,
                            struct adv_err *err);
#define API_REASON_MAX 500

/* Log bytes of attempts: one scan an attempt and stream. A new call of @cluster may send again what was sent before, so
 * all scans start anew with it. Scanning takes the processor: who has more than LOGS_SLICE_BYTES does it as work. */
int logs_new(struct api *api);
void logs_set_rules(struct api *api); /* api->rules is another set */
void logs_opened(struct api *api, const char *cluster);
void logs_closed(struct api *api, const char *cluster);
void logs_chunk(struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                const char *stream, uint64_t offset, const void *bytes, size_t len, uint64_t dropped, int64_t observe_us);
/* Whole lines of somebody who is not the agent and counts no offsets; @stream is a name that no agent uses. @submit_unix 0: not
 * said. False: there are as many streams as there may be. */
bool logs_append(struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                 const char *stream, const void *bytes, size_t len, int64_t observe_us);
/* How many findings that stream of logs_append() has given so far, and whether so many of them are stored, or wait for an
 * attempt that is not known yet. */
uint64_t logs_found(const struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                    const char *stream);
bool logs_settled(const struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                  const char *stream, uint64_t found);
void logs_tick(struct api *api);
void logs_changed(struct api *api); /* something was committed: findings that waited for it are tried again */
void logs_free(struct api *api);
void otlp_free(struct api *api);

#define LOGS_SLICE_BYTES 32768
/* Something that feeds logs_chunk(), in turn with all others. step() does about LOGS_SLICE_BYTES and says whether there
 * is more; it may free what it is part of when it says no. */
struct log_work {
    bool (*step)(struct log_work *w);
    bool queued;
    struct log_work *prev, *next;
};
void logs_work(struct api *api, struct log_work *w);
void logs_work_cancel(struct api *api, struct log_work *w);

#endif
