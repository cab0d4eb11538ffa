/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_CONFIG_H
#define CONTROLPLANE_CONFIG_H

/* advisord's configuration: one table (config.c), from which `--help`, `--dump-config` and docs/config-advisord.md are
 * made. */

#include "common/config.h"

enum daemon_make_requeueable { DAEMON_MAKE_REQUEUEABLE_ASKED, DAEMON_MAKE_REQUEUEABLE_OPTED_IN };

struct advisord_config {
    struct adv_config_list listen;
    bool insecure;
    char *tls_cert;
    char *tls_key;
    char *tls_ca;
    char *auth_bindings;
    char *agent_ca_cert;
    char *agent_ca_key;
    int64_t agent_cert_life_ms;
    struct adv_config_list enrol_servers;
    char *enrol_server_name;
    char *enrol_server_ca;
    int64_t calls_in_flight;
    int64_t calls_per_second;
    int64_t calls_burst;
    char *store_path;
    char *store_url;
    char *store_password_file;
    char *store_tls_ca;
    int64_t store_timeout_ms;
    int64_t store_owner_lease_ms;
    bool store_accept_lossy;
    char *rules_dir;
    char *sources_file;
    int log_format;
    int log_level;
    int64_t heartbeat_ms;
    int64_t silence_ms;
    int64_t lease_ms;
    int64_t max_sessions;
    int64_t admission;
    int64_t max_streams;
    bool log_detection;
    int64_t log_settle_ms;
    int64_t fallback_delay_ms;
    int64_t shared_cause_window_ms;
    int64_t suspicion_grace_ms;
    int64_t min_runtime_blind_ms;
    int64_t advice_valid_ms;
    int64_t max_restarts;
    int64_t max_restarts_limit;
    int64_t no_checkpoint_limit;
    int64_t exclude_max_percent;
    int make_requeueable; /* enum daemon_make_requeueable */
    bool restart_stragglers;
    bool restart_children;
    struct adv_config_list trusted_reporters;
    const char *attribution_target;
    const char *attribution_ca;
    const char *attribution_cert;
    const char *attribution_key;
    int64_t attribution_fast_ms;
    int64_t attribution_slow_ms;
    int64_t attribution_confidence;
    int64_t attribution_calls;
    int64_t retention_interval_ms;
    int64_t retention_excerpts_ms;
    int64_t retention_jobs_ms;
    int64_t retention_audit_ms;
    char *audit_signing_key;
    int64_t bookmark_ms;
    int64_t stop_grace_ms;
    char *port_file;
};

extern const struct adv_config_table advisord_config_table;

#endif
