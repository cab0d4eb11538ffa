/* SPDX-License-Identifier: Apache-2.0 */
/* The file of issuers and bindings. Whatever it says, nobody gets more than their certificate allows, and a token that no
 * binding names gets nothing. */

#include <stdint.h>

#include "controlplane/auth/bindings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const reader[] = { "reader:bob" }, *const token[] = { "jwt:corp:1", "jwt-group:corp:sre" };
    ADV_AUTO(bindings) b = NULL;
    ADV_AUTO(grants) g = NULL;
    ADV_AUTO(grants) t = NULL;
    size_t n;

    if (bindings_parse("fuzz", data, size, &b, NULL) < 0)
        return 0;
    (void) bindings_issuers(b, &n);
    g = bindings_resolve(b, reader, 1, role_rights(ROLE_READER), false);
    t = bindings_resolve(b, token, 2, role_rights(ROLE_ADMIN), true);
    if (!g || !t)
        return 0;
    if (grants_any(g, ROLE_OPERATOR) || grants_any(g, ROLE_AGENT) || grants_any(t, ROLE_AGENT))
        abort();
    (void) grants_allow(t, ROLE_OPERATOR, "alpha", "account", "user", "user");
    (void) grants_digest(t);
    return 0;
}
