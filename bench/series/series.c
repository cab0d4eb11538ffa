/* SPDX-License-Identifier: Apache-2.0 */
/* What the rhythm of a job is worth: false alarms on healthy series, and the delay until a hang or a slow-down is seen.
 *
 * usage: series [--jobs N] [--hours H] [--seed S] [--check] [--rules DIR FILE...]
 *
 * Without files it makes series. Each job is drawn by lot from the seed: steps of 0.2 s to 2 min; a line every so many
 * steps; jitter; a long start and a first step that compiles; checkpoints and evaluations of some seconds to a quarter of
 * an hour, with and without lines of their own; drift by longer sequences; buffers that are flushed in bursts; other
 * ranks and other counters between; a cluster clock that is set; times in which nobody listened; restarts inside the job
 * that go back to the last checkpoint. A third of the jobs stays healthy, a third hangs, a third is slowed down by one
 * node. Every alarm before the fault counts as false.
 *
 * A silence is a suspicion; it is confirmed by a second witness, and here that one says of each silence that the devices are
 * idle: `hang_false` is the most that could ever be acted upon, and none is allowed. Suspicions are allowed at a small rate: a
 * first checkpoint that is longer than all patience cannot be told from a hang while it lasts. A fault that is never seen counts in
 * the delays as seen after an infinite time. With SERIES_SHOW in the environment each false alarm and each fault that is not
 * seen is told with what was known of the job.
 *
 * With files it reads logs by the rules in DIR: time passes as their lines say (seconds per step, items per second, the
 * clock of a bar), and after the last line it passes without end. For each it prints what was seen.
 *
 * Figures are `name value unit`; --check exits 1 when one misses its bound. The same seed makes the same series. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "controlplane/domain/policy.h"
#include "controlplane/domain/pulse.h"
#include "controlplane/domain/rhythm.h"
#include "controlplane/watcher/watcher.h"

#define S         1000000LL
#define WALL      1700000000LL
#define MAX_JOBS  100000
#define WATCH_US  (12 * 3600 * S) /* how long a fault is waited for */
#define NEVER     INT64_MAX

static uint64_t rng;

static double uniform(void)
{
    uint64_t z = (rng += 0x9e3779b97f4a7c15ULL);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return ((double) ((z ^ (z >> 31)) >> 11) + 0.5) / 9007199254740992.0;
}

static double between(double a, double b)
{
    return a + (b - a) * uniform();
}

static double log_between(double a, double b)
{
    return exp(between(log(a), log(b)));
}

