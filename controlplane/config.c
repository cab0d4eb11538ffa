/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/config.h"

#include "common/num.h"
#include "controlplane/domain/policy.h"
#include "controlplane/rpc/rpc.h"

static const char *const log_formats[] = { "text", "json", NULL };
static const char *const make_requeueable[] = { "asked", "opted_in", NULL };
static const char *const log_levels[] = { "debug", "info", "warn", "error", NULL };

#define S struct advisord_config
static const struct adv_config_row rows[] = {
    ADV_CONFIG_LIST(S, listen, "listen", "127.0.0.1:16443", RESTART,
                    "Addresses to serve on: host:port, [v6]:port or unix:/path; port 0 takes any free one."),
    ADV_CONFIG_BOOL(S, insecure, "insecure", "false", RESTART,
                    "Serve without TLS; refused unless every address is loopback or a unix socket."),
    ADV_CONFIG_PATH(S, port_file, "port_file", "", RESTART,
                    "Write the port of the first address here once serving; for scripts that listen on port 0."),
    ADV_CONFIG_PATH(S, tls_cert, "tls.cert", "/etc/advisor/tls/advisord.crt", NOW, "Server certificate, PEM."),
    ADV_CONFIG_PATH(S, tls_key, "tls.key", "/etc/advisor/tls/advisord.key", NOW, "Its private key, PEM."),
    ADV_CONFIG_PATH(S, tls_ca, "tls.ca", "/etc/advisor/tls/ca.crt", NOW,
                    "Authority that signs client certificates, PEM."),
    ADV_CONFIG_PATH(S, auth_bindings, "auth.bindings", "", RESTART,
                    "File of token issuers and role bindings (docs/security.md), read again when it changes; empty: "
                    "certificates only, and their roles hold everywhere."),
    ADV_CONFIG_PATH(S, agent_ca_cert, "auth.agent_ca_cert", "", RESTART,
                    "Authority that signs agents' certificates here (enrolment, renewal), PEM, read again when it changes; "
                    "empty: the site does it."),
    ADV_CONFIG_PATH(S, agent_ca_key, "auth.agent_ca_key", "", RESTART, "Its private key, PEM."),
    ADV_CONFIG_DURATION(S, agent_cert_life_ms, "auth.agent_cert_life", 5000, 315360000000, "90d", NOW,
                        "How long an agent's certificate is valid; it is renewed after two thirds."),
    ADV_CONFIG_LIST(S, enrol_servers, "enrol.servers", "", NOW,
                    "Where agents reach this control plane, host:port each; told in enrolment bundles."),
    ADV_CONFIG_STRING(S, enrol_server_name, "enrol.server_name", "", NOW,
                      "Name that tls.cert carries; told in enrolment bundles; empty: the host of the server."),
    ADV_CONFIG_PATH(S, enrol_server_ca, "enrol.server_ca", "", NOW,
                    "Authority that signed tls.cert, PEM, told in enrolment bundles; empty: tls.ca."),
    ADV_CONFIG_INT(S, calls_in_flight, "limits.calls_in_flight", "calls", 0, 1000000, "512", NOW,
                   "Calls of one caller at a time, streams included; 0: no limit."),
    ADV_CONFIG_INT(S, calls_per_second, "limits.calls_per_second", "calls", 0, 1000000, "2000", NOW,
                   "Calls of one caller in a second; 0: no limit."),
    ADV_CONFIG_INT(S, calls_burst, "limits.burst", "calls", 0, 1000000, "4000", NOW,
                   "Calls of one caller that may come at once."),
    ADV_CONFIG_PATH(S, store_path, "store.path", "/var/lib/advisor/advisor.db", RESTART, "The SQLite store."),
    ADV_CONFIG_STRING(S, store_url, "store.url", "", RESTART,
                      "A shared store instead: mysql://USER@HOST[:PORT]/DATABASE or mysql://USER@/DATABASE?socket=PATH."),
    ADV_CONFIG_PATH(S, store_password_file, "store.password_file", "", RESTART, "File with the password for store.url."),
    ADV_CONFIG_PATH(S, store_tls_ca, "store.tls_ca", "", RESTART,
                    "Authority of the database server's certificate, PEM; empty: no TLS."),
    ADV_CONFIG_DURATION(S, store_timeout_ms, "store.timeout", 100, 60000, "5s", RESTART,
                        "A statement of the shared store that takes longer has failed."),
    ADV_CONFIG_DURATION(S, store_owner_lease_ms, "store.ownership_lease", 2000, 600000, "60s", RESTART,
                        "How long a replica owns a cluster after a renewal; agents may never act longer than that."),
    ADV_CONFIG_BOOL(S, store_accept_lossy, "store.accept_lossy", "false", RESTART,
                    "Serve although the database may lose what it acknowledged (innodb_flush_log_at_trx_commit)."),
    ADV_CONFIG_PATH(S, rules_dir, "rules.dir", ADVISOR_RULES_DIR, NOW,
                    "Folder of detection rules; read again by SIGHUP. If one of them is bad the old set stays."),
    ADV_CONFIG_PATH(S, sources_file, "sources.file", "", RESTART,
                    "File of the Loki, VictoriaLogs and Prometheus that are asked about running jobs (docs/sources.md);"
                    " empty: none."),
    ADV_CONFIG_ENUM(S, log_format, "log.format", log_formats, "text", RESTART, "How log lines look."),
    ADV_CONFIG_ENUM(S, log_level, "log.level", log_levels, "info", NOW, "Least level that is logged."),
    ADV_CONFIG_DURATION(S, heartbeat_ms, "agent.heartbeat_interval", 100, 60000, "5s", NEXT,
                        "How often agents send a heartbeat."),
    ADV_CONFIG_DURATION(S, silence_ms, "agent.silence_timeout", 300, 600000, "20s", NEXT,
                        "Silence after which either side gives a session up."),
    ADV_CONFIG_DURATION(S, lease_ms, "agent.lease", 1000, 600000, "45s", RESTART,
                        "How long an agent may act after a heartbeat; must exceed an agent's command deadline plus its "
                        "landing bound."),
    ADV_CONFIG_INT(S, max_sessions, "agent.max_sessions", "sessions", 1, 20000, "6000", NOW, "Agents at one time."),
    ADV_CONFIG_INT(S, admission, "agent.admission", "agents", 1, 20000, "64", NOW,
                   "Agents that say hello or send their whole state at one time; others are told to come a little later."),
    ADV_CONFIG_BOOL(S, log_detection, "detect.logs", "true", RESTART,
                    "Logs are watched; when off, a failed state is an anomaly at once."),
    ADV_CONFIG_INT(S, max_streams, "detect.max_streams", "logs", 1, 1000000, "50000", RESTART,
                   "Logs that are read at one time; what is beyond is not read, and its attempts' telemetry says so."),
    ADV_CONFIG_DURATION(S, log_settle_ms, "detect.log_settle", 0, 60000, "250ms", RESTART,
                        "Wait after an end state for log lines that are still on their way."),
    ADV_CONFIG_DURATION(S, fallback_delay_ms, "detect.fallback_delay", 0, 600000, "10s", RESTART,
                        "A failed state without a signature becomes an anomaly after this."),
    ADV_CONFIG_DURATION(S, suspicion_grace_ms, "detect.suspicion_grace", 1000, 86400000, "15m", RESTART,
                        "A signature on a running attempt with no progress for this long is confirmed."),
    ADV_CONFIG_DURATION(S, shared_cause_window_ms, "decide.shared_cause_window", 0, 3600000, "1m", RESTART,
                        "Causes that name no node wait this long, so that a mass failure shows itself as one."),
    ADV_CONFIG_DURATION(S, min_runtime_blind_ms, "decide.min_runtime_blind", 0, 86400000, "5m", RESTART,
                        "An attempt of unknown cause and unknown progress is restarted only if it ran this long."),
    ADV_CONFIG_DURATION(S, advice_valid_ms, "decide.advice_valid", 1000, 86400000, "1h", RESTART,
                        "How long an agent may carry an advice out."),
    ADV_CONFIG_INT(S, max_restarts, "decide.max_restarts", "restarts", 0, 1000, "3", RESTART,
                   "Restarts of a job that names no limit."),
    ADV_CONFIG_INT(S, max_restarts_limit, "decide.max_restarts_limit", "restarts", 0, 1000, "50", RESTART,
                   "The most that a job may ask for."),
    ADV_CONFIG_INT(S, no_checkpoint_limit, "decide.no_checkpoint_limit", "attempts", 1, 1000, "3", RESTART,
                   "Attempts in a row without a new checkpoint that end the restarts."),
    ADV_CONFIG_INT(S, exclude_max_percent, "decide.exclude_max_percent", "percent", 0, 100, "25", RESTART,
                   "Most nodes of a cluster that one advice may exclude; one node always may be."),
    ADV_CONFIG_ENUM(S, make_requeueable, "decide.make_requeueable", make_requeueable, "asked", RESTART,
                    "Jobs that were submitted with requeueing switched off and are made requeueable while they run: those whose "
                    "comment asks for it, or all that opt in and do not forbid it (opted_in; for sites with JobRequeue=0)."),
    ADV_CONFIG_BOOL(S, restart_stragglers, "restart.stragglers", "false", RESTART,
                    "An attempt that stays slow is restarted where that pays for certain: docs/detection.md."),
    ADV_CONFIG_BOOL(S, restart_children, "restart.children", "true", RESTART,
                    "Jobs that depend on a restarted one, and opt in themselves, get their dependency on it back: docs/slurm.md."),
    ADV_CONFIG_LIST(S, trusted_reporters, "decide.trusted_reporters", "", RESTART,
                    "Outside detectors (principals) whose evidence about nodes decides like that of our own sources "
                    "(docs/detection.md); of all others it is shown only."),
    ADV_CONFIG_STRING(S, attribution_target, "attribution.target", "", RESTART,
                      "A provider that is asked which node is to blame (docs/attribution.md): host:port, [v6]:port or unix:/path; "
                      "empty: nobody is asked."),
    ADV_CONFIG_PATH(S, attribution_ca, "attribution.ca", "", RESTART,
                    "Authority that signs the provider's certificate, PEM, read again when it changes; empty: no TLS, which "
                    "only loopback and unix addresses may do without."),
    ADV_CONFIG_PATH(S, attribution_cert, "attribution.cert", "", RESTART,
                    "Client certificate for the provider, PEM, read again when it changes; empty: none."),
    ADV_CONFIG_PATH(S, attribution_key, "attribution.key", "", RESTART, "Its private key, PEM."),
    ADV_CONFIG_DURATION(S, attribution_fast_ms, "attribution.fast_budget", 0, 60000, "2s", RESTART,
                        "How long a decision that names no node waits at most for the provider's first answer; 0: it is not asked "
                        "for one."),
    ADV_CONFIG_DURATION(S, attribution_slow_ms, "attribution.slow_budget", 0, 3600000, "60s", RESTART,
                        "Time for the provider's second, deeper look, which no decision waits for; 0: it is not asked for one."),
    ADV_CONFIG_INT(S, attribution_confidence, "attribution.min_confidence", "percent", 1, 100, "60", RESTART,
                   "Confidence from which an attribution counts; below it is shown only."),
    ADV_CONFIG_INT(S, attribution_calls, "attribution.max_calls", "calls", 1, 1024, "16", RESTART,
                   "Questions to the provider at one time; the slow ones get half. More are not asked."),
    ADV_CONFIG_DURATION(S, retention_interval_ms, "retention.interval", 1000, 86400000, "1h", RESTART,
                        "How often what is too old is looked for."),
    ADV_CONFIG_DURATION(S, retention_excerpts_ms, "retention.excerpts", 0, 3153600000000, "30d", RESTART,
                        "Pieces of log lines are kept this long; their hashes stay. 0: for ever."),
    ADV_CONFIG_DURATION(S, retention_jobs_ms, "retention.jobs", 0, 3153600000000, "400d", RESTART,
                        "Jobs with all that belongs to them are kept this long after they were last heard of, and so are "
                        "exclusions, incidents and maintenance windows that are over. 0: for ever."),
    ADV_CONFIG_DURATION(S, retention_audit_ms, "retention.audit", 0, 3153600000000, "1095d", RESTART,
                        "Audit events are kept this long; a checkpoint says what was removed. 0: for ever."),
    ADV_CONFIG_PATH(S, audit_signing_key, "audit.signing_key", "", RESTART,
                    "Ed25519 private key, PEM, that signs audit checkpoints; empty: they are not signed."),
    ADV_CONFIG_DURATION(S, bookmark_ms, "watch.bookmark", 1000, 3600000, "30s", NEXT,
                        "A quiet watch gets a bookmark this often."),
    ADV_CONFIG_DURATION(S, stop_grace_ms, "stop_grace", 0, 60000, "3s", NOW,
                        "How long calls under way may take to end when stopping."),
};
#undef S

