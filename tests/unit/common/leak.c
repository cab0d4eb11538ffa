/* SPDX-License-Identifier: Apache-2.0 */

/* Leaks on purpose: run-leakcheck must turn it into a failure. */

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

Test(leak, leaks)
{
    char *volatile p = malloc(100);

    cr_assert_not_null(p);
    memset(p, 1, 100);
    p = NULL;
}
