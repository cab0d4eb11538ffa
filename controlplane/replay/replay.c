/* SPDX-License-Identifier: Apache-2.0 */
/* The made-up world: cluster "log", one batch job "1" that opted in and ran for an hour, an agent that holds the lease and
 * may do everything. Its time begins at START_US and moves only to the domain's own deadlines.
 *
 * Where nobody says which hosts the attempt had, the log is scanned twice: first for the names. That is harder than life, in
 * which a name that is none of the attempt's is left out. */

#include "controlplane/replay/replay.h"

#include <stdio.h>
#include <utlist.h>

#include "common/hostlist.h"
#include "controlplane/domain/decide.h"
#include "controlplane/domain/pulse.h"
#include "controlplane/replay/logclock.h"
#include "controlplane/watcher/report.h"

#define FOREVER_US (INT64_C(1000) * 86400 * 1000000) /* no lease ends while a log is read */
#define START_US   (INT64_C(1700000000) * 1000000)
#define RAN_S      3600
#define HORIZON_US (INT64_C(4) * 3600 * 1000000)
#define SILENCE_MIN_US (INT64_C(1800) * 1000000) /* of a log that has shown too few steps for a rhythm, but said how long */
#define SILENCE_STEPS  20                        /* they take */
#define PIECE_MAX      65536
#define HOSTS_MAX  1024
#define SPARE_MIN  16 /* nodes of the cluster that the job does not use */
#define CLUSTER    "log"
#define JOB        "1"
#define AGENT      "replay"

struct replay {
    const struct replay_options *o;
    struct fleet *fleet;
    struct adv_hostlist *hosts; /* of the attempt */
    char *nodes;                /* the same as text */
    int64_t now_us;
    const char *bytes;
    size_t len;
    size_t line, line_at; /* number and offset of the line found last */
    const struct watcher_rule *notice; /* the weightiest */
    struct adv_hostlist *notice_hosts;
    int64_t sign_us; /* of the last sign of life in the log */
    bool silent;     /* the log's own times show that it had been silent */
    bool acted;  /* before the log was at its end: what came after that would not have come */
    bool oom;
};

static int no_memory(struct adv_err *err)
{
    return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "replay: no memory");
}

static void tell(struct replay *r, size_t line, const struct watcher_finding *f, const char *verb, const char *detail)
{
    const struct replay_step step = { .line = line, .finding = f, .verb = verb, .detail = detail };

    if (r->o->fn)
        r->o->fn(r->o->ctx, &step);
}

static void apply(struct replay *r, struct event *ev, size_t line)
{
    struct adv_err err = { 0 };
    struct intents in;

    intents_init(&in);
    ev->now_us = ev->mono_us = r->now_us;
    ev->principal = "replay";
    ev->cluster = CLUSTER;
    if (fleet_apply(r->fleet, ev, &in, &err) < 0 || in.oom)
        r->oom = true; /* the events are ours: nothing else makes one fail */
    for (size_t i = 0; i < in.n_audit; i++)
        if (adv_startswith(in.audit[i].verb, "anomaly.") || adv_startswith(in.audit[i].verb, "advice."))
            tell(r, line, NULL, in.audit[i].verb, str_or(in.audit[i].detail));
    intents_done(&in);
}

static struct attempt *the_attempt(struct replay *r)
{
    struct cluster *c = fleet_find_cluster(r->fleet, CLUSTER);
    struct job *j = c ? fleet_find_job(c, JOB) : NULL;

    return j ? job_attempt(j, 0) : NULL;
}

/* ---- the log ---------------------------------------------------------------------------------------------------- */

/* The number of the line at @offset; lines of \r count as one, as an editor has it. */
static size_t line_of(struct replay *r, uint64_t offset)
{
    if (offset < r->line_at) {
        r->line_at = 0;
        r->line = 0;
    }
    if (r->line == 0)
        r->line = 1;
    for (; r->line_at < offset && r->line_at < r->len; r->line_at++)
        r->line += r->bytes[r->line_at] == '\n';
    return r->line;
}

