/* SPDX-License-Identifier: Apache-2.0 */

/* What is read again when a log stream begins anew, and what is told of a log: with files and a control plane
 * that do what the test says. Time passes when it says so, too (--wrap=adv_mono_us). */

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "advisor-agent/config.h"
#include "advisor-agent/internal.h"
#include "common/clock.h"

#define S 1000000ll

struct tail_watch {
    void *user;
    bool open;
    uint64_t offset, rewound_to;
    bool behind;
};

static struct agent a;
static struct agent_config cfg;
static int dummy_session, dummy_tails;
static const struct tail_ops *tail_ops;
static struct tail_watch watches[4];
static size_t n_watches;
static int64_t now_us;

/* The control plane */
static bool stream_open, telemetry_refused;
static uint64_t taken, left;
static advisor_v1_TelemetryReport told;
static unsigned n_told;

int64_t __wrap_adv_mono_us(void);
int64_t __wrap_adv_mono_us(void)
{
    return now_us;
}

bool session_push_log(struct session *s, const advisor_v1_LogChunk *chunk, const void *data, size_t len)
{
    taken += len;
    return true;
}

bool session_logs_count(const struct session *s, uint64_t *ret_taken, uint64_t *ret_left)
{
    *ret_taken = taken;
    *ret_left = left;
    return stream_open;
}

int session_send_telemetry(struct session *s, const advisor_v1_TelemetryReport *m, bool last, struct adv_err *err)
{
    if (telemetry_refused && !last)
        return adv_err_set(err, ADV_RESOURCE_EXHAUSTED, "full");
    told = *m;
    n_told++;
    return 0;
}

int tail_manager_new(uv_loop_t *loop, const struct tail_config *c, const struct tail_ops *ops, void *ctx,
                     struct tail_manager **ret, struct adv_err *err)
{
    tail_ops = ops;
    *ret = (struct tail_manager *) (void *) &dummy_tails;
    return 0;
}

void tail_manager_resume(struct tail_manager *m)
{
}

int tail_watch(struct tail_manager *m, const struct tail_watch_args *args, struct tail_watch **ret, struct adv_err *err)
{
    cr_assert_lt(n_watches, ADV_ARRAY_LEN(watches));
    watches[n_watches] = (struct tail_watch) { .user = args->user, .open = true, .rewound_to = UINT64_MAX };
    *ret = &watches[n_watches++];
    return 0;
}

struct tail_watch *tail_unwatch(struct tail_watch *w)
{
    if (w)
        w->open = false;
    return NULL;
}

void *tail_watch_user(const struct tail_watch *w)
{
    return w->user;
}

uint64_t tail_watch_offset(const struct tail_watch *w)
{
    return w->offset;
}

bool tail_watch_behind(const struct tail_watch *w)
{
    return w->behind;
}

void tail_watch_rewind(struct tail_watch *w, uint64_t offset)
{
    w->offset = w->rewound_to = offset;
}

bool tail_path_has_id(const void *path, size_t len, const char *id)
{
    return true;
}

struct tail_start tail_start_rule(bool first, bool append, bool seen, uint64_t seen_size)
{
    return (struct tail_start) { 0, true };
}

/* A running job whose output is followed. */
static int64_t no_submit(void *ctx, const struct adapter_job *j)
{
    return 0;
}

static uint32_t restarts;
static bool completing;
static int64_t end_s;

static void job_is(enum adapter_job_state state)
{
    struct adapter_job_detail d = { .comment = "", .excluded_nodes = "", .required_nodes = "", .stdout_path = "/out",
                                    .stderr_path = "" };

    d.job = (struct adapter_job) { .id = "7", .state = state, .submit_s = 1000 + 100 * restarts, .restart_count = restarts,
                                   .start_s = 1001 + 100 * restarts, .uid = 500, .completing = completing, .end_s = end_s,
                                   .batch = true, .reason = "", .partition = "p", .account = "acc", .user = "u",
                                   .qos = "", .nodes = "n1" };
    cr_assert_eq(snapshot_detail(a.snapshot, &d, NULL), 0);
    logs_update(&a);
}

