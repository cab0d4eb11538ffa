/* SPDX-License-Identifier: Apache-2.0 */

/* One verb to one job: read, guard, authorize, write once, and then look until the matter is settled.
 *
 * The exit code of a Slurm command is a hint. A clear refusal is believed after one more read. rc 0 is believed when
 * the state is seen. Everything else (time-out, no contact) may still be carried out as long as the command's
 * credential lives; so the job is read again until its state has come, or until a good read begun after that bound
 * shows that it never will. The bound counts from the command's end: a tool that was slow to reach the controller makes
 * its credential late. The write is never repeated here.
 *
 * Compare-and-set does not exist, so a person's action may slip in between read and write. After a requeue the
 * restart count must be exactly one more; and where the state before was not a proven failure, accounting is asked
 * whether a cancelled or completed job was brought back. */

#include "adapters/slurm/depend.h"
#include "adapters/slurm/internal.h"

#include <stdio.h>

#define POLL_FIRST_MS 100
#define POLL_MAX_MS   1000
#define ACCT_TRIES    5
#define ACCT_PAUSE_MS 300
#define OTHERS_MAX    16 /* jobs of a child's list that are looked at beside its parent */
#define DEPENDENCY_MAX (64u << 10) /* bytes of a list; a job with more is no child of ours */
#define STALE_MAX     3 /* times a write may come to its turn too late */

enum { ACT_START, ACT_RESERVATION, ACT_WRITE, ACT_PAUSE, ACT_ACCOUNTING, ACT_ACCOUNTING_PAUSE };

struct act_task {
    struct slurm_task t;
    struct adapter_action action; /* a deep copy */
    char *strings;                /* its texts */
    const char **lists;

    struct adapter_node_list *nodes;
    struct slurm_plan plan;
    struct adapter_job_detail *before, *after;
    char target[ADAPTER_ID_SIZE + 8], start[64];
    char *exclude, *reserved;
    struct adapter_job_detail *parent; /* REARM_CHILD */
    char *dependency;                  /* the argument */
    size_t edges;                      /* to the parent, once it is done */
    struct slurm_deps others;          /* the child's list, of which the other jobs are looked at */
    size_t other, n_others;
    struct adapter_job_detail *learnt; /* the child as its list was learnt from, until it is read again */
    const char *argv[SLURM_ARGV_MAX];

    int64_t deadline_us, sent_us, read_began_us, kill_at_boot_us;
    int poll_ms;
    unsigned acct_tries, stale;
    enum slurm_answer answer;
    struct adapter_result res;
    const char *notes[SLURM_NOTES_MAX + 2];
    char own_note[160];
    adapter_act_cb cb;
    void *arg;
};

static void finish(struct act_task *p)
{
    struct adapter_result *r = &p->res;

    for (size_t i = 0; i < p->plan.n_notes; i++)
        p->notes[r->n_notes++] = p->plan.notes[i];
    if (p->own_note[0])
        p->notes[r->n_notes++] = p->own_note;
    r->notes = p->notes;
    r->before = p->before;
    r->after = p->after;
    if (p->action.verb == ADAPTER_VERB_CONSTRAIN && r->observed == ADAPTER_OBSERVED_YES) {
        r->excluded = (const char *const *) p->plan.ours;
        r->n_excluded = p->plan.n_ours;
    }
    ADV_FAILPOINT("slurm.after_verify");
    slurm_log(p->t.a, r->revived_wrongly == ADAPTER_YES ? ADAPTER_LOG_WARNING : ADAPTER_LOG_INFO,
              "%s: %s job %s: command %s, observed %s, %s%s%s%s", p->action.tag, adapter_verb_name(p->action.verb),
              p->action.id, adapter_command_name(r->command), adapter_observed_name(r->observed),
              adapter_reason_name(r->reason), r->revived_wrongly == ADAPTER_YES ? ", REVIVED WRONGLY" : "",
              r->err.code ? ": " : "", r->err.code ? r->err.msg : "");
    p->cb(p->arg, r);

    slurm_plan_done(&p->plan);
    (void) adapter_node_list_free(p->nodes);
    (void) adapter_job_detail_free(p->before);
    (void) adapter_job_detail_free(p->after);
    (void) adapter_job_detail_free(p->parent);
    (void) adapter_job_detail_free(p->learnt);
    free(p->exclude);
    free(p->reserved);
    free(p->dependency);
    slurm_deps_done(&p->others);
    free(p->strings);
    free(p->lists);
    slurm_task_done(&p->t);
    free(p);
}

