#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""bench/fleet with small numbers: each part prints each of its figures, judges none, and leaves nothing running."""
import math
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))

def both(name, *suffixes):
    return {f"{name}_{s}" for s in suffixes}


FIGURES = {
    "agents": {"agents_connected", "agents_connect_rate", "memory_per_idle_agent", "idle_cpu", "bare_handshakes",
               "bare_handshake_cpu", "bare_core_streams", "bare_core_stream_cpu", "memory_per_agent_after_storms"} |
              both("reconnect", "all", "rate", "refusals", "to_bare_handshakes", "to_bare_core", "cpu_to_bare_core", "cpu_per_agent",
                   "answer_slowest", "attempt_slowest"),
    "heavy": {"heavy_jobs_first_seen", "memory_per_tracked_job", "memory_per_tracked_job_after_changes", "job_changes",
              "job_changes_per_cpu_second", "store_size"},
    "watchers": {"memory_per_watcher"} |
                {f"{what}_{where}_{p}" for what in ("call", "watcher_told") for p in ("p50", "p99")
                 for where in ("alone", "beside_stalled", "beside_stalled_to_alone")},
    "advice": both("advice_to_agent", "p50", "p99", "max"),
    "commits": {"fdatasync", "commits_one_client", "commits_one_client_window_16", "commits_many_clients",
                "commits_many_clients_per_cpu_second", "commits_one_client_cpu", "commits_one_client_to_fdatasync",
                "commits_many_to_fdatasync", "fdatasync_2ms", "commits_many_clients_2ms",
                "commits_one_client_to_fdatasync_2ms", "commits_many_to_fdatasync_2ms"} |
               ({"etcd_puts_one_client", "etcd_puts_many_clients", "commits_one_client_to_etcd",
                 "commits_many_clients_to_etcd"} if shutil.which("etcd") else set()),
    "unary": {f"unary_{tls}{server}{by}" for tls in ("mtls", "plain") for server in ("", "_bare_core", "_python_asyncio")
              for by in ("", "_per_cpu_second")} |
             {f"unary_{tls}_to_{server}" for tls in ("mtls", "plain") for server in ("bare_core", "python_asyncio")},
}


def part(name):
    def run():
        proc = subprocess.Popen([os.path.join(ROOT, "bench", "fleet"), "--smoke", "--only", name, "--build",
                                 os.environ["BUILD"]], stdout=subprocess.PIPE, text=True, start_new_session=True)
        out, _ = proc.communicate(timeout=120)
        print("".join(f"# {line}\n" for line in out.splitlines()), end="", flush=True)
        assert proc.returncode == 0, f"exit status {proc.returncode}"
        seen = [line.split() for line in out.splitlines() if not line.startswith("#")]
        assert all(len(words) == 3 and math.isfinite(float(words[1])) for words in seen), "a figure is `name value unit`"
        names = [words[0] for words in seen]
        assert len(names) == len(set(names)), "a figure was printed twice"
        assert set(names) == FIGURES[name], f"differs: {sorted(set(names) ^ FIGURES[name])}"
        # the made-up disk was really there
        assert all(float(value) <= 500 for n, value, _ in seen if n == "fdatasync_2ms"), seen
        assert "missed" not in out
        try:
            os.killpg(proc.pid, 0)
        except ProcessLookupError:
            return
        raise AssertionError("something is left running")
    run.__name__ = name
    return run


def a_smoke_run_judges_nothing():
    r = subprocess.run([os.path.join(ROOT, "bench", "fleet"), "--smoke", "--check"], capture_output=True, text=True)
    assert r.returncode != 0 and "judges nothing" in r.stderr, r.stderr


advstack.run([part(name) for name in FIGURES] + [a_smoke_run_judges_nothing])
