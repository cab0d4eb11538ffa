/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SOURCES_QUERY_H
#define CONTROLPLANE_SOURCES_QUERY_H

/* Query templates: text of LogQL, LogsQL or PromQL with names in braces that stand for what is known of an attempt.
 *
 *   {cluster} {job_id} {array_job_id} {array_task_id} {restart_count} {user} {account} {partition}
 *   {nodes}       names of its nodes for a regular expression: n1|n2, a dot as [.]
 *   {node_list}   the same as texts: "n1","n2"
 *
 * Other braces are left alone, since selectors have them: {app="train"}. What is filled in comes from users and schedulers:
 * a value with any character but letters, digits and ._@+- is refused, and no query is sent, so nobody's account name
 * can widen a query. Pure.
 *
 * Thread: any.  Blocks: no. */

#include <stdint.h>

#include "common/buf.h"
#include "common/err.h"

#define QUERY_TEMPLATE_MAX 2048
#define QUERY_MAX          (64 << 10) /* filled in: of attempts with thousands of nodes */

struct query_vars {
    const char *cluster, *job_id; /* as people write it: "46_5" */
    uint32_t restart_count;
    const char *user, *account, *partition; /* "" for not known */
    const char *nodes;                      /* host list */
};

/* Errors: -ADV_INVALID_ARGUMENT: a name in braces that means nothing. */
adv_must_check int query_check(const char *template, struct adv_err *err);

/* Appends to @ret.
 * Errors: -ADV_FAILED_PRECONDITION (a value is missing, or has a character that is not taken); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int query_expand(const char *template, const struct query_vars *vars, struct adv_buf *ret, struct adv_err *err);

/* Appends "&key=value" ("key=value" to an empty buffer), percent-encoded. Errors stay in the buffer. */
void query_field(struct adv_buf *form, const char *key, const char *value);

#endif
