# SPDX-License-Identifier: Apache-2.0
"""Ports, descriptors, connection cap, slow readers, dead peers."""
import os
import signal
import socket
import subprocess
import sys
import time

from rpclib import TMP, Client, Server, case, fails, grpc, main, pb, wait_for


@case
def second_server_on_the_port():
    with Server() as s:
        two = Server(listen=(f"127.0.0.1:{s.port}",))
        assert two.proc.wait(20) == 1
        assert "UNAVAILABLE" in two.stderr() and "cannot listen" in two.stderr(), two.stderr()
        with Client(s.port) as c:
            assert c.echo(pb.EchoRequest(text="x"), timeout=10).text == "x"


@case
def unix_socket_is_not_stolen():
    path = os.path.join(TMP, "s.sock")
    with Server(listen=(f"unix:{path}", "127.0.0.1:0")) as s:
        assert s.ports[0] == 0 and s.ports[1] > 0
        two = Server(listen=(f"unix:{path}",))
        assert two.proc.wait(20) == 1
        assert "another server" in two.stderr()
        with Client(0, target=f"unix:{path}") as c:
            assert c.echo(pb.EchoRequest(text="x"), timeout=10).text == "x"
            assert c.who(pb.StatsRequest(), timeout=10).address.startswith("unix:")
    # a socket left behind by a killed server is no obstacle
    s = Server(listen=(f"unix:{path}",))
    s.proc.kill()
    s.proc.wait()
    with Server(listen=(f"unix:{path}",)), Client(0, target=f"unix:{path}") as c:
        assert c.echo(pb.EchoRequest(text="x"), timeout=10).text == "x"


@case
def insecure_only_on_loopback():
    for addr in ("0.0.0.0:0", "[::]:0", "127.evil.example:0", "10.0.0.1:0"):
        s = Server(listen=(addr,))
        assert s.proc.wait(20) == 1
        assert "only loopback" in s.stderr(), s.stderr()


def flood(port, n):
    socks = []
    for _ in range(n):
        x = socket.socket()
        x.settimeout(5)
        x.connect(("127.0.0.1", port))
        socks.append(x)
    return socks


@case
def out_of_descriptors_recovers():
    with Server("--fd-limit", "80") as s:
        for _ in range(3):
            socks = flood(s.port, 150)
            time.sleep(0.3)
            for x in socks:
                x.close()
            time.sleep(0.3)
        with Client(s.port) as c:
            def answers():
                try:
                    return c.echo(pb.EchoRequest(text="x"), timeout=2).text == "x"
                except grpc.RpcError:
                    return False
            wait_for("accepting again", answers)
            assert c.stats().out_of_fds > 0


@case
def connection_cap():
    with Server("--max-conn", "20") as s:
        with Client(s.port) as c:
            assert c.echo(pb.EchoRequest(text="x"), timeout=10).text == "x"
            socks = flood(s.port, 60)
            time.sleep(0.3)
            st = c.stats()
            assert 35 <= st.over_cap <= 50, st.over_cap
            for x in socks:
                x.close()
        time.sleep(0.3)
        with Client(s.port) as c:
            assert c.echo(pb.EchoRequest(text="y"), timeout=10).text == "y", "closed ones are not counted for ever"


@case
def silent_connections_keep_nobody_out():
    """Only so many connections may be new at one time; those who say nothing give way after a second."""
    with Server() as s:
        silent = [socket.create_connection(("127.0.0.1", s.port), 5) for _ in range(200)]
        t = time.monotonic()
        with Client(s.port) as c:
            assert c.echo(pb.EchoRequest(text="x"), timeout=30).text == "x"
        assert time.monotonic() - t > 0.5, "nobody was held back: this test sees nothing"
        for x in silent:
            x.close()


@case
def many_connections_at_once():
    """More than may be new at one time: all get their answer, without a second's pause for each lot."""
    with Server() as s:
        clients = [Client(s.port) for _ in range(150)]
        calls = [c.echo.future(pb.EchoRequest(text=str(i)), timeout=60) for i, c in enumerate(clients)]
        assert [f.result().text for f in calls] == [str(i) for i in range(150)]
        for c in clients:
            c.ch.close()


@case
def concurrent_streams():
    with Server("--max-streams", "10") as s, Client(s.port) as c:
        streams = [c.chat(iter(lambda: time.sleep(5), None)) for _ in range(10)]
        time.sleep(0.3)
        fails(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: c.echo(pb.EchoRequest(), timeout=0.5))
        for x in streams:
            x.cancel()
        assert c.echo(pb.EchoRequest(text="x"), timeout=10).text == "x"


@case
def slow_reader_is_bounded():
    with Server("--queue-bytes", "100000", "--flush-ms", "700") as s, Client(s.port) as c:
        before = s.peak_kb()
        # one that never reads, server policy: wait for on_writable
        idle = c.count(pb.CountRequest(n=1_000_000, size=1000))
        # one that never reads, server policy: cut off
        cut = c.count(pb.CountRequest(n=1_000_000, size=1000, stop_when_full=True))
        next(idle), next(cut)
        wait_for("the cut", lambda: c.stats().calls_live == 2)
        st = c.stats()
        assert st.queued_bytes_max <= 101_100, st.queued_bytes_max
        assert st.calls_live == 2, st  # idle and this one
        # of the 2 GB; the windows that the clients open, and what a sanitizer keeps of freed memory, are in it
        assert s.peak_kb() - before < 80_000, s.peak_kb() - before
        got = 0
        try:
            for _ in cut:
                got += 1
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED or e.code() == grpc.StatusCode.CANCELLED, e
        assert 0 < got < 1_000_000
        # the waiting one goes on when it is read
        for i, m in enumerate(idle, 1):
            assert m.i == i
            if i == 20000:
                break
        idle.cancel()


@case
def stopped_peer_is_noticed():
    with Server("--keepalive-ms", "500") as s, Client(s.port) as c:
        env = dict(os.environ, RPC_PORT=str(s.port))
        child = subprocess.Popen([sys.executable, "-c", (
            "import os,time,grpc\n"
            "ch=grpc.insecure_channel('127.0.0.1:'+os.environ['RPC_PORT'])\n"
            "f=ch.stream_stream('/advisor.test.v1.TestService/Chat',lambda b:b,lambda b:b)\n"
            "def g():\n  yield b'\\x0a\\x01x'\n  time.sleep(60)\n"
            "c=f(g()); next(c); print('up',flush=True); time.sleep(60)\n")], env=env, stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == b"up\n"
            cancelled = c.stats().calls_cancelled
            child.send_signal(signal.SIGSTOP)
            t = time.monotonic()
            wait_for("the dead peer", lambda: c.stats().calls_cancelled > cancelled, 10)
            assert time.monotonic() - t < 5
        finally:
            child.kill()
            child.wait()
            child.stdout.close()


@case
def log_flood_is_held_back():
    with Server() as s:
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", s.port), 5) as x:
                x.sendall(b"GET / HTTP/1.1\r\n\r\n")
                x.settimeout(2)
                try:
                    x.recv(100)
                except OSError:
                    pass
        assert len(s.stderr().splitlines()) < 60


main()
