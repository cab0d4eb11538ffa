# SPDX-License-Identifier: Apache-2.0
"""What the contract suite runs on: a real control plane, a relay before it, an agent behind it, and the agent's scheduler.

Ours has a real Slurm; the other one has the small scheduler of scheduler.py. To the suite both look the same."""
import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

import relay as relays  # noqa: E402
import scheduler as schedulers  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CONTROL = {"agent.lease": "12s", "agent.heartbeat_interval": "300ms", "agent.silence_timeout": "2s", "detect.log_settle": "100ms",
           "detect.fallback_delay": "2s", "decide.shared_cause_window": "1s", "stop_grace": "200ms"}
BOUND_MS, DEADLINE_MS = 2000, 3000  # landing bound and command deadline of both agents
SILENCE_S = 2.0


def size_of(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


class Site:
    """Common part; a kind adds the scheduler and how its agent is run."""

    def __init__(self, api, cp, cluster):
        self.api, self.cp, self.cluster = api, cp, cluster
        self.relay = relays.Relay(api, cp, cluster)

    def admin(self):
        return self.api.FleetServiceStub(self.cp.channel("admin:root"))

    def mode(self, mode):
        self.admin().SetClusterMode(self.api.SetClusterModeRequest(name=f"clusters/{self.cluster}", mode=mode), timeout=10)

    def view(self):
        return self.admin().GetCluster(self.api.GetClusterRequest(name=f"clusters/{self.cluster}"), timeout=10).cluster

    def timeline(self, job, restarts=0):
        return advstack.timeline(self.api, self.cp, self.cluster, job, restarts)

    def attempt(self, job, restarts=0):
        t = self.timeline(job)
        return next((a for a in t.attempts if a.index == restarts), None) if t else None

    def advice(self, job, restarts=0):
        t = self.timeline(job)
        return next((a for a in t.advice if a.attempt.restart_count == restarts), None) if t else None

    def explain(self, job=None):
        t = self.timeline(job) if job else None
        story = "\n".join(f"{e.attempt_index} {e.kind}: {e.text}" for e in t.entries) if t else ""
        return (f"story:\n{story}\nscheduler: {self.job(job) if job else ''} {self.writes(job) if job else ''}\n"
                f"cluster: {self.view()}\nagent:\n{self.agent.log()[-4000:]}\nadvisord: {self.cp.tail_log(15)}")

    def until(self, what, probe, job=None, timeout=40):
        try:
            return wait_for(what, probe, timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.explain(job)}") from None

    def connected(self, timeout=60):
        def probe():
            c = self.view()
            return c.agent_state == self.api.AGENT_STATE_CONNECTED and c.mode_effective and c
        return self.until("the cluster to be connected", probe, timeout=timeout)

    def converged(self, job, timeout=60):
        """The job was recovered once, by everybody's account."""
        api = self.api
        a = self.until("convergence", lambda: (a := self.advice(job)) and
                       a.status.disposition == api.DISPOSITION_CONVERGED and a, job, timeout)
        self.until("the job's completion", lambda: self.job(job)["state"] == "COMPLETED", job)
        bad = self.attempt(job).nodes
        j = self.job(job)
        assert j["restarts"] == 1 and j["excluded"] == bad, (j, bad)
        assert self.writes(job) == ["preserve", "constrain", "release"], self.explain(job)
        return a

    def restart_control(self):
        self.cp.stop()
        self.cp.start()

    def _run_agent(self, argv, log, env=None, **kw):
        with open(log, "ab") as f:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=f, stderr=f, env={**os.environ, **(env or {})}, **kw)


