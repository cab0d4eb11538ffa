# SPDX-License-Identifier: Apache-2.0
"""advisord for tests: certificates of a CA of its own, a config, start/stop/kill, and Python stubs from proto/.

Programs come from the environment: ADVISORD (required), ADVISOR_AGENT, ADVISOR_TAIL, ADVISORCTL.
"""
import atexit
import json
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
from advlab import Skip, wait_for  # noqa: E402

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


def stubs():
    """Generates and imports the Python stubs of the Advisor API once; returns a namespace of all messages, those of
    google.rpc among them."""
    out = tempfile.mkdtemp(prefix="advstubs-")
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    proto = os.path.join(ROOT, "proto")
    files = sorted(f"{d}/{f}" for d in ("advisor/v1", "google/rpc") for f in os.listdir(os.path.join(proto, d))
                   if f.endswith(".proto"))
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


def refused(call, code, reason=None, field=None):
    """Runs call, wants that status, ErrorInfo reason and BadRequest path; returns the error."""
    import grpc
    try:
        call()
    except grpc.RpcError as e:
        if e.code() != code:
            raise AssertionError(f"wanted {code}, got {e.code()}: {e.details()}")
        details = dict(e.trailing_metadata()).get("grpc-status-details-bin", b"")
        for word in (reason, field):
            if word and word.encode() not in details:
                raise AssertionError(f"wanted {word} in the details of: {e.details()}")
        return e
    raise AssertionError(f"wanted {code}, but the call succeeded")


def has_reason(error, reason):
    """The ErrorInfo of an error that was caught elsewhere."""
    details = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
    if b"\n" + bytes([len(reason)]) + reason.encode() not in details:
        raise AssertionError(f"wanted reason {reason} in {details!r} of: {error.code()} {error.details()}")
    return error


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

    @classmethod
    def for_agents(cls, folder):
        """An authority that may sign nothing but leaves, of another name than the usual one."""
        ca = cls(folder, "test agents")
        ca._run("req", "-x509", "-new", "-key", ca.key, "-days", "30", "-subj", "/CN=test agents", "-out", ca.cert, "-addext",
                "basicConstraints=critical,CA:TRUE,pathlen:0", "-config", "/dev/null", "-addext", "keyUsage=critical,keyCertSign")
        return ca

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
            os.chmod(f"{self.dir}/tls", 0o700)
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

    def serving(self):
        """What grpc.health.v1 says; None without an answer."""
        import grpc
        try:
            with self.channel("reader:health") as ch:
                answer = ch.unary_unary("/grpc.health.v1.Health/Check", request_serializer=lambda b: b,
                                        response_deserializer=lambda b: b)(b"", timeout=10)
        except grpc.RpcError:
            return None
        return answer == b"\x08\x01"

    def log_text(self):
        with open(f"{self.dir}/advisord.log", errors="replace") as f:
            return f.read()

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

    def told(self):
        """The mode and epoch of the newest message that carried them."""
        mode, epoch = None, None
        for m in list(self.got):
            body = m.welcome if m.HasField("welcome") else m.heartbeat_ack if m.HasField("heartbeat_ack") else None
            if body is not None:
                mode = body.cluster_mode
                epoch = body.grant.epoch if body.HasField("grant") else epoch
        return mode, epoch

    def heartbeat(self, **kw):
        """Says what a well-behaved agent would: the mode it obeys, and its epoch when it holds the lease."""
        self.beat += 1
        mode, epoch = self.told()
        kw.setdefault("cluster_mode", mode)
        kw.setdefault("epoch", epoch)
        self.send(heartbeat=self.api.Heartbeat(id=self.beat, **kw))
        return self.beat

    def pull(self, n):
        self.send(pull=self.api.Pull(id=n))

    def orders(self, first_pull=1, timeout=15):
        """Pulls until a batch has orders in it; the first one of a session may be empty."""
        for n in range(first_pull, first_pull + 100):
            self.pull(n)
            batch = self.wait("advice_batch", lambda b: b.pull_id == n, timeout)
            if batch.advice:
                return list(batch.advice)
        raise AssertionError("a hundred empty batches")

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


