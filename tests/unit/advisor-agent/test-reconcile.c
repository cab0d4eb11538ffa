/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>

#include "advisor-agent/reconcile.h"

#define D(x) advisor_v1_Disposition_DISPOSITION_##x
#define R(x) advisor_v1_DispositionReason_DISPOSITION_REASON_##x
#define ST(x) ADAPTER_JOB_##x

enum { WAIT = -1, PRESERVE = ADAPTER_VERB_PRESERVE, INTERRUPT = ADAPTER_VERB_INTERRUPT,
       CONSTRAIN = ADAPTER_VERB_CONSTRAIN, RELEASE = ADAPTER_VERB_RELEASE, END = 100 };

static advisor_v1_AdviceOrder order(void)
{
    advisor_v1_AdviceOrder o = { .generation = 1, .has_attempt = true, .attempt = { .restart_count = 1 },
                                 .submit_unix = 50, .incarnation_unix = 10,
                                 .desired_state = advisor_v1_DesiredState_DESIRED_STATE_RESTARTED,
                                 .actionability = advisor_v1_Actionability_ACTIONABILITY_ACTIONABLE };
    strcpy(o.attempt.job_id, "7");
    return o;
}

static void expect(const struct reconcile_next *n, int want, advisor_v1_Disposition d,
                   advisor_v1_DispositionReason r, const char *what)
{
    if (want == WAIT)
        cr_assert_eq(n->what, RECONCILE_WAIT, "%s", what);
    else if (want == END)
        cr_assert(n->what == RECONCILE_END && n->disposition == d && n->why == r, "%s: %d %d %d", what,
                  n->what, n->disposition, n->why);
    else
        cr_assert(n->what == RECONCILE_STEP && (int) n->verb == want, "%s: %d %d", what, n->what, n->verb);
}

