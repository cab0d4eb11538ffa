/* SPDX-License-Identifier: Apache-2.0 */
/* What detectors outside report of an attempt.
 *
 * A reported anomaly is what a rule's finding is: a suspicion, until the scheduler's state or our own judgement confirms
 * it. It never is more: it stands behind what our own rules found in the log, a class of "unknown" explains nothing, and
 * only nodes that the reporter names and the attempt uses are blamed. One detector cannot change what another, or the
 * watcher, has said. What comes when the attempt is over and judged is kept and told, and no judgement counts it.
 *
 * Evidence is kept and shown; which of it a decision rests on is said in nodefault.h.
 *
 * Reported progress takes suspicions back; it does not make the log's silence mean something: only a log that showed
 * progress itself is missed when it falls silent. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"
#include "controlplane/domain/nodefault.h"

#include <stdio.h>
#include <utlist.h>

#include "common/utf8.h"

#define EXCERPT_MAX 500
#define PRECEDENCE  (-1) /* rules have 0 and above */
#define SKEW_US     (60 * 1000000LL) /* by which the cluster's clock may be ahead of ours */

int fleet_attempt_named(struct cluster *c, const char *name, struct attempt **ret, struct adv_err *err)
{
    struct resource_path p;
    struct job *j;
    int r = resource_path_parse(name, &p, err);

    if (r < 0)
        return r;
    j = fleet_find_job_uid(c, p.job_uid);
    *ret = j && p.attempt && adv_streq(p.cluster, c->name) ? job_attempt(j, p.attempt_index) : NULL;
    if (!*ret)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "ATTEMPT_NOT_FOUND", "%.200s: no such attempt", name);
    if (fleet_switched_off(j))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "DETECTION_OFF", "job %.40s: cluster, site or job are off",
                                  j->job_id);
    return 0;
}

/* @us within the life of the attempt; 0 becomes now. */
static int check_time(const struct attempt *a, const char *field, int64_t *us, const struct event *ev, struct adv_err *err)
{
    if (!*us)
        *us = ev->now_us;
    if (*us > ev->now_us + SKEW_US)
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TIME_IN_FUTURE", "%s: expected a time that is not in the future",
                                  field);
    else if (a->start_unix && *us < a->start_unix * 1000000)
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "%s: before attempt %u of job %.40s began",
                                  field, a->index, a->job->job_id);
    else
        return 0;
    return adv_err_field(err, "%s", field);
}

/* Words with commas between them; NULL for none. */
static char *joined(struct intents *in, const char *const *words, size_t n)
{
    ADV_AUTO_DONE(adv_buf) b;
    char *s;

    adv_buf_init(&b, 1 << 20);
    for (size_t i = 0; i < n; i++)
        (void) adv_buf_appendf(&b, "%s%s", i ? "," : "", words[i]);
    if (!n)
        return NULL;
    s = adv_buf_error(&b) ? NULL : strdup(b.data);
    in->oom |= !s;
    return s;
}

struct anomaly *fleet_find_report(const struct attempt *a, const char *reporter, const char *rule)
{
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (adv_streq(str_or(an->rule), rule) && adv_streq(str_or(an->reporter), reporter))
            return an;
    return NULL;
}

bool fleet_too_late(const struct attempt *a)
{
    return !attempt_stands(a) || a->job->gone || (attempt_judged(a) && job_state_terminal(a->state));
}

static int no_room(const struct attempt *a, struct adv_err *err)
{
    return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "ANOMALY_LIMIT", "attempt %u of job %.40s has %d weightier anomalies",
                              a->index, a->job->job_id, ATTEMPT_MAX_ANOMALIES);
}

static void keep_excerpt(struct intents *in, struct anomaly *an, const char *excerpt)
{
    size_t len = adv_utf8_cut(excerpt, strlen(excerpt), EXCERPT_MAX);
    adv_auto_free char *s = strndup(excerpt, len);
    char hex[ADV_SHA256_HEX_SIZE];
    uint8_t raw[ADV_SHA256_LEN];

    if (!len)
        return;
    if (!s || adv_sha256(s, len, raw, NULL) < 0) {
        in->oom = true;
        return;
    }
    (void) str_set(in, &an->excerpt, s);
    (void) str_set(in, &an->excerpt_sha256, adv_hex(raw, sizeof(raw), hex));
}

