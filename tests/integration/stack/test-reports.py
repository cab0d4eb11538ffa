#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Faults that others reported of schedulers and of what drives them, tried on ours (docs/reports.md has the list)."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

api = advstack.stubs()
s = advstack.Stack(api=api, mode=api.MODE_ACT, sets=["SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=1"])
HOME = f"{s.lab.dir}/home/labuser1"
CONSENT = '--comment={"advisor":{"max_restarts":3}}'


def begun():
    if not s.agent.alive():
        s.agent.start()
    s.wait_connected()


def script(name, text):
    path = f"{s.lab.dir}/{name}"
    with open(path, "w") as f:
        f.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)
    return path


def more_looks(n=3):
    """So many more looks at all jobs, and what follows from them: each shows a new job's end."""
    for _ in range(n):
        job = s.lab.sbatch("--output=/dev/null", "-w", s.lab.node[3], wrap="true")
        wait_for("a new job to be seen", lambda: (t := s.timeline(job)) and t.attempts and t.attempts[-1].end_time.seconds, 60)


def resume_nodes():
    for n in set(s.lab.exec("sinfo", "-h", "-N", "-t", "drain,down", "-o", "%N").split()):
        s.lab.exec("scontrol", "update", f"NodeName={n}", "State=RESUME")


def each_attempt_of_a_job_requeued_twice_is_there():
    """Also the last one's end, and not that of the first for ever."""
    begun()
    job = s.lab.sbatch(CONSENT, f"--output={HOME}/twice-%j.log", "--requeue",
                       wrap="echo begun; while [ ! -e $HOME/go-${SLURM_RESTART_COUNT:-0} ]; do sleep 0.1; done; exit 0")
    for n in (0, 1):
        s.lab.wait_state(job, "RUNNING", timeout=60)
        wait_for(f"attempt {n} to be known", lambda n=n: (t := s.timeline(job, n)) and t.attempts and t.attempts[-1].index == n and
                 t.attempts[-1].state == api.JOB_STATE_RUNNING, 60)
        s.lab.exec("scontrol", "requeue", job, user="labuser1")
        wait_for("the requeue", lambda n=n: (j := s.lab.job(job)) and j["restarts"] == n + 1 and j["state"] == "PENDING", 60)
        s.lab.exec("scontrol", "update", f"JobId={job}", "StartTime=now+2", user="labuser1")
    s.lab.wait_state(job, "RUNNING", timeout=60)
    s.lab.exec("touch", f"{HOME}/go-2", user="labuser1")
    s.lab.wait_state(job, "COMPLETED", timeout=60)
    t = wait_for("the end", lambda: (t := s.timeline(job, 2)) and t.attempts[-1].state == api.JOB_STATE_COMPLETED and t, 60)
    assert [a.index for a in t.attempts] == [0, 1, 2], t.attempts
    assert len({a.start_time.seconds for a in t.attempts}) == 3 and all(a.nodes for a in t.attempts), t.attempts
    assert not t.actions, t.actions


def an_epilog_that_fails_is_no_failure_of_the_job():
    begun()
    s.lab.ctl("conf", f"Epilog={script('epilog', f'[ $SLURMD_NODENAME = {s.lab.node[3]} ]')}")
    try:
        job = s.submit("well", "-x", s.lab.node[3], STEPS=2, STEP_S=0.05)
        s.lab.wait_state(job, "COMPLETED", timeout=60)
        wait_for("its node to be drained", lambda: s.lab.exec("sinfo", "-h", "-N", "-t", "drain", "-o", "%N"), 60)
        wait_for("the end", lambda: (t := s.timeline(job)) and t.attempts and t.attempts[-1].state == api.JOB_STATE_COMPLETED, 60)
        more_looks()
        t = s.timeline(job)
        assert not t.actions and not t.anomalies and s.lab.job(job)["restarts"] == 0, t
    finally:
        s.lab.ctl("conf", "Epilog=")
        resume_nodes()


def a_job_that_falls_back_into_a_hold_is_released_once():
    """Its launch fails after our release: slurmctld holds it. That hold is nobody's to open in a loop."""
    begun()
    stop = f"{s.lab.dir}/no-launch"
    s.lab.ctl("conf", f"Prolog={script('prolog', f'[ ! -e {stop} ] || [ $SLURMD_NODENAME = {s.lab.node[3]} ]')}")
    try:
        job = s.submit("fault", "-x", s.lab.node[3], STEPS=600, UNTIL=f"{HOME}/r-fails")
        s.lab.wait_state(job, "RUNNING", timeout=60)
        open(stop, "w").close()
        s.lab.exec("touch", f"{HOME}/r-fails", user="labuser1")
        wait_for(f"its launch to fail: {s.story(job)}", lambda: (j := s.lab.job(job)) and j["state"] == "PENDING" and
                 "launch failed" in j["reason"].replace("_", " "), 120)
        more_looks()
        j = s.lab.job(job)
        assert j["state"] == "PENDING" and j["priority"] == "0", j
        verbs = [a.verb for a in s.timeline(job).actions]
        assert verbs.count(api.VERB_RELEASE) == 1 and verbs.count(api.VERB_PRESERVE) == 1, verbs
        s.lab.exec("scancel", job)
    finally:
        os.unlink(stop)
        s.lab.ctl("conf", "Prolog=")
        resume_nodes()


def ended_jobs_that_are_still_listed_are_not_active():
    """MinJobAge keeps them in the list; nobody waits for a sign of life from them."""
    begun()
    done = [s.lab.sbatch(CONSENT, "--output=/dev/null", wrap=w) for w in ("true", "exit 3")]
    for j in done:
        s.lab.wait_state(j, "COMPLETED", "FAILED", timeout=60)
        wait_for("its end", lambda j=j: (t := s.timeline(j)) and t.attempts and t.attempts[-1].end_time.seconds, 60)
    s.lab.exec("scancel", "-u", "labuser1")
    wait_for("no job to count as running", lambda: s.cluster_view().jobs_running == 0, 60)
    assert all(s.lab.job(j) for j in done), "they must still be listed"


def the_priority_a_user_set_is_there_after_hold_and_release():
    begun()
    job = s.submit("fault", "--nice=50", "--priority=777", STEPS=600)
    given = s.lab.job(job)["priority"]
    s.wait_advice(job, match=lambda a: a.status.disposition == api.DISPOSITION_CONVERGED, what="convergence", timeout=90)
    s.lab.wait_state(job, "RUNNING", timeout=60)
    print(f"# priority {given} before, {s.lab.job(job)['priority']} after")
    nice = s.lab.exec("scontrol", "-o", "show", "job", job)
    assert "Nice=50" in nice, nice
    s.lab.exec("scancel", job)


def clean_end():
    s.stop()


advstack.run([each_attempt_of_a_job_requeued_twice_is_there, an_epilog_that_fails_is_no_failure_of_the_job,
              a_job_that_falls_back_into_a_hold_is_released_once, ended_jobs_that_are_still_listed_are_not_active,
              the_priority_a_user_set_is_there_after_hold_and_release, clean_end])
