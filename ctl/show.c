/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/show.h"

#include <ctype.h>
#include <inttypes.h>

#include "ctl/table.h"
#include "ctl/text.h"

/* ---- words ------------------------------------------------------------------------------------------------------ */

int64_t show_time_us(const Google__Protobuf__Timestamp *t)
{
    if (!t || t->seconds < 0 || t->seconds > INT64_C(253402300799) || t->nanos < 0)
        return 0;
    return t->seconds * 1000000 + t->nanos / 1000;
}

/* "JOB_STATE_" of an enum whose zero is JOB_STATE_UNSPECIFIED. */
static size_t prefix_of(const ProtobufCEnumDescriptor *type)
{
    const ProtobufCEnumValue *zero = protobuf_c_enum_descriptor_get_value(type, 0);
    size_t len = zero ? strlen(zero->name) : 0, tail = strlen("UNSPECIFIED");

    return len > tail ? len - tail : 0;
}

const char *show_word(const ProtobufCEnumDescriptor *type, int value, char out[SHOW_WORD_SIZE])
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
    size_t skip = prefix_of(type), i = 0;

    if (!v) {
        (void) snprintf(out, SHOW_WORD_SIZE, "%d", value);
        return out;
    }
    if (value == 0)
        return strcpy(out, "-");
    for (const char *p = v->name + skip; *p && i + 1 < SHOW_WORD_SIZE; p++)
        out[i++] = (char) (*p == '_' ? ' ' : tolower((unsigned char) *p));
    out[i] = '\0';
    return out;
}

int show_parse_word(const ProtobufCEnumDescriptor *type, const char *word, size_t len, int *ret)
{
    size_t skip = prefix_of(type);

    for (unsigned i = 0; i < type->n_values; i++) {
        const char *name = type->values[i].name + skip;
        size_t k = 0;

        while (k < len && name[k] && (toupper((unsigned char) word[k]) == name[k] ||
                                      (name[k] == '_' && (word[k] == '-' || word[k] == ' '))))
            k++;
        if (type->values[i].value != 0 && k == len && name[k] == '\0') {
            *ret = type->values[i].value;
            return 0;
        }
    }
    return -1;
}

#define WORD(type, value, buf) show_word(&advisor__v1__##type##__descriptor, (int) (value), buf)

static const char *or_dash(const char *s)
{
    return s && *s ? s : "-";
}

/* The part of a resource name behind the n-th '/': "clusters/a/jobs/x", 1 -> "a/jobs/x". */
static const char *behind(const char *name, int n)
{
    for (; n > 0 && name; n--) {
        name = strchr(name, '/');
        name = name ? name + 1 : NULL;
    }
    return name ? name : "";
}

static const char *age(const struct screen *s, const Google__Protobuf__Timestamp *t, char out[TEXT_TIME_SIZE])
{
    int64_t us = show_time_us(t);

    return us ? text_span(us < s->now_us ? s->now_us - us : 0, out) : strcpy(out, "-");
}

/* "clusters/a/..." -> "a", cut to fit. */
static const char *cluster_of(const char *name, char out[SHOW_WORD_SIZE])
{
    const char *c = behind(name, 1);

    (void) snprintf(out, SHOW_WORD_SIZE, "%.*s", (int) strcspn(c, "/"), c);
    return out;
}

static void heading(const struct screen *s, const char *text)
{
    (void) fprintf(s->out, "\n%s%s%s\n", s->bold ? "\033[1m" : "", text, s->bold ? "\033[0m" : "");
}

/* One "name:  value" line; left out when @value is empty. */
static void pair(const struct screen *s, const char *name, const char *fmt, ...) ADV_PRINTF(3, 4);
static void pair(const struct screen *s, const char *name, const char *fmt, ...)
{
    ADV_AUTO_DONE(adv_buf) raw;
    ADV_AUTO_DONE(adv_buf) clean;
    va_list ap;

    adv_buf_init(&raw, 64 << 10);
    adv_buf_init(&clean, 256 << 10);
    va_start(ap, fmt);
    (void) adv_buf_vappendf(&raw, fmt, ap);
    va_end(ap);
    text_escape(&clean, raw.data);
    if (clean.len)
        (void) fprintf(s->out, "%-11s %s\n", name, clean.data);
}

