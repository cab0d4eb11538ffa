/* SPDX-License-Identifier: Apache-2.0 */
/* One function a resource. Enums are cast: the assertions below keep the domain's numbers equal to the API's. */

#include "controlplane/domain/pulse.h"
#include "controlplane/shapes/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <utlist.h>

#include "common/num.h"

#define SAME(domain, proto) _Static_assert((int) (domain) == (int) (proto), #domain " differs from the API")
SAME(MODE_ACT, ADVISOR__V1__MODE__MODE_ACT);
SAME(JOB_REQUEUED, ADVISOR__V1__JOB_STATE__JOB_STATE_REQUEUED);
SAME(JOB_CANCELLED, ADVISOR__V1__JOB_STATE__JOB_STATE_CANCELLED);
SAME(JOB_COMPLETING, ADVISOR__V1__JOB_STATE__JOB_STATE_COMPLETING);
SAME(TELEMETRY_LOST, ADVISOR__V1__TELEMETRY_STATE__TELEMETRY_STATE_LOST);
SAME(ACTIVITY_SLOW, ADVISOR__V1__ACTIVITY__ACTIVITY_SLOW);
SAME(ANOMALY_STRAGGLER, ADVISOR__V1__ANOMALY_KIND__ANOMALY_KIND_STRAGGLER);
SAME(ANOMALY_WITHDRAWN, ADVISOR__V1__ANOMALY_STATUS__ANOMALY_STATUS_WITHDRAWN);
SAME(DESIRED_DAG_RELEASED, ADVISOR__V1__DESIRED_STATE__DESIRED_STATE_DAG_RELEASED);
SAME(DESIRED_REQUEUEABLE, ADVISOR__V1__DESIRED_STATE__DESIRED_STATE_REQUEUEABLE);
SAME(CANCELLED_BY_OTHER, ADVISOR__V1__CANCELLED_BY__CANCELLED_BY_OTHER);
SAME(DESIRED_PRESERVED, ADVISOR__V1__DESIRED_STATE__DESIRED_STATE_PRESERVED);
SAME(ACTION_ACTIONABLE, ADVISOR__V1__ACTIONABILITY__ACTIONABILITY_ACTIONABLE);
SAME(DISPOSITION_SUPERSEDED, ADVISOR__V1__DISPOSITION__DISPOSITION_SUPERSEDED);
SAME(REASON_LAST_, ADVISOR__V1__DISPOSITION_REASON__DISPOSITION_REASON_MODE_TOO_LOW);
SAME(REASON_EXPIRED, ADVISOR__V1__DISPOSITION_REASON__DISPOSITION_REASON_EXPIRED);
SAME(REASON_ATTEMPT_SUPERSEDED, ADVISOR__V1__DISPOSITION_REASON__DISPOSITION_REASON_ATTEMPT_SUPERSEDED);
SAME(REASON_MAINTENANCE, ADVISOR__V1__DISPOSITION_REASON__DISPOSITION_REASON_MAINTENANCE);
SAME(REASON_REJECTED, ADVISOR__V1__DISPOSITION_REASON__DISPOSITION_REASON_REJECTED);
SAME(APPROVAL_REJECTED, ADVISOR__V1__APPROVAL_DECISION__APPROVAL_DECISION_REJECTED);
SAME(VERDICT_WRONG, ADVISOR__V1__VERDICT_VALUE__VERDICT_VALUE_WRONG);
SAME(REASON_JOB_GONE, ADVISOR__V1__DISPOSITION_REASON__DISPOSITION_REASON_JOB_GONE);
SAME(AGENT_SCHEDULER_UNAVAILABLE, ADVISOR__V1__AGENT_STATE__AGENT_STATE_SCHEDULER_UNAVAILABLE);
SAME(COMMAND_NOT_SENT, ADVISOR__V1__COMMAND_RESULT__COMMAND_RESULT_NOT_SENT);
SAME(OBSERVED_UNKNOWN, ADVISOR__V1__OBSERVED__OBSERVED_UNKNOWN);
#undef SAME

char *shape_printf(struct adv_arena *ar, const char *fmt, ...)
{
    va_list ap;
    char *s;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    s = n < 0 ? NULL : adv_arena_alloc(ar, (size_t) n + 1);
    if (!s)
        return NULL;
    va_start(ap, fmt);
    (void) vsnprintf(s, (size_t) n + 1, fmt, ap);
    va_end(ap);
    return s;
}

