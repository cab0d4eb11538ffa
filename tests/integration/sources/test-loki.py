#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A Loki that answers 429, 500, garbage, slowly, endlessly or not at all: what it has is unknown, nothing waits for it, it is
asked ever less often, memory is bounded, and afterwards every line is there once."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advsources  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402
from advsources import ECC, STEP  # noqa: E402

CASES = []
api = advstack.stubs()


def case(f):
    CASES.append(f)
    return f


tls = advstack.Ca(advstack.tempfile.mkdtemp(prefix="advloki-"))
advstack.atexit.register(advstack.shutil.rmtree, tls.dir, ignore_errors=True)
loki = advsources.Loki()
safe = advsources.Loki(tls=tls.issue("loki", "DNS:localhost", "IP:127.0.0.1"))
token = f"{tls.dir}/token"
with open(token, "w") as f:
    f.write("first-token\n")
conf = advsources.config(f"""
sources:
  - name: lab
    kind: loki
    url: {loki.url}
    clusters: [alpha, pages, times, last]
    poll_interval: 500ms
    unknown_after: 2s
    timeout: 2s
    max_answer: 256KiB
    max_lines: 100
    job_logs:
      query: '{{app="slurm", cluster="{{cluster}}", job_id="{{job_id}}"}}'
      host_field: host
  - name: safe
    kind: loki
    url: https://localhost:{safe.port}
    ca: {tls.cert}
    token_file: {token}
    tenant: research
    clusters: [tls]
    poll_interval: 500ms
    unknown_after: 2s
    job_logs: {{query: '{{app="slurm", job_id="{{job_id}}"}}'}}
""")
d = advstack.Advisord(**{"sources.file": conf, "detect.log_settle": "50ms", "decide.advice_valid": "600s", "agent.silence_timeout": "30s"})


def cluster(name):
    c = advsources.beating(advstack.FakeCluster(api, d, name, api.MODE_ACT, nodes=("n1", "n2")))
    c.job("1", "RUNNING", start_unix=int(time.time()) - 60)
    c.agent.durable(c.agent.numbered(telemetry=api.TelemetryReport(attempt=c.ref("1"), state=api.TELEMETRY_STATE_LOST,
                                                                 reason="its path is not readable")))
    return c


def put(c, text, at=None, server=loki, **labels):
    server.put(text, at, app="slurm", cluster=c.name, job_id="1", **{"host": "n2", **labels})


def attempt(c):
    return c.timeline("1").attempts[-1]


