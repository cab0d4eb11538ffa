/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_API_FIND_H
#define CONTROLPLANE_API_FIND_H

/* Finding a job or attempt by resource name or by AttemptRef, as many calls offer both. For api/ alone. */

#include "advisor/v1/types.pb-c.h"

#include "controlplane/api/api.h"

/* Errors: -ADV_INVALID_ARGUMENT (neither or malformed), -ADV_NOT_FOUND. */
adv_must_check int find_job(struct api *api, const struct api_caller *caller, const char *name,
                            const Advisor__V1__AttemptRef *ref, struct job **ret, struct adv_err *err);
adv_must_check int find_attempt(struct api *api, const struct api_caller *caller, const char *name,
                                const Advisor__V1__AttemptRef *ref, struct attempt **ret, struct adv_err *err);

/* All jobs of one cluster, or of all, that @caller may see, newest first (by uid), after @after_uid ("" for the first). */
struct job_list {
    struct job **v;
    size_t n;
};
adv_must_check int list_jobs_sorted(struct api *api, const struct api_caller *caller, struct cluster *c_or_all,
                                    struct adv_arena *ar, struct job_list *ret, struct adv_err *err);

#define REPLY(var, Type, init)                       \
    Type *var = adv_arena_alloc(ar, sizeof(Type));   \
    if (!var)                                        \
        return -ADV_RESOURCE_EXHAUSTED;              \
    init(var);                                       \
    *ret = &var->base

#endif
