/* SPDX-License-Identifier: Apache-2.0 */
#include "common/pbjson.h"

#include <criterion/criterion.h>
#include <math.h>

#include "pbjson_test.pb-c.h"

typedef Advisor__Test__V1__Everything every_t;

static void expect(const ProtobufCMessage *m, unsigned int flags, const char *want)
{
    ADV_AUTO_DONE(adv_buf) b;
    struct adv_err e = { 0 };

    adv_buf_init(&b, 100000);
    cr_assert_eq(adv_pbjson_print(m, flags, &b, &e), 0, "%s", e.msg);
    cr_assert_str_eq(b.data, want, "%s", b.data);
}

Test(pbjson, empty)
{
    every_t m = ADVISOR__TEST__V1__EVERYTHING__INIT;

    expect(&m.base, 0, "{}");
    expect(&m.base, ADV_PBJSON_PRETTY, "{}");
    expect(
        &m.base, ADV_PBJSON_DEFAULTS,
        "{\"i32\":0,\"s32\":0,\"sf32\":0,\"u32\":0,\"f32\":0,\"i64\":\"0\",\"s64\":\"0\",\"sf64\":"
        "\"0\","
        "\"u64\":\"0\",\"f64\":\"0\",\"aFloat\":0,\"aDouble\":0,\"aBool\":false,\"aString\":\"\","
        "\"someBytes\":\"\",\"color\":\"COLOR_UNSPECIFIED\",\"manyI64\":[],\"manyStrings\":[],"
        "\"manyBytes\":[],\"manyColors\":[],\"manyChildren\":[],\"manyTimes\":[],\"manyDoubles\":[]"
        ","
        "\"manyBools\":[],\"labels\":{},\"byNumber\":{},\"byFlag\":{},\"with2Digits\":0,"
        "\"trailing\":0}");
}

Test(pbjson, scalars)
{
    every_t m = ADVISOR__TEST__V1__EVERYTHING__INIT;
    uint8_t bytes[] = { 0xFF, 0xFE, 0, 1 };
    char text[] = "q\"\\\n\t\x01\x7F\xE2\x82\xAC";

    m.i32 = INT32_MIN;
    m.u32 = UINT32_MAX;
    m.i64 = INT64_MIN;
    m.u64 = UINT64_MAX;
    m.a_float = 0.1F;
    m.a_double = 1e300;
    m.a_bool = true;
    m.a_string = text;
    m.some_bytes.data = bytes;
    m.some_bytes.len = sizeof(bytes);
    m.color = (Advisor__Test__V1__Color) 7;
    expect(&m.base, 0,
           "{\"i32\":-2147483648,\"u32\":4294967295,\"i64\":\"-9223372036854775808\","
           "\"u64\":\"18446744073709551615\",\"aFloat\":0.1,\"aDouble\":1e+300,\"aBool\":true,"
           "\"aString\":\"q\\\"\\\\\\n\\t\\u0001\x7F\xE2\x82\xAC\",\"someBytes\":\"//4AAQ==\","
           "\"color\":\"COLOR_DARK_BLUE\"}");
}

Test(pbjson, oddities)
{
    every_t m = ADVISOR__TEST__V1__EVERYTHING__INIT;
    char bad[] = "a\xFFz";

    m.color = (Advisor__Test__V1__Color) 99;
    m.a_string = bad;
    m.a_float = -INFINITY;
    m.a_double = NAN;
    m.choice_case = ADVISOR__TEST__V1__EVERYTHING__CHOICE_CHOICE_INT; /* set to its zero */
    expect(&m.base, 0,
           "{\"aFloat\":\"-Infinity\",\"aDouble\":\"NaN\",\"aString\":\"a\xEF\xBF\xBDz\",\"color\":"
           "99,\"choiceInt\":0}");
}

