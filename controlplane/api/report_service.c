/* SPDX-License-Identifier: Apache-2.0 */
/* ReportService: numbers about the past. */

#include "advisor/v1/report_service.pb-c.h"

#include "controlplane/api/find.h"
#include "controlplane/domain/report.h"
#include "controlplane/shapes/shapes.h"

#define CLASS_MAX 31

static bool may_see(const void *ctx, const struct job *j)
{
    return api_may_see_job(ctx, j);
}

static int take_query(struct api *api, const struct api_caller *caller, const char *parent,
                      const Google__Protobuf__Timestamp *start, const Google__Protobuf__Timestamp *end, const char *fault_class,
                      struct report_query *ret, struct adv_err *err)
{
    struct cluster *only = NULL;
    bool all;
    int r;

    *ret = (struct report_query) { .fleet = turn_fleet(api->turn), .fault_class = fault_class, .may_see = may_see, .ctx = caller };
    if ((r = api_find_parent(api, caller, parent, &only, &all, err)) < 0 ||
        (r = api_time("start_time", start, &ret->start_us, err)) < 0 || (r = api_time("end_time", end, &ret->end_us, err)) < 0)
        return r;
    ret->only = only;
    if (ret->start_us && ret->end_us && ret->end_us < ret->start_us) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "end_time: before start_time");
        return adv_err_field(err, "end_time");
    }
    if (strlen(fault_class) > CLASS_MAX) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "FILTER_TOO_LONG", "fault_class: no class is longer than %d characters",
                                  CLASS_MAX);
        return adv_err_field(err, "fault_class");
    }
    return 0;
}

static char *cluster_name(struct adv_arena *ar, const char *cluster)
{
    return (char *) (uintptr_t) shape_printf(ar, "clusters/%s", cluster);
}

static char *borrowed(const char *s)
{
    return (char *) (uintptr_t) s;
}

static int get_latency(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                       ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetLatencyReportRequest *q = (const void *) req;
    adv_auto_free struct latency_row *rows = NULL;
    struct report_query query;
    size_t n = 0;
    int r;

    if ((r = take_query(api, caller, q->parent, q->start_time, q->end_time, q->fault_class, &query, err)) < 0 ||
        (r = report_latency(&query, &rows, &n, err)) < 0)
        return r;
    REPLY(m, Advisor__V1__GetLatencyReportResponse, advisor__v1__get_latency_report_response__init);
    m->rows = adv_arena_alloc(ar, (n + 1) * sizeof(*m->rows));
    for (size_t i = 0; m->rows && i < n; i++) {
        Advisor__V1__LatencyRow *row = adv_arena_alloc(ar, sizeof(*row));
        if (!row)
            break;
        advisor__v1__latency_row__init(row);
        row->cluster = cluster_name(ar, rows[i].cluster);
        row->fault_class = borrowed(rows[i].fault_class);
        row->interval = (Advisor__V1__LatencyInterval) rows[i].interval;
        row->count = rows[i].count;
        row->p50_ms = rows[i].p50_ms;
        row->p95_ms = rows[i].p95_ms;
        row->p99_ms = rows[i].p99_ms;
        row->max_ms = rows[i].max_ms;
        m->rows[m->n_rows++] = row;
    }
    return 0; /* what did not fit is seen by the caller in the arena */
}

static void put_ratio(protobuf_c_boolean *has, double *ret, uint64_t part, uint64_t whole)
{
    *has = whole > 0;
    *ret = whole ? (double) part / (double) whole : 0;
}

static Advisor__V1__OutcomeRow *outcome_row(struct adv_arena *ar, const struct outcome_row *r)
{
    Advisor__V1__OutcomeRow *row = adv_arena_alloc(ar, sizeof(*row));

    if (!row)
        return NULL;
    advisor__v1__outcome_row__init(row);
    row->cluster = cluster_name(ar, r->cluster);
    row->fault_class = borrowed(r->fault_class);
    row->advice = r->advice;
    row->no_action = r->no_action;
    row->restarted = r->restarted;
    row->shadow = r->shadow;
    row->awaiting_approval = r->awaiting_approval;
    row->approved = r->approved;
    row->rejected = r->rejected;
    row->pending = r->pending;
    row->converged = r->converged;
    row->abandoned = r->abandoned;
    row->superseded = r->superseded;
    row->started = r->started;
    row->productive = r->productive;
    row->completed = r->completed;
    row->restarted_right = r->restarted_right;
    row->restarted_wrong = r->restarted_wrong;
    row->no_action_right = r->no_action_right;
    row->no_action_wrong = r->no_action_wrong;
    put_ratio(&row->has_precision, &row->precision, r->restarted_right, r->restarted_right + r->restarted_wrong);
    put_ratio(&row->has_recall, &row->recall, r->restarted_right, r->restarted_right + r->no_action_wrong);
    put_ratio(&row->has_agreement, &row->agreement, r->restarted_right + r->no_action_right,
              r->restarted_right + r->restarted_wrong + r->no_action_right + r->no_action_wrong);
    return row;
}

static int get_outcome(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                       ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetOutcomeReportRequest *q = (const void *) req;
    adv_auto_free struct outcome_row *rows = NULL;
    struct report_query query;
    size_t n = 0;
    int r;

    if ((r = take_query(api, caller, q->parent, q->start_time, q->end_time, q->fault_class, &query, err)) < 0 ||
        (r = report_outcome(&query, &rows, &n, err)) < 0)
        return r;
    REPLY(m, Advisor__V1__GetOutcomeReportResponse, advisor__v1__get_outcome_report_response__init);
    m->rows = adv_arena_alloc(ar, (n + 1) * sizeof(*m->rows));
    for (size_t i = 0; m->rows && i < n && (m->rows[i] = outcome_row(ar, &rows[i])); i++)
        m->n_rows++;
    return 0; /* what did not fit is seen by the caller in the arena */
}

#define ROW(name, lower, fn)                                                                                  \
    { "/advisor.v1.ReportService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE_READER, 64 << 10, .read = fn }
const struct api_method report_service_methods[] = {
    ROW(GetLatencyReport, get_latency_report, get_latency),
    ROW(GetOutcomeReport, get_outcome_report, get_outcome),
};
const size_t report_service_n = ADV_ARRAY_LEN(report_service_methods);
