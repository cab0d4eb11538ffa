/* SPDX-License-Identifier: Apache-2.0 */

/* A command-line gRPC client for the wire tests: makes calls, prints what happens, one line an
 * event. Messages are made of one byte repeated, so a length and a checksum tell all. */

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "advisor-agent/wire/wire.h"
#include "common/num.h"

static struct {
    const char *path;
    uint64_t calls, gap_ms; /* how many calls one after another, and the time between */
    uint64_t parallel;
    uint64_t messages, size;
    uint64_t deadline_ms;
    uint64_t cancel_after; /* messages received */
    uint64_t pause_ms;     /* after the first message */
    uint64_t slow_ms;      /* pause after each message */
    uint64_t keep_open;    /* no half-close */
    uint64_t restart_after_ms;
    unsigned flags;
    struct wire_metadata md[8];
    size_t n_md;
} opt = { .calls = 1, .messages = 1, .parallel = 1 };

struct job {
    struct wire_call *call;
    uint64_t sent, received;
    uv_timer_t timer;
    bool timer_on;
};

static uv_loop_t loop;
static struct wire_conn *conn;
static uint64_t started, running;
static uv_timer_t next_timer, restart_timer;

static void start_calls(void);

static void line(const char *fmt, ...) ADV_PRINTF(1, 2);
static void line(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void) vprintf(fmt, ap);
    va_end(ap);
    (void) putchar('\n');
    (void) fflush(stdout);
}

static void on_state(void *ctx, enum wire_state state, const struct adv_err *err)
{
    static const char *const names[] = { "CONNECTING", "READY", "DRAINING", "BACKOFF" };
    line("state %s %s", names[state], err ? err->msg : "");
}

static void on_timer_gone(uv_handle_t *h)
{
    free(h->data);
}

static void on_resume(uv_timer_t *t)
{
    struct job *j = t->data;
    if (j->call)
        wire_call_resume(j->call);
}

static void finish(struct job *j)
{
    j->call = NULL;
    uv_close((uv_handle_t *) &j->timer, on_timer_gone);
    running--;
    if (started < opt.calls * opt.parallel) {
        if (running == 0)
            (void) uv_timer_start(&next_timer, (uv_timer_cb) (void (*)(void)) start_calls,
                                  opt.gap_ms, 0);
    } else if (running == 0) {
        conn = wire_conn_free(conn);
        (void) uv_timer_stop(&next_timer);
        (void) uv_timer_stop(&restart_timer);
    }
}

static void send_more(struct job *j)
{
    char *data = malloc(opt.size + 1);
    struct adv_err err;

    while (data && j->sent < opt.messages) {
        memset(data, (int) ('a' + j->sent % 26), opt.size);
        int r = wire_call_send(j->call, data, opt.size, &err);
        if (r == -ADV_RESOURCE_EXHAUSTED)
            break;
        if (r < 0) {
            line("send %s", err.msg);
            break;
        }
        j->sent++;
    }
    if (j->sent == opt.messages && !opt.keep_open)
        wire_call_half_close(j->call);
    free(data);
}

static void on_drained(void *ctx, struct wire_call *call)
{
    send_more(ctx);
}

static void on_message(void *ctx, struct wire_call *call, const uint8_t *data, size_t len)
{
    struct job *j = ctx;
    uint64_t sum = 0;

    for (size_t i = 0; i < len; i++)
        sum += data[i];
    if (len <= 64)
        line("msg %zu %" PRIu64 " %.*s", len, sum, (int) len, (const char *) data);
    else
        line("msg %zu %" PRIu64, len, sum);
    j->received++;
    if (opt.cancel_after && j->received >= opt.cancel_after) {
        j->call = wire_call_cancel(call);
        line("cancelled");
        finish(j);
        return;
    }
    uint64_t wait = opt.slow_ms ? opt.slow_ms : j->received == 1 ? opt.pause_ms : 0;
    if (wait) {
        wire_call_pause(call);
        (void) uv_timer_start(&j->timer, on_resume, wait, 0);
    }
}

static void on_closed(void *ctx, struct wire_call *call, const struct wire_status *st)
{
    char hex[513] = "";

    for (size_t i = 0; i < st->details_len && i < 256; i++)
        (void) snprintf(hex + 2 * i, 3, "%02x", st->details[i]);
    line("closed %s %s details=%s server=%d", adv_code_name((int) st->code), st->message, hex,
         st->from_server);
    finish(ctx);
}

static const struct wire_call_ops call_ops = {
    .on_message = on_message,
    .on_closed = on_closed,
    .on_drained = on_drained,
};

