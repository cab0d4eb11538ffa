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
    if (!*ret)
        return adv_err_set_reason(err, ADV_NOT_FOUND, "ATTEMPT_NOT_FOUND", "job %s has no attempt %u", j->job_id, index);
    return 0;
}

static int newest_first(const void *a, const void *b)
{
    return strcmp((*(struct job *const *) b)->uid, (*(struct job *const *) a)->uid);
}

int list_jobs_sorted(struct api *api, const struct api_caller *caller, struct cluster *only, struct adv_arena *ar,
                     struct job_list *ret, struct adv_err *err)
{
    struct fleet *f = turn_fleet(api->turn);
    size_t n = 0;

    *ret = (struct job_list) { 0 };
    for (struct cluster *c = f->clusters; c; c = c->hh.next)
        if (!only || c == only)
            n += HASH_CNT(hh_uid, c->jobs_by_uid);
    ret->v = adv_arena_alloc(ar, (n + 1) * sizeof(*ret->v));
    if (!ret->v)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    for (struct cluster *c = f->clusters; c; c = c->hh.next)
        if (!only || c == only)
            for (struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next)
                if (api_may_see_job(caller, j))
                    ret->v[ret->n++] = j;
    qsort(ret->v, ret->n, sizeof(*ret->v), newest_first);
    return 0;
}