class PeerAgent:
    """The Python agent in a process of its own."""

    def __init__(self, site, name, **config):
        self.site, self.name, self.proc, self.mark = site, name, None, 0
        self.dir = f"{site.dir}/{name}"
        os.makedirs(self.dir)
        cert, key = site.cp.ca.issue(f"{name}-cert", f"URI:advisor:agent:{site.cluster}")
        self.config = {"cluster": site.cluster, "target": f"127.0.0.1:{site.relay.port}", "ca": site.cp.ca.cert, "cert": cert,
                       "key": key, "state_dir": f"{self.dir}/state", "scheduler": site.scheduler.path, "poll_ms": 500,
                       "landing_bound_ms": BOUND_MS, "command_deadline_ms": DEADLINE_MS, "backoff_max_ms": 1000,
                       "ceiling": f"{self.dir}/ceiling", **config}
        self.ceiling("act")

    def ceiling(self, mode):
        with open(f"{self.dir}/ceiling.new", "w") as f:
            f.write(mode + "\n")
        os.rename(f"{self.dir}/ceiling.new", f"{self.dir}/ceiling")

    def start(self, die_at=None, **config):
        with open(f"{self.dir}/config.json", "w") as f:
            json.dump({**self.config, **config, "die_at": die_at}, f)
        self.mark = os.path.getsize(f"{self.dir}/log") if os.path.exists(f"{self.dir}/log") else 0
        self.proc = self.site._run_agent(["/usr/bin/python3", f"{HERE}/agent.py", f"{self.dir}/config.json"], f"{self.dir}/log")
        return self

    def log(self):
        with open(f"{self.dir}/log", errors="replace") as f:
            f.seek(self.mark)
            return f.read()

    def journal_id(self):
        with open(f"{self.dir}/state/journal") as f:
            return json.loads(f.readline())["id"]

    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def signal(self, sig):
        self.proc.send_signal(sig)

    def kill(self):
        if self.alive():
            self.proc.kill()
        if self.proc:
            self.proc.wait()

    def wait_dead(self):
        wait_for("the agent to die: " + self.log()[-2000:], lambda: self.proc.poll() is not None, 40)

    def stop(self):
        if not self.alive():
            return
        self.proc.send_signal(signal.SIGTERM)
        rc = self.proc.wait(20)
        assert rc == 0 and "Traceback" not in self.log(), self.log()[-3000:]


class PeerSite(Site):
    """The Python agent and its scheduler."""

    def __init__(self, **control):
        self.dir = tempfile.mkdtemp(prefix="advpeer-")
        atexit.register(shutil.rmtree, self.dir, ignore_errors=True)
        cp = advstack.Advisord(**{**CONTROL, **control})
        super().__init__(advstack.stubs(), cp, "peer")
        self.scheduler = schedulers.Scheduler(self.dir)
        self.admin().CreateCluster(self.api.CreateClusterRequest(cluster_id=self.cluster), timeout=10)
        self.agents = []
        self.agent = self.another("first")

    def another(self, name, **config):
        self.agents.append(PeerAgent(self, name, **config))
        return self.agents[-1]

    def fail(self, seen_by=None):
        return self.scheduler.submit("fault")

    def user_fault(self):
        return self.scheduler.submit("importerror")

    def weak_fault(self):
        return self.scheduler.submit("weak")

    def say(self, job, text):
        """One more line in the log of attempt 0."""
        with open(f"{self.dir}/out-{job}-0.log", "a") as f:
            f.write(text + "\n")

    def endless(self):
        return self.scheduler.submit("run", steps=100000)

    def noisy(self, size):
        """A job that writes that many bytes as fast as it can, and then waits; returns (job, what ends it)."""
        until = f"{self.dir}/enough-{len(self.scheduler.jobs)}"
        return self.scheduler.submit("noisy", bytes=size, until=until, steps=0), until

    def written(self, job):
        return size_of(self.scheduler.view(job)["stdout"])

    def end(self, job):
        self.scheduler.cancel(job)

    def job(self, job):
        v = self.scheduler.view(job)
        return {"state": v["state"], "restarts": v["restarts"], "excluded": ",".join(v["excluded"])}

    def writes(self, job=None):
        return [r[1] for r in self.scheduler.record if job is None or r[2] == job]

    def few_logs(self, agent):
        """An agent that reads logs slowly and gives up what lies too far behind."""
        agent.config.update(max_lag_bytes=65536, log_rate=300000)

    def much_logs(self, agent):
        """One that reads as fast as it can."""
        agent.config.update(max_lag_bytes=16 << 20, log_rate=1 << 30)

    def close(self):
        for a in self.agents:
            a.stop()
        self.relay.close()
        self.cp.stop()


