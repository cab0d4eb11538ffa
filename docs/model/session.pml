/* SPDX-License-Identifier: Apache-2.0 */
/* How the action lease is handed out in sessions: does a cluster with a living agent ever stand down for good?
 *
 * Two agents, each with one stream up and one down, both in order and with messages on their way. First anything may
 * happen: streams break, agents crash, commits take their time, more heartbeats are sent than one a tick. Then, from some
 * point on, everything works (`calm`): time passes only when nobody has anything to do. From then on the lease must be
 * held again and again. That nobody holds it besides another is the matter of action.pml. */

#include "common.pml"

#define LEASE 2
#define ZOMBIE(h) (h + 3)   /* a session of @h whose stream broke, and the control plane has not noticed */

mtype:up = { HELLO, HB_HOLDS, HB_NOT };
mtype:down = { WELCOME, ACK };
mtype:session = { DOWN, NEW, ACTIVE, STANDBY };

#define QUEUE 2
chan up[2] = [QUEUE] of { mtype:up };
chan down[2] = [QUEUE] of { mtype:down, bool, bool };   /* with a grant? a mode that the agent has not heard of? */

bool calm;
byte lost = NONE;           /* a host that never comes back */
byte holder = NONE;         /* the journal that was granted last */
byte instance = NONE;       /* the session that holds the lease */
byte srv_left;
mtype:session state[2] = DOWN;  /* as the control plane has it */
bool taking[2];             /* the standby's message is being stored */
#ifdef NO_REPEATED_GRANT
bool said_holds[2];         /* by its last heartbeat */
#endif

bool dialled[2];            /* the agent has a stream */
bool welcome[2];            /* and was answered */
bool due[2];                /* its heartbeat */
bool held[2];
byte left[2];

#define OWNED ((held[0] && left[0] > 0) || (held[1] && left[1] > 0))

inline flush(h) {
    do
    :: nempty(up[h]) -> up[h]?_
    :: empty(up[h]) -> break
    od;
    do
    :: nempty(down[h]) -> down[h]?_,_,_
    :: empty(down[h]) -> break
    od
}

/* The stream breaks. The agent notices; the control plane may take its time. */
inline cut(h) {
    flush(h);
    dialled[h] = false;
    welcome[h] = false;
    due[h] = false;
    state[h] = DOWN;
    taking[h] = false;
#ifdef NO_REPEATED_GRANT
    said_holds[h] = false;
#endif
    if
    :: instance == h -> instance = ZOMBIE(h)
    :: else
    fi
}

inline grant(h) {
    holder = h;
    instance = h;
    srv_left = LEASE
}

/* The control plane ends the session and knows it. */
inline refuse(h) {
    cut(h);
    if
    :: instance == ZOMBIE(h) -> instance = NONE
    :: else
    fi
}

