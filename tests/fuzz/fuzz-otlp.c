/* SPDX-License-Identifier: Apache-2.0 */

/* An OTLP request as anybody may send it, gzip or not, through the door: routes and lines stay within their bounds. The first
 * byte says whether the rest is compressed. */

#include <stdint.h>
#include <stdlib.h>

#include "controlplane/api/otlp.h"
#include "controlplane/rpc/door.h"
#include "controlplane/rpc/inflate.h"
#include "opentelemetry/proto/collector/logs/v1/logs_service.pb-c.h"

#define MAX (64 << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const Opentelemetry__Proto__Logs__V1__ResourceLogs *rl)
{
    struct otlp_route route;

    otlp_route(rl->resource, &route);
    if (route.fault > OTLP_MALFORMED || strlen(otlp_fault_words(route.fault)) == 0)
        abort();
    if (route.fault == OTLP_OK && (!*route.cluster || !*route.job_id))
        abort();
    for (size_t i = 0; i < rl->n_scope_logs; i++)
        for (size_t k = 0; k < rl->scope_logs[i]->n_log_records; k++) {
            const Opentelemetry__Proto__Logs__V1__LogRecord *r = rl->scope_logs[i]->log_records[k];
            ADV_AUTO_DONE(adv_buf) b;
            enum otlp_fault f;
            adv_buf_init(&b, 16 << 20);
            f = otlp_lines(r, route.host, &b);
            if ((f != OTLP_OK && (b.len || (f != OTLP_NO_TEXT && f != OTLP_TOO_LONG))) || otlp_time_us(r) < 0 || !*otlp_stream(r))
                abort();
            if (b.len && b.data[b.len - 1] != '\n')
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ADV_AUTO_DONE(adv_arena) arena = { 0 };
    adv_auto_free uint8_t *plain = NULL;
    ProtobufCMessage *msg = NULL;
    struct adv_err err = { 0 };
    const uint8_t *bytes = data + 1;
    size_t len = size - 1;

    if (size == 0)
        return 0;
    if (data[0] & 1) {
        int r = rpc_inflate(bytes, len, MAX, &plain, &len, &err);
        if (r < 0) {
            if (plain || !err.reason)
                abort();
            return 0;
        }
        if (len > MAX)
            abort();
        bytes = plain;
    }
    if (rpc_door_decode(&opentelemetry__proto__collector__logs__v1__export_logs_service_request__descriptor, bytes, len, &arena,
                        &msg, &err) < 0)
        return 0;
    for (size_t i = 0; i < ((Opentelemetry__Proto__Collector__Logs__V1__ExportLogsServiceRequest *) msg)->n_resource_logs; i++)
        look(((Opentelemetry__Proto__Collector__Logs__V1__ExportLogsServiceRequest *) msg)->resource_logs[i]);
    return 0;
}
