/* SPDX-License-Identifier: Apache-2.0 */
/* OTLP logs: records of collectors and programs, routed to attempts and scanned as the agent's log bytes are.
 *
 * What cannot be taken is counted by reason and told as partial success, which no sender repeats. An error is only what a
 * repetition can mend: no store, too much at one time, or nothing in the request but clusters of another replica.
 *
 * A request is scanned as work beside everything else (logs.c) and answered when all of it was, and what was found is
 * stored, unless its attempt is not known yet: so a sender that waits for answers is held back, and memory is bounded by the
 * requests under way. */

#include "opentelemetry/proto/collector/logs/v1/logs_service.pb-c.h"

#include <stdio.h>
#include <utlist.h>

#include "common/clock.h"
#include "controlplane/api/api.h"
#include "controlplane/api/otlp.h"

#define REQUEST_MAX   (4 << 20)
#define RESOURCES_MAX 1000
#define RECORDS_MAX   10000
#define EXPORTS_MAX   16
#define LINES_MAX     (16 << 20) /* of one record: each byte a line of its own, with a host in front */

typedef Opentelemetry__Proto__Collector__Logs__V1__ExportLogsServiceRequest export_request;
typedef Opentelemetry__Proto__Logs__V1__ResourceLogs resource_logs;
typedef Opentelemetry__Proto__Logs__V1__LogRecord log_record;

struct export {
    struct log_work work;
    struct turn_event te; /* that follows what was found */
    struct api_call *call;
    const export_request *q;
    struct otlp_route *routes; /* by resource */
    int64_t *starts_us;        /* of the attempts; 0: not known */
    uint64_t (*found)[OTLP_N_STREAMS]; /* in the streams of the routes when all was scanned */
    size_t resource, scope, record;
    size_t n_records;
    uint64_t rejected[OTLP_N_FAULTS];
    struct export *prev, *next;
};

static void export_free(struct export *e)
{
    struct api *api = e->call->api;

    DL_DELETE(api->exports, e);
    api->n_exports--;
    e->call->ops->unref(e->call);
    free(e->routes);
    free(e->starts_us);
    free(e->found);
    free(e);
}

static void export_fail(struct export *e, enum adv_code code, const char *reason, const char *text)
{
    struct adv_err err = { 0 };

    (void) adv_err_set(&err, code, "%s", text);
    err.reason = reason;
    err.retry_after_ms = 1000;
    e->call->ops->fail(e->call, &err);
    export_free(e);
}

/* "3 without slurm.job.id, 1 without text" */
static void export_reply(struct export *e)
{
    Opentelemetry__Proto__Collector__Logs__V1__ExportLogsServiceResponse m =
        OPENTELEMETRY__PROTO__COLLECTOR__LOGS__V1__EXPORT_LOGS_SERVICE_RESPONSE__INIT;
    Opentelemetry__Proto__Collector__Logs__V1__ExportLogsPartialSuccess part =
        OPENTELEMETRY__PROTO__COLLECTOR__LOGS__V1__EXPORT_LOGS_PARTIAL_SUCCESS__INIT;
    char text[1024];
    size_t n = 0;

    for (int f = OTLP_OK + 1; f < OTLP_N_FAULTS; f++)
        if (e->rejected[f]) {
            part.rejected_log_records += (int64_t) e->rejected[f];
            n += (size_t) snprintf(text + n, sizeof(text) - n, "%s%llu %s", n ? ", " : "", (unsigned long long) e->rejected[f],
                                   otlp_fault_words((enum otlp_fault) f));
        }
    if (n) {
        part.error_message = text;
        m.partial_success = &part;
    }
    e->call->ops->reply(e->call, &m.base);
    export_free(e);
}

/* What stands in one stream goes to the store in batches: the first commit may have some of it only. */
static bool all_stored(const struct export *e)
{
    for (size_t i = 0; i < e->q->n_resource_logs && i < RESOURCES_MAX; i++) {
        const struct otlp_route *r = &e->routes[i];
        for (size_t s = 0; r->fault == OTLP_OK && s < OTLP_N_STREAMS; s++)
            if (!logs_settled(e->call->api, r->cluster, r->job_id, r->restart_count, 0, otlp_streams[s], e->found[i][s]))
                return false;
    }
    return true;
}

