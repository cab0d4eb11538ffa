/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_ADAPTERS_SLURM_CONF_H
#define ADV_ADAPTERS_SLURM_CONF_H

/* The agent's own copy of slurm.conf. It differs from the site's in one thing: AuthInfo carries a short ttl, so that a
 * command which got no answer can take effect only for so long (the life of its munge credential).
 * Thread: one owner.  Blocks: for reading and writing small local files. */

#include "common/buf.h"
#include "common/err.h"

struct slurm_conf;

/* @source: the site's file; NULL: $SLURM_CONF, /etc/slurm/slurm.conf, /run/slurm/conf/slurm.conf, the first that
 * exists. The copy is @state_dir/slurm.conf.
 * Owner: caller. Errors: -ADV_RESOURCE_EXHAUSTED. Does not read anything yet. */
adv_must_check int slurm_conf_new(const char *source, const char *state_dir, int ttl_s, struct slurm_conf **ret,
                                  struct adv_err *err);
struct slurm_conf *slurm_conf_free(struct slurm_conf *c);

/* Makes the copy, or makes it again when the source or a file it includes has changed. Cheap when nothing has.
 * Must precede each command: without a slurm.conf Slurm's tools hang about a minute looking for one.
 * Errors: -ADV_UNAVAILABLE (no source, unreadable, or the copy cannot be written). */
adv_must_check int slurm_conf_refresh(struct slurm_conf *c, struct adv_err *err);

/* The site's own file, as it is found now; NULL: there is none. Valid as long as @c and the environment. */
const char *slurm_conf_source(const struct slurm_conf *c);

/* Path of the copy; valid as long as @c. */
const char *slurm_conf_path(const struct slurm_conf *c);

#endif
