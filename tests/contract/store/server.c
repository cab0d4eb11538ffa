/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "controlplane/store/dbsync.h"
#include "tests/contract/store/contract.h"

static char direct_url[512];
static struct dbsync *side; /* connected when there is something to ask */

void server_begin(const char *url)
{
    (void) snprintf(direct_url, sizeof(direct_url), "%s", url);
}

void server_end(void)
{
    side = dbsync_close(side);
}

static void connect_side(void)
{
    struct dbconn_config cfg = { .connect_timeout_ms = 5000, .lock_wait_ms = 5000, .purpose = "test",
                                 .accept_not_durable = true };
    struct adv_err err = { 0 };

    cfg.password_file = getenv("ADVISOR_MARIADB_PASSWORD_FILE");
    cr_assert_eq(dburl_parse(direct_url, &cfg.url, &err), 0, "%s", err.msg);
    cr_assert_eq(dbsync_open(&cfg, 20000, &side, &err), 0, "%s", err.msg);
}

void server_sql(const char *text, char ret[64])
{
    struct adv_err err = { 0 };

    if (!side)
        connect_side();
    cr_assert_eq(dbsync_text(side, text, ret, 64, &err), 0, "%s: %s", text, err.msg);
}
