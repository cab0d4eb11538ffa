#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a person did to a job stays done, and a job that helps itself is left alone. Each layer that sees to it is tried
without the others: the control plane before an agent whose guards are off, the agent under a control plane that orders
nonsense, and the last read before the write by taking it away, after which the harm is done."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advfake  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

s = advcrash.CrashStack(**{"detect.suspicion_grace": "3s"})
api = s.api
ALL_GUARDS = "identity,attempt,completing,state,our_hold,comment,reread"
EPILOG = f"{s.lab.dir}/etc/epilog"


def epilog(seconds):
    with open(EPILOG + ".new", "w") as f:
        f.write(f"#!/bin/sh\nsleep {seconds}\n")
    os.chmod(EPILOG + ".new", 0o755)
    os.replace(EPILOG + ".new", EPILOG)


epilog(0)
s.lab.ctl("conf", f"Epilog={EPILOG}")


def restart(failpoint=None, guard=None):
    s.agent.kill()
    s.agent.start(failpoint=failpoint, guard=guard)
    s.wait_connected()


def state_of(job, attempt=0):
    t = s.timeline(job)
    return t.attempts[attempt].state if t and len(t.attempts) > attempt else None


def untouched(job, state, restarts=0):
    time.sleep(2.5)  # time in which something wrong would happen; nothing is waited for
    j = s.lab.job(job)
    assert (j["state"], j["restarts"]) == (state, restarts), (j, s.describe(job))
    operator = [w for w in s.writes(job) if "uid=1003" in w or "uid 1003" in w or "Requeuing" in w]
    assert len([w for w in operator if "Requeuing" in w]) == restarts and len(operator) == restarts, operator


# The control plane: with every guard of the agent off it is what holds.

def cancelled_while_completing__control_plane():
    restart(guard=ALL_GUARDS)
    epilog(4)
    job = s.fail(LINGER=60)
    wait_for("the suspicion", lambda: (t := s.timeline(job)) and t.anomalies, 40)
    s.lab.exec("scancel", job, user="labuser1")
    s.lab.wait_state(job, "COMPLETING")
    wait_for("the end to be known", lambda: state_of(job) == api.JOB_STATE_CANCELLED, 40)
    epilog(0)
    untouched(job, "CANCELLED")
    a = s.advice(job)
    assert a is None or a.desired_state == api.DESIRED_STATE_NO_ACTION, a


def completed_while_completing__control_plane():
    """The program ends well after its error; while COMPLETING nobody can tell it from a failure."""
    restart(guard=ALL_GUARDS)
    epilog(4)
    job = s.submit("caught", STEPS=2, STEP_S=0.05)  # the error is the last it prints before the end
    s.lab.wait_state(job, "COMPLETING", timeout=30)
    wait_for("the end to be known", lambda: state_of(job) == api.JOB_STATE_COMPLETED, 40)
    epilog(0)
    untouched(job, "COMPLETED")


def recovers_by_itself():
    """An error, two seconds of silence, then steps again: left alone. Silent for longer than the grace: interrupted."""
    restart(guard=ALL_GUARDS)
    s.lab.exec("mkdir", "-p", f"{s.lab.dir}/home/labuser1/hang", user="labuser1")
    script = f"{s.lab.dir}/home/labuser1/hang.sh"
    with open(script, "w") as f:
        f.write("""#!/bin/bash
N=${SLURM_RESTART_COUNT:-0}
step() { echo " iteration $1/100 | consumed samples: 8 | elapsed time per iteration (ms): 200.0 | lm loss: 2.5"; sleep 0.3; }
for i in 1 2 3 4; do step $i; done
if [ $N = 0 ]; then
    echo "$SLURMD_NODENAME: RuntimeError: CUDA error: uncorrectable ECC error encountered"; sleep $SILENT
fi
for i in $(seq 5 20); do step $i; done
""")
    os.chmod(script, 0o755)

    def submit(silent):
        return s.lab.exec("sbatch", "--parsable", "--requeue", '--comment={"advisor":{}}', f"--export=ALL,SILENT={silent}",
                          f"--output={s.lab.dir}/home/labuser1/hang-%j.log", script, user="labuser1")
    good, bad = submit(1.5), submit(60)
    a = s.wait_advice(bad, match=lambda a: a.desired_state == api.DESIRED_STATE_RESTARTED, what="advice to interrupt")
    s.wait_advice(bad, match=lambda a: a.status.disposition == api.DISPOSITION_CONVERGED, what="convergence", timeout=60)
    assert s.lab.job(bad)["restarts"] == 1 and a.exclude_nodes, a
    wait_for("the good one's end", lambda: state_of(good) == api.JOB_STATE_COMPLETED, 60)
    untouched(good, "COMPLETED")
    assert all(x.status == api.ANOMALY_STATUS_WITHDRAWN for x in s.timeline(good).anomalies), s.timeline(good).anomalies
    s.lab.exec("scancel", bad, user="labuser1")


