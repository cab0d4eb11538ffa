/* SPDX-License-Identifier: Apache-2.0 */
/* SignalService: what detectors outside tell. Here the words are looked at; what they mean is the domain's (signals.c). */

#include "advisor/v1/signal_service.pb-c.h"

#include <utlist.h>

#include "controlplane/api/find.h"
#include "controlplane/shapes/shapes.h"

#define NAME_MAX_CHARS 64
#define CLASS_MAX      31
#define RANK_MAX       32
#define NODES_MAX      1024
#define RANKS_MAX      256

/* ---- words -------------------------------------------------------------------------------------------------------- */

static int check_count(const char *field, size_t n, size_t max, struct adv_err *err)
{
    if (n <= max)
        return 0;
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "COUNT_OUT_OF_RANGE", "%s: %zu, expected at most %zu", field, n, max);
    return adv_err_field(err, "%s", field);
}

static int check_nodes(char **nodes, size_t n, struct adv_err *err)
{
    ADV_AUTO(adv_hostlist) hl = adv_hostlist_new(NODES_MAX);
    int r;

    if (!hl)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory");
    if ((r = check_count("nodes", n, NODES_MAX, err)) < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        if (!*nodes[i] || adv_hostlist_add(hl, nodes[i], NULL) < 0) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NODE_NAME_MALFORMED", "nodes[%zu]: expected one node's name", i);
            return adv_err_field(err, "nodes[%zu]", i);
        }
    return 0;
}

static int check_ranks(char **ranks, size_t n, struct adv_err *err)
{
    int r = check_count("ranks", n, RANKS_MAX, err);

    for (size_t i = 0; r == 0 && i < n; i++)
        if ((r = api_word("ranks", ranks[i], 1, RANK_MAX, "._:-", err)) < 0)
            (void) adv_err_field(err, "ranks[%zu]", i);
    return r;
}

static int check_class(const char *word, struct adv_err *err)
{
    if (strlen(word) <= CLASS_MAX && strspn(word, "abcdefghijklmnopqrstuvwxyz_") == strlen(word))
        return 0;
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "WORD_MALFORMED", "fault_class: expected at most %d of a-z and '_'",
                              CLASS_MAX);
    return adv_err_field(err, "fault_class");
}

static int check_hash(const char *hex, struct adv_err *err)
{
    if (!*hex || (strlen(hex) == 64 && strspn(hex, "0123456789abcdef") == 64))
        return 0;
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "HASH_MALFORMED", "excerpt_sha256: expected 64 of 0-9 and a-f");
    return adv_err_field(err, "excerpt_sha256");
}

static int check_step(uint64_t step, struct adv_err *err)
{
    if (step)
        return 0;
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "STEP_MISSING", "step: expected 1 or more");
    return adv_err_field(err, "step");
}

/* Points at text of the request, as the domain takes it. */
static const char *const *strings(char **v)
{
    return (const char *const *) v;
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

static int reported_on(struct api *api, const char *name, struct attempt **ret, struct adv_err *err)
{
    struct resource_path p;
    struct cluster *c;
    struct job *j;
    int r = resource_path_parse(name, &p, err);

    if (r < 0)
        return r;
    c = fleet_find_cluster(turn_fleet(api->turn), p.cluster);
    j = c ? fleet_find_job_uid(c, p.job_uid) : NULL;
    *ret = j ? job_attempt(j, p.attempt_index) : NULL;
    return *ret ? 0 : adv_err_set_reason(err, ADV_NOT_FOUND, "ATTEMPT_NOT_FOUND", "%.200s: it is gone", name);
}

static int anomaly_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                         struct adv_err *err)
{
    struct attempt *a = NULL;
    const struct anomaly *an;
    int r = reported_on(api, ev->u.anomaly.attempt_name, &a, err);

    if (r < 0)
        return r;
    if (!(an = fleet_find_report(a, ev->principal, ev->u.anomaly.rule))) /* a repeated call, and it had to make room since */
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "ANOMALY_LIMIT", "the attempt has weightier anomalies by now");
    REPLY(m, Advisor__V1__ReportAnomalyResponse, advisor__v1__report_anomaly_response__init);
    m->anomaly = shape_anomaly(ar, an);
    return 0;
}

static int evidence_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                          struct adv_err *err)
{
    struct attempt *a = NULL;
    const struct evidence *e, *hit = NULL;
    int r = reported_on(api, ev->u.evidence.attempt_name, &a, err);

    if (r < 0)
        return r;
    DL_FOREACH (a->evidence, e)
        if (*ev->u.evidence.ret_uid ? adv_streq(e->uid, ev->u.evidence.ret_uid) :
                                      *ev->request_id && adv_streq(str_or(e->request_id), ev->request_id))
            hit = e;
    if (!hit)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "ATTEMPT_NOT_FOUND", "%.200s: it is gone", ev->u.evidence.attempt_name);
    REPLY(m, Advisor__V1__ReportEvidenceResponse, advisor__v1__report_evidence_response__init);
    m->evidence = shape_evidence(ar, hit);
    return 0;
}

