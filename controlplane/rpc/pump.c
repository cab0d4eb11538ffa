/* SPDX-License-Identifier: Apache-2.0 */

/* One turn of the loop: timers, then (prepare) core's queue, for as long as the loop itself would have waited, then the
 * loop's own descriptors without waiting. An idle handle keeps libuv from waiting a second time; it is set aside for the
 * question how long that would have been.
 *
 * The watcher thread sits on an epoll set with the loop's descriptor in it, edge-triggered: every new event of the loop wakes
 * it, and it posts a tag to the queue, unless one is on its way. An event that comes after the loop has looked at its
 * descriptors and before it waits is therefore never slept through: its tag is in the queue. Posting is a batch of no
 * operations on a call of a channel that leads nowhere, which core completes at once.
 *
 * Whoever keeps core busy inside of next() keeps the loop. So no connection is read on and on (accept.c): each gets its share
 * of a turn, between two of them core looks at its queue and at the time, and a tag of the watcher ends the wait. And core
 * reads nothing while events are in its queue: what came of a read is worked off before the next. */

#include "controlplane/rpc/pump.h"

#include <grpc/support/time.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <utlist.h>

#include "common/clock.h"
#include "controlplane/rpc/internal.h"

/* Events before the loop's own descriptors and timers get their turn, and the time after which it is over anyway. */
#define BATCH_MAX    128
#define BATCH_MAX_US 20000
#define BATCH_LOOK   8 /* how often the time is looked at */

struct closing {
    void (*closed)(void *arg);
    void *arg;
};

struct rpc_pump {
    int refs;
    uv_loop_t *loop;
    uv_prepare_t prepare;
    uv_idle_t idle;
    grpc_completion_queue *cq;
    struct rpc_pumped *members;

    grpc_channel *nowhere;
    grpc_call *wake_call;
    struct rpc_tag wake_tag;
    atomic_bool posted;

    pthread_t watcher;
    bool watching;
    int epoll_fd, quit_fd, held_fd;
    int open_handles;
    struct closing end;
};

static struct rpc_pump *the_pump;

/* ---- the watcher thread ----------------------------------------------------------------------------------------- */

void rpc_pump_wake(struct rpc_pump *p)
{
    if (atomic_exchange(&p->posted, true))
        return; /* a tag is on its way: what the caller did before this is seen after it */
    RPC_TAG_GIVE(&p->wake_tag);
    (void) grpc_call_start_batch(p->wake_call, NULL, 0, &p->wake_tag, NULL);
}

static void *watch(void *arg)
{
    struct rpc_pump *p = arg;
    struct epoll_event ev;

    for (;;) {
        int n = epoll_wait(p->epoll_fd, &ev, 1, -1);

        if (n <= 0)
            continue;
        if (ev.data.fd == p->quit_fd)
            return NULL; /* else the loop's descriptor, or somebody is held back until the next turn */
        rpc_pump_wake(p);
    }
}

static void on_wake(struct rpc_tag *tag, bool ok)
{
    struct rpc_pump *p = ADV_CONTAINER_OF(tag, struct rpc_pump, wake_tag);

    (void) ok;
    atomic_store(&p->posted, false);
}

/* ---- the loop --------------------------------------------------------------------------------------------------- */

/* Core does its I/O in here. */
static grpc_event next_event(struct rpc_pump *p, gpr_timespec until)
{
    grpc_event ev = grpc_completion_queue_next(p->cq, until, NULL);

    rpc_accept_parsed();
    return ev;
}

static void run(const grpc_event *ev)
{
    struct rpc_tag *tag = ev->tag;

    RPC_TAG_TAKE(tag);
    tag->fn(tag, ev->success);
}

/* How long libuv would wait now, in ms; -1 for ever. */
static int may_wait_ms(struct rpc_pump *p);

static void on_idle(uv_idle_t *h)
{
    (void) h; /* there only so that libuv does not wait */
}

static int may_wait_ms(struct rpc_pump *p)
{
    int ms;

    (void) uv_idle_stop(&p->idle);
    ms = uv_backend_timeout(p->loop);
    (void) uv_idle_start(&p->idle, on_idle);
    return ms;
}

static void on_prepare(uv_prepare_t *h)
{
    const gpr_timespec at_once = gpr_inf_past(GPR_CLOCK_MONOTONIC);
    struct rpc_pump *p = h->data;
    struct rpc_pumped *m, *next;
    int ms = may_wait_ms(p), n = 0;
    gpr_timespec until = ms == 0 ? at_once :
                         ms < 0  ? gpr_inf_future(GPR_CLOCK_MONOTONIC) :
                                   gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
    grpc_event ev = next_event(p, until);

    int64_t begin_us = adv_mono_us();
    uv_update_time(p->loop); /* timers that are set below count from now */
    while (ev.type == GRPC_OP_COMPLETE) {
        run(&ev);
        if (++n == BATCH_MAX || (n % BATCH_LOOK == 0 && adv_mono_us() - begin_us > BATCH_MAX_US))
            break;
        ev = next_event(p, at_once);
    }
    rpc_accept_turn();
    DL_FOREACH_SAFE (p->members, m, next)
        m->after(m);
}

