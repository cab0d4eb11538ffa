/* SPDX-License-Identifier: Apache-2.0 */
/* What walks of many pages cost, and that they come by everything, once and in order. Counted are comparisons of names: the
 * work that grows with the square of the fleet where each page begins at its start. */

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/v1/fleet_service.pb-c.h"
#include "advisor/v1/job_service.pb-c.h"
#include "advisor/v1/watch_service.pb-c.h"
#include "controlplane/api/api.h"
#include "controlplane/domain/workflows.h"

#define SMALL 500
#define LARGE 2000
#define PAGE  20
#define NAMED 3 /* workflows a cluster, each by two of its jobs */

static uv_loop_t loop;
static struct turn *t;
static struct store *st;
static struct api api;
static char dir[64];
static uint64_t compared;

int __real_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b);
int __wrap_strcmp(const char *a, const char *b)
{
    compared++;
    return __real_strcmp(a, b);
}

struct heard {
    struct api_call call;
    bool failed, synced;
    struct adv_err err;
    char last[128]; /* cluster or workflow and cluster */
    uint32_t n;
    char token[1024];
    const char *more; /* of the answer: the token of its next page */
};

static int rm(const char *name, const struct stat *sb, int flag, struct FTW *f)
{
    (void) sb, (void) flag, (void) f;
    return remove(name);
}

static void one(struct heard *h, const char *key)
{
    cr_assert_lt(__real_strcmp(h->last, key), 0, "%s after %s", key, h->last);
    (void) snprintf(h->last, sizeof(h->last), "%s", key);
    h->n++;
}

static void reply(struct api_call *c, const ProtobufCMessage *msg)
{
    struct heard *h = (struct heard *) c;
    char key[128];

    if (msg->descriptor == &advisor__v1__list_clusters_response__descriptor) {
        const Advisor__V1__ListClustersResponse *m = (const void *) msg;
        for (size_t i = 0; i < m->n_clusters; i++)
            one(h, m->clusters[i]->name);
        (void) snprintf(h->token, sizeof(h->token), "%s", m->next_page_token);
    } else {
        const Advisor__V1__ListWorkflowsResponse *m = (const void *) msg;
        for (size_t i = 0; i < m->n_workflows; i++) {
            (void) snprintf(key, sizeof(key), "%s %s", m->workflows[i]->workflow, m->workflows[i]->name);
            one(h, key);
            cr_assert_eq(m->workflows[i]->jobs, 2);
        }
        (void) snprintf(h->token, sizeof(h->token), "%s", m->next_page_token);
    }
    h->more = h->token;
}

static void fail(struct api_call *c, const struct adv_err *err)
{
    ((struct heard *) c)->err = *err;
    ((struct heard *) c)->failed = true;
}

static int send_one(struct api_call *c, const ProtobufCMessage *msg)
{
    struct heard *h = (struct heard *) c;
    const Advisor__V1__WatchResponse *m = (const void *) msg;

    if (m->type == ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_SYNCED)
        h->synced = true;
    else
        one(h, m->name);
    return 0;
}

static size_t queued(const struct api_call *c)
{
    (void) c;
    return 0;
}

static bool ended(const struct api_call *c)
{
    return ((const struct heard *) c)->failed;
}

static void counted(struct api_call *c)
{
    (void) c;
}

static const struct api_call_ops ops = { .reply = reply, .fail = fail, .send = send_one, .queued_bytes = queued, .ended = ended,
                                         .ref = counted, .unref = counted };

static void ready(void *arg, const struct adv_err *err)
{
    cr_assert_null(err, "%s", err ? err->msg : "");
    *(bool *) arg = true;
}

static void stopped(void *arg)
{
    *(bool *) arg = true;
}

static const struct api_method *method(const char *path)
{
    size_t n;
    const struct api_method *m = api_methods(&n);

    for (size_t i = 0; i < n; i++)
        if (__real_strcmp(m[i].path, path) == 0)
            return &m[i];
    cr_assert_fail("%s", path);
    return NULL;
}

static void add_job(struct fleet *f, struct cluster *c, unsigned id)
{
    struct job *j = calloc(1, sizeof(*j));
    char text[32];

    (void) snprintf(text, sizeof(text), "%08x-%u", id, id);
    j->uid = strdup(text);
    (void) snprintf(text, sizeof(text), "%u", id);
    j->job_id = strdup(text);
    (void) snprintf(text, sizeof(text), "flow-%u", id % NAMED);
    j->workflow = strdup(text);
    cr_assert_eq(fleet_load_job(f, c, j), 0);
}

