/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SOURCES_ANSWER_H
#define CONTROLPLANE_SOURCES_ANSWER_H

/* Requests to Loki, VictoriaLogs and Prometheus, and what their answers say. Pure: bytes in, lines and samples out.
 *
 * An answer is taken as a whole or not at all: one that is not what the published contract says is an error, never an
 * empty answer. That a server left something out (warnings) is told.
 *
 * Contracts: Loki `/loki/api/v1/query_range`; VictoriaLogs `/select/logsql/query` (JSON lines); Prometheus
 * `/api/v1/query` of a range selector, whose answer has the samples as they were scraped, with their own times.
 * `/api/v1/query_range` is not used: it evaluates at steps, looks back up to five minutes for a value, and so hides
 * exactly the gaps that must be seen.
 *
 * Thread: any.  Blocks: no. */

#include <stdint.h>

#include "common/arena.h"
#include "common/buf.h"
#include "common/err.h"
#include "controlplane/sources/config.h"

struct source_line {
    int64_t ts_ns;
    const char *text; /* may hold NULs and line ends; not ended by one */
    size_t len;
    char host[64]; /* short name; "" when none was said, or it is no host name */
    uint64_t hash; /* of time, labels and text: tells repeats */
};

struct source_sample {
    int64_t ts_us;
    double value; /* may be NaN or infinite */
};

struct source_series {
    char host[64];
    const struct source_sample *samples; /* oldest first */
    size_t n;
};

struct source_answer {
    struct adv_arena arena;
    struct source_line *lines; /* in order of time */
    size_t n_lines;
    struct source_series *series;
    size_t n_series;
    bool partial; /* the server says that something may be missing */
};

/* @max_bytes bounds the memory. */
void source_answer_init(struct source_answer *a, size_t max_bytes);
void source_answer_done(struct source_answer *a);

/* Appends path and form of a request for lines, at most @limit of them, the oldest first, from @start_ns to before @end_ns. */
void source_ask_lines(enum source_kind kind, const char *query, int64_t start_ns, int64_t end_ns, int64_t limit,
                      const char *host_field, struct adv_buf *path, struct adv_buf *form);
/* The same for the samples of the last @window_ms before @at_us. */
void source_ask_samples(const char *selector, int64_t window_ms, int64_t at_us, struct adv_buf *path, struct adv_buf *form);

/* @field names the label or field that has the host; NULL: none. @ret was initialised; after an error it is of no use.
 * Errors: -ADV_DATA_LOSS (not what the contract says); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int source_parse(enum source_kind kind, const void *bytes, size_t len, const char *field,
                                struct source_answer *ret, struct adv_err *err);

/* What a body of an error says, for people: one line, cut. */
void source_error_text(const void *bytes, size_t len, char *ret, size_t cap);

/* A host's short name out of what labels say: "n3", "n3.example.org", "n3:9400". False: none. */
bool source_host(const char *text, size_t len, char ret[64]);

ADV_DEFINE_DONE(source_answer, source_answer_done);

#endif
