/* SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "controlplane/domain/order.h"

#define N 1000

struct thing {
    char key[8];
    struct order_node node;
};

static struct thing things[N];

static void fill(struct order *o)
{
    for (unsigned i = 0; i < N; i++) {
        struct thing *t = &things[i * 7 % N]; /* in no order at all */
        (void) snprintf(t->key, sizeof(t->key), "%04u", i * 7 % N * 2);
        order_add(o, &t->node, t->key);
    }
}

Test(order, walks_both_ways)
{
    struct order o = { 0 };
    const struct order_node *n;
    unsigned i = 0;

    cr_assert_null(order_after(&o, ""));
    cr_assert_null(order_before(&o, ""));
    fill(&o);
    for (n = order_after(&o, ""); n; n = order_after(&o, n->key))
        cr_assert_str_eq(n->key, things[i++].key);
    cr_assert_eq(i, N);
    for (n = order_before(&o, ""); n; n = order_before(&o, n->key))
        cr_assert_str_eq(n->key, things[--i].key);
    cr_assert_eq(i, 0);
}

/* What a page ended with may be gone when the next one is asked for. */
Test(order, places_that_are_gone)
{
    struct order o = { 0 };

    fill(&o);
    order_remove(&o, &things[5].node);
    order_remove(&o, &things[5].node); /* no harm */
    cr_assert_str_eq(order_after(&o, "0010")->key, "0012");
    cr_assert_str_eq(order_before(&o, "0010")->key, "0008");
    cr_assert_str_eq(order_after(&o, "0011")->key, "0012");
    cr_assert_str_eq(order_before(&o, "0013")->key, "0012");
    cr_assert_null(order_after(&o, "1998"));
    cr_assert_null(order_before(&o, "0000"));
    cr_assert_str_eq(order_before(&o, "9")->key, "1998");
}
