/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/domain/rhythm.h"

#include <stdlib.h>
#include <string.h>

#define BURST_US       1000000LL /* signs closer than this are one */
#define MIN_GAPS       4         /* before that nothing is known */
#define START_GAPS     2         /* first gaps after a start: compilation, warm-up */
#define PAUSE_FACTOR   4         /* a gap this many times the usual is a pause ... */
#define PAUSE_MIN_MS   5000
#define NEW_RHYTHM     3         /* ... unless as many come in a row */
#define GAP_FACTOR     3         /* beyond the longest ordinary gap by this */
#define USUAL_FACTOR   8
#define LONG_FACTOR    2         /* beyond the longest pause by this, and by once more shared by those that were seen: the longest
                                  * of a few says little */
#define START_PERCENT  150       /* of its start: it may start again inside, and say so only afterwards */
#define START_MAX_MS   3600000   /* what took longer was no start alone: a queue for data, a log that was read late */
#define ENDING_FACTOR  4
#define MIN_PAUSES     3         /* before as many, the next one may be of a kind that was not seen */
#define MIN_SAVES      2
#define PATIENCE       2         /* times its bound: the first checkpoint may take long, devices idle meanwhile, and ranks wait
                                  * for the one that saves */

#define PACE_BEAT_US   25000000LL /* eight make a block, three blocks ten minutes */
#define BLOCK_MIN      3         /* beats, where they are rare: each is a mean over many counts already */
#define BLOCK_US       1800000000LL
#define RECENT_MIN     8         /* beats */
#define BURSTY         16        /* after as many single signs they come no more in bursts */
#define CLOCK_SLACK_US 2000000LL
#define INTERLEAVE     8         /* lines that ranks and buffers may be behind each other */
#define BASE_MIN       4         /* blocks */
#define BEATS_NOISE    0.225     /* of the median of eight, as a part of that of one (0.45); halved, since sixteen beats leave no
                                  * such doubt of it as a few blocks do */
#define FEW_BLOCKS     8
#define SUSTAINED      3         /* blocks */
#define SUSTAINED_US   600000000LL
#define SLOW_MIN       0.15
#define SLOW_SIGMAS    8.0
#define SIGMA_MIN      0.01
#define ABOVE_ALL      1.05
#define SEVERE         4.0
#define SEVERE_RUN     4
#define SEVERE_US      600000000LL
#define WELL_RUN       2

_Static_assert(sizeof(struct rhythm) <= 1024, "of every attempt that shows progress");

void rhythm_init(struct rhythm *r, int64_t start_us)
{
    *r = (struct rhythm) { .start_us = start_us, .fresh = START_GAPS };
}

void rhythm_break(struct rhythm *r)
{
    r->broken = true;
    r->pace_mono_us = 0;
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static int by_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;

    return x < y ? -1 : x > y;
}

static int by_float(const void *a, const void *b)
{
    float x = *(const float *) a, y = *(const float *) b;

    return x < y ? -1 : x > y;
}

static double median(const float *v, size_t n)
{
    float s[RHYTHM_BLOCKS];

    if (n == 0)
        return 0;
    memcpy(s, v, n * sizeof(*s));
    qsort(s, n, sizeof(*s), by_float);
    return n % 2 ? (double) s[n / 2] : ((double) s[n / 2 - 1] + (double) s[n / 2]) / 2;
}

static float largest(const float *v, size_t n)
{
    float m = 0;

    for (size_t i = 0; i < n; i++)
        if (v[i] > m)
            m = v[i];
    return m;
}

/* Of a ring that has seen @n. */
static size_t held(uint32_t n, size_t cap)
{
    return n < cap ? n : cap;
}

static uint32_t longest(const uint32_t *ring, uint32_t n, size_t cap)
{
    uint32_t m = 0;

    for (size_t i = 0; i < held(n, cap); i++)
        if (ring[i] > m)
            m = ring[i];
    return m;
}

static uint32_t usual_gap_ms(const struct rhythm *r)
{
    uint32_t s[RHYTHM_GAPS];
    size_t n = held(r->n_gaps, RHYTHM_GAPS);

    if (n == 0)
        return 0;
    memcpy(s, r->gap_ms, n * sizeof(*s));
    qsort(s, n, sizeof(*s), by_u32);
    return s[n / 2];
}

