# SPDX-License-Identifier: Apache-2.0
"""Peers that are slow on purpose or fast on purpose, and headers that are none: memory stays bounded, others are answered."""
import os
import random
import socket
import ssl
import threading
import time

# A sanitizer keeps freed memory back for a while, which would look like growth.
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4:malloc_context_size=2"

import h2raw as h  # noqa: E402
from rpclib import CA, Client, Server, case, fails, grpc, main, pb, wait_for  # noqa: E402

CHAT, COUNT, ECHO = (f"/advisor.test.v1.TestService/{m}" for m in ("Chat", "Count", "Echo"))
GROWTH_KB = 250_000  # with a sanitizer, whose every allocation is larger
LATENCY_S = 8        # of somebody else's call meanwhile; a machine that runs other tests is slow


class Probe:
    """Somebody else, who calls again and again."""

    def __init__(self, port):
        self.client, self.took, self.errors, self.over = Client(port), [], [], False
        self.client.echo(pb.EchoRequest(text="x"), timeout=20)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        while not self.over:
            t = time.monotonic()
            try:
                self.client.echo(pb.EchoRequest(text="x"), timeout=LATENCY_S)
            except grpc.RpcError as e:
                self.errors.append(e.code())
            self.took.append(time.monotonic() - t)
            time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.over = True
        self.thread.join()
        self.client.ch.close()
        if kind is None:
            assert not self.errors, self.errors
            assert self.took and max(self.took) < LATENCY_S, max(self.took)


def flood(make, seconds=6, must_end=True, before=b""):
    """Sends what make() gives, as fast as it is taken, and reads what comes; by then the server has hung up, or not."""
    with Server() as s:
        start = s.peak_kb()
        with Probe(s.port) as p:
            c = h.Connection(s.port)
            threading.Thread(target=lambda: c.frames(1 << 60), daemon=True).start()
            end, ended, sent = time.monotonic() + seconds, False, 0
            try:
                c.send(before)
                while time.monotonic() < end:
                    data = make()
                    c.send(data)
                    sent += len(data)
            except OSError:
                ended = True
            c.close()
            st = p.client.stats()
        grown = s.peak_kb() - start
        print(f"# {sent} bytes, ended={ended}, kicked={st.kicked}, grown by {grown} kB, others waited "
              f"{max(p.took):.2f} s at most", flush=True)
        assert grown < GROWTH_KB, f"grown by {grown} kB"
        assert ended or not must_end, "it was let go on"
        with Client(s.port) as again:
            assert again.echo(pb.EchoRequest(text="x"), timeout=20).text == "x"
        wait_for("all calls to be over", lambda: p.client is None or calls(s) == 1, 20)
        return st


def shadow(s):
    """With ThreadSanitizer each byte has some more beside it."""
    with open(f"/proc/{s.proc.pid}/maps") as maps:
        return 4 if "libtsan" in maps.read() else 1


def calls(s):
    with Client(s.port) as c:
        return c.stats().calls_live


def streams(path, *frames_of):
    """A maker of streams, 200 at a time: HEADERS and then what the functions make of the stream's number."""
    block, at = h.call(path), [1]

    def make():
        out = []
        for _ in range(200):
            out.append(h.frame(h.HEADERS, h.END_HEADERS, at[0], block))
            out += [f(at[0]) for f in frames_of]
            at[0] += 2
        return b"".join(out)
    return make


def reset(n):
    return h.frame(h.RST_STREAM, 0, n, b"\0\0\0\x08")


@case
def streams_that_are_reset_at_once():
    assert flood(streams(CHAT, reset)).kicked >= 1
    assert flood(streams("/no/such", reset)).kicked >= 1


@case
def aborted_calls_are_counted_by_connection():
    """Not fast, but on and on; and by IPv6 as well."""
    for host, listen in (("127.0.0.1", "127.0.0.1:0"), ("::1", "[::1]:0")):
        with Server(listen=(listen,)) as s:
            c, other = h.Connection(s.port, host=host), h.Connection(s.port, host=host)
            make, n = streams(CHAT, reset), 0
            threading.Thread(target=lambda: c.frames(1 << 60), daemon=True).start()
            try:
                while n < 60:
                    c.send(make())
                    n += 1
                    time.sleep(0.05)
            except OSError:
                pass
            assert n < 60, f"it was let go on over {host}: {s.stderr()[-400:]}"
            assert "connection is ended" in s.stderr(), s.stderr()
            other.send(h.frame(h.PING, 0, 0, b"stillon?"))
            assert other.until(lambda kind, flags, stream, p: kind == h.PING and p == b"stillon?"), "the wrong one was ended"
            c.close()
            other.close()


