/* SPDX-License-Identifier: Apache-2.0 */

/* The frames between the agent and its tail helpers, which run as the users. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "advisor-agent/tail/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t done = 0;
    uint64_t sum = 0;

    for (;;) {
        struct tail_frame f;
        long n = tail_frame_parse(data + done, size - done, &f);
        if (n <= 0)
            break;
        if ((size_t) n > size - done || f.len > TAIL_PAYLOAD_MAX + TAIL_PATH_MAX)
            abort();
        for (size_t i = 0; i < f.len; i++)
            sum += f.payload[i];
        done += (size_t) n;
    }
    return sum == UINT64_MAX;
}
