/* SPDX-License-Identifier: Apache-2.0 */
/* The file is read as YAML events against tables of keys, so each error has its line; anchors and aliases are refused, as in
 * every file of ours. Credentials are never in it: only the names of files that have them. */

#include "controlplane/sources/config.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>

#include "common/num.h"
#include "common/utf8.h"
#include "common/yamlread.h"
#include "controlplane/sources/query.h"

#define FILE_MAX     (1 << 20)
#define MAX_CLUSTERS 256

const char *source_kind_name(enum source_kind k)
{
    static const char *const names[] = { "loki", "victorialogs", "prometheus" };
    return names[k];
}

const char *measure_kind_name(enum measure_kind k)
{
    static const char *const names[MEASURE_KIND_END_] = { "device-idle", "io-stopped", "steps", "throughput" };
    return names[k];
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static void logs_done(struct source_logs *l)
{
    free(l->query);
    free(l->host_field);
}

static void source_done(struct source_config *s)
{
    free(s->name);
    free(s->url);
    for (size_t i = 0; i < s->n_clusters; i++)
        free(s->clusters[i]);
    free(s->clusters);
    free(s->ca);
    free(s->token_file);
    free(s->user);
    free(s->password_file);
    free(s->tenant);
    logs_done(&s->job_logs);
    logs_done(&s->node_logs);
    for (size_t i = 0; i < s->n_measures; i++) {
        free(s->measures[i].query);
        free(s->measures[i].node_label);
    }
}

struct sources_config *sources_config_free(struct sources_config *c)
{
    if (!c)
        return NULL;
    for (size_t i = 0; i < c->n; i++)
        source_done(&c->sources[i]);
    free(c);
    return NULL;
}

bool source_serves(const struct source_config *s, const char *cluster)
{
    for (size_t i = 0; i < s->n_clusters; i++)
        if (adv_streq(s->clusters[i], cluster))
            return true;
    return s->n_clusters == 0;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

struct reader {
    struct adv_yaml y;
    struct sources_config *c;
};

#define at_mark(rd, m, ...)  adv_yaml_at(&(rd)->y, m, __VA_ARGS__)
#define at_event(rd, ...)    at_mark(rd, (rd)->y.ev.start_mark, __VA_ARGS__)
#define no_memory(rd)        adv_yaml_no_memory(&(rd)->y)
#define next(rd)             adv_yaml_next(&(rd)->y)
#define next_is(rd, t, what) adv_yaml_next_is(&(rd)->y, t, what)

/* The text of the present event: one line, not empty. */
static int text_of(struct reader *rd, const char **ret)
{
    const char *s = (const char *) rd->y.ev.data.scalar.value;
    size_t len = rd->y.ev.type == YAML_SCALAR_EVENT ? rd->y.ev.data.scalar.length : 0;

    if (rd->y.ev.type != YAML_SCALAR_EVENT)
        return at_event(rd, "expected a text");
    while (len && s[len - 1] == '\n') /* of a block of text */
        len--;
    rd->y.ev.data.scalar.value[len] = '\0';
    if (len == 0 || len > QUERY_TEMPLATE_MAX)
        return at_event(rd, "text of %zu bytes, expected 1 to %d", len, QUERY_TEMPLATE_MAX);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char) s[i] < 0x20 || s[i] == 0x7f)
            return at_event(rd, "control character in a text, expected one line and none of them");
    *ret = s;
    return 0;
}

static int take_text(struct reader *rd, const char **ret)
{
    int r = next(rd);

    return r < 0 ? r : text_of(rd, ret);
}

/* ---- values by table ---------------------------------------------------------------------------------------------- */

enum type { T_TEXT, T_PATH, T_URL, T_NAME, T_LABEL, T_QUERY, T_DURATION, T_SIZE, T_COUNT, T_BOOL, T_NUMBER, T_OWN };

struct row {
    const char *key;
    enum type type;
    size_t offset;
    int64_t min, max;
    bool needed;
    int (*take)(struct reader *rd, void *object); /* of OWN */
};

static int keep(struct reader *rd, const char *s, char **ret)
{
    return (*ret = strdup(s)) ? 0 : no_memory(rd);
}

static bool only(const char *s, const char *chars)
{
    return strspn(s, chars) == strlen(s);
}

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define LETTER LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT  "0123456789"

static int take_url(struct reader *rd, const char *s, char **ret)
{
    const char *host = adv_startswith(s, "https://") ? s + 8 : adv_startswith(s, "http://") ? s + 7 : NULL;
    size_t len;

    if (!host || !*host || *host == '/' || strpbrk(s, " ?#@"))
        return at_event(rd, "url: expected http:// or https:// with a host, and no user, '?' or '#'");
    for (len = strlen(s); s[len - 1] == '/'; len--)
        ;
    return (*ret = strndup(s, len)) ? 0 : no_memory(rd);
}

