#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose end nobody saw, because slurmctld had forgotten them by then: accounting tells, and nothing is done.
And how closely, and how much of, the scheduler is looked at."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

# An ended job is forgotten within some ten seconds. The agent looks once in ten minutes, and when it connects.
s = advstack.Stack(sets=("MinJobAge=5",), agent={"poll.interval": "10m"}, **{"agent.lease": "20s"})
api = s.api
s.mode(api.MODE_ACT)
HOME = f"{s.lab.dir}/home/labuser1"


def attempt(job):
    t = s.timeline(job)
    return t.attempts[0] if t and t.attempts else None


def waits(name, code):
    """A job that ends by itself, with @code, once the file is there."""
    return s.lab.sbatch("--requeue", '--comment={"advisor":{"max_restarts":1}}', f"--output={HOME}/{name}-%j.log",
                        wrap=f"echo begun; while [ ! -e {HOME}/{name} ]; do sleep 0.1; done; exit {code}")


def go(*names):
    for n in names:
        s.lab.exec("touch", f"{HOME}/{n}", user="labuser1")


def known_to_run(*jobs):
    for j in jobs:
        s.lab.wait_state(j, "RUNNING", timeout=60)
    if s.agent.alive():
        look_again()
    else:
        s.agent.start()
    s.wait_connected()
    for j in jobs:
        wait_for(f"job {j} to be known: {s.agent.log()[-2000:]}",
                 lambda j=j: (a := attempt(j)) and a.state == api.JOB_STATE_RUNNING, 60)


def look_again():
    """A new session begins with a look."""
    s.cp.stop()
    s.cp.start()
    s.wait_connected()


def forgotten(*jobs):
    wait_for("slurmctld to forget them", lambda: not any(s.lab.job(j) for j in jobs), 120, 0.5)


def ends(job, state, timeout=60):
    try:
        return wait_for(f"the end of job {job}", lambda: (a := attempt(job)) and a.state == state and a, timeout)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{s.story(job)}\n{s.agent.log()[-4000:]}")


def untouched(*jobs):
    for j in jobs:
        assert not s.timeline(j).actions and not s.requeues(j), s.timeline(j)


def while_the_agent_was_away():
    """One of each end. The agent knew them as running, was away until they were forgotten, and comes back."""
    failed = s.submit("fault", STEPS=2, STEP_S=0.05, UNTIL=f"{HOME}/a-failed")
    completed, cancelled = waits("a-completed", 0), waits("a-cancelled", 0)
    known_to_run(failed, completed, cancelled)
    wait_for("the fault to be heard", lambda: s.timeline(failed).anomalies, 60)
    s.agent.kill()
    go("a-failed", "a-completed")
    s.lab.exec("scancel", cancelled, user="labuser1")
    forgotten(failed, completed, cancelled)
    s.agent.start()
    s.wait_connected()
    end = ends(failed, api.JOB_STATE_FAILED)
    assert end.nodes and end.exit_code == 1 and end.end_time.seconds, end
    a = s.wait_advice(failed)
    assert a.desired_state == api.DESIRED_STATE_NO_ACTION and "job_forgotten" in [r.code for r in a.reasons], a
    ends(completed, api.JOB_STATE_COMPLETED)
    end = ends(cancelled, api.JOB_STATE_CANCELLED)
    assert end.state_raw.startswith("CANCELLED by "), end
    untouched(failed, completed, cancelled)


def between_two_looks():
    job = waits("b-failed", 3)
    known_to_run(job)
    go("b-failed")
    forgotten(job)
    look_again()
    end = ends(job, api.JOB_STATE_FAILED)
    assert end.exit_code == 3, end
    untouched(job)


def accounting_is_away_too():
    """Its end stays unknown, and the job is not taken for ended, until accounting is back."""
    job = waits("c-failed", 4)
    known_to_run(job)
    go("c-failed")
    forgotten(job)
    s.lab.ctl("stop", "dbd")
    try:
        look_again()
        s.agent.wait_log("accounting does not say how vanished jobs ended", 60)
        assert attempt(job).state == api.JOB_STATE_RUNNING, attempt(job)
    finally:
        s.lab.ctl("start", "dbd")
    assert ends(job, api.JOB_STATE_FAILED, 120).exit_code == 4
    untouched(job)


def many_in_focus_are_looked_at_together():
    """Their ends are seen long before the next poll, by looks at all jobs."""
    jobs = [s.submit("fault", STEPS=2, STEP_S=0.05, UNTIL=f"{HOME}/d-failed", comment="{}") for _ in range(6)]
    known_to_run(*jobs)
    for j in jobs:
        wait_for(f"the fault of {j} to be heard", lambda j=j: s.timeline(j).anomalies, 60)
    s.lab.ctl("conf", "MinJobAge=300")
    go("d-failed")
    for j in jobs:
        assert ends(j, api.JOB_STATE_FAILED).exit_code == 1


def a_launch_that_fails_blinds_nobody():
    """slurmctld requeues it into a hold of its own, and counts its launches. All other jobs are seen as ever."""
    prolog, stop = f"{s.lab.dir}/prolog", f"{s.lab.dir}/no-launch"
    with open(prolog, "w") as f:
        f.write(f"#!/bin/sh\n[ ! -e {stop} ]\n")
    os.chmod(prolog, 0o755)
    s.lab.ctl("conf", f"Prolog={prolog}")
    open(stop, "w").close()
    job = waits("e-never", 0)
    wait_for(f"its launch to fail: {s.lab.job(job)}", lambda: (j := s.lab.job(job)) and j["state"] == "PENDING" and "held" in j["reason"],
             60)
    os.unlink(stop)
    drained = wait_for("its node to be drained",
                       lambda: s.lab.exec("sinfo", "-h", "-N", "-t", "drain", "-o", "%N").split(), 60)
    for n in set(drained):
        s.lab.exec("scontrol", "update", f"NodeName={n}", "State=RESUME")
    other = waits("e-runs", 0)
    known_to_run(other)
    t = s.timeline(job)
    assert t.attempts[-1].state == api.JOB_STATE_PENDING and not t.actions and not t.advice, t
    go("e-runs")


def clean_end():
    s.stop()


advstack.run([while_the_agent_was_away, between_two_looks, accounting_is_away_too, many_in_focus_are_looked_at_together,
              a_launch_that_fails_blinds_nobody,
              clean_end])
