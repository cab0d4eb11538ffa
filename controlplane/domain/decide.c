/* SPDX-License-Identifier: Apache-2.0 */
/* The decision function; see decide.h for the table it implements. Each branch leaves reasons in order of weight and
 * one sentence for people. It reads the attempt, its job's history and the policy, and nothing else. */

#include "controlplane/domain/decide.h"
#include "controlplane/domain/entries.h"
#include "controlplane/domain/keep.h"
#include "controlplane/domain/nodefault.h"
#include "controlplane/domain/pulse.h"

#include <stdarg.h>
#include <stdio.h>
#include <utlist.h>

#include "common/utf8.h"

static char *fmt_dup(struct decision *d, const char *fmt, va_list ap) ADV_PRINTF(2, 0);
static char *fmt_dup(struct decision *d, const char *fmt, va_list ap)
{
    char *s = NULL;

    if (vasprintf(&s, fmt, ap) < 0) {
        d->oom = true;
        return NULL;
    }
    return s;
}

static void reason(struct decision *d, const char *code, const char *param, const char *fmt, ...) ADV_PRINTF(4, 5);
static void reason(struct decision *d, const char *code, const char *param, const char *fmt, ...)
{
    struct advice_reason *r;
    va_list ap;

    if (d->n_reasons == ADVICE_MAX_REASONS)
        return;
    r = &d->reasons[d->n_reasons++];
    r->code = strdup(code);
    r->param = strdup(str_or(param));
    va_start(ap, fmt);
    r->sentence = fmt_dup(d, fmt, ap);
    va_end(ap);
    if (!r->code || !r->param)
        d->oom = true;
}

static void summary(struct decision *d, const char *fmt, ...) ADV_PRINTF(2, 3);
static void summary(struct decision *d, const char *fmt, ...)
{
    va_list ap;

    free(d->summary);
    va_start(ap, fmt);
    d->summary = fmt_dup(d, fmt, ap);
    va_end(ap);
}

void decision_done(struct decision *d)
{
    for (size_t i = 0; i < ADVICE_MAX_REASONS; i++) {
        free(d->reasons[i].code);
        free(d->reasons[i].param);
        free(d->reasons[i].sentence);
    }
    free(d->exclude_nodes);
    free(d->people_nodes);
    free(d->summary);
    *d = (struct decision) { 0 };
}

/* What ranks print when one of them is gone: transport errors, timeouts, exceptions without a name. Which of these a rank
 * prints depends on how far it was, so their precedence tells nothing; the first was the cause of the others. A fault of the
 * job's owner that names itself is no such symptom: what says that a restart is of no use is never outweighed by it. */
#define SYMPTOMS_FROM 30
#define SYMPTOMS_TO   63
#define OWN_FAULT     45

static int32_t weight_of(const struct anomaly *a)
{
    bool symptom = a->precedence >= SYMPTOMS_FROM && a->precedence <= SYMPTOMS_TO &&
                   !(a->retryable == RETRYABLE_NO && a->precedence > OWN_FAULT);

    return symptom ? SYMPTOMS_FROM : a->precedence;
}

bool anomaly_weightier(const struct anomaly *a, const struct anomaly *b)
{
    if (a->terminal != b->terminal)
        return a->terminal;
    if (weight_of(a) != weight_of(b))
        return weight_of(a) > weight_of(b);
    if (weight_of(a) == SYMPTOMS_FROM) {
        if (a->observe_us != b->observe_us)
            return a->observe_us < b->observe_us;
        if (a->offset != b->offset)
            return a->offset < b->offset;
        if (a->precedence != b->precedence)
            return a->precedence > b->precedence;
    }
    if ((a->nodes != NULL) != (b->nodes != NULL))
        return a->nodes != NULL;
    if (a->offset != b->offset)
        return a->offset < b->offset;
    return strcmp(str_or(a->rule), str_or(b->rule)) < 0;
}

/* A silence explains nothing but itself: it counts while the attempt runs, and with its second witness only. */
static bool hang_stands(const struct anomaly *an)
{
    return an->status == ANOMALY_CONFIRMED && job_state_running(an->attempt->state);
}

/* Classes that say that somebody, or the scheduler, wanted the end. */
bool anomaly_on_purpose(const struct anomaly *an)
{
    const char *c = str_or(an->fault_class);

    return adv_streq(c, "user_cancel") || adv_streq(c, "time_limit") || adv_streq(c, "preemption");
}

