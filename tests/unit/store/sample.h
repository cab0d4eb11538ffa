/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_STORE_SAMPLE_H
#define TESTS_UNIT_STORE_SAMPLE_H

/* One object of each kind with every stored field set to a value of its own, and comparisons of every stored field. A
 * field that is added to a struct and to codec.c belongs here as well; test-codec.c counts. */

#include <criterion/criterion.h>
#include <stdio.h>

#include "controlplane/domain/fleet.h"

#define SAMPLE_UNUSED __attribute__((unused))

#define SAMPLE_STR(o, field, k) (o)->field = sample_str(#field, k)
/* Numbers differ by line, so a swap of two fields is seen. */
#define SAMPLE_NUM(k) ((k) *1000 + __LINE__)

static SAMPLE_UNUSED char *sample_str(const char *field, int k)
{
    char *s = NULL;

    cr_assert(asprintf(&s, "%s-%d-é", field, k) > 0);
    return s;
}

static SAMPLE_UNUSED void sample_cluster(struct cluster *c, const char *name, int k)
{
    c->name = strdup(name);
    c->mode = MODE_ACT;
    c->mode_us = SAMPLE_NUM(k);
    c->mode_effective_us = SAMPLE_NUM(k);
    c->epoch = (struct epoch) { (uint64_t) SAMPLE_NUM(k), UINT64_MAX };
    c->agent_state = AGENT_UNREACHABLE; /* as a loaded one is */
    c->agent_state_us = SAMPLE_NUM(k);
    SAMPLE_STR(c, agent_version, k);
    SAMPLE_STR(c, scheduler, k);
    c->ceiling = MODE_APPROVE;
    SAMPLE_STR(c, ceiling_reason, k);
    c->journal_persistent = true;
    SAMPLE_STR(c, holder_journal, k);
    SAMPLE_STR(c, epoch_warning, k);
    SAMPLE_STR(c, sources_unknown, k);
    c->audit_seq = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(c, audit_hash, k);
    c->revision = (uint64_t) SAMPLE_NUM(k);
    c->observe_us = -SAMPLE_NUM(k);
    c->lease_us = SAMPLE_NUM(k);
    c->agent_skew_s = -SAMPLE_NUM(k);
    c->logs_down = true;
}

static SAMPLE_UNUSED void sample_job(struct job *j, int k)
{
    SAMPLE_STR(j, uid, k);
    SAMPLE_STR(j, job_id, k);
    SAMPLE_STR(j, display_name, k);
    SAMPLE_STR(j, user, k);
    j->uid_number = UINT32_MAX;
    SAMPLE_STR(j, account, k);
    SAMPLE_STR(j, partition, k);
    SAMPLE_STR(j, qos, k);
    j->submit_unix = SAMPLE_NUM(k);
    j->incarnation_unix = SAMPLE_NUM(k);
    j->first_seen_us = SAMPLE_NUM(k);
    j->batch = j->requeueable = j->held = j->gone = true;
    SAMPLE_STR(j, reason, k);
    SAMPLE_STR(j, excluded_nodes, k);
    SAMPLE_STR(j, required_nodes, k);
    j->num_nodes = (uint32_t) SAMPLE_NUM(k);
    SAMPLE_STR(j, stdout_path, k);
    SAMPLE_STR(j, comment, k);
    j->opt_mode = MODE_OBSERVE;
    SAMPLE_STR(j, policy, k);
    SAMPLE_STR(j, workflow, k);
    SAMPLE_STR(j, comment_error, k);
    j->max_restarts = (uint32_t) SAMPLE_NUM(k);
    j->first_index = 5;
    j->revision = (uint64_t) SAMPLE_NUM(k);
    j->hash = (uint64_t) SAMPLE_NUM(k);
    j->present = true;
}

