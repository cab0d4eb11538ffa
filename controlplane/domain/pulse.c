/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"

#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

#define FRESH_US      (300 * 1000000LL) /* a measurement says nothing of later */
#define WEIGHT_MIN    50 /* percent: evidence of less says the contrary */
#define HOLD_US       (120 * 1000000LL) /* a device may idle for a moment */
#define PRECEDENCE    10                /* below every rule: it says that, and nothing of why */
#define BOUND_EVERY   16                /* gaps between two stores of the bound */

const char *witness_name(enum witness_kind k)
{
    static const char *const names[] = { "NONE", "DEVICE_IDLE", "IO_STOPPED", "WATCHDOG_LINE", "RANKS_STOPPED" };

    return (size_t) k < ADV_ARRAY_LEN(names) ? names[k] : "?";
}

bool anomaly_of_rhythm(const struct anomaly *an)
{
    return adv_streq(str_or(an->reporter), PULSE_REPORTER);
}

static struct anomaly *ours(const struct attempt *a, const char *rule)
{
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (anomaly_of_rhythm(an) && adv_streq(str_or(an->rule), rule))
            return an;
    return NULL;
}

static bool open_one(const struct anomaly *an)
{
    return an && (an->status == ANOMALY_SUSPICION || an->status == ANOMALY_CONFIRMED);
}

/* "47 s", "12 min", "3 h". */
static const char *span(int64_t us, char buf[24])
{
    int64_t s = us / 1000000;

    if (s < 120)
        (void) snprintf(buf, 24, "%" PRId64 " s", s);
    else if (s < 7200)
        (void) snprintf(buf, 24, "%" PRId64 " min", s / 60);
    else
        (void) snprintf(buf, 24, "%" PRId64 " h", s / 3600);
    return buf;
}

/* Seconds for one step, as people say it. */
static const char *pace(double us, char buf[24])
{
    if (us < 1e6)
        (void) snprintf(buf, 24, "%.0f ms", us / 1e3);
    else
        (void) snprintf(buf, 24, us < 1e8 ? "%.1f s" : "%.0f s", us / 1e6);
    return buf;
}

static struct anomaly *tell(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev,
                            enum anomaly_kind kind, const char *rule)
{
    const struct anomaly candidate = { .status = ANOMALY_SUSPICION, .precedence = PRECEDENCE,
                                       .rule = (char *) (uintptr_t) rule };
    struct anomaly *an = ours(a, rule);

    if (!an && fleet_make_room(in, a, &candidate) && (an = fleet_anomaly_add(f, in, a, ev))) {
        an->kind = kind;
        an->retryable = RETRYABLE_MAYBE;
        an->precedence = PRECEDENCE;
        (void) str_set(in, &an->fault_class, "unknown");
        (void) str_set(in, &an->rule, rule);
        (void) str_set(in, &an->reporter, PULSE_REPORTER);
    }
    if (an) {
        an->observe_us = ev->now_us;
        an->step_at = a->last_step;
    }
    return an;
}

/* ---- who listens ------------------------------------------------------------------------------------------------ */

static int64_t at_least(int64_t a, int64_t b)
{
    return a < b ? b : a;
}

/* Since when what happens to the attempt is heard of, CLOCK_BOOTTIME. */
static int64_t listening_since(const struct attempt *a)
{
    return at_least(a->job->cluster->listen_us, a->pulse ? a->pulse->listen_us : 0);
}

/* Silence would be heard. */
bool fleet_heard(const struct attempt *a)
{
    const struct cluster *c = a->job->cluster;

    return a->state == JOB_RUNNING && attempt_log_whole(a) && c->agent_state == AGENT_CONNECTED &&
           c->digest_ok && !c->logs_down && !c->maintenance_until_us;
}

