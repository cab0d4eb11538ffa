/* SPDX-License-Identifier: Apache-2.0 */
/* What a detector says by hand, numbers about the past, and the audit log beyond looking at it. */

#include "ctl/internal.h"

#include "advisor/v1/report_service.pb-c.h"
#include "advisor/v1/signal_service.pb-c.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/ed25519.h"
#include "common/hostlist.h"
#include "common/json.h"
#include "common/num.h"
#include "ctl/text.h"

#define NODES_MAX 1024

/* ---- signals ------------------------------------------------------------------------------------------------------ */

/* What all signals have: the attempt (its newest when none is given) and when it was seen. */
struct about {
    Advisor__V1__AttemptRef ref;
    char cluster[ARGS_PART_SIZE], job[ARGS_PART_SIZE], id[ADV_UUID_SIZE];
    Google__Protobuf__Timestamp at, *at_or_null;
    struct adv_hostlist *nodes;
    char *node[NODES_MAX];
    size_t n_nodes;
    char *ranks, *rank[256]; /* split in place */
    size_t n_ranks;
};

static void about_done(struct about *a)
{
    (void) adv_hostlist_free(a->nodes);
    free(a->ranks);
}

static int take_lists(const struct ctl *ctl, struct about *a)
{
    const char *nodes = ctl->args->option[OPT_NODES], *ranks = ctl->args->option[OPT_RANKS];
    struct adv_err err = { 0 };
    char *save = NULL;

    if (nodes) {
        a->nodes = adv_hostlist_new(NODES_MAX);
        if (!a->nodes || adv_hostlist_parse(a->nodes, nodes, &err) < 0) {
            adv_err_wrap(&err, "--nodes");
            (void) ctl_bad_usage(err.msg);
            return -1;
        }
        for (; a->n_nodes < adv_hostlist_count(a->nodes); a->n_nodes++)
            a->node[a->n_nodes] = (char *) (uintptr_t) adv_hostlist_nth(a->nodes, a->n_nodes);
    }
    a->ranks = ranks ? strdup(ranks) : NULL;
    for (char *r = a->ranks ? strtok_r(a->ranks, ",", &save) : NULL; r; r = strtok_r(NULL, ",", &save)) {
        if (a->n_ranks == ADV_ARRAY_LEN(a->rank)) {
            (void) ctl_bad_usage("--ranks: at most 256");
            return -1;
        }
        a->rank[a->n_ranks++] = r;
    }
    return 0;
}

static int take_about(struct ctl *ctl, struct about *a, enum ctl_exit *ret_exit)
{
    int64_t attempt;
    struct failure f;

    *a = (struct about) { .ref = ADVISOR__V1__ATTEMPT_REF__INIT };
    *ret_exit = CTL_EXIT_USAGE;
    if (ctl_job_ref(ctl, true, a->cluster, a->job, &a->ref, &attempt) < 0 ||
        ctl_time(ctl, OPT_AT, "at", &a->at, &a->at_or_null) < 0 || take_lists(ctl, a) < 0)
        return -1;
    a->ref.restart_count = attempt < 0 ? 0 : (uint32_t) attempt;
    if (attempt < 0 && ctl_newest_judged(ctl, &a->ref, false, &f) < 0) {
        *ret_exit = ctl_failed(ctl, &f);
        return -1;
    }
    ctl_request_id(a->id);
    return 0;
}

static int take_step(const struct ctl *ctl, const char *text, uint64_t *ret)
{
    struct adv_err err = { 0 };

    (void) ctl;
    if (adv_parse_u64(text, 1, UINT64_MAX, ret, &err) == 0)
        return 0;
    adv_err_wrap(&err, "STEP");
    (void) ctl_bad_usage(err.msg);
    return -1;
}

static enum ctl_exit report_anomaly(struct ctl *ctl, struct about *a)
{
    Advisor__V1__ReportAnomalyRequest q = ADVISOR__V1__REPORT_ANOMALY_REQUEST__INIT;
    int kind = ctl_word("kind", ctl->args->word[1], &advisor__v1__anomaly_kind__descriptor), retryable = 0;

