#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The four jobs of ./demo: each is submitted, followed live, and compared with what should happen.

What is printed comes from where an operator would look: advisorctl, squeue and scontrol, the job's own output,
slurmctld's log. Exits 0 only if every expectation held.
"""
import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import threading
import time

STEPS, SAVE_EVERY, STEP_MS, FAIL_AT = 60, 10, 200, 26
BOLD, DIM, GREEN, RED, END = ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m") if sys.stdout.isatty() else ("",) * 5


def word(value, prefix):
    """JOB_STATE_FAILED -> failed"""
    return value[len(prefix):].lower().replace("_", " ") if value.startswith(prefix) else value


def when(text):
    """Seconds since 1970 of an RFC 3339 time."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else None


class Demo:
    def __init__(self, args):
        self.args = args
        self.failed = []
        self.jobs = []  # (label, job id) for the last table
        self.lock = threading.Lock()
        self.home = f"{args.state}/slurm/home/{args.user}"
        self.show = None  # the job whose changes are narrated
        self.seen = {}

    # ---- what people read ----------------------------------------------------------------------------------------
    def say(self, text, color=""):
        with self.lock:
            print(f"[{time.time() - self.args.begun:6.1f}s] {color}{text}{END if color else ''}", flush=True)

    def title(self, text, about):
        with self.lock:
            print(f"\n{BOLD}{'-' * 100}\n{text}\n{END}{about}\n", flush=True)

    def expect(self, held, what, detail=""):
        self.say(f"{'as expected' if held else 'NOT AS EXPECTED'}: {what}{'' if held or not detail else f' ({detail})'}",
                 GREEN if held else RED)
        if not held:
            self.failed.append(what)
        return held

    def output(self, command, text, limit=60):
        with self.lock:
            print(f"{DIM}$ {command}{END}")
            lines = text.rstrip("\n").split("\n")
            for line in lines[:limit]:
                print(f"    {line[:220]}")
            if len(lines) > limit:
                print(f"    ... {len(lines) - limit} more lines")
            sys.stdout.flush()

    # ---- tools ---------------------------------------------------------------------------------------------------
    def advisorctl(self, *args, check=True):
        p = subprocess.run([f"{self.args.state}/advisorctl", *args], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                           timeout=120)
        if check and p.returncode != 0:
            raise SystemExit(f"advisorctl {' '.join(args)}: exit code {p.returncode}: {p.stderr}")
        return p.stdout if p.returncode == 0 else ""

    def api(self, *args, check=True):
        text = self.advisorctl(*args, "-o", "json", check=check)
        return json.loads(text) if text else {}

    def slurm(self, *command, user=None):
        who = ["--as", user] if user else []
        return subprocess.run([self.args.lab, "exec", "--dir", f"{self.args.state}/slurm", *who, "--", *command], text=True,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=True).stdout.strip()

    def scontrol(self, job):
        text = self.slurm("scontrol", "-o", "show", "job", job)
        return dict(re.findall(r"(\S+?)=(\S*)", text))

    def show_advisorctl(self, *args):
        self.output("advisorctl " + " ".join(args), self.advisorctl(*args))

    def show_slurm(self, job):
        self.output(f"squeue -t all -j {job}", self.slurm("squeue", "-t", "all", "-j", job, "-o", "%.6i %.14j %.9T %.10M %.12N %.20r"))
        keys = ("JobState", "Restarts", "ExitCode", "NodeList", "ExcNodeList", "Reason")
        found = self.scontrol(job)
        self.output(f"scontrol show job {job}", "  ".join(f"{k}={found.get(k, '')}" for k in keys))

    def log_of(self, job, attempt=None):
        """The job's output; Slurm appends attempts to it here."""
        try:
            with open(f"{self.home}/job-{job}.out", encoding="utf-8", errors="replace") as f:
                return f.read().split("\n")
        except FileNotFoundError:
            return []

    def slurmctld_writes(self, job):
        """Lines of slurmctld's log that tell of a change to the job by request: requeue, hold, update, release."""
        with open(f"{self.args.state}/slurm/log/slurmctld.log", encoding="utf-8", errors="replace") as f:
            lines = f.read().split("\n")
        pattern = re.compile(rf"(requeue|update_job|_slurm_rpc_update|held|release|suspend|kill).*JobId={job}\b|"
                             rf"JobId={job}\b.*(requeue|held|release|update)", re.IGNORECASE)
        return [line for line in lines if pattern.search(line)]

    def wait(self, what, probe, timeout):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            value = probe()
            if value:
                return value
            time.sleep(0.25)
        self.expect(False, f"{what} within {timeout} s")
        return None

    # ---- live changes --------------------------------------------------------------------------------------------
    def follow(self):
        """Narrates each change of the job under show, from one Watch of the API."""
        p = subprocess.Popen([f"{self.args.state}/advisorctl", "watch", "--cluster", self.args.cluster, "-o", "json"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True)
        self.watcher = p
        for line in p.stdout:
            try:
                self.narrate(json.loads(line))
            except (ValueError, KeyError) as e:
                self.say(f"a change that is not understood: {e}: {line[:200]}", RED)

    def narrate(self, w):
        if not self.show or not w.get("name", "").startswith(self.show + "/") and not self.of_job(w):
            return
        for kind, tell in (("attempt", self.tell_attempt), ("anomaly", self.tell_anomaly), ("advice", self.tell_advice),
                           ("action", self.tell_action)):
            if kind in w:
                tell(w[kind])

    def of_job(self, w):
        for kind in ("anomaly", "action", "advice", "attempt"):
            if kind in w:
                name = w[kind].get("attempt") if kind == "anomaly" else w[kind].get("advice") if kind == "action" else ""
                return isinstance(name, str) and name.startswith(self.show + "/")
        return False

    def once(self, key, value, text):
        if self.seen.get(key) != value:
            self.seen[key] = value
            self.say("  " + text)

    def tell_attempt(self, a):
        n = f"attempt {a['index']}"
        state = word(a["state"], "JOB_STATE_")
        if state not in ("-", "unspecified"):
            nodes = f" on {a['nodes']}" if a.get("nodes") and state in ("running", "completing") else ""
            self.once((n, "state"), state, f"{n} is {state}{nodes}")
        if int(a.get("resumedFromStep", 0)):
            self.once((n, "resumed"), 1, f"{n} resumed from the checkpoint of step {a['resumedFromStep']}")
        if int(a.get("lastCheckpointStep", 0)):
            self.once((n, "saved"), a["lastCheckpointStep"], f"{n} saved a checkpoint at step {a['lastCheckpointStep']}")
        told = {"converged": "converged: a fresh look shows the successor queued and free to start",
                "successorStarted": "started: the successor runs",
                "successorProductive": "productive: the successor went beyond the last checkpoint",
                "jobCompleted": "completed: the job is done"}
        for key, text in told.items():
            if (a.get("milestones") or {}).get(key):
                self.once(key, 1, text)

    def tell_anomaly(self, a):
        status = word(a["status"], "ANOMALY_STATUS_")
        rule = f"rule {a['rule']} ({a['faultClass']})" if a["rule"] else f"scheduler state ({a['faultClass']})"
        nodes = f", names {','.join(a['nodes'])}" if a["nodes"] else ""
        why = f": {a['statusReason']}" if a["statusReason"] and status != "suspicion" else ""
        excerpt = f': "{a["excerpt"][:90]}"' if status == "suspicion" else ""
        self.once((a["uid"], "status"), status, f"{status}: {rule}{nodes}{why}{excerpt}")

    def tell_advice(self, a):
        may = word(a["actionability"], "ACTIONABILITY_")
        self.once((a["name"], "gen"), (a["generation"], may),
                  f"advice, generation {a['generation']} ({may}): {a['summary']}")
        status = a.get("status") or {}
        disposition = word(status.get("disposition", ""), "DISPOSITION_")
        if disposition in ("converged", "abandoned", "superseded") and a["desiredState"] != "DESIRED_STATE_NO_ACTION":
            self.once((a["name"], "disposition"), disposition,
                      f"advice {disposition}: {word(status['reason'], 'DISPOSITION_REASON_')}")

    def tell_action(self, a):
        verb = word(a["verb"], "VERB_")
        key = (a["journalId"], a["journalSeq"])
        if a.get("outcomeTime"):
            self.once(key, 2, f"agent: {verb}: command {word(a['command'], 'COMMAND_RESULT_')}, effect observed: "
                              f"{word(a['observed'], 'OBSERVED_')}")
        else:
            self.once(key, 1, f"agent: about to {verb} (read before: {a['readBefore']})")

    # ---- jobs ----------------------------------------------------------------------------------------------------
    def submit(self, label, fault, nodes=2):
        comment = '{"advisor": {"policy": "pretrain", "max_restarts": 3}}'
        script = (f"srun --kill-on-bad-exit=1 {self.args.state}/bin/train.py --steps {STEPS} --save-every {SAVE_EVERY} "
                  f"--step-ms {STEP_MS} --checkpoints {self.home}/ckpt-{label}")
        command = ["sbatch", "--parsable", "-N", str(nodes), "--ntasks-per-node=1", "-J", label, "--open-mode=append",
                   "-o", f"{self.home}/job-%j.out", "--comment", comment, "--wrap", script]
        self.seen = {}
        self.show = "pending submission"
        job = self.slurm("env", f"DEMO_FAULT={fault}", *command, user=self.args.user)
        self.say(f"submitted as {self.args.user}: job {job}, {nodes} nodes, {STEPS} steps, a checkpoint every {SAVE_EVERY}; "
                 f"its comment opts in: {comment}")
        self.jobs.append((label, job))
        found = self.wait("Advisor sees the job", lambda: self.api("job", self.ref(job), check=False), 30)
        self.show = found["job"]["name"] if found else None
        for a in (found or {}).get("attempts", []):
            self.tell_attempt(a)
        return job

    def ref(self, job):
        return f"{self.args.cluster}/{job}"

    def timeline(self, job):
        return self.api("job", self.ref(job))

    def wait_state(self, job, states, timeout):
        self.wait(f"job {job} is {' or '.join(states)} in Slurm", lambda: self.scontrol(job).get("JobState") in states, timeout)

    def wait_judged(self, job, attempt, timeout):
        """The advice of an attempt, once there is one."""
        def probe():
            for a in self.timeline(job)["advice"]:
                if a["attempt"]["restartCount"] == attempt:
                    return a
            return None
        return self.wait(f"attempt {attempt} of job {job} is judged", probe, timeout) or {}

    def show_log_end(self, job, n=14):
        lines = [line for line in self.log_of(job) if line]
        self.output(f"tail -n {n} job-{job}.out", "\n".join(lines[-n:]))

    def untouched(self, job, state):
        found = self.scontrol(job)
        self.expect(found.get("JobState") == state and found.get("Restarts") == "0",
                    f"Slurm has job {job} {state}, restart count 0", f"{found.get('JobState')}, {found.get('Restarts')}")
        writes = self.slurmctld_writes(job)
        self.expect(not writes, f"slurmctld's log tells of no requeue, hold or update of job {job}", "; ".join(writes[:2]))
        self.expect(not self.timeline(job)["actions"], f"Advisor has no action on record for job {job}")

    # ---- scenes --------------------------------------------------------------------------------------------------
    def connect(self):
        self.wait("the agent is connected", lambda: self.api("cluster", "get", self.args.cluster)["agentState"] ==
                  "AGENT_STATE_CONNECTED" and int(self.api("cluster", "get", self.args.cluster)["nodes"]) == 4, 60)
        threading.Thread(target=self.follow, daemon=True).start()
        self.say("the agent is connected and has sent its snapshot")
        self.show_advisorctl("clusters")
        self.show_advisorctl("nodes", self.args.cluster)

    def scene_observe(self):
        self.title("1. A device fails under a job; the cluster is in mode OBSERVE",
                   "Two nodes train together; at step 26 the device of one of them reports an uncorrectable memory error.\n"
                   "In OBSERVE Advisor writes down what it would do, and touches nothing.")
        job = self.submit("observe", f"ecc:{FAIL_AT}:1")
        self.wait_state(job, ("FAILED",), 90)
        advice = self.wait_judged(job, 0, 60)
        self.show_error(job)
        nodes = self.node_of_error(job)
        self.expect(advice.get("desiredState") == "DESIRED_STATE_RESTARTED" and advice.get("generation") == "1",
                    "the advice is: restart, generation 1", str(advice.get("desiredState")))
        self.expect(expand(advice.get("excludeNodes", [])) == [nodes], f"it names {nodes}, where the error was printed",
                    str(advice.get("excludeNodes")))
        self.expect(advice.get("actionability") == "ACTIONABILITY_SHADOW", "it is for reading only")
        self.say("waiting 8 s more, in case somebody touches the job after all")
        time.sleep(8)
        self.show_slurm(job)
        self.untouched(job, "FAILED")
        self.show_advisorctl("explain", self.ref(job))
        self.observed = job

    def show_error(self, job):
        lines = [line for line in self.log_of(job) if line]
        at = next((i for i, line in enumerate(lines) if "RuntimeError: CUDA error" in line), len(lines) - 1)
        self.output(f"grep -B9 'RuntimeError: CUDA error' job-{job}.out; tail -n 5 job-{job}.out",
                    "\n".join(lines[max(0, at - 9):at + 1] + ["..."] + lines[-5:]))

    def node_of_error(self, job):
        for line in self.log_of(job):
            if "uncorrectable ECC" in line:
                return line.split(":")[0]
        return "?"

    def scene_act(self):
        self.title("2. The same fault in mode ACT",
                   "The operator allows acting. Now the same advice is carried out: the job goes back to the queue without the\n"
                   "bad node, and goes on from its last checkpoint.")
        self.show_advisorctl("mode", self.args.cluster, "act", "--reason", "second part of the demo", "--wait")
        job = self.submit("act", f"ecc:{FAIL_AT}:1")
        self.wait_state(job, ("COMPLETED",), 150)
        bad = self.node_of_error(job)
        t = self.wait("the attempt is productive and completed in Advisor's eyes", lambda: self.finished(job), 30) or self.timeline(job)
        self.show_log_end(job, 6)
        self.show_slurm(job)
        first, last = t["attempts"][0], t["attempts"][-1]
        advice = t["advice"][0] if t["advice"] else {}
        found = self.scontrol(job)
        self.expect(any(a["rule"].startswith("cuda-ecc") and a["status"] == "ANOMALY_STATUS_CONFIRMED" for a in t["anomalies"]),
                    "a signature in the log, confirmed by the end state")
        self.expect(advice.get("desiredState") == "DESIRED_STATE_RESTARTED" and advice.get("generation") == "1" and
                    expand(advice.get("excludeNodes", [])) == [bad], f"advice generation 1: restart without {bad}")
        verbs = [word(a["verb"], "VERB_") for a in t["actions"] if a.get("observed") == "OBSERVED_YES"]
        self.expect(verbs == ["preserve", "constrain", "release"], "three writes, each with its effect observed: hold, constrain, "
                    "release", str(verbs))
        self.expect((advice.get("status") or {}).get("disposition") == "DISPOSITION_CONVERGED", "the advice converged")
        self.expect(found.get("Restarts") == "1" and len(t["attempts"]) == 2, "exactly one restart", found.get("Restarts", ""))
        self.expect(bad not in expand([last["nodes"]]) and last["nodes"] != "", f"attempt 1 ran on {last['nodes']}, without {bad}")
        self.expect(bad in expand([found.get("ExcNodeList", "")]), f"Slurm excludes {bad} for this job")
        saved = FAIL_AT // SAVE_EVERY * SAVE_EVERY
        self.expect(int(last["resumedFromStep"]) == saved == int(first["lastCheckpointStep"]),
                    f"attempt 1 resumed from the checkpoint of step {saved}", f"{last['resumedFromStep']}, {first['lastCheckpointStep']}")
        m = first["milestones"]
        names = ["endObserved", "advised", "firstCommandAccepted", "converged", "successorStarted", "successorProductive",
                 "jobCompleted"]
        times = [when(m.get(n)) for n in names]
        self.expect(all(times) and times == sorted(times), "all milestones were reached, in order",
                    ", ".join(n for n, x in zip(names, times) if not x))
        self.expect(len(self.slurmctld_writes(job)) >= 3, f"slurmctld's log tells of the writes to job {job} (so the search that "
                    f"found none for job {self.observed} can see)", str(self.slurmctld_writes(job)))
        self.expect(self.scontrol(self.observed).get("JobState") == "FAILED", f"raising the mode did not touch job {self.observed}")
        self.show_advisorctl("job", self.ref(job))

    def finished(self, job):
        t = self.timeline(job)
        m = t["attempts"][0].get("milestones") or {}
        return t if m.get("successorProductive") and m.get("jobCompleted") else None

    def scene_import_error(self):
        self.title("3. A mistake in the program, still in mode ACT",
                   "A module is missing. The same job would fail again wherever it runs, so it is left as Slurm has it.")
        job = self.submit("import", "importerror")
        self.wait_state(job, ("FAILED",), 60)
        advice = self.wait_judged(job, 0, 60)
        self.show_log_end(job, 6)
        self.expect(advice.get("desiredState") == "DESIRED_STATE_NO_ACTION", "the advice is to do nothing", str(advice.get("summary")))
        self.expect(any(r["code"] == "user_fault" for r in advice.get("reasons", [])), "because the fault is the program's own")
        time.sleep(5)
        self.show_slurm(job)
        self.untouched(job, "FAILED")
        self.show_advisorctl("explain", self.ref(job))

    def scene_caught(self):
        self.title("4. A frightening error that the program handles, still in mode ACT",
                   "The device runs out of memory; the program catches the error and goes on. Killing it would be the worst answer.")
        job = self.submit("caught", "caught:15")
        suspicion = self.wait("the error is seen", lambda: self.timeline(job)["anomalies"], 60)
        if suspicion:
            self.expect(self.scontrol(job).get("JobState") == "RUNNING", "a signature on a running job is a suspicion, no more")
        self.wait_state(job, ("COMPLETED",), 90)
        advice = self.wait_judged(job, 0, 60)
        self.output(f"grep -A4 Traceback job-{job}.out", "\n".join(self.around(job, "Traceback", 5)))
        t = self.timeline(job)
        self.expect(bool(t["anomalies"]) and all(a["status"] == "ANOMALY_STATUS_WITHDRAWN" for a in t["anomalies"]),
                    "the suspicion was withdrawn", str([a["status"] for a in t["anomalies"]]))
        self.expect(advice.get("desiredState") == "DESIRED_STATE_NO_ACTION", "the advice is to do nothing", str(advice.get("summary")))
        self.show_slurm(job)
        self.untouched(job, "COMPLETED")
        self.show_advisorctl("explain", self.ref(job))

    def around(self, job, text, n):
        lines = self.log_of(job)
        for i, line in enumerate(lines):
            if text in line:
                return lines[i:i + n]
        return []

    def table(self):
        self.title("5. Milestones", "Seconds from the end of the first attempt as Advisor observed it; '-' for what did not happen, and "
                   "should not have.")
        names = [("anomalyConfirmed", "confirmed"), ("advised", "advised"), ("firstCommandAccepted", "1st command"),
                 ("converged", "converged"), ("successorStarted", "started"), ("successorProductive", "productive"),
                 ("jobCompleted", "completed")]
        head = f"{'job':<12}{'end observed':<16}" + "".join(f"{n:>13}" for _, n in names) + "  outcome"
        print(BOLD + head + END)
        for label, job in self.jobs:
            t = self.timeline(job)
            m = (t["attempts"][0].get("milestones") or {}) if t["attempts"] else {}
            end = when(m.get("endObserved"))
            row = f"{job + ' ' + label:<12}" + (f"{datetime.datetime.fromtimestamp(end):%H:%M:%S.%f}"[:12] if end else "-").ljust(16)
            for key, _ in names:
                at = when(m.get(key))
                row += f"{f'+{at - end:.2f}' if at is not None and end is not None else '-':>13}"
            print(row + f"  {word(t['job']['state'], 'JOB_STATE_')}, {len(t['attempts'])} attempt{'s' if len(t['attempts']) > 1 else ''}")
        sys.stdout.flush()


def expand(texts):
    """Node names of host lists such as demon[1,3-4]."""
    out = []
    for text in texts:
        for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
            m = re.fullmatch(r"(.*)\[(.*)\]", part.strip(","))
            if not m:
                out.append(part.strip(","))
                continue
            for item in m.group(2).split(","):
                lo, _, hi = item.partition("-")
                out += [f"{m.group(1)}{i:0{len(lo)}d}" for i in range(int(lo), int(hi or lo) + 1)]
    return sorted(o for o in out if o and o != "(null)")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--state", required=True)
    p.add_argument("--lab", required=True)
    p.add_argument("--cluster", required=True)
    p.add_argument("--user", required=True)
    p.add_argument("--begun", type=float, default=time.time())
    demo = Demo(p.parse_args())
    os.chdir("/")
    demo.connect()
    demo.scene_observe()
    demo.scene_act()
    demo.scene_import_error()
    demo.scene_caught()
    demo.table()
    demo.watcher.terminate()
    print(flush=True)
    if demo.failed:
        demo.say(f"{len(demo.failed)} expectations did not hold:", RED)
        for what in demo.failed:
            demo.say(f"  {what}", RED)
        return 1
    demo.say("every expectation held", GREEN)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
