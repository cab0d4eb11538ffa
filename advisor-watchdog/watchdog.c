/* SPDX-License-Identifier: Apache-2.0 */

/* A timer looks at the agent's journal. Each hold in it is followed by a `struct watch`, which remembers since when the hold
 * has been over (by the clock since boot) and what was said of it last. When it has been over for long enough, the job is
 * looked at, and if the verdict is to end the hold, the adapter does it; the adapter asks authorize() right before the write.
 *
 * Time. A hold expires by the wall clock, since its record is read after restarts. The wall clock may jump: a hold counts as
 * expired only when it is by both, the wall clock as it is and as it would be without jumps since the start of this program
 * (steady.h). A clock that was wrong before the start is met by the grace, which begins at the first sight of a hold that is
 * over, and by the limit of holds a minute.
 *
 * Two writers. The agent may be frozen in the middle of anything and go on. Its own writes need a lease, which is over by
 * then; what it does next begins with a fresh look; and a release of what is not held, or a cancel of what is cancelled, does
 * nothing. Against a late command of ours the agent reads our journal before each of its writes. */

#include "advisor-watchdog/watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor-agent/hold.h"
#include "advisor-agent/steady.h"
#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"

#define BACK_OFF_US      5000000
#define BACK_OFF_MAX_US  600000000
#define DESCRIBE_US      300000000 /* how long what the scheduler says of itself is believed */
#define MINUTE_US        60000000
#define ENDS_MAX         60

/* A hold, followed. */
struct watch {
    struct watch *next;
    struct journal_hold hold;
    bool there; /* at the look under way */
    int64_t over_boot_us; /* 0: it is not over */
    int64_t next_boot_us; /* not looked at again before */
    int64_t back_off_us;
    enum hold_verdict said;
    const char *said_why; /* NULL: nothing was said yet */
    bool looked;          /* mode `once` */
};

struct watchdog {
    uv_loop_t *loop;
    const struct watchdog_config *cfg;
    struct adapter_host host;
    struct adapter *adapter;
    struct journal *own;
    struct journal_view *view;
    struct ceiling *ceiling;
    struct steady steady;
    uv_timer_t timer;
    bool closing;
    void (*done)(void *arg);
    void *done_arg;
    char *dir, *agent_dir;

    bool finished; /* mode `once` */
    int view_told; /* result of the look at the journal that was told last; 1: none */
    struct watch *watches;
    int64_t settled_boot_us; /* what an earlier run began can land until then */

    /* The one that is looked at or ended. */
    struct watch *busy;
    bool describing;
    enum hold_verdict wanted; /* of the step under way */
    uint64_t intent_seq;      /* 0: no write yet */
    const char *denied;
    int lock_fd;

    bool away_told; /* the scheduler does not answer */
    int64_t described_boot_us; /* 0: never */
    int64_t forget_after_s;
    int64_t ends_boot_us[ENDS_MAX]; /* the newest ones, in a ring */
    size_t n_ends;
    bool limit_told;
};

static int64_t wall_us(struct watchdog *w)
{
    int64_t now = adv_wall_us(), steady = steady_wall_us(&w->steady, now, adv_boot_us());

    return now < steady ? now : steady;
}

static void say(struct watch *x, enum hold_verdict v, const char *why)
{
    static const char *const ways[] = { "release", "cancel", "leave" };
    const struct journal_hold *h = &x->hold;

    if (x->said_why && x->said == v && x->said_why == why)
        return;
    x->said = v;
    x->said_why = why;
    adv_info("watchdog", "a hold", ADV_FS("job", h->job), ADV_FS("verdict", hold_verdict_name(v)), ADV_FS("why", why),
             ADV_FS("on_expiry", (size_t) h->on_expiry < ADV_ARRAY_LEN(ways) ? ways[h->on_expiry] : "unknown"),
             ADV_FS("advice", h->advice));
}

static void back_off(struct watch *x)
{
    x->back_off_us = !x->back_off_us ? BACK_OFF_US : 2 * x->back_off_us < BACK_OFF_MAX_US ? 2 * x->back_off_us : BACK_OFF_MAX_US;
    x->next_boot_us = adv_boot_us() + x->back_off_us;
}

