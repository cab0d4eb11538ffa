#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two agents of one cluster with folders of their own: one acts, the other stands by. The holder is frozen between its
lease check and the command; the other one recovers the job; the thawed one changes nothing."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

TIMES = {"scheduler.landing_bound": "3s", "scheduler.command_deadline": "4s"}
s = advcrash.CrashStack(agent=TIMES, **{"agent.lease": "12s", "agent.heartbeat_interval": "500ms"})
api = s.api
first = s.agent
second = advstack.Agent(s, name="second", **{"poll.interval": "1s", **TIMES})


def frozen_state(pid):
    with open(f"/proc/{pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0] == "T"


def holder():
    """The agent that holds the lease, and the other one; both run and have settled down."""
    def settled():
        states = [(a, "lease granted" in a.log(), a.log().rfind("standing by") > a.log().rfind("lease granted"))
                  for a in (first, second)]
        act = [a for a, granted, standby in states if granted and not standby]
        wait = [a for a, granted, standby in states if standby]
        return (act[0], wait[0]) if len(act) == 1 and len(wait) == 1 else None
    return wait_for("one holder and one standby", settled, 30)


def arm(failpoint):
    """The holder again, now with a failpoint: its folder makes it the same holder."""
    h, other = holder()
    h.kill()
    h.start(failpoint=failpoint)
    s.agent = h
    h.wait_log("lease granted")
    s.wait_connected()
    return h, other


def account(job):
    """All that could have been changed about the job."""
    j = s.lab.job(job)
    return (j["restarts"], j["excluded"], j["state"], s.writes(job),
            [(x.journal_id, x.journal_seq, x.verb, x.command) for x in s.timeline(job).actions])


def thaw_changes_nothing(job, h, other, pids):
    before = account(job)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    wait_for("the thawed one to stand by: " + h.log()[-800:], lambda: h.log().rfind("standing by") > h.log().rfind("failpoint"), 30)
    time.sleep(2)  # time in which something wrong would happen; nothing is waited for
    after = account(job)
    assert after == before, f"before {before}\nafter {after}\n{h.log()[-4000:]}"
    assert h.alive() and other.alive()


def taken_over(job, other):
    s.agent = other
    s.recovered(job, 60)


def agent_frozen(point, step="preserve"):
    def case():
        h, other = arm(advcrash.spec(point, "stop", advcrash.STEPS[step]))
        job = s.fail()
        wait_for("the holder to freeze", lambda: frozen_state(h.proc.pid), 30)
        taken_over(job, other)
        thaw_changes_nothing(job, h, other, [h.proc.pid])
    return advcrash.named(f"holder_frozen_at_{point}__{step}", case)


def child_frozen():
    """The command's process is frozen before its exec, and its agent as well."""
    h, other = arm(advcrash.spec("spawn.child_before_exec", "stop"))
    job = s.fail()
    child = wait_for("the child to freeze", lambda: next((p for p, st in s.children().items() if st == "T"), None), 30)
    h.signal(signal.SIGSTOP)
    taken_over(job, other)
    os.kill(child, signal.SIGCONT)
    wait_for("the child to die of its alarm", lambda: open(f"/proc/{child}/stat").read().rsplit(")", 1)[1].split()[0] == "Z", 5)
    thaw_changes_nothing(job, h, other, [h.proc.pid])


def command_frozen():
    """scontrol itself is frozen right after its start, and its agent as well."""
    tools = f"{s.lab.dir}/tools"
    os.makedirs(tools, exist_ok=True)
    for tool in ("squeue", "sacct", "sinfo", "scancel", "sacctmgr", "sdiag"):
        if not os.path.lexists(f"{tools}/{tool}"):
            os.symlink(f"/usr/bin/{tool}", f"{tools}/{tool}")
    with open(f"{tools}/scontrol", "w") as f:
        f.write(f'#!/bin/sh\ncase $1 in requeuehold) echo $$ > {first.home}/stuck; kill -STOP $$; echo $$ > {first.home}/went ;;'
                ' esac\nexec /usr/bin/scontrol "$@"\n')
    os.chmod(f"{tools}/scontrol", 0o755)
    h, other = holder()
    h.config["scheduler.bin_dir"] = tools
    h, other = arm(None)
    job = s.fail()
    stuck = f"{first.home}/stuck"
    wait_for("the command to freeze", lambda: os.path.exists(stuck) and open(stuck).read().strip() and
             frozen_state(int(open(stuck).read())), 30)
    pid = int(open(stuck).read())
    h.signal(signal.SIGSTOP)
    taken_over(job, other)
    os.kill(pid, signal.SIGCONT)
    wait_for("the command to die of its alarm", lambda: open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "Z", 5)
    assert not os.path.exists(f"{first.home}/went"), "the frozen command went on"
    thaw_changes_nothing(job, h, other, [h.proc.pid])
    del h.config["scheduler.bin_dir"]


def second_stands_by():
    first.start()
    first.wait_log("lease granted")
    second.start()
    second.wait_log("standing by")
    s.wait_connected()
    job = s.fail()
    s.recovered(job)
    assert "advice received" not in second.log() and not s.journal(job, second)[0]
    assert {x.journal_id for x in s.timeline(job).actions} == {first.journal_id()}


advstack.run([second_stands_by] + [agent_frozen(p) for p in (
    "agent.after_lease_check", "slurm.after_authorize", "spawn.before_fork")] + [
    agent_frozen("slurm.after_authorize", "constrain"),  # the other one finds a job in a hold that it has not made
    child_frozen, command_frozen, advcrash.clean_end(s)])
