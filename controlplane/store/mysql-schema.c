/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the MySQL engine and how they change. docs/internals/store.md has the rules of migrations. */

#include "controlplane/store/mysql-engine.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/failpoint.h"
#include "common/num.h"

#define LOCK_NAME "advisor.migrate" /* the server's, not the database's: two databases' migrations wait for each other */

/* Each migration runs once, in order. DDL commits by itself here, so one that was cut off is run again from its beginning:
 * each statement may find itself done already. Never edit one that was released. */
static const char *const migration_1[] = {
    "CREATE TABLE IF NOT EXISTS objects(cluster VARBINARY(64) NOT NULL, kind SMALLINT UNSIGNED NOT NULL,"
    " `key` VARBINARY(255) NOT NULL, record LONGBLOB NOT NULL, PRIMARY KEY(cluster, kind, `key`)) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS sequence(id TINYINT UNSIGNED NOT NULL PRIMARY KEY, last BIGINT UNSIGNED NOT NULL)"
    " ENGINE=InnoDB",
    "INSERT IGNORE INTO sequence VALUES(1, 0)",
    "CREATE TABLE IF NOT EXISTS changes(seq BIGINT UNSIGNED NOT NULL PRIMARY KEY, mark BIGINT UNSIGNED NOT NULL,"
    " cluster VARBINARY(64) NOT NULL, revision BIGINT UNSIGNED NOT NULL, kind SMALLINT UNSIGNED NOT NULL,"
    " `key` VARBINARY(255) NOT NULL) ENGINE=InnoDB",
    /* id: the number of the event's change, so that ids rise in the order of commits */
    "CREATE TABLE IF NOT EXISTS audit(id BIGINT UNSIGNED NOT NULL PRIMARY KEY, cluster VARBINARY(64) NOT NULL,"
    " seq BIGINT UNSIGNED NOT NULL, prev_hash VARBINARY(64) NOT NULL, hash VARBINARY(64) NOT NULL, principal BLOB NOT NULL,"
    " verb BLOB NOT NULL, subject BLOB NOT NULL, detail LONGBLOB NOT NULL, salt VARBINARY(64) NOT NULL,"
    " detail_hash VARBINARY(64) NOT NULL, event_id VARBINARY(255) NOT NULL, observe_us BIGINT NOT NULL, record_us BIGINT NOT NULL,"
    " UNIQUE KEY by_seq(cluster, seq), KEY by_id(cluster, id), KEY by_subject(cluster, subject(200)),"
    " KEY by_event(cluster, event_id)) ENGINE=InnoDB",
    /* seq: the last number of the transaction that brought it */
    "CREATE TABLE IF NOT EXISTS requests(id VARBINARY(255) NOT NULL PRIMARY KEY, hash VARBINARY(64) NOT NULL,"
    " record_us BIGINT NOT NULL, seq BIGINT UNSIGNED NOT NULL, KEY by_age(record_us), KEY by_seq(seq)) ENGINE=InnoDB",
    "CREATE TABLE IF NOT EXISTS owners(cluster VARBINARY(64) NOT NULL PRIMARY KEY, owner VARBINARY(64) NOT NULL,"
    " epoch BIGINT UNSIGNED NOT NULL, until_at DATETIME(6) NOT NULL, wanted VARBINARY(64) NOT NULL DEFAULT '',"
    " wanted_journal VARBINARY(64) NOT NULL DEFAULT '', touched BIGINT UNSIGNED NOT NULL DEFAULT 0, KEY by_owner(owner))"
    " ENGINE=InnoDB",
    "INSERT IGNORE INTO owners(cluster, owner, epoch, until_at) VALUES('" FLEET_CLUSTER "', '', 0, '1970-01-01')",
    "CREATE TABLE IF NOT EXISTS replicas(replica VARBINARY(64) NOT NULL PRIMARY KEY, until_at DATETIME(6) NOT NULL)"
    " ENGINE=InnoDB",
    /* id: random, since it makes request ids, and those outlive a table's counter in a copy */
    "CREATE TABLE IF NOT EXISTS handoffs(id BIGINT UNSIGNED NOT NULL PRIMARY KEY, cluster VARBINARY(64) NOT NULL,"
    " from_replica VARBINARY(64) NOT NULL, made_at DATETIME(6) NOT NULL, method VARBINARY(255) NOT NULL,"
    " request LONGBLOB NOT NULL, caller BLOB NOT NULL, answered TINYINT UNSIGNED NOT NULL, reply LONGBLOB,"
    " seq BIGINT UNSIGNED NOT NULL DEFAULT 0, KEY by_age(answered, made_at), KEY by_asker(from_replica, answered))"
    " ENGINE=InnoDB",
    NULL,
};