/* "host:port", "[v6]:port" or "unix:/path". Whether there is such a host only the network knows. */
static bool address_ok(const char *s, uint64_t least_port)
{
    const char *colon = strrchr(s, ':');
    uint64_t port;

    if (adv_startswith(s, "unix:"))
        return s[strlen("unix:")] != '\0';
    if (!colon || colon == s || strpbrk(s, " /,\t"))
        return false;
    if (*s == '[' ? colon[-1] != ']' || colon - s < 4 : strchr(s, ':') != colon)
        return false;
    return adv_parse_u64(colon + 1, least_port, 65535, &port, NULL) == 0;
}

static int check_addresses(const char *key, const struct adv_config_list *l, uint64_t least_port, struct adv_err *err)
{
    for (size_t i = 0; i < l->n; i++)
        if (!address_ok(l->items[i], least_port)) {
            (void) adv_err_set(err, ADV_INVALID_ARGUMENT,
                               "%s: \"%.120s\": expected host:port, [v6]:port or unix:/path, port %u to 65535",
                               key, l->items[i], (unsigned) least_port);
            return adv_err_field(err, "%s", key);
        }
    return 0;
}

static int check_attribution(const struct advisord_config *c, struct adv_err *err)
{
    const char *missing = *c->attribution_cert ? "attribution.key" : "attribution.cert";

    if (!*c->attribution_target)
        return 0;
    if (!address_ok(c->attribution_target, 1)) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "attribution.target: \"%.120s\": expected host:port, [v6]:port or unix:/path", c->attribution_target);
        return adv_err_field(err, "attribution.target");
    }
    if (!*c->attribution_ca && !rpc_address_is_local(c->attribution_target)) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "attribution.ca: expected, for %.120s is neither loopback nor a unix address",
                           c->attribution_target);
        return adv_err_field(err, "attribution.ca");
    }
    if (*c->attribution_ca && !*c->attribution_cert != !*c->attribution_key) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "%s: expected together with the other one", missing);
        return adv_err_field(err, "%s", missing);
    }
    return 0;
}

