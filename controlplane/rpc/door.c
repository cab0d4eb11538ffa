/* SPDX-License-Identifier: Apache-2.0 */

/* protobuf-c has no recursion limit (a few kilobytes overflow its stack), does not check UTF-8,
 * cuts strings at an embedded NUL without a word, and can turn a message into forty times its size.
 * The walk below is cheap (one pass, no memory) and leaves protobuf-c only well-formed input of
 * bounded depth.
 *
 * Unknown fields are skipped: protobuf-c keeps them as bytes and does not look inside. Groups are
 * refused; no proto3 encoder makes them. */

#include "controlplane/rpc/door.h"

#include <stdio.h>

#include "common/utf8.h"

struct walk {
    const char *names[RPC_MAX_DEPTH + 1];
    int index[RPC_MAX_DEPTH + 1]; /* -1: not repeated */
    int depth;
    struct adv_err *err;
};

/* Names the path down to the current depth. */
static int refuse(struct walk *w, const char *reason, const char *what)
{
    char path[sizeof(w->err->field)] = "";
    size_t n = 0;

    for (int i = 0; i < w->depth && n < sizeof(path); i++) {
        const char *dot = i > 0 ? "." : "";
        int k = w->index[i] < 0 ? snprintf(path + n, sizeof(path) - n, "%s%s", dot, w->names[i])
                                : snprintf(path + n, sizeof(path) - n, "%s%s[%d]", dot, w->names[i],
                                           w->index[i]);
        n += k > 0 ? (size_t) k : 0;
    }
    (void) adv_err_set_reason(w->err, ADV_INVALID_ARGUMENT, reason, "%s%s%s", path,
                              *path ? ": " : "", what);
    (void) adv_err_field(w->err, "%s", path);
    return -ADV_INVALID_ARGUMENT;
}

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
    uint64_t v = 0;

    for (unsigned int shift = 0; shift < 70 && *p < end; shift += 7) {
        uint8_t b = *(*p)++;

        if (shift < 64)
            v |= (uint64_t) (b & 0x7F) << shift;
        if (!(b & 0x80)) {
            *ret = v;
            return true;
        }
    }
    return false;
}

/* Skips the value of a field that is not length-delimited. */
static bool skip_scalar(const uint8_t **p, const uint8_t *end, unsigned int wire)
{
    uint64_t v;
    size_t n = wire == 1 ? 8 : 4;

    if (wire == 0)
        return varint(p, end, &v);
    if (wire != 1 && wire != 5)
        return false;
    if ((size_t) (end - *p) < n)
        return false;
    *p += n;
    return true;
}

/* One bit for each field of a message that was seen; enough for the first 256 fields of any message
 * here. */
struct seen {
    uint64_t bits[4];
};

static bool seen_before(struct seen *s, size_t i)
{
    if (i >= 256)
        return false;
    uint64_t bit = UINT64_C(1) << (i % 64);
    bool was = s->bits[i / 64] & bit;

    s->bits[i / 64] |= bit;
    return was;
}

static const char *string_fault(const uint8_t *p, size_t len)
{
    if (!adv_utf8_valid(p, len))
        return "not UTF-8";
    return len > 0 && memchr(p, 0, len) ? "has a NUL character" : NULL;
}

static int walk_message(struct walk *w, const ProtobufCMessageDescriptor *desc, const uint8_t *p,
                        const uint8_t *end)
{
    const ProtobufCFieldDescriptor *last = NULL;
    struct seen seen = { { 0 } };
    int index =
        0; /* of @last, counted over a run: encoders write the elements of a list together */

    while (p < end) {
        uint64_t key, len;

        if (!varint(&p, end, &key) || key >> 3 == 0 || key >> 3 > 0x1FFFFFFF)
            return refuse(w, "MALFORMED_MESSAGE", "not a protobuf message");
        if ((key & 7) != 2) {
            if (!skip_scalar(&p, end, (unsigned int) (key & 7)))
                return refuse(w, "MALFORMED_MESSAGE", "not a protobuf message");
            continue;
        }
        if (!varint(&p, end, &len) || len > (uint64_t) (end - p))
            return refuse(w, "MALFORMED_MESSAGE", "not a protobuf message");
        const uint8_t *value = p;
        p += len;
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field(desc, (unsigned int) (key >> 3));
        if (!f || (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE))
            continue;
        bool message = f->type == PROTOBUF_C_TYPE_MESSAGE,
             repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
        if (message && w->depth == RPC_MAX_DEPTH)
            return refuse(w, "TOO_DEEP", "nested too deeply");
        index = f == last ? index + 1 : 0;
        last = f;
        w->names[w->depth] = f->name;
        w->index[w->depth++] = repeated ? index : -1;
        const char *fault = message ? NULL : string_fault(value, (size_t) len);
        int r = 0;
        if (fault)
            r = refuse(w, "INVALID_UTF8", fault);
        else if (message && !repeated && seen_before(&seen, (size_t) (f - desc->fields)))
            r = refuse(w, "DUPLICATE_FIELD", "is set twice");
        else if (message)
            r = walk_message(w, f->descriptor, value, p);
        if (r < 0)
            return r;
        w->depth--;
    }
    return 0;
}

static void *arena_alloc(void *user, size_t size)
{
    return adv_arena_alloc(user, size);
}

static void arena_free(void *user, void *p)
{
    (void) user;
    (void) p;
}

int rpc_door_decode(const ProtobufCMessageDescriptor *desc, const uint8_t *bytes, size_t len,
                    struct adv_arena *arena, ProtobufCMessage **ret, struct adv_err *err)
{
    struct adv_err mine;
    struct walk w = { .err = err ? err : &mine };
    ProtobufCAllocator alloc = { .alloc = arena_alloc,
                                 .free = arena_free,
                                 .allocator_data = arena };
    size_t budget = len < RPC_DECODE_MAX_BYTES / RPC_DECODE_FACTOR ? len * RPC_DECODE_FACTOR
                                                                   : RPC_DECODE_MAX_BYTES;

    int r = walk_message(&w, desc, bytes, bytes + len);
    if (r < 0)
        return r;
    adv_arena_done(arena);
    adv_arena_init(arena, budget > RPC_DECODE_MIN_BYTES ? budget : RPC_DECODE_MIN_BYTES);
    ProtobufCMessage *m = protobuf_c_message_unpack(desc, &alloc, len, bytes);
    if (!m) {
        bool full = adv_arena_exhausted(arena);

        adv_arena_done(arena);
        if (full)
            return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "MESSAGE_TOO_COMPLEX",
                                      "message needs too much memory for its size");
        return adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "MALFORMED_MESSAGE",
                                  "not a %s message", desc->name);
    }
    *ret = m;
    return 0;
}