@case
def streams_that_make_us_reset_them():
    """A window update of zero is an error of the stream, which the server answers by a reset."""
    flood(streams(CHAT, lambda n: h.frame(h.WINDOW_UPDATE, 0, n, b"\0\0\0\0")))


@case
def calls_that_are_cancelled_one_by_one_are_no_flood():
    with Server() as s, Client(s.port) as c:
        for _ in range(300):
            c.echo.future(pb.EchoRequest(text="x", delay_ms=1000)).cancel()
        time.sleep(1)
        st = c.stats()
        assert st.kicked == 0 and c.echo(pb.EchoRequest(text="x"), timeout=10).text == "x", st


@case
def pings():
    flood(lambda: h.frame(h.PING, 0, 0, bytes(8)) * 1000)


@case
def priorities_of_many():
    """Each gets its turn and no more: the loop goes on, for others too, until all are ended."""
    with Server() as s, Probe(s.port) as p:
        left = [flooder(s.port) for _ in range(20)]
        wait_for("all to be ended", lambda: not any(t.is_alive() for t in left), 60)
        assert p.client.stats().kicked == 20
        print(f"# others waited {max(p.took):.2f} s at most", flush=True)


def flooder(port):
    """Sends frames that nobody asked for until the server hangs up."""
    c, data = h.Connection(port), h.frame(h.PRIORITY, 0, 1, b"\0\0\0\0\x10") * 2000

    def run():
        try:
            while True:
                c.send(data)
        except OSError:
            c.close()
    t = threading.Thread(target=run, daemon=True)
    t.start()
    return t


@case
def settings():
    flood(lambda: h.frame(h.SETTINGS, 0, 0, b"\0\4\0\0\xff\xff") * 1000, must_end=False)


@case
def priorities():
    flood(lambda: h.frame(h.PRIORITY, 0, 1, b"\0\0\0\0\x10") * 1000, must_end=False)


@case
def empty_data():
    open_ = h.frame(h.HEADERS, h.END_HEADERS, 1, h.call(CHAT))
    flood(lambda: h.frame(h.DATA, 0, 1, b"") * 1000, must_end=False, before=open_)


@case
def headers_without_end():
    """CONTINUATION after CONTINUATION; the size of metadata is limited while they come."""
    open_ = h.frame(h.HEADERS, 0, 1, h.call(CHAT))
    more = h.frame(h.CONTINUATION, 0, 1, h.header("x-more", "y" * 1000) * 8)
    flood(lambda: more * 10, before=open_, must_end=False)


@case
def garbage_frames():
    rand = random.Random(7)
    for _ in range(40):
        with_error = h.frame(rand.randrange(12), rand.randrange(256), rand.randrange(4), rand.randbytes(rand.randrange(60)))
        flood_once(with_error * 5)


GARBAGE = []


def flood_once(data):
    if not GARBAGE:
        GARBAGE.append(Server())
        GARBAGE[0].__enter__()
    s = GARBAGE[0]
    c = h.Connection(s.port, timeout=1)
    try:
        c.send(data)
        c.frames(3)
    except OSError:
        pass
    c.close()
    with Client(s.port) as again:
        assert again.echo(pb.EchoRequest(text="x"), timeout=20).text == "x"


@case
def garbage_left_nothing_behind():
    wait_for("all calls to be over", lambda: calls(GARBAGE[0]) == 1, 20)
    GARBAGE[0].__exit__(None)


# slow on purpose

@case
def handshakes_that_are_never_finished():
    ca = CA("slow")
    cert, key = ca.issue("server", "DNS:localhost,IP:127.0.0.1")
    with Server("--cert", cert, "--key", key, "--ca", ca.pem, "--handshake-ms", "1500", insecure=False) as s:
        silent = socket.create_connection(("127.0.0.1", s.port), 10)
        half = socket.create_connection(("127.0.0.1", s.port), 10)
        half.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        begin = time.monotonic()
        for x in (silent, half):
            x.settimeout(15)
            try:
                assert x.recv(1000) == b""
            except OSError:
                pass
        assert 1 < time.monotonic() - begin < 10, time.monotonic() - begin
        # TLS is done, HTTP/2 is not
        cert, key = ca.issue("client", "URI:advisor:agent:a")
        t = h.Connection(s.port, h.client_context(ca.pem, cert, key), preface=False, timeout=15)
        assert t.closed(15)