static bool seen_before(const struct anomaly *a, const struct anomaly *b)
{
    if (a->observe_us != b->observe_us)
        return a->observe_us < b->observe_us;
    if (a->offset != b->offset)
        return a->offset < b->offset;
    return anomaly_weightier(a, b);
}

/* Somebody ended a step before anything went wrong: what its ranks print as they are torn down is a consequence of that. The
 * launcher ends a step, too, when one of its tasks has failed; then the task has said so before. */
static const struct anomaly *ended_first(const struct attempt *a, const struct anomaly *best)
{
    const struct anomaly *an, *first = NULL;

    if (!best || weight_of(best) > SYMPTOMS_FROM)
        return best;
    DL_FOREACH (a->anomalies, an) {
        if (an->status == ANOMALY_WITHDRAWN || an->late || an->reported || !an->terminal || anomaly_of_rhythm(an))
            continue;
        if (!first || seen_before(an, first))
            first = an;
    }
    return first && anomaly_on_purpose(first) ? first : best;
}

const struct anomaly *decide_best_anomaly(const struct attempt *a)
{
    const struct anomaly *an, *best = NULL;

    DL_FOREACH (a->anomalies, an)
        if (an->status != ANOMALY_WITHDRAWN && !an->late && an->kind != ANOMALY_STRAGGLER &&
            (!anomaly_of_rhythm(an) || hang_stands(an)) && (!best || anomaly_weightier(an, best)))
            best = an;
    return ended_first(a, best);
}

/* What a class is called in a sentence; NULL for "unknown" and words of other rule sets. */
static const char *class_known_words(const char *fault_class)
{
    static const struct {
        const char *word, *text;
    } table[] = {
        { "gpu_hardware", "a GPU hardware fault" },
        { "gpu_memory", "a lack of GPU memory" },
        { "network_fabric", "a network fabric fault" },
        { "storage", "a storage fault" },
        { "host_memory", "a lack of host memory" },
        { "node_failure", "the loss of a node" },
        { "application_bug", "an error in the program" },
        { "configuration", "an error in its set-up" },
        { "transient_service", "an outside service that did not answer" },
        { "preemption", "preemption" },
        { "time_limit", "its time limit" },
        { "user_cancel", "cancellation" },
        { "interference", "interference by another process" },
    };
    for (size_t i = 0; i < ADV_ARRAY_LEN(table); i++)
        if (adv_streq(str_or(fault_class), table[i].word))
            return table[i].text;
    return NULL;
}

bool fault_class_known(const char *fault_class)
{
    return class_known_words(fault_class) || adv_streq(str_or(fault_class), "unknown");
}

static const char *class_words(const char *fault_class)
{
    const char *s = class_known_words(fault_class);

    return s ? s : "an unknown cause";
}

static void end_words(const struct attempt *a, char *buf, size_t size)
{
    if (a->exit_signal)
        (void) snprintf(buf, size, "ended %s by signal %u", job_state_name(a->state), a->exit_signal);
    else
        (void) snprintf(buf, size, "ended %s with exit code %u", job_state_name(a->state), a->exit_code);
}

static void no_action(struct decision *d)
{
    d->desired = DESIRED_NO_ACTION;
    free(d->exclude_nodes);
    free(d->people_nodes);
    d->exclude_nodes = d->people_nodes = NULL;
    d->may_interrupt = false;
}

/* Restarts so far that this job has had, by anyone. */
static uint32_t restarts_so_far(const struct attempt *a)
{
    return a->index;
}

/* Attempts in a row, ending with @a, that were seen and brought no new checkpoint. */
static uint32_t barren_attempts(const struct attempt *a)
{
    const struct job *j = a->job;
    uint64_t best = 0;
    uint32_t barren = 0;

    for (uint32_t i = 0; i < j->n_attempts && j->attempts[i]->index <= a->index; i++) {
        const struct attempt *t = j->attempts[i];
        if (t->unseen)
            continue;
        if (t->last_checkpoint_step > best || (t->last_checkpoint_step == 0 && t->checkpoints_seen > 0)) {
            best = t->last_checkpoint_step > best ? t->last_checkpoint_step : best; /* or it saved, and did not say what */
            barren = 0;
        } else {
            barren++;
        }
    }
    return barren;
}

