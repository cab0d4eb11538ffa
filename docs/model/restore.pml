/* SPDX-License-Identifier: Apache-2.0 */
/* A store that has lost its memory: yesterday's backup put back, or a new empty database, while agents remember more.
 *
 * Epochs are pairs (term, counter). Every grant raises the counter; the agent's journal keeps the highest it was granted
 * and says it in Hello. Who may hold the lease when is the matter of action.pml: here a lease ends at any moment, and
 * another journal is granted it or not. What counts is that nobody acts on what the store believes since then, before a
 * person has confirmed it by setting the mode.
 *
 * Default: the file was copied back by hand, so that the store itself does not know; the property then speaks from when an
 * agent that remembers more has been heard. With -DBY_TOOL it was put back by a tool that marks it; then the property
 * speaks from the restore on. -DRESIDUAL_UNSEEN asks the same of a copy by hand, which is more than is promised. */

#include "common.pml"

#define TERMS 4
#define COUNTERS 4
#define MORE(t, c) (t > term || (t == term && c > counter))
#define BEHIND(h) MORE(H[h].high_term, H[h].high_counter)
#define REMEMBERS_MORE(h) MORE(H[h].true_term, H[h].true_counter)

/* The store, and its backup. */
byte term = 1, counter, holder = NONE;
bool act;                   /* the mode that a person has set */
bool warned;                /* OBSERVE until confirmed */
bool has_backup, backup_act, backup_warned;
byte backup_term, backup_counter, backup_holder = NONE;
#ifdef RESIDUAL_TWICE
byte restores = 2;
#else
byte restores = 1;
#endif

typedef host {
    byte high_term, high_counter;   /* the journal */
    byte true_term, true_counter;   /* for the properties: what the journal should keep */
    byte term, counter;             /* memory: of the lease it holds, 0: none */
    byte new_term, new_counter;     /* a grant on its way, 0: none */
    bool session;
    bool order;                     /* an order to act, received under the lease that it holds */
    bool remembers;                 /* for the properties: has taken an epoch after the backup was taken */
}
host H[2];

/* For the properties. */
bool lost;                  /* the store has lost something, and no person has set the mode since */
bool empty_store;           /* all of it */
bool heard;                 /* an agent that remembers a higher epoch has said Hello since */
bool used[16];              /* epochs that an agent has taken, by term * COUNTERS + counter */

PROPERTY(acts_confirmed);
PROPERTY(epoch_unique);

#if defined(BY_TOOL) || defined(RESIDUAL_UNSEEN)
#define KNOWN true
#else
#define KNOWN heard
#endif
#ifdef HARM_ONLY            /* leave out what only leads to harm */
#define UNIQUE true
#else
#define UNIQUE !(used[term * COUNTERS + counter] && KNOWN)
#endif

inline end_session(h) {
    H[h].session = false;
    H[h].new_term = 0;
    H[h].new_counter = 0;
    H[h].order = false      /* what is ordered must be confirmed in the next session */
}

inline hello(h) {
    H[h].session = true;
    if
    :: lost && REMEMBERS_MORE(h) -> heard = true
    :: else
    fi;
#ifndef NO_HELLO_EPOCH
    if
    :: BEHIND(h) ->
#ifndef TERM_NOT_RAISED
        term = H[h].high_term + 1;
        counter = 0;
#endif
#ifndef NOT_LOWERED
        warned = true
#endif
    :: else
    fi;
#endif
    if
    :: holder == NONE || holder == h || lease_is_over ->
        counter++;
        MUST(epoch_unique, UNIQUE);
        holder = h;
        H[h].new_term = term;
        H[h].new_counter = counter
    :: else
    fi
}

