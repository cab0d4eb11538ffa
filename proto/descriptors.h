/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_PROTO_DESCRIPTORS_H
#define ADV_PROTO_DESCRIPTORS_H

/* A serialized google.protobuf.FileDescriptorSet of the whole API with all imports, dependencies first. */

#include <stddef.h>

extern const unsigned char advisor_descriptor_set[];
extern const size_t advisor_descriptor_set_len;

#endif
