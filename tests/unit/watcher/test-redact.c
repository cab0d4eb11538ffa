/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/redact.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "common/macros.h"

/* The secrets are made of one letter, so that no scanner takes this file for a leak. */
static const struct {
    const char *in, *out;
} rows[] = {
    { "nothing secret here", "nothing secret here" },
    { "token hf_aaaaaaaaaaaaaaaa refused", "token *** refused" },
    { "key=sk-aaaaaaaaaaaaaaaaaaaa end", "key=*** end" },
    { "AKIAAAAAAAAAAAAAAAAA used", "*** used" },
    { "clone https://user:aaaaaaaa@host/x", "clone https://***@host/x" },
    { "clone https://ghp_aaaaaaaaaaaaaaaaaaaa@host/x", "clone https://***@host/x" },
    { "https://host/x?a=1&sig=aaaa%2Faaaa&b=2", "https://host/x?a=1&sig=***&b=2" },
    { "Authorization: Bearer aaaaaaaaaaaaaaaa", "Authorization: Bearer ***" },
    { "WANDB_API_KEY=aaaaaaaaaaaaaaaa python x", "WANDB_API_KEY=*** python x" },
    { "AWS_SECRET_ACCESS_KEY: aaaa/aaaa+aaaa", "AWS_SECRET_ACCESS_KEY: ***" },
    { "{\"password\": \"aaaa bbbb\"}", "{\"password\": \"*** ***\"}" },
    { "--db-password aaaaaa --x", "--db-password *** --x" },
    { "password=aaaaaa", "password=***" },
    { "password=******", "password=***" },
    { "eyJaaaaaaaa.aaaaaaaa.aaaaaaaa", "***" },
    { "-----BEGIN RSA PRIVATE KEY-----aaaa", "-----BEGIN RSA PRIVATE KEY-----***" },
    { "consumed tokens: 155652554752 |", "consumed tokens: 155652554752 |" },
    { "tokens/s: 900.5, token: 17", "tokens/s: 900.5, token: 17" },
    { "the token is invalid", "the token is invalid" },
    { "push_to_hub_token=None", "push_to_hub_token=None" },
    { "two: hf_aaaaaaaaaaaaaaaa and hf_bbbbbbbbbbbbbbbb", "two: *** and ***" },
};

Test(redact, table)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(rows); i++) {
        size_t len = strlen(rows[i].in);
        char *text = malloc(len + 1);

        memcpy(text, rows[i].in, len);
        len = redact_text(text, len, true, NULL);
        cr_assert(len == strlen(rows[i].out) && memcmp(text, rows[i].out, len) == 0, "%s -> %.*s", rows[i].in, (int) len, text);
        free(text);
    }
}

Test(redact, a_text_that_was_cut)
{
    char text[] = "end of it: hf_aaa";
    size_t len = redact_text(text, strlen(text), false, NULL);

    cr_assert_eq(len, strlen("end of it: ***"));
    cr_assert_eq(memcmp(text, "end of it: ***", len), 0);
}

Test(redact, mark_moves)
{
    char text[] = "hf_aaaaaaaaaaaaaaaa then this";
    size_t mark = 20, len = redact_text(text, strlen(text), true, &mark);

    cr_assert_eq(mark, 4);
    cr_assert_eq(memcmp(text + mark, "then this", len - mark), 0);
}
