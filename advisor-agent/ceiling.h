/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_CEILING_H
#define ADVISOR_AGENT_CEILING_H

/* The site's own limit on what may be done at this cluster, in a file (YAML or JSON) that only the
 * site's administrator writes. Nothing that comes over the network can go above it.
 *
 *     mode: act                    # off, observe, approve or act
 *     verbs: [preserve, constrain, release]   # absent or empty: all
 *     partitions: [gpu]            # absent or empty: all
 *     accounts: []
 *     actions_per_hour: 20         # 0: no limit of its own; one recovery is three
 *     preserve_in_approve: false
 *     watchdog: act                # what advisor-watchdog may do: off, observe (say what it would do) or act
 *
 * No path configured: the cluster's mode is the limit. A path that is configured and whose file is
 * missing, unreadable, malformed, or writable by others counts as mode off, with the reason.
 *
 * Thread: loop thread.  Blocks: one stat, and a read of the file when it has changed. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/err.h"

enum ceiling_mode { CEILING_OFF, CEILING_OBSERVE, CEILING_APPROVE, CEILING_ACT };
enum ceiling_watchdog { CEILING_WATCHDOG_OFF, CEILING_WATCHDOG_OBSERVE, CEILING_WATCHDOG_ACT };

struct ceiling;

/* The user of setting ceiling.owner; "": root alone, 0. Errors: -ADV_INVALID_ARGUMENT (no such user, or it is this program's
 * own, which must not be able to write its ceiling). Blocks: asks the user database. */
adv_must_check int ceiling_owner_uid(const char *name, uid_t *ret, struct adv_err *err);

/* @path NULL: no ceiling file. The file must belong to root or to @admin_uid, which is never the agent's own
 * account, unless that is root. */
adv_must_check int ceiling_new(const char *path, uid_t admin_uid, struct ceiling **ret,
                               struct adv_err *err);
struct ceiling *ceiling_free(struct ceiling *c);

/* Looks whether the file has changed and reads it if so. Call it before each decision.
 * Returns true when what the ceiling says is another than after the last call. */
bool ceiling_refresh(struct ceiling *c);

/* False: the file is configured and cannot be used now. Nothing may be done then, but what the site
 * wants is not known either: nothing is concluded from it. */
bool ceiling_known(const struct ceiling *c);
enum ceiling_mode ceiling_mode(const struct ceiling *c);
const char *ceiling_mode_name(enum ceiling_mode mode);
/* What the watchdog may do. It only gives jobs back from our own holds, which every mode allows, so the mode does not
 * limit it; this word does. Off when the file is not known. */
enum ceiling_watchdog ceiling_watchdog(const struct ceiling *c);
/* Why the mode is lower than meant; "" if it is not. */
const char *ceiling_reason(const struct ceiling *c);
/* Verbs that the file lists; 0 = all. */
size_t ceiling_verbs(const struct ceiling *c, const char *const **ret_verbs);
/* Is @verb listed (or no list given)? Says nothing of the mode; false when the file is not known. */
bool ceiling_lists(const struct ceiling *c, const char *verb);

/* May an ended job be kept in our hold while a person is still to be asked? */
bool ceiling_preserves_in_approve(const struct ceiling *c);

/* By what the step would be done. */
enum ceiling_ground {
    CEILING_BY_MODE,     /* nobody was asked: mode act is needed */
    CEILING_BY_APPROVAL, /* a person approved this order: mode approve is enough */
    CEILING_UNAPPROVED,  /* a person is still to be asked: only preserve can be allowed */
};

/* May @verb be done now to a job of that partition and account, when @done_last_hour steps have been
 * done?
 * Errors: -ADV_PERMISSION_DENIED; -ADV_RESOURCE_EXHAUSTED (actions per hour); -ADV_FAILED_PRECONDITION
 *         (the mode is too low for @ground); -ADV_UNAVAILABLE (ceiling_known() is false). */
adv_must_check int ceiling_check(const struct ceiling *c, const char *verb, const char *partition,
                                 const char *account, unsigned done_last_hour, enum ceiling_ground ground,
                                 struct adv_err *err);

ADV_DEFINE_CLEANUP(ceiling, ceiling_free);

#endif