/* Notices open no suspicion; they are for people. */
static void note(struct replay *r, const struct watcher_finding *f)
{
    if (f->rule->precedence < WATCHER_NOTICE_FOR_PEOPLE)
        return;
    if (r->notice && f->rule != r->notice && f->rule->precedence <= r->notice->precedence)
        return;
    if (f->rule != r->notice) {
        (void) adv_hostlist_free(r->notice_hosts);
        r->notice_hosts = adv_hostlist_new(HOSTS_MAX);
        r->oom |= !r->notice_hosts;
        r->notice = f->rule;
    }
    if (r->notice_hosts && f->rule->blames == WATCHER_BLAMES_NODE)
        (void) !adv_hostlist_parse(r->notice_hosts, f->node, NULL); /* what is no host name is left out */
}

static void on_finding(void *ctx, const struct watcher_finding *f)
{
    struct replay *r = ctx;
    struct event ev = { 0 };
    struct watcher_report report;
    size_t line = line_of(r, f->offset);

    tell(r, line, f, NULL, NULL);
    if (f->type == WATCHER_NOTICE)
        note(r, f);
    else if (f->type == WATCHER_PROGRESS || f->type == WATCHER_CHECKPOINT || f->type == WATCHER_RESUMED)
        r->sign_us = r->now_us;
    if (watcher_report_fill(&report, f, watcher_rules_version(r->o->rules), &ev)) {
        ev.u.finding.job_id = JOB;
        ev.u.finding.stream = "log";
        apply(r, &ev, line);
    }
    watcher_report_done(&report);
}

static void add_name(struct replay *r, const char *names)
{
    ADV_AUTO(adv_hostlist) some = adv_hostlist_new(HOSTS_MAX);

    if (!some || adv_hostlist_parse(some, names, NULL) < 0)
        return;
    for (size_t i = 0; i < adv_hostlist_count(some); i++) {
        const char *n = adv_hostlist_nth(some, i);
        if (n[strspn(n, "0123456789.")]) /* an address is no name of a scheduler's */
            (void) !adv_hostlist_add(r->hosts, n, NULL);
    }
}

static void on_name(void *ctx, const struct watcher_finding *f)
{
    add_name(ctx, f->node);
    add_name(ctx, f->reporter);
}

static int scan_names(struct replay *r, struct adv_err *err)
{
    const struct watcher_scan_options o = { .stream = r->o->stream, .node = r->o->node, .explain = true, .fn = on_name, .ctx = r };
    ADV_AUTO(watcher_scan) s = NULL;
    int rc = watcher_scan_new(r->o->rules, &o, &s, err);

    if (rc == 0)
        rc = watcher_scan_feed(s, 0, r->bytes, r->len, 0, r->now_us, err);
    if (rc == 0)
        watcher_scan_finish(s, r->now_us);
    return rc;
}

static int find_hosts(struct replay *r, struct adv_err *err)
{
    ADV_AUTO_DONE(adv_buf) text;
    int rc = 0;

    adv_buf_init(&text, 1 << 20);
    r->hosts = adv_hostlist_new(HOSTS_MAX);
    if (!r->hosts)
        return no_memory(err);
    if (r->o->nodes) {
        rc = adv_hostlist_parse(r->hosts, r->o->nodes, err);
    } else {
        if (r->o->node)
            add_name(r, r->o->node);
        rc = scan_names(r, err);
        if (rc == 0)
            rc = adv_hostlist_parse(r->hosts, "other[1-2]", err);
    }
    if (rc == 0)
        rc = adv_hostlist_format(r->hosts, &text, err);
    if (rc == 0 && !(r->nodes = strdup(text.data)))
        rc = no_memory(err);
    return rc;
}

/* ---- the scheduler ---------------------------------------------------------------------------------------------- */

