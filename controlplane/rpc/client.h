/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_CLIENT_H
#define ADV_CONTROLPLANE_RPC_CLIENT_H

/* Calls to one server of somebody else: one request, one answer, a deadline. On the queue of the pump, so that callbacks come
 * on the loop thread.
 *
 * The other side is not trusted: an answer is bounded (max_response_bytes), is never inflated, and passes the same door as a
 * request (door.h) before anybody sees it. Nothing is tried again here: a call to a server that is not there fails at once,
 * while the channel is dialled again with a growing pause. There is no plaintext but to loopback and unix addresses.
 *
 * Certificate files are looked at again when a call is made, at most every ten seconds; what cannot be read leaves the old
 * ones.
 *
 * Thread: loop thread.  Blocks: no, but for reading certificate files. */

#include <protobuf-c/protobuf-c.h>
#include <uv.h>

#include "common/err.h"

struct rpc_client;

/* Strings are copied. */
struct rpc_client_config {
    const char *target;  /* "host:port", "[v6]:port", "unix:/path" */
    const char *ca_file; /* that signs the server's certificate, PEM; NULL or "": plaintext */
    const char *cert_file, *key_file; /* the client's own; NULL or "": none */
    size_t max_response_bytes;
};

/* Errors: -ADV_INVALID_ARGUMENT (plaintext to elsewhere), -ADV_NOT_FOUND, -ADV_PERMISSION_DENIED (files),
 *         -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int rpc_client_new(uv_loop_t *loop, const struct rpc_client_config *cfg, struct rpc_client **ret,
                                  struct adv_err *err);

/* @answer is NULL when there is none, and @err says why: the server's status, or DEADLINE_EXCEEDED, UNAVAILABLE,
 * RESOURCE_EXHAUSTED (too large), CANCELLED (rpc_client_stop), and the door's reasons. Both are valid during the callback
 * only. Text of the server in @err is cut, and nothing in it but printable ASCII. */
typedef void (*rpc_client_cb)(void *arg, const ProtobufCMessage *answer, const struct adv_err *err);

/* @path: "/advisor.v1.AttributionService/Attribute". @request is packed before this returns. @cb is called exactly once if
 * this returns 0, later. Errors: -ADV_RESOURCE_EXHAUSTED, -ADV_UNAVAILABLE (stopped). */
adv_must_check int rpc_client_call(struct rpc_client *c, const char *path, const ProtobufCMessage *request,
                                   const ProtobufCMessageDescriptor *answer, int timeout_ms, rpc_client_cb cb, void *arg,
                                   struct adv_err *err);

/* Cancels what is under way; @stopped is called from the loop once all callbacks have come. No call is made any more. */
void rpc_client_stop(struct rpc_client *c, void (*stopped)(void *arg), void *arg);
/* After that. Takes NULL, returns NULL. */
struct rpc_client *rpc_client_free(struct rpc_client *c);

#endif
