/* SPDX-License-Identifier: Apache-2.0 */
/* Images of MySQL stores. Reading is one snapshot; writing one transaction, under the lock that who opens a store takes, so
 * that nobody begins to serve in the middle. */

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "common/failpoint.h"
#include "common/num.h"
#include "controlplane/store/image-engine.h"
#include "controlplane/store/mysql-engine.h"

#define QUERY_MS       (3600u * 1000) /* a table may be large */
#define STATEMENT_MAX  (512u << 10)
#define ROWS_A_STATEMENT 500

struct mysql_image {
    struct image base;
    struct dbsync *s;
};

static int connect_to(const struct store_config *cfg, struct dbconn_config *conf, struct dbsync **ret, struct adv_err *err)
{
    int r;

    *conf = (struct dbconn_config) {
        .password_file = (char *) (uintptr_t) cfg->password_file,
        .tls_ca = (char *) (uintptr_t) cfg->tls_ca,
        .connect_timeout_ms = cfg->timeout_us ? (uint32_t) (cfg->timeout_us / 1000) : 5000,
        .lock_wait_ms = 20000,
        .accept_not_durable = cfg->accept_lossy,
        .purpose = "tool",
    };
    r = dburl_parse(cfg->url, &conf->url, err);
    return r < 0 ? r : dbsync_open(conf, QUERY_MS, ret, err);
}

static int read_info(struct dbsync *s, const char *url, struct image_info *info, struct adv_err *err)
{
    char ours[16];
    uint64_t min_reader;
    char last[32];
    int r;

    info->engine = "mysql";
    if ((r = dbsync_text(s, "SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'meta'"
                            " AND table_comment = '" MY_META_COMMENT "'", ours, sizeof(ours), err)) < 0)
        return r;
    if (!adv_streq(ours, "1"))
        return adv_err_set_reason(err, ADV_NOT_FOUND, "STORE_FOREIGN", "%.150s: no store of Advisor there", url);
    if ((r = my_get_meta(s, "store_uuid", info->uuid, sizeof(info->uuid), err)) < 0 ||
        (r = my_get_meta(s, "sealed", info->sealed, sizeof(info->sealed), err)) < 0 ||
        (r = my_get_meta_number(s, "term", &info->term, err)) < 0 ||
        (r = my_get_meta_number(s, "schema_version", &info->schema_version, err)) < 0 ||
        (r = my_get_meta_number(s, "min_reader", &min_reader, err)) < 0)
        return r;
    if (min_reader > my_schema_version)
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_TOO_NEW", "%.150s: made by a newer version", url);
    if ((r = dbsync_text(s, "SELECT last FROM sequence WHERE id = 1", last, sizeof(last), err)) < 0)
        return r;
    return adv_parse_u64(last, 0, UINT64_MAX, &info->last_seq, NULL) == 0 ? 0 : my_bad_row(err, "sequence");
}

static struct image *close_image(struct image *base)
{
    struct mysql_image *im = ADV_CONTAINER_OF(base, struct mysql_image, base);

    (void) dbsync_close(im->s);
    free(im);
    return NULL;
}

struct rows {
    image_row_cb row;
    void *arg;
};

static int pass_row(void *arg, const struct dbrow *row, struct adv_err *err)
{
    struct rows *rs = arg;
    struct image_cell cells[IMAGE_COLUMNS_MAX];

    for (unsigned i = 0; i < row->n && i < IMAGE_COLUMNS_MAX; i++)
        cells[i] = (struct image_cell) { row->column[i] ? row->column[i] : "", row->column[i] ? row->len[i] : 0 };
    return rs->row(rs->arg, cells, err);
}

static int each(struct image *base, enum image_table table, image_row_cb row, void *arg, struct adv_err *err)
{
    struct mysql_image *im = ADV_CONTAINER_OF(base, struct mysql_image, base);
    struct rows rs = { row, arg };
    char sql[512];
    size_t at = (size_t) snprintf(sql, sizeof(sql), "SELECT "), n = 0;

    for (const struct image_column *c = image_columns[table]; c->name; c++, n++)
        at += (size_t) snprintf(sql + at, sizeof(sql) - at, "%s`%s`", n ? ", " : "", c->name);
    (void) snprintf(sql + at, sizeof(sql) - at, " FROM %s ORDER BY %s", image_table_names[table], image_order[table]);
    return dbsync_run(im->s, sql, strlen(sql), pass_row, &rs, err);
}

struct complaint {
    char text[160];
};

