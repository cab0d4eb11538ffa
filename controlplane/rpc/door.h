/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_CONTROLPLANE_RPC_DOOR_H
#define ADV_CONTROLPLANE_RPC_DOOR_H

/* What every message from outside passes before a handler sees it.
 *
 * The bytes are first walked along the descriptor: well-formed wire format, known message fields
 * nested at most
 * RPC_MAX_DEPTH levels, no singular message field twice, all strings UTF-8 without NUL. Then
 * protobuf-c unpacks into an arena whose budget grows with the size on the wire. Neither step
 * recurses deeper than the limit or takes memory beyond the budget, whatever the bytes are.
 *
 * Any thread, never blocks. */

#include <protobuf-c/protobuf-c.h>

#include "common/arena.h"
#include "common/err.h"

#define RPC_MAX_DEPTH 16
#define RPC_DECODE_FACTOR                                                                          \
    32 /* budget = factor * bytes on the wire: a struct of pointers from a few bytes */
#define RPC_DECODE_MIN_BYTES (64 << 10)
#define RPC_DECODE_MAX_BYTES (64 << 20)

/* Decodes @len bytes as @desc into @arena (initialised or zeroed), which it empties first and gives
 * a budget.
 * Owner:  *ret lives in @arena until adv_arena_done(); do not free it.
 * Errors: -ADV_INVALID_ARGUMENT, reason MALFORMED_MESSAGE, INVALID_UTF8, TOO_DEEP or
 *         DUPLICATE_FIELD, err->field is the path of the field, "jobs[3].name";
 *         -ADV_RESOURCE_EXHAUSTED, reason MESSAGE_TOO_COMPLEX. */
adv_must_check int rpc_door_decode(const ProtobufCMessageDescriptor *desc, const uint8_t *bytes,
                                   size_t len, struct adv_arena *arena, ProtobufCMessage **ret,
                                   struct adv_err *err);

#endif
