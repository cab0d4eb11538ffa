/* SPDX-License-Identifier: Apache-2.0 */
/* Names, predicates and destructors of the domain's structs. The tables below are the only place where an enum's
 * number meets its word. */

#include "controlplane/domain/entries.h"

#include <stdio.h>
#include <utlist.h>

#include "common/num.h"
#include "controlplane/domain/pulse.h"
#include "controlplane/domain/workflows.h"

int epoch_cmp(struct epoch a, struct epoch b)
{
    if (a.term != b.term)
        return a.term < b.term ? -1 : 1;
    if (a.counter != b.counter)
        return a.counter < b.counter ? -1 : 1;
    return 0;
}

#define NAME_OF(table, v) ((size_t) (v) < ADV_ARRAY_LEN(table) && table[v] ? table[v] : "UNKNOWN")

static const char *const mode_names[] = { "unset", "off", "observe", "approve", "act" };

const char *mode_name(enum adv_mode m)
{
    return NAME_OF(mode_names, m);
}

bool mode_from_name(const char *s, enum adv_mode *ret)
{
    for (size_t i = MODE_OFF; s && i < ADV_ARRAY_LEN(mode_names); i++)
        if (strcasecmp(s, mode_names[i]) == 0) {
            *ret = (enum adv_mode) i;
            return true;
        }
    return false;
}

const char *job_state_name(enum job_state s)
{
    static const char *const names[] = {
        "UNKNOWN",   "PENDING",     "CONFIGURING",   "RUNNING",   "SUSPENDED", "COMPLETING",
        "COMPLETED", "FAILED",      "TIMEOUT",       "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL",
        "CANCELLED", "PREEMPTED",   "SPECIAL_EXIT",  "DEADLINE",  "REVOKED",   "REQUEUED",
    };
    return NAME_OF(names, s);
}

const char *desired_name(enum desired_state d)
{
    static const char *const names[] = { "UNSET",      "NO_ACTION", "RESTARTED",
                                         "TERMINATED", "PLACEMENT", "DAG_RELEASED",
                                         "REQUEUEABLE", "PRESERVED" };
    return NAME_OF(names, d);
}

const char *disposition_name(enum disposition d)
{
    static const char *const names[] = { "UNSET", "PENDING", "CONVERGED", "ABANDONED", "SUPERSEDED" };
    return NAME_OF(names, d);
}

const char *disposition_reason_name(uint32_t r)
{
    static const char *const names[] = {
        "UNSET",
        "DESIRED_STATE_OBSERVED",
        "ALREADY_SATISFIED",
        "EXPIRED",
        "ATTEMPT_SUPERSEDED",
        "JOB_GONE",
        "JOB_ID_REUSED",
        "CONFLICTING_USER_ACTION",
        "OPTED_OUT",
        "REJECTED",
        "NOT_AUTHORIZED_BY_CLUSTER",
        "FORBIDDEN_BY_SCHEDULER",
        "CONSTRAINT_UNSATISFIABLE",
        "BUDGET_EXHAUSTED",
        "UNSUPPORTED_BY_AGENT",
        "MAINTENANCE",
        "STALE_EPOCH",
        "SCHEDULER_UNAVAILABLE",
        "NOT_REQUEUEABLE",
        "MODE_TOO_LOW",
    };
    return NAME_OF(names, r);
}

const char *verb_name(uint32_t v)
{
    static const char *const names[] = { "unset",     "preserve", "interrupt", "make_requeueable", "constrain",
                                         "release",   "cancel",   "protect_child", "rearm_child" };
    return NAME_OF(names, v);
}

const char *telemetry_name(enum telemetry_state t)
{
    static const char *const names[] = { "UNSET", "COMPLETE", "PARTIAL", "LOST" };
    return NAME_OF(names, t);
}

const char *anomaly_status_name(enum anomaly_status s)
{
    static const char *const names[] = { "UNSET", "SUSPICION", "CONFIRMED", "WITHDRAWN" };
    return NAME_OF(names, s);
}

