/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_RPC_H
#define ADV_CONTROLPLANE_RPC_RPC_H

/* The gRPC edge: a server over a table of methods, with messages as protobuf-c structs and errors
 * as `struct adv_err`.
 *
 * Everything here belongs to the loop thread: all functions are called on it and all callbacks come
 * on it. gRPC's I/O is done on it too, while the loop waits (pump.h). Nothing blocks, apart from
 * rpc_server_new() (reads certificate files, binds).
 *
 * Before a handler sees a message it has passed the door (door.h): size, compression, depth, UTF-8,
 * memory. */

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>
#include <uv.h>

#include "common/err.h"

struct rpc_server;
struct rpc_call;

/* ---- methods ---- */

enum rpc_kind {
    RPC_UNARY,
    RPC_SERVER_STREAM,
    RPC_CLIENT_STREAM,
    RPC_BIDI,
};

/* One row of the table. The table is borrowed and must outlive the server. Callbacks that a method
 * does not need are NULL. Order of callbacks for one call:
 *
 *   on_open      the call exists, nothing was read. May fail the call (rpc_call_fail); then only
 *   on_closed follows.
 *   on_message   one request message. It is valid until rpc_stream_read_next() or the end of the
 *                call, and longer while a reference is held (rpc_call_ref).
 *                RPC_UNARY, RPC_SERVER_STREAM: comes once. Streams of the client: the next one
 *                comes only after rpc_stream_read_next(), so a handler that does not ask is not
 *                flooded: the client's window closes.
 *   on_half_close the client sent its last message (client streams only). RPC_CLIENT_STREAM:
 *   certain, never for a lost
 *                or cancelled upload. RPC_BIDI: once responses were sent a lost stream may look
 *                like this just before
 *                on_closed says cancelled; do not let anything durable hang on it.
 *   on_writable  the queue of rpc_stream_send() fell to half of its limits after having been over
 *   that.
 *   on_closed    the end, exactly once, also after on_open failed. @cancelled: by the client, its
 *   deadline or connection,
 *                or by us. Afterwards the call may be used only with a reference, and all it then
 *                does is nothing. */
struct rpc_method {
    const char *path; /* "/advisor.v1.JobService/ListJobs" */
    enum rpc_kind kind;
    const ProtobufCMessageDescriptor *request, *response;
    void (*on_open)(struct rpc_call *call);
    void (*on_message)(struct rpc_call *call, const ProtobufCMessage *msg);
    void (*on_half_close)(struct rpc_call *call);
    void (*on_writable)(struct rpc_call *call);
    void (*on_closed)(struct rpc_call *call, bool cancelled);
    bool arrives;               /* its connection counts as new until rpc_call_arrived() */
    size_t max_request_bytes;   /* 0: rpc_config.max_request_bytes */
    bool gzip;                  /* messages may come compressed; the limit is on what comes out */
    size_t send_queue_bytes;    /* 0: rpc_config.send_queue_bytes */
    size_t send_queue_messages; /* 0: rpc_config.send_queue_messages */
    void *user;                 /* for the handler: rpc_call_method(call)->user */
};

/* ---- server ---- */

enum rpc_client_cert {
    RPC_CLIENT_CERT_REQUIRED, /* no handshake without a certificate of our CA */
    RPC_CLIENT_CERT_OPTIONAL, /* verified when there is one; authorize() decides */
};

/* 0 in a number stands for the default named beside it. Strings are copied. */
struct rpc_config {
    const char *const *listen; /* "host:port", "[::1]:0" (port 0: any free one), "unix:/path" */
    size_t n_listen;
    bool insecure; /* no TLS; only for loopback and unix addresses */
    const char *cert_file, *key_file, *ca_file;
    const char *second_ca_file; /* NULL or "": none. Signs clients too, whose peer then says by_second_ca; of another
                                 * name than those in ca_file, with pathlen:0 */
    enum rpc_client_cert client_cert;
    int tls_check_ms; /* how often the files are looked at: 10,000 */

