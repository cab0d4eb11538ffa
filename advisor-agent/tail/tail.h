/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_TAIL_H
#define ADVISOR_TAIL_H

/* Follows job output files through helper processes, one for each user, that run with that user's
 * rights (advisor-tail). A helper that hangs on a dead mount is killed, or left behind if even that
 * does not end it, and the others go on without that file.
 *
 * Memory: bytes asked of the helpers plus bytes waiting here never exceed max_buffered_bytes in
 * all (half of it for users who have nothing yet) and max_buffered_user_bytes
 * for one user; a consumer that says "not now" thereby stops the
 * reading at its source, and the file itself is the buffer. A file whose unread rest grows beyond
 * max_lag_bytes is skipped ahead; what was left out is counted (PARTIAL). A file whose bytes had to
 * wait longer than 5 s is PARTIAL, "behind", until all of them are read.
 *
 * What cannot be known: bytes written and truncated away between two looks are lost unseen; a file
 * truncated and rewritten beyond the old position between two looks reads as one growing file; and
 * where an attempt's own bytes begin in an appended file is known only if somebody saw its size at
 * the attempt's start (start_known).
 *
 * Thread: loop thread.  Blocks: no. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct uv_loop_s;
struct tail_manager;
struct tail_watch;

struct tail_config {
    const char *helper_path;
    uint32_t min_uid;
    /* Zero means the default in brackets. */
    size_t max_buffered_bytes;      /* (2 MB) */
    size_t max_buffered_user_bytes; /* (256 kB) */
    uint64_t rate_bytes_per_s;      /* over all files (1 MB) */
    uint64_t burst_bytes;           /* (4 MB) */
    uint64_t max_lag_bytes;         /* (64 MB) */
    uint64_t hang_timeout_ms;       /* no sign of life (10 s) */
    uint64_t hung_retry_ms;         /* a hung file is tried again (10 min) */
    size_t max_files;               /* (4096) */
};

enum tail_state {
    TAIL_STATE_PENDING,  /* not opened yet */
    TAIL_STATE_COMPLETE, /* every byte since the start was handed over or will be */
    TAIL_STATE_PARTIAL,
    TAIL_STATE_LOST,
};

/* Only on_state may call tail_unwatch() or tail_watch(); none may free the manager. */
struct tail_ops {
    /* Consecutive bytes; @dropped were left out right before. False: not now, keep them and wait
     * for tail_manager_resume(). */
    bool (*on_data)(void *ctx, struct tail_watch *w, uint64_t offset, const uint8_t *data,
                    size_t len, uint64_t dropped);
    /* @reason is one line for people; @dropped_bytes the sum. Never from within tail_watch(). */
    void (*on_state)(void *ctx, struct tail_watch *w, enum tail_state state, const char *reason,
                     uint64_t dropped_bytes);
    /* The file begins anew at offset 0: truncated, or another one took its place. May be NULL. */
    void (*on_restart)(void *ctx, struct tail_watch *w, bool rotated);
    /* What was found at open, for later attempts that append to it. May be NULL. */
    void (*on_opened)(void *ctx, struct tail_watch *w, uint64_t dev, uint64_t ino, uint64_t size,
                      uint64_t offset);
};

#define TAIL_START_AT_END UINT64_MAX

struct tail_watch_args {
    uint32_t uid;
    const void *path; /* absolute, any bytes but NUL */
    size_t path_len;
    uint64_t start_offset; /* or TAIL_START_AT_END: the size at the first look (0 if there is none) */
    bool start_known;      /* false: the state is PARTIAL from the beginning, and says why */
    /* With start_offset 0: a file that exists and was not born after this (unix seconds), or whose file
     * system does not tell, holds other attempts' bytes: it is read from its end, PARTIAL. 0: any. */
    int64_t born_after_s;
    void *user;
};

adv_must_check int tail_manager_new(struct uv_loop_s *loop, const struct tail_config *cfg,
                                    const struct tail_ops *ops, void *ctx,
                                    struct tail_manager **ret, struct adv_err *err);
/* Ends all helpers; the memory goes when the loop has seen their ends. Returns NULL. */
struct tail_manager *tail_manager_free(struct tail_manager *m);

/* Owner:  the manager, until tail_unwatch(). No callback comes from within either.
 * Errors: -ADV_INVALID_ARGUMENT (path); -ADV_PERMISSION_DENIED (uid below min_uid);
 *         -ADV_RESOURCE_EXHAUSTED (max_files, memory). */
adv_must_check int tail_watch(struct tail_manager *m, const struct tail_watch_args *args,
                              struct tail_watch **ret, struct adv_err *err);
struct tail_watch *tail_unwatch(struct tail_watch *w);

void *tail_watch_user(const struct tail_watch *w);
/* Position after the last byte handed over. */
uint64_t tail_watch_offset(const struct tail_watch *w);

/* Are there bytes that are known to be written and not handed over? */
bool tail_watch_behind(const struct tail_watch *w);

/* Hands over again from @offset on, which is at most what was handed over: the consumer may have lost
 * it. Waiting bytes are dropped and read anew. */
void tail_watch_rewind(struct tail_watch *w, uint64_t offset);

/* The consumer has room again. */
void tail_manager_resume(struct tail_manager *m);

/* Where the bytes of an attempt begin, as far as it can be known.
 * @first: restart count 0. @append: the job opens its output in append mode. @seen: the file's size
 * at this attempt's start was observed as @seen_size. */
struct tail_start {
    uint64_t offset;
    bool known;
};
struct tail_start tail_start_rule(bool first, bool append, bool seen, uint64_t seen_size);

/* Does the path name the job, so that the file can only be its own? "7" is no part of "17"; an array task's
 * needs both its numbers; components of "56+1" write to one place, so the first is enough. */
bool tail_path_has_id(const void *path, size_t len, const char *id);

/* For tests: pid of the helper of @uid, 0 if there is none. */
int tail_helper_pid(const struct tail_manager *m, uint32_t uid);

#endif