void rpc_pump_wait(struct rpc_pump *p, const bool *flag)
{
    while (!*flag) {
        grpc_event ev = next_event(p, gpr_inf_future(GPR_CLOCK_MONOTONIC));

        if (ev.type == GRPC_OP_COMPLETE)
            run(&ev);
        rpc_accept_turn();
    }
}

void rpc_pump_add(struct rpc_pump *p, struct rpc_pumped *m)
{
    DL_APPEND(p->members, m);
}

void rpc_pump_remove(struct rpc_pump *p, struct rpc_pumped *m)
{
    DL_DELETE(p->members, m);
}

grpc_completion_queue *rpc_pump_cq(const struct rpc_pump *p)
{
    return p->cq;
}

/* ---- life ------------------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *h)
{
    struct rpc_pump *p = h->data;
    struct closing end = p->end;

    if (--p->open_handles)
        return;
    free(p);
    if (end.closed)
        end.closed(end.arg);
}

static void stop(struct rpc_pump *p)
{
    const uint64_t one = 1;
    grpc_event ev;

    if (p->watching) {
        while (write(p->quit_fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
        (void) pthread_join(p->watcher, NULL);
    }
    if (p->wake_call)
        grpc_call_unref(p->wake_call);
    if (p->nowhere)
        grpc_channel_destroy(p->nowhere);
    grpc_completion_queue_shutdown(p->cq);
    do
        ev = grpc_completion_queue_next(p->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL); /* a wake tag at most */
    while (ev.type != GRPC_QUEUE_SHUTDOWN);
    grpc_completion_queue_destroy(p->cq);
    rpc_accept_wake(-1);
    adv_cleanup_close(&p->epoll_fd);
    adv_cleanup_close(&p->held_fd);
    adv_cleanup_close(&p->quit_fd);
}

static int start(struct rpc_pump *p, struct adv_err *err)
{
    struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.fd = uv_backend_fd(p->loop) };
    struct epoll_event quit = { .events = EPOLLIN }, held = { .events = EPOLLIN | EPOLLET };
    int e;

    p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    p->quit_fd = quit.data.fd = eventfd(0, EFD_CLOEXEC);
    p->held_fd = held.data.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->epoll_fd < 0 || p->quit_fd < 0 || p->held_fd < 0 || epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, ev.data.fd, &ev) < 0 ||
        epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->quit_fd, &quit) < 0 ||
        epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->held_fd, &held) < 0)
        return adv_err_set_errno(err, ADV_RESOURCE_EXHAUSTED, errno, "watching the loop");
    rpc_accept_wake(p->held_fd);
    p->nowhere = grpc_lame_client_channel_create("wake", GRPC_STATUS_UNAVAILABLE, "leads nowhere");
    p->wake_call = grpc_channel_create_call(p->nowhere, NULL, GRPC_PROPAGATE_DEFAULTS, p->cq,
                                            grpc_slice_from_static_string("/wake"), NULL,
                                            gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    p->wake_tag.fn = on_wake;
    e = pthread_create(&p->watcher, NULL, watch, p);
    if (e != 0)
        return adv_err_set_errno(err, ADV_RESOURCE_EXHAUSTED, e, "watcher thread");
    p->watching = true;
    return 0;
}

int rpc_pump_get(uv_loop_t *loop, struct rpc_pump **ret, struct adv_err *err)
{
    struct rpc_pump *p = the_pump;
    int r;

    if (p && p->loop != loop)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "all servers of a process run on one loop");
    if (!p) {
        p = calloc(1, sizeof(*p));
        if (!p)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
        p->loop = loop;
        p->epoll_fd = p->quit_fd = p->held_fd = -1;
        p->cq = grpc_completion_queue_create_for_next(NULL);
        r = start(p, err);
        if (r < 0) {
            stop(p);
            free(p);
            return r;
        }
        (void) uv_prepare_init(loop, &p->prepare);
        (void) uv_idle_init(loop, &p->idle);
        p->prepare.data = p->idle.data = p;
        (void) uv_prepare_start(&p->prepare, on_prepare);
        (void) uv_idle_start(&p->idle, on_idle);
        the_pump = p;
    }
    p->refs++;
    *ret = p;
    return 0;
}

/* For one of several: told from the loop, as for the last. */
static void on_put(uv_handle_t *h)
{
    struct closing *c = h->data;

    if (c->closed)
        c->closed(c->arg);
    free(c);
    free(h);
}

void rpc_pump_put(struct rpc_pump *p, void (*closed)(void *arg), void *arg)
{
    if (--p->refs > 0) {
        uv_idle_t *h = malloc(sizeof(*h));
        struct closing *c = malloc(sizeof(*c));

        if (!h || !c) { /* told at once then */
            free(h);
            free(c);
            if (closed)
                closed(arg);
            return;
        }
        *c = (struct closing) { closed, arg };
        (void) uv_idle_init(p->loop, h);
        h->data = c;
        uv_close((uv_handle_t *) h, on_put);
        return;
    }
    the_pump = NULL;
    p->end = (struct closing) { closed, arg };
    stop(p);
    p->open_handles = 2;
    uv_close((uv_handle_t *) &p->prepare, on_closed);
    uv_close((uv_handle_t *) &p->idle, on_closed);
}
