/* SPDX-License-Identifier: Apache-2.0 */
/* Does every hold end? A job is requeued into a hold and has to come out of it, whatever breaks: the agent, its whole host
 * with its journal, or the control plane; whether or not somebody changed his mind meanwhile. One thing breaks for good,
 * crashes and lost leases happen a few times.
 *
 * Three can end a hold: the agent that holds the lease, because the order is carried out or because nobody wants it any
 * more and its journal (or the control plane, when it was granted the lease) says that the hold is Advisor's; and the
 * watchdog of a host, by the hold's own record in that host's journal, once it has expired. */

#include "common.pml"

mtype:job = { FAILED, HELD, OURS_NO_MORE };
mtype:step = { LOOK, JOURNALLED, REPORTED, SENT };

mtype:job job = FAILED;
bool flying;                /* the requeue is on its way to the scheduler */

/* The control plane. */
bool control_plane = true;
bool order = true;          /* restart that job */
bool knows;                 /* of the requeue's intent */
byte lease = NONE;

bool expired;               /* the hold's time */
byte crashes = 2, lapses = 2;
bool broken;

typedef host {
    bool there;             /* the machine, its journal, its watchdog */
    bool alive;             /* the agent */
    mtype:step at = LOOK;
    bool hold, intent;      /* the journal */
    bool reports;           /* the intent is on its way to the control plane */
}
host H[2];

#define MAY(h) (H[h].alive && lease == h)

inline release() { job = OURS_NO_MORE }

proctype Agent(byte h)
{
end:
    do
    :: d_step {             /* a write is begun */
        MAY(h) && H[h].at == LOOK && job == FAILED && order && !H[h].intent && !flying ->
        H[h].intent = true;
#ifndef HOLD_JOURNALLED_AFTER
        H[h].hold = true;
#endif
        H[h].at = JOURNALLED;
        H[h].reports = true
       }
#ifdef NO_INTENT_ACK        /* does not wait for the control plane to have it */
    :: d_step { MAY(h) && H[h].at == JOURNALLED -> H[h].at = REPORTED }
#else
    :: d_step { MAY(h) && H[h].at == JOURNALLED && !H[h].reports -> H[h].at = REPORTED }
#endif
    :: d_step { MAY(h) && H[h].at == REPORTED -> flying = true; H[h].at = SENT }
#ifdef NO_LANDING_WAIT
    :: d_step { H[h].alive && H[h].at == SENT ->
#else
    :: d_step { H[h].alive && H[h].at == SENT && (job != FAILED || !flying) ->
#endif
        H[h].intent = false;
        H[h].at = LOOK;
        if
        :: job == FAILED -> H[h].hold = false   /* it surely did not come about */
#ifdef HOLD_JOURNALLED_AFTER
        :: job == HELD -> H[h].hold = true
        :: else
#else
        :: else
#endif
        fi
       }
    :: d_step {             /* without the lease, a write that was begun is not carried on */
        H[h].alive && lease != h && (H[h].at == JOURNALLED || H[h].at == REPORTED) -> H[h].at = LOOK
       }
    :: d_step {             /* of an earlier life: settled, whatever it has led to */
        MAY(h) && H[h].at == LOOK && H[h].intent && !flying -> H[h].intent = false
       }
    :: d_step {             /* the order is carried on with */
        MAY(h) && H[h].at == LOOK && job == HELD && order ->
        if
        :: H[h].hold || knows -> release(); H[h].hold = false; order = false
        :: else -> order = false                /* requeued by somebody else: it is theirs */
        fi
       }
    :: d_step {             /* nobody wants it any more: given back */
        MAY(h) && H[h].at == LOOK && !order && H[h].hold && !H[h].intent && !flying ->
        if
        :: job == HELD -> release()
        :: else
        fi;
        H[h].hold = false
       }
    :: d_step { H[h].alive && crashes > 0 -> crashes--; H[h].at = LOOK }
    od
}

#ifdef NO_WATCHDOG
#define WATCHES(h) false
#else
#define WATCHES(h) H[h].there
#endif

proctype Watchdog(byte h)
{
end:
    do
    :: d_step {
        WATCHES(h) && H[h].hold && expired && !flying && (!H[h].alive || H[h].at == LOOK) ->
        if
        :: job == HELD -> release()
        :: else
        fi;
        H[h].hold = false
       }
    od
}

inline grant(h) {
    lease = h;
#ifndef NO_HOLD_HANDOVER    /* what is not known to have ended is told to the next holder */
    if
    :: knows -> H[h].hold = true
    :: else
    fi
#endif
}

active proctype ControlPlane()
{
end:
    do
    :: d_step { control_plane && lease == NONE && H[0].alive -> grant(0) }
    :: d_step { control_plane && lease == NONE && H[1].alive -> grant(1) }
    :: d_step { lease != NONE && (!H[lease].alive || !control_plane) -> lease = NONE }
    :: d_step { lease != NONE && lapses > 0 -> lapses--; lease = NONE }
    od
}

active proctype Reports()
{
end:
    do
    :: d_step { control_plane && H[0].reports && H[0].there && H[0].alive -> H[0].reports = false; knows = true }
    :: d_step { control_plane && H[1].reports && H[1].there && H[1].alive -> H[1].reports = false; knows = true }
    od
}

active proctype Person()
{
end:
    if
    :: d_step { order -> order = false }        /* the mode is lowered, the advice withdrawn, it expires */
    :: true
    fi
}

active proctype Scheduler()
{
end:
    do
    :: d_step { flying -> flying = false; if :: job == FAILED -> job = HELD :: else fi }
    :: d_step { flying -> flying = false }
    od
}

active proctype Time()
{
end:
    job == HELD -> expired = true
}

active proctype Fate()
{
end:
    if
    :: d_step { H[0].alive = false; H[0].at = LOOK }
    :: d_step { H[0].alive = false; H[0].there = false; H[0].at = LOOK }
    :: control_plane = false
    :: true
    fi
}

init {
    atomic {
        H[0].there = true; H[0].alive = true; H[1].there = true; H[1].alive = true;
        run Agent(0); run Agent(1); run Watchdog(0); run Watchdog(1)
    }
}

ltl every_hold_ends { [] (job == HELD -> <> (job != HELD)) }

#if REACH == 1   /* the host that holds the job is gone, and nobody wants it any more */
NEVER(job == HELD && !H[0].there && !order)
#elif REACH == 2   /* the control plane is gone */
NEVER(job == HELD && !control_plane)
#elif REACH == 3   /* two journals know of the hold */
NEVER(job == HELD && lease == 1 && H[0].hold && H[1].hold && !order)
#endif
