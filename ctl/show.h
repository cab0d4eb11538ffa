/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_CTL_SHOW_H
#define ADVISOR_CTL_SHOW_H

/* Resources of the API as text for people.
 * Thread: one owner.  Blocks: on output. */

#include <stdint.h>
#include <stdio.h>

#include "advisor/v1/advice_service.pb-c.h"
#include "advisor/v1/audit_service.pb-c.h"
#include "advisor/v1/fleet_service.pb-c.h"
#include "advisor/v1/job_service.pb-c.h"
#include "advisor/v1/policy_service.pb-c.h"
#include "advisor/v1/report_service.pb-c.h"
#include "advisor/v1/watch_service.pb-c.h"
#include "common/macros.h"

struct screen {
    FILE *out;
    size_t columns; /* 0: no limit */
    bool bold;
    int64_t now_us;
};

int64_t show_time_us(const Google__Protobuf__Timestamp *t); /* 0 when unset */

/* The value of an enum as people write it: JOB_STATE_RUNNING -> "running"; a number that is not known as that number. */
#define SHOW_WORD_SIZE 64
const char *show_word(const ProtobufCEnumDescriptor *type, int value, char out[SHOW_WORD_SIZE]);
/* The other way round. Errors: -1. */
adv_must_check int show_parse_word(const ProtobufCEnumDescriptor *type, const char *word, size_t len, int *ret);

/* All return 0, or -1 when memory was short or the output failed. */
adv_must_check int show_clusters(const struct screen *s, Advisor__V1__Cluster *const *v, size_t n);
adv_must_check int show_cluster(const struct screen *s, const Advisor__V1__Cluster *c);
adv_must_check int show_nodes(const struct screen *s, Advisor__V1__Node *const *v, size_t n);
adv_must_check int show_enrolments(const struct screen *s, Advisor__V1__Enrolment *const *v, size_t n);
adv_must_check int show_revocations(const struct screen *s, Advisor__V1__Revocation *const *v, size_t n);
adv_must_check int show_jobs(const struct screen *s, Advisor__V1__Job *const *v, size_t n);
adv_must_check int show_timeline(const struct screen *s, const Advisor__V1__GetJobTimelineResponse *t);
adv_must_check int show_advice_list(const struct screen *s, Advisor__V1__Advice *const *v, size_t n);
adv_must_check int show_explanation(const struct screen *s, const Advisor__V1__ExplainAdviceResponse *e);
adv_must_check int show_audit(const struct screen *s, Advisor__V1__AuditEvent *const *v, size_t n);

/* show-more.c */
adv_must_check int show_anomalies(const struct screen *s, Advisor__V1__Anomaly *const *v, size_t n);
adv_must_check int show_evidence_rows(const struct screen *s, Advisor__V1__Evidence *const *v, size_t n);
adv_must_check int show_attempt_rows(const struct screen *s, Advisor__V1__Attempt *const *v, size_t n);
adv_must_check int show_exclusions(const struct screen *s, Advisor__V1__Exclusion *const *v, size_t n);
adv_must_check int show_windows(const struct screen *s, Advisor__V1__MaintenanceWindow *const *v, size_t n);
adv_must_check int show_incidents(const struct screen *s, Advisor__V1__Incident *const *v, size_t n);
adv_must_check int show_policies(const struct screen *s, Advisor__V1__Policy *const *v, size_t n);
adv_must_check int show_policy(const struct screen *s, const Advisor__V1__Policy *p); /* its document, as it is */
adv_must_check int show_problems(const struct screen *s, Advisor__V1__PolicyProblem *const *v, size_t n);
adv_must_check int show_latency(const struct screen *s, Advisor__V1__LatencyRow *const *v, size_t n);
adv_must_check int show_outcome(const struct screen *s, Advisor__V1__OutcomeRow *const *v, size_t n);

adv_must_check int show_change(const struct screen *s, const Advisor__V1__WatchResponse *w);

#endif
