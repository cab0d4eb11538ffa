#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus beside logs that the agent reads: silence and idle devices are a hang, silence and a gap are not, and
neither is silence with devices at work or with a counter that rises. What has to last two minutes is waited for once, for
all of them."""
import os
import queue
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advsources  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

CASES = []
STEP = " iteration {}/1000 | consumed samples: {} | elapsed time per iteration (ms): 200.0 | lm loss: 2.5\n"
JOBS = {"1": "idle", "2": "gaps", "3": "busy", "4": "tokens"}


def case(f):
    CASES.append(f)
    return f


exporters = {w: advsources.Exporter() for w in JOBS.values()}
try:
    prom = advsources.Prometheus(*exporters.values())
except advsources.Skip as e:
    print(f"skip prometheus {e}")
    sys.exit(77)
api = advstack.stubs()
conf = advsources.config(f"""
sources:
  - name: prom
    kind: prometheus
    url: {prom.url}
    poll_interval: 2s
    unknown_after: 5s
    measures:
      - is: device-idle
        query: 'gpu_power_watts{{host=~"({{nodes}})([.].*)?"}}'
        below: 100
        window: 20s
        max_age: 5s
        node_label: host
      - {{is: throughput, query: 'tokens_total{{job_id="{{job_id}}"}}', window: 20s, max_age: 5s}}
      - {{is: steps, query: 'train_step{{job_id="{{job_id}}"}}', window: 20s, max_age: 5s}}
""")
d = advstack.Advisord(**{"sources.file": conf, "detect.suspicion_grace": "2s", "decide.advice_valid": "600s",
                         "decide.shared_cause_window": "0s", "agent.silence_timeout": "30s"})


class Site:
    """The cluster, an agent that goes on beating, one stream of logs, and what the exporters show."""

    def __init__(self):
        self.c = advstack.FakeCluster(api, d, "gpus", api.MODE_ACT, nodes=[f"g{j}" for j in JOBS])
        self.stop = threading.Event()
        self.chunks = queue.Queue()
        self.offset = dict.fromkeys(JOBS, 0)
        self.tokens, self.began = 0, time.monotonic()
        self.sid = self.c.agent.wait("welcome").session_id
        self.call = self.c.agent.stub.PushLogs.future(iter(self.chunks.get, None))
        threading.Thread(target=self.beat, daemon=True).start()
        for j in JOBS:
            self.c.job(j, "RUNNING", start_unix=int(time.time()) - 60, nodes=f"g{j}")
            self.c.agent.durable(self.c.agent.numbered(telemetry=api.TelemetryReport(
                attempt=self.c.ref(j), state=api.TELEMETRY_STATE_COMPLETE)))

    def beat(self):
        while not self.stop.wait(0.5):
            self.c.agent.heartbeat()
            self.tokens += 1000
            for j, what in JOBS.items():
                watts = 380 if what == "busy" else 62  # a collective that waits spins: busy, and that says nothing
                exporters[what].text = (f'gpu_power_watts{{host="g{j}.example.org",gpu="0"}} {watts}\n'
                                        f'gpu_power_watts{{host="g{j}.example.org",gpu="1"}} {watts}\n'
                                        f'tokens_total{{job_id="{j}"}} {self.tokens if what == "tokens" else 5000}\n'
                                        f'train_step{{job_id="{j}"}} {3 if what != "tokens" else 100 + self.tokens // 1000}\n')
            # two gaps of eight seconds in each half minute
            exporters["gaps"].up = (time.monotonic() - self.began) % 16 < 8

    def say(self, job, text):
        data = text.encode()
        self.chunks.put(api.PushLogsRequest(session_id=self.sid, chunks=[api.LogChunk(
            attempt=self.c.ref(job), stream="stdout", data=data, offset=self.offset[job])]))
        self.offset[job] += len(data)

    def hang(self, job):
        return next((a for a in self.c.timeline(job).anomalies if a.rule == "rhythm-silence"), None)

    def attempt(self, job):
        return self.c.timeline(job).attempts[-1]

    def close(self):
        self.stop.set()
        self.chunks.put(None)
        self.c.close()


@case
def silence_and_idle_devices_are_a_hang_and_a_gap_is_none():
    s = Site()
    for i in range(1, 13):
        for j in JOBS:
            s.say(j, STEP.format(i, i * 8))
        end = time.monotonic() + 1.2
        wait_for("the next step", lambda: time.monotonic() > end)
    silent = time.monotonic()
    for j in ("1", "2", "3"):
        wait_for(f"the suspicion of {j}", lambda job=j: s.hang(job) and s.hang(job).status == api.ANOMALY_STATUS_SUSPICION, 60)
    an = wait_for("the hang", lambda: (a := s.hang("1")).status == api.ANOMALY_STATUS_CONFIRMED and a, 300)
    print(f"# confirmed {time.monotonic() - silent:.0f} s after the last step: {an.status_reason}")
    assert "its devices are idle (prom (prometheus): 2 series for 2" in an.status_reason, an.status_reason
    ad = wait_for("advice", lambda: s.c.advice("1"), 30)
    assert ad.desired_state == api.DESIRED_STATE_RESTARTED, ad
    for j in ("2", "3"):  # silent as long, with gaps, or at work
        assert s.hang(j).status == api.ANOMALY_STATUS_SUSPICION and not s.c.advice(j), (j, s.hang(j))
    # a counter that rises is a sign of life, and its steps are shown
    assert not s.hang("4") or s.hang("4").status == api.ANOMALY_STATUS_WITHDRAWN, s.hang("4")
    assert s.attempt("4").last_step > 100 and s.attempt("1").last_step == 12, (s.attempt("4"), s.attempt("1"))
    # its log speaks again: the hang is over, whatever the devices show
    s.say("1", STEP.format(13, 104))
    wait_for("the hang to be taken back", lambda: s.hang("1").status == api.ANOMALY_STATUS_WITHDRAWN, 30)
    # a Prometheus that is away is told, is no telemetry of logs, and comes back
    prom.stop()
    wait_for("the cluster to say so", lambda: "prom (prometheus): no answer since" in s.c.view().sources_unknown, 60)
    assert s.attempt("2").telemetry == api.TELEMETRY_STATE_COMPLETE, s.attempt("2")
    prom.start()
    wait_for("the cluster to be whole", lambda: not s.c.view().sources_unknown, 90)
    s.close()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
