/* SPDX-License-Identifier: Apache-2.0 */
/* What both engines need alike: transactions as lists of encoded rows, the request ids of the last day, rows into the
 * fleet. The engines only move rows. */

/* A table that cannot grow leaves the new element out instead of ending the program. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(e) ((void) (e))

#include "controlplane/store/engine.h"

#include <assert.h>
#include <stdio.h>

#include "common/clock.h"
#include "controlplane/domain/entries.h"
#include "controlplane/store/codec.h"

#define TXN_MAX_BYTES (256u << 20)

struct request_entry {
    char *id;
    char hash[65];
    int64_t record_us;
    UT_hash_handle hh;
};

int store_open(uv_loop_t *loop, const struct store_config *cfg, struct store **ret, struct adv_err *err)
{
    return adv_startswith(cfg->url, "mysql://") ? mysql_store_open(loop, cfg, ret, err) :
                                                  sqlite_store_open(loop, cfg, ret, err);
}

struct store *store_close(struct store *st)
{
    if (!st)
        return NULL;
    store_requests_clear(st);
    return st->ops->close(st);
}

void store_look(struct store *st, store_cb cb, void *arg)
{
    st->ops->look(st, cb, arg);
}

const char *store_uuid(const struct store *st)
{
    return st->uuid;
}

uint64_t store_term(const struct store *st)
{
    return st->term;
}

bool store_made(const struct store *st)
{
    return st->made;
}

bool store_shared(const struct store *st)
{
    return st->ops->shared;
}

const char *store_replica(const struct store *st)
{
    return st->replica;
}

void store_set_wake(struct store *st, void (*wake)(void *arg), void *arg)
{
    if (st->ops->set_wake)
        st->ops->set_wake(st, wake, arg);
}

void store_load(struct store *st, struct fleet *f, struct watchlog *w, store_cb cb, void *arg)
{
    f->store_term = st->term;
    st->ops->load(st, f, w, cb, arg);
}

void store_list_audit(struct store *st, const struct audit_query *q, store_audit_cb cb, void *arg)
{
    st->ops->list_audit(st, q, cb, arg);
}

bool audit_row_copy(struct audit_row *ret, const struct audit_row *r)
{
    *ret = *r;
    ret->prev_hash = strdup(str_or(r->prev_hash));
    ret->hash = strdup(str_or(r->hash));
    ret->principal = strdup(str_or(r->principal));
    ret->verb = strdup(str_or(r->verb));
    ret->subject = strdup(str_or(r->subject));
    ret->detail = strdup(str_or(r->detail));
    ret->salt = strdup(str_or(r->salt));
    ret->detail_hash = strdup(str_or(r->detail_hash));
    ret->event_id = strdup(str_or(r->event_id));
    if (ret->prev_hash && ret->hash && ret->principal && ret->verb && ret->subject && ret->detail && ret->salt &&
        ret->detail_hash && ret->event_id)
        return true;
    audit_row_done(ret);
    return false;
}

void audit_row_done(struct audit_row *r)
{
    free(r->prev_hash);
    free(r->hash);
    free(r->principal);
    free(r->verb);
    free(r->subject);
    free(r->detail);
    free(r->salt);
    free(r->detail_hash);
    free(r->event_id);
    *r = (struct audit_row) { 0 };
}

/* ---- rows into the fleet ---------------------------------------------------------------------------------------- */

static int load_cluster(struct fleet *f, const void *record, size_t len)
{
    struct cluster *c = calloc(1, sizeof(*c));
    int r = c ? codec_decode(RESOURCE_CLUSTER, record, len, c) : -ADV_RESOURCE_EXHAUSTED;

    if (r == 0)
        r = fleet_load_cluster(f, c);
    if (r < 0)
        cluster_free(c);
    return r;
}

