#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One failed job on real Slurm through every part: what is done, and what must not be done."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

api = advstack.stubs()
s = advstack.Stack(api=api)
CASES = []
DONE = api.DISPOSITION_CONVERGED


def case(f):
    CASES.append(f)
    return f


def untouched(job, log_mark):
    """By slurmctld's own log nobody changed the job, and Slurm shows it as it ended."""
    j = s.lab.job(job)
    assert j["restarts"] == 0 and j["state"] == "FAILED", j
    new = [line for line in s.writes(job)]
    assert not new, new
    return log_mark


@case
def observe_writes_advice_and_touches_nothing():
    s.agent.start()
    wait_for("the agent", lambda: s.cluster_view().agent_state == api.AGENT_STATE_CONNECTED, 60)
    job = s.submit("fault")
    a = s.wait_advice(job)
    assert a.desired_state == api.DESIRED_STATE_RESTARTED and a.actionability == api.ACTIONABILITY_SHADOW, a
    time.sleep(3)  # time in which something wrong would happen; nothing is waited for
    untouched(job, 0)


@case
def act_recovers_without_the_node():
    s.mode(api.MODE_ACT)
    s.wait_connected()
    job = s.submit("fault")
    s.lab.wait_state(job, "RUNNING", timeout=30)
    bad = s.lab.job(job)["nodes"]
    a = s.wait_advice(job, match=lambda a: a.status.disposition == DONE, what="convergence", timeout=60)
    assert a.generation == 1 and list(a.exclude_nodes) == [bad], a
    t = wait_for("completion", lambda: (t := s.timeline(job)) and t.attempts[0].milestones.HasField("job_completed") and t, 60)
    ms = t.attempts[0].milestones
    order = [ms.first_suspicion, ms.end_observed, ms.anomaly_confirmed, ms.advised, ms.first_command_accepted, ms.converged,
             ms.successor_started, ms.successor_productive, ms.job_completed]
    times = [m.seconds + m.nanos / 1e9 for m in order]
    assert all(times), (order, s.story(job))
    # the log's last lines may arrive just after the end state
    assert times[0] <= times[2] and times[1] <= times[2] <= times[3] <= times[4] <= times[5] <= times[7] <= times[8], times
    assert t.attempts[1].resumed_from_step == 3 and t.attempts[1].nodes != bad, t.attempts[1]
    assert s.lab.job(job)["restarts"] == 1
    verbs = [x.verb for x in t.actions]
    assert verbs == [api.VERB_PRESERVE, api.VERB_CONSTRAIN, api.VERB_RELEASE], t.actions
    assert all(x.command == api.COMMAND_RESULT_ACCEPTED and x.observed == api.OBSERVED_YES for x in t.actions), t.actions
    print(f"# end observed to converged {times[5] - times[1]:.2f} s, to started {times[6] - times[1]:.2f} s")


@case
def user_bug_is_left_failed():
    job = s.submit("importerror")
    a = s.wait_advice(job)
    assert a.desired_state == api.DESIRED_STATE_NO_ACTION, (a, s.story(job))
    assert any(r.code == "user_fault" for r in a.reasons), a
    untouched(job, 0)


@case
def caught_error_is_left_alone():
    job = s.submit("caught")
    t = wait_for("completion", lambda: (t := s.timeline(job)) and t.attempts[0].milestones.HasField("job_completed") and t, 60)
    wait_for("withdrawal", lambda: any(x.status == api.ANOMALY_STATUS_WITHDRAWN for x in s.timeline(job).anomalies), 15)
    assert t.attempts[0].state == api.JOB_STATE_COMPLETED and len(t.attempts) == 1
    assert s.lab.job(job)["restarts"] == 0 and not s.writes(job), s.writes(job)
    a = s.wait_advice(job)
    assert a.desired_state == api.DESIRED_STATE_NO_ACTION, a


@case
def users_exclude_and_begin_survive():
    job = s.submit("fault", f"--exclude={s.lab.node[3]}")
    a = s.wait_advice(job, match=lambda a: a.status.disposition == DONE, what="convergence", timeout=60)
    bad = a.exclude_nodes[0]
    assert s.lab.job(job)["excluded"] in (f"{s.lab.node[3]},{bad}", f"{bad},{s.lab.node[3]}") or \
        set(s.lab.exec("scontrol", "show", "hostnames", s.lab.job(job)["excluded"]).split()) == {s.lab.node[3], bad}


