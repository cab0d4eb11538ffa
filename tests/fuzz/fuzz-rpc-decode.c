/* SPDX-License-Identifier: Apache-2.0 */

/* Anything a peer may send as a message: the door must refuse it or give a message that can be
 * packed again, within its memory budget. The first byte picks the message type. */

#include <stdint.h>
#include <stdlib.h>

#include "advisor/v1/agent_service.pb-c.h"
#include "controlplane/rpc/door.h"
#include "google/protobuf/descriptor.pb-c.h"
#include "google/rpc/status.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ProtobufCMessageDescriptor *const types[] = {
        &advisor__v1__session_request__descriptor,
        &advisor__v1__push_logs_request__descriptor,
        &google__protobuf__file_descriptor_proto__descriptor, /* refers to itself */
        &google__rpc__status__descriptor,
    };
    ADV_AUTO_DONE(adv_arena) arena = { 0 };
    ProtobufCMessage *msg = NULL;
    struct adv_err err;

    if (size == 0)
        return 0;
    int r = rpc_door_decode(types[data[0] % ADV_ARRAY_LEN(types)], data + 1, size - 1, &arena, &msg,
                            &err);
    if (r < 0) {
        if (!err.reason || err.code != (enum adv_code) - r)
            abort();
        return 0;
    }
    adv_auto_free uint8_t *out = malloc(protobuf_c_message_get_packed_size(msg) + 1);
    if (out && protobuf_c_message_pack(msg, out) != protobuf_c_message_get_packed_size(msg))
        abort();
    return 0;
}