# The last read before the write.

def person_between_read_and_write(what, guard):
    """The owner takes the failed job back while PRESERVE stands between its read and its write."""
    def case():
        go = f"{s.lab.dir}/go-{what}-{guard}"
        restart(f"slurm.after_read=pause:{go}", guard)
        # the second attempt ends by itself, or not before its owner cancels it
        job = s.fail(STEPS=6 if what == "completed" else 1000)
        s.agent.wait_log("failpoint slurm.after_read hit")
        s.lab.exec("scontrol", "requeue", job, user="labuser1")  # as any owner may
        s.lab.wait_state(job, "PENDING")  # no longer completing, which would lose the start time
        s.lab.exec("scontrol", "update", f"JobId={job}", "StartTime=now+3", user="labuser1")
        s.lab.wait_state(job, "RUNNING", "COMPLETED", timeout=30)
        if what == "cancelled":
            s.lab.exec("scancel", job, user="labuser1")
        s.lab.wait_state(job, what.upper(), timeout=30)
        open(go, "w").close()
        try:
            outcome(job)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{s.describe(job)}")

    def outcome(job):
        if guard is None:
            s.wait_advice(job, match=lambda a: a.status.disposition == api.DISPOSITION_SUPERSEDED, what="the end of the advice")
            j = s.lab.job(job)
            assert (j["state"], j["restarts"]) == (what.upper(), 1), (j )
            assert not [x for x in s.timeline(job).actions if x.command == api.COMMAND_RESULT_ACCEPTED], s.timeline(job).actions
            assert len(s.ctld(job, "Requeuing")) == 1
        else:  # the harm
            wait_for("the revival", lambda: s.lab.job(job)["restarts"] == 2, 20)
            wait_for("the end of the step", lambda: "step done" in s.agent.log(), 20)
            assert len(s.ctld(job, "Requeuing")) == 2 and any("uid" in w for w in s.writes(job))
            print("# accounting afterwards: " + " ".join(s.lab.exec("sacct", "-nXPD", "-j", job, "-o", "Submit,State").split()),
                  flush=True)
            s.lab.exec("scancel", job)
            s.wait_advice(job, match=lambda a: a.status.disposition != api.DISPOSITION_PENDING, what="the end of the advice")
            # the next case's failpoint must not meet this order again
            s.wait_advice(job, match=lambda a: a.status.disposition != api.DISPOSITION_PENDING, what="the end of the advice",
                          timeout=60)
    return advcrash.named(f"{what}_between_read_and_write__{'guarded' if guard is None else 'without_' + guard}", case)


def cancelled_before_interrupt():
    """The advice to interrupt is there, the agent has it, and then the owner cancels."""
    go = f"{s.lab.dir}/go-interrupt"
    restart(f"agent.order_received=pause:{go}", ALL_GUARDS)
    job = s.fail(LINGER=60)
    s.agent.wait_log("failpoint agent.order_received hit", 40)
    s.lab.exec("scancel", job, user="labuser1")
    s.lab.wait_state(job, "CANCELLED")
    open(go, "w").close()
    wait_for("the end to be known", lambda: state_of(job) == api.JOB_STATE_CANCELLED, 40)
    untouched(job, "CANCELLED")


# The agent: a control plane that orders the restart of anything does no harm.

