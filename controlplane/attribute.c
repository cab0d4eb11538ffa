/* SPDX-License-Identifier: Apache-2.0 */
/* A *question* is one call in one phase. It is found by the change log once the decision to ask is on disk, and stays in a
 * table until what came of it is stored; if that cannot be stored it stays as a mark, until its budget is long over, so that
 * nothing is asked twice. The table is what bounds memory: a question that finds no room is told as not asked.
 *
 * Nothing here points into the fleet. The question is packed while memory equals the store. */

#include "controlplane/attribute.h"

#include <stdio.h>
#include <sys/random.h>

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/isolator/isolator.h"
#include "controlplane/rpc/client.h"

#define PATH          "/advisor.v1.AttributionService/Attribute"
#define QUESTION_MAX  (32 << 20) /* bytes of one question, while it is packed */
#define QUESTIONS_MAX 4096       /* in the table */
#define LEAST_MS      50         /* less is no time to answer in */
#define MARK_US       (600 * 1000000LL)

struct question {
    char key[RESOURCE_KEY_MAX + 80]; /* "<phase> <cluster> <attempt's key>" */
    char cluster[65], name[RESOURCE_NAME_MAX];
    struct attribute *t;
    enum attribution_phase phase;
    int64_t asked_mono_us;
    bool calling, telling;
    /* what is told */
    struct turn_event te;
    struct adv_arena arena; /* of the answer's copy */
    struct isolator_answer answer;
    UT_hash_handle hh;
};

struct attribute {
    uv_loop_t *loop;
    struct turn *turn;
    struct api *api;
    struct attribute_config cfg; /* numbers only */
    struct rpc_client *client;
    struct turn_observer observer;
    struct isolator_breaker breaker;
    struct question *questions;
    size_t n_calls, n_slow, n_telling;
    uint64_t seen_seq;
    bool look_asked, told_away, stopped, client_stopped, freed;
};

/* ---- life of the whole -------------------------------------------------------------------------------------------- */

static void maybe_free(struct attribute *t)
{
    struct question *q, *next;

    if (!t->freed || !t->client_stopped || t->n_telling)
        return;
    HASH_ITER(hh, t->questions, q, next) {
        HASH_DEL(t->questions, q);
        adv_arena_done(&q->arena);
        free(q);
    }
    (void) rpc_client_free(t->client);
    free(t);
}

static void on_client_stopped(void *arg)
{
    struct attribute *t = arg;

    t->client_stopped = true;
    maybe_free(t);
}

/* ---- telling ------------------------------------------------------------------------------------------------------ */

static void question_free(struct question *q)
{
    HASH_DEL(q->t->questions, q);
    adv_arena_done(&q->arena);
    free(q);
}

static void told_done(struct turn_event *te, const struct adv_err *err)
{
    struct question *q = ADV_CONTAINER_OF(te, struct question, te);
    struct attribute *t = q->t;

    q->telling = false;
    t->n_telling--;
    if (!err || err->code == ADV_NOT_FOUND)
        question_free(q); /* stored, or there is no such attempt any more */
    else
        adv_arena_done(&q->arena); /* a mark: it was asked */
    maybe_free(t);
}

static void tell(struct question *q, bool answered)
{
    struct event *ev = &q->te.ev;

    *ev = (struct event) { .type = EV_ATTRIBUTION, .principal = "attribution", .cluster = q->cluster };
    ev->u.attribution.attempt_name = q->name;
    ev->u.attribution.phase = q->phase;
    ev->u.attribution.v = q->answer.v;
    ev->u.attribution.n = q->answer.n;
    ev->u.attribution.note = q->answer.note;
    ev->u.attribution.answered = answered;
    q->te.done = told_done;
    q->telling = true;
    q->t->n_telling++;
    turn_submit(q->t->turn, &q->te);
}