static int64_t bound(const struct fleet *f, const struct attempt *a)
{
    int64_t floor_us = f->cfg.policy.suspicion_grace_us, b = a->pulse ? rhythm_bound_us(&a->pulse->rhythm, floor_us) : 0;

    if (!b && a->rhythm_bound_us && !a->finished_us) { /* learned elsewhere, and not all that was known was stored */
        b = a->rhythm_bound_us > 2 * floor_us ? a->rhythm_bound_us : 2 * floor_us;
        if (a->pulse && a->pulse->rhythm.finished)
            b = 0;
    }
    if (!b && !a->finished_us)
        b = f->cfg.policy.unlearned_silence_us;
    return b;
}

/* How long the attempt has been silent; 0 when nobody can say. */
static int64_t silent_for(struct attempt *a, const struct event *ev)
{
    int64_t since_us, silence_us;

    if (!a->pulse || !a->pulse->rhythm.sign_us || !fleet_heard(a))
        return 0;
    since_us = at_least(at_least(a->pulse->rhythm.sign_us, a->pulse->outside_us), listening_since(a));
    silence_us = ev->mono_us - since_us;
    return silence_us > 0 ? silence_us : 0;
}

static bool is_sign(const struct event *ev)
{
    return ev->type == EV_FINDING && ev->u.finding.kind != FINDING_SIGNATURE && ev->u.finding.kind != FINDING_NOTICE;
}

/* From when its start counts, by the cluster's clock: what came before somebody listened is no part of it. */
static int64_t start_us(const struct attempt *a, const struct event *ev)
{
    int64_t heard_us = ev->mono_us - a->job->cluster->listen_us;

    if (!a->start_unix || !is_sign(ev))
        return 0;
    return at_least(a->start_unix * 1000000, ev->u.finding.observe_us - heard_us);
}

static struct pulse *pulse_get(struct intents *in, struct attempt *a, const struct event *ev)
{
    if (a->pulse)
        return a->pulse;
    a->pulse = calloc(1, sizeof(*a->pulse));
    if (!a->pulse) {
        in->oom = true;
        return NULL;
    }
    rhythm_init(&a->pulse->rhythm, start_us(a, ev));
    a->pulse->count = a->pulse->total = a->pulse->first_start_us = -1;
    if (a->start_unix && is_sign(ev) && start_us(a, ev) == a->start_unix * 1000000 && ev->u.finding.observe_us > start_us(a, ev))
        a->pulse->first_start_us = ev->u.finding.observe_us - start_us(a, ev);
    if (a->steps_seen > 0 && !is_sign(ev)) { /* from the store: silence begins when somebody begins to listen */
        a->pulse->rhythm.sign_us = ev->mono_us;
        a->pulse->sign_us = ev->mono_us;
        rhythm_break(&a->pulse->rhythm);
    }
    return a->pulse;
}

int64_t fleet_silence_left_us(const struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    int64_t b = bound(f, a), left;

    if (!b || a->steps_seen == 0 || !pulse_get(in, a, ev))
        return -1;
    left = b - silent_for(a, ev);
    return left > 0 ? left : 0;
}

/* ---- signs ------------------------------------------------------------------------------------------------------ */

/* The attempt moves: its silence is over, and with it what rested on it. */
static void silence_over(struct intents *in, struct attempt *a, const struct event *ev, const char *why)
{
    struct anomaly *an = ours(a, PULSE_SILENCE), *t;
    bool confirmed = an && an->status == ANOMALY_CONFIRMED;

    if (!open_one(an))
        return;
    fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, why);
    DL_FOREACH (a->anomalies, t)
        if (confirmed && t->kind == ANOMALY_HANG && t->status == ANOMALY_CONFIRMED && !t->terminal)
            fleet_anomaly_status(in, t, ANOMALY_WITHDRAWN, ev, why);
}

static void slow_since(struct attempt *a, int64_t mono_us)
{
    struct cluster *c = a->job->cluster;
    struct slow_begin *began = c->slow_began;

    if (!a->pulse->slow_us)
        DL_APPEND2(c->slow, a, slow_prev, slow_next);
    a->pulse->slow_us = mono_us;
    if (!adv_streq(began[0].job, str_or(a->job->uid)))
        began[1] = began[0];
    (void) snprintf(began[0].job, sizeof(began[0].job), "%s", str_or(a->job->uid));
    began[0].us = mono_us;
}

