#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""advisorctl as a person or a script sees it: exit codes, whole lists, what reaches a terminal, watching."""
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

api = advstack.stubs()
CASES = []
d = advstack.Advisord(**{"detect.fallback_delay": "1s"})
fleet = api.FleetServiceStub(d.channel("admin:root"))
certs = {}


def case(f):
    CASES.append(f)
    return f


def settings(who):
    """Environment of advisorctl as somebody; None: no certificate."""
    env = {"PATH": os.environ["PATH"], "HOME": d.dir, "ADVISORCTL_SERVER": f"127.0.0.1:{d.port}", "ADVISORCTL_CA": d.ca.cert}
    env.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
    if who:
        if who not in certs:
            certs[who] = d.ca.issue("ctl-" + who.replace(":", "-"), f"URI:advisor:{who}")
        env["ADVISORCTL_CERT"], env["ADVISORCTL_KEY"] = certs[who]
    return env


def ctl(*args, who="operator:alice", rc=0, err=None):
    """Runs advisorctl; returns its stdout after a look at exit code and stderr."""
    p = subprocess.run([os.environ["ADVISORCTL"], *args], env=settings(who), capture_output=True, text=True, timeout=60,
                       stdin=subprocess.DEVNULL)
    what = f"advisorctl {' '.join(args)}: {p.returncode}, {p.stdout[-500:]} {p.stderr[-1500:]}"
    assert p.returncode == rc, what
    assert "Sanitizer" not in p.stderr, what
    for w in [err] if isinstance(err, str) else err or []:
        assert w in p.stderr, f"wanted '{w}' in: {what}"
    return p.stdout


def own_cluster(name, mode=None):
    fleet.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)
    if mode:
        fleet.SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{name}", mode=mode), timeout=10)


@case
def refusals_are_explained():
    own_cluster("one")
    ctl("cluster", "create", "other", rc=1, err=["PERMISSION_DENIED", "ROLE_TOO_LOW", "needs role admin"])
    ctl("cluster", "enrol", "one", "--out", "-", who="admin:root", rc=1, err=["FAILED_PRECONDITION", "NO_AGENT_CA"])
    ctl("cluster", "enrol", "one", "--valid", "1", rc=2, err="--valid")
    ctl("cluster", "enrol", "one", "--out", "/dev/null", rc=2, err="is there already")
    # nothing is registered for which there is no place
    ctl("cluster", "enrol", "one", "--out", "/nonexist/x", who="admin:root", rc=2, err="--out: /nonexist/x: No such file or directory")
    ctl("cluster", "create", "never", "--out", "/nonexist/x", who="admin:root", rc=2, err="--out: /nonexist/x: No such file")
    ctl("cluster", "get", "never", rc=1, err="CLUSTER_NOT_FOUND")
    ctl("cluster", "enrol", "one", "--out", f"{d.dir}/none.json", who="admin:root", rc=1, err="NO_AGENT_CA")
    assert not os.path.exists(f"{d.dir}/none.json"), "a bundle of nothing was left"
    for where in ("foo", "a:0", ""):
        ctl("--server", where, "clusters", rc=2, err=["server: bad target", "host:port"])
    ctl("--server", "foo", "--check-config", rc=2, err="server: bad target")
    ctl("policy", "validate", "/nonexist", rc=2, err="/nonexist: cannot be read: No such file or directory")
    ctl("policy", "validate", d.dir, rc=2, err="cannot be read: Is a directory")
    assert "signal anomaly CLUSTER/JOBID[/ATTEMPT] crash|hang|straggler RULE " in ctl("--help")
    ctl("audit", "append", "one", "ext.v", "s", rc=1, err=["WORD_MALFORMED", "without \"ext.\""])
    ctl("cluster", "revoke", "one", "--serial", "xyz", who="admin:root", rc=1, err=["SERIAL_MALFORMED", "serial"])
    for args in ([], ["--serial", "1", "--before", "2026-01-01T00:00:00Z"], ["--serial", "1", "--all"], ["--reason", "x"]):
        ctl("cluster", "revoke", "one", *args, who="admin:root", rc=2, err="one of --serial HEX, --before TIME and --all")
    ctl("cluster", "revoke", "one", "--serial", "", who="admin:root", rc=2, err="not an empty text")
    ctl("cluster", "revoke", "one", "--serial=", who="admin:root", rc=2, err="not an empty text")
    assert json.loads(ctl("cluster", "revocations", "one", "-o", "json", who="admin:root"))["revocations"] == []
    ctl("cluster", "revoke", "one", "--before", "yesterday", rc=2, err="--before")
    out = ctl("cluster", "revoke", "one", "--serial", "AB:CD", "--reason", "lost", who="admin:root")
    assert "abcd" in out and "lost" in out, out
    assert "abcd" in ctl("cluster", "revocations", "one", who="admin:root")
    own_cluster("all-of-it")
    ctl("cluster", "revoke", "all-of-it", "--all", who="admin:root")
    got = json.loads(ctl("cluster", "revocations", "all-of-it", "-o", "json", who="admin:root"))["revocations"]
    assert len(got) == 1 and not got[0]["serial"], got
    assert json.loads(ctl("cluster", "enrolments", "one", "-o", "json", who="admin:root")) == {"enrolments": [], "nextPageToken": ""}
    ctl("cluster", "create", "one", who="admin:root", rc=1, err=["ALREADY_EXISTS", "CLUSTER_EXISTS"])
    ctl("cluster", "create", "Not Valid", who="admin:root", rc=1, err=["INVALID_ARGUMENT", "field: cluster_id"])
    ctl("job", "one/5", rc=1, err=["NOT_FOUND", "JOB_NOT_FOUND"])
    ctl("nodes", "nowhere", rc=1, err="CLUSTER_NOT_FOUND")
    ctl("watch", "--since", "nonsense", rc=1, err=["RESUME_TOKEN_INVALID", "field: resume_token"])


