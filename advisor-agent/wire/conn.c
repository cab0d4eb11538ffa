/* SPDX-License-Identifier: Apache-2.0 */

/* A connection that keeps itself alive.
 *
 * Model: struct wire_conn is what the application holds and lives as long as it likes; struct link
 * is one attempt: a socket with its TLS and HTTP/2 state. A link is replaced, never reused. Closing
 * it cuts the pointer to its connection at once and frees it from libuv's close callback, that is
 * never within one of its own callbacks; so any callback may do anything, and the code after a
 * callback only asks whether link->conn is still there.
 *
 * Time: one timer per connection. tick() looks at all that can be due (connect time-out, back-off,
 * keepalive, deadlines of calls) and rearm() sets the timer to the earliest.
 *
 * Back-off: the counter of failed attempts is forgotten only when a connection has been usable for
 * STABLE_MS, so a server that accepts and drops does not make a storm. */

#include "advisor-agent/wire/wire.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uv.h>

#include "advisor-agent/wire/call.h"
#include "advisor-agent/wire/h2.h"
#include "advisor-agent/wire/tls.h"
#include "common/clock.h"

#define STABLE_MS     5000
#define ADDRESSES_MAX 8
/* Unsent bytes gathered for one write. */
#define WRITE_BYTES (64u * 1024)
/* One TLS record. */
#define READ_BYTES (16u * 1024)
/* Most that may wait in the kernel: what is written later, a heartbeat, waits behind it. */
#define UNSENT_BYTES (128 * 1024)

struct link {
    struct wire_conn *conn; /* NULL: closing */
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } u;
    uv_connect_t connect;
    uv_write_t write;
    struct adv_buf out; /* being written */
    bool writing;
    unsigned depth; /* nghttp2 is on the stack */
    struct tls *tls;
    bool tls_ready;
    struct wire_h2 *h2;
};

struct dns {
    uv_getaddrinfo_t req;
    struct wire_conn *conn; /* NULL: nobody waits any more */
};

struct wire_conn {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct wire_config cfg; /* strings owned */
    struct wire_target *targets; /* tried in turn */
    size_t n_targets, next_target;
    size_t tried; /* of this attempt, that failed */
    struct wire_target target; /* of the present attempt */
    char *authority;
    const struct wire_conn_ops *ops;
    void *ctx;

    enum wire_state state;
    bool closing;
    struct link *link;
    struct dns *dns;
    struct sockaddr_storage addrs[ADDRESSES_MAX];
    size_t n_addrs, next_addr;
    struct wire_call *calls;

    unsigned attempts; /* failed since the last stable connection */
    int64_t due_ms;    /* CONNECTING: give up; BACKOFF: try again */
    int64_t ready_ms;
    int64_t heard_ms;
    int64_t ping_ms; /* sent, 0: none under way */
    uint64_t keepalive_interval_ms;
    int64_t cert_expiry_s;
};

static void tick(struct wire_conn *conn);
static void rearm(struct wire_conn *conn);
static int write_out(struct link *link, struct adv_err *err);
static void flush(struct link *link);
static void attempt(struct wire_conn *conn);
static void try_target(struct wire_conn *conn);
static void connect_next(struct wire_conn *conn);

static int64_t now_ms(void)
{
    return adv_mono_us() / 1000;
}

static uint32_t random_u32(void)
{
    uint32_t r = 0;

    if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != (ssize_t) sizeof(r))
        r = (uint32_t) adv_mono_us() * 2654435761u;
    return r;
}

static void tell(struct wire_conn *conn, enum wire_state state, const struct adv_err *err)
{
    conn->state = state;
    if (conn->ops && conn->ops->on_state)
        conn->ops->on_state(conn->ctx, state, err);
}

/* Links */

static void on_link_closed(uv_handle_t *handle)
{
    struct link *link = handle->data;

    (void) wire_h2_free(link->h2);
    (void) tls_free(link->tls);
    adv_buf_done(&link->out);
    free(link);
}

/* Says goodbye if that can be done without waiting. */
static struct link *link_close(struct link *link)
{
    struct adv_err err;

    if (!link || !link->conn)
        return NULL;
    link->conn->link = NULL;
    link->conn = NULL;
    if (link->h2 && link->depth == 0) {
        wire_h2_goaway(link->h2);
        (void) write_out(link, &err);
    }
    uv_close(&link->u.handle, on_link_closed);
    return NULL;
}

