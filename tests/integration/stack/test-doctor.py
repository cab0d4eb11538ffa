#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""advisorctl doctor on a real Slurm: a healthy site gives nothing, and each site that is broken on purpose gives its code and a cure
with the site's own names in it. One cluster is broken in one way after the other, and mended each time."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from advlab import Lab, case, main, wait_for  # noqa: E402
from advstack import Advisord  # noqa: E402

# what a machine of tests may well be: nobody keeps its clock, and it is slow
NOISE = {"CLOCK_NOT_SYNCED", "SLURMCTLD_SLOW"}
# so long may a doctor take that meets something that hangs: ASK_MS, OUTPUTS_MS and LINK_MS of doctor.c, and some
BOUND_S = 110


class Site:
    """The agent's side of a site, as laboper, with everything in its place."""

    def __init__(self):
        self.lab = lab = Lab(nodes=1, sets=["JobFileAppend=1", "EpilogSlurmctld=/bin/true"])
        self.cp = Advisord()
        self.home = f"{lab.dir}/home/laboper"
        self.etc = f"{lab.dir}/advisor"
        os.mkdir(self.etc)
        os.chmod(self.etc, 0o755)
        self.bin = {}
        for name in ("ADVISOR_AGENT", "ADVISOR_TAIL", "ADVISORCTL"):
            self.bin[name] = os.path.join(self.etc, os.path.basename(os.environ[name]))
            shutil.copy(os.environ[name], self.bin[name])
            os.chmod(self.bin[name], 0o755)
        self.tail = self.bin["ADVISOR_TAIL"]
        shutil.chown(self.tail, "root", "laboper")
        os.chmod(self.tail, 0o4750)
        self.ceiling = f"{self.etc}/ceiling.yaml"
        with open(self.ceiling, "w") as f:
            f.write("mode: observe\n")
        os.chmod(self.ceiling, 0o644)
        self.tls = f"{self.home}/tls"
        os.makedirs(self.tls)
        self.certificate(f"URI:advisor:agent:{lab.name}")
        self.state = f"{self.home}/state"
        os.chmod(self.state, 0o700)
        self.job = lab.sbatch("--comment", '{"advisor": {"mode": "act"}}', wrap="echo begun; sleep 600")
        lab.wait_state(self.job, "RUNNING")
        self.output = f"{lab.dir}/home/labuser1/slurm-{self.job}.out"
        wait_for("the job's output", lambda: os.path.exists(self.output) and os.path.getsize(self.output))
        self.config = {
            "cluster": lab.name, "control_plane.target": f"127.0.0.1:{self.cp.port}", "control_plane.server_name": "localhost",
            "tls.ca": f"{self.tls}/ca.crt", "tls.cert": f"{self.tls}/agent.crt", "tls.key": f"{self.tls}/agent.key", "state.dir": self.state,
            "state.allow_volatile": "true", "ceiling.path": self.ceiling, "tail.helper": self.tail,
        }
        if lab.suite:
            self.config["scheduler.bin_dir"] = f"{lab.dir}/bin"

    def certificate(self, san, ca=None):
        crt, key = (ca or self.cp.ca).issue("agent", san)
        for src, dst in ((crt, "agent.crt"), (key, "agent.key"), (self.cp.ca.cert, "ca.crt")):
            shutil.copy(src, f"{self.tls}/{dst}")
            os.chmod(f"{self.tls}/{dst}", 0o600)
        subprocess.run(["chown", "-R", "laboper:", self.tls], check=True)

    def write(self, **more):
        path = f"{self.etc}/agent.yaml"
        with open(path, "w") as f:
            for k, v in {**self.config, **{k.replace("__", "."): v for k, v in more.items()}}.items():
                f.write(f"{k}: {v}\n")
        os.chmod(path, 0o644)
        return path

    def run(self, *args, user="laboper", env=None, **more):
        """Exit code, findings by code, and what was printed."""
        config = self.write(**more)
        began = time.monotonic()
        cmd = ["env", *(f"{k}={v}" for k, v in (env or {}).items()), self.bin["ADVISORCTL"], "doctor", "--agent", self.bin["ADVISOR_AGENT"],
               "--agent-config", config, *(args or ("-o", "json"))]
        p = subprocess.run(self.lab.argv(cmd, user), capture_output=True, timeout=BOUND_S + 60, stdin=subprocess.DEVNULL)
        took = time.monotonic() - began
        out, err = p.stdout.decode(), p.stderr.decode(errors="replace")
        assert took < BOUND_S, f"took {took:.0f} s: {out}"
        assert p.returncode in (0, 1, 2), f"exit code {p.returncode}: {out} {err}"
        assert "Sanitizer" not in err, err
        if args:
            return p.returncode, {}, out
        answer = json.loads(out)
        return p.returncode, {f["code"]: f for f in answer["findings"]}, answer

    def expect(self, code, *words, exit_code=2, alone=True, also=(), **more):
        """Waits until that code is found, once, with these words in what it says; with others from @also alone."""
        def probe():
            rc, found, answer = self.run(**more)
            return code in found and (rc, found, answer)
        rc, found, answer = wait_for(f"{code}", probe, timeout=60, every=0.3)
        others = set(found) - NOISE - {code} - set(also)
        assert not alone or not others, f"{others} beside {code}: {json.dumps(found)}"
        f = found[code]
        text = f["what"] + " " + f["cure"]
        assert all(w in text for w in words), f"wanted {words} in: {text}"
        assert f["means"] and f["cure"] and f["sure"] in ("sure", "likely", "maybe"), f
        assert rc == exit_code, f"exit code {rc}, wanted {exit_code}: {json.dumps(found)}"
        return f, answer

    def healthy(self):
        def probe():
            rc, found, answer = self.run()
            self.last = found, answer
            return not (set(found) - NOISE) and not answer["notChecked"]
        try:
            wait_for("a healthy site", probe, timeout=60, every=0.3)
        except AssertionError as e:
            raise AssertionError(f"{e}: {json.dumps(self.last)}") from None
        return self.last

    def conf(self, *pairs):
        self.lab.ctl("conf", *pairs)


