/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_ORDER_H
#define CONTROLPLANE_DOMAIN_ORDER_H

/* Objects in the order of their keys (strcmp), for lists that are walked a page at a time: a place in such a list is a key,
 * which need not exist any more. The objects embed the node; the tree owns nothing. Zeroed memory is an empty order.
 *
 * Thread: that of the objects.  Blocks: no.  Cost: O(log n) each; a step to a neighbour O(1) on average. */

#include <uv/tree.h> /* BSD's red-black trees, as libuv ships them */

struct order_node {
    const char *key; /* the object's; NULL: not in an order */
    RB_ENTRY(order_node) link;
};
RB_HEAD(order, order_node);

/* @key is not in it yet, and lives as long as @n is in it. */
void order_add(struct order *o, struct order_node *n, const char *key);
/* Does nothing when it is in none. */
void order_remove(struct order *o, struct order_node *n);

/* NULL: none has that key. */
struct order_node *order_find(const struct order *o, const char *key);
/* The first whose key is above @key; the first of all for "". NULL: none. */
struct order_node *order_after(const struct order *o, const char *key);
/* The last whose key is below @key; the last of all for "". NULL: none. */
struct order_node *order_before(const struct order *o, const char *key);

#endif