static void setup(void)
{
    now_us = 1000 * S;
    cfg = (struct agent_config) { .cluster = (char *) "c", .tail = true };
    a = (struct agent) { .cfg = &cfg, .session = (struct session *) (void *) &dummy_session };
    a.lease.held = true;
    a.snapshot = snapshot_new(no_submit, NULL);
    cr_assert(a.snapshot);
    cr_assert_eq(logs_start(&a, NULL), 0);
    job_is(ADAPTER_JOB_RUNNING);
    cr_assert_eq(n_watches, 1);
    stream_open = true;
    logs_opened(&a);
}

static void teardown(void)
{
    logs_free(&a);
    a.snapshot = snapshot_free(a.snapshot);
}

TestSuite(logs, .init = setup, .fini = teardown, .timeout = 60);

/* @n lines of ten bytes, @dropped bytes left out before them. */
static void lines(unsigned n, uint64_t dropped)
{
    struct tail_watch *w = &watches[0];

    w->offset += dropped;
    for (unsigned i = 0; i < n; i++, dropped = 0) {
        cr_assert(tail_ops->on_data(&a, w, w->offset, (const uint8_t *) "line line\n", 10, dropped));
        w->offset += 10;
    }
}

static void beats(unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++) {
        now_us += S;
        logs_acked(&a);
    }
}

static uint64_t read_again_from(void)
{
    logs_opened(&a);
    return watches[0].rewound_to;
}

Test(logs, a_new_stream_begins_before_what_was_sent_last)
{
    lines(5, 0);
    left = taken;
    beats(30);
    lines(5, 0);
    left = taken;
    beats(5);
    cr_assert_eq(read_again_from(), 50);
}

/* The control plane is alive, but has not read these bytes. */
Test(logs, what_waits_in_the_queue_is_not_safe)
{
    lines(5, 0);
    beats(100);
    cr_assert_eq(read_again_from(), 0);
}

/* A mark that was made when bytes waited is safe some time after they have left, not before. */
Test(logs, what_has_left_is_safe_a_while_later)
{
    lines(5, 0);
    left = taken;
    beats(11); /* a mark behind these */
    lines(5, 0);
    beats(100);
    left = taken;
    beats(5);
    cr_assert_leq(read_again_from(), 50);
    lines(10, 0);
    left = taken;
    beats(60);
    cr_assert_eq(read_again_from(), 100);
}

/* Others' bytes wait, and go on leaving: no log is read again from its beginning for that. */
Test(logs, a_queue_that_moves_is_no_reason_to_stop)
{
    for (int i = 0; i < 100; i++) {
        lines(10, 0);
        left = taken - 500;
        beats(1);
    }
    cr_assert_geq(read_again_from(), 7000);
}

/* It stands still: what left just before may not have been scanned. */
Test(logs, a_queue_that_stands_still_makes_nothing_safe)
{
    lines(5, 0);
    left = taken;
    beats(11);
    lines(5, 0);
    left = taken;
    taken += 1000; /* of another log */
    beats(100);
    cr_assert_leq(read_again_from(), 50);
}

/* Without a stream nobody reads. */
Test(logs, a_stream_that_is_closed_makes_nothing_safe)
{
    lines(5, 0);
    left = taken;
    stream_open = false;
    beats(100);
    cr_assert_eq(read_again_from(), 0);
}

/* Left out bytes are told before the place where they are missing is passed. */
Test(logs, bytes_that_were_left_out_are_told_first)
{
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_COMPLETE, "", 0);
    lines(5, 0);
    left = taken;
    beats(30);
    telemetry_refused = true;
    lines(5, 1000);
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_PARTIAL, "too far behind", 1000);
    left = taken;
    beats(60);
    cr_assert_eq(n_told, 1);
    cr_assert_leq(read_again_from(), 50);
    telemetry_refused = false;
    beats(1);
    cr_assert_eq(n_told, 2);
    cr_assert_eq(told.dropped_bytes, 1000);
    lines(1, 1000);
    left = taken;
    beats(60);
    cr_assert_gt(read_again_from(), 1000);
}

/* A control plane that asks for everything may know nothing of a log, however long ago it was told. */
Test(logs, all_is_told_again)
{
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_LOST, "permission denied", 0);
    cr_assert_eq(n_told, 1);
    beats(10);
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_LOST, "permission denied", 0);
    cr_assert_eq(n_told, 1);
    logs_tell_again(&a);
    cr_assert_eq(n_told, 2);
    cr_assert_str_eq(told.attempt.job_id, "7");
    cr_assert_str_eq(told.reason, "permission denied");
}

