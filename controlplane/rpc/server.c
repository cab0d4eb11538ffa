/* SPDX-License-Identifier: Apache-2.0 */

/* The server object and its end. Events come from the pump (pump.c), on the loop's thread, so all
 * state has one owner and no lock. A core's callback queue was tried and left: on Linux nobody
 * polls it.
 *
 * Inside of next() that thread also reads all sockets. None of them gets more than its turn, and one
 * whose frames cost too much is ended (accept.c). Likewise if somebody aborts too many calls
 * (resets.c); where these do not tell whose they are, the watch ends the connection that sends most,
 * and not messages.
 *
 * Stopping: shutdown (listener closes, live calls go on) -> grace -> cancel all -> the shutdown tag
 * comes and every call is released -> destroy server, give the pump back, close handles ->
 * stopped(). */

#include <dlfcn.h>
#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/rpc/accept.h"
#include "controlplane/rpc/internal.h"

#define N_ARMED                                                                                    \
    4 /* requests waiting for a call; one is enough, some spare a round through the loop */
#define SWEEP_MS         500
#define WATCH_MS         100
#define SUSPECT_BYTES    (32 << 10) /* sent between two looks without a message */
#define GRPC_LOG_PER_S   5 /* a failed handshake is a line: nobody may fill the disk */
#define DEFAULT_MAX_CONN 16384

/* One armed grpc_server_request_call. */
struct rpc_accept {
    struct rpc_tag tag;
    struct rpc_accept *next;
    struct rpc_server *srv;
    struct rpc_call *call;
};

static void advance(struct rpc_server *srv);

/* ---- process-wide ---- */

static unsigned int n_servers;

static void grpc_log(gpr_log_func_args *args)
{
    static struct adv_ratelimit rate;

    if (args->severity < GPR_LOG_SEVERITY_ERROR) {
        adv_debug("grpc", args->message, ADV_FS("file", args->file), ADV_FI("line", args->line));
        return;
    }
    if (adv_log_ratelimit(&rate, GRPC_LOG_PER_S))
        adv_warn("grpc", args->message, ADV_FS("file", args->file), ADV_FI("line", args->line),
                 ADV_FU("lines_held_back", adv_ratelimit_take_suppressed(&rate)));
}

static void raise_fd_limit(void)
{
    struct rlimit rl;

    if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < rl.rlim_max) {
        rl.rlim_cur = rl.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &rl);
    }
}

/* Debian builds abseil with its search for deadlocks switched on: every lock of core then walks a graph, a tenth of what a
 * call over TLS costs. The switch has no C name, and its C++ one has the version in it. */
static void spare_deadlock_search(void)
{
    void *symbol = NULL;
    void (*set)(int mode);
    char name[96];

    for (int n = 1; n < 100 && !symbol; n++) {
        (void) snprintf(name, sizeof(name), "_ZN4absl%ddebian%d29SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE",
                        n < 10 ? 7 : 8, n);
        symbol = dlsym(RTLD_DEFAULT, name);
    }
    if (!symbol)
        return;
    memcpy(&set, &symbol, sizeof(set));
    set(0); /* ignore */
}

static int process_init(const struct rpc_config *cfg, struct adv_err *err)
{
    if (n_servers == 0) {
        (void) signal(SIGPIPE, SIG_IGN);
        raise_fd_limit();
        gpr_set_log_function(grpc_log);
        spare_deadlock_search();
        int r = rpc_accept_configure(cfg->max_connections, err);
        if (r < 0)
            return r;
    }
    n_servers++;
    grpc_init();
    return 0;
}

static void process_done(void)
{
    grpc_shutdown_blocking();
    if (--n_servers == 0)
        rpc_accept_done();
}

/* ---- after a batch of events ---- */

static void after_batch(struct rpc_pumped *m)
{
    struct rpc_server *srv = ADV_CONTAINER_OF(m, struct rpc_server, pumped);

    rpc_call_half_closes(srv);
    rpc_accept_tick();
    advance(srv);
}

static void arm(struct rpc_accept *a);

