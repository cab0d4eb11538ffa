/* SPDX-License-Identifier: Apache-2.0 */

/* The adapter's contract on a scripted Slurm in virtual time: what the tools answer → what the adapter says. */

#include "adapters/slurm/internal.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "adapters/runner/scripted.h"
#include "common/buf.h"

/* A job as the tools print it; zero means the usual. */
struct fake {
    const char *state, *reason, *comment, *excluded, *required, *features, *reservation, *dependency;
    int restarts, submit, eligible, slow_ms;
    bool held, no_requeue, no_batch, gone, array, set; /* array: one task of it; set: two components */
    int half; /* of a set: how often the second component was restarted less than the first */
};

struct bench {
    char dir[64];
    struct adv_buf script;
    struct adapter_host host;
    struct adapter *a;
    bool deny;
    int asked;
    struct adapter_result res;
    struct adapter_job_detail *after;
    char note[256], argv[512];
    int done;
    enum adapter_found found;
    adapter_timer_cb later;
    adapter_authorize_cb cb;
};

static void authorize(void *ctx, const struct adapter_write *w, adapter_authorize_cb cb, void *arg)
{
    struct bench *b = ctx;

    b->asked++;
    cr_assert_not_null(w->before);
    for (size_t i = 0; w->argv[i]; i++)
        (void) snprintf(b->argv + strlen(b->argv), sizeof(b->argv) - strlen(b->argv), "%s%s", i ? " " : "", w->argv[i]);
    cb(arg, !b->deny, 0);
}

static void setup(struct bench *b)
{
    *b = (struct bench) { .dir = "/tmp/adv-act-XXXXXX" };
    char path[128];
    FILE *f;

    cr_assert_not_null(mkdtemp(b->dir));
    (void) snprintf(path, sizeof(path), "%s/site.conf", b->dir);
    cr_assert_not_null(f = fopen(path, "w"));
    (void) fputs("ClusterName=c\n", f);
    (void) fclose(f);
    adv_buf_init(&b->script, 1 << 20);
}

static void open_adapter(struct bench *b)
{
    char path[128];
    struct adv_err err;

    (void) snprintf(path, sizeof(path), "%s/site.conf", b->dir);
    struct adapter_slurm_config cfg = { .state_dir = b->dir, .slurm_conf = path, .user = "agent" };
    b->host = (struct adapter_host) { .ctx = b, .authorize = authorize };
    cr_assert_eq(runner_scripted_new(b->script.data, &b->host.runner, &err), 0, "%s", err.msg);
    cr_assert_eq(adapter_slurm_new(&cfg, &b->host, &b->a, &err), 0, "%s", err.msg);
}

static void teardown(struct bench *b)
{
    char path[128];

    b->a = adapter_free(b->a);
    b->host.runner->ops->free(b->host.runner);
    (void) adapter_job_detail_free(b->after);
    adv_buf_done(&b->script);
    for (int i = 0; i < 2; i++) {
        (void) snprintf(path, sizeof(path), "%s/%s", b->dir, i ? "site.conf" : "slurm.conf");
        (void) remove(path);
    }
    (void) remove(b->dir);
}

static const char *or(const char *s, const char *dflt)
{
    return s ? s : dflt;
}

static void expect_row(struct bench *b, const char *id, const struct fake *f, int part)
{
    int submit = f->submit ? f->submit : 1000;
    const char *const fields[] = { part ? "99" : id, f->array ? id : "N/A", f->array ? "1" : "N/A", f->set ? id : "N/A",
                                   f->set ? (part ? "1" : "0") : "N/A", part && f->half ? "CANCELLED" : or(f->state, "FAILED") };

    (void) adv_buf_append_str(&b->script, "<~ ");
    for (size_t i = 0; i < ADV_ARRAY_LEN(fields); i++)
        (void) adv_buf_appendf(&b->script, "%s${nonce}", fields[i]);
    (void) adv_buf_appendf(&b->script, "\n<~ %d${nonce}%d${nonce}%d${nonce}768${nonce}%d${nonce}%d${nonce}", f->restarts - (part ? f->half : 0),
                           !f->no_requeue, !f->no_batch, submit, f->eligible ? f->eligible : submit);
    (void) adv_buf_appendf(&b->script, "\n<~ N/A${nonce}N/A${nonce}%d${nonce}n1${nonce}u${nonce}1000${nonce}", !f->held);
    (void) adv_buf_appendf(&b->script, "\n<~ acct${nonce}main${nonce}normal${nonce}1${nonce}%s${nonce}%s${nonce}",
                           or(f->dependency, "(null)"), or(f->reason, "NonZeroExitCode"));
    (void) adv_buf_appendf(&b->script,
                           "\n<~ name${nonce}%s${nonce}/w${nonce}/w/%%j${nonce}(null)${nonce}%s${nonce}"
                           "1:00:00${nonce}%s${nonce}%s${nonce}\n< \n",
                           or(f->comment, "(null)"), or(f->required, ""), or(f->features, "(null)"),
                           or(f->reservation, "(null)"));
}

/* The two commands of one fresh read. */
static void expect_read(struct bench *b, const char *id, const struct fake *f)
{
    int submit = f->submit ? f->submit : 1000;

    if (f->gone) {
        for (int i = 0; i < 2; i++)
            (void) adv_buf_appendf(&b->script,
                                   "> squeue -h -r -t all -j %s -O *\n! slurm_load_jobs error: Invalid job id specified\n= 1\n"
                                   "> scontrol show config\n< ClusterName = c\n< PrivateData = none\n",
                                   id);
        return;
    }
    (void) adv_buf_appendf(&b->script, "> squeue -h -r -t all -j %s -O *\n", id);
    for (int part = 0; part < (f->set ? 2 : 1); part++)
        expect_row(b, id, f, part);
    if (f->array)
        return; /* it cannot be told which one is meant */
    if (f->set)
        (void) adv_buf_appendf(&b->script, "> squeue -h -r -t all -j %s -o *\n< %s+0|%d|\n< %s+1|%d|\n", id, id, submit, id, submit);
    else
        (void) adv_buf_appendf(&b->script, "> squeue -h -r -t all -j %s -o *\n< %s|%d|%s\n", id, id, submit, or(f->excluded, ""));
    if (f->slow_ms)
        (void) adv_buf_appendf(&b->script, "@ %d\n", f->slow_ms);
}
static void on_act(void *arg, const struct adapter_result *r)
{
    struct bench *b = arg;

    b->done++;
    b->res = *r;
    if (r->n_notes)
        (void) snprintf(b->note, sizeof(b->note), "%s", r->notes[0]);
    b->res.before = b->res.after = NULL;
    b->res.notes = NULL;
    b->res.excluded = NULL;
}

