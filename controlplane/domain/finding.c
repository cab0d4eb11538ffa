/* SPDX-License-Identifier: Apache-2.0 */
/* What logs say: signatures open suspicions, progress moves counters and takes suspicions back. */

#include "controlplane/domain/internal.h"

#include <stdio.h>
#include <utlist.h>

#include "common/telemetry.h"

#define WITHDRAW_PROGRESS 2     /* new steps after a suspicion that show that the attempt went on */
#define REGAIN_PROGRESS   5     /* the same where steps fell back first: a launcher that restarts inside the job does that, but
                                 * so do other ranks whose last lines come late */
#define PROGRESS_STORE_US (10 * 1000000LL)
#define NOTICE_STORE_US   (60 * 1000000LL)

char *fleet_named_nodes(struct intents *in, const char *const *names, size_t n)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;
    char *s = NULL;

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (!hl)
        in->oom = true;
    for (size_t i = 0; hl && i < n; i++)
        if (adv_hostlist_add(hl, str_or(names[i]), NULL) == -ADV_RESOURCE_EXHAUSTED)
            in->oom = true; /* what is no host name is left out */
    if (hl && adv_hostlist_count(hl) > 0 && (adv_hostlist_format(hl, &text, NULL) < 0 || !(s = strdup(text.data))))
        in->oom = true;
    return s;
}

/* The attempt's own nodes among those the evidence names; a single-node attempt needs no name. */
static char *blamed_nodes(struct intents *in, const struct attempt *a, uint32_t blame, const char *named)
{
    ADV_AUTO(adv_hostlist) own = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO(adv_hostlist) said = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO(adv_hostlist) hit = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;
    char *s;

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (!own || !said || !hit || nodes_add(own, str_or(a->nodes)) < 0 || nodes_add(said, str_or(named)) < 0) {
        in->oom = true;
        return NULL;
    }
    if (blame != BLAME_NODE)
        return NULL; /* who only noticed is no culprit */
    for (size_t i = 0; i < adv_hostlist_count(said); i++) {
        char shortname[ADV_HOST_NAME_MAX + 1];
        const char *n = adv_hostlist_nth(said, i);
        if (!adv_hostlist_contains(own, n)) {
            (void) snprintf(shortname, sizeof(shortname), "%.*s", (int) strcspn(n, "."), n);
            n = shortname;
        }
        if (adv_hostlist_contains(own, n) && adv_hostlist_add(hit, n, NULL) < 0)
            in->oom = true; /* never more than own */
    }
    if (adv_hostlist_count(said) == 0 && adv_hostlist_count(own) == 1 && adv_hostlist_union(hit, own, NULL) < 0)
        in->oom = true;
    if (adv_hostlist_count(hit) == 0)
        return NULL;
    if (adv_hostlist_format(hit, &text, NULL) < 0 || !(s = strdup(text.data))) {
        in->oom = true;
        return NULL;
    }
    return s;
}

/* Nodes to which the evidence leads and did in an earlier attempt, too. Where most nodes are waited for, that leads to none:
 * one of the others did not wait. */
static char *led_to_again(struct intents *in, const struct attempt *a, const char *named)
{
    ADV_AUTO(adv_hostlist) now = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO(adv_hostlist) again = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;
    adv_auto_free char *own = named && !nodes_most(named, a->nodes) ? blamed_nodes(in, a, BLAME_NODE, named) : NULL;
    char *s = NULL;

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (!now || !again || (own && nodes_add(now, own) < 0)) {
        in->oom = true;
        return NULL;
    }
    for (uint32_t i = 0; own && i < a->job->n_attempts && a->job->attempts[i]->index < a->index; i++) {
        const struct anomaly *an;
        DL_FOREACH (a->job->attempts[i]->anomalies, an) {
            ADV_AUTO(adv_hostlist) then = adv_hostlist_new(ATTEMPT_MAX_NODES);
            bool leads = an->blame == BLAME_LEAD && an->named && an->status == ANOMALY_CONFIRMED &&
                         !nodes_most(an->named, a->job->attempts[i]->nodes);
            adv_auto_free char *old = leads ? blamed_nodes(in, a->job->attempts[i], BLAME_NODE, an->named) : NULL;
            if (!then || (old && nodes_add(then, old) < 0))
                in->oom = true;
            for (size_t k = 0; then && k < adv_hostlist_count(then); k++)
                if (adv_hostlist_contains(now, adv_hostlist_nth(then, k)) &&
                    adv_hostlist_add(again, adv_hostlist_nth(then, k), NULL) == -ADV_RESOURCE_EXHAUSTED)
                    in->oom = true;
        }
    }
    if (adv_hostlist_count(again) > 0 && (adv_hostlist_format(again, &text, NULL) < 0 || !(s = strdup(text.data))))
        in->oom = true;
    return s;
}