static void drop_attempt(struct wire_conn *conn)
{
    if (conn->dns) {
        conn->dns->conn = NULL;
        (void) uv_cancel((uv_req_t *) &conn->dns->req);
        conn->dns = NULL;
    }
    conn->link = link_close(conn->link);
}

/* Ends the present attempt or connection. @delay_ms < 0: by the back-off rule. */
static void disconnect(struct wire_conn *conn, bool graceful, int64_t delay_ms,
                       const struct adv_err *why)
{
    int64_t now = now_ms();
    bool stable = conn->ready_ms && now - conn->ready_ms >= STABLE_MS;
    struct adv_err err = *why; /* may be in a buffer that a callback reuses */

    if (stable)
        conn->attempts = 0;
    if (!graceful || !stable)
        conn->attempts++;
    if (delay_ms < 0)
        delay_ms = conn->attempts
                       ? (int64_t) wire_backoff_ms(conn->attempts, conn->cfg.backoff_min_ms,
                                                   conn->cfg.backoff_max_ms, random_u32())
                       : (int64_t) (random_u32() % (conn->cfg.backoff_min_ms / 4 + 1));
    conn->due_ms = now + delay_ms;
    conn->ready_ms = conn->ping_ms = 0;
    conn->state = WIRE_STATE_BACKOFF;
    for (struct wire_call *c = conn->calls; c; c = c->next) {
        c->doomed = c->h2 || !(c->flags & WIRE_CALL_WAIT_READY);
        wire_h2_reset(c);
    }
    drop_attempt(conn);
    rearm(conn);
    /* Callbacks may take calls off the list and start others, so begin anew after each. */
    for (struct wire_call *c = conn->calls; c && !conn->closing;) {
        if (!c->doomed) {
            c = c->next;
            continue;
        }
        c->doomed = false;
        /* At the deadline the server may be a moment faster to hang up than our timer. */
        if (c->deadline_mono_ms && c->deadline_mono_ms <= now + 10)
            call_end(c, ADV_DEADLINE_EXCEEDED, "deadline exceeded");
        call_end(c, ADV_UNAVAILABLE, "%s", err.msg);
        (void) call_deliver(c);
        c = conn->calls;
    }
    if (!conn->closing && conn->state == WIRE_STATE_BACKOFF)
        tell(conn, WIRE_STATE_BACKOFF, &err);
}

/* An attempt is over only when each target has been tried. */
static void fail(struct wire_conn *conn, const struct adv_err *err)
{
    if (conn->state == WIRE_STATE_CONNECTING && ++conn->tried < conn->n_targets && !conn->closing) {
        drop_attempt(conn);
        try_target(conn);
        return;
    }
    disconnect(conn, false, -1, err);
}

static bool any_stream(const struct wire_conn *conn)
{
    for (const struct wire_call *c = conn->calls; c; c = c->next)
        if (c->h2)
            return true;
    return false;
}

