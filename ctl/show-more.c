/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of what operators and detectors work with. */

#include <inttypes.h>

#include "ctl/show.h"
#include "ctl/table.h"
#include "ctl/text.h"

#define WORD(type, value, buf) show_word(&advisor__v1__##type##__descriptor, (int) (value), buf)

static int put_table(const struct screen *s, const struct table *t)
{
    return table_print(t, s->out, s->columns, s->bold, 0);
}

static const char *or_dash(const char *s)
{
    return s && *s ? s : "-";
}

/* "clusters/a/windows/7": the part number @n of it, from 0. */
static const char *part(const char *name, int n, char out[SHOW_WORD_SIZE])
{
    for (; n > 0 && *name; n--) {
        name += strcspn(name, "/");
        name += *name == '/';
    }
    (void) snprintf(out, SHOW_WORD_SIZE, "%.*s", (int) strcspn(name, "/"), name);
    return out;
}

static void clock_cell(struct table *t, const Google__Protobuf__Timestamp *at)
{
    char text[TEXT_TIME_SIZE];

    table_cell(t, "%s", text_clock(show_time_us(at), text));
}

static void names_cell(struct table *t, char *const *v, size_t n)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 64 << 10);
    for (size_t i = 0; i < n; i++)
        (void) adv_buf_appendf(&b, "%s%s", i ? "," : "", v[i]);
    table_cell(t, "%s", n ? b.data : "-");
}

int show_anomalies(const struct screen *s, Advisor__V1__Anomaly *const *v, size_t n)
{
    static const char *const heads[] = { "STATUS", "KIND", "CLASS", "RULE", "RETRYABLE", "NODES", "BY", "WHY", NULL };
    char w[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", WORD(anomaly_status, v[i]->status, w));
        table_cell(&tab, "%s", WORD(anomaly_kind, v[i]->kind, w));
        table_cell(&tab, "%s", or_dash(v[i]->fault_class));
        table_cell(&tab, "%s", or_dash(v[i]->rule));
        table_cell(&tab, "%s", or_dash(v[i]->retryable));
        names_cell(&tab, v[i]->nodes, v[i]->n_nodes);
        table_cell(&tab, "%s", v[i]->reporter);
        table_cell(&tab, "%s", v[i]->status_reason);
    }
    return put_table(s, &tab);
}

int show_evidence_rows(const struct screen *s, Advisor__V1__Evidence *const *v, size_t n)
{
    static const char *const heads[] = { "SOURCE", "KIND", "CLASS", "WEIGHT", "NODES", "BY", "SUMMARY", NULL };
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", v[i]->source);
        table_cell(&tab, "%s", v[i]->kind);
        table_cell(&tab, "%s", or_dash(v[i]->fault_class));
        table_cell(&tab, "%" PRIu32 "%%", v[i]->weight_percent);
        names_cell(&tab, v[i]->nodes, v[i]->n_nodes);
        table_cell(&tab, "%s", v[i]->reporter);
        table_cell(&tab, "%s", v[i]->summary);
    }
    return put_table(s, &tab);
}

int show_attempt_rows(const struct screen *s, Advisor__V1__Attempt *const *v, size_t n)
{
    static const char *const heads[] = { "ATTEMPT", "STATE", "LAST STEP", "CHECKPOINT", "RESUMED FROM", NULL };
    char w[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%" PRIu32, v[i]->index);
        table_cell(&tab, "%s", WORD(job_state, v[i]->state, w));
        table_cell(&tab, "%" PRIu64, v[i]->last_step);
        table_cell(&tab, "%" PRIu64, v[i]->last_checkpoint_step);
        table_cell(&tab, "%" PRIu64, v[i]->resumed_from_step);
    }
    return put_table(s, &tab);
}

int show_exclusions(const struct screen *s, Advisor__V1__Exclusion *const *v, size_t n)
{
    static const char *const heads[] = { "CLUSTER", "NODE", "STATE", "SINCE", "UNTIL", "BY", "REASON", "ID", NULL };
    char w[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const Advisor__V1__Exclusion *x = v[i];

        table_cell(&tab, "%s", part(x->name, 1, w));
        table_cell(&tab, "%s", x->node);
        table_cell(&tab, "%s", WORD(exclusion_state, x->state, w));
        clock_cell(&tab, x->create_time);
        clock_cell(&tab, x->lift_time ? x->lift_time : x->expire_time);
        table_cell(&tab, "%s", x->owner);
        table_cell(&tab, "%s%s%s", x->reason, *x->lift_reason ? "; lifted: " : "", x->lift_reason);
        table_cell(&tab, "%s", part(x->name, 3, w));
    }
    return put_table(s, &tab);
}

int show_windows(const struct screen *s, Advisor__V1__MaintenanceWindow *const *v, size_t n)
{
    static const char *const heads[] = { "CLUSTER", "STATE", "FROM", "UNTIL", "BY", "REASON", "ID", NULL };
    char w[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", part(v[i]->name, 1, w));
        table_cell(&tab, "%s", WORD(maintenance_state, v[i]->state, w));
        clock_cell(&tab, v[i]->start_time);
        clock_cell(&tab, v[i]->end_time);
        table_cell(&tab, "%s", v[i]->owner);
        table_cell(&tab, "%s", v[i]->reason);
        table_cell(&tab, "%s", part(v[i]->name, 3, w));
    }
    return put_table(s, &tab);
}

