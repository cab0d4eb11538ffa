/* SPDX-License-Identifier: Apache-2.0 */

/* The order of the questions is the order of their weight: what the site forbids, whether the hold is over at all, how its
 * record says it ends, whether the agent had its time, and last what a look at the job shows. Each can only say no. */

#include "advisor-agent/hold.h"

#include <stdlib.h>
#include <string.h>

#include "common/digest.h"

#define MARGIN_S 2 /* seconds are cut off, on both sides */

/* ---- which submission an id means ---- */

bool life_same_attempt(const struct journal_life *l, const struct adapter_job *job)
{
    return job->restart_count == l->restarts && job->submit_s == l->submit_s;
}

int64_t life_keep_us(int64_t forget_after_s)
{
    if (forget_after_s <= 0)
        return 0;
    return (forget_after_s > 2 * MARGIN_S ? forget_after_s - MARGIN_S : forget_after_s / 2) * 1000000;
}

/* The new attempt was submitted when we sent the command that makes it, and at that time the job was read as running. */
static bool interrupted_by_us(const struct journal_life *l, const struct journal_step *requeue, const struct adapter_job *job,
                              int64_t keep_us)
{
    return requeue && requeue->seq && strcmp(requeue->intent.verb, adapter_verb_name(ADAPTER_VERB_INTERRUPT)) == 0 &&
           requeue->intent.restarts == l->restarts && requeue->intent.submit_s == l->submit_s &&
           job->restart_count == l->restarts + 1 && keep_us > 0 &&
           llabs(job->submit_s - requeue->wall_us / 1000000) <= keep_us / 2000000;
}

bool life_followed_by(const struct journal_life *l, const struct journal_step *requeue, const struct adapter_job *job,
                      int64_t forget_after_s, int64_t keep_us, bool watched)
{
    if (!l->submit_s || job->restart_count <= l->restarts || job->submit_s < l->submit_s)
        return false;
    if (l->ended_s && forget_after_s > 0)
        return job->submit_s < l->ended_s + forget_after_s;
    return watched || interrupted_by_us(l, requeue, job, keep_us);
}

/* ---- the job ---- */

enum hold_whose hold_whose(const struct journal_hold *h, const struct adapter_job *job, int64_t first_submit_s)
{
    if (job->restart_count != h->restarts)
        return HOLD_NOT_OURS;
    if (!first_submit_s || !h->first_submit_s)
        return HOLD_UNSURE;
    return first_submit_s == h->first_submit_s ? HOLD_OURS : HOLD_NOT_OURS;
}

bool hold_never_came(const struct journal_hold *h, const struct journal_step *requeue)
{
    return requeue && requeue->seq && requeue->done && strcmp(requeue->intent.advice, h->advice) == 0 &&
           requeue->intent.restarts + 1 == h->restarts &&
           (strcmp(requeue->outcome.observed, adapter_observed_name(ADAPTER_OBSERVED_NO)) == 0 ||
            strcmp(requeue->outcome.command, adapter_command_name(ADAPTER_COMMAND_NOT_SENT)) == 0);
}

void hold_comment_hash(const char *comment, char out[JOURNAL_HASH_SIZE])
{
    uint8_t sum[ADV_SHA256_LEN];

    if (adv_sha256(comment, strlen(comment), sum, NULL) < 0)
        out[0] = '\0';
    else
        (void) adv_hex(sum, JOURNAL_HASH_SIZE / 2, out);
}

enum hold_sight hold_sight(const struct journal_hold *h, const struct journal_step *requeue,
                           const struct adapter_job_detail *d, int64_t first_submit_s)
{
    const struct adapter_job *job = &d->job;
    char now[JOURNAL_HASH_SIZE];

    if (job->completing || job->state == ADAPTER_JOB_UNKNOWN_STATE)
        return HOLD_SIGHT_BUSY;
    if (job->restart_count > h->restarts)
        return HOLD_SIGHT_ANOTHER;
    if (job->state != ADAPTER_JOB_PENDING || !job->held)
        return HOLD_SIGHT_OPEN;
    if (job->restart_count == 0)
        return HOLD_SIGHT_FIRST;
    if (job->restart_count < h->restarts)
        return HOLD_SIGHT_ANOTHER; /* our requeue has not come, and whoever holds it is somebody else */
    if (!job->held_by_requeue || hold_never_came(h, requeue))
        return HOLD_SIGHT_PERSON;
    switch (hold_whose(h, job, first_submit_s)) {
    case HOLD_NOT_OURS:
        return HOLD_SIGHT_ANOTHER;
    case HOLD_UNSURE:
        return HOLD_SIGHT_UNSURE;
    default:
        break;
    }
    hold_comment_hash(d->comment, now);
    return now[0] && strcmp(now, h->comment) == 0 ? HOLD_SIGHT_OURS : HOLD_SIGHT_COMMENT;
}

