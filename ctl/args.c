/* SPDX-License-Identifier: Apache-2.0 */
/* Global flags may stand before or behind the command, as people write them. A flag of the settings table is handed on
 * as "--key=value"; the table knows its type, this file only whether it takes a value. */

#include "ctl/args.h"

#include "common/num.h"
#include "ctl/config.h"

#define BIT(o) (UINT64_C(1) << (o))
_Static_assert(OPT_COUNT <= 64, "options are bits");

static const struct command commands[] = {
    { CMD_CLUSTERS, "clusters", "", 0, 0, 0, "List clusters: mode, agent, size.", NULL },
    { CMD_CLUSTER_CREATE, "cluster create", "NAME", 1, 1, BIT(OPT_OUT) | BIT(OPT_VALID), "Register a cluster (role admin).",
      "The cluster begins in mode observe. Its agent connects with a certificate whose URI name is\n"
      "advisor:agent:NAME. With --out an enrolment bundle is written too, as by `cluster enrol`." },
    { CMD_CLUSTER_GET, "cluster get", "NAME", 1, 1, 0, "Show one cluster.", NULL },
    { CMD_CLUSTER_ENROL, "cluster enrol", "NAME", 1, 1, BIT(OPT_OUT) | BIT(OPT_VALID),
      "Write a bundle with which an agent gets its first certificate (role admin).",
      "Bring the file to the agent's host and run there, as the agent's user: advisor-agent --enrol FILE.\n"
      "It holds a token that can be used once: whoever has the file can become an agent of the cluster until then.\n"
      "The token is drawn here, and the control plane is told its hash only." },
    { CMD_CLUSTER_ENROLMENTS, "cluster enrolments", "NAME", 1, 1, 0, "List the enrolments of a cluster (role admin).", NULL },
    { CMD_CLUSTER_REVOKE, "cluster revoke", "NAME", 1, 1, BIT(OPT_SERIAL) | BIT(OPT_BEFORE) | BIT(OPT_ALL) | BIT(OPT_REASON),
      "Refuse certificates of a cluster's agents from now on (role admin).",
      "One by its serial number (--serial), or all that were issued until now (--all) or before a time (--before), together\n"
      "with the enrolments made until then; one of the three is needed. Agents that use them are thrown out at once. It cannot be"
      " undone: enrol again." },
    { CMD_CLUSTER_REVOCATIONS, "cluster revocations", "NAME", 1, 1, 0, "List what was revoked (role admin).", NULL },
    { CMD_NODES, "nodes", "CLUSTER", 1, 1, 0, "List the nodes of a cluster.", NULL },
    { CMD_JOBS, "jobs", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_USER) | BIT(OPT_STATE), "List jobs, newest first.", NULL },
    { CMD_JOB, "job", "CLUSTER/JOBID", 1, 1, 0, "Tell the story of one job: what happened, when, and what was done.", NULL },
    { CMD_ADVICE, "advice", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_ACTIONS), "List advice, newest first.", NULL },
    { CMD_EXPLAIN, "explain", "CLUSTER/JOBID[/ATTEMPT]", 1, 1, 0, "Say why an attempt was judged as it was.",
      "Without ATTEMPT the newest attempt that was judged is explained." },
    { CMD_APPROVE, "approve", "CLUSTER/JOBID[/ATTEMPT]", 1, 1, BIT(OPT_GENERATION) | BIT(OPT_REASON),
      "Say yes to one generation of an advice: then it may be carried out (role user for own jobs, or operator).",
      "A yes counts for the generation that you read, and for no other: `advisorctl explain` shows it." },
    { CMD_REJECT, "reject", "CLUSTER/JOBID[/ATTEMPT]", 1, 1, BIT(OPT_GENERATION) | BIT(OPT_REASON),
      "Say no to one generation of an advice: then nothing is done under it.", NULL },
    { CMD_VERDICT, "verdict", "CLUSTER/JOBID[/ATTEMPT] right|wrong", 2, 2, BIT(OPT_GENERATION) | BIT(OPT_REASON),
      "Judge an advice after the fact; reports count it.", "Without --generation the present one is judged." },
    { CMD_EXCLUSIONS, "exclusions", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_NODE) | BIT(OPT_ALL),
      "List nodes that people keep recoveries off.", NULL },
    { CMD_EXCLUDE, "exclude", "CLUSTER NODE", 2, 2, BIT(OPT_REASON) | BIT(OPT_END), "Keep recoveries off a node (role operator).",
      "A --reason is needed. Without --end until it is lifted." },
    { CMD_LIFT, "lift", "CLUSTER NODE|ID", 2, 2, BIT(OPT_REASON), "Lift an exclusion (role operator).", NULL },
    { CMD_WINDOWS, "windows", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_ALL), "List maintenance windows.", NULL },
    { CMD_WINDOW_CREATE, "window create", "CLUSTER", 1, 1, BIT(OPT_START) | BIT(OPT_END) | BIT(OPT_REASON),
      "Plan, or with no --start open, a maintenance window (role operator): nothing is touched while it is open.", NULL },
    { CMD_WINDOW_END, "window end", "CLUSTER ID", 2, 2, 0, "End a window now, or call a planned one off (role operator).", NULL },
    { CMD_INCIDENTS, "incidents", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_ALL), "List what a person should look at.", NULL },
    { CMD_INCIDENT_CLOSE, "incident close", "CLUSTER ID", 2, 2, BIT(OPT_REASON),
      "Say that it was looked at (role operator).", NULL },
    { CMD_POLICIES, "policies", "", 0, 0, 0, "List policies.", NULL },
    { CMD_POLICY_GET, "policy get", "NAME [VERSION]", 1, 2, 0, "Print the document of a policy.", NULL },
    { CMD_POLICY_VERSIONS, "policy versions", "NAME", 1, 1, 0, "List the versions of a policy, newest first.", NULL },
    { CMD_POLICY_APPLY, "policy apply", "NAME FILE", 2, 2, BIT(OPT_DRY_RUN) | BIT(OPT_REASON),
      "Store a document (- for standard input) as the newest version of a policy (role operator).", NULL },
    { CMD_POLICY_VALIDATE, "policy validate", "FILE", 1, 1, 0,
      "Say what is wrong with a document; exit code 1 if anything is.", NULL },
    { CMD_SIGNAL_ANOMALY, "signal anomaly", "CLUSTER/JOBID[/ATTEMPT] crash|hang|straggler RULE", 3, 3,
      BIT(OPT_CLASS) | BIT(OPT_RETRYABLE) | BIT(OPT_NODES) | BIT(OPT_RANKS) | BIT(OPT_EXCERPT) | BIT(OPT_AT),
      "Report that something looks wrong with an attempt (role detector).",
      "It is a suspicion until the scheduler's state, or our own judgement, confirms it. RULE is your own name for what you\n"
      "saw. Without ATTEMPT the newest is meant." },
    { CMD_SIGNAL_EVIDENCE, "signal evidence", "CLUSTER/JOBID[/ATTEMPT] SOURCE KIND", 3, 3,
      BIT(OPT_CLASS) | BIT(OPT_NODES) | BIT(OPT_RANKS) | BIT(OPT_EXCERPT) | BIT(OPT_WEIGHT) | BIT(OPT_START) | BIT(OPT_END) | BIT(OPT_AT),
      "Report something that may explain it (role detector).", NULL },
    { CMD_SIGNAL_PROGRESS, "signal progress", "CLUSTER/JOBID[/ATTEMPT] STEP", 2, 2, BIT(OPT_AT),
      "Report that an attempt moves (role detector).", NULL },
    { CMD_SIGNAL_MILESTONE, "signal milestone", "CLUSTER/JOBID[/ATTEMPT] checkpoint|resumed STEP", 3, 3, BIT(OPT_AT),
      "Report a checkpoint, or that the attempt resumed from one (role detector).", NULL },
    { CMD_REPORT_LATENCY, "report latency", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_CLASS) | BIT(OPT_START) | BIT(OPT_END),
      "How long it took from one fact to the next, by cluster and fault class.",
      "Attempts whose end was observed from --start until before --end. What is not known is left out." },
    { CMD_REPORT_OUTCOME, "report outcome", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_CLASS) | BIT(OPT_START) | BIT(OPT_END),
      "What was advised, what became of it, and what people thought of it.", "Advice made from --start until before --end." },
    { CMD_FORGET, "forget", "USER", 1, 1, BIT(OPT_CLUSTER),
      "Erase what is known of a user, in every cluster (role admin). It cannot be undone.",
      "Jobs that the scheduler still lists are left: run it again later. docs/audit.md says what goes and what stays." },
    { CMD_MODE, "mode", "CLUSTER [off|observe|approve|act]", 1, 2, BIT(OPT_REASON) | BIT(OPT_WAIT),
      "Show or set how far Advisor may go on a cluster (role operator).",
      "off      jobs are not judged\n"
      "observe  advice is written and shown, nothing is touched\n"
      "approve  a person has to approve each advice first\n"
      "act      advice is carried out by the cluster's agent\n"
      "The answer to a change says that it is stored; --wait waits until the agent has confirmed it." },
    { CMD_AUDIT_LIST, "audit list", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_VERB) | BIT(OPT_SUBJECT), "The same as audit.", NULL },
    { CMD_AUDIT_APPEND, "audit append", "CLUSTER VERB SUBJECT [DETAIL]", 3, 4, BIT(OPT_EVENT_ID) | BIT(OPT_AT),
      "Write an event of your own into the audit log (role detector).",
      "It stands there as ext.VERB. With the same --event-id it is written once, however often this is run." },
    { CMD_AUDIT_VERIFY, "audit verify", "[CLUSTER]", 0, 1, BIT(OPT_PUBLIC_KEY) | BIT(OPT_EXPECT),
      "Read all events and compute their chain; exit code 1 if it is broken.",
      "Each event is hashed here; where the chain has to end the control plane says (VerifyAudit), which knows"
      " its newest event.\n"
      "Nothing else is believed of it, but that it showed the same events before: note the newest SEQ:HASH, which is printed,\n"
      "and give it to --expect another time. Exit code 1, too, if what was noted is older than what is kept." },
    { CMD_AUDIT, "audit", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_VERB) | BIT(OPT_SUBJECT), "List who did what.", NULL },
    { CMD_WATCH, "watch", "", 0, 0, BIT(OPT_CLUSTER) | BIT(OPT_KINDS) | BIT(OPT_SINCE),
      "Follow changes until interrupted.",
      "First the present state, then each change. With -o json one object a line; its resumeToken goes to --since.\n"
      "--timeout does not end a watch." },
    { CMD_RULES_TEST, "rules test", "FILE...", 1, ARGS_MAX_WORDS,
      BIT(OPT_RULES) | BIT(OPT_SCOPE) | BIT(OPT_NODE) | BIT(OPT_NODES) | BIT(OPT_ENDED) |
          BIT(OPT_PROGRESSED),
      "Judge logs as advisord would, and say why, line by line. Needs no server.",
      "Each FILE (- for standard input) is the log of one attempt. First come the lines that say something, by which rule,\n"
      "and what follows from each; then the verdict. Nothing is sent anywhere.\n"
      "Without --ended the attempt ends in failure if a fault that ends a process stands at the end, and else it is taken\n"
      "to go on in silence. With -o json one object a file and line." },
    { CMD_RULES_LINT, "rules lint", "[DIRECTORY]", 0, 1, 0,
      "Check a folder of rules: syntax, patterns, examples. Needs no server.",
      "Each rule needs at least two positive and two negative examples, which are tried; exit code 1 says that something is\n"
      "wrong, as FILE:LINE:COLUMN on stderr." },
    { CMD_DOCTOR, "doctor", "", 0, 0, BIT(OPT_AGENT) | BIT(OPT_AGENT_CONFIG),
      "Find what is missing at this site, and say how to mend it. Needs no server.",
      "Run it on the agent's host as the agent's user, before or after the installation; nothing is changed. Each finding says what\n"
      "is wrong, what that means for Advisor, how to mend it, and how sure that is: docs/doctor.md.\n"
      "Exit code: 0 nothing worse than notes; 1 warnings; 2 faults; 3 it could not be done." },
    { CMD_VERSION, "version", "", 0, 0, 0, "Print the version of this program.", NULL },
    { CMD_COMPLETION, "completion", "bash", 1, 1, 0, "Print a completion script for bash.",
      "Use it with: source <(advisorctl completion bash)" },
};

