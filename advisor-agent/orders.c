/* SPDX-License-Identifier: Apache-2.0 */

/* Carries advice out: for each order a loop of look, decide (reconcile.c), do one step, look again.
 * An order remembers nothing that the journal or a fresh look could not tell anew.
 *
 * The gate is orders_authorize(): the adapter asks right before every scheduler write, and only here
 * is it decided whether the write may be. Lease, epoch, mode, ceiling, budget, age, and the job's own
 * comment are looked at; then the intent is journalled, durably, and reported; then the answer.
 *
 * Unwinding is the way back: a job that waits in our hold and whose order is over is given back as its
 * hold record says. It is an order of its own kind that passes the gate without mode and ceiling, but
 * never without the lease. */

#include "advisor-agent/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor-agent/hold.h"
#include "advisor-agent/reconcile.h"
#include "advisor-agent/tail/keep.h"
#include "common/clock.h"
#include "common/failpoint.h"
#include "common/hostlist.h"
#include "common/log.h"
#include "common/utf8.h"

#define SOON_US      250000
#define KEEP_LOOK_US 20000
#define LATER_US     1000000
#define AWAY_US      5000000 /* the scheduler does not answer */
#define ORDERS_MAX   4096
#define NODES_MAX    100000
#define LIST_MAX     (32u << 10) /* bytes of their names: half a journal record */
#define HOLD_MIN_US  3600000000ll
#define HOLD_RENEW_US (HOLD_MIN_US / 2) /* what is left of a hold in force when its record is renewed */
#define HOLDS_US     1000000 /* between two looks whether the records of holds are still true */
#define HOLDS_MAX    20      /* written anew in one of them: each is a sync */
#define REPORT_AGAIN_US 3600000000ll
#define REPORT_AGAIN_MIN 100 /* the newest in any case: the clock may have been set meanwhile */
#define BACK_OFF_US     1000000 /* doubled up to the next */
#define BACK_OFF_MAX_US 60000000
#define UNTOLD_US       300000000 /* a session that has not told its orders by then does not keep a hold */
#define LATE_LOOKS      3
#define LATE_START_US   60000000 /* a start further away is found by the poll */
#define CHILDREN_MAX   32 /* dependents of one attempt that are looked at */
#define CHILD_TRIES    3  /* that wrote nothing; what is written is written once */
#define CHILDREN_US    60000000 /* for all of them: the release of the job itself waits for it */
#define FORGET_US    600000000 /* finished orders are kept this long for repeats */

/* Jobs that depend on the one of an order, in the step before it is released. */
struct children {
    size_t n, at;
    unsigned more;  /* that found no room */
    unsigned given; /* that wait for the job again */
    unsigned tries;
    int64_t began_us;
    bool not_listed; /* the site's ceiling keeps us from them */
    char note[320]; /* what could not be given back, for people */
    struct child {
        char id[JOURNAL_JOB_SIZE];
        int64_t submit_s;
        uint32_t restarts;
        char *before; /* its dependencies before the failure; "": not known */
    } list[CHILDREN_MAX];
};

struct order {
    struct order *next;
    struct agent *a;
    advisor_v1_AdviceOrder o;
    bool unwind;
    enum journal_on_expiry how; /* unwind */
    char tag[100];
    struct journal_epoch epoch; /* under which it was received */
    int64_t expires_boot_us;
    int64_t due_us;
    int64_t done_us; /* 0: not finished */
    bool busy;       /* the adapter has it */
    bool constrained;
    struct children *children; /* NULL: not looked for yet */
    int64_t end_s; /* of the attempt, by the scheduler; 0: not seen */
    bool without_ours; /* the step takes our exclusions out: with them the job cannot run */
    int64_t back_off_us; /* 0: not refused yet */
    int64_t journal_wait_us; /* 0: the journal takes what is written */
    /* After it has converged: looks at the successor when it should start. */
    int64_t start_us; /* 0: none */
    unsigned late_looks;
    int64_t look_boot_us; /* when the look under way was begun */
    bool stale; /* received in an earlier session */
    enum adapter_verb verb;
    uint64_t act_generation; /* for which the step under way was decided, */
    struct journal_epoch act_epoch; /* and when that was received: a store put back mints numbers again */
    uint64_t intent_seq; /* of the step under way; 0: no write yet */
    char read_before[256];
    struct tail_keep *keep; /* the end of the log is being kept; NULL: it is not */
    bool log_kept;          /* or there was nothing to keep, or it could not be */
    char log_note[256];     /* why it could not; "" if it could */
    advisor_v1_DispositionReason denied; /* by the gate */
    bool denied_by_journal;              /* which cannot be written at present */
    char denied_text[160];
    /* A job that our own command revived wrongly is cancelled again. */
    bool put_right;
    int64_t right_submit_s;
    uint32_t right_restarts;
    /* As told last. */
    advisor_v1_Disposition told;
    advisor_v1_DispositionReason told_why;
    uint64_t told_generation;
};

#define REASON(r) advisor_v1_DispositionReason_DISPOSITION_REASON_##r

static void children_free(struct order *x)
{
    for (size_t i = 0; x->children && i < x->children->n; i++)
        free(x->children->list[i].before);
    free(x->children);
    x->children = NULL;
}

/* Telling */

static void tell(struct order *x, advisor_v1_Disposition d, advisor_v1_DispositionReason why,
                 const char *text)
{
    struct agent *a = x->a;
    struct adv_err err;

    if (x->unwind || (x->told == d && x->told_why == why && x->told_generation == x->o.generation))
        return;
    const char *note = d == advisor_v1_Disposition_DISPOSITION_CONVERGED ? x->log_note : "";
    char all[1024]; /* texts of commands and helpers hold whatever bytes a user's file is named with, and are cut between bytes */
    advisor_v1_AdviceStatusReport m = { .observed_generation = x->o.generation, .has_epoch = true,
                                        .epoch = agent_epoch_msg(x->epoch), .disposition = d,
                                        .reason = why, .observe_wall_ms = adv_wall_us() / 1000 };
    (void) snprintf(m.advice, sizeof(m.advice), "%s", x->o.name);
    (void) snprintf(all, sizeof(all), "%s%s%s", text, *note ? "; the end of its log was not kept: " : "", note);
    (void) adv_utf8_lossy_buf(m.detail, sizeof(m.detail), all, strlen(all));
    x->told = d;
    x->told_why = why;
    x->told_generation = x->o.generation;
    adv_info("advice", text, ADV_FS("advice", x->o.name), ADV_FS("job", x->o.attempt.job_id),
             ADV_FI("disposition", d), ADV_FI("reason", why), ADV_FS("tag", x->tag));
    ADV_FAILPOINT("agent.before_status");
    if (a->session && session_send_status(a->session, &m, &err) < 0)
        adv_warn("advice", "a status is not reported", ADV_FS("why", err.msg));
}

/* The poll may be far off, and a start is a milestone; a job that cannot start says so then, too. */
static void look_later(struct order *x, const struct adapter_job *job)
{
    int64_t at = job->eligible_s > job->start_s ? job->eligible_s : job->start_s;
    int64_t in_us = at * 1000000 - adv_wall_us();

    x->late_looks = 0;
    x->start_us = 0;
    if (job->state == ADAPTER_JOB_PENDING && in_us < LATE_START_US)
        x->start_us = adv_mono_us() + (in_us > 0 ? in_us : 0);
}

static void finish(struct order *x, advisor_v1_Disposition d, advisor_v1_DispositionReason why,
                   const char *text)
{
    struct adv_err err;

    tell(x, d, why, text);
    x->done_us = adv_mono_us();
    /* Any other end leaves the hold to be given back. */
    if (why == REASON(DESIRED_STATE_OBSERVED) &&
        journal_append_hold_end(x->a->journal, x->o.attempt.job_id, &err) < 0)
        adv_warn("advice", "the end of a hold is not journalled", ADV_FS("why", err.msg));
}

static void report_action(struct order *x, uint64_t seq, const struct journal_intent *in,
                          const struct adapter_result *res, const char *command, const char *reason)
{
    struct agent *a = x->a;
    advisor_v1_ActionReport m = { .journal_seq = seq, .has_epoch = true,
                                  .epoch = agent_epoch_msg(in->epoch), .generation = in->generation,
                                  .has_attempt = true, .attempt = x->o.attempt,
                                  .verb = agent_verb_msg(x->verb),
                                  .phase = advisor_v1_ActionPhase_ACTION_PHASE_INTENT,
                                  .observe_wall_ms = adv_wall_us() / 1000 };
    struct adv_err err;

    (void) snprintf(m.attempt.cluster, sizeof(m.attempt.cluster), "%s", a->cfg->cluster);
    (void) snprintf(m.advice, sizeof(m.advice), "%s", in->advice);
    (void) adv_utf8_lossy_buf(m.read_before, sizeof(m.read_before), in->read_before, strlen(in->read_before));
    if (command) {
        static const advisor_v1_CommandResult commands[] = {
            [ADAPTER_COMMAND_NOT_SENT] = advisor_v1_CommandResult_COMMAND_RESULT_NOT_SENT,
            [ADAPTER_COMMAND_ACCEPTED] = advisor_v1_CommandResult_COMMAND_RESULT_ACCEPTED,
            [ADAPTER_COMMAND_REFUSED] = advisor_v1_CommandResult_COMMAND_RESULT_REFUSED,
            [ADAPTER_COMMAND_TIMED_OUT] = advisor_v1_CommandResult_COMMAND_RESULT_TIMED_OUT,
        };
        m.phase = advisor_v1_ActionPhase_ACTION_PHASE_OUTCOME;
        m.command = commands[res->command];
        m.observed = res->observed == ADAPTER_OBSERVED_YES  ? advisor_v1_Observed_OBSERVED_YES
                     : res->observed == ADAPTER_OBSERVED_NO ? advisor_v1_Observed_OBSERVED_NO
                                                            : advisor_v1_Observed_OBSERVED_UNKNOWN;
        (void) snprintf(m.reason, sizeof(m.reason), "%s", reason);
        struct adv_buf notes;
        adv_buf_init(&notes, 4096);
        if (x->verb == ADAPTER_VERB_REARM_CHILD && x->children && x->children->at < x->children->n)
            (void) adv_buf_appendf(&notes, "job %s; ", x->children->list[x->children->at].id);
        if (res->revived_wrongly == ADAPTER_YES)
            (void) adv_buf_append_str(&notes, "the command brought back a job that had been cancelled "
                                              "or had completed: it is cancelled again; ");
        for (size_t i = 0; i < res->n_notes; i++)
            (void) adv_buf_appendf(&notes, "%s; ", res->notes[i]);
        if (res->err.msg[0])
            (void) adv_buf_append_str(&notes, res->err.msg);
        if (notes.len)
            (void) adv_utf8_lossy_buf(m.detail, sizeof(m.detail), notes.data, notes.len);
        adv_buf_done(&notes);
    }
    if (a->session && session_send_action(a->session, &m, &err) < 0)
        adv_error("advice", "an action is not reported", ADV_FS("why", err.msg));
}

/* The gate */

