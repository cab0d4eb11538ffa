#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replicas that share one MariaDB: who owns a cluster, and what its owner, its database or its way to either dies of.

Every case has clusters of its own; the replicas are shared by those that leave them whole."""
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))

import advmaria
import advstack
from advlab import wait_for
from advreplicas import Replicas, knock
from advstack import refused

if not advmaria.available():
    print("skip: needs MariaDB's server and client")
    sys.exit(77)

api = advstack.stubs()
import grpc  # noqa: E402  (after the stubs, which keep generated packages out of its way)

fleet = Replicas(api)
A, B = 0, 1


def who(i):
    """The id under which replica i stands in the database: the owner of what it was made to own."""
    return ids[i]


def find_ids():
    """Each replica's id: a cluster goes to where its agent knocks."""
    got = []
    for i in (A, B):
        name = f"id-{i}"
        fleet.create(name, i)
        agent = knock(fleet, name, i)
        got.append(fleet.wait_owned(name)[0])
        agent.close()
    assert got[0] != got[1], got
    return got


ids = find_ids()


def at(i, cluster, timeout=30):
    wait_for(f"{cluster} to be owned by replica {i}", lambda: (fleet.owner(cluster) or [""])[0] == who(i), timeout)


# ---- one fleet, any replica ------------------------------------------------------------------------------------------

def every_replica_takes_writes_and_shows_them():
    agent = None
    fleet.create("shared", A)
    agent = knock(fleet, "shared", B)  # so B owns it, whatever was before
    at(B, "shared")
    for i, mode in ((A, api.MODE_ACT), (B, api.MODE_APPROVE), (A, api.MODE_OFF)):
        r = fleet.fleet(i).SetClusterMode(api.SetClusterModeRequest(name="clusters/shared", mode=mode), timeout=20)
        assert r.cluster.mode == mode
        # who wrote it sees it at once; the other within the time of a poll
        assert fleet.mode("shared", i) == mode
        wait_for("the other replica to show it", lambda: fleet.mode("shared", 1 - i) == mode, 10)
    agent.close()


