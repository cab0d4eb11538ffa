#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that depend on one that is recovered, on real Slurm through every part: they wait for it again and run after it, each
with its own consent; what cannot be given back is told; what a person holds is left."""
import functools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

api = advstack.stubs()
s = advstack.Stack(api=api, mode=api.MODE_ACT, sets=["SchedulerParameters=batch_sched_delay=1,bf_interval=1"])
CASES = []
DONE = api.DISPOSITION_CONVERGED
CONSENT = '{"advisor":{"max_restarts":2}}'
MARK = f"{s.lab.dir}/home/labuser1/fail-now"


def case(f):
    @functools.wraps(f)
    def alone():
        if not s.agent.alive():
            s.agent.start()
            s.wait_connected()
        s.lab.exec("scancel", "-u", "labuser1", check=False)
        wait_for("an empty queue", lambda: not s.lab.exec("squeue", "-h", "-u", "labuser1"), 60)
        if os.path.exists(MARK):
            os.unlink(MARK)
        f()
    CASES.append(alone)
    return alone


def parent(**env):
    """Runs until all that depends on it was seen, then fails."""
    job = s.submit("fault", comment=CONSENT, UNTIL=MARK, **env)
    s.lab.wait_state(job, "RUNNING", timeout=60)
    return job


def child(dependency, *args, comment=CONSENT):
    return s.lab.sbatch("--requeue", f"--comment={comment}", "-d", dependency, *args)


def fail(*kids):
    """Once the agent's list has the children as they were before."""
    for k in kids:
        wait_for(f"job {k} to be seen", lambda k=k: s.timeline(k), 30)
    open(MARK, "w").close()


def recovered(job, timeout=90):
    return s.wait_advice(job, match=lambda a: a.status.disposition == DONE, what="convergence", timeout=timeout)


def dependency(job):
    return s.lab.exec("squeue", "-h", "-t", "all", "-j", job, "-O", "Dependency:|").rstrip("|").replace("(null)", "")


def rearmed(job):
    return [x for x in s.timeline(job).actions if x.verb == api.VERB_REARM_CHILD]


@case
def children_wait_again_and_run_after_it():
    job, other = parent(), s.lab.sbatch()
    ok, two = child(f"afterok:{job}"), child(f"afterok:{job},afterok:{other}")
    fail(ok, two)
    a = recovered(job)
    acts = rearmed(job)
    assert len(acts) == 2 and all(x.command == api.COMMAND_RESULT_ACCEPTED and x.observed == api.OBSERVED_YES for x in acts), acts
    assert {k for k in (ok, two) for x in acts if f"job {k}" in x.detail} == {ok, two}, acts
    assert "2 dependent jobs wait for it again" in a.status.detail, a.status
    order = [x.verb for x in s.timeline(job).actions]
    assert order[0] == api.VERB_PRESERVE and order[-1] == api.VERB_RELEASE, order
    s.lab.wait_state(job, "COMPLETED", timeout=60)
    s.lab.wait_state(ok, "RUNNING", timeout=60)  # by Slurm's own judgement
    assert dependency(two).startswith(f"afterok:{other}(") and s.lab.job(two)["state"] == "PENDING", dependency(two)
    assert s.lab.job(ok)["restarts"] == 0
    print(f"# {a.status.detail}")


@case
def what_cannot_be_given_back_is_told():
    job = parent()
    started, killed = child(f"afterany:{job}"), child(f"afterok:{job}", "--kill-on-invalid-dep=yes")
    silent, off = child(f"afterok:{job}", comment=""), child(f"afterok:{job}", comment='{"advisor":{"mode":"off"}}')
    held = child(f"afterok:{job}", "-H")
    fail(started, killed, silent, off, held)
    s.lab.wait_state(started, "RUNNING", timeout=60)
    a = recovered(job)
    for k, why in ((started, "started"), (killed, "cancelled"), (silent, "comment"), (off, "comment"), (held, "holds")):
        assert f"job {k}: " in a.status.detail and why in a.status.detail.split(f"job {k}: ")[1].split(";")[0], (k, a.status)
    assert not any(x.command == api.COMMAND_RESULT_ACCEPTED for x in rearmed(job)), rearmed(job)
    assert dependency(silent) == dependency(off) == f"afterok:{job}(failed)", (dependency(silent), dependency(off))
    j = s.lab.job(held)  # a child's first hold is its user's
    assert j["priority"] == "0" and j["reason"].startswith("JobHeld") and j["restarts"] == 0, j
    s.lab.wait_state(job, "COMPLETED", timeout=60)
    assert s.lab.job(held)["priority"] == "0", s.lab.job(held)
    print(f"# {a.status.detail}")


@case
def not_without_the_ceilings_word():
    path = f"{s.lab.dir}/etc/ceiling.yaml"
    with open(path, "w") as f:
        f.write("mode: act\nverbs: [preserve, constrain, release]\n")
    s.agent.stop()
    s.agent.config["ceiling.path"] = path
    s.agent.start()
    s.wait_connected()
    try:
        job = parent()
        kid = child(f"afterok:{job}")
        fail(kid)
        recovered(job)
        assert not rearmed(job) and dependency(kid) == f"afterok:{job}(failed)", (rearmed(job), dependency(kid))
    finally:
        s.agent.stop()
        del s.agent.config["ceiling.path"]


@case
def agent_killed_between_the_write_and_its_record():
    job = parent()
    kid = child(f"afterok:{job}")
    s.agent.stop()
    s.agent.start(failpoint="slurm.after_command=kill@3")  # preserve, constrain, and this one
    s.wait_connected()
    fail(kid)
    s.agent.wait_dead()
    assert s.lab.job(job)["priority"] == "0", s.lab.job(job)  # held, and its record tells how it ends
    s.agent.start()
    recovered(job, timeout=120)
    assert dependency(kid) == f"afterok:{job}(unfulfilled)", dependency(kid)
    assert s.requeues(job) == 1, s.requeues(job)
    s.lab.wait_state(job, "COMPLETED", timeout=60)
    s.lab.wait_state(kid, "RUNNING", timeout=60)


@case
def a_requeue_of_a_running_parent_is_no_end():
    job = s.submit("well", comment=CONSENT, STEPS=600)
    kid = child(f"afterok:{job}")
    s.lab.wait_state(job, "RUNNING", timeout=60)
    s.lab.exec("scontrol", "requeuehold", "Incomplete", job)
    wait_for("the requeue", lambda: s.lab.job(job)["restarts"] == 1, 30)
    assert dependency(kid) == f"afterok:{job}(unfulfilled)", dependency(kid)  # nothing is lost


def stops_clean():
    s.stop()


CASES.append(stops_clean)
advstack.run(CASES)
