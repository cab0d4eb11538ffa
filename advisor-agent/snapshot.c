/* SPDX-License-Identifier: Apache-2.0 */

/* Records are kept in the form in which they are sent, so that a hash is one pass over the encoded
 * bytes and sending copies nothing. A job has two blocks of text, one from the list and one from the
 * detail read, because they are renewed at different times.
 *
 * `sent_hash` is what the control plane has of a record (0: nothing); the digest is the XOR of these
 * and so always tells what the other side should have after the update that carries it. */

#include "advisor-agent/snapshot.h"

#include <pb_encode.h>
#include <stdlib.h>
#include <string.h>
#include "common/hash.h"

#include "common/utf8.h"

#define TAKE_MAX 512 /* records of one update */

struct job {
    advisor_v1_JobObservation o;
    char *list_text, *detail_text;
    /* Not sent. What it waits for by the last list, and what it waited for until a list at `changed_s`; NULL: nothing. */
    char *dependency, *dependency_was;
    int64_t changed_s; /* 0: it has never been seen to change */
    uint64_t sent_hash;
    unsigned round; /* of the last observation that had it */
    bool want_detail, missing;
    UT_hash_handle hh;
};

struct node {
    advisor_v1_NodeObservation o;
    char *text;
    uint64_t sent_hash;
    unsigned round;
    UT_hash_handle hh;
};

/* Something the control plane has and should forget. */
struct gone {
    struct gone *next;
    char *name;
    bool is_node;
};

/* How an attempt ended that the scheduler has forgotten; oldest first. */
struct ended {
    struct ended *next;
    advisor_v1_JobEnd m;
    bool sent;
};

struct snapshot {
    snapshot_first_submit_cb first_submit;
    void *ctx;
    struct job *jobs;
    struct node *nodes;
    struct gone *gone;
    struct ended *ended;
    unsigned n_ended;
    unsigned round, node_round;
    bool observed; /* at least once, complete */
    bool full;     /* a full snapshot is to be sent */
    bool full_begun;
    int64_t observe_wall_ms;
    uint64_t digest;
    /* The update under way. */
    advisor_v1_JobObservation *out_jobs;
    advisor_v1_NodeObservation *out_nodes;
    advisor_v1_JobEnd *out_ended;
    char *out_gone_jobs[TAKE_MAX], *out_gone_nodes[TAKE_MAX];
};

struct snapshot *snapshot_new(snapshot_first_submit_cb first_submit, void *ctx)
{
    struct snapshot *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->first_submit = first_submit;
    s->ctx = ctx;
    s->full = true;
    return s;
}

static void free_job(struct snapshot *s, struct job *j)
{
    HASH_DEL(s->jobs, j);
    free(j->list_text);
    free(j->detail_text);
    free(j->dependency);
    free(j->dependency_was);
    free(j);
}

static void free_node(struct snapshot *s, struct node *n)
{
    HASH_DEL(s->nodes, n);
    free(n->text);
    free(n);
}

static void release_out(struct snapshot *s)
{
    for (size_t i = 0; i < TAKE_MAX; i++) {
        free(s->out_gone_jobs[i]);
        free(s->out_gone_nodes[i]);
        s->out_gone_jobs[i] = s->out_gone_nodes[i] = NULL;
    }
    free(s->out_jobs);
    free(s->out_nodes);
    free(s->out_ended);
    s->out_jobs = NULL;
    s->out_nodes = NULL;
    s->out_ended = NULL;
}

static void drop_gone(struct snapshot *s)
{
    while (s->gone) {
        struct gone *g = s->gone;
        s->gone = g->next;
        free(g->name);
        free(g);
    }
}

static void drop_ended(struct snapshot *s, struct ended **at)
{
    struct ended *e = *at;

    *at = e->next;
    s->n_ended--;
    free(e->m.nodes);
    free(e);
}

struct snapshot *snapshot_free(struct snapshot *s)
{
    struct job *j, *next;
    struct node *n, *n_next;

