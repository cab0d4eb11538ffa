/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_CONFIG_H
#define ADVISOR_AGENT_CONFIG_H

#include "common/config.h"

struct agent_config {
    char *cluster;
    char *target, *server_name, *tls_ca, *tls_cert, *tls_key;
    bool tls_renew;
    bool insecure;
    int64_t keepalive_ms, backoff_min_ms, backoff_max_ms;
    char *state_dir;
    bool allow_volatile;
    char *ceiling_path, *ceiling_owner;
    int64_t poll_ms, focus_ms, nodes_ms;
    char *slurm_conf, *bin_dir, *scheduler_user;
    int64_t landing_bound_ms, command_deadline_ms, action_deadline_ms;
    int64_t max_parallel;
    bool tail;
    char *tail_helper;
    int64_t tail_min_uid, tail_rate, tail_max_lag, tail_buffer, keep_tail;
    int log_format, log_level;
};

extern const struct adv_config_table agent_config_table;

#endif