static const struct option {
    const char *name;
    const char *value; /* placeholder; NULL: takes none */
    const char *about;
} options[OPT_COUNT] = {
    [OPT_CLUSTER] = { "cluster", "NAME", "only this cluster (default: all)" },
    [OPT_USER] = { "user", "NAME", "only jobs of this user" },
    [OPT_STATE] = { "state", "STATE[,...]", "only jobs in these states: pending, running, failed, completed, ..." },
    [OPT_ACTIONS] = { "actions", NULL, "leave out advice to do nothing" },
    [OPT_REASON] = { "reason", "TEXT", "kept in the audit log" },
    [OPT_WAIT] = { "wait", NULL, "wait until the cluster's agent has confirmed the mode" },
    [OPT_VERB] = { "verb", "WORD", "only this verb, e.g. mode.set" },
    [OPT_SUBJECT] = { "subject", "NAME", "only subjects that begin so, e.g. clusters/a/jobs/" },
    [OPT_KINDS] = { "kinds", "KIND[,...]", "cluster, job, attempt, anomaly, advice, action, audit (default: all but audit)" },
    [OPT_SINCE] = { "since", "TOKEN", "go on behind this resume token" },
    [OPT_OUT] = { "out", "FILE", "where the enrolment bundle goes (default: NAME-enrolment.json; - for stdout)" },
    [OPT_VALID] = { "valid", "TIME", "how long the bundle may be used, e.g. 30m or 7d (default: 24h)" },
    [OPT_SERIAL] = { "serial", "HEX", "only the certificate with this serial number" },
    [OPT_RULES] = { "rules", "DIRECTORY", "use these rules (default: " ADVISOR_RULES_DIR ")" },
    [OPT_SCOPE] = { "scope", "WORD", "what the files are: application, node or scheduler (default: application)" },
    [OPT_NODE] = { "node", "NAME", "host of a node log; only this node" },
    [OPT_NODES] = { "nodes", "HOSTLIST", "hosts of the attempt, or that are blamed (default: all that the log names; none)" },
    [OPT_ENDED] = { "ended", "STATE", "how the attempt ended: failed, completed, cancelled, timeout, ..., or running" },
    [OPT_PROGRESSED] = { "progressed", NULL, "the files are pieces: the attempt had shown progress before they begin" },
    [OPT_GENERATION] = { "generation", "N", "of the advice that you read" },
    [OPT_ALL] = { "all", NULL, "all of them: also what is over; each certificate of the cluster's agents" },
    [OPT_START] = { "start", "TIME", "from then on, e.g. 2026-01-02T03:04:05Z, or -7d, +1h from now" },
    [OPT_END] = { "end", "TIME", "until then" },
    [OPT_AT] = { "at", "TIME", "when it was seen (default: now)" },
    [OPT_DRY_RUN] = { "dry-run", NULL, "only say what would change" },
    [OPT_CLASS] = { "class", "WORD", "fault class, e.g. gpu_hardware" },
    [OPT_RETRYABLE] = { "retryable", "WORD", "can the same job succeed when started again: yes, no, maybe" },
    [OPT_RANKS] = { "ranks", "RANK[,...]", "ranks that are concerned" },
    [OPT_EXCERPT] = { "text", "TEXT", "a short excerpt or summary, without secrets" },
    [OPT_WEIGHT] = { "weight", "PERCENT", "how much it says, 0 to 100" },
    [OPT_EVENT_ID] = { "event-id", "ID", "your own id of the event (default: a random one)" },
    [OPT_PUBLIC_KEY] = { "public-key", "FILE", "check the signature of checkpoints with this Ed25519 key, PEM" },
    [OPT_EXPECT] = { "expect", "SEQ:HASH", "an event that was noted before has to be there" },
    [OPT_AGENT] = { "agent", "PROGRAM", "advisor-agent (default: as installed)" },
    [OPT_AGENT_CONFIG] = { "agent-config", "FILE", "the agent's configuration (default: /etc/advisor/agent.yaml if it is there)" },
    [OPT_BEFORE] = { "before", "TIME", "only certificates issued before this time, e.g. 2026-01-02T03:04:05Z" },
};

