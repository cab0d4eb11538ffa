# SPDX-License-Identifier: Apache-2.0
"""What the door refuses, and that refusing costs little memory."""
import zlib

from rpclib import Client, Server, case, fails, grpc, main, pb

SERVER = Server()
S = SERVER.__enter__()
C = Client(S.port)
I = grpc.StatusCode.INVALID_ARGUMENT


def varint(n):
    return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)


def field(num, data):
    return varint(num << 3 | 2) + varint(len(data)) + data


def refused(code, raw, reason, path=None):
    e = fails(code, lambda: C.echo(raw, timeout=20))
    blob = dict(e.trailing_metadata())["grpc-status-details-bin"]
    assert reason.encode() in blob, blob
    if path:
        assert path.encode() in blob, blob
    return e


def tree(levels, at=2):
    data = b""
    for _ in range(levels):
        data = field(at, data)
    return data


@case
def nesting():
    assert C.echo(field(3, tree(15)), timeout=10).text == ""
    refused(I, field(3, tree(16)), "TOO_DEEP")
    refused(I, field(3, tree(5000)), "TOO_DEEP")
    refused(I, field(3, tree(60000)), "TOO_DEEP")
    refused(I, field(3, tree(3000, at=3)), "TOO_DEEP")


@case
def utf8():
    assert C.echo(pb.EchoRequest(text="ok \u20ac"), timeout=10).text == "ok \u20ac"
    e = refused(I, field(1, b"\xff"), "INVALID_UTF8", "text")
    assert e.details() == "text: not UTF-8", e.details()
    e = refused(I, field(1, b"a\0b"), "INVALID_UTF8", "text")
    assert "NUL" in e.details()
    refused(I, field(4, b"ok") + field(4, b"ok") + field(4, b"\xed\xa0\x80"), "INVALID_UTF8", "words[2]")
    refused(I, field(3, field(3, b"") + field(3, field(2, field(1, b"\xc0\x80")))), "INVALID_UTF8", "tree.kids[1].child.name")
    assert C.echo(field(2, b"\xff\0"), timeout=10).bytes == 2  # bytes may be anything


@case
def malformed():
    for raw in (b"\xff", b"\x0a", b"\x0a\x05ab", b"\x00\x00", b"\x0b\x0c", b"\x0a" + b"\xff" * 10, b"\x28", b"\x0d\x01",
                b"\x08\x01" * 3):
        fails(I, lambda: C.echo(raw, timeout=10))
    refused(I, field(3, b"") + field(3, b""), "DUPLICATE_FIELD", "tree")


@case
def unknown_fields_pass():
    assert C.echo(field(1, b"x") + field(99, b"\xff\0") + b"\xa0\x06\x01", timeout=10).text == "x"


@case
def amplification():
    # empty list elements: 2 bytes on the wire, a struct each
    before = S.rss_kb()
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, field(3, field(3, b"") * 400_000), "MESSAGE_TOO_COMPLEX")
    assert C.echo(field(3, field(3, b"") * 300), timeout=10).text == ""
    grown = S.peak_kb() - before
    assert grown < 60_000, f"{grown} kB"


@case
def method_limit():
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, field(2, b"x" * (1 << 20)), "MESSAGE_TOO_LARGE")
    # beyond the server's own limit core refuses
    fails(grpc.StatusCode.RESOURCE_EXHAUSTED, lambda: C.echo(field(2, b"x" * (5 << 20)), timeout=10))


@case
def stream_message_refused():
    e = fails(I, lambda: C.sum(iter([pb.EchoRequest(data=b"x"), field(1, b"\xff")]), timeout=10))
    assert "text" in e.details()


@case
def gzip_bomb():
    before = S.peak_kb()
    for size in (1000, 300 << 20):
        z = Client(S.port, options=[("grpc.default_compression_algorithm", 2)])
        e = fails(grpc.StatusCode.UNIMPLEMENTED, lambda: z.echo(field(2, b"\0" * size), timeout=60))
        assert "ompress" in e.details(), e.details()
        z.ch.close()
    grown = S.peak_kb() - before
    assert grown < 20_000, f"peak grew by {grown} kB"
    assert len(zlib.compress(b"\0" * (300 << 20))) < 400_000


@case
def clean_exit():
    C.ch.close()
    SERVER.__exit__(None)


main()
