#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Error reasons of docs/api.md that no other test provokes: sessions, pages, names, slow readers, the wire."""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

import grpc  # noqa: E402

S = grpc.StatusCode
refused, has_reason = advstack.refused, advstack.has_reason
api = advstack.stubs()
CASES = []


def case(f):
    CASES.append(f)
    return f


d = advstack.Advisord(**{"detect.log_settle": "50ms"})
admin = d.channel("admin:root")
fleet = api.FleetServiceStub(admin)
jobs = api.JobServiceStub(admin)
U = api.StateUpdate


def job(job_id, state, hash_, **kw):
    o = dict(job_id=job_id, state=getattr(api, "JOB_STATE_" + state), state_raw=state, batch=True, requeueable=True,
             submit_unix=1000, user="alice", partition="main", nodes="n[1-2]", detail_known=True, name=b"train",
             comment=b'{"advisor":{}}', hash=hash_)
    o.update(kw)
    return api.JobObservation(**o)


def cluster(name):
    fleet.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)


def agent(name, **kw):
    return advstack.FakeAgent(api, d.channel(f"agent:{name}"), name, **kw)


def ends(name, code, reason, *send, **hello):
    """A session that says this is ended like that."""
    a = agent(name, **hello)
    for s in send:
        a.send(**s)
    e = a.wait_end()
    assert e.code() == code, e
    return has_reason(e, reason)


@case
def sessions_that_are_refused():
    cluster("rules")
    cluster("foreign")
    one = U(full_begin=True, full_end=True)
    ends("rules", S.OUT_OF_RANGE, "SEQUENCE_GAP", dict(seq=2, state_update=one))
    ends("rules", S.INVALID_ARGUMENT, "HELLO_FIRST", dict(hello=api.Hello(cluster="rules")))
    ends("rules", S.INVALID_ARGUMENT, "MESSAGE_UNKNOWN", dict())
    ends("rules", S.INVALID_ARGUMENT, "HEARTBEAT_OUT_OF_ORDER", dict(heartbeat=api.Heartbeat(id=0)))
    ends("rules", S.INVALID_ARGUMENT, "PULL_OUTSTANDING", dict(pull=api.Pull(id=1)), dict(pull=api.Pull(id=2)))
    ends("rules", S.INVALID_ARGUMENT, "OBSERVATION_MALFORMED", dict(seq=1, state_update=U(jobs=[job("x;rm", "RUNNING", 1)])))
    ends("rules", S.FAILED_PRECONDITION, "API_VERSION_UNSUPPORTED", api_versions=["advisor.v9"])
    ends("rules", S.INVALID_ARGUMENT, "HELLO_MALFORMED", journal_id="")
    ends("rules", S.INVALID_ARGUMENT, "TEXT_TOO_LONG", agent_version="9" * 100)
    a = advstack.FakeAgent(api, d.channel("agent:foreign"), "rules")
    has_reason(a.wait_end(), "WRONG_CLUSTER")
    b = agent("rules")
    b.wait("welcome")
    e = b.wait_end(timeout=15)  # it says nothing more
    assert e.code() == S.DEADLINE_EXCEEDED, e
    has_reason(e, "AGENT_SILENT")


@case
def updates_that_are_too_large():
    cluster("large")
    a = agent("large")
    a.wait("welcome")
    many = [api.NodeObservation(name=f"n{i}", available=True) for i in range(9000)]
    for part in range(6):
        for n in many:
            n.name = f"p{part}n{n.name.split('n')[-1]}"
        a.numbered(state_update=U(full_begin=part == 0, nodes=many))
    e = a.wait_end(timeout=60)
    assert e.code() == S.RESOURCE_EXHAUSTED, e
    has_reason(e, "CLUSTER_TOO_LARGE")
    ends("large", S.RESOURCE_EXHAUSTED, "UPDATE_TOO_LARGE",
         dict(seq=1, state_update=U(nodes=[api.NodeObservation(name="x") for i in range(200000)])))