static void finish_unsent(struct act_task *p, enum adapter_reason reason)
{
    p->res.reason = reason;
    p->res.command = ADAPTER_COMMAND_NOT_SENT;
    p->res.observed = reason == ADAPTER_REASON_ALREADY_SATISFIED ? ADAPTER_OBSERVED_YES
                      : p->before                                ? ADAPTER_OBSERVED_NO
                                                                 : ADAPTER_OBSERVED_UNKNOWN;
    finish(p);
}

/* ---- the command ---- */

/* The leader's bare number takes the whole het set, also in an update, which gives all components the same list; an
 * array's task is never addressed by its raw number. */
static void set_target(struct act_task *p)
{
    (void) snprintf(p->target, sizeof(p->target), "%s", p->before->job.id);
}

static void build_argv(struct act_task *p)
{
    size_t n = 0;
    char job_id[sizeof(p->target)];

    set_target(p);
    switch (p->action.verb) {
    case ADAPTER_VERB_PRESERVE:
        p->argv[n++] = "scontrol";
        p->argv[n++] = "requeuehold";
        p->argv[n++] = p->target;
        break;
    case ADAPTER_VERB_INTERRUPT:
        p->argv[n++] = "scontrol";
        p->argv[n++] = "requeuehold";
        p->argv[n++] = "Incomplete"; /* acts on running jobs only, however late it lands */
        p->argv[n++] = p->target;
        break;
    case ADAPTER_VERB_RELEASE:
        p->argv[n++] = "scontrol";
        p->argv[n++] = "release";
        p->argv[n++] = p->target;
        break;
    case ADAPTER_VERB_CANCEL:
        p->argv[n++] = "scancel";
        if (p->action.only_in_hold) /* who was released since we looked, and runs, is left alone, however late it lands */
            p->argv[n++] = "--state=PENDING";
        p->argv[n++] = p->target;
        break;
    default:
        memcpy(job_id, p->target, sizeof(job_id));
        (void) snprintf(p->target, sizeof(p->target), "JobId=%.*s", ADAPTER_ID_SIZE, job_id);
        p->argv[n++] = "scontrol";
        p->argv[n++] = "update";
        p->argv[n++] = p->target;
        if (p->action.verb == ADAPTER_VERB_MAKE_REQUEUEABLE) {
            p->argv[n++] = "Requeue=1";
            break;
        }
        if (p->action.verb == ADAPTER_VERB_REARM_CHILD) {
            p->argv[n++] = p->dependency;
            break;
        }
        if (p->plan.set_exclude) {
            if (asprintf(&p->exclude, "ExcNodeList=%s", p->plan.exclude) < 0)
                abort();
            p->argv[n++] = p->exclude;
        }
        if (p->plan.start_s) {
            (void) snprintf(p->start, sizeof(p->start), "StartTime=uts%lld", (long long) p->plan.start_s);
            p->argv[n++] = p->start;
        }
        break;
    }
    p->argv[n] = NULL;
}

/* ---- looking ---- */

enum look { LOOK_AGAIN, LOOK_REACHED, LOOK_NEVER };

/* A set is where its last component is. */
static bool all_requeued(const struct adapter_job_detail *d, uint32_t expect)
{
    for (size_t i = 0; i < d->n_parts; i++)
        if (d->parts[i].restart_count <= expect)
            return false;
    return true;
}

/* What the record after the write says about it. @ret_reason is set for LOOK_NEVER. */
static enum look look_at(const struct act_task *p, enum adapter_reason *ret_reason)
{
    const struct adapter_job *j = &p->after->job;
    uint32_t expect = p->action.expect_restarts;
    bool ended = adapter_job_state_ended(j->state);

