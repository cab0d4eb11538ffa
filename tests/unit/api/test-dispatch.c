/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller hears of a read whose answer does not fit, or that has no memory: over a real store, from a call without a
 * wire. */

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "advisor/v1/report_service.pb-c.h"
#include "controlplane/api/api.h"

static uv_loop_t loop;
static struct turn *t;
static struct store *st;
static char dir[64];

struct heard {
    struct api_call call;
    struct adv_err err;
    bool replied, failed;
    unsigned refs;
};

static int rm(const char *name, const struct stat *sb, int flag, struct FTW *f)
{
    (void) sb, (void) flag, (void) f;
    return remove(name);
}

static void reply(struct api_call *c, const ProtobufCMessage *msg)
{
    (void) msg;
    ((struct heard *) c)->replied = true;
}

static void fail(struct api_call *c, const struct adv_err *err)
{
    ((struct heard *) c)->err = *err;
    ((struct heard *) c)->failed = true;
}

static bool ended(const struct api_call *c)
{
    (void) c;
    return false;
}

static void ref(struct api_call *c)
{
    ((struct heard *) c)->refs++;
}

static void unref(struct api_call *c)
{
    ((struct heard *) c)->refs--;
}

static const struct api_call_ops ops = { .reply = reply, .fail = fail, .ended = ended, .ref = ref, .unref = unref };

static size_t piece;

/* Takes all there is, in pieces of @piece, and gives an answer all the same. */
static int greedy(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                  ProtobufCMessage **ret, struct adv_err *err)
{
    static Advisor__V1__GetLatencyReportResponse m = ADVISOR__V1__GET_LATENCY_REPORT_RESPONSE__INIT;

    (void) api, (void) caller, (void) req, (void) err;
    for (size_t n = 0; n < (128 << 20) && adv_arena_alloc(ar, piece); n += piece)
        ;
    *ret = &m.base;
    return 0;
}

/* The same, and says so by itself, without a reason. */
static int greedy_fails(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                        ProtobufCMessage **ret, struct adv_err *err)
{
    (void) greedy(api, caller, req, ar, ret, err);
    return -ADV_RESOURCE_EXHAUSTED;
}

static int modest(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                  ProtobufCMessage **ret, struct adv_err *err)
{
    static Advisor__V1__GetLatencyReportResponse m = ADVISOR__V1__GET_LATENCY_REPORT_RESPONSE__INIT;

    (void) api, (void) caller, (void) req, (void) ar, (void) err;
    *ret = &m.base;
    return 0;
}

static void ready(void *arg, const struct adv_err *err)
{
    cr_assert_null(err, "%s", err ? err->msg : "");
    *(bool *) arg = true;
}

static void stopped(void *arg)
{
    *(bool *) arg = true;
}

static void call(struct heard *h, int (*read)(struct api *, const struct api_caller *, const ProtobufCMessage *,
                                              struct adv_arena *, ProtobufCMessage **, struct adv_err *))
{
    struct api api = { .loop = &loop, .turn = t };
    struct api_method m = { .path = "/t/T", .read = read };
    Advisor__V1__GetLatencyReportRequest q = ADVISOR__V1__GET_LATENCY_REPORT_REQUEST__INIT;

    *h = (struct heard) { .call = { .ops = &ops, .api = &api, .method = &m } };
    api_dispatch(&h->call, &q.base);
    while (!h->replied && !h->failed)
        (void) uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(h->refs, 0);
}

Test(dispatch, an_answer_that_does_not_fit, .timeout = 60)
{
    struct fleet_config cfg = { .lease_us = 1000000 };
    struct adv_err err = { 0 };
    struct heard h;
    char path[96];
    bool flag = false;

    (void) uv_loop_init(&loop);
    (void) strcpy(dir, "/tmp/dispatch-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/db", dir);
    policy_defaults(&cfg.policy);
    cr_assert_eq(store_open(&loop, &(struct store_config) { .url = path, .replica = "test" }, &st, &err), 0, "%s", err.msg);
    cr_assert_eq(turn_new(&loop, st, &cfg, &t, &err), 0, "%s", err.msg);
    turn_read(t, ready, &flag);
    while (!flag)
        (void) uv_run(&loop, UV_RUN_ONCE);

    call(&h, modest);
    cr_expect(h.replied && !h.failed);
    for (piece = 1 << 10; piece <= 32 << 20; piece <<= 5) {
        call(&h, greedy);
        cr_expect(h.failed && h.err.code == ADV_RESOURCE_EXHAUSTED);
        cr_expect_str_eq(h.err.reason, "REPLY_TOO_LARGE");
        call(&h, greedy_fails);
        cr_expect(h.failed && h.err.code == ADV_RESOURCE_EXHAUSTED);
        cr_expect_str_eq(h.err.reason, "REPLY_TOO_LARGE");
    }

    flag = false;
    turn_stop(t, stopped, &flag);
    while (!flag)
        (void) uv_run(&loop, UV_RUN_ONCE);
    turn_free(t);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    (void) store_close(st);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0);
    (void) nftw(dir, rm, 8, FTW_DEPTH | FTW_PHYS);
}