static void push(float *v, uint8_t *n, size_t cap, float x)
{
    if (*n == cap) {
        memmove(v, v + 1, (cap - 1) * sizeof(*v));
        (*n)--;
    }
    v[(*n)++] = x;
}

/* ---- silence ---------------------------------------------------------------------------------------------------- */

static void take_start(struct rhythm *r, int64_t ms)
{
    if (ms > START_MAX_MS)
        ms = START_MAX_MS;
    if (ms > r->longest_start_ms)
        r->longest_start_ms = (uint32_t) ms;
}

static void take_gap(struct rhythm *r, uint32_t ms, bool save)
{
    uint32_t usual;

    if (r->fresh > 0) {
        r->fresh--;
        take_start(r, ms);
        r->restarting = r->restarting && r->fresh > 0;
        return;
    }
    usual = usual_gap_ms(r);
    if (save) { /* also a short one: it shows how long this attempt saves */
        r->save_ms[r->n_saves++ % RHYTHM_PAUSES] = ms;
        return;
    }
    if (r->n_gaps >= MIN_GAPS && ms > PAUSE_MIN_MS && ms / PAUSE_FACTOR > usual) {
        r->pause_ms[r->n_pauses++ % RHYTHM_PAUSES] = ms;
        if (r->long_run < NEW_RHYTHM)
            r->long_run++;
        if (r->long_run < NEW_RHYTHM)
            return;
    } else {
        r->long_run = 0;
    }
    r->gap_ms[r->n_gaps++ % RHYTHM_GAPS] = ms;
}

static void take_time(struct rhythm *r, const struct rhythm_sign *s)
{
    int64_t gap_us = s->mono_us - r->sign_us;

    if (r->sign_us == 0) {
        take_start(r, r->start_us ? (s->observe_us - r->start_us) / 1000 : 0);
        r->beat_us = s->mono_us;
    } else if (r->broken) {
        r->beat_us = s->mono_us;
    } else if (gap_us >= BURST_US || s->mono_us - r->beat_us >= BURST_US) {
        int64_t ms = (gap_us >= BURST_US ? gap_us : s->mono_us - r->beat_us) / 1000;
        take_gap(r, ms > UINT32_MAX ? UINT32_MAX : (uint32_t) ms, s->kind == RHYTHM_CHECKPOINT);
        r->beat_us = s->mono_us;
    } else if (s->kind == RHYTHM_CHECKPOINT) {
        take_gap(r, (uint32_t) (gap_us > 0 ? gap_us / 1000 : 0), true);
    }
    r->broken = false;
    r->sign_us = s->mono_us;
}

int64_t rhythm_usual_us(const struct rhythm *r)
{
    return r->n_gaps < MIN_GAPS ? 0 : (int64_t) usual_gap_ms(r) * 1000;
}

static int64_t at_least(int64_t a, int64_t b)
{
    return a < b ? b : a;
}

static int64_t longest_pause_us(const struct rhythm *r)
{
    return (int64_t) longest(r->pause_ms, r->n_pauses, RHYTHM_PAUSES) * 1000;
}

static int64_t longest_save_us(const struct rhythm *r)
{
    return (int64_t) longest(r->save_ms, r->n_saves, RHYTHM_PAUSES) * 1000;
}

int64_t rhythm_longest_us(const struct rhythm *r)
{
    return at_least(longest_pause_us(r), longest_save_us(r));
}

enum rhythm_phase rhythm_phase(const struct rhythm *r)
{
    return r->finished                                 ? RHYTHM_PHASE_FINISHED :
           r->restarting || r->n_gaps < MIN_GAPS       ? RHYTHM_PHASE_START :
           r->ending                                   ? RHYTHM_PHASE_ENDING :
                                                         RHYTHM_PHASE_WORK;
}

/* What the next of @n pauses stays within, of which the longest was that long. */
static int64_t beyond_us(int64_t longest_us, uint32_t n)
{
    return LONG_FACTOR * longest_us + (n ? longest_us / (int64_t) held(n, RHYTHM_PAUSES) : 0);
}

bool rhythm_knows_pauses(const struct rhythm *r)
{
    return r->n_pauses >= MIN_PAUSES && r->n_saves >= MIN_SAVES;
}

