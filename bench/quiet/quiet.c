/* SPDX-License-Identifier: Apache-2.0 */
/* quiet --write LINES SEED: such logs, to stdout.
 * quiet LINES SEED RULES: logs of healthy jobs of many frameworks, full of frightening words, through the watcher and the
 * domain; prints how many were acted upon. What it writes is made up from templates and a seed, so it can be had again.
 *
 * Each log is one attempt of LOG_LINES lines in the manner of one launcher and one or two frameworks. Between its steps
 * stand lines that sound bad: warnings, retries, samples that are skipped, errors that are caught and printed whole with their
 * traceback, restarts by the launcher inside the job. All of it is survived, that is, steps go on after it. An action is
 * whatever is not NO_ACTION at the end, with the attempt still running in silence, and with it ended FAILED. */

#include <stdio.h>
#include <time.h>

#include "common/num.h"
#include "controlplane/replay/replay.h"

#define LOG_LINES 50000
#define STEPS_END 6 /* a log ends with that many steps */

static uint64_t state;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) ((state >> 33) % n);
}

/* $S step, $T total, $N a number, $F a fraction, $H a host, $R a rank, $C a checkpoint's folder */
static const char *const steps[] = {
    " iteration $S/ $T | consumed samples: $N | elapsed time per iteration (ms): $F | learning rate: 1.0E-04 | global batch size: 512 | lm loss: $F | grad norm: $F | number of skipped iterations:   0 | number of nan iterations:   0 |",
    "[2024-01-01 10:00:00,000] [INFO] [logging.py:68:log_dist] [Rank 0] step=$S, skipped=3, lr=[0.1], mom=[(0.9, 0.95)]",
    "Training epoch 0, iteration $S/$T | lr: 1e-06 | global_batch_size: 512 | global_step: $S | reduced_train_loss: $F | train_step_timing in s: $F",
    "[titan] 2024-01-01 10:00:00,000 - root - INFO - step: $S  loss:  $F  memory: 40.1GiB(50.1%)  tps: $N  mfu: 40.1%",
    " 12%|#1        | $S/$T [10:00<60:00,  1.20s/it]",
    "Epoch 3:  10%|#         | $S/$T [10:00<90:00, 1.20s/it, loss=2.5, v_num=1]",
    "[batch=$S/$T]:",
    "completed step: $S, seconds: $F, TFLOP/s/device: 190.1, Tokens/s/device: $N, loss: $F",
    "INFO:tensorflow:global step $S: loss = $F ($F sec/step)",
    "I0101 10:00:00.000000 139 trainer.py:1] Training: step $S",
    "| epoch 001:  10%| | $S/$T [10:00<90:00, 1.2s/it, loss=2.1, wps=$N, num_updates=$S]",
    "step $S | loss: $F | lr: 0.001 | tok/s: $N | error: $F | timeouts: 0",
    "iter $S: loss $F, time: 120.00ms",
    "eta: 1:00:00  iter: $S  total_loss: $F  loss_cls: $F  time: 0.5",
};

static const char *const loads[] = {
    "[W socket.cpp:558] [c10d] The client socket has failed to connect to [$H]:29500 (errno: 111 - Connection refused).",
    "[W socket.cpp:426] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not supported by protocol).",
    "[W ProcessGroupNCCL.cpp:1856] [PG 0 Rank $R] using GPU 0 to perform barrier as devices used by this process are currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect.",
    "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`. Failure to do this will result in PyTorch skipping the first value of the learning rate schedule.",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...",
    "WARNING: Failed to load apex, falling back to native layer norm",
    "2024-01-01 10:00:00.1: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared object file: No such file or directory",
    "2024-01-01 10:00:00.1: W tensorflow/core/common_runtime/bfc_allocator.cc:275] Allocator (GPU_0_bfc) ran out of memory trying to allocate $FGiB with freed_by_count=0. The caller indicates that this is not a failure",
    "$H:10:20 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
    "$H:10:20 [0] misc/nvmlwrap.cc:183 NCCL WARN nvmlDeviceGetNvLinkState() failed: Not Supported",
    "$H:10:20 [0] NCCL INFO [Service thread] Connection closed by localRank $R",
    "[deepspeed] OVERFLOW! Rank $R Skipping step. Attempted loss scale: $N, reducing to $N",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to $F",
    "> WARNING: could not find the metadata file $C/latest_checkpointed_iteration.txt",
    "wandb: Network error (ConnectionError), entering retry loop.",
    "wandb: 429 encountered (Filestream rate limit exceeded, retrying in $F seconds.), retrying request",
    "2024-01-01 10:00:00 - WARNING - ConnectionError: hub is away, retrying in 5 s",
    "WARNING: sample $N dropped: KeyError: 'labels'",
    "Skipping batch $N: loss is nan",
    "slurmstepd: error: _is_a_lwp: 1 read() attempts on /proc/$N/status failed: No such process",
    "bash: module: command not found",
    "(raylet) Warning: The actor ImplicitFunc is very large ($N MiB). Check that its definition is not implicitly capturing a large array",
    "eval: error rate $F, timeouts $N, aborted $N, killed 0, oom_kills: 0",
    "uncorrectable ECC errors: 0, NVLink errors: 0, Xid errors: none",
    "saving checkpoint at iteration $S to $C",
    "  successfully saved checkpoint at iteration $S to $C",
    "rotating checkpoints: removed $C/checkpoint-$S",
    "Corrupt JPEG data: $N extraneous bytes before marker 0xd9",
    "OSError: Input/output error while reading shard $N, attempt 2 of 5",
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
    "Received SIGUSR1: saving checkpoint before the time limit",
    "W0101 10:00:00.0 139 torch/_dynamo/convert_frame.py:1] WON'T CONVERT forward: skipping because of error: Unsupported: call_function",
    "Note: \"RuntimeError: CUDA error: device-side assert triggered\" means that a label is out of range.",
    "+ echo \"if this ends with No space left on device, clean $C\"",
};

