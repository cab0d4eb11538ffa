/* SPDX-License-Identifier: Apache-2.0 */
#include "common/json.h"

#include <criterion/criterion.h>

Test(json, getters)
{
    const char text[] =
        "{\"s\":\"x\",\"i\":5,\"b\":true,\"f\":1.5,\"o\":{\"k\":1},\"a\":[1],\"n\":null}";
    ADV_JSON_AUTO json_t *j = NULL;
    struct adv_err e;
    const char *s = NULL;
    int64_t i = 0;
    bool b = false;
    double f = 0;
    json_t *sub = NULL;

    cr_assert_eq(adv_json_parse(text, strlen(text), 1000, &j, NULL), 0);
    cr_assert_eq(adv_json_get_str(j, "s", &s, NULL), 0);
    cr_assert_str_eq(s, "x");
    cr_assert_eq(adv_json_get_i64(j, "i", 0, 5, &i, NULL), 0);
    cr_assert_eq(i, 5);
    cr_assert_eq(adv_json_get_i64(j, "i", 0, 4, &i, &e), -ADV_OUT_OF_RANGE);
    cr_assert_str_eq(e.field, "i");
    cr_assert_eq(adv_json_get_bool(j, "b", &b, NULL), 0);
    cr_assert(b);
    cr_assert_eq(adv_json_get_f64(j, "f", 0, 2, &f, NULL), 0);
    cr_assert_eq(adv_json_get_f64(j, "i", 0, 9, &f, NULL), 0);
    cr_assert_eq(adv_json_get_obj(j, "o", &sub, NULL), 0);
    cr_assert_eq(adv_json_get_arr(j, "a", &sub, NULL), 0);
    cr_assert_eq(adv_json_get_arr(j, "o", &sub, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(adv_json_get_str(j, "n", &s, NULL), -ADV_NOT_FOUND);
    cr_assert_eq(adv_json_get_str(j, "zz", &s, NULL), -ADV_NOT_FOUND);
    cr_assert_eq(adv_json_get_str(j, "i", &s, NULL), -ADV_INVALID_ARGUMENT);
}

Test(json, refused)
{
    static const char *const bad[] = {
        "", "{", "{\"a\":1,\"a\":2}", "[1] x", "{\"a\":99999999999999999999}", "nul"
    };
    struct adv_err e;
    json_t *j = NULL;

    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++)
        cr_assert_eq(adv_json_parse(bad[i], strlen(bad[i]), 1000, &j, &e), -ADV_INVALID_ARGUMENT,
                     "%s", bad[i]);
    cr_assert_eq(adv_json_parse("[1,\n  x]", 8, 1000, &j, &e), -ADV_INVALID_ARGUMENT);
    cr_assert(adv_startswith(e.msg, "line 2 column 3: "), "%s", e.msg);
    cr_assert_eq(adv_json_parse("[1,2]", 5, 4, &j, &e), -ADV_RESOURCE_EXHAUSTED);
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    cr_assert_eq(adv_json_parse(deep, 200, 1000, &j, &e), -ADV_INVALID_ARGUMENT);
    cr_assert(strstr(e.msg, "nested"));
    cr_assert_eq(adv_json_parse(deep + 50, 100, 1000, &j, NULL), 0);
    json_decref(j);
}

Test(json, lossy_and_canonical)
{
    ADV_JSON_AUTO json_t *j = NULL;
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 100);
    const char text[] = "{\"z\" : 1, \"a\": \"\xFF[[\"}";
    cr_assert_eq(adv_json_parse(text, strlen(text), 1000, &j, NULL), 0);
    cr_assert_eq(adv_json_dump(j, &b, NULL), 0);
    cr_assert_str_eq(b.data, "{\"a\":\"\xEF\xBF\xBD[[\",\"z\":1}");
    adv_buf_done(&b);
    adv_buf_init(&b, 5);
    cr_assert_eq(adv_json_dump(j, &b, NULL), -ADV_RESOURCE_EXHAUSTED);
}

Test(json, texts_with_nul_are_taken_where_asked_for)
{
    ADV_JSON_AUTO json_t *j = NULL;
    const char text[] = "{\"s\":\"a\\u0000b\"}";

    cr_assert_eq(adv_json_parse(text, strlen(text), 100, &j, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(adv_json_parse_any(text, strlen(text), 100, &j, NULL), 0);
    cr_assert_eq(json_string_length(json_object_get(j, "s")), 3);
}
