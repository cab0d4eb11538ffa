/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet's state machine.
 *
 * Model: observations move attempts along; findings from logs open suspicions; an end state or the lack of progress
 * confirms them; a confirmed anomaly (or the end state alone, later) leads to one decision, which becomes the advice of
 * the attempt. Everything that waits has one number, `judge_at_us`, and EV_TICK looks at it.
 *
 * Invariants:
 *  - one advice an attempt; its generation rises only when desired state, exclusions or may_interrupt change;
 *  - only the newest attempt of a job is judged; when a newer one appears, the older one's judgement ends;
 *  - nothing is judged while the cluster's agent is not connected with a confirmed digest: stale is never current;
 *  - consent may lower an advice that exists, it never raises one: raising a mode does not set old failures in motion;
 *  - statuses count only for the current generation and epoch. */

/* A table that cannot grow leaves the new element out (hh.tbl is NULL then) instead of ending the program. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(e) ((void) (e))

#include "controlplane/domain/fleet.h"

#include <stdarg.h>
#include <stdio.h>
#include <utlist.h>

#include "common/digest.h"
#include "common/jobcomment.h"

#define MAX_RESTART_COUNT 10000 /* a larger number is garbage, not a job that was requeued this often */
#define CLUSTER_MAX_JOBS     200000  /* what one agent can make the control plane keep */
#define CLUSTER_MAX_NODES    50000
#define CLUSTER_MAX_ATTEMPTS 500000
#define ATTEMPT_MAX_GAP      1000    /* requeues of a known job that nobody saw */
#define STALE_END_S       100   /* an attempt first seen this long after its end is history, not news (MinJobAge / 3) */
#define WITHDRAW_PROGRESS 2     /* new steps after a suspicion that show that the attempt went on */
#define PROGRESS_STORE_US (10 * 1000000LL)
#define POSTPONE_US       60000000LL /* looked at again at the latest; reconnecting brings it forward */

/* ---- intents ---------------------------------------------------------------------------------------------------- */

void intents_init(struct intents *in)
{
    *in = (struct intents) { 0 };
}

static bool *dirty_mark(const struct intent *i)
{
    switch (i->kind) {
    case RESOURCE_CLUSTER:
        return &((struct cluster *) i->object)->dirty;
    case RESOURCE_JOB:
        return &((struct job *) i->object)->dirty;
    case RESOURCE_ATTEMPT:
        return &((struct attempt *) i->object)->dirty;
    case RESOURCE_ANOMALY:
        return &((struct anomaly *) i->object)->dirty;
    case RESOURCE_ADVICE:
        return &((struct advice *) i->object)->dirty;
    case RESOURCE_ACTION:
        return &((struct action *) i->object)->dirty;
    case RESOURCE_AUDIT:
    case RESOURCE_NONE:
        break;
    }
    return NULL;
}

void intents_done(struct intents *in)
{
    for (size_t i = 0; i < in->n; i++) {
        struct anomaly *an = in->v[i].kind == RESOURCE_ANOMALY ? in->v[i].object : NULL;
        if (an && an->dropped) {
            anomaly_free(an);
            continue;
        }
        bool *d = dirty_mark(&in->v[i]);
        if (d)
            *d = false;
    }
    for (size_t i = 0; i < in->n_audit; i++) {
        struct audit_record *r = &in->audit[i];
        free(r->prev_hash);
        free(r->hash);
        free(r->principal);
        free(r->verb);
        free(r->subject);
        free(r->detail);
    }
    for (size_t i = 0; i < in->n_requests; i++) {
        free(in->requests[i].request_id);
        free(in->requests[i].hash);
    }
    free(in->v);
    free(in->audit);
    free(in->requests);
    *in = (struct intents) { 0 };
}

static void *grow(struct intents *in, void *v, size_t n, size_t *cap, size_t size)
{
    size_t want = *cap ? *cap * 2 : 16;
    void *p;

    if (n < *cap)
        return v;
    p = realloc(v, want * size);
    if (!p) {
        in->oom = true;
        return NULL;
    }
    *cap = want;
    return p;
}

static void touch(struct intents *in, enum resource_kind kind, void *object, struct cluster *c)
{
    struct intent i = { kind, object, c };
    bool *d = dirty_mark(&i);
    void *p;

    if (*d)
        return;
    p = grow(in, in->v, in->n, &in->cap, sizeof(*in->v));
    if (!p)
        return;
    in->v = p;
    in->v[in->n++] = i;
    *d = true;
}

static void touch_cluster(struct intents *in, struct cluster *c)
{
    touch(in, RESOURCE_CLUSTER, c, c);
}
static void touch_job(struct intents *in, struct job *j)
{
    touch(in, RESOURCE_JOB, j, j->cluster);
}
static void touch_attempt(struct intents *in, struct attempt *a)
{
    touch(in, RESOURCE_ATTEMPT, a, a->job->cluster);
}
static void touch_anomaly(struct intents *in, struct anomaly *an)
{
    touch(in, RESOURCE_ANOMALY, an, an->attempt->job->cluster);
}
static void touch_advice(struct intents *in, struct advice *ad)
{
    touch(in, RESOURCE_ADVICE, ad, ad->attempt->job->cluster);
}

bool str_set(struct intents *in, char **dst, const char *src)
{
    char *copy = NULL;

    if (adv_streq(str_or(*dst), str_or(src)))
        return false;
    if (src && *src && !(copy = strdup(src))) {
        in->oom = true;
        return false;
    }
    free(*dst);
    *dst = copy;
    return true;
}

/* printf into a heap string; NULL and oom when memory is gone */
static char *strf(struct intents *in, const char *fmt, ...) ADV_PRINTF(2, 3);
static char *strf(struct intents *in, const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0) {
        in->oom = true;
        s = NULL;
    }
    va_end(ap);
    return s;
}

static void str_take(char **dst, char *s)
{
    free(*dst);
    *dst = s;
}

/* ---- audit ------------------------------------------------------------------------------------------------------ */

/* The hash of an event covers the hash of the one before it and every field, each with its length in front, so that
 * no two different events have the same bytes. */
static char *audit_hash(struct intents *in, const struct audit_record *r)
{
    ADV_AUTO_DONE(adv_buf) b;
    uint8_t raw[ADV_SHA256_LEN];
    char *hex = malloc(ADV_SHA256_HEX_SIZE);
    const char *fields[] = { r->cluster->name, str_or(r->prev_hash), r->principal, r->verb, r->subject, r->detail };

    adv_buf_init(&b, 1 << 20);
    (void) adv_buf_appendf(&b, "%llu %lld %lld", (unsigned long long) r->seq, (long long) r->observe_us,
                           (long long) r->record_us);
    for (size_t i = 0; i < ADV_ARRAY_LEN(fields); i++)
        (void) adv_buf_appendf(&b, " %zu:%s", strlen(str_or(fields[i])), str_or(fields[i]));
    if (!hex || adv_buf_error(&b) || adv_sha256(b.data, b.len, raw, NULL) < 0) {
        in->oom = true;
        free(hex);
        return NULL;
    }
    (void) adv_hex(raw, sizeof(raw), hex);
    return hex;
}

static void audit(struct intents *in, struct cluster *c, const struct event *ev, int64_t observe_us, const char *verb,
                  const char *subject, const char *fmt, ...) ADV_PRINTF(7, 8);
static void audit(struct intents *in, struct cluster *c, const struct event *ev, int64_t observe_us, const char *verb,
                  const char *subject, const char *fmt, ...)
{
    struct audit_record r = { .cluster = c, .observe_us = observe_us, .record_us = ev->now_us };
    void *p = grow(in, in->audit, in->n_audit, &in->cap_audit, sizeof(*in->audit));
    va_list ap;

    if (!p)
        return;
    in->audit = p;
    va_start(ap, fmt);
    if (vasprintf(&r.detail, fmt, ap) < 0)
        r.detail = NULL;
    va_end(ap);
    r.seq = ++c->audit_seq;
    r.prev_hash = strdup(str_or(c->audit_hash));
    r.principal = strdup(ev->principal ? ev->principal : "advisord");
    r.verb = strdup(verb);
    r.subject = strdup(subject);
    in->audit[in->n_audit++] = r;
    if (!r.detail || !r.prev_hash || !r.principal || !r.verb || !r.subject) {
        in->oom = true;
        return;
    }
    in->audit[in->n_audit - 1].hash = audit_hash(in, &r);
    (void) str_set(in, &c->audit_hash, in->audit[in->n_audit - 1].hash);
    touch_cluster(in, c);
}

/* ---- lookups ---------------------------------------------------------------------------------------------------- */

struct cluster *fleet_find_cluster(const struct fleet *f, const char *name)
{
    struct cluster *c = NULL;