static int check(const void *values, struct adv_err *err)
{
    const struct advisord_config *c = values;
    int r;

    if (c->listen.n == 0) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "listen: expected at least one address");
        return adv_err_field(err, "listen");
    }
    if ((r = check_addresses("listen", &c->listen, 0, err)) < 0 ||
        (r = check_addresses("enrol.servers", &c->enrol_servers, 1, err)) < 0)
        return r;
    if ((r = policy_trust(&(struct policy) { 0 }, (const char *const *) c->trusted_reporters.items, c->trusted_reporters.n, err)) < 0)
        return r;
    if (c->silence_ms < 2 * c->heartbeat_ms) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "agent.silence_timeout: expected at least twice agent.heartbeat_interval");
        return adv_err_field(err, "agent.silence_timeout");
    }
    if (!*c->agent_ca_cert != !*c->agent_ca_key) {
        const char *missing = *c->agent_ca_cert ? "auth.agent_ca_key" : "auth.agent_ca_cert";
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "%s: expected together with the other one", missing);
        return adv_err_field(err, "%s", missing);
    }
    if (*c->store_url && c->store_owner_lease_ms < c->lease_ms + c->lease_ms / 4) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT,
                           "store.ownership_lease: expected at least 1.25 times agent.lease, which it bounds");
        return adv_err_field(err, "store.ownership_lease");
    }
    if ((r = check_attribution(c, err)) < 0)
        return r;
    if (c->lease_ms < 2 * c->heartbeat_ms) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "agent.lease: expected at least twice agent.heartbeat_interval");
        return adv_err_field(err, "agent.lease");
    }
    return 0;
}

const struct adv_config_table advisord_config_table = {
    .program = "advisord",
    .about = "The control plane of Advisor: serves the Advisor API, judges attempts, gives advice.\n"
             "`advisord [--config FILE] store help` tells what can be done with its store.",
    .env_prefix = "ADVISORD",
    .rows = rows,
    .n_rows = ADV_ARRAY_LEN(rows),
    .struct_size = sizeof(struct advisord_config),
    .check = check,
};
