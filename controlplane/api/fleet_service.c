/* SPDX-License-Identifier: Apache-2.0 */
/* FleetService: clusters and nodes. */

#include <stdio.h>

#include "advisor/v1/fleet_service.pb-c.h"

#include "controlplane/api/find.h"
#include "controlplane/shapes/shapes.h"

static int get_cluster(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                       struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetClusterRequest *q = (const void *) req;
    struct cluster *c;
    int r = api_find_cluster(api, caller, "name", q->name, &c, err);

    if (r < 0)
        return r;
    REPLY(m, Advisor__V1__GetClusterResponse, advisor__v1__get_cluster_response__init);
    m->cluster = shape_cluster(ar, c);
    return 0;
}

static int list_clusters(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                         struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListClustersRequest *q = (const void *) req;
    const struct order *all = &turn_fleet(api->turn)->clusters_in_order;
    char after[256];
    uint32_t limit;
    int r;

    if ((r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "clusters", after, sizeof(after), err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListClustersResponse, advisor__v1__list_clusters_response__init);
    m->clusters = adv_arena_alloc(ar, limit * sizeof(*m->clusters));
    if (!m->clusters)
        return -ADV_RESOURCE_EXHAUSTED;
    for (const struct order_node *o = order_after(all, after); o; o = order_after(all, o->key)) {
        if (!api_may_see_cluster(caller, o->key))
            continue;
        if (m->n_clusters == limit) {
            m->next_page_token = token_page(ar, "clusters", after);
            break;
        }
        m->clusters[m->n_clusters++] = shape_cluster(ar, ADV_CONTAINER_OF(o, struct cluster, by_name));
        (void) snprintf(after, sizeof(after), "%s", o->key);
    }
    return 0;
}

static int list_nodes(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req,
                      struct adv_arena *ar, ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListNodesRequest *q = (const void *) req;
    struct cluster *c;
    char after[300];
    uint32_t limit;
    int r;

    if ((r = api_find_parent(api, caller, q->parent, &c, NULL, err)) < 0 ||
        (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "nodes", after, sizeof(after), err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListNodesResponse, advisor__v1__list_nodes_response__init);
    m->nodes = adv_arena_alloc(ar, limit * sizeof(*m->nodes));
    if (!m->nodes)
        return -ADV_RESOURCE_EXHAUSTED;
    for (const struct order_node *o = order_after(&c->nodes_in_order, after); o; o = order_after(&c->nodes_in_order, o->key)) {
        if (m->n_nodes == limit) {
            m->next_page_token = token_page(ar, "nodes", after);
            break;
        }
        m->nodes[m->n_nodes++] = shape_node(ar, c, ADV_CONTAINER_OF(o, struct node, by_name));
        (void) snprintf(after, sizeof(after), "%s", o->key);
    }
    return 0;
}

static int get_node(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                    ProtobufCMessage **ret, struct adv_err *err)
{
    const char *name = ((const Advisor__V1__GetNodeRequest *) (const void *) req)->name;
    struct resource_path p;
    struct cluster *c;
    struct node *n = NULL;
    int r = resource_path_parse(name, &p, err);

    if (r == 0 && !p.node)
        r = adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MALFORMED", "name \"%.64s\": expected clusters/<id>/nodes/<node>",
                               name);
    if (r < 0)
        return adv_err_field(err, "name");
    c = fleet_find_cluster(turn_fleet(api->turn), p.cluster);
    if (!c || !api_may_see_cluster(caller, p.cluster))
        return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered", p.cluster);
    HASH_FIND_STR(c->nodes, p.node, n);
    if (!n)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "NODE_NOT_FOUND", "%.200s: the cluster's agent reports no such node", name);
    REPLY(m, Advisor__V1__GetNodeResponse, advisor__v1__get_node_response__init);
    m->node = shape_node(ar, c, n);
    return 0;
}

static int built_cluster(struct api *api, const struct event *ev, struct adv_arena *ar, Advisor__V1__Cluster **ret,
                         struct adv_err *err)
{
    struct cluster *c = fleet_find_cluster(turn_fleet(api->turn), ev->cluster);

    if (!c)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered",
                                  str_or(ev->cluster));
    *ret = shape_cluster(ar, c);
    return *ret ? 0 : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
}

static int create_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                        struct adv_err *err)
{
    REPLY(m, Advisor__V1__CreateClusterResponse, advisor__v1__create_cluster_response__init);
    return built_cluster(api, ev, ar, &m->cluster, err);
}

static void create_cluster(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__CreateClusterRequest *q = (const void *) req;
    struct event ev = { .type = EV_CLUSTER_CREATE, .cluster = q->cluster_id };
    struct adv_err err = { 0 };

    if (!cluster_id_valid(q->cluster_id)) { /* before anybody cuts it */
        (void) fleet_cluster_id_malformed(q->cluster_id, &err);
        call->ops->fail(call, &err);
        return;
    }
    if (!api_may(&call->caller, ROLE_ADMIN, q->cluster_id, NULL, NULL)) { /* whether there is one or not */
        (void) adv_err_set_reason(&err, ADV_PERMISSION_DENIED, "ROLE_TOO_LOW", "%s is no admin of clusters of that name",
                                  call->caller.principal);
        call->ops->fail(call, &err);
        return;
    }
    api_write(call, req, q->request_id, &ev, create_built);
}

static int mode_built(struct api *api, const struct event *ev, struct adv_arena *ar, ProtobufCMessage **ret,
                      struct adv_err *err)
{
    REPLY(m, Advisor__V1__SetClusterModeResponse, advisor__v1__set_cluster_mode_response__init);
    return built_cluster(api, ev, ar, &m->cluster, err);
}

static void set_cluster_mode(struct api_call *call, const ProtobufCMessage *req)
{
    const Advisor__V1__SetClusterModeRequest *q = (const void *) req;
    struct event ev = { .type = EV_SET_MODE };
    struct adv_err err = { 0 };
    struct resource_path p;

    ev.u.set_mode.mode = (enum adv_mode) q->mode;
    ev.u.set_mode.reason = q->reason;
    if (api_cluster_name("name", q->name, &p, &err) < 0 || api_text("reason", q->reason, 0, API_REASON_MAX, &err) < 0 ||
        shape_etag_parse(q->etag, &ev.u.set_mode.if_version, &err) < 0) {
        call->ops->fail(call, &err);
        return;
    }
    ev.cluster = p.cluster;
    api_write(call, req, q->request_id, &ev, mode_built);
}

#define ROW(name, lower, ROLE, ...)                                                                          \
    { "/advisor.v1.FleetService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE, 64 << 10, __VA_ARGS__ }
const struct api_method fleet_service_methods[] = {
    ROW(CreateCluster, create_cluster, ROLE_ADMIN, .call = create_cluster),
    ROW(GetCluster, get_cluster, ROLE_READER, .read = get_cluster),
    ROW(ListClusters, list_clusters, ROLE_READER, .read = list_clusters),
    ROW(SetClusterMode, set_cluster_mode, ROLE_OPERATOR, .call = set_cluster_mode),
    ROW(ListNodes, list_nodes, ROLE_READER, .read = list_nodes),
    ROW(GetNode, get_node, ROLE_READER, .read = get_node),
};
const size_t fleet_service_n = ADV_ARRAY_LEN(fleet_service_methods);
