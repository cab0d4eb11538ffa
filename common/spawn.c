/* SPDX-License-Identifier: Apache-2.0 */

/* uv_spawn is not used because it offers no place between fork and exec, and the promise "no
 * scheduler command runs after its lease" needs one (see kill_at_boot_us). Everything in the child
 * is async-signal-safe.
 *
 * The order in the child matters:
 *   1. session, descriptors, user; PR_SET_PDEATHSIG after the user changed, because the change
 *   clears it;
 *   2. all descriptors are first moved above the wanted range, so that no dup2 destroys a source;
 *   3. the timer: rest computed, armed, clock read again. A freeze between computing and arming
 *   would make the rest too
 *      long; the second reading finds that and the step is repeated. After arming, a freeze of any
 *      length ends in
 *      SIGALRM on thaw.
 *
 * Exit is noticed by one SIGCHLD watcher for each child, each calling waitpid on its own pid only:
 * children of other code are left alone. A status pipe that closes on exec carries the errno of a
 * failed exec; it is read after exit, so nothing waits for a child that is frozen before exec.
 *
 * A finished child whose descendants keep stdout open (an ssh control master) is reported
 * EOF_GRACE_MS after its exit. */

#include "common/spawn.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/failpoint.h"

#define EOF_GRACE_MS     500
#define ARM_SLACK_US     2000 /* accepted between reading the clock and arming */
#define EXIT_FROZEN      124  /* as timeout(1) */
#define EXIT_EXEC        127  /* as the shell */
#define EXIT_SETUP       126
#define READ_CHUNK_BYTES 65536

extern char **environ;

enum phase { PHASE_RUN, PHASE_TERM, PHASE_EOF };

struct stream {
    uv_pipe_t pipe;
    struct adv_spawn *sp;
    struct adv_buf buf;
    bool open; /* the handle exists and its end was not seen */
    bool init;
};

struct adv_spawn {
    struct adv_spawn *next; /* list of all live children */
    uv_loop_t *loop;
    pid_t pid;
    uv_signal_t sigchld;
    uv_timer_t timer;
    enum phase phase;
    struct stream in, out, err;
    uv_write_t write_req;
    char *stdin_data;
    int status_fd; /* -1 or the read end of the exec status pipe */
    int term_grace_ms;
    bool drop_stderr; /* over the cap: drop, do not kill */
    bool has_kill_at;
    bool exited;
    bool done;
    int handles; /* open ones; the last close frees */
    struct adv_spawn_result res;
    adv_spawn_cb cb;
    void *user;
};

static struct adv_spawn *live;

/* ---- the child's side ---- */

struct child {
    const char *path;
    const struct adv_spawn_opts *opts;
    int in, out, err, status;
    pid_t parent;
};

static _Noreturn void child_fail(const struct child *c, int status_fd)
{
    int e = errno;
    ssize_t n = write(status_fd, &e, sizeof(e));

    (void) n;
    (void) c;
    _exit(EXIT_SETUP);
}

