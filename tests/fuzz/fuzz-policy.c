/* SPDX-License-Identifier: Apache-2.0 */

/* A policy document as anybody may write it: good, or refused with a message. */

#include <stdint.h>
#include <stdlib.h>

#include "controlplane/api/policy_document.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *) data, size);
    struct adv_err err = { 0 };

    if (policy_document_check(text, &err) < 0 && !err.msg[0])
        abort();
    free(text);
    return 0;
}
