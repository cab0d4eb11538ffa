/* SPDX-License-Identifier: Apache-2.0 */

/* A small server on top of rpc.h for the tests beside it. Prints "PORT n" for each address and
 * "READY"; SIGTERM stops it gracefully (exit 0 when everything was released), SIGHUP reloads the
 * certificate. */

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <uv.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/num.h"
#include "controlplane/rpc/rpc.h"
#include "rpc_test.pb-c.h"

extern const unsigned char rpc_test_descriptor_set[];
extern const size_t rpc_test_descriptor_set_len;

typedef Advisor__Test__V1__EchoRequest echo_t;
typedef Advisor__Test__V1__EchoResponse echoed_t;
typedef Advisor__Test__V1__CountRequest count_t;
typedef Advisor__Test__V1__CountResponse counted_t;

static uv_loop_t *loop;
static struct rpc_server *server;
static uint64_t opened, closed, half_closes, queued_max;
static int grace_ms = 500;

static void on_open(struct rpc_call *call)
{
    (void) call;
    opened++;
}

static void on_closed(struct rpc_call *call, bool cancelled)
{
    (void) cancelled;
    closed++;
    free(rpc_call_user(call));
    rpc_call_set_user(call, NULL);
}

/* ---- Echo: answers now, later, or with an error ---- */

struct later {
    uv_timer_t timer;
    struct rpc_call *call;
    char *text;
};

static void later_closed(uv_handle_t *h)
{
    struct later *l = h->data;

    free(l->text);
    free(l);
}

static void later_fire(uv_timer_t *t)
{
    struct later *l = t->data;
    echoed_t res = ADVISOR__TEST__V1__ECHO_RESPONSE__INIT;

    res.text = l->text;
    rpc_call_reply(l->call, &res.base); /* harmless when it has ended */
    (void) rpc_call_unref(l->call);
    uv_close((uv_handle_t *) t, later_closed);
}

static void echo(struct rpc_call *call, const ProtobufCMessage *msg)
{
    const echo_t *req = (const echo_t *) msg;
    echoed_t res = ADVISOR__TEST__V1__ECHO_RESPONSE__INIT;

    if (req->code) {
        struct adv_err err;

        (void) adv_err_set_reason(&err, (enum adv_code) req->code, "TEST_REASON", "%s", req->text);
        (void) adv_err_field(&err, "%s", req->field);
        err.retry_after_ms = req->retry_after_ms;
        rpc_call_fail(call, &err);
        return;
    }
    if (req->delay_ms) {
        struct later *l = calloc(1, sizeof(*l));

        l->text = strdup(req->text);
        l->call = rpc_call_ref(call);
        (void) uv_timer_init(loop, &l->timer);
        l->timer.data = l;
        (void) uv_timer_start(&l->timer, later_fire, (uint64_t) req->delay_ms, 0);
        return;
    }
    res.text = req->text;
    res.bytes = req->data.len;
    rpc_call_reply(call, &res.base);
}

static void who(struct rpc_call *call, const ProtobufCMessage *msg)
{
    const struct rpc_peer *p = rpc_call_peer(call);
    Advisor__Test__V1__WhoResponse res = ADVISOR__TEST__V1__WHO_RESPONSE__INIT;
    char *sans[64];
    size_t len = 0;
    const char *tok = rpc_call_metadata(call, "authorization", &len);
    int64_t d = rpc_call_deadline_mono_us(call);
    adv_auto_free char *token = strndup(tok ? tok : "", len);

    (void) msg;
    res.authenticated = p->authenticated;
    res.common_name = (char *) (uintptr_t) p->common_name;
    for (size_t i = 0; i < p->n_sans; i++)
        sans[i] = (char *) (uintptr_t) p->sans[i];
    res.n_sans = p->n_sans;
    res.sans = sans;
    res.address = (char *) (uintptr_t) p->address;
    res.cert_sha256 = (char *) (uintptr_t) p->cert_sha256;
    res.deadline_ms = d == INT64_MAX ? -1 : (d - adv_mono_us()) / 1000;
    res.token = token;
    rpc_call_reply(call, &res.base);
}

