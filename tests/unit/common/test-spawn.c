/* SPDX-License-Identifier: Apache-2.0 */
#include "common/spawn.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "common/clock.h"

static uv_loop_t loop;

struct outcome {
    int calls;
    struct adv_spawn_result res;
    char out[256], err[256];
};

static void setup(void)
{
    (void) signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(uv_loop_init(&loop), 0);
}

static void teardown(void)
{
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(adv_spawn_all_done(&loop));
    cr_assert_eq(uv_loop_close(&loop), 0, "a handle was left open");
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "a zombie was left");
}

TestSuite(spawn, .init = setup, .fini = teardown, .timeout = 30);

static void done(void *user, const struct adv_spawn_result *res)
{
    struct outcome *o = user;

    o->calls++;
    o->res = *res;
    (void) snprintf(o->out, sizeof(o->out), "%s", res->out);
    (void) snprintf(o->err, sizeof(o->err), "%s", res->err_out);
}

#define SH(script)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        "sh", "-c", script, NULL                                                                   \
    }
#define OPTS(o, ...)                                                                               \
    (struct adv_spawn_opts)                                                                        \
    {                                                                                              \
        .stdout_max = 4096, .stderr_max = 4096, .cb = done, .user = &(o), __VA_ARGS__              \
    }

static struct outcome run(struct adv_spawn_opts opts)
{
    struct outcome o = { 0 };
    struct adv_err e = { 0 };

    opts.user = &o;
    cr_assert_eq(adv_spawn(&loop, &opts, NULL, &e), 0, "%s", e.msg);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(o.calls, 1);
    return o;
}

Test(spawn, output_and_status)
{
    struct outcome o = run(OPTS(o, .argv = SH("echo out; echo err >&2; exit 3")));

    cr_assert_eq(o.res.exit_code, 3);
    cr_assert_str_eq(o.out, "out\n");
    cr_assert_str_eq(o.err, "err\n");
    cr_assert(!o.res.timed_out && !o.res.frozen_out && !o.res.over_cap && !o.res.cancelled);
}

Test(spawn, input_env_cwd)
{
    const char *const env[] = { "A=b", "PATH=/usr/bin:/bin", NULL };
    struct outcome o = run(OPTS(o, .argv = SH("cat; echo $A; pwd; env | wc -l"), .env = env,
                                .cwd = "/", .stdin_data = "hi\n", .stdin_len = 3));

    cr_assert(adv_startswith(o.out, "hi\nb\n/\n"), "%s", o.out);
}

Test(spawn, big_input_that_nobody_reads)
{
    size_t len = 1 << 20;
    adv_auto_free char *big = calloc(1, len);
    struct outcome o = run(OPTS(o, .argv = SH("exit 0"), .stdin_data = big, .stdin_len = len));

    cr_assert_eq(o.res.exit_code, 0);
    o = run(OPTS(o, .argv = SH("wc -c"), .stdin_data = big, .stdin_len = len));
    cr_assert_str_eq(o.out, "1048576\n");
}

Test(spawn, clean_child)
{
    int leak = open("/dev/null", O_RDONLY); /* without CLOEXEC, on purpose */

    cr_assert_geq(leak, 3);
    struct outcome o = run(OPTS(o, .argv = SH("ls /proc/self/fd | tr '\\n' ' '; grep SigBlk "
                                              "/proc/self/status; grep SigIgn /proc/self/status")));
    /* 3 is ls's own descriptor for the folder */
    cr_assert(adv_startswith(o.out, "0 1 2 3 SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000"),
              "%s", o.out);
    (void) close(leak);
}

Test(spawn, extra_fds)
{
    int p[2];
    char got[8] = "";

    cr_assert_eq(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
    struct outcome o = run(OPTS(o, .argv = SH("echo x >&3; echo y >&4"),
                                .extra_fds = (const int[]){ p[1], p[1] }, .n_extra_fds = 2));
    cr_assert_eq(o.res.exit_code, 0, "%s", o.err);
    cr_assert_eq(read(p[0], got, sizeof(got)), 4);
    cr_assert_str_eq(got, "x\ny\n");
    (void) close(p[0]);
    (void) close(p[1]);
}

Test(spawn, errors)
{
    struct outcome o = { 0 };
    struct adv_err e = { 0 };

    cr_assert_eq(adv_spawn(&loop,
                           &OPTS(o, .argv = (const char *const[]){ "no-such-program-xyz", NULL }),
                           NULL, &e),
                 -ADV_NOT_FOUND);
    cr_assert_eq(adv_spawn(&loop, &OPTS(o, .argv = (const char *const[]){ NULL }), NULL, &e),
                 -ADV_INVALID_ARGUMENT);
    char bad[] = "/tmp/adv-spawn-XXXXXX";
    int fd = mkstemp(bad);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd,
                       "\x7F"
                       "ELF junk",
                       9),
                 9);
    (void) fchmod(fd, 0755);
    (void) close(fd);
    o = run(OPTS(o, .argv = (const char *const[]){ bad, NULL }));
    cr_assert_eq(o.res.exec_errno, ENOEXEC);
    cr_assert_eq(o.res.exit_code, 127);
    o = run(OPTS(o, .argv = SH("exit 0"), .cwd = "/no/such"));
    cr_assert_eq(o.res.exec_errno, ENOENT);
    (void) unlink(bad);
}