/* ---- our own journal ---- */

static const char *verb_of(const struct journal_hold *h)
{
    return adapter_verb_name(h->on_expiry == JOURNAL_CANCEL ? ADAPTER_VERB_CANCEL : ADAPTER_VERB_RELEASE);
}

static bool same_hold(const struct journal_step *s, const struct journal_hold *h)
{
    return strcmp(s->intent.job, h->job) == 0 && strcmp(s->intent.advice, h->advice) == 0 &&
           s->intent.restarts + 1 == h->restarts;
}

/* The agent takes it over from our journal; until it does, the record stays in its own. */
static bool ended_by_us(const struct watchdog *w, const struct journal_hold *h)
{
    const struct journal_step *s;
    size_t pos = 0;

    while ((s = journal_next_step(w->own, &pos)))
        if (s->done && same_hold(s, h) && strcmp(s->outcome.observed, adapter_observed_name(ADAPTER_OBSERVED_YES)) == 0)
            return true;
    return false;
}

static const struct journal_step *open_step(const struct watchdog *w, const struct journal_hold *h)
{
    const struct journal_step *s;
    size_t pos = 0;

    while ((s = journal_next_open(w->own, &pos)))
        if (same_hold(s, h))
            return s;
    return NULL;
}

static void write_outcome(struct watchdog *w, uint64_t seq, enum adapter_command command, enum adapter_observed observed,
                          enum adapter_reason reason)
{
    struct journal_outcome out = { 0 };
    struct adv_err err;

    (void) snprintf(out.command, sizeof(out.command), "%s", adapter_command_name(command));
    (void) snprintf(out.observed, sizeof(out.observed), "%s", adapter_observed_name(observed));
    (void) snprintf(out.reason, sizeof(out.reason), "%s", adapter_reason_name(reason));
    if (journal_append_outcome(w->own, seq, &out, &err) < 0)
        adv_error("watchdog", "an outcome is not journalled, it counts as unknown", ADV_FU("journal_seq", seq),
                  ADV_FS("why", err.msg));
}

/* What an earlier run began, once it can land no more: a look at its job has told, or its hold is not on record any more. */
static void close_left_over(struct watchdog *w, struct watch *x, enum hold_sight sight)
{
    const struct journal_step *s = open_step(w, &x->hold);
    enum adapter_observed observed = sight == HOLD_SIGHT_OPEN                                 ? ADAPTER_OBSERVED_YES
                                     : sight == HOLD_SIGHT_GONE || sight == HOLD_SIGHT_ANOTHER ? ADAPTER_OBSERVED_UNKNOWN
                                                                                              : ADAPTER_OBSERVED_NO;

    if (!s || sight == HOLD_SIGHT_NONE || sight == HOLD_SIGHT_BUSY)
        return;
    adv_info("watchdog", "what an earlier run began is settled", ADV_FS("job", x->hold.job),
             ADV_FS("observed", adapter_observed_name(observed)));
    write_outcome(w, s->seq, ADAPTER_COMMAND_TIMED_OUT, observed, ADAPTER_REASON_UNAVAILABLE);
}

static void close_forgotten(struct watchdog *w)
{
    const struct journal_step *s;
    size_t pos = 0;

    if (adv_boot_us() < w->settled_boot_us)
        return;
    while ((s = journal_next_open(w->own, &pos))) {
        bool followed = false;
        for (const struct watch *x = w->watches; x; x = x->next)
            followed = followed || same_hold(s, &x->hold);
        if (followed)
            continue;
        write_outcome(w, s->seq, ADAPTER_COMMAND_TIMED_OUT, ADAPTER_OBSERVED_UNKNOWN, ADAPTER_REASON_UNAVAILABLE);
        return; /* one at a look: the list has changed, or the disk is full */
    }
}

/* ---- the case ---- */

