/* SPDX-License-Identifier: Apache-2.0 */

/* What heartbeats say of how long the scheduler was not seen. */

#include <criterion/criterion.h>

#include "advisor-agent/internal.h"

#define S     INT64_C(1000000)
#define BLIND 90000u /* proto/advisor/v1/agent_service.proto */

static const int64_t boots[] = { 1, 1 * S, 59 * S, 61 * S, 1000000 * S };

/* Just started on a host that was just booted, too: nobody is put out for one that has not looked. */
Test(sight, who_has_never_looked_does_not_see)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(boots); i++)
        cr_assert_gt(agent_unseen_ms(0, boots[i], 15000), BLIND, "%lld us after the boot", (long long) boots[i]);
}

Test(sight, a_late_poll_is_no_blindness)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(boots); i++) {
        cr_assert_eq(agent_unseen_ms(boots[i], boots[i] + 60 * S, 15000), 0);
        cr_assert_eq(agent_unseen_ms(boots[i], boots[i] + 61 * S, 15000), 61000);
        cr_assert_eq(agent_unseen_ms(boots[i], boots[i] + 91 * S, 60000), 0, "polls are further apart");
        cr_assert_eq(agent_unseen_ms(boots[i], boots[i] + 151 * S, 60000), 151000);
    }
}

/* Close at first, and never a flood; a strained scheduler is asked less. */
Test(focus, looks_grow_apart)
{
    unsigned n[9] = { 0 };

    for (unsigned pace = 1; pace <= 8; pace *= 8)
        for (int64_t t = 0; t < 900 * S; n[pace]++)
            t += agent_focus_wait_us(t, S / 4, 15 * S, pace);
    cr_expect_eq(agent_focus_wait_us(0, S / 4, 15 * S, 1), S / 4);
    cr_expect_eq(agent_focus_wait_us(8 * S, S / 4, 15 * S, 1), S / 4);
    cr_expect_eq(agent_focus_wait_us(3600 * S, S / 4, 15 * S, 1), 3 * S);
    cr_expect_eq(agent_focus_wait_us(3600 * S, S / 4, S, 1), S, "never further apart than polls");
    cr_expect(n[1] > 300 && n[1] < 420, "%u looks", n[1]);
    cr_expect_lt(n[8], n[1] / 4);
}

/* However slow the scheduler, an agent that sees it does not say that it is blind. */
Test(sight, a_paced_poll_is_no_blindness)
{
    for (int64_t poll_s = 1; poll_s <= 600; poll_s++)
        for (unsigned pace = 1; pace <= 8; pace++)
            for (int64_t forget_s = 0; forget_s <= 100000; forget_s = forget_s ? forget_s * 10 : 1) {
                int64_t wait_us = agent_poll_wait_us(poll_s * S, pace, forget_s * S);
                cr_assert_geq(wait_us, poll_s * S);
                cr_assert_lt(agent_unseen_ms(S, S + wait_us + (poll_s > 60 ? 0 : 15) * S, poll_s * 1000), BLIND, "poll %d s, pace %u, forgets after %d s",
                             (int) poll_s, pace, (int) forget_s);
            }
}
