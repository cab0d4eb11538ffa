# SPDX-License-Identifier: Apache-2.0
"""Kills parts of the stack at named points while a failed job is recovered, and tells whether it was recovered once."""
import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

STEPS = {"preserve": 1, "constrain": 2, "release": 3}


def spec(point, action, step=1):
    """ADVISOR_FAILPOINT for the pass of @point within the write number @step of a recovery."""
    if point == "agent.after_outcome":
        return f"{point}={action}@{step}"
    chain = [f"agent.after_outcome@{step - 1}"] if step > 1 else []
    if point.startswith("spawn."):
        chain.append("slurm.after_authorize@1")
        if point != "spawn.before_fork":
            chain.append("spawn.before_fork@1")
    chain.append(point + "@1")
    out = []
    for here, then in zip(chain, chain[1:] + [None]):
        name, count = here.split("@")
        what = "arm:" + then.split("@")[0] if then else action
        out.append(f"{name}={what}@{count}")
    return ";".join(out)


class CrashStack(advstack.Stack):
    def __init__(self, few_rules=False, **kw):
        """@few_rules: only what these jobs print, so that a restart of advisord costs no seconds."""
        if few_rules:
            kw["rules.dir"] = tempfile.mkdtemp(prefix="advrules-")
            atexit.register(shutil.rmtree, kw["rules.dir"], ignore_errors=True)
            for name in ("gpu.yaml", "progress.yaml", "scheduler.yaml"):
                shutil.copy(os.path.join(advstack.ROOT, "rules", name), kw["rules.dir"])
        agent = {"scheduler.landing_bound": "2s", "poll.interval": "1s", **kw.pop("agent", {})}
        kw.setdefault("stop_grace", "200ms")
        super().__init__(agent=agent, **kw)
        self.mode(self.api.MODE_ACT)
        self.bad = None

    def fail(self, **env):
        """Submits a job whose attempt 0 will fail with a device error."""
        return self.submit("fault", **{"STEPS": 5, "STEP_S": 0.05, "LINGER": 0.2, **env})

    def restart_agent(self, failpoint=None):
        self.agent.kill()
        self.agent.start(failpoint=failpoint)
        if failpoint:
            self.wait_connected()

    def restart_server(self, failpoint=None):
        if self.cp.proc.poll() is None:
            self.cp.kill()
        self.cp.start(env={"ADVISOR_FAILPOINT": failpoint} if failpoint else None)
        self.wait_connected()

    def wait_server_dead(self, timeout=40):
        wait_for("advisord to die at its failpoint: " + self.cp.tail_log(), lambda: self.cp.proc.poll() is not None, timeout)

    def children(self):
        """Processes forked by the agent that have not started their program yet, as {pid: state}."""
        out = subprocess.run(["ps", "-o", "pid=,stat=,comm=", "--ppid", str(self.agent.proc.pid)], capture_output=True,
                             text=True).stdout
        rows = [line.split() for line in out.splitlines()]
        return {int(r[0]): r[1][0] for r in rows if r[2] == "advisor-agent" and r[1][0] != "Z"}

    def child(self, what="a child before its exec"):
        """The one child that stays before its exec."""
        before = {}

        def probe():
            nonlocal before
            now = self.children()
            same = [p for p in now if p in before]
            before = now
            return same[0] if same else None
        return wait_for(what, probe, 30, 0.15)

    def journal(self, job, agent=None):
        """The steps of the job by the agent's journal: [(verb, outcome record or None)]; and whether a hold is open."""
        steps, hold = {}, False
        with open(f"{(agent or self.agent).home}/state/journal") as f:
            for line in f:
                r = json.loads(line)
                if r.get("kind") == "intent" and r["job"] == job:
                    steps[r["seq"]] = [r["verb"], None]
                elif r.get("kind") == "outcome" and r["intent"] in steps:
                    steps[r["intent"]][1] = r
                elif r.get("kind") in ("hold", "hold_end") and r["job"] == job:
                    hold = r["kind"] == "hold"
        return [tuple(s) for s in steps.values()], hold

    def ctld(self, job, pattern):
        """What slurmctld's log says of the job that got the id last."""
        found = []
        with open(f"{self.lab.dir}/log/slurmctld.log", errors="replace") as f:
            for line in f:
                if re.search(rf"submit_batch_job: JobId={job}\b", line):
                    found = []
                if re.search(pattern, line) and re.search(rf"JobId={job}\b", line):
                    found.append(line.rstrip())
        return found

    def describe(self, job):
        steps, hold = self.journal(job)
        return (f"story:\n{self.story(job)}\nslurm: {self.lab.job(job)}\n" + "\n".join(self.writes(job)) +
                f"\njournal: {steps} hold={hold}\nagent: {self.agent.log()[-4000:]}\nadvisord: {self.cp.tail_log(20)}")

    def recovered(self, job, timeout=60):
        """The job was recovered, exactly once, by everybody's account."""
        api = self.api
        try:
            a = self.wait_advice(job, match=lambda a: a.status.disposition == api.DISPOSITION_CONVERGED,
                                 what="convergence", timeout=timeout)
            t = wait_for("the job's completion", lambda: (t := self.timeline(job)) and
                         t.attempts[0].milestones.HasField("job_completed") and t, 40)
            j = self.lab.job(job)
            # Slurm's account
            assert j["state"] == "COMPLETED" and j["restarts"] == 1, j
            bad = t.attempts[0].nodes
            assert j["excluded"] == bad and t.attempts[1].nodes != bad, (j, bad)
            for what, pattern in (("requeue", "Requeuing"), ("exclusion set", "setting exc_nodes"), ("release", "release hold")):
                lines = self.ctld(job, pattern)
                assert len(lines) == 1, f"not one {what}: {lines}"
            # the control plane's account
            assert a.generation == 1 and a.desired_state == api.DESIRED_STATE_RESTARTED, a
            assert list(a.exclude_nodes) == [bad], a
            assert len(t.advice) == 1 and len(t.attempts) == 2, (t.advice, t.attempts)
            assert sum(x.status == api.ANOMALY_STATUS_CONFIRMED for x in t.anomalies) == 1, t.anomalies
            for verb in (api.VERB_PRESERVE, api.VERB_CONSTRAIN, api.VERB_RELEASE):
                done = [x for x in t.actions if x.verb == verb and x.observed == api.OBSERVED_YES]
                sent = [x for x in t.actions if x.verb == verb and x.command == api.COMMAND_RESULT_ACCEPTED]
                assert len(sent) <= 1 and len(done) <= 1, t.actions
            # of this agent; another one that is frozen cannot tell
            wait_for("each action's outcome", lambda: all(x.HasField("outcome_time") for x in self.timeline(job).actions
                                                          if x.journal_id == self.agent.journal_id()), 10)
            # the agent's account
            steps, hold = wait_for("the journal to be closed", lambda: (r := self.journal(job)) and
                                   all(s[1] for s in r[0]) and r, 10)
            assert not hold, "a hold is left in the journal"
            for verb in STEPS:
                assert sum(s[0] == verb and s[1]["command"] == "accepted" for s in steps) <= 1, steps
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.describe(job)}")
        self.sane()

    def sane(self):
        """No report of a sanitizer in either log."""
        for path in (self.agent.log_path, f"{self.cp.dir}/advisord.log"):
            with open(path, errors="replace") as f:
                text = f.read()
            for word in ("AddressSanitizer", "LeakSanitizer", "runtime error:"):
                assert word not in text, f"{path}: {text[text.index(word) - 200:][:3000]}"


