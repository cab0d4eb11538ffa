/* SPDX-License-Identifier: Apache-2.0 */

/* A child's dependency, after its parent failed and waits again.
 *
 * Slurm judges dependents once, some 0.4 s after the parent's end, and for good: an edge that asked for success stays failed
 * also when the parent later succeeds; one that the failure fulfilled is taken out of the list. An update replaces the whole
 * list, so what is written is all that the child has now, with those edges added or made new.
 *
 * What must never be: an edge made new that Slurm then takes for met. 22.05 takes an edge to a job that it has forgotten for
 * met, so a list with a failed edge to any other job is left alone, and the parent must be seen waiting right before. Once one edge
 * has failed the others may not be judged any more (24.11): "unfulfilled" may be an edge to a job that has long failed. So each
 * other job of the list is looked at, too, and must not have ended. An array's
 * edge ("46_*") to a task that failed is judged by the worst end that any of its tasks ever had, also after that task succeeded
 * (22.05, 24.11): making it new would only fail again, later. An aftercorr edge looks at the one task that corresponds.
 *
 * An edge that the failure met is never put back, only told: who looks now and then cannot tell it from one that the user took out
 * himself shortly before. So no edge is ever written that the child does not have. */

#include "adapters/slurm/depend.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const types[] = { "after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer", "singleton" };

static const struct {
    const char *word;
    enum slurm_dep_state state;
} states[] = {
    { "(unfulfilled)", SLURM_DEP_UNFULFILLED },
    { "(failed)", SLURM_DEP_FAILED },
    { "(fulfilled)", SLURM_DEP_FULFILLED },
};

/* Copies what of @s belongs to the set; false: it does not fit. */
static bool take(const char **s, const char *set, char *to, size_t size)
{
    size_t n = strspn(*s, set);

    if (n >= size)
        return false;
    memcpy(to, *s, n);
    to[n] = '\0';
    *s += n;
    return true;
}

static bool is_type(const char *word)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(types); i++)
        if (strcmp(types[i], word) == 0)
            return true;
    return false;
}

static bool take_job(const char **s, char to[ADAPTER_ID_SIZE])
{
    size_t n = strspn(*s, "0123456789");

    if (n == 0)
        return false;
    if ((*s)[n] == '_') {
        size_t task = (*s)[n + 1] == '*' ? 1 : strspn(*s + n + 1, "0123456789");
        if (task == 0)
            return false;
        n += 1 + task;
    }
    if (n >= ADAPTER_ID_SIZE)
        return false;
    memcpy(to, *s, n);
    to[n] = '\0';
    *s += n;
    return true;
}

static bool take_edge(const char **s, struct slurm_dep *d)
{
    *d = (struct slurm_dep) { .state = SLURM_DEP_NONE };
    if (!take(s, "abcdefghijklmnopqrstuvwxyz", d->type, sizeof(d->type)) || !is_type(d->type))
        return false;
    if (strcmp(d->type, "singleton") != 0) {
        if (**s != ':')
            return false;
        (*s)++;
        if (!take_job(s, d->job))
            return false;
        if (**s == '+' && (!take(s, "+0123456789", d->more, sizeof(d->more)) || strspn(d->more, "+") != 1 || !d->more[1]))
            return false;
    }
    if (**s != '(')
        return true;
    for (size_t i = 0; i < ADV_ARRAY_LEN(states); i++) {
        size_t n = strlen(states[i].word);
        if (strncmp(*s, states[i].word, n) != 0)
            continue;
        d->state = states[i].state;
        *s += n;
        return true;
    }
    return false;
}

int slurm_deps_parse(const char *text, struct slurm_deps *ret, struct adv_err *err)
{
    struct slurm_deps d = { 0 };
    char joined = '\0';

    for (const char *s = text; *text;) {
        if (d.n % 16 == 0) {
            struct slurm_dep *more = d.n < SLURM_DEPS_MAX ? realloc(d.edges, (d.n + 16) * sizeof(*more)) : NULL;
            if (!more) {
                int code = d.n < SLURM_DEPS_MAX ? ADV_RESOURCE_EXHAUSTED : ADV_DATA_LOSS;
                slurm_deps_done(&d);
                return adv_err_set(err, code, "dependency: more than %d edges, or no memory", SLURM_DEPS_MAX);
            }
            d.edges = more;
        }
        bool ok = take_edge(&s, &d.edges[d.n]);
        d.n += ok;
        if (ok && *s == '\0')
            break;
        if (!ok || (*s != ',' && *s != '?') || (joined && joined != *s)) {
            size_t at = (size_t) (s - text);
            slurm_deps_done(&d);
            return adv_err_set(err, ADV_DATA_LOSS, "dependency: not understood from byte %zu on", at);
        }
        joined = *s++;
    }
    d.any = joined == '?';
    *ret = d;
    return 0;
}

void slurm_deps_done(struct slurm_deps *d)
{
    free(d->edges);
    *d = (struct slurm_deps) { 0 };
}

/* ---- whose edge ---- */

static bool wide(const struct slurm_dep *e)
{
    size_t n = strlen(e->job);

    return n > 2 && strcmp(e->job + n - 2, "_*") == 0;
}

/* "46_*" and "46_5". */
static bool wide_over(const struct slurm_dep *e, const char *id)
{
    return wide(e) && strncmp(e->job, id, strlen(e->job) - 1) == 0;
}

/* The record number of the last task is the array's: an edge to that number means the array. */
static bool edge_to(const struct slurm_dep *e, const struct adapter_job *parent)
{
    char raw[ADAPTER_ID_SIZE];

    (void) snprintf(raw, sizeof(raw), "%u", parent->raw_id);
    return strcmp(e->job, parent->id) == 0 || (parent->raw_id != parent->array_id && strcmp(e->job, raw) == 0);
}

