/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/contract/store/contract.h"

#include <ftw.h>
#include <sqlite3.h>
#include <stdio.h>

#include "common/num.h"

uv_loop_t loop;
char contract_url[512];
struct store_config contract_config;
static char dir[64];

bool contract_shared(void)
{
    return getenv("ADVISOR_MARIADB_SOCKET") != NULL;
}

void contract_lab(const char *what)
{
    char cmd[1024];

    (void) snprintf(cmd, sizeof(cmd), "%s --dir %s %s", getenv("ADVISOR_MARIADB_LAB"), getenv("ADVISOR_MARIADB_DIR"), what);
    cr_assert_eq(system(cmd), 0, "%s", cmd);
}

void contract_setup(void)
{
    cr_assert_eq(uv_loop_init(&loop), 0);
    contract_config = (struct store_config) { .url = contract_url, .owner_lease_us = 60 * 1000000LL, .timeout_us = 5000000 };
    if (contract_shared()) {
        contract_lab("start");
        contract_lab("thaw");
        contract_lab("sql 'SET GLOBAL read_only = 0, innodb_flush_log_at_trx_commit = 1; DROP DATABASE advisor;"
                     " CREATE DATABASE advisor'");
        (void) snprintf(contract_url, sizeof(contract_url), "mysql://advisor@/advisor?socket=%s", getenv("ADVISOR_MARIADB_SOCKET"));
        server_begin(contract_url);
        contract_config.password_file = getenv("ADVISOR_MARIADB_PASSWORD_FILE");
        return;
    }
    (void) snprintf(dir, sizeof(dir), "/tmp/adv-contract-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void) snprintf(contract_url, sizeof(contract_url), "%s/a.db", dir);
}

static int rm(const char *name, const struct stat *sb, int flag, struct FTW *f)
{
    (void) sb, (void) flag, (void) f;
    return remove(name);
}

void contract_teardown(void)
{
    server_end();
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    if (dir[0])
        (void) nftw(dir, rm, 8, FTW_DEPTH | FTW_PHYS);
}

int contract_open(const char *name, struct store **ret, struct adv_err *err)
{
    struct store_config cfg = contract_config;

    cfg.replica = name;
    return store_open(&loop, &cfg, ret, err);
}

struct store *must_open(const char *name)
{
    struct store *st = NULL;
    struct adv_err err = { 0 };

    cr_assert_eq(contract_open(name, &st, &err), 0, "%s", err.msg);
    return st;
}

static void run_sqlite(const char *text, char ret[64])
{
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    const char *rest = text;

    ret[0] = '\0';
    cr_assert_eq(sqlite3_open(contract_url, &db), SQLITE_OK);
    (void) sqlite3_busy_timeout(db, 5000);
    while (*rest) {
        int rc;
        cr_assert_eq(sqlite3_prepare_v2(db, rest, -1, &s, &rest), SQLITE_OK, "%s: %s", text, sqlite3_errmsg(db));
        while ((rc = sqlite3_step(s)) == SQLITE_ROW)
            (void) snprintf(ret, 64, "%s", (const char *) sqlite3_column_text(s, 0));
        cr_assert_eq(rc, SQLITE_DONE, "%s: %s", text, sqlite3_errmsg(db));
        (void) sqlite3_finalize(s);
    }
    (void) sqlite3_close(db);
}

static void run_sql(const char *text, char ret[64])
{
    if (contract_shared())
        server_sql(text, ret);
    else
        run_sqlite(text, ret);
}

void contract_sql(const char *fmt, ...)
{
    char text[2048], ret[64];
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    run_sql(text, ret);
}

uint64_t contract_number(const char *fmt, ...)
{
    char text[2048], ret[64];
    uint64_t n = 0;
    va_list ap;

    va_start(ap, fmt);
    (void) vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    run_sql(text, ret);
    cr_assert_eq(adv_parse_u64(ret, 0, UINT64_MAX, &n, NULL), 0, "%s: '%s'", text, ret);
    return n;
}