static void follow(struct export *e);

static void settled(struct turn_event *te, const struct adv_err *err)
{
    struct export *e = ADV_CONTAINER_OF(te, struct export, te);

    if (err && err->code == ADV_UNAVAILABLE) { /* the store, or the owner, went away: what was found may not be stored */
        e->call->ops->fail(e->call, err);
        export_free(e);
    } else if (!all_stored(e)) {
        follow(e);
    } else {
        export_reply(e);
    }
}

/* Behind what is on its way to the store. */
static void follow(struct export *e)
{
    const struct otlp_route *r = e->routes;

    for (size_t i = 0; i < e->q->n_resource_logs && i < RESOURCES_MAX; i++, r++) {
        if (r->fault != OTLP_OK)
            continue;
        e->te = (struct turn_event) { .ev = { .type = EV_NONE, .cluster = r->cluster, .principal = "watcher" }, .done = settled };
        turn_submit(e->call->api->turn, &e->te);
        return;
    }
    export_reply(e);
}

static void all_scanned(struct export *e)
{
    for (size_t i = 0; i < e->q->n_resource_logs && i < RESOURCES_MAX; i++) {
        const struct otlp_route *r = &e->routes[i];
        for (size_t s = 0; r->fault == OTLP_OK && s < OTLP_N_STREAMS; s++)
            e->found[i][s] = logs_found(e->call->api, r->cluster, r->job_id, r->restart_count, 0, otlp_streams[s]);
    }
    follow(e);
}

/* The record that is next; NULL: none is left. Skips what cannot be taken. */
static const log_record *next_record(struct export *e)
{
    while (e->resource < e->q->n_resource_logs) {
        const resource_logs *rl = e->q->resource_logs[e->resource];
        if (e->scope >= rl->n_scope_logs) {
            e->resource++;
            e->scope = e->record = 0;
        } else if (e->record >= rl->scope_logs[e->scope]->n_log_records) {
            e->scope++;
            e->record = 0;
        } else {
            return rl->scope_logs[e->scope]->log_records[e->record++];
        }
    }
    return NULL;
}

static enum otlp_fault take(struct export *e, const log_record *rec, size_t *ret_bytes)
{
    const struct otlp_route *route = e->resource < RESOURCES_MAX ? &e->routes[e->resource] : NULL;
    int64_t at_us = otlp_time_us(rec);
    ADV_AUTO_DONE(adv_buf) b;
    enum otlp_fault f;

    adv_buf_init(&b, LINES_MAX);
    if (!route || ++e->n_records > RECORDS_MAX)
        return OTLP_TOO_MANY;
    if (route->fault != OTLP_OK)
        return route->fault;
    if (at_us && at_us < e->starts_us[e->resource])
        return OTLP_BEFORE_START;
    if ((f = otlp_lines(rec, route->host, &b)) != OTLP_OK)
        return f;
    if (adv_buf_error(&b))
        return OTLP_TOO_LONG;
    *ret_bytes = b.len;
    return !b.len || logs_append(e->call->api, route->cluster, route->job_id, route->restart_count, 0, otlp_stream(rec), b.data,
                                 b.len, at_us ? at_us : adv_wall_us())
               ? OTLP_OK
               : OTLP_NO_ROOM;
}

static bool step(struct log_work *w)
{
    struct export *e = ADV_CONTAINER_OF(w, struct export, work);
    const log_record *rec;

    if (e->call->ops->ended(e->call)) { /* the request is gone with its sender */
        export_free(e);
        return false;
    }
    for (size_t done = 0; done < LOGS_SLICE_BYTES;) {
        size_t bytes = 0;
        enum otlp_fault f;
        if (!(rec = next_record(e))) {
            all_scanned(e);
            return false;
        }
        f = take(e, rec, &bytes);
        e->rejected[f] += f != OTLP_OK;
        done += bytes + 64; /* looking at a record is work, too */
    }
    return true;
}

