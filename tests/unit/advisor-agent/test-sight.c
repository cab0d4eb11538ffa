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
