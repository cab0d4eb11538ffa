/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler shows moves jobs and attempts along. A record that cannot be of the job it names makes a new job;
 * nothing is ever inherited by an id. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"

#include <stdio.h>
#include <stdio.h>
#include <utlist.h>

#include "common/jobcomment.h"

#define MAX_RESTART_COUNT 10000 /* a larger number is garbage, not a job that was requeued this often */
#define CLUSTER_MAX_JOBS     200000  /* what one agent can make the control plane keep, of past jobs too */
#define CLUSTER_MAX_NODES    50000
#define CLUSTER_MAX_ATTEMPTS 500000
#define DROP_AHEAD           500     /* past jobs that go at once when there are too many: not some at each update */
#define ATTEMPT_MAX_GAP      1000    /* requeues of a known job that nobody saw */
#define STALE_END_S       100   /* an attempt first seen this long after its end is history, not news (MinJobAge / 3) */

/* The first submit time, if the record tells it. */
static int64_t incarnation_of(const struct job_obs *o)
{
    return o->incarnation_unix || o->restart_count ? o->incarnation_unix : o->submit_unix;
}

/* Not knowing is no: a later attempt whose first submit time is not confirmed may be of a job that got the id while nobody
 * looked. The attempt that is known already is another matter: an id cannot be given twice at one time. */
static bool same_submission(const struct job *j, const struct job_obs *o)
{
    uint32_t last = j->n_attempts ? j->first_index + j->n_attempts - 1 : 0;
    int64_t incarnation = incarnation_of(o);

    if (j->incarnation_unix && incarnation)
        return j->incarnation_unix == incarnation;
    return o->restart_count == last && o->submit_unix == j->submit_unix;
}

void fleet_job_set_hash(struct cluster *c, struct job *j, bool present, uint64_t hash)
{
    if (j->present)
        c->digest ^= j->hash;
    j->present = present;
    j->hash = hash;
    if (present)
        c->digest ^= hash;
}

static void job_gone(struct fleet *f, struct intents *in, struct job *j)
{
    struct attempt *a = fleet_last_attempt(j);

    fleet_job_set_hash(j->cluster, j, false, 0);
    if (!j->gone) {
        j->gone = true;
        fleet_recount(j);
        fleet_touch_job(in, j);
    }
    if (a && !job_state_terminal(a->state))
        fleet_judge_unlink(f, a); /* one that ended is judged still: that nothing can be done is said, too */
}

static struct job *job_new(struct fleet *f, struct intents *in, struct cluster *c, const struct job_obs *o,
                           const struct event *ev)
{
    struct job *j = calloc(1, sizeof(*j));
    char uid[32];

    if (!j) {
        in->oom = true;
        return NULL;
    }
    j->cluster = c;
    fleet_mint_uid(f, ev->now_us, uid);
    (void) str_set(in, &j->uid, uid);
    (void) str_set(in, &j->job_id, o->job_id);
    j->first_seen_us = ev->now_us;
    if (in->oom) {
        job_free(j);
        return NULL;
    }
    HASH_ADD_KEYPTR(hh_uid, c->jobs_by_uid, j->uid, strlen(j->uid), j);
    if (!j->hh_uid.tbl) {
        in->oom = true;
        job_free(j);
        return NULL;
    }
    order_add(&c->jobs_in_order, &j->by_uid, j->uid);
    HASH_ADD_KEYPTR(hh_id, c->jobs_by_id, j->job_id, strlen(j->job_id), j);
    in->oom |= !j->hh_id.tbl;
    fleet_touch_job(in, j);
    return j;
}

static struct attempt *attempt_add(struct intents *in, struct job *j, bool unseen)
{
    struct attempt **v = realloc(j->attempts, (j->n_attempts + 1) * sizeof(*v)), *a;

