/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that hang hold a bounded number of workers; the others are the store's. */

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "controlplane/auth/fetch.h"

#define FETCHES 8

static bool worked;

static void on_fetched(void *arg, const char *bytes, size_t len, const struct adv_err *err)
{
    (void) arg, (void) bytes, (void) len, (void) err;
    cr_assert_fail("nothing answers");
}

static void work(uv_work_t *w)
{
    (void) w;
}

static void work_done(uv_work_t *w, int status)
{
    (void) w;
    cr_assert_eq(status, 0);
    worked = true;
}

static void too_late(uv_timer_t *t)
{
    uv_stop(t->loop);
}

Test(fetch, leaves_workers_to_others, .timeout = 60)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct fetch *f[FETCHES];
    socklen_t len = sizeof(at);
    uv_timer_t timer;
    uv_work_t w;
    uv_loop_t loop;
    char url[64];

    cr_assert_eq(bind(fd, (struct sockaddr *) &at, len), 0);
    cr_assert_eq(listen(fd, FETCHES), 0); /* connections are taken by the kernel, and nobody says a word */
    cr_assert_eq(getsockname(fd, (struct sockaddr *) &at, &len), 0);
    (void) snprintf(url, sizeof(url), "https://127.0.0.1:%d/", ntohs(at.sin_port));
    cr_assert_eq(uv_loop_init(&loop), 0);
    for (int i = 0; i < FETCHES; i++)
        cr_assert_eq(fetch_start(&loop, url, NULL, 4096, on_fetched, NULL, &f[i], NULL), 0);
    cr_assert_eq(uv_queue_work(&loop, &w, work, work_done), 0);
    cr_assert_eq(uv_timer_init(&loop, &timer), 0);
    cr_assert_eq(uv_timer_start(&timer, too_late, FETCH_TIMEOUT_MS / 2, 0), 0);
    while (!worked && uv_is_active((uv_handle_t *) &timer))
        (void) uv_run(&loop, UV_RUN_ONCE);
    cr_assert(worked, "all workers wait for the servers");
    for (int i = 0; i < FETCHES; i++)
        (void) fetch_cancel(f[i]);
    uv_close((uv_handle_t *) &timer, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    (void) close(fd);
}