@case
def job_that_needs_the_node_stays_runnable():
    job = s.submit("fault", f"--nodelist={s.lab.node[1]}")
    a = s.wait_advice(job, match=lambda a: a.status.disposition != api.DISPOSITION_PENDING, what="an end", timeout=60)
    j = s.lab.job(job)
    assert j["reason"] != "BadConstraints", j
    if a.status.disposition == DONE:
        assert j["excluded"] in ("", "(null)"), j
        notes = " ".join(x.detail for x in s.timeline(job).actions)
        assert s.lab.node[1] in notes, notes


@case
def cancelled_while_completing_stays_cancelled():
    s.lab.ctl("conf", "Epilog=/bin/true")  # so that COMPLETING exists at all
    job = s.submit("fault", LINGER=30)
    wait_for("the suspicion", lambda: (t := s.timeline(job)) and t.anomalies, 40)
    s.lab.exec("scancel", job, user="labuser1")
    wait_for("the end", lambda: s.timeline(job).attempts[0].state == api.JOB_STATE_CANCELLED, 40)
    time.sleep(3)  # time in which a wrongful revival would happen
    j = s.lab.job(job)
    assert j["state"] == "CANCELLED" and j["restarts"] == 0, j
    a = s.advice(job)
    assert a is None or a.desired_state == api.DESIRED_STATE_NO_ACTION, a


@case
def opted_out_and_not_opted_in():
    for comment in ('{"advisor":{"mode":"off"}}', "", "free text", '{"advisor":{"mode":"off"}', "\x01{not json"):
        job = s.submit("fault", comment=comment)
        s.lab.wait_state(job, "FAILED", timeout=40)
        wait_for("the end to be known", lambda: (t := s.timeline(job)) and t.attempts[0].state == api.JOB_STATE_FAILED, 30)
        time.sleep(1.5)  # time in which something wrong would happen
        untouched(job, 0)


@case
def ceiling_below_act():
    path = f"{s.lab.dir}/etc/ceiling.yaml"
    with open(path, "w") as f:
        f.write("mode: observe\n")
    s.agent.stop()
    s.agent.config["ceiling.path"] = path
    s.agent.start()
    wait_for("the ceiling to be known", lambda: (c := s.cluster_view()).ceiling == api.MODE_OBSERVE and
             c.agent_state == api.AGENT_STATE_CONNECTED, 60)
    job = s.submit("fault")
    a = s.wait_advice(job)
    assert a.actionability == api.ACTIONABILITY_SHADOW, a
    time.sleep(2)
    untouched(job, 0)
    # raised again: later advice acts, the old one stays as it is
    with open(path, "w") as f:
        f.write("mode: act\n")
    wait_for("the ceiling to be known", lambda: s.cluster_view().effective_mode == api.MODE_ACT, 30)
    untouched(job, 0)
    # lowered by hand while a control plane says ACT: no write, whatever the control plane believes
    with open(path, "w") as f:
        f.write("mode: off\n")
    job = s.submit("fault")
    s.lab.wait_state(job, "FAILED", timeout=40)
    time.sleep(4)
    untouched(job, 0)
    with open(path, "w") as f:
        f.write("mode: act\n")
    wait_for("the ceiling to be known", lambda: s.cluster_view().effective_mode == api.MODE_ACT, 30)


@case
def mode_off():
    s.mode(api.MODE_OFF)
    wait_for("the mode", lambda: s.cluster_view().mode_effective, 30)
    job = s.submit("fault")
    s.lab.wait_state(job, "FAILED", timeout=40)
    time.sleep(3)
    untouched(job, 0)
    assert s.advice(job) is None
    s.mode(api.MODE_ACT)
    s.wait_connected()


@case
def forged_names_and_comments():
    name = "x\nJobState=FAILED\nRestarts=9 UserId=root(0)"
    job = s.submit("caught", f"--job-name={name}")
    t = wait_for("completion", lambda: (t := s.timeline(job)) and t.attempts[0].milestones.HasField("job_completed") and t, 60)
    assert len(t.attempts) == 1 and t.job.user == "labuser1", t.job
    assert s.lab.job(job)["restarts"] == 0 and not s.writes(job)


@case
def stops_clean():
    s.stop()


advstack.run(CASES)
