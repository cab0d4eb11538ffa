/* SPDX-License-Identifier: Apache-2.0 */

/* Which files are followed: standard output and error of each running attempt whose paths are known,
 * until LINGER_US after its end, or longer while they wait here, so that the last lines come along, but
 * never beyond the moment at which a successor may begin to write: a job that appends would have its
 * next attempt's lines read as this one's.
 *
 * What is remembered of an attempt is found by the job's id, and believed only while the submit time is
 * the attempt's: an id may come again with another job, whose log is followed from its own beginning.
 *
 * Where an attempt's bytes begin: those of attempt 0 at 0, if the file is its own: its path has the
 * job's id in it, or it was born with the attempt. Any other may hold earlier jobs' lines, which no
 * later look can tell from this job's; it is read from its end, and the log counts as partial.
 * A later attempt begins at 0 too, if the scheduler truncates; but a job may ask to append, and the
 * scheduler does not say so. What can be told apart is told apart: the file is followed for the old
 * attempt until the held successor is released, so its size then is known, and the helper goes back to
 * 0 when it finds the file shorter. If nobody followed it, we start at its end and the log counts as
 * partial.
 *
 * Log bytes are not acknowledged one by one. A control plane that dies may have taken bytes and stored
 * nothing of what they said; so each new log stream begins with what was sent in the last SAFE_US or
 * more before its last sign of life, at the start of a line. What is read twice changes nothing there.
 * Sent is what does not wait in our queue: while that stands still, the other side does not read, and
 * what it has not scanned yet may be anything that left last. Nor is anything safe that comes after bytes
 * which were left out, before that was told: nobody would ever hear of them.
 * For the same reason the time after an attempt's end counts by signs of life. */

#include "advisor-agent/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor-agent/tail/frame.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"

/* What is written last waits for as long before it is told to wait, and is seen and told at a tick each. */
#define LINGER_US   ((TAIL_BEHIND_MS + 2 * TAIL_TICK_MS) * 1000ll)
#define LINGER_MAX_US 60000000 /* where the last lines wait for a control plane that does not read them yet */
#define ENDED_S     60 /* an attempt first seen so soon after its end is read as well */
#define REMEMBER_US 3600000000ll /* positions of ended attempts */

#define SAFE_US     10000000
#define BORN_SLACK_S 2 /* two clocks, and a file may be made before the start is written down */
#define TELL_US     1000000 /* a count that only rises is told this often at most */

_Static_assert(LINGER_US > (TAIL_BEHIND_MS + TAIL_TICK_MS) * 1000ll && LINGER_US < LINGER_MAX_US,
               "lines that wait for credit would be taken for read");

struct mark {
    uint64_t offset;
    uint64_t taken;  /* bytes that the session had taken then, of all logs */
    int64_t left_us; /* when they had all left, and nothing stood still since; 0: not yet */
};

struct stream {
    struct attempt_log *log;
    struct tail_watch *watch;
    const char *name;
    uint64_t resume_at; /* after the end */
    bool rest;          /* and there were unread bytes */
    uint64_t line_at;   /* start of the line that is not complete yet */
    uint64_t taken;     /* by the session, of all logs, when the last of these were handed over */
    uint64_t high;      /* most that was handed over; after a rewind more than the watch's position */
    struct mark safe, next; /* surely taken; becomes the next safe one */
    bool begun;
    enum tail_state state;
    char reason[128];
    uint64_t dropped;
};

struct attempt_log {
    char job[JOURNAL_JOB_SIZE]; /* key: the newest attempt of a job */
    uint32_t restarts;
    int64_t submit_s;   /* of this attempt: an id may come again, also with as many restarts */
    int64_t first_submit_s; /* of its job; 0: not confirmed */
    struct agent *a;
    struct stream streams[2];
    int64_t end_us; /* 0: runs */
    int64_t opened_us; /* the log stream, last */
    advisor_v1_TelemetryState told;
    char told_reason[128];
    uint64_t told_dropped;
    int64_t told_us;
    bool untold; /* the count has risen since */
    UT_hash_handle hh;
};

static advisor_v1_AttemptRef attempt_ref(const struct attempt_log *l)
{
    advisor_v1_AttemptRef r = { .restart_count = l->restarts, .submit_unix = l->submit_s };

    (void) snprintf(r.cluster, sizeof(r.cluster), "%s", l->a->cfg->cluster);
    (void) snprintf(r.job_id, sizeof(r.job_id), "%s", l->job);
    return r;
}