static struct hold_case case_of(struct watchdog *w, const struct watch *x, bool agent_there, enum hold_sight sight)
{
    const struct journal_hold *h = &x->hold;
    int64_t grace_ms = agent_there ? w->cfg->there_ms : w->cfg->gone_ms;

    return (struct hold_case) {
        .on_expiry = h->on_expiry,
        .want = h->want,
        .mode = h->mode,
        .ceiling_known = ceiling_known(w->ceiling),
        .ceiling = ceiling_mode(w->ceiling),
        .word = ceiling_watchdog(w->ceiling),
        .expired = w->cfg->only_agent && h->expires_wall_us && wall_us(w) >= h->expires_wall_us,
        .agent_there = agent_there,
        .grace_over = x->over_boot_us && adv_boot_us() - x->over_boot_us >= grace_ms * 1000,
        .observe = w->cfg->observe,
        .sight = sight,
    };
}

/* An agent that is not there may come while we look; that the lock is free is made sure of before a write. */
static bool agent_there(const struct watchdog *w)
{
    adv_auto_close int fd = -1;
    int r = journal_folder_lock(w->agent_dir, &fd, NULL);

    return r < 0 && r != -ADV_NOT_FOUND;
}

/* What the job is, by the agent's journal; 0: that cannot be told. */
static int64_t first_submit(struct watchdog *w, const struct adapter_job *job, const struct journal_story *s)
{
    const struct journal_life *l = &s->life;

    if (!s->life_known || l->uid != job->uid)
        return 0;
    if (!life_same_attempt(l, job) &&
        !life_followed_by(l, &s->requeue, job, w->forget_after_s, life_keep_us(w->forget_after_s), false))
        return 0;
    return l->first_submit_s;
}

static int sight_of(struct watchdog *w, const struct watch *x, const struct adapter_job_detail *d, enum hold_sight *ret,
                    struct adv_err *err)
{
    struct journal_story story;
    int r = journal_view_job(w->view, x->hold.job, &story, err);

    if (r == 0)
        *ret = hold_sight(&x->hold, &story.requeue, d, first_submit(w, &d->job, &story));
    return r;
}

/* ---- the agent's journal ---- */

static bool same_record(const struct journal_hold *a, const struct journal_hold *b)
{
    return strcmp(a->job, b->job) == 0 && strcmp(a->advice, b->advice) == 0 && a->restarts == b->restarts;
}

static void drop_gone(struct watchdog *w)
{
    for (struct watch **pp = &w->watches; *pp;) {
        struct watch *x = *pp;
        if (x->there || x == w->busy) {
            pp = &x->next;
            continue;
        }
        adv_info("watchdog", "a hold is over by its record", ADV_FS("job", x->hold.job), ADV_FS("advice", x->hold.advice));
        *pp = x->next;
        free(x);
    }
}

/* False: nothing is known of the holds now. */
static bool read_holds(struct watchdog *w)
{
    const struct journal_hold *h;
    struct adv_err err;
    size_t pos = 0;
    bool changed;
    int r = journal_view_refresh(w->view, &changed, &err);

    if (r != w->view_told) {
        if (r == -ADV_NOT_FOUND)
            adv_info("watchdog", "no journal of an agent here", ADV_FS("folder", w->agent_dir));
        else if (r < 0)
            adv_error("watchdog", "the agent's journal cannot be used, nothing is done until it can", ADV_FS("why", err.msg));
        else
            adv_info("watchdog", "the agent's journal is followed", ADV_FS("folder", w->agent_dir));
        w->view_told = r;
    }
    if (r < 0 && r != -ADV_NOT_FOUND)
        return false;
    if (!changed && r == 0) {
        drop_gone(w);
        return true;
    }
    for (struct watch *x = w->watches; x; x = x->next)
        x->there = false;
    while (r == 0 && (h = journal_view_next_hold(w->view, &pos))) {
        struct watch *x = w->watches;
        while (x && !same_record(&x->hold, h))
            x = x->next;
        if (!x) {
            if (!(x = calloc(1, sizeof(*x)))) {
                adv_error("watchdog", "no memory to follow a hold", ADV_FS("job", h->job));
                continue;
            }
            x->next = w->watches;
            w->watches = x;
        } else if (h->want != x->hold.want || h->mode != x->hold.mode || h->on_expiry != x->hold.on_expiry) {
            x->next_boot_us = x->back_off_us = 0; /* another case */
        }
        x->hold = *h;
        x->there = true;
    }
    drop_gone(w);
    return true;
}

