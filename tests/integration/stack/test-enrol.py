#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The life of an agent's certificate on a real stack: enrolled from a bundle, renewed in its session, used by the next
connection, revoked, enrolled again, and replaced by the site."""
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

LIFE_S = 24
scratch = tempfile.mkdtemp(prefix="advenrol-")
agent_ca = advstack.Ca.for_agents(f"{scratch}/agents")
s = advstack.Stack(nodes=2, **{"auth.agent_ca_cert": agent_ca.cert, "auth.agent_ca_key": agent_ca.key,
                              "auth.agent_cert_life": f"{LIFE_S}s", "enrol.server_name": "localhost",
                              "agent.heartbeat_interval": "500ms", "agent.silence_timeout": "5s"})
a = s.agent
tls = f"{a.home}/tls"
admin = s.ca.issue("ctl-admin", "URI:advisor:admin:root")


def ctl(*args, rc=0):
    env = {**os.environ, "ADVISORCTL_SERVER": f"127.0.0.1:{s.cp.port}", "ADVISORCTL_CA": s.ca.cert,
           "ADVISORCTL_CERT": admin[0], "ADVISORCTL_KEY": admin[1], "ADVISORCTL_SERVER_NAME": "localhost"}
    p = subprocess.run([os.environ["ADVISORCTL"], *args], env=env, capture_output=True, text=True, timeout=60,
                       stdin=subprocess.DEVNULL)
    assert p.returncode == rc, f"advisorctl {args}: {p.returncode} {p.stdout} {p.stderr}"
    return p.stdout


def bundle(name, *args):
    """A bundle as the agent's user may read it."""
    path = f"{a.home}/{name}.json"
    if os.path.exists(path):
        os.unlink(path)
    ctl("cluster", "enrol", "lab", "--out", path, *args)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    subprocess.run(["chown", "laboper:", path], check=True)
    return path


def enrol(path, rc=0, **config):
    """advisor-agent --enrol as the agent's user; the configuration is the agent's own."""
    conf = f"{a.home}/enrol.yaml"
    with open(conf, "w") as f:
        for k, v in {**a.config, **config}.items():
            f.write(f"{k}: {v}\n")
    os.chmod(conf, 0o644)
    p = subprocess.run(["runuser", "-u", "laboper", "--", s.agent_bin, "--config", conf, "--enrol", path], capture_output=True,
                       text=True, timeout=90, cwd=a.home, stdin=subprocess.DEVNULL)
    assert p.returncode == rc, f"{p.returncode} {p.stdout} {p.stderr}"
    assert "Sanitizer" not in p.stderr, p.stderr
    return p.stdout if rc == 0 else p.stderr


def x509(*what, path=None):
    return subprocess.run(["openssl", "x509", "-noout", "-in", path or f"{tls}/agent.crt", *what], check=True,
                          capture_output=True, text=True).stdout.strip()


def serial():
    return x509("-serial").split("=")[1].lower()


def clear():
    for f in ("agent.crt", "agent.key", "ca.crt"):
        if os.path.exists(f"{tls}/{f}"):
            os.unlink(f"{tls}/{f}")


def verbs():
    return [e.verb for e in s.api.AuditServiceStub(s.cp.channel("reader:test")).ListAuditEvents(
        s.api.ListAuditEventsRequest(parent="clusters/lab", page_size=1000), timeout=10).events]


def enrolled_from_a_bundle():
    clear()
    path = bundle("first")
    told = json.load(open(path))
    assert told["cluster"] == "lab" and told["token"].startswith("adv-enrol-") and told["serverName"] == "localhost", told
    out = enrol(path)
    assert "cluster lab is enrolled" in out and serial() in out, out
    assert stat.S_IMODE(os.stat(f"{tls}/agent.key").st_mode) == 0o600
    assert "URI:advisor:agent:lab" in x509("-ext", "subjectAltName")
    assert sorted(os.listdir(tls)) == ["agent.crt", "agent.crt.bundle", "agent.key", "ca.crt"], os.listdir(tls)
    # once more on the same host is a slip, and no theft
    before = serial()
    assert "was used here before" in enrol(path, rc=1) and serial() == before
    assert "enrolment.reuse" not in verbs()
    a.start()
    s.wait_connected()
    listed = json.loads(ctl("cluster", "enrolments", "lab", "-o", "json"))["enrolments"]
    assert [e["serial"] for e in listed] == [serial()], listed


