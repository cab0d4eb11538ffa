/* SPDX-License-Identifier: Apache-2.0 */

/* The adapter's core: running the tools, reading one job, and knowing what may be seen.
 *
 * All operations are tasks (internal.h): small step machines that run one command at a time. A shared queue keeps the
 * number of children low: slurmctld answers in milliseconds, and when it does not, more askers do not help.
 *
 * Absence is the dangerous fact. With PrivateData=jobs slurmctld tells one who lost his Operator level that others'
 * jobs do not exist, with exit code 0 and in the same words as for a job that is gone. So absence is believed only when
 * slurmctld itself says, before and after, that we see everything. */

#include "adapters/slurm/depend.h"
#include "adapters/slurm/internal.h"

#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/utf8.h"

/* ---- commands ---- */

struct slurm_cmd {
    struct slurm_cmd *next;
    struct slurm_task *task;
    char *argv[SLURM_ARGV_MAX + 1];
    bool write; /* to the scheduler */
    int64_t queued_us;
    int64_t kill_at_boot_us;
};

static void unref(struct slurm_adapter *a)
{
    if (--a->refs)
        return;
    (void) slurm_conf_free(a->conf);
    free(a->bin_dir);
    free(a->user);
    free(a->live);
    free(a);
}

void slurm_log(struct slurm_adapter *a, enum adapter_log_level level, const char *fmt, ...)
{
    char raw[512], line[512];
    va_list ap;

    if (!a->host->log)
        return;
    va_start(ap, fmt);
    (void) vsnprintf(raw, sizeof(raw), fmt, ap);
    va_end(ap);
    (void) adv_utf8_lossy_buf(line, sizeof(line), raw, strlen(raw));
    a->host->log(a->host->ctx, level, line);
}