void attempt_not_slow(struct attempt *a)
{
    if (!a->pulse || !a->pulse->slow_us)
        return;
    a->pulse->slow_us = 0;
    DL_DELETE2(a->job->cluster->slow, a, slow_prev, slow_next);
}

static void judge_pace(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct anomaly *an = ours(a, PULSE_SLOW);
    const struct witness *behind = &a->pulse->witness[WITNESS_RANKS_STOPPED];
    struct rhythm_pace p;
    char usual[24], now[24];

    rhythm_pace(&a->pulse->rhythm, &p);
    if (p.slow == open_one(an))
        return;
    if (!p.slow) {
        fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev,
                             a->pulse->slow_us ? "its pace is what it was, or it began anew" :
                                                 "what was usual is not known any more: advisord was restarted");
        attempt_not_slow(a);
        return;
    }
    an = tell(f, in, a, ev, ANOMALY_STRAGGLER, PULSE_SLOW);
    if (!an)
        return;
    if (behind->holds)
        (void) str_set(in, &an->ranks, behind->detail);
    fleet_str_take(&an->excerpt, fleet_strf(in, "%s each, where %s was usual", pace(p.now_us, now), pace(p.usual_us, usual)));
    fleet_anomaly_status(in, an, ANOMALY_CONFIRMED, ev, str_or(an->excerpt));
    slow_since(a, ev->mono_us);
    if (f->cfg.policy.restart_stragglers && fleet_is_last(a))
        fleet_judge_by(f, a, ev->now_us + STRAGGLER_SUSTAINED_US);
}

/* Where the run is, by the counter that its pace is measured by, and that has to be the one of its steps. */
static void take_position(struct pulse *p, const struct attempt *a, const struct rhythm_sign *s)
{
    if (s->kind != RHYTHM_STEP || p->rhythm.lead != s->series || p->rhythm.lead_kind != RHYTHM_STEP)
        return;
    p->count = a->has_steps && (int64_t) a->last_step == s->count ? s->count : -1;
    p->total = s->total;
}

void fleet_pulse_sign(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    static const enum rhythm_sign_kind units[] = { RHYTHM_STEP, RHYTHM_ITEM, RHYTHM_EPOCH };
    struct rhythm_sign s = { .series = ev->u.finding.series, .count = (int64_t) ev->u.finding.step,
                             .total = ev->u.finding.total ? (int64_t) ev->u.finding.total : -1,
                             .mono_us = ev->mono_us, .observe_us = ev->u.finding.observe_us };
    struct pulse *p = job_state_running(a->state) ? pulse_get(in, a, ev) : NULL;
    int64_t b;

    if (!p)
        return;
    if (ev->u.finding.outside) { /* it moves; but the rhythm is that of its log */
        p->outside_us = ev->mono_us;
        p->signs++;
        silence_over(in, a, ev, "the attempt went on");
        return;
    }
    switch (ev->u.finding.kind) {
    case FINDING_PROGRESS:
        s.kind = units[ev->u.finding.unit <= UNIT_EPOCH ? ev->u.finding.unit : UNIT_ITEM];
        break;
    case FINDING_CHECKPOINT:
        s.kind = RHYTHM_CHECKPOINT;
        break;
    case FINDING_RESUMED:
    case FINDING_RECOVERED: /* what follows is a start */
        s.kind = RHYTHM_RESUMED;
        break;
    case FINDING_FINISHED:
        s.kind = RHYTHM_FINISHED;
        break;
    case FINDING_SIGNATURE:
    case FINDING_NOTICE:
    default:
        return;
    }
    if (!fleet_heard(a) || listening_since(a) > p->sign_us)
        rhythm_break(&p->rhythm);
    rhythm_sign(&p->rhythm, &s);
    take_position(p, a, &s);
    p->sign_us = ev->mono_us;
    p->signs++;
    silence_over(in, a, ev, "the attempt went on");
    judge_pace(f, in, a, ev);
    b = bound(f, a);
    if (b && fleet_is_last(a))
        fleet_judge_by(f, a, ev->now_us + b);
    if (rhythm_usual_us(&p->rhythm) && (p->bound_of == 0 || p->rhythm.n_gaps - p->bound_of >= BOUND_EVERY)) {
        p->bound_of = p->rhythm.n_gaps;
        a->rhythm_bound_us = rhythm_bound_us(&p->rhythm, 0); /* stored with the next step */
    }
}

