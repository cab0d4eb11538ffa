/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_RHYTHM_H
#define CONTROLPLANE_DOMAIN_RHYTHM_H

/* The rhythm of one attempt, learned from nothing but its own signs of life: step, item and epoch lines, checkpoints. Two
 * questions are answered by it: is this silence longer than any that this attempt has had a reason for, and has it become
 * slow, measured by itself?
 *
 * Signs come with two times. `mono_us` is when we heard of it, by a clock that never jumps: silence is measured by that.
 * `observe_us` is when it was seen at the cluster: pace is measured by that, and only where both clocks agree on how much
 * time has passed, so neither a clock that was set nor bytes that came late look like a slow machine.
 *
 * What is learned, each by itself: the gaps between signs of ordinary work; pauses, which are single gaps far beyond them,
 * those that end in a checkpoint apart from all others (evaluation, data); how long the attempt needed to start. Signs
 * less than a second apart are one: a flush of a full buffer is one sign, however many lines it has.
 *
 * Robust: medians and the longest of the last many; three long gaps in a row are a new rhythm and no pauses. Memory is
 * the struct and nothing else. Pure: no clock, no allocation.
 *
 * Thread: the owner's.  Blocks: no. */

#include <stdbool.h>
#include <stdint.h>

#define RHYTHM_GAPS   64
#define RHYTHM_PAUSES 8  /* of each kind */
#define RHYTHM_BLOCKS 24 /* medians of pace that make the baseline */
#define RHYTHM_SERIES 4

enum rhythm_sign_kind { RHYTHM_STEP, RHYTHM_ITEM, RHYTHM_EPOCH, RHYTHM_CHECKPOINT, RHYTHM_RESUMED, RHYTHM_FINISHED };

struct rhythm_sign {
    enum rhythm_sign_kind kind;
    uint32_t series; /* which counter speaks: signs of different counters are never compared */
    int64_t count;   /* step, item or epoch; -1: not said */
    int64_t total;   /* -1: not said */
    int64_t mono_us;
    int64_t observe_us;
};

enum rhythm_phase {
    RHYTHM_PHASE_START,    /* nothing learned yet, or it starts again inside the attempt */
    RHYTHM_PHASE_WORK,     /* ordinary work */
    RHYTHM_PHASE_ENDING,   /* its counter is at its total: what follows has no rhythm yet */
    RHYTHM_PHASE_FINISHED, /* it said that it is done */
};

struct rhythm {
    int64_t start_us; /* by the cluster's clock; 0: not known */
    int64_t sign_us;  /* mono: newest sign; 0: none yet */
    int64_t beat_us;  /* mono: sign that the next gap is counted from */
    bool broken;      /* what is between the newest sign and the next says nothing */
    bool ending, finished, restarting;
    uint8_t fresh;        /* gaps that still belong to the start */
    uint8_t long_run;     /* long gaps in a row */
    uint32_t longest_start_ms;
    uint32_t n_gaps, n_pauses, n_saves; /* ever */
    uint32_t gap_ms[RHYTHM_GAPS];
    uint32_t pause_ms[RHYTHM_PAUSES], save_ms[RHYTHM_PAUSES];

    struct {
        uint32_t id, signs, stride;
        int64_t count;
        uint8_t kind;
    } series[RHYTHM_SERIES];

    /* pace of the leading series, microseconds for one count */
    uint32_t lead;
    uint8_t lead_kind;
    int64_t pace_mono_us, pace_observe_us, pace_count; /* where the current beat began; pace_mono_us 0: at the next sign */
    int64_t burst_begin_us, burst_mono_us, burst_observe_us, burst_count; /* newest signs, less than a second together; begin: mono */
    uint8_t in_bursts; /* signs until they are taken for single ones again; 0: they are */
    float beat[8]; /* of the unfinished block */
    uint8_t n_beats;
    bool warm; /* the first block is over */
    float block[RHYTHM_BLOCKS]; /* oldest first */
    uint8_t n_blocks;
    float recent[16]; /* single beats, oldest first */
    uint8_t n_recent;
    uint8_t severe_run, well_run;
    int64_t severe_us; /* observe: begin of the run */
    int64_t block_us[3]; /* observe: when the last blocks began */
    int64_t block_begin_us;

    bool slow;
    bool slow_severe;
    float slow_usual, slow_now; /* of the verdict */
    int64_t slow_since_us; /* observe */
};

/* @start_us: when the attempt began, or was heard of first, by the cluster's clock; 0: not known. */
void rhythm_init(struct rhythm *r, int64_t start_us);
void rhythm_sign(struct rhythm *r, const struct rhythm_sign *s);

/* Nobody listened for a while, or the attempt was stopped: the time up to the next sign is nobody's silence. */
void rhythm_break(struct rhythm *r);

enum rhythm_phase rhythm_phase(const struct rhythm *r);

/* The silence that this attempt has had no reason for so far. 0: not known, so no silence means anything. Reasons are its
 * ordinary gaps, a checkpoint and another pause one after the other, each far longer than those seen (the further, the fewer
 * these are), and a start like its own: a program may begin anew inside, and say so only when it is done, perhaps right
 * after a pause. Never below @floor_us, and never below twice that before it has shown pauses and checkpoints: the first of them
 * may be long. */
int64_t rhythm_bound_us(const struct rhythm *r, int64_t floor_us);

/* It has shown pauses and checkpoints: what a pause of it may be like is known. */
bool rhythm_knows_pauses(const struct rhythm *r);

/* After how long a silence of bound @bound_us what is measured of its devices may count as a second witness: while its pauses
 * are not known, later. */
int64_t rhythm_sure_us(const struct rhythm *r, int64_t bound_us);

/* The usual time between signs; 0: not known. */
int64_t rhythm_usual_us(const struct rhythm *r);
/* The longest pause that it came back from, checkpoints included; 0: none. */
int64_t rhythm_longest_us(const struct rhythm *r);

struct rhythm_pace {
    bool slow;
    double usual_us, now_us; /* for one count */
    int64_t since_us;        /* by the cluster's clock */
};
/* Slow means: for ten minutes or more, in three blocks of up to eight beats, slower than 1.15 times the usual, than its own
 * noise explains, and than all that was seen before; or, for ten minutes and four beats, four times slower. It ends when
 * the usual pace is back, or when the attempt starts again. */
void rhythm_pace(const struct rhythm *r, struct rhythm_pace *ret);

/* Whether restarting a slow attempt would pay: what is left takes less time at the usual pace, by more than the work
 * that is lost, the time in which it starts again, and the time in the queue. All must be known: a value below 0 is not. */
struct rhythm_gain {
    int64_t left;               /* counts to do */
    int64_t since_checkpoint;   /* counts that would be done again */
    int64_t start_us, queue_us; /* expected */
    double usual_us, now_us;
};
bool rhythm_restart_pays(const struct rhythm_gain *g);

#endif
