#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The wire client against gRPC core's own server (python3-grpcio)."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

try:
    import grpc
except ImportError:
    print("skip wire python3-grpcio is not installed")
    sys.exit(0)

CLIENT = sys.argv[1]
ONLY = sys.argv[2:]
TMP = tempfile.mkdtemp(prefix="wire-")


class Service(grpc.GenericRpcHandler):
    def __init__(self):
        self.cancelled = threading.Event()
        self.seen_metadata = []

    def service(self, call):
        name = call.method.rsplit("/", 1)[1]
        self.seen_metadata = call.invocation_metadata
        table = {
            "Unary": grpc.unary_unary_rpc_method_handler(lambda req, ctx: req),
            "Client": grpc.stream_unary_rpc_method_handler(self.client),
            "Server": grpc.unary_stream_rpc_method_handler(self.server),
            "Bidi": grpc.stream_stream_rpc_method_handler(lambda it, ctx: it),
            "Sleep": grpc.unary_unary_rpc_method_handler(self.sleep),
            "Slow": grpc.unary_unary_rpc_method_handler(lambda req, ctx: time.sleep(1.2) or b"ok"),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "Early": grpc.stream_stream_rpc_method_handler(self.early),
            "Gzip": grpc.unary_unary_rpc_method_handler(self.gzip),
            "Headers": grpc.unary_unary_rpc_method_handler(self.headers),
        }
        return table.get(name)

    def client(self, it, ctx):
        count = total = 0
        for m in it:
            count += 1
            total += len(m)
        return b"%d %d" % (count, total)

    def server(self, req, ctx):
        for _ in range(50):
            yield b"z" * 60000

    def sleep(self, req, ctx):
        ctx.add_callback(self.cancelled.set)
        while ctx.is_active():
            time.sleep(0.02)
        return b""

    def fail(self, req, ctx):
        ctx.set_trailing_metadata((("grpc-status-details-bin", b"\x08\x05\x12\x02hi"),))
        ctx.abort(grpc.StatusCode.NOT_FOUND, "100% gräßlich\nline two")

    def early(self, it, ctx):
        yield next(it)
        ctx.abort(grpc.StatusCode.FAILED_PRECONDITION, "enough")

    def gzip(self, req, ctx):
        ctx.set_compression(grpc.Compression.Gzip)
        return b"a" * 100000

    def headers(self, req, ctx):
        ctx.set_trailing_metadata((("x-big", "v" * 30000),))
        return b"x"


def serve(address="127.0.0.1:0", creds=None, options=()):
    service = Service()
    server = grpc.server(futures.ThreadPoolExecutor(8), handlers=(service,),
                         options=(("grpc.so_reuseport", 0),) + tuple(options))
    if creds:
        port = server.add_secure_port(address, creds)
    else:
        port = server.add_insecure_port(address)
    assert port, "no port"
    server.start()
    server.service = service
    return server, port


def run(*args, timeout=15):
    p = subprocess.run([CLIENT, *map(str, args)], capture_output=True, timeout=timeout)
    out = p.stdout.decode("utf-8", "replace")
    err = p.stderr.decode("utf-8", "replace")
    assert p.returncode == 0 and "Sanitizer" not in err, (p.returncode, err[-2000:], out)
    return out


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def expect(text, pattern):
    assert re.search(pattern, text, re.M | re.S), f"no {pattern!r} in:\n{text[-2000:]}"


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=TMP)


def make_ca(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2")


def make_cert(ca, name, san):
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    with open(f"{TMP}/{name}.ext", "w") as f:
        f.write(f"subjectAltName={san}\n")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
            "-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext")


def read(name):
    with open(f"{TMP}/{name}", "rb") as f:
        return f.read()


def mtls(ca="ca", cert="server"):
    return grpc.ssl_server_credentials(((read(cert + ".key"), read(cert + ".pem")),),
                                       read(ca + ".pem"), True)


def tls_args(ca="ca", cert="client"):
    args = ["--ca", f"{TMP}/{ca}.pem"]
    if cert:
        args += ["--cert", f"{TMP}/{cert}.pem", "--key", f"{TMP}/{cert}.key"]
    return args


def plain(port):
    return ["--target", f"127.0.0.1:{port}", "--insecure"]