def agent_alone():
    epilog(0)
    fake = advfake.FakeControl(api, s.ca)
    agent = advstack.Agent(s, name="alone", **{"control_plane.target": f"127.0.0.1:{fake.port}",
                                               "scheduler.landing_bound": "2s", "poll.interval": "1s"})
    agent.start(guard=ALL_GUARDS.replace("reread", "x"))  # reconcile by itself; the adapter's guards are off as well
    agent.wait_log("lease granted")

    def known(job, what):
        return wait_for(f"job {job} {what}", lambda: (j := fake.job(job)) and what(j) and j, 40)

    def abandoned(name, reason):
        st = wait_for(f"the status of {name}: {agent.log()[-1500:]}", lambda: [x for x in fake.statuses(name) if
                      x.disposition != api.DISPOSITION_PENDING], 30)[-1]
        assert st.disposition == api.DISPOSITION_ABANDONED and st.reason == reason, st
        assert not fake.actions(name), fake.actions(name)

    ends = {}
    for what, wrap in (("CANCELLED", "sleep 60"), ("COMPLETED", "exit 0"), ("RUNNING", "sleep 100"), ("OFF", "exit 1"),
                       ("FAILED", "exit 1"), ("COMPLETING", "sleep 60")):
        comment = '{"advisor":{"mode":"off"}}' if what == "OFF" else '{"advisor":{}}'
        ends[what] = s.lab.exec("sbatch", "--parsable", "--requeue", f"--comment={comment}", "--output=/dev/null", "--wrap",
                                wrap, user="labuser1")
    s.lab.wait_state(ends["CANCELLED"], "RUNNING", timeout=30)
    s.lab.exec("scancel", ends["CANCELLED"], user="labuser1")
    why = api
    name = fake.order(known(ends["CANCELLED"], lambda j: j.state == api.JOB_STATE_CANCELLED and not j.completing))
    abandoned(name, why.DISPOSITION_REASON_CONFLICTING_USER_ACTION)
    name = fake.order(known(ends["COMPLETED"], lambda j: j.state == api.JOB_STATE_COMPLETED and not j.completing))
    abandoned(name, why.DISPOSITION_REASON_ALREADY_SATISFIED)
    name = fake.order(known(ends["OFF"], lambda j: j.state == api.JOB_STATE_FAILED))
    abandoned(name, why.DISPOSITION_REASON_OPTED_OUT)
    # another job under this number
    j = known(ends["FAILED"], lambda j: j.state == api.JOB_STATE_FAILED and not j.completing)
    abandoned(fake.order(j, incarnation_unix=j.incarnation_unix - 7, name="clusters/lab/jobs/x/attempts/0/advice"),
              why.DISPOSITION_REASON_JOB_ID_REUSED)
    # not to be interrupted
    running = fake.order(known(ends["RUNNING"], lambda j: j.state == api.JOB_STATE_RUNNING))
    # cancelled, but not visibly so yet
    s.lab.wait_state(ends["COMPLETING"], "RUNNING", timeout=30)
    seen = known(ends["COMPLETING"], lambda j: j.state == api.JOB_STATE_RUNNING)
    epilog(5)
    s.lab.exec("scancel", ends["COMPLETING"], user="labuser1")
    s.lab.wait_state(ends["COMPLETING"], "COMPLETING")
    name = fake.order(seen, may_interrupt=True)
    abandoned(name, why.DISPOSITION_REASON_CONFLICTING_USER_ACTION)
    epilog(0)
    assert not fake.actions(running) and s.lab.job(ends["RUNNING"])["state"] == "RUNNING"
    # what is right is still done
    name = fake.order(j, exclude_nodes="")
    wait_for(f"the failed one's restart: {agent.log()[-1500:]}",
             lambda: any(x.disposition == api.DISPOSITION_CONVERGED for x in fake.statuses(name)), 30)
    for what, job in ends.items():
        if what != "FAILED":
            assert s.lab.job(job)["restarts"] == 0 and not s.ctld(job, "Requeuing"), (what, s.describe(job))
    for job in ends.values():
        s.lab.exec("scancel", job)
    agent.stop()
    fake.stop()


s.agent.start()
s.wait_connected()
advstack.run([cancelled_while_completing__control_plane, completed_while_completing__control_plane, recovers_by_itself] + [
    person_between_read_and_write(w, g) for w in ("completed", "cancelled") for g in (None, "reread")] + [
    cancelled_before_interrupt, agent_alone, advcrash.clean_end(s)])
