/* SPDX-License-Identifier: Apache-2.0 */
/* VerifyAudit: a walk along one chain, a piece a call.
 *
 * The chain begins at event 1, or at the event after a checkpoint; each event names the hash of the one before it; the end
 * is where the cluster's own record says it is, so that neither end can be shortened without a trace. The old end may be cut
 * between two pieces: then a checkpoint at or after the last one says so. */

#include "controlplane/api/audit.h"

#include <stdio.h>

#include "common/num.h"
#include "controlplane/shapes/shapes.h"

#define PIECE 1000

/* A replica reads events as they are in the store, and follows checkpoints, which are in memory, a moment later. */
#define NEWS_WAIT_MS 500
#define NEWS_TRIES   3

struct verify {
    struct api_call *call;
    char cluster[65];
    uint64_t after_id, after_seq; /* where the last piece ended; 0 at the start */
    char prev_hash[ADV_SHA256_HEX_SIZE];
    int tries;         /* for a checkpoint that this replica may not have read yet */
    uv_timer_t again;
    uint64_t head_seq; /* the newest event when the call came */
    char head_hash[ADV_SHA256_HEX_SIZE];
};

bool audit_checkpoint_text(const char *store_uuid, const char *cluster, uint64_t seq, const char *hash, int64_t record_us,
                           char buf[512])
{
    int n = snprintf(buf, 512, "advisor-audit-checkpoint-v1 %s %s %llu %s %lld", store_uuid, cluster, (unsigned long long) seq,
                     hash, (long long) record_us);

    return n > 0 && n < 512;
}

/* The checkpoint that says what was before @seq. */
static const struct checkpoint *checkpoint_before(const struct cluster *c, uint64_t seq)
{
    for (const struct entry *e = c->entries[RESOURCE_CHECKPOINT]; e; e = e->hh.next)
        if (((const struct checkpoint *) e)->seq + 1 == seq)
            return (const struct checkpoint *) e;
    return NULL;
}

static bool signature_good(const struct api *api, const struct checkpoint *cp)
{
    uint8_t sig[ADV_ED25519_SIZE];
    char text[512];

    return api->cfg.signer && adv_streq(str_or(cp->key_id), adv_ed25519_id(api->cfg.signer)) &&
           adv_unhex(str_or(cp->signature), sig, sizeof(sig)) &&
           audit_checkpoint_text(str_or(cp->store_uuid), cp->e.cluster->name, cp->seq, str_or(cp->hash), cp->record_us, text) &&
           adv_ed25519_verify(api->cfg.signer, text, strlen(text), sig, sizeof(sig));
}

/* What is wrong with @r, which follows the event @seq with hash @prev; NULL: nothing. */
static const char *fault(const struct audit_row *r, uint64_t seq, const char *prev)
{
    char hash[ADV_SHA256_HEX_SIZE];

    if (r->seq != seq + 1)
        return "an event before it is missing";
    if (!adv_streq(r->prev_hash, prev))
        return "it does not follow from the event before it";
    if (!audit_hash(r, hash) || !adv_streq(hash, r->hash))
        return "it was changed: its hash is another one";
    if (!*r->salt && *r->detail)
        return "its detail was changed";
    if (*r->salt && (!audit_detail_hash(r->salt, r->detail, hash) || !adv_streq(hash, r->detail_hash)))
        return "its detail was changed";
    return NULL;
}

/* The oldest of @rows does not follow from what came before the piece. */
static bool cut_before(const struct verify *v, const struct audit_row *rows, size_t n)
{
    return n && (v->after_id ? rows[0].seq > v->after_seq + 1 : rows[0].seq > 1);
}

static void walk(struct verify *v, const struct audit_row *rows, size_t n, struct adv_arena *ar,
                 Advisor__V1__VerifyAuditResponse *m)
{
    struct api *api = v->call->api;
    const struct cluster *c = fleet_find_any_cluster(turn_fleet(api->turn), v->cluster);
    const struct checkpoint *cp = NULL;
    uint64_t seq = v->after_seq;
    const char *prev = v->prev_hash, *why = NULL;

    m->intact = true;
    if (cut_before(v, rows, n)) {
        cp = c ? checkpoint_before(c, rows[0].seq) : NULL;
        if (cp) {
            seq = cp->seq;
            prev = str_or(cp->hash);
            m->checkpoint = shape_checkpoint(ar, cp);
            m->checkpoint_verified = signature_good(api, cp);
        } else {
            why = v->after_id ? "an event before it is missing" :
                                "it is the oldest event kept, and no checkpoint says what was before it";
            m->broken_seq = rows[0].seq;
        }
    }
    for (size_t i = 0; i < n && !why; i++) {
        if ((why = fault(&rows[i], seq, prev)) ||
            (rows[i].seq == v->head_seq && !adv_streq(rows[i].hash, v->head_hash) &&
             (why = "it is not the cluster's newest event"))) {
            m->broken_seq = rows[i].seq;
            break;
        }
        seq = rows[i].seq;
        prev = rows[i].hash;
        if (!m->events++)
            m->first_seq = seq;
        m->last_seq = seq;
        m->last_hash = (char *) (uintptr_t) prev;
    }
    if (!why && n < PIECE && seq < v->head_seq) {
        why = seq ? "the events after it are missing" :
                    "all events are missing, and the cluster's record says that there were some";
        m->broken_seq = seq;
    }
    if (why) {
        m->intact = false;
        m->problem = (char *) (uintptr_t) why;
    } else if (n == PIECE) {
        m->next_page_token = token_page(ar, "verify", shape_printf(ar, "%llu/%llu/%s", (unsigned long long) rows[n - 1].rowid,
                                                                   (unsigned long long) seq, prev));
    }
}

