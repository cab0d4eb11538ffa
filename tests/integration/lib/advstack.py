# SPDX-License-Identifier: Apache-2.0
"""advisord for tests: certificates of a CA of its own, a config, start/stop/kill, and Python stubs from proto/.

Programs come from the environment: ADVISORD (required), ADVISOR_AGENT, ADVISOR_TAIL, ADVISORCTL.
"""
import atexit
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from advlab import wait_for  # noqa: E402

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


def stubs():
    """Generates and imports the Python stubs of the Advisor API once; returns a namespace of all messages."""
    out = tempfile.mkdtemp(prefix="advstubs-")
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    proto = os.path.join(ROOT, "proto")
    files = sorted(f"advisor/v1/{f}" for f in os.listdir(os.path.join(proto, "advisor/v1")) if f.endswith(".proto"))
    include = subprocess.run(["pkg-config", "--variable=includedir", "protobuf"], capture_output=True, text=True).stdout
    plugin = shutil.which("grpc_python_plugin")
    subprocess.run(["protoc", "-I", proto, "-I", include.strip() or "/usr/include", f"--python_out={out}",
                    f"--plugin=protoc-gen-grpc_python={plugin}", f"--grpc_python_out={out}", *files], check=True)
    sys.path.insert(0, out)
    space = {}
    for f in files:
        for suffix in ("_pb2", "_pb2_grpc"):
            module = __import__(f[:-len(".proto")].replace("/", ".") + suffix, fromlist=["*"])
            space.update({k: v for k, v in vars(module).items() if not k.startswith("_")})
    return type("Api", (), space)