def a_bundle_is_for_one_host():
    elsewhere = f"{a.home}/elsewhere"
    os.makedirs(elsewhere, exist_ok=True)
    subprocess.run(["chown", "laboper:", elsewhere], check=True)
    there = {"tls.ca": f"{elsewhere}/ca.crt", "tls.cert": f"{elsewhere}/agent.crt", "tls.key": f"{elsewhere}/agent.key"}
    err = enrol(f"{a.home}/first.json", rc=1, **there)
    assert "not enrolled" in err and "was used" in err, err
    assert os.listdir(elsewhere) == [], os.listdir(elsewhere)
    assert "enrolment.reuse" in verbs()
    late = bundle("late", "--valid", "1s")
    time.sleep(1.2)  # what is tried is the end of its life
    assert "expired" in enrol(late, rc=1, **there)
    assert "configuration says other" in enrol(bundle("wrong"), rc=1, **{**there, "cluster": "other"})
    with open(f"{elsewhere}/ca.crt", "w") as f:
        f.write("another authority")
    assert "another authority" in enrol(bundle("ca"), rc=1, **there)
    assert os.listdir(elsewhere) == ["ca.crt"]
    shutil.rmtree(elsewhere)


def renewed_in_its_session():
    """Three lives long: at no time is the cluster unreachable."""
    seen, until, states = set(), time.monotonic() + 3 * LIFE_S, set()
    while time.monotonic() < until:
        seen.add(serial())
        c = s.cluster_view()
        states.add(s.api.AgentState.Name(c.agent_state))
        time.sleep(0.5)
    assert len(seen) >= 4, (seen, a.log()[-3000:])
    assert "AGENT_STATE_NEVER_SEEN" not in states and "AGENT_STATE_SCHEDULER_UNAVAILABLE" not in states, states
    log = a.log()
    assert log.count("the certificate was renewed") >= 3, log[-3000:]
    assert "a newer certificate is there" in log, "the connection did not move to the new certificate"
    assert "IDENTITY_EXPIRED" not in log and "has expired" not in log, log[-3000:]
    assert verbs().count("certificate.renew") >= 3
    key = subprocess.run(["openssl", "pkey", "-in", f"{tls}/agent.key", "-pubout"], check=True, capture_output=True).stdout
    assert key == subprocess.run(["openssl", "x509", "-in", f"{tls}/agent.crt", "-noout", "-pubkey"], check=True,
                                 capture_output=True).stdout


def revoked_and_enrolled_again():
    s.wait_connected()
    ctl("cluster", "revoke", "lab", "--all", "--reason", "drill")
    a.wait_log("was revoked")
    assert "drill" in ctl("cluster", "revocations", "lab")
    wait_for("the cluster to be unreachable", lambda: s.cluster_view().agent_state == s.api.AGENT_STATE_UNREACHABLE)
    a.stop()
    a.start()
    a.wait_log("was revoked")
    a.stop()
    enrol(bundle("second"))
    a.start()
    s.wait_connected()


def the_site_replaces_the_files():
    """Without renewal by us: the certificate runs out, the site's own authority gives another, nobody restarts the agent."""
    a.stop()
    a.config["tls.renew"] = "false"
    enrol(bundle("third"))
    ends = x509("-enddate").split("=")[1]
    a.start()
    s.wait_connected()
    wait_for("the certificate to run out", lambda: subprocess.run(
        ["openssl", "x509", "-noout", "-checkend", "0", "-in", f"{tls}/agent.crt"], capture_output=True).returncode == 1, LIFE_S + 10)
    wait_for(f"the agent to be thrown out after {ends}",
             lambda: s.cluster_view().agent_state == s.api.AGENT_STATE_UNREACHABLE, 30)
    crt, key = s.ca.issue("site-agent", "URI:advisor:agent:lab")
    for src, dst in ((crt, "agent.crt"), (key, "agent.key")):
        shutil.copy(src, f"{tls}/{dst}.site")
        subprocess.run(["chown", "laboper:", f"{tls}/{dst}.site"], check=True)
    for dst in ("agent.key", "agent.crt"):
        os.rename(f"{tls}/{dst}.site", f"{tls}/{dst}")
    s.wait_connected(90)


def a_clean_end():
    s.stop()
    shutil.rmtree(scratch, ignore_errors=True)


advstack.run([enrolled_from_a_bundle, a_bundle_is_for_one_host, renewed_in_its_session, revoked_and_enrolled_again,
              the_site_replaces_the_files, a_clean_end])