    if (name)
        HASH_FIND_STR(f->clusters, name, c);
    return c;
}

struct job *fleet_find_job(const struct cluster *c, const char *job_id)
{
    struct job *j = NULL;

    if (job_id)
        HASH_FIND(hh_id, c->jobs_by_id, job_id, strlen(job_id), j);
    return j;
}

struct job *fleet_find_job_uid(const struct cluster *c, const char *uid)
{
    struct job *j = NULL;

    if (uid)
        HASH_FIND(hh_uid, c->jobs_by_uid, uid, strlen(uid), j);
    return j;
}

struct attempt *job_attempt(const struct job *j, uint32_t index)
{
    return index >= j->first_index && index - j->first_index < j->n_attempts ? j->attempts[index - j->first_index] : NULL;
}

static struct attempt *last_attempt(const struct job *j)
{
    return j->n_attempts ? j->attempts[j->n_attempts - 1] : NULL;
}

static bool is_last(const struct attempt *a)
{
    return last_attempt(a->job) == a;
}

uint64_t cluster_digest(const struct cluster *c)
{
    return c->digest;
}

/* ---- judgement list --------------------------------------------------------------------------------------------- */

static void judge_unlink(struct fleet *f, struct attempt *a)
{
    if (a->judge_at_us)
        DL_DELETE2(f->judge_list, a, judge_prev, judge_next);
    a->judge_at_us = 0;
}

static void judge_at(struct fleet *f, struct attempt *a, int64_t at_us)
{
    if (!a->judge_at_us)
        DL_APPEND2(f->judge_list, a, judge_prev, judge_next);
    a->judge_at_us = at_us;
}

static void judge_by(struct fleet *f, struct attempt *a, int64_t at_us)
{
    if (!a->judge_at_us || at_us < a->judge_at_us)
        judge_at(f, a, at_us);
}

int64_t fleet_next_deadline(const struct fleet *f)
{
    const struct attempt *a;
    int64_t min = 0;

    DL_FOREACH2 (f->judge_list, a, judge_next)
        if (!min || a->judge_at_us < min)
            min = a->judge_at_us;
    return min;
}

/* ---- consent on existing advice --------------------------------------------------------------------------------- */

static void advice_close(struct advice *ad)
{
    struct cluster *c = ad->attempt->job->cluster;

    if (ad->open)
        DL_DELETE(c->open_advice, ad);
    ad->open = false;
}

static void advice_open(struct advice *ad)
{
    struct cluster *c = ad->attempt->job->cluster;

    if (!ad->open)
        DL_APPEND(c->open_advice, ad);
    ad->open = true;
    ad->order_rev = 0; /* the turn numbers it when the change is stored */
}

/* Lowers one open advice to what consent now allows; never raises. */
static void advice_lower(struct intents *in, struct advice *ad, const struct event *ev)
{
    char *why[POLICY_MAX_MODE_REASONS], name[RESOURCE_NAME_MAX];
    size_t n = 0;
    enum adv_mode m = policy_job_mode(ad->attempt->job, why, &n);
    enum actionability to = m == MODE_ACT       ? ACTION_ACTIONABLE :
                            m == MODE_APPROVE   ? ACTION_NEEDS_APPROVAL :
                                                  ACTION_SHADOW;

    if (to < ad->actionability && ad->disposition == DISPOSITION_PENDING) {
        ad->actionability = to;
        ad->disposition_reason = REASON_MODE_TOO_LOW;
        ad->update_us = ev->now_us;
        (void) str_set(in, &ad->status_detail, n ? why[0] : "consent was lowered");
        if (ad->open)
            ad->order_rev = 0;
        touch_advice(in, ad);
        audit(in, ad->attempt->job->cluster, ev, 0, "advice.lowered", advice_resource_name(ad->attempt, name), "%s",
              n ? why[0] : "");
    }
    for (size_t i = 0; i < n; i++)
        free(why[i]);
}

static void cluster_lower(struct intents *in, struct cluster *c, const struct event *ev)
{
    struct advice *ad, *next;

    DL_FOREACH_SAFE(c->open_advice, ad, next)
        advice_lower(in, ad, ev);
}

/* ---- anomalies -------------------------------------------------------------------------------------------------- */

static void mint_uid(struct fleet *f, int64_t now_us, char buf[32])
{
    (void) snprintf(buf, 32, "%012llx%06llx", (unsigned long long) (now_us / 1000) & 0xffffffffffffULL,
                    (unsigned long long) (f->next_uid++ & 0xffffff));
}

static void anomaly_status(struct intents *in, struct anomaly *an, enum anomaly_status s, const struct event *ev,
                           const char *why)
{
    char name[RESOURCE_NAME_MAX];

    if (an->status == s)
        return;
    an->status = s;
    an->status_us = ev->now_us;
    (void) str_set(in, &an->status_reason, why);
    touch_anomaly(in, an);
    audit(in, an->attempt->job->cluster, ev, an->observe_us,
          s == ANOMALY_CONFIRMED   ? "anomaly.confirmed" :
          s == ANOMALY_WITHDRAWN   ? "anomaly.withdrawn" :
                                     "anomaly.suspicion",
          attempt_resource_name(an->attempt, name), "%s: %s", an->rule ? an->rule : "scheduler state", why);
}

static void withdraw_all(struct intents *in, struct attempt *a, const struct event *ev, const char *why)
{
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION)
            anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, why);
}

static void confirm_all(struct intents *in, struct attempt *a, const struct event *ev, const char *why)
{
    struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION)
            anomaly_status(in, an, ANOMALY_CONFIRMED, ev, why);
    if (!a->ms.anomaly_confirmed_us) {
        a->ms.anomaly_confirmed_us = ev->now_us;
        touch_attempt(in, a);
    }
}

static bool has_suspicion(const struct attempt *a, bool terminal_only)
{
    const struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION && (an->terminal || !terminal_only))
            return true;
    return false;
}

/* Withdrawn ones count nothing. */
static bool less_weighty(const struct anomaly *a, const struct anomaly *b)
{
    bool aw = a->status == ANOMALY_WITHDRAWN, bw = b->status == ANOMALY_WITHDRAWN;

    if (aw != bw)
        return aw;
    return anomaly_weightier(b, a);
}

/* Makes room by dropping the least weighty when something weightier than it comes. */
static bool make_room(struct attempt *a, const struct anomaly *candidate)
{
    struct anomaly *an, *least = NULL;

    if (a->n_anomalies < ATTEMPT_MAX_ANOMALIES)
        return true;
    DL_FOREACH (a->anomalies, an)
        if (!least || less_weighty(an, least))
            least = an;
    if (!least || !less_weighty(least, candidate))
        return false;
    /* Its row stays in the store as history; only the working set forgets it. One that is still to be written in this
     * turn lives until then. */
    DL_DELETE(a->anomalies, least);
    a->n_anomalies--;
    if (least->dirty)
        least->dropped = true;
    else
        anomaly_free(least);
    return true;
}

static struct anomaly *anomaly_add(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct anomaly *an;
    char uid[32];

    if (a->n_anomalies >= ATTEMPT_MAX_ANOMALIES)
        return NULL;
    an = calloc(1, sizeof(*an));
    if (!an) {
        in->oom = true;
        return NULL;
    }
    an->attempt = a;
    mint_uid(f, ev->now_us, uid);
    (void) str_set(in, &an->uid, uid);
    an->record_us = an->status_us = ev->now_us;
    DL_APPEND(a->anomalies, an);
    a->n_anomalies++;
    touch_anomaly(in, an);
    return an;
}

/* An end in failure that no log line explains. */
static void anomaly_from_state(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    const struct anomaly candidate = { .status = ANOMALY_CONFIRMED };
    struct anomaly *an = make_room(a, &candidate) ? anomaly_add(f, in, a, ev) : NULL;

    if (!an)
        return;
    an->kind = ANOMALY_CRASH;
    an->retryable = RETRYABLE_MAYBE;
    an->observe_us = a->ms.end_observed_us;
    (void) str_set(in, &an->reporter, "scheduler");
    (void) str_set(in, &an->fault_class,
                   a->state == JOB_NODE_FAIL || a->state == JOB_BOOT_FAIL ? "node_failure" :
                   a->state == JOB_OUT_OF_MEMORY                          ? "host_memory" :
                                                                            "unknown");
    str_take(&an->status_reason,
             strf(in, "The scheduler reports %s (exit code %u, signal %u) and no known fault is in the log%s%s.",
                  job_state_name(a->state), a->exit_code, a->exit_signal,
                  a->telemetry == TELEMETRY_LOST || a->telemetry == TELEMETRY_UNSET ? ", which could not be read: " : "",
                  a->telemetry == TELEMETRY_LOST    ? str_or(a->telemetry_reason) :
                  a->telemetry == TELEMETRY_UNSET   ? "nothing was heard of it" :
                                                      ""));
    an->status = ANOMALY_CONFIRMED;
}

