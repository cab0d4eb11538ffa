/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_RECONCILE_H
#define ADVISOR_AGENT_RECONCILE_H

/* What is the next missing step of one advice, given a fresh look at its job? Pure: the answer
 * depends on nothing else, so a crash between any two steps changes nothing. */

#include "advisor/v1/agent_service.pb.h"

#include "adapters/adapter.h"

enum reconcile_what {
    RECONCILE_WAIT, /* look again soon */
    RECONCILE_STEP, /* do `verb` */
    RECONCILE_END,  /* report `disposition` and `why` */
};

struct reconcile_next {
    enum reconcile_what what;
    enum adapter_verb verb;
    advisor_v1_Disposition disposition;
    advisor_v1_DispositionReason why;
    const char *text; /* static, for people */
};

struct reconcile_view {
    const advisor_v1_AdviceOrder *order;
    enum adapter_found found;
    const struct adapter_job_detail *job; /* NULL unless found */
    int64_t first_submit_s;               /* as the journal knows the job; 0: unknown */
    bool requeued_by_us;                  /* the journal has our PRESERVE or INTERRUPT for it */
    bool constrained;                     /* this generation's constraints are in place */
};

struct reconcile_next reconcile_next(const struct reconcile_view *v);

/* What an action's result means for the advice. */
struct reconcile_next reconcile_after(const struct adapter_result *res, enum adapter_verb verb);

/* Does the job's own comment say, as it is now, that it may be restarted? Less than that (nothing said,
 * not understood, a lower mode, no restarts) is no consent: nothing is guessed. */
bool reconcile_consents(const char *comment);

#endif
