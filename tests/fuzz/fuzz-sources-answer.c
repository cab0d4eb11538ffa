/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of Loki, VictoriaLogs and Prometheus: the first byte says whose. Lines come in order, samples too, and what is made of
 * them holds whatever they say. */

#include <stdint.h>

#include "controlplane/sources/cursor.h"
#include "controlplane/sources/measure.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct source_measure m = { .is = MEASURE_IO_STOPPED, .counter = true, .window_ms = 60000, .max_age_ms = 20000 };
    struct measure_counter counter = { 0 };
    ADV_AUTO_DONE(source_answer) a = { 0 };
    char detail[MEASURE_DETAIL_MAX], text[64];
    struct cursor c;
    size_t most = 0, n;
    bool more;

    if (size == 0)
        return 0;
    source_answer_init(&a, 1 << 20);
    source_error_text(data + 1, size - 1, text, sizeof(text));
    if (source_parse((enum source_kind) (data[0] % 3), data + 1, size - 1, "host", &a, NULL) < 0)
        return 0;
    for (size_t i = 1; i < a.n_lines; i++)
        if (a.lines[i].ts_ns < a.lines[i - 1].ts_ns)
            abort();
    (void) measure_idle(&m, &a, "n[1-2]", 1700000000000000, &most, detail);
    (void) measure_rose(&m, &a, 1700000000000000, &counter, &more);
    n = a.n_lines;
    cursor_init(&c, 0, 0);
    if (cursor_take(&c, &a, 0, INT64_MAX, 1000, 1000000000, &more) < 0 || a.n_lines > n || c.n_seen > CURSOR_SEEN_MAX)
        abort();
    cursor_done(&c);
    return 0;
}
