#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Garbage from all sides: to advisord as an agent's messages, from jobs by their names, comments and lines, to an agent
as a control plane's messages. Clear errors, no crash, bounded memory, and the work beside it goes on."""
import collections
import os
import random
import socket
import ssl
import subprocess
import sys
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advfake  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

s = advcrash.CrashStack()
api = s.api
SEED = int(os.environ.get("SEED", random.randrange(1 << 30)))
print(f"# SEED={SEED}", flush=True)
rand = random.Random(SEED)
CLEAR = {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE", "FAILED_PRECONDITION", "OK", "NOT_FOUND",
         "PERMISSION_DENIED"}

# A sanitizer keeps freed memory back for a while, which would look like growth.
s.cp.kill()
s.cp.start(env={"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4:malloc_context_size=2"})
s.admin().CreateCluster(api.CreateClusterRequest(cluster_id="other"), timeout=10)


def rss_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


class Raw:
    """Calls of AgentService with bytes for messages, as the agent of cluster "other"."""

    def __init__(self, codes=None):
        self.channel = s.cp.channel("agent:other")
        self.codes = collections.Counter() if codes is None else codes

    def _call(self, make, messages, take, timeout=20):
        first = None
        try:
            for m in make(iter(messages), timeout=timeout):
                first = first or m
                if take and take(m):
                    break
            self.codes["OK"] += 1
        except grpc.RpcError as e:
            self.codes[e.code().name] += 1
            assert e.code().name in CLEAR and e.details(), (e.code(), e.details())
        return first

    def session(self, messages, take=None):
        make = self.channel.stream_stream("/advisor.v1.AgentService/Session", lambda b: b, lambda b: b)
        return self._call(make, messages, take)

    def push(self, messages):
        make = self.channel.stream_unary("/advisor.v1.AgentService/PushLogs", lambda b: b, lambda b: b)
        return self._call(lambda it, timeout: [make(it, timeout=timeout)], messages, None)


def hello(n=0):
    return api.SessionRequest(hello=api.Hello(cluster="other", agent_version="x", api_versions=["advisor.v1"],
                                              instance_id=f"i{n}", journal_id="j1", journal_persistent=True)).SerializeToString()


def samples():
    """One message of each kind."""
    job = api.JobObservation(job_id="7", state=api.JOB_STATE_RUNNING, submit_unix=1, detail_known=True, name=b"n", comment=b"{}",
                             nodes="n1", user="u", hash=5)
    kinds = [dict(heartbeat=api.Heartbeat(id=1)), dict(pull=api.Pull(id=1)),
             dict(seq=1, state_update=api.StateUpdate(full_begin=True, full_end=True, jobs=[job], digest=5)),
             dict(seq=1, advice_status=api.AdviceStatusReport(advice="clusters/other/jobs/x/attempts/0/advice")),
             dict(seq=1, action=api.ActionReport(journal_seq=1, advice="x")),
             dict(seq=1, telemetry=api.TelemetryReport(attempt=api.AttemptRef(cluster="other", job_id="7")))]
    return [api.SessionRequest(**k).SerializeToString() for k in kinds]


def mutate(b):
    b = bytearray(b)
    for _ in range(rand.randint(1, 4)):
        i = rand.randrange(len(b))
        how = rand.randrange(4)
        if how == 0:
            b[i] ^= 1 << rand.randrange(8)
        elif how == 1:
            b[i] = rand.choice((0, 0x7f, 0x80, 0xff))
        elif how == 2:
            del b[i:]
        else:
            b[i:i] = rand.randbytes(rand.randint(1, 9))
        if not b:
            break
    return bytes(b)


# to advisord

def random_bytes(raw, n):
    for _ in range(n):
        raw.session([rand.randbytes(rand.randint(0, 400)) for _ in range(3)])
        raw.push([rand.randbytes(rand.randint(0, 400)) for _ in range(3)])


def broken_messages(raw, n):
    kinds = samples()
    for i in range(n):
        raw.session([mutate(hello(i))])
        raw.session([hello(i)] + [mutate(rand.choice(kinds)) for _ in range(5)])


