# SPDX-License-Identifier: Apache-2.0
"""Real Slurm for tests: start and stop a lab, run things in it as somebody, wait for conditions.

A test file defines functions marked with @case and ends with main(). Each case prints one line, `ok NAME`,
`not ok NAME reason` or `skip NAME reason`; the file's exit code is 1 when a case failed.
"""
import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
SLURM_LAB = os.path.normpath(os.path.join(HERE, "..", "..", "lab", "slurm-lab"))


class Skip(Exception):
    """Raised by a case that cannot be tried here."""


def wait_for(what, probe, timeout=20.0, every=0.1):
    """Returns the first true value of probe(); fails with `what` after timeout seconds."""
    end = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"timed out waiting for {what}")
        time.sleep(every)


class Lab:
    """One cluster of its own in a folder of its own."""

    def __init__(self, nodes=3, cpus=2, sets=(), lines=(), dbd=True, tool=None):
        self.dir = tempfile.mkdtemp(prefix="advlab-")
        os.chmod(self.dir, 0o755)
        self.name = "t" + format(os.getpid(), "x")
        self.base = [SLURM_LAB, "--dir", self.dir]
        args = ["--name", self.name, "--nodes", str(nodes), "--cpus", str(cpus)]
        for s in sets:
            args += ["--set", s]
        for l in lines:
            args += ["--line", l.replace("@", self.name)]  # node 1 is @n1
        if not dbd:
            args.append("--no-dbd")
        self.suite = os.environ.get("ADVISOR_LAB_SUITE")  # Slurm of another Debian
        if self.suite:
            args += ["--suite", self.suite]
        atexit.register(self.purge)
        for s in (signal.SIGTERM, signal.SIGINT):
            signal.signal(s, lambda *_: sys.exit(1))
        os.environ.setdefault("ADVISOR_LAB_CACHE", "/tmp/advisor-lab-cache")
        self.ctl("up", *args, timeout=600 if self.suite else 180)
        self.node = [f"{self.name}n{i + 1}" for i in range(nodes)]
        self.tool = None
        if tool:  # a copy, as the build folder may be closed to other users
            self.tool = os.path.join(self.dir, "bin-" + os.path.basename(tool))
            shutil.copy(tool, self.tool)
            os.chmod(self.tool, 0o755)
        self.exec("mkdir", "-p", f"{self.dir}/home/laboper/state", user="laboper")

    def ctl(self, verb, *args, timeout=60):
        subprocess.run([SLURM_LAB, verb, "--dir", self.dir, *args], check=True, timeout=timeout,
                       stdin=subprocess.DEVNULL)

    def purge(self):
        if os.path.isdir(self.dir):
            subprocess.run([SLURM_LAB, "purge", "--dir", self.dir], timeout=120, stdin=subprocess.DEVNULL)

    def argv(self, cmd, user=None):
        who = ["--as", user] if user else []
        return [SLURM_LAB, "exec", "--dir", self.dir, *who, "--", *map(str, cmd)]

    def exec(self, *cmd, user=None, check=True, timeout=60, env=None):
        """Runs a command in the lab; returns its stdout as text."""
        p = subprocess.run(self.argv(cmd, user), capture_output=True, timeout=timeout, env={**os.environ, **(env or {})},
                           stdin=subprocess.DEVNULL)
        if check and p.returncode != 0:
            raise AssertionError(f"{cmd}: exit code {p.returncode}: {p.stderr.decode(errors='replace')}")
        return p.stdout.decode(errors="replace").strip()

    def sbatch(self, *args, wrap="sleep 300", user="labuser1"):
        return self.exec("sbatch", "--parsable", *args, "--wrap", wrap, user=user)

    def job(self, job_id):
        """State, restarts, nodes, reason, priority, eligible, excluded as Slurm's tools print them; {} when absent."""
        form = "State:|,RestartCnt:|,NodeList:|,PriorityLong:|,EligibleTime:|,SubmitTime:|,Reason:|"
        out = self.exec("squeue", "-h", "-r", "-t", "all", "-j", job_id, "-O", form, check=False,
                        env={"SLURM_TIME_FORMAT": "%s"})
        if not out:
            return {}
        keys = ("state", "restarts", "nodes", "priority", "eligible", "submit", "reason")
        d = dict(zip(keys, out.splitlines()[0].split("|")))
        d["excluded"] = self.exec("squeue", "-h", "-r", "-t", "all", "-j", job_id, "-o", "%x", check=False)
        d["restarts"] = int(d["restarts"])
        return d

    def wait_state(self, job_id, *states, timeout=20):
        return wait_for(f"job {job_id} in {'/'.join(states)}, is {self.job(job_id)}",
                        lambda: (j := self.job(job_id)).get("state") in states and j, timeout)

    # the adapter's driver
    def start(self, *args, user="laboper", env=None):
        cmd = [self.tool, "--state", f"{self.dir}/home/laboper/state", *args]
        if user != "laboper":
            cmd[2] = f"{self.dir}/home/{user}"
        return subprocess.Popen(self.argv(cmd, user), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})

    def finish(self, p, timeout=120):
        out, err = p.communicate(timeout=timeout)
        if p.returncode != 0:
            raise AssertionError(f"driver: exit code {p.returncode}: {err.decode(errors='replace')}")
        lines = [json.loads(line) for line in out.decode().splitlines()]
        return lines[0] if len(lines) == 1 else lines

    def adapter(self, *args, user="laboper", env=None, timeout=120):
        return self.finish(self.start(*args, user=user, env=env), timeout)

    def act(self, verb, job_id, restarts, *args, **kw):
        return self.adapter("act", verb, job_id, "--expect-restarts", str(restarts), *args, **kw)


CASES = []


def case(f):
    CASES.append(f)
    return f


def expect(result, **want):
    """Compares some members of a result; the message shows all of it."""
    got = {k: result.get(k) for k in want}
    if got != want:
        raise AssertionError(f"wanted {want}, got {str(got)[:400]} in {json.dumps(result)[:1500]}")
    return result


def main(make_lab):
    """Runs the cases whose names contain the words of the command line (all without words)."""
    if os.geteuid() != 0:
        print("skip all needs root to start daemons", flush=True)
        sys.exit(0)
    words = sys.argv[1:]
    lab, failed = make_lab(), 0
    for f in CASES:
        name = f.__name__
        if words and not any(w in name for w in words):
            continue
        try:
            f(lab)
            print(f"ok {name}", flush=True)
        except Skip as e:
            print(f"skip {name} {e}", flush=True)
        except Exception as e:  # one broken case must not hide the others
            failed += 1
            print(f"not ok {name} {str(e).splitlines()[0] if str(e) else type(e).__name__}", flush=True)
            traceback.print_exc()
    lab.purge()
    sys.exit(1 if failed else 0)
