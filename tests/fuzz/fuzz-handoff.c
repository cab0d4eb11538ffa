/* SPDX-License-Identifier: Apache-2.0 */

/* What replicas hand each other through the store, as another version, or whoever can write the store, may write it: who
 * called, and the error that was answered. The first byte picks which. */

#include <stdint.h>
#include <stdlib.h>

#include "controlplane/api/handoff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct api api = { 0 };
    struct api_caller caller;
    struct adv_err err = { 0 };
    /* exactly as long as it says, so that reading beyond it is seen */
    adv_auto_free uint8_t *copy = size ? malloc(size) : NULL;

    if (!copy)
        return 0;
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 1) {
        if (handoff_unpack_caller(copy, size - 1, &caller) &&
            (!caller.trusted || caller.identity || strlen(caller.principal) >= sizeof(caller.principal) || caller.acting > ROLE_AGENT))
            abort();
    } else if (handoff_unpack_error(&api, copy, size - 1, &err)) {
        if (err.code < ADV_CANCELLED || err.code > ADV_UNAUTHENTICATED || err.retry_after_ms < 0 ||
            (err.reason && strlen(err.reason) > 63))
            abort();
    }
    handoff_free(&api);
    return 0;
}
