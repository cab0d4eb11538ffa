#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what a real Slurm answers to everything the adapter reads, over one job of each kind: recorded/VERSION.json for
test-recorded.py. Run it for each release when the adapter's commands change:

    ADAPTERCTL=build/tests/integration/slurm/adapterctl [ADVISOR_LAB_SUITE=trixie] tests/integration/slurm/record.py
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import recorded  # noqa: E402
from advlab import Lab, wait_for  # noqa: E402

FORGED = 'x\nJobState=FAILED Reason=None\n1|1|N/A|N/A|N/A|FAILED|0|1\t"quoted" \\ %j'
COMMENT = '{"advisor":{"policy":"p"}}\nJobId=1 Restarts=7\n'


def zoo(lab):
    """One job of each kind, submitted in the same order on each release, so that they have the same ids."""
    user = "labuser1"
    sub = lambda *a, **k: lab.sbatch("-n1", *a, **k)  # noqa: E731
    end = lambda job, state: lab.wait_state(job, state, timeout=60)  # noqa: E731
    end(sub("-J", "fails", wrap="exit 3"), "FAILED")
    end(sub("-J", "segv", wrap="kill -SEGV $$"), "FAILED")
    end(sub("-J", "completes", wrap="true"), "COMPLETED")
    j = sub("-J", "cancelled")
    end(j, "RUNNING")
    lab.exec("scancel", j, user=user)
    end(j, "CANCELLED")
    j = sub("-J", "cancelled-waiting", "-H")
    lab.exec("scancel", j, user=user)
    end(j, "CANCELLED")
    held = sub("-J", "held", "-H")
    j = sub("-J", "requeue-held", wrap="exit 3")
    end(j, "FAILED")
    lab.exec("scontrol", "requeuehold", j)
    end(j, "PENDING")
    j = sub("-J", "special", wrap="exit 3")
    end(j, "FAILED")
    lab.exec("scontrol", "requeuehold", "State=SpecialExit", j)
    end(j, "SPECIAL_EXIT")
    end(sub("-J", FORGED, "--comment", COMMENT, "--no-requeue", "-o", "out %j.txt"), "RUNNING")
    array = sub("-J", "array", "-a", "1-3%1", wrap="[ $SLURM_ARRAY_TASK_ID = 1 ] && exit 3; sleep 600")
    lab.wait_state(f"{array}_2", "RUNNING", timeout=60)
    sub("-J", "child", "-d", f"afterok:{held}")
    sub("-J", "excludes", "-H", "-x", f"{lab.node[1]},{lab.node[2]}", "-w", lab.node[0], "-C", "fast|slow")
    sub("-J", "begins", "--begin=now+2hours", "-t", "3:00:00")
    lab.exec("scontrol", "create", "reservation", "reservationname=r1", "starttime=now+9hours", "duration=60",
             "users=labuser1,root", f"nodes={lab.node[3]}")
    sub("-J", "reserved", "--reservation", "r1", "-H")
    lab.exec("srun", "-J", "interactive", "-n1", "false", user=user, check=False)
    node = sub("-J", "node-fail", "--no-requeue", "-w", lab.node[3])
    end(node, "RUNNING")
    lab.exec("scontrol", "update", f"NodeName={lab.node[3]}", "State=DOWN", "Reason=it is|odd, since 3")
    end(node, "NODE_FAIL")
    het = lab.exec("sbatch", "--parsable", "-J", "het", "-n1", ":", "-n1", "--wrap", "sleep 600", user=user)
    end(het, "RUNNING")
    lab.exec("scontrol", "update", f"NodeName={lab.node[2]}", "State=DRAIN", "Reason=Xid 79")
    wait_for("the drain", lambda: "drain" in lab.exec("sinfo", "-h", "-n", lab.node[2], "-o", "%T"))


def record():
    lab = Lab(nodes=4, lines=(), tool=os.environ["ADAPTERCTL"], sets=("SchedulerParameters=sched_interval=1,bf_interval=1",))
    lab.exec("scontrol", "update", f"NodeName={lab.name}n[1-4]", "AvailableFeatures=fast,slow", "ActiveFeatures=fast,slow")
    zoo(lab)
    tape = recorded.Tape(lab)
    jobs = tape.run("observe")["jobs"]
    tape.run("describe")
    tape.run("nodes")
    for j in jobs:
        tape.run("inspect", j["id"])
    # accounting is told a little later
    for j in jobs:
        if j["end"] and j["state"] not in ("RUNNING", "PENDING", "SPECIAL_EXIT"):
            wait_for(f"accounting to know {j['id']}", lambda j=j: tape.run("history", j["id"], "--expect-submit", j["submit"])["found"]
                     == "ended", 30)
    version = lab.exec("squeue", "--version").split()[-1]
    path = os.path.join(HERE, "recorded", f"{version}.json")
    with open(path, "w") as f:
        json.dump(tape.calls(), f, indent=1, ensure_ascii=True, sort_keys=True)
        f.write("\n")
    print(f"{path}: {len(jobs)} jobs")
    lab.purge()


record()