/* Caught and printed whole: the domain has to see that steps go on after them. */
static const char *const caught[] = {
    "Traceback (most recent call last):\n  File \"upload.py\", line $N, in put\nConnectionResetError: [Errno 104] Connection reset by peer",
    "Exception ignored in: <function Pool.__del__ at 0x7f00>\nTraceback (most recent call last):\n  File \"pool.py\", line 1, in __del__\nOSError: [Errno 5] Input/output error",
    "Traceback (most recent call last):\n  File \"data.py\", line $N, in load\nKeyError: 'labels'",
    "ERROR - eval failed, going on\nTraceback (most recent call last):\n  File \"eval.py\", line $N, in score\nRuntimeError: CUDA out of memory. Tried to allocate $F GiB",
    "$H:10:20 [1] net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer 10.0.0.4<4000> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
    "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='hub.example.org', port=443): Read timed out. (read timeout=10)",
    "[default] worker group FAILED. 2/3 attempts left; will restart worker group",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=77.extern. Some of the step tasks have been OOM Killed.",
    "OSError: [Errno 116] Stale file handle: '$C/old'",
};

static uint64_t step_now;

static void text(struct adv_buf *b, const char *t)
{
    for (; *t; t++) {
        if (*t != '$') {
            (void) adv_buf_append_byte(b, (uint8_t) *t);
            continue;
        }
        t++;
        switch (*t) {
        case 'S':
            (void) adv_buf_appendf(b, "%llu", (unsigned long long) step_now);
            break;
        case 'T':
            (void) adv_buf_append_str(b, "9000000");
            break;
        case 'N':
            (void) adv_buf_appendf(b, "%u", draw(100000));
            break;
        case 'F':
            (void) adv_buf_appendf(b, "%u.%02u", draw(100), draw(100));
            break;
        case 'H':
            (void) adv_buf_appendf(b, "n%u", 1 + draw(64));
            break;
        case 'R':
            (void) adv_buf_appendf(b, "%u", draw(512));
            break;
        case 'C':
            (void) adv_buf_append_str(b, "/scratch/run7");
            break;
        default:
            break;
        }
    }
}

static void prefix(struct adv_buf *b, unsigned launcher)
{
    unsigned rank = draw(512);

    switch (launcher) {
    case 1:
        (void) adv_buf_appendf(b, "%3u: ", rank);
        break;
    case 2:
        (void) adv_buf_appendf(b, "[rank%u]: ", rank);
        break;
    case 3:
        (void) adv_buf_appendf(b, "[default%u]:", rank % 8);
        break;
    case 4:
        (void) adv_buf_appendf(b, "[1,%u]<stderr>:", rank);
        break;
    case 5:
        (void) adv_buf_appendf(b, "n%u: ", rank / 8 + 1);
        break;
    default:
        break;
    }
}

static void begin(int64_t seed, uint64_t logs)
{
    state = (uint64_t) seed + logs * 2654435761u;
    (void) draw(1);
}