const char *retryable_name(enum retryable r)
{
    static const char *const names[] = { "maybe", "yes", "no" };
    return NAME_OF(names, r);
}

const char *agent_state_name(enum agent_state s)
{
    static const char *const names[] = { "UNSET",      "NEVER_SEEN",  "CONNECTED",
                                         "RESYNCING",  "UNREACHABLE", "SCHEDULER_UNAVAILABLE" };
    return NAME_OF(names, s);
}

const char *command_name(enum command_result c)
{
    static const char *const names[] = { "UNSET", "ACCEPTED", "REFUSED", "TIMED_OUT", "NOT_SENT" };
    return NAME_OF(names, c);
}

const char *observed_name(enum observed o)
{
    static const char *const names[] = { "UNSET", "YES", "NO", "UNKNOWN" };
    return NAME_OF(names, o);
}

bool job_state_terminal(enum job_state s)
{
    switch (s) {
    case JOB_COMPLETED:
    case JOB_FAILED:
    case JOB_TIMEOUT:
    case JOB_OUT_OF_MEMORY:
    case JOB_NODE_FAIL:
    case JOB_BOOT_FAIL:
    case JOB_CANCELLED:
    case JOB_PREEMPTED:
    case JOB_DEADLINE:
    case JOB_REVOKED:
    case JOB_REQUEUED:
        return true;
    case JOB_UNKNOWN:
    case JOB_PENDING:
    case JOB_CONFIGURING:
    case JOB_RUNNING:
    case JOB_SUSPENDED:
    case JOB_COMPLETING:
    case JOB_SPECIAL_EXIT:
        break;
    }
    return false;
}

bool job_state_failed(enum job_state s)
{
    return s == JOB_FAILED || s == JOB_OUT_OF_MEMORY || s == JOB_NODE_FAIL || s == JOB_BOOT_FAIL;
}

bool job_state_running(enum job_state s)
{
    return s == JOB_RUNNING || s == JOB_CONFIGURING || s == JOB_SUSPENDED;
}

struct attempt *attempt_prev(const struct attempt *a)
{
    return a->index > a->job->first_index ? a->job->attempts[a->index - a->job->first_index - 1] : NULL;
}

const char *resource_key(enum resource_kind kind, const void *object, char buf[RESOURCE_KEY_MAX])
{
    const struct attempt *a = NULL;

    buf[0] = '\0';
    switch (kind) {
    case RESOURCE_JOB:
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s", ((const struct job *) object)->uid);
        break;
    case RESOURCE_NODE:
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s", ((const struct node *) object)->name);
        break;
    case RESOURCE_ENROLMENT:
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s", ((const struct enrolment *) object)->uid);
        break;
    case RESOURCE_REVOCATION:
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s", ((const struct revocation *) object)->uid);
        break;
    case RESOURCE_ATTEMPT:
        a = object;
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s/%010u", a->job->uid, a->index);
        break;
    case RESOURCE_ADVICE:
        a = ((const struct advice *) object)->attempt;
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s/%010u", a->job->uid, a->index);
        break;
    case RESOURCE_ANOMALY:
        a = ((const struct anomaly *) object)->attempt;
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s/%010u/%s", a->job->uid, a->index,
                        ((const struct anomaly *) object)->uid);
        break;
    case RESOURCE_ACTION: {
        const struct action *ac = object;
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s/%010u/%s/%020llu", ac->attempt->job->uid, ac->attempt->index,
                        str_or(ac->journal_id), (unsigned long long) ac->journal_seq);
        break;
    }
    case RESOURCE_EXCLUSION:
    case RESOURCE_INCIDENT:
    case RESOURCE_WINDOW:
    case RESOURCE_POLICY:
    case RESOURCE_CHECKPOINT:
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s", ((const struct entry *) object)->uid);
        break;
    case RESOURCE_EVIDENCE:
        a = ((const struct evidence *) object)->attempt;
        (void) snprintf(buf, RESOURCE_KEY_MAX, "%s/%010u/%s", a->job->uid, a->index, ((const struct evidence *) object)->uid);
        break;
    case RESOURCE_CLUSTER:
    case RESOURCE_AUDIT:
    case RESOURCE_NONE:
    case RESOURCE_KIND_END_:
        break;
    }
    return buf;
}

