# SPDX-License-Identifier: Apache-2.0
"""Shapes of calls, deadlines, cancellation, errors, health and reflection."""
import threading
import time

from rpclib import Client, Server, case, fails, grpc, main, pb, wait_for

SERVER = Server()
S = SERVER.__enter__()
C = Client(S.port)


@case
def unary():
    assert C.echo(pb.EchoRequest(text="hé\n", data=b"\0" * 1000), timeout=10) == pb.EchoResponse(text="hé\n", bytes=1000)
    for i in range(200):
        assert C.echo(pb.EchoRequest(text=str(i)), timeout=10).text == str(i)


@case
def unary_later():
    assert C.echo(pb.EchoRequest(text="x", delay_ms=50), timeout=10).text == "x"
    futures = [C.echo.future(pb.EchoRequest(text=str(i), delay_ms=i % 40), timeout=10) for i in range(100)]
    assert [f.result().text for f in futures] == [str(i) for i in range(100)]


@case
def server_stream():
    got = [m.i for m in C.count(pb.CountRequest(n=5000, size=200), timeout=30)]
    assert got == list(range(5000))
    assert [m.i for m in C.count(pb.CountRequest(n=0), timeout=10)] == []
    assert [m.i for m in C.broadcast(pb.CountRequest(n=300), timeout=10)] == [7] * 300


@case
def client_stream():
    assert C.sum(iter([pb.EchoRequest(data=b"x" * i) for i in range(100)]), timeout=10).bytes == 4950
    assert C.sum(iter([]), timeout=10).bytes == 0


@case
def bidi():
    got = [m.text for m in C.chat(iter([pb.EchoRequest(text=str(i)) for i in range(500)]), timeout=20)]
    assert got == [str(i) for i in range(500)]
    # the server ends first, while the client still has its side open
    stop = threading.Event()

    def talk():
        yield pb.EchoRequest(text="a")
        yield pb.EchoRequest(text="bye")
        stop.wait(10)

    call = C.chat(talk(), timeout=20)
    assert [m.text for m in call] == ["a"]
    assert call.code() == grpc.StatusCode.OK
    stop.set()


@case
def big_messages():
    blob = b"\1" * 900_000
    assert C.echo(pb.EchoRequest(data=blob), timeout=10).bytes == len(blob)
    got = list(C.count(pb.CountRequest(n=4, size=2_000_000), timeout=30))
    assert [len(m.padding) for m in got] == [2_000_000] * 4


@case
def deadline():
    t = time.monotonic()
    fails(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: C.echo(pb.EchoRequest(text="x", delay_ms=1000), timeout=0.2))
    assert time.monotonic() - t < 0.9
    left = C.who(pb.StatsRequest(), timeout=30).deadline_ms
    assert 28000 < left <= 31000, left
    assert C.who(pb.StatsRequest()).deadline_ms == -1


@case
def cancel():
    before = C.stats()
    f = C.echo.future(pb.EchoRequest(text="x", delay_ms=600))
    time.sleep(0.1)
    f.cancel()
    wait_for("the cancelled unary call", lambda: C.stats().calls_cancelled > before.calls_cancelled)
    stop = threading.Event()

    def talk():
        yield pb.EchoRequest(text="a")
        stop.wait(10)

    call = C.chat(talk())
    assert next(call).text == "a"
    call.cancel()
    stop.set()
    wait_for("the cancelled stream", lambda: C.stats().calls_cancelled > before.calls_cancelled + 1)
    time.sleep(0.7)  # the delayed answer comes on a dead call
    assert C.echo(pb.EchoRequest(text="still"), timeout=10).text == "still"


@case
def cancelled_upload_is_no_half_close():
    before = C.stats()
    for i in range(20):
        stop = threading.Event()

        def talk():
            for _ in range(3):
                yield pb.EchoRequest(data=b"x")
            stop.wait(10)

        f = C.sum.future(talk())
        if i % 2:
            time.sleep(0.02)
        f.cancel()
        stop.set()
    wait_for("all to close", lambda: C.stats().calls_live == 1)
    assert C.stats().half_closes == before.half_closes


@case
def broken_connection_is_no_half_close():
    before = C.stats()
    with Client(S.port) as c:
        stop = threading.Event()

        def talk():
            for _ in range(3):
                yield pb.EchoRequest(data=b"x")
            stop.wait(10)

        f = c.sum.future(talk())
        time.sleep(0.1)
    stop.set()
    wait_for("the close", lambda: C.stats().calls_live == 1)
    assert C.stats().half_closes == before.half_closes
    del f


