/* SPDX-License-Identifier: Apache-2.0 */

/* The watchdog against a scheduler that does at once what it is told, and a journal that an agent has left. Both clocks are
 * the test's. */

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "advisor-agent/hold.h"
#include "advisor-watchdog/watchdog.h"
#include "common/clock.h"

#define JOBS 20
#define HOUR 3600000000ll

static int64_t boot_us, wall_offset_us;

int64_t __wrap_adv_boot_us(void);
int64_t __wrap_adv_wall_us(void);
int64_t __wrap_adv_boot_us(void)
{
    return boot_us;
}

int64_t __wrap_adv_wall_us(void)
{
    return boot_us + wall_offset_us;
}

static char dir[64], ceiling_path[80], state_dir[80];
static struct watchdog_config cfg;
static struct watchdog *w;
static struct journal *agent;
static uv_loop_t loop;

/* The scheduler */
static struct adapter_job_detail jobs[JOBS + 1]; /* by number */
static unsigned n_released, n_cancelled, n_looks;
static bool away, lose_answer;
static void (*before_write)(void);

static void fake_describe(struct adapter *x, adapter_describe_cb cb, void *arg)
{
    const struct adapter_description d = { .scheduler = "fake", .forget_after_s = 300 };
    struct adv_err err;

    (void) adv_err_set(&err, ADV_UNAVAILABLE, "away");
    cb(arg, away ? NULL : &d, &err);
}

struct adapter_job_detail *adapter_job_detail_free(struct adapter_job_detail *d)
{
    free(d);
    return NULL;
}

static void fake_inspect(struct adapter *x, const char *id, adapter_inspect_cb cb, void *arg)
{
    struct adapter_job_detail *d = malloc(sizeof(*d));
    struct adv_err err;

    n_looks++;
    cr_assert(d);
    *d = jobs[atoi(id)];
    (void) adv_err_set(&err, ADV_UNAVAILABLE, "away");
    if (away) {
        free(d);
        d = NULL;
    }
    cb(arg, away ? ADAPTER_FOUND_UNKNOWN : ADAPTER_FOUND, d, &err);
}

static void on_authorized(void *arg, bool allowed, int64_t kill_at)
{
    *(bool *) arg = allowed;
    cr_assert(!allowed || kill_at > boot_us);
}

static void fake_act(struct adapter *x, const struct adapter_action *action, adapter_act_cb cb, void *arg)
{
    struct adapter_job_detail *job = &jobs[atoi(action->id)];
    struct adapter_write write = { .action = action, .before = job, .landing_bound_ms = 20000, .deadline_ms = 12000 };
    struct adapter_result res = { .reason = ADAPTER_REASON_LEASE_LOST };
    bool allowed = false;

    if (before_write)
        before_write();
    watchdog_host(w)->authorize(watchdog_host(w)->ctx, &write, on_authorized, &allowed);
    if (allowed && lose_answer) {
        res = (struct adapter_result) { .command = ADAPTER_COMMAND_TIMED_OUT, .reason = ADAPTER_REASON_UNAVAILABLE };
    } else if (allowed) {
        res = (struct adapter_result) { .command = ADAPTER_COMMAND_ACCEPTED, .observed = ADAPTER_OBSERVED_YES };
        job->job.held = job->job.held_by_requeue = false;
        if (action->verb == ADAPTER_VERB_CANCEL)
            job->job.state = ADAPTER_JOB_CANCELLED;
        n_released += action->verb == ADAPTER_VERB_RELEASE;
        n_cancelled += action->verb == ADAPTER_VERB_CANCEL;
    }
    cb(arg, &res);
}

static const struct adapter_ops ops = { .name = "fake", .describe = fake_describe, .inspect = fake_inspect, .act = fake_act };
static struct adapter fake = { &ops };

static void put_ceiling(const char *text)
{
    char tmp[90];
    FILE *f;

    (void) snprintf(tmp, sizeof(tmp), "%s.new", ceiling_path);
    f = fopen(tmp, "w");
    cr_assert(f && fputs(text, f) >= 0);
    (void) fclose(f);
    cr_assert_eq(rename(tmp, ceiling_path), 0);
}

static void on_done(void *arg)
{
    watchdog_stop(w);
}

static void start(void)
{
    struct adv_err err;

    cr_assert_eq(watchdog_new(&loop, &cfg, NULL, &w, &err), 0, "%s", err.msg);
    watchdog_start(w, &fake, on_done, NULL);
}

static void stop(void)
{
    watchdog_stop(w);
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    w = watchdog_free(w);
}