class FakeCluster:
    """A registered cluster with a FakeAgent and the jobs that a test tells of."""

    LINE = b"n2: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"

    def __init__(self, api, d, name, mode=None, nodes=(), **hello):
        self.api, self.d, self.name = api, d, name
        fleet = api.FleetServiceStub(d.channel("admin:root"))
        fleet.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)
        if mode:
            fleet.SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{name}", mode=mode), timeout=10)
        self.hash, self.n, self.last, self.first = 0, 0, {}, {}
        self.reader = d.channel("reader:test")
        self.agent = FakeAgent(api, d.channel(f"agent:{name}"), name, **hello)
        self.grant = self.agent.wait("welcome").grant
        self.pulls = 0
        known = [api.NodeObservation(name=x, state_raw="IDLE", available=True, hash=1000 + i) for i, x in enumerate(nodes)]
        for x in known:
            self.hash ^= x.hash
        self.update(full_begin=True, full_end=True, nodes=known)

    def update(self, **kw):
        self.agent.durable(self.agent.numbered(state_update=self.api.StateUpdate(digest=self.hash, **kw)))

    def job(self, job_id, state, **kw):
        """Tells of a job in that state."""
        o = dict(job_id=job_id, state=getattr(self.api, "JOB_STATE_" + state), state_raw=state, batch=True, requeueable=True,
                 submit_unix=1000, user="alice", partition="main", nodes="n[1-2]", detail_known=True, name=b"train",
                 comment=b'{"advisor":{}}')
        o.update(kw)
        # an agent that has watched the id since its attempt 0
        if not o.get("restart_count"):
            self.first[job_id] = o["submit_unix"]
        o.setdefault("incarnation_unix", self.first.get(job_id, 0))
        self.n += 1
        o["hash"] = self.n * 65537
        self.hash ^= o["hash"] ^ self.last.get(job_id, 0)
        self.last[job_id] = o["hash"]
        self.update(jobs=[self.api.JobObservation(**o)])

    def gone(self, job_id):
        self.hash ^= self.last.pop(job_id)
        self.update(gone_job_ids=[job_id])

    def log(self, job_id, text, restarts=0, offset=0):
        chunk = self.api.LogChunk(attempt=self.ref(job_id, restarts), stream="stdout", data=text, offset=offset)
        sid = self.agent.wait("welcome").session_id
        self.agent.stub.PushLogs(iter([self.api.PushLogsRequest(session_id=sid, chunks=[chunk])]), timeout=10)

    def fails(self, job_id, line=LINE, **kw):
        """The job runs and fails for a reason that its log tells; returns the advice."""
        self.job(job_id, "RUNNING", **kw)
        self.log(job_id, line)
        self.agent.heartbeat()
        wait_for("the suspicion", lambda: self.timeline(job_id).anomalies)
        self.job(job_id, "FAILED", exit_code=1, end_unix=int(time.time()), **kw)
        return wait_for("advice", lambda: self.advice(job_id))

    def ref(self, job_id, n=0):
        return self.api.AttemptRef(cluster=self.name, job_id=job_id, restart_count=n)

    def timeline(self, job_id):
        return self.api.JobServiceStub(self.reader).GetJobTimeline(
            self.api.GetJobTimelineRequest(ref=self.ref(job_id)), timeout=10)

    def advice(self, job_id, n=0):
        import grpc
        try:
            return self.api.AdviceServiceStub(self.reader).GetAdvice(
                self.api.GetAdviceRequest(ref=self.ref(job_id, n)), timeout=10).advice
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.NOT_FOUND, e
            return None

    def order(self):
        """The first order of the next batch that has one."""
        self.pulls += 100
        return self.agent.orders(self.pulls)[0]

    def view(self):
        return self.api.FleetServiceStub(self.reader).GetCluster(
            self.api.GetClusterRequest(name=f"clusters/{self.name}"), timeout=10).cluster

    def audit(self, verb="", **kw):
        return list(self.api.AuditServiceStub(self.reader).ListAuditEvents(
            self.api.ListAuditEventsRequest(parent=f"clusters/{self.name}", verb=verb, **kw), timeout=10).events)

    def close(self):
        self.agent.close()


