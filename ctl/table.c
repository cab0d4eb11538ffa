/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/table.h"

#include <assert.h>

#include "ctl/text.h"

#define GAP       2  /* blanks between columns */
#define MIN_WIDTH 6  /* a column gives way down to this */
#define MAX_CELL  (64 << 10)
#define MAX_LINE  (1 << 20)

void table_init(struct table *t, const char *const *heads)
{
    *t = (struct table) { .heads = heads };
    while (heads[t->n_cols])
        t->n_cols++;
    assert(t->n_cols > 0);
}

void table_done(struct table *t)
{
    for (size_t i = 0; i < t->n_cells; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table) { 0 };
}

void table_cell(struct table *t, const char *fmt, ...)
{
    ADV_AUTO_DONE(adv_buf) raw;
    ADV_AUTO_DONE(adv_buf) clean;
    char **cells, *text;
    va_list ap;

    adv_buf_init(&raw, MAX_CELL);
    adv_buf_init(&clean, MAX_CELL * 4);
    va_start(ap, fmt);
    (void) adv_buf_vappendf(&raw, fmt, ap);
    va_end(ap);
    text_escape(&clean, raw.data);
    text = adv_buf_error(&raw) ? strdup("(too long)") : adv_buf_steal(&clean, NULL);
    cells = text ? realloc(t->cells, (t->n_cells + 1) * sizeof(*cells)) : NULL;
    if (!cells) {
        free(text);
        t->failed = true;
        return;
    }
    t->cells = cells;
    t->cells[t->n_cells++] = text;
}

static void fit_widths(size_t *width, size_t n, size_t columns)
{
    size_t total = (n - 1) * GAP;

    for (size_t c = 0; c < n; c++)
        total += width[c];
    while (total > columns) {
        size_t widest = 0;

        for (size_t c = 1; c < n; c++)
            if (width[c] >= width[widest])
                widest = c;
        if (width[widest] <= MIN_WIDTH)
            return;
        width[widest]--;
        total--;
    }
}

static void put_row(struct adv_buf *b, const char *const *cells, const size_t *width, size_t n)
{
    for (size_t c = 0; c < n; c++) {
        size_t used = text_columns(cells[c]);
        bool last = c + 1 == n;

        text_fit(b, cells[c], width[c]);
        if (used > width[c])
            used = width[c];
        for (size_t i = used; !last && i < width[c] + GAP; i++)
            (void) adv_buf_append_byte(b, ' ');
    }
    while (b->len > 0 && b->data[b->len - 1] == ' ')
        adv_buf_truncate(b, b->len - 1);
}

int table_print(const struct table *t, FILE *out, size_t columns, bool bold, size_t indent)
{
    adv_auto_free size_t *width = calloc(t->n_cols + 1, sizeof(*width));
    ADV_AUTO_DONE(adv_buf) line;

    adv_buf_init(&line, MAX_LINE);
    if (t->failed || !width)
        return -1;
    for (size_t c = 0; c < t->n_cols; c++)
        width[c] = text_columns(t->heads[c]);
    for (size_t i = 0; i < t->n_cells; i++) {
        size_t w = text_columns(t->cells[i]);

        if (w > width[i % t->n_cols])
            width[i % t->n_cols] = w;
    }
    if (columns)
        fit_widths(width, t->n_cols, columns > indent ? columns - indent : 1);
    put_row(&line, t->heads, width, t->n_cols);
    (void) fprintf(out, "%*s%s%s%s\n", (int) indent, "", bold ? "\033[1m" : "", line.data, bold ? "\033[0m" : "");
    for (size_t i = 0; i + t->n_cols <= t->n_cells; i += t->n_cols) {
        adv_buf_reset(&line);
        put_row(&line, (const char *const *) t->cells + i, width, t->n_cols);
        (void) fprintf(out, "%*s%s\n", (int) indent, "", line.data);
    }
    return adv_buf_error(&line) || ferror(out) ? -1 : 0;
}
