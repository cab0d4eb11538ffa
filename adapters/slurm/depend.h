/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADV_ADAPTERS_SLURM_DEPEND_H
#define ADV_ADAPTERS_SLURM_DEPEND_H

/* Dependencies as Slurm prints them: "afterok:68(unfulfilled),singleton(unfulfilled)". Pure; all input is hostile. */

#include "adapters/adapter.h"
#include "common/buf.h"

#define SLURM_DEPS_MAX 1024 /* edges of one job */

enum slurm_dep_state { SLURM_DEP_NONE = 0, SLURM_DEP_UNFULFILLED, SLURM_DEP_FAILED, SLURM_DEP_FULFILLED };

struct slurm_dep {
    char type[20];             /* "afterok", as Slurm spells it */
    char job[ADAPTER_ID_SIZE]; /* "68", "46_5", "46_*" (all tasks); "" for singleton */
    char more[16];             /* "+10" (minutes); "" */
    enum slurm_dep_state state;
};
struct slurm_deps {
    struct slurm_dep *edges;
    size_t n;
    bool any; /* joined by '?': one edge is enough */
};

/* Errors: -ADV_DATA_LOSS (not understood: an edge of an unknown type, ',' and '?' in one list, too many, too long);
 * -ADV_RESOURCE_EXHAUSTED. "" is no edges. Owner: caller, slurm_deps_done(). */
adv_must_check int slurm_deps_parse(const char *text, struct slurm_deps *ret, struct adv_err *err);
void slurm_deps_done(struct slurm_deps *d);
static inline void slurm_deps_done_(struct slurm_deps *d)
{
    slurm_deps_done(d);
}

/* Does @dependency of @child have an edge that the end of @parent decides (both ids)? "46_*" counts for each task, and with
 * aftercorr for the one of the child's index. A text that is not understood has none. */
bool slurm_depends(const char *dependency, const char *parent, const char *child);

/* The whole list that gives @child back its edges to @parent, which waits again: what it has @now, where an edge to @parent has
 * failed. @before (what it had; "": not known) only tells why there is none: no edge is added that it does not have.
 * OK: @ret has the list; ALREADY_SATISFIED: it waits for @parent; INVALID: a list is not understood;
 * WRONG_STATE: it has no such edge; CONSTRAINT_UNSATISFIABLE: it cannot be given back. @ret_why: for people, static; NULL: none. */
enum adapter_reason slurm_deps_rearm(const char *now, const char *before, const struct adapter_job *child,
                                     const struct adapter_job *parent, struct adv_buf *ret, const char **ret_why);
/* Is this an edge that the end of @parent decides for @child? */
bool slurm_dep_concerns(const struct slurm_dep *e, const struct adapter_job *child, const struct adapter_job *parent);
/* May the job of this edge have ended already, while the edge is not judged? Whatever its end was, it means the same. */
bool slurm_dep_any_end(const struct slurm_dep *e);
/* Edges to @parent that wait for its end; 0 where one of them has failed. */
size_t slurm_deps_waiting(const char *text, const struct adapter_job *child, const struct adapter_job *parent);

#endif