static void setup(void)
{
    (void) strcpy(dir, "/tmp/watchdog-XXXXXX");
    cr_assert(mkdtemp(dir));
    (void) snprintf(ceiling_path, sizeof(ceiling_path), "%s/ceiling.yaml", dir);
    (void) snprintf(state_dir, sizeof(state_dir), "%s/state", dir);
    put_ceiling("mode: act\n");
    boot_us = HOUR;
    wall_offset_us = 400000 * HOUR;
    cfg = (struct watchdog_config) { .state_dir = state_dir, .allow_volatile = true, .ceiling_path = ceiling_path,
                                     .ceiling_owner = (char *) "", .poll_ms = 1, .gone_ms = 120000, .there_ms = 600000,
                                     .ends_per_minute = 6, .only_agent = true, .landing_bound_ms = 20000, .command_deadline_ms = 12000,
                                     .action_deadline_ms = 90000 };
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(journal_open(state_dir, true, NULL, &agent, NULL), 0);
    for (int i = 0; i <= JOBS; i++) {
        jobs[i] = (struct adapter_job_detail) { .comment = "{}" };
        jobs[i].job = (struct adapter_job) { .state = ADAPTER_JOB_PENDING, .restart_count = 1, .submit_s = 2000, .held = true,
                                             .held_by_requeue = true, .uid = 5, .reason = "JobHeldUser" };
    }
}

static void teardown(void)
{
    char cmd[100];

    if (w)
        stop();
    agent = journal_free(agent);
    cr_assert_eq(uv_loop_close(&loop), 0);
    (void) snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    cr_assert_eq(system(cmd), 0);
}

TestSuite(watchdog, .init = setup, .fini = teardown, .timeout = 120);

static void hold(int job, enum journal_on_expiry way, enum journal_want want)
{
    struct journal_hold h = { .restarts = 1, .first_submit_s = 1000, .on_expiry = way, .want = want, .mode = JOURNAL_MODE_ACT,
                              .expires_wall_us = boot_us + wall_offset_us + HOUR };
    struct journal_life l = { .first_submit_s = 1000, .uid = 5, .restarts = 1, .submit_s = 2000 };

    (void) snprintf(h.job, sizeof(h.job), "%d", job);
    (void) snprintf(h.advice, sizeof(h.advice), "adv/%d", job);
    hold_comment_hash("{}", h.comment);
    cr_assert_eq(journal_append_hold(agent, &h, NULL), 0);
    cr_assert_eq(journal_append_life(agent, h.job, &l, NULL), 0);
}

static void agent_dies(void)
{
    agent = journal_free(agent);
}

/* @s seconds pass, with a look each five of them, or each minute of a long time. */
static void pass(int s)
{
    int step = s > 1000 ? 60 : 5;

    for (int i = 0; i <= s; i += step) {
        (void) uv_run(&loop, UV_RUN_ONCE); /* the timer is of one real millisecond */
        boot_us += step * 1000000ll;
    }
}

Test(watchdog, what_is_in_force_is_kept_until_it_expires)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_WANTED);
    agent_dies();
    start();
    pass(3000);
    cr_assert_eq(n_looks, 0);
    pass(590);
    cr_assert_eq(n_released, 0);
    pass(200);
    cr_assert_eq(n_released, 1);
    jobs[1].job.held = jobs[1].job.held_by_requeue = true; /* by somebody, and it looks as ours did */
    pass(4000);
    cr_assert_eq(n_released, 1, "a hold ends once");
    stop();
    start();
    pass(4000);
    cr_assert_eq(n_released, 1, "also after a restart");
}

Test(watchdog, an_agent_that_is_there_is_waited_for)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
    start();
    pass(580);
    cr_assert_eq(n_released, 0);
    pass(60);
    cr_assert_eq(n_released, 1);
}

Test(watchdog, an_agent_that_does_its_work_leaves_nothing)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
    start();
    pass(60);
    cr_assert_eq(journal_append_hold_end(agent, "1", NULL), 0);
    pass(1000);
    cr_assert_eq(n_looks, 0);
}

Test(watchdog, a_clock_that_jumps_expires_nothing)
{
    for (int i = 1; i <= JOBS; i++)
        hold(i, JOURNAL_RELEASE, JOURNAL_WANTED);
    agent_dies();
    start();
    pass(10);
    wall_offset_us += 10 * HOUR;
    pass(1800);
    cr_assert_eq(n_looks, 0);
    wall_offset_us -= 20 * HOUR; /* behind: it expires later */
    pass(7200);
    cr_assert_eq(n_looks, 0);
    wall_offset_us += 10 * HOUR;
    pass(200);
    cr_assert_gt(n_released, 0);
}

