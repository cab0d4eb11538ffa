/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_RULES_H
#define ADV_WATCHER_RULES_H

/* Detection rules: a folder of YAML files (rules/README.md describes them) made into one immutable, counted set with its
 * compiled patterns. A set is built whole or not at all, so a bad file changes nothing for those who hold the old one.
 *
 * Thread: a set and all scans that use it belong to one thread (they share scratch memory). Building one may be done on
 * a worker and handed over. Blocks: watcher_rules_load() reads files, and compiling takes up to a second; the rest do not. */

#include <stdint.h>

#include "common/err.h"

enum watcher_kind {
    WATCHER_KIND_SIGNATURE = 0,
    WATCHER_KIND_NOTICE,
    WATCHER_KIND_PROGRESS,
    WATCHER_KIND_CHECKPOINT,
    WATCHER_KIND_RESUME,
    WATCHER_KIND_FINISHED,
    WATCHER_KIND_RECOVERED, /* what went wrong before is dealt with inside the job */
    WATCHER_KIND_HEALTHY,   /* never reported: calms the signatures of its line */
    WATCHER_KIND_TRACEBACK, /* never reported: opens a traceback */
    WATCHER_KIND_CAUGHT,    /* never reported: the exception that follows was caught */
    WATCHER_KIND_PLACEMENT, /* never reported: says on which host a rank runs */
};

enum watcher_class {
    WATCHER_CLASS_UNKNOWN = 0,
    WATCHER_CLASS_GPU_HARDWARE,
    WATCHER_CLASS_GPU_MEMORY,
    WATCHER_CLASS_NETWORK_FABRIC,
    WATCHER_CLASS_STORAGE,
    WATCHER_CLASS_HOST_MEMORY,
    WATCHER_CLASS_NODE_FAILURE,
    WATCHER_CLASS_APPLICATION_BUG,
    WATCHER_CLASS_CONFIGURATION,
    WATCHER_CLASS_TRANSIENT_SERVICE,
    WATCHER_CLASS_PREEMPTION,
    WATCHER_CLASS_TIME_LIMIT,
    WATCHER_CLASS_USER_CANCEL,
    WATCHER_CLASS_INTERFERENCE,
};

enum watcher_anomaly { WATCHER_ANOMALY_CRASH = 0, WATCHER_ANOMALY_HANG, WATCHER_ANOMALY_STRAGGLER };
enum watcher_retryable { WATCHER_RETRYABLE_MAYBE = 0, WATCHER_RETRYABLE_YES, WATCHER_RETRYABLE_NO };
enum watcher_blames { WATCHER_BLAMES_NONE = 0, WATCHER_BLAMES_NODE, WATCHER_BLAMES_REPORTER, WATCHER_BLAMES_LEAD };
enum watcher_unit { WATCHER_UNIT_ITEM = 0, WATCHER_UNIT_STEP, WATCHER_UNIT_EPOCH };

/* Where a text is believed; also what a scanned stream is. */
enum watcher_scope {
    WATCHER_SCOPE_APPLICATION = 0, /* output of the job */
    WATCHER_SCOPE_NODE,      /* kernel, driver, fabric manager; believed in the job's output too */
    WATCHER_SCOPE_SCHEDULER, /* logs of the scheduler's daemons */
    WATCHER_SCOPE_ANY,
};

/* The words of the YAML; "?" for a number outside the enum. Static text. */
const char *watcher_kind_name(enum watcher_kind kind);
const char *watcher_class_name(enum watcher_class fault_class);
const char *watcher_retryable_name(enum watcher_retryable retryable);

/* Notices from this precedence on are for a person to look at: something is wrong with the machine, if not with the job. */
#define WATCHER_NOTICE_FOR_PEOPLE 5

struct watcher_rule {
    char *id;
    enum watcher_kind kind;
    enum watcher_class fault_class;
    enum watcher_anomaly anomaly;
    enum watcher_retryable retryable;
    enum watcher_blames blames;
    enum watcher_scope scope;
    enum watcher_unit unit;
    int precedence; /* 0..100: root causes above their consequences */
    bool terminal;
    bool begins;
    bool after_traceback;
    char *pattern;
    char *capture; /* or NULL */
    char **positive;
    size_t n_positive;
    char **negative;
    size_t n_negative;
    char *file; /* where it stands, for messages */
    unsigned line, column, pattern_line, pattern_column, capture_line, capture_column;
};

struct watcher_rules;

struct watcher_rules_source {
    const char *name; /* for messages */
    const char *bytes;
    size_t len;
};

#define WATCHER_RULES_MAX            4096
#define WATCHER_RULES_MAX_FILE_BYTES (1 << 20)
#define WATCHER_RULES_VERSION_SIZE   65

/* Builds a set from all *.yaml of folder @dir.
 * Owner:   caller, watcher_rules_unref().
 * Errors:  -ADV_INVALID_ARGUMENT, message "file:line:column: what is wrong, what was expected"; -ADV_NOT_FOUND (no such
 *          folder, or no rules in it); -ADV_UNAVAILABLE (reading failed); -ADV_RESOURCE_EXHAUSTED (no memory, too big). */
adv_must_check int watcher_rules_load(const char *dir, struct watcher_rules **ret,
                                      struct adv_err *err);

/* The same from memory. The order of @sources does not matter. */
adv_must_check int watcher_rules_parse(const struct watcher_rules_source *sources, size_t n,
                                       struct watcher_rules **ret, struct adv_err *err);

struct watcher_rules *watcher_rules_ref(struct watcher_rules *rules);
struct watcher_rules *watcher_rules_unref(struct watcher_rules *rules); /* NULL */

/* SHA-256 over names and content of the files, lower-case hex. Borrowed. */
const char *watcher_rules_version(const struct watcher_rules *rules);

/* All rules, by file name and position. Borrowed, lives as long as the set. */
const struct watcher_rule *watcher_rules_list(const struct watcher_rules *rules, size_t *ret_n);

/* NULL when there is none. */
const struct watcher_rule *watcher_rules_find(const struct watcher_rules *rules, const char *id);

/* Runs the examples of all rules.
 * Errors: -ADV_FAILED_PRECONDITION, message "file:line:column: rule x: positive example 1 does not match". */
adv_must_check int watcher_rules_check_examples(struct watcher_rules *rules, struct adv_err *err);
/* The same for rule @i of the list alone. */
adv_must_check int watcher_rules_check_rule(struct watcher_rules *rules, size_t i, struct adv_err *err);

/* Makes @text, which is UTF-8, an excerpt as findings have one: secrets replaced by "***", at most 500 bytes. In place. */
void watcher_rules_excerpt(struct watcher_rules *rules, char *text);

ADV_DEFINE_CLEANUP(watcher_rules, watcher_rules_unref);

/* For this folder alone. */
struct engine *watcher_rules_engine(struct watcher_rules *rules);

#endif
