/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/api/token.h"

#include <stdio.h>

#include "common/digest.h"
#include "common/num.h"

/* "<list>:<key>" in hex: opaque enough that nobody builds one by hand, and checked when it comes back. */
char *token_page(struct adv_arena *ar, const char *list, const char *key)
{
    char plain[1024];
    int n = snprintf(plain, sizeof(plain), "%s:%s", list, key);
    char *out = n < 0 || (size_t) n >= sizeof(plain) ? NULL : adv_arena_alloc(ar, (size_t) n * 2 + 1);

    if (out)
        (void) adv_hex(plain, (size_t) n, out);
    return out;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int token_page_parse(const char *token, const char *list, char *ret_key, size_t size, struct adv_err *err)
{
    size_t n = strlen(token), skip = strlen(list) + 1;
    char plain[1024];
    bool ok = n % 2 == 0 && n / 2 < sizeof(plain);

    ret_key[0] = '\0';
    if (n == 0)
        return 0;
    for (size_t i = 0; ok && i < n; i += 2) {
        int hi = hex_digit(token[i]), lo = hex_digit(token[i + 1]);
        ok = hi >= 0 && lo >= 0 && (hi || lo);
        plain[i / 2] = (char) (hi * 16 + lo);
    }
    if (ok) {
        plain[n / 2] = '\0';
        ok = strncmp(plain, list, skip - 1) == 0 && plain[skip - 1] == ':' && strlen(plain + skip) < size &&
             plain[skip] != '\0';
    }
    if (!ok) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "PAGE_TOKEN_INVALID",
                                  "page_token: expected the next_page_token of the same list");
        return adv_err_field(err, "page_token");
    }
    (void) strcpy(ret_key, plain + skip);
    return 0;
}

const char *token_resume(const char *store_uuid, uint64_t term, uint64_t seq, const char *filter, char buf[TOKEN_RESUME_SIZE])
{
    (void) snprintf(buf, TOKEN_RESUME_SIZE, "%s.%llu.%llu.%s", store_uuid, (unsigned long long) term, (unsigned long long) seq,
                    filter);
    return buf;
}

int token_resume_invalid(struct adv_err *err)
{
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "RESUME_TOKEN_INVALID",
                              "resume_token: expected a token of this store, caller and filter");
    return adv_err_field(err, "resume_token");
}

int token_resume_parse(const char *token, const char *store_uuid, uint64_t term, const char *filter, uint64_t *ret_seq,
                       struct adv_err *err)
{
    char text[TOKEN_RESUME_SIZE], *save = NULL, *uuid, *its_term, *seq, *its_filter;
    uint64_t t, n;

    if (strlen(token) < sizeof(text)) {
        (void) strcpy(text, token);
        uuid = strtok_r(text, ".", &save);
        its_term = strtok_r(NULL, ".", &save);
        seq = strtok_r(NULL, ".", &save);
        its_filter = strtok_r(NULL, ".", &save);
        if (uuid && its_term && seq && its_filter && adv_streq(uuid, store_uuid) && adv_streq(its_filter, filter) &&
            !strtok_r(NULL, ".", &save) && adv_parse_u64(its_term, 0, UINT64_MAX, &t, NULL) == 0 &&
            adv_parse_u64(seq, 0, UINT64_MAX - 1, &n, NULL) == 0) {
            if (t != term) /* a restore keeps the store's id and sets its numbers back */
                return adv_err_set_reason(err, ADV_OUT_OF_RANGE, "HISTORY_COMPACTED",
                                          "the store was restored, copied or promoted since: start without a token");
            *ret_seq = n;
            return 0;
        }
    }
    return token_resume_invalid(err);
}
