/* SPDX-License-Identifier: Apache-2.0 */

/* The doctor must end, whatever it meets. Commands have deadlines; files that others chose are touched by the helper alone;
 * and should one of our own folders hang on a dead mount, a thread that does nothing else ends the program. */

#include "advisor-agent/doctor/doctor.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <uv.h>

#include "adapters/runner/local.h"
#include "advisor-agent/doctor/host.h"
#include "advisor-agent/doctor/read.h"
#include "advisor-agent/doctor/report.h"
#include "common/clock.h"
#include "common/log.h"

#define ASK_MS      60000 /* all commands together */
#define OUTPUTS_MS  8000
#define LINK_MS     10000
#define END_MS      3000   /* for what was started to be gone */
#define GIVE_UP_MS  120000
#define EXIT_DOCTOR 3

struct order {
    const char *file;
    char **flags;
    int n_flags;
    bool json, codes, help;
};

static void give_up(void *arg)
{
    static const char text[] = "advisor-agent: the doctor does not get on: state.dir, ceiling.path or the certificates hang, it seems; "
                               "`df` on their folders shows which\n";

    uv_sleep(GIVE_UP_MS);
    (void) !write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(EXIT_DOCTOR);
}

static void pump(void *ctx)
{
    (void) uv_run(ctx, UV_RUN_ONCE);
}

static void on_end(uv_timer_t *t)
{
    uv_stop(t->loop);
}

/* Lets what was started come to its end; false when it does not. */
static bool drain(uv_loop_t *loop)
{
    uv_timer_t timer;

    (void) uv_timer_init(loop, &timer);
    (void) uv_timer_start(&timer, on_end, END_MS, 0);
    uv_unref((uv_handle_t *) &timer);
    (void) uv_run(loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *) &timer, NULL);
    (void) uv_run(loop, UV_RUN_NOWAIT);
    return uv_loop_close(loop) == 0;
}

static void short_host_name(char *ret, size_t cap)
{
    if (gethostname(ret, cap) < 0)
        ret[0] = '\0';
    ret[cap - 1] = '\0';
}

static int examine(uv_loop_t *loop, const struct agent_config *c, struct doctor_facts *f)
{
    const char *tmp = getenv("TMPDIR");
    char scratch[512], path[600], host[256];
    struct adv_err err = { 0 };
    struct doctor_asking a = {
        .pump = pump,
        .ctx = loop,
        .scratch = scratch,
        .slurm_conf = c->slurm_conf[0] ? c->slurm_conf : NULL,
        .host = host,
        .until_mono_us = adv_mono_us() + ASK_MS * INT64_C(1000),
    };
    int64_t apart_us = adv_wall_us() - adv_boot_us();

    if (snprintf(scratch, sizeof(scratch), "%s/advisor-doctor-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp") >= (int) sizeof(scratch) || !mkdtemp(scratch)) {
        (void) fprintf(stderr, "advisor-agent: no folder for a copy of slurm.conf: %s: %s\n", scratch, strerror(errno));
        return -1;
    }
    short_host_name(host, sizeof(host));
    int r = runner_local_new(loop, &a.runner, &err);
    if (r == 0) {
        doctor_look(&a, c, f);
        if (f->host.other_user && !c->scheduler_user[0])
            f->slurm_user_name = f->host.state_owner;
        doctor_gather(&a, f);
        doctor_outputs(loop, c, OUTPUTS_MS, f);
        doctor_link(loop, c, LINK_MS, f);
        a.runner->ops->free(a.runner);
    } else {
        (void) fprintf(stderr, "advisor-agent: %s\n", err.msg);
    }
    f->host.clock_stepped_ms = (adv_wall_us() - adv_boot_us() - apart_us) / 1000;
    for (unsigned i = 0; i < 2; i++) {
        (void) snprintf(path, sizeof(path), "%s/slurm.conf%s", scratch, i ? ".new" : "");
        (void) unlink(path);
    }
    (void) rmdir(scratch);
    return r;
}

static int print(const struct order *o, const struct doctor_facts *f, const struct doctor_findings *found)
{
    ADV_AUTO_DONE(adv_buf) out;
    struct winsize w = { 0 };
    size_t columns = isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
    int r;

    adv_buf_init(&out, 4u << 20);
    r = o->json ? doctor_report_json(f, found, &out) : doctor_report_text(f, found, columns, &out);
    if (r < 0 || fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0) {
        (void) fprintf(stderr, "advisor-agent: the findings could not be printed\n");
        return -1;
    }
    return 0;
}

