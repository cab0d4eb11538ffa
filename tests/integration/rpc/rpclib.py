# SPDX-License-Identifier: Apache-2.0
"""rpc-testd as a child, its stubs, certificates, and the runner that prints `ok NAME` / `not ok NAME reason`."""
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TESTD = os.environ.get("RPC_TESTD", "rpc-testd")
PROTO_DIR = os.environ.get("RPC_TEST_PROTO_DIR", HERE)
TMP = tempfile.mkdtemp(prefix="adv-rpc-")

subprocess.run(["protoc", "-I", PROTO_DIR, f"--python_out={TMP}", "rpc_test.proto"], check=True)
sys.path.insert(0, TMP)
import grpc  # noqa: E402
import rpc_test_pb2 as pb  # noqa: E402

SVC = "/advisor.test.v1.TestService/"


class Skip(Exception):
    pass


CASES = []


def case(fn):
    CASES.append(fn)
    return fn


def main():
    failed = 0
    only = sys.argv[1:]
    for fn in CASES:
        if only and fn.__name__ not in only:
            continue
        try:
            fn()
            print(f"ok {fn.__name__}", flush=True)
        except Skip as e:
            print(f"skip {fn.__name__} {e}", flush=True)
        except BaseException as e:  # noqa: BLE001
            failed += 1
            print(f"not ok {fn.__name__} {type(e).__name__}: {str(e)[:300]!r}", flush=True)
            traceback.print_exc()
    shutil.rmtree(TMP, ignore_errors=True)
    sys.exit(1 if failed else 0)


def wait_for(what, probe, timeout=15.0):
    end = time.monotonic() + timeout
    while True:
        v = probe()
        if v:
            return v
        assert time.monotonic() < end, f"timed out waiting for {what}"
        time.sleep(0.02)


class Server:
    """`with Server(...) as s:` stops it at the end and demands exit 0: everything released, no sanitizer report."""

    def __init__(self, *args, insecure=True, listen=("127.0.0.1:0",), check=True):
        cmd = [TESTD]
        for a in listen:
            cmd += ["--listen", a]
        if insecure:
            cmd.append("--insecure")
        self.log = open(os.path.join(TMP, f"server-{time.monotonic_ns()}.log"), "w+")
        self.check = check
        self.proc = subprocess.Popen(cmd + list(args), stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.ports = []
        for line in self.proc.stdout:
            word = line.split()
            if word[0] == "PORT":
                self.ports.append(int(word[1]))
            if word[0] == "READY":
                break
        self.port = self.ports[0] if self.ports else None

    def __enter__(self):
        assert self.port is not None, self.stderr()
        return self

    def stderr(self):
        self.log.flush()
        with open(self.log.name) as f:
            return f.read()

    def stop(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        rc = self.proc.wait(30)
        self.proc.stdout.close()
        return rc

    def __exit__(self, kind, *rest):
        rc = self.stop()
        if kind is None and self.check:
            assert rc == 0, f"server exit {rc}: {self.stderr()[-1500:]}"

    def rss_kb(self):
        with open(f"/proc/{self.proc.pid}/status") as f:
            for line in f:
                if line.startswith("VmRSS"):
                    return int(line.split()[1])

    def peak_kb(self):
        with open(f"/proc/{self.proc.pid}/status") as f:
            for line in f:
                if line.startswith("VmHWM"):
                    return int(line.split()[1])


class Client:
    def __init__(self, port, creds=None, options=(), target=None):
        target = target or f"127.0.0.1:{port}"
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)] + list(options)
        self.ch = grpc.secure_channel(target, creds, options) if creds else grpc.insecure_channel(target, options)

        def ser(m):
            return m if isinstance(m, bytes) else m.SerializeToString()

        def uu(name, res):
            return self.ch.unary_unary(SVC + name, ser, res.FromString)

        self.echo = uu("Echo", pb.EchoResponse)
        self.who = uu("Who", pb.WhoResponse)
        self.stats_ = uu("Stats", pb.StatsResponse)
        self.forbidden = uu("Forbidden", pb.StatsResponse)
        self.count = self.ch.unary_stream(SVC + "Count", ser, pb.CountResponse.FromString)
        self.broadcast = self.ch.unary_stream(SVC + "Broadcast", ser, pb.CountResponse.FromString)
        self.sum = self.ch.stream_unary(SVC + "Sum", ser, pb.EchoResponse.FromString)
        self.chat = self.ch.stream_stream(SVC + "Chat", ser, pb.EchoResponse.FromString)

    def stats(self):
        return self.stats_(pb.StatsRequest(), timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.ch.close()


def fails(code, call):
    """Runs call, expects the status; returns the grpc.RpcError."""
    try:
        call()
    except grpc.RpcError as e:
        assert e.code() == code, f"{e.code()} {e.details()!r}, expected {code}"
        return e
    raise AssertionError(f"no error, expected {code}")


def details(error):
    """reason, fields, retry seconds from grpc-status-details-bin, decoded by hand-made descriptors."""
    for k, v in error.trailing_metadata():
        if k == "grpc-status-details-bin":
            return v
    return None


def openssl(*args):
    subprocess.run(["openssl"] + list(args), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class CA:
    def __init__(self, name):
        self.dir = os.path.join(TMP, name)
        os.makedirs(self.dir)
        self.key, self.pem = self.path("ca.key"), self.path("ca.pem")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-keyout", self.key, "-out", self.pem, "-subj", f"/CN={name}")

    def path(self, name):
        return os.path.join(self.dir, name)

    def issue(self, cn, san):
        key, csr, pem, ext = (self.path(f"{cn}.{x}") for x in ("key", "csr", "pem", "ext"))
        with open(ext, "w") as f:
            f.write(f"subjectAltName={san}\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", csr,
                "-subj", f"/CN={cn}")
        openssl("x509", "-req", "-in", csr, "-CA", self.pem, "-CAkey", self.key, "-CAcreateserial", "-days", "2",
                "-out", pem, "-extfile", ext)
        return pem, key


def read(path):
    with open(path, "rb") as f:
        return f.read()