    if (!v) {
        in->oom = true;
        return NULL;
    }
    j->attempts = v;
    a = calloc(1, sizeof(*a));
    if (!a) {
        in->oom = true;
        return NULL;
    }
    a->job = j;
    a->index = j->first_index + j->n_attempts;
    a->unseen = unseen;
    v[j->n_attempts++] = a;
    j->cluster->n_attempts++;
    fleet_touch_attempt(in, a);
    return a;
}

/* A newer attempt exists: what was open about @a ends here. */
static void attempt_superseded(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev)
{
    struct advice *ad = a->advice;

    fleet_judge_unlink(f, a);
    if (a->unseen)
        return;
    if (!job_state_terminal(a->state)) {
        a->state = JOB_REQUEUED;
        (void) str_set(in, &a->state_raw, "REQUEUED");
        if (!a->ms.end_observed_us)
            a->ms.end_observed_us = ev->now_us;
        fleet_touch_attempt(in, a);
    }
    fleet_pulse_state(f, in, a, ev);
    fleet_withdraw_all(in, a, ev, "a newer attempt took its place");
    if (ad && ad->disposition == DISPOSITION_PENDING && ad->actionability != ACTION_ACTIONABLE) {
        ad->disposition = DISPOSITION_SUPERSEDED;
        ad->disposition_reason = REASON_ATTEMPT_SUPERSEDED;
        ad->status_us = ev->now_us;
        fleet_touch_advice(in, ad);
    }
}

static void job_take_detail(struct fleet *f, struct intents *in, struct job *j, const struct job_obs *o, const struct event *ev)
{
    struct attempt *a = fleet_last_attempt(j);
    struct adv_jobcomment opts;
    char why[120];

    (void) str_set(in, &j->display_name, o->name);
    (void) str_set(in, &j->stdout_path, o->stdout_path);
    (void) str_set(in, &j->excluded_nodes, o->excluded_nodes);
    (void) str_set(in, &j->required_nodes, o->required_nodes);
    if (!str_set(in, &j->comment, o->comment))
        return;
    adv_jobcomment_parse(j->comment, &opts);
    if (opts.progress[0] && !opts.error[0] && f->cfg.progress_check && !f->cfg.progress_check(opts.progress, why, sizeof(why))) {
        (void) snprintf(opts.error, sizeof(opts.error), "comment: advisor.progress: %s", why);
        if (opts.mode != ADV_JOBCOMMENT_OFF)
            opts.mode = ADV_JOBCOMMENT_UNSET; /* half understood is not consent */
    }
    (void) str_set(in, &j->progress, opts.error[0] ? NULL : opts.progress);
    j->opt_mode = (enum adv_mode) opts.mode;
    j->max_restarts = opts.max_restarts;
    j->make_requeueable = (enum make_requeueable) opts.make_requeueable;
    (void) str_set(in, &j->policy, opts.policy);
    fleet_set_workflow(f, in, j, opts.workflow);
    (void) str_set(in, &j->comment_error, opts.error);
    if (a && a->advice)
        fleet_advice_lower(in, a->advice, ev);
}

