/* SPDX-License-Identifier: Apache-2.0 */
/* Log bytes to findings to events: one scan (watcher/) for each attempt and stream.
 *
 * A scan is made at the first chunk of an attempt, so nothing of an earlier attempt can be in it. What it finds goes
 * through the turn like everything else. Progress may be thinned out when the turn is behind (it only says "still
 * moving"); signatures never are.
 *
 * Scanning takes the processor, and agents may send as fast as their disks read. So bytes are scanned as work: pieces of
 * SLICE_BYTES, each sender in turn, for TURN_US of each turn of the loop; a heartbeat never waits longer than that. Work
 * rests while BUSY_MAX findings are on their way to the store. A sender whose message has not been scanned is not asked
 * for the next, so its window closes, and its agent's files are the buffer.
 *
 * A log may be faster than the record of its attempt. Then what is found is parked, and what the same stream finds after
 * it waits behind it, up to PARKED_MAX in all; that rests nobody else's work.
 *
 * What was shed on the way is counted here from the offsets, each byte once, although a sender that lost its stream reads
 * again from some earlier place; it goes to the attempt as telemetry. So does what could not be scanned, or was refused because
 * as many logs are read as may be: a log that nobody reads must not look like one with nothing in it. */

#include <stdio.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/api/api.h"
#include "controlplane/watcher/report.h"

#define STREAMS_MAX      50000 /* where the configuration says nothing */
#define REFUSED_MAX      50000 /* attempts */
#define PENDING_MAX      256 /* events of one stream on their way; more progress than that is thinned out */
#define SILENT_FINISH_US (2 * 1000000LL)
#define PARKED_MAX       10000 /* findings whose attempt is not known yet, and those behind them */
#define PARKED_US        (60 * 1000000LL)
#define IDLE_FREE_US     (900 * 1000000LL)
#define TURN_US          2000
#define BUSY_MAX         2000

struct logs {
    struct api *api;
    uv_idle_t idle; /* runs while there is work */
    struct log_work *work;
    struct log_cluster *clusters;
    size_t n_streams;
    struct refused *refused; /* what could not be read, by attempt; told with the next tick */
    struct finding_event *parked;
    size_t n_busy, n_parked; /* findings of streams on their way, and of streams that wait for their attempt */
    uint64_t parked_seq;     /* newest change when those were tried last */
};

struct log_cluster {
    char name[65];
    struct log_stream *streams;
    UT_hash_handle hh;
};

struct log_stream {
    struct logs *logs;
    struct log_cluster *cluster;
    char key[96]; /* "<job id>/<restart count>/<submit time>/<stream>" */
    char job_id[40];
    uint32_t restart_count;
    int64_t submit_unix; /* of the attempt; 0: not said */
    char stream[16];
    struct watcher_scan *scan; /* NULL: begins with the next bytes */
    uint64_t at;               /* behind the last byte */
    uint64_t high;             /* behind the last byte that was had or counted as shed */
    bool outside; /* not of the agent: it has no offsets of its own */
    bool begun;
    uint64_t shed;             /* not yet told */
    uint64_t found, over;      /* findings ever, and those of them that came to their end; in the order of lines */
    bool telling;
    struct turn_event tell;
    int64_t fed_mono_us;
    bool finished;
    unsigned refs;      /* by findings, by telemetry on its way, by functions below */
    unsigned pending;   /* findings that exist */
    unsigned in_flight; /* of them at the turn, or parked */
    bool parked;        /* some of them are: all of them wait */
    struct finding_event *waiting; /* until none is in flight: the order of lines must stay */
    bool dead; /* freed with the last reference */
    UT_hash_handle hh;
};

static void stream_free(struct log_stream *ls)
{
    (void) watcher_scan_free(ls->scan);
    free(ls);
}

static void stream_unref(struct log_stream *ls)
{
    if (--ls->refs == 0 && ls->dead)
        stream_free(ls);
}