static SAMPLE_UNUSED void sample_attempt(struct attempt *a, uint32_t index, int k)
{
    a->index = index;
    a->state = JOB_NODE_FAIL;
    SAMPLE_STR(a, state_raw, k);
    a->exit_code = (uint32_t) SAMPLE_NUM(k);
    a->exit_signal = (uint32_t) SAMPLE_NUM(k);
    SAMPLE_STR(a, nodes, k);
    a->submit_unix = SAMPLE_NUM(k);
    a->start_unix = SAMPLE_NUM(k);
    a->end_unix = SAMPLE_NUM(k);
    a->telemetry = TELEMETRY_PARTIAL;
    SAMPLE_STR(a, telemetry_reason, k);
    SAMPLE_STR(a, source_fed, k);
    SAMPLE_STR(a, source_gap, k);
    a->dropped_bytes = UINT64_MAX;
    a->shed_bytes = UINT64_MAX - 1;
    a->ms.first_suspicion_us = SAMPLE_NUM(k);
    a->ms.end_observed_us = SAMPLE_NUM(k);
    a->ms.anomaly_confirmed_us = SAMPLE_NUM(k);
    a->ms.advised_us = SAMPLE_NUM(k);
    a->ms.first_command_us = SAMPLE_NUM(k);
    a->ms.converged_us = SAMPLE_NUM(k);
    a->ms.successor_started_us = SAMPLE_NUM(k);
    a->ms.successor_productive_us = SAMPLE_NUM(k);
    a->ms.job_completed_us = INT64_MIN;
    a->last_step = (uint64_t) SAMPLE_NUM(k);
    a->last_checkpoint_step = (uint64_t) SAMPLE_NUM(k);
    a->resumed_from_step = (uint64_t) SAMPLE_NUM(k);
    a->steps_seen = (uint32_t) SAMPLE_NUM(k);
    a->last_progress_us = SAMPLE_NUM(k);
    a->unseen = true;
    a->history = true;
    a->attribution_fast = ATTRIBUTION_ANSWERED;
    a->attribution_slow = ATTRIBUTION_NONE;
    a->attribution_us = SAMPLE_NUM(k);
    SAMPLE_STR(a, attribution_note, k);
    a->revision = (uint64_t) SAMPLE_NUM(k);
}

static SAMPLE_UNUSED void sample_anomaly(struct anomaly *an, int k)
{
    SAMPLE_STR(an, uid, k);
    an->kind = ANOMALY_HANG;
    an->status = ANOMALY_CONFIRMED;
    SAMPLE_STR(an, fault_class, k);
    SAMPLE_STR(an, rule, k);
    SAMPLE_STR(an, rules_version, k);
    an->retryable = RETRYABLE_NO;
    an->precedence = -SAMPLE_NUM(k);
    an->terminal = true;
    SAMPLE_STR(an, nodes, k);
    SAMPLE_STR(an, ranks, k);
    SAMPLE_STR(an, stream, k);
    an->offset = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(an, excerpt, k);
    SAMPLE_STR(an, excerpt_sha256, k);
    SAMPLE_STR(an, reporter, k);
    an->observe_us = SAMPLE_NUM(k);
    an->record_us = SAMPLE_NUM(k);
    an->status_us = SAMPLE_NUM(k);
    SAMPLE_STR(an, status_reason, k);
    an->step_at = (uint64_t) SAMPLE_NUM(k);
    an->progress_after = (uint32_t) SAMPLE_NUM(k);
    an->repeats = (uint32_t) SAMPLE_NUM(k);
    an->last_offset = (uint64_t) SAMPLE_NUM(k);
    an->revision = (uint64_t) SAMPLE_NUM(k);
}

static SAMPLE_UNUSED void sample_advice(struct advice *ad, int k)
{
    ad->generation = (uint64_t) SAMPLE_NUM(k);
    ad->desired = DESIRED_RESTARTED;
    ad->actionability = ACTION_NEEDS_APPROVAL;
    SAMPLE_STR(ad, exclude_nodes, k);
    SAMPLE_STR(ad, people_nodes, k);
    ad->n_reasons = ADVICE_MAX_REASONS;
    for (int i = 0; i < ADVICE_MAX_REASONS; i++) {
        SAMPLE_STR(&ad->reasons[i], code, k + i);
        SAMPLE_STR(&ad->reasons[i], param, k + i);
        SAMPLE_STR(&ad->reasons[i], sentence, k + i);
    }
    SAMPLE_STR(ad, summary, k);
    ad->valid_for_ms = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(ad, correlation_id, k);
    SAMPLE_STR(ad, anomaly_uid, k);
    ad->may_interrupt = true;
    ad->observed_generation = (uint64_t) SAMPLE_NUM(k);
    ad->disposition = DISPOSITION_ABANDONED;
    ad->disposition_reason = (uint32_t) SAMPLE_NUM(k);
    SAMPLE_STR(ad, status_detail, k);
    ad->status_us = SAMPLE_NUM(k);
    ad->create_us = SAMPLE_NUM(k);
    ad->update_us = SAMPLE_NUM(k);
    ad->approval = APPROVAL_REJECTED;
    ad->approval_generation = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(ad, approval_by, k);
    SAMPLE_STR(ad, approval_reason, k);
    ad->approval_us = SAMPLE_NUM(k);
    ad->verdict = VERDICT_WRONG;
    ad->verdict_generation = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(ad, verdict_by, k);
    SAMPLE_STR(ad, verdict_why, k);
    ad->verdict_us = SAMPLE_NUM(k);
    ad->revision = (uint64_t) SAMPLE_NUM(k);
}

