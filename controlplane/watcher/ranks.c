/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/ranks.h"

#include <stdio.h>

#define MOVES_MIN 8  /* before that a rank's habits are not known */
#define FALL_BACK 64 /* steps: the work begins again from a checkpoint, and nobody is behind */

static unsigned slot_of(struct ranks *rk, int rank, int64_t step)
{
    unsigned i;

    for (i = 0; i < rk->n; i++)
        if (rk->r[i].rank == rank)
            return i;
    if (rk->n == RANKS_MAX)
        return RANKS_MAX;
    rk->r[rk->n].rank = rank;
    rk->r[rk->n].step = step;
    rk->r[rk->n].worst = rk->r[rk->n].moves = rk->r[rk->n].told = 0;
    return rk->n++;
}

static uint16_t lag(const struct ranks *rk, unsigned i)
{
    int64_t l = rk->front - rk->r[i].step;

    return l < 0 ? 0 : l > UINT16_MAX ? UINT16_MAX : (uint16_t) l;
}

void ranks_step(struct ranks *rk, int rank, int64_t step)
{
    unsigned i;

    if (rank < 0)
        return;
    if (rk->n > 0 && rk->front - step > FALL_BACK) {
        rk->n = 0;
        rk->front = step;
    }
    i = slot_of(rk, rank, step);
    if (i == RANKS_MAX)
        return;
    if (rk->n > 1 && step > rk->front)
        for (unsigned k = 0; k < rk->n; k++) {
            uint16_t l = lag(rk, k);
            if (l > rk->r[k].worst)
                rk->r[k].worst = l;
        }
    if (step > rk->front || rk->n == 1)
        rk->front = step;
    if (step > rk->r[i].step && rk->r[i].moves < UINT16_MAX)
        rk->r[i].moves++;
    if (rk->r[i].told > rk->r[i].worst)
        rk->r[i].worst = rk->r[i].told;
    rk->r[i].told = 0;
    rk->r[i].step = step;
}

bool ranks_behind(struct ranks *rk, char *ret, size_t cap)
{
    size_t len = 0;

    ret[0] = '\0';
    for (unsigned i = 0; i < rk->n; i++) {
        int n;
        if (rk->r[i].moves < MOVES_MIN || lag(rk, i) <= rk->r[i].worst)
            continue;
        rk->r[i].told = lag(rk, i);
        n = snprintf(ret + len, cap - len, "%s%d", len ? "," : "", rk->r[i].rank);
        if (n < 0 || (size_t) n >= cap - len) {
            ret[len] = '\0';
            break;
        }
        len += (size_t) n;
    }
    return len > 0;
}
