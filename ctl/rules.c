/* SPDX-License-Identifier: Apache-2.0 */
/* `rules test` and `rules lint`: the watcher and the domain of advisord over files, on this machine alone. */

#include <fcntl.h>
#include <stdio.h>

#include "common/json.h"
#include "common/redact.h"
#include "controlplane/replay/replay.h"
#include "ctl/commands.h"
#include "ctl/text.h"

#define MAX_LOG_BYTES ((size_t) 1 << 30)

struct test {
    struct ctl *ctl;
    struct replay_options opt;
    const char *file;
    json_t *steps; /* of the file at hand, with -o json */
    bool oom;
};

static enum ctl_exit refused(const char *what)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 8192);
    text_escape(&b, what);
    (void) fprintf(stderr, "advisorctl: %s\n", b.data);
    return CTL_EXIT_REFUSED;
}

static enum ctl_exit usage(const char *what)
{
    (void) refused(what);
    return CTL_EXIT_USAGE;
}

/* ---- lint ------------------------------------------------------------------------------------------------------- */

static int load(const char *dir, struct watcher_rules **ret, struct adv_err *err)
{
    return watcher_rules_load(dir ? dir : ADVISOR_RULES_DIR, ret, err);
}

enum ctl_exit cmd_rules_lint(struct ctl *ctl)
{
    ADV_AUTO(watcher_rules) rules = NULL;
    struct adv_err err = { 0 };
    size_t n = 0, positive = 0, negative = 0;
    enum ctl_exit x = CTL_EXIT_OK;

    if (load(ctl->args->word[0], &rules, &err) < 0)
        return refused(err.msg);
    const struct watcher_rule *list = watcher_rules_list(rules, &n);
    for (size_t i = 0; i < n; i++) {
        if (watcher_rules_check_rule(rules, i, &err) < 0)
            x = refused(err.msg);
        positive += list[i].n_positive;
        negative += list[i].n_negative;
    }
    if (x != CTL_EXIT_OK)
        return x;
    printf("%zu rules, %zu positive and %zu negative examples: good\nversion %s\n", n, positive, negative,
           watcher_rules_version(rules));
    return CTL_EXIT_OK;
}

/* ---- test ------------------------------------------------------------------------------------------------------- */

/* The whole file; more than MAX_LOG_BYTES are refused. */
static int slurp(const char *path, struct adv_buf *out, struct adv_err *err)
{
    adv_auto_close int opened = adv_streq(path, "-") ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    int fd = adv_streq(path, "-") ? STDIN_FILENO : opened;

    if (fd < 0)
        return adv_err_set_errno(err, ADV_NOT_FOUND, errno, "%s", path);
    for (;;) {
        char *space = adv_buf_reserve(out, 65536);
        ssize_t n = space ? read(fd, space, 65536) : -1;

        if (!space)
            return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%s: too large, expected at most %zu bytes", path, MAX_LOG_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return adv_err_set_errno(err, ADV_UNAVAILABLE, errno, "%s", path);
        if (n == 0)
            return 0;
        adv_buf_commit(out, (size_t) n);
    }
}

static void member(struct test *t, json_t *o, const char *key, json_t *value)
{
    t->oom |= json_object_set_new(o, key, value) < 0;
}

static void text_member(struct test *t, json_t *o, const char *key, const char *value)
{
    if (value && *value)
        member(t, o, key, json_string(value));
}

static void number_member(struct test *t, json_t *o, const char *key, int64_t value)
{
    if (value >= 0)
        member(t, o, key, json_integer(value));
}

static void step_as_json(struct test *t, const struct replay_step *s)
{
    const struct watcher_finding *f = s->finding;
    json_t *o = json_object();

    if (s->line)
        number_member(t, o, "line", (int64_t) s->line);
    if (!f) {
        text_member(t, o, "event", s->verb);
        text_member(t, o, "detail", s->detail);
    } else {
        text_member(t, o, "finding", watcher_finding_type_name(f->type));
        text_member(t, o, "rule", f->rule->id);
        if (f->type == WATCHER_SIGNATURE || f->type == WATCHER_NOTICE || f->type == WATCHER_CALMED) {
            text_member(t, o, "class", watcher_class_name(f->rule->fault_class));
            text_member(t, o, "retryable", watcher_retryable_name(f->rule->retryable));
            member(t, o, "precedence", json_integer(f->rule->precedence));
            member(t, o, "terminal", json_boolean(f->rule->terminal));
        }
        if (f->type == WATCHER_CALMED)
            text_member(t, o, "calmedBy", f->calmed_by ? f->calmed_by->id : "caught exception");
        number_member(t, o, "step", f->step);
        number_member(t, o, "rank", f->rank);
        number_member(t, o, "code", f->code);
        text_member(t, o, "node", f->node);
        text_member(t, o, "device", f->device);
        text_member(t, o, "excerpt", f->excerpt);
    }
    t->oom |= json_array_append_new(t->steps, o) < 0;
}

