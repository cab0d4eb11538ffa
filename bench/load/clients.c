/* SPDX-License-Identifier: Apache-2.0 */
/* Callers and watchers; and what the control plane is compared with: bare TLS handshakes, bare syncs of a file. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/v1/fleet_service.pb-c.h"
#include "advisor/v1/watch_service.pb-c.h"
#include "bench/load/load.h"
#include "common/clock.h"

/* ---- a burst of unary calls ------------------------------------------------------------------------------------- */

struct burst {
    struct link *link;
    const char *path;
    unsigned inflight, open;
    const struct burst_ops *ops;
    void *ctx;
    struct samples *latency;
    unsigned long sent, answered;
    bool ended;
};

struct one {
    struct burst *b;
    int64_t sent_us;
};

static void burst_end(struct burst *b, const char *failed)
{
    const struct burst_ops *ops = b->ops;
    void *ctx = b->ctx;
    unsigned long answered = b->answered;

    if (b->ended)
        return;
    b->ended = true;
    (void) link_close(b->link);
    ops->done(ctx, answered, failed);
    /* calls that were open when it failed have gone without a word: their memory is the process's */
}

static void one_message(void *ctx, struct link_call *c, const uint8_t *data, size_t len)
{
}

static void burst_more(struct burst *b);

static void one_closed(void *ctx, struct link_call *c, const struct wire_status *st)
{
    struct one *o = ctx;
    struct burst *b = o->b;

    b->open--;
    if (b->latency)
        samples_add(b->latency, now_us() - o->sent_us);
    free(o);
    if (st->code != ADV_OK) {
        char why[160];
        (void) snprintf(why, sizeof(why), "%s: %.120s", adv_code_name((int) st->code), st->message);
        burst_end(b, why);
        return;
    }
    b->answered++;
    burst_more(b);
}

static const struct link_call_ops one_ops = { one_message, one_closed };

static void burst_more(struct burst *b)
{
    const uint8_t *bytes;
    size_t len;

    while (!b->ended && b->open < b->inflight && b->ops->next(b->ctx, b->sent, &bytes, &len)) {
        struct one *o = malloc(sizeof(*o));
        if (!o)
            die("no memory");
        *o = (struct one) { b, now_us() };
        b->sent++;
        b->open++;
        link_send(link_call(b->link, b->path, &one_ops, o), bytes, len, true);
    }
    if (!b->open)
        burst_end(b, NULL);
}

static void burst_ready(void *ctx)
{
    burst_more(ctx);
}

static void burst_lost(void *ctx, const char *why)
{
    struct burst *b = ctx;

    b->link = NULL;
    burst_end(b, why);
}

static const struct link_ops burst_link_ops = { burst_ready, burst_lost };

void burst(struct link_env *env, X509 *cert, const char *path, unsigned inflight, const struct burst_ops *ops, void *ctx,
           struct samples *latency)
{
    struct burst *b = calloc(1, sizeof(*b));

    if (!b)
        die("no memory");
    *b = (struct burst) { .path = path, .inflight = inflight, .ops = ops, .ctx = ctx, .latency = latency };
    b->link = link_open(env, cert, false, &burst_link_ops, b);
}

/* ---- unary ------------------------------------------------------------------------------------------------------ */

static struct {
    struct link_env env;
    struct samples latency;
    int64_t began_us, until_us;
    uint8_t bytes[256];
    size_t len;
    bool put;
    char path[128];
} un;

static bool unary_next(void *ctx, unsigned long i, const uint8_t **bytes, size_t *len)
{
    if (i == 0)
        un.began_us = now_us();
    if (un.put) /* etcd's PutRequest: key (1) of 8 bytes, value (2) of 200 */
        (void) snprintf((char *) un.bytes + 2, 9, "%08lx", random32() % 100000ul);
    if (un.put)
        un.bytes[10] = 0x12;
    *bytes = un.bytes;
    *len = un.len;
    return now_us() < un.until_us;
}

