/* SPDX-License-Identifier: Apache-2.0 */
/* The action lease: two hosts of one cluster, each with an agent and a journal of its own, one control plane that grants
 * the lease to one of them, and a scheduler at which a command may land after the one who sent it was killed.
 *
 * One failed job is to be requeued, once. There is no compare-and-set: a requeue that lands on a job that runs again
 * kills it. What follows after the requeue (constrain, release, or the owner's own release) is one step of the
 * environment, which may come at any time.
 *
 * A host that is frozen is a host that takes no step while ticks pass; this can be between any two of its steps, so also
 * between the lease check and the fork, and between the fork and the exec. A crash takes the agent's memory and leaves
 * the journal; the next life begins at once, or never, when it takes no further step. */

#include "common.pml"

#define LEASE 3             /* ticks; long enough to settle and act within one */
#define BOUND 1             /* a command lands in the tick in which it was sent or in the next */
#define WAIT (BOUND + 1)    /* ticks after which it surely does not land any more */
#define NO_READ 7           /* settling, and no good read yet */

mtype:job = { FAILED, HELD, RUNNING };
mtype:ask = { IDLE, SENT, GRANT };
mtype:step = { LOOK, READ, JOURNALLED, WRITING };

mtype:job job = FAILED;     /* attempt 0 has failed; attempt 1 is held; attempt 1 runs */

byte holder = NONE;         /* the control plane: whose lease it is, and how much is left of it */
byte srv_left;

PROPERTY(begun_in_lease);
PROPERTY(started_in_lease);
PROPERTY(landed_in_lease);
PROPERTY(one_requeue);
PROPERTY(one_actor);

typedef host {
    bool open;              /* the journal: an intent without outcome */
    bool held;              /* all else is memory */
    byte left;              /* of the lease, as the agent counts it */
    mtype:ask ask = IDLE;   /* Hello or a heartbeat, and its answer */
    byte asked;             /* what a grant is worth, counted from when it was asked for */
    byte settle;            /* 0: settled; else ticks to go */
    mtype:step at = LOOK;
    bool stale;             /* what was read is older than this tick */
    byte wait;              /* until the command of this life cannot land any more */
    bool child;             /* forked, has not sent its command */
    byte kill;              /* ticks until the child's own alarm */
    byte now, late;         /* commands on their way, sent in this tick or in the one before */
#ifdef NO_DEATH_SIGNAL
    bool orphan;
    byte orphan_kill;
#endif
#ifdef RESIDUAL_SUSPEND
    bool asleep;
#endif
}
host H[2];

#ifdef NO_LANDING_BOUND
#define MARGIN 0
#else
#define MARGIN BOUND
#endif

#ifdef NO_LEASE_CHECK
#define COVERED(h) true
#else
#define COVERED(h) (H[h].held && H[h].left > MARGIN)
#endif
#define MAY_WRITE(h) (COVERED(h) && H[h].settle == 0)

/* Can @h still change the job, without asking again? */
#define ACTS(h) ((H[h].child && H[h].kill > 0) || H[h].now + H[h].late > 0 || (H[h].held && MAY_WRITE(h)))
/* The lease is @h's in the eyes of the one who grants it. */
#define HIS(h) (holder == h && srv_left > 0)
#ifdef HARM_ONLY            /* leave out what only leads to harm, look for the harm itself */
#define MUST_BE_HIS(h) true
#else
#define MUST_BE_HIS(h) HIS(h)
#endif

#define PENDING(h) (H[h].child || H[h].at != LOOK || H[h].now + H[h].late > 0)
#ifdef NO_DEATH_SIGNAL
#define ORPHANS (H[0].orphan || H[1].orphan)
#else
#define ORPHANS false
#endif
/* Attempt 1 runs and nothing is on its way: nothing more can happen. */
#define OVER (job == RUNNING && !PENDING(0) && !PENDING(1) && !ORPHANS)

#ifdef RESIDUAL_PAUSED_VM   /* the whole machine stands still, all its clocks included */
bool paused;
#define CLOCK_RUNS(h) (h == 1 || !paused)
#else
#define CLOCK_RUNS(h) true
#endif

