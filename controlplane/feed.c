/* SPDX-License-Identifier: Apache-2.0 */
/* A *target* is one attempt that is asked about, a *reading* one question about it to one source: its log, the logs of its
 * nodes, one measurement. Readings wait in their source's queue by the time when they are due; a source answers a few at
 * one time, so a slow one delays its own readings and nothing else.
 *
 * A reading goes: asked (HTTP), parsed (a worker, since megabytes of JSON take longer than the loop may stand still),
 * fed (as work beside all other logs), due again. All that time it holds one of its source's places, which bounds memory to
 * places x answers.
 *
 * Targets are found by the change log, so the many jobs of the past cost nothing. Nothing here points into the fleet: what
 * is needed of an attempt is copied while memory equals the store.
 *
 * Failures: a source that gives no answer, or none that makes sense, is left alone for a while that grows, with jitter, or for as
 * long as it asks; then one reading tries. A question that it refuses (4xx) delays that reading alone. How far a log was
 * read is kept for each reading: when that stays behind, for whatever reason, the attempt's telemetry has a gap. */

#include "controlplane/feed.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"
#include "controlplane/api/otlp.h"
#include "controlplane/domain/nodefault.h"
#include "controlplane/domain/pulse.h"
#include "controlplane/sources/cursor.h"
#include "controlplane/sources/http.h"
#include "controlplane/sources/measure.h"
#include "controlplane/sources/query.h"
#include "controlplane/sources/telling.h"
#include "controlplane/watcher/report.h"

#define TICK_MS         250
#define LOOK_SHARE      20 /* of the time at most one part is spent on looking */
#define SCAN_US         (60 * 1000000LL) /* all jobs are looked through this often, whatever the change log says */
#define UNHEARD_US      (10 * 1000000LL) /* an agent that reads the log has said so by then */
#define END_SLACK_US    (60 * 1000000LL) /* lines of an ended attempt may be this much younger than its end */
#define ENDED_POLL_US   1000000LL
#define BACKOFF_MIN_MS  1000
#define BACKOFF_MAX_MS  60000
#define SECRETS_US      (30 * 1000000LL)
#define SECRET_MAX      8192
#define TARGETS_MAX     50000
#define PARSE_AT_ONCE   2 /* of libuv's workers, which the store needs, too */
#define LIMIT_MIN       10
#define US              1000LL /* nanoseconds */

enum what { JOB_LOG, NODE_LOG, MEASURE };

struct source {
    struct feed *f;
    const struct source_config *cfg;
    char label[SOURCE_NAME_MAX + 32]; /* "logs (victorialogs)" */
    struct reading *queue;            /* the soonest first */
    int64_t in_flight;
    unsigned fails;           /* in a row */
    int64_t not_before_us;    /* CLOCK_MONOTONIC */
    int64_t down_since_us;    /* wall clock: first of the failures in a row */
    int64_t down_mono_us;
    bool told_down;           /* logged */
    char why[160];            /* of the last failure */
    char down_why[160];       /* of the first in a row */
    char *secret;             /* NULL: none is needed, or none could be read */
    const char *secret_file;
};

struct target {
    char key[160]; /* "<cluster>/<job uid>/<index>" */
    struct feed *f;
    char cluster[65], job_uid[64], job_id[40], user[128], account[128], partition[128];
    uint32_t index;
    int64_t submit_unix, start_unix;
    int64_t end_us;   /* 0: it runs */
    int64_t until_us; /* nothing later is its own; 0: no end */
    int64_t found_mono_us;
    char *nodes;
    uint64_t last_step;
    bool running;   /* not suspended, not about to end */
    bool silent;    /* of this its witnesses are asked */
    bool by_agent;  /* the agent reads its log in full */
    bool unheard;   /* the agent has not said yet */
    bool seen;      /* scratch of look() */
    struct reading *readings;
    char told_gap[TELEMETRY_WHY_MAX], told_fed[SOURCE_NAME_MAX + 32];
    UT_hash_handle hh;
};

struct reading {
    struct source *src;
    struct target *t;
    enum what what;
    const struct source_measure *m; /* of MEASURE */
    int64_t due_us;                 /* CLOCK_MONOTONIC */
    bool queued, busy;
    struct http_request *req;
    struct parse *parse;
    unsigned refused;     /* by itself, in a row */
    char why[160];
    /* logs */
    struct cursor cursor;
    bool wanted;          /* as of the last look */
    int64_t read_until_us; /* wall clock */
    int64_t from_ns, to_ns, limit; /* of the question under way */
    bool no_room, fed;
    char gap[200];        /* "": none */
    struct source_answer answer; /* while it is fed */
    size_t next_line;
    bool more;
    struct log_work work;
    /* node logs */
    struct telling telling;
    /* measures */
    size_t most_series;
    bool holds;           /* the witness, as told last */
    struct measure_counter counter;
    struct reading *prev, *next;     /* source's queue */
    struct reading *t_prev, *t_next; /* target's list */
};

struct parse {
    uv_work_t work;
    struct feed *f;
    struct reading *r; /* NULL: it is gone */
    bool running;      /* by a worker; else it waits in the list */
    struct parse *prev, *next;
    enum source_kind kind;
    char *body;
    size_t len;
    char *field;
    struct source_answer answer;
    struct adv_err err;
    bool failed;
};

struct cluster_told {
    char name[65];
    bool told;
    char text[TELEMETRY_WHY_MAX];
    char refused[SOURCE_NAME_MAX + 256]; /* scratch of look(): a question that has no answer */
    UT_hash_handle hh;
};

struct feed {
    uv_loop_t *loop;
    struct turn *turn;
    struct api *api;
    struct sources_config *cfg;
    struct http *http;
    uv_timer_t tick;
    struct turn_observer observer;
    struct source sources[SOURCES_MAX];
    struct target *targets;
    struct cluster_told *clusters;
    struct parse *parses; /* waiting for a worker */
    unsigned n_parsing;
    bool reading_secrets;
    int64_t secrets_mono_us;
    uint64_t seen_seq;     /* newest change that was looked at */
    bool look_asked, scan, retell;
    int64_t scan_mono_us, look_mono_us, look_took_us;
    bool stopped, freed;
};

/* ---- events ------------------------------------------------------------------------------------------------------- */

/* An event with copies of the texts that it borrows. */
struct told {
    struct turn_event te;
    struct feed *f;
    char cluster[65], job_id[40], text[TELEMETRY_WHY_MAX], name[RESOURCE_NAME_MAX], by[SOURCE_NAME_MAX + 32], sha[ADV_SHA256_HEX_SIZE];
    char host[64], rule[65], fault_class[32];
    const char *hosts[1];
};