Test(watchdog, so_many_a_minute)
{
    for (int i = 1; i <= JOBS; i++)
        hold(i, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    start();
    pass(115);
    cr_assert_eq(n_released, 0);
    pass(55);
    cr_assert(n_released > 0 && n_released <= 6, "%u", n_released);
    pass(50);
    cr_assert_leq(n_released, 12);
    pass(600);
    cr_assert_eq(n_released, JOBS);
}

Test(watchdog, as_the_record_says)
{
    hold(1, JOURNAL_CANCEL, JOURNAL_OVER);
    hold(2, JOURNAL_LEAVE, JOURNAL_OVER);
    hold(3, JOURNAL_RELEASE, JOURNAL_AWAITING);
    agent_dies();
    start();
    pass(9000);
    cr_assert(n_cancelled == 1 && n_released == 0 && jobs[1].job.state == ADAPTER_JOB_CANCELLED);
    put_ceiling("mode: observe\n"); /* nobody can approve it any more */
    pass(200);
    cr_assert(n_cancelled == 1 && n_released == 1 && !jobs[3].job.held && jobs[2].job.held);
}

Test(watchdog, the_sites_word_is_read_before_each_write)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    put_ceiling("mode: act\nwatchdog: off\n");
    start();
    pass(900);
    put_ceiling("mode: act\nwatchdog: observe\n");
    pass(900);
    put_ceiling("mode: act\nwatchdog: nonsense\n");
    pass(900);
    cr_assert_eq(n_released, 0);
    put_ceiling("mode: off\n");
    pass(200);
    cr_assert_eq(n_released, 1);
}

static void forbid(void)
{
    put_ceiling("mode: act\nwatchdog: off\n");
}

static void agent_comes_back(void)
{
    if (!agent)
        cr_assert_eq(journal_open(state_dir, true, NULL, &agent, NULL), 0);
}

static void person_comments(void)
{
    jobs[1].comment = "mine";
}

static void person_cancels(void)
{
    jobs[1].job.state = ADAPTER_JOB_CANCELLED;
}

Test(watchdog, what_happens_in_the_last_moment_counts)
{
    void (*const events[])(void) = { forbid, agent_comes_back, person_comments, person_cancels };

    for (size_t i = 0; i < ADV_ARRAY_LEN(events); i++) {
        agent_comes_back();
        put_ceiling("mode: act\n");
        jobs[1].comment = "{}";
        jobs[1].job.state = ADAPTER_JOB_PENDING;
        hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
        agent_dies();
        before_write = events[i];
        start();
        pass(300);
        cr_assert_eq(n_released, 0, "%zu", i);
        stop();
    }
    before_write = NULL;
}

Test(watchdog, a_scheduler_that_is_away_tells_nothing)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    away = true;
    start();
    pass(3600);
    cr_assert_eq(n_released, 0);
    away = false;
    pass(700);
    cr_assert_eq(n_released, 1);
}

Test(watchdog, an_unknown_outcome_is_waited_for)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    lose_answer = true;
    start();
    pass(130);
    unsigned looks = n_looks;
    cr_assert_eq(looks, 1);
    lose_answer = false;
    pass(0);
    cr_assert_eq(n_looks, looks, "nothing is done while it may land");
    pass(60);
    cr_assert_eq(n_released, 1);
}

