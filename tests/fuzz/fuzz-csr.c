/* SPDX-License-Identifier: Apache-2.0 */
/* A signing request and a token, from somebody who has not shown who they are. */

#include <stdint.h>

#include "controlplane/auth/ca.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct adv_err err = { 0 };
    char hash[65], serial[CA_SERIAL_SIZE];
    adv_auto_free char *text = strndup((const char *) data, size);

    if (ca_check_csr(data, size, hash, &err) < 0 && !err.reason && err.code != ADV_RESOURCE_EXHAUSTED)
        abort();
    if (text) {
        (void) enrol_token_hash(text, hash);
        if (ca_serial_parse(text, serial, NULL) == 0 && (!*serial || strlen(serial) >= CA_SERIAL_SIZE))
            abort();
    }
    return 0;
}
