/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_WIRE_H2_H
#define ADVISOR_WIRE_H2_H

/* One HTTP/2 client session, sans I/O: received bytes go in, bytes to send come out. The only user
 * of nghttp2. It knows calls, not sockets, clocks or timers.
 *
 * No function here frees the session from within a callback: free it when no other wire_h2_
 * function is running. */

#include "advisor-agent/wire/call.h"

struct wire_h2;

struct wire_h2_ops {
    void (*on_settings)(void *ctx); /* the server's first SETTINGS: the session is usable */
    void (*on_goaway)(void *ctx, uint32_t h2_code, const char *debug);
    void (*on_ping_ack)(void *ctx);
};

adv_must_check int wire_h2_new(const struct wire_config *cfg, const char *authority, bool tls,
                               const struct wire_h2_ops *ops, void *ctx, struct wire_h2 **ret_h2,
                               struct adv_err *err);
/* Detaches the calls without telling them. Returns NULL. */
struct wire_h2 *wire_h2_free(struct wire_h2 *h2);

/* Errors: -ADV_UNAVAILABLE (the server broke the protocol; the session is of no further use, but
 * wire_h2_pull may still yield a GOAWAY for it). */
adv_must_check int wire_h2_feed(struct wire_h2 *h2, const uint8_t *data, size_t len,
                                struct adv_err *err);
/* Bytes to send, valid until the next call on @h2; 0 = none. Negative as above. */
adv_must_check int64_t wire_h2_pull(struct wire_h2 *h2, const uint8_t **ret_data,
                                    struct adv_err *err);
/* Neither side has anything more to say. */
bool wire_h2_finished(struct wire_h2 *h2);

/* Opens the stream of @call, which stays referenced until the stream is gone. @timeout_ms 0: none.
 * Errors: -ADV_UNAVAILABLE (GOAWAY, ids used up); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int wire_h2_open(struct wire_h2 *h2, struct wire_call *call, uint64_t timeout_ms,
                                struct adv_err *err);
/* More to send has been queued, or half-close was set. */
void wire_h2_kick(struct wire_call *call);
/* Resets the stream and lets go of the call; NULL-safe when the call has no stream. */
void wire_h2_reset(struct wire_call *call);
/* Gives @len bytes back to the stream's window. */
void wire_h2_consumed(struct wire_call *call, size_t len);

void wire_h2_ping(struct wire_h2 *h2);
void wire_h2_goaway(struct wire_h2 *h2);

#endif
