/* SPDX-License-Identifier: Apache-2.0 */
/* Objects are loaded into a fleet as a server would, one by one, so that each that cannot be is told and the rest goes on. */

#include "controlplane/store/check.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/num.h"
#include "common/uuid.h"
#include "controlplane/store/engine.h"

struct checker {
    const struct check_ops *ops;
    void *arg;
    struct check_result *ret;
    struct fleet *f;
    uint64_t last_seq; /* as the store says */
    uint64_t prev_seq; /* of the row before */
    /* the audit event before */
    char cluster[65], hash[ADV_SHA256_HEX_SIZE];
    uint64_t seq;
    struct chain *chains; /* those of which there is an event */
};

struct chain {
    char cluster[65];
    UT_hash_handle hh;
};

static void problem(struct checker *c, const char *fmt, ...) ADV_PRINTF(2, 3);

static void problem(struct checker *c, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    c->ret->problems++;
    c->ops->problem(c->arg, text);
}

static uint64_t number(const struct image_cell *cell)
{
    uint64_t n = UINT64_MAX;

    return adv_parse_u64(cell->bytes, 0, UINT64_MAX, &n, NULL) == 0 ? n : UINT64_MAX;
}

/* Whether what was loaded is found by the key of its row. */
static bool is_there(const struct fleet *f, const char *cluster, enum resource_kind kind, const char *key)
{
    struct cluster *c = fleet_find_any_cluster(f, cluster);
    struct node *n = NULL;
    const char *rest;
    char uid[64];
    uint32_t index;
    struct job *j;

    switch (kind) {
    case RESOURCE_CLUSTER:
        return c && !*key;
    case RESOURCE_JOB:
        return c && fleet_find_job_uid(c, key);
    case RESOURCE_NODE:
        if (c)
            HASH_FIND_STR(c->nodes, key, n);
        return n;
    case RESOURCE_ATTEMPT:
        return c && resource_key_parse(key, uid, &index, &rest) && (j = fleet_find_job_uid(c, uid)) && job_attempt(j, index);
    default:
        return true; /* what lies below an attempt was found by it */
    }
}

static int object_row(void *arg, const struct image_cell *cells, struct adv_err *err)
{
    struct checker *c = arg;
    uint64_t kind = number(&cells[1]);
    struct adv_err e = { 0 };
    int r;

    c->ret->rows[IMAGE_OBJECTS]++;
    if (kind > INT32_MAX) {
        problem(c, "objects: %s, key \"%s\": the kind is no number", cells[0].bytes, cells[2].bytes);
        return 0;
    }
    r = store_load_row(c->f, cells[0].bytes, (enum resource_kind) kind, cells[2].bytes, cells[3].bytes, cells[3].len, &e);
    if (r == -ADV_RESOURCE_EXHAUSTED) {
        if (err)
            *err = e;
        return r;
    }
    if (r < 0)
        problem(c, "objects: %s", e.msg);
    else if (kind < RESOURCE_KIND_END_ && !is_there(c->f, cells[0].bytes, (enum resource_kind) kind, cells[2].bytes))
        problem(c, "objects: %s, kind %" PRIu64 ", key \"%s\": the record is of another object", cells[0].bytes, kind, cells[2].bytes);
    return 0;
}

static int change_row(void *arg, const struct image_cell *cells, struct adv_err *err)
{
    struct checker *c = arg;
    uint64_t seq = number(&cells[0]);

    (void) err;
    if (c->ret->rows[IMAGE_CHANGES]++ == 0)
        c->ret->first_seq = seq;
    else if (seq != c->prev_seq + 1)
        problem(c, "changes: %" PRIu64 " follows %" PRIu64, seq, c->prev_seq);
    c->prev_seq = seq;
    if (number(&cells[2]) == UINT64_MAX || number(&cells[3]) == UINT64_MAX)
        problem(c, "changes: %" PRIu64 ": revision or kind is no number", seq);
    return 0;
}

static void end_chain(struct checker *c)
{
    const struct cluster *cl;

    if (!c->cluster[0])
        return;
    cl = fleet_find_any_cluster(c->f, c->cluster);
    if (!cl)
        problem(c, "audit: events of %s, which is not there", c->cluster);
    else if (cl->audit_seq != c->seq || !adv_streq(str_or(cl->audit_hash), c->hash))
        problem(c, "audit: %s: the chain ends with event %" PRIu64 ", but the cluster's newest is %" PRIu64
                   " or has another hash", c->cluster, c->seq, cl->audit_seq);
}

/* Begins the chain of @r, the oldest event that is there: the first one, or the one after a checkpoint. */
static int begin_chain(struct checker *c, const struct audit_row *r, struct adv_err *err)
{
    const struct cluster *cl = fleet_find_any_cluster(c->f, r->cluster);
    struct chain *chain = calloc(1, sizeof(*chain));
    bool follows = false;

    if (!chain)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    (void) snprintf(chain->cluster, sizeof(chain->cluster), "%s", r->cluster);
    HASH_ADD_STR(c->chains, cluster, chain);
    c->ret->chains++;
    (void) snprintf(c->cluster, sizeof(c->cluster), "%s", r->cluster);
    if (r->seq == 1 && *r->prev_hash)
        problem(c, "audit: %s: the first event follows another one", r->cluster);
    for (const struct entry *e = cl ? cl->entries[RESOURCE_CHECKPOINT] : NULL; e && !follows; e = e->hh.next) {
        const struct checkpoint *cp = (const struct checkpoint *) e;

        follows = cp->seq + 1 == r->seq && adv_streq(str_or(cp->hash), r->prev_hash);
    }
    if (cl && r->seq > 1 && !follows) /* without a cluster that is said at the chain's end */
        problem(c, "audit: %s: event %" PRIu64 " is the oldest, and no checkpoint says what was before it", r->cluster, r->seq);
    return 0;
}

