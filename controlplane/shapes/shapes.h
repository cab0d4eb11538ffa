/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_SHAPES_SHAPES_H
#define CONTROLPLANE_SHAPES_SHAPES_H

/* Domain objects as messages of the API. Results live in @ar, but texts may be borrowed from the domain object: encode
 * them before the fleet changes. NULL means that the arena is exhausted (which it remembers).
 *
 * Thread: loop thread.  Blocks: no. */

#include "advisor/v1/resources.pb-c.h"

#include "common/arena.h"
#include "controlplane/domain/fleet.h"

Google__Protobuf__Timestamp *shape_time_us(struct adv_arena *ar, int64_t us);     /* NULL for 0 */
Google__Protobuf__Timestamp *shape_time_s(struct adv_arena *ar, int64_t unix_s); /* NULL for 0 */
Advisor__V1__Epoch *shape_epoch(struct adv_arena *ar, struct epoch e);
Advisor__V1__AttemptRef *shape_ref(struct adv_arena *ar, const struct attempt *a);

Advisor__V1__Cluster *shape_cluster(struct adv_arena *ar, const struct cluster *c);
Advisor__V1__Node *shape_node(struct adv_arena *ar, const struct cluster *c, const struct node *n);
Advisor__V1__Job *shape_job(struct adv_arena *ar, const struct job *j);
Advisor__V1__Attempt *shape_attempt(struct adv_arena *ar, const struct attempt *a);
Advisor__V1__Anomaly *shape_anomaly(struct adv_arena *ar, const struct anomaly *an);
Advisor__V1__Advice *shape_advice(struct adv_arena *ar, const struct advice *ad);
Advisor__V1__Action *shape_action(struct adv_arena *ar, const struct action *ac);
Advisor__V1__AuditEvent *shape_audit(struct adv_arena *ar, const struct audit_row *r);

Advisor__V1__Evidence *shape_evidence(struct adv_arena *ar, const struct evidence *e);
Advisor__V1__Exclusion *shape_exclusion(struct adv_arena *ar, const struct exclusion *x);
Advisor__V1__Incident *shape_incident(struct adv_arena *ar, const struct incident *i);
Advisor__V1__MaintenanceWindow *shape_window(struct adv_arena *ar, const struct window *w);
Advisor__V1__AuditCheckpoint *shape_checkpoint(struct adv_arena *ar, const struct checkpoint *cp);
Advisor__V1__Policy *shape_policy(struct adv_arena *ar, const struct policy_doc *p);

/* Words with commas between them, one by one. */
char **shape_words(struct adv_arena *ar, const char *list, size_t *ret_n);
/* Names of a host list, one by one. */
char **shape_hosts(struct adv_arena *ar, const char *list, size_t *ret_n);

/* Of an entry: its revision. 0 for none; errors: -ADV_INVALID_ARGUMENT, field "etag". */
char *shape_entry_etag(struct adv_arena *ar, const struct entry *e);
adv_must_check int shape_entry_etag_parse(const char *etag, uint64_t *ret_revision, struct adv_err *err);

/* Stands for the settings of the cluster, not for its jobs: what SetClusterMode compares. */
char *shape_etag(struct adv_arena *ar, const struct cluster *c);
/* 0 for none; errors: -ADV_INVALID_ARGUMENT, field "etag". */
adv_must_check int shape_etag_parse(const char *etag, uint64_t *ret_version, struct adv_err *err);

/* printf into the arena. */
char *shape_printf(struct adv_arena *ar, const char *fmt, ...) ADV_PRINTF(2, 3);

#endif
