/* SPDX-License-Identifier: Apache-2.0 */

/* Which submission an id means. Attempt 0 tells by itself: its submit time is the job's first. A later attempt is of the
 * submission that the journal knows only if the id cannot have come to mean another one in between. A scheduler gives an
 * id away no sooner than `forget_after` after the end of the job that had it, so:
 *
 *   the attempt is the one known            same submit time, same restart count
 *   an older one than that                  submitted after the first submit, before the newest: a read that came late
 *   the one known had ended                 the new submit time, by the same clock, is before end + forget_after
 *   it had not ended at the last look       that look was begun less than forget_after ago, by our clock
 *   it was interrupted by our own command   the new submit time is at the intent's, where the job was read as running
 *
 * Anything else is not known, and what was known is forgotten: a doubt does not become certain with time. The end of a
 * suspended job is the moment of its suspension, and that of a completing one may be long past, so neither counts as a
 * look at a job that has not ended. */

#include <stdlib.h>

#include "advisor-agent/hold.h"
#include "advisor-agent/internal.h"
#include "common/clock.h"
#include "common/log.h"

/* How long what was alive at a look surely keeps its id. */
static int64_t keep_us(const struct agent *a)
{
    if (a->forget_after_s <= 0) /* not known: what no two looks can miss */
        return 2 * a->cfg->poll_ms * 1000;
    return life_keep_us(a->forget_after_s);
}

/* Is the look at which @l was last alive recent enough? After a restart only the wall clock can tell, which is trusted
 * less. */
static bool watched(const struct agent *a, const struct journal_life *l)
{
    int64_t age;

    if (l->seen_boot_us)
        return adv_boot_us() - l->seen_boot_us < keep_us(a);
    age = adv_wall_us() - l->seen_wall_us;
    return age >= 0 && age < keep_us(a) / 2;
}

static bool came_late(const struct journal_life *l, const struct adapter_job *job)
{
    return job->restart_count < l->restarts && job->submit_s >= l->first_submit_s && job->submit_s < l->submit_s;
}

static bool follows(const struct agent *a, const struct journal_life *l, const struct adapter_job *job)
{
    const struct journal_step *interrupt =
        journal_find_step(a->journal, NULL, job->id, adapter_verb_name(ADAPTER_VERB_INTERRUPT));

    return life_followed_by(l, interrupt, job, a->forget_after_s, keep_us(a), watched(a, l));
}

static bool alive(const struct agent *a, const struct adapter_job *job)
{
    if (job->completing || job->state == ADAPTER_JOB_UNKNOWN_STATE || job->state == ADAPTER_JOB_SUSPENDED ||
        job->state == ADAPTER_JOB_STOPPED)
        return false;
    return !adapter_job_state_ended(job->state) || a->forget_after_s <= 0;
}

int64_t agent_first_submit(struct agent *a, const struct adapter_job *job)
{
    static struct adv_ratelimit limit;
    const struct journal_life *known = journal_life(a->journal, job->id);
    struct journal_life l = { .uid = job->uid, .restarts = job->restart_count, .submit_s = job->submit_s };
    struct adv_err err;

    if (known && known->uid != job->uid)
        known = NULL;
    if (known && came_late(known, job))
        return known->first_submit_s;
    /* slurmctld counts a restart when the job is requeued and sets the new submit time when it is done completing: what is
     * seen in between is not the new attempt yet, and nothing that the next look could be compared with. */
    if (known && job->submit_s == known->submit_s && follows(a, known, job))
        return known->first_submit_s;
    if (job->restart_count == 0) {
        if (job->submit_s <= 0)
            return 0;
        l.first_submit_s = job->submit_s;
        if (known && !life_same_attempt(known, job))
            known = NULL;
    } else if (!known || (!life_same_attempt(known, job) && !follows(a, known, job))) {
        journal_forget_job(a->journal, job->id);
        return 0;
    } else {
        l.first_submit_s = known->first_submit_s;
    }
    l.ended_s = adapter_job_state_ended(job->state) ? job->end_s : 0;
    if (alive(a, job) && a->look_boot_us) {
        l.seen_boot_us = a->look_boot_us;
        l.seen_wall_us = a->look_wall_us;
    } else if (known) {
        l.seen_boot_us = known->seen_boot_us;
        l.seen_wall_us = known->seen_wall_us;
    }
    if (journal_append_life(a->journal, job->id, &l, &err) < 0) {
        if (adv_log_ratelimit(&limit, 1))
            adv_warn("agent", "what an id means is not journalled", ADV_FS("job", job->id), ADV_FS("why", err.msg));
        return known ? l.first_submit_s : 0;
    }
    return l.first_submit_s;
}