static bool on_data(void *ctx, struct tail_watch *w, uint64_t offset, const uint8_t *data, size_t len,
                    uint64_t dropped)
{
    struct agent *a = ctx;
    struct stream *s = tail_watch_user(w);
    advisor_v1_LogChunk c = { .has_attempt = true, .attempt = attempt_ref(s->log), .offset = offset,
                              .dropped_before = dropped, .observe_wall_ms = adv_wall_us() / 1000 };
    uint64_t left;

    (void) snprintf(c.stream, sizeof(c.stream), "%s", s->name);
    if (!a->session || !session_push_log(a->session, &c, data, len))
        return false;
    if (!s->begun) {
        s->begun = true;
        s->line_at = offset;
        s->safe = s->next = (struct mark) { .offset = offset, .left_us = adv_mono_us() };
    }
    (void) session_logs_count(a->session, &s->taken, &left);
    const uint8_t *nl = memrchr(data, '\n', len);
    if (nl)
        s->line_at = offset + (uint64_t) (nl - data) + 1;
    if (offset + len > s->high)
        s->high = offset + len;
    return true;
}

static void on_restart(void *ctx, struct tail_watch *w, bool rotated)
{
    struct stream *s = tail_watch_user(w);

    s->line_at = s->high = 0;
    s->safe = s->next = (struct mark) { .left_us = adv_mono_us() };
}

/* @last: what is not told now is never told, for @l goes away. */
static void report(struct attempt_log *l, bool last)
{
    advisor_v1_TelemetryReport m = { .has_attempt = true, .attempt = attempt_ref(l) };
    enum tail_state worst = TAIL_STATE_PENDING;
    struct adv_err err;

    for (int i = 0; i < 2; i++) {
        const struct stream *s = &l->streams[i];
        m.dropped_bytes += s->dropped;
        if (s->state > worst) {
            worst = s->state;
            (void) snprintf(m.reason, sizeof(m.reason), "%s", s->reason);
        }
    }
    if (worst == TAIL_STATE_PENDING)
        return;
    m.state = worst == TAIL_STATE_COMPLETE  ? advisor_v1_TelemetryState_TELEMETRY_STATE_COMPLETE
              : worst == TAIL_STATE_PARTIAL ? advisor_v1_TelemetryState_TELEMETRY_STATE_PARTIAL
                                            : advisor_v1_TelemetryState_TELEMETRY_STATE_LOST;
    bool same = m.state == l->told && strcmp(m.reason, l->told_reason) == 0;
    l->untold = !last && same && m.dropped_bytes != l->told_dropped && adv_mono_us() - l->told_us < TELL_US;
    if (l->untold || (same && m.dropped_bytes == l->told_dropped))
        return;
    if (!l->a->session || session_send_telemetry(l->a->session, &m, last, &err) < 0) {
        l->untold = true; /* tried again with the next sign of life */
        if (last)
            adv_warn("agent", "what became of a log is not told", ADV_FS("job", l->job), ADV_FU("restarts", l->restarts));
        return;
    }
    l->told_us = adv_mono_us();
    l->told = m.state;
    l->told_dropped = m.dropped_bytes;
    memcpy(l->told_reason, m.reason, sizeof(l->told_reason));
}

static void on_state(void *ctx, struct tail_watch *w, enum tail_state state, const char *reason,
                     uint64_t dropped)
{
    struct stream *s = tail_watch_user(w);

    s->state = state;
    s->dropped = dropped;
    (void) snprintf(s->reason, sizeof(s->reason), "%s", reason);
    report(s->log, false);
}

static const struct tail_ops ops = { .on_data = on_data, .on_state = on_state, .on_restart = on_restart };

int logs_start(struct agent *a, struct adv_err *err)
{
    const struct agent_config *c = a->cfg;
    struct tail_config t = {
        .helper_path = c->tail_helper,
        .min_uid = (uint32_t) c->tail_min_uid,
        .rate_bytes_per_s = (uint64_t) c->tail_rate,
        .max_lag_bytes = (uint64_t) c->tail_max_lag,
        .max_buffered_bytes = (size_t) c->tail_buffer,
    };

    return c->tail ? tail_manager_new(a->loop, &t, &ops, a, &a->tails, err) : 0;
}

void logs_ready(struct agent *a)
{
    if (a->tails)
        tail_manager_resume(a->tails);
}

static void move_mark(struct stream *s, int64_t now, uint64_t taken, uint64_t left, bool stuck)
{
    if (s->next.left_us ? stuck : left >= s->next.taken)
        s->next.left_us = now;
    if (!s->next.left_us || now - s->next.left_us < SAFE_US)
        return;
    s->safe = s->next;
    s->next = (struct mark) { .offset = s->line_at, .taken = taken };
}

void logs_acked(struct agent *a)
{
    int64_t now = adv_mono_us();
    uint64_t taken, left;
    bool open = session_logs_count(a->session, &taken, &left);
    bool stuck = left < taken && left == a->logs_left;

    a->acked_us = now;
    a->logs_left = left;
    for (struct attempt_log *l = a->logs; l; l = l->hh.next) {
        if (l->untold)
            report(l, false);
        for (int i = 0; i < 2; i++)
            if (open && l->streams[i].begun && !l->untold)
                move_mark(&l->streams[i], now, taken, left, stuck);
    }
}