static void act(struct bench *b, const struct adapter_action *action)
{
    open_adapter(b);
    b->a->ops->act(b->a, action, on_act, b);
    cr_assert_eq(b->done, 0, "answered from inside the call");
    runner_scripted_spin(b->host.runner, 3600000);
    cr_assert_eq(b->done, 1, "answered %d times", b->done);
    cr_assert_null(runner_scripted_error(b->host.runner), "%s", runner_scripted_error(b->host.runner));
}

#define NODES                                                                                                   \
    "> sinfo **\n? any\n< n1|idle|main*|a,b|none|\n< n2|mixed|main*|a|none|\n< n3|drained|main*|a,b|bad|\n"             \
    "< n4|idle|other|a|none|\n< n5|reserved|main*|a|none|\n"

#define HELD "job requeued in held state"
#define ENDED(s, why) { .state = (s), .reason = (why) }

Test(act, before_the_write)
{
    static const struct {
        const char *name;
        enum adapter_verb verb;
        struct fake job;
        enum adapter_reason reason;
    } t[] = {
        { "cancelled", ADAPTER_VERB_PRESERVE, ENDED("CANCELLED", "None"), ADAPTER_REASON_CANCELLED_BY_USER },
        { "completed", ADAPTER_VERB_PRESERVE, ENDED("COMPLETED", "None"), ADAPTER_REASON_COMPLETED },
        { "running", ADAPTER_VERB_PRESERVE, ENDED("RUNNING", "None"), ADAPTER_REASON_WRONG_STATE },
        { "pending", ADAPTER_VERB_PRESERVE, ENDED("PENDING", "Priority"), ADAPTER_REASON_WRONG_STATE },
        { "preempted", ADAPTER_VERB_PRESERVE, ENDED("PREEMPTED", "None"), ADAPTER_REASON_WRONG_STATE },
        { "a state of the future", ADAPTER_VERB_PRESERVE, ENDED("ASCENDED", "None"), ADAPTER_REASON_WRONG_STATE },
        { "not requeueable", ADAPTER_VERB_PRESERVE, { .no_requeue = true }, ADAPTER_REASON_NOT_REQUEUEABLE },
        { "srun", ADAPTER_VERB_PRESERVE, { .no_batch = true }, ADAPTER_REASON_NOT_BATCH },
        { "reused id", ADAPTER_VERB_PRESERVE, { .submit = 999 }, ADAPTER_REASON_ID_REUSED },
        { "later attempt", ADAPTER_VERB_PRESERVE, { .restarts = 1, .submit = 1100 }, ADAPTER_REASON_ATTEMPT_SUPERSEDED },
        { "gone", ADAPTER_VERB_PRESERVE, { .gone = true }, ADAPTER_REASON_GONE },
        { "interrupt of an ended job", ADAPTER_VERB_INTERRUPT, { 0 }, ADAPTER_REASON_WRONG_STATE },
        { "interrupt of a cancelled job", ADAPTER_VERB_INTERRUPT, ENDED("CANCELLED", "None"), ADAPTER_REASON_CANCELLED_BY_USER },
        { "release of a user's hold", ADAPTER_VERB_RELEASE, { .state = "PENDING", .held = true, .reason = "JobHeldUser" },
          ADAPTER_REASON_CONFLICT_USER_ACTION },
        { "release of an admin's hold", ADAPTER_VERB_RELEASE, { .state = "PENDING", .held = true, .reason = "JobHeldAdmin" },
          ADAPTER_REASON_CONFLICT_USER_ACTION },
        { "release with another comment", ADAPTER_VERB_RELEASE,
          { .state = "PENDING", .held = true, .reason = HELD, .comment = "hands off" }, ADAPTER_REASON_CONFLICT_USER_ACTION },
        { "constrain of a user's hold", ADAPTER_VERB_CONSTRAIN, { .state = "PENDING", .held = true, .reason = "JobHeldUser" },
          ADAPTER_REASON_CONFLICT_USER_ACTION },
        { "constrain of a job that is free", ADAPTER_VERB_CONSTRAIN, { .state = "PENDING", .reason = "Priority" },
          ADAPTER_REASON_WRONG_STATE },
        { "constrain with another comment", ADAPTER_VERB_CONSTRAIN,
          { .state = "PENDING", .held = true, .reason = HELD, .comment = "hands off" }, ADAPTER_REASON_CONFLICT_USER_ACTION },
        { "release of a failed job", ADAPTER_VERB_RELEASE, { 0 }, ADAPTER_REASON_WRONG_STATE },
        { "cancel of a completed job", ADAPTER_VERB_CANCEL, ENDED("COMPLETED", "None"), ADAPTER_REASON_COMPLETED },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        setup(&b);
        if (t[i].verb == ADAPTER_VERB_CONSTRAIN)
            (void) adv_buf_append_str(&b.script, NODES);
        expect_read(&b, "7", &t[i].job);
        act(&b, &(struct adapter_action) { .verb = t[i].verb, .id = "7", .expect_submit_s = 1000, .expect_comment = "" });
        cr_expect_eq(b.res.reason, t[i].reason, "%s: %s", t[i].name, adapter_reason_name(b.res.reason));
        cr_expect_eq(b.res.command, ADAPTER_COMMAND_NOT_SENT, "%s", t[i].name);
        cr_expect_neq(b.res.observed, ADAPTER_OBSERVED_YES, "%s", t[i].name);
        cr_expect_eq(b.asked, 0, "%s: asked for leave", t[i].name);
        teardown(&b);
    }
}