@case
def unknown_method():
    call = C.ch.unary_unary("/advisor.test.v1.TestService/Nope", lambda b: b, lambda b: b)
    e = fails(grpc.StatusCode.UNIMPLEMENTED, lambda: call(b"", timeout=5))
    assert "Nope" in e.details()
    call = C.ch.stream_stream("/x.y/Z", lambda b: b, lambda b: b)
    fails(grpc.StatusCode.UNIMPLEMENTED, lambda: list(call(iter([b"", b""]), timeout=5)))


@case
def authorize():
    e = fails(grpc.StatusCode.PERMISSION_DENIED, lambda: C.forbidden(pb.StatsRequest(), timeout=5))
    assert e.details() == "not for you"


@case
def metadata():
    w = C.who(pb.StatsRequest(), metadata=(("authorization", "Bearer abc"),), timeout=5)
    assert w.token == "Bearer abc"
    assert not w.authenticated and w.cert_sha256 == "" and w.address.startswith("ipv4:127.0.0.1:")


@case
def error_details():
    e = fails(grpc.StatusCode.FAILED_PRECONDITION,
              lambda: C.echo(pb.EchoRequest(text="bäd %41\nline", code=9, field="job.name", retry_after_ms=1500), timeout=5))
    assert e.details() == "bäd %41\nline"
    blob = dict(e.trailing_metadata())["grpc-status-details-bin"]
    for part in (b"type.googleapis.com/google.rpc.ErrorInfo", b"TEST_REASON", b"advisor", b"job.name",
                 b"type.googleapis.com/google.rpc.BadRequest", b"type.googleapis.com/google.rpc.RetryInfo"):
        assert part in blob, part
    assert b"\x08\x01\x10\x80\xca\xb5\xee\x01" in blob  # 1 s, 500,000,000 ns
    e = fails(grpc.StatusCode.NOT_FOUND, lambda: C.echo(pb.EchoRequest(text="x", code=5), timeout=5))
    assert b"RetryInfo" not in dict(e.trailing_metadata())["grpc-status-details-bin"]


@case
def no_request_message():
    # a unary call whose client half-closes without a message
    call = C.ch.stream_unary("/advisor.test.v1.TestService/Echo", lambda b: b, lambda b: b)
    fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: call(iter([]), timeout=5))


def health(service):
    call = C.ch.unary_unary("/grpc.health.v1.Health/Check", lambda b: b, lambda b: b)
    return call(b"\x0a" + bytes([len(service)]) + service.encode(), timeout=5)


@case
def health_check():
    assert health("") == b"\x08\x01"
    fails(grpc.StatusCode.NOT_FOUND, lambda: health("nope"))
    watch = C.ch.unary_stream("/grpc.health.v1.Health/Watch", lambda b: b, lambda b: b)
    w = watch(b"")
    assert next(w) == b"\x08\x01"
    u = watch(b"\x0a\x01x")
    assert next(u) == b"\x08\x03"
    w.cancel()
    u.cancel()


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def field(num, data):
    return bytes([num << 3 | 2]) + varint(len(data)) + data


def reflect(version, *requests):
    call = C.ch.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo", lambda b: b, lambda b: b)
    return list(call(iter(requests), timeout=5))


@case
def reflection():
    from google.protobuf import descriptor_pb2
    for version in ("v1", "v1alpha"):
        out = reflect(version, field(7, b""), field(4, b"advisor.test.v1.TestService"), field(4, b"advisor.test.v1.Tree.kids"),
                      field(3, b"rpc_test.proto"), field(4, b"no.such"), field(3, b"no.proto"))
        assert len(out) == 6
        assert b"advisor.test.v1.TestService" in out[0]
        for r in out[1:4]:
            at = r.index(b"\x0a\x0erpc_test.proto")
            f = descriptor_pb2.FileDescriptorProto.FromString(r[at:])
            assert f.package == "advisor.test.v1" and len(f.service[0].method) == 8
        for r in out[4:]:
            assert b"not found" in r


@case
def many_connections():
    clients = [Client(S.port) for _ in range(60)]
    futures = [c.echo.future(pb.EchoRequest(text="x"), timeout=20) for c in clients]
    assert all(f.result().text == "x" for f in futures)
    for c in clients:
        c.ch.close()


@case
def clean_exit():
    wait_for("idle", lambda: C.stats().calls_live == 1)
    C.ch.close()
    SERVER.__exit__(None)


main()
