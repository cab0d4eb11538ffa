/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "advisor-agent/wire/call.h"

static struct {
    unsigned messages, closed;
    size_t bytes;
    enum adv_code code;
    char message[600];
    bool pause_each, cancel;
    struct wire_call *call;
} got;

static void on_message(void *ctx, struct wire_call *c, const uint8_t *data, size_t len)
{
    got.messages++;
    got.bytes += len;
    if (got.pause_each)
        c->paused = true;
    if (got.cancel)
        c->ops = NULL;
}

static void on_closed(void *ctx, struct wire_call *c, const struct wire_status *st)
{
    got.closed++;
    got.code = st->code;
    strcpy(got.message, st->message);
}

static const struct wire_call_ops ops = { .on_message = on_message, .on_closed = on_closed };
static const struct wire_config cfg = {
    .max_message_bytes = 1000,
    .max_headers_bytes = 500,
    .max_send_queue_bytes = 1000,
    .stream_window_bytes = 1024,
};

static struct wire_call *make(void)
{
    memset(&got, 0, sizeof(got));
    struct wire_call *c = NULL;
    cr_assert_eq(call_new("/a.B/C", NULL, 0, &cfg, &ops, NULL, &c, NULL), 0);
    return c;
}

static int header(struct wire_call *c, const char *name, const char *value)
{
    return call_header(c, name, strlen(name), value, strlen(value));
}

static void ok_headers(struct wire_call *c)
{
    cr_assert_eq(header(c, ":status", "200"), 0);
    cr_assert_eq(header(c, "content-type", "application/grpc+proto"), 0);
    call_headers_done(c);
    cr_assert(!c->ended);
}

static const uint8_t two[] = { 0, 0, 0, 0, 1, 'x', 0, 0, 0, 0, 2, 'y', 'z' };

Test(call, normal_end)
{
    struct wire_call *c = make();
    size_t used;

    ok_headers(c);
    call_data(c, two, sizeof(two), &used);
    cr_assert_eq(used, sizeof(two));
    cr_assert_eq(header(c, "grpc-status", "5"), 0);
    cr_assert_eq(header(c, "grpc-message", "no%20such \xff"), 0);
    call_remote_closed(c, 0);
    (void) call_deliver(c);
    (void) call_deliver(c);
    cr_assert_eq(got.messages, 2);
    cr_assert_eq(got.closed, 1);
    cr_assert_eq(got.code, ADV_NOT_FOUND);
    cr_assert_str_eq(got.message, "no such \xef\xbf\xbd");
    call_unref(c);
}

Test(call, http_errors)
{
    static const struct {
        const char *status, *type;
        enum adv_code want;
    } t[] = { { "503", "text/html", ADV_UNAVAILABLE }, { "401", "text/html", ADV_UNAUTHENTICATED },
              { "404", "text/html", ADV_UNIMPLEMENTED }, { "302", "text/html", ADV_UNKNOWN },
              { "200", "text/html", ADV_UNKNOWN },       { "200", "application/grpcx", ADV_UNKNOWN } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct wire_call *c = make();
        cr_assert_eq(header(c, ":status", t[i].status), 0);
        cr_assert_eq(header(c, "content-type", t[i].type), 0);
        call_headers_done(c);
        (void) call_deliver(c);
        cr_assert_eq(got.closed, 1);
        cr_assert_eq(got.code, t[i].want);
        call_unref(c);
    }
}

Test(call, no_status_and_resets)
{
    static const struct {
        uint32_t h2;
        enum adv_code want;
    } t[] = { { 0, ADV_INTERNAL }, { 7, ADV_UNAVAILABLE }, { 8, ADV_CANCELLED }, { 11, ADV_RESOURCE_EXHAUSTED } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct wire_call *c = make();
        ok_headers(c);
        call_remote_closed(c, t[i].h2);
        (void) call_deliver(c);
        cr_assert_eq(got.code, t[i].want);
        call_unref(c);
    }
}

Test(call, ok_within_a_message_is_an_error)
{
    struct wire_call *c = make();
    size_t used;

    ok_headers(c);
    call_data(c, two, 7, &used);
    cr_assert_eq(header(c, "grpc-status", "0"), 0);
    call_remote_closed(c, 0);
    (void) call_deliver(c);
    cr_assert_eq(got.code, ADV_INTERNAL);
    call_unref(c);
}

Test(call, pause_holds_data_and_end)
{
    struct wire_call *c = make();
    size_t used, freed = 0;

    got.pause_each = true;
    ok_headers(c);
    call_data(c, two, sizeof(two), &used);
    cr_assert_eq(got.messages, 1);
    cr_assert_eq(used, 6);
    cr_assert_eq(header(c, "grpc-status", "0"), 0);
    call_remote_closed(c, 0);
    freed += call_deliver(c);
    cr_assert_eq(got.closed, 0);
    c->paused = false;
    freed += call_deliver(c);
    cr_assert_eq(freed, 7);
    cr_assert_eq(got.messages, 2);
    cr_assert_eq(got.closed, 1);
    cr_assert_eq(got.code, ADV_OK);
    call_unref(c);
}

Test(call, cancel_within_callback)
{
    struct wire_call *c = make();
    size_t used;

    got.cancel = true;
    ok_headers(c);
    call_data(c, two, sizeof(two), &used);
    cr_assert_eq(used, sizeof(two));
    (void) call_deliver(c);
    cr_assert_eq(got.messages, 1);
    cr_assert_eq(got.closed, 0);
    call_unref(c);
}

Test(call, window_and_header_limits)
{
    struct wire_call *c = make();
    static uint8_t flood[200000];
    char big[501];
    size_t used;

    memset(big, 'v', 500);
    big[500] = '\0';
    cr_assert_eq(header(c, "x", big), -ADV_RESOURCE_EXHAUSTED);
    call_unref(c);

    c = make();
    ok_headers(c);
    c->paused = true;
    for (int i = 0; i < 5; i++)
        call_data(c, flood, sizeof(flood), &used);
    cr_assert(c->ended);
    cr_assert_eq(c->code, ADV_RESOURCE_EXHAUSTED);
    call_unref(c);
}

Test(call, paths_and_metadata)
{
    static const char *const bad[] = { "", "a.B/C", "/a.B", "/a.B/", "//C", "/a/b/c", "/a b/c" };
    struct wire_call *c = NULL;
    struct wire_metadata md = { "Upper", "v", 1 };

    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++)
        cr_assert_eq(call_new(bad[i], NULL, 0, &cfg, &ops, NULL, &c, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(call_new("/a.B/C", &md, 1, &cfg, &ops, NULL, &c, NULL), -ADV_INVALID_ARGUMENT);
}
