/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_CTL_TEXT_H
#define ADVISOR_CTL_TEXT_H

/* Text for terminals: nothing from outside may move the cursor, change colours or fake a line.
 *
 * Pure, apart from the time zone. Any thread, never blocks. */

#include <stdint.h>
#include <stdio.h>

#include "common/buf.h"

/* Appends @s as one line of visible characters: control characters become \n, \t, \xNN; direction marks and other
 * format characters \u{...}; bad UTF-8 U+FFFD. NULL counts as "". */
void text_escape(struct adv_buf *out, const char *s);

/* Columns that @s takes on a terminal. @s must be escaped. */
size_t text_columns(const char *s);

/* Appends at most @columns columns of escaped @s; what is cut is replaced by one "…". */
void text_fit(struct adv_buf *out, const char *s, size_t columns);

/* Prints escaped @s as a paragraph: lines of at most @columns (0: one line), each behind @indent blanks. */
void text_wrap(FILE *out, const char *s, size_t columns, size_t indent);

#define TEXT_TIME_SIZE 40
/* "350ms", "4.2s", "3m20s", "2h05m", "3d04h"; a leading '-' for negative times. Returns @out. */
const char *text_span(int64_t us, char out[TEXT_TIME_SIZE]);
/* Local time, "2026-01-02 03:04:05.678"; "-" for 0. Returns @out. */
const char *text_clock(int64_t wall_us, char out[TEXT_TIME_SIZE]);

#endif