static bool type_is(const struct slurm_dep *e, const char *type)
{
    return strcmp(e->type, type) == 0;
}

/* Of edges that the parent's end decides: it has begun in any case, and a name is no edge to it. */
static bool of_end(const struct slurm_dep *e)
{
    return !type_is(e, "after") && !type_is(e, "singleton");
}

bool slurm_dep_concerns(const struct slurm_dep *e, const struct adapter_job *child, const struct adapter_job *parent)
{
    if (!of_end(e))
        return false;
    if (type_is(e, "aftercorr") && wide(e))
        return wide_over(e, parent->id) && child->array_task >= 0 && child->array_task == parent->array_task;
    return edge_to(e, parent) || wide_over(e, parent->id);
}

bool slurm_dep_any_end(const struct slurm_dep *e)
{
    return type_is(e, "after") || type_is(e, "afterany") || type_is(e, "afterburstbuffer");
}

/* Same index, as slurm_dep_concerns() has it: "26_5" and "46_5". */
static bool same_task(const char *child, const char *parent)
{
    const char *c = strchr(child, '_'), *p = strchr(parent, '_');

    return c && p && strcmp(c, p) == 0;
}

bool slurm_depends(const char *dependency, const char *parent, const char *child)
{
    ADV_AUTO_DONE(slurm_deps) d = { 0 };

    if (!*dependency || slurm_deps_parse(dependency, &d, NULL) < 0)
        return false;
    for (size_t i = 0; i < d.n; i++)
        if (of_end(&d.edges[i]) &&
            (strcmp(d.edges[i].job, parent) == 0 ||
             (wide_over(&d.edges[i], parent) && (!type_is(&d.edges[i], "aftercorr") || same_task(child, parent)))))
            return true;
    return false;
}

static bool has(const struct slurm_deps *d, const struct slurm_dep *e)
{
    for (size_t i = 0; i < d->n; i++)
        if (strcmp(d->edges[i].type, e->type) == 0 && strcmp(d->edges[i].job, e->job) == 0 &&
            strcmp(d->edges[i].more, e->more) == 0)
            return true;
    return false;
}

/* ---- the list ---- */

static void append(struct adv_buf *b, const struct slurm_dep *e, char join)
{
    if (b->len)
        (void) adv_buf_append(b, &join, 1);
    (void) adv_buf_appendf(b, "%s%s%s%s", e->type, e->job[0] ? ":" : "", e->job, e->more);
}

/* Would the parent's failure have fulfilled it? Slurm takes such an edge out. */
static bool met_by_failure(const struct slurm_dep *e)
{
    return type_is(e, "afterany") || type_is(e, "afterburstbuffer") || (type_is(e, "afternotok") && !wide(e));
}

static enum adapter_reason cannot(const char **ret_why, const char *why)
{
    *ret_why = why;
    return ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE;
}

enum adapter_reason slurm_deps_rearm(const char *now_text, const char *before_text, const struct adapter_job *child,
                                     const struct adapter_job *parent, struct adv_buf *ret, const char **ret_why)
{
    ADV_AUTO_DONE(slurm_deps) now = { 0 };
    ADV_AUTO_DONE(slurm_deps) before = { 0 };
    bool waits = false, met = false;
    size_t made_new = 0;
    char join;

    *ret_why = NULL;
    if (slurm_deps_parse(now_text, &now, NULL) < 0) {
        *ret_why = "its dependencies are not understood";
        return ADAPTER_REASON_INVALID;
    }
    if (slurm_deps_parse(before_text, &before, NULL) < 0)
        before = (struct slurm_deps) { 0 };
    for (size_t i = 0; i < now.n; i++) {
        const struct slurm_dep *e = &now.edges[i];
        bool ours = slurm_dep_concerns(e, child, parent);

        waits = waits || (ours && e->state == SLURM_DEP_UNFULFILLED);
        if (e->state != SLURM_DEP_FAILED)
            continue;
        if (!ours)
            return cannot(ret_why, "another job that it depends on has failed, too");
        if (wide(e) && !type_is(e, "aftercorr"))
            return cannot(ret_why, "it depends on all tasks of an array, and Slurm does not forget that one has failed");
        made_new++;
    }
    join = now.any ? '?' : ',';
    for (size_t i = 0; i < now.n; i++)
        append(ret, &now.edges[i], join);
    for (size_t i = 0; i < before.n; i++) {
        const struct slurm_dep *e = &before.edges[i];
        met = met || (slurm_dep_concerns(e, child, parent) && e->state != SLURM_DEP_FAILED && met_by_failure(e) && !has(&now, e));
    }
    if (adv_buf_error(ret))
        return cannot(ret_why, "its list of dependencies is too long");
    if (made_new)
        return ADAPTER_REASON_OK;
    if (waits)
        return ADAPTER_REASON_ALREADY_SATISFIED;
    if (met)
        return cannot(ret_why, "the failure has met its dependency, or somebody has taken it out");
    *ret_why = "it does not depend on the job any more";
    return ADAPTER_REASON_WRONG_STATE;
}

size_t slurm_deps_waiting(const char *text, const struct adapter_job *child, const struct adapter_job *parent)
{
    ADV_AUTO_DONE(slurm_deps) d = { 0 };
    size_t n = 0;

    if (slurm_deps_parse(text, &d, NULL) < 0)
        return 0;
    for (size_t i = 0; i < d.n; i++) {
        bool ours = slurm_dep_concerns(&d.edges[i], child, parent);
        if (ours && d.edges[i].state == SLURM_DEP_FAILED)
            return 0;
        n += ours && d.edges[i].state != SLURM_DEP_FULFILLED;
    }
    return n;
}
