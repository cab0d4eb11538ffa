/* SPDX-License-Identifier: Apache-2.0 */
#include "common/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>

#include "common/err.h"

Test(buf, grows_and_terminates)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 1000);
    cr_assert_str_empty(b.data);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(adv_buf_appendf(&b, "%02d,", i), 0);
    cr_assert_eq(b.len, 300);
    cr_assert_eq(b.data[300], '\0');
    cr_assert(adv_startswith(b.data, "00,01,"));
}

Test(buf, limit_is_sticky)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 4);
    cr_assert_eq(adv_buf_append_str(&b, "abcd"), 0);
    cr_assert_eq(adv_buf_append_byte(&b, 'e'), -ADV_RESOURCE_EXHAUSTED);
    cr_assert_str_eq(b.data, "abcd");
    adv_buf_consume(&b, 4);
    cr_assert_eq(adv_buf_append_str(&b, "x"), -ADV_RESOURCE_EXHAUSTED, "no hole in the middle");
    adv_buf_reset(&b);
    cr_assert_eq(adv_buf_append_str(&b, "x"), 0);
    cr_assert_eq(adv_buf_error(&b), 0);
}

Test(buf, consume_like_a_queue)
{
    ADV_AUTO_DONE(adv_buf) b;
    unsigned int in = 0, out = 0;

    adv_buf_init(&b, 4096);
    for (int round = 0; round < 5000; round++) {
        for (int i = 0; i < 7; i++)
            cr_assert_eq(adv_buf_append_byte(&b, (uint8_t) in++), 0);
        for (int i = 0; i < (round < 300 ? 5 : 7) && b.len > 0; i++) {
            cr_assert_eq((uint8_t) b.data[0], (uint8_t) out++);
            adv_buf_consume(&b, 1);
        }
        cr_assert_eq(b.data[b.len], '\0');
    }
}

Test(buf, steal)
{
    ADV_AUTO_DONE(adv_buf) b;
    size_t len = 9;

    adv_buf_init(&b, 100);
    adv_auto_free char *none = adv_buf_steal(&b, &len);
    cr_assert_str_empty(none);
    cr_assert_eq(len, 0);
    cr_assert_eq(adv_buf_append_str(&b, "hello"), 0);
    adv_buf_consume(&b, 1);
    adv_auto_free char *s = adv_buf_steal(&b, &len);
    cr_assert_str_eq(s, "ello");
    cr_assert_eq(len, 4);
    cr_assert_eq(b.len, 0);
}

Test(buf, reserve_commit_truncate)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 10);
    char *p = adv_buf_reserve(&b, 10);
    cr_assert_not_null(p);
    memcpy(p, "0123456789", 10);
    adv_buf_commit(&b, 10);
    cr_assert_null(adv_buf_reserve(&b, 1));
    adv_buf_truncate(&b, 3);
    cr_assert_str_eq(b.data, "012");
    adv_buf_done(NULL);
}

Test(buf, reads_to_the_end_or_says_why_not)
{
    ADV_AUTO_DONE(adv_buf) all;
    ADV_AUTO_DONE(adv_buf) small;
    FILE *f = tmpfile();

    cr_assert_not_null(f);
    for (int i = 0; i < 2500; i++)
        (void) fprintf(f, "%03d,", i % 1000);
    (void) fflush(f);
    rewind(f);
    adv_buf_init(&all, 10000);
    cr_assert_eq(adv_buf_append_str(&all, ""), 0);
    cr_assert_eq(adv_buf_read(&all, fileno(f)), 0);
    cr_assert_eq(all.len, 10000, "the very limit is not over it");
    cr_assert(adv_startswith(all.data, "000,001,") && adv_streq(all.data + 9992, "498,499,"));

    rewind(f);
    adv_buf_init(&small, 9999);
    cr_assert_eq(adv_buf_read(&small, fileno(f)), -ADV_RESOURCE_EXHAUSTED);
    (void) fclose(f);
    errno = 0;
    adv_buf_reset(&small);
    cr_assert_eq(adv_buf_read(&small, -1), -ADV_UNAVAILABLE);
    cr_assert_eq(errno, EBADF);
}
