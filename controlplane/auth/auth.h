/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_AUTH_H
#define CONTROLPLANE_AUTH_AUTH_H

/* Who calls, and what they may do: certificates and tokens on one side, the file of bindings (bindings.h) on the other.
 *
 * An identity is made when a call begins and lives as long as the call; what it may do is looked up anew whenever the file
 * has changed, so a right that was taken away is gone from calls under way too.
 *
 * Thread: loop thread.  Blocks: auth_new() and auth_reload() read one file. */

#include <uv.h>

#include "controlplane/auth/bindings.h"

struct auth;
struct identity;

struct auth_config {
    const char *bindings_path; /* NULL or "": none, roles of certificates hold everywhere */
    int check_ms;              /* how often that file is looked at; 0: 10,000 */
};

/* Errors: -ADV_NOT_FOUND / -ADV_PERMISSION_DENIED (file); as bindings_parse(). Owner: caller. */
adv_must_check int auth_new(uv_loop_t *loop, const struct auth_config *cfg, struct auth **ret, struct adv_err *err);
/* All identities are given back. Its memory goes in a later turn of the loop. Returns NULL, tolerates NULL. */
struct auth *auth_free(struct auth *a);

/* Reads the file now, from @path (NULL: the present one). A bad file changes nothing. Errors: as auth_new(). */
adv_must_check int auth_reload(struct auth *a, const char *path, struct adv_err *err);
/* Rises whenever rights may have changed. */
uint64_t auth_generation(const struct auth *a);
/* Tokens are taken at all. */
bool auth_takes_tokens(const struct auth *a);

/* A name in a certificate: "advisor:<role>:<name>". */
struct auth_name {
    enum api_role role;
    const char *principal; /* "operator:alice", inside of the text read */
    const char *name;      /* "alice" */
};
/* False when it is none of ours. An agent's name is a cluster id, which the caller checks. */
bool auth_name_parse(const char *uri, struct auth_name *ret);

/* From a certificate that the transport has verified.
 * NULL: no memory. Owner: caller, identity_unref(). @expires_s: 0 for never. */
adv_must_check struct identity *auth_by_certificate(struct auth *a, const struct auth_name *name, int64_t expires_s);

/* The same header as in a call before, if its token was good then and still is; NULL otherwise, which says nothing. Owner:
 * caller. */
struct identity *auth_by_header_again(struct auth *a, const char *value, size_t len, int64_t now_s);

/* From the value of an "authorization" header: "Bearer <token>".
 * Errors: -ADV_UNAUTHENTICATED (AUTHORIZATION_MALFORMED, and the reasons of jwt.h); -ADV_UNAVAILABLE,
 *         TOKEN_KEYS_UNAVAILABLE (the issuer's keys are being read: try again after retry_after_ms);
 *         -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int auth_by_header(struct auth *a, const char *value, size_t len, int64_t now_s, struct identity **ret,
                                  struct adv_err *err);

struct identity *identity_ref(struct identity *id);
struct identity *identity_unref(struct identity *id); /* returns NULL, tolerates NULL */

const char *identity_principal(const struct identity *id); /* "operator:alice", "jwt:corp:1234" */
const char *identity_user(const struct identity *id);      /* whose jobs are its own; "" for nobody's */
int64_t identity_expires_s(const struct identity *id);     /* 0: never */

/* As of now; borrowed until the loop goes on. Never NULL. */
const struct grants *identity_grants(struct identity *id);
/* A number that changes when what it may do changes. */
uint64_t identity_rights(struct identity *id);

ADV_DEFINE_CLEANUP(identity, identity_unref);

#endif
