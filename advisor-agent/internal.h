/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_INTERNAL_H
#define ADVISOR_AGENT_INTERNAL_H

/* Shared by agent.c, incarnation.c, orders.c, past.c and logs.c; nobody else includes it. Loop thread only. */

#include <uv.h>

#include "advisor-agent/agent.h"
#include "advisor-agent/ceiling.h"
#include "advisor-agent/journal.h"
#include "advisor-agent/lease.h"
#include "advisor-agent/renew.h"
#include "advisor-agent/session.h"
#include "advisor-agent/snapshot.h"
#include "advisor-agent/steady.h"
#include "advisor-agent/tail/tail.h"
#include "common/clock.h"
#include "common/uuid.h"

#define FOCUS_MAX  64
#define VERBS_MAX  ADAPTER_VERB_MAX_
#define INTENTS_MAX 32
#define BLIND_MS   90000 /* Heartbeat.observation_age_ms: above it, one that stands by and sees goes first */

struct order;
struct attempt_log;
struct pasts;

struct agent {
    uv_loop_t *loop;
    const struct agent_config *cfg;
    struct adapter_runner *runner;
    struct adapter_host host;
    struct adapter *adapter;
    struct journal *journal;
    struct ceiling *ceiling;
    struct snapshot *snapshot;
    struct session *session;
    struct tail_manager *tails;
    struct renew *renew;
    struct lease lease;
    struct steady steady; /* read by agent_wall_us() */
    uv_timer_t timer;
    bool closing;

    char instance[ADV_UUID_SIZE];
    advisor_v1_Mode cluster_mode;
    bool orders_known; /* in this session */
    bool standing_by;  /* the control plane said last that the lease is not ours */
    int64_t session_up_us; /* 0: down */
    int64_t bound_ms;  /* landing bound */

    /* What Hello points to. */
    char scheduler[96];
    advisor_v1_Verb verbs[VERBS_MAX];
    size_t n_verbs;
    advisor_v1_Verb ceiling_verbs[16];
    char ceiling_reason[256];
    char ceiling_told[400];
    bool ceiling_changed; /* and the control plane may not know */
    advisor_v1_Ceiling ceiling_msg;
    advisor_v1_Epoch highest_msg;
    advisor_v1_Resume resume_msg;
    advisor_v1_OpenIntent intents_msg[INTENTS_MAX];
    char *strings[2];
    bool described;
    bool resumable; /* the control plane had all of the snapshot's digest in `resume_epoch` */

    /* Polling. */
    bool describing, observing, reading_nodes;
    bool gone_forgotten; /* what the journal knew and the first full look no longer showed */
    int64_t next_poll_us, next_nodes_us, next_describe_us;
    bool late_told; /* that ended jobs may be forgotten between two polls */
    int64_t observe_began_us, observe_began_boot_us, observe_began_wall_us; /* the poll under way */
    int64_t good_read_us; /* begun; 0: never */
    int64_t look_boot_us, look_wall_us; /* at or before each job record was read; 0: never */
    bool accounting;        /* history can be asked for */
    struct pasts *pasts;    /* past.c; NULL: none yet */
    int64_t forget_after_s; /* how long the scheduler keeps an ended job; 0: not known */
    unsigned inspecting;
    struct focus {
        char id[JOURNAL_JOB_SIZE];
        bool busy;
        int64_t since_us; /* it came into focus, or something about it changed */
        int64_t due_us;
    } focus[FOCUS_MAX];
    size_t n_focus, focus_turn;
    unsigned focus_looks; /* under way, also at jobs that have left the list */
    int64_t focus_until_us;

    struct journal_view *watchdog; /* what it does to our holds; NULL in tests */
    bool watchdog_unread;
    uint64_t watchdog_seq; /* its newest step that was seen open */
    int64_t watchdog_free_boot_us; /* that one is not waited for any longer than this */
    int64_t next_watchdog_us, next_holds_us;
    bool holds_swept; /* of those that surely never came about, none is left on record */
    int64_t next_sweep_us;

    struct order *orders;
    unsigned order_number;
    bool old_intents_closed, reported_again;
    int64_t late_look_for_us; /* lease.settled_boot_us for which a poll out of turn was asked */
    struct unwritten *unwritten; /* outcomes that the journal did not take */
    int64_t unwritten_due_us, unwritten_wait_us;

