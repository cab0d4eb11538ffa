/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_ACCEPT_H
#define ADV_CONTROLPLANE_RPC_ACCEPT_H

/* The process's own accept4(2). Any thread. The program must be linked with -rdynamic (the rpc
 * dependency does it), so that libgrpc and libuv bind to this definition. */

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Connections beyond @max_connections of the whole process are accepted and closed at once. Until
 * this is called there is no cap and no reserve descriptor.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int rpc_accept_configure(size_t max_connections, struct adv_err *err);

/* Ends the cap and frees what it needs. For a clean exit. */
void rpc_accept_done(void);

struct rpc_accept_stats {
    uint64_t accepted, over_cap, out_of_fds;
};
void rpc_accept_stats(struct rpc_accept_stats *ret);

#endif