Test(pbjson, times)
{
    static const struct {
        bool duration;
        int64_t s;
        int32_t n;
        const char *want; /* NULL: out of range */
    } t[] = {
        { false, 0, 0, "\"1970-01-01T00:00:00Z\"" },
        { false, 1767323045, 500000000, "\"2026-01-02T03:04:05.500Z\"" },
        { false, 1767323045, 1000, "\"2026-01-02T03:04:05.000001Z\"" },
        { false, -1, 1, "\"1969-12-31T23:59:59.000000001Z\"" },
        { false, INT64_C(253402300799), 0, "\"9999-12-31T23:59:59Z\"" },
        { false, INT64_C(253402300800), 0, NULL },
        { false, 0, -1, NULL },
        { true, 0, 0, "\"0s\"" },
        { true, 1, 500000000, "\"1.500s\"" },
        { true, 0, -500000000, "\"-0.500s\"" },
        { true, -3, -1, "\"-3.000000001s\"" },
        { true, 3, -1, NULL },
        { true, INT64_MAX, 0, NULL },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        Google__Protobuf__Timestamp ts = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
        Google__Protobuf__Duration d = GOOGLE__PROTOBUF__DURATION__INIT;
        ADV_AUTO_DONE(adv_buf) b;

        ts.seconds = d.seconds = t[i].s;
        ts.nanos = d.nanos = t[i].n;
        adv_buf_init(&b, 100);
        int r = adv_pbjson_print(t[i].duration ? &d.base : &ts.base, 0, &b, NULL);
        cr_assert_eq(r, t[i].want ? 0 : -ADV_INVALID_ARGUMENT, "row %zu", i);
        if (t[i].want)
            cr_assert_str_eq(b.data, t[i].want);
    }
}

Test(pbjson, nested_lists_maps_pretty)
{
    every_t m = ADVISOR__TEST__V1__EVERYTHING__INIT, kid = ADVISOR__TEST__V1__EVERYTHING__INIT;
    Advisor__Test__V1__Everything__LabelsEntry e1 =
        ADVISOR__TEST__V1__EVERYTHING__LABELS_ENTRY__INIT;
    Advisor__Test__V1__Everything__LabelsEntry *labels[] = { &e1 };
    every_t *kids[] = { &kid, &kid };
    char k[] = "a", v[] = "b";

    e1.key = k;
    e1.value = v;
    kid.i32 = 5;
    m.n_many_children = 2;
    m.many_children = kids;
    m.n_labels = 1;
    m.labels = labels;
    m.choice_case = ADVISOR__TEST__V1__EVERYTHING__CHOICE_CHOICE_MESSAGE;
    m.choice_message = &kid;
    expect(&m.base, 0,
           "{\"choiceMessage\":{\"i32\":5},\"manyChildren\":[{\"i32\":5},{\"i32\":5}],\"labels\":{"
           "\"a\":\"b\"}}");
    expect(&m.base, ADV_PBJSON_PRETTY,
           "{\n  \"choiceMessage\": {\n    \"i32\": 5\n  },\n  \"manyChildren\": [\n    {\n      "
           "\"i32\": 5\n    },\n"
           "    {\n      \"i32\": 5\n    }\n  ],\n  \"labels\": {\n    \"a\": \"b\"\n  }\n}");
}

Test(pbjson, any)
{
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
    char url[] = "type.googleapis.com/x.Y";
    uint8_t v[] = { 8, 1 };

    any.type_url = url;
    any.value.data = v;
    any.value.len = 2;
    expect(&any.base, 0, "{\"@type\":\"type.googleapis.com/x.Y\",\"value\":\"CAE=\"}");
}

Test(pbjson, limits)
{
    every_t chain[200];
    struct adv_err e = { 0 };
    ADV_AUTO_DONE(adv_buf) b;

    for (size_t i = 0; i < ADV_ARRAY_LEN(chain); i++) {
        advisor__test__v1__everything__init(&chain[i]);
        chain[i].child = i + 1 < ADV_ARRAY_LEN(chain) ? &chain[i + 1] : NULL;
    }
    adv_buf_init(&b, 100000);
    cr_assert_eq(adv_pbjson_print(&chain[0].base, 0, &b, &e), -ADV_INVALID_ARGUMENT);
    adv_buf_reset(&b);
    cr_assert_eq(adv_pbjson_print(&chain[140].base, 0, &b, &e), 0, "%s", e.msg);
    adv_buf_done(&b);
    adv_buf_init(&b, 50);
    cr_assert_eq(adv_pbjson_print(&chain[140].base, 0, &b, &e), -ADV_RESOURCE_EXHAUSTED);
}

Test(pbjson, tree)
{
    every_t m = ADVISOR__TEST__V1__EVERYTHING__INIT;
    json_t *j = NULL;

    m.i32 = 5;
    cr_assert_eq(adv_pbjson_tree(&m.base, ADV_PBJSON_PRETTY, &j, NULL), 0);
    cr_assert_eq(json_integer_value(json_object_get(j, "i32")), 5);
    json_decref(j);
}