/* ---- witnesses -------------------------------------------------------------------------------------------------- */

/* How long it lasts already is not asked of whoever observed it: that would be told by one wall clock against another. It
 * counts from when it is heard first. */
static void take_witness(struct fleet *f, struct intents *in, struct attempt *a, enum witness_kind kind,
                         const struct witness *is, const struct event *ev)
{
    struct pulse *p = job_state_running(a->state) ? pulse_get(in, a, ev) : NULL;
    struct witness *w;
    int64_t since_mono_us;

    if (!p || kind <= WITNESS_NONE || kind >= WITNESS_KIND_END_)
        return;
    w = &p->witness[kind];
    since_mono_us = w->holds && is->holds ? w->since_mono_us : ev->mono_us;
    *w = *is;
    w->since_mono_us = since_mono_us;
    w->seen_mono_us = ev->mono_us;
    if (open_one(ours(a, PULSE_SILENCE)))
        fleet_judge_by(f, a, ev->now_us);
}

void fleet_apply_witness(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct witness w = { .holds = ev->u.witness.holds };

    (void) snprintf(w.source, sizeof(w.source), "%s", str_or(ev->u.witness.source));
    (void) snprintf(w.detail, sizeof(w.detail), "%s", str_or(ev->u.witness.detail));
    take_witness(f, in, a, ev->u.witness.kind, &w, ev);
}

void fleet_evidence_witness(struct fleet *f, struct intents *in, struct attempt *a, const struct evidence *e,
                            const struct event *ev)
{
    static const char *const words[] = { "", "device-idle", "io-stopped", "watchdog", "ranks-stopped" };
    struct witness w = { .holds = e->weight_percent >= WEIGHT_MIN };

    if (e->observe_us && ev->now_us - e->observe_us > FRESH_US)
        return; /* of a time that may be over */
    (void) snprintf(w.source, sizeof(w.source), "%s", str_or(e->source));
    (void) snprintf(w.detail, sizeof(w.detail), "%s", str_or(e->summary ? e->summary : e->ranks));
    for (int k = WITNESS_NONE + 1; k < WITNESS_KIND_END_; k++)
        if (adv_streq(str_or(e->kind), words[k]))
            take_witness(f, in, a, (enum witness_kind) k, &w, ev);
}

/* It came after the last sign, and since then all is heard: what nobody heard may have been a sign. */
static bool barks(const struct attempt *a, const struct anomaly *an)
{
    return an->kind == ANOMALY_HANG && !anomaly_of_rhythm(an) && an->status != ANOMALY_WITHDRAWN &&
           an->sign_at == a->pulse->signs && an->line_mono_us >= listening_since(a);
}

/* A line of a rule of kind hang. */
static struct anomaly *watchdog(const struct attempt *a)
{
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (barks(a, an))
            return an;
    return NULL;
}

/* What else says that it stands still; NULL for nothing, then *@ret_later_us may say in how long to look again.
 * @silence_us of @bound_us is what it has been. */
