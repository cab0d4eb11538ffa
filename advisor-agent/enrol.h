/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_ENROL_H
#define ADVISOR_AGENT_ENROL_H

/* `advisor-agent --enrol FILE`: from the bundle that `advisorctl cluster enrol` wrote to the agent's first certificate. */

#include <stddef.h>
#include <stdint.h>

#include "advisor-agent/config.h"
#include "common/err.h"

#define ENROL_SERVERS_MAX 16
#define ENROL_BUNDLE_MAX  (256 << 10)

/* What the bundle holds (EnrolmentBundle of the API as JSON). */
struct enrol_bundle {
    char cluster[65];
    char token[64];
    char server_name[256]; /* "" for none */
    int64_t expire_us;     /* 0: not told */
    char *ca;              /* PEM */
    char *servers[ENROL_SERVERS_MAX];
    size_t n_servers;
};

/* Pure. Errors: -ADV_INVALID_ARGUMENT (what is wrong, field), -ADV_RESOURCE_EXHAUSTED. Owner: caller. */
adv_must_check int enrol_bundle_parse(const void *bytes, size_t len, struct enrol_bundle **ret, struct adv_err *err);
struct enrol_bundle *enrol_bundle_free(struct enrol_bundle *b); /* returns NULL, tolerates NULL */

/* Does it: makes a key, asks for its certificate, puts key, certificate and the control plane's authority where the
 * configuration says, and tells on stdout what to do next.
 * Errors: of the file, of the network (-ADV_UNAVAILABLE), the control plane's own (-ADV_UNAUTHENTICATED: the token is not
 *         good); in all of them nothing was put anywhere.
 * Blocks: until it is done; some 30 s at most. */
adv_must_check int enrol_run(const struct agent_config *cfg, const char *bundle_path, struct adv_err *err);

ADV_DEFINE_CLEANUP(enrol_bundle, enrol_bundle_free);

#endif
