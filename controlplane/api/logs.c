/* SPDX-License-Identifier: Apache-2.0 */
/* Log bytes to findings to events: one scan (watcher/) for each attempt and stream.
 *
 * A scan is made at the first chunk of an attempt, so nothing of an earlier attempt can be in it. What it finds goes
 * through the turn like everything else. Progress may be thinned out when the turn is behind (it only says "still
 * moving"); signatures never are. */

#include <stdio.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/api/api.h"
#include "controlplane/watcher/watcher.h"

#define STREAMS_MAX      50000
#define PENDING_MAX      256 /* events of one stream on their way; more progress than that is thinned out */
#define SILENT_FINISH_US (2 * 1000000LL)
#define PARKED_MAX       10000 /* findings whose attempt is not known yet */
#define PARKED_US        (60 * 1000000LL)
#define IDLE_FREE_US     (900 * 1000000LL)

struct log_stream {
    struct api *api;
    char key[192]; /* "<cluster>/<job id>/<restart count>/<stream>" */
    char cluster[65];
    char job_id[40];
    uint32_t restart_count;
    char stream[16];
    struct watcher_scan *scan;
    int64_t fed_mono_us;
    bool finished;
    unsigned pending;   /* findings that exist */
    unsigned in_flight; /* of them at the turn, or parked */
    struct finding_event *waiting; /* until none is in flight: the order of lines must stay */
    bool dead; /* freed once nothing is pending */
    UT_hash_handle hh;
};

static void stream_free(struct log_stream *ls)
{
    (void) watcher_scan_free(ls->scan);
    free(ls);
}

struct finding_event {
    struct turn_event te;
    struct log_stream *ls;
    int64_t found_mono_us;
    struct finding_event *prev, *next; /* parked or waiting */
    struct adv_hostlist *hosts;
    const char *nodes[64];
    char rule[96], version[WATCHER_RULES_VERSION_SIZE], fault_class[32], ranks[32];
    char excerpt[WATCHER_EXCERPT_SIZE], sha[ADV_SHA256_HEX_SIZE];
};

static void finding_free(struct finding_event *fe)
{
    struct log_stream *ls = fe->ls;

    (void) adv_hostlist_free(fe->hosts);
    free(fe);
    if (--ls->pending == 0 && ls->dead)
        stream_free(ls);
}

/* What stands in one stream is applied in its order: an error that overtakes the steps before it would look like one
 * that the attempt survived. Findings go in batches, the next when all of the last are done; so a batch that has to be
 * parked is parked as a whole. */
static void submit_waiting(struct log_stream *ls)
{
    struct finding_event *fe, *next, *list = ls->waiting;

    if (ls->in_flight)
        return;
    ls->waiting = NULL;
    DL_FOREACH (list, fe)
        ls->in_flight++;
    DL_FOREACH_SAFE (list, fe, next)
        turn_submit(ls->api->turn, &fe->te); /* the last one's end may free the stream */
}

static void finding_over(struct finding_event *fe)
{
    struct log_stream *ls = fe->ls;

    ls->pending++; /* holds the stream */
    ls->in_flight--;
    finding_free(fe);
    submit_waiting(ls);
    if (--ls->pending == 0 && ls->dead)
        stream_free(ls);
}

/* A log may be faster than the record of its attempt: then the finding waits for the next commit, in order. */
static bool park(struct api *api, struct finding_event *fe, const struct adv_err *err)
{
    if (err->code != ADV_NOT_FOUND || api->stopping || api->n_parked >= PARKED_MAX ||
        adv_mono_us() - fe->found_mono_us > PARKED_US)
        return false;
    DL_APPEND(api->parked, fe);
    api->n_parked++;
    return true;
}

static void finding_done(struct turn_event *te, const struct adv_err *err)
{
    struct finding_event *fe = ADV_CONTAINER_OF(te, struct finding_event, te);

    if (err && park(fe->ls->api, fe, err))
        return;
    if (err)
        adv_warn("logs", "a finding was not taken", ADV_FS("stream", fe->ls->key), ADV_FS("why", err->msg));
    finding_over(fe);
}

void logs_changed(struct api *api)
{
    struct finding_event *fe, *next, *list = api->parked;

    api->parked = NULL;
    api->n_parked = 0;
    DL_FOREACH_SAFE (list, fe, next)
        turn_submit(api->turn, &fe->te);
}