static char *dup_text(const char *s, size_t len)
{
    char *copy = malloc(len + 1);

    if (!copy)
        abort(); /* an answer that is lost here would read as an empty one */
    if (len)
        memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

static void set_result(struct slurm_task *t, const struct adapter_run_result *res)
{
    free(t->out);
    free(t->err);
    t->stale = false;
    t->end = res->end;
    t->exit_code = res->exit_code;
    t->out = dup_text(res->out, res->out_len);
    t->out_len = res->out_len;
    t->err = dup_text(res->err, res->err_len);
}

static void start_next(struct slurm_adapter *a);
static void refuse(struct slurm_task *t, const char *why);

static void cmd_free(struct slurm_cmd *c)
{
    for (size_t i = 0; c->argv[i]; i++)
        free(c->argv[i]);
    free(c);
}

static void on_cmd(void *arg, const struct adapter_run_result *res)
{
    struct slurm_task *t = arg;
    struct slurm_adapter *a = t->a;

    a->refs++;
    unsigned pace = slurm_strain_pace(&a->strain);

    a->running--;
    if (!t->accounting && res->end != ADAPTER_RUN_NOT_STARTED)
        slurm_strain_note(&a->strain, t->started_us, slurm_now_us(a) - t->started_us, res->end == ADAPTER_RUN_EXITED);
    if (slurm_strain_pace(&a->strain) != pace)
        slurm_log(a, ADAPTER_LOG_INFO, slurm_strain_pace(&a->strain) > pace
                      ? "slurmctld answers slowly: looks that nothing waits for are %u times as far apart as usual"
                      : "slurmctld answers faster again: looks are %u times as far apart as usual", slurm_strain_pace(&a->strain));
    set_result(t, res);
    t->resume(t);
    start_next(a);
    unref(a);
}

static void start_next(struct slurm_adapter *a)
{
    while (a->queue && a->running < a->max_parallel) {
        struct slurm_cmd *c = a->queue;
        char conf[4200], path[4200];
        const char *inherited = getenv("PATH");
        const char *const env[] = { conf, path, "LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "HOME=/", NULL };
        struct adapter_run_opts opts = {
            .env = env,
            .deadline_ms = a->command_deadline_ms,
            .kill_at_boot_us = c->kill_at_boot_us,
            .max_output_bytes = SLURM_OUTPUT_MAX,
        };

        /* a fixed environment: SQUEUE_FORMAT, SLURM_CLUSTERS and the like would change the answers */
        (void) snprintf(conf, sizeof(conf), "SLURM_CONF=%s", slurm_conf_path(a->conf));
        (void) snprintf(path, sizeof(path), "PATH=%s", inherited ? inherited : "/usr/bin:/bin");
        if (!(a->queue = c->next))
            a->queue_tail = &a->queue;
        c->task->started_us = slurm_now_us(a);
        if (c->write && c->task->started_us - c->queued_us > SLURM_FRESH_US && !slurm_guard_off("queued")) {
            struct slurm_task *t = c->task;
            cmd_free(c);
            refuse(t, "what was read before it is old by now");
            t->stale = true;
            continue;
        }
        a->running++;
        a->host->runner->ops->run(a->host->runner, (const char *const *) c->argv, &opts, on_cmd, c->task);
        cmd_free(c);
    }
}

static void on_timer(void *arg)
{
    struct slurm_task *t = arg;
    struct slurm_adapter *a = t->a;

    a->refs++;
    t->resume(t);
    unref(a);
}

void slurm_task_init(struct slurm_task *t, struct slurm_adapter *a, void (*resume)(struct slurm_task *t))
{
    *t = (struct slurm_task) { .a = a, .resume = resume, .end = ADAPTER_RUN_NOT_STARTED };
    a->refs++;
}

void slurm_task_done(struct slurm_task *t)
{
    free(t->out);
    free(t->err);
    unref(t->a);
}

void slurm_task_sleep(struct slurm_task *t, int ms)
{
    t->a->host->runner->ops->after(t->a->host->runner, t->a->closing ? 0 : ms, on_timer, t);
}

void slurm_task_start(struct slurm_task *t)
{
    slurm_task_sleep(t, 0);
}

static void refuse(struct slurm_task *t, const char *why)
{
    struct adapter_run_result res = { .end = ADAPTER_RUN_NOT_STARTED, .out = "", .err = why, .err_len = strlen(why) };

    set_result(t, &res);
    slurm_task_start(t);
}

static void enqueue(struct slurm_task *t, const char *const argv[], bool write, int64_t kill_at_boot_us)
{
    struct slurm_adapter *a = t->a;
    struct adv_err err;
    struct slurm_cmd *c;

    if (a->closing) {
        refuse(t, "the adapter is closing");
        return;
    }
    if (slurm_conf_refresh(a->conf, &err) < 0) {
        refuse(t, err.msg);
        return;
    }
    if (!(c = calloc(1, sizeof(*c))))
        abort();
    for (size_t i = 0; argv[i] && i < SLURM_ARGV_MAX; i++) {
        if (i == 0 && a->bin_dir) {
            if (asprintf(&c->argv[0], "%s/%s", a->bin_dir, argv[0]) < 0)
                abort();
        } else {
            c->argv[i] = dup_text(argv[i], strlen(argv[i]));
        }
    }
    c->task = t;
    t->accounting = strcmp(argv[0], "sacct") == 0;
    c->write = write;
    c->queued_us = slurm_now_us(a);
    c->kill_at_boot_us = kill_at_boot_us;
    struct slurm_cmd **pp = a->queue_tail;
    if (write) /* before all reads: what it was decided on ages */
        for (pp = &a->queue; *pp && (*pp)->write;)
            pp = &(*pp)->next;
    c->next = *pp;
    *pp = c;
    if (!c->next)
        a->queue_tail = &c->next;
    start_next(a);
}

void slurm_task_run(struct slurm_task *t, const char *const argv[])
{
    enqueue(t, argv, false, 0);
}

void slurm_task_write(struct slurm_task *t, const char *const argv[], int64_t kill_at_boot_us)
{
    enqueue(t, argv, true, kill_at_boot_us);
}

bool slurm_task_ok(const struct slurm_task *t)
{
    return t->end == ADAPTER_RUN_EXITED && t->exit_code == 0;
}

int slurm_task_error(const struct slurm_task *t, const char *what, struct adv_err *err)
{
    const char *said = t->err ? t->err : "";

    switch (t->end) {
    case ADAPTER_RUN_TIMED_OUT:
        return adv_err_set(err, ADV_UNAVAILABLE, "%s: no answer in time", what);
    case ADAPTER_RUN_NOT_STARTED:
        return adv_err_set(err, ADV_UNAVAILABLE, "%s: could not be run: %s", what, said);
    case ADAPTER_RUN_OVERFLOW:
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "%s: more output than %u bytes", what, SLURM_OUTPUT_MAX);
    default:
        return adv_err_set(err, ADV_UNAVAILABLE, "%s: exit code %d: %.*s", what, t->exit_code,
                           (int) strcspn(said, "\n"), said);
    }
}

/* ---- sight ---- */

struct sight_task {
    struct slurm_task t;
    bool fresh, want_privilege;
    slurm_sight_cb cb;
    void *arg;
};

static void sight_end(struct sight_task *s, enum adapter_sight sight, enum adapter_privilege privilege,
                      const struct adv_err *err)
{
    slurm_sight_cb cb = s->cb;
    void *arg = s->arg;

    cb(arg, sight, privilege, err);
    slurm_task_done(&s->t);
    free(s);
}

static void sight_resume(struct slurm_task *t)
{
    static const char *const config_argv[] = { "scontrol", "show", "config", NULL };
    struct sight_task *s = ADV_CONTAINER_OF(t, struct sight_task, t);
    struct slurm_adapter *a = t->a;
    enum adapter_privilege p;
    struct adv_err err = { 0 };

    switch (t->step) {
    case 0:
        t->step = 1;
        if (s->fresh || !a->site_known || slurm_now_us(a) - a->site_read_us > SLURM_SITE_AGE_US) {
            slurm_task_run(t, config_argv);
            return;
        }
        break;
    case 1:
        if (!slurm_task_ok(t)) {
            (void) slurm_task_error(t, "scontrol show config", &err);
            sight_end(s, ADAPTER_SIGHT_UNKNOWN, ADAPTER_PRIVILEGE_UNKNOWN, &err);
            return;
        }
        if (slurm_parse_config(t->out, t->out_len, &a->site, &err) < 0) {
            a->site_known = false;
            sight_end(s, ADAPTER_SIGHT_UNKNOWN, ADAPTER_PRIVILEGE_UNKNOWN, &err);
            return;
        }
        a->site_known = true;
        a->site_read_us = slurm_now_us(a);
        break;
    default:
        if (!slurm_task_ok(t)) {
            (void) slurm_task_error(t, "scontrol show assoc_mgr", &err);
            sight_end(s, a->site.private_jobs ? ADAPTER_SIGHT_UNKNOWN : ADAPTER_SIGHT_FULL, ADAPTER_PRIVILEGE_UNKNOWN,
                      &err);
            return;
        }
        p = slurm_parse_assoc(t->out, t->out_len, a->user);
        bool full = p == ADAPTER_PRIVILEGE_OPERATOR || p == ADAPTER_PRIVILEGE_ADMIN || !a->site.private_jobs;
        if (!full)
            (void) adv_err_set(&err, ADV_PERMISSION_DENIED,
                               "others' jobs are hidden (PrivateData) and %s is not Operator", a->user);
        sight_end(s, full ? ADAPTER_SIGHT_FULL : ADAPTER_SIGHT_PARTIAL, p, full ? NULL : &err);
        return;
    }
    if (a->root || strcmp(a->user, a->site.slurm_user) == 0) {
        sight_end(s, ADAPTER_SIGHT_FULL, ADAPTER_PRIVILEGE_ADMIN, NULL);
        return;
    }
    if (!a->site.private_jobs && !s->want_privilege) {
        sight_end(s, ADAPTER_SIGHT_FULL, ADAPTER_PRIVILEGE_UNKNOWN, NULL);
        return;
    }
    char users[300];
    (void) snprintf(users, sizeof(users), "users=%s", a->user);
    const char *const assoc_argv[] = { "scontrol", "-o", "show", "assoc_mgr", "flags=users", users, NULL };
    t->step = 2;
    slurm_task_run(t, assoc_argv);
}

void slurm_sight(struct slurm_adapter *a, bool fresh, bool want_privilege, slurm_sight_cb cb, void *arg)
{
    struct sight_task *s = calloc(1, sizeof(*s));

    if (!s)
        abort();
    slurm_task_init(&s->t, a, sight_resume);
    s->fresh = fresh;
    s->want_privilege = want_privilege;
    s->cb = cb;
    s->arg = arg;
    slurm_task_start(&s->t);
}

/* ---- one job ---- */

enum { FIND_START, FIND_DETAIL, FIND_EXCLUDED, FIND_PROBE, FIND_END_STATE };

struct find_task {
    struct slurm_task t;
    char id[ADAPTER_ID_SIZE];
    char query[ADAPTER_ID_SIZE]; /* what squeue -j takes */
    char nonce[SLURM_NONCE_SIZE];
    struct adapter_job_detail *d;
    unsigned absent; /* times it was not there */
    unsigned tries;
    adapter_inspect_cb cb;
    void *arg;
};

static void find_end(struct find_task *f, enum adapter_found found, const struct adv_err *err)
{
    adapter_inspect_cb cb = f->cb;
    void *arg = f->arg;
    struct adapter_job_detail *d = NULL;

    if (found == ADAPTER_FOUND)
        d = ADV_STEAL(f->d);
    cb(arg, found, d, err);
    (void) adapter_job_detail_free(f->d);
    slurm_task_done(&f->t);
    free(f);
}

static void ask_detail(struct find_task *f)
{
    ADV_AUTO_DONE(adv_buf) fmt = { 0 };

    adv_buf_init(&fmt, 8192);
    slurm_nonce(f->nonce);
    f->d = adapter_job_detail_free(f->d);
    if (slurm_detail_format(f->nonce, &fmt) < 0)
        abort();
    const char *const argv[] = { "squeue", "-h", "-r", "-t", "all", "-j", f->query, "-O", fmt.data, NULL };
    f->t.step = FIND_DETAIL;
    slurm_task_run(&f->t, argv);
}

static void on_find_sight(void *arg, enum adapter_sight sight, enum adapter_privilege privilege,
                          const struct adv_err *err)
{
    struct find_task *f = arg;

    if (sight != ADAPTER_SIGHT_FULL)
        find_end(f, ADAPTER_FOUND_UNKNOWN, err);
    else if (f->absent < 2)
        ask_detail(f);
    else
        find_end(f, ADAPTER_FOUND_GONE, NULL);
}

/* slurmctld answered and knows no such job: look again between two proofs of full sight. */
static void find_absent(struct find_task *f)
{
    f->absent++;
    slurm_sight(f->t.a, true, false, on_find_sight, f);
}

static void ask_end_state(struct find_task *f)
{
    const char *const argv[] = { "scontrol", "show", "job", f->query, "--json=v0.0.42", NULL };

    f->t.step = FIND_END_STATE;
    slurm_task_run(&f->t, argv);
}

static void find_resume(struct slurm_task *t)
{
    static const char *const probe_argv[] = { "squeue", "--json=list", NULL };
    struct find_task *f = ADV_CONTAINER_OF(t, struct find_task, t);
    struct slurm_adapter *a = t->a;
    struct adv_err err = { 0 };
    uint32_t base;
    int64_t task;
    int32_t offset;
    int r;

    switch (t->step) {
    case FIND_START:
        if (slurm_parse_id(f->id, &base, &task, &offset, &err) < 0) {
            find_end(f, ADAPTER_FOUND_UNKNOWN, &err);
            return;
        }
        if (task >= 0)
            (void) snprintf(f->query, sizeof(f->query), "%u_%lld", base, (long long) task);
        else
            (void) snprintf(f->query, sizeof(f->query), "%u", base);
        ask_detail(f);
        return;

    case FIND_DETAIL:
        if (!slurm_task_ok(t)) {
            if (t->end == ADAPTER_RUN_EXITED && slurm_parse_answer(t->err) == SLURM_ANSWER_NO_JOB) {
                find_absent(f);
                return;
            }
            (void) slurm_task_error(t, "squeue", &err);
            find_end(f, ADAPTER_FOUND_UNKNOWN, &err);
            return;
        }
        r = slurm_parse_detail(t->out, t->out_len, f->nonce, f->id, &f->d, &err);
        if (r == -ADV_NOT_FOUND) {
            find_absent(f);
            return;
        }
        if (r < 0) {
            find_end(f, ADAPTER_FOUND_UNKNOWN, &err);
            return;
        }
        t->step = FIND_EXCLUDED;
        const char *const argv[] = { "squeue", "-h", "-r", "-t", "all", "-j", f->query, "-o", SLURM_EXCLUDED_FORMAT,
                                     NULL };
        slurm_task_run(t, argv);
        return;

    case FIND_EXCLUDED:
        if (!slurm_task_ok(t)) {
            (void) slurm_task_error(t, "squeue", &err);
            find_end(f, ADAPTER_FOUND_UNKNOWN, &err);
            return;
        }
        if (slurm_parse_excluded(t->out, t->out_len, f->d, &err) < 0) {
            if (++f->tries < 3)
                ask_detail(f);
            else
                find_end(f, ADAPTER_FOUND_UNKNOWN, &err);
            return;
        }
        if (!f->d->job.completing || f->d->job.state != ADAPTER_JOB_UNKNOWN_STATE || a->json < 0) {
            find_end(f, ADAPTER_FOUND, NULL);
            return;
        }
        if (a->json > 0) {
            ask_end_state(f);
            return;
        }
        t->step = FIND_PROBE;
        slurm_task_run(t, probe_argv);
        return;

    case FIND_PROBE:
        if (t->end == ADAPTER_RUN_EXITED) { /* the list is on stderr in some releases */
            bool has = slurm_task_ok(t) && (strstr(t->out, "v0.0.42") || strstr(t->err, "v0.0.42"));
            a->json = has ? 1 : -1;
        }
        if (a->json > 0)
            ask_end_state(f);
        else
            find_end(f, ADAPTER_FOUND, NULL);
        return;

    default:
        if (slurm_task_ok(t))
            f->d->job.state = slurm_parse_end_state(t->out, t->out_len, &f->d->job);
        find_end(f, ADAPTER_FOUND, NULL);
        return;
    }
}

void slurm_find(struct slurm_adapter *a, const char *id, adapter_inspect_cb cb, void *arg)
{
    struct find_task *f = calloc(1, sizeof(*f));

    if (!f)
        abort();
    slurm_task_init(&f->t, a, find_resume);
    (void) snprintf(f->id, sizeof(f->id), "%s", id ? id : "");
    if (id && strlen(id) >= sizeof(f->id))
        f->id[0] = '\0'; /* too long to be an id: refused by the parser */
    f->cb = cb;
    f->arg = arg;
    slurm_task_start(&f->t);
}

static void slurm_inspect(struct adapter *base, const char *id, adapter_inspect_cb cb, void *arg)
{
    slurm_find(slurm_of(base), id, cb, arg);
}

/* ---- describe ---- */

struct describe_task {
    struct slurm_task t;
    adapter_describe_cb cb;
    void *arg;
};

static void on_describe_sight(void *arg, enum adapter_sight sight, enum adapter_privilege privilege,
                              const struct adv_err *err)
{
    struct describe_task *p = arg;
    struct slurm_adapter *a = p->t.a;
    bool may = privilege == ADAPTER_PRIVILEGE_OPERATOR || privilege == ADAPTER_PRIVILEGE_ADMIN;
    struct adapter_description d = {
        .scheduler = "slurm",
        .version = a->site.version,
        .cluster = a->site.cluster,
        .verbs = may ? ADAPTER_VERB_BIT(ADAPTER_VERB_MAX_) - 1 : 0,
        .privilege = privilege,
        .sight = sight,
        .accounting = a->site.accounting,
        .forget_after_s = a->site.min_job_age_s,
    };

    p->cb(p->arg, a->site_known ? &d : NULL, err);
    slurm_task_done(&p->t);
    free(p);
}

static void describe_resume(struct slurm_task *t)
{
    t->a->site_known = false; /* what was known earlier is no answer */
    slurm_sight(t->a, true, true, on_describe_sight, ADV_CONTAINER_OF(t, struct describe_task, t));
}

static void slurm_describe(struct adapter *base, adapter_describe_cb cb, void *arg)
{
    struct describe_task *p = calloc(1, sizeof(*p));

    if (!p)
        abort();
    slurm_task_init(&p->t, slurm_of(base), describe_resume);
    p->cb = cb;
    p->arg = arg;
    slurm_task_start(&p->t);
}

/* ---- nodes ---- */

struct nodes_task {
    struct slurm_task t;
    adapter_nodes_cb cb;
    void *arg;
};

static void nodes_resume(struct slurm_task *t)
{
    static const char *const argv[] = { "sinfo", "-h", "-N", "-a", "-O", SLURM_NODE_FORMAT, NULL };
    struct nodes_task *n = ADV_CONTAINER_OF(t, struct nodes_task, t);
    struct adapter_node_list *l;

    if (t->step++ == 0) {
        slurm_task_run(t, argv);
        return;
    }
    if (slurm_task_ok(t)) {
        l = slurm_parse_nodes(ADV_STEAL(t->out), t->out_len);
        if (l && l->complete && l->n_nodes == 0) { /* a cluster has nodes: an empty list is no answer */
            l->complete = false;
            (void) adv_err_set(&l->err, ADV_UNAVAILABLE, "sinfo: no nodes");
        }
    } else if ((l = calloc(1, sizeof(*l)))) {
        (void) slurm_task_error(t, "sinfo", &l->err);
    }
    if (!l)
        abort();
    n->cb(n->arg, l);
    slurm_task_done(t);
    free(n);
}

static void slurm_nodes(struct adapter *base, adapter_nodes_cb cb, void *arg)
{
    struct nodes_task *n = calloc(1, sizeof(*n));

    if (!n)
        abort();
    slurm_task_init(&n->t, slurm_of(base), nodes_resume);
    n->cb = cb;
    n->arg = arg;
    slurm_task_start(&n->t);
}

static unsigned slurm_pace(const struct adapter *base)
{
    return slurm_strain_pace(&ADV_CONTAINER_OF(base, const struct slurm_adapter, base)->strain);
}

/* ---- life ---- */

static void slurm_free(struct adapter *base)
{
    struct slurm_adapter *a = slurm_of(base);
    struct slurm_cmd *c;

    a->closing = true;
    while ((c = a->queue)) {
        struct slurm_task *t = c->task;
        if (!(a->queue = c->next))
            a->queue_tail = &a->queue;
        cmd_free(c);
        refuse(t, "the adapter is closing");
    }
    unref(a);
}

static const struct adapter_ops slurm_ops = {
    .name = "slurm",
    .version = ADAPTER_OPS_VERSION,
    .describe = slurm_describe,
    .observe = slurm_observe,
    .nodes = slurm_nodes,
    .inspect = slurm_inspect,
    .history = slurm_history,
    .pace = slurm_pace,
    .depends = slurm_depends,
    .act = slurm_act,
    .free = slurm_free,
};

static int value(int given, int dflt)
{
    return given > 0 ? given : dflt;
}

int adapter_slurm_new(const struct adapter_slurm_config *c, struct adapter_host *host, struct adapter **ret,
                      struct adv_err *err)
{
    struct slurm_adapter *a;
    struct passwd pw, *found = NULL;
    char pwbuf[4096];
    const char *user = c->user;

    if (!c->state_dir || !host || !host->runner || !host->authorize)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "slurm adapter: state_dir, runner and authorize are needed");
    if (!user) {
        if (getpwuid_r(geteuid(), &pw, pwbuf, sizeof(pwbuf), &found) != 0 || !found)
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "slurm adapter: the effective user has no name");
        user = pw.pw_name;
    }
    if (!*user || strpbrk(user, " \n,"))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "slurm adapter: bad user name");
    if (!(a = calloc(1, sizeof(*a))))
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "slurm adapter: no memory");
    int ttl = value(c->credential_ttl_s, 10);
    a->base.ops = &slurm_ops;
    a->host = host;
    a->refs = 1;
    a->queue_tail = &a->queue;
    a->user = strdup(user);
    a->bin_dir = c->bin_dir ? strdup(c->bin_dir) : NULL;
    a->root = strcmp(user, "root") == 0;
    a->landing_bound_ms = value(c->landing_bound_ms, (ttl + 10) * 1000);
    a->command_deadline_ms = value(c->command_deadline_ms, 25000);
    a->action_deadline_ms = value(c->action_deadline_ms, 90000);
    a->max_parallel = value(c->max_parallel, 4);
    int r = a->user && (!c->bin_dir || a->bin_dir)
                ? slurm_conf_new(c->slurm_conf, c->state_dir, ttl, &a->conf, err)
                : adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "slurm adapter: no memory");
    if (r < 0) {
        unref(a);
        return r;
    }
    *ret = &a->base;
    return 0;
}
