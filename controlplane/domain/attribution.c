/* SPDX-License-Identifier: Apache-2.0 */
/* Asking a provider of attributions, and what becomes of its answer.
 *
 * To ask is decided here and stored with the attempt (attribution_us, and a state for each phase); who carries it out sees
 * that once it is on disk, and tells what came of it as EV_ATTRIBUTION. So there is at most one question in each phase,
 * whatever is started again in between: what was not carried out by then is not, and the decision goes on without.
 *
 * Asked about is an attempt that has failed and of which neither a rule nor its state says that it is somebody's own fault
 * or wish, and whose log names no node: there is nothing else that an answer could change. An answer is evidence
 * (nodefault.h): it may name nodes that a restart, which is due anyway, leaves out. It never makes a restart of anything. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"
#include "controlplane/domain/nodefault.h"

#include <stdio.h>
#include <utlist.h>

#include "common/utf8.h"

#define SUMMARY_MAX 300
#define PROVIDER_MAX 64
#define CLASS_SHOWN 32

static bool answer_could_matter(const struct attempt *a)
{
    const struct anomaly *best = decide_best_anomaly(a);

    return nodefault_may_explain(a) && !a->finished_us && a->nodes &&
           !(best && (best->nodes || best->retryable == RETRYABLE_NO || anomaly_on_purpose(best)));
}

void fleet_ask(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    const struct policy *p = &f->cfg.policy;

    if (a->attribution_us || attempt_judged(a) || (!p->attribution_fast_us && !p->attribution_slow_us) || !answer_could_matter(a))
        return;
    a->attribution_us = ev->now_us;
    a->attribution_mono_us = ev->mono_us;
    a->attribution_fast = p->attribution_fast_us ? ATTRIBUTION_ASKED : ATTRIBUTION_NOT_ASKED;
    a->attribution_slow = p->attribution_slow_us ? ATTRIBUTION_ASKED : ATTRIBUTION_NOT_ASKED;
    fleet_touch_attempt(in, a);
}

int64_t fleet_ask_left_us(const struct fleet *f, const struct attempt *a, const struct event *ev)
{
    int64_t left_us = a->attribution_mono_us + f->cfg.policy.attribution_fast_us - ev->mono_us;

    return a->attribution_fast == ATTRIBUTION_ASKED && a->attribution_mono_us && left_us > 0 ? left_us : 0;
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

/* One line of text, bounded. */
static void set_text(struct intents *in, char **dst, const char *text, size_t max)
{
    size_t len = adv_utf8_cut(text, strlen(text), max);
    adv_auto_free char *s = strndup(text, len);

    if (!s) {
        in->oom = true;
        return;
    }
    for (char *c = s; *c; c++)
        *c = (unsigned char) *c < 0x20 || *c == 0x7f ? ' ' : *c;
    (void) str_set(in, dst, s);
}

static size_t count(struct intents *in, const char *list)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(ATTEMPT_MAX_NODES);

    if (!hl || nodes_add(hl, str_or(list)) < 0) {
        in->oom = true;
        return 0;
    }
    return adv_hostlist_count(hl);
}

static void add_note(struct adv_buf *note, const char *fmt, ...) ADV_PRINTF(2, 3);
static void add_note(struct adv_buf *note, const char *fmt, ...)
{
    va_list ap;

    if (note->len)
        (void) adv_buf_appendf(note, "; ");
    va_start(ap, fmt);
    (void) adv_buf_vappendf(note, fmt, ap);
    va_end(ap);
}

/* True: it was kept. */
static bool keep(struct fleet *f, struct intents *in, struct attempt *a, const struct attribution *v, const struct event *ev,
                 struct adv_buf *note)
{
    adv_auto_free char *named = NULL, *nodes = NULL;
    struct evidence *e;
    char uid[32];
    size_t said, own;

