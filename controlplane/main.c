/* SPDX-License-Identifier: Apache-2.0 */
/* advisord: puts the parts together and takes them apart in order.
 *
 * Stop (SIGTERM, SIGINT): agents and watchers are told to come back, calls under way end, the last turn is committed,
 * the store is closed. A second signal exits at once; that is as safe as a crash, which is safe. */

#include <signal.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/uuid.h"
#include "controlplane/watcher/pattern.h"
#include "controlplane/api/api.h"
#include "controlplane/attribute.h"
#include "controlplane/auth/ca.h"
#include "controlplane/config.h"
#include "controlplane/feed.h"
#include "controlplane/rpc/serve.h"
#include "controlplane/storetool.h"

#ifdef ADVISOR_JEMALLOC
/* jemalloc reads this by its name. One thread does nearly everything here: more arenas only keep more unused memory. */
extern const char *malloc_conf;
const char *malloc_conf = "narenas:2,dirty_decay_ms:5000,muzzy_decay_ms:0";
#endif

struct daemon {
    uv_loop_t *loop;
    struct adv_config *config;
    struct store *store;
    struct turn *turn;
    struct owner *owner;
    struct watcher_rules *rules;
    struct auth *auth;
    struct ca *agent_ca;
    struct adv_ed25519 *audit_key;
    struct api *api;
    struct feed *feed;
    struct attribute *attribute;
    struct serve *serve;
    uv_signal_t term, intr, hup;
    struct turn_observer store_seen; /* for health */
    uv_timer_t calm;
    uint64_t loaded_at; /* newest change when the store was loaded again */
    bool stopping;
    bool loading_rules, load_rules_again;
};

#define CALM_MS 10000

static const struct advisord_config *values(const struct daemon *d)
{
    return adv_config_values(d->config);
}

/* grpc.health.v1 says whether to come here: not while the store cannot be written. Nobody who was sent elsewhere would
 * try, so besides a commit that went through, CALM_MS without a failure after the store was loaded count as well. */
static void set_health(struct daemon *d, bool serving)
{
    struct adv_err err = { 0 };

    if (d->serve && !d->stopping && rpc_health_set(serve_server(d->serve), "", serving, &err) < 0)
        adv_warn("main", "health is not told", ADV_FS("why", err.msg));
}

static void store_written(struct turn_observer *o)
{
    struct daemon *d = ADV_CONTAINER_OF(o, struct daemon, store_seen);

    if (turn_watchlog(d->turn)->last == d->loaded_at)
        return; /* a turn that had nothing to store */
    (void) uv_timer_stop(&d->calm);
    set_health(d, true);
}

static void store_lost(struct turn_observer *o)
{
    struct daemon *d = ADV_CONTAINER_OF(o, struct daemon, store_seen);

    (void) uv_timer_stop(&d->calm);
    set_health(d, false);
}

static void calm_cb(uv_timer_t *h)
{
    set_health(h->data, true);
}

static void store_loaded(struct turn_observer *o)
{
    struct daemon *d = ADV_CONTAINER_OF(o, struct daemon, store_seen);

    d->loaded_at = turn_watchlog(d->turn)->last;
    if (!d->stopping)
        (void) uv_timer_start(&d->calm, calm_cb, CALM_MS, 0);
}

static void turn_stopped(void *arg)
{
    struct daemon *d = arg;

    uv_close((uv_handle_t *) &d->calm, NULL);
    attribute_free(ADV_STEAL(d->attribute));
    d->serve = serve_free(d->serve);
    d->auth = auth_free(d->auth);
    d->feed = feed_free(d->feed);
    api_free(d->api);
    owner_free(d->owner);
    turn_free(d->turn);
    uv_close((uv_handle_t *) &d->term, NULL);
    uv_close((uv_handle_t *) &d->intr, NULL);
    uv_close((uv_handle_t *) &d->hup, NULL);
}

static void owner_stopped(void *arg)
{
    struct daemon *d = arg;

    turn_stop(d->turn, turn_stopped, d);
}

static void serve_stopped(void *arg)
{
    struct daemon *d = arg;

    owner_stop(d->owner, owner_stopped, d);
}

static void on_stop(uv_signal_t *h, int signum)
{
    struct daemon *d = h->data;

    if (d->stopping)
        _exit(128 + signum);
    d->stopping = true;
    (void) uv_timer_stop(&d->calm);
    store_set_wake(d->store, NULL, NULL);
    adv_info("main", "stopping", ADV_FI("signal", signum));
    feed_stop(d->feed);
    attribute_stop(d->attribute);
    api_stop(d->api);
    serve_stop(d->serve, (int) values(d)->stop_grace_ms, serve_stopped, d);
}

