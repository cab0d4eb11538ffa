/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_IMAGE_H
#define CONTROLPLANE_STORE_IMAGE_H

/* The whole content of a store as rows, for tools: of one moment, though somebody may serve the store meanwhile. Both engines
 * give the same rows in the same order, so an image of one can be written into the other and compared.
 *
 * Not part of an image: who owns what, calls handed over, who serves. A store that is written from one begins without.
 *
 * Thread: any one.  Blocks: yes, all of it. */

#include "controlplane/store/store.h"

struct image;

enum image_table { IMAGE_OBJECTS, IMAGE_CHANGES, IMAGE_AUDIT, IMAGE_REQUESTS, IMAGE_TABLES_ };

/* Columns of each table, in this order, by their names in the database; numbers are decimal text, without a NUL of their own. */
#define IMAGE_COLUMNS_MAX 14
struct image_column {
    const char *name; /* NULL ends the list */
    bool number;
};
extern const struct image_column image_columns[IMAGE_TABLES_][IMAGE_COLUMNS_MAX + 1];
extern const char *const image_table_names[IMAGE_TABLES_];
/* Columns by which rows of a table are ordered. */
extern const char *const image_order[IMAGE_TABLES_];

struct image_cell {
    const char *bytes; /* valid during the callback */
    size_t len;
};

struct image_info {
    const char *engine; /* "sqlite" or "mysql" */
    char uuid[40];
    uint64_t term, schema_version, last_seq;
    char sealed[256]; /* "": it may be served */
};

/* Errors: -ADV_NOT_FOUND (no such file), -ADV_FAILED_PRECONDITION (STORE_FOREIGN: not a store of ours; STORE_TOO_NEW;
 * STORE_ENGINE_MISSING), as store_open(). A sealed one can be read. */
adv_must_check int image_open(const struct store_config *cfg, struct image **ret, struct adv_err *err);
struct image *image_close(struct image *im); /* returns NULL */
const struct image_info *image_info(const struct image *im);

/* Calls @row for each row; when it returns negative, that is returned with what it put into @err. */
typedef int (*image_row_cb)(void *arg, const struct image_cell *cells, struct adv_err *err);
adv_must_check int image_each(struct image *im, enum image_table table, image_row_cb row, void *arg, struct adv_err *err);

/* What the file system or database itself says of its state: 0, or -ADV_DATA_LOSS. */
adv_must_check int image_check_engine(struct image *im, struct adv_err *err);

/* Rows and a hash of all tables. */
struct image_digest {
    uint64_t rows[IMAGE_TABLES_];
    char hex[65];
};
adv_must_check int image_digest(struct image *im, struct image_digest *ret, struct adv_err *err);

/* Puts @im in place of all that the store of @cfg holds, or makes that store: all of it or nothing. It then has the identity
 * of @im, the term given, and owners nobody. Reads it back and compares.
 * Errors: -ADV_FAILED_PRECONDITION (STORE_SERVED: somebody serves it; STORE_FOREIGN), as store_open(); -ADV_UNAVAILABLE with
 * STORE_OUTCOME_UNKNOWN (it may be written; or it is, and could not be read back, or reads back differently). */
adv_must_check int image_write(struct image *im, const struct store_config *cfg, uint64_t term, struct adv_err *err);

/* Copies an SQLite store at @path into the new file @to while it may be served, by SQLite's own means, synced. */
adv_must_check int image_backup_sqlite(const char *path, const char *to, struct adv_err *err);

/* How many objects it has, and its term; both 0 when there is no store yet. */
adv_must_check int image_look(const struct store_config *cfg, uint64_t *ret_objects, uint64_t *ret_term, struct adv_err *err);

/* ---- marks on a store ---- */

/* Nobody can write to it any more, who serves it included, once this has returned; NULL takes it back.
 * Errors: as store_open(); -ADV_UNIMPLEMENTED (MySQL). */
adv_must_check int image_seal(const struct store_config *cfg, const char *how, struct adv_err *err);

/* Raises the term to @term or, if that is 0, by one; nobody owns anything then.
 * Errors: as store_open(); -ADV_FAILED_PRECONDITION (STORE_SERVED). */
adv_must_check int image_promote(const struct store_config *cfg, uint64_t term, uint64_t *ret_term, struct adv_err *err);

#endif