static void paragraph(const struct screen *s, size_t indent, const char *text)
{
    ADV_AUTO_DONE(adv_buf) clean;

    adv_buf_init(&clean, 256 << 10);
    text_escape(&clean, text);
    text_wrap(s->out, clean.data, s->columns, indent);
}

static int put_table(const struct screen *s, const struct table *t, size_t indent)
{
    return table_print(t, s->out, s->columns, s->bold, indent);
}

/* ---- fleet ------------------------------------------------------------------------------------------------------ */

int show_clusters(const struct screen *s, Advisor__V1__Cluster *const *v, size_t n)
{
    static const char *const heads[] = { "CLUSTER", "MODE", "EFFECTIVE", "AGENT", "SINCE", "SCHEDULER", "JOBS", "RUNNING",
                                         "NODES", "OBSERVED", NULL };
    char w[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const Advisor__V1__Cluster *c = v[i];

        table_cell(&tab, "%s", behind(c->name, 1));
        table_cell(&tab, "%s", WORD(mode, c->mode, w));
        table_cell(&tab, "%s%s", WORD(mode, c->effective_mode, w), c->mode_effective ? "" : " (not confirmed)");
        table_cell(&tab, "%s", WORD(agent_state, c->agent_state, w));
        table_cell(&tab, "%s", age(s, c->agent_state_time, t));
        table_cell(&tab, "%s", or_dash(c->scheduler));
        table_cell(&tab, "%" PRIu32, c->jobs);
        table_cell(&tab, "%" PRIu32, c->jobs_running);
        table_cell(&tab, "%" PRIu32, c->nodes);
        table_cell(&tab, "%s", age(s, c->observe_time, t));
    }
    return put_table(s, &tab, 0);
}

int show_cluster(const struct screen *s, const Advisor__V1__Cluster *c)
{
    char w[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];

    pair(s, "cluster:", "%s", behind(c->name, 1));
    pair(s, "mode:", "%s, set %s ago%s", WORD(mode, c->mode, w), age(s, c->mode_time, t),
         c->mode_effective ? "" : ", not yet confirmed by the agent");
    pair(s, "effective:", "%s", WORD(mode, c->effective_mode, w));
    for (size_t i = 0; i < c->n_mode_reasons; i++)
        pair(s, i ? "" : "because:", "%s", c->mode_reasons[i]);
    pair(s, "agent:", "%s for %s%s%s", WORD(agent_state, c->agent_state, w), age(s, c->agent_state_time, t),
         *c->agent_version ? ", version " : "", c->agent_version);
    if (c->agent_clock_skew_ms)
        pair(s, "clock:", "the agent's is %" PRId64 " s %s", (c->agent_clock_skew_ms < 0 ? -1 : 1) * (c->agent_clock_skew_ms / 1000),
             c->agent_clock_skew_ms < 0 ? "behind" : "ahead");
    pair(s, "ceiling:", "%s%s%s", WORD(mode, c->ceiling, w), *c->ceiling_reason ? ", " : "", c->ceiling_reason);
    pair(s, "scheduler:", "%s", c->scheduler);
    if (*c->sources_unknown)
        pair(s, "unknown:", "%s", c->sources_unknown);
    if (show_time_us(c->observe_time))
        pair(s, "observed:", "%s ago", age(s, c->observe_time, t));
    pair(s, "size:", "%" PRIu32 " jobs, %" PRIu32 " running, %" PRIu32 " nodes", c->jobs, c->jobs_running, c->nodes);
    if (c->epoch)
        pair(s, "epoch:", "%" PRIu64 ".%" PRIu64, c->epoch->term, c->epoch->counter);
    return ferror(s->out) ? -1 : 0;
}