static void fill_signature(struct finding_event *fe, const struct watcher_finding *f)
{
    struct event *ev = &fe->te.ev;
    const char *named = f->rule->blames == WATCHER_BLAMES_NODE       ? f->node :
                        f->rule->blames == WATCHER_BLAMES_REPORTER   ? f->reporter :
                                                                       "";

    (void) snprintf(fe->rule, sizeof(fe->rule), "%s", f->rule->id);
    (void) snprintf(fe->version, sizeof(fe->version), "%s", watcher_rules_version(fe->ls->api->rules));
    (void) snprintf(fe->fault_class, sizeof(fe->fault_class), "%s", watcher_class_name(f->rule->fault_class));
    (void) snprintf(fe->excerpt, sizeof(fe->excerpt), "%s", f->excerpt);
    (void) adv_hex(f->sha256, sizeof(f->sha256), fe->sha);
    if (f->rank >= 0)
        (void) snprintf(fe->ranks, sizeof(fe->ranks), "%d", f->rank);
    ev->u.finding.anomaly = f->rule->anomaly == WATCHER_ANOMALY_HANG ? ANOMALY_HANG : ANOMALY_CRASH;
    ev->u.finding.rule = fe->rule;
    ev->u.finding.rules_version = fe->version;
    ev->u.finding.fault_class = fe->fault_class;
    ev->u.finding.retryable = f->rule->retryable == WATCHER_RETRYABLE_YES  ? RETRYABLE_YES :
                              f->rule->retryable == WATCHER_RETRYABLE_NO   ? RETRYABLE_NO :
                                                                             RETRYABLE_MAYBE;
    ev->u.finding.precedence = f->rule->precedence;
    ev->u.finding.terminal = f->rule->terminal;
    ev->u.finding.blame = f->rule->blames == WATCHER_BLAMES_NODE       ? BLAME_NODE :
                          f->rule->blames == WATCHER_BLAMES_REPORTER   ? BLAME_REPORTER :
                                                                         BLAME_NONE;
    ev->u.finding.ranks = fe->ranks;
    ev->u.finding.excerpt = fe->excerpt;
    ev->u.finding.excerpt_sha256 = fe->sha;
    if (!*named || !(fe->hosts = adv_hostlist_new(ADV_ARRAY_LEN(fe->nodes))) ||
        adv_hostlist_parse(fe->hosts, named, NULL) < 0)
        return;
    for (size_t i = 0; i < adv_hostlist_count(fe->hosts); i++)
        fe->nodes[i] = adv_hostlist_nth(fe->hosts, i);
    ev->u.finding.nodes = fe->nodes;
    ev->u.finding.n_nodes = adv_hostlist_count(fe->hosts);
}

static void on_finding(void *ctx, const struct watcher_finding *f)
{
    struct log_stream *ls = ctx;
    struct finding_event *fe;
    struct event *ev;
    enum finding_kind kind;

    switch (f->type) {
    case WATCHER_SIGNATURE:
        kind = FINDING_SIGNATURE;
        break;
    case WATCHER_PROGRESS:
        kind = FINDING_PROGRESS;
        break;
    case WATCHER_CHECKPOINT:
        kind = FINDING_CHECKPOINT;
        break;
    case WATCHER_RESUMED:
        kind = FINDING_RESUMED;
        break;
    case WATCHER_NOTICE:
    case WATCHER_FINISHED:
    default:
        return; /* nothing rests on them yet */
    }
    if ((kind != FINDING_SIGNATURE && f->step < 0) || (kind == FINDING_PROGRESS && ls->pending > PENDING_MAX))
        return;
    fe = calloc(1, sizeof(*fe));
    if (!fe) {
        adv_error("logs", "no memory for a finding", ADV_FS("stream", ls->key));
        return;
    }
    fe->ls = ls;
    fe->found_mono_us = adv_mono_us();
    fe->te.done = finding_done;
    ev = &fe->te.ev;
    ev->type = EV_FINDING;
    ev->cluster = ls->cluster;
    ev->principal = "watcher";
    ev->u.finding.job_id = ls->job_id;
    ev->u.finding.restart_count = ls->restart_count;
    ev->u.finding.kind = kind;
    ev->u.finding.step = f->step < 0 ? 0 : (uint64_t) f->step;
    ev->u.finding.stream = ls->stream;
    ev->u.finding.offset = f->offset;
    ev->u.finding.observe_us = f->observe_wall_us;
    if (kind == FINDING_SIGNATURE)
        fill_signature(fe, f);
    ls->pending++;
    DL_APPEND(ls->waiting, fe);
    submit_waiting(ls);
}