/* The same rule already ended an earlier attempt, on nodes that this one did not use: the nodes are not to blame. */
static bool same_signature_elsewhere(const struct attempt *a, const struct anomaly *an)
{
    const struct job *j = a->job;

    if (!an->rule)
        return false;
    for (uint32_t i = 0; i < j->n_attempts && j->attempts[i]->index < a->index; i++) {
        const struct anomaly *old = decide_best_anomaly(j->attempts[i]);
        if (old && old->status == ANOMALY_CONFIRMED && old->rule && adv_streq(old->rule, an->rule) &&
            a->last_checkpoint_step <= j->attempts[i]->last_checkpoint_step)
            return true;
    }
    return false;
}

/* " after a storage fault", or " for an unknown reason". Into a buffer of its own: one call a sentence. */
static const char *cause_words(const char *fault_class)
{
    static __thread char buf[96];
    const char *s = class_known_words(fault_class);

    (void) snprintf(buf, sizeof(buf), s ? " after %s" : " for an unknown reason", s);
    return buf;
}

/* Takes the nodes of list @text out of @all, what people excluded then may have been lifted since. */
static bool without(struct adv_hostlist *all, const char *text)
{
    ADV_AUTO(adv_hostlist) some = adv_hostlist_new(ATTEMPT_MAX_NODES);

    if (!some || (text && nodes_add(some, text) < 0))
        return false;
    adv_hostlist_minus(all, some);
    return true;
}

/* Union of the blamed nodes and what earlier advice of this job excluded on evidence; NULL when none. */
static void exclusions(struct decision *d, const struct attempt *a, const char *blamed)
{
    ADV_AUTO(adv_hostlist) all = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;
    const struct job *j = a->job;

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (!all) {
        d->oom = true;
        return;
    }
    for (uint32_t i = 0; i < j->n_attempts && j->attempts[i]->index < a->index; i++) {
        const struct advice *old = j->attempts[i]->advice;
        if (old && old->exclude_nodes && old->disposition == DISPOSITION_CONVERGED)
            d->oom |= nodes_add(all, old->exclude_nodes) < 0 || !without(all, old->people_nodes);
    }
    if (blamed)
        d->oom |= nodes_add(all, blamed) < 0;
    if (adv_hostlist_count(all) == 0)
        return;
    if (adv_hostlist_format(all, &text, NULL) < 0 || !(d->exclude_nodes = strdup(text.data)))
        d->oom = true;
}

/* Adds what people exclude. */
static void exclusions_of_people(struct decision *d, const struct attempt *a)
{
    ADV_AUTO(adv_hostlist) all = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO(adv_hostlist) blamed = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) people;
    ADV_AUTO_DONE(adv_buf) text;

    adv_buf_init(&people, HOST_LIST_TEXT_MAX);
    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (!all || !blamed || (d->exclude_nodes && nodes_add(blamed, d->exclude_nodes) < 0) ||
        !exclusions_add(a->job->cluster, all)) {
        d->oom = true;
        return;
    }
    adv_hostlist_minus(all, blamed);
    if (adv_hostlist_count(all) == 0)
        return;
    if (adv_hostlist_format(all, &people, NULL) < 0 || adv_hostlist_union(all, blamed, NULL) < 0 ||
        adv_hostlist_format(all, &text, NULL) < 0) {
        d->oom = true;
        return;
    }
    free(d->exclude_nodes);
    d->exclude_nodes = strdup(text.data);
    d->people_nodes = strdup(people.data);
    d->oom |= !d->exclude_nodes || !d->people_nodes;
}

/* Nodes of the cluster that are not on @list; UINT32_MAX when the cluster's nodes are not known. */
static uint32_t nodes_left(struct decision *d, const struct cluster *c, const char *list)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(ATTEMPT_MAX_NODES);
    uint32_t n = 0;

    if (!hl || nodes_add(hl, list) < 0) {
        d->oom = true;
        return UINT32_MAX;
    }
    if (!c->nodes)
        return UINT32_MAX;
    for (const struct node *node = c->nodes; node; node = node->hh.next)
        n += !adv_hostlist_contains(hl, node->name);
    return n;
}

/* Whether the job could run at all without these nodes, and the agent takes the list. */
static bool exclusions_bearable(struct decision *d, const struct attempt *a)
{
    uint32_t left = d->exclude_nodes ? nodes_left(d, a->job->cluster, d->exclude_nodes) : UINT32_MAX;

    if (d->exclude_nodes && strlen(d->exclude_nodes) > DECIDE_EXCLUDE_TEXT_MAX) {
        reason(d, "too_many_exclusions", NULL, "The list of nodes to leave out is longer than an agent takes.");
        summary(d, "Left as it is: too many nodes would have to be left out.");
        return false;
    }
    if (left < a->job->num_nodes || left == 0) {
        reason(d, "too_few_nodes", d->exclude_nodes, "Without %s only %u of the cluster's nodes are left; the job needs %u.",
               d->exclude_nodes, left, a->job->num_nodes ? a->job->num_nodes : 1);
        summary(d, "Left as it is: without the excluded nodes too few are left for it.");
        return false;
    }
    return true;
}