int show_nodes(const struct screen *s, Advisor__V1__Node *const *v, size_t n)
{
    static const char *const heads[] = { "NODE", "STATE", "USABLE", "REASON", NULL };
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", behind(v[i]->name, 3));
        table_cell(&tab, "%s", or_dash(v[i]->state_raw));
        table_cell(&tab, "%s", v[i]->available ? "yes" : "no");
        table_cell(&tab, "%s", v[i]->reason);
    }
    return put_table(s, &tab, 0);
}

int show_enrolments(const struct screen *s, Advisor__V1__Enrolment *const *v, size_t n)
{
    static const char *const heads[] = { "ENROLMENT", "MADE", "BY", "STATE", "CERTIFICATE", NULL };
    char t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const Advisor__V1__Enrolment *e = v[i];

        table_cell(&tab, "%s", e->id);
        table_cell(&tab, "%s", text_clock(show_time_us(e->create_time), t));
        table_cell(&tab, "%s", e->principal);
        if (e->voided)
            table_cell(&tab, "void");
        else if (e->redeem_time)
            table_cell(&tab, "used %s", text_clock(show_time_us(e->redeem_time), t));
        else if (show_time_us(e->expire_time) <= s->now_us)
            table_cell(&tab, "expired");
        else
            table_cell(&tab, "open until %s", text_clock(show_time_us(e->expire_time), t));
        table_cell(&tab, "%s", or_dash(e->serial));
    }
    return put_table(s, &tab, 0);
}

int show_revocations(const struct screen *s, Advisor__V1__Revocation *const *v, size_t n)
{
    static const char *const heads[] = { "WHEN", "BY", "CERTIFICATES", "REASON", NULL };
    char t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", text_clock(show_time_us(v[i]->create_time), t));
        table_cell(&tab, "%s", v[i]->principal);
        if (*v[i]->serial)
            table_cell(&tab, "%s", v[i]->serial);
        else
            table_cell(&tab, "all issued before %s", text_clock(show_time_us(v[i]->before_time), t));
        table_cell(&tab, "%s", v[i]->reason);
    }
    return put_table(s, &tab, 0);
}

/* ---- jobs ------------------------------------------------------------------------------------------------------- */

/* The scheduler's reason word; Slurm says "None" for none. */
static const char *reason_of(const Advisor__V1__Job *j)
{
    return adv_streq(j->reason, "None") ? "" : j->reason;
}

int show_jobs(const struct screen *s, Advisor__V1__Job *const *v, size_t n)
{
    static const char *const heads[] = { "JOB", "NAME", "USER", "PARTITION", "STATE", "ATTEMPTS", "MODE", "SUBMITTED", "NOTE",
                                         NULL };
    char w[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const Advisor__V1__Job *j = v[i];

        table_cell(&tab, "%s/%s", cluster_of(j->name, w), j->job_id);
        table_cell(&tab, "%s", or_dash(j->display_name));
        table_cell(&tab, "%s", or_dash(j->user));
        table_cell(&tab, "%s", or_dash(j->partition));
        table_cell(&tab, "%s%s", WORD(job_state, j->state, w), j->held ? " (held)" : "");
        table_cell(&tab, "%" PRIu32, j->last_attempt + 1);
        table_cell(&tab, "%s", WORD(mode, j->effective_mode, w));
        table_cell(&tab, "%s", age(s, j->submit_time, t));
        table_cell(&tab, "%s", *j->comment_error ? j->comment_error : reason_of(j));
    }
    return put_table(s, &tab, 0);
}

