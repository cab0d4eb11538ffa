/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_DOCTOR_H
#define ADVISOR_DOCTOR_H

/* `advisor-agent --doctor`: what is missing at this site, and how to mend it. `advisorctl doctor` runs this. */

/* The whole program: reads the rest of the command line, looks, prints. Returns the exit code: 0 nothing worse than notes,
 * 1 warnings, 2 faults, 3 the doctor itself could not work.
 * Blocks: until it is done; some seconds at a healthy site, two minutes at most. */
int doctor_main(int argc, char **argv);

#endif