static void start_calls(void)
{
    for (uint64_t i = 0; i < opt.parallel; i++) {
        struct adv_err err;
        struct job *j = calloc(1, sizeof(*j));
        if (!j)
            abort();
        started++;
        running++;
        (void) uv_timer_init(&loop, &j->timer);
        j->timer.data = j;
        if (wire_call_start(conn, opt.path, opt.md, opt.n_md, opt.deadline_ms, opt.flags, &call_ops,
                            j, &j->call, &err) < 0) {
            line("closed %s %s details= server=0 at-start", adv_code_name((int) err.code), err.msg);
            finish(j);
            continue;
        }
        send_more(j);
    }
}

static void on_restart(uv_timer_t *t)
{
    wire_conn_restart(conn, 0);
}

static uint64_t number(const char *text)
{
    uint64_t n;
    struct adv_err err;

    if (adv_parse_u64(text, 0, 1u << 31, &n, &err) < 0) {
        (void) fprintf(stderr, "%s\n", err.msg);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "target", 1, NULL, 't' },     { "name", 1, NULL, 'n' },
        { "ca", 1, NULL, 'A' },         { "cert", 1, NULL, 'C' },
        { "key", 1, NULL, 'K' },        { "insecure", 0, NULL, 'i' },
        { "path", 1, NULL, 'p' },       { "calls", 1, NULL, 'c' },
        { "gap", 1, NULL, 'g' },        { "parallel", 1, NULL, 'P' },
        { "messages", 1, NULL, 'm' },   { "size", 1, NULL, 's' },
        { "deadline", 1, NULL, 'd' },   { "cancel-after", 1, NULL, 'x' },
        { "pause", 1, NULL, 'z' },      { "slow", 1, NULL, 'Z' },
        { "wait", 0, NULL, 'w' },       { "window", 1, NULL, 'W' },
        { "max-message", 1, NULL, 'M' }, { "keepalive", 1, NULL, 'k' },
        { "backoff", 1, NULL, 'b' },    { "md", 1, NULL, 'D' },
        { "keep-open", 0, NULL, 'o' },  { "restart-after", 1, NULL, 'r' },
        { "connect-timeout", 1, NULL, 'T' }, { NULL, 0, NULL, 0 },
    };
    struct wire_config cfg = { .backoff_min_ms = 100, .backoff_max_ms = 400 };
    static const struct wire_conn_ops conn_ops = { .on_state = on_state };
    struct adv_err err;
    int c;

    opt.path = "/t.T/Unary";
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 't': cfg.target = optarg; break;
        case 'n': cfg.server_name = optarg; break;
        case 'A': cfg.ca_path = optarg; break;
        case 'C': cfg.cert_path = optarg; break;
        case 'K': cfg.key_path = optarg; break;
        case 'i': cfg.insecure = true; break;
        case 'p': opt.path = optarg; break;
        case 'c': opt.calls = number(optarg); break;
        case 'g': opt.gap_ms = number(optarg); break;
        case 'P': opt.parallel = number(optarg); break;
        case 'm': opt.messages = number(optarg); break;
        case 's': opt.size = number(optarg); break;
        case 'd': opt.deadline_ms = number(optarg); break;
        case 'x': opt.cancel_after = number(optarg); break;
        case 'z': opt.pause_ms = number(optarg); break;
        case 'Z': opt.slow_ms = number(optarg); break;
        case 'w': opt.flags |= WIRE_CALL_WAIT_READY; break;
        case 'W': cfg.stream_window_bytes = number(optarg); break;
        case 'M': cfg.max_message_bytes = number(optarg); break;
        case 'k': cfg.keepalive_interval_ms = cfg.keepalive_timeout_ms = number(optarg); break;
        case 'b': cfg.backoff_min_ms = cfg.backoff_max_ms = number(optarg); break;
        case 'o': opt.keep_open = 1; break;
        case 'r': opt.restart_after_ms = number(optarg); break;
        case 'T': cfg.connect_timeout_ms = number(optarg); break;
        case 'D': {
            char *eq = strchr(optarg, '=');
            if (!eq || opt.n_md == ADV_ARRAY_LEN(opt.md))
                return 2;
            *eq = '\0';
            opt.md[opt.n_md++] = (struct wire_metadata) { optarg, eq + 1, strlen(eq + 1) };
            break;
        }
        default: return 2;
        }
    }
    (void) uv_loop_init(&loop);
    (void) uv_timer_init(&loop, &next_timer);
    (void) uv_timer_init(&loop, &restart_timer);
    if (wire_conn_new(&loop, &cfg, &conn_ops, NULL, &conn, &err) < 0) {
        line("config %s", err.msg);
        return 1;
    }
    start_calls();
    if (opt.restart_after_ms)
        (void) uv_timer_start(&restart_timer, on_restart, opt.restart_after_ms, 0);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *) &next_timer, NULL);
    uv_close((uv_handle_t *) &restart_timer, NULL);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&loop);
    return 0;
}