    if (!fault_class_known(v->fault_class)) {
        add_note(note, "\"%.*s\" is no class of faults", (int) adv_utf8_cut(v->fault_class, strlen(v->fault_class), CLASS_SHOWN),
                 v->fault_class);
        return false;
    }
    if (a->n_evidence + 1 >= ATTEMPT_MAX_EVIDENCE) { /* a list that is full blames nobody */
        add_note(note, "there is no room for more evidence");
        return false;
    }
    named = fleet_named_nodes(in, v->nodes, v->n_nodes);
    nodes = named ? fleet_own_nodes(in, a, named) : NULL;
    said = named ? count(in, named) : 0;
    own = nodes ? count(in, nodes) : 0;
    if (said > own || v->n_nodes > said)
        add_note(note, "%zu of the %zu nodes that it names are none of the attempt's",
                 v->n_nodes > said ? v->n_nodes - own : said - own, v->n_nodes);
    if (v->confidence_percent < f->cfg.policy.attribution_min_percent)
        add_note(note, "its confidence is %u %%, below %u %%", v->confidence_percent, f->cfg.policy.attribution_min_percent);
    else if (!nodefault_class(v->fault_class))
        add_note(note, "%s is no fault of a node", v->fault_class);
    if (!(e = calloc(1, sizeof(*e)))) {
        in->oom = true;
        return false;
    }
    e->attempt = a;
    fleet_mint_uid(f, ev->now_us, uid);
    (void) str_set(in, &e->uid, uid);
    set_text(in, &e->source, *str_or(v->provider) ? v->provider : "provider", PROVIDER_MAX);
    (void) str_set(in, &e->kind, "attribution");
    (void) str_set(in, &e->rule, ev->u.attribution.phase == ATTRIBUTION_FAST ? "fast" : "slow");
    (void) str_set(in, &e->fault_class, v->fault_class);
    (void) str_set(in, &e->nodes, nodes);
    set_text(in, &e->summary, str_or(v->summary), SUMMARY_MAX);
    (void) str_set(in, &e->reporter, ev->principal);
    e->origin = EVIDENCE_OF_PROVIDER;
    e->weight_percent = v->confidence_percent;
    e->observe_us = e->record_us = ev->now_us;
    DL_APPEND(a->evidence, e);
    a->n_evidence++;
    fleet_touch(in, RESOURCE_EVIDENCE, e, a->job->cluster);
    return true;
}

/* The slow answer, which has looked deeper, stands instead of the fast one. */
static void correct(struct intents *in, struct attempt *a)
{
    struct evidence *e;

    DL_FOREACH (a->evidence, e)
        if (e->origin == EVIDENCE_OF_PROVIDER && adv_streq(str_or(e->rule), "fast") && !e->late) {
            e->late = true;
            fleet_touch(in, RESOURCE_EVIDENCE, e, a->job->cluster);
        }
}

int fleet_apply_attribution(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err)
{
    bool fast = ev->u.attribution.phase == ATTRIBUTION_FAST;
    enum attribution_state *state;
    ADV_AUTO_DONE(adv_buf) note;
    char name[RESOURCE_NAME_MAX];
    struct attempt *a;
    size_t kept = 0;
    int r;

    adv_buf_init(&note, 512);
    if ((r = fleet_attempt_named(c, ev->u.attribution.attempt_name, &a, err)) < 0)
        return r;
    state = fast ? &a->attribution_fast : &a->attribution_slow;
    if (*state != ATTRIBUTION_ASKED)
        return 0; /* not asked, or told before */
    if (*str_or(ev->u.attribution.note))
        add_note(&note, "%s", ev->u.attribution.note);
    *state = ev->u.attribution.answered ? ATTRIBUTION_ANSWERED : ATTRIBUTION_NONE;
    for (size_t i = 0; ev->u.attribution.answered && i < ev->u.attribution.n; i++)
        kept += keep(f, in, a, &ev->u.attribution.v[i], ev, &note);
    if (!fast && kept > 0)
        correct(in, a);
    if (ev->u.attribution.answered && kept == 0 && note.len == 0)
        add_note(&note, "it knows of no cause");
    if (note.len && (!a->attribution_note || kept == 0))
        set_text(in, &a->attribution_note, note.data, 400);
    fleet_touch_attempt(in, a);
    fleet_audit(in, c, ev, 0, kept ? "attribution.answer" : "attribution.none", attempt_resource_name(a, name),
                "%s: %zu kept%s%s", fast ? "fast" : "slow", kept, note.len ? ", " : "", note.len ? note.data : "");
    if (job_state_failed(a->state) && attempt_stands(a) && (a->judge_at_us || kept))
        fleet_judge_by(f, a, ev->now_us);
    return 0;
}