int64_t rhythm_bound_us(const struct rhythm *r, int64_t floor_us)
{
    int64_t b = floor_us, pause_us = longest_pause_us(r), save_us = longest_save_us(r);

    if (r->n_gaps < MIN_GAPS || r->finished)
        return 0;
    b = at_least(b, GAP_FACTOR * (int64_t) longest(r->gap_ms, r->n_gaps, RHYTHM_GAPS) * 1000);
    b = at_least(b, USUAL_FACTOR * (int64_t) usual_gap_ms(r) * 1000);
    /* one of each kind may follow the other without a sign between them */
    b = at_least(b, beyond_us(pause_us, r->n_pauses) + save_us);
    b = at_least(b, beyond_us(save_us, r->n_saves) + pause_us);
    b = at_least(b, START_PERCENT * (int64_t) r->longest_start_ms * 10 + at_least(pause_us, save_us));
    if (r->restarting)
        b = at_least(b, LONG_FACTOR * (int64_t) r->longest_start_ms * 1000);
    if (!rhythm_knows_pauses(r) || r->restarting)
        b = at_least(b, 2 * floor_us);
    return r->ending ? ENDING_FACTOR * b : b;
}

int64_t rhythm_sure_us(const struct rhythm *r, int64_t bound_us)
{
    return rhythm_knows_pauses(r) ? bound_us : PATIENCE * bound_us;
}

/* ---- pace ------------------------------------------------------------------------------------------------------- */

/* @cold: what was learned of pace is of another time. */
static void pace_anew(struct rhythm *r, bool cold)
{
    r->pace_mono_us = 0;
    r->n_beats = 0;
    r->severe_run = r->well_run = 0;
    if (!cold)
        return;
    r->n_blocks = r->n_recent = 0;
    r->warm = false;
    r->slow = r->slow_severe = false;
}

static void now_slow(struct rhythm *r, double usual, double now, int64_t since_us, bool severe)
{
    r->slow = true;
    r->slow_severe = severe;
    r->slow_usual = (float) usual;
    r->slow_now = (float) now;
    r->slow_since_us = since_us;
    r->well_run = 0;
}

static void well_again(struct rhythm *r)
{
    r->slow = r->slow_severe = false;
    r->severe_run = 0;
    r->n_beats = 0; /* the block under way is of both */
}

/* Standard deviation as a part of @usual, without what lies far out. */
static double noise(const float *v, size_t n, double usual)
{
    float dev[RHYTHM_BLOCKS];

    for (size_t i = 0; i < n; i++)
        dev[i] = v[i] > usual ? (float) (v[i] - usual) : (float) (usual - v[i]);
    return usual > 0 ? 1.4826 * median(dev, n) / usual : 0;
}

/* How much slower is more than noise. A few blocks may agree by chance: then what their beats differ by says how much the
 * medians of some of them do. */
static double threshold(const struct rhythm *r, size_t n, double usual)
{
    double sigma = noise(r->block, n, usual), beats;

    if (n < FEW_BLOCKS) {
        beats = BEATS_NOISE * noise(r->recent, r->n_recent, median(r->recent, r->n_recent));
        sigma = sigma < beats ? beats : sigma;
    }
    sigma = (sigma < SIGMA_MIN ? SIGMA_MIN : sigma) * SLOW_SIGMAS;
    return 1 + (sigma < SLOW_MIN ? SLOW_MIN : sigma);
}

static void take_block(struct rhythm *r, int64_t end_us)
{
    double m = median(r->beat, r->n_beats), usual, limit;
    size_t n_base;
    bool all = true;

    r->n_beats = 0;
    if (!r->warm) {
        r->warm = true;
        return;
    }
    if (r->slow) {
        if (r->slow_severe)
            return;
        r->slow_now = (float) m;
        r->well_run = m <= r->slow_usual * (1 + SLOW_MIN / 2) ? (uint8_t) (r->well_run + 1) : 0;
        if (r->well_run >= WELL_RUN)
            well_again(r);
        return;
    }
    push(r->block, &r->n_blocks, RHYTHM_BLOCKS, (float) m);
    memmove(r->block_us, r->block_us + 1, sizeof(r->block_us) - sizeof(r->block_us[0]));
    r->block_us[SUSTAINED - 1] = r->block_begin_us;
    if (r->n_blocks < BASE_MIN + SUSTAINED || r->lead_kind == RHYTHM_ITEM)
        return; /* items differ from each other: only far more than that is told of them */
    n_base = (size_t) r->n_blocks - SUSTAINED;
    usual = median(r->block, n_base);
    limit = usual * threshold(r, n_base, usual);
    if (limit < ABOVE_ALL * largest(r->block, n_base))
        limit = ABOVE_ALL * largest(r->block, n_base);
    for (size_t i = n_base; i < r->n_blocks; i++)
        all = all && r->block[i] > limit;
    if (!all || end_us - r->block_us[0] < SUSTAINED_US)
        return;
    now_slow(r, usual, median(r->block + n_base, SUSTAINED), r->block_us[0], false);
    r->n_blocks = (uint8_t) n_base; /* the baseline stays what it was */
}