/* ---- parsing ---------------------------------------------------------------------------------------------------- */

static int add_flag(struct args *a, const char *key, const char *value, struct adv_err *err)
{
    char *text;

    if (a->n_flags == ARGS_MAX_FLAGS)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "too many flags");
    if (asprintf(&text, "--%s=%s", key, value) < 0)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "no memory");
    a->flags[a->n_flags++] = text;
    return 0;
}

/* The row of the settings table that "--server-name" or "--server_name" means. */
static const struct adv_config_row *settings_row(const char *name, size_t len)
{
    for (size_t i = 0; i < ctl_config_table.n_rows; i++) {
        const char *key = ctl_config_table.rows[i].key;
        size_t k = 0;

        while (k < len && (key[k] == name[k] || (key[k] == '_' && name[k] == '-')))
            k++;
        if (k == len && key[k] == '\0')
            return &ctl_config_table.rows[i];
    }
    return NULL;
}

/* The value of argv[*i]: behind '=' or the next word. */
static int take_value(int argc, char *const *argv, int *i, const char *eq, const char **ret, struct adv_err *err)
{
    if (eq) {
        *ret = eq + 1;
        return 0;
    }
    if (*i + 1 >= argc)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%s needs a value", argv[*i]);
    *ret = argv[++*i];
    return 0;
}

