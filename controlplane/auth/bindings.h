/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_BINDINGS_H
#define CONTROLPLANE_AUTH_BINDINGS_H

/* The file that says whose tokens are taken, and who may do what where:
 *
 *     issuers:
 *       - alias: corp                          # a short name for what follows
 *         issuer: https://login.example.org    # "iss" of its tokens
 *         audience: [advisor]                  # one of them has to be in "aud"
 *         keys: https://login.example.org/jwks.json     # or /path/to/jwks.json
 *         ca: /etc/ssl/certs/corp.pem          # authority of that https server; the system's without it
 *         algorithms: [RS256, ES256, EdDSA]    # this is the default
 *         skew: 60s                            # this is the default
 *         refresh: 10m                         # how often keys are read again; this is the default
 *         user_claim: preferred_username       # whose jobs are the caller's own; this is the default
 *         groups_claim: groups                 # this is the default
 *     bindings:
 *       - principals: ["operator:alice", "jwt:corp:1234", "jwt-group:corp:sre", "jwt-email:corp:*@example.org"]
 *         # ("*:alice": certificates of that name, whatever their role; never a token)
 *         role: operator                       # reader, detector, user, operator, admin
 *         clusters: ["prod-*"]                 # this, accounts and principals are globs; default: all
 *         accounts: ["*"]
 *
 * A principal is named by a certificate (URI name "advisor:operator:alice": "operator:alice") or by a token of an issuer:
 * its subject, a group, or a verified e-mail address. All bindings that name a caller count together. A certificate that
 * no binding names has its role everywhere; one that is named has at most its role, there where the bindings say. A token
 * that no binding names may do nothing.
 *
 * A file that says nothing is a mistake (a certificate would have its role everywhere): "bindings: []" says that there are none.
 *
 * Pure: text in, answers out. Thread: loop thread.  Blocks: no. */

#include <stdint.h>

#include "common/err.h"
#include "controlplane/auth/jwt.h"
#include "controlplane/auth/roles.h"

#define BINDINGS_MAX_BYTES (1 << 20)

struct bindings_issuer {
    char *alias, *issuer, *keys, *ca; /* ca: NULL without one */
    char **audiences;
    size_t n_audiences;
    char *user_claim, *groups_claim;
    unsigned algs;
    int64_t skew_s;
    int64_t refresh_ms;
};

struct bindings;

/* @name stands in messages. Errors: -ADV_INVALID_ARGUMENT ("file:line:column: what, expected …");
 * -ADV_RESOURCE_EXHAUSTED. Owner: caller, counted. */
adv_must_check int bindings_parse(const char *name, const void *text, size_t len, struct bindings **ret,
                                  struct adv_err *err);
/* Without any issuer or binding. NULL: no memory. */
adv_must_check struct bindings *bindings_empty(void);
struct bindings *bindings_ref(struct bindings *b);
struct bindings *bindings_unref(struct bindings *b); /* returns NULL, tolerates NULL */

const struct bindings_issuer *bindings_issuers(const struct bindings *b, size_t *ret_n);

/* What one caller may do: made once, asked often. */
struct grants;

/* @names are what the caller can be called ("operator:alice"; "jwt:corp:1234", "jwt-group:corp:sre"). @limit is the most
 * it may have; @bound says that nothing is granted beyond the bindings (a token), otherwise @limit is granted everywhere
 * when no binding names the caller (a certificate).
 * NULL: no memory. Owner: caller, grants_free(); holds a reference of @b. */
adv_must_check struct grants *bindings_resolve(struct bindings *b, const char *const *names, size_t n_names,
                                               struct role_rights limit, bool bound);
/* Grants of nothing, of static lifetime: for callers whose own could not be made. */
const struct grants *grants_nothing(void);
struct grants *grants_free(struct grants *g); /* returns NULL, tolerates NULL */

/* Nothing at all. */
bool grants_none(const struct grants *g);
/* Somewhere. */
bool grants_any(const struct grants *g, enum api_role needed);
/* For the thing named: @cluster NULL is the fleet as a whole; @account and @user are of the job for a job's things and
 * both NULL for the cluster as a whole. A cluster is visible to whoever may see something of it; what changes it needs a
 * grant for all its accounts. @own is the caller's user name, "" for none. */
bool grants_allow(const struct grants *g, enum api_role needed, const char *cluster, const char *account,
                  const char *user, const char *own);
/* Has the role for some jobs of the cluster at least. */
bool grants_some_of_cluster(const struct grants *g, enum api_role needed, const char *cluster);
/* Everything, for everybody's jobs, in this cluster: what is not about one job (the audit log's other rows). */
bool grants_whole_cluster(const struct grants *g, enum api_role needed, const char *cluster);
/* The same for two callers who may do the same. */
uint64_t grants_digest(const struct grants *g);

ADV_DEFINE_CLEANUP(bindings, bindings_unref);
ADV_DEFINE_CLEANUP(grants, grants_free);

#endif
