/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/domain/order.h"

#include <string.h>

static int by_key(const struct order_node *a, const struct order_node *b)
{
    return strcmp(a->key, b->key);
}

RB_GENERATE_STATIC(order, order_node, link, by_key)

/* The macros do not know const. */
static struct order *plain(const struct order *o)
{
    union {
        const struct order *in;
        struct order *out;
    } u = { o };

    return u.out;
}

void order_add(struct order *o, struct order_node *n, const char *key)
{
    n->key = key;
    if (order_RB_INSERT(o, n))
        n->key = NULL; /* nothing that the tables of the fleet let through */
}

void order_remove(struct order *o, struct order_node *n)
{
    if (!n->key)
        return;
    (void) order_RB_REMOVE(o, n);
    n->key = NULL;
}

struct order_node *order_find(const struct order *o, const char *key)
{
    struct order_node at = { .key = key };

    return order_RB_FIND(plain(o), &at);
}

struct order_node *order_after(const struct order *o, const char *key)
{
    struct order_node at = { .key = key }, *n = order_RB_NFIND(plain(o), &at);

    return n && strcmp(n->key, key) == 0 ? order_RB_NEXT(n) : n;
}

struct order_node *order_before(const struct order *o, const char *key)
{
    struct order_node at = { .key = key }, *n = *key ? order_RB_NFIND(plain(o), &at) : NULL;

    return n ? order_RB_PREV(n) : order_RB_MINMAX(plain(o), RB_INF);
}