class Ca:
    """An authority and certificates whose URI name says who somebody is."""

    def __init__(self, folder, name="test-ca"):
        self.dir = folder
        self.name = name
        os.makedirs(folder, exist_ok=True)
        self.cert = os.path.join(folder, "ca.crt")
        self.key = os.path.join(folder, "ca.key")
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
                  "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.cert)

    def _run(self, *args):
        subprocess.run(["openssl", *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def issue(self, name, *sans):
        """Returns (cert file, key file) for e.g. issue("alice", "URI:advisor:operator:alice")."""
        base = os.path.join(self.dir, name.replace("/", "_"))
        ext = base + ".ext"
        with open(ext, "w") as f:
            if sans:
                f.write("subjectAltName=" + ",".join(sans) + "\n")
            f.write("basicConstraints=CA:FALSE\n")
        self._run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
                  "-keyout", base + ".key", "-out", base + ".csr")
        self._run("x509", "-req", "-in", base + ".csr", "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
                  "-days", "30", "-extfile", ext, "-out", base + ".crt")
        return base + ".crt", base + ".key"


class Advisord:
    """One control plane in a folder of its own."""

    def __init__(self, folder=None, tls=True, **config):
        self.dir = folder or tempfile.mkdtemp(prefix="advisord-")
        os.chmod(self.dir, 0o755)
        atexit.register(self.cleanup)
        self.tls = tls
        self.proc = None
        self.config = {
            "listen": '["127.0.0.1:0"]', "port_file": f"{self.dir}/port", "store.path": f"{self.dir}/advisor.db",
            "rules.dir": os.path.join(ROOT, "rules"), "log.level": "debug",
            "agent.heartbeat_interval": "500ms", "agent.silence_timeout": "3s", "agent.lease": "30s",
        }
        if tls:
            self.ca = Ca(f"{self.dir}/tls")
            cert, key = self.ca.issue("advisord", "DNS:localhost", "IP:127.0.0.1")
            self.config.update({"tls.cert": cert, "tls.key": key, "tls.ca": self.ca.cert})
        else:
            self.config["insecure"] = "true"
        self.config.update(config)
        self.start()

    def start(self, env=None):
        path = f"{self.dir}/advisord.yaml"
        with open(path, "w") as f:
            for k, v in self.config.items():
                f.write(f"{k}: {v}\n")
        try:
            os.unlink(f"{self.dir}/port")
        except FileNotFoundError:
            pass
        self.log = open(f"{self.dir}/advisord.log", "ab")
        self.proc = subprocess.Popen([os.environ["ADVISORD"], "--config", path], stdin=subprocess.DEVNULL,
                                     stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})
        wait_for("advisord to serve: " + self.tail_log(), lambda: os.path.exists(f"{self.dir}/port") or
                 self.proc.poll() is not None, 60)
        if self.proc.poll() is not None:
            raise AssertionError("advisord did not start: " + self.tail_log())
        self.port = int(open(f"{self.dir}/port").read())
        # a restart keeps its address, as a real one would
        self.config["listen"] = f'["127.0.0.1:{self.port}"]'

    def tail_log(self, n=5):
        try:
            with open(f"{self.dir}/advisord.log", errors="replace") as f:
                return " / ".join(f.read().splitlines()[-n:])
        except OSError:
            return ""

    def kill(self):
        self.proc.send_signal(signal.SIGKILL)
        self.proc.wait()

    def stop(self):
        """Clean stop; a leak or a sanitizer report makes it fail."""
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                rc = self.proc.wait(30)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
                raise AssertionError("advisord did not stop: " + self.tail_log())
            if rc != 0:
                raise AssertionError(f"advisord ended with {rc}: " + self.tail_log(30))

    def cleanup(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        if not os.environ.get("ADVISOR_TEST_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)

    # clients
    def channel(self, name=None, *sans, ca=None):
        """A channel as `advisor:<role>:<who>` (name "operator:alice"), over TLS where the server has it."""
        import grpc
        target = f"127.0.0.1:{self.port}"
        options = [("grpc.use_local_subchannel_pool", 1)]
        if not self.tls:
            return grpc.insecure_channel(target, options)
        authority = ca or self.ca
        with open(self.ca.cert, "rb") as f:
            root = f.read()
        key = chain = None
        if name is not None:
            cert, keyfile = authority.issue(name.replace(":", "-"), *(sans or (f"URI:advisor:{name}",)))
            key, chain = open(keyfile, "rb").read(), open(cert, "rb").read()
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(root, key, chain), options)


class FakeAgent:
    """Speaks AgentService.Session by hand, to say what a real agent would never say."""

    def __init__(self, api, channel, cluster, instance="i1", journal="j1", **hello):
        self.api = api
        self.stub = api.AgentServiceStub(channel)
        self.queue = queue.Queue()
        self.got = []
        self.error = None
        self.seq = 0
        self.beat = 0
        self.cluster = cluster
        self.stream = self.stub.Session(iter(self.queue.get, None))
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()
        h = dict(cluster=cluster, agent_version="test", api_versions=["advisor.v1"], instance_id=instance,
                 journal_id=journal, journal_persistent=True, ceiling=api.Ceiling(mode=api.MODE_ACT))
        h.update(hello)
        self.send(hello=api.Hello(**h))

    def _read(self):
        try:
            for m in self.stream:
                self.got.append(m)
        except Exception as e:  # grpc.RpcError
            self.error = e

    def send(self, **kw):
        self.queue.put(self.api.SessionRequest(**kw))

    def numbered(self, **kw):
        self.seq += 1
        self.send(seq=self.seq, **kw)
        return self.seq

    def heartbeat(self, **kw):
        self.beat += 1
        self.send(heartbeat=self.api.Heartbeat(id=self.beat, **kw))
        return self.beat

    def pull(self, n):
        self.send(pull=self.api.Pull(id=n))

    def all(self, kind):
        return [getattr(m, kind) for m in list(self.got) if m.HasField(kind)]

    def wait(self, kind, match=lambda m: True, timeout=15):
        def probe():
            if self.error is not None and not any(match(m) for m in self.all(kind)):
                raise AssertionError(f"session ended while waiting for {kind}: {self.error.code()} {self.error.details()}")
            return next((m for m in self.all(kind) if match(m)), None)
        return wait_for(f"{kind} from the control plane", probe, timeout)

    def wait_end(self, timeout=15):
        return wait_for("the session to end", lambda: self.error, timeout)

    def durable(self, seq, timeout=15):
        return self.wait("ack", lambda a: a.durable_through_seq >= seq, timeout)

    def close(self):
        self.queue.put(None)
        self.stream.cancel()
        self.thread.join(5)


def run(cases):
    """Runs the case functions whose names hold a word of the command line; prints a line for each."""
    import traceback
    words, failed = sys.argv[1:], 0
    for f in cases:
        if words and not any(w in f.__name__ for w in words):
            continue
        begin = time.monotonic()
        try:
            f()
            print(f"ok {f.__name__}", flush=True)
        except Exception as e:  # one broken case must not hide the others
            failed += 1
            print(f"not ok {f.__name__} {str(e).splitlines()[0] if str(e) else type(e).__name__}", flush=True)
            traceback.print_exc()
        print(f"# {f.__name__}: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)