    size_t max_request_bytes;   /* 4 MiB */
    size_t send_queue_bytes;    /* 1 MiB */
    size_t send_queue_messages; /* 1,024 */
    int max_metadata_bytes;     /* 16 KiB: no identity here needs more */
    int max_concurrent_streams; /* for each connection: 128 */
    size_t max_connections;     /* for the whole process: 16,384 */
    int keepalive_time_ms;      /* idle time before a ping: 30,000 */
    int keepalive_timeout_ms;   /* 10,000: a dead peer is noticed within the sum */
    int min_ping_interval_ms;   /* clients that ping more often are sent away: 5,000 */
    int handshake_timeout_ms;   /* 10,000 */
    int max_connection_age_ms;  /* 0: none */
    int request_timeout_ms;     /* a call whose first message does not come is ended after: 30,000 */
    int max_aborted_calls;      /* of one connection at a time, refilled by 50 a second; then it is ended: 500 */
    int flush_timeout_ms; /* an ended stream whose client does not read is cut off after: 20,000 */

    /* Serialized FileDescriptorSet: served by reflection, and the table is checked against it.
     * NULL: no reflection. */
    const unsigned char *descriptor_set;
    size_t descriptor_set_len;

    /* May this caller call this method? Before anything is read; not asked for health checks. NULL:
     * all may. Returns 0 or a negative code with @err set, which then ends the call. */
    int (*authorize)(void *user, struct rpc_call *call, struct adv_err *err);
    void *user;
};

/* "127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/path": nobody else's network is between. Pure. */
bool rpc_address_is_local(const char *addr);

/* Starts serving @table on @loop. The first server of a process also ignores SIGPIPE, raises the
 * descriptor limit, takes over gRPC's log and the accept of connections (accept.h).
 * Owner:  caller; rpc_server_stop(), then rpc_server_free() once stopped.
 * Errors: -ADV_INVALID_ARGUMENT (configuration, table; insecure on a public address);
 *         -ADV_UNAVAILABLE (address in use, unix path held by another server); -ADV_NOT_FOUND /
 *         -ADV_PERMISSION_DENIED (certificate files); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int rpc_server_new(uv_loop_t *loop, const struct rpc_config *config,
                                  const struct rpc_method *table, size_t n_table,
                                  struct rpc_server **ret, struct adv_err *err);

/* Stops accepting, lets calls end for @grace_ms, then cancels them; @stopped comes when nothing is
 * left. Handlers should end their streams when they learn of the stop by other means. Health
 * answers NOT_SERVING from now on. */
void rpc_server_stop(struct rpc_server *srv, int grace_ms, void (*stopped)(void *user), void *user);

/* Only after @stopped (or for NULL). Returns NULL. */
struct rpc_server *rpc_server_free(struct rpc_server *srv);

/* Makes the loop turn now, sooner than uv_async_send() would: the server's loop waits in core.
 * Thread: any, before rpc_server_stop(). */
void rpc_server_wake(struct rpc_server *srv);

/* The port of the @i-th listen address; 0 for unix sockets and past the end. */
int rpc_server_port(const struct rpc_server *srv, size_t i);

/* Reads the certificate files now. A broken file keeps the old certificate and gives an error. */
adv_must_check int rpc_server_reload_tls(struct rpc_server *srv, struct adv_err *err);

/* Health of @service ("" is the whole server, SERVING from the start; unknown services are
 * NOT_FOUND). */
adv_must_check int rpc_health_set(struct rpc_server *srv, const char *service, bool serving,
                                  struct adv_err *err);

struct rpc_stats {
    uint64_t calls_started, calls_refused; /* refused: unknown method, door or authorize said no */
    uint64_t calls_live, calls_cancelled;
    uint64_t messages_in, messages_out, bytes_in, bytes_out;
    uint64_t connections_accepted, connections_over_cap, connections_kicked, accept_out_of_fds;
};
void rpc_server_stats(const struct rpc_server *srv, struct rpc_stats *ret);

/* ---- a call ---- */

/* A counted reference keeps @call's memory (not its connection). Every function below is harmless
 * on an ended call. */
struct rpc_call *rpc_call_ref(struct rpc_call *call);
struct rpc_call *rpc_call_unref(struct rpc_call *call); /* returns NULL, tolerates NULL */

