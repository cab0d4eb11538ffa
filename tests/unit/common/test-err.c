/* SPDX-License-Identifier: Apache-2.0 */
#include "common/err.h"

#include <criterion/criterion.h>
#include <limits.h>

#include "common/utf8.h"

Test(err, set_wrap_field)
{
    struct adv_err e;

    cr_assert_eq(adv_err_set(&e, ADV_NOT_FOUND, "job %d", 7), -ADV_NOT_FOUND);
    cr_assert_str_eq(e.msg, "job 7");
    cr_assert_eq(adv_err_field(&e, "jobs[%d].id", 2), -ADV_NOT_FOUND);
    cr_assert_str_eq(e.field, "jobs[2].id");
    adv_err_wrap(&e, "hold %s", "x");
    cr_assert_str_eq(e.msg, "hold x: job 7");
    cr_assert_eq(adv_err_set_reason(&e, ADV_ABORTED, "STALE_EPOCH", "old"), -ADV_ABORTED);
    cr_assert_str_eq(e.reason, "STALE_EPOCH");
    cr_assert_str_empty(e.field);
    cr_assert_eq(adv_err_set_errno(&e, ADV_UNAVAILABLE, ENOENT, "open %s", "f"), -ADV_UNAVAILABLE);
    cr_assert_str_eq(e.msg, "open f: No such file or directory");
    cr_assert_eq(e.sys_errno, ENOENT);
}

Test(err, null_is_fine)
{
    errno = EBADF;
    cr_assert_eq(adv_err_set(NULL, ADV_INTERNAL, "x"), -ADV_INTERNAL);
    adv_err_wrap(NULL, "x");
    (void) adv_err_field(NULL, "x");
    cr_assert_eq(errno, EBADF);
}

Test(err, long_text_stays_utf8)
{
    struct adv_err e;
    char longer[600];

    for (size_t shift = 0; shift < 4; shift++) {
        memset(longer, 'a', shift);
        for (size_t i = shift; i + 3 < sizeof(longer); i += 3)
            memcpy(longer + i, "\xE2\x82\xAC", 4);
        (void) adv_err_set(&e, ADV_INTERNAL, "%s", longer);
        cr_assert(adv_utf8_valid(e.msg, strlen(e.msg)));
        cr_assert_gt(strlen(e.msg), 250);
        adv_err_wrap(&e, "ctx");
        cr_assert(adv_utf8_valid(e.msg, strlen(e.msg)));
    }
}

Test(err, names)
{
    cr_assert_str_eq(adv_code_name(-ADV_NOT_FOUND), "NOT_FOUND");
    cr_assert_str_eq(adv_code_name(ADV_UNAUTHENTICATED), "UNAUTHENTICATED");
    cr_assert_str_eq(adv_code_name(99), "UNKNOWN");
    cr_assert(adv_code_retryable(-ADV_UNAVAILABLE));
    cr_assert(!adv_code_retryable(-ADV_INVALID_ARGUMENT));
    cr_assert(!adv_code_retryable(INT_MIN));
}
