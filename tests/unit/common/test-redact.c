/* SPDX-License-Identifier: Apache-2.0 */
#include "common/redact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "common/macros.h"

/* The secrets are made of few letters, so that no scanner takes this file for a leak. In @out '*' is what was covered. */
static const struct {
    const char *in, *out;
} rows[] = {
    { "nothing secret here\n", "nothing secret here\n" },
    { "token hf_aaaaaaaaaaaaaaaa refused\n", "token ******************* refused\n" },
    { "from huggingface_hub import hf_hub_download, hf_transfer\n", "from huggingface_hub import hf_hub_download, hf_transfer\n" },
    { "x=hf_aaaaaaaaaaaaaaaa;y\n", "x=*******************;y\n" },
    { "\x1b[31mhf_aaaaaaaaaaaaaaaa\x1b[0m\n", "\x1b[31m*******************\x1b[0m\n" },
    { "clone https://user:aaaaaaaa@host/x\n", "clone https://*************@host/x\n" },
    { "tcp://10.0.0.1:2222 and a@b.c\n", "tcp://10.0.0.1:2222 and a@b.c\n" },
    { "Authorization: Bearer aaaaaaaa\n", "Authorization: Bearer ********\n" },
    { "-H 'Authorization:Bearer aaaaaaaa'\n", "-H 'Authorization:Bearer ********'\n" },
    { "{\"authorization\": \"Basic aaaa\"}\n", "{\"authorization\": \"Basic ****\"}\n" },
    { "Bearer authentication failed\n", "Bearer authentication failed\n" },
    { "bearer a1aaaaaaa\n", "bearer *********\n" },
    { "WANDB_API_KEY=aaaaaaaaaaaaaaaa python x\n", "WANDB_API_KEY=**************** python x\n" },
    { "{\"apiKey\":\"aaaa1\",\"b\":\"c\"}\n", "{\"apiKey\":\"*****\",\"b\":\"c\"}\n" },
    { "{\\\"password\\\":\\\"aaaa1\\\"}\n", "{\\\"password\\\":\\\"*****\\\"}\n" },
    { "password = aaaa1 next\n", "password = ***** next\n" },
    { "password: 'aaaa bbbb c' next\n", "password: '**** **** *' next\n" },
    { "password: 'aaaa\nnext line'\n", "password: '****\nnext line'\n" },
    { "password is aaaa1\n", "password is *****\n" },
    { "password=12345678\n", "password=********\n" },
    { "PWD=/home/a/b OLDPWD=/home/a\n", "PWD=/home/a/b OLDPWD=/home/a\n" },
    { "--password aaaa1 --token=aaaa1 --api-key aaaa1\n", "--password ***** --token=***** --api-key *****\n" },
    { "--token --verbose\n", "--token --verbose\n" },
    { "the token is invalid, password is required\n", "the token is invalid, password is required\n" },
    { "tokens: 155652554752 | token: 17 tokens/s: 9.5\n", "tokens: 155652554752 | token: 17 tokens/s: 9.5\n" },
    { "pad_token=<|end|> eos_token: eeee secretName: abcd\n", "pad_token=<|end|> eos_token: eeee secretName: abcd\n" },
    { "if token == self.eos_token_id:\n", "if token == self.eos_token_id:\n" },
    { "KeyError: 'password'\n", "KeyError: 'password'\n" },
    { "GET /x?a=1&key=aaaaaa&b=2&sig=aa%2Faa HTTP\n", "GET /x?a=1&key=******&b=2&sig=******* HTTP\n" },
    { "eyJaaaaaaaa.aaaaaaaa.aaaaaaaa x\n", "***************************** x\n" },
    { "AccountKey=aaaa+aaaa==;End=x\n", "AccountKey=***********;End=x\n" },
    { "a\n-----BEGIN RSA PRIVATE KEY-----\naaaa\nbb b\n-----END RSA PRIVATE KEY-----\nz\n",
      "a\n-----BEGIN RSA PRIVATE KEY-----\n****\n** *\n-----END RSA PRIVATE KEY-----\nz\n" },
    { "-----BEGIN PRIVATE KEY-----\\naaaa\\n-----END PRIVATE KEY----- z\n",
      "-----BEGIN PRIVATE KEY-----********-----END PRIVATE KEY----- z\n" },
    { "-----BEGIN CERTIFICATE-----\naaaa\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\naaaa\n-----END CERTIFICATE-----\n" },
    { "Epoch 1: 10%|#| loss=0.5\rEpoch 1: 20%|##| loss=0.4\n", "Epoch 1: 10%|#| loss=0.5\rEpoch 1: 20%|##| loss=0.4\n" },
};

