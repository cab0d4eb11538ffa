/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_ADAPTERS_SLURM_SLURM_H
#define ADV_ADAPTERS_SLURM_SLURM_H

/* The Slurm adapter: everything through squeue, scontrol, scancel, sinfo and sacct, releases 22.05 to 26.05.
 *
 * It wants AdminLevel=Operator. Zero or NULL in the configuration means the default in brackets. */

#include "adapters/adapter.h"

struct adapter_slurm_config {
    const char *state_dir;   /* a folder of ours; holds the client configuration */
    const char *slurm_conf;  /* the site's slurm.conf [$SLURM_CONF, /etc/slurm/slurm.conf, /run/slurm/conf/slurm.conf] */
    const char *bin_dir;     /* where the tools are [PATH] */
    const char *user;        /* as whom the tools run [the effective user] */
    int credential_ttl_s;    /* life of our commands' munge credentials [10] */
    int landing_bound_ms;    /* after this a command cannot take effect any more: ttl, its rounding and clock skew
                                between hosts [ttl + 10 s; measured at ttl 10: 6 s lands, 20 s is refused] */
    int command_deadline_ms; /* [25000]; the tools give up by themselves after 10 to 20 s */
    int action_deadline_ms;  /* [90000] */
    int max_parallel;        /* commands at a time [4] */
};

/* @host must outlive the adapter; strings of @config need not.
 * Owner: caller, adapter_free(). Errors: -ADV_INVALID_ARGUMENT; -ADV_RESOURCE_EXHAUSTED.
 * A missing slurm.conf is no error here: each operation answers UNAVAILABLE until it is there. */
adv_must_check int adapter_slurm_new(const struct adapter_slurm_config *config, struct adapter_host *host,
                                     struct adapter **ret, struct adv_err *err);

#endif
