/* SPDX-License-Identifier: Apache-2.0 */
/* The MySQL and MariaDB engine: opening, closing, and what its parts share. Its parts: mysql-schema.c, mysql-commit.c,
 * mysql-read.c (loading, following, audit pages), mysql-share.c (ownership, handoffs).
 *
 * A commit is one text, in one round trip: guards, rows, numbers, COMMIT. What has to hold is checked by the server within
 * it: the statement that takes the numbers fails unless every guard matched, and a statement that fails stops the rest, so
 * COMMIT is reached only by a transaction whose guards all held. So no lock ever waits for us while we are slow, or stopped.
 * A transaction too large for one packet is sent in pieces, of which the last has the COMMIT.
 *
 * Numbers of changes come from one row (`sequence`), locked from there to the COMMIT: the order of numbers is the order of
 * commits, and no reader sees a number while one below it is missing. Each transaction also leaves a random mark in its
 * changes. By it a commit whose answer was lost is found again: the next session of the writing connection begins only
 * when the one before has ended at the server (dbconn's fence), so looking for the mark then tells for certain. And by it
 * who follows sees that the history it knows was replaced by another one with the same numbers.
 *
 * Where nothing was stored (deadlock, a lock not had in time, a connection lost before the COMMIT), it is tried again, a few
 * times.
 *
 * Columns hold bytes (VARBINARY, BLOB): names compare as they do in memory. Tables and their rules: docs/internals/store.md. */

#include "controlplane/store/mysql-engine.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/clock.h"
#include "common/num.h"
#include "common/uuid.h"

#define CHUNK_MAX  (4u << 20) /* of one query's text; less where the server takes less */
#define CHUNK_MIN  (1u << 20) /* what a server must take */
#define MIGRATE_MS 60000      /* a statement of a migration may take this long */

/* Whether to try again, and what a person may have to do. */
void my_outside(struct adv_err *err)
{
    switch (err->code) {
    case ADV_UNAVAILABLE:
    case ADV_RESOURCE_EXHAUSTED:
    case ADV_DATA_LOSS:
    case ADV_FAILED_PRECONDITION:
    case ADV_PERMISSION_DENIED:
        return;
    case ADV_ABORTED:
        if (adv_streq(err->reason, "STORE_NOT_OWNER") || adv_streq(err->reason, "STORE_REPLACED"))
            return;
        err->reason = "STORE_BUSY";
        break;
    default:
        err->reason = "STORE_UNAVAILABLE";
        break;
    }
    err->code = ADV_UNAVAILABLE;
}

bool my_u64(const struct dbrow *row, unsigned column, uint64_t *ret)
{
    return column < row->n && row->column[column] && adv_parse_u64(row->column[column], 0, UINT64_MAX, ret, NULL) == 0;
}

bool my_i64(const struct dbrow *row, unsigned column, int64_t *ret)
{
    return column < row->n && row->column[column] && adv_parse_i64(row->column[column], INT64_MIN, INT64_MAX, ret, NULL) == 0;
}

const char *my_text(const struct dbrow *row, unsigned column)
{
    return column < row->n && row->column[column] ? row->column[column] : "";
}

int my_bad_row(struct adv_err *err, const char *table)
{
    return adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "store: a row of %s is not as we write it", table);
}

void my_quote(struct adv_buf *b, const char *s)
{
    db_quote(b, s, strlen(s));
}

void my_comma_quote(struct adv_buf *b, const char *s)
{
    (void) adv_buf_append_byte(b, ',');
    my_quote(b, s);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int identify(struct mysql_store *st, struct dbsync *s, struct adv_err *err)
{
    char uuid[ADV_UUID_SIZE], sealed[256];
    int r;

    /* from now on as one that serves: tools look */
    if ((r = adv_uuid_v7(adv_wall_us(), uuid, err)) < 0 ||
        (r = dbsync_exec(s, err, "INSERT IGNORE INTO meta VALUES('store_uuid', '%s'), ('term', '1')", uuid)) < 0 ||
        (r = dbsync_exec(s, err, "REPLACE INTO replicas VALUES('%s', NOW(6) + INTERVAL %" PRId64 " MICROSECOND)",
                         st->base.replica, st->owner_lease_us)) < 0 ||
        (r = my_get_meta(s, "store_uuid", st->base.uuid, sizeof(st->base.uuid), err)) < 0 ||
        (r = my_get_meta_number(s, "term", &st->base.term, err)) < 0 || (r = my_get_meta(s, "sealed", sealed, sizeof(sealed), err)) < 0)
        return r;
    if (!adv_uuid_valid(st->base.uuid) || st->base.term == 0)
        return my_bad_row(err, "meta");
    st->base.made = adv_streq(st->base.uuid, uuid);
    if (sealed[0])
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_SEALED", "store: it was %.150s and is not to be served", sealed);
    return 0;
}

static int prepare(struct mysql_store *st, struct adv_err *err)
{
    ADV_AUTO(dbsync) s = NULL;
    uint64_t packet;
    int r = dbsync_open(&st->conf, st->timeout_ms > MIGRATE_MS ? st->timeout_ms : MIGRATE_MS, &s, err);

    if (r < 0)
        return r;
    packet = dbsync_server(s)->max_allowed_packet;
    if (packet < CHUNK_MIN)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_PACKET_TOO_SMALL",
                                  "database: max_allowed_packet is %" PRIu64 "; expected at least %u", packet, CHUNK_MIN);
    st->chunk_max = packet < CHUNK_MAX ? packet : CHUNK_MAX;
    r = my_migrate(s, st->conf.url.database, err);
    return r < 0 ? r : identify(st, s, err);
}

