/* SPDX-License-Identifier: Apache-2.0 */

#include "advisor-agent/config.h"

#ifndef ADVISOR_LIBEXECDIR
#define ADVISOR_LIBEXECDIR "/usr/libexec/advisor"
#endif

#define S struct agent_config

static const char *const log_formats[] = { "text", "json", NULL };
static const char *const log_levels[] = { "debug", "info", "warn", "error", NULL };

static const struct adv_config_row rows[] = {
    ADV_CONFIG_STRING(S, cluster, "cluster", "", RESTART, "Name of this cluster, as in the certificate."),
    ADV_CONFIG_STRING(S, target, "control_plane.target", "", RESTART,
                      "Where the control plane is: host:port, [v6]:port or unix:path; several replicas by commas, "
                      "tried in turn."),
    ADV_CONFIG_STRING(S, server_name, "control_plane.server_name", "", RESTART,
                      "Name that its certificate must have; empty: the host of the target."),
    ADV_CONFIG_BOOL(S, insecure, "control_plane.insecure", "false", RESTART,
                    "No TLS; only over loopback or a unix socket, for tests."),
    ADV_CONFIG_DURATION(S, keepalive_ms, "control_plane.keepalive", 1000, 3600000, "20s", RESTART,
                        "Silence on the connection after which a ping is sent."),
    ADV_CONFIG_DURATION(S, backoff_min_ms, "control_plane.backoff_min", 10, 60000, "1s", RESTART,
                        "Wait after the first failed connection attempt."),
    ADV_CONFIG_DURATION(S, backoff_max_ms, "control_plane.backoff_max", 10, 3600000, "1m", RESTART,
                        "Longest wait between connection attempts."),
    ADV_CONFIG_PATH(S, tls_ca, "tls.ca", "/etc/advisor/tls/ca.crt", NEXT, "CA of the control plane, PEM."),
    ADV_CONFIG_PATH(S, tls_cert, "tls.cert", "/etc/advisor/tls/agent.crt", NEXT,
                    "The agent's certificate, PEM."),
    ADV_CONFIG_PATH(S, tls_key, "tls.key", "/etc/advisor/tls/agent.key", NEXT, "Its private key, PEM."),
    ADV_CONFIG_BOOL(S, tls_renew, "tls.renew", "true", RESTART,
                    "Ask the control plane for the next certificate when two thirds of this one's life are over; the folders "
                    "of certificate and key must be the agent's to write."),
    ADV_CONFIG_PATH(S, state_dir, "state.dir", "/var/lib/advisor-agent", RESTART,
                    "Folder of the journal; must survive a crash of the host."),
    ADV_CONFIG_BOOL(S, allow_volatile, "state.allow_volatile", "false", RESTART,
                    "Act although the folder is on tmpfs or in a container's overlay; for tests."),
    ADV_CONFIG_PATH(S, ceiling_path, "ceiling.path", "", RESTART,
                    "The site's ceiling file; empty: the cluster's mode is the limit."),
    ADV_CONFIG_STRING(S, ceiling_owner, "ceiling.owner", "", RESTART,
                      "User who may own that file besides root; not the agent's own, which must not write it."),
    ADV_CONFIG_DURATION(S, poll_ms, "poll.interval", 100, 600000, "15s", RESTART,
                        "Time between two looks at all jobs."),
    ADV_CONFIG_DURATION(S, focus_ms, "poll.focus_interval", 50, 60000, "250ms", RESTART,
                        "Time between two looks at a job under suspicion, at first; a lasting one is looked at every 3 s."),
    ADV_CONFIG_DURATION(S, nodes_ms, "poll.nodes_interval", 100, 3600000, "1m", RESTART,
                        "Time between two looks at all nodes."),
    ADV_CONFIG_PATH(S, slurm_conf, "scheduler.slurm_conf", "", RESTART,
                    "The site's slurm.conf; empty: as Slurm finds it."),
    ADV_CONFIG_PATH(S, bin_dir, "scheduler.bin_dir", "", RESTART, "Where the tools are; empty: PATH."),
    ADV_CONFIG_STRING(S, scheduler_user, "scheduler.user", "", RESTART,
                      "As whom the tools run; empty: the agent's user."),
    ADV_CONFIG_DURATION(S, landing_bound_ms, "scheduler.landing_bound", 0, 600000, "20s", RESTART,
                        "After this long a command can no longer take effect; 0: the adapter's default."),
    ADV_CONFIG_DURATION(S, command_deadline_ms, "scheduler.command_deadline", 1000, 600000, "12s", RESTART,
                        "A command is killed after this; with the landing bound it must fit into the lease."),
    ADV_CONFIG_DURATION(S, action_deadline_ms, "scheduler.action_deadline", 1000, 600000, "90s", RESTART,
                        "Longest time for one step, with all its reads."),
    ADV_CONFIG_INT(S, max_parallel, "scheduler.max_parallel", "commands", 1, 64, "4", RESTART,
                   "Scheduler commands at a time."),
    ADV_CONFIG_BOOL(S, tail, "tail.enabled", "true", RESTART, "Follow the output files of running jobs."),
    ADV_CONFIG_PATH(S, tail_helper, "tail.helper", ADVISOR_LIBEXECDIR "/advisor-tail", RESTART,
                    "The program that reads them with their owners' rights."),
    ADV_CONFIG_INT(S, tail_min_uid, "tail.min_uid", "uid", 1, 4294967294, "1000", RESTART,
                   "Files of lower uids are not read."),
    ADV_CONFIG_SIZE(S, tail_rate, "tail.rate", 1024, 1073741824, "1MiB", RESTART,
                    "Log bytes in a second, over all files."),
    ADV_CONFIG_SIZE(S, tail_max_lag, "tail.max_lag", 65536, 1099511627776, "64MiB", RESTART,
                    "A file further behind is skipped ahead, and its log counts as partial."),
    ADV_CONFIG_SIZE(S, tail_buffer, "tail.buffer", 65536, 1073741824, "2MiB", RESTART,
                    "Log bytes in memory at most."),
    ADV_CONFIG_SIZE(S, keep_tail, "tail.keep", 0, 16777216, "256KiB", RESTART,
                    "So much of the end of a job's output is kept beside it, as <file>.attempt-N.tail, before a next attempt that may "
                    "truncate it is let start; 0: nothing."),
    ADV_CONFIG_ENUM(S, log_format, "log.format", log_formats, "text", RESTART, "How log lines look."),
    ADV_CONFIG_ENUM(S, log_level, "log.level", log_levels, "info", NOW, "Least level that is logged."),
};

