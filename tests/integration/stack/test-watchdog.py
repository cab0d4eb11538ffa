#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""advisor-watchdog on real Slurm: a job waits in our hold, and the agent is dead, frozen, or killed together with the
watchdog. The hold ends once and as recorded; a person's job, one that waits for a person's word, and one whose hold is in
force are left alone; in observe mode nothing is written."""
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

AHEAD = 7200  # s: any hold is past its expiry then
s = advcrash.CrashStack(few_rules=True, agent={"scheduler.landing_bound": "2s", "scheduler.command_deadline": "4s"})
api = s.api
CEILING = f"{s.lab.dir}/ceiling.yaml"
s.agent.config["ceiling.path"] = CEILING
STATE = f"{s.agent.home}/state"


def ceiling(text):
    with open(CEILING + ".new", "w") as f:
        f.write(text)
    os.chmod(CEILING + ".new", 0o644)
    os.rename(CEILING + ".new", CEILING)


class Watchdog:
    """advisor-watchdog as the agent's user, beside the agent's state folder."""

    def __init__(self):
        self.bin = shutil.copy(os.environ["ADVISOR_WATCHDOG"], f"{s.lab.dir}/bin/advisor-watchdog")
        os.chmod(self.bin, 0o755)
        self.log_path = f"{s.lab.dir}/log/watchdog.log"
        self.offset = f"{s.agent.home}/watchdog-offset"
        self.proc = None

    def clock(self, seconds):
        with open(self.offset + ".new", "w") as f:
            f.write(str(seconds))
        os.chmod(self.offset + ".new", 0o644)
        os.rename(self.offset + ".new", self.offset)

    def start(self, ahead=0, failpoint=None, **config):
        self.clock(ahead)
        path = f"{s.agent.home}/watchdog.yaml"
        values = {"state.dir": STATE, "state.allow_volatile": "true", "ceiling.path": CEILING, "poll.interval": "100ms",
                  "grace.agent_gone": "500ms", "grace.agent_there": "3s", "ends_per_minute": "60",
                  "scheduler.landing_bound": "2s", "scheduler.command_deadline": "4s", "log.level": "debug",
                  **({"scheduler.bin_dir": f"{s.lab.dir}/bin"} if s.lab.suite else {}), **config}
        with open(path, "w") as f:
            f.writelines(f"{k}: {v}\n" for k, v in values.items())
        os.chmod(path, 0o644)
        env = {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")}
        env.update(SLURM_CONF=f"{s.lab.dir}/etc/slurm.conf", HOME=s.agent.home, USER="laboper", ADVISOR_WALL_OFFSET=self.offset)
        if failpoint:
            env["ADVISOR_FAILPOINT"] = failpoint
        self.mark = os.path.getsize(self.log_path) if os.path.exists(self.log_path) else 0
        pw = pwd.getpwnam("laboper")
        with open(self.log_path, "ab") as log:
            self.proc = subprocess.Popen([self.bin, "--config", path], cwd=s.agent.home, env=env, stdout=log, stderr=log,
                                         stdin=subprocess.DEVNULL, user=pw.pw_uid, group=pw.pw_gid, extra_groups=[])
        return self

    def log(self):
        with open(self.log_path, errors="replace") as f:
            f.seek(self.mark)
            return f.read()

    def said(self, job, verdict, why="", timeout=30):
        def probe():
            return any(f"job={job} " in line and f"verdict={verdict} " in line and why in line for line in
                       self.log().replace('verdict="', "verdict=").replace('" why', " why").splitlines())
        try:
            wait_for(f"verdict {verdict} ({why}) on job {job}", probe, timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log()[-3000:]}\n{s.describe(job)}")

    def steps(self, job):
        """[(verb, outcome record or None)] of its own journal."""
        found = {}
        with open(f"{STATE}/watchdog/journal") as f:
            for line in f:
                r = json.loads(line)
                if r.get("kind") == "intent" and r["job"] == job:
                    found[r["seq"]] = [r["verb"], None]
                elif r.get("kind") == "outcome" and r["intent"] in found:
                    found[r["intent"]][1] = r
        return [tuple(x) for x in found.values()]

    def kill(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
        if self.proc:
            self.proc.wait()

    def wait_dead(self):
        wait_for("the watchdog to die at its failpoint: " + self.log()[-800:], lambda: self.proc.poll() is not None, 40)

    def stop(self):
        zombies = subprocess.run(["ps", "-o", "stat=", "--ppid", str(self.proc.pid)], capture_output=True, text=True).stdout
        self.proc.send_signal(signal.SIGTERM)
        rc = self.proc.wait(30)
        assert rc == 0, f"the watchdog ended with {rc}: {self.log()[-3000:]}"
        assert "Z" not in zombies, f"zombie children: {zombies}"
        for word in ("AddressSanitizer", "LeakSanitizer", "runtime error:"):
            assert word not in self.log(), self.log()[-3000:]


wd = Watchdog()


def held(mode=None):
    """A job in our hold, its agent dead."""
    ceiling("mode: act\n")
    s.mode(api.MODE_ACT)
    s.restart_agent("agent.after_outcome=kill@1")
    job = s.fail()
    s.agent.wait_dead()
    j = s.lab.job(job)
    assert j["restarts"] == 1 and j["state"] == "PENDING" and s.journal(job)[1], s.describe(job)
    if mode:
        s.mode(mode)
    return job


def is_held(job):
    j = s.lab.job(job)
    return j["state"] == "PENDING" and j["priority"] == "0"


def released(job):
    """Once, by everybody's account: slurmctld's, the watchdog's."""
    try:
        wait_for("the release", lambda: not is_held(job), 40)
        wait_for("its outcome", lambda: all(x[1] for x in wd.steps(job)), 20)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{wd.log()[-4000:]}\n{s.describe(job)}")
    released_once(job)