def errors_of_the_owner_reach_the_caller_of_another_replica():
    fleet.create("errors", A)
    agent = knock(fleet, "errors", B)
    at(B, "errors")
    e = refused(lambda: fleet.fleet(A).SetClusterMode(
        api.SetClusterModeRequest(name="clusters/errors", mode=99), timeout=20), grpc.StatusCode.INVALID_ARGUMENT, "MODE_MALFORMED")
    assert "OFF, OBSERVE, APPROVE or ACT" in e.details(), e.details()
    etag = fleet.fleet(A).GetCluster(api.GetClusterRequest(name="clusters/errors"), timeout=10).cluster.etag
    fleet.fleet(B).SetClusterMode(api.SetClusterModeRequest(name="clusters/errors", mode=api.MODE_ACT, etag=etag), timeout=20)
    refused(lambda: fleet.fleet(A).SetClusterMode(
        api.SetClusterModeRequest(name="clusters/errors", mode=api.MODE_OFF, etag=etag), timeout=20),
        grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
    refused(lambda: fleet.fleet(A).CreateCluster(api.CreateClusterRequest(cluster_id="errors"), timeout=20),
            grpc.StatusCode.ALREADY_EXISTS, "CLUSTER_EXISTS")
    agent.close()


def a_request_id_counts_at_every_replica():
    fleet.create("once", A)
    agent = knock(fleet, "once", B)
    at(B, "once")
    q = dict(name="clusters/once", mode=api.MODE_ACT, request_id="the-same", reason="x")
    for i in (A, B, A):
        fleet.fleet(i).SetClusterMode(api.SetClusterModeRequest(**q), timeout=20)
    refused(lambda: fleet.fleet(A).SetClusterMode(api.SetClusterModeRequest(**{**q, "mode": api.MODE_OFF}), timeout=20),
            grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    audit = api.AuditServiceStub(fleet.r[A].channel("reader:test"))
    events = audit.ListAuditEvents(api.ListAuditEventsRequest(parent="clusters/once", verb="mode.set"), timeout=10).events
    assert len(events) == 1, events
    assert events[0].principal == "admin:root", events[0]
    agent.close()


def a_watch_goes_on_at_another_replica():
    fleet.create("watched", A)
    agent = knock(fleet, "watched", B)
    at(B, "watched")
    seen, token = [], ""
    modes = [api.MODE_ACT, api.MODE_APPROVE, api.MODE_OBSERVE] * 4
    for n, mode in enumerate(modes):
        i = n % 2  # watch at one replica, write at the other
        w = api.WatchServiceStub(fleet.r[i].channel("reader:test")).Watch(api.WatchRequest(
            parent="clusters/watched", kinds=[api.RESOURCE_KIND_CLUSTER], resume_token=token), timeout=30)
        fleet.fleet(1 - i).SetClusterMode(api.SetClusterModeRequest(name="clusters/watched", mode=mode), timeout=20)
        for e in w:
            token = e.resume_token or token
            if e.type == api.WATCH_EVENT_TYPE_CHANGED:
                seen.append((e.revision, e.cluster_resource.mode))
                if e.cluster_resource.mode == mode:
                    break
        w.cancel()
    revisions = [r for r, _ in seen]
    assert revisions == sorted(set(revisions)), f"out of order or twice: {revisions}"
    # a token of a replica that is ahead is waited for; one that nobody is behind, not for long
    store, seq, filters = token.rsplit(".", 2)
    ahead = lambda n: next(api.WatchServiceStub(fleet.r[A].channel("reader:test")).Watch(api.WatchRequest(  # noqa: E731
        parent="clusters/watched", kinds=[api.RESOURCE_KIND_CLUSTER], resume_token=f"{store}.{int(seq) + n}.{filters}"), timeout=30))
    refused(lambda: ahead(1000000), grpc.StatusCode.UNAVAILABLE, "REPLICA_BEHIND")
    agent.close()


def everything_of(i, cluster):
    """All that replica i shows of a cluster, by name and without what only its owner knows."""
    got = {}
    for e in api.WatchServiceStub(fleet.r[i].channel("reader:test")).Watch(
            api.WatchRequest(parent=f"clusters/{cluster}"), timeout=30):
        if e.type == api.WATCH_EVENT_TYPE_SYNCED:
            return got
        got[(e.kind, e.name)] = getattr(e, e.WhichOneof("resource")).SerializeToString(deterministic=True)
    raise AssertionError("the watch ended before it was synced")


def jobs_and_what_became_of_them_are_followed():
    class At:
        """What FakeCluster wants of an advisord."""

        def __init__(self, i):
            self.r = fleet.r[i]

        def channel(self, *a, **kw):
            return self.r.channel(*a, **kw)

    c = advstack.FakeCluster(api, At(B), "jobs", api.MODE_ACT, nodes=("n1", "n2", "n3", "n4"))
    at(B, "jobs")
    advice = c.fails("1")
    assert advice.desired_state == api.DESIRED_STATE_RESTARTED, advice
    for n in range(2, 30):
        c.job(str(n), "RUNNING")
    for n in range(2, 10):
        c.gone(str(n))
    c.job("1", "PENDING", restart_count=1, held=True)
    wait_for("both replicas to show the same",
             lambda: everything_of(A, "jobs") == everything_of(B, "jobs") and len(everything_of(A, "jobs")) > 60, 20)
    # and the other one goes on with it as its owner
    c.agent.close()
    heir = knock(fleet, "jobs", A)
    at(A, "jobs")
    wait_for("the successor to be told of the advice", lambda: heir.all("welcome"), 10)
    names = {a.name for a in api.AdviceServiceStub(fleet.r[A].channel("reader:test")).ListAdvice(
        api.ListAdviceRequest(parent="clusters/jobs"), timeout=10).advice}
    assert advice.name in names, names
    heir.close()
    assert "cannot be followed" not in open(f"{fleet.r[A].dir}/advisord.log", errors="replace").read()


# ---- agents and ownership --------------------------------------------------------------------------------------------

def signals_are_taken_anywhere():
    """A detector talks to the replica that does not own the cluster."""
    class At:
        def __init__(self, i):
            self.r = fleet.r[i]

        def channel(self, *a, **kw):
            return self.r.channel(*a, **kw)

    c = advstack.FakeCluster(api, At(B), "signals", api.MODE_ACT)
    at(B, "signals")
    c.job("1", "RUNNING")
    reader = api.JobServiceStub(fleet.r[A].channel("reader:test"))
    wait_for("the job at the other replica", lambda: [j for j in reader.ListJobs(
        api.ListJobsRequest(parent="clusters/signals"), timeout=10).jobs])
    s = api.SignalServiceStub(fleet.r[A].channel("detector:far"))
    ask = api.ReportAnomalyRequest(ref=c.ref("1"), kind=api.ANOMALY_KIND_CRASH, rule="xid-79", nodes=["n2"],
                                   excerpt="password=hunter2hunter2 é", request_id="far1")
    an = s.ReportAnomaly(ask, timeout=20).anomaly
    assert an.reporter == "detector:far" and list(an.nodes) == ["n2"] and "hunter2" not in an.excerpt, an
    assert s.ReportAnomaly(ask, timeout=20).anomaly == an
    assert api.SignalServiceStub(fleet.r[B].channel("detector:far")).ReportAnomaly(ask, timeout=20).anomaly == an
    ev = s.ReportEvidence(api.ReportEvidenceRequest(ref=c.ref("1"), source="dcgm", kind="ecc"), timeout=20).evidence
    assert s.ReportProgress(api.ReportProgressRequest(ref=c.ref("1"), step=5), timeout=20).attempt.last_step == 5
    t = reader.GetJobTimeline(api.GetJobTimelineRequest(ref=c.ref("1")), timeout=10)  # who asked sees what it was told
    assert [x.name for x in t.evidence] == [ev.name] and [x.name for x in t.anomalies] == [an.name], t
    refused(lambda: s.ReportProgress(api.ReportProgressRequest(ref=c.ref("1"), step=5, request_id="far1"), timeout=20),
            grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    c.close()


def what_is_wrong_with_a_call_handed_over_is_told():
    """The owner stands still while the call lies in the database, so that what it reads, or what it is said to have answered,
    can be something else."""
    fleet.create("between", A)
    agent = knock(fleet, "between", B)
    at(B, "between")

    def told(change, code, reason):
        owner = fleet.r[B].proc
        owner.send_signal(signal.SIGSTOP)
        try:
            call = fleet.fleet(A).SetClusterMode.future(
                api.SetClusterModeRequest(name="clusters/between", mode=api.MODE_ACT), timeout=40)
            row = wait_for("the call in the database", lambda: fleet.db.sql(
                "SELECT id FROM handoffs WHERE answered = 0 AND cluster = 'between'"), 10, 0.02)
            fleet.db.sql(f"UPDATE handoffs SET {change} WHERE id = {row[0][0]}")
        finally:
            owner.send_signal(signal.SIGCONT)
        return refused(call.result, code, reason)

    told("method = '/advisor.v1.FleetService/FromTheFuture'", grpc.StatusCode.UNIMPLEMENTED, "HANDOFF_UNKNOWN")
    told("caller = '9 x'", grpc.StatusCode.UNIMPLEMENTED, "HANDOFF_UNKNOWN")
    told("made_at = made_at - INTERVAL 25 SECOND", grpc.StatusCode.DEADLINE_EXCEEDED, "HANDOFF_TOO_OLD")
    told("answered = 1, request = '', caller = '', reply = 'what?'", grpc.StatusCode.INTERNAL, "HANDOFF_MALFORMED")
    told("answered = 1, request = '', caller = '', reply = 'E1:5'", grpc.StatusCode.INTERNAL, "HANDOFF_MALFORMED")
    assert fleet.mode("between", B) == api.MODE_OBSERVE  # none of them took effect
    agent.close()


def ownership_goes_where_the_agent_is():
    fleet.create("moves", A)
    epochs = []
    for i in (A, B, A):
        agent = knock(fleet, "moves", i)
        at(i, "moves")
        e = agent.granted()
        epochs.append((e.term, e.counter))
        agent.close()
    assert epochs == sorted(set(epochs)), epochs


def the_same_agent_need_not_wait_for_its_own_ghost():
    """Its old session at A is not known to be dead: it moves at once, and the ghost is ended."""
    fleet.create("ghost", A)
    ghost = knock(fleet, "ghost", A)
    at(A, "ghost")
    began = time.monotonic()
    agent = knock(fleet, "ghost", B, instance="i2")
    assert agent.granted()
    at(B, "ghost")
    e = ghost.wait_end(10)
    advstack.has_reason(e, "NOT_OWNER")
    assert time.monotonic() - began < fleet.OWNER_LEASE_S, "it waited for the lease to end"
    agent.close()


def another_agent_does_not_take_a_cluster_away():
    fleet.create("held", A)
    agent = knock(fleet, "held", A, "j1")
    at(A, "held")
    first = agent.granted()
    other = fleet.agent("held", B, "j2")
    advstack.has_reason(other.wait_end(20), "NOT_OWNER")
    other.close()
    at(A, "held")
    assert agent.error is None and agent.told()[1].counter == first.counter
    agent.close()
    other = knock(fleet, "held", B, "j2")  # now it may
    assert other.granted().counter > first.counter
    other.close()


def an_agent_that_was_another_s_successor_waits_for_its_lease():
    """j1 holds the lease at A; A dies. j2 is granted one at B only after all that j1 was ever granted has run out."""
    f = Replicas(api, db=fleet.db)
    try:
        f.create("heir", 0)
        j1 = knock(f, "heir", 0, "j1")
        j1.granted()
        wait_for("a few heartbeats", lambda: len(j1.all("heartbeat_ack")) > 4)
        f.r[0].kill()
        died = time.monotonic()
        j2 = knock(f, "heir", 1, "j2")
        j2.granted(60)
        waited = time.monotonic() - died
        # the last heartbeat was answered at most 0.3 s before it died, and granted a whole action lease
        assert waited > f.ACTION_LEASE_S - 0.4, f"granted after {waited:.2f} s"
        assert j2.told()[1].counter > j1.told()[1].counter
        j1.close()
        j2.close()
    finally:
        f.db = advmaria_keep
        f.stop()


class Keep:
    """A database that outlives the replicas of a case."""

    def purge(self):
        pass


advmaria_keep = Keep()


def no_grant_outlasts_the_ownership_behind_it():
    """A lease is never longer than what is left of the replica's own."""
    f = Replicas(api, db=fleet.db, **{"agent.lease": "3s", "store.ownership_lease": "4s"})
    try:
        f.create("bounded", 0)
        agent = knock(f, "bounded", 0)
        agent.granted()
        until = float(f.db.sql("SELECT UNIX_TIMESTAMP(until_at) FROM owners WHERE cluster = 'bounded'")[0][0])
        assert agent.wait("welcome").grant.lease_ms <= 3000
        # the database is gone: what is granted shrinks, and ends before the ownership does
        f.db.freeze()
        try:
            e = agent.wait_end(20)
            assert e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), e
        finally:
            f.db.thaw()
        assert until > 0
        agent.close()
    finally:
        f.db = advmaria_keep
        f.stop()


def a_chain_is_verified_where_it_is_not_owned():
    """Its owner cuts the old end all the while: the other replica reads events and checkpoints a moment apart, and says of none
    of that that it is broken. What is broken it finds, too, after it has waited for a checkpoint that may explain it."""
    f = Replicas(api, db=fleet.db, **{"retention.audit": "2s", "retention.interval": "1s"})
    try:
        owner, other = (api.AuditServiceStub(f.r[i].channel("reader:test")) for i in (B, A))
        f.create("chain", B)
        agent = knock(f, "chain", B)
        f.everywhere("chain")
        holds = f.wait_owned("chain")

        def verify(stub):
            return stub.VerifyAudit(api.VerifyAuditRequest(parent="clusters/chain"), timeout=30)

        seen, over, errors = [], threading.Event(), []

        def go_on():
            modes = [api.MODE_ACT, api.MODE_OBSERVE]
            try:
                while not over.wait(0.05):
                    f.fleet(B).SetClusterMode(api.SetClusterModeRequest(name="clusters/chain", mode=modes[0]), timeout=30)
                    modes.reverse()
            except grpc.RpcError as e:
                errors.append(e)
        writer = threading.Thread(target=go_on, daemon=True)
        writer.start()

        def cut_again():
            r = verify(other)
            assert r.intact and r.events, r
            seen.append(r.checkpoint.seq)
            return len(set(seen) - {0}) >= 6
        wait_for("six cuts of the chain, seen from where it is not owned", cut_again, 120, 0)
        over.set()
        writer.join(60)
        assert not errors and seen == sorted(seen), (errors, seen)
        assert f.owner("chain") == holds, "another replica owns it meanwhile"
    finally:
        f.db = advmaria_keep
        f.stop()
    # in peace: the same at both; an end that nothing explains is broken at both, at once where it is owned
    agent.close()
    agent = knock(fleet, "chain", B)
    at(B, "chain")
    stubs = [api.AuditServiceStub(fleet.r[i].channel("reader:test")) for i in (A, B)]
    wait_for("both to say the same", lambda: verify(stubs[0]) == verify(stubs[1]), 30)
    whole = verify(stubs[0])
    assert whole.intact and whole.checkpoint.seq + 1 == whole.first_seq < whole.last_seq, whole
    fleet.db.sql(f"DELETE FROM audit WHERE cluster = 'chain' AND seq = {whole.first_seq}")
    began = time.monotonic()
    bad = verify(stubs[A])
    assert time.monotonic() - began >= 1.4, "no checkpoint was waited for"
    for r in (bad, verify(stubs[B])):
        assert not r.intact and r.broken_seq == whole.first_seq + 1 and "no checkpoint says" in r.problem, r
    refused(lambda: stubs[A].VerifyAudit(api.VerifyAuditRequest(parent="clusters/nowhere"), timeout=10),
            grpc.StatusCode.NOT_FOUND, "CLUSTER_NOT_FOUND")
    agent.close()


def a_cluster_without_a_row_of_its_owner():
    """Somebody cleaned up in the database. Nobody can own it, and that is what is said, not that another replica has it."""
    fleet.create("rowless", B)
    agent = knock(fleet, "rowless", B)
    at(B, "rowless")
    fleet.everywhere("rowless")

    def log(i):
        with open(f"{fleet.r[i].dir}/advisord.log", errors="replace") as f:
            return [line for line in f if "cluster rowless" in line or "cluster=rowless" in line]

    def losses():  # by its next renewal or by its next write, whichever comes first
        text = fleet.r[B].log_text()
        return text.count("its row in the table of owners is gone") + text.count("does not own a cluster that it wanted to write")
    epoch, before = fleet.owner("rowless")[1], losses()
    fleet.db.sql("DELETE FROM owners WHERE cluster = 'rowless'")
    wait_for("its owner to say what it lost", lambda: losses() > before, 30)
    agent.close()
    for i in (A, B):
        a = fleet.agent("rowless", i)
        e = a.wait_end(30)
        assert e.code() == grpc.StatusCode.UNAVAILABLE and advstack.has_reason(e, "NOT_OWNER"), e
        assert "no row in the database's table of owners" in e.details(), e.details()
        a.close()
        told = [x for x in log(i) if "no replica can own it, and its agents are sent away" in x]
        assert len(told) == 1 and "level=error" in told[0] and "advisord store check" in told[0], log(i)
    fleet.db.sql(f"INSERT INTO owners(cluster, owner, epoch, until_at) VALUES('rowless', '', {epoch + 1}, '1970-01-01')")
    agent = knock(fleet, "rowless", A)
    at(A, "rowless")
    agent.close()


cases = [every_replica_takes_writes_and_shows_them, signals_are_taken_anywhere, what_is_wrong_with_a_call_handed_over_is_told, errors_of_the_owner_reach_the_caller_of_another_replica,
         a_request_id_counts_at_every_replica, jobs_and_what_became_of_them_are_followed, a_watch_goes_on_at_another_replica, ownership_goes_where_the_agent_is,
         the_same_agent_need_not_wait_for_its_own_ghost, another_agent_does_not_take_a_cluster_away,
         an_agent_that_was_another_s_successor_waits_for_its_lease, no_grant_outlasts_the_ownership_behind_it,
         a_chain_is_verified_where_it_is_not_owned, a_cluster_without_a_row_of_its_owner]


def stops_clean():
    fleet.stop()


if __name__ == "__main__":
    pick, sys.argv = sys.argv[1:], sys.argv[:1]  # groups or names; run() takes parts of names
    advstack.run([c for c in cases if not pick or c.__name__ in pick] + [stops_clean])