/* Sends what is ready, then sees whether the connection has come to its end. */
static void settle(struct link *link)
{
    struct adv_err err;

    flush(link);
    if (!link->conn || !link->h2)
        return;
    if (link->conn->state == WIRE_STATE_DRAINING && !any_stream(link->conn)) {
        (void) adv_err_set(&err, ADV_UNAVAILABLE, "the server asked to leave");
        disconnect(link->conn, true, -1, &err);
    } else if (!link->writing && wire_h2_finished(link->h2)) {
        (void) adv_err_set(&err, ADV_UNAVAILABLE, "the HTTP/2 session has ended");
        fail(link->conn, &err);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct link *link = req->data;
    struct adv_err err;

    link->writing = false;
    adv_buf_done(&link->out);
    adv_buf_init(&link->out, SIZE_MAX / 2);
    if (!link->conn)
        return;
    if (status < 0) {
        (void) adv_err_set(&err, ADV_UNAVAILABLE, "write: %s", uv_strerror(status));
        fail(link->conn, &err);
        return;
    }
    settle(link);
}

static int gather(struct link *link, struct adv_err *err)
{
    while (link->h2 && link->out.len < WRITE_BYTES) {
        const uint8_t *data = NULL;
        link->depth++;
        int64_t n = wire_h2_pull(link->h2, &data, err);
        link->depth--;
        if (n <= 0) {
            if (n < 0)
                return (int) n;
            break;
        }
        int r = link->tls ? tls_write(link->tls, data, (size_t) n, err)
                          : adv_buf_append(&link->out, data, (size_t) n);
        if (r == 0 && link->tls)
            r = tls_output(link->tls, &link->out, err);
        if (r < 0)
            return link->tls ? r : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory to send");
    }
    return link->tls ? tls_output(link->tls, &link->out, err) : 0;
}

static int write_out(struct link *link, struct adv_err *err)
{
    uv_buf_t buf;
    int r;

    if (link->depth > 0 || link->writing)
        return 0;
    r = gather(link, err);
    if (r < 0 || link->out.len == 0 || uv_is_closing(&link->u.handle))
        return r;
    buf = uv_buf_init(link->out.data, (unsigned) link->out.len);
    link->write.data = link;
    r = uv_write(&link->write, &link->u.stream, &buf, 1, on_written);
    if (r < 0)
        return adv_err_set(err, ADV_UNAVAILABLE, "write: %s", uv_strerror(r));
    link->writing = true;
    return 0;
}

static void flush(struct link *link)
{
    struct adv_err err;

    if (link->conn && write_out(link, &err) < 0 && link->conn)
        fail(link->conn, &err);
}

static int open_stream(struct wire_conn *conn, struct wire_call *c, struct adv_err *err)
{
    int64_t left = c->deadline_mono_ms ? c->deadline_mono_ms - now_ms() : 0;

    if (c->deadline_mono_ms && left < 1)
        left = 1;
    return wire_h2_open(conn->link->h2, c, (uint64_t) left, err);
}

static void on_settings(void *ctx)
{
    struct link *link = ctx;
    struct wire_conn *conn = link->conn;
    struct adv_err err;

    if (!conn || conn->state != WIRE_STATE_CONNECTING)
        return;
    conn->ready_ms = now_ms();
    conn->state = WIRE_STATE_READY;
    for (struct wire_call *c = conn->calls; c; c = c->next)
        if (!c->h2 && !c->ended && open_stream(conn, c, &err) < 0)
            call_end(c, ADV_RESOURCE_EXHAUSTED, "%s", err.msg); /* shown by the next tick */
    tell(conn, WIRE_STATE_READY, NULL);
}

static void on_goaway(void *ctx, uint32_t h2_code, const char *debug)
{
    struct link *link = ctx;
    struct wire_conn *conn = link->conn;
    struct adv_err err;

    if (!conn)
        return;
    if (h2_code == 0xb && conn->keepalive_interval_ms < 3600000)
        conn->keepalive_interval_ms *= 2; /* ENHANCE_YOUR_CALM, as gRFC A8 asks */
    if (conn->state == WIRE_STATE_READY) {
        (void) adv_err_set(&err, ADV_UNAVAILABLE, "GOAWAY from the server, HTTP/2 error %u '%s'",
                           h2_code, debug);
        tell(conn, WIRE_STATE_DRAINING, &err);
    }
}

static void on_ping_ack(void *ctx)
{
    struct link *link = ctx;

    if (link->conn)
        link->conn->ping_ms = 0;
}

static const struct wire_h2_ops h2_ops = {
    .on_settings = on_settings,
    .on_goaway = on_goaway,
    .on_ping_ack = on_ping_ack,
};

static int start_h2(struct link *link, struct adv_err *err)
{
    return wire_h2_new(&link->conn->cfg, link->conn->authority, link->tls != NULL, &h2_ops, link,
                       &link->h2, err);
}

static int feed(struct link *link, const uint8_t *data, size_t len, struct adv_err *err)
{
    link->depth++;
    int r = wire_h2_feed(link->h2, data, len, err);
    link->depth--;
    return r;
}

static int feed_tls(struct link *link, const uint8_t *data, size_t len, struct adv_err *err)
{
    uint8_t plain[READ_BYTES];
    int64_t n;
    int r = tls_input(link->tls, data, len, err);

    if (r < 0)
        return r;
    if (!link->tls_ready) {
        r = tls_handshake(link->tls, err);
        if (r <= 0)
            return r;
        link->tls_ready = true;
        r = start_h2(link, err);
        if (r < 0)
            return r;
    }
    while (link->conn && (n = tls_read(link->tls, plain, sizeof(plain), err)) != 0) {
        r = n < 0 ? (int) n : feed(link, plain, (size_t) n, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    buf->base = malloc(READ_BYTES);
    buf->len = buf->base ? READ_BYTES : 0;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct link *link = stream->data;
    adv_auto_free void *data = buf->base;
    struct adv_err err;
    int r = 0;

    if (!link->conn || n == 0)
        return;
    if (n > 0) {
        link->conn->heard_ms = now_ms();
        r = link->tls ? feed_tls(link, data, (size_t) n, &err)
                      : feed(link, data, (size_t) n, &err);
    } else if (n == UV_EOF) {
        r = adv_err_set(&err, ADV_UNAVAILABLE, "connection closed by the server");
    } else {
        r = adv_err_set(&err, ADV_UNAVAILABLE, "read: %s", uv_strerror((int) n));
    }
    if (!link->conn)
        return;
    if (r < 0) {
        flush(link); /* a GOAWAY or a TLS alert that says why */
        if (link->conn)
            fail(link->conn, &err);
        return;
    }
    settle(link);
    if (link->conn)
        rearm(link->conn);
}

static void limit_unsent(struct link *link)
{
    const int bytes = UNSENT_BYTES;
    uv_os_fd_t fd;

    if (link->u.handle.type == UV_TCP && uv_fileno(&link->u.handle, &fd) == 0)
        (void) setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
}

static void on_connected(uv_connect_t *req, int status)
{
    struct link *link = req->data;
    struct wire_conn *conn = link->conn;
    struct adv_err err;
    int r;

    if (!conn)
        return;
    if (status < 0 && conn->next_addr < conn->n_addrs) {
        conn->link = link_close(link);
        connect_next(conn);
        return;
    }
    if (status < 0) {
        (void) adv_err_set(&err, ADV_UNAVAILABLE, "connect to %s: %s", conn->cfg.target,
                           uv_strerror(status));
        fail(conn, &err);
        return;
    }
    conn->heard_ms = now_ms();
    limit_unsent(link);
    r = uv_read_start(&link->u.stream, on_alloc, on_read);
    if (r < 0)
        r = adv_err_set(&err, ADV_UNAVAILABLE, "read: %s", uv_strerror(r));
    else if (link->tls)
        r = tls_handshake(link->tls, &err);
    else
        r = start_h2(link, &err);
    if (r < 0)
        fail(conn, &err);
    else
        flush(link);
}

static bool is_loopback(const struct sockaddr_storage *ss)
{
    static const uint8_t v6_loopback[16] = { [15] = 1 };
    static const uint8_t mapped[13] = { [10] = 0xff, [11] = 0xff, [12] = 127 };

    if (ss->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *) ss)->sin_addr.s_addr) >> 24 == 127;
    const uint8_t *a = ((const struct sockaddr_in6 *) ss)->sin6_addr.s6_addr;
    return memcmp(a, v6_loopback, 16) == 0 || memcmp(a, mapped, 13) == 0;
}

static int link_start(struct wire_conn *conn, const struct sockaddr_storage *addr,
                      struct adv_err *err)
{
    struct link *link = calloc(1, sizeof(*link));
    const char *name = conn->cfg.server_name;
    int r;

    if (!link)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a connection");
    adv_buf_init(&link->out, SIZE_MAX / 2);
    if (!name)
        name = conn->target.is_unix ? "localhost" : conn->target.host;
    if (conn->cfg.insecure)
        r = !addr || is_loopback(addr)
                ? 0
                : adv_err_set(err, ADV_FAILED_PRECONDITION,
                              "%s is not loopback, and insecure is for loopback and unix only",
                              conn->cfg.target);
    else
        r = tls_new(&conn->cfg, name, &link->tls, err);
    if (r < 0) {
        free(link);
        return r;
    }
    if (link->tls)
        conn->cert_expiry_s = tls_cert_expiry_s(link->tls);
    r = addr ? uv_tcp_init(conn->loop, &link->u.tcp) : uv_pipe_init(conn->loop, &link->u.pipe, 0);
    if (r < 0) {
        (void) tls_free(link->tls);
        free(link);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "socket: %s", uv_strerror(r));
    }
    link->u.handle.data = link;
    link->connect.data = link;
    link->conn = conn;
    conn->link = link;
    if (addr) {
        (void) uv_tcp_nodelay(&link->u.tcp, 1);
        r = uv_tcp_connect(&link->connect, &link->u.tcp, (const struct sockaddr *) addr,
                           on_connected);
        if (r < 0)
            return adv_err_set(err, ADV_UNAVAILABLE, "connect to %s: %s", conn->cfg.target,
                               uv_strerror(r));
    } else {
        uv_pipe_connect(&link->connect, &link->u.pipe, conn->target.host, on_connected);
    }
    return 0;
}

