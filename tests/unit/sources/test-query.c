/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "controlplane/sources/query.h"

static const struct query_vars vars = { .cluster = "alpha", .job_id = "46_5", .restart_count = 2, .user = "al.ice@x",
                                        .account = "ml\"} or {a=\"b", .partition = "", .nodes = "n[1-2].org,m3" };

struct row {
    char template[96], made[96];
    int code;
};

ParameterizedTestParameters(sources_query, expands)
{
    static struct row rows[] = {
        { "{a=\"{cluster}\"} {b}", "", ADV_INVALID_ARGUMENT },
        { "{a=\"{cluster}\", b=\"{job_id}\"}", "{a=\"alpha\", b=\"46_5\"}", 0 },
        { "{array_job_id}.{array_task_id}.{restart_count}", "46.5.2", 0 },
        { "h=~\"{nodes}\" in({node_list})", "h=~\"n1[.]org|n2[.]org|m3\" in(\"n1.org\",\"n2.org\",\"m3\")", 0 },
        { "{user}", "al.ice@x", 0 },
        { "{account}", "", ADV_FAILED_PRECONDITION },   /* would widen the query */
        { "{partition}", "", ADV_FAILED_PRECONDITION }, /* not known */
        { "{ } {1} {a b} {", "{ } {1} {a b} {", 0 },
    };

    return cr_make_param_array(struct row, rows, ADV_ARRAY_LEN(rows));
}

ParameterizedTest(struct row *row, sources_query, expands)
{
    struct adv_err err = { 0 };
    ADV_AUTO_DONE(adv_buf) b;
    int r;

    adv_buf_init(&b, QUERY_MAX);
    r = query_check(row->template, &err);
    if (r == 0)
        r = query_expand(row->template, &vars, &b, &err);
    cr_assert_eq(r, -row->code, "%s: %s", row->template, err.msg);
    if (r == 0)
        cr_assert_str_eq(b.data, row->made);
}

Test(sources_query, a_query_has_an_end)
{
    struct query_vars many = vars;
    ADV_AUTO_DONE(adv_buf) b;

    many.nodes = "a-node-with-a-long-name[1-9999]";
    adv_buf_init(&b, QUERY_MAX);
    cr_assert_eq(query_expand("{nodes}", &many, &b, NULL), -ADV_RESOURCE_EXHAUSTED);
}

Test(sources_query, fields_are_encoded)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 100);
    query_field(&b, "query", "{a=\"b&c\"} \xc3\xa9");
    query_field(&b, "limit", "5");
    cr_assert_str_eq(b.data, "query=%7Ba%3D%22b%26c%22%7D%20%C3%A9&limit=5");
}
