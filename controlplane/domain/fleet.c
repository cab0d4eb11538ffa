/* SPDX-License-Identifier: Apache-2.0 */
/* The fleet's state machine.
 *
 * Model: observations move attempts along; findings from logs open suspicions; an end state or the lack of progress
 * confirms them; a confirmed anomaly (or the end state alone, later) leads to one decision, which becomes the advice of
 * the attempt. Everything that waits has one number, `judge_at_us`, and EV_TICK looks at it.
 *
 * Invariants:
 *  - one advice an attempt; its generation rises only when desired state, exclusions or may_interrupt change;
 *  - only the newest attempt of a job is judged; when a newer one appears, the older one's judgement ends;
 *  - nothing is judged while the cluster's agent is not connected with a confirmed digest: stale is never current;
 *  - consent may lower an advice that exists, it never raises one: raising a mode does not set old failures in motion;
 *  - statuses count only for the current generation and epoch. */

#include "controlplane/domain/internal.h"
#include "controlplane/domain/keep.h"

#include <utlist.h>

/* ---- lookups ---------------------------------------------------------------------------------------------------- */

struct cluster *fleet_find_cluster(const struct fleet *f, const char *name)
{
    struct cluster *c = NULL;

    if (name)
        HASH_FIND_STR(f->clusters, name, c);
    return c;
}

struct cluster *fleet_find_any_cluster(const struct fleet *f, const char *name)
{
    return name && adv_streq(name, FLEET_CLUSTER) ? f->global : fleet_find_cluster(f, name);
}

struct job *fleet_find_job(const struct cluster *c, const char *job_id)
{
    struct job *j = NULL;

    if (job_id)
        HASH_FIND(hh_id, c->jobs_by_id, job_id, strlen(job_id), j);
    return j;
}

struct job *fleet_find_job_uid(const struct cluster *c, const char *uid)
{
    struct job *j = NULL;

    if (uid)
        HASH_FIND(hh_uid, c->jobs_by_uid, uid, strlen(uid), j);
    return j;
}

struct attempt *job_attempt(const struct job *j, uint32_t index)
{
    return index >= j->first_index && index - j->first_index < j->n_attempts ? j->attempts[index - j->first_index] : NULL;
}

bool attempt_meant(const struct attempt *a, int64_t submit_unix)
{
    return !submit_unix || !a->submit_unix || a->submit_unix == submit_unix;
}

struct attempt *fleet_last_attempt(const struct job *j)
{
    return j->n_attempts ? j->attempts[j->n_attempts - 1] : NULL;
}

void fleet_recount(struct job *j)
{
    const struct attempt *a = fleet_last_attempt(j);
    bool counted = !j->gone, running = counted && a && job_state_running(a->state);

    j->cluster->n_jobs += (uint32_t) counted - (uint32_t) j->counted;
    j->cluster->n_running += (uint32_t) running - (uint32_t) j->counted_running;
    j->counted = counted;
    j->counted_running = running;
}

bool fleet_is_last(const struct attempt *a)
{
    return fleet_last_attempt(a->job) == a;
}

uint64_t cluster_digest(const struct cluster *c)
{
    return c->digest;
}

/* ---- operators -------------------------------------------------------------------------------------------------- */

int fleet_cluster_id_malformed(const char *id, struct adv_err *err)
{
    (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "CLUSTER_ID_MALFORMED",
                              "cluster id \"%.80s\": expected 1 to 64 of a-z, 0-9, '-', '_', beginning with a letter", str_or(id));
    return adv_err_field(err, "cluster_id");
}

