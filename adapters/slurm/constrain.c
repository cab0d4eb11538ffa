/* SPDX-License-Identifier: Apache-2.0 */

/* What CONSTRAIN sets. ExcNodeList replaces, it never merges, so the new list is the user's part plus ours: the
 * current list minus what we added earlier, plus what we want now. Slurm refuses the whole list for one unknown node
 * and lets a job starve that excludes the nodes it needs; both are seen to here, with a note for people. Counted are
 * usable nodes within the job's partition, reservation and features; memory, cores and devices of a node are not
 * looked at, and neither are features with counts or brackets.
 *
 * A requeue sets the start two minutes ahead. Three seconds after the requeue is early enough and late enough: in the
 * first second slurmd still counts the job's credential as revoked. The time is the controller's own (SubmitTime), and
 * only a start that the requeue itself set is touched. The begin time of the submission needs no thought: the job has
 * run since. */

#include "adapters/slurm/internal.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/hostlist.h"

#define HOSTS_MAX       100000
#define LIST_MAX        (1u << 20)
#define START_AFTER_S   3
#define REQUEUE_DELAY_S 120 /* or one more */

static ADV_PRINTF(2, 3) void note(struct slurm_plan *p, const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;

    if (p->n_notes == SLURM_NOTES_MAX)
        return;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) >= 0)
        p->notes[p->n_notes++] = text;
    va_end(ap);
}