int show_incidents(const struct screen *s, Advisor__V1__Incident *const *v, size_t n)
{
    static const char *const heads[] = { "CLUSTER", "KIND", "STATE", "TIMES", "LAST", "SUMMARY", "CLOSED BY", "ID", NULL };
    char w[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", part(v[i]->name, 1, w));
        table_cell(&tab, "%s", WORD(incident_kind, v[i]->kind, w));
        table_cell(&tab, "%s", WORD(incident_state, v[i]->state, w));
        table_cell(&tab, "%" PRIu32, v[i]->count);
        clock_cell(&tab, v[i]->update_time);
        table_cell(&tab, "%s", v[i]->summary);
        table_cell(&tab, "%s%s%s", or_dash(v[i]->closed_by), *v[i]->close_reason ? ": " : "", v[i]->close_reason);
        table_cell(&tab, "%s", part(v[i]->name, 3, w));
    }
    return put_table(s, &tab);
}

int show_policies(const struct screen *s, Advisor__V1__Policy *const *v, size_t n)
{
    static const char *const heads[] = { "POLICY", "VERSION", "MADE", "BY", "REASON", NULL };
    char w[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", part(v[i]->name, 1, w));
        table_cell(&tab, "%" PRIu64, v[i]->version);
        clock_cell(&tab, v[i]->create_time);
        table_cell(&tab, "%s", v[i]->owner);
        table_cell(&tab, "%s", v[i]->reason);
    }
    return put_table(s, &tab);
}

/* Line by line: nothing in it may steer a terminal. */
int show_policy(const struct screen *s, const Advisor__V1__Policy *p)
{
    for (const char *line = p->document; *line;) {
        size_t n = strcspn(line, "\n");
        adv_auto_free char *one = strndup(line, n);
        ADV_AUTO_DONE(adv_buf) clean;

        adv_buf_init(&clean, 1 << 20);
        if (!one)
            return -1;
        text_escape(&clean, one);
        (void) fprintf(s->out, "%s\n", clean.len ? clean.data : "");
        line += n + (line[n] == '\n');
    }
    return ferror(s->out) ? -1 : 0;
}

int show_problems(const struct screen *s, Advisor__V1__PolicyProblem *const *v, size_t n)
{
    static const char *const heads[] = { "KEY", "PROBLEM", NULL };
    ADV_AUTO_DONE(table) tab = { 0 };

    if (n == 0)
        return fprintf(s->out, "the document is good\n") < 0 ? -1 : 0;
    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        table_cell(&tab, "%s", or_dash(v[i]->key));
        table_cell(&tab, "%s", v[i]->message);
    }
    return put_table(s, &tab);
}

int show_latency(const struct screen *s, Advisor__V1__LatencyRow *const *v, size_t n)
{
    static const char *const heads[] = { "CLUSTER", "CLASS", "FROM ... TO", "COUNT", "P50", "P95", "P99", "MAX", NULL };
    char w[SHOW_WORD_SIZE], t[TEXT_TIME_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const uint64_t ms[] = { v[i]->p50_ms, v[i]->p95_ms, v[i]->p99_ms, v[i]->max_ms };

        table_cell(&tab, "%s", part(v[i]->cluster, 1, w));
        table_cell(&tab, "%s", v[i]->fault_class);
        table_cell(&tab, "%s", WORD(latency_interval, v[i]->interval, w));
        table_cell(&tab, "%" PRIu64, v[i]->count);
        for (size_t k = 0; k < ADV_ARRAY_LEN(ms); k++)
            table_cell(&tab, "%s", text_span(ms[k] > INT64_MAX / 1000 ? INT64_MAX : (int64_t) ms[k] * 1000, t));
    }
    return put_table(s, &tab);
}

static void ratio_cell(struct table *t, bool has, double value)
{
    if (has)
        table_cell(t, "%.3f", value);
    else
        table_cell(t, "-");
}

int show_outcome(const struct screen *s, Advisor__V1__OutcomeRow *const *v, size_t n)
{
    static const char *const heads[] = { "CLUSTER", "CLASS", "ADVICE", "NO ACTION", "RESTART", "SHADOW", "WAITING", "APPROVED",
                                         "REJECTED", "CONVERGED", "GIVEN UP", "STARTED", "PRODUCTIVE", "COMPLETED", "PRECISION",
                                         "RECALL", "AGREEMENT", NULL };
    char w[SHOW_WORD_SIZE];
    ADV_AUTO_DONE(table) tab;

    table_init(&tab, heads);
    for (size_t i = 0; i < n; i++) {
        const Advisor__V1__OutcomeRow *r = v[i];
        const uint64_t counts[] = { r->advice, r->no_action, r->restarted, r->shadow, r->awaiting_approval, r->approved, r->rejected,
                                    r->converged, r->abandoned + r->superseded, r->started, r->productive, r->completed };

        table_cell(&tab, "%s", part(r->cluster, 1, w));
        table_cell(&tab, "%s", r->fault_class);
        for (size_t k = 0; k < ADV_ARRAY_LEN(counts); k++)
            table_cell(&tab, "%" PRIu64, counts[k]);
        ratio_cell(&tab, r->has_precision, r->precision);
        ratio_cell(&tab, r->has_recall, r->recall);
        ratio_cell(&tab, r->has_agreement, r->agreement);
    }
    return put_table(s, &tab);
}