static char *at_fault(struct intents *in, const struct attempt *a, uint32_t blame, const char *named)
{
    return blame == BLAME_LEAD ? led_to_again(in, a, named) : blamed_nodes(in, a, blame, named);
}

void fleet_attribute(struct intents *in, struct attempt *a)
{
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an) {
        adv_auto_free char *nodes = NULL;
        if (an->nodes || an->blame != BLAME_NODE)
            continue;
        nodes = blamed_nodes(in, a, an->blame, an->named);
        if (nodes && str_set(in, &an->nodes, nodes))
            fleet_touch_anomaly(in, an);
    }
}

static void merge_nodes(struct intents *in, struct anomaly *an, char **list, const char *more)
{
    ADV_AUTO(adv_hostlist) all = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (!all || (*list && nodes_add(all, *list) < 0) || nodes_add(all, more) < 0 ||
        adv_hostlist_format(all, &text, NULL) < 0) {
        in->oom = true;
        return;
    }
    if (str_set(in, list, text.data))
        fleet_touch_anomaly(in, an);
}

void fleet_anomaly_names(struct intents *in, struct anomaly *an, const char *named)
{
    adv_auto_free char *nodes = fleet_own_nodes(in, an->attempt, named);

    merge_nodes(in, an, &an->named, named);
    if (nodes)
        merge_nodes(in, an, &an->nodes, nodes);
}

char *fleet_own_nodes(struct intents *in, const struct attempt *a, const char *named)
{
    return blamed_nodes(in, a, BLAME_NODE, named);
}