    if (!s)
        return NULL;
    HASH_ITER(hh, s->jobs, j, next)
        free_job(s, j);
    HASH_ITER(hh, s->nodes, n, n_next)
        free_node(s, n);
    drop_gone(s);
    release_out(s);
    while (s->ended)
        drop_ended(s, &s->ended);
    free(s);
    return NULL;
}

static uint64_t hash_of(const pb_msgdesc_t *fields, const void *msg)
{
    size_t size;
    uint64_t h = 0xcbf29ce484222325u;
    adv_auto_free uint8_t *buf = NULL;

    if (!pb_get_encoded_size(&size, fields, msg) || !(buf = malloc(size + 1)))
        return 1;
    pb_ostream_t os = pb_ostream_from_buffer(buf, size);
    if (!pb_encode(&os, fields, msg))
        return 1;
    for (size_t i = 0; i < os.bytes_written; i++)
        h = (h ^ buf[i]) * 0x100000001b3u;
    h ^= h >> 29; /* XOR of many needs well mixed bits */
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    return h ? h : 1;
}

enum _advisor_v1_JobState snapshot_state_of(enum adapter_job_state state, bool completing)
{
    static const advisor_v1_JobState map[ADAPTER_JOB_STATE_MAX_] = {
        [ADAPTER_JOB_PENDING] = advisor_v1_JobState_JOB_STATE_PENDING,
        [ADAPTER_JOB_CONFIGURING] = advisor_v1_JobState_JOB_STATE_CONFIGURING,
        [ADAPTER_JOB_RUNNING] = advisor_v1_JobState_JOB_STATE_RUNNING,
        [ADAPTER_JOB_SUSPENDED] = advisor_v1_JobState_JOB_STATE_SUSPENDED,
        [ADAPTER_JOB_STOPPED] = advisor_v1_JobState_JOB_STATE_SUSPENDED,
        [ADAPTER_JOB_COMPLETED] = advisor_v1_JobState_JOB_STATE_COMPLETED,
        [ADAPTER_JOB_CANCELLED] = advisor_v1_JobState_JOB_STATE_CANCELLED,
        [ADAPTER_JOB_FAILED] = advisor_v1_JobState_JOB_STATE_FAILED,
        [ADAPTER_JOB_TIMEOUT] = advisor_v1_JobState_JOB_STATE_TIMEOUT,
        [ADAPTER_JOB_OUT_OF_MEMORY] = advisor_v1_JobState_JOB_STATE_OUT_OF_MEMORY,
        [ADAPTER_JOB_NODE_FAIL] = advisor_v1_JobState_JOB_STATE_NODE_FAIL,
        [ADAPTER_JOB_BOOT_FAIL] = advisor_v1_JobState_JOB_STATE_BOOT_FAIL,
        [ADAPTER_JOB_PREEMPTED] = advisor_v1_JobState_JOB_STATE_PREEMPTED,
        [ADAPTER_JOB_DEADLINE] = advisor_v1_JobState_JOB_STATE_DEADLINE,
        [ADAPTER_JOB_REQUEUED] = advisor_v1_JobState_JOB_STATE_REQUEUED,
        [ADAPTER_JOB_REQUEUE_HOLD] = advisor_v1_JobState_JOB_STATE_REQUEUED,
        [ADAPTER_JOB_SPECIAL_EXIT] = advisor_v1_JobState_JOB_STATE_SPECIAL_EXIT,
        [ADAPTER_JOB_REVOKED] = advisor_v1_JobState_JOB_STATE_REVOKED,
    };

    if (completing && state == ADAPTER_JOB_UNKNOWN_STATE)
        return advisor_v1_JobState_JOB_STATE_COMPLETING;
    return state < ADAPTER_JOB_STATE_MAX_ ? map[state] : advisor_v1_JobState_JOB_STATE_UNSPECIFIED;
}

/* One block for several texts. Sizes are counted in a first pass with @block NULL. */
struct packer {
    char *block;
    size_t at;
};