static char *second_witness(struct intents *in, struct attempt *a, const struct event *ev, int64_t silence_us,
                            int64_t bound_us, int64_t *ret_later_us)
{
    int64_t wait_us = rhythm_sure_us(&a->pulse->rhythm, bound_us) - silence_us;
    static const char *const words[] = { "", "its devices are idle", "it neither reads nor writes", "a watchdog spoke",
                                         "ranks stand behind the others" };
    const struct anomaly *dog = watchdog(a);
    int64_t heard_us = at_least(at_least(a->pulse->sign_us, a->pulse->outside_us), listening_since(a));

    *ret_later_us = 0;
    if (dog)
        return fleet_strf(in, "a watchdog spoke (rule %s)", str_or(dog->rule));
    for (int k = WITNESS_NONE + 1; k < WITNESS_KIND_END_; k++) {
        const struct witness *w = &a->pulse->witness[k];
        bool measured = k == WITNESS_DEVICE_IDLE || k == WITNESS_IO_STOPPED;
        int64_t since_us = at_least(w->since_mono_us, a->pulse->sign_us);
        if (!w->holds || w->seen_mono_us < heard_us || (measured && ev->mono_us - w->seen_mono_us > FRESH_US))
            continue;
        if (k != WITNESS_WATCHDOG_LINE && wait_us > 0) { /* a watchdog would have to be wrong */
            *ret_later_us = wait_us;
            continue;
        }
        if (measured && w->seen_mono_us - since_us < HOLD_US)
            continue; /* it will be told again */
        return fleet_strf(in, "%s (%s%s%s)", words[k], w->source, *w->detail ? ": " : "", w->detail);
    }
    return NULL;
}

/* ---- judgement -------------------------------------------------------------------------------------------------- */

static void confirm_hang(struct fleet *f, struct intents *in, struct attempt *a, struct anomaly *silence, const char *second,
                         const struct event *ev)
{
    adv_auto_free char *why = fleet_strf(in, "%s; and %s", str_or(silence->excerpt), second);
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (barks(a, an))
            fleet_anomaly_status(in, an, ANOMALY_CONFIRMED, ev, str_or(silence->excerpt));
    fleet_anomaly_status(in, silence, ANOMALY_CONFIRMED, ev, str_or(why));
    if (!a->ms.anomaly_confirmed_us) {
        a->ms.anomaly_confirmed_us = ev->now_us;
        fleet_touch_attempt(in, a);
    }
    fleet_decide_and_put(f, in, a, ev);
}

static bool user_fault(const struct attempt *a)
{
    const struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status != ANOMALY_WITHDRAWN && an->retryable == RETRYABLE_NO)
            return true;
    return false;
}

void fleet_judge_silence(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    int64_t left = fleet_silence_left_us(f, in, a, ev), silence = left < 0 ? 0 : silent_for(a, ev), later_us;
    struct anomaly *an = ours(a, PULSE_SILENCE);
    adv_auto_free char *second = NULL;
    char lasted[24], usual[24], longest[24];
    bool fresh;

    if (left < 0)
        return;
    if (!fleet_heard(a)) {
        if (an && an->status == ANOMALY_SUSPICION)
            fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, "it is not known whether it is silent");
        fleet_judge_by(f, a, at_least(ev->now_us, a->job->cluster->maintenance_until_us) + bound(f, a));
        return;
    }
    if (left > 0) {
        if (an && an->status == ANOMALY_SUSPICION)
            fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, "nobody listened meanwhile: its silence counts anew");
        fleet_judge_by(f, a, ev->now_us + left);
        return;
    }
    if (an && an->status == ANOMALY_CONFIRMED)
        return;
    fresh = !open_one(an);
    if (fresh || !a->pulse->told_us) /* or told by an owner before: this is the first look here */
        a->pulse->told_us = ev->mono_us;
    if (fresh) {
        an = tell(f, in, a, ev, ANOMALY_HANG, PULSE_SILENCE);
        if (!an)
            return;
        if (rhythm_usual_us(&a->pulse->rhythm))
            fleet_str_take(&an->excerpt, fleet_strf(in, "no sign for %s, where one every %s was usual%s%s", span(silence, lasted),
                                                    span(rhythm_usual_us(&a->pulse->rhythm), usual),
                                                    rhythm_longest_us(&a->pulse->rhythm) ? " and the longest pause was " : "",
                                                    rhythm_longest_us(&a->pulse->rhythm) ?
                                                        span(rhythm_longest_us(&a->pulse->rhythm), longest) : ""));
        else
            fleet_str_take(&an->excerpt, fleet_strf(in, "no sign for %s, more than its rhythm allowed before", span(silence, lasted)));
        an->status = ANOMALY_WITHDRAWN; /* so that the change below is one */
        fleet_anomaly_status(in, an, ANOMALY_SUSPICION, ev, str_or(an->excerpt));
        if (!a->ms.first_suspicion_us) {
            a->ms.first_suspicion_us = ev->now_us;
            fleet_touch_attempt(in, a);
        }
    }
    if (user_fault(a))
        return; /* its owner's program has a fault of its own: that is for its end to show */
    second = second_witness(in, a, ev, silence, bound(f, a), &later_us);
    if (!second) {
        if (later_us > 0)
            fleet_judge_by(f, a, ev->now_us + later_us);
        return;
    }
    later_us = a->pulse->told_us + PULSE_LOOK_AGAIN_US - ev->mono_us;
    if (later_us > 0)
        fleet_judge_by(f, a, ev->now_us + later_us);
    else
        confirm_hang(f, in, a, an, second, ev);
}