/* ---- decision --------------------------------------------------------------------------------------------------- */

static bool same_orders(const struct advice *ad, const struct decision *d)
{
    return ad->desired == d->desired && adv_streq(str_or(ad->exclude_nodes), str_or(d->exclude_nodes)) &&
           ad->may_interrupt == d->may_interrupt;
}

static void take_prose(struct advice *ad, struct decision *d)
{
    for (size_t i = 0; i < ADVICE_MAX_REASONS; i++) {
        free(ad->reasons[i].code);
        free(ad->reasons[i].param);
        free(ad->reasons[i].sentence);
        ad->reasons[i] = d->reasons[i];
        d->reasons[i] = (struct advice_reason) { 0 };
    }
    ad->n_reasons = d->n_reasons;
    str_take(&ad->summary, ADV_STEAL(d->summary));
}

/* A requeue of this attempt was begun and is not known to have failed. */
bool attempt_requeue_recorded(const struct attempt *a)
{
    const struct action *ac;

    DL_FOREACH (a->actions, ac)
        if ((ac->verb == VERB_PRESERVE || ac->verb == VERB_INTERRUPT) &&
            !(ac->outcome_us && (ac->observed == OBSERVED_NO || ac->command == COMMAND_NOT_SENT)))
            return true;
    return false;
}

static void put_advice(struct fleet *f, struct intents *in, struct attempt *a, struct decision *d,
                       const struct event *ev)
{
    struct advice *ad = a->advice;
    char uid[32], name[RESOURCE_NAME_MAX];
    bool fresh = false;

    if (ad && (ad->disposition == DISPOSITION_CONVERGED || ad->disposition == DISPOSITION_SUPERSEDED) &&
        ad->desired != DESIRED_NO_ACTION)
        return; /* done and past: later evidence changes no history */
    if (ad && ad->desired == DESIRED_RESTARTED && attempt_requeue_recorded(a)) {
        return; /* the attempt is being replaced already: evidence that comes now changes no order */
    }
    if (ad && same_orders(ad, d)) {
        take_prose(ad, d);
        touch_advice(in, ad);
        return;
    }
    if (!ad) {
        ad = calloc(1, sizeof(*ad));
        if (!ad) {
            in->oom = true;
            return;
        }
        ad->attempt = a;
        ad->create_us = ev->now_us;
        mint_uid(f, ev->now_us, uid);
        (void) str_set(in, &ad->correlation_id, uid);
        a->advice = ad;
        fresh = true;
    }
    ad->generation++;
    ad->desired = d->desired;
    if (fresh || d->actionability < ad->actionability)
        ad->actionability = d->actionability; /* consent never rises for advice that exists */
    ad->may_interrupt = d->may_interrupt;
    ad->valid_for_ms = f->cfg.policy.valid_for_ms;
    str_take(&ad->exclude_nodes, ADV_STEAL(d->exclude_nodes));
    (void) str_set(in, &ad->anomaly_uid, d->anomaly ? d->anomaly->uid : NULL);
    take_prose(ad, d);
    ad->update_us = ad->status_us = ev->now_us;
    (void) str_set(in, &ad->status_detail, NULL);
    if (d->desired == DESIRED_NO_ACTION) {
        ad->disposition = DISPOSITION_CONVERGED;
        ad->disposition_reason = 2; /* already satisfied */
        if (ad->open)
            ad->order_rev = 0; /* the agent has to hear that there is nothing to do any more */
    } else {
        ad->disposition = DISPOSITION_PENDING;
        ad->disposition_reason = ad->actionability == ACTION_ACTIONABLE ? REASON_UNSET : REASON_MODE_TOO_LOW;
        if (ad->actionability == ACTION_ACTIONABLE)
            advice_open(ad);
    }
    if (!a->ms.advised_us) {
        a->ms.advised_us = ev->now_us;
        touch_attempt(in, a);
    }
    touch_advice(in, ad);
    audit(in, a->job->cluster, ev, 0, fresh ? "advice.create" : "advice.change", advice_resource_name(a, name),
          "generation %llu %s%s%s: %s", (unsigned long long) ad->generation, desired_name(ad->desired),
          ad->exclude_nodes ? " without " : "", str_or(ad->exclude_nodes), str_or(ad->summary));
}

static void decide_and_put(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct decision d;

    decide_attempt(a, &f->cfg.policy, ev->now_us, &d);
    if (d.oom)
        in->oom = true;
    else if (d.not_before_us > ev->now_us)
        judge_at(f, a, d.not_before_us);
    else
        put_advice(f, in, a, &d, ev);
    decision_done(&d);
}

static void judge_failed(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    const struct anomaly *best = decide_best_anomaly(a);
    const struct cluster *c = a->job->cluster;
    int64_t since_us = a->ms.end_observed_us > c->agent_state_us ? a->ms.end_observed_us : c->agent_state_us;
    int64_t wait_us = since_us + f->cfg.policy.fallback_delay_us; /* nothing was heard while the agent was away */

    if (!best) {
        bool can_hear = f->cfg.log_detection && a->telemetry != TELEMETRY_LOST;
        if (can_hear && ev->now_us < wait_us) {
            judge_at(f, a, wait_us);
            return;
        }
        anomaly_from_state(f, in, a, ev);
    }
    confirm_all(in, a, ev, "the attempt ended in failure");
    decide_and_put(f, in, a, ev);
}

static void judge_running(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    const struct anomaly *an;
    int64_t since = 0, due;
    bool user_fault = false;

    DL_FOREACH (a->anomalies, an)
        if (an->status == ANOMALY_SUSPICION && an->terminal) {
            if (!since || an->record_us < since)
                since = an->record_us;
            user_fault = user_fault || an->retryable == RETRYABLE_NO;
        }
    if (!since)
        return;
    if (a->last_progress_us > since)
        since = a->last_progress_us;
    if (a->job->cluster->agent_state_us > since)
        since = a->job->cluster->agent_state_us; /* silence counts only while somebody listens */
    due = since + f->cfg.policy.suspicion_grace_us;
    if (ev->now_us < due) {
        judge_at(f, a, due);
        return;
    }
    /* Silence is evidence only where the log is read in full and had shown progress before. */
    if (a->telemetry != TELEMETRY_COMPLETE || a->steps_seen == 0 || user_fault || a->state != JOB_RUNNING)
        return;
    confirm_all(in, a, ev, "no progress followed for the grace time");
    decide_and_put(f, in, a, ev);
}

/* Nobody wants this job looked at. */
static bool switched_off(const struct job *j)
{
    return j->cluster->mode == MODE_OFF || j->cluster->ceiling == MODE_OFF || j->opt_mode == MODE_OFF;
}

static void judge(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct cluster *c = a->job->cluster;

    judge_unlink(f, a);
    if (switched_off(a->job) || !is_last(a) || a->job->gone)
        return;
    if (c->agent_state != AGENT_CONNECTED || !c->digest_ok) {
        judge_at(f, a, ev->now_us + POSTPONE_US);
        return;
    }
    if (job_state_failed(a->state))
        judge_failed(f, in, a, ev);
    else if (job_state_running(a->state))
        judge_running(f, in, a, ev);
    else if (job_state_terminal(a->state)) {
        bool had = a->anomalies != NULL;
        withdraw_all(in, a, ev, a->state == JOB_COMPLETED ? "the attempt completed all the same" :
                                a->state == JOB_CANCELLED ? "the job was cancelled" :
                                                            "the attempt ended for another reason");
        if (had || a->state == JOB_TIMEOUT)
            decide_and_put(f, in, a, ev);
    }
}

/* ---- observations ----------------------------------------------------------------------------------------------- */

static bool same_submission(const struct job *j, const struct job_obs *o)
{
    uint32_t last = j->n_attempts ? j->first_index + j->n_attempts - 1 : 0;

    if (j->incarnation_unix && o->incarnation_unix)
        return j->incarnation_unix == o->incarnation_unix;
    if (o->restart_count < last)
        return false;
    if (o->restart_count == last)
        return o->submit_unix == j->submit_unix;
    return o->submit_unix >= j->submit_unix;
}

static void job_set_hash(struct cluster *c, struct job *j, bool present, uint64_t hash)
{
    if (j->present)
        c->digest ^= j->hash;
    j->present = present;
    j->hash = hash;
    if (present)
        c->digest ^= hash;
}

static void job_gone(struct fleet *f, struct intents *in, struct job *j)
{
    struct attempt *a = last_attempt(j);

    job_set_hash(j->cluster, j, false, 0);
    if (!j->gone) {
        j->gone = true;
        touch_job(in, j);
    }
    if (a)
        judge_unlink(f, a);
}

