/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_INFLATE_H
#define ADV_CONTROLPLANE_RPC_INFLATE_H

/* A gzip message from outside, inflated under a limit. Any thread, never blocks. */

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Makes at most @max bytes, and never more memory than that: a bomb is seen before it has gone off. One gzip member, with
 * nothing behind it.
 * Owner:  *ret is the caller's, free(), and NULL after an error.
 * Errors: -ADV_RESOURCE_EXHAUSTED, reason MESSAGE_TOO_LARGE (or no memory); -ADV_INVALID_ARGUMENT, MALFORMED_MESSAGE. */
adv_must_check int rpc_inflate(const uint8_t *in, size_t len, size_t max, uint8_t **ret, size_t *ret_len,
                               struct adv_err *err);

#endif
