/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/sources/query.h"

#include <stdio.h>

#include "common/hostlist.h"

enum var { V_CLUSTER, V_JOB, V_ARRAY_JOB, V_ARRAY_TASK, V_RESTARTS, V_USER, V_ACCOUNT, V_PARTITION, V_NODES, V_NODE_LIST, N_VARS };
static const char *const names[N_VARS] = { "cluster", "job_id",  "array_job_id", "array_task_id", "restart_count",
                                           "user",    "account", "partition",    "nodes",         "node_list" };

#define NODES_MAX 65536

/* "{word}" at @s: its length with both braces, and the word; 0 for anything else. */
static size_t braced(const char *s, const char **ret_word, size_t *ret_len)
{
    size_t n = strspn(s + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_");

    if (*s != '{' || n == 0 || s[1 + n] != '}')
        return 0;
    *ret_word = s + 1;
    *ret_len = n;
    return n + 2;
}

static int var_of(const char *word, size_t len)
{
    for (int v = 0; v < N_VARS; v++)
        if (strlen(names[v]) == len && memcmp(names[v], word, len) == 0)
            return v;
    return -1;
}

int query_check(const char *template, struct adv_err *err)
{
    const char *word = NULL;
    size_t len = 0;

    for (const char *s = template; *s; s++)
        if (braced(s, &word, &len) && var_of(word, len) < 0)
            return adv_err_set(err, ADV_INVALID_ARGUMENT,
                               "{%.*s}, expected one of {cluster}, {job_id}, {array_job_id}, {array_task_id}, {restart_count}, "
                               "{user}, {account}, {partition}, {nodes}, {node_list}",
                               (int) len, word);
    return 0;
}

static int value(enum var v, const char *s, size_t len, struct adv_buf *ret, struct adv_err *err)
{
    if (len == 0)
        return adv_err_set(err, ADV_FAILED_PRECONDITION, "its %s is not known", names[v]);
    for (size_t i = 0; i < len; i++)
        if (!s[i] || !strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@+-", s[i]))
            return adv_err_set(err, ADV_FAILED_PRECONDITION, "its %s has a character that no query is made with", names[v]);
    (void) adv_buf_append(ret, s, len);
    return 0;
}

static int node_names(enum var v, const char *text, struct adv_buf *ret, struct adv_err *err)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(NODES_MAX);
    struct adv_err why = { 0 };

    if (!hl)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if (adv_hostlist_parse(hl, text, &why) < 0 || adv_hostlist_count(hl) == 0)
        return adv_err_set(err, ADV_FAILED_PRECONDITION, "its nodes are not known");
    for (size_t i = 0; i < adv_hostlist_count(hl); i++) {
        const char *n = adv_hostlist_nth(hl, i);

        if (v == V_NODE_LIST) {
            (void) adv_buf_appendf(ret, "%s\"%s\"", i ? "," : "", n);
            continue;
        }
        (void) adv_buf_append_str(ret, i ? "|" : "");
        for (; *n; n++)
            (void) (*n == '.' ? adv_buf_append_str(ret, "[.]") : adv_buf_append_byte(ret, (uint8_t) *n));
    }
    return 0;
}

static int put(enum var v, const struct query_vars *q, struct adv_buf *ret, struct adv_err *err)
{
    const char *us = strchr(q->job_id, '_');
    char number[16];

    switch (v) {
    case V_CLUSTER:
        return value(v, q->cluster, strlen(q->cluster), ret, err);
    case V_JOB:
        return value(v, q->job_id, strlen(q->job_id), ret, err);
    case V_ARRAY_JOB:
        return value(v, q->job_id, us ? (size_t) (us - q->job_id) : strlen(q->job_id), ret, err);
    case V_ARRAY_TASK:
        return value(v, us ? us + 1 : "", us ? strlen(us + 1) : 0, ret, err);
    case V_RESTARTS:
        return value(v, number, (size_t) snprintf(number, sizeof(number), "%u", q->restart_count), ret, err);
    case V_USER:
        return value(v, q->user, strlen(q->user), ret, err);
    case V_ACCOUNT:
        return value(v, q->account, strlen(q->account), ret, err);
    case V_PARTITION:
        return value(v, q->partition, strlen(q->partition), ret, err);
    case V_NODES:
    case V_NODE_LIST:
        return node_names(v, q->nodes, ret, err);
    case N_VARS:
        break;
    }
    return 0;
}

int query_expand(const char *template, const struct query_vars *vars, struct adv_buf *ret, struct adv_err *err)
{
    const char *word = NULL;
    size_t len = 0, n;
    int v, r;

    for (const char *s = template; *s;) {
        if ((n = braced(s, &word, &len)) > 0 && (v = var_of(word, len)) >= 0) {
            if ((r = put((enum var) v, vars, ret, err)) < 0)
                return r;
            s += n;
        } else {
            (void) adv_buf_append_byte(ret, (uint8_t) *s++);
        }
    }
    if (adv_buf_error(ret) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "a query of more than %d bytes", QUERY_MAX);
    return 0;
}

void query_field(struct adv_buf *form, const char *key, const char *text)
{
    static const char hex[] = "0123456789ABCDEF";

    (void) adv_buf_appendf(form, "%s%s=", form->len ? "&" : "", key);
    for (const unsigned char *s = (const unsigned char *) text; *s; s++) {
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", *s)) {
            (void) adv_buf_append_byte(form, *s);
        } else {
            (void) adv_buf_append_byte(form, '%');
            (void) adv_buf_append_byte(form, (uint8_t) hex[*s >> 4]);
            (void) adv_buf_append_byte(form, (uint8_t) hex[*s & 15]);
        }
    }
}
