/* SPDX-License-Identifier: Apache-2.0 */

/* Page and resume tokens, and names of workflows, as anybody may write them: an error, or something that gives the same
 * again. */

#include <stdint.h>
#include <stdlib.h>

#include "controlplane/api/token.h"
#include "controlplane/api/workflow_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char uuid[] = "u", filter[] = "f";
    char *text = strndup((const char *) data, size), key[64], again[TOKEN_RESUME_SIZE];
    ADV_AUTO_DONE(adv_arena) ar = { 0 };
    struct adv_err err;
    char cluster[65], cluster2[65], workflow[WORKFLOW_MAX + 1], workflow2[WORKFLOW_MAX + 1];
    uint64_t seq = 0;

    adv_arena_init(&ar, 1 << 16);
    if (token_page_parse(text, "jobs", key, sizeof(key), &err) == 0) {
        const char *t = *key ? token_page(&ar, "jobs", key) : "";
        if (!t || strcmp(t, text) != 0)
            abort();
    } else if (!err.reason) {
        abort();
    }
    if (token_resume_parse(text, uuid, 1, filter, &seq, &err) == 0) {
        uint64_t seq2 = 0;
        if (token_resume_parse(token_resume(uuid, 1, seq, filter, again), uuid, 1, filter, &seq2, NULL) < 0 || seq != seq2)
            abort();
    }
    if (workflow_name_parse(text, cluster, workflow)) {
        const char *name = workflow_name(&ar, cluster, workflow);
        if (!*workflow || !name || !workflow_name_parse(name, cluster2, workflow2) || strcmp(cluster, cluster2) != 0 ||
            strcmp(workflow, workflow2) != 0)
            abort();
    }
    free(text);
    return 0;
}
