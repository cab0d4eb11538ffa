# SPDX-License-Identifier: Apache-2.0
"""Sources for tests: a real VictoriaLogs, a real Prometheus with something to scrape, and a server that speaks Loki's
contract and can be told to fail."""
import atexit
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from datetime import datetime, timezone

from advlab import Skip, wait_for

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))

# lines of jobs
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
STEP = " iteration {}/100 | consumed samples: {} | elapsed time per iteration (ms): 200.0 | lm loss: 2.5"


def config(text):
    """A file of sources; its path."""
    folder = tempfile.mkdtemp(prefix="advsources-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with open(f"{folder}/sources.yaml", "w") as f:
        f.write(text)
    return f"{folder}/sources.yaml"


def beating(c):
    """Keeps the fake agent of that cluster alive until its session ends; returns the cluster."""
    agent = c.agent

    def beat():
        while agent.error is None:
            agent.heartbeat()
            time.sleep(0.5)
    threading.Thread(target=beat, daemon=True).start()
    return c


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, timeout=5):
    with urllib.request.urlopen(url, timeout=timeout) as r:
        return r.read()


def answers(url):
    try:
        get(url)
        return True
    except OSError:
        return False


class Program:
    """A server in a folder of its own, on a port of its own."""

    def __init__(self, ready):
        self.dir = tempfile.mkdtemp(prefix="advsource-")
        atexit.register(self.purge)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ready = ready
        self.proc = None
        self.start()

    def start(self):
        with open(f"{self.dir}/log", "ab") as log:
            self.proc = subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_for(f"{self.argv()[0]} to serve", lambda: self.proc.poll() is not None or answers(self.url + self.ready), 120)
        if self.proc.poll() is not None:
            raise AssertionError(f"{self.argv()[0]} ended: " + open(f"{self.dir}/log").read()[-500:])

    def stop(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()

    def purge(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


class VictoriaLogs(Program):
    def __init__(self):
        p = subprocess.run([os.path.join(ROOT, "tools", "victoria-logs")], capture_output=True, text=True)
        if p.returncode:
            raise Skip(p.stderr.strip())
        self.program = p.stdout.strip()
        super().__init__("/health")

    def argv(self):
        return [self.program, f"-storageDataPath={self.dir}/data", f"-httpListenAddr=127.0.0.1:{self.port}",
                "-memory.allowedBytes=64MB", "-loggerLevel=WARN"]

    def put(self, lines, at=None, **fields):
        """Lines at that time (seconds), a microsecond apart."""
        at = at or time.time()
        body = ""
        for i, text in enumerate(lines):
            t = datetime.fromtimestamp(int(at), timezone.utc).strftime("%Y-%m-%dT%H:%M:%S") + f".{int(at % 1 * 1e6) % 1000000:06d}{i:03d}Z"
            body += json.dumps({"_time": t, "_msg": text, **fields}) + "\n"
        q = urllib.request.Request(f"{self.url}/insert/jsonline?_stream_fields=job,host", body.encode(),
                                   {"Content-Type": "application/stream+json"})
        with urllib.request.urlopen(q, timeout=10) as r:
            assert r.status == 200, r.status


class Exporter:
    """What Prometheus scrapes: metrics are set by the test."""

    def __init__(self):
        self.text = ""
        self.up = True
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = outer.text.encode()
                self.send_response(200 if outer.up else 503)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *a):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Prometheus(Program):
    def __init__(self, *exporters, interval="1s"):
        self.program = shutil.which("prometheus")
        if not self.program:
            raise Skip("no prometheus here")
        self.exporters, self.interval = exporters, interval
        super().__init__("/-/ready")

    def pause(self):
        """It scrapes nothing meanwhile; what it has it still answers."""
        for e in self.exporters:
            e.up = False

    def argv(self):
        path = f"{self.dir}/prometheus.yml"
        with open(path, "w") as f:
            f.write(f"global: {{scrape_interval: {self.interval}, scrape_timeout: 1s}}\nscrape_configs:\n")
            for i, e in enumerate(self.exporters):
                f.write(f"  - job_name: x{i}\n    static_configs: [{{targets: ['127.0.0.1:{e.port}']}}]\n")
        return [self.program, f"--config.file={path}", f"--storage.tsdb.path={self.dir}/data",
                f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"]


class Loki:
    """query_range as published: streams of [nanoseconds, line], start inclusive, end exclusive, forward. `mode` says what
    happens instead: ok, 429, 500, garbage, empty, short, slow, huge, hang. Knows label matchers with = only."""

    def __init__(self, tls=None, port=0):
        self.mode = "ok"
        self.retry_after = None
        self.lines = []     # (ns, labels, text)
        self.asked = []     # (monotonic time, form, headers)
        self.lock = threading.Lock()
        self.released = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                with outer.lock:
                    outer.asked.append((time.monotonic(), form, dict(self.headers)))
                try:
                    outer.answer(self, form)
                except OSError:
                    pass  # it did not wait

            def log_message(self, *a):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        if tls:
            import ssl
            ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ctx.load_cert_chain(*tls)
            self.server.socket = ctx.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def put(self, text, at=None, **labels):
        self.lines.append((int((at or time.time()) * 1e9), labels, text))

    def since(self, mono):
        with self.lock:
            return [a for a in self.asked if a[0] >= mono]

    def send(self, h, status, body, **headers):
        h.send_response(status)
        for k, v in headers.items():
            h.send_header(k.replace("_", "-"), v)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        h.wfile.write(body)

    def answer(self, h, form):
        mode = self.mode
        if h.path != "/loki/api/v1/query_range" or not {"query", "start", "end", "limit"} <= set(form):
            return self.send(h, 404, b"404 page not found")
        if mode == "429":
            more = {"Retry_After": self.retry_after} if self.retry_after else {}
            return self.send(h, 429, b"too many outstanding requests", **more)
        if mode == "500":
            return self.send(h, 500, b'{"message":"ingester is\\n away"}')
        if mode == "garbage":
            return self.send(h, 200, b"<html>a proxy's page</html>")
        if mode == "empty":
            return self.send(h, 200, b"")
        if mode == "short":
            return self.send(h, 200, b'{"status":"success","data":{"resultType":"streams","result":[{"stream":{},"values":[["1')
        if mode == "huge":
            h.send_response(200)
            h.send_header("Transfer-Encoding", "chunked")
            h.end_headers()
            head = b'{"status":"success","data":{"resultType":"streams","result":['
            h.wfile.write(b"%x\r\n%s\r\n" % (len(head), head))
            for _ in range(4096):  # 256 MiB, as long as somebody reads
                h.wfile.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
            return None
        if mode == "slow":  # a byte now and then, so that no read times out
            h.send_response(200)
            h.send_header("Content-Length", "100000")
            h.end_headers()
            while not self.released.wait(0.2):
                h.wfile.write(b" ")
            return None
        if mode == "hang":
            self.released.wait(120)
            return None
        start, end, limit = (int(form[k]) for k in ("start", "end", "limit"))
        want = dict(re.findall(r'([a-z_]+)="([^"]*)"', form["query"]))
        hits = sorted((x for x in self.lines if start <= x[0] < end and want.items() <= x[1].items()), key=lambda x: x[0])[:limit]
        streams = {}
        for ns, labels, text in hits:
            streams.setdefault(json.dumps(labels, sort_keys=True), []).append([str(ns), text])
        body = {"status": "success", "data": {"resultType": "streams", "stats": {}, "result": [
            {"stream": json.loads(k), "values": v} for k, v in streams.items()]}}
        return self.send(h, 200, json.dumps(body).encode(), Content_Type="application/json")
