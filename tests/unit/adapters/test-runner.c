/* SPDX-License-Identifier: Apache-2.0 */
#include "adapters/runner/local.h"
#include "adapters/runner/scripted.h"

#include <criterion/criterion.h>
#include <stdio.h>

struct seen {
    int runs, timers;
    enum adapter_run_end end;
    int exit_code;
    char out[64], err[64];
};

static void on_run(void *arg, const struct adapter_run_result *res)
{
    struct seen *s = arg;

    s->runs++;
    s->end = res->end;
    s->exit_code = res->exit_code;
    (void) snprintf(s->out, sizeof(s->out), "%s", res->out);
    (void) snprintf(s->err, sizeof(s->err), "%s", res->err);
}

static void on_timer(void *arg)
{
    ((struct seen *) arg)->timers++;
}

Test(runner, local)
{
    static const char *const env[] = { "X=7", "PATH=/usr/bin:/bin", NULL };
    static const struct {
        const char *argv[4];
        int deadline_ms;
        size_t max;
        enum adapter_run_end end;
        int exit_code;
        const char *out, *err;
    } t[] = {
        { { "sh", "-c", "echo $X$HOME; echo e >&2; exit 3", NULL }, 5000, 100, ADAPTER_RUN_EXITED, 3, "7\n", "e\n" },
        { { "sleep", "60", NULL }, 50, 100, ADAPTER_RUN_TIMED_OUT, -1, "", "" },
        { { "/nonexistent/tool", NULL }, 5000, 100, ADAPTER_RUN_NOT_STARTED, -1, "", NULL },
        { { "sh", "-c", "echo 12345678901", NULL }, 5000, 10, ADAPTER_RUN_OVERFLOW, -1, NULL, "" },
        { { "sh", "-c", "kill -9 $$", NULL }, 5000, 10, ADAPTER_RUN_SIGNALED, -1, "", "" },
    };
    struct adapter_runner *r;
    uv_loop_t loop;

    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(runner_local_new(&loop, &r, NULL), 0);
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct seen s = { 0 };
        struct adapter_run_opts opts = { .env = env, .deadline_ms = t[i].deadline_ms, .max_output_bytes = t[i].max };

        r->ops->run(r, t[i].argv, &opts, on_run, &s);
        cr_assert_eq(s.runs, 0, "called back from inside");
        while (!s.runs)
            (void) uv_run(&loop, UV_RUN_ONCE);
        cr_expect_eq(s.end, t[i].end, "%zu: %d", i, s.end);
        if (t[i].end == ADAPTER_RUN_EXITED)
            cr_expect_eq(s.exit_code, t[i].exit_code);
        if (t[i].out)
            cr_expect_str_eq(s.out, t[i].out, "%zu", i);
        if (t[i].err)
            cr_expect_str_eq(s.err, t[i].err, "%zu", i);
    }
    struct seen s = { 0 };
    r->ops->after(r, 5, on_timer, &s);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(s.timers, 1);
    r->ops->free(r);
    cr_expect_eq(uv_loop_close(&loop), 0);
}

/* Each callback comes, once, before free returns; the loop then runs out. */
Test(runner, local_free_while_busy)
{
    static const char *const argv[] = { "sleep", "60", NULL };
    struct adapter_run_opts opts = { .deadline_ms = 60000, .max_output_bytes = 10 };
    struct adapter_runner *r;
    struct seen s = { 0 };
    uv_loop_t loop;

    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(runner_local_new(&loop, &r, NULL), 0);
    r->ops->run(r, argv, &opts, on_run, &s);
    r->ops->after(r, 60000, on_timer, &s);
    r->ops->free(r);
    cr_expect(s.runs == 1 && s.timers == 1 && s.end == ADAPTER_RUN_TIMED_OUT);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(s.runs == 1 && s.timers == 1);
    cr_expect_eq(uv_loop_close(&loop), 0);
}

static void play(struct adapter_runner *r, const char *a, const char *b, struct seen *s)
{
    const char *const argv[] = { a, b, NULL };

    r->ops->run(r, argv, &(struct adapter_run_opts) { .deadline_ms = 1000 }, on_run, s);
    runner_scripted_spin(r, 5000);
}

Test(runner, scripted)
{
    struct adapter_runner *r;
    struct seen s = { 0 };
    struct adv_err err;

    cr_assert_eq(runner_scripted_new("# c\n> a *\n< one\n! bad\n= 4\n> any **\n? any\n> b\n@ 2000\n", &r, &err), 0);
    play(r, "any", "x", &s);
    play(r, "a", "y", &s);
    cr_expect(s.runs == 2 && s.exit_code == 4);
    cr_expect_str_eq(s.out, "one\n");
    cr_expect_str_eq(s.err, "bad\n");
    cr_expect_not_null(strstr(runner_scripted_error(r), "line 8"), "a step is left");
    r->ops->free(r);

    /* out of order, unknown: loud, and no empty success */
    cr_assert_eq(runner_scripted_new("> a\n> b\n", &r, &err), 0);
    play(r, "b", NULL, &s);
    cr_expect_eq(s.end, ADAPTER_RUN_NOT_STARTED);
    cr_expect_not_null(strstr(runner_scripted_error(r), "unexpected command: 'b'"));
    cr_expect_eq(runner_scripted_count(r, "b", NULL), 1);
    r->ops->free(r);

    cr_expect_eq(runner_scripted_new("< before any command\n", &r, &err), -ADV_INVALID_ARGUMENT);
    cr_expect_eq(runner_scripted_new("> a\n= x\n", &r, &err), -ADV_INVALID_ARGUMENT);
}
