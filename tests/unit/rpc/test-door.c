/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/rpc/door.h"

#include <criterion/criterion.h>

#include "google/protobuf/descriptor.pb-c.h"
#include "google/rpc/status.pb-c.h"

/* DescriptorProto: 1 name, 2 field, 3 nested_type (itself), 7 options. Status: 1 code, 2 message, 3
 * details. */
#define TREE   (&google__protobuf__descriptor_proto__descriptor)
#define STATUS (&google__rpc__status__descriptor)

Test(door, table)
{
    static const struct {
        const char *bytes;
        size_t len;
        bool tree;
        const char *reason; /* NULL: accepted */
        const char *field;
    } t[] = {
        { "", 0, false, NULL, "" },
        { "\x08\x05\x12\x02hi", 6, false, NULL, "" },
        { "\x12\x01\xFF", 3, false, "INVALID_UTF8", "message" },
        { "\x12\x01\0", 3, false, "INVALID_UTF8", "message" },
        { "\x12\x01\xFF", 3, true, "MALFORMED_MESSAGE", "field[0]" }, /* a message there */
        { "\x1A\x00\x1A\x03\x0A\x01\xC0", 7, false, "INVALID_UTF8", "details[1].type_url" },
        { "\x12\x02\x0A\x00\x1A\x05\x12\x03\x0A\x01\xFF", 11, true, "INVALID_UTF8",
          "nested_type[0].field[0].name" },
        { "\x3A\x00\x3A\x00", 4, true, "DUPLICATE_FIELD", "options" },
        { "\x12\x05hi", 4, false, "MALFORMED_MESSAGE", "" },
        { "\x13", 1, false, "MALFORMED_MESSAGE", "" },     /* group */
        { "\x00\x01", 2, false, "MALFORMED_MESSAGE", "" }, /* field 0 */
        { "\x08", 1, false, "MALFORMED_MESSAGE", "" },
        { "\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 12, false, "MALFORMED_MESSAGE", "" },
        { "\x15\x01\x02", 3, false, "MALFORMED_MESSAGE", "" },
        { "\x12\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11, false, "MALFORMED_MESSAGE", "" },
        { "\x0A\x01\x05", 3, false, "MALFORMED_MESSAGE", "" }, /* int32 as bytes */
        { "\xFA\x7F\x02\xFF\xFF", 5, false, NULL, "" },        /* unknown field */
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO_DONE(adv_arena) a = { 0 };
        ProtobufCMessage *m = NULL;
        struct adv_err e = { 0 };
        int r = rpc_door_decode(t[i].tree ? TREE : STATUS, (const uint8_t *) t[i].bytes, t[i].len,
                                &a, &m, &e);

        cr_assert_eq(r, t[i].reason ? -ADV_INVALID_ARGUMENT : 0, "row %zu: %d %s", i, r, e.msg);
        cr_assert_str_eq(e.field, t[i].field, "row %zu: %s", i, e.field);
        if (t[i].reason)
            cr_assert_str_eq(e.reason, t[i].reason, "row %zu: %s", i, e.reason);
        else
            cr_assert_not_null(m);
    }
}

/* @levels nested messages in @buf's tail; returns the start. */
static const uint8_t *nest(uint8_t *buf, size_t cap, int levels, size_t *ret_len)
{
    size_t at = cap;

    for (int i = 0; i < levels; i++) {
        size_t len = cap - at;
        uint8_t head[8] = { 0x1A };
        size_t n = 1;

        do {
            head[n] = (uint8_t) ((len & 0x7F) | (len > 0x7F ? 0x80 : 0));
            len >>= 7;
            n++;
        } while (len);
        at -= n;
        memcpy(buf + at, head, n);
    }
    *ret_len = cap - at;
    return buf + at;
}

Test(door, depth)
{
    static uint8_t buf[1 << 20];
    static const struct {
        int levels;
        bool good;
    } t[] = {
        { RPC_MAX_DEPTH, true }, { RPC_MAX_DEPTH + 1, false }, { 20000, false }, { 200000, false }
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO_DONE(adv_arena) a = { 0 };
        ProtobufCMessage *m = NULL;
        struct adv_err e = { 0 };
        size_t len;
        const uint8_t *p = nest(buf, sizeof(buf), t[i].levels, &len);
        int r = rpc_door_decode(TREE, p, len, &a, &m, &e);

        cr_assert_eq(r == 0, t[i].good, "%d levels: %s", t[i].levels, e.msg);
        if (r < 0)
            cr_assert_str_eq(e.reason, "TOO_DEEP");
        cr_assert_eq(rpc_door_decode(TREE, p, len, &a, &m, NULL), r, "without an error struct too");
    }
}

Test(door, amplification)
{
    static uint8_t many[200000];
    ADV_AUTO_DONE(adv_arena) a = { 0 };
    ProtobufCMessage *m = NULL;
    struct adv_err e = { 0 };

    for (size_t i = 0; i < sizeof(many); i += 2)
        many[i] = 0x1A; /* empty nested_type */
    cr_assert_eq(rpc_door_decode(TREE, many, sizeof(many), &a, &m, &e), -ADV_RESOURCE_EXHAUSTED);
    cr_assert_str_eq(e.reason, "MESSAGE_TOO_COMPLEX");
    cr_assert_eq(rpc_door_decode(TREE, many, 200, &a, &m, &e), 0);
}
