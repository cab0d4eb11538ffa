/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/api/find.h"

static int find_cluster(struct api *api, const struct api_caller *caller, const char *name, struct cluster **ret,
                        struct adv_err *err)
{
    *ret = fleet_find_cluster(turn_fleet(api->turn), name);
    if (*ret && api_may_see_cluster(caller, (*ret)->name))
        return 0;
    return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered", str_or(name));
}

static int not_said(struct adv_err *err)
{
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MISSING", "expected a resource name, or ref");
    return adv_err_field(err, "name");
}

int find_job(struct api *api, const struct api_caller *caller, const char *name, const Advisor__V1__AttemptRef *ref,
             struct job **ret, struct adv_err *err)
{
    struct resource_path p;
    struct cluster *c;
    int r;

    if (*name) {
        if ((r = resource_path_parse(name, &p, err)) < 0 || (r = find_cluster(api, caller, p.cluster, &c, err)) < 0)
            return r;
        *ret = fleet_find_job_uid(c, p.job_uid);
        if (!*ret || !api_may_see_job(caller, *ret))
            return adv_err_set_reason(err, ADV_NOT_FOUND, "JOB_NOT_FOUND", "%.200s: no such job", name);
        return 0;
    }
    if (!ref)
        return not_said(err);
    if ((r = find_cluster(api, caller, ref->cluster, &c, err)) < 0)
        return r;
    *ret = fleet_find_job(c, ref->job_id);
    if (!*ret || !api_may_see_job(caller, *ret))
        return adv_err_set_reason(err, ADV_NOT_FOUND, "JOB_NOT_FOUND", "cluster %s: job %.40s is not known", c->name,
                                  ref->job_id);
    return 0;
}

int find_attempt(struct api *api, const struct api_caller *caller, const char *name,
                 const Advisor__V1__AttemptRef *ref, struct attempt **ret,
                 struct adv_err *err)
{
    struct resource_path p = { 0 };
    struct job *j = NULL;
    uint32_t index = ref ? ref->restart_count : 0;
    int r = find_job(api, caller, name, ref, &j, err);

    if (r < 0)
        return r;
    if (*name) {
        if ((r = resource_path_parse(name, &p, err)) < 0)
            return r;
        if (!p.attempt)
            return not_said(err);
        index = p.attempt_index;
    }
    *ret = job_attempt(j, index);
    if (*ret && !*name && !attempt_meant(*ret, ref->submit_unix))
        *ret = NULL;
    if (!*ret)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "ATTEMPT_NOT_FOUND", "job %s has no attempt %u", j->job_id, index);
    return 0;
}

/* ---- lists ------------------------------------------------------------------------------------------------------ */

static void sift_down(struct job_walk *w, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < w->n; i = child) {
        struct order_node *n = w->heap[i];
        if (child + 1 < w->n && strcmp(w->heap[child + 1]->key, w->heap[child]->key) > 0)
            child++;
        if (strcmp(n->key, w->heap[child]->key) >= 0)
            return;
        w->heap[i] = w->heap[child];
        w->heap[child] = n;
    }
}

int job_walk_begin(struct api *api, const struct api_caller *caller, struct cluster *only, const char *before,
                   struct adv_arena *ar, struct job_walk *ret, struct adv_err *err)
{
    struct fleet *f = turn_fleet(api->turn);

    *ret = (struct job_walk) { .caller = caller, .budget = JOBS_A_PAGE };
    ret->heap = adv_arena_alloc(ar, (HASH_COUNT(f->clusters) + 1) * sizeof(struct order_node *));
    if (!ret->heap)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    for (struct cluster *c = f->clusters; c; c = c->hh.next)
        if ((only ? c == only : api_may_see_cluster(caller, c->name)) &&
            (ret->heap[ret->n] = order_before(&c->jobs_in_order, before)))
            ret->n++;
    for (size_t i = ret->n / 2 + 1; i-- > 0;)
        sift_down(ret, i);
    return 0;
}

struct job *job_walk_next(struct job_walk *w)
{
    while (w->n && w->budget) {
        struct job *j = ADV_CONTAINER_OF(w->heap[0], struct job, by_uid);
        w->last = j->uid;
        w->budget--;
        if (!(w->heap[0] = order_before(&j->cluster->jobs_in_order, j->uid)))
            w->heap[0] = w->heap[--w->n];
        sift_down(w, 0);
        if (api_may_see_job(w->caller, j))
            return j;
    }
    return NULL;
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(((const struct newest *) b)->uid, ((const struct newest *) a)->uid);
}

size_t newest_page(struct adv_arena *ar, const char *list, struct newest *v, size_t n, uint32_t limit, char **ret_token)
{
    qsort(v, n, sizeof(*v), newest_first);
    if (n <= limit)
        return n;
    *ret_token = token_page(ar, list, v[limit - 1].uid);
    return limit;
}