/* Tries the next known address; the caller has made sure that there is one. */
static void connect_next(struct wire_conn *conn)
{
    struct adv_err err;

    if (link_start(conn, &conn->addrs[conn->next_addr++], &err) < 0)
        fail(conn, &err);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct dns *dns = req->data;
    struct wire_conn *conn = dns->conn;
    struct adv_err err;

    free(dns);
    if (conn) {
        conn->dns = NULL;
        conn->n_addrs = conn->next_addr = 0;
        for (struct addrinfo *ai = list; ai && conn->n_addrs < ADDRESSES_MAX; ai = ai->ai_next)
            if ((ai->ai_family == AF_INET || ai->ai_family == AF_INET6) &&
                ai->ai_addrlen <= sizeof(conn->addrs[0]))
                memcpy(&conn->addrs[conn->n_addrs++], ai->ai_addr, ai->ai_addrlen);
        if (conn->n_addrs == 0) {
            (void) adv_err_set(&err, ADV_UNAVAILABLE, "look up %s: %s", conn->target.host,
                               status < 0 ? uv_strerror(status) : "no address");
            fail(conn, &err);
        } else {
            connect_next(conn);
        }
    }
    uv_freeaddrinfo(list);
}

static int resolve(struct wire_conn *conn, struct adv_err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
    int port = atoi(conn->target.port); /* checked by wire_target_parse() */
    struct dns *dns;
    int r;

    conn->n_addrs = conn->next_addr = 0;
    if (uv_ip4_addr(conn->target.host, port, (struct sockaddr_in *) &conn->addrs[0]) == 0 ||
        uv_ip6_addr(conn->target.host, port, (struct sockaddr_in6 *) &conn->addrs[0]) == 0) {
        conn->n_addrs = 1;
        conn->next_addr = 1;
        return link_start(conn, &conn->addrs[0], err);
    }
    dns = calloc(1, sizeof(*dns));
    if (!dns)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory to look up a name");
    dns->conn = conn;
    dns->req.data = dns;
    r = uv_getaddrinfo(conn->loop, &dns->req, on_resolved, conn->target.host, conn->target.port,
                       &hints);
    if (r < 0) {
        free(dns);
        return adv_err_set(err, ADV_UNAVAILABLE, "look up %s: %s", conn->target.host,
                           uv_strerror(r));
    }
    conn->dns = dns;
    return 0;
}