static void on_accept(struct rpc_tag *tag, bool ok)
{
    struct rpc_accept *a = ADV_CONTAINER_OF(tag, struct rpc_accept, tag);
    struct rpc_server *srv = a->srv;
    struct rpc_call *call = a->call;

    a->call = NULL;
    if (!ok) {
        rpc_call_free_unstarted(call);
        for (struct rpc_accept **p = &srv->accepts; *p; p = &(*p)->next) {
            if (*p == a) {
                *p = a->next;
                break;
            }
        }
        free(a);
        return;
    }
    arm(a); /* before the handler runs: an unarmed server does not answer at all */
    rpc_call_begin(call);
}

/* Asks core for the next call. When it cannot, the sweep timer tries again. */
static void arm(struct rpc_accept *a)
{
    struct rpc_server *srv = a->srv;

    if (rpc_call_new(srv, &a->call) < 0)
        return;
    RPC_TAG_GIVE(&a->tag);
    grpc_call_error e = grpc_server_request_call(srv->server, &a->call->call, &a->call->details,
                                                 &a->call->metadata, srv->cq, srv->cq, &a->tag);
    if (e != GRPC_CALL_OK) {
        rpc_call_free_unstarted(a->call);
        a->call = NULL;
    }
}

static void on_watch(uv_timer_t *t)
{
    struct rpc_server *srv = t->data;
    char peer[RPC_ACCEPT_PEER_SIZE];

    if (!srv->suspicion)
        return;
    if (!srv->looked) {
        rpc_accept_look();
        srv->looked = true;
        return;
    }
    if (rpc_accept_kick_busiest(SUSPECT_BYTES, peer))
        adv_warn("rpc", "a client opens calls and aborts them at once: its connection is ended", ADV_FS("peer", peer));
    srv->looked = srv->suspicion = false;
}

static void on_sweep(uv_timer_t *t)
{
    struct rpc_server *srv = t->data;

    rpc_call_sweep(srv, adv_mono_us());
    rpc_resets_sweep(srv, adv_mono_us());
    for (struct rpc_accept *a = srv->accepts; a && !srv->stopping; a = a->next) {
        if (!a->call)
            arm(a);
    }
}

static void on_files(uv_timer_t *t)
{
    struct rpc_server *srv = t->data;
    struct adv_err err;

    if (rpc_tls_reload(srv->tls, true, &err) < 0)
        adv_warn("rpc", "new certificate files are not usable, the old certificate stays",
                 ADV_FS("error", err.msg));
}

int rpc_server_reload_tls(struct rpc_server *srv, struct adv_err *err)
{
    return srv->tls ? rpc_tls_reload(srv->tls, false, err) : 0;
}

/* ---- the end ---- */

static void one_closed(void *arg)
{
    struct rpc_server *srv = arg;

    if (--srv->open_handles == 0 && srv->stopped)
        srv->stopped(srv->stopped_user);
}

static void on_handle_closed(uv_handle_t *h)
{
    one_closed(h->data);
}

static void advance(struct rpc_server *srv)
{
    if (!srv->shut_down || srv->calls || srv->destroyed)
        return;
    srv->destroyed = true;
    for (struct rpc_accept *a = srv->accepts, *next; a; a = next) {
        next = a->next; /* those that were never armed again */
        free(a);
    }
    srv->accepts = NULL;
    grpc_server_destroy(srv->server);
    srv->server = NULL;
    rpc_pump_remove(srv->pump, &srv->pumped);
    rpc_pump_put(srv->pump, one_closed, srv);
    srv->pump = NULL;
    uv_close((uv_handle_t *) &srv->watch, on_handle_closed);
    uv_close((uv_handle_t *) &srv->sweep, on_handle_closed);
    uv_close((uv_handle_t *) &srv->files, on_handle_closed);
    uv_close((uv_handle_t *) &srv->grace, on_handle_closed);
}

static void on_shutdown(struct rpc_tag *tag, bool ok)
{
    struct rpc_server *srv = ADV_CONTAINER_OF(tag, struct rpc_server, shutdown_tag);

    (void) ok;
    srv->shut_down = true;
}

static void on_grace(uv_timer_t *t)
{
    struct rpc_server *srv = t->data;

    if (srv->server && !srv->shut_down)
        grpc_server_cancel_all_calls(srv->server);
}

