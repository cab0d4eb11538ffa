/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl says which descriptors it waits for and when it wants to be called; each descriptor is a uv_poll, all its waiting
 * one uv_timer. Transfers that have ended are taken from libcurl's queue after each call into it, never from inside its
 * callbacks, so a callback of ours may start and cancel whatever it likes. */

#include "controlplane/sources/http.h"

#include <curl/curl.h>
#include <stdio.h>
#include <utlist.h>


#define CONNECT_TIMEOUT_MS 5000
#define RETRY_AFTER_MAX_MS (600 * 1000)

struct http {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer;
    struct http_request *requests;
    unsigned handles; /* open at the loop, the timer included */
    bool freed;
};

struct http_request {
    struct http *h;
    CURL *easy;
    struct curl_slist *headers;
    struct adv_buf body;
    char why[CURL_ERROR_SIZE];
    http_cb cb;
    void *arg;
    struct http_request *prev, *next;
};

struct watch {
    struct http *h;
    uv_poll_t poll;
    curl_socket_t fd;
};

/* ---- the loop ------------------------------------------------------------------------------------------------------ */

static void handle_closed(struct http *h)
{
    if (--h->handles == 0 && h->freed)
        free(h);
}

static void request_free(struct http_request *r)
{
    (void) curl_multi_remove_handle(r->h->multi, r->easy);
    curl_easy_cleanup(r->easy);
    curl_slist_free_all(r->headers);
    adv_buf_done(&r->body);
    DL_DELETE(r->h->requests, r);
    free(r);
}

static void ended(struct http_request *r, CURLcode code)
{
    struct http_answer a = { 0 };
    curl_off_t after_s = 0;
    char why[CURL_ERROR_SIZE];
    long status = 0;

    (void) curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    a.too_large = adv_buf_error(&r->body) < 0;
    a.why = *r->why ? r->why : curl_easy_strerror(code);
    if (code == CURLE_OK && !a.too_large) {
        a.status = (int) status;
        if (curl_easy_getinfo(r->easy, CURLINFO_RETRY_AFTER, &after_s) == CURLE_OK && after_s > 0)
            a.retry_after_ms = after_s > RETRY_AFTER_MAX_MS / 1000 ? RETRY_AFTER_MAX_MS : after_s * 1000;
        a.body = adv_buf_steal(&r->body, &a.len);
        if (!a.body) {
            a.status = 0;
            a.why = "no memory";
        }
    }
    if (a.too_large)
        a.why = "the answer is larger than max_answer";
    http_cb cb = r->cb;
    void *arg = r->arg;
    (void) snprintf(why, sizeof(why), "%s", a.why);
    a.why = why;
    request_free(r); /* before the callback, which may do whatever it likes */
    cb(arg, &a);
    free(a.body);
}

static void take_ended(struct http *h)
{
    CURLMsg *m;
    int queued;

    while ((m = curl_multi_info_read(h->multi, &queued))) {
        struct http_request *r = NULL;

        if (m->msg != CURLMSG_DONE)
            continue;
        (void) curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **) &r);
        ended(r, m->data.result);
    }
}

static void on_ready(uv_poll_t *p, int status, int events)
{
    struct watch *w = p->data;
    struct http *h = w->h;
    int flags = status < 0 ? CURL_CSELECT_ERR : 0, running;

    if (events & UV_READABLE)
        flags |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        flags |= CURL_CSELECT_OUT;
    (void) curl_multi_socket_action(h->multi, w->fd, flags, &running);
    take_ended(h);
}

static void on_timer(uv_timer_t *t)
{
    struct http *h = t->data;
    int running;

    (void) curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    take_ended(h);
}

static int set_timer(CURLM *multi, long ms, void *arg)
{
    struct http *h = arg;

    (void) multi;
    if (h->freed)
        return 0;
    if (ms < 0)
        (void) uv_timer_stop(&h->timer);
    else
        (void) uv_timer_start(&h->timer, on_timer, (uint64_t) (ms ? ms : 1), 0); /* never from within */
    return 0;
}

static void watch_closed(uv_handle_t *p)
{
    struct watch *w = p->data;

    handle_closed(w->h);
    free(w);
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct http *h = arg;
    struct watch *w = known;
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);

    (void) easy;
    if (what == CURL_POLL_REMOVE) {
        if (w) {
            (void) curl_multi_assign(h->multi, fd, NULL);
            uv_close((uv_handle_t *) &w->poll, watch_closed);
        }
        return 0;
    }
    if (!w) {
        w = calloc(1, sizeof(*w));
        if (!w || uv_poll_init_socket(h->loop, &w->poll, fd) < 0) {
            free(w);
            return -1; /* the transfer fails */
        }
        w->h = h;
        w->fd = fd;
        w->poll.data = w;
        h->handles++;
        (void) curl_multi_assign(h->multi, fd, w);
    }
    return uv_poll_start(&w->poll, events, on_ready) < 0 ? -1 : 0;
}