static const struct {
    const char *const *sql;
    /* The oldest program that can live with the schema from here on; what it reads stays until a later release. */
    unsigned min_reader;
} migrations[] = { { migration_1, 1 } };

const unsigned my_schema_version = ADV_ARRAY_LEN(migrations);

int my_get_meta(struct dbsync *s, const char *name, char *buf, size_t size, struct adv_err *err)
{
    char sql[128];

    (void) snprintf(sql, sizeof(sql), "SELECT value FROM meta WHERE `key` = '%s'", name);
    return dbsync_text(s, sql, buf, size, err);
}

int my_get_meta_number(struct dbsync *s, const char *name, uint64_t *ret, struct adv_err *err)
{
    char value[64];
    int r = my_get_meta(s, name, value, sizeof(value), err);

    if (r < 0)
        return r;
    *ret = 0;
    return !value[0] || adv_parse_u64(value, 0, UINT64_MAX, ret, NULL) == 0 ? 0 : my_bad_row(err, "meta");
}

/* A database with tables but without ours belongs to somebody else; looked at before anything is written to it. */
static int check_ours(struct dbsync *s, const char *database, struct adv_err *err)
{
    char n[32], ours[64];
    int r = dbsync_text(s, "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
                           " AND table_name <> 'meta'", n, sizeof(n), err);

    if (r < 0)
        return r;
    if ((r = dbsync_text(s, "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'meta'"
                            " AND table_comment = '" MY_META_COMMENT "'", ours, sizeof(ours), err)) < 0)
        return r;
    if (adv_streq(ours, "1"))
        return 0;
    if (adv_streq(n, "0") &&
        (r = dbsync_text(s, "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()", n, sizeof(n), err)) < 0)
        return r;
    if (!adv_streq(n, "0"))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_FOREIGN", "store: database %s has tables of another program",
                                  database);
    return dbsync_exec(s, err, "CREATE TABLE IF NOT EXISTS meta(`key` VARBINARY(64) NOT NULL PRIMARY KEY,"
                               " value VARBINARY(255) NOT NULL) ENGINE=InnoDB COMMENT='%s'", MY_META_COMMENT);
}

static int run_migrations(struct dbsync *s, struct adv_err *err)
{
    uint64_t version, min_reader;
    int r;

    if ((r = my_get_meta_number(s, "schema_version", &version, err)) < 0 ||
        (r = my_get_meta_number(s, "min_reader", &min_reader, err)) < 0)
        return r;
    if (min_reader > ADV_ARRAY_LEN(migrations))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_TOO_NEW",
                                  "store: its schema, version %" PRIu64 ", needs a program that knows version %" PRIu64
                                  "; this one knows %zu", version, min_reader, ADV_ARRAY_LEN(migrations));
    for (; version < ADV_ARRAY_LEN(migrations); version++) {
        for (const char *const *sql = migrations[version].sql; *sql; sql++)
            if ((r = dbsync_exec(s, err, "%s", *sql)) < 0)
                return r;
        ADV_FAILPOINT("mysql.migrating");
        if (migrations[version].min_reader > min_reader)
            min_reader = migrations[version].min_reader;
        if ((r = dbsync_exec(s, err, "REPLACE INTO meta VALUES('schema_version', '%" PRIu64 "'), ('min_reader', '%" PRIu64 "')",
                             version + 1, min_reader)) < 0)
            return r;
    }
    return 0;
}

int my_migrate(struct dbsync *s, const char *database, struct adv_err *err)
{
    char got[8];
    int r;

    if ((r = dbsync_text(s, "SELECT GET_LOCK('" LOCK_NAME "', 20)", got, sizeof(got), err)) < 0)
        return r;
    if (!adv_streq(got, "1"))
        return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_BUSY", "store: another replica is still migrating");
    r = check_ours(s, database, err);
    if (r == 0)
        r = run_migrations(s, err);
    if (r == 0)
        r = dbsync_text(s, "SELECT RELEASE_LOCK('" LOCK_NAME "')", got, sizeof(got), err);
    return r;
}
