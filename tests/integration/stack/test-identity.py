#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job is a submission, not an id: ids that come again after the range has wrapped, and an agent that has lost the
memory of what it saw."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

FIRST, LAST = 100, 104  # with MaxJobId 105
s = advcrash.CrashStack(few_rules=True, sets=(f"FirstJobId={FIRST}", f"MaxJobId={LAST + 1}", "MinJobAge=15"),
                        **{"agent.lease": "12s", "agent.heartbeat_interval": "500ms"})
api = s.api


def job_named(name):
    return api.JobServiceStub(s.cp.channel("reader:test")).GetJobTimeline(api.GetJobTimelineRequest(name=name), timeout=10)


def a_reused_id_is_another_job():
    s.agent.start()
    s.wait_connected()
    once = '{"advisor":{"max_restarts":1}}'
    job = s.submit("fault", comment=once, STEPS=5, STEP_S=0.05, LINGER=0.2)
    assert int(job) == FIRST, job
    s.recovered(job)
    old = s.timeline(job)
    # the rest of the range, so that this id is the next one once slurmctld has forgotten its job
    for _ in range(LAST - FIRST):
        assert s.lab.exec("sbatch", "--parsable", "--output=/dev/null", "--wrap=true", user="labuser1") != job
    wait_for("slurmctld to forget the job", lambda: not s.lab.job(job), 120, 0.5)
    again = s.submit("fault", comment=once, STEPS=5, STEP_S=0.05, LINGER=0.2)
    assert again == job, again
    # a reference by id means the newest job known of that id: the old one, until the agent has seen the new one
    try:
        wait_for("the new job under a name of its own", lambda: (t := s.timeline(job)) and t.job.name != old.job.name, 60)
    except AssertionError as e:
        raise AssertionError(f"the new job was taken for the old one: {e}\n{s.describe(job)}")
    s.wait_advice(again, match=lambda a: a.status.disposition == api.DISPOSITION_CONVERGED, what="convergence", timeout=60)
    wait_for("its completion", lambda: (t := s.timeline(job)) and t.attempts[0].milestones.HasField("job_completed"), 60)
    new = s.timeline(job)
    assert new.job.name != old.job.name, (new.job, old.job)
    # nothing of the old one counts: its restart would have been the second, and over the limit
    assert [a.desired_state for a in new.advice] == [api.DESIRED_STATE_RESTARTED], new.advice
    assert {x.name for x in new.advice}.isdisjoint({x.name for x in old.advice})
    assert new.attempts[0].nodes in new.advice[0].exclude_nodes and len(new.advice[0].exclude_nodes) == 1
    # and the old one's story is what it was, found by its name
    kept = job_named(old.job.name)
    assert [e.text for e in kept.entries] == [e.text for e in old.entries]
    assert kept.advice[0].status.disposition == api.DISPOSITION_CONVERGED


def the_log_of_a_reused_id_is_read_anew():
    """The id's last job and this one have as many restarts; what is remembered of the one's log is not the other's."""
    agent_runs()
    job = s.fail()
    assert FIRST < int(job) <= LAST, job
    s.recovered(job)
    t = s.timeline(job)
    assert t.attempts[0].telemetry == api.TELEMETRY_STATE_COMPLETE, t.attempts
    assert any(a.rule for a in t.anomalies), t.anomalies