    *ret_reason = slurm_end_reason(j->state);
    if (j->restart_count < expect) {
        *ret_reason = ADAPTER_REASON_ID_REUSED;
        return LOOK_NEVER;
    }
    switch (p->action.verb) {
    case ADAPTER_VERB_PRESERVE:
        if (j->restart_count == expect)
            return LOOK_AGAIN; /* an ended job stays ended: only time settles it */
        return all_requeued(p->after, expect) ? LOOK_REACHED : LOOK_AGAIN;
    case ADAPTER_VERB_INTERRUPT:
        if (j->restart_count > expect)
            return all_requeued(p->after, expect) ? LOOK_REACHED : LOOK_AGAIN;
        return ended && !j->completing ? LOOK_NEVER : LOOK_AGAIN;
    default:
        break;
    }
    if (j->restart_count > expect) {
        *ret_reason = ADAPTER_REASON_ATTEMPT_SUPERSEDED;
        return LOOK_NEVER;
    }
    switch (p->action.verb) {
    case ADAPTER_VERB_MAKE_REQUEUEABLE:
        if (j->requeueable)
            return LOOK_REACHED;
        return ended ? LOOK_NEVER : LOOK_AGAIN;
    case ADAPTER_VERB_CONSTRAIN:
        if (ended)
            return LOOK_NEVER;
        return slurm_plan_reached(&p->plan, p->after) ? LOOK_REACHED : LOOK_AGAIN;
    case ADAPTER_VERB_REARM_CHILD:
        if (j->state != ADAPTER_JOB_PENDING)
            return LOOK_NEVER; /* it was started, or ended */
        return slurm_deps_waiting(j->dependency, j, &p->parent->job) >= p->edges ? LOOK_REACHED : LOOK_AGAIN;
    case ADAPTER_VERB_RELEASE:
        if (j->state == ADAPTER_JOB_CANCELLED)
            return LOOK_NEVER;
        return j->held ? LOOK_AGAIN : LOOK_REACHED;
    default: /* CANCEL */
        if (j->state == ADAPTER_JOB_CANCELLED)
            return LOOK_REACHED;
        return ended && !j->completing ? LOOK_NEVER : LOOK_AGAIN;
    }
}

static enum adapter_reason refused_reason(enum slurm_answer answer)
{
    switch (answer) {
    case SLURM_ANSWER_DISABLED:
        return ADAPTER_REASON_NOT_REQUEUEABLE;
    case SLURM_ANSWER_NOT_BATCH:
        return ADAPTER_REASON_NOT_BATCH;
    case SLURM_ANSWER_DENIED:
        return ADAPTER_REASON_FORBIDDEN;
    case SLURM_ANSWER_BAD_NODE:
        return ADAPTER_REASON_INVALID;
    case SLURM_ANSWER_NO_JOB:
        return ADAPTER_REASON_GONE;
    case SLURM_ANSWER_DEPENDENCY:
        return ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE;
    default:
        return ADAPTER_REASON_CONFLICT_USER_ACTION; /* pending, finished: its state changed under us */
    }
}

/* rc 0 of scancel says nothing, and rc 0 of "Incomplete" or of an update may mean "not applicable". */
static void settle_never(struct act_task *p, enum adapter_reason reason)
{
    p->res.observed = ADAPTER_OBSERVED_NO;
    p->res.reason = reason;
    finish(p);
}

static bool owns_requeue(const struct act_task *p)
{
    return p->action.verb == ADAPTER_VERB_PRESERVE || p->action.verb == ADAPTER_VERB_INTERRUPT;
}

static void ask_accounting(struct act_task *p)
{
    const char *id = p->before->job.id;
    const char *const argv[] = { "sacct", "-n", "-X", "-P", "-D", "-j", id, "-o", SLURM_ACCT_FIELDS, NULL };

    p->t.step = ACT_ACCOUNTING;
    slurm_task_run(&p->t, argv);
}

static void settle_reached(struct act_task *p)
{
    const struct adapter_job *was = &p->before->job;
    bool one_more = p->after->job.restart_count == p->action.expect_restarts + 1;

    p->res.observed = ADAPTER_OBSERVED_YES;
    p->res.reason = ADAPTER_REASON_OK;
    if (!owns_requeue(p)) {
        p->res.revived_wrongly = ADAPTER_NO;
        finish(p);
        return;
    }
    if (p->after->job.state == ADAPTER_JOB_CANCELLED) { /* a person's cancel came after it, and won */
        p->res.revived_wrongly = ADAPTER_NO;
        p->res.reason = ADAPTER_REASON_CANCELLED_BY_USER;
        finish(p);
        return;
    }
    if (one_more && (p->action.verb == ADAPTER_VERB_INTERRUPT || slurm_proven_failure(was))) {
        p->res.revived_wrongly = ADAPTER_NO;
        finish(p);
        return;
    }
    if (was->state == ADAPTER_JOB_CANCELLED || was->state == ADAPTER_JOB_COMPLETED) {
        p->res.revived_wrongly = ADAPTER_YES;
        finish(p);
        return;
    }
    ask_accounting(p);
}

