/* SPDX-License-Identifier: Apache-2.0 */
/* Positions in lists and watches, and what is none. */

#include <criterion/criterion.h>

#include "controlplane/api/token.h"

#define UUID   "0190a3c4-7f00-7000-8000-000000000001"
#define FILTER "0123456789abcdef"

Test(token, pages_go_there_and_back)
{
    static const char *const keys[] = { "n1", "0190/0000000001", "clusters/a", "with:colon", "\xc3\xa9" };
    ADV_AUTO_DONE(adv_arena) ar;
    char key[64];

    adv_arena_init(&ar, 1 << 16);
    for (size_t i = 0; i < ADV_ARRAY_LEN(keys); i++) {
        const char *t = token_page(&ar, "nodes", keys[i]);
        cr_assert(t);
        cr_assert_eq(token_page_parse(t, "nodes", key, sizeof(key), NULL), 0);
        cr_assert_str_eq(key, keys[i]);
        cr_assert_eq(token_page_parse(t, "jobs", key, sizeof(key), NULL), -ADV_INVALID_ARGUMENT);
        cr_assert_eq(token_page_parse(t, "node", key, sizeof(key), NULL), -ADV_INVALID_ARGUMENT);
    }
    cr_assert_eq(token_page_parse("", "nodes", key, sizeof(key), NULL), 0);
    cr_assert_str_eq(key, "");
    cr_assert_eq(token_page_parse(token_page(&ar, "l", "0123456789"), "l", key, 10, NULL), -ADV_INVALID_ARGUMENT);
}

Test(token, what_is_no_page)
{
    static const char *const bad[] = { "z", "zz", "6", "6e6f6465733", "6e6f6465733a", "6e6f6465733a00", "6E6F6465733A78",
                                       "6e6f6465733a78 " };
    struct adv_err err;
    char key[64];

    for (size_t i = 0; i < ADV_ARRAY_LEN(bad); i++) {
        cr_assert_eq(token_page_parse(bad[i], "nodes", key, sizeof(key), &err), -ADV_INVALID_ARGUMENT, "%s", bad[i]);
        cr_assert_str_eq(err.reason, "PAGE_TOKEN_INVALID");
        cr_assert_str_eq(err.field, "page_token");
    }
}

Test(token, resuming)
{
    char buf[TOKEN_RESUME_SIZE];
    struct adv_err err;
    uint64_t seq = 0;

    cr_assert_eq(token_resume_parse(token_resume(UUID, 3, 7, FILTER, buf), UUID, 3, FILTER, &seq, NULL), 0);
    cr_assert_eq(seq, 7);
    cr_assert_eq(token_resume_parse(UUID ".3.7.x", UUID, 3, FILTER, &seq, &err), -ADV_INVALID_ARGUMENT);
    cr_assert_str_eq(err.reason, "RESUME_TOKEN_INVALID");
    cr_assert_str_eq(err.field, "resume_token");
    cr_assert_eq(token_resume_parse(token_resume("other", 3, 7, FILTER, buf), UUID, 3, FILTER, &seq, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(token_resume_parse(token_resume(UUID, 3, 7, "f", buf), UUID, 3, FILTER, &seq, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(token_resume_parse(UUID ".3.-1." FILTER, UUID, 3, FILTER, &seq, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(token_resume_parse(UUID ".x.7." FILTER, UUID, 3, FILTER, &seq, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(token_resume_parse(UUID ".7." FILTER, UUID, 3, FILTER, &seq, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(token_resume_parse(UUID ".3.7." FILTER ".x", UUID, 3, FILTER, &seq, NULL), -ADV_INVALID_ARGUMENT);
    cr_assert_eq(token_resume_parse("", UUID, 3, FILTER, &seq, NULL), -ADV_INVALID_ARGUMENT);
    /* numbers of before a restore are of other changes since, also those that are there again */
    for (uint64_t term = 2; term <= 4; term += 2)
        for (uint64_t n = 7; n < 100; n += 80) {
            cr_assert_eq(token_resume_parse(token_resume(UUID, term, n, FILTER, buf), UUID, 3, FILTER, &seq, &err), -ADV_OUT_OF_RANGE);
            cr_assert_str_eq(err.reason, "HISTORY_COMPACTED");
        }
    cr_assert_eq(seq, 7);
}