/* The next of the targets, and the name by which it is called. */
static int take_target(struct wire_conn *conn, struct adv_err *err)
{
    const char *name = conn->cfg.server_name;
    char *authority = NULL;

    conn->target = conn->targets[conn->next_target++ % conn->n_targets];
    if (name || conn->target.is_unix)
        authority = strdup(name ? name : "localhost");
    else if (asprintf(&authority, strchr(conn->target.host, ':') ? "[%s]:%s" : "%s:%s", conn->target.host,
                      conn->target.port) < 0)
        authority = NULL;
    if (!authority)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a connection");
    free(conn->authority);
    conn->authority = authority;
    return 0;
}

static void try_target(struct wire_conn *conn)
{
    struct adv_err err;
    int r = take_target(conn, &err);

    conn->due_ms = now_ms() + (int64_t) conn->cfg.connect_timeout_ms;
    if (r == 0)
        r = conn->target.is_unix ? link_start(conn, NULL, &err) : resolve(conn, &err);
    if (r < 0)
        fail(conn, &err);
    else
        rearm(conn);
}

static void attempt(struct wire_conn *conn)
{
    conn->due_ms = now_ms() + (int64_t) conn->cfg.connect_timeout_ms;
    conn->tried = 0;
    tell(conn, WIRE_STATE_CONNECTING, NULL);
    if (conn->closing || conn->state != WIRE_STATE_CONNECTING || conn->link || conn->dns)
        return;
    try_target(conn);
}

/* Time */