static struct log_stream *stream_get(struct api *api, const char *cluster, const char *job_id, uint32_t restart_count,
                                     const char *stream, uint64_t offset)
{
    struct log_stream *ls = NULL;
    struct watcher_scan_options opt = { .stream = WATCHER_SCOPE_APPLICATION, .start_offset = offset, .fn = on_finding };
    char key[192];

    (void) snprintf(key, sizeof(key), "%s/%s/%u/%s", cluster, job_id, restart_count, stream);
    HASH_FIND_STR(api->logs, key, ls);
    if (ls)
        return ls;
    if (HASH_COUNT(api->logs) >= STREAMS_MAX || !sched_job_id_valid(job_id) || strlen(stream) >= sizeof(ls->stream))
        return NULL;
    ls = calloc(1, sizeof(*ls));
    if (!ls)
        return NULL;
    ls->api = api;
    (void) strcpy(ls->key, key);
    (void) snprintf(ls->cluster, sizeof(ls->cluster), "%s", cluster);
    (void) snprintf(ls->job_id, sizeof(ls->job_id), "%s", job_id);
    (void) snprintf(ls->stream, sizeof(ls->stream), "%s", stream);
    ls->restart_count = restart_count;
    opt.ctx = ls;
    if (watcher_scan_new(api->rules, &opt, &ls->scan, NULL) < 0) {
        free(ls);
        return NULL;
    }
    HASH_ADD_STR(api->logs, key, ls);
    return ls;
}

void logs_chunk(struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, const char *stream,
                uint64_t offset, const void *bytes, size_t len, uint64_t dropped, int64_t observe_us)
{
    struct log_stream *ls = stream_get(api, cluster, job_id, restart_count, stream, offset);
    struct adv_err err = { 0 };

    if (!ls)
        return;
    ls->fed_mono_us = adv_mono_us();
    ls->finished = false;
    if (watcher_scan_feed(ls->scan, offset, bytes, len, dropped, observe_us, &err) < 0)
        adv_warn("logs", "a piece of a log was not scanned", ADV_FS("stream", ls->key), ADV_FS("why", err.msg));
}

static void stream_drop(struct api *api, struct log_stream *ls)
{
    HASH_DEL(api->logs, ls);
    ls->dead = true;
    if (!ls->pending)
        stream_free(ls);
}

void logs_opened(struct api *api, const char *cluster)
{
    struct log_stream *ls, *next;

    HASH_ITER(hh, api->logs, ls, next)
        if (adv_streq(ls->cluster, cluster))
            stream_drop(api, ls);
}

void logs_tick(struct api *api)
{
    int64_t now_us = adv_mono_us();
    struct log_stream *ls, *next;

    if (api->parked && turn_ready(api->turn))
        logs_changed(api); /* so that they run out of time even when nothing is committed */
    HASH_ITER(hh, api->logs, ls, next) {
        if (!ls->finished && now_us - ls->fed_mono_us > SILENT_FINISH_US) {
            ls->finished = true;
            watcher_scan_finish(ls->scan, adv_wall_us());
        } else if (now_us - ls->fed_mono_us > IDLE_FREE_US && turn_ready(api->turn)) {
            const struct cluster *c = fleet_find_cluster(turn_fleet(api->turn), ls->cluster);
            const struct job *j = c ? fleet_find_job(c, ls->job_id) : NULL;
            const struct attempt *a = j ? job_attempt(j, ls->restart_count) : NULL;
            if (!a || job_state_terminal(a->state))
                stream_drop(api, ls);
        }
    }
}

void logs_free(struct api *api)
{
    struct log_stream *ls, *next;
    struct finding_event *fe, *fe_next;

    DL_FOREACH_SAFE (api->parked, fe, fe_next)
        finding_over(fe);
    api->parked = NULL;

    HASH_ITER(hh, api->logs, ls, next)
        stream_drop(api, ls);
}
