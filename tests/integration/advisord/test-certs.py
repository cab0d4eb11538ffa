#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Agents' certificates as another language sees them: enrolment, renewal, revocation, and what the agents' own authority may
not do. And the admission of many agents at once."""
import base64
import hashlib
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

import grpc  # noqa: E402

S = grpc.StatusCode
refused, has_reason = advstack.refused, advstack.has_reason
api = advstack.stubs()
CASES = []


def case(f):
    CASES.append(f)
    return f


scratch = tempfile.mkdtemp(prefix="advcerts-")
agent_ca = advstack.Ca.for_agents(f"{scratch}/agents")
d = advstack.Advisord(**{"auth.agent_ca_cert": agent_ca.cert, "auth.agent_ca_key": agent_ca.key,
                         "auth.agent_cert_life": "60s", "enrol.servers": '["advisor.test:16443"]',
                         "enrol.server_name": "localhost"})
admin = d.channel("admin:root")
fleet = api.FleetServiceStub(admin)
opened = d.channel()  # no certificate


def connect():
    global admin, fleet, opened
    admin, opened = d.channel("admin:root"), d.channel()
    fleet = api.FleetServiceStub(admin)


def cluster(name):
    fleet.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)
    return name


def draw():
    return "adv-enrol-" + base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def enrolment(name, stub=None, **kw):
    token = draw()
    r = (stub or fleet).CreateEnrolment(api.CreateEnrolmentRequest(parent=f"clusters/{name}", token_sha256=sha(token), **kw),
                                        timeout=10)
    return token, r


class Key:
    """A private key on this host and its signing request."""
    n = 0

    def __init__(self, *kind):
        Key.n += 1
        self.path = f"{scratch}/k{Key.n}.key"
        kind = kind or ("ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        self.csr = subprocess.run(["openssl", "req", "-new", "-newkey", *kind, "-nodes", "-keyout", self.path, "-subj",
                                   "/CN=admin", "-addext", "subjectAltName=URI:advisor:admin:evil", "-outform", "DER"],
                                  check=True, capture_output=True).stdout

    def channel(self, chain):
        with open(d.ca.cert, "rb") as f:
            root = f.read()
        with open(self.path, "rb") as f:
            key = f.read()
        return grpc.secure_channel(f"127.0.0.1:{d.port}", grpc.ssl_channel_credentials(root, key, chain),
                                   [("grpc.use_local_subchannel_pool", 1)])


def enrol(name, token, key, stub=None):
    return (stub or api.AgentServiceStub(opened)).Enrol(api.EnrolRequest(cluster=name, token=token, csr=key.csr), timeout=10)


def text_of(chain, *what):
    return subprocess.run(["openssl", "x509", "-noout", *what], input=chain, check=True, capture_output=True).stdout.decode()


def serial_of(chain):
    return text_of(chain, "-serial").strip().split("=")[1].lower()


def verbs(name):
    return [e.verb for e in api.AuditServiceStub(admin).ListAuditEvents(
        api.ListAuditEventsRequest(parent=f"clusters/{name}", page_size=1000), timeout=10).events]


@case
def a_token_becomes_a_certificate_that_works():
    cluster("alpha")
    token, r = enrolment("alpha")
    b = r.bundle
    assert b.cluster == "alpha" and b.token == "" and list(b.servers) == ["advisor.test:16443"], b
    assert b.server_name == "localhost" and b.ca_certificates == open(d.ca.cert).read()
    assert abs(b.expire_time.seconds - time.time() - 86400) < 60 and r.enrolment.principal == "admin:root"
    key = Key()
    got = enrol("alpha", token, key)
    names = text_of(got.certificate_chain, "-ext", "subjectAltName,extendedKeyUsage,basicConstraints", "-subject")
    assert "URI:advisor:agent:alpha" in names and "evil" not in names and "admin" not in names, names
    assert "TLS Web Client Authentication" in names and "TLS Web Server" not in names and "CA:FALSE" in names, names
    assert abs(got.expire_unix - time.time() - 60) < 10
    a = advstack.FakeAgent(api, key.channel(got.certificate_chain), "alpha")
    a.wait("welcome")
    a.close()
    listed = fleet.ListEnrolments(api.ListEnrolmentsRequest(parent="clusters/alpha"), timeout=10).enrolments
    assert [(e.id, e.serial, e.voided) for e in listed] == [(r.enrolment.id, serial_of(got.certificate_chain), False)], listed
    assert listed[0].HasField("redeem_time")
    assert {"enrolment.create", "enrolment.redeem"} <= set(verbs("alpha"))
    with open(f"{d.dir}/advisor.db", "rb") as f, open(f"{d.dir}/advisord.log", "rb") as log:
        assert token.encode() not in f.read() + log.read(), "the token is where it can be read"


@case
def a_token_is_for_one_key():
    cluster("once")
    token, _ = enrolment("once")
    key, other = Key(), Key()
    first, again = enrol("once", token, key), enrol("once", token, key)
    assert serial_of(first.certificate_chain) != serial_of(again.certificate_chain)
    refused(lambda: enrol("once", token, other), S.UNAUTHENTICATED, "ENROLMENT_REFUSED")
    refused(lambda: enrol("once", token, other), S.UNAUTHENTICATED, "ENROLMENT_REFUSED")
    assert verbs("once").count("enrolment.reuse") == 1
    assert enrol("once", token, key)


@case
def tokens_that_are_no_good():
    cluster("beta")
    key = Key()
    token, _ = enrolment("beta", valid_for_ms=1500)
    for name, t in (("alpha", token), ("nowhere", token), ("beta", draw()), ("beta", ""), ("beta", "x" * 60),
                    ("beta", "sha256:" + sha(token))):
        refused(lambda: enrol(name, t, key), S.UNAUTHENTICATED, "ENROLMENT_REFUSED")
    time.sleep(1.6)  # what is tried is the end of its life
    refused(lambda: enrol("beta", token, key), S.UNAUTHENTICATED, "ENROLMENT_REFUSED")


@case
def requests_that_are_no_good():
    cluster("csr")
    token, _ = enrolment("csr")
    good = Key()
    with_csr = lambda csr: (lambda: enrol("csr", token, type("K", (), {"csr": csr})))  # noqa: E731
    refused(with_csr(b"nonsense"), S.INVALID_ARGUMENT, "CSR_MALFORMED", "csr")
    refused(with_csr(good.csr[:-1]), S.INVALID_ARGUMENT, "CSR_MALFORMED", "csr")
    refused(with_csr(good.csr[:-1] + bytes([good.csr[-1] ^ 1])), S.INVALID_ARGUMENT, "CSR_SIGNATURE", "csr")
    refused(with_csr(Key("rsa:1024").csr), S.INVALID_ARGUMENT, "CSR_KEY", "csr")
    assert enrol("csr", token, good)  # none of that has used it up


@case
def who_may_enrol_and_revoke():
    cluster("roles")
    op = api.FleetServiceStub(d.channel("operator:alice"))
    refused(lambda: enrolment("roles", op), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: op.ListEnrolments(api.ListEnrolmentsRequest(parent="clusters/roles"), timeout=10), S.PERMISSION_DENIED)
    refused(lambda: op.RevokeAgent(api.RevokeAgentRequest(name="clusters/roles"), timeout=10), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: op.ListRevocations(api.ListRevocationsRequest(parent="clusters/roles"), timeout=10), S.PERMISSION_DENIED)
    refused(lambda: enrolment("nowhere"), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    bad = lambda **kw: (lambda: fleet.CreateEnrolment(api.CreateEnrolmentRequest(  # noqa: E731
        **{"parent": "clusters/roles", "token_sha256": sha("x"), **kw}), timeout=10))
    refused(bad(token_sha256="x"), S.INVALID_ARGUMENT, "TOKEN_HASH_MALFORMED", "token_sha256")
    refused(bad(token_sha256=sha("x").upper()), S.INVALID_ARGUMENT, "TOKEN_HASH_MALFORMED")
    refused(bad(valid_for_ms=31 * 86400 * 1000), S.INVALID_ARGUMENT, "DURATION_OUT_OF_RANGE", "valid_for_ms")
    refused(bad(valid_for_ms=2 ** 63), S.INVALID_ARGUMENT, "DURATION_OUT_OF_RANGE")
    refused(bad(parent="clusters/roles/jobs/1"), S.INVALID_ARGUMENT, "NAME_MALFORMED", "parent")
    one = bad(request_id="same")()
    assert bad(request_id="same")().enrolment == one.enrolment
    refused(bad(request_id="other"), S.ALREADY_EXISTS, "ENROLMENT_EXISTS")
    revoke = lambda **kw: (lambda: fleet.RevokeAgent(api.RevokeAgentRequest(name="clusters/roles", **kw), timeout=10))  # noqa: E731
    refused(revoke(serial="xyz"), S.INVALID_ARGUMENT, "SERIAL_MALFORMED", "serial")
    future = api.RevokeAgentRequest(name="clusters/roles")
    future.before_time.seconds = int(time.time()) + 100
    refused(lambda: fleet.RevokeAgent(future, timeout=10), S.INVALID_ARGUMENT, "TIME_IN_FUTURE", "before_time")
    first = revoke(serial="AB:CD", request_id="r1")().revocation
    assert first.serial == "abcd" and revoke(serial="AB:CD", request_id="r1")().revocation == first
    revoke(serial="1234")()
    listed = fleet.ListRevocations(api.ListRevocationsRequest(parent="clusters/roles", page_size=1), timeout=10)
    assert [r.serial for r in listed.revocations] == ["1234"] and listed.next_page_token
    rest = fleet.ListRevocations(api.ListRevocationsRequest(parent="clusters/roles", page_token=listed.next_page_token), timeout=10)
    assert [r.serial for r in rest.revocations] == ["abcd"] and not rest.next_page_token


def enrolled(name):
    cluster(name)
    token, _ = enrolment(name)
    key = Key()
    chain = enrol(name, token, key).certificate_chain
    return key, chain


@case
def renewal_in_a_live_session():
    key, chain = enrolled("renew")
    channel = key.channel(chain)
    stub = api.AgentServiceStub(channel)
    nxt = Key()
    refused(lambda: stub.Renew(api.RenewRequest(session_id="x", csr=nxt.csr), timeout=10), S.FAILED_PRECONDITION, "SESSION_NOT_LIVE")
    a = advstack.FakeAgent(api, channel, "renew")
    sid = a.wait("welcome").session_id
    got = stub.Renew(api.RenewRequest(session_id=sid, csr=nxt.csr), timeout=10)
    assert serial_of(got.certificate_chain) != serial_of(chain)
    assert "URI:advisor:agent:renew" in text_of(got.certificate_chain, "-ext", "subjectAltName")
    b = advstack.FakeAgent(api, nxt.channel(got.certificate_chain), "renew", instance="b")
    b.wait("welcome")
    assert "certificate.renew" in verbs("renew")
    # another cluster's agent has no say in it
    other_key, other_chain = enrolled("renew2")
    other = api.AgentServiceStub(other_key.channel(other_chain))
    refused(lambda: other.Renew(api.RenewRequest(session_id=sid, csr=other_key.csr), timeout=10), S.FAILED_PRECONDITION,
            "SESSION_NOT_LIVE")
    refused(lambda: api.AgentServiceStub(admin).Renew(api.RenewRequest(session_id=sid, csr=nxt.csr), timeout=10),
            S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    a.close()
    b.close()


@case
def one_certificate_is_revoked():
    key, chain = enrolled("revoke")
    token, _ = enrolment("revoke")
    key2 = Key()
    chain2 = enrol("revoke", token, key2).certificate_chain
    channel = key.channel(chain)
    a = advstack.FakeAgent(api, channel, "revoke", journal="j1")
    sid = a.wait("welcome").session_id
    b = advstack.FakeAgent(api, key2.channel(chain2), "revoke", instance="b", journal="j2")
    b.wait("welcome")
    logs = api.AgentServiceStub(channel).PushLogs.future(iter_open(sid), timeout=60)
    fleet.RevokeAgent(api.RevokeAgentRequest(name="clusters/revoke", serial=serial_of(chain), reason="laptop stolen"), timeout=10)
    e = has_reason(a.wait_end(), "CERTIFICATE_REVOKED")  # at once
    assert e.code() == S.PERMISSION_DENIED
    refused(logs.result, S.PERMISSION_DENIED, "CERTIFICATE_REVOKED")
    has_reason(advstack.FakeAgent(api, key.channel(chain), "revoke").wait_end(), "CERTIFICATE_REVOKED")
    assert not b.error
    b.heartbeat()
    b.wait("heartbeat_ack")
    d.stop()
    d.start()  # it is kept
    connect()
    has_reason(advstack.FakeAgent(api, key.channel(chain), "revoke").wait_end(), "CERTIFICATE_REVOKED")
    event = next(x for x in api.AuditServiceStub(admin).ListAuditEvents(api.ListAuditEventsRequest(
        parent="clusters/revoke", verb="certificate.revoke"), timeout=10).events)
    assert event.principal == "admin:root" and "laptop stolen" in event.detail and serial_of(chain) in event.detail, event
    b.close()


def iter_open(sid):
    yield api.PushLogsRequest(session_id=sid)
    time.sleep(30)


@case
def all_of_a_cluster_are_revoked():
    key, chain = enrolled("all")
    unused, _ = enrolment("all")
    site_cert = d.channel("agent:all")  # of the site's own authority
    a = advstack.FakeAgent(api, key.channel(chain), "all", journal="j1")
    a.wait("welcome")
    s = advstack.FakeAgent(api, site_cert, "all", instance="s", journal="j2")
    s.wait("welcome")
    fleet.RevokeAgent(api.RevokeAgentRequest(name="clusters/all"), timeout=10)
    has_reason(a.wait_end(), "CERTIFICATE_REVOKED")
    has_reason(s.wait_end(), "CERTIFICATE_REVOKED")
    refused(lambda: enrol("all", unused, Key()), S.UNAUTHENTICATED, "ENROLMENT_REFUSED")
    listed = fleet.ListEnrolments(api.ListEnrolmentsRequest(parent="clusters/all"), timeout=10).enrolments
    assert all(e.voided for e in listed) and len(listed) == 2
    # a new enrolment, in the very same moment, works
    token, _ = enrolment("all")
    fresh = Key()
    new = enrol("all", token, fresh).certificate_chain
    wait_for("the new certificate to be valid", lambda: works(fresh.channel(new), "all"), 10)
    # other clusters are untouched
    assert works(*(lambda k: (k[0].channel(k[1]), "fine"))(enrolled("fine")))


def works(channel, name):
    a = advstack.FakeAgent(api, channel, name)
    ok = wait_for("an answer", lambda: a.all("welcome") or a.error)
    a.close()
    return ok is not a.error or not a.error


@case
def the_agents_authority_makes_agents_only():
    cluster("mallory")
    for name in ("admin:mallory", "operator:mallory", "reader:mallory"):
        evil = d.channel(name, ca=agent_ca)
        refused(lambda: api.FleetServiceStub(evil).ListClusters(api.ListClustersRequest(), timeout=10), S.UNAUTHENTICATED,
                "NO_IDENTITY")
    both = d.channel("x", "URI:advisor:admin:mallory", "URI:advisor:agent:mallory", ca=agent_ca)
    refused(lambda: api.FleetServiceStub(both).ListClusters(api.ListClustersRequest(), timeout=10), S.PERMISSION_DENIED,
            "ROLE_TOO_LOW")
    # an authority below it: the chain is not accepted at all
    base = f"{scratch}/sub"
    run = lambda *a: subprocess.run(["openssl", *a], check=True, capture_output=True)  # noqa: E731
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=sub", "-keyout", base + ".key",
        "-out", base + ".csr")
    with open(base + ".ext", "w") as f:
        f.write("basicConstraints=critical,CA:TRUE\n")
    run("x509", "-req", "-in", base + ".csr", "-CA", agent_ca.cert, "-CAkey", agent_ca.key, "-CAcreateserial", "-days", "9",
        "-extfile", base + ".ext", "-out", base + ".crt")
    sub = advstack.Ca.__new__(advstack.Ca)
    sub.dir, sub.name, sub.cert, sub.key = f"{scratch}/subca", "sub", base + ".crt", base + ".key"
    os.makedirs(sub.dir, exist_ok=True)
    leaf, leaf_key = sub.issue("evil", "URI:advisor:admin:mallory")
    chain = open(leaf, "rb").read() + open(base + ".crt", "rb").read()
    creds = grpc.ssl_channel_credentials(open(d.ca.cert, "rb").read(), open(leaf_key, "rb").read(), chain)
    refused(lambda: api.FleetServiceStub(grpc.secure_channel(f"127.0.0.1:{d.port}", creds)).ListClusters(
        api.ListClustersRequest(), timeout=5), S.UNAVAILABLE)


@case
def an_authority_of_agents_below_that_of_people():
    """It may be signed by the one in tls.ca, and its file may have that one's certificate, too: it makes agents only all the same. No other
    authority comes in by its file, at the start or later."""
    run = lambda *a: subprocess.run(["openssl", *a], check=True, capture_output=True)  # noqa: E731
    o = advstack.Advisord()
    base = f"{scratch}/below"
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=agents below", "-keyout", base + ".key",
        "-out", base + ".csr")
    with open(base + ".ext", "w") as f:
        f.write("basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign\n")
    run("x509", "-req", "-in", base + ".csr", "-CA", o.ca.cert, "-CAkey", o.ca.key, "-CAcreateserial", "-days", "9", "-extfile", base + ".ext",
        "-out", base + ".crt")
    stranger = advstack.Ca(f"{scratch}/stranger", "stranger")
    text = {name: open(path, "rb").read() for name, path in (("below", base + ".crt"), ("root", o.ca.cert), ("stranger", stranger.cert))}

    def put(*names):
        with open(base + ".new", "wb") as f:
            f.write(b"".join(text[n] for n in names))
        os.rename(base + ".new", base + ".pem")

    def channel(ca, name, *more):
        cert, key = ca.issue(name.replace(":", "-"), f"URI:advisor:{name}")
        chain = open(cert, "rb").read() + b"".join(text[n] for n in more)
        creds = grpc.ssl_channel_credentials(text["root"], open(key, "rb").read(), chain)
        return grpc.secure_channel(f"127.0.0.1:{o.port}", creds, [("grpc.use_local_subchannel_pool", 1)])
    lists = lambda c: api.FleetServiceStub(c).ListClusters(api.ListClustersRequest(), timeout=10)  # noqa: E731
    o.stop()
    o.config.update({"auth.agent_ca_cert": base + ".pem", "auth.agent_ca_key": base + ".key"})
    text["trusted"] = run("x509", "-in", stranger.cert, "-trustout").stdout
    put("below", "root", "trusted")
    p = subprocess.run([os.environ["ADVISORD"], "--config", f"{o.dir}/advisord.yaml", "--auth.agent_ca_cert", base + ".pem",
                        "--auth.agent_ca_key", base + ".key"], capture_output=True, timeout=120)
    assert p.returncode == 1 and b"auth.agent_ca_cert" in p.stderr and b"not in tls.ca" in p.stderr, p
    put("below", "root")
    o.start()
    api.FleetServiceStub(o.channel("admin:root")).CreateCluster(api.CreateClusterRequest(cluster_id="low"), timeout=10)
    below = advstack.Ca.__new__(advstack.Ca)
    below.dir, below.name, below.cert, below.key = f"{scratch}/belowca", "below", base + ".crt", base + ".key"
    os.makedirs(below.dir, exist_ok=True)
    assert works(channel(below, "agent:low", "below"), "low")
    refused(lambda: lists(channel(below, "admin:mallory", "below")), S.UNAUTHENTICATED, "NO_IDENTITY")
    put("below", "root", "stranger")
    wait_for("the file to be refused", lambda: "not in tls.ca" in o.tail_log(50), 30)
    refused(lambda: lists(channel(stranger, "admin:eve")), S.UNAVAILABLE)
    assert works(channel(below, "agent:low", "below"), "low")
    # one for all: it works, and is warned of
    o.stop()
    o.config.update({"auth.agent_ca_cert": o.ca.cert, "auth.agent_ca_key": o.ca.key})
    o.start()
    assert any("level=warn" in x and "can make administrators" in x for x in o.tail_log(200).split(" / ")), o.tail_log(200)
    o.stop()


@case
def without_an_authority_the_site_does_it():
    o = advstack.Advisord()
    f = api.FleetServiceStub(o.channel("admin:root"))
    f.CreateCluster(api.CreateClusterRequest(cluster_id="a"), timeout=10)
    refused(lambda: f.CreateEnrolment(api.CreateEnrolmentRequest(parent="clusters/a", token_sha256=sha("x")), timeout=10),
            S.FAILED_PRECONDITION, "NO_AGENT_CA")
    channel = o.channel("agent:a")
    a = advstack.FakeAgent(api, channel, "a")
    sid = a.wait("welcome").session_id
    refused(lambda: api.AgentServiceStub(channel).Renew(api.RenewRequest(session_id=sid, csr=Key().csr), timeout=10),
            S.FAILED_PRECONDITION, "NO_AGENT_CA")
    f.RevokeAgent(api.RevokeAgentRequest(name="clusters/a"), timeout=10)  # revoking is possible all the same
    has_reason(a.wait_end(), "CERTIFICATE_REVOKED")
    o.stop()


@case
def only_so_many_arrive_at_one_time():
    o = advstack.Advisord(**{"agent.admission": 2})
    f = api.FleetServiceStub(o.channel("admin:root"))
    names = [f"c{i}" for i in range(6)]
    for n in names:
        f.CreateCluster(api.CreateClusterRequest(cluster_id=n), timeout=10)
    arriving = [advstack.FakeAgent(api, o.channel(f"agent:{n}"), n) for n in names[:2]]
    for a in arriving:
        a.wait("welcome")
    waits = set()
    for n in names[2:]:
        e = has_reason(advstack.FakeAgent(api, o.channel(f"agent:{n}"), n).wait_end(), "NOT_NOW")
        assert e.code() == S.UNAVAILABLE
        waits.add(dict(e.trailing_metadata())["grpc-status-details-bin"].split(b"RetryInfo")[1])
    assert len(waits) > 1, "all are told to come back at one moment"
    for a in arriving:
        a.durable(a.numbered(state_update=api.StateUpdate(full_begin=True, full_end=True, digest=0)))
    more = [advstack.FakeAgent(api, o.channel(f"agent:{n}"), n) for n in names[2:4]]
    for a in more:
        a.wait("welcome")  # the first two have arrived, their places are free
    more[0].close()
    wait_for("a place of one that went away", lambda: works(o.channel(f"agent:{names[4]}"), names[4]), 20)
    for a in arriving + more[1:]:
        a.close()
    o.stop()


@case
def guessing_enrolment_tokens_is_slow():
    cluster("guess")
    seen = set()
    for _ in range(300):
        try:
            enrol("guess", draw(), type("K", (), {"csr": b"x"}))
        except grpc.RpcError as e:
            details = dict(e.trailing_metadata())["grpc-status-details-bin"]
            seen.add("RATE_LIMITED" if b"RATE_LIMITED" in details else e.code())
            if "RATE_LIMITED" in seen:
                break
    assert "RATE_LIMITED" in seen, seen
    wait_for("the address to be let in again", lambda: allowed(), 10)


def allowed():
    try:
        enrol("guess", draw(), type("K", (), {"csr": b"x"}))
    except grpc.RpcError as e:
        return e.code() != S.RESOURCE_EXHAUSTED
    return True


@case
def a_clean_end():
    d.stop()


advstack.run(CASES)
