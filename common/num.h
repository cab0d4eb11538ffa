/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_NUM_H
#define ADV_COMMON_NUM_H

/* Numbers from text, always with a range. The whole text must be the number: no blanks, no rest, no
 * leading '+'.
 * Errors: -ADV_INVALID_ARGUMENT (not a number), -ADV_OUT_OF_RANGE (a number, but outside
 * @min..@max); *ret stays as it was. Any thread, never blocks. */

#include <stdint.h>

#include "common/err.h"

adv_must_check int adv_parse_i64(const char *text, int64_t min, int64_t max, int64_t *ret,
                                 struct adv_err *err);
adv_must_check int adv_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret,
                                 struct adv_err *err);

/* "1.5s", "200ms", "5m", "2h", "1d" -> milliseconds (cut below one). A plain number is refused: say
 * the unit. */
adv_must_check int adv_parse_duration_ms(const char *text, int64_t min_ms, int64_t max_ms,
                                         int64_t *ret_ms, struct adv_err *err);

/* "4096", "64KiB", "10MB", "1.5GiB" (KB = 1000, KiB = 1024; also B, M, G, T forms) -> bytes. */
adv_must_check int adv_parse_size(const char *text, int64_t min_bytes, int64_t max_bytes,
                                  int64_t *ret_bytes, struct adv_err *err);

/* The shortest text that adv_parse_duration_ms / adv_parse_size read back to the same value.
 * Returns @out. */
#define ADV_NUM_TEXT_SIZE 32
const char *adv_format_duration_ms(int64_t ms, char out[ADV_NUM_TEXT_SIZE]);
const char *adv_format_size(int64_t bytes, char out[ADV_NUM_TEXT_SIZE]);

#endif
