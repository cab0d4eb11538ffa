/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_CONFIG_H
#define ADV_COMMON_CONFIG_H

/* Configuration from one table for each program. The table fills the program's struct; checks,
 * `--help`, `--dump-config` and the reference page come from it, so they cannot disagree.
 *
 *     struct agent_config { char *store_path; int64_t poll_ms; struct adv_config_list urls; };
 *     static const struct adv_config_row rows[] = {
 *         ADV_CONFIG_PATH(struct agent_config, store_path, "store.path", "/var/lib/x", RESTART,
 *                         "Where the store is."),
 *         ...
 *     };
 *
 * Sources, later ones win: default, file (YAML, nested maps are dotted keys), environment
 * (PREFIX_STORE_PATH), flags (--store.path=X or --store.path X; a bool flag alone is true). Lists
 * are YAML sequences in the file and comma-separated elsewhere. Everything is parsed into fresh
 * memory and checked before anything takes effect. Unknown keys and flags, duplicates and bad
 * values are errors that name where, which key, and what was expected. Unknown environment
 * variables are left alone, because cluster managers invent some with any prefix.
 *
 * Thread: loop thread.  Blocks: reads one file. */

#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

enum adv_config_type {
    ADV_CONFIG_TYPE_STRING, /* char * */
    ADV_CONFIG_TYPE_PATH, /* char *; relative ones are as the program's working directory has it */
    ADV_CONFIG_TYPE_BOOL, /* bool: true/false, yes/no, on/off */
    ADV_CONFIG_TYPE_INT,  /* int64_t */
    ADV_CONFIG_TYPE_DURATION_MS, /* int64_t milliseconds, "1.5s" */
    ADV_CONFIG_TYPE_SIZE,        /* int64_t bytes, "64KiB" */
    ADV_CONFIG_TYPE_ENUM,        /* int: index into choices */
    ADV_CONFIG_TYPE_LIST,        /* struct adv_config_list */
};

enum adv_config_reload {
    ADV_CONFIG_NOW,     /* a reload takes effect at once */
    ADV_CONFIG_NEXT,    /* for the next connection, job or run */
    ADV_CONFIG_RESTART, /* a reload keeps the old value and says so */
};

enum adv_config_source {
    ADV_CONFIG_FROM_DEFAULT,
    ADV_CONFIG_FROM_FILE,
    ADV_CONFIG_FROM_ENV,
    ADV_CONFIG_FROM_FLAG,
};

struct adv_config_list {
    char **items; /* NULL-ended when n > 0 */
    size_t n;
};

struct adv_config_row {
    const char *key; /* "store.path"; keys of one group stand together */
    enum adv_config_type type;
    const char *unit; /* for numbers: "connections"; else NULL */
    int64_t min, max; /* numbers; both 0: no limit below or above zero-based INT64_MAX */
    const char *def;  /* text as a file would have it; list: comma-separated; "" is allowed */
    const char *const *choices; /* enum: NULL-ended */
    const char *text;           /* one sentence */
    enum adv_config_reload reload;
    size_t offset; /* of the member in the program's struct */
};

#define ADV_CONFIG_STRING(st, member, k, d, r, t)                                                  \
    {                                                                                              \
        .key = (k), .type = ADV_CONFIG_TYPE_STRING, .def = (d), .text = (t),                       \
        .reload = ADV_CONFIG_##r, .offset = offsetof(st, member)                                   \
    }
#define ADV_CONFIG_PATH(st, member, k, d, r, t)                                                    \
    {                                                                                              \
        .key = (k), .type = ADV_CONFIG_TYPE_PATH, .def = (d), .text = (t),                         \
        .reload = ADV_CONFIG_##r, .offset = offsetof(st, member)                                   \
    }
#define ADV_CONFIG_BOOL(st, member, k, d, r, t)                                                    \
    {                                                                                              \
        .key = (k), .type = ADV_CONFIG_TYPE_BOOL, .def = (d), .text = (t),                         \
        .reload = ADV_CONFIG_##r, .offset = offsetof(st, member)                                   \
    }
#define ADV_CONFIG_INT(st, member, k, u, lo, hi, d, r, t)                                          \
    {                                                                                              \
        .key = (k), .type = ADV_CONFIG_TYPE_INT, .unit = (u), .min = (lo), .max = (hi),            \
        .def = (d), .text = (t), .reload = ADV_CONFIG_##r, .offset = offsetof(st, member)          \
    }