def frozen(stack):
    """slurmctld stopped within the block."""
    class Frozen:
        def __enter__(self):
            stack.lab.ctl("freeze", "ctld")

        def __exit__(self, *exc):
            stack.lab.ctl("thaw", "ctld")
    return Frozen()


def named(name, f):
    f.__name__ = re.sub(r"[^a-z0-9_]", "_", name)
    return f


def agent_point(s, point, step):
    """The agent is killed at the point within the step; the next run finishes the work."""
    def case():
        s.restart_agent(spec(point, "kill", STEPS[step]))
        job = s.fail()
        s.agent.wait_dead()
        s.agent.start()
        s.recovered(job)
    return named(f"agent_killed_at_{point}__{step}", case)


def child_killed(s, step):
    """The command's process dies before its program runs; the agent lives."""
    def case():
        s.restart_agent(spec("spawn.child_before_exec", "kill", STEPS[step]))
        job = s.fail()
        s.recovered(job)
        steps, _ = s.journal(job)
        assert [x[0] for x in steps].count(step) == 2, f"no second try: {steps}"
        assert s.agent.alive()
    return named(f"child_killed_before_exec__{step}", case)


def child_paused(s, step):
    """The agent is killed while the command's process stands before its exec: that command never runs."""
    def case():
        go = f"{s.lab.dir}/go-{step}"
        s.restart_agent(spec("spawn.child_before_exec", f"pause:{go}", STEPS[step]))
        job = s.fail()
        child = s.child()
        s.agent.kill()
        open(go, "w").close()
        wait_for("the child to die with its agent", lambda: not os.path.exists(f"/proc/{child}"), 5)
        s.agent.start()
        s.recovered(job)
    return named(f"agent_while_child_before_exec__{step}", case)