Test(act, already_satisfied)
{
    static const struct {
        enum adapter_verb verb;
        struct fake job;
    } t[] = {
        { ADAPTER_VERB_PRESERVE, { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD, .submit = 1200 } },
        { ADAPTER_VERB_INTERRUPT, { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD, .submit = 1200 } },
        { ADAPTER_VERB_MAKE_REQUEUEABLE, { .state = "RUNNING", .reason = "None" } },
        { ADAPTER_VERB_RELEASE, { .state = "PENDING", .reason = "None" } },
        { ADAPTER_VERB_RELEASE, { .state = "RUNNING", .reason = "None" } },
        { ADAPTER_VERB_CANCEL, { .state = "CANCELLED", .reason = "None" } },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        setup(&b);
        expect_read(&b, "7", &t[i].job);
        act(&b, &(struct adapter_action) { .verb = t[i].verb, .id = "7", .expect_submit_s = 1000 });
        cr_expect_eq(b.res.reason, ADAPTER_REASON_ALREADY_SATISFIED, "%zu: %s", i, adapter_reason_name(b.res.reason));
        cr_expect_eq(b.res.command, ADAPTER_COMMAND_NOT_SENT);
        cr_expect_eq(b.res.observed, ADAPTER_OBSERVED_YES);
        teardown(&b);
    }
}

#define AFTER { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD, .submit = 1200 }

/* How a preserve ends, by what scontrol says and what is seen afterwards. The read of the after-state may come at once
 * (1), or the old state stays for good (0). */
Test(act, answers)
{
    static const struct {
        const char *name, *answer;
        bool lands;
        enum adapter_command command;
        enum adapter_observed observed;
        enum adapter_reason reason;
    } t[] = {
        { "accepted", "= 0\n", true, ADAPTER_COMMAND_ACCEPTED, ADAPTER_OBSERVED_YES, ADAPTER_REASON_OK },
        { "killed, landed", "= timeout\n", true, ADAPTER_COMMAND_TIMED_OUT, ADAPTER_OBSERVED_YES, ADAPTER_REASON_OK },
        { "no contact, landed", "! Unexpected message received for job 7\n= 1\n", true, ADAPTER_COMMAND_TIMED_OUT,
          ADAPTER_OBSERVED_YES, ADAPTER_REASON_OK },
        { "pending: somebody was faster", "! Job is pending execution for job 7\n= 1\n", true, ADAPTER_COMMAND_REFUSED,
          ADAPTER_OBSERVED_YES, ADAPTER_REASON_OK },
        { "denied", "! Access/permission denied for job 7\n= 1\n", false, ADAPTER_COMMAND_REFUSED, ADAPTER_OBSERVED_NO,
          ADAPTER_REASON_FORBIDDEN },
        { "disabled", "! Requested operation is presently disabled for job 7\n= 1\n", false, ADAPTER_COMMAND_REFUSED,
          ADAPTER_OBSERVED_NO, ADAPTER_REASON_NOT_REQUEUEABLE },
        { "only batch", "! Only batch jobs are accepted or processed for job 7\n= 1\n", false, ADAPTER_COMMAND_REFUSED,
          ADAPTER_OBSERVED_NO, ADAPTER_REASON_NOT_BATCH },
        { "not started", "= lost\n", false, ADAPTER_COMMAND_NOT_SENT, ADAPTER_OBSERVED_NO, ADAPTER_REASON_UNAVAILABLE },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        setup(&b);
        expect_read(&b, "7", &(struct fake) { 0 });
        (void) adv_buf_appendf(&b.script, "> scontrol requeuehold 7\n%s", t[i].answer);
        if (t[i].command != ADAPTER_COMMAND_NOT_SENT)
            expect_read(&b, "7", t[i].lands ? &(struct fake) AFTER : &(struct fake) { 0 });
        act(&b, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 });
        cr_expect_eq(b.res.command, t[i].command, "%s: %s", t[i].name, adapter_command_name(b.res.command));
        cr_expect_eq(b.res.observed, t[i].observed, "%s: %s", t[i].name, adapter_observed_name(b.res.observed));
        cr_expect_eq(b.res.reason, t[i].reason, "%s: %s", t[i].name, adapter_reason_name(b.res.reason));
        cr_expect_eq(b.asked, 1);
        teardown(&b);
    }
}

/* The owner cancelled a component between read and write: what came back of the set is not "no", and not ours any more. */
Test(act, half_a_set)
{
    struct bench b;

    setup(&b);
    expect_read(&b, "7", &(struct fake) { .set = true });
    (void) adv_buf_append_str(&b.script, "> scontrol requeuehold 7\n");
    for (int i = 0; i < 30; i++)
        expect_read(&b, "7", &(struct fake) { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD, .set = true,
                                              .half = 1, .slow_ms = 1000 });
    open_adapter(&b);
    b.a->ops->act(b.a, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 }, on_act, &b);
    runner_scripted_spin(b.host.runner, 60000);
    cr_assert_eq(b.done, 1);
    cr_expect_eq(b.res.command, ADAPTER_COMMAND_ACCEPTED);
    cr_expect_eq(b.res.observed, ADAPTER_OBSERVED_YES, "%s", adapter_observed_name(b.res.observed));
    cr_expect_eq(b.res.reason, ADAPTER_REASON_CANCELLED_BY_USER, "%s", adapter_reason_name(b.res.reason));
    cr_expect_neq(b.res.revived_wrongly, ADAPTER_NO);
    cr_expect_str_eq(b.note, "only a part of the heterogeneous job was requeued: the rest had been cancelled");
    teardown(&b);
}

/* A command without an answer: it is read again until its credential, which it may have made right before it gave up, has
 * died, and never sent twice. */
Test(act, never_lands)
{
    struct bench b;

    setup(&b);
    expect_read(&b, "7", &(struct fake) { 0 });
    (void) adv_buf_append_str(&b.script, "> scontrol requeuehold 7\n! Socket timed out on send/recv operation\n= 1\n@ 10000\n");
    for (int i = 0; i < 30; i++) /* 100, 150, 225 ... 1000 ms apart, from 10 s to past 30 s */
        expect_read(&b, "7", &(struct fake) { 0 });
    open_adapter(&b);
    b.a->ops->act(b.a, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 },
                  on_act, &b);
    runner_scripted_spin(b.host.runner, 30000);
    cr_assert_eq(b.done, 0, "settled before the bound");
    runner_scripted_spin(b.host.runner, 5000);
    cr_assert_eq(b.done, 1);
    cr_expect_eq(b.res.command, ADAPTER_COMMAND_TIMED_OUT);
    cr_expect_eq(b.res.observed, ADAPTER_OBSERVED_NO);
    cr_expect_eq(b.res.reason, ADAPTER_REASON_UNAVAILABLE);
    cr_expect_eq(runner_scripted_count(b.host.runner, "scontrol", "requeuehold"), 1);
    teardown(&b);
}

