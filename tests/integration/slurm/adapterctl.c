/* SPDX-License-Identifier: Apache-2.0 */

/* adapterctl: one operation of the Slurm adapter from the command line, answered as JSON. For tests only.
 *
 *   adapterctl [--state DIR] describe | nodes | inspect ID
 *   adapterctl [--state DIR] observe [--times N] [--interval MS]
 *   adapterctl [--state DIR] act VERB ID --expect-restarts N [--expect-submit S] [--exclude a,b] [--before a,b]
 *              [--comment TEXT] [--deadline MS] [--only-in-hold] [--deny]
 *
 * Without --expect-submit the job is inspected first and its submit time taken. */

#include <jansson.h>
#include <signal.h>
#include <stdio.h>

#include "adapters/runner/local.h"
#include "adapters/slurm/slurm.h"
#include "common/num.h"
#include "common/utf8.h"

#define LIST_MAX 64

struct tool {
    uv_loop_t loop;
    struct adapter_host host;
    struct adapter *adapter;
    struct adapter_action action;
    const char *lists[2][LIST_MAX];
    const char *id;
    bool deny, done;
    int writes;
    int times, interval_ms;
    uv_timer_t timer;
};

static json_t *text(const char *s)
{
    adv_auto_free char *clean = adv_utf8_lossy(s, strlen(s));

    return json_string(clean);
}

static void put(json_t *o, const char *key, json_t *v)
{
    if (json_object_set_new(o, key, v) < 0)
        abort();
}

static json_t *job_json(const struct adapter_job *j)
{
    json_t *o = json_object();

    put(o, "id", text(j->id));
    put(o, "raw_id", json_integer(j->raw_id));
    put(o, "state", text(adapter_job_state_name(j->state)));
    put(o, "state_text", text(j->state_text));
    put(o, "completing", json_boolean(j->completing));
    put(o, "restarts", json_integer(j->restart_count));
    put(o, "requeueable", json_boolean(j->requeueable));
    put(o, "batch", json_boolean(j->batch));
    put(o, "exit_code", json_integer(j->exit.known ? j->exit.code : -1));
    put(o, "signal", json_integer(j->exit.signal));
    put(o, "submit", json_integer(j->submit_s));
    put(o, "eligible", json_integer(j->eligible_s));
    put(o, "start", json_integer(j->start_s));
    put(o, "end", json_integer(j->end_s));
    put(o, "priority", json_integer((json_int_t) j->priority));
    put(o, "held", json_boolean(j->held));
    put(o, "held_by_requeue", json_boolean(j->held_by_requeue));
    put(o, "reason", text(j->reason));
    put(o, "nodes", text(j->nodes));
    put(o, "user", text(j->user));
    put(o, "partition", text(j->partition));
    put(o, "node_count", json_integer(j->node_count));
    return o;
}

static json_t *detail_json(const struct adapter_job_detail *d)
{
    if (!d)
        return json_null();
    json_t *o = job_json(&d->job);
    put(o, "name", text(d->name));
    put(o, "comment", text(d->comment));
    put(o, "workdir", text(d->workdir));
    put(o, "stdout", text(d->stdout_path));
    put(o, "stderr", text(d->stderr_path));
    put(o, "excluded", text(d->excluded_nodes));
    put(o, "required", text(d->required_nodes));
    put(o, "dependency", text(d->job.dependency));
    put(o, "time_limit", json_integer(d->time_limit_s));
    json_t *parts = json_array();
    for (size_t i = 0; i < d->n_parts; i++) {
        json_t *p = json_object();
        put(p, "id", text(d->parts[i].id));
        put(p, "state", text(adapter_job_state_name(d->parts[i].state)));
        put(p, "restarts", json_integer(d->parts[i].restart_count));
        put(p, "eligible", json_integer(d->parts[i].eligible_s));
        put(p, "excluded", text(d->parts[i].excluded_nodes));
        (void) json_array_append_new(parts, p);
    }
    put(o, "parts", parts);
    return o;
}