@case
def a_token_in_place_of_a_certificate():
    from advtoken import Idp
    ca = advstack.Ca(f"{d.dir}/idp-ca", "idp-ca")
    idp = Idp(ca, f"{d.dir}/idp")
    idp.add_key("one")
    bindings = f"{d.dir}/auth.yaml"
    with open(bindings, "w") as f:
        f.write(f"issuers:\n  - {{alias: corp, issuer: 'https://idp.test', audience: [advisor], keys: '{idp.url}', ca: {ca.cert}}}\n"
                "bindings:\n  - {principals: ['jwt:corp:alice'], role: operator}\n")
    t = advstack.Advisord(**{"auth.bindings": bindings})
    api.FleetServiceStub(t.channel("admin:root")).CreateCluster(api.CreateClusterRequest(cluster_id="tok"), timeout=10)
    path = f"{d.dir}/token"
    with open(path, "w") as f:
        f.write(idp.token("one") + "\n")
    there = ["--server", f"127.0.0.1:{t.port}", "--ca", t.ca.cert, "--token-file", path]
    wait_for("the issuer's keys", lambda: "tok" in run_ctl(*there, "clusters").stdout, 20)
    assert "observe" in ctl(*there, "mode", "tok", "observe", "--reason", "by token", who=None)
    assert "jwt:corp:alice" in ctl(*there, "audit", "--cluster", "tok", who=None)
    with open(path, "w") as f:
        f.write(idp.token("one", exp=1))
    ctl(*there, "clusters", who=None, rc=1, err=["UNAUTHENTICATED", "TOKEN_EXPIRED"])
    with open(path, "w") as f:
        f.write("two words")
    ctl(*there, "clusters", who=None, rc=1, err="expected one token")
    ctl("--insecure", "--token-file", path, "clusters", who=None, rc=2, err="over TLS only")
    t.stop()
    idp.stop()


def run_ctl(*args):
    return subprocess.run([os.environ["ADVISORCTL"], *args], env=settings(None), capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL)


@case
def bad_usage():
    for args, words in ((["frobnicate"], "unknown command"), ([], "no command"), (["nodes"], "expected CLUSTER"),
                        (["mode", "one", "fly"], "expected off, observe"), (["jobs", "--state", "flying"], "unknown word"),
                        (["clusters", "--timeout", "soon"], "timeout"), (["clusters", "--key", ""], "cert and key"),
                        (["clusters", "--config", "/nonexistent"], "/nonexistent")):
        ctl(*args, rc=2, err=words)


