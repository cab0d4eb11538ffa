#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""advisorctl as a person or a script sees it: exit codes, whole lists, what reaches a terminal, watching."""
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

api = advstack.stubs()
CASES = []
d = advstack.Advisord()
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
    ctl("cluster", "revoke", "one", "--serial", "xyz", who="admin:root", rc=1, err=["SERIAL_MALFORMED", "serial"])
    ctl("cluster", "revoke", "one", "--serial", "1", "--before", "2026-01-01T00:00:00Z", rc=2, err="give one of them")
    ctl("cluster", "revoke", "one", "--before", "yesterday", rc=2, err="--before")
    out = ctl("cluster", "revoke", "one", "--serial", "AB:CD", "--reason", "lost", who="admin:root")
    assert "abcd" in out and "lost" in out, out
    assert "abcd" in ctl("cluster", "revocations", "one", who="admin:root")
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
    ctl("mode", "evil", "observe", "--reason", "red \x1b[31m alert")
    assert "\x1b" not in ctl("audit", "--cluster", "evil")
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
def completion_is_valid_bash():
    script = ctl("completion", "bash")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    p = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=(advisorctl --server x mo); COMP_CWORD=3; _advisorctl; '
                        'echo "${COMPREPLY[@]}"'], capture_output=True, text=True)
    assert p.stdout.split() == ["mode"], p


advstack.run(CASES)
