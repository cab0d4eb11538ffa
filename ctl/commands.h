/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_CTL_COMMANDS_H
#define ADVISOR_CTL_COMMANDS_H

/* What each command does. Thread: one owner.  Blocks: on the network and on output. */

#include "ctl/args.h"
#include "ctl/client.h"
#include "ctl/show.h"

struct ctl {
    const struct ctl_config *cfg;
    const struct args *args;
    struct client *client;
    struct screen screen;
};

/* Runs ctl->args->command. Messages about failures go to stderr. */
enum ctl_exit command_run(struct ctl *ctl);

/* rules.c: judge logs and check rules, without a server. */
enum ctl_exit cmd_rules_test(struct ctl *ctl);
enum ctl_exit cmd_rules_lint(struct ctl *ctl);

/* doctor.c: becomes `advisor-agent --doctor`, without a server; returns only when that program cannot be run. */
enum ctl_exit cmd_doctor(struct ctl *ctl);

/* Moves the first field's items of @from behind those of @into (both of one list response) and empties them there.
 * Errors: -ADV_RESOURCE_EXHAUSTED. */
adv_must_check int command_merge_page(ProtobufCMessage *into, ProtobufCMessage *from);

#endif