static void print(json_t *o)
{
    (void) json_dumpf(o, stdout, JSON_COMPACT);
    (void) fputc('\n', stdout);
    (void) fflush(stdout);
    json_decref(o);
}

static void on_describe(void *arg, const struct adapter_description *d, const struct adv_err *err)
{
    static const char *const sight[] = { "unknown", "full", "partial" };
    static const char *const privilege[] = { "unknown", "none", "operator", "admin" };
    struct tool *t = arg;
    json_t *o = json_object();

    put(o, "ok", json_boolean(d != NULL));
    if (d) {
        put(o, "version", text(d->version));
        put(o, "cluster", text(d->cluster));
        put(o, "verbs", json_integer(d->verbs));
        put(o, "sight", text(sight[d->sight]));
        put(o, "privilege", text(privilege[d->privilege]));
        put(o, "accounting", json_boolean(d->accounting));
        put(o, "forget_after", json_integer(d->forget_after_s));
    }
    put(o, "error", text(err ? err->msg : ""));
    print(o);
    t->done = true;
}

static void on_observe(void *arg, struct adapter_observation *obs);

static void again(uv_timer_t *timer)
{
    struct tool *t = timer->data;

    t->adapter->ops->observe(t->adapter, on_observe, t);
}

static void on_observe(void *arg, struct adapter_observation *obs)
{
    struct tool *t = arg;
    json_t *o = json_object(), *jobs = json_array();

    put(o, "complete", json_boolean(obs->complete));
    put(o, "unknown_reason", text(obs->unknown_reason ? obs->unknown_reason : ""));
    put(o, "error", text(obs->err.msg));
    for (size_t i = 0; i < obs->n_jobs; i++)
        (void) json_array_append_new(jobs, job_json(&obs->jobs[i]));
    put(o, "jobs", jobs);
    print(o);
    (void) adapter_observation_free(obs);
    if (--t->times > 0)
        (void) uv_timer_start(&t->timer, again, (uint64_t) t->interval_ms, 0);
    else
        t->done = true;
}

static void on_nodes(void *arg, struct adapter_node_list *l)
{
    struct tool *t = arg;
    json_t *o = json_object(), *nodes = json_array();

    put(o, "complete", json_boolean(l->complete));
    put(o, "error", text(l->err.msg));
    for (size_t i = 0; i < l->n_nodes; i++) {
        json_t *n = json_object();
        put(n, "name", text(l->nodes[i].name));
        put(n, "state", text(l->nodes[i].state_text));
        put(n, "usable", json_boolean(adapter_node_usable(&l->nodes[i])));
        put(n, "reason", text(l->nodes[i].reason));
        put(n, "partitions", text(l->nodes[i].partitions));
        (void) json_array_append_new(nodes, n);
    }
    put(o, "nodes", nodes);
    print(o);
    (void) adapter_node_list_free(l);
    t->done = true;
}

static void on_inspect(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    static const char *const names[] = { "unknown", "found", "gone" };
    struct tool *t = arg;
    json_t *o = json_object();

    put(o, "found", text(names[found]));
    put(o, "job", detail_json(d));
    put(o, "error", text(err ? err->msg : ""));
    print(o);
    (void) adapter_job_detail_free(d);
    t->done = true;
}

static void on_history(void *arg, const struct adapter_end *ends, size_t n, const struct adv_err *err)
{
    static const char *const found[] = { "unknown", "ended", "none" };
    struct tool *t = arg;
    json_t *o = json_object();

    put(o, "found", text(found[ends[0].found]));
    if (ends[0].found == ADAPTER_PAST_ENDED) {
        put(o, "state", text(adapter_job_state_name(ends[0].state)));
        put(o, "state_text", text(ends[0].state_text));
        put(o, "exit_code", json_integer(ends[0].exit.known ? ends[0].exit.code : -1));
        put(o, "signal", json_integer(ends[0].exit.signal));
        put(o, "start", json_integer(ends[0].start_s));
        put(o, "end", json_integer(ends[0].end_s));
        put(o, "nodes", text(ends[0].nodes));
    }
    put(o, "error", text(err ? err->msg : ""));
    print(o);
    t->done = true;
}