/* Slurm stays silent to the end: unknown, not "no". */
Test(act, silence_is_unknown)
{
    struct bench b;

    setup(&b);
    expect_read(&b, "7", &(struct fake) { 0 });
    (void) adv_buf_append_str(&b.script, "> scontrol requeuehold 7\n= timeout\n"
                                         "> squeue **\n? any\n= timeout\n");
    act(&b, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 });
    cr_expect_eq(b.res.command, ADAPTER_COMMAND_TIMED_OUT);
    cr_expect_eq(b.res.observed, ADAPTER_OBSERVED_UNKNOWN);
    cr_expect_eq(b.res.reason, ADAPTER_REASON_UNAVAILABLE);
    teardown(&b);
}

Test(act, no_leave)
{
    struct bench b;

    setup(&b);
    b.deny = true;
    expect_read(&b, "7", &(struct fake) { 0 });
    act(&b, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 });
    cr_expect_eq(b.res.command, ADAPTER_COMMAND_NOT_SENT);
    cr_expect_eq(b.res.reason, ADAPTER_REASON_LEASE_LOST);
    teardown(&b);
}

static void on_listed(void *arg, struct adapter_node_list *l)
{
    (void) adapter_node_list_free(l);
}

static void busy_authorize(void *ctx, const struct adapter_write *w, adapter_authorize_cb cb, void *arg)
{
    struct bench *b = ctx;

    for (int i = 0; i < 4; i++) /* all places are taken when it is allowed */
        b->a->ops->nodes(b->a, on_listed, b);
    b->host.runner->ops->after(b->host.runner, 1, b->later, arg);
    b->asked++;
    b->cb = cb;
}

static struct bench *late;
static void allow_later(void *arg)
{
    late->cb(arg, true, 0);
}

/* A write that waited behind other commands is not carried out on what was read before. */
Test(act, waited_in_the_queue)
{
    static const struct {
        struct fake now;
        enum adapter_reason reason;
        enum adapter_command command;
    } t[] = { { { 0 }, ADAPTER_REASON_OK, ADAPTER_COMMAND_ACCEPTED },
              { ENDED("CANCELLED", "None"), ADAPTER_REASON_CANCELLED_BY_USER, ADAPTER_COMMAND_NOT_SENT } };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        setup(&b);
        late = &b;
        b.later = allow_later;
        expect_read(&b, "7", &(struct fake) { 0 });
        (void) adv_buf_append_str(&b.script, "> sinfo **\n? any\n@ 700\n< n1|idle|main*|a,b|none|\n");
        expect_read(&b, "7", &t[i].now);
        if (t[i].command == ADAPTER_COMMAND_ACCEPTED) {
            (void) adv_buf_append_str(&b.script, "> scontrol requeuehold 7\n");
            expect_read(&b, "7", &(struct fake) AFTER);
        }
        open_adapter(&b);
        b.host.authorize = busy_authorize;
        b.a->ops->act(b.a, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 },
                      on_act, &b);
        runner_scripted_spin(b.host.runner, 3600000);
        cr_expect_eq(b.done, 1);
        cr_expect_eq(b.asked, 1);
        cr_expect_eq(b.res.reason, t[i].reason, "%zu: %s", i, adapter_reason_name(b.res.reason));
        cr_expect_eq(b.res.command, t[i].command);
        cr_expect_null(runner_scripted_error(b.host.runner), "%s", runner_scripted_error(b.host.runner));
        teardown(&b);
    }
}

/* Two restarts instead of one: somebody acted in between. Accounting says what was brought back. */
Test(act, revived_in_between)
{
    static const struct {
        const char *row;
        enum adapter_tristate revived;
    } t[] = {
        { "7|1100|1100|1150|0:0|n1|CANCELLED by 1000", ADAPTER_YES },
        { "7|1100|1100|1150|0:0|n1|COMPLETED", ADAPTER_YES },
        { "7|1100|1100|1150|0:0|n1|FAILED", ADAPTER_MAYBE },
        { "7|900|900|950|0:0|n1|CANCELLED by 1000", ADAPTER_MAYBE }, /* an older job of that number */
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        setup(&b);
        expect_read(&b, "7", &(struct fake) { 0 });
        (void) adv_buf_append_str(&b.script, "> scontrol requeuehold 7\n");
        expect_read(&b, "7", &(struct fake) { .state = "PENDING", .restarts = 2, .held = true, .reason = HELD, .submit = 1300 });
        (void) adv_buf_appendf(&b.script, "> sacct **\n? any\n< %s\n", t[i].row);
        act(&b, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 });
        cr_expect_eq(b.res.observed, ADAPTER_OBSERVED_YES);
        cr_expect_eq(b.res.revived_wrongly, t[i].revived, "%s", t[i].row);
        teardown(&b);
    }
}

/* While COMPLETING text hides the end; JSON, where there is some, shows it. */
Test(act, completing)
{
    static const struct {
        const char *json, *state;
        enum adapter_reason reason;
        bool sent;
    } t[] = {
        { NULL, NULL, ADAPTER_REASON_COMPLETING_WAIT, false },
        { "", "[\"FAILED\",\"COMPLETING\"]", ADAPTER_REASON_OK, true },
        { "", "[\"CANCELLED\",\"COMPLETING\"]", ADAPTER_REASON_CANCELLED_BY_USER, false },
        { "", "[\"COMPLETED\",\"COMPLETING\"]", ADAPTER_REASON_COMPLETED, false },
        { "", "[\"PENDING\",\"COMPLETING\"]", ADAPTER_REASON_COMPLETING_WAIT, false },
        { "", "[\"COMPLETING\"]", ADAPTER_REASON_COMPLETING_WAIT, false },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        setup(&b);
        expect_read(&b, "7", &(struct fake) { .state = "COMPLETING", .reason = "None" });
        if (t[i].json)
            (void) adv_buf_appendf(&b.script,
                                   "> squeue --json=list\n! data_parser/v0.0.42\n"
                                   "> scontrol show job 7 --json=v0.0.42\n"
                                   "< {\"jobs\":[{\"job_id\":7,\"job_state\":%s,"
                                   "\"submit_time\":{\"set\":true,\"infinite\":false,\"number\":1000}}]}\n",
                                   t[i].state);
        else
            (void) adv_buf_append_str(&b.script,
                                      "> squeue --json=list\n! option '--json' doesn't allow an argument\n= 1\n");
        if (t[i].sent) {
            (void) adv_buf_append_str(&b.script, "> scontrol requeuehold 7\n");
            expect_read(&b, "7", &(struct fake) AFTER);
        }
        act(&b, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 });
        cr_expect_eq(b.res.reason, t[i].reason, "%zu: %s", i, adapter_reason_name(b.res.reason));
        cr_expect_eq(b.asked, t[i].sent);
        teardown(&b);
    }
}

