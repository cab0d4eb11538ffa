/* SPDX-License-Identifier: Apache-2.0 */
#include "controlplane/watcher/watcher.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "common/utf8.h"
#include "controlplane/watcher/report.h"
#include "tests/unit/watcher/collect.h"

#define MEGATRON(i)                                                                                \
    " iteration " i "/     500 | consumed samples: 99 | elapsed time per iteration (ms): 900.1 | " \
                    "number of nan iterations:   0 |\n"

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;

    for (const char *p = text; (p = strstr(p, part)); p += strlen(part))
        n++;
    return n;
}

/* Text of all kinds, with everything that a cut may fall into. */
static char *mixed_text(size_t *ret_len)
{
    static const char part[] =
        MEGATRON("      1") "\033[36mstep: 10  \033[32mloss:  7.5\033[0m\n"
                            "  1%|          | 2/500 [00:02<10:00,  1.20s/it]\r  1%|          | "
                            "3/500 [00:03<10:00,  1.20s/it]\r\n"
                            "[rank1]: Traceback (most recent call last):\n[rank0]:   File "
                            "\"x.py\", line 1, in f\n"
                            "[rank1]: my.pkg.OddError: token=aaaaaaaaaa\n"
                            "node7: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
                            "\xff\xfe broken \xc3( bytes CUDA out of memory. Tried to allocate\n"
                            "  4%|4         | 20/500 [00:40<16:00,  2.00s/it][rank5]:[E1 x.cpp:1] "
                            "[Rank 5] Watchdog caught collective operation timeout: x\n"
                            "  successfully saved checkpoint at iteration      10 to "
                            "/ckpt\nFinished saving the checkpoint in 2.0 seconds.\n"
                            "slurmstepd: error: *** STEP 77.0 ON node1 CANCELLED AT "
                            "2024-01-01T10:00:00 DUE TO TIME LIMIT ***\n"
                            "srun: error: node2: task 3: Exited with exit code 1\n\n\r\n";
    ADV_AUTO_DONE(adv_buf) b = { 0 };

    adv_buf_init(&b, 8 << 20);
    cr_assert_eq(adv_buf_append(&b, part, sizeof(part) - 1), 0);
    for (int i = 0; i < 4000; i++)
        cr_assert_eq(adv_buf_append_str(&b, "long line, "), 0);
    cr_assert_eq(adv_buf_append_str(
                     &b, "No space left on device\nOSError: [Errno 28] No space left on device\n"),
                 0);
    for (int i = 0; i < 5000; i++)
        cr_assert_eq(adv_buf_append_byte(&b, '\0'), 0);
    cr_assert_eq(adv_buf_append_str(&b, "Segmentation fault (core dumped)\n"), 0);
    for (int i = 0; i < 300; i++)
        cr_assert_eq(adv_buf_appendf(&b, MEGATRON("%7d") "INFO nothing %d\n", i, i), 0);
    for (int i = 0; i < 16384; i++) /* a line of exactly the length that counts */
        cr_assert_eq(adv_buf_append_byte(&b, 'x'), 0);
    cr_assert_eq(adv_buf_append_str(&b, "\nBus error (core dumped)"),
                 0); /* no line end at the end */
    return adv_buf_steal(&b, ret_len);
}