def huge_messages(raw):
    for size in (1 << 20, 5 << 20, 30 << 20):
        # a connection that goes on with what is refused is ended: each gets its own, and a clear answer
        Raw(raw.codes).session([hello(), rand.randbytes(size)])
        raw.session([b"\x0a" + b"\xff\xff\xff\x7f" + b"x" * 1000])  # a length that is not there
        Raw(raw.codes).push([api.PushLogsRequest(session_id="x" * size).SerializeToString()])
    jobs = [api.JobObservation(job_id=str(i), submit_unix=1, state=api.JOB_STATE_RUNNING, hash=i) for i in range(60000)]
    raw.session([hello(), api.SessionRequest(seq=1, state_update=api.StateUpdate(full_begin=True, full_end=True,
                                                                                 jobs=jobs)).SerializeToString()])
    raw.session([api.SessionRequest(hello=api.Hello(cluster="other", api_versions=["v"] * 50000)).SerializeToString()])


def no_rpc_at_all(n):
    """Not TLS, half a handshake, TLS without HTTP/2, HTTP/2 that is none."""
    ctx = ssl.create_default_context(cafile=s.cp.ca.cert)
    cert, key = s.cp.ca.issue("raw", "URI:advisor:agent:other")
    ctx.load_cert_chain(cert, key)
    ctx.set_alpn_protocols(["h2"])
    kept = []
    for i in range(n):
        c = socket.create_connection(("127.0.0.1", s.cp.port), 10)
        c.settimeout(10)
        try:
            if i % 4 == 0:
                c.sendall(rand.randbytes(300))
            elif i % 4 == 1:
                c.sendall(b"\x16\x03\x01\x02\x00\x01")
                kept.append(c)
                continue
            else:
                t = ctx.wrap_socket(c, server_hostname="localhost")
                t.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" * (i % 2) + rand.randbytes(2000))
                t.recv(100)
        except OSError:
            pass
        c.close()
    for c in kept:
        c.close()


def reconnects(n_calls, n_connections):
    raw = Raw()
    for i in range(n_calls):
        got = raw.session([hello(i)])
        assert api.SessionResponse.FromString(got).HasField("welcome"), got
    for i in range(n_connections):
        channel = s.cp.channel("agent:other") if i == 0 else grpc.secure_channel(
            f"127.0.0.1:{s.cp.port}", creds, [("grpc.use_local_subchannel_pool", 1)])
        if i == 0:
            cert, key = s.cp.ca.issue("fast", "URI:advisor:agent:other")
            creds = grpc.ssl_channel_credentials(open(s.cp.ca.cert, "rb").read(), open(key, "rb").read(), open(cert, "rb").read())
        make = channel.stream_stream("/advisor.v1.AgentService/Session", lambda b: b, lambda b: b)
        call = make(iter([hello(i)]), timeout=20)
        next(iter(call))
        if i % 2:
            call.cancel()
        channel.close()


def flood_of_logs():
    """Attempts nobody knows, streams without end, lines of a megabyte, names of anything."""
    a = advstack.FakeAgent(api, s.cp.channel("agent:other"), "other", instance="flood")
    sid = a.wait("welcome").session_id
    stub = api.AgentServiceStub(s.cp.channel("agent:other"))
    line = b"RuntimeError: " + b"x" * 100000

    def chunks():
        for i in range(3000):
            yield api.PushLogsRequest(session_id=sid, chunks=[api.LogChunk(
                attempt=api.AttemptRef(cluster="other", job_id=rand.choice((str(i), "x" * 3000, "7\n8", "", "1_2+3")),
                                       restart_count=rand.choice((0, i, 4294967295))),
                stream=rand.choice(("stdout", "s" * 500, "")), offset=rand.choice((0, 5, 1 << 63, (1 << 64) - 1)),
                data=rand.randbytes(50), dropped_before=rand.choice((0, (1 << 64) - 1)))])
        for i in range(100):
            yield api.PushLogsRequest(chunks=[api.LogChunk(attempt=api.AttemptRef(cluster="other", job_id="9"), stream="stdout",
                                                           offset=i * len(line), data=line)])
    try:
        stub.PushLogs(chunks(), timeout=60)
    except grpc.RpcError as e:
        assert e.code().name in CLEAR and e.details(), (e.code(), e.details())
    a.close()


def all_of_it(n):
    raw = Raw()
    random_bytes(raw, 40 * n)
    broken_messages(raw, 60 * n)
    huge_messages(raw)
    no_rpc_at_all(40 * n)
    reconnects(200 * n, 30 * n)
    flood_of_logs()
    return raw.codes


