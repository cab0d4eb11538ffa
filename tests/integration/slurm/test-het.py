#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Heterogeneous jobs on a real Slurm: one job to us, acted on through its leader, as a whole or not at all."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from advlab import Lab, case, expect, main, wait_for

FAIL_ONCE = '[ -n "$SLURM_RESTART_COUNT" ] && sleep 300; exit 3'


def submit(lab, *args, wrap="sleep 300"):
    return lab.exec("sbatch", "--parsable", *args, "--wrap", wrap, user="labuser1")


def lists(lab, job):
    """Excluded nodes of each component, as Slurm's own tool prints them."""
    out = lab.exec("squeue", "-h", "-t", "all", "-j", job, "-o", "%i=%x")
    return dict(sorted(line.strip().split("=") for line in out.splitlines()))


def inspect(lab, job):
    return lab.adapter("inspect", job)["job"]


def preserved(lab, *args):
    job = submit(lab, *args, wrap=FAIL_ONCE)
    wait_for("all to have failed", lambda: [p["state"] for p in inspect(lab, job)["parts"]] == ["FAILED", "FAILED"])
    expect(lab.act("preserve", job, 0), command="accepted", observed="yes", reason="ok", revived_wrongly="no", writes=1)
    wait_for("all to wait", lambda: [p["state"] for p in inspect(lab, job)["parts"]] == ["PENDING", "PENDING"])
    return job


@case
def observed_as_one(lab):
    job = submit(lab, "-N1", ":", "-N2")
    lab.wait_state(job, "RUNNING", timeout=60)
    o = lab.adapter("observe")
    assert [j["id"] for j in o["jobs"] if j["id"].startswith(job)] == [job], o
    seen = [j for j in o["jobs"] if j["id"] == job][0]
    assert seen["node_count"] == 3 and len(lab.exec("scontrol", "show", "hostnames", seen["nodes"]).split()) == 3, seen
    d = inspect(lab, job)
    assert d["nodes"] == seen["nodes"] and [p["id"] for p in d["parts"]] == [f"{job}+0", f"{job}+1"], d
    # a component is nobody's to act on, whatever it is called
    for part in (f"{job}+1", str(int(job) + 1)):
        expect(lab.act("interrupt", part, 0), command="not_sent", reason="invalid", writes=0)
    assert inspect(lab, f"{job}+0") == d  # as earlier versions called the set
    lab.exec("scancel", job)


@case
def failed_set_is_recovered(lab):
    job = preserved(lab, "-N1", ":", "-N2")
    bad = lab.node[0]
    r = expect(lab.act("constrain", job, 1, "--exclude", bad), command="accepted", observed="yes", reason="ok", writes=1,
               excluded=[bad])
    start = r["after"]["submit"] + 3
    assert [(p["excluded"], p["eligible"]) for p in r["after"]["parts"]] == [(bad, start)] * 2, r["after"]
    expect(lab.act("constrain", job, 1, "--exclude", bad, "--before", bad), command="not_sent", reason="already_satisfied")
    expect(lab.act("release", job, 1), command="accepted", observed="yes", reason="ok", writes=1)
    lab.wait_state(job, "RUNNING", timeout=90)  # the backfill scheduler alone starts such jobs
    d = inspect(lab, job)
    assert [(p["state"], p["restarts"]) for p in d["parts"]] == [("RUNNING", 1)] * 2, d
    assert bad not in lab.exec("scontrol", "show", "hostnames", d["nodes"]).split(), d
    # and interrupted as a whole
    expect(lab.act("interrupt", job, 1), command="accepted", observed="yes", reason="ok")
    wait_for("all to wait", lambda: [(p["state"], p["restarts"]) for p in inspect(lab, job)["parts"]] == [("PENDING", 2)] * 2)
    r = expect(lab.act("constrain", job, 2, "--before", bad), reason="ok", excluded=[])
    assert set(lists(lab, job).values()) == {""}, lists(lab, job)
    expect(lab.act("cancel", job, 2), observed="yes", reason="ok")
    wait_for("all to be cancelled", lambda: {p["state"] for p in inspect(lab, job)["parts"]} == {"CANCELLED"})


