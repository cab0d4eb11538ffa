/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SOURCES_TELLING_H
#define CONTROLPLANE_SOURCES_TELLING_H

/* What of the things that node logs say about one attempt is told, and when it is told that there is more. An attempt may last
 * for weeks and a decision looks at its last half hour, so all of this is about things of one time: what was told long ago
 * gives its place to what is new, and whatever is left out is made known for the time of which it is.
 *
 * Pure. Thread: any.  Blocks: no. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of faults that a decision may rest on there is room for more nodes than may be blamed; what one node has besides is told
 * while there is plenty. All else is for people. */
#define TELLING_FAULTS_MAX    12
#define TELLING_FAULTS_PLENTY 6
#define TELLING_OTHERS_MAX    6
/* What is told stands for this long. */
#define TELLING_AGAIN_US      (30 * 1000000LL)
/* What was not told for this long may lose its place. */
#define TELLING_OLD_US        (1800 * 1000000LL)

struct telling {
    struct telling_entry {
        uint32_t rule, host; /* their hashes */
        bool counts;
        int64_t ts_us;       /* of the newest that was told */
    } told[TELLING_FAULTS_MAX + TELLING_OTHERS_MAX];
    size_t n, n_faults;
    bool more;
    int64_t more_us;         /* when it was told last that there are more than these */
};

enum telling_how { TELL_NOT, TELL, TELL_MORE };

/* One thing of a kind and host once, and again when it goes on. @counts: a decision may rest on it, so that what is left out
 * has to be known: it is TELL_MORE then, unless that, or something of this very host, was told less than TELLING_AGAIN_US away.
 * @t starts from zeroes. */
enum telling_how telling_next(struct telling *t, const char *rule, const char *host, bool counts, int64_t ts_us);

#endif