void rpc_server_stop(struct rpc_server *srv, int grace_ms, void (*stopped)(void *user), void *user)
{
    if (srv->stopping)
        return;
    srv->stopping = true;
    srv->stopped = stopped;
    srv->stopped_user = user;
    rpc_health_all(srv, false);
    srv->shutdown_tag.fn = on_shutdown;
    RPC_TAG_GIVE(&srv->shutdown_tag);
    grpc_server_shutdown_and_notify(srv->server, srv->cq, &srv->shutdown_tag);
    (void) uv_timer_start(&srv->grace, on_grace, grace_ms > 0 ? (uint64_t) grace_ms : 0, 0);
}

/* ---- construction ---- */

static void or_default(int *v, int def)
{
    if (*v == 0)
        *v = def;
}

static void or_default_size(size_t *v, size_t def)
{
    if (*v == 0)
        *v = def;
}

static void fill_defaults(struct rpc_config *c)
{
    or_default(&c->tls_check_ms, 10000);
    or_default_size(&c->max_request_bytes, 4 << 20);
    or_default_size(&c->send_queue_bytes, 1 << 20);
    or_default_size(&c->send_queue_messages, 1024);
    or_default(&c->max_metadata_bytes, 16384);
    or_default(&c->max_concurrent_streams, 128);
    or_default_size(&c->max_connections, DEFAULT_MAX_CONN);
    or_default(&c->keepalive_time_ms, 30000);
    or_default(&c->keepalive_timeout_ms, 10000);
    or_default(&c->min_ping_interval_ms, 5000);
    or_default(&c->handshake_timeout_ms, 10000);
    or_default(&c->flush_timeout_ms, 20000);
    or_default(&c->request_timeout_ms, 30000);
    or_default(&c->max_aborted_calls, 500);
}

static int add_methods(struct rpc_server *srv, const struct rpc_method *table, size_t n,
                       bool builtin, size_t *at, struct adv_err *err)
{
    for (size_t i = 0; i < n; i++) {
        struct rpc_entry *e = &srv->entries[*at], *there = NULL;

        e->method = table[i];
        e->builtin = builtin;
        or_default_size(&e->method.max_request_bytes, srv->cfg.max_request_bytes);
        or_default_size(&e->method.send_queue_bytes, srv->cfg.send_queue_bytes);
        or_default_size(&e->method.send_queue_messages, srv->cfg.send_queue_messages);
        HASH_FIND_STR(srv->methods, table[i].path, there);
        if (there || table[i].path[0] != '/' || !table[i].request || !table[i].response ||
            !table[i].on_message)
            return adv_err_set(err, ADV_INVALID_ARGUMENT,
                               "%s: bad or double row in the method table", table[i].path);
        HASH_ADD_KEYPTR(hh, srv->methods, e->method.path, strlen(e->method.path), e);
        (*at)++;
    }
    return 0;
}

static int build_table(struct rpc_server *srv, const struct rpc_method *table, size_t n,
                       struct adv_err *err)
{
    size_t at = 0;

    srv->entries =
        calloc(n + rpc_n_health_methods + rpc_n_reflection_methods, sizeof(*srv->entries));
    if (!srv->entries)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    int r = add_methods(srv, table, n, false, &at, err);
    if (r == 0)
        r = add_methods(srv, rpc_health_methods, rpc_n_health_methods, true, &at, err);
    if (r == 0)
        r = rpc_health_new(srv, err);
    if (r == 0 && srv->cfg.descriptor_set) {
        r = add_methods(srv, rpc_reflection_methods, rpc_n_reflection_methods, false, &at, err);
        if (r == 0)
            r = rpc_reflection_new(srv, table, n, err);
    }
    return r;
}

static int max_request(const struct rpc_server *srv)
{
    size_t max = 0;

    for (const struct rpc_entry *e = srv->methods; e; e = e->hh.next)
        max = e->method.max_request_bytes > max ? e->method.max_request_bytes : max;
    return max > INT32_MAX ? INT32_MAX : (int) max;
}

static grpc_arg int_arg(const char *key, int value)
{
    grpc_arg a = { .type = GRPC_ARG_INTEGER, .key = (char *) (uintptr_t) key };

    a.value.integer = value;
    return a;
}

