#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A real VictoriaLogs as the only way by which lines of jobs arrive, and as the log of their nodes."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advsources  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402
from advsources import ECC, STEP  # noqa: E402

CASES = []


def case(f):
    CASES.append(f)
    return f


try:
    vl = advsources.VictoriaLogs()
except advsources.Skip as e:
    print(f"skip victorialogs {e}")
    sys.exit(77)
api = advstack.stubs()
conf = advsources.config(f"""
sources:
  - name: logs
    kind: victorialogs
    url: {vl.url}
    poll_interval: 500ms
    unknown_after: 2s
    after_end: 60s
    job_logs:
      query: '{{job="train"}} cluster:="{{cluster}}" slurm_job_id:="{{job_id}}" restart:="{{restart_count}}"'
      host_field: host
    node_logs:
      query: '{{job="kernel"}} host:~"^({{nodes}})([.]|$)"'
      host_field: host
""")
d = advstack.Advisord(**{"sources.file": conf, "detect.log_settle": "50ms", "detect.fallback_delay": "3s",
                         "decide.advice_valid": "600s", "decide.shared_cause_window": "60s", "agent.silence_timeout": "30s"})


def telemetry(c, job="1", state=None, reason="its file is on a disk of another host"):
    a = c.agent
    a.durable(a.numbered(telemetry=api.TelemetryReport(attempt=c.ref(job), state=state or api.TELEMETRY_STATE_LOST, reason=reason)))


def runs(c, job="1", ago=30, **kw):
    c.job(job, "RUNNING", start_unix=int(time.time()) - ago, **kw)


def put(c, lines, job="1", restart=0, **kw):
    vl.put(lines, job="train", cluster=c.name, slurm_job_id=job, restart=str(restart), **kw)


def attempt(c, job="1"):
    return c.timeline(job).attempts[-1]


@case
def a_crash_line_that_only_victorialogs_has_is_the_attempts_anomaly():
    c = advsources.beating(advstack.FakeCluster(api, d, "alpha", api.MODE_ACT, nodes=("n1", "n2")))
    runs(c)
    telemetry(c)
    put(c, [STEP.format(i, i * 8) for i in range(1, 6)], host="n1.example.org")
    wait_for("the steps", lambda: attempt(c).last_step == 5, 30)
    t = wait_for("its telemetry", lambda: (t := attempt(c)).telemetry == api.TELEMETRY_STATE_PARTIAL and t)
    assert "read by way of logs (victorialogs)" in t.telemetry_reason, t
    began = time.monotonic()
    put(c, [ECC], host="n2.example.org")
    an = wait_for("the suspicion", lambda: list(c.timeline("1").anomalies), 30)
    print(f"# line sent to suspicion stored: {time.monotonic() - began:.1f} s, polled every 0.5 s")
    assert len(an) == 1 and an[0].fault_class == "gpu_hardware" and list(an[0].nodes) == ["n2"], an
    assert an[0].stream == "victorialogs" and an[0].status == api.ANOMALY_STATUS_SUSPICION, an
    c.job("1", "FAILED", exit_code=1, start_unix=t.start_time.seconds, end_unix=int(time.time()))
    ad = wait_for("advice", lambda: c.advice("1"), 30)
    assert ad.desired_state == api.DESIRED_STATE_RESTARTED and list(ad.exclude_nodes) == ["n2"], ad
    c.close()


@case
def a_line_that_comes_after_the_end_counts_and_each_line_once():
    c = advsources.beating(advstack.FakeCluster(api, d, "after", api.MODE_ACT, nodes=("n1", "n2")))
    start = int(time.time()) - 30
    runs(c)
    telemetry(c)
    put(c, [STEP.format(1, 8)], host="n1")
    wait_for("the step", lambda: attempt(c).last_step == 1, 30)
    c.job("1", "FAILED", exit_code=1, start_unix=start, end_unix=int(time.time()))
    put(c, [ECC], at=time.time() - 1, host="n1")  # said before the end, shipped after it
    an = wait_for("the anomaly", lambda: [a for a in c.timeline("1").anomalies if a.fault_class == "gpu_hardware"], 30)
    ad = wait_for("advice", lambda: c.advice("1"), 30)
    assert list(ad.exclude_nodes) == ["n1"], ad
    # the same window is asked again and again: no line is taken twice
    seq, end = [e.seq for e in c.audit()], time.monotonic() + 3
    wait_for("three seconds of asking", lambda: time.monotonic() > end)
    assert [e.seq for e in c.audit()] == seq and len(an) == 1, c.audit()
    c.close()