Google__Protobuf__Timestamp *shape_time_us(struct adv_arena *ar, int64_t us)
{
    if (!us)
        return NULL;
    MESSAGE(t, Google__Protobuf__Timestamp, google__protobuf__timestamp__init);
    t->seconds = us / 1000000;
    t->nanos = (int32_t) (us % 1000000) * 1000;
    return t;
}

Google__Protobuf__Timestamp *shape_time_s(struct adv_arena *ar, int64_t unix_s)
{
    return shape_time_us(ar, unix_s * 1000000);
}

Advisor__V1__Epoch *shape_epoch(struct adv_arena *ar, struct epoch e)
{
    MESSAGE(m, Advisor__V1__Epoch, advisor__v1__epoch__init);
    m->term = e.term;
    m->counter = e.counter;
    return m;
}

Advisor__V1__AttemptRef *shape_ref(struct adv_arena *ar, const struct attempt *a)
{
    MESSAGE(m, Advisor__V1__AttemptRef, advisor__v1__attempt_ref__init);
    m->cluster = a->job->cluster->name;
    m->job_id = text(a->job->job_id);
    m->restart_count = a->index;
    m->submit_unix = a->submit_unix;
    return m;
}

char **shape_hosts(struct adv_arena *ar, const char *list, size_t *ret_n)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(65536);
    size_t n;
    char **v;

    *ret_n = 0;
    if (!hl || !list || adv_hostlist_parse(hl, list, NULL) < 0 || (n = adv_hostlist_count(hl)) == 0)
        return NULL;
    v = adv_arena_alloc(ar, n * sizeof(*v));
    for (size_t i = 0; v && i < n; i++) {
        v[i] = adv_arena_strdup(ar, adv_hostlist_nth(hl, i));
        if (!v[i])
            return NULL;
        (*ret_n)++;
    }
    return v;
}

/* Takes heap sentences over into the arena. */
static char **take_texts(struct adv_arena *ar, char **heap, size_t n, size_t *ret_n)
{
    char **v = n ? adv_arena_alloc(ar, n * sizeof(*v)) : NULL;

    *ret_n = 0;
    for (size_t i = 0; i < n; i++) {
        char *s = v ? adv_arena_strdup(ar, heap[i]) : NULL;
        if (s)
            v[(*ret_n)++] = s;
        free(heap[i]);
    }
    return v;
}

char *shape_etag(struct adv_arena *ar, const struct cluster *c)
{
    return shape_printf(ar, "c%lld", (long long) c->mode_us);
}

int shape_etag_parse(const char *etag, uint64_t *ret_version, struct adv_err *err)
{
    *ret_version = 0;
    if (!etag || !*etag)
        return 0;
    if (*etag != 'c' || adv_parse_u64(etag + 1, 1, INT64_MAX, ret_version, NULL) < 0) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "ETAG_MALFORMED",
                                  "etag \"%.40s\": expected the text that a Cluster carried", etag);
        return adv_err_field(err, "etag");
    }
    return 0;
}

