/* SPDX-License-Identifier: Apache-2.0 */
/* Plays an event script through the domain and prints what it did, one line a change. Time comes from the script, so
 * hours pass in microseconds.
 *
 * usage: run-script SCRIPT GOLDEN     compares; UPDATE_GOLDEN=1 writes GOLDEN instead
 *
 * A script line is:   AT VERB ARGS...   with AT like 12.5 (seconds), or # for a comment. Words are key=value; a value
 * with blanks is in single quotes. Between lines EV_TICK runs at each deadline. Verbs:
 *   config [optedin=1] key=SECONDS... [jobs=N] [trust=PRINCIPAL] [confidence=PERCENT]    before the first event; jobs: how many are kept
 *   create CLUSTER | mode CLUSTER MODE
 *   hello CLUSTER instance= journal= ceiling= [forget=SECONDS] [keep=1] [process=] [epoch=T.C] [persistent=0] [resume=1|2]     2: as it was when the agent went
 *   gone CLUSTER instance= | take CLUSTER instance= journal= [ceiling=] [persistent=0] | report CLUSTER instance= ceiling=
 *   takeover CLUSTER                  by another owner than the one so far
 *   nodes CLUSTER HOSTLIST            nodes of the cluster, sent with the next state
 *   state CLUSTER instance= [full=1] [gone=JOB] [ended=JOB [by=1|2|3]] job=ID state= [restarts=] [submit=] [end=] [exit=] [signal=] [nodes=]
 *         [comment=] [user=] [batch=0] [requeueable=0] [held=1] [partition=] [inc=]      without inc: of an agent that has watched the id
 *   log CLUSTER JOB/N signature rule= class= retryable= precedence= [terminal=0] [blame=node|reporter|lead|none] [nodes=] [offset=] [kind=hang] [outside=1]
 *       [submit=]      which attempt is meant
 *   log CLUSTER JOB/N notice rule= class= [blame=node] [nodes=]
 *   log CLUSTER JOB/N progress|checkpoint|resumed STEP [late=1] | log CLUSTER JOB/N finished|recovered
 *         [unit=item|epoch|none] [total=] [series=]
 *   steps CLUSTER JOB/N from= n= every=SECONDS [by=] [unit=] [total=] [series=]   progress again and again; attempts are
 *         not printed, and time goes on to the last
 *   witness CLUSTER JOB/N KIND [holds=0] [source=] [detail=]
 *   logstream CLUSTER up|down
 *   activity CLUSTER JOB/N            what can be said of it
 *   telemetry CLUSTER JOB/N STATE [reason=] [submit=] [dropped=] | shed CLUSTER JOB/N BYTES
 *   exclude CLUSTER NODE [reason=] [expire=SECONDS] | lift CLUSTER NODE [reason=]
 *   window CLUSTER [start=SECONDS] end=SECONDS | endwindow CLUSTER       ends the newest
 *   closeincident CLUSTER                                               the newest
 *   policy NAME DOCUMENT
 *   age CLUSTER [excerpts=AT] [jobs=AT] [limit=] | cut CLUSTER SEQ | forget CLUSTER USER [limit=]
 *   report-anomaly CLUSTER JOB/N rule= [by=] [kind=hang] [class=] [retryable=] [nodes=] [excerpt=] [at=SECONDS]
 *   report-evidence CLUSTER JOB/N [source=] [what=] [nodes=] [weight=] [from=SECONDS] [to=SECONDS] [at=SECONDS]
 *         [class=] [rule=] [origin=1|2]        1: of our own sources, 2: of a provider
 *   attribution CLUSTER JOB/N fast|slow [class=] [nodes=] [confidence=] [provider=] | [none=WHY]     what a provider says
 *   report-progress CLUSTER JOB/N progress|checkpoint|resumed STEP [at=SECONDS]
 *   approve|reject CLUSTER JOB/N gen= [reason=]
 *   verdict CLUSTER JOB/N right|wrong gen= [why=]
 *   status CLUSTER JOB/N gen= epoch= disposition= reason= | action CLUSTER JOB/N seq= verb= gen= [outcome=ACCEPTED]
 *   clock SECONDS                     somebody sets the wall clock so much forward, or back
 *   frozen                            until then the control plane stood still: nothing was looked at in time
 *   show                              the whole state */

#include <ctype.h>
#include <stdio.h>
#include <utlist.h>

#include "controlplane/domain/fleet.h"
#include "controlplane/domain/pulse.h"

#define WORDS_MAX 48

static struct fleet *fleet;
static struct fleet_config config;
static struct adv_buf out;
static int64_t now_us;       /* of the clock that nobody sets */
static int64_t wall_ahead_us; /* of the wall clock */
static char *words[WORDS_MAX];
static size_t n_words;
static char node_names[64][32];
static size_t n_node_names;
static const char *script;
static int line_no;
static uint64_t digest_then; /* when the agent went */
static bool quiet; /* attempts are not printed */

static void die(const char *what) __attribute__((noreturn));
static void die(const char *what)
{
    fprintf(stderr, "%s:%d: %s\n", script, line_no, what);
    exit(2);
}

static const char *get(const char *key, const char *def)
{
    size_t n = strlen(key);

    for (size_t i = 0; i < n_words; i++)
        if (strncmp(words[i], key, n) == 0 && words[i][n] == '=')
            return words[i] + n + 1;
    return def;
}

static const char *word(size_t i)
{
    if (i >= n_words)
        die("a word is missing");
    return words[i];
}

static int64_t num(const char *key, int64_t def)
{
    const char *s = get(key, NULL);

    return s ? strtoll(s, NULL, 10) : def;
}

static void split(char *line)
{
    n_words = 0;
    for (char *p = line; *p;) {
        char *to;
        bool quoted = false;
        while (isspace((unsigned char) *p))
            p++;
        if (!*p)
            break;
        if (n_words == WORDS_MAX)
            die("too many words");
        words[n_words++] = to = p;
        while (*p && (quoted || !isspace((unsigned char) *p))) {
            if (*p == '\'')
                quoted = !quoted;
            else
                *to++ = *p;
            p++;
        }
        if (*p)
            p++;
        *to = '\0';
    }
}

