/* SPDX-License-Identifier: Apache-2.0 */
/* A key set as an issuer's server may send it. */

#include <stdint.h>

#include "controlplane/auth/jwks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t signature[64];
    ADV_AUTO(jwks) s = NULL;

    if (jwks_parse(data, size, &s, NULL) < 0)
        return 0;
    if (jwks_count(s) == 0 || jwks_count(s) > JWKS_MAX_KEYS)
        abort();
    for (int a = JWT_ALG_NONE; a <= JWT_ALG_LAST_; a++)
        if (jwks_verify(s, (enum jwt_alg) a, "", "x", 1, signature, sizeof(signature)) == JWKS_GOOD)
            abort(); /* 64 zero bytes sign nothing */
    return 0;
}
