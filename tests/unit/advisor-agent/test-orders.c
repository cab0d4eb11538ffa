/* SPDX-License-Identifier: Apache-2.0 */

/* Orders against a scheduler of one job that does at once what it is told. The parts of the agent that
 * orders.c calls are here as well, so that what it says can be looked at. */

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor-agent/config.h"
#include "advisor-agent/internal.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/utf8.h"

#define D(x) advisor_v1_Disposition_DISPOSITION_##x
#define R(x) advisor_v1_DispositionReason_DISPOSITION_REASON_##x
#define NAMES_MAX 24000
#define OPTED_IN "{\"advisor\": {}}"

static struct agent a;
static struct agent_config cfg;
static char dir[64], ceiling_path[80];
static int dummy_session;

/* The scheduler */
static struct adapter_job_detail job; /* as it is */
static bool gone;
static enum adapter_reason refuse_with; /* of the next commands */
static const char *refuse_text = "";
static enum adapter_tristate revived;
static enum { NONE, INSPECT, ACT } pending;
static struct adapter_action action;
static adapter_inspect_cb inspect_cb;
static adapter_act_cb act_cb;
static void *cb_arg;
static char did[200]; /* verbs carried out, in order */
static size_t n_exclude, n_exclude_before, n_looks;
static const char *excluded = "n1";
static unsigned allowed_states;
static void (*before_write)(void);
static void (*after_write)(void);
static bool lose_answer; /* of the next command, which does nothing yet */
static bool lands;       /* or does it, and nobody hears of it */
static bool half;        /* of the job comes back with the next command */
static bool says_no;     /* to the next command, which it was sent */

/* What was told last */
static advisor_v1_AdviceStatusReport status;
static unsigned n_status, n_actions;

static int64_t later_us; /* --wrap=adv_mono_us */

int64_t __real_adv_mono_us(void);
int64_t __wrap_adv_mono_us(void);
int64_t __wrap_adv_mono_us(void)
{
    return __real_adv_mono_us() + later_us;
}

static int64_t jumped_us; /* --wrap=adv_wall_us */

int64_t __real_adv_wall_us(void);
int64_t __wrap_adv_wall_us(void);
int64_t __wrap_adv_wall_us(void)
{
    return __real_adv_wall_us() + jumped_us;
}

/* The disk */
static bool disk_full;
static unsigned n_full; /* writes that it refused */
static unsigned n_written;
static int room = -1;   /* writes until it is full; -1: it is not filled */

static ssize_t disk_write(int fd, const void *data, size_t len)
{
    disk_full = disk_full || room == 0;
    room -= room > 0;
    if (!disk_full) {
        n_written++;
        return write(fd, data, len);
    }
    n_full++;
    errno = ENOSPC;
    return -1;
}

static const struct journal_io disk = { disk_write, fdatasync };

int session_send_status(struct session *s, const advisor_v1_AdviceStatusReport *m, struct adv_err *err)
{
    status = *m;
    n_status++;
    return 0;
}

int session_send_action(struct session *s, const advisor_v1_ActionReport *m, struct adv_err *err)
{
    n_actions++;
    return 0;
}

advisor_v1_Epoch agent_epoch_msg(struct journal_epoch e)
{
    return (advisor_v1_Epoch) { e.term, e.counter };
}

advisor_v1_Verb agent_verb_msg(enum adapter_verb v)
{
    return advisor_v1_Verb_VERB_UNSPECIFIED;
}

void agent_look_at_ceiling(struct agent *x)
{
    (void) ceiling_refresh(x->ceiling);
}

void agent_job_read(struct agent *x, const struct adapter_job_detail *d)
{
    n_looks++;
}

void agent_job_gone(struct agent *x, const char *id)
{
}

static void fake_inspect(struct adapter *x, const char *id, adapter_inspect_cb cb, void *arg)
{
    cr_assert_eq(pending, NONE);
    pending = INSPECT;
    inspect_cb = cb;
    cb_arg = arg;
}

/* Lists are the caller's until the call returns. */
static const char *const *keep_names(const char *const *names, size_t n, int which)
{
    static char text[2][NAMES_MAX][16];
    static const char *kept[2][NAMES_MAX];

    cr_assert_leq(n, NAMES_MAX);
    for (size_t i = 0; i < n; i++) {
        (void) snprintf(text[which][i], sizeof(text[which][i]), "%s", names[i]);
        kept[which][i] = text[which][i];
    }
    return kept[which];
}

static void fake_act(struct adapter *x, const struct adapter_action *in, adapter_act_cb cb, void *arg)
{
    cr_assert_eq(pending, NONE);
    pending = ACT;
    action = *in;
    action.exclude = keep_names(in->exclude, in->n_exclude, 0);
    action.exclude_before = keep_names(in->exclude_before, in->n_exclude_before, 1);
    n_exclude = in->n_exclude;
    n_exclude_before = in->n_exclude_before;
    allowed_states = in->allowed_states;
    act_cb = cb;
    cb_arg = arg;
}

static bool fake_depends(const char *dependency, const char *parent, const char *child)
{
    return strstr(dependency, parent) != NULL;
}

static const struct adapter_ops fake_ops = { .name = "fake", .inspect = fake_inspect, .depends = fake_depends, .act = fake_act };
static struct adapter fake = { &fake_ops };

static void on_authorized(void *arg, bool allowed, int64_t kill_at)
{
    *(bool *) arg = allowed;
}

static void carry_out(void)
{
    switch (action.verb) {
    case ADAPTER_VERB_CONSTRAIN: /* what was not ours before stays */
        job.excluded_nodes = n_exclude || (job.excluded_nodes[0] && !n_exclude_before) ? "n1" : "";
        break;
    case ADAPTER_VERB_PRESERVE:
    case ADAPTER_VERB_INTERRUPT:
        job.job.state = ADAPTER_JOB_PENDING;
        job.job.held = job.job.held_by_requeue = true;
        job.job.restart_count++;
        job.job.submit_s += 100;
        break;
    case ADAPTER_VERB_RELEASE:
        job.job.held = job.job.held_by_requeue = false;
        break;
    case ADAPTER_VERB_CANCEL:
        job.job.state = ADAPTER_JOB_CANCELLED;
        break;
    default:
        break;
    }
    (void) snprintf(did + strlen(did), sizeof(did) - strlen(did), "%s ", adapter_verb_name(action.verb));
}

static void carry_out_preserve(void)
{
    action.verb = ADAPTER_VERB_PRESERVE;
    carry_out();
}

static const char *child_comment = OPTED_IN;

static void answer_act(void)
{
    if (before_write)
        before_write();
    struct adapter_job_detail before = job;
    if (action.verb == ADAPTER_VERB_REARM_CHILD) {
        before.comment = child_comment;
        memcpy(before.job.id, action.id, strlen(action.id) + 1);
        (void) snprintf(did + strlen(did), sizeof(did) - strlen(did), "%s<%s ", action.id, action.dependency_before);
    }
    struct adapter_write w = { .action = &action, .before = &before, .landing_bound_ms = 20000, .deadline_ms = 12000 };
    struct adapter_result res = { .before = &before, .after = &job };
    bool allowed = false;

    if (refuse_with == ADAPTER_REASON_OK)
        orders_authorize(&a, &w, on_authorized, &allowed);
    if (refuse_with != ADAPTER_REASON_OK) {
        res.reason = refuse_with;
        (void) snprintf(res.err.msg, sizeof(res.err.msg), "%s", refuse_text);
        res.observed = ADAPTER_OBSERVED_NO;
        (void) snprintf(did + strlen(did), sizeof(did) - strlen(did), "(%s) ", adapter_verb_name(action.verb));
    } else if (!allowed) {
        res.reason = ADAPTER_REASON_LEASE_LOST;
        res.observed = ADAPTER_OBSERVED_NO;
    } else if (says_no) {
        says_no = false;
        res.command = ADAPTER_COMMAND_REFUSED;
        res.observed = ADAPTER_OBSERVED_NO;
        res.reason = action.verb == ADAPTER_VERB_REARM_CHILD ? ADAPTER_REASON_UNAVAILABLE : ADAPTER_REASON_NOT_REQUEUEABLE;
    } else if (lose_answer) {
        lose_answer = false;
        if (lands)
            carry_out();
        else
            (void) snprintf(did + strlen(did), sizeof(did) - strlen(did), "%s? ", adapter_verb_name(action.verb));
        res.command = ADAPTER_COMMAND_TIMED_OUT;
        res.observed = ADAPTER_OBSERVED_UNKNOWN;
        res.reason = ADAPTER_REASON_UNAVAILABLE;
    } else {
        carry_out();
        res.command = ADAPTER_COMMAND_ACCEPTED;
        res.excluded = &excluded;
        res.n_excluded = action.verb == ADAPTER_VERB_CONSTRAIN && n_exclude;
        res.observed = ADAPTER_OBSERVED_YES;
        res.revived_wrongly = action.verb == ADAPTER_VERB_PRESERVE ? revived : ADAPTER_NO;
    }
    if (half) {
        half = false;
        res.reason = ADAPTER_REASON_CANCELLED_BY_USER;
        res.revived_wrongly = ADAPTER_MAYBE;
    }
    if (after_write)
        after_write();
    act_cb(cb_arg, &res);
}

struct adapter_job_detail *adapter_job_detail_free(struct adapter_job_detail *d)
{
    free(d);
    return NULL;
}

static struct adapter_job_detail *copy(void)
{
    struct adapter_job_detail *d = malloc(sizeof(*d));

    *d = job;
    return d;
}

/* One look or one step, if any is due. False: nothing was. */
static bool turn_once(void)
{
    orders_tick(&a);
    if (pending == INSPECT) {
        pending = NONE;
        inspect_cb(cb_arg, gone ? ADAPTER_FOUND_GONE : ADAPTER_FOUND, gone ? NULL : copy(), NULL);
    } else if (pending == ACT) {
        pending = NONE;
        answer_act();
    } else {
        return false;
    }
    return true;
}

/* As if much time passed between the ticks. */
static void turn(unsigned n)
{
    while (n-- > 0) {
        orders_wake(&a, "7");
        (void) turn_once();
    }
}

static void put_ceiling(const char *text)
{
    char tmp[90];

    (void) snprintf(tmp, sizeof(tmp), "%s.new", ceiling_path);
    FILE *f = fopen(tmp, "w");
    cr_assert(f);
    (void) fputs(text, f);
    (void) fclose(f);
    cr_assert_eq(rename(tmp, ceiling_path), 0);
}

static int64_t no_submit(void *ctx, const struct adapter_job *j)
{
    return 0;
}