/* ---- client -------------------------------------------------------------------------------------------------------- */

static void timer_closed(uv_handle_t *t)
{
    handle_closed(t->data);
}

int http_new(uv_loop_t *loop, struct http **ret, struct adv_err *err)
{
    static bool ready;
    struct http *h = calloc(1, sizeof(*h));

    if (!ready)
        ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    if (!h || !ready || !(h->multi = curl_multi_init())) {
        free(h);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    h->loop = loop;
    h->handles = 1;
    (void) uv_timer_init(loop, &h->timer);
    h->timer.data = h;
    (void) curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    (void) curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    (void) curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    (void) curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    *ret = h;
    return 0;
}

struct http *http_free(struct http *h)
{
    if (!h)
        return NULL;
    h->freed = true;
    (void) curl_multi_cleanup(h->multi); /* closes idle connections, and says so */
    uv_close((uv_handle_t *) &h->timer, timer_closed);
    return NULL;
}

/* ---- requests ------------------------------------------------------------------------------------------------------ */

static size_t on_body(char *bytes, size_t size, size_t n, void *arg)
{
    struct http_request *r = arg;

    return adv_buf_append(&r->body, bytes, size * n) < 0 ? 0 : size * n;
}

static bool add_header(struct http_request *r, const char *line)
{
    struct curl_slist *more = curl_slist_append(r->headers, line);

    if (more)
        r->headers = more;
    return more != NULL;
}

static bool set_options(struct http_request *r, const struct http_ask *q)
{
    CURL *e = r->easy;
    bool ok = curl_easy_setopt(e, CURLOPT_URL, q->url) == CURLE_OK &&
              curl_easy_setopt(e, CURLOPT_COPYPOSTFIELDS, q->form) == CURLE_OK &&
              (!q->ca || curl_easy_setopt(e, CURLOPT_CAINFO, q->ca) == CURLE_OK) &&
              (!q->user || (curl_easy_setopt(e, CURLOPT_USERNAME, q->user) == CURLE_OK &&
                            curl_easy_setopt(e, CURLOPT_PASSWORD, q->secret) == CURLE_OK)) &&
              (q->user || !q->secret ||
               (curl_easy_setopt(e, CURLOPT_XOAUTH2_BEARER, q->secret) == CURLE_OK &&
                curl_easy_setopt(e, CURLOPT_HTTPAUTH, CURLAUTH_BEARER) == CURLE_OK)) &&
              add_header(r, "Expect:") && add_header(r, "Accept: application/json, application/stream+json");

    for (size_t i = 0; ok && q->headers && q->headers[i]; i++)
        ok = add_header(r, q->headers[i]);
    if (q->ca)
        (void) curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
    (void) curl_easy_setopt(e, CURLOPT_HTTPHEADER, r->headers);
    (void) curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    (void) curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    (void) curl_easy_setopt(e, CURLOPT_PROXY, "");
    (void) curl_easy_setopt(e, CURLOPT_NETRC, (long) CURL_NETRC_IGNORED);
    (void) curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    (void) curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* else the loop waits for a resolver that hangs */
    (void) curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long) q->timeout_ms);
    (void) curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long) CONNECT_TIMEOUT_MS);
    (void) curl_easy_setopt(e, CURLOPT_USERAGENT, "advisord/" ADVISOR_VERSION);
    (void) curl_easy_setopt(e, CURLOPT_ERRORBUFFER, r->why);
    (void) curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    (void) curl_easy_setopt(e, CURLOPT_WRITEDATA, r);
    (void) curl_easy_setopt(e, CURLOPT_PRIVATE, r);
    return ok;
}

int http_start(struct http *h, const struct http_ask *q, http_cb cb, void *arg, struct http_request **ret, struct adv_err *err)
{
    struct http_request *r = calloc(1, sizeof(*r));

    if (!r || !(r->easy = curl_easy_init())) {
        free(r);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    r->h = h;
    r->cb = cb;
    r->arg = arg;
    adv_buf_init(&r->body, q->max_bytes);
    DL_APPEND(h->requests, r);
    if (!set_options(r, q) || curl_multi_add_handle(h->multi, r->easy) != CURLM_OK) {
        request_free(r);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    *ret = r;
    return 0;
}

struct http_request *http_cancel(struct http_request *r)
{
    if (r)
        request_free(r);
    return NULL;
}