static int load_job(struct fleet *f, struct cluster *c, const void *record, size_t len)
{
    struct job *j = calloc(1, sizeof(*j));
    int r = j ? codec_decode(RESOURCE_JOB, record, len, j) : -ADV_RESOURCE_EXHAUSTED;

    if (r == 0)
        r = fleet_load_job(f, c, j);
    if (r < 0)
        job_free(j);
    return r;
}

static int load_node(struct cluster *c, const void *record, size_t len)
{
    struct node *n = calloc(1, sizeof(*n));
    int r = n ? codec_decode(RESOURCE_NODE, record, len, n) : -ADV_RESOURCE_EXHAUSTED;

    if (r == 0)
        r = fleet_load_node(c, n);
    if (r < 0)
        node_free(n);
    return r;
}

static int load_entry(struct cluster *c, enum resource_kind kind, const void *record, size_t len)
{
    struct entry *e = calloc(1, entry_size(kind));
    int r = -ADV_RESOURCE_EXHAUSTED;

    if (e) {
        e->kind = kind;
        r = codec_decode(kind, record, len, e);
    }
    if (r == 0)
        r = fleet_load_entry(c, kind, e);
    if (r < 0)
        entry_free(e);
    return r;
}

#define LOAD_OF_CLUSTER(type, KIND)                                                          \
    static int load_##type(struct cluster *c, const void *record, size_t len)                \
    {                                                                                        \
        struct type *o = calloc(1, sizeof(*o));                                              \
        int r = o ? codec_decode(KIND, record, len, o) : -ADV_RESOURCE_EXHAUSTED;            \
        if (r == 0)                                                                          \
            r = fleet_load_##type(c, o);                                                     \
        if (r < 0)                                                                           \
            type##_free(o);                                                                  \
        return r;                                                                            \
    }
LOAD_OF_CLUSTER(enrolment, RESOURCE_ENROLMENT)
LOAD_OF_CLUSTER(revocation, RESOURCE_REVOCATION)
#undef LOAD_OF_CLUSTER

static int load_attempt(struct fleet *f, struct job *j, const void *record, size_t len)
{
    struct attempt *a = calloc(1, sizeof(*a));
    int r = a ? codec_decode(RESOURCE_ATTEMPT, record, len, a) : -ADV_RESOURCE_EXHAUSTED;

    if (r == 0)
        r = fleet_load_attempt(f, j, a);
    if (r < 0)
        attempt_free(a);
    return r;
}

#define LOAD_BELOW(type, KIND)                                                               \
    static int load_##type(struct attempt *a, const void *record, size_t len)                \
    {                                                                                        \
        struct type *o = calloc(1, sizeof(*o));                                              \
        int r = o ? codec_decode(KIND, record, len, o) : -ADV_RESOURCE_EXHAUSTED;            \
        if (r < 0)                                                                           \
            type##_free(o);                                                                  \
        else                                                                                 \
            fleet_load_##type(a, o);                                                         \
        return r;                                                                            \
    }
LOAD_BELOW(anomaly, RESOURCE_ANOMALY)
LOAD_BELOW(advice, RESOURCE_ADVICE)
LOAD_BELOW(action, RESOURCE_ACTION)
LOAD_BELOW(evidence, RESOURCE_EVIDENCE)
#undef LOAD_BELOW

static int load_of_job(struct fleet *f, struct cluster *c, enum resource_kind kind, const char *key, const void *record,
                       size_t len)
{
    const char *rest;
    char uid[64];
    uint32_t index;
    struct attempt *a;
    struct job *j;

    if (!resource_key_parse(key, uid, &index, &rest) || !(j = fleet_find_job_uid(c, uid)))
        return -ADV_DATA_LOSS;
    if (kind == RESOURCE_ATTEMPT)
        return load_attempt(f, j, record, len);
    a = job_attempt(j, index);
    if (!a)
        return -ADV_DATA_LOSS;
    return kind == RESOURCE_ANOMALY ? load_anomaly(a, record, len) :
           kind == RESOURCE_ADVICE  ? load_advice(a, record, len) :
           kind == RESOURCE_EVIDENCE ? load_evidence(a, record, len) :
                                      load_action(a, record, len);
}