bool resource_key_parse(const char *key, char ret_job_uid[64], uint32_t *ret_index, const char **ret_rest)
{
    const char *slash = strchr(key, '/');
    size_t n = slash ? (size_t) (slash - key) : strlen(key);
    uint64_t index = 0;

    if (n == 0 || n >= 64)
        return false;
    memcpy(ret_job_uid, key, n);
    ret_job_uid[n] = '\0';
    *ret_index = 0;
    *ret_rest = "";
    if (!slash)
        return true;
    for (n = 1; slash[n] >= '0' && slash[n] <= '9' && n <= 10; n++)
        index = index * 10 + (uint64_t) (slash[n] - '0');
    if (n != 11 || index > UINT32_MAX || (slash[n] != '/' && slash[n] != '\0'))
        return false;
    *ret_index = (uint32_t) index;
    *ret_rest = slash[n] ? slash + n + 1 : slash + n;
    return true;
}

const char *resource_name(enum resource_kind kind, const char *cluster, const char *key, char buf[2 * RESOURCE_NAME_MAX])
{
    const size_t size = 2 * RESOURCE_NAME_MAX;
    char uid[64];
    const char *rest, *slash;
    uint32_t index;

    buf[0] = '\0';
    switch (kind) {
    case RESOURCE_CLUSTER:
        (void) snprintf(buf, size, "clusters/%s", cluster);
        return buf;
    case RESOURCE_NODE:
        (void) snprintf(buf, size, "clusters/%s/nodes/%s", cluster, key);
        return buf;
    case RESOURCE_AUDIT:
        (void) snprintf(buf, size, "clusters/%s/audit/%s", cluster, key);
        return buf;
    case RESOURCE_EXCLUSION:
        (void) snprintf(buf, size, "clusters/%s/exclusions/%s", cluster, key);
        return buf;
    case RESOURCE_INCIDENT:
        (void) snprintf(buf, size, "clusters/%s/incidents/%s", cluster, key);
        return buf;
    case RESOURCE_WINDOW:
        (void) snprintf(buf, size, "clusters/%s/windows/%s", cluster, key);
        return buf;
    case RESOURCE_CHECKPOINT:
        (void) snprintf(buf, size, "clusters/%s/checkpoints/%s", cluster, key);
        return buf;
    case RESOURCE_POLICY:
        slash = strchr(key, '/');
        (void) snprintf(buf, size, "policies/%.*s", slash ? (int) (slash - key) : 0, key);
        return buf;
    case RESOURCE_ENROLMENT:
        (void) snprintf(buf, size, "clusters/%s/enrolments/%s", cluster, key);
        return buf;
    case RESOURCE_REVOCATION:
        (void) snprintf(buf, size, "clusters/%s/revocations/%s", cluster, key);
        return buf;
    case RESOURCE_NONE:
    case RESOURCE_KIND_END_:
        return buf;
    default:
        break;
    }
    if (!resource_key_parse(key, uid, &index, &rest))
        return buf;
    switch ((int) kind) {
    case RESOURCE_JOB:
        (void) snprintf(buf, size, "clusters/%s/jobs/%s", cluster, uid);
        break;
    case RESOURCE_ATTEMPT:
        (void) snprintf(buf, size, "clusters/%s/jobs/%s/attempts/%u", cluster, uid, index);
        break;
    case RESOURCE_ADVICE:
        (void) snprintf(buf, size, "clusters/%s/jobs/%s/attempts/%u/advice", cluster, uid, index);
        break;
    case RESOURCE_ANOMALY:
        (void) snprintf(buf, size, "clusters/%s/jobs/%s/attempts/%u/anomalies/%s", cluster, uid, index, rest);
        break;
    case RESOURCE_EVIDENCE:
        (void) snprintf(buf, size, "clusters/%s/jobs/%s/attempts/%u/evidence/%s", cluster, uid, index, rest);
        break;
    case RESOURCE_ACTION:
        slash = strrchr(rest, '/');
        if (slash)
            (void) snprintf(buf, size, "clusters/%s/jobs/%s/attempts/%u/advice#%.*s/%llu", cluster, uid, index,
                            (int) (slash - rest), rest, strtoull(slash + 1, NULL, 10));
        break;
    default:
        break;
    }
    return buf;
}