def released_once(job):
    lines = s.ctld(job, "release hold")
    assert len(lines) == 1, f"not one release: {lines}\n{wd.log()[-3000:]}"
    assert s.lab.job(job)["restarts"] == 1, s.lab.job(job)


def agent_takes_note(job):
    """The agent is back, or goes on: the hold ends in its journal too, and nothing is done again."""
    if not s.agent.alive():
        s.agent.start()
    wait_for("the end of the hold in the agent's journal: " + s.agent.log()[-2000:], lambda: not s.journal(job)[1], 40)
    released_once(job)
    done(job)


def done(*jobs):
    """Nothing of them is left to do for whoever comes next."""
    if wd.proc.poll() is None:
        wd.stop()
    s.lab.exec("scancel", *jobs)
    ceiling("mode: act\n")
    if not s.agent.alive():
        s.agent.start()
    for job in jobs:
        s.wait_advice(job, match=lambda a: a.actionability == api.ACTIONABILITY_SHADOW or
                      a.status.disposition not in (api.DISPOSITION_UNSPECIFIED, api.DISPOSITION_PENDING), what="its end")
        wait_for("the end of the hold", lambda job=job: not s.journal(job)[1] and all(x[1] for x in s.journal(job)[0]), 30)
    s.agent.kill()
    s.sane()


def in_force_then_expired():
    """What is in force is kept, also when the clock jumps; expired, it ends after the grace."""
    job = held()
    wd.start()
    wd.said(job, "keep", "in force")
    wd.clock(AHEAD)
    time.sleep(1.5)  # more than the grace: time in which a wrong release would come
    assert is_held(job) and not wd.steps(job), wd.log()
    wd.stop()
    wd.start(ahead=AHEAD, **{"grace.agent_gone": "2s"})
    wd.said(job, "wait", "may come back")
    assert is_held(job)
    released(job)
    assert [v for v, _ in wd.steps(job)] == ["release"], wd.steps(job)
    wd.said(job, "ended", "not taken note")
    agent_takes_note(job)


def observes_only():
    """By its own setting and by the site's word nothing is written, as slurmctld's log shows."""
    job = held()
    before = s.writes(job)
    wd.start(ahead=AHEAD, observe="true")
    wd.said(job, "would release")
    wd.stop()
    ceiling("mode: act\nwatchdog: observe\n")
    wd.start(ahead=AHEAD)
    wd.said(job, "would release")
    ceiling("mode: act\nwatchdog: off\n")
    wd.said(job, "keep", "has the watchdog off")
    ceiling("mode: nonsense\n")
    wd.said(job, "keep", "cannot be used")
    assert is_held(job) and s.writes(job) == before and not wd.steps(job), (before, s.writes(job))
    done(job)


def ceiling_lowered_while_the_scheduler_is_away():
    job = held()
    wd.start()
    wd.said(job, "keep", "in force")
    with advcrash.frozen(s):
        ceiling("mode: observe\n")
        wait_for("it to notice: " + wd.log()[-1000:], lambda: "nothing is concluded" in wd.log(), 40)
        assert not wd.steps(job), wd.log()
    released(job)
    agent_takes_note(job)