# Each test takes a plain server's port and the server.

def test_unary(port, server):
    out = run(*plain(port), "--size", 5, "--md", "x-a=b", "--md", "x-b-bin=\x01\x02")
    expect(out, r"^msg 5 485 aaaaa$")
    expect(out, r"^closed OK ")
    md = {k: v for k, v in server.service.seen_metadata}
    assert md["x-a"] == "b" and md["x-b-bin"] == b"\x01\x02", md
    assert "advisor/" in md["user-agent"], md


def test_unary_empty_message(port, server):
    expect(run(*plain(port), "--size", 0), r"^msg 0 0 $.*^closed OK")


def test_host_name(port, server):
    expect(run("--target", f"localhost:{port}", "--insecure", "--size", 1), r"^closed OK")


def test_client_stream(port, server):
    expect(run(*plain(port), "--path", "/t.T/Client", "--messages", 1000, "--size", 777),
           r"^msg 11 \d+ 1000 777000$.*^closed OK")


def test_client_stream_big(port, server):
    # Far more than the send queue: back-pressure and on_drained.
    expect(run(*plain(port), "--path", "/t.T/Client", "--messages", 300, "--size", 100000),
           r" 300 30000000$.*^closed OK")


def test_server_stream(port, server):
    out = run(*plain(port), "--path", "/t.T/Server")
    assert out.count("msg 60000 7320000") == 50, out
    expect(out, r"^closed OK")


def test_bidi(port, server):
    out = run(*plain(port), "--path", "/t.T/Bidi", "--messages", 200, "--size", 10)
    assert out.count("msg 10 ") == 200, out
    expect(out, r"^closed OK")


def test_parallel(port, server):
    out = run(*plain(port), "--path", "/t.T/Bidi", "--messages", 20, "--size", 3000,
              "--parallel", 40)
    assert out.count("msg 3000 ") == 800 and out.count("closed OK") == 40, out


def test_deadline(port, server):
    t = time.time()
    out = run(*plain(port), "--path", "/t.T/Sleep", "--deadline", 300)
    expect(out, r"^closed DEADLINE_EXCEEDED")
    assert 0.2 < time.time() - t < 5
    assert server.service.cancelled.wait(5), "the server did not see the end"


def test_cancel(port, server):
    out = run(*plain(port), "--path", "/t.T/Server", "--cancel-after", 3)
    expect(out, r"^cancelled$")
    assert out.count("msg ") == 3 and "closed" not in out, out


def test_error_details(port, server):
    out = run(*plain(port), "--path", "/t.T/Fail")
    expect(out, r"^closed NOT_FOUND 100% gräßlich\nline two details=080512026869 server=1$")


def test_server_ends_early(port, server):
    out = run(*plain(port), "--path", "/t.T/Early", "--messages", 3, "--keep-open", "--size", 4)
    expect(out, r"^msg 4 .*^closed FAILED_PRECONDITION enough details= server=1$")


def test_unknown_method(port, server):
    expect(run(*plain(port), "--path", "/t.T/None"), r"^closed UNIMPLEMENTED .* server=1$")


def test_compressed_is_refused(port, server):
    # This server compresses although it is told that only identity is understood.
    expect(run(*plain(port), "--path", "/t.T/Gzip"), r"^closed UNIMPLEMENTED .*compressed")


def test_too_many_headers(port, server):
    expect(run(*plain(port), "--path", "/t.T/Headers"), r"^closed RESOURCE_EXHAUSTED")


def test_message_too_big(port, server):
    out = run(*plain(port), "--size", 5000, "--max-message", 4999)
    expect(out, r"^closed RESOURCE_EXHAUSTED received message larger than max \(5000 vs. 4999\)")


def test_big_message_small_window(port, server):
    out = run(*plain(port), "--size", 3000000, "--window", 1024, "--max-message", 4000000)
    expect(out, r"^msg 3000000 291000000$.*^closed OK")


def test_slow_consumer(port, server):
    out = run(*plain(port), "--path", "/t.T/Server", "--slow", 10, "--window", 65535)
    assert out.count("msg 60000 7320000") == 50, out
    expect(out, r"^closed OK")


