/* SPDX-License-Identifier: Apache-2.0 */

/* One tick each TICK_MS looks what is due: a describe until one has succeeded, the poll of all jobs,
 * of the nodes, the looks at jobs in focus, the orders, the ceiling. Everything else is an answer of
 * the adapter or of the control plane. No dial before the first describe, so that Hello is true. */

#include "advisor-agent/internal.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor-agent/pki.h"
#include "common/clock.h"
#include "common/log.h"

#define TICK_MS           50
#define INSPECTS_MAX      2
#define FOCUS_PARALLEL    2
#define FOCUS_BULK        4       /* more jobs than this in focus are looked at together */
#define FOCUS_POLL_US     1000000 /* and not more often than this */
#define DESCRIBE_RETRY_US 5000000
#define GIVE_UP_MS        300000

/* Helpers */

advisor_v1_Epoch agent_epoch_msg(struct journal_epoch e)
{
    return (advisor_v1_Epoch) { e.term, e.counter };
}

advisor_v1_Verb agent_verb_msg(enum adapter_verb v)
{
    static const advisor_v1_Verb map[ADAPTER_VERB_MAX_] = {
        [ADAPTER_VERB_PRESERVE] = advisor_v1_Verb_VERB_PRESERVE,
        [ADAPTER_VERB_INTERRUPT] = advisor_v1_Verb_VERB_INTERRUPT,
        [ADAPTER_VERB_MAKE_REQUEUEABLE] = advisor_v1_Verb_VERB_MAKE_REQUEUEABLE,
        [ADAPTER_VERB_CONSTRAIN] = advisor_v1_Verb_VERB_CONSTRAIN,
        [ADAPTER_VERB_RELEASE] = advisor_v1_Verb_VERB_RELEASE,
        [ADAPTER_VERB_CANCEL] = advisor_v1_Verb_VERB_CANCEL,
        [ADAPTER_VERB_REARM_CHILD] = advisor_v1_Verb_VERB_REARM_CHILD,
    };
    return map[v];
}

static advisor_v1_Verb verb_of_name(const char *name)
{
    for (int v = 0; v < ADAPTER_VERB_MAX_; v++)
        if (strcmp(adapter_verb_name((enum adapter_verb) v), name) == 0)
            return agent_verb_msg((enum adapter_verb) v);
    if (strcmp(name, "protect_child") == 0)
        return advisor_v1_Verb_VERB_PROTECT_CHILD;
    return advisor_v1_Verb_VERB_UNSPECIFIED;
}

static advisor_v1_Ceiling *ceiling_message(struct agent *a)
{
    static const advisor_v1_Mode modes[] = {
        [CEILING_OFF] = advisor_v1_Mode_MODE_OFF,
        [CEILING_OBSERVE] = advisor_v1_Mode_MODE_OBSERVE,
        [CEILING_APPROVE] = advisor_v1_Mode_MODE_APPROVE,
        [CEILING_ACT] = advisor_v1_Mode_MODE_ACT,
    };
    const char *const *names;
    struct adv_err err;
    size_t n = ceiling_verbs(a->ceiling, &names);
    enum ceiling_mode mode = ceiling_mode(a->ceiling);

    (void) snprintf(a->ceiling_reason, sizeof(a->ceiling_reason), "%s", ceiling_reason(a->ceiling));
    if (mode > CEILING_OBSERVE && journal_may_act(a->journal, &err) < 0) {
        mode = CEILING_OBSERVE;
        (void) snprintf(a->ceiling_reason, sizeof(a->ceiling_reason), "%s", err.msg);
    }
    a->ceiling_msg = (advisor_v1_Ceiling) { .mode = modes[mode], .verbs = a->ceiling_verbs,
                                            .preserve_in_approve = ceiling_preserves_in_approve(a->ceiling) };
    for (size_t i = 0; i < n && i < ADV_ARRAY_LEN(a->ceiling_verbs); i++)
        a->ceiling_verbs[a->ceiling_msg.verbs_count++] = verb_of_name(names[i]);
    if (a->ceiling_reason[0])
        a->ceiling_msg.reason = a->ceiling_reason;
    return &a->ceiling_msg;
}