static void reset_signals(void)
{
    struct sigaction sa = { .sa_handler = SIG_DFL };
    sigset_t none;

    for (int s = 1; s < NSIG; s++)
        (void) sigaction(s, &sa,
                         NULL); /* KILL, STOP and the C library's own two are refused: fine */
    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Arms ITIMER_REAL so that it fires at @kill_at; exits when that is past. */
static void arm_timer(int64_t kill_at)
{
    for (;;) {
        int64_t now = adv_boot_us(), rest = kill_at - now;
        struct itimerval it = { .it_value = { .tv_sec = rest / 1000000,
                                              .tv_usec = rest % 1000000 } };

        if (rest <= 0)
            _exit(EXIT_FROZEN);
        (void) setitimer(ITIMER_REAL, &it, NULL);
        if (adv_boot_us() - now <= ARM_SLACK_US)
            return;
    }
}

static _Noreturn void child_main(const struct child *c)
{
    const struct adv_spawn_opts *o = c->opts;
    int fds[3 + ADV_SPAWN_EXTRA_MAX + 1], n = 0, status = c->status;

    reset_signals();
    if (setsid() < 0)
        child_fail(c, status);
    fds[n++] = c->in;
    fds[n++] = c->out;
    fds[n++] = c->err;
    for (size_t i = 0; i < o->n_extra_fds; i++)
        fds[n++] = o->extra_fds[i];
    fds[n++] = c->status;
    for (int i = 0; i < n; i++) {
        fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, n);
        if (fds[i] < 0)
            child_fail(c, status);
    }
    for (int i = 0; i < n; i++) {
        if (dup2(fds[i], i) < 0)
            child_fail(c, fds[n - 1]);
    }
    status = n - 1; /* the last one; all others stay open over exec */
    if (fcntl(status, F_SETFD, FD_CLOEXEC) < 0)
        child_fail(c, status);
    if (syscall(SYS_close_range, (unsigned int) n, ~0U, 0) < 0) {
        for (int fd = n; fd < 65536; fd++) /* kernel before 5.9 */
            (void) close(fd);
    }
    if (o->drop_user &&
        (setgroups(o->n_groups, o->groups) < 0 || setresgid(o->gid, o->gid, o->gid) < 0 ||
         setresuid(o->uid, o->uid, o->uid) < 0))
        child_fail(c, status);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        child_fail(c, status);
    if (getppid() != c->parent)
        _exit(EXIT_SETUP); /* the parent died before the line above */
    if (o->cwd && chdir(o->cwd) < 0)
        child_fail(c, status);
    ADV_FAILPOINT("spawn.child_start");
    if (o->kill_at_boot_us)
        arm_timer(o->kill_at_boot_us);
    ADV_FAILPOINT("spawn.child_before_exec");
    (void) execve(c->path, (char *const *) (uintptr_t) o->argv,
                  o->env ? (char *const *) (uintptr_t) o->env : environ);
    int e = errno;
    ssize_t w = write(status, &e, sizeof(e));
    (void) w;
    _exit(EXIT_EXEC);
}

/* ---- the parent's side ---- */

static void kill_group(const struct adv_spawn *sp, int sig)
{
    if (sp->exited)
        return;
    if (kill(-sp->pid, sig) < 0)
        (void) kill(sp->pid, sig); /* not yet a group of its own */
}

static void on_closed(uv_handle_t *h)
{
    struct adv_spawn *sp = h->data;

    if (--sp->handles > 0)
        return;
    adv_buf_done(&sp->out.buf);
    adv_buf_done(&sp->err.buf);
    free(sp->stdin_data);
    free(sp);
}

static void close_handle(uv_handle_t *h)
{
    if (!uv_is_closing(h))
        uv_close(h, on_closed);
}

static void close_all(struct adv_spawn *sp)
{
    close_handle((uv_handle_t *) &sp->sigchld);
    close_handle((uv_handle_t *) &sp->timer);
    if (sp->in.init)
        close_handle((uv_handle_t *) &sp->in.pipe);
    if (sp->out.init)
        close_handle((uv_handle_t *) &sp->out.pipe);
    if (sp->err.init)
        close_handle((uv_handle_t *) &sp->err.pipe);
}

static void unlink_live(struct adv_spawn *sp)
{
    for (struct adv_spawn **p = &live; *p; p = &(*p)->next) {
        if (*p == sp) {
            *p = sp->next;
            return;
        }
    }
}

static void finish(struct adv_spawn *sp)
{
    if (sp->done)
        return;
    sp->done = true;
    if (sp->status_fd >= 0) {
        int e;

        if (read(sp->status_fd, &e, sizeof(e)) == (ssize_t) sizeof(e)) {
            sp->res.exec_errno = e;
            sp->res.exit_code = EXIT_EXEC;
        }
        (void) close(sp->status_fd);
        sp->status_fd = -1;
    }
    if (sp->has_kill_at && (sp->res.exit_code == EXIT_FROZEN || sp->res.term_signal == SIGALRM))
        sp->res.frozen_out = true;
    sp->res.out = sp->out.buf.data;
    sp->res.out_len = sp->out.buf.len;
    sp->res.err_out = sp->err.buf.data;
    sp->res.err_out_len = sp->err.buf.len;
    unlink_live(sp);
    if (sp->cb)
        sp->cb(sp->user, &sp->res);
    close_all(sp);
}

