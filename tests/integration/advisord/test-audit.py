#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The audit log over the API: events of outsiders, filters, verification, checkpoints; and what is erased by age or request."""
import atexit
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

import grpc  # noqa: E402
from google.protobuf.timestamp_pb2 import Timestamp  # noqa: E402

S = grpc.StatusCode
refused = advstack.refused
api = advstack.stubs()
CASES = []


def case(f):
    CASES.append(f)
    return f


RULES = tempfile.mkdtemp(prefix="advrules-")  # restarts cost seconds with all of them
atexit.register(shutil.rmtree, RULES, ignore_errors=True)
shutil.copy(os.path.join(advstack.ROOT, "rules", "gpu.yaml"), RULES)


def Advisord(**kw):
    return advstack.Advisord(**{"detect.log_settle": "50ms", "rules.dir": RULES, **kw})


d = Advisord()


def fleet(who="admin:root", at=None):
    return api.FleetServiceStub((at or d).channel(who))


def audit(who="reader:bob", at=None):
    return api.AuditServiceStub((at or d).channel(who))


def event(event_id, **kw):
    return api.NewAuditEvent(**{"event_id": event_id, "verb": "deploy.begin", "subject": "rollout/7", "detail": "v1 to v2", **kw})


def append(stub, cluster, *events):
    return list(stub.AppendAuditEvents(api.AppendAuditEventsRequest(parent=f"clusters/{cluster}", events=events), timeout=10).results)


def listed(stub, parent="clusters/-", **kw):
    got, token = [], ""
    while True:
        r = stub.ListAuditEvents(api.ListAuditEventsRequest(**{"parent": parent, "page_token": token, "page_size": 1000, **kw}), timeout=10)
        got += r.events
        token = r.next_page_token
        if not token:
            return got


def micros(t):
    return t.seconds * 1000000 + t.nanos // 1000


def recompute(e):
    """hash and detail_sha256 of an event, from what resources.proto says and nothing else."""
    detail = hashlib.sha256((e.detail_salt + e.detail).encode()).hexdigest()
    text = f"{e.seq} {micros(e.observe_time)} {micros(e.record_time)}"
    for f in (e.cluster, e.prev_hash, e.principal, e.verb, e.subject, e.event_id, e.detail_sha256):
        text += f" {len(f.encode())}:{f}"
    return hashlib.sha256(text.encode()).hexdigest(), detail


STORED, DUPLICATE, REFUSED = (getattr(api, "APPEND_AUDIT_STATUS_" + w) for w in ("STORED", "DUPLICATE", "REFUSED"))