/* One update with both parts, computed from a fresh read. */
Test(act, constrain)
{
    static const struct {
        const char *name;
        struct fake job; /* waits; submitted at 1200 by the requeue */
        const char *exclude[3], *before[3];
        const char *argv; /* NULL: nothing is sent */
        enum adapter_reason reason;
        const char *note;
        int becomes; /* the start that is shown then; 0: the one that was sent */
    } t[] = {
        { "held for a while", { .eligible = 1321 }, { 0 }, { 0 }, "scontrol update JobId=7 StartTime=uts1203", ADAPTER_REASON_OK,
          NULL, 1250 },
        { "held for long", { .eligible = 1321 }, { 0 }, { 0 }, "scontrol update JobId=7 StartTime=uts1203", ADAPTER_REASON_OK,
          NULL, 9999 },
        { "cannot run", { .eligible = 1203, .excluded = "n[1-2]", .reason = "BadConstraints" }, { 0 }, { "n1" },
          "scontrol update JobId=7 ExcNodeList=n2", ADAPTER_REASON_OK, NULL },
        { "plain", { .eligible = 1321 }, { "n1" }, { 0 }, "scontrol update JobId=7 ExcNodeList=n1 StartTime=uts1203",
          ADAPTER_REASON_OK, NULL },
        { "120 as well", { .eligible = 1320 }, { "n1" }, { 0 },
          "scontrol update JobId=7 ExcNodeList=n1 StartTime=uts1203", ADAPTER_REASON_OK, NULL },
        { "a begin set meanwhile", { .eligible = 5000 }, { "n1" }, { 0 }, "scontrol update JobId=7 ExcNodeList=n1",
          ADAPTER_REASON_OK, NULL },
        { "user's list kept", { .eligible = 1203, .excluded = "n2" }, { "n4" }, { 0 },
          "scontrol update JobId=7 ExcNodeList=n[2,4]", ADAPTER_REASON_OK, NULL },
        { "ours taken out", { .eligible = 1203, .excluded = "n[1-2]" }, { 0 }, { "n1" },
          "scontrol update JobId=7 ExcNodeList=n2", ADAPTER_REASON_OK, NULL },
        { "all taken out", { .eligible = 1203, .excluded = "n1" }, { 0 }, { "n1" },
          "scontrol update JobId=7 ExcNodeList=", ADAPTER_REASON_OK, NULL },
        { "unknown", { .eligible = 1203 }, { "x9", "n1" }, { 0 }, "scontrol update JobId=7 ExcNodeList=n1",
          ADAPTER_REASON_OK, "node x9 is not in the cluster: dropped" },
        { "user's left the cluster", { .eligible = 1203, .excluded = "old" }, { "n1" }, { 0 },
          "scontrol update JobId=7 ExcNodeList=n1", ADAPTER_REASON_OK, "node old is not in the cluster: dropped" },
        { "required", { .eligible = 1203, .required = "n1" }, { "n1" }, { 0 }, NULL, ADAPTER_REASON_ALREADY_SATISFIED,
          "the job asks for node n1 by name: not excluded, it would be made unrunnable" },
        { "drained and foreign ones do not count", { .eligible = 1203 }, { "n1", "n2" }, { 0 }, NULL,
          ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, "only 0 usable nodes would remain in partition main, the job needs 1" },
        { "features", { .eligible = 1203, .features = "a&b" }, { "n1" }, { 0 }, NULL,
          ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, "only 0 usable nodes would remain in partition main, the job needs 1" },
        { "either feature", { .eligible = 1203, .features = "a&b|a" }, { "n1" }, { 0 },
          "scontrol update JobId=7 ExcNodeList=n1", ADAPTER_REASON_OK, NULL },
        { "reservation", { .eligible = 1203, .reservation = "r1" }, { "n5" }, { 0 }, NULL,
          ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE,
          "only 0 usable nodes would remain in partition main, reservation r1, the job needs 1" },
        { "in the reservation", { .eligible = 1203, .reservation = "r1" }, { "n1" }, { 0 },
          "scontrol update JobId=7 ExcNodeList=n1", ADAPTER_REASON_OK, NULL },
        { "there already", { .eligible = 1203, .excluded = "n1" }, { "n1" }, { "n1" }, NULL,
          ADAPTER_REASON_ALREADY_SATISFIED, NULL },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        struct fake job = t[i].job, after;
        struct adapter_action action = { .verb = ADAPTER_VERB_CONSTRAIN, .id = "7", .expect_submit_s = 1200,
                                         .expect_restarts = 1, .exclude = t[i].exclude, .exclude_before = t[i].before };

        while (action.n_exclude < 3 && t[i].exclude[action.n_exclude])
            action.n_exclude++;
        while (action.n_exclude_before < 3 && t[i].before[action.n_exclude_before])
            action.n_exclude_before++;
        setup(&b);
        job.state = "PENDING";
        job.restarts = 1;
        job.submit = 1200;
        job.held = true;
        if (!job.reason)
            job.reason = HELD;
        (void) adv_buf_append_str(&b.script, NODES);
        expect_read(&b, "7", &job);
        if (job.reservation)
            (void) adv_buf_append_str(&b.script, "> scontrol -o show reservation r1\n"
                                                 "< ReservationName=r1 StartTime=1 Nodes=n5 NodeCnt=1 State=ACTIVE\n");
        if (t[i].argv) {
            char list[64] = "";
            const char *e = strstr(t[i].argv, "ExcNodeList="), *s = strstr(t[i].argv, "uts");
            after = job;
            if (e)
                (void) sscanf(e, "ExcNodeList=%63[^ ]", list);
            after.excluded = e ? list : job.excluded;
            after.eligible = t[i].becomes ? t[i].becomes : s ? atoi(s + 3) : job.eligible;
            (void) adv_buf_appendf(&b.script, "> scontrol update **\n");
            expect_read(&b, "7", &after);
        }
        act(&b, &action);
        cr_expect_eq(b.res.reason, t[i].reason, "%s: %s", t[i].name, adapter_reason_name(b.res.reason));
        cr_expect_str_eq(b.argv, or(t[i].argv, ""), "%s: %s", t[i].name, b.argv);
        cr_expect_str_eq(b.note, or(t[i].note, ""), "%s: %s", t[i].name, b.note);
        teardown(&b);
    }
}

