/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/sources/answer.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/json.h"
#include "common/num.h"
#include "common/utf8.h"
#include "controlplane/sources/query.h"

#define LINES_MAX   20000
#define SERIES_MAX  20000
#define SAMPLES_MAX 1000000
#define LINE_MAX_   (256 << 10) /* the rest of a longer one is left out */

void source_answer_init(struct source_answer *a, size_t max_bytes)
{
    *a = (struct source_answer) { 0 };
    adv_arena_init(&a->arena, max_bytes);
}

void source_answer_done(struct source_answer *a)
{
    adv_arena_done(&a->arena);
}

/* ---- requests ----------------------------------------------------------------------------------------------------- */

static void number_field(struct adv_buf *form, const char *key, int64_t v)
{
    char text[24];

    (void) snprintf(text, sizeof(text), "%" PRId64, v);
    query_field(form, key, text);
}

/* VictoriaLogs reads a number as seconds, milli-, micro- or nanoseconds by its size: ours are nanoseconds of this age. Its `limit`
 * argument would give the newest lines; the pipe gives the oldest, in order. */
static void ask_victorialogs(const char *query, int64_t start_ns, int64_t end_ns, int64_t limit, const char *host_field,
                             struct adv_buf *path, struct adv_buf *form)
{
    char pipes[256];
    struct adv_buf q;

    adv_buf_init(&q, QUERY_MAX + sizeof(pipes));
    (void) snprintf(pipes, sizeof(pipes), " | sort by (_time) limit %" PRId64 " | fields _time, _stream, _msg%s%s%s", limit,
                    host_field ? ", \"" : "", host_field ? host_field : "", host_field ? "\"" : "");
    (void) adv_buf_append_str(&q, query);
    (void) adv_buf_append_str(&q, pipes);
    (void) adv_buf_append_str(path, "/select/logsql/query");
    if (adv_buf_error(&q) < 0)
        (void) adv_buf_reserve(form, SIZE_MAX / 2); /* the error stays in the caller's buffer */
    query_field(form, "query", q.data);
    number_field(form, "start", start_ns);
    number_field(form, "end", end_ns);
    adv_buf_done(&q);
}

void source_ask_lines(enum source_kind kind, const char *query, int64_t start_ns, int64_t end_ns, int64_t limit,
                      const char *host_field, struct adv_buf *path, struct adv_buf *form)
{
    if (kind == SOURCE_VICTORIALOGS) {
        ask_victorialogs(query, start_ns, end_ns, limit, host_field, path, form);
        return;
    }
    (void) adv_buf_append_str(path, "/loki/api/v1/query_range");
    query_field(form, "query", query);
    number_field(form, "start", start_ns);
    number_field(form, "end", end_ns);
    number_field(form, "limit", limit);
    query_field(form, "direction", "forward");
}

void source_ask_samples(const char *selector, int64_t window_ms, int64_t at_us, struct adv_buf *path, struct adv_buf *form)
{
    char text[32];
    struct adv_buf q;

    adv_buf_init(&q, QUERY_MAX + sizeof(text));
    (void) adv_buf_append_str(&q, selector);
    (void) adv_buf_appendf(&q, "[%" PRId64 "s]", (window_ms + 999) / 1000);
    (void) adv_buf_append_str(path, "/api/v1/query");
    if (adv_buf_error(&q) < 0)
        (void) adv_buf_reserve(form, SIZE_MAX / 2);
    query_field(form, "query", q.data);
    (void) snprintf(text, sizeof(text), "%" PRId64 ".%03" PRId64, at_us / 1000000, at_us / 1000 % 1000);
    query_field(form, "time", text);
    adv_buf_done(&q);
}

/* ---- hosts -------------------------------------------------------------------------------------------------------- */