static int long_flag(struct args *a, int argc, char *const *argv, int *i, struct adv_err *err)
{
    const char *name = argv[*i] + 2, *eq = strchr(name, '='), *value = "";
    size_t len = eq ? (size_t) (eq - name) : strlen(name);
    const struct adv_config_row *row = settings_row(name, len);
    int r;

    bool *own = adv_streq(name, "help")               ? &a->help :
                adv_streq(name, "version")            ? &a->version :
                adv_streq(name, "check-config")       ? &a->check_config :
                adv_streq(name, "dump-config")        ? &a->dump_config :
                adv_streq(name, "dump-config-docs")   ? &a->dump_config_docs :
                                                        NULL;

    if (own) {
        *own = true;
        return 0;
    }
    if (len == 6 && strncmp(name, "config", len) == 0)
        return take_value(argc, argv, i, eq, &a->config_file, err);
    if (row) {
        if (row->type == ADV_CONFIG_TYPE_BOOL && !eq)
            value = "true";
        else if ((r = take_value(argc, argv, i, eq, &value, err)) < 0)
            return r;
        return add_flag(a, row->key, value, err);
    }
    for (int o = 0; o < OPT_COUNT; o++) {
        if (strlen(options[o].name) != len || strncmp(options[o].name, name, len) != 0)
            continue;
        if (a->option[o])
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "--%s is given twice", options[o].name);
        if (!options[o].value && eq)
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "--%s takes no value", options[o].name);
        if (options[o].value && (r = take_value(argc, argv, i, eq, &value, err)) < 0)
            return r;
        a->option[o] = value;
        return 0;
    }
    return adv_err_set(err, ADV_INVALID_ARGUMENT, "unknown option %.60s", argv[*i]);
}