static void take_beat(struct rhythm *r, double pace, int64_t begin_us, int64_t end_us)
{
    double usual = median(r->recent, r->n_recent);
    bool severe = r->n_recent >= RECENT_MIN && pace > SEVERE * usual && pace > 2 * largest(r->recent, r->n_recent);

    if (r->slow_severe) {
        r->slow_now = (float) pace;
        r->well_run = pace < 1.5 * r->slow_usual ? (uint8_t) (r->well_run + 1) : 0;
        if (r->well_run > WELL_RUN)
            well_again(r);
        return;
    }
    if (!severe) {
        r->severe_run = 0;
        push(r->recent, &r->n_recent, sizeof(r->recent) / sizeof(r->recent[0]), (float) pace);
    } else {
        if (r->severe_run == 0)
            r->severe_us = begin_us;
        if (r->severe_run < UINT8_MAX)
            r->severe_run++;
        if (r->severe_run >= SEVERE_RUN && end_us - r->severe_us >= SEVERE_US && r->warm) {
            now_slow(r, usual, pace, r->severe_us, true);
            return;
        }
    }
    if (r->n_beats == 0)
        r->block_begin_us = begin_us;
    r->beat[r->n_beats++] = (float) pace;
    if (r->n_beats == sizeof(r->beat) / sizeof(r->beat[0]) ||
        (r->n_beats >= BLOCK_MIN && end_us - r->block_begin_us >= BLOCK_US))
        take_block(r, end_us);
}

/* Where signs come in bursts, a buffer that is flushed, what passed before the burst is the time of all of its counts: the
 * last one is waited for. */
static void take_burst(struct rhythm *r)
{
    int64_t mono_us = r->burst_mono_us - r->pace_mono_us, observe_us = r->burst_observe_us - r->pace_observe_us, off_us;
    int64_t n = r->burst_count - r->pace_count;

    if (mono_us < PACE_BEAT_US || n <= 0)
        return;
    off_us = observe_us > mono_us ? observe_us - mono_us : mono_us - observe_us;
    if (off_us <= CLOCK_SLACK_US + mono_us / 10)
        take_beat(r, (double) observe_us / (double) n, r->pace_observe_us, r->burst_observe_us);
    r->pace_mono_us = r->burst_mono_us;
    r->pace_observe_us = r->burst_observe_us;
    r->pace_count = r->burst_count;
}

static void burst_goes_on(struct rhythm *r, const struct rhythm_sign *s)
{
    r->burst_mono_us = s->mono_us;
    r->burst_observe_us = s->observe_us;
    r->burst_count = s->count;
}

/* A count below @before that is only another rank's, or one that was held up. */
static bool interleaved(int64_t before, int64_t count, int64_t stride)
{
    return before - count <= INTERLEAVE * (stride > 1 ? stride : 1);
}

static void take_count(struct rhythm *r, const struct rhythm_sign *s, int64_t before, int64_t stride)
{
    if (before >= 0 && s->count < before) {
        bool wraps = s->kind != RHYTHM_STEP || (s->total > 0 && before * 10 >= s->total * 9 && s->count * 10 <= s->total);
        if (interleaved(before, s->count, stride) && !wraps)
            return;
        pace_anew(r, !wraps); /* a loop begins again; or steps are done again, on other nodes perhaps */
    }
    if (r->pace_mono_us == 0 || r->broken) {
        r->pace_mono_us = r->burst_begin_us = s->mono_us;
        r->pace_observe_us = s->observe_us;
        r->pace_count = s->count;
        burst_goes_on(r, s);
        return;
    }
    if (s->mono_us - r->burst_begin_us < BURST_US) {
        if (s->count > r->burst_count)
            r->in_bursts = BURSTY;
        if (r->pace_mono_us == r->burst_mono_us && r->pace_count == r->burst_count) { /* what was measured ended with it */
            r->pace_mono_us = s->mono_us;
            r->pace_observe_us = s->observe_us;
            r->pace_count = s->count;
        }
        burst_goes_on(r, s);
        return;
    }
    take_burst(r); /* the one before is whole */
    r->burst_begin_us = s->mono_us;
    burst_goes_on(r, s);
    if (r->in_bursts > 0)
        r->in_bursts--;
    else
        take_burst(r);
}

