/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADVISOR_CTL_ARGS_H
#define ADVISOR_CTL_ARGS_H

/* The command line: which command, its words and options, and the flags that belong to the settings table. Everything
 * known about a command stands in one table (args.c), from which parsing, --help and completion come.
 *
 * Pure. Any thread, never blocks. */

#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

enum command_id {
    CMD_CLUSTERS,
    CMD_CLUSTER_CREATE,
    CMD_CLUSTER_GET,
    CMD_CLUSTER_ENROL,
    CMD_CLUSTER_ENROLMENTS,
    CMD_CLUSTER_REVOKE,
    CMD_CLUSTER_REVOCATIONS,
    CMD_NODES,
    CMD_JOBS,
    CMD_JOB,
    CMD_ADVICE,
    CMD_EXPLAIN,
    CMD_MODE,
    CMD_AUDIT,
    CMD_AUDIT_LIST,
    CMD_APPROVE,
    CMD_REJECT,
    CMD_VERDICT,
    CMD_EXCLUSIONS,
    CMD_EXCLUDE,
    CMD_LIFT,
    CMD_WINDOWS,
    CMD_WINDOW_CREATE,
    CMD_WINDOW_END,
    CMD_INCIDENTS,
    CMD_INCIDENT_CLOSE,
    CMD_POLICIES,
    CMD_POLICY_GET,
    CMD_POLICY_VERSIONS,
    CMD_POLICY_APPLY,
    CMD_POLICY_VALIDATE,
    CMD_FORGET,
    CMD_SIGNAL_ANOMALY,
    CMD_SIGNAL_EVIDENCE,
    CMD_SIGNAL_PROGRESS,
    CMD_SIGNAL_MILESTONE,
    CMD_REPORT_LATENCY,
    CMD_REPORT_OUTCOME,
    CMD_AUDIT_APPEND,
    CMD_AUDIT_VERIFY,
    CMD_WATCH,
    CMD_RULES_TEST,
    CMD_RULES_LINT,
    CMD_DOCTOR,
    CMD_VERSION,
    CMD_COMPLETION,
};

enum option_id {
    OPT_CLUSTER,
    OPT_USER,
    OPT_STATE,
    OPT_ACTIONS,
    OPT_REASON,
    OPT_WAIT,
    OPT_VERB,
    OPT_SUBJECT,
    OPT_KINDS,
    OPT_SINCE,
    OPT_OUT,
    OPT_VALID,
    OPT_SERIAL,
    OPT_BEFORE,
    OPT_RULES,
    OPT_SCOPE,
    OPT_NODE,
    OPT_NODES,
    OPT_ENDED,
    OPT_PROGRESSED,
    OPT_GENERATION,
    OPT_ALL,
    OPT_START,
    OPT_END,
    OPT_AT,
    OPT_DRY_RUN,
    OPT_CLASS,
    OPT_RETRYABLE,
    OPT_RANKS,
    OPT_EXCERPT,
    OPT_WEIGHT,
    OPT_EVENT_ID,
    OPT_PUBLIC_KEY,
    OPT_EXPECT,
    OPT_AGENT,
    OPT_AGENT_CONFIG,
    OPT_COUNT,
};

#define ARGS_MAX_WORDS 4096 /* files of `rules test` */
#define ARGS_MAX_FLAGS 32

struct command;

struct args {
    const struct command *command; /* NULL only with one of the flags below */
    const char *word[ARGS_MAX_WORDS];
    const char *option[OPT_COUNT]; /* NULL: not given; "" for a given one without a value */
    bool help, version, dump_config, dump_config_docs, check_config;
    const char *config_file;
    /* what adv_config_load() takes: "--key=value", borrowed from @owned or argv */
    char *flags[ARGS_MAX_FLAGS];
    int n_flags;
};

struct command {
    enum command_id id;
    const char *name;    /* "cluster create" */
    const char *words;   /* "CLUSTER/JOBID", for people */
    int min_words, max_words;
    uint64_t options; /* bits of option_id */
    const char *about; /* one line */
    const char *more;  /* paragraphs for --help, or NULL */
};

/* Owner: caller, args_done() also after a failure.
 * Errors: -ADV_INVALID_ARGUMENT, the message is for people. */
adv_must_check int args_parse(int argc, char *const *argv, struct args *ret, struct adv_err *err);
void args_done(struct args *a);

/* The manual of one command, or of the program when @command is NULL. */
void args_help(FILE *out, const struct command *command);
void args_completion_bash(FILE *out);

/* "a/12", "a/46_5/2" -> its parts. @ret_attempt is -1 when it is not given.
 * Errors: -ADV_INVALID_ARGUMENT. */
#define ARGS_PART_SIZE 128
adv_must_check int args_job_path(const char *text, bool attempt_allowed, char ret_cluster[ARGS_PART_SIZE],
                                 char ret_job[ARGS_PART_SIZE], int64_t *ret_attempt, struct adv_err *err);

ADV_DEFINE_DONE(args, args_done);

#endif