Test(watcher, pieces_do_not_matter, .timeout = 120)
{
    static const size_t pieces[] = { 1, 7, 4096, 16383, 16384, 16385, 65536 };
    ADV_AUTO(watcher_rules) rules = shipped_rules();
    size_t len = 0;
    adv_auto_free char *text = mixed_text(&len);
    adv_auto_free char *whole = scan_pieces(rules, WATCHER_SCOPE_APPLICATION, NULL, text, len, 0);

    cr_assert(has(whole, "SIGNATURE cuda-ecc-uncorrectable"), "%s", whole);
    cr_assert(has(whole, "PROGRESS torchtitan-step at="));
    cr_assert(has(whole, "PROGRESS bar-of-training"));
    cr_assert(has(whole, "SIGNATURE python-generic-exception"));
    cr_assert(has(whole, "SIGNATURE nccl-watchdog-timeout"));
    cr_assert(has(whole, "SIGNATURE gpu-out-of-memory"));
    cr_assert(has(whole, "SIGNATURE slurm-time-limit"));
    cr_assert(has(whole, "CHECKPOINT megatron-saved"));
    cr_assert(has(whole, "CHECKPOINT torchtitan-saved"));
    cr_assert(has(whole, "SIGNATURE segmentation-fault"));
    cr_assert(has(whole, "SIGNATURE bus-error"));
    cr_assert_eq(count(whole, "SIGNATURE disk-full"), 1); /* not in the tail of the long line */
    cr_assert_eq(count(whole, "PROGRESS megatron-iteration"), 300 + 1);
    cr_assert(adv_utf8_valid(whole, strlen(whole)));
    for (size_t i = 0; i < ADV_ARRAY_LEN(pieces); i++) {
        adv_auto_free char *cut =
            scan_pieces(rules, WATCHER_SCOPE_APPLICATION, NULL, text, len, pieces[i]);
        cr_assert_str_eq(cut, whole, "pieces of %zu", pieces[i]);
    }
}

/* Lines that sound bad and are not: no signature at all. */
static void healthy_lines(struct watcher_rules *rules)
{
    static const char *const lines[] = {
        MEGATRON("     12"),
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32\n",
        "Slice down event detected. Retrying.\nElastic attempt 2 out of 10\n",
        "step:3/100 train_loss:9.4 train_time:300ms step_avg:nanms\n",
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}\n",
        "[c10d] The server socket cannot be initialized on [::]:4000 (errno: 97 - Address family "
        "not supported by protocol).\n",
        "2024-01-01 10:00:00 - WARNING - ConnectionError: hub is away, retrying in 5 s\n",
        "WARNING: sample 5 dropped: KeyError: 'labels'\n",
        "[launch.py:1:sigkill_handler] Killing subprocess 4000\nMain process received SIGTERM, "
        "exiting\n",
        "[W op_level_cost_estimator.cc:1] Error in PredictCost() for the op: op: \"Crop\"\n",
        "W1101 Warning: destroy_process_group() was not called before program exit, which can leak "
        "resources.\n",
        "UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean "
        "up at shutdown\n",
        "Did not save the model out/pytorch_model.bin because `stage3_gather` is False\n",
        "loading file vocab.txt from cache at None\n",
        "***ALERT: run-3.slurm is not RUNNING or SCHEDULED! Alert someone***\n",
        "INFO:     10.0.0.3:42628 - \"POST /act HTTP/1.1\" 200 OK\n",
        "nodea:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.4<0>\n",
        "uncorrectable ECC errors: 0, NVLink errors: 0\n",
        "    except ValueError: pass\n",
        "usage: train.py [--xpu_backend {mpi,ccl,gloo}] [--fp16]\n",
        ("Exception ignored in: <function Pool.__del__ at 0x7f00>\nTraceback (most recent call "
         "last):\n"
         "  File \"pool.py\", line 1, in __del__\nOSError: [Errno 5] Input/output error\n"),
        "ECC enabled, error checking on, timeout 1800 s, abort on failure: off\n",
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(lines); i++) {
        adv_auto_free char *out = scan_text(rules, lines[i]);
        cr_assert_not(has(out, "SIGNATURE"), "%s -> %s", lines[i], out);
    }
}