/* Says whether it differs from what the control plane was told last, and counts it as told. */
static bool ceiling_news(struct agent *a)
{
    char key[sizeof(a->ceiling_told)];
    int n = snprintf(key, sizeof(key), "%d %d %s", a->ceiling_msg.mode, a->ceiling_msg.preserve_in_approve,
                     a->ceiling_reason);

    for (pb_size_t i = 0; i < a->ceiling_msg.verbs_count && n > 0 && (size_t) n < sizeof(key); i++)
        n += snprintf(key + n, sizeof(key) - (size_t) n, " %d", a->ceiling_verbs[i]);
    if (strcmp(key, a->ceiling_told) == 0)
        return false;
    memcpy(a->ceiling_told, key, sizeof(key));
    return true;
}

/* The control plane */

static void op_hello(void *ctx, advisor_v1_Hello *h)
{
    static char version[] = ADVISOR_VERSION;
    static char api[] = "advisor.v1";
    struct agent *a = ctx;
    const struct journal_step *s;
    size_t pos = 0;

    a->strings[0] = api;
    h->cluster = a->cfg->cluster;
    h->agent_version = version;
    h->api_versions_count = 1;
    h->api_versions = a->strings;
    h->instance_id = a->instance;
    h->journal_id = (char *) (uintptr_t) journal_id(a->journal);
    h->journal_persistent = journal_persistent(a->journal);
    a->highest_msg = agent_epoch_msg(journal_highest_epoch(a->journal));
    if (a->highest_msg.term || a->highest_msg.counter)
        h->highest_epoch = &a->highest_msg;
    if (a->resumable) {
        a->resume_msg = (advisor_v1_Resume) { true, agent_epoch_msg(a->lease.epoch),
                                              snapshot_digest(a->snapshot) };
        h->resume = &a->resume_msg;
    }
    h->scheduler = a->scheduler;
    h->forget_after_s = a->forget_after_s > 0 && a->forget_after_s < UINT32_MAX ? (uint32_t) a->forget_after_s : 0;
    h->verbs_count = (pb_size_t) a->n_verbs;
    h->verbs = a->verbs;
    (void) ceiling_refresh(a->ceiling);
    h->ceiling = ceiling_message(a);
    (void) ceiling_news(a);
    /* As the options of the proto files have it: the arrays of the messages that are decoded. */
    static advisor_v1_Limits limits = {
        .message_bytes = SESSION_MESSAGE_BYTES,
        .orders = ADV_ARRAY_LEN(((advisor_v1_AdviceBatch *) NULL)->advice),
        .focus_jobs = ADV_ARRAY_LEN(((advisor_v1_Focus *) NULL)->job_ids),
        .open_intents = ADV_ARRAY_LEN(((advisor_v1_LeaseGrant *) NULL)->open_intents),
        .exclude_nodes_bytes = sizeof(((advisor_v1_AdviceOrder *) NULL)->exclude_nodes) - 1,
    };
    h->limits = &limits;
    while ((s = journal_next_open(a->journal, &pos)) && h->open_intents_count < INTENTS_MAX) {
        advisor_v1_OpenIntent *o = &a->intents_msg[h->open_intents_count++];
        *o = (advisor_v1_OpenIntent) { .journal_seq = s->seq, .has_epoch = true,
                                       .epoch = agent_epoch_msg(s->intent.epoch),
                                       .generation = s->intent.generation,
                                       .restart_count = s->intent.restarts,
                                       .verb = verb_of_name(s->intent.verb) };
        (void) snprintf(o->advice, sizeof(o->advice), "%s", s->intent.advice);
        (void) snprintf(o->job_id, sizeof(o->job_id), "%s", s->intent.job);
    }
    h->open_intents = a->intents_msg;
}

