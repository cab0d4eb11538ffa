/* SPDX-License-Identifier: Apache-2.0 */

/* A hostile server: its bytes go into a client session that has three calls under way, one of them
 * paused. The first byte decides how the rest is cut. */

#include <stddef.h>
#include <stdint.h>

#include "advisor-agent/wire/h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_settings(void *ctx)
{
}

static void on_goaway(void *ctx, uint32_t code, const char *debug)
{
}

static void on_message(void *ctx, struct wire_call *c, const uint8_t *data, size_t len)
{
    if (len == 3)
        c->paused = true;
}

static void on_closed(void *ctx, struct wire_call *c, const struct wire_status *st)
{
    if (strlen(st->message) > 20000)
        abort();
}

static void drain(struct wire_h2 *h2)
{
    const uint8_t *out;

    while (wire_h2_pull(h2, &out, NULL) > 0)
        ;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct wire_config cfg = {
        .user_agent = "fuzz",
        .max_message_bytes = 4096,
        .max_headers_bytes = 4096,
        .max_send_queue_bytes = 4096,
        .stream_window_bytes = 65535,
    };
    static const struct wire_h2_ops h2_ops = { on_settings, on_goaway, on_settings };
    static const struct wire_call_ops call_ops = { .on_message = on_message, .on_closed = on_closed };
    struct wire_call *calls[3] = { NULL };
    struct wire_h2 *h2 = NULL;
    size_t step = size ? (size_t) data[0] * 16 + 1 : 1;

    if (size < 1 || wire_h2_new(&cfg, "fuzz", false, &h2_ops, NULL, &h2, NULL) < 0)
        return 0;
    data++;
    size--;
    for (size_t i = 0; i < 3; i++) {
        if (call_new("/a.B/C", NULL, 0, &cfg, &call_ops, NULL, &calls[i], NULL) < 0 ||
            wire_h2_open(h2, calls[i], 1000, NULL) < 0)
            abort();
        calls[i]->half_closed = i == 0;
    }
    calls[2]->paused = true;
    drain(h2);
    while (size > 0) {
        size_t n = size < step ? size : step;
        if (wire_h2_feed(h2, data, n, NULL) < 0)
            break;
        drain(h2);
        data += n;
        size -= n;
    }
    calls[2]->paused = false;
    wire_h2_consumed(calls[2], call_deliver(calls[2]));
    for (size_t i = 0; i < 3; i++) {
        wire_h2_reset(calls[i]);
        (void) call_unref(calls[i]);
    }
    drain(h2);
    (void) wire_h2_free(h2);
    return 0;
}
