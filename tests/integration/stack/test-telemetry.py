#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Output that is not what it seems, cannot be read, hangs, or is unusual in form: nothing that is not the job's own gets
out, nobody else waits, and what is lost is said to be lost."""
import os
import sys
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

s = advcrash.CrashStack(nodes=6)
api = s.api
HOME = f"{s.lab.dir}/home/labuser1"
NEVER = f"{s.lab.dir}/never"  # a failpoint's file that never comes
TOKEN = "TOKEN" + uuid.uuid4().hex
FAULT = "CUDA error: uncorrectable ECC error encountered"

# Prepared by root and by another user; each holds a line that would be a finding, and a word that must stay where it is.
FOREIGN = {"root_only": ("root", 0o600), "root_readable": ("root", 0o644), "of_another": ("labuser2", 0o644)}
os.makedirs(f"{s.lab.dir}/foreign", mode=0o755)
for name, (owner, mode) in FOREIGN.items():
    path = f"{s.lab.dir}/foreign/{name}"
    with open(path, "w") as f:
        f.write(f"RuntimeError: {FAULT} {TOKEN}\n" * 5)
    s.lab.exec("chown", f"{owner}:", path)
    os.chmod(path, mode)

# Each makes its output into something else as soon as it runs; then it waits to be told, and fails.
NASTY = {
    "symlink_to_root_only": (f"ln -s {s.lab.dir}/foreign/root_only $OUT", "permission denied"),
    "symlink_to_root_readable": (f"ln -s {s.lab.dir}/foreign/root_readable $OUT", "not owned by the job's user"),
    "symlink_to_another_users": (f"ln -s {s.lab.dir}/foreign/of_another $OUT", "not owned by the job's user"),
    "symlink_to_dev_zero": ("ln -s /dev/zero $OUT", "not a regular file"),
    "fifo": ("mkfifo $OUT", "not a regular file"),
    "directory": ("mkdir $OUT", "not a regular file"),
    "unreadable": (f"echo {FAULT} > $OUT; chmod 0 $OUT", "permission denied"),
    "missing": (":", "no such file"),
    "symlink_loop": ("ln -s $OUT $OUT", "too many links"),
}
jobs = {}


def write_script(name, text):
    path = f"{HOME}/{name}.sh"
    with open(path, "w") as f:
        f.write("#!/bin/bash\n" + text)
    os.chmod(path, 0o755)
    return path


def sbatch(script, out, *args, user="labuser1", **env):
    export = ",".join(["ALL", f"OUT={out}"] + [f"{k}={v}" for k, v in env.items()])
    return s.lab.exec("sbatch", "--parsable", "--requeue", '--comment={"advisor":{}}', f"--export={export}",
                      f"--output={out}", *args, script, user=user)


def telemetry(job):
    t = s.timeline(job)
    a = t.attempts[0] if t and t.attempts else None
    return (a.telemetry, a.telemetry_reason) if a else (None, None)


def no_leak():
    """The word is nowhere but where it was put."""
    for top in (s.cp.dir, s.agent.home, f"{s.lab.dir}/log"):
        for folder, _, names in os.walk(top):
            for name in names:
                with open(os.path.join(folder, name), "rb") as f:
                    assert TOKEN.encode() not in f.read(), f"{folder}/{name}"


def nasty(name):
    what, reason = NASTY[name]

    def case():
        job = jobs[name]
        wait_for(f"{name} to be lost, is {telemetry(job)}, agent: {s.agent.log()[-500:]}",
                 lambda: telemetry(job) == (api.TELEMETRY_STATE_LOST, reason), 20)
        assert not s.timeline(job).anomalies, s.timeline(job).anomalies
    return advcrash.named(f"lost__{name}", case)


def others_are_judged():
    for user in ("labuser1", "labuser2"):
        s.recovered(s.submit("fault", STEPS=5, STEP_S=0.05, LINGER=0.2, user=user))


def nasty_ones_are_judged():
    """They fail: the state alone speaks, and it is said that the log could not be read."""
    open(f"{s.lab.dir}/go", "w").close()
    for name, job in jobs.items():
        a = s.wait_advice(job)
        assert a.desired_state == api.DESIRED_STATE_NO_ACTION, a
        story = s.story(job)
        assert NASTY[name][1] in story, story
        assert all(x.rule == "" or x.reporter != "watcher" for x in s.timeline(job).anomalies), story
    no_leak()


def hung():
    """A file whose every touch hangs. Another user's job is not even late; the same user's next one is judged as well."""
    os.makedirs(f"{HOME}/hung", exist_ok=True)
    s.lab.exec("chown", "labuser1:", f"{HOME}/hung")
    s.restart_agent(f"tail.hang_named=pause:{NEVER}")
    job = sbatch(write_script("hung", "sleep 100\n"), f"{HOME}/hung/out")
    s.lab.wait_state(job, "RUNNING", timeout=30)
    s.recovered(s.submit("fault", STEPS=5, STEP_S=0.05, LINGER=0.2, user="labuser2"))
    wait_for("the hung file to be lost", lambda: telemetry(job) == (api.TELEMETRY_STATE_LOST, "hung"), 30)
    s.recovered(s.submit("fault", STEPS=5, STEP_S=0.05, LINGER=0.2))
    s.lab.exec("scancel", job)
    s.restart_agent()


# Unusual, but readable: the fault in it is found.
FORMS = {
    "line_of_1_mb": "head -c 1000000 /dev/zero | tr '\\0' x; echo; ",
    "progress_bars": "for i in $(seq 300); do printf '\\r %d%%|####    | %d/300 [00:01<00:02, 3.1it/s]' $i $i; done; echo; ",
    "invalid_utf8_and_nuls": "printf 'a\\xff\\xfe\\x80\\0\\0\\0b\\xc3\\n'; head -c 3000 /dev/urandom; printf '\\0\\n'; ",
    "truncated": "for i in $(seq 50); do echo filling line $i; done; sleep 1.2; : > $OUT; sleep 0.5; ",
    "rotated": "for i in $(seq 50); do echo filling line $i; done; sleep 1.2; mv $OUT $OUT.1; exec >> $OUT 2>&1; ",
    "moved": "for i in $(seq 50); do echo filling line $i; done; sleep 1.2; mv $OUT $OUT.moved; ",
    "deleted": "for i in $(seq 50); do echo filling line $i; done; sleep 1.2; rm $OUT; ",
    "ansi_and_crlf": "printf '\\033[31mred\\033[0m\\r\\n'; ",
}


def form(name):
    def case():
        script = write_script(name, f"""#SBATCH --open-mode=append