/* The parent is read first, then the child, then the other jobs of its list, and after them the parent and the child once more; an
 * old read is not written on; the whole list is written, once. */
Test(act, rearm_child)
{
    static const struct {
        const char *name;
        struct fake parent, child;
        const char *before;
        const char *argv;     /* NULL: nothing is sent */
        const char *then;     /* the child's list after it */
        enum adapter_reason reason;
        const char *note;
        struct fake other;                /* job 9 */
        struct fake again, last;          /* the child after that, and after the leave was given */
        const char *after_state, *answer; /* to the write */
    } t[] = {
        { "another ended, not judged", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)" }, NULL,
          NULL, NULL, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE,
          "job 9, on which it depends, too, has ended or is not known any more", { .state = "FAILED" } },
        { "another forgotten, not judged", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)" }, NULL,
          NULL, NULL, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE,
          "job 9, on which it depends, too, has ended or is not known any more", { .gone = true } },
        { "another ended, any end will do", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterany:9(unfulfilled)" }, NULL,
          "scontrol update JobId=8 Dependency=afterok:7,afterany:9", "afterok:7(unfulfilled),afterany:9(unfulfilled)",
          ADAPTER_REASON_OK, "", { .state = "FAILED" } },
        { "failed edge", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)" }, NULL,
          "scontrol update JobId=8 Dependency=afterok:7,afterok:9", "afterok:7(unfulfilled),afterok:9(unfulfilled)",
          ADAPTER_REASON_OK, "", { .state = "RUNNING" } },
        { "dropped edge", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "Dependency", .dependency = "afterok:9(unfulfilled)" },
          "afterany:7(unfulfilled),afterok:9(unfulfilled)", NULL, NULL, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE,
          "the failure has met its dependency, or somebody has taken it out" },
        { "an array cannot be looked at", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9_*(unfulfilled)" }, NULL,
          NULL, NULL, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE,
          "whether 9_*, on which it depends, too, has failed cannot be told from outside", { .array = true } },
        { "an array, any end will do", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterany:9_*(unfulfilled)" }, NULL,
          "scontrol update JobId=8 Dependency=afterok:7,afterany:9_*", "afterok:7(unfulfilled),afterany:9_*(unfulfilled)",
          ADAPTER_REASON_OK, "", { .array = true } },
        { "changed while another was looked at", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)" }, NULL,
          NULL, NULL, ADAPTER_REASON_CONFLICT_USER_ACTION, "it was changed while it was looked at", { .state = "RUNNING" },
          .again = { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed)" } },
        { "slow", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)" }, NULL,
          "scontrol update JobId=8 Dependency=afterok:7,afterok:9", "afterok:7(unfulfilled),afterok:9(unfulfilled)",
          ADAPTER_REASON_OK, "", { .state = "RUNNING", .slow_ms = 5000 }, .again = { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)", .slow_ms = 600 },
          .last = { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)" } },
        { "slow, and opted out meanwhile", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)" }, NULL,
          "scontrol update JobId=8 Dependency=afterok:7,afterok:9", NULL,
          ADAPTER_REASON_CONFLICT_USER_ACTION, "", { .state = "RUNNING" }, .again = { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)", .slow_ms = 600 },
          .last = { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(unfulfilled)", .comment = "off" } },
        { "slow, and another list meanwhile", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed)", .slow_ms = 600 }, NULL,
          "scontrol update JobId=8 Dependency=afterok:7", NULL,
          ADAPTER_REASON_CONFLICT_USER_ACTION, "", .last = { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:5(unfulfilled)" } },
        { "started by the write", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed)" }, NULL, "scontrol update JobId=8 Dependency=afterok:7", "",
          ADAPTER_REASON_WRONG_STATE, "it was started when its dependencies were written", .after_state = "RUNNING" },
        { "refused", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed)" }, NULL, "scontrol update JobId=8 Dependency=afterok:7", "afterok:7(failed)",
          ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, "", .answer = "! slurm_update error: Job dependency problem\n= 1\n" },
        { "waits in vain no more", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "Dependency", .dependency = "afterok:7(unfulfilled)" }, NULL, NULL, NULL,
          ADAPTER_REASON_ALREADY_SATISFIED, "" },
        { "parent still failed", { .state = "FAILED" }, { 0 }, NULL, NULL, NULL, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE,
          "the job that it depends on does not wait" },
        { "parent restarted by others", { .state = "PENDING", .restarts = 2 }, { 0 }, NULL, NULL, NULL,
          ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, "the job that it depends on does not wait" },
        { "parent forgotten", { .gone = true }, { 0 }, NULL, NULL, NULL, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE,
          "the job that it depends on does not wait" },
        { "child held by a person", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .held = true, .reason = "JobHeldUser", .dependency = "afterok:7(failed)" }, NULL, NULL, NULL,
          ADAPTER_REASON_CONFLICT_USER_ACTION, "guard child_held: job is PENDING, attempt 0" },
        { "child cancelled with it", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "CANCELLED", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed)" }, NULL, NULL, NULL,
          ADAPTER_REASON_CANCELLED_BY_USER, "guard state: job is CANCELLED, attempt 0" },
        { "child started", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD }, { .state = "RUNNING" }, NULL, NULL,
          NULL, ADAPTER_REASON_WRONG_STATE, "guard state: job is RUNNING, attempt 0" },
        { "another failed, too", { .state = "PENDING", .restarts = 1, .held = true, .reason = HELD },
          { .state = "PENDING", .reason = "DependencyNeverSatisfied", .dependency = "afterok:7(failed),afterok:9(failed)" }, NULL, NULL,
          NULL, ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE, "another job that it depends on has failed, too" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        struct fake after = t[i].child;
        struct adapter_action action = { .verb = ADAPTER_VERB_REARM_CHILD, .id = "8", .expect_submit_s = 1000, .parent = "7",
                                         .parent_restarts = 1, .dependency_before = t[i].before };
        setup(&b);
        expect_read(&b, "7", &t[i].parent);
        if (t[i].child.state)
            expect_read(&b, "8", &t[i].child);
        if (t[i].other.state || t[i].other.gone)
            expect_read(&b, "9", &t[i].other);
        if (t[i].other.state || t[i].other.array) {
            bool seen = t[i].argv || t[i].again.state;
            if (t[i].other.array)
                expect_read(&b, "9", &t[i].other);
            if (seen) {
                expect_read(&b, "7", &t[i].parent);
                expect_read(&b, "8", t[i].again.state ? &t[i].again : &t[i].child);
            }
        }
        if (t[i].last.state)
            expect_read(&b, "8", &t[i].last);
        if (t[i].then) {
            (void) adv_buf_appendf(&b.script, "> scontrol update **\n%s", or(t[i].answer, ""));
            after.dependency = *t[i].then ? t[i].then : NULL;
            after.state = or(t[i].after_state, after.state);
            after.slow_ms = 0;
            expect_read(&b, "8", &after);
        }
        act(&b, &action);
        cr_expect_eq(b.res.reason, t[i].reason, "%s: %s", t[i].name, adapter_reason_name(b.res.reason));
        cr_expect_str_eq(b.argv, or(t[i].argv, ""), "%s: %s", t[i].name, b.argv);
        cr_expect_str_eq(b.note, t[i].note, "%s: %s", t[i].name, b.note);
        cr_expect_eq(b.res.revived_wrongly == ADAPTER_YES, 0);
        teardown(&b);
    }
}

