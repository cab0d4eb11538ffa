#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dependents of a job that failed and was requeued, on a real Slurm: what can be given back, and what cannot."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from advlab import Lab, case, expect, main, wait_for

FAIL_ONCE = '[ -n "$SLURM_RESTART_COUNT" ] && exit 0; sleep {}; exit 3'


def child(lab, dependency, *args):
    return lab.sbatch("-d", dependency, *args)


def dependency(lab, job):
    return lab.exec("squeue", "-h", "-r", "-t", "all", "-j", job, "-O", "Dependency:|").rstrip("|").replace("(null)", "")


def judged(lab, job):
    wait_for(f"job {job} to be judged", lambda: lab.job(job)["reason"] == "DependencyNeverSatisfied", 30)


def rearm(lab, job, parent, *args, restarts=1, **kw):
    return lab.act("rearm_child", job, 0, "--parent", parent, "--parent-restarts", str(restarts), *args, **kw)


def let_go(lab, parent):
    expect(lab.act("constrain", parent, 1), observed="yes")
    expect(lab.act("release", parent, 1), observed="yes")


@case
def edges_are_given_back(lab):
    parent = lab.sbatch(wrap=FAIL_ONCE.format(4))
    other = lab.sbatch()
    kids = {name: child(lab, d.format(p=parent, o=other)) for name, d in {
        "ok": "afterok:{p}", "two": "afterok:{p},afterok:{o}", "either": "afterok:{p}?afterok:{o}",
        "time": "after:{o}+10,afterok:{p}", "name": "singleton,afterok:{p}"}.items()}
    dropped = child(lab, f"afterany:{parent},afterok:{other}")
    dropped_before = dependency(lab, dropped)
    before = {n: dependency(lab, k) for n, k in kids.items()}
    started = child(lab, f"afterany:{parent}")
    killed = child(lab, f"afterok:{parent}", "--kill-on-invalid-dep=yes")
    lab.wait_state(parent, "FAILED", timeout=40)
    judged(lab, kids["ok"])
    lab.wait_state(started, "RUNNING", timeout=40)
    lab.wait_state(killed, "CANCELLED")
    # not before the parent waits again
    expect(rearm(lab, kids["ok"], parent), command="not_sent", reason="constraint_unsatisfiable", writes=0)
    expect(lab.act("preserve", parent, 0), observed="yes")
    lab.wait_state(parent, "PENDING")
    for name, k in kids.items():
        r = expect(rearm(lab, k, parent, "--dependency-before", before[name]), command="accepted", observed="yes", reason="ok",
                   writes=1)
        assert sorted(dependency(lab, k).replace("?", ",").split(",")) == sorted(before[name].replace("?", ",").split(",")), \
            (name, dependency(lab, k), before[name], r)
        expect(rearm(lab, k, parent, "--dependency-before", before[name]), command="not_sent", observed="yes",
               reason="already_satisfied", writes=0)
    assert "?" in dependency(lab, kids["either"])
    # what the failure met cannot be told from what its owner took out
    r = expect(rearm(lab, dropped, parent, "--dependency-before", dropped_before), command="not_sent",
               reason="constraint_unsatisfiable", writes=0)
    assert r["notes"] == ["the failure has met its dependency, or somebody has taken it out"], r
    assert dependency(lab, dropped) == f"afterok:{other}(unfulfilled)", dependency(lab, dropped)
    # too late for these
    expect(rearm(lab, started, parent), command="not_sent", reason="wrong_state", writes=0)
    expect(rearm(lab, killed, parent), command="not_sent", reason="cancelled_by_user", writes=0)
    assert lab.job(kids["ok"])["state"] == "PENDING"
    let_go(lab, parent)
    lab.wait_state(parent, "COMPLETED", timeout=40)
    lab.wait_state(kids["ok"], "RUNNING", "COMPLETED", timeout=60)  # by Slurm's own judgement
    assert dependency(lab, kids["two"]).startswith(f"afterok:{other}("), dependency(lab, kids["two"])
    lab.exec("scancel", "-u", "labuser1")


