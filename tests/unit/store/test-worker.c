/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "common/macros.h"
#include "controlplane/store/worker.h"

static uv_loop_t loop;
static struct store_worker *worker;

static void setup(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(store_worker_new(&loop, &worker, NULL), 0);
}

static void teardown(void)
{
    (void) store_worker_free(worker);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
}

TestSuite(worker, .init = setup, .fini = teardown, .timeout = 60);

struct job {
    pthread_t loop_thread;
    unsigned runs, dones, more;
    bool slow;
};

static void run(void *arg)
{
    struct job *j = arg;

    cr_assert_neq(pthread_equal(pthread_self(), j->loop_thread), 1);
    if (j->slow)
        (void) nanosleep(&(struct timespec) { .tv_nsec = 20000000 }, NULL); /* the loop waits meanwhile */
    j->runs++;
}

static void done(void *arg)
{
    struct job *j = arg;

    cr_assert(pthread_equal(pthread_self(), j->loop_thread));
    j->dones++;
    cr_assert_eq(j->runs, j->dones); /* nothing runs */
    if (j->more) {
        j->more--;
        store_worker_run(worker, run, done, j);
    }
}

Test(worker, answers_on_the_loop_and_keeps_it_alive)
{
    struct job j = { .loop_thread = pthread_self(), .slow = true };

    (void) uv_run(&loop, UV_RUN_DEFAULT); /* idle: it keeps nothing alive */
    store_worker_run(worker, run, done, &j);
    cr_assert_eq(j.dones, 0);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(j.dones, 1);
}

Test(worker, one_after_another)
{
    struct job j = { .loop_thread = pthread_self(), .more = 20000 };

    store_worker_run(worker, run, done, &j);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(j.dones, 20001);
}

static uv_async_t bell;
static atomic_uint rung;

static void ring(void *arg)
{
    (void) atomic_fetch_add(&rung, 1);
    (void) uv_async_send(arg);
}

static void on_bell(uv_async_t *h)
{
    (void) h;
}

/* Once for each; and not once after it was taken away. */
Test(worker, wakes_as_it_is_told)
{
    struct job j = { .loop_thread = pthread_self(), .more = 99 };

    cr_assert_eq(uv_async_init(&loop, &bell, on_bell), 0);
    uv_unref((uv_handle_t *) &bell);
    store_worker_set_wake(worker, ring, &bell);
    store_worker_run(worker, run, done, &j);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    store_worker_set_wake(worker, NULL, NULL);
    cr_assert_eq(j.dones, 100);
    cr_assert_eq(atomic_load(&rung), 100);
    j.more = 9;
    store_worker_run(worker, run, done, &j);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(j.dones, 110);
    cr_assert_eq(atomic_load(&rung), 100);
    uv_close((uv_handle_t *) &bell, NULL);
}