@case
def only_so_many_sessions():
    c = advstack.Advisord(**{"agent.max_sessions": "1"})
    f = api.FleetServiceStub(c.channel("admin:root"))
    for name in ("one", "two"):
        f.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)
    first = advstack.FakeAgent(api, c.channel("agent:one"), "one")
    first.wait("welcome")
    second = advstack.FakeAgent(api, c.channel("agent:two"), "two")
    e = second.wait_end()
    assert e.code() == S.RESOURCE_EXHAUSTED and b"RetryInfo" in dict(e.trailing_metadata())["grpc-status-details-bin"], e
    has_reason(e, "NOT_NOW")
    first.close()
    second.close()
    c.stop()


@case
def logs_without_a_session():
    cluster("pushes")
    stub = api.AgentServiceStub(d.channel("agent:pushes"))
    refused(lambda: stub.PushLogs(iter([api.PushLogsRequest(session_id="nope")]), timeout=5), S.FAILED_PRECONDITION,
            "SESSION_NOT_LIVE", "session_id")


@case
def one_log_stream_for_a_session():
    """A second one takes the place of the first; none outlives its session, and a standby has none."""
    cluster("streams")
    a = agent("streams")
    sid = a.wait("welcome").session_id
    more = threading.Event()

    def talk():
        yield api.PushLogsRequest(session_id=sid)
        more.wait(60)
    first, second = a.stub.PushLogs.future(talk()), None
    time.sleep(0.3)
    assert not first.done()
    second = a.stub.PushLogs.future(talk())
    refused(lambda: first.result(20), S.ABORTED, "LOG_STREAM_REPLACED")
    assert not second.done()
    b = agent("streams", instance="other", journal="other")
    refused(lambda: b.stub.PushLogs(iter([api.PushLogsRequest(session_id=b.wait("welcome").session_id)]), timeout=5),
            S.FAILED_PRECONDITION, "NOT_LEASE_HOLDER")
    b.close()
    a.close()
    refused(lambda: second.result(20), S.FAILED_PRECONDITION, "SESSION_NOT_LIVE")
    more.set()


