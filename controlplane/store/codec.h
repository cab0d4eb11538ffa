/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_CODEC_H
#define CONTROLPLANE_STORE_CODEC_H

/* Domain structs to bytes and back, by one table of fields each. The bytes are protobuf wire format, so that
 * `protoc --decode_raw` shows a record; numbers are given once and never reused.
 *
 * Any thread (no shared state).  Blocks: no. */

#include "common/buf.h"
#include "controlplane/domain/model.h"

/* Appends the encoding of @object (struct cluster, job, attempt, anomaly, advice or action by @kind).
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int codec_encode(enum resource_kind kind, const void *object, struct adv_buf *out);

/* Zeroes the stored fields of @object and leaves what is runtime alone: it may be decoded into again. */
void codec_reset(enum resource_kind kind, void *object);

/* Fills a zeroed @object. Strings become heap copies. Unknown fields are skipped.
 * Errors: -ADV_DATA_LOSS (malformed; the object may be partly filled and must be freed),
 * -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int codec_decode(enum resource_kind kind, const void *bytes, size_t len, void *object);

#endif
