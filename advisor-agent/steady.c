/* SPDX-License-Identifier: Apache-2.0 */
#include "advisor-agent/steady.h"

#include <stddef.h>

static int64_t off_us(const struct steady *s, int64_t wall_us, int64_t boot_us)
{
    return wall_us - boot_us - s->base_us;
}

static bool is_step(int64_t us)
{
    return us <= STEADY_STEP_US && us >= -STEADY_STEP_US;
}

int64_t steady_wall_us(struct steady *s, int64_t wall_us, int64_t boot_us)
{
    if (!s->begun) {
        s->begun = true;
        s->base_us = wall_us - boot_us;
    } else if (is_step(off_us(s, wall_us, boot_us))) {
        s->base_us = wall_us - boot_us;
    }
    return boot_us + s->base_us;
}

bool steady_jumped(struct steady *s, int64_t wall_us, int64_t boot_us, int64_t *ret_jump_us)
{
    int64_t off;

    (void) steady_wall_us(s, wall_us, boot_us);
    off = off_us(s, wall_us, boot_us);
    if (is_step(off - s->jump_us))
        return false;
    s->jump_us = off;
    if (ret_jump_us)
        *ret_jump_us = off;
    return true;
}