static struct quota_config quota_of(const struct advisord_config *c)
{
    return (struct quota_config) { .in_flight = (uint32_t) c->calls_in_flight,
                                   .per_second = (uint32_t) c->calls_per_second,
                                   .burst = (uint32_t) c->calls_burst };
}

static int set_enrol(struct daemon *d, struct adv_err *err)
{
    const struct advisord_config *c = values(d);
    const struct api_enrol e = { .ca = d->agent_ca,
                                 .cert_life_ms = c->agent_cert_life_ms,
                                 .servers = c->enrol_servers.items,
                                 .n_servers = c->enrol_servers.n,
                                 .server_name = c->enrol_server_name,
                                 .server_ca = *c->enrol_server_ca ? c->enrol_server_ca : c->tls_ca };

    return api_set_enrol(d->api, &e, err);
}

/* ---- rules: read, compiled and tried on a worker, since that takes a second; then one set gives way to the other -------- */

struct rules_load {
    uv_work_t work;
    struct daemon *d;
    char dir[4096];
    struct watcher_rules *rules;
    struct adv_err err;
};

static void load_rules(struct daemon *d);

static void load_rules_work(uv_work_t *w)
{
    struct rules_load *l = w->data;

    if (watcher_rules_load(l->dir, &l->rules, &l->err) == 0 && watcher_rules_check_examples(l->rules, &l->err) < 0)
        l->rules = watcher_rules_unref(l->rules);
}

static void load_rules_done(uv_work_t *w, int status)
{
    struct rules_load *l = w->data;
    struct daemon *d = l->d;

    d->loading_rules = false;
    if (status < 0 || d->stopping) {
        (void) watcher_rules_unref(l->rules);
    } else if (!l->rules) {
        adv_error("main", "rules not reloaded, the old ones stay", ADV_FS("rules", watcher_rules_version(d->rules)),
                  ADV_FS("why", l->err.msg));
    } else {
        adv_info("main", "rules reloaded", ADV_FS("rules", watcher_rules_version(l->rules)));
        api_set_rules(d->api, l->rules);
        (void) watcher_rules_unref(d->rules);
        d->rules = l->rules;
    }
    free(l);
    if (d->load_rules_again && !d->stopping)
        load_rules(d);
}

static void load_rules(struct daemon *d)
{
    struct rules_load *l;

    d->load_rules_again = d->loading_rules;
    if (d->loading_rules)
        return;
    l = calloc(1, sizeof(*l));
    if (!l) {
        adv_error("main", "rules not reloaded, the old ones stay", ADV_FS("why", "no memory"));
        return;
    }
    l->d = d;
    l->work.data = l;
    (void) snprintf(l->dir, sizeof(l->dir), "%s", values(d)->rules_dir);
    d->loading_rules = uv_queue_work(d->loop, &l->work, load_rules_work, load_rules_done) == 0;
    if (!d->loading_rules)
        free(l);
}

static void on_reload(uv_signal_t *h, int signum)
{
    struct daemon *d = h->data;
    struct adv_err err = { 0 };

    (void) signum;
    if (adv_config_reload(&d->config, NULL, NULL, &err) < 0) {
        adv_error("main", "configuration not reloaded, the old one stays", ADV_FS("why", err.msg));
        return;
    }
    adv_log_set_level((enum adv_log_level) values(d)->log_level);
    const struct quota_config quota = quota_of(values(d));
    serve_set_quota(d->serve, &quota);
    if (set_enrol(d, &err) < 0)
        adv_error("main", "settings of enrolment not reloaded, the old ones stay", ADV_FS("why", err.msg));
    if (auth_reload(d->auth, NULL, &err) < 0)
        adv_error("main", "bindings not reloaded, the old ones stay", ADV_FS("why", err.msg));
    if (!values(d)->insecure && rpc_server_reload_tls(serve_server(d->serve), &err) < 0)
        adv_error("main", "certificates not reloaded, the old ones stay", ADV_FS("why", err.msg));
    adv_info("main", "configuration reloaded");
    load_rules(d);
}

