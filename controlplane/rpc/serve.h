/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_RPC_SERVE_H
#define CONTROLPLANE_RPC_SERVE_H

/* The API over gRPC: api_methods() as rows of an rpc server; callers from client certificates or bearer tokens, with a quota
 * each. A call that outlives its caller's certificate or token is ended.
 *
 * Thread: loop thread. */

#include "controlplane/api/api.h"
#include "controlplane/auth/quota.h"
#include "controlplane/rpc/rpc.h"

struct serve;

/* Starts serving @api. @auth stays the caller's and outlives the server. @cfg's descriptor_set, authorize and user are filled in here.
 * Errors: as rpc_server_new(). */
adv_must_check int serve_new(uv_loop_t *loop, struct api *api, struct auth *auth, const struct quota_config *quota,
                             const struct rpc_config *cfg, struct serve **ret, struct adv_err *err);
/* For calls from now on. */
void serve_set_quota(struct serve *s, const struct quota_config *quota);
struct rpc_server *serve_server(struct serve *s);
/* Stops taking calls, lets those under way end for @grace_ms; @stopped on the loop. */
void serve_stop(struct serve *s, int grace_ms, void (*stopped)(void *arg), void *arg);
/* After @stopped; the loop has to run once more. Returns NULL. */
struct serve *serve_free(struct serve *s);

#endif
