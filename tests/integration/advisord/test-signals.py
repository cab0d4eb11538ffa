#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What detectors report, and what reports make of the past: who may, what is kept, what is refused, and that an answer is on
disk."""
import hashlib
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

import grpc  # noqa: E402
from google.protobuf.timestamp_pb2 import Timestamp  # noqa: E402

S = grpc.StatusCode
refused = advstack.refused
api = advstack.stubs()
CASES = []


def case(f):
    CASES.append(f)
    return f


bindings = os.path.join(advstack.tempfile.mkdtemp(prefix="advsignals-"), "auth.yaml")
with open(bindings, "w") as f:
    f.write("bindings:\n  - {principals: ['detector:narrow'], role: detector, clusters: ['acc'], accounts: ['ml-*']}\n")
d = advstack.Advisord(**{"detect.log_settle": "50ms", "detect.fallback_delay": "1s", "decide.advice_valid": "600s",
                         "auth.bindings": bindings})


def signals(name="detector:dcgm"):
    return api.SignalServiceStub(d.channel(name))


def at(seconds):
    t = Timestamp()
    t.FromNanoseconds(int(seconds * 1e9))
    return t


s = signals()


@case
def an_anomaly_is_a_suspicion_until_the_end_confirms_it():
    c = advstack.FakeCluster(api, d, "sig", api.MODE_ACT, nodes=[f"n{i}" for i in range(1, 41)])
    begun = int(time.time()) - 100
    c.job("1", "RUNNING", start_unix=begun)
    ask = dict(ref=c.ref("1"), kind=api.ANOMALY_KIND_CRASH, fault_class="gpu_hardware", rule="xid-79", request_id="a1",
               retryable=api.RETRYABILITY_YES, nodes=["n2", "n3"], ranks=["4", "5"], observe_time=at(begun + 50),
               excerpt="GPU fell off the bus, token=hf_abcdefghijklmnop " + "é" * 500)
    tell = lambda stub=s, **kw: stub.ReportAnomaly(api.ReportAnomalyRequest(**{**ask, **kw}), timeout=10).anomaly  # noqa: E731
    got = tell()
    assert got.status == api.ANOMALY_STATUS_SUSPICION and got.reporter == "detector:dcgm" and got.rule == "xid-79", got
    assert list(got.nodes) == ["n2"] and list(got.ranks) == ["4", "5"] and got.fault_class == "gpu_hardware", got
    assert "hf_abc" not in got.excerpt and "***" in got.excerpt and len(got.excerpt.encode()) <= 500, got.excerpt
    assert got.excerpt_sha256 == hashlib.sha256(got.excerpt.encode()).hexdigest()
    assert got.observe_time == at(begun + 50) and got.record_time.seconds and got.revision, got
    assert tell() == got  # the same call again
    refused(lambda: tell(rule="other"), S.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    again = tell(request_id="a2", nodes=["n1"])  # another call, the same anomaly
    assert again.name == got.name and sorted(again.nodes) == ["n1", "n2"], again
    other = tell(signals("detector:other"), request_id="a3")  # of somebody else: another
    assert other.name != got.name and other.reporter == "detector:other", other
    c.job("1", "FAILED", exit_code=1, start_unix=begun, end_unix=int(time.time()))
    ad = wait_for("advice", lambda: c.advice("1"))
    assert ad.desired_state == api.DESIRED_STATE_RESTARTED and ad.exclude_nodes, ad
    assert any(r.code == "reported" and "detector:" in r.sentence for r in ad.reasons), ad.reasons
    # what is said now is told, and changes nothing
    late = tell(request_id="a4", rule="xid-48", nodes=["n1"], retryable=api.RETRYABILITY_NO)
    assert late.status == api.ANOMALY_STATUS_CONFIRMED and "no advice changed" in late.status_reason, late
    t = c.timeline("1")
    assert {a.rule for a in t.anomalies} == {"xid-79", "xid-48"} and t.advice[0].generation == ad.generation, t
    assert any(e.kind == "suspicion" and "detector:dcgm reported xid-79" in e.text for e in t.entries), t.entries
    verbs = [(e.principal, e.subject) for e in c.audit("signal.anomaly")]
    assert len(verbs) == 4 and {p for p, _ in verbs} == {"detector:dcgm", "detector:other"}, verbs
    c.close()


@case
def words_are_looked_at():
    c = advstack.FakeCluster(api, d, "words")
    begun = int(time.time()) - 100
    c.job("1", "RUNNING", start_unix=begun)
    A = lambda **kw: s.ReportAnomaly(api.ReportAnomalyRequest(**{  # noqa: E731
        "ref": c.ref("1"), "kind": api.ANOMALY_KIND_HANG, "rule": "r", **kw}), timeout=10).anomaly
    E = lambda **kw: s.ReportEvidence(api.ReportEvidenceRequest(**{  # noqa: E731
        "ref": c.ref("1"), "source": "dcgm", "kind": "ecc", **kw}), timeout=10).evidence
    P = lambda **kw: s.ReportProgress(api.ReportProgressRequest(**{"ref": c.ref("1"), "step": 1, **kw}), timeout=10).attempt  # noqa: E731
    M = lambda **kw: s.ReportMilestone(api.ReportMilestoneRequest(**{  # noqa: E731
        "ref": c.ref("1"), "milestone": api.REPORTED_MILESTONE_CHECKPOINT, "step": 1, **kw}), timeout=10).attempt
    I = S.INVALID_ARGUMENT  # noqa: E741
    for call, reason, field in (
            (lambda: A(kind=0), "ANOMALY_KIND_MALFORMED", "kind"), (lambda: A(kind=9), "ANOMALY_KIND_MALFORMED", "kind"),
            (lambda: A(retryable=7), "RETRYABILITY_MALFORMED", "retryable"), (lambda: A(rule=""), "WORD_MALFORMED", "rule"),
            (lambda: A(rule="x" * 65), "WORD_MALFORMED", "rule"), (lambda: A(rule="a b"), "WORD_MALFORMED", "rule"),
            (lambda: A(fault_class="GPU"), "WORD_MALFORMED", "fault_class"),
            (lambda: A(fault_class="x" * 32), "WORD_MALFORMED", "fault_class"),
            (lambda: A(nodes=["n1", ""]), "NODE_NAME_MALFORMED", "nodes[1]"),
            (lambda: A(nodes=["n[1-9]"]), "NODE_NAME_MALFORMED", "nodes[0]"),
            (lambda: A(nodes=["n1"] * 1025), "COUNT_OUT_OF_RANGE", "nodes"),
            (lambda: A(ranks=["0,1"]), "WORD_MALFORMED", "ranks[0]"), (lambda: A(ranks=["1"] * 257), "COUNT_OUT_OF_RANGE", "ranks"),
            (lambda: A(observe_time=Timestamp(seconds=-1)), "TIME_MALFORMED", "observe_time"),
            (lambda: A(observe_time=at(begun - 1)), "TIME_OUT_OF_RANGE", "observe_time"),
            (lambda: A(observe_time=at(time.time() + 3600)), "TIME_IN_FUTURE", "observe_time"),
            (lambda: A(request_id="x" * 65), "REQUEST_ID_TOO_LONG", "request_id"),
            (lambda: A(ref=None), "NAME_MISSING", "name"),
            (lambda: E(source=""), "WORD_MALFORMED", "source"), (lambda: E(kind=""), "WORD_MALFORMED", "kind"),
            (lambda: E(weight_percent=101), "WEIGHT_OUT_OF_RANGE", "weight_percent"),
            (lambda: E(excerpt_sha256="AB"), "HASH_MALFORMED", "excerpt_sha256"),
            (lambda: E(summary="x" * 501), "TEXT_TOO_LONG", "summary"), (lambda: E(excerpt_ref="\n"), "TEXT_MALFORMED", "excerpt_ref"),
            (lambda: E(window_start_time=at(begun + 9), window_end_time=at(begun + 8)), "TIME_OUT_OF_RANGE", "window_end_time"),
            (lambda: P(step=0), "STEP_MISSING", "step"), (lambda: M(step=0), "STEP_MISSING", "step"),
            (lambda: M(milestone=0), "MILESTONE_MALFORMED", "milestone"),
            (lambda: M(milestone=9), "MILESTONE_MALFORMED", "milestone")):
        refused(call, I, reason, field)
    refused(lambda: A(ref=c.ref("1", 3)), S.NOT_FOUND, "ATTEMPT_NOT_FOUND")
    refused(lambda: E(ref=c.ref("77")), S.NOT_FOUND, "JOB_NOT_FOUND")
    refused(lambda: P(ref=api.AttemptRef(cluster="nowhere", job_id="1")), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    assert not c.timeline("1").anomalies and not c.timeline("1").evidence and not c.audit("signal.")
    c.job("2", "RUNNING", comment=b'{"advisor":{"mode":"off"}}')
    for call in (lambda: A(ref=c.ref("2")), lambda: E(ref=c.ref("2")), lambda: P(ref=c.ref("2")), lambda: M(ref=c.ref("2"))):
        refused(call, S.FAILED_PRECONDITION, "DETECTION_OFF")
    c.close()


@case
def evidence_is_kept_once_and_not_without_end():
    c = advstack.FakeCluster(api, d, "ev")
    begun = int(time.time()) - 100
    c.job("1", "RUNNING", start_unix=begun)
    E = lambda **kw: s.ReportEvidence(api.ReportEvidenceRequest(**{  # noqa: E731
        "ref": c.ref("1"), "source": "dcgm", "kind": "ecc", **kw}), timeout=10).evidence
    sha = hashlib.sha256(b"x").hexdigest()
    got = E(nodes=["n1", "n9"], ranks=["0"], weight_percent=80, summary="12 errors", excerpt_ref="loki:7", excerpt_sha256=sha,
            window_start_time=at(begun + 1), window_end_time=at(begun + 2), request_id="e1")
    assert list(got.nodes) == ["n1"] and got.weight_percent == 80 and got.summary == "12 errors", got
    assert got.excerpt_sha256 == sha and got.excerpt_ref == "loki:7" and got.reporter == "detector:dcgm", got
    assert E(nodes=["n1", "n9"], ranks=["0"], weight_percent=80, summary="12 errors", excerpt_ref="loki:7", excerpt_sha256=sha,
             window_start_time=at(begun + 1), window_end_time=at(begun + 2), request_id="e1") == got
    assert len(c.timeline("1").evidence) == 1
    by_name = E(ref=None, name=c.timeline("1").attempts[0].name, request_id="e2")
    assert by_name.name != got.name
    for i in range(30):
        E(request_id=f"more{i}")
    refused(lambda: E(request_id="much"), S.RESOURCE_EXHAUSTED, "EVIDENCE_LIMIT")
    assert E(request_id="more29").name == c.timeline("1").evidence[-1].name  # what was answered stays answered
    t = c.timeline("1")
    assert len(t.evidence) == 32 and any(e.kind == "evidence" and "dcgm: ecc" in e.text for e in t.entries), t.entries
    c.close()


@case
def weightier_anomalies_leave_no_room():
    c = advstack.FakeCluster(api, d, "full")
    c.job("1", "RUNNING")
    A = lambda i, by=s: by.ReportAnomaly(api.ReportAnomalyRequest(  # noqa: E731
        ref=c.ref("1"), kind=api.ANOMALY_KIND_CRASH, rule=f"r{i}", nodes=["n1"], request_id=f"full{i}"), timeout=10).anomaly
    for i in range(8):
        A(i)
    refused(lambda: A(9), S.RESOURCE_EXHAUSTED, "ANOMALY_LIMIT")
    assert sorted(a.rule for a in c.timeline("1").anomalies) == [f"r{i}" for i in range(8)]
    c.close()


@case
def progress_and_milestones_move_the_attempt():
    c = advstack.FakeCluster(api, d, "moves")
    c.job("1", "RUNNING")
    s.ReportAnomaly(api.ReportAnomalyRequest(ref=c.ref("1"), kind=api.ANOMALY_KIND_HANG, rule="hung"), timeout=10)
    for step in (10, 11):
        a = s.ReportProgress(api.ReportProgressRequest(ref=c.ref("1"), step=step, request_id=f"p{step}"), timeout=10).attempt
        assert a.last_step == step, a
    assert [x.status for x in c.timeline("1").anomalies] == [api.ANOMALY_STATUS_WITHDRAWN]
    a = s.ReportMilestone(api.ReportMilestoneRequest(ref=c.ref("1"), milestone=api.REPORTED_MILESTONE_CHECKPOINT, step=11),
                          timeout=10).attempt
    assert a.last_checkpoint_step == 11, a
    a = s.ReportMilestone(api.ReportMilestoneRequest(ref=c.ref("1"), milestone=api.REPORTED_MILESTONE_RESUMED, step=7),
                          timeout=10).attempt
    assert a.resumed_from_step == 7, a
    assert [e.detail for e in c.audit("signal.progress")] in (["step 10", "step 11"], ["step 11", "step 10"])
    assert len(c.audit("signal.checkpoint")) == len(c.audit("signal.resumed")) == 1
    c.close()


@case
def watchers_hear_of_it_at_once():
    c = advstack.FakeCluster(api, d, "heard")
    c.job("1", "RUNNING")
    stream = api.WatchServiceStub(d.channel("reader:bob")).Watch(api.WatchRequest(
        parent="clusters/heard", kinds=[api.RESOURCE_KIND_ANOMALY, api.RESOURCE_KIND_EVIDENCE]), timeout=60)
    for m in stream:
        if m.type == api.WATCH_EVENT_TYPE_SYNCED:
            break
    an = s.ReportAnomaly(api.ReportAnomalyRequest(ref=c.ref("1"), kind=api.ANOMALY_KIND_CRASH, rule="r"), timeout=10).anomaly
    ev = s.ReportEvidence(api.ReportEvidenceRequest(ref=c.ref("1"), source="x", kind="y"), timeout=10).evidence
    assert next(stream).anomaly == an
    assert next(stream).evidence == ev
    stream.cancel()
    c.close()


@case
def only_detectors_and_only_where_they_are_bound():
    c = advstack.FakeCluster(api, d, "acc")
    c.job("1", "RUNNING", account="ml-a")
    c.job("2", "RUNNING", account="physics")
    call = lambda who, job="1", at=c: signals(who).ReportProgress(  # noqa: E731
        api.ReportProgressRequest(ref=at.ref(job), step=1), timeout=10)
    for who in ("reader:bob", "user:alice", "agent:acc"):
        refused(lambda: call(who), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    call("operator:al")  # may what a detector may
    call("detector:narrow")
    refused(lambda: call("detector:narrow", "2"), S.NOT_FOUND, "JOB_NOT_FOUND")
    refused(lambda: call("detector:narrow", "1", type("X", (), {"ref": lambda self, j: api.AttemptRef(cluster="moves", job_id=j)})()),
            S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    refused(lambda: api.JobServiceStub(d.channel("detector:dcgm")).GetJob(api.GetJobRequest(ref=c.ref("1")), timeout=10),
            S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    c.close()


@case
def an_answer_is_on_disk():
    c = advstack.FakeCluster(api, d, "disk")
    c.job("1", "RUNNING")
    s.ReportProgress(api.ReportProgressRequest(ref=c.ref("1"), step=41), timeout=10)
    a = s.ReportProgress(api.ReportProgressRequest(ref=c.ref("1"), step=42, request_id="k3"), timeout=10).attempt
    an = s.ReportAnomaly(api.ReportAnomalyRequest(ref=c.ref("1"), kind=api.ANOMALY_KIND_CRASH, rule="r", request_id="k1"),
                         timeout=10).anomaly
    ev = s.ReportEvidence(api.ReportEvidenceRequest(ref=c.ref("1"), source="x", kind="y", request_id="k2"), timeout=10).evidence
    d.kill()
    c.close()
    d.start()
    reader = api.JobServiceStub(d.channel("reader:bob"))
    t = wait_for("the job", lambda: reader.GetJobTimeline(api.GetJobTimelineRequest(ref=c.ref("1")), timeout=10))
    assert list(t.anomalies) == [an] and list(t.evidence) == [ev] and t.attempts[0].last_step == a.last_step == 42, t
    again = signals().ReportAnomaly(api.ReportAnomalyRequest(ref=c.ref("1"), kind=api.ANOMALY_KIND_CRASH, rule="r",
                                                             request_id="k1"), timeout=10).anomaly
    assert again == an
    assert signals().ReportEvidence(api.ReportEvidenceRequest(ref=c.ref("1"), source="x", kind="y", request_id="k2"),
                                    timeout=10).evidence == ev


# ---- reports ---------------------------------------------------------------------------------------------------------

@case
def reports_count_what_is_stored():
    reports = api.ReportServiceStub(d.channel("reader:bob"))
    people = api.AdviceServiceStub(d.channel("operator:alice"))
    a = advstack.FakeCluster(api, d, "rep-a", api.MODE_APPROVE)
    b = advstack.FakeCluster(api, d, "rep-b", api.MODE_OBSERVE)
    before = time.time() - 1
    right = [a.fails("1"), a.fails("2"), a.fails("3")]
    b.fails("1")
    died = b.fails("2", line=b"ModuleNotFoundError: No module named 'flash_attn'\n")
    assert died.desired_state == api.DESIRED_STATE_NO_ACTION
    verdict = lambda ad, v: people.RecordVerdict(api.RecordVerdictRequest(name=ad.name, generation=ad.generation, verdict=v),  # noqa: E731
                                                 timeout=10)
    verdict(right[0], api.VERDICT_VALUE_RIGHT)
    verdict(right[1], api.VERDICT_VALUE_RIGHT)
    verdict(right[2], api.VERDICT_VALUE_WRONG)
    verdict(died, api.VERDICT_VALUE_WRONG)
    people.ApproveAdvice(api.ApproveAdviceRequest(name=right[0].name, generation=1), timeout=10)
    people.RejectAdvice(api.RejectAdviceRequest(name=right[1].name, generation=1), timeout=10)
    out = lambda parent="clusters/-", **kw: {  # noqa: E731
        (r.cluster, r.fault_class): r for r in reports.GetOutcomeReport(
            api.GetOutcomeReportRequest(parent=parent, start_time=at(before), **kw), timeout=10).rows}
    rows = out()
    ra = rows["clusters/rep-a", "gpu_hardware"]
    assert (ra.advice, ra.restarted, ra.no_action) == (3, 3, 0), ra
    assert (ra.approved, ra.rejected, ra.awaiting_approval, ra.pending, ra.abandoned, ra.shadow) == (1, 1, 1, 2, 1, 0), ra
    assert (ra.restarted_right, ra.restarted_wrong) == (2, 1) and ra.has_precision and abs(ra.precision - 2 / 3) < 1e-9, ra
    assert ra.has_recall and ra.recall == 1 and ra.has_agreement and abs(ra.agreement - 2 / 3) < 1e-9, ra
    rb = rows["clusters/rep-b", "gpu_hardware"]
    assert (rb.advice, rb.restarted, rb.shadow) == (1, 1, 1) and not rb.has_precision and not rb.has_recall, rb
    rd = [r for (c, k), r in rows.items() if c == "clusters/rep-b" and k != "gpu_hardware"]
    assert len(rd) == 1 and (rd[0].no_action, rd[0].no_action_wrong, rd[0].has_recall, rd[0].recall) == (1, 1, True, 0), rd
    assert list(rows) == sorted(rows)
    assert set(out("clusters/rep-b")) == {k for k in rows if k[0] == "clusters/rep-b"}
    assert set(k[1] for k in out(fault_class="gpu_hardware")) == {"gpu_hardware"}
    assert not out(end_time=at(before + 0.001)) and not out(fault_class="nothing_like_it")

    lat = reports.GetLatencyReport(api.GetLatencyReportRequest(parent="clusters/rep-a", start_time=at(before)), timeout=10).rows
    kinds = {r.interval: r for r in lat}
    assert set(kinds) == {api.LATENCY_INTERVAL_SIGNAL_TO_ANOMALY, api.LATENCY_INTERVAL_END_TO_CONFIRMED,
                          api.LATENCY_INTERVAL_END_TO_ADVISED} or \
        set(kinds) == {api.LATENCY_INTERVAL_END_TO_CONFIRMED, api.LATENCY_INTERVAL_END_TO_ADVISED}, lat
    advised = kinds[api.LATENCY_INTERVAL_END_TO_ADVISED]
    exact = sorted((lambda m: (m.advised.ToMicroseconds() - m.end_observed.ToMicroseconds()) // 1000)(
        a.timeline(j).attempts[0].milestones) for j in "123")
    assert advised.count == 3 and (advised.p50_ms, advised.p95_ms, advised.p99_ms, advised.max_ms) == (
        exact[1], exact[2], exact[2], exact[2]), (advised, exact)
    L = lambda **kw: reports.GetLatencyReport(api.GetLatencyReportRequest(**{"parent": "clusters/-", **kw}), timeout=10)  # noqa: E731
    refused(lambda: L(parent="clusters/none"), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    refused(lambda: L(parent="x"), S.INVALID_ARGUMENT, "NAME_MALFORMED", "parent")
    refused(lambda: L(start_time=at(5), end_time=at(4)), S.INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "end_time")
    refused(lambda: L(fault_class="x" * 32), S.INVALID_ARGUMENT, "FILTER_TOO_LONG", "fault_class")
    refused(lambda: api.ReportServiceStub(d.channel("detector:x")).GetLatencyReport(
        api.GetLatencyReportRequest(parent="clusters/-"), timeout=10), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    mine = api.ReportServiceStub(d.channel("user:bob")).GetOutcomeReport(
        api.GetOutcomeReportRequest(parent="clusters/-"), timeout=10).rows
    assert not mine, mine  # alice's jobs are none of bob's
    a.close()
    b.close()


failed = 0
for f in CASES:
    try:
        f()
        print("ok", f.__name__.replace("_", " "))
    except Exception as e:  # noqa: BLE001
        failed += 1
        import traceback
        traceback.print_exc()
        print("FAILED", f.__name__, repr(e)[:300])
        if d.proc.poll() is not None:
            print(d.tail_log(40))
            break
try:
    d.stop()
except AssertionError as e:
    print("FAILED", e)
    failed += 1
sys.exit(1 if failed else 0)