    struct attempt_log *logs;
    int64_t acked_us; /* the control plane's last sign of life */
    uint64_t logs_left; /* log bytes that had left by then */
};

/* The wall clock without its jumps (steady.h): for the journal and for what is counted from it. */
static inline int64_t agent_wall_us(struct agent *a)
{
    return steady_wall_us(&a->steady, adv_wall_us(), adv_boot_us());
}

/* Heartbeat.observation_age_ms: what is older than two polls and a bit is stale. Who has never seen the scheduler
 * (@good_read_us 0) is blind, as one whose last look is very long ago: the clock counts from the boot, and says nothing. */
static inline uint64_t agent_unseen_ms(int64_t good_read_us, int64_t now_us, int64_t poll_ms)
{
    int64_t age_us = now_us - good_read_us, fresh_us = 2 * poll_ms * 1000 + 30000000;

    if (!good_read_us)
        return BLIND_MS + 1;
    return age_us > fresh_us ? (uint64_t) (age_us / 1000) : 0;
}

#define POLL_SLOWEST_US (BLIND_MS * INT64_C(1000) / 2)

/* The time to the next poll: longer while the scheduler is strained, but not so long that it forgets ended jobs in between
 * (@forget_us, 0: not known), or that we would look blind (agent_unseen_ms) though each look succeeds. */
static inline int64_t agent_poll_wait_us(int64_t poll_us, unsigned pace, int64_t forget_us)
{
    int64_t slower = poll_us * pace;

    slower = slower < POLL_SLOWEST_US ? slower : POLL_SLOWEST_US;
    if (forget_us && slower > forget_us / 3)
        slower = forget_us / 3;
    return slower > poll_us ? slower : poll_us;
}

#define FOCUS_WAIT_MAX_US 3000000 /* an end in focus is to be acted upon within three seconds or so */

/* The time to the next look at a job in focus: short at first, when its end is likely, then a part of the time that it has
 * been in focus, so that a quarter of an hour of suspicion costs a look in two or three seconds. @usual_us: the shortest;
 * @poll_us: the longest. */
static inline int64_t agent_focus_wait_us(int64_t age_us, int64_t usual_us, int64_t poll_us, unsigned pace)
{
    int64_t wait = age_us / 32 < FOCUS_WAIT_MAX_US ? age_us / 32 : FOCUS_WAIT_MAX_US;

    wait = wait < usual_us ? usual_us : wait;
    return (wait < poll_us ? wait : poll_us) * pace;
}

/* agent.c */
void agent_job_read(struct agent *a, const struct adapter_job_detail *d);
void agent_look_at_ceiling(struct agent *a);
void agent_job_gone(struct agent *a, const char *id);
advisor_v1_Epoch agent_epoch_msg(struct journal_epoch e);
advisor_v1_Verb agent_verb_msg(enum adapter_verb v);

/* incarnation.c: first submit time of @job if it is certain, else 0; learns it and follows it over restarts. */
int64_t agent_first_submit(struct agent *a, const struct adapter_job *job);

/* orders.c: carries advice out. */
void orders_take(struct agent *a, const advisor_v1_AdviceOrder *o);
void orders_tick(struct agent *a);
void orders_report_again(struct agent *a);
void orders_session_lost(struct agent *a);
void orders_wake(struct agent *a, const char *job_id);
bool orders_watchdog_at_work(const struct agent *a);
bool orders_writing(const struct agent *a); /* a command may be under way */
void orders_authorize(void *ctx, const struct adapter_write *w, adapter_authorize_cb cb, void *arg);
void orders_free(struct agent *a);

/* past.c: asks accounting how attempts ended that the scheduler forgot: one that was in the last look, or one that only the
 * journal knows of. */
void past_vanished(struct agent *a, const advisor_v1_JobObservation *o);
void past_unseen(struct agent *a, const char *job, const struct journal_life *l);
/* It was seen to be cancelled: asks by whom. */
void past_cancelled(struct agent *a, const struct adapter_job *job);
void past_tick(struct agent *a, int64_t now);
void past_free(struct agent *a);

/* logs.c: follows output files. */
int logs_start(struct agent *a, struct adv_err *err);
void logs_update(struct agent *a);
void logs_ready(struct agent *a);
void logs_opened(struct agent *a);
void logs_acked(struct agent *a); /* the control plane is alive, and its store too */
void logs_tell_again(struct agent *a); /* the control plane asks for all that there is: it may know of no log either */
void logs_free(struct agent *a);

#endif