# What a training program prints, by scene. Each attempt appends to the same file.
TRAIN = r"""#!/bin/bash
#SBATCH --open-mode=append
SCENE=${SCENE:-fault}; STEPS=${STEPS:-12}; STEP_S=${STEP_S:-0.2}
N=${SLURM_RESTART_COUNT:-0}; CK=$HOME/ck-$SLURM_JOB_ID; i=0
step() { i=$((i + 1)); echo " iteration $i/$STEPS | consumed samples: $((i * 8)) | elapsed time per iteration (ms): 200.0 | lm loss: 2.5"; sleep "$STEP_S"; }
if [ -s "$CK" ]; then i=$(cat "$CK"); echo " successfully loaded checkpoint from $CK at iteration $i"; fi
case $SCENE-$N in
importerror-*)
    echo "Traceback (most recent call last):"; echo '  File "train.py", line 3, in <module>'; echo "    import flash_attn"
    echo "ModuleNotFoundError: No module named 'flash_attn'"; exit 1 ;;
faults-*)
    step; step; sleep $((${LINGER:-1} * (1 + 3 * N))); echo "$SLURMD_NODENAME: RuntimeError: CUDA error: uncorrectable ECC error encountered"
    sleep 0.5; exit 1 ;;
fault-0)
    step; step; step; echo $i > "$CK"; echo "successfully saved checkpoint at iteration $i to $CK"; step
    echo "$SLURMD_NODENAME: RuntimeError: CUDA error: uncorrectable ECC error encountered"; sleep "${LINGER:-0.3}"
    while [ -n "$UNTIL" ] && [ ! -e "$UNTIL" ]; do sleep 0.1; done
    exit 1 ;;
weak-0)
    step; step; step; echo "$SLURMD_NODENAME: RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx"
    sleep "${LINGER:-0.3}"; exit 1 ;;
caught-0)
    step; step; echo "$SLURMD_NODENAME: RuntimeError: CUDA error: uncorrectable ECC error encountered"; echo "caught, going on" ;;
esac
while [ "$i" -lt "$STEPS" ]; do step; done
echo "[after training is done] datetime: now"
"""