static void tell_none(struct question *q, const char *why)
{
    q->answer = (struct isolator_answer) { .n = 0 };
    (void) snprintf(q->answer.note, sizeof(q->answer.note), "%s", why);
    tell(q, false);
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

static void excerpt(void *ctx, char *text)
{
    struct attribute *t = ctx;

    watcher_rules_excerpt(t->api->rules, text);
}

/* The answer's texts, which go with the message, into the question's own arena. */
static bool keep_texts(struct question *q)
{
    adv_arena_init(&q->arena, 2 * ISOLATOR_ANSWER_MAX + (64 << 10));
    for (size_t i = 0; i < q->answer.n; i++) {
        struct attribution *v = &q->answer.v[i];
        const char **nodes = adv_arena_alloc(&q->arena, (v->n_nodes + 1) * sizeof(*nodes));
        for (size_t k = 0; nodes && k < v->n_nodes; k++)
            if (!(nodes[k] = adv_arena_strdup(&q->arena, v->nodes[k])))
                break;
        v->nodes = nodes;
        v->fault_class = adv_arena_strdup(&q->arena, v->fault_class);
        v->summary = adv_arena_strdup(&q->arena, v->summary);
        v->provider = adv_arena_strdup(&q->arena, v->provider);
    }
    return !adv_arena_exhausted(&q->arena);
}

static void provider_failed(struct attribute *t, const struct adv_err *err)
{
    uint32_t lot = 0;
    int64_t pause_us;

    (void) getrandom(&lot, sizeof(lot), GRND_NONBLOCK);
    pause_us = isolator_failed(&t->breaker, adv_mono_us(), lot);
    if (pause_us > 0 && !t->told_away) {
        t->told_away = true;
        adv_warn("isolator",
                 "the provider of attributions does not answer: decisions go on without, it is left alone for a while",
                 ADV_FS("why", err->msg), ADV_FI("for_ms", pause_us / 1000));
    }
}

static void on_answer(void *arg, const ProtobufCMessage *answer, const struct adv_err *err)
{
    struct question *q = arg;
    struct attribute *t = q->t;
    char why[256];

    q->calling = false;
    t->n_calls--;
    t->n_slow -= q->phase == ATTRIBUTION_SLOW;
    if (t->stopped) {
        isolator_called_off(&t->breaker);
        return; /* the table goes with the rest; what was asked is not asked again */
    }
    if (answer) {
        isolator_answered(&t->breaker);
        if (t->told_away)
            adv_info("isolator", "the provider of attributions answers again");
        t->told_away = false;
        isolator_read((const Advisor__V1__AttributeResponse *) answer, excerpt, t, &q->answer);
        if (keep_texts(q))
            tell(q, true);
        else
            tell_none(q, "no memory for the answer");
        return;
    }
    provider_failed(t, err);
    (void) snprintf(why, sizeof(why), "%s%s%.120s", err->code == ADV_DEADLINE_EXCEEDED ? "no answer in time" :
                                                                                          adv_code_name(err->code),
                    *err->msg && err->code != ADV_DEADLINE_EXCEEDED ? ": " : "",
                    err->code == ADV_DEADLINE_EXCEEDED ? "" : err->msg);
    tell_none(q, why);
}

/* ---- asking ------------------------------------------------------------------------------------------------------- */

static const char *call(struct question *q, const struct attempt *a, int64_t left_ms)
{
    struct attribute *t = q->t;
    ADV_AUTO_DONE(adv_arena) ar;
    Advisor__V1__AttributeRequest *m;
    struct adv_err err = { 0 };

    adv_arena_init(&ar, QUESTION_MAX);
    m = isolator_question(&ar, a, q->phase, (uint32_t) left_ms);
    if (!m || rpc_client_call(t->client, PATH, &m->base, &advisor__v1__attribute_response__descriptor, (int) left_ms,
                              on_answer, q, &err) < 0) {
        isolator_called_off(&t->breaker);
        return "the question could not be put";
    }
    q->calling = true;
    t->n_calls++;
    t->n_slow += q->phase == ATTRIBUTION_SLOW;
    return NULL;
}

static void ask(struct attribute *t, const struct attempt *a, enum attribution_phase phase, const char *attempt_key)
{
    bool slow = phase == ATTRIBUTION_SLOW;
    int64_t now_us = adv_mono_us(), past_ms = (adv_boot_us() - a->attribution_mono_us) / 1000;
    int64_t left_ms = (slow ? t->cfg.slow_budget_ms : t->cfg.fast_budget_ms) - past_ms;
    const char *why = NULL;
    struct question *q;
    char key[sizeof(q->key)];

    (void) snprintf(key, sizeof(key), "%d %s %s", (int) phase, a->job->cluster->name, attempt_key);
    HASH_FIND_STR(t->questions, key, q);
    if (q || HASH_COUNT(t->questions) >= QUESTIONS_MAX || !(q = calloc(1, sizeof(*q))))
        return; /* asked; or the decision goes on when its time is over */
    memcpy(q->key, key, sizeof(key));
    q->t = t;
    q->phase = phase;
    q->asked_mono_us = now_us;
    (void) snprintf(q->cluster, sizeof(q->cluster), "%s", a->job->cluster->name);
    (void) attempt_resource_name(a, q->name);
    HASH_ADD_STR(t->questions, key, q);
    if (left_ms < LEAST_MS)
        why = "no time was left to ask it in";
    else if (t->n_calls >= t->cfg.max_calls || (slow && t->n_slow >= (t->cfg.max_calls + 1) / 2))
        why = "too many questions at one time";
    else if (!isolator_may_ask(&t->breaker, now_us))
        why = "the provider does not answer and is left alone for a while";
    else
        why = call(q, a, left_ms);
    if (why)
        tell_none(q, why);
}

static void look_at(struct attribute *t, const struct cluster *c, const struct attempt *a)
{
    char key[RESOURCE_KEY_MAX];

    /* attribution_mono_us: decided here, in this life */
    if (!c->owned || !a->attribution_mono_us)
        return;
    (void) resource_key(RESOURCE_ATTEMPT, a, key);
    if (a->attribution_fast == ATTRIBUTION_ASKED)
        ask(t, a, ATTRIBUTION_FAST, key);
    if (a->attribution_slow == ATTRIBUTION_ASKED)
        ask(t, a, ATTRIBUTION_SLOW, key);
}

static void forget_marks(struct attribute *t)
{
    int64_t now_us = adv_mono_us();
    struct question *q, *next;

    HASH_ITER(hh, t->questions, q, next)
        if (!q->calling && !q->telling && now_us - q->asked_mono_us > t->cfg.slow_budget_ms * 1000 + MARK_US)
            question_free(q);
}

static void look(void *arg, const struct adv_err *err)
{
    struct attribute *t = arg;
    const struct watchlog *log;
    const struct change *ch;
    uint64_t seq = t->seen_seq;
    bool gone = false;

    t->look_asked = false;
    if (err || t->stopped)
        return;
    log = turn_watchlog(t->turn);
    t->seen_seq = log->last;
    for (; (ch = watchlog_after(log, seq, &gone)); seq = ch->seq) {
        const struct cluster *c;
        const struct job *j;
        const struct attempt *a;
        const char *rest;
        char uid[64];
        uint32_t index;

        if (ch->kind != RESOURCE_ATTEMPT || !resource_key_parse(ch->key, uid, &index, &rest))
            continue;
        c = fleet_find_cluster(turn_fleet(t->turn), ch->cluster);
        j = c ? fleet_find_job_uid(c, uid) : NULL;
        a = j ? job_attempt(j, index) : NULL;
        if (a)
            look_at(t, c, a);
    }
    if (HASH_COUNT(t->questions) > QUESTIONS_MAX / 2)
        forget_marks(t);
    if (!gone)
        return;
    for (const struct cluster *c = turn_fleet(t->turn)->clusters; c; c = c->hh.next) /* those that still wait */
        for (const struct attempt *a = c->judged; a; a = a->judge_next)
            look_at(t, c, a);
}

static void on_changed(struct turn_observer *o)
{
    struct attribute *t = ADV_CONTAINER_OF(o, struct attribute, observer);

    if (t->look_asked || t->stopped || turn_watchlog(t->turn)->last == t->seen_seq)
        return;
    t->look_asked = true;
    turn_read(t->turn, look, t);
}

/* What was decided is loaded as decided by somebody before: it is not asked any more. */
static void on_reset(struct turn_observer *o)
{
    (void) o;
}

/* ---- life --------------------------------------------------------------------------------------------------------- */

int attribute_new(uv_loop_t *loop, struct turn *turn, struct api *api, const struct attribute_config *cfg,
                  struct attribute **ret, struct adv_err *err)
{
    const struct rpc_client_config rc = { .target = cfg->target, .ca_file = cfg->ca_file, .cert_file = cfg->cert_file,
                                          .key_file = cfg->key_file, .max_response_bytes = ISOLATOR_ANSWER_MAX };
    struct attribute *t;
    int r;

    *ret = NULL;
    if (!*cfg->target)
        return 0;
    t = calloc(1, sizeof(*t));
    if (!t)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if ((r = rpc_client_new(loop, &rc, &t->client, err)) < 0) {
        free(t);
        return r;
    }
    t->loop = loop;
    t->turn = turn;
    t->api = api;
    t->cfg = *cfg;
    t->cfg.target = t->cfg.ca_file = t->cfg.cert_file = t->cfg.key_file = NULL;
    t->seen_seq = turn_watchlog(turn)->last;
    t->observer = (struct turn_observer) { .changed = on_changed, .reset = on_reset };
    turn_observe(turn, &t->observer);
    *ret = t;
    return 0;
}

void attribute_stop(struct attribute *t)
{
    if (!t || t->stopped)
        return;
    t->stopped = true;
    turn_unobserve(t->turn, &t->observer);
    rpc_client_stop(t->client, on_client_stopped, t);
}

void attribute_free(struct attribute *t)
{
    if (!t)
        return;
    t->freed = true;
    maybe_free(t);
}