static char *pack(struct packer *p, const char *text)
{
    size_t n = strlen(text ? text : "");
    char *to = p->block ? p->block + p->at : NULL;

    /* Display text must be UTF-8 on the wire; a bad byte may take three. */
    if (to)
        p->at += adv_utf8_lossy_buf(to, 3 * n + 1, text ? text : "", n) + 1;
    else
        p->at += 3 * n + 1;
    return to;
}

static pb_bytes_array_t *pack_bytes(struct packer *p, const char *text)
{
    size_t n = strlen(text ? text : "");
    pb_bytes_array_t *b = NULL;

    n = n < 32768 ? n : 32768; /* 16-bit sizes */
    p->at = (p->at + sizeof(pb_size_t) - 1) / sizeof(pb_size_t) * sizeof(pb_size_t);
    if (p->block) {
        b = (pb_bytes_array_t *) (void *) (p->block + p->at);
        b->size = (pb_size_t) n;
        memcpy(b->bytes, text ? text : "", n);
    }
    p->at += PB_BYTES_ARRAY_T_ALLOCSIZE(n);
    return b;
}

static void list_texts(advisor_v1_JobObservation *o, const struct adapter_job *a, struct packer *p)
{
    o->reason = pack(p, a->reason);
    o->nodes = pack(p, a->nodes);
    o->user = pack(p, a->user);
    o->account = pack(p, a->account);
    o->partition = pack(p, a->partition);
    o->qos = pack(p, a->qos);
}

static void detail_texts(advisor_v1_JobObservation *o, const struct adapter_job_detail *d,
                         struct packer *p)
{
    o->name = pack_bytes(p, d->name);
    o->comment = pack_bytes(p, d->comment);
    o->stdout_path = pack_bytes(p, d->stdout_path);
    o->stderr_path = pack_bytes(p, d->stderr_path);
    o->excluded_nodes = pack(p, d->excluded_nodes);
    o->required_nodes = pack(p, d->required_nodes);
}

static void forget_detail(struct job *j)
{
    advisor_v1_JobObservation *o = &j->o;

    free(j->detail_text);
    j->detail_text = NULL;
    o->detail_known = false;
    o->name = o->comment = o->stdout_path = o->stderr_path = NULL;
    o->excluded_nodes = o->required_nodes = NULL;
}

static void rehash(struct job *j)
{
    j->o.hash = 0;
    j->o.hash = hash_of(advisor_v1_JobObservation_fields, &j->o);
}

static int take_list(struct snapshot *s, const struct adapter_job *a, struct job **ret)
{
    struct job *j;
    struct packer size = { 0 }, put = { 0 };
    advisor_v1_JobObservation scratch = { 0 };

    list_texts(&scratch, a, &size);
    put.block = malloc(size.at);
    if (!put.block)
        return -ADV_RESOURCE_EXHAUSTED;
    HASH_FIND_STR(s->jobs, a->id, j);
    if (!j) {
        j = calloc(1, sizeof(*j));
        if (!j) {
            free(put.block);
            return -ADV_RESOURCE_EXHAUSTED;
        }
        memcpy(j->o.job_id, a->id, sizeof(a->id));
        HASH_ADD_STR(s->jobs, o.job_id, j);
        j->want_detail = true;
    }
    advisor_v1_JobObservation *o = &j->o;
    advisor_v1_JobState state = snapshot_state_of(a->state, a->completing);
    if (o->submit_unix != a->submit_s || o->restart_count != a->restart_count) {
        forget_detail(j);
        free(j->dependency);
        free(j->dependency_was);
        j->dependency = j->dependency_was = NULL;
        j->changed_s = 0;
    }
    if (!o->detail_known || o->state != state)
        j->want_detail = true;
    o->state = state;
    (void) adv_utf8_lossy_buf(o->state_raw, sizeof(o->state_raw), a->state_text ? a->state_text : "",
                              strlen(a->state_text ? a->state_text : ""));
    o->completing = a->completing;
    o->restart_count = a->restart_count;
    o->requeueable = a->requeueable;
    o->batch = a->batch;
    o->exit_code = a->exit.known ? (uint32_t) a->exit.code : 0;
    o->exit_signal = a->exit.known ? (uint32_t) a->exit.signal : 0;
    o->submit_unix = a->submit_s;
    o->eligible_unix = a->eligible_s;
    o->start_unix = a->start_s;
    o->end_unix = a->end_s;
    o->held = a->held;
    o->uid = a->uid;
    o->num_nodes = a->node_count;
    o->incarnation_unix = s->first_submit(s->ctx, a);
    free(j->list_text);
    j->list_text = put.block;
    list_texts(o, a, &put);
    j->missing = false;
    *ret = j;
    return 0;
}

