/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that change a cluster which another replica owns.
 *
 * The replica that was called has checked the caller; it puts the call as it came into the store. The owner carries it out
 * through the same handler, as a call without a wire, and answers there; the first replica tells the caller, once it has
 * seen itself what the answer speaks of. A call without a request id gets one here, so that an owner that dies between the
 * effect and the answer does not let the next owner do it twice.
 *
 * An answer that does not come in time leaves the outcome open: the caller hears UNAVAILABLE and asks again with the same
 * request id. The owner does not begin with a call that nobody can be waiting for any more. */

#include "controlplane/api/handoff.h"

#include <stdio.h>
#include <utlist.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/num.h"

#define ANSWER_WAIT_US   (30 * 1000000LL)
#define CALL_MAX_AGE_US  (20 * 1000000LL) /* below ANSWER_WAIT_US: an older one is refused, not begun */
#define ANSWER_MAX_BYTES (16 << 20)

/* One that waits for the owner's answer. */
struct pending {
    struct api_call *call;
    uint64_t id; /* 0: not in the store yet */
    int64_t since_us;
    bool over;   /* the caller was told something; freed once the store has answered, too */
    struct pending *prev, *next;
};

/* It may be read before the store has told the call's id: then it waits for that. */
struct answer {
    struct api *api;
    uint64_t id;
    int64_t since_us;
    struct answer *prev, *next;
    size_t len;
    uint8_t bytes[];
};

/* One that is carried out here for another replica. */
struct errand {
    struct api_call base;
    struct api *api;
    uint64_t id;
    ProtobufCMessage *req;
    unsigned refs;
    bool ended;
    struct errand *prev, *next;
};

/* ---- texts -------------------------------------------------------------------------------------------------------- */

/* An error, or who called, as lines of "<length>:<text>". */
static void put_piece(struct adv_buf *b, const char *s)
{
    (void) adv_buf_appendf(b, "%zu:%s", strlen(str_or(s)), str_or(s));
}

static bool take_piece(const char **p, const char *end, char *buf, size_t size)
{
    size_t n = 0;

    while (*p < end && **p >= '0' && **p <= '9' && n < size)
        n = n * 10 + (size_t) (*(*p)++ - '0');
    if (*p >= end || **p != ':' || (size_t) (end - *p - 1) < n || n >= size)
        return false;
    memcpy(buf, *p + 1, n);
    buf[n] = '\0';
    *p += 1 + n;
    return true;
}

static void pack_caller(struct adv_buf *b, const struct api_caller *c)
{
    (void) adv_buf_appendf(b, "%d ", (int) c->acting);
    put_piece(b, c->principal);
}

bool handoff_unpack_caller(const void *bytes, size_t len, struct api_caller *ret)
{
    const char *p = bytes, *end = p + len;
    struct api_caller c = { .authenticated = true, .trusted = true };

    if (len < 3 || p[0] < '0' + ROLE_NONE || p[0] > '9' || p[1] != ' ')
        return false;
    c.acting = (enum api_role) (p[0] - '0');
    p += 2;
    if (c.acting > ROLE_AGENT || !take_piece(&p, end, c.principal, sizeof(c.principal)) || p != end)
        return false;
    *ret = c;
    return true;
}

/* 'R' and the reply, or 'E' and the error. */
static void pack_error(struct adv_buf *b, const struct adv_err *err)
{
    char number[32];

    (void) adv_buf_append_byte(b, 'E');
    (void) snprintf(number, sizeof(number), "%d", (int) err->code);
    put_piece(b, number);
    put_piece(b, err->reason);
    put_piece(b, err->field);
    (void) snprintf(number, sizeof(number), "%d", err->retry_after_ms);
    put_piece(b, number);
    put_piece(b, err->msg);
}

/* Reasons are static texts everywhere else; those that came from another replica are kept, a bounded number of them. */
#define REASONS_MAX 256
struct reason {
    char text[64];
    struct reason *next;
};

