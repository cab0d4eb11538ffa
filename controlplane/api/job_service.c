/* SPDX-License-Identifier: Apache-2.0 */
/* JobService: jobs, attempts, and the story of one job in order of time. */

#include "advisor/v1/job_service.pb-c.h"

#include <utlist.h>

#include "controlplane/api/find.h"
#include "controlplane/shapes/shapes.h"

static int get_job(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                   struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetJobRequest *q = (const void *) req;
    struct job *j;
    int r = find_job(api, caller, q->name, q->ref, &j, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__GetJobResponse, advisor__v1__get_job_response__init);
    m->job = shape_job(ar, j);
    return 0;
}

static bool job_wanted(const Advisor__V1__ListJobsRequest *q, const struct job *j)
{
    enum job_state s = j->n_attempts ? j->attempts[j->n_attempts - 1]->state : JOB_UNKNOWN;

    if ((*q->user && !adv_streq(q->user, str_or(j->user))) || (*q->account && !adv_streq(q->account, str_or(j->account))) ||
        (*q->workflow && !adv_streq(q->workflow, str_or(j->workflow))))
        return false;
    for (size_t i = 0; i < q->n_states; i++)
        if ((int) q->states[i] == (int) s)
            return true;
    return q->n_states == 0;
}

static int list_jobs(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                     struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListJobsRequest *q = (const void *) req;
    struct cluster *c;
    struct job_walk walk;
    char after[64];
    uint32_t limit;
    struct job *j;
    bool all;
    int r;

    if ((r = api_find_parent(api, caller, q->parent, &c, &all, err)) < 0 ||
        (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "jobs", after, sizeof(after), err)) < 0 ||
        (r = job_walk_begin(api, caller, c, after, ar, &walk, err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListJobsResponse, advisor__v1__list_jobs_response__init);
    m->jobs = adv_arena_alloc(ar, limit * sizeof(*m->jobs));
    if (!m->jobs)
        return -ADV_RESOURCE_EXHAUSTED;
    while (m->n_jobs < limit && (j = job_walk_next(&walk))) {
        if (!job_wanted(q, j))
            continue;
        if (!(m->jobs[m->n_jobs] = shape_job(ar, j)))
            return -ADV_RESOURCE_EXHAUSTED;
        m->n_jobs++;
    }
    if (walk.n)
        m->next_page_token = token_page(ar, "jobs", walk.last);
    return 0;
}

static int get_attempt(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                       struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetAttemptRequest *q = (const void *) req;
    struct attempt *a;
    int r = find_attempt(api, caller, q->name, q->ref, &a, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__GetAttemptResponse, advisor__v1__get_attempt_response__init);
    m->attempt = shape_attempt(ar, a);
    return 0;
}

static int list_attempts(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                         struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListAttemptsRequest *q = (const void *) req;
    struct job *j;
    char after[32];
    uint32_t limit, i = 0; /* position: the first attempts may be unknown */
    int r;

    if ((r = find_job(api, caller, q->parent, NULL, &j, err)) < 0 || (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "attempts", after, sizeof(after), err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListAttemptsResponse, advisor__v1__list_attempts_response__init);
    m->attempts = adv_arena_alloc(ar, limit * sizeof(*m->attempts));
    if (!m->attempts)
        return -ADV_RESOURCE_EXHAUSTED;
    if (*after)
        i = (uint32_t) strtoul(after, NULL, 10) + 1; /* our own token, already checked */
    for (; i < j->n_attempts && m->n_attempts < limit; i++) {
        m->attempts[m->n_attempts] = shape_attempt(ar, j->attempts[i]);
        if (!m->attempts[m->n_attempts++])
            return -ADV_RESOURCE_EXHAUSTED;
    }
    if (i < j->n_attempts)
        m->next_page_token = token_page(ar, "attempts", shape_printf(ar, "%u", i - 1));
    return 0;
}

/* ---- the story -------------------------------------------------------------------------------------------------- */

#define STORY_MAX 512

struct line {
    int64_t at_us;
    uint32_t attempt, order;
    const char *kind, *text;
};

struct story {
    struct adv_arena *ar;
    struct line lines[STORY_MAX];
    uint32_t n;
};

static void tell(struct story *s, int64_t at_us, uint32_t attempt, const char *kind, const char *text)
{
    if (at_us && text && s->n < STORY_MAX) {
        s->lines[s->n] = (struct line) { at_us, attempt, s->n, kind, text };
        s->n++;
    }
}

static void tell_anomaly(struct story *s, const struct anomaly *an)
{
    uint32_t i = an->attempt->index;
    bool points = an->blame == BLAME_LEAD && an->named && !nodes_most(an->named, an->attempt->nodes);

    if (an->reported)
        tell(s, an->record_us, i, "suspicion",
             shape_printf(s->ar, "%s reported %s (%s, retryable: %s%s%s): %s", str_or(an->reporter), str_or(an->rule),
                          str_or(an->fault_class), retryable_name(an->retryable), an->nodes ? ", blames " : "",
                          str_or(an->nodes), str_or(an->excerpt)));
    else if (an->rule)
        tell(s, an->record_us, i, "suspicion",
             shape_printf(s->ar, "%s at byte %llu matches rule %s (%s, retryable: %s%s%s): %s", str_or(an->stream),
                          (unsigned long long) an->offset, an->rule, str_or(an->fault_class),
                          retryable_name(an->retryable),
                          an->nodes ? ", blames " : points ? ", points at " : "",
                          an->nodes ? an->nodes : points ? an->named : "", str_or(an->excerpt)));
    if (an->status == ANOMALY_CONFIRMED)
        tell(s, an->status_us, i, "confirmed", shape_printf(s->ar, "%s: %s", an->rule ? an->rule : "scheduler state",
                                                            str_or(an->status_reason)));
    if (an->status == ANOMALY_WITHDRAWN)
        tell(s, an->status_us, i, "withdrawn", shape_printf(s->ar, "%s: %s", str_or(an->rule), str_or(an->status_reason)));
}

static void tell_evidence(struct story *s, const struct evidence *e)
{
    tell(s, e->record_us, e->attempt->index, "evidence",
         shape_printf(s->ar, "%s: %s (weight %u%s%s%s%s", str_or(e->source), str_or(e->kind), e->weight_percent,
                      e->nodes ? ", about " : "", str_or(e->nodes), e->summary ? "): " : ")", str_or(e->summary)));
}

static void tell_action(struct story *s, const struct action *ac)
{
    uint32_t i = ac->attempt->index;

    tell(s, ac->record_us, i, "action", shape_printf(s->ar, "%s: about to write (read before: %s)", verb_name(ac->verb),
                                                     str_or(ac->read_before)));
    if (ac->outcome_us)
        tell(s, ac->outcome_us, i, "action",
             shape_printf(s->ar, "%s: command %s, effect observed: %s%s%s", verb_name(ac->verb), command_name(ac->command),
                          observed_name(ac->observed), ac->detail ? "; " : "", str_or(ac->detail)));
}

static void tell_people(struct story *s, const struct advice *ad)
{
    uint32_t i = ad->attempt->index;

    if (ad->approval != APPROVAL_NONE)
        tell(s, ad->approval_us, i, "approval",
             shape_printf(s->ar, "%s %s generation %llu%s%s", str_or(ad->approval_by),
                          ad->approval == APPROVAL_APPROVED ? "approved" : "rejected",
                          (unsigned long long) ad->approval_generation, ad->approval_reason ? ": " : "",
                          str_or(ad->approval_reason)));
    if (ad->verdict != VERDICT_NONE)
        tell(s, ad->verdict_us, i, "verdict",
             shape_printf(s->ar, "%s found generation %llu %s%s%s", str_or(ad->verdict_by),
                          (unsigned long long) ad->verdict_generation, ad->verdict == VERDICT_RIGHT ? "right" : "wrong",
                          ad->verdict_why ? ": " : "", str_or(ad->verdict_why)));
}

static void tell_attempt(struct story *s, const struct attempt *a)
{
    const struct milestones *ms = &a->ms;
    const struct anomaly *an;
    const struct evidence *e;
    const struct action *ac;
    const struct advice *ad = a->advice;

    tell(s, a->start_unix * 1000000, a->index, "state", shape_printf(s->ar, "started on %s", str_or(a->nodes)));
    DL_FOREACH (a->anomalies, an)
        tell_anomaly(s, an);
    DL_FOREACH (a->evidence, e)
        tell_evidence(s, e);
    tell(s, ms->end_observed_us, a->index, "state",
         shape_printf(s->ar, "end observed: %s, exit code %u, signal %u", str_or(a->state_raw), a->exit_code,
                      a->exit_signal));
    if (ad) {
        tell(s, ad->create_us, a->index, "advice",
             shape_printf(s->ar, "generation %llu %s%s%s (%s): %s", (unsigned long long) ad->generation,
                          desired_name(ad->desired), ad->exclude_nodes ? " without " : "", str_or(ad->exclude_nodes),
                          ad->actionability == ACTION_ACTIONABLE       ? "actionable" :
                          ad->actionability == ACTION_NEEDS_APPROVAL   ? "needs approval" :
                                                                         "for reading only",
                          str_or(ad->summary)));
        if (ad->desired != DESIRED_NO_ACTION && ad->disposition != DISPOSITION_PENDING)
            tell(s, ad->status_us, a->index, "advice",
                 shape_printf(s->ar, "%s: %s%s%s", disposition_name(ad->disposition),
                              disposition_reason_name(ad->disposition_reason), ad->status_detail ? ", " : "",
                              str_or(ad->status_detail)));
    }
    if (ad)
        tell_people(s, ad);
    DL_FOREACH (a->actions, ac)
        tell_action(s, ac);
    tell(s, ms->converged_us, a->index, "milestone", "converged: the successor is queued and free to start");
    tell(s, ms->successor_started_us, a->index, "milestone", "started: the successor runs");
    tell(s, ms->successor_productive_us, a->index, "milestone",
         shape_printf(s->ar, "productive: the successor went beyond step %llu, this attempt's last checkpoint",
                      (unsigned long long) a->last_checkpoint_step));
    if (a == a->job->attempts[a->job->n_attempts - 1])
        tell(s, ms->job_completed_us, a->index, "milestone", "completed");
}

static int by_time(const void *a, const void *b)
{
    const struct line *x = a, *y = b;

    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    if (x->attempt != y->attempt)
        return x->attempt < y->attempt ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int story_lines(struct adv_arena *ar, struct story *s, Advisor__V1__GetJobTimelineResponse *m)
{
    qsort(s->lines, s->n, sizeof(s->lines[0]), by_time);
    m->entries = adv_arena_alloc(ar, (s->n + 1) * sizeof(*m->entries));
    for (uint32_t i = 0; m->entries && i < s->n; i++) {
        Advisor__V1__TimelineEntry *e = adv_arena_alloc(ar, sizeof(*e));
        if (!e)
            return -ADV_RESOURCE_EXHAUSTED;
        advisor__v1__timeline_entry__init(e);
        e->time = shape_time_us(ar, s->lines[i].at_us);
        e->attempt_index = s->lines[i].attempt;
        e->kind = (char *) (uintptr_t) s->lines[i].kind;
        e->text = (char *) (uintptr_t) s->lines[i].text;
        m->entries[m->n_entries++] = e;
    }
    return m->entries ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

static int get_job_timeline(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                            struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetJobTimelineRequest *q = (const void *) req;
    struct story *s = adv_arena_zalloc(ar, sizeof(*s));
    const struct anomaly *an;
    const struct evidence *e;
    const struct action *ac;
    struct job *j;
    size_t n_an = 0, n_ac = 0, n_ev = 0;
    int r = find_job(api, caller, q->name, q->ref, &j, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__GetJobTimelineResponse, advisor__v1__get_job_timeline_response__init);
    for (uint32_t i = 0; i < j->n_attempts; i++) {
        n_an += j->attempts[i]->n_anomalies;
        n_ac += j->attempts[i]->n_actions;
        n_ev += j->attempts[i]->n_evidence;
    }
    m->attempts = adv_arena_alloc(ar, (j->n_attempts + 1) * sizeof(*m->attempts));
    m->advice = adv_arena_alloc(ar, (j->n_attempts + 1) * sizeof(*m->advice));
    m->anomalies = adv_arena_alloc(ar, (n_an + 1) * sizeof(*m->anomalies));
    m->actions = adv_arena_alloc(ar, (n_ac + 1) * sizeof(*m->actions));
    m->evidence = adv_arena_alloc(ar, (n_ev + 1) * sizeof(*m->evidence));
    if (!s || !m->attempts || !m->advice || !m->anomalies || !m->actions || !m->evidence)
        return -ADV_RESOURCE_EXHAUSTED;
    s->ar = ar;
    m->job = shape_job(ar, j);
    for (uint32_t i = 0; i < j->n_attempts; i++) {
        const struct attempt *a = j->attempts[i];
        m->attempts[m->n_attempts++] = shape_attempt(ar, a);
        if (a->advice)
            m->advice[m->n_advice++] = shape_advice(ar, a->advice);
        DL_FOREACH (a->anomalies, an)
            m->anomalies[m->n_anomalies++] = shape_anomaly(ar, an);
        DL_FOREACH (a->actions, ac)
            m->actions[m->n_actions++] = shape_action(ar, ac);
        DL_FOREACH (a->evidence, e)
            m->evidence[m->n_evidence++] = shape_evidence(ar, e);
    }
    for (uint32_t i = j->n_attempts; i-- > 0;) /* if something has to be left out, then the oldest */
        tell_attempt(s, j->attempts[i]);
    return story_lines(ar, s, m);
}

#define ROW(name, lower, fn)                                                                               \
    { "/advisor.v1.JobService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE_READER, 64 << 10, .read = fn }
const struct api_method job_service_methods[] = {
    ROW(GetJob, get_job, get_job),
    ROW(ListJobs, list_jobs, list_jobs),
    ROW(GetAttempt, get_attempt, get_attempt),
    ROW(ListAttempts, list_attempts, list_attempts),
    ROW(GetJobTimeline, get_job_timeline, get_job_timeline),
};
const size_t job_service_n = ADV_ARRAY_LEN(job_service_methods);