@case
def settings_come_from_file_environment_and_flags():
    os.makedirs(f"{d.dir}/.config/advisor", exist_ok=True)
    with open(f"{d.dir}/.config/advisor/ctl.yaml", "w") as f:
        f.write("timeout: 7s\noutput: json\nserver: nowhere:1\n")
    try:
        out = ctl("--dump-config", "--timeout", "8s")
        assert re.search(r"timeout: 8s +# flag", out) and re.search(r"output: json +# file", out), out
        assert re.search(r"server: .*# environment", out), out
        json.loads(ctl("clusters"))
    finally:
        os.unlink(f"{d.dir}/.config/advisor/ctl.yaml")


@case
def an_unreachable_server_says_what_was_tried():
    ctl("clusters", "--server", "127.0.0.1:1", rc=3, err=["tried:", "127.0.0.1:1", "refused", "advisord running"])
    ctl("clusters", "--server", f"unix:{d.dir}/none", "--insecure", "--cert", "", "--key", "", rc=3, err="no such file")
    ctl("clusters", who=None, rc=3, err=["certificate none", "give --cert and --key"])
    ctl("clusters", "--server-name", "elsewhere", rc=3, err=["hostname mismatch", "--server-name"])
    other = advstack.Ca(f"{d.dir}/other-ca")
    ctl("clusters", "--ca", other.cert, rc=3, err="not signed by the authority")
    cert, key = other.issue("eve", "URI:advisor:admin:eve")
    ctl("clusters", "--cert", cert, "--key", key, rc=3, err="certificate")
    ctl("clusters", "--ca", "/nonexistent", rc=3, err="cannot be read")


@case
def a_silent_server_times_out():
    import socket
    with socket.create_server(("127.0.0.1", 0)) as s:
        began = time.monotonic()
        ctl("clusters", "--server", f"127.0.0.1:{s.getsockname()[1]}", "--timeout", "700ms", rc=4, err="DEADLINE_EXCEEDED")
        assert time.monotonic() - began < 20


@case
def a_list_is_whole_over_all_pages():
    for i in range(520):  # more than one page
        fleet.CreateCluster(api.CreateClusterRequest(cluster_id=f"many-{i:04d}"), timeout=10)
    doc = json.loads(ctl("clusters", "-o", "json"))
    names = [c["name"] for c in doc["clusters"] if "/many-" in c["name"]]
    assert len(names) == 520 and names == sorted(names) and doc["nextPageToken"] == "", len(names)
    assert len([line for line in ctl("clusters").split("\n") if line.startswith("many-")]) == 520
    assert len(json.loads(ctl("audit", "-o", "json", "--verb", "cluster.create"))["events"]) > 520


@case
def text_from_clusters_cannot_play_with_the_terminal():
    own_cluster("evil", api.MODE_ACT)
    a = advstack.FakeAgent(api, d.channel("agent:evil"), "evil")
    a.wait("welcome")
    j = api.JobObservation(job_id="7", state=api.JOB_STATE_RUNNING, state_raw="RUNNING", batch=True, submit_unix=1000,
                           user="alice", nodes="n1", detail_known=True, name=b"\x1b[2J\nevil\xe2\x80\xae", comment=b"", hash=5)
    a.durable(a.numbered(state_update=api.StateUpdate(full_begin=True, full_end=True, jobs=[j], digest=5)))
    for args in (["jobs", "--cluster", "evil"], ["job", "evil/7"], ["jobs"]):
        out = ctl(*args)
        assert "\x1b" not in out and "\u202e" not in out, repr(out)
        assert "\\x1b[2J\\nevil\\u{202e}" in out, repr(out)
    assert json.loads(ctl("jobs", "--cluster", "evil", "-o", "json"))["jobs"][0]["displayName"].startswith("\x1b[2J\nevil")
    ctl("mode", "evil", "observe", "--reason", "red \x1b[31m alert", rc=1, err=["TEXT_MALFORMED", "reason"])
    ctl("mode", "evil", "observe", "--reason", "turned \u202e round")  # no control character, but it plays all the same
    out = ctl("audit", "--cluster", "evil")
    assert "\u202e" not in out and "turned \\u{202e} round" in out, repr(out)
    a.close()