struct finding_event {
    struct turn_event te;
    struct log_stream *ls;
    int64_t found_mono_us;
    struct finding_event *prev, *next; /* parked or waiting */
    struct watcher_report report;
};

/* ---- work ------------------------------------------------------------------------------------------------------- */

static void on_idle(uv_idle_t *h)
{
    struct logs *l = h->data;
    int64_t until_us = adv_mono_us() + TURN_US;

    do {
        struct log_work *w = l->work;
        if (!w || l->n_busy >= BUSY_MAX) {
            (void) uv_idle_stop(&l->idle);
            return;
        }
        DL_DELETE(l->work, w);
        w->queued = false;
        if (w->step(w))
            logs_work(l->api, w);
    } while (adv_mono_us() < until_us);
}

void logs_work(struct api *api, struct log_work *w)
{
    struct logs *l = api->logs;

    if (w->queued)
        return;
    w->queued = true;
    DL_APPEND(l->work, w);
    if (l->n_busy < BUSY_MAX)
        (void) uv_idle_start(&l->idle, on_idle);
}

void logs_work_cancel(struct api *api, struct log_work *w)
{
    if (w->queued)
        DL_DELETE(api->logs->work, w);
    w->queued = false;
}

/* ---- findings --------------------------------------------------------------------------------------------------- */

/* @n findings more, or fewer, of that stream. */
static void count(struct log_stream *ls, int n)
{
    struct logs *l = ls->logs;
    size_t *in_all = ls->parked ? &l->n_parked : &l->n_busy;

    *in_all += (size_t) n;
    ls->pending += (unsigned) n;
    if (n < 0 && l->work && l->n_busy < BUSY_MAX / 2)
        (void) uv_idle_start(&l->idle, on_idle);
}

static void set_parked(struct log_stream *ls, bool parked)
{
    int n = (int) ls->pending;

    if (ls->parked == parked)
        return;
    count(ls, -n);
    ls->parked = parked;
    count(ls, n);
}

static void finding_free(struct finding_event *fe)
{
    struct log_stream *ls = fe->ls;

    watcher_report_done(&fe->report);
    free(fe);
    count(ls, -1);
    stream_unref(ls);
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
    set_parked(ls, false);
    DL_FOREACH (list, fe)
        ls->in_flight++;
    DL_FOREACH_SAFE (list, fe, next)
        turn_submit(ls->logs->api->turn, &fe->te); /* the last one's end may free the stream */
}

static void finding_over(struct finding_event *fe)
{
    struct log_stream *ls = fe->ls;

    ls->refs++;
    ls->in_flight--;
    ls->over++;
    finding_free(fe);
    submit_waiting(ls);
    stream_unref(ls);
}

/* A log may be faster than the record of its attempt: then the finding waits for the next commit, in order. */
static bool park(struct finding_event *fe, const struct adv_err *err)
{
    struct logs *l = fe->ls->logs;

    if (err->code != ADV_NOT_FOUND || l->api->stopping || l->n_parked >= PARKED_MAX ||
        adv_mono_us() - fe->found_mono_us > PARKED_US)
        return false;
    DL_APPEND(l->parked, fe);
    set_parked(fe->ls, true);
    return true;
}

static void finding_done(struct turn_event *te, const struct adv_err *err)
{
    struct finding_event *fe = ADV_CONTAINER_OF(te, struct finding_event, te);

    if (err && park(fe, err))
        return;
    if (err)
        adv_warn("logs", "a finding was not taken", ADV_FS("cluster", fe->ls->cluster->name), ADV_FS("stream", fe->ls->key),
                 ADV_FS("why", err->msg));
    finding_over(fe);
}

static void try_parked(struct logs *l)
{
    struct finding_event *fe, *next, *list = l->parked;

    l->parked = NULL;
    DL_FOREACH_SAFE (list, fe, next)
        turn_submit(l->api->turn, &fe->te);
}