static SAMPLE_UNUSED void sample_action(struct action *ac, int k)
{
    SAMPLE_STR(ac, journal_id, k);
    ac->journal_seq = (uint64_t) SAMPLE_NUM(k);
    ac->generation = (uint64_t) SAMPLE_NUM(k);
    ac->epoch = (struct epoch) { 7, (uint64_t) SAMPLE_NUM(k) };
    ac->verb = 3;
    SAMPLE_STR(ac, read_before, k);
    ac->command = COMMAND_TIMED_OUT;
    ac->observed = OBSERVED_UNKNOWN;
    SAMPLE_STR(ac, reason, k);
    SAMPLE_STR(ac, detail, k);
    ac->observe_us = SAMPLE_NUM(k);
    ac->record_us = SAMPLE_NUM(k);
    ac->outcome_us = SAMPLE_NUM(k);
    ac->revision = (uint64_t) SAMPLE_NUM(k);
}

static SAMPLE_UNUSED void sample_node(struct node *n, int k)
{
    SAMPLE_STR(n, name, k);
    SAMPLE_STR(n, state_raw, k);
    SAMPLE_STR(n, reason, k);
    n->available = true;
    n->hash = (uint64_t) SAMPLE_NUM(k);
    n->revision = (uint64_t) SAMPLE_NUM(k);
}

static SAMPLE_UNUSED void sample_exclusion(struct exclusion *o, int k)
{
    o->e.kind = RESOURCE_EXCLUSION;
    SAMPLE_STR(o, e.uid, k);
    SAMPLE_STR(o, e.request_id, k);
    o->e.revision = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(o, node, k);
    SAMPLE_STR(o, reason, k);
    SAMPLE_STR(o, owner, k);
    o->state = EXCLUSION_LIFTED;
    o->create_us = SAMPLE_NUM(k);
    o->expire_us = SAMPLE_NUM(k);
    o->lift_us = SAMPLE_NUM(k);
    SAMPLE_STR(o, lifted_by, k);
    SAMPLE_STR(o, lift_reason, k);
}

static SAMPLE_UNUSED void sample_incident(struct incident *o, int k)
{
    o->e.kind = RESOURCE_INCIDENT;
    SAMPLE_STR(o, e.uid, k);
    SAMPLE_STR(o, e.request_id, k);
    o->e.revision = (uint64_t) SAMPLE_NUM(k);
    o->kind = INCIDENT_STORE_BEHIND;
    o->closed = true;
    SAMPLE_STR(o, summary, k);
    SAMPLE_STR(o, subject, k);
    o->count = (uint32_t) SAMPLE_NUM(k);
    o->open_us = SAMPLE_NUM(k);
    o->update_us = SAMPLE_NUM(k);
    o->close_us = SAMPLE_NUM(k);
    SAMPLE_STR(o, closed_by, k);
    SAMPLE_STR(o, close_reason, k);
}

static SAMPLE_UNUSED void sample_window(struct window *o, int k)
{
    o->e.kind = RESOURCE_WINDOW;
    SAMPLE_STR(o, e.uid, k);
    SAMPLE_STR(o, e.request_id, k);
    o->e.revision = (uint64_t) SAMPLE_NUM(k);
    o->state = WINDOW_OVER;
    o->start_us = SAMPLE_NUM(k);
    o->end_us = SAMPLE_NUM(k);
    SAMPLE_STR(o, reason, k);
    SAMPLE_STR(o, owner, k);
    o->create_us = SAMPLE_NUM(k);
    SAMPLE_STR(o, ended_by, k);
}