@case
def lines_of_other_jobs_attempts_clusters_and_times_are_not_taken():
    c = advsources.beating(advstack.FakeCluster(api, d, "gamma", api.MODE_ACT, nodes=("n1", "n2")))
    runs(c, restart_count=1, ago=20)
    telemetry(c)
    c.agent.durable(c.agent.numbered(telemetry=api.TelemetryReport(attempt=c.ref("1", 1), state=api.TELEMETRY_STATE_LOST, reason="x")))
    put(c, [ECC], restart=0, host="n1")                       # of the attempt before
    put(c, [ECC], restart=1, at=time.time() - 120, host="n1")  # older than the attempt
    put(c, [ECC], job="2", restart=1, host="n1")
    vl.put([ECC], job="train", cluster="other", slurm_job_id="1", restart="1", host="n1")
    put(c, [STEP.format(7, 56)], restart=1, host="n1")
    wait_for("the step", lambda: attempt(c).last_step == 7, 30)
    assert not c.timeline("1").anomalies, c.timeline("1").anomalies
    c.close()


@case
def what_the_agent_reads_in_full_is_not_asked_for():
    c = advsources.beating(advstack.FakeCluster(api, d, "twice", api.MODE_ACT, nodes=("n1", "n2")))
    runs(c)
    telemetry(c, state=api.TELEMETRY_STATE_COMPLETE, reason="")
    runs(c, job="2")
    telemetry(c, job="2")
    put(c, [ECC], host="n1")
    put(c, [ECC], job="2", host="n1")
    wait_for("the other job's anomaly", lambda: c.timeline("2").anomalies, 30)
    assert not c.timeline("1").anomalies and attempt(c).telemetry == api.TELEMETRY_STATE_COMPLETE, c.timeline("1")
    c.close()


@case
def node_logs_are_evidence_of_their_node_and_time_and_never_job_output():
    c = advsources.beating(advstack.FakeCluster(api, d, "nodes", api.MODE_ACT, nodes=("k1", "k2")))
    runs(c, nodes="k[1-2]")
    telemetry(c, state=api.TELEMETRY_STATE_COMPLETE, reason="")
    xid = "NVRM: Xid (PCI:0000:1a:00): 79, pid=10, GPU has fallen off the bus."
    vl.put([xid], job="kernel", host="k9.example.org")                       # not one of its nodes
    vl.put([xid], job="kernel", host="k1.example.org", at=time.time() - 300)  # before it ran
    vl.put([xid, "python[77]: " + ECC, xid], job="kernel", host="k2.example.org")
    ev = wait_for("the evidence", lambda: list(c.timeline("1").evidence), 30)
    assert len(ev) == 1 and list(ev[0].nodes) == ["k2"] and ev[0].kind == "node-log", ev
    assert ev[0].source == "logs (victorialogs)" and "xid" in ev[0].summary and ev[0].window_start_time.seconds, ev
    assert not c.timeline("1").anomalies and xid not in ev[0].summary, c.timeline("1")
    c.close()


def fails(c, job="1"):
    now = int(time.time())
    c.job(job, "FAILED", exit_code=1, start_unix=now - 30, end_unix=now, nodes=attempt(c, job).nodes and ",".join(attempt(c, job).nodes))