/* ---- printing --------------------------------------------------------------------------------------------------- */

static void print(const char *fmt, ...) ADV_PRINTF(1, 2);
static void print(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void) adv_buf_vappendf(&out, fmt, ap);
    va_end(ap);
}

static void print_advice(const struct advice *ad)
{
    static const char *const act[] = { "unset", "shadow", "needs-approval", "actionable" };

    print("  advice %s/%u gen=%llu %s %s%s%s%s status=%s/%s%s\n", ad->attempt->job->job_id, ad->attempt->index,
          (unsigned long long) ad->generation, desired_name(ad->desired), act[ad->actionability],
          ad->exclude_nodes ? " exclude=" : "", str_or(ad->exclude_nodes), ad->may_interrupt ? " may-interrupt" : ad->preserve ? " preserve" : "",
          disposition_name(ad->disposition), disposition_reason_name(ad->disposition_reason), ad->open ? " open" : "");
    if (ad->approval != APPROVAL_NONE)
        print("    %s %llu by %s%s%s\n", ad->approval == APPROVAL_APPROVED ? "approved" : "rejected",
              (unsigned long long) ad->approval_generation, str_or(ad->approval_by), ad->approval_reason ? ": " : "",
              str_or(ad->approval_reason));
    if (ad->verdict != VERDICT_NONE)
        print("    found %s %llu by %s%s%s\n", ad->verdict == VERDICT_RIGHT ? "right" : "wrong",
              (unsigned long long) ad->verdict_generation, str_or(ad->verdict_by), ad->verdict_why ? ": " : "",
              str_or(ad->verdict_why));
    print("    \"%s\"\n    reasons:", str_or(ad->summary));
    for (uint32_t i = 0; i < ad->n_reasons; i++)
        print(" %s", ad->reasons[i].code);
    print("\n");
}

static void print_object(enum resource_kind kind, const void *o)
{
    switch (kind) {
    case RESOURCE_CLUSTER: {
        const struct cluster *c = o;
        print("  cluster %s mode=%s agent=%s epoch=%llu.%llu ceiling=%s%s%s\n", c->name, mode_name(c->mode),
              agent_state_name(c->agent_state), (unsigned long long) c->epoch.term, (unsigned long long) c->epoch.counter,
              mode_name(c->ceiling), c->epoch_warning ? " WARNING: " : "", str_or(c->epoch_warning));
        break;
    }
    case RESOURCE_JOB: {
        const struct job *j = o;
        print("  job %s%s%s%s%s\n", j->job_id, j->held ? " held" : "", j->gone ? " gone" : "",
              j->incarnation_unix ? "" : " incarnation-unknown", j->comment_error ? " comment-error" : "");
        if (j->progress)
            print("    progress pattern: %s\n", j->progress);
        if (j->comment_error && strstr(j->comment_error, "advisor.progress:"))
            print("    %s\n", j->comment_error);
        break;
    }
    case RESOURCE_ATTEMPT: {
        const struct attempt *a = o;
        if (quiet)
            break;
        print("  attempt %s/%u %s%s%s", a->job->job_id, a->index, job_state_name(a->state), a->unseen ? " unseen" : "",
              a->telemetry == TELEMETRY_LOST ? " telemetry-lost" : "");
        if (a->steps_seen)
            print(" step=%llu checkpoint=%llu", (unsigned long long) a->last_step,
                  (unsigned long long) a->last_checkpoint_step);
        if (a->attribution_us)
            print(" asked=%d,%d", (int) a->attribution_fast, (int) a->attribution_slow);
        print("%s%s%s%s%s%s%s%s%s\n", a->ms.first_suspicion_us ? " suspicion" : "", a->ms.end_observed_us ? " end" : "",
              a->ms.anomaly_confirmed_us ? " confirmed" : "", a->ms.advised_us ? " advised" : "",
              a->ms.first_command_us ? " commanded" : "", a->ms.converged_us ? " converged" : "",
              a->ms.successor_started_us ? " started" : "", a->ms.successor_productive_us ? " productive" : "",
              a->ms.job_completed_us ? " completed" : "");
        break;
    }
    case RESOURCE_ANOMALY: {
        const struct anomaly *an = o;
        print("  anomaly %s/%u %s %s class=%s%s%s%s%s%s: %s\n", an->attempt->job->job_id, an->attempt->index,
              an->rule ? an->rule : "(state)", anomaly_status_name(an->status), str_or(an->fault_class),
              an->nodes ? " nodes=" : "", str_or(an->nodes), an->reported ? " by " : "", an->reported ? str_or(an->reporter) : "",
              an->late ? " late" : "", str_or(an->status_reason));
        break;
    }
    case RESOURCE_ADVICE:
        print_advice(o);
        break;
    case RESOURCE_ACTION: {
        const struct action *ac = o;
        print("  action %s/%u %s %s\n", ac->attempt->job->job_id, ac->attempt->index, verb_name(ac->verb),
              ac->outcome_us ? command_name(ac->command) : "intent");
        break;
    }
    case RESOURCE_AUDIT:
    case RESOURCE_EXCLUSION: {
        static const char *const states[] = { "none", "active", "expired", "lifted" };
        const struct exclusion *x = o;
        print("  exclusion %s %s by %s: %s\n", str_or(x->node), states[x->state], str_or(x->owner), str_or(x->reason));
        break;
    }
    case RESOURCE_INCIDENT: {
        const struct incident *i = o;
        print("  incident %s x%u: %s\n", i->closed ? "closed" : "open", i->count, str_or(i->summary));
        break;
    }
    case RESOURCE_WINDOW: {
        static const char *const states[] = { "none", "planned", "open", "over" };
        const struct window *w = o;
        print("  window %s %lld..%lld: %s\n", states[w->state], (long long) (w->start_us / 1000000),
              (long long) (w->end_us / 1000000), str_or(w->reason));
        break;
    }
    case RESOURCE_POLICY: {
        const struct policy_doc *p = o;
        print("  policy %s version %llu\n", p->name, (unsigned long long) p->version);
        break;
    }
    case RESOURCE_EVIDENCE: {
        const struct evidence *e = o;
        print("  evidence %s/%u %s %s%s%s%s%s%s\n", e->attempt->job->job_id, e->attempt->index, str_or(e->source), str_or(e->kind),
              e->nodes ? " nodes=" : "", str_or(e->nodes), e->fault_class ? " class=" : "", str_or(e->fault_class),
              e->late ? " late" : "");
        break;
    }
    case RESOURCE_CHECKPOINT: {
        const struct checkpoint *cp = o;
        print("  checkpoint %llu%s\n", (unsigned long long) cp->seq, cp->signature ? " signed" : "");
        break;
    }
    case RESOURCE_ENROLMENT: /* tests/unit/domain/test-certs.c */
    case RESOURCE_REVOCATION:
    case RESOURCE_NODE: /* as the script says; not repeated */
    case RESOURCE_NONE:
    case RESOURCE_KIND_END_:
        break;
    }
}