Advisor__V1__Cluster *shape_cluster(struct adv_arena *ar, const struct cluster *c)
{
    char *why[POLICY_MAX_MODE_REASONS], name[RESOURCE_NAME_MAX];
    size_t n_why = 0;

    MESSAGE(m, Advisor__V1__Cluster, advisor__v1__cluster__init);
    m->name = adv_arena_strdup(ar, cluster_resource_name(c, name));
    m->mode = (Advisor__V1__Mode) c->mode;
    m->effective_mode = (Advisor__V1__Mode) policy_cluster_mode(c, why, &n_why);
    m->mode_reasons = take_texts(ar, why, n_why, &m->n_mode_reasons);
    m->agent_state = (Advisor__V1__AgentState) c->agent_state;
    m->agent_state_time = shape_time_us(ar, c->agent_state_us);
    m->agent_version = text(c->agent_version);
    m->agent_clock_skew_ms = c->agent_skew_s * 1000;
    m->scheduler = text(c->scheduler);
    m->epoch = shape_epoch(ar, c->epoch);
    m->ceiling = (Advisor__V1__Mode) c->ceiling;
    m->ceiling_reason = text(c->ceiling_reason);
    m->observe_time = shape_time_us(ar, c->observe_us);
    m->nodes = HASH_COUNT(c->nodes);
    m->jobs = c->n_jobs;
    m->jobs_running = c->n_running;
    m->maintenance_end_time = shape_time_us(ar, c->maintenance_until_us);
    m->exclusions = exclusions_active(c);
    m->open_incidents = incidents_open(c);
    m->revision = c->revision;
    m->etag = shape_etag(ar, c);
    m->mode_time = shape_time_us(ar, c->mode_us);
    m->mode_effective = c->mode_effective_us != 0;
    m->sources_unknown = text(c->sources_unknown);
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__Node *shape_node(struct adv_arena *ar, const struct cluster *c, const struct node *n)
{
    const struct exclusion *x;

    MESSAGE(m, Advisor__V1__Node, advisor__v1__node__init);
    m->name = shape_printf(ar, "clusters/%s/nodes/%s", c->name, n->name);
    m->state_raw = text(n->state_raw);
    m->available = n->available;
    m->reason = text(n->reason);
    m->revision = n->revision;
    if ((x = exclusion_of_node(c, n->name))) { /* one at a time is in force */
        char name[2 * RESOURCE_NAME_MAX];
        m->exclusions = adv_arena_alloc(ar, sizeof(*m->exclusions));
        if (m->exclusions)
            m->exclusions[m->n_exclusions++] =
                adv_arena_strdup(ar, resource_name(RESOURCE_EXCLUSION, c->name, x->e.uid, name));
    }
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__Job *shape_job(struct adv_arena *ar, const struct job *j)
{
    char *why[POLICY_MAX_MODE_REASONS], name[RESOURCE_NAME_MAX];
    size_t n_why = 0;
    const struct attempt *last = j->n_attempts ? j->attempts[j->n_attempts - 1] : NULL;

    MESSAGE(m, Advisor__V1__Job, advisor__v1__job__init);
    m->name = adv_arena_strdup(ar, job_resource_name(j, name));
    m->uid = text(j->uid);
    m->job_id = text(j->job_id);
    m->display_name = text(j->display_name);
    m->user = text(j->user);
    m->account = text(j->account);
    m->partition = text(j->partition);
    m->qos = text(j->qos);
    m->submit_time = shape_time_s(ar, j->incarnation_unix ? j->incarnation_unix : j->submit_unix);
    m->incarnation_known = j->incarnation_unix != 0;
    m->effective_mode = (Advisor__V1__Mode) policy_job_mode(j, why, &n_why);
    m->mode_reasons = take_texts(ar, why, n_why, &m->n_mode_reasons);
    m->comment_error = text(j->comment_error);
    m->workflow = text(j->workflow);
    m->policy = text(j->policy);
    m->max_restarts = j->max_restarts;
    m->held = j->held;
    m->reason = text(j->reason);
    m->revision = j->revision;
    if (last) {
        m->last_attempt = last->index;
        m->state = (Advisor__V1__JobState) last->state;
        m->state_raw = text(last->state_raw);
    }
    return adv_arena_exhausted(ar) ? NULL : m;
}

static Advisor__V1__Milestones *shape_milestones(struct adv_arena *ar, const struct milestones *ms)
{
    MESSAGE(m, Advisor__V1__Milestones, advisor__v1__milestones__init);
    m->first_suspicion = shape_time_us(ar, ms->first_suspicion_us);
    m->end_observed = shape_time_us(ar, ms->end_observed_us);
    m->anomaly_confirmed = shape_time_us(ar, ms->anomaly_confirmed_us);
    m->advised = shape_time_us(ar, ms->advised_us);
    m->first_command_accepted = shape_time_us(ar, ms->first_command_us);
    m->converged = shape_time_us(ar, ms->converged_us);
    m->successor_started = shape_time_us(ar, ms->successor_started_us);
    m->successor_productive = shape_time_us(ar, ms->successor_productive_us);
    m->job_completed = shape_time_us(ar, ms->job_completed_us);
    return m;
}

Advisor__V1__Attempt *shape_attempt(struct adv_arena *ar, const struct attempt *a)
{
    char name[RESOURCE_NAME_MAX], why[ACTIVITY_WHY_MAX], reason[TELEMETRY_WHY_MAX];

    MESSAGE(m, Advisor__V1__Attempt, advisor__v1__attempt__init);
    m->activity = (Advisor__V1__Activity) attempt_activity(a, why);
    m->activity_reason = adv_arena_strdup(ar, why);
    m->name = adv_arena_strdup(ar, attempt_resource_name(a, name));
    m->ref = shape_ref(ar, a);
    m->index = a->index;
    m->state = (Advisor__V1__JobState) a->state;
    m->state_raw = text(a->state_raw);
    m->exit_code = a->exit_code;
    m->exit_signal = a->exit_signal;
    m->cancelled_by = (Advisor__V1__CancelledBy) a->cancelled_by;
    m->nodes = text(a->nodes);
    m->start_time = shape_time_s(ar, a->start_unix);
    m->end_time = shape_time_s(ar, a->end_unix);
    m->telemetry = (Advisor__V1__TelemetryState) attempt_telemetry(a, reason);
    m->telemetry_reason = adv_arena_strdup(ar, reason);
    m->telemetry_dropped_bytes = a->dropped_bytes;
    m->milestones = shape_milestones(ar, &a->ms);
    m->last_step = a->last_step;
    m->last_checkpoint_step = a->last_checkpoint_step;
    m->resumed_from_step = a->resumed_from_step;
    m->unseen = a->unseen;
    m->revision = a->revision;
    return adv_arena_exhausted(ar) ? NULL : m;
}

char **shape_words(struct adv_arena *ar, const char *list, size_t *ret_n)
{
    char *words = list ? adv_arena_strdup(ar, list) : NULL, **v, *save = NULL;
    size_t n = 1;

    *ret_n = 0;
    for (const char *p = str_or(words); *p; p++)
        n += *p == ',';
    v = words ? adv_arena_alloc(ar, n * sizeof(*v)) : NULL;
    for (char *w = v ? strtok_r(words, ",", &save) : NULL; w; w = strtok_r(NULL, ",", &save))
        v[(*ret_n)++] = w;
    return v;
}

Advisor__V1__Anomaly *shape_anomaly(struct adv_arena *ar, const struct anomaly *an)
{
    char name[RESOURCE_NAME_MAX];

    MESSAGE(m, Advisor__V1__Anomaly, advisor__v1__anomaly__init);
    m->uid = text(an->uid);
    m->attempt = adv_arena_strdup(ar, attempt_resource_name(an->attempt, name));
    m->kind = (Advisor__V1__AnomalyKind) an->kind;
    m->status = (Advisor__V1__AnomalyStatus) an->status;
    m->fault_class = text(an->fault_class);
    m->rule = text(an->rule);
    m->rules_version = text(an->rules_version);
    m->retryable = text(retryable_name(an->retryable));
    m->nodes = shape_hosts(ar, an->nodes, &m->n_nodes);
    m->ranks = shape_words(ar, an->ranks, &m->n_ranks);
    m->stream = text(an->stream);
    m->offset = an->offset;
    m->excerpt = text(an->excerpt);
    m->excerpt_sha256 = text(an->excerpt_sha256);
    m->reporter = text(an->reporter);
    m->observe_time = shape_time_us(ar, an->observe_us);
    m->record_time = shape_time_us(ar, an->record_us);
    m->status_time = shape_time_us(ar, an->status_us);
    m->status_reason = text(an->status_reason);
    m->name = shape_printf(ar, "%s/anomalies/%s", m->attempt, str_or(an->uid));
    m->revision = an->revision;
    return adv_arena_exhausted(ar) ? NULL : m;
}

static Advisor__V1__AdviceReason *shape_reason(struct adv_arena *ar, const struct advice_reason *r)
{
    MESSAGE(m, Advisor__V1__AdviceReason, advisor__v1__advice_reason__init);
    m->code = text(r->code);
    m->sentence = text(r->sentence);
    if (r->param && *r->param && (m->params = adv_arena_alloc(ar, sizeof(*m->params)))) {
        m->params[0] = r->param;
        m->n_params = 1;
    }
    return m;
}

static Advisor__V1__Approval *shape_approval(struct adv_arena *ar, const struct advice *ad)
{
    if (ad->approval == APPROVAL_NONE)
        return NULL;
    MESSAGE(m, Advisor__V1__Approval, advisor__v1__approval__init);
    m->generation = ad->approval_generation;
    m->decision = (Advisor__V1__ApprovalDecision) ad->approval;
    m->by = text(ad->approval_by);
    m->time = shape_time_us(ar, ad->approval_us);
    m->reason = text(ad->approval_reason);
    return m;
}

static Advisor__V1__Verdict *shape_verdict(struct adv_arena *ar, const struct advice *ad)
{
    if (ad->verdict == VERDICT_NONE)
        return NULL;
    MESSAGE(m, Advisor__V1__Verdict, advisor__v1__verdict__init);
    m->generation = ad->verdict_generation;
    m->value = (Advisor__V1__VerdictValue) ad->verdict;
    m->why = text(ad->verdict_why);
    m->by = text(ad->verdict_by);
    m->time = shape_time_us(ar, ad->verdict_us);
    return m;
}

Advisor__V1__Advice *shape_advice(struct adv_arena *ar, const struct advice *ad)
{
    char name[RESOURCE_NAME_MAX];

    MESSAGE(m, Advisor__V1__Advice, advisor__v1__advice__init);
    MESSAGE(st, Advisor__V1__AdviceStatus, advisor__v1__advice_status__init);
    m->name = adv_arena_strdup(ar, advice_resource_name(ad->attempt, name));
    m->attempt = shape_ref(ar, ad->attempt);
    m->generation = ad->generation;
    m->desired_state = (Advisor__V1__DesiredState) ad->desired;
    m->actionability = (Advisor__V1__Actionability) ad->actionability;
    m->exclude_nodes = shape_hosts(ar, ad->exclude_nodes, &m->n_exclude_nodes);
    if (ad->n_reasons && (m->reasons = adv_arena_alloc(ar, ad->n_reasons * sizeof(*m->reasons))))
        for (uint32_t i = 0; i < ad->n_reasons; i++)
            m->reasons[m->n_reasons++] = shape_reason(ar, &ad->reasons[i]);
    m->summary = text(ad->summary);
    m->valid_for_ms = ad->valid_for_ms;
    st->observed_generation = ad->observed_generation;
    st->disposition = (Advisor__V1__Disposition) ad->disposition;
    st->reason = (Advisor__V1__DispositionReason) ad->disposition_reason;
    st->detail = text(ad->status_detail);
    st->update_time = shape_time_us(ar, ad->status_us);
    m->status = st;
    m->create_time = shape_time_us(ar, ad->create_us);
    m->update_time = shape_time_us(ar, ad->update_us);
    m->correlation_id = text(ad->correlation_id);
    m->anomaly_uid = text(ad->anomaly_uid);
    m->approval = shape_approval(ar, ad);
    m->verdict = shape_verdict(ar, ad);
    m->revision = ad->revision;
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__Action *shape_action(struct adv_arena *ar, const struct action *ac)
{
    char name[RESOURCE_NAME_MAX];

    MESSAGE(m, Advisor__V1__Action, advisor__v1__action__init);
    m->journal_id = text(ac->journal_id);
    m->journal_seq = ac->journal_seq;
    m->advice = adv_arena_strdup(ar, advice_resource_name(ac->attempt, name));
    m->generation = ac->generation;
    m->attempt = shape_ref(ar, ac->attempt);
    m->epoch = shape_epoch(ar, ac->epoch);
    m->verb = (Advisor__V1__Verb) ac->verb;
    m->read_before = text(ac->read_before);
    m->command = (Advisor__V1__CommandResult) ac->command;
    m->observed = (Advisor__V1__Observed) ac->observed;
    m->reason = text(ac->reason);
    m->detail = text(ac->detail);
    m->observe_time = shape_time_us(ar, ac->observe_us);
    m->record_time = shape_time_us(ar, ac->record_us);
    m->outcome_time = shape_time_us(ar, ac->outcome_us);
    m->revision = ac->revision;
    return adv_arena_exhausted(ar) ? NULL : m;
}

Advisor__V1__AuditEvent *shape_audit(struct adv_arena *ar, const struct audit_row *r)
{
    MESSAGE(m, Advisor__V1__AuditEvent, advisor__v1__audit_event__init);
    m->cluster = text(r->cluster);
    m->seq = r->seq;
    m->prev_hash = text(r->prev_hash);
    m->principal = text(r->principal);
    m->verb = text(r->verb);
    m->subject = text(r->subject);
    m->detail = text(r->detail);
    m->hash = text(r->hash);
    m->detail_salt = text(r->salt);
    m->detail_sha256 = text(r->detail_hash);
    m->detail_erased = !*str_or(r->salt);
    m->event_id = text(r->event_id);
    m->observe_time = shape_time_us(ar, r->observe_us);
    m->record_time = shape_time_us(ar, r->record_us);
    return adv_arena_exhausted(ar) ? NULL : m;
}
