/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence about nodes: which of it counts, and whom it blames. See the header for the rules. The list of evidence is in order of
 * arrival, which must not matter: what counts is sorted by what it says before anything is made of it. */

#include "controlplane/domain/nodefault.h"

#include <utlist.h>

bool nodefault_class(const char *fault_class)
{
    static const char *const words[] = { "gpu_hardware", "node_failure", "network_fabric" };

    for (size_t i = 0; i < ADV_ARRAY_LEN(words); i++)
        if (adv_streq(str_or(fault_class), words[i]))
            return true;
    return false;
}

/* Principals, one a line. */
static bool trusted(const struct policy *p, const char *reporter)
{
    size_t n = strlen(reporter);

    for (const char *s = p->trusted_reporters; *s; s += strcspn(s, "\n"), s += *s == '\n')
        if (n > 0 && strcspn(s, "\n") == n && strncmp(s, reporter, n) == 0)
            return true;
    return false;
}

bool nodefault_believed(const struct evidence *e, const struct policy *p)
{
    if (!nodefault_class(e->fault_class) || !e->nodes || e->late)
        return false;
    switch (e->origin) {
    case EVIDENCE_OF_SOURCE:
        return e->weight_percent >= NODEFAULT_WEIGHT_MIN;
    case EVIDENCE_OF_PROVIDER:
        return p->attribution_min_percent > 0 && e->weight_percent >= p->attribution_min_percent;
    case EVIDENCE_OF_OUTSIDE:
        return e->weight_percent >= NODEFAULT_WEIGHT_MIN && trusted(p, str_or(e->reporter));
    }
    return false; /* of a version to come */
}

bool nodefault_may_explain(const struct attempt *a)
{
    return a->state == JOB_FAILED || a->state == JOB_NODE_FAIL || a->state == JOB_BOOT_FAIL;
}

struct span {
    int64_t from_us, to_us;
};

static int64_t end_of(const struct attempt *a, int64_t now_us)
{
    return !job_state_terminal(a->state) ? now_us : a->end_unix ? a->end_unix * 1000000 : a->ms.end_observed_us;
}

static struct span when(const struct attempt *a, int64_t now_us)
{
    int64_t end_us = end_of(a, now_us), from_us = end_us - NODEFAULT_BEFORE_US;

    /* one that hangs may have done so for longer */
    if (a->last_progress_us && (a->last_progress_us > from_us || !job_state_terminal(a->state)))
        from_us = a->last_progress_us;
    return (struct span) { from_us - NODEFAULT_SKEW_US, end_us + NODEFAULT_AFTER_US };
}

static struct span span_of(const struct evidence *e)
{
    return (struct span) { e->window_start_us ? e->window_start_us : e->observe_us,
                           e->window_end_us ? e->window_end_us : e->observe_us };
}

static bool of_the_time(const struct evidence *e, struct span w)
{
    struct span s = span_of(e);

    return e->origin == EVIDENCE_OF_PROVIDER || (s.to_us >= w.from_us && s.from_us <= w.to_us);
}

int64_t nodefault_at_us(const struct evidence *e, int64_t end_us)
{
    struct span s = span_of(e);

    return s.to_us <= end_us ? s.to_us : s.from_us >= end_us ? s.from_us : end_us;
}

static int weightier_first(const void *va, const void *vb, void *arg)
{
    int64_t end_us = *(const int64_t *) arg, from_a, from_b;
    const struct evidence *a = *(const struct evidence *const *) va, *b = *(const struct evidence *const *) vb;
    int r;

    if (a->weight_percent != b->weight_percent)
        return a->weight_percent > b->weight_percent ? -1 : 1;
    from_a = llabs(nodefault_at_us(a, end_us) - end_us);
    from_b = llabs(nodefault_at_us(b, end_us) - end_us);
    if (from_a != from_b)
        return from_a < from_b ? -1 : 1;
    if (a->observe_us != b->observe_us)
        return a->observe_us < b->observe_us ? -1 : 1;
    if ((r = strcmp(str_or(a->nodes), str_or(b->nodes))) || (r = strcmp(str_or(a->fault_class), str_or(b->fault_class))) ||
        (r = strcmp(str_or(a->rule), str_or(b->rule))) || (r = strcmp(str_or(a->source), str_or(b->source))) ||
        (r = strcmp(str_or(a->kind), str_or(b->kind))) || (r = strcmp(str_or(a->reporter), str_or(b->reporter))) ||
        (r = strcmp(str_or(a->excerpt_sha256), str_or(b->excerpt_sha256))))
        return r;
    return strcmp(str_or(a->uid), str_or(b->uid));
}

/* How many nodes the attempt has; 0: that is not known. */
static size_t count_own(const struct attempt *a, struct nodefault *nf)
{
    ADV_AUTO(adv_hostlist) own = adv_hostlist_new(ATTEMPT_MAX_NODES);

    if (!own || nodes_add(own, str_or(a->nodes)) < 0) {
        nf->oom = true;
        return 0;
    }
    return adv_hostlist_count(own);
}

static void blame(const struct attempt *a, struct nodefault *nf)
{
    ADV_AUTO(adv_hostlist) all = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO_DONE(adv_buf) text;
    size_t own = count_own(a, nf);

    adv_buf_init(&text, HOST_LIST_TEXT_MAX);
    for (uint32_t i = 0; all && i < nf->n_by; i++)
        nf->oom |= nodes_add(all, nf->by[i]->nodes) < 0;
    if (!all || nf->oom) {
        nf->oom = true;
        return;
    }
    nf->n_nodes = (uint32_t) adv_hostlist_count(all);
    nf->fault_class = nf->by[0]->fault_class;
    if (nf->n_nodes > 1 && nf->n_nodes > NODEFAULT_NODES_MAX)
        nf->shared = "so many at one time have a cause that they share";
    else if (nf->n_nodes > 1 && nf->n_nodes * 2 > own)
        nf->shared = "that is most of its nodes, and a cause that they share is likelier";
    if (nf->shared)
        return;
    if (adv_hostlist_format(all, &text, NULL) < 0 || !(nf->nodes = strdup(text.data)))
        nf->oom = true;
}

void nodefault_find(const struct attempt *a, const struct policy *p, int64_t now_us, struct nodefault *ret)
{
    struct span w = when(a, now_us);
    int64_t end_us = end_of(a, now_us);
    const struct evidence *e;
    const char *unknown = a->n_evidence >= ATTEMPT_MAX_EVIDENCE ? "there may be more, for which there was no room" : NULL;

    *ret = (struct nodefault) { 0 };
    DL_FOREACH (a->evidence, e) {
        if (e->origin == EVIDENCE_OF_SOURCE && adv_streq(str_or(e->kind), NODEFAULT_KIND_MORE) && of_the_time(e, w))
            unknown = "there is more of that kind than was told";
        if (nodefault_believed(e, p) && of_the_time(e, w) && ret->n_by < ATTEMPT_MAX_EVIDENCE) {
            ret->by[ret->n_by++] = e;
            ret->observed |= e->origin != EVIDENCE_OF_PROVIDER;
        }
    }
    if (ret->n_by == 0)
        return;
    qsort_r(ret->by, ret->n_by, sizeof(ret->by[0]), weightier_first, &end_us);
    blame(a, ret);
    if (unknown && ret->nodes) {
        ret->shared = unknown;
        free(ret->nodes);
        ret->nodes = NULL;
    }
}

void nodefault_done(struct nodefault *nf)
{
    free(nf->nodes);
    *nf = (struct nodefault) { 0 };
}