/* Words of the command line: ours are taken out, the rest is the settings'. */
static bool read_order(int argc, char **argv, struct order *o)
{
    const char *output = NULL;

    o->flags = argv + 1;
    for (int i = 1; i < argc; i++) {
        char *w = argv[i];
        bool next = i + 1 < argc;

        if (adv_streq(w, "--doctor"))
            continue;
        if (adv_streq(w, "--doctor-codes"))
            o->codes = true;
        else if (adv_streq(w, "--help"))
            o->help = true;
        else if ((adv_streq(w, "-o") || adv_streq(w, "--output")) && next)
            output = argv[++i];
        else if (adv_startswith(w, "--output="))
            output = w + strlen("--output=");
        else if (adv_streq(w, "--config") && next && !o->file)
            o->file = argv[++i];
        else if (adv_startswith(w, "--config=") && !o->file)
            o->file = w + strlen("--config=");
        else if (adv_startswith(w, "--") && w[2])
            argv[1 + o->n_flags++] = w;
        else if (o->n_flags && !strchr(argv[o->n_flags], '=') && i > 1 && argv[i - 1] == argv[o->n_flags])
            argv[1 + o->n_flags++] = w; /* "--key value" */
        else
            return false;
    }
    o->json = adv_streq(output, "json");
    return !output || o->json || adv_streq(output, "table");
}

/* The configuration as far as it goes: with a file that cannot be used, its default. */
static int load(const struct order *o, struct adv_config **ret, struct doctor_facts *f)
{
    static struct adv_config_table table;
    struct adv_err err = { 0 };
    int r;

    table = agent_config_table;
    table.check = NULL; /* before the installation is over something may be missing */
    if ((r = adv_config_load(&table, o->file, o->n_flags, o->flags, ret, &err)) < 0) {
        (void) snprintf(f->host.config_error, sizeof(f->host.config_error), "%s", err.msg[0] ? err.msg : "it cannot be read");
        f->host.defaults_only = true;
        r = adv_config_parse(&table, "default", "", 0, ret, &err);
    } else if (agent_config_table.check && adv_config_values(*ret)) {
        const struct agent_config *c = adv_config_values(*ret);

        f->host.no_cluster = !c->cluster[0];
        f->host.no_target = !c->target[0];
        if (c->cluster[0] && c->target[0] && agent_config_table.check(c, &err) < 0)
            (void) snprintf(f->host.config_error, sizeof(f->host.config_error), "%s", err.msg);
    }
    return r;
}

static void fill_settings(const struct agent_config *c, const char *file, struct doctor_facts *f)
{
    f->cluster = c->cluster;
    f->target = c->target;
    f->config_file = file ? file : "";
    f->tail_helper = c->tail_helper;
    f->ceiling_path = c->ceiling_path;
    f->tls_cert = c->tls_cert;
    f->tls_key = c->tls_key;
    f->bin_dir = c->bin_dir;
    f->renew = c->tls_renew;
    f->poll_ms = c->poll_ms;
    f->command_deadline_ms = c->command_deadline_ms;
    f->action_deadline_ms = c->action_deadline_ms;
    f->landing_bound_ms = c->landing_bound_ms;
    f->tail_min_uid = c->tail_min_uid;
}

int doctor_main(int argc, char **argv)
{
    struct doctor_facts *f = calloc(1, sizeof(*f));
    struct doctor_findings *found = calloc(1, sizeof(*found));
    struct order o = { 0 };
    ADV_AUTO(adv_config) cfg = NULL;
    uv_thread_t watch;
    uv_loop_t loop;
    char me[64];
    int code = EXIT_DOCTOR;

    if (!f || !found) {
        (void) fprintf(stderr, "advisor-agent: no memory\n");
    } else if (!read_order(argc, argv, &o) || o.help) {
        (void) fprintf(o.help ? stdout : stderr,
                       "usage: advisor-agent --doctor [-o table|json] [--config FILE] [--KEY=VALUE ...]\n"
                       "       advisor-agent --doctor --doctor-codes\n"
                       "Finds what is missing at this site and says how to mend it; changes nothing. Run it as the agent's user.\n"
                       "Exit code: 0 nothing worse than notes, 1 warnings, 2 faults, 3 the doctor itself could not work.\n");
        code = o.help ? 0 : EXIT_DOCTOR;
    } else if (o.codes) {
        ADV_AUTO_DONE(adv_buf) out;

        adv_buf_init(&out, 1u << 20);
        if (doctor_report_docs(&out) == 0 && fwrite(out.data, 1, out.len, stdout) == out.len)
            code = 0;
    } else if (load(&o, &cfg, f) < 0 || uv_loop_init(&loop) < 0 || uv_thread_create(&watch, give_up, NULL) < 0) {
        (void) fprintf(stderr, "advisor-agent: no memory\n");
    } else {
        const struct agent_config *c = adv_config_values(cfg);

        adv_log_init(ADV_LOG_TEXT, ADV_LOG_ERROR, STDERR_FILENO);
        (void) setenv("UV_THREADPOOL_SIZE", "1", 0);
        fill_settings(c, o.file, f);
        doctor_user_name(me, sizeof(me));
        f->slurm_user_name = c->scheduler_user[0] ? c->scheduler_user : me;
        if (f->host.defaults_only || examine(&loop, c, f) == 0) {
            doctor_judge(f, found);
            if (print(&o, f, found) == 0)
                code = doctor_exit_code(found);
        }
        if (!drain(&loop))
            _exit(code); /* a child that cannot be killed: nothing of ours waits for it */
    }
    free(f);
    free(found);
    return code;
}