@case
def connections_that_say_nothing():
    with Server("--handshake-ms", "1500") as s:
        socks = [socket.create_connection(("127.0.0.1", s.port), 10) for _ in range(200)]
        with Client(s.port) as c:
            assert c.echo(pb.EchoRequest(text="x"), timeout=20).text == "x"
        socks[0].settimeout(15)
        while socks[0].recv(1000):  # SETTINGS, then the end
            pass
        for x in socks:
            x.close()


@case
def calls_that_never_send_their_message():
    with Server("--request-ms", "1000") as s, Client(s.port) as c:
        over = threading.Event()

        def nothing():
            over.wait(30)
            yield pb.EchoRequest()
        started = [c.chat(nothing()) for _ in range(40)] + [c.sum.future(nothing()) for _ in range(40)]
        raw = h.Connection(s.port)
        raw.send(h.frame(h.HEADERS, h.END_HEADERS, 1, h.call(ECHO)))
        begin = time.monotonic()
        e = fails(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: next(started[0]))
        assert b"NO_REQUEST" in dict(e.trailing_metadata())["grpc-status-details-bin"]
        fails(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: started[-1].result(20))
        assert 0.9 < time.monotonic() - begin < 10
        assert raw.until(lambda kind, flags, stream, p: kind == h.HEADERS and flags & h.END_STREAM), "a status came"
        wait_for("all to be ended", lambda: c.stats().calls_live == 1)
        over.set()
        # one that has sent something may be silent
        chat = c.chat(slow())
        assert next(chat).text == "a"
        time.sleep(2.5)
        assert next(chat).text == "b"
        chat.cancel()


def slow():
    yield pb.EchoRequest(text="a")
    time.sleep(2)
    yield pb.EchoRequest(text="b")
    time.sleep(5)


@case
def messages_that_never_end():
    """A length of a megabyte, and then a byte at a time: nothing is held but what came."""
    with Server() as s, Client(s.port) as c:
        before, conns = s.rss_kb(), []
        for i in range(50):
            x = h.Connection(s.port)
            x.send(h.frame(h.HEADERS, h.END_HEADERS, 1, h.call(ECHO)) + h.frame(h.DATA, 0, 1, b"\0\0\x10\0\0"))
            conns.append(x)
        for _ in range(20):
            for x in conns:
                x.send(h.frame(h.DATA, 0, 1, b"\x0a"))
        assert c.echo(pb.EchoRequest(text="x"), timeout=20).text == "x"
        grown = s.rss_kb() - before
        assert grown < 50 * 1024, f"{grown} kB"
        for x in conns:
            x.close()