    if (kind < 0)
        return CTL_EXIT_USAGE;
    if (ctl->args->option[OPT_RETRYABLE] &&
        (retryable = ctl_word("--retryable", ctl->args->option[OPT_RETRYABLE], &advisor__v1__retryability__descriptor)) < 0)
        return CTL_EXIT_USAGE;
    q.ref = &a->ref;
    q.request_id = a->id;
    q.kind = (Advisor__V1__AnomalyKind) kind;
    q.rule = (char *) (uintptr_t) ctl->args->word[2];
    q.fault_class = ctl_text(ctl, OPT_CLASS);
    q.retryable = (Advisor__V1__Retryability) retryable;
    q.nodes = a->node;
    q.n_nodes = a->n_nodes;
    q.ranks = a->rank;
    q.n_ranks = a->n_ranks;
    q.excerpt = ctl_text(ctl, OPT_EXCERPT);
    q.observe_time = a->at_or_null;
    CTL_ONE(ctl, SignalService, ReportAnomaly, q, Advisor__V1__ReportAnomalyResponse,
            &advisor__v1__report_anomaly_response__descriptor, anomaly, show_anomalies);
}

static enum ctl_exit report_evidence(struct ctl *ctl, struct about *a)
{
    Advisor__V1__ReportEvidenceRequest q = ADVISOR__V1__REPORT_EVIDENCE_REQUEST__INIT;
    Google__Protobuf__Timestamp start, end;
    const char *weight = ctl->args->option[OPT_WEIGHT];
    struct adv_err err = { 0 };
    uint64_t percent = 0;

    if (weight && adv_parse_u64(weight, 0, 100, &percent, &err) < 0) {
        adv_err_wrap(&err, "--weight");
        return ctl_bad_usage(err.msg);
    }
    if (ctl_time(ctl, OPT_START, "start", &start, &q.window_start_time) < 0 ||
        ctl_time(ctl, OPT_END, "end", &end, &q.window_end_time) < 0)
        return CTL_EXIT_USAGE;
    q.ref = &a->ref;
    q.request_id = a->id;
    q.source = (char *) (uintptr_t) ctl->args->word[1];
    q.kind = (char *) (uintptr_t) ctl->args->word[2];
    q.nodes = a->node;
    q.n_nodes = a->n_nodes;
    q.ranks = a->rank;
    q.n_ranks = a->n_ranks;
    q.weight_percent = (uint32_t) percent;
    q.fault_class = ctl_text(ctl, OPT_CLASS);
    q.summary = ctl_text(ctl, OPT_EXCERPT);
    q.observe_time = a->at_or_null;
    CTL_ONE(ctl, SignalService, ReportEvidence, q, Advisor__V1__ReportEvidenceResponse,
            &advisor__v1__report_evidence_response__descriptor, evidence, show_evidence_rows);
}

static enum ctl_exit report_progress(struct ctl *ctl, struct about *a)
{
    Advisor__V1__ReportProgressRequest q = ADVISOR__V1__REPORT_PROGRESS_REQUEST__INIT;

    if (take_step(ctl, ctl->args->word[1], &q.step) < 0)
        return CTL_EXIT_USAGE;
    q.ref = &a->ref;
    q.request_id = a->id;
    q.observe_time = a->at_or_null;
    CTL_ONE(ctl, SignalService, ReportProgress, q, Advisor__V1__ReportProgressResponse,
            &advisor__v1__report_progress_response__descriptor, attempt, show_attempt_rows);
}

static enum ctl_exit report_milestone(struct ctl *ctl, struct about *a)
{
    Advisor__V1__ReportMilestoneRequest q = ADVISOR__V1__REPORT_MILESTONE_REQUEST__INIT;
    int milestone = ctl_word("milestone", ctl->args->word[1], &advisor__v1__reported_milestone__descriptor);