static void apply(struct event *ev)
{
    struct intents in;
    struct adv_err err = { 0 };

    intents_init(&in);
    ev->now_us = now_us + wall_ahead_us;
    ev->mono_us = now_us;
    ev->principal = get("by", "script");
    if (fleet_apply(fleet, ev, &in, &err) < 0)
        print("  error %s %s: %s\n", adv_code_name(err.code), err.reason ? err.reason : "-", err.msg);
    for (size_t i = 0; i < in.n; i++)
        if (in.v[i].object)
            print_object(in.v[i].kind, in.v[i].object);
        else if (in.v[i].kind != RESOURCE_NODE)
            print("  gone: %s\n", in.v[i].gone_key);
    for (size_t i = 0; i < in.n_audit; i++)
        print("  audit #%llu %s\n", (unsigned long long) in.audit[i].seq, in.audit[i].verb);
    intents_done(&in);
}

static void run_until(int64_t at_us)
{
    for (int64_t w; (w = fleet_wait_us(fleet, now_us + wall_ahead_us, now_us)) >= 0 && now_us + w <= at_us;) {
        struct event ev = { .type = EV_TICK };
        now_us += w;
        print("@%.3f tick\n", (double) now_us / 1e6);
        apply(&ev);
    }
    now_us = at_us;
}

/* ---- verbs ------------------------------------------------------------------------------------------------------ */

static void job_and_index(const char *text, char job[32], uint32_t *index)
{
    const char *slash = strchr(text, '/');

    if (!slash)
        die("expected JOB/ATTEMPT");
    (void) snprintf(job, 32, "%.*s", (int) (slash - text), text);
    *index = (uint32_t) strtoul(slash + 1, NULL, 10);
}

static enum job_state state_of(const char *s)
{
    for (int i = 0; i <= JOB_STATE_LAST_; i++)
        if (adv_streq(job_state_name((enum job_state) i), s))
            return (enum job_state) i;
    die("unknown state");
}

static struct epoch epoch_of(const char *s)
{
    struct epoch e = { 0 };

    if (s && sscanf(s, "%lu.%lu", &e.term, &e.counter) != 2) /* test code: the script is ours */
        die("expected T.C");
    return e;
}

static void do_state(struct event *ev, bool full)
{
    static struct node_obs nodes[64];
    struct cluster *c = fleet_find_cluster(fleet, ev->cluster);
    const char *id = get("job", NULL), *gone[] = { get("gone", NULL) }, *ended = get("ended", NULL);
    struct job_end end = {
        .job_id = ended,
        .restart_count = (uint32_t) num("restarts", 0),
        .submit_unix = num("submit", 1000),
        .state = ended ? state_of(get("state", "FAILED")) : JOB_UNKNOWN,
        .state_raw = get("state", "FAILED"),
        .exit_code = (uint32_t) num("exit", 0),
        .start_unix = num("start", 0),
        .end_unix = num("end", 0),
        .nodes = get("nodes", "n[1-2]"),
        .cancelled_by = (enum cancelled_by) num("by", 0),
    };
    struct job *old = id && c ? fleet_find_job(c, id) : NULL;
    uint64_t digest = c ? cluster_digest(c) : 0;
    struct job_obs o = {
        .job_id = id,
        .state = id ? state_of(get("state", "RUNNING")) : JOB_UNKNOWN,
        .state_raw = get("state", "RUNNING"),
        .restart_count = (uint32_t) num("restarts", 0),
        .requeueable = num("requeueable", 1) != 0,
        .batch = num("batch", 1) != 0,
        .exit_code = (uint32_t) num("exit", 0),
        .exit_signal = (uint32_t) num("signal", 0),
        .submit_unix = num("submit", 1000),
        .start_unix = num("start", 0),
        .end_unix = num("end", 0),
        .incarnation_unix = num("inc", old && num("restarts", 0) ? old->incarnation_unix : 0),
        .held = num("held", 0) != 0,
        .nodes = get("nodes", "n[1-2]"),
        .user = get("user", "alice"),
        .partition = get("partition", "main"),
        .detail_known = true,
        .name = "train",
        .comment = get("comment", "{\"advisor\":{}}"),
        .hash = (uint64_t) now_us * 31 + (uint64_t) state_of(get("state", "RUNNING")),
    };

    ev->type = EV_STATE_UPDATE;
    ev->u.state.instance_id = get("instance", "i1");
    ev->u.state.full_begin = ev->u.state.full_end = full;
    ev->u.state.jobs = &o;
    ev->u.state.n_jobs = id ? 1 : 0;
    ev->u.state.ended = &end;
    ev->u.state.n_ended = ended ? 1 : 0;
    if (gone[0]) {
        struct job *j = c ? fleet_find_job(c, gone[0]) : NULL;
        ev->u.state.gone_jobs = gone;
        ev->u.state.n_gone_jobs = 1;
        if (j && j->present)
            digest ^= j->hash;
    }
    if (full) {
        digest = 0;
        for (size_t i = 0; i < n_node_names; i++) {
            nodes[i] = (struct node_obs) { node_names[i], "IDLE", "", true, i + 1 };
            digest ^= i + 1;
        }
        ev->u.state.nodes = nodes;
        ev->u.state.n_nodes = n_node_names;
    } else if (old && old->present) {
        digest ^= old->hash;
    }
    if (id)
        digest ^= o.hash;
    ev->u.state.digest = num("baddigest", 0) ? ~digest : digest;
    apply(ev);
    if (ev->u.state.ret_resync)
        print("  -> resync\n");
}

