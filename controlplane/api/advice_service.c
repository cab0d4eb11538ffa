/* SPDX-License-Identifier: Apache-2.0 */
/* AdviceService: what should happen to an attempt, and why. */

#include "advisor/v1/advice_service.pb-c.h"

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
    struct job_list jobs;
    char after[64];
    const char *last = NULL;
    uint32_t limit;
    bool all;
    int r;

    if ((r = api_find_parent(api, caller, q->parent, &c, &all, err)) < 0 ||
        (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = api_page_token_parse(q->page_token, "advice", after, sizeof(after), err)) < 0 ||
        (r = list_jobs_sorted(api, caller, c, ar, &jobs, err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListAdviceResponse, advisor__v1__list_advice_response__init);
    m->advice = adv_arena_alloc(ar, limit * sizeof(*m->advice));
    if (!m->advice)
        return -ADV_RESOURCE_EXHAUSTED;
    /* the key of a page is "<job uid>.<attempt>", newest first in both */
    for (size_t i = 0; i < jobs.n; i++)
        for (uint32_t k = jobs.v[i]->n_attempts; k-- > 0;) {
            const struct advice *ad = jobs.v[i]->attempts[k]->advice;
            const char *key;
            if (!ad || (q->only_actions && ad->desired == DESIRED_NO_ACTION))
                continue;
            key = shape_printf(ar, "%s.%010u", jobs.v[i]->uid, jobs.v[i]->attempts[k]->index);
            if (!key)
                return -ADV_RESOURCE_EXHAUSTED;
            if (*after && strcmp(key, after) >= 0)
                continue;
            if (m->n_advice == limit) {
                m->next_page_token = api_page_token(ar, "advice", last);
                return 0;
            }
            if (!(m->advice[m->n_advice] = shape_advice(ar, ad)))
                return -ADV_RESOURCE_EXHAUSTED;
            m->n_advice++;
            last = key;
        }
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
    return "It is for reading only: nothing was touched. Raising the mode lets later advice act; this one stays as it is.";
}

static int explain_advice(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                          struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ExplainAdviceRequest *q = (const void *) req;
    struct advice *ad = NULL;
    const struct anomaly *an;
    const struct action *ac;
    size_t cap;
    int r = find_advice(api, caller, q->name, q->ref, &ad, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__ExplainAdviceResponse, advisor__v1__explain_advice_response__init);
    cap = ad->n_reasons + 2 * ad->attempt->n_anomalies + 4;
    m->text = adv_arena_alloc(ar, cap * sizeof(*m->text));
    m->anomalies = adv_arena_alloc(ar, (ad->attempt->n_anomalies + 1) * sizeof(*m->anomalies));
    m->actions = adv_arena_alloc(ar, (ad->attempt->n_actions + 1) * sizeof(*m->actions));
    if (!m->text || !m->anomalies || !m->actions)
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
    m->text[m->n_text++] = (char *) (uintptr_t) what_was_done(ar, ad);
    return adv_arena_exhausted(ar) ? -ADV_RESOURCE_EXHAUSTED : 0;
}

#define ROW(name, lower, fn)                                                                                  \
    { "/advisor.v1.AdviceService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE_READER, 64 << 10, .read = fn }
const struct api_method advice_service_methods[] = {
    ROW(GetAdvice, get_advice, get_advice),
    ROW(ListAdvice, list_advice, list_advice),
    ROW(ExplainAdvice, explain_advice, explain_advice),
};
const size_t advice_service_n = ADV_ARRAY_LEN(advice_service_methods);
