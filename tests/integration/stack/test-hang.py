#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that stand still, on real Slurm: every process of theirs is stopped. With a second witness the attempt is interrupted,
once, and its successor runs; alone, with witnesses that disagree, or when it goes on, silence is told and nothing is touched;
and neither is a straggler. What Advisor waits for (a second look a minute later) is waited for once, for all of them."""
import os
import pwd
import signal
import sys
import threading
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

# 2 s is the floor of silence: twice that for an attempt whose pauses are not known, or eight of its steps, which is more.
s = advcrash.CrashStack(nodes=8, **{"detect.suspicion_grace": "2s", "agent.silence_timeout": "30s", "agent.lease": "60s",
                                    "decide.advice_valid": "600s"})
api = s.api
HOME = f"{s.lab.dir}/home/labuser1"
UID = pwd.getpwnam("labuser1").pw_uid
SUSPICION, CONFIRMED, WITHDRAWN = api.ANOMALY_STATUS_SUSPICION, api.ANOMALY_STATUS_CONFIRMED, api.ANOMALY_STATUS_WITHDRAWN
LOOK_AGAIN_S = 60  # LOOK_AGAIN_US of controlplane/domain/pulse.c

# A step each 1.1 s: signs that are less than a second apart count as one. Told to (a file), it waits for that file to go, and may
# say as Horovod does that ranks wait for each other; or says that a rank is slow, and is twice as slow from then on.
TRAIN = r"""#!/bin/bash
#SBATCH --open-mode=append
N=${SLURM_RESTART_COUNT:-0}; AT=$HOME/$NAME; i=0; last=100000; pause=1.1
step() { i=$((i + 1)); echo " iteration $i/$last | consumed samples: $((i * 8)) | elapsed time per iteration (ms): 1100.0 | lm loss: 2.5"; sleep $pause; }
save() { echo $i > "$AT.ck"; echo "successfully saved checkpoint at iteration $i to $AT.ck"; }
if [ "$N" != 0 ]; then
    i=$(cat "$AT.ck"); echo " successfully loaded checkpoint from $AT.ck at iteration $i"; last=$((i + 3)); pause=0.2
fi
while [ $i -lt $last ]; do
    step
    [ $i = 2 ] && save
    if [ $N = 0 ] && [ -e "$AT.wait" ]; then
        [ "$WATCHDOG" = yes ] && echo "Stalled ranks:"
        touch "$AT.waits"
        while [ -e "$AT.wait" ]; do sleep 0.1; done
    fi
    if [ -e "$AT.slow" ] && [ $pause = 1.1 ]; then pause=2.2; echo "rank 5 is a straggler: 2.0 times the median"; fi
done
echo "[after training is done] datetime: now"
"""
ACT, APPROVE = '{"advisor":{"max_restarts":3}}', '{"advisor":{"max_restarts":3,"mode":"approve"}}'
JOBS = {  # name: consent, whether a line of a watchdog follows the last step
    "watchdog_line": (ACT, True),
    "detector": (ACT, False),
    "alone": (ACT, False),
    "progress_outside": (ACT, True),
    "taken_back": (ACT, False),
    "continues": (ACT, True),
    "continues_late": (APPROVE, True),
    "straggler": (ACT, False),
}
STOPPED = [n for n in JOBS if n != "straggler"]
job, heard, stop_reports = {}, {}, threading.Event()
reported = []  # what a detector's call failed with


def submit(name):
    path = f"{HOME}/{name}.sh"
    with open(path, "w") as f:
        f.write(TRAIN)
    os.chmod(path, 0o755)
    return s.lab.exec("sbatch", "--parsable", "--requeue", f"--comment={JOBS[name][0]}", f"--export=ALL,NAME={name},WATCHDOG={'yes' if JOBS[name][1] else 'no'}",
                      f"--job-name={name}", f"--output={HOME}/{name}.log", path, user="labuser1")


def told(name, word):
    """A file that the job looks for; without one when @word begins with "-"."""
    path = f"{HOME}/{name}.{word.lstrip('-')}"
    if word.startswith("-"):
        os.unlink(path)
    else:
        open(path, "w").close()


def log_of(name):
    with open(f"{HOME}/{name}.log", errors="replace") as f:
        return f.read()


def processes(name):
    """{pid: state} of the job's own processes, by their user and environment."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}").st_uid != UID:
                continue
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = f.read().split(b"\0")
            if f"SLURM_JOB_ID={job[name]}".encode() in env and f"NAME={name}".encode() in env and \
               any(v.startswith(b"HOME=" + s.lab.dir.encode()) for v in env):
                with open(f"/proc/{pid}/stat") as f:
                    found[int(pid)] = f.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue  # it ended meanwhile
    return {p: state for p, state in found.items() if state != "Z"}


