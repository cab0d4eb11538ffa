/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_WATCHER_PATTERN_H
#define ADV_WATCHER_PATTERN_H

/* The progress line that a job names in its own comment: a Perl-compatible regular expression with a group `step`, such as
 * "^done (?<step>\d+) of". It comes from anybody who may submit a job, so it is bounded in length, in nesting, in size, and in the
 * work that one line may cost; a line that would cost more does not match.
 *
 * Thread: one at a time for each pattern.  Blocks: no. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define WATCHER_PATTERN_MAX 200 /* bytes */

struct watcher_pattern;

/* Owner:  caller, watcher_pattern_free().
 * Errors: -ADV_INVALID_ARGUMENT (message says what is wrong, and where); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int watcher_pattern_new(const char *text, struct watcher_pattern **ret, struct adv_err *err);
struct watcher_pattern *watcher_pattern_free(struct watcher_pattern *p); /* NULL */

/* Whether a pattern may be used; @ret_why says why not. For fleet_config. */
bool watcher_pattern_check(const char *text, char *ret_why, size_t cap);

/* The step that @line shows; -1: it does not match, or no number up to 10^12 - 1. */
int64_t watcher_pattern_step(struct watcher_pattern *p, const char *line, size_t len);

ADV_DEFINE_CLEANUP(watcher_pattern, watcher_pattern_free);

#endif