static void on_acct_row(void *arg, const struct slurm_acct_row *row)
{
    struct act_task *p = arg;

    if (row->submit_s < p->before->job.submit_s || !slurm_acct_covers(row->id, p->before->job.id))
        return;
    if (row->state == ADAPTER_JOB_CANCELLED || row->state == ADAPTER_JOB_COMPLETED)
        p->res.revived_wrongly = ADAPTER_YES;
}

static void look_again(struct act_task *p)
{
    int64_t left_ms = (p->deadline_us - slurm_now_us(p->t.a)) / 1000;

    if (left_ms <= 0 || p->t.a->closing) {
        p->res.observed = ADAPTER_OBSERVED_UNKNOWN;
        p->res.reason = p->after && p->after->job.completing ? ADAPTER_REASON_COMPLETING_WAIT
                                                             : ADAPTER_REASON_UNAVAILABLE;
        finish(p);
        return;
    }
    p->t.step = ACT_PAUSE;
    slurm_task_sleep(&p->t, p->poll_ms < left_ms ? p->poll_ms : (int) left_ms);
    p->poll_ms = p->poll_ms * 3 / 2 < POLL_MAX_MS ? p->poll_ms * 3 / 2 : POLL_MAX_MS;
}

/* A part of a set came back, the other never will: its owner cancelled it between our read and the write. The leader waits in the
 * hold that our command made, and the set is not what it was: it is its owner's, to release or to cancel. */
static void settle_half(struct act_task *p)
{
    p->res.observed = ADAPTER_OBSERVED_YES;
    p->res.revived_wrongly = ADAPTER_MAYBE;
    p->res.reason = ADAPTER_REASON_CANCELLED_BY_USER;
    (void) snprintf(p->own_note, sizeof(p->own_note), "only a part of the heterogeneous job was requeued: the rest had been cancelled");
    slurm_log(p->t.a, ADAPTER_LOG_WARNING, "%s: job %s: %s", p->action.tag, p->action.id, p->own_note);
    finish(p);
}

/* A child runs that was to wait: told aloud, whatever let it start. */
static void note_started(struct act_task *p)
{
    enum adapter_job_state s = p->after->job.state;

    if (p->action.verb != ADAPTER_VERB_REARM_CHILD || p->res.command == ADAPTER_COMMAND_REFUSED || s == ADAPTER_JOB_CANCELLED ||
        (s == ADAPTER_JOB_PENDING && p->after->job.restart_count <= p->action.expect_restarts))
        return;
    (void) snprintf(p->own_note, sizeof(p->own_note), "it was started when its dependencies were written");
    slurm_log(p->t.a, ADAPTER_LOG_WARNING, "%s: job %s: %s", p->action.tag, p->action.id, p->own_note);
}

static void on_after(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    struct act_task *p = arg;
    bool landed_by_now = p->read_began_us - p->sent_us > (int64_t) p->t.a->landing_bound_ms * 1000;
    bool clear_no = p->res.command == ADAPTER_COMMAND_REFUSED;
    enum adapter_reason reason;

    if (found == ADAPTER_FOUND_GONE) {
        (void) adapter_job_detail_free(p->after);
        p->after = NULL;
        settle_never(p, ADAPTER_REASON_GONE);
        return;
    }
    if (found != ADAPTER_FOUND) {
        p->res.err = *err;
        look_again(p);
        return;
    }
    (void) adapter_job_detail_free(p->after);
    p->after = d;
    switch (look_at(p, &reason)) {
    case LOOK_REACHED:
        settle_reached(p);
        return;
    case LOOK_NEVER:
        note_started(p);
        settle_never(p, reason);
        return;
    default:
        if (owns_requeue(p) && d->job.restart_count > p->action.expect_restarts) { /* surely not "no" */
            if ((clear_no || landed_by_now) && !d->job.completing)
                settle_half(p);
            else
                look_again(p);
            return;
        }
        if (clear_no)
            settle_never(p, refused_reason(p->answer));
        else if (landed_by_now && !d->job.completing)
            settle_never(p, p->res.command == ADAPTER_COMMAND_TIMED_OUT ? ADAPTER_REASON_UNAVAILABLE
                                                                        : slurm_end_reason(d->job.state));
        else
            look_again(p);
    }
}