void fleet_apply_signature(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct anomaly *an = NULL, *t;
    adv_auto_free char *said = fleet_named_nodes(in, ev->u.finding.nodes, ev->u.finding.n_nodes);
    adv_auto_free char *led = said && ev->u.finding.blame == BLAME_LEAD ? fleet_own_nodes(in, a, said) : NULL;
    const char *named = ev->u.finding.blame == BLAME_LEAD ? led : said; /* a lead to others than its own leads nowhere */
    adv_auto_free char *nodes = at_fault(in, a, ev->u.finding.blame, named);
    bool ended = job_state_terminal(a->state), fresh = false, late = ev->u.finding.outside && fleet_too_late(a);
    int64_t left;

    DL_FOREACH (a->anomalies, t)
        if (!t->reported && adv_streq(str_or(t->rule), str_or(ev->u.finding.rule)))
            an = t;
    if (!an) {
        const struct anomaly candidate = { .status = ANOMALY_SUSPICION,
                                           .precedence = ev->u.finding.precedence,
                                           .retryable = ev->u.finding.retryable,
                                           .terminal = ev->u.finding.terminal,
                                           .late = late,
                                           .nodes = nodes,
                                           .offset = ev->u.finding.offset,
                                           .observe_us = ev->u.finding.observe_us,
                                           .rule = (char *) (uintptr_t) ev->u.finding.rule };
        if (!fleet_make_room(in, a, &candidate))
            return;
        an = fleet_anomaly_add(f, in, a, ev);
        if (!an)
            return;
        fresh = true;
        an->late = late;
        an->kind = ev->u.finding.anomaly;
        an->retryable = ev->u.finding.retryable;
        an->precedence = ev->u.finding.precedence;
        an->terminal = ev->u.finding.terminal;
        an->offset = ev->u.finding.offset;
        an->observe_us = ev->u.finding.observe_us;
        (void) str_set(in, &an->fault_class, ev->u.finding.fault_class);
        (void) str_set(in, &an->rule, ev->u.finding.rule);
        (void) str_set(in, &an->rules_version, ev->u.finding.rules_version);
        an->blame = ev->u.finding.blame;
        (void) str_set(in, &an->named, named);
        (void) str_set(in, &an->nodes, nodes);
        (void) str_set(in, &an->ranks, ev->u.finding.ranks);
        (void) str_set(in, &an->stream, ev->u.finding.stream);
        (void) str_set(in, &an->excerpt, ev->u.finding.excerpt);
        (void) str_set(in, &an->excerpt_sha256, ev->u.finding.excerpt_sha256);
        (void) str_set(in, &an->reporter, "watcher");
    } else if (late) {
        an->repeats++;
        fleet_touch_anomaly(in, an);
        return;
    } else if (!ev->u.finding.outside && ev->u.finding.offset <= an->last_offset &&
               adv_streq(str_or(an->stream), str_or(ev->u.finding.stream))) {
        return; /* read again after a lost connection */
    } else {
        an->repeats++;
        fresh = an->late && !ev->u.finding.outside; /* the agent read it, too: now it counts */
        an->late = false;
        if (an->status == ANOMALY_WITHDRAWN && !ended) { /* another one of its kind: what the last one named is over */
            (void) str_set(in, &an->named, NULL);
            (void) str_set(in, &an->nodes, NULL);
            (void) str_set(in, &an->ranks, ev->u.finding.ranks);
            (void) str_set(in, &an->stream, ev->u.finding.stream);
            (void) str_set(in, &an->excerpt, ev->u.finding.excerpt);
            (void) str_set(in, &an->excerpt_sha256, ev->u.finding.excerpt_sha256);
            an->offset = ev->u.finding.offset;
            an->observe_us = ev->u.finding.observe_us;
        }
        if (named && (ev->u.finding.blame == BLAME_NODE || ev->u.finding.blame == BLAME_LEAD)) {
            merge_nodes(in, an, &an->named, named);
            if (ev->u.finding.blame == BLAME_LEAD)
                (void) str_set(in, &an->ranks, ev->u.finding.ranks);
        }
        if (an->blame == BLAME_LEAD) { /* of all its lines: each may have named one of many */
            adv_auto_free char *all = led_to_again(in, a, an->named);
            if (str_set(in, &an->nodes, all))
                fleet_touch_anomaly(in, an);
        } else if (nodes) {
            merge_nodes(in, an, &an->nodes, nodes);
        }
    }
    an->last_offset = ev->u.finding.offset;
    if (late) {
        fleet_anomaly_told(in, an, ev);
        return;
    }
    an->sign_at = a->pulse ? a->pulse->signs : 0;
    an->line_mono_us = ev->mono_us;
    if (fresh || (an->status == ANOMALY_WITHDRAWN && !ended)) {
        an->step_at = a->last_step;
        an->progress_after = an->regained = 0;
        if (a->state == JOB_COMPLETED || a->state == JOB_CANCELLED)
            fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, "the attempt had ended otherwise");
        else
            fleet_anomaly_status(in, an, ANOMALY_SUSPICION, ev, "its signature is in the log");
    }
    if (an->terminal && !a->ms.first_suspicion_us) {
        a->ms.first_suspicion_us = ev->now_us;
        fleet_touch_attempt(in, a);
    }
    if (ended && job_state_failed(a->state))
        fleet_judge_by(f, a, ev->now_us + f->cfg.policy.log_settle_us);
    else if (!ended && an->terminal && fleet_is_last(a))
        fleet_judge_by(f, a, ev->now_us + f->cfg.policy.suspicion_grace_us);
    else if (!ended && an->kind == ANOMALY_HANG && fleet_is_last(a) && (left = fleet_silence_left_us(f, in, a, ev)) >= 0)
        fleet_judge_by(f, a, ev->now_us + left); /* the second witness, perhaps */
}

/* One piece of evidence for each rule that noticed something; the same again only widens it. Half of the room is kept for those
 * who report evidence from outside. */
