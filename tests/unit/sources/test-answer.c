/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>

#include "controlplane/sources/answer.h"

static int parse(enum source_kind kind, const char *text, const char *field, struct source_answer *a, struct adv_err *err)
{
    source_answer_init(a, 1 << 20);
    return source_parse(kind, text, strlen(text), field, a, err);
}

Test(sources_answer, loki_streams_are_merged_by_time)
{
    ADV_AUTO_DONE(source_answer) a;

    cr_assert_eq(parse(SOURCE_LOKI,
                       "{\"status\":\"success\",\"data\":{\"resultType\":\"streams\",\"stats\":{},\"result\":["
                       "{\"stream\":{\"host\":\"n2.example.org\"},\"values\":[[\"2\",\"b\"],[\"4\",\"d\\u0000e\"]]},"
                       "{\"stream\":{\"host\":\"10.0.0.1\"},\"values\":[[\"1\",\"a\"],[\"4\",\"f\",{\"host\":\"n3:9\"}]]}]}}",
                       "host", &a, NULL), 0);
    cr_assert_eq(a.n_lines, 4);
    cr_assert_eq(a.lines[0].ts_ns, 1);
    cr_assert_str_eq(a.lines[0].host, "");
    cr_assert_str_eq(a.lines[1].host, "n2");
    cr_assert_eq(a.lines[2].len, 3);
    cr_assert_str_eq(a.lines[3].text, "f");
    cr_assert_str_eq(a.lines[3].host, "n3");
    cr_assert_neq(a.lines[2].hash, a.lines[3].hash);
}

Test(sources_answer, victorialogs_lines)
{
    ADV_AUTO_DONE(source_answer) a;

    cr_assert_eq(parse(SOURCE_VICTORIALOGS,
                       "{\"_time\":\"2026-01-02T03:04:05.000000007Z\",\"_msg\":\"one\",\"_stream\":\"{a=\\\"b\\\"}\",\"h\":\"n1\"}\n"
                       "{\"_time\":\"2026-01-02T03:04:05Z\",\"_msg\":\"two\"}\n{\"_time\":\"2026-01-02T03:04:06Z\",\"x\":\"y\"}\n",
                       "h", &a, NULL), 0);
    cr_assert_eq(a.n_lines, 2); /* an entry without a message is none */
    cr_assert_str_eq(a.lines[0].text, "two");
    cr_assert_str_eq(a.lines[1].host, "n1");
    cr_assert_eq(a.lines[1].ts_ns - a.lines[0].ts_ns, 7);
    source_answer_done(&a);
    cr_assert_eq(parse(SOURCE_VICTORIALOGS, "", NULL, &a, NULL), 0);
    cr_assert_eq(a.n_lines, 0);
}

Test(sources_answer, prometheus_samples)
{
    ADV_AUTO_DONE(source_answer) a;

    cr_assert_eq(parse(SOURCE_PROMETHEUS,
                       "{\"status\":\"success\",\"warnings\":[\"x\"],\"data\":{\"resultType\":\"matrix\",\"result\":["
                       "{\"metric\":{\"Hostname\":\"n1.example.org\"},\"values\":[[1700000000.5,\"1.5\"],[1700000001,\"NaN\"]]},"
                       "{\"metric\":{},\"values\":[]}]}}",
                       "Hostname", &a, NULL), 0);
    cr_assert_eq(a.n_series, 2);
    cr_assert_str_eq(a.series[0].host, "n1");
    cr_assert_eq(a.series[0].samples[0].ts_us, 1700000000500000);
    cr_assert(isnan(a.series[0].samples[1].value));
    cr_assert(a.partial);
}

struct row {
    enum source_kind kind;
    char text[200];
};

