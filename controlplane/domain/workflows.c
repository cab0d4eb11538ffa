/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/domain/internal.h"

#include <utlist.h>

#include "controlplane/domain/workflows.h"

static int by_name_and_cluster(const struct workflow *a, const struct workflow *b)
{
    int r = strcmp(a->name, b->name);

    return r ? r : strcmp(a->cluster->name, b->cluster->name);
}

RB_GENERATE_STATIC(workflows, workflow, link, by_name_and_cluster)

/* The macros do not know const. */
static struct workflows *plain(const struct workflows *w)
{
    union {
        const struct workflows *in;
        struct workflows *out;
    } u = { w };

    return u.out;
}

static struct workflow *of(struct order_node *o)
{
    return o ? ADV_CONTAINER_OF(o, struct workflow, by_name) : NULL;
}

struct workflow *workflow_find(const struct cluster *c, const char *name)
{
    return of(order_find(&c->workflows_in_order, name));
}

struct workflow *workflow_after(const struct fleet *f, const struct cluster *only, const char *name, const char *cluster)
{
    struct cluster where = { .name = (char *) (uintptr_t) cluster };
    struct workflow at = { .name = (char *) (uintptr_t) name, .cluster = &where }, *w;

    if (only) { /* a place of another cluster: before or after all of that name here */
        w = strcmp(only->name, cluster) > 0 ? workflow_find(only, name) : NULL;
        return w ? w : of(order_after(&only->workflows_in_order, name));
    }
    w = workflows_RB_NFIND(plain(&f->workflows_in_order), &at);
    return w && by_name_and_cluster(w, &at) == 0 ? workflows_RB_NEXT(w) : w;
}

void fleet_workflow_leave(struct fleet *f, struct job *j)
{
    struct workflow *w = j->in_workflow;

    if (!w)
        return;
    j->in_workflow = NULL;
    DL_DELETE2(w->jobs, j, workflow_prev, workflow_next);
    if (w->jobs)
        return;
    order_remove(&w->cluster->workflows_in_order, &w->by_name);
    (void) workflows_RB_REMOVE(&f->workflows_in_order, w);
    workflow_free(w);
}

int fleet_workflow_join(struct fleet *f, struct job *j)
{
    struct workflow *w;

    fleet_workflow_leave(f, j);
    if (!*str_or(j->workflow))
        return 0;
    w = workflow_find(j->cluster, j->workflow);
    if (!w) {
        w = calloc(1, sizeof(*w));
        if (!w || !(w->name = strdup(j->workflow))) {
            free(w);
            return -ADV_RESOURCE_EXHAUSTED;
        }
        w->cluster = j->cluster;
        order_add(&w->cluster->workflows_in_order, &w->by_name, w->name);
        (void) workflows_RB_INSERT(&f->workflows_in_order, w);
    }
    DL_APPEND2(w->jobs, j, workflow_prev, workflow_next);
    j->in_workflow = w;
    return 0;
}

void fleet_set_workflow(struct fleet *f, struct intents *in, struct job *j, const char *name)
{
    if (str_set(in, &j->workflow, name) && fleet_workflow_join(f, j) < 0)
        in->oom = true;
}