    if (milestone < 0 || take_step(ctl, ctl->args->word[2], &q.step) < 0)
        return CTL_EXIT_USAGE;
    q.ref = &a->ref;
    q.request_id = a->id;
    q.milestone = (Advisor__V1__ReportedMilestone) milestone;
    q.observe_time = a->at_or_null;
    CTL_ONE(ctl, SignalService, ReportMilestone, q, Advisor__V1__ReportMilestoneResponse,
            &advisor__v1__report_milestone_response__descriptor, attempt, show_attempt_rows);
}

static enum ctl_exit with_attempt(struct ctl *ctl, enum ctl_exit (*report)(struct ctl *ctl, struct about *a))
{
    struct about a;
    enum ctl_exit x;

    if (take_about(ctl, &a, &x) == 0)
        x = report(ctl, &a);
    about_done(&a);
    return x;
}

enum ctl_exit cmd_signal_anomaly(struct ctl *ctl)
{
    return with_attempt(ctl, report_anomaly);
}

enum ctl_exit cmd_signal_evidence(struct ctl *ctl)
{
    return with_attempt(ctl, report_evidence);
}

enum ctl_exit cmd_signal_progress(struct ctl *ctl)
{
    return with_attempt(ctl, report_progress);
}

enum ctl_exit cmd_signal_milestone(struct ctl *ctl)
{
    return with_attempt(ctl, report_milestone);
}

/* ---- reports ------------------------------------------------------------------------------------------------------ */

enum ctl_exit cmd_report_latency(struct ctl *ctl)
{
    Advisor__V1__GetLatencyReportRequest q = ADVISOR__V1__GET_LATENCY_REPORT_REQUEST__INIT;
    Advisor__V1__GetLatencyReportResponse *m;
    Google__Protobuf__Timestamp start, end;
    char name[300];
    struct failure f;
    enum ctl_exit x;