def an_id_reused_while_the_agent_was_away_tells_nothing():
    """Same user, same id, and the new job had been requeued once before anybody looked: as many restarts as the old one
    had, or would have had. Nothing of the old one's is its own, and it is watched only."""
    agent_runs()
    job = s.fail(LINGER=0.2)
    s.recovered(job)
    wait_for("its completion", lambda: (t := s.timeline(job)) and t.attempts[0].milestones.HasField("job_completed"), 60)
    old = s.timeline(job)
    s.agent.kill()
    wait_for("slurmctld to forget all jobs", lambda: not s.lab.exec("squeue", "-h", "-t", "all", "-o", "%i"), 120, 0.5)
    before = str(int(job) - 1 if int(job) > FIRST else LAST)
    for _ in range(LAST - FIRST + 1):  # until the id is the next one
        if s.lab.exec("sbatch", "--parsable", "--output=/dev/null", "--wrap=true", user="labuser1") == before:
            break
    again = s.submit("faults", STEPS=5, STEP_S=0.05, LINGER=10)
    assert again == job, (again, job)
    s.lab.wait_state(job, "RUNNING", timeout=60)
    s.lab.exec("scontrol", "requeue", job, user="labuser1")
    wait_for("the second attempt", lambda: (j := s.lab.job(job)) and j["restarts"] == 1 and j["state"] == "PENDING", 60)
    s.lab.exec("scontrol", "update", f"JobId={job}", "StartTime=now+3", user="labuser1")
    s.lab.wait_state(job, "RUNNING", timeout=60)
    s.agent.start()
    s.wait_connected(90)
    wait_for("the new job under a name of its own", lambda: (t := s.timeline(job)) and t.job.name != old.job.name, 60)
    s.lab.wait_state(job, "FAILED", timeout=90)
    a = s.wait_advice(job, attempt=1, timeout=60)
    new = s.timeline(job)
    assert new.job.name != old.job.name and not new.job.incarnation_known, new.job
    assert [x.index for x in new.attempts] == [1], new.attempts
    assert {x.name for x in new.anomalies}.isdisjoint({x.name for x in old.anomalies}), new.anomalies
    assert a.actionability != api.ACTIONABILITY_ACTIONABLE, a
    fresh = s.fail()
    s.recovered(fresh)  # what it can confirm it acts upon
    now = s.lab.job(job)
    assert not now or (now["restarts"] == 1 and now["state"] == "FAILED"), now
    assert not s.timeline(job).actions, s.timeline(job).actions
    kept = job_named(old.job.name)
    assert [e.text for e in kept.entries] == [e.text for e in old.entries]


def agent_runs():
    if not s.agent.alive():
        s.agent.start()
    s.wait_connected()


def an_agent_without_its_memory_does_not_act_on_what_it_cannot_confirm():
    """The job was restarted once when the agent's folder is lost. Its next failure is judged, but nothing is done."""
    agent_runs()
    job = s.submit("faults", STEPS=5, STEP_S=0.05, LINGER=10)
    try:
        wait_for("the successor to run", lambda: (j := s.lab.job(job)) and j["restarts"] == 1 and j["state"] == "RUNNING", 90)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{s.describe(job)}")
    s.agent.kill()
    shutil.rmtree(f"{s.agent.home}/state")
    os.makedirs(f"{s.agent.home}/state")
    shutil.chown(f"{s.agent.home}/state", "laboper", "laboper")
    s.agent.start()
    s.wait_connected(90)
    s.lab.wait_state(job, "FAILED", timeout=90)
    before = s.lab.job(job)
    a = s.wait_advice(job, attempt=1, timeout=60)
    try:
        wait_for("the agent to have looked", lambda: (a := s.advice(job, 1)) and a.status.observed_generation == a.generation
                 or a.actionability != api.ACTIONABILITY_ACTIONABLE, 30)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{s.advice(job, 1)}\n{s.describe(job)}")
    a = s.advice(job, 1)
    assert a.status.disposition != api.DISPOSITION_CONVERGED, a
    # time enough for an agent that would act
    fresh = s.fail()
    s.recovered(fresh)  # what it can confirm it acts upon
    after = s.lab.job(job)
    assert not after or (after["restarts"] == 1 and after["state"] == "FAILED"), (before, after)
    assert len(s.ctld(job, "Requeuing")) == 1, s.ctld(job, "Requeuing")


advstack.run([a_reused_id_is_another_job, the_log_of_a_reused_id_is_read_anew,
              an_id_reused_while_the_agent_was_away_tells_nothing,
              an_agent_without_its_memory_does_not_act_on_what_it_cannot_confirm,
              advcrash.clean_end(s)])