static int take_token(struct verify *v, const char *token, struct adv_err *err)
{
    char text[160], *save = NULL, *id, *seq, *hash;
    int r = token_page_parse(token, "verify", text, sizeof(text), err);

    if (r < 0 || !*text)
        return r;
    id = strtok_r(text, "/", &save);
    seq = strtok_r(NULL, "/", &save);
    hash = strtok_r(NULL, "/", &save);
    if (id && seq && hash && strlen(hash) < sizeof(v->prev_hash) && adv_parse_u64(id, 1, INT64_MAX, &v->after_id, NULL) == 0 &&
        adv_parse_u64(seq, 1, INT64_MAX, &v->after_seq, NULL) == 0) {
        (void) strcpy(v->prev_hash, hash);
        return 0;
    }
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", "page_token: expected one of this call");
    return adv_err_field(err, "page_token");
}

static void begin(void *arg, const struct adv_err *err);

static void closed_cb(uv_handle_t *h)
{
    free(h->data);
}

static void verify_free(struct verify *v)
{
    v->call->ops->unref(v->call);
    uv_close((uv_handle_t *) &v->again, closed_cb);
}

static void again_cb(uv_timer_t *h)
{
    struct verify *v = h->data;

    if (v->call->ops->ended(v->call)) /* of a daemon that stops, too */
        verify_free(v);
    else
        turn_read(v->call->api->turn, begin, v);
}

/* What is missing here may be a checkpoint that its owner has just written. */
static bool news_may_come(const struct verify *v, const struct audit_row *rows, size_t n)
{
    struct turn *t = v->call->api->turn;
    const struct cluster *c = fleet_find_any_cluster(turn_fleet(t), v->cluster);

    return store_shared(turn_store(t)) && c && !c->owned && v->tries < NEWS_TRIES && !v->call->api->stopping &&
           cut_before(v, rows, n) && !checkpoint_before(c, rows[0].seq);
}

static void rows_cb(void *arg, const struct audit_row *rows, size_t n, const struct adv_err *err)
{
    struct verify *v = arg;
    Advisor__V1__VerifyAuditResponse m = ADVISOR__V1__VERIFY_AUDIT_RESPONSE__INIT;
    struct adv_err oom = { 0 };
    ADV_AUTO_DONE(adv_arena) ar;

    adv_arena_init(&ar, 1 << 20);
    if (v->call->ops->ended(v->call)) {
        /* nobody waits any more */
    } else if (err) {
        v->call->ops->fail(v->call, err);
    } else if (news_may_come(v, rows, n)) {
        v->tries++;
        (void) uv_timer_start(&v->again, again_cb, NEWS_WAIT_MS, 0);
        return;
    } else {
        walk(v, rows, n, &ar, &m);
        if (adv_arena_exhausted(&ar)) {
            (void) adv_err_set(&oom, ADV_RESOURCE_EXHAUSTED, "no memory");
            v->call->ops->fail(v->call, &oom);
        } else {
            v->call->ops->reply(v->call, &m.base);
        }
    }
    verify_free(v);
}

static void begin(void *arg, const struct adv_err *err)
{
    struct verify *v = arg;
    struct api_call *call = v->call;
    struct audit_query query = { .after_rowid = v->after_id, .limit = PIECE };
    const struct cluster *c = err ? NULL : fleet_find_any_cluster(turn_fleet(call->api->turn), v->cluster);

    if (err || call->ops->ended(call)) {
        if (err && !call->ops->ended(call))
            call->ops->fail(call, err);
        verify_free(v);
        return;
    }
    if (c) {
        v->head_seq = c->audit_seq;
        (void) snprintf(v->head_hash, sizeof(v->head_hash), "%s", str_or(c->audit_hash));
    }
    (void) snprintf(query.cluster, sizeof(query.cluster), "%s", v->cluster);
    store_list_audit(turn_store(call->api->turn), &query, rows_cb, v);
}

void audit_verify(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__VerifyAuditRequest *q = (const void *) req;
    struct verify *v = calloc(1, sizeof(*v));
    struct adv_err err = { 0 };

    if (!v)
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
    else if (audit_parent(call, q->parent, false, v->cluster, &err) == 0 && take_token(v, q->page_token, &err) == 0 &&
             !api_may_see_all(&call->caller, adv_streq(v->cluster, FLEET_CLUSTER) ? NULL : v->cluster))
        (void) adv_err_set_reason(&err, ADV_PERMISSION_DENIED, "ROLE_TOO_LOW", "%s may not see all events of %s",
                                  call->caller.principal, v->cluster);
    if (!v || err.code != ADV_OK) {
        free(v);
        call->ops->fail(call, &err);
        return;
    }
    v->call = call;
    call->ops->ref(call);
    (void) uv_timer_init(call->api->loop, &v->again);
    v->again.data = v;
    turn_read(call->api->turn, begin, v);
}
