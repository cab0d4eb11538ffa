/* SPDX-License-Identifier: Apache-2.0 */
/* Consent. The effective mode is a minimum over everybody who has a say; each who lowers it leaves a sentence. A job
 * that does not opt in is observed, never more; a comment that cannot be understood counts as no opt-in. */

#include "controlplane/domain/policy.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/json.h"

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

static void comment_error(struct comment_opts *ret, const char *fmt, ...) ADV_PRINTF(2, 3);
static void comment_error(struct comment_opts *ret, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(ret->error, sizeof(ret->error), fmt, ap);
    va_end(ap);
    ret->mode = MODE_UNSET;
}

static void copy_word(struct comment_opts *ret, const json_t *obj, const char *key, char *dst, size_t cap)
{
    const char *s;
    struct adv_err err = { 0 };
    int r = adv_json_get_str(obj, key, &s, &err);

    if (r == -ADV_NOT_FOUND)
        return;
    if (r < 0)
        comment_error(ret, "comment: advisor.%s: expected text", key);
    else if (strlen(s) >= cap || !*s)
        comment_error(ret, "comment: advisor.%s: expected 1 to %zu characters", key, cap - 1);
    else
        (void) strcpy(dst, s);
}

static void parse_advisor(struct comment_opts *ret, const json_t *obj)
{
    static const char *const known[] = { "mode", "policy", "max_restarts", "workflow" };
    const char *key, *s;
    json_t *value;
    int64_t n;
    int r;

    ret->mode = MODE_ACT;
    json_object_foreach ((json_t *) (uintptr_t) obj, key, value) {
        size_t i = 0;
        while (i < ADV_ARRAY_LEN(known) && !adv_streq(key, known[i]))
            i++;
        if (i == ADV_ARRAY_LEN(known))
            comment_error(ret, "comment: advisor.%.40s: not a known key (mode, policy, max_restarts, workflow)", key);
    }
    copy_word(ret, obj, "policy", ret->policy, sizeof(ret->policy));
    copy_word(ret, obj, "workflow", ret->workflow, sizeof(ret->workflow));
    r = adv_json_get_i64(obj, "max_restarts", 0, 1000, &n, NULL);
    if (r == 0)
        ret->max_restarts = (uint32_t) n;
    else if (r != -ADV_NOT_FOUND)
        comment_error(ret, "comment: advisor.max_restarts: expected a whole number 0 to 1000");
    if (r == 0 && n == 0)
        ret->mode = MODE_OBSERVE; /* no restart wanted at all */
    r = adv_json_get_str(obj, "mode", &s, NULL);
    if (r == 0) {
        enum adv_mode m;
        if (!mode_from_name(s, &m))
            comment_error(ret, "comment: advisor.mode: \"%.32s\" is not off, observe, approve or act", s);
        else if (!ret->error[0] || m == MODE_OFF)
            ret->mode = m < ret->mode || m == MODE_OFF ? m : ret->mode;
    } else if (r != -ADV_NOT_FOUND) {
        comment_error(ret, "comment: advisor.mode: expected text");
    }
    if (ret->error[0] && ret->mode != MODE_OFF)
        ret->mode = MODE_UNSET; /* half understood is not consent; "off" is heard all the same */
}

static void parse_aps(struct comment_opts *ret, const json_t *obj)
{
    const char *s;
    int64_t n;
    int r;

    if (adv_json_get_str(obj, "auto_resume_mode", &s, NULL) < 0) {
        comment_error(ret, "comment: APS.auto_resume_mode: expected text");
        return;
    }
    if (!adv_streq(s, "requeue")) {
        ret->mode = MODE_OBSERVE;
        return;
    }
    ret->mode = MODE_ACT;
    r = adv_json_get_i64(obj, "max_requeue_times", 0, 1000, &n, NULL);
    if (r == 0) {
        ret->max_restarts = (uint32_t) n;
        if (n == 0)
            ret->mode = MODE_OBSERVE;
    } else if (r != -ADV_NOT_FOUND) {
        comment_error(ret, "comment: APS.max_requeue_times: expected a whole number 0 to 1000");
    }
}

void policy_parse_comment(const char *comment, struct comment_opts *ret)
{
    ADV_JSON_AUTO json_t *root = NULL;
    struct adv_err err = { 0 };
    json_t *obj;
    bool ours;

    *ret = (struct comment_opts) { 0 };
    if (!comment || !*comment)
        return;
    ours = strstr(comment, "\"advisor\"") || strstr(comment, "\"APS\"");
    if (adv_json_parse(comment, strlen(comment), 4096, &root, &err) < 0) {
        if (ours)
            comment_error(ret, "comment: not valid JSON: %.100s", err.msg);
        return;
    }
    if (ours && !json_is_object(root)) {
        comment_error(ret, "comment: expected a JSON object");
        return;
    }
    obj = json_object_get(root, "advisor");
    if (obj) {
        if (json_is_object(obj))
            parse_advisor(ret, obj);
        else
            comment_error(ret, "comment: advisor: expected an object");
        return;
    }
    obj = json_object_get(root, "APS");
    if (obj) {
        if (json_is_object(obj))
            parse_aps(ret, obj);
        else
            comment_error(ret, "comment: APS: expected an object");
    }
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

enum adv_mode policy_cluster_mode(const struct cluster *c, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n)
{
    struct lowering l = { MODE_ACT, ret_reasons, ret_n };

    *ret_n = 0;
    lower_cluster(&l, c);
    return l.mode;
}

enum adv_mode policy_job_mode(const struct job *j, char *ret_reasons[POLICY_MAX_MODE_REASONS], size_t *ret_n)
{
    struct lowering l = { MODE_ACT, ret_reasons, ret_n };

    *ret_n = 0;
    lower_cluster(&l, j->cluster);
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