static void read_after(struct act_task *p)
{
    p->read_began_us = slurm_now_us(p->t.a);
    slurm_find(p->t.a, p->action.id, on_after, p);
}

/* ---- the way to the write ---- */

static void send_command(struct act_task *p)
{
    ADV_FAILPOINT("slurm.after_authorize");
    p->t.step = ACT_WRITE;
    slurm_task_write(&p->t, p->argv, p->kill_at_boot_us);
}

static void read_before(struct act_task *p);

/* The list that @d is to have. */
static enum adapter_reason plan_dependency(struct act_task *p, const struct adapter_job_detail *d, char **ret, size_t *ret_edges)
{
    ADV_AUTO_DONE(adv_buf) text = { 0 };
    const char *why;

    adv_buf_init(&text, DEPENDENCY_MAX);
    enum adapter_reason r = slurm_deps_rearm(d->job.dependency, p->action.dependency_before ? p->action.dependency_before : "",
                                             &d->job, &p->parent->job, &text, &why);
    if (why)
        (void) snprintf(p->own_note, sizeof(p->own_note), "%s", why);
    if (r != ADAPTER_REASON_OK)
        return r;
    *ret_edges = slurm_deps_waiting(text.data, &d->job, &p->parent->job);
    if (asprintf(ret, "Dependency=%s", text.data) < 0)
        abort();
    return r;
}

/* An edge to a job that has gone counts as met on 22.05: the parent must be there and wait, right before. So it is read, then the
 * child, then the others, if there are any; and where there are, which may have taken long, the parent and the child once more. */
static void on_parent(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    struct act_task *p = arg;

    (void) adapter_job_detail_free(p->parent);
    p->parent = d;
    if (found == ADAPTER_FOUND && d->job.state == ADAPTER_JOB_PENDING && !d->job.completing &&
        d->job.restart_count == p->action.parent_restarts) {
        read_before(p);
        return;
    }
    if (found == ADAPTER_FOUND_UNKNOWN && err)
        p->res.err = *err;
    (void) snprintf(p->own_note, sizeof(p->own_note), "the job that it depends on does not wait");
    finish_unsent(p, found == ADAPTER_FOUND_UNKNOWN                    ? ADAPTER_REASON_UNAVAILABLE
                     : found == ADAPTER_FOUND && d->job.completing ? ADAPTER_REASON_COMPLETING_WAIT
                                                                     : ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE);
}

static bool same_plan(const struct slurm_plan *a, const struct slurm_plan *b)
{
    return a->reason == b->reason && a->start_s == b->start_s && a->set_exclude == b->set_exclude &&
           adv_streq(a->exclude, b->exclude);
}

/* Does all that is decided on say the same in both? What has changed meanwhile is a person's doing, or a new judgement. */
static bool same_child(const struct adapter_job_detail *a, const struct adapter_job_detail *b)
{
    return a->job.state == b->job.state && a->job.held == b->job.held && strcmp(a->job.dependency, b->job.dependency) == 0 &&
           strcmp(a->comment, b->comment) == 0;
}

/* The authorization took its time (a journal, another host): what was read may be old. */
static void on_reread(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    struct act_task *p = arg;
    enum adapter_reason reason = ADAPTER_REASON_UNAVAILABLE;
    const char *guard = NULL;
    bool same = true;

    if (found == ADAPTER_FOUND_GONE)
        reason = ADAPTER_REASON_GONE;
    if (found == ADAPTER_FOUND) {
        same = p->action.verb != ADAPTER_VERB_REARM_CHILD || same_child(p->before, d);
        (void) adapter_job_detail_free(p->before);
        p->before = d;
        reason = slurm_guard(&p->action, d, &guard);
    }
    if (reason == ADAPTER_REASON_OK && p->action.verb == ADAPTER_VERB_CONSTRAIN) {
        struct slurm_plan now;
        slurm_plan_constrain(&p->action, d, p->nodes, p->reserved, &now);
        if (!same_plan(&now, &p->plan)) /* not what was authorized */
            reason = ADAPTER_REASON_CONFLICT_USER_ACTION;
        slurm_plan_done(&now);
    }
    if (reason == ADAPTER_REASON_OK && !same)
        reason = ADAPTER_REASON_CONFLICT_USER_ACTION;
    if (reason == ADAPTER_REASON_OK)
        send_command(p);
    else
        finish_unsent(p, reason);
}