static struct anomaly *new_report(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev,
                                  int64_t observe_us, const char *named)
{
    const struct anomaly candidate = { .status = ANOMALY_SUSPICION,
                                       .terminal = ev->u.anomaly.kind != ANOMALY_STRAGGLER,
                                       .precedence = PRECEDENCE,
                                       .reported = true,
                                       .late = fleet_too_late(a),
                                       .named = (char *) (uintptr_t) named,
                                       .rule = (char *) (uintptr_t) ev->u.anomaly.rule };
    struct anomaly *an = fleet_make_room(in, a, &candidate) ? fleet_anomaly_add(f, in, a, ev) : NULL;
    adv_auto_free char *ranks = NULL;

    if (!an)
        return NULL;
    ranks = joined(in, ev->u.anomaly.ranks, ev->u.anomaly.n_ranks);
    an->reported = true;
    an->late = candidate.late;
    an->kind = ev->u.anomaly.kind;
    an->retryable = ev->u.anomaly.retryable;
    an->precedence = PRECEDENCE;
    an->terminal = candidate.terminal;
    an->observe_us = observe_us;
    an->blame = named ? BLAME_NODE : BLAME_NONE; /* who names nobody blames nobody */
    (void) str_set(in, &an->named, named);
    (void) str_set(in, &an->fault_class, *str_or(ev->u.anomaly.fault_class) ? ev->u.anomaly.fault_class : "unknown");
    (void) str_set(in, &an->rule, ev->u.anomaly.rule);
    (void) str_set(in, &an->ranks, ranks);
    (void) str_set(in, &an->reporter, ev->principal);
    keep_excerpt(in, an, str_or(ev->u.anomaly.excerpt));
    return an;
}

void fleet_anomaly_told(struct intents *in, struct anomaly *an, const struct event *ev)
{
    enum job_state s = an->attempt->state;

    if (job_state_terminal(s) && !job_state_failed(s))
        fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, "the attempt had ended otherwise");
    else
        fleet_anomaly_status(in, an, job_state_terminal(s) ? ANOMALY_CONFIRMED : ANOMALY_WITHDRAWN, ev,
                             "reported when the attempt was judged or past; no advice changed");
}

/* What it is now: open, or told only. */
static void open_report(struct fleet *f, struct intents *in, struct anomaly *an, const struct event *ev)
{
    struct attempt *a = an->attempt;
    bool ended = job_state_terminal(a->state);

    an->step_at = a->last_step;
    an->progress_after = an->regained = 0;
    if (an->late || (ended && !job_state_failed(a->state))) {
        fleet_anomaly_told(in, an, ev);
    } else {
        adv_auto_free char *why = fleet_strf(in, "%s reported it", str_or(an->reporter));
        fleet_anomaly_status(in, an, ANOMALY_SUSPICION, ev, str_or(why));
        if (an->terminal && !a->ms.first_suspicion_us) {
            a->ms.first_suspicion_us = ev->now_us;
            fleet_touch_attempt(in, a);
        }
        if (ended)
            fleet_judge_by(f, a, ev->now_us + f->cfg.policy.log_settle_us);
        else if (an->terminal)
            fleet_judge_by(f, a, ev->now_us + f->cfg.policy.suspicion_grace_us);
    }
}

int fleet_apply_report_anomaly(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err)
{
    int64_t observe_us = ev->u.anomaly.observe_us;
    adv_auto_free char *named = NULL;
    char name[RESOURCE_NAME_MAX];
    struct anomaly *an;
    struct attempt *a;
    bool fresh;
    int r;

    if ((r = fleet_attempt_named(c, ev->u.anomaly.attempt_name, &a, err)) < 0 ||
        (r = check_time(a, "observe_time", &observe_us, ev, err)) < 0)
        return r;
    named = fleet_named_nodes(in, ev->u.anomaly.nodes, ev->u.anomaly.n_nodes);
    an = fleet_find_report(a, ev->principal, ev->u.anomaly.rule);
    fresh = !an;
    if (fresh && !(an = new_report(f, in, a, ev, observe_us, named)))
        return in->oom ? 0 : no_room(a, err);
    if (!fresh) {
        an->repeats++;
        if (named && !fleet_too_late(a)) { /* what it names now counts, too; what it blamed before stands */
            an->blame = BLAME_NODE;
            fleet_anomaly_names(in, an, named);
        }
        fleet_touch_anomaly(in, an);
    }
    fleet_attribute(in, a);
    fleet_audit(in, c, ev, observe_us, "signal.anomaly", attempt_resource_name(a, name), "%s %s%s%s%s", an->rule,
                str_or(an->fault_class), fresh ? "" : " again", an->nodes ? ", blames " : "", str_or(an->nodes));
    if (fresh || (an->status == ANOMALY_WITHDRAWN && !job_state_terminal(a->state) && !fleet_too_late(a)))
        open_report(f, in, an, ev);
    return 0;
}