static const struct adapter_node *find_node(const struct adapter_node_list *l, const char *name)
{
    size_t lo = 0, hi = l->n_nodes;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int r = strcmp(name, l->nodes[mid].name);
        if (r == 0)
            return &l->nodes[mid];
        if (r < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* Do two comma separated lists share a word? */
static bool share_word(const char *a, const char *b)
{
    while (*a) {
        size_t n = strcspn(a, ",");
        for (const char *p = b; *p;) {
            size_t m = strcspn(p, ",");
            if (m == n && n && memcmp(a, p, n) == 0)
                return true;
            p += m + (p[m] == ',');
        }
        a += n + (a[n] == ',');
    }
    return false;
}

/* Does a node with @have ("a,b") satisfy the job's "a&b|c"? What has counts or brackets is not judged here. */
static bool has_features(const char *want, const char *have)
{
    bool all = true;

    if (!*want || strpbrk(want, "[](){}*:"))
        return true;
    for (const char *p = want;;) {
        char word[128];
        size_t n = strcspn(p, "&,|");

        if (n == 0 || n >= sizeof(word))
            return true;
        memcpy(word, p, n);
        word[n] = '\0';
        all = all && share_word(word, have);
        p += n;
        if (*p == '\0')
            return all;
        if (*p++ == '|') {
            if (all)
                return true;
            all = true;
        }
    }
}

static bool equal_sets(const struct adv_hostlist *a, const struct adv_hostlist *b)
{
    if (adv_hostlist_count(a) != adv_hostlist_count(b))
        return false;
    for (size_t i = 0; i < adv_hostlist_count(a); i++)
        if (!adv_hostlist_contains(b, adv_hostlist_nth(a, i)))
            return false;
    return true;
}

/* Slurm gives a set's components one list when the leader is updated. Where they have lists of their own, that would take a
 * user's choice away, so none is changed. */
static bool one_list(const struct adapter_job_detail *d, const struct adv_hostlist *leader)
{
    for (size_t i = 1; i < d->n_parts; i++) {
        ADV_AUTO(adv_hostlist) list = adv_hostlist_new(HOSTS_MAX);
        if (!list || adv_hostlist_parse(list, d->parts[i].excluded_nodes, NULL) < 0 || !equal_sets(list, leader) ||
            !adv_streq(d->parts[i].reservation, d->reservation))
            return false;
    }
    return true;
}

/* What one job, or one component, asks of nodes. */
struct need {
    const char *partition, *features;
    size_t nodes;
};

static size_t usable_nodes(const struct need *need, const struct adapter_node_list *nodes, const struct adv_hostlist *without,
                           const struct adv_hostlist *within, bool reserved)
{
    size_t usable = 0;

    for (size_t i = 0; i < nodes->n_nodes; i++) {
        const struct adapter_node *n = &nodes->nodes[i];
        bool place = reserved ? adv_hostlist_contains(within, n->name) : !(n->flags & ADAPTER_NODE_RESERVED);
        usable += place && adapter_node_usable(n) && share_word(need->partition, n->partitions) &&
                  has_features(need->features, n->features) && !adv_hostlist_contains(without, n->name);
    }
    return usable;
}

/* A component needs its nodes beside those of all components of its partition: whether they may share is not judged. */
static struct need need_of(const struct adapter_job_detail *d, size_t part)
{
    struct need n = { d->job.partition, d->features, d->job.node_count };

    if (d->n_parts) {
        n = (struct need) { d->parts[part].partition, d->parts[part].features, 0 };
        for (size_t i = 0; i < d->n_parts; i++)
            if (strcmp(d->parts[i].partition, n.partition) == 0)
                n.nodes += d->parts[i].node_count;
    }
    n.nodes = n.nodes ? n.nodes : 1;
    return n;
}

/* Is this the start that a requeue sets? */
static bool of_requeue(int64_t submit_s, int64_t eligible_s)
{
    int64_t ahead = eligible_s - submit_s;

    return ahead == REQUEUE_DELAY_S || ahead == REQUEUE_DELAY_S + 1;
}

static int64_t wanted_start(const struct adapter_job *job)
{
    int64_t start = job->submit_s + START_AFTER_S;

    if (job->restart_count == 0 || !of_requeue(job->submit_s, job->eligible_s))
        if (!slurm_guard_off("start_time"))
            return 0;
    return start < job->eligible_s || slurm_guard_off("start_time") ? start : 0;
}

static int add_wanted(struct slurm_plan *p, const struct adapter_action *action, const struct adapter_node_list *nodes,
                      const struct adv_hostlist *required, struct adv_hostlist *list)
{
    p->ours = calloc(action->n_exclude + 1, sizeof(*p->ours));
    if (!p->ours)
        return -ADV_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < action->n_exclude; i++) {
        const char *name = action->exclude[i];

        if (!find_node(nodes, name) && !slurm_guard_off("unknown_node")) {
            note(p, "node %s is not in the cluster: dropped", name);
        } else if (adv_hostlist_contains(required, name) && !slurm_guard_off("required_node")) {
            note(p, "the job asks for node %s by name: not excluded, it would be made unrunnable", name);
        } else if (!adv_hostlist_contains(list, name)) {
            if (adv_hostlist_add(list, name, NULL) < 0)
                return -ADV_INVALID_ARGUMENT;
            if (!(p->ours[p->n_ours] = strdup(name)))
                return -ADV_RESOURCE_EXHAUSTED;
            p->n_ours++;
        }
    }
    return 0;
}

void slurm_plan_constrain(const struct adapter_action *action, const struct adapter_job_detail *before,
                          const struct adapter_node_list *nodes, const char *reserved, struct slurm_plan *ret)
{
    ADV_AUTO(adv_hostlist) within = adv_hostlist_new(HOSTS_MAX);
    ADV_AUTO(adv_hostlist) current = adv_hostlist_new(HOSTS_MAX);
    ADV_AUTO(adv_hostlist) list = adv_hostlist_new(HOSTS_MAX);
    ADV_AUTO(adv_hostlist) required = adv_hostlist_new(HOSTS_MAX);
    ADV_AUTO_DONE(adv_buf) text = { 0 };
    struct slurm_plan *p = ret;
    bool ours;

    *p = (struct slurm_plan) { .reason = ADAPTER_REASON_INVALID };
    adv_buf_init(&text, LIST_MAX);
    if (!within || adv_hostlist_parse(within, reserved ? reserved : "", NULL) < 0) {
        note(p, "the nodes of reservation %s cannot be read", before->reservation);
        return;
    }
    if (!current || !list || !required || adv_hostlist_parse(current, before->excluded_nodes, NULL) < 0 ||
        adv_hostlist_parse(list, before->excluded_nodes, NULL) < 0 ||
        adv_hostlist_parse(required, before->required_nodes, NULL) < 0) {
        note(p, "the job's node lists cannot be read");
        return;
    }
    for (size_t i = 0; i < before->n_parts; i++)
        if (adv_hostlist_parse(required, before->parts[i].required_nodes, NULL) < 0) {
            note(p, "the node lists of component %s cannot be read", before->parts[i].id);
            return;
        }
    ours = one_list(before, current) || slurm_guard_off("component_lists");
    if (!ours && (action->n_exclude || action->n_exclude_before))
        note(p, "the components exclude different nodes, or have different reservations: no list is changed, as one would take "
                "the place of all");
    /* the user's part */
    if (slurm_guard_off("user_exclude"))
        adv_hostlist_minus(list, current);
    for (size_t i = 0; ours && i < action->n_exclude_before; i++)
        (void) adv_hostlist_remove(list, action->exclude_before[i]);
    for (size_t i = 0; ours && i < adv_hostlist_count(current); i++) {
        const char *name = adv_hostlist_nth(current, i);
        if (!find_node(nodes, name) && adv_hostlist_remove(list, name))
            note(p, "node %s is not in the cluster: dropped", name);
    }
    if ((ours && add_wanted(p, action, nodes, required, list) < 0) || adv_hostlist_format(list, &text, NULL) < 0)
        return;
    p->exclude = adv_buf_steal(&text, NULL);
    if (!p->exclude)
        return;

    for (size_t i = 0; i == 0 || i < before->n_parts; i++) {
        struct need need = need_of(before, i);
        size_t usable = usable_nodes(&need, nodes, list, within, reserved != NULL);

        if (p->n_ours == 0 || usable >= need.nodes || slurm_guard_off("satisfiable"))
            continue;
        note(p, "only %zu usable nodes would remain in partition %s%s%s, the job needs %zu", usable, need.partition,
             reserved ? ", reservation " : "", reserved ? before->reservation : "", need.nodes);
        p->reason = ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE;
        return;
    }
    p->set_exclude = !equal_sets(current, list);
    p->start_s = wanted_start(&before->job);
    p->reason = p->set_exclude || p->start_s ? ADAPTER_REASON_OK : ADAPTER_REASON_ALREADY_SATISFIED;
}

bool slurm_plan_reached(const struct slurm_plan *p, const struct adapter_job_detail *after)
{
    ADV_AUTO(adv_hostlist) want = adv_hostlist_new(HOSTS_MAX);
    ADV_AUTO(adv_hostlist) is = adv_hostlist_new(HOSTS_MAX);

    if (!want || !is || adv_hostlist_parse(want, p->exclude, NULL) < 0 ||
        adv_hostlist_parse(is, after->excluded_nodes, NULL) < 0)
        return false;
    if (p->set_exclude && (!equal_sets(want, is) || !one_list(after, is)))
        return false;
    if (!p->start_s || after->job.state != ADAPTER_JOB_PENDING)
        return true;
    /* A start that has passed becomes the present, from 24.11 on. */
    for (size_t i = 0; i < after->n_parts; i++)
        if (after->parts[i].eligible_s > p->start_s && of_requeue(after->parts[i].submit_s, after->parts[i].eligible_s))
            return false;
    return after->job.eligible_s <= p->start_s || !of_requeue(after->job.submit_s, after->job.eligible_s);
}

void slurm_plan_done(struct slurm_plan *p)
{
    free(p->exclude);
    for (size_t i = 0; i < p->n_ours; i++)
        free(p->ours[i]);
    free(p->ours);
    for (size_t i = 0; i < p->n_notes; i++)
        free(p->notes[i]);
    *p = (struct slurm_plan) { .reason = ADAPTER_REASON_INVALID };
}