#define ADV_CONFIG_DURATION(st, member, k, lo, hi, d, r, t)                                        \
    {                                                                                              \
        .key = (k), .type = ADV_CONFIG_TYPE_DURATION_MS, .min = (lo), .max = (hi), .def = (d),     \
        .text = (t), .reload = ADV_CONFIG_##r, .offset = offsetof(st, member)                      \
    }
#define ADV_CONFIG_SIZE(st, member, k, lo, hi, d, r, t)                                            \
    {                                                                                              \
        .key = (k), .type = ADV_CONFIG_TYPE_SIZE, .min = (lo), .max = (hi), .def = (d),            \
        .text = (t), .reload = ADV_CONFIG_##r, .offset = offsetof(st, member)                      \
    }
#define ADV_CONFIG_ENUM(st, member, k, c, d, r, t)                                                 \
    {                                                                                              \
        .key = (k), .type = ADV_CONFIG_TYPE_ENUM, .choices = (c), .def = (d), .text = (t),         \
        .reload = ADV_CONFIG_##r, .offset = offsetof(st, member)                                   \
    }
#define ADV_CONFIG_LIST(st, member, k, d, r, t)                                                    \
    {                                                                                              \
        .key = (k), .type = ADV_CONFIG_TYPE_LIST, .def = (d), .text = (t),                         \
        .reload = ADV_CONFIG_##r, .offset = offsetof(st, member)                                   \
    }

struct adv_config_table {
    const char *program;    /* "advisord" */
    const char *about;      /* one sentence for --help */
    const char *env_prefix; /* "ADVISORD" */
    const struct adv_config_row *rows;
    size_t n_rows;
    size_t struct_size;
    /* Checks that need more than one value; may be NULL. Sets err->field to the key at fault. */
    int (*check)(const void *values, struct adv_err *err);
};

struct adv_config; /* a struct of values with the source of each */

/* Reads all sources. @file may be NULL. @args are only flags; --config is not among them.
 * Owner: caller, adv_config_free(). @table must outlive the result; @args must too if it is to be
 *        reloaded.
 * Errors: -ADV_INVALID_ARGUMENT; -ADV_NOT_FOUND / -ADV_PERMISSION_DENIED (file);
 *         -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int adv_config_load(const struct adv_config_table *table, const char *file,
                                   int n_args, char *const *args, struct adv_config **ret,
                                   struct adv_err *err);
/* The same from text alone: no file, environment or flags. @name stands in messages for the file's.
 * Any thread, never blocks. Errors: -ADV_INVALID_ARGUMENT, -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int adv_config_parse(const struct adv_config_table *table, const char *name, const char *text, size_t len,
                                    struct adv_config **ret, struct adv_err *err);
struct adv_config *adv_config_free(struct adv_config *c); /* returns NULL */

/* The program's struct; borrowed, valid until free or a successful reload. */
const void *adv_config_values(const struct adv_config *c);
enum adv_config_source adv_config_source(const struct adv_config *c, const char *key);

/* Reads the same sources again. On success *@c is replaced (and the old one freed) after @changed
 * (may be NULL) was called for each row whose value differs; @row of class RESTART keeps the old
 * value. On failure nothing changes.
 * Errors: as load. */
adv_must_check int adv_config_reload(struct adv_config **c,
                                     void (*changed)(void *user, const struct adv_config_row *row),
                                     void *user, struct adv_err *err);

/* YAML with each value and a comment with its source; reads back as a config file. */
void adv_config_dump(const struct adv_config *c, FILE *out);
/* The reference page: a Markdown table. */
void adv_config_dump_docs(const struct adv_config_table *table, FILE *out);

/* What every main() does first: handles --config FILE, --check-config, --dump-config,
 * --dump-config-docs, --help, --version and all flags of the table.
 * Returns true when the program should go on: *ret is then the configuration. False: exit with
 * *ret_exit (0 or 1; 2 for a bad command line). Without @ret_rest arguments that are no flags are
 * an error; else *ret_rest is the index of the first one (or argc), after which everything belongs
 * to the caller. */
bool adv_config_main(const struct adv_config_table *table, int argc, char **argv, int *ret_rest,
                     struct adv_config **ret, int *ret_exit);

ADV_DEFINE_CLEANUP(adv_config, adv_config_free);

#endif