/* What may be done here now: the lower of the cluster's mode and the site's ceiling. */
static advisor_v1_Mode mode_now(struct agent *a)
{
    static const advisor_v1_Mode modes[] = {
        [CEILING_OFF] = advisor_v1_Mode_MODE_OFF,
        [CEILING_OBSERVE] = advisor_v1_Mode_MODE_OBSERVE,
        [CEILING_APPROVE] = advisor_v1_Mode_MODE_APPROVE,
        [CEILING_ACT] = advisor_v1_Mode_MODE_ACT,
    };

    agent_look_at_ceiling(a);
    advisor_v1_Mode ceiling = modes[ceiling_mode(a->ceiling)];
    return a->cluster_mode < ceiling ? a->cluster_mode : ceiling;
}

/* Where a person is to be asked, one was: for exactly this generation. */
static bool mode_suffices(const struct order *x, advisor_v1_Mode mode)
{
    return mode == advisor_v1_Mode_MODE_ACT ||
           (mode == advisor_v1_Mode_MODE_APPROVE && reconcile_approved(&x->o));
}

/* On what ground may the order's verb be done in @mode? False: on none. A job may be kept in a hold while a person is still to be
 * asked, if the site says so; the ceiling is asked for that. */
static bool ground_of(const struct order *x, advisor_v1_Mode mode, enum ceiling_ground *ret)
{
    bool actionable = x->o.actionability == advisor_v1_Actionability_ACTIONABILITY_ACTIONABLE;

    if (actionable && mode_suffices(x, mode)) {
        *ret = reconcile_approved(&x->o) ? CEILING_BY_APPROVAL : CEILING_BY_MODE;
        return true;
    }
    *ret = CEILING_UNAPPROVED;
    return reconcile_preserves(&x->o) && mode >= advisor_v1_Mode_MODE_APPROVE;
}

static struct order *find_tag(const struct agent *a, const char *tag)
{
    for (struct order *x = a->orders; x; x = x->next)
        if (tag && strcmp(x->tag, tag) == 0)
            return x;
    return NULL;
}

static bool deny(struct order *x, advisor_v1_DispositionReason why, const char *fmt, ...) ADV_PRINTF(3, 4);
static bool deny(struct order *x, advisor_v1_DispositionReason why, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(x->denied_text, sizeof(x->denied_text), fmt, ap);
    va_end(ap);
    x->denied = why;
    x->denied_by_journal = false;
    return false;
}

/* A disk that is full, or a sync that failed, says nothing of the advice. */
static bool passes(int r)
{
    return r == -ADV_RESOURCE_EXHAUSTED || r == -ADV_UNAVAILABLE;
}

static bool deny_unwritten(struct order *x, int r, const struct adv_err *err)
{
    (void) deny(x, REASON(NOT_AUTHORIZED_BY_CLUSTER), "%s", err->msg);
    x->denied_by_journal = passes(r);
    return false;
}

static struct order *find(const struct agent *a, const char *name)
{
    for (struct order *x = a->orders; x; x = x->next)
        if (!x->unwind && strcmp(x->o.name, name) == 0)
            return x;
    return NULL;
}

/* An order in force says itself how long it is: by the clock since boot. */
static bool in_force(const struct order *x)
{
    return x && !x->done_us && !x->stale && adv_boot_us() < x->expires_boot_us &&
           x->o.actionability >= advisor_v1_Actionability_ACTIONABILITY_NEEDS_APPROVAL;
}

static enum journal_mode mode_told(const struct agent *a)
{
    static const enum journal_mode modes[] = {
        [advisor_v1_Mode_MODE_UNSPECIFIED] = JOURNAL_MODE_UNKNOWN, [advisor_v1_Mode_MODE_OFF] = JOURNAL_MODE_OFF,
        [advisor_v1_Mode_MODE_OBSERVE] = JOURNAL_MODE_OBSERVE,     [advisor_v1_Mode_MODE_APPROVE] = JOURNAL_MODE_APPROVE,
        [advisor_v1_Mode_MODE_ACT] = JOURNAL_MODE_ACT,
    };

    return (size_t) a->cluster_mode < ADV_ARRAY_LEN(modes) ? modes[a->cluster_mode] : JOURNAL_MODE_UNKNOWN;
}

/* Is the job to stay in our hold? While its order is carried out or may still become approved; not
 * when the mode was lowered to less, or when nobody wants it any more. */
static bool keeps(struct agent *a, const struct journal_hold *h)
{
    /* After a restart the clock may be another: only what no order speaks for goes by it. */
    bool expired = h->expires_wall_us && agent_wall_us(a) >= h->expires_wall_us;
    const struct order *x = find(a, h->advice);

    if (x && (x->busy || x->put_right))
        return true;
    if (!a->orders_known) /* as a rule a matter of seconds */
        return !expired || !a->session_up_us || adv_mono_us() - a->session_up_us < UNTOLD_US;
    if (!in_force(x))
        return false;
    agent_look_at_ceiling(a);
    return !hold_lowered(mode_told(a), ceiling_known(a->ceiling), ceiling_mode(a->ceiling));
}

/* What the records of holds say of their advice, for whoever reads them when we cannot act: the watchdog, the next run. */
static enum journal_want want_of(struct agent *a, const struct journal_hold *h, advisor_v1_Mode mode)
{
    const struct order *x = find(a, h->advice);

    if ((h->on_expiry == JOURNAL_CANCEL && !h->kept) || !in_force(x))
        return JOURNAL_OVER;
    if (h->kept)
        return JOURNAL_AWAITING;
    return x->o.actionability == advisor_v1_Actionability_ACTIONABILITY_ACTIONABLE && mode_suffices(x, mode)
               ? JOURNAL_WANTED
               : JOURNAL_AWAITING;
}

/* When a hold expires others decide, by clocks that began at another time than ours: where the wall clock was set since our
 * start, the later of what it says and what ours says. A hold that lasts too long is waited for; one that is born expired is
 * released beside an agent that is well. */
static int64_t latest_wall_us(struct agent *a)
{
    int64_t wall = adv_wall_us(), steady = agent_wall_us(a);

    return wall > steady ? wall : steady;
}

static int64_t hold_until(struct agent *a, const struct order *x)
{
    int64_t left = x->expires_boot_us - adv_boot_us();

    return latest_wall_us(a) + (left > HOLD_MIN_US ? left : HOLD_MIN_US);
}

/* False: it is as it should be. A lease that merely ran out says nothing: nobody else need have it. */
static bool is_news(struct agent *a, const struct journal_hold *h, advisor_v1_Mode mode, struct journal_hold *ret)
{
    const struct order *x = find(a, h->advice);
    bool mine = lease_valid(&a->lease, adv_boot_us()), know = mine && a->orders_known;

    *ret = *h;
    ret->mode = mode_told(a);
    if (know)
        ret->want = want_of(a, h, mode);
    else if (!mine && a->standing_by)
        ret->want = JOURNAL_ELSEWHERE;
    if (know && ret->want != JOURNAL_OVER && h->expires_wall_us && h->expires_wall_us - latest_wall_us(a) < HOLD_RENEW_US)
        ret->expires_wall_us = hold_until(a, x);
    return ret->mode != h->mode || ret->want != h->want || ret->expires_wall_us != h->expires_wall_us;
}

static void renew_holds(struct agent *a, int64_t now)
{
    static struct adv_ratelimit limit;
    const struct journal_hold *h;
    struct journal_hold news[HOLDS_MAX];
    struct adv_err err;
    size_t pos = 0, n = 0;

    if (now < a->next_holds_us || !a->session_up_us)
        return;
    a->next_holds_us = now + HOLDS_US;
    advisor_v1_Mode mode = mode_now(a);
    while (n < HOLDS_MAX && (h = journal_next_hold(a->journal, &pos)))
        n += is_news(a, h, mode, &news[n]);
    for (size_t i = 0; i < n; i++) { /* the list changes with each */
        if (journal_append_hold(a->journal, &news[i], &err) < 0) {
            if (adv_log_ratelimit(&limit, 1))
                adv_warn("advice", "what became of a hold is not journalled, will try again", ADV_FS("job", news[i].job),
                         ADV_FS("why", err.msg));
            return;
        }
    }
}

/* A recovery that is begun must be allowed to end: what brings the job into our hold is asked for
 * together with what takes it out again. What only prepares one leaves room for it. */
static int may_chain(struct order *x, const struct adapter_job *job, enum ceiling_ground ground, struct adv_err *err)
{
    const enum adapter_verb chain[] = { x->verb, ADAPTER_VERB_CONSTRAIN, ADAPTER_VERB_RELEASE };
    bool holds = x->verb == ADAPTER_VERB_PRESERVE || x->verb == ADAPTER_VERB_INTERRUPT;
    unsigned done = journal_count_since(x->a->journal, agent_wall_us(x->a) - 3600000000ll);
    int r = 0;

    agent_look_at_ceiling(x->a);
    if (x->verb == ADAPTER_VERB_REARM_CHILD) { /* what holds already must still be constrained and released: this, too */
        size_t pos = 0;
        while (journal_next_hold(x->a->journal, &pos))
            done += 2;
    }
    if (x->verb == ADAPTER_VERB_MAKE_REQUEUEABLE || ground == CEILING_UNAPPROVED)
        return ceiling_check(x->a->ceiling, adapter_verb_name(x->verb), job->partition, job->account,
                             done + (holds ? 2 : 3), ground, err);
    for (size_t i = 0; i < (holds ? 3 : 1) && r == 0; i++)
        r = ceiling_check(x->a->ceiling, adapter_verb_name(chain[i]), job->partition, job->account,
                          done + (unsigned) i, ground, err);
    return r;
}

/* Where the site does not let us cancel, a job that is kept could not be given back, and where it lets us not constrain and
 * release, keeping it would be of no use. */
static bool may_keep(struct order *x)
{
    static const enum adapter_verb needs[] = { ADAPTER_VERB_CONSTRAIN, ADAPTER_VERB_RELEASE, ADAPTER_VERB_CANCEL };

    for (size_t i = 0; i < ADV_ARRAY_LEN(needs); i++)
        if (!ceiling_lists(x->a->ceiling, adapter_verb_name(needs[i])))
            return false;
    return true;
}

/* The watchdog, which ends our holds when we do not: its journal lies in a folder of ours. What it has ended has ended for us,
 * too; what it has begun may land until the landing bound has passed, as what an earlier run of ours began. */
static const struct journal_step *watchdog_open(const struct agent *a, const char *job)
{
    const struct journal_step *s;
    size_t pos = 0;

    while (a->watchdog && (s = journal_view_next_step(a->watchdog, &pos)))
        if (!s->done && (!job || strcmp(s->intent.job, job) == 0))
            return s;
    return NULL;
}

bool orders_watchdog_at_work(const struct agent *a)
{
    return watchdog_open(a, NULL) != NULL;
}

/* The step of one that was killed does not stand in the way for ever. */
static bool watchdog_at_work(const struct agent *a, const char *job)
{
    return watchdog_open(a, job) && adv_boot_us() < a->watchdog_free_boot_us;
}

static bool ended_by_watchdog(const struct agent *a, const struct journal_hold *h)
{
    const struct journal_step *s;
    size_t pos = 0;

    while ((s = journal_view_next_step(a->watchdog, &pos)))
        if (s->done && strcmp(s->intent.job, h->job) == 0 && strcmp(s->intent.advice, h->advice) == 0 &&
            s->intent.restarts + 1 == h->restarts &&
            strcmp(s->outcome.observed, adapter_observed_name(ADAPTER_OBSERVED_YES)) == 0)
            return true;
    return false;
}

