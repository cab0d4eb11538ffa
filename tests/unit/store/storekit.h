/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_STORE_STOREKIT_H
#define TESTS_UNIT_STORE_STOREKIT_H

/* What tests of stores share: a loop, store.h's calls in a form that waits for the answer, fleets to write. */

#include <utlist.h>
#include <uv.h>

#include "controlplane/store/store.h"
#include "tests/unit/store/sample.h"

/* Shared by the files of a program that defines STOREKIT_SHARED_LOOP; else each file has its own. */
#ifdef STOREKIT_SHARED_LOOP
extern uv_loop_t loop;
#else
static SAMPLE_UNUSED uv_loop_t loop;
#endif

/* The answer that came last. */
static SAMPLE_UNUSED struct adv_err kit_err;
static SAMPLE_UNUSED bool kit_called;

static SAMPLE_UNUSED void kit_answer(const struct adv_err *err)
{
    cr_assert_not(kit_called, "called back twice");
    kit_called = true;
    kit_err = err ? *err : (struct adv_err) { 0 };
}

/* 0 or the error's code, once the answer is there. */
static SAMPLE_UNUSED int kit_wait(void)
{
    cr_assert_not(kit_called, "called back from within");
    while (!kit_called)
        (void) uv_run(&loop, UV_RUN_ONCE);
    kit_called = false;
    return -(int) kit_err.code;
}

static SAMPLE_UNUSED void close_store(struct store *st)
{
    (void) store_close(st);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
}

static SAMPLE_UNUSED uint64_t commit_first;

static SAMPLE_UNUSED void on_commit(void *arg, uint64_t first_seq, const struct adv_err *err)
{
    (void) arg;
    commit_first = first_seq;
    kit_answer(err);
}

static SAMPLE_UNUSED int commit(struct store *st, struct store_txn *t)
{
    store_commit(st, t, on_commit, NULL);
    return kit_wait();
}

static SAMPLE_UNUSED struct fleet *new_fleet(void)
{
    struct fleet_config cfg = { .lease_us = 1000000 };
    struct fleet *f;

    policy_defaults(&cfg.policy);
    f = fleet_new(&cfg);
    cr_assert(f);
    return f;
}

static SAMPLE_UNUSED void on_done(void *arg, const struct adv_err *err)
{
    (void) arg;
    kit_answer(err);
}

static SAMPLE_UNUSED int load_into(struct store *st, struct fleet *f, struct watchlog *w)
{
    store_load(st, f, w, on_done, NULL);
    return kit_wait();
}

/* @w may be NULL. */
static SAMPLE_UNUSED struct fleet *load(struct store *st, struct watchlog *w)
{
    struct watchlog own = { 0 };
    struct fleet *f = new_fleet();

    cr_assert_eq(load_into(st, f, w ? w : &own), 0, "%s", kit_err.msg);
    watchlog_done(&own);
    return f;
}

/* Two clusters, some jobs with attempts, each attempt with anomalies, advice and actions. */
static SAMPLE_UNUSED struct fleet *make_fleet(void)
{
    struct fleet *f = new_fleet();
    int k = 1;

    for (int c = 0; c < 2; c++) {
        struct cluster *cl = calloc(1, sizeof(*cl));
        sample_cluster(cl, c ? "beta" : "alpha", k++);
        cr_assert_eq(fleet_load_cluster(f, cl), 0);
        for (int i = 0; i < 3; i++) {
            struct node *n = calloc(1, sizeof(*n));
            sample_node(n, k++);
            cr_assert_eq(fleet_load_node(cl, n), 0);
        }
        for (int i = 0; i < 2; i++) {
            struct enrolment *e = calloc(1, sizeof(*e));
            struct revocation *r = calloc(1, sizeof(*r));
            sample_enrolment(e, k++);
            cr_assert_eq(fleet_load_enrolment(cl, e), 0);
            sample_revocation(r, k++);
            cr_assert_eq(fleet_load_revocation(cl, r), 0);
        }
        for (int i = 0; i < 3; i++) {
            struct job *j = calloc(1, sizeof(*j));
            sample_job(j, k++);
            cr_assert_eq(fleet_load_job(f, cl, j), 0);
            for (uint32_t n = 0; n < 3; n++) {
                struct attempt *a = calloc(1, sizeof(*a));
                struct advice *ad = calloc(1, sizeof(*ad));
                sample_attempt(a, j->first_index + n, k++);
                cr_assert_eq(fleet_load_attempt(f, j, a), 0);
                sample_advice(ad, k++);
                fleet_load_advice(a, ad);
                for (int x = 0; x < 3; x++) {
                    struct anomaly *an = calloc(1, sizeof(*an));
                    struct action *ac = calloc(1, sizeof(*ac));
                    sample_anomaly(an, 100000 + k++); /* six digits: their order as texts is that of the numbers */
                    fleet_load_anomaly(a, an);
                    sample_action(ac, 100000 + k++);
                    fleet_load_action(a, ac);
                }
            }
        }
    }
    return f;
}

static SAMPLE_UNUSED void put_fleet(struct store_txn *t, const struct fleet *f)
{
    for (struct cluster *c = f->clusters; c; c = c->hh.next) {
        store_txn_put(t, RESOURCE_CLUSTER, c->name, c);
        for (struct node *n = c->nodes; n; n = n->hh.next)
            store_txn_put(t, RESOURCE_NODE, c->name, n);
        for (struct enrolment *e = c->enrolments; e; e = e->hh.next)
            store_txn_put(t, RESOURCE_ENROLMENT, c->name, e);
        for (struct revocation *r = c->revocations; r; r = r->hh.next)
            store_txn_put(t, RESOURCE_REVOCATION, c->name, r);
        for (struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            store_txn_put(t, RESOURCE_JOB, c->name, j);
            for (uint32_t i = 0; i < j->n_attempts; i++) {
                struct attempt *a = j->attempts[i];
                struct anomaly *an;
                struct action *ac;
                store_txn_put(t, RESOURCE_ATTEMPT, c->name, a);
                if (a->advice)
                    store_txn_put(t, RESOURCE_ADVICE, c->name, a->advice);
                DL_FOREACH (a->anomalies, an)
                    store_txn_put(t, RESOURCE_ANOMALY, c->name, an);
                DL_FOREACH (a->actions, ac)
                    store_txn_put(t, RESOURCE_ACTION, c->name, ac);
            }
        }
    }
}

#endif
