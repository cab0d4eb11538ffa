/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hash.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

struct item {
    char name[16];
    UT_hash_handle hh;
};

Test(hash, same_bytes_same_hash)
{
    char a[40], b[40];

    for (size_t len = 0; len < sizeof(a); len++) {
        for (size_t i = 0; i < len; i++)
            a[i] = b[i] = (char) (i * 7);
        cr_assert_eq(adv_hash_bytes(a, len), adv_hash_bytes(b, len));
        if (len > 0) {
            b[len / 2] ^= 1;
            cr_assert_neq(adv_hash_bytes(a, len), adv_hash_bytes(b, len));
        }
    }
}

Test(hash, table_in_order_of_insertion)
{
    struct item *table = NULL, *it, *tmp;
    static struct item items[5000];
    size_t n = 0, low = 0;

    for (size_t i = 0; i < 5000; i++) {
        (void) snprintf(items[i].name, sizeof(items[i].name), "n%zu", (i * 7919) % 5000);
        HASH_ADD_STR(table, name, &items[i]);
        low += adv_hash_bytes(items[i].name, strlen(items[i].name)) % 2;
    }
    cr_assert(low > 2200 && low < 2800, "%zu", low);
    HASH_FIND_STR(table, "n4999", it);
    cr_assert_not_null(it);
    HASH_FIND_STR(table, "n5000", it);
    cr_assert_null(it);
    HASH_ITER(hh, table, it, tmp)
    cr_assert_eq(it, &items[n++]);
    cr_assert_eq(n, 5000);
    HASH_CLEAR(hh, table);
}