static void stats(struct rpc_call *call, const ProtobufCMessage *msg)
{
    Advisor__Test__V1__StatsResponse res = ADVISOR__TEST__V1__STATS_RESPONSE__INIT;
    struct rpc_stats s;
    struct rusage ru;

    (void) msg;
    rpc_server_stats(server, &s);
    (void) getrusage(RUSAGE_SELF, &ru);
    res.calls_live = s.calls_live;
    res.calls_cancelled = s.calls_cancelled;
    res.calls_refused = s.calls_refused;
    res.half_closes = half_closes;
    res.closed = closed;
    res.opened = opened;
    res.peak_rss_kb = (uint64_t) ru.ru_maxrss;
    res.out_of_fds = s.accept_out_of_fds;
    res.over_cap = s.connections_over_cap;
    res.kicked = s.connections_kicked;
    res.queued_bytes_max = queued_max;
    rpc_call_reply(call, &res.base);
}

/* ---- Count: as much as the queue takes, the rest when it drains ---- */

struct counter {
    int i, n, size;
};

static void count_more(struct rpc_call *call)
{
    struct counter *c = rpc_call_user(call);

    if (!c)
        return;
    adv_auto_free uint8_t *pad = calloc(1, (size_t) c->size + 1);

    for (; c->i < c->n; c->i++) {
        counted_t res = ADVISOR__TEST__V1__COUNT_RESPONSE__INIT;

        res.i = c->i;
        res.padding.data = pad;
        res.padding.len = (size_t) c->size;
        int r = rpc_stream_send(call, &res.base);
        if (rpc_stream_queued_bytes(call) > queued_max)
            queued_max = rpc_stream_queued_bytes(call);
        if (r < 0)
            return; /* on_writable comes */
    }
    rpc_stream_finish(call);
}

/* A source with a pace of its own, as a watch is: who does not keep up is cut off. */
struct ticker {
    uv_timer_t timer;
    struct rpc_call *call;
    struct counter c;
};

static void ticker_closed(uv_handle_t *h)
{
    free(h->data);
}

static void tick(uv_timer_t *t)
{
    struct ticker *k = t->data;
    adv_auto_free uint8_t *pad = calloc(1, (size_t) k->c.size + 1);
    int r = 0;

    for (int burst = 0; burst < 10 && r == 0; burst++) {
        counted_t res = ADVISOR__TEST__V1__COUNT_RESPONSE__INIT;

        res.padding.data = pad;
        res.padding.len = (size_t) k->c.size;
        r = rpc_stream_send(k->call, &res.base);
    }
    if (rpc_stream_queued_bytes(k->call) > queued_max)
        queued_max = rpc_stream_queued_bytes(k->call);
    if (r == -ADV_RESOURCE_EXHAUSTED) {
        struct adv_err err;

        (void) adv_err_set_reason(&err, ADV_RESOURCE_EXHAUSTED, "SLOW_WATCHER", "too slow");
        rpc_call_fail(k->call, &err);
    }
    if (r < 0) {
        k->call = rpc_call_unref(k->call);
        uv_close((uv_handle_t *) t, ticker_closed);
    }
}

static void count_ticking(struct rpc_call *call, const count_t *req)
{
    struct ticker *k = calloc(1, sizeof(*k));

    k->c.size = req->size;
    k->call = rpc_call_ref(call);
    (void) uv_timer_init(loop, &k->timer);
    k->timer.data = k;
    (void) uv_timer_start(&k->timer, tick, 5, 5);
}

static void count(struct rpc_call *call, const ProtobufCMessage *msg)
{
    const count_t *req = (const count_t *) msg;
    if (req->stop_when_full) {
        count_ticking(call, req);
        return;
    }
    struct counter *c = calloc(1, sizeof(*c));
    *c = (struct counter){ 0, req->n, req->size };
    rpc_call_set_user(call, c);
    count_more(call);
}

