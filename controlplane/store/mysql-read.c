/* SPDX-License-Identifier: Apache-2.0 */
/* What the MySQL engine reads: the whole store, what happened since, pages of the audit log. */

#include "controlplane/store/mysql-engine.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/uuid.h"

#define PAGE_ROWS      1000
#define POLL_ROWS      500
#define POLL_BYTES     (8u << 20)
#define POLL_HANDOFFS  100
#define AUDIT_ROWS_MAX 10000

/* ---- loading ---------------------------------------------------------------------------------------------------- */

/* One snapshot, read in pages by key: each page has its deadline, and the loop its turns. */

static void next_page(struct mysql_store *st);

static int begin_row_of(struct mysql_store *st, const struct dbrow *row)
{
    struct load_run *l = &st->load;
    const char *name = my_text(row, 0);

    if (adv_streq(name, "store_uuid"))
        (void) snprintf(l->uuid, sizeof(l->uuid), "%s", my_text(row, 1));
    else if (adv_streq(name, "term") && !my_u64(row, 1, &l->term))
        return my_bad_row(&l->err, "meta");
    else if (adv_streq(name, "min_reader") && !my_u64(row, 1, &l->min_reader))
        return my_bad_row(&l->err, "meta");
    else if (adv_streq(name, "sealed"))
        (void) snprintf(l->sealed, sizeof(l->sealed), "%s", my_text(row, 1));
    else if (adv_streq(name, "\1last") && !my_u64(row, 1, &l->last_seq))
        return my_bad_row(&l->err, "sequence");
    return 0;
}

static int object_row(struct mysql_store *st, const struct dbrow *row)
{
    struct load_run *l = &st->load;
    uint64_t kind;

    if (row->n != 4 || !my_u64(row, 1, &kind) || kind > INT32_MAX)
        return my_bad_row(&l->err, "objects");
    (void) snprintf(l->cluster, sizeof(l->cluster), "%s", my_text(row, 0));
    (void) snprintf(l->key, sizeof(l->key), "%s", my_text(row, 2));
    l->kind = (unsigned) kind;
    return store_load_row(l->f, l->cluster, (enum resource_kind) kind, l->key, row->column[3], row->len[3], &l->err);
}

static int request_row(struct mysql_store *st, const struct dbrow *row)
{
    struct load_run *l = &st->load;

    if (!my_i64(row, 2, &l->record_us))
        return my_bad_row(&l->err, "requests");
    (void) snprintf(l->request, sizeof(l->request), "%s", my_text(row, 0));
    return store_requests_add(&st->base, l->request, my_text(row, 1), l->record_us, &l->err);
}

static int change_row(struct mysql_store *st, const struct dbrow *row)
{
    struct load_run *l = &st->load;
    uint64_t revision, kind;

    if (!my_u64(row, 0, &l->seq) || !my_u64(row, 1, &revision) || !my_u64(row, 2, &kind) || kind > INT32_MAX ||
        !my_u64(row, 5, &st->mark))
        return my_bad_row(&l->err, "changes");
    st->mark_seq = l->seq;
    return store_load_change(l->w, l->seq, revision, (int) kind, my_text(row, 3), my_text(row, 4), &l->err);
}

static void load_row(struct dbquery *q, const struct dbrow *row)
{
    static int (*const rows[])(struct mysql_store *, const struct dbrow *) = {
        [LOAD_BEGIN] = begin_row_of, [LOAD_OBJECTS] = object_row, [LOAD_REQUESTS] = request_row, [LOAD_CHANGES] = change_row,
    };
    struct mysql_store *st = q->arg;

    st->load.rows++;
    if (st->load.r == 0)
        st->load.r = rows[st->load.step](st, row);
}

static void end_load(struct mysql_store *st)
{
    struct load_run *l = &st->load;
    store_cb cb = l->cb;

    adv_buf_done(&l->sql);
    if (l->r < 0)
        my_outside(&l->err);
    cb(l->arg, l->r < 0 ? &l->err : NULL);
}