static int apply_create(struct fleet *f, struct intents *in, struct event *ev, struct adv_err *err)
{
    struct cluster *c;
    char name[RESOURCE_NAME_MAX];

    if (!cluster_id_valid(ev->cluster))
        return fleet_cluster_id_malformed(ev->cluster, err);
    if (fleet_find_cluster(f, ev->cluster))
        return adv_err_set_reason(err, ADV_ALREADY_EXISTS, "CLUSTER_EXISTS", "cluster %s exists already", ev->cluster);
    c = calloc(1, sizeof(*c));
    if (!c || !(c->name = strdup(ev->cluster))) {
        in->oom = true;
        free(c);
        return 0;
    }
    c->mode = MODE_OBSERVE;
    c->mode_us = ev->now_us;
    c->agent_state = AGENT_NEVER_SEEN;
    c->agent_state_us = ev->now_us;
    c->epoch.term = f->store_term;
    c->owned = true; /* who carries out the creation is the first owner */
    c->owner_epoch = f->global->owned_until_us == INT64_MAX ? 0 : 1;
    c->owned_until_us = f->global->owned_until_us;
    c->unborn = true;
    HASH_ADD_KEYPTR(hh, f->clusters, c->name, strlen(c->name), c);
    if (!c->hh.tbl) {
        in->oom = true;
        cluster_free(c);
        return 0;
    }
    order_add(&f->clusters_in_order, &c->by_name, c->name);
    fleet_touch_cluster(in, c);
    fleet_audit(in, c, ev, 0, "cluster.create", cluster_resource_name(c, name), "mode observe");
    return 0;
}

static int apply_mode(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err)
{
    enum adv_mode was = c->mode;
    char name[RESOURCE_NAME_MAX];

    if (ev->u.set_mode.mode < MODE_OFF || ev->u.set_mode.mode > MODE_ACT) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "MODE_MALFORMED", "mode: expected OFF, OBSERVE, APPROVE or ACT");
        return adv_err_field(err, "mode");
    }
    if (ev->u.set_mode.if_version && (int64_t) ev->u.set_mode.if_version != c->mode_us)
        return adv_err_set_reason(err, ADV_ABORTED, "ETAG_MISMATCH", "cluster %s: its mode was set since (to %s)", c->name,
                                  mode_name(c->mode));
    c->mode = ev->u.set_mode.mode;
    c->mode_us = ev->now_us > c->mode_us ? ev->now_us : c->mode_us + 1; /* also the version of its settings */
    c->mode_effective_us = 0;
    fleet_str_take(&c->epoch_warning, NULL);
    fleet_touch_cluster(in, c);
    /* the same one again is a change, too: it confirms it after the store was behind, and the agent is asked again */
    fleet_audit(in, c, ev, 0, "mode.set", cluster_resource_name(c, name), "%s%s%s%s%s%s", was == c->mode ? "" : mode_name(was),
          was == c->mode ? "" : " -> ", mode_name(c->mode), was == c->mode ? ", as before" : "",
          ev->u.set_mode.reason && *ev->u.set_mode.reason ? ": " : "", str_or(ev->u.set_mode.reason));
    fleet_cluster_lower(in, c, ev);
    fleet_want_requeueable_all(f, in, c, ev);
    return 0;
}

static void remember_request(struct intents *in, const struct event *ev)
{
    struct request_record r = { .record_us = ev->now_us };
    void *p;

    if (!ev->request_id || !*ev->request_id)
        return;
    p = fleet_grow(in, in->requests, in->n_requests, &in->cap_requests, sizeof(*in->requests));
    if (!p)
        return;
    in->requests = p;
    r.request_id = strdup(ev->request_id);
    r.hash = strdup(str_or(ev->request_hash));
    in->requests[in->n_requests++] = r;
    if (!r.request_id || !r.hash)
        in->oom = true;
}

static void tick(struct fleet *f, struct intents *in, const struct event *ev)
{
    struct entry *e, *e_next;
    struct attempt *a;

    for (struct cluster *c = f->n_lost_untold ? f->clusters : NULL; c && !in->oom; c = c->hh.next)
        if (c->lost_untold)
            fleet_tell_lost(f, in, c, ev);
    DL_FOREACH_SAFE2 (f->due_list, e, e_next, due_next) /* first: a window that begins now counts for what is judged now */
        if (e->due_us <= ev->now_us && !in->oom) {
            if (e->kind == RESOURCE_WINDOW)
                fleet_window_due(f, in, (struct window *) e, ev);
            else
                fleet_exclusion_due(f, in, (struct exclusion *) e, ev);
        }
    for (size_t n = f->n_judge; n > 0 && !in->oom && (a = fleet_judge_due(f, ev->mono_us)); n--)
        fleet_judge(f, in, a, ev);
}

