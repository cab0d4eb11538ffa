/* SPDX-License-Identifier: Apache-2.0 */
/* Who only noticed a fault is not named: that a node has waited for another is no evidence against it. */

#include "controlplane/watcher/report.h"

#include <stdio.h>

static bool kind_of(const struct watcher_finding *f, enum finding_kind *ret)
{
    switch (f->type) {
    case WATCHER_SIGNATURE:
        *ret = FINDING_SIGNATURE;
        return true;
    case WATCHER_PROGRESS:
        *ret = FINDING_PROGRESS;
        return true;
    case WATCHER_CHECKPOINT:
        *ret = FINDING_CHECKPOINT;
        return true;
    case WATCHER_RESUMED:
        *ret = FINDING_RESUMED;
        return true;
    case WATCHER_FINISHED:
        *ret = FINDING_FINISHED;
        return true;
    case WATCHER_RECOVERED:
        *ret = FINDING_RECOVERED;
        return true;
    case WATCHER_NOTICE:
        *ret = FINDING_NOTICE;
        return f->rule->precedence >= WATCHER_NOTICE_FOR_PEOPLE;
    case WATCHER_CALMED:
        break;
    }
    return false;
}

static void name_nodes(struct watcher_report *r, const char *named, struct event *ev)
{
    if (!*named || !(r->hosts = adv_hostlist_new(WATCHER_REPORT_NODES)) || adv_hostlist_parse(r->hosts, named, NULL) < 0)
        return;
    for (size_t i = 0; i < adv_hostlist_count(r->hosts); i++)
        r->nodes[i] = adv_hostlist_nth(r->hosts, i);
    ev->u.finding.nodes = r->nodes;
    ev->u.finding.n_nodes = adv_hostlist_count(r->hosts);
}

static void fill_signature(struct watcher_report *r, const struct watcher_finding *f, struct event *ev)
{
    const struct watcher_rule *rule = f->rule;

    (void) snprintf(r->rule, sizeof(r->rule), "%s", rule->id);
    (void) snprintf(r->fault_class, sizeof(r->fault_class), "%s", watcher_class_name(rule->fault_class));
    (void) snprintf(r->excerpt, sizeof(r->excerpt), "%s", f->excerpt);
    (void) adv_hex(f->sha256, sizeof(f->sha256), r->sha);
    if (f->missing[0])
        (void) snprintf(r->ranks, sizeof(r->ranks), "%s", f->missing);
    else if (f->rank >= 0)
        (void) snprintf(r->ranks, sizeof(r->ranks), "%d", f->rank);
    ev->u.finding.anomaly = rule->anomaly == WATCHER_ANOMALY_HANG      ? ANOMALY_HANG :
                            rule->anomaly == WATCHER_ANOMALY_STRAGGLER ? ANOMALY_STRAGGLER :
                                                                         ANOMALY_CRASH;
    ev->u.finding.rule = r->rule;
    ev->u.finding.rules_version = r->version;
    ev->u.finding.fault_class = r->fault_class;
    ev->u.finding.retryable = rule->retryable == WATCHER_RETRYABLE_YES ? RETRYABLE_YES :
                              rule->retryable == WATCHER_RETRYABLE_NO  ? RETRYABLE_NO :
                                                                         RETRYABLE_MAYBE;
    ev->u.finding.precedence = rule->precedence;
    ev->u.finding.terminal = rule->terminal;
    ev->u.finding.ranks = r->ranks;
    ev->u.finding.excerpt = r->excerpt;
    ev->u.finding.excerpt_sha256 = r->sha;
    ev->u.finding.blame = rule->blames == WATCHER_BLAMES_NODE     ? BLAME_NODE :
                          rule->blames == WATCHER_BLAMES_REPORTER ? BLAME_REPORTER :
                          rule->blames == WATCHER_BLAMES_LEAD     ? BLAME_LEAD :
                                                                    BLAME_NONE;
    name_nodes(r, rule->blames == WATCHER_BLAMES_NODE       ? f->node :
                  rule->blames == WATCHER_BLAMES_LEAD       ? f->node :
                  rule->blames == WATCHER_BLAMES_REPORTER   ? f->reporter :
                                                              "", ev);
}

static void fill_progress(const struct watcher_finding *f, struct event *ev)
{
    const struct watcher_rule *rule = f->rule;
    uint32_t h = 2166136261U; /* FNV-1a: the same after a restart, too */

    ev->u.finding.unit = f->step < 0                        ? UNIT_NONE :
                         rule->unit == WATCHER_UNIT_STEP    ? UNIT_STEP :
                         rule->unit == WATCHER_UNIT_EPOCH   ? UNIT_EPOCH :
                                                              UNIT_ITEM;
    ev->u.finding.late = f->late;
    ev->u.finding.total = f->total < 0 ? 0 : (uint64_t) f->total;
    for (const char *p = rule->id; *p; p++)
        h = (h ^ (unsigned char) *p) * 16777619U;
    for (uint64_t t = ev->u.finding.total; t; t >>= 8) /* bars of one rule differ by their length */
        h = (h ^ (uint32_t) (t & 0xff)) * 16777619U;
    ev->u.finding.series = h;
}

bool watcher_report_fill(struct watcher_report *r, const struct watcher_finding *f, const char *version, struct event *ev)
{
    enum finding_kind kind;

    *r = (struct watcher_report) { 0 };
    if (!kind_of(f, &kind))
        return false;
    (void) snprintf(r->version, sizeof(r->version), "%s", version);
    ev->type = EV_FINDING;
    ev->u.finding.kind = kind;
    ev->u.finding.step = f->step < 0 ? 0 : (uint64_t) f->step;
    ev->u.finding.offset = f->offset;
    ev->u.finding.observe_us = f->observe_wall_us;
    if (kind == FINDING_SIGNATURE || kind == FINDING_NOTICE)
        fill_signature(r, f, ev);
    else if (kind == FINDING_PROGRESS)
        fill_progress(f, ev);
    return true;
}

const char *watcher_report_ends(const struct watcher_finding *f)
{
    bool ends = f->type == WATCHER_SIGNATURE && f->rule->retryable != WATCHER_RETRYABLE_NO &&
                f->rule->anomaly != WATCHER_ANOMALY_STRAGGLER;

    return ends ? watcher_class_name(f->rule->fault_class) : "";
}

void watcher_report_done(struct watcher_report *r)
{
    r->hosts = adv_hostlist_free(r->hosts);
}
