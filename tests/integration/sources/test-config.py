#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A file of sources that is wrong stops advisord at start, with file, line, key and what was expected; a running attempt whose
source was taken out of it is not left with an old gap."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advsources  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

CASES = []
api = advstack.stubs()


def case(f):
    CASES.append(f)
    return f


@case
def a_wrong_file_is_told_by_line_and_key():
    for text, words in (
            ("sources:\n  - name: logs\n    kind: loki\n    url: http://x:3100\n    job_log: {}\n", ":5:5: key \"job_log\" is not known here"),
            ("sources:\n  - {name: logs, kind: loki, url: http://x:3100, job_logs: {query: '{a=\"{jobid}\"}'}}\n", "{jobid}, expected one of"),
            ("", "expected a mapping with sources")):
        path = advsources.config(text)
        p = subprocess.run([os.environ["ADVISORD"], "--insecure", "--listen=127.0.0.1:0", f"--sources.file={path}",
                            f"--store.path={os.path.dirname(path)}/a.db", f"--rules.dir={advstack.ROOT}/rules"],
                           capture_output=True, text=True, timeout=60)
        # the path is long, and a value of a log line is cut: its end and the words are what counts
        assert p.returncode == 1 and words.replace('"', '\\"') in p.stderr and "sources.yaml" in p.stderr, p.stderr
    p = subprocess.run([os.environ["ADVISORD"], "--insecure", "--listen=127.0.0.1:0", "--sources.file=/nowhere/sources.yaml",
                        f"--store.path={os.path.dirname(path)}/a.db", f"--rules.dir={advstack.ROOT}/rules"],
                       capture_output=True, text=True, timeout=60)
    assert p.returncode == 1 and "sources /nowhere/sources.yaml: No such file" in p.stderr, p.stderr


@case
def a_source_that_was_taken_out_leaves_no_gap():
    loki = advsources.Loki()
    loki.mode = "500"
    path = advsources.config(f"""
sources:
  - name: lab
    kind: loki
    url: {loki.url}
    poll_interval: 500ms
    unknown_after: 1s
    job_logs: {{query: '{{job_id="{{job_id}}"}}', read: all}}
""")
    d = advstack.Advisord(**{"sources.file": path})
    c = advsources.beating(advstack.FakeCluster(api, d, "alpha"))
    c.job("1", "RUNNING", start_unix=int(time.time()) - 60)
    c.agent.durable(c.agent.numbered(telemetry=api.TelemetryReport(attempt=c.ref("1"), state=api.TELEMETRY_STATE_COMPLETE)))

    def attempt():
        return c.timeline("1").attempts[-1]
    t = wait_for("the gap", lambda: (t := attempt()).telemetry_reason and t, 40)
    assert t.telemetry == api.TELEMETRY_STATE_PARTIAL and "lab (loki): not read since" in t.telemetry_reason, t
    wait_for("the cluster to say so", lambda: attempt() and c.view().sources_unknown, 40)
    c.close()
    d.stop()
    del d.config["sources.file"]
    d.start()
    c.agent = advstack.FakeAgent(api, d.channel("agent:alpha"), "alpha")
    c.agent.wait("welcome")
    advsources.beating(c)
    c.reader = d.channel("reader:test")
    t = wait_for("no gap", lambda: not (t := attempt()).telemetry_reason and t, 40)
    assert t.telemetry == api.TELEMETRY_STATE_COMPLETE, t
    wait_for("the cluster to be whole", lambda: attempt() and not c.view().sources_unknown, 40)
    c.close()
    d.stop()


advstack.run(CASES)
