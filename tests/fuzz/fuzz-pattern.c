/* SPDX-License-Identifier: Apache-2.0 */

/* A job's own progress pattern, up to the first line end, and a line that it is tried on. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controlplane/watcher/pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nl = memchr(data, '\n', size);
    size_t n = nl ? (size_t) (nl - data) : size;
    struct watcher_pattern *p = NULL;
    struct adv_err err = { 0 };
    char text[WATCHER_PATTERN_MAX * 2];

    if (n >= sizeof(text))
        return 0;
    memcpy(text, data, n);
    text[n] = '\0';
    if (watcher_pattern_new(text, &p, &err) == 0) {
        int64_t step = nl ? watcher_pattern_step(p, (const char *) nl + 1, size - n - 1) : -1;
        if (step < -1 || strlen(text) > WATCHER_PATTERN_MAX)
            abort();
    } else if (!err.msg[0]) {
        abort();
    }
    (void) watcher_pattern_free(p);
    return 0;
}