static int progress_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                          struct adv_err *err)
{
    struct attempt *a = NULL;
    int r = reported_on(api, ev->u.progress.attempt_name, &a, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__ReportProgressResponse, advisor__v1__report_progress_response__init);
    m->attempt = shape_attempt(ar, a);
    return 0;
}

static int milestone_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                           struct adv_err *err)
{
    struct attempt *a = NULL;
    int r = reported_on(api, ev->u.progress.attempt_name, &a, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__ReportMilestoneResponse, advisor__v1__report_milestone_response__init);
    m->attempt = shape_attempt(ar, a);
    return 0;
}

/* ---- calls -------------------------------------------------------------------------------------------------------- */

static void fill_anomaly(struct event *ev, const struct attempt *a, const char *name)
{
    (void) a;
    ev->u.anomaly.attempt_name = name;
}

static void fill_evidence(struct event *ev, const struct attempt *a, const char *name)
{
    (void) a;
    ev->u.evidence.attempt_name = name;
}

static void fill_progress(struct event *ev, const struct attempt *a, const char *name)
{
    (void) a;
    ev->u.progress.attempt_name = name;
}

static int take_anomaly(const Advisor__V1__ReportAnomalyRequest *q, struct event *ev, struct adv_err *err)
{
    static const enum retryable retry[] = { [ADVISOR__V1__RETRYABILITY__RETRYABILITY_UNSPECIFIED] = RETRYABLE_MAYBE,
                                            [ADVISOR__V1__RETRYABILITY__RETRYABILITY_YES] = RETRYABLE_YES,
                                            [ADVISOR__V1__RETRYABILITY__RETRYABILITY_NO] = RETRYABLE_NO,
                                            [ADVISOR__V1__RETRYABILITY__RETRYABILITY_MAYBE] = RETRYABLE_MAYBE };
    int r;

    if ((int) q->kind < ANOMALY_CRASH || (int) q->kind > ANOMALY_STRAGGLER) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "ANOMALY_KIND_MALFORMED", "kind: expected CRASH, HANG or STRAGGLER");
        return adv_err_field(err, "kind");
    }
    if ((int) q->retryable < 0 || (size_t) q->retryable >= ADV_ARRAY_LEN(retry)) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "RETRYABILITY_MALFORMED", "retryable: expected YES, NO, MAYBE or nothing");
        return adv_err_field(err, "retryable");
    }
    if ((r = api_word("rule", q->rule, 1, NAME_MAX_CHARS, "._-", err)) < 0 || (r = check_class(q->fault_class, err)) < 0 ||
        (r = check_nodes(q->nodes, q->n_nodes, err)) < 0 || (r = check_ranks(q->ranks, q->n_ranks, err)) < 0 ||
        (r = api_time("observe_time", q->observe_time, &ev->u.anomaly.observe_us, err)) < 0)
        return r;
    ev->type = EV_REPORT_ANOMALY;
    ev->u.anomaly.kind = (enum anomaly_kind) q->kind;
    ev->u.anomaly.fault_class = q->fault_class;
    ev->u.anomaly.rule = q->rule;
    ev->u.anomaly.retryable = retry[q->retryable];
    ev->u.anomaly.nodes = strings(q->nodes);
    ev->u.anomaly.n_nodes = q->n_nodes;
    ev->u.anomaly.ranks = strings(q->ranks);
    ev->u.anomaly.n_ranks = q->n_ranks;
    ev->u.anomaly.excerpt = q->excerpt;
    return 0;
}

static void report_anomaly(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__ReportAnomalyRequest *q = (const void *) req;
    struct event ev = { 0 };
    struct adv_err err = { 0 };

    if (take_anomaly(q, &ev, &err) < 0) {
        call->ops->fail(call, &err);
        return;
    }
    watcher_rules_excerpt(call->api->rules, q->excerpt); /* nothing else of it is ever kept, or handed to another replica */
    for (char *p = q->excerpt; *p; p++)
        *p = (unsigned char) *p < 0x20 || *p == 0x7f ? ' ' : *p;
    api_write_attempt(call, req, q->request_id, q->name, q->ref, &ev, fill_anomaly, anomaly_built);
}

