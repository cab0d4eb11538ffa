/* SPDX-License-Identifier: Apache-2.0 */

/* `advisorctl doctor` is the agent's own program with --doctor: the checks need the Slurm adapter and the agent's reading of its
 * settings, journal and ceiling, which nothing else here does, and what the agent itself would see is what counts. So advisorctl
 * becomes it, and its output and exit code are the agent's. */

#include <limits.h>
#include <stdio.h>

#include "ctl/internal.h"

#ifndef ADVISOR_SBINDIR
#define ADVISOR_SBINDIR "/usr/sbin"
#endif
#define AGENT_CONFIG "/etc/advisor/agent.yaml"

/* Where this build installs it, or in the sbin beside our bin folder, or beside us; else PATH finds it. */
static const char *find_agent(char buf[PATH_MAX])
{
    static const char *const places[] = { "../sbin/advisor-agent", "advisor-agent", "../advisor-agent/advisor-agent" };
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (access(ADVISOR_SBINDIR "/advisor-agent", X_OK) == 0)
        return ADVISOR_SBINDIR "/advisor-agent";
    if (n > 0) {
        self[n] = '\0';
        char *slash = strrchr(self, '/');
        if (slash)
            slash[1] = '\0';
        for (size_t i = 0; slash && i < ADV_ARRAY_LEN(places); i++)
            if (snprintf(buf, PATH_MAX, "%s%s", self, places[i]) < PATH_MAX && access(buf, X_OK) == 0)
                return buf;
    }
    return "advisor-agent";
}

enum ctl_exit cmd_doctor(struct ctl *ctl)
{
    const char *config = ctl->args->option[OPT_AGENT_CONFIG], *agent = ctl->args->option[OPT_AGENT];
    char found[PATH_MAX];
    const char *argv[8] = { NULL };
    size_t n = 0;

    if (!config && access(AGENT_CONFIG, F_OK) == 0)
        config = AGENT_CONFIG;
    if (!agent)
        agent = find_agent(found);
    argv[n++] = agent;
    argv[n++] = "--doctor";
    argv[n++] = "-o";
    argv[n++] = ctl_wants_json(ctl) ? "json" : "table";
    if (config) {
        argv[n++] = "--config";
        argv[n++] = config;
    }
    (void) fflush(stdout);
    (void) execvp(agent, (char *const *) (uintptr_t) argv);
    (void) fprintf(stderr,
                   "advisorctl: doctor: %s cannot be run: %s\nIt is run on the agent's host, where advisor-agent is installed; --agent names the program.\n",
                   agent, strerror(errno));
    return CTL_EXIT_UNREACHABLE;
}