bool source_host(const char *text, size_t len, char ret[64])
{
    size_t n = 0;

    while (n < len && text[n] && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", text[n]))
        n++;
    ret[0] = '\0';
    if (n == 0 || n > 63 || text[0] == '-' || (n < len && text[n] != '.' && text[n] != ':') ||
        strspn(text, "0123456789") == n) /* a number: of an address, or of nothing */
        return false;
    memcpy(ret, text, n);
    ret[n] = '\0';
    return true;
}

static void host_of(const json_t *labels, const char *field, char ret[64])
{
    const json_t *v = field ? json_object_get(labels, field) : NULL;

    ret[0] = '\0';
    if (json_is_string(v))
        (void) source_host(json_string_value(v), json_string_length(v), ret);
}

/* ---- lines -------------------------------------------------------------------------------------------------------- */

/* FNV-1a, 64 bits: repeats are of our own making, and one that is not noticed only counts twice. */
static uint64_t mix(uint64_t h, const void *bytes, size_t len)
{
    const uint8_t *p = bytes;

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 1099511628211ULL;
    return (h ^ 0xff) * 1099511628211ULL;
}
#define MIX_START 14695981039346656037ULL

static int bad(struct adv_err *err, const char *what)
{
    return adv_err_set(err, ADV_DATA_LOSS, "an answer that is none: %s", what);
}

static int not_json(int r, struct adv_err *err)
{
    adv_err_wrap(err, "an answer that is none");
    if (r == -ADV_RESOURCE_EXHAUSTED)
        return r;
    if (err)
        err->code = ADV_DATA_LOSS;
    return -ADV_DATA_LOSS;
}

static int no_memory(struct adv_err *err)
{
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "an answer that takes more memory than it may");
}

static int add_line(struct source_answer *a, size_t cap, int64_t ts_ns, const json_t *text, const char *host, uint64_t labels,
                    struct adv_err *err)
{
    size_t len = json_string_length(text);
    struct source_line *l = &a->lines[a->n_lines];
    char *copy;

    if (len > LINE_MAX_)
        len = adv_utf8_cut(json_string_value(text), len, LINE_MAX_);
    if (a->n_lines == cap || !(copy = adv_arena_alloc(&a->arena, len + 1)))
        return no_memory(err);
    memcpy(copy, json_string_value(text), len);
    copy[len] = '\0';
    *l = (struct source_line) { .ts_ns = ts_ns, .text = copy, .len = len };
    (void) snprintf(l->host, sizeof(l->host), "%s", host);
    l->hash = mix(mix(labels, &ts_ns, sizeof(ts_ns)), copy, len);
    a->n_lines++;
    return 0;
}

/* Each stream comes in order, several do not. */
static int keep_order(struct source_answer *a, struct adv_err *err)
{
    struct source_line *tmp;
    bool sorted = true;

    for (size_t i = 1; i < a->n_lines; i++)
        sorted = sorted && a->lines[i - 1].ts_ns <= a->lines[i].ts_ns;
    if (sorted)
        return 0;
    /* merge sort, which leaves equal times alone; bottom up */
    if (!(tmp = calloc(a->n_lines, sizeof(*tmp))))
        return no_memory(err);
    for (size_t width = 1; width < a->n_lines; width *= 2) {
        for (size_t lo = 0; lo < a->n_lines; lo += 2 * width) {
            size_t mid = lo + width < a->n_lines ? lo + width : a->n_lines;
            size_t hi = lo + 2 * width < a->n_lines ? lo + 2 * width : a->n_lines, i = lo, j = mid;

            for (size_t k = lo; k < hi; k++)
                tmp[k] = i < mid && (j >= hi || a->lines[i].ts_ns <= a->lines[j].ts_ns) ? a->lines[i++] : a->lines[j++];
        }
        memcpy(a->lines, tmp, a->n_lines * sizeof(*tmp));
    }
    free(tmp);
    return 0;
}

/* The head that Loki and Prometheus share: {"status":"success","data":{"resultType":@type,"result":[…]}}. */
static int result_of(const json_t *root, const char *type, const json_t **ret, struct adv_err *err)
{
    const char *status = json_string_value(json_object_get(root, "status"));
    const json_t *data = json_object_get(root, "data");
    const char *said = json_string_value(json_object_get(data, "resultType")),
               *why = json_string_value(json_object_get(root, "error"));

    if (!adv_streq(status, "success"))
        return adv_err_set(err, ADV_DATA_LOSS, "an answer that is none: status %.20s%s%.100s", status ? status : "missing",
                           why ? ", " : "", why ? why : "");
    if (!adv_streq(said, type))
        return adv_err_set(err, ADV_DATA_LOSS, "an answer that is none: resultType %.20s, expected %s", said ? said : "missing",
                           type);
    *ret = json_object_get(data, "result");
    return json_is_array(*ret) ? 0 : bad(err, "no result");
}

