#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A job waits in our hold, its agent dead, when somebody changes his mind: it is given back, without exclusions, and
starts soon. While a lower mode only asks for approval it is kept."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

s = advcrash.CrashStack()
api = s.api


def held():
    """A job in our hold; the agent has died right after the requeue."""
    s.mode(api.MODE_ACT)
    s.restart_agent("agent.after_outcome=kill@1")
    job = s.fail()
    s.agent.wait_dead()
    j = s.lab.job(job)
    assert j["restarts"] == 1 and j["state"] == "PENDING", j
    assert s.journal(job)[1], "no hold in the journal"
    return job


def given_back(job):
    """Two minutes is what a bare release would take."""
    begin = time.monotonic()
    wait_for("the job to be done: " + s.agent.log()[-2000:], lambda: s.lab.job(job)["state"] == "COMPLETED", 60)
    j = s.lab.job(job)
    assert j["restarts"] == 1 and j["excluded"] in ("", "(null)"), j
    assert [v for v, _ in s.journal(job)[0]] == ["preserve", "constrain", "release"], s.journal(job)
    assert not s.journal(job)[1], "a hold is left in the journal"
    print(f"# given back and done after {time.monotonic() - begin:.1f} s")
    s.sane()


def lowered_to_observe():
    job = held()
    s.mode(api.MODE_OBSERVE)
    s.agent.start()
    given_back(job)


def lowered_to_approve_then_off():
    job = held()
    s.mode(api.MODE_APPROVE)
    s.agent.start()
    s.wait_connected()
    time.sleep(8)  # time in which it could be given back or go on
    j = s.lab.job(job)
    assert j["state"] == "PENDING" and not s.ctld(job, "release hold"), (j, s.agent.log()[-2000:])
    s.mode(api.MODE_OFF)
    given_back(job)


def opted_out():
    job = held()
    s.lab.exec("scontrol", "update", f"JobId={job}", 'Comment={"advisor":{"mode":"off"}}', user="labuser1")
    s.agent.start()
    given_back(job)
    a = s.wait_advice(job, match=lambda a: a.status.disposition == api.DISPOSITION_ABANDONED, what="the end")
    assert a.status.reason == api.DISPOSITION_REASON_OPTED_OUT, a


s.agent.start()
s.wait_connected()
advstack.run([lowered_to_observe, lowered_to_approve_then_off, opted_out, advcrash.clean_end(s)])