static enum finding_kind finding_of(const char *s)
{
    static const char *const names[] = { "signature", "progress", "checkpoint", "resumed", "finished", "recovered", "notice" };

    for (size_t i = 0; i < ADV_ARRAY_LEN(names); i++)
        if (adv_streq(s, names[i]))
            return (enum finding_kind) i;
    die("unknown finding");
}

static void take_numbers(struct event *ev)
{
    const char *unit = get("unit", "step");

    ev->u.finding.unit = *unit == 's' ? UNIT_STEP : *unit == 'i' ? UNIT_ITEM : *unit == 'e' ? UNIT_EPOCH : UNIT_NONE;
    ev->u.finding.total = (uint64_t) num("total", 0);
    ev->u.finding.series = (uint32_t) num("series", 1);
}

static void do_log(struct event *ev)
{
    const char *nodes = get("nodes", NULL), *r = get("retryable", "maybe"), *names[64];
    struct adv_hostlist *hl = adv_hostlist_new(64);
    char job[32];

    ev->type = EV_FINDING;
    job_and_index(word(3), job, &ev->u.finding.restart_count);
    ev->u.finding.job_id = job;
    ev->u.finding.submit_unix = num("submit", 0);
    ev->u.finding.kind = finding_of(word(4));
    ev->u.finding.observe_us = now_us + wall_ahead_us;
    ev->u.finding.outside = num("outside", 0) != 0;
    ev->u.finding.late = num("late", 0) != 0;
    if (ev->u.finding.kind != FINDING_SIGNATURE && ev->u.finding.kind != FINDING_NOTICE) {
        ev->u.finding.step = ev->u.finding.kind >= FINDING_FINISHED ? 0 : strtoull(word(5), NULL, 10);
        take_numbers(ev);
    } else {
        ev->u.finding.anomaly = adv_streq(get("kind", "crash"), "hang") ? ANOMALY_HANG : ANOMALY_CRASH;
        ev->u.finding.rule = get("rule", "r");
        ev->u.finding.fault_class = get("class", "unknown");
        ev->u.finding.retryable = *r == 'y' ? RETRYABLE_YES : *r == 'n' ? RETRYABLE_NO : RETRYABLE_MAYBE;
        ev->u.finding.precedence = (int32_t) num("precedence", 50);
        ev->u.finding.terminal = num("terminal", 1) != 0;
        ev->u.finding.blame = adv_streq(get("blame", "node"), "node")       ? BLAME_NODE :
                              adv_streq(get("blame", "node"), "reporter")   ? BLAME_REPORTER :
                              adv_streq(get("blame", "node"), "lead")       ? BLAME_LEAD :
                                                                              BLAME_NONE;
        ev->u.finding.stream = "stdout";
        ev->u.finding.offset = (uint64_t) num("offset", 0);
        ev->u.finding.excerpt = "…";
        if (nodes && adv_hostlist_parse(hl, nodes, NULL) == 0) {
            for (size_t i = 0; i < adv_hostlist_count(hl); i++)
                names[i] = adv_hostlist_nth(hl, i);
            ev->u.finding.nodes = names;
            ev->u.finding.n_nodes = adv_hostlist_count(hl);
        }
    }
    apply(ev);
    (void) adv_hostlist_free(hl);
}

static void do_steps(const char *cluster)
{
    int64_t n = num("n", 1), from = num("from", 1), by = num("by", 1), at = now_us;
    double every = strtod(get("every", "1"), NULL);
    char job[32];

    quiet = true;
    for (int64_t i = 0; i < n; i++) {
        struct event ev = { .type = EV_FINDING, .cluster = cluster };
        run_until(at + (int64_t) ((double) i * every * 1e6));
        job_and_index(word(3), job, &ev.u.finding.restart_count);
        ev.u.finding.job_id = job;
        ev.u.finding.kind = FINDING_PROGRESS;
        ev.u.finding.observe_us = now_us + wall_ahead_us;
        ev.u.finding.step = (uint64_t) (from + i * by);
        take_numbers(&ev);
        apply(&ev);
    }
    quiet = false;
}

static void do_witness(struct event *ev)
{
    char job[32];

    ev->type = EV_WITNESS;
    job_and_index(word(3), job, &ev->u.witness.restart_count);
    ev->u.witness.job_id = job;
    for (int k = 0; k < WITNESS_KIND_END_; k++)
        if (adv_streq(word(4), witness_name((enum witness_kind) k)))
            ev->u.witness.kind = (enum witness_kind) k;
    ev->u.witness.holds = num("holds", 1) != 0;
    ev->u.witness.source = get("source", "prometheus");
    ev->u.witness.detail = get("detail", "");
    apply(ev);
}

static void do_activity(const char *cluster)
{
    static const char *const names[] = { "unknown", "learning", "moving", "silent", "slow" };
    struct cluster *c = fleet_find_cluster(fleet, cluster);
    char job[32], why[ACTIVITY_WHY_MAX];
    uint32_t index;
    struct job *j;
    enum activity is;

    job_and_index(word(3), job, &index);
    j = c ? fleet_find_job(c, job) : NULL;
    if (!j || !job_attempt(j, index))
        die("no such attempt");
    is = attempt_activity(job_attempt(j, index), why);
    print("  activity %s: %s\n", names[is], why);
}