    if (ctl_time(ctl, OPT_START, "start", &start, &q.start_time) < 0 || ctl_time(ctl, OPT_END, "end", &end, &q.end_time) < 0)
        return CTL_EXIT_USAGE;
    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.fault_class = ctl_text(ctl, OPT_CLASS);
    if (client_call(ctl->client, CTL_PATH(ReportService, GetLatencyReport), &q.base,
                    &advisor__v1__get_latency_report_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = ctl_wants_json(ctl) ? ctl_json(&m->base) : ctl_printed(show_latency(&ctl->screen, m->rows, m->n_rows));
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

enum ctl_exit cmd_report_outcome(struct ctl *ctl)
{
    Advisor__V1__GetOutcomeReportRequest q = ADVISOR__V1__GET_OUTCOME_REPORT_REQUEST__INIT;
    Advisor__V1__GetOutcomeReportResponse *m;
    Google__Protobuf__Timestamp start, end;
    char name[300];
    struct failure f;
    enum ctl_exit x;

    if (ctl_time(ctl, OPT_START, "start", &start, &q.start_time) < 0 || ctl_time(ctl, OPT_END, "end", &end, &q.end_time) < 0)
        return CTL_EXIT_USAGE;
    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->option[OPT_CLUSTER], name);
    q.fault_class = ctl_text(ctl, OPT_CLASS);
    if (client_call(ctl->client, CTL_PATH(ReportService, GetOutcomeReport), &q.base,
                    &advisor__v1__get_outcome_report_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    x = ctl_wants_json(ctl) ? ctl_json(&m->base) : ctl_printed(show_outcome(&ctl->screen, m->rows, m->n_rows));
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

/* ---- audit -------------------------------------------------------------------------------------------------------- */

enum ctl_exit cmd_audit_append(struct ctl *ctl)
{
    Advisor__V1__AppendAuditEventsRequest q = ADVISOR__V1__APPEND_AUDIT_EVENTS_REQUEST__INIT;
    Advisor__V1__NewAuditEvent e = ADVISOR__V1__NEW_AUDIT_EVENT__INIT, *events[] = { &e };
    Advisor__V1__AppendAuditEventsResponse *m;
    Google__Protobuf__Timestamp at;
    char name[300], id[ADV_UUID_SIZE];
    const Advisor__V1__AppendAuditResult *r;
    struct failure f;
    enum ctl_exit x;

    if (ctl_time(ctl, OPT_AT, "at", &at, &e.observe_time) < 0)
        return CTL_EXIT_USAGE;
    ctl_request_id(id);
    e.event_id = ctl->args->option[OPT_EVENT_ID] ? ctl_text(ctl, OPT_EVENT_ID) : id;
    e.verb = (char *) (uintptr_t) ctl->args->word[1];
    e.subject = (char *) (uintptr_t) ctl->args->word[2];
    e.detail = (char *) (uintptr_t) (ctl->args->word[3] ? ctl->args->word[3] : "");
    q.parent = (char *) (uintptr_t) ctl_parent(ctl->args->word[0], name);
    q.events = events;
    q.n_events = 1;
    if (client_call(ctl->client, CTL_PATH(AuditService, AppendAuditEvents), &q.base,
                    &advisor__v1__append_audit_events_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    r = m->n_results == 1 ? m->results[0] : NULL;
    if (ctl_wants_json(ctl))
        x = ctl_json(&m->base);
    else if (r && r->status != ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_REFUSED)
        x = ctl_printed(fprintf(stdout, "%s: event %" PRIu64 "%s\n", q.parent, r->seq,
                                r->status == ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_DUPLICATE ?
                                    ", which was there already" : ""));
    else
        x = CTL_EXIT_OK;
    if (!r || r->status == ADVISOR__V1__APPEND_AUDIT_STATUS__APPEND_AUDIT_STATUS_REFUSED) {
        (void) fprintf(stderr, "advisorctl: refused: %s: %s\n", r ? r->reason : "-", r ? r->message : "no answer");
        x = CTL_EXIT_REFUSED;
    }
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}

/* A walk along one chain, as its events come. */
struct chain {
    struct ctl *ctl;
    const struct adv_ed25519 *key; /* or NULL */
    char parent[300];
    uint64_t events, first, last, erased, expect_seq;
    char last_hash[ADV_SHA256_HEX_SIZE], expect_hash[ADV_SHA256_HEX_SIZE];
    uint64_t head_seq; /* the newest event before the walk began, as the control plane checked it; 0: none yet */
    char head_hash[ADV_SHA256_HEX_SIZE];
    bool head_seen, expect_seen, signed_start;
    char problem[400];
};

static void broken(struct chain *c, uint64_t seq, const char *why)
{
    if (!*c->problem)
        (void) snprintf(c->problem, sizeof(c->problem), "event %" PRIu64 ": %s", seq, why);
}

static void compare_expected(struct chain *c, uint64_t seq, const char *hash)
{
    c->expect_seen = true;
    if (!adv_streq(hash, c->expect_hash))
        broken(c, seq, "its hash is not the one that was noted");
}

static bool checkpoint_signed(const struct chain *c, const Advisor__V1__AuditCheckpoint *cp)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "advisor-audit-checkpoint-v1 %s %s %" PRIu64 " %s %" PRId64, cp->store_uuid, cp->cluster,
                     cp->seq, cp->hash, show_time_us(cp->record_time));

    return n > 0 && (size_t) n < sizeof(text) &&
           adv_ed25519_verify(c->key, text, (size_t) n, cp->signature.data, cp->signature.len);
}

/* The oldest event follows something that was removed: a checkpoint has to say what. */
static int check_start(struct chain *c, const Advisor__V1__AuditEvent *e, struct failure *f)
{
    Advisor__V1__ListAuditCheckpointsRequest q = ADVISOR__V1__LIST_AUDIT_CHECKPOINTS_REQUEST__INIT;
    Advisor__V1__ListAuditCheckpointsResponse *m;
    const Advisor__V1__AuditCheckpoint *hit = NULL;

    q.parent = c->parent;
    q.page_size = CTL_PAGE_SIZE;
    if (ctl_call_pages(c->ctl, CTL_PATH(AuditService, ListAuditCheckpoints), &q.base, &q.page_token,
                       &advisor__v1__list_audit_checkpoints_response__descriptor, (ProtobufCMessage **) &m, f) < 0)
        return -1;
    for (size_t i = 0; i < m->n_checkpoints; i++)
        if (m->checkpoints[i]->seq + 1 == e->seq && adv_streq(m->checkpoints[i]->hash, e->prev_hash))
            hit = m->checkpoints[i];
    if (hit && hit->seq == c->expect_seq)
        compare_expected(c, hit->seq, hit->hash); /* it is gone, and yet what it was is told */
    if (!hit)
        broken(c, e->seq, "it is the oldest event kept, and no checkpoint says what was before it");
    else if (c->key && !(c->signed_start = checkpoint_signed(c, hit)))
        broken(c, e->seq, "the checkpoint before it is not signed with that key");
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return 0;
}

static bool is_hash_of(const struct adv_buf *text, const char *want)
{
    uint8_t raw[ADV_SHA256_LEN];
    char hex[ADV_SHA256_HEX_SIZE];

    return !adv_buf_error(text) && adv_sha256(text->data, text->len, raw, NULL) == 0 &&
           adv_streq(adv_hex(raw, sizeof(raw), hex), want);
}

/* As resources.proto says; computed here, so that the control plane is believed in nothing. */
static bool event_hash_good(const Advisor__V1__AuditEvent *e)
{
    const char *const parts[] = { e->cluster, e->prev_hash, e->principal, e->verb, e->subject, e->event_id, e->detail_sha256 };
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 1 << 20);
    (void) adv_buf_appendf(&b, "%" PRIu64 " %" PRId64 " %" PRId64, e->seq, show_time_us(e->observe_time),
                           show_time_us(e->record_time));
    for (size_t i = 0; i < ADV_ARRAY_LEN(parts); i++)
        (void) adv_buf_appendf(&b, " %zu:%s", strlen(parts[i]), parts[i]);
    return is_hash_of(&b, e->hash);
}

static bool detail_hash_good(const Advisor__V1__AuditEvent *e)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 1 << 20);
    (void) adv_buf_appendf(&b, "%s%s", e->detail_salt, e->detail);
    return is_hash_of(&b, e->detail_sha256);
}

static void check_event(struct chain *c, const Advisor__V1__AuditEvent *e)
{
    if (c->events && e->seq != c->last + 1)
        broken(c, e->seq, "an event before it is missing");
    else if (c->events && !adv_streq(e->prev_hash, c->last_hash))
        broken(c, e->seq, "it does not follow from the event before it");
    else if (!event_hash_good(e))
        broken(c, e->seq, "it was changed: its hash is another one");
    else if (e->detail_erased ? *e->detail || *e->detail_salt : !detail_hash_good(e))
        broken(c, e->seq, "its detail was changed");
    if (e->seq == c->expect_seq)
        compare_expected(c, e->seq, e->hash);
    if (e->seq == c->head_seq) {
        c->head_seen = true;
        if (!adv_streq(e->hash, c->head_hash))
            broken(c, e->seq, "its hash is not the one of the cluster's newest event");
    }
    c->erased += e->detail_erased;
    if (!c->events++)
        c->first = e->seq;
    c->last = e->seq;
    (void) snprintf(c->last_hash, sizeof(c->last_hash), "%s", e->hash);
}

/* Where the chain ends only the cluster's own record tells, which the control plane compares with it: an end that was cut
 * off leaves a chain that is whole in itself. Asked before the walk, as events may be added meanwhile. */
static int learn_head(struct chain *c, struct failure *f)
{
    Advisor__V1__VerifyAuditRequest q = ADVISOR__V1__VERIFY_AUDIT_REQUEST__INIT;
    Advisor__V1__VerifyAuditResponse *m;
    adv_auto_free char *token = NULL;
    char why[300];
    bool intact;

    q.parent = c->parent;
    do {
        q.page_token = token ? token : q.page_token;
        if (client_call(c->ctl->client, CTL_PATH(AuditService, VerifyAudit), &q.base,
                        &advisor__v1__verify_audit_response__descriptor, (ProtobufCMessage **) &m, f) < 0)
            return -1;
        if (m->events) {
            c->head_seq = m->last_seq;
            (void) snprintf(c->head_hash, sizeof(c->head_hash), "%s", m->last_hash);
        }
        intact = m->intact;
        if (!intact) {
            (void) snprintf(why, sizeof(why), "%.200s (says the control plane)", m->problem);
            broken(c, m->broken_seq, why);
        }
        free(token);
        token = strdup(m->next_page_token);
        protobuf_c_message_free_unpacked(&m->base, NULL);
        if (!token) {
            *f = (struct failure) { .exit_code = CTL_EXIT_REFUSED, .code = ADV_RESOURCE_EXHAUSTED, .message = "no memory" };
            return -1;
        }
    } while (intact && *token);
    return 0;
}

static int walk_chain(struct chain *c, struct failure *f)
{
    Advisor__V1__ListAuditEventsRequest q = ADVISOR__V1__LIST_AUDIT_EVENTS_REQUEST__INIT;
    Advisor__V1__ListAuditEventsResponse *m;
    adv_auto_free char *token = NULL;

    q.parent = c->parent;
    q.page_size = CTL_PAGE_SIZE;
    do { /* page by page: a log may be longer than memory */
        q.page_token = token ? token : q.page_token;
        if (client_call(c->ctl->client, CTL_PATH(AuditService, ListAuditEvents), &q.base,
                        &advisor__v1__list_audit_events_response__descriptor, (ProtobufCMessage **) &m, f) < 0)
            return -1;
        for (size_t i = 0; i < m->n_events; i++) {
            const Advisor__V1__AuditEvent *e = m->events[i];
            if (!c->events && e->seq > 1 && check_start(c, e, f) < 0) {
                protobuf_c_message_free_unpacked(&m->base, NULL);
                return -1;
            }
            if (!c->events && e->seq == 1 && *e->prev_hash)
                broken(c, 1, "it does not begin the chain");
            check_event(c, e);
        }
        free(token);
        token = strdup(m->next_page_token);
        protobuf_c_message_free_unpacked(&m->base, NULL);
    } while (token && *token);
    if (c->head_seq && !c->head_seen && c->head_seq >= c->first)
        broken(c, c->head_seq, "it was the newest one a moment ago, and is missing");
    if (c->expect_seq && !c->expect_seen && c->expect_seq >= c->first)
        broken(c, c->expect_seq, "it was noted, and is missing");
    return 0;
}

static int print_chain_json(const struct chain *c, bool unjudged)
{
    adv_auto_free char *problem = NULL;
    json_t *text = json_string(c->problem);

    /* a server of another release may say what is no UTF-8 */
    problem = text ? json_dumps(text, JSON_ENCODE_ANY) : strdup("\"?\"");
    json_decref(text);
    if (!problem)
        return -1;
    return fprintf(stdout, "{\"parent\": \"%s\", \"events\": %" PRIu64 ", \"firstSeq\": %" PRIu64 ", \"lastSeq\": %" PRIu64
                   ", \"lastHash\": \"%s\", \"erasedDetails\": %" PRIu64
                   ", \"intact\": %s, \"expectJudged\": %s, \"problem\": %s}\n",
                   c->parent, c->events, c->first, c->last, c->last_hash, c->erased, *c->problem ? "false" : "true",
                   unjudged || !c->expect_seq ? "false" : "true", problem);
}

static int print_chain(const struct chain *c, bool unjudged)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 4096);
    if (*c->problem) {
        text_escape(&b, c->problem);
        return fprintf(stdout, "%s: BROKEN at %s\n", c->parent, adv_buf_error(&b) ? "" : b.data);
    }
    if (c->erased)
        (void) adv_buf_appendf(&b, ", details of %" PRIu64 " erased", c->erased);
    if (unjudged)
        (void) adv_buf_appendf(&b, "; event %" PRIu64 " that was noted is older than the oldest kept, %" PRIu64
                               ": whether it was as noted cannot be judged", c->expect_seq, c->first);
    return fprintf(stdout, "%s: %" PRIu64 " events are whole%s, newest %" PRIu64 ":%s%s\n", c->parent, c->events,
                   c->signed_start ? ", from a signed checkpoint" : "", c->last, c->events ? c->last_hash : "-",
                   b.len ? b.data : "");
}

