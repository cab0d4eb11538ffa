/* SPDX-License-Identifier: Apache-2.0 */
/* Commits of the MySQL engine: mysql.c tells the idea. First the text is made, then it is sent; what goes wrong ends in one of
 * three ways: nothing is stored and it is tried again, nothing is stored and that is told, or nobody knows and the mark is
 * looked for. */

#include "controlplane/store/mysql-engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include <mysqld_error.h>

#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"

#define STATEMENT_MAX    (256u << 10)
#define ROWS_A_STATEMENT 500
#define COMMIT_TRIES     5
#define TRIM_EVERY       1024 /* changes */
#define TRIM_ROWS        5000 /* one statement deletes no more, so that its locks are short */
#define HANDOFF_KEEP_S   3600 /* nobody waits for one that long */

/* ---- making the text -------------------------------------------------------------------------------------------- */

static void free_chunks(struct commit_run *m)
{
    for (size_t i = 0; i < m->n_chunks; i++)
        adv_buf_done(&m->chunks[i]);
    free(m->chunks);
    m->chunks = NULL;
    m->n_chunks = 0;
}

static struct adv_buf *add_chunk(struct commit_run *m)
{
    struct adv_buf *v = realloc(m->chunks, (m->n_chunks + 1) * sizeof(*v));

    if (!v)
        return NULL;
    m->chunks = v;
    adv_buf_init(&v[m->n_chunks], SIZE_MAX / 2);
    m->in_chunk = 0;
    return &v[m->n_chunks++];
}

/* The text of a commit in the making: @b is its last chunk. */
struct writer {
    struct mysql_store *st;
    struct commit_run *m;
    struct adv_buf *b;
    const char *head, *tail; /* of the open statement of many rows; NULL: none is open */
    size_t began;            /* where it begins */
    unsigned rows;
    bool oom;
};

/* Begins a statement. */
static void statement(struct writer *w, const char *sql)
{
    if (w->b->len > 0)
        (void) adv_buf_append_byte(w->b, ';');
    (void) adv_buf_append_str(w->b, sql);
    w->m->in_chunk++;
}

static void end_rows(struct writer *w)
{
    if (w->head)
        (void) adv_buf_append_str(w->b, w->tail);
    w->head = NULL;
}

/* Goes on in a new chunk when this one is full. No statement of many rows is open. */
static void make_room(struct writer *w)
{
    struct adv_buf *b;

    if (w->b->len < w->st->chunk_max / 2)
        return;
    b = add_chunk(w->m);
    if (b)
        w->b = b;
    else
        w->oom = true;
}

/* Puts the "(" of the next row: into the open statement when it is the same one and still short, else into a new one. */
static void begin_row(struct writer *w, const char *head, const char *tail)
{
    if (w->head == head && w->rows < ROWS_A_STATEMENT && w->b->len - w->began < STATEMENT_MAX &&
        w->b->len < w->st->chunk_max / 2) {
        (void) adv_buf_append_str(w->b, ",(");
        w->rows++;
        return;
    }
    end_rows(w);
    make_room(w);
    w->began = w->b->len;
    statement(w, head);
    (void) adv_buf_append_byte(w->b, '(');
    w->head = head;
    w->tail = tail;
    w->rows = 1;
}

static void write_guards(struct writer *w, const struct store_txn *t)
{
    const char *sep = "";

    for (size_t i = 0; i < t->n; i++)
        w->m->n_guards += t->rows[i].type == ROW_GUARD;
    if (w->m->n_guards) {
        statement(w, "UPDATE owners SET touched = touched + 1 WHERE owner = ");
        my_quote(w->b, w->st->base.replica);
        (void) adv_buf_append_str(w->b, " AND (");
        for (size_t i = 0; i < t->n; i++) {
            if (t->rows[i].type != ROW_GUARD)
                continue;
            (void) adv_buf_appendf(w->b, "%s(cluster = ", sep);
            my_quote(w->b, txn_text(t, t->rows[i].cluster));
            (void) adv_buf_appendf(w->b, " AND epoch = %" PRIu64 ")", t->rows[i].number);
            sep = " OR ";
        }
        (void) adv_buf_append_byte(w->b, ')');
        statement(w, "SET @held = ROW_COUNT()");
    } else {
        statement(w, "SET @held = 0");
    }
}

