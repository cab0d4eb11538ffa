/* SPDX-License-Identifier: Apache-2.0 */
/* What a replica knows: two replicas over one database, one cluster with one object, and a call that is handed over.
 *
 * owner.pml has the leases; here an ownership ends at any moment, and who had it does not know (it was frozen, or cut off).
 * Each commit writes the object and gives out a number of the change and a revision of the cluster; the cluster's own row
 * is among what is written, or not. Who does not own the cluster follows the changes; objects come as they are at the time
 * of reading. Once the database moves to a server that was behind: its tail is lost, and somebody may write another one. */

#include "common.pml"

#define WRITES 5            /* all in all, so that there is an end */

/* The database. */
byte owner = NONE;
bool over = true;           /* its lease is */
bool epoch_of[2];           /* whose transactions carry the epoch that is valid */
byte seq, revision;         /* of the newest change */
byte object;                /* which write it is of */
byte row_seq;               /* the newest change of the cluster's own row */
bool history;               /* which one */
bool has_copy;              /* the server that falls behind */
byte copy_seq, copy_revision, copy_object, copy_row_seq;
byte writes;                /* so far, in both histories */

mtype:call = { NOT_YET, OPEN, ANSWERED };
mtype:call call[2] = NOT_YET;   /* the second: handed over once more, by who was to carry out the first */
byte done;                  /* how often it took effect */

typedef replica {
    bool owns;              /* by its memory */
    bool claims;            /* by the database, and its memory is not there yet */
    byte seen, revision, object;
    bool history;
    bool errand;            /* waits for the second call's answer to answer the first */
}
replica R[2];

PROPERTY(known_history);
PROPERTY(numbers_rise);
PROPERTY(shown_is_stored);
PROPERTY(done_once);

/* Memory is dropped and loaded again. */
inline load(r) {
    R[r].owns = false;
    R[r].claims = false;
    R[r].errand = false;
    R[r].seen = seq;
    R[r].revision = revision;
    R[r].object = object;
    R[r].history = history
}

#ifdef NO_HISTORY_CHECK
#define LANDS(r) (epoch_of[r])
#else
#define LANDS(r) (epoch_of[r] && R[r].history == history)
#endif

/* A transaction that has begun at any time before; it lands or not. */
inline write(r, row) {
    if
    :: LANDS(r) ->
        MUST(known_history, R[r].history == history);
        writes++;
        R[r].revision++;
        MUST(numbers_rise, R[r].revision > revision);
        seq++;
        revision = R[r].revision;
        object = writes;
        row_seq = (row -> seq : row_seq);
        R[r].seen = seq;
        R[r].object = object;
        R[r].history = history
    :: else -> load(r)
    fi
}

/* The call is carried out by its owner, if it still is that. */
inline carry_out(r, c) {
    if
    :: LANDS(r) ->
        done++;
        MUST(done_once, done <= 1);
        call[c] = ANSWERED;
        if
        :: c == 1 && R[r].errand -> call[0] = ANSWERED; R[r].errand = false
        :: else
        fi
    :: else -> load(r)
    fi
}

proctype Replica(byte r)
{
end:
    do
    :: d_step { R[r].owns && writes < WRITES -> write(r, true) }
    :: d_step { R[r].owns && writes < WRITES -> write(r, false) }
    :: d_step {             /* a poll */
        R[r].seen != seq || R[r].history != history ->
        if
        :: R[r].history != history -> load(r)
        :: R[r].history == history && R[r].owns ->      /* somebody else has written */
#ifdef NO_FOREIGN_CHECK
            R[r].seen = seq
#else
            load(r)
#endif
        :: else ->
#ifdef NO_REVISION_FOLLOWED
            R[r].revision = (row_seq > R[r].seen -> revision : R[r].revision);
#else
            R[r].revision = revision;
#endif
            R[r].seen = seq;
            R[r].object = object
        fi
       }
    :: d_step {             /* a claim; also of one's own, after memory was loaded */
        !R[r].owns && !R[r].claims && (over || owner == r) ->
        owner = r;
        over = false;
        epoch_of[r] = true;
        epoch_of[OTHER(r)] = false;
        R[r].claims = true
       }
    :: d_step {             /* has followed up to the newest change */
        R[r].claims && R[r].seen == seq && R[r].history == history ->
        R[r].claims = false;
        R[r].owns = true
       }
    :: d_step { load(r) }   /* restarted, or for any other reason */
    /* what the database says is to be carried out by its owner */
    :: d_step { owner == r && call[0] == OPEN && R[r].owns && !R[r].errand -> carry_out(r, 0) }
    :: d_step { owner == r && call[1] == OPEN && R[r].owns -> carry_out(r, 1) }
#ifdef NO_HANDOFF_WAIT      /* its memory says that another one owns the cluster: handed over */
    :: d_step {
        owner == r && call[0] == OPEN && call[1] == NOT_YET && !R[r].owns ->
        call[1] = OPEN;
        R[r].errand = true
       }
#endif
    od
}

active proctype World()
{
end:
    do
    :: d_step { !over -> over = true }
    :: d_step { call[0] == NOT_YET -> call[0] = OPEN }
    :: d_step {
        !has_copy && !history ->
        has_copy = true;
        copy_seq = seq;
        copy_revision = revision;
        copy_object = object;
        copy_row_seq = row_seq
       }
    :: d_step {             /* the address leads to the server that was behind */
        has_copy && copy_seq < seq ->
        has_copy = false;
        history = true;
        seq = copy_seq;
        revision = copy_revision;
        object = copy_object;
        row_seq = copy_row_seq;
        copy_seq = 0;
        copy_revision = 0;
        copy_object = 0;
        copy_row_seq = 0
       }
    od
}

#define STALE(r) (R[r].history == history && R[r].seen == seq && R[r].object != object)

active proctype Watch()
{
end:
    d_step { STALE(0) || STALE(1) -> MUST(shown_is_stored, false) }
}

init { atomic { run Replica(0); run Replica(1) } }

#if REACH == 1   /* one owns the cluster by its memory, the other one has written */
NEVER(R[0].owns && owner == 1 && R[1].owns && R[0].seen < seq)
#elif REACH == 2   /* the other history has become longer than what was lost */
NEVER(history && seq > 2 && R[0].owns && !R[0].history)
#elif REACH == 3   /* who owns it by the database alone leaves the call alone, and carries it out in the end */
NEVER(call[0] == ANSWERED && owner == 1 && R[0].claims)
#endif