int store_load_row(struct fleet *f, const char *cluster, enum resource_kind kind, const char *key, const void *record,
                   size_t len, struct adv_err *err)
{
    struct cluster *c = kind == RESOURCE_CLUSTER ? NULL : fleet_find_any_cluster(f, cluster);
    int r;

    if (kind != RESOURCE_CLUSTER && !c)
        r = -ADV_DATA_LOSS;
    else if (kind == RESOURCE_CLUSTER)
        r = load_cluster(f, record, len);
    else if (kind == RESOURCE_JOB)
        r = load_job(f, c, record, len);
    else if (kind == RESOURCE_NODE)
        r = load_node(c, record, len);
    else if (entry_size(kind))
        r = load_entry(c, kind, record, len);
    else if (kind == RESOURCE_ENROLMENT)
        r = load_enrolment(c, record, len);
    else if (kind == RESOURCE_REVOCATION)
        r = load_revocation(c, record, len);
    else if (kind > RESOURCE_NONE && kind < RESOURCE_KIND_END_)
        r = load_of_job(f, c, kind, key, record, len);
    else
        r = 0; /* a kind of the next version */
    if (r == 0)
        return 0;
    return adv_err_set_reason(err, r == -ADV_RESOURCE_EXHAUSTED ? ADV_RESOURCE_EXHAUSTED : ADV_DATA_LOSS, "STORE_CORRUPT",
                              "store: object %.64s, kind %d, key \"%.120s\" cannot be read, or what it belongs to is missing",
                              cluster, (int) kind, key);
}

/* ---- following -------------------------------------------------------------------------------------------------- */

static int follow_cluster(struct fleet *f, const struct store_change *ch)
{
    struct cluster *c = fleet_find_any_cluster(f, ch->cluster);

    if (!c)
        return load_cluster(f, ch->record, ch->len);
    /* the table of clusters knows it by its name, which stays the same string */
    char *name = ADV_STEAL(c->name);
    int r;

    codec_reset(RESOURCE_CLUSTER, c);
    r = codec_decode(RESOURCE_CLUSTER, ch->record, ch->len, c);
    if (r == 0 && !adv_streq(str_or(c->name), name))
        r = -ADV_DATA_LOSS;
    free(c->name);
    c->name = name;
    return r;
}

static int follow_job(struct fleet *f, struct cluster *c, const struct store_change *ch)
{
    struct job *j = fleet_find_job_uid(c, ch->key);
    int r;

    if (!j)
        return load_job(f, c, ch->record, ch->len);
    fleet_unlink_job(f, c, j);
    codec_reset(RESOURCE_JOB, j);
    r = codec_decode(RESOURCE_JOB, ch->record, ch->len, j);
    if (r == 0)
        r = fleet_load_job(f, c, j);
    if (r < 0)
        job_free(j);
    return r;
}

static int follow_below(struct fleet *f, struct cluster *c, const struct store_change *ch)
{
    char uid[64];
    const char *rest;
    uint32_t index;
    struct job *j;
    struct attempt *a;

    if (ch->kind == RESOURCE_NODE) {
        fleet_forget_node(c, ch->key);
        return ch->record ? load_node(c, ch->record, ch->len) : 0;
    }
    if (ch->kind == RESOURCE_ENROLMENT) {
        fleet_forget_enrolment(c, ch->key);
        return ch->record ? load_enrolment(c, ch->record, ch->len) : 0;
    }
    if (ch->kind == RESOURCE_REVOCATION) {
        fleet_forget_revocation(c, ch->key);
        return ch->record ? load_revocation(c, ch->record, ch->len) : 0;
    }
    if (entry_size(ch->kind)) {
        int r;
        fleet_forget_entry(f, c, ch->kind, ch->key);
        r = ch->record ? load_entry(c, ch->kind, ch->record, ch->len) : 0;
        fleet_windows_sum(c, f->now_us);
        return r;
    }
    if (!resource_key_parse(ch->key, uid, &index, &rest) || !(j = fleet_find_job_uid(c, uid)))
        return ch->record ? -ADV_DATA_LOSS : 0;
    a = job_attempt(j, index);
    if (ch->kind == RESOURCE_ATTEMPT && a && ch->record) {
        int r;
        codec_reset(RESOURCE_ATTEMPT, a);
        r = codec_decode(RESOURCE_ATTEMPT, ch->record, ch->len, a);
        fleet_recount(j);
        return r;
    }
    if (a && ch->kind != RESOURCE_ATTEMPT)
        fleet_forget_of_attempt(a, ch->kind, ch->key);
    return ch->record ? load_of_job(f, c, ch->kind, ch->key, ch->record, ch->len) : 0;
}