const char *cluster_resource_name(const struct cluster *c, char buf[RESOURCE_NAME_MAX])
{
    (void) snprintf(buf, RESOURCE_NAME_MAX, "clusters/%s", c->name);
    return buf;
}

const char *job_resource_name(const struct job *j, char buf[RESOURCE_NAME_MAX])
{
    (void) snprintf(buf, RESOURCE_NAME_MAX, "clusters/%s/jobs/%s", j->cluster->name, j->uid);
    return buf;
}

const char *attempt_resource_name(const struct attempt *a, char buf[RESOURCE_NAME_MAX])
{
    (void) snprintf(buf, RESOURCE_NAME_MAX, "clusters/%s/jobs/%s/attempts/%u", a->job->cluster->name, a->job->uid,
                    a->index);
    return buf;
}

const char *advice_resource_name(const struct attempt *a, char buf[RESOURCE_NAME_MAX])
{
    (void) snprintf(buf, RESOURCE_NAME_MAX, "clusters/%s/jobs/%s/attempts/%u/advice", a->job->cluster->name,
                    a->job->uid, a->index);
    return buf;
}

bool cluster_id_valid(const char *s)
{
    size_t n = s ? strlen(s) : 0;

    if (n < 1 || n > 64 || s[0] < 'a' || s[0] > 'z')
        return false;
    return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-_") == n;
}

bool sched_job_id_valid(const char *s)
{
    size_t n = s ? strlen(s) : 0, d = n ? strspn(s, "0123456789") : 0;

    if (n < 1 || n > 32 || d < 1 || d > 10)
        return false;
    if (d == n)
        return true;
    if (s[d] != '_' && s[d] != '+')
        return false;
    s += d + 1;
    n = strlen(s);
    return n > 0 && strspn(s, "0123456789") == n;
}

bool resource_path_is_cluster(const struct resource_path *p)
{
    return !p->job_uid && !p->node && !p->entry_kind;
}

static enum resource_kind entry_kind_of(const char *collection)
{
    return adv_streq(collection, "exclusions")  ? RESOURCE_EXCLUSION :
           adv_streq(collection, "incidents")   ? RESOURCE_INCIDENT :
           adv_streq(collection, "windows")     ? RESOURCE_WINDOW :
                                                  RESOURCE_NONE;
}

int resource_path_parse(const char *name, struct resource_path *ret, struct adv_err *err)
{
    return resource_path_parse_field("name", name, ret, err);
}

