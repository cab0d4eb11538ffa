/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/store/dbsync.h"

#include <stdio.h>

struct dbsync {
    uv_loop_t loop;
    struct dbconn *c;
    uint32_t timeout_ms;
    /* of the query that runs */
    struct dbquery q;
    dbsync_row_cb row;
    void *arg;
    struct adv_err err;
    int r;
    bool done;
};

static void on_row(struct dbquery *q, const struct dbrow *row)
{
    struct dbsync *s = q->arg;

    if (s->row && s->r == 0)
        s->r = s->row(s->arg, row, &s->err);
}

static void on_done(struct dbquery *q, const struct adv_err *err)
{
    struct dbsync *s = q->arg;

    if (err) {
        s->err = *err;
        s->r = -(int) err->code;
    }
    s->done = true;
}

int dbsync_run(struct dbsync *s, const char *sql, size_t len, dbsync_row_cb row, void *arg, struct adv_err *err)
{
    s->q = (struct dbquery) { .sql = sql, .len = len, .timeout_ms = s->timeout_ms, .row = on_row, .done = on_done, .arg = s };
    s->row = row;
    s->arg = arg;
    s->err = (struct adv_err) { 0 };
    s->r = 0;
    s->done = false;
    dbconn_query(s->c, &s->q);
    while (!s->done)
        (void) uv_run(&s->loop, UV_RUN_ONCE);
    if (s->r < 0 && err)
        *err = s->err;
    return s->r;
}

int dbsync_exec(struct dbsync *s, struct adv_err *err, const char *fmt, ...)
{
    ADV_AUTO_DONE(adv_buf) b;
    va_list ap;

    adv_buf_init(&b, 1u << 20);
    va_start(ap, fmt);
    (void) adv_buf_vappendf(&b, fmt, ap);
    va_end(ap);
    if (adv_buf_error(&b))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "database: no memory");
    return dbsync_run(s, b.data, b.len, NULL, NULL, err);
}

struct text {
    char *buf;
    size_t size;
    bool got;
};

static int take_text(void *arg, const struct dbrow *row, struct adv_err *err)
{
    struct text *t = arg;

    (void) err;
    if (!t->got && row->n && row->column[0])
        (void) snprintf(t->buf, t->size, "%s", row->column[0]);
    t->got = true;
    return 0;
}

int dbsync_text(struct dbsync *s, const char *sql, char *buf, size_t size, struct adv_err *err)
{
    struct text t = { buf, size, false };

    buf[0] = '\0';
    return dbsync_run(s, sql, strlen(sql), take_text, &t, err);
}

const struct dbserver *dbsync_server(const struct dbsync *s)
{
    return dbconn_server(s->c);
}

struct dbsync *dbsync_close(struct dbsync *s)
{
    if (!s)
        return NULL;
    if (s->c)
        dbconn_close(s->c, NULL, NULL);
    (void) uv_run(&s->loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&s->loop);
    free(s);
    return NULL;
}

int dbsync_open(const struct dbconn_config *cfg, uint32_t timeout_ms, struct dbsync **ret, struct adv_err *err)
{
    struct dbsync *s = calloc(1, sizeof(*s));
    char one[8];
    int r;

    if (!s || uv_loop_init(&s->loop) != 0) {
        free(s);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "database: no memory");
    }
    s->timeout_ms = timeout_ms;
    r = dbconn_new(&s->loop, cfg, &s->c, err);
    if (r == 0)
        r = dbsync_text(s, "SELECT 1", one, sizeof(one), err);
    if (r < 0) {
        (void) dbsync_close(s);
        return r;
    }
    *ret = s;
    return 0;
}