ParameterizedTestParameters(sources_answer, no_answers)
{
    static struct row rows[] = {
        { SOURCE_LOKI, "" },
        { SOURCE_LOKI, "<html>" },
        { SOURCE_LOKI, "{}" },
        { SOURCE_LOKI, "{\"status\":\"error\",\"error\":\"x\"}" },
        { SOURCE_LOKI, "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[]}}" },
        { SOURCE_LOKI, "{\"status\":\"success\",\"data\":{\"resultType\":\"streams\"}}" },
        { SOURCE_LOKI, "{\"status\":\"success\",\"data\":{\"resultType\":\"streams\",\"result\":[{\"stream\":{}}]}}" },
        { SOURCE_LOKI, "{\"status\":\"success\",\"data\":{\"resultType\":\"streams\",\"result\":[{\"stream\":{},\"values\":[[1,\"a\"]]}]}}" },
        { SOURCE_LOKI, "{\"status\":\"success\",\"data\":{\"resultType\":\"streams\",\"result\":[{\"stream\":{},\"values\":[[\"-1\",\"a\"]]}]}}" },
        { SOURCE_VICTORIALOGS, "{\"_time\":\"2026-01-02T03:04:05Z\",\"_msg\":\"cut" },
        { SOURCE_VICTORIALOGS, "{\"_msg\":\"no time\"}\n" },
        { SOURCE_VICTORIALOGS, "{\"_time\":\"2026-01-02T03:04:05Z\",\"_msg\":7}\n" },
        { SOURCE_VICTORIALOGS, "not json\n" },
        { SOURCE_VICTORIALOGS, "[]\n" },
        { SOURCE_PROMETHEUS, "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[]}}" },
        { SOURCE_PROMETHEUS, "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"values\":[[1,2]]}]}}" },
        { SOURCE_PROMETHEUS, "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"values\":[[2,\"1\"],[1,\"1\"]]}]}}" },
        { SOURCE_PROMETHEUS, "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"values\":[[2,\"1x\"]]}]}}" },
    };

    return cr_make_param_array(struct row, rows, ADV_ARRAY_LEN(rows));
}

/* Never an empty answer: that would say that there is nothing. */
ParameterizedTest(struct row *row, sources_answer, no_answers)
{
    ADV_AUTO_DONE(source_answer) a;
    struct adv_err err = { 0 };

    cr_assert_eq(parse(row->kind, row->text, "host", &a, &err), -ADV_DATA_LOSS, "%s", row->text);
    cr_assert(err.code == ADV_DATA_LOSS && *err.msg);
}

Test(sources_answer, memory_is_bounded)
{
    ADV_AUTO_DONE(source_answer) a;
    const char text[] = "{\"_time\":\"2026-01-02T03:04:05Z\",\"_msg\":\"0123456789012345678901234567890123456789\"}\n";

    source_answer_init(&a, 64);
    cr_assert_eq(source_parse(SOURCE_VICTORIALOGS, text, strlen(text), NULL, &a, NULL), -ADV_RESOURCE_EXHAUSTED);
}

Test(sources_answer, questions)
{
    ADV_AUTO_DONE(adv_buf) path;
    ADV_AUTO_DONE(adv_buf) form;

    adv_buf_init(&path, 100);
    adv_buf_init(&form, 1000);
    source_ask_lines(SOURCE_LOKI, "{a=\"b\"}", 5, 9, 100, "host", &path, &form);
    cr_assert_str_eq(path.data, "/loki/api/v1/query_range");
    cr_assert_str_eq(form.data, "query=%7Ba%3D%22b%22%7D&start=5&end=9&limit=100&direction=forward");
    adv_buf_reset(&path);
    adv_buf_reset(&form);
    source_ask_lines(SOURCE_VICTORIALOGS, "x", 5, 9, 100, "my-host", &path, &form);
    cr_assert_str_eq(form.data, "query=x%20%7C%20sort%20by%20%28_time%29%20limit%20100%20%7C%20fields%20_time%2C%20_stream%2C%20_msg%2C%20"
                                "%22my-host%22&start=5&end=9");
    adv_buf_reset(&path);
    adv_buf_reset(&form);
    source_ask_samples("m{a=\"b\"}", 90500, 1700000000123456, &path, &form);
    cr_assert_str_eq(form.data, "query=m%7Ba%3D%22b%22%7D%5B91s%5D&time=1700000000.123");
}

Test(sources_answer, errors_for_people)
{
    char text[24];

    const char json[] = "{\"message\":\"no\\n way\"}", bytes[] = "a\x01\xff long text that is cut somewhere\n";

    source_error_text(json, strlen(json), text, sizeof(text));
    cr_assert_str_eq(text, "no  way");
    source_error_text(bytes, strlen(bytes), text, sizeof(text));
    cr_assert(strlen(text) < sizeof(text) && adv_startswith(text, "a "));
}