Test(reconcile, every_state)
{
    static const struct {
        const char *what;
        enum adapter_job_state state;
        uint32_t restarts;
        bool completing, held, ours, constrained, interrupt, person, changed, excluded, without;
        const char *reason;
        int want;
        advisor_v1_Disposition d;
        advisor_v1_DispositionReason r;
    } t[] = {
        { "failed", ST(FAILED), 1, .want = PRESERVE },
        { "timeout", ST(TIMEOUT), 1, .want = END, .d = D(ABANDONED), .r = R(CONSTRAINT_UNSATISFIABLE) },
        { "oom", ST(OUT_OF_MEMORY), 1, .want = PRESERVE },
        { "node fail", ST(NODE_FAIL), 1, .want = PRESERVE },
        { "failed, completing", ST(FAILED), 1, .completing = true, .want = WAIT },
        { "end state hidden", ST(UNKNOWN_STATE), 1, .completing = true, .want = WAIT },
        { "running", ST(RUNNING), 1, .want = WAIT },
        { "running, may interrupt", ST(RUNNING), 1, .interrupt = true, .want = INTERRUPT },
        { "completed", ST(COMPLETED), 1, .want = END, .d = D(ABANDONED), .r = R(ALREADY_SATISFIED) },
        { "cancelled", ST(CANCELLED), 1, .want = END, .d = D(ABANDONED), .r = R(CONFLICTING_USER_ACTION) },
        { "preempted", ST(PREEMPTED), 1, .want = WAIT },
        { "requeue hold", ST(REQUEUE_HOLD), 1, .ours = true, .want = WAIT },
        { "held by us", ST(PENDING), 2, .held = true, .ours = true, .want = CONSTRAIN },
        { "constrained", ST(PENDING), 2, .held = true, .ours = true, .constrained = true, .want = RELEASE },
        { "held, completing", ST(PENDING), 2, .completing = true, .held = true, .ours = true, .want = WAIT },
        { "held by a person", ST(PENDING), 2, .held = true, .person = true, .ours = true, .want = END,
          .d = D(ABANDONED), .r = R(CONFLICTING_USER_ACTION) },
        { "its comment changed", ST(PENDING), 2, .held = true, .ours = true, .changed = true, .want = END,
          .d = D(ABANDONED), .r = R(CONFLICTING_USER_ACTION) },
        { "cannot run with ours", ST(PENDING), 2, .ours = true, .constrained = true, .excluded = true,
          .reason = "BadConstraints", .want = CONSTRAIN, .without = true },
        { "cannot run", ST(PENDING), 2, .ours = true, .constrained = true, .reason = "BadConstraints",
          .want = END, .d = D(ABANDONED), .r = R(CONSTRAINT_UNSATISFIABLE) },
        { "free", ST(PENDING), 2, .ours = true, .want = END, .d = D(CONVERGED), .r = R(DESIRED_STATE_OBSERVED) },
        { "runs", ST(RUNNING), 2, .ours = true, .want = END, .d = D(CONVERGED), .r = R(DESIRED_STATE_OBSERVED) },
        { "failed again", ST(FAILED), 2, .ours = true, .want = END, .d = D(CONVERGED),
          .r = R(DESIRED_STATE_OBSERVED) },
        { "cancelled while held", ST(CANCELLED), 2, .ours = true, .want = END, .d = D(ABANDONED),
          .r = R(CONFLICTING_USER_ACTION) },
        { "requeued by others", ST(PENDING), 2, .held = true, .want = END, .d = D(SUPERSEDED),
          .r = R(ATTEMPT_SUPERSEDED) },
        { "two on", ST(PENDING), 3, .ours = true, .want = END, .d = D(SUPERSEDED), .r = R(ATTEMPT_SUPERSEDED) },
        { "fewer restarts", ST(FAILED), 0, .want = END, .d = D(ABANDONED), .r = R(JOB_ID_REUSED) },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        advisor_v1_AdviceOrder o = order();
        struct adapter_job_detail d = { .comment = "{\"advisor\": {}}" };
        o.may_interrupt = t[i].interrupt;
        d.job.state = t[i].state;
        d.job.restart_count = t[i].restarts;
        d.job.submit_s = t[i].restarts == 1 ? 50 : 60;
        d.job.completing = t[i].completing;
        d.job.held = t[i].held;
        d.job.held_by_requeue = t[i].held && !t[i].person;
        d.job.reason = t[i].reason ? t[i].reason : "";
        struct reconcile_view v = { .order = &o, .found = ADAPTER_FOUND, .job = &d, .first_submit_s = 10,
                                    .requeued_by_us = t[i].ours, .constrained = t[i].constrained,
                                    .ours_excluded = t[i].excluded, .comment_changed = t[i].changed };
        struct reconcile_next n = reconcile_next(&v);
        cr_assert_eq(n.without_ours, t[i].without, "%s", t[i].what);
        expect(&n, t[i].want, t[i].d, t[i].r, t[i].what);
    }
}