def advisord_takes_it():
    codes = all_of_it(1)  # what is kept for good is there now
    time.sleep(1)
    before = rss_mb(s.cp.proc.pid)
    codes += all_of_it(5)
    time.sleep(1)
    after = rss_mb(s.cp.proc.pid)
    print(f"# {dict(codes)}; resident {before:.0f} MB, after {after:.0f} MB", flush=True)
    assert after < before * 1.25 + 16, (before, after)
    assert codes["INVALID_ARGUMENT"] > 100, codes


def work_goes_on():
    """A job is recovered while the garbage comes in; the cluster beside it lost nothing."""
    job = s.fail()
    raw = Raw()
    broken_messages(raw, 150)
    s.recovered(job)
    assert s.cluster_view().agent_state == api.AGENT_STATE_CONNECTED
    other = s.admin().GetCluster(api.GetClusterRequest(name="clusters/other"), timeout=10).cluster
    assert other.mode == api.MODE_OBSERVE, other


# from jobs

def comments_and_names():
    forged = "x\nJobId=1 JobState=FAILED\nRestarts=9 UserId=root(0) Requeue=1\n[{\"advisor\":{}}]"
    junk = bytes(rand.choice(range(1, 256)) for _ in range(1023))
    cases = {"junk": junk, "half": b'{"advisor":{"max_restarts":5}' + b"x" * 900, "deep": b"[" * 1000,
             "long": b'{"advisor":{},"x":"' + b"\xff" * 900 + b'"}', "quotes": b'"\\"\'`$(id)|;|' * 70}
    jobs = {}
    for kind, comment in cases.items():
        jobs[kind] = s.fail_raw(comment, forged)
    for kind, job in jobs.items():
        t = wait_for(f"{kind} to be known", lambda: (t := s.timeline(job)) and t.attempts[0].state == api.JOB_STATE_FAILED and t, 40)
        assert t.job.user == "labuser1" and t.job.display_name == forged, t.job
    # One that gives its consent under such a name is recovered.
    job = s.fail_raw(b'{"advisor":{"max_restarts":3}}', forged)
    s.recovered(job)
    for kind, job in jobs.items():
        if kind == "long":  # JSON but for its encoding: a consent
            s.recovered(job)
        else:
            assert len(s.timeline(job).attempts) == 1
            assert s.lab.job(job)["restarts"] == 0 and not s.writes(job), (kind, s.describe(job))


def fail_raw(comment, name):
    """As s.fail(), with bytes for the comment."""
    home = f"{s.lab.dir}/home/labuser1"
    argv = s.lab.argv(["sbatch", "--parsable", "--requeue", "--export=ALL,SCENE=fault,STEPS=5,STEP_S=0.05,LINGER=0.2",
                       f"--output={home}/out-%j.log", f"--job-name={name}"], "labuser1")
    if not os.path.exists(f"{home}/train.sh"):
        s.lab.exec("scancel", s.fail())
    p = subprocess.run([os.fsencode(a) for a in argv] + [b"--comment=" + comment, os.fsencode(f"{home}/train.sh")],
                       capture_output=True, timeout=30, stdin=subprocess.DEVNULL)
    assert p.returncode == 0, p.stderr
    return p.stdout.decode().strip()


s.fail_raw = fail_raw


# to the agent

fake = None
lone = None