static const char *keep_reason(struct api *api, const char *text)
{
    struct reason *r;
    size_t n = 0;

    if (!*text)
        return NULL;
    LL_FOREACH (api->reasons, r) {
        if (adv_streq(r->text, text))
            return r->text;
        n++;
    }
    if (n >= REASONS_MAX || !(r = calloc(1, sizeof(*r))))
        return NULL;
    (void) snprintf(r->text, sizeof(r->text), "%s", text);
    LL_PREPEND(api->reasons, r);
    return r->text;
}

bool handoff_unpack_error(struct api *api, const void *bytes, size_t len, struct adv_err *ret)
{
    const char *p = bytes, *end = p + len;
    char code[16], reason[64], field[64], retry[16], msg[256];
    uint64_t c, r;

    if (!take_piece(&p, end, code, sizeof(code)) || !take_piece(&p, end, reason, sizeof(reason)) ||
        !take_piece(&p, end, field, sizeof(field)) || !take_piece(&p, end, retry, sizeof(retry)) ||
        !take_piece(&p, end, msg, sizeof(msg)) || p != end || adv_parse_u64(code, 1, 16, &c, NULL) < 0 ||
        adv_parse_u64(retry, 0, 3600000, &r, NULL) < 0)
        return false;
    (void) adv_err_set_reason(ret, (enum adv_code) c, keep_reason(api, reason), "%s", msg);
    (void) snprintf(ret->field, sizeof(ret->field), "%s", field);
    ret->retry_after_ms = (int) r;
    return true;
}

/* ---- asking ------------------------------------------------------------------------------------------------------- */

static void pending_free(struct api *api, struct pending *p)
{
    DL_DELETE(api->pending, p);
    p->call->ops->unref(p->call);
    free(p);
}

static void pending_over(struct api *api, struct pending *p, const struct adv_err *err)
{
    if (!p->over && err)
        p->call->ops->fail(p->call, err);
    p->over = true;
    if (p->id)
        pending_free(api, p);
}

static void give_answer(struct api *api, struct pending *p, const uint8_t *bytes, size_t len);

static void handed_cb(void *arg, uint64_t id, const struct adv_err *err)
{
    struct pending *p = arg;
    struct api *api = p->call->api;
    struct answer *a, *next;

    p->id = id ? id : UINT64_MAX;
    if (err || p->over) {
        pending_over(api, p, err);
        api_maybe_free(api);
        return;
    }
    DL_FOREACH_SAFE (api->early_answers, a, next)
        if (a->id == id) {
            DL_DELETE(api->early_answers, a);
            give_answer(api, p, a->bytes, a->len);
            free(a);
            return;
        }
}

bool handoff_needed(struct api *api, const char *cluster)
{
    const struct cluster *c = store_shared(turn_store(api->turn)) ? fleet_find_any_cluster(turn_fleet(api->turn), cluster) : NULL;

    return c && !c->owned;
}

void handoff_call(struct api_call *call, const char *cluster, const ProtobufCMessage *req)
{
    struct api *api = call->api;
    size_t n = protobuf_c_message_get_packed_size(req);
    struct pending *p = calloc(1, sizeof(*p));
    adv_auto_free uint8_t *bytes = malloc(n + 1);
    ADV_AUTO_DONE(adv_buf) caller;
    struct adv_err err = { 0 };

    adv_buf_init(&caller, 4096);
    pack_caller(&caller, &call->caller);
    if (!p || !bytes || adv_buf_error(&caller)) {
        free(p);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        call->ops->fail(call, &err);
        return;
    }
    (void) protobuf_c_message_pack(req, bytes);
    p->call = call;
    p->since_us = adv_boot_us();
    call->ops->ref(call);
    DL_APPEND(api->pending, p);
    store_hand_off(turn_store(api->turn),
                   &(struct store_handoff) { .cluster = cluster, .method = call->method->path, .request = bytes,
                                             .request_len = n, .caller = caller.data, .caller_len = caller.len },
                   handed_cb, p);
}


