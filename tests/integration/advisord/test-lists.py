#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lists and watches of many things: pages, filters, order, bounds; and names and texts that calls must not take."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

import grpc  # noqa: E402

S = grpc.StatusCode
refused = advstack.refused
api = advstack.stubs()
CASES = []


def case(f):
    CASES.append(f)
    return f


d = advstack.Advisord(**{"watch.bookmark": "1s"})
fleet = api.FleetServiceStub(d.channel("admin:root"))
jobs = api.JobServiceStub(d.channel("reader:bob"))


def create(name, request_id="", stub=fleet):
    return stub.CreateCluster(api.CreateClusterRequest(cluster_id=name, request_id=request_id), timeout=10)


def listed(**q):
    """All pages: the jobs' ids, and the sizes of the pages."""
    ids, sizes, token = [], [], ""
    while True:
        r = jobs.ListJobs(api.ListJobsRequest(page_token=token, **q), timeout=10)
        ids += [j.job_id for j in r.jobs]
        sizes.append(len(r.jobs))
        token = r.next_page_token
        if not token:
            return ids, sizes


MANY = 21000


@case
def many_jobs():
    c = advstack.FakeCluster(api, d, "many")
    for first in range(1, MANY, 1000):
        some = [api.JobObservation(job_id=str(i), state=api.JOB_STATE_COMPLETED if i == 1 else api.JOB_STATE_RUNNING,
                                   state_raw="RUNNING", batch=True, submit_unix=1000, user=f"u{i % 3}", account="acc",
                                   nodes="n1", detail_known=True, hash=i) for i in range(first, first + 1000)]
        for o in some:
            c.hash ^= o.hash
        c.update(jobs=some)
    newest = [str(i) for i in range(MANY, 0, -1)]
    ids, sizes = listed(parent="clusters/many", page_size=1000)
    assert ids == newest and sizes == [1000] * 21, sizes
    # with another cluster's between them, in one order
    o = advstack.FakeCluster(api, d, "few")
    o.job("1", "RUNNING")
    c.job(str(MANY + 1), "RUNNING")
    ids, sizes = listed(parent="clusters/-", page_size=1000)
    assert ids == [str(MANY + 1), "1"] + newest, ids[:5]
    # what finds nothing for long gives the loop back in between
    ids, sizes = listed(parent="clusters/many", states=[api.JOB_STATE_COMPLETED])
    assert ids == ["1"] and sizes == [0, 1], (ids, sizes)
    advice, token = [], ""
    for pages in range(1, 10):
        r = api.AdviceServiceStub(d.channel("reader:bob")).ListAdvice(
            api.ListAdviceRequest(parent="clusters/many", page_token=token), timeout=10)
        advice += r.advice
        token = r.next_page_token
        if not token:
            break
    assert not advice and pages == 2, (advice, pages)
    o.close()
    c.close()


@case
def a_watcher_that_takes_nothing_is_cut_off():
    w = api.WatchServiceStub(d.channel("reader:idle")).Watch(api.WatchRequest(parent="clusters/many"), timeout=120)
    first = next(w)
    assert first.type == api.WATCH_EVENT_TYPE_STATE, first
    end = time.monotonic() + 12
    while time.monotonic() < end and w.is_active():
        time.sleep(0.2)
    types = set()
    try:
        for m in w:
            types.add(m.type)
            if m.type == api.WATCH_EVENT_TYPE_SYNCED:
                break
    except grpc.RpcError as e:
        assert e.code() == S.RESOURCE_EXHAUSTED and advstack.has_reason(e, "WATCHER_TOO_SLOW"), e
    assert types == {api.WATCH_EVENT_TYPE_STATE}, types
    # one that reads gets all of it
    seen = set()
    for m in api.WatchServiceStub(d.channel("reader:busy")).Watch(
            api.WatchRequest(parent="clusters/-", kinds=[api.RESOURCE_KIND_JOB, api.RESOURCE_KIND_CLUSTER]), timeout=120):
        if m.type == api.WATCH_EVENT_TYPE_SYNCED:
            break
        assert m.type == api.WATCH_EVENT_TYPE_STATE and m.name not in seen, m
        seen.add(m.name)
    assert len(seen) == MANY + 1 + 1 + len(fleet.ListClusters(api.ListClustersRequest(), timeout=5).clusters), len(seen)


@case
def filters():
    c = advstack.FakeCluster(api, d, "filters")
    c.job("1", "RUNNING", account="a", comment=b'{"advisor":{"workflow":"w1"}}')
    c.job("2", "RUNNING", account="b", comment=b'{"advisor":{"workflow":"w1"}}')
    c.job("3", "RUNNING", account="b", user="carol", comment=b'{"advisor":{"workflow":"w2"}}')
    ids = lambda **q: sorted(listed(parent="clusters/filters", **q)[0])  # noqa: E731
    assert ids(account="b") == ["2", "3"] and ids(account="none") == []
    assert ids(workflow="w1") == ["1", "2"] and ids(workflow="w1", account="b") == ["2"]
    assert ids(user="carol", account="b") == ["3"] and ids() == ["1", "2", "3"]
    c.close()