static SAMPLE_UNUSED void sample_checkpoint(struct checkpoint *o, int k)
{
    o->e.kind = RESOURCE_CHECKPOINT;
    SAMPLE_STR(o, e.uid, k);
    SAMPLE_STR(o, e.request_id, k);
    o->e.revision = (uint64_t) SAMPLE_NUM(k);
    o->seq = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(o, hash, k);
    o->record_us = SAMPLE_NUM(k);
    SAMPLE_STR(o, signature, k);
    SAMPLE_STR(o, key_id, k);
    SAMPLE_STR(o, store_uuid, k);
}

static SAMPLE_UNUSED void sample_policy_doc(struct policy_doc *o, int k)
{
    o->e.kind = RESOURCE_POLICY;
    SAMPLE_STR(o, e.uid, k);
    SAMPLE_STR(o, e.request_id, k);
    o->e.revision = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(o, name, k);
    o->version = (uint64_t) SAMPLE_NUM(k);
    SAMPLE_STR(o, document, k);
    SAMPLE_STR(o, document_sha256, k);
    SAMPLE_STR(o, owner, k);
    SAMPLE_STR(o, reason, k);
    o->create_us = SAMPLE_NUM(k);
}

static SAMPLE_UNUSED void sample_evidence(struct evidence *o, int k)
{
    SAMPLE_STR(o, uid, k);
    SAMPLE_STR(o, source, k);
    SAMPLE_STR(o, kind, k);
    o->window_start_us = SAMPLE_NUM(k);
    o->window_end_us = SAMPLE_NUM(k);
    SAMPLE_STR(o, nodes, k);
    SAMPLE_STR(o, ranks, k);
    o->weight_percent = (uint32_t) SAMPLE_NUM(k);
    SAMPLE_STR(o, summary, k);
    SAMPLE_STR(o, excerpt_ref, k);
    SAMPLE_STR(o, excerpt_sha256, k);
    SAMPLE_STR(o, reporter, k);
    o->observe_us = SAMPLE_NUM(k);
    o->record_us = SAMPLE_NUM(k);
    SAMPLE_STR(o, request_id, k);
    SAMPLE_STR(o, fault_class, k);
    SAMPLE_STR(o, rule, k);
    o->origin = (enum evidence_origin) (k % 3);
    o->late = k % 2;
    o->revision = (uint64_t) SAMPLE_NUM(k);
}

static SAMPLE_UNUSED void sample_enrolment(struct enrolment *e, int k)
{
    SAMPLE_STR(e, uid, k);
    SAMPLE_STR(e, token_sha256, k);
    SAMPLE_STR(e, principal, k);
    e->create_us = SAMPLE_NUM(k);
    e->expire_us = SAMPLE_NUM(k);
    e->redeem_us = SAMPLE_NUM(k);
    SAMPLE_STR(e, key_sha256, k);
    SAMPLE_STR(e, serial, k);
    e->voided = true;
    e->reused = true;
    e->revision = (uint64_t) SAMPLE_NUM(k);
}

static SAMPLE_UNUSED void sample_revocation(struct revocation *r, int k)
{
    SAMPLE_STR(r, uid, k);
    SAMPLE_STR(r, serial, k);
    r->before_us = SAMPLE_NUM(k);
    SAMPLE_STR(r, reason, k);
    SAMPLE_STR(r, principal, k);
    r->create_us = SAMPLE_NUM(k);
    r->revision = (uint64_t) SAMPLE_NUM(k);
}