int resource_path_parse_field(const char *field, const char *name, struct resource_path *ret, struct adv_err *err)
{
    struct resource_path p = { 0 };
    char *save = NULL, *word;
    const char *bad = NULL;
    int i = 0;

    if (!name || strlen(name) >= sizeof(p.scratch) || !*name)
        bad = "a resource name of 1 to 255 characters";
    else if (name[0] == '/' || name[strlen(name) - 1] == '/' || strstr(name, "//")) /* strtok_r() would skip them */
        bad = "an id between the slashes";
    if (!bad) {
        (void) strcpy(p.scratch, name);
        for (word = strtok_r(p.scratch, "/", &save); word && !bad; word = strtok_r(NULL, "/", &save), i++) {
            switch (i) {
            case 0:
                if (!adv_streq(word, "clusters"))
                    bad = "\"clusters/…\"";
                break;
            case 1:
                p.cluster = word;
                if (!cluster_id_valid(word) && !adv_streq(word, "-"))
                    bad = "a cluster id";
                break;
            case 2:
                p.entry_kind = entry_kind_of(word);
                if (adv_streq(word, "nodes"))
                    p.node = word; /* set for good below */
                else if (!p.entry_kind && !adv_streq(word, "jobs"))
                    bad = "\"jobs\", \"nodes\", \"exclusions\", \"incidents\" or \"windows\" after the cluster";
                break;
            case 3:
                if (p.node)
                    p.node = word;
                else if (p.entry_kind)
                    p.entry_uid = word;
                else
                    p.job_uid = word;
                break;
            case 4:
                if (p.node || p.entry_kind || !adv_streq(word, "attempts"))
                    bad = "\"attempts\" after the job";
                break;
            case 5: {
                uint64_t v = 0;
                p.attempt = word;
                if (adv_parse_u64(word, 0, UINT32_MAX, &v, NULL) < 0)
                    bad = "an attempt number";
                p.attempt_index = (uint32_t) v;
                break;
            }
            case 6:
                if (!adv_streq(word, "advice"))
                    bad = "\"advice\" after the attempt";
                p.advice = true;
                break;
            default:
                bad = "nothing after \"advice\"";
            }
        }
        if (!bad && (i == 1 || i == 3 || i == 5))
            bad = "an id after each word";
    }
    if (bad) {
        (void) adv_err_set_reason(err, ADV_INVALID_ARGUMENT, "NAME_MALFORMED", "%s \"%.64s\": expected %s",
                                  field, str_or(name), bad);
        return adv_err_field(err, "%s", field);
    }
    /* pointers go into the caller's copy */
#define MOVE(f) ret->f = p.f ? ret->scratch + (p.f - p.scratch) : NULL
    *ret = p;
    MOVE(cluster);
    MOVE(job_uid);
    MOVE(attempt);
    MOVE(node);
    MOVE(entry_uid);
#undef MOVE
    return 0;
}

int nodes_add(struct adv_hostlist *all, const char *text)
{
    ADV_AUTO(adv_hostlist) some = adv_hostlist_new(ATTEMPT_MAX_NODES);
    int r = some ? adv_hostlist_parse(some, text, NULL) : -ADV_RESOURCE_EXHAUSTED;

    if (r == -ADV_INVALID_ARGUMENT || (r == 0 && adv_hostlist_count(all) + adv_hostlist_count(some) > ATTEMPT_MAX_NODES))
        return 0;
    return r < 0 ? r : adv_hostlist_union(all, some, NULL);
}

bool nodes_most(const char *some, const char *all)
{
    ADV_AUTO(adv_hostlist) part = adv_hostlist_new(ATTEMPT_MAX_NODES);
    ADV_AUTO(adv_hostlist) whole = adv_hostlist_new(ATTEMPT_MAX_NODES);
    size_t n;

    if (!part || !whole || nodes_add(part, str_or(some)) < 0 || nodes_add(whole, str_or(all)) < 0)
        return true;
    n = adv_hostlist_count(part);
    return n > 1 && 2 * n > adv_hostlist_count(whole);
}

bool advice_approved(const struct advice *ad)
{
    return ad->approval == APPROVAL_APPROVED && ad->approval_generation == ad->generation;
}

bool advice_awaits_approval(const struct advice *ad)
{
    return ad->actionability == ACTION_NEEDS_APPROVAL && ad->disposition == DISPOSITION_PENDING &&
           ad->desired != DESIRED_NO_ACTION;
}

void node_free(struct node *n)
{
    if (!n)
        return;
    free(n->name);
    free(n->state_raw);
    free(n->reason);
    free(n);
}

void anomaly_free(struct anomaly *a)
{
    if (!a)
        return;
    free(a->uid);
    free(a->fault_class);
    free(a->rule);
    free(a->rules_version);
    free(a->named);
    free(a->nodes);
    free(a->ranks);
    free(a->stream);
    free(a->excerpt);
    free(a->excerpt_sha256);
    free(a->reporter);
    free(a->status_reason);
    free(a);
}

void advice_free(struct advice *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < ADVICE_MAX_REASONS; i++) {
        free(a->reasons[i].code);
        free(a->reasons[i].param);
        free(a->reasons[i].sentence);
    }
    free(a->exclude_nodes);
    free(a->people_nodes);
    free(a->summary);
    free(a->correlation_id);
    free(a->anomaly_uid);
    free(a->status_detail);
    free(a->approval_by);
    free(a->approval_reason);
    free(a->verdict_by);
    free(a->verdict_why);
    free(a);
}

