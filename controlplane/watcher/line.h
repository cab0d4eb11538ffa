/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_LINE_H
#define ADV_WATCHER_LINE_H

/* One line of output: what the launcher put in front of it, and the bytes a terminal would not show.
 * Pure; any thread. Used by this folder alone. */

#include <stdint.h>

#include "common/macros.h"

struct line_prefix {
    size_t body;  /* where the message begins */
    uint32_t key; /* equal for lines of one printer (the time stamp does not count) */
    int rank;     /* -1: not said; so the two below */
    int local_rank;
    int task;         /* srun's label; with one launcher per node not a rank */
    const char *node; /* as written, in the line; NULL: not said */
    size_t node_len;
};

void line_parse_prefix(const char *line, size_t len, struct line_prefix *ret);

/* True when @text must be prepared before matching: it has escape codes, '\r' or NUL. */
bool line_needs_clean(const char *text, size_t len);

/* Copies @len bytes to @dst: '\r' and NUL become '\n', escape codes go. What goes is made up for by more '\n' at the end
 * of the line, so every line starts where it did. */
void line_clean(const char *text, size_t len, char *dst);

/* The first / last end of line ('\n', '\r', NUL) or NULL. */
const char *line_first_end(const char *text, size_t len);
const char *line_last_end(const char *text, size_t len);

#endif