static void apply_attempt(struct fleet *f, struct intents *in, struct job *j, const struct job_obs *o,
                          const struct event *ev)
{
    struct attempt *a, *prev = fleet_last_attempt(j);
    enum job_state was;
    bool fresh = false, ch = false;

    if (!j->n_attempts)
        j->first_index = o->restart_count; /* attempts that nobody saw are a number, not records */
    if (o->restart_count < j->first_index)
        return; /* a count that fell: not this job's, whatever it says */
    if (!job_attempt(j, o->restart_count)) {
        if (prev && !attempt_kept_by(prev, o->restart_count, o->state, o->held))
            attempt_superseded(f, in, prev, ev);
        while (!in->oom && !job_attempt(j, o->restart_count))
            (void) attempt_add(in, j, j->first_index + j->n_attempts < o->restart_count);
        fresh = true;
    }
    a = job_attempt(j, o->restart_count);
    if (in->oom || !a)
        return;
    was = a->state;
    if (a->submit_unix != o->submit_unix) {
        a->submit_unix = o->submit_unix;
        ch = true;
    }
    if (a->state != o->state) {
        a->state = o->state;
        ch = true;
    }
    ch |= str_set(in, &a->state_raw, o->state_raw);
    if (o->nodes && *o->nodes && str_set(in, &a->nodes, o->nodes)) {
        ch = true;
        fleet_attribute(in, a);
    }
    if (a->start_unix != o->start_unix && o->state != JOB_PENDING) {
        a->start_unix = o->start_unix;
        ch = true;
    }
    if (job_state_terminal(o->state) &&
        (a->end_unix != o->end_unix || a->exit_code != o->exit_code || a->exit_signal != o->exit_signal)) {
        a->end_unix = o->end_unix;
        a->exit_code = o->exit_code;
        a->exit_signal = o->exit_signal;
        ch = true;
    }
    if (ch)
        fleet_touch_attempt(in, a);
    if (a->state != was)
        fleet_pulse_state(f, in, a, ev);
    prev = attempt_prev(a);
    if (prev && !fresh && prev->advice && (prev->advice->desired == DESIRED_PRESERVED || prev->advice->preserve) &&
        !attempt_kept(prev))
        attempt_superseded(f, in, prev, ev); /* it was kept, and is no longer */
    if (job_state_running(a->state) && prev && !prev->unseen && !prev->ms.successor_started_us) {
        prev->ms.successor_started_us = ev->now_us;
        fleet_touch_attempt(in, prev);
    }
    fleet_want_requeueable(f, in, a, ev);
    if (!job_state_terminal(a->state) || job_state_terminal(was))
        return;
    a->ms.end_observed_us = ev->now_us;
    if (a->state == JOB_COMPLETED)
        for (uint32_t i = 0; i < j->n_attempts; i++)
            if (!j->attempts[i]->ms.job_completed_us && !j->attempts[i]->unseen) {
                j->attempts[i]->ms.job_completed_us = ev->now_us;
                fleet_touch_attempt(in, j->attempts[i]);
            }
    if (fresh && a->end_unix && ev->now_us / 1000000 - a->end_unix > STALE_END_S) {
        a->history = true;
        fleet_touch_attempt(in, a);
        return;
    }
    fleet_judge_at(f, a, ev->now_us + f->cfg.policy.log_settle_us);
}

static void apply_job(struct fleet *f, struct intents *in, struct cluster *c, const struct job_obs *o,
                      const struct event *ev)
{
    struct job *j = fleet_find_job(c, o->job_id);
    struct attempt *a;
    bool back;

    if (j && !same_submission(j, o)) {
        HASH_DELETE(hh_id, c->jobs_by_id, j);
        job_gone(f, in, j);
        j = NULL;
    }
    if (!j && !(j = job_new(f, in, c, o, ev)))
        return;
    if (o->detail_known)
        job_take_detail(f, in, j, o, ev);
    (void) str_set(in, &j->user, o->user);
    (void) str_set(in, &j->account, o->account);
    (void) str_set(in, &j->partition, o->partition);
    (void) str_set(in, &j->qos, o->qos);
    (void) str_set(in, &j->reason, o->reason);
    j->uid_number = o->uid;
    j->submit_unix = o->submit_unix;
    j->batch = o->batch;
    j->requeueable = o->requeueable;
    j->held = o->held;
    back = j->gone;
    j->gone = false;
    if (o->num_nodes)
        j->num_nodes = o->num_nodes;
    if (!j->incarnation_unix)
        j->incarnation_unix = incarnation_of(o);
    fleet_job_set_hash(c, j, true, o->hash);
    j->seen_in_full = true;
    apply_attempt(f, in, j, o, ev);
    if (back && (a = fleet_last_attempt(j)) && job_state_running(a->state))
        fleet_pulse_look(f, in, a, ev); /* nobody listened while it was gone, and from now on somebody does */
    fleet_recount(j);
    fleet_touch_job(in, j); /* the agent sends only what changed */
}