void logs_changed(struct api *api)
{
    struct logs *l = api->logs;

    if (!l->parked || turn_watchlog(api->turn)->last == l->parked_seq)
        return;
    l->parked_seq = turn_watchlog(api->turn)->last; /* once a commit, or the two would chase each other */
    try_parked(l);
}

static void on_finding(void *ctx, const struct watcher_finding *f)
{
    static struct adv_ratelimit limit;
    struct log_stream *ls = ctx;
    struct finding_event *fe;
    struct event *ev;

    if ((f->type == WATCHER_NOTICE || f->type == WATCHER_PROGRESS) && ls->pending > PENDING_MAX)
        return; /* nothing rests on one of many */
    fe = ls->parked && ls->logs->n_parked >= PARKED_MAX ? NULL : calloc(1, sizeof(*fe));
    if (!fe) {
        if (adv_log_ratelimit(&limit, 1))
            adv_error("logs", "no room for a finding", ADV_FS("cluster", ls->cluster->name), ADV_FS("stream", ls->key),
                      ADV_FU("lines_held_back", adv_ratelimit_take_suppressed(&limit)));
        return;
    }
    fe->ls = ls;
    fe->found_mono_us = adv_mono_us();
    fe->te.done = finding_done;
    ev = &fe->te.ev;
    if (!watcher_report_fill(&fe->report, f, watcher_rules_version(ls->logs->api->rules), ev)) {
        watcher_report_done(&fe->report);
        free(fe);
        return;
    }
    ev->cluster = ls->cluster->name;
    ev->principal = "watcher";
    ev->u.finding.job_id = ls->job_id;
    ev->u.finding.restart_count = ls->restart_count;
    ev->u.finding.submit_unix = ls->submit_unix;
    ev->u.finding.stream = ls->stream;
    ev->u.finding.outside = ls->outside;
    count(ls, 1);
    ls->refs++;
    ls->found++;
    DL_APPEND(ls->waiting, fe);
    submit_waiting(ls);
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

static struct log_cluster *cluster_get(struct logs *l, const char *name, bool make)
{
    struct log_cluster *lc = NULL;

    HASH_FIND_STR(l->clusters, name, lc);
    if (lc || !make)
        return lc;
    lc = calloc(1, sizeof(*lc));
    if (!lc)
        return NULL;
    (void) snprintf(lc->name, sizeof(lc->name), "%s", name);
    HASH_ADD_STR(l->clusters, name, lc); /* kept: clusters are few, and streams point at it */
    return lc;
}

static size_t streams_max(const struct logs *l)
{
    return l->api->cfg.max_streams ? l->api->cfg.max_streams : STREAMS_MAX;
}

static struct log_stream *stream_get(struct logs *l, const char *cluster, const char *job_id, uint32_t restart_count,
                                     int64_t submit_unix, const char *stream)
{
    struct log_cluster *lc;
    struct log_stream *ls = NULL;
    char key[sizeof(ls->key)];

    if (!sched_job_id_valid(job_id) || strlen(stream) >= sizeof(ls->stream) || !(lc = cluster_get(l, cluster, true)))
        return NULL;
    (void) snprintf(key, sizeof(key), "%s/%u/%lld/%s", job_id, restart_count, (long long) submit_unix, stream);
    HASH_FIND_STR(lc->streams, key, ls);
    if (ls || l->n_streams >= streams_max(l) || !(ls = calloc(1, sizeof(*ls))))
        return ls;
    ls->logs = l;
    ls->cluster = lc;
    (void) strcpy(ls->key, key);
    (void) snprintf(ls->job_id, sizeof(ls->job_id), "%s", job_id);
    (void) snprintf(ls->stream, sizeof(ls->stream), "%s", stream);
    ls->restart_count = restart_count;
    ls->submit_unix = submit_unix;
    HASH_ADD_STR(lc->streams, key, ls);
    l->n_streams++;
    return ls;
}

/* Of the @dropped bytes before @offset, those that were never had and never counted. */
static void count_shed(struct log_stream *ls, uint64_t offset, size_t len, uint64_t dropped)
{
    uint64_t from = dropped < offset ? offset - dropped : 0, shed = dropped;

    if (ls->scan && offset < ls->at) { /* the file begins anew */
        ls->high = offset;
    } else {
        if (ls->scan && offset - ls->at > dropped)
            from = ls->at; /* a jump that was not announced */
        if (ls->begun && from < ls->high)
            from = ls->high;
        if (ls->begun || dropped > 0)
            shed = from < offset ? offset - from : 0;
    }
    ls->begun = true;
    ls->at = offset + len;
    if (ls->at > ls->high)
        ls->high = ls->at;
    ls->shed = shed > UINT64_MAX - ls->shed ? UINT64_MAX : ls->shed + shed;
}

static void told(struct turn_event *te, const struct adv_err *err)
{
    struct log_stream *ls = ADV_CONTAINER_OF(te, struct log_stream, tell);

    if (err && !ls->logs->api->stopping) /* no such attempt yet, or no store: told with the next tick */
        ls->shed += te->ev.u.shed.bytes > UINT64_MAX - ls->shed ? UINT64_MAX - ls->shed : te->ev.u.shed.bytes;
    ls->telling = false;
    stream_unref(ls);
}

static void tell_shed(struct log_stream *ls)
{
    if (!ls->shed || ls->telling || ls->logs->api->stopping)
        return;
    ls->tell = (struct turn_event) { .done = told };
    ls->tell.ev.type = EV_LOG_SHED;
    ls->tell.ev.cluster = ls->cluster->name;
    ls->tell.ev.principal = "watcher";
    ls->tell.ev.u.shed.job_id = ls->job_id;
    ls->tell.ev.u.shed.restart_count = ls->restart_count;
    ls->tell.ev.u.shed.submit_unix = ls->submit_unix;
    ls->tell.ev.u.shed.bytes = ls->shed;
    ls->shed = 0;
    ls->telling = true;
    ls->refs++;
    turn_submit(ls->logs->api->turn, &ls->tell);
}

/* ---- logs that are not read ------------------------------------------------------------------------------------- */

/* Bytes of an attempt's logs. */
struct refused {
    struct logs *logs;
    char key[160]; /* "<cluster>/<job id>/<restart count>/<submit time>" */
    char cluster[65];
    char job_id[40];
    uint32_t restart_count;
    int64_t submit_unix;
    uint64_t bytes;
    int64_t since_mono_us;
    struct turn_event tell; /* under way: then it is in no table */
    UT_hash_handle hh;
};

static void refused_add(struct logs *l, struct refused *r)
{
    struct refused *known = NULL;

    HASH_FIND_STR(l->refused, r->key, known);
    if (known) {
        known->bytes = r->bytes > UINT64_MAX - known->bytes ? UINT64_MAX : known->bytes + r->bytes;
        free(r);
        return;
    }
    HASH_ADD_STR(l->refused, key, r);
}

static void refuse(struct logs *l, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                   uint64_t bytes)
{
    static struct adv_ratelimit limit;
    struct refused *r;

    if (!bytes || !sched_job_id_valid(job_id)) /* no attempt has such an id */
        return;
    r = HASH_COUNT(l->refused) < REFUSED_MAX ? calloc(1, sizeof(*r)) : NULL;
    if (adv_log_ratelimit(&limit, 1))
        adv_error("logs", r ? "no room for a log: what it says is not known" :
                              "no room for a log, nor to note it: what it says is not known, and its attempt does not show it",
                  ADV_FS("cluster", cluster), ADV_FS("job", job_id), ADV_FU("streams", l->n_streams),
                  ADV_FU("lines_held_back", adv_ratelimit_take_suppressed(&limit)));
    if (!r)
        return;
    r->logs = l;
    (void) snprintf(r->cluster, sizeof(r->cluster), "%s", cluster);
    (void) snprintf(r->job_id, sizeof(r->job_id), "%s", job_id);
    (void) snprintf(r->key, sizeof(r->key), "%s/%s/%u/%lld", r->cluster, r->job_id, restart_count, (long long) submit_unix);
    r->restart_count = restart_count;
    r->submit_unix = submit_unix;
    r->bytes = bytes;
    r->since_mono_us = adv_mono_us();
    refused_add(l, r);
}

static void refused_told(struct turn_event *te, const struct adv_err *err)
{
    struct refused *r = ADV_CONTAINER_OF(te, struct refused, tell);

    /* no such attempt yet, or no store: told with the next tick */
    if (err && !r->logs->api->stopping && adv_mono_us() - r->since_mono_us < PARKED_US)
        refused_add(r->logs, r);
    else
        free(r);
}

static void tell_refused(struct logs *l)
{
    struct refused *r, *next;

    HASH_ITER(hh, l->refused, r, next) {
        HASH_DEL(l->refused, r);
        r->tell = (struct turn_event) { .done = refused_told };
        r->tell.ev.type = EV_LOG_SHED;
        r->tell.ev.cluster = r->cluster;
        r->tell.ev.principal = "watcher";
        r->tell.ev.u.shed.job_id = r->job_id;
        r->tell.ev.u.shed.restart_count = r->restart_count;
        r->tell.ev.u.shed.submit_unix = r->submit_unix;
        r->tell.ev.u.shed.bytes = r->bytes;
        turn_submit(l->api->turn, &r->tell);
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

/* Of the job; NULL for none, and for an attempt that is not known yet: the id may have meant another job. Comments may
 * change: each scan begins with what is known then. */
static const char *own_pattern(struct api *api, const struct log_stream *ls)
{
    const struct cluster *c = turn_ready(api->turn) ? fleet_find_cluster(turn_fleet(api->turn), ls->cluster->name) : NULL;
    const struct job *j = c ? fleet_find_job(c, ls->job_id) : NULL;
    const struct attempt *a = j ? job_attempt(j, ls->restart_count) : NULL;

    return a && attempt_meant(a, ls->submit_unix) ? j->progress : NULL;
}

void logs_chunk(struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                const char *stream, uint64_t offset, const void *bytes, size_t len, uint64_t dropped, int64_t observe_us)
{
    struct log_stream *ls = stream_get(api->logs, cluster, job_id, restart_count, submit_unix, stream);
    struct watcher_scan_options opt = { .stream = WATCHER_SCOPE_APPLICATION, .start_offset = offset, .fn = on_finding };
    static struct adv_ratelimit limit;
    struct adv_err err = { 0 };

    if (!ls) {
        refuse(api->logs, cluster, job_id, restart_count, submit_unix, dropped > UINT64_MAX - len ? UINT64_MAX : dropped + len);
        return;
    }
    ls->fed_mono_us = adv_mono_us();
    ls->finished = false;
    count_shed(ls, offset, len, dropped);
    opt.ctx = ls;
    opt.progress = own_pattern(api, ls);
    if ((!ls->scan && watcher_scan_new(api->rules, &opt, &ls->scan, &err) < 0) ||
        watcher_scan_feed(ls->scan, offset, bytes, len, dropped, observe_us, &err) < 0) {
        ls->shed = len > UINT64_MAX - ls->shed ? UINT64_MAX : ls->shed + len; /* no better than bytes that never came */
        if (adv_log_ratelimit(&limit, 1))
            adv_warn("logs", "a piece of a log was not scanned", ADV_FS("cluster", cluster), ADV_FS("stream", ls->key),
                     ADV_FS("why", err.msg), ADV_FU("lines_held_back", adv_ratelimit_take_suppressed(&limit)));
    }
}

bool logs_append(struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                 const char *stream, const void *bytes, size_t len, int64_t observe_us)
{
    struct log_stream *ls = stream_get(api->logs, cluster, job_id, restart_count, submit_unix, stream);

    if (!ls)
        return false;
    ls->outside = true;
    logs_chunk(api, cluster, job_id, restart_count, submit_unix, stream, ls->at, bytes, len, 0, observe_us);
    return true;
}

static const struct log_stream *stream_find(const struct logs *l, const char *cluster, const char *job_id, uint32_t restart_count,
                                            int64_t submit_unix, const char *stream)
{
    struct log_cluster *lc = NULL;
    struct log_stream *ls = NULL;
    char key[sizeof(ls->key)];

    (void) snprintf(key, sizeof(key), "%s/%u/%lld/%s", job_id, restart_count, (long long) submit_unix, stream);
    HASH_FIND_STR(l->clusters, cluster, lc);
    if (lc)
        HASH_FIND_STR(lc->streams, key, ls);
    return ls;
}

uint64_t logs_found(const struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                    const char *stream)
{
    const struct log_stream *ls = stream_find(api->logs, cluster, job_id, restart_count, submit_unix, stream);

    return ls ? ls->found : 0;
}

bool logs_settled(const struct api *api, const char *cluster, const char *job_id, uint32_t restart_count, int64_t submit_unix,
                  const char *stream, uint64_t found)
{
    const struct log_stream *ls = stream_find(api->logs, cluster, job_id, restart_count, submit_unix, stream);

    return !ls || ls->parked || !ls->pending || ls->over >= found;
}

static void stream_drop(struct logs *l, struct log_stream *ls)
{
    HASH_DEL(ls->cluster->streams, ls);
    l->n_streams--;
    ls->dead = true;
    if (!ls->refs)
        stream_free(ls);
}

void logs_set_rules(struct api *api)
{
    for (struct log_cluster *lc = api->logs->clusters; lc; lc = lc->hh.next)
        for (struct log_stream *ls = lc->streams; ls; ls = ls->hh.next)
            if (ls->scan)
                watcher_scan_set_rules(ls->scan, api->rules);
}

struct stream_event {
    struct turn_event te;
    char cluster[65];
};

static void stream_told(struct turn_event *te, const struct adv_err *err)
{
    (void) err; /* of a cluster that is another's by now */
    free(ADV_CONTAINER_OF(te, struct stream_event, te));
}

/* Without the stream nothing that a job does is heard, so its silence means nothing. */
static void tell_stream(struct api *api, const char *cluster, bool open)
{
    struct stream_event *se = api->stopping ? NULL : calloc(1, sizeof(*se));

    if (!se)
        return;
    (void) snprintf(se->cluster, sizeof(se->cluster), "%s", cluster);
    se->te.done = stream_told;
    se->te.ev.type = EV_LOG_STREAM;
    se->te.ev.cluster = se->cluster;
    se->te.ev.principal = "watcher";
    se->te.ev.u.log_stream.open = open;
    turn_submit(api->turn, &se->te);
}

void logs_closed(struct api *api, const char *cluster)
{
    tell_stream(api, cluster, false);
}

void logs_opened(struct api *api, const char *cluster)
{
    struct log_cluster *lc = cluster_get(api->logs, cluster, false);
    struct log_stream *ls;

    tell_stream(api, cluster, true);

    for (ls = lc ? lc->streams : NULL; ls; ls = ls->hh.next)
        ls->scan = watcher_scan_free(ls->scan);
}

struct ranks_event {
    struct turn_event te;
    struct log_stream *ls;
    char ranks[WATCHER_RANKS_SIZE];
};

static void ranks_told(struct turn_event *te, const struct adv_err *err)
{
    struct ranks_event *re = ADV_CONTAINER_OF(te, struct ranks_event, te);
    struct log_stream *ls = re->ls;

    (void) err; /* no such attempt any more */
    free(re);
    stream_unref(ls);
}

/* The log has fallen silent with some ranks behind the others. Of lines that somebody passes on that says nothing: what has
 * fallen behind may be who passes them. */
static void tell_ranks(struct api *api, struct log_stream *ls)
{
    char ranks[WATCHER_RANKS_SIZE];
    struct ranks_event *re;

    if (api->stopping || ls->outside || !watcher_scan_behind(ls->scan, ranks) || !(re = calloc(1, sizeof(*re))))
        return;
    (void) snprintf(re->ranks, sizeof(re->ranks), "%s", ranks);
    re->ls = ls;
    re->te.done = ranks_told;
    re->te.ev.type = EV_WITNESS;
    re->te.ev.cluster = ls->cluster->name;
    re->te.ev.principal = "watcher";
    re->te.ev.u.witness.job_id = ls->job_id;
    re->te.ev.u.witness.restart_count = ls->restart_count;
    re->te.ev.u.witness.submit_unix = ls->submit_unix;
    re->te.ev.u.witness.kind = WITNESS_RANKS_STOPPED;
    re->te.ev.u.witness.holds = true;
    re->te.ev.u.witness.source = "its log";
    re->te.ev.u.witness.detail = re->ranks;
    ls->refs++;
    turn_submit(api->turn, &re->te);
}

static void stream_tick(struct logs *l, struct log_stream *ls, int64_t now_us)
{
    int64_t silent_us = now_us - ls->fed_mono_us;

    tell_shed(ls);
    if (!ls->finished && silent_us > SILENT_FINISH_US) {
        ls->finished = true;
        if (ls->scan) {
            watcher_scan_finish(ls->scan, adv_wall_us());
            tell_ranks(l->api, ls);
        }
    } else if (silent_us > IDLE_FREE_US && turn_ready(l->api->turn)) {
        const struct cluster *c = fleet_find_cluster(turn_fleet(l->api->turn), ls->cluster->name);
        const struct job *j = c ? fleet_find_job(c, ls->job_id) : NULL;
        const struct attempt *a = j ? job_attempt(j, ls->restart_count) : NULL;
        if (!a || !attempt_meant(a, ls->submit_unix) || job_state_terminal(a->state))
            stream_drop(l, ls);
    }
}

void logs_tick(struct api *api)
{
    struct logs *l = api->logs;
    int64_t now_us = adv_mono_us();
    struct log_stream *ls, *next;

    if (l->parked && turn_ready(api->turn))
        try_parked(l); /* so that they run out of time even when nothing is committed */
    if (turn_ready(api->turn) && !api->stopping)
        tell_refused(l);
    for (struct log_cluster *lc = l->clusters; lc; lc = lc->hh.next)
        HASH_ITER(hh, lc->streams, ls, next)
            stream_tick(l, ls, now_us);
}

int logs_new(struct api *api)
{
    struct logs *l = calloc(1, sizeof(*l));

    if (!l)
        return -ADV_RESOURCE_EXHAUSTED;
    l->api = api;
    api->logs = l;
    (void) uv_idle_init(api->loop, &l->idle);
    l->idle.data = l;
    return 0;
}

static void closed_cb(uv_handle_t *h)
{
    free(h->data);
}

void logs_free(struct api *api)
{
    struct logs *l = api->logs;
    struct finding_event *fe, *fe_next;
    struct log_cluster *lc, *lc_next;
    struct log_stream *ls, *next;
    struct refused *r, *r_next;

    DL_FOREACH_SAFE (l->parked, fe, fe_next)
        finding_over(fe);
    l->parked = NULL;
    HASH_ITER(hh, l->refused, r, r_next) {
        HASH_DEL(l->refused, r);
        free(r);
    }
    HASH_ITER(hh, l->clusters, lc, lc_next) {
        HASH_ITER(hh, lc->streams, ls, next)
            stream_drop(l, ls);
        HASH_DEL(l->clusters, lc);
        free(lc);
    }
    (void) uv_idle_stop(&l->idle);
    uv_close((uv_handle_t *) &l->idle, closed_cb);
}