static void setup(void)
{
    strcpy(dir, "/tmp/orders-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void) snprintf(ceiling_path, sizeof(ceiling_path), "%s/ceiling.yaml", dir);
    put_ceiling("mode: act\n");
    cfg = (struct agent_config) { .cluster = (char *) "c", .action_deadline_ms = 90000 };
    a = (struct agent) { .cfg = &cfg, .adapter = &fake, .cluster_mode = advisor_v1_Mode_MODE_ACT,
                         .orders_known = true, .bound_ms = 20000, .good_read_us = 1, .forget_after_s = 300, .look_boot_us = adv_boot_us(),
                         .look_wall_us = adv_wall_us(),
                         .session = (struct session *) (void *) &dummy_session };
    cr_assert_eq(journal_open(dir, true, &disk, &a.journal, NULL), 0);
    cr_assert_eq(ceiling_new(ceiling_path, getuid(), &a.ceiling, NULL), 0);
    a.snapshot = snapshot_new(no_submit, NULL);
    cr_assert(a.snapshot);
    lease_grant(&a.lease, (struct journal_epoch) { 1, 1 }, 600000, adv_boot_us(), adv_boot_us(), false);
    job = (struct adapter_job_detail) { .comment = OPTED_IN, .excluded_nodes = "" };
    job.job = (struct adapter_job) { .id = "7", .state = ADAPTER_JOB_FAILED, .submit_s = 1000, .uid = 500,
                                     .end_s = 1010, .reason = "", .partition = "p", .account = "acc" };
    cr_assert_eq(agent_first_submit(&a, &job.job), 1000);
}

static void teardown(void)
{
    char cmd[100];

    orders_free(&a);
    a.journal = journal_free(a.journal);
    a.ceiling = ceiling_free(a.ceiling);
    a.snapshot = snapshot_free(a.snapshot);
    (void) snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    cr_assert_eq(system(cmd), 0);
}

TestSuite(orders, .init = setup, .fini = teardown, .timeout = 60);

static advisor_v1_AdviceOrder order(void)
{
    advisor_v1_AdviceOrder o = { .name = "clusters/c/jobs/u/attempts/0/advice", .generation = 1, .has_attempt = true,
                                 .attempt = { .job_id = "7" }, .submit_unix = 1000, .incarnation_unix = 1000,
                                 .desired_state = advisor_v1_DesiredState_DESIRED_STATE_RESTARTED,
                                 .actionability = advisor_v1_Actionability_ACTIONABILITY_ACTIONABLE,
                                 .exclude_nodes = "n1", .valid_for_ms = 600000, .correlation_id = "t" };
    return o;
}

static void give(void)
{
    advisor_v1_AdviceOrder o = order();

    orders_take(&a, &o);
}

#define expect_status(d, r) \
    cr_assert(status.disposition == (d) && status.reason == (r), "%d %d %s", status.disposition, status.reason, status.detail)

Test(orders, whole_chain)
{
    give();
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
    cr_assert_null(journal_find_hold(a.journal, "7"));
    cr_assert_eq(n_actions, 6);
}

/* Without approval less than act is nothing, whoever says it. */
Test(orders, only_act_acts)
{
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
    give();
    turn(5);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    a.cluster_mode = advisor_v1_Mode_MODE_ACT;
    put_ceiling("mode: approve\n");
    turn(5);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    put_ceiling("mode: act\n");
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
}

static void give_approved(uint64_t generation)
{
    advisor_v1_AdviceOrder o = order();

    o.generation = 2;
    o.approved_generation = generation;
    orders_take(&a, &o);
}

/* A person's yes is enough wherever "ask first" is said: cluster, ceiling, the job's own comment. */
Test(orders, an_approved_order_is_carried_out_where_approval_is_asked_for)
{
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
    put_ceiling("mode: approve\n");
    job.comment = "{\"advisor\": {\"mode\": \"approve\"}}";
    give_approved(2);
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

Test(orders, approval_of_another_generation_is_none)
{
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
    give_approved(1);
    turn(5);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    give_approved(3);
    turn(5);
    cr_assert_str_eq(did, "");
    a.cluster_mode = advisor_v1_Mode_MODE_ACT;
    job.comment = "{\"advisor\": {\"mode\": \"approve\"}}"; /* the job wants to be asked about, too */
    turn(5);
    cr_assert_str_eq(did, "");
    expect_status(D(ABANDONED), R(OPTED_OUT));
}

Test(orders, approval_never_goes_beyond_mode_ceiling_or_comment)
{
    a.cluster_mode = advisor_v1_Mode_MODE_OBSERVE;
    give_approved(2);
    turn(5);
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    a.cluster_mode = advisor_v1_Mode_MODE_ACT;
    put_ceiling("mode: observe\n");
    turn(5);
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    put_ceiling("mode: approve\nverbs: [constrain, release]\n");
    turn(5);
    cr_assert_str_eq(did, "");
    expect_status(D(ABANDONED), R(NOT_AUTHORIZED_BY_CLUSTER));
}

Test(orders, approval_is_not_the_jobs_consent)
{
    job.comment = "{\"advisor\": {\"mode\": \"observe\"}}";
    give_approved(2);
    turn(5);
    cr_assert_str_eq(did, "");
    expect_status(D(ABANDONED), R(OPTED_OUT));
}

static void take_the_approval_back(void)
{
    advisor_v1_AdviceOrder o = order();

    o.generation = 2;
    o.actionability = advisor_v1_Actionability_ACTIONABILITY_SHADOW;
    orders_take(&a, &o);
}

Test(orders, a_rejection_stops_the_write_at_once)
{
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
    give_approved(2);
    turn(1);
    before_write = take_the_approval_back;
    turn(3);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(MODE_TOO_LOW));
}

static void turn_it_into_nothing(void)
{
    advisor_v1_AdviceOrder o = order();

    o.generation = 2;
    o.desired_state = advisor_v1_DesiredState_DESIRED_STATE_NO_ACTION;
    orders_take(&a, &o);
}

/* The write is stopped because the order has changed; that is no answer to the changed one. */
Test(orders, a_step_of_an_old_generation_says_nothing_of_the_new)
{
    give();
    turn(1);
    before_write = turn_it_into_nothing;
    turn(1);
    cr_assert_str_eq(did, "");
    cr_assert_eq(n_status, 0, "%s", status.detail);
    turn(1);
    expect_status(D(CONVERGED), R(ALREADY_SATISFIED));
    cr_assert_eq(status.observed_generation, 2);
}

static void lower_the_ceiling(void)
{
    put_ceiling("mode: approve\n");
}

static void lower_the_mode(void)
{
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
}

/* Between the look and the write. */
Test(orders, a_lowered_ceiling_or_mode_stops_the_write_at_once)
{
    give();
    turn(1);
    before_write = lower_the_ceiling;
    turn(3);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    put_ceiling("mode: act\n");
    before_write = lower_the_mode;
    turn(3);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(MODE_TOO_LOW));
}

static void withdraw_consent(void)
{
    job.comment = "";
}

Test(orders, a_comment_that_no_longer_asks_stops_the_write)
{
    give();
    turn(1);
    before_write = withdraw_consent;
    turn(4);
    cr_assert_str_eq(did, "");
    expect_status(D(ABANDONED), R(OPTED_OUT));
}

/* Once it is in our hold it is given back, by the very comment that says so. */
Test(orders, opting_out_of_the_hold_gives_the_job_back)
{
    give();
    turn(2);
    cr_assert_str_eq(did, "preserve ");
    job.comment = "{\"advisor\": {\"mode\": \"off\"}}";
    turn(10);
    expect_status(D(ABANDONED), R(OPTED_OUT));
    cr_assert(strstr(did, "release "), "%s", did);
    cr_assert_null(journal_find_hold(a.journal, "7"));
}

/* Giving back */

static void hold(enum journal_on_expiry how, int64_t expires_wall_us)
{
    struct journal_hold h = { .job = "7", .advice = "clusters/c/jobs/u/attempts/0/advice", .restarts = 1,
                              .first_submit_s = 1000, .expires_wall_us = expires_wall_us, .on_expiry = how };

    cr_assert_eq(journal_append_hold(a.journal, &h, NULL), 0);
    job.job.state = ADAPTER_JOB_PENDING;
    job.job.held = job.job.held_by_requeue = true;
    job.job.restart_count = 1;
    job.job.submit_s = 1100;
}

/* The user's next job has the id, and was requeued and held by its owner: as many restarts, and not ours. */
static void id_was_reused(void)
{
    struct adapter_job next = job.job;

    next.restart_count = 0;
    next.submit_s = 5000;
    cr_assert_eq(agent_first_submit(&a, &next), 5000);
    job.job.submit_s = 5100;
    cr_assert_eq(agent_first_submit(&a, &job.job), 5000);
}

static bool held_on(void)
{
    return journal_find_hold(a.journal, "7") != NULL;
}

Test(orders, a_hold_speaks_of_one_job_only)
{
    for (int i = 0; i < 4; i++) {
        hold(i % 2 ? JOURNAL_RELEASE : JOURNAL_CANCEL, 0);
        if (i < 2)
            id_was_reused();
        else
            job.job.submit_s = 9000; /* nobody knows whose it is: the one known was forgotten long before */
        give();
        turn(8);
        cr_assert_str_eq(did, "", "%s", did);
        a.cluster_mode = advisor_v1_Mode_MODE_OFF;
        turn(8);
        cr_assert_str_eq(did, "", "%s", did);
        a.cluster_mode = advisor_v1_Mode_MODE_ACT;
    }
}

/* Released by us it might be a release of what its owner holds; dropped it would wait for ever. */
Test(orders, a_hold_of_a_job_not_known_is_kept_until_it_is_none)
{
    a.cluster_mode = advisor_v1_Mode_MODE_OFF;
    for (int i = 0; i < 2; i++) {
        hold(i ? JOURNAL_CANCEL : JOURNAL_RELEASE, 0);
        job.job.submit_s = 9000;
        turn(8);
        cr_assert_str_eq(did, "");
        cr_assert(held_on());
        job.job.held_by_requeue = false; /* a person has seen to it */
        turn(2);
        cr_assert(!held_on());
    }
    hold(JOURNAL_LEAVE, 0);
    job.job.submit_s = 9000;
    turn(2);
    cr_assert(!held_on(), "nothing would be done anyway");
}