/* ---- the verdict ---- */

bool hold_lowered(enum journal_mode mode, bool ceiling_known, enum ceiling_mode ceiling)
{
    return mode == JOURNAL_MODE_OFF || mode == JOURNAL_MODE_OBSERVE || (ceiling_known && ceiling < CEILING_APPROVE);
}

const char *hold_verdict_name(enum hold_verdict v)
{
    static const char *const names[HOLD_VERDICT_MAX_] = { "keep", "leave", "wait", "look", "ended", "would release",
                                                          "would cancel", "release", "cancel" };
    return names[v];
}

/* @ret_why stays as it is when the hold is over. */
static bool is_over(const struct hold_case *c, const char **ret_why)
{
    if (c->want == JOURNAL_ELSEWHERE) {
        *ret_why = "another agent of the cluster has the lease, and the hold with it";
        return false;
    }
    if (hold_lowered(c->mode, c->ceiling_known, c->ceiling) || c->want == JOURNAL_OVER)
        return true;
    if (c->expired && (c->want != JOURNAL_AWAITING || c->on_expiry == JOURNAL_CANCEL))
        return true; /* nobody's word can come any more; to cancel sets nothing in motion */
    *ret_why = c->expired ? "it has expired, but a person's word is awaited: it is never released for that"
                          : "it is in force";
    return false;
}

static enum hold_verdict by_sight(const struct hold_case *c, const char **ret_why)
{
    static const struct {
        enum hold_verdict verdict;
        const char *why;
    } says[HOLD_SIGHT_MAX_] = {
        [HOLD_SIGHT_NONE] = { HOLD_LOOK, "the job must be looked at first" },
        [HOLD_SIGHT_GONE] = { HOLD_ENDED, "the scheduler has no such job any more" },
        [HOLD_SIGHT_OPEN] = { HOLD_ENDED, "the job is not held any more" },
        [HOLD_SIGHT_ANOTHER] = { HOLD_ENDED, "the id means another attempt or another job now" },
        [HOLD_SIGHT_BUSY] = { HOLD_WAIT, "the job is completing, or its state is not understood" },
        [HOLD_SIGHT_PERSON] = { HOLD_LEAVE, "a person holds the job" },
        [HOLD_SIGHT_COMMENT] = { HOLD_LEAVE, "the job's comment is not the one on record: a person may have taken it over" },
        [HOLD_SIGHT_UNSURE] = { HOLD_LEAVE, "whether the id still means this job cannot be confirmed" },
        [HOLD_SIGHT_FIRST] = { HOLD_LEAVE, "it was held before its first attempt, which is never ours to open" },
        [HOLD_SIGHT_OURS] = { HOLD_RELEASE, "our hold is over and the agent has not ended it" },
    };

    *ret_why = says[c->sight].why;
    if (c->sight != HOLD_SIGHT_OURS)
        return says[c->sight].verdict;
    if (c->observe || c->word == CEILING_WATCHDOG_OBSERVE)
        return c->on_expiry == JOURNAL_CANCEL ? HOLD_WOULD_CANCEL : HOLD_WOULD_RELEASE;
    return c->on_expiry == JOURNAL_CANCEL ? HOLD_CANCEL : HOLD_RELEASE;
}

enum hold_verdict hold_verdict(const struct hold_case *c, const char **ret_why)
{
    if (!c->ceiling_known) {
        *ret_why = "the ceiling file cannot be used: what the site allows is not known";
        return HOLD_KEEP;
    }
    if (c->word == CEILING_WATCHDOG_OFF) {
        *ret_why = "the site's ceiling has the watchdog off";
        return HOLD_KEEP;
    }
    if (!is_over(c, ret_why))
        return HOLD_KEEP;
    if (c->on_expiry != JOURNAL_RELEASE && c->on_expiry != JOURNAL_CANCEL) {
        *ret_why = "its record says to leave it, for its owner to decide";
        return HOLD_LEAVE;
    }
    if (!c->grace_over) {
        *ret_why = c->agent_there ? "it is over; an agent is there and is waited for" : "it is over; an agent may come back";
        return HOLD_WAIT;
    }
    return by_sight(c, ret_why);
}
