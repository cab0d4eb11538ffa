/* SPDX-License-Identifier: Apache-2.0 */
/* Consent. The effective mode is a minimum over everybody who has a say; each who lowers it leaves a sentence. A job
 * that does not opt in is observed, never more; a comment that cannot be understood counts as no opt-in. */

#include "controlplane/domain/policy.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

void policy_defaults(struct policy *ret)
{
    *ret = (struct policy) {
        .log_settle_us = 250 * 1000,
        .fallback_delay_us = 10 * 1000000LL,
        .shared_cause_window_us = 60 * 1000000LL,
        .suspicion_grace_us = 900 * 1000000LL,
        .min_runtime_blind_us = 300 * 1000000LL,
        .valid_for_ms = 3600 * 1000,
        .max_restarts = 3,
        .max_restarts_limit = 50,
        .no_checkpoint_limit = 3,
        .exclude_max_percent = 25,
    };
}

int policy_trust(struct policy *p, const char *const *names, size_t n, struct adv_err *err)
{
    char all[POLICY_TRUSTED_SIZE] = "";
    size_t len = 0;

    for (size_t i = 0; i < n; i++) {
        size_t l = strlen(names[i]);
        if (!l || strchr(names[i], '\n') || len + l + 2 > sizeof(all)) {
            (void) adv_err_set(err, ADV_INVALID_ARGUMENT, "decide.trusted_reporters: expected principals, at most %d bytes of them",
                               POLICY_TRUSTED_SIZE - 1);
            return adv_err_field(err, "decide.trusted_reporters");
        }
        memcpy(all + len, names[i], l);
        len += l;
        all[len++] = '\n';
        all[len] = '\0';
    }
    memcpy(p->trusted_reporters, all, sizeof(all));
    return 0;
}

struct lowering {
    enum adv_mode mode;
    char **reasons;
    size_t *n;
};

/* Keeps the lowest; a stronger lowering goes to the front. */
static void lower(struct lowering *l, enum adv_mode m, const char *fmt, ...) ADV_PRINTF(3, 4);
static void lower(struct lowering *l, enum adv_mode m, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    int r;

    if (m >= MODE_ACT)
        return;
    va_start(ap, fmt);
    r = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (r < 0)
        text = NULL;
    if (text && *l->n < POLICY_MAX_MODE_REASONS) {
        if (m < l->mode) {
            memmove(l->reasons + 1, l->reasons, *l->n * sizeof(*l->reasons));
            l->reasons[0] = text;
        } else {
            l->reasons[*l->n] = text;
        }
        (*l->n)++;
    } else {
        free(text);
    }
    if (m < l->mode)
        l->mode = m;
}

static void lower_cluster(struct lowering *l, const struct cluster *c)
{
    lower(l, c->mode, "the cluster's mode is %s", mode_name(c->mode));
    if (c->epoch_warning)
        lower(l, MODE_OBSERVE, "%s", c->epoch_warning);
    if (c->agent_state == AGENT_NEVER_SEEN)
        lower(l, MODE_OBSERVE, "no agent has connected yet");
    else if (c->ceiling == MODE_UNSET)
        lower(l, MODE_OBSERVE, "the agent has not told its ceiling");
    else
        lower(l, c->ceiling, "the site's ceiling is %s%s%s", mode_name(c->ceiling), c->ceiling_reason ? ": " : "",
              str_or(c->ceiling_reason));
    if (c->agent_state != AGENT_NEVER_SEEN && !c->journal_persistent)
        lower(l, MODE_OBSERVE, "the agent's journal would not survive a crash of its host");
}

static void lower_maintenance(struct lowering *l, const struct cluster *c)
{
    time_t until = (time_t) (c->maintenance_until_us / 1000000);
    char text[32] = "";
    struct tm tm;

    if (!c->maintenance_until_us)
        return;
    if (gmtime_r(&until, &tm))
        (void) strftime(text, sizeof(text), " until %Y-%m-%dT%H:%MZ", &tm);
    lower(l, MODE_OBSERVE, "a maintenance window is open%s", text);
}

enum adv_mode policy_cluster_mode(const struct cluster *c, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n)
{
    struct lowering l = { MODE_ACT, ret_reasons, ret_n };

    *ret_n = 0;
    lower_cluster(&l, c);
    lower_maintenance(&l, c);
    return l.mode;
}

static enum adv_mode job_mode(const struct job *j, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n,
                              bool maintenance)
{
    struct lowering l = { MODE_ACT, ret_reasons, ret_n };

    *ret_n = 0;
    lower_cluster(&l, j->cluster);
    if (maintenance)
        lower_maintenance(&l, j->cluster);
    if (j->comment_error)
        lower(&l, j->opt_mode == MODE_OFF ? MODE_OFF : MODE_OBSERVE, "%s", j->comment_error);
    else if (j->opt_mode == MODE_UNSET)
        lower(&l, MODE_OBSERVE, "the job does not opt in by its comment");
    else
        lower(&l, j->opt_mode, "the job's comment asks for %s", mode_name(j->opt_mode));
    if (j->incarnation_unix == 0)
        lower(&l, MODE_OBSERVE, "it is not certain which submission this job id stands for");
    if (!j->batch)
        lower(&l, MODE_OBSERVE, "it is an interactive allocation, not a batch job");
    return l.mode;
}

enum adv_mode policy_job_mode(const struct job *j, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n)
{
    return job_mode(j, ret_reasons, ret_n, true);
}

enum adv_mode policy_job_consent(const struct job *j, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n)
{
    return job_mode(j, ret_reasons, ret_n, false);
}
