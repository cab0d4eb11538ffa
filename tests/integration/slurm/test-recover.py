#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs on a real Slurm: what they are for works, and in seconds."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from advlab import Lab, case, expect, main, wait_for

FAIL_ONCE = '[ -n "$SLURM_RESTART_COUNT" ] && sleep 300; exit 3'


def failed_job(lab, *args, wrap=FAIL_ONCE):
    job = lab.sbatch(*args, wrap=wrap)
    lab.wait_state(job, "FAILED")
    return job


def preserved(lab, *args):
    job = failed_job(lab, *args)
    expect(lab.act("preserve", job, 0), command="accepted", observed="yes", reason="ok", revived_wrongly="no", writes=1)
    lab.wait_state(job, "PENDING")
    return job


@case
def describe(lab):
    expect(lab.adapter("describe"), ok=True, sight="full", privilege="operator", cluster=lab.name, accounting=True)


@case
def recover_failed_job(lab):
    job = failed_job(lab)
    bad = lab.job(job)["nodes"]
    began = time.monotonic()
    r = expect(lab.act("preserve", job, 0), command="accepted", observed="yes", reason="ok", revived_wrongly="no")
    assert r["before"]["state"] == "FAILED" and r["before"]["exit_code"] == 3, r["before"]
    r = expect(lab.act("constrain", job, 1, "--exclude", bad), command="accepted", observed="yes", reason="ok",
               excluded=[bad])
    assert r["after"]["eligible"] == r["after"]["submit"] + 3, r["after"]
    expect(lab.act("release", job, 1), command="accepted", observed="yes", reason="ok")
    j = lab.wait_state(job, "RUNNING", timeout=10)
    took = time.monotonic() - began
    assert j["nodes"] != bad and j["excluded"] == bad and j["restarts"] == 1, j
    assert took < 8, f"took {took:.1f} s"
    print(f"# recovered in {took:.1f} s")
    lab.exec("scancel", job)


@case
def repeats_change_nothing(lab):
    job = preserved(lab)
    expect(lab.act("preserve", job, 0), command="not_sent", observed="yes", reason="already_satisfied", writes=0)
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), reason="ok")
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[0], "--before", lab.node[0]), command="not_sent",
           observed="yes", reason="already_satisfied", writes=0)
    expect(lab.act("release", job, 1), reason="ok")
    expect(lab.act("release", job, 1), command="not_sent", reason="already_satisfied", writes=0)
    expect(lab.act("cancel", job, 1), observed="yes", reason="ok")
    expect(lab.act("cancel", job, 1), command="not_sent", reason="already_satisfied", writes=0)


@case
def user_exclude_survives(lab):
    job = preserved(lab, "-x", lab.node[1])
    r = expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), reason="ok", excluded=[lab.node[0]])
    assert r["after"]["excluded"] == f"{lab.name}n[1-2]", r["after"]
    r = expect(lab.act("constrain", job, 1, "--before", lab.node[0]), reason="ok", excluded=[])
    assert r["after"]["excluded"] == lab.node[1], r["after"]
    lab.exec("scancel", job)


@case
def without_the_guard_user_exclude_is_lost(lab):
    job = preserved(lab, "-x", lab.node[1])
    r = lab.act("constrain", job, 1, "--exclude", lab.node[0], env={"ADVISOR_TEST_DISABLE_GUARD": "user_exclude"})
    assert r["after"]["excluded"] == lab.node[0], r["after"]
    lab.exec("scancel", job)


@case
def begin_of_the_user_is_respected(lab):
    # set by the owner after the requeue: not ours to move
    job = preserved(lab)
    begin = int(lab.job(job)["submit"]) + 900
    lab.exec("scontrol", "update", f"JobId={job}", f"StartTime=uts{begin}", user="labuser1")
    r = expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), reason="ok")
    assert r["after"]["eligible"] == begin, r["after"]
    lab.exec("scancel", job)


@case
def node_required_by_name(lab):
    job = preserved(lab, "-w", lab.node[0])
    r = expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), reason="ok", excluded=[])
    assert "by name" in r["notes"][0] and r["after"]["excluded"] == "", r
    expect(lab.act("release", job, 1), reason="ok")
    lab.wait_state(job, "RUNNING", timeout=10)
    lab.exec("scancel", job)


@case
def unknown_node_is_dropped(lab):
    job = preserved(lab)
    r = expect(lab.act("constrain", job, 1, "--exclude", f"x9,{lab.node[0]}"), reason="ok", excluded=[lab.node[0]])
    assert r["notes"] == ["node x9 is not in the cluster: dropped"], r
    lab.exec("scancel", job)