inline pass(h) {
    if
    :: CLOCK_RUNS(h) ->
        DEC(H[h].left); DEC(H[h].asked); DEC(H[h].wait);
#ifdef RESIDUAL_SUSPEND     /* ITIMER_REAL stands still, CLOCK_BOOTTIME does not */
        if
        :: H[h].asleep
        :: else -> DEC(H[h].kill)
        fi;
#else
        DEC(H[h].kill);
#endif
#ifdef NO_DEATH_SIGNAL
        DEC(H[h].orphan_kill);
#endif
        if
        :: H[h].settle == NO_READ
        :: else -> DEC(H[h].settle)
        fi;
        H[h].stale = (H[h].at == READ || H[h].at == JOURNALLED)
    :: else
    fi;
    H[h].late = H[h].now;
    H[h].now = 0
}

active proctype Tick()
{
end:
    do
    :: d_step { !OVER -> DEC(srv_left); pass(0); pass(1) }
#ifdef RESIDUAL_PAUSED_VM
    :: d_step { !OVER -> paused = !paused }
#endif
    od
}

inline forget_lease(h) {
    H[h].held = false;
    H[h].left = 0;
    H[h].ask = IDLE;
    H[h].asked = 0
}

/* Answers come at once: a grant counts from when it was asked for, so one that comes late is worth less from then on, and
 * nothing before. */
inline receive(h) {
#ifdef COUNT_FROM_ANSWER
    H[h].left = LEASE;
#else
    H[h].left = H[h].asked;
#endif
    H[h].held = true;
    H[h].ask = IDLE;
    H[h].asked = 0
}

inline grant(h) {
#if !defined(NO_SETTLE) && !defined(NO_TAKEOVER_SETTLE)
    if
    :: holder != h && holder != NONE -> H[h].settle = NO_READ
    :: else
    fi;
#endif
#if !defined(NO_SETTLE) && !defined(NO_RESTART_SETTLE)
    if
    :: !H[h].held && H[h].open -> H[h].settle = NO_READ
    :: else
    fi;
#endif
    holder = h;
    srv_left = lease;
#ifdef COUNT_FROM_ANSWER
    H[h].ask = GRANT
#else
    receive(h)
#endif
}

inline answer(h) {
#ifdef LEASE_SHORTENED      /* what is granted is worth less now, from when it was asked for */
    if
    :: H[h].asked > LEASE - lease -> H[h].asked = H[h].asked - (LEASE - lease)
    :: else -> H[h].asked = 0
    fi;
#endif
    if
#ifdef NO_HOLDER_WAIT
    :: true -> grant(h)
#else
    :: holder == h || srv_left == 0 -> grant(h)
    :: else -> forget_lease(h)      /* stand by */
#endif
    fi
}

active proctype ControlPlane()
{
    byte lease = LEASE;
end:
    do
    :: d_step { H[0].ask == SENT -> answer(0) }
    :: d_step { H[1].ask == SENT -> answer(1) }
    :: d_step {             /* restarted: sessions are gone; leases that were given run on */
        !OVER ->
#ifdef LEASE_SHORTENED      /* with a lower agent.lease than before */
        lease = 1;
#endif
#ifdef NO_LOAD_WAIT
        srv_left = 0;
#else
        srv_left = lease;
#endif
        H[0].ask = IDLE; H[0].asked = 0;
        H[1].ask = IDLE; H[1].asked = 0
       }
    od
}

inline forget_step(h) {
    H[h].at = LOOK;
    H[h].stale = false
}