static grpc_server *create_server(const struct rpc_server *srv)
{
    const struct rpc_config *c = &srv->cfg;
    grpc_arg args[] = {
        int_arg(GRPC_ARG_ALLOW_REUSEPORT,
                0), /* the default lets two servers share a port without a word */
        int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, c->max_concurrent_streams),
        int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max_request(srv)),
        int_arg(GRPC_ARG_MAX_METADATA_SIZE, c->max_metadata_bytes),
        int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION,
                0), /* it inflates before it checks the size */
        int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, c->keepalive_time_ms),
        int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, c->keepalive_timeout_ms),
        int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0), /* ours: as many as keepalive wants */
        int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, c->min_ping_interval_ms),
        int_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, c->handshake_timeout_ms),
        int_arg(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, RPC_ACCEPT_TURN_BYTES),
        int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
        int_arg(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                c->max_connection_age_ms ? c->max_connection_age_ms : INT32_MAX),
    };
    const grpc_channel_args list = { .num_args = ADV_ARRAY_LEN(args), .args = args };

    return grpc_server_create(&list, NULL);
}

static bool is_unix(const char *addr)
{
    return adv_startswith(addr, "unix:");
}

bool rpc_address_is_local(const char *addr)
{
    static const char *const hosts[] = { "127.", "[::1]:", "localhost:" };

    for (size_t i = 0; i < ADV_ARRAY_LEN(hosts); i++) {
        if (adv_startswith(addr,
                           hosts[i])) /* "127.evil.example:1" is no address: digits and dots only */
            return hosts[i][0] != '1' || addr[strspn(addr, "0123456789.")] == ':';
    }
    return is_unix(addr);
}

/* Core unlinks and takes over the socket of a live server; a lock beside it prevents that. */
static int lock_unix(const char *addr, int *ret_fd, struct adv_err *err)
{
    const char *path = addr + strlen("unix:");
    char lock[256];
    int n = snprintf(lock, sizeof(lock), "%s.lock", path);

    if (n < 0 || (size_t) n >= sizeof(lock))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "listen: %.100s: path is too long", addr);
    adv_auto_close int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "listen: %.180s", lock);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return adv_err_set(err, ADV_UNAVAILABLE, "listen: %.180s: another server listens there", addr);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

static int listen_on(struct rpc_server *srv, size_t i, const char *addr, struct adv_err *err)
{
    if (srv->cfg.insecure && !rpc_address_is_local(addr))
        return adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "listen: %.100s: without TLS only loopback and unix addresses are served; set "
                           "certificate, key and CA",
                           addr);
    if (is_unix(addr)) {
        int r = lock_unix(addr, &srv->lock_fds[i], err);

        if (r < 0)
            return r;
    }
    grpc_server_credentials *creds = srv->cfg.insecure ? grpc_insecure_server_credentials_create()
                                                       : rpc_tls_credentials(srv->tls);
    if (!creds)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    int port = grpc_server_add_http2_port(srv->server, addr, creds);
    grpc_server_credentials_release(creds);
    if (port == 0)
        return adv_err_set(err, ADV_UNAVAILABLE,
                           "listen: %.100s: cannot listen (address in use, or not one of this machine)",
                           addr);
    srv->ports[i] = is_unix(addr) ? 0 : port;
    return 0;
}