static uint32_t count_hosts(struct decision *d, const char *list)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(ATTEMPT_MAX_NODES);

    if (!hl || nodes_add(hl, list) < 0) {
        d->oom = true;
        return 0;
    }
    return (uint32_t) adv_hostlist_count(hl);
}

static uint32_t exclusion_cap(const struct attempt *a, const struct policy *p)
{
    uint32_t nodes = HASH_COUNT(a->job->cluster->nodes), cap = nodes * p->exclude_max_percent / 100;

    return cap < 1 ? 1 : cap;
}

/* Brakes on RESTARTED; true when it may stand. @may_lift: it is known what will be different, so that the same signature again is
 * no brake. */
static bool restart_allowed(struct decision *d, const struct attempt *a, const struct anomaly *an, bool may_lift,
                            const struct policy *p, uint32_t limit)
{
    const struct job *j = a->job;
    uint32_t done = restarts_so_far(a), barren;

    if (!j->batch) {
        reason(d, "not_batch", NULL, "An interactive allocation cannot be requeued.");
        summary(d, "Left as it is: an interactive allocation cannot be requeued.");
        return false;
    }
    if (!j->requeueable && job_state_terminal(a->state)) {
        char why[WHY_NOT_REQUEUEABLE_MAX];
        why_not_requeueable(a, p, why);
        reason(d, "not_requeueable", NULL, "The job was submitted with requeueing switched off (--no-requeue, or the cluster's "
                                           "JobRequeue=0), which cannot be changed once it ended; %s.", why);
        summary(d, "Left as it is: it was submitted with requeueing switched off, and %s.", why);
        return false;
    }
    if (done >= limit) {
        reason(d, "restart_limit", NULL, "The job was restarted %u time%s already; its limit is %u.", done,
               done == 1 ? "" : "s", limit);
        summary(d, "Left as it is: the limit of %u restart%s is used up.", limit, limit == 1 ? "" : "s");
        return false;
    }
    if (an && !may_lift && same_signature_elsewhere(a, an)) {
        reason(d, "same_signature", an->rule, "An earlier attempt ended by the same signature (%s) and nothing was gained "
                                              "since.", an->rule);
        summary(d, "Left as it is: the same failure (%s) came back and no new checkpoint was reached.", an->rule);
        return false;
    }
    barren = barren_attempts(a);
    if (barren >= p->no_checkpoint_limit) {
        reason(d, "no_new_checkpoint", NULL, "The last %u attempts reached no new checkpoint.", barren);
        summary(d, "Left as it is: %u attempts in a row reached no new checkpoint.", barren);
        return false;
    }
    reason(d, "within_limit", NULL, "This would be restart %u of at most %u.", done + 1, limit);
    return true;
}

static uint32_t job_limit(const struct job *j, const struct policy *p)
{
    uint32_t n = j->max_restarts ? j->max_restarts : p->max_restarts;

    return n > p->max_restarts_limit ? p->max_restarts_limit : n;
}

static void evidence_reason(struct decision *d, const struct anomaly *an)
{
    const char *excerpt = str_or(an->excerpt);

    if (an->reported)
        reason(d, "reported", an->rule, "%s reported %s (%s): \"%.*s\".", str_or(an->reporter), class_words(an->fault_class),
               an->rule, (int) adv_utf8_cut(excerpt, strlen(excerpt), 120), excerpt);
    else if (anomaly_of_rhythm(an))
        reason(d, "silence", an->rule, "It stands still: %s.", str_or(an->status_reason));
    else if (an->rule)
        reason(d, "signature", an->rule, "The log shows %s (rule %s): \"%.*s\".", class_words(an->fault_class), an->rule,
               (int) adv_utf8_cut(excerpt, strlen(excerpt), 120), excerpt);
    else
        reason(d, "scheduler_state", an->fault_class, "%s", str_or(an->status_reason));
}

/* What the program is, or how it was set up, is no matter of the node that it ran on: the brake for such a failure that comes
 * again holds whatever a node's log has besides. */
