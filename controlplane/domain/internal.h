/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CONTROLPLANE_DOMAIN_INTERNAL_H
#define CONTROLPLANE_DOMAIN_INTERNAL_H

/* What the files of the fleet's state machine share with each other and with nobody else: intents.c, judge.c, observe.c,
 * finding.c, agents.c, certs.c, load.c and fleet.c, which hands events out. Invariants: see fleet.c. */

/* A table that cannot grow leaves the new element out (hh.tbl is NULL then) instead of ending the program. */
#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(e) ((void)(e))

#include "controlplane/domain/fleet.h"
#include "controlplane/domain/pulse.h"

/* intents.c */
void *fleet_grow(struct intents *in, void *v, size_t n, size_t *cap, size_t size);
void fleet_touch(struct intents *in, enum resource_kind kind, void *object, struct cluster *c);
/* @object leaves the fleet: whoever removes it frees it afterwards. */
void fleet_touch_gone(struct intents *in, enum resource_kind kind, void *object, struct cluster *c);
void fleet_touch_cluster(struct intents *in, struct cluster *c);
void fleet_touch_job(struct intents *in, struct job *j);
void fleet_touch_attempt(struct intents *in, struct attempt *a);
void fleet_touch_anomaly(struct intents *in, struct anomaly *an);
void fleet_touch_advice(struct intents *in, struct advice *ad);
char *fleet_strf(struct intents *in, const char *fmt, ...) ADV_PRINTF(2, 3);
void fleet_str_take(char **dst, char *s);
void fleet_audit(struct intents *in, struct cluster *c, const struct event *ev, int64_t observe_us, const char *verb,
                 const char *subject, const char *fmt, ...) ADV_PRINTF(7, 8);

/* An event of somebody outside. */
void fleet_audit_outside(struct intents *in, struct cluster *c, const struct event *ev, int64_t observe_us,
                         const char *verb, const char *subject, const char *event_id, const char *detail);
/* Erases the details of all events about @subject and what is below it. */
void fleet_audit_erase(struct intents *in, struct cluster *c, const char *subject);
/* Removes events up to that one. */
void fleet_audit_cut(struct intents *in, struct cluster *c, uint64_t through_seq);

/* workflows.c */
/* To where job.workflow says. Errors: -ADV_RESOURCE_EXHAUSTED (it is in none). */
int fleet_workflow_join(struct fleet *f, struct job *j);
void fleet_workflow_leave(struct fleet *f, struct job *j);
void fleet_set_workflow(struct fleet *f, struct intents *in, struct job *j, const char *name);

/* fleet.c */
struct attempt *fleet_last_attempt(const struct job *j);
bool fleet_is_last(const struct attempt *a);

/* judge.c */
void fleet_judge_unlink(struct fleet *f, struct attempt *a);
void fleet_judge_at(struct fleet *f, struct attempt *a, int64_t at_us);
void fleet_judge_by(struct fleet *f, struct attempt *a, int64_t at_us);
/* The one that has waited longest beyond its time; NULL for none. */
struct attempt *fleet_judge_due(const struct fleet *f, int64_t mono_us);
void fleet_advice_close(struct advice *ad);
void fleet_advice_open(struct advice *ad);
void fleet_advice_lower(struct intents *in, struct advice *ad, const struct event *ev);
void fleet_cluster_lower(struct intents *in, struct cluster *c, const struct event *ev);
void fleet_mint_uid(struct fleet *f, int64_t now_us, char buf[32]);
void fleet_anomaly_status(struct intents *in, struct anomaly *an, enum anomaly_status s, const struct event *ev,
                          const char *why);