static void on_act(void *arg, const struct adapter_result *r)
{
    static const char *const tri[] = { "maybe", "yes", "no" };
    struct tool *t = arg;
    json_t *o = json_object(), *notes = json_array(), *ours = json_array();

    put(o, "command", text(adapter_command_name(r->command)));
    put(o, "observed", text(adapter_observed_name(r->observed)));
    put(o, "reason", text(adapter_reason_name(r->reason)));
    put(o, "revived_wrongly", text(tri[r->revived_wrongly]));
    put(o, "writes", json_integer(t->writes));
    for (size_t i = 0; i < r->n_notes; i++)
        (void) json_array_append_new(notes, text(r->notes[i]));
    put(o, "notes", notes);
    for (size_t i = 0; i < r->n_excluded; i++)
        (void) json_array_append_new(ours, text(r->excluded[i]));
    put(o, "excluded", ours);
    put(o, "before", detail_json(r->before));
    put(o, "after", detail_json(r->after));
    put(o, "error", text(r->err.msg));
    print(o);
    t->done = true;
}

static void on_first_look(void *arg, enum adapter_found found, struct adapter_job_detail *d, const struct adv_err *err)
{
    struct tool *t = arg;

    /* not there: any submit time will do, as the action's own read finds the same */
    t->action.expect_submit_s = d ? d->job.submit_s : 1;
    (void) adapter_job_detail_free(d);
    t->adapter->ops->act(t->adapter, &t->action, on_act, t);
}

static void authorize(void *ctx, const struct adapter_write *w, adapter_authorize_cb cb, void *arg)
{
    struct tool *t = ctx;

    if (!t->deny)
        t->writes++;
    (void) fprintf(stderr, "write:");
    for (size_t i = 0; w->argv[i]; i++)
        (void) fprintf(stderr, " %s", w->argv[i]);
    (void) fprintf(stderr, "\n");
    cb(arg, !t->deny, 0);
}

static void log_line(void *ctx, enum adapter_log_level level, const char *line)
{
    (void) fprintf(stderr, "%s\n", line);
}

static size_t split(char *s, const char *out[LIST_MAX])
{
    size_t n = 0;

    for (char *save = NULL, *w = strtok_r(s, ",", &save); w && n < LIST_MAX; w = strtok_r(NULL, ",", &save))
        out[n++] = w;
    return n;
}

static int64_t number(const char *s)
{
    struct adv_err err;
    int64_t v;

    if (adv_parse_i64(s, 0, INT64_MAX, &v, &err) < 0) {
        (void) fprintf(stderr, "adapterctl: %s: %s\n", s, err.msg);
        exit(2);
    }
    return v;
}