static struct job *job_new(struct fleet *f, struct intents *in, struct cluster *c, const struct job_obs *o,
                           const struct event *ev)
{
    struct job *j = calloc(1, sizeof(*j));
    char uid[32];

    if (!j) {
        in->oom = true;
        return NULL;
    }
    j->cluster = c;
    mint_uid(f, ev->now_us, uid);
    (void) str_set(in, &j->uid, uid);
    (void) str_set(in, &j->job_id, o->job_id);
    j->first_seen_us = ev->now_us;
    if (in->oom) {
        job_free(j);
        return NULL;
    }
    HASH_ADD_KEYPTR(hh_uid, c->jobs_by_uid, j->uid, strlen(j->uid), j);
    if (!j->hh_uid.tbl) {
        in->oom = true;
        job_free(j);
        return NULL;
    }
    HASH_ADD_KEYPTR(hh_id, c->jobs_by_id, j->job_id, strlen(j->job_id), j);
    in->oom |= !j->hh_id.tbl;
    touch_job(in, j);
    return j;
}

static struct attempt *attempt_add(struct intents *in, struct job *j, bool unseen)
{
    struct attempt **v = realloc(j->attempts, (j->n_attempts + 1) * sizeof(*v)), *a;

    if (!v) {
        in->oom = true;
        return NULL;
    }
    j->attempts = v;
    a = calloc(1, sizeof(*a));
    if (!a) {
        in->oom = true;
        return NULL;
    }
    a->job = j;
    a->index = j->first_index + j->n_attempts;
    a->unseen = unseen;
    v[j->n_attempts++] = a;
    j->cluster->n_attempts++;
    touch_attempt(in, a);
    return a;
}

/* A newer attempt exists: what was open about @a ends here. */
static void attempt_superseded(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct advice *ad = a->advice;

    judge_unlink(f, a);
    if (a->unseen)
        return;
    if (!job_state_terminal(a->state)) {
        a->state = JOB_REQUEUED;
        (void) str_set(in, &a->state_raw, "REQUEUED");
        if (!a->ms.end_observed_us)
            a->ms.end_observed_us = ev->now_us;
        touch_attempt(in, a);
    }
    withdraw_all(in, a, ev, "a newer attempt took its place");
    if (ad && ad->disposition == DISPOSITION_PENDING && ad->actionability != ACTION_ACTIONABLE) {
        ad->disposition = DISPOSITION_SUPERSEDED;
        ad->disposition_reason = REASON_ATTEMPT_SUPERSEDED;
        ad->status_us = ev->now_us;
        touch_advice(in, ad);
    }
}

static void job_take_detail(struct intents *in, struct job *j, const struct job_obs *o, const struct event *ev)
{
    struct attempt *a = last_attempt(j);
    struct adv_jobcomment opts;

    (void) str_set(in, &j->display_name, o->name);
    (void) str_set(in, &j->stdout_path, o->stdout_path);
    (void) str_set(in, &j->excluded_nodes, o->excluded_nodes);
    (void) str_set(in, &j->required_nodes, o->required_nodes);
    if (!str_set(in, &j->comment, o->comment))
        return;
    adv_jobcomment_parse(j->comment, &opts);
    j->opt_mode = (enum adv_mode) opts.mode;
    j->max_restarts = opts.max_restarts;
    (void) str_set(in, &j->policy, opts.policy);
    (void) str_set(in, &j->workflow, opts.workflow);
    (void) str_set(in, &j->comment_error, opts.error);
    if (a && a->advice)
        advice_lower(in, a->advice, ev);
}

static void apply_attempt(struct fleet *f, struct intents *in, struct job *j, const struct job_obs *o,
                          const struct event *ev)
{
    struct attempt *a, *prev = last_attempt(j);
    enum job_state was;
    bool fresh = false, ch = false;

    if (!j->n_attempts)
        j->first_index = o->restart_count; /* attempts that nobody saw are a number, not records */
    if (o->restart_count < j->first_index)
        return; /* a count that fell: not this job's, whatever it says */
    if (!job_attempt(j, o->restart_count)) {
        if (prev)
            attempt_superseded(f, in, prev, ev);
        while (!in->oom && !job_attempt(j, o->restart_count))
            (void) attempt_add(in, j, j->first_index + j->n_attempts < o->restart_count);
        fresh = true;
    }
    a = job_attempt(j, o->restart_count);
    if (in->oom || !a)
        return;
    was = a->state;
    if (a->state != o->state) {
        a->state = o->state;
        ch = true;
    }
    ch |= str_set(in, &a->state_raw, o->state_raw);
    if (o->nodes && *o->nodes)
        ch |= str_set(in, &a->nodes, o->nodes);
    if (a->start_unix != o->start_unix && o->state != JOB_PENDING) {
        a->start_unix = o->start_unix;
        ch = true;
    }
    if (job_state_terminal(o->state) &&
        (a->end_unix != o->end_unix || a->exit_code != o->exit_code || a->exit_signal != o->exit_signal)) {
        a->end_unix = o->end_unix;
        a->exit_code = o->exit_code;
        a->exit_signal = o->exit_signal;
        ch = true;
    }
    if (ch)
        touch_attempt(in, a);
    prev = attempt_prev(a);
    if (job_state_running(a->state) && prev && !prev->unseen && !prev->ms.successor_started_us) {
        prev->ms.successor_started_us = ev->now_us;
        touch_attempt(in, prev);
    }
    if (!job_state_terminal(a->state) || job_state_terminal(was))
        return;
    a->ms.end_observed_us = ev->now_us;
    if (a->state == JOB_COMPLETED)
        for (uint32_t i = 0; i < j->n_attempts; i++)
            if (!j->attempts[i]->ms.job_completed_us && !j->attempts[i]->unseen) {
                j->attempts[i]->ms.job_completed_us = ev->now_us;
                touch_attempt(in, j->attempts[i]);
            }
    if (fresh && a->end_unix && ev->now_us / 1000000 - a->end_unix > STALE_END_S)
        return; /* it was over long before anybody looked */
    judge_at(f, a, ev->now_us + f->cfg.policy.log_settle_us);
}

static void apply_job(struct fleet *f, struct intents *in, struct cluster *c, const struct job_obs *o,
                      const struct event *ev)
{
    struct job *j = fleet_find_job(c, o->job_id);

    if (j && !same_submission(j, o)) {
        HASH_DELETE(hh_id, c->jobs_by_id, j);
        job_gone(f, in, j);
        j = NULL;
    }
    if (!j && !(j = job_new(f, in, c, o, ev)))
        return;
    if (o->detail_known)
        job_take_detail(in, j, o, ev);
    (void) str_set(in, &j->user, o->user);
    (void) str_set(in, &j->account, o->account);
    (void) str_set(in, &j->partition, o->partition);
    (void) str_set(in, &j->qos, o->qos);
    (void) str_set(in, &j->reason, o->reason);
    j->uid_number = o->uid;
    j->submit_unix = o->submit_unix;
    j->batch = o->batch;
    j->requeueable = o->requeueable;
    j->held = o->held;
    j->gone = false;
    if (o->num_nodes)
        j->num_nodes = o->num_nodes;
    if (!j->incarnation_unix)
        j->incarnation_unix = o->incarnation_unix ? o->incarnation_unix : o->restart_count == 0 ? o->submit_unix : 0;
    job_set_hash(c, j, true, o->hash);
    j->seen_in_full = true;
    apply_attempt(f, in, j, o, ev);
    touch_job(in, j); /* the agent sends only what changed */
}

static void apply_node(struct intents *in, struct cluster *c, const struct node_obs *o)
{
    struct node *n = NULL;

    HASH_FIND_STR(c->nodes, o->name, n);
    if (!n) {
        n = calloc(1, sizeof(*n));
        if (!n || !(n->name = strdup(o->name))) {
            in->oom = true;
            node_free(n);
            return;
        }
        HASH_ADD_KEYPTR(hh, c->nodes, n->name, strlen(n->name), n);
        if (!n->hh.tbl) {
            in->oom = true;
            node_free(n);
            return;
        }
    } else {
        c->digest ^= n->hash;
    }
    n->hash = o->hash;
    c->digest ^= n->hash;
    n->available = o->available;
    n->seen_in_full = true;
    (void) str_set(in, &n->state_raw, o->state_raw);
    (void) str_set(in, &n->reason, o->reason);
}

static void node_gone(struct cluster *c, struct node *n)
{
    c->digest ^= n->hash;
    HASH_DEL(c->nodes, n);
    node_free(n);
}