@case
def readers_that_never_read():
    """Their windows are closed; what waits for them is bounded, and others are served."""
    with Server("--queue-bytes", "65536") as s, Client(s.port) as quick:
        for _ in range(50):
            quick.echo(pb.EchoRequest(text="x"), timeout=20)
        alone = latencies(quick)
        before, conns = s.peak_kb(), []
        want = pb.CountRequest(n=1_000_000, size=1000).SerializeToString()
        for _ in range(20):
            x = h.Connection(s.port)
            for n in range(1, 21, 2):
                x.send(h.frame(h.HEADERS, h.END_HEADERS, n, h.call(COUNT)) + h.frame(h.DATA, h.END_STREAM, n, h.message(want)))
            conns.append(x)
        wait_for("all to be under way", lambda: quick.stats().calls_live >= 201, 30)
        time.sleep(1)
        beside = latencies(quick)
        grown = s.peak_kb() - before
        print(f"# 200 of them: grown by {grown} kB; median {alone[len(alone) // 2] * 1e3:.1f} ms alone, "
              f"{beside[len(beside) // 2] * 1e3:.1f} ms beside them", flush=True)
        assert grown < (200 * (65 + 70) + 20_000) * shadow(s), grown  # ours and core's, for each
        assert beside[len(beside) // 2] < 10 * alone[len(alone) // 2] + 0.05, (alone, beside)
        for x in conns:
            x.close()
        wait_for("all to be gone", lambda: quick.stats().calls_live == 1)


def latencies(c, n=100):
    took = []
    for _ in range(n):
        t = time.monotonic()
        c.echo(pb.EchoRequest(text="x"), timeout=20)
        took.append(time.monotonic() - t)
    return sorted(took)


# metadata

BAD_HEADERS = {
    "upper_case": [("X-Upper", "y")],
    "space_in_name": [("x y", "z")],
    "empty_name": [("", "z")],
    "newline": [("x-line", "a\r\nb: c")],
    "nul": [("x-nul", "a\0b")],
    "not_ascii": [("x-high", b"\xff\xfe")],
    "bad_base64": [("x-data-bin", "!!!")],
    "timeout_without_sense": [("grpc-timeout", "soon")],
    "timeout_that_overflows": [("grpc-timeout", "99999999H")],
    "encoding_unknown": [("grpc-encoding", "rot13")],
    "connection_header": [("connection", "close")],
    "second_path": [(":path", "/x/y")],
    "pseudo_late": [("x-a", "b"), (":authority", "z")],
    "huge": [("x-huge", "y" * 20000)],
    "many": [(f"x-{i}", "y" * 40) for i in range(600)],
}


@case
def metadata_that_is_none():
    with Server() as s, Client(s.port) as c:
        for name, more in BAD_HEADERS.items():
            x = h.Connection(s.port, timeout=5)
            block = h.call(ECHO, *more)
            pieces = [block[i:i + 16000] for i in range(0, len(block), 16000)]
            out = h.frame(h.HEADERS, h.END_HEADERS if len(pieces) == 1 else 0, 1, pieces[0])
            for i, p in enumerate(pieces[1:], 2):
                out += h.frame(h.CONTINUATION, h.END_HEADERS if i == len(pieces) else 0, 1, p)
            x.send(out + h.frame(h.DATA, h.END_STREAM, 1, h.message(pb.EchoRequest(text="x").SerializeToString())))
            # an answer, a reset or the end of the connection: never nothing
            x.until(lambda kind, flags, stream, p: kind in (h.RST_STREAM, h.GOAWAY) or
                    (stream == 1 and flags & h.END_STREAM), 10)
            x.close()
            assert c.echo(pb.EchoRequest(text=name), timeout=10).text == name
        for block in (h.header(":method", "POST") + h.header("te", "trailers"),
                      h.call(ECHO, method="GET"), h.call(""), h.call("no-slash"), h.call("/" + "x" * 5000 + "/y"),
                      h.call(ECHO, ("content-type", "text/html"))):
            x = h.Connection(s.port, timeout=5)
            x.send(h.frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, 1, block))
            x.until(lambda kind, flags, stream, p: kind in (h.RST_STREAM, h.GOAWAY) or
                    (stream == 1 and flags & h.END_STREAM), 10)
            x.close()
        assert c.echo(pb.EchoRequest(text="x"), timeout=10).text == "x"
        wait_for("all calls to be over", lambda: c.stats().calls_live == 1)


@case
def what_we_send_is_legal_metadata():
    """An error's text goes out as a header: whatever is in it, it arrives."""
    with Server() as s, Client(s.port) as c:
        for text in ("tab\tand\nline\r\n", "".join(chr(i) for i in range(1, 32)), "\x7f%41%", "ü€😀" * 20, " lead and trail ",
                     "x" * 5000, "grpc-status: 0"):
            e = fails(grpc.StatusCode.NOT_FOUND, lambda: c.echo(pb.EchoRequest(text=text, code=5, field="f" * 500), timeout=10))
            assert e.details() and text.startswith(e.details().rstrip("\ufffd")[:100]), (text, e.details())
            assert b"TEST_REASON" in dict(e.trailing_metadata())["grpc-status-details-bin"]


@case
def unknown_methods_are_answered_at_once():
    with Server() as s, Client(s.port) as c:
        begin = time.monotonic()
        over = threading.Event()

        def nothing():
            over.wait(30)
            yield b""
        for i in range(100):
            call = c.ch.stream_stream(f"/no.such.v{i}/Method", lambda b: b, lambda b: b)
            fails(grpc.StatusCode.UNIMPLEMENTED, lambda: list(call(nothing(), timeout=20)))
        assert time.monotonic() - begin < 10
        over.set()


@case
def enums_and_numbers_nobody_knows():
    with Server() as s, Client(s.port) as c:
        e = fails(grpc.StatusCode.UNKNOWN, lambda: c.echo(pb.EchoRequest(text="x", code=99), timeout=10))
        assert e.details() == "x"
        fails(grpc.StatusCode.UNKNOWN, lambda: c.echo(pb.EchoRequest(text="x", code=-1), timeout=10))


main()
