/* SPDX-License-Identifier: Apache-2.0 */

/* How slurmctld bears us. What its rate limit (`rl_enable`), a full table of threads or a lock that others hold have in common
 * is that our own commands take long; so these are the measure, and no further call is made for it. */

#include "adapters/slurm/internal.h"

#define SLOW_US    2000000  /* an idle slurmctld answers in some 10 ms, 100 ms for 10,000 jobs */
#define FAST_US    300000
#define CALM_US    15000000 /* of fast answers, before the pace is raised again */
#define PACE_MAX   8

void slurm_strain_note(struct slurm_strain *s, int64_t started_us, int64_t took_us, bool answered)
{
    int64_t now_us = started_us + took_us;

    if (!s->pace)
        s->pace = 1;
    if (!answered || took_us >= SLOW_US) {
        if (started_us < s->changed_us)
            return; /* begun before we knew: the same trouble */
        s->changed_us = now_us;
        if (s->slow_run++ == 0)
            return; /* one may be our own: a host that was suspended, a child that was stopped */
        s->pace = s->pace * 2 < PACE_MAX ? s->pace * 2 : PACE_MAX;
        return;
    }
    s->slow_run = 0;
    if (took_us > FAST_US) {
        s->changed_us = s->pace > 1 && now_us > s->changed_us ? now_us : s->changed_us; /* neither: it stays as it is */
    } else if (s->pace > 1 && now_us - s->changed_us >= CALM_US) {
        s->pace /= 2;
        s->changed_us = now_us;
    }
}

unsigned slurm_strain_pace(const struct slurm_strain *s)
{
    return s->pace ? s->pace : 1;
}
