/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "controlplane/sources/config.h"

static const char good[] =
    "sources:\n"
    "  - name: logs\n"
    "    kind: victorialogs\n"
    "    url: https://vl.example.org:9428/\n"
    "    clusters: [alpha, beta]\n"
    "    ca: /etc/ca.pem\n"
    "    token_file: /etc/token\n"
    "    tenant: '12:7'\n"
    "    poll_interval: 2s\n"
    "    job_logs: {query: '{app=\"train\"} job:={job_id}', host_field: host, read: all}\n"
    "    node_logs:\n"
    "      query: >-\n"
    "        host:in({node_list})\n"
    "      host_field: host\n"
    "  - name: prom\n"
    "    kind: prometheus\n"
    "    url: http://prom:9090\n"
    "    measures:\n"
    "      - {is: device-idle, query: 'DCGM_FI_DEV_POWER_USAGE{Hostname=~\"{nodes}\"}', below: 90.5, node_label: Hostname}\n"
    "      - {is: io-stopped, query: 'io_bytes{job=\"{job_id}\"}', counter: true, window: 4m, max_age: 30s}\n"
    "      - {is: steps, query: 'train_step{job=\"{job_id}\"}'}\n";

Test(sources_config, reads_what_is_said)
{
    ADV_AUTO(sources_config) c = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(sources_config_parse("f", good, strlen(good), &c, &err), 0, "%s", err.msg);
    cr_assert_eq(c->n, 2);
    cr_assert_str_eq(c->sources[0].url, "https://vl.example.org:9428");
    cr_assert_eq(c->sources[0].kind, SOURCE_VICTORIALOGS);
    cr_assert_eq(c->sources[0].poll_ms, 2000);
    cr_assert(c->sources[0].job_logs.all);
    cr_assert_str_eq(c->sources[0].node_logs.query, "host:in({node_list})");
    cr_assert(source_serves(&c->sources[0], "beta") && !source_serves(&c->sources[0], "gamma"));
    cr_assert(source_serves(&c->sources[1], "gamma"));
    cr_assert_eq(c->sources[1].n_measures, 3);
    cr_assert(c->sources[1].measures[0].below > 90.4 && c->sources[1].measures[0].below < 90.6);
    cr_assert(c->sources[1].measures[1].counter);
    cr_assert_eq(c->sources[1].measures[1].window_ms, 240000);
}

/* A file with one line of it replaced: what is said of that. */
struct row {
    char old[64], new[160], says[120];
};

ParameterizedTestParameters(sources_config, refuses)
{
    static struct row rows[] = {
        { "sources:", "source:", "f:1:1: key \"source\" is not known here" },
        { "name: logs", "name: Logs", "f:2:11: name \"Logs\", expected at most 24 of a-z" },
        { "name: logs", "name: prom", "f:15:5: a second source \"prom\", expected another name" },
        { "kind: victorialogs", "kind: elastic", "f:3:11: kind \"elastic\", expected loki, victorialogs or prometheus" },
        { "kind: victorialogs", "kind: prometheus", "f:2:5: prometheus has no logs" },
        { "url: https://vl.example.org:9428/", "url: vl:9428", "f:4:10: url: expected http:// or https:// with a host" },
        { "url: https://vl.example.org:9428/", "url: https://u:p@vl/", "expected http:// or https:// with a host, and no user" },
        { "url: https://vl.example.org:9428/", "url: http://vl/", "\"ca\" is of use only with https://" },
        { "    ca: /etc/ca.pem\n    token_file", "    user: bob\n    token_file", "expected token_file, or user with password_file" },
        { "    ca: /etc/ca.pem\n", "    ca: ca.pem\n", "f:6:9: ca: expected the path of a file from /" },
        { "token_file: /etc/token", "user: bob", "\"password_file\" is missing here" },
        { "tenant: '12:7'", "tenant: research", "tenant: expected <account> or <account>:<project>, numbers" },
        { "poll_interval: 2s", "poll_interval: 2", "f:9:20: poll_interval:" },
        { "poll_interval: 2s", "poll_interval: 60s", "unknown_after: expected at least twice poll_interval" },
        { "poll_interval: 2s", "poll: 2s", "f:9:5: key \"poll\" is not known here" },
        { "job:={job_id}", "job:={job}", "f:10:23: query: {job}, expected one of {cluster}, {job_id}" },
        { "read: all", "read: some", "read \"some\", expected unread or all" },
        { "      host_field: host\n  - name: prom", "  - name: prom", "\"host_field\" is missing here: lines of a node" },
        { "is: device-idle", "is: idle", "is \"idle\", expected device-idle, io-stopped, steps or throughput" },
        { "below: 90.5, ", "", "f:19:9: \"below\" is missing here: what an idle device stays below" },
        { "below: 90.5", "below: -1", "\"-1\", expected a number of at least 0" },
        { "below: 90.5", "below: inf", "expected a number of at least 0" },
        { "'io_bytes{job=\"{job_id}\"}'", "'rate(io_bytes[5m])'", "query: expected a selector" },
        { "'io_bytes{job=\"{job_id}\"}'", "'io_bytes{a=\"b\"}[5m]'", "query: expected a selector" },
        { "counter: true", "counter: false", "expected \"counter: true\" or \"below\"" },
        { "window: 4m", "window: 45s", "window: expected at least twice max_age" },
        { "is: steps", "is: steps, below: 3", "steps is a counter: expected no \"below\"" },
        { "clusters: [alpha, beta]", "clusters: []", "empty list, expected at least one cluster" },
        { "clusters: [alpha, beta]", "clusters: &a [alpha]", "an anchor or alias, expected the value itself" },
        { "name: logs", "name: logs\n    name: logs", "\"name\" stands here twice" },
    };

    return cr_make_param_array(struct row, rows, ADV_ARRAY_LEN(rows));
}

ParameterizedTest(struct row *row, sources_config, refuses)
{
    ADV_AUTO(sources_config) c = NULL;
    struct adv_err err = { 0 };
    const char *at = strstr(good, row->old);
    char text[4096];

    cr_assert_not_null(at, "%s", row->old);
    (void) snprintf(text, sizeof(text), "%.*s%s%s", (int) (at - good), good, row->new, at + strlen(row->old));
    cr_assert_lt(sources_config_parse("f", text, strlen(text), &c, &err), 0, "taken: %s", row->new);
    cr_assert_not_null(strstr(err.msg, row->says), "said: %s, wanted: %s", err.msg, row->says);
    cr_assert_null(c);
}

/* The largest file is a whole number of the pieces it is read in: what is beyond must not be cut off in silence. */
Test(sources_config, a_file_that_is_too_large_is_not_read_in_part)
{
    char path[] = "/tmp/sources-XXXXXX", fill[4096];
    struct sources_config *c = NULL;
    struct adv_err err = { 0 };
    int fd = mkstemp(path);

    cr_assert_geq(fd, 0);
    memset(fill, '\n', sizeof(fill));
    cr_assert_eq(write(fd, good, sizeof(good) - 1), (ssize_t) sizeof(good) - 1);
    for (size_t n = sizeof(good) - 1; n < (1 << 20) + 100; n += sizeof(fill))
        cr_assert_eq(write(fd, fill, sizeof(fill)), (ssize_t) sizeof(fill));
    (void) close(fd);
    cr_assert_eq(sources_config_load(path, &c, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(err.msg, "at most 1048576 bytes"), "%s", err.msg);
    cr_assert_null(c);
    (void) unlink(path);
}
