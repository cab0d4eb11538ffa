/* SPDX-License-Identifier: Apache-2.0 */

/* `struct adv_err` as google.rpc.Status for the trailer grpc-status-details-bin. Everything is
 * bounded by the struct's own sizes, so the buffers are on the stack. */

#include <grpc/slice.h>

#include "common/utf8.h"
#include "controlplane/rpc/internal.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

#define TYPE_PREFIX "type.googleapis.com/"

struct detail {
    Google__Protobuf__Any any;
    char type[64];
    uint8_t bytes[1200];
};

static void pack_any(struct detail *d, const ProtobufCMessage *msg)
{
    size_t n = strlen(TYPE_PREFIX), len = strlen(msg->descriptor->name);

    memcpy(d->type, TYPE_PREFIX, n);
    memcpy(d->type + n, msg->descriptor->name, len + 1);
    google__protobuf__any__init(&d->any);
    d->any.type_url = d->type;
    d->any.value.data = d->bytes;
    d->any.value.len = protobuf_c_message_pack(msg, d->bytes);
}

bool rpc_status_details(const struct adv_err *err, grpc_slice *ret)
{
    struct detail details[3];
    Google__Protobuf__Any *list[3] = { &details[0].any, &details[1].any, &details[2].any };
    Google__Rpc__Status st = GOOGLE__RPC__STATUS__INIT;
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    char text[sizeof(err->msg) * 3], field[sizeof(err->field) * 3];
    char domain[] = "advisor";
    size_t n = 0;

    (void) adv_utf8_lossy_buf(text, sizeof(text), err->msg, strlen(err->msg));
    (void) adv_utf8_lossy_buf(field, sizeof(field), err->field, strlen(err->field));
    info.reason = (char *) (uintptr_t) (err->reason ? err->reason : adv_code_name((int) err->code));
    info.domain = domain;
    pack_any(&details[n++], &info.base);
    if (*field) {
        Google__Rpc__BadRequest bad = GOOGLE__RPC__BAD_REQUEST__INIT;
        Google__Rpc__BadRequest__FieldViolation v = GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT,
                                                *pv = &v;

        v.field = field;
        v.description = text;
        bad.n_field_violations = 1;
        bad.field_violations = &pv;
        pack_any(&details[n++], &bad.base);
    }
    if (err->retry_after_ms > 0) {
        Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
        Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;

        delay.seconds = err->retry_after_ms / 1000;
        delay.nanos = err->retry_after_ms % 1000 * 1000000;
        retry.retry_delay = &delay;
        pack_any(&details[n++], &retry.base);
    }
    st.code = (int32_t) err->code;
    st.message = text;
    st.n_details = n;
    st.details = list;
    *ret = grpc_slice_malloc(google__rpc__status__get_packed_size(&st));
    (void) google__rpc__status__pack(&st, GRPC_SLICE_START_PTR(*ret));
    return true;
}