Test(spawn, deadline)
{
    int64_t t0 = adv_mono_us();
    struct outcome o = run(OPTS(o, .argv = SH("sleep 20 & sleep 20"), .deadline_ms = 100));

    cr_assert(o.res.timed_out);
    cr_assert_eq(o.res.term_signal, SIGTERM);
    o = run(OPTS(o, .argv = SH("trap '' TERM; echo on; while :; do sleep 0.05; done"),
                 .deadline_ms = 200, .term_grace_ms = 100));
    cr_assert(o.res.timed_out);
    cr_assert_eq(o.res.term_signal, SIGKILL);
    cr_assert_str_eq(o.out, "on\n");
    cr_assert_lt(adv_mono_us() - t0, 5000000);
}

Test(spawn, stopped_child_meets_its_deadline)
{
    struct outcome o = run(
        OPTS(o, .argv = SH("kill -STOP $$; echo woken"), .deadline_ms = 100, .term_grace_ms = 100));

    cr_assert(o.res.timed_out);
    cr_assert_eq(o.res.term_signal, SIGKILL);
    cr_assert_str_empty(o.out);
}

Test(spawn, output_cap)
{
    struct outcome o;
    struct adv_spawn_opts p = OPTS(o, .argv = SH("yes"));

    p.stdout_max = 100;
    o = run(p);

    cr_assert(o.res.over_cap);
    cr_assert_eq(o.res.out_len, 100);
    cr_assert_eq(o.res.term_signal, SIGKILL);
    p.argv = SH("printf 1234");
    p.stdout_max = 4;
    o = run(p);
    cr_assert(!o.res.over_cap);
    cr_assert_eq(o.res.out_len, 4);
}

Test(spawn, descendant_keeps_the_pipe)
{
    int64_t t0 = adv_mono_us();
    struct outcome o = run(OPTS(o, .argv = SH("echo hi; setsid sleep 3 & exit 0")));

    cr_assert_eq(o.res.exit_code, 0);
    cr_assert_str_eq(o.out, "hi\n");
    cr_assert_lt(adv_mono_us() - t0, 2500000);
}

Test(spawn, cancel)
{
    struct outcome a = { 0 }, b = { 0 };
    struct adv_spawn *sp = NULL;

    cr_assert_eq(adv_spawn(&loop, &OPTS(a, .argv = SH("sleep 20")), &sp, NULL), 0);
    cr_assert_eq(adv_spawn(&loop, &OPTS(b, .argv = SH("sleep 20")), NULL, NULL), 0);
    cr_assert(!adv_spawn_all_done(&loop));
    adv_spawn_cancel(sp);
    cr_assert_eq(a.calls, 0, "never from inside a call");
    adv_spawn_cancel_all(&loop);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(a.res.cancelled && b.res.cancelled);
    cr_assert_eq(a.calls + b.calls, 2);
}

Test(spawn, kill_at)
{
    /* time is up before it starts */
    struct outcome o = run(OPTS(o, .argv = SH("echo ran"), .kill_at_boot_us = adv_boot_us() - 1));
    cr_assert(o.res.frozen_out);
    cr_assert_str_empty(o.out);
    /* enough time */
    o = run(OPTS(o, .argv = SH("echo ran"), .kill_at_boot_us = adv_boot_us() + 20000000));
    cr_assert(!o.res.frozen_out);
    cr_assert_str_eq(o.out, "ran\n");
    /* runs into it; exec keeps the timer */
    o = run(OPTS(o, .argv = (const char *const[]){ "sleep", "20", NULL },
                 .kill_at_boot_us = adv_boot_us() + 200000));
    cr_assert(o.res.frozen_out);
    cr_assert_eq(o.res.term_signal, SIGALRM);
    /* an exit code of 124 alone means nothing */
    o = run(OPTS(o, .argv = SH("exit 124")));
    cr_assert(!o.res.frozen_out);
}

struct thaw {
    uv_timer_t timer;
    struct adv_spawn *sp;
    int64_t after_boot_us;
    bool sent;
};