static int check_row(void *arg, const struct dbrow *row, struct adv_err *err)
{
    struct complaint *c = arg;

    (void) err; /* Table, Op, Msg_type, Msg_text */
    if (row->n == 4 && !adv_streq(my_text(row, 2), "status") && !adv_streq(my_text(row, 2), "note") && !c->text[0])
        (void) snprintf(c->text, sizeof(c->text), "%.60s: %.90s", my_text(row, 0), my_text(row, 3));
    return 0;
}

/* Owners and clusters belong together; and what the server says of its tables. */
static int check(struct image *base, struct adv_err *err)
{
    static const char sql[] = "CHECK TABLE objects, changes, audit, requests, meta, sequence, owners, handoffs, replicas MEDIUM";
    struct mysql_image *im = ADV_CONTAINER_OF(base, struct mysql_image, base);
    struct complaint c = { "" };
    char name[65];
    int r;

    if ((r = dbsync_text(im->s, "SELECT cluster FROM objects o WHERE kind = 1 AND NOT EXISTS(SELECT 1 FROM owners w"
                                " WHERE w.cluster = o.cluster) LIMIT 1", name, sizeof(name), err)) < 0)
        return r;
    if (name[0])
        return adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "cluster %s has no row in owners: nobody can ever own it", name);
    if ((r = dbsync_run(im->s, sql, sizeof(sql) - 1, check_row, &c, err)) < 0)
        return r;
    return c.text[0] ? adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "the server's check: %s", c.text) : 0;
}

static const struct image_ops ops = { .each = each, .check = check, .close = close_image };

int mysql_image_open(const struct store_config *cfg, struct image **ret, struct adv_err *err)
{
    struct mysql_image *im = calloc(1, sizeof(*im));
    struct dbconn_config conf;
    int r;

    if (!im)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    im->base.ops = &ops;
    if ((r = connect_to(cfg, &conf, &im->s, err)) < 0 ||
        (r = dbsync_exec(im->s, err, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;"
                                     "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")) < 0 ||
        (r = read_info(im->s, cfg->url, &im->base.info, err)) < 0) {
        (void) close_image(&im->base);
        return r;
    }
    *ret = &im->base;
    return 0;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

struct insert {
    struct dbsync *s;
    enum image_table table;
    struct adv_buf b;
    unsigned rows;
    uint64_t mark, last_seq;
};

static int flush(struct insert *in, struct adv_err *err)
{
    int r = 0;

    if (adv_buf_error(&in->b))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "store: no memory");
    if (in->rows)
        r = dbsync_run(in->s, in->b.data, in->b.len, NULL, NULL, err);
    adv_buf_reset(&in->b);
    in->rows = 0;
    return r;
}

static void put_head(struct insert *in)
{
    const struct image_column *c;

    (void) adv_buf_appendf(&in->b, "INSERT INTO %s(", image_table_names[in->table]);
    for (c = image_columns[in->table]; c->name; c++)
        (void) adv_buf_appendf(&in->b, "%s`%s`", c == image_columns[in->table] ? "" : ", ", c->name);
    (void) adv_buf_append_str(&in->b, in->table == IMAGE_CHANGES ? ", mark" : in->table == IMAGE_REQUESTS ? ", seq" : "");
    (void) adv_buf_append_str(&in->b, ") VALUES ");
}

static int insert_row(void *arg, const struct image_cell *cells, struct adv_err *err)
{
    struct insert *in = arg;
    const char *sep = "(";
    int64_t number;

    if (in->rows == 0)
        put_head(in);
    else
        (void) adv_buf_append_byte(&in->b, ',');
    for (const struct image_column *c = image_columns[in->table]; c->name; c++, cells++) {
        (void) adv_buf_append_str(&in->b, sep);
        sep = ",";
        if (!c->number)
            db_quote(&in->b, cells->bytes, cells->len);
        else if (adv_parse_i64(cells->bytes, INT64_MIN, INT64_MAX, &number, NULL) == 0)
            (void) adv_buf_appendf(&in->b, "%" PRId64, number);
        else
            return adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT", "%s.%s: no number", image_table_names[in->table], c->name);
    }
    if (in->table == IMAGE_CHANGES)
        (void) adv_buf_appendf(&in->b, ", %" PRIu64, in->mark);
    else if (in->table == IMAGE_REQUESTS)
        (void) adv_buf_appendf(&in->b, ", %" PRIu64, in->last_seq);
    (void) adv_buf_append_byte(&in->b, ')');
    return ++in->rows < ROWS_A_STATEMENT && in->b.len < STATEMENT_MAX ? 0 : flush(in, err);
}

static int insert_table(struct dbsync *s, struct image *im, enum image_table table, uint64_t mark, struct adv_err *err)
{
    struct insert in = { .s = s, .table = table, .mark = mark, .last_seq = im->info.last_seq };
    int r;

    adv_buf_init(&in.b, 1u << 30);
    r = image_each(im, table, insert_row, &in, err);
    if (r == 0)
        r = flush(&in, err);
    adv_buf_done(&in.b);
    return r;
}