/* Whether the sender may speak of it, and since when it runs. */
static void find_attempt(struct export *e, struct otlp_route *r, int64_t *ret_start_us)
{
    const struct api_caller *who = &e->call->caller;
    struct cluster *c = fleet_find_cluster(turn_fleet(e->call->api->turn), r->cluster);
    struct job *j = c ? fleet_find_job(c, r->job_id) : NULL;
    struct attempt *a = j ? job_attempt(j, r->restart_count) : NULL;

    if (!c || !sched_job_id_valid(r->job_id) ||
        !(j ? api_may(who, ROLE_DETECTOR, c->name, str_or(j->account), str_or(j->user)) :
              api_may(who, ROLE_DETECTOR, c->name, NULL, NULL))) /* whose it is going to be is not known */
        r->fault = OTLP_UNKNOWN;
    else if (!c->owned)
        r->fault = OTLP_NOT_OWNED;
    else if (j && j->n_attempts && !a && r->restart_count < j->attempts[j->n_attempts - 1]->index)
        r->fault = OTLP_UNKNOWN; /* an attempt that nobody saw does not appear any more */
    else if (a)
        *ret_start_us = a->start_unix * 1000000;
}

static void begin(void *arg, const struct adv_err *err)
{
    struct export *e = arg;
    size_t n = e->q->n_resource_logs, n_ok = 0, n_foreign = 0;

    if (e->call->ops->ended(e->call)) {
        export_free(e);
        return;
    }
    if (err) {
        e->call->ops->fail(e->call, err);
        export_free(e);
        return;
    }
    for (size_t i = 0; i < n && i < RESOURCES_MAX; i++) {
        otlp_route(e->q->resource_logs[i]->resource, &e->routes[i]);
        if (e->routes[i].fault == OTLP_OK)
            find_attempt(e, &e->routes[i], &e->starts_us[i]);
        n_ok += e->routes[i].fault == OTLP_OK;
        n_foreign += e->routes[i].fault == OTLP_NOT_OWNED;
    }
    if (n_foreign && !n_ok) {
        export_fail(e, ADV_UNAVAILABLE, "NOT_OWNER", "another replica owns the clusters of these logs: send them there");
        return;
    }
    e->work.step = step;
    logs_work(e->call->api, &e->work);
}

static void export_logs(struct api_call *call, const ProtobufCMessage *req)
{
    struct api *api = call->api;
    struct export *e = calloc(1, sizeof(*e));
    const export_request *q = (const void *) req;
    size_t n = q->n_resource_logs < RESOURCES_MAX ? q->n_resource_logs : RESOURCES_MAX;
    struct adv_err err = { 0 };

    if (e) {
        e->routes = calloc(n + 1, sizeof(*e->routes));
        e->starts_us = calloc(n + 1, sizeof(*e->starts_us));
        e->found = calloc(n + 1, sizeof(*e->found));
    }
    if (!e || !e->routes || !e->starts_us || !e->found) {
        if (e) {
            free(e->routes);
            free(e->starts_us);
            free(e->found);
        }
        free(e);
        (void) adv_err_set(&err, ADV_RESOURCE_EXHAUSTED, "no memory");
        err.retry_after_ms = 1000;
        call->ops->fail(call, &err);
        return;
    }
    e->call = call;
    e->q = q;
    call->ops->ref(call);
    DL_APPEND(api->exports, e);
    if (++api->n_exports > EXPORTS_MAX) {
        (void) adv_err_set_reason(&err, ADV_UNAVAILABLE, "NOT_NOW", "%d requests with logs are being read: come back", EXPORTS_MAX);
        err.retry_after_ms = 1000;
        call->ops->fail(call, &err);
        export_free(e);
        return;
    }
    turn_read(api->turn, begin, e);
}

void otlp_free(struct api *api)
{
    struct export *e, *next;

    DL_FOREACH_SAFE (api->exports, e, next) {
        logs_work_cancel(api, &e->work);
        export_free(e);
    }
}

const struct api_method otlp_methods[] = {
    { "/opentelemetry.proto.collector.logs.v1.LogsService/Export", API_UNARY,
      &opentelemetry__proto__collector__logs__v1__export_logs_service_request__descriptor,
      &opentelemetry__proto__collector__logs__v1__export_logs_service_response__descriptor, ROLE_DETECTOR, REQUEST_MAX,
      .gzip = true, .call = export_logs },
};
const size_t otlp_n = ADV_ARRAY_LEN(otlp_methods);
