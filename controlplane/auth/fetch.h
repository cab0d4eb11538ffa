/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_FETCH_H
#define CONTROLPLANE_AUTH_FETCH_H

/* Reads one file from disk or over https, on a worker.
 *
 * Only https, only to the address given (no redirects), with the server's certificate checked; bounded in time and size.
 * Thread: loop thread.  Blocks: no; a worker is held for at most the time limit. */

#include <uv.h>

#include "common/buf.h"
#include "common/err.h"

#define FETCH_TIMEOUT_MS 10000

struct fetch;

/* @err is NULL on success; @bytes is valid during the call. Always comes once, from the loop, unless cancelled. */
typedef void (*fetch_cb)(void *arg, const char *bytes, size_t len, const struct adv_err *err);

/* @source: "https://…" or a path from "/". @ca: PEM file for https; NULL: the system's.
 * Owner: the library; the handle is gone after the callback or fetch_cancel().
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int fetch_start(uv_loop_t *loop, const char *source, const char *ca, size_t max_bytes, fetch_cb cb,
                               void *arg, struct fetch **ret, struct adv_err *err);
/* No callback follows; the worker is told to end. Its memory goes in a later turn of the loop. Returns NULL, takes NULL. */
struct fetch *fetch_cancel(struct fetch *f);

#endif
