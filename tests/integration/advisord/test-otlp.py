#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Logs over OTLP: routed to attempts, scanned by the same rules, refused by the piece. With ADVISOR_OTEL_PYTHON set to an
interpreter that has opentelemetry-exporter-otlp-proto-grpc, the real exporter sends, too."""
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

import grpc  # noqa: E402

S = grpc.StatusCode
refused = advstack.refused
api = advstack.stubs()
CASES = []
out = tempfile.mkdtemp(prefix="otlpstubs-")
proto = os.path.join(advstack.ROOT, "proto")
names = ["common/v1/common", "resource/v1/resource", "logs/v1/logs", "collector/logs/v1/logs_service"]
subprocess.run(["protoc", "-I", proto, f"--python_out={out}", *[f"opentelemetry/proto/{n}.proto" for n in names]], check=True)
sys.path.insert(0, out)
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as C  # noqa: E402
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue  # noqa: E402
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs  # noqa: E402
from opentelemetry.proto.resource.v1.resource_pb2 import Resource  # noqa: E402

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"


def case(f):
    CASES.append(f)
    return f


def value(v):
    return AnyValue(int_value=v) if isinstance(v, int) else AnyValue(bytes_value=v) if isinstance(v, bytes) else \
        AnyValue(string_value=v)


def attributes(**kw):
    return [KeyValue(key=k.replace("_", "."), value=value(v)) for k, v in kw.items()]


def record(body, at=None, **kw):
    r = LogRecord(attributes=attributes(**kw), time_unix_nano=int((at or time.time()) * 1e9))
    if body is not None:
        r.body.CopyFrom(value(body))
    return r


def logs(records, **kw):
    return ResourceLogs(resource=Resource(attributes=attributes(**kw)), scope_logs=[ScopeLogs(log_records=records)])


def export(*resources, who="detector:otel", compression=None, raw=None, at=None):
    call = (at or d).channel(who).unary_unary(EXPORT, lambda m: m, C.ExportLogsServiceResponse.FromString)
    q = raw if raw is not None else C.ExportLogsServiceRequest(resource_logs=resources).SerializeToString()
    return call(q, timeout=30, compression=compression).partial_success


def of(c, job="1", restarts=0, **kw):
    return {"advisor_cluster": c.name, "slurm_job_id": job, "slurm_restart_count": restarts, **kw}


bindings = os.path.join(tempfile.mkdtemp(prefix="advotlp-"), "auth.yaml")
with open(bindings, "w") as f:
    f.write("bindings:\n  - {principals: ['detector:narrow'], role: detector, accounts: ['ml-*']}\n")
d = advstack.Advisord(**{"detect.log_settle": "50ms", "agent.silence_timeout": "10s", "decide.advice_valid": "600s", "auth.bindings": bindings})
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


@case
def a_fault_in_a_record_becomes_the_attempts_anomaly():
    c = advstack.FakeCluster(api, d, "one", api.MODE_ACT)
    c.job("1", "RUNNING")
    p = export(logs([record("step 1"), record(ECC, log_iostream="stderr")], **of(c, host_name="n2.example.org")))
    assert not p.rejected_log_records and not p.error_message, p
    an = wait_for("the anomaly", lambda: list(c.timeline("1").anomalies))  # stored before it was answered
    assert len(an) == 1 and an[0].fault_class == "gpu_hardware" and list(an[0].nodes) == ["n2"], an
    assert an[0].stream == "otlp-stderr" and an[0].status == api.ANOMALY_STATUS_SUSPICION, an
    c.job("1", "FAILED", exit_code=1, end_unix=int(time.time()))
    ad = wait_for("advice", lambda: c.advice("1"))
    assert ad.desired_state == api.DESIRED_STATE_RESTARTED and list(ad.exclude_nodes) == ["n2"], ad
    # what comes after the judgement is told and changes nothing
    p = export(logs([record("ModuleNotFoundError: No module named 'flash_attn'")], **of(c)))
    assert not p.rejected_log_records, p
    late = wait_for("the late anomaly", lambda: [a for a in c.timeline("1").anomalies if a.uid != an[0].uid])
    assert "no advice changed" in late[0].status_reason, late
    export(logs([record(ECC)], **of(c)))
    assert c.advice("1").generation == ad.generation and c.advice("1").summary == ad.summary
    c.close()


@case
def stacktraces_bytes_and_array_tasks_are_read():
    c = advstack.FakeCluster(api, d, "two")
    for job in ("46_5", "7", "8"):
        c.job(job, "RUNNING")
    p = export(
        logs([record("failed", exception_stacktrace=f"Traceback (most recent call last):\n  File \"t.py\", line 1\n{ECC}\n")],
             advisor_cluster="two", slurm_job_id=991, slurm_array_job_id=46, slurm_array_task_id="5", slurm_restart_count="0"),
        logs([record((ECC + "\n").encode() + b"\xff\x00")], **of(c, "7")),
        logs([record(f"one\n{ECC}\nthree")], **of(c, "8")))
    assert not p.rejected_log_records, p
    for job in ("46_5", "7", "8"):
        wait_for(f"the anomaly of {job}", lambda j=job: [a for a in c.timeline(j).anomalies if a.fault_class == "gpu_hardware"])
    c.close()


@case
def progress_over_otlp_is_shown_and_its_silence_means_nothing():
    c = advstack.FakeCluster(api, d, "prog")
    c.job("1", "RUNNING")
    lines = [record(f" iteration {i}/100 | consumed samples: {i * 8} | elapsed time per iteration (ms): 200.0 | lm loss: 2.5")
             for i in range(1, 8)]
    assert not export(logs(lines, **of(c))).rejected_log_records
    wait_for("the steps", lambda: c.timeline("1").attempts[0].last_step == 7)
    assert c.timeline("1").attempts[0].telemetry == api.TELEMETRY_STATE_UNSPECIFIED  # says nothing of the agent's reading
    c.close()


@case
def what_cannot_be_taken_is_counted_and_said():
    c = advstack.FakeCluster(api, d, "parts", api.MODE_OBSERVE)
    c.job("1", "RUNNING", start_unix=int(time.time()) - 60, restart_count=1)
    good = of(c, restarts=1)
    for words, resource, n in (
            ("without advisor.cluster", logs([record("x")] * 2, slurm_job_id="1", slurm_restart_count=0), 2),
            ("without slurm.job.id", logs([record("x")], advisor_cluster="parts", slurm_restart_count=0), 1),
            ("without slurm.restart.count", logs([record("x")], advisor_cluster="parts", slurm_job_id="1"), 1),
            ("with a malformed attribute", logs([record("x")], **{**good, "slurm_restart_count": "one"}), 1),
            ("with a malformed attribute", logs([record("x")], **{**good, "slurm_restart_count": -1}), 1),
            ("with a malformed attribute", logs([record("x")], **{**good, "slurm_job_id": b"1"}), 1),
            ("of an unknown cluster", logs([record("x")], **{**good, "advisor_cluster": "nowhere"}), 1),
            ("of an unknown cluster", logs([record("x")], **{**good, "slurm_job_id": "1;rm"}), 1),
            ("of an unknown cluster", logs([record("x")], **{**good, "slurm_restart_count": 0}), 1),  # nobody saw that one
            ("older than their attempt", logs([record("x", at=time.time() - 3600)], **good), 1),
            ("without text", logs([record(None)], **good), 1),
            ("without text", logs([record(7)], **good), 1),
            ("longer than 65536 bytes", logs([record("x" * 65537)], **good), 1),
            ("too many in one request", logs([record("")] * 10003, **good), 3)):
        p = export(resource, logs([record("fine")], **good)) if "too many" not in words else export(resource)
        assert p.rejected_log_records == n and words in p.error_message and p.error_message.startswith(f"{n} "), (words, p)
    p = export(*[logs([record("x")])] * 1001)
    assert p.rejected_log_records == 1001 and "1 too many" in p.error_message, p
    assert not export().rejected_log_records  # nothing is no fault
    c.close()


@case
def logs_may_be_faster_than_the_record_of_their_attempt():
    c = advstack.FakeCluster(api, d, "early")
    assert not export(logs([record(ECC)], **of(c, "9"))).rejected_log_records
    c.job("9", "RUNNING")
    wait_for("the anomaly", lambda: c.timeline("9").anomalies)
    # whoever may not speak of all jobs may not speak of one that nobody knows
    p = export(logs([record(ECC)], **of(c, "10")), who="detector:narrow")
    assert p.rejected_log_records == 1 and "unknown" in p.error_message, p
    c.job("11", "RUNNING", account="ml-a")
    c.job("12", "RUNNING", account="physics")
    p = export(logs([record(ECC)], **of(c, "11")), logs([record(ECC)], **of(c, "12")), who="detector:narrow")
    assert p.rejected_log_records == 1, p
    wait_for("the anomaly", lambda: c.timeline("11").anomalies)
    assert not c.timeline("12").anomalies
    c.close()


@case
def only_detectors():
    for who in ("reader:bob", "agent:one", "user:al"):
        refused(lambda: export(logs([record("x")]), who=who), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    assert export(logs([record("x")]), who="operator:al").rejected_log_records == 1


@case
def gzip_is_taken_and_a_bomb_is_not():
    c = advstack.FakeCluster(api, d, "zip")
    c.job("1", "RUNNING")
    assert not export(logs([record(ECC)], **of(c)), compression=grpc.Compression.Gzip).rejected_log_records
    wait_for("the anomaly", lambda: c.timeline("1").anomalies)
    before = int(open(f"/proc/{d.proc.pid}/statm").read().split()[1])
    for _ in range(20):
        refused(lambda: export(raw=b"\x0a" + b"\0" * (64 << 20), compression=grpc.Compression.Gzip), S.RESOURCE_EXHAUSTED,
                "MESSAGE_TOO_LARGE")
    grown = (int(open(f"/proc/{d.proc.pid}/statm").read().split()[1]) - before) * 4096
    assert grown < 200 << 20, f"{grown >> 20} MB more"  # of 1280 that the bombs would be; sanitizers keep what was freed
    refused(lambda: export(logs([record("x" * 100)], **of(c)), compression=grpc.Compression.Deflate), S.UNIMPLEMENTED,
            "COMPRESSION_NOT_SUPPORTED")
    # other methods take none
    stub = d.channel("reader:bob").unary_unary("/advisor.v1.JobService/ListJobs", lambda m: m, lambda b: b)
    refused(lambda: stub(api.ListJobsRequest(parent="clusters/" + "x" * 2000).SerializeToString(), timeout=10,
                         compression=grpc.Compression.Gzip), S.UNIMPLEMENTED, "COMPRESSION_NOT_SUPPORTED")
    c.close()


@case
def a_flood_is_held_back_and_heartbeats_go_on():
    c = advstack.FakeCluster(api, d, "flood")
    c.job("1", "RUNNING")
    line = "iteration nothing at all but a line of a log that matches no rule, and is as long as such lines are " * 6
    body = C.ExportLogsServiceRequest(resource_logs=[logs([record(line)] * 5000, **of(c))]).SerializeToString()
    stop, sent, told = threading.Event(), [0], []

    def send(call):
        while not stop.is_set():
            try:
                call(body, timeout=60)
                sent[0] += 1
            except grpc.RpcError as e:
                told.append(e)
                if e.code() != S.UNAVAILABLE:
                    return
                stop.wait(0.05)

    senders = [threading.Thread(target=send, args=(d.channel("detector:otel").unary_unary(
        EXPORT, lambda m: m, C.ExportLogsServiceResponse.FromString),)) for _ in range(24)]  # more than are read at one time
    for t in senders:
        t.start()
    try:
        end = time.monotonic() + 8
        while time.monotonic() < end:
            beat = c.agent.heartbeat()
            c.agent.wait("heartbeat_ack", lambda a, b=beat: a.id >= b, 10)
            time.sleep(0.3)  # the interval of its heartbeats
    finally:
        stop.set()
        for t in senders:
            t.join(70)
    assert sent[0] > 0 and all(e.code() == S.UNAVAILABLE for e in told), (sent, told[:1])
    for e in told[:1]:
        advstack.has_reason(e, "NOT_NOW")
    assert c.agent.error is None
    c.close()


@case
def the_real_exporter_is_understood():
    python = os.environ.get("ADVISOR_OTEL_PYTHON")
    if not python:
        print("# ADVISOR_OTEL_PYTHON is not set: the real exporter was not run")
        return
    c = advstack.FakeCluster(api, d, "real")
    c.job("1", "RUNNING")
    cert, key = d.ca.issue("otel-real", "URI:advisor:detector:real")
    for how in ("", "gzip"):
        env = {**os.environ, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"https://localhost:{d.port}",
               "OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE": d.ca.cert, "OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE": cert,
               "OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY": key, **({"OTEL_EXPORTER_OTLP_LOGS_COMPRESSION": how} if how else {}),
               "OTEL_RESOURCE_ATTRIBUTES": "advisor.cluster=real,slurm.job.id=1,slurm.restart.count=0,host.name=n1"}
        program = """