@case
def policies_whose_names_begin_alike():
    p = api.PolicyServiceStub(d.channel("operator:alice"))
    for name in ("pretrain-long", "pretrain", "pretrain_x", "other"):
        for budget in (1, 2):
            p.ApplyPolicy(api.ApplyPolicyRequest(policy_id=name, document=f"restart:\n  max: {budget}\n"), timeout=10)
    names, token = [], ""
    while True:
        r = p.ListPolicies(api.ListPoliciesRequest(page_size=1, page_token=token), timeout=10)
        assert all(x.version == 2 for x in r.policies), r
        names += [x.name for x in r.policies]
        token = r.next_page_token
        if not token:
            break
    assert names == [f"policies/{n}" for n in ("other", "pretrain", "pretrain-long", "pretrain_x")], names


@case
def names_and_texts():
    create("names")
    revoke = lambda name: fleet.RevokeAgent(api.RevokeAgentRequest(name=name), timeout=10)  # noqa: E731
    for below in ("exclusions/x", "incidents/x", "windows/x", "jobs/x", "nodes/x"):
        refused(lambda: revoke(f"clusters/names/{below}"), S.INVALID_ARGUMENT, "NAME_MALFORMED", "name")
    assert not fleet.ListRevocations(api.ListRevocationsRequest(parent="clusters/names"), timeout=5).revocations
    refused(lambda: fleet.GetCluster(api.GetClusterRequest(name="names"), timeout=5), S.INVALID_ARGUMENT, "NAME_MALFORMED", "name")
    refused(lambda: fleet.GetCluster(api.GetClusterRequest(name="clusters/names/jobs/1"), timeout=5),
            S.INVALID_ARGUMENT, "NAME_MALFORMED", "name")
    mode = lambda reason: fleet.SetClusterMode(api.SetClusterModeRequest(  # noqa: E731
        name="clusters/names", mode=api.MODE_ACT, reason=reason), timeout=10)
    refused(lambda: mode("é" * 501), S.INVALID_ARGUMENT, "TEXT_TOO_LONG", "reason")
    refused(lambda: mode("a\nb"), S.INVALID_ARGUMENT, "TEXT_MALFORMED", "reason")
    mode("é" * 500)
    said = api.AuditServiceStub(d.channel("reader:bob")).ListAuditEvents(
        api.ListAuditEventsRequest(parent="clusters/names", verb="mode.set"), timeout=5).events
    assert [e.detail for e in said] == ["observe -> act: " + "é" * 500], said
    create("c" * 64)
    refused(lambda: create("d" * 65), S.INVALID_ARGUMENT, "CLUSTER_ID_MALFORMED", "cluster_id")
    refused(lambda: create("d" * 300), S.INVALID_ARGUMENT, "CLUSTER_ID_MALFORMED", "cluster_id")
    refused(lambda: fleet.GetCluster(api.GetClusterRequest(name="clusters/" + "d" * 64), timeout=5), S.NOT_FOUND)


@case
def a_request_id_is_its_callers_own():
    create("ids")
    one, two = (api.FleetServiceStub(d.channel(f"operator:{n}")) for n in ("one", "two"))
    add = lambda stub, node, request_id="r": stub.AddExclusion(api.AddExclusionRequest(  # noqa: E731
        parent="clusters/ids", node=node, reason="x", request_id=request_id), timeout=10).exclusion
    a = add(one, "n1")
    assert add(one, "n1").name == a.name
    refused(lambda: add(one, "n2"), S.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    b = add(two, "n2")  # what another used is not used up
    assert b.name != a.name and b.node == "clusters/ids/nodes/n2", b
    again = add(two, "n2")
    assert again.name == b.name, (again, b)
    mode = lambda stub, m: stub.SetClusterMode(api.SetClusterModeRequest(  # noqa: E731
        name="clusters/ids", mode=m, request_id="m"), timeout=10).cluster.mode
    assert mode(one, api.MODE_ACT) == api.MODE_ACT
    fleet.SetClusterMode(api.SetClusterModeRequest(name="clusters/ids", mode=api.MODE_OFF), timeout=10)
    assert mode(two, api.MODE_ACT) == api.MODE_ACT, "the same call of another has its effect"


@case
def a_long_story_keeps_its_end():
    c = advstack.FakeCluster(api, d, "story")
    n = 300
    told = [api.JobObservation(job_id="7", state=api.JOB_STATE_RUNNING, state_raw="RUNNING", batch=True, requeueable=True,
                               submit_unix=1000 + i, incarnation_unix=1000, start_unix=2000 + i, restart_count=i, user="a", nodes="n1",
                               detail_known=True, comment=b"{}", hash=5) for i in range(n)]
    c.hash ^= 5
    c.update(jobs=told)
    entries = c.timeline("7").entries
    assert len(entries) == 512 and entries[-1].attempt_index in (n - 1, n - 2), (len(entries), entries[-1])
    assert {e.attempt_index for e in entries} >= set(range(n - 100, n)) and 0 not in {e.attempt_index for e in entries}
    assert [e.time.seconds for e in entries] == sorted(e.time.seconds for e in entries)
    c.close()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
