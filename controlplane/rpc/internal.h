/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_INTERNAL_H
#define ADV_CONTROLPLANE_RPC_INTERNAL_H

/* What the files of rpc/ share. Everything belongs to the loop thread unless it says otherwise. */

#include <grpc/grpc.h>
#include <uv.h>

#include "common/arena.h"
#include "common/hash.h"
#include "controlplane/rpc/accept.h"
#include "controlplane/rpc/pump.h"
#include "controlplane/rpc/rpc.h"
#include "controlplane/rpc/tls.h"

/* An outstanding operation. Its address is what core hands back; @fn runs on the loop thread. */
struct rpc_tag {
    void (*fn)(struct rpc_tag *tag, bool ok);
};

/* ThreadSanitizer does not see the happens-before inside libgrpc: told here. */
#if defined(__SANITIZE_THREAD__)
#define RPC_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RPC_TSAN 1
#endif
#endif
#ifdef RPC_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define RPC_TAG_GIVE(tag) __tsan_release(tag)
#define RPC_TAG_TAKE(tag) __tsan_acquire(tag)
#else
#define RPC_TAG_GIVE(tag) ((void) (tag))
#define RPC_TAG_TAKE(tag) ((void) (tag))
#endif

/* A row of the caller's table or of a built-in service, found by path. */
struct rpc_entry {
    struct rpc_method method; /* limits filled in */
    bool builtin;             /* no authorize */
    UT_hash_handle hh;
};

struct rpc_health;
struct rpc_reflection;

struct rpc_server {
    uv_loop_t *loop;
    struct rpc_config cfg; /* with defaults; of its pointers only descriptor_set and user live */
    grpc_server *server;
    struct rpc_pump *pump; /* NULL once given back */
    grpc_completion_queue *cq; /* the pump's */
    struct rpc_pumped pumped;
    struct rpc_tls *tls;
    int *ports;
    int *lock_fds; /* of unix listeners, -1 otherwise */
    size_t n_listen;

    struct rpc_entry *entries; /* memory */
    struct rpc_entry *methods; /* hash by path */

    bool looked; /* at the connections, since there is a suspicion */
    uv_timer_t watch;
    uv_timer_t sweep;       /* flush timeouts */
    uv_timer_t files;       /* certificate files */
    uv_timer_t grace;       /* of stop */
    struct rpc_call *calls; /* with a live grpc_call */
    struct rpc_call
        *half_closed; /* those to be told after this batch of events; each holds a reference */
    struct rpc_accept *accepts;
    struct rpc_tag shutdown_tag;
    int open_handles;
    bool started, stopping, shut_down, destroyed;
    void (*stopped)(void *user);
    void *stopped_user;

    struct rpc_cert *certs; /* peer.c: of clients */
    struct rpc_cert *newest_cert; /* one of these, or NULL */
    struct rpc_health *health;
    struct rpc_reflection *reflection;
    struct rpc_reset_peer *reset_peers; /* resets.c */
    bool suspicion; /* somebody aborts too many calls, and they do not tell who */
    struct rpc_stats stats;
};

struct rpc_out {
    struct rpc_out *next;
    grpc_byte_buffer *bytes;
    size_t len;
};

struct rpc_call {
    struct rpc_server *srv;
    const struct rpc_method *method; /* NULL: unknown */
    struct rpc_call *next, *prev;    /* srv->calls */
    int refs;
    int pending; /* batches core has not given back; each holds a reference */

    grpc_call *call; /* NULL once released */
    grpc_call_details details;
    grpc_metadata_array metadata;
    int64_t deadline_mono_us;
    int64_t begun_mono_us;
    struct rpc_peer *peer;
    void *user;

    struct rpc_tag t_close, t_recv, t_send, t_status;
    int cancelled_flag; /* written by core before t_close or t_status comes */
    bool close_armed;   /* RECV_CLOSE is started */
    bool close_in_status;
    bool ended; /* RECV_CLOSE came back: no more callbacks but on_closed */
    bool initial_sent;
    bool opened; /* on_open came, so on_closed will */
    bool cancelled_here; /* by us, not by the client */
    bool heard;          /* a message of the client has come */
    bool keyed;          /* then: over the connection below */
    struct rpc_accept_key key;

    grpc_byte_buffer *recv; /* written by core */
    bool recv_pending;
    bool half_closed;
    bool probing; /* t_send carries no message but the question whether the stream lives */
    struct rpc_call *next_half_closed; /* srv->half_closed */
    struct adv_arena arena;            /* the current message */

    struct rpc_out *q_head, **q_tail;
    size_t q_bytes, q_messages; /* the one on its way included */
    size_t sending_len;
    bool send_pending;
    bool was_full;

    bool finishing; /* the status is decided */
    bool status_started;
    int64_t flush_by_mono_us;
    grpc_byte_buffer *reply;
    grpc_status_code status;
    grpc_slice status_text;
    grpc_slice status_details;
    bool has_details;
    grpc_metadata trailer;
};

/* call.c */
int rpc_call_new(struct rpc_server *srv, struct rpc_call **ret);
void rpc_call_begin(
    struct rpc_call *call); /* details and metadata are there; looks up the method and starts it */
void rpc_call_sweep(struct rpc_server *srv, int64_t now_mono_us);
void rpc_call_half_closes(struct rpc_server *srv);
void rpc_call_free_unstarted(struct rpc_call *call);

/* resets.c: @call was aborted by its client. */
void rpc_resets_note(struct rpc_server *srv, grpc_call *call);
void rpc_resets_sweep(struct rpc_server *srv, int64_t now_us);
void rpc_resets_free(struct rpc_server *srv);

/* health.c: rows are appended to the server's table. */
extern const struct rpc_method rpc_health_methods[];
extern const size_t rpc_n_health_methods;
int rpc_health_new(struct rpc_server *srv, struct adv_err *err);
void rpc_health_free(struct rpc_server *srv);
void rpc_health_all(struct rpc_server *srv, bool serving);

/* reflection.c */
extern const struct rpc_method rpc_reflection_methods[];
extern const size_t rpc_n_reflection_methods;
/* Indexes the descriptor set and checks that each row of the table is in it as it says.
 * Errors: -ADV_INVALID_ARGUMENT, -ADV_RESOURCE_EXHAUSTED. */
int rpc_reflection_new(struct rpc_server *srv, const struct rpc_method *table, size_t n_table,
                       struct adv_err *err);
void rpc_reflection_free(struct rpc_server *srv);

/* peer.c */
struct rpc_peer *rpc_peer_new(struct rpc_server *srv, grpc_call *call);
void rpc_certs_free(struct rpc_server *srv);
struct rpc_peer *rpc_peer_free(struct rpc_peer *peer);

/* status.c: packed google.rpc.Status. Returns false when there is no memory. */
bool rpc_status_details(const struct adv_err *err, grpc_slice *ret);

#endif
