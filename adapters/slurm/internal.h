/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_ADAPTERS_SLURM_INTERNAL_H
#define ADV_ADAPTERS_SLURM_INTERNAL_H

/* Shared by the files of the Slurm adapter; nobody else includes it. Loop thread only. */

#include "adapters/slurm/conf.h"
#include "adapters/slurm/parse.h"
#include "adapters/slurm/slurm.h"
#include "common/failpoint.h"

#define SLURM_OUTPUT_MAX  (64u << 20) /* 10,000 jobs are 2 MB */
#define SLURM_SITE_AGE_US (60 * INT64_C(1000000))
#define SLURM_ARGV_MAX    16
#define SLURM_FRESH_US    500000 /* a read older than this is not written on */

struct slurm_cmd;

/* strain.c; zero is at rest */
struct slurm_strain {
    unsigned pace; /* how many times longer than usual reads are apart that nothing waits for */
    unsigned slow_run; /* slow or missing answers in a row */
    int64_t changed_us;
};
/* A command to slurmctld ended: with any answer, a refusal too, or with none. */
void slurm_strain_note(struct slurm_strain *s, int64_t started_us, int64_t took_us, bool answered);
unsigned slurm_strain_pace(const struct slurm_strain *s);

struct slurm_adapter {
    struct adapter base;
    struct adapter_host *host;
    struct slurm_conf *conf;
    char *bin_dir, *user;
    bool root;
    int landing_bound_ms, command_deadline_ms, action_deadline_ms, max_parallel;

    unsigned refs; /* one of the owner, one of each task */
    bool closing;

    struct slurm_cmd *queue, **queue_tail;
    int running;
    struct slurm_strain strain;

    int json; /* 0: not known, 1: --json=v0.0.42 works, -1: it does not */
    bool site_known;
    int64_t site_read_us;
    struct slurm_site site;

    uint64_t *live; /* sorted keys of jobs that were alive in the last complete observation */
    size_t n_live;
    unsigned suspect; /* observations in a row in which most of them were missing */
};

/* A task is one operation in progress: a resume function that is called again after each command or pause. */
struct slurm_task {
    struct slurm_adapter *a;
    void (*resume)(struct slurm_task *t);
    int step;
    /* the last command; the texts are the task's own and may be cut or stolen */
    enum adapter_run_end end;
    bool accounting;    /* slurmctld has no part in it */
    bool stale;         /* a write that waited too long and was not started */
    int64_t started_us; /* when it left the queue */
    int exit_code;
    char *out, *err;
    size_t out_len;
};

void slurm_task_init(struct slurm_task *t, struct slurm_adapter *a, void (*resume)(struct slurm_task *t));
void slurm_task_done(struct slurm_task *t);
/* All three call resume later, once. */
void slurm_task_start(struct slurm_task *t);
void slurm_task_sleep(struct slurm_task *t, int ms);
/* argv[0] is a bare tool name. */
void slurm_task_run(struct slurm_task *t, const char *const argv[]);
/* A write goes before all reads that wait. It is not started when it has waited longer than SLURM_FRESH_US:
 * then `stale` is set, and the task reads again. */
void slurm_task_write(struct slurm_task *t, const char *const argv[], int64_t kill_at_boot_us);
/* Did the last command exit with 0? */
bool slurm_task_ok(const struct slurm_task *t);
/* What it said, as an error. */
int slurm_task_error(const struct slurm_task *t, const char *what, struct adv_err *err);

/* Can we see all jobs, by what slurmctld itself says now? @fresh: do not use what was read earlier. */
typedef void (*slurm_sight_cb)(void *arg, enum adapter_sight sight, enum adapter_privilege privilege,
                               const struct adv_err *err);
void slurm_sight(struct slurm_adapter *a, bool fresh, bool want_privilege, slurm_sight_cb cb, void *arg);

/* A fresh read of one job. FOUND_GONE only after a second look with full sight before and after. */
void slurm_find(struct slurm_adapter *a, const char *id, adapter_inspect_cb cb, void *arg);

void slurm_log(struct slurm_adapter *a, enum adapter_log_level level, const char *fmt, ...) ADV_PRINTF(3, 4);

void slurm_observe(struct adapter *base, adapter_observe_cb cb, void *arg);
void slurm_history(struct adapter *base, const struct adapter_attempt_id *attempts, size_t n, adapter_history_cb cb, void *arg);
void slurm_act(struct adapter *base, const struct adapter_action *action, adapter_act_cb cb, void *arg);

static inline struct slurm_adapter *slurm_of(struct adapter *base)
{
    return ADV_CONTAINER_OF(base, struct slurm_adapter, base);
}
static inline int64_t slurm_now_us(const struct slurm_adapter *a)
{
    return a->host->runner->ops->mono_us(a->host->runner);
}

/* ---- guard.c: pure ---- */

/* The verdict before a write: OK means go on. */
enum adapter_reason slurm_guard(const struct adapter_action *action, const struct adapter_job_detail *before,
                                const char **ret_guard);
/* The states in which the verb may be sent. */
unsigned slurm_verb_states(enum adapter_verb verb);
/* Was the job that PRESERVE brings back proven to have failed? */
bool slurm_proven_failure(const struct adapter_job *job);
/* Why an ended job is not in the wanted state. */
enum adapter_reason slurm_end_reason(enum adapter_job_state state);
/* For tests: is this guard switched off? Always false in a build without failpoints. */
bool slurm_guard_off(const char *name);

/* ---- constrain.c: pure ---- */

#define SLURM_NOTES_MAX 32
struct slurm_plan {
    enum adapter_reason reason; /* OK: send it; ALREADY_SATISFIED; CONSTRAINT_UNSATISFIABLE; INVALID */
    char *exclude;              /* the whole new list */
    bool set_exclude;
    int64_t start_s; /* 0: leave StartTime alone */
    char **ours;
    size_t n_ours;
    char *notes[SLURM_NOTES_MAX];
    size_t n_notes;
};
/* @reserved: nodes of the job's reservation, when it has one. */
void slurm_plan_constrain(const struct adapter_action *action, const struct adapter_job_detail *before,
                          const struct adapter_node_list *nodes, const char *reserved, struct slurm_plan *ret);
void slurm_plan_done(struct slurm_plan *p);
/* Is the plan visible in @after? */
bool slurm_plan_reached(const struct slurm_plan *p, const struct adapter_job_detail *after);

#endif