S = None


def make():
    global S
    S = Site()
    return S.lab


@case
def a_healthy_site_gives_none(lab):
    found, answer = S.healthy()
    assert answer["site"]["cluster"] == lab.name and answer["site"]["rights"] == "operator", answer
    assert set(answer["verbs"].values()) == {"yes"}, answer
    rc, _, text = S.run("-o", "table")
    assert "0 faults, " in text and f"cluster {lab.name}" in text, text


@case
def rights(lab):
    def level(word):
        lab.exec("sacctmgr", "-i", "modify", "user", "laboper", "set", f"adminlevel={word}")
    level("None")
    try:
        _, answer = S.expect("OPERATOR_MISSING", "sacctmgr modify user laboper set adminlevel=Operator")
        assert set(answer["verbs"].values()) == {"no"}, answer
        S.conf("PrivateData=jobs")
        S.expect("JOBS_HIDDEN", "PrivateData", also=["OPERATOR_MISSING"])
    finally:
        S.conf("PrivateData=")
        level("Operator")
    S.expect("OPERATOR_MISSING", "sacctmgr add user nosuchuser", scheduler__user="nosuchuser")


@case
def settings_of_slurm(lab):
    back = {"MinJobAge": "300", "JobRequeue": "1", "AccountingStoreFlags": "job_comment", "KillWait": "2", "MessageTimeout": "10"}
    for pairs, code, words, exit_code, also in (
            (["MinJobAge=5"], "MIN_JOB_AGE_BELOW_POLL", ["MinJobAge is 5 s", "MinJobAge=300"], 2, []),
            (["MinJobAge=100"], "MIN_JOB_AGE_SHORT", ["MinJobAge is 100 s"], 1, []),
            (["MinJobAge=0"], "MIN_JOB_AGE_BELOW_POLL", ["MinJobAge is 2 s"], 2, []),  # slurmctld's own least
            (["JobRequeue=0"], "JOB_REQUEUE_OFF", ["JobRequeue=1"], 1, []),
            (["AccountingStoreFlags="], "ACCOUNTING_NO_COMMENT", ["AccountingStoreFlags=job_comment"], 1, []),
            (["RequeueExit=1-3,9", "RequeueExitHold=2,9"], "REQUEUE_EXIT_OVERLAP", ["2,9"], 1, ["REQUEUE_EXIT_SET"]),
            (["KillWait=200"], "KILL_WAIT_LONG", ["KillWait is 200 s"], 1, []),
            (["CompleteWait=60"], "COMPLETE_WAIT_LONG", ["CompleteWait is 60 s"], 1, []),
            (["MessageTimeout=60"], "MESSAGE_TIMEOUT_LONG", ["scheduler.command_deadline: 62s"], 1, []),
            (["SlurmctldParameters=rl_enable"], "RATE_LIMITED", [], 0, [])):
        S.conf(*pairs)
        try:
            S.expect(code, *words, exit_code=exit_code, also=also)
        finally:
            S.conf(*(f"{k}={back.get(k, '')}" for k in (p.split("=")[0] for p in pairs)))
    S.healthy()