static void unary_done(void *ctx, unsigned long n, const char *failed)
{
    if (failed)
        die("unary %s: %s", un.path, failed);
    show("calls", (double) n);
    show("seconds", (double) (now_us() - un.began_us) / 1e6);
    samples_show(&un.latency, "call_ms");
    command_done();
}

static const struct burst_ops unary_ops = { unary_next, unary_done };

/* unary path=P inflight=N seconds=S [port=N] [plain=1] [cluster=N] [put=1]: calls P with a GetClusterRequest, or with
 * etcd's PutRequest. */
void cmd_unary(void)
{
    Advisor__V1__GetClusterRequest q = ADVISOR__V1__GET_CLUSTER_REQUEST__INIT;
    char name[64], id[32];
    long port = arg("port", 0);

    un.env = load.env;
    if (port)
        (void) uv_ip4_addr("127.0.0.1", (int) port, &un.env.addr);
    if (arg("plain", 0))
        un.env.tls = NULL;
    (void) snprintf(un.path, sizeof(un.path), "%s", arg_text("path", "/advisor.v1.FleetService/GetCluster"));
    (void) snprintf(name, sizeof(name), "clusters/%s", cluster_id((unsigned) arg("cluster", 0), id));
    q.name = name;
    un.len = advisor__v1__get_cluster_request__pack(&q, un.bytes);
    un.put = arg("put", 0) != 0;
    if (un.put) {
        memset(un.bytes, 'v', sizeof(un.bytes));
        memcpy(un.bytes, "\x0a\x08", 2);
        memcpy(un.bytes + 10, "\x12\xc8\x01", 3);
        un.len = 13 + 200;
    }
    un.until_us = now_us() + arg("seconds", 5) * 1000000;
    burst(&un.env, load.admin, un.path, (unsigned) arg("inflight", 64), &unary_ops, NULL, &un.latency);
}

/* ---- probe: calls at a fixed rate, whatever the answers do ------------------------------------------------------ */

static struct {
    struct link *link;
    uv_timer_t timer;
    bool timer_ready;
    struct samples latency;
    unsigned sent, answered, to_send;
    double rate;
    int64_t began_us;
    uint8_t bytes[256];
    size_t len;
} pr;

static void probe_closed(void *ctx, struct link_call *c, const struct wire_status *st)
{
    struct one *o = ctx;

    if (st->code != ADV_OK)
        die("probe: %s: %s", adv_code_name((int) st->code), st->message);
    samples_add(&pr.latency, now_us() - o->sent_us);
    free(o);
    if (++pr.answered < pr.to_send)
        return;
    (void) uv_timer_stop(&pr.timer);
    pr.link = link_close(pr.link);
    samples_show(&pr.latency, "probe_ms");
    command_done();
}

static const struct link_call_ops probe_ops = { one_message, probe_closed };

static void probe_tick(uv_timer_t *t)
{
    while (pr.sent < pr.to_send && (double) pr.sent < (double) (now_us() - pr.began_us) / 1e6 * pr.rate) {
        struct one *o = malloc(sizeof(*o));
        if (!o)
            die("no memory");
        *o = (struct one) { NULL, pr.began_us + (int64_t) ((double) pr.sent / pr.rate * 1e6) }; /* when it was due */
        pr.sent++;
        link_send(link_call(pr.link, "/advisor.v1.FleetService/GetCluster", &probe_ops, o), pr.bytes, pr.len, true);
    }
    link_flush(pr.link);
}

static void probe_ready(void *ctx)
{
    pr.began_us = now_us();
    if (!pr.timer_ready)
        (void) uv_timer_init(load.loop, &pr.timer);
    pr.timer_ready = true;
    (void) uv_timer_start(&pr.timer, probe_tick, 1, 1);
}

static void probe_lost(void *ctx, const char *why)
{
    die("probe: %s", why);
}

static const struct link_ops probe_link_ops = { probe_ready, probe_lost };

