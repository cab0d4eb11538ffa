/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_DOCTOR_JUDGE_H
#define ADVISOR_DOCTOR_JUDGE_H

/* From facts to findings: what is wrong, what that means for Advisor, how to mend it, and how sure it is.
 *
 * Pure. Any thread, never blocks. */

#include "advisor-agent/doctor/facts.h"

enum doctor_severity {
    DOCTOR_NOTE = 0, /* good to know */
    DOCTOR_WARNING,  /* an ability is less than it could be, or will be lost */
    DOCTOR_FAULT,    /* an ability is lost */
};
enum doctor_sure { DOCTOR_MAYBE = 0, DOCTOR_LIKELY, DOCTOR_SURE };

/* One kind of finding. Codes are stable; the table of docs/doctor.md is made from these. */
struct doctor_kind {
    const char *code;
    enum doctor_severity severity;
    const char *what;  /* in general; a finding says it with names and numbers */
    const char *means; /* for Advisor: which ability is lost */
    const char *cure;  /* in general */
};
const struct doctor_kind *doctor_kinds(size_t *ret_n);

struct doctor_finding {
    const struct doctor_kind *kind;
    enum doctor_sure sure;
    char what[640];
    char cure[640];
};

#define DOCTOR_FINDINGS_MAX 96
#define DOCTOR_UNCHECKED_MAX 24
struct doctor_findings {
    size_t n;
    struct doctor_finding list[DOCTOR_FINDINGS_MAX]; /* faults first, then warnings, then notes */
    size_t n_unchecked;
    struct {
        const char *check;
        char why[DOCTOR_SAID_SIZE];
    } unchecked[DOCTOR_UNCHECKED_MAX]; /* what could not be looked at: nothing is said about it */
};

void doctor_judge(const struct doctor_facts *f, struct doctor_findings *ret);

/* 0: at most notes; 1: warnings; 2: faults. */
int doctor_exit_code(const struct doctor_findings *f);
const char *doctor_severity_name(enum doctor_severity s); /* "fault" */
const char *doctor_sure_name(enum doctor_sure s);         /* "sure" */

/* May this adapter's verb be done to anybody's job, by what is known? */
enum doctor_tri doctor_may(const struct doctor_facts *f, enum adapter_verb verb);

#endif
