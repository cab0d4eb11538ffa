/* SPDX-License-Identifier: Apache-2.0 */
/* In a build without the MySQL engine: there is no server to ask, and a store there cannot be opened. */

#include "tests/contract/store/contract.h"

void server_begin(const char *url)
{
    (void) url;
}

void server_end(void)
{
}

void server_sql(const char *text, char ret[64])
{
    cr_assert_fail("no server: %s %s", text, ret);
}

Test(missing, the_engine)
{
    struct store_config cfg = { .url = "mysql://a@h/d", .replica = "one" };
    struct store *st = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(store_open(NULL, &cfg, &st, &err), -ADV_FAILED_PRECONDITION);
    cr_assert_str_eq(err.reason, "STORE_ENGINE_MISSING");
}