@case
def mode_waits_for_the_agent():
    own_cluster("waits")
    ctl("mode", "waits", "act", "--wait", "--timeout", "800ms", rc=4, err="has not confirmed it in time")
    a = advstack.FakeAgent(api, d.channel("agent:waits"), "waits")
    epoch = a.wait("welcome").grant.epoch
    a.durable(a.numbered(state_update=api.StateUpdate(full_begin=True, full_end=True)))
    p = subprocess.Popen([os.environ["ADVISORCTL"], "mode", "waits", "observe", "--wait", "-o", "json"],
                         env=settings("operator:alice"), stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 20
    while p.poll() is None and time.monotonic() < end:  # a heartbeat tells that the agent knows the mode
        a.heartbeat(epoch=epoch)
        time.sleep(0.1)
    assert p.wait(5) == 0
    c = json.loads(p.stdout.read())
    assert c["mode"] == "MODE_OBSERVE" and c["modeEffective"] is True, c
    a.close()


class Watch:
    def __init__(self, *args):
        self.p = subprocess.Popen([os.environ["ADVISORCTL"], "watch", "-o", "json", *args], env=settings("reader:bob"),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def until(self, match):
        for line in self.p.stdout:
            m = json.loads(line)
            if match(m):
                return m
        raise AssertionError("the watch ended: " + self.p.stderr.read())

    def interrupt(self):
        self.p.send_signal(signal.SIGINT)
        rest, err = self.p.communicate(timeout=20)
        assert self.p.returncode == 0, err
        return re.search(r"--since (\S+)", err).group(1)


@case
def a_watch_is_resumed_where_it_ended():
    own_cluster("seen")
    args = ["--cluster", "seen", "--kinds", "cluster"]
    w = Watch(*args)
    assert w.until(lambda m: m["type"] == "WATCH_EVENT_TYPE_STATE")["clusterResource"]["mode"] == "MODE_OBSERVE"
    w.until(lambda m: m["type"] == "WATCH_EVENT_TYPE_SYNCED")
    token = w.interrupt()
    ctl("mode", "seen", "act")
    w = Watch(*args, "--since", token)
    m = w.until(lambda m: m["kind"] == "RESOURCE_KIND_CLUSTER")
    assert m["type"] == "WATCH_EVENT_TYPE_CHANGED" and m["clusterResource"]["mode"] == "MODE_ACT", m
    w.interrupt()


@case
def a_watch_ends_when_the_server_does():
    w = Watch("--kinds", "cluster")
    w.until(lambda m: m["type"] == "WATCH_EVENT_TYPE_SYNCED")
    d.kill()
    out, err = w.p.communicate(timeout=20)
    assert w.p.returncode == 3 and "--since" in err, (w.p.returncode, err)
    d.start()
    wait_for("advisord to serve again", lambda: ctl("clusters") != "")


@case
def operators_decide():
    c = advstack.FakeCluster(api, d, "ops", api.MODE_APPROVE, nodes=[f"n{i}" for i in range(1, 41)])
    ad = c.fails("1")
    c.fails("2")
    ctl("approve", "ops/1", rc=2, err="--generation N")
    ctl("approve", "ops/1", "--generation", "two", rc=2, err="--generation")
    ctl("approve", "ops/1", "--generation", "7", rc=1, err=["ABORTED", "GENERATION_MISMATCH"])
    out = ctl("approve", "ops/1", "--generation", str(ad.generation), "--reason", "looked at n2")
    assert "ops/1" in out and "actionable" in out, out
    assert "operator:alice approved generation 1: looked at n2" in ctl("explain", "ops/1")
    got = json.loads(ctl("reject", "ops/2/0", "--generation", "1", "-o", "json"))
    assert got["approval"]["decision"] == "APPROVAL_DECISION_REJECTED", got
    ctl("verdict", "ops/2", "perhaps", rc=2, err="expected right wrong")
    ctl("verdict", "ops/2", "right", "--reason", "it was n2")
    assert c.advice("2").verdict.value == api.VERDICT_VALUE_RIGHT and c.advice("2").verdict.why == "it was n2"
    # nodes
    assert "n7" in ctl("exclude", "ops", "n7", "--reason", "fan", "--end", "+2h")
    assert "n7" in ctl("exclusions", "--cluster", "ops", "--node", "n7")
    ctl("exclude", "ops", "n7", "--reason", "again", rc=1, err="EXCLUSION_EXISTS")
    ctl("exclude", "ops", "n9", rc=1, err="TEXT_MISSING")
    ctl("exclude", "ops", "n8", "--end", "tomorrow", rc=2, err="--end")
    assert "mended" in ctl("lift", "ops", "n7", "--reason", "mended")
    assert "n7" not in ctl("exclusions", "--cluster", "ops") and "lifted" in ctl("exclusions", "--all")
    ctl("lift", "ops", "n7", rc=1, err="EXCLUSION_NOT_FOUND")
    # windows
    ctl("window", "create", "ops", rc=2, err="--end")
    w = json.loads(ctl("window", "create", "ops", "--start", "+1h", "--end", "+2h", "--reason", "firmware", "-o", "json"))
    assert w["state"] == "MAINTENANCE_STATE_PLANNED" and "firmware" in ctl("windows", "--cluster", "ops"), w
    assert "over" in ctl("window", "end", "ops", w["name"].split("/")[-1])
    ctl("window", "end", "ops", w["name"].split("/")[-1], rc=1, err="WINDOW_OVER")
    assert "firmware" not in ctl("windows", "--cluster", "ops") and "firmware" in ctl("windows", "--all")
    # incidents
    assert json.loads(ctl("incidents", "--all", "-o", "json"))["incidents"] == []
    ctl("incident", "close", "ops", "none", rc=1, err="INCIDENT_NOT_FOUND")
    c.close()


@case
def policies_are_applied_and_read():
    path = f"{d.dir}/policy.yaml"
    with open(path, "w") as f:
        f.write("restart.max: 5\n")
    assert "the document is good" in ctl("policy", "validate", path)
    assert "would become version 1" in ctl("policy", "apply", "gentle", path, "--dry-run")
    ctl("policy", "get", "gentle", rc=1, err="POLICY_NOT_FOUND")
    assert "is now version 1" in ctl("policy", "apply", "gentle", path, "--reason", "first")
    assert "unchanged, is version 1" in ctl("policy", "apply", "gentle", path)
    with open(path, "w") as f:
        f.write("restart.max: 6 # \x1b[31m\n")
    p = subprocess.run([os.environ["ADVISORCTL"], "policy", "apply", "gentle", "-"], env=settings("operator:alice"), text=True,
                       input="restart.max: 6\n", capture_output=True, timeout=60)
    assert p.returncode == 0 and "is now version 2" in p.stdout, p
    assert ctl("policy", "get", "gentle") == "restart.max: 6\n" and ctl("policy", "get", "gentle", "1") == "restart.max: 5\n"
    assert "first" in ctl("policy", "versions", "gentle") and "gentle" in ctl("policies")
    ctl("policy", "apply", "gentle", "/nonexistent", rc=2, err="cannot be read")
    with open(path, "w") as f:
        f.write("no_such_key: 1\n")
    assert "no_such_key" in ctl("policy", "validate", path, rc=1)
    ctl("policy", "apply", "gentle", path, rc=1, err="POLICY_INVALID")
    ctl("policy", rc=2, err="expected get, versions, apply or validate")


@case
def signals_and_reports():
    c = advstack.FakeCluster(api, d, "sig", api.MODE_OBSERVE)
    c.job("1", "RUNNING")
    out = ctl("signal", "anomaly", "sig/1", "crash", "xid-79", "--class", "gpu_hardware", "--retryable", "yes", "--nodes", "n[2-3]",
              "--ranks", "0,1", "--text", "fell off the bus", who="detector:dcgm", rc=1, err="ROLE_TOO_LOW")  # must look the job up
    out = ctl("signal", "anomaly", "sig/1/0", "crash", "xid-79", "--class", "gpu_hardware", "--retryable", "yes", "--nodes",
              "n[2-3]", "--ranks", "0,1", "--text", "fell off the bus", who="detector:dcgm")
    assert "xid-79" in out and "suspicion" in out and "n2" in out and "n3" not in out and "detector:dcgm" in out, out
    an = c.timeline("1").anomalies[0]
    assert list(an.ranks) == ["0", "1"] and an.excerpt == "fell off the bus", an
    out = ctl("signal", "evidence", "sig/1", "dcgm", "ecc", "--weight", "80", "--nodes", "n2", "--start", "-1m", "--end", "-1s")
    assert "80%" in out and "ecc" in out, out
    assert "42" in ctl("signal", "progress", "sig/1", "42") and "40" in ctl("signal", "milestone", "sig/1", "checkpoint", "40")
    for args, words in ((["anomaly", "sig/1/0", "boom", "r"], "expected crash hang straggler"), (["progress", "sig/1/0", "0"], "STEP"),
                        (["evidence", "sig/1/0", "a", "b", "--weight", "101"], "--weight"), (["anomaly", "sig/1/0", "crash"], "expected"),
                        (["anomaly", "sig/1/0", "crash", "r", "--nodes", "n["], "--nodes"), ([], "expected anomaly, evidence")):
        ctl("signal", *args, rc=2, err=words)
    c.job("1", "FAILED", exit_code=1, end_unix=int(time.time()))
    wait_for("advice", lambda: c.advice("1"), 30)
    out = ctl("report", "outcome", "--cluster", "sig")
    assert "gpu_hardware" in out and "PRECISION" in out, out
    rows = json.loads(ctl("report", "latency", "--cluster", "sig", "--class", "gpu_hardware", "-o", "json"))["rows"]
    assert {"LATENCY_INTERVAL_END_TO_ADVISED"} <= {r["interval"] for r in rows}, rows
    assert "end to advised" in ctl("report", "latency", "--start", "-1h")
    assert "end to advised" not in ctl("report", "latency", "--end", "-1h")
    c.close()


@case
def the_audit_log_is_written_read_and_verified():
    own_cluster("log")
    assert "event 2" in ctl("audit", "append", "log", "deploy.begin", "rollout/7", "by hand", "--event-id", "e1", who="detector:ci")
    assert "was there already" in ctl("audit", "append", "log", "deploy.begin", "rollout/7", "by hand", "--event-id", "e1",
                                      who="detector:ci")
    ctl("audit", "append", "log", "Deploy", "x", rc=1, err="WORD_MALFORMED")
    for args in (["audit"], ["audit", "list"]):
        assert "ext.deploy.begin" in ctl(*args, "--cluster", "log")
    out = ctl("audit", "verify", "log")
    m = re.match(r"clusters/log: 2 events are whole, newest (2:[0-9a-f]{64})\n$", out)
    assert m, out
    ctl("audit", "append", "log", "deploy.end", "rollout/7")
    assert "3 events are whole" in ctl("audit", "verify", "log", "--expect", m.group(1))
    wrong = m.group(1)[:-1] + ("0" if m.group(1)[-1] != "0" else "1")
    assert "BROKEN at event 2" in ctl("audit", "verify", "log", "--expect", wrong, rc=1)
    assert "missing" in ctl("audit", "verify", "log", "--expect", "9:" + "0" * 64, rc=1)
    ctl("audit", "verify", "log", "--expect", "2", rc=2, err="SEQ:HASH")
    ctl("audit", "verify", "--expect", m.group(1), rc=2, err="which cluster")
    ctl("audit", "verify", "--public-key", "/nonexistent", rc=2, err="/nonexistent")
    out = ctl("audit", "verify")
    assert "clusters/_fleet: " in out and "BROKEN" not in out, out
    assert all(json.loads(x)["intact"] for x in ctl("audit", "verify", "-o", "json").splitlines())


@case
def the_same_mode_again_is_told_as_such():
    own_cluster("again")
    for mode in ("act", "act"):
        ctl("mode", "again", mode, "--reason", "night shift")
    events = json.loads(ctl("audit", "--cluster", "again", "--verb", "mode.set", "-o", "json"))["events"]
    assert [e["detail"] for e in events] == ["observe -> act: night shift", "act, as before: night shift"], events


@case
def an_audit_log_that_was_cut_is_not_whole():
    c = advstack.Advisord()
    root = api.FleetServiceStub(c.channel("admin:root"))
    for name in ("cut", "gone", "front"):
        root.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)
        for mode in (api.MODE_APPROVE, api.MODE_OBSERVE) * 5 + (api.MODE_APPROVE,):
            root.SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{name}", mode=mode), timeout=10)
    cert, key = c.ca.issue("auditor", "URI:advisor:reader:auditor")

    def verify(*args):
        p = subprocess.run([os.environ["ADVISORCTL"], "audit", "verify", *args], capture_output=True, text=True, timeout=60,
                           env={**settings(None), "ADVISORCTL_SERVER": f"127.0.0.1:{c.port}", "ADVISORCTL_CA": c.ca.cert,
                                "ADVISORCTL_CERT": cert, "ADVISORCTL_KEY": key})
        assert not p.stderr, p
        return p.returncode, p.stdout
    whole = {n: verify(n) for n in ("cut", "gone", "front")}
    assert all(rc == 0 and ": 12 events are whole, newest 12:" in out for rc, out in whole.values()), whole
    assert verify()[0] == 0
    c.stop()
    db = sqlite3.connect(c.config["store.path"])
    noted = {n: "%d:%s" % db.execute("SELECT seq, hash FROM audit WHERE cluster = 'front' AND seq = ?", (n,)).fetchone() for n in (2, 4)}
    assert db.execute("DELETE FROM audit WHERE cluster = 'cut' AND seq > 9").rowcount == 3
    assert db.execute("DELETE FROM audit WHERE cluster = 'gone'").rowcount == 12
    db.execute("UPDATE audit SET record_us = 1 WHERE cluster = 'front' AND seq <= 4")  # old: they go with a checkpoint
    db.commit()
    db.close()
    c.config.update({"retention.interval": "1s", "retention.audit": "2h"})
    c.start()
    wait_for("old events to go", lambda: verify("front")[1].startswith("clusters/front: 9 events are whole"), 30)
    rc, out = verify("cut")
    assert rc == 1 and "clusters/cut: BROKEN at event 9: the events after it are missing" in out, out
    rc, out = verify("gone", "-o", "json")
    assert rc == 1 and not json.loads(out)["intact"] and "all events are missing" in json.loads(out)["problem"], out
    rc, out = verify()
    assert rc == 1 and out.count("BROKEN") == 2, out
    assert verify("front", "--expect", noted[4])[0] == 0  # gone, but its checkpoint has its hash
    rc, out = verify("front", "--expect", "4:" + "0" * 64)
    assert rc == 1 and "BROKEN at event 4: its hash is not the one that was noted" in out, out
    rc, out = verify("front", "--expect", noted[2])
    assert rc == 1 and "event 2 that was noted is older than the oldest kept, 5: whether it was as noted cannot be judged" in out, out
    rc, out = verify("front", "--expect", noted[2], "-o", "json")
    assert rc == 1 and json.loads(out)["intact"] and not json.loads(out)["expectJudged"], out
    c.stop()


@case
def a_user_is_forgotten():
    c = advstack.FakeCluster(api, d, "gone")
    c.job("1", "FAILED", user="mallory")
    job = json.loads(ctl("jobs", "--cluster", "gone", "-o", "json"))["jobs"][0]["name"]
    ctl("audit", "append", "gone", "note", job, "mallory wrote")
    ctl("forget", "mallory", rc=1, err="ROLE_TOO_LOW")
    assert "clusters/gone: 0 jobs forgotten, some are still" in ctl("forget", "mallory", "--cluster", "gone", who="admin:root")
    c.gone("1")
    out = ctl("forget", "mallory", who="admin:root")
    assert "clusters/gone: 1 jobs forgotten\n" in out and "clusters/one: 0 jobs forgotten" in out, out
    assert "mallory" not in ctl("jobs", "--cluster", "gone")
    out = ctl("audit", "verify", "gone")  # erasing breaks no chain, and is counted
    assert re.search(r"events are whole, newest .*, details of [1-9][0-9]* erased$", out.strip()), out
    assert json.loads(ctl("audit", "verify", "gone", "-o", "json"))["erasedDetails"] > 0
    c.close()


@case
def every_command_has_a_manual_and_is_completed():
    names = re.findall(r"^  ([a-z]+(?: [a-z]+)?)[ A-Z\[|.\]/]", ctl("--help").split("Commands")[1].split("Settings")[0], re.M)
    assert len(names) > 40, names
    script = ctl("completion", "bash")
    for n in names:
        assert f"Usage: advisorctl {n}" in ctl(*n.split(), "--help"), n
        assert n.split()[0] in script.split("'') words='")[1].split("'")[0].split(), n
    done = subprocess.run(["bash", "-c", script + "COMP_WORDS=(advisorctl window '') COMP_CWORD=2; _advisorctl; echo ${COMPREPLY[*]}"],
                          capture_output=True, text=True, timeout=20).stdout.split()
    assert {"create", "end", "--start", "--end"} <= set(done), done


@case
def completion_is_valid_bash():
    script = ctl("completion", "bash")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    p = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=(advisorctl --server x mo); COMP_CWORD=3; _advisorctl; '
                        'echo "${COMPREPLY[@]}"'], capture_output=True, text=True)
    assert p.stdout.split() == ["mode"], p


advstack.run(CASES)
