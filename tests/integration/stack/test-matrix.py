#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each kind of work x each end x each mode on real Slurm: what Advisor did, and what Slurm then showed. The table is
docs/slurm-matrix.md, made by this file (`test-matrix.py --write`), and each cell of it is a case. All jobs run at once; a job's
comment gives the mode, which for a job is the same as the cluster's: the lowest of all counts."""
import functools
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

PAGE = os.path.join(advstack.ROOT, "docs", "slurm-matrix.md")
KINDS = {
    "plain": "a batch job",
    "array": "one task of an array whose other task runs on",
    "het": "a heterogeneous job of two components",
    "child": "a job that waited for another one (`afterok`)",
    "no-requeue": "a job with `--no-requeue`",
    "srun": "an interactive allocation",
}
ENDS = {
    "fault": "fails after a line that names a fault of its node",
    "user": "fails with a Python error of the user's own",
    "silent": "exits with 7 and says nothing",
    "segv": "dies of SIGSEGV and says nothing",
    "completed": "ends well",
    "cancelled": "its owner cancels it",
    "timeout": "runs into its time limit",
    "node-fail": "its node goes down",
    "preempted": "is preempted (`PreemptMode=REQUEUE`)",
    "requeued": "its owner requeues it",
    "requeue-exit": "exits with a code of `RequeueExit`",
    "requeue-hold": "exits with a code of `RequeueExitHold`",
}
MODES = ("act", "approve", "observe", "off", "none")
AGAIN = ("node-fail", "preempted", "requeued", "requeue-exit")
INTERACTIVE = ("fault", "user", "silent", "completed", "cancelled")
SCRIPT = r"""#!/bin/bash
#SBATCH --open-mode=append
say() { for i in 1 2 3; do echo " iteration $i/9000 | consumed samples: $((i * 8)) | elapsed time per iteration (ms): 200.0 | lm loss: 2.5"; sleep 0.3; done; }
say
if [ "${SLURM_ARRAY_TASK_ID:-1}" = 1 ] && [ -z "$SLURM_RESTART_COUNT" ]; then
    until [ -e "$GO" ]; do sleep 0.2; done
    case $END in
    fault) echo "$SLURMD_NODENAME: RuntimeError: CUDA error: uncorrectable ECC error encountered"; sleep 0.5; exit 1 ;;
    user) echo "Traceback (most recent call last):"; echo '  File "train.py", line 3, in <module>'
        echo "ModuleNotFoundError: No module named 'flash_attn'"; exit 1 ;;
    silent) exit 7 ;;
    segv) kill -SEGV $$ ;;
    completed) exit 0 ;;
    requeue-exit) exit 99 ;;
    requeue-hold) exit 98 ;;
    esac
fi
exec sleep 1000
"""

api = advstack.stubs()
s = advstack.Stack(api=api, mode=api.MODE_ACT, nodes=7, cpus=256,
                   sets=["SchedulerParameters=sched_interval=1,bf_interval=1,bf_max_job_test=1000,batch_sched_delay=1,default_queue_depth=1000",
                         "PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE", "RequeueExit=99", "RequeueExitHold=98",
                         "OverTimeLimit=0"],
                   lines=["PartitionName=work Nodes=@n1,@n2,@n7", "PartitionName=frail Nodes=@n3,@n4",
                          "PartitionName=low Nodes=@n5,@n6 PriorityTier=1 PreemptMode=REQUEUE",
                          "PartitionName=high Nodes=@n5,@n6 PriorityTier=10 PreemptMode=OFF"])
HOME = f"{s.lab.dir}/home/labuser1"
GO = f"{HOME}/go"
PARTITION = {"node-fail": "frail", "preempted": "low"}


def cells():
    for kind in KINDS:
        for end in ENDS:
            if kind == "srun" and end not in INTERACTIVE:
                continue
            for mode in MODES:
                if kind == "plain" or mode in ("act", "approve", "observe"):
                    yield kind, end, mode


