/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORETOOL_H
#define CONTROLPLANE_STORETOOL_H

/* `advisord [flags] store VERB …`: what people do with a store besides serving it; docs/store.md.
 * Blocks: yes. */

#include "controlplane/config.h"

/* @args are VERB and what follows. Writes to stdout and stderr.
 * Returns the exit status: 0; 1 when something is wrong with the store, or it could not be done; 2 for a bad command line. */
int storetool_main(const struct advisord_config *c, int n_args, char *const *args);

#endif