/* Lines of progress are shown where something hangs on them: not each. */
static void print_step(struct test *t, const struct replay_step *s)
{
    const struct watcher_finding *f = s->finding;
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 16384);
    if (f && f->type == WATCHER_PROGRESS)
        return;
    if (!f) {
        text_escape(&b, s->detail);
        printf("    %s: %s\n", s->verb, b.data ? b.data : "");
        return;
    }
    (void) adv_buf_append_str(&b, "");
    text_escape(&b, f->excerpt);
    printf("%s:%zu: %s %s", t->file, s->line, watcher_finding_type_name(f->type), f->rule->id);
    if (f->type == WATCHER_SIGNATURE || f->type == WATCHER_NOTICE || f->type == WATCHER_CALMED)
        printf(" (%s, retryable %s, precedence %d%s)", watcher_class_name(f->rule->fault_class),
               watcher_retryable_name(f->rule->retryable), f->rule->precedence, f->rule->terminal ? ", ends the process" : "");
    if (f->type == WATCHER_CALMED)
        printf(" does not count: %s", f->calmed_by ? f->calmed_by->id : "the exception was caught");
    if (f->step >= 0)
        printf(" step %lld", (long long) f->step);
    if (f->rank >= 0)
        printf(" rank %d", f->rank);
    if (*f->node)
        printf(" %s %s", f->rule->blames == WATCHER_BLAMES_NODE ? "node" : f->rule->blames == WATCHER_BLAMES_LEAD ? "missing:" : "from",
               f->node);
    if (*f->device)
        printf(" device %s", f->device);
    printf("\n    | %s\n", b.data ? b.data : "");
}

static void on_step(void *ctx, const struct replay_step *s)
{
    struct test *t = ctx;

    if (t->steps)
        step_as_json(t, s);
    else
        print_step(t, s);
}

static void verdict_as_json(struct test *t, const struct replay_verdict *v, struct adv_buf *out)
{
    json_t *o = json_object();

    text_member(t, o, "file", t->file);
    text_member(t, o, "kind", replay_kind(v));
    text_member(t, o, "class", v->anomaly ? v->fault_class : "none");
    text_member(t, o, "outcome", replay_outcome(v));
    text_member(t, o, "rule", v->rule);
    if (v->anomaly)
        text_member(t, o, "retryable", retryable_name(v->retryable));
    text_member(t, o, "nodes", v->nodes);
    text_member(t, o, "ranks", v->ranks);
    text_member(t, o, "excludeNodes", v->exclude_nodes);
    text_member(t, o, "summary", v->summary);
    text_member(t, o, "excerpt", v->excerpt);
    text_member(t, o, "noticeClass", v->notice_class);
    text_member(t, o, "noticeRule", v->notice_rule);
    text_member(t, o, "noticeNodes", v->notice_nodes);
    if (v->line)
        number_member(t, o, "line", (int64_t) v->line);
    member(t, o, "interrupts", json_boolean(v->interrupts));
    member(t, o, "consequences", json_integer((json_int_t) v->n_consequences));
    member(t, o, "steps", ADV_STEAL(t->steps));
    t->oom |= adv_json_dump(o, out, NULL) < 0;
    json_decref(o);
}