Test(logs, what_is_refused_is_told_later)
{
    telemetry_refused = true;
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_LOST, "permission denied", 0);
    beats(3);
    cr_assert_eq(n_told, 0);
    telemetry_refused = false;
    beats(1);
    cr_assert_eq(n_told, 1);
    cr_assert_eq(told.state, advisor_v1_TelemetryState_TELEMETRY_STATE_LOST);
    beats(5);
    cr_assert_eq(n_told, 1);
}

static void wait_for_the_end(unsigned seconds)
{
    for (unsigned i = 0; i < seconds && watches[0].open; i++) {
        beats(1);
        logs_update(&a);
    }
}

Test(logs, an_ended_log_is_read_for_a_while)
{
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_COMPLETE, "", 0);
    job_is(ADAPTER_JOB_FAILED);
    wait_for_the_end(4);
    wait_for_the_end(4);
    cr_assert_not(watches[0].open);
    cr_assert_eq(told.state, advisor_v1_TelemetryState_TELEMETRY_STATE_COMPLETE);
}

/* A burst at the end, and no room for it: the helper says so when it has waited for five seconds, at its next tick. */
Test(logs, a_burst_at_the_end_is_no_silence)
{
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_COMPLETE, "", 0);
    job_is(ADAPTER_JOB_FAILED);
    wait_for_the_end(7);
    cr_assert(watches[0].open, "its end may wait, and nobody can know yet");
    watches[0].behind = true;
    wait_for_the_end(20);
}

/* The control plane is slow: the last lines, which matter most, still wait here. */
Test(logs, a_requeue_that_completes_begins_no_attempt)
{
    restarts = 1; /* counted at once, while the first attempt's processes still end */
    completing = true;
    end_s = 1150;
    job_is(ADAPTER_JOB_PENDING);
    cr_assert_eq(n_watches, 1);
    completing = false;
    end_s = 0;
    job_is(ADAPTER_JOB_RUNNING);
    cr_assert_eq(n_watches, 2);
}

Test(logs, the_last_lines_are_waited_for)
{
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_COMPLETE, "", 0);
    watches[0].behind = true;
    job_is(ADAPTER_JOB_FAILED);
    wait_for_the_end(20);
    watches[0].behind = false;
    lines(5, 0);
    wait_for_the_end(20);
    cr_assert(watches[0].open, "they are in the queue");
    left = taken;
    wait_for_the_end(2);
    cr_assert_not(watches[0].open);
    cr_assert_eq(n_told, 1);
}

/* Not for ever; but then it is said. */
Test(logs, last_lines_that_were_not_read_are_told)
{
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_COMPLETE, "", 0);
    watches[0].behind = true;
    job_is(ADAPTER_JOB_FAILED);
    wait_for_the_end(100);
    cr_assert_not(watches[0].open);
    cr_assert_eq(n_told, 2);
    cr_assert_eq(told.state, advisor_v1_TelemetryState_TELEMETRY_STATE_PARTIAL);
    cr_assert_str_eq(told.reason, "the last lines were not read");
}

static void the_job_runs_again(void)
{
    restarts++;
    job_is(ADAPTER_JOB_RUNNING);
    cr_assert_not(watches[0].open);
}

/* The next attempt is there, and the record of this one goes: what was not told of it is told now, though all else has to
 * wait. */
Test(logs, what_became_of_a_log_is_told_before_it_is_forgotten)
{
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_COMPLETE, "", 0);
    watches[0].behind = true;
    telemetry_refused = true;
    the_job_runs_again();
    cr_assert_eq(n_told, 2);
    cr_assert_eq(told.attempt.restart_count, 0);
    cr_assert_eq(told.state, advisor_v1_TelemetryState_TELEMETRY_STATE_PARTIAL);
}

/* A count that has risen just now as well. */
Test(logs, what_was_left_out_last_is_told_before_it_is_forgotten)
{
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_PARTIAL, "too far behind", 1000);
    tail_ops->on_state(&a, &watches[0], TAIL_STATE_PARTIAL, "too far behind", 2000);
    cr_assert_eq(told.dropped_bytes, 1000);
    the_job_runs_again();
    cr_assert_eq(told.attempt.restart_count, 0);
    cr_assert_eq(told.dropped_bytes, 2000);
}