static void told_done(struct turn_event *te, const struct adv_err *err)
{
    struct told *n = ADV_CONTAINER_OF(te, struct told, te);

    if (err && err->code == ADV_UNAVAILABLE && !n->f->stopped)
        n->f->retell = true;
    free(n);
}

static struct told *event_new(struct feed *f, enum event_type type, const char *cluster, const char *by, const char *text)
{
    struct told *n = f->stopped ? NULL : calloc(1, sizeof(*n));

    if (!n)
        return NULL;
    n->f = f;
    n->te.done = told_done;
    n->te.ev.type = type;
    n->te.ev.principal = "sources";
    n->te.ev.cluster = n->cluster;
    (void) snprintf(n->cluster, sizeof(n->cluster), "%s", cluster);
    (void) snprintf(n->by, sizeof(n->by), "%s", by);
    (void) snprintf(n->text, sizeof(n->text), "%s", text);
    return n;
}

static struct told *event_of(const struct target *t, enum event_type type, const char *by, const char *text)
{
    struct told *n = event_new(t->f, type, t->cluster, by, text);

    if (n)
        (void) snprintf(n->job_id, sizeof(n->job_id), "%s", t->job_id);
    return n;
}

/* ---- queues ------------------------------------------------------------------------------------------------------- */

static void put_due(struct reading *r, int64_t due_us)
{
    struct reading *after;

    if (r->queued)
        DL_DELETE(r->src->queue, r);
    r->due_us = due_us;
    r->queued = true;
    for (after = r->src->queue ? r->src->queue->prev : NULL; after && after->due_us > due_us; after = after->prev)
        if (after == r->src->queue) {
            after = NULL;
            break;
        }
    if (after)
        DL_APPEND_ELEM(r->src->queue, after, r);
    else
        DL_PREPEND(r->src->queue, r);
}

static void reading_free(struct reading *r)
{
    if (r->queued)
        DL_DELETE(r->src->queue, r);
    cursor_done(&r->cursor);
    source_answer_done(&r->answer);
    free(r);
}

static void pump(struct source *s);

/* The answer is dealt with, or there was none; the next time is in @delay_us. */
static void reading_idle(struct reading *r, int64_t delay_us)
{
    struct source *s = r->src;

    r->busy = false;
    s->in_flight--;
    source_answer_done(&r->answer);
    put_due(r, adv_mono_us() + delay_us);
}

/* Between half and all of it. */
static int64_t jittered_us(int64_t ms)
{
    uint32_t x = 0;

    (void) getrandom(&x, sizeof(x), GRND_NONBLOCK);
    return ms * 500 + (int64_t) (ms * 500.0 * x / UINT32_MAX);
}

static int64_t backoff_ms(unsigned fails)
{
    int64_t ms = BACKOFF_MIN_MS;

    for (; fails > 1 && ms < BACKOFF_MAX_MS; fails--)
        ms *= 2;
    return ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
}

static int64_t interval_us(const struct reading *r)
{
    int64_t us = r->src->cfg->poll_ms * 1000;

    return r->t->end_us && us > ENDED_POLL_US ? ENDED_POLL_US : us;
}

/* ---- failures ----------------------------------------------------------------------------------------------------- */

static void set_why(char why[160], const char *text)
{
    (void) snprintf(why, 160, "%s", text);
}

static void witness_unknown(struct reading *r, const char *why);

/* The source as a whole does not answer. */
static void source_failed(struct reading *r, const char *why, int64_t retry_after_ms)
{
    struct source *s = r->src;
    int64_t now = adv_mono_us(), wait_us;

    s->fails++;
    set_why(s->why, why);
    if (s->fails == 1) {
        set_why(s->down_why, why);
        s->down_since_us = adv_wall_us();
        s->down_mono_us = now;
    }
    wait_us = jittered_us(backoff_ms(s->fails));
    if (retry_after_ms * 1000 > wait_us)
        wait_us = retry_after_ms * 1000 + jittered_us(500);
    if (now + wait_us > s->not_before_us)
        s->not_before_us = now + wait_us;
    if (!s->told_down) {
        s->told_down = true;
        adv_warn("sources", "a source does not answer: what it has is unknown, asked again", ADV_FS("source", s->label),
                 ADV_FS("why", why), ADV_FI("in_ms", wait_us / 1000));
    }
    set_why(r->why, why);
    witness_unknown(r, why);
    reading_idle(r, 0);
}

/* It answers, but not this question. */
static void reading_refused(struct reading *r, const char *why)
{
    static struct adv_ratelimit limit;

    if (r->refused++ == 0 && adv_log_ratelimit(&limit, 1))
        adv_warn("sources", "a question has no answer: asked again later", ADV_FS("source", r->src->label),
                 ADV_FS("cluster", r->t->cluster), ADV_FS("job", r->t->job_id), ADV_FS("why", why));
    set_why(r->why, why);
    witness_unknown(r, why);
    reading_idle(r, jittered_us(backoff_ms(r->refused + 1)));
}

static void source_answered(struct source *s)
{
    if (s->told_down)
        adv_info("sources", "the source answers again", ADV_FS("source", s->label),
                 ADV_FI("after_ms", (adv_mono_us() - s->down_mono_us) / 1000));
    s->told_down = false;
    s->fails = 0;
    s->not_before_us = 0;
}

/* ---- job logs ----------------------------------------------------------------------------------------------------- */

static void logs_done(struct reading *r)
{
    struct source_answer *a = &r->answer;

    r->fed = r->fed || a->n_lines > 0;
    if (!r->more)
        r->read_until_us = r->to_ns / US;
    else if (r->cursor.page_ns / US > r->read_until_us)
        r->read_until_us = r->cursor.page_ns / US;
    r->refused = 0;
    r->limit = r->limit * 2 < r->src->cfg->limit ? r->limit * 2 : r->src->cfg->limit;
    reading_idle(r, r->more ? 0 : interval_us(r));
}

static bool feed_job_line(struct reading *r, const struct source_line *l, const struct adv_buf *b)
{
    const struct target *t = r->t;

    return logs_append(r->src->f->api, t->cluster, t->job_id, t->index, t->submit_unix, source_kind_name(r->src->cfg->kind),
                       b->data, b->len, l->ts_ns / US);
}

/* ---- node logs: joined by host and time; what is found is evidence ----------------------------------------------- */