static void on_observe(void *arg, struct adapter_observation *o)
{
    struct bench *b = arg;

    b->done++;
    (void) snprintf(b->note, sizeof(b->note), "%s %zu", o->complete ? "complete" : o->unknown_reason, o->n_jobs);
    (void) adapter_observation_free(o);
}

#define CONFIG(private) "> scontrol show config\n< ClusterName = c\n< PrivateData = " private "\n"
#define ASSOC(level)                                                                                          \
    "> scontrol -o show assoc_mgr flags=users users=agent\n< UserName=agent(1) DefAccount=a AdminLevel=" level "\n"
#define ROW(id) "< " id "|" id "|N/A|N/A|N/A|RUNNING|0|1|1|0|1|1|1|N/A|1|n1|u|1|a|main|q|1|(null)|None|\n"
#define LIST    "> squeue -h -r -a -t all -O *\n"
#define PING    "> scontrol ping\n"

Test(act, observe)
{
    static const struct {
        const char *name, *script, *want;
    } t[] = {
        { "one list is enough", CONFIG("none") LIST ROW("7"), "complete 1" },
        { "empty needs proof", CONFIG("none") LIST PING CONFIG("none") LIST CONFIG("none") PING, "complete 0" },
        { "empty, no ping", CONFIG("none") LIST PING "= 1\n", "unavailable 0" },
        { "empty, then no ping", CONFIG("none") LIST PING CONFIG("none") LIST CONFIG("none") PING "= 1\n", "unavailable 0" },
        { "not empty on the second look", CONFIG("none") LIST PING CONFIG("none") LIST ROW("7") CONFIG("none") PING,
          "complete 1" },
        { "private, seen", CONFIG("jobs") ASSOC("Operator") LIST ROW("7") CONFIG("jobs") ASSOC("Operator"), "complete 1" },
        { "private, not seen", CONFIG("jobs") ASSOC("None"), "partial_sight 0" },
        { "private, lost meanwhile", CONFIG("jobs") ASSOC("Operator") LIST ROW("7") CONFIG("jobs") ASSOC("None"),
          "partial_sight 1" },
        { "private, not told", CONFIG("jobs") "> scontrol -o show assoc_mgr **\n< User Records\n", "partial_sight 0" },
        { "no contact", CONFIG("none") LIST "! slurm_load_jobs error: Unable to contact slurm controller\n= 1\n",
          "unavailable 0" },
        { "no config", "> scontrol show config\n= 1\n", "unavailable 0" },
        { "a refused field", CONFIG("none") LIST ROW("7") "! squeue: error: Invalid job format specification: X\n",
          "unavailable 0" },
        { "cut off", CONFIG("none") LIST ROW("7") "<~ 8|8|N/A\n", "malformed 1" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        struct bench b;
        setup(&b);
        (void) adv_buf_append_str(&b.script, t[i].script);
        open_adapter(&b);
        b.a->ops->observe(b.a, on_observe, &b);
        runner_scripted_spin(b.host.runner, 100000);
        cr_expect_eq(b.done, 1);
        cr_expect_str_eq(b.note, t[i].want, "%s: %s", t[i].name, b.note);
        cr_expect_null(runner_scripted_error(b.host.runner), "%s: %s", t[i].name, runner_scripted_error(b.host.runner));
        teardown(&b);
    }
}

/* Freed in the middle: each callback still comes, once. */
Test(act, free_while_busy)
{
    struct bench b;

    setup(&b);
    expect_read(&b, "7", &(struct fake) { 0 });
    open_adapter(&b);
    b.a->ops->act(b.a, &(struct adapter_action) { .verb = ADAPTER_VERB_PRESERVE, .id = "7", .expect_submit_s = 1000 },
                  on_act, &b);
    b.a->ops->observe(b.a, on_observe, &b);
    runner_scripted_spin(b.host.runner, 0);
    teardown(&b);
    cr_assert_eq(b.done, 2);
}

struct past {
    struct adapter_end ends[8];
    char nodes[8][32], state[8][32];
    size_t n;
    bool error;
    int done;
};

static void on_history(void *arg, const struct adapter_end *ends, size_t n, const struct adv_err *err)
{
    struct past *p = arg;

    p->done++;
    p->n = n;
    p->error = err != NULL;
    for (size_t i = 0; i < n; i++) {
        p->ends[i] = ends[i];
        (void) snprintf(p->nodes[i], sizeof(p->nodes[i]), "%s", or(ends[i].nodes, ""));
        (void) snprintf(p->state[i], sizeof(p->state[i]), "%s", or(ends[i].state_text, ""));
    }
}

static void history(struct bench *b, struct past *p, const struct adapter_attempt_id *ids, size_t n)
{
    open_adapter(b);
    *p = (struct past) { .n = 0 };
    b->a->ops->history(b->a, ids, n, on_history, p);
    cr_assert_eq(p->done, 0, "answered from inside the call");
    runner_scripted_spin(b->host.runner, 3600000);
    cr_assert_eq(p->done, 1);
    cr_assert_null(runner_scripted_error(b->host.runner), "%s", runner_scripted_error(b->host.runner));
}

#define ACCT_CONFIG "> scontrol show config\n< ClusterName = c\n< PrivateData = none\n< AccountingStorageType = accounting_storage/%s\n"

/* An end is told only of the attempt that was asked about, and only once its row is whole. */
Test(history, what_accounting_says)
{
    static const struct adapter_attempt_id ids[] = { { "7", 1000 }, { "46_5", 1100 }, { "46_6", 1100 }, { "9+1", 1200 },
                                                     { "10", 1300 }, { "11", 1400 }, { "12", 1500 }, { "7", 1001 } };
    struct bench b;
    struct past p;

    setup(&b);
    (void) adv_buf_appendf(&b.script, ACCT_CONFIG, "slurmdbd");
    (void) adv_buf_append_str(&b.script,
        "> sacct -n -X -P -D -j 7,46,9,10,11,12 -o JobID,Submit,Start,End,ExitCode,NodeList,State\n"
        "< 7|500|500|600|0:0|n9|COMPLETED\n" /* the id had another meaning then */
        "< 7|1000|1001|1060|3:0|n[1-2]|FAILED\n"
        "< 7|1001|1002|Unknown|0:0|n1|RUNNING\n"
        "< 46_5|1100|1101|1102|0:9|n3|CANCELLED by 1000\n"
        "< 46_[6-8]|1100|Unknown|1150|0:0|None assigned|CANCELLED by 0\n"
        "< 9+0|1200|1200|1210|0:0|n1|COMPLETED\n"
        "< 9+1|1200|1200|1210|0:125|n2|OUT_OF_MEMORY\n"
        "< 10|1300|1300|Unknown|0:0|n1|FAILED\n" /* half written */
        "< 11|1400|1400|1410|0:0\n"
        "< 12|1500|1500|1510|0:0|n1|ASCENDED\n");
    history(&b, &p, ids, ADV_ARRAY_LEN(ids));
    cr_assert_eq(p.n, ADV_ARRAY_LEN(ids));
    cr_expect(!p.error);
    cr_expect_eq(p.ends[0].found, ADAPTER_PAST_ENDED);
    cr_expect_eq(p.ends[0].state, ADAPTER_JOB_FAILED);
    cr_expect(p.ends[0].exit.known && p.ends[0].exit.code == 3 && p.ends[0].exit.signal == 0);
    cr_expect(p.ends[0].start_s == 1001 && p.ends[0].end_s == 1060);
    cr_expect_str_eq(p.nodes[0], "n[1-2]");
    cr_expect_eq(p.ends[1].state, ADAPTER_JOB_CANCELLED);
    cr_expect_str_eq(p.state[1], "CANCELLED by 1000");
    cr_expect_eq(p.ends[1].exit.signal, 9);
    cr_expect_eq(p.ends[2].found, ADAPTER_PAST_ENDED);
    cr_expect_str_eq(p.nodes[2], "");
    cr_expect_eq(p.ends[3].state, ADAPTER_JOB_OUT_OF_MEMORY);
    cr_expect_eq(p.ends[4].found, ADAPTER_PAST_UNKNOWN);
    cr_expect_eq(p.ends[5].found, ADAPTER_PAST_NONE);
    cr_expect_eq(p.ends[6].found, ADAPTER_PAST_UNKNOWN, "a state of the future is no end");
    cr_expect_eq(p.ends[7].found, ADAPTER_PAST_UNKNOWN);
    teardown(&b);
}

Test(history, no_answer_is_no_end)
{
    static const char *const answers[] = { "! sacct: error: Connection refused\n= 1\n", "= timeout\n", "= lost\n" };
    static const struct adapter_attempt_id id = { "7", 1000 };
    struct bench b;
    struct past p;

    for (size_t i = 0; i < ADV_ARRAY_LEN(answers); i++) {
        setup(&b);
        (void) adv_buf_appendf(&b.script, ACCT_CONFIG "> sacct **\n%s", "slurmdbd", answers[i]);
        history(&b, &p, &id, 1);
        cr_expect(p.error && p.n == 1 && p.ends[0].found == ADAPTER_PAST_UNKNOWN, "%s", answers[i]);
        teardown(&b);
    }
    setup(&b);
    (void) adv_buf_appendf(&b.script, ACCT_CONFIG, "none");
    history(&b, &p, &id, 1);
    cr_expect(p.error && p.ends[0].found == ADAPTER_PAST_UNKNOWN);
    teardown(&b);
}

/* Slow, missing and fast answers, and what they make of the pace. */
Test(strain, pace)
{
    struct slurm_strain s = { 0 };
    int64_t sec = 1000000, now = 100 * sec;

    cr_expect_eq(slurm_strain_pace(&s), 1);
    slurm_strain_note(&s, now, sec / 100, true);
    cr_expect_eq(slurm_strain_pace(&s), 1);
    slurm_strain_note(&s, now, 3 * sec, true);
    slurm_strain_note(&s, now + sec, 3 * sec, true); /* begun before that was known */
    cr_expect_eq(slurm_strain_pace(&s), 1, "one slow answer proves nothing");
    slurm_strain_note(&s, now += 4 * sec, 3 * sec, false);
    cr_expect_eq(slurm_strain_pace(&s), 2);
    for (int i = 0; i < 10; i++)
        slurm_strain_note(&s, now += 10 * sec, 5 * sec, false);
    cr_expect_eq(slurm_strain_pace(&s), 8, "bounded");
    slurm_strain_note(&s, now += 10 * sec, sec / 100, true);
    cr_expect_eq(slurm_strain_pace(&s), 8, "one fast answer proves nothing");
    slurm_strain_note(&s, now += 10 * sec, sec / 2, true);
    slurm_strain_note(&s, now += 10 * sec, sec / 100, true);
    cr_expect_eq(slurm_strain_pace(&s), 8, "not so fast meanwhile");
    for (int i = 0; i < 100; i++)
        slurm_strain_note(&s, now += sec, sec / 100, true);
    cr_expect_eq(slurm_strain_pace(&s), 1);
}
