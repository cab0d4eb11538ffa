#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kinds of work on real Slurm through every part: an array's tasks are jobs of their own, a heterogeneous job is one job, and
an interactive allocation is only looked at."""
import functools
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

api = advstack.stubs()
s = advstack.Stack(api=api, mode=api.MODE_ACT, sets=["SchedulerParameters=bf_interval=1,batch_sched_delay=1"])
CASES = []
DONE = api.DISPOSITION_CONVERGED
CONSENT = '{"advisor":{"max_restarts":1}}'
HOME = f"{s.lab.dir}/home/labuser1"


def case(f):
    """Cases begin with an empty queue, also after one that failed."""
    @functools.wraps(f)
    def alone():
        if not s.agent.alive():
            s.agent.start()
            s.wait_connected()
        s.lab.exec("scancel", "-u", "labuser1", check=False)
        wait_for("an empty queue", lambda: not s.lab.exec("squeue", "-h", "-u", "labuser1"), 60)
        f()
    CASES.append(alone)
    return alone


def array(spec, bad, *args, comment=CONSENT, steps=600):
    """Tasks named in @bad fail as `fault` does, once; the others run on."""
    path = f"{HOME}/array.sh"
    with open(path, "w") as f:
        f.write("#!/bin/bash\n#SBATCH --open-mode=append\n"
                f'case " {bad} " in *" $SLURM_ARRAY_TASK_ID "*) export SCENE=fault ;; *) export SCENE=well ;; esac\n'
                f'export STEPS={steps}\nexec bash {HOME}/train.sh\n')
    with open(f"{HOME}/train.sh", "w") as f:
        f.write(advstack.TRAIN)
    return s.lab.exec("sbatch", "--parsable", "--requeue", f"--array={spec}", f"--comment={comment}",
                      f"--output={HOME}/out-%A_%a.log", *args, path, user="labuser1")


def actions(job):
    t = s.timeline(job)
    return list(t.actions) if t else []


def no_other_touched(job, tasks):
    for t in tasks:
        j = s.lab.job(f"{job}_{t}")
        assert j["restarts"] == 0 and not j["excluded"], (t, j)
        assert not actions(f"{job}_{t}"), (t, actions(f"{job}_{t}"))


@case
def one_task_of_a_running_array():
    job = array("1-3", "3")
    s.lab.wait_state(f"{job}_3", "RUNNING", timeout=60)
    raw = s.lab.exec("squeue", "-h", "-r", "-t", "all", "-j", f"{job}_3", "-o", "%A")
    assert raw == job, raw  # the number of this task's record is the array's own
    a = s.wait_advice(f"{job}_3", match=lambda a: a.status.disposition == DONE, what="convergence", timeout=90)
    assert list(a.exclude_nodes), a
    verbs = [x.verb for x in actions(f"{job}_3")]
    assert verbs == [api.VERB_PRESERVE, api.VERB_CONSTRAIN, api.VERB_RELEASE], verbs
    s.lab.wait_state(f"{job}_3", "RUNNING", timeout=60)
    j = s.lab.job(f"{job}_3")
    assert j["restarts"] == 1 and j["excluded"] == a.exclude_nodes[0], j
    no_other_touched(job, (1, 2))
    assert {s.lab.job(f"{job}_{t}")["state"] for t in (1, 2)} == {"RUNNING"}


@case
def each_task_has_its_own_budget():
    job = array("1-2", "1 2")  # max_restarts 1 each
    for t in (1, 2):
        s.wait_advice(f"{job}_{t}", match=lambda a: a.status.disposition == DONE, what="convergence", timeout=90)
        s.lab.wait_state(f"{job}_{t}", "RUNNING", timeout=60)
        assert s.lab.job(f"{job}_{t}")["restarts"] == 1, s.lab.job(f"{job}_{t}")


@case
def tasks_that_wait_behind_a_throttle():
    job = array("1-4%1", "1", steps=20)
    s.lab.wait_state(f"{job}_1", "RUNNING", timeout=60)
    # one record for three tasks, each of which is a job to us
    wait_for("the tasks that wait", lambda: all((t := s.timeline(f"{job}_{i}")) and t.attempts[0].state == api.JOB_STATE_PENDING
                                                for i in (2, 3, 4)), 30)
    s.wait_advice(f"{job}_1", match=lambda a: a.status.disposition == DONE, what="convergence", timeout=90)
    assert s.lab.job(f"{job}_1")["restarts"] == 1, s.lab.job(f"{job}_1")
    no_other_touched(job, (2, 3, 4))
    most = 0

    def all_done():
        nonlocal most
        states = s.lab.exec("squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%T").split()
        most = max(most, states.count("RUNNING"))
        return set(states) == {"COMPLETED"}
    wait_for("all to complete", all_done, 150)
    assert most == 1, most  # the throttle held, the recovered task included
    no_other_touched(job, (2, 3, 4))


@case
def a_task_that_requeues_itself():
    path, go = f"{HOME}/self.sh", f"{HOME}/requeue-now"
    with open(path, "w") as f:
        f.write("#!/bin/bash\n"
                'if [ "$SLURM_ARRAY_TASK_ID" = 2 ] && [ -z "$SLURM_RESTART_COUNT" ]; then\n'
                f'  while [ ! -e {go} ]; do sleep 0.1; done\n'
                '  echo "RuntimeError: CUDA error: uncorrectable ECC error encountered"\n'
                '  scontrol requeue "${SLURM_ARRAY_JOB_ID}_2"; fi\nsleep 300\n')
    job = s.lab.exec("sbatch", "--parsable", "--requeue", "--array=1-4", f"--comment={CONSENT}",
                     f"--output={HOME}/out-%A_%a.log", path, user="labuser1")
    wait_for("the first attempt to be seen", lambda: (t := s.timeline(f"{job}_2")) and t.attempts[0].state == api.JOB_STATE_RUNNING,
             60)
    open(go, "w").close()
    wait_for("the task's own requeue", lambda: s.lab.job(f"{job}_2").get("restarts") == 1, 60)
    wait_for("it to be seen", lambda: (t := s.timeline(f"{job}_2")) and len(t.attempts) == 2, 30)
    time.sleep(4)  # time in which a second requeue would happen: the shared cause's window and a poll
    assert s.lab.job(f"{job}_2")["restarts"] == 1, s.lab.job(f"{job}_2")
    assert not actions(f"{job}_2"), actions(f"{job}_2")
    no_other_touched(job, (1, 3, 4))


@case
def launches_that_fail_are_slurms_to_hold():
    bad = s.lab.node[0]
    prolog = f"{s.lab.dir}/etc/prolog"
    with open(prolog, "w") as f:
        f.write(f'#!/bin/sh\n[ "$SLURMD_NODENAME" = {bad} ] && exit 1\nexit 0\n')
    os.chmod(prolog, 0o755)
    s.lab.ctl("conf", f"Prolog={prolog}")
    job = array("1-6", "", "--exclusive")
    def held():
        rows = s.lab.exec("squeue", "-h", "-r", "-j", job, "-O", "ArrayTaskID:|,PriorityLong:|,Reason:|").splitlines()
        return [r.split("|")[0] for r in rows if "launch failed requeued held" in r]
    wait_for("a task that could not be launched", held, 90)
    for t in held():
        # under its own id, once Slurm has taken it back: its next attempt waits
        wait_for("it to be shown", lambda t=t: (x := s.timeline(f"{job}_{t}", s.lab.job(f"{job}_{t}")["restarts"])) and
                 x.attempts[-1].state == api.JOB_STATE_PENDING, 30)
    time.sleep(4)  # time in which something wrong would happen
    for t in range(1, 7):
        assert not actions(f"{job}_{t}"), (t, actions(f"{job}_{t}"))
    assert held(), "still held"
    s.lab.ctl("conf", "Prolog=")
    s.lab.exec("scontrol", "update", f"NodeName={bad}", "State=RESUME", check=False)  # not every release drains it


@case
def heterogeneous_job_is_one_job():
    job = s.submit("fault", "-N1", ":", "-N1", comment=CONSENT, STEPS="600")
    s.lab.wait_state(job, "RUNNING", timeout=60)
    a = s.wait_advice(job, match=lambda a: a.status.disposition == DONE, what="convergence", timeout=90)
    t = s.timeline(job)
    assert len(a.exclude_nodes) == 1 and "," not in a.exclude_nodes[0], a
    verbs = [x.verb for x in t.actions]
    assert verbs == [api.VERB_PRESERVE, api.VERB_CONSTRAIN, api.VERB_RELEASE], verbs
    nodes = s.lab.exec("scontrol", "show", "hostnames", t.attempts[0].nodes).split()
    assert len(nodes) == 2, t.attempts[0]  # of both components
    rows = s.lab.exec("squeue", "-h", "-t", "all", "-j", job, "-O", "HetJobOffset:|,RestartCnt:|,State:|").splitlines()
    assert {r.split("|")[1].strip() for r in rows} == {"1"}, rows
    lists = s.lab.exec("squeue", "-h", "-t", "all", "-j", job, "-o", "%x").split()
    assert lists == [a.exclude_nodes[0]] * 2, lists
    for part in (f"{job}+0", f"{job}+1", str(int(job) + 1)):
        assert s.timeline(part) is None, part
    s.lab.wait_state(job, "RUNNING", timeout=90)


@case
def cancelled_component_ends_the_recovery():
    mark = f"{HOME}/go-on"
    job = s.submit("fault", "-N1", ":", "-N1", comment=CONSENT, UNTIL=mark)
    def states():
        rows = s.lab.exec("squeue", "-h", "-t", "all", "-j", job, "-O", "HetJobOffset:|,State:|,RestartCnt:|").splitlines()
        return {r.split("|")[0].strip(): (r.split("|")[1].strip(), r.split("|")[2].strip()) for r in rows}
    wait_for("all to run", lambda: {x[0] for x in states().values()} == {"RUNNING"}, 60)
    s.lab.exec("scancel", f"{job}+1", user="labuser1")
    wait_for("the component's end", lambda: states()["1"][0] == "CANCELLED", 30)
    open(mark, "w").close()
    wait_for("the leader's end", lambda: states()["0"][0] == "FAILED", 60)
    a = s.wait_advice(job, match=lambda a: a.status.disposition not in (DONE, api.DISPOSITION_PENDING), what="an end", timeout=60)
    assert a.status.disposition == api.DISPOSITION_ABANDONED, a
    assert states() == {"0": ("FAILED", "0"), "1": ("CANCELLED", "0")}, states()
    assert all(x.command == api.COMMAND_RESULT_NOT_SENT for x in actions(job)), actions(job)


@case
def interactive_allocations_are_looked_at():
    s.lab.exec("srun", f"--comment={CONSENT}", "--job-name=byhand", "sh", "-c", "exit 3", user="labuser1", check=False)
    job = s.lab.exec("squeue", "-h", "-t", "all", "--name=byhand", "-o", "%A")
    wait_for("the end to be known", lambda: (t := s.timeline(job)) and t.attempts[0].state == api.JOB_STATE_FAILED, 30)
    a = s.wait_advice(job)
    assert a.desired_state == api.DESIRED_STATE_NO_ACTION, a
    modes = list(s.timeline(job).job.mode_reasons)
    assert any("interactive" in m for m in modes), modes
    assert not actions(job) and s.lab.job(job)["restarts"] == 0


def stops_clean():
    s.stop()


CASES.append(stops_clean)


advstack.run(CASES)