static void look_at_ceiling(struct watchdog *w)
{
    static const char *const words[] = { "off", "observe", "act" };

    if (ceiling_refresh(w->ceiling))
        adv_info("watchdog", "the site's ceiling has changed", ADV_FS("mode", ceiling_mode_name(ceiling_mode(w->ceiling))),
                 ADV_FS("watchdog", words[ceiling_watchdog(w->ceiling)]), ADV_FS("reason", ceiling_reason(w->ceiling)));
}

/* ---- ending ---- */

static void give_lock_back(struct watchdog *w)
{
    if (w->lock_fd >= 0)
        (void) close(w->lock_fd);
    w->lock_fd = -1;
}

static unsigned ends_in_minute(const struct watchdog *w)
{
    int64_t since = adv_boot_us() - MINUTE_US;
    unsigned n = 0;

    for (size_t i = 0; i < w->n_ends && i < ENDS_MAX; i++)
        n += w->ends_boot_us[i] > since;
    return n;
}

static bool refuse(struct watchdog *w, const char *why)
{
    w->denied = why;
    return false;
}

static bool may_write(struct watchdog *w, const struct adapter_write *write)
{
    struct watch *x = w->busy;
    enum hold_sight sight;
    struct adv_err err;
    const char *why;
    int r;

    if (w->closing || !x || w->intent_seq)
        return refuse(w, "the watchdog is stopping");
    r = journal_folder_lock(w->agent_dir, &w->lock_fd, &err);
    if (r < 0 && r != -ADV_ALREADY_EXISTS)
        return refuse(w, "the lock of the agent's folder cannot be asked for");
    if (!read_holds(w) || !x->there)
        return refuse(w, "the hold is not on record any more");
    look_at_ceiling(w);
    if (!write->before || sight_of(w, x, write->before, &sight, &err) < 0)
        return refuse(w, "what the id means cannot be read");
    struct hold_case c = case_of(w, x, r < 0, sight);
    if (hold_verdict(&c, &why) != w->wanted || ended_by_us(w, &x->hold))
        return refuse(w, why);
    if (ends_in_minute(w) >= (unsigned) w->cfg->ends_per_minute)
        return refuse(w, "as many holds as are allowed were ended in this minute");
    return true;
}

static bool write_intent(struct watchdog *w, const struct adapter_write *write)
{
    const struct journal_hold *h = &w->busy->hold;
    const struct adapter_job *job = &write->before->job;
    struct journal_intent in = { .restarts = h->restarts - 1, .submit_s = job->submit_s };
    struct adv_err err;

    (void) snprintf(in.advice, sizeof(in.advice), "%s", h->advice);
    (void) snprintf(in.job, sizeof(in.job), "%s", h->job);
    (void) snprintf(in.verb, sizeof(in.verb), "%s", verb_of(h));
    (void) snprintf(in.read_before, sizeof(in.read_before), "%s restarts=%u held=%d reason=%.40s submit=%lld",
                    adapter_job_state_name(job->state), job->restart_count, job->held, job->reason, (long long) job->submit_s);
    if (journal_append_intent(w->own, &in, adv_wall_us(), &w->intent_seq, &err) == 0)
        return true;
    adv_error("watchdog", "an intent cannot be journalled, so nothing is done", ADV_FS("job", h->job), ADV_FS("why", err.msg));
    return refuse(w, "the watchdog's own journal cannot be written");
}