void action_free(struct action *a)
{
    if (!a)
        return;
    free(a->journal_id);
    free(a->read_before);
    free(a->reason);
    free(a->detail);
    free(a);
}

void evidence_free(struct evidence *e)
{
    if (!e)
        return;
    free(e->uid);
    free(e->source);
    free(e->kind);
    free(e->nodes);
    free(e->ranks);
    free(e->summary);
    free(e->excerpt_ref);
    free(e->excerpt_sha256);
    free(e->reporter);
    free(e->request_id);
    free(e->fault_class);
    free(e->rule);
    free(e);
}

void attempt_free(struct attempt *a)
{
    struct evidence *ev, *ev_next;
    struct anomaly *an, *an_next;
    struct action *ac, *ac_next;

    if (!a)
        return;
    DL_FOREACH_SAFE(a->anomalies, an, an_next)
        anomaly_free(an);
    DL_FOREACH_SAFE(a->actions, ac, ac_next)
        action_free(ac);
    DL_FOREACH_SAFE(a->evidence, ev, ev_next)
        evidence_free(ev);
    advice_free(a->advice);
    attempt_not_slow(a);
    free(a->pulse);
    free(a->state_raw);
    free(a->attribution_note);
    free(a->nodes);
    free(a->telemetry_reason);
    free(a->source_fed);
    free(a->source_gap);
    free(a);
}

void job_free(struct job *j)
{
    if (!j)
        return;
    for (uint32_t i = 0; i < j->n_attempts; i++)
        attempt_free(j->attempts[i]);
    free(j->attempts);
    free(j->uid);
    free(j->job_id);
    free(j->display_name);
    free(j->user);
    free(j->account);
    free(j->partition);
    free(j->qos);
    free(j->reason);
    free(j->excluded_nodes);
    free(j->required_nodes);
    free(j->stdout_path);
    free(j->comment);
    free(j->policy);
    free(j->workflow);
    free(j->comment_error);
    free(j->progress);
    free(j);
}

void workflow_free(struct workflow *w)
{
    if (!w)
        return;
    free(w->name);
    free(w);
}

void cluster_free(struct cluster *c)
{
    struct order_node *o;
    struct job *j, *j_next;
    struct node *n, *n_next;
    struct entry *e, *e_next;
    struct enrolment *en, *en_next;
    struct revocation *r, *r_next;

    if (!c)
        return;
    HASH_CLEAR(hh_id, c->jobs_by_id);
    while ((o = order_after(&c->workflows_in_order, ""))) {
        order_remove(&c->workflows_in_order, o);
        workflow_free(ADV_CONTAINER_OF(o, struct workflow, by_name));
    }
    HASH_ITER(hh_uid, c->jobs_by_uid, j, j_next) {
        HASH_DELETE(hh_uid, c->jobs_by_uid, j);
        job_free(j);
    }
    HASH_ITER(hh, c->nodes, n, n_next) {
        HASH_DEL(c->nodes, n);
        node_free(n);
    }
    for (size_t i = 0; i < ADV_ARRAY_LEN(c->entries); i++) {
        HASH_ITER(hh, c->entries[i], e, e_next) {
            HASH_DEL(c->entries[i], e);
            entry_free(e);
        }
    }
    HASH_ITER(hh, c->enrolments, en, en_next) {
        HASH_DEL(c->enrolments, en);
        enrolment_free(en);
    }
    HASH_ITER(hh, c->revocations, r, r_next) {
        HASH_DEL(c->revocations, r);
        revocation_free(r);
    }
    free(c->name);
    free(c->agent_version);
    free(c->scheduler);
    free(c->ceiling_reason);
    free(c->holder_journal);
    free(c->holder_process);
    free(c->ousted_process);
    free(c->blind_journal);
    free(c->who_sees);
    free(c->holder_instance);
    free(c->epoch_warning);
    free(c->sources_unknown);
    free(c->audit_hash);
    free(c);
}