static int show_attempts(const struct screen *s, Advisor__V1__Attempt *const *v, size_t n)
{
    static const char *const heads[] = { "ATTEMPT", "STATE", "EXIT", "NODES", "STARTED", "RAN", "LOG", "ACTIVITY", "RESUMED FROM",
                                         "LAST STEP", "CHECKPOINT", NULL };
    char w[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const Advisor__V1__Attempt *a = v[i];
        int64_t start = show_time_us(a->start_time), end = show_time_us(a->end_time);
        char left_out[48] = "";

        table_cell(&tab, "%" PRIu32, a->index);
        table_cell(&tab, "%s", a->unseen ? "not seen" : WORD(job_state, a->state, w));
        if (a->exit_signal)
            table_cell(&tab, "signal %" PRIu32, a->exit_signal);
        else if (end)
            table_cell(&tab, "%" PRIu32, a->exit_code);
        else
            table_cell(&tab, "-");
        table_cell(&tab, "%s", or_dash(a->nodes));
        table_cell(&tab, "%s", start ? text_clock(start, t) : "-");
        table_cell(&tab, "%s", start ? text_span((end ? end : s->now_us) - start, t) : "-");
        if (a->telemetry_dropped_bytes)
            (void) snprintf(left_out, sizeof(left_out), " (%llu bytes left out)",
                            (unsigned long long) a->telemetry_dropped_bytes);
        table_cell(&tab, "%s%s%s%s", WORD(telemetry_state, a->telemetry, w), *a->telemetry_reason ? ": " : "",
                   a->telemetry_reason, left_out);
        table_cell(&tab, "%s%s%s", WORD(activity, a->activity, w), *a->activity_reason ? ": " : "", a->activity_reason);
        table_cell(&tab, a->resumed_from_step ? "step %" PRIu64 : "-", a->resumed_from_step);
        table_cell(&tab, a->last_step ? "%" PRIu64 : "-", a->last_step);
        table_cell(&tab, a->last_checkpoint_step ? "%" PRIu64 : "-", a->last_checkpoint_step);
    }
    return put_table(s, &tab, 2);
}

/* One row an attempt that ended: how long after its end each fact was known. */
static int show_milestones(const struct screen *s, Advisor__V1__Attempt *const *v, size_t n)
{
    static const char *const heads[] = { "ATTEMPT", "SUSPECTED", "END OBSERVED", "CONFIRMED", "ADVISED", "COMMAND ACCEPTED",
                                         "CONVERGED", "STARTED", "PRODUCTIVE", "COMPLETED", NULL };
    char t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const Advisor__V1__Milestones *m = v[i]->milestones;
        int64_t end = m ? show_time_us(m->end_observed) : 0;
        const Google__Protobuf__Timestamp *at[8] = { 0 };

        if (!end)
            continue;
        at[0] = m->first_suspicion;
        at[1] = m->anomaly_confirmed;
        at[2] = m->advised;
        at[3] = m->first_command_accepted;
        at[4] = m->converged;
        at[5] = m->successor_started;
        at[6] = m->successor_productive;
        at[7] = m->job_completed;
        table_cell(&tab, "%" PRIu32, v[i]->index);
        for (size_t k = 0; k < ADV_ARRAY_LEN(at); k++) {
            int64_t us = show_time_us(at[k]);

            if (k == 1)
                table_cell(&tab, "%s", text_clock(end, t));
            if (us)
                table_cell(&tab, "%s%s", us >= end ? "+" : "", text_span(us - end, t));
            else
                table_cell(&tab, "-");
        }
    }
    if (tab.n_cells == 0)
        return 0;
    heading(s, "Milestones, counted from the observed end of the attempt");
    return put_table(s, &tab, 2);
}

static void show_job_head(const struct screen *s, const Advisor__V1__Job *j)
{
    char w[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];

    pair(s, "job:", "%s/%s%s%s", cluster_of(j->name, w), j->job_id, *j->display_name ? "  " : "", j->display_name);
    pair(s, "state:", "%s%s%s%s", WORD(job_state, j->state, w), j->held ? ", held" : "",
         *reason_of(j) ? ", " : "", reason_of(j));
    pair(s, "user:", "%s%s%s, partition %s", j->user, *j->account ? ", account " : "", j->account, or_dash(j->partition));
    pair(s, "submitted:", "%s", text_clock(show_time_us(j->submit_time), t));
    pair(s, "mode:", "%s", WORD(mode, j->effective_mode, w));
    for (size_t i = 0; i < j->n_mode_reasons; i++)
        pair(s, i ? "" : "because:", "%s", j->mode_reasons[i]);
    pair(s, "comment:", "%s", j->comment_error);
    pair(s, "name:", "%s", j->name);
}

