/* SPDX-License-Identifier: Apache-2.0 */
/* One fault on 512 ranks, of which all scream: the verdict has to name the first fault, whatever launcher marked the
 * lines, in whatever order they came, with clocks that disagree or without any. */
#include "controlplane/replay/replay.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "common/buf.h"

#define RANKS    512
#define PER_NODE 8
#define CULPRIT  137 /* on node n18 */

enum style { PLAIN, SRUN_LABEL, TORCHRUN, TORCHRUN_DEFAULT, MPIRUN, PRRTE, DEEPSPEED, KUBECTL, STAMPED, N_STYLES };

static const char *const style_names[] = { "plain",  "srun --label", "torchrun",  "torchrun default", "mpirun",
                                           "prterun", "deepspeed",    "kubectl", "time stamps that disagree" };

static uint32_t seed;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void line(struct adv_buf *b, enum style style, int rank, const char *text)
{
    int node = rank / PER_NODE + 1, r = 0;

    switch (style) {
    case SRUN_LABEL:
        r = adv_buf_appendf(b, "%3d: ", rank);
        break;
    case TORCHRUN:
        r = adv_buf_appendf(b, "[rank%d]:", rank);
        break;
    case TORCHRUN_DEFAULT:
        r = adv_buf_appendf(b, "[default%d]:[rank%d]: ", rank % PER_NODE, rank);
        break;
    case MPIRUN:
        r = adv_buf_appendf(b, "[1,%d]<stderr>:", rank);
        break;
    case PRRTE:
        r = adv_buf_appendf(b, "[prterun-n1-99@1,%d]<stderr>: ", rank);
        break;
    case DEEPSPEED:
        r = adv_buf_appendf(b, "n%d: [rank%d]: ", node, rank);
        break;
    case KUBECTL:
        r = adv_buf_appendf(b, "[pod/train-worker-%d/pytorch] [rank%d]: ", node, rank);
        break;
    case STAMPED: /* each node's clock is off by up to four minutes: the order of lines is what counts */
        r = adv_buf_appendf(b, "2024-01-01T10:%02d:%02d.000Z [rank%d]: ", 30 + node * 7 % 9 - 4, (int) draw(60), rank);
        break;
    case PLAIN:
    case N_STYLES:
        break;
    }
    cr_assert_eq(r, 0);
    cr_assert_eq(adv_buf_appendf(b, "%s\n", text), 0);
}

/* What a rank prints when another one has died. */
static const char *const screams[] = {
    "Traceback (most recent call last):",
    "  File \"train.py\", line 7, in step",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1, remote process exited or there was a network "
    "error, NCCL version 2.20.5",
    "RuntimeError: Connection reset by peer",
    "[E1 ProcessGroupNCCL.cpp:1] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) "
    "ran for 600009 milliseconds before timing out.",
    "terminate called after throwing an instance of 'c10::DistBackendError'",
};

static void crash(struct adv_buf *b, enum style style, const char *const *fault, size_t n_fault, bool first)
{
    int at[RANKS] = { 0 };

    for (int step = 40; step < 44; step++) {
        char text[128];
        (void) snprintf(text, sizeof(text), " iteration %7d/    5000 | consumed samples: 9 | elapsed time per iteration (ms): 9.1 |", step);
        line(b, style, RANKS - 1, text);
    }
    for (size_t i = 0; first && i < n_fault; i++)
        line(b, style, CULPRIT, fault[i]);
    for (int left = RANKS * (int) ADV_ARRAY_LEN(screams); left > 0; left--) {
        int rank = (int) draw(RANKS);
        while (at[rank] == (int) ADV_ARRAY_LEN(screams))
            rank = (rank + 1) % RANKS;
        if (rank != CULPRIT)
            line(b, style, rank, screams[at[rank]]);
        at[rank]++;
        for (size_t i = 0; !first && left == RANKS && i < n_fault; i++) /* block-buffered: it comes late */
            line(b, style, CULPRIT, fault[i]);
    }
    for (int node = 1; node <= RANKS / PER_NODE; node++)
        cr_assert_eq(adv_buf_appendf(b, "srun: error: n%d: task %d: Exited with exit code 1\n", node, node - 1), 0);
    cr_assert_eq(adv_buf_append_str(b, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
                                       "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2024-01-01T10:00:00 ***\n"), 0);
}

static struct watcher_rules *shipped(void)
{
    struct watcher_rules *rules = NULL;
    struct adv_err e;

    cr_assert_eq(watcher_rules_load(ADVISOR_RULES_DIR, &rules, &e), 0, "%s", e.msg);
    return rules;
}

