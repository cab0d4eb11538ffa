/* SPDX-License-Identifier: Apache-2.0 */
/* Advice is state: its generation rises when what is wanted changes, orders go down, statuses come back, and either may be
 * on its way while the other changes. One advice, one agent, a session that breaks and is made anew under a new epoch, and
 * a store that may be put back to an earlier generation and then mints the same numbers again, for something else.
 *
 * The recovery is two steps: constrain (which may also turn out impossible) and release. What each generation is really
 * about is a version that no message carries: it is there for the properties only.
 *
 * With -DLIVE the store is not put back, sessions break finitely often, and what is wanted must be answered. */

#include "common.pml"

#define GENERATIONS 3
#define VERSIONS 4
#define SESSIONS 3

mtype:disposition = { OPEN, CONVERGED, ABANDONED };
mtype:step = { LOOK, DECIDED, WRITING };
mtype:verb = { CONSTRAIN, RELEASE };

chan down = [1] of { byte, bool, byte };                /* an order: generation, restart?, version */
chan up = [1] of { byte, byte, mtype:disposition, byte }; /* a status: generation, epoch, what, version */

/* The control plane. */
byte generation = 1, epoch;
bool restart = true;
mtype:disposition recorded = OPEN;
bool session, ordered;      /* the order of this generation was sent in this session */
byte backup_generation;     /* 0: none */
bool backup_restart;
byte backup_version;

/* For the properties: what the generation stands for, the versions so far, and those that were wanted since the grant. */
byte version = 1, versions = 1;
bool valid[VERSIONS + 1];

PROPERTY(stale_changes_nothing);
PROPERTY(no_withdrawn_write);
PROPERTY(released_as_ordered);
PROPERTY(decided_as_ordered);

typedef order {
    byte generation, version, epoch;    /* epoch: under which it was received */
    bool restart, stale, done;
    bool constrained;
};

/* The agent. */
order X;
byte in_place;              /* for the properties: the version as which the job is constrained */
byte lease_epoch;
mtype:step at = LOOK;
mtype:verb verb;
byte act_generation, act_epoch, act_version; /* the order for which the step under way was decided */
mtype:disposition box = OPEN;           /* a status that is not acknowledged */
byte box_generation, box_epoch, box_version;
bool box_sent;

/* Needs no guard: a status that was not sent is replaced by the next one. */
inline tell(what, about) {
    box = what;
    box_generation = X.generation;
    box_epoch = X.epoch;
    box_version = about;
    box_sent = false;
    X.done = true
}

inline end_session() {
    do
    :: nempty(down) -> down?_,_,_
    :: empty(down) -> break
    od;
    do
    :: nempty(up) -> up?_,_,_,_
    :: empty(up) -> break
    od;
    session = false;
    ordered = false;
#ifdef NO_RESEND
    if
    :: box_sent -> box = OPEN; box_generation = 0; box_epoch = 0; box_version = 0
    :: else
    fi;
#endif
    box_sent = false;
    X.stale = true
}

inline box_acked() {
    if
    :: box_sent -> box = OPEN; box_sent = false; box_generation = 0; box_epoch = 0; box_version = 0
    :: else
    fi
}

active proctype ControlPlane()
{
    byte g, e, v;
    mtype:disposition d;
end:
    do
    :: d_step {             /* Hello and Welcome */
        !session && epoch < SESSIONS ->
        session = true;
        epoch++;
        lease_epoch = epoch;
        ordered = false;
        v = 1;
        do
        :: v <= VERSIONS -> valid[v] = (v == version); v++
        :: else -> break
        od;
        v = 0
       }
    :: d_step { session && epoch < SESSIONS -> end_session() }
    :: d_step { session && !ordered && empty(down) && recorded == OPEN -> ordered = true; down!generation,restart,version }
    :: d_step {             /* something else is wanted */
        generation < GENERATIONS && versions < VERSIONS && recorded == OPEN ->
        generation++;
        versions++;
        version = versions;
        valid[version] = true;
        ordered = false;
        if
        :: restart = true
        :: restart = false
        fi
       }
    :: d_step {
        up?[g,e,d,v] ->
        up?g,e,d,v;
        box_acked();
        if
#if defined(NO_GENERATION_CHECK) && defined(NO_STATUS_EPOCH)
        :: recorded == OPEN ->
#elif defined(NO_GENERATION_CHECK)
        :: recorded == OPEN && e == epoch ->
#elif defined(NO_STATUS_EPOCH)
        :: recorded == OPEN && g == generation ->
#else
        :: recorded == OPEN && g == generation && e == epoch ->
#endif
            MUST(stale_changes_nothing, v == version);
            recorded = d
        :: else
        fi;
        g = 0; e = 0; v = 0; d = OPEN
       }
#ifndef LIVE
    :: d_step {
        backup_generation == 0 && recorded == OPEN ->
        backup_generation = generation;
        backup_restart = restart;
        backup_version = version
       }
    :: d_step {             /* the backup is put back */
        backup_generation > 0 && backup_generation <= GENERATIONS && epoch < SESSIONS ->
        generation = backup_generation;
        restart = backup_restart;
        version = backup_version;
        recorded = OPEN;
        backup_generation = GENERATIONS + 1;    /* once */
        end_session()
       }
#endif
    od
}