static void free_store(struct mysql_store *st)
{
    free(st->told);
    free(st->conf.password_file);
    free(st->conf.tls_ca);
    adv_buf_done(&st->commit.look);
    free(st);
}

static void handle_closed(void *arg)
{
    struct mysql_store *st = arg;

    if (--st->handles == 0)
        free_store(st);
}

static void timer_closed(uv_handle_t *h)
{
    handle_closed(h->data);
}

static struct store *my_close(struct store *base)
{
    struct mysql_store *st = mysql_of(base);

    dbconn_close(st->write, handle_closed, st);
    dbconn_close(st->lease, handle_closed, st);
    dbconn_close(st->side, handle_closed, st);
    uv_close((uv_handle_t *) &st->commit.pause, timer_closed);
    uv_close((uv_handle_t *) &st->poll_failed, timer_closed);
    uv_close((uv_handle_t *) &st->ask_failed, timer_closed);
    return NULL;
}

static const struct store_ops my_ops = {
    .name = "mysql",
    .shared = true,
    .close = my_close,
    .load = my_load,
    .commit = my_commit,
    .list_audit = my_list_audit,
    .poll = my_poll,
    .renew = my_renew,
    .claim = my_claim,
    .release = my_release,
    .want = my_want,
    .hand_off = my_hand_off,
    .answer = my_answer,
};

static char *copy(const char *s)
{
    return strdup(s ? s : "");
}

static int start(struct mysql_store *st, struct adv_err *err)
{
    struct dbconn **conns[] = { &st->write, &st->lease, &st->side };
    static const char *const purposes[] = { "write", "lease", "side" };
    const char *const fences[] = { st->fence, st->lease_fence, NULL };
    uv_timer_t *timers[] = { &st->commit.pause, &st->poll_failed, &st->ask_failed };
    int r;

    for (size_t i = 0; i < ADV_ARRAY_LEN(conns); i++) {
        struct dbconn_config conf = st->conf;
        conf.purpose = purposes[i];
        conf.fence = fences[i];
        if ((r = dbconn_new(st->base.loop, &conf, conns[i], err)) < 0) {
            while (i-- > 0)
                dbconn_close(*conns[i], NULL, NULL);
            return r;
        }
    }
    for (size_t i = 0; i < ADV_ARRAY_LEN(timers); i++) {
        (void) uv_timer_init(st->base.loop, timers[i]);
        timers[i]->data = st;
    }
    st->handles = (int) (ADV_ARRAY_LEN(conns) + ADV_ARRAY_LEN(timers));
    return 0;
}

int mysql_store_open(uv_loop_t *loop, const struct store_config *cfg, struct store **ret, struct adv_err *err)
{
    struct mysql_store *st = calloc(1, sizeof(*st));
    int r;

    if (!st)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    st->base.ops = &my_ops;
    st->base.loop = loop;
    (void) snprintf(st->base.replica, sizeof(st->base.replica), "%s", cfg->replica);
    /* names of locks are the server's, so the database's name is of no use in it; replicas are new at each start */
    (void) snprintf(st->fence, sizeof(st->fence), "adv.w.%.56s", cfg->replica);
    (void) snprintf(st->lease_fence, sizeof(st->lease_fence), "adv.l.%.56s", cfg->replica);
    st->timeout_ms = (uint32_t) (cfg->timeout_us / 1000);
    st->owner_lease_us = cfg->owner_lease_us;
    adv_buf_init(&st->commit.look, 256);
    st->conf = (struct dbconn_config) { .password_file = copy(cfg->password_file), .tls_ca = copy(cfg->tls_ca),
                                        .connect_timeout_ms = st->timeout_ms, .lock_wait_ms = st->timeout_ms / 2,
                                        .accept_not_durable = cfg->accept_lossy,
                                        .purpose = "open" };
    r = st->conf.password_file && st->conf.tls_ca ? dburl_parse(cfg->url, &st->conf.url, err) :
                                                    adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    if (r < 0 || (r = prepare(st, err)) < 0 || (r = start(st, err)) < 0) {
        free_store(st);
        return r;
    }
    *ret = &st->base;
    return 0;
}