import logging, sys
from opentelemetry._logs import set_logger_provider
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
provider = LoggerProvider()
provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
log = logging.getLogger("train")
log.addHandler(LoggingHandler(logger_provider=provider))
log.setLevel(logging.INFO)
log.info("starting %s", sys.argv[1])
try:
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
except RuntimeError:
    log.exception("training failed")
provider.shutdown()
"""
        r = subprocess.run([python, "-c", program, how], env=env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 0 and "rror" not in r.stderr, r.stderr[-2000:]
        an = wait_for("the anomaly", lambda: [a for a in c.timeline("1").anomalies if a.fault_class == "gpu_hardware"])
        assert list(an[0].nodes) == ["n1"], an
        print(f"# compression {how or 'none'}: {an[0].rule} on {list(an[0].nodes)}")
    c.close()


@case
def an_answer_means_that_all_that_was_found_is_stored():
    """The commit of the second finding is held; whoever was told success by then must find both after a crash. (Without
    failpoints nothing is held, and the same has to be so.)"""
    c = advstack.Advisord()
    cl = advstack.FakeCluster(api, c, "kept")
    cl.job("1", "RUNNING")
    cl.close()
    c.stop()
    c.start(env={"ADVISOR_FAILPOINT": f"turn.record_anomaly=arm:sqlite.before_commit;sqlite.before_commit=pause:{c.dir}/never@2"})
    with c.channel("detector:otel") as ch:
        q = C.ExportLogsServiceRequest(resource_logs=[logs([record(ECC), record("ModuleNotFoundError: No module named 'flash_attn'")],
                                                           **of(cl))])
        call = ch.unary_unary(EXPORT, lambda m: m.SerializeToString(), C.ExportLogsServiceResponse.FromString).future(q, timeout=30)
        wait_for("the second commit", lambda: call.done() or "failpoint sqlite.before_commit hit" in c.log_text(), 30)
        try:
            call.result(timeout=2)
            answered = True
        except (grpc.FutureTimeoutError, grpc.RpcError):
            answered = False
        c.kill()
    c.start()
    cl.reader = c.channel("reader:test")
    found = {a.fault_class for a in cl.timeline("1").anomalies}
    assert not answered or len(found) == 2, found
    assert "gpu_hardware" in found, found  # the first was stored
    c.stop()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