static const struct {
    const char *lines[3];
    const char *fault_class, *rule, *outcome, *alone; /* the outcome where no line names a host */
} faults[] = {
    { { "Traceback (most recent call last):", "RuntimeError: CUDA error: uncorrectable ECC error encountered" },
      "gpu_hardware", "cuda-ecc-uncorrectable", "RESTART_EXCLUDING_NODES", "RESTART" },
    { { "Traceback (most recent call last):", "OSError: [Errno 116] Stale file handle: '/data/shard-3'" },
      "storage", "stale-file-handle", "RESTART", "RESTART" },
    { { "Traceback (most recent call last):", "  File \"train.py\", line 9, in load", "KeyError: 'labels'" },
      "application_bug", "python-user-error", "TERMINATE", "TERMINATE" },
    { { "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB." },
      "gpu_memory", "gpu-out-of-memory", "TERMINATE", "TERMINATE" },
};

Test(replay, one_fault_of_512_ranks, .timeout = 300)
{
    ADV_AUTO(watcher_rules) rules = shipped();

    for (int style = 0; style < N_STYLES; style++)
        for (size_t i = 0; i < ADV_ARRAY_LEN(faults); i++)
            for (int first = 0; first < 2; first++) {
                struct replay_options o = { .rules = rules, .nodes = "n[1-64]" };
                ADV_AUTO_DONE(replay_verdict) v = { 0 };
                ADV_AUTO_DONE(adv_buf) b;
                struct adv_err e;
                size_t n = 0;
                const char *outcome = style == DEEPSPEED ? faults[i].outcome : faults[i].alone;

                seed = (uint32_t) (style * 100 + first * 10 + (int) i);
                while (n < 3 && faults[i].lines[n])
                    n++;
                adv_buf_init(&b, 16 << 20);
                crash(&b, (enum style) style, faults[i].lines, n, first);
                cr_assert_eq(replay_run(&o, b.data, b.len, &v, &e), 0, "%s", e.msg);
                cr_expect_str_eq(v.rule, faults[i].rule, "%s: %s", style_names[style], v.rule);
                cr_expect_str_eq(v.fault_class, faults[i].fault_class);
                cr_expect_str_eq(replay_kind(&v), "crash");
                cr_expect_str_eq(replay_outcome(&v), outcome, "%s: %s", style_names[style], replay_outcome(&v));
                cr_expect_geq(v.n_consequences, 3);
                if (adv_streq(outcome, "RESTART_EXCLUDING_NODES"))
                    cr_expect_str_eq(v.exclude_nodes, "n18");
                else
                    cr_expect_null(v.exclude_nodes);
            }
}

static void judge(struct watcher_rules *rules, enum watcher_scope stream, const char *node, enum job_state state,
                  const char *text, const char *kind, const char *outcome)
{
    struct replay_options o = { .rules = rules, .stream = stream, .node = node, .state = state };
    ADV_AUTO_DONE(replay_verdict) v = { 0 };
    struct adv_err e;

    cr_assert_eq(replay_run(&o, text, strlen(text), &v, &e), 0, "%s", e.msg);
    cr_expect_str_eq(replay_kind(&v), kind, "%s -> %s by %s", text, replay_kind(&v), v.rule);
    cr_expect_str_eq(replay_outcome(&v), outcome, "%s -> %s by %s", text, replay_outcome(&v), v.rule);
}

#define ECC  "n3: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
#define STEP(i) "n1:  iteration " i "/     500 | consumed samples: 9 | elapsed time per iteration (ms): 9.1 |\n"