proctype Agent(byte h)
{
    bool lease_is_over;
end:
    do
    :: d_step {
        !H[h].session && counter < COUNTERS - 1 && H[h].high_term < TERMS - 1 && term < TERMS ->
        if
        :: lease_is_over = false
        :: lease_is_over = true
        fi;
        hello(h);
        lease_is_over = false
       }
    :: d_step {             /* the epoch is journalled before the lease is taken */
        H[h].new_term > 0 ->
        used[H[h].new_term * COUNTERS + H[h].new_counter] = true;
        H[h].high_term = H[h].new_term;
        H[h].high_counter = H[h].new_counter;
        H[h].true_term = H[h].new_term;
        H[h].true_counter = H[h].new_counter;
        H[h].term = H[h].new_term;
        H[h].counter = H[h].new_counter;
        H[h].new_term = 0;
        H[h].new_counter = 0
       }
    :: d_step {             /* a heartbeat's answer tells the holder of the epoch as it is now; orders are of the old one */
        H[h].session && holder == h && H[h].term > 0 && (H[h].term != term || H[h].counter != counter) &&
        H[h].new_term == 0 ->
        used[term * COUNTERS + counter] = true;
        H[h].term = term;
        H[h].counter = counter;
        H[h].high_term = term;
        H[h].high_counter = counter;
        H[h].true_term = term;
        H[h].true_counter = counter;
        H[h].order = false
       }
    :: d_step { H[h].session && holder == h && H[h].term == term && H[h].counter == counter && act && !warned && !H[h].order ->
        H[h].order = true
       }
    :: d_step { H[h].session && H[h].order && (!act || warned) -> H[h].order = false }      /* and it is told */
    :: d_step {             /* a write */
        H[h].order && H[h].term > 0 ->
        /* It may not have heard yet of what the store has learned: until it hears from it, which is the next message. */
        MUST(acts_confirmed, !(lost && (KNOWN || empty_store) && H[h].term == term && H[h].counter == counter))
       }
    :: d_step { H[h].session -> end_session(h) }
    :: d_step {             /* a crash of the agent, or the end of its lease */
        H[h].term > 0 ->
        end_session(h);
        H[h].term = 0;
        H[h].counter = 0;
#ifdef NO_HIGHEST_NOTED
        H[h].high_term = 0;
        H[h].high_counter = 0
#endif
       }
    od
}

inline confirmed() {
    lost = false;
    empty_store = false;
    heard = false
}

active proctype Store()
{
end:
    do
    :: d_step { act = true; warned = false; confirmed() }    /* a person sets the mode */
    :: d_step { act = false; warned = false; confirmed() }
    :: d_step {
        !has_backup ->
        has_backup = true;
        backup_term = term;
        backup_counter = counter;
        backup_holder = holder;
        backup_act = act;
        backup_warned = warned
       }
    :: d_step {             /* put back */
        has_backup && restores > 0 ->
        restores--;
        term = backup_term;
        counter = backup_counter;
        holder = backup_holder;
        act = backup_act;
        warned = backup_warned;
        lost = true;
        empty_store = false;
        heard = false;
#ifdef BY_TOOL
#ifndef TOOL_RAISES_NO_TERM
        term = backup_term + 1;
        counter = 0;
#endif
#ifndef TOOL_DOES_NOT_LOWER
        warned = true;
#endif
#endif
        end_session(0);
        end_session(1)
       }
#ifndef BY_TOOL
    :: d_step {             /* the database is lost: the cluster is created anew */
        restores > 0 ->
        restores--;
        term = 1;
        counter = 0;
        holder = NONE;
#ifdef NEW_CLUSTER_ACTS
        act = true;
#else
        act = false;
#endif
        warned = false;
        lost = true;
        empty_store = true;
        heard = false;
        end_session(0);
        end_session(1)
       }
#endif
    :: d_step {             /* the control plane is restarted */
#ifdef WARNING_NOT_STORED
        warned = false;
#endif
        end_session(0);
        end_session(1)
       }
    od
}

init { atomic { run Agent(0); run Agent(1) } }

#if REACH == 1   /* the store finds out that it is behind */
NEVER(lost && heard && warned && term == 2)
#elif REACH == 2   /* and acts again when a person has confirmed it */
NEVER(H[0].order && term == 2)
#endif