static int short_flag(struct args *a, int argc, char *const *argv, int *i, struct adv_err *err)
{
    const char *s = argv[*i], *value;
    int r;

    if (adv_streq(s, "-h")) {
        a->help = true;
        return 0;
    }
    if (s[1] != 'o')
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "unknown option %.60s", s);
    value = s + 2;
    if (!*value && (r = take_value(argc, argv, i, NULL, &value, err)) < 0)
        return r;
    return add_flag(a, "output", value, err);
}

static const struct command *find_command(const char *const *word, int n_words, int *ret_used)
{
    for (size_t i = 0; i < ADV_ARRAY_LEN(commands); i++) {
        const char *blank = strchr(commands[i].name, ' ');

        *ret_used = blank ? 2 : 1;
        if (blank ? n_words >= 2 && strlen(word[0]) == (size_t) (blank - commands[i].name) &&
                        adv_startswith(commands[i].name, word[0]) && adv_streq(word[1], blank + 1)
                  : n_words >= 1 && adv_streq(word[0], commands[i].name))
            return &commands[i];
    }
    return NULL;
}

/* The second words that may follow @first, "create, get or enrol"; false: it begins no group. */
static bool group_words(const char *first, char *ret, size_t size)
{
    size_t len = strlen(first), n = 0, left = 0;

    for (size_t i = 0; i < ADV_ARRAY_LEN(commands); i++)
        left += strncmp(commands[i].name, first, len) == 0 && commands[i].name[len] == ' ';
    *ret = '\0';
    for (size_t i = 0; i < ADV_ARRAY_LEN(commands) && n < size; i++)
        if (strncmp(commands[i].name, first, len) == 0 && commands[i].name[len] == ' ') {
            left--;
            n += (size_t) snprintf(ret + n, size - n, "%s%s", n == 0 ? "" : left ? ", " : " or ", commands[i].name + len + 1);
        }
    return n > 0;
}