/* "1700000000000000000" */
static bool nanoseconds(const json_t *v, int64_t *ret)
{
    return json_is_string(v) && adv_parse_i64(json_string_value(v), 0, INT64_MAX, ret, NULL) == 0;
}

static int parse_loki(const json_t *root, const char *field, struct source_answer *a, struct adv_err *err)
{
    const json_t *result = NULL, *stream, *entry;
    size_t i, k, n = 0;
    int r = result_of(root, "streams", &result, err);

    if (r < 0)
        return r;
    json_array_foreach (result, i, stream) {
        const json_t *values = json_object_get(stream, "values");
        if (!json_is_object(json_object_get(stream, "stream")) || !json_is_array(values))
            return bad(err, "a stream without labels or values");
        n += json_array_size(values);
    }
    if (n > LINES_MAX || !(a->lines = adv_arena_alloc(&a->arena, (n + 1) * sizeof(*a->lines))))
        return no_memory(err);
    json_array_foreach (result, i, stream) {
        json_t *labels = json_object_get(stream, "stream");
        adv_auto_free char *text = json_dumps(labels, JSON_COMPACT | JSON_SORT_KEYS);
        uint64_t h = text ? mix(MIX_START, text, strlen(text)) : MIX_START;
        char host[64], own[64];

        host_of(labels, field, host);
        json_array_foreach (json_object_get(stream, "values"), k, entry) {
            int64_t ts = 0;
            if (!json_is_array(entry) || json_array_size(entry) < 2 || !nanoseconds(json_array_get(entry, 0), &ts) ||
                !json_is_string(json_array_get(entry, 1)))
                return bad(err, "an entry without time or line");
            host_of(json_array_get(entry, 2), field, own); /* structured metadata, where there is any */
            if ((r = add_line(a, n, ts, json_array_get(entry, 1), *own ? own : host, h, err)) < 0)
                return r;
        }
    }
    return keep_order(a, err);
}

/* RFC 3339 with up to nine digits of fraction. */
static bool time_ns(const char *s, int64_t *ret)
{
    const char *dot = s ? strchr(s, '.') : NULL;
    int64_t us = 0, ns = 0;

    if (!s || adv_rfc3339_parse(s, &us, NULL) < 0 || us <= 0 || us >= INT64_MAX / 1000 - 1)
        return false;
    for (int i = 1; dot && i <= 9 && dot[i] >= '0' && dot[i] <= '9'; i++)
        if (i > 6)
            ns += (dot[i] - '0') * (i == 7 ? 100 : i == 8 ? 10 : 1);
    *ret = us * 1000 + ns;
    return true;
}

static int victorialogs_line(const char *line, size_t len, const char *field, struct source_answer *a, size_t cap,
                             struct adv_err *err)
{
    ADV_JSON_AUTO json_t *root = NULL;
    const json_t *msg;
    const char *stream;
    int64_t ts = 0;
    char host[64];
    int r = adv_json_parse_any(line, len, LINE_MAX_ * 8, &root, err);

    if (r < 0)
        return not_json(r, err);
    if (!json_is_object(root) || !time_ns(json_string_value(json_object_get(root, "_time")), &ts))
        return bad(err, "a line without _time");
    msg = json_object_get(root, "_msg");
    if (!json_is_string(msg))
        return msg ? bad(err, "_msg is no text") : 0; /* an entry that has no message says nothing */
    stream = json_string_value(json_object_get(root, "_stream"));
    host_of(root, field, host);
    return add_line(a, cap, ts, msg, host, mix(MIX_START, stream ? stream : "", stream ? strlen(stream) : 0), err);
}

