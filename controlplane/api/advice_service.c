/* SPDX-License-Identifier: Apache-2.0 */
/* AdviceService: what should happen to an attempt, and why. */

#include "advisor/v1/advice_service.pb-c.h"

#include <stdio.h>
#include <utlist.h>

#include "controlplane/api/find.h"
#include "controlplane/shapes/shapes.h"

static int find_advice(struct api *api, const struct api_caller *caller, const char *name, const Advisor__V1__AttemptRef *ref,
                       struct advice **ret, struct adv_err *err)
{
    struct attempt *a = NULL;
    int r = find_attempt(api, caller, name, ref, &a, err);

    if (r < 0)
        return r;
    if (!a->advice)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "ADVICE_NOT_FOUND", "attempt %u of job %s was not judged%s", a->index,
                                  a->job->job_id, job_state_terminal(a->state) ? "" : ": it has not ended");
    *ret = a->advice;
    return 0;
}

static int get_advice(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                      struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetAdviceRequest *q = (const void *) req;
    struct advice *ad = NULL;
    int r = find_advice(api, caller, q->name, q->ref, &ad, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__GetAdviceResponse, advisor__v1__get_advice_response__init);
    m->advice = shape_advice(ar, ad);
    return 0;
}

static int list_advice(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                       struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListAdviceRequest *q = (const void *) req;
    struct cluster *c;
    struct job_walk walk;
    char after[64];
    const char *last = NULL;
    uint32_t limit;
    struct job *j;
    bool all;
    int r;

    if ((r = api_find_parent(api, caller, q->parent, &c, &all, err)) < 0 ||
        (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "advice", after, sizeof(after), err)) < 0 ||
        (r = job_walk_begin(api, caller, c, after, ar, &walk, err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListAdviceResponse, advisor__v1__list_advice_response__init);
    m->advice = adv_arena_alloc(ar, limit * sizeof(*m->advice));
    if (!m->advice)
        return -ADV_RESOURCE_EXHAUSTED;
    /* the key of a page is "<job uid>.<attempt>", newest first in both */
    while ((j = job_walk_next(&walk)))
        for (uint32_t k = j->n_attempts; k-- > 0;) {
            const struct advice *ad = j->attempts[k]->advice;
            char key[80];
            if (!ad || (q->only_actions && ad->desired == DESIRED_NO_ACTION) ||
                (q->only_awaiting_approval && !advice_awaits_approval(ad)))
                continue;
            (void) snprintf(key, sizeof(key), "%s.%010u", j->uid, j->attempts[k]->index);
            if (*after && strcmp(key, after) >= 0)
                continue;
            if (m->n_advice == limit) {
                m->next_page_token = token_page(ar, "advice", last);
                return 0;
            }
            if (!(m->advice[m->n_advice] = shape_advice(ar, ad)) || !(last = adv_arena_strdup(ar, key)))
                return -ADV_RESOURCE_EXHAUSTED;
            m->n_advice++;
        }
    if (walk.n) /* all of that job was looked at */
        m->next_page_token = token_page(ar, "advice", shape_printf(ar, "%s.%010u", walk.last, 0));
    return 0;
}

static const char *what_was_done(struct adv_arena *ar, const struct advice *ad)
{
    if (ad->desired == DESIRED_NO_ACTION)
        return "Nothing was done at the scheduler, and nothing will be.";
    switch (ad->disposition) {
    case DISPOSITION_CONVERGED:
        return "A fresh look at the scheduler showed the wanted state.";
    case DISPOSITION_ABANDONED:
    case DISPOSITION_SUPERSEDED:
        return shape_printf(ar, "It was given up (%s%s%s).", disposition_reason_name(ad->disposition_reason),
                            ad->status_detail ? ": " : "", str_or(ad->status_detail));
    case DISPOSITION_PENDING:
    case DISPOSITION_UNSET:
        break;
    }
    if (ad->actionability == ACTION_ACTIONABLE)
        return "The cluster's agent is at work on it.";
    if (ad->actionability == ACTION_NEEDS_APPROVAL)
        return shape_printf(ar, "It waits for a person's approval of generation %llu.", (unsigned long long) ad->generation);
    return "It is for reading only: nothing was touched. Raising the mode lets later advice act; this one stays as it is.";
}

static int explain_advice(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                          struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ExplainAdviceRequest *q = (const void *) req;
    struct advice *ad = NULL;
    const struct anomaly *an;
    const struct action *ac;
    const struct evidence *e;
    size_t cap;
    int r = find_advice(api, caller, q->name, q->ref, &ad, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__ExplainAdviceResponse, advisor__v1__explain_advice_response__init);
    cap = ad->n_reasons + 2 * ad->attempt->n_anomalies + 6;
    m->text = adv_arena_alloc(ar, cap * sizeof(*m->text));
    m->anomalies = adv_arena_alloc(ar, (ad->attempt->n_anomalies + 1) * sizeof(*m->anomalies));
    m->actions = adv_arena_alloc(ar, (ad->attempt->n_actions + 1) * sizeof(*m->actions));
    m->evidence = adv_arena_alloc(ar, (ad->attempt->n_evidence + 1) * sizeof(*m->evidence));
    if (!m->text || !m->anomalies || !m->actions || !m->evidence)
        return -ADV_RESOURCE_EXHAUSTED;
    m->advice = shape_advice(ar, ad);
    m->text[m->n_text++] = (char *) (uintptr_t) str_or(ad->summary);
    for (uint32_t i = 0; i < ad->n_reasons; i++)
        m->text[m->n_text++] = (char *) (uintptr_t) str_or(ad->reasons[i].sentence);
    DL_FOREACH (ad->attempt->anomalies, an) {
        m->anomalies[m->n_anomalies++] = shape_anomaly(ar, an);
        if (an->status == ANOMALY_WITHDRAWN)
            m->text[m->n_text++] = shape_printf(ar, "The suspicion from rule %s was withdrawn: %s.", str_or(an->rule),
                                                str_or(an->status_reason));
    }
    DL_FOREACH (ad->attempt->actions, ac)
        m->actions[m->n_actions++] = shape_action(ar, ac);
    DL_FOREACH (ad->attempt->evidence, e)
        m->evidence[m->n_evidence++] = shape_evidence(ar, e);
    if (ad->approval != APPROVAL_NONE)
        m->text[m->n_text++] = shape_printf(ar, "%s %s generation %llu%s%s.", str_or(ad->approval_by),
                                            ad->approval == APPROVAL_APPROVED ? "approved" : "rejected",
                                            (unsigned long long) ad->approval_generation, ad->approval_reason ? ": " : "",
                                            str_or(ad->approval_reason));
    m->text[m->n_text++] = (char *) (uintptr_t) what_was_done(ar, ad);
    if (ad->verdict != VERDICT_NONE)
        m->text[m->n_text++] = shape_printf(ar, "%s found generation %llu %s%s%s.", str_or(ad->verdict_by),
                                            (unsigned long long) ad->verdict_generation,
                                            ad->verdict == VERDICT_RIGHT ? "right" : "wrong", ad->verdict_why ? ": " : "",
                                            str_or(ad->verdict_why));
    return adv_arena_exhausted(ar) ? -ADV_RESOURCE_EXHAUSTED : 0;
}

/* ---- what people say -------------------------------------------------------------------------------------------- */

static int built_advice(struct api *api, const char *name, struct adv_arena *ar, Advisor__V1__Advice **ret,
                        struct adv_err *err)
{
    struct resource_path p;
    struct cluster *c;
    struct job *j;
    struct attempt *a;
    int r = resource_path_parse(name, &p, err);

    if (r < 0)
        return r;
    c = fleet_find_cluster(turn_fleet(api->turn), p.cluster);
    j = c ? fleet_find_job_uid(c, p.job_uid) : NULL;
    a = j ? job_attempt(j, p.attempt_index) : NULL;
    if (!a || !a->advice)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "ADVICE_NOT_FOUND", "%.200s: no advice any more", name);
    *ret = shape_advice(ar, a->advice);
    return *ret ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

static int approve_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                         struct adv_err *err)
{
    REPLY(m, Advisor__V1__ApproveAdviceResponse, advisor__v1__approve_advice_response__init);
    return built_advice(api, ev->u.approval.attempt_name, ar, &m->advice, err);
}