static enum ctl_exit verify_one(struct ctl *ctl, const char *name, const struct adv_ed25519 *key, uint64_t expect_seq,
                                const char *expect_hash)
{
    struct chain c = { .ctl = ctl, .key = key, .expect_seq = expect_seq };
    struct failure f;
    bool unjudged;

    (void) snprintf(c.parent, sizeof(c.parent), "%s", name);
    (void) snprintf(c.expect_hash, sizeof(c.expect_hash), "%s", expect_hash);
    if (learn_head(&c, &f) < 0 || walk_chain(&c, &f) < 0)
        return ctl_failed(ctl, &f);
    unjudged = !*c.problem && expect_seq && !c.expect_seen;
    if (ctl_printed(ctl_wants_json(ctl) ? print_chain_json(&c, unjudged) : print_chain(&c, unjudged)) != CTL_EXIT_OK)
        return CTL_EXIT_REFUSED;
    return *c.problem || unjudged ? CTL_EXIT_REFUSED : CTL_EXIT_OK;
}

/* "SEQ:HASH" */
static int take_expect(const struct ctl *ctl, uint64_t *ret_seq, char ret_hash[ADV_SHA256_HEX_SIZE])
{
    const char *text = ctl->args->option[OPT_EXPECT], *colon = text ? strchr(text, ':') : NULL;
    char number[24];

    *ret_seq = 0;
    *ret_hash = '\0';
    if (!text)
        return 0;
    (void) snprintf(number, sizeof(number), "%.*s", colon ? (int) (colon - text) : 0, text);
    if (!colon || strlen(colon + 1) != 64 || strspn(colon + 1, "0123456789abcdef") != 64 ||
        adv_parse_u64(number, 1, UINT64_MAX, ret_seq, NULL) < 0) {
        (void) ctl_bad_usage("--expect: expected SEQ:HASH, as this command prints it");
        return -1;
    }
    (void) strcpy(ret_hash, colon + 1);
    return 0;
}

