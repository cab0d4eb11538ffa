/* SPDX-License-Identifier: Apache-2.0 */

#include "advisor-watchdog/config.h"

#define S struct watchdog_config

static const char *const log_formats[] = { "text", "json", NULL };
static const char *const log_levels[] = { "debug", "info", "warn", "error", NULL };

static const struct adv_config_row rows[] = {
    ADV_CONFIG_PATH(S, state_dir, "state.dir", "/var/lib/advisor-agent", RESTART,
                    "The agent's folder, as the agent has it; the watchdog writes into its own one below it, watchdog/."),
    ADV_CONFIG_BOOL(S, allow_volatile, "state.allow_volatile", "false", RESTART,
                    "Act although the folder is on tmpfs or in a container's overlay; for tests."),
    ADV_CONFIG_PATH(S, ceiling_path, "ceiling.path", "", RESTART,
                    "The site's ceiling file, as the agent has it; empty: none."),
    ADV_CONFIG_STRING(S, ceiling_owner, "ceiling.owner", "", RESTART,
                      "User who may own that file besides root; not the watchdog's own, which must not write it."),
    ADV_CONFIG_DURATION(S, poll_ms, "poll.interval", 50, 600000, "5s", RESTART,
                        "Time between two looks at the agent's journal; at most one job is looked at each time."),
    ADV_CONFIG_DURATION(S, gone_ms, "grace.agent_gone", 0, 86400000, "2m", RESTART,
                        "A hold that is over is left for so long to an agent that does not run."),
    ADV_CONFIG_DURATION(S, there_ms, "grace.agent_there", 0, 86400000, "10m", RESTART,
                        "The same for an agent that runs, or hangs; not less than grace.agent_gone."),
    ADV_CONFIG_INT(S, ends_per_minute, "ends_per_minute", "holds", 1, 60, "6", RESTART,
                   "Holds ended in any minute at most."),
    ADV_CONFIG_BOOL(S, only_agent, "only_agent", "true", RESTART,
                    "No other agent serves this cluster. Where false, no hold expires by time alone: another agent may have "
                    "taken it over while this one was dead."),
    ADV_CONFIG_BOOL(S, observe, "observe", "false", RESTART, "Say what would be done, and do nothing."),
    ADV_CONFIG_BOOL(S, once, "once", "false", RESTART, "Look at each hold once, then end."),
    ADV_CONFIG_PATH(S, slurm_conf, "scheduler.slurm_conf", "", RESTART,
                    "The site's slurm.conf; empty: as Slurm finds it."),
    ADV_CONFIG_PATH(S, bin_dir, "scheduler.bin_dir", "", RESTART, "Where the tools are; empty: PATH."),
    ADV_CONFIG_STRING(S, scheduler_user, "scheduler.user", "", RESTART,
                      "As whom the tools run; empty: the watchdog's user."),
    ADV_CONFIG_DURATION(S, landing_bound_ms, "scheduler.landing_bound", 1000, 600000, "20s", RESTART,
                        "After this long a command can no longer take effect."),
    ADV_CONFIG_DURATION(S, command_deadline_ms, "scheduler.command_deadline", 1000, 600000, "12s", RESTART,
                        "A command is killed after this."),
    ADV_CONFIG_DURATION(S, action_deadline_ms, "scheduler.action_deadline", 1000, 600000, "90s", RESTART,
                        "Longest time for one step, with all its reads."),
    ADV_CONFIG_ENUM(S, log_format, "log.format", log_formats, "text", RESTART, "How log lines look."),
    ADV_CONFIG_ENUM(S, log_level, "log.level", log_levels, "info", NOW, "Least level that is logged."),
};

static int check(const void *values, struct adv_err *err)
{
    const S *c = values;

    if (!c->state_dir[0]) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "state.dir: must be set");
        return adv_err_field(err, "state.dir");
    }
    if (c->there_ms < c->gone_ms) {
        (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "grace.agent_there: less than grace.agent_gone");
        return adv_err_field(err, "grace.agent_there");
    }
    return 0;
}

const struct adv_config_table watchdog_config_table = {
    .program = "advisor-watchdog",
    .about = "Gives jobs back from the holds of Advisor's agent when the agent does not.\n\n"
             "--observe says what it would do and writes nothing; --once looks at each hold once and ends.",
    .env_prefix = "ADVISOR_WATCHDOG",
    .rows = rows,
    .n_rows = ADV_ARRAY_LEN(rows),
    .struct_size = sizeof(S),
    .check = check,
};
