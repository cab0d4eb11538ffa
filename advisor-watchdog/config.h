/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_WATCHDOG_CONFIG_H
#define ADVISOR_WATCHDOG_CONFIG_H

#include "common/config.h"

struct watchdog_config {
    char *state_dir;
    bool allow_volatile;
    char *ceiling_path, *ceiling_owner;
    int64_t poll_ms, gone_ms, there_ms;
    int64_t ends_per_minute;
    bool observe, once, only_agent;
    char *slurm_conf, *bin_dir, *scheduler_user;
    int64_t landing_bound_ms, command_deadline_ms, action_deadline_ms;
    int log_format, log_level;
};

extern const struct adv_config_table watchdog_config_table;

#endif
