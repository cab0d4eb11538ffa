/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent reads of others besides the session: an enrolment bundle, and the details of an error. */

#include <stdint.h>
#include <stdlib.h>

#include "advisor-agent/enrol.h"
#include "advisor-agent/wire/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ADV_AUTO(enrol_bundle) b = NULL;
    struct wire_hints hints;

    wire_read_hints(data, size, &hints);
    if (hints.retry_after_ms < -1 || hints.retry_after_ms > 86401000 || strlen(hints.reason) >= sizeof(hints.reason))
        abort();
    if (enrol_bundle_parse(data, size, &b, NULL) == 0 && (!*b->cluster || !*b->token || !b->ca))
        abort();
    return 0;
}