/* A new cluster begins with us as its owner; that somebody made it meanwhile is found by the key. */
static void write_owned(struct writer *w, const struct store_txn *t)
{
    w->m->owned_from = w->m->owned_to = w->m->in_chunk;
    for (size_t i = 0; i < t->n; i++) {
        if (t->rows[i].type != ROW_OWN)
            continue;
        statement(w, "INSERT INTO owners(cluster, owner, epoch, until_at) VALUES(");
        my_quote(w->b, txn_text(t, t->rows[i].cluster));
        my_comma_quote(w->b, w->st->base.replica);
        (void) adv_buf_appendf(w->b, ", %u, NOW(6) + INTERVAL %" PRId64 " MICROSECOND)", MY_FIRST_EPOCH, w->st->owner_lease_us);
        w->m->owned_to++;
    }
}

static void write_objects(struct writer *w, const struct store_txn *t)
{
    static const char head[] = "INSERT INTO objects(cluster, kind, `key`, record) VALUES ",
                      tail[] = " ON DUPLICATE KEY UPDATE record = VALUES(record)";

    for (size_t i = 0; !w->oom && i < t->n; i++) {
        const struct row *row = &t->rows[i];
        if (row->type == ROW_DELETE) { /* one at a time: MariaDB would look at the whole table for a list of keys */
            end_rows(w);
            make_room(w);
            statement(w, "DELETE FROM objects WHERE cluster = ");
            my_quote(w->b, txn_text(t, row->cluster));
            (void) adv_buf_appendf(w->b, " AND kind = %d AND `key` = ", (int) row->kind);
            my_quote(w->b, txn_text(t, row->key));
        } else if (row->type == ROW_PUT) {
            begin_row(w, head, tail);
            my_quote(w->b, txn_text(t, row->cluster));
            (void) adv_buf_appendf(w->b, ",%d", (int) row->kind);
            my_comma_quote(w->b, txn_text(t, row->key));
            (void) adv_buf_append_byte(w->b, ',');
            db_quote(w->b, t->bytes.data + row->blob, row->blob_len);
            (void) adv_buf_append_byte(w->b, ')');
        }
    }
    end_rows(w);
}

/* From here on the lock on the numbers is held. The first statement fails unless this is the store that is known here, with
 * all that is known of it (the address may lead to another server by now, or to one that was put back); the second one,
 * unless every guard matched: -1 is out of the column's range. */
static void write_sequence(struct writer *w)
{
    const struct mysql_store *st = w->st;

    make_room(w);
    w->m->sequence_chunk = w->m->n_chunks - 1;
    statement(w, "UPDATE sequence SET last = IF(");
    (void) adv_buf_appendf(w->b, "last >= %" PRIu64 " AND (SELECT COUNT(*) FROM meta WHERE (`key` = 'store_uuid' AND value = '%s') OR"
                                 " (`key` = 'term' AND value = '%" PRIu64 "')) = 2", st->known_seq, st->base.uuid, st->base.term);
    if (st->mark_seq)
        (void) adv_buf_appendf(w->b, " AND EXISTS(SELECT 1 FROM changes WHERE seq = %" PRIu64 " AND mark = %" PRIu64 ")",
                               st->mark_seq, st->mark);
    (void) adv_buf_append_str(w->b, ", last, -1) WHERE id = 1");
    w->m->at_sequence = w->m->in_chunk;
    statement(w, "UPDATE sequence SET last = ");
    (void) adv_buf_appendf(w->b, "IF(@held = %u, LAST_INSERT_ID(last) + %u, -1) WHERE id = 1", w->m->n_guards, w->m->n_changes);
    statement(w, "SET @first = LAST_INSERT_ID() + 1");
}