static void healthy_node_lines(struct watcher_rules *rules)
{
    static const char *const lines[] = {
        "6,3973,22799663,-;IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready\n",
        "6,4004,918,-;perf: interrupt took too long (2500 > 2400), lowering "
        "kernel.perf_event_max_sample_rate to 79750\n",
        "[Mon Jan  1 10:00:00 2024] sshd[300]: segfault at 0 ip 0000000000000000 sp 00007ff0 error "
        "14 in sshd[55d8+d0]\n",
        "[Mon Jan  1 10:00:00 2024] nvidia-nvlink: nvlink driver close\n",
        "nvidia-peermem nv_get_p2p_free_callback:1 ERROR detected invalid context, skipping "
        "further processing\n",
        "[ERROR] [tid 1] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id "
        "00000000:86:00.0\n",
        "nodea kernel: [7.5] NVRM: Xid (PCI:0000:1a:00): 63, pid=22, Row Remapper: New row marked "
        "for remapping\n",
        "Lustre: fs0: Connection to fs0-OST0001 (at 10.0.0.9@o2ib) was lost; in progress "
        "operations using this service will wait\n",
        "Traceback (most recent call last):\nKeyError: 'a monitoring script of the node'\n",
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(lines); i++) {
        adv_auto_free char *out =
            scan_pieces(rules, WATCHER_SCOPE_NODE, "nodea", lines[i], strlen(lines[i]), 0);
        cr_assert_not(has(out, "SIGNATURE"), "%s -> %s", lines[i], out);
    }
}

static void names_who_and_where(struct watcher_rules *rules)
{
    static const struct {
        const char *text, *finds;
        enum watcher_scope stream;
    } rows[] = {
        { "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n",
          "SIGNATURE gpu-out-of-memory at=0 step=-1/-1 rank=3 local=-1 task=-1 node= from= ", 0 },
        { "node17: [default2]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
          "rank=-1 local=2 task=-1 node=node17 from=node17 ", 0 },
        { "[PG 0][Rank 6] Watchdog caught collective operation timeout: x\n",
          "nccl-watchdog-timeout at=0 step=-1/-1 rank=6 ", 0 },
        { "srun: error: Node failure on node9\n",
          "slurm-node-failure at=0 step=-1/-1 rank=-1 local=-1 task=-1 node=node9 from= ", 0 },
        { "srun: error: node2: task 3: Exited with exit code 1\n",
          "srun-task-exit at=0 step=-1/-1 rank=-1 local=-1 task=3 node=node2 from= ", 0 },
        { "May  1 10:00:00 node5 kernel: [1.5] NVRM: Xid (PCI:0000:1a:00): 79, pid=1, GPU has "
          "fallen off the bus.\n",
          "node=node5 from=node5 dev=0000:1a:00 code=79 ", WATCHER_SCOPE_NODE },
        { "NVRM: Xid (PCI:0000:1a:00): 119, pid=1, Timeout after 6s of waiting for RPC response\n",
          "node=nodea from=nodea dev=0000:1a:00 code=119 ", WATCHER_SCOPE_NODE },
        { "(W pid=7, ip=10.0.0.3) OSError: [Errno 116] Stale file handle\n",
          "stale-file-handle at=0 step=-1/-1 rank=-1 local=-1 task=-1 node=10.0.0.3 ", 0 },
        { "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\n",
          "mpi-abort at=0 step=-1/-1 rank=3 ", 0 },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(rows); i++) {
        adv_auto_free char *out = scan_pieces(rules, rows[i].stream,
                                              rows[i].stream == WATCHER_SCOPE_NODE ? "nodea" : NULL,
                                              rows[i].text, strlen(rows[i].text), 0);
        cr_assert(has(out, rows[i].finds), "%s -> %s", rows[i].finds, out);
    }
}

/* The cause wins over its echo on one line, and only one finding of a type comes of a line. */
static void one_signature_a_line(struct watcher_rules *rules)
{
    adv_auto_free char *out =
        scan_text(rules, "[Rank 1] NCCL watchdog thread terminated with exception: CUDA error: "
                         "uncorrectable ECC error encountered\n");

    cr_assert_eq(count(out, "SIGNATURE"), 1);
    cr_assert(has(out, "SIGNATURE cuda-ecc-uncorrectable"), "%s", out);
    cr_assert(has(out, "rank=1 "));
}