static void full_begin(struct cluster *c)
{
    struct job *j;
    struct node *n;

    c->in_full = true;
    for (j = c->jobs_by_id; j; j = j->hh_id.next)
        j->seen_in_full = false;
    for (n = c->nodes; n; n = n->hh.next)
        n->seen_in_full = false;
}

static void full_end(struct fleet *f, struct intents *in, struct cluster *c)
{
    struct job *j;
    struct node *n, *n_next;

    c->in_full = false;
    for (j = c->jobs_by_id; j; j = j->hh_id.next)
        if (!j->seen_in_full && !j->gone)
            job_gone(f, in, j);
    HASH_ITER(hh, c->nodes, n, n_next)
        if (!n->seen_in_full)
            node_gone(c, n);
}

static void set_agent_state(struct intents *in, struct cluster *c, enum agent_state s, int64_t now_us)
{
    if (c->agent_state == s)
        return;
    c->agent_state = s;
    c->agent_state_us = now_us;
    touch_cluster(in, c);
}

static int apply_state(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err)
{
    if (!adv_streq(str_or(c->holder_instance), str_or(ev->u.state.instance_id)))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "NOT_LEASE_HOLDER",
                                  "cluster %s: another agent holds the lease", c->name);
    for (size_t i = 0; i < ev->u.state.n_jobs; i++) {
        const struct job_obs *o = &ev->u.state.jobs[i];
        const struct job *known = fleet_find_job(c, o->job_id);
        const struct attempt *newest = known ? last_attempt(known) : NULL;
        if (newest && o->restart_count > newest->index + ATTEMPT_MAX_GAP) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "OBSERVATION_MALFORMED",
                                      "job %.40s: restart count %u after %u: expected at most %d more", o->job_id,
                                      o->restart_count, newest->index, ATTEMPT_MAX_GAP);
            return adv_err_field(err, "state_update.jobs[%zu].restart_count", i);
        }
        if (!sched_job_id_valid(o->job_id) || o->restart_count > MAX_RESTART_COUNT || o->state > JOB_STATE_LAST_ ||
            o->submit_unix < 0) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "OBSERVATION_MALFORMED",
                                      "job \"%.40s\": expected an id like 123, 46_5 or 56+1, a known state, a submit "
                                      "time and a restart count up to %d",
                                      str_or(o->job_id), MAX_RESTART_COUNT);
            return adv_err_field(err, "state_update.jobs[%zu]", i);
        }
    }
    if (HASH_CNT(hh_uid, c->jobs_by_uid) + ev->u.state.n_jobs > CLUSTER_MAX_JOBS ||
        HASH_COUNT(c->nodes) + ev->u.state.n_nodes > CLUSTER_MAX_NODES || c->n_attempts > CLUSTER_MAX_ATTEMPTS)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "CLUSTER_TOO_LARGE",
                                  "cluster %s: more than %d jobs, %d nodes or %d attempts are kept", c->name,
                                  CLUSTER_MAX_JOBS, CLUSTER_MAX_NODES, CLUSTER_MAX_ATTEMPTS);
    for (size_t i = 0; i < ev->u.state.n_nodes; i++)
        if (!ev->u.state.nodes[i].name || !*ev->u.state.nodes[i].name) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "OBSERVATION_MALFORMED", "a node without a name");
            return adv_err_field(err, "state_update.nodes[%zu].name", i);
        }
    if (ev->u.state.full_begin)
        full_begin(c);
    for (size_t i = 0; i < ev->u.state.n_nodes && !in->oom; i++)
        apply_node(in, c, &ev->u.state.nodes[i]);
    for (size_t i = 0; i < ev->u.state.n_jobs && !in->oom; i++)
        apply_job(f, in, c, &ev->u.state.jobs[i], ev);
    for (size_t i = 0; i < ev->u.state.n_gone_jobs && !in->oom; i++) {
        struct job *j = fleet_find_job(c, ev->u.state.gone_jobs[i]);
        if (j)
            job_gone(f, in, j);
    }
    for (size_t i = 0; i < ev->u.state.n_gone_nodes && !in->oom; i++) {
        struct node *n = NULL;
        HASH_FIND_STR(c->nodes, ev->u.state.gone_nodes[i], n);
        if (n)
            node_gone(c, n);
    }
    if (ev->u.state.full_end)
        full_end(f, in, c);
    c->observe_us = ev->u.state.observe_us;
    if (!c->in_full) {
        bool ok = c->digest == ev->u.state.digest, back = ok && c->agent_state != AGENT_CONNECTED;
        struct attempt *a;
        ev->u.state.ret_resync = !ok;
        c->digest_ok = ok;
        set_agent_state(in, c, ok ? AGENT_CONNECTED : AGENT_RESYNCING, ev->now_us);
        DL_FOREACH2 (f->judge_list, a, judge_next)
            if (back && a->job->cluster == c)
                judge_by(f, a, ev->now_us); /* what waited for the agent */
    }
    return 0;
}

/* ---- findings from logs ----------------------------------------------------------------------------------------- */

/* The attempt's own nodes among those the evidence names; a single-node attempt needs no name. */
static char *blamed_nodes(struct intents *in, const struct attempt *a, const struct event *ev)
{
    ADV_AUTO(adv_hostlist) own = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO(adv_hostlist) hit = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;
    char *s;

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (!own || !hit || nodes_add(own, str_or(a->nodes)) < 0) {
        in->oom = true;
        return NULL;
    }
    if (ev->u.finding.blame == BLAME_NONE)
        return NULL;
    for (size_t i = 0; i < ev->u.finding.n_nodes; i++) {
        char shortname[ADV_HOST_NAME_MAX + 1];
        const char *n = str_or(ev->u.finding.nodes[i]);
        if (!adv_hostlist_contains(own, n)) {
            (void) snprintf(shortname, sizeof(shortname), "%.*s", (int) strcspn(n, "."), n);
            n = shortname;
        }
        if (adv_hostlist_contains(own, n) && adv_hostlist_add(hit, n, NULL) < 0)
            in->oom = true; /* never more than own */
    }
    if (adv_hostlist_count(hit) == 0 && ev->u.finding.n_nodes == 0 && adv_hostlist_count(own) == 1 &&
        adv_hostlist_union(hit, own, NULL) < 0)
        in->oom = true;
    if (adv_hostlist_count(hit) == 0)
        return NULL;
    if (adv_hostlist_format(hit, &text, NULL) < 0 || !(s = strdup(text.data))) {
        in->oom = true;
        return NULL;
    }
    return s;
}

static void merge_nodes(struct intents *in, struct anomaly *an, const char *more)
{
    ADV_AUTO(adv_hostlist) all = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    if (!all || (an->nodes && nodes_add(all, an->nodes) < 0) || nodes_add(all, more) < 0 ||
        adv_hostlist_format(all, &text, NULL) < 0) {
        in->oom = true;
        return;
    }
    if (str_set(in, &an->nodes, text.data))
        touch_anomaly(in, an);
}

static void apply_signature(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct anomaly *an = NULL, *t;
    adv_auto_free char *nodes = blamed_nodes(in, a, ev);
    bool ended = job_state_terminal(a->state), fresh = false;

    DL_FOREACH (a->anomalies, t)
        if (adv_streq(str_or(t->rule), str_or(ev->u.finding.rule)))
            an = t;
    if (!an) {
        const struct anomaly candidate = { .status = ANOMALY_SUSPICION,
                                           .precedence = ev->u.finding.precedence,
                                           .terminal = ev->u.finding.terminal,
                                           .nodes = nodes,
                                           .offset = ev->u.finding.offset,
                                           .rule = (char *) (uintptr_t) ev->u.finding.rule };
        if (!make_room(a, &candidate))
            return;
        an = anomaly_add(f, in, a, ev);
        if (!an)
            return;
        fresh = true;
        an->kind = ev->u.finding.anomaly;
        an->retryable = ev->u.finding.retryable;
        an->precedence = ev->u.finding.precedence;
        an->terminal = ev->u.finding.terminal;
        an->offset = ev->u.finding.offset;
        an->observe_us = ev->u.finding.observe_us;
        (void) str_set(in, &an->fault_class, ev->u.finding.fault_class);
        (void) str_set(in, &an->rule, ev->u.finding.rule);
        (void) str_set(in, &an->rules_version, ev->u.finding.rules_version);
        (void) str_set(in, &an->nodes, nodes);
        (void) str_set(in, &an->ranks, ev->u.finding.ranks);
        (void) str_set(in, &an->stream, ev->u.finding.stream);
        (void) str_set(in, &an->excerpt, ev->u.finding.excerpt);
        (void) str_set(in, &an->excerpt_sha256, ev->u.finding.excerpt_sha256);
        (void) str_set(in, &an->reporter, "watcher");
    } else if (ev->u.finding.offset <= an->last_offset && adv_streq(str_or(an->stream), str_or(ev->u.finding.stream))) {
        return; /* read again after a lost connection */
    } else {
        an->repeats++;
        if (nodes && (ev->u.finding.blame == BLAME_NODE || !an->nodes))
            merge_nodes(in, an, nodes);
    }
    an->last_offset = ev->u.finding.offset;
    if (fresh || (an->status == ANOMALY_WITHDRAWN && !ended)) {
        an->step_at = a->last_step;
        an->progress_after = 0;
        if (a->state == JOB_COMPLETED || a->state == JOB_CANCELLED)
            anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, "the attempt had ended otherwise");
        else
            anomaly_status(in, an, ANOMALY_SUSPICION, ev, "its signature is in the log");
    }
    if (an->terminal && !a->ms.first_suspicion_us) {
        a->ms.first_suspicion_us = ev->now_us;
        touch_attempt(in, a);
    }
    if (ended && job_state_failed(a->state))
        judge_by(f, a, ev->now_us + f->cfg.policy.log_settle_us);
    else if (!ended && an->terminal && is_last(a))
        judge_by(f, a, ev->now_us + f->cfg.policy.suspicion_grace_us);
}