static void on_authorized(void *arg, bool allowed, int64_t kill_at_boot_us)
{
    struct act_task *p = arg;

    p->kill_at_boot_us = kill_at_boot_us;
    if (!allowed)
        finish_unsent(p, ADAPTER_REASON_LEASE_LOST);
    else if (slurm_now_us(p->t.a) - p->read_began_us > SLURM_FRESH_US && !slurm_guard_off("reread"))
        slurm_find(p->t.a, p->action.id, on_reread, p);
    else
        send_command(p);
}

static void authorize(struct act_task *p)
{
    struct adapter_write w = {
        .action = &p->action,
        .before = p->before,
        .argv = p->argv,
        .landing_bound_ms = p->t.a->landing_bound_ms,
        .deadline_ms = p->t.a->command_deadline_ms,
    };
    p->t.a->host->authorize(p->t.a->host->ctx, &w, on_authorized, p);
}

/* All jobs of the list have been seen, or need not be. */
static void others_seen(struct act_task *p)
{
    if (p->n_others) { /* what was read before them may be old */
        p->learnt = ADV_STEAL(p->before);
        slurm_find(p->t.a, p->action.parent, on_parent, p);
        return;
    }
    build_argv(p);
    authorize(p);
}

static void next_other(struct act_task *p);

static void on_other(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    struct act_task *p = arg;
    const struct slurm_dep *e = &p->others.edges[p->other];
    /* an array, a component, or a task by its number: it is there, but how it stands cannot be told */
    bool unseen = found == ADAPTER_FOUND_UNKNOWN && err && err->code == ADV_INVALID_ARGUMENT;
    bool waits = found == ADAPTER_FOUND && !adapter_job_state_ended(d->job.state);

    (void) adapter_job_detail_free(d);
    if (waits || ((unseen || found == ADAPTER_FOUND) && slurm_dep_any_end(e))) {
        p->other++;
        next_other(p);
        return;
    }
    if (unseen) {
        (void) snprintf(p->own_note, sizeof(p->own_note), "whether %s, on which it depends, too, has failed cannot be told from outside",
                        e->job);
        finish_unsent(p, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE);
        return;
    }
    if (found == ADAPTER_FOUND_UNKNOWN && err)
        p->res.err = *err;
    (void) snprintf(p->own_note, sizeof(p->own_note), "job %s, on which it depends, too, has ended or is not known any more",
                    e->job);
    finish_unsent(p, found == ADAPTER_FOUND_UNKNOWN ? ADAPTER_REASON_UNAVAILABLE : ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE);
}

static void next_other(struct act_task *p)
{
    char id[ADAPTER_ID_SIZE];

    while (p->other < p->others.n && (!p->others.edges[p->other].job[0] ||
                                      slurm_dep_concerns(&p->others.edges[p->other], &p->before->job, &p->parent->job)))
        p->other++;
    if (p->other == p->others.n) {
        others_seen(p);
    } else if (p->n_others++ == OTHERS_MAX) {
        (void) snprintf(p->own_note, sizeof(p->own_note), "it depends on more than %d other jobs", OTHERS_MAX);
        finish_unsent(p, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE);
    } else {
        (void) snprintf(id, sizeof(id), "%s", p->others.edges[p->other].job);
        if (strlen(id) > 2 && strcmp(id + strlen(id) - 2, "_*") == 0)
            id[strlen(id) - 2] = '\0';
        slurm_find(p->t.a, id, on_other, p);
    }
}

static void look_at_others(struct act_task *p)
{
    slurm_deps_done(&p->others);
    p->other = p->n_others = 0;
    if (slurm_deps_parse(p->before->job.dependency, &p->others, &p->res.err) < 0)
        finish_unsent(p, ADAPTER_REASON_INVALID);
    else
        next_other(p);
}