static int check_served(struct dbsync *s, const char *url, struct adv_err *err)
{
    char who[80];
    int r = dbsync_text(s, "SELECT replica FROM replicas WHERE until_at > NOW(6) LIMIT 1", who, sizeof(who), err);

    if (r < 0 || !who[0])
        return r;
    return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "STORE_SERVED",
                              "store %.100s: replica %s serves it; stop that first, or wait for its lease to end", url, who);
}

/* From here on nobody can open the store. */
static int lock_out(struct dbsync *s, struct adv_err *err)
{
    char got[8];
    int r = dbsync_text(s, "SELECT GET_LOCK('advisor.migrate', 20)", got, sizeof(got), err);

    if (r < 0 || adv_streq(got, "1"))
        return r;
    return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_BUSY", "store: somebody is opening it");
}

static int fill(struct dbsync *s, struct image *im, uint64_t term, struct adv_err *err)
{
    uint64_t mark;
    int r;

    if (getrandom(&mark, sizeof(mark), 0) != (ssize_t) sizeof(mark))
        return adv_err_set(err, ADV_INTERNAL, "no random numbers");
    r = dbsync_exec(s, err, "START TRANSACTION; DELETE FROM objects; DELETE FROM changes; DELETE FROM audit; DELETE FROM requests;"
                            "DELETE FROM handoffs; DELETE FROM replicas");
    ADV_FAILPOINT("image.begun");
    for (int t = 0; r == 0 && t < IMAGE_TABLES_; t++)
        r = insert_table(s, im, (enum image_table) t, mark, err);
    if (r < 0)
        return r;
    /* epochs of ownership go on from where they were, so that nothing of an earlier owner fits; a cluster that is not there
     * any more has no owner: its row would be in the way of who makes the cluster again */
    return dbsync_exec(s, err,
                       "UPDATE owners SET owner = '', epoch = epoch + 1, wanted = '', wanted_journal = '';"
                       "INSERT IGNORE INTO owners(cluster, owner, epoch, until_at) SELECT cluster, '', 0, '1970-01-01' FROM objects"
                       " WHERE kind = 1 AND cluster <> '" FLEET_CLUSTER "';"
                       "DELETE FROM owners WHERE cluster <> '" FLEET_CLUSTER "' AND cluster NOT IN (SELECT cluster FROM objects"
                       " WHERE kind = 1);"
                       "UPDATE sequence SET last = %" PRIu64 " WHERE id = 1;"
                       "REPLACE INTO meta VALUES('store_uuid', '%s'), ('term', '%" PRIu64 "'); DELETE FROM meta WHERE `key` = 'sealed'",
                       im->info.last_seq, im->info.uuid, term);
}

int mysql_image_write(struct image *im, const struct store_config *cfg, uint64_t term, struct adv_err *err)
{
    ADV_AUTO(dbsync) s = NULL;
    struct dbconn_config conf;
    struct adv_err e = { 0 };
    int r;

    if ((r = connect_to(cfg, &conf, &s, err)) < 0 || (r = my_migrate(s, conf.url.database, err)) < 0 ||
        (r = lock_out(s, err)) < 0 || (r = check_served(s, cfg->url, err)) < 0 || (r = fill(s, im, term, err)) < 0)
        return r;
    ADV_FAILPOINT("image.before_commit");
    r = dbsync_exec(s, &e, "COMMIT");
    ADV_FAILPOINT("image.after_commit");
    if (r == 0)
        return 0;
    return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_OUTCOME_UNKNOWN",
                              "store %.100s: the answer of its COMMIT was lost; it may be written or not: %.100s", cfg->url, e.msg);
}

int mysql_image_promote(const struct store_config *cfg, uint64_t term, uint64_t *ret_term, struct adv_err *err)
{
    ADV_AUTO(dbsync) s = NULL;
    struct dbconn_config conf;
    struct image_info info = { 0 };
    int r;

    if ((r = connect_to(cfg, &conf, &s, err)) < 0 || (r = read_info(s, cfg->url, &info, err)) < 0 || (r = lock_out(s, err)) < 0 ||
        (r = check_served(s, cfg->url, err)) < 0)
        return r;
    *ret_term = term ? term : info.term + 1;
    return dbsync_exec(s, err, "START TRANSACTION; UPDATE owners SET owner = '', epoch = epoch + 1;"
                               "UPDATE meta SET value = '%" PRIu64 "' WHERE `key` = 'term'; COMMIT", *ret_term);
}
