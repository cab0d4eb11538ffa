/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/api/otlp.h"

#include <stdio.h>

#include "common/num.h"

typedef Opentelemetry__Proto__Common__V1__KeyValue key_value;
typedef Opentelemetry__Proto__Common__V1__AnyValue any_value;

const char *otlp_fault_words(enum otlp_fault f)
{
    static const char *const words[] = {
        [OTLP_OK] = "taken",
        [OTLP_NO_CLUSTER] = "without advisor.cluster",
        [OTLP_NO_JOB] = "without slurm.job.id, or slurm.array.job.id and slurm.array.task.id",
        [OTLP_NO_RESTART_COUNT] = "without slurm.restart.count",
        [OTLP_MALFORMED] = "with a malformed attribute",
        [OTLP_UNKNOWN] = "of an unknown cluster, job or attempt",
        [OTLP_NOT_OWNED] = "of a cluster that another replica owns",
        [OTLP_BEFORE_START] = "older than their attempt",
        [OTLP_NO_TEXT] = "without text",
        [OTLP_TOO_LONG] = "longer than 65536 bytes",
        [OTLP_TOO_MANY] = "too many in one request",
        [OTLP_NO_ROOM] = "of more logs than are read at one time",
    };
    return words[f];
}

static const any_value *attribute(key_value *const *v, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (adv_streq(v[i]->key, key))
            return v[i]->value;
    return NULL;
}

/* A word: text, or a whole number as text. False: there is something else. */
static bool word(const any_value *v, char *ret, size_t size)
{
    int n = -1;

    *ret = '\0';
    if (!v || v->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE__NOT_SET)
        return true;
    if (v->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE)
        n = snprintf(ret, size, "%s", v->string_value);
    else if (v->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_INT_VALUE)
        n = snprintf(ret, size, "%lld", (long long) v->int_value);
    return n >= 0 && (size_t) n < size;
}

static bool digits(const char *s)
{
    return *s && strspn(s, "0123456789") == strlen(s);
}

static bool host_name(const char *s)
{
    return *s && *s != '-' && *s != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == strlen(s);
}

void otlp_route(const Opentelemetry__Proto__Resource__V1__Resource *resource, struct otlp_route *ret)
{
    key_value *const *v = resource ? resource->attributes : NULL;
    size_t n = resource ? resource->n_attributes : 0;
    char job[32], array[16], task[16], restarts[16], host[256];
    uint64_t count = 0;

    *ret = (struct otlp_route) { .fault = OTLP_MALFORMED };
    if (!word(attribute(v, n, "advisor.cluster"), ret->cluster, sizeof(ret->cluster)) ||
        !word(attribute(v, n, "slurm.job.id"), job, sizeof(job)) ||
        !word(attribute(v, n, "slurm.array.job.id"), array, sizeof(array)) ||
        !word(attribute(v, n, "slurm.array.task.id"), task, sizeof(task)) ||
        !word(attribute(v, n, "slurm.restart.count"), restarts, sizeof(restarts)))
        return;
    if (word(attribute(v, n, "host.name"), host, sizeof(host)) && host_name(host) && strcspn(host, ".") < sizeof(ret->host))
        (void) snprintf(ret->host, sizeof(ret->host), "%.*s", (int) strcspn(host, "."), host); /* the scheduler's short name */
    if (*array && *task) { /* an array task's own number, slurm.job.id, is none that people know */
        if (!digits(array) || !digits(task))
            return;
        (void) snprintf(ret->job_id, sizeof(ret->job_id), "%s_%s", array, task);
    } else {
        (void) snprintf(ret->job_id, sizeof(ret->job_id), "%s", job);
    }
    if (*restarts && adv_parse_u64(restarts, 0, UINT32_MAX, &count, NULL) < 0)
        return;
    ret->restart_count = (uint32_t) count;
    ret->fault = !*ret->cluster ? OTLP_NO_CLUSTER : !*ret->job_id ? OTLP_NO_JOB : !*restarts ? OTLP_NO_RESTART_COUNT : OTLP_OK;
}

const char *const otlp_streams[OTLP_N_STREAMS] = { "otlp", "otlp-stdout", "otlp-stderr" };

const char *otlp_stream(const Opentelemetry__Proto__Logs__V1__LogRecord *r)
{
    char name[16];

    if (!word(attribute(r->attributes, r->n_attributes, "log.iostream"), name, sizeof(name)))
        return otlp_streams[0];
    return otlp_streams[adv_streq(name, "stdout") ? 1 : adv_streq(name, "stderr") ? 2 : 0];
}

int64_t otlp_time_us(const Opentelemetry__Proto__Logs__V1__LogRecord *r)
{
    return (int64_t) ((r->time_unix_nano ? r->time_unix_nano : r->observed_time_unix_nano) / 1000);
}

/* The value's text; false: it has none. */
static bool text_of(const any_value *v, const char **ret, size_t *ret_len)
{
    if (v && v->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE) {
        *ret = v->string_value;
        *ret_len = strlen(v->string_value);
    } else if (v && v->value_case == OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BYTES_VALUE) {
        *ret = (const char *) v->bytes_value.data;
        *ret_len = v->bytes_value.len;
    } else {
        return false;
    }
    return true;
}

void otlp_put_lines(struct adv_buf *b, const char *text, size_t len, const char *host)
{
    size_t host_len = strlen(host);

    while (len > 0) {
        const char *nl = memchr(text, '\n', len);
        size_t n = nl ? (size_t) (nl - text) : len;
        bool named = n > host_len && memcmp(text, host, host_len) == 0 && text[host_len] == ':';

        if (host_len && !named)
            (void) adv_buf_appendf(b, "%s: ", host);
        (void) adv_buf_append(b, text, n);
        (void) adv_buf_append_byte(b, '\n');
        text += n + (nl != NULL);
        len -= n + (nl != NULL);
    }
}

enum otlp_fault otlp_lines(const Opentelemetry__Proto__Logs__V1__LogRecord *r, const char *host, struct adv_buf *ret)
{
    const char *body = "", *trace = "";
    size_t body_len = 0, trace_len = 0;
    bool said = text_of(r->body, &body, &body_len);

    said |= text_of(attribute(r->attributes, r->n_attributes, "exception.stacktrace"), &trace, &trace_len);
    if (!said)
        return OTLP_NO_TEXT;
    if (body_len > OTLP_RECORD_MAX || trace_len > OTLP_RECORD_MAX - body_len)
        return OTLP_TOO_LONG;
    otlp_put_lines(ret, body, body_len, host);
    otlp_put_lines(ret, trace, trace_len, host);
    return OTLP_OK;
}
