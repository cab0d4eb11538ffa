/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_UTF8_H
#define ADV_COMMON_UTF8_H

/* UTF-8 as of RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. Any thread, never
 * blocks. */

#include "common/macros.h"

/* True when all @len bytes are UTF-8. An embedded NUL is valid here. */
bool adv_utf8_valid(const void *bytes, size_t len);

/* Copies @bytes as NUL-terminated UTF-8 for display: each bad byte and each NUL becomes U+FFFD.
 * Owner: caller frees. NULL when memory is gone. At most 3 * len + 1 bytes. */
adv_must_check char *adv_utf8_lossy(const void *bytes, size_t len);

/* The same into @dst of @cap bytes (cap >= 1); cuts only between characters. Returns the length
 * written. */
size_t adv_utf8_lossy_buf(char *dst, size_t cap, const void *bytes, size_t len);

/* The length of the longest prefix of @len bytes that is at most @max long and ends between
 * characters. */
size_t adv_utf8_cut(const void *bytes, size_t len, size_t max);

#endif