def command_hangs(s, step, thaw_first):
    """slurmctld hangs, the command has been sent, the agent dies: the command may land when slurmctld goes on."""
    def case():
        go = f"{s.lab.dir}/go-{step}-{thaw_first}"
        s.restart_agent(spec("spawn.child_before_exec", f"pause:{go}", STEPS[step]))
        job = s.fail()
        child = s.child()
        with frozen(s):
            open(go, "w").close()
            wait_for("the command to be sent", lambda: os.path.exists(f"/proc/{child}/exe") and
                     "advisor-agent" not in os.readlink(f"/proc/{child}/exe"), 5)
            time.sleep(1)  # it connects and writes its request
            s.agent.kill()
            if not thaw_first:
                s.agent.start()
                time.sleep(2)  # the new run meets a scheduler that does not answer
        if thaw_first:
            s.agent.start()
        s.recovered(job)
        # The late one was not repeated: what it did was found.
        steps, _ = s.journal(job)
        assert [x[0] for x in steps].count(step) == 1, steps
    return named(f"agent_while_{step}_hangs__{'thawed_first' if thaw_first else 'restarted_first'}", case)


def server_point(s, point, what, count):
    """advisord is killed at the point of the commit that stores the thing for the @count-th time."""
    def case():
        s.restart_server(f"turn.record_{what}=arm:{point}@{count};{point}=kill")
        job = s.fail()
        s.wait_server_dead()
        s.cp.start()
        s.recovered(job)
    return named(f"server_killed_{point}__{what}_{count}", case)


def both_point(s, point, step, agent_first):
    """The agent is killed at the point, and advisord right after it; they come back in either order."""
    def case():
        s.restart_agent(spec(point, "kill", STEPS[step]))
        job = s.fail()
        s.agent.wait_dead()
        s.cp.kill()
        if agent_first:
            s.agent.start()
            time.sleep(1)  # it dials in vain
            s.cp.start()
        else:
            s.cp.start()
            s.agent.start()
        s.recovered(job)
    return named(f"both_killed_at_{point}__{step}__{'agent' if agent_first else 'server'}_back_first", case)


def clean_end(s):
    def case():
        for a in s.agents:
            a.stop()
        s.cp.stop()
        s.sane()
        s.stop()
    return named("stops_clean", case)
