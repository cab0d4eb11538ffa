#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rules that are read again while logs are being read: a good folder holds for logs under way too, a bad one changes
nothing and says where it is bad."""
import os
import queue
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

api = advstack.stubs()
folder = tempfile.mkdtemp(prefix="rules-")
shutil.copytree(os.path.join(advstack.ROOT, "rules"), folder, dirs_exist_ok=True)
d = advstack.Advisord(**{"rules.dir": folder, "agent.silence_timeout": "300s", "agent.lease": "400s"})
fleet = api.FleetServiceStub(d.channel("admin:root"))

RULE = """version: 1
rules:
  - id: site-own
    kind: signature
    class: gpu_hardware
    anomaly: crash
    retryable: yes
    precedence: 90
    scope: application
    blames: none
    terminal: true
    pattern: 'the blue lamp is (?:off|out)'
    examples:
      positive: ['the blue lamp is off', 'node: the blue lamp is out']
      negative: ['the blue lamp is on', '{negative}']
"""


def write(text, name="site.yaml"):
    with open(f"{folder}/{name}", "w") as f:
        f.write(text)


def reload_and_read(word):
    """Sends SIGHUP and returns the next line of the log that has @word."""
    with open(f"{d.dir}/advisord.log", errors="replace") as f:
        f.seek(0, os.SEEK_END)
        at = f.tell()
    d.proc.send_signal(signal.SIGHUP)

    def probe():
        with open(f"{d.dir}/advisord.log", errors="replace") as f:
            f.seek(at)
            return next((line for line in f if word in line), None)
    return wait_for(f"\"{word}\" in the log", probe, 60)


def job(job_id, hash_):
    return api.JobObservation(job_id=job_id, state=api.JOB_STATE_RUNNING, state_raw="RUNNING", batch=True, requeueable=True,
                              submit_unix=1000, user="alice", partition="main", nodes="n[1-2]", detail_known=True,
                              name=b"train", comment=b'{"advisor":{}}', hash=hash_)


chunks = queue.Queue()  # of one stream: another would read from the beginning


def push(a, job_id, text, offset):
    ref = api.AttemptRef(cluster=a.cluster, job_id=job_id, restart_count=0)
    chunk = api.LogChunk(attempt=ref, stream="stdout", offset=offset, data=text)
    chunks.put(api.PushLogsRequest(session_id=a.wait("welcome").session_id, chunks=[chunk]))


def rules_of(job_id):
    jobs = api.JobServiceStub(d.channel("admin:root"))
    found = jobs.ListJobs(api.ListJobsRequest(parent="clusters/a"), timeout=10).jobs
    name = next(j.name for j in found if j.job_id == job_id)
    timeline = jobs.GetJobTimeline(api.GetJobTimelineRequest(name=name), timeout=10)
    return {an.rule for an in timeline.anomalies}


fleet.CreateCluster(api.CreateClusterRequest(cluster_id="a"), timeout=10)
a = advstack.FakeAgent(api, d.channel("agent:a"), "a")
a.wait("welcome")
node = api.NodeObservation(name="n1", state_raw="IDLE", available=True, hash=5)
a.durable(a.numbered(state_update=api.StateUpdate(full_begin=True, full_end=True, jobs=[job("1", 7), job("2", 8)], nodes=[node],
                                                  digest=7 ^ 8 ^ 5)))
pushing = a.stub.PushLogs.future(iter(chunks.get, None), timeout=280)
LINE = b"the blue lamp is off\n"
at = 0
push(a, "1", LINE, at)  # nobody knows it yet
at += len(LINE)

# what is bad is said with its place, and holds nobody up
for text, says in ((RULE.replace("anomaly: crash", "anomaly: smoke"), "site.yaml:6:14"),
                   (RULE.replace("(?:off|out)", "(off"), "site.yaml:12:14"),
                   (RULE.replace("{negative}", "the blue lamp is off"), "site.yaml:3:5: rule site-own: negative example 2 matches"),
                   (RULE.replace("    examples:\n", ""), "site.yaml")):
    write(text)
    line = reload_and_read("rules not reloaded")
    assert says in line, (says, line)

write(RULE.replace("{negative}", "no lamp"))
line = reload_and_read("rules reloaded")
push(a, "1", b"the blue lamp is out\n", at)
wait_for("what the new rule finds", lambda: rules_of("1") == {"site-own"}, 30)

# and away again: the same text of another job is nothing
os.unlink(f"{folder}/site.yaml")
assert reload_and_read("rules reloaded") != line
push(a, "2", LINE + b"n1: RuntimeError: CUDA error: uncorrectable ECC error encountered\n", 0)
wait_for("what the old rules find", lambda: rules_of("2") == {"cuda-ecc-uncorrectable"}, 30)
assert rules_of("1") == {"site-own"}, rules_of("1")
chunks.put(None)
pushing.result()
a.close()
d.stop()
shutil.rmtree(folder)
print("ok")
