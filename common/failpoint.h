/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_COMMON_FAILPOINT_H
#define ADV_COMMON_FAILPOINT_H

/* Named stop points for crash tests. Compiled in only with -Dfailpoints=true; otherwise the macro
 * is nothing.
 *
 *     ADV_FAILPOINT("journal.after_intent");
 *
 * The environment variable ADVISOR_FAILPOINT holds "name=action[@count]" separated by ';'. On the
 * @count-th pass (default the first; passes are counted over all forked children together) the
 * point writes "failpoint NAME hit" to stderr and then does:
 *
 *     kill        SIGKILL to itself
 *     stop        SIGSTOP to itself; the run goes on after SIGCONT
 *     pause:FILE  waits, looking every 10 ms, until FILE exists
 *     exit:N      _exit(N)
 *     arm:POINT   goes on, and POINT, which until now did nothing, counts its passes from here
 *
 * Async-signal-safe after the first pass, so it may stand between fork and exec. */

#ifdef ADV_FAILPOINTS
#define ADV_FAILPOINT(name) adv_failpoint_hit(name)
#else
#define ADV_FAILPOINT(name) ((void) 0)
#endif

/* Behind the macro; does nothing in a build without failpoints. */
void adv_failpoint_hit(const char *name);

/* Reads the environment now (otherwise the first pass does). A malformed value ends the program
 * with status 2: a test that means to crash something must not pass by a typing error. */
void adv_failpoint_init(void);

#endif
