/* SPDX-License-Identifier: Apache-2.0 */

/* Page and resume tokens as anybody may write them: an error, or a position that gives the same token again. */

#include <stdint.h>
#include <stdlib.h>

#include "controlplane/api/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char uuid[] = "u", filter[] = "f";
    char *text = strndup((const char *) data, size), key[64], again[TOKEN_RESUME_SIZE];
    ADV_AUTO_DONE(adv_arena) ar = { 0 };
    struct adv_err err;
    uint64_t seq = 0;

    adv_arena_init(&ar, 1 << 16);
    if (token_page_parse(text, "jobs", key, sizeof(key), &err) == 0) {
        const char *t = *key ? token_page(&ar, "jobs", key) : "";
        if (!t || strcmp(t, text) != 0)
            abort();
    } else if (!err.reason) {
        abort();
    }
    if (token_resume_parse(text, uuid, filter, &seq, &err) == 0) {
        uint64_t seq2 = 0;
        if (token_resume_parse(token_resume(uuid, seq, filter, again), uuid, filter, &seq2, NULL) < 0 || seq != seq2)
            abort();
    }
    free(text);
    return 0;
}
