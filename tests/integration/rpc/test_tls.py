# SPDX-License-Identifier: Apache-2.0
"""Identity from client certificates, who is refused, and reload of the server's certificate."""
import hashlib
import shutil
import signal
import socket
import ssl
import subprocess
import time

from rpclib import CA, Client, Server, case, fails, grpc, main, pb, read, wait_for

OURS, OTHER = CA("ours"), CA("other")
SRV, SRV_KEY = OURS.issue("server", "IP:127.0.0.1,DNS:localhost")
AGENT, AGENT_KEY = OURS.issue("agent-a", "URI:advisor:agent:a,DNS:a.example,DNS:b.example")
STRANGER, STRANGER_KEY = OTHER.issue("agent-a", "URI:advisor:agent:a")
LIVE, LIVE_KEY = OURS.path("live.pem"), OURS.path("live.key")


def install(pem, key):
    shutil.copy(pem, LIVE)
    shutil.copy(key, LIVE_KEY)


install(SRV, SRV_KEY)


def server(*args):
    return Server("--cert", LIVE, "--key", LIVE_KEY, "--ca", OURS.pem, "--tls-check-ms", "100", *args, insecure=False)


def creds(pem=None, key=None, ca=OURS.pem):
    return grpc.ssl_channel_credentials(read(ca), read(key) if key else None, read(pem) if pem else None)


def served_cert(port):
    ctx = ssl.create_default_context(cafile=OURS.pem)
    ctx.load_cert_chain(AGENT, AGENT_KEY)
    ctx.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", port), 5) as s, ctx.wrap_socket(s, server_hostname="127.0.0.1") as t:
        return hashlib.sha256(t.getpeercert(True)).hexdigest()


@case
def identity():
    with server() as s, Client(s.port, creds(AGENT, AGENT_KEY)) as c:
        w = c.who(pb.StatsRequest(), timeout=10)
        assert w.authenticated and w.common_name == "agent-a"
        assert set(w.sans) == {"advisor:agent:a", "a.example", "b.example"}, w.sans
        der = subprocess.run(["openssl", "x509", "-in", AGENT, "-outform", "DER"], check=True, capture_output=True).stdout
        assert w.cert_sha256 == hashlib.sha256(der).hexdigest()
        assert [m.text for m in c.chat(iter([pb.EchoRequest(text="x")] * 50), timeout=10)] == ["x"] * 50


@case
def many_certificates():
    """What was read of one certificate is never told of another, however often they take turns."""
    certs = [OURS.issue(f"agent-{i}", f"URI:advisor:agent:c{i}") for i in range(6)]
    with server() as s:
        clients = [Client(s.port, creds(*c)) for c in certs]
        for i in [0, 1, 0, 2, 3, 0, 4, 5, 1, 2, 0, 5] * 3:
            w = clients[i].who(pb.StatsRequest(), timeout=10)
            assert w.common_name == f"agent-{i}" and list(w.sans) == [f"advisor:agent:c{i}"], w
        for c in clients:
            c.ch.close()


@case
def no_session_is_resumed():
    """A client that resumes would show its certificate to nobody."""
    with server() as s:
        for most in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2):
            ctx = ssl.create_default_context(cafile=OURS.pem)
            ctx.load_cert_chain(AGENT, AGENT_KEY)
            ctx.set_alpn_protocols(["h2"])
            ctx.maximum_version = most
            session = None
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", s.port), 5) as raw, \
                        ctx.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as t:
                    assert t.recv(1)  # the server's SETTINGS: tickets would have come before
                    assert not t.session_reused
                    assert not (t.session and t.session.has_ticket)
                    session = t.session


@case
def refused_handshakes():
    with server() as s:
        for c in (creds(), creds(STRANGER, STRANGER_KEY), creds(AGENT, AGENT_KEY, ca=OTHER.pem)):
            with Client(s.port, c) as cl:
                fails(grpc.StatusCode.UNAVAILABLE, lambda: cl.echo(pb.EchoRequest(), timeout=10))
        with Client(s.port) as plain:
            fails(grpc.StatusCode.UNAVAILABLE, lambda: plain.echo(pb.EchoRequest(), timeout=10))
        with Client(s.port, creds(AGENT, AGENT_KEY)) as c:
            assert c.stats().opened == 1, "no refused peer reached a handler"


@case
def optional_certificate():
    with server("--optional-cert") as s:
        with Client(s.port, creds()) as c:
            w = c.who(pb.StatsRequest(), timeout=10)
            assert not w.authenticated and w.cert_sha256 == "" and list(w.sans) == []
        with Client(s.port, creds(AGENT, AGENT_KEY)) as c:
            assert c.who(pb.StatsRequest(), timeout=10).authenticated
        with Client(s.port, creds(STRANGER, STRANGER_KEY)) as c:
            fails(grpc.StatusCode.UNAVAILABLE, lambda: c.echo(pb.EchoRequest(), timeout=10))


@case
def reload():
    install(SRV, SRV_KEY)
    with server() as s, Client(s.port, creds(AGENT, AGENT_KEY)) as old:
        first = served_cert(s.port)
        assert old.echo(pb.EchoRequest(text="x"), timeout=10).text == "x"
        new, new_key = OURS.issue("server2", "IP:127.0.0.1")
        install(new, new_key)
        wait_for("the new certificate", lambda: served_cert(s.port) != first)
        second = served_cert(s.port)
        assert old.echo(pb.EchoRequest(text="y"), timeout=10).text == "y", "old connections go on"
        # broken files keep what works: garbage, then a key of another certificate
        for pem, key in ((b"garbage", None), (read(SRV), None)):
            with open(LIVE, "wb") as f:
                f.write(pem)
            time.sleep(0.4)
            assert served_cert(s.port) == second
        s.proc.send_signal(signal.SIGHUP)
        line = s.proc.stdout.readline()
        assert "is not the key of" in line, line
        assert "old certificate stays" in s.stderr()
        install(SRV, SRV_KEY)
        s.proc.send_signal(signal.SIGHUP)
        assert s.proc.stdout.readline() == "RELOAD ok\n"
        assert served_cert(s.port) == first
    install(SRV, SRV_KEY)


@case
def bad_files_at_start():
    for args, text in ((("--cert", "/no/such", "--key", SRV_KEY, "--ca", OURS.pem), "No such file"),
                       (("--cert", SRV, "--key", AGENT_KEY, "--ca", OURS.pem), "is not the key of"),
                       (("--cert", SRV, "--key", SRV_KEY, "--ca", SRV_KEY), "no certificate in it"),
                       (("--cert", SRV), "all needed")):
        s = Server(*args, insecure=False)
        assert s.proc.wait(20) == 1
        assert text in s.stderr(), s.stderr()


main()
