/* SPDX-License-Identifier: Apache-2.0 */
/* A token from anybody, checked with the keys of RFC 7515 and RFC 8037 (whose signatures are in the corpus). */

#include <stdint.h>

#include "controlplane/auth/jwt.h"

static const char set[] =
    "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":\"ec\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
    "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"},{\"kty\":\"OKP\",\"crv\":\"Ed25519\","
    "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const audiences[] = { "advisor" };
    static const struct jwt_rules rules = { "joe", audiences, 1, JWT_ALGS_DEFAULT, 60 };
    static struct jwks *keys;
    ADV_AUTO(jwt) t = NULL;
    struct adv_err err = { 0 };

    if (!keys && jwks_parse(set, strlen(set), &keys, NULL) < 0)
        abort();
    if (jwt_open((const char *) data, size, &t, &err) < 0) {
        if (!err.reason)
            abort();
        return 0;
    }
    (void) jwt_unverified_issuer(t);
    if (jwt_check(t, keys, &rules, 1300819000, &err) == 0 && !*jwt_claim_text(t, "sub"))
        abort();
    (void) jwt_claim_text(t, "email");
    for (size_t i = 0; i < 4; i++)
        (void) jwt_claim_item(t, "groups", i);
    return 0;
}