static const char *advice_name(const char *cluster, const char *job_index, char buf[RESOURCE_NAME_MAX])
{
    struct cluster *c = fleet_find_cluster(fleet, cluster);
    char job[32];
    uint32_t index;
    struct job *j;

    job_and_index(job_index, job, &index);
    j = c ? fleet_find_job(c, job) : NULL;
    if (!j || !job_attempt(j, index))
        die("no such attempt");
    return advice_resource_name(job_attempt(j, index), buf);
}

static void do_status(struct event *ev)
{
    char name[RESOURCE_NAME_MAX];
    int reason = 0, disposition = 0;

    for (int i = 1; i <= 4; i++)
        if (adv_streq(disposition_name((enum disposition) i), get("disposition", "CONVERGED")))
            disposition = i;
    for (int i = 1; i <= REASON_LAST_; i++)
        if (adv_streq(disposition_reason_name((uint32_t) i), get("reason", "DESIRED_STATE_OBSERVED")))
            reason = i;
    ev->type = EV_ADVICE_STATUS;
    ev->u.status.advice_name = advice_name(ev->cluster, word(3), name);
    ev->u.status.observed_generation = (uint64_t) num("gen", 1);
    ev->u.status.epoch = epoch_of(get("epoch", "0.1"));
    ev->u.status.disposition = (enum disposition) disposition;
    ev->u.status.reason = (uint32_t) reason;
    ev->u.status.detail = get("detail", "");
    apply(ev);
}

static void do_action(struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    ev->type = EV_ACTION;
    ev->u.action.journal_id = get("journal", "j1");
    ev->u.action.journal_seq = (uint64_t) num("seq", 1);
    ev->u.action.advice_name = advice_name(ev->cluster, word(3), name);
    ev->u.action.generation = (uint64_t) num("gen", 1);
    for (uint32_t v = 1; v <= 8; v++)
        if (adv_streq(verb_name(v), get("verb", "preserve")))
            ev->u.action.verb = v;
    ev->u.action.outcome = get("outcome", NULL) != NULL;
    ev->u.action.command = adv_streq(get("outcome", ""), "ACCEPTED")  ? COMMAND_ACCEPTED :
                           adv_streq(get("outcome", ""), "TIMED_OUT") ? COMMAND_TIMED_OUT :
                                                                        COMMAND_REFUSED;
    ev->u.action.observed = adv_streq(get("observed", "YES"), "UNKNOWN") ? OBSERVED_UNKNOWN :
                            adv_streq(get("observed", "YES"), "NO")      ? OBSERVED_NO :
                                                                           OBSERVED_YES;
    apply(ev);
}

/* Host names of "nodes=". */
static size_t named(struct adv_hostlist *hl, const char *names[64])
{
    const char *nodes = get("nodes", NULL);
    size_t n = 0;

    if (nodes && adv_hostlist_parse(hl, nodes, NULL) == 0)
        for (; n < adv_hostlist_count(hl); n++)
            names[n] = adv_hostlist_nth(hl, n);
    return n;
}

static void do_report_anomaly(struct event *ev)
{
    const char *r = get("retryable", "maybe"), *k = get("kind", "crash"), *names[64];
    struct adv_hostlist *hl = adv_hostlist_new(64);
    char name[RESOURCE_NAME_MAX];

    ev->type = EV_REPORT_ANOMALY;
    ev->u.anomaly.attempt_name = advice_name(ev->cluster, word(3), name);
    ev->u.anomaly.kind = *k == 'h' ? ANOMALY_HANG : *k == 's' ? ANOMALY_STRAGGLER : ANOMALY_CRASH;
    ev->u.anomaly.rule = get("rule", "r");
    ev->u.anomaly.fault_class = get("class", "");
    ev->u.anomaly.retryable = *r == 'y' ? RETRYABLE_YES : *r == 'n' ? RETRYABLE_NO : RETRYABLE_MAYBE;
    ev->u.anomaly.excerpt = get("excerpt", "");
    ev->u.anomaly.observe_us = num("at", 0) * 1000000;
    ev->u.anomaly.nodes = names;
    ev->u.anomaly.n_nodes = named(hl, names);
    apply(ev);
    (void) adv_hostlist_free(hl);
}

static void do_report_evidence(struct event *ev)
{
    struct adv_hostlist *hl = adv_hostlist_new(64);
    const char *names[64];
    char name[RESOURCE_NAME_MAX];

    ev->type = EV_REPORT_EVIDENCE;
    ev->u.evidence.attempt_name = advice_name(ev->cluster, word(3), name);
    ev->u.evidence.source = get("source", "dcgm");
    ev->u.evidence.kind = get("what", "ecc");
    ev->u.evidence.weight_percent = (uint32_t) num("weight", 50);
    ev->u.evidence.summary = get("summary", "");
    ev->u.evidence.excerpt_ref = ev->u.evidence.excerpt_sha256 = "";
    ev->u.evidence.window_start_us = num("from", 0) * 1000000;
    ev->u.evidence.window_end_us = num("to", 0) * 1000000;
    ev->u.evidence.observe_us = num("at", 0) * 1000000;
    ev->u.evidence.fault_class = get("class", "");
    ev->u.evidence.rule = get("rule", "");
    ev->u.evidence.origin = (enum evidence_origin) num("origin", EVIDENCE_OF_OUTSIDE);
    ev->u.evidence.nodes = names;
    ev->u.evidence.n_nodes = named(hl, names);
    apply(ev);
    (void) adv_hostlist_free(hl);
}