static void ask_leave(struct act_task *p)
{
    if (p->learnt) { /* the last look at a child: as it was when the others were looked at? */
        if (same_child(p->learnt, p->before)) {
            build_argv(p);
            authorize(p);
        } else {
            (void) snprintf(p->own_note, sizeof(p->own_note), "it was changed while it was looked at");
            finish_unsent(p, ADAPTER_REASON_CONFLICT_USER_ACTION);
        }
        return;
    }
    if (p->action.verb == ADAPTER_VERB_CONSTRAIN) {
        slurm_plan_constrain(&p->action, p->before, p->nodes, p->reserved, &p->plan);
        if (p->plan.reason != ADAPTER_REASON_OK) {
            finish_unsent(p, p->plan.reason);
            return;
        }
    }
    if (p->action.verb == ADAPTER_VERB_REARM_CHILD) {
        enum adapter_reason r = plan_dependency(p, p->before, &p->dependency, &p->edges);
        if (r == ADAPTER_REASON_OK)
            look_at_others(p);
        else
            finish_unsent(p, r);
        return;
    }
    build_argv(p);
    authorize(p);
}

static void on_before(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    struct act_task *p = arg;
    enum adapter_reason reason;
    const char *guard;

    if (found != ADAPTER_FOUND) {
        if (err)
            p->res.err = *err;
        reason = found == ADAPTER_FOUND_GONE                 ? ADAPTER_REASON_GONE
                 : p->res.err.code == ADV_INVALID_ARGUMENT ? ADAPTER_REASON_INVALID
                                                           : ADAPTER_REASON_UNAVAILABLE;
        finish_unsent(p, reason);
        return;
    }
    p->before = d;
    ADV_FAILPOINT("slurm.after_read");
    reason = slurm_guard(&p->action, d, &guard);
    if (reason != ADAPTER_REASON_OK) {
        (void) snprintf(p->own_note, sizeof(p->own_note), "guard %s: job is %s%s, attempt %u", guard,
                        adapter_job_state_name(d->job.state), d->job.completing ? ", completing" : "",
                        d->job.restart_count);
        finish_unsent(p, reason);
        return;
    }
    if (p->action.verb == ADAPTER_VERB_CONSTRAIN && *d->reservation) {
        const char *const argv[] = { "scontrol", "-o", "show", "reservation", d->reservation, NULL };
        p->t.step = ACT_RESERVATION;
        slurm_task_run(&p->t, argv);
        return;
    }
    ask_leave(p);
}

static void on_reservation(struct act_task *p)
{
    ADV_AUTO_DONE(adv_buf) list = { 0 };

    adv_buf_init(&list, 1 << 20);
    if (!slurm_task_ok(&p->t)) {
        (void) slurm_task_error(&p->t, "scontrol show reservation", &p->res.err);
        finish_unsent(p, ADAPTER_REASON_UNAVAILABLE);
    } else if (slurm_parse_reservation(p->t.out, p->t.out_len, &list, &p->res.err) < 0) {
        finish_unsent(p, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE);
    } else if (!(p->reserved = adv_buf_steal(&list, NULL))) {
        finish_unsent(p, ADAPTER_REASON_UNAVAILABLE);
    } else {
        ask_leave(p);
    }
}

static void read_before(struct act_task *p)
{
    p->read_began_us = slurm_now_us(p->t.a);
    slurm_find(p->t.a, p->action.id, on_before, p);
}

static void on_nodes(void *arg, struct adapter_node_list *l)
{
    struct act_task *p = arg;

    p->nodes = l;
    if (!l->complete) {
        p->res.err = l->err;
        finish_unsent(p, ADAPTER_REASON_UNAVAILABLE);
        return;
    }
    read_before(p);
}

