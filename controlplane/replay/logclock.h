/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_REPLAY_LOGCLOCK_H
#define ADV_REPLAY_LOGCLOCK_H

/* The time that passes in a log that is read afterwards, taken from what its lines say: stamps of loggers and of the
 * kernel, the elapsed time of a progress bar, the time that each step is said to have taken. Only differences matter; the
 * writers' clocks may all be different, so each form of stamp is compared with itself alone.
 *
 * Time never goes back. A stamp far from the last of its form is a new run, or a place where lines were left out, and says
 * nothing of how much time passed; nor does a mark for lines that were left out ("[...]").
 *
 * Pure, no allocation.  Thread: the owner's.  Blocks: no. */

#include <stddef.h>
#include <stdint.h>

enum logclock_form {
    LOGCLOCK_DATE,   /* 2024-01-31T10:00:00.5, 2024/01/31 10:00:00 */
    LOGCLOCK_MONTH,  /* Jan 31 10:00:00 */
    LOGCLOCK_GLOG,   /* I0131 10:00:00.5, [E131 10:00:00.5 */
    LOGCLOCK_UPTIME, /* [ 1234.567890] */
    LOGCLOCK_BAR,    /* 571/801 [10:00<20:00; each length is a form of its own, since bars are nested */
    LOGCLOCK_FORMS = LOGCLOCK_BAR + 4,
};

struct logclock {
    int64_t now_us;
    struct {
        int64_t base_us; /* what to add to a stamp */
        int64_t last_us; /* stamp; -1: none yet, or none since lines were left out */
    } form[LOGCLOCK_FORMS];
    int64_t bar[LOGCLOCK_FORMS - LOGCLOCK_BAR]; /* lengths */
    unsigned next_bar;
    int64_t step; /* of the last line that said how long a step took; -1 */
    int64_t step_us; /* how long that was; 0: nobody said */
};

void logclock_init(struct logclock *c, int64_t now_us);

/* Returns the time of this line, never less than what the call before returned. */
int64_t logclock_line(struct logclock *c, const char *line, size_t len);

#endif