static int64_t next_due(const struct wire_conn *conn)
{
    int64_t due = INT64_MAX;

    if (conn->state == WIRE_STATE_CONNECTING || conn->state == WIRE_STATE_BACKOFF)
        due = conn->due_ms;
    else
        due = conn->ping_ms ? conn->ping_ms + (int64_t) conn->cfg.keepalive_timeout_ms
                            : conn->heard_ms + (int64_t) conn->keepalive_interval_ms;
    for (const struct wire_call *c = conn->calls; c; c = c->next)
        if (c->deadline_mono_ms && !c->ended && c->deadline_mono_ms < due)
            due = c->deadline_mono_ms;
    return due;
}

static void on_timer(uv_timer_t *timer)
{
    tick(timer->data);
}

static void rearm(struct wire_conn *conn)
{
    int64_t wait;

    if (conn->closing)
        return;
    wait = next_due(conn) - now_ms();
    uv_update_time(conn->loop); /* the loop's idea of now may be older than ours */
    (void) uv_timer_start(&conn->timer, on_timer, wait > 0 ? (uint64_t) wait : 0, 0);
}

/* Ends calls whose time is over, and shows the end of those that were ended out of turn. */
static void sweep_calls(struct wire_conn *conn)
{
    int64_t now = now_ms();

    for (struct wire_call *c = conn->calls; c && !conn->closing;) {
        bool late = c->deadline_mono_ms && c->deadline_mono_ms <= now && !c->ended;
        if (!late && (!c->ended || c->held.len > 0 || c->delivering)) {
            c = c->next;
            continue;
        }
        wire_h2_reset(c);
        call_end(c, ADV_DEADLINE_EXCEEDED, "deadline exceeded");
        (void) call_deliver(c);
        c = conn->calls;
    }
}

static void tick(struct wire_conn *conn)
{
    int64_t now = now_ms();
    struct adv_err err;

    if (conn->closing)
        return;
    switch (conn->state) {
    case WIRE_STATE_CONNECTING:
        if (!conn->link && !conn->dns) {
            attempt(conn);
        } else if (now >= conn->due_ms) {
            (void) adv_err_set(&err, ADV_UNAVAILABLE, "connect to %s: timed out",
                               conn->cfg.target);
            fail(conn, &err);
        }
        break;
    case WIRE_STATE_BACKOFF:
        if (now >= conn->due_ms)
            attempt(conn);
        break;
    case WIRE_STATE_READY:
    case WIRE_STATE_DRAINING:
        if (conn->ping_ms && now >= conn->ping_ms + (int64_t) conn->cfg.keepalive_timeout_ms) {
            (void) adv_err_set(&err, ADV_UNAVAILABLE, "keepalive: no answer for %llu ms",
                               (unsigned long long) conn->cfg.keepalive_timeout_ms);
            fail(conn, &err);
        } else if (!conn->ping_ms &&
                   now >= conn->heard_ms + (int64_t) conn->keepalive_interval_ms) {
            conn->ping_ms = now;
            wire_h2_ping(conn->link->h2);
        }
        break;
    }
    sweep_calls(conn);
    if (conn->link)
        settle(conn->link);
    rearm(conn);
}

static void unlink_call(struct wire_call *c)
{
    if (!c->conn)
        return;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->conn->calls = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->prev = c->next = NULL;
    c->conn = NULL;
    (void) call_unref(c);
}

/* The connection as the application sees it */