#define SAME_NUM(field) cr_assert_eq(a->field, b->field, "%s: " #field " differs", where)
#define SAME_STR(field) \
    cr_assert_str_eq(str_or(a->field), str_or(b->field), "%s: " #field " differs: %s, %s", where, str_or(a->field), str_or(b->field))

static SAMPLE_UNUSED void same_cluster(const struct cluster *a, const struct cluster *b, const char *where)
{
    SAME_STR(name);
    SAME_NUM(mode);
    SAME_NUM(mode_us);
    SAME_NUM(mode_effective_us);
    SAME_NUM(epoch.term);
    SAME_NUM(epoch.counter);
    SAME_NUM(agent_state_us);
    SAME_STR(agent_version);
    SAME_STR(scheduler);
    SAME_NUM(ceiling);
    SAME_STR(ceiling_reason);
    SAME_NUM(journal_persistent);
    SAME_STR(holder_journal);
    SAME_STR(epoch_warning);
    SAME_STR(sources_unknown);
    SAME_NUM(audit_seq);
    SAME_STR(audit_hash);
    SAME_NUM(revision);
    SAME_NUM(observe_us);
    SAME_NUM(lease_us);
    SAME_NUM(agent_skew_s);
    SAME_NUM(logs_down);
}

static SAMPLE_UNUSED void same_job(const struct job *a, const struct job *b, const char *where)
{
    SAME_STR(uid);
    SAME_STR(job_id);
    SAME_STR(display_name);
    SAME_STR(user);
    SAME_NUM(uid_number);
    SAME_STR(account);
    SAME_STR(partition);
    SAME_STR(qos);
    SAME_NUM(submit_unix);
    SAME_NUM(incarnation_unix);
    SAME_NUM(first_seen_us);
    SAME_NUM(batch);
    SAME_NUM(requeueable);
    SAME_NUM(held);
    SAME_NUM(gone);
    SAME_STR(reason);
    SAME_STR(excluded_nodes);
    SAME_STR(required_nodes);
    SAME_NUM(num_nodes);
    SAME_STR(stdout_path);
    SAME_STR(comment);
    SAME_NUM(opt_mode);
    SAME_STR(policy);
    SAME_STR(workflow);
    SAME_STR(comment_error);
    SAME_NUM(max_restarts);
    SAME_NUM(first_index);
    SAME_NUM(hash);
    SAME_NUM(present);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_attempt(const struct attempt *a, const struct attempt *b, const char *where)
{
    SAME_NUM(index);
    SAME_NUM(state);
    SAME_STR(state_raw);
    SAME_NUM(exit_code);
    SAME_NUM(exit_signal);
    SAME_STR(nodes);
    SAME_NUM(submit_unix);
    SAME_NUM(start_unix);
    SAME_NUM(end_unix);
    SAME_NUM(telemetry);
    SAME_STR(telemetry_reason);
    SAME_STR(source_fed);
    SAME_STR(source_gap);
    SAME_NUM(dropped_bytes);
    SAME_NUM(shed_bytes);
    cr_assert_arr_eq(&a->ms, &b->ms, sizeof(a->ms), "%s: milestones differ", where);
    SAME_NUM(last_step);
    SAME_NUM(last_checkpoint_step);
    SAME_NUM(resumed_from_step);
    SAME_NUM(steps_seen);
    SAME_NUM(last_progress_us);
    SAME_NUM(unseen);
    SAME_NUM(history);
    SAME_NUM(attribution_fast);
    SAME_NUM(attribution_slow);
    SAME_NUM(attribution_us);
    SAME_STR(attribution_note);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_anomaly(const struct anomaly *a, const struct anomaly *b, const char *where)
{
    SAME_STR(uid);
    SAME_NUM(kind);
    SAME_NUM(status);
    SAME_STR(fault_class);
    SAME_STR(rule);
    SAME_STR(rules_version);
    SAME_NUM(retryable);
    SAME_NUM(precedence);
    SAME_NUM(terminal);
    SAME_STR(nodes);
    SAME_STR(ranks);
    SAME_STR(stream);
    SAME_NUM(offset);
    SAME_STR(excerpt);
    SAME_STR(excerpt_sha256);
    SAME_STR(reporter);
    SAME_NUM(observe_us);
    SAME_NUM(record_us);
    SAME_NUM(status_us);
    SAME_STR(status_reason);
    SAME_NUM(step_at);
    SAME_NUM(progress_after);
    SAME_NUM(repeats);
    SAME_NUM(last_offset);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_advice(const struct advice *a, const struct advice *b, const char *where)
{
    SAME_NUM(generation);
    SAME_NUM(desired);
    SAME_NUM(actionability);
    SAME_STR(exclude_nodes);
    SAME_STR(people_nodes);
    SAME_NUM(n_reasons);
    for (uint32_t i = 0; i < a->n_reasons; i++) {
        SAME_STR(reasons[i].code);
        SAME_STR(reasons[i].param);
        SAME_STR(reasons[i].sentence);
    }
    SAME_STR(summary);
    SAME_NUM(valid_for_ms);
    SAME_STR(correlation_id);
    SAME_STR(anomaly_uid);
    SAME_NUM(may_interrupt);
    SAME_NUM(observed_generation);
    SAME_NUM(disposition);
    SAME_NUM(disposition_reason);
    SAME_STR(status_detail);
    SAME_NUM(status_us);
    SAME_NUM(create_us);
    SAME_NUM(update_us);
    SAME_NUM(approval);
    SAME_NUM(approval_generation);
    SAME_STR(approval_by);
    SAME_STR(approval_reason);
    SAME_NUM(approval_us);
    SAME_NUM(verdict);
    SAME_NUM(verdict_generation);
    SAME_STR(verdict_by);
    SAME_STR(verdict_why);
    SAME_NUM(verdict_us);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_action(const struct action *a, const struct action *b, const char *where)
{
    SAME_STR(journal_id);
    SAME_NUM(journal_seq);
    SAME_NUM(generation);
    SAME_NUM(epoch.term);
    SAME_NUM(epoch.counter);
    SAME_NUM(verb);
    SAME_STR(read_before);
    SAME_NUM(command);
    SAME_NUM(observed);
    SAME_STR(reason);
    SAME_STR(detail);
    SAME_NUM(observe_us);
    SAME_NUM(record_us);
    SAME_NUM(outcome_us);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_node(const struct node *a, const struct node *b, const char *where)
{
    SAME_STR(name);
    SAME_STR(state_raw);
    SAME_STR(reason);
    SAME_NUM(available);
    SAME_NUM(hash);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_exclusion(const struct exclusion *a, const struct exclusion *b, const char *where)
{
    SAME_STR(e.uid);
    SAME_STR(e.request_id);
    SAME_NUM(e.revision);
    SAME_STR(node);
    SAME_STR(reason);
    SAME_STR(owner);
    SAME_NUM(state);
    SAME_NUM(create_us);
    SAME_NUM(expire_us);
    SAME_NUM(lift_us);
    SAME_STR(lifted_by);
    SAME_STR(lift_reason);
}

static SAMPLE_UNUSED void same_incident(const struct incident *a, const struct incident *b, const char *where)
{
    SAME_STR(e.uid);
    SAME_STR(e.request_id);
    SAME_NUM(e.revision);
    SAME_NUM(kind);
    SAME_NUM(closed);
    SAME_STR(summary);
    SAME_STR(subject);
    SAME_NUM(count);
    SAME_NUM(open_us);
    SAME_NUM(update_us);
    SAME_NUM(close_us);
    SAME_STR(closed_by);
    SAME_STR(close_reason);
}

static SAMPLE_UNUSED void same_window(const struct window *a, const struct window *b, const char *where)
{
    SAME_STR(e.uid);
    SAME_STR(e.request_id);
    SAME_NUM(e.revision);
    SAME_NUM(state);
    SAME_NUM(start_us);
    SAME_NUM(end_us);
    SAME_STR(reason);
    SAME_STR(owner);
    SAME_NUM(create_us);
    SAME_STR(ended_by);
}

static SAMPLE_UNUSED void same_checkpoint(const struct checkpoint *a, const struct checkpoint *b, const char *where)
{
    SAME_STR(e.uid);
    SAME_STR(e.request_id);
    SAME_NUM(e.revision);
    SAME_NUM(seq);
    SAME_STR(hash);
    SAME_NUM(record_us);
    SAME_STR(signature);
    SAME_STR(key_id);
    SAME_STR(store_uuid);
}

static SAMPLE_UNUSED void same_policy_doc(const struct policy_doc *a, const struct policy_doc *b, const char *where)
{
    SAME_STR(e.uid);
    SAME_STR(e.request_id);
    SAME_NUM(e.revision);
    SAME_STR(name);
    SAME_NUM(version);
    SAME_STR(document);
    SAME_STR(document_sha256);
    SAME_STR(owner);
    SAME_STR(reason);
    SAME_NUM(create_us);
}

static SAMPLE_UNUSED void same_evidence(const struct evidence *a, const struct evidence *b, const char *where)
{
    SAME_STR(uid);
    SAME_STR(source);
    SAME_STR(kind);
    SAME_NUM(window_start_us);
    SAME_NUM(window_end_us);
    SAME_STR(nodes);
    SAME_STR(ranks);
    SAME_NUM(weight_percent);
    SAME_STR(summary);
    SAME_STR(excerpt_ref);
    SAME_STR(excerpt_sha256);
    SAME_STR(reporter);
    SAME_NUM(observe_us);
    SAME_NUM(record_us);
    SAME_STR(request_id);
    SAME_STR(fault_class);
    SAME_STR(rule);
    SAME_NUM(origin);
    SAME_NUM(late);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_enrolment(const struct enrolment *a, const struct enrolment *b, const char *where)
{
    SAME_STR(uid);
    SAME_STR(token_sha256);
    SAME_STR(principal);
    SAME_NUM(create_us);
    SAME_NUM(expire_us);
    SAME_NUM(redeem_us);
    SAME_STR(key_sha256);
    SAME_STR(serial);
    SAME_NUM(voided);
    SAME_NUM(reused);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_revocation(const struct revocation *a, const struct revocation *b, const char *where)
{
    SAME_STR(uid);
    SAME_STR(serial);
    SAME_NUM(before_us);
    SAME_STR(reason);
    SAME_STR(principal);
    SAME_NUM(create_us);
    SAME_NUM(revision);
}

static SAMPLE_UNUSED void same_below(const struct attempt *a, const struct attempt *b, const char *where)
{
    const struct anomaly *x, *y = b->anomalies;
    const struct action *p, *q = b->actions;

    cr_assert_eq(a->n_anomalies, b->n_anomalies, "%s: %u anomalies, %u", where, a->n_anomalies, b->n_anomalies);
    for (x = a->anomalies; x; x = x->next, y = y->next)
        same_anomaly(x, y, where);
    cr_assert_eq(a->n_actions, b->n_actions, "%s: %u actions, %u", where, a->n_actions, b->n_actions);
    for (p = a->actions; p; p = p->next, q = q->next)
        same_action(p, q, where);
    cr_assert_eq(!a->advice, !b->advice, "%s: advice is missing", where);
    if (a->advice)
        same_advice(a->advice, b->advice, where);
}

/* All that is stored of two fleets. */
static SAMPLE_UNUSED void same_fleet(const struct fleet *f, const struct fleet *g, const char *where)
{
    cr_assert_eq(HASH_COUNT(f->clusters), HASH_COUNT(g->clusters), "%s: number of clusters differs", where);
    for (const struct cluster *c = f->clusters; c; c = c->hh.next) {
        const struct cluster *d = fleet_find_cluster(g, c->name);
        cr_assert(d, "%s: cluster %s is missing", where, c->name);
        same_cluster(c, d, where);
        cr_assert_eq(HASH_COUNT(c->nodes), HASH_COUNT(d->nodes), "%s: number of nodes differs", where);
        for (struct node *n = c->nodes, *m; n; n = n->hh.next) {
            HASH_FIND_STR(d->nodes, n->name, m);
            cr_assert(m, "%s: node %s is missing", where, n->name);
            same_node(n, m, where);
        }
        cr_assert_eq(HASH_COUNT(c->enrolments), HASH_COUNT(d->enrolments), "%s: number of enrolments differs", where);
        for (struct enrolment *e = c->enrolments; e; e = e->hh.next) {
            cr_assert(fleet_find_enrolment(d, e->token_sha256), "%s: enrolment %s is missing", where, e->uid);
            same_enrolment(e, fleet_find_enrolment(d, e->token_sha256), where);
        }
        cr_assert_eq(HASH_COUNT(c->revocations), HASH_COUNT(d->revocations), "%s: number of revocations differs", where);
        for (struct revocation *r = c->revocations; r; r = r->hh.next) {
            cr_assert(fleet_find_revocation(d, r->uid), "%s: revocation %s is missing", where, r->uid);
            same_revocation(r, fleet_find_revocation(d, r->uid), where);
        }
        cr_assert_eq(HASH_CNT(hh_uid, c->jobs_by_uid), HASH_CNT(hh_uid, d->jobs_by_uid), "%s: number of jobs differs", where);
        for (const struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            const struct job *k = fleet_find_job_uid(d, j->uid);
            cr_assert(k, "%s: job %s is missing", where, j->uid);
            same_job(j, k, where);
            cr_assert_eq(j->n_attempts, k->n_attempts, "%s: number of attempts differs", where);
            for (uint32_t i = 0; i < j->n_attempts; i++) {
                same_attempt(j->attempts[i], k->attempts[i], where);
                same_below(j->attempts[i], k->attempts[i], where);
            }
        }
    }
}

#endif
