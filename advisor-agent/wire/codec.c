/* SPDX-License-Identifier: Apache-2.0 */

#include "advisor-agent/wire/codec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A body buffer up to this size is kept between messages. */
#define KEEP_BYTES 4096u

int wire_deframer_feed(struct wire_deframer *d, const uint8_t *data, size_t len, size_t *ret_used,
                       bool *ret_complete, struct adv_err *err)
{
    size_t used = 0;

    *ret_used = 0;
    *ret_complete = false;
    while (d->head_got < WIRE_FRAME_HEAD && used < len)
        d->head[d->head_got++] = data[used++];
    if (d->head_got < WIRE_FRAME_HEAD) {
        *ret_used = used;
        return 0;
    }
    d->need = (size_t) d->head[1] << 24 | (size_t) d->head[2] << 16 | (size_t) d->head[3] << 8 |
              d->head[4];
    if (d->head[0] == 1)
        return adv_err_set(err, ADV_UNIMPLEMENTED, "the server sent a compressed message");
    if (d->head[0] != 0)
        return adv_err_set(err, ADV_INTERNAL, "bad message flag %u", d->head[0]);
    if (d->need > d->max_bytes)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED,
                           "received message larger than max (%zu vs. %zu)", d->need, d->max_bytes);

    size_t take = d->need - d->got;
    if (take > len - used)
        take = len - used;
    if (d->got + take > d->room) {
        size_t room = d->room < 256 ? 256 : d->room;
        while (room < d->got + take)
            room *= 2;
        if (room > d->need)
            room = d->need;
        uint8_t *body = realloc(d->body, room);
        if (!body)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a message of %zu bytes",
                               d->need);
        d->body = body;
        d->room = room;
    }
    if (take)
        memcpy(d->body + d->got, data + used, take);
    d->got += take;
    *ret_used = used + take;
    *ret_complete = d->got == d->need;
    return 0;
}

void wire_deframer_next(struct wire_deframer *d)
{
    d->head_got = d->need = d->got = 0;
    if (d->room > KEEP_BYTES) {
        free(d->body);
        d->body = NULL;
        d->room = 0;
    }
}

void wire_deframer_done(struct wire_deframer *d)
{
    free(d->body);
    *d = (struct wire_deframer) { .max_bytes = d->max_bytes };
}

bool wire_deframer_idle(const struct wire_deframer *d)
{
    return d->head_got == 0;
}

void wire_frame_head(uint8_t head[WIRE_FRAME_HEAD], size_t len)
{
    head[0] = 0;
    head[1] = (uint8_t) (len >> 24);
    head[2] = (uint8_t) (len >> 16);
    head[3] = (uint8_t) (len >> 8);
    head[4] = (uint8_t) len;
}

void wire_timeout_text(uint64_t timeout_ms, char ret_text[16])
{
    static const struct {
        uint64_t ms;
        char unit;
    } units[] = { { 1, 'm' }, { 1000, 'S' }, { 60000, 'M' }, { 3600000, 'H' } };
    const uint64_t most = 99999999;

    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        uint64_t n = timeout_ms / units[i].ms + (timeout_ms % units[i].ms ? 1 : 0);
        if (n <= most) {
            (void) snprintf(ret_text, 16, "%llu%c", (unsigned long long) n, units[i].unit);
            return;
        }
    }
    (void) snprintf(ret_text, 16, "%lluH", (unsigned long long) most);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

size_t wire_percent_decode(char *text, size_t len)
{
    size_t out = 0;

    for (size_t i = 0; i < len; i++) {
        int hi = -1, lo = -1;
        if (text[i] == '%' && len - i > 2) {
            hi = hex_digit(text[i + 1]);
            lo = hex_digit(text[i + 2]);
        }
        if (hi >= 0 && lo >= 0) {
            text[out] = (char) (hi << 4 | lo);
            i += 2;
        } else {
            text[out] = text[i];
        }
        unsigned char c = (unsigned char) text[out++];
        if (c == 0x7f || (c < 0x20 && c != '\n' && c != '\t'))
            text[out - 1] = '?';
    }
    return out;
}