/* As an older version wrote it; @submit_s: of the attempt that was requeued, 0: there is no such step. */
static void old_hold(int64_t submit_s)
{
    struct journal_intent in = { .job = "7", .advice = "clusters/c/jobs/u/attempts/0/advice", .verb = "preserve",
                                 .submit_s = submit_s };
    struct journal_outcome out = { "accepted", "yes", "ok", NULL };
    struct journal_hold h;
    uint64_t seq;

    hold(JOURNAL_RELEASE, 0);
    h = *journal_find_hold(a.journal, "7");
    h.first_submit_s = 0;
    cr_assert_eq(journal_append_hold(a.journal, &h, NULL), 0);
    if (!submit_s)
        return;
    cr_assert_eq(journal_append_intent(a.journal, &in, adv_wall_us(), &seq, NULL), 0);
    cr_assert_eq(journal_append_outcome(a.journal, seq, &out, NULL), 0);
}

Test(orders, a_hold_of_an_older_version_is_given_back_by_what_its_step_says)
{
    a.cluster_mode = advisor_v1_Mode_MODE_OFF;
    old_hold(1000);
    turn(8);
    cr_assert_str_eq(did, "constrain release ", "%s", did);
    cr_assert(!held_on());
}

Test(orders, a_hold_of_an_older_version_that_nothing_speaks_for_is_left_alone)
{
    a.cluster_mode = advisor_v1_Mode_MODE_OFF;
    old_hold(0);
    turn(8);
    cr_assert_str_eq(did, "");
    cr_assert(held_on());
    old_hold(1000);
    id_was_reused();
    turn(8);
    cr_assert_str_eq(did, "");
    cr_assert(!held_on(), "the id means another job now");
}

Test(orders, a_hold_nobody_wants_is_given_back_in_any_mode)
{
    a.cluster_mode = advisor_v1_Mode_MODE_OFF;
    put_ceiling("mode: off\n");
    hold(JOURNAL_RELEASE, 0);
    turn(8);
    cr_assert_str_eq(did, "constrain release ", "%s", did);
    cr_assert_eq(n_exclude, 0);
    cr_assert(!held_on());
}

/* The early start is the site's to forbid; the way back is not. */
Test(orders, no_early_start_where_constrain_is_not_allowed)
{
    put_ceiling("mode: act\nverbs: [preserve, release]\n");
    hold(JOURNAL_RELEASE, 0);
    turn(8);
    cr_assert_str_eq(did, "release ");
    (void) unlink(ceiling_path);
    did[0] = '\0';
    hold(JOURNAL_RELEASE, 0);
    turn(8);
    cr_assert_str_eq(did, "release ");
}

/* ---- what the records of holds say, and the watchdog ---- */

static const struct journal_hold *record(void)
{
    a.session_up_us = adv_mono_us();
    a.next_holds_us = 0;
    orders_tick(&a); /* a look that it begins is not answered */
    return journal_find_hold(a.journal, "7");
}

/* Held for an order in force, its requeue done. */
static void held_in_force(unsigned valid_ms)
{
    advisor_v1_AdviceOrder o = order();

    o.valid_for_ms = valid_ms;
    hold(JOURNAL_RELEASE, agent_wall_us(&a) + 2 * 3600000000ll);
    orders_take(&a, &o);
}

Test(orders, a_holds_record_is_kept_true)
{
    advisor_v1_AdviceOrder o = order();
    const struct journal_hold *h;

    held_in_force(600000);
    h = record();
    cr_assert(h && h->want == JOURNAL_WANTED && h->mode == JOURNAL_MODE_ACT);
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE; /* and nobody has approved it */
    h = record();
    cr_assert(h->want == JOURNAL_AWAITING && h->mode == JOURNAL_MODE_APPROVE);
    o.generation = 2;
    o.actionability = advisor_v1_Actionability_ACTIONABILITY_NEEDS_APPROVAL;
    a.cluster_mode = advisor_v1_Mode_MODE_ACT;
    orders_take(&a, &o);
    h = record();
    cr_assert(h->want == JOURNAL_AWAITING && h->mode == JOURNAL_MODE_ACT);
    int64_t expires = h->expires_wall_us;
    cr_assert_eq(record()->expires_wall_us, expires, "there is time enough left");
    o.actionability = advisor_v1_Actionability_ACTIONABILITY_SHADOW;
    orders_take(&a, &o);
    h = record();
    cr_assert_eq(h->want, JOURNAL_OVER);
}

Test(orders, a_hold_in_force_is_renewed)
{
    struct journal_hold soon;

    held_in_force(4 * 3600 * 1000);
    soon = *journal_find_hold(a.journal, "7");
    soon.expires_wall_us = agent_wall_us(&a) + 60000000;
    cr_assert_eq(journal_append_hold(a.journal, &soon, NULL), 0);
    cr_assert_gt(record()->expires_wall_us, agent_wall_us(&a) + 3 * 3600000000ll);
}

Test(orders, who_stands_by_says_that_a_hold_is_anothers)
{
    held_in_force(600000);
    lease_drop(&a.lease);
    a.standing_by = true;
    cr_assert_eq(record()->want, JOURNAL_ELSEWHERE);
    a.standing_by = false;
    lease_grant(&a.lease, (struct journal_epoch) { 1, 2 }, 600000, adv_boot_us(), adv_boot_us(), false);
    cr_assert_neq(record()->want, JOURNAL_ELSEWHERE);
}

/* The control plane does not answer any more, and nobody else has said anything: the watchdog would keep the job for ever. */
Test(orders, a_lease_that_ran_out_is_not_anothers)
{
    held_in_force(600000);
    cr_assert_eq(record()->want, JOURNAL_WANTED);
    lease_drop(&a.lease);
    cr_assert_eq(record()->want, JOURNAL_WANTED);
}

/* The host booted two hours slow, and its clock was set after the agent had begun: the agent goes on by its own. A watchdog
 * that begins then sees the right time. */
Test(orders, a_hold_is_not_born_expired_after_a_jump)
{
    struct steady its = { 0 };
    int64_t now;

    (void) agent_wall_us(&a);
    jumped_us = 2 * 3600000000ll;
    give();
    turn(2);
    cr_assert_str_eq(did, "preserve ");
    now = steady_wall_us(&its, adv_wall_us(), adv_boot_us());
    cr_assert_gt(journal_find_hold(a.journal, "7")->expires_wall_us, now + 3500000000ll);
    cr_assert_gt(record()->expires_wall_us, now + 3500000000ll);
}

Test(orders, a_hold_that_a_jump_has_brought_near_its_end_is_renewed)
{
    struct steady its = { 0 };

    held_in_force(600000); /* until in two hours */
    (void) agent_wall_us(&a);
    jumped_us = 2 * 3600000000ll - 60000000;
    cr_assert_gt(record()->expires_wall_us, steady_wall_us(&its, adv_wall_us(), adv_boot_us()) + 3500000000ll);
    jumped_us = 0; /* back */
    cr_assert_gt(record()->expires_wall_us, adv_wall_us() + 3500000000ll);
}

/* Each is a sync. */
Test(orders, many_holds_are_written_anew_a_few_at_a_time)
{
    struct journal_hold h = { .advice = "clusters/c/jobs/v/attempts/0/advice", .restarts = 1, .first_submit_s = 1000 };
    unsigned before, looks = 0;
    size_t pos = 0, n = 0;

    for (int i = 0; i < 50; i++) {
        (void) snprintf(h.job, sizeof(h.job), "%d", 100 + i);
        cr_assert_eq(journal_append_hold(a.journal, &h, NULL), 0);
    }
    lease_drop(&a.lease);
    a.standing_by = a.holds_swept = true;
    do {
        before = n_written;
        (void) record();
        cr_assert_leq(n_written - before, 20);
        looks++;
    } while (n_written != before);
    cr_assert_eq(looks, 4, "%u", looks);
    for (const struct journal_hold *x; (x = journal_next_hold(a.journal, &pos)); n++)
        cr_assert_eq(x->want, JOURNAL_ELSEWHERE);
    cr_assert_eq(n, 50);
}

/* The watchdog's journal; @observed NULL: its step is open. */
static void watchdog_did(const char *observed)
{
    struct journal_intent in = { .advice = "clusters/c/jobs/u/attempts/0/advice", .job = "7", .verb = "release" };
    struct journal_outcome out = { .command = "accepted", .reason = "ok" };
    struct journal *its = NULL;
    char path[80];
    uint64_t seq = 0;

    (void) snprintf(path, sizeof(path), "%s/watchdog", dir);
    cr_assert_eq(journal_open(path, true, NULL, &its, NULL), 0);
    if (!a.watchdog)
        cr_assert_eq(journal_view_new(path, JOURNAL_VIEW_STEPS, &a.watchdog, NULL), 0);
    size_t pos = 0;
    const struct journal_step *s = journal_next_open(its, &pos);
    if (!s)
        cr_assert_eq(journal_append_intent(its, &in, 1, &seq, NULL), 0);
    else
        seq = s->seq;
    if (observed) {
        (void) snprintf(out.observed, sizeof(out.observed), "%s", observed);
        cr_assert_eq(journal_append_outcome(its, seq, &out, NULL), 0);
    }
    (void) journal_free(its);
    a.next_watchdog_us = 0;
}

Test(orders, what_the_watchdog_has_ended_has_ended)
{
    held_in_force(600000);
    watchdog_did("no"); /* it has tried in vain */
    orders_tick(&a);
    cr_assert_not_null(journal_find_hold(a.journal, "7"));
    watchdog_did("yes");
    orders_tick(&a);
    cr_assert_null(journal_find_hold(a.journal, "7"));
    a.watchdog = journal_view_free(a.watchdog);
}

Test(orders, while_the_watchdog_is_at_it_nothing_is_written)
{
    hold(JOURNAL_RELEASE, 0); /* nobody wants it */
    watchdog_did(NULL);
    turn(10);
    cr_assert_str_eq(did, "", "it may still land");
    cr_assert(orders_watchdog_at_work(&a));
    cr_assert(!lease_settled(&a.lease, adv_boot_us()), "nor is another job written to");
    watchdog_did("yes");
    turn(10);
    cr_assert_str_eq(did, "");
    cr_assert_null(journal_find_hold(a.journal, "7"));
    a.watchdog = journal_view_free(a.watchdog);
}

static void last_moment(void)
{
    watchdog_did(NULL);
}

Test(orders, the_watchdog_begins_in_the_last_moment)
{
    hold(JOURNAL_RELEASE, 0);
    watchdog_did("no");
    (void) turn_once(); /* looked */
    before_write = last_moment;
    turn(10);
    cr_assert_str_eq(did, "", "%s", did);
    before_write = NULL;
    a.watchdog = journal_view_free(a.watchdog);
}

Test(orders, a_persons_hold_is_left_alone)
{
    hold(JOURNAL_RELEASE, 0);
    job.job.held_by_requeue = false;
    turn(4);
    cr_assert_str_eq(did, "");
    cr_assert(!held_on());
}