static void follow_watchdog(struct agent *a, int64_t now)
{
    const struct journal_step *s, *newest = NULL;
    const struct journal_hold *h;
    struct adv_err err;
    size_t pos = 0;
    bool changed;
    int r;

    if (!a->watchdog || now < a->next_watchdog_us)
        return;
    if (now != INT64_MAX)
        a->next_watchdog_us = now + HOLDS_US;
    r = journal_view_refresh(a->watchdog, &changed, &err);
    if (!changed && r == 0 && !a->watchdog_unread)
        return;
    if (r < 0 && r != -ADV_NOT_FOUND && !a->watchdog_unread)
        adv_warn("advice", "the watchdog's journal cannot be read, what it did is found by looking at the jobs",
                 ADV_FS("why", err.msg));
    a->watchdog_unread = r < 0 && r != -ADV_NOT_FOUND;
    if (r < 0)
        return;
    while ((s = journal_view_next_step(a->watchdog, &pos)))
        if (!s->done && (!newest || s->seq > newest->seq))
            newest = s;
    if (newest && newest->seq != a->watchdog_seq) {
        a->watchdog_seq = newest->seq;
        a->watchdog_free_boot_us = adv_boot_us() + (a->cfg->command_deadline_ms + a->bound_ms) * 1000;
        lease_unsettle(&a->lease, adv_boot_us());
        adv_info("advice", "the watchdog has begun to end a hold, nothing is written until that can land no more",
                 ADV_FS("job", newest->intent.job), ADV_FS("advice", newest->intent.advice));
    }
    for (pos = 0; (h = journal_next_hold(a->journal, &pos));) {
        char job[JOURNAL_JOB_SIZE];
        if (!ended_by_watchdog(a, h))
            continue;
        (void) snprintf(job, sizeof(job), "%s", h->job);
        if (journal_append_hold_end(a->journal, job, &err) < 0) {
            a->watchdog_unread = true; /* once more at the next look */
            return;
        }
        adv_info("advice", "the watchdog has ended a hold", ADV_FS("job", job));
        pos = 0;
    }
}

/* Is what is wanted still what the step under way was decided for? */
static bool same_order(const struct order *x)
{
    return x->act_generation == x->o.generation && journal_epoch_cmp(x->act_epoch, x->epoch) == 0;
}

static bool may_write(struct order *x, const struct adapter_write *w)
{
    struct agent *a = x->a;
    int64_t now = adv_boot_us();
    enum ceiling_ground ground;
    struct adv_err err;
    int r;

    if (a->closing)
        return deny(x, REASON(STALE_EPOCH), "the agent is stopping");
    follow_watchdog(a, INT64_MAX);
    if (watchdog_at_work(a, x->o.attempt.job_id))
        return deny(x, REASON(STALE_EPOCH), "the watchdog has begun to end the hold of this job");
    if (!lease_may_write(&a->lease, now, w->deadline_ms, w->landing_bound_ms))
        return deny(x, REASON(STALE_EPOCH), "the lease does not cover the command");
    if ((r = journal_may_act(a->journal, &err)) < 0)
        return deny_unwritten(x, r, &err);
    if (x->unwind) {
        const struct journal_hold *h = journal_find_hold(a->journal, x->o.attempt.job_id);
        return (h && !keeps(a, h)) || deny(x, REASON(STALE_EPOCH), "the hold is wanted again");
    }
    if (x->put_right)
        return true;
    if (x->stale || journal_epoch_cmp(a->lease.epoch, x->epoch) != 0)
        return deny(x, REASON(STALE_EPOCH), "the advice is not confirmed under this epoch");
    if (!same_order(x))
        return deny(x, REASON(STALE_EPOCH), "the advice has changed meanwhile");
    if (now >= x->expires_boot_us)
        return deny(x, REASON(EXPIRED), "the advice has expired");
    if (!ground_of(x, mode_now(a), &ground))
        return deny(x, REASON(MODE_TOO_LOW), "the cluster's mode does not allow it");
    if (!w->before || !reconcile_allows(&x->o, w->before->comment) ||
        (x->verb == ADAPTER_VERB_REARM_CHILD && !reconcile_consents(w->before->comment, reconcile_approved(&x->o))))
        return deny(x, REASON(OPTED_OUT), "the job's comment does not ask for a restart");
    if (ground != CEILING_UNAPPROVED && !reconcile_consents(w->before->comment, reconcile_approved(&x->o)))
        ground = CEILING_UNAPPROVED; /* the job's comment asks for a person's word */
    if (reconcile_preserves(&x->o) && !may_keep(x))
        return deny(x, REASON(NOT_AUTHORIZED_BY_CLUSTER), "the site's ceiling does not allow to cancel, or to constrain and release");
    r = may_chain(x, &w->before->job, ground, &err);
    if (r < 0)
        return deny(x, r == -ADV_RESOURCE_EXHAUSTED    ? REASON(BUDGET_EXHAUSTED)
                       : r == -ADV_PERMISSION_DENIED ? REASON(NOT_AUTHORIZED_BY_CLUSTER)
                                                     : REASON(MODE_TOO_LOW),
                    "%s", err.msg);
    return true;
}

static void fill_intent(struct order *x, const struct adapter_write *w, struct journal_intent *in)
{
    const struct adapter_job *j = w->before ? &w->before->job : NULL;

    *in = (struct journal_intent) { .epoch = x->a->lease.epoch, .generation = x->o.generation,
                                    .restarts = x->o.attempt.restart_count,
                                    .submit_s = j ? j->submit_s : 0 };
    (void) snprintf(in->advice, sizeof(in->advice), "%s", x->o.name);
    (void) snprintf(in->job, sizeof(in->job), "%s", x->o.attempt.job_id);
    (void) snprintf(in->verb, sizeof(in->verb), "%s", adapter_verb_name(x->verb));
    if (x->verb == ADAPTER_VERB_REARM_CHILD) {
        in->submit_s = 0; /* the record is of the job that the advice speaks of */
        (void) snprintf(in->read_before, sizeof(in->read_before), "job %s waits for: %.180s", j ? j->id : "",
                        j ? j->dependency : "");
    } else if (j)
        (void) snprintf(in->read_before, sizeof(in->read_before),
                        "%s restarts=%u held=%d reason=%.40s submit=%lld", adapter_job_state_name(j->state),
                        j->restart_count, j->held, j->reason, (long long) j->submit_s);
    memcpy(x->read_before, in->read_before, sizeof(x->read_before));
}

/* What of the list that is asked for becomes ours: not what is in the job's already without us. */
static int what_it_adds(const struct adapter_write *w, struct adv_buf *ret, struct adv_err *err)
{
    const struct adapter_action *action = w->action;
    ADV_AUTO(adv_hostlist) users = adv_hostlist_new(NODES_MAX);
    ADV_AUTO(adv_hostlist) adds = adv_hostlist_new(NODES_MAX);
    int r;

    if (!users || !adds)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a list of nodes");
    if (w->before && (r = adv_hostlist_parse(users, w->before->excluded_nodes, err)) < 0)
        return r;
    for (size_t i = 0; i < action->n_exclude_before; i++)
        (void) adv_hostlist_remove(users, action->exclude_before[i]);
    for (size_t i = 0; i < action->n_exclude; i++)
        if (!adv_hostlist_contains(users, action->exclude[i]) &&
            (r = adv_hostlist_add(adds, action->exclude[i], err)) < 0)
            return r;
    r = adv_hostlist_format(adds, ret, err);
    return adv_buf_error(ret) ? adv_err_set(err, ADV_INVALID_ARGUMENT,
                                            "the list of nodes to avoid is too long to be journalled, expected at most %u bytes",
                                            LIST_MAX)
                              : r;
}

static int journal_hold(struct order *x, const char *comment, struct adv_err *err)
{
    struct journal_hold h = { .restarts = x->o.attempt.restart_count + 1, .first_submit_s = x->o.incarnation_unix,
                              .on_expiry = JOURNAL_RELEASE, .want = JOURNAL_WANTED, .mode = mode_told(x->a) };

    if (reconcile_preserves(&x->o)) { /* who is not restarted in the end must not run again either */
        h.kept = true;
        h.on_expiry = JOURNAL_CANCEL;
        h.want = JOURNAL_AWAITING;
    }

    h.expires_wall_us = hold_until(x->a, x);
    (void) snprintf(h.job, sizeof(h.job), "%s", x->o.attempt.job_id);
    (void) snprintf(h.advice, sizeof(h.advice), "%s", x->o.name);
    hold_comment_hash(comment, h.comment);
    return journal_append_hold(x->a->journal, &h, err);
}

static bool journal_step(struct order *x, const struct adapter_write *w)
{
    struct agent *a = x->a;
    ADV_AUTO_DONE(adv_buf) adds = { 0 };
    struct journal_intent in;
    struct adv_err err;
    int r;

    fill_intent(x, w, &in);
    adv_buf_init(&adds, LIST_MAX);
    if (x->verb == ADAPTER_VERB_CONSTRAIN) {
        if ((r = what_it_adds(w, &adds, &err)) < 0)
            return deny_unwritten(x, r, &err);
        in.adds = adds.len ? adds.data : NULL;
    }
    if ((r = journal_append_intent(a->journal, &in, agent_wall_us(a), &x->intent_seq, &err)) < 0)
        return deny_unwritten(x, r, &err);
    /* Behind the intent: who goes between the two must not leave a hold for which nothing was begun, and which would claim
     * what a person holds later. Without the hold the intent ends as not sent. */
    if (!x->unwind && (x->verb == ADAPTER_VERB_PRESERVE || x->verb == ADAPTER_VERB_INTERRUPT)) {
        if ((r = journal_hold(x, w->before->comment, &err)) < 0)
            return deny_unwritten(x, r, &err);
    }
    x->journal_wait_us = 0;
    report_action(x, x->intent_seq, &in, NULL, NULL, NULL);
    return true;
}

void orders_authorize(void *ctx, const struct adapter_write *w, adapter_authorize_cb cb, void *arg)
{
    struct agent *a = ctx;
    struct order *x = find_tag(a, w->action->tag);

    if (!x || !x->busy || x->verb != w->action->verb || x->intent_seq) {
        adv_error("advice", "a write that nobody ordered is refused", ADV_FS("tag", w->action->tag));
        cb(arg, false, 0);
        return;
    }
    if (!may_write(x, w)) {
        cb(arg, false, 0);
        return;
    }
    ADV_FAILPOINT("agent.after_lease_check");
    if (!journal_step(x, w)) {
        cb(arg, false, 0);
        return;
    }
    ADV_FAILPOINT("agent.after_intent");
    /* The sync may have taken its time. */
    if (!lease_may_write(&a->lease, adv_boot_us(), w->deadline_ms, w->landing_bound_ms)) {
        (void) deny(x, REASON(STALE_EPOCH), "the lease does not cover the command any more");
        cb(arg, false, 0);
        return;
    }
    cb(arg, true, lease_kill_at_boot_us(&a->lease, w->landing_bound_ms));
}

/* Outcomes that could not be written. Until they are, their intents count as open: what may have been done, was. */
struct unwritten {
    struct unwritten *next;
    uint64_t seq;
    struct journal_outcome out; /* excluded is its own */
};

