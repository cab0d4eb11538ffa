#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten facts of Slurm that shape the adapter. Each case shows the fact with Slurm's own tools, and then that the adapter has
taken it in. A release that no longer behaves so makes its case fail: then the adapter wants a look."""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from advlab import Lab, case, expect, main, wait_for


def raw(lab, *cmd, user=None, timeout=60):
    """(exit code, stdout, stderr) of one of Slurm's tools."""
    p = subprocess.run(lab.argv(cmd, user), capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    return p.returncode, p.stdout.strip(), p.stderr.strip()


def requeuehold(lab, job):
    return raw(lab, "scontrol", "requeuehold", job)


def ended(lab, state, *args, wrap="exit 3"):
    job = lab.sbatch(*args, wrap=wrap)
    lab.wait_state(job, state)
    return job


def field(lab, job, name):
    text = lab.exec("scontrol", "-o", "show", "job", job)
    return next((w.split("=", 1)[1] for w in text.split() if w.startswith(name + "=")), None)


@case
def fact_01_requeuehold_revives_completed_and_cancelled_jobs(lab):
    done, cancelled = ended(lab, "COMPLETED", wrap="true"), lab.sbatch()
    lab.wait_state(cancelled, "RUNNING")
    lab.exec("scancel", cancelled, user="labuser1")
    lab.wait_state(cancelled, "CANCELLED")
    for job, reason in ((done, "completed"), (cancelled, "cancelled_by_user")):
        expect(lab.act("preserve", job, 0), command="not_sent", observed="no", reason=reason, writes=0)
        assert lab.job(job)["restarts"] == 0
        assert requeuehold(lab, job)[0] == 0
        assert lab.wait_state(job, "PENDING")["restarts"] == 1
        lab.exec("scancel", job)


@case
def fact_02_a_requeued_job_waits_two_minutes(lab):
    job = ended(lab, "FAILED")
    assert requeuehold(lab, job)[0] == 0
    j = lab.wait_state(job, "PENDING")
    assert 119 <= int(j["eligible"]) - int(j["submit"]) <= 123, j
    r = expect(lab.act("constrain", job, 1), command="accepted", observed="yes", reason="ok")
    assert r["after"]["eligible"] == r["after"]["submit"] + 3, r["after"]
    lab.exec("scancel", job)


@case
def fact_03_requeue_0_must_be_mended_before_the_end(lab):
    job = ended(lab, "FAILED", "--no-requeue")
    rc, _, err = requeuehold(lab, job)
    assert rc == 1 and "Requested operation is presently disabled" in err, (rc, err)
    expect(lab.act("preserve", job, 0), command="not_sent", reason="not_requeueable", writes=0)
    job = lab.sbatch("--no-requeue", wrap="sleep 3; exit 3")
    lab.wait_state(job, "RUNNING")
    expect(lab.act("make_requeueable", job, 0), command="accepted", observed="yes", reason="ok")
    lab.wait_state(job, "FAILED")
    expect(lab.act("preserve", job, 0), command="accepted", observed="yes", reason="ok")
    lab.exec("scancel", job)


@case
def fact_04_a_finished_job_is_forgotten_for_good(lab):
    lab.ctl("conf", "MinJobAge=2")
    try:
        job = ended(lab, "FAILED")
        wait_for("slurmctld to forget it", lambda: not lab.job(job), 60)
        rc, _, err = requeuehold(lab, job)
        assert rc == 1 and "Invalid job id specified" in err, (rc, err)
        expect(lab.act("preserve", job, 0), command="not_sent", reason="gone", writes=0)
    finally:
        lab.ctl("conf", "MinJobAge=300")


@case
def fact_05_dependents_are_judged_at_once(lab):
    parent = lab.sbatch("-H", wrap="exit 3")
    ok, kill, any_ = (lab.sbatch("-d", f"{kind}:{parent}", *more, wrap="sleep 60")
                      for kind, more in (("afterok", ()), ("afterok", ("--kill-on-invalid-dep=yes",)), ("afterany", ())))
    lab.exec("scontrol", "release", parent)
    lab.wait_state(parent, "FAILED")
    wait_for("the child that can never run", lambda: lab.job(ok).get("reason") == "DependencyNeverSatisfied", 20)
    lab.wait_state(kill, "CANCELLED")
    lab.wait_state(any_, "RUNNING")
    # the parent's coming back mends nothing
    expect(lab.act("preserve", parent, 0), command="accepted", observed="yes", reason="ok")
    assert lab.job(ok)["reason"] == "DependencyNeverSatisfied" and lab.job(kill)["state"] == "CANCELLED"
    lab.exec("scancel", parent, ok, any_)


@case
def fact_06_a_command_that_reports_failure_may_take_effect(lab):
    job = ended(lab, "FAILED")
    lab.ctl("freeze", "ctld")
    try:
        assert raw(lab, "timeout", "2", "scontrol", "requeuehold", job)[0] == 124
    finally:
        lab.ctl("thaw", "ctld")
    assert lab.wait_state(job, "PENDING")["restarts"] == 1
    lab.exec("scancel", job)
    # the same to the adapter: it waits until the command can no longer land, looks, and never sends it twice
    job = ended(lab, "FAILED")
    go = tempfile.mktemp(dir=lab.dir)
    p = lab.start("--command-deadline", "2000", "act", "preserve", job, "--expect-restarts", "0",
                  env={"ADVISOR_FAILPOINT": f"slurm.after_authorize=pause:{go}"})
    while b"hit" not in p.stderr.readline():
        assert p.poll() is None
    lab.ctl("freeze", "ctld")
    try:
        open(go, "w").close()
        time.sleep(4)  # past its deadline
    finally:
        lab.ctl("thaw", "ctld")
    expect(lab.finish(p), command="timed_out", observed="yes", reason="ok", writes=1)
    assert lab.job(job)["restarts"] == 1
    lab.exec("scancel", job)


@case
def fact_07_an_empty_answer_may_mean_no_answer(lab):
    job = lab.sbatch("-H")
    time.sleep(7)  # its state is saved some seconds later
    lab.ctl("kill", "ctld")
    try:
        rc, out, _ = raw(lab, "squeue", "--json")
        if lab.exec("squeue", "--version").startswith("slurm-wlm 22."):
            assert rc == 0 and json.loads(out)["jobs"] == [], (rc, out[:300])
        assert raw(lab, "scontrol", "ping")[0] == 1
        expect(lab.adapter("observe"), complete=False, unknown_reason="unavailable")
        expect(lab.adapter("inspect", job), found="unknown")
    finally:
        lab.ctl("start", "ctld")
    assert any(j["id"] == job for j in expect(lab.adapter("observe"), complete=True)["jobs"])
    lab.exec("scancel", job)


@case
def fact_08_scancel_says_nothing(lab):
    job = ended(lab, "FAILED")
    for which in (job, "999999"):
        assert raw(lab, "scancel", which) == (0, "", ""), which
    expect(lab.act("cancel", job, 0), command="not_sent", observed="no", writes=0)
    expect(lab.act("cancel", "999999", 0), command="not_sent", reason="gone", writes=0)
    job = lab.sbatch("-H")
    expect(lab.act("cancel", job, 0), command="accepted", observed="yes", reason="ok")
    assert lab.job(job)["state"] == "CANCELLED"


@case
def fact_09_one_task_has_the_number_of_its_array(lab):
    array = ended_array(lab)
    assert requeuehold(lab, array)[0] == 0  # as a number of one task, it is all of them
    wait_for("all tasks to be back", lambda: [lab.job(f"{array}_{t}")["restarts"] for t in (1, 2, 3)] == [1, 1, 1])
    lab.exec("scancel", array)
    array = ended_array(lab)
    numbers = {j["id"]: j["raw_id"] for j in lab.adapter("observe")["jobs"] if j["id"].startswith(array + "_")}
    one = next(i for i, n in numbers.items() if str(n) == array)
    expect(lab.act("preserve", array, 0), command="not_sent", reason="invalid", writes=0)
    expect(lab.act("preserve", one, 0), command="accepted", observed="yes", reason="ok")
    back = {i: lab.job(i)["restarts"] for i in numbers}
    assert back == {i: int(i == one) for i in numbers}, back
    lab.exec("scancel", array)


def ended_array(lab):
    array = lab.sbatch("-a", "1-3", wrap="exit 3")
    for t in (1, 2, 3):
        lab.wait_state(f"{array}_{t}", "FAILED")
    return array


@case
def fact_10_json_of_all_jobs_is_dear(lab):
    """What it costs is for the benchmark; here, that it is never asked for."""
    job, record = ended(lab, "FAILED"), f"{lab.dir}/record"
    os.makedirs(record, exist_ok=True)
    os.chmod(record, 0o777)
    for tool in ("squeue", "scontrol", "sinfo", "sacct", "scancel"):
        real = lab.exec("sh", "-c", f"command -v {tool}")
        with open(f"{record}/{tool}", "w") as f:
            f.write(f'#!/bin/sh\necho "{tool} $*" >>{record}/calls\nexec {real} "$@"\n')
        os.chmod(f"{record}/{tool}", 0o755)
    driver = f"PATH={record}:$PATH exec {lab.tool} --state {lab.dir}/home/laboper/state"
    for what in ("describe", "observe", "nodes", f"inspect {job}", f"act preserve {job} --expect-restarts 0"):
        lab.exec("sh", "-c", f"{driver} {what}", user="laboper")
    with open(f"{record}/calls") as f:
        calls = f.read().splitlines()
    assert any(c.startswith("squeue ") for c in calls), calls
    assert not [c for c in calls if "json" in c and not c.startswith("scontrol show job ")], calls
    assert lab.job(job)["restarts"] == 1
    lab.exec("scancel", job)


def cancel_once(lab, job, between):
    """What is between the look at the job and the command that cancels it in our hold."""
    go = tempfile.mktemp(dir=lab.dir)
    p = lab.start("act", "cancel", job, "--expect-restarts", "1", "--only-in-hold", "--deadline", "30000",
                  env={"ADVISOR_FAILPOINT": f"slurm.after_authorize=pause:{go}"})
    while b"hit" not in p.stderr.readline():
        assert p.poll() is None
    between()
    open(go, "w").close()
    return lab.finish(p)


@case
def fact_11_a_held_job_is_cancelled_and_no_other(lab):
    again = '[ -n "$SLURM_RESTART_COUNT" ] && sleep 300; exit 3'
    job = ended(lab, "FAILED", wrap=again)
    expect(lab.act("preserve", job, 0), command="accepted", observed="yes", reason="ok")
    expect(lab.act("constrain", job, 1), command="accepted", observed="yes", reason="ok")

    def let_go():  # its owner, or who administers the cluster
        lab.exec("scontrol", "release", job)
        lab.wait_state(job, "RUNNING", timeout=60)

    r = cancel_once(lab, job, let_go)
    assert r["observed"] != "yes" and lab.job(job)["state"] == "RUNNING", (r, lab.job(job))
    expect(lab.act("cancel", job, 1, "--only-in-hold"), command="not_sent", observed="no", writes=0)
    lab.exec("scancel", job)
    # one task of an array, and the whole of a set
    array = lab.sbatch("-a", "1-2", wrap=again)
    for t in (1, 2):
        lab.wait_state(f"{array}_{t}", "FAILED")
        expect(lab.act("preserve", f"{array}_{t}", 0), command="accepted", observed="yes", reason="ok")
    for t in (2, 1):
        expect(lab.act("cancel", f"{array}_{t}", 1, "--only-in-hold"), command="accepted", observed="yes", reason="ok")
        assert lab.job(f"{array}_{t}")["state"] == "CANCELLED"
        assert lab.job(f"{array}_1")["state"] == ("PENDING" if t == 2 else "CANCELLED")
    het = lab.exec("sbatch", "--parsable", "-N1", ":", "-N1", "--wrap", again, user="labuser1")
    parts = lambda: [p["state"] for p in lab.adapter("inspect", het)["job"]["parts"]]
    wait_for("all of the set to have failed", lambda: parts() == ["FAILED", "FAILED"], 60)
    expect(lab.act("preserve", het, 0), command="accepted", observed="yes", reason="ok")
    wait_for("all to wait", lambda: parts() == ["PENDING", "PENDING"])
    expect(lab.act("cancel", het, 1, "--only-in-hold"), command="accepted", observed="yes", reason="ok")
    wait_for("all to be cancelled", lambda: parts() == ["CANCELLED", "CANCELLED"])


main(lambda: Lab(tool=os.environ["ADAPTERCTL"]))