static void fleet_config_of(const struct advisord_config *c, struct fleet_config *ret)
{
    *ret = (struct fleet_config) { .lease_us = c->lease_ms * 1000,
                                   .owner_lease_us = *c->store_url ? c->store_owner_lease_ms * 1000 : 0,
                                   .progress_check = watcher_pattern_check,
                                   .log_detection = c->log_detection };
    policy_defaults(&ret->policy);
    ret->policy.log_settle_us = c->log_settle_ms * 1000;
    ret->policy.fallback_delay_us = c->fallback_delay_ms * 1000;
    ret->policy.shared_cause_window_us = c->shared_cause_window_ms * 1000;
    ret->policy.suspicion_grace_us = c->suspicion_grace_ms * 1000;
    ret->policy.min_runtime_blind_us = c->min_runtime_blind_ms * 1000;
    ret->policy.valid_for_ms = (uint64_t) c->advice_valid_ms;
    ret->policy.max_restarts = (uint32_t) c->max_restarts;
    ret->policy.max_restarts_limit = (uint32_t) c->max_restarts_limit;
    ret->policy.no_checkpoint_limit = (uint32_t) c->no_checkpoint_limit;
    ret->policy.exclude_max_percent = (uint32_t) c->exclude_max_percent;
    if (*c->attribution_target) {
        ret->policy.attribution_fast_us = c->attribution_fast_ms * 1000;
        ret->policy.attribution_slow_us = c->attribution_slow_ms * 1000;
        ret->policy.attribution_min_percent = (uint32_t) c->attribution_confidence;
    }
    ret->policy.make_requeueable_opted_in = c->make_requeueable == DAEMON_MAKE_REQUEUEABLE_OPTED_IN;
    ret->policy.restart_stragglers = c->restart_stragglers;
    if (policy_trust(&ret->policy, (const char *const *) c->trusted_reporters.items, c->trusted_reporters.n, NULL) < 0)
        ret->policy.trusted_reporters[0] = '\0'; /* never: it was checked with the configuration */
}

/* Written whole and renamed, so that a reader never sees half a number. */
static int write_port(const struct daemon *d, struct adv_err *err)
{
    const char *path = values(d)->port_file;
    char tmp[4096];
    FILE *f;

    if (!*path)
        return 0;
    (void) snprintf(tmp, sizeof(tmp), "%s.new", path);
    f = fopen(tmp, "we");
    if (!f || fprintf(f, "%d\n", rpc_server_port(serve_server(d->serve), 0)) < 0 || fclose(f) != 0 ||
        rename(tmp, path) != 0)
        return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "port_file %s", path);
    return 0;
}

static void wake_loop(void *arg)
{
    rpc_server_wake(arg);
}

/* An error of a file says which one; people look for the setting. */
static int of(const char *setting, int r, struct adv_err *err)
{
    if (r < 0)
        adv_err_wrap(err, "%s", setting);
    return r;
}

static int open_store(struct daemon *d, const struct store_config *sc, struct adv_err *err)
{
    int r = store_open(d->loop, sc, &d->store, err);

    if (r == 0 && store_made(d->store)) /* at any but the first start: a wrong path, a disk that is not mounted */
        adv_warn("main", "there was no store: a new, empty one was made", ADV_FS("store", store_uuid(d->store)),
                 ADV_FS("at", sc->url));
    return r;
}

static int start(struct daemon *d, struct adv_err *err)
{
    const struct advisord_config *c = values(d);
    struct fleet_config fc;
    struct owner_config oc = { .lease_us = c->store_owner_lease_ms * 1000 };
    struct api_config ac = {
        .heartbeat_interval_ms = (uint32_t) c->heartbeat_ms,
        .silence_timeout_ms = (uint32_t) c->silence_ms,
        .rearm_children = c->restart_children,
        .bookmark_ms = (uint32_t) c->bookmark_ms,
        .max_sessions = (size_t) c->max_sessions,
        .admission = (size_t) c->admission,
        .max_streams = (size_t) c->max_streams,
        .retention = { c->retention_interval_ms, c->retention_excerpts_ms, c->retention_jobs_ms, c->retention_audit_ms },
    };
    struct rpc_config rc = {
        .listen = (const char *const *) c->listen.items,
        .n_listen = c->listen.n,
        .insecure = c->insecure,
        .cert_file = c->tls_cert,
        .key_file = c->tls_key,
        .ca_file = c->tls_ca,
        .second_ca_file = c->agent_ca_cert,
        /* with tokens, or first certificates to give, there are callers without one; otherwise no handshake is wasted */
        .client_cert = *c->auth_bindings || *c->agent_ca_cert ? RPC_CLIENT_CERT_OPTIONAL : RPC_CLIENT_CERT_REQUIRED,
    };
    const struct attribute_config at = {
        .target = c->attribution_target,
        .ca_file = c->attribution_ca,
        .cert_file = c->attribution_cert,
        .key_file = c->attribution_key,
        .fast_budget_ms = c->attribution_fast_ms,
        .slow_budget_ms = c->attribution_slow_ms,
        .max_calls = (size_t) c->attribution_calls,
    };
    const struct auth_config auth = { .bindings_path = c->auth_bindings };
    const struct quota_config quota = quota_of(c);
    char replica[ADV_UUID_SIZE];
    struct store_config sc = {
        .url = *c->store_url ? c->store_url : c->store_path,
        .password_file = c->store_password_file,
        .tls_ca = c->store_tls_ca,
        .replica = replica,
        .owner_lease_us = c->store_owner_lease_ms * 1000,
        .timeout_us = c->store_timeout_ms * 1000,
        .accept_lossy = c->store_accept_lossy,
    };
    int r;

    fleet_config_of(c, &fc);
    if ((r = adv_uuid_v7(adv_wall_us(), replica, err)) < 0 ||
        (r = of("rules.dir", watcher_rules_load(c->rules_dir, &d->rules, err), err)) < 0 ||
        (r = of(*c->store_url ? "store.url" : "store.path", open_store(d, &sc, err), err)) < 0 ||
        (r = turn_new(d->loop, d->store, &fc, &d->turn, err)) < 0 ||
        (r = of("auth.bindings", auth_new(d->loop, &auth, &d->auth, err), err)) < 0 ||
        (*c->agent_ca_cert &&
         (r = of("auth.agent_ca_cert, auth.agent_ca_key",
                 ca_load(c->agent_ca_cert, c->agent_ca_key, adv_wall_us() / 1000000, &d->agent_ca, err), err)) < 0) ||
        (*c->audit_signing_key &&
         (r = of("audit.signing_key", adv_ed25519_load(c->audit_signing_key, false, &d->audit_key, err), err)) < 0) ||
        (ac.signer = d->audit_key, false) ||
        (r = owner_new(d->loop, d->turn, &oc, &d->owner, err)) < 0 ||
        (ac.owner = d->owner, false) ||
        (r = api_new(d->loop, d->turn, d->rules, &ac, &d->api, err)) < 0 ||
        (r = of("sources.file", feed_new(d->loop, d->turn, d->api, c->sources_file, &d->feed, err), err)) < 0 ||
        (r = set_enrol(d, err)) < 0 ||
        (r = serve_new(d->loop, d->api, d->auth, &quota, &rc, &d->serve, err)) < 0 ||
        (r = of("attribution.target", attribute_new(d->loop, d->turn, d->api, &at, &d->attribute, err), err)) < 0 ||
        (r = write_port(d, err)) < 0)
        return r;
    store_set_wake(d->store, wake_loop, serve_server(d->serve));
    return 0;
}