def scripts():
    a = api

    def welcome_then(*messages):
        def script(requests, context):
            next(requests)
            yield fake.welcome()
            yield from messages
            for _ in requests:
                pass
        return script

    def first(*messages):
        def script(requests, context):
            yield from messages
            for _ in requests:
                pass
        return script

    order = dict(generation=1, attempt=a.AttemptRef(cluster="lab", job_id="1"), desired_state=a.DESIRED_STATE_RESTARTED)
    r = a.SessionResponse
    return {
        "junk_first": (first(b"\xff\xff\xff\xff\xff"), "cannot be read"),
        "random": (first(random.Random(SEED).randbytes(3000)), "session ended"),
        "no_welcome": (first(r(heartbeat_ack=a.HeartbeatAck(id=1))), "no Welcome first"),
        "two_welcomes": (welcome_then(fake.welcome()), "a second Welcome"),
        "ack_of_the_future": (welcome_then(r(ack=a.Ack(durable_through_seq=10**9))), "an Ack of what was not sent"),
        "long_focus": (welcome_then(r(focus=a.Focus(job_ids=["1"] * 1000))), "cannot be read"),
        "long_ids": (welcome_then(r(focus=a.Focus(job_ids=["1" * 5000]))), "cannot be read"),
        "long_batch": (welcome_then(r(advice_batch=a.AdviceBatch(pull_id=1, advice=[
            a.AdviceOrder(name=str(i), **order) for i in range(100)]))), "cannot be read"),
        "long_list_of_nodes": (welcome_then(r(advice_batch=a.AdviceBatch(pull_id=1, advice=[
            a.AdviceOrder(name="x", exclude_nodes="n" * 100000, **order)]))), "cannot be read"),
        "huge": (first(b"\x0a" + b"x" * (8 << 20)), "session ended"),
        "truncated": (first(fake.welcome().SerializeToString()[:-3]), "cannot be read"),
        "ends_at_once": (lambda requests, context: iter(()), "session ended"),
    }


def agent_takes(name):
    def case():
        script, text = scripts()[name]
        mark, begun, since = len(lone.log()), fake.sessions, time.monotonic()
        fake.script = script
        # the session under way, if any, is ended from the other side by killing its calls
        fake.hang_up()
        again = 2 if name in ("junk_first", "ends_at_once") else 1  # to see the pause between two
        wait_for(f"{text!r} in the agent's log", lambda: text in lone.log()[mark:] and fake.sessions >= begun + again, 20)
        n, took = fake.sessions - begun, time.monotonic() - since
        assert n <= 3 + took * 2, f"{n} sessions in {took:.1f} s"
        fake.script = None
        fake.hang_up()
        at = len(lone.log())
        wait_for("a session that works", lambda: "lease granted" in lone.log()[at:], 20)
        assert lone.alive()
    return advcrash.named(f"agent_takes__{name}", case)


def agent_unknown_orders():
    """Values of a later version: answered, not carried out."""
    job = s.lab.sbatch("--requeue", '--comment={"advisor":{}}', "--output=/dev/null", wrap="exit 1")
    seen = wait_for("the job", lambda: (j := fake.job(job)) and j.state == api.JOB_STATE_FAILED and j, 30)
    for field, value in (("desired_state", 99), ("required_features", ["telepathy"])):
        name = fake.order(seen, name=f"clusters/lab/jobs/{field}/attempts/0/advice", **{field: value})
        st = wait_for("an answer", lambda: fake.statuses(name), 20)[-1]
        assert st.disposition == api.DISPOSITION_ABANDONED and st.reason == api.DISPOSITION_REASON_UNSUPPORTED_BY_AGENT, st
    name = fake.order(seen, name="clusters/lab/jobs/a/attempts/0/advice", actionability=77)
    name2 = fake.order(seen, name="clusters/lab/jobs/n/attempts/0/advice", exclude_nodes="n[1-,]]")
    wait_for("an answer", lambda: fake.statuses(name), 20)
    wait_for("an answer", lambda: any(x.disposition == api.DISPOSITION_ABANDONED or x.disposition == api.DISPOSITION_CONVERGED
                                      for x in fake.statuses(name2)), 30)
    assert s.lab.job(job)["restarts"] <= 1


def agent_memory():
    assert rss_mb(lone.proc.pid) < 400, rss_mb(lone.proc.pid)
    lone.stop()
    fake.stop()


def start_fake():
    global fake, lone
    s.agent.stop()
    fake = advfake.FakeControl(api, s.ca)
    lone = advstack.Agent(s, name="lone", **{"control_plane.target": f"127.0.0.1:{fake.port}", "poll.interval": "1s"})
    lone.start()
    lone.wait_log("lease granted")


NAMES = ("junk_first", "random", "no_welcome", "two_welcomes", "ack_of_the_future", "long_focus", "long_ids", "long_batch",
         "long_list_of_nodes", "huge", "truncated", "ends_at_once")
s.agent.start()
s.wait_connected()
advstack.run([advisord_takes_it, work_goes_on, comments_and_names, start_fake] + [agent_takes(n) for n in NAMES] +
             [agent_unknown_orders, agent_memory, advcrash.clean_end(s)])