void fleet_withdraw_all(struct intents *in, struct attempt *a, const struct event *ev, const char *why);
/* @in is NULL while loading. */
bool fleet_make_room(struct intents *in, struct attempt *a, const struct anomaly *candidate);
struct anomaly *fleet_anomaly_add(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* Makes @d the attempt's advice, as a new generation if it orders something else. */
void fleet_put_advice(struct fleet *f, struct intents *in, struct attempt *a, struct decision *d, const struct event *ev);
void fleet_decide_and_put(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* Advice to interrupt a running attempt falls with its reason: to be called after whatever may have taken that away. */
void fleet_spare(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
bool fleet_switched_off(const struct job *j);
void fleet_judge(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);

/* observe.c */
void fleet_set_agent_state(struct intents *in, struct cluster *c, enum agent_state s, const struct event *ev);
/* State is complete again: what waited for the agent is judged. */
void fleet_agent_back(struct fleet *f, struct cluster *c, const struct event *ev);
int fleet_apply_state(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err);

void fleet_job_set_hash(struct cluster *c, struct job *j, bool present, uint64_t hash);

/* finding.c */
void fleet_apply_signature(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
void fleet_apply_source(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
void fleet_apply_telemetry(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
void fleet_apply_notice(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
void fleet_apply_shed(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* Looks whether bytes were shed long enough ago that silence counts again; if not yet, the attempt is looked at again then. */
void fleet_shed_check(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* Nothing of its log is missing but what was shed and is past. */
bool attempt_log_shed(const struct attempt *a);
/* What the log shows now is all that is written: nothing is missing, or what is was shed and is past. */
bool attempt_log_whole(const struct attempt *a);
void fleet_apply_progress(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* The attempt's nodes became known, or a decision is near: what the evidence named may be told from them now. */
void fleet_attribute(struct intents *in, struct attempt *a);
/* NULL also if it was submitted at another time than @submit_unix: an attempt of a job that had the id before, or will. */
struct attempt *fleet_find_attempt(struct fleet *f, struct cluster *c, const char *job_id, uint32_t restart_count,
                                   int64_t submit_unix);

/* What a reporter names, as a host list, without what is no host name; NULL for none. To be freed. */
char *fleet_named_nodes(struct intents *in, const char *const *names, size_t n);
/* More nodes that its reporter names. */
void fleet_anomaly_names(struct intents *in, struct anomaly *an, const char *named);
/* Of the host list @named, which is not empty, what the attempt uses; NULL for none. */
char *fleet_own_nodes(struct intents *in, const struct attempt *a, const char *named);

/* pulse.c */
/* A sign of life: a finding that is no signature. */
void fleet_pulse_sign(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* Whether the attempt's log can be read, or its state, changed. */
void fleet_pulse_look(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
void fleet_pulse_state(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* What is in memory of it alone; what is stored of its rhythm stays. NULL is fine. */
void fleet_pulse_forget(struct attempt *a);
void fleet_apply_witness(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* Evidence of somebody outside that says, by the word of its kind, that the attempt stands still. */
void fleet_evidence_witness(struct fleet *f, struct intents *in, struct attempt *a, const struct evidence *e,
                            const struct event *ev);
void fleet_apply_log_stream(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev);
/* Its silence would be heard. */
bool fleet_heard(const struct attempt *a);
/* How long the attempt may still be silent by its own rhythm; -1: that is not known. */
int64_t fleet_silence_left_us(const struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* A running attempt that has been slow for long: where it is wished for and pays for certain, it is restarted. */
void fleet_judge_straggler(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* A running attempt, whose time it is to be looked at. */
void fleet_judge_silence(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);

/* agents.c */
void fleet_apply_hello(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev);
void fleet_apply_gone(struct intents *in, struct cluster *c, const struct event *ev);
/* Of a cluster that was taken over: its agent was connected to somebody else, who is gone. */
void fleet_tell_lost(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev);
void fleet_apply_report(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev);
void fleet_apply_take(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev);
int fleet_apply_status(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                       struct adv_err *err);
int fleet_apply_action(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                       struct adv_err *err);

/* entries.c */
/* Made with a uid minted here, or @uid_or_null; touched. NULL: no memory. */
struct entry *fleet_entry_new(struct fleet *f, struct intents *in, struct cluster *c, enum resource_kind kind,
                              const char *uid_or_null, const struct event *ev);
void fleet_touch_entry(struct intents *in, struct entry *e);
/* EV_TICK looks at @e then; 0: never. */
void fleet_entry_due(struct fleet *f, struct entry *e, int64_t at_us);
/* Errors: -ADV_ABORTED (ETAG_MISMATCH). */
int fleet_entry_unchanged(const struct entry *e, uint64_t if_revision, struct adv_err *err);
/* Errors: -ADV_NOT_FOUND, -ADV_ABORTED. */
int fleet_entry_get(const struct cluster *c, enum resource_kind kind, const char *uid, uint64_t if_revision,
                    struct entry **ret, struct adv_err *err);

/* exclusions.c */
int fleet_apply_exclusion_add(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev,
                              struct adv_err *err);
int fleet_apply_exclusion_lift(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                               struct adv_err *err);
void fleet_exclusion_due(struct fleet *f, struct intents *in, struct exclusion *x, const struct event *ev);

/* windows.c */
int fleet_apply_window_create(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev,
                              struct adv_err *err);
int fleet_apply_window_end(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                           struct adv_err *err);
void fleet_window_due(struct fleet *f, struct intents *in, struct window *w, const struct event *ev);

/* incidents.c */
void fleet_incident(struct fleet *f, struct intents *in, struct cluster *c, enum incident_kind kind, const char *subject,
                    const struct event *ev, const char *fmt, ...) ADV_PRINTF(7, 8);
int fleet_apply_incident_close(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err);

/* policies.c */
int fleet_apply_policy(struct fleet *f, struct intents *in, struct event *ev, struct adv_err *err);

/* certs.c */
int fleet_apply_enrol_create(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err);
int fleet_apply_enrol_redeem(struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err);
int fleet_apply_cert_renew(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err);
int fleet_apply_cert_revoke(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err);
int fleet_check_cert(const struct cluster *c, const char *serial, int64_t issued_s, struct adv_err *err);

/* forget.c */
int fleet_apply_audit_append(struct intents *in, struct cluster *c, struct event *ev);
int fleet_apply_audit_cut(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err);
void fleet_apply_retention(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev);
/* With all below it; for good. */
void fleet_drop_job(struct fleet *f, struct intents *in, struct job *j);
int fleet_apply_forget(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err);

/* people.c */
int fleet_apply_approval(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err);
int fleet_apply_verdict(struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err);
/* Until when a person may approve @ad. */
int64_t fleet_approval_until(const struct advice *ad);
/* Gives an advice up that waited for a person for too long. */
void fleet_approval_expire(struct intents *in, struct advice *ad, const struct event *ev);

/* attribution.c */
/* A decision about @a comes near, and a provider might tell what nobody knows: it is to be asked. */
void fleet_ask(struct fleet *f, struct intents *in, struct attempt *a, const struct event *ev);
/* How long a decision that rests on nothing but the lack of a named node still waits for the fast answer; 0: not. */
int64_t fleet_ask_left_us(const struct fleet *f, const struct attempt *a, const struct event *ev);
int fleet_apply_attribution(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev, struct adv_err *err);

/* signals.c */
/* By resource name. Errors: -ADV_NOT_FOUND, -ADV_FAILED_PRECONDITION (nobody wants it looked at). */
int fleet_attempt_named(struct cluster *c, const char *name, struct attempt **ret, struct adv_err *err);
/* Judged, or past: whatever somebody outside says now comes too late for a decision. */
bool fleet_too_late(const struct attempt *a);
/* Gives a status to what is told only. */
void fleet_anomaly_told(struct intents *in, struct anomaly *an, const struct event *ev);
int fleet_apply_report_anomaly(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err);
int fleet_apply_report_evidence(struct fleet *f, struct intents *in, struct cluster *c, struct event *ev, struct adv_err *err);
int fleet_apply_report_progress(struct fleet *f, struct intents *in, struct cluster *c, const struct event *ev,
                                struct adv_err *err);

#endif
