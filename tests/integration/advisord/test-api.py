#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Advisor API over mTLS as another language sees it: who may call, lists, pages, watches, sessions, durability."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

import grpc  # noqa: E402

refused = advstack.refused
api = advstack.stubs()
CASES = []


def case(f):
    CASES.append(f)
    return f


def job(job_id, state, hash_, **kw):
    d = dict(job_id=job_id, state=getattr(api, "JOB_STATE_" + state), state_raw=state, batch=True, requeueable=True,
             submit_unix=1000, user="alice", partition="main", nodes="n[1-2]", detail_known=True, name=b"train",
             comment=b'{"advisor":{}}', hash=hash_)
    d.update(kw)
    return api.JobObservation(**d)


def nodes(n=8):
    return [api.NodeObservation(name=f"n{i + 1}", state_raw="IDLE", available=True, hash=1000 + i) for i in range(n)]


NODES_DIGEST = 0
for i in range(8):
    NODES_DIGEST ^= 1000 + i

d = advstack.Advisord(**{"detect.log_settle": "50ms"})
admin = d.channel("admin:root")
fleet = api.FleetServiceStub(admin)


def cluster(name, mode=None):
    fleet.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)
    if mode:
        fleet.SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{name}", mode=mode), timeout=10)


def agent(name, **kw):
    return advstack.FakeAgent(api, d.channel(f"agent:{name}"), name, **kw)


def full(a, *jobs):
    digest = NODES_DIGEST
    for j in jobs:
        digest ^= j.hash
    return a.durable(a.numbered(state_update=api.StateUpdate(full_begin=True, full_end=True, jobs=jobs, nodes=nodes(),
                                                             digest=digest)))


def push(a, job_id, text, restarts=0, offset=0):
    sid = a.wait("welcome").session_id
    ref = api.AttemptRef(cluster=a.cluster, job_id=job_id, restart_count=restarts)
    chunk = api.LogChunk(attempt=ref, stream="stdout", offset=offset, data=text)
    return a.stub.PushLogs(iter([api.PushLogsRequest(session_id=sid, chunks=[chunk])]), timeout=10)


ECC = b"n2: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


@case
def identity_is_needed():
    fleet_of = lambda ch: api.FleetServiceStub(ch)  # noqa: E731
    refused(lambda: fleet_of(d.channel()).ListClusters(api.ListClustersRequest(), timeout=5), grpc.StatusCode.UNAVAILABLE)
    other = advstack.Ca(f"{d.dir}/other")
    refused(lambda: fleet_of(d.channel("admin:eve", ca=other)).ListClusters(api.ListClustersRequest(), timeout=5),
            grpc.StatusCode.UNAVAILABLE)
    refused(lambda: fleet_of(d.channel("nobody", "DNS:nobody")).ListClusters(api.ListClustersRequest(), timeout=5),
            grpc.StatusCode.UNAUTHENTICATED, "NO_IDENTITY")
    # a name of another type that reads like ours is none
    refused(lambda: fleet_of(d.channel("mallory", "email:advisor:admin:mallory")).ListClusters(
        api.ListClustersRequest(), timeout=5), grpc.StatusCode.UNAUTHENTICATED, "NO_IDENTITY")
    reader = fleet_of(d.channel("reader:bob"))
    reader.ListClusters(api.ListClustersRequest(), timeout=5)
    refused(lambda: reader.CreateCluster(api.CreateClusterRequest(cluster_id="x"), timeout=5),
            grpc.StatusCode.PERMISSION_DENIED, "ROLE_TOO_LOW")
    agent_as_tool = fleet_of(d.channel("agent:alpha"))
    refused(lambda: agent_as_tool.ListClusters(api.ListClustersRequest(), timeout=5), grpc.StatusCode.PERMISSION_DENIED)


