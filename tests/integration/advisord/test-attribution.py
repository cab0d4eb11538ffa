#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Providers of attributions over real gRPC: the reference one, and one that hangs, fails, comes late, lies, goes away and returns.
Whatever it does, a decision is made, and one that it could not have changed is what it would be without."""
import os
import subprocess
import sys
import threading
import time
from concurrent import futures

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
import grpc  # noqa: E402
from advlab import wait_for  # noqa: E402

CASES = []
api = advstack.stubs()
STUBS = sys.path[0]
NOBODY = b"RuntimeError: NCCL communicator was aborted on rank 3.\n"
USERS = b"Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nKeyError: 'lr'\n"
FAST, SLOW = api.ATTRIBUTION_PHASE_FAST, api.ATTRIBUTION_PHASE_SLOW


def case(f):
    CASES.append(f)
    return f


def blames(node, confidence=80, fault_class="gpu_hardware", **kw):
    nodes = [node] if isinstance(node, str) else list(node)
    return api.AttributeResponse(attributions=[api.Attribution(fault_class=fault_class, nodes=nodes, confidence_percent=confidence,
                                                               summary="seen \x1b[31mred", provider="acme 1", **kw)])


class Provider:
    """A server whose answers a test decides: answer(phase, request, context) gives a message or bytes."""

    def __init__(self, answer, port=0, creds=None):
        self.answer, self.asked, self.creds = answer, [], creds
        self.start(port)

    def start(self, port=0):
        def handle(request, context):
            self.asked.append(request)
            got = self.answer(request.phase, request, context)
            return got if isinstance(got, bytes) else got.SerializeToString()

        method = grpc.unary_unary_rpc_method_handler(handle, api.AttributeRequest.FromString, lambda b: b)
        self.server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("advisor.v1.AttributionService",
                                                                                   {"Attribute": method})])
        at = f"127.0.0.1:{port}"
        self.port = self.server.add_secure_port(at, self.creds) if self.creds else self.server.add_insecure_port(at)
        assert self.port
        self.server.start()

    def phases(self):
        return sorted(q.phase for q in list(self.asked))

    def stop(self):
        self.server.stop(0).wait()


def control_plane(target, mode=None, **config):
    d = advstack.Advisord(**{"attribution.target": target, "detect.log_settle": "100ms", "detect.fallback_delay": "500ms",
                             "decide.shared_cause_window": "0s", "agent.silence_timeout": "60s", "stop_grace": "100ms", "attribution.fast_budget": "3s",
                             "attribution.slow_budget": "20s", **config})
    c = advstack.FakeCluster(api, d, "alpha", mode or api.MODE_ACT, nodes=[f"n{i}" for i in range(1, 17)])
    return d, c


def fails(c, job="1", line=NOBODY, state="FAILED", nodes="n[1-4]", ago=600):
    now = int(time.time())
    c.agent.heartbeat()
    c.job(job, "RUNNING", start_unix=now - ago, nodes=nodes)
    if line:
        c.log(job, line)
        wait_for("the suspicion", lambda: c.timeline(job).anomalies, 30)
    c.agent.heartbeat()
    c.job(job, state, exit_code=1, start_unix=now - ago, end_unix=int(time.time()), nodes=nodes)
    return job


def decided(c, job="1"):
    def ad():
        c.agent.heartbeat()
        return c.advice(job)
    return wait_for("the advice", ad, 60)


def codes(ad):
    return [r.code for r in ad.reasons]


def why(ad, code="no_attribution"):
    hits = [r.sentence for r in ad.reasons if r.code == code]
    assert len(hits) == 1, ad.reasons
    return hits[0]


def fails_open(c, job="1"):
    """As it would be without a provider."""
    ad = decided(c, job)
    assert ad.desired_state == api.DESIRED_STATE_RESTARTED and not ad.exclude_nodes, ad
    return ad


@case
def an_answer_names_the_node():
    p = Provider(lambda phase, q, ctx: blames("n2") if phase == FAST else api.AttributeResponse())
    d, c = control_plane(f"127.0.0.1:{p.port}")
    ad = decided(c, fails(c))
    assert ad.desired_state == api.DESIRED_STATE_RESTARTED and list(ad.exclude_nodes) == ["n2"], ad
    ev = [e for e in c.timeline("1").evidence if e.kind == "attribution"]
    assert len(ev) == 1 and list(ev[0].nodes) == ["n2"] and ev[0].source == "acme 1" and ev[0].weight_percent == 80, ev
    assert ev[0].reporter == "attribution" and ev[0].rule == "fast" and "\x1b" not in ev[0].summary, ev
    r = [r for r in ad.reasons if r.code == "node_evidence"]
    assert len(r) == 1 and list(r[0].params) == [ev[0].uid] and "confidence 80 %" in r[0].sentence, ad.reasons
    wait_for("both questions", lambda: p.phases() == [FAST, SLOW])
    q = next(q for q in p.asked if q.phase == FAST)
    assert 0 < q.budget_ms <= 3000 and q.job.job_id == "1" and q.attempt.nodes == "n[1-4]" and q.anomalies, q
    time_over = wait_for("what came of them", lambda: len(c.audit("attribution.answer")) == 1 and len(c.audit("attribution.none")) == 1)
    assert time_over and p.phases() == [FAST, SLOW], p.asked  # each once
    d.stop()
    p.stop()


@case
def the_slow_answer_corrects_the_fast_one_until_something_is_under_way():
    go = threading.Event()

    def answer(phase, q, ctx):
        if phase == FAST:
            return blames("n1")
        go.wait(30)
        return blames("n3", 90)

    p = Provider(answer)
    d, c = control_plane(f"127.0.0.1:{p.port}", api.MODE_APPROVE)
    ad = decided(c, fails(c))
    assert list(ad.exclude_nodes) == ["n1"] and ad.generation == 1, ad
    go.set()
    ad = wait_for("the correction", lambda: (x := c.advice("1")).generation == 2 and x, 30)
    assert list(ad.exclude_nodes) == ["n3"], ad
    d.stop()
    p.stop()


@case
def who_lies_is_told_and_ignored():
    garbage = {
        "foreign nodes": (lambda: blames(["m7", "n99", "not a name"]), "none of the attempt's"),
        "a hundred thousand nodes": (lambda: blames([f"n{i}" for i in range(100000)]), "RESOURCE_EXHAUSTED"),
        "another class": (lambda: blames("n2", fault_class="gremlins"), "no class of faults"),
        "no word": (lambda: blames("n2", fault_class="Not A Word!"), "no class that is a word"),
        "no confidence": (lambda: blames("n2", 59), "59 %, below 60 %"),
        "too much of it": (lambda: blames("n2", 4000), "confidence of 4000 %"),
        "a storage fault": (lambda: blames("n2", fault_class="storage"), "no fault of a node"),
        "many nodes": (lambda: blames([f"n{i}" for i in range(2000)]), "more than 1024"),
        "nothing": (api.AttributeResponse, "knows of no cause"),
        "a megabyte": (lambda: blames("n2", evidence_uids=["x" * (1 << 20)]), "RESOURCE_EXHAUSTED"),
        "most of its nodes": (lambda: blames(["n1", "n2", "n3"]), None),
        "no message": (lambda: b"\xff\xff\xff\xff", "INVALID_ARGUMENT"),
        "no text": (lambda: blames("n2").SerializeToString().replace(b"acme", b"ac\xff\xfe"), "INVALID_ARGUMENT"),
    }
    now = [None]
    p = Provider(lambda phase, q, ctx: now[0]())
    d, c = control_plane(f"127.0.0.1:{p.port}", **{"attribution.slow_budget": "0s"})
    for i, (what, (answer, says)) in enumerate(garbage.items()):
        now[0] = answer
        ad = fails_open(c, fails(c, str(i + 1)))
        if says:
            assert says in why(ad), (what, ad.reasons)
        else:
            assert "node_evidence_shared" in codes(ad), (what, ad.reasons)
        assert len(p.asked) == i + 1 and p.phases()[-1] == FAST, (what, p.phases())
        now[0] = lambda: blames("n2")  # and nobody was sent away for good
    ad = decided(c, fails(c, "100"))
    assert list(ad.exclude_nodes) == ["n2"], ad
    d.stop()
    p.stop()


@case
def no_restart_is_made_of_a_users_fault_or_wish():
    p = Provider(lambda phase, q, ctx: blames("n2", 100))
    d, c = control_plane(f"127.0.0.1:{p.port}")
    ad = decided(c, fails(c, "1", USERS))
    assert ad.desired_state == api.DESIRED_STATE_NO_ACTION and "user_fault" in codes(ad), ad
    for job, state in (("2", "CANCELLED"), ("3", "COMPLETED"), ("4", "TIMEOUT"), ("5", "OUT_OF_MEMORY")):
        fails(c, job, NOBODY, state)
    for job in "234":
        ad = decided(c, job)
        assert ad.desired_state == api.DESIRED_STATE_NO_ACTION, ad
    assert not decided(c, "5").exclude_nodes
    fails(c, "6", advstack.FakeCluster.LINE)  # its log names a node
    assert list(decided(c, "6").exclude_nodes) == ["n2"]
    assert not p.asked, p.asked
    # nobody knows why it ended, and it died at its start: that a provider names a node makes it no known fault
    ad = decided(c, fails(c, "7", None, ago=5))
    assert ad.desired_state == api.DESIRED_STATE_NO_ACTION and "died_at_start" in codes(ad), ad
    wait_for("that it was asked", lambda: len(p.asked) == 2)
    wait_for("that both answers are kept", lambda: len(c.timeline("7").evidence) == 2)
    assert c.advice("7").desired_state == api.DESIRED_STATE_NO_ACTION
    d.stop()
    p.stop()


@case
def one_that_hangs_costs_its_budget_and_no_more():
    stop = threading.Event()

    def answer(phase, q, ctx):
        stop.wait(60)
        return blames("n2")  # too late for anybody

    p = Provider(answer)
    d, c = control_plane(f"127.0.0.1:{p.port}", **{"attribution.fast_budget": "2s", "attribution.slow_budget": "3s"})
    began = time.monotonic()
    ad = fails_open(c, fails(c))
    took = time.monotonic() - began
    assert "not answered in time" in why(ad) or "no answer in time" in why(ad), ad.reasons
    assert took >= 2, took
    wait_for("both to be given up", lambda: len(c.audit("attribution.none")) == 2, 30)
    stop.set()
    ad2 = c.advice("1")
    assert ad2.generation == ad.generation and not c.timeline("1").evidence, ad2
    d.stop()
    p.stop()


@case
def errors_open_the_circuit_and_it_is_tried_again():
    sick = [True]

    def answer(phase, q, ctx):
        if sick[0]:
            ctx.abort(grpc.StatusCode.INTERNAL, "no \u00e9\n idea")
        return blames("n2")

    p = Provider(answer)
    d, c = control_plane(f"127.0.0.1:{p.port}", **{"attribution.slow_budget": "0s"})
    ad = fails_open(c, fails(c, "1"))
    assert "INTERNAL: no " in why(ad), ad.reasons
    for i in range(2, 12):
        ad = fails_open(c, fails(c, str(i)))
        if "left alone" in why(ad):
            break
    assert "left alone" in why(ad) and len(p.asked) >= 3, (ad.reasons, len(p.asked))
    assert "the provider of attributions does not answer" in d.log_text()
    sick[0] = False
    for i in range(20, 60):  # until the pause is over
        ad = decided(c, fails(c, str(i)))
        if ad.exclude_nodes:
            break
        time.sleep(0.5)
    assert list(ad.exclude_nodes) == ["n2"], ad
    assert "the provider of attributions answers again" in d.log_text()
    d.stop()
    p.stop()


@case
def one_that_is_gone_fails_at_once_and_is_found_again():
    p = Provider(lambda phase, q, ctx: blames("n2"))
    port = p.port
    d, c = control_plane(f"127.0.0.1:{port}", **{"attribution.slow_budget": "0s", "attribution.fast_budget": "20s"})
    assert list(decided(c, fails(c, "1")).exclude_nodes) == ["n2"]
    p.stop()
    began = time.monotonic()
    for job in ("2", "3", "4", "5"):
        ad = fails_open(c, fails(c, job))
        assert "UNAVAILABLE" in why(ad) or "left alone" in why(ad), ad.reasons
    assert time.monotonic() - began < 60, "nobody waits for who is not there"
    p.start(port)
    for i in range(20, 80):
        ad = decided(c, fails(c, str(i)))
        if ad.exclude_nodes:
            break
        time.sleep(0.5)
    assert list(ad.exclude_nodes) == ["n2"], ad
    d.stop()
    p.stop()


@case
def too_many_questions_are_not_asked():
    go = threading.Event()

    def answer(phase, q, ctx):
        go.wait(60)
        return blames("n2")

    p = Provider(answer)
    d, c = control_plane(f"127.0.0.1:{p.port}", **{"attribution.max_calls": "2", "attribution.fast_budget": "0s",
                                                   "attribution.slow_budget": "60s"})
    for job in ("1", "2", "3"):
        fails(c, job)
        fails_open(c, job)
    wait_for("two that were not asked", lambda: len(c.audit("attribution.none")) == 2)
    assert len(p.asked) == 1, p.asked  # the slow ones get half
    go.set()
    wait_for("the one that was", lambda: len(c.audit("attribution.answer")) == 1)
    d.stop()
    p.stop()


@case
def a_question_under_way_is_not_asked_again_after_a_crash():
    go = threading.Event()

    def answer(phase, q, ctx):
        go.wait(60)
        return blames("n2")

    p = Provider(answer)
    d, c = control_plane(f"127.0.0.1:{p.port}", **{"attribution.fast_budget": "20s"})
    fails(c)
    wait_for("both questions", lambda: len(p.asked) == 2)
    assert c.advice("1") is None, "the decision waits for the answer"
    d.kill()
    c.close()
    d.start()
    go.set()
    c.agent = advstack.FakeAgent(api, d.channel("agent:alpha"), "alpha")
    c.reader = d.channel("reader:again")
    c.agent.wait("welcome")
    c.update(full_begin=True, full_end=True,
             nodes=[api.NodeObservation(name=f"n{i + 1}", state_raw="IDLE", available=True, hash=1000 + i) for i in range(16)],
             jobs=[api.JobObservation(job_id="1", state=api.JOB_STATE_FAILED, state_raw="FAILED", batch=True, requeueable=True,
                                      submit_unix=1000, user="alice", partition="main", nodes="n[1-4]", detail_known=True, name=b"train",
                                      comment=b'{"advisor":{}}', incarnation_unix=1000, exit_code=1, start_unix=int(time.time()) - 600,
                                      end_unix=int(time.time()), hash=c.last["1"])])
    ad = fails_open(c)
    assert len(p.asked) == 2, "asked again"
    assert "not answered" in why(ad), ad.reasons
    d.stop()
    p.stop()


@case
def it_stops_cleanly_with_a_question_under_way():
    go = threading.Event()
    p = Provider(lambda phase, q, ctx: (go.wait(60), blames("n2"))[1])
    d, c = control_plane(f"127.0.0.1:{p.port}")
    fails(c)
    wait_for("the questions", lambda: len(p.asked) == 2)
    began = time.monotonic()
    d.stop()
    assert time.monotonic() - began < 25
    go.set()
    p.stop()


@case
def over_tls_each_side_knows_the_other():
    ca = advstack.Ca(advstack.tempfile.mkdtemp(prefix="advattr-"))
    cert, key = ca.issue("provider", "DNS:localhost", "IP:127.0.0.1")
    mine, my_key = ca.issue("advisord-client", "URI:advisor:client")
    read = [open(f, "rb").read() for f in (key, cert, ca.cert)]
    creds = grpc.ssl_server_credentials([(read[0], read[1])], read[2], require_client_auth=True)
    p = Provider(lambda phase, q, ctx: blames("n2"), creds=creds)
    d, c = control_plane(f"127.0.0.1:{p.port}", **{"attribution.ca": ca.cert, "attribution.cert": mine, "attribution.key": my_key})
    assert list(decided(c, fails(c)).exclude_nodes) == ["n2"]
    d.stop()
    other = advstack.Ca(advstack.tempfile.mkdtemp(prefix="advattr-"), "somebody")
    d, c = control_plane(f"127.0.0.1:{p.port}", **{"attribution.ca": other.cert})
    asked = len(p.asked)
    ad = fails_open(c, fails(c))
    assert "UNAVAILABLE" in why(ad) and len(p.asked) == asked, ad.reasons
    d.stop()
    p.stop()
    r = subprocess.run([os.environ["ADVISORD"], "--check-config", "--attribution.target=provider.example.org:1"], capture_output=True,
                       text=True)
    assert r.returncode == 1 and "attribution.ca" in r.stderr + r.stdout, r


@case
def the_reference_provider_weighs_what_is_known():
    proc = subprocess.Popen([sys.executable, os.path.join(advstack.ROOT, "examples", "attribution", "advisor_attribution.py"),
                             "--stubs", STUBS, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(proc.stdout.readline().split()[-1])
        d, c = control_plane(f"127.0.0.1:{port}")
        s = api.SignalServiceStub(d.channel("detector:dcgm"))
        c.agent.heartbeat()
        c.job("1", "RUNNING", start_unix=int(time.time()) - 600, nodes="n[1-4]")
        s.ReportEvidence(api.ReportEvidenceRequest(ref=c.ref("1"), source="dcgm", kind="xid", rule="xid-79", nodes=["n3"],
                                                   fault_class="gpu_hardware", weight_percent=75, request_id="e1"), timeout=10)
        ad = decided(c, fails(c))  # nobody trusts the detector; the site's provider does
        assert list(ad.exclude_nodes) == ["n3"], ad
        ev = [e for e in c.timeline("1").evidence if e.kind == "attribution"]
        assert ev and ev[0].source == "advisor-attribution 1.0" and "dcgm says xid-79" in ev[0].summary, ev
        ad = fails_open(c, fails(c, "2"))  # it knows nothing of this one
        assert "knows of no cause" in why(ad), ad.reasons
        d.stop()
    finally:
        proc.terminate()
        proc.wait(30)


@case
def the_reference_providers_weights():
    sys.path.insert(0, os.path.join(advstack.ROOT, "examples", "attribution"))
    import advisor_attribution as ref
    assert ref.names("n[1-3,07],login1,r[1-2]n[01-02]") == ["n1", "n2", "n3", "n07", "login1", "r1n01", "r1n02", "r2n01", "r2n02"]
    assert ref.names("") == []

    def ask(anomalies=(), evidence=(), earlier=(), nodes="n[1-4]"):
        q = api.AttributeRequest(attempt=api.Attempt(nodes=nodes))
        q.anomalies.extend(api.Anomaly(uid=f"a{i}", **a) for i, a in enumerate(anomalies))
        q.evidence.extend(api.Evidence(uid=f"e{i}", source="s", kind="k", **e) for i, e in enumerate(evidence))
        q.earlier_attempts.extend(api.Attempt(index=i, state_raw=s, nodes=n) for i, (s, n) in enumerate(earlier))
        return [(a.fault_class, list(a.nodes), a.confidence_percent) for a in ref.attribute(q, api).attributions]

    gpu = dict(fault_class="gpu_hardware")
    assert ask() == []
    assert ask([dict(nodes=["n1"], retryable="yes", **gpu)]) == [("gpu_hardware", ["n1"], 80)]
    assert ask([dict(nodes=["n1"], retryable="no", **gpu)]) == []                       # a user's fault
    assert ask([dict(nodes=["n1"], fault_class="application_bug", retryable="maybe")]) == []
    assert ask(evidence=[dict(nodes=["n9"], weight_percent=99, **gpu)]) == []             # not one of its nodes
    assert ask(evidence=[dict(nodes=["n2"], weight_percent=49, **gpu)]) == []
    assert ask(evidence=[dict(nodes=["n2"], weight_percent=49, **gpu)],
               earlier=[("FAILED", "n[2-3]"), ("COMPLETED", "n2"), ("FAILED", "n3")]) == [("gpu_hardware", ["n2"], 59)]
    assert ask(earlier=[("FAILED", "n2")] * 10) == []                                     # never alone
    assert ask(evidence=[dict(nodes=["n2"], weight_percent=90)]) == []                    # of no class
    assert ask([dict(nodes=["n2"], retryable="yes", **gpu)], [dict(nodes=["n2"], weight_percent=60, **gpu)]) == [("gpu_hardware", ["n2"], 95)]
    assert ask(evidence=[dict(nodes=["n1", "n2"], weight_percent=60, fault_class="network_fabric"), dict(nodes=["n2"], weight_percent=70, **gpu)]
               ) == [("gpu_hardware", ["n2"], 70), ("network_fabric", ["n1"], 60)]
    assert ask(evidence=[dict(nodes=["n1", "n2", "n3"], weight_percent=60, fault_class="network_fabric")]) == [("network_fabric", [], 60)]


def main():
    failed = 0
    only = sys.argv[1:]
    for i, f in enumerate(CASES):
        if only and f.__name__ not in only and f"half{i % 2}" not in only:
            continue
        began = time.monotonic()
        try:
            f()
            print(f"ok {f.__name__}")
        except Exception as e:  # noqa: BLE001
            import traceback
            failed += 1
            print(f"not ok {f.__name__}: {type(e).__name__}: {e}")
            traceback.print_exc()
        print(f"# {f.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
