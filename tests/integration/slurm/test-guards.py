#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not happen, does not; and with a guard removed it does, so the guard is what prevents it."""
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from advlab import Lab, case, expect, main, wait_for


def off(*guards):
    return {"ADVISOR_TEST_DISABLE_GUARD": ",".join(guards)}


class Pause:
    """Holds the driver at a failpoint until go()."""

    def __init__(self, lab, point):
        self.file = tempfile.mktemp(dir=lab.dir)
        self.env = {"ADVISOR_FAILPOINT": f"{point}=pause:{self.file}"}

    def reached(self, p):
        line = b""
        while b"hit" not in line:
            line = p.stderr.readline()
            assert line, "the driver ended before the failpoint"

    def go(self):
        open(self.file, "w").close()


def put_right(lab, job):
    """A wrongly revived job is cancelled again, as the adapter's user would."""
    expect(lab.act("cancel", job, 1), observed="yes", reason="ok")


@case
def cancelled_is_not_revived(lab):
    job = lab.sbatch()
    lab.wait_state(job, "RUNNING")
    lab.exec("scancel", job, user="labuser1")
    lab.wait_state(job, "CANCELLED")
    expect(lab.act("preserve", job, 0), command="not_sent", observed="no", reason="cancelled_by_user", writes=0)
    assert lab.job(job)["restarts"] == 0
    expect(lab.act("preserve", job, 0, env=off("state")), observed="yes", revived_wrongly="yes", writes=1)
    put_right(lab, job)


@case
def completed_is_not_revived(lab):
    job = lab.sbatch(wrap="exit 0")
    lab.wait_state(job, "COMPLETED")
    expect(lab.act("preserve", job, 0), command="not_sent", observed="no", reason="completed", writes=0)
    expect(lab.act("preserve", job, 0, env=off("state")), observed="yes", revived_wrongly="yes")
    put_right(lab, job)


@case
def cancelled_component_is_not_revived(lab):
    job = lab.exec("sbatch", "--parsable", "-N1", ":", "-N1", "--wrap", "sleep 5; exit 3", user="labuser1")
    lab.wait_state(job, "RUNNING")
    lab.exec("scancel", f"{job}+1", user="labuser1")

    def state(part):
        return lab.adapter("inspect", job)["job"]["parts"][part]["state"]

    wait_for("the component's end", lambda: state(1) == "CANCELLED")
    expect(lab.act("interrupt", job, 0), command="not_sent", reason="cancelled_by_user", writes=0)
    wait_for("the leader's end", lambda: state(0) == "FAILED")
    expect(lab.act("preserve", job, 0), command="not_sent", reason="cancelled_by_user", writes=0)
    expect(lab.act("preserve", job, 0, env=off("het_components")), command="accepted", observed="yes")
    assert state(1) == "PENDING", state(1)  # the harm
    lab.exec("scancel", job)


def slow_epilog(lab, seconds):
    path = f"{lab.dir}/etc/epilog"
    with open(path + ".new", "w") as f:
        f.write(f"#!/bin/sh\nsleep {seconds}\n")
    os.chmod(path + ".new", 0o755)
    os.replace(path + ".new", path)


@case
def cancelled_while_completing_is_not_revived(lab):
    slow_epilog(lab, 6)
    try:
        job = lab.sbatch()
        lab.wait_state(job, "RUNNING")
        lab.exec("scancel", job, user="labuser1")
        lab.wait_state(job, "COMPLETING")
        r = lab.act("preserve", job, 0)
        assert r["command"] == "not_sent" and r["reason"] in ("completing_wait", "cancelled_by_user"), r
        # without the guards the same moment brings it back, and the result says so
        r = expect(lab.act("preserve", job, 0, env=off("completing", "state")), command="accepted", observed="yes")
        assert r["revived_wrongly"] in ("yes", "maybe") and r["after"]["restarts"] == 1, r
        print(f"# revived_wrongly: {r['revived_wrongly']}")
        put_right(lab, job)
        lab.wait_state(job, "CANCELLED")
    finally:
        slow_epilog(lab, 0)


@case
def constrain_waits_for_completing(lab):
    slow_epilog(lab, 4)
    try:
        job = lab.sbatch()
        lab.wait_state(job, "RUNNING")
        expect(lab.act("interrupt", job, 0), observed="yes")
        expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), command="not_sent", reason="completing_wait")
        lab.wait_state(job, "PENDING")
        r = expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), reason="ok", observed="yes")
        assert r["after"]["eligible"] == r["after"]["submit"] + 3, r["after"]
        lab.exec("scancel", job)
    finally:
        slow_epilog(lab, 0)


@case
def completes_between_read_and_write(lab):
    job = lab.sbatch(wrap="sleep 4")
    lab.wait_state(job, "RUNNING")
    pause = Pause(lab, "slurm.after_authorize")
    p = lab.start("act", "interrupt", job, "--expect-restarts", "0", env=pause.env)
    pause.reached(p)
    lab.wait_state(job, "COMPLETED")
    pause.go()
    expect(lab.finish(p), command="accepted", observed="no", reason="completed")
    assert lab.job(job)["restarts"] == 0