static int place_words(struct args *a, const char *const *word, int n_words, struct adv_err *err)
{
    char second[160];
    int used = 0;

    if (n_words == 0)
        return a->help || a->version || a->check_config || a->dump_config || a->dump_config_docs
                   ? 0 : adv_err_set(err, ADV_INVALID_ARGUMENT, "no command given");
    a->command = find_command(word, n_words, &used);
    if (!a->command && group_words(word[0], second, sizeof(second)))
        return a->help ? 0 : adv_err_set(err, ADV_INVALID_ARGUMENT, "%s: expected %s", word[0], second);
    if (!a->command)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "unknown command \"%.60s\"", word[0]);
    if (a->help)
        return 0;
    word += used;
    n_words -= used;
    if (n_words < a->command->min_words)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%s: expected %s", a->command->name, a->command->words);
    if (n_words > a->command->max_words)
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "%s: unexpected \"%.60s\"", a->command->name,
                           word[a->command->max_words]);
    for (int i = 0; i < n_words; i++)
        a->word[i] = word[i];
    for (int o = 0; o < OPT_COUNT; o++)
        if (a->option[o] && !(a->command->options & BIT(o)))
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "%s does not take --%s", a->command->name, options[o].name);
    return 0;
}

int args_parse(int argc, char *const *argv, struct args *ret, struct adv_err *err)
{
    const char *word[ARGS_MAX_WORDS + 2];
    int n_words = 0, r;
    bool only_words = false;

    *ret = (struct args) { 0 };
    for (int i = 1; i < argc; i++) {
        if (!only_words && adv_streq(argv[i], "--")) {
            only_words = true;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            r = argv[i][1] == '-' ? long_flag(ret, argc, argv, &i, err) : short_flag(ret, argc, argv, &i, err);
            if (r < 0)
                return r;
        } else if (n_words == (int) ADV_ARRAY_LEN(word)) {
            return adv_err_set(err, ADV_INVALID_ARGUMENT, "unexpected \"%.60s\"", argv[i]);
        } else {
            word[n_words++] = argv[i];
        }
    }
    return place_words(ret, word, n_words, err);
}