int store_follow(struct fleet *f, const struct store_change *ch, struct adv_err *err)
{
    struct cluster *c = fleet_find_any_cluster(f, ch->cluster);
    int r = 0;

    if (c && c->owned)
        return adv_err_set_reason(err, ADV_ABORTED, "STORE_NOT_OWNER",
                                  "store: change %llu: another replica wrote cluster %.64s, which this one believed to own",
                                  (unsigned long long) ch->seq, ch->cluster);
    if (ch->kind == RESOURCE_CLUSTER)
        r = ch->record ? follow_cluster(f, ch) : 0;
    else if (ch->kind == RESOURCE_NONE || ch->kind == RESOURCE_AUDIT)
        r = 0;
    else if (!c)
        r = -ADV_DATA_LOSS;
    else if (ch->kind == RESOURCE_JOB)
        r = ch->record ? follow_job(f, c, ch) : (fleet_forget_job(f, c, ch->key), 0);
    else
        r = follow_below(f, c, ch);
    if (r == 0) {
        /* The cluster's own row comes only with its own changes, but whoever owns it next goes on from the newest. */
        c = fleet_find_any_cluster(f, ch->cluster);
        if (c && c->revision < ch->revision)
            c->revision = ch->revision;
        return 0;
    }
    return adv_err_set_reason(err, r == -ADV_RESOURCE_EXHAUSTED ? ADV_RESOURCE_EXHAUSTED : ADV_DATA_LOSS, "STORE_CORRUPT",
                              "store: change %llu: object %.64s, kind %d, key \"%.120s\" cannot be followed",
                              (unsigned long long) ch->seq, ch->cluster, (int) ch->kind, ch->key);
}

void store_poll(struct store *st, uint64_t after, uint64_t upto, store_poll_cb cb, void *arg)
{
    assert(!st->committing);
    st->ops->poll(st, after, upto, cb, arg);
}

void store_renew(struct store *st, store_owners_cb cb, void *arg)
{
    st->ops->renew(st, cb, arg);
}

void store_claim(struct store *st, const char *const *clusters, size_t n, store_owners_cb cb, void *arg)
{
    st->ops->claim(st, clusters, n, cb, arg);
}

void store_release(struct store *st, const char *const *clusters, size_t n, store_cb cb, void *arg)
{
    st->ops->release(st, clusters, n, cb, arg);
}

void store_want(struct store *st, const char *cluster, const char *journal, store_cb cb, void *arg)
{
    st->ops->want(st, cluster, journal, cb, arg);
}

void store_hand_off(struct store *st, const struct store_handoff *h, store_id_cb cb, void *arg)
{
    st->ops->hand_off(st, h, cb, arg);
}

void store_answer(struct store *st, const struct store_handoff *h, store_cb cb, void *arg)
{
    st->ops->answer(st, h, cb, arg);
}