static void send_state(struct replay *r, enum job_state state, bool full)
{
    size_t n_hosts = adv_hostlist_count(r->hosts), n_spare = SPARE_MIN + 8 * n_hosts, n = full ? n_hosts + n_spare : 0;
    struct node_obs *nodes = calloc(n + 1, sizeof(*nodes));
    char (*names)[24] = calloc(n_spare, sizeof(*names));
    struct cluster *c = fleet_find_cluster(r->fleet, CLUSTER);
    struct job *old = c ? fleet_find_job(c, JOB) : NULL;
    bool ended = job_state_terminal(state);
    struct job_obs o = {
        .job_id = JOB,
        .state = state,
        .state_raw = job_state_name(state),
        .requeueable = true,
        .batch = true,
        .exit_code = job_state_failed(state) ? 1 : 0,
        .submit_unix = START_US / 1000000 - RAN_S,
        .incarnation_unix = START_US / 1000000 - RAN_S,
        .start_unix = START_US / 1000000 - RAN_S,
        .end_unix = ended ? r->now_us / 1000000 : 0,
        .nodes = r->nodes,
        .num_nodes = (uint32_t) n_hosts,
        .user = "user",
        .partition = "main",
        .detail_known = true,
        .name = "job",
        .comment = "{\"advisor\":{}}",
        .hash = 1000 + (uint64_t) state,
    };
    struct event ev = { .type = EV_STATE_UPDATE };

    if (!nodes || !names) {
        r->oom = true;
    } else {
        uint64_t digest = full || !c ? 0 : cluster_digest(c);
        for (size_t i = 0; i < n; i++) {
            nodes[i] = (struct node_obs) { .name = adv_hostlist_nth(r->hosts, i), .state_raw = "IDLE", .available = true,
                                           .hash = i + 1 };
            if (i >= n_hosts) {
                (void) snprintf(names[i - n_hosts], sizeof(names[0]), "spare%zu", i - n_hosts);
                nodes[i].name = names[i - n_hosts];
            }
            digest ^= i + 1;
        }
        if (!full && old && old->present)
            digest ^= old->hash;
        ev.u.state.instance_id = AGENT;
        ev.u.state.full_begin = ev.u.state.full_end = full;
        ev.u.state.jobs = &o;
        ev.u.state.n_jobs = 1;
        ev.u.state.nodes = nodes;
        ev.u.state.n_nodes = n;
        ev.u.state.digest = digest ^ o.hash;
        apply(r, &ev, 0);
    }
    free(nodes);
    free(names);
}

static int begin(struct replay *r, struct adv_err *err)
{
    struct fleet_config cfg = { .lease_us = FOREVER_US, .log_detection = true };
    struct event create = { .type = EV_CLUSTER_CREATE }, mode = { .type = EV_SET_MODE }, hello = { .type = EV_AGENT_HELLO };
    struct event telemetry = { .type = EV_TELEMETRY };

    policy_defaults(&cfg.policy);
    r->fleet = fleet_new(&cfg);
    if (!r->fleet)
        return no_memory(err);
    fleet_load_done(r->fleet, true, r->now_us, r->now_us);
    apply(r, &create, 0);
    mode.u.set_mode.mode = MODE_ACT;
    mode.u.set_mode.reason = "";
    apply(r, &mode, 0);
    hello.u.hello.serial = "";
    hello.u.hello.issued_s = INT64_MAX;
    hello.u.hello.instance_id = hello.u.hello.journal_id = AGENT;
    hello.u.hello.journal_persistent = true;
    hello.u.hello.agent_version = "0";
    hello.u.hello.scheduler = "none";
    hello.u.hello.ceiling = MODE_ACT;
    hello.u.hello.ceiling_reason = "";
    apply(r, &hello, 0);
    send_state(r, JOB_RUNNING, true);
    telemetry.u.telemetry.job_id = JOB;
    telemetry.u.telemetry.state = TELEMETRY_COMPLETE;
    telemetry.u.telemetry.reason = "";
    apply(r, &telemetry, 0);
    if (r->o->progressed || r->o->stream != WATCHER_SCOPE_APPLICATION) { /* the job's own output is elsewhere */
        struct event step = { .type = EV_FINDING };
        step.u.finding.job_id = JOB;
        step.u.finding.kind = FINDING_PROGRESS;
        step.u.finding.step = 1;
        step.u.finding.stream = "stdout";
        apply(r, &step, 0);
    }
    return r->oom || !the_attempt(r) ? no_memory(err) : 0;
}