void logs_tell_again(struct agent *a)
{
    for (struct attempt_log *l = a->logs; l; l = l->hh.next) {
        l->told = advisor_v1_TelemetryState_TELEMETRY_STATE_UNSPECIFIED;
        report(l, false);
    }
}

void logs_opened(struct agent *a)
{
    int64_t now = adv_mono_us();

    for (struct attempt_log *l = a->logs; l; l = l->hh.next) {
        l->opened_us = now;
        for (int i = 0; i < 2; i++) {
            struct stream *s = &l->streams[i];
            if (!s->watch || !s->begun)
                continue;
            tail_watch_rewind(s->watch, s->safe.offset);
            s->line_at = s->safe.offset;
            s->next = (struct mark) { .offset = s->safe.offset, .left_us = now };
        }
    }
}

static void lose(struct stream *s, const char *why)
{
    s->state = TAIL_STATE_LOST;
    (void) snprintf(s->reason, sizeof(s->reason), "%.120s", why);
}

static void follow(struct stream *s, const advisor_v1_JobObservation *o, const pb_bytes_array_t *path,
                   struct tail_start start)
{
    struct tail_watch_args args = { .uid = o->uid, .path = path->bytes, .path_len = path->size,
                                    .start_offset = start.offset, .start_known = start.known,
                                    .user = s };

    if (o->restart_count == 0 && !tail_path_has_id(path->bytes, path->size, o->job_id))
        args.born_after_s = o->start_unix - BORN_SLACK_S;
    struct adv_err err;

    if (tail_watch(s->log->a->tails, &args, &s->watch, &err) < 0)
        lose(s, err.msg);
}

static void stop(struct attempt_log *l, bool last)
{
    for (int i = 0; i < 2; i++) {
        struct stream *s = &l->streams[i];
        if (s->watch) {
            s->resume_at = tail_watch_offset(s->watch);
            s->rest = tail_watch_behind(s->watch);
            if (s->high > s->resume_at)
                s->resume_at = s->high;
            if (s->rest && s->state == TAIL_STATE_COMPLETE) { /* nobody will read them any more */
                s->state = TAIL_STATE_PARTIAL;
                (void) snprintf(s->reason, sizeof(s->reason), "the last lines were not read");
            }
        }
        s->watch = tail_unwatch(s->watch);
    }
    report(l, last);
}

static bool ended(const advisor_v1_JobObservation *o)
{
    switch (o->state) {
    case advisor_v1_JobState_JOB_STATE_FAILED:
    case advisor_v1_JobState_JOB_STATE_TIMEOUT:
    case advisor_v1_JobState_JOB_STATE_OUT_OF_MEMORY:
    case advisor_v1_JobState_JOB_STATE_NODE_FAIL:
    case advisor_v1_JobState_JOB_STATE_BOOT_FAIL:
    case advisor_v1_JobState_JOB_STATE_COMPLETED:
        return true;
    case advisor_v1_JobState_JOB_STATE_PENDING:
    case advisor_v1_JobState_JOB_STATE_REQUEUED:
        return false; /* what still completes is the attempt before, whatever the count says */
    default:
        return o->completing;
    }
}

static bool same_bytes(const pb_bytes_array_t *x, const pb_bytes_array_t *y)
{
    return x->size == y->size && memcmp(x->bytes, y->bytes, x->size) == 0;
}

/* The scheduler sets a new submit time at each requeue, and at no other moment. */
static bool same_attempt(const struct attempt_log *l, const advisor_v1_JobObservation *o)
{
    return o && l->restarts == o->restart_count && l->submit_s == o->submit_unix;
}

static bool is_successor(const struct attempt_log *l, const advisor_v1_JobObservation *o)
{
    return l->restarts + 1 == o->restart_count && l->first_submit_s != 0 && l->first_submit_s == o->incarnation_unix;
}

