/* SPDX-License-Identifier: Apache-2.0 */

/* Puts the parts together: configuration, log, loop, the Slurm adapter on a local runner, the watchdog. SIGTERM and SIGINT
 * end it; a command that runs then is cut off with its own deadline, and settled by the next run. */

#include <signal.h>
#include <uv.h>

#include "adapters/runner/local.h"
#include "adapters/slurm/slurm.h"
#include "advisor-watchdog/watchdog.h"
#include "common/log.h"

static struct watchdog *watchdog;
static struct adapter *adapter;
static uv_signal_t signals[2];

static void stop(void)
{
    watchdog_stop(watchdog);
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

static void on_done(void *arg)
{
    stop();
}

static int serve(const struct watchdog_config *c)
{
    struct adapter_runner *runner = NULL;
    uv_loop_t loop;
    struct adv_err err;
    int r;

    (void) signal(SIGPIPE, SIG_IGN);
    if (uv_loop_init(&loop) < 0)
        return 1;
    r = runner_local_new(&loop, &runner, &err);
    if (r == 0)
        r = watchdog_new(&loop, c, runner, &watchdog, &err);
    if (r == 0) {
        const struct adapter_slurm_config slurm = {
            .state_dir = watchdog_dir(watchdog),
            .slurm_conf = c->slurm_conf[0] ? c->slurm_conf : NULL,
            .bin_dir = c->bin_dir[0] ? c->bin_dir : NULL,
            .user = c->scheduler_user[0] ? c->scheduler_user : NULL,
            .landing_bound_ms = (int) c->landing_bound_ms,
            .command_deadline_ms = (int) c->command_deadline_ms,
            .action_deadline_ms = (int) c->action_deadline_ms,
            .max_parallel = 1,
        };
        r = adapter_slurm_new(&slurm, watchdog_host(watchdog), &adapter, &err);
    }
    if (r < 0) {
        adv_error("main", "cannot start", ADV_FS("why", err.msg));
    } else {
        for (size_t i = 0; i < ADV_ARRAY_LEN(signals); i++) {
            (void) uv_signal_init(&loop, &signals[i]);
            (void) uv_signal_start(&signals[i], on_signal, i ? SIGINT : SIGTERM);
            uv_unref((uv_handle_t *) &signals[i]);
        }
        adv_info("main", "started", ADV_FS("version", ADVISOR_VERSION), ADV_FS("folder", c->state_dir),
                 ADV_FI("observe", c->observe));
        watchdog_start(watchdog, adapter, on_done, NULL);
    }
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    if (runner)
        runner->ops->free(runner);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    if (r == 0 && c->once && !watchdog_well(watchdog))
        r = -1;
    watchdog = watchdog_free(watchdog);
    (void) uv_loop_close(&loop);
    return r < 0;
}

int main(int argc, char **argv)
{
    ADV_AUTO(adv_config) cfg = NULL;
    int status = 0;

    if (!adv_config_main(&watchdog_config_table, argc, argv, NULL, &cfg, &status))
        return status;
    const struct watchdog_config *c = adv_config_values(cfg);
    adv_log_init((enum adv_log_format) c->log_format, (enum adv_log_level) c->log_level, 2);
    return serve(c);
}