static void start_health(struct daemon *d)
{
    d->store_seen = (struct turn_observer) { .changed = store_written, .reset = store_lost, .loaded = store_loaded };
    (void) uv_timer_init(d->loop, &d->calm);
    d->calm.data = d;
    turn_observe(d->turn, &d->store_seen);
}

static void start_signals(struct daemon *d)
{
    (void) uv_signal_init(d->loop, &d->term);
    (void) uv_signal_init(d->loop, &d->intr);
    (void) uv_signal_init(d->loop, &d->hup);
    d->term.data = d->intr.data = d->hup.data = d;
    (void) uv_signal_start(&d->term, on_stop, SIGTERM);
    (void) uv_signal_start(&d->intr, on_stop, SIGINT);
    (void) uv_signal_start(&d->hup, on_reload, SIGHUP);
}

int main(int argc, char **argv)
{
    struct daemon d = { .loop = uv_default_loop() };
    struct adv_err err = { 0 };
    int code, rest;

    if (!adv_config_main(&advisord_config_table, argc, argv, &rest, &d.config, &code))
        return code;
    if (rest < argc) {
        if (adv_streq(argv[rest], "store")) {
            code = storetool_main(values(&d), argc - rest - 1, argv + rest + 1);
        } else {
            (void) fprintf(stderr, "advisord: unexpected argument \"%s\"\n", argv[rest]);
            code = 2;
        }
        (void) adv_config_free(d.config);
        return code;
    }
    adv_log_init((enum adv_log_format) values(&d)->log_format, (enum adv_log_level) values(&d)->log_level, 2);
    if (start(&d, &err) < 0) {
        adv_error("main", "cannot start", ADV_FS("reason", err.reason ? err.reason : ""), ADV_FS("why", err.msg));
        _exit(1); /* nothing was promised yet; half-built parts go with the process */
    }
    start_health(&d);
    start_signals(&d);
    adv_info("main", "serving", ADV_FS("version", ADVISOR_VERSION), ADV_FS("store", store_uuid(d.store)),
             ADV_FS("rules", watcher_rules_version(d.rules)), ADV_FI("port", rpc_server_port(serve_server(d.serve), 0)),
             ADV_FS("tls", values(&d)->insecure ? "off" : "on"));
    (void) uv_run(d.loop, UV_RUN_DEFAULT);
    d.store = store_close(d.store);
    (void) uv_run(d.loop, UV_RUN_DEFAULT); /* what it still had open */
    d.audit_key = adv_ed25519_free(d.audit_key);
    (void) ca_free(d.agent_ca);
    (void) watcher_rules_unref(d.rules);
    (void) adv_config_free(d.config);
    (void) uv_loop_close(d.loop);
    adv_info("main", "stopped");
    return 0;
}