static void give_answer(struct api *api, struct pending *p, const uint8_t *bytes, size_t len)
{
    struct adv_err err = { 0 };
    ProtobufCMessage *m;

    if (len && bytes[0] == 'E' && handoff_unpack_error(api, bytes + 1, len - 1, &err)) {
        pending_over(api, p, &err);
        return;
    }
    m = len && bytes[0] == 'R' ? protobuf_c_message_unpack(p->call->method->response, NULL, len - 1, bytes + 1) : NULL;
    if (!m) {
        (void) adv_err_set_reason(&err, ADV_INTERNAL, "HANDOFF_MALFORMED",
                                  "the replica that owns the cluster gave an answer that cannot be read");
        pending_over(api, p, &err);
        return;
    }
    p->call->ops->reply(p->call, m);
    protobuf_c_message_free_unpacked(m, NULL);
    pending_over(api, p, NULL);
}

static void answer_read(void *arg, const struct adv_err *err)
{
    struct answer *a = arg;
    struct pending *p, *next;
    bool unnamed = false;

    DL_FOREACH_SAFE (a->api->pending, p, next) {
        unnamed |= !p->id && !p->over;
        if (p->id != a->id || p->over)
            continue;
        if (err)
            pending_over(a->api, p, err);
        else
            give_answer(a->api, p, a->bytes, a->len);
        free(a);
        return;
    }
    if (unnamed && !err)
        DL_APPEND(a->api->early_answers, a);
    else
        free(a);
}

static void on_answer(void *arg, const struct store_handoff *h)
{
    struct api *api = arg;
    struct answer *a = malloc(sizeof(*a) + h->request_len);

    if (!a)
        return; /* the caller hears of it when its time is over */
    a->api = api;
    a->id = h->id;
    a->since_us = adv_boot_us();
    a->len = h->request_len;
    if (h->request_len)
        memcpy(a->bytes, h->request, h->request_len);
    turn_read_after(api->turn, h->seq, answer_read, a);
}

void handoff_tick(struct api *api)
{
    int64_t now_us = adv_boot_us();
    struct pending *p, *next;
    struct answer *a, *a_next;
    struct adv_err err = { 0 };

    DL_FOREACH_SAFE (api->early_answers, a, a_next)
        if (now_us - a->since_us > ANSWER_WAIT_US) { /* to a call that was given up */
            DL_DELETE(api->early_answers, a);
            free(a);
        }
    DL_FOREACH_SAFE (api->pending, p, next) {
        if (now_us - p->since_us < ANSWER_WAIT_US || p->over)
            continue;
        (void) adv_err_set_reason(&err, ADV_UNAVAILABLE, "OWNER_SILENT",
                                  "the replica that owns the cluster did not answer: ask again with the same request_id");
        err.retry_after_ms = 1000;
        pending_over(api, p, &err);
    }
}

void handoff_reset(struct api *api, const struct adv_err *why)
{
    struct pending *p, *next;
    struct answer *a, *a_next;

    DL_FOREACH_SAFE (api->pending, p, next)
        pending_over(api, p, why);
    DL_FOREACH_SAFE (api->early_answers, a, a_next) {
        DL_DELETE(api->early_answers, a);
        free(a);
    }
}

/* ---- answering ---------------------------------------------------------------------------------------------------- */

static struct errand *errand_of(const struct api_call *call)
{
    return ADV_CONTAINER_OF(call, struct errand, base);
}

static void errand_unref(struct api_call *call)
{
    struct errand *e = errand_of(call);

    if (--e->refs)
        return;
    DL_DELETE(e->api->errands, e);
    protobuf_c_message_free_unpacked(e->req, NULL);
    api_maybe_free(e->api);
    free(e);
}

static void errand_ref(struct api_call *call)
{
    errand_of(call)->refs++;
}

static void answered_cb(void *arg, const struct adv_err *err)
{
    struct api_call *call = arg;

    (void) err; /* told again by the next poll, and then answered by the request id */
    errand_unref(call);
}

static void send_answer(struct errand *e, const struct adv_buf *b)
{
    if (e->ended)
        return;
    e->ended = true;
    errand_ref(&e->base);
    store_answer(turn_store(e->api->turn),
                 &(struct store_handoff) { .id = e->id, .request = b->data, .request_len = b->len,
                                           .seq = turn_watchlog(e->api->turn)->last },
                 answered_cb, &e->base);
}