struct node_scan {
    struct reading *r;
    int64_t ts_us;
    const char *host;
};

_Static_assert(TELLING_OLD_US >= NODEFAULT_BEFORE_US, "what a decision looks at keeps its place");
_Static_assert(TELLING_AGAIN_US < NODEFAULT_SKEW_US, "what is not told again is within the slack by which decisions take times");
_Static_assert(TELLING_FAULTS_MAX > NODEFAULT_NODES_MAX, "that too many nodes have faults is told");

static void on_node_finding(void *ctx, const struct watcher_finding *found)
{
    struct node_scan *ns = ctx;
    struct reading *r = ns->r;
    const struct watcher_rule *rule = found->rule;
    bool fault = found->type == WATCHER_SIGNATURE;
    const char *fault_class = watcher_report_ends(found);
    bool counts = nodefault_class(fault_class);
    enum telling_how how;
    struct told *n;
    char text[200];

    if ((!fault && found->type != WATCHER_NOTICE) ||
        (how = telling_next(&r->telling, rule->id, ns->host, counts, ns->ts_us)) == TELL_NOT)
        return;
    if (how == TELL_MORE)
        (void) snprintf(text, sizeof(text), "the logs of its nodes have more faults of this time than are told");
    else
        (void) snprintf(text, sizeof(text), "the log of node %s has %s (rule %s%s%s)", ns->host, fault ? "a fault" : "a notice",
                        rule->id, fault ? ", class " : "", fault ? watcher_class_name(rule->fault_class) : "");
    if (!(n = event_of(r->t, EV_REPORT_EVIDENCE, r->src->label, text)))
        return;
    (void) snprintf(n->name, sizeof(n->name), "clusters/%s/jobs/%s/attempts/%u", r->t->cluster, r->t->job_uid, r->t->index);
    (void) snprintf(n->host, sizeof(n->host), "%s", ns->host);
    (void) adv_hex(found->sha256, sizeof(found->sha256), n->sha);
    n->hosts[0] = n->host;
    n->te.ev.u.evidence.attempt_name = n->name;
    n->te.ev.u.evidence.source = n->by;
    n->te.ev.u.evidence.origin = EVIDENCE_OF_SOURCE;
    n->te.ev.u.evidence.kind = how == TELL_MORE ? NODEFAULT_KIND_MORE : "node-log";
    n->te.ev.u.evidence.window_start_us = n->te.ev.u.evidence.window_end_us = n->te.ev.u.evidence.observe_us = ns->ts_us;
    n->te.ev.u.evidence.nodes = n->hosts;
    n->te.ev.u.evidence.n_nodes = how == TELL_MORE ? 0 : 1;
    n->te.ev.u.evidence.weight_percent = fault ? NODEFAULT_WEIGHT_MIN : 30;
    n->te.ev.u.evidence.summary = n->text;
    n->te.ev.u.evidence.excerpt_sha256 = n->sha;
    if (how == TELL) {
        (void) snprintf(n->rule, sizeof(n->rule), "%s", rule->id);
        (void) snprintf(n->fault_class, sizeof(n->fault_class), "%s", fault_class);
        n->te.ev.u.evidence.rule = n->rule;
        n->te.ev.u.evidence.fault_class = n->fault_class;
    }
    turn_submit(r->src->f->turn, &n->te);
}

/* The name of the attempt's node that is called @host for short; NULL: it has none. */
static const char *own_node(const struct adv_hostlist *nodes, const char *host)
{
    char name[64];

    for (size_t i = 0; *host && i < adv_hostlist_count(nodes); i++) {
        const char *n = adv_hostlist_nth(nodes, i);
        if (source_host(n, strlen(n), name) && adv_streq(name, host))
            return n;
    }
    return NULL;
}

static void feed_node_line(struct reading *r, const struct source_line *l, const struct adv_buf *b, const struct adv_hostlist *nodes)
{
    struct node_scan ns = { r, l->ts_ns / US, own_node(nodes, l->host) };
    struct watcher_scan_options opt = { .stream = WATCHER_SCOPE_NODE, .node = ns.host, .fn = on_node_finding, .ctx = &ns };
    struct watcher_scan *scan = NULL;

    /* a scan for each line: lines of many hosts are mixed, and none of them goes on in the next */
    if (!ns.host || watcher_scan_new(r->src->f->api->rules, &opt, &scan, NULL) < 0)
        return;
    if (watcher_scan_feed(scan, 0, b->data, b->len, 0, ns.ts_us, NULL) == 0)
        watcher_scan_finish(scan, ns.ts_us);
    (void) watcher_scan_free(scan);
}

/* ---- feeding ------------------------------------------------------------------------------------------------------ */

static bool feed_step(struct log_work *w)
{
    struct reading *r = ADV_CONTAINER_OF(w, struct reading, work);
    ADV_AUTO(adv_hostlist) nodes = NULL;
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 4 << 20);
    if (r->what == NODE_LOG && (!(nodes = adv_hostlist_new(ATTEMPT_MAX_NODES)) || nodes_add(nodes, str_or(r->t->nodes)) < 0))
        r->next_line = r->answer.n_lines;
    for (size_t done = 0; done < LOGS_SLICE_BYTES && r->next_line < r->answer.n_lines; r->next_line++) {
        const struct source_line *l = &r->answer.lines[r->next_line];
        adv_buf_reset(&b);
        otlp_put_lines(&b, l->text, l->len, r->what == JOB_LOG ? l->host : "");
        if (adv_buf_error(&b) < 0)
            r->no_room = true;
        else if (r->what == NODE_LOG)
            feed_node_line(r, l, &b, nodes);
        else if (b.len && !feed_job_line(r, l, &b))
            r->no_room = true;
        /* looking at a line is work, too; so are a scan of its own and the search for its node */
        done += b.len + (nodes ? 1024 + 16 * adv_hostlist_count(nodes) : 64);
    }
    if (r->next_line < r->answer.n_lines)
        return true;
    logs_done(r);
    return false;
}

/* ---- measurements ------------------------------------------------------------------------------------------------- */