int wire_base64_decode(const char *text, size_t len, uint8_t *out, size_t *ret_len)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t n = 0, digits = 0;

    while (len > 0 && text[len - 1] == '=')
        len--;
    for (size_t i = 0; i < len; i++, digits++) {
        char c = text[i];
        uint32_t v;
        if (c >= 'A' && c <= 'Z')
            v = (uint32_t) (c - 'A');
        else if (c >= 'a' && c <= 'z')
            v = (uint32_t) (c - 'a') + 26;
        else if (c >= '0' && c <= '9')
            v = (uint32_t) (c - '0') + 52;
        else if (c == '+' || c == '-')
            v = 62;
        else if (c == '/' || c == '_')
            v = 63;
        else
            return -ADV_INVALID_ARGUMENT;
        bits = bits << 6 | v;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (uint8_t) (bits >> have);
        }
    }
    if (digits % 4 == 1)
        return -ADV_INVALID_ARGUMENT;
    *ret_len = n;
    return 0;
}

size_t wire_base64_encode(const uint8_t *data, size_t len, char *out)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = 0;

    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t) data[i] << 16 | (i + 1 < len ? (uint32_t) data[i + 1] << 8 : 0) |
                     (i + 2 < len ? data[i + 2] : 0);
        out[n++] = digit[v >> 18 & 63];
        out[n++] = digit[v >> 12 & 63];
        if (i + 1 < len)
            out[n++] = digit[v >> 6 & 63];
        if (i + 2 < len)
            out[n++] = digit[v & 63];
    }
    out[n] = '\0';
    return n;
}

/* ---- error details: three messages deep, of which four fields are read --------------------------------------------- */

struct bytes {
    const uint8_t *p, *end;
};

static bool take_varint(struct bytes *b, uint64_t *ret)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64 && b->p < b->end; shift += 7) {
        uint8_t c = *b->p++;

        v |= (uint64_t) (c & 0x7f) << shift;
        if (!(c & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

/* One field: its number, and a varint or a piece. */
static bool take_field(struct bytes *b, uint32_t *number, bool *is_piece, uint64_t *v, struct bytes *piece)
{
    uint64_t tag, n;

    if (!take_varint(b, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX)
        return false;
    *number = (uint32_t) (tag >> 3);
    *is_piece = (tag & 7) == 2;
    switch (tag & 7) {
    case 0:
        return take_varint(b, v);
    case 2:
        if (!take_varint(b, &n) || n > (uint64_t) (b->end - b->p))
            return false;
        *piece = (struct bytes) { b->p, b->p + n };
        b->p += n;
        return true;
    case 1:
    case 5:
        n = (tag & 7) == 1 ? 8 : 4;
        if (n > (uint64_t) (b->end - b->p))
            return false;
        b->p += n;
        *number = 0; /* skipped */
        return true;
    default:
        return false;
    }
}

static bool ends_with(struct bytes b, const char *text)
{
    size_t n = strlen(text);

    return (size_t) (b.end - b.p) >= n && memcmp(b.end - n, text, n) == 0;
}

static void read_error_info(struct bytes b, struct wire_hints *ret)
{
    struct bytes piece;
    bool is_piece;
    uint32_t number;
    uint64_t v;

    while (b.p < b.end && take_field(&b, &number, &is_piece, &v, &piece)) {
        size_t n = is_piece ? (size_t) (piece.end - piece.p) : 0;

        if (number != 1 || !is_piece)
            continue;
        n = n < sizeof(ret->reason) ? n : sizeof(ret->reason) - 1;
        memcpy(ret->reason, piece.p, n);
        ret->reason[n] = '\0';
    }
}

static void read_retry_info(struct bytes b, struct wire_hints *ret)
{
    struct bytes delay = { NULL, NULL }, piece;
    bool is_piece;
    uint32_t number;
    uint64_t v, seconds = 0, nanos = 0;

    while (b.p < b.end && take_field(&b, &number, &is_piece, &v, &piece))
        if (number == 1 && is_piece)
            delay = piece;
    if (!delay.p)
        return;
    while (delay.p < delay.end && take_field(&delay, &number, &is_piece, &v, &piece)) {
        if (number == 1 && !is_piece)
            seconds = v;
        else if (number == 2 && !is_piece)
            nanos = v;
    }
    if (seconds <= 86400 && nanos < 1000000000)
        ret->retry_after_ms = (int64_t) (seconds * 1000 + nanos / 1000000);
}

void wire_read_hints(const uint8_t *details, size_t len, struct wire_hints *ret)
{
    struct bytes b = { details, len ? details + len : details }, any, piece;
    bool is_piece;
    uint32_t number;
    uint64_t v;

    *ret = (struct wire_hints) { .retry_after_ms = -1 };
    while (b.p < b.end && take_field(&b, &number, &is_piece, &v, &any)) {
        struct bytes type = { NULL, NULL }, value = { NULL, NULL };

        if (number != 3 || !is_piece)
            continue;
        while (any.p < any.end && take_field(&any, &number, &is_piece, &v, &piece)) {
            if (number == 1 && is_piece)
                type = piece;
            else if (number == 2 && is_piece)
                value = piece;
        }
        if (type.p && value.p && ends_with(type, "/google.rpc.ErrorInfo"))
            read_error_info(value, ret);
        else if (type.p && value.p && ends_with(type, "/google.rpc.RetryInfo"))
            read_retry_info(value, ret);
    }
}

enum adv_code wire_code_of_http(int status)
{
    switch (status) {
    case 400:
        return ADV_INTERNAL;
    case 401:
        return ADV_UNAUTHENTICATED;
    case 403:
        return ADV_PERMISSION_DENIED;
    case 404:
        return ADV_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return ADV_UNAVAILABLE;
    default:
        return ADV_UNKNOWN;
    }
}

enum adv_code wire_code_of_h2(uint32_t error_code)
{
    switch (error_code) {
    case 0x7: /* REFUSED_STREAM: surely not processed */
        return ADV_UNAVAILABLE;
    case 0x8: /* CANCEL */
        return ADV_CANCELLED;
    case 0xb: /* ENHANCE_YOUR_CALM */
        return ADV_RESOURCE_EXHAUSTED;
    case 0xc: /* INADEQUATE_SECURITY */
        return ADV_PERMISSION_DENIED;
    default:
        return ADV_INTERNAL;
    }
}

bool wire_metadata_legal(const char *name, const uint8_t *value, size_t len)
{
    static const char *const reserved[] = { "te", "content-type", "user-agent", "host",
                                            "connection" };
    size_t n = strlen(name);
    bool binary = n > 4 && strcmp(name + n - 4, "-bin") == 0;

    if (n == 0 || n > 128 || strncmp(name, "grpc-", 5) == 0)
        return false;
    for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++)
        if (strcmp(name, reserved[i]) == 0)
            return false;
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char) name[i]) && !isdigit((unsigned char) name[i]) &&
            !strchr("-_.", name[i]))
            return false;
    for (size_t i = 0; i < len && !binary; i++)
        if (value[i] < 0x20 || value[i] > 0x7e)
            return false;
    return binary || len == 0 || (value[0] != ' ' && value[len - 1] != ' ');
}