@case
def components_lists_are_kept(lab):
    job = preserved(lab, "-N1", "-x", lab.node[0], ":", "-N1", "-x", lab.node[1])
    before = lists(lab, job)
    r = expect(lab.act("constrain", job, 1, "--exclude", lab.node[2]), command="accepted", reason="ok", excluded=[])
    assert "components exclude different nodes" in r["notes"][0], r
    assert lists(lab, job) == before == {f"{job}+0": lab.node[0], f"{job}+1": lab.node[1]}, lists(lab, job)
    assert {p["eligible"] for p in r["after"]["parts"]} == {r["after"]["submit"] + 3}, r
    lab.act("constrain", job, 1, "--exclude", lab.node[2], env={"ADVISOR_TEST_DISABLE_GUARD": "component_lists"})
    assert len(set(lists(lab, job).values())) == 1, lists(lab, job)  # the harm
    lab.exec("scancel", job)


@case
def one_list_of_the_user_is_merged(lab):
    job = preserved(lab, "-N1", "-x", lab.node[0], ":", "-N1", "-x", lab.node[0])
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[1]), reason="ok", excluded=[lab.node[1]])
    assert set(lists(lab, job).values()) == {f"{lab.name}n[1-2]"}, lists(lab, job)
    lab.exec("scancel", job)


@case
def every_component_must_be_able_to_run(lab):
    job = preserved(lab, "-N1", ":", "-N3")
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), command="not_sent", reason="constraint_unsatisfiable",
           writes=0)
    lab.exec("scancel", job)
    # asked for by name in a component: Slurm itself excludes it from the others, so their lists differ
    job = preserved(lab, "-N1", ":", "-N1", "-w", lab.node[1])
    assert lists(lab, job) == {f"{job}+0": lab.node[1], f"{job}+1": ""}, lists(lab, job)
    r = expect(lab.act("constrain", job, 1, "--exclude", lab.node[1]), reason="ok", excluded=[])
    assert lists(lab, job) == {f"{job}+0": lab.node[1], f"{job}+1": ""}, lists(lab, job)
    lab.exec("scancel", job)
    # a component's own partition counts, which has no other node
    job = preserved(lab, "-N1", ":", "-N1", "-p", "small")
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[3]), command="not_sent", reason="constraint_unsatisfiable")
    expect(lab.act("constrain", job, 1, "--exclude", lab.node[0]), reason="ok", excluded=[lab.node[0]])
    lab.exec("scancel", job)


@case
def not_requeueable(lab):
    job = submit(lab, "-N1", "--no-requeue", ":", "-N1", wrap="exit 3")
    lab.wait_state(job, "FAILED", timeout=60)
    expect(lab.act("preserve", job, 0), command="not_sent", reason="not_requeueable", writes=0)


@case
def half_a_set_is_never_requeued(lab):
    job = submit(lab, "-N1", ":", "-N1")
    lab.wait_state(job, "RUNNING", timeout=60)
    lab.exec("scancel", f"{job}+1", user="labuser1")
    wait_for("the component's end", lambda: inspect(lab, job)["parts"][1]["state"] == "CANCELLED")
    assert inspect(lab, job)["node_count"] == 1, inspect(lab, job)
    expect(lab.act("interrupt", job, 0), command="not_sent", reason="cancelled_by_user", writes=0)
    r = lab.act("interrupt", job, 0, "--deadline", "4000", env={"ADVISOR_TEST_DISABLE_GUARD": "het_components"})
    assert [p["restarts"] for p in r["after"]["parts"]] == [1, 0], r  # the harm: Slurm takes the leader alone
    assert r["observed"] != "yes", r  # and it does not pass for done
    expect(lab.act("preserve", job, 1), command="not_sent", reason="cancelled_by_user", writes=0)
    lab.exec("scancel", job)


main(lambda: Lab(nodes=4, sets=["SchedulerParameters=bf_interval=1"],
                 lines=[f"PartitionName=small Nodes=t{os.getpid():x}n4 State=UP"], tool=os.environ["ADAPTERCTL"]))