const struct rpc_method *rpc_call_method(const struct rpc_call *call);
struct rpc_server *rpc_call_server(const struct rpc_call *call);
void rpc_call_set_user(struct rpc_call *call, void *user); /* one pointer for the handler */
void *rpc_call_user(const struct rpc_call *call);
bool rpc_call_ended(const struct rpc_call *call);

struct rpc_peer {
    bool authenticated;      /* a client certificate of our CA */
    const char *common_name; /* "" when unknown */
    const char *const *sans; /* subject alternative names: DNS names, URIs, addresses */
    size_t n_sans;
    const char *const *uris;  /* of those, the ones of type URI: a DNS name that looks like one is not among them */
    size_t n_uris;
    const char *address;  /* "ipv4:10.0.0.1:5555", "unix:" */
    char cert_sha256[65]; /* hex of the certificate's DER; "" without one */
    char cert_serial[41]; /* lower-case hex without zeros in front; "" without one, or when it is longer */
    int64_t cert_not_before_s, cert_not_after_s; /* since 1970 */
    bool by_second_ca;
};
/* Who calls. Owner: borrowed, valid as long as the call. NULL when memory is gone or the call has
 * ended before the first question. */
const struct rpc_peer *rpc_call_peer(struct rpc_call *call);

/* What had to be done at the beginning of a call of a method that `arrives` is done. Only so many
 * connections are new at one time, while others wait to be accepted (accept.h), so calls that begin
 * with work hold the next ones back, for a second at most. */
void rpc_call_arrived(struct rpc_call *call);

/* Monotonic microseconds; INT64_MAX without a deadline. Core cancels the call by itself when it
 * passes. */
int64_t rpc_call_deadline_mono_us(const struct rpc_call *call);

/* The first value of request header @key (lower case), not NUL-terminated. Borrowed until
 * on_closed. NULL: none. */
const char *rpc_call_metadata(const struct rpc_call *call, const char *key, size_t *ret_len);
/* How often request header @key was sent. */
size_t rpc_call_metadata_count(const struct rpc_call *call, const char *key);

/* The one answer of RPC_UNARY and RPC_CLIENT_STREAM, with status OK. @msg is packed before the
 * return. */
void rpc_call_reply(struct rpc_call *call, const ProtobufCMessage *msg);

/* rpc_call_fail() of a caller who may not call, from within on_open: counted as refused. */
void rpc_call_refuse(struct rpc_call *call, const struct adv_err *err);

/* Ends any call with a status made from @err: code, message, and details ErrorInfo (reason, or the
 * code's name), BadRequest (field), RetryInfo (retry_after_ms). What a stream has queued is
 * dropped. */
void rpc_call_fail(struct rpc_call *call, const struct adv_err *err);

/* ---- streams ---- */

/* Asks for the next on_message or on_half_close. The message before is freed. True: a message is here already, and on_message
 * comes soon. */
bool rpc_stream_read_next(struct rpc_call *call);

/* Queues one response. Sent in order.
 * Errors: -ADV_RESOURCE_EXHAUSTED (the queue's bytes or messages are over the limit: what now is
 *         the caller's policy); -ADV_CANCELLED (the call has ended). */
adv_must_check int rpc_stream_send(struct rpc_call *call, const ProtobufCMessage *msg);

/* The same with bytes encoded once for many streams; they are shared, not copied. */
struct rpc_bytes;
adv_must_check struct rpc_bytes *rpc_bytes_new(const ProtobufCMessage *msg); /* NULL: no memory */
struct rpc_bytes *rpc_bytes_ref(struct rpc_bytes *b);
struct rpc_bytes *rpc_bytes_unref(struct rpc_bytes *b); /* returns NULL, tolerates NULL */
adv_must_check int rpc_stream_send_bytes(struct rpc_call *call, struct rpc_bytes *b);

/* What waits in the queue, the message on its way included. */
size_t rpc_stream_queued_bytes(const struct rpc_call *call);

/* Ends a stream of ours with OK after the queue is sent; a client that does not read it within
 * flush_timeout_ms is cut off. For an error use rpc_call_fail(). */
void rpc_stream_finish(struct rpc_call *call);

#endif
