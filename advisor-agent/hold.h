/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_HOLD_H
#define ADVISOR_AGENT_HOLD_H

/* What a hold in the journal means: whose job it speaks of, whether it is over, and how it may end. The agent and the
 * watchdog both go by this. Pure: clocks and looks are arguments.
 *
 * docs/watchdog.md has the tables, made by tests/unit/advisor-agent/test-hold.c from these functions. */

#include "adapters/adapter.h"
#include "advisor-agent/ceiling.h"
#include "advisor-agent/journal.h"

/* Which submission an id means: the rules of incarnation.c. */
bool life_same_attempt(const struct journal_life *l, const struct adapter_job *job);
/* Is @job a later attempt of what @l knows? @requeue: our newest step that requeued it, NULL or seq 0: none.
 * @forget_after_s: how long the scheduler keeps an ended job, 0: not known. @keep_us: how long what was alive at a look surely
 * keeps its id, by that; @watched: @l was seen alive more recently. */
bool life_followed_by(const struct journal_life *l, const struct journal_step *requeue, const struct adapter_job *job,
                      int64_t forget_after_s, int64_t keep_us, bool watched);
/* @keep_us by what the scheduler says; 0 where it says nothing. */
int64_t life_keep_us(int64_t forget_after_s);

/* Is @job the one, and the attempt, that the hold speaks of? @first_submit_s: of @job, 0 if not certain. */
enum hold_whose { HOLD_OURS, HOLD_NOT_OURS, HOLD_UNSURE };
enum hold_whose hold_whose(const struct journal_hold *h, const struct adapter_job *job, int64_t first_submit_s);

/* Our requeue for @h surely did not take effect, so that whatever holds the job is not ours. @requeue: our newest step that
 * requeues this job, NULL or seq 0: none is known. No step is no answer: what was taken over from another agent has none, and
 * neither has a hold that is older than the journal keeps steps. A hold of our own is journalled behind its intent. */
bool hold_never_came(const struct journal_hold *h, const struct journal_step *requeue);

/* "" when the crypto library fails: then nothing agrees with it. */
void hold_comment_hash(const char *comment, char out[JOURNAL_HASH_SIZE]);

/* What a fresh look at the job tells about our hold. */
enum hold_sight {
    HOLD_SIGHT_NONE,     /* not looked, or the scheduler did not answer */
    HOLD_SIGHT_GONE,     /* no such job */
    HOLD_SIGHT_OPEN,     /* not held any more: it waits, runs or has ended */
    HOLD_SIGHT_ANOTHER,  /* another attempt, or another job */
    HOLD_SIGHT_BUSY,     /* completing, or in a state that is not understood: look again */
    HOLD_SIGHT_PERSON,   /* held in another way than a requeue holds, or our requeue surely never took effect */
    HOLD_SIGHT_COMMENT,  /* its comment has changed, or is not on record: a person's sign, or none to compare with */
    HOLD_SIGHT_UNSURE,   /* in a hold like ours, but whether the id means our job cannot be confirmed */
    HOLD_SIGHT_FIRST,    /* held before its first attempt: a child of a workflow; no hold of ours is one */
    HOLD_SIGHT_OURS,
    HOLD_SIGHT_MAX_,
};
enum hold_sight hold_sight(const struct journal_hold *h, const struct journal_step *requeue,
                           const struct adapter_job_detail *d, int64_t first_submit_s);

/* The cluster's mode or the site's ceiling leave no room for a recovery, so that what it holds is given back. A ceiling that
 * is not known, or a mode that was not told, is no reason. */
bool hold_lowered(enum journal_mode mode, bool ceiling_known, enum ceiling_mode ceiling);

/* The watchdog's question. */
struct hold_case {
    enum journal_on_expiry on_expiry;
    enum journal_want want;
    enum journal_mode mode;
    bool ceiling_known;
    enum ceiling_mode ceiling;
    enum ceiling_watchdog word; /* valid if the ceiling is known */
    bool expired;
    bool agent_there; /* an agent has the folder's lock: it lives, hangs, or is frozen */
    bool grace_over;  /* the hold has been over for as long as the agent, dead or there, is waited for */
    bool observe;     /* the watchdog's own setting */
    enum hold_sight sight;
};

enum hold_verdict {
    HOLD_KEEP,    /* it is not over */
    HOLD_LEAVE,   /* it is over, and not ours to end */
    HOLD_WAIT,    /* ours to end, but not yet */
    HOLD_LOOK,    /* ours to end, if a fresh look says so */
    HOLD_ENDED,   /* nothing is held any more */
    HOLD_WOULD_RELEASE, HOLD_WOULD_CANCEL, /* said, not done */
    HOLD_RELEASE, HOLD_CANCEL,
    HOLD_VERDICT_MAX_,
};
const char *hold_verdict_name(enum hold_verdict v); /* "release"; static text */
/* @ret_why: one sentence for people, static. */
enum hold_verdict hold_verdict(const struct hold_case *c, const char **ret_why);

#endif