@case
def slow_authorization_reads_again(lab):
    for guards, command in ((off(), "not_sent"), (off("reread"), "refused")):
        job = lab.sbatch(wrap="exit 3")
        lab.wait_state(job, "FAILED")
        pause = Pause(lab, "slurm.after_read")
        p = lab.start("act", "preserve", job, "--expect-restarts", "0", env={**pause.env, **guards})
        pause.reached(p)
        lab.exec("scontrol", "requeue", job, user="labuser1")  # the owner was faster
        wait_for("time to pass", lambda: lab.job(job)["restarts"] == 1)
        time.sleep(0.6)
        pause.go()
        expect(lab.finish(p), command=command)
        assert lab.job(job)["restarts"] == 1
        lab.exec("scancel", job)


@case
def another_attempt_is_left_alone(lab):
    job = lab.sbatch(wrap="exit 3")
    lab.wait_state(job, "FAILED")
    expect(lab.act("preserve", job, 1), command="not_sent", reason="id_reused", writes=0)
    expect(lab.act("preserve", job, 0, "--expect-submit", "1700000000"), command="not_sent", reason="id_reused")
    lab.exec("scontrol", "requeue", job)
    expect(lab.act("preserve", job, 0), command="not_sent", reason="attempt_superseded", writes=0)
    lab.exec("scancel", job)


@case
def not_requeueable(lab):
    job = lab.sbatch("--no-requeue", wrap="exit 3")
    lab.wait_state(job, "FAILED")
    expect(lab.act("preserve", job, 0), command="not_sent", reason="not_requeueable", writes=0)
    expect(lab.act("preserve", job, 0, env=off("requeueable")), command="refused", observed="no",
           reason="not_requeueable", writes=1)


@case
def srun_job(lab):
    lab.exec("srun", "-J", "interactive", "false", user="labuser1", check=False)
    jobs = lab.adapter("observe")["jobs"]
    job = [j for j in jobs if not j["batch"]][-1]["id"]
    expect(lab.act("preserve", job, 0), command="not_sent", reason="not_batch", writes=0)
    expect(lab.act("preserve", job, 0, env=off("batch")), command="refused", observed="no", reason="not_batch")


@case
def forged_text_stays_text(lab):
    name = "x\nJobState=FAILED Reason=NonZeroExitCode\n1|1|N/A|N/A|N/A|FAILED|0|1"
    comment = '{"advisor": not json\nJobId=1 Requeue=0 Restarts=7\n'
    job = lab.sbatch("-J", name, "--comment", comment, "-o", "out %j.txt")
    lab.wait_state(job, "RUNNING")
    r = expect(lab.adapter("inspect", job), found="found")["job"]
    assert (r["state"], r["restarts"], r["name"], r["comment"]) == ("RUNNING", 0, name, comment), r
    assert r["stdout"] == f"{lab.dir}/home/labuser1/out {job}.txt", r
    o = expect(lab.adapter("observe"), complete=True)
    assert [j["state"] for j in o["jobs"] if j["id"] == job] == ["RUNNING"]
    expect(lab.act("preserve", job, 0), command="not_sent", reason="wrong_state", writes=0)
    lab.exec("scancel", job)


@case
def bytes_that_are_no_utf8(lab):
    p = subprocess.run(lab.argv(["sbatch", "--parsable"], "labuser1") + [b"--comment", b"\xff\xfe{", "-J", b"\xc3",
                                                                     "--wrap", "sleep 300"], capture_output=True)
    job = p.stdout.decode().strip()
    r = expect(lab.adapter("inspect", job), found="found")["job"]
    assert r["comment"] == "\ufffd\ufffd{" and r["name"] == "\ufffd", r
    lab.exec("scancel", job)


@case
def output_paths(lab):
    # %N is left out: in the lab the host's name is not the node's
    for pattern, want in (("%x-%j", "pat-{j}"), ("%5j", "{j:05}"), ("sp ace-%j", "sp ace-{j}"), ("\\%j", "%j"),
                          ("%u.%s.%t.%n", "labuser1.batch.0.0"), ("a%%b", "a%b"), ("%A_%a", "{j}_4294967294")):
        job = lab.sbatch("-J", "pat", "-o", pattern, wrap="true")
        lab.wait_state(job, "COMPLETED", "FAILED")
        r = expect(lab.adapter("inspect", job), found="found")["job"]
        real = f"{lab.dir}/home/labuser1/" + want.format(j=int(job))
        assert r["stdout"] == real and os.path.exists(real), (pattern, r["stdout"], real)


@case
def no_leave_no_write(lab):
    job = lab.sbatch(wrap="exit 3")
    lab.wait_state(job, "FAILED")
    expect(lab.act("preserve", job, 0, "--deny"), command="not_sent", observed="no", reason="lease_lost", writes=0)
    assert lab.job(job)["state"] == "FAILED"


@case
def no_privilege(lab):
    job = lab.sbatch(wrap="exit 3")
    lab.wait_state(job, "FAILED")
    expect(lab.adapter("describe", user="labuser2"), ok=True, privilege="none", verbs=0)
    expect(lab.act("preserve", job, 0, user="labuser2"), command="refused", observed="no", reason="forbidden")
    assert lab.job(job)["state"] == "FAILED"


def make():
    lab = Lab(tool=os.environ["ADAPTERCTL"])
    slow_epilog(lab, 0)
    lab.ctl("conf", f"Epilog={lab.dir}/etc/epilog")
    return lab


main(make)
