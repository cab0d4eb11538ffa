/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_IMAGE_ENGINE_H
#define CONTROLPLANE_STORE_IMAGE_ENGINE_H

/* Images of each engine; for image.c alone. */

#include "controlplane/store/image.h"

struct image_ops {
    int (*each)(struct image *im, enum image_table table, image_row_cb row, void *arg, struct adv_err *err);
    int (*check)(struct image *im, struct adv_err *err);
    struct image *(*close)(struct image *im);
};

/* First member of each engine's own struct. */
struct image {
    const struct image_ops *ops;
    struct image_info info;
};

int sqlite_image_open(const struct store_config *cfg, struct image **ret, struct adv_err *err);
int sqlite_image_write(struct image *im, const struct store_config *cfg, uint64_t term, struct adv_err *err);
int sqlite_image_seal(const struct store_config *cfg, const char *how, struct adv_err *err);
int sqlite_image_promote(const struct store_config *cfg, uint64_t term, uint64_t *ret_term, struct adv_err *err);

int mysql_image_open(const struct store_config *cfg, struct image **ret, struct adv_err *err);
int mysql_image_write(struct image *im, const struct store_config *cfg, uint64_t term, struct adv_err *err);
int mysql_image_promote(const struct store_config *cfg, uint64_t term, uint64_t *ret_term, struct adv_err *err);

#endif