static int64_t longer(int64_t wait_us)
{
    return !wait_us ? BACK_OFF_US : 2 * wait_us < BACK_OFF_MAX_US ? 2 * wait_us : BACK_OFF_MAX_US;
}

static void write_later(struct agent *a, uint64_t seq, const struct journal_outcome *out, const struct adv_err *why)
{
    struct unwritten *u = calloc(1, sizeof(*u));

    if (!u || (out->excluded && !(u->out.excluded = strdup(out->excluded)))) {
        free(u);
        adv_error("advice", "an outcome is not journalled, it counts as unknown", ADV_FU("journal_seq", seq),
                  ADV_FS("why", why->msg));
        return;
    }
    char *excluded = u->out.excluded;
    u->seq = seq;
    u->out = *out;
    u->out.excluded = excluded;
    u->next = a->unwritten;
    a->unwritten = u;
    if (!a->unwritten_wait_us) {
        a->unwritten_wait_us = longer(0);
        a->unwritten_due_us = adv_mono_us() + a->unwritten_wait_us;
    }
    adv_error("advice", "an outcome cannot be journalled, will try again and again", ADV_FU("journal_seq", seq),
              ADV_FS("why", why->msg));
}

static void write_outcomes(struct agent *a)
{
    struct unwritten *u;
    int r = 0;

    while ((u = a->unwritten)) {
        r = journal_append_outcome(a->journal, u->seq, &u->out, NULL);
        if (r < 0 && r != -ADV_NOT_FOUND)
            break;
        if (r == 0)
            adv_info("advice", "an outcome is journalled at last", ADV_FU("journal_seq", u->seq));
        a->unwritten = u->next;
        free(u->out.excluded);
        free(u);
    }
    a->unwritten_wait_us = a->unwritten ? longer(a->unwritten_wait_us) : 0;
    a->unwritten_due_us = adv_mono_us() + a->unwritten_wait_us;
}

/* Steps */

/* False: its intent is open as before. */
static bool close_intent(struct order *x, const struct adapter_result *res)
{
    struct agent *a = x->a;
    struct journal_outcome out = { 0 };
    struct journal_intent in = { .epoch = a->lease.epoch, .generation = x->o.generation };
    struct adv_hostlist *hl = NULL;
    struct adv_buf text;
    struct adv_err err;
    bool written, known = !res->n_excluded;
    size_t pos = 0;

    if (!x->intent_seq)
        return true;
    for (const struct journal_step *s; (s = journal_next_open(a->journal, &pos));)
        if (s->seq == x->intent_seq)
            in = s->intent;
    (void) snprintf(out.command, sizeof(out.command), "%s", adapter_command_name(res->command));
    (void) snprintf(out.observed, sizeof(out.observed), "%s", adapter_observed_name(res->observed));
    (void) snprintf(out.reason, sizeof(out.reason), "%s", adapter_reason_name(res->reason));
    adv_buf_init(&text, LIST_MAX);
    if (res->n_excluded && (hl = adv_hostlist_new(NODES_MAX))) {
        known = true;
        for (size_t i = 0; known && i < res->n_excluded; i++)
            known = adv_hostlist_parse(hl, res->excluded[i], NULL) >= 0;
        if (known && (known = adv_hostlist_format(hl, &text, NULL) == 0))
            out.excluded = text.data;
    }
    if (!known) /* or the record would say that nothing is ours: what was asked for may be */
        (void) snprintf(out.observed, sizeof(out.observed), "%s", adapter_observed_name(ADAPTER_OBSERVED_UNKNOWN));
    ADV_FAILPOINT("agent.before_outcome");
    written = journal_append_outcome(a->journal, x->intent_seq, &out, &err) == 0;
    if (!written)
        write_later(a, x->intent_seq, &out, &err);
    ADV_FAILPOINT("agent.after_outcome");
    report_action(x, x->intent_seq, &in, res, out.command, out.reason);
    adv_buf_done(&text);
    (void) adv_hostlist_free(hl);
    x->intent_seq = 0;
    return written;
}

/* A second, then twice as long each time. */
static void wait_for_journal(struct order *x, const char *why)
{
    if (!x->journal_wait_us)
        adv_warn("advice", "the journal cannot be written, so nothing is done; will try again and again",
                 ADV_FS("job", x->o.attempt.job_id), ADV_FS("why", why), ADV_FS("tag", x->tag));
    tell(x, advisor_v1_Disposition_DISPOSITION_PENDING, REASON(NOT_AUTHORIZED_BY_CLUSTER), why);
    x->journal_wait_us = longer(x->journal_wait_us);
    x->due_us = adv_mono_us() + x->journal_wait_us;
}

static void wait_longer(struct order *x)
{
    x->back_off_us = longer(x->back_off_us);
    x->due_us = adv_mono_us() + x->back_off_us;
}

static void on_denied(struct order *x)
{
    advisor_v1_Disposition pending = advisor_v1_Disposition_DISPOSITION_PENDING;

    x->due_us = adv_mono_us() + LATER_US;
    if (x->denied_by_journal) {
        wait_for_journal(x, x->denied_text);
        return;
    }
    if (x->unwind && x->verb == ADAPTER_VERB_CONSTRAIN && x->denied == REASON(NOT_AUTHORIZED_BY_CLUSTER))
        x->constrained = true; /* an early start is a favour: the way back goes on without it */
    if (x->unwind || x->put_right)
        return;
    /* It is not kept meanwhile, that is all: what a person is asked stands. */
    if (x->denied == REASON(NOT_AUTHORIZED_BY_CLUSTER) && reconcile_preserves(&x->o) &&
        x->o.actionability == advisor_v1_Actionability_ACTIONABILITY_NEEDS_APPROVAL) {
        tell(x, pending, REASON(MODE_TOO_LOW), x->denied_text);
        wait_longer(x);
        return;
    }
    switch (x->denied) {
    case REASON(EXPIRED):
    case REASON(OPTED_OUT):
    case REASON(NOT_AUTHORIZED_BY_CLUSTER):
        finish(x, advisor_v1_Disposition_DISPOSITION_ABANDONED, x->denied, x->denied_text);
        break;
    default: /* may change by itself */
        tell(x, pending, x->denied, x->denied_text);
        break;
    }
}

/* The scheduler says no, or nothing: nothing is lost by waiting. */
static void back_off(struct order *x, const struct adapter_result *res)
{
    if (!x->back_off_us)
        adv_warn("advice", x->unwind ? "a held job cannot be given back, will try again and again"
                                     : "a wrongly revived job cannot be cancelled, will try again and again",
                 ADV_FS("job", x->o.attempt.job_id), ADV_FS("reason", adapter_reason_name(res->reason)),
                 ADV_FS("why", res->err.msg), ADV_FS("tag", x->tag));
    wait_longer(x);
}

static void unwind_acted(struct order *x, const struct adapter_result *res)
{
    struct adv_err err;

    switch (res->reason) {
    case ADAPTER_REASON_COMPLETING_WAIT:
        x->due_us += LATER_US;
        return;
    case ADAPTER_REASON_OK:
    case ADAPTER_REASON_ALREADY_SATISFIED:
        x->back_off_us = 0;
        if (x->verb == ADAPTER_VERB_CONSTRAIN)
            x->constrained = true;
        else
            x->due_us += LATER_US;
        return;
    case ADAPTER_REASON_CONFLICT_USER_ACTION:
    case ADAPTER_REASON_ATTEMPT_SUPERSEDED:
    case ADAPTER_REASON_ID_REUSED:
    case ADAPTER_REASON_GONE:
        if (x->verb == ADAPTER_VERB_CONSTRAIN)
            break;
        if (journal_append_hold_end(x->a->journal, x->o.attempt.job_id, &err) < 0)
            back_off(x, res);
        else
            x->done_us = adv_mono_us(); /* it is somebody else's now */
        return;
    default:
        break;
    }
    if (x->verb == ADAPTER_VERB_CONSTRAIN) { /* an early start is a favour, tried once */
        x->constrained = true;
        return;
    }
    back_off(x, res);
}

/* Written down as well, so that nothing ever releases it. */
static void put_right(struct order *x, const struct adapter_job *job)
{
    const struct journal_hold *h = journal_find_hold(x->a->journal, x->o.attempt.job_id);
    struct journal_hold cancel;
    struct adv_err err;

    x->put_right = true;
    x->right_submit_s = job->submit_s;
    x->right_restarts = job->restart_count;
    if (!h || (h->on_expiry == JOURNAL_CANCEL && !h->kept))
        return;
    cancel = *h;
    cancel.kept = false;
    cancel.on_expiry = JOURNAL_CANCEL;
    cancel.want = JOURNAL_OVER;
    if (journal_append_hold(x->a->journal, &cancel, &err) < 0)
        adv_warn("advice", "that a job is to be cancelled is not journalled", ADV_FS("why", err.msg));
}

static void right_acted(struct order *x, const struct adapter_result *res)
{
    switch (res->reason) {
    case ADAPTER_REASON_OK:
    case ADAPTER_REASON_ALREADY_SATISFIED:
    case ADAPTER_REASON_CANCELLED_BY_USER:
    case ADAPTER_REASON_GONE:
        x->put_right = false;
        finish(x, advisor_v1_Disposition_DISPOSITION_ABANDONED, REASON(CONFLICTING_USER_ACTION),
               "the job had been cancelled or had completed, and was cancelled again");
        break;
    case ADAPTER_REASON_ATTEMPT_SUPERSEDED:
    case ADAPTER_REASON_ID_REUSED:
    case ADAPTER_REASON_COMPLETED:
    case ADAPTER_REASON_WRONG_STATE:
        x->put_right = false;
        finish(x, advisor_v1_Disposition_DISPOSITION_ABANDONED, REASON(CONFLICTING_USER_ACTION),
               "the job had been cancelled or had completed; somebody has taken it since");
        break;
    case ADAPTER_REASON_COMPLETING_WAIT:
        x->due_us += LATER_US;
        break;
    default:
        back_off(x, res);
        break;
    }
}

/* Somebody cancelled a part of the job while the rest was requeued. */
static bool half_requeued(const struct order *x, const struct adapter_result *res)
{
    return (x->verb == ADAPTER_VERB_PRESERVE || x->verb == ADAPTER_VERB_INTERRUPT) && res->observed == ADAPTER_OBSERVED_YES &&
           res->reason == ADAPTER_REASON_CANCELLED_BY_USER && res->after && res->after->job.held_by_requeue;
}

/* What is left of it waits in our hold, and is neither to run nor to be taken from its owner. */
static void leave_half(struct order *x)
{
    const struct journal_hold *h = journal_find_hold(x->a->journal, x->o.attempt.job_id);
    struct journal_hold leave;
    struct adv_err err;

    adv_error("advice", "only a part of a job was requeued, the rest had been cancelled: it stays held, for its owner to release or cancel",
              ADV_FS("job", x->o.attempt.job_id), ADV_FS("advice", x->o.name), ADV_FS("tag", x->tag));
    if (!h)
        return;
    leave = *h;
    leave.kept = false;
    leave.on_expiry = JOURNAL_LEAVE;
    leave.want = JOURNAL_OVER;
    if (journal_append_hold(x->a->journal, &leave, &err) < 0)
        adv_warn("advice", "that a job is to be left held is not journalled", ADV_FS("why", err.msg));
}