enum ctl_exit cmd_audit_verify(struct ctl *ctl)
{
    Advisor__V1__ListClustersRequest q = ADVISOR__V1__LIST_CLUSTERS_REQUEST__INIT;
    Advisor__V1__ListClustersResponse *m;
    const char *path = ctl->args->option[OPT_PUBLIC_KEY], *one = ctl->args->word[0];
    ADV_AUTO(adv_ed25519) key = NULL;
    char hash[ADV_SHA256_HEX_SIZE], name[300];
    struct adv_err err = { 0 };
    struct failure f;
    enum ctl_exit x = CTL_EXIT_OK, y;
    uint64_t seq;

    if (take_expect(ctl, &seq, hash) < 0)
        return CTL_EXIT_USAGE;
    if (path && adv_ed25519_load(path, true, &key, &err) < 0)
        return ctl_bad_usage(err.msg);
    if (one)
        return verify_one(ctl, ctl_parent(one, name), key, seq, hash);
    if (seq)
        return ctl_bad_usage("--expect: say of which cluster");
    q.page_size = CTL_PAGE_SIZE;
    if (ctl_call_pages(ctl, CTL_PATH(FleetService, ListClusters), &q.base, &q.page_token,
                       &advisor__v1__list_clusters_response__descriptor, (ProtobufCMessage **) &m, &f) < 0)
        return ctl_failed(ctl, &f);
    for (size_t i = 0; i <= m->n_clusters; i++) {
        y = verify_one(ctl, i < m->n_clusters ? m->clusters[i]->name : "clusters/_fleet", key, 0, "");
        x = y != CTL_EXIT_OK ? y : x;
    }
    protobuf_c_message_free_unpacked(&m->base, NULL);
    return x;
}