Test(reconcile, before_any_look)
{
    advisor_v1_AdviceOrder o = order();
    struct adapter_job_detail d = { .comment = "{\"advisor\": {}}" };
    struct reconcile_view v = { .order = &o, .found = ADAPTER_FOUND, .job = &d, .first_submit_s = 10 };
    struct reconcile_next n;

    d.job = (struct adapter_job) { .state = ST(FAILED), .restart_count = 1, .submit_s = 50 };
    v.found = ADAPTER_FOUND_GONE;
    n = reconcile_next(&v);
    expect(&n, END, D(ABANDONED), R(JOB_GONE), "gone");
    v.found = ADAPTER_FOUND_UNKNOWN;
    n = reconcile_next(&v);
    expect(&n, END, D(PENDING), R(SCHEDULER_UNAVAILABLE), "unknown");
    v.found = ADAPTER_FOUND;
    v.first_submit_s = 0;
    n = reconcile_next(&v);
    expect(&n, END, D(PENDING), R(NOT_AUTHORIZED_BY_CLUSTER), "not confirmed");
    v.first_submit_s = 11;
    n = reconcile_next(&v);
    expect(&n, END, D(ABANDONED), R(JOB_ID_REUSED), "another incarnation");
    v.first_submit_s = 10;
    d.job.submit_s = 51;
    n = reconcile_next(&v);
    expect(&n, END, D(ABANDONED), R(JOB_ID_REUSED), "another submit");
    d.job.submit_s = 50;
    d.comment = "{\"advisor\":{\"mode\":\"off\"}}";
    n = reconcile_next(&v);
    expect(&n, END, D(ABANDONED), R(OPTED_OUT), "opted out");
    d.comment = "{\"advisor\": {}}";
    o.actionability = advisor_v1_Actionability_ACTIONABILITY_NEEDS_APPROVAL;
    n = reconcile_next(&v);
    expect(&n, END, D(PENDING), R(MODE_TOO_LOW), "needs approval");
    o.actionability = advisor_v1_Actionability_ACTIONABILITY_SHADOW;
    n = reconcile_next(&v);
    expect(&n, END, D(PENDING), R(MODE_TOO_LOW), "shadow");
    o = order();
    o.desired_state = advisor_v1_DesiredState_DESIRED_STATE_NO_ACTION;
    n = reconcile_next(&v);
    expect(&n, END, D(CONVERGED), R(ALREADY_SATISFIED), "nothing");
    o.desired_state = (advisor_v1_DesiredState) 77;
    n = reconcile_next(&v);
    expect(&n, END, D(ABANDONED), R(UNSUPPORTED_BY_AGENT), "unknown state");
    o = order();
    o.required_features_count = 1;
    n = reconcile_next(&v);
    expect(&n, END, D(ABANDONED), R(UNSUPPORTED_BY_AGENT), "unknown feature");
}

Test(reconcile, only_a_comment_that_asks_for_it_consents)
{
    static const struct {
        const char *comment;
        bool consents;
    } t[] = { { "", false },
              { "my job", false },
              { "{\"advisor\": {}}", true },
              { "{\"advisor\": {\"mode\": \"act\", \"max_restarts\": 3}}", true },
              { "{\"advisor\": {\"policy\": \"x\"}}", true },
              { "{\"advisor\": {\"mode\": \"off\"}}", false },
              { "{\"advisor\": {\"mode\": \"observe\"}}", false },
              { "{\"advisor\": {\"mode\": \"approve\"}}", false },
              { "{\"advisor\": {\"max_restarts\": 0}}", false },
              { "{\"advisor\": {\"moed\": \"off\"}}", false },
              { "{\"advisor\": \"act\"}", false },
              { "{\"advisor\": {\"mode\": 1}}", false },
              { "{\"advisor\": {\"mode\": \"off\"", false },
              { "{\"APS\": {\"auto_resume_mode\": \"requeue\"}}", true },
              { "{\"APS\": {\"auto_resume_mode\": \"requeue\", \"max_requeue_times\": 0}}", false },
              { "{\"APS\": {\"auto_resume_mode\": \"off\"}}", false },
              { "{\"APS\": []}", false },
              { "{\"other\": {\"mode\": \"act\"}}", false } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++)
        cr_assert_eq(reconcile_consents(t[i].comment, false), t[i].consents, "%s", t[i].comment);
    cr_assert(!reconcile_consents(NULL, false));
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) /* a person's yes is asked for by one of them, and moves no other */
        cr_assert_eq(reconcile_consents(t[i].comment, true), t[i].consents || strstr(t[i].comment, "approve"), "%s",
                     t[i].comment);
    cr_assert(!reconcile_consents(NULL, true));
}

Test(reconcile, every_result_means_something)
{
    for (int r = 0; r < ADAPTER_REASON_MAX_; r++) {
        struct adapter_result res = { .reason = (enum adapter_reason) r };
        struct reconcile_next n = reconcile_after(&res, ADAPTER_VERB_PRESERVE);
        cr_assert(n.what == RECONCILE_WAIT || (n.what == RECONCILE_END && n.text && n.why), "%d", r);
        if (r == ADAPTER_REASON_OK || r == ADAPTER_REASON_COMPLETING_WAIT || r == ADAPTER_REASON_LEASE_LOST)
            cr_assert_eq(n.what, RECONCILE_WAIT);
    }
}
