/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_API_POLICY_DOCUMENT_H
#define CONTROLPLANE_API_POLICY_DOCUMENT_H

/* What a policy may say: one table of keys, as a program's configuration has (common/config.h). docs/policy.md is made from
 * it. Documents are checked by it and kept as text; nothing is judged by their values yet. */

#include "common/config.h"

#define POLICY_DOCUMENT_MAX (64 << 10)

struct policy_values {
    int mode;
    int64_t max_restarts;
    int64_t no_checkpoint_limit;
    int64_t min_runtime_blind_ms;
    bool chain_time_limit;
    bool straggler_restart;
    int64_t shared_cause_window_ms;
    int64_t suspicion_grace_ms;
    int64_t fallback_delay_ms;
    int64_t advice_valid_ms;
    int64_t exclude_max_percent;
    int64_t budget_user;
    int64_t budget_account;
    int64_t budget_cluster;
    struct adv_config_list trusted_reporters;
};

extern const struct adv_config_table policy_document_table;

/* Whether @text is a document. Errors: -ADV_INVALID_ARGUMENT, -ADV_OUT_OF_RANGE (field: the key at fault, message: where and what),
 * -ADV_RESOURCE_EXHAUSTED. Any thread, never blocks. */
adv_must_check int policy_document_check(const char *text, struct adv_err *err);

#endif