class Agent:
    """advisor-agent as the lab's Operator, in a state folder of its own."""

    def __init__(self, stack, name="agent", cert="agent:lab", **config):
        self.stack = stack
        self.name = name
        lab = stack.lab
        self.home = f"{lab.dir}/home/laboper/{name}"
        lab.exec("mkdir", "-p", self.home, user="laboper")
        crt, key = stack.ca.issue(f"{name}-{cert.replace(':', '-')}", f"URI:advisor:{cert}")
        tls = f"{self.home}/tls"
        os.makedirs(tls, exist_ok=True)
        for src, dst in ((crt, "agent.crt"), (key, "agent.key"), (stack.ca.cert, "ca.crt")):
            shutil.copy(src, f"{tls}/{dst}")
        subprocess.run(["chown", "-R", "laboper:", tls], check=True)
        self.config = {
            "cluster": stack.cluster, "control_plane.target": f"127.0.0.1:{stack.cp.port}",
            "control_plane.server_name": "localhost", "control_plane.backoff_min": "100ms",
            "control_plane.backoff_max": "1s", "tls.ca": f"{tls}/ca.crt", "tls.cert": f"{tls}/agent.crt",
            "tls.key": f"{tls}/agent.key", "state.dir": f"{self.home}/state", "state.allow_volatile": "true",
            "poll.interval": "2s", "poll.nodes_interval": "5s", "scheduler.landing_bound": "4s",
            "scheduler.command_deadline": "5s", "tail.helper": stack.tail, "log.level": "debug",
        }
        if lab.suite:
            self.config["scheduler.bin_dir"] = f"{lab.dir}/bin"
        self.config.update(config)
        lab.exec("mkdir", "-p", f"{self.home}/state", user="laboper")
        self.env = {}  # more of it, for each start
        self.proc = None
        stack.agents.append(self)

    def start(self, failpoint=None, guard=None):
        path = f"{self.home}/agent.yaml"
        with open(path, "w") as f:
            for k, v in self.config.items():
                f.write(f"{k}: {v}\n")
        os.chmod(path, 0o644)
        env = {k: v for k, v in os.environ.items() if not k.startswith("ADVISOR_")}
        env.update(SLURM_CONF=f"{self.stack.lab.dir}/etc/slurm.conf", HOME=self.home, USER="laboper", **self.env)
        if failpoint:
            env["ADVISOR_FAILPOINT"] = failpoint
        if guard:
            env["ADVISOR_TEST_DISABLE_GUARD"] = guard
        self.mark = os.path.getsize(self.log_path) if os.path.exists(self.log_path) else 0
        log = open(self.log_path, "ab")
        import grp
        import pwd
        pw = pwd.getpwnam("laboper")
        groups = [g.gr_gid for g in grp.getgrall() if "laboper" in g.gr_mem]
        self.proc = subprocess.Popen([self.stack.agent_bin, "--config", path], cwd=self.home, env=env, stdout=log,
                                     stderr=log, stdin=subprocess.DEVNULL, user=pw.pw_uid, group=pw.pw_gid,
                                     extra_groups=groups)
        return self

    @property
    def log_path(self):
        return f"{self.stack.lab.dir}/log/{self.name}.log"

    def log(self, since_start=True):
        with open(self.log_path, errors="replace") as f:
            if since_start:
                f.seek(self.mark)
            return f.read()

    def journal_id(self):
        with open(f"{self.home}/state/journal") as f:
            return json.loads(f.readline())["id"]

    def wait_log(self, text, timeout=30):
        return wait_for(f"{text!r} in the agent's log: ... {self.log()[-600:]}", lambda: text in self.log(), timeout)

    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def signal(self, sig):
        self.proc.send_signal(sig)

    def kill(self):
        if self.alive():
            self.proc.send_signal(signal.SIGKILL)
        if self.proc:
            self.proc.wait()

    def wait_dead(self, timeout=60):
        wait_for("the agent to die at its failpoint: " + self.log()[-800:], lambda: self.proc.poll() is not None, timeout)

    def stop(self):
        if not self.alive():
            return
        self.proc.send_signal(signal.SIGTERM)
        try:
            rc = self.proc.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the agent did not stop: " + self.log()[-600:])
        if rc != 0:
            raise AssertionError(f"the agent ended with {rc}: {self.log()[-3000:]}")