static int show_story(const struct screen *s, Advisor__V1__TimelineEntry *const *v, size_t n)
{
    static const char *const heads[] = { "AFTER", "TIME", "ATTEMPT", "WHAT", "", NULL };
    int64_t first = n ? show_time_us(v[0]->time) : 0;
    char t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        int64_t us = show_time_us(v[i]->time);

        table_cell(&tab, "+%s", text_span(us - first, t));
        table_cell(&tab, "%s", text_clock(us, t) + (strlen(t) > 11 ? 11 : 0)); /* the day stands in the head */
        table_cell(&tab, "%" PRIu32, v[i]->attempt_index);
        table_cell(&tab, "%s", v[i]->kind);
        table_cell(&tab, "%s", v[i]->text);
    }
    return put_table(s, &tab, 2);
}

static int show_advice_rows(const struct screen *s, Advisor__V1__Advice *const *v, size_t n, size_t indent)
{
    static const char *const heads[] = { "JOB", "ATTEMPT", "GEN", "ADVICE", "WITHOUT", "MAY", "STATUS", "AGE", "SUMMARY", NULL };
    char w[SHOW_WORD_SIZE], r[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const Advisor__V1__Advice *a = v[i];

        table_cell(&tab, "%s/%s", a->attempt ? a->attempt->cluster : "", a->attempt ? a->attempt->job_id : "");
        table_cell(&tab, "%" PRIu32, a->attempt ? a->attempt->restart_count : 0);
        table_cell(&tab, "%" PRIu64, a->generation);
        table_cell(&tab, "%s", WORD(desired_state, a->desired_state, w));
        table_cell(&tab, "%s%s", a->n_exclude_nodes ? a->exclude_nodes[0] : "-", a->n_exclude_nodes > 1 ? ",..." : "");
        table_cell(&tab, "%s", WORD(actionability, a->actionability, w));
        if (a->status && a->status->disposition && a->status->reason)
            table_cell(&tab, "%s: %s", WORD(disposition, a->status->disposition, w),
                       WORD(disposition_reason, a->status->reason, r));
        else
            table_cell(&tab, "%s", a->status ? WORD(disposition, a->status->disposition, w) : "-");
        table_cell(&tab, "%s", age(s, a->create_time, t));
        table_cell(&tab, "%s", a->summary);
    }
    return put_table(s, &tab, indent);
}

int show_advice_list(const struct screen *s, Advisor__V1__Advice *const *v, size_t n)
{
    return show_advice_rows(s, v, n, 0);
}

int show_timeline(const struct screen *s, const Advisor__V1__GetJobTimelineResponse *t)
{
    if (t->job)
        show_job_head(s, t->job);
    heading(s, "Story");
    if (show_story(s, t->entries, t->n_entries) < 0)
        return -1;
    heading(s, "Attempts");
    if (show_attempts(s, t->attempts, t->n_attempts) < 0 || show_milestones(s, t->attempts, t->n_attempts) < 0)
        return -1;
    if (t->n_advice == 0)
        return 0;
    heading(s, "Advice");
    return show_advice_rows(s, t->advice, t->n_advice, 2);
}

/* ---- why -------------------------------------------------------------------------------------------------------- */

