/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_KEYS_H
#define CONTROLPLANE_AUTH_KEYS_H

/* The keys of one issuer, kept fresh: read at the start, by timer, and when a token names a key that is not there (rotated
 * keys are used at once), but never more often than every KEYS_MIN_INTERVAL_MS, or strangers could have an identity
 * provider flooded by us. What cannot be read, or is no set of keys, leaves the old ones in force.
 *
 * Thread: loop thread.  Blocks: no. */

#include <uv.h>

#include "controlplane/auth/bindings.h"
#include "controlplane/auth/jwks.h"

#define KEYS_MIN_INTERVAL_MS 5000

struct keys;

/* @is is copied as far as it is needed. Reading begins at once. @changed(arg) comes after new keys are in force.
 * NULL: no memory. */
adv_must_check struct keys *keys_new(uv_loop_t *loop, const struct bindings_issuer *is, void (*changed)(void *arg),
                                     void *arg);
/* Its memory goes in a later turn of the loop. Returns NULL, tolerates NULL. */
struct keys *keys_free(struct keys *k);

/* NULL before the first success. Borrowed until the loop goes on. */
const struct jwks *keys_get(const struct keys *k);

/* A key is wanted that is not there. True: it is being looked for, so asking again in a moment makes sense. */
bool keys_want(struct keys *k);

/* The same source, so that a new file of bindings can take over keys that are there. */
bool keys_same(const struct keys *k, const struct bindings_issuer *is);

#endif