def a_persons_word_is_awaited_then_mode_lowered():
    """Awaiting approval is not released, whatever the time; lowered to OFF, it is, when the agent dies over it."""
    job = held(api.MODE_APPROVE)
    s.agent.start()
    wait_for("the agent to write down that it waits", lambda: records(job)[-1:] == [(2, 3)], 30)
    s.agent.kill()
    wd.start(ahead=AHEAD)
    wd.said(job, "keep", "word is awaited")
    s.agent.start(failpoint="agent.after_intent=kill")
    s.wait_connected()
    s.mode(api.MODE_OFF)
    s.agent.wait_dead()
    released(job)
    agent_takes_note(job)


def records(job):
    """(want, mode) of the job's hold records in the agent's journal."""
    out = []
    with open(f"{STATE}/journal") as f:
        for line in f:
            r = json.loads(line) if line.endswith("\n") else {}
            if r.get("kind") == "hold" and r["job"] == job:
                out.append((r["want"], r["mode"]))
    return out


def agent_frozen_then_thawed():
    """A frozen agent has the lock of its folder: it is waited for longer, and then goes on from what was done."""
    job = held(api.MODE_APPROVE)
    s.agent.start()
    s.wait_connected()
    wait_for("the agent to write down that it waits", lambda: records(job)[-1:] == [(2, 3)], 30)
    s.agent.signal(signal.SIGSTOP)
    wd.start()
    wd.said(job, "keep", "in force")
    ceiling("mode: observe\n")
    wd.said(job, "wait", "an agent is there")
    assert is_held(job), wd.log()
    released(job)
    s.agent.signal(signal.SIGCONT)
    agent_takes_note(job)


def a_person_took_over():
    """By the comment; then by a hold of his own after a release. Neither is touched."""
    job = held()
    s.lab.exec("scontrol", "update", f"JobId={job}", "Comment=mine", user="labuser1")
    before = s.writes(job)
    wd.start(ahead=AHEAD)
    wd.said(job, "leave", "comment")
    assert is_held(job) and s.writes(job) == before and not wd.steps(job)
    wd.stop()
    s.lab.exec("scontrol", "release", job, user="labuser1")
    s.lab.exec("scontrol", "hold", job, user="labuser1")
    before = s.writes(job)
    wd.start(ahead=AHEAD)
    wd.said(job, "leave", "a person holds")
    assert is_held(job) and s.writes(job) == before and not wd.steps(job)
    done(job)


def both_killed_before_the_command():
    """The intent is written, the command was never sent: the next watchdog waits, looks and does it."""
    job = held()
    wd.start(ahead=AHEAD, failpoint="watchdog.after_intent=kill")
    wd.wait_dead()
    assert is_held(job) and [x[1] for x in wd.steps(job)] == [None], wd.steps(job)
    wd.start(ahead=AHEAD)
    released(job)
    assert [(v, o["observed"]) for v, o in wd.steps(job)] == [("release", "no"), ("release", "yes")], wd.steps(job)
    agent_takes_note(job)


def both_killed_after_the_command():
    """The outcome is not written: the agent that comes back finds what was done."""
    job = held()
    wd.start(ahead=AHEAD, failpoint="watchdog.before_outcome=kill")
    wd.wait_dead()
    assert not is_held(job) and [x[1] for x in wd.steps(job)] == [None], wd.steps(job)
    agent_takes_note(job)


def watchdog_comes_back_alone():
    """The same, and the watchdog comes back first: it settles what was done, and does nothing."""
    job = held()
    wd.start(ahead=AHEAD, failpoint="watchdog.before_outcome=kill")
    wd.wait_dead()
    wd.start(ahead=AHEAD)
    released(job)
    assert [(v, o["observed"]) for v, o in wd.steps(job)] == [("release", "yes")], wd.steps(job)
    agent_takes_note(job)


ceiling("mode: act\n")
advstack.run([in_force_then_expired, observes_only, ceiling_lowered_while_the_scheduler_is_away,
              a_persons_word_is_awaited_then_mode_lowered, agent_frozen_then_thawed, a_person_took_over,
              both_killed_before_the_command, both_killed_after_the_command, watchdog_comes_back_alone, advcrash.clean_end(s)])