static bool of_program(const char *fault_class)
{
    static const char *const words[] = { "application_bug", "configuration", "gpu_memory", "host_memory" };

    for (size_t i = 0; i < ADV_ARRAY_LEN(words); i++)
        if (adv_streq(str_or(fault_class), words[i]))
            return true;
    return false;
}

/* "12 s before the end"; of what went on, its last moment before it. */
static void when_words(const struct attempt *a, const struct evidence *e, char *buf, size_t size)
{
    int64_t end_us = a->end_unix ? a->end_unix * 1000000 : a->ms.end_observed_us;
    long long s = (long long) ((end_us - nodefault_at_us(e, end_us)) / 1000000);

    if (!end_us || !job_state_terminal(a->state))
        (void) snprintf(buf, size, "while it ran");
    else
        (void) snprintf(buf, size, "%lld s %s the end", s < 0 ? -s : s, s < 0 ? "after" : "before");
}

#define EVIDENCE_REASONS 3

static bool share_a_node(struct decision *d, const char *a, const char *b)
{
    ADV_AUTO(adv_hostlist) x = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO(adv_hostlist) y = adv_hostlist_new(ATTEMPT_MAX_NODES);
    size_t before;

    if (!x || !y || nodes_add(x, a) < 0 || nodes_add(y, b) < 0) {
        d->oom = true;
        return false;
    }
    before = adv_hostlist_count(x);
    adv_hostlist_minus(x, y);
    return adv_hostlist_count(x) < before;
}

/* Each piece of evidence by its uid, with where it comes from. @named is what the log itself names: beside that, evidence says
 * the same or nothing. */
static void node_reasons(struct decision *d, const struct attempt *a, const struct nodefault *nf, const char *named)
{
    for (uint32_t i = 0; i < nf->n_by && i < EVIDENCE_REASONS && !nf->shared; i++) {
        const struct evidence *e = nf->by[i];
        char how[128], more[48] = "";

        if (e->origin == EVIDENCE_OF_PROVIDER)
            (void) snprintf(how, sizeof(how), "confidence %u %%", e->weight_percent);
        else {
            char when[64];
            when_words(a, e, when, sizeof(when));
            (void) snprintf(how, sizeof(how), "weight %u %%, %s", e->weight_percent, when);
        }
        if (i + 1 == EVIDENCE_REASONS && nf->n_by > EVIDENCE_REASONS)
            (void) snprintf(more, sizeof(more), "; %u more like it", nf->n_by - EVIDENCE_REASONS);
        reason(d, !named                             ? "node_evidence" :
                  share_a_node(d, e->nodes, named) ? "node_evidence_supports" :
                                                     "node_evidence_beside",
               e->uid, "%s of %s has %s on %s (%s%s%s, told by %s)%s.", str_or(e->kind), str_or(e->source),
               class_words(e->fault_class), str_or(e->nodes), e->rule ? str_or(e->rule) : "", e->rule ? ", " : "", how,
               str_or(e->reporter), more);
    }
    if (nf->shared)
        reason(d, "node_evidence_shared", nf->by[0]->uid,
               "%u of the attempt's nodes have %s or the like by the evidence: %s, so none is left out for it.", nf->n_nodes, class_words(nf->fault_class), nf->shared);
}

static void no_attribution(struct decision *d, const struct attempt *a)
{
    const char *why = a->attribution_note                            ? a->attribution_note :
                      a->attribution_fast == ATTRIBUTION_ASKED ? "the provider has not answered in time" :
                                                                       "the answer names nothing that counts";

    reason(d, "no_attribution", NULL, "A provider was asked which node is to blame: %s.", why);
}