@case
def agent_of_another_cluster_is_refused():
    cluster("own")
    cluster("foreign")
    a = advstack.FakeAgent(api, d.channel("agent:foreign"), "own")
    e = a.wait_end()
    assert e.code() == grpc.StatusCode.PERMISSION_DENIED, e
    assert "foreign" in e.details()
    b = advstack.FakeAgent(api, d.channel("agent:unknown"), "unknown")
    assert b.wait_end().code() == grpc.StatusCode.NOT_FOUND
    c = advstack.FakeAgent(api, d.channel("operator:alice"), "own")
    assert c.wait_end().code() == grpc.StatusCode.PERMISSION_DENIED


@case
def clusters_and_modes():
    cluster("modes")
    refused(lambda: cluster("modes"), grpc.StatusCode.ALREADY_EXISTS, "CLUSTER_EXISTS")
    refused(lambda: cluster("Not Valid"), grpc.StatusCode.INVALID_ARGUMENT, "CLUSTER_ID_MALFORMED")
    get = lambda: fleet.GetCluster(api.GetClusterRequest(name="clusters/modes"), timeout=5).cluster  # noqa: E731
    c = get()
    assert c.mode == api.MODE_OBSERVE and c.agent_state == api.AGENT_STATE_NEVER_SEEN
    set_ = lambda **kw: fleet.SetClusterMode(api.SetClusterModeRequest(name="clusters/modes", **kw), timeout=5)  # noqa: E731
    after = set_(mode=api.MODE_ACT, etag=c.etag, request_id="one").cluster
    assert after.mode == api.MODE_ACT and not after.mode_effective
    refused(lambda: set_(mode=api.MODE_OFF, etag=c.etag), grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
    assert set_(mode=api.MODE_ACT, etag=c.etag, request_id="one").cluster.etag == after.etag
    refused(lambda: set_(mode=api.MODE_OFF, request_id="one"), grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    refused(lambda: set_(mode=0), grpc.StatusCode.INVALID_ARGUMENT, "MODE_MALFORMED")
    a = agent("modes")
    a.wait("welcome")
    a.heartbeat()
    wait_for("the mode to be effective", lambda: get().mode_effective)
    set_(mode=api.MODE_OBSERVE)
    a.wait("heartbeat_ack", lambda h: h.cluster_mode == api.MODE_OBSERVE)  # told at once, without a heartbeat
    assert not get().mode_effective
    a.heartbeat()
    wait_for("the mode to be effective", lambda: get().mode_effective)
    a.close()


@case
def pages():
    for i in range(5):
        cluster(f"page-{i}")
    names, token = [], ""
    while True:
        r = fleet.ListClusters(api.ListClustersRequest(page_size=2, page_token=token), timeout=5)
        assert len(r.clusters) <= 2
        names += [c.name for c in r.clusters]
        token = r.next_page_token
        if not token:
            break
    assert names == sorted(names) and len(set(names)) == len(names) and "clusters/page-4" in names
    refused(lambda: fleet.ListClusters(api.ListClustersRequest(page_size=1001), timeout=5),
            grpc.StatusCode.INVALID_ARGUMENT, "PAGE_SIZE_OUT_OF_RANGE")
    refused(lambda: fleet.ListClusters(api.ListClustersRequest(page_token="zz"), timeout=5),
            grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")
    for parent in ("/", "//", "clusters", "clusters/", "clusters//jobs"):
        refused(lambda: api.JobServiceStub(admin).ListJobs(api.ListJobsRequest(parent=parent), timeout=5),
                grpc.StatusCode.INVALID_ARGUMENT, "NAME_MALFORMED")
    jobs_token = "6a6f62733a78"  # a well-formed token of another list
    refused(lambda: fleet.ListClusters(api.ListClustersRequest(page_token=jobs_token), timeout=5),
            grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")


@case
def failure_to_advice_to_convergence():
    cluster("flow", api.MODE_ACT)
    a = agent("flow")
    grant = a.wait("welcome").grant
    full(a, job("101", "RUNNING", 7))
    push(a, "101", ECC)
    a.wait("focus", lambda f: list(f.job_ids) == ["101"])
    a.durable(a.numbered(state_update=api.StateUpdate(jobs=[job("101", "FAILED", 8, exit_code=1, end_unix=int(time.time()))],
                                                      digest=NODES_DIGEST ^ 8)))
    order = a.orders()[0]
    assert order.desired_state == api.DESIRED_STATE_RESTARTED and order.generation == 1, order
    assert order.exclude_nodes == "n2" and order.actionability == api.ACTIONABILITY_ACTIONABLE, order
    act = dict(journal_seq=1, epoch=grant.epoch, advice=order.name, generation=1, attempt=order.attempt,
               verb=api.VERB_PRESERVE, read_before="FAILED restarts=0")
    a.numbered(action=api.ActionReport(phase=api.ACTION_PHASE_INTENT, **act))
    a.numbered(action=api.ActionReport(phase=api.ACTION_PHASE_OUTCOME, command=api.COMMAND_RESULT_ACCEPTED,
                                       observed=api.OBSERVED_YES, **act))
    # a stale generation and a stale epoch change nothing
    stale = dict(advice=order.name, disposition=api.DISPOSITION_CONVERGED, reason=api.DISPOSITION_REASON_DESIRED_STATE_OBSERVED)
    a.numbered(advice_status=api.AdviceStatusReport(observed_generation=7, epoch=grant.epoch, **stale))
    a.durable(a.numbered(advice_status=api.AdviceStatusReport(observed_generation=1, epoch=api.Epoch(term=9), **stale)))
    advice = api.AdviceServiceStub(admin)
    get = lambda: advice.GetAdvice(api.GetAdviceRequest(name=order.name), timeout=5).advice  # noqa: E731
    assert get().status.disposition == api.DISPOSITION_PENDING
    a.durable(a.numbered(advice_status=api.AdviceStatusReport(observed_generation=1, epoch=grant.epoch, **stale)))
    assert get().status.disposition == api.DISPOSITION_CONVERGED
    explained = advice.ExplainAdvice(api.ExplainAdviceRequest(ref=order.attempt), timeout=5)
    assert any("n2" in t for t in explained.text) and len(explained.actions) == 1, explained
    jobs = api.JobServiceStub(admin)
    line = jobs.GetJobTimeline(api.GetJobTimelineRequest(ref=order.attempt), timeout=5)
    assert [e.kind for e in line.entries].count("advice") == 2, line.entries
    assert jobs.ListJobs(api.ListJobsRequest(parent="clusters/flow"), timeout=5).jobs[0].job_id == "101"
    verbs = [e.verb for e in api.AuditServiceStub(admin).ListAuditEvents(
        api.ListAuditEventsRequest(parent="clusters/flow", page_size=100), timeout=5).events]
    for v in ("cluster.create", "mode.set", "agent.connected", "advice.create", "action.intent", "action.outcome", "advice.status"):
        assert v in verbs, verbs
    a.close()


@case
def session_rules():
    cluster("rules")
    def ends(code, *send, **hello):
        a = agent("rules", **hello)
        for s in send:
            a.send(**s)
        e = a.wait_end()
        assert e.code() == code, e
        return e
    U = api.StateUpdate
    ends(grpc.StatusCode.OUT_OF_RANGE, dict(seq=2, state_update=U(full_begin=True, full_end=True)))
    ends(grpc.StatusCode.INVALID_ARGUMENT, dict(hello=api.Hello(cluster="rules")))
    ends(grpc.StatusCode.INVALID_ARGUMENT, dict())
    ends(grpc.StatusCode.INVALID_ARGUMENT, dict(heartbeat=api.Heartbeat(id=0)))
    ends(grpc.StatusCode.INVALID_ARGUMENT, dict(pull=api.Pull(id=1)), dict(pull=api.Pull(id=2)))
    ends(grpc.StatusCode.INVALID_ARGUMENT, dict(seq=1, state_update=U(jobs=[job("x;rm", "RUNNING", 1)])))
    ends(grpc.StatusCode.INVALID_ARGUMENT, dict(seq=1, state_update=U(jobs=[job("1", "RUNNING", 1, restart_count=4000000)])))
    ends(grpc.StatusCode.FAILED_PRECONDITION, api_versions=["advisor.v9"])
    ends(grpc.StatusCode.INVALID_ARGUMENT, journal_id="")
    a = agent("rules")
    a.wait("welcome")
    e = a.wait_end(timeout=10)  # silent
    assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED, e
    # a wrong digest is answered by a wish for a full snapshot
    b = agent("rules")
    b.wait("welcome")
    b.numbered(state_update=U(full_begin=True, full_end=True, jobs=[job("1", "RUNNING", 3)], digest=99))
    b.wait("resync")
    b.close()


@case
def two_agents_with_one_journal_are_told_of():
    c = advstack.Advisord()
    f = api.FleetServiceStub(c.channel("admin:root"))
    f.CreateCluster(api.CreateClusterRequest(cluster_id="copy"), timeout=10)
    incidents = lambda: f.ListIncidents(api.ListIncidentsRequest(parent="clusters/copy"), timeout=10).incidents  # noqa: E731
    hello = lambda run: advstack.FakeAgent(api, c.channel("agent:copy"), "copy", instance=run, journal="j")  # noqa: E731
    agents = []
    for run in ("first", "restarted", "first", "restarted"):
        agents.append(hello(run))
        assert agents[-1].wait("welcome").HasField("grant")
        got = incidents()
        if len(agents) < 3:
            assert not got, got
    assert len(got) == 1 and got[0].kind == api.INCIDENT_KIND_AGENT_TWICE and got[0].count == 2, got
    assert "one journal (j)" in got[0].summary, got
    for a in agents:
        a.close()
    c.stop()


@case
def two_agents_one_lease():
    c = advstack.Advisord(**{"agent.lease": "3s", "agent.heartbeat_interval": "300ms", "agent.silence_timeout": "1s"})
    api.FleetServiceStub(c.channel("admin:root")).CreateCluster(api.CreateClusterRequest(cluster_id="duo"), timeout=10)
    first = advstack.FakeAgent(api, c.channel("agent:duo"), "duo", instance="a", journal="ja")
    w1 = first.wait("welcome")
    second = advstack.FakeAgent(api, c.channel("agent:duo"), "duo", instance="b", journal="jb")
    w2 = second.wait("welcome")
    assert w1.HasField("grant") and not w2.HasField("grant") and w2.lease_holder == "ja", (w1, w2)
    begin, held = time.monotonic(), None
    while held is None:
        if time.monotonic() - begin > 20:
            raise AssertionError("the standby never got the lease")
        if time.monotonic() - begin < 1.5:
            first.heartbeat()
            last_beat = time.monotonic()
        second.heartbeat()
        time.sleep(0.2)
        held = next((h.grant for h in second.all("heartbeat_ack") if h.HasField("grant")), None)
    assert time.monotonic() - last_beat > 2.5, "the lease was given away while the first could still act"
    assert held.epoch.counter > w1.grant.epoch.counter and held.settle, held
    second.wait("resync")
    second.close()
    c.stop()


@case
def a_blind_agent_makes_room():
    """The holder has not seen its scheduler for long, beats on, and comes back at once when it is put out. What it was granted
    is over before the one that sees is granted anything."""
    # what the second says is believed for two intervals: long enough for a slow machine
    c = advstack.Advisord(**{"agent.lease": "6s", "agent.heartbeat_interval": "3s", "agent.silence_timeout": "10s"})
    f = api.FleetServiceStub(c.channel("admin:root"))
    f.CreateCluster(api.CreateClusterRequest(cluster_id="blind"), timeout=10)
    open_ = lambda name: advstack.FakeAgent(api, c.channel("agent:blind"), "blind", instance=name, journal=f"j{name}")  # noqa: E731
    first, second = open_("a"), open_("b")
    until = 0  # when the last grant of the first ends, counted as an agent does
    epoch = first.wait("welcome").grant.epoch.counter
    assert not second.wait("welcome").HasField("grant")

    def beat():
        nonlocal until
        second.heartbeat()
        sent, n = time.monotonic(), first.heartbeat(observation_age_ms=120000)
        ack = wait_for("an answer, or the end", lambda: first.error or next(
            (h for h in first.all("heartbeat_ack") if h.id == n), None), 10)
        if ack is not first.error and ack.HasField("grant"):
            until = max(until, sent + ack.grant.lease_ms / 1000)
        return first.error

    wait_for("the blind one to be put out", beat, 30)
    assert first.error.code().name == "ABORTED" and "not seen its scheduler" in first.error.details(), first.error
    first.close()
    first = open_("a")
    assert not first.wait("welcome").HasField("grant"), "its place was kept"

    def takes():
        first.heartbeat(observation_age_ms=120000)
        second.heartbeat()
        return next((h.grant for h in second.all("heartbeat_ack") if h.HasField("grant")), None)
    held = wait_for("the one that sees to get the lease", takes, 20)
    assert until and time.monotonic() >= until, "the lease was given away while the first could still act"
    assert held.epoch.counter > epoch and held.settle, held
    assert not any(h.HasField("grant") for h in first.all("heartbeat_ack"))
    first.close()
    second.close()
    c.stop()


@case
def watch_follows_and_resumes():
    cluster("seen", api.MODE_ACT)
    w = api.WatchServiceStub(d.channel("reader:bob"))
    stream = w.Watch(api.WatchRequest(parent="clusters/seen"), timeout=30)
    events = []
    for e in stream:
        events.append(e)
        if e.type == api.WATCH_EVENT_TYPE_SYNCED:
            break
    assert [x.cluster_resource.name for x in events if x.kind == api.RESOURCE_KIND_CLUSTER] == ["clusters/seen"]
    token = events[-1].resume_token
    a = agent("seen")
    a.wait("welcome")
    full(a, job("55", "RUNNING", 4))
    got = []
    for e in stream:
        got.append(e)
        if e.kind == api.RESOURCE_KIND_ATTEMPT:
            break
    stream.cancel()
    assert all(e.type == api.WATCH_EVENT_TYPE_CHANGED and e.resume_token for e in got)
    revisions = [e.revision for e in got]
    assert revisions == sorted(revisions)
    # a resume tells the same changes again, and nothing of the state
    again = []
    for e in w.Watch(api.WatchRequest(parent="clusters/seen", resume_token=token), timeout=30):
        again.append(e)
        if e.kind == api.RESOURCE_KIND_ATTEMPT:
            break
    assert [(e.kind, e.name, e.revision) for e in again] == [(e.kind, e.name, e.revision) for e in got]
    other = api.WatchServiceStub(d.channel("reader:carol"))
    refused(lambda: next(other.Watch(api.WatchRequest(parent="clusters/seen", resume_token=token), timeout=5)),
            grpc.StatusCode.INVALID_ARGUMENT, "RESUME_TOKEN_INVALID")
    refused(lambda: next(w.Watch(api.WatchRequest(parent="clusters/seen", kinds=[99]), timeout=5)),
            grpc.StatusCode.INVALID_ARGUMENT, "KIND_UNKNOWN")
    refused(lambda: next(w.Watch(api.WatchRequest(parent="clusters/nowhere"), timeout=5)), grpc.StatusCode.NOT_FOUND)
    a.close()


@case
def kill_loses_nothing_acknowledged():
    cluster("crash", api.MODE_ACT)
    for round_ in range(3):
        a = agent("crash", instance=f"r{round_}")
        a.wait("welcome")
        jobs = [job(str(1000 + i), "RUNNING", i + 1, submit_unix=1000) for i in range(40 * (round_ + 1))]
        full(a, *jobs)
        d.kill()
        d.start()
        js = api.JobServiceStub(d.channel("reader:bob"))
        names, token = set(), ""
        while True:
            r = js.ListJobs(api.ListJobsRequest(parent="clusters/crash", page_size=1000, page_token=token), timeout=10)
            names |= {j.job_id for j in r.jobs}
            token = r.next_page_token
            if not token:
                break
        missing = {j.job_id for j in jobs} - names
        assert not missing, f"acknowledged and lost: {sorted(missing)}"
        a.close()
    globals()["fleet"] = api.FleetServiceStub(d.channel("admin:root"))
    globals()["admin"] = d.channel("admin:root")


@case
def nothing_destructive_before_resync():
    cluster("fresh", api.MODE_ACT)
    a = agent("fresh")
    a.wait("welcome")
    full(a, job("9", "RUNNING", 2))
    push(a, "9", ECC)
    a.durable(a.numbered(state_update=api.StateUpdate(jobs=[job("9", "FAILED", 3, exit_code=1, end_unix=int(time.time()))],
                                                      digest=NODES_DIGEST ^ 3)))
    a.orders()
    a.close()
    d.kill()
    d.start()
    b = agent("fresh", instance="i2")
    w = b.wait("welcome")
    assert w.send_snapshot
    b.pull(1)
    b.heartbeat()
    b.wait("heartbeat_ack", lambda h: h.id == 1)
    assert not b.all("advice_batch"), "advice before the agent's state was known again"
    full(b, job("9", "FAILED", 3, exit_code=1, end_unix=int(time.time())))
    assert b.wait("advice_batch", lambda m: m.advice).advice[0].generation == 1
    b.close()


def fill(path):
    """Takes all the room there is."""
    with open(path, "wb", buffering=0) as f:
        for size in (1 << 16, 4096, 512):
            try:
                while True:
                    f.write(b"x" * size)
            except OSError:
                pass


@case
def a_full_disk_loses_nothing():
    with tempfile.TemporaryDirectory(prefix="advfull-") as folder:
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "advfull", folder], capture_output=True, text=True)
        if mount.returncode != 0:
            raise advstack.Skip(f"no mount here: {mount.stderr.strip()}")
        try:
            full_disk(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def full_disk(folder):
    c = advstack.Advisord(**{"store.path": f"{folder}/advisor.db"})
    ch = c.channel("admin:root")
    f = api.FleetServiceStub(ch)
    f.CreateCluster(api.CreateClusterRequest(cluster_id="disk"), timeout=10)
    a = advstack.FakeAgent(api, c.channel("agent:disk"), "disk")
    a.wait("welcome")
    known = [job(str(i), "RUNNING", i + 1) for i in range(50)]
    full(a, *known)
    fill(f"{folder}/ballast")
    told, refusal = [], None
    for i in range(3000):  # room that SQLite holds already is used up first
        try:
            f.CreateCluster(api.CreateClusterRequest(cluster_id=f"c{i}"), timeout=10)
            told.append(f"clusters/c{i}")
        except grpc.RpcError as e:
            refusal = e
            break
    assert refusal is not None, "the disk never filled up"
    assert refusal.code() == grpc.StatusCode.UNAVAILABLE, refusal
    details = dict(refusal.trailing_metadata()).get("grpc-status-details-bin", b"")
    assert b"STORE_FULL" in details and b"RetryInfo" in details and "full" in refusal.details(), refusal
    e = a.wait_end()  # the agent is told to come back
    assert e.code() == grpc.StatusCode.UNAVAILABLE, e
    assert b"RetryInfo" in dict(e.trailing_metadata()).get("grpc-status-details-bin", b""), e

    def refused_now():  # between two tries the state was read again and reads are answered; writes are not
        try:
            f.CreateCluster(api.CreateClusterRequest(cluster_id="more"), timeout=10)
        except grpc.RpcError as err:
            return err.code() == grpc.StatusCode.UNAVAILABLE
        raise AssertionError("written on a full disk")
    for _ in range(3):
        assert refused_now()
        time.sleep(0.6)
    os.unlink(f"{folder}/ballast")

    def writes():
        try:
            f.CreateCluster(api.CreateClusterRequest(cluster_id="after"), timeout=10)
            return True
        except grpc.RpcError as err:
            assert err.code() == grpc.StatusCode.UNAVAILABLE, err
            return False
    wait_for("writes to work again", writes, 20)
    b = advstack.FakeAgent(api, c.channel("agent:disk"), "disk")
    b.wait("welcome")
    full(b, *known)
    b.close()

    def check():
        names, token = set(), ""
        while True:
            r = f.ListClusters(api.ListClustersRequest(page_size=1000, page_token=token), timeout=10)
            names |= {x.name for x in r.clusters}
            token = r.next_page_token
            if not token:
                break
        assert names == set(told) | {"clusters/disk", "clusters/after"}, names ^ set(told)
        jobs = api.JobServiceStub(ch).ListJobs(api.ListJobsRequest(parent="clusters/disk", page_size=1000), timeout=10).jobs
        assert {j.job_id for j in jobs} == {j.job_id for j in known}, jobs
    check()
    c.kill()
    c.start()
    ch = c.channel("admin:root")
    f = api.FleetServiceStub(ch)
    check()
    c.stop()


@case
def an_agent_that_vanishes_while_its_message_waits():
    c = advstack.Advisord()
    f = api.FleetServiceStub(c.channel("admin:root"))
    f.CreateCluster(api.CreateClusterRequest(cluster_id="gone"), timeout=10)
    c.stop()
    go = f"{c.dir}/go"
    c.start(env={"ADVISOR_FAILPOINT": f"sqlite.before_commit=pause:{go}@2"})  # after Hello; nothing in other builds
    f = api.FleetServiceStub(c.channel("admin:root"))
    a = advstack.FakeAgent(api, c.channel("agent:gone"), "gone")
    a.wait("welcome")
    slow = f.CreateCluster.future(api.CreateClusterRequest(cluster_id="slow"), timeout=20)
    time.sleep(0.3)
    jobs = [job(str(i), "RUNNING", i + 1, state_raw="RUNNING" * 9) for i in range(300)]
    digest = NODES_DIGEST
    for j in jobs:
        digest ^= j.hash
    a.numbered(state_update=api.StateUpdate(full_begin=True, full_end=True, jobs=jobs, nodes=nodes(), digest=digest))
    time.sleep(0.5)
    a.close()
    time.sleep(0.5)
    open(go, "w").close()
    slow.result()
    wait_for("the agent to be missed", lambda: f.GetCluster(api.GetClusterRequest(name="clusters/gone"), timeout=10)
             .cluster.agent_state == api.AGENT_STATE_UNREACHABLE)
    c.stop()


@case
def a_log_for_which_there_is_no_room_is_known_to_be_unread():
    c = advstack.Advisord(**{"detect.max_streams": "1"})
    cl = advstack.FakeCluster(api, c, "full")
    for i in ("1", "2"):
        cl.job(i, "RUNNING")
        cl.agent.durable(cl.agent.numbered(telemetry=api.TelemetryReport(attempt=cl.ref(i), state=api.TELEMETRY_STATE_COMPLETE)))
    cl.log("1", b"starting\n")
    cl.log("2", cl.LINE)
    cl.log("2", b"and more\n", offset=len(cl.LINE))
    of = lambda i: cl.timeline(i).attempts[0]  # noqa: E731
    wait_for("both pieces to be told", lambda: of("2").telemetry_dropped_bytes == len(cl.LINE) + 9)
    assert of("2").telemetry == api.TELEMETRY_STATE_PARTIAL and not cl.timeline("2").anomalies, of("2")
    assert of("1").telemetry == api.TELEMETRY_STATE_COMPLETE, of("1")
    assert "no room for a log: what it says is not known" in c.log_text()
    cl.close()
    c.stop()


@case
def second_advisord_is_refused():
    env = {**os.environ}
    p = subprocess.run([os.environ["ADVISORD"], "--config", f"{d.dir}/advisord.yaml", "--listen", "127.0.0.1:0",
                        "--port_file", f"{d.dir}/port2"], capture_output=True, timeout=60, env=env)
    assert p.returncode == 1 and b"another advisord" in p.stderr, p
    p = subprocess.run([os.environ["ADVISORD"], "--config", f"{d.dir}/advisord.yaml", "--insecure", "--listen", "0.0.0.0:0",
                        "--store.path", f"{d.dir}/b.db", "--port_file", ""], capture_output=True, timeout=60, env=env)
    assert p.returncode == 1 and b"loopback" in p.stderr, p


@case
def bad_configuration_is_explained():
    path = f"{d.dir}/bad.yaml"
    for text, words in (("listen: [x]\nagnet: {lease: 4s}\n", ["bad.yaml", ":2", "agnet"]),
                        ("agent: {lease: 4 parsecs}\n", ["agent.lease", ":1"]),
                        ("agent: {lease: 1s, heartbeat_interval: 5s}\n", ["agent.lease"]),
                        ('listen: ["bad"]\n', ['listen: "bad": expected host:port']),
                        ('listen: ["a:70000"]\n', ['listen: "a:70000"']), ('listen: ["::1:5"]\n', ['listen: "::1:5"']),
                        ('listen: [":5"]\n', ['listen: ":5"']), ('listen: ["[]:5"]\n', ['listen: "[]:5"']),
                        ('listen: ["127.0.0.1:0", "unix:"]\n', ['listen: "unix:"']),
                        ('enrol: {servers: ["nohost"]}\n', ['enrol.servers: "nohost"']),
                        ('enrol: {servers: ["a:0"]}\n', ['enrol.servers: "a:0"', "port 1 to"])):
        with open(path, "w") as f:
            f.write(text)
        p = subprocess.run([os.environ["ADVISORD"], "--config", path, "--check-config"], capture_output=True, timeout=30)
        out = (p.stdout + p.stderr).decode()
        assert p.returncode == 1 and all(w in out for w in words), out
    with open(path, "w") as f:
        f.write('listen: ["[::1]:0", "localhost:1", "0.0.0.0:16443", "unix:/run/x"]\nenrol: {servers: ["a.b.c:1", "[fe80::1]:65535"]}\n')
    p = subprocess.run([os.environ["ADVISORD"], "--config", path, "--check-config"], capture_output=True, timeout=30)
    assert p.returncode == 0, p


@case
def a_start_that_fails_names_the_setting():
    bad = f"{d.dir}/empty.file"
    open(bad, "w").close()
    rules = f"{d.dir}/few-rules"  # each start reads them
    os.makedirs(rules)
    shutil.copy(os.path.join(advstack.ROOT, "rules", "service.yaml"), rules)
    for key, value, words in (("tls.cert", "/nonexist", "tls.cert: /nonexist: No such file"), ("tls.key", "/nonexist", "tls.key: /nonexist"),
                              ("tls.ca", "/nonexist", "tls.ca: /nonexist"), ("tls.ca", bad, "tls.ca: "), ("tls.cert", bad, "tls.cert: "),
                              ("tls.key", bad, "tls.key: "), ("auth.bindings", "/nonexist", "auth.bindings: /nonexist"),
                              ("auth.bindings", bad, "auth.bindings: "), ("rules.dir", "/nonexist", "rules.dir: "),
                              ("audit.signing_key", "/nonexist", "audit.signing_key: /nonexist"),
                              ("sources.file", "/nonexist", "sources.file: "), ("store.path", "/nonexist/x.db", "store.path: "),
                              ("listen", '["192.0.2.1:1"]', "listen: 192.0.2.1:1: cannot listen")):
        path = f"{d.dir}/other.yaml"
        with open(path, "w") as f:
            for k, v in {**d.config, "store.path": f"{d.dir}/other.db", "listen": '["127.0.0.1:0"]', "rules.dir": rules, key: value}.items():
                if k != "port_file":
                    f.write(f"{k}: {v}\n")
        p = subprocess.run([os.environ["ADVISORD"], "--config", path], capture_output=True, timeout=60)
        out = (p.stdout + p.stderr).decode()
        assert p.returncode == 1 and "cannot start" in out and words in out, (key, value, out)


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
