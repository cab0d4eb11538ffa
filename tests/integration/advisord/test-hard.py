#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The hard cases of the wire against a real control plane: who misbehaves gets a clear answer or none, and an agent at
work beside it never misses a heartbeat."""
import os
import resource
import socket
import subprocess
import sys
import threading
import time

# A sanitizer keeps freed memory back for a while, which would look like growth.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4:malloc_context_size=2"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rpc"))
import advstack  # noqa: E402
import h2raw as h  # noqa: E402
from advlab import wait_for  # noqa: E402

import grpc  # noqa: E402

S = grpc.StatusCode
refused, has_reason = advstack.refused, advstack.has_reason
api = advstack.stubs()
CASES = []


def case(f):
    CASES.append(f)
    return f


d = advstack.Advisord(**{"agent.silence_timeout": "6s"})
admin = d.channel("admin:root")
fleet = api.FleetServiceStub(admin)
U = api.StateUpdate
CERTS = {who: d.ca.issue("raw-" + who.replace(":", "-"), f"URI:advisor:{who}") for who in ("agent:raw", "reader:raw")}


def kb(field):
    with open(f"/proc/{d.proc.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(field))


def cluster(name):
    fleet.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=20)


for name in ("work", "late", "raw"):
    cluster(name)


class Worker:
    """An agent at work: a heartbeat each interval, each to be answered within the silence limit."""

    def __init__(self, name="work"):
        self.agent = advstack.FakeAgent(api, d.channel(f"agent:{name}"), name)
        self.welcome = self.agent.wait("welcome")
        self.agent.durable(self.agent.numbered(state_update=U(full_begin=True, full_end=True)))
        self.sent, self.over, self.worst = {}, False, 0.0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        seen = len(self.agent.got)
        while not self.over and self.agent.error is None:
            self.sent[self.agent.heartbeat()] = time.monotonic()
            end = time.monotonic() + self.welcome.heartbeat_interval_ms / 1000
            while time.monotonic() < end:
                for m in self.agent.got[seen:]:
                    seen += 1
                    if m.HasField("heartbeat_ack") and m.heartbeat_ack.id in self.sent:
                        self.worst = max(self.worst, time.monotonic() - self.sent.pop(m.heartbeat_ack.id))
                time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        wait_for("the last heartbeats to be answered", lambda: len(self.sent) <= 1, 10)
        self.over = True
        self.thread.join()
        if kind is None:
            assert self.agent.error is None, self.agent.error
            limit = self.welcome.silence_timeout_ms / 1000
            print(f"# a heartbeat was answered after {self.worst:.2f} s at most, the limit is {limit} s", flush=True)
            assert self.worst < limit, self.worst
            last = self.agent.all("heartbeat_ack")[-1]
            assert last.grant.epoch == self.welcome.grant.epoch, "the lease was lost and granted anew"
        self.agent.close()


def raw(who="agent:raw", **kw):
    return h.Connection(d.port, h.client_context(d.ca.cert, *CERTS[who]), **kw)


@case
def streams_that_are_reset_at_once():
    before = kb("VmHWM")
    with Worker():
        for path in ("/advisor.v1.AgentService/Session", "/advisor.v1.AgentService/PushLogs", "/no/such"):
            c, n, ended = raw(), 1, False
            threading.Thread(target=lambda: c.frames(1 << 60), daemon=True).start()
            block, end = h.call(path), time.monotonic() + 6
            try:
                while time.monotonic() < end:
                    out = []
                    for _ in range(200):
                        out.append(h.frame(h.HEADERS, h.END_HEADERS, n, block) + h.frame(h.RST_STREAM, 0, n, b"\0\0\0\x08"))
                        n += 2
                    c.send(b"".join(out))
            except OSError:
                ended = True
            c.close()
            assert ended, f"{path}: let go on with {n // 2} streams"
    grown = kb("VmHWM") - before
    print(f"# grown by {grown} kB", flush=True)
    assert grown < 400_000, grown


@case
def frames_without_sense():
    floods = {"ping": h.frame(h.PING, 0, 0, bytes(8)) * 500, "settings": h.frame(h.SETTINGS, 0, 0, b"\0\4\0\0\xff\xff") * 500,
              "window": h.frame(h.WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * 500}
    before = kb("VmHWM")
    with Worker():
        for data in floods.values():
            c = raw()
            threading.Thread(target=lambda: c.frames(1 << 60), daemon=True).start()
            end = time.monotonic() + 3
            try:
                while time.monotonic() < end:
                    c.send(data)
            except OSError:
                pass
            c.close()
    assert kb("VmHWM") - before < 300_000, kb("VmHWM") - before


@case
def out_of_descriptors():
    """No descriptor is left for a while: who is connected goes on, and afterwards new ones come in again."""
    with Worker():
        limits = resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{d.proc.pid}/fd"))
        resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE, (used + 10, limits[1]))
        try:
            for _ in range(3):
                socks = []
                for _ in range(60):
                    x = socket.socket()
                    x.settimeout(5)
                    x.connect(("127.0.0.1", d.port))
                    socks.append(x)
                time.sleep(0.5)
                assert fleet.GetCluster(api.GetClusterRequest(name="clusters/work"), timeout=10)
                for x in socks:
                    x.close()
                time.sleep(0.3)
        finally:
            resource.prlimit(d.proc.pid, resource.RLIMIT_NOFILE, limits)
        late = wait_for("a new agent to come in", lambda: try_agent("late"), 30)
        late.close()
    assert "out of descriptors" in open(f"{d.dir}/advisord.log", errors="replace").read()


def try_agent(name):
    a = advstack.FakeAgent(api, d.channel(f"agent:{name}"), name)
    try:
        a.wait("welcome", timeout=3)
        return a
    except AssertionError:
        a.close()
        return None


@case
def a_bomb_is_not_opened():
    before = kb("VmHWM")
    with Worker():
        stub = api.AgentServiceStub(d.channel("agent:raw"))
        big = api.PushLogsRequest(session_id="x", chunks=[api.LogChunk(data=b"\0" * (300 << 20))])
        refused(lambda: stub.PushLogs(iter([big]), timeout=60, compression=grpc.Compression.Gzip), S.UNIMPLEMENTED,
                "COMPRESSION_NOT_SUPPORTED")
    assert kb("VmHWM") - before < 100_000, kb("VmHWM") - before


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def field(num, data):
    return varint(num << 3 | 2) + varint(len(data)) + data


def session_of(*messages):
    """The error that ends a session of these raw messages."""
    make = d.channel("agent:raw").stream_stream("/advisor.v1.AgentService/Session", lambda b: b, lambda b: b)
    try:
        for _ in make(iter(messages), timeout=20):
            pass
    except grpc.RpcError as e:
        return e
    return None


HELLO = api.SessionRequest(hello=api.Hello(cluster="raw", agent_version="x", api_versions=["advisor.v1"], instance_id="i",
                                           journal_id="j", journal_persistent=True)).SerializeToString()


@case
def messages_that_blow_up():
    before = kb("VmHWM")
    # a list of empty jobs: two bytes each on the wire, some hundreds in memory
    jobs = b"\x1a\x00" * 400_000
    e = session_of(HELLO, b"\x08\x01" + field(4, jobs))
    assert e.code() == S.RESOURCE_EXHAUSTED, e
    has_reason(e, "MESSAGE_TOO_COMPLEX")
    e = session_of(HELLO, b"\x08\x01" + field(4, b"x" * (2 << 20)))
    assert e.code() == S.RESOURCE_EXHAUSTED, e
    deep = b""
    for _ in range(20000):
        deep = field(2, deep)
    e = session_of(deep)
    assert e.code() in (S.INVALID_ARGUMENT, S.RESOURCE_EXHAUSTED), e
    assert kb("VmHWM") - before < 150_000, kb("VmHWM") - before


@case
def text_that_is_none():
    for bad in (b"\xff\xfe", b"a\0b", b"\xed\xa0\x80", b"\xc0\x80"):
        hello = field(2, field(1, b"raw") + field(5, bad))  # instance_id
        e = session_of(hello)
        assert e.code() == S.INVALID_ARGUMENT and "instance_id" in e.details(), e
        has_reason(e, "INVALID_UTF8")
        get = admin.unary_unary("/advisor.v1.FleetService/GetCluster", lambda b: b, lambda b: b)
        refused(lambda: get(field(1, bad), timeout=10), S.INVALID_ARGUMENT, "INVALID_UTF8", "name")
    # where bytes are bytes, they may be anything
    a = advstack.FakeAgent(api, d.channel("agent:raw"), "raw", journal="j")
    a.wait("welcome")
    job = api.JobObservation(job_id="1", state=api.JOB_STATE_RUNNING, state_raw="RUNNING", submit_unix=1, detail_known=True,
                             name=b"\xff\0\xfe", comment=b"\0\xff", stdout_path=b"/\xff\0", hash=1)
    a.durable(a.numbered(state_update=U(full_begin=True, full_end=True, jobs=[job], digest=1)))
    j = api.JobServiceStub(admin).GetJob(api.GetJobRequest(ref=api.AttemptRef(cluster="raw", job_id="1")), timeout=10).job
    assert j.job_id == "1" and "\ufffd" in j.display_name, j
    a.close()


@case
def values_of_a_later_version():
    """Enum values that nobody here knows are unknown: never a default, never a crash."""
    a = advstack.FakeAgent(api, d.channel("agent:raw"), "raw", journal="j", ceiling=api.Ceiling(mode=77), verbs=[99, 1])
    grant = a.wait("welcome").grant
    view = lambda: fleet.GetCluster(api.GetClusterRequest(name="clusters/raw"), timeout=10).cluster  # noqa: E731
    assert view().ceiling == api.MODE_UNSPECIFIED and view().effective_mode <= api.MODE_OBSERVE, view()
    a.heartbeat(cluster_mode=88, ceiling=api.Ceiling(mode=66))
    job = api.JobObservation(job_id="5", state=api.JOB_STATE_RUNNING, state_raw="RUNNING", submit_unix=1, hash=1)
    a.durable(a.numbered(state_update=U(full_begin=True, full_end=True, jobs=[job], digest=1)))
    assert not view().mode_effective
    ref = api.AttemptRef(cluster="raw", job_id="5")
    a.durable(a.numbered(telemetry=api.TelemetryReport(attempt=ref, state=44, reason="of a later version")))
    t = api.JobServiceStub(admin).GetAttempt(api.GetAttemptRequest(ref=ref), timeout=10).attempt
    assert t.telemetry == api.TELEMETRY_STATE_UNSPECIFIED, t
    name = f"{t.name}/advice"
    a.durable(a.numbered(action=api.ActionReport(journal_seq=1, epoch=grant.epoch, advice=name, generation=1, attempt=ref, verb=99,
                                                 phase=9, command=99, observed=99)))
    a.numbered(state_update=U(jobs=[api.JobObservation(job_id="5", state=99, submit_unix=1, hash=2)], digest=2))
    has_reason(a.wait_end(), "OBSERVATION_MALFORMED")
    refused(lambda: fleet.SetClusterMode(api.SetClusterModeRequest(name="clusters/raw", mode=99), timeout=10),
            S.INVALID_ARGUMENT, "MODE_MALFORMED")


@case
def pages_without_end():
    jobs = api.JobServiceStub(admin)
    for size in (1001, 1 << 31, (1 << 32) - 1):
        refused(lambda: jobs.ListJobs(api.ListJobsRequest(parent="clusters/raw", page_size=size), timeout=10),
                S.INVALID_ARGUMENT, "PAGE_SIZE_OUT_OF_RANGE", "page_size")
    for token in ("f" * 40000, "0", "zz", "00" * 100, "ff" * 200):
        refused(lambda: jobs.ListJobs(api.ListJobsRequest(parent="clusters/raw", page_token=token), timeout=10),
                S.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", "page_token")


@case
def methods_nobody_has():
    begin = time.monotonic()
    with Worker():
        for i in range(50):
            call = admin.stream_stream(f"/advisor.v1.AgentService/Nope{i}", lambda b: b, lambda b: b)
            refused(lambda: list(call(iter([b"", b"x"]), timeout=10)), S.UNIMPLEMENTED, "UNKNOWN_METHOD")
    assert time.monotonic() - begin < 20


@case
def metadata_that_is_none():
    with Worker():
        for more in ([("X-Upper", "y")], [("x-nul", "a\0b")], [("x-line", "a\nb")], [("x-high", b"\xff")], [("authorization", "Bearer " + "x" * 9000)],
                     [("x-huge", "y" * 15000)], [("grpc-timeout", "soon")], [("x-bin", "!!")]):
            c = raw("reader:raw")
            c.send(h.frame(h.HEADERS, h.END_HEADERS, 1, h.call("/advisor.v1.FleetService/ListClusters", *more)) +
                   h.frame(h.DATA, h.END_STREAM, 1, h.message()))
            c.until(lambda kind, flags, stream, p: kind in (h.RST_STREAM, h.GOAWAY) or (stream == 1 and flags & h.END_STREAM), 15)
            c.close()


@case
def watchers_that_never_read():
    """Many of them, and much to tell: they are cut off, memory stays bounded, heartbeats are answered."""
    before = kb("VmRSS")
    with Worker():
        channels = [d.channel("reader:raw") for _ in range(5)]
        stuck = [api.WatchServiceStub(ch).Watch(api.WatchRequest(parent="clusters/-"), timeout=300) for ch in channels for _ in range(8)]
        for w in stuck:
            next(w)
        a = advstack.FakeAgent(api, d.channel("agent:late"), "late")
        a.wait("welcome")
        digest, last = 0, {}
        for round_ in range(12):
            now = [api.JobObservation(job_id=str(i), state=api.JOB_STATE_RUNNING, state_raw="RUNNING", submit_unix=1000,
                                      reason=f"{round_}" + "x" * 300, hash=1 + round_ * 1000 + i) for i in range(400)]
            for j in now:
                digest ^= last.get(j.job_id, 0) ^ j.hash
                last[j.job_id] = j.hash
            a.heartbeat()
            a.durable(a.numbered(state_update=U(full_begin=round_ == 0, full_end=round_ == 0, jobs=now, digest=digest)), 60)
        a.close()
        for w in stuck:
            w.cancel()
    grown = kb("VmRSS") - before
    print(f"# 40 watchers: grown by {grown} kB", flush=True)
    assert grown < 40 * 2200 + 100_000, grown


@case
def a_second_server_is_refused():
    path = f"{d.dir}/api.sock"
    first = advstack.Advisord(listen=f'["127.0.0.1:0", "unix:{path}"]')
    for listen, words in ((f'["127.0.0.1:{first.port}"]', "cannot listen"), (f'["unix:{path}"]', "another server")):
        conf = f"{d.dir}/second.yaml"
        with open(conf, "w") as f:
            for k, v in {**first.config, "listen": listen, "store.path": f"{d.dir}/second.db", "port_file": f"{d.dir}/port2"}.items():
                f.write(f"{k}: {v}\n")
        p = subprocess.run([os.environ["ADVISORD"], "--config", conf], capture_output=True, timeout=120)
        assert p.returncode == 1 and words in p.stderr.decode(), (p.returncode, p.stderr[-500:])
    with open(first.ca.cert, "rb") as f:
        root = f.read()
    cert, key = first.ca.issue("local", "URI:advisor:admin:root")
    creds = grpc.ssl_channel_credentials(root, open(key, "rb").read(), open(cert, "rb").read())
    over = grpc.secure_channel(f"unix:{path}", creds, [("grpc.ssl_target_name_override", "localhost")])
    api.FleetServiceStub(over).ListClusters(api.ListClustersRequest(), timeout=10)
    first.stop()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
