/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_DBFILE_H
#define CONTROLPLANE_STORE_DBFILE_H

/* Whose the file of an SQLite store is: one process', by whatever name it was opened, and as long as the name
 * leads to it.
 *
 * Two locks, both of the whole file (flock): one on PATH.lock beside the file that the name leads to in the end,
 * which is there also while the file itself is being replaced; and one on the file, which holds against another
 * name of it (a hard link) and against somebody who removed the first. So it does no harm when PATH.lock is
 * removed. Local file systems only, as SQLite's log is. */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

struct dbfile {
    char *name;      /* as it was given */
    char *path;      /* without symbolic links: use this one */
    int fd, lock_fd; /* -1: there is no file (yet) */
    dev_t dev;
    ino_t ino, wal_ino;
    _Atomic int64_t size; /* at least; a store's file never shrinks */
    bool is_new;          /* it was not there, or empty */
};

/* Takes both locks, with @create of an empty file if there is none; else that is no error. No connection of this
 * process may have the file open: SQLite would lose its own locks when dbfile_done() closes it.
 * Errors: -ADV_FAILED_PRECONDITION STORE_LOCKED (another process has it), STORE_LINKED (it has several names),
 * STORE_FOREIGN (not a file); -ADV_UNAVAILABLE STORE_FILE (the file system); -ADV_RESOURCE_EXHAUSTED; then @f is done.
 * Thread: any.  Blocks: for the disk. */
adv_must_check int dbfile_take(const char *name, bool create, struct dbfile *f, struct adv_err *err);
/* Remembers what is open now, the log included: call it when the connection has read something.
 * Errors: -ADV_UNAVAILABLE STORE_FILE. */
adv_must_check int dbfile_settle(struct dbfile *f, struct adv_err *err);
/* Whether the names still lead to what is open, and it is whole. When they do not, nothing that is written will be
 * found again.
 * Errors: -ADV_UNAVAILABLE: STORE_REPLACED; STORE_FILE: the file system does not say.
 * Thread: any, also two at once.  Blocks: for names to be looked up, so for as long as the file system hangs: not
 * on the loop. */
adv_must_check int dbfile_check(struct dbfile *f, struct adv_err *err);
/* The file is where it was, but beside it lies a log with something in it that is not the one that is open.
 * Thread: any.  Blocks: as dbfile_check(). */
bool dbfile_has_other_log(const struct dbfile *f);
/* After the connections are closed. An @f of zeros, or one that is done, is left alone. */
void dbfile_done(struct dbfile *f);

#endif