static void tell_witness(struct reading *r, bool holds, const char *detail)
{
    struct told *n;

    if (!holds && !r->holds)
        return; /* nothing was said that this would take back */
    r->holds = holds;
    if (!(n = event_of(r->t, EV_WITNESS, r->src->label, detail)))
        return;
    n->te.ev.u.witness.job_id = n->job_id;
    n->te.ev.u.witness.restart_count = r->t->index;
    n->te.ev.u.witness.submit_unix = r->t->submit_unix;
    n->te.ev.u.witness.kind = r->m->is == MEASURE_DEVICE_IDLE ? WITNESS_DEVICE_IDLE : WITNESS_IO_STOPPED;
    n->te.ev.u.witness.holds = holds;
    n->te.ev.u.witness.source = n->by;
    n->te.ev.u.witness.detail = n->text;
    turn_submit(r->src->f->turn, &n->te);
}

/* What is not known is not idle. */
static void witness_unknown(struct reading *r, const char *why)
{
    if (r->what == MEASURE && measure_is_witness(r->m->is))
        tell_witness(r, false, why);
}

static void tell_sign(struct reading *r)
{
    bool is_step = r->m->is == MEASURE_STEPS && r->counter.value < 1e15 && (uint64_t) r->counter.value > r->t->last_step;
    struct told *n = event_of(r->t, EV_FINDING, r->src->label, "");

    if (!n)
        return;
    n->te.ev.u.finding.job_id = n->job_id;
    n->te.ev.u.finding.restart_count = r->t->index;
    n->te.ev.u.finding.submit_unix = r->t->submit_unix;
    n->te.ev.u.finding.kind = FINDING_PROGRESS;
    n->te.ev.u.finding.unit = is_step ? UNIT_STEP : UNIT_NONE; /* an older one than the log's only says that it moves */
    n->te.ev.u.finding.step = is_step ? (uint64_t) r->counter.value : 0;
    n->te.ev.u.finding.stream = source_kind_name(r->src->cfg->kind);
    n->te.ev.u.finding.observe_us = r->counter.ts_us;
    n->te.ev.u.finding.outside = true;
    turn_submit(r->src->f->turn, &n->te);
}