@case
def events_of_outsiders():
    fleet().CreateCluster(api.CreateClusterRequest(cluster_id="out"), timeout=10)
    a = audit("detector:ci")
    refused(lambda: append(audit(), "out", event("1")), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: append(a, "nowhere", event("1")), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    refused(lambda: append(a, "_fleet", event("1")), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    refused(lambda: append(a, "-", event("1")), S.NOT_FOUND)
    refused(lambda: append(a, "out"), S.INVALID_ARGUMENT, "COUNT_OUT_OF_RANGE", "events")
    refused(lambda: append(a, "out", *[event(str(i)) for i in range(201)]), S.INVALID_ARGUMENT, "COUNT_OUT_OF_RANGE")
    when = Timestamp(seconds=1700000000, nanos=5000)
    one, two = append(a, "out", event("run-1", observe_time=when), event("run-2"))
    assert one.status == STORED and two.status == STORED and two.seq == one.seq + 1 and one.event_id == "run-1", (one, two)
    # the same again: nothing new; one of them new, one changed, one twice, some that are none
    got = append(a, "out", event("run-1", observe_time=when), event("run-1", observe_time=when, detail="v1 to v3"), event("run-3"),
                 event("run-3"), event("run-3", subject="another"), event(""), event("x y"), event("a", verb="Deploy"), event("a", verb="ext.deploy"),
                 event("b", subject=""), event("c", detail="x" * 501), event("d", subject="tab\there"),
                 event("e", observe_time=Timestamp(seconds=-5)))
    assert [(r.status, r.reason) for r in got] == [
        (DUPLICATE, ""), (REFUSED, "EVENT_ID_REUSED"), (STORED, ""), (DUPLICATE, ""), (REFUSED, "EVENT_ID_REUSED"),
        (REFUSED, "WORD_MALFORMED"), (REFUSED, "WORD_MALFORMED"), (REFUSED, "WORD_MALFORMED"), (REFUSED, "WORD_MALFORMED"),
        (REFUSED, "TEXT_MISSING"),
        (REFUSED, "TEXT_TOO_LONG"), (REFUSED, "TEXT_MALFORMED"), (REFUSED, "TIME_MALFORMED")], got
    assert got[0].seq == one.seq and got[3].seq == got[2].seq == two.seq + 1 and all(r.message for r in got if r.status == REFUSED), got
    # somebody else's id is another one
    assert append(audit("operator:alice"), "out", event("run-1"))[0].status == STORED
    d.kill()  # what was acknowledged is there, and is known again
    d.start()
    a = audit("detector:ci")
    assert [r.status for r in append(a, "out", event("run-2"), event("run-3"))] == [DUPLICATE, DUPLICATE]
    events = listed(audit(), "clusters/out", principal="detector:ci")
    assert [(e.event_id, e.verb, e.subject, e.principal) for e in events] == [
        (f"run-{i}", "ext.deploy.begin", "rollout/7", "detector:ci") for i in (1, 2, 3)], events
    assert micros(events[0].observe_time) == micros(when)


@case
def many_at_once_store_each_event_once():
    fleet().CreateCluster(api.CreateClusterRequest(cluster_id="race"), timeout=10)
    results = []

    def sender(a):
        for i in range(0, 60, 20):
            results.extend(append(a, "race", *[event(f"e{i + k}") for k in range(20)]))

    def noise(f):
        for i in range(60):
            f.SetClusterMode(api.SetClusterModeRequest(name="clusters/race", mode=2 + i % 2), timeout=20)
    watch = api.WatchServiceStub(d.channel("reader:bob")).Watch(
        api.WatchRequest(parent="clusters/race", kinds=[api.RESOURCE_KIND_AUDIT]), timeout=60)
    assert next(watch).type == api.WATCH_EVENT_TYPE_SYNCED
    threads = [threading.Thread(target=sender, args=(audit("detector:ci"),)) for _ in range(6)]
    threads += [threading.Thread(target=noise, args=(fleet("operator:alice"),))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 360 and sum(r.status == STORED for r in results) == 60, len(results)
    ids = [e.event_id for e in listed(audit(), "clusters/race") if e.event_id]
    assert sorted(ids) == sorted(f"e{i}" for i in range(60))
    at = {r.event_id: r.seq for r in results if r.status == STORED}
    assert all(r.seq == at[r.event_id] for r in results)
    # a watcher is told each once, in order and whole, though more were added while it was being read
    told = [next(watch) for _ in range(120)]
    assert {e.type for e in told} == {api.WATCH_EVENT_TYPE_CHANGED}, [e for e in told if e.type != api.WATCH_EVENT_TYPE_CHANGED]
    assert [e.audit.seq for e in told] == list(range(2, 122))
    watch.cancel()


@case
def filters():
    fleet().CreateCluster(api.CreateClusterRequest(cluster_id="filter"), timeout=10)
    before = listed(audit())[-1]
    f = fleet("operator:alice")
    for i in range(3):
        f.SetClusterMode(api.SetClusterModeRequest(name="clusters/filter", mode=2 + i % 2), timeout=5)
    everything = listed(audit(), "clusters/filter")
    assert [e.seq for e in everything] == [1, 2, 3, 4]
    assert [e.seq for e in listed(audit(), "clusters/filter", principal="operator:alice")] == [2, 3, 4]
    assert [e.seq for e in listed(audit(), "clusters/filter", verb="cluster.create")] == [1]
    third = everything[2].record_time
    assert [e.seq for e in listed(audit(), "clusters/filter", end_time=third)] == [1, 2]
    assert [e.seq for e in listed(audit(), "clusters/filter", start_time=third)] == [3, 4]
    assert [e.seq for e in listed(audit(), "clusters/filter", page_size=2)] == [1, 2, 3, 4]
    tail = listed(audit(), start_time=before.record_time, principal="operator:alice")
    assert [e.cluster for e in tail] == ["filter"] * 3
    refused(lambda: listed(audit(), principal="p" * 200), S.INVALID_ARGUMENT, "FILTER_TOO_LONG")
    refused(lambda: listed(audit(), start_time=Timestamp(seconds=-1)), S.INVALID_ARGUMENT, "TIME_MALFORMED", "start_time")
    refused(lambda: listed(audit(), page_token="61756469743a78"), S.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", "page_token")
    assert [e.verb for e in listed(audit(), "clusters/_fleet")] == [e.verb for e in listed(audit()) if e.cluster == "_fleet"]


def verify(stub, cluster):
    """Walks to the end; returns the last answer and how many events there were."""
    n, token = 0, ""
    while True:
        r = stub.VerifyAudit(api.VerifyAuditRequest(parent=f"clusters/{cluster}", page_token=token), timeout=20)
        n += r.events
        token = r.next_page_token
        if not r.intact or not token:
            return r, n


@case
def the_chain_holds_and_says_where_it_does_not():
    c = Advisord()
    fleet(at=c).CreateCluster(api.CreateClusterRequest(cluster_id="chain"), timeout=10)
    a = audit("detector:ci", at=c)
    for i in range(12):
        append(a, "chain", *[event(f"e{i * 200 + k}", detail=f"no. {k}") for k in range(200)])
    r, n = verify(audit(at=c), "chain")
    assert r.intact and n == r.last_seq == 2401 and not r.HasField("checkpoint"), r
    events = listed(audit(at=c), "clusters/chain")
    prev = ""
    for e in events:
        digest, detail = recompute(e)
        assert e.prev_hash == prev and e.hash == digest and e.detail_sha256 == detail and len(e.detail_salt) == 32, e
        prev = e.hash
    assert r.last_hash == prev and len({e.detail_salt for e in events}) == len(events)
    refused(lambda: verify(audit(at=c), "nowhere"), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    refused(lambda: audit(at=c).VerifyAudit(api.VerifyAuditRequest(parent="clusters/chain", page_token="7665726966793a78"), timeout=5),
            S.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID")
    path = c.config["store.path"]

    def tampered(seq, *sql):
        c.stop()
        with open(path, "rb") as f:
            keep = f.read()
        db = sqlite3.connect(path)
        for s in sql:
            db.execute(s)
        db.commit()
        db.close()
        c.start()
        bad, _ = verify(audit(at=c), "chain")
        assert not bad.intact and bad.broken_seq == seq and bad.problem, (seq, bad)
        c.stop()
        for ext in ("", "-wal", "-shm"):
            if os.path.exists(path + ext):
                os.unlink(path + ext)
        with open(path, "wb") as f:
            f.write(keep)
        c.start()
        return bad.problem
    tampered(7, "UPDATE audit SET detail = 'harmless' WHERE seq = 7")
    tampered(7, "UPDATE audit SET principal = 'operator:bob' WHERE seq = 7")
    tampered(7, "UPDATE audit SET salt = '', detail = 'x' WHERE seq = 7")
    tampered(2000, "DELETE FROM audit WHERE seq = 1999")
    tampered(3, "DELETE FROM audit WHERE seq < 3")
    assert "missing" in tampered(2300, "DELETE FROM audit WHERE seq > 2300")
    assert "missing" in tampered(0, "DELETE FROM audit")
    r, _ = verify(audit(at=c), "chain")
    assert r.intact
    c.stop()


def key_pair(folder):
    key, pub = f"{folder}/audit.key", f"{folder}/audit.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-out", pub], check=True)
    return key, pub


@case
def old_events_go_and_a_signed_checkpoint_stays():
    c = Advisord()
    key, pub = key_pair(c.dir)
    c.stop()
    c.config.update({"audit.signing_key": key, "retention.audit": "8s", "retention.interval": "1s"})
    c.start()
    f = fleet(at=c)
    f.CreateCluster(api.CreateClusterRequest(cluster_id="old"), timeout=10)
    a = audit("detector:ci", at=c)
    for i in range(6):  # more than one piece
        append(a, "old", *[event(f"e{i * 200 + k}") for k in range(200)])
    half = audit(at=c).VerifyAudit(api.VerifyAuditRequest(parent="clusters/old"), timeout=10)
    assert half.intact and half.last_seq == 1000 and half.next_page_token, half
    points = lambda **kw: audit(at=c).ListAuditCheckpoints(api.ListAuditCheckpointsRequest(parent="clusters/old", **kw), timeout=5)  # noqa: E731
    assert not points().checkpoints
    first = wait_for("old events to go", lambda: next((e.seq for e in listed(audit(at=c), "clusters/old")[:1] if e.seq > 1100), None), 30)
    # the rest of a walk between whose pieces the old end went
    rest = audit(at=c).VerifyAudit(api.VerifyAuditRequest(parent="clusters/old", page_token=half.next_page_token), timeout=10)
    assert rest.intact and rest.first_seq > 1001 and rest.checkpoint.seq == rest.first_seq - 1, rest
    cps = points().checkpoints
    assert len(cps) >= 2 and [p.seq for p in cps] == sorted((p.seq for p in cps), reverse=True), cps
    assert first == cps[0].seq + 1 or first == cps[1].seq + 1
    one = points(page_size=1)
    assert len(one.checkpoints) == 1 and points(page_size=1, page_token=one.next_page_token).checkpoints[0] == cps[1]
    w = api.WatchServiceStub(c.channel("reader:bob")).Watch(
        api.WatchRequest(parent=cps[0].name.split("/checkpoints/")[0], kinds=[api.RESOURCE_KIND_AUDIT_CHECKPOINT]), timeout=20)
    shown = [next(w) for _ in cps]
    assert {(e.WhichOneof("resource"), e.name) for e in shown} == {("audit_checkpoint", cp.name) for cp in cps}, shown
    w.cancel()
    # the chain holds from the newest checkpoint on, and the signature can be checked by anybody who has the public key
    r, n = verify(audit(at=c), "old")
    assert r.intact and r.HasField("checkpoint") and r.checkpoint_verified and r.first_seq == r.checkpoint.seq + 1, r
    p = r.checkpoint
    with open(f"{c.dir}/text", "w") as t:
        t.write(f"advisor-audit-checkpoint-v1 {p.store_uuid} {p.cluster} {p.seq} {p.hash} {micros(p.record_time)}")
    with open(f"{c.dir}/sig", "wb") as t:
        t.write(p.signature)
    check = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", pub, "-rawin", "-in", f"{c.dir}/text",
                            "-sigfile", f"{c.dir}/sig"], capture_output=True, text=True)
    assert check.returncode == 0, check
    # the newest event never goes, so that the chain goes on
    time.sleep(2)
    left = listed(audit(at=c), "clusters/old")
    assert left and left[-1].verb in ("audit.cut", "ext.deploy.begin"), left
    # another key: the checkpoint is shown, and not vouched for
    c.stop()
    other = os.path.join(c.dir, "other")
    os.makedirs(other)
    c.config["audit.signing_key"] = key_pair(other)[0]
    c.config["retention.audit"] = "0s"
    c.start()
    r, _ = verify(audit(at=c), "old")
    assert r.intact and r.HasField("checkpoint") and not r.checkpoint_verified, r
    # a checkpoint that was changed is none
    c.stop()
    c.config["audit.signing_key"] = f"{c.dir}/nowhere"
    p = subprocess.run([os.environ["ADVISORD"], "--config", f"{c.dir}/advisord.yaml", "--audit.signing_key", f"{c.dir}/nowhere"],
                       capture_output=True, timeout=60)
    assert p.returncode == 1 and b"nowhere" in p.stderr, p


@case
def a_quiet_cluster_stays_quiet():
    """A cut leaves an event, which grows old, too."""
    c = Advisord(**{"retention.interval": "1s", "retention.audit": "2s"})
    f = fleet(at=c)
    for name in ("quiet", "busy"):
        f.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)
        f.SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{name}", mode=api.MODE_OFF), timeout=10)
    quiet = lambda: listed(audit(at=c), "clusters/quiet")  # noqa: E731
    cuts = lambda: sum(e.verb == "audit.cut" for e in listed(audit(at=c), "clusters/busy")) and listed(audit(at=c), "clusters/busy")[0].seq  # noqa: E731
    wait_for("what is old to go", lambda: {e.verb for e in quiet()} == {"audit.cut"}, 30)
    before, a = quiet(), audit("detector:ci", at=c)
    for i in range(4):  # as long as it takes to cut the other one four times
        first = cuts()
        append(a, "busy", event(f"b{i}a"), event(f"b{i}b"))
        wait_for("another cut", lambda: cuts() > first, 30)
    assert quiet() == before and len(before) <= 2, (before, quiet())
    r, n = verify(audit(at=c), "quiet")
    assert r.intact and n == len(before), r
    c.stop()


@case
def a_wrong_time_takes_nothing_along():
    c = Advisord(**{"retention.interval": "1s"})
    names = ["aged1", "glitch", "aged2"]
    for n in names:
        fleet(at=c).CreateCluster(api.CreateClusterRequest(cluster_id=n), timeout=10)
        append(audit("detector:ci", at=c), n, *[event(f"{n}-{k}") for k in range(20)])
    c.stop()
    db = sqlite3.connect(c.config["store.path"])
    db.execute("UPDATE audit SET record_us = 1 WHERE cluster = 'glitch' AND seq = 12")  # the clock showed 1970 for a moment
    db.execute("UPDATE audit SET record_us = 1 WHERE cluster IN ('aged1', 'aged2') AND seq < 9")
    db.commit()
    db.close()
    c.config["retention.audit"] = "2h"
    c.start()
    oldest = lambda n: listed(audit(at=c), f"clusters/{n}")[0].seq  # noqa: E731
    wait_for("what is old to go", lambda: oldest("aged1") == 9 and oldest("aged2") == 9, 30)
    assert [e.seq for e in listed(audit(at=c), "clusters/glitch")] == list(range(1, 22))
    c.stop()


def lose_event(path, cluster, seq):
    """Takes an event out of the table but not out of its index, as a broken disk may: nobody can read that cluster's events then.
    Returns the row."""
    db = sqlite3.connect(path)
    row = db.execute("SELECT * FROM audit WHERE cluster = ? AND seq = ?", (cluster, seq)).fetchone()
    index = db.execute("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master WHERE name = 'audit_cluster'").fetchone()
    db.execute("PRAGMA writable_schema = ON")
    db.execute("DELETE FROM sqlite_master WHERE name = 'audit_cluster'")
    db.commit()
    db.close()
    db = sqlite3.connect(path)
    assert db.execute("DELETE FROM audit WHERE cluster = ? AND seq = ?", (cluster, seq)).rowcount == 1
    db.execute("PRAGMA writable_schema = ON")
    db.execute("INSERT INTO sqlite_master(type, name, tbl_name, rootpage, sql) VALUES(?, ?, ?, ?, ?)", index)
    db.commit()
    db.close()
    return row


@case
def a_cluster_that_fails_is_passed_over():
    c = Advisord(**{"retention.interval": "1s"})
    path, names = c.config["store.path"], ["early", "sick", "well"]
    for n in names:  # whichever way they are gone through, one comes after the sick one
        fleet(at=c).CreateCluster(api.CreateClusterRequest(cluster_id=n), timeout=10)
        append(audit("detector:ci", at=c), n, *[event(f"{n}-{k}") for k in range(20)])
    c.stop()
    db = sqlite3.connect(path)
    db.execute("UPDATE audit SET record_us = 1 WHERE cluster IN ('early', 'sick', 'well') AND seq < 9")
    db.commit()
    db.close()
    row = lose_event(path, "sick", 4)
    c.config["retention.audit"] = "2h"
    c.start()
    oldest = lambda n: listed(audit(at=c), f"clusters/{n}")[0].seq  # noqa: E731
    wait_for("what is old of the others to go", lambda: oldest("early") == 9 and oldest("well") == 9, 30)
    passed = lambda: [x for x in c.log_text().splitlines() if "this cluster is passed over until the next time" in x]  # noqa: E731
    wait_for("the sick one to be tried in more rounds", lambda: len(passed()) >= 3, 30)
    assert all("cluster=sick" in x and "malformed" in x for x in passed()), passed()[:3]
    assert "stopped, will go on at the next time" not in c.log_text(), c.tail_log(20)
    refused(lambda: oldest("sick"), S.DATA_LOSS)
    db = sqlite3.connect(path, timeout=30)
    kept = db.execute("SELECT group_concat(seq) FROM (SELECT seq FROM audit NOT INDEXED WHERE +cluster = 'sick' ORDER BY seq)").fetchone()[0]
    assert kept == ",".join(str(i) for i in range(1, 22) if i != 4), kept
    # Mended while it is served: the next round takes it up.
    db.execute(f"INSERT INTO audit VALUES({','.join('?' * len(row))})", row)
    db.commit()
    db.close()
    wait_for("what is old of the sick one to go", lambda: oldest("sick") == 9, 30)
    for n in names:
        assert verify(audit(at=c), n)[0].intact
    c.stop()


@case
def a_whole_piece_of_cuts_hides_nothing_for_ever():
    c = Advisord(**{"retention.interval": "1s"})
    path = c.config["store.path"]
    fleet(at=c).CreateCluster(api.CreateClusterRequest(cluster_id="cuts"), timeout=10)
    for k in range(0, 1040, 80):
        append(audit("detector:ci", at=c), "cuts", *[event(f"e-{k + i}") for i in range(80)])
    c.stop()
    db = sqlite3.connect(path)
    db.execute("UPDATE audit SET record_us = 1 WHERE cluster = 'cuts' AND seq <= 1020")
    db.execute("UPDATE audit SET verb = 'audit.cut' WHERE cluster = 'cuts' AND seq <= 1000")  # of a first clean-up of a million events
    db.commit()
    db.close()
    c.config["retention.audit"] = "2h"
    c.start()
    oldest = lambda: listed(audit(at=c), "clusters/cuts")[0].seq  # noqa: E731
    wait_for("what is old to go", lambda: oldest() == 1021, 60)
    c.stop()


@case
def a_cluster_that_fails_the_store_does_not_starve_the_others():
    c = Advisord(**{"retention.interval": "1s"})
    path, names = c.config["store.path"], ["early", "sick", "well"]
    for n in names:
        fleet(at=c).CreateCluster(api.CreateClusterRequest(cluster_id=n), timeout=10)
        append(audit("detector:ci", at=c), n, *[event(f"{n}-{k}") for k in range(20)])
    c.stop()
    db = sqlite3.connect(path)
    db.execute("UPDATE audit SET record_us = 1 WHERE cluster IN ('early', 'sick', 'well') AND seq < 9")
    db.execute("CREATE TRIGGER sick BEFORE DELETE ON audit WHEN old.cluster = 'sick' BEGIN SELECT RAISE(ABORT, 'it is sick'); END")
    db.commit()
    db.close()
    c.config["retention.audit"] = "2h"
    c.start()

    def oldest(n):
        try:
            return listed(audit(at=c), f"clusters/{n}")[0].seq
        except grpc.RpcError as e:
            if e.code() != S.UNAVAILABLE:  # each failure of the cut drops memory, and the store is loaded again
                raise
            return None
    wait_for("what is old of the others to go", lambda: oldest("early") == 9 and oldest("well") == 9, 60)
    ends = lambda: [x for x in c.log_text().splitlines() if "stopped, will go on at the next time" in x]  # noqa: E731
    wait_for("more rounds to end with the sick one", lambda: len(ends()) >= 2, 60)
    assert all("cluster=sick" in x for x in ends()), ends()[:3]
    c.stop()


def resp(c, job_id, n=0):
    t = c.timeline(job_id)
    return t.job, t.attempts[n], list(t.anomalies), (list(t.advice) or [None])[0]


@case
def forget_user():
    c = advstack.FakeCluster(api, d, "forget", api.MODE_APPROVE, [f"n{i + 1}" for i in range(8)])
    line = b"n2: RuntimeError: CUDA error: uncorrectable ECC error encountered by alice\n"
    kw = dict(user="alice", name=b"alices run", comment=b'{"advisor":{"workflow":"alices"}}', stdout_path=b"/home/alice/out")
    ad = c.fails("1", line, **kw)
    people = api.AdviceServiceStub(d.channel("operator:olga"))
    people.RejectAdvice(api.RejectAdviceRequest(name=ad.name, generation=1, reason="alice asked"), timeout=5)
    c.job("2", "RUNNING", **kw)
    c.fails("3", **{**kw, "user": "carol"})
    c.job("4", "COMPLETED", **kw)
    c.gone("1")
    c.gone("3")
    c.gone("4")
    job, attempt, anomalies, advice = resp(c, "1")
    assert job.user == "alice" and job.workflow == "alices" and b"alice" in anomalies[0].excerpt.encode(), anomalies
    before = {e.seq: e for e in listed(audit(), "clusters/forget")}
    assert any("alice asked" in e.detail for e in before.values())
    forget = lambda who="admin:root", **q: fleet(who).ForgetUser(api.ForgetUserRequest(**{  # noqa: E731
        "parent": "clusters/forget", "user": "alice", **q}), timeout=10)
    refused(lambda: forget("operator:olga"), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: forget(user=""), S.INVALID_ARGUMENT, "TEXT_MISSING", "user")
    for call in (lambda: forget(parent=""), lambda: next(api.WatchServiceStub(d.channel("reader:bob")).Watch(api.WatchRequest(), timeout=10))):
        e = refused(call, S.INVALID_ARGUMENT, "NAME_MALFORMED", "parent")
        assert e.details().startswith('parent "": expected'), e
    refused(lambda: forget(parent="clusters/forget/jobs/x"), S.INVALID_ARGUMENT, "NAME_MALFORMED", "parent")
    r = forget()
    assert (r.forgotten_jobs, r.present_jobs) == (2, 1), r
    assert (lambda x: (x.forgotten_jobs, x.present_jobs))(forget()) == (0, 1), "once is enough"
    for job_id in ("1", "4"):
        t = c.timeline(job_id)
        assert b"alice" not in t.SerializeToString(), t
    job, attempt, anomalies, advice = resp(c, "1")
    assert job.user == "" and job.display_name == "" and job.workflow == "" and anomalies[0].excerpt == "", job
    assert len(anomalies[0].excerpt_sha256) == 64 and advice.status.reason == api.DISPOSITION_REASON_REJECTED
    assert resp(c, "2")[0].user == "alice" and resp(c, "3")[0].user == "carol" and resp(c, "3")[2][0].excerpt
    # the audit log: who did what stays, the words are gone, and the chain holds
    after = {e.seq: e for e in listed(audit(), "clusters/forget")}
    touched = [e for e in after.values() if e.detail_erased]
    assert touched and {e.verb for e in touched} >= {"advice.create", "advice.reject"}, touched
    for e in touched:
        was = before[e.seq]
        assert not e.detail and not e.detail_salt and e.hash == was.hash and e.detail_sha256 == was.detail_sha256, e
        assert e.subject.startswith(job.name) or "/jobs/" in e.subject
        assert recompute(e)[0] == e.hash
    assert all(after[s] == before[s] for s in before if not after[s].detail_erased)
    assert not any("alice asked" in e.detail for e in after.values())
    r, _ = verify(audit(), "forget")
    assert r.intact, r
    d.kill()
    d.start()
    assert b"alice" not in api.JobServiceStub(d.channel("reader:bob")).GetJobTimeline(
        api.GetJobTimelineRequest(name=job.name), timeout=10).SerializeToString()
    with open(d.config["store.path"], "rb") as f:
        assert f.read(16) == b"SQLite format 3\0"
    c.close()


@case
def what_is_old_goes():
    c = Advisord(**{"retention.interval": "1s", "retention.excerpts": "3s", "retention.jobs": "6s"})
    k = advstack.FakeCluster(api, c, "aged", api.MODE_OBSERVE, [f"n{i + 1}" for i in range(8)])
    k.fails("1")
    k.job("2", "RUNNING")
    x = fleet("operator:o", at=c).AddExclusion(api.AddExclusionRequest(parent="clusters/aged", node="n1", reason="r"), timeout=5).exclusion
    fleet("operator:o", at=c).LiftExclusion(api.LiftExclusionRequest(name=x.name), timeout=5)
    assert resp(k, "1")[2][0].excerpt and "CUDA error" in resp(k, "1")[3].reasons[0].sentence
    watch = api.WatchServiceStub(c.channel("reader:bob")).Watch(api.WatchRequest(parent="clusters/aged"), timeout=60)
    for e in watch:
        if e.type == api.WATCH_EVENT_TYPE_SYNCED:
            break
    k.gone("1")
    job = wait_for("the excerpt to go", lambda: (lambda t: t if not t[2][0].excerpt else None)(resp(k, "1")), 20)
    assert len(job[2][0].excerpt_sha256) == 64 and "CUDA error" not in job[3].SerializeToString().decode("latin-1"), job[3]
    name = job[0].name

    def is_gone(get):
        k.agent.heartbeat()
        try:
            get()
            return False
        except grpc.RpcError as e:
            assert e.code() == S.NOT_FOUND, e
            return True
    read, jobs = api.FleetServiceStub(k.reader), api.JobServiceStub(k.reader)
    wait_for("the job to go", lambda: is_gone(lambda: jobs.GetJob(api.GetJobRequest(name=name), timeout=5)), 30)
    wait_for("the exclusion to go", lambda: is_gone(lambda: read.GetExclusion(api.GetExclusionRequest(name=x.name), timeout=5)), 30)
    assert resp(k, "2")[0].job_id == "2", "a job that is there stays"
    removed = set()
    for e in watch:
        if e.type == api.WATCH_EVENT_TYPE_REMOVED:
            removed.add(e.kind)
        if removed >= {api.RESOURCE_KIND_JOB, api.RESOURCE_KIND_ATTEMPT, api.RESOURCE_KIND_ANOMALY, api.RESOURCE_KIND_ADVICE,
                       api.RESOURCE_KIND_EXCLUSION}:
            break
    watch.cancel()
    c.kill()
    c.start()
    refused(lambda: api.JobServiceStub(c.channel("reader:bob")).GetJob(api.GetJobRequest(name=name), timeout=5), S.NOT_FOUND)
    k.close()
    c.stop()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