static void on_timer(uv_timer_t *t)
{
    struct adv_spawn *sp = t->data;

    switch (sp->phase) {
    case PHASE_RUN:
        sp->res.timed_out = true;
        sp->phase = PHASE_TERM;
        kill_group(sp, SIGTERM);
        (void) uv_timer_start(t, on_timer, (uint64_t) sp->term_grace_ms, 0);
        break;
    case PHASE_TERM:
        kill_group(sp, SIGKILL);
        break;
    case PHASE_EOF:
        finish(sp);
        break;
    }
}

static void maybe_finish(struct adv_spawn *sp)
{
    if (!sp->exited || sp->done)
        return;
    if (!sp->out.open && !sp->err.open) {
        finish(sp);
    } else if (sp->phase != PHASE_EOF) {
        sp->phase = PHASE_EOF;
        (void) uv_timer_start(&sp->timer, on_timer, EOF_GRACE_MS, 0);
    }
}

static void on_sigchld(uv_signal_t *h, int signum)
{
    struct adv_spawn *sp = h->data;
    int st;

    (void) signum;
    if (sp->exited)
        return;
    pid_t r = waitpid(sp->pid, &st, WNOHANG);
    if (r == 0 || (r < 0 && errno == EINTR))
        return;
    if (r < 0) {
        sp->res.exit_code = -1; /* someone else reaped it: a bug elsewhere, but we must come back */
    } else if (WIFEXITED(st)) {
        sp->res.exit_code = WEXITSTATUS(st);
    } else {
        sp->res.exit_code = -1;
        sp->res.term_signal = WTERMSIG(st);
    }
    if (sp->res.timed_out || sp->res.over_cap || sp->res.cancelled)
        (void) kill(-sp->pid, SIGKILL); /* what the leader left in its group */
    sp->exited = true;
    maybe_finish(sp);
}

static void alloc_chunk(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
    static char chunk[READ_CHUNK_BYTES]; /* libuv reads and hands over in one go, on one thread */

    (void) h;
    (void) hint;
    *buf = uv_buf_init(chunk, sizeof(chunk));
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
    struct stream *s = ADV_CONTAINER_OF(h, struct stream, pipe);
    struct adv_spawn *sp = s->sp;

    if (n == 0)
        return;
    if (n < 0) {
        s->open = false;
        close_handle((uv_handle_t *) h);
        maybe_finish(sp);
        return;
    }
    size_t len = (size_t) n, room = adv_buf_room(&s->buf);
    if (len > room) {
        len = room;
        if (s != &sp->err || !sp->drop_stderr) {
            if (!sp->res.over_cap)
                kill_group(sp, SIGKILL);
            sp->res.over_cap = true;
        }
    }
    (void) adv_buf_append(&s->buf, buf->base, len);
}

static void on_written(uv_write_t *req, int status)
{
    struct adv_spawn *sp = ADV_CONTAINER_OF(req, struct adv_spawn, write_req);

    (void) status; /* a child need not read its stdin */
    close_handle((uv_handle_t *) &sp->in.pipe);
}

/* Where argv[0] is. Owner: caller. */
static char *find_program(const char *name)
{
    const char *path = getenv("PATH");
    char *full = NULL;

    if (strchr(name, '/'))
        return access(name, X_OK) == 0 ? strdup(name) : NULL;
    if (!path)
        path = "/usr/bin:/bin";
    for (const char *s = path; s;) {
        const char *end = strchrnul(s, ':');

        if (end > s && asprintf(&full, "%.*s/%s", (int) (end - s), s, name) >= 0) {
            if (access(full, X_OK) == 0)
                return full;
            free(full);
            full = NULL;
        }
        s = *end ? end + 1 : NULL;
    }
    return NULL;
}

