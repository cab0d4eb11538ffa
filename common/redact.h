/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_REDACT_H
#define ADV_COMMON_REDACT_H

/* Covers secrets in log text, byte for byte, so that offsets stay what they are: API tokens by their heads (hf_, ghp_, AKIA…,
 * JSON web tokens), what is bound to a telling name (password=…, "api_key": "…", --token …, also with quotes and spaces),
 * Authorization headers, credentials and signatures in URLs, private keys over several lines. Counts and names that only sound
 * so are left (tokens: 4096, pad_token, token is invalid). It errs on the side of covering.
 *
 * Works token by token (what stands between white space), with what it must remember in a few bytes, in time linear in the text.
 * However a text is cut into calls, what comes out is the same.
 *
 * Libc only: the tail helper links it. No allocation. Thread: any, each reader its own state.  Blocks: no. */

#include <stddef.h>
#include <stdint.h>

#define ADV_REDACT_PART 512 /* bytes: a longer token is judged in parts of so many */

/* Zeros but for @mask: the start of a text. Private but for @mask. */
struct adv_redact {
    uint8_t mask; /* what covers, '*' for people to read */
    uint8_t want_, cont_, pem_, quote_, esc_;
    uint16_t left_;
};

/* Covers what is secret in the tokens that end within @text. Returns how many bytes are judged; the others are an unfinished
 * token, at most ADV_REDACT_PART bytes: bring them again with what comes behind them. */
size_t adv_redact(struct adv_redact *r, uint8_t *text, size_t len);

/* Covers what may be secret in an unfinished token that has to be shown as it is, more readily than adv_redact(). The state
 * stays before the token. */
void adv_redact_rest(const struct adv_redact *r, uint8_t *text, size_t len);

#endif
