/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_CTL_TABLE_H
#define ADVISOR_CTL_TABLE_H

/* A table for people: cells are added one after the other, rows by rows; columns are as wide as their content, and
 * the widest give way when the whole does not fit. Cells are escaped when they are added.
 * Thread: one owner.  Blocks: on output. */

#include <stdint.h>
#include <stdio.h>

#include "common/buf.h"

struct table {
    const char *const *heads; /* NULL-ended, borrowed */
    size_t n_cols;
    char **cells;
    size_t n_cells;
    bool failed; /* no memory: table_print() says so */
};

void table_init(struct table *t, const char *const *heads);
void table_done(struct table *t);

void table_cell(struct table *t, const char *fmt, ...) ADV_PRINTF(2, 3);

/* @columns: width of the terminal, 0 for no limit. @bold: terminal escape for the heads.
 * Errors: -1 when memory was short or @out failed. */
adv_must_check int table_print(const struct table *t, FILE *out, size_t columns, bool bold, size_t indent);

ADV_DEFINE_DONE(table, table_done);

#endif
