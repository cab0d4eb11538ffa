/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership: two replicas over one database, two hosts with an agent each, one cluster.
 *
 * The database knows the owner, until when (by its own clock), and which journal was granted the action lease last. The
 * owner keeps in memory until when nobody else may be granted it. A replica or an agent that is cut off from somebody is
 * one whose messages are never delivered; requests take any time, and a replica may freeze between any two of its steps,
 * also between deciding and committing. Answers come at once: whoever asked counts from when it asked, so an answer that
 * comes late is worth less from then on, and nothing before.
 *
 * With -DLIVE everything is prompt: time passes only when nobody has anything to do. At any moment one thing breaks for
 * good, and sessions break and a replica is restarted a few times. A living agent must be granted the lease again and
 * again. */

#include "common.pml"

#ifdef LIVE
#define OWN 3               /* ticks of an ownership lease: long enough to be renewed in time */
#define LEASE 2
#elif defined(CLOCK_JUMP)
#define OWN 2
#define LEASE 1             /* shorter, so that the claim's wait must not be as short */
#else
#define OWN 1
#define LEASE 2             /* of an action lease: longer, so that it matters that it is bounded */
#endif
#ifdef WAIT_LEASE_ONLY
#define CLAIM_WAIT LEASE
#else
#define CLAIM_WAIT (OWN > LEASE -> OWN : LEASE)
#endif

mtype:request = { IDLE, RENEW, RENEWED, CLAIM };
mtype:ask = { QUIET, SENT };

/* The database. */
byte owner = NONE;
byte until;
byte last = NONE;           /* the journal that was granted last */
#ifdef LIVE
byte wanted = NONE;         /* a replica at which an agent has knocked */
#define WANTED(r) (wanted == OTHER(r) && H[0].at != r && H[1].at != r)
#else
#define WANTED(r) true      /* an owner may let go at any time; when it should matters to liveness only */
#endif

PROPERTY(one_actor);
PROPERTY(extended_while_owner);
PROPERTY(newest_state);

typedef replica {
    bool owns;              /* believes it */
    byte left;              /* of that, counted from when it asked */
    mtype:request request = IDLE;
    byte asked;
    byte knows = NONE;      /* `last` in its memory */
    byte wait;              /* until then nobody else is granted the action lease */
    byte grants = NONE;     /* a transaction on its way: the grant to this host */
    bool answers;           /* and the session that asked for it is still there */
    bool late;              /* the cluster has had another ownership since the transaction was begun */
}
replica R[2];

typedef host {
    byte at = NONE;         /* the replica with which it has a session */
    mtype:ask ask = QUIET;
    byte asked;
    byte left;              /* of the action lease, as the agent counts it */
#ifdef LIVE
    bool due = true;
    byte next = 1;          /* where it dials next */
#endif
}
host H[2];

#ifdef LIVE
bool broken, breaks;        /* the one thing that breaks for good: */
bool lost_host;             /* host 0 never comes back */
bool dead;                  /* replica 0 neither */
bool no_agents;             /* replica 0 works, but no agent reaches it */
bool no_database;           /* agents reach replica 0, but it does not reach the database */
bool renew_due[2] = true;
#define FAULTS 3
byte faults = FAULTS;       /* that may still happen */
bool fault;                 /* one happens in this tick, at any moment of it; else nobody would ever have nothing to do */
#define FAULT fault -> fault = false
#define RENEWS(r) renew_due[r]
#define LIVES(r) (r == 1 || !dead)
#define DATABASE(r) (r == 1 || (!dead && !no_database))
#define REACHES(r) (r == 1 || (!dead && !no_agents))
#define HOST_LIVES(h) (h == 1 || !lost_host)
#else
#define FAULT true
#define RENEWS(r) true
#define LIVES(r) true
#define DATABASE(r) true
#define REACHES(r) true
#define HOST_LIVES(h) true
#endif

#ifdef NO_OWN_TIME
#define MAY_SERVE(r) R[r].owns
#else
#define MAY_SERVE(r) (R[r].owns && R[r].left > 0)
#endif

#define KNOCKED(r) ((H[0].at == r && H[0].ask == SENT) || (H[1].at == r && H[1].ask == SENT))

inline hang_up(h) {
    if
    :: H[h].at != NONE && R[H[h].at].grants == h -> R[H[h].at].answers = false
    :: else
    fi;
    H[h].at = NONE;
    H[h].ask = QUIET;
    H[h].asked = 0
}

/* Memory is dropped: the ownership was lost, or the replica was restarted. */
inline drop(r) {
    R[r].owns = false;
    R[r].left = 0;
#ifndef NO_FOLLOW
    R[r].knows = NONE;
#endif
    R[r].wait = 0;
    if
    :: H[0].at == r -> hang_up(0)
    :: else
    fi;
    if
    :: H[1].at == r -> hang_up(1)
    :: else
    fi
}

/* The ownership changes hands: transactions that were begun before are of an epoch that is over. */
inline new_epoch() {
    R[0].late = (R[0].grants != NONE);
    R[1].late = (R[1].grants != NONE)
}