static int take_evidence(const Advisor__V1__ReportEvidenceRequest *q, struct event *ev, struct adv_err *err)
{
    int r;

    if (q->weight_percent > 100) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "WEIGHT_OUT_OF_RANGE", "weight_percent: %u, expected 0 to 100",
                                  q->weight_percent);
        return adv_err_field(err, "weight_percent");
    }
    if ((r = api_word("source", q->source, 1, NAME_MAX_CHARS, "._-", err)) < 0 ||
        (r = api_word("kind", q->kind, 1, NAME_MAX_CHARS, "._-", err)) < 0 ||
        (r = check_nodes(q->nodes, q->n_nodes, err)) < 0 || (r = check_ranks(q->ranks, q->n_ranks, err)) < 0 ||
        (r = api_text("summary", q->summary, 0, API_REASON_MAX, err)) < 0 ||
        (r = api_text("excerpt_ref", q->excerpt_ref, 0, API_REASON_MAX, err)) < 0 ||
        (r = check_hash(q->excerpt_sha256, err)) < 0 || (r = check_class(q->fault_class, err)) < 0 ||
        (r = api_word("rule", q->rule, 0, NAME_MAX_CHARS, "._-", err)) < 0 ||
        (r = api_time("window_start_time", q->window_start_time, &ev->u.evidence.window_start_us, err)) < 0 ||
        (r = api_time("window_end_time", q->window_end_time, &ev->u.evidence.window_end_us, err)) < 0 ||
        (r = api_time("observe_time", q->observe_time, &ev->u.evidence.observe_us, err)) < 0)
        return r;
    ev->type = EV_REPORT_EVIDENCE;
    ev->u.evidence.source = q->source;
    ev->u.evidence.kind = q->kind;
    ev->u.evidence.nodes = strings(q->nodes);
    ev->u.evidence.n_nodes = q->n_nodes;
    ev->u.evidence.ranks = strings(q->ranks);
    ev->u.evidence.n_ranks = q->n_ranks;
    ev->u.evidence.weight_percent = q->weight_percent;
    ev->u.evidence.summary = q->summary;
    ev->u.evidence.excerpt_ref = q->excerpt_ref;
    ev->u.evidence.excerpt_sha256 = q->excerpt_sha256;
    ev->u.evidence.fault_class = q->fault_class;
    ev->u.evidence.rule = q->rule;
    return 0;
}

static void report_evidence(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__ReportEvidenceRequest *q = (const void *) req;
    struct event ev = { 0 };
    struct adv_err err = { 0 };

    if (take_evidence(q, &ev, &err) < 0) {
        call->ops->fail(call, &err);
        return;
    }
    watcher_rules_excerpt(call->api->rules, q->summary);
    api_write_attempt(call, req, q->request_id, q->name, q->ref, &ev, fill_evidence, evidence_built);
}

static void report_progress(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__ReportProgressRequest *q = (const void *) req;
    struct event ev = { .type = EV_REPORT_PROGRESS, .u.progress = { .kind = FINDING_PROGRESS, .step = q->step } };
    struct adv_err err = { 0 };

    if (check_step(q->step, &err) < 0 || api_time("observe_time", q->observe_time, &ev.u.progress.observe_us, &err) < 0)
        call->ops->fail(call, &err);
    else
        api_write_attempt(call, req, q->request_id, q->name, q->ref, &ev, fill_progress, progress_built);
}

static int check_milestone(const Advisor__V1__ReportMilestoneRequest *q, struct adv_err *err)
{
    if (q->milestone == ADVISOR__V1__REPORTED_MILESTONE__REPORTED_MILESTONE_CHECKPOINT ||
        q->milestone == ADVISOR__V1__REPORTED_MILESTONE__REPORTED_MILESTONE_RESUMED)
        return check_step(q->step, err);
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "MILESTONE_MALFORMED", "milestone: expected CHECKPOINT or RESUMED");
    return adv_err_field(err, "milestone");
}

static void report_milestone(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__ReportMilestoneRequest *q = (const void *) req;
    struct event ev = { .type = EV_REPORT_PROGRESS, .u.progress = { .kind = FINDING_CHECKPOINT, .step = q->step } };
    struct adv_err err = { 0 };

    if (q->milestone == ADVISOR__V1__REPORTED_MILESTONE__REPORTED_MILESTONE_RESUMED)
        ev.u.progress.kind = FINDING_RESUMED;
    if (check_milestone(q, &err) < 0 || api_time("observe_time", q->observe_time, &ev.u.progress.observe_us, &err) < 0)
        call->ops->fail(call, &err);
    else
        api_write_attempt(call, req, q->request_id, q->name, q->ref, &ev, fill_progress, milestone_built);
}

#define ROW(name, lower, fn)                                                                                  \
    { "/advisor.v1.SignalService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE_DETECTOR, 256 << 10, .call = fn }
const struct api_method signal_service_methods[] = {
    ROW(ReportAnomaly, report_anomaly, report_anomaly),
    ROW(ReportEvidence, report_evidence, report_evidence),
    ROW(ReportProgress, report_progress, report_progress),
    ROW(ReportMilestone, report_milestone, report_milestone),
};
const size_t signal_service_n = ADV_ARRAY_LEN(signal_service_methods);