static int copy_config(struct wire_conn *conn, const struct wire_config *cfg, struct adv_err *err)
{
    struct wire_config *c = &conn->cfg;
    const char **const strings[] = { &c->target, &c->server_name, &c->ca_path,
                                     &c->cert_path, &c->key_path, &c->user_agent };
    const struct {
        uint64_t *value, fallback;
    } times[] = {
        { &c->connect_timeout_ms, 20000 },   { &c->keepalive_interval_ms, 30000 },
        { &c->keepalive_timeout_ms, 10000 }, { &c->backoff_min_ms, 1000 },
        { &c->backoff_max_ms, 60000 },
    };
    const struct {
        size_t *value, fallback;
    } sizes[] = {
        { &c->max_message_bytes, 4u << 20 },
        { &c->max_headers_bytes, 16u << 10 },
        { &c->max_send_queue_bytes, 1u << 20 },
        { &c->stream_window_bytes, 65535 },
    };
    bool copied = true;

    *c = *cfg;
    if (!c->user_agent)
        c->user_agent = "advisor/" ADVISOR_VERSION;
    for (size_t i = 0; i < ADV_ARRAY_LEN(strings); i++)
        if (*strings[i]) {
            *strings[i] = strdup(*strings[i]);
            copied = copied && *strings[i];
        }
    for (size_t i = 0; i < ADV_ARRAY_LEN(times); i++)
        if (!*times[i].value)
            *times[i].value = times[i].fallback;
    for (size_t i = 0; i < ADV_ARRAY_LEN(sizes); i++)
        if (!*sizes[i].value)
            *sizes[i].value = sizes[i].fallback;
    if (!copied)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a connection");
    if (c->stream_window_bytes < 1024 || c->stream_window_bytes > 16u << 20)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "stream_window_bytes out of range");
    if (!c->cert_path != !c->key_path)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "certificate and key come together");
    if (c->insecure && (c->ca_path || c->cert_path))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "insecure excludes certificates");
    return 0;
}

static void conn_destroy(struct wire_conn *conn)
{
    const struct wire_config *c = &conn->cfg;
    const char *const strings[] = { c->target,    c->server_name, c->ca_path,
                                    c->cert_path, c->key_path,    c->user_agent };

    for (size_t i = 0; i < ADV_ARRAY_LEN(strings); i++)
        free((void *) (uintptr_t) strings[i]);
    free(conn->authority);
    free(conn->targets);
    free(conn);
}

/* "a:1,b:2": each is checked. */
static int parse_targets(struct wire_conn *conn, const char *text, struct adv_err *err)
{
    adv_auto_free char *copy = strdup(text);
    char *save = NULL;
    size_t n = 1;
    int r = 0;

    for (const char *p = text; (p = strchr(p, ',')); p++)
        n++;
    conn->targets = calloc(n, sizeof(*conn->targets));
    if (!copy || !conn->targets)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a connection");
    for (char *one = strtok_r(copy, ",", &save); one && r == 0; one = strtok_r(NULL, ",", &save))
        r = wire_target_parse(one + strspn(one, " "), &conn->targets[conn->n_targets++], err);
    if (r == 0 && conn->n_targets == 0)
        r = wire_target_parse(text, &conn->target, err);
    return r;
}