/* Nothing is made from it: who the job was has to be known, and that its end was not seen. */
static void apply_end(struct fleet *f, struct intents *in, struct cluster *c, const struct job_end *e, const struct event *ev)
{
    struct job *j = fleet_find_job(c, e->job_id);
    struct attempt *a = j ? fleet_last_attempt(j) : NULL;
    struct job_obs o = {
        .job_id = e->job_id,
        .state = e->state,
        .state_raw = e->state_raw,
        .restart_count = e->restart_count,
        .exit_code = e->exit_code,
        .exit_signal = e->exit_signal,
        .submit_unix = e->submit_unix,
        .end_unix = e->end_unix,
        .nodes = e->nodes,
    };

    if (a && a->index == e->restart_count && a->submit_unix == e->submit_unix && a->state == JOB_CANCELLED &&
        e->state == JOB_CANCELLED && e->cancelled_by && !a->cancelled_by) {
        a->cancelled_by = e->cancelled_by;
        fleet_touch_attempt(in, a);
        if (a->advice && a->advice->desired == DESIRED_NO_ACTION)
            fleet_decide_and_put(f, in, a, ev); /* it says by whom now */
        return;
    }
    if (!a || a->index != e->restart_count || a->submit_unix != e->submit_unix || job_state_terminal(a->state) ||
        !job_state_terminal(e->state) || j->present)
        return;
    o.start_unix = e->start_unix ? e->start_unix : a->start_unix;
    if (e->state == JOB_CANCELLED)
        a->cancelled_by = e->cancelled_by;
    apply_attempt(f, in, j, &o, ev);
    fleet_recount(j);
    fleet_touch_job(in, j);
}

static void apply_node(struct intents *in, struct cluster *c, const struct node_obs *o)
{
    struct node *n = NULL;
    bool changed;

    HASH_FIND_STR(c->nodes, o->name, n);
    changed = !n || n->hash != o->hash;
    if (!n) {
        n = calloc(1, sizeof(*n));
        if (!n || !(n->name = strdup(o->name))) {
            in->oom = true;
            node_free(n);
            return;
        }
        n->cluster = c;
        HASH_ADD_KEYPTR(hh, c->nodes, n->name, strlen(n->name), n);
        if (!n->hh.tbl) {
            in->oom = true;
            node_free(n);
            return;
        }
        order_add(&c->nodes_in_order, &n->by_name, n->name);
    } else {
        c->digest ^= n->hash;
    }
    n->hash = o->hash;
    c->digest ^= n->hash;
    n->available = o->available;
    n->seen_in_full = true;
    (void) str_set(in, &n->state_raw, o->state_raw);
    (void) str_set(in, &n->reason, o->reason);
    if (changed)
        fleet_touch(in, RESOURCE_NODE, n, c);
}

static void node_gone(struct intents *in, struct cluster *c, struct node *n)
{
    fleet_touch_gone(in, RESOURCE_NODE, n, c);
    c->digest ^= n->hash;
    HASH_DEL(c->nodes, n);
    order_remove(&c->nodes_in_order, &n->by_name);
    node_free(n);
}

static void full_begin(struct cluster *c)
{
    struct job *j;
    struct node *n;

    c->in_full = true;
    for (j = c->jobs_by_id; j; j = j->hh_id.next)
        j->seen_in_full = false;
    for (n = c->nodes; n; n = n->hh.next)
        n->seen_in_full = false;
}

static void full_end(struct fleet *f, struct intents *in, struct cluster *c)
{
    struct job *j;
    struct node *n, *n_next;

    c->in_full = false;
    for (j = c->jobs_by_id; j; j = j->hh_id.next)
        if (!j->seen_in_full && !j->gone)
            job_gone(f, in, j);
    HASH_ITER(hh, c->nodes, n, n_next)
        if (!n->seen_in_full)
            node_gone(in, c, n);
}

