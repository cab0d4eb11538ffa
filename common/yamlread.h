/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_YAMLREAD_H
#define ADV_COMMON_YAMLREAD_H

/* A small YAML file, event by event, so that each error has its line: what files of rights and of sources share. Anchors and
 * aliases are refused: such a file should read the same to a person and to us.
 *
 * Errors of all: -ADV_INVALID_ARGUMENT ("<name>:<line>:<column>: …"), -ADV_RESOURCE_EXHAUSTED (no memory).
 * Thread: one owner.  Blocks: no. */

#include <yaml.h>

#include "common/err.h"

struct adv_yaml {
    yaml_event_t ev; /* the present one; read freely */
    const char *name; /* of the file, for errors; the caller's */
    struct adv_err *err;
    yaml_parser_t parser_; /* private from here on */
    bool have_;
};

/* @name, @text and @err are borrowed until adv_yaml_done(), which follows only a success. */
adv_must_check int adv_yaml_init(struct adv_yaml *y, const char *name, const void *text, size_t len, struct adv_err *err);
void adv_yaml_done(struct adv_yaml *y);

/* The next event is the present one. */
adv_must_check int adv_yaml_next(struct adv_yaml *y);
/* The same, and it has to be of that type. */
adv_must_check int adv_yaml_next_is(struct adv_yaml *y, yaml_event_type_t type, const char *expected);
/* A list of mappings, to its end: @take is called where each begins, and leaves at its end. @what: "a list of …". */
adv_must_check int adv_yaml_mappings(struct adv_yaml *y, const char *what, int (*take)(void *arg), void *arg);

/* Set y->err and return its code. */
int adv_yaml_at(struct adv_yaml *y, yaml_mark_t m, const char *fmt, ...) ADV_PRINTF(3, 4);
int adv_yaml_no_memory(struct adv_yaml *y);

#endif