static void decide_failed(struct decision *d, const struct attempt *a, const struct policy *p, int64_t now_us,
                          const struct nodefault *nf)
{
    const struct anomaly *an = decide_best_anomaly(a);
    int64_t end_us = a->ms.end_observed_us;
    /* a detector that knows no cause explains nothing; our own rules are made so that to match is to explain */
    bool known = an && an->rule && !(an->reported && adv_streq(str_or(an->fault_class), "unknown"));
    bool running = job_state_running(a->state);
    uint32_t limit = job_limit(a->job, p);
    const char *blamed = an ? an->nodes : NULL;
    bool by_node = false; /* the evidence is what blames one */
    bool may_lift;
    char end[96];

    end_words(a, end, sizeof(end));
    if (running)
        (void) snprintf(end, sizeof(end), "is still %s but made no progress", job_state_name(a->state));
    d->anomaly = an;
    if (an)
        evidence_reason(d, an);
    reason(d, running ? "no_progress" : "end_state", job_state_name(a->state), "Attempt %u %s.", a->index, end);

    if (an && anomaly_on_purpose(an)) {
        no_action(d);
        reason(d, "ended_on_purpose", an->fault_class, "Somebody or the scheduler ended it on purpose; that stands.");
        summary(d, "Left %s: it was ended on purpose by %s, and that stands.", job_state_name(a->state),
                class_words(an->fault_class));
        return;
    }
    if (a->finished_us) {
        no_action(d);
        reason(d, "had_finished", NULL, "The program had said before that its work was done.");
        summary(d, "Left as it is: attempt %u %s, but only after the program had said that it was done.", a->index, end);
        return;
    }
    if (known && an->retryable == RETRYABLE_NO) {
        no_action(d);
        reason(d, "user_fault", an->fault_class, "The same job would fail again in the same way: this is %s.",
               class_words(an->fault_class));
        summary(d, "Left %s: %s (rule %s) would come back; it needs its owner.", job_state_name(a->state),
                class_words(an->fault_class), an->rule);
        return;
    }
    if (nf->n_by > 0 && (running || nodefault_may_explain(a)) && !(an && an->retryable == RETRYABLE_NO)) {
        by_node = !blamed && nf->nodes;
        node_reasons(d, a, nf, blamed);
    }
    if (by_node)
        blamed = nf->nodes;
    d->node_named = blamed != NULL;
    if (!known && !(by_node && nf->observed && !running)) {
        /* nobody said why: a program that dies at the start is its owner's; one that worked may be tried once more */
        bool blind = a->steps_seen == 0;
        int64_t ran_us = a->start_unix && a->end_unix > a->start_unix ? (a->end_unix - a->start_unix) * 1000000 : 0;

        if (a->state == JOB_NODE_FAIL || a->state == JOB_BOOT_FAIL) {
            /* the scheduler's own statement about a node is evidence enough to try again */
        } else if (blind && ran_us < p->min_runtime_blind_us) {
            no_action(d);
            reason(d, "died_at_start", NULL, "It ran %lld s and showed no progress, and no known fault is in its log.",
                   (long long) (ran_us / 1000000));
            summary(d, "Left %s: it %s after %lld s without a sign of progress or of a machine fault.",
                    job_state_name(a->state), end, (long long) (ran_us / 1000000));
            return;
        } else if (restarts_so_far(a) >= 1) {
            no_action(d);
            reason(d, "unknown_cause_again", NULL, "No cause is known, and the job was restarted before.");
            summary(d, "Left %s: no cause is known and it was restarted before.", job_state_name(a->state));
            return;
        }
    }
    if (!running && a->job->gone) {
        no_action(d);
        reason(d, "job_forgotten", NULL, "The scheduler no longer knows the job.");
        summary(d, "Left %s: the scheduler had forgotten the job before anything could be done; it has to be submitted again.",
                job_state_name(a->state));
        return;
    }
    if (!running && a->end_unix && now_us / 1000000 - a->end_unix > (int64_t) (p->valid_for_ms / 1000)) {
        no_action(d);
        reason(d, "too_old", NULL, "It ended %lld minutes ago: somebody may have acted on it since.",
               (long long) (now_us / 1000000 - a->end_unix) / 60);
        summary(d, "Left %s: it ended too long ago to be set in motion now.", job_state_name(a->state));
        return;
    }
    if (!running && !blamed && now_us < end_us + p->shared_cause_window_us)
        d->not_before_us = end_us + p->shared_cause_window_us;
    /* an attribution changes where a restart that is due takes place, and makes none */
    may_lift = blamed && !(by_node && (!nf->observed || (an && of_program(an->fault_class))));
    if (!restart_allowed(d, a, an, may_lift, p, limit)) {
        no_action(d);
        d->not_before_us = 0;
        return;
    }
    if (!blamed && !nf->shared && a->attribution_us)
        no_attribution(d, a);
    d->desired = DESIRED_RESTARTED;
    d->may_interrupt = running;
    exclusions(d, a, blamed);
    if (d->exclude_nodes && count_hosts(d, d->exclude_nodes) > exclusion_cap(a, p)) {
        reason(d, "too_many_nodes", d->exclude_nodes,
               "The evidence points at %u nodes, more than the %u that may be excluded: a shared cause is likelier.",
               count_hosts(d, d->exclude_nodes), exclusion_cap(a, p));
        free(d->exclude_nodes);
        d->exclude_nodes = NULL;
    }
    if (d->exclude_nodes)
        reason(d, "node_attributed", d->exclude_nodes, "The evidence names %s, which the attempt used.", d->exclude_nodes);
    if (an && an->blame == BLAME_LEAD && an->named && !an->nodes && !nodes_most(an->named, a->nodes))
        reason(d, "lead", an->named, "The others waited for %s. Once is no evidence against a node; it is left out when the next "
                                     "attempt waits for it, too.", an->named);
    exclusions_of_people(d, a);
    if (d->people_nodes)
        reason(d, "excluded_by_people", d->people_nodes, "People keep recoveries off %s.", d->people_nodes);
    if (!d->oom && !exclusions_bearable(d, a)) {
        no_action(d);
        return;
    }
    const char *cause = cause_words(by_node ? nf->fault_class : an ? an->fault_class : NULL);
    if (d->exclude_nodes) {
        summary(d, "Restart without %s: attempt %u %s%s%s%s.", d->exclude_nodes, a->index, end,
                cause, blamed ? " on " : "", str_or(blamed));
    } else {
        summary(d, "Restart on any nodes: attempt %u %s%s, and no node is to blame.", a->index, end, cause);
    }
}