static void op_heartbeat(void *ctx, advisor_v1_Heartbeat *h)
{
    struct agent *a = ctx;

    if (a->lease.held) {
        h->has_epoch = true;
        h->epoch = agent_epoch_msg(a->lease.epoch);
    }
    h->cluster_mode = a->cluster_mode;
    h->write_in_flight = orders_writing(a);
    const advisor_v1_Ceiling *c = ceiling_message(a);
    if (ceiling_news(a)) {
        h->has_ceiling = true;
        h->ceiling = *c;
    }
    h->observation_age_ms = agent_unseen_ms(a->good_read_us, adv_mono_us(), a->cfg->poll_ms);
}

/* Returns false if the epoch could not be made durable: then the lease is not taken, and the session is
 * given up, so that a standby, whose journal may be in better health, gets it. */
static bool take_grant(struct agent *a, const advisor_v1_LeaseGrant *g, int64_t sent_boot_us)
{
    struct journal_epoch e = { g->epoch.term, g->epoch.counter };
    struct adv_err err;
    size_t pos = 0;
    bool own_open = journal_next_open(a->journal, &pos) != NULL || orders_watchdog_at_work(a);

    if (!g->has_epoch)
        return false;
    a->standing_by = false;
    if (journal_note_epoch(a->journal, e, &err) < 0) {
        adv_error("agent", "the lease is not taken, the epoch cannot be journalled; staying away for a while",
                  ADV_FS("why", err.msg));
        lease_drop(&a->lease);
        session_give_up(a->session, "the epoch cannot be journalled", GIVE_UP_MS);
        return false;
    }
    bool fresh = !a->lease.held || journal_epoch_cmp(e, a->lease.epoch) != 0;
    lease_grant(&a->lease, e, g->lease_ms, sent_boot_us, adv_boot_us(),
                g->settle || (fresh && (g->open_intents_count > 0 || own_open)));
    if (fresh)
        adv_info("agent", "lease granted", ADV_FU("term", e.term), ADV_FU("counter", e.counter),
                 ADV_FI("lease_ms", g->lease_ms), ADV_FI("settle", a->lease.settling));
    return true;
}

void agent_look_at_ceiling(struct agent *a)
{
    if (!ceiling_refresh(a->ceiling))
        return;
    a->ceiling_changed = true;
    adv_info("agent", "the site's ceiling has changed",
             ADV_FS("mode", ceiling_mode_name(ceiling_mode(a->ceiling))),
             ADV_FS("reason", ceiling_reason(a->ceiling)));
}

static void take_mode(struct agent *a, advisor_v1_Mode mode)
{
    if (mode != a->cluster_mode) {
        adv_info("agent", "cluster mode", ADV_FI("from", a->cluster_mode), ADV_FI("to", mode));
        a->next_holds_us = 0; /* written down before anything follows from it */
    }
    a->cluster_mode = mode;
}

/* The control plane may know nothing: of no job, and of no log. */
static void send_all(struct agent *a)
{
    snapshot_restart(a->snapshot);
    logs_tell_again(a);
}

static void op_welcome(void *ctx, const advisor_v1_Welcome *w, int64_t sent_boot_us)
{
    struct agent *a = ctx;

    a->session_up_us = adv_mono_us();
    take_mode(a, w->cluster_mode);
    a->standing_by = !w->has_grant;
    if (w->has_grant && !take_grant(a, &w->grant, sent_boot_us))
        return;
    if (!w->has_grant)
        adv_info("agent", "standing by", ADV_FS("holder", w->lease_holder));
    if (w->send_snapshot)
        send_all(a);
    snapshot_ends_again(a->snapshot);
    a->resumable = false;
    a->next_poll_us = 0;
    (void) malloc_trim(0); /* what the handshake needed for a moment */
    if (w->has_grant && !a->reported_again) {
        a->reported_again = true;
        orders_report_again(a);
    }
}