static void close_fd(int *fd)
{
    adv_cleanup_close(fd);
    *fd = -1;
}

/* Hands @fd to a libuv pipe. On failure the descriptor is closed. */
static int stream_open(struct adv_spawn *sp, struct stream *s, int *fd)
{
    s->sp = sp;
    int r = uv_pipe_init(sp->loop, &s->pipe, 0);
    if (r < 0)
        return r;
    s->pipe.data = sp;
    s->init = true;
    sp->handles++;
    r = uv_pipe_open(&s->pipe, *fd);
    if (r == 0)
        *fd = -1;
    return r;
}

struct fds {
    int in[2], out[2], err[2], status[2];
    int null;
};

static void fds_done(struct fds *f)
{
    int *all[] = { &f->in[0],  &f->in[1],     &f->out[0],    &f->out[1], &f->err[0],
                   &f->err[1], &f->status[0], &f->status[1], &f->null };

    for (size_t i = 0; i < ADV_ARRAY_LEN(all); i++)
        close_fd(all[i]);
}

static int start(uv_loop_t *loop, const struct adv_spawn_opts *o, bool hand_over, int *ret_in,
                 int *ret_out, struct adv_spawn **ret, struct adv_err *err)
{
    struct fds f = { { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 }, -1 };
    bool want_in = hand_over || o->stdin_len > 0, want_out = hand_over || o->stdout_max > 0;
    sigset_t all, old;
    pid_t pid;
    int r;

    if (!o->argv || !o->argv[0] || o->n_extra_fds > ADV_SPAWN_EXTRA_MAX)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "spawn: bad arguments");
    adv_auto_free char *path = find_program(o->argv[0]);
    if (!path)
        return adv_err_set(err, ADV_NOT_FOUND, "%.100s: no such program", o->argv[0]);

    struct adv_spawn *sp = calloc(1, sizeof(*sp));
    char *input = want_in && !hand_over ? malloc(o->stdin_len) : NULL;
    if (!sp || (want_in && !hand_over && !input)) {
        free(sp);
        free(input);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "spawn %.100s: no memory", path);
    }
    if (input)
        memcpy(input, o->stdin_data, o->stdin_len);
    sp->loop = loop;
    sp->stdin_data = input;
    sp->status_fd = -1;
    sp->term_grace_ms = o->term_grace_ms > 0 ? o->term_grace_ms : 2000;
    sp->drop_stderr = hand_over;
    sp->has_kill_at = o->kill_at_boot_us != 0;
    sp->cb = o->cb;
    sp->user = o->user;
    adv_buf_init(&sp->out.buf, o->stdout_max);
    adv_buf_init(&sp->err.buf, o->stderr_max);
    sp->sigchld.data = sp->timer.data = sp;

    f.null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (f.null < 0 || (want_in && pipe2(f.in, O_CLOEXEC) < 0) ||
        (want_out && pipe2(f.out, O_CLOEXEC) < 0) ||
        (o->stderr_max > 0 && pipe2(f.err, O_CLOEXEC) < 0) || pipe2(f.status, O_CLOEXEC) < 0) {
        r = adv_err_set_errno(err, ADV_RESOURCE_EXHAUSTED, errno, "spawn %.100s", path);
        goto fail_early;
    }
    r = uv_signal_init(loop, &sp->sigchld);
    if (r < 0) {
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "spawn %.100s: %s", path, uv_strerror(r));
        goto fail_early;
    }
    sp->handles = 1;
    (void) uv_timer_init(loop, &sp->timer);
    sp->handles = 2;
    r = uv_signal_start(&sp->sigchld, on_sigchld,
                        SIGCHLD); /* before fork, so that no exit is missed */
    if (r == 0 && want_in && !hand_over)
        r = stream_open(sp, &sp->in, &f.in[1]);
    if (r == 0 && want_out && !hand_over)
        r = stream_open(sp, &sp->out, &f.out[0]);
    if (r == 0 && o->stderr_max > 0)
        r = stream_open(sp, &sp->err, &f.err[0]);
    if (r < 0) {
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "spawn %.100s: %s", path, uv_strerror(r));
        goto fail;
    }

    struct child c = {
        .path = path,
        .opts = o,
        .in = want_in ? f.in[0] : f.null,
        .out = want_out ? f.out[1] : f.null,
        .err = o->stderr_max > 0 ? f.err[1] : f.null,
        .status = f.status[1],
        .parent = getpid(),
    };
    ADV_FAILPOINT("spawn.before_fork");
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &old); /* no handler of ours may run in the child */
    pid = fork();
    if (pid == 0)
        child_main(&c);
    int fork_errno = errno;
    (void) pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (pid < 0) {
        r = adv_err_set_errno(err, ADV_RESOURCE_EXHAUSTED, fork_errno, "spawn %.100s: fork", path);
        goto fail;
    }
    sp->pid = pid;
    sp->status_fd = f.status[0];
    f.status[0] = -1;
    (void) fcntl(sp->status_fd, F_SETFL, O_NONBLOCK);
    sp->next = live;
    live = sp;

    if (sp->in.init) {
        uv_buf_t b = uv_buf_init(input, (unsigned int) o->stdin_len);

        if (uv_write(&sp->write_req, (uv_stream_t *) &sp->in.pipe, &b, 1, on_written) < 0)
            close_handle((uv_handle_t *) &sp->in.pipe);
    }
    if (sp->out.init)
        sp->out.open = uv_read_start((uv_stream_t *) &sp->out.pipe, alloc_chunk, on_read) == 0;
    if (sp->err.init)
        sp->err.open = uv_read_start((uv_stream_t *) &sp->err.pipe, alloc_chunk, on_read) == 0;
    if (o->deadline_ms > 0) {
        uv_update_time(loop);
        (void) uv_timer_start(&sp->timer, on_timer, (uint64_t) o->deadline_ms, 0);
    }
    if (hand_over) {
        (void) fcntl(f.in[1], F_SETFL, O_NONBLOCK);
        (void) fcntl(f.out[0], F_SETFL, O_NONBLOCK);
        *ret_in = f.in[1];
        *ret_out = f.out[0];
        f.in[1] = f.out[0] = -1;
    }
    fds_done(&f);
    if (ret)
        *ret = sp;
    return 0;