/* Children */

static void on_acted(void *arg, const struct adapter_result *res);

static void note_child(struct order *x, const char *id, const char *why)
{
    struct children *c = x->children;
    size_t used = strlen(c->note);

    adv_warn("advice", "a dependent job does not get its dependency back", ADV_FS("job", x->o.attempt.job_id), ADV_FS("child", id),
             ADV_FS("why", why), ADV_FS("tag", x->tag));
    (void) snprintf(c->note + used, sizeof(c->note) - used, "%sjob %s: %s", used ? "; " : "", id, why);
}

static void add_child(void *arg, const advisor_v1_JobObservation *o, const char *before)
{
    struct order *x = arg;
    struct children *c = x->children;
    struct child *k = &c->list[c->n];

    if (strcmp(o->job_id, x->o.attempt.job_id) == 0)
        return;
    if (c->n == CHILDREN_MAX || !(k->before = strdup(before))) {
        c->more++;
        return;
    }
    (void) snprintf(k->id, sizeof(k->id), "%s", o->job_id);
    k->submit_s = o->submit_unix;
    k->restarts = o->restart_count;
    c->n++;
}

/* Only an ended job's dependents were judged: those of one that was interrupted wait on. */
static bool may_have_lost_children(const struct order *x)
{
    struct agent *a = x->a;
    const char *job = x->o.attempt.job_id;
    bool failed = journal_find_step(a->journal, x->o.name, job, adapter_verb_name(ADAPTER_VERB_PRESERVE)) != NULL;
    bool ran = journal_find_step(a->journal, x->o.name, job, adapter_verb_name(ADAPTER_VERB_INTERRUPT)) != NULL;

    /* where another agent requeued it, it may have been either */
    return x->o.rearm_children && a->adapter->ops->depends && (failed || !ran);
}

/* Two jobs of one list may be given back at once: each write is of the whole list, and must have seen the other's. */
static bool another_is_at(const struct order *x, const char *child)
{
    for (const struct order *o = x->a->orders; o; o = o->next)
        if (o != x && o->busy && o->verb == ADAPTER_VERB_REARM_CHILD && o->children && o->children->at < o->children->n &&
            strcmp(o->children->list[o->children->at].id, child) == 0)
            return true;
    return false;
}

/* The next step for a dependent while the job @d waits in our hold; false: nothing is left to do. */
static bool step_for_child(struct order *x, const struct adapter_job_detail *d)
{
    struct agent *a = x->a;
    struct children *c = x->children;

    if (!c) {
        if (!may_have_lost_children(x) || !(c = x->children = calloc(1, sizeof(*c))))
            return false;
        /* not known when it ended: what was changed since the requeue, at least */
        snapshot_dependents(a->snapshot, a->adapter->ops->depends, x->o.attempt.job_id, (x->end_s ? x->end_s : d->job.submit_s) - 2,
                            add_child, x);
        c->began_us = adv_mono_us();
        agent_look_at_ceiling(a);
        c->not_listed = !ceiling_lists(a->ceiling, adapter_verb_name(ADAPTER_VERB_REARM_CHILD));
    }
    if (c->at < c->n && !c->not_listed && adv_mono_us() - c->began_us > CHILDREN_US) {
        c->more += (unsigned) (c->n - c->at);
        c->at = c->n;
    }
    if (c->at >= c->n || c->not_listed)
        return false;
    const struct child *k = &c->list[c->at];
    if (another_is_at(x, k->id))
        return true; /* looked at again soon */
    struct adapter_action action = { .verb = ADAPTER_VERB_REARM_CHILD, .id = k->id, .tag = x->tag, .expect_submit_s = k->submit_s,
                                     .expect_restarts = k->restarts, .parent = x->o.attempt.job_id,
                                     .parent_restarts = d->job.restart_count, .dependency_before = k->before,
                                     .deadline_ms = (int) a->cfg->action_deadline_ms };
    x->verb = action.verb;
    x->busy = true;
    x->intent_seq = 0;
    x->act_generation = x->o.generation;
    x->act_epoch = x->epoch;
    a->adapter->ops->act(a->adapter, &action, on_acted, x);
    return true;
}

static void next_child(struct order *x)
{
    x->children->at++;
    x->children->tries = 0;
}

static const char *why_not(const struct adapter_result *res)
{
    const struct adapter_job_detail *d = res->after ? res->after : res->before;

    if (res->command != ADAPTER_COMMAND_NOT_SENT && res->n_notes) /* of what became of it */
        return res->notes[res->n_notes - 1];
    switch (res->reason) {
    case ADAPTER_REASON_CANCELLED_BY_USER:
        return "it was cancelled, by a person or by the scheduler for its dependency";
    case ADAPTER_REASON_CONFLICT_USER_ACTION:
        return "somebody holds it, or has changed it";
    case ADAPTER_REASON_COMPLETED:
    case ADAPTER_REASON_ATTEMPT_SUPERSEDED:
        return "it was started";
    case ADAPTER_REASON_WRONG_STATE:
        if (d && d->job.state != ADAPTER_JOB_PENDING)
            return "it was started";
        break;
    default:
        break;
    }
    return res->n_notes ? res->notes[res->n_notes - 1] : adapter_reason_name(res->reason);
}

static void child_acted(struct order *x, const struct adapter_result *res, bool wrote)
{
    struct children *c = x->children;
    const char *id = c->list[c->at].id;
    bool refused = res->reason == ADAPTER_REASON_LEASE_LOST && !x->denied_by_journal &&
                   (x->denied == REASON(OPTED_OUT) || x->denied == REASON(NOT_AUTHORIZED_BY_CLUSTER) ||
                    x->denied == REASON(BUDGET_EXHAUSTED));

    if (res->reason == ADAPTER_REASON_OK || res->reason == ADAPTER_REASON_ALREADY_SATISFIED) {
        c->given++;
        next_child(x);
    } else if (refused) {
        note_child(x, id, x->denied == REASON(OPTED_OUT) ? "its own comment does not ask for it" : x->denied_text);
        next_child(x);
    } else if (res->reason == ADAPTER_REASON_LEASE_LOST) {
        on_denied(x); /* of the order as a whole */
    } else if ((res->reason == ADAPTER_REASON_UNAVAILABLE || res->reason == ADAPTER_REASON_COMPLETING_WAIT) &&
               !wrote && ++c->tries < CHILD_TRIES) {
        x->due_us += LATER_US;
    } else {
        enum adapter_job_state now = res->after ? res->after->job.state : ADAPTER_JOB_PENDING;
        if (res->command == ADAPTER_COMMAND_ACCEPTED && now != ADAPTER_JOB_PENDING && now != ADAPTER_JOB_CANCELLED)
            adv_error("advice", "a dependent job was started when its dependencies were written", ADV_FS("child", id),
                      ADV_FS("job", x->o.attempt.job_id), ADV_FS("tag", x->tag));
        note_child(x, id, why_not(res));
        next_child(x);
    }
}

/* What the end of an order says of dependents. */
static const char *with_children(const struct order *x, const char *text, char *buf, size_t size)
{
    const struct children *c = x->children;
    char more[64] = "", given[80] = "";

    /* an earlier run of ours, or another agent, saw the end: what it took out of lists is in no list that we have seen */
    const char *before = c && !x->end_s ? "; dependents that the failure let go are not known, this agent was started later" : "";

    if (!c)
        return text;
    if (!c->n && !c->more) {
        (void) snprintf(buf, size, "%s%s", text, before);
        return buf;
    }
    if (c->not_listed) {
        (void) snprintf(buf, size, "%s; jobs that depend on it were left as they are (%zu): the site's ceiling does not list rearm_child",
                        text, c->n + c->more);
        return buf;
    }
    if (c->given)
        (void) snprintf(given, sizeof(given), "; %u dependent %s again", c->given, c->given == 1 ? "job waits for it" : "jobs wait for it");
    if (c->more)
        (void) snprintf(more, sizeof(more), "; %u more dependent jobs were not looked at", c->more);
    (void) snprintf(buf, size, "%s%s%s%s%s%s", text, given, more, before, c->note[0] ? "; dependencies not given back: " : "", c->note);
    return buf;
}

static void on_acted(void *arg, const struct adapter_result *res)
{
    struct order *x = arg;
    struct agent *a = x->a;
    struct reconcile_next n;
    struct adv_err err;
    bool wrote = x->intent_seq != 0;

    x->busy = false;
    x->due_us = adv_mono_us();
    if (wrote)
        (void) close_intent(x, res);
    if (wrote && res->command != ADAPTER_COMMAND_NOT_SENT && res->observed == ADAPTER_OBSERVED_UNKNOWN)
        lease_unsettle(&a->lease, adv_boot_us()); /* it may still land */
    adv_info("advice", "step done", ADV_FS("tag", x->tag), ADV_FS("job", x->o.attempt.job_id),
             ADV_FS("verb", adapter_verb_name(x->verb)),
             ADV_FS("command", adapter_command_name(res->command)),
             ADV_FS("observed", adapter_observed_name(res->observed)),
             ADV_FS("reason", adapter_reason_name(res->reason)), ADV_FS("more", res->err.msg));
    if (a->closing)
        return;
    /* A hold that surely did not come about is none. */
    if (!x->unwind && (x->verb == ADAPTER_VERB_PRESERVE || x->verb == ADAPTER_VERB_INTERRUPT) && wrote &&
        (res->command == ADAPTER_COMMAND_NOT_SENT || res->observed == ADAPTER_OBSERVED_NO) &&
        journal_append_hold_end(a->journal, x->o.attempt.job_id, &err) < 0) {
        a->holds_swept = false;
        adv_warn("advice", "the end of a hold is not journalled, will try again", ADV_FS("why", err.msg));
    }
    if ((x->verb == ADAPTER_VERB_RELEASE || x->verb == ADAPTER_VERB_CANCEL) &&
        res->observed == ADAPTER_OBSERVED_YES &&
        journal_append_hold_end(a->journal, x->o.attempt.job_id, &err) < 0)
        adv_warn("advice", "the end of a hold is not journalled", ADV_FS("why", err.msg));
    if (res->after)
        agent_job_read(a, res->after);
    if (wrote && !x->unwind && !x->put_right && half_requeued(x, res))
        leave_half(x);
    if (res->revived_wrongly == ADAPTER_YES && res->after && !x->put_right) {
        adv_error("advice", "a command revived a job wrongly, it is cancelled again",
                  ADV_FS("job", x->o.attempt.job_id), ADV_FS("tag", x->tag));
        put_right(x, &res->after->job);
        return;
    }
    /* What became of a step of an older generation says nothing of the new one, which begins with a look. */
    if (!x->unwind && !x->put_right && x->act_generation != x->o.generation)
        return;
    if (x->verb == ADAPTER_VERB_REARM_CHILD && x->children) {
        child_acted(x, res, wrote);
        return;
    }
    if (res->reason == ADAPTER_REASON_LEASE_LOST) {
        on_denied(x);
        return;
    }
    if (x->put_right) {
        right_acted(x, res);
        return;
    }
    if (x->unwind) {
        unwind_acted(x, res);
        return;
    }
    if (!same_order(x)) /* what became of the old says nothing about the new: the next look tells */
        return;
    if (x->verb == ADAPTER_VERB_CONSTRAIN &&
        (res->reason == ADAPTER_REASON_OK || res->reason == ADAPTER_REASON_ALREADY_SATISFIED))
        x->constrained = true;
    n = reconcile_after(res, x->verb);
    if (x->without_ours && x->constrained && n.what == RECONCILE_WAIT)
        n = reconcile_without_ours();
    if (n.what == RECONCILE_END && n.disposition == advisor_v1_Disposition_DISPOSITION_PENDING) {
        tell(x, n.disposition, n.why, n.text);
        x->due_us += AWAY_US;
    } else if (n.what == RECONCILE_END) {
        finish(x, n.disposition, n.why, half_requeued(x, res) ? "only a part of the job was requeued, the rest had been cancelled: "
                                                                "it stays held, for its owner to release or cancel"
                                        : res->err.msg[0]     ? res->err.msg
                                                              : n.text);
    } else if (res->reason != ADAPTER_REASON_OK && res->reason != ADAPTER_REASON_ALREADY_SATISFIED) {
        x->due_us += SOON_US;
    }
}