void args_done(struct args *a)
{
    for (int i = 0; i < a->n_flags; i++)
        free(a->flags[i]);
    *a = (struct args) { 0 };
}

int args_job_path(const char *text, bool attempt_allowed, char ret_cluster[ARGS_PART_SIZE], char ret_job[ARGS_PART_SIZE],
                  int64_t *ret_attempt, struct adv_err *err)
{
    const char *want = attempt_allowed ? "CLUSTER/JOBID[/ATTEMPT]" : "CLUSTER/JOBID";
    const char *slash = strchr(text, '/'), *second = slash ? strchr(slash + 1, '/') : NULL;
    size_t n_cluster = slash ? (size_t) (slash - text) : 0;
    size_t n_job = !slash ? 0 : second ? (size_t) (second - slash - 1) : strlen(slash + 1);
    int64_t attempt = -1;

    if (n_cluster == 0 || n_job == 0 || n_cluster >= ARGS_PART_SIZE || n_job >= ARGS_PART_SIZE ||
        (second && (!attempt_allowed || adv_parse_i64(second + 1, 0, UINT32_MAX, &attempt, NULL) < 0)))
        return adv_err_set(err, ADV_INVALID_ARGUMENT, "\"%.80s\": expected %s", text, want);
    (void) snprintf(ret_cluster, ARGS_PART_SIZE, "%.*s", (int) n_cluster, text);
    (void) snprintf(ret_job, ARGS_PART_SIZE, "%.*s", (int) n_job, slash + 1);
    if (ret_attempt)
        *ret_attempt = attempt;
    return 0;
}

/* ---- the manual ------------------------------------------------------------------------------------------------- */

static void help_settings(FILE *out)
{
    (void) fprintf(out, "\nSettings, as flags, as ADVISORCTL_NAME in the environment, or in ~/.config/advisor/ctl.yaml:\n");
    for (size_t i = 0; i < ctl_config_table.n_rows; i++) {
        const struct adv_config_row *row = &ctl_config_table.rows[i];
        char name[32];
        size_t k;

        for (k = 0; row->key[k] && k + 1 < sizeof(name); k++)
            name[k] = row->key[k] == '_' ? '-' : row->key[k];
        name[k] = '\0';
        (void) fprintf(out, "  --%-14s %s%s%s%s\n", name, row->text, *row->def ? " (default " : "", row->def,
                       *row->def ? ")" : "");
    }
    (void) fprintf(out, "  -o %-13s the same as --output\n"
                        "  --%-14s read this file instead\n"
                        "  --%-14s print the settings with the source of each; --dump-config-docs: their reference\n"
                        "  --%-14s check the settings and exit\n",
                   "FORMAT", "config FILE", "dump-config", "check-config");
}

static void help_exit_codes(FILE *out)
{
    (void) fprintf(out, "\nExit codes:\n"
                        "  0  done\n"
                        "  1  the server refused or failed; code, reason and message are on stderr\n"
                        "  2  bad usage or settings\n"
                        "  3  the server could not be reached, or TLS failed; stderr says what was tried\n"
                        "  4  timed out\n");
}

void args_help(FILE *out, const struct command *command)
{
    if (command) {
        (void) fprintf(out, "Usage: advisorctl %s%s%s%s\n\n%s\n", command->name, *command->words ? " " : "", command->words,
                       command->options ? " [OPTIONS]" : "", command->about);
        if (command->more)
            (void) fprintf(out, "\n%s\n", command->more);
        if (command->options)
            (void) fprintf(out, "\nOptions:\n");
        for (int o = 0; o < OPT_COUNT; o++)
            if (command->options & BIT(o)) {
                char name[64];

                (void) snprintf(name, sizeof(name), "%s%s%s", options[o].name, options[o].value ? " " : "",
                                options[o].value ? options[o].value : "");
                (void) fprintf(out, "  --%-20s %s\n", name, options[o].about);
            }
    } else {
        (void) fprintf(out, "Usage: advisorctl COMMAND [...]\n\n%s\n\nCommands (--help behind each tells more):\n",
                       ctl_config_table.about);
        for (size_t i = 0; i < ADV_ARRAY_LEN(commands); i++) {
            char name[128]; /* the longest line of words there is, and more */

            (void) snprintf(name, sizeof(name), "%s%s%s", commands[i].name, *commands[i].words ? " " : "", commands[i].words);
            (void) fprintf(out, "  %-40s %s\n", name, commands[i].about);
        }
    }
    help_settings(out);
    if (!command || command->id != CMD_DOCTOR) /* which has its own */
        help_exit_codes(out);
}