void fleet_apply_notice(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    adv_auto_free char *named = fleet_named_nodes(in, ev->u.finding.nodes, ev->u.finding.n_nodes);
    adv_auto_free char *nodes = blamed_nodes(in, a, ev->u.finding.blame, named);
    ADV_AUTO(adv_hostlist) all = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;
    char uid[32], name[RESOURCE_NAME_MAX];
    struct evidence *e;
    bool fresh = true, ch = false;

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (named && !nodes && ev->u.finding.blame == BLAME_NODE)
        return; /* of no node that it uses */
    DL_FOREACH (a->evidence, e)
        if (adv_streq(str_or(e->reporter), "watcher") && adv_streq(str_or(e->kind), str_or(ev->u.finding.rule))) {
            fresh = false;
            break;
        }
    if (fresh) {
        if (a->n_evidence >= ATTEMPT_MAX_EVIDENCE / 2)
            return;
        if (!all || !(e = calloc(1, sizeof(*e)))) {
            in->oom = true;
            return;
        }
        e->attempt = a;
        fleet_mint_uid(f, ev->now_us, uid);
        (void) str_set(in, &e->uid, uid);
        (void) str_set(in, &e->source, "log");
        (void) str_set(in, &e->kind, ev->u.finding.rule);
        (void) str_set(in, &e->excerpt_sha256, ev->u.finding.excerpt_sha256);
        (void) str_set(in, &e->reporter, "watcher");
        fleet_str_take(&e->summary, fleet_strf(in, "%s: something for the administrators", str_or(ev->u.finding.fault_class)));
        e->window_start_us = e->observe_us = ev->u.finding.observe_us;
        e->record_us = ev->now_us;
        DL_APPEND(a->evidence, e);
        a->n_evidence++;
    }
    if (nodes && (!all || (e->nodes && nodes_add(all, e->nodes) < 0) || nodes_add(all, nodes) < 0 ||
                  adv_hostlist_format(all, &text, NULL) < 0))
        in->oom = true;
    else if (nodes)
        ch = str_set(in, &e->nodes, text.data);
    if (ev->u.finding.observe_us > e->window_end_us && (fresh || ev->u.finding.observe_us - e->window_end_us > NOTICE_STORE_US)) {
        e->window_end_us = ev->u.finding.observe_us;
        ch = true;
    }
    if (fresh || ch)
        fleet_touch(in, RESOURCE_EVIDENCE, e, a->job->cluster);
    if (fresh)
        fleet_audit(in, a->job->cluster, ev, e->observe_us, "signal.evidence", attempt_resource_name(a, name),
                    "log %s%s%s, excerpt %s",
                    e->kind, e->nodes ? " about " : "", str_or(e->nodes), e->excerpt_sha256 ? e->excerpt_sha256 : "none");
}

/* It does what its predecessor had not saved. Items and epochs are no position in the run: they count where nobody knows of
 * any, and then new ones have to be seen. */
static bool beyond(const struct attempt *a, const struct attempt *prev)
{
    if (a->has_steps)
        return a->last_step > prev->last_checkpoint_step;
    return a->steps_seen > 1 && prev->last_checkpoint_step == 0;
}

/* Output of before a suspicion may come after it for as long as a buffer holds it back. What still looks like that after the
 * grace is a launcher that has put its ranks elsewhere. */
static bool held_back(const struct fleet *f, const struct attempt *a, const struct event *ev)
{
    const struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status != ANOMALY_WITHDRAWN && ev->mono_us - an->line_mono_us < f->cfg.policy.suspicion_grace_us)
            return true;
    return false;
}