/* ---- stragglers ------------------------------------------------------------------------------------------------- */

#define STRAGGLER_AGAIN_US (600 * 1000000LL) /* until a restart that did not pay is thought of again */
#define QUEUE_OF_S         86400             /* starts of so long ago say what the queue is like */
#define TOGETHER_US        (3600 * 1000000LL) /* who became slow so close to each other may have one cause */

const struct anomaly *straggler_stands(const struct attempt *a)
{
    const struct anomaly *an = ours(a, PULSE_SLOW);

    return an && an->status == ANOMALY_CONFIRMED && a->pulse && a->pulse->restart_asked && a->pulse->slow_us ? an : NULL;
}

bool straggler_alone(const struct attempt *a)
{
    const struct anomaly *slow = ours(a, PULSE_SLOW), *an;

    if (!slow || !job_state_running(a->state) ||
        !((a->pulse && a->pulse->restart_asked) || (a->advice && adv_streq(str_or(a->advice->anomaly_uid), slow->uid))))
        return false;
    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_CONFIRMED && an->kind != ANOMALY_STRAGGLER && !an->late)
            return false;
    return true;
}

bool straggler_others(const struct attempt *a)
{
    const struct cluster *c = a->job->cluster;
    const struct attempt *t;

    DL_FOREACH2 (c->slow, t, slow_next) {
        const struct anomaly *an = ours(t, PULSE_SLOW);
        if (t->job != a->job && !t->job->gone && job_state_running(t->state) && an && an->status == ANOMALY_CONFIRMED)
            return true;
    }
    for (size_t i = 0; a->pulse && i < ADV_ARRAY_LEN(c->slow_began); i++) {
        const struct slow_begin *b = &c->slow_began[i];
        if (*b->job && !adv_streq(b->job, str_or(a->job->uid)) && llabs(b->us - a->pulse->slow_us) <= TOGETHER_US)
            return true;
    }
    return false;
}

static int64_t waited_s(const struct attempt *a)
{
    return !a->unseen && a->submit_unix > 0 && a->start_unix >= a->submit_unix ? a->start_unix - a->submit_unix : -1;
}

/* How long it waits already, and may for longer; -1: it does not wait for a place. */
static int64_t waits_s(const struct job *j, int64_t now_unix)
{
    const struct attempt *a = fleet_last_attempt(j);

    return a && a->state == JOB_PENDING && !j->gone && !j->held && a->submit_unix > 0 && a->submit_unix <= now_unix ?
               now_unix - a->submit_unix :
               -1;
}

/* One that waits may name several. */
static bool of_partition(const struct job *j, const char *partition)
{
    size_t n = strlen(partition);

    for (const char *s = str_or(j->partition); *s; s += strcspn(s, ","), s += *s == ',')
        if (strcspn(s, ",") == n && strncmp(s, partition, n) == 0)
            return true;
    return false;
}