static void thaw(uv_timer_t *t)
{
    struct thaw *th = t->data;

    if (adv_boot_us() < th->after_boot_us)
        return;
    th->sent = true;
    (void) kill(adv_spawn_pid(th->sp), SIGCONT);
    uv_close((uv_handle_t *) t, NULL);
}

#ifdef ADV_FAILPOINTS
/* Frozen before exec, thawed after the instant: the program must not have run. */
static void frozen(const char *spec)
{
    struct outcome o = { 0 };
    struct thaw th = { .after_boot_us = adv_boot_us() + 500000 };
    char mark[] = "/tmp/adv-ran-XXXXXX", script[64];

    int fd = mkstemp(mark);
    cr_assert_geq(fd, 0);
    (void) close(fd);
    (void) unlink(mark);
    (void) snprintf(script, sizeof(script), "touch %s", mark);
    (void) setenv("ADVISOR_FAILPOINT", spec, 1);
    cr_assert_eq(adv_spawn(&loop,
                           &OPTS(o, .argv = SH(script), .kill_at_boot_us = adv_boot_us() + 250000),
                           &th.sp, NULL),
                 0);
    (void) uv_timer_init(&loop, &th.timer);
    th.timer.data = &th;
    (void) uv_timer_start(&th.timer, thaw, 50, 50);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(th.sent);
    cr_assert_eq(o.calls, 1);
    cr_assert(o.res.frozen_out, "exit %d signal %d", o.res.exit_code, o.res.term_signal);
    cr_assert_eq(access(mark, F_OK), -1, "it ran");
    cr_assert(strstr(o.err, " hit\n"));
}

Test(spawn, frozen_before_exec)
{
    frozen("spawn.child_before_exec=stop");
}

Test(spawn, frozen_before_the_timer)
{
    frozen("spawn.child_start=stop");
}
#endif

Test(spawn, frozen_after_exec)
{
    struct outcome o = { 0 };
    struct thaw th = { .after_boot_us = adv_boot_us() + 600000 };

    cr_assert_eq(adv_spawn(&loop,
                           &OPTS(o, .argv = SH("kill -STOP $$; echo ran"),
                                 .kill_at_boot_us = adv_boot_us() + 300000),
                           &th.sp, NULL),
                 0);
    (void) uv_timer_init(&loop, &th.timer);
    th.timer.data = &th;
    (void) uv_timer_start(&th.timer, thaw, 50, 50);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(o.res.frozen_out);
    cr_assert_str_empty(o.out);
}

Test(spawn, pipe_variant)
{
    struct outcome o = { 0 };
    int in = -1, out = -1;
    char got[8] = "";

    cr_assert_eq(
        adv_spawn_pipe(&loop, &OPTS(o, .argv = SH("echo warn >&2; cat")), &in, &out, NULL, NULL),
        0);
    cr_assert_eq(write(in, "ping", 4), 4);
    for (int i = 0; i < 400 && read(out, got, sizeof(got)) <= 0; i++)
        (void) nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    cr_assert_str_eq(got, "ping");
    (void) close(in);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    (void) close(out);
    cr_assert_eq(o.calls, 1);
    cr_assert_eq(o.res.exit_code, 0);
    cr_assert_str_eq(o.err, "warn\n");
}

Test(spawn, drops_the_user)
{
    if (geteuid() != 0)
        return;
    struct outcome o = run(OPTS(o, .argv = SH("id -u; id -G"), .drop_user = true, .uid = 65534,
                                .gid = 65533, .groups = (const gid_t[]){ 65531 }, .n_groups = 1));
    cr_assert_str_eq(o.out, "65534\n65533 65531\n", "%s%s", o.out, o.err);
}

static void chain(void *user, const struct adv_spawn_result *res)
{
    done(user, res);
    if (((struct outcome *) user)->calls < 20)
        cr_assert_eq(
            adv_spawn(&loop,
                      &(struct adv_spawn_opts){ .argv = SH("exit 0"), .cb = chain, .user = user },
                      NULL, NULL),
            0);
}

Test(spawn, many)
{
    struct outcome one = { 0 }, all[30] = { 0 };

    cr_assert_eq(
        adv_spawn(&loop,
                  &(struct adv_spawn_opts){ .argv = SH("exit 0"), .cb = chain, .user = &one }, NULL,
                  NULL),
        0);
    for (size_t i = 0; i < ADV_ARRAY_LEN(all); i++)
        cr_assert_eq(adv_spawn(&loop, &OPTS(all[i], .argv = SH("echo x")), NULL, NULL), 0);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(one.calls, 20);
    for (size_t i = 0; i < ADV_ARRAY_LEN(all); i++)
        cr_assert_str_eq(all[i].out, "x\n");
}
