/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_UUID_H
#define ADV_COMMON_UUID_H

/* UUID version 7 (RFC 9562): time-ordered, so that keys minted in order sort in order. Text form,
 * lower case. */

#include <stdint.h>

#include "common/err.h"

#define ADV_UUID_SIZE 37 /* 36 characters and the NUL */

/* 48 bits of milliseconds and 12 bits of sub-millisecond from @wall_us, 62 bits from getrandom(2).
 * Errors: -ADV_INTERNAL (no random source). Any thread. Blocks only before the kernel's pool is
 *         ready at boot. */
adv_must_check int adv_uuid_v7(int64_t wall_us, char ret_text[ADV_UUID_SIZE], struct adv_err *err);

/* True for 8-4-4-4-12 lower-case hex digits of any version. NULL is not valid. */
bool adv_uuid_valid(const char *text);

/* @len random bytes, from the system. Errors: -ADV_INTERNAL. */
adv_must_check int adv_random(void *ret, size_t len, struct adv_err *err);

#endif
