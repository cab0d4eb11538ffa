/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_SPAWN_H
#define ADV_COMMON_SPAWN_H

/* Child processes on a libuv loop. The program should be single-threaded apart from libuv's own
 * workers, and ignore SIGPIPE.
 *
 * The child gets: default signal handlers and an empty mask, a new session (so its own process
 * group), SIGKILL when this program's thread dies, stdin/stdout/stderr and the extra descriptors,
 * nothing else. It is always reaped, and the callback always comes, once, from the loop, never from
 * inside a call here.
 *
 * Thread: loop thread.  Blocks: only as long as fork(2) does. */

#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "common/buf.h"
#include "common/err.h"

struct adv_spawn;

struct adv_spawn_result {
    int exit_code;   /* 0..255, or -1 when a signal ended it */
    int term_signal; /* 0, or that signal */
    int exec_errno;  /* not 0: the program could not be executed; exit_code is then 127 */
    bool timed_out;  /* deadline_ms passed and we ended it */
    bool frozen_out; /* kill_at_boot_us passed: it was never executed, or ended by its own timer */
    bool over_cap;   /* wrote more than stdout_max / stderr_max and was killed */
    bool cancelled;  /* adv_spawn_cancel() */
    const char *out; /* stdout and stderr so far, NUL-terminated, borrowed for the callback */
    size_t out_len;
    const char *err_out;
    size_t err_out_len;
};

/* After the callback the handle is gone. It may start new children. */
typedef void (*adv_spawn_cb)(void *user, const struct adv_spawn_result *res);

struct adv_spawn_opts {
    const char *const
        *argv; /* NULL-ended; argv[0] without '/' is looked up in this program's PATH */
    const char *const *env; /* NULL-ended, exactly this; NULL: as this program's */
    const char *cwd;        /* NULL: as this program's */
    const void *stdin_data; /* copied; NULL and 0: stdin is at its end at once */
    size_t stdin_len;
    size_t stdout_max; /* bytes; one more kills the child. 0: output goes to /dev/null */
    size_t stderr_max;
    int deadline_ms;   /* from now: SIGTERM to the group, then SIGKILL. 0: none */
    int term_grace_ms; /* between the two; 0: 2000 */

    /* Not 0: no instruction of the new program may run after this CLOCK_BOOTTIME instant. The rest
     * is computed in the child right before execve (nothing left: _exit(124)) and armed as
     * ITIMER_REAL, which survives execve: a process frozen before or after its exec is ended by the
     * pending SIGALRM as soon as it is thawed. Holds for programs that leave SIGALRM and
     * ITIMER_REAL alone; the timer stands still while the machine is suspended. */
    int64_t kill_at_boot_us;

    bool drop_user; /* become uid/gid/groups below (needs the privilege) */
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;

    const int *extra_fds; /* the i-th becomes descriptor 3 + i; the caller keeps its own copies */
    size_t n_extra_fds;   /* at most ADV_SPAWN_EXTRA_MAX */

    adv_spawn_cb cb;
    void *user;
};

#define ADV_SPAWN_EXTRA_MAX 8

/* Starts a child. The handle is valid until the callback; @opts need not outlive the call.
 * Errors: -ADV_NOT_FOUND (no such program), -ADV_INVALID_ARGUMENT, -ADV_RESOURCE_EXHAUSTED
 * (descriptors, memory, processes). The callback does not come then. */
adv_must_check int adv_spawn(uv_loop_t *loop, const struct adv_spawn_opts *opts,
                             struct adv_spawn **ret, struct adv_err *err);

/* A long-lived child: its stdin and stdout are handed to the caller as two non-blocking descriptors
 * that the caller closes. stdin_data and stdout_max are not used; stderr is kept up to stderr_max
 * and the rest dropped. */
adv_must_check int adv_spawn_pipe(uv_loop_t *loop, const struct adv_spawn_opts *opts,
                                  int *ret_stdin_fd, int *ret_stdout_fd, struct adv_spawn **ret,
                                  struct adv_err *err);

/* SIGKILLs the child's group; the callback still comes, with cancelled set. */
void adv_spawn_cancel(struct adv_spawn *sp);

pid_t adv_spawn_pid(const struct adv_spawn *sp);

/* For shutdown: cancel all, then run the loop until all are done. */
void adv_spawn_cancel_all(uv_loop_t *loop);
bool adv_spawn_all_done(const uv_loop_t *loop);

#endif
