/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEST_MAX   20
#define SIZE_MAX_  16384 /* compiled */
#define MATCH_MAX  20000 /* steps of the matcher for one line */
#define DEPTH_MAX  500
#define HEAP_MAX   64    /* KiB */
#define LINE_MAX_  4096  /* bytes of a line that are looked at */
#define DIGITS_MAX 12

struct watcher_pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    int group;
};

struct watcher_pattern *watcher_pattern_free(struct watcher_pattern *p)
{
    if (p) {
        pcre2_match_context_free(p->limits);
        pcre2_match_data_free(p->data);
        pcre2_code_free(p->code);
        free(p);
    }
    return NULL;
}

static int compile(struct watcher_pattern *p, const char *text, struct adv_err *err)
{
    pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
    PCRE2_UCHAR msg[128];
    PCRE2_SIZE at = 0;
    size_t size = 0;
    int code = 0;

    if (!ctx)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "progress pattern: no memory");
    (void) pcre2_set_parens_nest_limit(ctx, NEST_MAX);
    (void) pcre2_set_max_pattern_length(ctx, WATCHER_PATTERN_MAX);
    p->code = pcre2_compile((PCRE2_SPTR) text, strlen(text), PCRE2_NEVER_UTF | PCRE2_NEVER_UCP | PCRE2_NEVER_BACKSLASH_C, &code,
                            &at, ctx);
    pcre2_compile_context_free(ctx);
    if (!p->code) {
        (void) pcre2_get_error_message(code, msg, sizeof(msg));
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "at character %zu: %s", (size_t) at + 1, (const char *) msg);
    }
    (void) pcre2_pattern_info(p->code, PCRE2_INFO_SIZE, &size);
    if (size > SIZE_MAX_)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "too large once it is compiled (repeated groups)");
    p->group = pcre2_substring_number_from_name(p->code, (PCRE2_SPTR) "step");
    if (p->group < 0)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "expected one group named step, such as (?<step>\\d+)");
    return 0;
}

int watcher_pattern_new(const char *text, struct watcher_pattern **ret, struct adv_err *err)
{
    struct watcher_pattern *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "progress pattern: no memory");
    r = compile(p, text, err);
    if (r == 0) {
        p->data = pcre2_match_data_create_from_pattern(p->code, NULL);
        p->limits = pcre2_match_context_create(NULL);
        if (!p->data || !p->limits)
            r = adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "progress pattern: no memory");
    }
    if (r < 0) {
        (void) watcher_pattern_free(p);
        return r;
    }
    (void) pcre2_set_match_limit(p->limits, MATCH_MAX);
    (void) pcre2_set_depth_limit(p->limits, DEPTH_MAX);
    (void) pcre2_set_heap_limit(p->limits, HEAP_MAX);
    *ret = p;
    return 0;
}

bool watcher_pattern_check(const char *text, char *ret_why, size_t cap)
{
    ADV_AUTO(watcher_pattern) p = NULL;
    struct adv_err err = { 0 };

    if (watcher_pattern_new(text, &p, &err) == 0)
        return true;
    (void) snprintf(ret_why, cap, "%s", err.msg);
    return false;
}

int64_t watcher_pattern_step(struct watcher_pattern *p, const char *line, size_t len)
{
    const PCRE2_SIZE *at;
    int64_t step = 0;
    int n = pcre2_match(p->code, (PCRE2_SPTR) line, len < LINE_MAX_ ? len : LINE_MAX_, 0, 0, p->data, p->limits);

    if (n <= p->group) /* no match, a limit, or without the group */
        return -1;
    at = pcre2_get_ovector_pointer(p->data) + (size_t) 2 * (size_t) p->group;
    if (at[0] == PCRE2_UNSET || at[1] <= at[0] || at[1] - at[0] > DIGITS_MAX)
        return -1;
    for (PCRE2_SIZE i = at[0]; i < at[1]; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -1;
        step = step * 10 + (line[i] - '0');
    }
    return step;
}
