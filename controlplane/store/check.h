/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_STORE_CHECK_H
#define CONTROLPLANE_STORE_CHECK_H

/* Whether a store holds together: every row is one that can be read, belongs to something that is there and is what its key
 * says; changes are numbered without gaps; each cluster's audit events form a chain that ends where the cluster says; the
 * database finds nothing wrong with itself.
 *
 * Thread: any one.  Blocks: yes. */

#include "controlplane/store/image.h"

struct check_ops {
    /* Something is wrong; one sentence that says where and what. */
    void (*problem)(void *arg, const char *text);
};

struct check_result {
    uint64_t rows[IMAGE_TABLES_];
    uint64_t chains;    /* of audit events */
    uint64_t erased;    /* events whose detail was erased */
    uint64_t first_seq; /* of the changes that are kept; 0: none */
    uint64_t problems;
};

/* Reads all of @im. Errors: what keeps it from reading on; what is wrong with rows is a problem, not an error. */
adv_must_check int store_check(struct image *im, const struct check_ops *ops, void *arg, struct check_result *ret,
                               struct adv_err *err);

#endif