static void tracebacks_of_interleaved_ranks(struct watcher_rules *rules)
{
    adv_auto_free char *out = scan_text(rules, "[rank1]: Traceback (most recent call last):\n"
                                               "[rank2]: Traceback (most recent call last):\n"
                                               "[rank1]:   File \"x.py\", line 1, in f\n"
                                               "[rank3]: my.OddError: no traceback of mine\n"
                                               "[rank1]:     raise my.OddError(\"x\")\n"
                                               "[rank2]: my.OddError: second\n"
                                               "[rank1]: my.OddError: first\n"
                                               "[rank1]: my.OddError: closed already\n");

    cr_assert_eq(count(out, "SIGNATURE python-generic-exception"), 2, "%s", out);
    cr_assert(
        has(out,
            "rank=1 local=-1 task=-1 node= from= dev= code=-1 tb=1 [[rank1]: my.OddError: first]"),
        "%s", out);
    cr_assert(has(out, "rank=2"));
    cr_assert_not(has(out, "rank=3"));
}

/* Only the announced exception is calmed, and only that of the same printer. */
static void caught_exceptions(struct watcher_rules *rules)
{
    adv_auto_free char *out = scan_text(rules, "[rank1]: Exception ignored in: <function f>\n"
                                               "[rank1]: Traceback (most recent call last):\n"
                                               "[rank2]: KeyError: 'of another rank'\n"
                                               "[rank1]: KeyError: 'ignored'\n"
                                               "[rank1]: KeyError: 'of its own'\n");

    cr_assert_eq(count(out, "SIGNATURE"), 2, "%s", out);
    cr_assert_not(has(out, "'ignored'"));
}

static void progress_and_checkpoints(struct watcher_rules *rules)
{
    adv_auto_free char *out = scan_text(
        rules,
        "  successfully loaded checkpoint from /ckpt at iteration 40\n"
        "Finished saving the checkpoint in 1.0 seconds.\n" MEGATRON("     41") MEGATRON("     41")
            MEGATRON("     42") "Saving the checkpoint\n"
                                "Finished saving the checkpoint in 2.0 seconds.\n"
                                "  successfully saved checkpoint at iteration 43 to /ckpt\n"
                                "[after training is done] datetime: 2024-01-01\n");

    cr_assert(has(out, "RESUMED megatron-loaded at=0 step=40/-1 "), "%s", out);
    cr_assert(has(out, "step=40/-1?"), "%s",
              out);                          /* a checkpoint without a step takes the last known */
    cr_assert_eq(count(out, "PROGRESS"), 2); /* not the repeated step */
    cr_assert(has(out, "PROGRESS megatron-iteration"));
    cr_assert(has(out, "step=42/500 "));
    cr_assert(has(out, "CHECKPOINT torchtitan-saved"));
    cr_assert(has(out, "step=42/-1? "));
    cr_assert(has(out, "CHECKPOINT megatron-saved"));
    cr_assert(has(out, "step=43/-1 "));
    cr_assert(has(out, "FINISHED run-finished"));
}

static void gaps_and_truncation(struct watcher_rules *rules)
{
    static const char tail[] = "KeyError: 'x'\nKeyError: 'y'\n";
    ADV_AUTO_DONE(adv_buf) out = { 0 };
    struct watcher_scan_options o = { .fn = collect, .ctx = &out, .start_offset = 100 };
    ADV_AUTO(watcher_scan) s = NULL;
    const struct watcher_scan_stats *st;

    adv_buf_init(&out, 1 << 20);
    cr_assert_eq(watcher_scan_new(rules, &o, &s, NULL), 0);
    st = watcher_scan_stats(s);
    cr_assert_eq(watcher_scan_feed(s, 100, tail, 28, 0, 5, NULL), 0);
    cr_assert_eq(count(out.data, "SIGNATURE"), 2);
    cr_assert(has(out.data, "at=100 ") && has(out.data, "at=114 "));
    cr_assert_eq(st->gaps, 0);

    /* A jump: the piece before the first line end is not judged, nor is the unfinished line before the jump. */
    adv_buf_reset(&out);
    cr_assert_eq(watcher_scan_feed(s, 128, "Bus error", 9, 0, 5, NULL), 0);
    cr_assert_eq(watcher_scan_feed(s, 200, tail, 28, 0, 5, NULL), 0);
    cr_assert_eq(count(out.data, "SIGNATURE"), 1, "%s", out.data);
    cr_assert(has(out.data, "at=214 "));
    cr_assert_eq(st->gaps, 1);
    cr_assert_eq(st->missing_bytes, 63);

    /* Bytes shed on the way, the offsets going on. */
    adv_buf_reset(&out);
    cr_assert_eq(watcher_scan_feed(s, 228, tail, 28, 1000, 5, NULL), 0);
    cr_assert_eq(count(out.data, "SIGNATURE"), 1);
    cr_assert_eq(st->gaps, 2);
    cr_assert_eq(st->missing_bytes, 1063);

    /* Truncated to nothing. */
    adv_buf_reset(&out);
    cr_assert_eq(watcher_scan_feed(s, 256, "half", 4, 0, 5, NULL), 0);
    cr_assert_eq(watcher_scan_feed(s, 0, tail, 28, 0, 5, NULL), 0);
    cr_assert_eq(count(out.data, "SIGNATURE"), 2);
    cr_assert_eq(st->truncations, 1);
    cr_assert_eq(st->gaps, 2);
    cr_assert_eq(st->bytes, 28 * 4 + 9 + 4);
}