static void print_verdict(struct test *t, const struct replay_verdict *v)
{
    printf("%s: %s", t->file, replay_kind(v));
    if (!v->anomaly && *v->notice_rule)
        printf(", for the administrators: %s, rule %s%s%s", v->notice_class, v->notice_rule, v->notice_nodes ? ", nodes " : "",
               v->notice_nodes ? v->notice_nodes : "");
    if (v->anomaly)
        printf(", %s, retryable %s%s%s%s%s", v->fault_class, retryable_name(v->retryable), *v->rule ? ", rule " : "", v->rule,
               v->nodes ? ", nodes " : "", v->nodes ? v->nodes : "");
    if (v->n_consequences)
        printf(", %zu consequence%s", v->n_consequences, v->n_consequences == 1 ? "" : "s");
    printf(" -> %s%s%s%s\n", replay_outcome(v), v->exclude_nodes ? " " : "", v->exclude_nodes ? v->exclude_nodes : "",
           v->interrupts ? " (interrupts it)" : "");
    if (v->summary)
        printf("    %s\n", v->summary);
}

static enum ctl_exit test_file(struct test *t)
{
    ADV_AUTO_DONE(replay_verdict) v = { 0 };
    ADV_AUTO_DONE(adv_buf) log;
    ADV_AUTO_DONE(adv_buf) out;
    struct adv_err err = { 0 };
    bool as_json = t->ctl->cfg->output == CTL_OUTPUT_JSON;
    int rc;

    adv_buf_init(&log, MAX_LOG_BYTES);
    adv_buf_init(&out, MAX_LOG_BYTES);
    if (slurp(t->file, &log, &err) < 0)
        return refused(err.msg);
    t->steps = as_json ? json_array() : NULL;
    if (log.len) { /* as the agent sends it */
        struct adv_redact redact = { .mask = '*' };
        size_t done = adv_redact(&redact, (uint8_t *) log.data, log.len);
        adv_redact_rest(&redact, (uint8_t *) log.data + done, log.len - done);
    }
    rc = replay_run(&t->opt, log.data ? log.data : "", log.len, &v, &err);
    if (rc < 0) {
        json_decref(t->steps);
        return refused(err.msg);
    }
    if (as_json) {
        verdict_as_json(t, &v, &out);
        if (t->oom)
            return refused("no memory");
        printf("%s\n", out.data);
    } else {
        print_verdict(t, &v);
    }
    return fflush(stdout) == 0 ? CTL_EXIT_OK : CTL_EXIT_REFUSED;
}

static bool parse_scope(const char *word, enum watcher_scope *ret)
{
    static const char *const words[] = { "application", "node", "scheduler" };

    for (size_t i = 0; i < ADV_ARRAY_LEN(words); i++)
        if (!word || adv_streq(word, words[i])) {
            *ret = word ? (enum watcher_scope) i : WATCHER_SCOPE_APPLICATION;
            return true;
        }
    return false;
}

static bool parse_state(const char *word, enum job_state *ret)
{
    if (!word)
        return true;
    for (int i = JOB_RUNNING; i <= JOB_STATE_LAST_; i++) {
        enum job_state s = (enum job_state) i;
        if (strcasecmp(word, job_state_name(s)) == 0 && (s == JOB_RUNNING || job_state_terminal(s))) {
            *ret = s;
            return true;
        }
    }
    return false;
}

enum ctl_exit cmd_rules_test(struct ctl *ctl)
{
    const char *const *o = ctl->args->option;
    ADV_AUTO(watcher_rules) rules = NULL;
    struct test t = { .ctl = ctl, .opt = { .node = o[OPT_NODE], .nodes = o[OPT_NODES],
                               .progressed = o[OPT_PROGRESSED] != NULL, .fn = on_step, .ctx = &t } };
    enum ctl_exit x = CTL_EXIT_OK;
    struct adv_err err = { 0 };

    if (!parse_scope(o[OPT_SCOPE], &t.opt.stream))
        return usage("--scope: expected application, node or scheduler");
    if (!parse_state(o[OPT_ENDED], &t.opt.state))
        return usage("--ended: expected running, completed, failed, timeout, out_of_memory, node_fail, boot_fail, cancelled, "
                     "preempted, special_exit, deadline, revoked or requeued");
    if (load(o[OPT_RULES], &rules, &err) < 0)
        return refused(err.msg);
    t.opt.rules = rules;
    for (int i = 0; i < ARGS_MAX_WORDS && ctl->args->word[i]; i++) {
        enum ctl_exit one;
        t.file = ctl->args->word[i];
        one = test_file(&t);
        x = one == CTL_EXIT_OK ? x : one;
    }
    return x;
}
