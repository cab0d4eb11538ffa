/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/text.h"

#include <criterion/criterion.h>

Test(text, escape)
{
    static const struct {
        const char *in, *out;
    } t[] = {
        { NULL, "" },
        { "", "" },
        { "plain", "plain" },
        { "a\nb\tc\rd", "a\\nb\\tc\\rd" },
        { "\033[31mred\033[0m", "\\x1b[31mred\\x1b[0m" },
        { "bell\a del\x7f", "bell\\x07 del\\x7f" },
        { "c1 \xC2\x9B" "31m", "c1 \\x9b31m" },
        { "rlo \xE2\x80\xAE" "txt", "rlo \\u{202e}txt" },
        { "zero\xE2\x80\x8Bwidth", "zero\\u{200b}width" },
        { "bad \xFF byte", "bad \xEF\xBF\xBD byte" },
        { "Grün 日本", "Grün 日本" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO_DONE(adv_buf) b;

        adv_buf_init(&b, 1024);
        text_escape(&b, t[i].in);
        cr_assert_str_eq(b.data, t[i].out);
    }
}

Test(text, fit)
{
    static const struct {
        const char *in;
        size_t columns;
        const char *out;
    } t[] = {
        { "abc", 3, "abc" }, { "abcd", 3, "ab…" }, { "abcd", 1, "…" }, { "abcd", 0, "" }, { "", 0, "" },
        { "日本語", 6, "日本語" }, { "日本語", 5, "日本…" }, { "日本語", 4, "日…" }, { "e\xCC\x81x", 2, "e\xCC\x81x" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        ADV_AUTO_DONE(adv_buf) b;

        adv_buf_init(&b, 1024);
        text_fit(&b, t[i].in, t[i].columns);
        cr_assert_str_eq(b.data, t[i].out, "%s in %zu", t[i].in, t[i].columns);
    }
}

Test(text, span)
{
    static const struct {
        int64_t us;
        const char *out;
    } t[] = {
        { 0, "0ms" },           { 350400, "350ms" },         { 999499, "999ms" },         { 999500, "1.0s" },
        { 4249999, "4.2s" },    { 59949999, "59.9s" },       { 60000000, "1m00s" },       { -1500000, "-1.5s" },
        { 3599000000, "59m59s" }, { 3600000000, "1h00m" },   { 90000000000, "1d01h" },
    };
    char out[TEXT_TIME_SIZE];

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_str_eq(text_span(t[i].us, out), t[i].out);
    (void) text_span(INT64_MIN, out);
    cr_assert_str_eq(text_clock(0, out), "-");
    setenv("TZ", "UTC", 1);
    cr_assert_str_eq(text_clock(INT64_C(1767323045678000), out), "2026-01-02 03:04:05.678");
}

Test(text, wrap)
{
    static const struct {
        const char *in;
        size_t columns, indent;
        const char *out;
    } t[] = {
        { "", 0, 0, "\n" },
        { "one two three four five six", 0, 1, " one two three four five six\n" },
        { "one two three four five six", 22, 0, "one two three four\nfive six\n" },
        { "abcdefghijklmnopqrstuvwxyz", 22, 0, "abcdefghijklmnopqrstuv\nwxyz\n" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        char *text = NULL;
        size_t len = 0;
        FILE *f = open_memstream(&text, &len);

        text_wrap(f, t[i].in, t[i].columns, t[i].indent);
        (void) fclose(f);
        cr_assert_str_eq(text, t[i].out);
        free(text);
    }
}