static void authorize(void *ctx, const struct adapter_write *write, adapter_authorize_cb cb, void *arg)
{
    struct watchdog *w = ctx;

    if (!may_write(w, write)) {
        cb(arg, false, 0);
        return;
    }
    ADV_FAILPOINT("watchdog.before_intent");
    if (!write_intent(w, write)) {
        cb(arg, false, 0);
        return;
    }
    w->ends_boot_us[w->n_ends++ % ENDS_MAX] = adv_boot_us();
    ADV_FAILPOINT("watchdog.after_intent");
    cb(arg, true, adv_boot_us() + (int64_t) write->deadline_ms * 1000);
}

static void next(struct watchdog *w);
static void on_tick(uv_timer_t *timer);

static void free_hand(struct watchdog *w)
{
    w->busy = NULL;
    if (w->cfg->once && !w->closing)
        next(w);
}

static void on_acted(void *arg, const struct adapter_result *res)
{
    struct watchdog *w = arg;
    struct watch *x = w->busy;
    bool wrote = w->intent_seq != 0;

    if (wrote && !(w->closing && res->observed == ADAPTER_OBSERVED_UNKNOWN)) { /* else it stays open, to be waited for */
        ADV_FAILPOINT("watchdog.before_outcome");
        write_outcome(w, w->intent_seq, res->command, res->observed, res->reason);
        ADV_FAILPOINT("watchdog.after_outcome");
    }
    w->intent_seq = 0;
    give_lock_back(w);
    adv_info("watchdog", wrote ? "a hold was to be ended" : "a hold is not ended now", ADV_FS("job", x->hold.job),
             ADV_FS("verb", verb_of(&x->hold)), ADV_FS("command", adapter_command_name(res->command)),
             ADV_FS("observed", adapter_observed_name(res->observed)), ADV_FS("reason", adapter_reason_name(res->reason)),
             ADV_FS("more", w->denied ? w->denied : res->err.msg), ADV_FS("advice", x->hold.advice));
    back_off(x);
    if (wrote && res->command != ADAPTER_COMMAND_NOT_SENT && res->observed == ADAPTER_OBSERVED_UNKNOWN) {
        /* It may still land: nothing is done to this job until it cannot, and a look begun after that tells. */
        int64_t bound_us = w->cfg->landing_bound_ms * 1000;
        if (x->next_boot_us < adv_boot_us() + bound_us)
            x->next_boot_us = adv_boot_us() + bound_us;
    }
    free_hand(w);
}

static void act(struct watchdog *w, const struct adapter_job_detail *d)
{
    struct watch *x = w->busy;
    bool release = w->wanted == HOLD_RELEASE;
    struct adapter_action action = {
        .verb = release ? ADAPTER_VERB_RELEASE : ADAPTER_VERB_CANCEL,
        .id = x->hold.job,
        .tag = "watchdog",
        .expect_submit_s = d->job.submit_s,
        .expect_restarts = d->job.restart_count,
        .allowed_states = ADAPTER_STATE_BIT(ADAPTER_JOB_PENDING),
        .expect_comment = release ? d->comment : NULL,
        .only_in_hold = !release,
        .deadline_ms = (int) w->cfg->action_deadline_ms,
    };

    w->denied = NULL;
    w->intent_seq = 0;
    w->adapter->ops->act(w->adapter, &action, on_acted, w);
}

/* ---- looking ---- */

/* Once for all holds, until it answers again. */
static void tell_away(struct watchdog *w, bool away, const struct adv_err *err)
{
    if (away && !w->away_told)
        adv_warn("watchdog", "the scheduler does not answer, nothing is concluded; will ask again and again",
                 ADV_FS("why", err ? err->msg : ""));
    else if (!away && w->away_told)
        adv_info("watchdog", "the scheduler answers again");
    w->away_told = away;
}