static int reject_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                        struct adv_err *err)
{
    REPLY(m, Advisor__V1__RejectAdviceResponse, advisor__v1__reject_advice_response__init);
    return built_advice(api, ev->u.approval.attempt_name, ar, &m->advice, err);
}

static int verdict_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                         struct adv_err *err)
{
    REPLY(m, Advisor__V1__RecordVerdictResponse, advisor__v1__record_verdict_response__init);
    return built_advice(api, ev->u.verdict.attempt_name, ar, &m->advice, err);
}

static void fill_approval(struct event *ev, const struct attempt *a, const char *name)
{
    (void) a;
    ev->u.approval.attempt_name = name;
}

static void fill_verdict(struct event *ev, const struct attempt *a, const char *name)
{
    (void) a;
    ev->u.verdict.attempt_name = name;
}

static void approve_advice(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__ApproveAdviceRequest *q = (const void *) req;
    struct event ev = { .type = EV_APPROVAL,
                        .u.approval = { .generation = q->generation, .decision = APPROVAL_APPROVED, .reason = q->reason } };
    struct adv_err err = { 0 };

    if (api_text("reason", q->reason, 0, API_REASON_MAX, &err) < 0)
        call->ops->fail(call, &err);
    else
        api_write_attempt(call, req, q->request_id, q->name, q->ref, &ev, fill_approval, approve_built);
}

