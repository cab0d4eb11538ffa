#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""SQLite on a disk that is full: nothing is acknowledged that is not stored, no advice goes out, people are told, and once
there is room it goes on without a restart."""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

if os.geteuid() != 0:
    print("skip all needs root to mount a small disk")
    sys.exit(77)

api = advstack.stubs()
import grpc  # noqa: E402  (after the stubs, which keep generated packages out of its way)

DISK_MB = 96  # the log of SQLite may be some ten before it is taken in


class Disk:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="advdisk-")
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "advdisk", self.dir], check=True)
        atexit.register(self.purge)

    def fill(self):
        """To the last byte; and again, as what is freed meanwhile would be room."""
        with open(f"{self.dir}/filler", "ab", buffering=0) as f:
            for size in (1 << 16, 4096, 512, 1):
                try:
                    while True:
                        f.write(b"\0" * size)
                except OSError:
                    pass

    def empty(self):
        os.unlink(f"{self.dir}/filler")

    def purge(self):
        subprocess.run(["umount", "-l", self.dir], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)


class Writer:
    """Repeats each write, with its request id, until it is acknowledged."""

    def __init__(self, cluster, channel):
        self.cluster, self.stub = cluster, api.FleetServiceStub(channel)
        self.acked, self.refused, self.error = [], 0, None
        self.reasons = set()
        self.over, self.may = threading.Event(), threading.Event()
        self.may.set()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        n = 0
        while not self.over.is_set():
            n += 1
            while not self._one(f"w{n}") and not self.over.is_set() and not self.error:
                time.sleep(0.05)  # a client's back-off, no wait for a condition
                self.may.wait()

    def _one(self, name):
        try:
            self.stub.SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{self.cluster}", mode=api.MODE_ACT, reason=name,
                                                               request_id=f"{self.cluster}-{name}"), timeout=10)
            self.acked.append(name)
            return True
        except grpc.RpcError as e:
            details = dict(e.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
            if e.code() != grpc.StatusCode.UNAVAILABLE:
                self.error = e
            self.reasons |= {r for r in ("STORE_FULL", "STORE_UNAVAILABLE") if r.encode() in details}
            self.refused += 1
            return False

    def progress(self, n, timeout=60):
        base = len(self.acked)
        wait_for(f"{n} more acknowledged writes; {self.error}", lambda: len(self.acked) >= base + n, timeout)

    def stop(self):
        self.over.set()
        self.may.set()
        self.thread.join(30)
        assert not self.error, self.error


def stored(d, cluster):
    audit, got, token = api.AuditServiceStub(d.channel("reader:audit")), [], ""
    while True:
        r = audit.ListAuditEvents(api.ListAuditEventsRequest(parent=f"clusters/{cluster}", verb="mode.set", page_size=1000,
                                                             page_token=token), timeout=20)
        got += [e.detail.rsplit(": ", 1)[-1] for e in r.events]
        token = r.next_page_token
        if not token:
            return got


def the_disk_of_a_sqlite_store_is_full():
    disk = Disk()
    d = advstack.Advisord(**{"store.path": f"{disk.dir}/advisor.db", "detect.fallback_delay": "1s",
                             "decide.shared_cause_window": "1s"})
    assert d.serving()
    c = advstack.FakeCluster(api, d, "full", mode=api.MODE_ACT, nodes=("n1", "n2", "n3"))
    c.job("1", "RUNNING")
    c.log("1", c.LINE)
    c.agent.heartbeat()
    wait_for("the suspicion", lambda: c.timeline("1").anomalies)
    w = Writer("full", d.channel("admin:writer"))
    w.progress(20)

    disk.fill()
    wait_for("writes to be refused as STORE_FULL", lambda: "STORE_FULL" in w.reasons, 60)
    disk.fill()
    # a log that is taken in may have left room: from here on nothing gets through
    wait_for("the last write that found room", lambda: steady(lambda: len(w.acked)), 60)
    before = len(w.acked)

    # The job fails now. Nobody can store what was decided, so nothing is told to any agent.
    c.agent.wait_end(30)
    agents = [c.agent]

    def fails_in_vain():
        a = advstack.FakeAgent(api, d.channel("agent:full"), "full")
        agents.append(a)
        wait_for("an answer", lambda: a.all("welcome") or a.error, 30)
        if not a.error:
            a.numbered(state_update=api.StateUpdate(full_begin=True, full_end=True, digest=4711, jobs=[api.JobObservation(
                job_id="1", state=api.JOB_STATE_FAILED, state_raw="FAILED", batch=True, requeueable=True, submit_unix=1000,
                user="alice", partition="main", nodes="n[1-2]", detail_known=True, name=b"train", comment=b'{"advisor":{}}',
                exit_code=1, end_unix=int(time.time()), hash=4711)]))
            a.pull(1)
            a.wait_end(30)
        a.close()
        assert not a.all("ack"), "acknowledged what cannot be stored"
    for _ in range(3):
        fails_in_vain()
    assert len(w.acked) == before, "a write was acknowledged on a full disk"
    assert all(not b.advice for a in agents for b in a.all("advice_batch")), "advice that is not stored went out"

    # What people see.
    assert "is full" in d.log_text() and "dropping memory" in d.log_text(), d.tail_log(20)
    assert d.serving() is False, "health says SERVING"
    e = wait_for("a refused call", lambda: refusal(d), 30)
    assert "full" in e.details(), e
    # What was stored can be read, whenever the store is not being loaded again: that is what each write in vain leads to.
    w.may.clear()
    assert wait_for("a read", lambda: readable(d), 30)
    w.may.set()

    pid = d.proc.pid
    disk.empty()
    w.progress(20)
    wait_for("health to say SERVING", lambda: d.serving(), 30)
    w.stop()
    got = stored(d, "full")
    assert set(w.acked) <= set(got), f"acknowledged and lost: {set(w.acked) - set(got)}"
    assert len(got) == len(set(got)), "carried out twice"
    assert d.proc.poll() is None and d.proc.pid == pid
    # and the agent comes back, tells the failure, and gets its advice
    agent = advstack.FakeAgent(api, d.channel("agent:full"), "full")
    agent.wait("welcome")
    c.agent, c.hash, c.last, c.pulls = agent, 0, {}, 0
    c.update(full_begin=True, full_end=True, nodes=[])
    c.job("1", "FAILED", exit_code=1, end_unix=int(time.time()))
    agent.heartbeat()
    a = wait_for("advice", lambda: c.advice("1"), 30)
    assert a.desired_state == api.DESIRED_STATE_RESTARTED, a
    orders = agent.orders()
    assert [o.name for o in orders] == [a.name], orders
    agent.close()
    d.stop()
    p = subprocess.run([os.environ["ADVISORD"], "--config", f"{d.dir}/advisord.yaml", "store", "check"], capture_output=True, text=True,
                       timeout=60)
    assert p.returncode == 0 and p.stdout.rstrip().endswith("ok"), p.stdout + p.stderr


def steady(value, seconds=3):
    """No change for so long."""
    first, end = value(), time.monotonic() + seconds
    while time.monotonic() < end:
        if value() != first:
            return False
        time.sleep(0.1)
    return True


def refusal(d):
    try:
        api.FleetServiceStub(d.channel("admin:other")).SetClusterMode(
            api.SetClusterModeRequest(name="clusters/full", mode=api.MODE_OBSERVE, reason="in vain"), timeout=10)
    except grpc.RpcError as e:
        return e if b"STORE_FULL" in dict(e.trailing_metadata() or ()).get("grpc-status-details-bin", b"") else None
    raise AssertionError("a write was acknowledged on a full disk")


def readable(d):
    try:
        return api.FleetServiceStub(d.channel("reader:other")).GetCluster(api.GetClusterRequest(name="clusters/full"),
                                                                          timeout=10).cluster.name
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.UNAVAILABLE, e
        return None


advstack.run([the_disk_of_a_sqlite_store_is_full])