static void write_change(struct writer *w, unsigned n, const char *cluster, uint64_t revision, int kind, const char *key)
{
    static const char head[] = "INSERT INTO changes(seq, mark, cluster, revision, kind, `key`) VALUES ";

    begin_row(w, head, "");
    (void) adv_buf_appendf(w->b, "@first + %u, %" PRIu64, n, w->m->mark);
    my_comma_quote(w->b, cluster);
    (void) adv_buf_appendf(w->b, ", %" PRIu64 ", %d", revision, kind);
    my_comma_quote(w->b, key);
    (void) adv_buf_append_byte(w->b, ')');
}

static void write_audit(struct writer *w, unsigned n, const struct store_txn *t, const struct row *row)
{
    static const char head[] = "INSERT INTO audit(id, cluster, seq, prev_hash, hash, principal, verb, subject, detail,"
                               " salt, detail_hash, event_id, observe_us, record_us) VALUES ";

    begin_row(w, head, "");
    (void) adv_buf_appendf(w->b, "@first + %u", n);
    my_comma_quote(w->b, txn_text(t, row->cluster));
    (void) adv_buf_appendf(w->b, ", %" PRIu64, row->audit_seq);
    for (int i = 0; i < AUDIT_TEXTS; i++)
        my_comma_quote(w->b, txn_text(t, row->text[i]));
    (void) adv_buf_appendf(w->b, ", %" PRId64 ", %" PRId64 ")", row->time_us[1], row->time_us[0]);
}

/* What is below a subject begins with it and '/', which is followed by '0'. */
static void write_erasure(struct writer *w, const struct store_txn *t, const struct row *row)
{
    const char *subject = txn_text(t, row->key);
    adv_auto_free char *below = NULL;

    if (asprintf(&below, "%s/", subject) < 0) {
        below = NULL;
        w->oom = true;
        return;
    }
    end_rows(w);
    make_room(w);
    statement(w, "UPDATE audit SET detail = '', salt = '' WHERE cluster = ");
    my_quote(w->b, txn_text(t, row->cluster));
    (void) adv_buf_append_str(w->b, " AND (subject = ");
    my_quote(w->b, subject);
    (void) adv_buf_append_str(w->b, " OR (subject >= ");
    my_quote(w->b, below);
    below[strlen(subject)] = '0';
    (void) adv_buf_append_str(w->b, " AND subject < ");
    my_quote(w->b, below);
    (void) adv_buf_append_str(w->b, "))");
}

static void write_cut(struct writer *w, const struct store_txn *t, const struct row *row)
{
    end_rows(w);
    make_room(w);
    statement(w, "DELETE FROM audit WHERE cluster = ");
    my_quote(w->b, txn_text(t, row->cluster));
    (void) adv_buf_appendf(w->b, " AND seq <= %" PRIu64, row->audit_seq);
}

static void write_request(struct writer *w, const struct store_txn *t, const struct row *row)
{
    static const char head[] = "INSERT INTO requests(seq, id, hash, record_us) VALUES ",
                      tail[] = " ON DUPLICATE KEY UPDATE seq = VALUES(seq), hash = VALUES(hash), record_us = VALUES(record_us)";

    begin_row(w, head, tail);
    (void) adv_buf_appendf(w->b, "@first + %u", w->m->n_changes - 1);
    my_comma_quote(w->b, txn_text(t, row->key));
    my_comma_quote(w->b, txn_text(t, row->text[0]));
    (void) adv_buf_appendf(w->b, ", %" PRId64 ")", row->time_us[0]);
}