static void repeats_are_thinned(struct watcher_rules *rules)
{
    ADV_AUTO_DONE(adv_buf) text = { 0 };

    adv_buf_init(&text, 1 << 20);
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(adv_buf_appendf(&text, "[rank%d]: ncclRemoteError: x\n", i), 0);
    adv_auto_free char *out = scan_text(rules, text.data);
    cr_assert_eq(count(out, "SIGNATURE"), 16 + 5); /* then 32, 64 .. 512 */
    cr_assert_eq(adv_buf_append_str(&text, MEGATRON("      5") "[rank0]: ncclRemoteError: x\n"), 0);
    adv_auto_free char *more = scan_text(rules, text.data);
    cr_assert_eq(count(more, "SIGNATURE"), 16 + 5 + 1);
}

static void excerpts(struct watcher_rules *rules)
{
    ADV_AUTO_DONE(adv_buf) text = { 0 };

    adv_buf_init(&text, 1 << 20);
    for (int i = 0; i < 500; i++)
        cr_assert_eq(adv_buf_append_str(&text, "\xc3\xa4 "), 0);
    cr_assert_eq(
        adv_buf_append_str(&text, "https://u:aaaaaaaaaa@host No space left on device \xff\xc3"), 0);
    for (int i = 0; i < 500; i++)
        cr_assert_eq(adv_buf_append_str(&text, " \xe2\x82\xac"), 0);
    cr_assert_eq(adv_buf_append_str(&text, "\n"), 0);
    adv_auto_free char *out = scan_text(rules, text.data);
    cr_assert(has(out, "SIGNATURE disk-full"));
    cr_assert(has(out, "***@host No space left on device"), "%s", out);
    cr_assert_not(has(out, "aaaaaaaaaa"));
    cr_assert(adv_utf8_valid(out, strlen(out)));
}

static void scopes(struct watcher_rules *rules)
{
    static const char job_end[] = "[2024-01-01T10:00:00.100] _job_complete: JobId=77 WTERMSIG 9\n";
    adv_auto_free char *a = scan_text(rules, job_end);
    adv_auto_free char *b =
        scan_pieces(rules, WATCHER_SCOPE_SCHEDULER, NULL, job_end, strlen(job_end), 0);
    adv_auto_free char *c =
        scan_pieces(rules, WATCHER_SCOPE_SCHEDULER, NULL, "KeyError: 'x'\n", 14, 0);
    adv_auto_free char *d =
        scan_text(rules, "NVRM: Xid (PCI:0000:1a:00): 79, pid=1, GPU has fallen off the bus.\n");

    cr_assert_str_eq(a, "");
    cr_assert(has(b, "SIGNATURE slurmctld-job-killed"));
    cr_assert_str_eq(c, "");
    cr_assert(has(d, "SIGNATURE xid-gpu-hardware"));
}