static void apply_progress(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct attempt *prev = attempt_prev(a);
    uint64_t step = ev->u.finding.step;
    struct anomaly *an;
    bool store = false;

    switch (ev->u.finding.kind) {
    case FINDING_PROGRESS:
        a->steps_seen++;
        a->last_step = step;
        a->last_progress_us = ev->now_us;
        store = a->steps_seen == 1;
        DL_FOREACH (a->anomalies, an)
            if (an->status != ANOMALY_WITHDRAWN && step > an->step_at && job_state_running(a->state) &&
                ++an->progress_after >= WITHDRAW_PROGRESS) {
                adv_auto_free char *why = strf(in, "the attempt went on: step %llu came after it",
                                               (unsigned long long) step);
                anomaly_status(in, an, ANOMALY_WITHDRAWN, ev, str_or(why));
                store = true;
            }
        /* advice to interrupt it falls with its reason */
        if (a->advice && a->advice->may_interrupt && a->advice->disposition == DISPOSITION_PENDING &&
            !decide_best_anomaly(a))
            decide_and_put(f, in, a, ev);
        break;
    case FINDING_CHECKPOINT:
        if (step > a->last_checkpoint_step) {
            a->last_checkpoint_step = step;
            store = true;
        }
        break;
    case FINDING_RESUMED:
        a->resumed_from_step = step;
        store = true;
        /* a launcher that restarts inside the job begins lower: what comes after this step is progress again */
        DL_FOREACH (a->anomalies, an)
            if (an->status == ANOMALY_SUSPICION && step < an->step_at)
                an->step_at = step;
        break;
    case FINDING_SIGNATURE:
        break;
    }
    if (prev && !prev->unseen && !prev->ms.successor_productive_us && a->steps_seen > 0 &&
        a->last_step > prev->last_checkpoint_step) {
        prev->ms.successor_productive_us = ev->now_us;
        touch_attempt(in, prev);
    }
    if (store || ev->now_us - a->progress_stored_us > PROGRESS_STORE_US) {
        a->progress_stored_us = ev->now_us;
        touch_attempt(in, a);
    }
}

static struct attempt *find_attempt(struct fleet *f, struct cluster *c, const char *job_id, uint32_t restart_count)
{
    struct job *j = fleet_find_job(c, job_id);
    struct attempt *a = j ? job_attempt(j, restart_count) : NULL;

    if (!a)
        f->dropped_events++;
    return a;
}

/* ---- agents ----------------------------------------------------------------------------------------------------- */

bool fleet_lease_free(const struct cluster *c, int64_t mono_us)
{
    return !c->holder_journal || mono_us >= c->lease_until_mono_us;
}

bool fleet_lease_extend(struct fleet *f, struct cluster *c, const char *instance, int64_t mono_us)
{
    if (!c->holder_instance || !adv_streq(c->holder_instance, str_or(instance)))
        return false;
    c->lease_until_mono_us = mono_us + f->cfg.lease_us;
    return true;
}

static void grant(struct fleet *f, struct intents *in, struct cluster *c, const char *instance, const char *journal,
                  const struct event *ev)
{
    c->epoch.counter++;
    c->lease_until_mono_us = ev->mono_us + f->cfg.lease_us;
    (void) str_set(in, &c->holder_instance, instance);
    (void) str_set(in, &c->holder_journal, journal);
    c->in_full = false;
    touch_cluster(in, c);
}

static void take_ceiling(struct intents *in, struct cluster *c, enum adv_mode mode, const char *why,
                         const struct event *ev)
{
    bool ch = c->ceiling != mode;

    c->ceiling = mode;
    ch |= str_set(in, &c->ceiling_reason, why);
    if (ch) {
        touch_cluster(in, c);
        cluster_lower(in, c, ev);
    }
}

static void apply_hello(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev)
{
    bool same = adv_streq(str_or(c->holder_journal), str_or(ev->u.hello.journal_id));
    bool resumed = ev->u.hello.resume && same && c->digest_ok && !c->in_full &&
                   epoch_cmp(ev->u.hello.resume_epoch, c->epoch) == 0 && ev->u.hello.resume_digest == c->digest;
    char name[RESOURCE_NAME_MAX];

    if (epoch_cmp(ev->u.hello.highest_epoch, c->epoch) > 0) {
        /* An agent remembers more than the store: the store was restored or replaced. */
        c->epoch.term = ev->u.hello.highest_epoch.term + 1;
        c->epoch.counter = 0;
        str_take(&c->epoch_warning,
                 strf(in, "the store is behind epoch %llu.%llu, which the agent has seen: set the mode again to confirm",
                      (unsigned long long) ev->u.hello.highest_epoch.term,
                      (unsigned long long) ev->u.hello.highest_epoch.counter));
        audit(in, c, ev, 0, "cluster.store_behind", cluster_resource_name(c, name), "%s", str_or(c->epoch_warning));
        cluster_lower(in, c, ev);
    }
    if (!same && !fleet_lease_free(c, ev->mono_us)) {
        ev->u.hello.ret_granted = false;
        ev->u.hello.ret_epoch = c->epoch;
        audit(in, c, ev, 0, "agent.standby", cluster_resource_name(c, name), "journal %.64s waits for journal %.64s",
              str_or(ev->u.hello.journal_id), str_or(c->holder_journal));
        return;
    }
    ev->u.hello.ret_settle = c->holder_journal && !same;
    grant(f, in, c, ev->u.hello.instance_id, ev->u.hello.journal_id, ev);
    ev->u.hello.ret_granted = true;
    ev->u.hello.ret_resumed = resumed;
    ev->u.hello.ret_epoch = c->epoch;
    c->journal_persistent = ev->u.hello.journal_persistent;
    (void) str_set(in, &c->agent_version, ev->u.hello.agent_version);
    (void) str_set(in, &c->scheduler, ev->u.hello.scheduler);
    set_agent_state(in, c, resumed ? AGENT_CONNECTED : AGENT_RESYNCING, ev->now_us);
    if (!resumed)
        c->digest_ok = false;
    take_ceiling(in, c, ev->u.hello.ceiling, ev->u.hello.ceiling_reason, ev);
    c->mode_effective_us = 0; /* until this agent says that it obeys it */
    audit(in, c, ev, 0, "agent.connected", cluster_resource_name(c, name), "epoch %llu.%llu, journal %.64s%s",
          (unsigned long long) c->epoch.term, (unsigned long long) c->epoch.counter, str_or(ev->u.hello.journal_id),
          resumed ? ", state resumed" : "");
}

static void apply_gone(struct intents *in, struct cluster *c, const struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    if (!adv_streq(str_or(c->holder_instance), str_or(ev->u.gone.instance_id)))
        return; /* a standby, or an agent that was followed by another */
    (void) str_set(in, &c->holder_instance, NULL);
    set_agent_state(in, c, AGENT_UNREACHABLE, ev->now_us);
    audit(in, c, ev, 0, "agent.unreachable", cluster_resource_name(c, name), "%s", str_or(ev->u.gone.why));
}

static void apply_report(struct intents *in, struct cluster *c, const struct event *ev)
{
    if (!adv_streq(str_or(c->holder_instance), str_or(ev->u.report.instance_id)))
        return;
    if (ev->u.report.ceiling != MODE_UNSET)
        take_ceiling(in, c, ev->u.report.ceiling, ev->u.report.ceiling_reason, ev);
    if (ev->u.report.scheduler_unavailable && c->agent_state == AGENT_CONNECTED)
        set_agent_state(in, c, AGENT_SCHEDULER_UNAVAILABLE, ev->now_us);
    else if (!ev->u.report.scheduler_unavailable && c->agent_state == AGENT_SCHEDULER_UNAVAILABLE)
        set_agent_state(in, c, c->digest_ok ? AGENT_CONNECTED : AGENT_RESYNCING, ev->now_us);
    if (ev->u.report.mode_confirmed && !c->mode_effective_us) {
        c->mode_effective_us = ev->now_us;
        touch_cluster(in, c);
    }
}