void fleet_apply_progress(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct attempt *prev = attempt_prev(a);
    uint64_t step = ev->u.finding.step;
    struct anomaly *an;
    bool store = false, counts;

    switch (ev->u.finding.kind) {
    case FINDING_PROGRESS:
        store = a->steps_seen == 0 || a->finished_us;
        if (ev->u.finding.unit == UNIT_STEP && !a->has_steps) { /* until now only other numbers were seen */
            a->has_steps = true;
            a->last_step = 0;
            DL_FOREACH (a->anomalies, an)
                an->step_at = 0;
        }
        counts = ev->u.finding.unit == UNIT_STEP || (!a->has_steps && ev->u.finding.unit != UNIT_NONE);
        counts = counts && !(ev->u.finding.late && held_back(f, a, ev));
        DL_FOREACH (a->anomalies, an) {
            if (an->status == ANOMALY_WITHDRAWN || !job_state_running(a->state) || !counts || anomaly_of_rhythm(an))
                continue;
            if (step < a->last_step) {
                an->regained = 0;
                an->progress_after = 0;
            } else if (step > a->last_step && step <= an->step_at) {
                an->regained++;
            }
            if (step > an->step_at)
                an->progress_after++;
            if (an->progress_after >= WITHDRAW_PROGRESS || an->regained >= REGAIN_PROGRESS) {
                adv_auto_free char *why = fleet_strf(in, "the attempt went on: step %llu came after it",
                                               (unsigned long long) step);
                fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, str_or(why));
                store = true;
            }
        }
        a->steps_seen++;
        if (counts)
            a->last_step = step;
        a->last_progress_us = ev->now_us;
        a->quiet_us = ev->mono_us;
        a->finished_us = 0;
        fleet_pulse_sign(f, in, a, ev);
        break;
    case FINDING_CHECKPOINT:
        fleet_pulse_sign(f, in, a, ev);
        store = a->checkpoints_seen++ == 0 || step > a->last_checkpoint_step;
        if (step > a->last_checkpoint_step)
            a->last_checkpoint_step = step;
        break;
    case FINDING_RESUMED:
        fleet_pulse_sign(f, in, a, ev);
        if (step == 0)
            break; /* from where, it does not say */
        a->resumed_from_step = step;
        store = true;
        /* a launcher that restarts inside the job begins lower: what comes after this step is progress again */
        DL_FOREACH (a->anomalies, an)
            if (an->status == ANOMALY_SUSPICION && step < an->step_at)
                an->step_at = step;
        break;
    case FINDING_FINISHED:
        store = !a->finished_us;
        a->finished_us = ev->now_us;
        fleet_pulse_sign(f, in, a, ev);
        break;
    case FINDING_RECOVERED:
        fleet_pulse_sign(f, in, a, ev);
        if (job_state_running(a->state))
            fleet_withdraw_all(in, a, ev, "the job deals with it itself");
        break;
    case FINDING_SIGNATURE:
    case FINDING_NOTICE:
        break;
    }
    fleet_spare(f, in, a, ev);
    if (prev && !prev->unseen && !prev->ms.successor_productive_us && beyond(a, prev)) {
        prev->ms.successor_productive_us = ev->now_us;
        fleet_touch_attempt(in, prev);
    }
    if (store || ev->now_us - a->progress_stored_us > PROGRESS_STORE_US) {
        a->progress_stored_us = ev->now_us;
        fleet_touch_attempt(in, a);
    }
}

#define SHED_OVER_US (300 * 1000000LL) /* a flood comes in waves */

bool attempt_log_shed(const struct attempt *a)
{
    return a->telemetry == TELEMETRY_PARTIAL && adv_streq(str_or(a->telemetry_reason), ADV_TELEMETRY_WHOLE_SINCE);
}

bool attempt_log_whole(const struct attempt *a)
{
    return !a->source_gap && (a->telemetry == TELEMETRY_COMPLETE || (a->shed_over && attempt_log_shed(a)));
}

void fleet_shed_check(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    if (a->shed_over || !a->shed_us || !job_state_running(a->state) || !attempt_log_shed(a))
        return;
    if (!a->shed_mono_us) /* an owner before saw it: how long ago, a clock that nobody sets does not know */
        a->shed_mono_us = ev->mono_us;
    if (ev->mono_us - a->shed_mono_us < SHED_OVER_US) {
        fleet_judge_by(f, a, ev->now_us + a->shed_mono_us + SHED_OVER_US - ev->mono_us);
        return;
    }
    a->shed_over = true;
    fleet_touch_attempt(in, a); /* its activity is another now */
    fleet_pulse_look(f, in, a, ev);
}

