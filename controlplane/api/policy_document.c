/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/api/policy_document.h"

#include <string.h>

static const char *const modes[] = { "off", "observe", "approve", "act", NULL };

#define S struct policy_values
static const struct adv_config_row rows[] = {
    ADV_CONFIG_ENUM(S, mode, "mode", modes, "act", NOW, "The most that may happen to a job under this policy."),
    ADV_CONFIG_INT(S, max_restarts, "restart.max", "restarts", 0, 1000, "3", NOW, "Restarts of a job that names no limit."),
    ADV_CONFIG_INT(S, no_checkpoint_limit, "restart.no_checkpoint_limit", "attempts", 1, 1000, "3", NOW,
                   "Attempts in a row without a new checkpoint that end the restarts."),
    ADV_CONFIG_DURATION(S, min_runtime_blind_ms, "restart.min_runtime_blind", 0, 86400000, "5m", NOW,
                        "An attempt of unknown cause and unknown progress is restarted only if it ran this long."),
    ADV_CONFIG_BOOL(S, chain_time_limit, "restart.after_time_limit", "false", NOW,
                    "An attempt that used its whole time limit is followed by another."),
    ADV_CONFIG_BOOL(S, straggler_restart, "restart.stragglers", "false", NOW,
                    "Attempts that are much slower than they could be are restarted."),
    ADV_CONFIG_DURATION(S, shared_cause_window_ms, "wait.shared_cause", 0, 3600000, "1m", NOW,
                        "Causes that name no node wait this long, so that a mass failure shows itself as one."),
    ADV_CONFIG_DURATION(S, suspicion_grace_ms, "wait.suspicion_grace", 1000, 86400000, "15m", NOW,
                        "A signature on a running attempt with no progress for this long is confirmed."),
    ADV_CONFIG_DURATION(S, fallback_delay_ms, "wait.fallback_delay", 0, 600000, "10s", NOW,
                        "A failed state without a signature becomes an anomaly after this."),
    ADV_CONFIG_DURATION(S, advice_valid_ms, "advice.valid_for", 1000, 86400000, "1h", NOW,
                        "How long advice may be carried out or approved."),
    ADV_CONFIG_INT(S, exclude_max_percent, "exclude.max_percent", "percent", 0, 100, "25", NOW,
                   "Most nodes of a cluster that evidence may exclude at once; one node always may be."),
    ADV_CONFIG_INT(S, budget_user, "budget.user", "restarts an hour", 0, 100000, "20", NOW, "Restarts of one user's jobs."),
    ADV_CONFIG_INT(S, budget_account, "budget.account", "restarts an hour", 0, 100000, "50", NOW,
                   "Restarts of one account's jobs."),
    ADV_CONFIG_INT(S, budget_cluster, "budget.cluster", "restarts an hour", 0, 100000, "200", NOW,
                   "Restarts on one cluster."),
    ADV_CONFIG_LIST(S, trusted_reporters, "reporters.trusted", "", NOW,
                    "Outside detectors (principals) whose anomalies count like those of the rules."),
};
#undef S

const struct adv_config_table policy_document_table = {
    .program = "policy",
    .about = "A policy.",
    .env_prefix = "",
    .rows = rows,
    .n_rows = ADV_ARRAY_LEN(rows),
    .struct_size = sizeof(struct policy_values),
};

int policy_document_check(const char *text, struct adv_err *err)
{
    ADV_AUTO(adv_config) c = NULL;

    return adv_config_parse(&policy_document_table, "document", text, strlen(text), &c, err);
}