/* How many of @ev's jobs would be live that are not now. */
static size_t newly_live(const struct cluster *c, const struct event *ev)
{
    size_t n = 0;

    for (size_t i = 0; i < ev->u.state.n_jobs; i++) {
        const struct job *j = fleet_find_job(c, ev->u.state.jobs[i].job_id);
        n += !j || j->gone; /* one that takes the id of a live one takes its place, too */
    }
    return n;
}

static size_t newly_known_nodes(const struct cluster *c, const struct event *ev)
{
    size_t n = 0;

    for (size_t i = 0; i < ev->u.state.n_nodes; i++) {
        const char *name = ev->u.state.nodes[i].name;
        struct node *known = NULL;
        if (name)
            HASH_FIND_STR(c->nodes, name, known);
        n += !known;
    }
    return n;
}

/* Of jobs that are not gone; looked at only when there are many. */
static size_t live_attempts(const struct cluster *c)
{
    size_t n = 0;

    if (c->n_attempts < CLUSTER_MAX_ATTEMPTS / 2)
        return c->n_attempts;
    for (const struct job *j = c->jobs_by_id; j; j = j->hh_id.next)
        n += j->gone ? 0 : j->n_attempts;
    return n;
}

static uint32_t max_jobs(const struct fleet *f)
{
    return f->cfg.max_jobs ? f->cfg.max_jobs : CLUSTER_MAX_JOBS;
}

static bool too_many_kept(const struct fleet *f, const struct cluster *c, size_t ahead)
{
    return HASH_CNT(hh_uid, c->jobs_by_uid) + ahead > max_jobs(f) || c->n_attempts + ahead > CLUSTER_MAX_ATTEMPTS;
}

/* What is past must not keep out what is: the oldest of it goes before its time. */
static void drop_oldest(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev)
{
    size_t ahead = max_jobs(f) > 10 * DROP_AHEAD ? DROP_AHEAD : 0;
    struct order_node *n = order_after(&c->jobs_in_order, "");
    char name[RESOURCE_NAME_MAX], uid[64];
    uint32_t dropped = 0;

    if (!too_many_kept(f, c, 0))
        return;
    for (; n && !in->oom && too_many_kept(f, c, ahead); n = order_after(&c->jobs_in_order, uid)) {
        struct job *j = ADV_CONTAINER_OF(n, struct job, by_uid);
        (void) snprintf(uid, sizeof(uid), "%s", j->uid);
        if (!j->gone)
            continue;
        fleet_drop_job(f, in, j);
        dropped++;
    }
    if (dropped)
        fleet_audit(in, c, ev, 0, "jobs.dropped", cluster_resource_name(c, name),
                    "%u past jobs went before their time, the oldest: at most %u jobs and %d attempts are kept", dropped,
                    max_jobs(f), CLUSTER_MAX_ATTEMPTS);
}

void fleet_set_agent_state(struct intents *in, struct cluster *c, enum agent_state s, const struct event *ev)
{
    if (c->agent_state == s)
        return;
    c->agent_state = s;
    c->agent_state_us = ev->now_us;
    c->listen_us = ev->mono_us;
    fleet_touch_cluster(in, c);
}

void fleet_agent_back(struct fleet *f, struct cluster *c, const struct event *ev)
{
    struct attempt *a;

    DL_FOREACH2 (c->judged, a, judge_next)
        fleet_judge_by(f, a, ev->now_us);
}