static void memory_is_bounded(struct watcher_rules *rules)
{
    ADV_AUTO_DONE(adv_buf) out = { 0 };
    struct watcher_scan_options o = { .fn = collect, .ctx = &out };
    ADV_AUTO(watcher_scan) s = NULL;
    char *big = malloc(1 << 20);

    adv_buf_init(&out, 1 << 20);
    memset(big, 'x', 1 << 20);
    cr_assert_eq(watcher_scan_new(rules, &o, &s, NULL), 0);
    cr_assert_leq(watcher_scan_memory(s), 768); /* idle: two streams of 10,000 jobs */
    for (uint64_t i = 0; i < 8; i++) {
        cr_assert_eq(watcher_scan_feed(s, i << 20, big, 1 << 20, 0, 1, NULL), 0);
        cr_assert_leq(watcher_scan_memory(s), WATCHER_SCAN_MAX_BYTES);
    }
    cr_assert_eq(watcher_scan_stats(s)->long_lines, 1);
    cr_assert_eq(watcher_scan_stats(s)->skipped_bytes, (8 << 20) - 16384);
    cr_assert_eq(watcher_scan_feed(s, 8 << 20, "\nBus error\n", 11, 0, 1, NULL), 0);
    cr_assert(has(out.data, "SIGNATURE bus-error at=8388609 "), "%s", out.data);
    cr_assert_leq(watcher_scan_memory(s), 2048);
    free(big);
}

#define ECC "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
#define TABLE "  time      : 2024-01-01_10:00:00\n  host      : gpu2.example.org\n  rank      : 12 (local_rank: 4)\n  exitcode  : 1 (pid: 9)\n"

/* How often the fault is held against a host, and how often against none. */
static void placed(struct watcher_rules *rules, const char *text, const char *host, size_t named, size_t unnamed)
{
    char want[64];
    adv_auto_free char *out = scan_text(rules, text);
    adv_auto_free char *cut = scan_pieces(rules, WATCHER_SCOPE_APPLICATION, NULL, text, strlen(text), 5);
    size_t n = 0, none = 0;

    cr_expect_str_eq(out, cut);
    (void) snprintf(want, sizeof(want), " node=%s ", host);
    for (const char *p = out; (p = strstr(p, "SIGNATURE cuda-ecc")); p++) {
        const char *end = strchr(p, '\n'), *at = strstr(p, want);
        n += at && at < end;
        at = strstr(p, " node= ");
        none += at && at < end;
    }
    cr_expect(n == named && none == unnamed, "%s\nled to %zu of %s and %zu of nobody:\n%s", text, n, host, none, out);
}