static void op_heartbeat_ack(void *ctx, const advisor_v1_HeartbeatAck *m, int64_t sent_boot_us)
{
    struct agent *a = ctx;

    bool another_mode = m->cluster_mode != a->cluster_mode;
    take_mode(a, m->cluster_mode);
    a->standing_by = !m->has_grant;
    if (another_mode) /* says from when on it is obeyed */
        session_heartbeat_now(a->session);
    logs_acked(a);
    if (m->has_grant && !a->lease.held)
        a->ceiling_told[0] = '\0'; /* as a standby it was not the cluster's ceiling */
    if (m->has_grant)
        (void) take_grant(a, &m->grant, sent_boot_us);
    else
        lease_drop(&a->lease);
}

static void op_order(void *ctx, const advisor_v1_AdviceOrder *o)
{
    orders_take(ctx, o);
}

static void op_pulled(void *ctx)
{
    ((struct agent *) ctx)->orders_known = true;
}

static void op_focus(void *ctx, const advisor_v1_Focus *f)
{
    struct agent *a = ctx;

    struct focus old[FOCUS_MAX];
    size_t n_old = a->n_focus;

    memcpy(old, a->focus, sizeof(old));
    a->n_focus = 0;
    for (pb_size_t i = 0; i < f->job_ids_count && a->n_focus < FOCUS_MAX; i++) {
        struct focus *to = &a->focus[a->n_focus++];
        (void) snprintf(to->id, sizeof(to->id), "%s", f->job_ids[i]);
        to->busy = false;
        to->since_us = adv_mono_us();
        to->due_us = 0;
        for (size_t k = 0; k < n_old; k++) /* a look under way goes on */
            if (strcmp(old[k].id, to->id) == 0)
                *to = old[k];
    }
    a->focus_until_us = adv_mono_us() + (int64_t) f->for_ms * 1000;
}

static void op_resync(void *ctx, const char *reason)
{
    struct agent *a = ctx;

    adv_info("agent", "a full snapshot is asked for", ADV_FS("why", reason));
    send_all(a);
    a->next_poll_us = 0;
}

static void op_lost(void *ctx, const char *why)
{
    struct agent *a = ctx;

    /* The lease stays until its end; but a new session must confirm each order first. */
    a->orders_known = false;
    a->session_up_us = 0;
    a->resumable = a->lease.held && !snapshot_pending(a->snapshot) && snapshot_digest(a->snapshot) != 0;
    orders_session_lost(a);
}

static bool op_take_state(void *ctx, size_t budget, advisor_v1_StateUpdate *ret)
{
    struct agent *a = ctx;

    return a->lease.held && snapshot_take(a->snapshot, budget, ret);
}

static void op_logs_ready(void *ctx)
{
    logs_ready(ctx);
}

static void op_logs_opened(void *ctx)
{
    logs_opened(ctx);
}

static const struct session_ops session_ops = {
    .hello = op_hello,
    .heartbeat = op_heartbeat,
    .welcome = op_welcome,
    .heartbeat_ack = op_heartbeat_ack,
    .order = op_order,
    .pulled = op_pulled,
    .focus = op_focus,
    .resync = op_resync,
    .lost = op_lost,
    .take_state = op_take_state,
    .logs_ready = op_logs_ready,
    .logs_opened = op_logs_opened,
};

/* The scheduler */

static int64_t first_submit(void *ctx, const struct adapter_job *job)
{
    return agent_first_submit(ctx, job);
}

static void changed(struct agent *a)
{
    logs_update(a);
    if (a->session)
        session_state_changed(a->session);
}