@case
def names_pages_etags():
    cluster("names")
    a = agent("names")
    a.wait("welcome")
    a.durable(a.numbered(state_update=U(full_begin=True, full_end=True, jobs=[job("1", "RUNNING", 5)], digest=5)))
    refused(lambda: jobs.GetJob(api.GetJobRequest(), timeout=5), S.INVALID_ARGUMENT, "NAME_MISSING", "name")
    ref = lambda job_id, n: api.AttemptRef(cluster="names", job_id=job_id, restart_count=n)  # noqa: E731
    refused(lambda: jobs.GetJob(api.GetJobRequest(ref=ref("77", 0)), timeout=5), S.NOT_FOUND, "JOB_NOT_FOUND")
    refused(lambda: jobs.GetAttempt(api.GetAttemptRequest(ref=ref("1", 9)), timeout=5), S.NOT_FOUND, "ATTEMPT_NOT_FOUND")
    refused(lambda: api.AdviceServiceStub(admin).GetAdvice(api.GetAdviceRequest(ref=ref("1", 0)), timeout=5), S.NOT_FOUND,
            "ADVICE_NOT_FOUND")
    refused(lambda: jobs.ListJobs(api.ListJobsRequest(parent="clusters/nowhere"), timeout=5), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    set_ = lambda **kw: fleet.SetClusterMode(api.SetClusterModeRequest(name="clusters/names", mode=2, **kw), timeout=5)  # noqa: E731
    refused(lambda: set_(etag="7"), S.INVALID_ARGUMENT, "ETAG_MALFORMED", "etag")
    refused(lambda: set_(request_id="x" * 65), S.INVALID_ARGUMENT, "REQUEST_ID_TOO_LONG", "request_id")
    audit = api.AuditServiceStub(admin)
    refused(lambda: audit.ListAuditEvents(api.ListAuditEventsRequest(parent="clusters/-", verb="v" * 999), timeout=5),
            S.INVALID_ARGUMENT, "FILTER_TOO_LONG")
    a.close()


@case
def statuses_that_make_no_sense():
    cluster("status")
    fleet.SetClusterMode(api.SetClusterModeRequest(name="clusters/status", mode=api.MODE_ACT), timeout=5)
    a = agent("status")
    grant = a.wait("welcome").grant
    a.durable(a.numbered(state_update=U(full_begin=True, full_end=True, jobs=[job("1", "RUNNING", 5)], digest=5)))
    sid = a.wait("welcome").session_id
    line = b"n2: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    chunk = api.LogChunk(attempt=api.AttemptRef(cluster="status", job_id="1"), stream="stdout", data=line)
    a.stub.PushLogs(iter([api.PushLogsRequest(session_id=sid, chunks=[chunk])]), timeout=10)
    a.wait("focus")
    a.durable(a.numbered(state_update=U(jobs=[job("1", "FAILED", 6, exit_code=1, end_unix=int(time.time()))], digest=6)))
    order = a.orders()[0]
    a.numbered(advice_status=api.AdviceStatusReport(advice=order.name, observed_generation=order.generation,
                                                    epoch=grant.epoch, disposition=99))
    e = a.wait_end()
    assert e.code() == S.INVALID_ARGUMENT, e
    has_reason(e, "STATUS_MALFORMED")


@case
def an_agent_that_does_not_read():
    cluster("deaf")
    stub = api.AgentServiceStub(d.channel("agent:deaf"))

    def talk():
        yield api.SessionRequest(hello=api.Hello(cluster="deaf", api_versions=["advisor.v1"], instance_id="i",
                                                 journal_id="j", journal_persistent=True))
        for i in range(1, 10000000):
            yield api.SessionRequest(heartbeat=api.Heartbeat(id=i))
    stream = stub.Session(talk())
    # the end is told behind what it has not read yet, so it has to begin reading once it was decided
    wait_for("the session to be ended", lambda: "the agent does not read its stream" in d.log_text(), 300)
    refused(lambda: list(stream), S.RESOURCE_EXHAUSTED, "AGENT_TOO_SLOW")  # what it had not read stands before it


@case
def watches_that_are_behind():
    cluster("busy")
    a = agent("busy")
    a.wait("welcome")
    watch = api.WatchServiceStub(d.channel("reader:bob"))
    early = watch.Watch(api.WatchRequest(parent="clusters/busy"), timeout=600)
    token = next(e for e in early if e.type == api.WATCH_EVENT_TYPE_SYNCED).resume_token  # and reads no more
    h, last = 0, {}
    # each round changes every job and attempt of it; the change log keeps some thousands
    for round_ in range(40):
        now = [job(str(i), "RUNNING", 1 + round_ * 1000 + i, reason=f"r{round_}" + "x" * 200, nodes=f"n{round_}" * 50)
               for i in range(600)]
        for j in now:
            h ^= last.get(j.job_id, 0) ^ j.hash
            last[j.job_id] = j.hash
        a.durable(a.numbered(state_update=U(jobs=now, digest=h)), 60)
        a.heartbeat()
    e = refused(lambda: list(watch.Watch(api.WatchRequest(parent="clusters/busy", resume_token=token), timeout=60)),
                S.OUT_OF_RANGE, "HISTORY_COMPACTED")
    assert "without a token" in e.details()
    e = refused(lambda: list(early), S.RESOURCE_EXHAUSTED, "WATCHER_TOO_SLOW")
    a.close()


def stalled(counter):
    """A probe: true once counter[0] has not risen for two seconds."""
    seen = [-1, time.monotonic()]

    def probe():
        if counter[0] != seen[0]:
            seen[:] = [counter[0], time.monotonic()]
        return time.monotonic() - seen[1] > 2
    return probe


@case
def what_is_no_call_of_ours():
    raw = lambda path: admin.unary_unary(path, lambda b: b, lambda b: b)  # noqa: E731
    refused(lambda: raw("/advisor.v1.JobService/Nope")(b"", timeout=5), S.UNIMPLEMENTED, "UNKNOWN_METHOD")
    refused(lambda: raw("/grpc.health.v1.Health/Check")(b"\n\x04nope", timeout=5), S.NOT_FOUND, "UNKNOWN_SERVICE")
    empty = admin.stream_unary("/advisor.v1.JobService/GetJob", lambda b: b, lambda b: b)
    refused(lambda: empty(iter([]), timeout=5), S.INVALID_ARGUMENT, "NO_REQUEST")
    squeezed = d.channel("reader:zip")
    r = api.JobServiceStub(squeezed).GetJob
    refused(lambda: r(api.GetJobRequest(name="clusters/names/jobs/" + "x" * 200), timeout=5,
                      compression=grpc.Compression.Gzip), S.UNIMPLEMENTED, "COMPRESSION_NOT_SUPPORTED")
    refused(lambda: r(api.GetJobRequest(name="x" * 70000), timeout=5), S.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    # reflection answers, and nobody reads: ask until no more is taken
    asked = [0]

    def ask():
        for asked[0] in range(1000000):
            yield b"\x22\x17advisor.v1.AgentService"
    stream = d.channel("reader:deaf").stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                                                    lambda b: b, lambda b: b)(ask())
    wait_for("reflection to take no more", stalled(asked), 60)
    refused(lambda: list(stream), S.RESOURCE_EXHAUSTED, "SLOW_READER")


@case
def workflows_are_summed_up():
    c = advstack.FakeCluster(api, d, "flows")
    o = advstack.FakeCluster(api, d, "flows2")
    name = 'run 7/é%'
    comment = '{"advisor":{"workflow":"%s"}}' % name
    c.job("1", "COMPLETED", comment=comment.encode(), submit_unix=2000, account="a")
    c.job("2", "RUNNING", comment=comment.encode(), submit_unix=3000, restart_count=2, account="b")
    c.job("3", "FAILED", comment=b'{"advisor":{"workflow":"zz"}}')
    c.job("4", "RUNNING")
    o.job("1", "PENDING", comment=comment.encode())
    got = jobs.GetWorkflow(api.GetWorkflowRequest(parent="clusters/flows", workflow=name), timeout=10).workflow
    assert got.name == "clusters/flows/workflows/run%207%2F%C3%A9%25" and got.workflow == name, got
    assert (got.jobs, got.jobs_completed, got.jobs_running, got.jobs_pending, got.restarts) == (2, 1, 1, 0, 2), got
    assert got.first_submit_time.seconds == 2000 and got.last_submit_time.seconds == 3000, got
    assert jobs.GetWorkflow(api.GetWorkflowRequest(name=got.name), timeout=10).workflow == got
    L = lambda **kw: jobs.ListWorkflows(api.ListWorkflowsRequest(**{"parent": "clusters/-", **kw}), timeout=10)  # noqa: E731
    every, token = [], ""
    while True:
        r = L(page_size=1, page_token=token)
        every += r.workflows
        token = r.next_page_token
        if not token:
            break
    assert [w.name for w in every] == [got.name, got.name.replace("clusters/flows/", "clusters/flows2/"), "clusters/flows/workflows/zz"], every
    assert [w.name for w in L(parent="clusters/flows2").workflows] == [every[1].name]
    J = lambda **kw: sorted(j.job_id for j in jobs.ListJobs(api.ListJobsRequest(parent="clusters/flows", **kw), timeout=10).jobs)  # noqa: E731
    assert J(workflow=name) == ["1", "2"] and J(account="b") == ["2"] and J(workflow=name, account="x") == [] and len(J()) == 4
    for kw, code, reason in ((dict(name="clusters/flows/workflows/none"), S.NOT_FOUND, "WORKFLOW_NOT_FOUND"),
                             (dict(name="clusters/flows/workflows/%4"), S.INVALID_ARGUMENT, "NAME_MALFORMED"),
                             (dict(name="clusters/flows/workflows/%00"), S.INVALID_ARGUMENT, "NAME_MALFORMED"),
                             (dict(name="clusters/nowhere/workflows/x"), S.NOT_FOUND, "CLUSTER_NOT_FOUND"),
                             (dict(), S.INVALID_ARGUMENT, "NAME_MISSING")):
        refused(lambda: jobs.GetWorkflow(api.GetWorkflowRequest(**kw), timeout=10), code, reason)
    refused(lambda: L(page_token="00"), S.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")
    c.close()
    o.close()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