/* A text for which there is no memory counts as not known, never as none: nothing is concluded from it. */
static void note_dependency(struct snapshot *s, struct job *j, const char *text)
{
    const char *now = text ? text : "", *old = j->dependency ? j->dependency : "";

    if (strcmp(now, old) == 0)
        return;
    free(j->dependency_was);
    j->dependency_was = j->dependency;
    j->dependency = *now ? strdup(now) : NULL;
    j->changed_s = s->observe_wall_ms / 1000;
}

void snapshot_dependents(const struct snapshot *s, bool (*names)(const char *dependency, const char *parent, const char *child),
                         const char *parent, int64_t since_s,
                         void (*fn)(void *arg, const advisor_v1_JobObservation *o, const char *before), void *arg)
{
    for (const struct job *j = s->jobs; j; j = j->hh.next) {
        bool was = j->dependency_was && j->changed_s && j->changed_s >= since_s && names(j->dependency_was, parent, j->o.job_id);
        if (was || (j->dependency && names(j->dependency, parent, j->o.job_id)))
            fn(arg, &j->o, was ? j->dependency_was : j->dependency);
    }
}

int snapshot_observe(struct snapshot *s, const struct adapter_observation *o, struct adv_err *err)
{
    struct job *j, *next;

    s->round++;
    s->observe_wall_ms = o->read_wall_us / 1000;
    for (size_t i = 0; i < o->n_jobs; i++) {
        if (take_list(s, &o->jobs[i], &j) < 0)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for job %s", o->jobs[i].id);
        j->round = s->round;
        note_dependency(s, j, o->jobs[i].dependency);
        rehash(j);
    }
    HASH_ITER(hh, s->jobs, j, next)
        j->missing = j->round != s->round;
    s->observed = true;
    return 0;
}

int snapshot_detail(struct snapshot *s, const struct adapter_job_detail *d, struct adv_err *err)
{
    struct packer size = { 0 }, put = { 0 };
    advisor_v1_JobObservation scratch = { 0 };
    struct job *j;

    detail_texts(&scratch, d, &size);
    put.block = malloc(size.at);
    if (!put.block || take_list(s, &d->job, &j) < 0) {
        free(put.block);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for job %s", d->job.id);
    }
    forget_detail(j);
    j->detail_text = put.block;
    detail_texts(&j->o, d, &put);
    j->o.detail_known = true;
    j->want_detail = false;
    j->round = s->round;
    rehash(j);
    return 0;
}

int snapshot_nodes(struct snapshot *s, const struct adapter_node_list *l, struct adv_err *err)
{
    struct node *n, *next;

    s->node_round++;
    for (size_t i = 0; i < l->n_nodes; i++) {
        const struct adapter_node *a = &l->nodes[i];
        size_t room = 3 * (strlen(a->name) + strlen(a->state_text) + strlen(a->reason)) + 3;
        struct packer p = { malloc(room), 0 };
        HASH_FIND_STR(s->nodes, a->name, n);
        if (!p.block || (!n && !(n = calloc(1, sizeof(*n))))) {
            free(p.block);
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for node %.60s", a->name);
        }
        if (n->text)
            HASH_DEL(s->nodes, n); /* its key moves */
        free(n->text);
        n->text = p.block;
        n->o.name = pack(&p, a->name);
        n->o.state_raw = pack(&p, a->state_text);
        n->o.reason = pack(&p, a->reason);
        n->o.available = adapter_node_usable(a);
        n->o.hash = 0;
        n->o.hash = hash_of(advisor_v1_NodeObservation_fields, &n->o);
        n->round = s->node_round;
        HASH_ADD_KEYPTR(hh, s->nodes, n->o.name, strlen(n->o.name), n);
    }
    HASH_ITER(hh, s->nodes, n, next) {
        if (n->round == s->node_round)
            continue;
        struct gone *g = n->sent_hash ? calloc(1, sizeof(*g)) : NULL;
        if (g) {
            *g = (struct gone) { s->gone, strdup(n->o.name), true };
            s->gone = g;
            s->digest ^= n->sent_hash;
        }
        free_node(s, n);
    }
    return 0;
}

