/* SPDX-License-Identifier: Apache-2.0 */

/* Names and small predicates of the adapter contract. The names go over the wire and into journals and audits, so they
 * are kept as they are once released. */

#include "adapters/adapter.h"
#include "common/log.h"

static const char *const state_names[ADAPTER_JOB_STATE_MAX_] = {
    [ADAPTER_JOB_UNKNOWN_STATE] = "UNKNOWN",
    [ADAPTER_JOB_PENDING] = "PENDING",
    [ADAPTER_JOB_CONFIGURING] = "CONFIGURING",
    [ADAPTER_JOB_RUNNING] = "RUNNING",
    [ADAPTER_JOB_SUSPENDED] = "SUSPENDED",
    [ADAPTER_JOB_STOPPED] = "STOPPED",
    [ADAPTER_JOB_COMPLETED] = "COMPLETED",
    [ADAPTER_JOB_CANCELLED] = "CANCELLED",
    [ADAPTER_JOB_FAILED] = "FAILED",
    [ADAPTER_JOB_TIMEOUT] = "TIMEOUT",
    [ADAPTER_JOB_OUT_OF_MEMORY] = "OUT_OF_MEMORY",
    [ADAPTER_JOB_NODE_FAIL] = "NODE_FAIL",
    [ADAPTER_JOB_BOOT_FAIL] = "BOOT_FAIL",
    [ADAPTER_JOB_PREEMPTED] = "PREEMPTED",
    [ADAPTER_JOB_DEADLINE] = "DEADLINE",
    [ADAPTER_JOB_REQUEUED] = "REQUEUED",
    [ADAPTER_JOB_REQUEUE_HOLD] = "REQUEUE_HOLD",
    [ADAPTER_JOB_SPECIAL_EXIT] = "SPECIAL_EXIT",
    [ADAPTER_JOB_REVOKED] = "REVOKED",
};

static const char *const verb_names[ADAPTER_VERB_MAX_] = {
    [ADAPTER_VERB_PRESERVE] = "preserve",
    [ADAPTER_VERB_INTERRUPT] = "interrupt",
    [ADAPTER_VERB_MAKE_REQUEUEABLE] = "make_requeueable",
    [ADAPTER_VERB_CONSTRAIN] = "constrain",
    [ADAPTER_VERB_RELEASE] = "release",
    [ADAPTER_VERB_CANCEL] = "cancel",
    [ADAPTER_VERB_REARM_CHILD] = "rearm_child",
};

static const char *const reason_names[ADAPTER_REASON_MAX_] = {
    [ADAPTER_REASON_OK] = "ok",
    [ADAPTER_REASON_ALREADY_SATISFIED] = "already_satisfied",
    [ADAPTER_REASON_CONFLICT_USER_ACTION] = "conflict_user_action",
    [ADAPTER_REASON_ATTEMPT_SUPERSEDED] = "attempt_superseded",
    [ADAPTER_REASON_GONE] = "gone",
    [ADAPTER_REASON_ID_REUSED] = "id_reused",
    [ADAPTER_REASON_CANCELLED_BY_USER] = "cancelled_by_user",
    [ADAPTER_REASON_COMPLETED] = "completed",
    [ADAPTER_REASON_COMPLETING_WAIT] = "completing_wait",
    [ADAPTER_REASON_FORBIDDEN] = "forbidden",
    [ADAPTER_REASON_UNAVAILABLE] = "unavailable",
    [ADAPTER_REASON_NOT_REQUEUEABLE] = "not_requeueable",
    [ADAPTER_REASON_NOT_BATCH] = "not_batch",
    [ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE] = "constraint_unsatisfiable",
    [ADAPTER_REASON_INVALID] = "invalid",
    [ADAPTER_REASON_LEASE_LOST] = "lease_lost",
    [ADAPTER_REASON_WRONG_STATE] = "wrong_state",
};

const char *adapter_job_state_name(enum adapter_job_state state)
{
    return (unsigned) state < ADAPTER_JOB_STATE_MAX_ ? state_names[state] : "UNKNOWN";
}

bool adapter_job_state_ended(enum adapter_job_state state)
{
    switch (state) {
    case ADAPTER_JOB_COMPLETED:
    case ADAPTER_JOB_CANCELLED:
    case ADAPTER_JOB_FAILED:
    case ADAPTER_JOB_TIMEOUT:
    case ADAPTER_JOB_OUT_OF_MEMORY:
    case ADAPTER_JOB_NODE_FAIL:
    case ADAPTER_JOB_BOOT_FAIL:
    case ADAPTER_JOB_PREEMPTED:
    case ADAPTER_JOB_DEADLINE:
    case ADAPTER_JOB_REVOKED:
        return true;
    default:
        return false;
    }
}

const char *adapter_verb_name(enum adapter_verb verb)
{
    return (unsigned) verb < ADAPTER_VERB_MAX_ ? verb_names[verb] : "unknown";
}

const char *adapter_reason_name(enum adapter_reason r)
{
    return (unsigned) r < ADAPTER_REASON_MAX_ ? reason_names[r] : "unknown";
}

const char *adapter_command_name(enum adapter_command c)
{
    static const char *const names[] = { "not_sent", "accepted", "refused", "timed_out" };

    return (unsigned) c < ADV_ARRAY_LEN(names) ? names[c] : "unknown";
}

const char *adapter_observed_name(enum adapter_observed o)
{
    static const char *const names[] = { "unknown", "yes", "no" };

    return (unsigned) o < ADV_ARRAY_LEN(names) ? names[o] : "unknown";
}

bool adapter_node_usable(const struct adapter_node *n)
{
    const unsigned bad = ADAPTER_NODE_DRAIN | ADAPTER_NODE_FAIL | ADAPTER_NODE_MAINT | ADAPTER_NODE_NOT_RESPONDING |
                         ADAPTER_NODE_REBOOT;

    return (n->base == ADAPTER_NODE_IDLE || n->base == ADAPTER_NODE_MIXED || n->base == ADAPTER_NODE_ALLOCATED) &&
           !(n->flags & bad);
}

void adapter_host_log(void *ctx, enum adapter_log_level level, const char *line)
{
    if (level == ADAPTER_LOG_WARNING)
        adv_warn("adapter", line);
    else if (level == ADAPTER_LOG_INFO)
        adv_info("adapter", line);
    else
        adv_debug("adapter", line);
}