def test_pause_past_the_end(port, server):
    # All data and the status have come while the call was paused.
    out = run(*plain(port), "--path", "/t.T/Bidi", "--messages", 20, "--size", 10, "--pause", 400)
    assert out.count("msg 10 ") == 20, out
    expect(out, r"^closed OK")


def test_restart(port, server):
    out = run(*plain(port), "--path", "/t.T/Sleep", "--restart-after", 200, "--calls", 2,
              "--deadline", 600, "--gap", 300)
    expect(out, r"READY.*^closed UNAVAILABLE the connection is being made anew.*READY.*"
                r"^closed DEADLINE_EXCEEDED")


def test_refused_connection(port, server):
    out = run("--target", f"127.0.0.1:{free_port()}", "--insecure")
    expect(out, r"^closed UNAVAILABLE connect to .*refused")


def test_insecure_only_local(port, server):
    out = run("--target", "192.0.2.1:443", "--insecure")
    expect(out, r"^closed UNAVAILABLE .*insecure is for loopback")


def test_several_targets(port, server):
    expect(run("--target", f"127.0.0.1:{free_port()},127.0.0.1:{port}", "--insecure", "--size", 1), r"^closed OK")
    p = subprocess.run([CLIENT, "--target", f"127.0.0.1:{port},nonsense", "--insecure"], capture_output=True)
    assert p.returncode == 1 and b"config bad target" in p.stdout, p


def test_bad_target(port, server):
    p = subprocess.run([CLIENT, "--target", "nonsense", "--insecure"], capture_output=True)
    assert p.returncode == 1 and b"config bad target" in p.stdout, p


def test_unix_socket(port, server):
    other, _ = serve(f"unix:{TMP}/s.sock")
    expect(run("--target", f"unix:{TMP}/s.sock", "--insecure", "--size", 1), r"^closed OK")
    other.stop(0)


def test_reconnect(port, server):
    port = free_port()
    first, _ = serve(f"127.0.0.1:{port}")
    p = subprocess.Popen([CLIENT, *plain(port), "--calls", "2", "--gap", "1500", "--wait",
                          "--size", "1"], stdout=subprocess.PIPE)
    time.sleep(0.7)
    first.stop(0).wait()
    time.sleep(0.5)
    second, _ = serve(f"127.0.0.1:{port}")
    out = p.communicate(timeout=20)[0].decode()
    second.stop(0)
    assert p.returncode == 0 and out.count("closed OK") == 2, out
    expect(out, r"state READY.*state BACKOFF.*state READY")


def test_wait_ready_before_server(port, server):
    port = free_port()
    p = subprocess.Popen([CLIENT, *plain(port), "--wait", "--size", "1"], stdout=subprocess.PIPE)
    time.sleep(0.6)
    late, _ = serve(f"127.0.0.1:{port}")
    out = p.communicate(timeout=20)[0].decode()
    late.stop(0)
    expect(out, r"state BACKOFF.*state READY.*^closed OK")


def test_goaway(port, server):
    aged, port = serve(options=(("grpc.max_connection_age_ms", 700),
                                ("grpc.max_connection_age_grace_ms", 5000)))
    # Each call outlives the GOAWAY and must end well; later calls go over a new connection.
    out = run(*plain(port), "--path", "/t.T/Slow", "--calls", 3, "--wait")
    aged.stop(0)
    assert out.count("closed OK") == 3, out
    assert out.count("state DRAINING") >= 2 and out.count("state READY") >= 2, out


def test_server_killed_in_call(port, server):
    code = ("import sys;sys.argv=['x','y'];sys.path.insert(0,%r);import test_wire as t,time;"
            "s,p=t.serve();print(p,flush=True);time.sleep(60)" % os.path.dirname(__file__))
    p = subprocess.Popen(["/usr/bin/python3", "-c", code], stdout=subprocess.PIPE)
    port = int(p.stdout.readline())
    c = subprocess.Popen([CLIENT, *plain(port), "--path", "/t.T/Sleep"], stdout=subprocess.PIPE)
    time.sleep(0.6)
    p.kill()
    out = c.communicate(timeout=20)[0].decode()
    expect(out, r"READY.*^closed UNAVAILABLE ")
    p.wait()