/* The last step of construction: after it nothing can fail. */
static void start(struct rpc_server *srv)
{
    (void) uv_timer_init(srv->loop, &srv->watch);
    (void) uv_timer_init(srv->loop, &srv->sweep);
    (void) uv_timer_init(srv->loop, &srv->files);
    (void) uv_timer_init(srv->loop, &srv->grace);
    srv->open_handles = 5; /* the pump is one */
    srv->watch.data = srv->sweep.data = srv->files.data = srv->grace.data = srv;
    (void) uv_timer_start(&srv->watch, on_watch, WATCH_MS, WATCH_MS);
    (void) uv_timer_start(&srv->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    if (srv->tls)
        (void) uv_timer_start(&srv->files, on_files, (uint64_t) srv->cfg.tls_check_ms,
                              (uint64_t) srv->cfg.tls_check_ms);
    srv->started = true;
    srv->pumped.after = after_batch;
    rpc_pump_add(srv->pump, &srv->pumped);
    grpc_server_start(srv->server);
    for (struct rpc_accept *a = srv->accepts; a; a = a->next)
        arm(a);
}

/* A server that was never started: no handles. */
static void dismantle(struct rpc_server *srv)
{
    if (srv->server) {
        srv->shutdown_tag.fn = on_shutdown;
        RPC_TAG_GIVE(&srv->shutdown_tag);
        grpc_server_shutdown_and_notify(srv->server, srv->cq, &srv->shutdown_tag);
        rpc_pump_wait(srv->pump, &srv->shut_down);
        grpc_server_destroy(srv->server);
    }
    if (srv->pump)
        rpc_pump_put(srv->pump, NULL, NULL);
    srv->server = NULL;
    srv->pump = NULL;
}

struct rpc_server *rpc_server_free(struct rpc_server *srv)
{
    if (!srv)
        return NULL;
    dismantle(srv);
    for (struct rpc_accept *a = srv->accepts, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    rpc_certs_free(srv);
    rpc_reflection_free(srv);
    rpc_health_free(srv);
    rpc_resets_free(srv);
    HASH_CLEAR(hh, srv->methods);
    free(srv->entries);
    process_done();
    (void) rpc_tls_free(srv->tls); /* after grpc_shutdown: a last handshake may still ask for it */
    for (size_t i = 0; i < srv->n_listen; i++)
        adv_cleanup_close(&srv->lock_fds[i]);
    free(srv->lock_fds);
    free(srv->ports);
    free(srv);
    return NULL;
}

int rpc_server_new(uv_loop_t *loop, const struct rpc_config *config, const struct rpc_method *table,
                   size_t n_table, struct rpc_server **ret, struct adv_err *err)
{
    struct rpc_server *srv = calloc(1, sizeof(*srv));
    int *ports = calloc(config->n_listen + 1, sizeof(*ports));
    int *lock_fds = calloc(config->n_listen + 1, sizeof(*lock_fds));
    int r = 0;

    if (srv) {
        srv->cfg = *config;
        fill_defaults(&srv->cfg);
    }
    if (!srv || !ports || !lock_fds)
        r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    else if (config->n_listen == 0)
        r = adv_err_set(err, ADV_INVALID_ARGUMENT, "no address to listen on");
    else
        r = process_init(&srv->cfg, err);
    if (r < 0) {
        free(srv);
        free(ports);
        free(lock_fds);
        return r;
    }
    srv->loop = loop;
    srv->ports = ports;
    srv->lock_fds = lock_fds;
    srv->n_listen = config->n_listen;
    for (size_t i = 0; i < srv->n_listen; i++)
        lock_fds[i] = -1;

    r = build_table(srv, table, n_table, err);
    if (r == 0 && !config->insecure)
        r = rpc_tls_new(config, &srv->tls, err);
    if (r == 0)
        r = rpc_pump_get(loop, &srv->pump, err);
    if (r == 0) {
        srv->cq = rpc_pump_cq(srv->pump);
        srv->server = create_server(srv);
        grpc_server_register_completion_queue(srv->server, srv->cq, NULL);
    }
    for (size_t i = 0; r == 0 && i < srv->n_listen; i++)
        r = listen_on(srv, i, config->listen[i], err);
    for (int i = 0; r == 0 && i < N_ARMED; i++) {
        struct rpc_accept *a = calloc(1, sizeof(*a));

        if (!a) {
            r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
            break;
        }
        *a = (struct rpc_accept){ .tag = { on_accept }, .next = srv->accepts, .srv = srv };
        srv->accepts = a;
    }
    if (r < 0) {
        (void) rpc_server_free(srv);
        return r;
    }
    start(srv);
    *ret = srv;
    return 0;
}

/* ---- questions ---- */

void rpc_server_wake(struct rpc_server *srv)
{
    rpc_pump_wake(srv->pump);
}

int rpc_server_port(const struct rpc_server *srv, size_t i)
{
    return i < srv->n_listen ? srv->ports[i] : 0;
}

void rpc_server_stats(const struct rpc_server *srv, struct rpc_stats *ret)
{
    struct rpc_accept_stats a;

    rpc_accept_stats(&a);
    *ret = srv->stats;
    ret->connections_accepted = a.accepted;
    ret->connections_over_cap = a.over_cap;
    ret->accept_out_of_fds = a.out_of_fds;
    ret->connections_kicked = a.kicked;
}
