/* SPDX-License-Identifier: Apache-2.0 */
/* Workflows of JobService: what jobs say about themselves, summed up by name. Nothing is kept of a workflow but its jobs. */

#include "advisor/v1/job_service.pb-c.h"

#include <stdio.h>

#include "controlplane/api/find.h"
#include "controlplane/api/workflow_name.h"
#include "controlplane/domain/workflows.h"
#include "controlplane/shapes/shapes.h"

static void count_job(Advisor__V1__Workflow *w, const struct job *j)
{
    enum job_state s = j->n_attempts ? j->attempts[j->n_attempts - 1]->state : JOB_UNKNOWN;

    w->jobs++;
    if (s == JOB_PENDING || s == JOB_CONFIGURING)
        w->jobs_pending++;
    else if (s == JOB_COMPLETED)
        w->jobs_completed++;
    else if (job_state_terminal(s))
        w->jobs_ended_otherwise++;
    else if (s != JOB_UNKNOWN)
        w->jobs_running++;
    w->restarts += j->n_attempts ? j->attempts[j->n_attempts - 1]->index : 0;
}

/* The first of its jobs from @j on that @caller may see; NULL: none. */
static struct job *visible(const struct api_caller *caller, struct job *j)
{
    while (j && !api_may_see_job(caller, j))
        j = j->workflow_next;
    return j;
}

/* As @caller sees it; NULL: no memory, or there is nothing to see. */
static Advisor__V1__Workflow *shape_workflow(struct adv_arena *ar, const struct api_caller *caller, const struct workflow *from)
{
    struct job *j = visible(caller, from->jobs);
    Advisor__V1__Workflow *w = j ? adv_arena_alloc(ar, sizeof(*w)) : NULL;
    int64_t first = 0, last = 0;

    if (!w)
        return NULL;
    advisor__v1__workflow__init(w);
    w->name = workflow_name(ar, from->cluster->name, from->name);
    w->workflow = from->name;
    for (; j; j = visible(caller, j->workflow_next)) {
        int64_t at = j->incarnation_unix ? j->incarnation_unix : j->submit_unix;
        count_job(w, j);
        first = at && (!first || at < first) ? at : first;
        last = at > last ? at : last;
    }
    w->first_submit_time = shape_time_us(ar, first * 1000000);
    w->last_submit_time = shape_time_us(ar, last * 1000000);
    return adv_arena_exhausted(ar) ? NULL : w;
}

/* The first after that place of which @caller may see a job. */
static struct workflow *next_visible(struct api *api, const struct api_caller *caller, const struct cluster *only,
                                     const char *name, const char *cluster)
{
    struct workflow *w = workflow_after(turn_fleet(api->turn), only, name, cluster);

    while (w && (!api_may_see_cluster(caller, w->cluster->name) || !visible(caller, w->jobs)))
        w = workflow_after(turn_fleet(api->turn), only, w->name, w->cluster->name);
    return w;
}

static int get_workflow(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                        ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetWorkflowRequest *q = (const void *) req;
    char cluster[65], workflow[WORKFLOW_MAX + 1], parent[80];
    struct cluster *c = NULL;
    const struct workflow *w;
    int r;

    if (!*q->name && !*q->workflow) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MISSING", "expected a resource name, or parent and workflow");
        return adv_err_field(err, "name");
    }
    if (*q->name && !workflow_name_parse(q->name, cluster, workflow)) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MALFORMED",
                                  "name: expected clusters/<cluster>/workflows/<workflow, percent-encoded>");
        return adv_err_field(err, "name");
    }
    (void) snprintf(parent, sizeof(parent), "clusters/%s", *q->name ? cluster : "");
    if ((r = api_find_parent(api, caller, *q->name ? parent : q->parent, &c, NULL, err)) < 0)
        return r;
    w = workflow_find(c, *q->name ? workflow : q->workflow);
    if (!w || !visible(caller, w->jobs))
        return adv_err_set_reason(err, ADV_NOT_FOUND, "WORKFLOW_NOT_FOUND", "cluster %s: no job names that workflow", c->name);
    REPLY(m, Advisor__V1__GetWorkflowResponse, advisor__v1__get_workflow_response__init);
    m->workflow = shape_workflow(ar, caller, w);
    return m->workflow ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

static int list_workflows(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                          ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListWorkflowsRequest *q = (const void *) req;
    char after[WORKFLOW_NAME_SIZE], cluster[65] = "", workflow[WORKFLOW_MAX + 1] = "";
    struct cluster *c = NULL;
    const struct workflow *w;
    uint32_t limit;
    bool all;
    int r;

    if ((r = api_find_parent(api, caller, q->parent, &c, &all, err)) < 0 || (r = api_page_size(q->page_size, &limit, err)) < 0 ||
        (r = token_page_parse(q->page_token, "workflows", after, sizeof(after), err)) < 0)
        return r;
    if (*after && !workflow_name_parse(after, cluster, workflow)) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", "page_token is not one of this list");
        return adv_err_field(err, "page_token");
    }
    REPLY(m, Advisor__V1__ListWorkflowsResponse, advisor__v1__list_workflows_response__init);
    m->workflows = adv_arena_alloc(ar, limit * sizeof(*m->workflows));
    if (!m->workflows)
        return -ADV_RESOURCE_EXHAUSTED;
    for (w = next_visible(api, caller, c, workflow, cluster); w; w = next_visible(api, caller, c, w->name, w->cluster->name)) {
        if (m->n_workflows == limit) {
            m->next_page_token = token_page(ar, "workflows", m->workflows[limit - 1]->name);
            break;
        }
        if (!(m->workflows[m->n_workflows] = shape_workflow(ar, caller, w)))
            return -ADV_RESOURCE_EXHAUSTED;
        m->n_workflows++;
    }
    return 0;
}

#define ROW(name, lower, fn)                                                                               \
    { "/advisor.v1.JobService/" #name, API_UNARY, &advisor__v1__##lower##_request__descriptor,             \
      &advisor__v1__##lower##_response__descriptor, ROLE_READER, 64 << 10, .read = fn }
const struct api_method workflow_methods[] = {
    ROW(GetWorkflow, get_workflow, get_workflow),
    ROW(ListWorkflows, list_workflows, list_workflows),
};
const size_t workflow_n = ADV_ARRAY_LEN(workflow_methods);