static void write_numbered(struct writer *w, const struct store_txn *t)
{
    unsigned n = 0;

    for (size_t i = 0; !w->oom && i < t->n; i++) {
        const struct row *row = &t->rows[i];
        if (row->type == ROW_CHANGE || row->type == ROW_AUDIT)
            write_change(w, n++, txn_text(t, row->cluster), row->number, (int) row->kind, txn_text(t, row->key));
    }
    if (n < w->m->n_changes)
        write_change(w, n, "", 0, RESOURCE_NONE, "");
    n = 0;
    for (size_t i = 0; !w->oom && i < t->n; i++) {
        if (t->rows[i].type == ROW_AUDIT)
            write_audit(w, n, t, &t->rows[i]);
        else if (t->rows[i].type == ROW_AUDIT_ERASE)
            write_erasure(w, t, &t->rows[i]);
        else if (t->rows[i].type == ROW_AUDIT_CUT)
            write_cut(w, t, &t->rows[i]);
        n += t->rows[i].type == ROW_CHANGE || t->rows[i].type == ROW_AUDIT;
    }
    for (size_t i = 0; !w->oom && i < t->n; i++)
        if (t->rows[i].type == ROW_REQUEST)
            write_request(w, t, &t->rows[i]);
    end_rows(w);
}

static int make_text(struct mysql_store *st, struct commit_run *m, const struct store_txn *t)
{
    struct writer w = { .st = st, .m = m, .b = add_chunk(m) };

    if (!w.b)
        return -ADV_RESOURCE_EXHAUSTED;
    m->n_changes = (unsigned) t->n_changes;
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].type == ROW_REQUEST && m->n_changes == 0)
            m->n_changes = 1; /* request ids are followed by number, so that there must be one */
    statement(&w, "START TRANSACTION");
    write_guards(&w, t);
    write_owned(&w, t);
    write_objects(&w, t);
    write_sequence(&w);
    write_numbered(&w, t);
    statement(&w, "SELECT @first");
    statement(&w, "COMMIT");
    for (size_t i = 0; i < m->n_chunks; i++)
        if (adv_buf_error(&m->chunks[i]))
            w.oom = true;
    return w.oom ? -ADV_RESOURCE_EXHAUSTED : 0;
}

/* ---- committing ------------------------------------------------------------------------------------------------- */

static void send_chunk(struct mysql_store *st);
static void trim(struct mysql_store *st);

static void end_commit(struct mysql_store *st, bool stored)
{
    struct commit_run *m = &st->commit;
    store_commit_cb cb = m->cb;
    uint64_t before = st->known_seq;

    free_chunks(m);
    if (stored && m->n_changes) {
        st->known_seq = st->mark_seq = m->first_seq + m->n_changes - 1;
        st->mark = m->mark;
        if (before / TRIM_EVERY != st->known_seq / TRIM_EVERY)
            trim(st);
    }
    if (!stored)
        my_outside(&m->err);
    cb(m->arg, stored ? m->first_seq : 0, stored ? NULL : &m->err);
}

static void retry_cb(uv_timer_t *h)
{
    send_chunk(h->data);
}

static void give_up_cb(uv_timer_t *h)
{
    end_commit(h->data, false);
}

/* Nothing is stored: from the beginning, after a short and random pause. */
static void try_again(struct mysql_store *st)
{
    struct commit_run *m = &st->commit;
    uint8_t r = 0;

    if (++m->tries >= COMMIT_TRIES || adv_boot_us() > m->give_up_us) {
        end_commit(st, false);
        return;
    }
    (void) getrandom(&r, sizeof(r), GRND_NONBLOCK);
    adv_debug("mysql", "commit not stored, trying again", ADV_FS("why", m->err.msg), ADV_FI("try", (int) m->tries));
    m->next = 0;
    (void) uv_timer_start(&m->pause, retry_cb, 1 + r % (16u << m->tries), 0);
}

static void found_row(struct dbquery *q, const struct dbrow *row)
{
    struct mysql_store *st = q->arg;

    if (!my_u64(row, 0, &st->commit.first_seq))
        st->commit.first_seq = 0;
}