/* probe rate=R seconds=S: R calls a second. */
void cmd_probe(void)
{
    Advisor__V1__GetClusterRequest q = ADVISOR__V1__GET_CLUSTER_REQUEST__INIT;
    char name[64], id[32];

    (void) snprintf(name, sizeof(name), "clusters/%s", cluster_id(0, id));
    q.name = name;
    pr.len = advisor__v1__get_cluster_request__pack(&q, pr.bytes);
    pr.rate = (double) arg("rate", 100);
    pr.to_send = (unsigned) (pr.rate * (double) arg("seconds", 5));
    pr.sent = pr.answered = 0;
    pr.link = link_open(&load.env, load.admin, false, &probe_link_ops, NULL);
}

/* ---- watchers --------------------------------------------------------------------------------------------------- */

struct watcher {
    struct link *link;
    bool stalls, synced;
    uint64_t events;
};

static struct {
    struct watcher *v;
    unsigned n, opened, synced;
    char parent[64];
    int64_t began_us;
} wa;

static void open_watchers(void);

static void watch_message(void *ctx, struct link_call *c, const uint8_t *data, size_t len)
{
    struct watcher *w = ctx;
    /* type is the first field: SYNCED is 2 */
    bool synced = len >= 2 && data[0] == 0x08 && data[1] == ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_SYNCED;

    w->events++;
    if (!synced || w->synced)
        return;
    w->synced = true;
    if (w->stalls)
        link_stall(w->link);
    if (++wa.synced < wa.n) {
        open_watchers();
        return;
    }
    show("watchers", wa.n);
    show("seconds", (double) (now_us() - wa.began_us) / 1e6);
    command_done();
}

static void watch_closed(void *ctx, struct link_call *c, const struct wire_status *st)
{
    struct watcher *w = ctx;

    if (!w->stalls)
        die("a watcher was ended: %s: %s", adv_code_name((int) st->code), st->message);
}

static const struct link_call_ops watch_ops = { watch_message, watch_closed };

static void watch_ready(void *ctx)
{
    struct watcher *w = ctx;
    Advisor__V1__WatchRequest q = ADVISOR__V1__WATCH_REQUEST__INIT;
    const uint8_t *bytes;
    size_t n;

    q.parent = wa.parent;
    bytes = pack(&q.base, &n);
    link_send(link_call(w->link, "/advisor.v1.WatchService/Watch", &watch_ops, w), bytes, n, true);
}

static void watch_lost(void *ctx, const char *why)
{
    struct watcher *w = ctx;

    w->link = NULL;
    if (!w->stalls)
        die("a watcher was lost: %s", why);
}

static const struct link_ops watch_link_ops = { watch_ready, watch_lost };

static void open_watchers(void)
{
    while (wa.opened < wa.n && wa.opened - wa.synced < 8) {
        struct watcher *w = &wa.v[wa.opened++];
        w->stalls = arg("stalled", 0) != 0;
        w->link = link_open(&load.env, load.admin, false, &watch_link_ops, w);
    }
}

/* watch n=N parent=P stalled=0|1: N watchers, ready once each had the whole state; then they read, or hang. */
void cmd_watch(void)
{
    if (wa.v)
        die("watchers are there already");
    wa.n = (unsigned) arg("n", 1);
    wa.v = calloc(wa.n, sizeof(*wa.v));
    wa.opened = wa.synced = 0;
    (void) snprintf(wa.parent, sizeof(wa.parent), "%s", arg_text("parent", "clusters/-"));
    wa.began_us = now_us();
    if (!wa.v)
        die("no memory");
    open_watchers();
}

void cmd_unwatch(void)
{
    uint64_t events = 0;

    for (unsigned i = 0; i < wa.n; i++) {
        wa.v[i].stalls = true; /* whatever comes now is expected */
        events += wa.v[i].events;
        wa.v[i].link = link_close(wa.v[i].link);
    }
    show("events", (double) events);
    free(wa.v);
    wa.v = NULL;
    wa.n = 0;
    command_done();
}

