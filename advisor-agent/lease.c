/* SPDX-License-Identifier: Apache-2.0 */

#include "advisor-agent/lease.h"

void lease_grant(struct lease *l, struct journal_epoch epoch, uint32_t lease_ms,
                 int64_t sent_boot_us, int64_t now_boot_us, bool settle)
{
    int64_t end = sent_boot_us + (int64_t) lease_ms * 1000;
    int order = journal_epoch_cmp(epoch, l->epoch);

    if (l->held && order < 0)
        return; /* a late answer of an earlier time */
    if (l->held && order == 0) {
        if (end > l->end_boot_us)
            l->end_boot_us = end;
    } else {
        /* Not held before: what settling has already been waited for is void. */
        l->end_boot_us = end;
        l->settling = l->settling || settle;
        l->settled_boot_us = 0;
        l->granted_boot_us = now_boot_us;
    }
    if (settle && !l->settling) {
        l->settling = true;
        l->settled_boot_us = 0;
        l->granted_boot_us = now_boot_us;
    }
    l->epoch = epoch;
    l->held = true;
}

void lease_drop(struct lease *l)
{
    l->held = false;
    l->end_boot_us = 0;
}

void lease_good_read(struct lease *l, int64_t began_boot_us, int64_t bound_ms)
{
    if (l->held && l->settling && l->settled_boot_us == 0 && began_boot_us >= l->granted_boot_us)
        l->settled_boot_us = began_boot_us + bound_ms * 1000;
}

void lease_unsettle(struct lease *l, int64_t now_boot_us)
{
    l->settling = true;
    l->settled_boot_us = 0;
    l->granted_boot_us = now_boot_us;
}

bool lease_valid(const struct lease *l, int64_t now_boot_us)
{
    return l->held && now_boot_us < l->end_boot_us;
}

bool lease_settled(const struct lease *l, int64_t now_boot_us)
{
    return !l->settling || (l->settled_boot_us != 0 && now_boot_us >= l->settled_boot_us);
}

bool lease_may_write(const struct lease *l, int64_t now_boot_us, int64_t deadline_ms,
                     int64_t bound_ms)
{
    if (!l->held || deadline_ms < 0 || bound_ms < 0 || !lease_settled(l, now_boot_us))
        return false;
    return l->end_boot_us - now_boot_us > (deadline_ms + bound_ms) * 1000;
}

int64_t lease_kill_at_boot_us(const struct lease *l, int64_t bound_ms)
{
    return l->end_boot_us - bound_ms * 1000;
}
