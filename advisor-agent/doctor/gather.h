/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_DOCTOR_GATHER_H
#define ADVISOR_DOCTOR_GATHER_H

/* Asks Slurm's tools, and nothing but reading. Each command has a deadline, all of them together have one, and none is started
 * without a slurm.conf, since the tools would look for one for a minute. */

#include "advisor-agent/doctor/facts.h"

struct doctor_asking {
    struct adapter_runner *runner;
    /* Lets the runner's callbacks come: called again and again until one has. */
    void (*pump)(void *ctx);
    void *ctx;
    const char *scratch;    /* a folder of our own for the copy of slurm.conf: the agent's is not touched */
    const char *slurm_conf; /* NULL: as Slurm finds it */
    const char *host;       /* this host's name, short */
    int64_t until_mono_us;  /* nothing is started after that, by the runner's clock */
};

/* Fills @f->slurm; the settings at the start of @f are read. Each command has the agent's own deadline.
 * Thread: one owner.  Blocks: until all have answered or been given up. */
void doctor_gather(const struct doctor_asking *a, struct doctor_facts *f);

/* Runs one command; for what is asked elsewhere. @slurm_conf: which one its environment names. @ret_out may be NULL; else it
 * is malloc'd, NUL-terminated, and "" when there was nothing.
 * Errors: none; @ret says how it went. */
void doctor_ask(const struct doctor_asking *a, const char *slurm_conf, const char *const argv[], int deadline_ms, struct doctor_answer *ret,
                char **ret_out, size_t *ret_len);

#endif