/* One encoded message for all. */
static void broadcast(struct rpc_call *call, const ProtobufCMessage *msg)
{
    const count_t *req = (const count_t *) msg;
    counted_t res = ADVISOR__TEST__V1__COUNT_RESPONSE__INIT;

    res.i = 7;
    struct rpc_bytes *b = rpc_bytes_new(&res.base);
    for (int i = 0; i < req->n && rpc_stream_send_bytes(call, b) == 0; i++)
        ;
    (void) rpc_bytes_unref(b);
    rpc_stream_finish(call);
}

/* ---- Sum, Chat ---- */

static void sum_open(struct rpc_call *call)
{
    opened++;
    rpc_call_set_user(call, calloc(1, sizeof(uint64_t)));
}

static void sum(struct rpc_call *call, const ProtobufCMessage *msg)
{
    uint64_t *n = rpc_call_user(call);

    *n += ((const echo_t *) msg)->data.len;
    (void) rpc_stream_read_next(call);
}

static void sum_end(struct rpc_call *call)
{
    echoed_t res = ADVISOR__TEST__V1__ECHO_RESPONSE__INIT;

    half_closes++;
    res.bytes = *(uint64_t *) rpc_call_user(call);
    rpc_call_reply(call, &res.base);
}

static void chat(struct rpc_call *call, const ProtobufCMessage *msg)
{
    const echo_t *req = (const echo_t *) msg;
    echoed_t res = ADVISOR__TEST__V1__ECHO_RESPONSE__INIT;

    if (strcmp(req->text, "bye") == 0) {
        rpc_stream_finish(call);
        return;
    }
    res.text = req->text;
    if (rpc_stream_send(call, &res.base) == 0)
        (void) rpc_stream_read_next(call);
}

static void chat_end(struct rpc_call *call)
{
    half_closes++;
    rpc_stream_finish(call);
}

#define ROW(name, k, req, res, ...)                                                                \
    {                                                                                              \
        .path = "/advisor.test.v1.TestService/" name, .kind = k,                                   \
        .request = &advisor__test__v1__##req##__descriptor,                                        \
        .response = &advisor__test__v1__##res##__descriptor, .on_closed = on_closed, __VA_ARGS__   \
    }

static const struct rpc_method table[] = {
    ROW("Echo", RPC_UNARY, echo_request, echo_response, .on_open = on_open, .on_message = echo,
        .max_request_bytes = 1 << 20),
    ROW("Who", RPC_UNARY, stats_request, who_response, .on_open = on_open, .on_message = who),
    ROW("Stats", RPC_UNARY, stats_request, stats_response, .on_open = on_open, .on_message = stats),
    ROW("Forbidden", RPC_UNARY, stats_request, stats_response, .on_open = on_open,
        .on_message = stats),
    ROW("Count", RPC_SERVER_STREAM, count_request, count_response, .on_open = on_open,
        .on_message = count, .on_writable = count_more),
    ROW("Broadcast", RPC_SERVER_STREAM, count_request, count_response, .on_open = on_open,
        .on_message = broadcast),
    ROW("Sum", RPC_CLIENT_STREAM, echo_request, echo_response, .on_open = sum_open,
        .on_message = sum, .on_half_close = sum_end),
    ROW("Chat", RPC_BIDI, echo_request, echo_response, .on_open = on_open, .on_message = chat,
        .on_half_close = chat_end),
};

static int authorize(void *user, struct rpc_call *call, struct adv_err *err)
{
    (void) user;
    if (strstr(rpc_call_method(call)->path, "/Forbidden"))
        return adv_err_set_reason(err, ADV_PERMISSION_DENIED, "NOT_ALLOWED", "not for you");
    return 0;
}

static uv_signal_t sig_term, sig_hup;

static void on_stopped(void *user)
{
    (void) user;
    uv_close((uv_handle_t *) &sig_term, NULL);
    uv_close((uv_handle_t *) &sig_hup, NULL);
}

static void on_signal(uv_signal_t *h, int signum)
{
    struct adv_err err = { 0 };

    (void) h;
    if (signum == SIGTERM)
        rpc_server_stop(server, grace_ms, on_stopped, NULL);
    else
        printf("RELOAD %s\n", rpc_server_reload_tls(server, &err) < 0 ? err.msg : "ok");
    (void) fflush(stdout);
}