static void looked_done(struct dbquery *q, const struct adv_err *err)
{
    struct mysql_store *st = q->arg;
    struct commit_run *m = &st->commit;

    if (err) {
        (void) adv_err_set_reason(&m->err, ADV_UNAVAILABLE, "STORE_OUTCOME_UNKNOWN",
                                  "store: the answer of a commit was lost, and the database cannot be asked: %.150s", err->msg);
        end_commit(st, false);
    } else if (m->first_seq) {
        adv_info("mysql", "a commit whose answer was lost is found stored", ADV_FU("first_seq", m->first_seq));
        end_commit(st, true);
    } else {
        try_again(st);
    }
}

/* The answer of a COMMIT was lost: the next session is fenced from the last one, so what it sees is final. */
static void look_for_mark(struct mysql_store *st)
{
    struct commit_run *m = &st->commit;
    struct adv_buf *b = &m->look;

    if (m->n_changes == 0) {
        (void) adv_err_set_reason(&m->err, ADV_UNAVAILABLE, "STORE_OUTCOME_UNKNOWN", "store: the answer of a commit was lost");
        end_commit(st, false);
        return;
    }
    adv_buf_reset(b);
    (void) adv_buf_appendf(b, "SELECT MIN(seq) FROM changes WHERE seq > %" PRIu64 " AND mark = %" PRIu64, st->known_seq, m->mark);
    m->first_seq = 0;
    m->q = (struct dbquery) { .sql = b->data, .len = b->len, .timeout_ms = st->timeout_ms, .row = found_row,
                              .done = looked_done, .arg = st };
    dbconn_query(st->write, &m->q);
}

static void rolled_back_and_over(struct dbquery *q, const struct adv_err *err)
{
    (void) err; /* then the session is gone, and the transaction with it */
    end_commit(q->arg, false);
}

static void rolled_back(struct dbquery *q, const struct adv_err *err)
{
    (void) err;
    try_again(q->arg);
}

static void roll_back(struct mysql_store *st, bool again)
{
    static const char sql[] = "ROLLBACK";
    struct commit_run *m = &st->commit;

    m->q = (struct dbquery) { .sql = sql, .len = sizeof(sql) - 1, .timeout_ms = st->timeout_ms, .session = m->q.ran_in,
                              .done = again ? rolled_back : rolled_back_and_over, .arg = st };
    dbconn_query(st->write, &m->q);
}

/* The server did not take statement @at of the chunk. */
static void refused(struct mysql_store *st, unsigned at)
{
    struct commit_run *m = &st->commit;
    bool last = m->next == m->n_chunks - 1;

    if (last && at == m->in_chunk - 1) { /* COMMIT itself */
        if (m->err.code == ADV_ABORTED) { /* of several servers that vote */
            roll_back(st, true);
            return;
        }
        dbconn_drop(st->write);
        look_for_mark(st);
        return;
    }
    if (m->next == m->sequence_chunk && at == m->at_sequence - 1 && m->q.server_errno == ER_WARN_DATA_OUT_OF_RANGE) {
        (void) adv_err_set_reason(&m->err, ADV_ABORTED, "STORE_REPLACED",
                                  "store: it is another one now, or of another term, or its history is not the one known here");
        roll_back(st, false);
        return;
    }
    if (m->next == m->sequence_chunk && at == m->at_sequence && m->q.server_errno == ER_WARN_DATA_OUT_OF_RANGE) {
        (void) adv_err_set_reason(&m->err, ADV_ABORTED, "STORE_NOT_OWNER",
                                  "store: this replica does not own a cluster that it wanted to write");
        roll_back(st, false);
        return;
    }
    if (m->next == 0 && at >= m->owned_from && at < m->owned_to && adv_streq(m->err.reason, "STORE_DUPLICATE"))
        (void) adv_err_set_reason(&m->err, ADV_ABORTED, "STORE_NOT_OWNER",
                                  "store: another replica made the same cluster meanwhile");
    roll_back(st, m->err.code == ADV_ABORTED && !adv_streq(m->err.reason, "STORE_NOT_OWNER"));
}

static void chunk_row(struct dbquery *q, const struct dbrow *row)
{
    struct mysql_store *st = q->arg;

    if (!my_u64(row, 0, &st->commit.first_seq))
        st->commit.first_seq = 0;
}