static int take_number(struct reader *rd, const char *s, double *ret)
{
    char *end = NULL;
    double v = only(s, DIGIT ".") && *s != '.' ? strtod(s, &end) : -1;

    if (!end || *end || !isfinite(v))
        return at_event(rd, "\"%.20s\", expected a number of at least 0", s);
    *ret = v;
    return 0;
}

static int take_row(struct reader *rd, const struct row *row, void *object)
{
    void *at = (char *) object + row->offset;
    struct adv_err why = { 0 };
    const char *s = NULL;
    int64_t v = 0;
    int r;

    if (row->type == T_OWN)
        return row->take(rd, object);
    if ((r = take_text(rd, &s)) < 0)
        return r;
    switch (row->type) {
    case T_TEXT:
        return keep(rd, s, at);
    case T_PATH:
        return *s == '/' ? keep(rd, s, at) : at_event(rd, "%s: expected the path of a file from /", row->key);
    case T_URL:
        return take_url(rd, s, at);
    case T_NAME:
        return strlen(s) <= SOURCE_NAME_MAX && only(s, LOWER DIGIT "-") ?
                   keep(rd, s, at) :
                   at_event(rd, "%s \"%.40s\", expected at most %d of a-z, 0-9 and '-'", row->key, s, SOURCE_NAME_MAX);
    case T_LABEL:
        return strlen(s) <= 128 && only(s, LETTER DIGIT "_.-/") ?
                   keep(rd, s, at) :
                   at_event(rd, "%s \"%.40s\", expected a name of letters, digits and _.-/", row->key, s);
    case T_QUERY:
        return query_check(s, &why) == 0 ? keep(rd, s, at) : at_event(rd, "query: %.170s", why.msg);
    case T_DURATION:
        return adv_parse_duration_ms(s, row->min, row->max, at, &why) == 0 ? 0 : at_event(rd, "%s: %.140s", row->key, why.msg);
    case T_SIZE:
        return adv_parse_size(s, row->min, row->max, at, &why) == 0 ? 0 : at_event(rd, "%s: %.140s", row->key, why.msg);
    case T_COUNT:
        if (adv_parse_i64(s, row->min, row->max, &v, &why) < 0)
            return at_event(rd, "%s: %.140s", row->key, why.msg);
        memcpy(at, &v, sizeof(v));
        return 0;
    case T_BOOL:
        if (!adv_streq(s, "true") && !adv_streq(s, "false"))
            return at_event(rd, "%s: \"%.20s\", expected true or false", row->key, s);
        *(bool *) at = adv_streq(s, "true");
        return 0;
    case T_NUMBER:
        return take_number(rd, s, at);
    case T_OWN:
        break;
    }
    return 0;
}

/* All keys of the present mapping. @ret_seen gets a bit for each row. */
static int take_rows(struct reader *rd, const struct row *rows, size_t n_rows, void *object, unsigned *ret_seen)
{
    yaml_mark_t mark = rd->y.ev.start_mark;
    const char *s = NULL;
    unsigned seen = 0;
    size_t i;
    int r;

    while ((r = next(rd)) == 0 && rd->y.ev.type != YAML_MAPPING_END_EVENT) {
        if ((r = text_of(rd, &s)) < 0)
            return r;
        for (i = 0; i < n_rows && !adv_streq(s, rows[i].key); i++)
            ;
        if (i == n_rows)
            return at_event(rd, "key \"%.40s\" is not known here", s);
        if (seen & 1u << i)
            return at_event(rd, "\"%s\" stands here twice, expected it once", rows[i].key);
        seen |= 1u << i;
        if ((r = take_row(rd, &rows[i], object)) < 0)
            return r;
    }
    for (i = 0; r == 0 && i < n_rows; i++)
        if (rows[i].needed && !(seen & 1u << i))
            return at_mark(rd, mark, "\"%s\" is missing here", rows[i].key);
    *ret_seen = seen;
    return r;
}

/* ---- one source --------------------------------------------------------------------------------------------------- */

static int take_kind(struct reader *rd, void *object)
{
    struct source_config *s = object;
    const char *text = NULL;
    int r = take_text(rd, &text);

    for (int k = SOURCE_LOKI; r == 0 && k <= SOURCE_PROMETHEUS; k++)
        if (adv_streq(text, source_kind_name((enum source_kind) k))) {
            s->kind = (enum source_kind) k;
            return 0;
        }
    return r < 0 ? r : at_event(rd, "kind \"%.20s\", expected loki, victorialogs or prometheus", text);
}