Test(orders, a_refusal_that_is_final_ends_the_hold)
{
    static const enum adapter_reason t[] = { ADAPTER_REASON_CONFLICT_USER_ACTION, ADAPTER_REASON_ATTEMPT_SUPERSEDED,
                                             ADAPTER_REASON_ID_REUSED, ADAPTER_REASON_GONE };

    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        did[0] = '\0';
        refuse_with = t[i];
        hold(JOURNAL_RELEASE, 0);
        turn(8);
        cr_assert_str_eq(did, "(constrain) (release) ", "%zu: %s", i, did);
        cr_assert(!held_on());
    }
}

Test(orders, a_refusal_that_may_pass_is_not_hammered)
{
    refuse_with = ADAPTER_REASON_FORBIDDEN;
    hold(JOURNAL_RELEASE, 0);
    for (int i = 0; i < 50; i++)
        (void) turn_once();
    cr_assert_str_eq(did, "(constrain) (release) ", "%s", did);
    cr_assert(held_on());
    refuse_with = ADAPTER_REASON_OK;
    turn(4);
    cr_assert(!held_on() && strstr(did, " release "), "%s", did);
}

Test(orders, a_hold_is_kept_until_all_orders_are_known)
{
    a.orders_known = false;
    a.session_up_us = adv_mono_us();
    hold(JOURNAL_RELEASE, 0);
    turn(4);
    cr_assert_str_eq(did, "");
    /* Not for ever, once it has expired. */
    hold(JOURNAL_RELEASE, 1);
    turn(4);
    cr_assert_str_eq(did, "");
    a.session_up_us -= 301000000;
    turn(8);
    cr_assert_str_eq(did, "constrain release ");
}

/* After a restart under another clock the record of a hold says that it expired long ago. Its order knows better. */
Test(orders, an_order_in_force_keeps_its_hold_whatever_the_clock_says)
{
    a.orders_known = true;
    give();
    turn(2);
    cr_assert_str_eq(did, "preserve ");
    hold(JOURNAL_RELEASE, 1);
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE; /* so that it waits */
    turn(10);
    cr_assert_str_eq(did, "preserve ");
    cr_assert(held_on());
    a.cluster_mode = advisor_v1_Mode_MODE_ACT;
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
}

Test(orders, giving_back_goes_on_in_the_next_session)
{
    hold(JOURNAL_RELEASE, 0);
    turn(1); /* looked, about to constrain */
    a.orders_known = false;
    orders_session_lost(&a);
    turn(6);
    cr_assert_str_eq(did, "");
    a.orders_known = true;
    turn(8);
    cr_assert_str_eq(did, "constrain release ");
}

static void want_it_again(void)
{
    give();
}

Test(orders, an_order_that_comes_back_stops_the_way_back)
{
    hold(JOURNAL_RELEASE, 0);
    turn(1);
    before_write = want_it_again;
    turn(1);
    cr_assert_str_eq(did, "");
    before_write = NULL;
    cr_assert(held_on());
}

/* Awaiting approval is no reason to let a job go; a mode below that is. */
Test(orders, a_lowered_mode)
{
    give();
    turn(2);
    cr_assert_str_eq(did, "preserve ");
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
    turn(10);
    cr_assert_str_eq(did, "preserve ");
    cr_assert(held_on());
    a.cluster_mode = advisor_v1_Mode_MODE_ACT;
    put_ceiling("mode: approve\n");
    turn(10);
    cr_assert_str_eq(did, "preserve ");
    (void) unlink(ceiling_path); /* says nothing */
    turn(10);
    cr_assert_str_eq(did, "preserve ");
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    put_ceiling("mode: observe\n");
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
    cr_assert(!held_on());
}

/* Between the command and its outcome a person's cancel was undone. It is cancelled whatever it takes. */
Test(orders, what_was_revived_wrongly_is_cancelled_again)
{
    revived = ADAPTER_YES;
    give();
    turn(2);
    cr_assert_str_eq(did, "preserve ");
    refuse_with = ADAPTER_REASON_UNAVAILABLE;
    for (int i = 0; i < 50; i++)
        (void) turn_once();
    cr_assert_str_eq(did, "preserve (cancel) ", "%s", did);
    cr_assert_eq(journal_find_hold(a.journal, "7")->on_expiry, JOURNAL_CANCEL);
    /* The agent may die here. */
    orders_free(&a);
    refuse_with = ADAPTER_REASON_OK;
    give();
    turn(6);
    cr_assert_str_eq(did, "preserve (cancel) cancel ", "%s", did);
    expect_status(D(ABANDONED), R(CONFLICTING_USER_ACTION));
    cr_assert(!held_on());
}

/* Jobs as two lists show them: until the failure, and after it. The agent's clock and the scheduler's are one here. */
static void children_seen(size_t n)
{
    struct adapter_job kids[40];

    cr_assert_leq(n, 40);
    for (int round = 0; round < 2; round++) {
        struct adapter_observation o = { .complete = true, .jobs = kids, .n_jobs = n, .read_wall_us = (1000 + 20 * round) * 1000000ll };
        for (size_t i = 0; i < n; i++) {
            kids[i] = (struct adapter_job) { .state = ADAPTER_JOB_PENDING, .submit_s = 900, .array_task = -1,
                                             .dependency = round ? "ok:9" : "any:7,ok:9" };
            (void) snprintf(kids[i].id, sizeof(kids[i].id), "%zu", 80 + i);
        }
        kids[n - 1].dependency = round ? "(failed)ok:7" : "ok:7";
        cr_assert_eq(snapshot_observe(a.snapshot, &o, NULL), 0);
    }
}

static void give_with_children(bool interrupt)
{
    advisor_v1_AdviceOrder o = order();

    o.rearm_children = true;
    o.may_interrupt = interrupt;
    orders_take(&a, &o);
}

Test(orders, dependents_get_their_dependency_back_before_the_release)
{
    children_seen(2);
    give_with_children(false);
    turn(14);
    cr_assert_str_eq(did, "preserve constrain 80<any:7,ok:9 rearm_child 81<ok:7 rearm_child release ", "%s", did);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
    cr_assert(strstr(status.detail, "2 dependent jobs wait for it again"), "%s", status.detail);
    cr_assert_null(journal_find_hold(a.journal, "7"));
}

Test(orders, dependents_are_not_asked_about_without_the_word)
{
    children_seen(2);
    give();
    turn(14);
    cr_assert_str_eq(did, "preserve constrain release ");
}

Test(orders, dependents_of_an_interrupted_job_have_lost_nothing)
{
    job.job.state = ADAPTER_JOB_RUNNING;
    children_seen(2);
    give_with_children(true);
    turn(14);
    cr_assert_str_eq(did, "interrupt constrain release ", "%s", did);
}

Test(orders, a_dependent_that_does_not_opt_in_is_told_and_left)
{
    child_comment = "";
    children_seen(1);
    give_with_children(false);
    turn(14);
    cr_assert_str_eq(did, "preserve constrain 80<ok:7 release ", "%s", did);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
    cr_assert(strstr(status.detail, "job 80: its own comment does not ask for it"), "%s", status.detail);
}