static void tick_until(struct replay *r, int64_t until_us)
{
    for (int64_t at; !r->oom && (at = fleet_next_deadline(r->fleet)) && at <= until_us;) {
        struct event ev = { .type = EV_TICK };
        if (at > r->now_us)
            r->now_us = at;
        apply(r, &ev, 0);
    }
}

/* Time goes on until nothing waits any more. */
static void wait_for_decision(struct replay *r)
{
    tick_until(r, r->now_us + HORIZON_US);
}

static bool silence_stands(const struct attempt *a)
{
    const struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (anomaly_of_rhythm(an) && an->kind == ANOMALY_HANG && an->status != ANOMALY_WITHDRAWN)
            return true;
    return false;
}

/* The log in the order and at the times in which it was written, as far as it tells. */
static int read_log(struct replay *r, struct watcher_scan_stats *stats, struct adv_err *err)
{
    const struct watcher_scan_options o = { .stream = r->o->stream, .node = r->o->node, .explain = true, .fn = on_finding, .ctx = r };
    ADV_AUTO(watcher_scan) s = NULL;
    struct logclock clock;
    int rc = watcher_scan_new(r->o->rules, &o, &s, err);

    logclock_init(&clock, r->now_us);
    r->sign_us = r->now_us;
    for (size_t fed = 0, at = 0, n; rc == 0 && fed < r->len && !r->acted && !r->oom; at += n) {
        const char *nl = at < r->len ? memchr(r->bytes + at, '\n', r->len - at) : NULL, *cr;
        const struct attempt *a = the_attempt(r);
        int64_t then_us = r->now_us;
        n = nl ? (size_t) (nl - r->bytes) + 1 - at : r->len - at;
        if (n > 0 && (cr = memchr(r->bytes + at, '\r', n))) /* a bar overwrites itself: each is a line */
            n = (size_t) (cr - r->bytes) + 1 - at;
        if (n > 0)
            then_us = logclock_line(&clock, r->bytes + at, n);
        if (n > 0 && then_us <= r->now_us && at - fed < PIECE_MAX)
            continue; /* lines of one moment are one piece */
        rc = watcher_scan_feed(s, fed, r->bytes + fed, at - fed, 0, r->now_us, err);
        fed = at;
        tick_until(r, then_us);
        if (then_us > r->now_us)
            r->now_us = then_us;
        r->acted = a && a->advice && a->advice->desired == DESIRED_RESTARTED && job_state_running(a->state);
    }
    if (rc == 0) {
        watcher_scan_finish(s, r->now_us);
        *stats = *watcher_scan_stats(s);
        r->silent = (the_attempt(r) && silence_stands(the_attempt(r))) ||
                    (clock.step_us > 0 && r->now_us - r->sign_us > SILENCE_MIN_US && r->now_us - r->sign_us > SILENCE_STEPS * clock.step_us);
    }
    return rc;
}

/* ---- what came of it -------------------------------------------------------------------------------------------- */

static bool dies(const struct attempt *a)
{
    const struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION && an->terminal)
            return true;
    return false;
}

static char *copy(struct replay *r, const char *s)
{
    char *c = s ? strdup(s) : NULL;

    r->oom |= s && !c;
    return c;
}

static bool has_reason(const struct advice *ad, const char *code)
{
    for (uint32_t i = 0; ad && i < ad->n_reasons; i++)
        if (adv_streq(ad->reasons[i].code, code))
            return true;
    return false;
}

/* What is held against a running attempt about which nothing is done: somebody is about to end it; it crawls; or it is silent
 * and either its owner has to mend something or its log has shown the silence itself. */