def freeze(name):
    def probe():
        now = processes(name)
        for p, state in now.items():
            if state != "T":
                try:
                    os.kill(p, signal.SIGSTOP)
                except ProcessLookupError:
                    pass
        return now and all(state == "T" for state in now.values())
    wait_for(f"all processes of {name} to be stopped", probe, 60)


def thaw(name):
    for p in processes(name):
        os.kill(p, signal.SIGCONT)


def attempt(name):
    t = s.timeline(job[name])
    return t.attempts[0] if t and t.attempts else None


def anomaly(name, rule="rhythm-silence"):
    t = s.timeline(job[name])
    return next((a for a in t.anomalies if a.rule == rule), None) if t else None


def until(name, what, probe, timeout=120):
    try:
        return wait_for(f"{what} of {name}", probe, timeout, 0.3)
    except AssertionError as e:
        raise AssertionError(f"{e}\n{s.describe(job[name])}")


def suspicion(name):
    return until(name, "the suspicion", lambda: (a := anomaly(name)) and a.status == SUSPICION and
                 attempt(name).activity == api.ACTIVITY_SILENT and a)


def untouched(name):
    """By slurmctld's own log nobody changed the job; it runs, and nothing is ordered."""
    j, t = s.lab.job(job[name]), s.timeline(job[name])
    assert j["state"] == "RUNNING" and j["restarts"] == 0, s.describe(job[name])
    assert not s.writes(job[name]) and not t.actions, s.describe(job[name])
    assert len(t.attempts) == 1, t.attempts


def reports():
    """The detectors of the site: each goes on saying what it sees, as long as it sees it."""
    stub = api.SignalServiceStub(s.cp.channel("detector:site"))
    step = 1000
    try:
        while not stop_reports.wait(2):
            step += 1
            stub.ReportProgress(api.ReportProgressRequest(ref=ref("progress_outside"), step=step, request_id=uuid.uuid4().hex),
                                timeout=30)
    except Exception as e:  # told by the last case
        reported.append(e)


def ref(name):
    return api.AttemptRef(cluster=s.cluster, job_id=job[name], restart_count=0)


def evidence(name, kind, weight, summary):
    stub = api.SignalServiceStub(s.cp.channel("detector:site"))
    return stub.ReportEvidence(api.ReportEvidenceRequest(ref=ref(name), source="site", kind=kind, weight_percent=weight,
                                                         summary=summary, request_id=uuid.uuid4().hex), timeout=30).evidence


def setup_all_move_and_are_stopped():
    s.agent.start()
    s.wait_connected()
    for name in JOBS:
        job[name] = submit(name)
    for name in JOBS:  # its rhythm is known
        until(name, "a rhythm", lambda n=name: (a := attempt(n)) and a.activity == api.ACTIVITY_MOVING and
              "about every" in a.activity_reason)
    threading.Thread(target=reports, daemon=True).start()
    told("straggler", "slow")
    for name in STOPPED:
        if name != "detector":
            told(name, "wait")
    freeze("detector")  # between two steps: it is continued to be ended, and may say one more
    for name in [n for n in STOPPED if n != "detector"]:
        until(name, "the last step", lambda n=name: os.path.exists(f"{HOME}/{n}.waits"), 60)
        assert ("Stalled ranks:" in log_of(name)) == JOBS[name][1], log_of(name)
        freeze(name)


