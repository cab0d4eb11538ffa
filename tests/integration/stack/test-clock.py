#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wall clock of the agent's host jumps, by an hour and by ten, either way: at rest, in the middle of a recovery, and
over a restart of the agent. No lease is longer or shorter for it, nothing is done twice or given back, every failed job
is recovered, and people are told."""
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

JUMPS = (3600, -3600, 36000, -36000)
s = advcrash.CrashStack(few_rules=True, **{"agent.lease": "12s", "agent.heartbeat_interval": "500ms"})
api = s.api
CERT, KEY = s.ca.issue("reader-ctl", "URI:advisor:reader:ctl")
OFFSET = f"{s.agent.home}/offset"
s.agent.env["ADVISOR_WALL_OFFSET"] = OFFSET


def clock(seconds):
    with open(OFFSET + ".new", "w") as f:
        f.write(str(seconds))
    os.chmod(OFFSET + ".new", 0o644)
    os.rename(OFFSET + ".new", OFFSET)


def told(seconds):
    """The operator is shown a clock that is off by so much."""
    wait_for(f"the cluster to show a clock off by {seconds} s, not {s.cluster_view().agent_clock_skew_ms} ms",
             lambda: abs(s.cluster_view().agent_clock_skew_ms - seconds * 1000) <= 5000, 30)


def events():
    return [e.detail for e in api.AuditServiceStub(s.cp.channel("reader:test")).ListAuditEvents(
        api.ListAuditEventsRequest(parent="clusters/lab", verb="agent.clock", page_size=100), timeout=10).events]


def counter():
    return s.cluster_view().epoch.counter


def ctl():
    p = subprocess.run([os.environ["ADVISORCTL"], "--server", f"127.0.0.1:{s.cp.port}", "--ca", s.ca.cert, "--cert", CERT,
                        "--key", KEY, "cluster", "get", "lab"], capture_output=True, text=True, timeout=30)
    assert p.returncode == 0, p.stderr
    return p.stdout


def begin():
    clock(0)
    s.agent.start()
    s.wait_connected()
    assert s.cluster_view().agent_clock_skew_ms == 0


def jumps_at_rest():
    epoch = counter()
    for jump in JUMPS:
        clock(jump)
        s.agent.wait_log(f"jump_s={jump}")
        told(jump)
        assert f"the agent's is {abs(jump)} s {'ahead' if jump > 0 else 'behind'}" in ctl(), ctl()
        s.recovered(s.fail())
        clock(0)
        s.agent.wait_log("the wall clock is back")
        told(0)
        assert "clock:" not in ctl(), ctl()
    assert counter() == epoch, "a jump cost the lease"
    got = events()
    for jump in JUMPS:
        assert any(f"{abs(jump)} s {'ahead' if jump > 0 else 'behind'}" in e for e in got), got


def in_a_recovery(jump, restart):
    def case():
        """The agent stands between two steps when the clock jumps."""
        point = advcrash.spec("agent.after_outcome", "stop" if not restart else "kill", 1)
        s.agent.kill()
        clock(0)
        s.agent.start(failpoint=point)
        s.wait_connected()
        told(0)
        job = s.fail()
        if restart:
            s.agent.wait_dead()
            clock(jump)
            s.agent.start()
        else:
            wait_for("the agent to stop after its first step", lambda: stopped(s.agent.proc.pid), 60)
            held = s.lab.job(job)
            assert held["state"] == "PENDING" and held["priority"] == "0", held
            clock(jump)
            s.agent.signal(signal.SIGCONT)
        s.recovered(job)
        told(jump)
        clock(0)
        told(0)
    return advcrash.named(f"in_a_recovery_{'restarted_' if restart else ''}{jump:+d}".replace("+", "plus_").replace("-", "minus_"), case)


def ended_between_two_looks():
    """The clock is ahead, and the agent sees the job only when it has ended: its log is of now all the same."""
    s.agent.kill()
    clock(0)
    s.agent.start()
    s.wait_connected()
    clock(JUMPS[0])
    s.agent.wait_log(f"jump_s={JUMPS[0]}")
    s.agent.signal(signal.SIGSTOP)
    job = s.fail()
    wait_for("the job to fail", lambda: s.lab.job(job)["state"] == "FAILED", 60)
    s.agent.signal(signal.SIGCONT)
    s.recovered(job)
    clock(0)
    told(0)


def stopped(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "T"


cases = [begin, jumps_at_rest, ended_between_two_looks] + [in_a_recovery(j, r) for r in (False, True) for j in JUMPS]
advstack.run(cases + [advcrash.clean_end(s)])