static const struct anomaly *standing(const struct replay *r, const struct attempt *a, enum anomaly_kind *ret_kind)
{
    const struct anomaly *an, *slow = NULL, *own = NULL, *silence = NULL;
    bool silent = silence_stands(a);

    if (!job_state_running(a->state) || a->finished_us)
        return NULL;
    DL_FOREACH (a->anomalies, an) {
        if (an->status == ANOMALY_WITHDRAWN)
            continue;
        if (anomaly_on_purpose(an)) {
            *ret_kind = an->kind;
            return an;
        }
        if (an->kind == ANOMALY_STRAGGLER)
            slow = an;
        else if (an->retryable == RETRYABLE_NO && (!own || anomaly_weightier(an, own)))
            own = an;
        else if (anomaly_of_rhythm(an))
            silence = an;
    }
    *ret_kind = slow && !(silent && own) ? ANOMALY_STRAGGLER : ANOMALY_HANG;
    return silent && own ? own : slow ? slow : r->silent ? silence : NULL;
}

/* The nodes of it that evidence names: that are at fault, or where to look first. */
static char *nodes_of(struct replay *r, const struct anomaly *an)
{
    ADV_AUTO(adv_hostlist) named = adv_hostlist_new(HOSTS_MAX);
    ADV_AUTO(adv_hostlist) own = adv_hostlist_new(HOSTS_MAX);
    ADV_AUTO_DONE(adv_buf) text;

    adv_buf_init(&text, 1 << 20);
    if (an->nodes || an->blame != BLAME_LEAD || !an->named)
        return copy(r, an->nodes);
    if (!named || !own || adv_hostlist_parse(named, an->named, NULL) < 0) {
        r->oom = true;
        return NULL;
    }
    for (size_t i = 0; i < adv_hostlist_count(named); i++)
        if (adv_hostlist_contains(r->hosts, adv_hostlist_nth(named, i)))
            r->oom |= adv_hostlist_add(own, adv_hostlist_nth(named, i), NULL) < 0;
    if (adv_hostlist_count(own) == 0 || nodes_most(an->named, r->nodes))
        return NULL;
    r->oom |= adv_hostlist_format(own, &text, NULL) < 0;
    return copy(r, text.data);
}

/* Something is wrong with a node of it, and it is not known to suffer: for the administrators, as a notice is. */
static const struct anomaly *suspected(const struct attempt *a)
{
    const struct anomaly *an, *best = NULL;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION && an->blame == BLAME_NODE && an->nodes && !an->terminal && !anomaly_of_rhythm(an) &&
            (!best || anomaly_weightier(an, best)))
            best = an;
    return best;
}

static void note_suspected(struct replay *r, const struct attempt *a, struct replay_verdict *v)
{
    const struct anomaly *best = suspected(a);

    if (!best)
        return;
    (void) snprintf(v->notice_class, sizeof(v->notice_class), "%s", str_or(best->fault_class));
    (void) snprintf(v->notice_rule, sizeof(v->notice_rule), "%s", str_or(best->rule));
    v->notice_nodes = copy(r, best->nodes);
}