def test_keepalive(port, server):
    # A peer that accepts, says SETTINGS and then nothing.
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(4)

        def peer():
            c, _ = s.accept()
            c.sendall(b"\0\0\0\4\0\0\0\0\0")
            time.sleep(3)
            c.close()
        threading.Thread(target=peer, daemon=True).start()
        out = run("--target", f"127.0.0.1:{s.getsockname()[1]}", "--insecure", "--keepalive", 300)
    expect(out, r"READY.*^closed UNAVAILABLE keepalive")


def test_silent_peer(port, server):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(4)
        out = run("--target", f"127.0.0.1:{s.getsockname()[1]}", "--insecure",
                  "--connect-timeout", 300)
    expect(out, r"^closed UNAVAILABLE connect to .* timed out")


def test_not_http2(port, server):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(4)

        def peer():
            c, _ = s.accept()
            c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            time.sleep(1)
            c.close()
        threading.Thread(target=peer, daemon=True).start()
        out = run("--target", f"127.0.0.1:{s.getsockname()[1]}", "--insecure")
    expect(out, r"^closed UNAVAILABLE ")


def test_mtls(port, server):
    tls, port = serve(creds=mtls())
    target = ["--target", f"localhost:{port}"]
    try:
        out = run(*target, *tls_args(), "--path", "/t.T/Bidi", "--messages", 30, "--size", 50000)
        assert out.count("msg 50000 ") == 30, out
        expect(out, r"^closed OK")
        expect(run("--target", f"127.0.0.1:{port}", "--name", "localhost", *tls_args(),
                   "--size", 1), r"^closed OK")
        expect(run("--target", f"127.0.0.1:{port}", *tls_args()),
               r"^closed UNAVAILABLE TLS: server certificate refused: IP address mismatch")
        expect(run(*target, "--name", "elsewhere.example", *tls_args()),
               r"server certificate refused: hostname mismatch")
        expect(run(*target, *tls_args(ca="other")), r"server certificate refused: ")
        expect(run(*target, *tls_args(cert=None)), r"^closed UNAVAILABLE ")
        expect(run(*target, *tls_args(cert="stranger")), r"^closed UNAVAILABLE ")
        expect(run(*target, *tls_args(ca="missing")),
               r"^closed UNAVAILABLE CA file '.*missing.pem'")
        expect(run("--target", f"127.0.0.1:{port}", "--insecure"), r"^closed UNAVAILABLE ")
    finally:
        tls.stop(0)


def test_mtls_over_unix(port, server):
    tls, _ = serve(f"unix:{TMP}/t.sock", creds=mtls())
    out = run("--target", f"unix:{TMP}/t.sock", "--name", "localhost", *tls_args(), "--size", 1)
    tls.stop(0)
    expect(out, r"^closed OK")


def test_certificate_is_read_again(port, server):
    tls, port = serve(creds=mtls())
    for name in ("pem", "key"):
        os.symlink(f"{TMP}/stranger.{name}", f"{TMP}/live.{name}")
    p = subprocess.Popen([CLIENT, "--target", f"localhost:{port}", *tls_args(cert="live"),
                          "--wait", "--size", "1"], stdout=subprocess.PIPE)
    time.sleep(0.7)
    for name in ("pem", "key"):
        os.symlink(f"{TMP}/client.{name}", f"{TMP}/new.{name}")
        os.replace(f"{TMP}/new.{name}", f"{TMP}/live.{name}")
    out = p.communicate(timeout=20)[0].decode()
    tls.stop(0)
    expect(out, r"BACKOFF.*READY.*^closed OK")


def main():
    make_ca("ca")
    make_ca("other")
    make_cert("ca", "server", "DNS:localhost")
    make_cert("ca", "client", "URI:advisor:agent:a")
    make_cert("other", "stranger", "URI:advisor:agent:a")
    bad = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or (ONLY and name not in ONLY):
            continue
        server, port = serve(options=(("grpc.max_receive_message_length", 64 << 20),))
        try:
            test(port, server)
            print("ok", name, flush=True)
        except Exception as e:  # one failing case must not hide the others
            bad = 1
            print("not ok", name, repr(e).replace("\\n", "\n  "), flush=True)
        server.stop(0)
    subprocess.run(["rm", "-rf", TMP], check=False)
    os._exit(bad)  # gRPC core's threads need not be waited for


if __name__ == "__main__":
    main()
