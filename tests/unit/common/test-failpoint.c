/* SPDX-License-Identifier: Apache-2.0 */
#include "common/failpoint.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>

#include "common/macros.h"

#ifdef ADV_FAILPOINTS

static int run(const char *spec, int passes, bool leave)
{
    int st = 0;
    pid_t pid = fork();

    cr_assert_geq(pid, 0);
    if (pid == 0) {
        (void) setenv("ADVISOR_FAILPOINT", spec, 1);
        (void) freopen("/dev/null", "w", stderr);
        adv_failpoint_init();
        for (int i = 0; i < passes; i++)
            ADV_FAILPOINT("a.b");
        _exit(0);
    }
    if (leave)
        return pid;
    cr_assert_eq(waitpid(pid, &st, WUNTRACED), pid);
    if (WIFSTOPPED(st)) {
        (void) kill(pid, SIGKILL);
        (void) waitpid(pid, NULL, 0);
    }
    return st;
}

Test(failpoint, actions)
{
    int st = run("a.b=kill", 1, false);
    cr_assert(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
    st = run("x=kill;a.b=exit:7@3", 3, false);
    cr_assert(WIFEXITED(st) && WEXITSTATUS(st) == 7);
    st = run("a.b=exit:7@3", 2, false);
    cr_assert(WIFEXITED(st) && WEXITSTATUS(st) == 0);
    st = run("a.b=stop", 1, false);
    cr_assert(WIFSTOPPED(st));
    st = run("other=kill", 1, false);
    cr_assert(WIFEXITED(st) && WEXITSTATUS(st) == 0);
    st = run("", 1, false);
    cr_assert(WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

Test(failpoint, malformed_ends_the_program)
{
    static const char *const bad[] = { "a.b",        "a.b=",  "a.b=explode", "a.b=kill@0",
                                       "a.b=kill@x", "=kill", "a.b=exit:300",
                                       "a.b=arm:",   "a.b=arm:none" };

    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++) {
        int st = run(bad[i], 1, false);
        cr_assert(WIFEXITED(st) && WEXITSTATUS(st) == 2, "%s", bad[i]);
    }
}

Test(failpoint, armed_points_count_from_there)
{
    int st;
    pid_t pid = fork();

    cr_assert_geq(pid, 0);
    if (pid == 0) {
        (void) setenv("ADVISOR_FAILPOINT", "c=arm:a.b@2;a.b=exit:7@2", 1);
        (void) freopen("/dev/null", "w", stderr);
        for (int i = 0; i < 5; i++)
            ADV_FAILPOINT("a.b");
        ADV_FAILPOINT("c");
        for (int i = 0; i < 5; i++)
            ADV_FAILPOINT("a.b");
        ADV_FAILPOINT("c");
        ADV_FAILPOINT("a.b");
        if (fork() == 0) { /* a child's pass counts as well */
            ADV_FAILPOINT("a.b");
            _exit(1);
        }
        (void) wait(&st);
        _exit(WIFEXITED(st) ? WEXITSTATUS(st) : 2);
    }
    cr_assert_eq(waitpid(pid, &st, 0), pid);
    cr_assert(WIFEXITED(st) && WEXITSTATUS(st) == 7, "%d", st);
    st = run("c=arm:a.b;a.b=exit:7", 3, false);
    cr_assert(WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

Test(failpoint, pause_waits_for_the_file)
{
    char dir[] = "/tmp/adv-fp-XXXXXX", spec[64], file[40];
    const struct timespec t = { .tv_nsec = 60000000 };
    int st;

    cr_assert_not_null(mkdtemp(dir));
    (void) snprintf(file, sizeof(file), "%s/go", dir);
    (void) snprintf(spec, sizeof(spec), "a.b=pause:%s", file);
    pid_t pid = run(spec, 1, true);
    (void) nanosleep(&t, NULL);
    cr_assert_eq(waitpid(pid, &st, WNOHANG), 0, "still waiting");
    FILE *f = fopen(file, "w");
    cr_assert_not_null(f);
    (void) fclose(f);
    cr_assert_eq(waitpid(pid, &st, 0), pid);
    cr_assert(WIFEXITED(st) && WEXITSTATUS(st) == 0);
    (void) unlink(file);
    (void) rmdir(dir);
}

#else

Test(failpoint, is_nothing)
{
    ADV_FAILPOINT("a.b");
    adv_failpoint_hit("a.b");
}

#endif