/* The longest wait in the queue that says anything of the next one; -1: none is known. */
static int64_t queue_us(const struct attempt *a, int64_t now_unix)
{
    const struct job *j;
    int64_t longest_s = -1;

    for (uint32_t i = 0; i < a->job->n_attempts; i++)
        longest_s = at_least(longest_s, waited_s(a->job->attempts[i]));
    for (j = a->job->partition ? a->job->cluster->jobs_by_uid : NULL; j; j = j->hh_uid.next) {
        if (!of_partition(j, a->job->partition))
            continue;
        longest_s = at_least(longest_s, waits_s(j, now_unix));
        for (uint32_t i = 0; i < j->n_attempts; i++)
            if (j->attempts[i]->start_unix > now_unix - QUEUE_OF_S && j->attempts[i]->start_unix <= now_unix)
                longest_s = at_least(longest_s, waited_s(j->attempts[i]));
    }
    return longest_s < 0 ? -1 : longest_s * 1000000;
}

/* Somebody saw that the program goes on from a checkpoint. */
static bool resumes(const struct job *j)
{
    for (uint32_t i = 0; i < j->n_attempts; i++)
        if (j->attempts[i]->resumed_from_step > 0)
            return true;
    return false;
}

void straggler_gain(const struct attempt *a, int64_t now_unix, struct rhythm_gain *ret)
{
    const struct pulse *p = a->pulse;
    struct rhythm_pace pace = { 0 };

    *ret = (struct rhythm_gain) { .left = -1, .since_checkpoint = -1, .start_us = -1, .queue_us = -1 };
    if (!p)
        return;
    rhythm_pace(&p->rhythm, &pace);
    ret->usual_us = pace.slow ? pace.usual_us : 0;
    ret->now_us = pace.slow ? pace.now_us : 0;
    ret->start_us = p->first_start_us;
    if (p->count >= 0 && p->total > p->count)
        ret->left = p->total - p->count;
    if (p->count >= 0 && a->last_checkpoint_step > 0 && (int64_t) a->last_checkpoint_step <= p->count)
        ret->since_checkpoint = resumes(a->job) ? p->count - (int64_t) a->last_checkpoint_step : p->count;
    ret->queue_us = 0;
    ret->queue_us = rhythm_restart_pays(ret) ? queue_us(a, now_unix) : -1;
}

void fleet_judge_straggler(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct pulse *p = a->pulse;
    struct rhythm_gain g;
    int64_t left_us;

    if (!f->cfg.policy.restart_stragglers || !p || !p->slow_us || p->restart_asked || attempt_judged(a) || a->state != JOB_RUNNING)
        return;
    left_us = p->slow_us + STRAGGLER_SUSTAINED_US - ev->mono_us;
    if (left_us > 0) {
        fleet_judge_by(f, a, ev->now_us + left_us);
        return;
    }
    /* heard in full, and of late: what is silent now is no straggler any more */
    if (!fleet_heard(a) || listening_since(a) > p->slow_us || open_one(ours(a, PULSE_SILENCE)) ||
        ev->mono_us - p->sign_us > STRAGGLER_AGAIN_US || straggler_others(a) || user_fault(a)) {
        fleet_judge_by(f, a, ev->now_us + STRAGGLER_AGAIN_US);
        return;
    }
    straggler_gain(a, ev->now_us / 1000000, &g);
    if (!rhythm_restart_pays(&g)) {
        fleet_judge_by(f, a, ev->now_us + STRAGGLER_AGAIN_US);
        return;
    }
    p->restart_asked = true;
    fleet_decide_and_put(f, in, a, ev);
}

void fleet_nothing_more(struct fleet *f, struct attempt *a, int64_t now_us)
{
    f->cfg.policy.unlearned_silence_us = f->cfg.policy.suspicion_grace_us;
    if (fleet_heard(a) && bound(f, a) && fleet_is_last(a))
        fleet_judge_by(f, a, now_us + f->cfg.policy.suspicion_grace_us);
}

void fleet_pulse_look(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct anomaly *an = ours(a, PULSE_SILENCE);

    if (a->pulse) {
        rhythm_break(&a->pulse->rhythm);
        a->pulse->listen_us = ev->mono_us;
    }
    a->quiet_us = ev->mono_us;
    if (an && an->status == ANOMALY_SUSPICION && !fleet_heard(a))
        fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, "it is not known whether it is silent");
    if (bound(f, a) && fleet_heard(a) && fleet_is_last(a))
        fleet_judge_by(f, a, ev->now_us + bound(f, a));
    if (fleet_heard(a) && fleet_is_last(a) && fleet_has_suspicion(a, true))
        fleet_judge_by(f, a, ev->now_us + f->cfg.policy.suspicion_grace_us);
}

