/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_WATCHDOG_WATCHDOG_H
#define ADVISOR_WATCHDOG_WATCHDOG_H

/* Ends the agent's holds when the agent does not: dead, frozen, hanging, or without a control plane. It reads the agent's
 * journal, looks at the job, and gives it back as the hold's record says; it starts nothing that nobody decided. All that it
 * concludes is hold_verdict() (advisor-agent/hold.h); docs/watchdog.md is the page for people.
 *
 * One hold at a time. Before each write it takes the lock of the agent's folder if it is free, reads the journal and the
 * ceiling again, compares a fresh read of the job with the record, and writes its intent down; after it the outcome. Both
 * stand in a journal of its own, STATE/watchdog/journal, which the agent reads.
 *
 * Thread: loop thread.  Blocks: reads of the journal, its own synced appends. */

#include <uv.h>

#include "adapters/adapter.h"
#include "advisor-watchdog/config.h"

struct watchdog;

/* @cfg and @runner must outlive it.
 * Errors: -ADV_ALREADY_EXISTS (another watchdog has the folder); -ADV_PERMISSION_DENIED, -ADV_UNAVAILABLE (the folder);
 *         -ADV_INVALID_ARGUMENT (ceiling.owner); -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int watchdog_new(uv_loop_t *loop, const struct watchdog_config *cfg, struct adapter_runner *runner,
                                struct watchdog **ret, struct adv_err *err);
struct adapter_host *watchdog_host(struct watchdog *w);
/* Where the adapter may keep files; borrowed. */
const char *watchdog_dir(const struct watchdog *w);
/* @done is called once when there is nothing more to do: in mode `once`, after the last hold. */
void watchdog_start(struct watchdog *w, struct adapter *adapter, void (*done)(void *arg), void *arg);
/* Begins nothing more. The adapter and the runner are freed after it, then the loop is run until it is empty. */
void watchdog_stop(struct watchdog *w);
struct watchdog *watchdog_free(struct watchdog *w);
/* Did it see a journal that it could use, or none at all? */
bool watchdog_well(const struct watchdog *w);

#endif