/* A fleet as if it were loaded: in no order at all. */
static void begin(unsigned n)
{
    struct fleet_config cfg = { .lease_us = 1000000 };
    struct adv_err err = { 0 };
    struct cluster *c;
    char path[96], name[16];
    bool flag = false;

    (void) uv_loop_init(&loop);
    (void) strcpy(dir, "/tmp/walks-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void) snprintf(path, sizeof(path), "%s/db", dir);
    policy_defaults(&cfg.policy);
    cr_assert_eq(store_open(&loop, &(struct store_config) { .url = path, .replica = "test" }, &st, &err), 0, "%s", err.msg);
    cr_assert_eq(turn_new(&loop, st, &cfg, &t, &err), 0, "%s", err.msg);
    turn_read(t, ready, &flag);
    while (!flag)
        (void) uv_run(&loop, UV_RUN_ONCE);
    for (unsigned i = 0; i < n; i++) {
        c = calloc(1, sizeof(*c));
        (void) snprintf(name, sizeof(name), "c%05u", i * 7 % n);
        c->name = strdup(name);
        cr_assert_eq(fleet_load_cluster(turn_fleet(t), c), 0);
        for (unsigned k = 0; k < 2 * NAMED; k++)
            add_job(turn_fleet(t), c, k);
    }
    api = (struct api) { .loop = &loop, .turn = t };
}

static void end(void)
{
    bool flag = false;

    turn_stop(t, stopped, &flag);
    while (!flag)
        (void) uv_run(&loop, UV_RUN_ONCE);
    turn_free(t);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    (void) store_close(st);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    (void) nftw(dir, rm, 8, FTW_DEPTH | FTW_PHYS);
}

/* Comparisons for each cluster of a fleet of @n. */
static uint64_t watch_clusters(unsigned n)
{
    Advisor__V1__WatchRequest q = ADVISOR__V1__WATCH_REQUEST__INIT;
    Advisor__V1__ResourceKind kind = ADVISOR__V1__RESOURCE_KIND__RESOURCE_KIND_CLUSTER;
    struct heard h = { .call = { .ops = &ops, .api = &api, .method = method("/advisor.v1.WatchService/Watch") } };

    begin(n);
    q.parent = (char *) (uintptr_t) "clusters/-";
    q.kinds = &kind;
    q.n_kinds = 1;
    compared = 0;
    h.call.method->open(&h.call);
    h.call.method->message(&h.call, &q.base);
    while (!h.synced && !h.failed)
        (void) uv_run(&loop, UV_RUN_ONCE);
    cr_assert(!h.failed, "%s", h.err.msg);
    cr_assert_eq(h.n, n);
    n = (unsigned) (compared / n);
    h.call.method->closed(&h.call, false);
    end();
    return n;
}

static void call(struct heard *h, const ProtobufCMessage *q)
{
    h->more = NULL;
    api_dispatch(&h->call, q);
    while (!h->more && !h->failed)
        (void) uv_run(&loop, UV_RUN_ONCE);
    cr_assert(!h->failed, "%s", h->err.msg);
}

static uint64_t list_clusters(unsigned n)
{
    Advisor__V1__ListClustersRequest q = ADVISOR__V1__LIST_CLUSTERS_REQUEST__INIT;
    struct heard h = { .call = { .ops = &ops, .api = &api, .method = method("/advisor.v1.FleetService/ListClusters") } };

    begin(n);
    q.page_size = PAGE;
    q.page_token = h.token;
    compared = 0;
    do
        call(&h, &q.base);
    while (*h.token);
    cr_assert_eq(h.n, n);
    n = (unsigned) (compared / n);
    end();
    return n;
}

static uint64_t list_workflows(unsigned n)
{
    Advisor__V1__ListWorkflowsRequest q = ADVISOR__V1__LIST_WORKFLOWS_REQUEST__INIT;
    struct heard h = { .call = { .ops = &ops, .api = &api, .method = method("/advisor.v1.JobService/ListWorkflows") } };

    begin(n);
    q.parent = (char *) (uintptr_t) "clusters/-";
    q.page_size = PAGE;
    q.page_token = h.token;
    compared = 0;
    do
        call(&h, &q.base);
    while (*h.token);
    cr_assert_eq(h.n, NAMED * n);
    n = (unsigned) (compared / n);
    end();
    return n;
}

static void grows_slowly(const char *what, uint64_t (*walk)(unsigned n))
{
    uint64_t small = walk(SMALL), large = walk(LARGE);

    cr_log_info("%s: %llu comparisons a cluster of %d, %llu of %d", what, (unsigned long long) small, SMALL,
                (unsigned long long) large, LARGE);
    cr_expect_gt(small, 0, "%s: nothing was counted", what);
    cr_expect_lt(large, 2 * small, "%s: %llu comparisons a cluster of %d, but %llu of %d", what, (unsigned long long) small, SMALL,
                 (unsigned long long) large, LARGE);
}

Test(walks, cost_what_they_answer, .timeout = 300)
{
    grows_slowly("Watch", watch_clusters);
    grows_slowly("ListClusters", list_clusters);
    grows_slowly("ListWorkflows", list_workflows);
}

/* A watch that comes to something larger than a message ends and says so: it neither leaves it out nor calls it removed. */
Test(walks, what_does_not_fit_into_a_message, .timeout = 60)
{
    Advisor__V1__WatchRequest q = ADVISOR__V1__WATCH_REQUEST__INIT;
    Advisor__V1__ResourceKind kind = ADVISOR__V1__RESOURCE_KIND__RESOURCE_KIND_ANOMALY;
    struct heard h = { .call = { .ops = &ops, .api = &api, .method = method("/advisor.v1.WatchService/Watch") } };
    struct cluster *c;

    begin(2);
    c = fleet_find_cluster(turn_fleet(t), "c00000");
    for (unsigned i = 1; i <= 2; i++) {
        struct attempt *a = calloc(1, sizeof(*a));
        struct anomaly *an = calloc(1, sizeof(*an));
        an->uid = strdup("a1");
        an->nodes = strdup(i == 1 ? "n[1-8]" : "a-node-of-a-very-large-machine-whose-names-are-rather-long-[1-65536]");
        cr_assert_eq(fleet_load_attempt(turn_fleet(t), fleet_find_job(c, i == 1 ? "1" : "2"), a), 0);
        fleet_load_anomaly(a, an);
    }
    q.parent = (char *) (uintptr_t) "clusters/-";
    q.kinds = &kind;
    q.n_kinds = 1;
    h.call.method->open(&h.call);
    h.call.method->message(&h.call, &q.base);
    while (!h.synced && !h.failed)
        (void) uv_run(&loop, UV_RUN_ONCE);
    cr_assert(h.failed && !h.synced);
    cr_expect_eq(h.err.code, ADV_RESOURCE_EXHAUSTED);
    cr_expect_str_eq(h.err.reason, "REPLY_TOO_LARGE");
    cr_expect(strstr(h.err.msg, "clusters/c00000/jobs/00000002-2/attempts/0/anomalies/a1"), "%s", h.err.msg);
    cr_expect_eq(h.n, 1, "what came before it was told");
    h.call.method->closed(&h.call, false);
    end();
}

/* Jobs come, go, and name another workflow; what no job names is gone. */
Test(walks, workflows_follow_their_jobs, .timeout = 60)
{
    struct fleet *f;
    struct workflow *w;
    struct cluster *c, *d;

    begin(2);
    f = turn_fleet(t);
    c = fleet_find_cluster(f, "c00000");
    d = fleet_find_cluster(f, "c00001");
    add_job(f, c, 100); /* flow-1 */
    w = workflow_find(c, "flow-1");
    cr_assert(w);
    cr_assert_eq(w->cluster, c);
    cr_assert_null(workflow_find(c, "flow-9"));
    cr_assert_eq(workflow_after(f, NULL, "flow-0", "c00001"), w);
    cr_assert_eq(workflow_after(f, c, "flow-0", "c00000"), w);
    cr_assert_eq(workflow_after(f, d, "flow-1", "c00000"), workflow_find(d, "flow-1"), "the same name, a cluster that comes later");
    cr_assert_eq(workflow_after(f, c, "flow-1", "c00000x"), workflow_find(c, "flow-2"), "the same name, a cluster that came before");
    cr_assert_null(workflow_after(f, NULL, "flow-2", "c00001"));
    cr_assert_null(workflow_after(f, c, "flow-2", "c00000"));
    fleet_forget_job(f, c, "00000001-1");
    fleet_forget_job(f, c, "00000064-100");
    cr_assert_eq(workflow_find(c, "flow-1"), w, "one job is left");
    fleet_forget_job(f, c, "00000004-4");
    cr_assert_null(workflow_find(c, "flow-1"));
    cr_assert_eq(workflow_after(f, NULL, "flow-0", "c00001"), workflow_find(d, "flow-1"));
    add_job(f, c, 1);
    cr_assert(workflow_find(c, "flow-1"));
    end();
}
