/* SPDX-License-Identifier: Apache-2.0 */

/* Dependencies as Slurm prints them: the list now, a newline, the list before. What is made of them must be understood again,
 * and wait for the parent. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "adapters/slurm/depend.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct adapter_job parents[] = { { .id = "10", .raw_id = 10, .array_task = -1 },
                                           { .id = "22_1", .raw_id = 28, .array_id = 22, .array_task = 1 } };
    const struct adapter_job child = { .id = "26_1", .raw_id = 27, .array_id = 26, .array_task = 1 };
    char *text = malloc(size + 1), *before;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    before = strchr(text, '\n');
    if (before)
        *before++ = '\0';
    for (size_t i = 0; i < ADV_ARRAY_LEN(parents); i++) {
        ADV_AUTO_DONE(adv_buf) b = { 0 };
        ADV_AUTO_DONE(slurm_deps) d = { 0 };
        const char *why;
        adv_buf_init(&b, 1 << 16);
        (void) slurm_depends(text, parents[i].id, child.id);
        if (slurm_deps_rearm(text, before ? before : "", &child, &parents[i], &b, &why) != ADAPTER_REASON_OK)
            continue;
        if (slurm_deps_parse(b.data, &d, NULL) < 0 || slurm_deps_waiting(b.data, &child, &parents[i]) == 0)
            abort();
    }
    free(text);
    return 0;
}