static void on_inspected(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    struct watchdog *w = arg;
    struct watch *x = w->busy;
    enum hold_sight sight = found == ADAPTER_FOUND_GONE ? HOLD_SIGHT_GONE : HOLD_SIGHT_NONE;
    struct adv_err why_not;
    const char *why;

    x->looked = true;
    if (w->closing) {
        (void) adapter_job_detail_free(d);
        w->busy = NULL;
        return;
    }
    tell_away(w, found == ADAPTER_FOUND_UNKNOWN, err);
    if (found == ADAPTER_FOUND && sight_of(w, x, d, &sight, &why_not) < 0) {
        adv_warn("watchdog", "what the journal tells of a job cannot be read; will look again", ADV_FS("job", x->hold.job),
                 ADV_FS("why", why_not.msg));
    }
    close_left_over(w, x, sight);
    struct hold_case c = case_of(w, x, agent_there(w), sight);
    enum hold_verdict v = hold_verdict(&c, &why);
    if (sight != HOLD_SIGHT_NONE)
        say(x, v, why);
    if ((v == HOLD_RELEASE || v == HOLD_CANCEL) && sight == HOLD_SIGHT_OURS && !ended_by_us(w, &x->hold)) {
        w->wanted = v;
        act(w, d);
    } else {
        back_off(x);
        free_hand(w);
    }
    (void) adapter_job_detail_free(d);
}

static void look(struct watchdog *w)
{
    w->adapter->ops->inspect(w->adapter, w->busy->hold.job, on_inspected, w);
}

static void on_described(void *arg, const struct adapter_description *d, const struct adv_err *err)
{
    struct watchdog *w = arg;

    if (d) {
        w->described_boot_us = adv_boot_us();
        w->forget_after_s = d->forget_after_s;
    }
    if (d && !w->closing) {
        look(w);
        return;
    }
    if (!d && !w->closing)
        tell_away(w, true, err);
    w->busy->looked = true;
    back_off(w->busy);
    free_hand(w);
}

/* By its record, whatever the job shows: is it over, and ours to end? */
static bool is_over(struct watchdog *w, struct watch *x)
{
    struct hold_case c = case_of(w, x, true, HOLD_SIGHT_NONE);
    const char *why;
    enum hold_verdict v;

    c.grace_over = false;
    v = hold_verdict(&c, &why);
    if (ended_by_us(w, &x->hold)) {
        say(x, HOLD_ENDED, "ended here; the agent has not taken note of it yet");
        return false;
    }
    if (v == HOLD_KEEP || v == HOLD_LEAVE) {
        x->over_boot_us = 0;
        x->next_boot_us = x->back_off_us = 0;
        say(x, v, why);
        return false;
    }
    if (!x->over_boot_us)
        x->over_boot_us = adv_boot_us();
    return true;
}

/* Is it this one's turn? */
static bool is_due(struct watchdog *w, struct watch *x, bool there)
{
    struct hold_case c = case_of(w, x, there, HOLD_SIGHT_NONE);
    const char *why;
    enum hold_verdict v = hold_verdict(&c, &why);

    if (v != HOLD_LOOK && !w->cfg->once) {
        say(x, v, why);
        return false;
    }
    return adv_boot_us() >= x->next_boot_us && adv_boot_us() >= (open_step(w, &x->hold) ? w->settled_boot_us : 0);
}

/* An agent's lock is tried only when there is a hold that is over. */
static void next(struct watchdog *w)
{
    struct watch *best = NULL;
    bool there = false, asked = false;

    for (struct watch *x = w->watches; x; x = x->next) {
        if (!is_over(w, x))
            continue;
        if (!asked)
            there = agent_there(w);
        asked = true;
        if (is_due(w, x, there) && !(w->cfg->once && x->looked) && (!best || x->next_boot_us < best->next_boot_us))
            best = x;
    }
    if (best && ends_in_minute(w) >= (unsigned) w->cfg->ends_per_minute) {
        if (!w->limit_told)
            adv_info("watchdog", "as many holds as are allowed were ended in this minute, the others wait");
        w->limit_told = true;
        return; /* at a later tick, also with `once` */
    }
    if (!best) {
        if (w->cfg->once) { /* not from here: the adapter may be calling */
            w->finished = true;
            (void) uv_timer_start(&w->timer, on_tick, 0, (uint64_t) w->cfg->poll_ms);
        }
        return;
    }
    w->limit_told = false;
    w->busy = best;
    if (w->described_boot_us && adv_boot_us() - w->described_boot_us < DESCRIBE_US)
        look(w);
    else
        w->adapter->ops->describe(w->adapter, on_described, w);
}