/* The names in @hl, for an action, which must outlive the use of @ret. */
static int names_in(const struct adv_hostlist *hl, const char ***ret, size_t *ret_n)
{
    size_t n = adv_hostlist_count(hl);
    const char **names = calloc(n + 1, sizeof(*names));

    if (!names)
        return -ADV_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < n; i++)
        names[i] = adv_hostlist_nth(hl, i);
    *ret = names;
    *ret_n = n;
    return 0;
}

/* What we have added to the job's list and not taken out again: what is known of the last step that
 * surely took effect, and all that was asked for since and may have landed. NULL: no memory. */
static struct adv_hostlist *added_nodes(const struct order *x)
{
    const char *verb = adapter_verb_name(ADAPTER_VERB_CONSTRAIN);
    ADV_AUTO(adv_hostlist) added = adv_hostlist_new(NODES_MAX);
    const struct journal_step *s;
    size_t pos = 0;

    while (added && (s = journal_next_step(x->a->journal, &pos))) {
        const char *more = s->intent.adds;
        if (strcmp(s->intent.verb, verb) != 0 || strcmp(s->intent.job, x->o.attempt.job_id) != 0 ||
            s->intent.submit_s < x->o.incarnation_unix) /* the id may have meant another job then */
            continue;
        if (s->done && strcmp(s->outcome.observed, adapter_observed_name(ADAPTER_OBSERVED_YES)) == 0) {
            (void) adv_hostlist_free(added);
            added = adv_hostlist_new(NODES_MAX);
            more = s->outcome.excluded;
        } else if (s->done && (strcmp(s->outcome.observed, adapter_observed_name(ADAPTER_OBSERVED_NO)) == 0 ||
                               strcmp(s->outcome.command, adapter_command_name(ADAPTER_COMMAND_NOT_SENT)) == 0)) {
            continue;
        }
        if (added && more && adv_hostlist_parse(added, more, NULL) < 0)
            return NULL;
    }
    return ADV_STEAL(added);
}

/* Not knowing is yes: the step that takes ours out looks again. */
static bool added_is_in(const struct order *x, const char *excluded)
{
    ADV_AUTO(adv_hostlist) added = added_nodes(x);
    ADV_AUTO(adv_hostlist) now = adv_hostlist_new(NODES_MAX);

    if (!added || !now || adv_hostlist_parse(now, excluded, NULL) < 0)
        return true;
    for (size_t i = 0; i < adv_hostlist_count(added); i++)
        if (adv_hostlist_contains(now, adv_hostlist_nth(added, i)))
            return true;
    return false;
}

static void act(struct order *x, enum adapter_verb verb, const struct adapter_job_detail *d)
{
    struct agent *a = x->a;
    struct adapter_action action = { .verb = verb, .id = x->o.attempt.job_id, .tag = x->tag,
                                     .deadline_ms = (int) a->cfg->action_deadline_ms };
    ADV_AUTO(adv_hostlist) wanted = NULL;
    ADV_AUTO(adv_hostlist) added = NULL;
    adv_auto_free const char **names = NULL;
    adv_auto_free const char **before = NULL;
    struct adv_err err;

    if (d) {
        action.expect_submit_s = d->job.submit_s;
        action.expect_restarts = d->job.restart_count;
    } else {
        action.expect_submit_s = x->right_submit_s;
        action.expect_restarts = x->right_restarts;
    }
    if (d && !x->unwind && (verb == ADAPTER_VERB_RELEASE || verb == ADAPTER_VERB_CONSTRAIN))
        action.expect_comment = d->comment;
    action.only_in_hold = verb == ADAPTER_VERB_CANCEL && x->unwind;
    if (verb == ADAPTER_VERB_PRESERVE)
        action.allowed_states = RECONCILE_CRASHED;
    if (verb == ADAPTER_VERB_CONSTRAIN) {
        bool from_order = !x->unwind && !x->without_ours;
        wanted = adv_hostlist_new(NODES_MAX);
        added = added_nodes(x);
        if (from_order && x->o.exclude_nodes[0] && wanted &&
            (adv_hostlist_parse(wanted, x->o.exclude_nodes, &err) < 0 || adv_hostlist_count(wanted) == 0)) {
            finish(x, advisor_v1_Disposition_DISPOSITION_ABANDONED, REASON(CONSTRAINT_UNSATISFIABLE),
                   "the list of nodes to avoid cannot be read");
            return;
        }
        if (!wanted || !added || (x->unwind && adv_hostlist_union(wanted, added, &err) < 0) ||
            names_in(wanted, &names, &action.n_exclude) < 0 ||
            names_in(added, &before, &action.n_exclude_before) < 0) {
            adv_warn("advice", "no memory for lists of nodes, will try again", ADV_FS("tag", x->tag));
            x->due_us = adv_mono_us() + LATER_US;
            return;
        }
        action.exclude = names;
        action.exclude_before = before;
    }
    x->verb = verb;
    x->busy = true;
    x->intent_seq = 0;
    x->act_generation = x->o.generation;
    x->act_epoch = x->epoch;
    a->adapter->ops->act(a->adapter, &action, on_acted, x);
}

/* The next attempt may truncate what this one wrote: before it can start, the end of that is kept for its owner. Nothing waits for it
 * longer than TAIL_KEEP_MS, and nothing depends on it. False: not yet. */
static bool log_is_kept(struct order *x, const struct adapter_job_detail *d)
{
    struct agent *a = x->a;
    struct tail_keep_args args = { .helper_path = a->cfg->tail_helper, .min_uid = (uint32_t) a->cfg->tail_min_uid, .uid = d->job.uid,
                                   .bytes = (size_t) a->cfg->keep_tail, .attempt = x->o.attempt.restart_count,
                                   .paths = { d->stdout_path, d->stderr_path } };
    const char *why = NULL;
    struct adv_err err;

    if (x->log_kept || !a->cfg->tail || a->cfg->keep_tail <= 0)
        return true;
    if (!x->keep && tail_keep(a->loop, &args, &x->keep, &err) < 0)
        why = err.msg;
    else if (!tail_keep_done(x->keep, adv_mono_us(), &why)) {
        x->due_us = adv_mono_us() + KEEP_LOOK_US;
        return false;
    }
    x->log_kept = true;
    (void) snprintf(x->log_note, sizeof(x->log_note), "%s", why ? why : "");
    if (why)
        adv_warn("advice", "the end of a job's log is not kept, its next attempt may truncate it", ADV_FS("job", x->o.attempt.job_id),
                 ADV_FS("why", why), ADV_FS("tag", x->tag));
    x->keep = tail_keep_free(x->keep);
    return true;
}

/* Our newest requeue for the hold. */
static const struct journal_step *requeue_of(const struct agent *a, const struct journal_hold *h)
{
    const char *preserve = adapter_verb_name(ADAPTER_VERB_PRESERVE), *interrupt = adapter_verb_name(ADAPTER_VERB_INTERRUPT);
    const struct journal_step *p = journal_find_step(a->journal, h->advice, h->job, preserve);
    const struct journal_step *i = journal_find_step(a->journal, h->advice, h->job, interrupt);

    return !p || (i && i->seq > p->seq) ? i : p;
}

/* Whose end could not be written, or was not reached by an earlier run. */
static void end_what_never_came(struct agent *a, int64_t now)
{
    const struct journal_hold *h;
    char job[JOURNAL_JOB_SIZE];
    size_t pos = 0;

    if (a->holds_swept || now < a->next_sweep_us)
        return;
    a->next_sweep_us = now + HOLDS_US;
    while ((h = journal_next_hold(a->journal, &pos))) {
        if (!hold_never_came(h, requeue_of(a, h)))
            continue;
        (void) snprintf(job, sizeof(job), "%s", h->job);
        if (journal_append_hold_end(a->journal, job, NULL) < 0)
            return;
        adv_info("advice", "a hold that never came about is off the record", ADV_FS("job", job));
        pos = 0; /* the list has changed */
    }
    a->holds_swept = !a->unwritten; /* an outcome that is still to be written may tell of one more */
}

static enum hold_whose whose_hold(struct order *x, const struct journal_hold *h, const struct adapter_job *job)
{
    static const enum adapter_verb requeues[] = { ADAPTER_VERB_PRESERVE, ADAPTER_VERB_INTERRUPT };
    int64_t first_submit_s = agent_first_submit(x->a, job);

    if (hold_never_came(h, requeue_of(x->a, h)))
        return HOLD_NOT_OURS;
    if (job->restart_count != h->restarts || !first_submit_s || h->first_submit_s)
        return hold_whose(h, job, first_submit_s);
    /* A record of an older version. The id has meant this job since its first submit: the attempt that
     * we requeued was one of it if it was submitted then or later. */
    for (size_t i = 0; i < ADV_ARRAY_LEN(requeues); i++) {
        const struct journal_step *s =
            journal_find_step(x->a->journal, h->advice, h->job, adapter_verb_name(requeues[i]));
        if (s && s->intent.submit_s && s->intent.restarts + 1 == h->restarts)
            return s->intent.submit_s >= first_submit_s ? HOLD_OURS : HOLD_NOT_OURS;
    }
    return HOLD_UNSURE;
}

static bool is_held(struct order *x, const struct journal_hold *h, const struct adapter_job *job)
{
    return whose_hold(x, h, job) == HOLD_OURS;
}