static void apply_take(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    ev->u.take.ret_granted = fleet_lease_free(c, ev->mono_us) && !c->holder_instance;
    if (ev->u.take.ret_granted) {
        grant(f, in, c, ev->u.take.instance_id, ev->u.take.journal_id, ev);
        c->digest_ok = false;
        set_agent_state(in, c, AGENT_RESYNCING, ev->now_us);
        audit(in, c, ev, 0, "agent.takeover", cluster_resource_name(c, name), "epoch %llu.%llu, journal %.64s",
              (unsigned long long) c->epoch.term, (unsigned long long) c->epoch.counter, str_or(ev->u.take.journal_id));
    }
    ev->u.take.ret_epoch = c->epoch;
}

/* The advice of that name, or NULL: then *@ret is 0 (not known: of another store, perhaps; the agent need not tell it
 * again) or the error of a name that makes no sense. */
static struct advice *find_advice(struct fleet *f, struct cluster *c, const char *name, int *ret, struct adv_err *err)
{
    struct resource_path p;
    struct job *j;
    struct attempt *a;

    *ret = resource_path_parse(name, &p, err);
    if (*ret < 0)
        return NULL;
    j = fleet_find_job_uid(c, p.job_uid);
    a = j && p.attempt ? job_attempt(j, p.attempt_index) : NULL;
    if (p.advice && a && a->advice && adv_streq(p.cluster, c->name))
        return a->advice;
    f->dropped_events++;
    return NULL;
}

static int apply_status(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                        struct adv_err *err)
{
    struct advice *ad;
    char name[RESOURCE_NAME_MAX];
    int r;

    ad = find_advice(f, c, ev->u.status.advice_name, &r, err);
    if (!ad)
        return r;
    if (ev->u.status.observed_generation != ad->generation || epoch_cmp(ev->u.status.epoch, c->epoch) != 0)
        return 0; /* stale: changes nothing */
    if (ad->desired == DESIRED_NO_ACTION) {
        advice_close(ad); /* heard */
        ad->observed_generation = ad->generation;
        touch_advice(in, ad);
        return 0;
    }
    if (ev->u.status.disposition == DISPOSITION_UNSET || ev->u.status.disposition > DISPOSITION_SUPERSEDED ||
        ev->u.status.reason > REASON_LAST_)
        return adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "STATUS_MALFORMED", "advice %.200s: unknown disposition %d",
                                  ev->u.status.advice_name, (int) ev->u.status.disposition);
    if (ad->observed_generation == ad->generation && ad->disposition == ev->u.status.disposition &&
        ad->disposition_reason == ev->u.status.reason && adv_streq(str_or(ad->status_detail), str_or(ev->u.status.detail)))
        return 0;
    ad->observed_generation = ad->generation;
    ad->disposition = ev->u.status.disposition;
    ad->disposition_reason = ev->u.status.reason;
    ad->status_us = ev->now_us;
    (void) str_set(in, &ad->status_detail, ev->u.status.detail);
    if (ad->disposition != DISPOSITION_PENDING)
        advice_close(ad);
    if (ad->disposition == DISPOSITION_CONVERGED && !ad->attempt->ms.converged_us) {
        ad->attempt->ms.converged_us = ev->now_us;
        touch_attempt(in, ad->attempt);
    }
    touch_advice(in, ad);
    audit(in, c, ev, ev->u.status.observe_us, "advice.status", advice_resource_name(ad->attempt, name),
          "generation %llu %s: %s%s%s", (unsigned long long) ad->generation, disposition_name(ad->disposition),
          disposition_reason_name(ad->disposition_reason), ad->status_detail ? ", " : "", str_or(ad->status_detail));
    return 0;
}

static int apply_action(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                        struct adv_err *err)
{
    struct action *ac = NULL, *t;
    struct attempt *a;
    struct advice *ad;
    char name[RESOURCE_NAME_MAX];
    int r;

    ad = find_advice(f, c, ev->u.action.advice_name, &r, err);
    if (!ad)
        return r;
    a = ad->attempt;
    DL_FOREACH (a->actions, t)
        if (t->journal_seq == ev->u.action.journal_seq && adv_streq(t->journal_id, str_or(ev->u.action.journal_id)))
            ac = t;
    if (ac && ac->outcome_us)
        return 0; /* heard before */
    if (!ac) {
        if (a->n_actions >= ATTEMPT_MAX_ACTIONS) {
            f->dropped_events++; /* the agent's own budget stops long before */
            return 0;
        }
        ac = calloc(1, sizeof(*ac));
        if (!ac) {
            in->oom = true;
            return 0;
        }
        ac->attempt = a;
        ac->journal_seq = ev->u.action.journal_seq;
        ac->generation = ev->u.action.generation;
        ac->epoch = ev->u.action.epoch;
        ac->verb = ev->u.action.verb;
        ac->observe_us = ev->u.action.observe_us;
        ac->record_us = ev->now_us;
        if (!(ac->journal_id = strdup(str_or(ev->u.action.journal_id))))
            in->oom = true;
        DL_APPEND(a->actions, ac);
        a->n_actions++;
    }
    (void) str_set(in, &ac->read_before, ev->u.action.read_before);
    if (ev->u.action.outcome) {
        ac->command = ev->u.action.command;
        ac->observed = ev->u.action.observed;
        ac->outcome_us = ev->now_us;
        (void) str_set(in, &ac->reason, ev->u.action.reason);
        (void) str_set(in, &ac->detail, ev->u.action.detail);
        if (ac->command == COMMAND_ACCEPTED && !a->ms.first_command_us) {
            a->ms.first_command_us = ev->now_us;
            touch_attempt(in, a);
        }
    }
    touch(in, RESOURCE_ACTION, ac, c);
    audit(in, c, ev, ev->u.action.observe_us, ev->u.action.outcome ? "action.outcome" : "action.intent",
          advice_resource_name(a, name), "%s (journal %llu, epoch %llu.%llu)%s%s%s%s%s%s", verb_name(ac->verb),
          (unsigned long long) ac->journal_seq, (unsigned long long) ac->epoch.term,
          (unsigned long long) ac->epoch.counter, ev->u.action.outcome ? ": command " : "",
          ev->u.action.outcome ? command_name(ac->command) : "", ev->u.action.outcome ? ", observed " : "",
          ev->u.action.outcome ? observed_name(ac->observed) : "", ac->detail ? ", " : "", str_or(ac->detail));
    return 0;
}

/* ---- operators -------------------------------------------------------------------------------------------------- */

static int apply_create(struct fleet *f, struct intents *in, struct event *ev, struct adv_err *err)
{
    struct cluster *c;
    char name[RESOURCE_NAME_MAX];

    if (!cluster_id_valid(ev->cluster)) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "CLUSTER_ID_MALFORMED",
                                  "cluster id \"%.64s\": expected 1 to 64 of a-z, 0-9, '-', '_', beginning with a letter",
                                  str_or(ev->cluster));
        return adv_err_field(err, "cluster_id");
    }
    if (fleet_find_cluster(f, ev->cluster))
        return adv_err_set_reason(err, ADV_ALREADY_EXISTS, "CLUSTER_EXISTS", "cluster %s exists already", ev->cluster);
    c = calloc(1, sizeof(*c));
    if (!c || !(c->name = strdup(ev->cluster))) {
        in->oom = true;
        free(c);
        return 0;
    }
    c->mode = MODE_OBSERVE;
    c->mode_us = ev->now_us;
    c->agent_state = AGENT_NEVER_SEEN;
    c->agent_state_us = ev->now_us;
    c->epoch.term = f->store_term;
    HASH_ADD_KEYPTR(hh, f->clusters, c->name, strlen(c->name), c);
    if (!c->hh.tbl) {
        in->oom = true;
        cluster_free(c);
        return 0;
    }
    touch_cluster(in, c);
    audit(in, c, ev, 0, "cluster.create", cluster_resource_name(c, name), "mode observe");
    return 0;
}