static void on_tick(uv_timer_t *timer)
{
    struct watchdog *w = timer->data;

    if (w->busy)
        return;
    if (w->finished) {
        w->done(w->done_arg);
        return;
    }
    look_at_ceiling(w);
    if (!read_holds(w)) {
        if (w->cfg->once)
            w->done(w->done_arg);
        return;
    }
    close_forgotten(w);
    next(w);
}

/* ---- life ---- */

int watchdog_new(uv_loop_t *loop, const struct watchdog_config *cfg, struct adapter_runner *runner, struct watchdog **ret,
                 struct adv_err *err)
{
    struct watchdog *w = calloc(1, sizeof(*w));
    uid_t owner;
    size_t pos = 0;
    int r = 0;

    if (!w)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the watchdog");
    w->loop = loop;
    w->cfg = cfg;
    w->host = (struct adapter_host) { .ctx = w, .runner = runner, .authorize = authorize, .log = adapter_host_log };
    w->lock_fd = -1;
    w->view_told = 1;
    (void) steady_wall_us(&w->steady, adv_wall_us(), adv_boot_us());
    w->agent_dir = strdup(cfg->state_dir);
    if (!w->agent_dir || asprintf(&w->dir, "%s/watchdog", cfg->state_dir) < 0) {
        w->dir = NULL;
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the watchdog");
    }
    if (r == 0)
        r = journal_open(w->dir, cfg->allow_volatile, NULL, &w->own, err);
    if (r == 0)
        r = journal_view_new(w->agent_dir, JOURNAL_VIEW_HOLDS, &w->view, err);
    if (r == 0)
        r = ceiling_owner_uid(cfg->ceiling_owner, &owner, err);
    if (r == 0)
        r = ceiling_new(cfg->ceiling_path[0] ? cfg->ceiling_path : NULL, owner, &w->ceiling, err);
    if (r < 0) {
        (void) watchdog_free(w);
        return r == -ADV_ALREADY_EXISTS
                   ? adv_err_set(err, ADV_ALREADY_EXISTS, "another watchdog uses state folder '%s'", cfg->state_dir)
                   : r;
    }
    if (journal_may_act(w->own, err) < 0)
        adv_warn("watchdog", "this watchdog will not act", ADV_FS("why", err ? err->msg : ""));
    if (journal_next_open(w->own, &pos))
        w->settled_boot_us = adv_boot_us() + (cfg->command_deadline_ms + cfg->landing_bound_ms) * 1000;
    *ret = w;
    return 0;
}

struct adapter_host *watchdog_host(struct watchdog *w)
{
    return &w->host;
}

const char *watchdog_dir(const struct watchdog *w)
{
    return w->dir;
}

bool watchdog_well(const struct watchdog *w)
{
    return w->view_told == 0 || w->view_told == -ADV_NOT_FOUND;
}

void watchdog_start(struct watchdog *w, struct adapter *adapter, void (*done)(void *arg), void *arg)
{
    w->adapter = adapter;
    w->done = done;
    w->done_arg = arg;
    (void) uv_timer_init(w->loop, &w->timer);
    w->timer.data = w;
    (void) uv_timer_start(&w->timer, on_tick, 0, (uint64_t) w->cfg->poll_ms);
}

void watchdog_stop(struct watchdog *w)
{
    if (w->closing)
        return;
    w->closing = true;
    if (w->adapter)
        uv_close((uv_handle_t *) &w->timer, NULL);
}

struct watchdog *watchdog_free(struct watchdog *w)
{
    if (!w)
        return NULL;
    while (w->watches) {
        struct watch *x = w->watches;
        w->watches = x->next;
        free(x);
    }
    give_lock_back(w);
    (void) ceiling_free(w->ceiling);
    (void) journal_view_free(w->view);
    (void) journal_free(w->own);
    free(w->dir);
    free(w->agent_dir);
    free(w);
    return NULL;
}