static void load_ended(struct dbquery *q, const struct adv_err *err)
{
    (void) err; /* of a read: the end of its transaction changes nothing */
    end_load(q->arg);
}

static void finish_load(struct mysql_store *st)
{
    static const char sql[] = "ROLLBACK";
    struct load_run *l = &st->load;

    l->q = (struct dbquery) { .sql = sql, .len = sizeof(sql) - 1, .timeout_ms = st->timeout_ms, .session = l->q.ran_in,
                              .done = load_ended, .arg = st };
    dbconn_query(st->write, &l->q);
}

/* What the first query told about the whole. */
static int check_begin(struct mysql_store *st)
{
    struct load_run *l = &st->load;
    uint64_t first;

    if (l->sealed[0])
        return adv_err_set_reason(&l->err, ADV_FAILED_PRECONDITION, "STORE_SEALED", "store: it was %s and is not to be served",
                                  l->sealed);
    if (l->min_reader > my_schema_version)
        return adv_err_set_reason(&l->err, ADV_FAILED_PRECONDITION, "STORE_TOO_NEW",
                                  "store: its schema needs a program that knows version %" PRIu64 "; this one knows %u",
                                  l->min_reader, my_schema_version);
    if (!adv_uuid_valid(l->uuid) || l->term == 0)
        return my_bad_row(&l->err, "meta");
    memcpy(st->base.uuid, l->uuid, sizeof(st->base.uuid));
    st->base.term = l->f->store_term = l->term;
    st->known_seq = l->last_seq;
    st->mark_seq = 0;
    first = l->last_seq > STORE_WATCHLOG_CAPACITY ? l->last_seq - STORE_WATCHLOG_CAPACITY : 0;
    l->seq = first;
    if (watchlog_init(l->w, STORE_WATCHLOG_CAPACITY, first) < 0)
        return adv_err_set(&l->err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    return 0;
}

static void page_done(struct dbquery *q, const struct adv_err *err)
{
    struct mysql_store *st = q->arg;
    struct load_run *l = &st->load;

    if (err) {
        l->err = *err;
        l->r = -(int) err->code;
    } else if (l->r == 0 && l->step == LOAD_BEGIN) {
        l->r = check_begin(st);
        l->step++;
    } else if (l->rows < PAGE_ROWS) {
        l->step++;
    }
    if (l->r < 0 && q->outcome != DB_DONE && q->outcome != DB_REFUSED)
        end_load(st);
    else if (l->r < 0 || l->step == LOAD_END)
        finish_load(st);
    else
        next_page(st);
}

static void next_page(struct mysql_store *st)
{
    struct load_run *l = &st->load;
    struct adv_buf *b = &l->sql;

    adv_buf_reset(b);
    switch (l->step) {
    case LOAD_BEGIN:
        (void) adv_buf_append_str(b, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;"
                                     "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY;"
                                     "SELECT `key`, value FROM meta; SELECT '\1last', last FROM sequence WHERE id = 1");
        break;
    case LOAD_OBJECTS: /* spelled out: a comparison of (cluster, kind, key) as a whole would not use the index */
        (void) adv_buf_append_str(b, "SELECT cluster, kind, `key`, record FROM objects WHERE cluster > ");
        my_quote(b, l->cluster);
        (void) adv_buf_append_str(b, " OR (cluster = ");
        my_quote(b, l->cluster);
        (void) adv_buf_appendf(b, " AND (kind > %u OR (kind = %u AND `key` > ", l->kind, l->kind);
        my_quote(b, l->key);
        (void) adv_buf_appendf(b, "))) ORDER BY cluster, kind, `key` LIMIT %d", PAGE_ROWS);
        break;
    case LOAD_REQUESTS:
        (void) adv_buf_appendf(b, "SELECT id, hash, record_us FROM requests WHERE record_us > %" PRId64 " OR (record_us = %" PRId64
                                  " AND id > ", l->record_us, l->record_us);
        my_quote(b, l->request);
        (void) adv_buf_appendf(b, ") ORDER BY record_us, id LIMIT %d", PAGE_ROWS);
        break;
    case LOAD_CHANGES:
        (void) adv_buf_appendf(b, "SELECT seq, revision, kind, cluster, `key`, mark FROM changes WHERE seq > %" PRIu64
                                  " ORDER BY seq LIMIT %d", l->seq, PAGE_ROWS);
        break;
    case LOAD_END:
        break;
    }
    if (adv_buf_error(b)) {
        l->r = adv_err_set(&l->err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        finish_load(st);
        return;
    }
    l->rows = 0;
    l->q = (struct dbquery) { .sql = b->data, .len = b->len, .timeout_ms = st->timeout_ms,
                              .session = l->step == LOAD_BEGIN ? 0 : l->q.ran_in, .row = load_row, .done = page_done, .arg = st };
    dbconn_query(st->write, &l->q);
}

void my_load(struct store *base, struct fleet *f, struct watchlog *w, store_cb cb, void *arg)
{
    struct mysql_store *st = mysql_of(base);
    struct load_run *l = &st->load;

    store_requests_clear(base);
    *l = (struct load_run) { .cb = cb, .arg = arg, .f = f, .w = w, .record_us = INT64_MIN };
    adv_buf_init(&l->sql, 4096);
    next_page(st);
}

/* ---- following -------------------------------------------------------------------------------------------------- */

enum poll_statement { POLL_META, POLL_SEQUENCE, POLL_MARK, POLL_CHANGES, POLL_REQUESTS, POLL_TODO, POLL_ANSWERS };

/* Copies bytes and a NUL behind what came so far. Texts are offsets, in the place of pointers, until all is there. */
static const void *keep(struct poll_run *p, const char *bytes, size_t len)
{
    size_t at = p->bytes.len;

    (void) adv_buf_append(&p->bytes, bytes ? bytes : "", bytes ? len : 0);
    (void) adv_buf_append_byte(&p->bytes, 0);
    return (const void *) (uintptr_t) at;
}

static const char *kept(const struct poll_run *p, const void *offset)
{
    return p->bytes.data + (uintptr_t) offset;
}

static int poll_meta(struct poll_run *p, const struct dbrow *row)
{
    if (adv_streq(my_text(row, 0), "store_uuid"))
        (void) snprintf(p->uuid, sizeof(p->uuid), "%s", my_text(row, 1));
    else if (adv_streq(my_text(row, 0), "term") && !my_u64(row, 1, &p->term))
        return my_bad_row(&p->err, "meta");
    return 0;
}

static int poll_change(const struct mysql_store *st, struct poll_run *p, const struct dbrow *row)
{
    struct store_change *ch = &p->changes[p->n_changes];
    uint64_t kind;

    if (p->full || p->n_changes == POLL_ROWS || (p->n_changes && p->bytes.len > POLL_BYTES)) {
        p->full = true;
        return 0;
    }
    if (row->n != 7 || !my_u64(row, 0, &ch->seq) || !my_u64(row, 1, &ch->revision) || !my_u64(row, 2, &kind) ||
        !my_u64(row, 5, &p->mark))
        return my_bad_row(&p->err, "changes");
    if (ch->seq != p->after + 1 + p->n_changes)
        return adv_err_set_reason(&p->err, ADV_OUT_OF_RANGE, "HISTORY_COMPACTED", "store: change %" PRIu64 " is no longer kept",
                                  p->after + 1 + (uint64_t) p->n_changes);
    if (ch->seq == st->mark_seq && p->mark != st->mark) /* one of ours, whose number another one has now */
        return adv_err_set_reason(&p->err, ADV_ABORTED, "STORE_REPLACED", "store: its history is not the one known here");
    ch->kind = kind < RESOURCE_KIND_END_ ? (enum resource_kind) kind : RESOURCE_NONE;
    ch->cluster = keep(p, row->column[3], row->len[3]);
    ch->key = keep(p, row->column[4], row->len[4]);
    ch->record = row->column[6] ? keep(p, row->column[6], row->len[6]) : NULL;
    ch->len = row->column[6] ? row->len[6] : 0;
    p->n_changes++;
    return 0;
}

static int poll_todo(struct poll_run *p, const struct dbrow *row)
{
    struct store_handoff *h = &p->handoffs[p->n_todo];

    if (p->n_todo == POLL_HANDOFFS || (p->n_todo && p->bytes.len > 2 * POLL_BYTES))
        return 0;
    if (row->n != 6 || !my_u64(row, 0, &h->id) || !my_i64(row, 5, &h->age_us))
        return my_bad_row(&p->err, "handoffs");
    h->cluster = keep(p, row->column[1], row->len[1]);
    h->method = keep(p, row->column[2], row->len[2]);
    h->request = keep(p, row->column[3], row->len[3]);
    h->request_len = row->len[3];
    h->caller = keep(p, row->column[4], row->len[4]);
    h->caller_len = row->len[4];
    p->n_todo++;
    return 0;
}

static bool was_told(const struct mysql_store *st, uint64_t id)
{
    for (size_t i = 0; i < st->n_told; i++)
        if (st->told[i] == id)
            return true;
    return false;
}

static int poll_answer(const struct mysql_store *st, struct poll_run *p, const struct dbrow *row)
{
    struct store_handoff *h = &p->handoffs[POLL_HANDOFFS + p->n_answers];

    if (p->n_answers == POLL_HANDOFFS || (p->n_answers && p->bytes.len > 3 * POLL_BYTES))
        return 0;
    if (row->n != 6 || !my_u64(row, 0, &h->id) || !my_u64(row, 4, &h->seq) || !my_i64(row, 5, &h->age_us))
        return my_bad_row(&p->err, "handoffs");
    if (was_told(st, h->id))
        return 0;
    h->cluster = keep(p, row->column[1], row->len[1]);
    h->method = keep(p, row->column[2], row->len[2]);
    h->request = keep(p, row->column[3], row->len[3]);
    h->request_len = row->column[3] ? row->len[3] : 0;
    h->caller = keep(p, NULL, 0);
    p->n_answers++;
    return 0;
}

static void poll_row(struct dbquery *q, const struct dbrow *row)
{
    struct mysql_store *st = q->arg;
    struct poll_run *p = &st->poll;
    int64_t record_us;

    if (p->r < 0)
        return;
    switch ((enum poll_statement) row->statement) {
    case POLL_META:
        p->r = poll_meta(p, row);
        break;
    case POLL_SEQUENCE:
        p->r = my_u64(row, 0, &p->last_seq) ? 0 : my_bad_row(&p->err, "sequence");
        break;
    case POLL_MARK:
        p->r = my_u64(row, 0, &p->mark_there) ? 0 : my_bad_row(&p->err, "changes");
        break;
    case POLL_CHANGES:
        p->r = poll_change(st, p, row);
        break;
    case POLL_REQUESTS:
        p->r = my_i64(row, 2, &record_us) ?
                   store_requests_add(&st->base, my_text(row, 0), my_text(row, 1), record_us, &p->err) :
                   my_bad_row(&p->err, "requests");
        break;
    case POLL_TODO:
        p->r = poll_todo(p, row);
        break;
    case POLL_ANSWERS:
        p->r = poll_answer(st, p, row);
        break;
    }
}

/* Another database under the same name, a copy put in place of it, or an older state of it. */
static int check_history(const struct mysql_store *st, struct poll_run *p)
{
    if (!adv_streq(p->uuid, st->base.uuid) || p->term != st->base.term)
        return adv_err_set_reason(&p->err, ADV_ABORTED, "STORE_REPLACED", "store: it is another one now, or of another term");
    if (p->last_seq < p->after || (p->mark_there && st->mark_seq == p->after && p->mark_there != st->mark))
        return adv_err_set_reason(&p->err, ADV_ABORTED, "STORE_REPLACED", "store: its history is not the one known here");
    if (p->n_changes == 0 && p->after < (p->upto ? p->upto : p->last_seq))
        return adv_err_set_reason(&p->err, ADV_OUT_OF_RANGE, "HISTORY_COMPACTED", "store: change %" PRIu64 " is no longer kept",
                                  p->after + 1);
    return adv_buf_error(&p->bytes) ? adv_err_set(&p->err, ADV_RESOURCE_EXHAUSTED, "store: no memory") : 0;
}

static void make_pointers(struct poll_run *p)
{
    for (size_t i = 0; i < p->n_changes; i++) {
        struct store_change *ch = &p->changes[i];
        ch->cluster = kept(p, ch->cluster);
        ch->key = kept(p, ch->key);
        ch->record = ch->record ? kept(p, ch->record) : NULL;
    }
    for (size_t i = 0; i < (size_t) 2 * POLL_HANDOFFS; i++) {
        struct store_handoff *h = &p->handoffs[i];
        if (i < POLL_HANDOFFS ? i >= p->n_todo : i >= POLL_HANDOFFS + p->n_answers)
            continue;
        h->cluster = kept(p, h->cluster);
        h->method = kept(p, h->method);
        h->request = kept(p, h->request);
        h->caller = kept(p, h->caller);
    }
}

static void end_poll(struct mysql_store *st)
{
    struct poll_run p = st->poll; /* the callback may poll again */
    struct store_news news = { .changes = p.changes, .n_changes = p.n_changes, .more = p.full, .todo = p.handoffs,
                               .n_todo = p.n_todo, .answers = p.handoffs ? p.handoffs + POLL_HANDOFFS : NULL,
                               .n_answers = p.n_answers };

    st->poll = (struct poll_run) { 0 };
    if (p.r < 0 && p.err.code != ADV_OUT_OF_RANGE)
        my_outside(&p.err);
    if (p.r == 0 && p.n_answers)
        my_remove_told(st, news.answers, news.n_answers);
    p.cb(p.arg, p.r < 0 ? NULL : &news, p.r < 0 ? &p.err : NULL);
    adv_buf_done(&p.sql);
    adv_buf_done(&p.bytes);
    free(p.changes);
    free(p.handoffs);
}

static void poll_done(struct dbquery *q, const struct adv_err *err)
{
    struct mysql_store *st = q->arg;
    struct poll_run *p = &st->poll;

    if (err && p->r == 0) {
        p->err = *err;
        p->r = -(int) err->code;
    }
    if (p->r == 0)
        p->r = check_history(st, p);
    if (p->r == 0) {
        make_pointers(p);
        /* only upwards: a commit of ours may be known already that comes behind this page */
        if (p->n_changes && p->changes[p->n_changes - 1].seq > st->mark_seq) {
            st->mark_seq = p->changes[p->n_changes - 1].seq;
            st->mark = p->mark;
            if (st->mark_seq > st->known_seq)
                st->known_seq = st->mark_seq;
        }
    }
    end_poll(st);
}

static void write_poll(const struct mysql_store *st, struct poll_run *p)
{
    struct adv_buf *b = &p->sql;
    char upto[48] = "";

    if (p->upto)
        (void) snprintf(upto, sizeof(upto), " AND seq <= %" PRIu64, p->upto);
    (void) adv_buf_appendf(b, "SELECT `key`, value FROM meta WHERE `key` IN ('store_uuid', 'term');"
                              "SELECT last FROM sequence WHERE id = 1;SELECT mark FROM changes WHERE seq = %" PRIu64, p->after);
    (void) adv_buf_appendf(b, ";SELECT c.seq, c.revision, c.kind, c.cluster, c.`key`, c.mark, o.record FROM"
                              " (SELECT * FROM changes WHERE seq > %" PRIu64 "%s ORDER BY seq LIMIT %d) c LEFT JOIN objects o"
                              " ON o.cluster = c.cluster AND o.kind = c.kind AND o.`key` = c.`key` ORDER BY c.seq",
                           p->after, upto, POLL_ROWS + 1);
    /* never fewer than belong to the changes above */
    (void) adv_buf_appendf(b, ";SELECT id, hash, record_us FROM requests WHERE seq > %" PRIu64 " AND seq <="
                              " (SELECT MAX(seq) FROM (SELECT seq FROM changes WHERE seq > %" PRIu64 "%s ORDER BY seq LIMIT %d) x)"
                              " ORDER BY seq", p->after, p->after, upto, POLL_ROWS);
    if (p->upto)
        return;
    (void) adv_buf_append_str(b, ";SELECT h.id, h.cluster, h.method, h.request, h.caller, TIMESTAMPDIFF(MICROSECOND, h.made_at,"
                                 " NOW(6)) FROM handoffs h JOIN owners o ON o.cluster = h.cluster WHERE h.answered = 0"
                                 " AND o.owner = ");
    my_quote(b, st->base.replica);
    (void) adv_buf_appendf(b, " ORDER BY h.made_at, h.id LIMIT %d;SELECT id, cluster, method, reply, seq,"
                              " TIMESTAMPDIFF(MICROSECOND, made_at, NOW(6)) FROM handoffs WHERE answered = 1 AND from_replica = ",
                           POLL_HANDOFFS);
    my_quote(b, st->base.replica);
    (void) adv_buf_appendf(b, " ORDER BY made_at, id LIMIT %d", 2 * POLL_HANDOFFS);
}

static void poll_failed_cb(uv_timer_t *h)
{
    end_poll(h->data);
}

void my_poll(struct store *base, uint64_t after, uint64_t upto, store_poll_cb cb, void *arg)
{
    struct mysql_store *st = mysql_of(base);
    struct poll_run *p = &st->poll;

    *p = (struct poll_run) { .cb = cb, .arg = arg, .after = after, .upto = upto };
    adv_buf_init(&p->sql, 8192);
    adv_buf_init(&p->bytes, SIZE_MAX / 2);
    p->changes = calloc(POLL_ROWS, sizeof(*p->changes));
    p->handoffs = calloc((size_t) 2 * POLL_HANDOFFS, sizeof(*p->handoffs));
    write_poll(st, p);
    if (!p->changes || !p->handoffs || adv_buf_error(&p->sql)) {
        p->r = adv_err_set(&p->err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        (void) uv_timer_start(&st->poll_failed, poll_failed_cb, 0, 0);
        return;
    }
    p->q = (struct dbquery) { .sql = p->sql.data, .len = p->sql.len, .timeout_ms = st->timeout_ms, .row = poll_row,
                              .done = poll_done, .arg = st };
    dbconn_query(st->write, &p->q);
}

/* ---- audit pages ------------------------------------------------------------------------------------------------ */

struct audit_run {
    struct mysql_store *st;
    struct dbquery q;
    struct adv_buf sql;
    struct audit_row *rows;
    size_t n, max;
    store_audit_cb cb;
    void *arg;
    struct adv_err err;
    int r;
};

static int take_audit_row(struct audit_run *a, const struct dbrow *row)
{
    struct audit_row *r = &a->rows[a->n];
    char **const texts[AUDIT_TEXTS] = { &r->prev_hash, &r->hash, &r->principal,   &r->verb,    &r->subject,
                                        &r->detail,    &r->salt, &r->detail_hash, &r->event_id };

    if (row->n != 5 + AUDIT_TEXTS || a->n >= a->max)
        return my_bad_row(&a->err, "audit");
    a->n++;
    (void) snprintf(r->cluster, sizeof(r->cluster), "%s", my_text(row, 1));
    for (unsigned i = 0; i < AUDIT_TEXTS; i++)
        if (!(*texts[i] = strdup(my_text(row, 5 + i))))
            return adv_err_set(&a->err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    if (!my_u64(row, 0, &r->rowid) || !my_u64(row, 2, &r->seq) || !my_i64(row, 3, &r->observe_us) ||
        !my_i64(row, 4, &r->record_us))
        return my_bad_row(&a->err, "audit");
    return 0;
}

static void audit_row(struct dbquery *q, const struct dbrow *row)
{
    struct audit_run *a = q->arg;

    if (a->r == 0)
        a->r = take_audit_row(a, row);
}

static void end_audit(struct audit_run *a)
{
    if (a->r < 0)
        my_outside(&a->err);
    a->cb(a->arg, a->rows, a->r < 0 ? 0 : a->n, a->r < 0 ? &a->err : NULL);
    for (size_t i = 0; i < a->n; i++)
        audit_row_done(&a->rows[i]);
    free(a->rows);
    adv_buf_done(&a->sql);
    free(a);
}

static void audit_done(struct dbquery *q, const struct adv_err *err)
{
    struct audit_run *a = q->arg;

    if (err) {
        a->err = *err;
        a->r = -(int) err->code;
    }
    end_audit(a);
}

static void write_audit_query(struct adv_buf *b, const struct audit_query *q, uint32_t limit)
{
    (void) adv_buf_appendf(b, "SELECT id, cluster, seq, observe_us, record_us, prev_hash, hash, principal, verb, subject, detail,"
                              " salt, detail_hash, event_id FROM audit WHERE id > %" PRIu64, q->after_rowid);
    if (q->cluster[0]) {
        (void) adv_buf_append_str(b, " AND cluster = ");
        my_quote(b, q->cluster);
    }
    if (q->subject_prefix[0]) {
        (void) adv_buf_appendf(b, " AND LEFT(subject, %zu) = ", strlen(q->subject_prefix));
        my_quote(b, q->subject_prefix);
    }
    if (q->verb[0]) {
        (void) adv_buf_append_str(b, " AND verb = ");
        my_quote(b, q->verb);
    }
    if (q->principal[0]) {
        (void) adv_buf_append_str(b, " AND principal = ");
        my_quote(b, q->principal);
    }
    if (q->from_us)
        (void) adv_buf_appendf(b, " AND record_us >= %" PRId64, q->from_us);
    if (q->before_us)
        (void) adv_buf_appendf(b, " AND record_us < %" PRId64, q->before_us);
    if (q->event_ids) {
        (void) adv_buf_append_str(b, " AND event_id <> '' AND event_id IN (''");
        for (size_t i = 0; i < q->n_event_ids; i++)
            my_comma_quote(b, q->event_ids[i]);
        (void) adv_buf_append_byte(b, ')');
    }
    (void) adv_buf_appendf(b, " ORDER BY id LIMIT %u", limit);
}

void my_list_audit(struct store *base, const struct audit_query *q, store_audit_cb cb, void *arg)
{
    struct mysql_store *st = mysql_of(base);
    struct audit_run *a = calloc(1, sizeof(*a));
    struct adv_err err = { 0 };
    uint32_t limit = q->limit < AUDIT_ROWS_MAX ? q->limit : AUDIT_ROWS_MAX;

    if (a) {
        adv_buf_init(&a->sql, 1u << 20);
        write_audit_query(&a->sql, q, limit);
        a->rows = calloc(limit ? limit : 1, sizeof(*a->rows));
    }
    if (!a || !a->rows || adv_buf_error(&a->sql)) {
        if (a) {
            free(a->rows);
            adv_buf_done(&a->sql);
        }
        free(a);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
        cb(arg, NULL, 0, &err);
        return;
    }
    a->st = st;
    a->max = limit;
    a->cb = cb;
    a->arg = arg;
    a->q = (struct dbquery) { .sql = a->sql.data, .len = a->sql.len, .timeout_ms = st->timeout_ms, .row = audit_row,
                              .done = audit_done, .arg = a };
    dbconn_query(st->side, &a->q);
}