static void hosts_that_are_said_later(struct watcher_rules *rules)
{
    /* launchers tell of the end */
    placed(rules, "12: " ECC "srun: error: gpu2: task 12: Exited with exit code 1\n", "gpu2", 1, 1);
    placed(rules, "12: " ECC "srun: error: gpu1: tasks 0-7,13: Terminated\nsrun: error: gpu2: tasks 8-11,12: Exited with exit code 1\n", "gpu2", 1, 1);
    placed(rules, "[1,3]<stderr>:" ECC "mpirun noticed that process rank 3 with PID 9 on node gpu2 exited on signal 6 (Aborted).\n", "gpu2", 1, 1);
    placed(rules, "[rank12]: " ECC TABLE, "gpu2.example.org", 1, 1);
    placed(rules, "[rank12]: " ECC TABLE TABLE, "gpu2.example.org", 1, 1); /* once */
    /* it is about others */
    placed(rules, "12: " ECC "srun: error: gpu2: task 3: Exited with exit code 1\n", "gpu2", 0, 1);
    placed(rules, "12: " ECC "srun: error: gpu2: tasks 0-11: Exited with exit code 1\n", "gpu2", 0, 1);
    placed(rules, "[rank3]: " ECC TABLE, "gpu2.example.org", 0, 1);
    /* torch's rank 3 is not the launcher's */
    placed(rules, "[rank3]: " ECC "mpirun noticed that process rank 3 with PID 9 on node gpu2 exited on signal 6 (Aborted).\n", "gpu2", 0, 1);
    placed(rules, "[rank3]: " ECC "srun: error: gpu2: task 3: Exited with exit code 1\n", "gpu2", 0, 1);
    /* what a launcher says of the end does not hold for the next start */
    placed(rules, "srun: error: gpu2: task 12: Exited with exit code 1\n12: " ECC, "gpu2", 0, 1);
    placed(rules, TABLE "[rank12]: " ECC, "gpu2.example.org", 0, 1);
    /* nor what is said at a start for what came before */
    placed(rules, "[rank3]: " ECC "gpu2:7:8 [3] NCCL INFO ncclCommInitRank comm 0x5 rank 3 nranks 16 cudaDev 3 - Init START\n", "gpu2", 0, 1);
    /* the work went on, or began anew */
    placed(rules, "12: " ECC MEGATRON("      1") "srun: error: gpu2: task 12: Exited with exit code 1\n", "gpu2", 0, 1);
    placed(rules, "[rank12]: " ECC "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n" TABLE, "gpu2.example.org", 0, 1);
    /* lines of a table belong together */
    placed(rules, "[rank12]: " ECC "  host      : gpu2\n0:   rank      : 12 (local_rank: 4)\n", "gpu2", 0, 1);
    /* who printed is known: nothing to add */
    placed(rules, "gpu1: [rank12]: " ECC TABLE, "gpu2.example.org", 0, 0);
    /* what no list is */
    placed(rules, "12: " ECC "srun: error: gpu2: tasks 0-5-12: Exited with exit code 1\n", "gpu2", 0, 1);
    placed(rules, "12: " ECC "srun: error: gpu2: tasks ,12: Exited with exit code 1\n", "gpu2", 0, 1);
    placed(rules, "12: " ECC "srun: error: gpu2: tasks 99999999999999999999: Exited with exit code 1\n", "gpu2", 0, 1);
}

#define PLACES "rank 0 of 6 on host gpu1\nrank 1 of 6 on host gpu1\nrank 2 of 6 on host gpu2\nrank 3 of 6 on host gpu2\nrank 4 of 6 on host gpu3\nrank 5 of 6 on host gpu3\n"

/* The others waited for it: its host is named, and never that of who waits. */
static void waited_for(struct watcher_rules *rules, const char *text, const char *rule, const char *host)
{
    char want[128];
    adv_auto_free char *out = scan_text(rules, text);
    const char *at = NULL;

    (void) snprintf(want, sizeof(want), "SIGNATURE %s ", rule);
    for (const char *p = out; (p = strstr(p, want)); p++)
        at = p; /* the last */
    cr_assert(at, "%s\n%s", text, out);
    (void) snprintf(want, sizeof(want), " node=%s ", host);
    cr_expect(strstr(at, want), "%s\n%s", text, out);
}

static void ranks_that_do_not_come(struct watcher_rules *rules)
{
    waited_for(rules, PLACES "gpu1: [rank0]: RuntimeError: [Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 6000 ms\n",
               "barrier-ranks-missing", "gpu2");
    waited_for(rules, PLACES "gpu1: [rank0]: RuntimeError: [Rank 0]: Rank 5 failed to pass monitoredBarrier in 6000 ms\n",
               "barrier-ranks-missing", "gpu3");
    waited_for(rules, PLACES "[1,0]<stderr>:Stalled ranks:\n[1,0]<stderr>:4: [horovod_allreduce.0, horovod_allreduce.1 ...]\n",
               "horovod-stall", "gpu3");
    waited_for(rules, PLACES "gpu1: Stalled ops: HorovodBroadcast_w_0 [ready ranks: 5, 4, 0, 1, 3]\n", "horovod-stall", "gpu2");
    waited_for(rules, PLACES "gpu1: grad/HorovodAllreduce_g_0 [missing ranks: 1]\n", "horovod-stall", "gpu1");
    /* it is not known where they are, or they are everywhere */
    waited_for(rules, "gpu1: [rank0]: RuntimeError: [Rank 0]: Rank 5 failed to pass monitoredBarrier in 6000 ms\n",
               "barrier-ranks-missing", "");
    waited_for(rules, PLACES "gpu1: grad/HorovodAllreduce_g_0 [missing ranks: 1, 3, 4]\n", "horovod-stall", "");
    waited_for(rules, PLACES "gpu1: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and "
                             "are waiting for remainder of ranks for more than 60 seconds.\n", "horovod-stall", "");
    /* they may be elsewhere after a restart */
    waited_for(rules, PLACES "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\n"
                             "RuntimeError: [Rank 0]: Rank 5 failed to pass monitoredBarrier in 6000 ms\n", "barrier-ranks-missing", "");
}