def goes_on_before_the_second_look():
    an = suspicion("continues")
    assert "no sign for" in an.status_reason, an
    told("continues", "-wait")
    thaw("continues")
    until("continues", "the withdrawal", lambda: anomaly("continues").status == WITHDRAWN)
    until("continues", "progress", lambda: attempt("continues").activity == api.ACTIVITY_MOVING)


def silence_is_told():
    for name in ("watchdog_line", "detector", "alone", "taken_back", "continues_late"):
        if name in ("watchdog_line", "continues_late"):  # may be confirmed by now on a slow machine
            until(name, "the suspicion", lambda n=name: (a := anomaly(n)) and a.status in (SUSPICION, CONFIRMED))
        else:
            suspicion(name)
        heard[name] = time.monotonic()
    evidence("detector", "watchdog", 90, "no collective ended for 30 s")
    evidence("taken_back", "watchdog", 90, "no collective ended for 30 s")
    evidence("taken_back", "watchdog", 10, "collectives end, power is at 380 W")


def interrupted_once(name, code, witness):
    """@code: the advice's first reason, with @witness in its sentence. Last words may have withdrawn the anomaly since."""
    def case():
        a = s.wait_advice(job[name], match=lambda a: a.status.disposition == api.DISPOSITION_CONVERGED, what="convergence",
                          timeout=240)
        assert a.desired_state == api.DESIRED_STATE_RESTARTED and a.generation == 1, (a, s.describe(job[name]))
        assert [r.code for r in a.reasons][:2] == [code, "no_progress"] and witness in a.reasons[0].sentence, a.reasons
        t = until(name, "completion", lambda: (t := s.timeline(job[name])) and
                  t.attempts[0].milestones.HasField("job_completed") and t)
        assert len(t.advice) == 1 and len(t.attempts) == 2, s.describe(job[name])
        # it ran for a second: its log may come after its end
        t = until(name, "what its log says", lambda: (t := s.timeline(job[name])) and t.attempts[1].resumed_from_step == 2 and
                  t.attempts[0].milestones.HasField("successor_productive") and t)
        ms = t.attempts[0].milestones
        for m in ("first_suspicion", "anomaly_confirmed", "advised", "converged", "successor_started", "successor_productive"):
            assert ms.HasField(m), (m, ms)
        lasted = ms.anomaly_confirmed.seconds - ms.first_suspicion.seconds
        assert lasted >= LOOK_AGAIN_S - 1 or name == "watchdog_line", lasted  # whose line was the first suspicion
        verbs = [x.verb for x in t.actions]
        assert verbs == [api.VERB_INTERRUPT, api.VERB_CONSTRAIN, api.VERB_RELEASE], s.describe(job[name])
        assert all(x.command == api.COMMAND_RESULT_ACCEPTED and x.observed == api.OBSERVED_YES for x in t.actions), t.actions
        # Slurm's account, and the agent's
        for what, pattern in (("requeue", "Requeuing"), ("release", "release hold")):
            lines = s.ctld(job[name], pattern)
            assert len(lines) == 1, f"not one {what}: {lines}"
        j = s.lab.job(job[name])
        assert j["state"] == "COMPLETED" and j["restarts"] == 1, j
        assert not until(name, "the journal", lambda: (r := s.journal(job[name])) and all(x[1] for x in r[0]) and r)[1], "a hold is left"
        assert not processes(name), "stopped processes are left"
    return advcrash.named(f"interrupted_once__{name}", case)


def taken_back_when_it_goes_on():
    """The advice waits for a person when the attempt goes on: nobody can approve it any more."""
    a = s.wait_advice(job["continues_late"], timeout=240, what="advice")
    assert a.desired_state == api.DESIRED_STATE_RESTARTED and a.actionability == api.ACTIONABILITY_NEEDS_APPROVAL, a
    told("continues_late", "-wait")
    thaw("continues_late")
    a = s.wait_advice(job["continues_late"], match=lambda a: a.desired_state == api.DESIRED_STATE_NO_ACTION, timeout=60)
    assert [r.code for r in a.reasons][0] == "progress_resumed" and a.generation == 2, a
    assert anomaly("continues_late").status == WITHDRAWN, anomaly("continues_late")
    untouched("continues_late")


