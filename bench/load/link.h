/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_LOAD_LINK_H
#define BENCH_LOAD_LINK_H

/* One connection of thousands: TCP, TLS and the agent's own HTTP/2 client (wire/h2.h), on one loop. What wire_conn does
 * for one agent (name lookup, certificate files read at each connect, back-off, keepalive) is left out or shared, so that
 * the server is what a benchmark measures.
 *
 * Thread: loop thread.  Errors of the bench's own machine (memory, descriptors) end the program. */

#include <openssl/ssl.h>
#include <uv.h>

#include "advisor-agent/wire/call.h"

/* What all links of a program share. */
struct link_env {
    uv_loop_t *loop;
    struct sockaddr_in addr;
    SSL_CTX *tls; /* NULL: plaintext */
    EVP_PKEY *ca_key, *key; /* of the authority; of every client */
    X509 *ca;
    struct wire_config cfg;
};

/* @ca_dir has ca.crt and ca.key; NULL for plaintext. */
void link_env_init(struct link_env *env, uv_loop_t *loop, int port, const char *ca_dir);
/* A certificate with that URI name, signed by the authority. The caller's. */
X509 *link_env_issue(struct link_env *env, const char *uri);

struct link;
struct link_ops {
    void (*ready)(void *ctx);              /* calls may be made */
    void (*closed)(void *ctx, const char *why); /* by the other side; the link is gone when this returns */
};

/* Begins to connect. With @bare nothing is spoken over TLS: ready comes with the first byte of the server. */
struct link *link_open(struct link_env *env, X509 *cert, bool bare, const struct link_ops *ops, void *ctx);
/* Drops the connection without a word to the other side; no callback follows, calls end without one. Returns NULL. */
struct link *link_close(struct link *l);

struct link_call;
struct link_call_ops {
    void (*message)(void *ctx, struct link_call *c, const uint8_t *data, size_t len);
    void (*closed)(void *ctx, struct link_call *c, const struct wire_status *status); /* @c is gone when this returns */
};
struct link_call *link_call(struct link *l, const char *path, const struct link_call_ops *ops, void *ctx);
/* Queues; what is queued leaves at link_flush(), or by itself after a callback of this link. */
void link_send(struct link_call *c, const void *bytes, size_t len, bool last);
void link_flush(struct link *l);
/* Stops reading from the socket, as a peer that hangs does. */
void link_stall(struct link *l);

#endif