@case
def what_a_person_did_is_kept(lab):
    parent, other = lab.sbatch(wrap=FAIL_ONCE.format(3)), lab.sbatch()
    held, moved = child(lab, f"afterok:{parent}"), child(lab, f"afterany:{parent},afterok:{other}")
    before = dependency(lab, moved)
    judged(lab, held)
    lab.exec("scontrol", "hold", held, user="labuser1")
    last = lab.sbatch()
    lab.exec("scontrol", "update", f"JobId={moved}", f"Dependency=afterok:{last}", user="labuser1")
    expect(lab.act("preserve", parent, 0), observed="yes")
    lab.wait_state(parent, "PENDING")
    expect(rearm(lab, held, parent), command="not_sent", reason="conflict_user_action", writes=0)
    r = expect(rearm(lab, moved, parent, "--dependency-before", before), command="not_sent", reason="constraint_unsatisfiable")
    assert "somebody has taken it out" in r["notes"][0], r
    assert dependency(lab, moved) == f"afterok:{last}(unfulfilled)", dependency(lab, moved)
    lab.exec("scancel", "-u", "labuser1")


@case
def another_parent_failed_too(lab):
    parent, other = lab.sbatch(wrap=FAIL_ONCE.format(2)), lab.sbatch(wrap="sleep 2; exit 3")
    kid = child(lab, f"afterok:{parent},afterok:{other}")
    lab.wait_state(other, "FAILED", timeout=40)
    lab.wait_state(parent, "FAILED", timeout=40)
    judged(lab, kid)  # with the first edge that failed; whether the other one is marked, too, is chance
    expect(lab.act("preserve", parent, 0), observed="yes")
    lab.wait_state(parent, "PENDING")
    r = expect(rearm(lab, kid, parent), command="not_sent", reason="constraint_unsatisfiable", writes=0)
    assert r["notes"][0] in ("another job that it depends on has failed, too",
                             f"job {other}, on which it depends, too, has ended or is not known any more"), r
    lab.exec("scancel", "-u", "labuser1")


@case
def array_parents(lab):
    array = lab.sbatch("-a", "1-2", wrap='[ $SLURM_ARRAY_TASK_ID = 1 ] && [ -z "$SLURM_RESTART_COUNT" ] && sleep 4 && exit 3; sleep 5')
    one, every = child(lab, f"afterok:{array}_1"), child(lab, f"afterok:{array}")
    corr = child(lab, f"aftercorr:{array}", "-a", "1-2")
    judged(lab, one)
    judged(lab, every)
    judged(lab, f"{corr}_1")
    expect(lab.act("preserve", f"{array}_1", 0), observed="yes")
    lab.wait_state(f"{array}_1", "PENDING")
    expect(rearm(lab, one, f"{array}_1"), command="accepted", observed="yes", reason="ok", writes=1)
    expect(rearm(lab, f"{corr}_1", f"{array}_1"), command="accepted", observed="yes", reason="ok", writes=1)
    # made new, it would fail again when the task has succeeded: Slurm keeps the worst end of all tasks
    r = expect(rearm(lab, every, f"{array}_1"), command="not_sent", reason="constraint_unsatisfiable", writes=0)
    assert "all tasks of an array" in r["notes"][0], r
    let_go(lab, f"{array}_1")
    lab.wait_state(f"{array}_1", "COMPLETED", timeout=60)
    lab.wait_state(one, "RUNNING", timeout=60)
    lab.wait_state(f"{corr}_1", "RUNNING", timeout=60)
    lab.exec("scancel", "-u", "labuser1")


main(lambda: Lab(nodes=4, sets=["SchedulerParameters=batch_sched_delay=1,bf_interval=1"], tool=os.environ["ADAPTERCTL"]))