def left_alone_without_a_second_witness():
    """As long as those that were interrupted, and longer."""
    for name in ("alone", "taken_back"):
        until(name, "a long silence", lambda n=name: time.monotonic() > heard[n] + LOOK_AGAIN_S + 15, LOOK_AGAIN_S + 30)
        assert suspicion(name) and attempt(name).activity == api.ACTIVITY_SILENT, s.describe(job[name])
        assert s.advice(job[name]) is None, s.describe(job[name])
        untouched(name)


def left_alone_when_progress_comes_from_outside():
    assert not reported, reported
    assert "Stalled ranks:" in log_of("progress_outside") and set(processes("progress_outside").values()) == {"T"}
    a = until("progress_outside", "activity", lambda: (a := attempt("progress_outside")).activity == api.ACTIVITY_MOVING and a)
    assert a.last_step > 1000, a
    an = anomaly("progress_outside")  # a call that came late may have opened it for a moment
    assert not an or an.status == WITHDRAWN, an
    assert s.advice(job["progress_outside"]) is None, s.describe(job["progress_outside"])
    untouched("progress_outside")
    stop_reports.set()


def left_alone_after_it_went_on():
    a = s.advice(job["continues"])
    assert a is None, s.describe(job["continues"])
    assert attempt("continues").activity == api.ACTIVITY_MOVING, attempt("continues")
    untouched("continues")


def straggler_is_told_and_left_alone():
    """By its log and by a detector; it has been slow for as long as the others stood still."""
    stub = api.SignalServiceStub(s.cp.channel("detector:site"))
    an = stub.ReportAnomaly(api.ReportAnomalyRequest(
        ref=ref("straggler"), kind=api.ANOMALY_KIND_STRAGGLER, rule="slow-rank", fault_class="unknown", ranks=["5"],
        retryable=api.RETRYABILITY_YES, excerpt="rank 5: 2.2 s each, 1.1 s elsewhere", request_id="s1"), timeout=30).anomaly
    assert an.kind == api.ANOMALY_KIND_STRAGGLER and list(an.ranks) == ["5"], an
    both = [a for a in s.timeline(job["straggler"]).anomalies if a.kind == api.ANOMALY_KIND_STRAGGLER]
    assert len(both) == 2, s.describe(job["straggler"])
    step = attempt("straggler").last_step
    until("straggler", "more steps", lambda: attempt("straggler").last_step > step + 3)
    assert s.advice(job["straggler"]) is None, s.describe(job["straggler"])
    untouched("straggler")


def people_can_end_what_is_stopped():
    left = [n for n in JOBS if s.lab.job(job[n]).get("state") == "RUNNING"]
    s.lab.exec("scancel", *[job[n] for n in left])
    for name in left:
        s.lab.wait_state(job[name], "CANCELLED", timeout=60)
        until(name, "the end", lambda n=name: attempt(n).state == api.JOB_STATE_CANCELLED)
        assert s.lab.job(job[name])["restarts"] == 0 and len(s.timeline(job[name]).attempts) == 1
        assert (a := s.advice(job[name])) is None or a.desired_state == api.DESIRED_STATE_NO_ACTION, a


advstack.run([setup_all_move_and_are_stopped, goes_on_before_the_second_look, silence_is_told,
              interrupted_once("watchdog_line", "signature", "horovod-stall"),
              interrupted_once("detector", "silence", "a watchdog spoke (site: no collective ended"),
              taken_back_when_it_goes_on, left_alone_without_a_second_witness, left_alone_when_progress_comes_from_outside,
              left_alone_after_it_went_on, straggler_is_told_and_left_alone, people_can_end_what_is_stopped, advcrash.clean_end(s)])