fail:
    fds_done(&f);
    sp->done = true;
    close_all(sp); /* frees on the last close */
    return r;
fail_early:
    fds_done(&f);
    free(input);
    free(sp);
    return r;
}

int adv_spawn(uv_loop_t *loop, const struct adv_spawn_opts *opts, struct adv_spawn **ret,
              struct adv_err *err)
{
    return start(loop, opts, false, NULL, NULL, ret, err);
}

int adv_spawn_pipe(uv_loop_t *loop, const struct adv_spawn_opts *opts, int *ret_stdin_fd,
                   int *ret_stdout_fd, struct adv_spawn **ret, struct adv_err *err)
{
    return start(loop, opts, true, ret_stdin_fd, ret_stdout_fd, ret, err);
}

void adv_spawn_cancel(struct adv_spawn *sp)
{
    if (!sp || sp->done)
        return;
    sp->res.cancelled = true;
    kill_group(sp, SIGKILL);
}

pid_t adv_spawn_pid(const struct adv_spawn *sp)
{
    return sp->pid;
}

void adv_spawn_cancel_all(uv_loop_t *loop)
{
    for (struct adv_spawn *sp = live; sp; sp = sp->next) {
        if (sp->loop == loop)
            adv_spawn_cancel(sp);
    }
}

bool adv_spawn_all_done(const uv_loop_t *loop)
{
    for (const struct adv_spawn *sp = live; sp; sp = sp->next) {
        if (sp->loop == loop)
            return false;
    }
    return true;
}