/* The slot of a series, made when it is new: the one with the fewest signs goes, and those that only spoke once in a
 * while before grow old. */
static int slot_of(struct rhythm *r, const struct rhythm_sign *s)
{
    int least = 0;

    for (int i = 0; i < RHYTHM_SERIES; i++) {
        if (r->series[i].signs > 0 && r->series[i].id == s->series)
            return i;
        if (r->series[i].signs < r->series[least].signs)
            least = i;
    }
    for (int i = 0; i < RHYTHM_SERIES; i++)
        if (i != least)
            r->series[i].signs -= r->series[i].signs / 64;
    r->series[least].id = s->series;
    r->series[least].signs = 0;
    r->series[least].count = -1;
    r->series[least].stride = 0;
    r->series[least].kind = (uint8_t) s->kind;
    return least;
}

/* Steps of the run lead before anything else; among equals the one that speaks most. */
static bool leads(const struct rhythm *r, int a, int b)
{
    bool as = r->series[a].kind == RHYTHM_STEP, bs = r->series[b].kind == RHYTHM_STEP;

    return as != bs ? as : r->series[a].signs > r->series[b].signs + r->series[b].signs / 4;
}

static void take_series(struct rhythm *r, const struct rhythm_sign *s)
{
    int slot = slot_of(r, s), lead = -1;
    int64_t before = r->series[slot].count, stride = r->series[slot].stride;

    if (r->series[slot].signs < UINT32_MAX)
        r->series[slot].signs++;
    if (before >= 0 && s->count > before && s->count - before <= UINT32_MAX)
        r->series[slot].stride = (uint32_t) (s->count - before);
    if (s->count > before || !interleaved(before, s->count, stride))
        r->series[slot].count = s->count;
    for (int i = 0; i < RHYTHM_SERIES; i++)
        if (r->series[i].signs > 0 && r->series[i].id == r->lead)
            lead = i;
    if (lead < 0 || (slot != lead && leads(r, slot, lead))) {
        r->lead = s->series;
        r->lead_kind = (uint8_t) s->kind;
        pace_anew(r, true);
        before = -1;
        lead = slot;
    }
    if (slot == lead)
        take_count(r, s, before, stride);
}

void rhythm_pace(const struct rhythm *r, struct rhythm_pace *ret)
{
    *ret = (struct rhythm_pace) { .slow = r->slow,
                                  .usual_us = r->slow ? r->slow_usual : median(r->block, r->n_blocks),
                                  .now_us = r->slow ? r->slow_now : 0,
                                  .since_us = r->slow ? r->slow_since_us : 0 };
}

bool rhythm_restart_pays(const struct rhythm_gain *g)
{
    double gain, cost;

    if (g->left < 0 || g->since_checkpoint < 0 || g->start_us < 0 || g->queue_us < 0 || g->usual_us <= 0 || g->now_us <= 0)
        return false;
    gain = (g->now_us - g->usual_us) * (double) g->left;
    cost = g->usual_us * (double) g->since_checkpoint + (double) g->start_us + (double) g->queue_us;
    return gain > cost;
}

/* ---- a sign ----------------------------------------------------------------------------------------------------- */

void rhythm_sign(struct rhythm *r, const struct rhythm_sign *s)
{
    bool counts = s->kind == RHYTHM_STEP || s->kind == RHYTHM_ITEM || s->kind == RHYTHM_EPOCH;

    if (r->sign_us && s->mono_us < r->sign_us)
        return; /* not by a clock that never jumps */
    if (counts && s->count >= 0)
        take_series(r, s); /* before the time: it asks whether the gap is broken */
    take_time(r, s);
    if (s->kind == RHYTHM_RESUMED) {
        r->restarting = r->n_gaps >= MIN_GAPS;
        r->fresh = START_GAPS;
        pace_anew(r, true);
    }
    if (s->kind == RHYTHM_FINISHED)
        r->finished = true;
    else if (counts) {
        r->finished = false;
        r->ending = s->total > 0 && s->count >= s->total;
    }
}
