/* SPDX-License-Identifier: Apache-2.0 */
/* A job opts in by its comment; half understood is not consent, and "off" is heard even then. */

#include "common/jobcomment.h"

#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "common/json.h"

bool adv_jobcomment_mode_from_name(const char *s, enum adv_jobcomment_mode *ret)
{
    static const char *const names[] = { NULL, "off", "observe", "approve", "act" };

    for (size_t i = ADV_JOBCOMMENT_OFF; s && i < ADV_ARRAY_LEN(names); i++)
        if (strcasecmp(s, names[i]) == 0) {
            *ret = (enum adv_jobcomment_mode) i;
            return true;
        }
    return false;
}

static void comment_error(struct adv_jobcomment *ret, const char *fmt, ...) ADV_PRINTF(2, 3);
static void comment_error(struct adv_jobcomment *ret, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(ret->error, sizeof(ret->error), fmt, ap);
    va_end(ap);
    ret->mode = ADV_JOBCOMMENT_UNSET;
}

static void copy_word(struct adv_jobcomment *ret, const json_t *obj, const char *key, char *dst, size_t cap)
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

static void parse_advisor(struct adv_jobcomment *ret, const json_t *obj)
{
    static const char *const known[] = { "mode", "policy", "max_restarts", "workflow", "progress",
                                         "make_requeueable" };
    const char *key, *s;
    json_t *value;
    int64_t n;
    int r;

    ret->mode = ADV_JOBCOMMENT_ACT;
    json_object_foreach ((json_t *) (uintptr_t) obj, key, value) {
        size_t i = 0;
        while (i < ADV_ARRAY_LEN(known) && !adv_streq(key, known[i]))
            i++;
        if (i == ADV_ARRAY_LEN(known))
            comment_error(ret, "comment: advisor.%.40s: not a known key (mode, policy, max_restarts, workflow, progress, "
                               "make_requeueable)", key);
    }
    copy_word(ret, obj, "policy", ret->policy, sizeof(ret->policy));
    copy_word(ret, obj, "workflow", ret->workflow, sizeof(ret->workflow));
    copy_word(ret, obj, "progress", ret->progress, sizeof(ret->progress));
    value = json_object_get(obj, "make_requeueable");
    if (value && !json_is_boolean(value))
        comment_error(ret, "comment: advisor.make_requeueable: expected true or false");
    else if (value)
        ret->make_requeueable = json_is_true(value) ? ADV_JOBCOMMENT_REQUEUE_YES : ADV_JOBCOMMENT_REQUEUE_NO;
    r = adv_json_get_i64(obj, "max_restarts", 0, 1000, &n, NULL);
    if (r == 0)
        ret->max_restarts = (uint32_t) n;
    else if (r != -ADV_NOT_FOUND)
        comment_error(ret, "comment: advisor.max_restarts: expected a whole number 0 to 1000");
    if (r == 0 && n == 0)
        ret->mode = ADV_JOBCOMMENT_OBSERVE; /* no restart wanted at all */
    r = adv_json_get_str(obj, "mode", &s, NULL);
    if (r == 0) {
        enum adv_jobcomment_mode m;
        if (!adv_jobcomment_mode_from_name(s, &m))
            comment_error(ret, "comment: advisor.mode: \"%.32s\" is not off, observe, approve or act", s);
        else if (!ret->error[0] || m == ADV_JOBCOMMENT_OFF)
            ret->mode = m < ret->mode || m == ADV_JOBCOMMENT_OFF ? m : ret->mode;
    } else if (r != -ADV_NOT_FOUND) {
        comment_error(ret, "comment: advisor.mode: expected text");
    }
    if (ret->error[0] && ret->mode != ADV_JOBCOMMENT_OFF)
        ret->mode = ADV_JOBCOMMENT_UNSET; /* half understood is not consent; "off" is heard all the same */
}

static void parse_aps(struct adv_jobcomment *ret, const json_t *obj)
{
    const char *s;
    int64_t n;
    int r;

    if (adv_json_get_str(obj, "auto_resume_mode", &s, NULL) < 0) {
        comment_error(ret, "comment: APS.auto_resume_mode: expected text");
        return;
    }
    if (!adv_streq(s, "requeue")) {
        ret->mode = ADV_JOBCOMMENT_OBSERVE;
        return;
    }
    ret->mode = ADV_JOBCOMMENT_ACT;
    r = adv_json_get_i64(obj, "max_requeue_times", 0, 1000, &n, NULL);
    if (r == 0) {
        ret->max_restarts = (uint32_t) n;
        if (n == 0)
            ret->mode = ADV_JOBCOMMENT_OBSERVE;
    } else if (r != -ADV_NOT_FOUND) {
        comment_error(ret, "comment: APS.max_requeue_times: expected a whole number 0 to 1000");
    }
}

void adv_jobcomment_parse(const char *comment, struct adv_jobcomment *ret)
{
    ADV_JSON_AUTO json_t *root = NULL;
    struct adv_err err = { 0 };
    json_t *obj;
    bool ours;

    *ret = (struct adv_jobcomment) { 0 };
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

