#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two clusters under one control plane, with Slurm of two releases where another one is there (ADVISOR_LAB_SUITE names the second
cluster's): what befalls one does not disturb the other."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
SUITE = os.environ.pop("ADVISOR_LAB_SUITE", None)
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

api = advstack.stubs()
one = advstack.Stack(nodes=3, api=api, mode=api.MODE_ACT)
two = advstack.Stack(nodes=3, api=api, mode=api.MODE_ACT, cluster="other", beside=one, suite=SUITE)
DONE = api.DISPOSITION_CONVERGED


def both_run():
    for s in (one, two):
        if not s.agent.alive():
            s.agent.start()
    for s in (one, two):
        s.wait_connected()


def recovers(s):
    job = s.submit("fault", STEPS=600)
    a = s.wait_advice(job, match=lambda a: a.status.disposition == DONE, what="convergence", timeout=120)
    j = s.lab.wait_state(job, "RUNNING", timeout=60)
    assert j["restarts"] == 1 and j["excluded"] == a.exclude_nodes[0], j
    return job


def the_same_number_means_two_jobs():
    both_run()
    print(f"# Slurm {one.lab.exec('squeue', '--version')} and {two.lab.exec('squeue', '--version')}")
    a, b = one.submit("well", STEPS=600), two.submit("well", STEPS=600)
    assert a == b, (a, b)
    for s in (one, two):
        s.lab.wait_state(a, "RUNNING", timeout=60)
        wait_for("the job to be known", lambda s=s: s.timeline(a), 60)
    assert one.timeline(a).job.name != two.timeline(a).job.name
    one.lab.exec("scancel", a, user="labuser1")
    wait_for("its end", lambda: one.timeline(a).attempts[0].state == api.JOB_STATE_CANCELLED, 60)
    assert two.timeline(a).attempts[0].state == api.JOB_STATE_RUNNING and two.lab.job(a)["state"] == "RUNNING"
    two.lab.exec("scancel", a, user="labuser1")


def while_ones_slurmctld_is(how, undo, sick, well):
    both_run()
    job = sick.submit("fault", STEPS=600, UNTIL=f"{sick.lab.dir}/home/labuser1/go-{how}")
    sick.lab.wait_state(job, "RUNNING", timeout=60)
    running = time.time()
    wait_for("the job to be known", lambda: (t := sick.timeline(job)) and t.attempts[0].state == api.JOB_STATE_RUNNING, 60)
    saved = f"{sick.lab.dir}/state/job_state"  # written at most five seconds after a change
    until = time.monotonic() + 8
    wait_for("the job to be saved", lambda: os.stat(saved).st_mtime > running or time.monotonic() > until, 60)
    sick.lab.ctl(how, "ctld")
    try:
        sick.lab.exec("touch", f"{sick.lab.dir}/home/labuser1/go-{how}", user="labuser1")
        other = recovers(well)
        t = sick.timeline(job)
        assert t.attempts[0].state == api.JOB_STATE_RUNNING and not t.advice and not t.actions, t
    finally:
        sick.lab.ctl(undo, "ctld")
    a = sick.wait_advice(job, match=lambda a: a.status.disposition == DONE, what="convergence", timeout=120)
    j = sick.lab.wait_state(job, "RUNNING", timeout=60)
    assert j["restarts"] == 1 and j["excluded"] == a.exclude_nodes[0], j
    assert well.lab.job(other)["restarts"] == 1, well.lab.job(other)
    for s, i in ((sick, job), (well, other)):
        verbs = [x.verb for x in s.timeline(i).actions]
        assert verbs == [api.VERB_PRESERVE, api.VERB_CONSTRAIN, api.VERB_RELEASE], verbs
        s.lab.exec("scancel", i)


def ones_slurmctld_is_killed():
    while_ones_slurmctld_is("kill", "start", one, two)


def the_others_slurmctld_is_killed():
    while_ones_slurmctld_is("kill", "start", two, one)


def ones_slurmctld_hangs():
    while_ones_slurmctld_is("freeze", "thaw", one, two)


def clean_end():
    two.stop()
    one.stop()


advstack.run([the_same_number_means_two_jobs, ones_slurmctld_is_killed, the_others_slurmctld_is_killed, ones_slurmctld_hangs, clean_end])