/* ---- how late a watcher is told --------------------------------------------------------------------------------- */

static struct {
    struct link *link;
    uv_timer_t timer;
    bool timer_ready;
    char name[64];
    Advisor__V1__Mode mode; /* the one that is waited for */
    int64_t sent_us, period_us;
    unsigned told, wanted;
    struct samples latency;
} la;

static void lag_change_closed(void *ctx, struct link_call *c, const struct wire_status *st)
{
    if (st->code != ADV_OK)
        die("a change of the mode: %s: %s", adv_code_name((int) st->code), st->message);
}

static const struct link_call_ops lag_change_ops = { one_message, lag_change_closed };

static void lag_change(uv_timer_t *t)
{
    Advisor__V1__SetClusterModeRequest m = ADVISOR__V1__SET_CLUSTER_MODE_REQUEST__INIT;
    static struct one unused;
    const uint8_t *bytes;
    size_t n;

    la.mode = la.mode == ADVISOR__V1__MODE__MODE_ACT ? ADVISOR__V1__MODE__MODE_OBSERVE : ADVISOR__V1__MODE__MODE_ACT;
    m.name = la.name;
    m.mode = la.mode;
    bytes = pack(&m.base, &n);
    la.sent_us = now_us();
    link_send(link_call(la.link, "/advisor.v1.FleetService/SetClusterMode", &lag_change_ops, &unused), bytes, n, true);
    link_flush(la.link);
}

static void lag_next(void)
{
    int64_t left = la.sent_us + la.period_us - now_us();

    (void) uv_timer_start(&la.timer, lag_change, left > 0 ? (uint64_t) left / 1000 : 0, 0);
}

static void lag_message(void *ctx, struct link_call *c, const uint8_t *data, size_t len)
{
    Advisor__V1__WatchResponse *m = advisor__v1__watch_response__unpack(NULL, len, data);
    bool synced, changed;

    if (!m)
        die("a watch's message cannot be read");
    synced = m->type == ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_SYNCED;
    changed = m->type == ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_CHANGED && la.sent_us &&
              m->resource_case == ADVISOR__V1__WATCH_RESPONSE__RESOURCE_CLUSTER_RESOURCE && m->cluster_resource->mode == la.mode;
    advisor__v1__watch_response__free_unpacked(m, NULL);
    if (changed) {
        samples_add(&la.latency, now_us() - la.sent_us);
        la.told++;
    }
    if (la.told == la.wanted) {
        la.link = link_close(la.link);
        samples_show(&la.latency, "lag_ms");
        command_done();
    } else if (synced || changed) {
        lag_next();
    }
}

static void lag_closed(void *ctx, struct link_call *c, const struct wire_status *st)
{
    die("the watch was ended: %s: %s", adv_code_name((int) st->code), st->message);
}

static const struct link_call_ops lag_ops = { lag_message, lag_closed };

static void lag_ready(void *ctx)
{
    Advisor__V1__WatchRequest q = ADVISOR__V1__WATCH_REQUEST__INIT;
    Advisor__V1__ResourceKind kind = ADVISOR__V1__RESOURCE_KIND__RESOURCE_KIND_CLUSTER;
    const uint8_t *bytes;
    size_t n;

    q.parent = la.name;
    q.kinds = &kind;
    q.n_kinds = 1;
    bytes = pack(&q.base, &n);
    link_send(link_call(la.link, "/advisor.v1.WatchService/Watch", &lag_ops, NULL), bytes, n, true);
}

static const struct link_ops lag_link_ops = { lag_ready, probe_lost };

/* lag rate=R count=N cluster=C: N changes of a cluster's mode, at most R a second, each timed until a watcher is told. */
void cmd_lag(void)
{
    char id[32];

    (void) snprintf(la.name, sizeof(la.name), "clusters/%s", cluster_id((unsigned) arg("cluster", 0), id));
    la.period_us = 1000000 / arg("rate", 50);
    la.wanted = (unsigned) arg("count", 100);
    la.told = 0;
    la.sent_us = 0;
    la.mode = ADVISOR__V1__MODE__MODE_ACT;
    if (!la.timer_ready)
        (void) uv_timer_init(load.loop, &la.timer);
    la.timer_ready = true;
    la.link = link_open(&load.env, load.admin, false, &lag_link_ops, NULL);
}

