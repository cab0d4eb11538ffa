/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_POLICY_H
#define CONTROLPLANE_DOMAIN_POLICY_H

/* Consent and the numbers of judgement. Pure. */

#include "controlplane/domain/model.h"

#define POLICY_TRUSTED_SIZE 2048

/* Tunables of judgement; filled from the configuration. */
struct policy {
    int64_t log_settle_us;          /* after an end state, wait this long for log lines still on their way */
    int64_t fallback_delay_us;      /* failed state without a signature: anomaly only after this */
    int64_t shared_cause_window_us; /* causes that may be shared wait this long after the end */
    int64_t suspicion_grace_us;     /* signature + no progress for this long confirms on a running attempt */
    int64_t unlearned_silence_us;   /* silence of an attempt whose rhythm is not known: 0 means nothing, ever; for logs that
                                     * are judged afterwards, where it is known that nothing more came */
    int64_t min_runtime_blind_us;   /* unknown cause, no progress known: restart only if it ran this long */
    uint64_t valid_for_ms;
    uint32_t max_restarts;          /* when the job names none */
    uint32_t max_restarts_limit;    /* a job may not ask for more */
    uint32_t no_checkpoint_limit;   /* attempts in a row without a new checkpoint */
    uint32_t exclude_max_percent;   /* of the cluster's nodes, at least one */
    int64_t attribution_fast_us; /* a provider is asked in this phase within so much time; 0: it is not asked */
    int64_t attribution_slow_us; /* the same */
    bool make_requeueable_opted_in; /* of every job that opts in and does not forbid it; else of those that ask for it */
    bool restart_stragglers;        /* where that pays for certain; else they are told only */
    uint32_t attribution_min_percent; /* confidence from which a provider's attribution counts as evidence; 0: never */
    /* Principals whose evidence about nodes counts like that of our own sources, one a line. By value: it is copied about. */
    char trusted_reporters[POLICY_TRUSTED_SIZE];
};

/* DESIGN's defaults. */
void policy_defaults(struct policy *ret);

/* Puts @names (principals) into @p's trusted_reporters. Errors: -ADV_INVALID_ARGUMENT (too many, too long, a line break), field
 * "decide.trusted_reporters"; @p is as it was. */
adv_must_check int policy_trust(struct policy *p, const char *const *names, size_t n, struct adv_err *err);

/* The lowest of cluster mode, agent ceiling, what is known of the store's epoch, the job's opt-in and identity.
 * Appends up to @cap sentences (heap copies, caller frees) saying what lowered it, lowest first. */
#define POLICY_MAX_MODE_REASONS 7
enum adv_mode policy_cluster_mode(const struct cluster *c, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n);
enum adv_mode policy_job_mode(const struct job *j, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n);
/* The same without maintenance windows, which come and go and withdraw nobody's consent. */
enum adv_mode policy_job_consent(const struct job *j, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n);

#endif