#ifdef NO_GATE_EPOCH
#define CONFIRMED true
#else
#define CONFIRMED (!X.stale && X.epoch == lease_epoch)
#endif
#ifdef NUMBER_ONLY          /* a store that was put back mints the same number again */
#define STILL (act_generation == X.generation)
#else
#define STILL (act_generation == X.generation && act_epoch == X.epoch)
#endif
#ifdef NO_GATE_GENERATION
#define SAME true
#else
#define SAME STILL
#endif
#ifdef NO_RESULT_GENERATION
#define STILL_ASKED true
#else
#define STILL_ASKED STILL
#endif

inline look_again() {
    at = LOOK;
    act_generation = 0;
    act_epoch = 0;
    act_version = 0;
    verb = CONSTRAIN
}

active proctype AgentSession()
{
    byte g, v;
    bool r;
end:
    do
    :: d_step {             /* an order */
        down?[g,r,v] ->
        down?g,r,v;
        if
        :: g < X.generation
        :: else ->
            if
#ifdef NO_RETELL
            :: g > X.generation -> X.done = false
#else
            :: g > X.generation || X.stale -> X.done = false
#endif
            :: else
            fi;
            if
#ifdef NO_CONSTRAINED_RESET
            :: g > X.generation ->
#else
            :: g > X.generation || X.stale ->
#endif
                X.constrained = false
            :: else
            fi;
            X.generation = g;
            X.restart = r;
            X.version = v;
            X.epoch = lease_epoch;
            X.stale = false
        fi;
        g = 0; v = 0; r = false
       }
    :: d_step { box != OPEN && !box_sent && session && empty(up) -> box_sent = true; up!box_generation,box_epoch,box,box_version }
    od
}

active proctype AgentOrder()
{
end:
    do
    :: d_step { at == LOOK && X.generation > 0 && !X.done && !X.stale && !X.restart -> tell(CONVERGED, X.version) }
    :: d_step {             /* the next missing step; an agent that has lost its session does not know it at once */
        at == LOOK && X.generation > 0 && !X.done && X.restart ->
        act_generation = X.generation;
        act_epoch = X.epoch;
        act_version = X.version;
        verb = (X.constrained -> RELEASE : CONSTRAIN);
        at = DECIDED
       }
    :: d_step {             /* the gate */
        at == DECIDED ->
        if
        :: CONFIRMED && SAME && X.restart ->
            MUST(no_withdrawn_write, valid[X.version]);
            MUST(decided_as_ordered, act_version == X.version);
            MUST(released_as_ordered, verb == CONSTRAIN || in_place == X.version);
            at = WRITING
        :: else -> look_again()
        fi
       }
    :: d_step {             /* done */
        at == WRITING ->
        if
        :: verb == CONSTRAIN ->
            in_place = act_version;
            if
            :: STILL_ASKED -> X.constrained = true
            :: else
            fi
        :: verb == RELEASE && STILL_ASKED -> tell(CONVERGED, act_version)
        :: else
        fi;
        look_again()
       }
    :: d_step {             /* the job could not run with these constraints */
        at == WRITING && verb == CONSTRAIN ->
        if
        :: STILL_ASKED -> tell(ABANDONED, act_version)
        :: else
        fi;
        look_again()
       }
    od
}

#ifdef LIVE
ltl answered { <> (recorded != OPEN) }
#endif

#if REACH == 1   /* the last generation is carried out in the last session */
NEVER(recorded == CONVERGED && generation == 3 && X.epoch == 3)
#elif REACH == 2   /* a session breaks during a write */
NEVER(at == WRITING && X.stale)
#elif REACH == 3   /* a newer order comes during a write */
NEVER(at == WRITING && act_generation != X.generation)
#endif
