/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SOURCES_HTTP_H
#define CONTROLPLANE_SOURCES_HTTP_H

/* An HTTP client on the loop: libcurl's multi interface on libuv's polls and timers. Nothing waits for a server; names are
 * resolved by a thread of libcurl's own.
 *
 * Only http and https, only to the address given (no redirects, no proxies, no netrc), with the server's certificate
 * checked; bounded in time and size, no compression. Connections are kept and used again.
 *
 * Owner:  whoever made the client; requests end with it.
 * Thread: loop thread.  Blocks: no. */

#include <uv.h>

#include "common/buf.h"
#include "common/err.h"

struct http;
struct http_request;

struct http_ask {
    const char *url;
    const char *form;         /* application/x-www-form-urlencoded: POST */
    const char *const *headers; /* "X-Scope-OrgID: a", NULL-ended; or NULL */
    const char *ca;           /* PEM file; NULL: the system's */
    const char *user, *secret; /* user NULL: @secret is a bearer token, or NULL for none */
    int64_t timeout_ms;
    size_t max_bytes; /* of the body */
};

struct http_answer {
    int status; /* 0: there was none, see @why */
    const char *why;
    bool too_large;
    int64_t retry_after_ms; /* 0: not said */
    char *body;             /* take it with ADV_STEAL; malloc'd, NUL-ended */
    size_t len;
};

/* Comes once from the loop, unless the request is cancelled. @a lives for the call. */
typedef void (*http_cb)(void *arg, struct http_answer *a);

/* Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int http_new(uv_loop_t *loop, struct http **ret, struct adv_err *err);
/* No request may be under way. The loop has to run once more. Returns NULL, takes NULL. */
struct http *http_free(struct http *h);

/* Copies all of @ask. The handle is gone after the callback or http_cancel(). Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int http_start(struct http *h, const struct http_ask *ask, http_cb cb, void *arg, struct http_request **ret,
                              struct adv_err *err);
/* No callback follows. Returns NULL, takes NULL. */
struct http_request *http_cancel(struct http_request *r);

#endif
