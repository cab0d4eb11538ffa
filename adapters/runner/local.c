/* SPDX-License-Identifier: Apache-2.0 */

/* The local runner is a thin translation of common/spawn.h. A command that could not be started still answers through
 * its callback, from the loop, so that callers have one path. Calls are in a list, so that free() can settle all of
 * them; a child that is still running then is killed, and its late callback finds the call orphaned. */

#include "adapters/runner/local.h"

#include "common/clock.h"
#include "common/spawn.h"

#define STDERR_MAX (64u << 10)

struct call {
    struct call *next, **prev;
    struct runner_local *owner; /* NULL: orphaned */
    struct adv_spawn *child;    /* NULL: a timer */
    uv_timer_t timer;
    adapter_run_cb run_cb;
    adapter_timer_cb timer_cb;
    void *arg;
    int64_t start_us;
};

struct runner_local {
    struct adapter_runner base;
    uv_loop_t *loop;
    struct call *calls;
};

static struct call *call_new(struct runner_local *r)
{
    struct call *c = calloc(1, sizeof(*c));

    if (!c)
        abort(); /* a lost callback would leave an action without an end; nothing better can be done */
    c->owner = r;
    c->start_us = adv_mono_us();
    c->next = r->calls;
    if (c->next)
        c->next->prev = &c->next;
    c->prev = &r->calls;
    r->calls = c;
    return c;
}

static void unlink_call(struct call *c)
{
    if (!c->owner)
        return;
    *c->prev = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->owner = NULL;
}

static void settle(struct call *c, const struct adapter_run_result *res)
{
    adapter_run_cb run_cb = c->run_cb;
    adapter_timer_cb timer_cb = c->timer_cb;

    unlink_call(c);
    c->run_cb = NULL;
    c->timer_cb = NULL;
    if (run_cb)
        run_cb(c->arg, res);
    else if (timer_cb)
        timer_cb(c->arg);
}

static void on_closed(uv_handle_t *h)
{
    free(h->data);
}

static void on_child(void *user, const struct adv_spawn_result *s)
{
    struct call *c = user;
    struct adapter_run_result res = {
        .exit_code = s->exit_code,
        .out = s->out ? s->out : "",
        .out_len = s->out ? s->out_len : 0,
        .err = s->err_out ? s->err_out : "",
        .err_len = s->err_out ? s->err_out_len : 0,
        .took_us = adv_mono_us() - c->start_us,
    };

    if (s->exec_errno)
        res.end = ADAPTER_RUN_NOT_STARTED;
    else if (s->timed_out || s->frozen_out || s->cancelled)
        res.end = ADAPTER_RUN_TIMED_OUT;
    else if (s->over_cap)
        res.end = ADAPTER_RUN_OVERFLOW;
    else if (s->term_signal)
        res.end = ADAPTER_RUN_SIGNALED;
    settle(c, &res);
    free(c);
}

static void on_timer(uv_timer_t *t)
{
    struct call *c = t->data;
    struct adapter_run_result failed = { .end = ADAPTER_RUN_NOT_STARTED, .out = "", .err = "cannot start it" };

    settle(c, &failed);
    uv_close((uv_handle_t *) t, on_closed);
}

static void arm(struct runner_local *r, struct call *c, int delay_ms)
{
    (void) uv_timer_init(r->loop, &c->timer);
    c->timer.data = c;
    uv_update_time(r->loop);
    (void) uv_timer_start(&c->timer, on_timer, delay_ms > 0 ? (uint64_t) delay_ms : 0, 0);
}

static void local_run(struct adapter_runner *base, const char *const argv[], const struct adapter_run_opts *opts,
                      adapter_run_cb cb, void *arg)
{
    struct runner_local *r = ADV_CONTAINER_OF(base, struct runner_local, base);
    struct call *c = call_new(r);
    struct adv_spawn_opts so = {
        .argv = argv,
        .env = opts->env,
        .stdout_max = opts->max_output_bytes,
        .stderr_max = STDERR_MAX,
        .deadline_ms = opts->deadline_ms,
        .term_grace_ms = 200,
        .kill_at_boot_us = opts->kill_at_boot_us,
        .cb = on_child,
        .user = c,
    };

    c->run_cb = cb;
    c->arg = arg;
    if (adv_spawn(r->loop, &so, &c->child, NULL) < 0) {
        c->child = NULL;
        arm(r, c, 0);
    }
}

static void local_after(struct adapter_runner *base, int delay_ms, adapter_timer_cb cb, void *arg)
{
    struct runner_local *r = ADV_CONTAINER_OF(base, struct runner_local, base);
    struct call *c = call_new(r);

    c->timer_cb = cb;
    c->arg = arg;
    arm(r, c, delay_ms);
}

static int64_t local_mono_us(struct adapter_runner *base)
{
    return adv_mono_us();
}

static int64_t local_wall_us(struct adapter_runner *base)
{
    return adv_wall_us();
}

static void local_free(struct adapter_runner *base)
{
    struct runner_local *r = ADV_CONTAINER_OF(base, struct runner_local, base);
    struct adapter_run_result killed = { .end = ADAPTER_RUN_TIMED_OUT, .out = "", .err = "" };

    while (r->calls) {
        struct call *c = r->calls;
        struct adv_spawn *child = c->child;

        settle(c, &killed);
        if (child) {
            adv_spawn_cancel(child); /* on_child comes later and frees it */
        } else {
            (void) uv_timer_stop(&c->timer);
            uv_close((uv_handle_t *) &c->timer, on_closed);
        }
    }
    free(r);
}

int runner_local_new(uv_loop_t *loop, struct adapter_runner **ret, struct adv_err *err)
{
    static const struct adapter_runner_ops ops = {
        .name = "local",
        .run = local_run,
        .after = local_after,
        .mono_us = local_mono_us,
        .wall_us = local_wall_us,
        .free = local_free,
    };
    struct runner_local *r = calloc(1, sizeof(*r));

    if (!r)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "runner: no memory");
    r->base.ops = &ops;
    r->loop = loop;
    *ret = &r->base;
    return 0;
}
