/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl's easy interface would do, but it cannot be interrupted: the multi interface can, so a stop of the daemon does not
 * wait for a server that hangs. A few run at one time, the others wait on the loop: they must not hold all of libuv's workers,
 * by which the store commits. What the worker touches besides its own memory is `multi`, under the lock, and the flag. */

#include "controlplane/auth/fetch.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <utlist.h>

#define FETCH_AT_ONCE 2

struct fetch {
    uv_work_t work;
    uv_loop_t *loop;
    bool waiting; /* not with a worker yet */
    struct fetch *prev, *next;
    char *source, *ca;
    fetch_cb cb; /* NULL: cancelled */
    void *arg;
    struct adv_buf body;
    struct adv_err err;
    bool failed;
    atomic_bool stop;
    pthread_mutex_t lock; /* guards multi */
    CURLM *multi;         /* while the worker waits */
};

/* Of the loop thread. */
static struct fetch *waiting;
static unsigned running;

static void failed(struct fetch *f, enum adv_code code, const char *what)
{
    (void) adv_err_set(&f->err, code, "%.120s: %.120s", f->source, what);
    f->failed = true;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct fetch *f = arg;

    return adv_buf_append(&f->body, bytes, size * n) < 0 ? 0 : size * n;
}

static void set_multi(struct fetch *f, CURLM *multi)
{
    (void) pthread_mutex_lock(&f->lock);
    f->multi = multi;
    (void) pthread_mutex_unlock(&f->lock);
}

static CURLcode run(struct fetch *f, CURLM *multi, CURL *easy)
{
    int active = 1, queued;
    CURLMsg *m;

    (void) curl_multi_add_handle(multi, easy);
    set_multi(f, multi);
    while (active && !atomic_load(&f->stop)) {
        if (curl_multi_perform(multi, &active) != CURLM_OK ||
            (active && curl_multi_poll(multi, NULL, 0, 1000, NULL) != CURLM_OK))
            break;
    }
    set_multi(f, NULL);
    m = curl_multi_info_read(multi, &queued);
    CURLcode c = m && m->msg == CURLMSG_DONE ? m->data.result : CURLE_ABORTED_BY_CALLBACK;
    (void) curl_multi_remove_handle(multi, easy);
    return c;
}

static void set_options(struct fetch *f, CURL *easy, char text[CURL_ERROR_SIZE])
{
    (void) curl_easy_setopt(easy, CURLOPT_URL, f->source);
    (void) curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https");
    (void) curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    (void) curl_easy_setopt(easy, CURLOPT_NETRC, (long) CURL_NETRC_IGNORED);
    (void) curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void) curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long) FETCH_TIMEOUT_MS);
    (void) curl_easy_setopt(easy, CURLOPT_FAILONERROR, 1L);
    (void) curl_easy_setopt(easy, CURLOPT_USERAGENT, "advisord/" ADVISOR_VERSION);
    (void) curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text);
    (void) curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    (void) curl_easy_setopt(easy, CURLOPT_WRITEDATA, f);
    if (f->ca) {
        (void) curl_easy_setopt(easy, CURLOPT_CAINFO, f->ca);
        (void) curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
}

static void fetch_https(struct fetch *f)
{
    CURLM *multi = curl_multi_init();
    CURL *easy = curl_easy_init();
    char text[CURL_ERROR_SIZE] = "";
    CURLcode c;

    if (!multi || !easy) {
        failed(f, ADV_RESOURCE_EXHAUSTED, "no memory");
    } else {
        set_options(f, easy, text);
        c = run(f, multi, easy);
        if (adv_buf_error(&f->body) < 0)
            failed(f, ADV_INVALID_ARGUMENT, "the answer is too large");
        else if (c != CURLE_OK)
            failed(f, ADV_UNAVAILABLE, *text ? text : curl_easy_strerror(c));
    }
    curl_easy_cleanup(easy);
    (void) curl_multi_cleanup(multi);
}

static void fetch_file(struct fetch *f)
{
    adv_auto_close int fd = open(f->source, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int r = fd < 0 ? -ADV_UNAVAILABLE : adv_buf_read(&f->body, fd);

    if (r == -ADV_RESOURCE_EXHAUSTED)
        failed(f, ADV_INVALID_ARGUMENT, "too large");
    else if (r < 0)
        failed(f, ADV_UNAVAILABLE, strerror(errno));
}

static void on_worker(uv_work_t *w)
{
    struct fetch *f = w->data;

    if (f->source[0] == '/')
        fetch_file(f);
    else
        fetch_https(f);
}

static void fetch_free(struct fetch *f)
{
    adv_buf_done(&f->body);
    (void) pthread_mutex_destroy(&f->lock);
    free(f->source);
    free(f->ca);
    free(f);
}

static void on_done(uv_work_t *w, int status);

static void start_waiting(void)
{
    struct fetch *f, *next;

    DL_FOREACH_SAFE (waiting, f, next) {
        if (running == FETCH_AT_ONCE)
            return;
        DL_DELETE(waiting, f);
        f->waiting = false;
        running++;
        (void) uv_queue_work(f->loop, &f->work, on_worker, on_done); /* fails only without a function */
    }
}

static void on_done(uv_work_t *w, int status)
{
    struct fetch *f = w->data;

    running--;
    start_waiting();
    if (f->cb && status == 0)
        f->cb(f->arg, f->body.data, f->body.len, f->failed ? &f->err : NULL);
    fetch_free(f);
}

int fetch_start(uv_loop_t *loop, const char *source, const char *ca, size_t max_bytes, fetch_cb cb, void *arg,
                struct fetch **ret, struct adv_err *err)
{
    static bool curl_ready;
    struct fetch *f = calloc(1, sizeof(*f));

    if (!curl_ready)
        curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; /* on the loop, before any worker uses it */
    if (!f || !curl_ready || !(f->source = strdup(source)) || (ca && !(f->ca = strdup(ca)))) {
        if (f)
            free(f->source);
        free(f);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    f->cb = cb;
    f->arg = arg;
    f->work.data = f;
    adv_buf_init(&f->body, max_bytes);
    atomic_init(&f->stop, false);
    (void) pthread_mutex_init(&f->lock, NULL);
    f->loop = loop;
    f->waiting = true;
    DL_APPEND(waiting, f);
    start_waiting();
    *ret = f;
    return 0;
}

struct fetch *fetch_cancel(struct fetch *f)
{
    if (!f)
        return NULL;
    f->cb = NULL;
    if (f->waiting) {
        DL_DELETE(waiting, f);
        fetch_free(f);
        return NULL;
    }
    if (uv_cancel((uv_req_t *) &f->work) == 0)
        return NULL;
    atomic_store(&f->stop, true);
    (void) pthread_mutex_lock(&f->lock);
    if (f->multi)
        (void) curl_multi_wakeup(f->multi);
    (void) pthread_mutex_unlock(&f->lock);
    return NULL;
}