/* The grant to @h is answered: it counts from when it was asked for, and ends with the ownership. */
inline grant(r, h) {
#ifndef LEASE_NOT_BOUNDED
    if
    :: H[h].asked > R[r].left -> H[h].asked = R[r].left
    :: else
    fi;
#endif
    if
    :: H[h].asked > H[h].left -> H[h].left = H[h].asked
    :: else
    fi;
#ifdef LIVE
    H[h].ask = QUIET;
    H[h].asked = 0
#else
    hang_up(h)              /* without LIVE a session lasts for one question */
#endif
}

/* Hello or a heartbeat of @h. */
inline serve(r, h) {
    if
    :: !MAY_SERVE(r) ->
#ifdef NO_SESSION_END
        H[h].ask = QUIET
#else
        hang_up(h)
#endif
    :: MAY_SERVE(r) && R[r].knows == h ->                           /* the holder: nothing to store */
#ifndef HARM_ONLY
        MUST(extended_while_owner, owner == r && until > 0);
#endif
        R[r].wait = (R[r].wait > LEASE -> R[r].wait : LEASE);
        grant(r, h)
    :: MAY_SERVE(r) && R[r].knows != h && (R[r].knows == NONE || R[r].wait == 0) ->
        R[r].knows = h;
        R[r].wait = (R[r].wait > LEASE -> R[r].wait : LEASE);
        R[r].grants = h;    /* answered when it is stored */
        R[r].answers = true
    :: else ->              /* a standby */
#ifdef LIVE
        H[h].ask = QUIET
#else
        hang_up(h)
#endif
    fi
}

proctype Replica(byte r)
{
end:
    do
    /* its own lease */
    :: d_step {
        R[r].owns && R[r].request == IDLE && LIVES(r) && RENEWS(r) ->
#ifdef LIVE
        renew_due[r] = false;
#endif
        R[r].request = RENEW;
        R[r].asked = OWN
       }
#ifdef OWN_FROM_ANSWER      /* counts from when the answer comes */
    :: d_step { R[r].request == RENEWED && LIVES(r) -> R[r].left = OWN; R[r].request = IDLE; R[r].asked = 0 }
#endif
#ifndef NO_SESSION_END
    :: d_step {             /* cannot renew: ends its sessions, so that the agents look elsewhere */
        R[r].owns && R[r].left == 0 && LIVES(r) && (H[0].at == r || H[1].at == r) ->
        if
        :: H[0].at == r -> hang_up(0)
        :: else
        fi;
        if
        :: H[1].at == r -> hang_up(1)
        :: else
        fi
       }
#endif
    :: d_step {             /* a knock at a replica that does not own the cluster; it waits until it does */
        !R[r].owns && R[r].request == IDLE && KNOCKED(r) && LIVES(r) && DATABASE(r) && RENEWS(r) && REACHES(r) ->
        R[r].request = CLAIM;
        R[r].asked = OWN;
#ifdef LIVE
        renew_due[r] = false;
        wanted = r;
#endif
#ifdef NO_KNOCK_WAITS
        if
        :: H[0].at == r -> hang_up(0)
        :: else
        fi;
        if
        :: H[1].at == r -> hang_up(1)
        :: else
        fi
#endif
       }
    :: d_step { R[r].owns && H[0].at == r && H[0].ask == SENT && LIVES(r) && REACHES(r) && R[r].grants == NONE -> serve(r, 0) }
    :: d_step { R[r].owns && H[1].at == r && H[1].ask == SENT && LIVES(r) && REACHES(r) && R[r].grants == NONE -> serve(r, 1) }
#ifndef NO_HANDOVER
    :: d_step {             /* nobody of that cluster is here, and somebody knocks elsewhere */
        R[r].owns && WANTED(r) && DATABASE(r) && R[r].grants == NONE && R[r].request == IDLE ->
        if
        :: owner == r -> owner = NONE; until = 0; new_epoch()
        :: else
        fi;
#ifdef LIVE
        wanted = NONE;
#endif
        drop(r)
       }
#endif
    :: d_step {             /* restarted */
        LIVES(r) && FAULT; R[r].request = IDLE; R[r].asked = 0; R[r].grants = NONE; R[r].late = false;
        R[r].answers = false; drop(r);
        R[r].knows = NONE
       }
    od
}