static int apply_mode(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err)
{
    enum adv_mode was = c->mode;
    char name[RESOURCE_NAME_MAX];

    if (ev->u.set_mode.mode < MODE_OFF || ev->u.set_mode.mode > MODE_ACT) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "MODE_MALFORMED", "mode: expected OFF, OBSERVE, APPROVE or ACT");
        return adv_err_field(err, "mode");
    }
    if (ev->u.set_mode.if_version && (int64_t) ev->u.set_mode.if_version != c->mode_us)
        return adv_err_set_reason(err, ADV_ABORTED, "ETAG_MISMATCH", "cluster %s: its mode was set since (to %s)", c->name,
                                  mode_name(c->mode));
    c->mode = ev->u.set_mode.mode;
    c->mode_us = ev->now_us > c->mode_us ? ev->now_us : c->mode_us + 1; /* also the version of its settings */
    c->mode_effective_us = 0;
    str_take(&c->epoch_warning, NULL);
    touch_cluster(in, c);
    audit(in, c, ev, 0, "mode.set", cluster_resource_name(c, name), "%s -> %s%s%s", mode_name(was), mode_name(c->mode),
          ev->u.set_mode.reason && *ev->u.set_mode.reason ? ": " : "", str_or(ev->u.set_mode.reason));
    cluster_lower(in, c, ev);
    return 0;
}

static void remember_request(struct intents *in, const struct event *ev)
{
    struct request_record r = { .record_us = ev->now_us };
    void *p;

    if (!ev->request_id || !*ev->request_id)
        return;
    p = grow(in, in->requests, in->n_requests, &in->cap_requests, sizeof(*in->requests));
    if (!p)
        return;
    in->requests = p;
    r.request_id = strdup(ev->request_id);
    r.hash = strdup(str_or(ev->request_hash));
    in->requests[in->n_requests++] = r;
    if (!r.request_id || !r.hash)
        in->oom = true;
}

static void tick(struct fleet *f, struct intents *in, const struct event *ev)
{
    struct attempt *a, *next;

    DL_FOREACH_SAFE2 (f->judge_list, a, next, judge_next)
        if (a->judge_at_us <= ev->now_us && !in->oom)
            judge(f, in, a, ev);
}

int fleet_apply(struct fleet *f, struct event *ev, struct intents *in, struct adv_err *err)
{
    struct cluster *c = NULL;
    struct attempt *a;
    int r = 0;

    f->now_us = ev->now_us;
    if (ev->type != EV_TICK && ev->type != EV_CLUSTER_CREATE) {
        c = fleet_find_cluster(f, ev->cluster);
        if (!c)
            return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered",
                                      str_or(ev->cluster));
    }
    switch (ev->type) {
    case EV_CLUSTER_CREATE:
        r = apply_create(f, in, ev, err);
        break;
    case EV_SET_MODE:
        r = apply_mode(in, c, ev, err);
        break;
    case EV_AGENT_HELLO:
        apply_hello(f, in, c, ev);
        break;
    case EV_AGENT_GONE:
        apply_gone(in, c, ev);
        break;
    case EV_AGENT_REPORT:
        apply_report(in, c, ev);
        break;
    case EV_LEASE_TAKE:
        apply_take(f, in, c, ev);
        break;
    case EV_STATE_UPDATE:
        r = apply_state(f, in, c, ev, err);
        break;
    case EV_FINDING:
        a = find_attempt(f, c, ev->u.finding.job_id, ev->u.finding.restart_count);
        if (a && switched_off(a->job))
            break;
        if (a && ev->u.finding.kind == FINDING_SIGNATURE)
            apply_signature(f, in, a, ev);
        else if (a)
            apply_progress(f, in, a, ev);
        break;
    case EV_TELEMETRY:
        a = find_attempt(f, c, ev->u.telemetry.job_id, ev->u.telemetry.restart_count);
        if (a && (a->telemetry != ev->u.telemetry.state || a->dropped_bytes != ev->u.telemetry.dropped_bytes ||
                  !adv_streq(str_or(a->telemetry_reason), str_or(ev->u.telemetry.reason)))) {
            a->telemetry = ev->u.telemetry.state;
            a->dropped_bytes = ev->u.telemetry.dropped_bytes;
            (void) str_set(in, &a->telemetry_reason, ev->u.telemetry.reason);
            touch_attempt(in, a);
            if (job_state_failed(a->state) && a->judge_at_us)
                judge_by(f, a, ev->now_us);
        }
        break;
    case EV_ADVICE_STATUS:
        r = apply_status(f, in, c, ev, err);
        break;
    case EV_ACTION:
        r = apply_action(f, in, c, ev, err);
        break;
    case EV_TICK:
        tick(f, in, ev);
        break;
    case EV_NONE:
        break;
    }
    if (r == 0)
        remember_request(in, ev);
    return r;
}

/* ---- construction and loading ----------------------------------------------------------------------------------- */

struct fleet *fleet_new(const struct fleet_config *cfg)
{
    struct fleet *f = calloc(1, sizeof(*f));

    if (f)
        f->cfg = *cfg;
    return f;
}

struct fleet *fleet_free(struct fleet *f)
{
    struct cluster *c, *next;

    if (!f)
        return NULL;
    HASH_ITER(hh, f->clusters, c, next) {
        HASH_DEL(f->clusters, c);
        cluster_free(c);
    }
    free(f);
    return NULL;
}

int fleet_load_cluster(struct fleet *f, struct cluster *c)
{
    if (!c->name || fleet_find_cluster(f, c->name))
        return -ADV_DATA_LOSS;
    HASH_ADD_KEYPTR(hh, f->clusters, c->name, strlen(c->name), c);
    return c->hh.tbl ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

int fleet_load_job(struct fleet *f, struct cluster *c, struct job *j)
{
    struct job *old;

    (void) f;
    if (!j->uid || !j->job_id || fleet_find_job_uid(c, j->uid))
        return -ADV_DATA_LOSS;
    j->cluster = c;
    HASH_ADD_KEYPTR(hh_uid, c->jobs_by_uid, j->uid, strlen(j->uid), j);
    if (!j->hh_uid.tbl)
        return -ADV_RESOURCE_EXHAUSTED;
    old = fleet_find_job(c, j->job_id);
    if (old && strcmp(old->uid, j->uid) < 0) {
        HASH_DELETE(hh_id, c->jobs_by_id, old);
        old = NULL;
    }
    if (!old) {
        HASH_ADD_KEYPTR(hh_id, c->jobs_by_id, j->job_id, strlen(j->job_id), j);
        if (!j->hh_id.tbl) { /* the caller frees it */
            HASH_DELETE(hh_uid, c->jobs_by_uid, j);
            return -ADV_RESOURCE_EXHAUSTED;
        }
    }
    if (j->present)
        c->digest ^= j->hash;
    return 0;
}

int fleet_load_attempt(struct fleet *f, struct job *j, struct attempt *a)
{
    struct attempt **v;

    (void) f;
    if (a->index != j->first_index + j->n_attempts)
        return -ADV_DATA_LOSS; /* they come in order and without gaps */
    v = realloc(j->attempts, (j->n_attempts + 1) * sizeof(*v));
    if (!v)
        return -ADV_RESOURCE_EXHAUSTED;
    a->job = j;
    j->attempts = v;
    v[j->n_attempts++] = a;
    j->cluster->n_attempts++;
    return 0;
}

void fleet_load_anomaly(struct attempt *a, struct anomaly *an)
{
    an->attempt = a;
    if (!make_room(a, an)) {
        anomaly_free(an);
        return;
    }
    DL_APPEND(a->anomalies, an);
    a->n_anomalies++;
}

void fleet_load_advice(struct attempt *a, struct advice *ad)
{
    ad->attempt = a;
    advice_free(a->advice);
    a->advice = ad;
    ad->open = false;
    if (ad->disposition == DISPOSITION_PENDING && ad->actionability == ACTION_ACTIONABLE) {
        DL_APPEND(a->job->cluster->open_advice, ad);
        ad->open = true;
        ad->order_rev = ad->revision; /* every session of the new process hears of it */
    }
}

void fleet_load_action(struct attempt *a, struct action *ac)
{
    ac->attempt = a;
    DL_APPEND(a->actions, ac);
    a->n_actions++;
}

void fleet_load_done(struct fleet *f, int64_t now_us, int64_t mono_us)
{
    struct cluster *c;
    struct job *j;

    for (c = f->clusters; c; c = c->hh.next) {
        if (c->agent_state != AGENT_NEVER_SEEN)
            c->agent_state = AGENT_UNREACHABLE;
        c->lease_until_mono_us = mono_us + f->cfg.lease_us;
        for (j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            struct attempt *a = last_attempt(j);
            if (!a || j->gone)
                continue;
            if (job_state_failed(a->state) && !a->advice && now_us - a->ms.end_observed_us < 3600 * 1000000LL)
                judge_at(f, a, now_us);
            else if (job_state_running(a->state) && has_suspicion(a, true))
                judge_at(f, a, now_us + f->cfg.policy.suspicion_grace_us);
        }
    }
}