if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then
    {FORMS[name]}
    echo "$SLURMD_NODENAME: RuntimeError: {FAULT}"; sleep 0.3; exit 1
fi
for i in 1 2 3; do echo " iteration $i/3 | consumed samples: 8 | elapsed time per iteration (ms): 200.0 | lm loss: 2.5"; sleep 0.1; done
""")
        job = sbatch(script, f"{HOME}/form-{name}.log")
        s.recovered(job)
        an = [x for x in s.timeline(job).anomalies if x.status == api.ANOMALY_STATUS_CONFIRMED][0]
        assert len(an.excerpt.encode()) <= 200 and FAULT in an.excerpt, an
        assert telemetry(job)[0] == api.TELEMETRY_STATE_COMPLETE, telemetry(job)
    return advcrash.named(f"read__{name}", case)


def read__four_nodes_in_one_file():
    """Each node opens the file itself and appends; one of them has the fault, the others see only that it went."""
    task = write_script("task", f"""exec >> $OUT 2>&1
step() {{ echo "$SLURMD_NODENAME:  iteration $1/400 | consumed samples: 8 | elapsed time per iteration (ms): 10.0 | lm loss: 2.5"; }}
if [ "${{SLURM_RESTART_COUNT:-0}}" != 0 ]; then for i in $(seq 100 105); do step $i; sleep 0.1; done; exit 0; fi
for i in $(seq 100); do step $i; done
[ "$SLURM_NODEID" = 2 ] && {{ echo "$SLURMD_NODENAME: RuntimeError: {FAULT}"; echo "$SLURMD_NODENAME" > $OUT.node; exit 1; }}
sleep 0.5; echo "$SLURMD_NODENAME: [rank$SLURM_NODEID]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
exit 1
""")
    out = f"{HOME}/four.log"
    job = sbatch(write_script("four", f"#SBATCH --open-mode=append\nsrun {task}\n"), out, "-N4", "--ntasks-per-node=1")
    a = s.wait_advice(job, match=lambda a: a.status.disposition == api.DISPOSITION_CONVERGED, timeout=60)
    with open(out + ".node") as f:
        node = f.read().strip()
    assert list(a.exclude_nodes) == [node], (node, s.story(job))
    s.lab.wait_state(job, "COMPLETED", timeout=60)
    assert s.lab.job(job)["excluded"] == node, s.describe(job)


def attempt_begins_where_it_begins(mode):
    """The first lines of attempt 1 are its own, whether it appends to the file or begins it anew."""
    def case():
        job = s.submit("fault", f"--open-mode={mode}", STEPS=6, STEP_S=0.5, LINGER=0.2)
        s.recovered(job)
        first, second = s.timeline(job).attempts
        assert first.resumed_from_step == 0 and second.resumed_from_step == 3, (first, second)
    return advcrash.named(f"attempt_begins_where_it_begins__{mode}", case)


s.agent.start()
s.wait_connected()
script = write_script("nasty", f"""rm -f $OUT; eval "$WHAT" ; while [ ! -e {s.lab.dir}/go ]; do sleep 0.2; done; exit 1\n""")
for kind, (what, _) in NASTY.items():
    os.environ["WHAT"] = what  # sbatch --export=ALL takes it along
    jobs[kind] = sbatch(script, f"{HOME}/out-{kind}")
del os.environ["WHAT"]
advstack.run([nasty(k) for k in NASTY] + [others_are_judged, nasty_ones_are_judged, hung] + [form(k) for k in FORMS] + [
    read__four_nodes_in_one_file, attempt_begins_where_it_begins("append"), attempt_begins_where_it_begins("truncate"), advcrash.clean_end(s)])