int fleet_apply(struct fleet *f, struct event *ev, struct intents *in, struct adv_err *err)
{
    struct cluster *c = NULL;
    struct attempt *a;
    int r = 0;

    f->now_us = ev->now_us;
    f->mono_us = ev->mono_us;
    if (ev->type == EV_POLICY_APPLY ||
        ((ev->type == EV_AUDIT_CUT || ev->type == EV_RETENTION) && adv_streq(str_or(ev->cluster), FLEET_CLUSTER))) {
        c = f->global;
    } else if (ev->type != EV_TICK && ev->type != EV_CLUSTER_CREATE) {
        c = fleet_find_cluster(f, ev->cluster);
        if (!c && ev->type == EV_ENROL_REDEEM) /* which clusters there are is not told to strangers */
            return fleet_enrolment_refused(err);
        if (!c)
            return adv_err_set_reason(err, ADV_NOT_FOUND, "CLUSTER_NOT_FOUND", "cluster %.64s is not registered",
                                      str_or(ev->cluster));
    }
    if (ev->type == EV_CLUSTER_CREATE ? !f->global->owned : c && !c->owned) {
        (void) adv_err_set_reason(err, ADV_UNAVAILABLE, "NOT_OWNER", "cluster %.64s: another replica owns it, or none yet",
                                  str_or(ev->cluster));
        if (err)
            err->retry_after_ms = 1000;
        return -ADV_UNAVAILABLE;
    }
    switch (ev->type) {
    case EV_CLUSTER_CREATE:
        r = apply_create(f, in, ev, err);
        break;
    case EV_SET_MODE:
        r = apply_mode(f, in, c, ev, err);
        break;
    case EV_AGENT_HELLO:
        r = fleet_check_cert(c, str_or(ev->u.hello.serial), ev->u.hello.issued_s, err);
        if (r == 0)
            fleet_apply_hello(f, in, c, ev);
        break;
    case EV_AGENT_GONE:
        fleet_apply_gone(in, c, ev);
        break;
    case EV_AGENT_REPORT:
        fleet_apply_report(f, in, c, ev);
        break;
    case EV_LEASE_TAKE:
        fleet_apply_take(f, in, c, ev);
        break;
    case EV_STATE_UPDATE:
        r = fleet_apply_state(f, in, c, ev, err);
        break;
    case EV_FINDING:
        a = fleet_find_attempt(f, c, ev->u.finding.job_id, ev->u.finding.restart_count,
                               ev->u.finding.submit_unix);
        if (!a) /* its log was faster than its record: the caller keeps it for a while */
            return adv_err_set_reason(err, ADV_NOT_FOUND, "ATTEMPT_NOT_FOUND", "job %.40s: attempt %u is not known",
                                      str_or(ev->u.finding.job_id), ev->u.finding.restart_count);
        if (fleet_switched_off(a->job))
            break;
        if (ev->u.finding.outside && ev->u.finding.kind == FINDING_PROGRESS)
            a->steps_reported++;
        if (ev->u.finding.kind == FINDING_SIGNATURE)
            fleet_apply_signature(f, in, a, ev);
        else if (ev->u.finding.kind == FINDING_NOTICE)
            fleet_apply_notice(f, in, a, ev);
        else
            fleet_apply_progress(f, in, a, ev);
        break;
    case EV_TELEMETRY:
        a = fleet_find_attempt(f, c, ev->u.telemetry.job_id, ev->u.telemetry.restart_count,
                               ev->u.telemetry.submit_unix);
        if (a)
            fleet_apply_telemetry(f, in, a, ev);
        break;
    case EV_SOURCE:
        a = fleet_find_attempt(f, c, ev->u.source.job_id, ev->u.source.restart_count, ev->u.source.submit_unix);
        if (a)
            fleet_apply_source(f, in, a, ev);
        break;
    case EV_SOURCES:
        if (str_set(in, &c->sources_unknown, ev->u.sources.unknown))
            fleet_touch_cluster(in, c);
        break;
    case EV_LOG_STREAM:
        fleet_apply_log_stream(f, in, c, ev);
        break;
    case EV_WITNESS:
        a = fleet_find_attempt(f, c, ev->u.witness.job_id, ev->u.witness.restart_count,
                               ev->u.witness.submit_unix);
        if (!a)
            return adv_err_set_reason(err, ADV_NOT_FOUND, "ATTEMPT_NOT_FOUND", "job %.40s: attempt %u is not known",
                                      str_or(ev->u.witness.job_id), ev->u.witness.restart_count);
        if (!fleet_switched_off(a->job))
            fleet_apply_witness(f, in, a, ev);
        break;
    case EV_LOG_SHED:
        a = fleet_find_attempt(f, c, ev->u.shed.job_id, ev->u.shed.restart_count,
                               ev->u.shed.submit_unix);
        if (!a)
            return adv_err_set(err, ADV_NOT_FOUND, "no attempt %.40s/%u is known", ev->u.shed.job_id, ev->u.shed.restart_count);
        fleet_apply_shed(f, in, a, ev);
        break;
    case EV_ADVICE_STATUS:
        r = fleet_apply_status(f, in, c, ev, err);
        break;
    case EV_ACTION:
        r = fleet_apply_action(f, in, c, ev, err);
        break;
    case EV_APPROVAL:
        r = fleet_apply_approval(in, c, ev, err);
        break;
    case EV_VERDICT:
        r = fleet_apply_verdict(in, c, ev, err);
        break;
    case EV_REPORT_ANOMALY:
        r = fleet_apply_report_anomaly(f, in, c, ev, err);
        break;
    case EV_ATTRIBUTION:
        r = fleet_apply_attribution(f, in, c, ev, err);
        break;
    case EV_REPORT_EVIDENCE:
        r = fleet_apply_report_evidence(f, in, c, ev, err);
        break;
    case EV_REPORT_PROGRESS:
        r = fleet_apply_report_progress(f, in, c, ev, err);
        break;
    case EV_EXCLUSION_ADD:
        r = fleet_apply_exclusion_add(f, in, c, ev, err);
        break;
    case EV_EXCLUSION_LIFT:
        r = fleet_apply_exclusion_lift(f, in, c, ev, err);
        break;
    case EV_WINDOW_CREATE:
        r = fleet_apply_window_create(f, in, c, ev, err);
        break;
    case EV_WINDOW_END:
        r = fleet_apply_window_end(f, in, c, ev, err);
        break;
    case EV_INCIDENT_CLOSE:
        r = fleet_apply_incident_close(in, c, ev, err);
        break;
    case EV_POLICY_APPLY:
        r = fleet_apply_policy(f, in, ev, err);
        break;
    case EV_ENROL_CREATE:
        r = fleet_apply_enrol_create(f, in, c, ev, err);
        break;
    case EV_ENROL_REDEEM:
        r = fleet_apply_enrol_redeem(in, c, ev, err);
        break;
    case EV_CERT_RENEW:
        r = fleet_apply_cert_renew(in, c, ev, err);
        break;
    case EV_CERT_REVOKE:
        r = fleet_apply_cert_revoke(f, in, c, ev, err);
        break;
    case EV_AUDIT_APPEND:
        r = fleet_apply_audit_append(in, c, ev);
        break;
    case EV_AUDIT_CUT:
        r = fleet_apply_audit_cut(f, in, c, ev, err);
        break;
    case EV_RETENTION:
        fleet_apply_retention(f, in, c, ev);
        break;
    case EV_FORGET:
        r = fleet_apply_forget(f, in, c, ev, err);
        break;
    case EV_TICK:
        tick(f, in, ev);
        break;
    case EV_NONE:
        break;
    }
    if (r == 0)
        remember_request(in, ev);
    in->oom |= f->oom;
    return r;
}