static int take_clusters(struct reader *rd, void *object)
{
    struct source_config *s = object;
    const char *text = NULL;
    char **more;
    int r = next_is(rd, YAML_SEQUENCE_START_EVENT, "a list of clusters");

    while (r == 0 && (r = next(rd)) == 0 && rd->y.ev.type != YAML_SEQUENCE_END_EVENT) {
        if ((r = text_of(rd, &text)) < 0)
            return r;
        if (s->n_clusters == MAX_CLUSTERS)
            return at_event(rd, "expected at most %d clusters", MAX_CLUSTERS);
        if (!only(text, LOWER DIGIT "-_") || strlen(text) > 64)
            return at_event(rd, "cluster \"%.40s\", expected at most 64 of a-z, 0-9, '-' and '_'", text);
        if (!(more = realloc(s->clusters, (s->n_clusters + 1) * sizeof(*more))))
            return no_memory(rd);
        s->clusters = more;
        if ((r = keep(rd, text, &s->clusters[s->n_clusters])) < 0)
            return r;
        s->n_clusters++;
    }
    return r == 0 && !s->n_clusters ? at_event(rd, "empty list, expected at least one cluster") : r;
}

static int take_read(struct reader *rd, void *object)
{
    struct source_logs *l = object;
    const char *text = NULL;
    int r = take_text(rd, &text);

    if (r < 0)
        return r;
    l->all = adv_streq(text, "all");
    return l->all || adv_streq(text, "unread") ? 0 : at_event(rd, "read \"%.20s\", expected unread or all", text);
}

static const struct row logs_rows[] = {
    { "query", T_QUERY, offsetof(struct source_logs, query), .needed = true },
    { "host_field", T_LABEL, offsetof(struct source_logs, host_field) },
    { "read", T_OWN, .take = take_read },
};

static int take_job_logs(struct reader *rd, void *object)
{
    struct source_config *s = object;
    unsigned seen;
    int r = next_is(rd, YAML_MAPPING_START_EVENT, "a mapping with query");

    return r < 0 ? r : take_rows(rd, logs_rows, ADV_ARRAY_LEN(logs_rows), &s->job_logs, &seen);
}

static int take_node_logs(struct reader *rd, void *object)
{
    struct source_config *s = object;
    unsigned seen;
    int r = next_is(rd, YAML_MAPPING_START_EVENT, "a mapping with query and host_field");
    yaml_mark_t mark = rd->y.ev.start_mark;

    if (r < 0 || (r = take_rows(rd, logs_rows, 2, &s->node_logs, &seen)) < 0)
        return r;
    if (!s->node_logs.host_field)
        return at_mark(rd, mark, "\"host_field\" is missing here: lines of a node belong to it and to no other");
    return 0;
}

static int take_is(struct reader *rd, void *object)
{
    struct source_measure *m = object;
    const char *text = NULL;
    int r = take_text(rd, &text);

    for (int k = 0; r == 0 && k < MEASURE_KIND_END_; k++)
        if (adv_streq(text, measure_kind_name((enum measure_kind) k))) {
            m->is = (enum measure_kind) k;
            return 0;
        }
    return r < 0 ? r : at_event(rd, "is \"%.20s\", expected device-idle, io-stopped, steps or throughput", text);
}

enum { M_IS, M_QUERY, M_BELOW, M_COUNTER };
static const struct row measure_rows[] = {
    [M_IS] = { "is", T_OWN, .take = take_is, .needed = true },
    [M_QUERY] = { "query", T_QUERY, offsetof(struct source_measure, query), .needed = true },
    [M_BELOW] = { "below", T_NUMBER, offsetof(struct source_measure, below) },
    [M_COUNTER] = { "counter", T_BOOL, offsetof(struct source_measure, counter) },
    { "window", T_DURATION, offsetof(struct source_measure, window_ms), 10000, 3600000 },
    { "max_age", T_DURATION, offsetof(struct source_measure, max_age_ms), 1000, 240000 },
    { "node_label", T_LABEL, offsetof(struct source_measure, node_label) },
};

/* Of a selector alone a range can be asked, which has the samples themselves: whatever is computed of them fills gaps. */
static bool selector(const char *q)
{
    size_t n = strcspn(q, "{"), len = strlen(q);

    if (n && !only(q, LETTER DIGIT "_:{}=~!\"'`,.*+|()[]\\^$?-/ @<>&;%#"))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr(LETTER DIGIT "_:", q[i]))
            return false;
    return n == len ? !strchr(DIGIT, *q) : q[len - 1] == '}';
}