/* How an attempt ended weighs more than its log. */
Test(replay, the_end_counts, .timeout = 60)
{
    ADV_AUTO(watcher_rules) rules = shipped();
    const enum watcher_scope app = WATCHER_SCOPE_APPLICATION;

    judge(rules, app, NULL, JOB_UNKNOWN, ECC, "crash", "RESTART_EXCLUDING_NODES");
    judge(rules, app, NULL, JOB_FAILED, ECC, "crash", "RESTART_EXCLUDING_NODES");
    judge(rules, app, NULL, JOB_COMPLETED, ECC, "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_CANCELLED, ECC, "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_TIMEOUT, ECC, "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_PREEMPTED, ECC, "none", "NO_ACTION");
    /* silence after it on a running job that had shown progress; not on one that had not */
    judge(rules, app, NULL, JOB_RUNNING, STEP("40") ECC, "crash", "RESTART_EXCLUDING_NODES");
    judge(rules, app, NULL, JOB_RUNNING, ECC, "none", "NO_ACTION");
    /* survived */
    judge(rules, app, NULL, JOB_UNKNOWN, STEP("40") ECC STEP("41") STEP("42"), "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_UNKNOWN, STEP("40") ECC "Restarting worker group\n", "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_UNKNOWN, STEP("40") "[after training is done] datetime: x\n" ECC, "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_UNKNOWN, "", "none", "NO_ACTION");
}

Test(replay, node_logs, .timeout = 60)
{
    ADV_AUTO(watcher_rules) rules = shipped();
    struct replay_options o = { .rules = rules, .stream = WATCHER_SCOPE_NODE, .node = "n7" };
    static const char notice[] = "NVRM: Xid (PCI:0000:1a:00): 63, pid=22, Row Remapper: New row marked for remapping\n";
    ADV_AUTO_DONE(replay_verdict) v = { 0 };

    judge(rules, WATCHER_SCOPE_NODE, "n7", JOB_UNKNOWN, "NVRM: Xid (PCI:0000:1a:00): 79, pid=10, GPU has fallen off the bus.\n",
          "crash", "RESTART_EXCLUDING_NODES");
    judge(rules, WATCHER_SCOPE_NODE, "n7", JOB_UNKNOWN, "KeyError: 'x'\n", "none", "NO_ACTION"); /* not what a node log tells */
    cr_assert_eq(replay_run(&o, notice, sizeof(notice) - 1, &v, NULL), 0);
    cr_expect_str_eq(replay_kind(&v), "none");
    cr_expect_str_eq(v.notice_class, "gpu_hardware");
    cr_expect_str_eq(v.notice_nodes, "n7");
}

/* What a log's own times say. */
Test(replay, times_in_the_log, .timeout = 60)
{
    ADV_AUTO(watcher_rules) rules = shipped();
    ADV_AUTO_DONE(adv_buf) slow;
    const enum watcher_scope app = WATCHER_SCOPE_APPLICATION;

    /* other lines come, hours long, and none of progress: it stands still, and that is all that is known */
    judge(rules, app, NULL, JOB_UNKNOWN, STEP("40") "[2024-01-01 10:00:00] still running\n[2024-01-01 12:00:00] still running\n",
          "hang", "NO_ACTION");
    judge(rules, app, NULL, JOB_UNKNOWN, STEP("40") "[2024-01-01 10:00:00] still running\n[2024-01-01 10:10:00] still running\n",
          "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_UNKNOWN,
          STEP("40") "[2024-01-01 10:00:00] still running\n[...]\n[2024-01-01 12:00:00] still running\n", "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_UNKNOWN,
          STEP("40") "[2024-01-01 10:00:00] still running\n[2024-01-01 12:00:00] still running\n" STEP("41") STEP("42"), "none",
          "NO_ACTION");
    /* it would have been interrupted before the last line came */
    judge(rules, app, NULL, JOB_UNKNOWN,
          STEP("40") "[2024-01-01 10:00:00] a\n" ECC "[2024-01-01 12:00:00] still running\n" STEP("41") STEP("42"),
          "crash", "RESTART_EXCLUDING_NODES");
    /* the pace that the program tells */
    adv_buf_init(&slow, 1 << 20);
    for (int i = 0; i < 400; i++)
        cr_assert_eq(adv_buf_appendf(&slow, " iteration %d/ 500 | consumed samples: 9 | elapsed time per iteration (ms): %d.0 |\n", i,
                                     i < 250 ? 20000 + i % 3 * 100 : 35000 + i % 3 * 100), 0);
    judge(rules, app, NULL, JOB_UNKNOWN, slow.data, "straggler", "NO_ACTION");
}

/* Nothing is done about it, yet it is told. */
Test(replay, what_stands, .timeout = 60)
{
    ADV_AUTO(watcher_rules) rules = shipped();
    const enum watcher_scope app = WATCHER_SCOPE_APPLICATION, node = WATCHER_SCOPE_NODE;

    judge(rules, app, NULL, JOB_UNKNOWN, STEP("40") "rank 5 is a straggler: 1.4 times the median\n", "straggler", "NO_ACTION");
    judge(rules, app, NULL, JOB_UNKNOWN, "Received preemption notice, saving and leaving\n", "none", "NO_ACTION");
    judge(rules, app, NULL, JOB_UNKNOWN, STEP("40") "socket.gaierror: [Errno -2] Name or service not known\n", "hang", "NO_ACTION");
    judge(rules, node, "n7", JOB_UNKNOWN, "INFO: task python:24916 blocked for more than 120 seconds.\n", "hang", "NO_ACTION");
}

Test(replay, bad_host_list)
{
    ADV_AUTO(watcher_rules) rules = shipped();
    struct replay_options o = { .rules = rules, .nodes = "n[1-" };
    ADV_AUTO_DONE(replay_verdict) v = { 0 };
    struct adv_err e;

    cr_expect_eq(replay_run(&o, "x\n", 2, &v, &e), -ADV_INVALID_ARGUMENT);
}