/* Of many missing ranks, a line each, all are told: from some of them they would seem few. */
static void all_ranks_that_do_not_come(struct watcher_rules *rules)
{
    ADV_AUTO_DONE(adv_buf) text = { 0 };

    adv_buf_init(&text, 1 << 20);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(adv_buf_appendf(&text, "rank %d of 100 on host gpu%d\n", i, i), 0);
    cr_assert_eq(adv_buf_append_str(&text, "Stalled ranks:\n"), 0);
    for (int i = 1; i < 100; i++)
        cr_assert_eq(adv_buf_appendf(&text, "[1,0]<stderr>:%d: [horovod_allreduce.0, horovod_allreduce.1 ...]\n", i), 0);
    adv_auto_free char *out = scan_text(rules, text.data);
    cr_assert_eq(count(out, " node=gpu"), 99, "%s", out);
}

struct ends {
    unsigned n;
    const char *fault_class;
};

static void note_end(void *ctx, const struct watcher_finding *f)
{
    struct ends *e = ctx;

    if (f->type != WATCHER_SIGNATURE && f->type != WATCHER_NOTICE)
        return;
    e->n++;
    e->fault_class = watcher_report_ends(f);
}

/* A card that is slow stands in its node's log, and is no reason for which a job there ends. */
static void what_ends_a_job(struct watcher_rules *rules)
{
    static const struct {
        const char *line, *fault_class;
    } rows[] = {
        { "        HW Slowdown                       : Active\n", "" },
        { "NVRM: Xid (PCI:0000:1a:00): 79, pid=1, GPU has fallen off the bus.\n", "gpu_hardware" },
    };

    for (size_t i = 0; i < ADV_ARRAY_LEN(rows); i++) {
        struct ends e = { 0 };
        struct watcher_scan_options o = { .stream = WATCHER_SCOPE_NODE, .node = "nodea", .fn = note_end, .ctx = &e };
        ADV_AUTO(watcher_scan) s = NULL;

        cr_assert_eq(watcher_scan_new(rules, &o, &s, NULL), 0);
        cr_assert_eq(watcher_scan_feed(s, 0, rows[i].line, strlen(rows[i].line), 0, 1000, NULL), 0);
        watcher_scan_finish(s, 2000);
        cr_assert_eq(e.n, 1, "%s", rows[i].line);
        cr_assert_str_eq(e.fault_class, rows[i].fault_class, "%s", rows[i].line);
    }
}

/* One process for all of them: building the set takes a second under sanitizers. */
Test(watcher, what_lines_mean, .timeout = 120)
{
    ADV_AUTO(watcher_rules) rules = shipped_rules();

    healthy_lines(rules);
    healthy_node_lines(rules);
    names_who_and_where(rules);
    one_signature_a_line(rules);
    tracebacks_of_interleaved_ranks(rules);
    caught_exceptions(rules);
    progress_and_checkpoints(rules);
    gaps_and_truncation(rules);
    repeats_are_thinned(rules);
    all_ranks_that_do_not_come(rules);
    what_ends_a_job(rules);
    excerpts(rules);
    scopes(rules);
    memory_is_bounded(rules);
    hosts_that_are_said_later(rules);
    ranks_that_do_not_come(rules);
}