static void do_attribution(struct event *ev)
{
    struct adv_hostlist *hl = adv_hostlist_new(64);
    const char *names[64];
    char name[RESOURCE_NAME_MAX];
    struct attribution v = { .fault_class = get("class", "gpu_hardware"), .confidence_percent = (uint32_t) num("confidence", 90),
                             .summary = "", .provider = get("provider", "acme") };

    v.nodes = names;
    v.n_nodes = named(hl, names);
    ev->type = EV_ATTRIBUTION;
    ev->u.attribution.attempt_name = advice_name(ev->cluster, word(3), name);
    ev->u.attribution.phase = adv_streq(word(4), "fast") ? ATTRIBUTION_FAST : ATTRIBUTION_SLOW;
    ev->u.attribution.v = &v;
    ev->u.attribution.n = v.n_nodes > 0;
    ev->u.attribution.note = get("none", "");
    ev->u.attribution.answered = !get("none", NULL);
    apply(ev);
    (void) adv_hostlist_free(hl);
}

static void do_report_progress(struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    ev->type = EV_REPORT_PROGRESS;
    ev->u.progress.attempt_name = advice_name(ev->cluster, word(3), name);
    ev->u.progress.kind = finding_of(word(4));
    ev->u.progress.step = strtoull(word(5), NULL, 10);
    ev->u.progress.observe_us = num("at", 0) * 1000000;
    apply(ev);
}

static void do_approval(struct event *ev, enum approval decision)
{
    char name[RESOURCE_NAME_MAX];

    ev->type = EV_APPROVAL;
    ev->u.approval.attempt_name = advice_name(ev->cluster, word(3), name);
    ev->u.approval.generation = (uint64_t) num("gen", 1);
    ev->u.approval.decision = decision;
    ev->u.approval.reason = get("reason", "");
    apply(ev);
}

static void do_verdict(struct event *ev)
{
    char name[RESOURCE_NAME_MAX];

    ev->type = EV_VERDICT;
    ev->u.verdict.attempt_name = advice_name(ev->cluster, word(3), name);
    ev->u.verdict.generation = (uint64_t) num("gen", 1);
    ev->u.verdict.value = adv_streq(word(4), "right") ? VERDICT_RIGHT : adv_streq(word(4), "wrong") ? VERDICT_WRONG :
                                                                                                       VERDICT_NONE;
    ev->u.verdict.why = get("why", "");
    apply(ev);
}

/* The newest of a kind. */
static const char *newest(const struct event *ev, enum resource_kind kind)
{
    struct cluster *c = fleet_find_cluster(fleet, ev->cluster);
    const char *uid = NULL;

    for (struct entry *e = c ? c->entries[kind] : NULL; e; e = e->hh.next)
        uid = e->uid;
    return uid ? uid : "none";
}

static void do_exclude(struct event *ev)
{
    ev->type = EV_EXCLUSION_ADD;
    ev->u.exclusion.node = word(3);
    ev->u.exclusion.reason = get("reason", "");
    ev->u.exclusion.expire_us = num("expire", 0) * 1000000;
    apply(ev);
}

static void do_lift(struct event *ev)
{
    struct cluster *c = fleet_find_cluster(fleet, ev->cluster);

    ev->type = EV_EXCLUSION_LIFT;
    ev->u.entry.uid = "none";
    for (struct entry *e = c ? c->entries[RESOURCE_EXCLUSION] : NULL; e; e = e->hh.next)
        if (adv_streq(((struct exclusion *) e)->node, word(3)))
            ev->u.entry.uid = e->uid;
    ev->u.entry.reason = get("reason", "");
    apply(ev);
}

static void do_window(struct event *ev, bool end)
{
    ev->type = end ? EV_WINDOW_END : EV_WINDOW_CREATE;
    if (end) {
        ev->u.entry.uid = newest(ev, RESOURCE_WINDOW);
    } else {
        ev->u.window.start_us = num("start", 0) * 1000000;
        ev->u.window.end_us = num("end", 0) * 1000000;
        ev->u.window.reason = get("reason", "work");
    }
    apply(ev);
}

static void do_age(struct event *ev)
{
    ev->type = EV_RETENTION;
    ev->u.retention.excerpts_before_us = num("excerpts", 0) * 1000000;
    ev->u.retention.jobs_before_us = num("jobs", 0) * 1000000;
    ev->u.retention.limit = (uint32_t) num("limit", 1000);
    apply(ev);
    if (ev->u.retention.ret_more)
        print("  -> more\n");
}

static void do_forget(struct event *ev)
{
    ev->type = EV_FORGET;
    ev->u.forget.user = word(3);
    ev->u.forget.limit = (uint32_t) num("limit", 1000);
    apply(ev);
    print("  -> %u forgotten, %u present%s\n", ev->u.forget.ret_forgotten, ev->u.forget.ret_present + ev->u.forget.ret_listed,
          ev->u.forget.ret_more ? ", more" : "");
}

static void do_show(void)
{
    for (struct cluster *c = fleet->clusters; c; c = c->hh.next) {
        print_object(RESOURCE_CLUSTER, c);
        for (struct job *j = c->jobs_by_uid; j; j = j->hh_uid.next) {
            print_object(RESOURCE_JOB, j);
            for (uint32_t i = 0; i < j->n_attempts; i++) {
                const struct anomaly *an;
                print_object(RESOURCE_ATTEMPT, j->attempts[i]);
                DL_FOREACH (j->attempts[i]->anomalies, an)
                    print_object(RESOURCE_ANOMALY, an);
                if (j->attempts[i]->advice)
                    print_object(RESOURCE_ADVICE, j->attempts[i]->advice);
            }
        }
    }
}

static void do_nodes(void)
{
    struct adv_hostlist *hl = adv_hostlist_new(64);

    if (!hl || adv_hostlist_parse(hl, word(3), NULL) < 0)
        die("bad host list");
    n_node_names = adv_hostlist_count(hl);
    for (size_t i = 0; i < n_node_names; i++)
        (void) snprintf(node_names[i], sizeof(node_names[i]), "%s", adv_hostlist_nth(hl, i));
    (void) adv_hostlist_free(hl);
}

