/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_AUTH_TEXT_H
#define CONTROLPLANE_AUTH_TEXT_H

/* Two small things that identities are made of. Pure. Any thread, never blocks. */

#include <stdint.h>

#include "common/macros.h"

/* '*' stands for any text, '?' for any one byte, everything else for itself. Time: O(pattern * text). */
bool glob_match(const char *pattern, const char *text);

/* Base64 with the URL alphabet and without padding (RFC 4648 §5), as JOSE writes it. Strict: another character, a length
 * that cannot be, or bits set beyond the last byte are refused, so that no two texts mean the same bytes.
 * @ret has room for base64url_room(len) bytes. Returns the number of bytes, or -1. */
#define base64url_room(len) ((len) / 4 * 3 + 3)
ssize_t base64url_decode(const char *text, size_t len, uint8_t *ret);

/* Writes (len * 4 + 2) / 3 characters and a NUL. Returns @out. */
const char *base64url_encode(const void *bytes, size_t len, char *out);

#endif
