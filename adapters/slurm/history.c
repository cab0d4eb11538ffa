/* SPDX-License-Identifier: Apache-2.0 */

/* How attempts ended that slurmctld has forgotten, by one sacct. A row is believed only once it is whole: accounting lags
 * by seconds, and shows a job whose end slurmctld lost as running for ever. */

#include "adapters/slurm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct history_task {
    struct slurm_task t;
    struct adapter_attempt_id *asked;
    struct adapter_end *ends;
    size_t n;
    adapter_history_cb cb;
    void *arg;
};

static void finish(struct history_task *p, const struct adv_err *err)
{
    p->cb(p->arg, p->ends, p->n, err);
    for (size_t i = 0; i < p->n; i++) {
        free((void *) (uintptr_t) p->ends[i].state_text);
        free((void *) (uintptr_t) p->ends[i].nodes);
    }
    free(p->asked);
    free(p->ends);
    slurm_task_done(&p->t);
    free(p);
}

static void on_row(void *arg, const struct slurm_acct_row *row)
{
    struct history_task *p = arg;

    for (size_t i = 0; i < p->n; i++) {
        struct adapter_end *e = &p->ends[i];
        char *state, *nodes;

        if (row->submit_s != p->asked[i].submit_s || !slurm_acct_covers(row->id, p->asked[i].id))
            continue;
        if (!adapter_job_state_ended(row->state) || !row->end_s) {
            e->found = ADAPTER_PAST_UNKNOWN; /* it is there, and not finished: the newest word counts */
            continue;
        }
        state = strdup(row->state_text);
        nodes = strdup(row->nodes);
        if (!state || !nodes)
            abort();
        free((void *) (uintptr_t) e->state_text);
        free((void *) (uintptr_t) e->nodes);
        *e = (struct adapter_end) { ADAPTER_PAST_ENDED, row->state, state, row->exit, row->start_s, row->end_s, nodes };
        e->canceller_known = slurm_acct_canceller(row->state_text, &e->canceller_uid);
    }
}

static void ask(struct history_task *p)
{
    ADV_AUTO_DONE(adv_buf) ids = { 0 };

    adv_buf_init(&ids, ADAPTER_HISTORY_MAX * ADAPTER_ID_SIZE);
    for (size_t i = 0; i < p->n; i++)
        slurm_acct_add_id(&ids, p->asked[i].id);
    if (adv_buf_error(&ids) < 0)
        abort();
    const char *const argv[] = { "sacct", "-n", "-X", "-P", "-D", "-j", ids.data, "-o", SLURM_ACCT_FIELDS, NULL };
    slurm_task_run(&p->t, argv);
}

static void on_sight(void *arg, enum adapter_sight sight, enum adapter_privilege privilege, const struct adv_err *err)
{
    struct history_task *p = arg;
    struct adv_err none;

    if (!p->t.a->site_known || sight != ADAPTER_SIGHT_FULL) {
        finish(p, err);
    } else if (!p->t.a->site.accounting) {
        (void) adv_err_set(&none, ADV_FAILED_PRECONDITION, "this cluster keeps no accounting");
        finish(p, &none);
    } else {
        p->t.step++;
        ask(p);
    }
}

static void history_resume(struct slurm_task *t)
{
    struct history_task *p = ADV_CONTAINER_OF(t, struct history_task, t);
    struct adv_err err = { 0 };

    if (t->step == 0) {
        slurm_sight(t->a, false, false, on_sight, p);
        return;
    }
    if (!slurm_task_ok(t)) {
        (void) slurm_task_error(t, "sacct", &err);
        finish(p, &err);
        return;
    }
    for (size_t i = 0; i < p->n; i++)
        p->ends[i].found = ADAPTER_PAST_NONE;
    slurm_parse_acct(t->out, t->out_len, on_row, p);
    finish(p, NULL);
}

void slurm_history(struct adapter *base, const struct adapter_attempt_id *attempts, size_t n, adapter_history_cb cb, void *arg)
{
    struct history_task *p = calloc(1, sizeof(*p));

    n = n < ADAPTER_HISTORY_MAX ? n : ADAPTER_HISTORY_MAX;
    if (!p || !(p->asked = calloc(n + 1, sizeof(*p->asked))) || !(p->ends = calloc(n + 1, sizeof(*p->ends))))
        abort();
    memcpy(p->asked, attempts, n * sizeof(*p->asked));
    p->n = n;
    p->cb = cb;
    p->arg = arg;
    slurm_task_init(&p->t, slurm_of(base), history_resume);
    slurm_task_start(&p->t);
}