static void conclude(struct replay *r, const struct attempt *a, struct replay_verdict *v)
{
    const struct advice *ad = a->advice;
    const struct anomaly *best = decide_best_anomaly(a), *an;
    bool acts = ad && ad->desired != DESIRED_NO_ACTION;
    enum anomaly_kind kind = ANOMALY_CRASH;

    DL_FOREACH (a->anomalies, an) /* that the advice rests on, if there is one */
        if (ad && ad->anomaly_uid && adv_streq(str_or(an->uid), ad->anomaly_uid))
            best = an;

    v->desired = DESIRED_NO_ACTION;
    if (r->notice) {
        ADV_AUTO_DONE(adv_buf) text;
        adv_buf_init(&text, 1 << 20);
        (void) snprintf(v->notice_class, sizeof(v->notice_class), "%s", watcher_class_name(r->notice->fault_class));
        (void) snprintf(v->notice_rule, sizeof(v->notice_rule), "%s", r->notice->id);
        v->notice_hang = r->notice->anomaly == WATCHER_ANOMALY_HANG;
        if (r->notice_hosts && adv_hostlist_count(r->notice_hosts) > 0 && adv_hostlist_format(r->notice_hosts, &text, NULL) == 0)
            v->notice_nodes = copy(r, text.data);
    }
    if (ad) {
        v->desired = ad->desired;
        v->interrupts = ad->may_interrupt;
        v->user_fault = has_reason(ad, "user_fault");
        v->exclude_nodes = copy(r, ad->exclude_nodes);
        v->summary = copy(r, ad->summary);
    }
    if (has_reason(ad, "had_finished"))
        return;
    if (!best || (best->status != ANOMALY_CONFIRMED && !acts)) {
        if (!(best = standing(r, a, &kind))) {
            if (!r->notice)
                note_suspected(r, a, v);
            return;
        }
        v->stands = true;
        if (kind == ANOMALY_STRAGGLER && adv_streq(str_or(best->fault_class), "unknown") && suspected(a))
            best = suspected(a); /* why it crawls */
    }
    v->anomaly = true;
    v->on_purpose = has_reason(ad, "ended_on_purpose") || (v->stands && anomaly_on_purpose(best));
    v->kind = v->stands ? kind : best->kind;
    v->retryable = best->retryable;
    (void) snprintf(v->fault_class, sizeof(v->fault_class), "%s", str_or(best->fault_class));
    (void) snprintf(v->rule, sizeof(v->rule), "%s", str_or(best->rule));
    (void) snprintf(v->excerpt, sizeof(v->excerpt), "%s", str_or(best->excerpt));
    v->nodes = nodes_of(r, best);
    v->ranks = copy(r, best->ranks);
    v->line = best->rule ? line_of(r, best->offset) : 0;
    DL_FOREACH (a->anomalies, an)
        v->n_consequences += an != best && an->status == ANOMALY_CONFIRMED;
}

int replay_run(const struct replay_options *o, const char *bytes, size_t len, struct replay_verdict *ret, struct adv_err *err)
{
    struct replay r = { .o = o, .bytes = bytes, .len = len, .now_us = START_US };
    enum job_state state = o->state;
    int rc;

    *ret = (struct replay_verdict) { 0 };
    rc = find_hosts(&r, err);
    if (rc == 0)
        rc = begin(&r, err);
    if (rc == 0)
        rc = read_log(&r, &ret->stats, err);
    if (rc == 0) {
        if (r.acted)
            state = JOB_RUNNING;
        else
            fleet_nothing_more(r.fleet, the_attempt(&r), r.now_us);
        if (state == JOB_UNKNOWN)
            state = dies(the_attempt(&r)) ? JOB_FAILED : JOB_RUNNING;
        r.now_us += 1000000;
        if (state != JOB_RUNNING)
            send_state(&r, state, false);
        wait_for_decision(&r);
        conclude(&r, the_attempt(&r), ret);
        if (r.oom)
            rc = no_memory(err);
    }
    r.fleet = fleet_free(r.fleet);
    r.hosts = adv_hostlist_free(r.hosts);
    r.notice_hosts = adv_hostlist_free(r.notice_hosts);
    free(r.nodes);
    if (rc < 0)
        replay_verdict_done(ret);
    return rc;
}

void replay_verdict_done(struct replay_verdict *v)
{
    free(v->nodes);
    free(v->ranks);
    free(v->notice_nodes);
    free(v->exclude_nodes);
    free(v->summary);
    *v = (struct replay_verdict) { 0 };
}

const char *replay_outcome(const struct replay_verdict *v)
{
    if (v->desired == DESIRED_RESTARTED)
        return v->exclude_nodes ? "RESTART_EXCLUDING_NODES" : "RESTART";
    return v->user_fault ? "TERMINATE" : "NO_ACTION";
}

const char *replay_kind(const struct replay_verdict *v)
{
    if (!v->anomaly)
        return v->notice_hang ? "hang" : "none";
    if (v->on_purpose)
        return "none";
    return v->kind == ANOMALY_HANG ? "hang" : v->kind == ANOMALY_STRAGGLER ? "straggler" : "crash";
}