static int check(const void *values, struct adv_err *err)
{
    const S *c = values;
    const char *missing = !c->cluster[0] ? "cluster" : !c->target[0] ? "control_plane.target" : NULL;

    if (missing) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "%s: must be set", missing);
        return adv_err_field(err, "%s", missing);
    }
    if (strlen(c->cluster) > 64) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "cluster: at most 64 characters");
        return adv_err_field(err, "cluster");
    }
    if (c->backoff_min_ms > c->backoff_max_ms) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "control_plane.backoff_min: above backoff_max");
        return adv_err_field(err, "control_plane.backoff_min");
    }
    return 0;
}

const struct adv_config_table agent_config_table = {
    .program = "advisor-agent",
    .about = "Advisor's hands and eyes at a cluster.\n\n"
             "advisor-agent --enrol FILE [flags]: gets the agent's first certificate with the bundle FILE that\n"
             "`advisorctl cluster enrol` wrote, puts it where tls.cert, tls.key and tls.ca say, and ends.\n\n"
             "advisor-agent --doctor [-o json] [flags]: finds what is missing at this site, says how to mend it, and ends.",
    .env_prefix = "ADVISOR_AGENT",
    .rows = rows,
    .n_rows = ADV_ARRAY_LEN(rows),
    .struct_size = sizeof(S),
    .check = check,
};
