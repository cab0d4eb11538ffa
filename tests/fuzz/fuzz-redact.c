/* SPDX-License-Identifier: Apache-2.0 */
/* However the text is cut, the same comes out, as long as it was; white space stays, and what is covered by itself is covered
 * again. */
#include <stdlib.h>
#include <string.h>

#include "common/redact.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct adv_redact whole = { .mask = '*' }, cut = { .mask = '*' };
    uint8_t *a = malloc(size + 1), *b = malloc(size + 1);
    size_t n, done = 0, seed = size;

    memcpy(a, data, size);
    n = adv_redact(&whole, a, size);
    if (size - n > ADV_REDACT_PART)
        abort();
    for (size_t end = 0; end < size;) {
        size_t k;

        seed = seed * 1103515245 + 12345;
        end += 1 + (seed >> 16) % 700;
        if (end > size)
            end = size;
        memcpy(b + done, data + done, end - done);
        k = adv_redact(&cut, b + done, end - done);
        done += k;
    }
    if (done != n || memcmp(a, b, n) != 0 || memcmp(&whole, &cut, sizeof(cut)) != 0)
        abort();
    for (size_t i = 0; i < n; i++)
        if (a[i] != data[i] && (a[i] != '*' || data[i] <= 0x20))
            abort();
    memcpy(a + n, data + n, size - n);
    adv_redact_rest(&whole, a + n, size - n);
    free(a);
    free(b);
    return 0;
}
