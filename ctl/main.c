/* SPDX-License-Identifier: Apache-2.0 */
/* advisorctl: reads the command line and the settings, then runs one command. */

#include <stdio.h>
#include <sys/ioctl.h>

#include "common/clock.h"
#include "ctl/commands.h"
#include "ctl/text.h"

static enum ctl_exit usage(const char *message)
{
    ADV_AUTO_DONE(adv_buf) b;

    adv_buf_init(&b, 4096);
    text_escape(&b, message);
    (void) fprintf(stderr, "advisorctl: %s\nTry: advisorctl --help\n", b.data);
    return CTL_EXIT_USAGE;
}

/* ~/.config/advisor/ctl.yaml if it exists; NULL otherwise. */
static const char *settings_file(char *buf, size_t size)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (xdg && *xdg == '/')
        (void) snprintf(buf, size, "%s/advisor/ctl.yaml", xdg);
    else if (home && *home == '/')
        (void) snprintf(buf, size, "%s/.config/advisor/ctl.yaml", home);
    else
        return NULL;
    return access(buf, F_OK) == 0 ? buf : NULL;
}

static struct screen screen_of(FILE *out)
{
    struct screen s = { .out = out, .now_us = adv_wall_us() };
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    struct winsize w;

    if (!isatty(fileno(out)))
        return s;
    s.bold = !(no_color && *no_color) && term && !adv_streq(term, "dumb");
    if (ioctl(fileno(out), TIOCGWINSZ, &w) == 0)
        s.columns = w.ws_col;
    return s;
}

static enum ctl_exit run_command(const struct args *a, const struct adv_config *config)
{
    struct ctl ctl = { .cfg = adv_config_values(config), .args = a, .screen = screen_of(stdout) };
    struct adv_err err = { 0 };
    ADV_AUTO(client) client = NULL;

    if (a->command->id == CMD_DOCTOR) /* who is asked stands in the agent's settings, not in ours */
        return cmd_doctor(&ctl);
    if (client_new(ctl.cfg, &client, &err) < 0)
        return usage(err.msg);
    ctl.client = client;
    return command_run(&ctl);
}

static enum ctl_exit run(const struct args *a)
{
    char path[4096];
    struct adv_err err = { 0 };
    ADV_AUTO(adv_config) config = NULL;

    if (a->help) {
        args_help(stdout, a->command);
        return CTL_EXIT_OK;
    }
    if (a->dump_config_docs) {
        adv_config_dump_docs(&ctl_config_table, stdout);
        return CTL_EXIT_OK;
    }
    if (a->version || (a->command && a->command->id == CMD_VERSION)) {
        printf("advisorctl " ADVISOR_VERSION "\n");
        return CTL_EXIT_OK;
    }
    if (a->command && a->command->id == CMD_COMPLETION) {
        if (!adv_streq(a->word[0], "bash"))
            return usage("completion: expected bash");
        args_completion_bash(stdout);
        return CTL_EXIT_OK;
    }
    if (adv_config_load(&ctl_config_table, a->config_file ? a->config_file : settings_file(path, sizeof(path)), a->n_flags,
                        a->flags, &config, &err) < 0)
        return usage(err.msg);
    if (a->dump_config || a->check_config) {
        if (a->dump_config)
            adv_config_dump(config, stdout);
        else
            printf("configuration is good\n");
        return CTL_EXIT_OK;
    }
    return run_command(a, config);
}

int main(int argc, char **argv)
{
    struct adv_err err = { 0 };
    ADV_AUTO_DONE(args) a;

    if (args_parse(argc, argv, &a, &err) < 0)
        return (int) usage(err.msg);
    return (int) run(&a);
}
