# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand, to send what no library would: frames, headers without compression tricks, and nothing checked."""
import socket
import ssl
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _number(n):
    """A length with a prefix of seven bits."""
    if n < 127:
        return bytes([n])
    out, n = b"\x7f", n - 127
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def header(name, value):
    """A literal that enters no table."""
    name, value = (x.encode() if isinstance(x, str) else x for x in (name, value))
    return b"\x00" + _number(len(name)) + name + _number(len(value)) + value


def call(path, *more, authority="localhost", method="POST"):
    """The header block of a call; @more are (name, value)."""
    return b"".join(header(n, v) for n, v in ((":method", method), (":scheme", "http"), (":path", path),
                                              (":authority", authority), ("te", "trailers"),
                                              ("content-type", "application/grpc")) + more)


def message(data=b""):
    """A gRPC message, not compressed."""
    return b"\0" + struct.pack(">I", len(data)) + data


class Connection:
    """Raw bytes out, frames in. Made of plain TCP, or of TLS with @context."""

    def __init__(self, port, context=None, preface=True, timeout=10, host="127.0.0.1"):
        self.sock = socket.create_connection((host, port), timeout)
        self.sock.settimeout(timeout)
        if context:
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        self.buffer = b""
        if preface:
            self.send(PREFACE + frame(SETTINGS))

    def send(self, data):
        self.sock.sendall(data)

    def frames(self, limit=1000):
        """What comes until the other side closes or the time is over."""
        got = []
        try:
            while len(got) < limit:
                while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                    data = self.sock.recv(65536)
                    if not data:
                        return got + [None]
                    self.buffer += data
                n = int.from_bytes(self.buffer[:3], "big")
                got.append((self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big"), self.buffer[9:9 + n]))
                self.buffer = self.buffer[9 + n:]
        except (socket.timeout, ssl.SSLError):
            return got
        except OSError:
            return got + [None]
        return got

    def until(self, match, timeout=10):
        """The first frame that matches; None when the connection ends before."""
        self.sock.settimeout(timeout)
        while True:
            got = self.frames(1)
            if not got:
                raise AssertionError("nothing came in time")
            if got[0] is None:
                return None
            if match(*got[0]):
                return got[0]

    def closed(self, timeout=10):
        """True once the other side has closed the connection."""
        self.sock.settimeout(timeout)
        while True:
            got = self.frames(100)
            if not got or None in got:
                return None in got

    def close(self):
        self.sock.close()


def client_context(ca, cert=None, key=None):
    ctx = ssl.create_default_context(cafile=ca)
    if cert:
        ctx.load_cert_chain(cert, key)
    ctx.set_alpn_protocols(["h2"])
    return ctx