static void act_resume(struct slurm_task *t)
{
    struct act_task *p = ADV_CONTAINER_OF(t, struct act_task, t);

    switch (t->step) {
    case ACT_START:
        if ((unsigned) p->action.verb >= ADAPTER_VERB_MAX_ || p->action.expect_submit_s <= 0 || !p->action.id[0] ||
            (p->action.verb == ADAPTER_VERB_REARM_CHILD && !p->action.parent)) {
            (void) adv_err_set(&p->res.err, ADV_INVALID_ARGUMENT, "an action needs a verb, an id and the submit time, and for a child its parent");
            finish_unsent(p, ADAPTER_REASON_INVALID);
        } else if (p->action.verb == ADAPTER_VERB_CONSTRAIN) {
            t->a->base.ops->nodes(&t->a->base, on_nodes, p);
        } else if (p->action.verb == ADAPTER_VERB_REARM_CHILD) {
            slurm_find(t->a, p->action.parent, on_parent, p);
        } else {
            read_before(p);
        }
        return;

    case ACT_RESERVATION:
        on_reservation(p);
        return;

    case ACT_WRITE:
        if (t->stale && ++p->stale < STALE_MAX) {
            slurm_find(t->a, p->action.id, on_reread, p);
            return;
        }
        ADV_FAILPOINT("slurm.after_command");
        p->sent_us = slurm_now_us(t->a); /* its credential cannot be younger: the command has ended */
        p->answer = t->end == ADAPTER_RUN_EXITED ? slurm_parse_answer(t->err) : SLURM_ANSWER_UNCLEAR;
        if (t->end == ADAPTER_RUN_NOT_STARTED) {
            (void) slurm_task_error(t, p->argv[0], &p->res.err);
            finish_unsent(p, ADAPTER_REASON_UNAVAILABLE);
            return;
        }
        if (slurm_task_ok(t)) {
            p->res.command = ADAPTER_COMMAND_ACCEPTED;
        } else {
            (void) slurm_task_error(t, p->argv[0], &p->res.err);
            p->res.command =
                p->answer == SLURM_ANSWER_UNCLEAR ? ADAPTER_COMMAND_TIMED_OUT : ADAPTER_COMMAND_REFUSED;
        }
        read_after(p);
        return;

    case ACT_PAUSE:
        read_after(p);
        return;

    case ACT_ACCOUNTING: /* it lags, and 22.05 replaces the row once completing ends: ask a few times */
        p->res.revived_wrongly = ADAPTER_MAYBE;
        if (slurm_task_ok(t))
            slurm_parse_acct(t->out, t->out_len, on_acct_row, p);
        if (p->res.revived_wrongly == ADAPTER_YES || ++p->acct_tries == ACCT_TRIES) {
            finish(p);
            return;
        }
        p->t.step = ACT_ACCOUNTING_PAUSE;
        slurm_task_sleep(t, ACCT_PAUSE_MS);
        return;

    default: /* ACT_ACCOUNTING_PAUSE */
        ask_accounting(p);
        return;
    }
}

/* One block for all strings, one for the two lists. */
static void copy_action(struct act_task *p, const struct adapter_action *in)
{
    const char *const texts[] = { in->id ? in->id : "", in->tag ? in->tag : "-", in->expect_comment, in->parent,
                                  in->dependency_before };
    size_t bytes = 1, n = in->n_exclude + in->n_exclude_before;

    for (size_t i = 0; i < ADV_ARRAY_LEN(texts); i++)
        bytes += texts[i] ? strlen(texts[i]) + 1 : 0;
    for (size_t i = 0; i < in->n_exclude; i++)
        bytes += strlen(in->exclude[i]) + 1;
    for (size_t i = 0; i < in->n_exclude_before; i++)
        bytes += strlen(in->exclude_before[i]) + 1;
    p->strings = malloc(bytes);
    p->lists = calloc(n + 1, sizeof(*p->lists));
    if (!p->strings || !p->lists)
        abort();
    p->action = *in;
    char *w = p->strings;
    const char **fields[] = { &p->action.id, &p->action.tag, &p->action.expect_comment, &p->action.parent,
                              &p->action.dependency_before };
    for (size_t i = 0; i < ADV_ARRAY_LEN(texts); i++) {
        if (!texts[i])
            continue;
        *fields[i] = w;
        w = stpcpy(w, texts[i]) + 1;
    }
    for (size_t i = 0; i < n; i++) {
        p->lists[i] = w;
        w = stpcpy(w, i < in->n_exclude ? in->exclude[i] : in->exclude_before[i - in->n_exclude]) + 1;
    }
    p->action.exclude = p->lists;
    p->action.exclude_before = p->lists + in->n_exclude;
}

void slurm_act(struct adapter *base, const struct adapter_action *action, adapter_act_cb cb, void *arg)
{
    struct act_task *p = calloc(1, sizeof(*p));

    if (!p)
        abort();
    slurm_task_init(&p->t, slurm_of(base), act_resume);
    copy_action(p, action);
    p->deadline_us = slurm_now_us(p->t.a) +
                     (int64_t) (action->deadline_ms > 0 ? action->deadline_ms : p->t.a->action_deadline_ms) * 1000;
    p->poll_ms = POLL_FIRST_MS;
    p->cb = cb;
    p->arg = arg;
    slurm_task_start(&p->t);
}