Test(watchdog, an_id_that_means_another_job_is_left_alone)
{
    for (int i = 1; i <= 5; i++)
        hold(i, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    jobs[1].job.uid = 6;
    jobs[2].job.submit_s = 1999;
    jobs[3].job.restart_count = 2;
    jobs[4].job.held_by_requeue = false;
    start();
    pass(2000);
    cr_assert(n_released == 1 && !jobs[5].job.held);
}

/* The agent's requeue was refused; it died before it could take the hold off the record, and a person has requeued and held
 * the job since. */
Test(watchdog, a_hold_that_never_came_about_is_a_persons)
{
    for (int i = 1; i <= 2; i++) {
        struct journal_intent in = { .verb = "preserve", .submit_s = 1000 };
        struct journal_outcome out = { .command = "refused", .reason = "wrong_state" };
        uint64_t seq;

        hold(i, JOURNAL_RELEASE, JOURNAL_OVER);
        (void) snprintf(in.job, sizeof(in.job), "%d", i);
        (void) snprintf(in.advice, sizeof(in.advice), "adv/%d", i);
        (void) snprintf(out.observed, sizeof(out.observed), "%s", i == 1 ? "no" : "yes");
        cr_assert_eq(journal_append_intent(agent, &in, 1, &seq, NULL), 0);
        cr_assert_eq(journal_append_outcome(agent, seq, &out, NULL), 0);
    }
    agent_dies();
    start();
    pass(2000);
    cr_assert(n_released == 1 && jobs[1].job.held && !jobs[2].job.held);
}

/* An earlier run was killed after its intent. */
static void left_over(int job)
{
    struct journal_intent in = { .verb = "release" };
    struct journal *its = NULL;
    char path[100];
    uint64_t seq;

    (void) snprintf(path, sizeof(path), "%s/watchdog", state_dir);
    (void) snprintf(in.job, sizeof(in.job), "%d", job);
    (void) snprintf(in.advice, sizeof(in.advice), "adv/%d", job);
    cr_assert_eq(journal_open(path, true, NULL, &its, NULL), 0);
    cr_assert_eq(journal_append_intent(its, &in, 1, &seq, NULL), 0);
    (void) journal_free(its);
}

static const char *left_over_became(int job)
{
    struct journal_view *v = NULL;
    const struct journal_step *s;
    static char observed[16];
    char path[100], id[8];
    size_t pos = 0;
    bool changed;

    (void) snprintf(path, sizeof(path), "%s/watchdog", state_dir);
    (void) snprintf(id, sizeof(id), "%d", job);
    (void) strcpy(observed, "open");
    cr_assert_eq(journal_view_new(path, JOURNAL_VIEW_STEPS, &v, NULL), 0);
    cr_assert_eq(journal_view_refresh(v, &changed, NULL), 0);
    while ((s = journal_view_next_step(v, &pos)))
        if (strcmp(s->intent.job, id) == 0 && s->done)
            (void) strcpy(observed, s->outcome.observed);
    (void) journal_view_free(v);
    return observed;
}

Test(watchdog, what_an_earlier_run_began_is_settled_by_a_look)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
    hold(2, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    left_over(1);
    left_over(2);
    left_over(3); /* whose hold has gone */
    jobs[1].job.held = jobs[1].job.held_by_requeue = false; /* it had landed */
    cfg.gone_ms = 0;
    start();
    pass(20);
    cr_assert_eq(n_looks, 0, "it may still land");
    cr_assert_str_eq(left_over_became(1), "open");
    cr_assert_str_eq(left_over_became(3), "open");
    pass(60);
    cr_assert_eq(n_released, 1);
    cr_assert(!jobs[2].job.held);
    cr_assert_str_eq(left_over_became(1), "yes");
    cr_assert_str_eq(left_over_became(2), "yes");
    cr_assert_str_eq(left_over_became(3), "unknown");
}

Test(watchdog, a_damaged_journal_is_left_alone)
{
    char path[100];

    hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
    hold(2, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    (void) snprintf(path, sizeof(path), "%s/journal", state_dir);
    int fd = open(path, O_WRONLY);
    cr_assert(fd >= 0 && pwrite(fd, "\x01", 1, 40) == 1);
    (void) close(fd);
    start();
    pass(3600);
    cr_assert_eq(n_looks, 0);
    cr_assert(!watchdog_well(w));
}

Test(watchdog, where_another_agent_may_have_it_no_time_is_enough)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_WANTED);
    hold(2, JOURNAL_RELEASE, JOURNAL_ELSEWHERE);
    hold(3, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    cfg.only_agent = false;
    start();
    pass(9000);
    cr_assert(n_released == 1 && !jobs[3].job.held);
    stop();
    cfg.only_agent = true;
    start();
    pass(9000);
    cr_assert(n_released == 2 && !jobs[1].job.held && jobs[2].job.held);
}

Test(watchdog, one_at_a_time)
{
    struct watchdog *second = NULL;

    start();
    cr_assert_eq(watchdog_new(&loop, &cfg, NULL, &second, NULL), -ADV_ALREADY_EXISTS);
}

Test(watchdog, once)
{
    hold(1, JOURNAL_RELEASE, JOURNAL_OVER);
    hold(2, JOURNAL_RELEASE, JOURNAL_WANTED);
    hold(3, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    cfg.once = true;
    start();
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(n_looks == 2 && n_released == 0);
    w = watchdog_free(w);
    cfg.gone_ms = cfg.there_ms = 0;
    start();
    (void) uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(n_released == 2 && jobs[2].job.held);
    w = watchdog_free(w);
}

/* More than may be ended in a minute: it goes on after that, and none is left. */
Test(watchdog, once_ends_all_there_is)
{
    for (int i = 1; i <= JOBS; i++)
        hold(i, JOURNAL_RELEASE, JOURNAL_OVER);
    agent_dies();
    cfg.once = true;
    cfg.gone_ms = cfg.there_ms = 0;
    start();
    (void) uv_run(&loop, UV_RUN_ONCE);
    cr_assert_eq(n_released, 6);
    pass(50);
    cr_assert_eq(n_released, 6);
    pass(250);
    cr_assert_eq(n_released, JOBS);
    cr_assert_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    w = watchdog_free(w);
}