static void do_config(void)
{
    const struct {
        const char *key;
        int64_t *us;
    } keys[] = {
        { "settle", &config.policy.log_settle_us },       { "fallback", &config.policy.fallback_delay_us },
        { "window", &config.policy.shared_cause_window_us }, { "grace", &config.policy.suspicion_grace_us },
        { "blind", &config.policy.min_runtime_blind_us }, { "unlearned", &config.policy.unlearned_silence_us },
        { "fast", &config.policy.attribution_fast_us }, { "slow", &config.policy.attribution_slow_us }, { "lease", &config.lease_us },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(keys); i++)
        if (get(keys[i].key, NULL))
            *keys[i].us = (int64_t) (strtod(get(keys[i].key, "0"), NULL) * 1e6);
    config.max_jobs = (uint32_t) num("jobs", config.max_jobs);
    config.policy.make_requeueable_opted_in = num("optedin", config.policy.make_requeueable_opted_in) != 0;
    config.policy.restart_stragglers = num("stragglers", config.policy.restart_stragglers) != 0;
    config.policy.attribution_min_percent = (uint32_t) num("confidence", config.policy.attribution_min_percent);
    if (*get("trust", "")) {
        const char *name = get("trust", "");
        if (policy_trust(&config.policy, &name, 1, NULL) < 0)
            die("not a principal");
    }
    fleet->cfg = config;
}

static void run_line(void)
{
    struct event ev = { .cluster = n_words > 2 ? words[2] : NULL };
    const char *verb = word(1);

    if (adv_streq(verb, "config")) {
        do_config();
    } else if (adv_streq(verb, "create")) {
        ev.type = EV_CLUSTER_CREATE;
        apply(&ev);
    } else if (adv_streq(verb, "mode")) {
        ev.type = EV_SET_MODE;
        if (!mode_from_name(word(3), &ev.u.set_mode.mode))
            die("unknown mode");
        apply(&ev);
    } else if (adv_streq(verb, "hello")) {
        ev.type = EV_AGENT_HELLO;
        ev.u.hello.instance_id = get("instance", "i1");
        ev.u.hello.process = get("process", NULL);
        ev.u.hello.journal_id = get("journal", "j1");
        ev.u.hello.journal_persistent = num("persistent", 1) != 0;
        ev.u.hello.highest_epoch = epoch_of(get("epoch", NULL));
        (void) mode_from_name(get("ceiling", "act"), &ev.u.hello.ceiling);
        ev.u.hello.forget_after_s = (uint32_t) num("forget", 0);
        ev.u.hello.preserve_in_approve = num("keep", 0) != 0;
        if (num("resume", 0) && fleet_find_cluster(fleet, ev.cluster)) { /* offers what is held here, too */
            ev.u.hello.resume = true;
            ev.u.hello.resume_epoch = fleet_find_cluster(fleet, ev.cluster)->epoch;
            ev.u.hello.resume_digest = num("resume", 0) == 2 ? digest_then : fleet_find_cluster(fleet, ev.cluster)->digest;
        }
        apply(&ev);
        print("  -> %s%s%s\n", ev.u.hello.ret_granted ? "granted" : "standby", ev.u.hello.ret_settle ? ", settle" : "",
              ev.u.hello.ret_resumed ? ", resumed" : "");
    } else if (adv_streq(verb, "gone")) {
        ev.type = EV_AGENT_GONE;
        digest_then = fleet_find_cluster(fleet, ev.cluster) ? fleet_find_cluster(fleet, ev.cluster)->digest : 0;
        ev.u.gone.instance_id = get("instance", "i1");
        apply(&ev);
    } else if (adv_streq(verb, "take")) {
        ev.type = EV_LEASE_TAKE;
        ev.u.take.instance_id = get("instance", "i2");
        ev.u.take.journal_id = get("journal", "j2");
        ev.u.take.journal_persistent = num("persistent", 1) != 0;
        (void) mode_from_name(get("ceiling", "act"), &ev.u.take.ceiling);
        apply(&ev);
        print("  -> %s\n", ev.u.take.ret_granted ? "granted" : "refused");
    } else if (adv_streq(verb, "takeover")) {
        struct cluster *c = fleet_find_cluster(fleet, ev.cluster);
        if (!c)
            die("no such cluster");
        fleet_take_over(fleet, c, 1, INT64_MAX, now_us + wall_ahead_us, now_us);
    } else if (adv_streq(verb, "report")) {
        ev.type = EV_AGENT_REPORT;
        ev.u.report.instance_id = get("instance", "i1");
        (void) mode_from_name(get("ceiling", "act"), &ev.u.report.ceiling);
        apply(&ev);
    } else if (adv_streq(verb, "nodes")) {
        do_nodes();
    } else if (adv_streq(verb, "state")) {
        do_state(&ev, num("full", 0) != 0);
    } else if (adv_streq(verb, "log")) {
        do_log(&ev);
    } else if (adv_streq(verb, "steps")) {
        do_steps(ev.cluster);
    } else if (adv_streq(verb, "witness")) {
        do_witness(&ev);
    } else if (adv_streq(verb, "activity")) {
        do_activity(ev.cluster);
    } else if (adv_streq(verb, "logstream")) {
        ev.type = EV_LOG_STREAM;
        ev.u.log_stream.open = adv_streq(word(3), "up");
        apply(&ev);
    } else if (adv_streq(verb, "telemetry")) {
        char job[32];
        ev.type = EV_TELEMETRY;
        job_and_index(word(3), job, &ev.u.telemetry.restart_count);
        ev.u.telemetry.job_id = job;
        ev.u.telemetry.submit_unix = num("submit", 0);
        ev.u.telemetry.reason = get("reason", "");
        ev.u.telemetry.state = adv_streq(word(4), "LOST")      ? TELEMETRY_LOST :
                               adv_streq(word(4), "PARTIAL")   ? TELEMETRY_PARTIAL :
                                                                 TELEMETRY_COMPLETE;
        ev.u.telemetry.dropped_bytes = (uint64_t) num("dropped", 0);
        apply(&ev);
    } else if (adv_streq(verb, "shed")) {
        char job[32];
        ev.type = EV_LOG_SHED;
        job_and_index(word(3), job, &ev.u.shed.restart_count);
        ev.u.shed.job_id = job;
        ev.u.shed.bytes = strtoull(word(4), NULL, 10);
        apply(&ev);
    } else if (adv_streq(verb, "source")) { /* source CLUSTER JOB/N [fed=NAME] [gap=WHY] */
        char job[32];
        ev.type = EV_SOURCE;
        job_and_index(word(3), job, &ev.u.source.restart_count);
        ev.u.source.job_id = job;
        ev.u.source.fed = get("fed", NULL);
        ev.u.source.gap = get("gap", NULL);
        apply(&ev);
    } else if (adv_streq(verb, "exclude")) {
        do_exclude(&ev);
    } else if (adv_streq(verb, "lift")) {
        do_lift(&ev);
    } else if (adv_streq(verb, "window") || adv_streq(verb, "endwindow")) {
        do_window(&ev, *verb == 'e');
    } else if (adv_streq(verb, "closeincident")) {
        ev.type = EV_INCIDENT_CLOSE;
        ev.u.entry.uid = newest(&ev, RESOURCE_INCIDENT);
        ev.u.entry.reason = get("reason", "");
        apply(&ev);
    } else if (adv_streq(verb, "policy")) {
        ev.type = EV_POLICY_APPLY;
        ev.u.policy.name = word(2);
        ev.u.policy.document = ev.u.policy.document_sha256 = word(3);
        apply(&ev);
    } else if (adv_streq(verb, "age")) {
        do_age(&ev);
    } else if (adv_streq(verb, "forget")) {
        do_forget(&ev);
    } else if (adv_streq(verb, "cut")) {
        ev.type = EV_AUDIT_CUT;
        ev.u.cut.seq = strtoull(word(3), NULL, 10);
        ev.u.cut.hash = "h";
        ev.u.cut.store_uuid = "u";
        apply(&ev);
    } else if (adv_streq(verb, "approve") || adv_streq(verb, "reject")) {
        do_approval(&ev, *verb == 'a' ? APPROVAL_APPROVED : APPROVAL_REJECTED);
    } else if (adv_streq(verb, "report-anomaly")) {
        do_report_anomaly(&ev);
    } else if (adv_streq(verb, "report-evidence")) {
        do_report_evidence(&ev);
    } else if (adv_streq(verb, "attribution")) {
        do_attribution(&ev);
    } else if (adv_streq(verb, "report-progress")) {
        do_report_progress(&ev);
    } else if (adv_streq(verb, "verdict")) {
        do_verdict(&ev);
    } else if (adv_streq(verb, "status")) {
        do_status(&ev);
    } else if (adv_streq(verb, "action")) {
        do_action(&ev);
    } else if (adv_streq(verb, "show")) {
        do_show();
    } else if (adv_streq(verb, "clock")) {
        wall_ahead_us += strtoll(word(2), NULL, 10) * 1000000;
    } else if (!adv_streq(verb, "wait") && !adv_streq(verb, "frozen")) {
        die("unknown verb");
    }
}