void agent_job_read(struct agent *a, const struct adapter_job_detail *d)
{
    const advisor_v1_JobObservation *o = snapshot_find(a->snapshot, d->job.id);
    uint64_t before = o ? o->hash : 0;
    bool was_known = o && o->detail_known;
    struct adv_err err;

    if (snapshot_detail(a->snapshot, d, &err) < 0) {
        adv_warn("agent", "a job is left out until the next look", ADV_FS("why", err.msg));
        return;
    }
    o = snapshot_find(a->snapshot, d->job.id);
    if (o && o->hash != before) {
        for (size_t i = 0; i < a->n_focus; i++)
            if (strcmp(a->focus[i].id, d->job.id) == 0)
                a->focus[i].since_us = adv_mono_us(); /* something happens: look closely again */
        orders_wake(a, d->job.id);
        changed(a);
    }
    if (o && d->job.state == ADAPTER_JOB_CANCELLED && !d->job.completing && (o->hash != before || !was_known))
        past_cancelled(a, &d->job);
}

void agent_job_gone(struct agent *a, const char *id)
{
    char copy[JOURNAL_JOB_SIZE];
    const advisor_v1_JobObservation *o = snapshot_find(a->snapshot, id);
    const struct journal_life *l;

    (void) snprintf(copy, sizeof(copy), "%s", id); /* may belong to the record that goes */
    if (o)
        past_vanished(a, o);
    else if ((l = journal_life(a->journal, copy))) /* looked at before the first poll */
        past_unseen(a, copy, l);
    snapshot_gone(a->snapshot, copy);
    journal_forget_job(a->journal, copy);
    orders_wake(a, copy);
    changed(a);
}

struct look {
    struct agent *a;
    char id[JOURNAL_JOB_SIZE];
    bool focus;
};

static void start_inspects(struct agent *a);

static void on_look(void *arg, enum adapter_found found, struct adapter_job_detail *d,
                    const struct adv_err *err)
{
    struct look *l = arg;
    struct agent *a = l->a;

    if (l->focus) {
        a->focus_looks--;
        for (size_t i = 0; i < a->n_focus; i++)
            if (strcmp(a->focus[i].id, l->id) == 0)
                a->focus[i].busy = false;
    } else {
        a->inspecting--;
    }
    if (!a->closing) {
        if (found == ADAPTER_FOUND)
            agent_job_read(a, d);
        else if (found == ADAPTER_FOUND_GONE)
            agent_job_gone(a, l->id);
        if (!l->focus)
            start_inspects(a);
    }
    (void) adapter_job_detail_free(d);
    free(l);
}

static bool look(struct agent *a, const char *id, bool focus)
{
    struct look *l = calloc(1, sizeof(*l));

    if (!l)
        return false;
    l->a = a;
    l->focus = focus;
    (void) snprintf(l->id, sizeof(l->id), "%s", id);
    a->adapter->ops->inspect(a->adapter, l->id, on_look, l);
    return true;
}

static void start_inspects(struct agent *a)
{
    while (a->inspecting < INSPECTS_MAX) {
        const char *id = snapshot_next_missing(a->snapshot);
        if (!id)
            id = snapshot_next_detail(a->snapshot);
        if (!id || !look(a, id, false))
            return;
        a->inspecting++;
    }
}

static bool there(void *ctx, const char *job)
{
    struct agent *a = ctx;
    const struct journal_life *l;

    if (snapshot_find(a->snapshot, job))
        return true;
    if ((l = journal_life(a->journal, job)))
        past_unseen(a, job, l);
    return false;
}

static void on_observed(void *arg, struct adapter_observation *o)
{
    static struct adv_ratelimit limit;
    struct agent *a = arg;
    struct adv_err err;

    a->observing = false;
    if (!a->closing && o->complete) {
        journal_batch_begin(a->journal);
        a->look_boot_us = a->observe_began_boot_us;
        a->look_wall_us = a->observe_began_wall_us;
        if (snapshot_observe(a->snapshot, o, &err) < 0) {
            adv_warn("agent", "jobs are left out until the next look", ADV_FS("why", err.msg));
        } else if (!a->gone_forgotten) {
            a->gone_forgotten = true;
            journal_forget_unless(a->journal, there, a);
        }
        if (journal_batch_commit(a->journal, &err) < 0)
            adv_warn("agent", "first submit times are not durable yet", ADV_FS("why", err.msg));
        a->good_read_us = a->observe_began_us;
        lease_good_read(&a->lease, a->observe_began_boot_us, a->bound_ms);
        start_inspects(a);
        changed(a);
    } else if (!a->closing && adv_log_ratelimit(&limit, 1)) {
        adv_warn("agent", "the scheduler cannot be read completely, nothing is concluded",
                 ADV_FS("reason", o->unknown_reason), ADV_FS("why", o->err.msg));
    }
    (void) adapter_observation_free(o);
}