static long long minutes(double us)
{
    return (long long) (us / 60e6 + 0.5);
}

/* A running attempt that is slow for long, where a restart was found to pay. Only what was measured counts: no node is left out
 * for being slow unless the evidence names it. */
static void decide_straggler(struct decision *d, const struct attempt *a, const struct anomaly *an, const struct policy *p,
                             int64_t now_us)
{
    struct rhythm_gain g;

    d->anomaly = an;
    reason(d, "straggler", an->rule, "It is slow: %s.", str_or(an->status_reason));
    if (straggler_others(a)) {
        no_action(d);
        reason(d, "others_slow_too", NULL, "Another job of the cluster is slow, too, or became so within an hour of it.");
        summary(d, "Left alone: it is slow, and so was another job at the time: a cause that they share is likelier.");
        return;
    }
    straggler_gain(a, now_us / 1000000, &g);
    if (!p->restart_stragglers || !rhythm_restart_pays(&g)) {
        no_action(d);
        reason(d, "would_not_pay", NULL, "It is not certain that a restart would pay.");
        summary(d, "Left alone: it is slow, and it is not certain that a restart would pay.");
        return;
    }
    reason(d, "restart_pays", NULL,
           "%lld steps are left, which take %lld minutes less at the usual pace; a restart costs %lld minutes of work done again, "
           "%lld of start and %lld in the queue.",
           (long long) g.left, minutes((g.now_us - g.usual_us) * (double) g.left),
           minutes(g.usual_us * (double) g.since_checkpoint), minutes((double) g.start_us), minutes((double) g.queue_us));
    if (!restart_allowed(d, a, an, true, p, job_limit(a->job, p))) {
        no_action(d);
        return;
    }
    d->desired = DESIRED_RESTARTED;
    d->may_interrupt = true;
    exclusions(d, a, an->nodes);
    exclusions_of_people(d, a);
    if (d->people_nodes)
        reason(d, "excluded_by_people", d->people_nodes, "People keep recoveries off %s.", d->people_nodes);
    if (!d->oom && !exclusions_bearable(d, a)) {
        no_action(d);
        return;
    }
    summary(d, "Restart%s%s: attempt %u stays slow (%s), and a restart saves more than it costs.",
            d->exclude_nodes ? " without " : " on any nodes", str_or(d->exclude_nodes), a->index, str_or(an->status_reason));
}

/* A running attempt with nothing against it (any more). */
static void decide_going_on(struct decision *d, const struct attempt *a)
{
    no_action(d);
    if (a->advice && a->advice->n_reasons > 0 && adv_streq(str_or(a->advice->reasons[0].code), "straggler")) {
        if (!a->pulse || !a->pulse->restart_asked) { /* what measured it is gone with the advisord that did */
            reason(d, "pace_unknown", NULL, "Whether it is still slow is not known any more: advisord was restarted since.");
            summary(d, "Left alone: whether it is still slow is not known any more, since advisord was restarted.");
            return;
        }
        reason(d, "pace_is_back", NULL, "The attempt is no longer slow, or began anew inside.");
        summary(d, "Left alone: the attempt is no longer slow.");
        return;
    }
    reason(d, "progress_resumed", NULL, "The attempt makes progress again; what was held against it is withdrawn.");
    summary(d, "Left alone: the attempt makes progress again.");
}