Test(orders, dependents_leave_the_budget_for_the_release)
{
    put_ceiling("mode: act\nactions_per_hour: 5\n");
    children_seen(2);
    give_with_children(false);
    turn(16);
    cr_assert_str_eq(did, "preserve constrain 80<any:7,ok:9 rearm_child 81<ok:7 release ", "%s", did);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

Test(orders, dependents_leave_the_budget_for_what_else_is_held)
{
    struct journal_hold h = { .job = "9", .advice = "clusters/c/jobs/v/attempts/0/advice", .restarts = 1,
                              .on_expiry = JOURNAL_RELEASE, .want = JOURNAL_WANTED };

    put_ceiling("mode: act\nactions_per_hour: 6\n");
    a.orders_known = false; /* so that it is kept */
    cr_assert_eq(journal_append_hold(a.journal, &h, NULL), 0);
    children_seen(2);
    give_with_children(false);
    turn(16);
    cr_assert_str_eq(did, "preserve constrain 80<any:7,ok:9 81<ok:7 release ", "%s", did);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

static void lower_the_mode_at_a_child(void)
{
    if (action.verb == ADAPTER_VERB_REARM_CHILD)
        a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
}

/* The mode is no refusal of one child's: all waits, and goes on when it is back. */
Test(orders, a_mode_that_is_too_low_is_not_the_childs)
{
    before_write = lower_the_mode_at_a_child;
    children_seen(2);
    give_with_children(false);
    for (int i = 0; i < 20 && a.cluster_mode == advisor_v1_Mode_MODE_ACT; i++)
        turn(1);
    before_write = NULL;
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    a.cluster_mode = advisor_v1_Mode_MODE_ACT;
    turn(14);
    cr_assert_str_eq(did, "preserve constrain 80<any:7,ok:9 80<any:7,ok:9 rearm_child 81<ok:7 rearm_child release ", "%s", did);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

static void a_minute_at_a_child(void)
{
    if (action.verb == ADAPTER_VERB_REARM_CHILD)
        later_us += 61000000;
}

Test(orders, dependents_do_not_hold_up_the_release)
{
    after_write = a_minute_at_a_child;
    children_seen(3);
    give_with_children(false);
    turn(16);
    cr_assert_str_eq(did, "preserve constrain 80<any:7,ok:9 rearm_child release ", "%s", did);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
    cr_assert(strstr(status.detail, "1 dependent job waits for it again; 2 more dependent jobs were not looked at"), "%s", status.detail);
}

static void no_to_the_child(void)
{
    says_no = action.verb == ADAPTER_VERB_REARM_CHILD;
}

/* Each write counts as an action: one that came to nothing is told, not tried again. */
Test(orders, a_dependent_is_written_to_once)
{
    before_write = no_to_the_child;
    children_seen(1);
    give_with_children(false);
    turn(20);
    cr_assert_str_eq(did, "preserve constrain 80<ok:7 release ", "%s", did);
    cr_assert(strstr(status.detail, "job 80: unavailable"), "%s", status.detail);
}

/* Two jobs of one list may come back at once: whoever writes second must have seen what the first wrote. */
Test(orders, two_do_not_write_to_one_dependent_at_once)
{
    struct adapter_job kid = { .id = "80", .state = ADAPTER_JOB_PENDING, .submit_s = 900, .array_task = -1,
                               .dependency = "(failed)ok:7,(failed)ok:5" };
    struct adapter_observation seen = { .complete = true, .jobs = &kid, .n_jobs = 1, .read_wall_us = 1000000000 };
    advisor_v1_AdviceOrder o = order();
    struct adapter_job other = job.job;

    memcpy(other.id, "5", 2);
    cr_assert_eq(agent_first_submit(&a, &other), 1000);
    cr_assert_eq(snapshot_observe(a.snapshot, &seen, NULL), 0);
    give_with_children(false);
    while (pending != ACT || action.verb != ADAPTER_VERB_REARM_CHILD) {
        cr_assert(strlen(did) < sizeof(did) / 2);
        if (pending != NONE) {
            orders_wake(&a, "7");
            if (pending == INSPECT) {
                pending = NONE;
                inspect_cb(cb_arg, ADAPTER_FOUND, copy(), NULL);
            } else {
                pending = NONE;
                answer_act();
            }
        }
        if (pending == NONE) {
            orders_wake(&a, "7");
            orders_tick(&a);
        }
    }
    const struct adapter_action first = action;
    const adapter_act_cb first_cb = act_cb;
    void *const first_arg = cb_arg;
    pending = NONE;

    o.rearm_children = o.requeued_by_advice = true;
    (void) snprintf(o.name, sizeof(o.name), "clusters/c/jobs/v/attempts/0/advice");
    (void) snprintf(o.attempt.job_id, sizeof(o.attempt.job_id), "5");
    memcpy(job.job.id, "5", 2);
    orders_take(&a, &o);
    for (int i = 0; i < 10; i++) {
        orders_wake(&a, "5");
        orders_tick(&a);
        cr_assert(pending != ACT || action.verb == ADAPTER_VERB_CONSTRAIN, "%s: %s", did, adapter_verb_name(action.verb));
        if (pending == INSPECT) {
            pending = NONE;
            inspect_cb(cb_arg, ADAPTER_FOUND, copy(), NULL);
        } else if (pending == ACT) {
            pending = NONE;
            answer_act();
        }
    }
    cr_assert_str_eq(did, "preserve constrain constrain ", "%s", did);
    action = first;
    act_cb = first_cb;
    cb_arg = first_arg;
    answer_act();
    cr_assert_str_eq(did, "preserve constrain constrain 80<(failed)ok:7,(failed)ok:5 rearm_child ", "%s", did);
}

/* Its owner cancelled a component meanwhile: what came back is theirs, and neither released nor cancelled. */
Test(orders, half_a_job_is_left_held)
{
    half = true;
    give();
    turn(2);
    expect_status(D(ABANDONED), R(CONFLICTING_USER_ACTION));
    cr_assert(strstr(status.detail, "only a part of the job was requeued"), "%s", status.detail);
    cr_assert_eq(journal_find_hold(a.journal, "7")->on_expiry, JOURNAL_LEAVE);
    turn(6);
    cr_assert_str_eq(did, "preserve ", "%s", did);
    cr_assert(job.job.held);
    cr_assert_null(journal_find_hold(a.journal, "7"));
}

Test(orders, dependents_before_the_agent_are_not_known)
{
    advisor_v1_AdviceOrder o = order();

    carry_out_preserve();
    o.rearm_children = o.requeued_by_advice = true;
    orders_take(&a, &o);
    turn(10);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
    cr_assert(strstr(status.detail, "dependents that the failure let go are not known"), "%s", status.detail);
}

Test(orders, a_ceiling_that_does_not_list_it_keeps_dependents_out)
{
    put_ceiling("mode: act\nverbs: [preserve, constrain, release]\n");
    children_seen(2);
    give_with_children(false);
    turn(14);
    cr_assert_str_eq(did, "preserve constrain release ", "%s", did);
    cr_assert(strstr(status.detail, "(2): the site's ceiling does not list rearm_child"), "%s", status.detail);
}

Test(orders, more_dependents_than_are_looked_at_are_told)
{
    children_seen(40);
    give_with_children(false);
    turn(100);
    cr_assert(strstr(status.detail, "32 dependent jobs wait for it again; 8 more dependent jobs were not looked at"), "%s",
              status.detail);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

/* A recovery that could not be ended is not begun. */
Test(orders, the_whole_chain_must_be_allowed)
{
    put_ceiling("mode: act\nverbs: [preserve, constrain]\n");
    give();
    turn(5);
    cr_assert_str_eq(did, "");
    expect_status(D(ABANDONED), R(NOT_AUTHORIZED_BY_CLUSTER));
}

Test(orders, the_budget_must_be_there_for_the_whole_chain)
{
    put_ceiling("mode: act\nactions_per_hour: 2\n");
    give();
    turn(5);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(BUDGET_EXHAUSTED));
    put_ceiling("mode: act\nactions_per_hour: 3\n");
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
}

/* Another agent of the cluster requeued it and died; its journal is not here. */
Test(orders, a_hold_is_taken_over)
{
    advisor_v1_AdviceOrder o = order();

    job.job.state = ADAPTER_JOB_PENDING;
    job.job.restart_count = 1;
    job.job.submit_s = 1100;
    job.job.held = job.job.held_by_requeue = true;
    orders_take(&a, &o);
    turn(4);
    cr_assert_str_eq(did, "");
    expect_status(D(SUPERSEDED), R(ATTEMPT_SUPERSEDED));
    o.generation = 2;
    o.requeued_by_advice = true;
    orders_take(&a, &o);
    turn(2);
    cr_assert_str_eq(did, "constrain ");
    cr_assert(held_on());
    cr_assert_eq(journal_find_hold(a.journal, "7")->restarts, 1);
    turn(6);
    cr_assert_str_eq(did, "constrain release ");
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

static void something_else(void)
{
    advisor_v1_AdviceOrder o = order();

    if (action.verb != ADAPTER_VERB_CONSTRAIN)
        return;
    after_write = NULL;
    o.generation = 2;
    (void) snprintf(o.exclude_nodes, sizeof(o.exclude_nodes), "n1,n2");
    orders_take(&a, &o);
}

/* Other nodes are to be avoided, and this is heard while those of before are being written. */
Test(orders, a_step_says_nothing_about_what_was_ordered_meanwhile)
{
    give();
    after_write = something_else;
    turn(10);
    cr_assert_str_eq(did, "preserve constrain constrain release ");
    cr_assert_eq(status.observed_generation, 2);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

static void impossible_then_something_else(void)
{
    something_else();
    if (!after_write)
        refuse_with = ADAPTER_REASON_OK;
}

Test(orders, what_was_impossible_before_may_be_possible_now)
{
    give();
    turn(3);
    cr_assert_str_eq(did, "preserve ");
    refuse_with = ADAPTER_REASON_CONSTRAINT_UNSATISFIABLE;
    after_write = impossible_then_something_else;
    turn(10);
    cr_assert_str_eq(did, "preserve (constrain) constrain release ");
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

/* A store that was put back to yesterday mints generation 1 again, for something else. */
Test(orders, constraints_of_an_earlier_session_are_looked_at_anew)
{
    give();
    turn(4);
    cr_assert_str_eq(did, "preserve constrain ");
    orders_session_lost(&a);
    give();
    turn(8);
    cr_assert_str_eq(did, "preserve constrain constrain release ");
}

static void another_session(void)
{
    before_write = NULL;
    orders_session_lost(&a);
    lease_grant(&a.lease, (struct journal_epoch) { 1, 2 }, 600000, adv_boot_us(), adv_boot_us(), false);
    give();
}

Test(orders, a_step_decided_in_an_earlier_session_is_not_done)
{
    give();
    before_write = another_session;
    turn(2);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(STALE_EPOCH));
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
}

/* The command may still land: nothing else is begun before it surely does not. */
Test(orders, after_an_unknown_outcome_nothing_is_begun_within_the_landing_bound)
{
    int64_t from;

    a.bound_ms = 300;
    give();
    lose_answer = true;
    turn(2);
    cr_assert_str_eq(did, "preserve? ");
    from = adv_boot_us();
    while (strcmp(did, "preserve? ") == 0 && adv_boot_us() < from + 20000000) {
        turn(1);
        (void) usleep(1000);
    }
    cr_assert_geq(adv_boot_us() - from, 300000);
    turn(10);
    cr_assert_str_eq(did, "preserve? preserve constrain release ");
}

Test(orders, a_comment_changed_in_the_hold_is_a_persons_sign)
{
    give();
    turn(2);
    cr_assert_str_eq(did, "preserve ");
    job.comment = "{\"advisor\": {\"max_restarts\": 3}}";
    turn(10);
    expect_status(D(ABANDONED), R(CONFLICTING_USER_ACTION));
    cr_assert_str_eq(did, "preserve constrain release "); /* given back, without nodes to avoid */
    cr_assert_eq(n_exclude, 0);
    cr_assert(!held_on());
}

Test(orders, a_crash_is_no_timeout)
{
    give();
    turn(2);
    cr_assert_eq(allowed_states & ADAPTER_STATE_BIT(ADAPTER_JOB_TIMEOUT), 0);
    cr_assert(allowed_states & ADAPTER_STATE_BIT(ADAPTER_JOB_FAILED));
}

static void converge(void)
{
    give();
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

static void wait_turns(int64_t us)
{
    for (int64_t end = adv_mono_us() + us; adv_mono_us() < end; (void) usleep(10000))
        (void) turn_once();
}

/* The start is not left to the next poll. */
Test(orders, the_successor_is_looked_at_when_it_should_start)
{
    converge();
    size_t before = n_looks;
    wait_turns(200000);
    cr_assert_eq(n_looks, before);
    wait_turns(400000);
    cr_assert_eq(n_looks, before + 1);
    job.job.state = ADAPTER_JOB_RUNNING;
    wait_turns(800000);
    cr_assert_eq(n_looks, before + 2);
    wait_turns(2500000);
    cr_assert_eq(n_looks, before + 2, "it runs: nothing more to see");
}

/* Slurm says so only when it tries to start the job. */
Test(orders, a_successor_that_cannot_run_loses_our_exclusions)
{
    converge();
    job.job.reason = "BadConstraints";
    wait_turns(600000);
    cr_assert_str_eq(did, "preserve constrain release constrain ");
    cr_assert_str_eq(job.excluded_nodes, "");
    expect_status(D(ABANDONED), R(CONSTRAINT_UNSATISFIABLE));
}

/* As far as the held successor, whose exclusion is commanded and not heard of; then it cannot run. */
static void lose_a_constrain(bool it_lands)
{
    a.bound_ms = 300;
    give();
    turn(3);
    cr_assert_str_eq(did, "preserve ");
    lose_answer = true;
    lands = it_lands;
    turn(1);
    cr_assert(!lose_answer);
    did[0] = '\0';
    job.job.reason = "BadConstraints";
}

static void wait_status(advisor_v1_Disposition d)
{
    for (int64_t end = adv_mono_us() + 20000000; status.disposition != d && adv_mono_us() < end; (void) usleep(1000))
        turn(1);
}

Test(orders, what_may_have_landed_is_taken_out_again)
{
    lose_a_constrain(true);
    cr_assert_str_eq(job.excluded_nodes, "n1");
    wait_status(D(ABANDONED));
    expect_status(D(ABANDONED), R(CONSTRAINT_UNSATISFIABLE));
    cr_assert_str_eq(did, "constrain ");
    cr_assert_str_eq(job.excluded_nodes, "", "the job would wait for ever, on what we excluded");
}

Test(orders, what_the_user_excluded_before_stays_whatever_lands)
{
    job.excluded_nodes = "n1";
    lose_a_constrain(true);
    wait_status(D(ABANDONED));
    expect_status(D(ABANDONED), R(CONSTRAINT_UNSATISFIABLE));
    cr_assert_str_eq(did, "");
    cr_assert_str_eq(job.excluded_nodes, "n1");
}

static void journal_constrain(const char *adds, const char *observed, const char *ours)
{
    struct journal_intent in = { .job = "7", .advice = "x", .verb = "constrain", .submit_s = 1100,
                                 .adds = (char *) (uintptr_t) adds };
    struct journal_outcome out = { "accepted", .reason = "ok", .excluded = (char *) (uintptr_t) ours };
    uint64_t seq;

    (void) snprintf(out.observed, sizeof(out.observed), "%s", observed);
    cr_assert_eq(journal_append_intent(a.journal, &in, adv_wall_us(), &seq, NULL), 0);
    if (observed[0])
        cr_assert_eq(journal_append_outcome(a.journal, seq, &out, NULL), 0);
}

/* What was added before a step of which nothing is known, and what that step would add. */
Test(orders, ours_is_what_is_known_and_what_may_have_landed_since)
{
    static const struct {
        const char *observed[3];
        size_t n; /* of n3, n4, n5 and n9 */
    } t[] = {
        { { "yes", "unknown", "unknown" }, 3 }, { { "yes", "unknown", "yes" }, 1 },   { { "no", "no", "no" }, 0 },
        { { "yes", "no", "unknown" }, 2 },      { { "unknown", "no", "unknown" }, 2 }, { { "yes", "no", "no" }, 1 },
    };
    static const char *const adds[] = { "n3", "n4", "n5" };

    a.cluster_mode = advisor_v1_Mode_MODE_OFF;
    a.old_intents_closed = true;
    for (size_t i = 0; i < ADV_ARRAY_LEN(t); i++) {
        journal_constrain(NULL, "yes", NULL); /* nothing is ours */
        for (size_t k = 0; k < 3; k++)
            journal_constrain(adds[k], t[i].observed[k], strcmp(t[i].observed[k], "yes") == 0 ? "n9" : NULL);
        hold(JOURNAL_RELEASE, 0);
        did[0] = '\0';
        turn(2);
        cr_assert_str_eq(did, "constrain ");
        cr_assert_eq(n_exclude_before, t[i].n, "%zu: %zu", i, n_exclude_before);
        cr_assert_eq(n_exclude, t[i].n, "giving back leaves the list as it is");
        orders_free(&a);
    }
}

Test(orders, exclusions_of_another_job_that_had_the_id_are_not_ours)
{
    a.cluster_mode = advisor_v1_Mode_MODE_OFF;
    journal_constrain("n3", "unknown", NULL);
    hold(JOURNAL_RELEASE, 0);
    id_was_reused();
    struct journal_hold h = *journal_find_hold(a.journal, "7");
    h.first_submit_s = 5000;
    cr_assert_eq(journal_append_hold(a.journal, &h, NULL), 0);
    turn(2);
    cr_assert_str_eq(did, "constrain ");
    cr_assert_eq(n_exclude_before, 0);
}

/* A disk that is full for a minute says nothing of the advice. */
Test(orders, a_full_disk_is_waited_for)
{
    unsigned looks = 0;

    give();
    disk_full = true;
    turn(2);
    expect_status(D(PENDING), R(NOT_AUTHORIZED_BY_CLUSTER));
    cr_assert_eq(n_status, 1);
    cr_assert_gt(n_full, 0);
    cr_assert(!turn_once()); /* not at once */
    for (int i = 0; i < 120; i++) { /* after a second, two, four, … */
        later_us += 1000000;
        while (turn_once())
            looks++;
    }
    cr_assert_geq(looks, 10); /* a look and a step that is not done */
    cr_assert_leq(looks, 14);
    cr_assert_eq(n_status, 1); /* told once */
    cr_assert_str_eq(did, "");
    disk_full = false;
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

/* Every other node from @first on: a list that no range makes shorter. */
static char *every_other(unsigned first, unsigned n)
{
    struct adv_buf text;

    adv_buf_init(&text, n * 7 + 8);
    for (unsigned i = 0; i < n; i++)
        (void) adv_buf_appendf(&text, "%s%u", i ? "," : "n[", first + 2 * i);
    cr_assert_eq(adv_buf_append_byte(&text, ']'), 0);
    return adv_buf_steal(&text, NULL);
}

/* No room on any disk makes a record of it: it is not waited for, with the job in our hold. */
Test(orders, a_list_that_no_record_can_hold_ends_the_order)
{
    advisor_v1_AdviceOrder o = order();
    adv_auto_free char *users = every_other(2, NAMES_MAX / 2);

    (void) snprintf(o.exclude_nodes, sizeof(o.exclude_nodes), "n[1-%u]", NAMES_MAX);
    orders_take(&a, &o);
    turn(2);
    cr_assert_str_eq(did, "preserve ");
    job.excluded_nodes = users;
    turn(2);
    expect_status(D(ABANDONED), R(NOT_AUTHORIZED_BY_CLUSTER));
    cr_assert(strstr(status.detail, "too long"), "%s", status.detail);
    turn(6);
    cr_assert_str_eq(did, "preserve constrain release ");
    cr_assert_null(journal_find_hold(a.journal, "7"));
}

/* Two that fit, and not together. */
Test(orders, a_list_that_no_record_can_hold_is_given_back_without_it)
{
    adv_auto_free char *one = every_other(1, 5000), *two = every_other(20001, 5000);

    a.cluster_mode = advisor_v1_Mode_MODE_OFF;
    a.old_intents_closed = true;
    journal_constrain(one, "unknown", NULL);
    journal_constrain(two, "unknown", NULL);
    hold(JOURNAL_RELEASE, 0);
    did[0] = '\0';
    turn(8);
    cr_assert_str_eq(did, "release ");
    cr_assert_null(journal_find_hold(a.journal, "7"));
}

/* What is ours counts as what was asked for, not as nothing, where it cannot be written down. */
Test(orders, exclusions_that_cannot_be_written_are_unknown)
{
    adv_auto_free char *much = every_other(1, NAMES_MAX / 2);
    const struct journal_step *s;

    excluded = much;
    converge();
    s = journal_find_step(a.journal, NULL, "7", "constrain");
    cr_assert(s && s->done);
    cr_assert_str_eq(s->outcome.observed, "unknown");
    cr_assert_str_eq(s->intent.adds, "n1");
    cr_assert_null(s->outcome.excluded);
    excluded = "n1";
}

static void fill_the_disk(void)
{
    disk_full = true;
}

static const struct journal_step *step_of(const char *verb)
{
    return journal_find_step(a.journal, NULL, "7", verb);
}

/* The command was carried out, and the disk became full before that could be written. */
Test(orders, an_outcome_is_written_once_there_is_room)
{
    give();
    turn(1);
    after_write = fill_the_disk;
    turn(1);
    after_write = NULL;
    cr_assert_str_eq(did, "preserve ");
    cr_assert(!step_of("preserve")->done);
    unsigned before = n_full, actions = n_actions;
    for (int i = 0; i < 1000; i++)
        orders_tick(&a);
    cr_assert_eq(n_full, before); /* not hammered */
    disk_full = false;
    a.unwritten_due_us = 0;
    orders_tick(&a);
    cr_assert_null(a.unwritten);
    cr_assert(step_of("preserve")->done);
    cr_assert_str_eq(step_of("preserve")->outcome.observed, "yes");
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
    cr_assert_eq(n_actions, actions + 4); /* the outcome was told when it was known */
}

/* The list of nodes that are ours now comes along. */
Test(orders, an_outcome_that_waits_knows_our_exclusions)
{
    give();
    turn(3);
    after_write = fill_the_disk;
    turn(1);
    after_write = NULL;
    cr_assert_str_eq(did, "preserve constrain ");
    disk_full = false;
    a.unwritten_due_us = 0;
    orders_tick(&a);
    cr_assert_str_eq(step_of("constrain")->outcome.excluded, "n1");
}

/* The way out is the last chance. */
Test(orders, an_outcome_is_written_on_the_way_out)
{
    give();
    turn(1);
    after_write = fill_the_disk;
    turn(1);
    disk_full = false;
    orders_free(&a);
    cr_assert(step_of("preserve")->done);
}

/* Our requeue was refused, its hold is still on record, and then a person has requeued and held the job. */
static void a_person_holds_it(const char *command, const char *observed)
{
    struct journal_intent in = { .advice = "clusters/c/jobs/u/attempts/0/advice", .job = "7", .verb = "preserve",
                                 .submit_s = 1000 };
    struct journal_outcome out = { .reason = "ok" };
    uint64_t seq;

    (void) snprintf(out.command, sizeof(out.command), "%s", command);
    (void) snprintf(out.observed, sizeof(out.observed), "%s", observed);
    hold(JOURNAL_RELEASE, 0);
    cr_assert_eq(journal_append_intent(a.journal, &in, adv_wall_us(), &seq, NULL), 0);
    cr_assert_eq(journal_append_outcome(a.journal, seq, &out, NULL), 0);
}

Test(orders, what_a_person_requeued_after_our_vain_attempt_is_not_released)
{
    a.cluster_mode = advisor_v1_Mode_MODE_OFF;
    a.holds_swept = true;
    a_person_holds_it("refused", "no");
    turn(8);
    cr_assert_str_eq(did, "", "%s", did);
    cr_assert(!held_on());
    a_person_holds_it("not_sent", "unknown");
    turn(8);
    cr_assert_str_eq(did, "", "%s", did);
    cr_assert(!held_on());
    a_person_holds_it("timed_out", "unknown"); /* it may be ours: as ever */
    turn(8);
    cr_assert_str_eq(did, "constrain release ", "%s", did);
}

Test(orders, a_vain_hold_of_an_earlier_run_is_ended_at_the_start)
{
    lease_drop(&a.lease); /* it takes no lease, and no look */
    a_person_holds_it("refused", "no");
    orders_tick(&a);
    cr_assert(!held_on());
}

Test(orders, the_end_of_a_vain_hold_is_written_once_there_is_room)
{
    for (int writes = 2; writes <= 3; writes++) { /* intent, hold; and the outcome */
        give();
        turn(1);
        orders_tick(&a);
        cr_assert_eq(pending, ACT);
        says_no = true;
        room = writes;
        turn(1);
        cr_assert(held_on() && step_of("preserve")->done == (writes == 3));
        turn(4);
        cr_assert(held_on());
        room = -1;
        disk_full = false;
        lease_drop(&a.lease);
        a.unwritten_due_us = a.next_sweep_us = 0;
        orders_tick(&a);
        a.next_sweep_us = 0;
        orders_tick(&a);
        cr_assert(!held_on());
        cr_assert_str_eq(did, "");
        orders_free(&a);
        lease_grant(&a.lease, (struct journal_epoch) { 1, 2 }, 600000, adv_boot_us(), adv_boot_us(), false);
    }
}

/* Whoever dies, or has no room, between the two has begun something; it never holds what nothing was begun for. */
Test(orders, no_hold_is_on_record_before_its_intent)
{
    give();
    turn(1);
    room = 1;
    turn(1);
    room = -1;
    cr_assert(!held_on() && step_of("preserve"));
    cr_assert_str_eq(did, "");
    disk_full = false;
    a.unwritten_due_us = 0;
    orders_tick(&a);
    cr_assert_str_eq(step_of("preserve")->outcome.command, "not_sent");
    for (int i = 0; i < 10; i++) {
        later_us += 1000000;
        (void) turn_once();
    }
    cr_assert_str_eq(did, "preserve constrain release ");
}

/* As after a restart in the middle of the command. */
static void intent_of_an_earlier_run(void)
{
    struct journal_intent in = { .epoch = { 1, 1 }, .advice = "clusters/c/jobs/u/attempts/0/advice", .generation = 1,
                                 .job = "7", .submit_s = 1000, .verb = "preserve" };
    uint64_t seq;

    cr_assert_eq(journal_append_intent(a.journal, &in, adv_wall_us(), &seq, NULL), 0);
}

static int64_t known_submit(void *ctx, const struct adapter_job *j)
{
    return 1000;
}

/* The bulk read as it shows the job now. */
static void poll_as_of(int64_t boot_us)
{
    (void) snapshot_free(a.snapshot);
    a.snapshot = snapshot_new(known_submit, NULL);
    cr_assert_eq(snapshot_detail(a.snapshot, &job, NULL), 0);
    a.look_boot_us = boot_us;
}

/* It landed after the last look, and within the bound. */
Test(orders, an_old_intent_is_judged_by_a_look_behind_the_landing_bound)
{
    int64_t now = adv_boot_us();

    intent_of_an_earlier_run();
    poll_as_of(now - 30000000);
    job.job.restart_count = 1;
    a.lease.settling = true;
    a.lease.settled_boot_us = now - 1;
    a.next_poll_us = INT64_MAX;
    for (int i = 0; i < 10; i++)
        orders_tick(&a);
    cr_assert(!step_of("preserve")->done);
    cr_assert_eq(a.next_poll_us, 0); /* a look out of turn */
    a.next_poll_us = INT64_MAX;
    orders_tick(&a);
    cr_assert_eq(a.next_poll_us, INT64_MAX); /* asked for once */
    poll_as_of(now);
    orders_tick(&a);
    cr_assert(step_of("preserve")->done);
    cr_assert_str_eq(step_of("preserve")->outcome.observed, "yes");
    cr_assert_eq(n_actions, 1);
    cr_assert(a.old_intents_closed);
}

/* It is told once, and the agent goes on. */
Test(orders, old_intents_are_closed_once_there_is_room)
{
    intent_of_an_earlier_run();
    intent_of_an_earlier_run();
    poll_as_of(adv_boot_us());
    disk_full = true;
    for (int i = 0; i < 100; i++)
        orders_tick(&a);
    cr_assert_eq(n_actions, 1);
    cr_assert(!a.old_intents_closed);
    disk_full = false;
    a.unwritten_due_us = 0;
    orders_tick(&a);
    orders_tick(&a);
    cr_assert_eq(n_actions, 2);
    cr_assert(a.old_intents_closed);
    size_t pos = 0;
    cr_assert_null(journal_next_open(a.journal, &pos));
}

/* The attempt went, or was settled, while there was no session. */
Test(orders, what_is_not_asked_for_any_more_is_finished)
{
    give();
    turn(2);
    cr_assert_str_eq(did, "preserve ");
    orders_session_lost(&a);
    a.orders_known = false;
    turn(5);
    cr_assert_eq(n_status, 0); /* it may still be told */
    a.lease.epoch.counter++;
    a.orders_known = true;
    orders_tick(&a);
    cr_assert_eq(n_status, 1);
    expect_status(D(ABANDONED), R(STALE_EPOCH));
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release "); /* what waited in our hold is given back */
    later_us += 601000000;
    orders_tick(&a);
    cr_assert_null(a.orders);
}

Test(orders, what_is_asked_for_again_goes_on)
{
    give();
    turn(2);
    orders_session_lost(&a);
    a.orders_known = false;
    turn(5);
    a.lease.epoch.counter++;
    give();
    a.orders_known = true;
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
    cr_assert_eq(n_status, 1);
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
}

/* Who stands by is told nothing. */
Test(orders, a_standby_keeps_no_orders)
{
    give();
    orders_session_lost(&a);
    a.orders_known = false;
    lease_drop(&a.lease);
    orders_tick(&a);
    later_us += 601000000;
    orders_tick(&a);
    cr_assert_null(a.orders);
    cr_assert_eq(n_status, 0);
}

/* Finished ones are kept for a while, but make room. */
Test(orders, finished_orders_make_room)
{
    advisor_v1_AdviceOrder o = order();

    o.desired_state = advisor_v1_DesiredState_DESIRED_STATE_NO_ACTION;
    for (unsigned n = 1; n <= 4100; n++) { /* orders.c has room for 4096 */
        (void) snprintf(o.name, sizeof(o.name), "clusters/c/jobs/u%u/attempts/0/advice", n);
        orders_take(&a, &o);
        if (n % 50)
            continue;
        orders_tick(&a);
        cr_assert_eq(n_status, n);
    }
}

/* ---- what is done so that a later decision can be carried out ---- */

static void order_as(uint64_t generation, advisor_v1_DesiredState desired, advisor_v1_Actionability act, bool preserve)
{
    advisor_v1_AdviceOrder o = order();

    o.generation = generation;
    o.desired_state = desired;
    o.actionability = act;
    o.preserve = preserve;
    orders_take(&a, &o);
}
#define WANT(x) advisor_v1_DesiredState_DESIRED_STATE_##x
#define MAY(x)  advisor_v1_Actionability_ACTIONABILITY_##x

static void let_it_run(void)
{
    job.job.state = ADAPTER_JOB_RUNNING;
    job.job.end_s = 0;
    job.job.requeueable = false;
}

static void carry_out_requeueable(void)
{
    if (action.verb == ADAPTER_VERB_MAKE_REQUEUEABLE && strstr(did, "make_requeueable"))
        job.job.requeueable = true;
}

Test(orders, made_requeueable_once)
{
    let_it_run();
    after_write = carry_out_requeueable;
    order_as(1, WANT(REQUEUEABLE), MAY(ACTIONABLE), false);
    turn(6);
    cr_assert_str_eq(did, "make_requeueable ");
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
    /* somebody switches it off again, and the order is told anew: that stands */
    job.job.requeueable = false;
    orders_free(&a);
    order_as(1, WANT(REQUEUEABLE), MAY(ACTIONABLE), false);
    turn(6);
    cr_assert_str_eq(did, "make_requeueable ");
    expect_status(D(ABANDONED), R(CONFLICTING_USER_ACTION));
    after_write = NULL;
}

Test(orders, requeueable_already_ended_forbidden_or_not_allowed)
{
    let_it_run();
    job.job.requeueable = true;
    order_as(1, WANT(REQUEUEABLE), MAY(ACTIONABLE), false);
    turn(4);
    expect_status(D(CONVERGED), R(ALREADY_SATISFIED));
    let_it_run();
    job.comment = "{\"advisor\": {\"make_requeueable\": false}}";
    order_as(2, WANT(REQUEUEABLE), MAY(ACTIONABLE), false);
    turn(4);
    expect_status(D(ABANDONED), R(OPTED_OUT));
    job.comment = OPTED_IN;
    put_ceiling("mode: act\nverbs: [preserve, constrain, release]\n");
    order_as(3, WANT(REQUEUEABLE), MAY(ACTIONABLE), false);
    turn(4);
    expect_status(D(ABANDONED), R(NOT_AUTHORIZED_BY_CLUSTER));
    put_ceiling("mode: act\nactions_per_hour: 3\n"); /* a recovery must still be possible afterwards */
    order_as(4, WANT(REQUEUEABLE), MAY(ACTIONABLE), false);
    turn(4);
    expect_status(D(PENDING), R(BUDGET_EXHAUSTED));
    put_ceiling("mode: approve\n");
    order_as(5, WANT(REQUEUEABLE), MAY(ACTIONABLE), false);
    turn(4);
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    put_ceiling("mode: act\n");
    job.job.state = ADAPTER_JOB_FAILED;
    order_as(6, WANT(REQUEUEABLE), MAY(ACTIONABLE), false);
    turn(4);
    expect_status(D(ABANDONED), R(NOT_REQUEUEABLE));
    cr_assert_str_eq(did, "");
}

static void keep(void)
{
    order_as(1, WANT(PRESERVED), MAY(ACTIONABLE), false);
    turn(6);
    cr_assert_str_eq(did, "preserve ");
    expect_status(D(PENDING), R(DESIRED_STATE_OBSERVED));
    const struct journal_hold *h = journal_find_hold(a.journal, "7");
    cr_assert(h && h->kept && h->on_expiry == JOURNAL_CANCEL && h->want == JOURNAL_AWAITING && h->restarts == 1 &&
              h->expires_wall_us > agent_wall_us(&a));
}

Test(orders, a_kept_job_is_set_in_motion_by_the_decision)
{
    keep();
    order_as(2, WANT(RESTARTED), MAY(ACTIONABLE), false);
    turn(2);
    const struct journal_hold *h = journal_find_hold(a.journal, "7");
    cr_assert(h && !h->kept && h->on_expiry == JOURNAL_RELEASE && h->want == JOURNAL_WANTED);
    turn(8);
    cr_assert_str_eq(did, "preserve constrain release ");
    expect_status(D(CONVERGED), R(DESIRED_STATE_OBSERVED));
    cr_assert(!held_on());
}

Test(orders, a_kept_job_that_had_been_cancelled_is_cancelled_again)
{
    revived = ADAPTER_YES;
    order_as(1, WANT(PRESERVED), MAY(ACTIONABLE), false);
    turn(2);
    refuse_with = ADAPTER_REASON_UNAVAILABLE;
    for (int i = 0; i < 50; i++)
        (void) turn_once();
    cr_assert(!journal_find_hold(a.journal, "7")->kept);
    orders_free(&a);
    refuse_with = ADAPTER_REASON_OK;
    order_as(2, WANT(RESTARTED), MAY(ACTIONABLE), false); /* whatever is decided meanwhile */
    turn(6);
    cr_assert(strstr(did, "cancel ") && !strstr(did, "release"), "%s", did);
}

/* Let go of once, it is not taken again because the order is told again in the next session. */
Test(orders, a_kept_job_that_was_let_go_of_is_not_taken_again)
{
    keep();
    job.comment = "{\"advisor\": {\"mode\": \"act\"}, \"mine\": 1}";
    turn(8);
    expect_status(D(ABANDONED), R(CONFLICTING_USER_ACTION));
    cr_assert(!held_on());
    for (int i = 0; i < 2; i++) { /* in this run, and after a restart */
        orders_session_lost(&a);
        if (i)
            orders_free(&a);
        order_as(1, WANT(PRESERVED), MAY(ACTIONABLE), false);
        turn(6);
        expect_status(D(ABANDONED), R(CONFLICTING_USER_ACTION));
        cr_assert(!held_on());
    }
    cr_assert_str_eq(did, "preserve ");
}

Test(orders, kept_without_a_yes_only_where_the_site_says_so)
{
    a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
    order_as(1, WANT(RESTARTED), MAY(NEEDS_APPROVAL), true);
    turn(4);
    cr_assert_str_eq(did, "");
    put_ceiling("mode: act\npreserve_in_approve: true\nverbs: [preserve, constrain, release]\n"); /* could not be given back */
    order_as(2, WANT(RESTARTED), MAY(NEEDS_APPROVAL), true);
    turn(4);
    cr_assert_str_eq(did, "");
    expect_status(D(PENDING), R(MODE_TOO_LOW)); /* what the person is asked stands */
    cr_assert(strstr(status.detail, "does not allow to cancel"), "%s", status.detail);
    put_ceiling("mode: act\npreserve_in_approve: true\n");
    order_as(3, WANT(RESTARTED), MAY(NEEDS_APPROVAL), false); /* not told to */
    turn(4);
    cr_assert_str_eq(did, "");
    order_as(4, WANT(RESTARTED), MAY(NEEDS_APPROVAL), true);
    turn(8);
    cr_assert_str_eq(did, "preserve ");
    expect_status(D(PENDING), R(MODE_TOO_LOW));
    cr_assert(journal_find_hold(a.journal, "7")->kept);
    advisor_v1_AdviceOrder o = order();
    o.generation = o.approved_generation = 4;
    o.preserve = true;
    orders_take(&a, &o);
    turn(10);
    cr_assert_str_eq(did, "preserve constrain release ");
}

/* A running attempt is never touched by it, nor one that ended otherwise than in failure. */
Test(orders, what_did_not_fail_is_not_kept)
{
    static const enum adapter_job_state states[] = { ADAPTER_JOB_RUNNING, ADAPTER_JOB_COMPLETED, ADAPTER_JOB_CANCELLED,
                                                     ADAPTER_JOB_TIMEOUT, ADAPTER_JOB_PREEMPTED, ADAPTER_JOB_UNKNOWN_STATE };

    put_ceiling("mode: act\npreserve_in_approve: true\n");
    for (size_t i = 0; i < ADV_ARRAY_LEN(states); i++) {
        job.job.state = states[i];
        order_as(2 * i + 1, WANT(PRESERVED), MAY(ACTIONABLE), false);
        turn(4);
        order_as(2 * i + 2, WANT(RESTARTED), MAY(NEEDS_APPROVAL), true);
        turn(4);
    }
    cr_assert_str_eq(did, "");
}

/* Or the control plane ends the session over it, and the next one, and so on. */
Test(orders, what_is_told_is_utf8_whatever_a_users_file_is_called)
{
    refuse_with = ADAPTER_REASON_FORBIDDEN;
    refuse_text = "no: /home/u/out-\xff\xc3.txt";
    give();
    turn(4);
    expect_status(D(ABANDONED), R(FORBIDDEN_BY_SCHEDULER));
    cr_assert(adv_utf8_valid(status.detail, strlen(status.detail)) && strstr(status.detail, "no: /home/u/out-"), "%s", status.detail);
    refuse_text = "";
}

/* ---- every way in which a hold comes to its end ---- */

enum held { HELD_RESTART, HELD_UNDECIDED, HELD_AWAITING, HELD_END_ };
enum cause { BY_MODE_OBSERVE, BY_MODE_OFF, BY_CEILING_OBSERVE, BY_CEILING_OFF, BY_EXPIRY, BY_REJECTION, BY_WITHDRAWAL,
             BY_FORGETTING, BY_UNKNOWN_STATE, BY_END_ };
enum person { PERSON_NONE, PERSON_COMMENT, PERSON_RELEASE, PERSON_HOLD, PERSON_CANCEL, PERSON_REQUEUE, PERSON_END_ };
static const char *const held_names[] = { "to be restarted", "undecided", "awaiting approval" };
static const char *const cause_names[] = { "mode OBSERVE", "mode OFF", "ceiling observe", "ceiling off", "advice expired",
                                           "advice rejected", "decided otherwise", "not told any more", "not understood" };
static const char *const person_names[] = { "nobody", "comment", "release", "hold", "cancel", "requeue" };

static void bring_about(enum cause c, enum held h)
{
    advisor_v1_AdviceOrder o = order();

    o.generation = 1;
    switch (c) {
    case BY_MODE_OBSERVE:
        a.cluster_mode = advisor_v1_Mode_MODE_OBSERVE;
        break;
    case BY_MODE_OFF:
        a.cluster_mode = advisor_v1_Mode_MODE_OFF;
        break;
    case BY_CEILING_OBSERVE:
        put_ceiling("mode: observe\n");
        break;
    case BY_CEILING_OFF:
        put_ceiling("mode: off\n");
        break;
    case BY_EXPIRY:
        o.valid_for_ms = 0;
        o.generation = 2;
        orders_take(&a, &o);
        break;
    case BY_REJECTION:
        if (h == HELD_UNDECIDED)
            o.desired_state = WANT(PRESERVED);
        o.actionability = MAY(SHADOW);
        orders_take(&a, &o);
        break;
    case BY_WITHDRAWAL:
        o.generation = 2;
        o.desired_state = WANT(NO_ACTION);
        orders_take(&a, &o);
        break;
    case BY_FORGETTING:
        orders_session_lost(&a); /* and in the next one it is not told */
        break;
    default: /* of a later version */
        o.generation = 2;
        o.desired_state = (advisor_v1_DesiredState) 99;
        orders_take(&a, &o);
        break;
    }
}

static void let_person(enum person p)
{
    switch (p) {
    case PERSON_COMMENT:
        job.comment = "{\"advisor\": {}, \"mine\": 1}";
        break;
    case PERSON_RELEASE:
        job.job.held = job.job.held_by_requeue = false;
        break;
    case PERSON_HOLD:
        job.job.held_by_requeue = false;
        break;
    case PERSON_CANCEL:
        job.job.state = ADAPTER_JOB_CANCELLED;
        break;
    case PERSON_REQUEUE:
        job.job.restart_count++;
        job.job.submit_s += 100;
        break;
    default:
        break;
    }
}

static void bring_into_hold(enum held h)
{
    put_ceiling("mode: act\npreserve_in_approve: true\n");
    if (h == HELD_AWAITING)
        a.cluster_mode = advisor_v1_Mode_MODE_APPROVE;
    order_as(1, h == HELD_UNDECIDED ? WANT(PRESERVED) : WANT(RESTARTED), h == HELD_AWAITING ? MAY(NEEDS_APPROVAL) : MAY(ACTIONABLE),
             h == HELD_AWAITING);
    turn(2);
    cr_assert_str_eq(did, "preserve ", "%s: %s", held_names[h], did);
    cr_assert(held_on());
}

/* Once and as recorded: what was to be restarted is released, what was kept is cancelled; never a job that a person has taken, as
 * far as that can be seen; and with no difference whether the agent was restarted in between. */
Test(orders, every_end_of_a_hold)
{
    unsigned n = 0;

    for (int h = 0; h < HELD_END_; h++)
        for (int c = 0; c < BY_END_; c++)
            for (int p = 0; p < PERSON_END_; p++)
                for (int again = 0; again < 2; again++) {
                    char what[160];
                    const char *want = "";
                    (void) snprintf(what, sizeof(what), "%s, %s, %s%s", held_names[h], cause_names[c], person_names[p],
                                    again ? ", agent restarted" : "");
                    bring_into_hold((enum held) h);
                    let_person((enum person) p);
                    if (again) {
                        orders_free(&a); /* and it hears of the order again, if it is to */
                        a.orders_known = true;
                        if (c < BY_EXPIRY)
                            order_as(1, h == HELD_UNDECIDED ? WANT(PRESERVED) : WANT(RESTARTED),
                                     h == HELD_AWAITING ? MAY(NEEDS_APPROVAL) : MAY(ACTIONABLE), h == HELD_AWAITING);
                    }
                    bring_about((enum cause) c, (enum held) h);
                    turn(14);
                    if (p == PERSON_NONE)
                        want = h == HELD_RESTART ? "constrain release " : "cancel ";
                    else if (p == PERSON_COMMENT && h == HELD_RESTART)
                        want = "constrain release "; /* to let go of a hold is what a changed comment may ask for, too */
                    cr_assert_str_eq(did + strlen("preserve "), want, "%s: %s", what, did);
                    cr_assert(!held_on(), "%s: still on record", what);
                    turn(6);
                    cr_assert_str_eq(did + strlen("preserve "), want, "%s: twice: %s", what, did);
                    n++;
                    teardown();
                    did[0] = '\0';
                    setup();
                }
    cr_assert_eq(n, 3 * 9 * 6 * 2);
}