static void begin(struct agent *a, const advisor_v1_JobObservation *o)
{
    struct attempt_log *l;
    bool before[2] = { false, false };
    uint64_t at[2] = { 0, 0 };

    HASH_FIND_STR(a->logs, o->job_id, l);
    if (l && same_attempt(l, o) && !l->end_us)
        return;
    if (l && same_attempt(l, o)) {
        if (l->streams[0].watch && !ended(o))
            l->end_us = 0; /* suspended, or seen ended by mistake */
        return;
    }
    if (l) {
        stop(l, true);
        for (int i = 0; i < 2; i++) {
            at[i] = l->streams[i].resume_at;
            before[i] = is_successor(l, o) && !l->streams[i].rest;
        }
        HASH_DEL(a->logs, l);
        free(l);
    }
    l = calloc(1, sizeof(*l));
    if (!l)
        return;
    l->a = a;
    l->restarts = o->restart_count;
    l->submit_s = o->submit_unix;
    l->first_submit_s = o->incarnation_unix;
    (void) snprintf(l->job, sizeof(l->job), "%s", o->job_id);
    l->streams[0] = (struct stream) { .log = l, .name = "stdout" };
    l->streams[1] = (struct stream) { .log = l, .name = "stderr" };
    HASH_ADD_STR(a->logs, job, l);
    if (!o->stdout_path || !o->stdout_path->size) {
        lose(&l->streams[0], "no output file");
    } else {
        struct tail_start first = { 0, true };
        for (int i = 0; i < 2; i++) {
            const pb_bytes_array_t *path = i ? o->stderr_path : o->stdout_path;
            if (!path || !path->size || (i && same_bytes(path, o->stdout_path)))
                continue;
            struct tail_start start = o->restart_count == 0
                                          ? first
                                          : tail_start_rule(false, true, before[i], at[i]);
            follow(&l->streams[i], o, path, start);
        }
    }
    report(l, false);
}

/* The newest thing the scheduler tells of by its own clock. */
static void find_newest(void *arg, const advisor_v1_JobObservation *o)
{
    int64_t *newest = arg, t = ended(o) ? o->end_unix : o->submit_unix;

    if (t > *newest)
        *newest = t;
}

struct looking {
    struct agent *a;
    int64_t since_s; /* what ended later is read, though it was never seen running */
};

static void each(void *arg, const advisor_v1_JobObservation *o)
{
    const struct looking *k = arg;

    if (!o->detail_known || !o->batch || o->start_unix == 0)
        return;
    if (o->state == advisor_v1_JobState_JOB_STATE_RUNNING || (o->end_unix > k->since_s && ended(o)))
        begin(k->a, o);
}

/* Nothing waits here that was read, or is known to be there. */
static bool all_sent(const struct attempt_log *l)
{
    uint64_t taken, left;

    (void) session_logs_count(l->a->session, &taken, &left);
    for (int i = 0; i < 2; i++)
        if (l->streams[i].watch && (left < l->streams[i].taken || tail_watch_behind(l->streams[i].watch)))
            return false;
    return true;
}

/* The last lines have had their time to come and to be stored. */
static bool lingered(const struct attempt_log *l)
{
    int64_t from = l->end_us > l->opened_us ? l->end_us : l->opened_us;
    int64_t for_us = l->a->acked_us - from;

    return for_us > LINGER_US && (for_us > LINGER_MAX_US || all_sent(l));
}

/* A held successor writes nothing yet, so the rest of the old attempt can still be read. */
static bool successor_waits(const struct attempt_log *l, const advisor_v1_JobObservation *o)
{
    return o && is_successor(l, o) && o->state == advisor_v1_JobState_JOB_STATE_PENDING && o->held;
}

static bool successor_may_write(const struct attempt_log *l, const advisor_v1_JobObservation *o)
{
    return o && !same_attempt(l, o) && !successor_waits(l, o);
}

void logs_update(struct agent *a)
{
    struct attempt_log *l, *next;
    int64_t now = adv_mono_us(), now_s = agent_wall_us(a) / 1000000;
    int64_t newest_s = 0;
    struct looking looking = { .a = a };

    if (!a->tails || !a->lease.held) /* a standby has nobody to tell */
        return;
    /* our clock may be ahead of the scheduler's: what ended last there is read whatever our clock says */
    snapshot_each(a->snapshot, find_newest, &newest_s);
    looking.since_s = (newest_s < now_s ? newest_s : now_s) - ENDED_S;
    snapshot_each(a->snapshot, each, &looking);
    HASH_ITER(hh, a->logs, l, next) {
        const advisor_v1_JobObservation *o = snapshot_find(a->snapshot, l->job);
        bool runs = same_attempt(l, o) &&
                    (o->state == advisor_v1_JobState_JOB_STATE_RUNNING ||
                     o->state == advisor_v1_JobState_JOB_STATE_SUSPENDED ||
                     o->state == advisor_v1_JobState_JOB_STATE_CONFIGURING || o->completing);
        if (!runs && !l->end_us)
            l->end_us = now;
        if (l->end_us && (successor_may_write(l, o) || (lingered(l) && !successor_waits(l, o))))
            stop(l, false);
        if (l->end_us && now - l->end_us > REMEMBER_US && !same_attempt(l, o)) {
            stop(l, true);
            HASH_DEL(a->logs, l);
            free(l);
        }
    }
}

void logs_free(struct agent *a)
{
    struct attempt_log *l, *next;

    HASH_ITER(hh, a->logs, l, next) {
        HASH_DEL(a->logs, l);
        free(l);
    }
}
