#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What is done so that a later decision can be carried out at all, on real Slurm: a job with requeueing switched off is made
requeueable while it runs, where it asks for that; a failed job that is still undecided, or waits for a person's yes, when a
third of MinJobAge is over is kept in our hold, and goes on from there or is given back."""
import json
import os
import pwd
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

FORGET = 45  # MinJobAge: kept from 15 s on
s = advcrash.CrashStack(few_rules=True, sets=(f"MinJobAge={FORGET}",), agent={"poll.interval": "1s"},
                        **{"decide.shared_cause_window": "25s", "detect.fallback_delay": "1s"})
api = s.api
CEILING = f"{s.lab.dir}/ceiling.yaml"
s.agent.config["ceiling.path"] = CEILING
HOME = f"{s.lab.dir}/home/labuser1"
ASKS = '{"advisor":{"max_restarts":3,"make_requeueable":true}}'
# Ends without a word of why, after some steps; the next attempt goes on.
SCRIPT = r"""#!/bin/bash
N=${SLURM_RESTART_COUNT:-0}
for i in 1 2 3 4 5; do
  echo " iteration $((N * 5 + i))/10 | consumed samples: $i | elapsed time per iteration (ms): 200.0 | lm loss: 2.5"; sleep 0.1
done
while [ "$N" = 0 ] && [ -n "$UNTIL" ] && [ ! -e "$UNTIL" ]; do sleep 0.1; done
[ "$N" = 0 ] && exit 3
echo "[after training is done] datetime: now"
"""


def ceiling(text):
    with open(CEILING + ".new", "w") as f:
        f.write(text)
    os.chmod(CEILING + ".new", 0o644)
    os.rename(CEILING + ".new", CEILING)


def submit(*args, comment='{"advisor":{"max_restarts":3}}', requeue="--requeue", **env):
    path = f"{HOME}/silent.sh"
    with open(path, "w") as f:
        f.write(SCRIPT)
    os.chmod(path, 0o755)
    export = ",".join(["ALL"] + [f"{k}={v}" for k, v in env.items()])
    return s.lab.exec("sbatch", "--parsable", requeue, f"--comment={comment}", f"--export={export}",
                      f"--output={HOME}/silent-%j.log", *args, path, user="labuser1")


def requeue_of(job):
    text = s.lab.exec("scontrol", "show", "job", job)
    return text.split("Requeue=")[1].split()[0]


def end(name):
    open(f"{HOME}/{name}", "w").close()
    os.chmod(f"{HOME}/{name}", 0o644)


def updates(job):
    return [v for v, _ in s.journal(job)[0]]


def is_kept(job):
    j = s.lab.job(job)
    return j["state"] == "PENDING" and j["restarts"] == 1 and j["priority"] == "0"


def hold(job):
    """The job's hold as the agent's journal has it now; None: it has none."""
    found = None
    with open(f"{s.agent.home}/state/journal") as f:
        for line in f:
            r = json.loads(line) if line.endswith("\n") else {}
            if r.get("kind") in ("hold", "hold_end") and r["job"] == job:
                found = r if r["kind"] == "hold" else None
    return found


def wait_kept(job, timeout=40):
    try:
        wait_for("the job to be kept", lambda: is_kept(job) and hold(job), timeout)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{s.describe(job)}")


def given_back(job):
    """Cancelled by us, once, and never run again."""
    try:
        wait_for("the job to be cancelled", lambda: s.lab.job(job)["state"] == "CANCELLED", 40)
        wait_for("the hold to be over", lambda: not hold(job), 20)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{s.describe(job)}")
    assert updates(job) == ["preserve", "cancel"], updates(job)
    assert s.lab.job(job)["restarts"] == 1 and not s.ctld(job, "release hold"), s.describe(job)
    with open(f"{HOME}/silent-{job}.log") as f:
        assert f.read().count("iteration 1/10") == 1


def made_requeueable_then_restarted():
    job = submit(comment=ASKS, requeue="--no-requeue", UNTIL=f"{HOME}/go-1")
    s.lab.wait_state(job, "RUNNING", timeout=40)
    wait_for("Requeue=1", lambda: requeue_of(job) == "1", 30)
    a = s.wait_advice(job, match=lambda a: a.status.disposition == api.DISPOSITION_CONVERGED, what="convergence")
    assert a.desired_state == api.DESIRED_STATE_REQUEUEABLE and a.generation == 1, a
    assert [x.observed for x in s.timeline(job).actions] == [api.OBSERVED_YES], s.timeline(job).actions
    assert updates(job) == ["make_requeueable"], updates(job)
    end("go-1")
    a = s.wait_advice(job, match=lambda a: a.desired_state == api.DESIRED_STATE_RESTARTED and
                      a.status.disposition == api.DISPOSITION_CONVERGED, what="the restart", timeout=90)
    s.lab.wait_state(job, "COMPLETED", timeout=40)
    assert s.lab.job(job)["restarts"] == 1 and updates(job)[0] == "make_requeueable" and updates(job).count("make_requeueable") == 1


def not_asked_stays_as_submitted():
    job = submit(requeue="--no-requeue", UNTIL=f"{HOME}/go-2")
    forbids = submit(comment='{"advisor":{"make_requeueable":false}}', requeue="--no-requeue", UNTIL=f"{HOME}/go-2")
    for j in (job, forbids):
        s.lab.wait_state(j, "RUNNING", timeout=40)
        wait_for("it to be known with its comment", lambda j=j: (t := s.timeline(j)) and t.job.effective_mode == api.MODE_ACT, 30)
    time.sleep(2)  # time in which something wrong would happen
    end("go-2")
    for j, why in ((job, "does not ask"), (forbids, "forbids")):
        a = s.wait_advice(j, timeout=60)
        reasons = {r.code: r.sentence for r in a.reasons}
        assert a.desired_state == api.DESIRED_STATE_NO_ACTION and why in reasons["not_requeueable"], a
        assert requeue_of(j) == "0" and s.lab.job(j)["state"] == "FAILED" and not updates(j) and not s.ctld(j, "_update_job"), s.describe(j)


def switched_off_again_by_its_owner():
    job = submit(comment=ASKS, requeue="--no-requeue", UNTIL=f"{HOME}/go-3")
    s.wait_advice(job, match=lambda a: a.status.disposition == api.DISPOSITION_CONVERGED, what="convergence", timeout=60)
    s.lab.exec("scontrol", "update", f"JobId={job}", "Requeue=0", user="labuser1")
    time.sleep(4)  # some polls: time in which it would be set again
    assert requeue_of(job) == "0" and updates(job) == ["make_requeueable"], s.describe(job)
    end("go-3")
    a = s.wait_advice(job, match=lambda a: a.desired_state == api.DESIRED_STATE_NO_ACTION, timeout=60)
    assert "somebody has changed that back" in a.summary and s.lab.job(job)["state"] == "FAILED", a


def ceiling_without_the_verb():
    ceiling("mode: act\nverbs: [preserve, constrain, release, cancel]\n")
    job = submit(comment=ASKS, requeue="--no-requeue", UNTIL=f"{HOME}/go-4")
    a = s.wait_advice(job, match=lambda a: a.status.disposition == api.DISPOSITION_ABANDONED, what="its end", timeout=60)
    assert a.status.reason == api.DISPOSITION_REASON_NOT_AUTHORIZED_BY_CLUSTER and requeue_of(job) == "0", a
    end("go-4")
    a = s.wait_advice(job, match=lambda a: a.desired_state == api.DESIRED_STATE_NO_ACTION, timeout=60)
    assert "make_requeueable" in a.summary, a
    ceiling("mode: act\n")


def undecided_is_kept_and_goes_on():
    job = submit()
    wait_kept(job)
    h = hold(job)
    assert h["on_expiry"] == 1 and h["kept"] == 1 and h["want"] == 2 and h["expires_wall_us"] > time.time() * 1e6, h
    a = s.advice(job)
    assert a.desired_state == api.DESIRED_STATE_PRESERVED and a.generation == 1, a
    a = s.wait_advice(job, match=lambda a: a.desired_state == api.DESIRED_STATE_RESTARTED and
                      a.status.disposition == api.DISPOSITION_CONVERGED, what="the restart", timeout=60)
    assert a.generation == 2, a
    s.lab.wait_state(job, "COMPLETED", timeout=40)
    assert updates(job) == ["preserve", "constrain", "release"] and s.lab.job(job)["restarts"] == 1, s.describe(job)
    assert not hold(job)


def kept_then_mode_lowered():
    job = submit()
    wait_kept(job)
    s.mode(api.MODE_OBSERVE)
    given_back(job)
    s.mode(api.MODE_ACT)
    # what people see of it: the failure as accounting keeps it, and a cancelled job that never ran
    rows = s.lab.exec("sacct", "-n", "-X", "-P", "-D", "-j", job, "-o", "State,ExitCode").split()
    assert any("3:0" in r for r in rows), rows
    print("# accounting after a kept job was given back:", rows, flush=True)


def kept_then_taken_by_its_owner():
    job, other = submit(), submit()
    wait_kept(job)
    wait_kept(other)
    s.lab.exec("scontrol", "release", job, user="labuser1")
    s.lab.exec("scontrol", "update", f"JobId={other}", "Comment=mine", user="labuser1")
    s.mode(api.MODE_OFF)
    wait_for("both holds to be over", lambda: not hold(job) and not hold(other), 40)
    time.sleep(2)
    assert "cancel" not in updates(job) + updates(other), (updates(job), updates(other))
    assert s.lab.job(job)["state"] != "CANCELLED" and is_kept(other), (s.describe(job), s.describe(other))
    s.lab.exec("scancel", job, other)
    s.mode(api.MODE_ACT)
    s.wait_connected()


def awaits_a_persons_yes():
    s.mode(api.MODE_APPROVE)
    ceiling("mode: act\npreserve_in_approve: true\n")
    s.wait_connected()
    yes, no, bug = submit(), submit(), s.submit("importerror")
    for job in (yes, no):
        wait_kept(job)
        s.wait_advice(job, match=lambda a: a.desired_state == api.DESIRED_STATE_RESTARTED and
                      a.actionability == api.ACTIONABILITY_NEEDS_APPROVAL, timeout=60)
    time.sleep(2)
    assert is_kept(yes) and is_kept(no) and updates(yes) == updates(no) == ["preserve"]
    stub = api.AdviceServiceStub(s.cp.channel("operator:op"))
    a, b = s.advice(yes), s.advice(no)
    stub.ApproveAdvice(api.ApproveAdviceRequest(name=a.name, generation=a.generation), timeout=10)
    stub.RejectAdvice(api.RejectAdviceRequest(name=b.name, generation=b.generation, reason="no"), timeout=10)
    s.lab.wait_state(yes, "COMPLETED", timeout=60)
    assert updates(yes) == ["preserve", "constrain", "release"], updates(yes)
    given_back(no)
    assert s.lab.job(bug)["state"] == "FAILED" and not updates(bug), s.describe(bug)  # its owner's fault: never kept
    ceiling("mode: act\n")
    job = submit()
    s.wait_advice(job, match=lambda a: a.actionability == api.ACTIONABILITY_NEEDS_APPROVAL, timeout=60)
    assert s.lab.job(job)["state"] == "FAILED" and not updates(job), s.describe(job)  # the site has not allowed it
    s.mode(api.MODE_ACT)
    s.wait_connected()


def agent_killed_while_it_keeps():
    """The intent is written and the agent gone: the next run keeps it, and the decision goes on from there."""
    s.restart_agent("agent.after_outcome=kill@1")
    job = submit()
    s.agent.wait_dead()
    assert s.lab.job(job)["restarts"] == 1 and hold(job), s.describe(job)
    s.agent.start()
    s.wait_connected()
    s.wait_advice(job, match=lambda a: a.desired_state == api.DESIRED_STATE_RESTARTED and
                  a.status.disposition == api.DISPOSITION_CONVERGED, what="the restart", timeout=60)
    s.lab.wait_state(job, "COMPLETED", timeout=40)
    assert updates(job) == ["preserve", "constrain", "release"], s.describe(job)


def watchdog(*args):
    """One look of advisor-watchdog at all holds, as the agent's user."""
    path, state = f"{s.agent.home}/watchdog.yaml", f"{s.agent.home}/state"
    values = {"state.dir": state, "state.allow_volatile": "true", "ceiling.path": CEILING, "scheduler.landing_bound": "2s",
              "scheduler.command_deadline": "4s", **({"scheduler.bin_dir": f"{s.lab.dir}/bin"} if s.lab.suite else {})}
    with open(path, "w") as f:
        f.writelines(f"{k}: {v}\n" for k, v in values.items())
    os.chmod(path, 0o644)
    binary = shutil.copy(os.environ["ADVISOR_WATCHDOG"], f"{s.lab.dir}/bin/advisor-watchdog")
    os.chmod(binary, 0o755)
    env = {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")}
    env.update(SLURM_CONF=f"{s.lab.dir}/etc/slurm.conf", HOME=s.agent.home, USER="laboper")
    pw = pwd.getpwnam("laboper")
    r = subprocess.run([binary, "--config", path, "--once", *args], cwd=s.agent.home, env=env, capture_output=True, text=True,
                       user=pw.pw_uid, group=pw.pw_gid, extra_groups=[], timeout=100)
    assert r.returncode == 0, r
    return r.stdout + r.stderr


def every_end_without_the_agent():
    """A kept job, the agent dead: each reason why it is over, and what becomes of the job."""
    rows = [("nothing", lambda: None, "PENDING"),
            ("a person changes the comment, ceiling lowered", None, "PENDING"),
            ("ceiling off", lambda: ceiling("mode: off\n"), "CANCELLED")]
    taken, left = submit(), submit()
    for job in (taken, left):
        wait_kept(job)
    s.agent.kill()
    now = ("--grace.agent_gone", "0s", "--grace.agent_there", "0s")
    for what, act, state in rows:
        if act is None:
            s.lab.exec("scontrol", "update", f"JobId={taken}", "Comment=mine", user="labuser1")
            ceiling("mode: observe\nwatchdog: observe\n")
        else:
            act()
        said = watchdog(*now)
        assert s.lab.job(left)["state"] == state and is_kept(taken), (what, said, s.describe(left))
    s.agent.start()
    for job in (taken, left):
        wait_for("the end of the hold: " + s.agent.log()[-1500:], lambda job=job: not hold(job), 40)
    time.sleep(2)
    assert is_kept(taken) and s.lab.job(left)["restarts"] == 1 and updates(left) == updates(taken) == ["preserve"], s.describe(left)
    s.lab.exec("scancel", taken)
    ceiling("mode: act\n")
    s.wait_connected()


def cancelled_by_whom():
    """While the job is still there: its owner, the agent's own account, somebody else; and told apart from a time limit."""
    who = {"labuser1": api.CANCELLED_BY_OWNER, "laboper": api.CANCELLED_BY_ADVISOR, None: api.CANCELLED_BY_OTHER}
    jobs = {user: submit(UNTIL=f"{HOME}/never") for user in who}
    for user, job in jobs.items():
        s.lab.wait_state(job, "RUNNING", timeout=40)
        wait_for("it to be known", lambda job=job: (t := s.timeline(job)) and t.attempts[0].state == api.JOB_STATE_RUNNING, 30)
        s.lab.exec("scancel", job, user=user)
    for user, job in jobs.items():
        wait_for(f"who cancelled {job}: {s.agent.log()[-800:]}", lambda job=job, user=user: s.timeline(job).attempts[0].cancelled_by == who[user], 60)
        a = s.timeline(job).attempts[0]
        assert a.state == api.JOB_STATE_CANCELLED and s.lab.job(job)["state"] == "CANCELLED" and not updates(job), a


def log_is_kept_before_it_is_truncated():
    """The default: the next attempt truncates the output. Its end is beside it, for its owner alone; where that cannot be written
    the job is restarted all the same, and the advice says so."""
    where, shut = f"{HOME}/logs", f"{HOME}/shut"
    for d in (where, shut):
        s.lab.exec("mkdir", "-p", d, user="labuser1")
    path = f"{HOME}/loud.sh"
    with open(path, "w") as f:
        f.write("""#!/bin/bash
if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
  for i in $(seq 30000); do echo "line $i of the first attempt"; done; echo "why it failed" >&2
  echo " iteration 1/10 | consumed samples: 8 | elapsed time per iteration (ms): 200.0 | lm loss: 2.5"
  echo "$SLURMD_NODENAME: RuntimeError: CUDA error: uncorrectable ECC error encountered"
  [ -n "$SHUT" ] && chmod a-w "$SHUT"
  sleep 0.3; exit 1
fi
echo "the second attempt"
""")
    os.chmod(path, 0o755)
    loud = lambda folder, env: s.lab.exec("sbatch", "--parsable", "--requeue", '--comment={"advisor":{}}', f"--export=ALL{env}",  # noqa: E731
                                          f"--output={folder}/%j.out", f"--error={folder}/%j.err", path, user="labuser1")
    job, other = loud(where, ""), loud(shut, f",SHUT={shut}")
    done = lambda a: a.status.disposition == api.DISPOSITION_CONVERGED  # noqa: E731
    a, b = (s.wait_advice(j, match=done, what="convergence", timeout=60) for j in (job, other))
    for j in (job, other):
        s.lab.wait_state(j, "COMPLETED", timeout=40)
    with open(f"{where}/{job}.out") as f:
        assert f.read() == "the second attempt\n"  # truncated indeed
    kept = f"{where}/{job}.out.attempt-0.tail"
    st = os.stat(kept)
    assert st.st_uid == os.stat(where).st_uid != 0 and st.st_mode & 0o777 == 0o600 and 200_000 < st.st_size <= 262144, st
    with open(kept) as f:
        lines = f.read().splitlines()
    assert lines[0].startswith("line ") and "uncorrectable ECC" in lines[-1], (lines[0], lines[-1])
    with open(f"{where}/{job}.err.attempt-0.tail") as f:
        assert f.read() == "why it failed\n"
    assert "not kept" not in a.status.detail and "not kept: " in b.status.detail and "Permission denied" in b.status.detail, (a, b)
    assert sorted(os.listdir(shut)) == [f"{other}.err", f"{other}.out"], os.listdir(shut)


ceiling("mode: act\n")
s.agent.start()
s.wait_connected()
advstack.run([made_requeueable_then_restarted, not_asked_stays_as_submitted, switched_off_again_by_its_owner,
              ceiling_without_the_verb, undecided_is_kept_and_goes_on, kept_then_mode_lowered, kept_then_taken_by_its_owner,
              awaits_a_persons_yes, agent_killed_while_it_keeps, every_end_without_the_agent, cancelled_by_whom, log_is_kept_before_it_is_truncated, advcrash.clean_end(s)])
