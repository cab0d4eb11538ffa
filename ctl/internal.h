/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_CTL_INTERNAL_H
#define ADVISOR_CTL_INTERNAL_H

/* What the files of commands share: commands.c (looking), operate.c (changing), reports.c (signals, reports, audit). */

#include <inttypes.h>

#include "common/uuid.h"
#include "ctl/commands.h"

#define CTL_PATH(service, method) "/advisor.v1." #service "/" #method

/* Says what failed; returns the exit code. */
enum ctl_exit ctl_failed(const struct ctl *ctl, const struct failure *f);
enum ctl_exit ctl_bad_usage(const char *what);
/* The exit code after a show_…() that returned @r. */
enum ctl_exit ctl_printed(int r);
bool ctl_wants_json(const struct ctl *ctl);
enum ctl_exit ctl_json(const ProtobufCMessage *m);

/* "clusters/NAME", or "clusters/-" without a name; too long names stay too long and are refused by the server. */
const char *ctl_parent(const char *cluster, char out[300]);
/* Each run of the program is one request; the id makes a retry below us harmless. */
void ctl_request_id(char out[ADV_UUID_SIZE]);
/* Fills @ref from the command's first word, "CLUSTER/JOBID[/ATTEMPT]". Errors: -1, already said. */
adv_must_check int ctl_job_ref(const struct ctl *ctl, bool attempt_allowed, char cluster[ARGS_PART_SIZE],
                               char job[ARGS_PART_SIZE], Advisor__V1__AttemptRef *ref, int64_t *ret_attempt);
/* @ref's restart count becomes that of the newest attempt that has an advice, or of the newest. */
adv_must_check int ctl_newest_judged(struct ctl *ctl, Advisor__V1__AttemptRef *ref, bool judged, struct failure *f);

/* Calls until there is no next page. @page_token is the member of @req. */
adv_must_check int ctl_call_pages(struct ctl *ctl, const char *path, const ProtobufCMessage *req, char **page_token,
                                  const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret, struct failure *f);
#define CTL_PAGE_SIZE 500

/* The enum value of a word, -1 after having said what is expected. */
int ctl_word(const char *what, const char *word, const ProtobufCEnumDescriptor *type);
/* A time of an option, in the future or past: RFC 3339, or with '+' or '-' a duration from now. NULL when not given.
 * Errors: -1, already said. */
adv_must_check int ctl_time(const struct ctl *ctl, enum option_id o, const char *name, Google__Protobuf__Timestamp *t,
                            Google__Protobuf__Timestamp **ret);
/* An option's text, "" when it is not given. */
char *ctl_text(const struct ctl *ctl, enum option_id o);

/* Lists share their shape: a request with page, a response whose items one function shows. */
#define CTL_LIST(ctl, service, method, req, Resp, resp_type, items, n_items, show)                                         \
    do {                                                                                                                   \
        struct failure f_;                                                                                                 \
        Resp *m_;                                                                                                          \
        enum ctl_exit x_;                                                                                                  \
        (req).page_size = CTL_PAGE_SIZE;                                                                                   \
        if (ctl_call_pages(ctl, CTL_PATH(service, method), &(req).base, &(req).page_token, resp_type,                      \
                           (ProtobufCMessage **) &m_, &f_) < 0)                                                            \
            return ctl_failed(ctl, &f_);                                                                                   \
        x_ = ctl_wants_json(ctl) ? ctl_json(&m_->base) : ctl_printed(show(&(ctl)->screen, m_->items, m_->n_items));        \
        protobuf_c_message_free_unpacked(&m_->base, NULL);                                                                 \
        return x_;                                                                                                         \
    } while (0)

/* A call that answers with one resource. */
#define CTL_ONE(ctl, service, method, req, Resp, resp_type, item, show)                                                    \
    do {                                                                                                                   \
        struct failure f_;                                                                                                 \
        Resp *m_;                                                                                                          \
        enum ctl_exit x_;                                                                                                  \
        if (client_call((ctl)->client, CTL_PATH(service, method), &(req).base, resp_type, (ProtobufCMessage **) &m_, &f_) < 0) \
            return ctl_failed(ctl, &f_);                                                                                   \
        x_ = !m_->item             ? CTL_EXIT_REFUSED :                                                                    \
             ctl_wants_json(ctl)   ? ctl_json(&m_->item->base) :                                                           \
                                     ctl_printed(show(&(ctl)->screen, &m_->item, 1));                                      \
        protobuf_c_message_free_unpacked(&m_->base, NULL);                                                                 \
        return x_;                                                                                                         \
    } while (0)

/* operate.c */
enum ctl_exit cmd_approve(struct ctl *ctl);
enum ctl_exit cmd_reject(struct ctl *ctl);
enum ctl_exit cmd_verdict(struct ctl *ctl);
enum ctl_exit cmd_exclusions(struct ctl *ctl);
enum ctl_exit cmd_exclude(struct ctl *ctl);
enum ctl_exit cmd_lift(struct ctl *ctl);
enum ctl_exit cmd_windows(struct ctl *ctl);
enum ctl_exit cmd_window_create(struct ctl *ctl);
enum ctl_exit cmd_window_end(struct ctl *ctl);
enum ctl_exit cmd_incidents(struct ctl *ctl);
enum ctl_exit cmd_incident_close(struct ctl *ctl);
enum ctl_exit cmd_policies(struct ctl *ctl);
enum ctl_exit cmd_policy_get(struct ctl *ctl);
enum ctl_exit cmd_policy_versions(struct ctl *ctl);
enum ctl_exit cmd_policy_apply(struct ctl *ctl);
enum ctl_exit cmd_policy_validate(struct ctl *ctl);
enum ctl_exit cmd_forget(struct ctl *ctl);

/* reports.c */
enum ctl_exit cmd_signal_anomaly(struct ctl *ctl);
enum ctl_exit cmd_signal_evidence(struct ctl *ctl);
enum ctl_exit cmd_signal_progress(struct ctl *ctl);
enum ctl_exit cmd_signal_milestone(struct ctl *ctl);
enum ctl_exit cmd_report_latency(struct ctl *ctl);
enum ctl_exit cmd_report_outcome(struct ctl *ctl);
enum ctl_exit cmd_audit_append(struct ctl *ctl);
enum ctl_exit cmd_audit_verify(struct ctl *ctl);

#endif