static void unwind_step(struct order *x, enum adapter_found found, const struct adapter_job_detail *d)
{
    struct agent *a = x->a;
    const struct journal_hold *h = journal_find_hold(a->journal, x->o.attempt.job_id);
    struct adv_err err;
    enum hold_whose whose = found == ADAPTER_FOUND && h && d->job.state == ADAPTER_JOB_PENDING && d->job.held_by_requeue
                           ? whose_hold(x, h, &d->job)
                           : HOLD_NOT_OURS;
    bool ours = whose == HOLD_OURS;

    x->due_us = adv_mono_us() + LATER_US;
    if (!h || keeps(a, h)) { /* begun anew if that changes */
        x->done_us = adv_mono_us();
        return;
    }
    if (found == ADAPTER_FOUND_UNKNOWN || (found == ADAPTER_FOUND && d->job.completing))
        return;
    if (found == ADAPTER_FOUND && d->job.restart_count < h->restarts) {
        const struct journal_step *s = journal_find_step(a->journal, h->advice, h->job, "preserve");
        const struct journal_step *i = journal_find_step(a->journal, h->advice, h->job, "interrupt");
        if ((s && !s->done) || (i && !i->done))
            return; /* may still land */
    }
    /* To let go of it would leave it held for ever, and to release it might be a release of somebody
     * else's hold: the record stays until the job is known or no longer held. */
    if (whose == HOLD_UNSURE && h->on_expiry != JOURNAL_LEAVE) {
        if (!x->back_off_us)
            adv_warn("advice", "a job waits in a hold that may be ours, which job its id means is not known; "
                               "it is left alone and looked at again, a person may release or cancel it",
                     ADV_FS("job", h->job), ADV_FS("advice", h->advice), ADV_FS("tag", x->tag));
        wait_longer(x);
        return;
    }
    if (whose != HOLD_NOT_OURS && h->on_expiry == JOURNAL_LEAVE)
        adv_warn("advice", "a held job is left as it is, for its owner to decide", ADV_FS("job", h->job));
    if (!ours || h->on_expiry == JOURNAL_LEAVE) {
        if (journal_append_hold_end(a->journal, h->job, &err) < 0)
            wait_for_journal(x, err.msg);
        else
            x->done_us = adv_mono_us();
        return;
    }
    if (h->kept) {
        char now[JOURNAL_HASH_SIZE];
        hold_comment_hash(d->comment, now);
        if (!now[0] || strcmp(now, h->comment) != 0) { /* a person's sign: not to be cancelled under their hands */
            adv_warn("advice", "a held job whose comment was changed is left as it is, for its owner to release or cancel",
                     ADV_FS("job", h->job), ADV_FS("advice", h->advice), ADV_FS("tag", x->tag));
            if (journal_append_hold_end(a->journal, h->job, &err) < 0)
                wait_for_journal(x, err.msg);
            else
                x->done_us = adv_mono_us();
            return;
        }
    }
    agent_look_at_ceiling(a);
    if (h->on_expiry == JOURNAL_CANCEL)
        act(x, ADAPTER_VERB_CANCEL, d);
    else if (!x->constrained && ceiling_lists(a->ceiling, adapter_verb_name(ADAPTER_VERB_CONSTRAIN)))
        act(x, ADAPTER_VERB_CONSTRAIN, d); /* or it would wait two minutes for its requeue */
    else if (log_is_kept(x, d))
        act(x, ADAPTER_VERB_RELEASE, d);
}

/* Did we bring the job back? A step that surely did nothing does not count: then it was somebody
 * else, and the job is theirs. Our own journal knows best; only where it has no such step at all does
 * what another agent recorded count. */
static bool requeued_here(const struct order *x, bool *ret_tried)
{
    const struct journal_step *s;
    size_t pos = 0;

    *ret_tried = false;

    while ((s = journal_next_step(x->a->journal, &pos))) {
        if (strcmp(s->intent.advice, x->o.name) != 0 ||
            (strcmp(s->intent.verb, adapter_verb_name(ADAPTER_VERB_PRESERVE)) != 0 &&
             strcmp(s->intent.verb, adapter_verb_name(ADAPTER_VERB_INTERRUPT)) != 0))
            continue;
        *ret_tried = true;
        if (!s->done || (strcmp(s->outcome.observed, adapter_observed_name(ADAPTER_OBSERVED_NO)) != 0 &&
                         strcmp(s->outcome.command, adapter_command_name(ADAPTER_COMMAND_NOT_SENT)) != 0))
            return true;
    }
    return false;
}

static bool requeued_by_us(const struct order *x)
{
    bool tried;

    return requeued_here(x, &tried) || (!tried && x->o.requeued_by_advice);
}

static bool made_requeueable(const struct order *x)
{
    const struct journal_step *s =
        journal_find_step(x->a->journal, x->o.name, x->o.attempt.job_id, adapter_verb_name(ADAPTER_VERB_MAKE_REQUEUEABLE));

    return s && s->done && strcmp(s->outcome.observed, adapter_observed_name(ADAPTER_OBSERVED_YES)) == 0;
}

/* A job that was kept is set in motion now: from here on its hold is like any other. */
static int use_kept(struct agent *a, const struct order *x, const struct journal_hold *h, struct adv_err *err)
{
    struct journal_hold used = *h;

    used.kept = false;
    used.on_expiry = JOURNAL_RELEASE;
    used.want = JOURNAL_WANTED;
    used.mode = mode_told(a);
    used.expires_wall_us = hold_until(a, x);
    return journal_append_hold(a->journal, &used, err);
}

static void on_inspected(void *arg, enum adapter_found found, struct adapter_job_detail *d,
                         const struct adv_err *err)
{
    struct order *x = arg;
    struct agent *a = x->a;
    struct reconcile_next n;
    struct adv_err why;
    bool tried;

    x->busy = false;
    x->due_us = adv_mono_us() + SOON_US;
    if (a->closing) {
        (void) adapter_job_detail_free(d);
        return;
    }
    if (found == ADAPTER_FOUND) {
        agent_job_read(a, d); /* our looks are observations as well */
        lease_good_read(&a->lease, x->look_boot_us, a->bound_ms);
    } else if (found == ADAPTER_FOUND_GONE) {
        agent_job_gone(a, x->o.attempt.job_id);
    }
    if (x->unwind) {
        unwind_step(x, found, d);
        (void) adapter_job_detail_free(d);
        return;
    }
    const struct journal_hold *h = journal_find_hold(a->journal, x->o.attempt.job_id);
    if (h && h->on_expiry == JOURNAL_CANCEL && !h->kept && found == ADAPTER_FOUND && d->job.held_by_requeue &&
        is_held(x, h, &d->job)) {
        put_right(x, &d->job);
        (void) adapter_job_detail_free(d);
        return;
    }
    struct reconcile_view v = {
        .order = &x->o,
        .found = found,
        .job = found == ADAPTER_FOUND ? d : NULL,
        .first_submit_s = found == ADAPTER_FOUND ? agent_first_submit(a, &d->job) : 0,
        .requeued_by_us = requeued_by_us(x),
        .made_requeueable = made_requeueable(x),
        .constrained = x->constrained,
        .ours_excluded = found == ADAPTER_FOUND && added_is_in(x, d->excluded_nodes),
    };
    if (h && found == ADAPTER_FOUND && h->comment[0] && is_held(x, h, &d->job)) {
        char now[JOURNAL_HASH_SIZE];
        hold_comment_hash(d->comment, now);
        v.comment_changed = strcmp(now, h->comment) != 0;
    }
    if (found == ADAPTER_FOUND_GONE && !v.first_submit_s)
        v.first_submit_s = x->o.incarnation_unix;
    n = reconcile_next(&v);
    switch (n.what) {
    case RECONCILE_WAIT:
        break;
    case RECONCILE_STEP:
        if (!lease_valid(&a->lease, adv_boot_us()) || !lease_settled(&a->lease, adv_boot_us())) {
            x->due_us = adv_mono_us() + SOON_US;
            break;
        }
        if (!h && d->job.held_by_requeue && journal_hold(x, d->comment, &why) < 0) { /* taken over */
            wait_for_journal(x, why.msg);
            break;
        }
        if (h && h->kept && !reconcile_preserves(&x->o) && is_held(x, h, &d->job) && use_kept(a, x, h, &why) < 0) {
            wait_for_journal(x, why.msg);
            break;
        }
        x->without_ours = n.without_ours;
        if (n.verb == ADAPTER_VERB_RELEASE && !log_is_kept(x, d))
            break;
        if (n.verb == ADAPTER_VERB_RELEASE && step_for_child(x, d))
            break;
        if (n.verb == ADAPTER_VERB_PRESERVE)
            x->end_s = d->job.end_s;
        act(x, n.verb, d);
        break;
    case RECONCILE_KEEP:
        if (!h && requeued_here(x, &tried)) { /* our hold was ended: it was let go of for what a person did */
            finish(x, advisor_v1_Disposition_DISPOSITION_ABANDONED, REASON(CONFLICTING_USER_ACTION),
                   "the job was let go of and left held, for its owner to release or cancel");
            break;
        }
        if (!h && journal_hold(x, d->comment, &why) < 0) { /* taken over */
            wait_for_journal(x, why.msg);
            break;
        }
        tell(x, advisor_v1_Disposition_DISPOSITION_PENDING,
             x->o.actionability == advisor_v1_Actionability_ACTIONABILITY_ACTIONABLE ? n.why : REASON(MODE_TOO_LOW), n.text);
        x->due_us = adv_mono_us() + a->cfg->poll_ms * 1000; /* the poll sees what people do, and wakes us */
        break;
    case RECONCILE_END:
        if (n.disposition == advisor_v1_Disposition_DISPOSITION_PENDING) {
            tell(x, n.disposition, n.why, n.text);
            x->due_us = adv_mono_us() + (n.why == REASON(SCHEDULER_UNAVAILABLE) ? AWAY_US : LATER_US);
        } else {
            char all[480];
            finish(x, n.disposition, n.why, with_children(x, n.text, all, sizeof(all)));
            if (found == ADAPTER_FOUND && n.disposition == advisor_v1_Disposition_DISPOSITION_CONVERGED)
                look_later(x, &d->job);
        }
        break;
    }
    (void) adapter_job_detail_free(d);
}

static void run(struct order *x)
{
    struct agent *a = x->a;

    if (x->put_right) {
        act(x, ADAPTER_VERB_CANCEL, NULL);
        return;
    }
    if (x->keep) { /* no look is needed to see whether that is done */
        const char *why;
        if (!tail_keep_done(x->keep, adv_mono_us(), &why)) {
            x->due_us = adv_mono_us() + KEEP_LOOK_US;
            return;
        }
    }
    if (!x->unwind) {
        /* What needs no look at the job. */
        struct reconcile_view v = { .order = &x->o, .found = ADAPTER_FOUND_UNKNOWN };
        struct reconcile_next n = reconcile_next(&v);
        if (adv_boot_us() >= x->expires_boot_us) {
            finish(x, advisor_v1_Disposition_DISPOSITION_ABANDONED, REASON(EXPIRED),
                   "the advice has expired");
            return;
        }
        if (n.why != REASON(SCHEDULER_UNAVAILABLE)) {
            if (n.disposition == advisor_v1_Disposition_DISPOSITION_PENDING) {
                tell(x, n.disposition, n.why, n.text);
                x->due_us = adv_mono_us() + LATER_US;
            } else {
                finish(x, n.disposition, n.why, n.text);
            }
            return;
        }
        enum ceiling_ground ground;
        if (!ground_of(x, mode_now(a), &ground)) {
            tell(x, advisor_v1_Disposition_DISPOSITION_PENDING, REASON(MODE_TOO_LOW),
                 "the cluster's mode or the site's ceiling does not allow it");
            x->due_us = adv_mono_us() + LATER_US;
            return;
        }
    }
    x->busy = true;
    x->look_boot_us = adv_boot_us();
    a->adapter->ops->inspect(a->adapter, x->o.attempt.job_id, on_inspected, x);
}