static int parse_victorialogs(const char *s, size_t len, const char *field, struct source_answer *a, struct adv_err *err)
{
    size_t n = 1;
    int r;

    for (size_t i = 0; i < len; i++)
        n += s[i] == '\n';
    if (n > LINES_MAX || !(a->lines = adv_arena_alloc(&a->arena, n * sizeof(*a->lines))))
        return no_memory(err);
    if (len && s[len - 1] != '\n')
        return bad(err, "its last line is not whole");
    while (len > 0) {
        const char *nl = memchr(s, '\n', len);
        size_t line = (size_t) (nl - s);

        if (line && (r = victorialogs_line(s, line, field, a, n, err)) < 0)
            return r;
        s += line + 1;
        len -= line + 1;
    }
    return keep_order(a, err);
}

/* ---- samples ------------------------------------------------------------------------------------------------------ */

/* "17.5", "NaN", "+Inf". */
static bool sample_value(const char *s, double *ret)
{
    char *end = NULL;

    if (!s || !*s || strspn(s, "0123456789+-.eEIinfNa") != strlen(s))
        return false;
    *ret = strtod(s, &end);
    return !*end;
}

static int add_series(const json_t *one, const char *field, struct source_answer *a, size_t *room, struct adv_err *err)
{
    const json_t *values = json_object_get(one, "values"), *pair;
    struct source_series *s = &a->series[a->n_series];
    struct source_sample *v;
    size_t i, n = json_array_size(values);

    if (!json_is_object(json_object_get(one, "metric")) || !json_is_array(values))
        return bad(err, "a series without labels or values");
    if (n > *room || !(v = adv_arena_alloc(&a->arena, (n + 1) * sizeof(*v))))
        return no_memory(err);
    *room -= n;
    host_of(json_object_get(one, "metric"), field, s->host);
    json_array_foreach (values, i, pair) {
        double at = json_number_value(json_array_get(pair, 0));
        if (!json_is_array(pair) || json_array_size(pair) != 2 || !json_is_number(json_array_get(pair, 0)) || !(at > 0) ||
            at > 1e11 || !sample_value(json_string_value(json_array_get(pair, 1)), &v[i].value))
            return bad(err, "a sample without time or value");
        v[i].ts_us = (int64_t) (at * 1e3 + 0.5) * 1000;
        if (i && v[i].ts_us < v[i - 1].ts_us)
            return bad(err, "samples that go back in time");
    }
    s->samples = v;
    s->n = n;
    a->n_series++;
    return 0;
}

static int parse_prometheus(const json_t *root, const char *field, struct source_answer *a, struct adv_err *err)
{
    const json_t *result = NULL, *one;
    size_t i, room = SAMPLES_MAX;
    int r = result_of(root, "matrix", &result, err);

    if (r < 0)
        return r;
    if (json_array_size(result) > SERIES_MAX ||
        !(a->series = adv_arena_alloc(&a->arena, (json_array_size(result) + 1) * sizeof(*a->series))))
        return no_memory(err);
    a->partial = json_array_size(json_object_get(root, "warnings")) > 0 || json_is_true(json_object_get(root, "isPartial"));
    json_array_foreach (result, i, one)
        if ((r = add_series(one, field, a, &room, err)) < 0)
            return r;
    return 0;
}

int source_parse(enum source_kind kind, const void *bytes, size_t len, const char *field, struct source_answer *ret,
                 struct adv_err *err)
{
    ADV_JSON_AUTO json_t *root = NULL;
    int r;

    if (kind == SOURCE_VICTORIALOGS)
        return parse_victorialogs(bytes, len, field, ret, err);
    if ((r = adv_json_parse_any(bytes, len, len, &root, err)) < 0)
        return not_json(r, err);
    return kind == SOURCE_LOKI ? parse_loki(root, field, ret, err) : parse_prometheus(root, field, ret, err);
}

void source_error_text(const void *bytes, size_t len, char *ret, size_t cap)
{
    ADV_JSON_AUTO json_t *root = NULL;
    const char *s = NULL;

    if (adv_json_parse(bytes, len, 64 << 10, &root, NULL) == 0 && !(s = json_string_value(json_object_get(root, "error"))))
        s = json_string_value(json_object_get(root, "message"));
    len = adv_utf8_lossy_buf(ret, cap, s ? s : bytes, s ? strlen(s) : len);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char) ret[i] < 0x20 || ret[i] == 0x7f)
            ret[i] = ' ';
    while (len && ret[len - 1] == ' ')
        ret[--len] = '\0';
}
