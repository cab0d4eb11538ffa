/* SPDX-License-Identifier: Apache-2.0 */

/* Clients that open calls and abort them at once.
 *
 * HTTP/2 counts only streams that are open, so the limit on streams does not hold back a client that
 * resets each as soon as it has opened it ("rapid reset", CVE-2023-44487; or has us reset it by
 * breaking a rule, CVE-2025-8671). Core 1.51 puts each of them into a queue without bound, from
 * which this server takes them one by one: some kilobytes each, and everybody else's calls behind
 * them. So aborted calls are counted by connection, against an allowance that refills with time,
 * and a connection that has used it up is ended. What it has put into the queue until then is
 * what the allowance and one socket buffer hold.
 *
 * A call that was reset before core had looked at it does not tell whose it was. These share one
 * allowance; when it is used up the server looks which connection sends what nobody gets (server.c). */

#include <grpc/support/alloc.h>

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/rpc/accept.h"
#include "controlplane/rpc/internal.h"

#define PEERS_MAX    4096
#define REFILL_PER_S 50 /* aborted calls: people at a keyboard and deadlines that pass stay far below */

struct rpc_reset_peer {
    struct rpc_accept_key key; /* zeros: not known */
    int64_t left;              /* of the allowance */
    int64_t at_us;
    UT_hash_handle hh;
};

static struct rpc_reset_peer *find(struct rpc_server *srv, const struct rpc_accept_key *key, int64_t now_us)
{
    struct rpc_reset_peer *p = NULL;

    HASH_FIND(hh, srv->reset_peers, key, sizeof(*key), p);
    if (p || HASH_COUNT(srv->reset_peers) >= PEERS_MAX)
        return p;
    p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->key = *key;
    p->left = srv->cfg.max_aborted_calls;
    p->at_us = now_us;
    HASH_ADD(hh, srv->reset_peers, key, sizeof(p->key), p);
    if (p->hh.tbl)
        return p;
    free(p);
    return NULL;
}

void rpc_resets_note(struct rpc_server *srv, grpc_call *call)
{
    char *address = grpc_call_get_peer(call);
    int64_t now_us = adv_mono_us(), max = srv->cfg.max_aborted_calls, more;
    struct rpc_accept_key key;
    bool known = rpc_accept_key(address ? address : "", &key);
    struct rpc_reset_peer *p = find(srv, &key, now_us);

    if (p) {
        more = (now_us - p->at_us) * REFILL_PER_S / 1000000;
        if (more > 0) {
            p->left = p->left + more < max ? p->left + more : max;
            p->at_us = now_us;
        }
        p->left--;
    }
    if (p && p->left <= 0) {
        if (!known)
            srv->suspicion = true;
        else if (rpc_accept_kick(&key))
            adv_warn("rpc", "a client opens calls and aborts them at once: its connection is ended",
                     ADV_FS("peer", address));
        p->left = max;
    }
    gpr_free(address);
}

void rpc_resets_sweep(struct rpc_server *srv, int64_t now_us)
{
    struct rpc_reset_peer *p, *next;

    HASH_ITER(hh, srv->reset_peers, p, next)
        if (now_us - p->at_us > srv->cfg.max_aborted_calls * INT64_C(1000000) / REFILL_PER_S) {
            HASH_DEL(srv->reset_peers, p); /* full again */
            free(p);
        }
}

void rpc_resets_free(struct rpc_server *srv)
{
    struct rpc_reset_peer *p, *next;

    HASH_ITER(hh, srv->reset_peers, p, next) {
        HASH_DEL(srv->reset_peers, p);
        free(p);
    }
}
