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

/* Jobs, newest first (by uid), of one cluster or of all: what @caller may not see is passed over. A page looks at no more than
 * JOBS_A_PAGE of them, so that no filter makes the loop wait for it. */
#define JOBS_A_PAGE 20000
struct job_walk {
    const struct api_caller *caller;
    struct order_node **heap; /* the next one of each cluster, the newest on top */
    size_t n;                 /* 0: there are no more */
    uint32_t budget;
    const char *last; /* uid of the last one that was looked at; NULL: none was */
};
/* @before: only uids below it, "" for all. Valid until the fleet changes. */
adv_must_check int job_walk_begin(struct api *api, const struct api_caller *caller, struct cluster *only_or_null,
                                  const char *before, struct adv_arena *ar, struct job_walk *ret, struct adv_err *err);
/* NULL: no more, or (@w->n is not 0) enough for one page. */
struct job *job_walk_next(struct job_walk *w);

/* Small tables, newest first (by uid): @v has what is wanted, in any order. Sorts it and tells how many of it are the page;
 * *@ret_token is set when there are more. */
struct newest {
    const char *uid;
    const void *object;
};
size_t newest_page(struct adv_arena *ar, const char *list, struct newest *v, size_t n, uint32_t limit, char **ret_token);

#define REPLY(var, Type, init)                       \
    Type *var = adv_arena_alloc(ar, sizeof(Type));   \
    if (!var)                                        \
        return -ADV_RESOURCE_EXHAUSTED;              \
    init(var);                                       \
    *ret = &var->base

#endif
