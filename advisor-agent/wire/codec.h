/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_WIRE_CODEC_H
#define ADVISOR_WIRE_CODEC_H

/* The texts and frames of gRPC-over-HTTP/2 that need no connection: pure functions, used by call.c
 * and by tests. Everything read here comes from a peer and is bounded by the caller's limits. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* The five bytes before each message: compressed flag, big-endian length. */
#define WIRE_FRAME_HEAD 5

/* Collects one message out of DATA bytes that may be cut anywhere. The body grows with what has
 * really arrived, never with what the length field claims. */
struct wire_deframer {
    size_t max_bytes; /* largest body accepted */
    uint8_t head[WIRE_FRAME_HEAD];
    size_t head_got;
    size_t need; /* body length, valid once the head is complete */
    uint8_t *body;
    size_t got;
    size_t room;
};

/* Takes bytes up to the end of the current message.
 * Outputs: @ret_used bytes were taken; *ret_complete says that body/need hold one message, then
 *          wire_deframer_next() must follow before the next feed.
 * Errors:  -ADV_RESOURCE_EXHAUSTED (larger than max_bytes, or no memory); -ADV_UNIMPLEMENTED
 *          (compressed); -ADV_INTERNAL (flag byte is neither 0 nor 1). */
adv_must_check int wire_deframer_feed(struct wire_deframer *d, const uint8_t *data, size_t len,
                                      size_t *ret_used, bool *ret_complete, struct adv_err *err);
/* Forgets the finished message; keeps a small body buffer, frees a big one. */
void wire_deframer_next(struct wire_deframer *d);
void wire_deframer_done(struct wire_deframer *d);
/* Is nothing half received? */
bool wire_deframer_idle(const struct wire_deframer *d);

void wire_frame_head(uint8_t head[WIRE_FRAME_HEAD], size_t len);

/* Writes a grpc-timeout value (at most 8 digits and a unit); never shorter than asked. */
void wire_timeout_text(uint64_t timeout_ms, char ret_text[16]);

/* Decodes a percent-encoded grpc-message in place; malformed escapes stay as they are, control
 * bytes become '?'. Returns the new length; the result need not be UTF-8. */
size_t wire_percent_decode(char *text, size_t len);

/* Base64 with or without padding; @out has room for len / 4 * 3 + 3 bytes. -ADV_INVALID_ARGUMENT
 * when @text is not base64. */
adv_must_check int wire_base64_decode(const char *text, size_t len, uint8_t *out, size_t *ret_len);
/* @out has room for (len + 2) / 3 * 4 + 1 bytes; unpadded, NUL-terminated. */
size_t wire_base64_encode(const uint8_t *data, size_t len, char *out);

/* What the details of an error (a google.rpc.Status) say, as far as it is of use to a program: ErrorInfo.reason ("" without
 * one, cut to its room) and RetryInfo.retry_delay (-1 without one). What cannot be read is left out. */
struct wire_hints {
    char reason[64];
    int64_t retry_after_ms;
};
void wire_read_hints(const uint8_t *details, size_t len, struct wire_hints *ret);

/* The gRPC code for an HTTP status without grpc-status, and for an HTTP/2 stream error code. */
enum adv_code wire_code_of_http(int status);
enum adv_code wire_code_of_h2(uint32_t error_code);

/* A header name and value a client may send: lower case, no control bytes, not reserved. */
bool wire_metadata_legal(const char *name, const uint8_t *value, size_t len);

/* Splits "host:port", "[v6]:port" or "unix:path". Fails with -ADV_INVALID_ARGUMENT. */
struct wire_target {
    bool is_unix;
    char host[256]; /* or the socket's path */
    char port[6];
};
adv_must_check int wire_target_parse(const char *text, struct wire_target *ret_target,
                                     struct adv_err *err);

/* Delay before connection attempt number @attempt (1 = after the first failure): exponential from
 * @min_ms, capped at @max_ms, jittered to 60..100 % by @random. */
uint64_t wire_backoff_ms(unsigned attempt, uint64_t min_ms, uint64_t max_ms, uint32_t random);

#endif
