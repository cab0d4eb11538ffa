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
    RECONCILE_KEEP, /* the job waits in our hold and is to stay there: report `why` as pending, look again later */
    RECONCILE_END,  /* report `disposition` and `why` */
};

struct reconcile_next {
    enum reconcile_what what;
    enum adapter_verb verb;
    bool without_ours; /* CONSTRAIN: take our exclusions out again */
    advisor_v1_Disposition disposition;
    advisor_v1_DispositionReason why;
    const char *text; /* static, for people */
};

struct reconcile_view {
    const advisor_v1_AdviceOrder *order;
    enum adapter_found found;
    const struct adapter_job_detail *job; /* NULL unless found */
    int64_t first_submit_s;               /* as the journal knows the job; 0: unknown */
    bool requeued_by_us;                  /* the journal or the order has our PRESERVE or INTERRUPT */
    bool constrained;                     /* this generation's constraints are in place */
    bool ours_excluded;                   /* nodes that we added are in the job's list */
    bool comment_changed;                 /* since we held the job */
    bool made_requeueable;                /* our journal has it done under this advice */
};

/* An order for a crash: a job that ran out of its time limit would do so again. */
#define RECONCILE_CRASHED                                                                  \
    (ADAPTER_STATE_BIT(ADAPTER_JOB_FAILED) | ADAPTER_STATE_BIT(ADAPTER_JOB_OUT_OF_MEMORY) | \
     ADAPTER_STATE_BIT(ADAPTER_JOB_NODE_FAIL) | ADAPTER_STATE_BIT(ADAPTER_JOB_BOOT_FAIL))

struct reconcile_next reconcile_next(const struct reconcile_view *v);

/* What an action's result means for the advice. */
struct reconcile_next reconcile_after(const struct adapter_result *res, enum adapter_verb verb);
/* After our exclusions were taken out because the job could not run with them. */
struct reconcile_next reconcile_without_ours(void);

/* A person approved the generation that the order has now. */
bool reconcile_approved(const advisor_v1_AdviceOrder *o);

/* The job is to wait in our hold, whatever becomes of it later. */
bool reconcile_preserves(const advisor_v1_AdviceOrder *o);

/* Does the job's comment, as it is now, leave room for the order's verb: for a restart reconcile_consents(); that it is kept in
 * a hold: a comment that asks for approval will do; to be made requeueable: unless it forbids just that. */
bool reconcile_allows(const advisor_v1_AdviceOrder *o, const char *comment);

/* Does the job's own comment say, as it is now, that it may be restarted? Less than that (nothing said,
 * not understood, a lower mode, no restarts) is no consent: nothing is guessed. @approved: a comment that
 * asks for a person's approval is one. */
bool reconcile_consents(const char *comment, bool approved);

#endif