proctype Session(byte h)
{
end:
    do
    :: d_step {
        state[h] == NEW && up[h]?[HELLO] && nfull(down[h]) ->
        up[h]?HELLO;
        if
        :: holder == h || holder == NONE || srv_left == 0 ->
            grant(h);
            state[h] = ACTIVE;
            down[h]!WELCOME,true,false
        :: else ->
            state[h] = STANDBY;
            down[h]!WELCOME,false,false
        fi
       }
    :: d_step {
        state[h] == STANDBY && !taking[h] && nempty(up[h]) && nfull(down[h]) ->
#ifdef NO_REPEATED_GRANT
        said_holds[h] = up[h]?[HB_HOLDS];
#endif
        up[h]?_;
        if
#ifdef NO_TAKE_BY_STANDBY
        :: false ->
#else
        :: srv_left == 0 && instance == NONE ->
#endif
            taking[h] = true
        :: else -> down[h]!ACK,false,false
        fi
       }
    :: d_step {             /* the commit; somebody may have been faster */
        taking[h] && nfull(down[h]) ->
        taking[h] = false;
        if
        :: srv_left == 0 && instance == NONE ->
            grant(h);
            state[h] = ACTIVE;
            down[h]!ACK,true,false
        :: else -> down[h]!ACK,false,false
        fi
       }
    :: d_step {
        state[h] == ACTIVE && up[h]?[HB_HOLDS] && nfull(down[h]) ->
        up[h]?HB_HOLDS;
#ifdef NO_REPEATED_GRANT
        said_holds[h] = true;
#endif
        if
        :: instance == h ->
            srv_left = LEASE;
            down[h]!ACK,true,false
        :: else -> refuse(h)
        fi
       }
    :: d_step {             /* it does not hold what it was granted: has it not heard yet, or can it not? */
        state[h] == ACTIVE && up[h]?[HB_NOT] && nfull(down[h]) ->
        up[h]?HB_NOT;
#ifdef NO_REPEATED_GRANT
        said_holds[h] = false;
        down[h]!ACK,false,false
#else
        if
        :: instance == h && srv_left > 0 -> down[h]!ACK,true,false
        :: else -> refuse(h)
        fi
#endif
       }
    :: d_step {             /* the cluster's mode was set: said at once */
        (state[h] == ACTIVE || state[h] == STANDBY) && !calm && nfull(down[h]) ->
#ifdef NO_REPEATED_GRANT
        down[h]!ACK,(state[h] == ACTIVE && said_holds[h]),true
#else
        down[h]!ACK,(state[h] == ACTIVE && instance == h),true
#endif
       }
#ifndef NO_GONE
    :: d_step { instance == ZOMBIE(h) -> instance = NONE }
#endif
    od
}

inline beat(h) {
    if
    :: held[h] -> up[h]!HB_HOLDS
    :: else -> up[h]!HB_NOT
    fi
}

inline take(h, granted) {
    if
    :: granted -> held[h] = true; left[h] = LEASE
    :: else -> held[h] = false; left[h] = 0
    fi
}

proctype Agent(byte h)
{
    bool granted, mode;
end:
    do
    :: d_step { !dialled[h] && lost != h -> dialled[h] = true; state[h] = NEW; up[h]!HELLO }
    :: d_step {
        down[h]?[WELCOME] ->
        down[h]?WELCOME,granted,mode;
        welcome[h] = true;
        if
        :: granted -> take(h, true)
        :: else             /* what is held runs out by itself */
        fi;
        granted = false
       }
    :: d_step {
        down[h]?[ACK] ->
        down[h]?ACK,granted,mode;
        if
        :: mode && len(up[h]) < QUEUE -> beat(h); take(h, granted)  /* says from when on it is obeyed */
        :: mode && len(up[h]) == QUEUE -> cut(h)                    /* more than this model's queue holds */
        :: !mode -> take(h, granted)
        fi;
        granted = false; mode = false
       }
    :: d_step { welcome[h] && (due[h] || !calm) && nfull(up[h]) -> due[h] = false; beat(h) }
    :: d_step { dialled[h] && !calm -> cut(h) }
    :: d_step { !calm -> cut(h); held[h] = false; left[h] = 0 }
    od
}

inline tick() {
    DEC(srv_left);
    DEC(left[0]);
    DEC(left[1]);
    due[0] = welcome[0];
    due[1] = welcome[1]
}

active proctype Tick()
{
end:
    do
    :: d_step { !calm -> tick() }
    :: atomic { timeout && calm -> tick() }
    :: d_step { !calm -> calm = true }
    :: d_step { !calm -> calm = true; cut(0); held[0] = false; left[0] = 0; lost = 0 }
    od
}

init { atomic { run Session(0); run Session(1); run Agent(0); run Agent(1) } }

ltl granted_again { [] (calm -> <> OWNED) }

#if REACH == 1   /* a heartbeat and a grant cross each other */
NEVER(state[1] == ACTIVE && instance == 1 && !held[1] && len(down[1]) > 0 && len(up[1]) > 0)
#elif REACH == 2   /* a standby waits for a dead session to be noticed */
NEVER(instance == ZOMBIE(0) && state[1] == STANDBY && srv_left == 0)
#elif REACH == 3   /* the standby took over for good */
NEVER(lost == 0 && held[1] && left[1] > 0)
#elif REACH == 4   /* time passes when all is calm */
NEVER(calm && held[0] && srv_left == 1)
#endif