int fleet_apply_state(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err)
{
    if (!adv_streq(str_or(c->holder_instance), str_or(ev->u.state.instance_id)))
        return adv_err_set_reason(err, ADV_FAILED_PRECONDITION, "NOT_LEASE_HOLDER",
                                  "cluster %s: another agent holds the lease", c->name);
    for (size_t i = 0; i < ev->u.state.n_jobs; i++) {
        const struct job_obs *o = &ev->u.state.jobs[i];
        const struct job *known = fleet_find_job(c, o->job_id);
        const struct attempt *newest = known ? fleet_last_attempt(known) : NULL;
        if (newest && o->restart_count > newest->index + ATTEMPT_MAX_GAP) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "OBSERVATION_MALFORMED",
                                      "job %.40s: restart count %u after %u: expected at most %d more", o->job_id,
                                      o->restart_count, newest->index, ATTEMPT_MAX_GAP);
            return adv_err_field(err, "state_update.jobs[%zu].restart_count", i);
        }
        if (!sched_job_id_valid(o->job_id) || o->restart_count > MAX_RESTART_COUNT || o->state > JOB_STATE_LAST_ ||
            o->submit_unix < 0) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "OBSERVATION_MALFORMED",
                                      "job \"%.40s\": expected an id like 123, 46_5 or 56+1, a known state, a submit "
                                      "time and a restart count up to %d",
                                      str_or(o->job_id), MAX_RESTART_COUNT);
            return adv_err_field(err, "state_update.jobs[%zu]", i);
        }
    }
    if (c->n_jobs + newly_live(c, ev) > max_jobs(f) ||
        HASH_COUNT(c->nodes) + newly_known_nodes(c, ev) > CLUSTER_MAX_NODES ||
        live_attempts(c) + ev->u.state.n_jobs > CLUSTER_MAX_ATTEMPTS)
        return adv_err_set_reason(err, ADV_RESOURCE_EXHAUSTED, "CLUSTER_TOO_LARGE",
                                  "cluster %s: expected at most %u live jobs, %d nodes and %d attempts of live jobs", c->name,
                                  max_jobs(f), CLUSTER_MAX_NODES, CLUSTER_MAX_ATTEMPTS);
    for (size_t i = 0; i < ev->u.state.n_ended; i++)
        if (!sched_job_id_valid(ev->u.state.ended[i].job_id) || ev->u.state.ended[i].state > JOB_STATE_LAST_) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "OBSERVATION_MALFORMED",
                                      "the end of job \"%.40s\": expected an id like 123, 46_5 or 56+1, and a known state",
                                      str_or(ev->u.state.ended[i].job_id));
            return adv_err_field(err, "state_update.ended[%zu]", i);
        }
    for (size_t i = 0; i < ev->u.state.n_nodes; i++)
        if (!ev->u.state.nodes[i].name || !*ev->u.state.nodes[i].name) {
            (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "OBSERVATION_MALFORMED", "a node without a name");
            return adv_err_field(err, "state_update.nodes[%zu].name", i);
        }
    if (ev->u.state.full_begin)
        full_begin(c);
    for (size_t i = 0; i < ev->u.state.n_nodes && !in->oom; i++)
        apply_node(in, c, &ev->u.state.nodes[i]);
    for (size_t i = 0; i < ev->u.state.n_jobs && !in->oom; i++)
        apply_job(f, in, c, &ev->u.state.jobs[i], ev);
    for (size_t i = 0; i < ev->u.state.n_gone_jobs && !in->oom; i++) {
        struct job *j = fleet_find_job(c, ev->u.state.gone_jobs[i]);
        if (j)
            job_gone(f, in, j);
    }
    for (size_t i = 0; i < ev->u.state.n_gone_nodes && !in->oom; i++) {
        struct node *n = NULL;
        HASH_FIND_STR(c->nodes, ev->u.state.gone_nodes[i], n);
        if (n)
            node_gone(in, c, n);
    }
    if (ev->u.state.full_end)
        full_end(f, in, c);
    for (size_t i = 0; i < ev->u.state.n_ended && !in->oom; i++)
        apply_end(f, in, c, &ev->u.state.ended[i], ev);
    drop_oldest(f, in, c, ev);
    c->observe_us = ev->u.state.observe_us;
    if (!c->in_full) {
        bool ok = c->digest == ev->u.state.digest, back = ok && c->agent_state != AGENT_CONNECTED;
        ev->u.state.ret_resync = !ok;
        c->digest_ok = ok;
        fleet_set_agent_state(in, c, ok ? AGENT_CONNECTED : AGENT_RESYNCING, ev);
        if (back)
            fleet_agent_back(f, c, ev);
    }
    return 0;
}
