#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sick or silent Slurm, and lost privileges: unknown is never empty, late is not lost."""
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from advlab import Lab, case, expect, main, wait_for


def frozen_write(lab, job, thaw_after, *args):
    """Freezes slurmctld between leave and command; the command's client is killed after two seconds."""
    go = tempfile.mktemp(dir=lab.dir)
    p = lab.start("--command-deadline", "2000", "act", "preserve", job, "--expect-restarts", "0", *args,
                  env={"ADVISOR_FAILPOINT": f"slurm.after_authorize=pause:{go}"})
    while b"hit" not in p.stderr.readline():
        assert p.poll() is None
    lab.ctl("freeze", "ctld")
    try:
        open(go, "w").close()
        time.sleep(thaw_after)
    finally:
        lab.ctl("thaw", "ctld")
    return lab.finish(p)


@case
def empty_is_believed_when_proven(lab):
    expect(lab.adapter("observe"), complete=True, jobs=[])


@case
def late_command_is_observed_and_not_repeated(lab):
    job = lab.sbatch(wrap="exit 3")
    lab.wait_state(job, "FAILED")
    r = expect(frozen_write(lab, job, 4), command="timed_out", observed="yes", reason="ok", writes=1)
    assert r["after"]["restarts"] == 1 and lab.job(job)["restarts"] == 1, r
    lab.exec("scancel", job)


@case
def too_late_command_never_lands(lab):
    job = lab.sbatch(wrap="exit 3")
    lab.wait_state(job, "FAILED")
    expect(frozen_write(lab, job, 23), command="timed_out", observed="no", reason="unavailable", writes=1)
    assert lab.job(job)["restarts"] == 0


@case
def silent_controller(lab):
    job = lab.sbatch(wrap="exit 3")
    lab.wait_state(job, "FAILED")
    lab.ctl("freeze", "ctld")
    try:
        for args in (["observe"], ["nodes"]):
            r = expect(lab.adapter("--command-deadline", "2000", *args), complete=False)
            assert r["error"], r
        expect(lab.adapter("--command-deadline", "2000", "inspect", job), found="unknown")
        expect(lab.adapter("--command-deadline", "2000", "describe"), ok=False)
    finally:
        lab.ctl("thaw", "ctld")
    expect(lab.adapter("observe"), complete=True)


@case
def dead_controller(lab):
    job = lab.sbatch(wrap="exit 3")
    lab.wait_state(job, "FAILED")
    time.sleep(7)  # its state is saved some seconds later
    lab.ctl("kill", "ctld")
    try:
        expect(lab.adapter("observe"), complete=False, unknown_reason="unavailable")
        expect(lab.act("preserve", job, 0, "--expect-submit", "1"), command="not_sent", observed="unknown",
               reason="unavailable")
    finally:
        lab.ctl("start", "ctld")
    expect(lab.adapter("inspect", job), found="found")


@case
def gone_is_positive(lab):
    expect(lab.adapter("inspect", "999999"), found="gone")
    expect(lab.adapter("inspect", "999999_3"), found="gone")
    expect(lab.adapter("inspect", "nonsense"), found="unknown")
    expect(lab.act("preserve", "999999", 0), command="not_sent", reason="gone")


@case
def lost_operator_is_unknown(lab):
    job = lab.sbatch(wrap="exit 3")
    lab.wait_state(job, "FAILED")
    lab.ctl("conf", "PrivateData=jobs")
    o = expect(lab.adapter("observe"), complete=True)
    assert any(j["id"] == job for j in o["jobs"]), o
    expect(lab.adapter("inspect", "999999"), found="gone")
    lab.exec("sacctmgr", "-i", "modify", "user", "laboper", "set", "adminlevel=None")
    try:
        wait_for("the loss", lambda: lab.adapter("describe").get("privilege") == "none")
        expect(lab.adapter("observe"), complete=False, unknown_reason="partial_sight", jobs=[])
        expect(lab.adapter("inspect", job), found="unknown")
        expect(lab.adapter("inspect", "999999"), found="unknown")
        expect(lab.act("preserve", job, 0), command="not_sent", observed="unknown", reason="unavailable")
    finally:
        lab.exec("sacctmgr", "-i", "modify", "user", "laboper", "set", "adminlevel=Operator")
    wait_for("the level again", lambda: lab.adapter("describe").get("privilege") == "operator")
    expect(lab.adapter("observe"), complete=True)
    lab.ctl("conf", "PrivateData=")


@case
def mass_disappearance_waits_for_accounting(lab):
    lab.ctl("conf", "MinJobAge=2")
    job = lab.sbatch("-H", "-a", "1-20")
    p = lab.start("observe", "--times", "4", "--interval", "20000")
    time.sleep(2)
    lab.exec("scancel", job)
    wait_for("slurmctld to forget them", lambda: not lab.job(f"{job}_1"), 60)
    runs = lab.finish(p, timeout=180)
    seen = [(r["complete"], r["unknown_reason"], sum(j["id"].startswith(job + "_") for j in r["jobs"])) for r in runs]
    print(f"# {seen}")
    assert seen[0] == (True, "", 20), seen
    gone = [s for s in seen[1:] if s[2] == 0]
    assert gone and gone[0][:2] == (False, "mass_disappearance") and gone[-1][0], seen
    lab.ctl("conf", "MinJobAge=300")


@case
def missing_slurm_conf_is_said_at_once(lab):
    began = time.monotonic()
    r = lab.adapter("observe", env={"X": ""})
    expect(r, complete=True)
    os.rename(f"{lab.dir}/etc/slurm.conf", f"{lab.dir}/etc/slurm.conf.away")
    try:
        r = expect(lab.adapter("observe"), complete=False, unknown_reason="unavailable")
        assert "slurm.conf" in r["error"] and time.monotonic() - began < 10, r
    finally:
        os.rename(f"{lab.dir}/etc/slurm.conf.away", f"{lab.dir}/etc/slurm.conf")


main(lambda: Lab(tool=os.environ["ADAPTERCTL"]))
