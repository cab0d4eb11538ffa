/* SPDX-License-Identifier: Apache-2.0 */
/* What all models share.
 *
 * Time is a number of ticks that are left of something: a lease, a wait, the life of a command
 * that is on its way. Nothing counts up, so the models run for ever in a finite number of states.
 *
 * A property is PROPERTY(name) and one or more MUST(name, condition), or an ltl formula of that name. A guard is taken out
 * by -DNAME; README.md lists them all. */

#define NONE 2              /* of two hosts or replicas: neither */
#define OTHER(x) (1 - (x))
#define DEC(x) x = ((x) > 0 -> (x) - 1 : 0)

/* The name is a variable that is never set, so that it stands in what spin says about the failed assertion. */
#define PROPERTY(name) bool name
#define MUST(name, cond) assert(name || (cond))

/* A property holds easily in a model in which nothing happens. -DREACH=n asks for the n-th of the states that a model
 * names at its end; that it is never reached must be wrong. */
#define NEVER(state) active proctype Never() { end: d_step { (state) -> MUST(never_reached, false) } }
#ifdef REACH
PROPERTY(never_reached);
#endif