void snapshot_gone(struct snapshot *s, const char *job_id)
{
    struct job *j;

    HASH_FIND_STR(s->jobs, job_id, j);
    if (!j)
        return;
    struct gone *g = j->sent_hash ? calloc(1, sizeof(*g)) : NULL;
    if (g) {
        *g = (struct gone) { s->gone, strdup(job_id), false };
        s->gone = g;
        s->digest ^= j->sent_hash;
    }
    free_job(s, j);
}

int snapshot_ended(struct snapshot *s, const advisor_v1_JobEnd *e, struct adv_err *err)
{
    struct ended *n = calloc(1, sizeof(*n)), **at = &s->ended;
    const char *nodes = e->nodes ? e->nodes : "";
    size_t room = 3 * strlen(nodes) + 1;

    if (!n || !(n->m.nodes = malloc(room))) {
        free(n);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the end of job %s", e->job_id);
    }
    char *text = n->m.nodes;
    n->m = *e;
    n->m.nodes = text;
    (void) adv_utf8_lossy_buf(text, room, nodes, strlen(nodes));
    release_out(s); /* may point to the one that goes */
    if (s->n_ended == SNAPSHOT_ENDS_MAX) { /* one that was sent, if there is one */
        while (*at && !(*at)->sent)
            at = &(*at)->next;
        drop_ended(s, *at ? at : &s->ended);
    }
    for (at = &s->ended; *at;)
        at = &(*at)->next;
    *at = n;
    s->n_ended++;
    return 0;
}

size_t snapshot_ends_room(const struct snapshot *s)
{
    size_t unsent = 0;

    for (const struct ended *e = s->ended; e; e = e->next)
        unsent += !e->sent;
    return SNAPSHOT_ENDS_MAX - unsent;
}

void snapshot_ends_again(struct snapshot *s)
{
    for (struct ended *e = s->ended; e; e = e->next)
        e->sent = false;
}

const char *snapshot_next_missing(struct snapshot *s)
{
    struct job *j, *next;

    HASH_ITER(hh, s->jobs, j, next)
        if (j->missing) {
            j->missing = false;
            return j->o.job_id;
        }
    return NULL;
}

const char *snapshot_next_detail(struct snapshot *s)
{
    struct job *j, *next;

    HASH_ITER(hh, s->jobs, j, next)
        if (j->want_detail) {
            j->want_detail = false;
            return j->o.job_id;
        }
    return NULL;
}

const advisor_v1_JobObservation *snapshot_find(const struct snapshot *s, const char *job_id)
{
    struct job *j;

    HASH_FIND_STR(s->jobs, job_id, j);
    return j ? &j->o : NULL;
}

void snapshot_each(const struct snapshot *s, void (*fn)(void *arg, const advisor_v1_JobObservation *o),
                   void *arg)
{
    struct job *j, *next;

    HASH_ITER(hh, s->jobs, j, next)
        fn(arg, &j->o);
}

size_t snapshot_count(const struct snapshot *s)
{
    return HASH_COUNT(s->jobs);
}

uint64_t snapshot_digest(const struct snapshot *s)
{
    return s->digest;
}

void snapshot_restart(struct snapshot *s)
{
    struct job *j, *next;
    struct node *n, *n_next;

    HASH_ITER(hh, s->jobs, j, next)
        j->sent_hash = 0;
    HASH_ITER(hh, s->nodes, n, n_next)
        n->sent_hash = 0;
    drop_gone(s);
    s->digest = 0;
    s->full = true;
    s->full_begun = false;
}