/* The log as the agent sees it, but never better than what arrived of it. */
static void set_telemetry(struct fleet *f, struct intents *in, struct attempt *a, enum telemetry_state state,
                          const char *reason, uint64_t dropped, const struct event *ev)
{
    bool ch;

    if (a->shed_bytes && (state == TELEMETRY_UNSET || state == TELEMETRY_COMPLETE)) {
        state = TELEMETRY_PARTIAL;
        reason = ADV_TELEMETRY_WHOLE_SINCE;
    }
    if (dropped < a->shed_bytes)
        dropped = a->shed_bytes;
    if (dropped > a->dropped_bytes || (dropped && !a->shed_us)) {
        a->shed_us = ev->now_us;
        a->shed_mono_us = ev->mono_us;
        a->shed_over = false;
    }
    ch = a->telemetry != state || a->dropped_bytes != dropped;
    a->telemetry = state;
    a->dropped_bytes = dropped;
    ch |= str_set(in, &a->telemetry_reason, reason);
    if (ch)
        fleet_touch_attempt(in, a);
    if (ch && job_state_running(a->state))
        fleet_pulse_look(f, in, a, ev);
    fleet_shed_check(f, in, a, ev);
    if (!ch)
        return;
    if (job_state_failed(a->state) && a->judge_at_us)
        fleet_judge_by(f, a, ev->now_us);
}

void fleet_apply_telemetry(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    set_telemetry(f, in, a, ev->u.telemetry.state, ev->u.telemetry.reason, ev->u.telemetry.dropped_bytes, ev);
}

void fleet_apply_source(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    bool ch = str_set(in, &a->source_gap, ev->u.source.gap);

    ch |= ev->u.source.fed && str_set(in, &a->source_fed, ev->u.source.fed);
    if (!ch)
        return;
    fleet_touch_attempt(in, a);
    if (job_state_running(a->state))
        fleet_pulse_look(f, in, a, ev);
}

/* The agent's reading of the file is what says that a log is complete: a shipper between may have lost what it liked. So a
 * source makes at most PARTIAL of nothing, and one that does not answer makes PARTIAL of COMPLETE. */
enum telemetry_state attempt_telemetry(const struct attempt *a, char why[TELEMETRY_WHY_MAX])
{
    const char *agent = str_or(a->telemetry_reason), *sep = *agent ? "; " : "";

    if (a->source_gap) {
        (void) snprintf(why, TELEMETRY_WHY_MAX, "%s%s%s", agent, sep, a->source_gap);
        return a->telemetry == TELEMETRY_COMPLETE ? TELEMETRY_PARTIAL : a->telemetry;
    }
    if (a->source_fed && (a->telemetry == TELEMETRY_UNSET || a->telemetry == TELEMETRY_LOST)) {
        (void) snprintf(why, TELEMETRY_WHY_MAX, "read by way of %s%s%s", a->source_fed,
                        *agent ? ", not by the agent: " : "", agent);
        return TELEMETRY_PARTIAL;
    }
    (void) snprintf(why, TELEMETRY_WHY_MAX, "%s", agent);
    return a->telemetry;
}

void fleet_apply_shed(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    adv_auto_free char *reason = a->telemetry_reason ? strdup(a->telemetry_reason) : NULL;

    a->shed_bytes = ev->u.shed.bytes > UINT64_MAX - a->shed_bytes ? UINT64_MAX : a->shed_bytes + ev->u.shed.bytes;
    fleet_touch_attempt(in, a);
    set_telemetry(f, in, a, a->telemetry, reason, a->dropped_bytes, ev);
}

struct attempt *fleet_find_attempt(struct fleet *f, struct cluster *c, const char *job_id, uint32_t restart_count,
                                   int64_t submit_unix)
{
    struct job *j = fleet_find_job(c, job_id);
    struct attempt *a = j ? job_attempt(j, restart_count) : NULL;

    if (a && !attempt_meant(a, submit_unix))
        a = NULL;

    if (!a)
        f->dropped_events++;
    return a;
}
