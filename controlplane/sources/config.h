/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SOURCES_CONFIG_H
#define CONTROLPLANE_SOURCES_CONFIG_H

/* The file of sources (docs/sources.md): which Loki, VictoriaLogs and Prometheus are asked about which clusters, and how.
 *
 * Owner:   whoever parsed it; nothing in it changes afterwards.
 * Thread:  any.   Blocks: no, but for sources_config_load(), which reads one file. */

#include <stdint.h>

#include "common/err.h"

#define SOURCES_MAX          32
#define SOURCE_MEASURES_MAX  16
#define SOURCE_NAME_MAX      24 /* with its kind it stands in texts for people */

enum source_kind { SOURCE_LOKI, SOURCE_VICTORIALOGS, SOURCE_PROMETHEUS };
const char *source_kind_name(enum source_kind k); /* "victorialogs" */

/* Lines: of jobs, or of nodes. */
struct source_logs {
    char *query;      /* NULL: not asked for */
    char *host_field; /* label or field that names the host; NULL: none does */
    bool all;         /* of jobs: those whose output the agent reads, too */
};

enum measure_kind {
    MEASURE_DEVICE_IDLE, /* a witness for a hang */
    MEASURE_IO_STOPPED,  /* the same */
    MEASURE_STEPS,       /* a counter that is the step of the run */
    MEASURE_THROUGHPUT,  /* a counter whose rise is a sign of life */
    MEASURE_KIND_END_
};
const char *measure_kind_name(enum measure_kind k); /* "device-idle" */
static inline bool measure_is_witness(enum measure_kind k)
{
    return k == MEASURE_DEVICE_IDLE || k == MEASURE_IO_STOPPED;
}

struct source_measure {
    enum measure_kind is;
    char *query;        /* a series selector */
    double below;       /* of witnesses: idle is what stays below; of counters, what rises by less in a second */
    bool has_below;
    bool counter;       /* of witnesses; the other two always are */
    int64_t window_ms;  /* how long it must have been so */
    int64_t max_age_ms; /* samples further apart, or older, are a gap */
    char *node_label;   /* label that names the host; NULL: none does, and a missing host is not noticed */
};

struct source_config {
    char *name;
    enum source_kind kind;
    char *url; /* without a '/' at the end */
    char **clusters; /* empty: all */
    size_t n_clusters;
    char *ca, *token_file, *user, *password_file, *tenant; /* NULL: not given */
    int64_t poll_ms;
    int64_t timeout_ms;
    int64_t max_bytes; /* of one answer */
    int64_t limit;     /* lines of one answer */
    int64_t in_flight; /* requests at one time */
    int64_t unknown_after_ms;
    int64_t late_ms;      /* lines that arrive this late are still read */
    int64_t backlog_ms;   /* lines older than that are left out */
    int64_t after_end_ms; /* an attempt that ended is still asked about */
    struct source_logs job_logs, node_logs;
    struct source_measure measures[SOURCE_MEASURES_MAX];
    size_t n_measures;
};

struct sources_config {
    struct source_config sources[SOURCES_MAX];
    size_t n;
};

/* @name stands in messages for the file's.
 * Owner:  caller, sources_config_free().
 * Errors: -ADV_INVALID_ARGUMENT (message has name, line and column, and what was expected); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int sources_config_parse(const char *name, const void *text, size_t len, struct sources_config **ret,
                                        struct adv_err *err);
/* Errors: the same, and -ADV_NOT_FOUND, -ADV_UNAVAILABLE (file). */
adv_must_check int sources_config_load(const char *path, struct sources_config **ret, struct adv_err *err);
struct sources_config *sources_config_free(struct sources_config *c); /* returns NULL, takes NULL */

bool source_serves(const struct source_config *s, const char *cluster);

ADV_DEFINE_CLEANUP(sources_config, sources_config_free);

#endif