@case
def a_database_that_is_away(lab):
    lab.ctl("stop", "dbd")
    try:
        S.expect("SLURMDBD_UNREACHABLE", "slurmdbd")
    finally:
        lab.ctl("start", "dbd")
    S.healthy()


@case
def no_munge(lab):
    lab.ctl("stop", "munge")
    try:
        S.expect("MUNGE_DOWN", "systemctl start munge")
    finally:
        lab.ctl("start", "munge")
    S.healthy()


@case
def a_slurmctld_that_hangs(lab):
    lab.ctl("freeze", "ctld")
    try:
        S.expect("SLURMCTLD_SILENT", "has not answered")
    finally:
        lab.ctl("thaw", "ctld")
    S.healthy()


@case
def a_slurmctld_that_is_dead(lab):
    time_saved = wait_for("the job in slurmctld's saved state", lambda: os.path.exists(f"{lab.dir}/state/job_state") and
                          os.path.getmtime(f"{lab.dir}/state/job_state"))
    assert time_saved
    lab.ctl("stop", "ctld")
    try:
        S.expect("SLURMCTLD_DOWN", "systemctl start slurmctld", "slurm.conf")
    finally:
        lab.ctl("start", "ctld")
    S.healthy()


@case
def slurm_conf(lab):
    S.expect("NO_SLURM_CONF", "/nonexistent/slurm.conf", scheduler__slurm_conf="/nonexistent/slurm.conf")
    bad = f"{S.etc}/bad.conf"
    with open(bad, "w") as f:
        f.write("Not a setting\n")
    S.expect("SLURM_CONF_BAD", bad, scheduler__slurm_conf=bad)
    os.chmod(bad, 0o600)
    S.expect("SLURM_CONF_UNREADABLE", bad, scheduler__slurm_conf=bad)


def tools(lab, name, script):
    """A folder with Slurm's tools in which one, or all ("*"), are another program."""
    folder = f"{S.etc}/tools-{name.replace('*', 'all')}"
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for t in ("scontrol", "squeue", "scancel", "sinfo", "sacct", "sacctmgr", "sdiag"):
        real = f"{lab.dir}/bin/{t}" if lab.suite else shutil.which(t)
        with open(f"{folder}/{t}", "w") as f:
            f.write("#!/bin/bash\n" + (script.replace("REAL", real) if name in (t, "*") else f'exec {real} "$@"\n'))
        os.chmod(f"{folder}/{t}", 0o755)
    os.chmod(folder, 0o755)
    return folder


@case
def tools_that_are_ill(lab):
    S.expect("SLURM_TOOLS_MISSING", "scontrol, squeue, scancel, sinfo, sacct", scheduler__bin_dir="/nonexistent")
    # not a word of it is Slurm's, and it never ends
    for script in ("head -c 300000 /dev/urandom; exit 0\n", "head -c 3000 /dev/urandom >&2; exit 3\n", "kill -SEGV $$\n",
                   'printf "Slurmctld(primary) at x is UP\\nClusterName = \\033[31m%%n%%s\\n"\n'):
        rc, found, answer = S.run(scheduler__bin_dir=tools(lab, "*", script))
        assert rc == 2 and not {"OPERATOR_MISSING", "JOB_COMMENT_MALFORMED"} & set(found), found
        assert "\x1b" not in json.dumps(answer, ensure_ascii=False)
    S.expect("JOB_LIST_UNREADABLE", "squeue -a -t all", scheduler__bin_dir=tools(lab, "squeue", 'case $* in -V) exec REAL -V;; esac; echo "7|x|"\n'))
    S.expect("SLURMCTLD_SILENT", scheduler__bin_dir=tools(lab, "scontrol", 'case $* in -V) exec REAL -V;; esac; trap "" TERM; while :; do sleep 1; done\n'),
             scheduler__command_deadline="3s")


@case
def a_clock_that_is_off(lab):
    ahead = tools(lab, "sdiag", 'echo "sdiag output at once ($(($(date +%s) + 60)))"\n')
    S.expect("CLOCK_SKEW_LARGE", "ahead of", "NTP", scheduler__bin_dir=ahead)
    behind = tools(lab, "sdiag", 'echo "sdiag output at once ($(($(date +%s) - 60)))"\n')
    # and so slurmd was started in slurmctld's future, by what can be seen
    S.expect("CLOCK_SKEW_LARGE", "behind", scheduler__bin_dir=behind, also=["NODE_CLOCK_AHEAD"])