static void on_nodes(void *arg, struct adapter_node_list *l)
{
    struct agent *a = arg;
    struct adv_err err;

    a->reading_nodes = false;
    if (!a->closing && l->complete) {
        if (snapshot_nodes(a->snapshot, l, &err) < 0)
            adv_warn("agent", "nodes are left out until the next look", ADV_FS("why", err.msg));
        changed(a);
    }
    (void) adapter_node_list_free(l);
}

static void dial(struct agent *a)
{
    const struct agent_config *c = a->cfg;
    struct wire_config w = {
        .target = c->target,
        .server_name = c->server_name[0] ? c->server_name : NULL,
        .ca_path = c->insecure ? NULL : c->tls_ca,
        .cert_path = c->insecure ? NULL : c->tls_cert,
        .key_path = c->insecure ? NULL : c->tls_key,
        .insecure = c->insecure,
        .user_agent = "advisor-agent/" ADVISOR_VERSION,
        .keepalive_interval_ms = (uint64_t) c->keepalive_ms,
        .backoff_min_ms = (uint64_t) c->backoff_min_ms,
        .backoff_max_ms = (uint64_t) c->backoff_max_ms,
        .max_message_bytes = SESSION_MESSAGE_BYTES,
        .max_send_queue_bytes = SESSION_QUEUE_BYTES,
    };
    struct adv_err err;

    if (session_new(a->loop, &w, &session_ops, a, &a->session, &err) < 0)
        adv_error("agent", "no session can be made, will try again", ADV_FS("why", err.msg));
}

static void on_described(void *arg, const struct adapter_description *d, const struct adv_err *err)
{
    struct agent *a = arg;

    a->describing = false;
    if (a->closing)
        return;
    if (!d) {
        adv_warn("agent", "the scheduler does not answer, will ask again", ADV_FS("why", err->msg));
    } else {
        a->forget_after_s = d->forget_after_s;
        a->accounting = d->accounting;
        a->n_verbs = 0;
        for (int v = 0; v < ADAPTER_VERB_MAX_; v++)
            if (d->verbs & ADAPTER_VERB_BIT(v))
                a->verbs[a->n_verbs++] = agent_verb_msg((enum adapter_verb) v);
        (void) snprintf(a->scheduler, sizeof(a->scheduler), "%.30s %.60s", d->scheduler, d->version);
        if (!a->described)
            adv_info("agent", "scheduler", ADV_FS("what", a->scheduler), ADV_FS("name", d->cluster),
                     ADV_FI("sight", d->sight), ADV_FI("privilege", d->privilege));
        a->described = true;
    }
    if (!a->session)
        dial(a);
}

static unsigned pace_of(const struct agent *a)
{
    return a->adapter->ops->pace(a->adapter);
}

static void looked_at(const struct agent *a, struct focus *f, int64_t now, unsigned pace)
{
    f->due_us = now + agent_focus_wait_us(now - f->since_us, a->cfg->focus_ms * 1000, a->cfg->poll_ms * 1000, pace);
}