/* What comes out when the text arrives in pieces of @step bytes; *ret_len is what was judged. */
static uint8_t *in_pieces(const char *in, size_t len, size_t step, size_t *ret_len)
{
    struct adv_redact r = { .mask = '*' };
    uint8_t *out = malloc(len + 1), *work = malloc(len + 1);
    size_t done = 0;

    for (size_t end = 0; end < len;) {
        size_t n;

        end = end + step < len ? end + step : len;
        memcpy(work, in + done, end - done);
        n = adv_redact(&r, work, end - done);
        cr_assert_leq(end - done - n, ADV_REDACT_PART);
        memcpy(out + done, work, n);
        done += n;
    }
    free(work);
    *ret_len = done;
    return out;
}

Test(redact, table)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(rows); i++)
        for (size_t step = 1; step < 80; step++) {
            size_t len = strlen(rows[i].in), n = 0;
            uint8_t *out = in_pieces(rows[i].in, len, step, &n);

            cr_assert(n == len && memcmp(out, rows[i].out, len) == 0, "%s-> %.*s in pieces of %zu", rows[i].in, (int) n, out, step);
            free(out);
        }
}

Test(redact, long_tokens)
{
    char text[4096 + 64];
    size_t len, n = 0;
    uint8_t *out;

    memset(text, 'a', sizeof(text));
    memcpy(text, "password=", 9);
    text[4000] = ' ';
    memcpy(text + 4001, "hf", 2);
    len = 4003;
    for (size_t step = 1; step < 5000; step = step * 3 + 1) {
        out = in_pieces(text, len, step, &n);
        cr_assert_eq(n, 4001, "the last token is not over");
        cr_assert_eq(memcmp(out, "password=", 9), 0);
        for (size_t i = 9; i < 4000; i++)
            cr_assert_eq(out[i], '*', "at %zu", i);
        free(out);
    }
}

Test(redact, compact_json)
{
    for (size_t pad = 480; pad < 530; pad++) {
        char text[700], *at;
        size_t n = 0, len;
        uint8_t *out;

        (void) snprintf(text, sizeof(text), "{\"a\":\"%0*d\",\"api_key\":\"aaaa1\",\"b\":1}\n", (int) pad - 20, 0);
        len = strlen(text);
        out = in_pieces(text, len, 97, &n);
        cr_assert_eq(n, len);
        at = strstr(text, "aaaa1");
        cr_assert_eq(memcmp(out + (at - text), "*****", 5), 0, "%.*s", (int) len, out);
        free(out);
    }
}

Test(redact, a_key_without_an_end)
{
    size_t len = 40000, n = 0;
    char *text = malloc(len);
    uint8_t *out;

    for (size_t i = 0; i < len; i++)
        text[i] = i % 64 == 63 ? '\n' : 'k';
    memcpy(text, "-----BEGIN PRIVATE KEY-----\n", 28);
    out = in_pieces(text, len, 1000, &n);
    cr_assert_eq(n, len);
    cr_assert_eq(out[10000], '*');
    cr_assert_eq(out[39000], 'k', "the rest of a log is not hidden for ever");
    free(out);
    free(text);
}

Test(redact, unfinished)
{
    static const struct {
        const char *in, *out;
    } open[] = {
        { "plain", "plain" },         { "hf_ab", "*****" },   { "password=a", "password=*" }, { "push_to_hub_token=No", "push_to_hub_token=**" },
        { "http://u:p", "http://***" }, { "tcp://node17:29", "tcp://node17:29" }, { "loss=0.5", "loss=0.5" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(open); i++) {
        struct adv_redact r = { .mask = '*' };
        size_t len = strlen(open[i].in);
        char *text = strdup(open[i].in);

        cr_assert_eq(adv_redact(&r, (uint8_t *) text, len), 0);
        adv_redact_rest(&r, (uint8_t *) text, len);
        cr_assert_str_eq(text, open[i].out);
        free(text);
    }
}
