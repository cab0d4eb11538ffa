/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_API_TOKEN_H
#define CONTROLPLANE_API_TOKEN_H

/* Tokens that callers carry: positions in lists and in watches. They are no secrets and give no rights; whoever makes one up
 * gets a position, or an error.
 *
 * Any thread, never blocks. */

#include "common/arena.h"
#include "common/err.h"

/* An opaque token around the last key of a page. NULL: too long, or no memory. */
char *token_page(struct adv_arena *ar, const char *list, const char *key);
/* And back. @ret_key is "" for an empty token. Errors: -ADV_INVALID_ARGUMENT (PAGE_TOKEN_INVALID), field "page_token". */
adv_must_check int token_page_parse(const char *token, const char *list, char *ret_key, size_t size, struct adv_err *err);

#define TOKEN_RESUME_SIZE 128
/* A position in the change log, for one store, its term and filter. */
const char *token_resume(const char *store_uuid, uint64_t term, uint64_t seq, const char *filter, char buf[TOKEN_RESUME_SIZE]);
/* Whether the log has got that far is the caller's to see. Errors: -ADV_INVALID_ARGUMENT (RESUME_TOKEN_INVALID), field
 * "resume_token"; -ADV_OUT_OF_RANGE (HISTORY_COMPACTED: of another term, so that its numbers may be of other changes since). */
adv_must_check int token_resume_parse(const char *token, const char *store_uuid, uint64_t term, const char *filter,
                                      uint64_t *ret_seq, struct adv_err *err);
int token_resume_invalid(struct adv_err *err); /* that error */

#endif