/* Some at a time, in turn; where many are due one look at all jobs costs less: a mass failure must not become a flood of reads. */
static void look_at_focus(struct agent *a, int64_t now)
{
    unsigned pace = pace_of(a);
    struct focus *due[FOCUS_MAX];
    size_t n = 0;

    if (now >= a->focus_until_us)
        return;
    for (size_t i = 0; i < a->n_focus; i++) {
        struct focus *f = &a->focus[(a->focus_turn + i) % a->n_focus];
        if (!f->busy && now >= f->due_us)
            due[n++] = f;
    }
    if (n > FOCUS_BULK) {
        if (a->observing || now < a->observe_began_us + FOCUS_POLL_US * pace)
            return;
        a->next_poll_us = now;
        for (size_t i = 0; i < n; i++)
            looked_at(a, due[i], now, pace);
        return;
    }
    for (size_t i = 0; i < n && a->focus_looks < FOCUS_PARALLEL && look(a, due[i]->id, true); i++) {
        due[i]->busy = true;
        a->focus_looks++;
        a->focus_turn = (size_t) (due[i] - a->focus) + 1;
        looked_at(a, due[i], now, pace);
    }
}

static int64_t poll_wait_us(struct agent *a)
{
    int64_t poll_us = a->cfg->poll_ms * 1000, forget_us = a->forget_after_s * 1000000;
    bool late = forget_us && poll_us > forget_us / 3;

    if (late && !a->late_told)
        adv_warn("agent", "the scheduler forgets ended jobs soon after: ends that fall between two looks are only known from accounting",
                 ADV_FI("forgets_after_s", a->forget_after_s), ADV_FI("poll_interval_ms", a->cfg->poll_ms));
    a->late_told = late;
    return agent_poll_wait_us(poll_us, pace_of(a), forget_us);
}

static void on_tick(uv_timer_t *timer)
{
    struct agent *a = timer->data;
    int64_t now = adv_mono_us(), jump_us;

    if (!a->described && !a->describing && now >= a->next_describe_us) {
        a->describing = true;
        a->next_describe_us = now + DESCRIBE_RETRY_US;
        a->adapter->ops->describe(a->adapter, on_described, a);
    }
    /* What an id means rests on what describe tells. */
    if (a->described && !a->observing && now >= a->next_poll_us) {
        a->observing = true;
        a->next_poll_us = now + poll_wait_us(a);
        a->observe_began_us = now;
        a->observe_began_boot_us = adv_boot_us();
        a->observe_began_wall_us = adv_wall_us();
        a->adapter->ops->observe(a->adapter, on_observed, a);
        /* The ceiling is looked at before each write anyway; this is for people to see it. */
        agent_look_at_ceiling(a);
    }
    if (a->ceiling_changed && a->session) {
        a->ceiling_changed = false;
        session_heartbeat_now(a->session);
    }
    if (!a->reading_nodes && now >= a->next_nodes_us) {
        a->reading_nodes = true;
        a->next_nodes_us = now + a->cfg->nodes_ms * 1000;
        a->adapter->ops->nodes(a->adapter, on_nodes, a);
    }
    if (steady_jumped(&a->steady, adv_wall_us(), adv_boot_us(), &jump_us)) {
        if (jump_us)
            adv_warn("agent", "the wall clock jumped; leases, holds and counts go on by the clock since boot",
                     ADV_FI("jump_s", (jump_us + (jump_us < 0 ? -500000 : 500000)) / 1000000));
        else
            adv_info("agent", "the wall clock is back");
        if (a->session)
            session_heartbeat_now(a->session); /* the control plane compares clocks */
    }
    renew_tick(a->renew, a->session, now, adv_wall_us());
    look_at_focus(a, now);
    if (a->described)
        past_tick(a, now);
    orders_tick(a);
}

static int watch_watchdog(struct agent *a, struct adv_err *err)
{
    char dir[4096];

    if (snprintf(dir, sizeof(dir), "%s/watchdog", a->cfg->state_dir) >= (int) sizeof(dir))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "state.dir: path too long, expected at most 4086 bytes");
    return journal_view_new(dir, JOURNAL_VIEW_STEPS, &a->watchdog, err);
}

