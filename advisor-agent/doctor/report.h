/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_DOCTOR_REPORT_H
#define ADVISOR_DOCTOR_REPORT_H

/* What is printed: a table for people, JSON for programs, and the table of docs/doctor.md.
 *
 * Pure. Errors: -ADV_RESOURCE_EXHAUSTED. Any thread, never blocks. */

#include "advisor-agent/doctor/judge.h"
#include "common/buf.h"

/* Lines are wrapped at @columns; 0: not at all. */
adv_must_check int doctor_report_text(const struct doctor_facts *f, const struct doctor_findings *found, size_t columns, struct adv_buf *out);
adv_must_check int doctor_report_json(const struct doctor_facts *f, const struct doctor_findings *found, struct adv_buf *out);
adv_must_check int doctor_report_docs(struct adv_buf *out);

#endif
