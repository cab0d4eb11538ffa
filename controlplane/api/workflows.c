/* SPDX-License-Identifier: Apache-2.0 */
/* Workflows of JobService: what jobs say about themselves, summed up by name. Nothing is kept of a workflow but its jobs. */

#include "advisor/v1/job_service.pb-c.h"

#include <stdio.h>

#include "controlplane/api/find.h"
#include "controlplane/api/workflow_name.h"
#include "controlplane/shapes/shapes.h"

static int by_name(const void *a, const void *b)
{
    const struct job *x = *(struct job *const *) a, *y = *(struct job *const *) b;
    int r = strcmp(x->workflow, y->workflow);

    return r ? r : strcmp(x->cluster->name, y->cluster->name);
}

static bool same(const struct job *a, const struct job *b)
{
    return by_name(&a, &b) == 0;
}

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

/* Of the @n jobs at @v, which all name it. */
static Advisor__V1__Workflow *shape_workflow(struct adv_arena *ar, struct job *const *v, size_t n)
{
    Advisor__V1__Workflow *w = adv_arena_alloc(ar, sizeof(*w));
    int64_t first = 0, last = 0;

    if (!w)
        return NULL;
    advisor__v1__workflow__init(w);
    w->name = workflow_name(ar, v[0]->cluster->name, v[0]->workflow);
    w->workflow = v[0]->workflow;
    for (size_t i = 0; i < n; i++) {
        int64_t at = v[i]->incarnation_unix ? v[i]->incarnation_unix : v[i]->submit_unix;
        count_job(w, v[i]);
        first = at && (!first || at < first) ? at : first;
        last = at > last ? at : last;
    }
    w->first_submit_time = shape_time_us(ar, first * 1000000);
    w->last_submit_time = shape_time_us(ar, last * 1000000);
    return adv_arena_exhausted(ar) ? NULL : w;
}

struct job_list {
    struct job **v;
    size_t n;
};

/* All jobs that name a workflow and that @caller may see, by its name, then cluster. */
static int list_named(struct api *api, const struct api_caller *caller, const struct cluster *only, struct adv_arena *ar,
                      struct job_list *ret, struct adv_err *err)
{
    size_t n = 0;

    *ret = (struct job_list) { 0 };
    for (int fill = 0; fill < 2; fill++) {
        for (struct cluster *c = turn_fleet(api->turn)->clusters; c; c = c->hh.next)
            for (struct job *j = !only || c == only ? c->jobs_by_uid : NULL; j; j = j->hh_uid.next) {
                if (!*str_or(j->workflow) || !api_may_see_job(caller, j))
                    continue;
                if (fill)
                    ret->v[ret->n++] = j;
                else
                    n++;
            }
        if (!fill && !(ret->v = adv_arena_alloc(ar, (n + 1) * sizeof(*ret->v))))
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    }
    qsort(ret->v, ret->n, sizeof(*ret->v), by_name);
    return 0;
}

static int get_workflow(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                        ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__GetWorkflowRequest *q = (const void *) req;
    char cluster[65], workflow[WORKFLOW_MAX + 1], parent[80];
    struct cluster *c = NULL;
    struct job_list jobs;
    size_t from = 0, to;
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
    if ((r = api_find_parent(api, caller, *q->name ? parent : q->parent, &c, NULL, err)) < 0 ||
        (r = list_named(api, caller, c, ar, &jobs, err)) < 0)
        return r;
    while (from < jobs.n && !adv_streq(jobs.v[from]->workflow, *q->name ? workflow : q->workflow))
        from++;
    for (to = from; to < jobs.n && same(jobs.v[from], jobs.v[to]);)
        to++;
    if (from == to)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "WORKFLOW_NOT_FOUND", "cluster %s: no job names that workflow", c->name);
    REPLY(m, Advisor__V1__GetWorkflowResponse, advisor__v1__get_workflow_response__init);
    m->workflow = shape_workflow(ar, jobs.v + from, to - from);
    return 0;
}

static int list_workflows(struct api *api, const struct api_caller *caller, const ProtobufCMessage *req, struct adv_arena *ar,
                          ProtobufCMessage **ret, struct adv_err *err)
{
    const Advisor__V1__ListWorkflowsRequest *q = (const void *) req;
    char after[WORKFLOW_NAME_SIZE], cluster[65] = "", workflow[WORKFLOW_MAX + 1] = "";
    struct cluster *c = NULL;
    struct job_list jobs;
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
    if ((r = list_named(api, caller, c, ar, &jobs, err)) < 0)
        return r;
    REPLY(m, Advisor__V1__ListWorkflowsResponse, advisor__v1__list_workflows_response__init);
    m->workflows = adv_arena_alloc(ar, limit * sizeof(*m->workflows));
    if (!m->workflows)
        return -ADV_RESOURCE_EXHAUSTED;
    for (size_t i = 0, k; i < jobs.n; i = k) {
        int past = strcmp(jobs.v[i]->workflow, workflow);
        for (k = i; k < jobs.n && same(jobs.v[i], jobs.v[k]);)
            k++;
        if (*after && (past < 0 || (past == 0 && strcmp(jobs.v[i]->cluster->name, cluster) <= 0)))
            continue;
        if (m->n_workflows == limit) {
            m->next_page_token = token_page(ar, "workflows", m->workflows[limit - 1]->name);
            break;
        }
        if (!(m->workflows[m->n_workflows] = shape_workflow(ar, jobs.v + i, k - i)))
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