static char *slurp(const char *path, size_t *ret_len)
{
    FILE *f = fopen(path, "re");
    char *s = calloc(1, 1 << 20);

    *ret_len = f && s ? fread(s, 1, (1 << 20) - 1, f) : 0;
    if (f)
        (void) fclose(f);
    return s;
}

static int compare(const char *golden)
{
    size_t n;
    char *want = slurp(golden, &n);
    bool same = n == out.len && memcmp(want, out.data, n) == 0;

    if (getenv("UPDATE_GOLDEN")) {
        FILE *f = fopen(golden, "we");
        if (!f || fwrite(out.data, 1, out.len, f) != out.len || fclose(f) != 0)
            die("cannot write the golden file");
        same = true;
    }
    if (!same) {
        size_t line = 1, i = 0;
        for (; i < n && i < out.len && want[i] == out.data[i]; i++)
            line += want[i] == '\n';
        fprintf(stderr, "%s: differs from %s at line %zu\n--- got:\n%s", script, golden, line, out.data);
    }
    free(want);
    return same ? 0 : 1;
}

/* Stands for the engine, which the domain does not know. */
static bool progress_check(const char *pattern, char *ret_why, size_t cap)
{
    if (strstr(pattern, "(?<step>"))
        return true;
    (void) snprintf(ret_why, cap, "expected one group named step");
    return false;
}

int main(int argc, char **argv)
{
    char line[4096];
    FILE *f;
    int r;

    if (argc != 3) {
        fprintf(stderr, "usage: run-script SCRIPT GOLDEN\n");
        return 2;
    }
    script = argv[1];
    f = fopen(script, "re");
    if (!f)
        die("cannot open");
    adv_buf_init(&out, 4 << 20);
    config.lease_us = 45000000;
    config.log_detection = true;
    config.progress_check = progress_check;
    policy_defaults(&config.policy);
    fleet = fleet_new(&config);
    fleet_load_done(fleet, true, 0, 0);
    fleet->store_term = 0;
    while (fgets(line, sizeof(line), f)) {
        line_no++;
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || !line[strspn(line, " ")]) {
            print("%s\n", line);
            continue;
        }
        {
            char copy[4096];
            (void) strcpy(copy, line);
            split(copy);
            if (adv_streq(word(1), "frozen"))
                now_us = (int64_t) (strtod(word(0), NULL) * 1e6);
            else
                run_until((int64_t) (strtod(word(0), NULL) * 1e6));
            print("%s\n", line);
            run_line();
        }
    }
    (void) fclose(f);
    r = compare(argv[2]);
    adv_buf_done(&out);
    (void) fleet_free(fleet);
    return r;
}