struct in_source {
    struct reader *rd;
    struct source_config *s;
};

static int take_measure(void *arg)
{
    const struct in_source *in = arg;
    struct reader *rd = in->rd;
    struct source_config *s = in->s;
    yaml_mark_t mark = rd->y.ev.start_mark;
    struct source_measure *m;
    unsigned seen;
    int r;

    if (s->n_measures == SOURCE_MEASURES_MAX)
        return at_event(rd, "expected at most %d measures", SOURCE_MEASURES_MAX);
    m = &s->measures[s->n_measures++];
    *m = (struct source_measure) { .window_ms = 180000, .max_age_ms = 60000 };
    if ((r = take_rows(rd, measure_rows, ADV_ARRAY_LEN(measure_rows), m, &seen)) < 0)
        return r;
    m->has_below = seen >> M_BELOW & 1;
    if (!selector(m->query))
        return at_mark(rd, mark, "query: expected a selector, name{label=\"value\"}, and nothing around it: "
                                 "functions hide gaps");
    if (m->is == MEASURE_DEVICE_IDLE && (!m->has_below || (!m->counter && m->below <= 0)))
        return at_mark(rd, mark, "\"below\" is missing here: what an idle device stays below");
    if (m->is == MEASURE_IO_STOPPED && !m->counter && !m->has_below)
        return at_mark(rd, mark, "expected \"counter: true\" or \"below\"");
    if (!measure_is_witness(m->is) && (seen >> M_BELOW & 1 || (seen >> M_COUNTER & 1 && !m->counter)))
        return at_mark(rd, mark, "%s is a counter: expected no \"below\" and no \"counter: false\"", measure_kind_name(m->is));
    if (m->window_ms < 2 * m->max_age_ms)
        return at_mark(rd, mark, "window: expected at least twice max_age");
    return 0;
}

static int take_measures(struct reader *rd, void *object)
{
    return adv_yaml_mappings(&rd->y, "a list of measures", take_measure, &(struct in_source) { rd, object });
}

#define AT(member) offsetof(struct source_config, member)
static const struct row source_rows[] = {
    { "name", T_NAME, AT(name), .needed = true },
    { "kind", T_OWN, .take = take_kind, .needed = true },
    { "url", T_URL, AT(url), .needed = true },
    { "clusters", T_OWN, .take = take_clusters },
    { "ca", T_PATH, AT(ca) },
    { "token_file", T_PATH, AT(token_file) },
    { "user", T_TEXT, AT(user) },
    { "password_file", T_PATH, AT(password_file) },
    { "tenant", T_TEXT, AT(tenant) },
    { "poll_interval", T_DURATION, AT(poll_ms), 500, 600000 },
    { "timeout", T_DURATION, AT(timeout_ms), 100, 120000 },
    { "max_answer", T_SIZE, AT(max_bytes), 16 << 10, 64 << 20 },
    { "max_lines", T_COUNT, AT(limit), 10, 10000 },
    { "max_requests", T_COUNT, AT(in_flight), 1, 64 },
    { "unknown_after", T_DURATION, AT(unknown_after_ms), 1000, 3600000 },
    { "late_lines", T_DURATION, AT(late_ms), 0, 600000 },
    { "backlog", T_DURATION, AT(backlog_ms), 10000, 86400000 },
    { "after_end", T_DURATION, AT(after_end_ms), 1000, 600000 },
    { "job_logs", T_OWN, .take = take_job_logs },
    { "node_logs", T_OWN, .take = take_node_logs },
    { "measures", T_OWN, .take = take_measures },
};

/* "12:7", as VictoriaLogs numbers tenants. */
static bool tenant_of_two(const char *s)
{
    size_t n = strspn(s, DIGIT);

    return n && n < 11 && (!s[n] || (s[n] == ':' && s[n + 1] && only(s + n + 1, DIGIT) && strlen(s + n + 1) < 11));
}