/* ---- bare handshakes -------------------------------------------------------------------------------------------- */

static struct {
    struct link_env env;
    struct link **links;
    char *path;
    unsigned n, done;
    uint64_t lost;
    int64_t began_us;
} ba;

static void bare_connect(unsigned i);

static void bare_done(void)
{
    if (++ba.done < ba.n)
        return;
    show("handshakes", ba.n);
    show("seconds", (double) (now_us() - ba.began_us) / 1e6);
    show("lost", (double) ba.lost);
    for (unsigned k = 0; k < ba.n; k++)
        ba.links[k] = link_close(ba.links[k]);
    command_done();
}

static void bare_answered(void *ctx, struct link_call *c, const uint8_t *data, size_t len)
{
    (void) ctx, (void) c, (void) data, (void) len;
    bare_done();
}

static void bare_ended(void *ctx, struct link_call *c, const struct wire_status *st)
{
    (void) ctx, (void) c;
    if (ba.path && st->code != 0)
        die("%s: %s", ba.path, st->message);
}

static const struct link_call_ops bare_call_ops = { bare_answered, bare_ended };

static void bare_ready(void *ctx)
{
    unsigned i = (unsigned) (uintptr_t) ctx;

    if (ba.path)
        link_send(link_call(ba.links[i], ba.path, &bare_call_ops, NULL), "hello", 5, false);
    else
        bare_done();
}

static void bare_lost(void *ctx, const char *why)
{
    unsigned i = (unsigned) (uintptr_t) ctx;

    ba.links[i] = NULL;
    ba.lost++;
    bare_connect(i);
}

static const struct link_ops bare_ops = { bare_ready, bare_lost };

static void bare_connect(unsigned i)
{
    ba.links[i] = link_open(&ba.env, load.admin, !ba.path, &bare_ops, (void *) (uintptr_t) i);
}

/* bare n=N port=P [path=M]: N handshakes at once with bare-tls; with @path N connections to bare-grpc, each with a stream to
 * that method and an answer in it. */
void cmd_bare(void)
{
    const char *path = arg_text("path", "");

    free(ba.path);
    ba.path = *path ? strdup(path) : NULL;
    ba.n = (unsigned) arg("n", 1);
    ba.env = load.env;
    (void) uv_ip4_addr("127.0.0.1", (int) arg("port", 0), &ba.env.addr);
    free(ba.links);
    ba.links = calloc(ba.n, sizeof(*ba.links));
    if (!ba.links)
        die("no memory");
    ba.done = 0;
    ba.lost = 0;
    ba.began_us = now_us();
    for (unsigned i = 0; i < ba.n; i++)
        bare_connect(i);
}

/* ---- bare syncs ------------------------------------------------------------------------------------------------- */

/* fdatasync path=FILE seconds=S bytes=B: appends B bytes and syncs, one after the other. */
void cmd_fdatasync(void)
{
    const char *path = arg_text("path", "");
    size_t bytes = (size_t) arg("bytes", 512);
    char buf[65536];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int64_t began = now_us(), until = began + arg("seconds", 2) * 1000000;
    unsigned long n = 0;

    memset(buf, 'x', sizeof(buf));
    if (fd < 0 || bytes > sizeof(buf))
        die("%s: %s", path, strerror(errno));
    while (now_us() < until) {
        if (write(fd, buf, bytes) != (ssize_t) bytes || fdatasync(fd) < 0)
            die("%s: %s", path, strerror(errno));
        n++;
    }
    show("syncs", (double) n);
    show("seconds", (double) (now_us() - began) / 1e6);
    (void) close(fd);
    (void) unlink(path);
    command_done();
}