/* Returns the number of lines. */
static size_t make_log(struct adv_buf *b)
{
    unsigned launcher = draw(7), framework = draw(ADV_ARRAY_LEN(steps));
    size_t lines = 0;

    step_now = draw(1000);
    while (lines < LOG_LINES) {
        const char *t = steps[framework];
        bool over = lines + 40 > LOG_LINES; /* the last ones are steps */

        if (!over && draw(4) == 0)
            t = loads[draw(ADV_ARRAY_LEN(loads))];
        else if (!over && draw(500) == 0)
            t = caught[draw(ADV_ARRAY_LEN(caught))];
        else if (!over && draw(5000) == 0)
            step_now -= step_now > 100 ? draw(100) : 0; /* back to a checkpoint */
        else
            step_now++;
        for (const char *p = t; p;) { /* each line of it with the mark of its launcher */
            const char *nl = strchr(p, '\n');
            char one[1024];
            (void) snprintf(one, sizeof(one), "%.*s", nl ? (int) (nl - p) : 1023, p);
            prefix(b, launcher);
            text(b, one);
            (void) adv_buf_append_byte(b, '\n');
            lines++;
            p = nl ? nl + 1 : NULL;
        }
    }
    for (int i = 0; i < STEPS_END; i++, lines++) {
        step_now++;
        prefix(b, launcher);
        text(b, steps[framework]);
        (void) adv_buf_append_byte(b, '\n');
    }
    return lines;
}

static double now_s(void)
{
    struct timespec ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}

static int write_logs(const char *lines_text, const char *seed_text)
{
    int64_t want = 0, seed = 0, lines = 0;
    struct adv_buf b;
    bool ok = adv_parse_i64(lines_text, 1, INT64_C(100000000), &want, NULL) == 0 &&
              adv_parse_i64(seed_text, 0, INT64_MAX, &seed, NULL) == 0;

    adv_buf_init(&b, (size_t) 1 << 30);
    for (uint64_t logs = 0; ok && lines < want; logs++) {
        const char *end;

        begin(seed, logs);
        adv_buf_reset(&b);
        (void) make_log(&b);
        ok = adv_buf_error(&b) == 0;
        for (end = b.data; ok && lines < want && end < b.data + b.len; lines++)
            end = (const char *) memchr(end, '\n', (size_t) (b.data + b.len - end)) + 1;
        ok = ok && fwrite(b.data, (size_t) (end - b.data), 1, stdout) == 1;
    }
    adv_buf_done(&b);
    return ok && fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    int64_t want = 0, seed = 0;
    uint64_t lines = 0, bytes = 0, logs = 0, acts = 0, suspicions = 0;
    struct watcher_rules *rules = NULL;
    struct adv_err err = { 0 };
    struct adv_buf b;
    double judged_s = 0;

    if (argc == 4 && adv_streq(argv[1], "--write"))
        return write_logs(argv[2], argv[3]);
    if (argc != 4 || adv_parse_i64(argv[1], 1, INT64_C(1000000000000), &want, NULL) < 0 ||
        adv_parse_i64(argv[2], 0, INT64_MAX, &seed, NULL) < 0) {
        (void) fprintf(stderr, "usage: quiet LINES SEED RULES, quiet --write LINES SEED\n");
        return 2;
    }
    if (watcher_rules_load(argv[3], &rules, &err) < 0) {
        (void) fprintf(stderr, "quiet: %s\n", err.msg);
        return 1;
    }
    adv_buf_init(&b, (size_t) 1 << 30);
    while (lines < (uint64_t) want) {
        struct replay_verdict v;
        double began;

        begin(seed, logs);
        adv_buf_reset(&b);
        lines += make_log(&b);
        bytes += b.len;
        struct replay_options o = { .rules = rules, .state = JOB_UNKNOWN };
        began = now_s();
        if (adv_buf_error(&b) < 0 || replay_run(&o, b.data, b.len, &v, &err) < 0) {
            (void) fprintf(stderr, "quiet: %s\n", err.msg);
            return 1;
        }
        judged_s += now_s() - began;
        if (!adv_streq(replay_outcome(&v), "NO_ACTION")) {
            acts++;
            printf("# acted: log %llu of seed %lld: %s %s by %s: %s\n", (unsigned long long) logs, (long long) seed,
                   replay_kind(&v), replay_outcome(&v), v.rule, v.excerpt);
        }
        suspicions += v.stats.findings;
        replay_verdict_done(&v);
        logs++;
    }
    printf("logs %llu\nlines %llu\nbytes %llu\nfindings %llu\nactions %llu\njudged_s %.3f\n", (unsigned long long) logs,
           (unsigned long long) lines, (unsigned long long) bytes, (unsigned long long) suspicions, (unsigned long long) acts,
           judged_s);
    adv_buf_done(&b);
    (void) watcher_rules_unref(rules);
    return 0;
}
