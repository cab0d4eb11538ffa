/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_TAIL_KEEP_H
#define ADVISOR_TAIL_KEEP_H

/* Keeps the end of a job's output before its next attempt may truncate it: advisor-tail --keep, with the rights of the job's owner,
 * copies it to PATH.attempt-N.tail, a new file that only he can read. What is there already stays as it is. Nothing depends on it:
 * it may fail, or hang on a dead mount, and then one goes on without.
 *
 * Thread: loop thread.  Blocks: no. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct uv_loop_s;
struct tail_keep;

struct tail_keep_args {
    const char *helper_path;
    uint32_t min_uid, uid;
    size_t bytes; /* of each file; at most 16 MiB */
    uint32_t attempt;
    const char *paths[2]; /* absolute; "" or NULL: none; the same twice is one */
};

#define TAIL_KEEP_MS 5000 /* it is not waited for any longer */

/* Owner:  the caller, until tail_keep_free(); the process may outlive that.
 * Errors: -ADV_INVALID_ARGUMENT (no path); -ADV_PERMISSION_DENIED (uid below min_uid); those of adv_spawn(). */
adv_must_check int tail_keep(struct uv_loop_s *loop, const struct tail_keep_args *args, struct tail_keep **ret, struct adv_err *err);
/* Over, or given up on; @ret_why: NULL if all is kept (or there was nothing), else one line for people, valid until the free. */
bool tail_keep_done(const struct tail_keep *k, int64_t now_us, const char **ret_why);
struct tail_keep *tail_keep_free(struct tail_keep *k);

#endif