/* One transaction after another. */
proctype Database(byte r)
{
    byte h;
end:
    do
    :: d_step { R[r].request == RENEW && DATABASE(r) ->
        if
        :: owner == r ->
            until = OWN;
#ifdef OWN_FROM_ANSWER
            R[r].request = RENEWED
#else
            R[r].left = R[r].asked;
            R[r].request = IDLE
#endif
        :: else -> R[r].request = IDLE; drop(r)
        fi;
        R[r].asked = 0
       }
    :: d_step { R[r].request == CLAIM && DATABASE(r) ->
        if
#ifdef CLAIM_EARLY
        :: owner != r ->
#else
        :: until == 0 || owner == NONE ->
#endif
            owner = r;
            until = OWN;
#ifdef LIVE
            wanted = NONE;
#endif
            new_epoch();
            R[r].owns = true;
            R[r].left = R[r].asked;
#ifndef NO_FOLLOW
            R[r].knows = last;
#endif
#ifndef NO_CLAIM_WAIT
            R[r].wait = CLAIM_WAIT
#endif
        :: else
        fi;
        R[r].request = IDLE;
        R[r].asked = 0
       }
    :: d_step { R[r].grants != NONE && DATABASE(r) ->
        h = R[r].grants;
        R[r].grants = NONE;
        if
#ifdef NO_OWNER_GUARD
        :: true ->
#ifndef HARM_ONLY
            MUST(newest_state, owner == r && !R[r].late);
#endif
#else
        :: owner == r && !R[r].late ->
#endif
            last = h;
            if
            :: R[r].owns && R[r].answers -> grant(r, h)
            :: else
            fi
#ifndef NO_OWNER_GUARD
        :: else -> drop(r)
#endif
        fi;
        R[r].late = false;
        R[r].answers = false;
        h = 0
       }
    od
}

proctype Agent(byte h)
{
end:
    do
#ifdef LIVE
    :: d_step { H[h].at == NONE && HOST_LIVES(h) && H[h].due ->
        H[h].at = H[h].next;
        H[h].next = OTHER(H[h].next);
        H[h].ask = SENT;
        H[h].asked = LEASE;
        H[h].due = false
       }
#else
    :: d_step { H[h].at == NONE -> H[h].at = 0; H[h].ask = SENT; H[h].asked = LEASE }
    :: d_step { H[h].at == NONE -> H[h].at = 1; H[h].ask = SENT; H[h].asked = LEASE }
#endif
#ifdef LIVE
    :: d_step { H[h].at != NONE && H[h].ask == QUIET && HOST_LIVES(h) && H[h].due ->
        H[h].due = false;
        H[h].ask = SENT;
        H[h].asked = LEASE
       }
#endif
    :: d_step { H[h].at != NONE && FAULT; hang_up(h) }
#ifdef LIVE
    :: d_step { H[h].at == 0 && (!REACHES(0) || (!R[0].owns && !DATABASE(0))) -> hang_up(h) } /* no answer, or a no */
#endif
    od
}

inline tick() {
    DEC(until);
    DEC(R[0].left); DEC(R[0].asked); DEC(R[0].wait);
    DEC(R[1].left); DEC(R[1].asked); DEC(R[1].wait);
    DEC(H[0].left); DEC(H[0].asked);
    DEC(H[1].left); DEC(H[1].asked)
#ifdef LIVE
    ; H[0].due = true; H[1].due = true; renew_due[0] = true; renew_due[1] = true
#endif
}

#ifdef CLOCK_JUMP
bool jumped;
#endif

active proctype Tick()
{
end:
    do
#ifdef LIVE
    :: atomic {
        timeout ->
        tick();
        if
        :: true
        :: faults > 0 -> faults--; fault = true
        :: !broken -> broken = true; breaks = true
        fi
       }
    :: d_step { breaks -> breaks = false; dead = true }
    :: d_step { breaks -> breaks = false; no_agents = true }
    :: d_step { breaks -> breaks = false; no_database = true }
    :: d_step { breaks -> breaks = false; lost_host = true; H[0].left = 0; hang_up(0) }
#else
    :: d_step { tick() }
#endif
#ifdef CLOCK_JUMP           /* of the database, ahead */
    :: d_step { !jumped -> jumped = true; until = 0 }
#endif
    od
}

active proctype Watch()
{
end:
    d_step { H[0].left > 0 && H[1].left > 0 -> MUST(one_actor, false) }
}

init { atomic { run Replica(0); run Replica(1); run Database(0); run Database(1); run Agent(0); run Agent(1) } }

#ifdef LIVE
ltl acts_again { [] <> (H[0].left > 0 || H[1].left > 0) }
#endif

#if REACH == 1   /* a transaction of an owner that has lost the cluster */
NEVER(owner == 1 && R[0].owns && R[0].grants != NONE && R[0].late)
#elif REACH == 2   /* the new owner waits for the lease that the one before granted */
NEVER(owner == 1 && R[1].owns && H[0].left > 0 && R[1].wait > 0 && R[1].knows == 0)
#elif REACH == 3   /* both believe to own it, and one grants */
NEVER(owner == 1 && last == 1 && H[1].left > 0 && R[0].owns)
#elif REACH == 4   /* LIVE: the other replica has taken over from a dead one */
NEVER(dead && R[1].owns && H[1].left > 0)
#elif REACH == 5   /* LIVE: an owner that does not reach the database */
NEVER(no_database && R[0].owns && R[0].left == 0)
#elif REACH == 6   /* LIVE: an owner that no agent reaches has let go */
NEVER(no_agents && owner == 1 && R[0].wait == 0 && faults == 0)
#endif