static int check_source(struct reader *rd, const struct source_config *s, yaml_mark_t mark)
{
    bool metrics = s->kind == SOURCE_PROMETHEUS;

    for (const struct source_config *o = rd->c->sources; o < s; o++)
        if (adv_streq(o->name, s->name))
            return at_mark(rd, mark, "a second source \"%s\", expected another name", s->name);
    if (metrics && (s->job_logs.query || s->node_logs.query))
        return at_mark(rd, mark, "prometheus has no logs: expected measures only");
    if (!metrics && s->n_measures)
        return at_mark(rd, mark, "%s has no measures: expected job_logs or node_logs", source_kind_name(s->kind));
    if (metrics ? !s->n_measures : !s->job_logs.query && !s->node_logs.query)
        return at_mark(rd, mark, "nothing is asked of it: expected %s", metrics ? "measures" : "job_logs or node_logs");
    if (s->token_file && (s->user || s->password_file))
        return at_mark(rd, mark, "expected token_file, or user with password_file, and not both");
    if (!s->user != !s->password_file)
        return at_mark(rd, mark, "\"%s\" is missing here", s->user ? "password_file" : "user");
    if (s->ca && !adv_startswith(s->url, "https://"))
        return at_mark(rd, mark, "\"ca\" is of use only with https://");
    if ((s->token_file || s->user) && adv_startswith(s->url, "http://") && !adv_startswith(s->url, "http://127.") &&
        !adv_startswith(s->url, "http://localhost") && !adv_startswith(s->url, "http://[::1]"))
        return at_mark(rd, mark, "url: expected https://, as credentials are sent");
    if (s->kind == SOURCE_VICTORIALOGS && s->tenant && !tenant_of_two(s->tenant))
        return at_mark(rd, mark, "tenant: expected <account> or <account>:<project>, numbers");
    if (s->unknown_after_ms < 2 * s->poll_ms)
        return at_mark(rd, mark, "unknown_after: expected at least twice poll_interval");
    return 0;
}

static int take_source(void *arg)
{
    struct reader *rd = arg;
    yaml_mark_t mark = rd->y.ev.start_mark;
    struct source_config *s;
    unsigned seen;
    int r;

    if (rd->c->n == SOURCES_MAX)
        return at_event(rd, "expected at most %d sources", SOURCES_MAX);
    s = &rd->c->sources[rd->c->n++];
    *s = (struct source_config) { .poll_ms = 5000, .timeout_ms = 10000, .max_bytes = 2 << 20, .limit = 1000, .in_flight = 4,
                                  .unknown_after_ms = 60000, .late_ms = 15000, .backlog_ms = 900000, .after_end_ms = 60000 };
    r = take_rows(rd, source_rows, ADV_ARRAY_LEN(source_rows), s, &seen);
    return r < 0 ? r : check_source(rd, s, mark);
}

static int take_list(struct reader *rd, void *object)
{
    (void) object;
    return adv_yaml_mappings(&rd->y, "a list of sources", take_source, rd);
}

static int take_file(struct reader *rd)
{
    static const struct row rows[] = { { "sources", T_OWN, .take = take_list, .needed = true } };
    unsigned seen;
    int r;

    if ((r = next_is(rd, YAML_STREAM_START_EVENT, "a file")) < 0 ||
        (r = next_is(rd, YAML_DOCUMENT_START_EVENT, "a mapping with sources")) < 0 ||
        (r = next_is(rd, YAML_MAPPING_START_EVENT, "a mapping with sources")) < 0 || (r = take_rows(rd, rows, 1, rd->c, &seen)) < 0 ||
        (r = next_is(rd, YAML_DOCUMENT_END_EVENT, "the end of the file")) < 0)
        return r;
    return next_is(rd, YAML_STREAM_END_EVENT, "the end of the file, not a second document");
}

static int not_text(const char *name, struct adv_err *err)
{
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "%.80s: expected UTF-8 of at most %d bytes", name, FILE_MAX);
}

int sources_config_parse(const char *name, const void *text, size_t len, struct sources_config **ret, struct adv_err *err)
{
    ADV_AUTO(sources_config) c = calloc(1, sizeof(*c));
    struct reader rd = { .y = { .name = name, .err = err }, .c = c };
    int r;

    if (!c)
        return no_memory(&rd);
    if (len > FILE_MAX || !adv_utf8_valid(text, len))
        return not_text(name, err);
    if ((r = adv_yaml_init(&rd.y, name, text, len, err)) < 0)
        return r;
    r = take_file(&rd);
    adv_yaml_done(&rd.y);
    if (r == 0)
        *ret = ADV_STEAL(c);
    return r;
}

int sources_config_load(const char *path, struct sources_config **ret, struct adv_err *err)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ADV_AUTO_DONE(adv_buf) text;
    int r;

    adv_buf_init(&text, FILE_MAX);
    r = fd < 0 ? -ADV_UNAVAILABLE : adv_buf_read(&text, fd);
    if (r == -ADV_RESOURCE_EXHAUSTED)
        return not_text(path, err);
    if (r < 0)
        return adv_err_set_errno(err, errno == ENOENT ? ADV_NOT_FOUND : ADV_UNAVAILABLE, errno, "sources %s", path);
    return sources_config_parse(path, text.data, text.len, ret, err);
}