static int show_evidence(const struct screen *s, const Advisor__V1__ExplainAdviceResponse *e)
{
    static const char *const heads[] = { "STATUS", "CLASS", "RULE", "RETRYABLE", "NODES", "SEEN", "LINE", NULL };
    char w[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < e->n_anomalies; i++) {
        const Advisor__V1__Anomaly *a = e->anomalies[i];

        table_cell(&tab, "%s", WORD(anomaly_status, a->status, w));
        table_cell(&tab, "%s", or_dash(a->fault_class));
        table_cell(&tab, "%s", or_dash(a->rule));
        table_cell(&tab, "%s", or_dash(a->retryable));
        table_cell(&tab, "%s%s", a->n_nodes ? a->nodes[0] : "-", a->n_nodes > 1 ? ",..." : "");
        table_cell(&tab, "%s", text_clock(show_time_us(a->record_time), t));
        table_cell(&tab, "%s", a->excerpt);
    }
    heading(s, "Evidence");
    return put_table(s, &tab, 2);
}

static int show_actions(const struct screen *s, const Advisor__V1__ExplainAdviceResponse *e)
{
    static const char *const heads[] = { "TIME", "VERB", "GEN", "READ BEFORE", "COMMAND", "EFFECT", "TOOK", "DETAIL", NULL };
    char w[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < e->n_actions; i++) {
        const Advisor__V1__Action *a = e->actions[i];
        int64_t begun = show_time_us(a->record_time), done = show_time_us(a->outcome_time);

        table_cell(&tab, "%s", text_clock(begun, t));
        table_cell(&tab, "%s", WORD(verb, a->verb, w));
        table_cell(&tab, "%" PRIu64, a->generation);
        table_cell(&tab, "%s", a->read_before);
        table_cell(&tab, "%s", done ? WORD(command_result, a->command, w) : "no outcome yet");
        table_cell(&tab, "%s", WORD(observed, a->observed, w));
        table_cell(&tab, "%s", done && begun ? text_span(done - begun, t) : "-");
        table_cell(&tab, "%s", *a->detail ? a->detail : a->reason);
    }
    heading(s, "What was done at the scheduler");
    return put_table(s, &tab, 2);
}

int show_explanation(const struct screen *s, const Advisor__V1__ExplainAdviceResponse *e)
{
    char w[SHOW_WORD_SIZE], m[SHOW_WORD_SIZE];

    if (e->advice) {
        const Advisor__V1__Advice *a = e->advice;

        pair(s, "attempt:", "%s/%s/%" PRIu32, a->attempt ? a->attempt->cluster : "", a->attempt ? a->attempt->job_id : "",
             a->attempt ? a->attempt->restart_count : 0);
        pair(s, "advice:", "%s (generation %" PRIu64 ", %s)", WORD(desired_state, a->desired_state, w), a->generation,
             WORD(actionability, a->actionability, m));
        for (size_t i = 0; i < a->n_exclude_nodes; i++)
            pair(s, i ? "" : "without:", "%s", a->exclude_nodes[i]);
    }
    for (size_t i = 0; i < e->n_text; i++) {
        if (i == 0)
            (void) fprintf(s->out, "\n");
        paragraph(s, 0, e->text[i]);
    }
    if (e->n_anomalies > 0 && show_evidence(s, e) < 0)
        return -1;
    return e->n_actions > 0 ? show_actions(s, e) : 0;
}

int show_audit(const struct screen *s, Advisor__V1__AuditEvent *const *v, size_t n)
{
    static const char *const heads[] = { "CLUSTER", "SEQ", "TIME", "BY", "VERB", "SUBJECT", "DETAIL", NULL };
    char t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", v[i]->cluster);
        table_cell(&tab, "%" PRIu64, v[i]->seq);
        table_cell(&tab, "%s", text_clock(show_time_us(v[i]->record_time), t));
        table_cell(&tab, "%s", v[i]->principal);
        table_cell(&tab, "%s", v[i]->verb);
        table_cell(&tab, "%s", v[i]->subject);
        table_cell(&tab, "%s", v[i]->detail);
    }
    return put_table(s, &tab, 0);
}

/* ---- changes ---------------------------------------------------------------------------------------------------- */