/* What may follow the first word of a command: second words of a group, then options of all that begin so. */
static void completion_words(FILE *out, const char *first)
{
    size_t len = strlen(first);
    uint64_t seen = 0;

    for (size_t i = 0; i < ADV_ARRAY_LEN(commands); i++) {
        const char *rest = commands[i].name + len;

        if (strncmp(commands[i].name, first, len) != 0 || (*rest != '\0' && *rest != ' '))
            continue;
        seen |= commands[i].options;
        if (*rest)
            (void) fprintf(out, "%s", rest);
    }
    for (int o = 0; o < OPT_COUNT; o++)
        if (seen & BIT(o))
            (void) fprintf(out, " --%s", options[o].name);
}

void args_completion_bash(FILE *out)
{
    const char *last = "";
    size_t last_len = 0;

    (void) fprintf(out, "# bash completion of advisorctl\n_advisorctl() {\n"
                        "    local cur=${COMP_WORDS[COMP_CWORD]} cmd= w i words=\n"
                        "    local flags='");
    for (size_t i = 0; i < ctl_config_table.n_rows; i++) {
        (void) fprintf(out, "%s--", i ? " " : "");
        for (const char *k = ctl_config_table.rows[i].key; *k; k++)
            (void) fputc(*k == '_' ? '-' : *k, out);
    }
    (void) fprintf(out, " --config --check-config --dump-config --dump-config-docs --version --help -o'\n"
                        "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                        "        w=${COMP_WORDS[i]}\n"
                        "        case $w in\n"
                        "        --insecure | --check-config | --dump-config* | --version | --help | --*=*) ;;\n"
                        "        -*) i=$((i + 1)) ;; # its value\n"
                        "        *) cmd=$w; break ;;\n"
                        "        esac\n"
                        "    done\n"
                        "    case $cmd in\n    '') words='");
    for (size_t i = 0; i < ADV_ARRAY_LEN(commands); i++) {
        size_t len = strcspn(commands[i].name, " ");

        if (len != last_len || strncmp(last, commands[i].name, len) != 0)
            (void) fprintf(out, "%s%.*s", i ? " " : "", (int) len, commands[i].name);
        last = commands[i].name;
        last_len = len;
    }
    (void) fprintf(out, "' ;;\n    completion) words=bash ;;\n");
    last_len = 0;
    for (size_t i = 0; i < ADV_ARRAY_LEN(commands); i++) {
        char first[32];
        size_t len = strcspn(commands[i].name, " ");
        bool same = len == last_len && strncmp(last, commands[i].name, len) == 0;

        last = commands[i].name;
        last_len = len;
        if (same || (!commands[i].options && !commands[i].name[len]))
            continue;
        (void) snprintf(first, sizeof(first), "%.*s", (int) len, commands[i].name);
        (void) fprintf(out, "    %s) words='%s", first, commands[i].id == CMD_MODE ? "off observe approve act" : "");
        completion_words(out, first);
        (void) fprintf(out, "' ;;\n");
    }
    (void) fprintf(out, "    esac\n"
                        "    mapfile -t COMPREPLY < <(compgen -W \"$words $flags\" -- \"$cur\")\n"
                        "}\ncomplete -o default -F _advisorctl advisorctl\n");
}
