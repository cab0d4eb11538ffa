/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_RANKS_H
#define ADV_WATCHER_RANKS_H

/* Where ranks that print their own steps stand, some of them. In healthy work they print the same step one after the other,
 * and a pause for a checkpoint or an evaluation finds all of them at the same one. A rank that stays behind when all fall
 * silent, further than it ever was when the others went on, is what the others wait for.
 *
 * Pure; thread: the owner's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MAX 32

struct ranks {
    struct {
        int64_t step;
        int32_t rank;
        uint16_t worst; /* steps behind the front from which it came back; 65535: that or more */
        uint16_t told;  /* steps behind when last told */
        uint16_t moves;
    } r[RANKS_MAX];
    int64_t front;
    unsigned n;
};

/* @rank has printed @step; below 0: the line does not say whose it is. Starts from zeroes. */
void ranks_step(struct ranks *rk, int rank, int64_t step);

/* Writes those behind as "3,5"; those that do not fit are left out. False: none. A rank that goes on after it was told may
 * be that far behind from then on: it may be the one that saves. */
bool ranks_behind(struct ranks *rk, char *ret, size_t cap);

#endif
