/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_ACCEPT_H
#define ADV_CONTROLPLANE_RPC_ACCEPT_H

/* The process's own accept4(2), recvmsg(2) and epoll_ctl(2). Any thread. The program must be linked with -rdynamic
 * (the rpc dependency does it), so that libgrpc and libuv bind to these definitions. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Connections beyond @max_connections of the whole process are accepted and closed at once. Until
 * this is called there is no cap and no reserve descriptor.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int rpc_accept_configure(size_t max_connections, struct adv_err *err);

/* Ends the cap and frees what it needs. For a clean exit. */
void rpc_accept_done(void);

/* A connection by its peer. */
struct rpc_accept_key {
    uint8_t ip[16];
    uint32_t port;
    uint32_t unix_fd;
};

/* From @peer as core tells it of a call: "ipv4:10.0.0.1:5555", "ipv6:%5B::1%5D:5555". False for
 * anything else: unix sockets, and calls that were aborted before core knew. */
bool rpc_accept_key(const char *peer, struct rpc_accept_key *ret);

/* Whether any connection has made no call yet. Costs nothing. */
bool rpc_accept_has_new(void);

/* A call came over this connection: it is not new any more, and makes room for others. */
void rpc_accept_called(const struct rpc_accept_key *key);

/* Call it often: lets those in who wait behind connections that say nothing. */
void rpc_accept_tick(void);

/* A message of @bytes came over this connection; was sent over it. */
void rpc_accept_explain(const struct rpc_accept_key *key, size_t bytes);
void rpc_accept_explain_sent(const struct rpc_accept_key *key, size_t bytes);

/* How much is read of one connection in one turn, and a little more; the rest is read in the next. The loop tells of each
 * turn; @fd is an eventfd that is written to when somebody waits for that. */
#define RPC_ACCEPT_TURN_BYTES (32 << 10)
void rpc_accept_turn(void);
void rpc_accept_wake(int fd);

/* The thread that calls it is back from core: what it has read is parsed. */
void rpc_accept_parsed(void);

/* Ends a connection. False when it is not there (any more). */
bool rpc_accept_kick(const struct rpc_accept_key *key);

/* Notes what each connection has received, and: ends the one that has received most since then that
 * no message explains, if that is @min_bytes or more. Not those of unix sockets. */
#define RPC_ACCEPT_PEER_SIZE 64
void rpc_accept_look(void);
bool rpc_accept_kick_busiest(uint64_t min_bytes, char ret_peer[RPC_ACCEPT_PEER_SIZE]);

struct rpc_accept_stats {
    uint64_t accepted, over_cap, out_of_fds, kicked;
    uint64_t held_back; /* times that the queue had to wait */
};
void rpc_accept_stats(struct rpc_accept_stats *ret);

#endif
