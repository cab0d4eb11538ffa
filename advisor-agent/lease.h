/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_AGENT_LEASE_H
#define ADVISOR_AGENT_LEASE_H

/* The right to write to the scheduler, for a while. Pure: time comes in, CLOCK_BOOTTIME in
 * microseconds, which goes on while the machine sleeps.
 *
 * Settling: after another holder, or with intents whose outcome nobody knows, a command may still be
 * on its way. Then no write starts before a good read of the scheduler plus the landing bound. */

#include "advisor-agent/journal.h"

struct lease {
    struct journal_epoch epoch;
    bool held;
    int64_t end_boot_us;
    bool settling;
    int64_t granted_boot_us; /* when this epoch's first grant came */
    int64_t settled_boot_us; /* 0: no good read yet */
};

/* A grant in the answer, come now, to what was SENT at @sent_boot_us. Counts from there. */
void lease_grant(struct lease *l, struct journal_epoch epoch, uint32_t lease_ms,
                 int64_t sent_boot_us, int64_t now_boot_us, bool settle);
void lease_drop(struct lease *l);
/* A good read of the scheduler that was begun then. One begun before the grant is worth nothing: the
 * holder before may have written since. */
void lease_good_read(struct lease *l, int64_t began_boot_us, int64_t bound_ms);

/* A command whose outcome nobody knows has ended just now: what settling waited for is void. */
void lease_unsettle(struct lease *l, int64_t now_boot_us);

bool lease_valid(const struct lease *l, int64_t now_boot_us);
bool lease_settled(const struct lease *l, int64_t now_boot_us);
/* May a write start whose command ends within @deadline_ms and can land @bound_ms later? */
bool lease_may_write(const struct lease *l, int64_t now_boot_us, int64_t deadline_ms,
                     int64_t bound_ms);
/* No instruction of the command may run after this. */
int64_t lease_kill_at_boot_us(const struct lease *l, int64_t bound_ms);

#endif
