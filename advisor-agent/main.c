/* SPDX-License-Identifier: Apache-2.0 */

/* Puts the parts together: configuration, log, loop, the Slurm adapter on a local runner, the agent.
 * SIGTERM and SIGINT end it; what runs at the scheduler then is cut off with its own deadline. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "adapters/runner/local.h"
#include "adapters/slurm/slurm.h"
#include "advisor-agent/agent.h"
#include "advisor-agent/doctor/doctor.h"
#include "advisor-agent/enrol.h"
#include "common/log.h"

static struct agent *agent;
static struct adapter *adapter;
static uv_signal_t signals[2];

static void stop(void)
{
    agent_stop(agent);
    adapter = adapter_free(adapter);
    for (size_t i = 0; i < ADV_ARRAY_LEN(signals); i++)
        if (signals[i].loop && !uv_is_closing((uv_handle_t *) &signals[i]))
            uv_close((uv_handle_t *) &signals[i], NULL);
}

static void on_signal(uv_signal_t *s, int number)
{
    adv_info("main", "stopping", ADV_FI("signal", number));
    stop();
}

static int serve(const struct agent_config *c)
{
    struct adapter_runner *runner = NULL;
    uv_loop_t loop;
    struct adv_err err;
    const struct adapter_slurm_config slurm = {
        .state_dir = c->state_dir,
        .slurm_conf = c->slurm_conf[0] ? c->slurm_conf : NULL,
        .bin_dir = c->bin_dir[0] ? c->bin_dir : NULL,
        .user = c->scheduler_user[0] ? c->scheduler_user : NULL,
        .landing_bound_ms = (int) c->landing_bound_ms,
        .command_deadline_ms = (int) c->command_deadline_ms,
        .action_deadline_ms = (int) c->action_deadline_ms,
        .max_parallel = (int) c->max_parallel,
    };
    int r;

    (void) signal(SIGPIPE, SIG_IGN);
    if (uv_loop_init(&loop) < 0)
        return 1;
    r = runner_local_new(&loop, &runner, &err);
    if (r == 0)
        r = agent_new(&loop, c, runner, &agent, &err);
    if (r == 0)
        r = adapter_slurm_new(&slurm, agent_host(agent), &adapter, &err);
    if (r == 0)
        r = agent_start(agent, adapter, &err);
    if (r < 0) {
        adv_error("main", "cannot start", ADV_FS("why", err.msg));
        if (agent)
            stop();
    }
    for (size_t i = 0; r == 0 && i < ADV_ARRAY_LEN(signals); i++) {
        (void) uv_signal_init(&loop, &signals[i]);
        (void) uv_signal_start(&signals[i], on_signal, i ? SIGINT : SIGTERM);
        uv_unref((uv_handle_t *) &signals[i]);
    }
    if (r == 0)
        adv_info("main", "started", ADV_FS("version", ADVISOR_VERSION), ADV_FS("cluster", c->cluster));
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    if (runner)
        runner->ops->free(runner);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    agent = agent_free(agent);
    (void) uv_loop_close(&loop);
    return r < 0;
}

/* Takes "--enrol FILE" or "--enrol=FILE" out of the command line; the rest is the configuration's. */
static const char *take_enrol(int *argc, char **argv)
{
    static const char flag[] = "--enrol";
    const char *file = NULL;
    int n = 1;

    for (int i = 1; i < *argc; i++) {
        if (!file && adv_streq(argv[i], flag) && i + 1 < *argc)
            file = argv[++i];
        else if (!file && adv_startswith(argv[i], "--enrol="))
            file = argv[i] + strlen("--enrol=");
        else
            argv[n++] = argv[i];
    }
    argv[n] = NULL;
    *argc = n;
    return file;
}

static int enrol(const char *file, int argc, char **argv)
{
    struct adv_config_table table = agent_config_table;
    ADV_AUTO(adv_config) cfg = NULL;
    struct adv_err err = { 0 };
    int status = 0;

    table.check = NULL; /* cluster and server may come from the bundle */
    if (!adv_config_main(&table, argc, argv, NULL, &cfg, &status))
        return status;
    if (enrol_run(adv_config_values(cfg), file, &err) == 0)
        return 0;
    (void) fprintf(stderr, "advisor-agent: not enrolled: %s\n", err.msg);
    return 1;
}

int main(int argc, char **argv)
{
    ADV_AUTO(adv_config) cfg = NULL;
    int status = 0;

    for (int i = 1; i < argc; i++)
        if (adv_streq(argv[i], "--doctor"))
            return doctor_main(argc, argv);
    const char *bundle = take_enrol(&argc, argv);

    if (bundle)
        return enrol(bundle, argc, argv);

    if (!adv_config_main(&agent_config_table, argc, argv, NULL, &cfg, &status))
        return status;
    const struct agent_config *c = adv_config_values(cfg);
    adv_log_init((enum adv_log_format) c->log_format, (enum adv_log_level) c->log_level, 2);
    /* getaddrinfo is all that runs on a worker. */
    (void) setenv("UV_THREADPOOL_SIZE", "1", 0);
    return serve(c);
}