class OurAgent(advstack.Agent):
    """advisor-agent, with the words of the suite."""
    POINTS = {"after_intent": "agent.after_intent=kill@1", "before_outcome": "agent.before_outcome=kill@1",
              "after_outcome": "agent.after_outcome=kill@1"}

    def start(self, die_at=None, **config):
        self.config.update(config)
        return super().start(failpoint=self.POINTS[die_at] if die_at else None)

    def journal_text(self):
        with open(f"{self.home}/state/journal") as f:
            return f.read()

    def ceiling(self, mode):
        path = self.config["ceiling.path"]
        with open(path + ".new", "w") as f:
            f.write(f"mode: {mode}\n")
        os.chmod(path + ".new", 0o644)
        os.rename(path + ".new", path)


class OurSite(Site):
    """advisor-agent on a real Slurm."""

    def __init__(self, **control):
        self.stack = advcrash.CrashStack(**{**CONTROL, **control})
        super().__init__(self.stack.api, self.stack.cp, self.stack.cluster)
        self.mode(self.api.MODE_OBSERVE)
        self.lab = self.stack.lab
        self.stack.agents.clear()
        self.agent = self.stack.agent = self.another("first")
        self.agents = self.stack.agents

    def another(self, name, **config):
        config = {"control_plane.target": f"127.0.0.1:{self.relay.port}", "poll.interval": "1s",
                  "scheduler.landing_bound": f"{BOUND_MS}ms", "scheduler.command_deadline": f"{DEADLINE_MS}ms",
                  "control_plane.backoff_max": "1s", "ceiling.path": f"{self.lab.dir}/ceiling-{name}", **config}
        a = OurAgent(self.stack, name=name, **config)
        a.ceiling("act")
        return a

    def fail(self, seen_by=None):
        """A job that fails, not before that agent saw it run: one that did not cannot tell later which job the id means."""
        until = f"{self.lab.dir}/seen"
        if not seen_by:
            return self.stack.fail()
        job = self.stack.fail(UNTIL=until)
        self.until("the agent to see the job run", lambda: f'"job":"{job}"' in seen_by.journal_text())
        with open(until, "w"):
            pass
        return job

    def user_fault(self):
        return self.stack.submit("importerror")

    def weak_fault(self):
        return self.stack.submit("weak", STEPS=5, STEP_S=0.05, LINGER=0.2)

    def say(self, job, text):
        with open(f"{self.lab.dir}/home/labuser1/out-{job}.log", "a") as f:
            f.write(text + "\n")

    def endless(self):
        return self.stack.submit("run", STEPS=100000)

    def noisy(self, size):
        home = f"{self.lab.dir}/home/labuser1"
        self.n_noisy = getattr(self, "n_noisy", 0) + 1
        until, script = f"{self.lab.dir}/enough-{self.n_noisy}", f"{home}/noisy-{self.n_noisy}.sh"
        with open(script, "w") as f:
            f.write("#!/bin/bash\n/usr/bin/python3 -c 'import sys; b = b\"noise \" * 16 + b\"abc\\n\"\n"
                    f"n = {size}\nwhile n > 0: n -= sys.stdout.buffer.write((b * 655)[:n])'\n"
                    f"while [ ! -e {until} ]; do sleep 0.1; done\n")
        os.chmod(script, 0o755)
        job = self.lab.exec("sbatch", "--parsable", f"--output={home}/noisy-%j.log", script, user="labuser1")
        return job, until

    def written(self, job):
        return size_of(f"{self.lab.dir}/home/labuser1/noisy-{job}.log")

    def end(self, job):
        self.lab.exec("scancel", job)

    def job(self, job):
        j = self.lab.job(job)
        return {"state": j.get("state"), "restarts": j.get("restarts"), "excluded": j.get("excluded", "").replace("(null)", "")}

    def writes(self, job=None):
        words = (("Requeuing", "preserve"), ("setting exc_nodes", "constrain"), ("release hold", "release"))
        out = []
        with open(f"{self.lab.dir}/log/slurmctld.log", errors="replace") as f:
            for line in f:
                if job is None or re.search(rf"JobId={job}\b", line):
                    out += [verb for word, verb in words if word in line]
        return out

    def few_logs(self, agent):
        agent.config.update({"tail.max_lag": "64KiB", "tail.rate": "256KiB"})

    def much_logs(self, agent):
        agent.config.update({"tail.max_lag": "16MiB", "tail.rate": "1GiB", "tail.buffer": "32MiB"})

    def close(self):
        for a in self.agents:
            a.stop()
        self.stack.sane()
        self.relay.close()
        self.stack.stop()
