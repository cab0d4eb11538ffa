/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_HOSTS_H
#define ADV_WATCHER_HOSTS_H

/* On which host each rank runs, as the job's own log said at its start (rules of kind placement): many a fault names
 * its rank alone. What is contradicted later is not known any more. "n1" and "n1.example.org" are one host.
 *
 * Parts of a job number their ranks anew. A statement that says how many ranks there are counts only if that is the most that
 * was said so far.
 *
 * Pure; thread: the owner's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTS_MAX       128
#define HOSTS_RANKS_MAX 1024
#define HOSTS_NAME_SIZE 48

struct hosts {
    char name[HOSTS_MAX][HOSTS_NAME_SIZE];
    uint8_t at[HOSTS_RANKS_MAX]; /* 0: not known; 255: contradicted; else one above the index of its name */
    unsigned n;
    int64_t total;
};

/* @rank of @total (-1: not said) is on host @name. Starts from zeroes. */
void hosts_note(struct hosts *h, int rank, int64_t total, const char *name, size_t len);

/* NULL: not known. */
const char *hosts_of(const struct hosts *h, int rank);

/* Those that the others wait for. @list is the ranks that did not come, or (@came) those that did, as logs write them: "2, 3",
 * "0-7,12". False: it is no such list, nobody is missing, or it is not known how many there are.
 * @ret_names: the hosts on which they run, with commas between; "" where one is not known, where more than half of the hosts
 * known are among them (then it is no host that is missing), or where they do not fit.
 * @ret_ranks: the ranks with commas between; "" where they do not fit. */
bool hosts_missing(const struct hosts *h, const char *list, size_t len, bool came, char *ret_names, size_t names_cap,
                   char *ret_ranks, size_t ranks_cap);

#endif