class Stack:
    """A real Slurm, a control plane over mTLS, and an agent that runs as the Operator."""

    def __init__(self, nodes=4, cpus=2, sets=(), lines=(), api=None, mode=None, agent=None, **cp):
        from advlab import Lab
        self.cluster = "lab"
        self.api = api or stubs()
        self.lab = Lab(nodes=nodes, cpus=cpus, sets=sets, lines=lines)
        config = {"agent.lease": "20s", "detect.fallback_delay": "2s", "decide.shared_cause_window": "2s"}
        config.update(cp)
        self.cp = Advisord(**config)
        self.ca = self.cp.ca
        bin_dir = f"{self.lab.dir}/bin"
        os.makedirs(bin_dir, exist_ok=True)
        os.chmod(bin_dir, 0o755)
        self.agent_bin = shutil.copy(os.environ["ADVISOR_AGENT"], f"{bin_dir}/advisor-agent")
        os.chmod(self.agent_bin, 0o755)
        self.tail = shutil.copy(os.environ["ADVISOR_TAIL"], f"{bin_dir}/advisor-tail")
        subprocess.run(["chown", "root:laboper", self.tail], check=True)
        os.chmod(self.tail, 0o4750)
        self.agents = []
        self.admin().CreateCluster(self.api.CreateClusterRequest(cluster_id=self.cluster), timeout=10)
        if mode:
            self.mode(mode)
        self.agent = Agent(self, **(agent or {}))

    def admin(self):
        return self.api.FleetServiceStub(self.cp.channel("admin:root"))

    def mode(self, mode):
        self.admin().SetClusterMode(self.api.SetClusterModeRequest(name=f"clusters/{self.cluster}", mode=mode), timeout=10)

    def cluster_view(self):
        return self.admin().GetCluster(self.api.GetClusterRequest(name=f"clusters/{self.cluster}"), timeout=10).cluster

    def wait_connected(self, timeout=60):
        def probe():
            c = self.cluster_view()
            return c.agent_state == self.api.AGENT_STATE_CONNECTED and c.mode_effective and c
        try:
            return wait_for("the cluster to be connected", probe, timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}\ncluster: {self.cluster_view()}\nagent: {self.agent.log()[-3000:]}\n"
                                 f"advisord: {self.cp.tail_log(30)}")

    def submit(self, scene, *args, comment='{"advisor":{"max_restarts":3}}', user="labuser1", **env):
        """Submits TRAIN as the user; returns the job id."""
        home = f"{self.lab.dir}/home/{user}"
        script = f"{home}/train.sh"
        with open(script, "w") as f:
            f.write(TRAIN)
        os.chmod(script, 0o755)
        export = ",".join(["ALL", f"SCENE={scene}"] + [f"{k}={v}" for k, v in env.items()])
        out = [] if any(a.startswith("--output") for a in args) else [f"--output={home}/out-%j.log"]
        return self.lab.exec("sbatch", "--parsable", "--requeue", f"--comment={comment}", f"--export={export}",
                             "--job-name=train", *out, *args, script, user=user)

    def timeline(self, job, restart_count=0):
        return timeline(self.api, self.cp, self.cluster, job, restart_count)

    def story(self, job):
        t = self.timeline(job)
        return "\n".join(f"{e.time.seconds % 1000}.{e.time.nanos // 1000000:03d} {e.attempt_index} {e.kind}: {e.text}"
                         for e in t.entries) if t else "(not known)"

    def advice(self, job, attempt=0):
        t = self.timeline(job)
        return next((a for a in t.advice if a.attempt.restart_count == attempt), None) if t else None

    def wait_advice(self, job, attempt=0, match=lambda a: True, timeout=30, what="advice"):
        def probe():
            a = self.advice(job, attempt)
            return a if a is not None and match(a) else None
        try:
            return wait_for(f"{what} on job {job}", probe, timeout)
        except AssertionError as e:
            raise AssertionError(f"{e}\nstory:\n{self.story(job)}\nagent: {self.agent.log()[-3000:]}\nslurm: {self.lab.job(job)}")

    def requeues(self, job):
        """How often slurmctld requeued the job, by its own log."""
        with open(f"{self.lab.dir}/log/slurmctld.log", errors="replace") as f:
            return sum(1 for line in f if f"JobId={job}" in line and "requeu" in line.lower() and "REQUEST" not in line)

    def writes(self, job=None):
        """Lines of slurmctld's log that show somebody changing a job."""
        words = ("requeu", "update_job", "_slurm_rpc_update", "_slurm_rpc_requeue", "_slurm_rpc_kill_job", "sched: update",
                 "_update_job", "release", "hold")
        with open(f"{self.lab.dir}/log/slurmctld.log", errors="replace") as f:
            return [line.rstrip() for line in f if any(w in line.lower() for w in words) and
                    (job is None or f"JobId={job}" in line)]

    def stop(self):
        for a in self.agents:
            a.stop()
        self.cp.stop()
        self.lab.purge()


def timeline(api, cp, cluster, job, restart_count=0):
    """What advisord @cp tells of the job; None while it does not know it, or is not there."""
    import grpc
    ref = api.AttemptRef(cluster=cluster, job_id=job, restart_count=restart_count)
    try:
        return api.JobServiceStub(cp.channel("reader:test")).GetJobTimeline(api.GetJobTimelineRequest(ref=ref), timeout=10)
    except grpc.RpcError as e:
        if e.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE):
            return None
        raise


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
        except Skip as e:
            print(f"skip {f.__name__} {e}", flush=True)
        except Exception as e:  # one broken case must not hide the others
            failed += 1
            print(f"not ok {f.__name__} {str(e).splitlines()[0] if str(e) else type(e).__name__}", flush=True)
            traceback.print_exc()
        print(f"# {f.__name__}: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
    sys.exit(1 if failed else 0)