/* A few words on what a resource looks like now. */
static void change_words(struct adv_buf *b, const Advisor__V1__WatchResponse *w)
{
    char x[SHOW_WORD_SIZE], y[SHOW_WORD_SIZE];

    switch (w->resource_case) {
    case ADVISOR__V1__WATCH_RESPONSE__RESOURCE_CLUSTER_RESOURCE:
        (void) adv_buf_appendf(b, "mode %s, effective %s, agent %s", WORD(mode, w->cluster_resource->mode, x),
                               WORD(mode, w->cluster_resource->effective_mode, y), "");
        (void) adv_buf_append_str(b, WORD(agent_state, w->cluster_resource->agent_state, x));
        break;
    case ADVISOR__V1__WATCH_RESPONSE__RESOURCE_JOB:
        (void) adv_buf_appendf(b, "job %s, attempt %" PRIu32 ", %s%s", w->job->job_id, w->job->last_attempt,
                               WORD(job_state, w->job->state, x), w->job->held ? ", held" : "");
        break;
    case ADVISOR__V1__WATCH_RESPONSE__RESOURCE_ATTEMPT:
        (void) adv_buf_appendf(b, "%s on %s, step %" PRIu64 ", log %s", WORD(job_state, w->attempt->state, x),
                               or_dash(w->attempt->nodes), w->attempt->last_step,
                               WORD(telemetry_state, w->attempt->telemetry, y));
        break;
    case ADVISOR__V1__WATCH_RESPONSE__RESOURCE_ANOMALY:
        (void) adv_buf_appendf(b, "%s %s, rule %s: %s", WORD(anomaly_status, w->anomaly->status, x),
                               or_dash(w->anomaly->fault_class), or_dash(w->anomaly->rule), w->anomaly->excerpt);
        break;
    case ADVISOR__V1__WATCH_RESPONSE__RESOURCE_ADVICE:
        (void) adv_buf_appendf(b, "generation %" PRIu64 ", %s, %s: %s", w->advice->generation,
                               WORD(desired_state, w->advice->desired_state, x),
                               w->advice->status ? WORD(disposition, w->advice->status->disposition, y) : "-",
                               w->advice->summary);
        break;
    case ADVISOR__V1__WATCH_RESPONSE__RESOURCE_ACTION:
        (void) adv_buf_appendf(b, "%s: %s", WORD(verb, w->action->verb, x),
                               w->action->outcome_time ? WORD(command_result, w->action->command, y) : "about to write");
        break;
    case ADVISOR__V1__WATCH_RESPONSE__RESOURCE_AUDIT:
        (void) adv_buf_appendf(b, "%s %s %s %s", w->audit->principal, w->audit->verb, w->audit->subject, w->audit->detail);
        break;
    default:
        break;
    }
}

int show_change(const struct screen *s, const Advisor__V1__WatchResponse *w)
{
    char t[TEXT_TIME_SIZE], x[SHOW_WORD_SIZE], y[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(adv_buf) raw = { 0 };
    ADV_AUTO_DONE(adv_buf) clean = { 0 };
    ADV_AUTO_DONE(adv_buf) line = { 0 };

    if (w->type == ADVISOR__V1__WATCH_EVENT_TYPE__WATCH_EVENT_TYPE_BOOKMARK)
        return 0;
    adv_buf_init(&raw, 256 << 10);
    adv_buf_init(&clean, 1 << 20);
    adv_buf_init(&line, 1 << 20);
    (void) adv_buf_appendf(&raw, "%s %-8s", text_clock(s->now_us, t) + (strlen(t) > 11 ? 11 : 0),
                           WORD(watch_event_type, w->type, x));
    if (w->kind)
        (void) adv_buf_appendf(&raw, " %-8s %s  ", WORD(resource_kind, w->kind, y), behind(w->name, 1));
    change_words(&raw, w);
    text_escape(&clean, raw.data);
    text_fit(&line, clean.data, s->columns ? s->columns : SIZE_MAX);
    return fprintf(s->out, "%s\n", line.data) < 0 || fflush(s->out) != 0 ? -1 : 0;
}
