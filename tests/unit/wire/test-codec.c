/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "advisor-agent/wire/codec.h"

static size_t feed_all(struct wire_deframer *d, const uint8_t *data, size_t len, size_t step,
                       size_t *ret_bytes)
{
    size_t messages = 0;

    *ret_bytes = 0;
    for (size_t i = 0; i < len;) {
        size_t n = len - i < step ? len - i : step, used;
        bool complete;
        struct adv_err err;
        cr_assert_eq(wire_deframer_feed(d, data + i, n, &used, &complete, &err), 0, "%s", err.msg);
        i += used;
        if (complete) {
            messages++;
            *ret_bytes += d->need;
            wire_deframer_next(d);
        }
    }
    return messages;
}

Test(codec, messages_cut_anywhere)
{
    uint8_t wire[5 + 3 + 5 + 0 + 5 + 300] = { 0 };
    size_t bytes;

    wire_frame_head(wire, 3);
    wire_frame_head(wire + 8, 0);
    wire_frame_head(wire + 13, 300);
    for (size_t step = 1; step <= sizeof(wire); step++) {
        struct wire_deframer d = { .max_bytes = 300 };
        cr_assert_eq(feed_all(&d, wire, sizeof(wire), step, &bytes), 3, "step %zu", step);
        cr_assert_eq(bytes, 303);
        cr_assert(wire_deframer_idle(&d));
        wire_deframer_done(&d);
    }
}

Test(codec, bad_messages)
{
    static const struct {
        uint8_t head[5];
        int want;
    } t[] = { { { 1, 0, 0, 0, 1 }, -ADV_UNIMPLEMENTED },
              { { 2, 0, 0, 0, 1 }, -ADV_INTERNAL },
              { { 0, 0, 0, 4, 1 }, -ADV_RESOURCE_EXHAUSTED },
              { { 0, 255, 255, 255, 255 }, -ADV_RESOURCE_EXHAUSTED } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct wire_deframer d = { .max_bytes = 1024 };
        size_t used;
        bool complete;
        cr_assert_eq(wire_deframer_feed(&d, t[i].head, 5, &used, &complete, NULL), t[i].want);
        wire_deframer_done(&d);
    }
}

Test(codec, memory_follows_bytes_not_claims)
{
    struct wire_deframer d = { .max_bytes = 1u << 30 };
    const uint8_t data[15] = { 0, 0x3f, 0xff, 0xff, 0xff };
    size_t used;
    bool complete;

    cr_assert_eq(wire_deframer_feed(&d, data, sizeof(data), &used, &complete, NULL), 0);
    cr_assert(!complete && d.room < 4096);
    wire_deframer_done(&d);
}

Test(codec, timeout)
{
    static const struct {
        uint64_t ms;
        const char *want;
    } t[] = { { 1, "1m" },
              { 99999999, "99999999m" },
              { 100000000, "100000S" },
              { 100000001, "100001S" },
              { 99999999000, "99999999S" },
              { 99999999001, "1666667M" },
              { UINT64_MAX, "99999999H" } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        char text[16];
        wire_timeout_text(t[i].ms, text);
        cr_assert_str_eq(text, t[i].want);
    }
}

Test(codec, percent)
{
    static const char *const t[][2] = { { "a%20b", "a b" },   { "100%", "100%" },
                                        { "%4", "%4" },       { "%zz%41", "%zzA" },
                                        { "%00x%1b[", "?x?[" }, { "l1%0Al2", "l1\nl2" },
                                        { "%c3%a4", "ä" } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        char text[32];
        strcpy(text, t[i][0]);
        size_t n = wire_percent_decode(text, strlen(text));
        cr_assert_eq(n, strlen(t[i][1]));
        cr_assert_eq(memcmp(text, t[i][1], n), 0, "%s", t[i][0]);
    }
}

Test(codec, base64)
{
    for (size_t len = 0; len < 70; len++) {
        uint8_t in[70], out[80];
        char text[100];
        size_t n;
        for (size_t i = 0; i < len; i++)
            in[i] = (uint8_t) (i * 37 + len);
        wire_base64_encode(in, len, text);
        cr_assert_eq(wire_base64_decode(text, strlen(text), out, &n), 0);
        cr_assert_eq(n, len);
        cr_assert_eq(memcmp(in, out, len), 0);
    }
    uint8_t out[16];
    size_t n;
    cr_assert_eq(wire_base64_decode("aGk=", 4, out, &n), 0);
    cr_assert_eq(n, 2);
    cr_assert_lt(wire_base64_decode("a", 1, out, &n), 0);
    cr_assert_lt(wire_base64_decode("a!aa", 4, out, &n), 0);
}