int store_load_change(struct watchlog *w, uint64_t seq, uint64_t revision, int kind, const char *cluster, const char *key,
                      struct adv_err *err)
{
    if (kind < 0 || kind >= RESOURCE_KIND_END_)
        kind = RESOURCE_NONE; /* of the next version: nobody here can watch it */
    if (seq != w->last + 1) {
        watchlog_done(w);
        if (watchlog_init(w, STORE_WATCHLOG_CAPACITY, seq - 1) < 0)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    }
    if (watchlog_append(w, seq, revision, (enum resource_kind) kind, cluster, key) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    return 0;
}

/* ---- request ids ------------------------------------------------------------------------------------------------ */

static void forget_request(struct store *st, struct request_entry *e)
{
    HASH_DEL(st->requests, e);
    free(e->id);
    free(e);
}

void store_requests_clear(struct store *st)
{
    struct request_entry *e, *next;

    HASH_ITER(hh, st->requests, e, next)
        forget_request(st, e);
}

int store_requests_add(struct store *st, const char *id, const char *hash, int64_t record_us, struct adv_err *err)
{
    int64_t oldest_us = adv_wall_us() - STORE_REQUEST_KEEP_US;
    struct request_entry *e = NULL;

    while (st->requests && st->requests->record_us < oldest_us)
        forget_request(st, st->requests);
    HASH_FIND_STR(st->requests, id, e);
    if (e && e->record_us >= oldest_us)
        return 0; /* followed after it was written here */
    if (e) /* behind one of a clock that is ahead */
        forget_request(st, e);
    if (record_us < oldest_us)
        return 0;
    e = calloc(1, sizeof(*e));
    if (!e || !(e->id = strdup(id))) {
        free(e);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    }
    (void) snprintf(e->hash, sizeof(e->hash), "%s", hash);
    e->record_us = record_us;
    HASH_ADD_KEYPTR(hh, st->requests, e->id, strlen(e->id), e);
    if (e->hh.tbl)
        return 0;
    free(e->id);
    free(e);
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
}

int store_find_request(const struct store *st, const char *request_id, char ret_hash[65])
{
    struct request_entry *e = NULL;

    HASH_FIND_STR(st->requests, request_id, e);
    if (!e || adv_wall_us() - e->record_us > STORE_REQUEST_KEEP_US)
        return -ADV_NOT_FOUND;
    memcpy(ret_hash, e->hash, sizeof(e->hash));
    return 0;
}

/* ---- transactions ----------------------------------------------------------------------------------------------- */

struct store_txn *store_txn_new(struct store *st)
{
    struct store_txn *t = calloc(1, sizeof(*t));

    if (t) {
        t->st = st;
        adv_buf_init(&t->bytes, TXN_MAX_BYTES);
        (void) adv_buf_append_byte(&t->bytes, 0); /* offset 0 is "" */
    }
    return t;
}

void store_txn_free(struct store_txn *t)
{
    if (!t)
        return;
    adv_buf_done(&t->bytes);
    free(t->rows);
    free(t);
}

static uint32_t put_text(struct store_txn *t, const char *s)
{
    uint32_t at = (uint32_t) t->bytes.len;

    if (!s || !*s)
        return 0;
    if (adv_buf_append(&t->bytes, s, strlen(s) + 1) < 0)
        t->oom = true;
    return at;
}

static struct row *add_row(struct store_txn *t, enum row_type type, const char *cluster)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 32;
        struct row *p = realloc(t->rows, cap * sizeof(*p));
        if (!p) {
            t->oom = true;
            return NULL;
        }
        t->rows = p;
        t->cap = cap;
    }
    t->rows[t->n] = (struct row) { .type = type, .cluster = put_text(t, cluster) };
    return &t->rows[t->n++];
}

void store_txn_guard(struct store_txn *t, const struct cluster *c)
{
    struct row *row = t->st->ops->shared ? add_row(t, ROW_GUARD, c->name) : NULL;

    if (row)
        row->number = c->owner_epoch;
}

void store_txn_own(struct store_txn *t, const struct cluster *c)
{
    if (t->st->ops->shared)
        (void) add_row(t, ROW_OWN, c->name);
}