def resident():
    with open(f"/proc/{d.proc.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def failing(c, mode, words, seconds=6):
    """The source is like that for a while; then it answers again and what was written meanwhile is read."""
    n = attempt(c).last_step
    loki.released.clear()
    loki.mode = mode
    began = time.monotonic()
    t = wait_for(f"the gap, {mode}", lambda: (t := attempt(c)) and "not read since" in t.telemetry_reason and t, 40)
    assert t.telemetry == api.TELEMETRY_STATE_LOST and any(w in t.telemetry_reason for w in words), t.telemetry_reason
    told = wait_for("the cluster to say so", lambda: c.view().sources_unknown, 40)
    assert told.startswith("lab (loki): no answer since 20"), told
    slowest = 0.0

    def others_are_served():
        nonlocal slowest
        at = time.monotonic()
        attempt(c)
        slowest = max(slowest, time.monotonic() - at)
        return time.monotonic() - began > seconds
    wait_for("some failures", others_are_served, 60)
    asked = len(loki.since(began))
    assert asked <= 8, f"{mode}: asked {asked} times in {time.monotonic() - began:.0f} s"
    put(c, STEP.format(n + 1, 8))
    loki.mode = "ok"
    loki.released.set()
    wait_for("the gap to close", lambda: "not read since" not in attempt(c).telemetry_reason, 90)
    wait_for("the line of meanwhile", lambda: attempt(c).last_step == n + 1, 30)
    wait_for("the cluster to be whole", lambda: not c.view().sources_unknown, 30)
    print(f"# {mode}: {asked} questions in {seconds} s, slowest call meanwhile {slowest * 1e3:.0f} ms: {t.telemetry_reason}")
    return t


@case
def errors_are_unknown_asked_less_often_and_made_good_afterwards():
    c = cluster("alpha")
    put(c, STEP.format(1, 8))
    wait_for("the step", lambda: attempt(c).last_step == 1, 40)
    failing(c, "500", ["HTTP 500: ingester is  away"])
    failing(c, "garbage", ["an answer that is none"])
    failing(c, "slow", ["imed out", "come late"])
    failing(c, "hang", ["imed out", "come late"])
    put(c, ECC)
    an = wait_for("the anomaly", lambda: attempt(c) and list(c.timeline("1").anomalies), 30)
    assert len(an) == 1 and list(an[0].nodes) == ["n2"] and an[0].stream == "loki", an
    c.close()


@case
def retry_after_is_kept_to():
    c = cluster("times")
    wait_for("questions", lambda: attempt(c) and loki.since(0), 30)
    loki.retry_after = 4
    loki.mode = "429"
    first = wait_for("a refusal", lambda: attempt(c) and "HTTP 429" in d.log_text(), 30) and time.monotonic()
    wait_for("ten seconds", lambda: attempt(c) and time.monotonic() > first + 10)
    times = [a[0] for a in loki.since(first - 1)]
    gaps = [b - a for a, b in zip(times, times[1:]) if b > first + 0.5]
    assert gaps and min(gaps) >= 3.9, gaps
    loki.mode, loki.retry_after = "ok", None
    c.close()


@case
def an_endless_answer_takes_no_memory():
    c = cluster("pages")
    put(c, STEP.format(1, 8), at=time.time() - 40)
    wait_for("it to be read", lambda: (t := attempt(c)).last_step == 1 and "not read since" not in t.telemetry_reason, 60)
    before = resident()
    loki.mode = "huge"
    t = wait_for("the gap", lambda: (t := attempt(c)) and "not read since" in t.telemetry_reason and t, 60)
    assert "larger than max_answer" in t.telemetry_reason, t.telemetry_reason
    grown = resident() - before
    assert grown < 64 * 1024, f"{grown} kB"
    print(f"# 256 MiB answered again and again: {grown} kB more resident")
    # many lines come in pages; all of them, once
    now = time.time()
    for i in range(2, 951):
        put(c, STEP.format(i, i * 8), at=now - 30 + i / 50)
    put(c, ECC, at=now)
    loki.mode = "ok"
    wait_for("all lines", lambda: attempt(c).last_step == 950 and c.timeline("1").anomalies, 90)
    assert "left out" not in attempt(c).telemetry_reason, attempt(c).telemetry_reason
    c.close()


@case
def what_is_said_over_tls_is_said_with_token_and_tenant():
    c = cluster("tls")
    safe.put(STEP.format(3, 24), app="slurm", job_id="1")
    wait_for("the step", lambda: attempt(c).last_step == 3, 40)
    h = safe.since(0)[-1][2]
    assert h["X-Scope-OrgID"] == "research" and h["Authorization"] == "Bearer first-token", h
    with open(token, "w") as f:
        f.write("second-token\n")
    wait_for("the new token", lambda: attempt(c) and safe.since(0)[-1][2]["Authorization"] == "Bearer second-token", 60)
    assert "first-token" not in d.log_text() and "second-token" not in d.log_text()
    c.close()


@case
def stops_clean_while_an_answer_is_awaited():
    c = cluster("last")
    loki.released.clear()
    loki.mode = "hang"
    began = time.monotonic()
    wait_for("a question", lambda: attempt(c) and loki.since(began), 30)
    began = time.monotonic()
    d.stop()
    assert time.monotonic() - began < 20
    loki.released.set()


advstack.run(CASES)