static int number(const char *text)
{
    int64_t v = 0;

    if (adv_parse_i64(text, 0, INT32_MAX, &v, NULL) < 0)
        exit(2);
    return (int) v;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "listen", 1, NULL, 'l' },
        { "insecure", 0, NULL, 'i' },
        { "cert", 1, NULL, 'c' },
        { "key", 1, NULL, 'k' },
        { "ca", 1, NULL, 'a' },
        { "optional-cert", 0, NULL, 'o' },
        { "max-conn", 1, NULL, 'm' },
        { "queue-bytes", 1, NULL, 'q' },
        { "max-streams", 1, NULL, 's' },
        { "fd-limit", 1, NULL, 'f' },
        { "flush-ms", 1, NULL, 'F' },
        { "grace-ms", 1, NULL, 'g' },
        { "keepalive-ms", 1, NULL, 'K' },
        { "tls-check-ms", 1, NULL, 't' },
        { "handshake-ms", 1, NULL, 'H' },
        { "request-ms", 1, NULL, 'r' },
        { NULL, 0, NULL, 0 },
    };
    const char *listen[8];
    struct rpc_config cfg = {
        .listen = listen,
        .descriptor_set = rpc_test_descriptor_set,
        .descriptor_set_len = rpc_test_descriptor_set_len,
        .authorize = authorize,
    };
    struct adv_err err = { 0 };
    int opt, fd_limit = 0;

    loop = uv_default_loop();
    while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 'l':
            if (cfg.n_listen < ADV_ARRAY_LEN(listen))
                listen[cfg.n_listen++] = optarg;
            break;
        case 'i':
            cfg.insecure = true;
            break;
        case 'c':
            cfg.cert_file = optarg;
            break;
        case 'k':
            cfg.key_file = optarg;
            break;
        case 'a':
            cfg.ca_file = optarg;
            break;
        case 'o':
            cfg.client_cert = RPC_CLIENT_CERT_OPTIONAL;
            break;
        case 'm':
            cfg.max_connections = (size_t) number(optarg);
            break;
        case 'q':
            cfg.send_queue_bytes = (size_t) number(optarg);
            break;
        case 's':
            cfg.max_concurrent_streams = number(optarg);
            break;
        case 'f':
            fd_limit = number(optarg);
            break;
        case 'F':
            cfg.flush_timeout_ms = number(optarg);
            break;
        case 'g':
            grace_ms = number(optarg);
            break;
        case 'K':
            cfg.keepalive_time_ms = cfg.keepalive_timeout_ms = number(optarg);
            break;
        case 't':
            cfg.tls_check_ms = number(optarg);
            break;
        case 'H':
            cfg.handshake_timeout_ms = number(optarg);
            break;
        case 'r':
            cfg.request_timeout_ms = number(optarg);
            break;
        default:
            return 2;
        }
    }
    if (fd_limit) {
        const struct rlimit rl = { (rlim_t) fd_limit, (rlim_t) fd_limit };

        (void) setrlimit(RLIMIT_NOFILE, &rl);
    }
    if (rpc_server_new(loop, &cfg, table, ADV_ARRAY_LEN(table), &server, &err) < 0) {
        (void) fprintf(stderr, "ERROR %s: %s\n", adv_code_name((int) err.code), err.msg);
        (void) uv_run(loop, UV_RUN_DEFAULT);
        (void) uv_loop_close(loop);
        return 1;
    }
    for (size_t i = 0; i < cfg.n_listen; i++)
        printf("PORT %d\n", rpc_server_port(server, i));
    (void) uv_signal_init(loop, &sig_term);
    (void) uv_signal_init(loop, &sig_hup);
    (void) uv_signal_start(&sig_term, on_signal, SIGTERM);
    (void) uv_signal_start(&sig_hup, on_signal, SIGHUP);
    printf("READY\n");
    (void) fflush(stdout);
    (void) uv_run(loop, UV_RUN_DEFAULT);
    server = rpc_server_free(server);
    return uv_loop_close(loop) == 0 && opened == closed ? 0 : 3;
}
