/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_ATTRIBUTE_H
#define CONTROLPLANE_ATTRIBUTE_H

/* Asks a provider of attributions about the attempts that the domain wants it to be asked about, and tells what came of it
 * (EV_ATTRIBUTION). What is asked, what is read out of the answer, and when the provider is left alone is the isolator's
 * (isolator/isolator.h); what the answer means is the domain's (domain/attribution.c).
 *
 * A question is asked once, within its budget, and never again: no answer, an error, an answer that makes no sense or comes
 * late, a provider that is not there or is left alone, too many questions at one time are all "no attribution", with the
 * reason. Nothing waits here: what cannot be asked at once is not asked.
 *
 * Asked about is only what this replica owns, and what it was decided to ask about in this life of the process.
 *
 * Thread: loop thread.  Blocks: no, but for certificate files. */

#include "controlplane/api/api.h"

struct attribute;

struct attribute_config {
    const char *target; /* "": nobody is asked */
    const char *ca_file, *cert_file, *key_file;
    int64_t fast_budget_ms, slow_budget_ms;
    size_t max_calls; /* at one time, of which the slow ones get half */
};

/* *ret is NULL when there is nobody to ask. @api and @turn outlive it. Errors: those of rpc_client_new(). */
adv_must_check int attribute_new(uv_loop_t *loop, struct turn *turn, struct api *api, const struct attribute_config *cfg,
                                 struct attribute **ret, struct adv_err *err);
/* Asks no more; what is under way is called off. Before turn_stop(). Takes NULL. */
void attribute_stop(struct attribute *t);
/* After turn_stop()'s callback. It frees itself once the last call has come back; the loop has to run until then. Takes NULL. */
void attribute_free(struct attribute *t);

#endif
