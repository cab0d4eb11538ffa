/* SPDX-License-Identifier: Apache-2.0 */
/* The question, the answer, and the pause between two that fail. Counts and lengths are bounded here, since the door
 * (rpc/door.h) bounds bytes and memory alone; UTF-8 it has checked. */

#include "controlplane/isolator/isolator.h"

#include <stdarg.h>
#include <stdio.h>
#include <utlist.h>

#include "common/utf8.h"
#include "controlplane/shapes/shapes.h"

#define CLASS_MAX 31

Advisor__V1__AttributeRequest *isolator_question(struct adv_arena *ar, const struct attempt *a, enum attribution_phase phase,
                                                 uint32_t budget_ms)
{
    Advisor__V1__AttributeRequest *q = adv_arena_alloc(ar, sizeof(*q));
    const struct job *j = a->job;
    const struct anomaly *an;
    const struct evidence *e;

    if (!q)
        return NULL;
    advisor__v1__attribute_request__init(q);
    q->phase = (Advisor__V1__AttributionPhase) phase;
    q->budget_ms = budget_ms;
    q->correlation_id = shape_printf(ar, "%s/%u", j->uid, a->index);
    q->job = shape_job(ar, j);
    q->attempt = shape_attempt(ar, a);
    q->anomalies = adv_arena_alloc(ar, (a->n_anomalies + 1) * sizeof(*q->anomalies));
    q->evidence = adv_arena_alloc(ar, (a->n_evidence + 1) * sizeof(*q->evidence));
    q->earlier_attempts = adv_arena_alloc(ar, ISOLATOR_EARLIER_MAX * sizeof(*q->earlier_attempts));
    if (!q->anomalies || !q->evidence || !q->earlier_attempts)
        return NULL;
    DL_FOREACH (a->anomalies, an)
        if (an->status != ANOMALY_WITHDRAWN)
            q->anomalies[q->n_anomalies++] = shape_anomaly(ar, an);
    DL_FOREACH (a->evidence, e)
        q->evidence[q->n_evidence++] = shape_evidence(ar, e);
    for (uint32_t i = a->index; i-- > j->first_index && q->n_earlier_attempts < ISOLATOR_EARLIER_MAX;) {
        const struct attempt *t = job_attempt(j, i);
        if (t && !t->unseen)
            q->earlier_attempts[q->n_earlier_attempts++] = shape_attempt(ar, t);
    }
    return adv_arena_exhausted(ar) ? NULL : q;
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

static void note(struct isolator_answer *ret, const char *fmt, ...) ADV_PRINTF(2, 3);
static void note(struct isolator_answer *ret, const char *fmt, ...)
{
    size_t len = strlen(ret->note);
    va_list ap;

    if (len && len + 2 < sizeof(ret->note))
        len += (size_t) snprintf(ret->note + len, sizeof(ret->note) - len, "; ");
    va_start(ap, fmt);
    (void) vsnprintf(ret->note + len, sizeof(ret->note) - len, fmt, ap);
    va_end(ap);
}

static bool is_word(const char *s)
{
    return *s && strlen(s) <= CLASS_MAX && strspn(s, "abcdefghijklmnopqrstuvwxyz_") == strlen(s);
}

void isolator_read(const Advisor__V1__AttributeResponse *m, void (*excerpt)(void *ctx, char *text), void *ctx,
                   struct isolator_answer *ret)
{
    size_t more = m->n_attributions > ISOLATOR_ATTRIBUTIONS_MAX ? m->n_attributions - ISOLATOR_ATTRIBUTIONS_MAX : 0;

    *ret = (struct isolator_answer) { .n = 0 };
    for (size_t i = 0; i < m->n_attributions - more; i++) {
        const Advisor__V1__Attribution *x = m->attributions[i];
        if (!is_word(x->fault_class)) {
            note(ret, "attribution %zu has no class that is a word", i + 1);
        } else if (x->confidence_percent > 100) {
            note(ret, "attribution %zu has a confidence of %u %%", i + 1, x->confidence_percent);
        } else if (x->n_nodes > ISOLATOR_NODES_MAX) {
            note(ret, "attribution %zu names %zu nodes, more than %d", i + 1, x->n_nodes, ISOLATOR_NODES_MAX);
        } else {
            if (excerpt) {
                excerpt(ctx, x->summary);
                excerpt(ctx, x->provider);
            }
            ret->v[ret->n++] = (struct attribution) { .fault_class = x->fault_class,
                                                      .nodes = (const char *const *) x->nodes,
                                                      .n_nodes = x->n_nodes,
                                                      .confidence_percent = x->confidence_percent,
                                                      .summary = x->summary,
                                                      .provider = x->provider };
        }
    }
    if (more)
        note(ret, "%zu more were left out", more);
}

/* ---- when to leave it alone --------------------------------------------------------------------------------------- */

bool isolator_may_ask(struct isolator_breaker *b, int64_t mono_us)
{
    if (b->fails < ISOLATOR_FAILS)
        return true;
    if (mono_us < b->closed_until_us || b->trying)
        return false;
    return b->trying = true;
}

void isolator_answered(struct isolator_breaker *b)
{
    *b = (struct isolator_breaker) { 0 };
}

void isolator_called_off(struct isolator_breaker *b)
{
    b->trying = false;
}

int64_t isolator_failed(struct isolator_breaker *b, int64_t mono_us, uint32_t lot)
{
    int64_t pause_us = ISOLATOR_PAUSE_MIN_US;

    b->trying = false;
    if (++b->fails < ISOLATOR_FAILS)
        return 0;
    if (mono_us < b->closed_until_us) { /* a call of before: told already */
        b->fails--;
        return b->closed_until_us - mono_us;
    }
    for (unsigned i = ISOLATOR_FAILS; i < b->fails && pause_us < ISOLATOR_PAUSE_MAX_US; i++)
        pause_us *= 2;
    if (pause_us > ISOLATOR_PAUSE_MAX_US)
        pause_us = ISOLATOR_PAUSE_MAX_US;
    pause_us = pause_us / 2 + (int64_t) ((double) (pause_us / 2) * lot / UINT32_MAX);
    b->closed_until_us = mono_us + pause_us;
    return pause_us;
}