static int usage(void)
{
    (void) fprintf(stderr, "usage: adapterctl [--state DIR] describe | observe | nodes | inspect ID | history ID ... | act VERB ID ...\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct tool t = { .times = 1, .interval_ms = 100, .action.tag = "test" };
    struct adapter_slurm_config config = { .state_dir = "." };
    struct adv_err err;
    char *words[4] = { NULL };
    size_t n_words = 0;
    bool submit_given = false;

    (void) signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < argc; i++) {
        char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;

        if (strncmp(a, "--", 2) != 0) {
            if (n_words == 3)
                return usage();
            words[n_words++] = a;
            continue;
        }
        if (strcmp(a, "--deny") == 0) {
            t.deny = true;
            continue;
        }
        if (strcmp(a, "--only-in-hold") == 0) {
            t.action.only_in_hold = true;
            continue;
        }
        if (!v)
            return usage();
        i++;
        if (strcmp(a, "--state") == 0)
            config.state_dir = v;
        else if (strcmp(a, "--user") == 0)
            config.user = v;
        else if (strcmp(a, "--landing-bound") == 0)
            config.landing_bound_ms = (int) number(v);
        else if (strcmp(a, "--command-deadline") == 0)
            config.command_deadline_ms = (int) number(v);
        else if (strcmp(a, "--times") == 0)
            t.times = (int) number(v);
        else if (strcmp(a, "--interval") == 0)
            t.interval_ms = (int) number(v);
        else if (strcmp(a, "--expect-restarts") == 0)
            t.action.expect_restarts = (uint32_t) number(v);
        else if (strcmp(a, "--expect-submit") == 0)
            t.action.expect_submit_s = number(v), submit_given = true;
        else if (strcmp(a, "--exclude") == 0)
            t.action.n_exclude = split(v, t.lists[0]);
        else if (strcmp(a, "--before") == 0)
            t.action.n_exclude_before = split(v, t.lists[1]);
        else if (strcmp(a, "--comment") == 0)
            t.action.expect_comment = v;
        else if (strcmp(a, "--parent") == 0)
            t.action.parent = v;
        else if (strcmp(a, "--parent-restarts") == 0)
            t.action.parent_restarts = (uint32_t) number(v);
        else if (strcmp(a, "--dependency-before") == 0)
            t.action.dependency_before = v;
        else if (strcmp(a, "--deadline") == 0)
            t.action.deadline_ms = (int) number(v);
        else
            return usage();
    }
    t.action.exclude = t.lists[0];
    t.action.exclude_before = t.lists[1];
    t.host = (struct adapter_host) { .ctx = &t, .authorize = authorize, .log = log_line };
    if (uv_loop_init(&t.loop) < 0 || runner_local_new(&t.loop, &t.host.runner, &err) < 0 ||
        adapter_slurm_new(&config, &t.host, &t.adapter, &err) < 0) {
        (void) fprintf(stderr, "adapterctl: %s\n", err.msg);
        return 1;
    }
    (void) uv_timer_init(&t.loop, &t.timer);
    t.timer.data = &t;

    const char *verb = words[0] ? words[0] : "";
    if (strcmp(verb, "describe") == 0) {
        t.adapter->ops->describe(t.adapter, on_describe, &t);
    } else if (strcmp(verb, "observe") == 0) {
        t.adapter->ops->observe(t.adapter, on_observe, &t);
    } else if (strcmp(verb, "nodes") == 0) {
        t.adapter->ops->nodes(t.adapter, on_nodes, &t);
    } else if (strcmp(verb, "inspect") == 0 && words[1]) {
        t.adapter->ops->inspect(t.adapter, words[1], on_inspect, &t);
    } else if (strcmp(verb, "history") == 0 && words[1] && submit_given) {
        struct adapter_attempt_id id = { .submit_s = t.action.expect_submit_s };
        (void) snprintf(id.id, sizeof(id.id), "%s", words[1]);
        t.adapter->ops->history(t.adapter, &id, 1, on_history, &t);
    } else if (strcmp(verb, "act") == 0 && words[2]) {
        t.action.verb = ADAPTER_VERB_MAX_;
        for (int v = 0; v < ADAPTER_VERB_MAX_; v++)
            if (strcmp(adapter_verb_name((enum adapter_verb) v), words[1]) == 0)
                t.action.verb = (enum adapter_verb) v;
        t.action.id = words[2];
        if (submit_given)
            t.adapter->ops->act(t.adapter, &t.action, on_act, &t);
        else
            t.adapter->ops->inspect(t.adapter, words[2], on_first_look, &t);
    } else {
        return usage();
    }
    while (!t.done && uv_run(&t.loop, UV_RUN_ONCE))
        ;
    t.adapter = adapter_free(t.adapter);
    t.host.runner->ops->free(t.host.runner);
    uv_close((uv_handle_t *) &t.timer, NULL);
    (void) uv_run(&t.loop, UV_RUN_DEFAULT);
    (void) uv_loop_close(&t.loop);
    return t.done ? 0 : 1;
}