/* A chain of which nothing is left shows only in its cluster. */
static void missing_chain(struct checker *c, const struct cluster *cl)
{
    struct chain *chain = NULL;

    HASH_FIND_STR(c->chains, cl->name, chain);
    if (!chain && cl->audit_seq)
        problem(c, "audit: %s: all events are missing, of which the newest is %" PRIu64, cl->name, cl->audit_seq);
}

static void missing_chains(struct checker *c)
{
    const struct cluster *all = fleet_find_any_cluster(c->f, FLEET_CLUSTER);

    if (all)
        missing_chain(c, all);
    for (const struct cluster *cl = c->f->clusters; cl; cl = cl->hh.next)
        missing_chain(c, cl);
}

static int audit_row(void *arg, const struct image_cell *v, struct adv_err *err)
{
    struct checker *c = arg;
    struct audit_row r = { .rowid = number(&v[0]), .seq = number(&v[2]) };
    char hash[ADV_SHA256_HEX_SIZE], detail[ADV_SHA256_HEX_SIZE];

    c->ret->rows[IMAGE_AUDIT]++;
    (void) snprintf(r.cluster, sizeof(r.cluster), "%s", v[1].bytes);
    r.prev_hash = (char *) (uintptr_t) v[3].bytes;
    r.hash = (char *) (uintptr_t) v[4].bytes;
    r.principal = (char *) (uintptr_t) v[5].bytes;
    r.verb = (char *) (uintptr_t) v[6].bytes;
    r.subject = (char *) (uintptr_t) v[7].bytes;
    r.detail = (char *) (uintptr_t) v[8].bytes;
    r.salt = (char *) (uintptr_t) v[9].bytes;
    r.detail_hash = (char *) (uintptr_t) v[10].bytes;
    r.event_id = (char *) (uintptr_t) v[11].bytes;
    if (adv_parse_i64(v[12].bytes, INT64_MIN, INT64_MAX, &r.observe_us, NULL) < 0 ||
        adv_parse_i64(v[13].bytes, INT64_MIN, INT64_MAX, &r.record_us, NULL) < 0 || r.rowid > c->last_seq) {
        problem(c, "audit: %s, event %" PRIu64 ": a number in it cannot be", r.cluster, r.seq);
        return 0;
    }
    if (!adv_streq(c->cluster, r.cluster)) {
        end_chain(c);
        if (begin_chain(c, &r, err) < 0)
            return -ADV_RESOURCE_EXHAUSTED;
    } else if (r.seq != c->seq + 1) {
        problem(c, "audit: %s: event %" PRIu64 " follows %" PRIu64, r.cluster, r.seq, c->seq);
    } else if (!adv_streq(r.prev_hash, c->hash)) {
        problem(c, "audit: %s: event %" PRIu64 " does not follow event %" PRIu64 " as that is now", r.cluster, r.seq, c->seq);
    }
    if (!audit_hash(&r, hash) || !audit_detail_hash(r.salt, r.detail, detail))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if (!adv_streq(hash, r.hash))
        problem(c, "audit: %s: event %" PRIu64 " is not what its hash says", r.cluster, r.seq);
    if (!*r.detail && !*r.salt)
        c->ret->erased++;
    else if (!adv_streq(detail, r.detail_hash))
        problem(c, "audit: %s: event %" PRIu64 ": the detail is not what its hash says", r.cluster, r.seq);
    c->seq = r.seq;
    (void) snprintf(c->hash, sizeof(c->hash), "%s", r.hash);
    return 0;
}

static int request_row(void *arg, const struct image_cell *cells, struct adv_err *err)
{
    struct checker *c = arg;
    int64_t record_us;

    (void) err;
    c->ret->rows[IMAGE_REQUESTS]++;
    if (!cells[0].len || !cells[1].len || adv_parse_i64(cells[2].bytes, 0, INT64_MAX, &record_us, NULL) < 0)
        problem(c, "requests: \"%s\": no id, hash or time", cells[0].bytes);
    return 0;
}

int store_check(struct image *im, const struct check_ops *ops, void *arg, struct check_result *ret, struct adv_err *err)
{
    static const image_row_cb rows[IMAGE_TABLES_] = { object_row, change_row, audit_row, request_row };
    struct fleet_config cfg = { .lease_us = 1000000 };
    struct checker c = { .ops = ops, .arg = arg, .ret = ret, .last_seq = image_info(im)->last_seq };
    struct chain *chain, *next;
    struct adv_err e = { 0 };
    int r;

    *ret = (struct check_result) { 0 };
    policy_defaults(&cfg.policy);
    c.f = fleet_new(&cfg);
    if (!c.f)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    r = image_check_engine(im, &e);
    if (r == -ADV_DATA_LOSS) {
        problem(&c, "%s", e.msg);
        r = 0;
    }
    for (int t = 0; r == 0 && t < IMAGE_TABLES_; t++)
        r = image_each(im, (enum image_table) t, rows[t], &c, &e);
    if (r == 0) {
        end_chain(&c);
        missing_chains(&c);
        if (ret->rows[IMAGE_CHANGES] && c.prev_seq != c.last_seq)
            problem(&c, "changes: the newest is %" PRIu64 ", but %" PRIu64 " were numbered", c.prev_seq, c.last_seq);
        if (!adv_uuid_valid(image_info(im)->uuid) || image_info(im)->term == 0)
            problem(&c, "meta: no identity, or no term");
    } else if (err) {
        *err = e;
    }
    HASH_ITER(hh, c.chains, chain, next) {
        HASH_DEL(c.chains, chain);
        free(chain);
    }
    (void) fleet_free(c.f);
    return r;
}