/* Of an attempt that runs it counts when that ends; of one that is judged it changes what is not yet under way, as a line that
 * comes late does. */
static void look_again(struct fleet *f, const struct evidence *e, const struct event *ev)
{
    bool more = e->origin == EVIDENCE_OF_SOURCE && adv_streq(str_or(e->kind), NODEFAULT_KIND_MORE);

    if ((more || nodefault_believed(e, &f->cfg.policy)) && job_state_failed(e->attempt->state) && attempt_stands(e->attempt))
        fleet_judge_by(f, e->attempt, ev->now_us + f->cfg.policy.log_settle_us);
}

/* The same of the same nodes by one of our sources, which reads again after a restart, or tells that it goes on. */
static struct evidence *told_before(const struct attempt *a, const struct event *ev, const char *nodes)
{
    struct evidence *e;

    if (ev->u.evidence.origin != EVIDENCE_OF_SOURCE)
        return NULL;
    DL_FOREACH (a->evidence, e)
        if (e->origin == EVIDENCE_OF_SOURCE && adv_streq(str_or(e->source), str_or(ev->u.evidence.source)) &&
            adv_streq(str_or(e->kind), str_or(ev->u.evidence.kind)) && adv_streq(str_or(e->rule), str_or(ev->u.evidence.rule)) &&
            adv_streq(str_or(e->fault_class), str_or(ev->u.evidence.fault_class)) && adv_streq(str_or(e->nodes), str_or(nodes)))
            return e;
    return NULL;
}

static void goes_on(struct fleet *f, struct intents *in, struct evidence *e, int64_t from_us, int64_t to_us, struct event *ev)
{
    (void) snprintf(ev->u.evidence.ret_uid, sizeof(ev->u.evidence.ret_uid), "%s", e->uid);
    if (from_us >= e->window_start_us && to_us <= e->window_end_us)
        return;
    if (from_us < e->window_start_us)
        e->window_start_us = e->observe_us = from_us;
    if (to_us > e->window_end_us)
        e->window_end_us = to_us;
    fleet_touch(in, RESOURCE_EVIDENCE, e, e->attempt->job->cluster);
    look_again(f, e, ev);
}