void fleet_pulse_forget(struct attempt *a)
{
    if (!a)
        return;
    attempt_not_slow(a);
    free(a->pulse);
    a->pulse = NULL;
}

void fleet_pulse_state(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct anomaly *an;

    if (job_state_terminal(a->state)) {
        DL_FOREACH (a->anomalies, an)
            if (anomaly_of_rhythm(an) && an->status == ANOMALY_SUSPICION)
                fleet_anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, "the attempt ended: other evidence says how");
        fleet_pulse_forget(a);
        return;
    }
    fleet_pulse_look(f, in, a, ev);
}

void fleet_apply_log_stream(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev)
{
    struct attempt *a, *next;

    if (c->logs_down == ev->u.log_stream.open) {
        c->logs_down = !ev->u.log_stream.open;
        fleet_touch_cluster(in, c); /* replicas that do not see the stream tell of it, too */
    }
    c->listen_us = ev->mono_us;
    DL_FOREACH_SAFE2 (c->judged, a, next, judge_next)
        if (job_state_running(a->state))
            fleet_judge_by(f, a, ev->now_us);
}

/* ---- for people ------------------------------------------------------------------------------------------------- */

static enum activity say(char *why, enum activity as, const char *text)
{
    (void) snprintf(why, ACTIVITY_WHY_MAX, "%s", text);
    return as;
}

enum activity attempt_activity(const struct attempt *a, char why[ACTIVITY_WHY_MAX])
{
    const struct cluster *c = a->job->cluster;
    const struct anomaly *silence = ours(a, PULSE_SILENCE), *slow = ours(a, PULSE_SLOW);
    char usual[24], reason[TELEMETRY_WHY_MAX];
    enum telemetry_state seen;
    int64_t gap_us;

    why[0] = '\0';
    if (!job_state_running(a->state) || a->unseen)
        return ACTIVITY_UNKNOWN;
    if (a->state != JOB_RUNNING)
        return say(why, ACTIVITY_UNKNOWN, "it is suspended or about to end");
    if (c->agent_state != AGENT_CONNECTED || c->logs_down)
        return say(why, ACTIVITY_UNKNOWN, c->logs_down ? "its log does not arrive" : "its cluster's agent is away");
    if (!attempt_log_whole(a)) {
        seen = attempt_telemetry(a, reason);
        if (attempt_log_shed(a))
            (void) snprintf(reason, sizeof(reason), "bytes of it were shed a moment ago");
        (void) snprintf(why, ACTIVITY_WHY_MAX, "its log is %s%s%.200s",
                        seen == TELEMETRY_UNSET ? "not reported yet" :
                        seen == TELEMETRY_LOST  ? "not readable" :
                                                  "not read in full",
                        *reason ? ": " : "", reason);
        return ACTIVITY_UNKNOWN;
    }
    if (open_one(silence))
        return say(why, ACTIVITY_SILENT, str_or(silence->status_reason));
    if (open_one(slow))
        return say(why, ACTIVITY_SLOW, str_or(slow->status_reason));
    if (a->steps_seen == 0)
        return say(why, ACTIVITY_UNKNOWN, "its log has shown no line that is known as progress");
    if (a->finished_us || (a->pulse && a->pulse->rhythm.finished))
        return say(why, ACTIVITY_UNKNOWN, "the program said that its work is done");
    gap_us = a->pulse ? rhythm_usual_us(&a->pulse->rhythm) : 0;
    if (!gap_us && !a->rhythm_bound_us)
        return say(why, ACTIVITY_LEARNING, "its rhythm is not known yet: silence would not be noticed");
    if (!gap_us)
        return say(why, ACTIVITY_MOVING, "nothing speaks against it");
    (void) snprintf(why, ACTIVITY_WHY_MAX, "a sign of progress comes about every %s", span(gap_us, usual));
    return ACTIVITY_MOVING;
}