static const char *cancelled_words(enum cancelled_by by, bool word)
{
    static const char *const words[][2] = {
        [CANCELLED_BY_UNKNOWN] = { "", "" },
        [CANCELLED_BY_OWNER] = { " by its owner", "owner" },
        [CANCELLED_BY_ADVISOR] = { " by Advisor's own account", "advisor" },
        [CANCELLED_BY_OTHER] = { " by somebody other than its owner", "other" },
    };

    return (unsigned) by < ADV_ARRAY_LEN(words) ? words[by][word] : "";
}

static void decide_unfailed(struct decision *d, const struct attempt *a)
{
    const struct anomaly *an = NULL, *t;

    DL_FOREACH (a->anomalies, t) /* withdrawn or not */
        if (!t->late && (!an || anomaly_weightier(t, an)))
            an = t;
    no_action(d);
    switch (a->state) {
    case JOB_COMPLETED:
        reason(d, "completed", NULL, "The attempt completed.");
        if (an)
            reason(d, "error_handled", an->rule, "The error in its log (%s) was handled by the job itself.",
                   str_or(an->rule));
        summary(d, an ? "Left alone: the job handled the error in its log and completed." :
                        "Left alone: the job completed.");
        break;
    case JOB_CANCELLED:
        reason(d, "user_cancelled", cancelled_words(a->cancelled_by, true),
               "The job was cancelled%s; that decision is somebody's and stands.", cancelled_words(a->cancelled_by, false));
        summary(d, "Left alone: the job was cancelled%s.", cancelled_words(a->cancelled_by, false));
        break;
    case JOB_TIMEOUT:
        reason(d, "time_limit", NULL, "The attempt used its whole time limit.");
        summary(d, "Left as it is: the time limit was used up.");
        break;
    case JOB_PREEMPTED:
    case JOB_REQUEUED:
    case JOB_SPECIAL_EXIT:
    case JOB_REVOKED:
    case JOB_DEADLINE:
    default:
        reason(d, "scheduler_decided", job_state_name(a->state), "The scheduler ended it (%s) and decides what follows.",
               job_state_name(a->state));
        summary(d, "Left to the scheduler: %s.", job_state_name(a->state));
        break;
    }
}

static void set_actionability(struct decision *d, const struct attempt *a)
{
    char *why[POLICY_MAX_MODE_REASONS];
    size_t n = 0;
    enum adv_mode m = policy_job_mode(a->job, why, &n);

    switch (m) {
    case MODE_ACT:
        d->actionability = ACTION_ACTIONABLE;
        if (d->desired != DESIRED_NO_ACTION)
            reason(d, "mode_act", NULL, "Cluster, site and job all allow acting.");
        break;
    case MODE_APPROVE:
        d->actionability = ACTION_NEEDS_APPROVAL;
        reason(d, "mode_approve", NULL, "A person has to approve it: %s.", n ? why[0] : "mode approve");
        break;
    case MODE_OBSERVE:
    case MODE_OFF:
    case MODE_UNSET:
    default:
        d->actionability = ACTION_SHADOW;
        reason(d, m == MODE_OFF                                ? "mode_off" :
                  a->job->cluster->maintenance_until_us ? "maintenance" :
                                                          "mode_observe", NULL, "Nothing is touched: %s.",
               n ? why[0] : "mode observe");
        break;
    }
    for (size_t i = 0; i < n; i++)
        free(why[i]);
}

void decide_attempt(const struct attempt *a, const struct policy *p, int64_t now_us, struct decision *ret)
{
    *ret = (struct decision) { 0 };
    if (straggler_alone(a) && straggler_stands(a))
        decide_straggler(ret, a, straggler_stands(a), p, now_us);
    else if (straggler_alone(a) || (job_state_running(a->state) && !decide_best_anomaly(a)))
        decide_going_on(ret, a);
    else if (job_state_failed(a->state) || job_state_running(a->state)) {
        struct nodefault nf;
        nodefault_find(a, p, now_us, &nf);
        ret->oom |= nf.oom;
        decide_failed(ret, a, p, now_us, &nf);
        nodefault_done(&nf);
    } else
        decide_unfailed(ret, a);
    if (!ret->not_before_us)
        set_actionability(ret, a);
}
