/* SPDX-License-Identifier: Apache-2.0 */

/* Heterogeneous jobs are one job to the rest of the product: the leader, with the nodes of all components. Slurm itself acts
 * on the set through the leader's number: a requeue, a release, a new list of excluded nodes or a new start time take all
 * components (measured on 22.05, 24.11 and 26.05); no component can be requeued alone.
 *
 * A component that ended while the leader runs on (a person cancelled it) has no nodes in the job any more, and neither has
 * one that belongs to another attempt. */

#include "adapters/slurm/internal.h"

#include <stdio.h>

#include "common/hostlist.h"

#define HOSTS_MAX 100000
#define LIST_MAX  (1u << 20)

/* What one component adds to the whole. */
static int join(struct adapter_job *whole, struct adv_hostlist *nodes, enum adapter_job_state state, bool completing,
                bool requeueable, uint32_t restarts, uint32_t node_count, const char *list)
{
    bool over = adapter_job_state_ended(whole->state), ended = adapter_job_state_ended(state);

    whole->completing = whole->completing || completing || (over && !ended && state != ADAPTER_JOB_UNKNOWN_STATE);
    whole->requeueable = whole->requeueable && requeueable;
    if (restarts != whole->restart_count || (ended && !over && whole->state != ADAPTER_JOB_UNKNOWN_STATE))
        return 0;
    whole->node_count += node_count;
    return adv_hostlist_parse(nodes, list, NULL);
}

static int text_of(const struct adv_hostlist *nodes, char **ret)
{
    ADV_AUTO_DONE(adv_buf) text = { 0 };

    adv_buf_init(&text, LIST_MAX);
    if (adv_hostlist_format(nodes, &text, NULL) < 0)
        return -ADV_DATA_LOSS;
    *ret = text.len ? adv_buf_steal(&text, NULL) : strdup("");
    return *ret ? 0 : -ADV_RESOURCE_EXHAUSTED;
}

static void name(struct adapter_job *leader)
{
    (void) snprintf(leader->id, sizeof(leader->id), "%u", leader->het_id);
}

int slurm_join_parts(struct adapter_job_detail *d)
{
    ADV_AUTO(adv_hostlist) nodes = adv_hostlist_new(HOSTS_MAX);
    adv_auto_free char *text = NULL;
    int r;

    if (!nodes)
        return -ADV_RESOURCE_EXHAUSTED;
    d->job.node_count = 0;
    for (size_t i = 0; i < d->n_parts; i++) {
        const struct adapter_part *p = &d->parts[i];
        if ((r = join(&d->job, nodes, p->state, p->completing, p->requeueable, p->restart_count, p->node_count, p->nodes)) < 0)
            return r;
    }
    if ((r = text_of(nodes, &text)) < 0)
        return r;
    d->job.nodes = slurm_detail_str(d, text);
    name(&d->job);
    return 0;
}

/* @set: the components of one job, by their offsets; the first is the leader. */
static int join_set(struct adapter_job **set, size_t n, struct slurm_texts *texts)
{
    ADV_AUTO(adv_hostlist) nodes = adv_hostlist_new(HOSTS_MAX);
    struct adapter_job *leader = set[0];
    uint32_t own = leader->node_count;
    char **more;
    int r;

    if (!nodes || !(more = realloc(texts->more, (texts->n_more + 1) * sizeof(*more))))
        return -ADV_RESOURCE_EXHAUSTED;
    texts->more = more;
    leader->node_count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct adapter_job *j = set[i];
        if ((r = join(leader, nodes, j->state, j->completing, j->requeueable, j->restart_count,
                      i ? j->node_count : own, j->nodes)) < 0)
            return r;
        if (leader->end_s && j->end_s > leader->end_s)
            leader->end_s = j->end_s;
    }
    if ((r = text_of(nodes, &more[texts->n_more])) < 0)
        return r;
    leader->nodes = more[texts->n_more++];
    name(leader);
    return 0;
}

static int by_set(const void *a, const void *b)
{
    const struct adapter_job *x = *(struct adapter_job *const *) a, *y = *(struct adapter_job *const *) b;

    if (x->het_id != y->het_id)
        return x->het_id < y->het_id ? -1 : 1;
    return (x->het_offset > y->het_offset) - (x->het_offset < y->het_offset);
}

/* Components whose leader is not shown are left out like the leader itself, which is then looked for by its number. */
int slurm_join_components(struct adapter_observation *o, struct slurm_texts *texts)
{
    adv_auto_free struct adapter_job **all = NULL;
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < o->n_jobs; i++)
        n += o->jobs[i].het_id != 0;
    if (n == 0)
        return 0;
    if (!(all = calloc(n, sizeof(struct adapter_job *))))
        return -ADV_RESOURCE_EXHAUSTED;
    n = 0;
    for (size_t i = 0; i < o->n_jobs; i++)
        if (o->jobs[i].het_id)
            all[n++] = &o->jobs[i];
    qsort(all, n, sizeof(struct adapter_job *), by_set);
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && all[next]->het_id == all[i]->het_id;)
            next++;
        if (next - i > ADAPTER_PARTS_MAX)
            return -ADV_DATA_LOSS;
        int r = all[i]->het_offset == 0 ? join_set(&all[i], next - i, texts) : 0;
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < o->n_jobs; i++)
        if (o->jobs[i].het_offset <= 0)
            o->jobs[kept++] = o->jobs[i];
    o->n_jobs = kept;
    return 0;
}