proctype Agent(byte h)
{
end:
    do
    :: d_step { H[h].ask == IDLE && !OVER -> H[h].ask = SENT; H[h].asked = LEASE }
#ifdef COUNT_FROM_ANSWER
    :: d_step { H[h].ask == GRANT -> receive(h) }
#endif
    :: d_step {             /* a read shows that the job has failed; it is also the good read that settling needs */
        H[h].at == LOOK && H[h].held && job == FAILED ->
        H[h].at = READ;
        if
        :: H[h].settle == NO_READ -> H[h].settle = WAIT
        :: else
        fi
       }
    :: d_step {             /* the gate */
        H[h].at == READ ->
        if
        :: MAY_WRITE(h) ->          /* one of an earlier life is settled by now */
            MUST(begun_in_lease, MUST_BE_HIS(h));
            H[h].open = true;
            H[h].at = JOURNALLED
        :: else ->
#ifndef NO_REREAD
            forget_step(h)
#endif
        fi
       }
    :: d_step {             /* asked again after the journal was synced; and is what was read still fresh? */
        H[h].at == JOURNALLED ->
        if
#if defined(NO_REREAD) || defined(NO_FRESH_CHECK)
        :: MAY_WRITE(h) ->
#else
        :: MAY_WRITE(h) && !H[h].stale ->
#endif
            H[h].child = true;
            H[h].kill = (H[h].left > MARGIN -> H[h].left - MARGIN : 0);
            H[h].at = WRITING;
#ifdef OUTCOME_FROM_START
            H[h].wait = WAIT;
#endif
        :: else ->
            H[h].open = false;
            H[h].at = LOOK
        fi;
        H[h].stale = false
       }
    :: d_step {             /* the child: its alarm, or it sends the command, and then ends or is killed */
        H[h].child ->
        if
#ifndef NO_CHILD_ALARM
        :: H[h].kill == 0
        :: H[h].kill > 0 ->
#else
        :: true ->
#endif
            MUST(started_in_lease, MUST_BE_HIS(h));
            H[h].now++;
#if !defined(NO_OUTCOME_WAIT) && !defined(OUTCOME_FROM_START)
            H[h].wait = WAIT
#endif
        fi;
        H[h].child = false;
        H[h].kill = 0
       }
    :: d_step {             /* the outcome: seen, or it can no longer come */
        H[h].at == WRITING && !H[h].child && (H[h].wait == 0 || job != FAILED) ->
        H[h].at = LOOK;
        H[h].open = false;
        H[h].wait = 0
       }
    :: d_step {             /* a crash, and the next life */
#ifdef NO_DEATH_SIGNAL
        !OVER && !(H[h].orphan && H[h].child) ->
        if
        :: H[h].child ->
            H[h].orphan = true;
            H[h].orphan_kill = H[h].kill
        :: else
        fi;
#else
        !OVER ->
#endif
        forget_lease(h);
        forget_step(h);
        H[h].settle = 0;
        H[h].child = false;
        H[h].kill = 0;
        H[h].wait = 0;
#ifdef NO_JOURNAL
        H[h].open = false
#endif
       }
#ifdef NO_DEATH_SIGNAL
    :: d_step {
        H[h].orphan ->
        if
        :: H[h].orphan_kill == 0
        :: else -> H[h].now++
        fi;
        H[h].orphan = false;
        H[h].orphan_kill = 0
       }
#endif
#ifdef RESIDUAL_SUSPEND
    :: d_step { !OVER -> H[h].asleep = !H[h].asleep }
#endif
    od
}

inline land(h, flying) {
    flying--;
    MUST(landed_in_lease, MUST_BE_HIS(h));
    MUST(one_requeue, job != RUNNING);
    job = HELD                              /* a job that is held is left alone by the scheduler */
}

active proctype Scheduler()
{
end:
    do
    :: d_step { H[0].now > 0 -> land(0, H[0].now) }
    :: d_step { H[0].late > 0 -> land(0, H[0].late) }
    :: d_step { H[1].now > 0 -> land(1, H[1].now) }
    :: d_step { H[1].late > 0 -> land(1, H[1].late) }
    :: job == HELD -> job = RUNNING
    od
}

#ifndef HARM_ONLY
active proctype Watch()
{
end:
    d_step { ACTS(0) && ACTS(1) -> MUST(one_actor, false) }
}
#endif

init { atomic { run Agent(0); run Agent(1) } }

#if REACH == 1   /* a command lands after the one who sent it crashed */
NEVER(H[0].late > 0 && !H[0].held)
#elif REACH == 2   /* one host crashed over its write, the other has carried on */
NEVER(job == RUNNING && holder == 1 && H[0].open && !H[1].open)
#elif REACH == 3   /* the other is about to write */
NEVER(H[1].at == JOURNALLED && H[0].open && holder == 1)
#elif REACH == 4   /* a child thaws when the lease is another's */
NEVER(H[0].child && H[0].kill == 0 && holder == 1)
#endif