Test(codec, targets)
{
    static const struct {
        const char *text, *host, *port;
    } good[] = { { "cp:443", "cp", "443" },
                 { "[::1]:1", "::1", "1" },
                 { "unix:/run/a.sock", "/run/a.sock", "" } };
    static const char *const bad[] = { "",      "cp",   ":1",      "cp:",       "cp:0",      "cp:65536",
                                       "a:b:1", "cp:x", "[::1]",   "[::1",      "unix:",     "cp:123456" };
    struct wire_target t;

    for (size_t i = 0; i < ADV_ARRAY_LEN(good); i++) {
        cr_assert_eq(wire_target_parse(good[i].text, &t, NULL), 0);
        cr_assert_str_eq(t.host, good[i].host);
        cr_assert_str_eq(t.port, good[i].port);
    }
    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++)
        cr_assert_eq(wire_target_parse(bad[i], &t, NULL), -ADV_INVALID_ARGUMENT, "%s", bad[i]);
}

Test(codec, metadata)
{
    cr_assert(wire_metadata_legal("x-a", (const uint8_t *) "v", 1));
    cr_assert(wire_metadata_legal("x-bin", (const uint8_t *) "\0\n", 2));
    cr_assert(!wire_metadata_legal("x-a", (const uint8_t *) "v\n", 2));
    cr_assert(!wire_metadata_legal("x-a", (const uint8_t *) " v", 2));
    cr_assert(!wire_metadata_legal("X-A", (const uint8_t *) "v", 1));
    cr_assert(!wire_metadata_legal("grpc-x", (const uint8_t *) "v", 1));
    cr_assert(!wire_metadata_legal(":path", (const uint8_t *) "v", 1));
    cr_assert(!wire_metadata_legal("te", (const uint8_t *) "v", 1));
}

Test(codec, backoff)
{
    cr_assert_eq(wire_backoff_ms(1, 1000, 60000, 0), 600);
    cr_assert_eq(wire_backoff_ms(1, 1000, 60000, 1023), 1000);
    cr_assert_eq(wire_backoff_ms(1000000, 1000, 60000, 1023), 60000);
    for (unsigned i = 1; i < 20; i++)
        cr_assert_leq(wire_backoff_ms(i, 1000, 60000, 5), wire_backoff_ms(i + 1, 1000, 60000, 5));
}

/* google.rpc.Status as advisord sends it: code, message, ErrorInfo, BadRequest, RetryInfo of 1.5 s. */
static const uint8_t status[] = "\x08\x0e\x12\x07no room\x1a\x3e\n\x28type.googleapis.com/google.rpc.ErrorInfo\x12\x12\n\x07NOT_NOW\x12\x07"
                                "advisor"
                                "\x1a\x10\n\x0ex/google.rpc.Q"
                                "\x1a\x36\n\x28type.googleapis.com/google.rpc.RetryInfo\x12\x0a\n\x08\x08\x01\x10\x80\xca\xb5\xee\x01";

Test(codec, hints)
{
    struct wire_hints h;
    uint8_t copy[sizeof(status)];

    wire_read_hints(status, sizeof(status) - 1, &h);
    cr_assert_str_eq(h.reason, "NOT_NOW");
    cr_assert_eq(h.retry_after_ms, 1500);
    wire_read_hints(NULL, 0, &h);
    cr_assert_str_eq(h.reason, "");
    cr_assert_eq(h.retry_after_ms, -1);
    for (size_t n = 0; n < sizeof(status); n++) {
        wire_read_hints(status, n, &h);
        cr_assert(h.retry_after_ms == -1 || n == sizeof(status) - 1, "%zu", n);
    }
    for (size_t i = 0; i < sizeof(status) * 8; i++) { /* whatever comes, nothing worse than a wait of a day */
        memcpy(copy, status, sizeof(status));
        copy[i / 8] ^= (uint8_t) (1u << i % 8);
        wire_read_hints(copy, sizeof(copy) - 1, &h);
        cr_assert(h.retry_after_ms >= -1 && h.retry_after_ms <= 86401000);
    }
}
