/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_CTL_CONFIG_H
#define ADVISOR_CTL_CONFIG_H

/* advisorctl's settings: one table (config.c). They come from ~/.config/advisor/ctl.yaml, ADVISORCTL_* and flags. */

#include "common/config.h"

enum ctl_output { CTL_OUTPUT_TABLE, CTL_OUTPUT_JSON };

struct ctl_config {
    char *server;
    char *cert;
    char *token_file;
    char *key;
    char *ca;
    char *server_name;
    bool insecure;
    int64_t timeout_ms;
    int output;
};

extern const struct adv_config_table ctl_config_table;

#endif