int agent_new(uv_loop_t *loop, const struct agent_config *cfg, struct adapter_runner *runner,
              struct agent **ret, struct adv_err *err)
{
    struct agent *a = calloc(1, sizeof(*a));
    unsigned mode;
    char text[16];
    size_t torn;
    bool anew;
    uid_t owner;
    int r;

    if (!a)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the agent");
    a->loop = loop;
    a->cfg = cfg;
    a->runner = runner;
    a->host = (struct adapter_host) { .ctx = a, .runner = runner, .authorize = orders_authorize,
                                      .log = adapter_host_log };
    a->bound_ms = cfg->landing_bound_ms ? cfg->landing_bound_ms : 20000;
    a->cluster_mode = advisor_v1_Mode_MODE_OBSERVE;
    if ((r = adv_uuid_v7(adv_wall_us(), a->instance, err)) < 0 ||
        (r = journal_open(cfg->state_dir, cfg->allow_volatile, NULL, &a->journal, err)) < 0 ||
        (r = ceiling_owner_uid(cfg->ceiling_owner, &owner, err)) < 0 ||
        (r = ceiling_new(cfg->ceiling_path[0] ? cfg->ceiling_path : NULL, owner, &a->ceiling, err)) < 0) {
        (void) agent_free(a);
        return r;
    }
    if ((r = watch_watchdog(a, err)) < 0) {
        (void) agent_free(a);
        return r;
    }
    a->snapshot = snapshot_new(first_submit, a);
    a->renew = renew_new(cfg);
    if (!a->snapshot || !a->renew) {
        (void) agent_free(a);
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory for the snapshot");
    }
    torn = journal_torn(a->journal, &anew);
    if (anew)
        adv_warn("agent", "the journal held no whole record and begins anew: nothing is known of what this agent did before",
                 ADV_FS("folder", cfg->state_dir), ADV_FI("bytes", (int64_t) torn), ADV_FS("journal", journal_id(a->journal)));
    else if (torn)
        adv_info("agent", "a record at the end of the journal was not whole and is cut off", ADV_FS("folder", cfg->state_dir),
                 ADV_FI("bytes", (int64_t) torn));
    if (!cfg->insecure && pki_key_exposed(cfg->tls_key, &mode)) {
        (void) snprintf(text, sizeof(text), "%04o", mode);
        adv_warn("agent", "others on this host can read or replace the private key (tls.key), expected mode 0600",
                 ADV_FS("path", cfg->tls_key), ADV_FS("mode", text));
    }
    if (journal_may_act(a->journal, err) < 0)
        adv_warn("agent", "this agent will not act", ADV_FS("why", err ? err->msg : ""));
    *ret = a;
    return 0;
}

struct adapter_host *agent_host(struct agent *a)
{
    return &a->host;
}

int agent_start(struct agent *a, struct adapter *adapter, struct adv_err *err)
{
    int r = logs_start(a, err);

    if (r < 0)
        return r;
    a->adapter = adapter;
    (void) uv_timer_init(a->loop, &a->timer);
    a->timer.data = a;
    (void) uv_timer_start(&a->timer, on_tick, 0, TICK_MS);
    return 0;
}

void agent_stop(struct agent *a)
{
    if (a->closing)
        return;
    a->closing = true;
    /* With when each job was last seen, so that the next run can go on from there. */
    if (journal_compact_now(a->journal, NULL) < 0)
        adv_info("agent", "the journal is left as it is");
    a->session = session_free(a->session);
    a->tails = tail_manager_free(a->tails);
    if (a->adapter)
        uv_close((uv_handle_t *) &a->timer, NULL);
}

struct agent *agent_free(struct agent *a)
{
    if (!a)
        return NULL;
    orders_free(a);
    past_free(a);
    logs_free(a);
    (void) snapshot_free(a->snapshot);
    (void) renew_free(a->renew);
    (void) ceiling_free(a->ceiling);
    (void) journal_view_free(a->watchdog);
    (void) journal_free(a->journal);
    free(a);
    return NULL;
}