@case
def output_that_cannot_be_read(lab):
    moved = S.output + ".away"
    os.rename(S.output, moved)
    try:
        S.expect("OUTPUT_NOT_HERE", S.job, S.output, exit_code=1)
        with open(S.output, "w"):
            pass
        os.chmod(S.output, 0o600)  # root's
        S.expect("OUTPUT_UNREADABLE", S.job, S.output)
        os.chmod(S.output, 0o644)  # somebody else's, and meant so
        S.healthy()
        os.unlink(S.output)
        os.symlink("/dev/null", S.output)
        S.healthy()
    finally:
        os.rename(moved, S.output)
    S.healthy()


@case
def the_helper(lab):
    try:
        os.chmod(S.tail, 0o755)
        S.expect("TAIL_HELPER_NO_RIGHTS", f"chmod 4750 {S.tail}")
        os.chmod(S.tail, 0o700)
        S.expect("TAIL_HELPER_NOT_RUNNABLE", f"chmod 4750 {S.tail}")
        os.chmod(S.tail, 0o4755)
        S.expect("TAIL_HELPER_FOR_ALL", f"chmod 4750 {S.tail}", exit_code=1)
    finally:
        os.chmod(S.tail, 0o4750)
    S.expect("TAIL_HELPER_MISSING", tail__helper="/nonexistent/advisor-tail")
    S.expect("TAIL_OFF", exit_code=0, tail__enabled="false")
    S.healthy()


@case
def the_ceiling(lab):
    try:
        os.chmod(S.ceiling, 0o666)
        S.expect("CEILING_UNUSABLE", S.ceiling)
        os.chmod(S.ceiling, 0o644)
        with open(S.ceiling, "w") as f:
            f.write("mode: sometimes\n")
        S.expect("CEILING_UNUSABLE", S.ceiling)
        with open(S.ceiling, "w") as f:
            f.write("mode: off\n")
        S.expect("CEILING_OFF", exit_code=0)
    finally:
        with open(S.ceiling, "w") as f:
            f.write("mode: observe\n")
        os.chmod(S.ceiling, 0o644)
    S.expect("CEILING_NOT_SET", exit_code=1, ceiling__path='""')
    S.healthy()


@case
def comments_that_are_malformed(lab):
    job = lab.sbatch("--hold", "--comment", '{"advisor": {"mode": "actt"}}')
    nasty = lab.sbatch("--hold", "--comment", 'advisor {"\n9@x@|\x1b[31m')
    f, _ = S.expect("JOB_COMMENT_MALFORMED", job, "scontrol show job ", exit_code=1)
    assert "\x1b" not in f["what"]
    lab.exec("scancel", job, nasty)
    S.healthy()


@case
def the_state_folder(lab):
    try:
        os.chmod(S.state, 0o777)
        S.expect("STATE_DIR_OPEN", f"chmod 700 {S.state}", exit_code=1)
        os.chmod(S.state, 0o500)
        S.expect("STATE_DIR_NOT_WRITABLE", f"chown -R laboper {S.state}")
        os.chmod(S.state, 0o700)
        with open(f"{S.state}/journal", "wb") as f:
            f.write(b"no journal at all, but long enough to be one\n" * 20)
        shutil.chown(f"{S.state}/journal", "laboper")
        S.expect("JOURNAL_DAMAGED", f"mv {S.state}/journal {S.state}/journal.damaged")
    finally:
        os.chmod(S.state, 0o700)
        if os.path.exists(f"{S.state}/journal"):
            os.unlink(f"{S.state}/journal")
    S.expect("STATE_DIR_MISSING", "install -d -o USER -m 700 /nonexistent/state", state__dir="/nonexistent/state")
    shm = "/dev/shm"
    if os.path.isdir(shm):
        folder = f"{shm}/{lab.name}"
        os.mkdir(folder, 0o700)
        try:
            shutil.chown(folder, "laboper")
            f, _ = S.expect("STATE_DIR_VOLATILE", folder, state__dir=folder, state__allow_volatile="false", also=["DISK_FULL", "DISK_NEARLY_FULL"])
        finally:
            os.rmdir(folder)
    S.healthy()