static void chunk_done(struct dbquery *q, const struct adv_err *err)
{
    struct mysql_store *st = q->arg;
    struct commit_run *m = &st->commit;
    bool last = m->next == m->n_chunks - 1;

    if (!err && !last) {
        m->next++;
        send_chunk(st);
        return;
    }
    if (!err) {
        ADV_FAILPOINT("mysql.after_commit");
        end_commit(st, true);
        return;
    }
    m->err = *err;
    if (q->outcome == DB_REFUSED)
        refused(st, q->statements);
    else if (q->outcome == DB_UNKNOWN && last)
        look_for_mark(st);
    else if (q->outcome == DB_NOT_SENT && m->next == 0)
        end_commit(st, false); /* not to be reached; dbconn has tried */
    else
        try_again(st);
}

static void send_chunk(struct mysql_store *st)
{
    struct commit_run *m = &st->commit;
    struct adv_buf *b = &m->chunks[m->next];

    if (m->next == m->n_chunks - 1)
        ADV_FAILPOINT("mysql.before_commit");
    m->q = (struct dbquery) { .sql = b->data, .len = b->len, .timeout_ms = st->timeout_ms,
                              .session = m->next ? m->q.ran_in : 0, .row = chunk_row, .done = chunk_done, .arg = st };
    dbconn_query(st->write, &m->q);
}

void my_commit(struct store *base, struct store_txn *t, store_commit_cb cb, void *arg)
{
    struct mysql_store *st = mysql_of(base);
    struct commit_run *m = &st->commit;

    m->cb = cb;
    m->arg = arg;
    m->n_guards = 0;
    m->next = 0;
    m->tries = 0;
    m->give_up_us = adv_boot_us() + (int64_t) st->timeout_ms * 2000;
    m->first_seq = 0;
    m->err = (struct adv_err) { 0 };
    if (getrandom(&m->mark, sizeof(m->mark), 0) != (ssize_t) sizeof(m->mark) || make_text(st, m, t) < 0) {
        (void) adv_err_set(&m->err, ADV_RESOURCE_EXHAUSTED, "store: no memory for a transaction");
        (void) uv_timer_start(&m->pause, give_up_cb, 0, 0);
        return;
    }
    send_chunk(st);
}

/* ---- trimming --------------------------------------------------------------------------------------------------- */

static void trim_done(struct dbquery *q, const struct adv_err *err)
{
    struct mysql_store *st = q->arg;

    st->trim.busy = false;
    if (err)
        adv_debug("mysql", "old rows not removed, later", ADV_FS("why", err->msg));
}

/* On the side: nothing waits for it, and what it leaves the next one takes. */
static void trim(struct mysql_store *st)
{
    struct trim_run *m = &st->trim;

    if (m->busy)
        return;
    m->busy = true;
    (void) snprintf(m->sql, sizeof(m->sql),
                    "DELETE FROM changes WHERE seq <= %" PRIu64 " ORDER BY seq LIMIT %d;"
                    "DELETE FROM requests WHERE record_us < %" PRId64 " ORDER BY record_us LIMIT %d;"
                    "DELETE FROM handoffs WHERE made_at < NOW(6) - INTERVAL %d SECOND LIMIT %d;"
                    "DELETE FROM replicas WHERE until_at < NOW(6) - INTERVAL 1 DAY",
                    st->known_seq > STORE_CHANGES_KEPT ? st->known_seq - STORE_CHANGES_KEPT : 0, TRIM_ROWS,
                    (int64_t) (adv_wall_us() - STORE_REQUEST_KEEP_US), TRIM_ROWS, HANDOFF_KEEP_S, TRIM_ROWS);
    m->q = (struct dbquery) { .sql = m->sql, .len = strlen(m->sql), .timeout_ms = st->timeout_ms, .done = trim_done, .arg = st };
    dbconn_query(st->side, &m->q);
}
