/* SPDX-License-Identifier: Apache-2.0 */

/* The times in a log: they never go back, and no line moves them by more than it may. */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "controlplane/replay/logclock.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int64_t most_us = INT64_C(3) * 86400 * 1000000;
    struct logclock c;
    int64_t last_us = 0;

    logclock_init(&c, 0);
    for (size_t at = 0, n; at < size; at += n) {
        const uint8_t *nl = memchr(data + at, '\n', size - at);
        int64_t now_us;
        n = nl ? (size_t) (nl - data) + 1 - at : size - at;
        now_us = logclock_line(&c, (const char *) data + at, n);
        if (now_us < last_us || now_us - last_us > most_us)
            abort();
        last_us = now_us;
    }
    return 0;
}