@case
def another_agent(lab):
    other = f"{S.home}/other"
    lab.exec("mkdir", "-m", "700", other, user="laboper")
    cmd = [S.bin["ADVISOR_AGENT"], "--config", S.write(), f"--state.dir={other}", "--control_plane.target=127.0.0.1:1"]
    p = subprocess.Popen(lab.argv(cmd, "laboper"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                         start_new_session=True)
    try:
        wait_for("its lock", lambda: os.path.exists(f"{other}/lock"))
        S.expect("DUPLICATE_AGENT", other, exit_code=1)
    finally:
        os.killpg(p.pid, signal.SIGTERM)
        p.wait(timeout=30)
    S.healthy()


@case
def a_process_that_calls_itself_agent(lab):
    """Whoever runs it, a pipe in place of its settings is not waited for."""
    pipe, script = f"{S.etc}/pipe", f"{S.etc}/run/advisor-agent"
    os.mkfifo(pipe)
    os.chmod(pipe, 0o666)
    os.mkdir(os.path.dirname(script), 0o755)
    with open(script, "w") as f:
        f.write("#!/bin/sh\nsleep 600\n")
    os.chmod(script, 0o755)
    for user in ("labuser1", "laboper"):
        p = subprocess.Popen(lab.argv([script, "--config", pipe], user), stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_for("its name", lambda: subprocess.run(["pgrep", "-u", user, "-x", "advisor-agent"], stdout=subprocess.DEVNULL).returncode == 0)
            S.healthy()
        finally:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait(timeout=30)


@case
def beside_a_running_agent(lab):
    """It takes nothing from it: neither its folder nor its session."""
    log = open(f"{S.etc}/agent.log", "wb")
    p = subprocess.Popen(lab.argv([S.bin["ADVISOR_AGENT"], "--config", S.write()], "laboper"), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                         start_new_session=True)
    try:
        wait_for("its journal", lambda: os.path.exists(f"{S.state}/journal") and os.path.exists(f"{S.state}/slurm.conf"))
        before = os.stat(f"{S.state}/slurm.conf")
        for _ in range(3):
            S.healthy()
        assert p.poll() is None, open(f"{S.etc}/agent.log").read()
        after = os.stat(f"{S.state}/slurm.conf")
        assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
        assert not [n for n in os.listdir("/tmp") if n.startswith("advisor-doctor-") and os.stat(f"/tmp/{n}").st_uid == os.stat(S.state).st_uid]
    finally:
        os.killpg(p.pid, signal.SIGTERM)
        p.wait(timeout=30)
    S.healthy()


@case
def the_control_plane(lab):
    S.expect("CONTROL_PLANE_TLS", control_plane__server_name="elsewhere.example.org")
    S.expect("CONTROL_PLANE_UNREACHABLE", "127.0.0.1:1", control_plane__target="127.0.0.1:1")
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes the connection, and says nothing
        target = f"127.0.0.1:{mute.getsockname()[1]}"
        S.expect("CONTROL_PLANE_UNREACHABLE", target, control_plane__target=target)
    plain = Advisord(tls=False)
    S.expect("CONTROL_PLANE_PLAIN", exit_code=0, control_plane__target=f"127.0.0.1:{plain.port}", control_plane__insecure="true")
    plain.cleanup()
    S.expect("NOT_ENROLLED", f"advisorctl cluster enrol {lab.name}", tls__cert=f"{S.tls}/none.crt", tls__key=f"{S.tls}/none.key")
    S.expect("CERT_OTHER_CLUSTER", lab.name, cluster="elsewhere", also=["CLUSTER_NAME_DIFFERS"])
    try:
        os.chmod(f"{S.tls}/agent.key", 0o644)
        S.expect("KEY_EXPOSED", f"chmod 600 {S.tls}/agent.key", exit_code=1)
    finally:
        os.chmod(f"{S.tls}/agent.key", 0o600)
    try:
        S.certificate("URI:advisor:operator:ann")
        S.expect("CONTROL_PLANE_REFUSES", "advisorctl cluster enrol", also=["CERT_OTHER_CLUSTER"])
    finally:
        S.certificate(f"URI:advisor:agent:{lab.name}")
    S.expect("AGENT_CONFIG_INCOMPLETE", "control_plane.target", control_plane__target='""')
    S.expect("AGENT_CONFIG_INVALID", "poll.interval", poll__interval="never")
    S.healthy()


@case
def as_another_user(lab):
    """Root sees as root: it is said, and so is how to do it right. The rights are asked of the agent's user."""
    f, answer = S.expect("NOT_AGENT_USER", "runuser -u laboper -- advisorctl doctor", user="root", exit_code=1)
    assert answer["site"]["rights"] == "operator" and answer["site"]["user"] == "laboper", answer
    assert any("seen as root" in u["why"] for u in answer["notChecked"]), answer


if __name__ == "__main__":
    main(make)