def submit(kind, end, mode):
    comment = {"none": "", "act": '{"advisor":{"max_restarts":2}}'}.get(mode, f'{{"advisor":{{"max_restarts":2,"mode":"{mode}"}}}}')
    args = ["-p", PARTITION.get(end, "work"), f"--export=ALL,END={end},GO={GO}"] + ([f"--comment={comment}"] if comment else [])
    if kind == "srun":
        s.lab.submitted.append(subprocess.Popen(
            s.lab.argv(["srun", "-n1", f"--job-name={end}-{mode}", *args, "bash", f"{HOME}/matrix.sh"], "labuser1"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return wait_for("the allocation", lambda: s.lab.exec("squeue", "-h", "-n", f"{end}-{mode}", "-o", "%i"), 60)
    if end == "timeout":
        args += ["-t", "1"]
    batch = ["sbatch", "--parsable", f"--output={HOME}/m-%j.log", "--no-requeue" if kind == "no-requeue" else "--requeue", "-n1", *args]
    if kind == "array":
        batch += ["-a", "1-2"]
    elif kind == "het":
        batch += [":", "-n1", "-p", PARTITION.get(end, "work")]
    elif kind == "child":
        parent = s.lab.exec("sbatch", "--parsable", "-n1", "-p", "work", "--output=/dev/null", "--wrap=true", user="labuser1")
        batch += [f"--dependency=afterok:{parent}"]
    job = s.lab.exec(*batch, f"{HOME}/matrix.sh", user="labuser1")
    return f"{job}_1" if kind == "array" else job


def enum(name, value, prefix):
    return getattr(api, name).Name(value).removeprefix(prefix).lower()


@functools.cache
def reader():
    return api.JobServiceStub(s.cp.channel("reader:matrix"))


def timeline(job):
    import grpc
    try:
        return reader().GetJobTimeline(api.GetJobTimelineRequest(ref=api.AttemptRef(cluster=s.cluster, job_id=job)), timeout=20)
    except grpc.RpcError as e:
        if e.code() != grpc.StatusCode.NOT_FOUND:
            raise
        return None


def did(job):
    """What Advisor advised for the job's first attempt, and did."""
    t = timeline(job)
    if not t:
        return "not known"
    words = []
    for a in t.advice:
        words.append(enum("DesiredState", a.desired_state, "DESIRED_STATE_"))
        if a.desired_state != api.DESIRED_STATE_NO_ACTION and a.actionability != api.ACTIONABILITY_ACTIONABLE:
            words.append({api.ACTIONABILITY_SHADOW: "shown only", api.ACTIONABILITY_NEEDS_APPROVAL: "waits for approval"}[a.actionability])
        if a.reasons:
            words.append(f"({', '.join(dict.fromkeys(r.code for r in a.reasons))})")
        if a.status.disposition not in (api.DISPOSITION_UNSPECIFIED, api.DISPOSITION_PENDING):
            words.append(enum("Disposition", a.status.disposition, "DISPOSITION_"))
    verbs = [enum("Verb", x.verb, "VERB_") for x in t.actions]
    return " ".join(words or ["no advice"]) + (": " + ", ".join(verbs) if verbs else "")


def queue():
    """What Slurm shows of all jobs: {id: text}. A set is its leader."""
    rows = s.lab.exec("squeue", "-h", "-r", "-t", "all", "-O", "JobID:|,ArrayJobID:|,ArrayTaskID:|,HetJobOffset:|,State:|,RestartCnt:|")
    lists = s.lab.exec("squeue", "-h", "-r", "-t", "all", "-o", "%A|%x")
    excluded = {n for n, _, x in (r.partition("|") for r in lists.splitlines()) if x}
    out = {}
    for raw, array, task, offset, state, restarts, _ in (r.split("|") for r in rows.splitlines()):
        if offset in ("N/A", "0"):
            job = f"{array}_{task}" if task != "N/A" else raw
            out[job] = state + (f", restarts {restarts}" if restarts != "0" else "") + \
                (", one node excluded" if raw in excluded else "")
    return out


def seen(c, job, q=None):
    shown = (q or queue()).get(job, "gone")
    if c[1] in AGAIN and shown in ("PENDING, restarts 1", "RUNNING, restarts 1"):
        shown = "back in the queue, restarts 1"  # for two minutes, then it runs when there is room
    return did(job), shown


def all_seen(jobs):
    q = queue()
    return {c: seen(c, j, q) for c, j in jobs.items()}


def start_all():
    """All jobs run and are known to run, then each gets its end."""
    with open(f"{HOME}/matrix.sh", "w") as f:
        f.write(SCRIPT)
    os.chmod(f"{HOME}/matrix.sh", 0o755)
    s.lab.submitted = []
    s.agent.start()
    s.wait_connected(120)
    # those whose time runs come last
    jobs = {c: submit(*c) for c in sorted(cells(), key=lambda c: c[1] == "timeout")}
    jobs = {c: jobs[c] for c in cells()}
    for c, job in sorted(jobs.items(), key=lambda c: c[0][1] != "timeout"):
        wait_for(f"{c} to be known as running", lambda j=job: (t := timeline(j)) and t.attempts and
                 t.attempts[-1].state == api.JOB_STATE_RUNNING, 60)
    s.lab.exec("touch", GO, user="labuser1")
    ids = lambda end: [j for (k, e, m), j in jobs.items() if e == end]  # noqa: E731
    s.lab.exec("scancel", *ids("cancelled"), user="labuser1")
    for j in ids("requeued"):
        s.lab.exec("scontrol", "requeue", j, user="labuser1", check=False)
    s.lab.exec("scontrol", "update", f"NodeName={s.lab.node[2]},{s.lab.node[3]}", "State=DOWN", "Reason=gone")
    s.lab.high = s.lab.exec("sbatch", "--parsable", "-p", "high", "--exclusive", "-N2", "--output=/dev/null", "--wrap=sleep 1000",
                            user="labuser2")
    return jobs


def page(rows):
    out = ["<!-- SPDX-License-Identifier: Apache-2.0 -->", "<!-- made by tests/integration/stack/test-matrix.py --write -->",
           "# What Advisor does with each kind of work, each end, each mode", "",
           "Each row is a case of `tests/integration/stack/test-matrix.py`, observed on a real Slurm: what Advisor advised (with its",
           "reasons) and did, and what Slurm showed afterwards. The mode is the lowest of the cluster's, the site's ceiling, the policy's and",
           "the job's own; `none` is a job without a word about Advisor. Out of memory, a node that does not boot, and a job revoked by a",
           "federation cannot be produced by the test's cluster (no cgroups, no power saving, no federation); they are decided in",
           "`tests/domain/`. Array, het and child jobs have the rows of a plain one where only the mode would differ (off, none).", ""]
    for title, words in (("Kinds", KINDS), ("Ends", ENDS)):
        out += [f"**{title}.** " + "; ".join(f"*{k}*: {v}" for k, v in words.items()) + ".", ""]
    out += ["| kind | end | mode | Advisor | Slurm |", "|---|---|---|---|---|"]
    out += [f"| {k} | {e} | {m} | {a} | {b} |" for (k, e, m), (a, b) in rows.items()]
    return "\n".join(out) + "\n"


def expected():
    with open(PAGE) as f:
        rows = [line.strip().strip("|").split(" | ") for line in f if line.startswith("| ") and not line.startswith("| kind")]
    return {tuple(w.strip() for w in r[:3]): tuple(w.strip() for w in r[3:5]) for r in rows}


def settled(jobs, quiet_s):
    """For a new page: what is there when nothing has changed for a while."""
    last, since = None, time.monotonic()
    while time.monotonic() - since < quiet_s:
        now = all_seen(jobs)
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(2)
    return last


if "--write" in sys.argv:
    rows = settled(start_all(), 60)
    with open(PAGE, "w") as f:
        f.write(page(rows))
    s.stop()
    sys.exit(0)

WANT = expected()
JOBS = {}


def begin():
    JOBS.update(start_all())
    assert set(WANT) == set(JOBS), f"the page has other cells: {set(WANT) ^ set(JOBS)}"
    assert open(PAGE).read() == page({c: WANT[c] for c in JOBS}), "the page's text is not this file's"


def cell(c):
    def run():
        try:
            wait_for("the cell", lambda: seen(c, JOBS[c]) == WANT[c], 150, 0.5)
        except AssertionError:
            raise AssertionError(f"expected {WANT[c]}, got {seen(c, JOBS[c])}\n{s.story(JOBS[c])}")
    run.__name__ = "_".join(c).replace("-", "_")
    return run


def nothing_more_happens():
    """All have come to rest, and after some more looks are as they were."""
    for _ in range(3):  # a look shows a new job's end
        job = s.lab.sbatch("-p", "work", "--output=/dev/null", wrap="true")
        wait_for("a new job to be seen", lambda: (t := timeline(job)) and t.attempts and t.attempts[-1].end_time.seconds, 60)
    other = {c: (now, WANT[c]) for c, now in all_seen(JOBS).items() if now != WANT[c]}
    assert not other, other


def clean_end():
    s.lab.exec("scancel", "-u", "labuser1,labuser2", check=False)
    for p in s.lab.submitted:
        p.wait(60)
    s.stop()


advstack.run([begin] + [cell(c) for c in cells()] + [nothing_more_happens, clean_end])
