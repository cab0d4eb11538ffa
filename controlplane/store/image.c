/* SPDX-License-Identifier: Apache-2.0 */
/* What is alike of both engines, and the choice between them; image-sqlite.c and image-mysql.c have the rest. */

#include "controlplane/store/image-engine.h"

#include <stdio.h>

#include "common/digest.h"
#include "controlplane/store/dburl.h"

#define T(name) { name, false }
#define N(name) { name, true }
const struct image_column image_columns[IMAGE_TABLES_][IMAGE_COLUMNS_MAX + 1] = {
    [IMAGE_OBJECTS] = { T("cluster"), N("kind"), T("key"), T("record") },
    [IMAGE_CHANGES] = { N("seq"), T("cluster"), N("revision"), N("kind"), T("key") },
    [IMAGE_AUDIT] = { N("id"), T("cluster"), N("seq"), T("prev_hash"), T("hash"), T("principal"), T("verb"), T("subject"),
                      T("detail"), T("salt"), T("detail_hash"), T("event_id"), N("observe_us"), N("record_us") },
    [IMAGE_REQUESTS] = { T("id"), T("hash"), N("record_us") },
};
#undef T
#undef N

const char *const image_table_names[IMAGE_TABLES_] = { "objects", "changes", "audit", "requests" };
const char *const image_order[IMAGE_TABLES_] = { "cluster, kind, `key`", "seq", "cluster, seq", "id" };

int image_open(const struct store_config *cfg, struct image **ret, struct adv_err *err)
{
    return dburl_is(cfg->url) ? mysql_image_open(cfg, ret, err) : sqlite_image_open(cfg, ret, err);
}

struct image *image_close(struct image *im)
{
    return im ? im->ops->close(im) : NULL;
}

const struct image_info *image_info(const struct image *im)
{
    return &im->info;
}

int image_each(struct image *im, enum image_table table, image_row_cb row, void *arg, struct adv_err *err)
{
    return im->ops->each(im, table, row, arg, err);
}

int image_check_engine(struct image *im, struct adv_err *err)
{
    return im->ops->check(im, err);
}

struct digest_run {
    struct adv_sha256 h;
    enum image_table table;
    uint64_t rows;
};

/* Each cell with its length before it, so that no two different rows look alike. */
static int digest_row(void *arg, const struct image_cell *cells, struct adv_err *err)
{
    struct digest_run *d = arg;
    char head[32];
    int r = 0;

    d->rows++;
    for (const struct image_column *c = image_columns[d->table]; r == 0 && c->name; c++, cells++) {
        (void) snprintf(head, sizeof(head), "%zu:", cells->len);
        if ((r = adv_sha256_update(&d->h, head, strlen(head), err)) == 0)
            r = adv_sha256_update(&d->h, cells->bytes, cells->len, err);
    }
    return r;
}

int image_digest(struct image *im, struct image_digest *ret, struct adv_err *err)
{
    struct digest_run d = { .rows = 0 };
    uint8_t sum[ADV_SHA256_LEN];
    int r = adv_sha256_init(&d.h, err);

    if (r < 0)
        return r;
    for (int t = 0; r == 0 && t < IMAGE_TABLES_; t++) {
        d.table = (enum image_table) t;
        d.rows = 0;
        r = adv_sha256_update(&d.h, image_table_names[t], strlen(image_table_names[t]), err);
        if (r == 0)
            r = image_each(im, d.table, digest_row, &d, err);
        ret->rows[t] = d.rows;
    }
    if (r == 0)
        r = adv_sha256_final(&d.h, sum, err);
    adv_sha256_done(&d.h);
    if (r == 0)
        (void) adv_hex(sum, sizeof(sum), ret->hex);
    return r;
}

/* What was written, read again by the way that a server reads it. */
static int compare(struct image *im, const struct store_config *cfg, uint64_t term, struct adv_err *err)
{
    struct image_digest a, b;
    struct image *back = NULL;
    int r;

    if ((r = image_digest(im, &a, err)) < 0 || (r = image_open(cfg, &back, err)) < 0)
        return r;
    r = image_digest(back, &b, err);
    if (r == 0 && (!adv_streq(a.hex, b.hex) || !adv_streq(back->info.uuid, im->info.uuid) || back->info.term != term ||
                   back->info.last_seq != im->info.last_seq))
        r = adv_err_set_reason(err, ADV_DATA_LOSS, "STORE_CORRUPT",
                               "store %.100s: what was written reads back differently: %llu objects, %llu events of %llu and %llu",
                               cfg->url, (unsigned long long) b.rows[IMAGE_OBJECTS], (unsigned long long) b.rows[IMAGE_AUDIT],
                               (unsigned long long) a.rows[IMAGE_OBJECTS], (unsigned long long) a.rows[IMAGE_AUDIT]);
    (void) image_close(back);
    return r;
}

int image_write(struct image *im, const struct store_config *cfg, uint64_t term, struct adv_err *err)
{
    int r = dburl_is(cfg->url) ? mysql_image_write(im, cfg, term, err) : sqlite_image_write(im, cfg, term, err);
    struct adv_err e = { 0 };

    if (r < 0 || (r = compare(im, cfg, term, &e)) == 0)
        return r;
    /* it is committed, and somebody may begin to serve it: whatever is wrong now, it was not "not written" */
    return adv_err_set_reason(err, ADV_UNAVAILABLE, "STORE_OUTCOME_UNKNOWN",
                              "store %.100s: it is written, but could not be read back and compared: %.120s", cfg->url, e.msg);
}

int image_look(const struct store_config *cfg, uint64_t *ret_objects, uint64_t *ret_term, struct adv_err *err)
{
    struct image *im = NULL;
    struct image_digest d;
    struct adv_err e = { 0 };
    int r = image_open(cfg, &im, &e);

    *ret_objects = *ret_term = 0;
    if (r == -ADV_NOT_FOUND)
        return 0;
    if (r == 0)
        r = image_digest(im, &d, &e);
    if (r == 0) {
        *ret_objects = d.rows[IMAGE_OBJECTS];
        *ret_term = im->info.term;
    } else if (err) {
        *err = e;
    }
    (void) image_close(im);
    return r;
}

int image_seal(const struct store_config *cfg, const char *how, struct adv_err *err)
{
    if (dburl_is(cfg->url))
        return adv_err_set(err, ADV_UNIMPLEMENTED, "store %.100s: only an SQLite store can be sealed", cfg->url);
    return sqlite_image_seal(cfg, how, err);
}

int image_promote(const struct store_config *cfg, uint64_t term, uint64_t *ret_term, struct adv_err *err)
{
    return dburl_is(cfg->url) ? mysql_image_promote(cfg, term, ret_term, err) : sqlite_image_promote(cfg, term, ret_term, err);
}
