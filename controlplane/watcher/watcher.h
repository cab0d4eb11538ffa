/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_WATCHER_H
#define ADV_WATCHER_WATCHER_H

/* Reads what one attempt writes into one stream and tells what it means: faults, progress, checkpoints. Bytes and the time at
 * which they were seen go in, findings come out through a callback; nothing else is touched.
 *
 * The findings do not depend on how the bytes are cut into pieces. A scan starts empty: make a new one for each attempt.
 * What a finding says of nodes is only what the text says; whether such a node belongs to the attempt is for the caller
 * to check. Text from outside can hold anything, so a finding is a reason to look, never a command.
 *
 * Thread: the thread of the rule set.  Blocks: no. */

#include <stdint.h>

#include "common/digest.h"
#include "common/err.h"
#include "controlplane/watcher/rules.h"

#define WATCHER_EXCERPT_SIZE 201 /* 200 bytes and the NUL */
#define WATCHER_NODE_SIZE    128
#define WATCHER_DEVICE_SIZE  40
#define WATCHER_MISSING_SIZE 32

enum watcher_finding_type {
    WATCHER_SIGNATURE = 0, /* a fault; on a running attempt a suspicion */
    WATCHER_NOTICE,        /* evidence that never acts by itself */
    WATCHER_PROGRESS,      /* @step moved on (or the line has none) */
    WATCHER_CHECKPOINT, /* a complete one; @step as named, else the last step seen (@step_inferred), else -1 */
    WATCHER_RESUMED,  /* a checkpoint was loaded; @step or -1 */
    WATCHER_FINISHED, /* the program says that it ends by itself */
    WATCHER_RECOVERED, /* the launcher or the program deals with what went wrong before */
    WATCHER_CALMED,   /* a signature that does not count, see @calmed_by; told only where it was asked for */
};

struct watcher_finding {
    enum watcher_finding_type type;
    const struct watcher_rule
        *rule; /* class, kind, retryable, precedence, blames, terminal; lives as long as the set */
    uint64_t offset;         /* of the line's first byte in the stream */
    int64_t observe_wall_us; /* of the piece that completed the line */
    int64_t step, total;     /* -1: not said */
    bool step_inferred;
    bool late; /* of PROGRESS: another printer was there before, and this one has not gone back: its output came late */
    bool in_traceback;          /* last line of a Python traceback */
    int rank, local_rank, task; /* of the printer, or named by the line; -1: not said */
    uint32_t count; /* how often the rule has spoken since the last progress, this one included */
    char node
        [WATCHER_NODE_SIZE]; /* the line is about it: named in the message, else who printed. May be a hostlist. "" */
    char missing[WATCHER_MISSING_SIZE]; /* of a rule that blames lead: the ranks that the others wait for, which run on @node; "" */
    char reporter[WATCHER_NODE_SIZE]; /* who printed the line, as its prefix says. "" */
    char device[WATCHER_DEVICE_SIZE]; /* PCI address or the like. "" */
    int code;                         /* such as an Xid; -1 */
    const struct watcher_rule *calmed_by; /* of CALMED: the rule that speaks against it; NULL: the exception was caught */

    /* not for PROGRESS: */
    char excerpt[WATCHER_EXCERPT_SIZE]; /* valid UTF-8, secrets redacted */
    uint8_t sha256[ADV_SHA256_LEN];     /* of the line as matched */
};

/* The finding and all it points to are borrowed for the time of the call, during which the scan must not be used. */
typedef void (*watcher_finding_fn)(void *ctx, const struct watcher_finding *finding);

struct watcher_scan_options {
    enum watcher_scope stream; /* what is scanned; not WATCHER_SCOPE_ANY */
    const char *node;      /* host of a node log, taken where a line names none; or NULL. Copied. */
    uint64_t start_offset; /* a line begins here; earlier bytes are never looked at */
    const char *progress;  /* the job's own progress pattern (pattern.h), or NULL; one that is no pattern is left out. Steps are
                            * then what it shows; of other rules they are signs of life. Copied. */
    bool explain;          /* tell CALMED too */
    watcher_finding_fn fn;
    void *ctx;
};

struct watcher_scan_stats {
    uint64_t bytes;         /* fed */
    uint64_t findings;      /* reported */
    uint64_t suppressed;    /* repeats that were not reported */
    uint64_t long_lines;    /* of which only the head was looked at ... */
    uint64_t skipped_bytes; /* ... and what was not, with the pieces of lines at gaps */
    uint64_t gaps;          /* bytes missing: the verdict on silence is then unknown */
    uint64_t missing_bytes;
    uint64_t truncations; /* the offset went back */
};

struct watcher_scan;

/* Owner:  caller, watcher_scan_free(). Keeps a reference on @rules.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int watcher_scan_new(struct watcher_rules *rules,
                                    const struct watcher_scan_options *options,
                                    struct watcher_scan **ret, struct adv_err *err);
struct watcher_scan *watcher_scan_free(struct watcher_scan *scan); /* NULL */

/* Takes the @len bytes that stand at @offset of the stream. @dropped_before says how many bytes before them were shed on
 * the way. An offset above the expected one is a gap too: the pieces of lines at its edges are not judged. An offset
 * below it means that the file was truncated and begins anew there.
 * Errors: -ADV_RESOURCE_EXHAUSTED (no memory for the unfinished line; the scan then goes on as after a gap). */
adv_must_check int watcher_scan_feed(struct watcher_scan *scan, uint64_t offset, const void *bytes,
                                     size_t len, uint64_t dropped_before, int64_t observe_wall_us,
                                     struct adv_err *err);

/* The stream has ended (or has been silent for long): looks at an unfinished last line as it stands. */
void watcher_scan_finish(struct watcher_scan *scan, int64_t observe_wall_us);

/* Goes on with other rules, after a reload. Knowledge bound to the old rules (repeat counts) starts anew. */
void watcher_scan_set_rules(struct watcher_scan *scan, struct watcher_rules *rules);

const struct watcher_scan_stats *watcher_scan_stats(const struct watcher_scan *scan);

/* The last step of the run, -1 before the first. */
int64_t watcher_scan_last_step(const struct watcher_scan *scan);

/* Which ranks stand behind the others, further than they ever were while the work went on: "3,5". To be asked when the
 * stream has been silent for a while, since ranks do not print at the same moment. False: none, or no rank prints steps
 * of its own. */
#define WATCHER_RANKS_SIZE 128
bool watcher_scan_behind(struct watcher_scan *scan, char ret_ranks[WATCHER_RANKS_SIZE]);

/* Heap bytes of this scan, without the rule set. At most WATCHER_SCAN_MAX_BYTES. */
size_t watcher_scan_memory(const struct watcher_scan *scan);
#define WATCHER_SCAN_MAX_BYTES 32768

const char *watcher_finding_type_name(enum watcher_finding_type type);

ADV_DEFINE_CLEANUP(watcher_scan, watcher_scan_free);

#endif
