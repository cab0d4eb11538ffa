/* SPDX-License-Identifier: Apache-2.0 */

/* One alternation of the shapes that secrets have in training logs: tokens with a known head, values behind a telling
 * name, credentials in URLs. The group <s> is the secret; it has at least three characters, so the replacement
 * never makes the text longer. A number behind "token" is a count, not a secret. When PCRE2 gives up on a text because of
 * its limits, the whole rest is replaced: better no excerpt than a leaked key. */

#include "controlplane/watcher/redact.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define MATCH_LIMIT 200000

struct redact {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
    int group;
};

static const char shapes[] =
    /* heads that say what they are */
    "\\b(?<s>(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|sk-|sk_live_|rk_live_|pypi-|npm_|"
    "dckr_pat_|nvapi-|AIza|ya29\\.|"
    "eyJ[\\w-]{6,}\\.)[\\w.-]{8,})"
    "|\\b(?<s>(?:AKIA|ASIA|AGPA|AROA)[A-Z0-9]{12,})\\b"
    /* scheme://user:password@host, also without a user */
    "|(?<=://)(?<s>[^/\\s@\"']{3,200})(?=@)"
    /* Authorization: Bearer x */
    "|(?i:\\b(?:bearer|basic|authorization[\"']?[:=] ?[\"']?(?:token)?) +)(?<s>[\\w.~+/=-]{8,})"
    /* signed URLs */
    "|(?i:[?&](?:sig|signature|x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-"
    "signature|token|key|sv)=)"
    "(?<s>[^&\\s\"']{3,})"
    /* name = value, name: value, \"name\": \"value\", --name value */
    "|(?i:(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|"
    "private[_-]?key|auth[_-]?key|"
    "credentials?)[\\w-]{0,20}[\"']?(?: ?[=:] ?| is "
    ")[\"']?)(?!(?i:[\\d.,e+-]+|none|null|true|false|"
    "not|is|the|for|to|was|has|in|of|and|file|ids?|error|expired|invalid|found)\\b)(?<s>[^\\s\"',;&"
    "}\\])]{4,})"
    "|(?i:--[\\w-]{0,30}(?:password|secret|token|key)[\\w-]{0,20} )(?<s>[^\\s-]\\S{3,})"
    "|-----BEGIN [A-Z ]*PRIVATE KEY-----(?<s>.{3,})";

int redact_new(struct redact **ret, struct adv_err *err)
{
    int code = 0;
    PCRE2_SIZE offset = 0;
    struct redact *r = calloc(1, sizeof(*r));

    if (!r)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "redaction: no memory");
    r->code = pcre2_compile((PCRE2_SPTR) shapes, PCRE2_ZERO_TERMINATED, PCRE2_DUPNAMES, &code,
                            &offset, NULL);
    r->context = pcre2_match_context_create(NULL);
    if (r->code)
        r->data = pcre2_match_data_create_from_pattern(r->code, NULL);
    if (!r->code || !r->data || !r->context) {
        (void) redact_free(r);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED,
                           "redaction: pattern not compiled (%d at %zu)", code, offset);
    }
    (void) pcre2_set_match_limit(r->context, MATCH_LIMIT);
    (void) pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without JIT it is only slower */
    *ret = r;
    return 0;
}

struct redact *redact_free(struct redact *r)
{
    if (r) {
        pcre2_match_data_free(r->data);
        pcre2_match_context_free(r->context);
        pcre2_code_free(r->code);
        free(r);
    }
    return NULL;
}

/* Replaces @n bytes at @at by "***". */
static size_t cover(char *text, size_t len, size_t at, size_t n, size_t *mark)
{
    memmove(text + at + 3, text + at + n, len - at - n);
    memcpy(text + at, "***", 3);
    if (mark && *mark >= at + n)
        *mark -= n - 3;
    else if (mark && *mark > at)
        *mark = at;
    return len - n + 3;
}

size_t redact_text(struct redact *r, char *text, size_t len, size_t *mark)
{
    size_t from = 0;

    while (from < len) {
        PCRE2_SIZE *v, at = 0, n = 0;
        int rc = pcre2_match(r->code, (PCRE2_SPTR) text, len, from, 0, r->data, r->context);

        if (rc == PCRE2_ERROR_NOMATCH)
            return len;
        if (rc < 0)
            return len - from >= 3 ? cover(text, len, from, len - from, mark) : from;
        v = pcre2_get_ovector_pointer(r->data);
        for (int g = 1; g < rc; g++) { /* the only groups are those called s */
            if (v[2 * g] != PCRE2_UNSET) {
                at = v[2 * g];
                n = v[2 * g + 1] - at;
            }
        }
        if (n < 3) /* cannot be: every alternative has its group */
            return len;
        len = cover(text, len, at, n, mark);
        from = at + 3;
    }
    return len;
}
