/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_PBJSON_H
#define ADV_COMMON_PBJSON_H

/* Protobuf messages as proto3's canonical JSON, by walking protobuf-c's descriptors.
 *
 * Names are lowerCamelCase, enums are names (numbers when unknown), 64-bit integers are strings,
 * bytes are base64, maps are objects, google.protobuf.Timestamp is RFC 3339, Duration is "1.5s".
 * Not canonical: google.protobuf.Any is {"@type", "value": base64}, because no registry of types
 * exists here. Text that is not UTF-8 is repaired with U+FFFD.
 *
 * Any thread, never blocks. */

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>

#include "common/buf.h"
#include "common/err.h"

enum {
    ADV_PBJSON_DEFAULTS = 1 << 0, /* also print scalars and lists that are empty */
    ADV_PBJSON_PRETTY = 1 << 1,   /* indented by two spaces, one member a line */
};

#define ADV_PBJSON_MAX_DEPTH 64

/* Appends @msg to @out. Equal messages give equal bytes (members in order of field numbers).
 * Errors: -ADV_INVALID_ARGUMENT (time out of range, nested deeper than ADV_PBJSON_MAX_DEPTH);
 *         -ADV_RESOURCE_EXHAUSTED (@out is full, or no memory). @out then has a part of it. */
adv_must_check int adv_pbjson_print(const ProtobufCMessage *msg, unsigned int flags,
                                    struct adv_buf *out, struct adv_err *err);

/* The same as a tree. Owner: caller, json_decref(). */
adv_must_check int adv_pbjson_tree(const ProtobufCMessage *msg, unsigned int flags, json_t **ret,
                                   struct adv_err *err);

#endif