@case
def what_a_nodes_log_has_about_the_end_decides_which_node_is_left_out():
    xid = "NVRM: Xid (PCI:0000:1a:00): 79, pid=10, GPU has fallen off the bus."
    c = advsources.beating(advstack.FakeCluster(api, d, "blamed", api.MODE_ACT, nodes=[f"m{i}" for i in range(1, 9)]))
    runs(c, nodes="m[1-4]")
    telemetry(c, state=api.TELEMETRY_STATE_COMPLETE, reason="")
    vl.put([xid, "NVRM: Xid (PCI:0000:1a:00): 13, pid=10, Graphics SM Warp Exception"], job="kernel", host="m2.example.org")
    ev = wait_for("the evidence", lambda: [e for e in c.timeline("1").evidence if e.fault_class == "gpu_hardware"], 30)[0]
    assert ev.rule == "xid-gpu-hardware" and ev.weight_percent == 60 and ev.reporter == "sources", ev
    began = time.monotonic()
    fails(c)
    ad = wait_for("the advice", lambda: c.advice("1"), 60)
    assert time.monotonic() - began < 60, "it names a node: no shared cause is waited for"
    assert ad.desired_state == api.DESIRED_STATE_RESTARTED and list(ad.exclude_nodes) == ["m2"], ad
    why = [r for r in ad.reasons if r.code == "node_evidence"]
    assert len(why) == 1 and list(why[0].params) == [ev.uid], ad.reasons
    assert "xid-gpu-hardware" in why[0].sentence and "logs (victorialogs)" in why[0].sentence and "60 %" in why[0].sentence, why
    c.close()


@case
def what_most_nodes_logs_have_names_nobody():
    xid = "NVRM: Xid (PCI:0000:1a:00): 79, pid=10, GPU has fallen off the bus."
    names = [f"w{i}" for i in range(1, 41)]
    c = advsources.beating(advstack.FakeCluster(api, d, "shared", api.MODE_ACT, nodes=names))
    runs(c, nodes="w[1-40]")
    telemetry(c, state=api.TELEMETRY_STATE_COMPLETE, reason="")
    for n in names[:20]:
        vl.put([xid, xid], job="kernel", host=n)
    wait_for("that there is more than is told", lambda: [e for e in c.timeline("1").evidence if e.kind == "node-log-more"], 60)
    ev = list(c.timeline("1").evidence)
    assert 12 <= len(ev) <= 14, ev  # bounded, and enough to know that they are many
    c.log("1", b"RuntimeError: NCCL communicator was aborted on rank 3.\n")
    wait_for("the suspicion", lambda: c.timeline("1").anomalies, 30)
    fails(c)
    ad = wait_for("the advice", lambda: c.advice("1"), 120)
    assert ad.desired_state == api.DESIRED_STATE_RESTARTED and not ad.exclude_nodes, ad
    assert [r for r in ad.reasons if r.code == "node_evidence_shared"], ad.reasons
    c.close()


@case
def a_stopped_victorialogs_makes_its_logs_unknown_and_nothing_else():
    c = advsources.beating(advstack.FakeCluster(api, d, "down", api.MODE_ACT, nodes=("n1", "n2")))
    runs(c)
    telemetry(c)
    put(c, [STEP.format(1, 8)], host="n1")
    wait_for("the step", lambda: attempt(c).last_step == 1, 30)
    vl.stop()
    t = wait_for("the gap", lambda: (t := attempt(c)) and "not read since" in t.telemetry_reason and t, 30)
    assert t.telemetry == api.TELEMETRY_STATE_LOST and "logs (victorialogs)" in t.telemetry_reason, t
    wait_for("the cluster to say so", lambda: "logs (victorialogs): no answer since" in c.view().sources_unknown, 30)
    assert d.serving()
    vl.start()
    wait_for("the gap to close", lambda: "not read since" not in attempt(c).telemetry_reason, 60)
    wait_for("the cluster to be whole", lambda: not c.view().sources_unknown, 30)
    put(c, [ECC], host="n2")
    an = wait_for("the anomaly", lambda: list(c.timeline("1").anomalies), 30)
    assert list(an[0].nodes) == ["n2"], an
    c.close()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