static void reject_advice(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__RejectAdviceRequest *q = (const void *) req;
    struct event ev = { .type = EV_APPROVAL,
                        .u.approval = { .generation = q->generation, .decision = APPROVAL_REJECTED, .reason = q->reason } };
    struct adv_err err = { 0 };

    if (api_text("reason", q->reason, 0, API_REASON_MAX, &err) < 0)
        call->ops->fail(call, &err);
    else
        api_write_attempt(call, req, q->request_id, q->name, q->ref, &ev, fill_approval, reject_built);
}

static void record_verdict(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__RecordVerdictRequest *q = (const void *) req;
    struct event ev = { .type = EV_VERDICT,
                        .u.verdict = { .generation = q->generation, .value = (enum verdict) q->verdict, .why = q->why } };
    struct adv_err err = { 0 };

    if (api_text("why", q->why, 0, API_REASON_MAX, &err) < 0)
        call->ops->fail(call, &err);
    else
        api_write_attempt(call, req, q->request_id, q->name, q->ref, &ev, fill_verdict, verdict_built);
}

#define WRITE(name, lower, fn)                                                                                \
    { "/advisor.v1.AdviceService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE_USER, 64 << 10, .call = fn }
#define ROW(name, lower, fn)                                                                                  \
    { "/advisor.v1.AdviceService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE_READER, 64 << 10, .read = fn }
const struct api_method advice_service_methods[] = {
    ROW(GetAdvice, get_advice, get_advice),
    ROW(ListAdvice, list_advice, list_advice),
    ROW(ExplainAdvice, explain_advice, explain_advice),
    WRITE(ApproveAdvice, approve_advice, approve_advice),
    WRITE(RejectAdvice, reject_advice, reject_advice),
    WRITE(RecordVerdict, record_verdict, record_verdict),
};
const size_t advice_service_n = ADV_ARRAY_LEN(advice_service_methods);