int fleet_apply_report_evidence(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err)
{
    int64_t observe_us = ev->u.evidence.observe_us, from_us = ev->u.evidence.window_start_us,
            to_us = ev->u.evidence.window_end_us;
    adv_auto_free char *named = NULL, *ranks = NULL, *nodes = NULL;
    char name[RESOURCE_NAME_MAX];
    struct evidence *e;
    struct attempt *a;
    int r;

    if ((r = fleet_attempt_named(c, ev->u.evidence.attempt_name, &a, err)) < 0 ||
        (r = check_time(a, "observe_time", &observe_us, ev, err)) < 0)
        return r;
    if ((from_us && to_us && from_us > to_us) || to_us > ev->now_us + SKEW_US) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TIME_OUT_OF_RANGE",
                                  "window_end_time: before its start, or in the future");
        return adv_err_field(err, "window_end_time");
    }
    named = fleet_named_nodes(in, ev->u.evidence.nodes, ev->u.evidence.n_nodes);
    nodes = named ? fleet_own_nodes(in, a, named) : NULL;
    if ((e = told_before(a, ev, nodes))) {
        goes_on(f, in, e, from_us, to_us, ev);
        return 0;
    }
    if (a->n_evidence >= ATTEMPT_MAX_EVIDENCE)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "EVIDENCE_LIMIT", "attempt %u of job %.40s has %d pieces of evidence",
                                  a->index, a->job->job_id, ATTEMPT_MAX_EVIDENCE);
    if (!(e = calloc(1, sizeof(*e)))) {
        in->oom = true;
        return 0;
    }
    ranks = joined(in, ev->u.evidence.ranks, ev->u.evidence.n_ranks);
    e->attempt = a;
    fleet_mint_uid(f, ev->now_us, ev->u.evidence.ret_uid);
    (void) str_set(in, &e->uid, ev->u.evidence.ret_uid);
    (void) str_set(in, &e->source, ev->u.evidence.source);
    (void) str_set(in, &e->kind, ev->u.evidence.kind);
    (void) str_set(in, &e->nodes, nodes);
    (void) str_set(in, &e->ranks, ranks);
    (void) str_set(in, &e->summary, ev->u.evidence.summary);
    (void) str_set(in, &e->excerpt_ref, ev->u.evidence.excerpt_ref);
    (void) str_set(in, &e->excerpt_sha256, ev->u.evidence.excerpt_sha256);
    (void) str_set(in, &e->reporter, ev->principal);
    (void) str_set(in, &e->request_id, ev->request_id);
    e->window_start_us = from_us;
    e->window_end_us = to_us;
    e->weight_percent = ev->u.evidence.weight_percent;
    e->observe_us = observe_us;
    e->record_us = ev->now_us;
    (void) str_set(in, &e->fault_class, ev->u.evidence.fault_class);
    (void) str_set(in, &e->rule, ev->u.evidence.rule);
    e->origin = ev->u.evidence.origin;
    e->late = e->origin == EVIDENCE_OF_OUTSIDE && fleet_too_late(a);
    DL_APPEND(a->evidence, e);
    a->n_evidence++;
    fleet_touch(in, RESOURCE_EVIDENCE, e, c);
    fleet_evidence_witness(f, in, a, e, ev);
    fleet_audit(in, c, ev, observe_us, "signal.evidence", attempt_resource_name(a, name), "%s %s%s%s, excerpt %s", e->source,
                e->kind, e->nodes ? " about " : "", str_or(e->nodes), e->excerpt_sha256 ? e->excerpt_sha256 : "none");
    look_again(f, e, ev);
    return 0;
}

int fleet_apply_report_progress(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                                struct adv_err *err)
{
    static const char *const verbs[] = { [FINDING_PROGRESS] = "signal.progress",
                                         [FINDING_CHECKPOINT] = "signal.checkpoint",
                                         [FINDING_RESUMED] = "signal.resumed" };
    int64_t observe_us = ev->u.progress.observe_us, finished_us;
    struct event as_log = { .type = EV_FINDING, .now_us = ev->now_us, .mono_us = ev->mono_us, .principal = ev->principal,
                            .cluster = ev->cluster };
    char name[RESOURCE_NAME_MAX];
    struct attempt *a;
    int r;

    if ((r = fleet_attempt_named(c, ev->u.progress.attempt_name, &a, err)) < 0 ||
        (r = check_time(a, "observe_time", &observe_us, ev, err)) < 0)
        return r;
    finished_us = a->finished_us;
    as_log.u.finding.kind = ev->u.progress.kind;
    as_log.u.finding.step = ev->u.progress.step;
    as_log.u.finding.observe_us = observe_us;
    as_log.u.finding.outside = true;
    if (ev->u.progress.kind == FINDING_PROGRESS)
        a->steps_reported++;
    if (ev->u.progress.kind == FINDING_PROGRESS && ev->u.progress.step < a->last_step) {
        a->steps_seen++; /* a detector that lags behind the log: alive, but no step back */
        a->last_progress_us = ev->now_us;
        fleet_pulse_sign(f, in, a, &as_log);
        fleet_spare(f, in, a, &as_log);
    } else {
        fleet_apply_progress(f, in, a, &as_log);
        a->finished_us = finished_us; /* the program's own word */
    }
    a->progress_stored_us = ev->now_us;
    fleet_touch_attempt(in, a); /* an answer means that it is on disk */
    fleet_audit(in, c, ev, observe_us, verbs[ev->u.progress.kind], attempt_resource_name(a, name), "step %llu",
                (unsigned long long) ev->u.progress.step);
    return 0;
}