@case
def unsatisfiable_is_refused(lab):
    job = preserved(lab, "-N2")
    r = expect(lab.act("constrain", job, 1, "--exclude", ",".join(lab.node[:2])), command="not_sent",
               reason="constraint_unsatisfiable", writes=0)
    assert lab.job(job)["excluded"] == "", lab.job(job)
    r = lab.act("constrain", job, 1, "--exclude", ",".join(lab.node[:2]),
                env={"ADVISOR_TEST_DISABLE_GUARD": "satisfiable"})
    lab.act("release", job, 1)
    wait_for("BadConstraints", lambda: "BadConstraints" in lab.job(job)["reason"], 15)
    lab.exec("scancel", job)


@case
def features_and_reservation_count(lab):
    lab.exec("scontrol", "update", f"NodeName={lab.node[2]}", "AvailableFeatures=big", "ActiveFeatures=big")
    job = preserved(lab, "-C", "big")
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[2]), command="not_sent", reason="constraint_unsatisfiable")
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), reason="ok")
    lab.exec("scancel", job)
    lab.exec("scontrol", "create", "reservation", "reservationname=r1", "starttime=now", "duration=60",
             "users=labuser1,root", f"nodes={lab.node[1]}")
    job = preserved(lab, "--reservation", "r1")
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[1]), command="not_sent", reason="constraint_unsatisfiable")
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), reason="ok")
    lab.exec("scancel", job)
    wait_for("the job's end", lambda: lab.job(job)["state"] == "CANCELLED")
    lab.exec("scontrol", "delete", "reservation", "r1")


@case
def interrupt_running(lab):
    job = lab.sbatch()
    lab.wait_state(job, "RUNNING")
    r = expect(lab.act("interrupt", job, 0), command="accepted", observed="yes", reason="ok", revived_wrongly="no")
    assert r["after"]["restarts"] == 1, r["after"]
    j = lab.wait_state(job, "PENDING")
    assert j["priority"] == "0", j
    expect(lab.act("interrupt", job, 0), command="not_sent", reason="already_satisfied")
    expect(lab.act("cancel", job, 1), observed="yes", reason="ok")


@case
def make_requeueable(lab):
    job = lab.sbatch("--no-requeue")
    lab.wait_state(job, "RUNNING")
    expect(lab.act("interrupt", job, 0), command="not_sent", reason="not_requeueable")
    expect(lab.act("make_requeueable", job, 0), command="accepted", observed="yes", reason="ok")
    expect(lab.act("make_requeueable", job, 0), command="not_sent", reason="already_satisfied")
    expect(lab.act("cancel", job, 0), observed="yes", reason="ok")


@case
def a_job_deaf_to_sigterm_is_cancelled_when_it_has_ended(lab):
    job = lab.sbatch(wrap="trap '' TERM; while :; do sleep 1; done")
    lab.wait_state(job, "RUNNING")
    r = expect(lab.act("cancel", job, 0), command="accepted", observed="yes", reason="ok")
    assert r["after"]["state"] == "CANCELLED", r["after"]  # after KillWait, by SIGKILL; CANCELLED and COMPLETING until then
    lab.wait_state(job, "CANCELLED")


@case
def owner_takes_over(lab):
    job = preserved(lab)
    lab.exec("scontrol", "release", job, user="labuser1")
    expect(lab.act("release", job, 1), command="not_sent", observed="yes", reason="already_satisfied")
    lab.exec("scontrol", "hold", job, user="labuser1")
    expect(lab.act("release", job, 1), command="not_sent", observed="no", reason="conflict_user_action")
    lab.exec("scancel", job)
    job = preserved(lab, "--comment", "mine")
    lab.exec("scontrol", "update", f"JobId={job}", "Comment=hands off", user="labuser1")
    expect(lab.act("release", job, 1, "--comment", "mine"), command="not_sent", reason="conflict_user_action")
    lab.exec("scancel", job)


@case
def array_task_alone(lab):
    job = lab.sbatch("-a", "1-3", wrap=FAIL_ONCE)
    for task in (1, 2, 3):
        lab.wait_state(f"{job}_{task}", "FAILED")
    expect(lab.act("preserve", job, 0), command="not_sent", reason="invalid", writes=0)
    # the last task's record has the array's own number: it must not drag the others along
    expect(lab.act("preserve", f"{job}_3", 0), command="accepted", observed="yes", reason="ok")
    assert [lab.job(f"{job}_{t}")["restarts"] for t in (1, 2, 3)] == [0, 0, 1]
    expect(lab.act("constrain", f"{job}_3", 1, "--exclude", lab.node[0]), reason="ok")
    expect(lab.act("release", f"{job}_3", 1), reason="ok")
    lab.wait_state(f"{job}_3", "RUNNING", timeout=10)
    lab.exec("scancel", job)


main(lambda: Lab(tool=os.environ["ADAPTERCTL"]))