static bool chance(double p)
{
    return uniform() < p;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* ---- one job ---------------------------------------------------------------------------------------------------- */

enum fault { HEALTHY, HANGS, SLOWS };

struct made {
    double step, jitter, start, compile, save, save_every, eval, eval_every, drift, slow_by;
    int log_every, flush; /* lines in a buffer */
    bool save_line, save_async, eval_lines, eval_counts_steps, ranks, two_counters;
    double set_clock_at, set_clock_by, deaf_at, deaf_for, restart_at;
    enum fault fault;
    double fault_at, end;
};

struct seen {
    struct rhythm r;
    int64_t floor_us, alarm_us; /* alarm: of this silence, told already */
    bool slow;
    uint64_t signs, silences, hangs, slows; /* false ones */
    double fault_at, deaf_at, deaf_until;
    double hang_delay, confirm_delay, slow_delay; /* -1: not seen */
};

struct line {
    struct rhythm_sign s;
    double at;
};

static void draw(struct made *j, enum fault fault, double hours)
{
    *j = (struct made) { .fault = fault, .end = hours * 3600 };
    j->step = log_between(0.2, 120);
    j->jitter = log_between(0.01, 0.3);
    do
        j->log_every = (int[]) { 1, 1, 1, 5, 10, 20, 50, 100 }[(int) (uniform() * 8)];
    while (j->log_every > 1 && j->log_every * j->step > 2400);
    j->start = log_between(20, 1200);
    j->compile = chance(0.3) ? log_between(5, 300) : 0;
    j->save = log_between(5, 900);
    j->save_every = log_between(900, 10800) + j->save;
    j->save_line = chance(0.8);
    j->save_async = chance(0.2);
    j->eval = log_between(10, 600);
    j->eval_every = log_between(600, 14400) + j->eval;
    j->eval_lines = chance(0.5);
    j->eval_counts_steps = chance(0.3);
    j->drift = chance(0.4) ? between(-0.3, 0.6) : 0;
    j->flush = chance(0.15) ? 5 + (int) (uniform() * 60) : 1;
    while (j->flush > 1 && j->flush * j->log_every * j->step > 2400)
        j->flush /= 2;
    j->ranks = chance(0.2);
    j->two_counters = chance(0.3);
    j->set_clock_at = chance(0.15) ? between(0, j->end) : INFINITY;
    j->set_clock_by = between(-7200, 7200);
    j->deaf_at = chance(0.1) ? between(0, j->end) : INFINITY;
    j->deaf_for = log_between(10, 7200);
    j->restart_at = chance(0.1) ? between(3600, j->end) : INFINITY;
    j->slow_by = log_between(1.25, 3);
    j->fault_at = fault == HEALTHY ? INFINITY : between(j->end / 3, j->end / 2);
}

static bool show; /* SERIES_SHOW: each alarm, and what was missed */

static void show_silence(const struct rhythm *r, const char *what, double lasted, int64_t bound_us)
{
    fprintf(stderr, "  %s: %.0f s from %.0f s, bound %.0f s; usual %.1f s, start %.0f s, %u gaps, pauses", what, lasted,
            (double) r->sign_us / S, (double) bound_us / S, (double) rhythm_usual_us(r) / S, r->longest_start_ms / 1e3, r->n_gaps);
    for (uint32_t i = 0; i < r->n_pauses && i < RHYTHM_PAUSES; i++)
        fprintf(stderr, " %u", r->pause_ms[i] / 1000);
    fprintf(stderr, " s of %u, saves", r->n_pauses);
    for (uint32_t i = 0; i < r->n_saves && i < RHYTHM_PAUSES; i++)
        fprintf(stderr, " %u", r->save_ms[i] / 1000);
    fprintf(stderr, " s of %u\n", r->n_saves);
}

static void show_slow(const struct rhythm *r, const struct rhythm_pace *p, double heard)
{
    fprintf(stderr, "  slow%s: at %.0f s, %.3f s where %.3f s was usual; blocks", r->slow_severe ? " (far)" : "", heard, p->now_us / S,
            p->usual_us / S);
    for (int i = 0; i < r->n_blocks; i++)
        fprintf(stderr, " %.3f", (double) r->block[i] / S);
    fprintf(stderr, " beats");
    for (int i = 0; i < r->n_recent; i++)
        fprintf(stderr, " %.3f", (double) r->recent[i] / S);
    fprintf(stderr, "\n");
}

/* Nobody can be less helpful than a second witness that says of each silence that the devices are idle: what is confirmed
 * with it is the most that ever could be. */
static void listen(struct seen *w, double from, double now)
{
    int64_t silent_us = (int64_t) ((now - from) * S), bound_us, sure_us;
    double alarm, confirmed;

    if (silent_us <= w->floor_us)
        return; /* no bound is below the floor */
    bound_us = rhythm_bound_us(&w->r, w->floor_us);
    sure_us = rhythm_sure_us(&w->r, bound_us) + PULSE_LOOK_AGAIN_US;
    alarm = from + (double) bound_us / S;
    confirmed = from + (double) sure_us / S;
    if (!bound_us || silent_us <= bound_us)
        return;
    if (alarm >= w->fault_at) {
        w->hang_delay = w->hang_delay < 0 ? alarm - w->fault_at : w->hang_delay;
    } else if (w->alarm_us != w->r.sign_us) {
        w->alarm_us = w->r.sign_us;
        w->silences++;
        if (show)
            show_silence(&w->r, "silent", (double) silent_us / S, bound_us);
    }
    if (silent_us <= sure_us)
        return;
    if (confirmed >= w->fault_at) {
        w->confirm_delay = w->confirm_delay < 0 ? confirmed - w->fault_at : w->confirm_delay;
    } else {
        w->hangs++;
        if (show)
            show_silence(&w->r, "confirmed", (double) silent_us / S, bound_us);
    }
}

/* Where nobody listened the silence ends, and begins anew with those who listen again. */
static void look(struct seen *w, double now)
{
    double sign = (double) w->r.sign_us / S;

    if (!w->r.sign_us)
        return;
    if (sign < w->deaf_at)
        listen(w, sign, now < w->deaf_at ? now : w->deaf_at);
    if (sign >= w->deaf_until || now > w->deaf_until)
        listen(w, sign < w->deaf_until ? w->deaf_until : sign, now);
}

static void hear(struct seen *w, const struct line *l, double heard)
{
    struct rhythm_sign s = l->s;
    struct rhythm_pace p;

    look(w, heard);
    s.mono_us = (int64_t) (heard * 1e6);
    rhythm_sign(&w->r, &s);
    w->signs++;
    rhythm_pace(&w->r, &p);
    if (p.slow && !w->slow) {
        if (heard >= w->fault_at) {
            w->slow_delay = w->slow_delay < 0 ? heard - w->fault_at : w->slow_delay;
        } else {
            w->slows++;
            if (show)
                show_slow(&w->r, &p, heard);
        }
    }
    w->slow = p.slow;
}

struct clock {
    struct seen *w;
    const struct made *j;
    double now;
    struct line *buffer;
    int held;
    bool deaf;
};

/* A line that the program writes now; heard when the buffer is flushed. */
static void say(struct clock *c, enum rhythm_sign_kind kind, uint32_t series, double count, double total)
{
    double set = c->now >= c->j->set_clock_at ? c->j->set_clock_by : 0;
    bool deaf = c->now >= c->j->deaf_at && c->now < c->j->deaf_at + c->j->deaf_for;

    if (deaf && !c->deaf)
        rhythm_break(&c->w->r);
    c->deaf = deaf;
    c->buffer[c->held++] = (struct line) { { kind, series, (int64_t) count, (int64_t) total, 0, 0 }, c->now };
    if (c->held < c->j->flush && kind != RHYTHM_CHECKPOINT)
        return;
    for (int i = 0; i < c->held; i++) {
        c->buffer[i].s.observe_us = (int64_t) ((c->now + WALL + set) * 1e6);
        if (deaf) /* it will be read again, all at once, and its like stands for it below */
            continue;
        hear(c->w, &c->buffer[i], c->now);
    }
    c->held = 0;
}

static void pause_for(struct clock *c, double s)
{
    double end = c->now + s;

    c->now = end < c->j->fault_at || c->j->fault != HANGS ? end : c->j->fault_at;
}

static void run(const struct made *j, struct seen *w, int64_t floor_us)
{
    struct line buffer[80];
    struct clock c = { .w = w, .j = j, .now = j->start, .buffer = buffer };
    double next_save, next_eval, step = 0, saved = 0, total = 1e9;
    bool restarted = false, first = true;

    *w = (struct seen) { .floor_us = floor_us, .fault_at = j->fault_at, .deaf_at = j->deaf_at,
                         .deaf_until = j->deaf_at + j->deaf_for, .hang_delay = -1, .confirm_delay = -1, .slow_delay = -1 };
    rhythm_init(&w->r, WALL * S);
    next_save = c.now + j->save_every * between(0.5, 1);
    next_eval = c.now + j->eval_every * between(0.5, 1);
    while (c.now < j->end && !(j->fault == HANGS && c.now >= j->fault_at)) {
        double t = j->step * exp(j->jitter * normal()) * (1 + j->drift * c.now / j->end);
        if (first)
            t += j->compile;
        first = false;
        if (j->fault == SLOWS && c.now >= j->fault_at)
            t *= j->slow_by;
        pause_for(&c, t);
        if (j->fault == HANGS && c.now >= j->fault_at)
            break;
        step++;
        if (fmod(step, j->log_every) == 0) {
            say(&c, RHYTHM_STEP, 1, step, total);
            if (j->ranks)
                for (int i = 0; i < 3; i++)
                    say(&c, RHYTHM_STEP, 1, step - (chance(0.2) ? j->log_every : 0), total);
            if (j->two_counters)
                say(&c, RHYTHM_ITEM, 2, fmod(step, 1000), 1000);
        }
        if (c.now >= next_eval) {
            double n = 10, each = j->eval * exp(0.2 * normal()) / n;
            for (int i = 1; i <= n && !(j->fault == HANGS && c.now >= j->fault_at); i++) {
                pause_for(&c, each);
                if (j->eval_lines)
                    say(&c, j->eval_counts_steps ? RHYTHM_STEP : RHYTHM_ITEM, 3, i, n);
            }
            next_eval = c.now + j->eval_every;
        }
        if (c.now >= next_save && !(j->fault == HANGS && c.now >= j->fault_at)) {
            if (!j->save_async)
                pause_for(&c, j->save * exp(0.25 * normal()));
            if (j->save_line && !(j->fault == HANGS && c.now >= j->fault_at))
                say(&c, RHYTHM_CHECKPOINT, 0, step, -1);
            saved = step;
            next_save = c.now + j->save_every;
        }
        if (!restarted && c.now >= j->restart_at && !(j->fault == HANGS && c.now >= j->fault_at)) {
            restarted = first = true;
            pause_for(&c, j->start * between(0.5, 1.5));
            if (chance(0.7) && !(j->fault == HANGS && c.now >= j->fault_at))
                say(&c, RHYTHM_RESUMED, 0, saved, -1);
            step = saved;
        }
    }
    if (j->fault == HANGS)
        look(w, j->fault_at + WATCH_US / 1e6);
}

/* ---- logs ------------------------------------------------------------------------------------------------------- */

struct reading {
    struct seen w;
    double now, clock; /* clock: of a bar, -1 before the first */
    const char *text;
    size_t len;
    int64_t step;
    uint64_t at;
};

/* The first number behind @key in the line; NAN for none. */
static double after(const char *line, size_t len, const char *key)
{
    const char *p = memmem(line, len, key, strlen(key));
    char num[32] = "";

    if (!p)
        return (double) NAN;
    p += strlen(key);
    (void) snprintf(num, sizeof(num), "%.*s", (int) (len - (size_t) (p - line) < 31 ? len - (size_t) (p - line) : 31), p);
    return num[strspn(num, " '\"")] >= '0' && num[strspn(num, " '\"")] <= '9' ? strtod(num + strspn(num, " '\""), NULL) : (double) NAN;
}

/* The number right before @key. */
static double before(const char *line, size_t len, const char *key)
{
    const char *p = memmem(line, len, key, strlen(key)), *q = p;
    char num[32] = "";

    while (q && q > line && ((q[-1] >= '0' && q[-1] <= '9') || q[-1] == '.'))
        q--;
    if (!q || q == p || p - q > 30)
        return (double) NAN;
    (void) snprintf(num, sizeof(num), "%.*s", (int) (p - q), q);
    return strtod(num, NULL);
}

/* How long one count took, as the line says. */
static double said(struct reading *rd, const char *line, size_t len, int64_t step)
{
    static const struct {
        const char *key;
        double scale; /* to seconds; 0: a rate */
        bool behind;
    } keys[] = {
        { "elapsed time per iteration (ms):", 0.001, true }, { "elapsed time per iteration (s):", 1, true },
        { "train_step_timing in s:", 1, true },  { "step_time ", 1, true }, { "seconds:", 1, true },
        { "sec/step", 1, false },                { "s/it", 1, false },      { " sec/step", 1, false },
        { "Speed: ", 0, true },                  { "it/s", 0, false },
    };
    const char *bar = memmem(line, len, " [", 2);
    unsigned h = 0, m = 0, s = 0;
    int n;

    if (bar) { /* the clock of a bar says it exactly */
        char text[32];
        (void) snprintf(text, sizeof(text), "%.*s", (int) (len - (size_t) (bar - line) - 2 < 31 ? len - (size_t) (bar - line) - 2 : 31), bar + 2);
        n = sscanf(text, "%u:%u:%u", &h, &m, &s); /* a benchmark: what it misreads shows */
        if (n == 2 || n == 3) {
            double at = n == 3 ? h * 3600.0 + m * 60.0 + s : h * 60.0 + m;
            double passed = rd->clock >= 0 && at >= rd->clock ? at - rd->clock : 0;
            int64_t counts = step > rd->step ? step - rd->step : 1;
            rd->clock = at;
            return passed / (double) counts;
        }
    }
    for (size_t i = 0; i < ADV_ARRAY_LEN(keys); i++) {
        double v = keys[i].behind ? after(line, len, keys[i].key) : before(line, len, keys[i].key);
        if (!isnan(v) && v > 0)
            return keys[i].scale > 0 ? v * keys[i].scale : 1 / v;
    }
    return 0;
}

static void on_finding(void *ctx, const struct watcher_finding *f)
{
    struct reading *rd = ctx;
    const char *line = rd->text + f->offset;
    size_t len = strcspn(line, "\r\n");
    struct line l = { .s = { RHYTHM_STEP, 0, f->step, f->total, 0, 0 } };
    double each;

    if (f->offset + len > rd->len)
        return;
    switch (f->type) {
    case WATCHER_PROGRESS:
        each = said(rd, line, len, f->step);
        rd->now += each * (double) (f->step > rd->step && rd->step >= 0 ? f->step - rd->step : 1);
        rd->step = f->step;
        l.s.kind = f->rule->unit == WATCHER_UNIT_STEP    ? RHYTHM_STEP :
                   f->rule->unit == WATCHER_UNIT_EPOCH   ? RHYTHM_EPOCH :
                                                           RHYTHM_ITEM;
        l.s.series = (uint32_t) (uintptr_t) f->rule;
        break;
    case WATCHER_CHECKPOINT:
        l.s.kind = RHYTHM_CHECKPOINT;
        break;
    case WATCHER_RESUMED:
        l.s.kind = RHYTHM_RESUMED;
        break;
    case WATCHER_FINISHED:
        l.s.kind = RHYTHM_FINISHED;
        break;
    default:
        return;
    }
    l.s.observe_us = (int64_t) ((rd->now + WALL) * 1e6);
    hear(&rd->w, &l, rd->now);
}

static int read_log(struct watcher_rules *rules, const char *path, int64_t floor_us)
{
    static char text[4 << 20];
    FILE *f = fopen(path, "re");
    struct adv_err err = { 0 };
    struct reading rd = { .now = 1, .clock = -1, .text = text, .step = -1 };
    struct watcher_scan_options o = { .stream = WATCHER_SCOPE_APPLICATION, .fn = on_finding, .ctx = &rd };
    ADV_AUTO(watcher_scan) scan = NULL;
    const char *name = strrchr(path, '/');
    char word[64];

    if (!f) {
        perror(path);
        return 2;
    }
    rd.len = fread(text, 1, sizeof(text) - 1, f);
    text[rd.len] = '\0';
    (void) fclose(f);
    rd.w = (struct seen) { .floor_us = floor_us, .fault_at = INFINITY, .deaf_at = INFINITY,
                           .deaf_until = INFINITY, .hang_delay = -1, .confirm_delay = -1, .slow_delay = -1 };
    rhythm_init(&rd.w.r, 0);
    if (watcher_scan_new(rules, &o, &scan, &err) < 0 || watcher_scan_feed(scan, 0, text, rd.len, 0, 0, &err) < 0) {
        fprintf(stderr, "%s: %s\n", path, err.msg);
        return 2;
    }
    watcher_scan_finish(scan, 0);
    (void) snprintf(word, sizeof(word), "%.*s", (int) strcspn(name ? name + 1 : path, "."), name ? name + 1 : path);
    printf("%s_signs %llu signs\n", word, (unsigned long long) rd.w.signs);
    printf("%s_silences %llu alarms\n", word, (unsigned long long) rd.w.silences);
    printf("%s_slow %llu alarms\n", word, (unsigned long long) rd.w.slows);
    printf("%s_silent_after %.1f s\n", word, (double) rhythm_bound_us(&rd.w.r, floor_us) / 1e6);
    return 0;
}

/* ---- figures ---------------------------------------------------------------------------------------------------- */

static bool missed;

static void figure(const char *name, double value, const char *unit, double most, bool check)
{
    printf("%s %.3f %s\n", name, value, unit);
    if (check && !(value <= most)) {
        printf("# missed: %s is %.3f %s, at most %.3f\n", name, value, unit, most);
        missed = true;
    }
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return x < y ? -1 : x > y;
}

/* Of @n delays, and of as many more that were never seen as make @all. */
static double quantile(double *v, size_t n, size_t all, double q)
{
    size_t i = (size_t) (q * (double) (all > 0 ? all - 1 : 0) + 0.5);

    if (all == 0)
        return (double) NAN;
    qsort(v, n, sizeof(*v), by_double);
    return i < n ? v[i] : INFINITY;
}

static void show_job(int i, const struct made *j, const struct seen *w)
{
    static const char *const faults[] = { "healthy", "hangs", "slows" };

    fprintf(stderr,
            "job %d %s, at %.0f s, by %.2f; seen after %.0f s; false: %llu silent, %llu confirmed, %llu slow. Step %.2f s, a line each %d, "
            "jitter %.2f, start %.0f s, compile %.0f s, save %.0f s each %.0f s (line %d, async %d), eval %.0f s each %.0f s (lines %d, "
            "steps %d), drift %.2f, flush %d, ranks %d, two counters %d, clock %.0f, deaf %.0f, restart %.0f\n",
            i, faults[j->fault], j->fault_at, j->slow_by, j->fault == HANGS ? w->hang_delay : w->slow_delay,
            (unsigned long long) w->silences, (unsigned long long) w->hangs, (unsigned long long) w->slows, j->step, j->log_every,
            j->jitter, j->start, j->compile, j->save, j->save_every, j->save_line, j->save_async, j->eval, j->eval_every, j->eval_lines,
            j->eval_counts_steps, j->drift, j->flush, j->ranks, j->two_counters, j->set_clock_at, j->deaf_at, j->restart_at);
}

static int make(int jobs, double hours, uint64_t seed, int64_t floor_us, bool check)
{
    double *hang = calloc((size_t) jobs, sizeof(*hang)), *slow = calloc((size_t) jobs, sizeof(*slow));
    double *confirmed = calloc((size_t) jobs, sizeof(*confirmed));
    size_t n_hang = 0, n_slow = 0, n_confirmed = 0, hangs = 0, slows = 0, healthy = 0;
    uint64_t signs = 0, silences = 0, false_hangs = 0, slow_alarms = 0;
    double job_hours = 0;

    if (!hang || !slow || !confirmed)
        return 2;
    for (int i = 0; i < jobs; i++) {
        struct made j;
        struct seen w;
        rng = seed * 1000003 + (uint64_t) i;
        draw(&j, (enum fault)(i % 3), hours);
        run(&j, &w, floor_us);
        job_hours += (j.fault == HEALTHY ? j.end : j.fault_at) / 3600;
        signs += w.signs;
        silences += w.silences;
        false_hangs += w.hangs;
        slow_alarms += w.slows;
        if (show && (w.silences || w.slows || (j.fault == HANGS && w.hang_delay < 0) || (j.fault == SLOWS && w.slow_delay < 0)))
            show_job(i, &j, &w);
        if (j.fault == HEALTHY)
            healthy++;
        if (j.fault == HANGS) {
            hangs++;
            if (w.hang_delay >= 0)
                hang[n_hang++] = w.hang_delay;
            if (w.confirm_delay >= 0)
                confirmed[n_confirmed++] = w.confirm_delay;
        }
        if (j.fault == SLOWS) {
            slows++;
            if (w.slow_delay >= 0)
                slow[n_slow++] = w.slow_delay;
        }
    }
    figure("series_jobs", jobs, "jobs", INFINITY, check);
    figure("series_hours_before_fault", job_hours, "h", INFINITY, check);
    figure("series_signs", (double) signs, "signs", INFINITY, check);
    figure("silence_false", (double) silences * 1000 / job_hours, "per_1000_job_hours", 0.1, check);
    figure("hang_false", (double) false_hangs * 1000 / job_hours, "per_1000_job_hours", 0, check);
    figure("slow_false", (double) slow_alarms * 1000 / job_hours, "per_1000_job_hours", 0, check);
    /* rule of three: with none seen, 95 % sure that it is no more than this */
    figure("false_at_most", 3000 / job_hours, "per_1000_job_hours", INFINITY, check);
    figure("hang_missed", hangs ? 100.0 * (double) (hangs - n_hang) / (double) hangs : 0, "percent", 1, check);
    figure("hang_delay_p50", quantile(hang, n_hang, hangs, 0.5) / 60, "min", 60, check);
    figure("hang_delay_p95", quantile(hang, n_hang, hangs, 0.95) / 60, "min", 360, check);
    figure("hang_unconfirmed", hangs ? 100.0 * (double) (hangs - n_confirmed) / (double) hangs : 0, "percent", 1, check);
    figure("confirm_delay_p50", quantile(confirmed, n_confirmed, hangs, 0.5) / 60, "min", 120, check);
    figure("confirm_delay_p95", quantile(confirmed, n_confirmed, hangs, 0.95) / 60, "min", 720, check);
    figure("slow_missed", slows ? 100.0 * (double) (slows - n_slow) / (double) slows : 0, "percent", 25, check);
    figure("slow_delay_p50", quantile(slow, n_slow, slows, 0.5) / 60, "min", 90, check);
    figure("slow_delay_p75", quantile(slow, n_slow, slows, 0.75) / 60, "min", 240, check);
    figure("slow_delay_p90", quantile(slow, n_slow, slows, 0.90) / 60, "min", INFINITY, check);
    figure("rhythm_memory", sizeof(struct rhythm), "bytes", 1024, check);
    free(hang);
    free(confirmed);
    free(slow);
    return missed ? 1 : 0;
}

int main(int argc, char **argv)
{
    ADV_AUTO(watcher_rules) rules = NULL;
    struct adv_err err = { 0 };
    struct policy p;
    int jobs = 3000, i, r = 0;
    double hours = 24;
    uint64_t seed = 1;
    bool check = false;

    show = getenv("SERIES_SHOW") != NULL;
    policy_defaults(&p);
    for (i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        if (adv_streq(a, "--check"))
            check = true;
        else if (adv_streq(a, "--jobs") && (jobs = atoi(v)) > 0 && jobs <= MAX_JOBS)
            i++;
        else if (adv_streq(a, "--hours") && (hours = strtod(v, NULL)) >= 6 && hours <= 10000)
            i++;
        else if (adv_streq(a, "--seed"))
            seed = strtoull(v, NULL, 10), i++;
        else if (adv_streq(a, "--rules") && !rules) {
            if (watcher_rules_load(v, &rules, &err) < 0) {
                fprintf(stderr, "series: %s\n", err.msg);
                return 2;
            }
            i++;
        } else if (*a != '-' && rules)
            break;
        else {
            fprintf(stderr, "usage: series [--jobs N] [--hours H (6 or more)] [--seed S] [--check] [--rules DIR FILE...]\n");
            return 2;
        }
    }
    if (!rules)
        return make(jobs, hours, seed, p.suspicion_grace_us, check);
    for (; i < argc && r == 0; i++)
        r = read_log(rules, argv[i], p.suspicion_grace_us);
    return r;
}
