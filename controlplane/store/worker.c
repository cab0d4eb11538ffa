/* SPDX-License-Identifier: Apache-2.0 */
/* libuv's way back is a descriptor of the loop. advisord's loop does not wait for its descriptors but in gRPC's queue, and a
 * thread hands over what they tell (rpc/pump.c): one switch of threads more for each commit. On one processor libuv's sender
 * is moreover interrupted by whom it wakes, who then spins until it has gone on. Both together cost as much as the statements of
 * a small transaction.
 *
 * Here the result is a word that the loop looks at in each turn (a check handle), and whoever can make it turn does so directly. */

#include "controlplane/store/worker.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct store_worker {
    pthread_t thread;
    uv_check_t check; /* active while something is under way */
    uv_async_t async;
    int handles;      /* to be closed */
    bool busy;        /* the loop's */
    void (*run)(void *), (*done)(void *);
    void *arg;
    atomic_bool finished;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t more;
    bool todo, quit;
    void (*wake)(void *);
    void *wake_arg;
};

static void *work(void *arg)
{
    struct store_worker *w = arg;

    (void) pthread_mutex_lock(&w->lock);
    while (!w->quit) {
        if (!w->todo) {
            (void) pthread_cond_wait(&w->more, &w->lock);
            continue;
        }
        w->todo = false;
        (void) pthread_mutex_unlock(&w->lock);
        w->run(w->arg);
        atomic_store(&w->finished, true);
        (void) pthread_mutex_lock(&w->lock);
        if (w->wake)
            w->wake(w->wake_arg);
        else
            (void) uv_async_send(&w->async);
    }
    (void) pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void on_check(uv_check_t *h)
{
    struct store_worker *w = h->data;

    if (!atomic_exchange(&w->finished, false))
        return;
    w->busy = false;
    (void) uv_check_stop(h);
    w->done(w->arg);
}

static void on_async(uv_async_t *h)
{
    (void) h; /* the loop turns: on_check() follows */
}

int store_worker_new(uv_loop_t *loop, struct store_worker **ret, struct adv_err *err)
{
    struct store_worker *w = calloc(1, sizeof(*w));
    int e;

    if (!w)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    (void) pthread_mutex_init(&w->lock, NULL);
    (void) pthread_cond_init(&w->more, NULL);
    (void) uv_check_init(loop, &w->check);
    e = -uv_async_init(loop, &w->async, on_async);
    w->handles = e ? 1 : 2;
    w->check.data = w->async.data = w;
    if (!e) {
        uv_unref((uv_handle_t *) &w->async);
        e = pthread_create(&w->thread, NULL, work, w);
    }
    if (e) {
        w->quit = true; /* there is no thread to be ended */
        (void) store_worker_free(w);
        return adv_err_set_errno(err, ADV_RESOURCE_EXHAUSTED, e, "a thread for the store");
    }
    *ret = w;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct store_worker *w = h->data;

    if (--w->handles)
        return;
    (void) pthread_cond_destroy(&w->more);
    (void) pthread_mutex_destroy(&w->lock);
    free(w);
}

struct store_worker *store_worker_free(struct store_worker *w)
{
    if (!w)
        return NULL;
    assert(!w->busy);
    if (!w->quit) {
        (void) pthread_mutex_lock(&w->lock);
        w->quit = true;
        (void) pthread_cond_signal(&w->more);
        (void) pthread_mutex_unlock(&w->lock);
        (void) pthread_join(w->thread, NULL);
    }
    if (w->handles == 2)
        uv_close((uv_handle_t *) &w->async, on_closed);
    uv_close((uv_handle_t *) &w->check, on_closed);
    return NULL;
}

void store_worker_run(struct store_worker *w, void (*run)(void *arg), void (*done)(void *arg), void *arg)
{
    assert(!w->busy);
    w->busy = true;
    w->run = run;
    w->done = done;
    w->arg = arg;
    (void) uv_check_start(&w->check, on_check);
    (void) pthread_mutex_lock(&w->lock);
    w->todo = true;
    (void) pthread_cond_signal(&w->more);
    (void) pthread_mutex_unlock(&w->lock);
}

void store_worker_set_wake(struct store_worker *w, void (*wake)(void *arg), void *arg)
{
    (void) pthread_mutex_lock(&w->lock);
    w->wake = wake;
    w->wake_arg = arg;
    (void) pthread_mutex_unlock(&w->lock);
}