void store_txn_put(struct store_txn *t, enum resource_kind kind, const char *cluster, const void *object)
{
    struct row *row = add_row(t, ROW_PUT, cluster);
    char key[RESOURCE_KEY_MAX];

    if (!row)
        return;
    row->kind = kind;
    row->key = put_text(t, resource_key(kind, object, key));
    row->blob = (uint32_t) t->bytes.len;
    if (codec_encode(kind, object, &t->bytes) < 0)
        t->oom = true;
    row->blob_len = (uint32_t) t->bytes.len - row->blob;
    if (adv_buf_append_byte(&t->bytes, 0) < 0)
        t->oom = true;
}

void store_txn_delete(struct store_txn *t, enum resource_kind kind, const char *cluster, const char *key)
{
    struct row *row = add_row(t, ROW_DELETE, cluster);

    if (!row)
        return;
    row->kind = kind;
    row->key = put_text(t, key);
}

void store_txn_request(struct store_txn *t, const struct request_record *r)
{
    struct row *row = add_row(t, ROW_REQUEST, "");

    /* known at once: a commit that fails loads the store again and forgets it */
    if (!row || store_requests_add(t->st, r->request_id, r->hash, r->record_us, NULL) < 0) {
        t->oom = true;
        return;
    }
    row->key = put_text(t, r->request_id);
    row->text[0] = put_text(t, r->hash);
    row->time_us[0] = r->record_us;
}

void store_txn_change(struct store_txn *t, uint64_t revision, enum resource_kind kind, const char *cluster, const char *key)
{
    struct row *row = add_row(t, ROW_CHANGE, cluster);

    if (!row)
        return;
    row->kind = kind;
    row->key = put_text(t, key);
    row->number = revision;
    t->n_changes++;
}

void store_txn_audit(struct store_txn *t, uint64_t revision, const struct audit_record *r)
{
    const char *texts[AUDIT_TEXTS] = { r->prev_hash, r->hash,  r->principal,  r->verb,    r->subject,
                                      r->detail,    r->salt, r->detail_hash, r->event_id };
    struct row *row = add_row(t, ROW_AUDIT, r->cluster->name);
    char key[32];

    if (!row)
        return;
    row->kind = RESOURCE_AUDIT;
    (void) snprintf(key, sizeof(key), "%llu", (unsigned long long) r->seq);
    row->key = put_text(t, key);
    row->number = revision;
    for (size_t i = 0; i < ADV_ARRAY_LEN(texts); i++)
        row->text[i] = put_text(t, texts[i]);
    row->audit_seq = r->seq;
    row->time_us[0] = r->record_us;
    row->time_us[1] = r->observe_us;
    t->n_changes++;
}

void store_txn_audit_erase(struct store_txn *t, const char *cluster, const char *subject)
{
    struct row *row = add_row(t, ROW_AUDIT_ERASE, cluster);

    if (row)
        row->key = put_text(t, subject);
}

void store_txn_audit_cut(struct store_txn *t, const char *cluster, uint64_t through_seq)
{
    struct row *row = add_row(t, ROW_AUDIT_CUT, cluster);

    if (row)
        row->audit_seq = through_seq;
}

struct commit {
    struct store_txn *txn;
    store_commit_cb cb;
    void *arg;
};

static void commit_done(void *arg, uint64_t first_seq, const struct adv_err *err)
{
    struct commit *c = arg;

    c->txn->st->committing = false;
    store_txn_free(c->txn);
    c->cb(c->arg, first_seq, err);
    free(c);
}

void store_commit(struct store *st, struct store_txn *t, store_commit_cb cb, void *arg)
{
    struct commit *c = malloc(sizeof(*c));
    struct adv_err err = { 0 };

    assert(!st->committing);
    if (!c || t->oom) {
        free(c);
        store_txn_free(t);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "store: no memory for a transaction");
        cb(arg, 0, &err);
        return;
    }
    *c = (struct commit) { t, cb, arg };
    st->committing = true;
    st->ops->commit(st, t, commit_done, c);
}