int wire_conn_new(uv_loop_t *loop, const struct wire_config *cfg, const struct wire_conn_ops *ops,
                  void *ctx, struct wire_conn **ret_conn, struct adv_err *err)
{
    struct wire_conn *conn;
    struct sigaction old;
    int r;

    if (!cfg->target)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "no target");
    conn = calloc(1, sizeof(*conn));
    if (!conn)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for a connection");
    r = copy_config(conn, cfg, err);
    if (r == 0)
        r = parse_targets(conn, cfg->target, err);
    if (r == 0)
        r = take_target(conn, err);
    if (r < 0)
        goto out;
    conn->next_target = 0; /* the first attempt is made at the first */
    conn->loop = loop;
    conn->ops = ops;
    conn->ctx = ctx;
    conn->keepalive_interval_ms = conn->cfg.keepalive_interval_ms;
    conn->state = WIRE_STATE_CONNECTING;
    r = uv_timer_init(loop, &conn->timer);
    if (r < 0) {
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "timer: %s", uv_strerror(r));
        goto out;
    }
    conn->timer.data = conn;
    /* libuv writes with write(2). */
    if (sigaction(SIGPIPE, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        (void) signal(SIGPIPE, SIG_IGN);
    rearm(conn); /* the first attempt starts from the loop */
    *ret_conn = conn;
    return 0;
out:
    conn_destroy(conn);
    return r;
}

static void on_conn_closed(uv_handle_t *handle)
{
    conn_destroy(handle->data);
}

struct wire_conn *wire_conn_free(struct wire_conn *conn)
{
    if (!conn || conn->closing)
        return NULL;
    conn->closing = true;
    conn->ops = NULL;
    while (conn->calls) {
        struct wire_call *c = conn->calls;
        c->ops = NULL;
        wire_h2_reset(c);
        unlink_call(c);
    }
    drop_attempt(conn);
    (void) uv_timer_stop(&conn->timer);
    uv_close((uv_handle_t *) &conn->timer, on_conn_closed);
    return NULL;
}

enum wire_state wire_conn_state(const struct wire_conn *conn)
{
    return conn->state;
}

void wire_conn_restart(struct wire_conn *conn, uint64_t retry_after_ms)
{
    int64_t delay = (int64_t) (retry_after_ms + random_u32() % (retry_after_ms / 4 + 1));
    struct adv_err err;

    if (conn->closing)
        return;
    (void) adv_err_set(&err, ADV_UNAVAILABLE, "the connection is being made anew");
    disconnect(conn, true, delay, &err);
}

int64_t wire_conn_cert_expiry_s(const struct wire_conn *conn)
{
    return conn->cert_expiry_s;
}

/* Calls */

/* Sends in the next turn of the loop: several messages then share a write, and nothing calls back
 * from within the application's own call. */
static void push(struct wire_conn *conn)
{
    if (conn && !conn->closing)
        (void) uv_timer_start(&conn->timer, on_timer, 0, 0);
}

int wire_call_start(struct wire_conn *conn, const char *path, const struct wire_metadata *metadata,
                    size_t n_metadata, uint64_t deadline_ms, unsigned flags,
                    const struct wire_call_ops *ops, void *ctx, struct wire_call **ret_call,
                    struct adv_err *err)
{
    struct wire_call *c = NULL;
    int r;

    if (conn->closing || (conn->state == WIRE_STATE_BACKOFF && !(flags & WIRE_CALL_WAIT_READY)))
        return adv_err_set(err, ADV_UNAVAILABLE, "not connected to %s", conn->cfg.target);
    r = call_new(path, metadata, n_metadata, &conn->cfg, ops, ctx, &c, err);
    if (r < 0)
        return r;
    c->flags = flags;
    c->on_gone = unlink_call;
    if (deadline_ms)
        c->deadline_mono_ms = now_ms() + (int64_t) (deadline_ms < 1u << 30 ? deadline_ms : 1u << 30);
    if (conn->state == WIRE_STATE_READY) {
        r = open_stream(conn, c, err);
        if (r < 0) {
            (void) call_unref(c);
            return r;
        }
    }
    c->conn = conn;
    c->next = conn->calls;
    if (c->next)
        c->next->prev = c;
    conn->calls = c;
    if (c->h2)
        push(conn);
    else
        rearm(conn);
    *ret_call = c;
    return 0;
}

int wire_call_send(struct wire_call *c, const void *data, size_t len, struct adv_err *err)
{
    uint8_t head[WIRE_FRAME_HEAD];

    if (c->half_closed || c->ended || !c->ops)
        return adv_err_set(err, ADV_FAILED_PRECONDITION, "the call takes no more messages");
    if (len > UINT32_MAX)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "message too long");
    if (c->out.len > 0 && c->out.len + len + WIRE_FRAME_HEAD > c->max_queue_bytes) {
        c->want_drained = true;
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "send queue full (%zu bytes)", c->out.len);
    }
    wire_frame_head(head, len);
    void *room = adv_buf_reserve(&c->out, len + WIRE_FRAME_HEAD);
    if (!room) {
        adv_buf_reset(&c->out);
        call_end(c, ADV_RESOURCE_EXHAUSTED, "no memory to send");
        push(c->conn);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory to send");
    }
    memcpy(room, head, sizeof(head));
    if (len)
        memcpy((uint8_t *) room + sizeof(head), data, len);
    adv_buf_commit(&c->out, len + WIRE_FRAME_HEAD);
    if (c->out.len > c->max_queue_bytes / 2)
        c->want_drained = true;
    wire_h2_kick(c);
    push(c->conn);
    return 0;
}

void wire_call_half_close(struct wire_call *c)
{
    c->half_closed = true;
    wire_h2_kick(c);
    push(c->conn);
}

struct wire_call *wire_call_cancel(struct wire_call *c)
{
    if (!c || !c->ops)
        return NULL;
    c->ops = NULL;
    push(c->conn);
    wire_h2_reset(c);
    unlink_call(c);
    return NULL;
}

void wire_call_pause(struct wire_call *c)
{
    c->paused = true;
}

void wire_call_resume(struct wire_call *c)
{
    (void) call_ref(c);
    c->paused = false;
    wire_h2_consumed(c, call_deliver(c));
    push(c->conn);
    (void) call_unref(c);
}

size_t wire_call_queued_bytes(const struct wire_call *c)
{
    return c->out.len;
}