int wire_target_parse(const char *text, struct wire_target *ret_target, struct adv_err *err)
{
    struct wire_target t = { 0 };
    const char *colon, *host = text;
    size_t host_len, port_len;
    unsigned port = 0;

    if (strncmp(text, "unix:", 5) == 0) {
        /* 107 = sizeof(sun_path) - 1 */
        if (text[5] == '\0' || strlen(text + 5) > 107)
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "bad socket path in target '%.120s'",
                               text);
        t.is_unix = true;
        (void) snprintf(t.host, sizeof(t.host), "%s", text + 5);
        *ret_target = t;
        return 0;
    }
    if (text[0] == '[') {
        const char *end = strchr(text, ']');
        if (!end || end[1] != ':')
            goto bad;
        host = text + 1;
        host_len = (size_t) (end - host);
        colon = end + 1;
    } else {
        colon = strrchr(text, ':');
        if (!colon || strchr(text, ':') != colon)
            goto bad;
        host_len = (size_t) (colon - host);
    }
    port_len = strlen(colon + 1);
    if (host_len == 0 || host_len >= sizeof(t.host) || port_len == 0 || port_len > 5)
        goto bad;
    for (const char *p = colon + 1; *p; p++) {
        if (*p < '0' || *p > '9')
            goto bad;
        port = port * 10 + (unsigned) (*p - '0');
    }
    if (port == 0 || port > 65535)
        goto bad;
    memcpy(t.host, host, host_len);
    memcpy(t.port, colon + 1, port_len);
    *ret_target = t;
    return 0;
bad:
    return adv_err_set(err, ADV_INVALID_ARGUMENT,
                       "bad target '%.120s', want host:port, [v6]:port or unix:path", text);
}

uint64_t wire_backoff_ms(unsigned attempt, uint64_t min_ms, uint64_t max_ms, uint32_t random)
{
    uint64_t ms = min_ms;

    for (unsigned i = 1; i < attempt && ms < max_ms; i++)
        ms += ms / 2 + 1;
    if (ms > max_ms)
        ms = max_ms;
    return ms * 6 / 10 + ms * 4 / 10 * (random % 1024) / 1023;
}