static void errand_fail(struct api_call *call, const struct adv_err *err)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, ANSWER_MAX_BYTES);
    pack_error(&b, err);
    if (err->code == ADV_UNAVAILABLE || adv_buf_error(&b))
        errand_of(call)->ended = true; /* not our decision: stays open for whoever owns the cluster next */
    else
        send_answer(errand_of(call), &b);
}

static void errand_reply(struct api_call *call, const ProtobufCMessage *msg)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    adv_auto_free uint8_t *bytes = malloc(n + 1);
    ADV_AUTO_DONE(adv_buf) b;
    struct adv_err err = { 0 };

    adv_buf_init(&b, ANSWER_MAX_BYTES);
    if (bytes)
        (void) protobuf_c_message_pack(msg, bytes);
    if (bytes && adv_buf_append_byte(&b, 'R') == 0 && adv_buf_append(&b, bytes, n) == 0) {
        send_answer(errand_of(call), &b);
        return;
    }
    (void) adv_err_set_reason(&err, ADV_RESOURCE_EXHAUSTED, "REPLY_TOO_LARGE", "the answer is too large");
    errand_fail(call, &err);
}

static bool errand_ended(const struct api_call *call)
{
    return errand_of(call)->ended;
}

static const struct api_call_ops errand_ops = {
    .reply = errand_reply,
    .fail = errand_fail,
    .ended = errand_ended,
    .ref = errand_ref,
    .unref = errand_unref,
};

static const struct api_method *find_method(const char *path)
{
    size_t n;
    const struct api_method *v = api_methods(&n);

    for (size_t i = 0; i < n; i++)
        if (adv_streq(v[i].path, path) && v[i].call && v[i].shape == API_UNARY)
            return &v[i];
    return NULL;
}

static void on_todo(void *arg, const struct store_handoff *h)
{
    struct api *api = arg;
    const struct cluster *c = fleet_find_any_cluster(turn_fleet(api->turn), h->cluster);
    struct errand *e;
    struct adv_err err = { 0 };

    /* Ours by the database, but not in memory (it was just loaded, or a claim is still being followed): it stays open until
     * then. Begun now it would be handed off once more, under an id of its own, and could take effect twice. */
    if (!c || !c->owned)
        return;
    DL_FOREACH (api->errands, e)
        if (e->id == h->id)
            return; /* under way */
    e = calloc(1, sizeof(*e));
    if (!e)
        return;
    e->api = api;
    e->id = h->id;
    e->refs = 1;
    e->base.ops = &errand_ops;
    e->base.api = api;
    DL_APPEND(api->errands, e);
    e->base.method = find_method(h->method);
    if (!e->base.method || !handoff_unpack_caller(h->caller, h->caller_len, &e->base.caller) ||
        !(e->req = protobuf_c_message_unpack(e->base.method->request, NULL, h->request_len, h->request))) {
        (void) adv_err_set_reason(&err, ADV_UNIMPLEMENTED, "HANDOFF_UNKNOWN",
                                  "%.100s: the replica that owns cluster %.64s does not know such a call", h->method, h->cluster);
        errand_fail(&e->base, &err);
    } else if (h->age_us > CALL_MAX_AGE_US) {
        (void) adv_err_set_reason(&err, ADV_DEADLINE_EXCEEDED, "HANDOFF_TOO_OLD", "nobody waits for this call any more");
        errand_fail(&e->base, &err);
    } else {
        (void) snprintf(e->base.handoff_id, sizeof(e->base.handoff_id), "handoff-%llu", (unsigned long long) h->id);
        e->base.method->call(&e->base, e->req);
    }
    errand_unref(&e->base);
}

static const struct turn_handoffs handoffs = { on_todo, on_answer };

void handoff_start(struct api *api)
{
    turn_set_handoffs(api->turn, &handoffs, api);
}

void handoff_free(struct api *api)
{
    struct reason *r, *next;

    LL_FOREACH_SAFE (api->reasons, r, next)
        free(r);
}
