/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of the decision over random histories, and of the advice that the fleet makes of it over random orders of
 * events. A failing case prints its number; cases depend on nothing but that. */

#include <criterion/criterion.h>
#include <stdio.h>
#include <utlist.h>

#include "controlplane/domain/fleet.h"
#include "controlplane/domain/nodefault.h"
#include "controlplane/domain/pulse.h"

#define CASES       120000
#define FLEET_CASES 3000
#define NODES       24
#define RULES       14

/* ---- a generator ------------------------------------------------------------------------------------------------ */

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t) ((seed >> 20) % n);
}

static bool chance(uint32_t percent)
{
    return rnd(100) < percent;
}

static const char *const classes[] = { "gpu_hardware", "network_fabric", "storage",     "application_bug", "configuration",
                                       "preemption",   "time_limit",     "user_cancel", "unknown",         "host_memory" };
static const char *const rules[RULES] = { "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "r13" };

struct world {
    struct cluster c;
    struct node nodes[NODES];
    char node_names[NODES][8];
    struct job j;
    struct attempt attempts[5], *index[5];
    struct anomaly anomalies[5][ATTEMPT_MAX_ANOMALIES + 1];
    struct evidence evidence[6];
    struct advice advice[5];
    char lists[80][128];
    size_t n_lists;
    struct policy p;
    int64_t now_us;
};

static char *word(const char *s)
{
    return (char *) (uintptr_t) s;
}

/* A list of up to @max nodes between @from and @to. */
static char *some_nodes(struct world *w, uint32_t from, uint32_t to, uint32_t max)
{
    char *s = w->lists[w->n_lists++];
    uint32_t n = rnd(max) + 1;

    s[0] = '\0';
    for (uint32_t i = from; i < to && n; i++)
        if (chance(50)) {
            (void) snprintf(s + strlen(s), sizeof(w->lists[0]) - strlen(s), "%sn%u", *s ? "," : "", i);
            n--;
        }
    return *s ? s : NULL;
}

static void random_anomaly(struct world *w, struct attempt *a, struct anomaly *an, uint32_t from, uint32_t to)
{
    *an = (struct anomaly) { .attempt = a,
                             .kind = ANOMALY_CRASH,
                             .status = (enum anomaly_status) (1 + rnd(3)),
                             .fault_class = word(classes[rnd(ADV_ARRAY_LEN(classes))]),
                             .rule = word(rules[a->n_anomalies]),
                             .retryable = (enum retryable) rnd(3),
                             .precedence = (int32_t) rnd(6) * 10,
                             .terminal = chance(60),
                             .offset = rnd(50),
                             .uid = word("u"),
                             .excerpt = word("é…") };
    if (chance(50))
        an->nodes = some_nodes(w, from, to, 6);
    DL_APPEND(a->anomalies, an);
    a->n_anomalies++;
}

static const char *const evidence_classes[] = { "gpu_hardware", "node_failure", "network_fabric", "storage", "application_bug", NULL };

static void random_evidence(struct world *w, struct attempt *a, struct evidence *e, uint32_t from, uint32_t to)
{
    *e = (struct evidence) { .attempt = a,
                             .uid = word(rules[a->n_evidence]),
                             .source = word(chance(50) ? "logs" : "dcgm"),
                             .kind = word(chance(95) ? "node-log" : NODEFAULT_KIND_MORE),
                             .reporter = word(chance(50) ? "detector:x" : "detector:y"),
                             .fault_class = word(evidence_classes[rnd(ADV_ARRAY_LEN(evidence_classes))]),
                             .origin = (enum evidence_origin) rnd(3),
                             .late = chance(10),
                             .weight_percent = 50 + 10 * rnd(3),
                             .observe_us = w->now_us - (int64_t) rnd(3) * rnd(2000) * 1000000 };
    if (chance(90))
        e->nodes = some_nodes(w, from, to, chance(70) ? 1 : 4);
    DL_APPEND(a->evidence, e);
    a->n_evidence++;
}

static void make_world(struct world *w, uint64_t n)
{
    uint32_t last;

    memset(w, 0, offsetof(struct world, lists));
    w->n_lists = 0;
    seed = (n + 1) * 0x9e3779b97f4a7c15ULL;
    for (int i = 0; i < 8; i++)
        (void) rnd(2);
    w->now_us = 1000000LL * 1000000;
    policy_defaults(&w->p);
    w->p.exclude_max_percent = rnd(101);
    w->p.attribution_min_percent = rnd(3) * 30;
    (void) snprintf(w->p.trusted_reporters, sizeof(w->p.trusted_reporters), "detector:x\n");
    w->c = (struct cluster) { .name = word("a"), .mode = (enum adv_mode) (1 + rnd(4)), .ceiling = (enum adv_mode) rnd(5),
                              .agent_state = AGENT_CONNECTED, .journal_persistent = chance(90) };
    for (int i = 0; i < NODES; i++) {
        (void) snprintf(w->node_names[i], sizeof(w->node_names[i]), "n%d", i);
        w->nodes[i].name = w->node_names[i];
        HASH_ADD_KEYPTR(hh, w->c.nodes, w->nodes[i].name, strlen(w->nodes[i].name), &w->nodes[i]);
    }
    last = rnd(5);
    w->j = (struct job) { .cluster = &w->c, .uid = word("u"), .job_id = word("1"), .batch = chance(95),
                          .requeueable = chance(90), .opt_mode = (enum adv_mode) rnd(5), .max_restarts = rnd(5),
                          .incarnation_unix = chance(90), .attempts = w->index, .n_attempts = last + 1 };
    for (uint32_t i = 0; i <= last; i++) {
        struct attempt *a = w->index[i] = &w->attempts[i];
        uint32_t from = rnd(NODES - 4), to = from + 4 + rnd(NODES - from - 3);
        *a = (struct attempt) { .job = &w->j, .index = i, .state = (enum job_state) rnd(JOB_STATE_LAST_ + 1),
                                .exit_code = rnd(3), .exit_signal = chance(20) ? 9 : 0, .unseen = i < last && chance(10),
                                .steps_seen = rnd(3), .last_checkpoint_step = rnd(4) * 100,
                                .start_unix = 1000000 - rnd(8000), .end_unix = chance(80) ? 1000000 - rnd(200) : 0 };
        a->ms.end_observed_us = w->now_us - (int64_t) rnd(120) * 1000000;
        if (chance(70) && i == last)
            a->state = chance(70) ? JOB_FAILED : JOB_NODE_FAIL;
        a->nodes = some_nodes(w, from, to, NODES);
        for (uint32_t k = rnd(ATTEMPT_MAX_ANOMALIES); k > 0; k--)
            random_anomaly(w, a, &w->anomalies[i][k], from, to);
        if (i == last && chance(30))
            a->last_progress_us = w->now_us - (int64_t) rnd(300) * 1000000;
        for (uint32_t k = i == last && chance(60) ? rnd(ADV_ARRAY_LEN(w->evidence)) : 0; k > 0; k--)
            random_evidence(w, a, &w->evidence[k], from, to);
        if (i < last && chance(40)) {
            w->advice[i] = (struct advice) { .attempt = a, .desired = DESIRED_RESTARTED,
                                             .exclude_nodes = some_nodes(w, from, to, 3),
                                             .disposition = (enum disposition) rnd(5) };
            a->advice = &w->advice[i];
        }
    }
}

static void free_world(struct world *w)
{
    HASH_CLEAR(hh, w->c.nodes);
}

static struct attempt *newest(struct world *w)
{
    return w->index[w->j.n_attempts - 1];
}

/* ---- properties ------------------------------------------------------------------------------------------------- */

static bool same_decision(const struct decision *a, const struct decision *b)
{
    bool same = a->desired == b->desired && a->actionability == b->actionability && a->may_interrupt == b->may_interrupt &&
                a->not_before_us == b->not_before_us && a->anomaly == b->anomaly && a->n_reasons == b->n_reasons &&
                adv_streq(str_or(a->exclude_nodes), str_or(b->exclude_nodes)) &&
                adv_streq(str_or(a->summary), str_or(b->summary));

    for (uint32_t i = 0; same && i < a->n_reasons; i++)
        same = adv_streq(a->reasons[i].code, b->reasons[i].code) &&
               adv_streq(a->reasons[i].sentence, b->reasons[i].sentence) && adv_streq(a->reasons[i].param, b->reasons[i].param);
    return same;
}

static void shuffle(struct attempt *a)
{
    struct anomaly *v[ATTEMPT_MAX_ANOMALIES + 1], *an;
    size_t n = 0;

    DL_FOREACH (a->anomalies, an)
        v[n++] = an;
    a->anomalies = NULL;
    while (n) {
        size_t i = rnd((uint32_t) n);
        DL_APPEND(a->anomalies, v[i]);
        v[i] = v[--n];
    }
    struct evidence *ev[ATTEMPT_MAX_EVIDENCE], *e;
    DL_FOREACH (a->evidence, e)
        ev[n++] = e;
    a->evidence = NULL;
    while (n) {
        size_t i = rnd((uint32_t) n);
        DL_APPEND(a->evidence, ev[i]);
        ev[i] = ev[--n];
    }
}

static bool on_purpose(const struct anomaly *an)
{
    return adv_streq(an->fault_class, "user_cancel") || adv_streq(an->fault_class, "time_limit") ||
           adv_streq(an->fault_class, "preemption");
}

/* Evidence about nodes says who is left out of a restart, and may explain an end that nothing else explains; what people or programs
 * are the cause of it leaves as it is, and nodes that the log names, too. True: it made a difference. */
static bool check_evidence(struct world *w, struct attempt *a, const struct decision *d, uint64_t n)
{
    const struct anomaly *best = decide_best_anomaly(a);
    struct evidence *kept = a->evidence, *e;
    struct decision without;
    bool counts = false, observed = false, differs;

    DL_FOREACH (a->evidence, e)
        if (nodefault_believed(e, &w->p)) {
            counts = true;
            observed |= e->origin != EVIDENCE_OF_PROVIDER;
        }
    a->evidence = NULL;
    decide_attempt(a, &w->p, w->now_us, &without);
    a->evidence = kept;
    differs = d->desired != without.desired || d->not_before_us != without.not_before_us ||
              !adv_streq(str_or(d->exclude_nodes), str_or(without.exclude_nodes));
    cr_assert(!differs || counts, "case %zu: evidence that nobody believes counts", (size_t) n);
    if (!job_state_failed(a->state) && !job_state_running(a->state))
        cr_assert(same_decision(d, &without), "case %zu: %s", (size_t) n, job_state_name(a->state));
    if (a->finished_us || (best && (best->retryable == RETRYABLE_NO || on_purpose(best))))
        cr_assert(same_decision(d, &without), "case %zu: \"%s\", \"%s\"", (size_t) n, d->summary, without.summary);
    if (!observed) /* what a provider says alone makes no restart */
        cr_assert_not(d->desired == DESIRED_RESTARTED && without.desired == DESIRED_NO_ACTION,
                      "case %zu: \"%s\", \"%s\"", (size_t) n, d->summary, without.summary);
    if (best && best->nodes)
        cr_assert_not(differs, "case %zu: \"%s\", \"%s\"", (size_t) n, d->summary, without.summary);
    if (d->desired == DESIRED_NO_ACTION && without.desired == DESIRED_RESTARTED) /* without those nodes it could not run */
        cr_assert(strstr(d->summary, "too few are left"), "case %zu: \"%s\"", (size_t) n, d->summary);
    decision_done(&without);
    return differs;
}

static void check_exclusions(const struct world *w, const struct attempt *a, const struct decision *d, uint64_t n)
{
    ADV_AUTO(adv_hostlist) allowed = adv_hostlist_new(1000);
    ADV_AUTO(adv_hostlist) out = adv_hostlist_new(1000);
    uint32_t cap = NODES * w->p.exclude_max_percent / 100;
    const struct anomaly *an;
    const struct evidence *e;

    if (!d->exclude_nodes)
        return;
    cr_assert_eq(d->desired, DESIRED_RESTARTED, "case %zu", (size_t) n);
    DL_FOREACH (a->anomalies, an)
        if (an->status != ANOMALY_WITHDRAWN && an->nodes)
            cr_assert_eq(adv_hostlist_parse(allowed, an->nodes, NULL), 0);
    for (uint32_t i = 0; i < a->index; i++)
        if (w->index[i]->advice && w->index[i]->advice->disposition == DISPOSITION_CONVERGED)
            cr_assert_eq(adv_hostlist_parse(allowed, str_or(w->index[i]->advice->exclude_nodes), NULL), 0);
    DL_FOREACH (a->evidence, e)
        if (nodefault_believed(e, &w->p))
            cr_assert_eq(adv_hostlist_parse(allowed, e->nodes, NULL), 0);
    cr_assert_eq(adv_hostlist_parse(out, d->exclude_nodes, NULL), 0);
    cr_assert_leq(adv_hostlist_count(out), cap ? cap : 1, "case %zu: %s of at most %u", (size_t) n, d->exclude_nodes, cap);
    adv_hostlist_minus(out, allowed);
    cr_assert_eq(adv_hostlist_count(out), 0, "case %zu: nobody blamed some of %s", (size_t) n, d->exclude_nodes);
}

Test(decide, properties, .timeout = 300)
{
    struct world *w = calloc(1, sizeof(*w));
    unsigned restarted = 0, excluded = 0, waited = 0, by_evidence = 0;

    for (uint64_t n = 0; n < CASES; n++) {
        struct decision d, again;
        struct attempt *a;
        const struct anomaly *best;
        struct anomaly extra;
        make_world(w, n);
        a = newest(w);
        decide_attempt(a, &w->p, w->now_us, &d);
        best = decide_best_anomaly(a);
        cr_assert_not(d.oom);
        cr_assert(d.desired == DESIRED_NO_ACTION || d.desired == DESIRED_RESTARTED, "case %zu", (size_t) n);
        cr_assert(d.n_reasons > 0 && d.summary, "case %zu: nothing is said", (size_t) n);
        if (d.desired == DESIRED_RESTARTED) {
            restarted++;
            cr_assert(job_state_failed(a->state) || job_state_running(a->state), "case %zu: RESTARTED for %s", (size_t) n,
                      job_state_name(a->state));
            cr_assert(w->j.batch, "case %zu", (size_t) n);
            cr_assert_not(best && best->retryable == RETRYABLE_NO, "case %zu: a user's fault is restarted", (size_t) n);
            cr_assert_not(best && on_purpose(best), "case %zu: restarted against somebody's will", (size_t) n);
            cr_assert_lt(a->index, w->p.max_restarts_limit);
            cr_assert_eq(d.may_interrupt, job_state_running(a->state));
        } else {
            cr_assert_not(d.may_interrupt);
        }
        excluded += d.exclude_nodes != NULL;
        waited += d.not_before_us != 0;
        check_exclusions(w, a, &d, n);
        by_evidence += check_evidence(w, a, &d, n);
        /* who may act is never more than consent allows */
        if (!d.not_before_us && d.actionability == ACTION_ACTIONABLE)
            cr_assert(w->c.mode == MODE_ACT && w->c.ceiling == MODE_ACT && w->j.opt_mode == MODE_ACT && w->j.incarnation_unix,
                      "case %zu", (size_t) n);
        /* the same again, and after the anomalies came in another order */
        shuffle(a);
        decide_attempt(a, &w->p, w->now_us, &again);
        cr_assert(same_decision(&d, &again), "case %zu: order matters: \"%s\", \"%s\"", (size_t) n, d.summary, again.summary);
        decision_done(&again);
        /* weightier evidence of a user's fault */
        extra = (struct anomaly) { .attempt = a, .status = ANOMALY_CONFIRMED, .fault_class = word("application_bug"),
                                   .rule = word("extra"), .retryable = RETRYABLE_NO, .precedence = 1000, .terminal = chance(50) };
        DL_APPEND(a->anomalies, &extra);
        decide_attempt(a, &w->p, w->now_us, &again);
        cr_assert_not(d.desired == DESIRED_NO_ACTION && again.desired == DESIRED_RESTARTED && decide_best_anomaly(a) == &extra,
                      "case %zu: a user's fault made a restart", (size_t) n);
        if (extra.terminal)
            cr_assert_eq(again.desired, DESIRED_NO_ACTION, "case %zu", (size_t) n);
        if (!extra.terminal && best && best->terminal)
            cr_assert_eq(again.desired, d.desired, "case %zu: a hint outweighs", (size_t) n);
        decision_done(&again);
        decision_done(&d);
        free_world(w);
    }
    cr_assert_gt(restarted, CASES / 50, "the generator makes too few restarts: %u", restarted);
    cr_assert_gt(excluded, CASES / 200);
    cr_assert_gt(waited, CASES / 200);
    cr_assert_gt(by_evidence, CASES / 200, "evidence makes too few differences: %u", by_evidence);
    free(w);
}

/* Evidence that goes on is of its last part, and what is nearest to the end comes first. */
Test(decide, evidence_that_goes_on)
{
    const int64_t end_us = 1000000 * 1000000LL, s = 1000000;
    struct evidence e[] = { { .uid = word("single"), .nodes = word("n1"), .observe_us = end_us - 600 * s },
                            { .uid = word("goes-on"), .nodes = word("n2"), .observe_us = end_us - 1500 * s,
                              .window_start_us = end_us - 1500 * s, .window_end_us = end_us - 10 * s },
                            { .uid = word("near"), .nodes = word("n3"), .observe_us = end_us - 50 * s } };
    static const char *const order[] = { "goes-on", "near", "single" }, *const said[] = { "10 s before", "50 s before", "600 s before" };
    struct cluster c = { .name = word("a") };
    struct attempt a = { .state = JOB_FAILED, .nodes = word("n[1-8]"), .start_unix = 990000, .end_unix = 1000000, .steps_seen = 1,
                         .ms = { .end_observed_us = end_us } };
    struct attempt *index[] = { &a };
    struct job j = { .cluster = &c, .uid = word("u"), .batch = true, .requeueable = true, .attempts = index, .n_attempts = 1 };
    struct decision d;
    struct policy p;
    size_t n = 0;

    policy_defaults(&p);
    a.job = &j;
    for (size_t i = 0; i < ADV_ARRAY_LEN(e); i++) {
        e[i].attempt = &a;
        e[i].kind = word("node-log");
        e[i].source = word("logs");
        e[i].fault_class = word("gpu_hardware");
        e[i].origin = EVIDENCE_OF_SOURCE;
        e[i].weight_percent = 60;
        DL_APPEND(a.evidence, &e[i]);
    }
    decide_attempt(&a, &p, end_us + 60 * s, &d);
    for (uint32_t i = 0; i < d.n_reasons; i++)
        if (adv_streq(d.reasons[i].code, "node_evidence")) {
            cr_assert_lt(n, ADV_ARRAY_LEN(order));
            cr_assert_str_eq(d.reasons[i].param, order[n]);
            cr_assert(strstr(d.reasons[i].sentence, said[n]), "%s", d.reasons[i].sentence);
            n++;
        }
    cr_assert_eq(n, ADV_ARRAY_LEN(order));
    decision_done(&d);
}

/* An order for being slow, where what measured that went with a restart of advisord. */
Test(decide, a_pace_that_nobody_measured_is_not_known)
{
    struct cluster c = { .name = word("a") };
    struct attempt a = { .state = JOB_RUNNING };
    struct job j = { .cluster = &c, .uid = word("u"), .batch = true };
    struct anomaly an = { .attempt = &a, .uid = word("slow"), .rule = word(PULSE_SLOW), .reporter = word(PULSE_REPORTER),
                          .kind = ANOMALY_STRAGGLER, .status = ANOMALY_CONFIRMED };
    struct advice ad = { .attempt = &a, .desired = DESIRED_RESTARTED, .anomaly_uid = word("slow"), .n_reasons = 1 };
    struct pulse pulse = { .restart_asked = true };
    struct decision d;
    struct policy p;

    policy_defaults(&p);
    ad.reasons[0].code = word("straggler");
    a.job = &j;
    a.advice = &ad;
    DL_APPEND(a.anomalies, &an);
    decide_attempt(&a, &p, 1000000, &d);
    cr_assert_eq(d.desired, DESIRED_NO_ACTION);
    cr_assert_str_eq(d.reasons[0].code, "pace_unknown");
    decision_done(&d);
    an.status = ANOMALY_WITHDRAWN;
    a.pulse = &pulse;
    decide_attempt(&a, &p, 1000000, &d);
    cr_assert_str_eq(d.reasons[0].code, "pace_is_back");
    decision_done(&d);
}

/* How long a queue is is looked for last, and only where all else is known and pays: it costs a walk over the cluster. */
Test(decide, the_queue_is_looked_at_last)
{
    struct cluster c = { .name = word("a") };
    struct pulse p = { .count = 400, .total = 10000, .first_start_us = 5000000,
                       .rhythm = { .slow = true, .slow_usual = 10e6, .slow_now = 16e6 } };
    struct attempt a = { .state = JOB_RUNNING, .submit_unix = 1000, .start_unix = 1060, .last_checkpoint_step = 300,
                         .pulse = &p };
    struct attempt *index[] = { &a };
    struct job j = { .cluster = &c, .uid = word("u"), .attempts = index, .n_attempts = 1 };
    struct rhythm_gain g;

    a.job = &j;
    straggler_gain(&a, 5000, &g);
    cr_assert_eq(g.queue_us, 60000000);
    cr_assert_eq(g.since_checkpoint, 400, "nobody saw it resume");
    a.resumed_from_step = 1;
    straggler_gain(&a, 5000, &g);
    cr_assert_eq(g.since_checkpoint, 100);
    p.total = 500; /* 100 left: they do not save what is done again */
    straggler_gain(&a, 5000, &g);
    cr_assert_eq(g.queue_us, -1);
    p.total = 10000;
    a.last_checkpoint_step = 0;
    straggler_gain(&a, 5000, &g);
    cr_assert_eq(g.since_checkpoint, -1);
    cr_assert_eq(g.queue_us, -1);
}

/* ---- the fleet: the same evidence in any order ------------------------------------------------------------------ */

struct finding {
    const char *rule, *fault_class, *node;
    enum retryable retryable;
    int32_t precedence;
    bool terminal;
    uint64_t offset;
};

struct stage {
    struct fleet *f;
    int64_t now_us;
    uint64_t revision;
};

static void apply(struct stage *s, struct event *ev)
{
    struct intents in;
    struct adv_err err = { 0 };

    intents_init(&in);
    ev->cluster = "a";
    ev->now_us = ev->mono_us = s->now_us;
    cr_assert_eq(fleet_apply(s->f, ev, &in, &err), 0, "%s", err.msg);
    cr_assert_not(in.oom);
    intents_done(&in);
}

static void ticks(struct stage *s, int64_t until_us)
{
    int64_t d;

    while ((d = fleet_next_deadline(s->f)) && d <= until_us) {
        struct event ev = { .type = EV_TICK };
        if (d > s->now_us)
            s->now_us = d;
        apply(s, &ev);
    }
    s->now_us = until_us;
}

static void state(struct stage *s, enum job_state st, bool full)
{
    struct node_obs nodes[4] = { { "n1", "IDLE", "", true, 1 }, { "n2", "IDLE", "", true, 2 }, { "n3", "IDLE", "", true, 4 },
                                 { "n4", "IDLE", "", true, 8 } };
    struct job_obs o = { .job_id = "7", .state = st, .state_raw = "x", .submit_unix = 5, .batch = true, .requeueable = true,
                         .nodes = "n[1-4]", .detail_known = true, .comment = "{\"advisor\":{}}", .hash = 100u + st,
                         .start_unix = 1, .end_unix = job_state_terminal(st) ? s->now_us / 1000000 : 0 };
    struct event ev = { .type = EV_STATE_UPDATE };

    ev.u.state.instance_id = "i";
    ev.u.state.full_begin = ev.u.state.full_end = full;
    ev.u.state.jobs = &o;
    ev.u.state.n_jobs = 1;
    ev.u.state.nodes = nodes;
    ev.u.state.n_nodes = full ? 4 : 0;
    ev.u.state.digest = 15 ^ o.hash;
    apply(s, &ev);
    cr_assert_not(ev.u.state.ret_resync);
}

static struct stage stage(void)
{
    struct fleet_config cfg = { .lease_us = 1000000, .log_detection = true };
    struct stage s = { .now_us = 1000000LL * 1000000 };
    struct event ev = { .type = EV_CLUSTER_CREATE };

    policy_defaults(&cfg.policy);
    cfg.policy.exclude_max_percent = 100;
    s.f = fleet_new(&cfg);
    fleet_load_done(s.f, true, 0, 0);
    apply(&s, &ev);
    ev = (struct event) { .type = EV_SET_MODE };
    ev.u.set_mode.mode = MODE_ACT;
    apply(&s, &ev);
    ev = (struct event) { .type = EV_AGENT_HELLO };
    ev.u.hello.instance_id = "i";
    ev.u.hello.journal_id = "j";
    ev.u.hello.journal_persistent = true;
    ev.u.hello.ceiling = MODE_ACT;
    apply(&s, &ev);
    state(&s, JOB_RUNNING, true);
    return s;
}

static struct attempt *the_attempt(const struct stage *s)
{
    return job_attempt(fleet_find_job(s->f->clusters, "7"), 0);
}

static void find(struct stage *s, const struct finding *x, uint64_t repeat)
{
    const char *nodes[] = { x->node };
    struct event ev = { .type = EV_FINDING };

    ev.u.finding.job_id = "7";
    ev.u.finding.kind = FINDING_SIGNATURE;
    ev.u.finding.anomaly = ANOMALY_CRASH;
    ev.u.finding.rule = x->rule;
    ev.u.finding.fault_class = x->fault_class;
    ev.u.finding.retryable = x->retryable;
    ev.u.finding.precedence = x->precedence;
    ev.u.finding.terminal = x->terminal;
    ev.u.finding.offset = x->offset + repeat * 100000;
    ev.u.finding.blame = x->node ? BLAME_NODE : BLAME_NONE;
    ev.u.finding.nodes = nodes;
    ev.u.finding.n_nodes = x->node ? 1 : 0;
    apply(s, &ev);
}

static void progress(struct stage *s, uint64_t step)
{
    struct event ev = { .type = EV_FINDING };

    ev.u.finding.job_id = "7";
    ev.u.finding.kind = FINDING_PROGRESS;
    ev.u.finding.step = step;
    apply(s, &ev);
}

/* All at once in one turn, so that room has to be made among lines that are not yet written. */
static void find_in_one_turn(struct stage *s, const struct finding *v, size_t n)
{
    struct intents in;

    intents_init(&in);
    for (size_t i = 0; i < n; i++) {
        const char *nodes[] = { v[i].node };
        struct event ev = { .type = EV_FINDING, .cluster = "a", .now_us = s->now_us, .mono_us = s->now_us };
        ev.u.finding.job_id = "7";
        ev.u.finding.kind = FINDING_SIGNATURE;
        ev.u.finding.anomaly = ANOMALY_CRASH;
        ev.u.finding.rule = v[i].rule;
        ev.u.finding.fault_class = v[i].fault_class;
        ev.u.finding.retryable = v[i].retryable;
        ev.u.finding.precedence = v[i].precedence;
        ev.u.finding.terminal = v[i].terminal;
        ev.u.finding.offset = v[i].offset;
        ev.u.finding.blame = v[i].node ? BLAME_NODE : BLAME_NONE;
        ev.u.finding.nodes = nodes;
        ev.u.finding.n_nodes = v[i].node ? 1 : 0;
        cr_assert_eq(fleet_apply(s->f, &ev, &in, NULL), 0);
    }
    intents_done(&in);
}

struct outcome {
    enum desired_state desired;
    char exclude[64], summary[512], best[8];
    uint64_t generation;
};

static struct outcome play(const struct finding *v, size_t n, bool one_turn, uint64_t case_no)
{
    struct stage s = stage();
    struct outcome o = { 0 };
    const struct advice *ad;
    const struct anomaly *best;

    progress(&s, 1);
    s.now_us += 1000;
    if (one_turn)
        find_in_one_turn(&s, v, n);
    else
        for (size_t i = 0; i < n; i++)
            find(&s, &v[i], 0);
    s.now_us += 1000;
    state(&s, JOB_FAILED, false);
    ticks(&s, s.now_us + 200 * 1000000LL);
    ad = the_attempt(&s)->advice;
    cr_assert(ad, "case %zu: no advice", (size_t) case_no);
    best = decide_best_anomaly(the_attempt(&s));
    o.desired = ad->desired;
    o.generation = ad->generation;
    (void) snprintf(o.exclude, sizeof(o.exclude), "%s", str_or(ad->exclude_nodes));
    (void) snprintf(o.summary, sizeof(o.summary), "%s", str_or(ad->summary));
    (void) snprintf(o.best, sizeof(o.best), "%.7s", best ? str_or(best->rule) : "");
    cr_assert_leq(the_attempt(&s)->n_anomalies, ATTEMPT_MAX_ANOMALIES);
    /* nothing new: the generation stands still, whatever is said again */
    for (size_t i = 0; i < n; i++)
        find(&s, &v[i], 0);
    ticks(&s, s.now_us + 200 * 1000000LL);
    state(&s, JOB_FAILED, false);
    ticks(&s, s.now_us + 200 * 1000000LL);
    cr_assert_eq(the_attempt(&s)->advice->generation, o.generation, "case %zu: generation rose from nothing", (size_t) case_no);
    (void) fleet_free(s.f);
    return o;
}

Test(decide, evidence_in_any_order, .timeout = 300)
{
    static const char *const nodes[] = { NULL, "n1", "n2", "n3", "m9" /* not the attempt's */ };
    unsigned restarted = 0;

    for (uint64_t n = 0; n < FLEET_CASES; n++) {
        struct finding v[RULES];
        size_t count;
        struct outcome first, other;
        seed = (n + 7) * 0x9e3779b97f4a7c15ULL;
        count = rnd(RULES) + 1;
        for (size_t i = 0; i < count; i++)
            v[i] = (struct finding) { rules[i], classes[rnd(ADV_ARRAY_LEN(classes))], nodes[rnd(ADV_ARRAY_LEN(nodes))],
                                      (enum retryable) rnd(3), (int32_t) rnd(5) * 10, chance(60), 1 + rnd(1000) };
        first = play(v, count, false, n);
        restarted += first.desired == DESIRED_RESTARTED;
        for (int k = 0; k < 3; k++) {
            for (size_t i = count; i > 1; i--) {
                size_t j = rnd((uint32_t) i);
                struct finding t = v[i - 1];
                v[i - 1] = v[j];
                v[j] = t;
            }
            other = play(v, count, k > 0, n);
            cr_assert_str_eq(first.best, other.best, "case %zu: rests on %s, or on %s", (size_t) n, first.best, other.best);
            cr_assert(first.desired == other.desired && adv_streq(first.exclude, other.exclude) &&
                          adv_streq(first.summary, other.summary),
                      "case %zu: \"%s\", or \"%s\"", (size_t) n, first.summary, other.summary);
        }
    }
    cr_assert_gt(restarted, FLEET_CASES / 10);
}

/* ---- node evidence in any order --------------------------------------------------------------------------------- */

struct piece {
    const char *fault_class, *node, *rule;
    int64_t before_us; /* the end */
};

static void tell(struct stage *s, const struct piece *p)
{
    const char *nodes[] = { p->node };
    char name[RESOURCE_NAME_MAX];
    struct event ev = { .type = EV_REPORT_EVIDENCE, .principal = "sources" };

    ev.u.evidence.attempt_name = attempt_resource_name(the_attempt(s), name);
    ev.u.evidence.source = "logs (x)";
    ev.u.evidence.kind = "node-log";
    ev.u.evidence.origin = EVIDENCE_OF_SOURCE;
    ev.u.evidence.fault_class = p->fault_class;
    ev.u.evidence.rule = p->rule;
    ev.u.evidence.nodes = nodes;
    ev.u.evidence.n_nodes = 1;
    ev.u.evidence.weight_percent = NODEFAULT_WEIGHT_MIN;
    ev.u.evidence.window_start_us = ev.u.evidence.window_end_us = ev.u.evidence.observe_us = s->now_us - p->before_us;
    apply(s, &ev);
}

static void play_pieces(const struct piece *v, size_t n, const struct finding *line, bool after_end, char ret[8192])
{
    struct stage s = stage();
    const struct advice *ad;
    size_t len;

    s.now_us += 100 * 1000000LL;
    if (line)
        find(&s, line, 0);
    for (size_t i = 0; i < n && !after_end; i++)
        tell(&s, &v[i]);
    state(&s, JOB_FAILED, false);
    for (size_t i = 0; i < n && after_end; i++) /* before it is judged: the same moment */
        tell(&s, &v[i]);
    ticks(&s, s.now_us + 200 * 1000000LL);
    ad = the_attempt(&s)->advice;
    cr_assert(ad);
    len = (size_t) snprintf(ret, 8192, "%s without %s: %s", desired_name(ad->desired), str_or(ad->exclude_nodes), str_or(ad->summary));
    for (uint32_t i = 0; i < ad->n_reasons; i++) /* all but the uids, which are given in order of arrival */
        len += (size_t) snprintf(ret + len, 8192 - len, "; %s %s", ad->reasons[i].code, str_or(ad->reasons[i].sentence));
    cr_assert_lt(len, 8192);
    cr_assert_eq(ad->generation, 1);
    (void) fleet_free(s.f);
}

Test(decide, node_evidence_in_any_order, .timeout = 300)
{
    static const char *const nodes[] = { "n1", "n2", "n3", "n4", "m9" };
    char first[8192], other[8192];
    unsigned excluded = 0;

    for (uint64_t n = 0; n < FLEET_CASES; n++) {
        struct piece v[8];
        struct finding line = { "peer-gone", "unknown", NULL, RETRYABLE_MAYBE, 40, true, 7 };
        size_t count;
        bool signature;

        seed = (n + 11) * 0x9e3779b97f4a7c15ULL;
        count = 1 + rnd(ADV_ARRAY_LEN(v));
        signature = chance(50);
        for (size_t i = 0; i < count; i++)
            v[i] = (struct piece) { evidence_classes[rnd(ADV_ARRAY_LEN(evidence_classes))],
                                    nodes[chance(60) ? 0 : rnd(ADV_ARRAY_LEN(nodes))], rules[rnd(3)], (int64_t) rnd(100) * 1000000 };
        play_pieces(v, count, signature ? &line : NULL, false, first);
        excluded += !strstr(first, "without :");
        for (int k = 0; k < 3; k++) {
            for (size_t i = count; i > 1; i--) {
                size_t j = rnd((uint32_t) i);
                struct piece t = v[i - 1];
                v[i - 1] = v[j];
                v[j] = t;
            }
            play_pieces(v, count, signature ? &line : NULL, k == 2, other);
            cr_assert_str_eq(first, other, "case %zu", (size_t) n);
        }
    }
    cr_assert_gt(excluded, FLEET_CASES / 10, "%u", excluded);
}

/* A root cause among a cascade of more lines than are kept, all in one turn and last of all. */
Test(decide, the_root_cause_finds_room)
{
    struct finding v[RULES];
    struct stage s = stage();

    for (int i = 0; i < RULES; i++)
        v[i] = (struct finding) { rules[i], "network_fabric", "n1", RETRYABLE_YES, 10, true, (uint64_t) i + 1 };
    v[RULES - 1] = (struct finding) { "bug", "application_bug", NULL, RETRYABLE_NO, 60, true, 500 };
    find_in_one_turn(&s, v, RULES);
    cr_assert_str_eq(decide_best_anomaly(the_attempt(&s))->rule, "bug");
    state(&s, JOB_FAILED, false);
    ticks(&s, s.now_us + 200 * 1000000LL);
    cr_assert_eq(the_attempt(&s)->advice->desired, DESIRED_NO_ACTION);
    (void) fleet_free(s.f);
}

/* Handled errors do not keep a later one out. */
Test(decide, withdrawn_anomalies_give_way)
{
    struct stage s = stage();

    for (int i = 0; i < ATTEMPT_MAX_ANOMALIES; i++) {
        struct finding x = { rules[i], "gpu_hardware", "n1", RETRYABLE_YES, 90, true, (uint64_t) i + 1 };
        find(&s, &x, 0);
    }
    for (uint64_t step = 1; step < 5; step++)
        progress(&s, step);
    cr_assert_null(decide_best_anomaly(the_attempt(&s)), "all were handled");
    find(&s, &(struct finding) { "late", "storage", NULL, RETRYABLE_YES, 5, true, 400 }, 0);
    cr_assert_str_eq(decide_best_anomaly(the_attempt(&s))->rule, "late");
    (void) fleet_free(s.f);
}