static void take_samples(struct reading *r)
{
    char detail[MEASURE_DETAIL_MAX];
    int64_t now_us = adv_wall_us();
    bool stale = false;

    r->refused = 0;
    if (measure_is_witness(r->m->is)) {
        enum idleness idle = measure_idle(r->m, &r->answer, str_or(r->t->nodes), now_us, &r->most_series, detail);
        set_why(r->why, idle == IDLE_UNKNOWN ? detail : "");
        tell_witness(r, idle == IDLE_YES, detail);
    } else {
        if (measure_rose(r->m, &r->answer, now_us, &r->counter, &stale))
            tell_sign(r);
        set_why(r->why, stale ? "no fresh sample" : "");
    }
    reading_idle(r, interval_us(r));
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

static void start_parses(struct feed *f);

static void parse_free(struct parse *p)
{
    source_answer_done(&p->answer);
    free(p->body);
    free(p->field);
    free(p);
}

static void on_parse(uv_work_t *w)
{
    struct parse *p = w->data;

    p->failed = source_parse(p->kind, p->body, p->len, p->field, &p->answer, &p->err) < 0;
}

static void maybe_free(struct feed *f)
{
    if (!f->freed || f->n_parsing || f->reading_secrets)
        return;
    for (size_t i = 0; i < f->cfg->n; i++)
        free(f->sources[i].secret);
    (void) sources_config_free(f->cfg);
    free(f);
}

static void take_answer(struct reading *r, struct parse *p)
{
    bool more = false;

    if (p->failed) { /* it has answered, but what is no answer */
        if (p->err.code == ADV_RESOURCE_EXHAUSTED)
            reading_refused(r, p->err.msg);
        else
            source_failed(r, p->err.msg, 0);
        return;
    }
    source_answered(r->src);
    set_why(r->why, "");
    r->answer = p->answer;
    p->answer = (struct source_answer) { 0 };
    if (r->what == MEASURE) {
        take_samples(r);
        return;
    }
    if (cursor_take(&r->cursor, &r->answer, r->from_ns, r->to_ns, r->limit, r->src->cfg->late_ms * 1000 * US, &more) < 0) {
        reading_refused(r, "no memory");
        return;
    }
    r->more = more;
    r->next_line = 0;
    r->work.step = feed_step;
    logs_work(r->src->f->api, &r->work);
}

static void on_parsed(uv_work_t *w, int status)
{
    struct parse *p = w->data;
    struct feed *f = p->f;
    struct reading *r = p->r;

    (void) status; /* never cancelled */
    f->n_parsing--;
    if (r) {
        struct source *s = r->src;
        r->parse = NULL;
        take_answer(r, p);
        pump(s);
    }
    parse_free(p);
    if (!f->stopped)
        start_parses(f);
    maybe_free(f);
}

static void start_parses(struct feed *f)
{
    struct parse *p;

    while ((p = f->parses) && f->n_parsing < PARSE_AT_ONCE) {
        DL_DELETE(f->parses, p);
        p->work.data = p;
        p->running = true;
        f->n_parsing++;
        (void) uv_queue_work(f->loop, &p->work, on_parse, on_parsed); /* fails only without a function */
    }
}

static void parse_start(struct reading *r, struct http_answer *a)
{
    struct feed *f = r->src->f;
    const struct source_config *cfg = r->src->cfg;
    struct parse *p = calloc(1, sizeof(*p));
    const char *field = r->what == JOB_LOG ? cfg->job_logs.host_field : r->what == NODE_LOG ? cfg->node_logs.host_field :
                                                                                              r->m->node_label;

    if (!p || (field && !(p->field = strdup(field)))) {
        free(p);
        reading_refused(r, "no memory");
        return;
    }
    p->f = f;
    p->r = r;
    p->kind = cfg->kind;
    p->body = ADV_STEAL(a->body);
    p->len = a->len;
    source_answer_init(&p->answer, (size_t) cfg->max_bytes * 4 + (64 << 10));
    r->parse = p;
    DL_APPEND(f->parses, p);
    start_parses(f);
}

static void too_large(struct reading *r, const char *why)
{
    if (r->what == MEASURE || r->limit <= LIMIT_MIN) {
        reading_refused(r, why);
        return;
    }
    set_why(r->why, why);
    r->limit = r->limit / 4 > LIMIT_MIN ? r->limit / 4 : LIMIT_MIN;
    reading_idle(r, 0);
}

static void on_answer(void *arg, struct http_answer *a)
{
    struct reading *r = arg;
    struct source *s = r->src;
    char text[160], body[100];

    r->req = NULL;
    if (a->too_large) {
        too_large(r, a->why);
    } else if (a->status == 0) {
        source_failed(r, a->why, 0);
    } else if (a->status == 200) {
        parse_start(r, a);
    } else {
        source_error_text(a->body, a->len, body, sizeof(body));
        (void) snprintf(text, sizeof(text), "HTTP %d%s%s", a->status, *body ? ": " : "", body);
        if (a->status == 429 || a->status == 408 || a->status == 401 || a->status == 403 || a->status / 100 != 4)
            source_failed(r, text, a->retry_after_ms);
        else
            reading_refused(r, text);
    }
    pump(s);
}

/* ---- questions ---------------------------------------------------------------------------------------------------- */

/* False: there is nothing to ask now. */
static bool is_due(const struct reading *r)
{
    const struct target *t = r->t;

    if (r->what != MEASURE)
        return r->wanted;
    return t->running && (!measure_is_witness(r->m->is) || t->silent);
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Path and form. False: it was dealt with. */
static bool make_question(struct reading *r, struct adv_buf *path, struct adv_buf *form)
{
    const struct source_config *cfg = r->src->cfg;
    const struct target *t = r->t;
    const char *template = r->what == JOB_LOG ? cfg->job_logs.query : r->what == NODE_LOG ? cfg->node_logs.query : r->m->query;
    const struct query_vars vars = { t->cluster, t->job_id, t->index, t->user, t->account, t->partition, str_or(t->nodes) };
    int64_t now_us = adv_wall_us();
    struct adv_err err = { 0 };
    ADV_AUTO_DONE(adv_buf) q;

    adv_buf_init(&q, QUERY_MAX);
    if (query_expand(template, &vars, &q, &err) < 0) {
        reading_refused(r, err.msg);
        return false;
    }
    if (r->what == MEASURE) {
        source_ask_samples(q.data, r->m->window_ms + r->m->max_age_ms, now_us, path, form);
    } else {
        r->to_ns = (t->until_us ? min64(now_us, t->until_us) : now_us) * US;
        r->from_ns = cursor_start(&r->cursor, now_us * US, cfg->late_ms * 1000 * US, cfg->backlog_ms * 1000 * US);
        if (r->from_ns >= r->to_ns) { /* read to its end, or its clock is ahead of ours */
            r->read_until_us = r->to_ns / US;
            reading_idle(r, interval_us(r));
            return false;
        }
        source_ask_lines(cfg->kind, q.data, r->from_ns, r->to_ns, r->limit,
                         r->what == JOB_LOG ? cfg->job_logs.host_field : cfg->node_logs.host_field, path, form);
    }
    if (adv_buf_error(path) < 0 || adv_buf_error(form) < 0) {
        reading_refused(r, "its query is too long");
        return false;
    }
    return true;
}

static void ask(struct reading *r)
{
    struct source *s = r->src;
    const struct source_config *cfg = s->cfg;
    char tenant[160], project[64];
    const char *headers[3] = { NULL, NULL, NULL };
    struct http_ask q = { .headers = headers, .ca = cfg->ca, .user = cfg->user, .secret = s->secret,
                          .timeout_ms = cfg->timeout_ms, .max_bytes = (size_t) cfg->max_bytes };
    ADV_AUTO_DONE(adv_buf) path;
    ADV_AUTO_DONE(adv_buf) form;
    struct adv_err err = { 0 };

    adv_buf_init(&path, 4096);
    adv_buf_init(&form, 4 * QUERY_MAX);
    r->busy = true;
    s->in_flight++;
    (void) adv_buf_append_str(&path, cfg->url);
    if (s->secret_file && !s->secret) {
        (void) snprintf(tenant, sizeof(tenant), "%.120s cannot be read", s->secret_file);
        source_failed(r, tenant, 0);
        return;
    }
    if (!make_question(r, &path, &form))
        return;
    if (cfg->tenant && cfg->kind == SOURCE_VICTORIALOGS) {
        int n = (int) strcspn(cfg->tenant, ":");
        (void) snprintf(tenant, sizeof(tenant), "AccountID: %.*s", n, cfg->tenant);
        (void) snprintf(project, sizeof(project), "ProjectID: %s", cfg->tenant[n] ? cfg->tenant + n + 1 : "0");
        headers[1] = project;
    } else if (cfg->tenant) {
        (void) snprintf(tenant, sizeof(tenant), "X-Scope-OrgID: %.128s", cfg->tenant);
    }
    headers[0] = cfg->tenant ? tenant : NULL;
    q.url = path.data;
    q.form = form.data;
    if (http_start(s->f->http, &q, on_answer, r, &r->req, &err) < 0)
        reading_refused(r, err.msg);
}

static void pump(struct source *s)
{
    int64_t now_us = adv_mono_us();
    struct reading *r;

    while (!s->f->stopped && now_us >= s->not_before_us && s->in_flight < (s->fails ? 1 : s->cfg->in_flight) && (r = s->queue) &&
           r->due_us <= now_us) {
        DL_DELETE(s->queue, r);
        r->queued = false;
        if (is_due(r)) {
            ask(r);
        } else {
            witness_unknown(r, "not asked for any more");
            put_due(r, now_us + interval_us(r));
        }
    }
}

/* ---- targets ------------------------------------------------------------------------------------------------------ */

static void reading_add(struct target *t, struct source *s, enum what what, const struct source_measure *m)
{
    struct reading *r = calloc(1, sizeof(*r));
    int64_t now_us = adv_wall_us(), begin_us;

    if (!r)
        return; /* asked for again with the next scan */
    r->src = s;
    r->t = t;
    r->what = what;
    r->m = m;
    r->limit = s->cfg->limit;
    r->read_until_us = now_us;
    /* of a log that is long already its newest part is what counts */
    begin_us = now_us - s->cfg->backlog_ms * 1000 > t->start_unix * 1000000 ? now_us - s->cfg->backlog_ms * 1000 :
                                                                              t->start_unix * 1000000;
    cursor_init(&r->cursor, begin_us * US, now_us * US);
    DL_APPEND2(t->readings, r, t_prev, t_next);
    put_due(r, adv_mono_us());
}

static void target_free(struct target *t)
{
    struct reading *r, *next;

    DL_FOREACH_SAFE2 (t->readings, r, next, t_next) {
        DL_DELETE2(t->readings, r, t_prev, t_next);
        r->req = http_cancel(r->req);
        if (r->parse) {
            r->parse->r = NULL; /* its worker comes back alone */
            if (!r->parse->running) {
                DL_DELETE(r->src->f->parses, r->parse);
                parse_free(r->parse);
            }
        }
        if (r->work.queued)
            logs_work_cancel(r->src->f->api, &r->work);
        r->src->in_flight -= r->busy;
        reading_free(r);
    }
    HASH_DEL(t->f->targets, t);
    free(t->nodes);
    free(t);
}

static void copy(char *to, size_t cap, const char *from)
{
    (void) snprintf(to, cap, "%s", str_or(from));
}

static bool silent(const struct attempt *a)
{
    const struct anomaly *an;

    DL_FOREACH (a->anomalies, an)
        if (an->kind == ANOMALY_HANG && anomaly_of_rhythm(an) && (an->status == ANOMALY_SUSPICION || an->status == ANOMALY_CONFIRMED))
            return true;
    return false;
}

static void target_set(struct target *t, const struct job *j, const struct attempt *a)
{
    const struct attempt *after = a->index - j->first_index + 1 < j->n_attempts ? j->attempts[a->index - j->first_index + 1] : NULL;
    bool ended = job_state_terminal(a->state);
    int64_t end_us = ended ? (a->end_unix ? a->end_unix * 1000000 + 999999 : a->ms.end_observed_us) : 0;
    struct reading *r;

    copy(t->job_id, sizeof(t->job_id), j->job_id);
    copy(t->user, sizeof(t->user), j->user);
    copy(t->account, sizeof(t->account), j->account);
    copy(t->partition, sizeof(t->partition), j->partition);
    if (!adv_streq(str_or(t->nodes), str_or(a->nodes))) {
        free(t->nodes);
        t->nodes = a->nodes ? strdup(a->nodes) : NULL;
    }
    t->submit_unix = a->submit_unix;
    t->last_step = a->last_step;
    t->running = a->state == JOB_RUNNING;
    t->silent = t->running && silent(a);
    t->by_agent = a->telemetry == TELEMETRY_COMPLETE;
    t->unheard = a->telemetry == TELEMETRY_UNSET && !ended && adv_mono_us() - t->found_mono_us < UNHEARD_US;
    if (end_us && !t->end_us)
        DL_FOREACH2 (t->readings, r, t_next)
            if (r->what != MEASURE && r->queued)
                put_due(r, 0); /* what it said last is what counts */
    t->end_us = end_us;
    t->until_us = end_us ? end_us + END_SLACK_US : 0;
    if (after && after->start_unix && (!t->until_us || after->start_unix * 1000000 < t->until_us))
        t->until_us = after->start_unix * 1000000;
    DL_FOREACH2 (t->readings, r, t_next) {
        bool wanted = r->what == NODE_LOG || r->src->cfg->job_logs.all || (!t->by_agent && !t->unheard);
        if (wanted && !r->wanted)
            r->read_until_us = adv_wall_us();
        r->wanted = wanted;
    }
}

/* It runs, or ended a moment ago. */
static bool of_interest(const struct attempt *a, int64_t keep_us, int64_t now_us)
{
    if (a->unseen || !a->start_unix)
        return false;
    if (!job_state_terminal(a->state))
        return job_state_running(a->state) || a->state == JOB_COMPLETING;
    return (a->ms.end_observed_us ? a->ms.end_observed_us : a->end_unix * 1000000) > now_us - keep_us;
}

static struct source *serving(struct feed *f, const char *cluster, int64_t *ret_keep_us)
{
    struct source *any = NULL;

    *ret_keep_us = 0;
    for (size_t i = 0; i < f->cfg->n; i++) {
        if (!source_serves(f->sources[i].cfg, cluster))
            continue;
        any = &f->sources[i];
        if (any->cfg->after_end_ms * 1000 > *ret_keep_us)
            *ret_keep_us = any->cfg->after_end_ms * 1000;
    }
    return any;
}

static void target_look(struct feed *f, const struct cluster *c, const struct job *j, const struct attempt *a)
{
    char key[sizeof(((struct target *) NULL)->key)];
    bool logs = turn_fleet(f->turn)->cfg.log_detection;
    struct target *t = NULL;

    (void) snprintf(key, sizeof(key), "%s/%s/%u", c->name, j->uid, a->index);
    HASH_FIND_STR(f->targets, key, t);
    if (!t) {
        if (HASH_COUNT(f->targets) >= TARGETS_MAX || !(t = calloc(1, sizeof(*t))))
            return;
        (void) strcpy(t->key, key);
        t->f = f;
        copy(t->cluster, sizeof(t->cluster), c->name);
        copy(t->job_uid, sizeof(t->job_uid), j->uid);
        t->index = a->index;
        t->start_unix = a->start_unix;
        t->found_mono_us = adv_mono_us();
        copy(t->told_gap, sizeof(t->told_gap), a->source_gap);
        copy(t->told_fed, sizeof(t->told_fed), a->source_fed);
        HASH_ADD_STR(f->targets, key, t);
        for (size_t i = 0; i < f->cfg->n; i++) {
            struct source *s = &f->sources[i];
            if (!source_serves(s->cfg, c->name))
                continue;
            if (s->cfg->job_logs.query && logs)
                reading_add(t, s, JOB_LOG, NULL);
            if (s->cfg->node_logs.query && logs)
                reading_add(t, s, NODE_LOG, NULL);
            for (size_t k = 0; k < s->cfg->n_measures; k++)
                reading_add(t, s, MEASURE, &s->cfg->measures[k]);
        }
    }
    t->seen = true;
    target_set(t, j, a);
}

/* Of a source that is asked no more: a stored gap would stand for ever. */
static void clear_gap(struct feed *f, const struct cluster *c, const struct job *j, const struct attempt *a)
{
    struct told *n = event_new(f, EV_SOURCE, c->name, "", "");

    if (!n)
        return;
    copy(n->job_id, sizeof(n->job_id), j->job_id);
    n->te.ev.u.source.job_id = n->job_id;
    n->te.ev.u.source.restart_count = a->index;
    n->te.ev.u.source.submit_unix = a->submit_unix;
    turn_submit(f->turn, &n->te);
}

static void job_look(struct feed *f, const struct cluster *c, const struct job *j, int64_t now_us)
{
    const struct attempt *last = j->n_attempts ? j->attempts[j->n_attempts - 1] : NULL;
    int64_t keep_us;

    if (!c->owned)
        return;
    if (j->opt_mode == MODE_OFF || !serving(f, c->name, &keep_us)) {
        if (last && last->source_gap && job_state_running(last->state))
            clear_gap(f, c, j, last);
        return;
    }
    for (uint32_t i = j->n_attempts; i > 0 && of_interest(j->attempts[i - 1], keep_us, now_us); i--)
        target_look(f, c, j, j->attempts[i - 1]);
}

/* ---- what is told of gaps ------------------------------------------------------------------------------------------ */

/* Sets r->gap: why what the source has of the log is not known. */
static void judge_gap(struct reading *r, int64_t now_us)
{
    const struct target *t = r->t;
    int64_t upto_us = t->end_us && t->end_us < now_us ? t->end_us : now_us;
    const char *why = r->src->fails ? r->src->why : *r->why ? r->why : "its answers come late";
    char since[ADV_RFC3339_SIZE];

    if (!r->wanted) {
        r->gap[0] = '\0';
    } else if (r->read_until_us < upto_us && now_us - r->read_until_us > r->src->cfg->unknown_after_ms * 1000) {
        if (r->gap[0])
            return; /* the same one: a text that changed with each attempt would tell nothing new */
        (void) adv_rfc3339_format(r->read_until_us, since);
        (void) snprintf(r->gap, sizeof(r->gap), "%s: not read since %.19sZ: %.90s", r->src->label, since, why);
    } else if (r->cursor.lost || r->no_room) {
        (void) snprintf(r->gap, sizeof(r->gap), "%s: lines were left out, there were more than can be read", r->src->label);
    } else {
        r->gap[0] = '\0';
    }
}

static struct cluster_told *cluster_get(struct feed *f, const char *name)
{
    struct cluster_told *ct = NULL;

    HASH_FIND_STR(f->clusters, name, ct);
    if (!ct && (ct = calloc(1, sizeof(*ct)))) {
        copy(ct->name, sizeof(ct->name), name);
        HASH_ADD_STR(f->clusters, name, ct);
    }
    return ct;
}

static void target_tell(struct target *t, int64_t now_us)
{
    const char *gap = "", *fed = t->told_fed;
    struct reading *r;
    struct told *n;

    DL_FOREACH2 (t->readings, r, t_next) {
        struct cluster_told *ct = r->refused > 2 ? cluster_get(t->f, t->cluster) : NULL;
        if (ct && !*ct->refused)
            (void) snprintf(ct->refused, sizeof(ct->refused), "%s: some questions have no answer: %.120s", r->src->label, r->why);
        if (r->what != JOB_LOG)
            continue;
        judge_gap(r, now_us);
        if (!*gap)
            gap = r->gap;
        if (!*fed && r->fed)
            fed = r->src->label;
    }
    if (adv_streq(gap, t->told_gap) && adv_streq(fed, t->told_fed))
        return;
    if (!(n = event_of(t, EV_SOURCE, fed, gap)))
        return;
    copy(t->told_gap, sizeof(t->told_gap), gap);
    copy(t->told_fed, sizeof(t->told_fed), fed);
    n->te.ev.u.source.job_id = n->job_id;
    n->te.ev.u.source.restart_count = t->index;
    n->te.ev.u.source.submit_unix = t->submit_unix;
    n->te.ev.u.source.fed = *n->by ? n->by : NULL;
    n->te.ev.u.source.gap = *n->text ? n->text : NULL;
    turn_submit(t->f->turn, &n->te);
}

/* Which sources do not answer, and what the others refuse. */
static void clusters_tell(struct feed *f)
{
    struct cluster_told *ct;
    char since[ADV_RFC3339_SIZE];
    int64_t keep_us, now_us = adv_mono_us();

    for (const struct cluster *c = turn_fleet(f->turn)->clusters; c; c = c->hh.next) {
        ADV_AUTO_DONE(adv_buf) b;
        struct told *n;

        adv_buf_init(&b, TELEMETRY_WHY_MAX - 1);
        if (!c->owned || (!serving(f, c->name, &keep_us) && !c->sources_unknown) || !(ct = cluster_get(f, c->name)))
            continue;
        for (size_t i = 0; i < f->cfg->n; i++) {
            const struct source *s = &f->sources[i];
            if (!source_serves(s->cfg, c->name) || !s->fails || now_us - s->down_mono_us <= s->cfg->unknown_after_ms * 1000)
                continue;
            (void) adv_rfc3339_format(s->down_since_us, since);
            (void) adv_buf_appendf(&b, "%s%s: no answer since %.19sZ: %.120s", b.len ? "; " : "", s->label, since, s->down_why);
        }
        if (*ct->refused)
            (void) adv_buf_appendf(&b, "%s%s", b.len ? "; " : "", ct->refused);
        ct->refused[0] = '\0';
        if (adv_streq(ct->told ? ct->text : str_or(c->sources_unknown), b.data) ||
            !(n = event_new(f, EV_SOURCES, c->name, "", b.data)))
            continue;
        ct->told = true;
        copy(ct->text, sizeof(ct->text), b.data);
        n->te.ev.u.sources.unknown = *n->text ? n->text : NULL;
        turn_submit(f->turn, &n->te);
    }
}

static void forget_told(struct feed *f)
{
    struct cluster_told *ct, *ct_next;

    for (struct target *t = f->targets; t; t = t->hh.next)
        t->told_gap[0] = '\1'; /* as nothing that is ever told */
    HASH_ITER(hh, f->clusters, ct, ct_next) {
        HASH_DEL(f->clusters, ct);
        free(ct);
    }
}

/* ---- looking ------------------------------------------------------------------------------------------------------- */

/* Jobs of which something changed; all of them where that is not known. */
static void look_at_jobs(struct feed *f, int64_t now_us)
{
    const struct watchlog *log = turn_watchlog(f->turn);
    const struct change *ch;
    char uid[64], last[64] = "";
    const char *rest;
    uint32_t index;
    uint64_t seq = f->seen_seq;
    bool gone = false;

    f->seen_seq = log->last;
    for (; !f->scan && (ch = watchlog_after(log, seq, &gone)); seq = ch->seq) {
        const struct cluster *c;
        const struct job *j;

        if ((ch->kind != RESOURCE_ATTEMPT && ch->kind != RESOURCE_JOB && ch->kind != RESOURCE_ANOMALY) ||
            !resource_key_parse(ch->key, uid, &index, &rest) || adv_streq(uid, last))
            continue;
        (void) strcpy(last, uid);
        c = fleet_find_cluster(turn_fleet(f->turn), ch->cluster);
        j = c ? fleet_find_job_uid(c, uid) : NULL;
        if (j)
            job_look(f, c, j, now_us);
    }
    if (!f->scan && !gone)
        return;
    f->scan = false;
    f->scan_mono_us = adv_mono_us();
    for (const struct cluster *c = turn_fleet(f->turn)->clusters; c; c = c->hh.next)
        for (const struct job *j = c->jobs_by_id; j; j = j->hh_id.next)
            job_look(f, c, j, now_us);
}

/* What became of those that are known. */
static void look_at_targets(struct feed *f, int64_t now_us)
{
    struct target *t, *next;

    HASH_ITER(hh, f->targets, t, next) {
        const struct cluster *c = fleet_find_cluster(turn_fleet(f->turn), t->cluster);
        const struct job *j = c ? fleet_find_job_uid(c, t->job_uid) : NULL;

        t->seen = false;
        if (j)
            job_look(f, c, j, now_us);
        if (!t->seen)
            target_free(t);
        else
            target_tell(t, now_us);
    }
}

static void look(void *arg, const struct adv_err *err)
{
    struct feed *f = arg;
    int64_t now_us = adv_wall_us(), began_us = adv_mono_us();

    f->look_asked = false;
    if (err || f->stopped)
        return;
    if (f->retell)
        forget_told(f);
    f->retell = false;
    look_at_jobs(f, now_us);
    look_at_targets(f, now_us);
    clusters_tell(f);
    f->look_mono_us = adv_mono_us();
    f->look_took_us = f->look_mono_us - began_us;
}

static void on_changed(struct turn_observer *o)
{
    (void) o; /* the next tick looks */
}

/* What was found may not have been stored: everything is read again, from a while ago. */
static void on_reset(struct turn_observer *o)
{
    struct feed *f = ADV_CONTAINER_OF(o, struct feed, observer);
    struct target *t, *next;

    HASH_ITER(hh, f->targets, t, next)
        target_free(t);
    f->scan = f->retell = true;
}

/* ---- secrets ------------------------------------------------------------------------------------------------------- */

struct secrets {
    uv_work_t work;
    struct feed *f;
    size_t n;
    const char *path[SOURCES_MAX];
    char *text[SOURCES_MAX];
};

static char *read_secret(const char *path)
{
    adv_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char text[SECRET_MAX];
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

    if (n <= 0)
        return NULL;
    text[n] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    return *text ? strdup(text) : NULL;
}

static void on_secrets(uv_work_t *w)
{
    struct secrets *x = w->data;

    for (size_t i = 0; i < x->n; i++)
        if (x->path[i])
            x->text[i] = read_secret(x->path[i]);
}

static void on_secrets_read(uv_work_t *w, int status)
{
    struct secrets *x = w->data;
    struct feed *f = x->f;

    (void) status;
    f->reading_secrets = false;
    for (size_t i = 0; i < x->n; i++) {
        free(f->sources[i].secret);
        f->sources[i].secret = x->text[i];
    }
    free(x);
    maybe_free(f);
}

static void read_secrets(struct feed *f)
{
    struct secrets *x;
    bool any = false;

    f->secrets_mono_us = adv_mono_us();
    for (size_t i = 0; i < f->cfg->n; i++)
        any |= f->sources[i].secret_file != NULL;
    if (!any || f->reading_secrets || !(x = calloc(1, sizeof(*x))))
        return;
    x->f = f;
    x->n = f->cfg->n;
    for (size_t i = 0; i < x->n; i++)
        x->path[i] = f->sources[i].secret_file;
    x->work.data = x;
    f->reading_secrets = true;
    (void) uv_queue_work(f->loop, &x->work, on_secrets, on_secrets_read);
}

/* ---- life ---------------------------------------------------------------------------------------------------------- */

static void on_tick(uv_timer_t *h)
{
    struct feed *f = h->data;
    int64_t now_us = adv_mono_us();

    if (now_us - f->secrets_mono_us > SECRETS_US)
        read_secrets(f);
    if (f->cfg->n && now_us - f->scan_mono_us > SCAN_US)
        f->scan = true;
    if (!f->look_asked && turn_ready(f->turn) && now_us - f->look_mono_us > LOOK_SHARE * f->look_took_us) {
        f->look_asked = true;
        turn_read(f->turn, look, f);
    }
    for (size_t i = 0; i < f->cfg->n; i++)
        pump(&f->sources[i]);
}

int feed_new(uv_loop_t *loop, struct turn *turn, struct api *api, const char *path, struct feed **ret, struct adv_err *err)
{
    struct feed *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    /* without sources there are at most old gaps to close */
    r = *path ? sources_config_load(path, &f->cfg, err) :
        (f->cfg = calloc(1, sizeof(*f->cfg))) ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    if (r < 0 || (r = http_new(loop, &f->http, err)) < 0) {
        (void) sources_config_free(f->cfg);
        free(f);
        return r;
    }
    f->loop = loop;
    f->turn = turn;
    f->api = api;
    f->scan = true;
    f->scan_mono_us = adv_mono_us();
    for (size_t i = 0; i < f->cfg->n; i++) {
        struct source *s = &f->sources[i];
        s->f = f;
        s->cfg = &f->cfg->sources[i];
        s->secret_file = s->cfg->token_file ? s->cfg->token_file : s->cfg->password_file;
        s->secret = s->secret_file ? read_secret(s->secret_file) : NULL;
        (void) snprintf(s->label, sizeof(s->label), "%s (%s)", s->cfg->name, source_kind_name(s->cfg->kind));
    }
    f->secrets_mono_us = adv_mono_us();
    f->observer = (struct turn_observer) { .changed = on_changed, .reset = on_reset };
    turn_observe(turn, &f->observer);
    (void) uv_timer_init(loop, &f->tick);
    f->tick.data = f;
    (void) uv_timer_start(&f->tick, on_tick, TICK_MS, TICK_MS);
    *ret = f;
    return 0;
}

void feed_stop(struct feed *f)
{
    struct target *t, *next;

    if (!f || f->stopped)
        return;
    f->stopped = true;
    (void) uv_timer_stop(&f->tick);
    turn_unobserve(f->turn, &f->observer);
    HASH_ITER(hh, f->targets, t, next)
        target_free(t);
}

static void tick_closed(uv_handle_t *h)
{
    struct feed *f = h->data;

    f->freed = true;
    maybe_free(f);
}

struct feed *feed_free(struct feed *f)
{
    struct cluster_told *ct, *next;

    if (!f)
        return NULL;
    feed_stop(f);
    HASH_ITER(hh, f->clusters, ct, next) {
        HASH_DEL(f->clusters, ct);
        free(ct);
    }
    f->http = http_free(f->http);
    uv_close((uv_handle_t *) &f->tick, tick_closed);
    return NULL;
}