bool snapshot_pending(const struct snapshot *s)
{
    const struct job *j;
    const struct node *n;

    if (!s->observed)
        return false;
    if (s->full || s->gone)
        return true;
    for (const struct ended *e = s->ended; e; e = e->next)
        if (!e->sent)
            return true;
    for (j = s->jobs; j; j = j->hh.next)
        if (j->o.hash != j->sent_hash)
            return true;
    for (n = s->nodes; n; n = n->hh.next)
        if (n->o.hash != n->sent_hash)
            return true;
    return false;
}

static size_t encoded_size(const pb_msgdesc_t *fields, const void *msg)
{
    size_t n = 0;

    (void) pb_get_encoded_size(&n, fields, msg);
    return n + 4;
}

bool snapshot_take(struct snapshot *s, size_t budget, advisor_v1_StateUpdate *ret)
{
    struct job *j;
    struct node *n;
    size_t used = 0;
    bool more = false;

    if (!snapshot_pending(s))
        return false;
    release_out(s);
    s->out_jobs = calloc(TAKE_MAX, sizeof(*s->out_jobs));
    s->out_nodes = calloc(TAKE_MAX, sizeof(*s->out_nodes));
    s->out_ended = calloc(SNAPSHOT_ENDS_MAX, sizeof(*s->out_ended));
    if (!s->out_jobs || !s->out_nodes || !s->out_ended)
        return false;
    *ret = (advisor_v1_StateUpdate) { .jobs = s->out_jobs, .nodes = s->out_nodes,
                                      .gone_job_ids = s->out_gone_jobs,
                                      .gone_nodes = s->out_gone_nodes,
                                      .ended = s->out_ended,
                                      .observe_wall_ms = s->observe_wall_ms };
    while (s->gone && ret->gone_job_ids_count < TAKE_MAX && ret->gone_nodes_count < TAKE_MAX) {
        struct gone *g = s->gone;
        s->gone = g->next;
        if (!g->name)
            ; /* no memory for it then: the digest will not match, and a resync mends it */
        else if (g->is_node)
            s->out_gone_nodes[ret->gone_nodes_count++] = g->name;
        else
            s->out_gone_jobs[ret->gone_job_ids_count++] = g->name;
        free(g);
    }
    for (j = s->jobs; j; j = j->hh.next) {
        if (j->o.hash == j->sent_hash)
            continue;
        if (used >= budget || ret->jobs_count == TAKE_MAX) {
            more = true;
            break;
        }
        s->out_jobs[ret->jobs_count++] = j->o;
        used += encoded_size(advisor_v1_JobObservation_fields, &j->o);
        s->digest ^= j->sent_hash ^ j->o.hash;
        j->sent_hash = j->o.hash;
    }
    for (n = s->nodes; n && !more; n = n->hh.next) {
        if (n->o.hash == n->sent_hash)
            continue;
        if (used >= budget || ret->nodes_count == TAKE_MAX) {
            more = true;
            break;
        }
        s->out_nodes[ret->nodes_count++] = n->o;
        used += encoded_size(advisor_v1_NodeObservation_fields, &n->o);
        s->digest ^= n->sent_hash ^ n->o.hash;
        n->sent_hash = n->o.hash;
    }
    /* after what the control plane has to know of the job; what does not fit comes with the next one */
    for (struct ended *e = s->ended; e && !more && !s->gone && used < budget; e = e->next) {
        if (e->sent)
            continue;
        s->out_ended[ret->ended_count++] = e->m;
        used += encoded_size(advisor_v1_JobEnd_fields, &e->m);
        e->sent = true;
    }
    if (s->full) {
        ret->full_begin = !s->full_begun;
        s->full_begun = true;
        if (!more && !s->gone) {
            ret->full_end = true;
            s->full = false;
        }
    }
    ret->digest = s->full ? 0 : s->digest;
    return true;
}