static void on_late_look(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    struct order *x = arg;
    struct agent *a = x->a;

    x->busy = false;
    if (!a->closing && found == ADAPTER_FOUND) {
        bool waits = d->job.state == ADAPTER_JOB_PENDING && d->job.restart_count == x->o.attempt.restart_count + 1;
        agent_job_read(a, d);
        if (!waits)
            x->start_us = 0;
        if (waits && strcmp(d->job.reason, "BadConstraints") == 0 && added_is_in(x, d->excluded_nodes)) {
            x->start_us = x->done_us = x->due_us = 0; /* not what was wanted: mend it */
            x->told = advisor_v1_Disposition_DISPOSITION_UNSPECIFIED;
        }
    }
    (void) adapter_job_detail_free(d);
}

static bool late_look_is_due(const struct order *x, int64_t now)
{
    static const int64_t after_us[LATE_LOOKS] = { 300000, 1000000, 3000000 };

    return x->done_us && x->start_us && x->late_looks < LATE_LOOKS && now >= x->start_us + after_us[x->late_looks];
}

/* The list */

static void order_free(struct order *x)
{
    x->keep = tail_keep_free(x->keep);
    children_free(x);
    free(x);
}

/* Room for one more: finished ones are only kept for repeats. */
static bool make_room(struct agent *a)
{
    struct order **done = NULL, *x;
    size_t n = 0;

    for (struct order **pp = &a->orders; *pp; pp = &(*pp)->next, n++)
        if ((*pp)->done_us && !(*pp)->busy && (!done || (*pp)->done_us <= (*done)->done_us))
            done = pp;
    if (n < ORDERS_MAX)
        return true;
    if (!done)
        return false;
    x = *done;
    *done = x->next;
    order_free(x);
    return true;
}

static struct order *add(struct agent *a)
{
    struct order *x = make_room(a) ? calloc(1, sizeof(*x)) : NULL;

    if (!x)
        return NULL;
    x->a = a;
    x->next = a->orders;
    a->orders = x;
    return x;
}

void orders_take(struct agent *a, const advisor_v1_AdviceOrder *o)
{
    struct order *x = find(a, o->name);

    if (!o->has_attempt || !o->attempt.job_id[0])
        return;
    if (x && o->generation < x->o.generation)
        return;
    if (!x && !(x = add(a))) {
        adv_error("advice", "no room for an advice, it is not carried out", ADV_FS("advice", o->name));
        return;
    }
    if (o->generation > x->o.generation || o->actionability != x->o.actionability || x->stale) {
        /* An answer to the old generation must not pass for one to the new. */
        x->done_us = 0;
        x->told = advisor_v1_Disposition_DISPOSITION_UNSPECIFIED;
        if (o->generation > x->o.generation || x->stale)
            x->constrained = false;
    }
    x->o = *o;
    x->stale = false;
    x->epoch = a->lease.epoch;
    x->expires_boot_us = adv_boot_us() + (int64_t) o->valid_for_ms * 1000;
    x->due_us = 0;
    if (!x->tag[0])
        (void) snprintf(x->tag, sizeof(x->tag), "%.64s/%u", o->correlation_id, ++a->order_number);
    adv_info("advice", "advice received", ADV_FS("advice", o->name), ADV_FU("generation", o->generation),
             ADV_FI("desired", o->desired_state), ADV_FI("actionability", o->actionability),
             ADV_FS("exclude", o->exclude_nodes), ADV_FS("tag", x->tag));
}

void orders_session_lost(struct agent *a)
{
    for (struct order *x = a->orders; x; x = x->next)
        x->stale = !x->unwind; /* what is ours to give back needs no order */
}

void orders_wake(struct agent *a, const char *job_id)
{
    for (struct order *x = a->orders; x; x = x->next)
        if (!x->done_us && !x->busy && strcmp(x->o.attempt.job_id, job_id) == 0)
            x->due_us = 0;
}

bool orders_writing(const struct agent *a)
{
    for (const struct order *x = a->orders; x; x = x->next)
        if (x->busy && x->intent_seq)
            return true;
    return false;
}

static bool unwinds(const struct agent *a, const char *job)
{
    for (const struct order *x = a->orders; x; x = x->next)
        if (x->unwind && !x->done_us && strcmp(x->o.attempt.job_id, job) == 0)
            return true;
    return false;
}

static void start_unwinds(struct agent *a)
{
    const struct journal_hold *h;
    size_t pos = 0;

    while ((h = journal_next_hold(a->journal, &pos))) {
        struct order *x;
        if (keeps(a, h) || unwinds(a, h->job))
            continue;
        if (!(x = add(a)))
            return;
        x->unwind = true;
        (void) snprintf(x->o.name, sizeof(x->o.name), "%s", h->advice);
        (void) snprintf(x->o.attempt.job_id, sizeof(x->o.attempt.job_id), "%s", h->job);
        x->o.attempt.restart_count = h->restarts ? h->restarts - 1 : 0;
        x->o.incarnation_unix = h->first_submit_s;
        (void) snprintf(x->tag, sizeof(x->tag), "unwind/%u", ++a->order_number);
        adv_info("advice", "a held job is given back", ADV_FS("job", h->job), ADV_FS("advice", h->advice),
                 ADV_FS("tag", x->tag));
    }
}

static void temp_order(struct agent *a, const struct journal_step *s, struct order *x)
{
    *x = (struct order) { .a = a, .intent_seq = s->seq };
    for (int v = 0; v < ADAPTER_VERB_MAX_; v++)
        if (strcmp(adapter_verb_name((enum adapter_verb) v), s->intent.verb) == 0)
            x->verb = (enum adapter_verb) v;
    (void) snprintf(x->o.attempt.job_id, sizeof(x->o.attempt.job_id), "%s", s->intent.job);
    x->o.attempt.restart_count = s->intent.restarts;
}

/* At the first session of this run: what the run before journalled may not have reached the control
 * plane. It knows actions by journal and number, so hearing of one twice is nothing to it. */
void orders_report_again(struct agent *a)
{
    const struct journal_step *s;
    size_t pos = 0, n = 0, left;

    while (journal_next_step(a->journal, &pos))
        n++;
    for (pos = 0, left = n; (s = journal_next_step(a->journal, &pos)); left--) {
        struct adapter_result res = { 0 };
        struct order x;
        if (left > REPORT_AGAIN_MIN && s->wall_us < agent_wall_us(a) - REPORT_AGAIN_US)
            continue;
        temp_order(a, s, &x);
        report_action(&x, s->seq, &s->intent, NULL, NULL, NULL);
        if (!s->done)
            continue;
        for (int c = 0; c <= ADAPTER_COMMAND_TIMED_OUT; c++)
            if (strcmp(adapter_command_name((enum adapter_command) c), s->outcome.command) == 0)
                res.command = (enum adapter_command) c;
        for (int o = 0; o <= ADAPTER_OBSERVED_NO; o++)
            if (strcmp(adapter_observed_name((enum adapter_observed) o), s->outcome.observed) == 0)
                res.observed = (enum adapter_observed) o;
        report_action(&x, s->seq, &s->intent, &res, s->outcome.command, s->outcome.reason);
    }
}

/* Intents of an earlier run: once nothing of theirs can land any more, their outcome is whatever is found then; where that
 * tells nothing the records are closed as unknown. A look that began earlier may be older than what landed last. Called
 * while no outcome waits to be written: what is open then, and not under way, is of an earlier run. */
static void close_old_intents(struct agent *a)
{
    const struct journal_step *s;
    struct adapter_result res = { .command = ADAPTER_COMMAND_TIMED_OUT };
    size_t pos = 0;

    if (journal_next_open(a->journal, &pos) && a->look_boot_us < a->lease.settled_boot_us) {
        if (a->late_look_for_us != a->lease.settled_boot_us)
            a->next_poll_us = 0;
        a->late_look_for_us = a->lease.settled_boot_us;
        return;
    }
    pos = 0;
    for (;;) {
        struct order *x = NULL, temp;
        struct journal_intent in;
        bool mine = false;

        s = journal_next_open(a->journal, &pos);
        if (!s)
            break;
        for (x = a->orders; x; x = x->next)
            mine = mine || x->intent_seq == s->seq;
        if (mine)
            continue;
        in = s->intent;
        temp_order(a, s, &temp);
        const advisor_v1_JobObservation *j = snapshot_find(a->snapshot, in.job);
        bool same = j && j->incarnation_unix && in.submit_s >= j->incarnation_unix; /* the id means what it meant */
        if (same && (temp.verb == ADAPTER_VERB_PRESERVE || temp.verb == ADAPTER_VERB_INTERRUPT))
            res.observed = j->restart_count > in.restarts ? ADAPTER_OBSERVED_YES : ADAPTER_OBSERVED_NO;
        else
            res.observed = ADAPTER_OBSERVED_UNKNOWN;
        (void) adv_err_set(&res.err, ADV_UNKNOWN, "the agent ended while the command ran");
        if (!close_intent(&temp, &res)) /* the disk is full, or worse: no more of it now */
            break;
        pos = 0; /* the list has changed */
    }
    a->old_intents_closed = !s;
}

/* What was received in an earlier session and is not told in this one, nobody waits for: the attempt has gone, or was settled
 * otherwise. Who stands by is told nothing, and if it acts again, everything anew. */
static void finish_forgotten(struct agent *a)
{
    for (struct order *x = a->orders; x; x = x->next) {
        if (!x->stale || x->unwind || x->put_right || x->busy || x->done_us)
            continue;
        if (a->orders_known)
            finish(x, advisor_v1_Disposition_DISPOSITION_ABANDONED, REASON(STALE_EPOCH),
                   "the control plane does not ask for it any more");
        else if (!a->lease.held)
            x->done_us = adv_mono_us();
    }
}

static void forget(struct agent *a, int64_t now)
{
    for (struct order **pp = &a->orders; *pp;) {
        struct order *x = *pp;
        if (x->busy || !x->done_us || !(x->unwind || now - x->done_us > FORGET_US)) {
            pp = &x->next;
            continue;
        }
        *pp = x->next;
        order_free(x);
    }
}

void orders_tick(struct agent *a)
{
    int64_t now = adv_mono_us();

    if (a->closing)
        return;
    if (a->unwritten && now >= a->unwritten_due_us)
        write_outcomes(a);
    finish_forgotten(a);
    forget(a, now);
    follow_watchdog(a, now);
    end_what_never_came(a, now);
    renew_holds(a, now);
    if (!a->lease.held || !lease_valid(&a->lease, adv_boot_us()))
        return;
    if (lease_settled(&a->lease, adv_boot_us()) && a->good_read_us) {
        if (!a->old_intents_closed && !a->unwritten)
            close_old_intents(a);
        start_unwinds(a);
    }
    for (struct order *x = a->orders; x; x = x->next) {
        if (!x->busy && late_look_is_due(x, now)) {
            x->late_looks++;
            x->busy = true;
            a->adapter->ops->inspect(a->adapter, x->o.attempt.job_id, on_late_look, x);
        }
        if (!x->busy && !x->done_us && (!x->stale || x->put_right) && now >= x->due_us &&
            (!x->unwind || lease_settled(&a->lease, adv_boot_us())))
            run(x);
    }
}

void orders_free(struct agent *a)
{
    struct unwritten *u;

    write_outcomes(a); /* the last time that they are known */
    while ((u = a->unwritten)) {
        a->unwritten = u->next;
        free(u->out.excluded);
        free(u);
    }
    while (a->orders) {
        struct order *x = a->orders;
        a->orders = x->next;
        order_free(x);
    }
}
