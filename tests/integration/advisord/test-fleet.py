#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What people set for the fleet, over the API: exclusions, maintenance windows, incidents, policies; and Watch of all kinds."""
import os
import sys
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


d = advstack.Advisord(**{"detect.log_settle": "50ms"})
operator = api.FleetServiceStub(d.channel("operator:alice"))
reader = api.FleetServiceStub(d.channel("reader:bob"))
NODES = [f"n{i + 1}" for i in range(8)]


def cluster(name, mode=None, **kw):
    return advstack.FakeCluster(api, d, name, mode, NODES, **kw)


def at(seconds):
    t = Timestamp()
    t.FromMicroseconds(int((time.time() + seconds) * 1e6))
    return t


def pages(call, field, **kw):
    """All resources of a list call, two at a time."""
    got, token = [], ""
    while True:
        r = call(page_size=2, page_token=token, **kw)
        part = list(getattr(r, field))
        assert len(part) <= 2
        got += part
        token = r.next_page_token
        if not token:
            return got


@case
def exclusions():
    c = cluster("excl", api.MODE_ACT)
    add = lambda stub=operator, **kw: stub.AddExclusion(api.AddExclusionRequest(**{  # noqa: E731
        "parent": "clusters/excl", "node": "n7", "reason": "smells of smoke", **kw}), timeout=5).exclusion
    listed = lambda **kw: reader.ListExclusions(api.ListExclusionsRequest(**{"parent": "clusters/excl", **kw}), timeout=5)  # noqa: E731
    refused(lambda: add(reader), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: add(node="n[1-2]"), S.INVALID_ARGUMENT, "NODE_NAME_MALFORMED", "node")
    refused(lambda: add(node=""), S.INVALID_ARGUMENT, "NODE_NAME_MALFORMED", "node")
    refused(lambda: add(reason=""), S.INVALID_ARGUMENT, "TEXT_MISSING", "reason")
    refused(lambda: add(reason="a\tb"), S.INVALID_ARGUMENT, "TEXT_MALFORMED", "reason")
    refused(lambda: add(expire_time=at(-60)), S.INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "expire_time")
    refused(lambda: add(expire_time=Timestamp(seconds=-1)), S.INVALID_ARGUMENT, "TIME_MALFORMED", "expire_time")
    refused(lambda: add(parent="clusters/nowhere"), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    refused(lambda: add(parent="clusters/excl/nodes/n7"), S.INVALID_ARGUMENT, "NAME_MALFORMED", "parent")
    refused(lambda: add(parent="clusters/-"), S.NOT_FOUND)
    x = add(request_id="x1")
    assert x.owner == "operator:alice" and x.state == api.EXCLUSION_STATE_ACTIVE and x.etag and x.reason, x
    assert x.node == "clusters/excl/nodes/n7" and x.name.startswith("clusters/excl/exclusions/"), x
    assert add(request_id="x1") == x, "a repeated call has the same answer and no second effect"
    refused(lambda: add(node="n8", request_id="x1"), S.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    refused(lambda: add(), S.ALREADY_EXISTS, "EXCLUSION_EXISTS")
    assert reader.GetExclusion(api.GetExclusionRequest(name=x.name), timeout=5).exclusion == x
    refused(lambda: reader.GetExclusion(api.GetExclusionRequest(name=x.name + "0"), timeout=5), S.NOT_FOUND, "EXCLUSION_NOT_FOUND")
    refused(lambda: reader.GetExclusion(api.GetExclusionRequest(name="clusters/excl"), timeout=5), S.INVALID_ARGUMENT,
            "NAME_MALFORMED", "name")
    node = reader.GetNode(api.GetNodeRequest(name="clusters/excl/nodes/n7"), timeout=5).node
    assert list(node.exclusions) == [x.name] and node.available, node
    refused(lambda: reader.GetNode(api.GetNodeRequest(name="clusters/excl/nodes/n99"), timeout=5), S.NOT_FOUND, "NODE_NOT_FOUND")
    refused(lambda: reader.GetNode(api.GetNodeRequest(name="clusters/excl"), timeout=5), S.INVALID_ARGUMENT, "NAME_MALFORMED")
    assert c.view().exclusions == 1
    # it joins the constraints of what is decided later
    ad = c.fails("1")
    assert list(ad.exclude_nodes) == ["n2", "n7"] and "excluded_by_people" in [r.code for r in ad.reasons], ad
    for n in ("n3", "n4", "n5"):
        add(node=n)
    everything = pages(lambda **kw: listed(**kw), "exclusions")
    assert [e.node[-2:] for e in everything] == ["n5", "n4", "n3", "n7"], everything
    assert [e.name for e in pages(lambda **kw: listed(**{**kw, "parent": "clusters/-"}), "exclusions")] == [e.name for e in everything]
    assert [e.name for e in listed(node="n7").exclusions] == [x.name]
    lift = lambda stub=operator, **kw: stub.LiftExclusion(api.LiftExclusionRequest(**{"name": x.name, **kw}), timeout=5).exclusion  # noqa: E731
    refused(lambda: lift(reader), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: lift(etag="r1"), S.ABORTED, "ETAG_MISMATCH")
    refused(lambda: lift(etag="one"), S.INVALID_ARGUMENT, "ETAG_MALFORMED", "etag")
    refused(lambda: lift(name=x.name + "0"), S.NOT_FOUND, "EXCLUSION_NOT_FOUND")
    refused(lambda: lift(name="clusters/excl/incidents/1"), S.INVALID_ARGUMENT, "NAME_MALFORMED", "name")
    over = lift(etag=x.etag, reason="the toaster", request_id="l1")
    assert over.state == api.EXCLUSION_STATE_LIFTED and over.lifted_by == "operator:alice" and over.lift_reason == "the toaster", over
    assert over.etag != x.etag and lift(etag=x.etag, reason="the toaster", request_id="l1") == over
    refused(lambda: lift(), S.FAILED_PRECONDITION, "EXCLUSION_OVER")
    assert x.name not in [e.name for e in listed().exclusions] and x.name in [e.name for e in listed(show_over=True).exclusions]
    # one that ends by itself
    y = add(node="n8", expire_time=at(0.5))
    wait_for("the exclusion to expire", lambda: reader.GetExclusion(api.GetExclusionRequest(name=y.name), timeout=5)
             .exclusion.state == api.EXCLUSION_STATE_EXPIRED)
    assert [e.verb for e in c.audit() if e.verb.startswith("exclusion.")] == ["exclusion.add"] * 4 + [
        "exclusion.lift", "exclusion.add", "exclusion.expire"]
    before = listed(show_over=True)
    d.kill()
    d.start()
    globals()["operator"] = api.FleetServiceStub(d.channel("operator:alice"))
    globals()["reader"] = api.FleetServiceStub(d.channel("reader:bob"))
    assert reader.ListExclusions(api.ListExclusionsRequest(parent="clusters/excl", show_over=True), timeout=10) == before
    c.close()


@case
def windows():
    c = cluster("work", api.MODE_ACT)
    make = lambda stub=operator, **kw: stub.CreateMaintenanceWindow(api.CreateMaintenanceWindowRequest(**{  # noqa: E731
        "parent": "clusters/work", "end_time": at(3600), "reason": "new switches", **kw}), timeout=5).window
    refused(lambda: make(reader), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: make(reason=""), S.INVALID_ARGUMENT, "TEXT_MISSING", "reason")
    refused(lambda: make(end_time=None), S.INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "end_time")
    refused(lambda: make(start_time=at(-3600)), S.INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "start_time")
    refused(lambda: make(start_time=at(10), end_time=at(5)), S.INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "end_time")
    refused(lambda: make(end_time=at(86400 * 40)), S.INVALID_ARGUMENT, "TIME_OUT_OF_RANGE", "end_time")
    ready = c.fails("1")
    assert ready.actionability == api.ACTIONABILITY_ACTIONABLE and c.order().actionability == api.ACTIONABILITY_ACTIONABLE
    planned = make(start_time=at(3000))
    assert planned.state == api.MAINTENANCE_STATE_PLANNED and planned.owner == "operator:alice", planned
    assert not c.view().HasField("maintenance_end_time")
    soon = make(start_time=at(0.5), request_id="w1")
    wait_for("the window to open", lambda: reader.GetMaintenanceWindow(api.GetMaintenanceWindowRequest(name=soon.name), timeout=5)
             .window.state == api.MAINTENANCE_STATE_OPEN)
    seen = c.view()
    assert seen.HasField("maintenance_end_time") and seen.effective_mode == api.MODE_OBSERVE and seen.mode == api.MODE_ACT, seen
    assert any("maintenance window" in w for w in seen.mode_reasons), seen
    # not begun: lowered, and the agent hears of it
    assert c.order().actionability == api.ACTIONABILITY_SHADOW
    assert c.advice("1").status.reason == api.DISPOSITION_REASON_MAINTENANCE
    inside = c.fails("2")
    assert inside.actionability == api.ACTIONABILITY_SHADOW and inside.status.reason == api.DISPOSITION_REASON_MAINTENANCE, inside
    assert "maintenance" in [r.code for r in inside.reasons], inside
    end = lambda stub=operator, **kw: stub.EndMaintenanceWindow(api.EndMaintenanceWindowRequest(**{"name": soon.name, **kw}), timeout=5).window  # noqa: E731
    refused(lambda: end(reader), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: end(name=soon.name + "0"), S.NOT_FOUND, "WINDOW_NOT_FOUND")
    refused(lambda: reader.GetMaintenanceWindow(api.GetMaintenanceWindowRequest(name=soon.name + "0"), timeout=5), S.NOT_FOUND,
            "WINDOW_NOT_FOUND")
    refused(lambda: end(etag=soon.etag), S.ABORTED, "ETAG_MISMATCH")
    over = end(request_id="e1")
    assert over.state == api.MAINTENANCE_STATE_OVER and over.ended_by == "operator:alice", over
    assert over.end_time.ToMicroseconds() < soon.end_time.ToMicroseconds()
    refused(lambda: end(), S.FAILED_PRECONDITION, "WINDOW_OVER")
    assert not c.view().HasField("maintenance_end_time") and c.view().effective_mode == api.MODE_ACT
    assert c.fails("3").actionability == api.ACTIONABILITY_ACTIONABLE
    listed = lambda **kw: reader.ListMaintenanceWindows(api.ListMaintenanceWindowsRequest(parent="clusters/work", **kw), timeout=5)  # noqa: E731
    assert [w.name for w in listed().windows] == [planned.name]
    assert [w.name for w in pages(lambda **kw: listed(show_over=True, **kw), "windows")] == [soon.name, planned.name]
    assert [e.verb for e in c.audit() if e.verb.startswith("maintenance.")] == ["maintenance.plan", "maintenance.plan",
                                                                               "maintenance.begin", "maintenance.end"]
    c.close()


@case
def an_open_window_refuses_approval():
    c = cluster("closed", api.MODE_APPROVE)
    ad = c.fails("1")
    w = operator.CreateMaintenanceWindow(api.CreateMaintenanceWindowRequest(parent="clusters/closed", end_time=at(600),
                                                                            reason="x"), timeout=5).window
    people = api.AdviceServiceStub(d.channel("operator:alice"))
    yes = lambda: people.ApproveAdvice(api.ApproveAdviceRequest(name=ad.name, generation=1), timeout=5).advice  # noqa: E731
    refused(yes, S.FAILED_PRECONDITION, "MAINTENANCE")
    d.kill()  # the window is there after a restart, too
    d.start()
    globals()["operator"] = api.FleetServiceStub(d.channel("operator:alice"))
    globals()["reader"] = api.FleetServiceStub(d.channel("reader:bob"))
    people = api.AdviceServiceStub(d.channel("operator:alice"))
    refused(yes, S.FAILED_PRECONDITION, "MAINTENANCE")
    operator.EndMaintenanceWindow(api.EndMaintenanceWindowRequest(name=w.name), timeout=5)
    assert yes().actionability == api.ACTIONABILITY_ACTIONABLE
    c.close()


@case
def incidents():
    c = cluster("trouble", api.MODE_ACT, highest_epoch=api.Epoch(term=5, counter=1))  # the store is behind its agent
    c.close()
    again = advstack.FakeAgent(api, d.channel("agent:trouble"), "trouble", instance="i2", highest_epoch=api.Epoch(term=9))
    again.wait("welcome")
    listed = lambda **kw: list(reader.ListIncidents(api.ListIncidentsRequest(**{"parent": "clusters/trouble", **kw}), timeout=5).incidents)  # noqa: E731
    (i,) = listed()
    assert i.kind == api.INCIDENT_KIND_STORE_BEHIND and i.state == api.INCIDENT_STATE_OPEN and i.count == 2, i
    assert i.subject == "clusters/trouble" and "9.0" in i.summary, i
    assert c.view().open_incidents == 1
    close = lambda stub=operator, **kw: stub.CloseIncident(api.CloseIncidentRequest(**{"name": i.name, **kw}), timeout=5).incident  # noqa: E731
    refused(lambda: close(reader), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: close(name=i.name + "0"), S.NOT_FOUND, "INCIDENT_NOT_FOUND")
    refused(lambda: reader.GetIncident(api.GetIncidentRequest(name=i.name + "0"), timeout=5), S.NOT_FOUND, "INCIDENT_NOT_FOUND")
    refused(lambda: close(etag="r1"), S.ABORTED, "ETAG_MISMATCH")
    got = close(etag=i.etag, reason="restored from backup", request_id="c1")
    assert got.state == api.INCIDENT_STATE_CLOSED and got.closed_by == "operator:alice" and got.close_reason, got
    assert reader.GetIncident(api.GetIncidentRequest(name=i.name), timeout=5).incident == got
    assert close(etag=i.etag, reason="restored from backup", request_id="c1") == got
    refused(lambda: close(), S.FAILED_PRECONDITION, "INCIDENT_CLOSED")
    assert listed() == [] and listed(show_closed=True) == [got] and c.view().open_incidents == 0
    again.close()


DOC = "restart:\n  max: 5\nmode: approve\n"


@case
def policies():
    policy = api.PolicyServiceStub(d.channel("operator:alice"))
    read = api.PolicyServiceStub(d.channel("reader:bob"))
    put = lambda stub=policy, **kw: stub.ApplyPolicy(api.ApplyPolicyRequest(**{  # noqa: E731
        "policy_id": "pretrain", "document": DOC, **kw}), timeout=5)
    refused(lambda: put(read), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: put(policy_id="Pre train"), S.INVALID_ARGUMENT, "POLICY_ID_MALFORMED", "policy_id")
    refused(lambda: put(document="restart: {mx: 5}\n"), S.INVALID_ARGUMENT, "POLICY_INVALID", "document.restart.mx")
    refused(lambda: put(document="restart: {max: 5000}\n"), S.INVALID_ARGUMENT, "POLICY_INVALID", "document.restart.max")
    refused(lambda: put(document="a" * 70000), S.INVALID_ARGUMENT, "TEXT_TOO_LONG", "document")
    refused(lambda: put(etag="r1"), S.ABORTED, "ETAG_MISMATCH")
    refused(lambda: read.GetPolicy(api.GetPolicyRequest(name="policies/pretrain"), timeout=5), S.NOT_FOUND, "POLICY_NOT_FOUND")
    dry = put(dry_run=True)
    assert dry.changed and dry.policy.version == 1 and not dry.policy.etag, dry
    refused(lambda: read.GetPolicy(api.GetPolicyRequest(name="policies/pretrain"), timeout=5), S.NOT_FOUND, "POLICY_NOT_FOUND")
    one = put(request_id="p1", reason="first")
    assert one.changed and one.policy.version == 1 and one.policy.owner == "operator:alice" and one.policy.etag, one
    assert put(request_id="p1", reason="first") == one
    same = put()
    assert not same.changed and same.policy == one.policy, same
    two = put(document=DOC + "exclude: {max_percent: 10}\n", etag=one.policy.etag, request_id="p2").policy
    assert two.version == 2
    refused(lambda: put(document="{}\n", etag=one.policy.etag), S.ABORTED, "ETAG_MISMATCH")
    refused(lambda: put(document="{}\n", etag=one.policy.etag, dry_run=True), S.ABORTED, "ETAG_MISMATCH")
    assert put(request_id="p1", reason="first").policy == one.policy, "a repeated call is answered as the first time"
    get = lambda **kw: read.GetPolicy(api.GetPolicyRequest(name="policies/pretrain", **kw), timeout=5).policy  # noqa: E731
    assert get() == two and get(version=1) == one.policy
    refused(lambda: get(version=3), S.NOT_FOUND, "POLICY_NOT_FOUND")
    refused(lambda: read.GetPolicy(api.GetPolicyRequest(name="pretrain"), timeout=5), S.INVALID_ARGUMENT, "NAME_MALFORMED", "name")
    for name in ("a", "b", "z"):
        put(policy_id=name)
    assert [p.name for p in pages(lambda **kw: read.ListPolicies(api.ListPoliciesRequest(**kw), timeout=5), "policies")] == [
        "policies/a", "policies/b", "policies/pretrain", "policies/z"]
    put(document="{}\n")
    versions = pages(lambda **kw: read.ListPolicyVersions(api.ListPolicyVersionsRequest(parent="policies/pretrain", **kw), timeout=5),
                     "policies")
    assert [p.version for p in versions] == [3, 2, 1] and versions[1] == two, versions
    check = lambda text: list(read.ValidatePolicy(api.ValidatePolicyRequest(document=text), timeout=5).problems)  # noqa: E731
    assert check(DOC) == [] and check("") == []
    (problem,) = check("wait:\n  shared_cause: sometimes\n")
    assert problem.key == "wait.shared_cause" and ":2:" in problem.message, problem
    assert check("- a\n")[0].key == "" and check("- a\n")[0].message
    refused(lambda: read.SimulatePolicy(api.SimulatePolicyRequest(document=DOC, parent="clusters/-"), timeout=5), S.UNIMPLEMENTED,
            "POLICY_NOT_EVALUATED")
    audit = api.AuditServiceStub(d.channel("reader:bob")).ListAuditEvents(
        api.ListAuditEventsRequest(parent="clusters/-", verb="policy.apply", page_size=1000), timeout=5).events
    assert [e.subject for e in audit].count("policies/pretrain") == 3 and audit[0].principal == "operator:alice", audit
    d.kill()
    d.start()
    read = api.PolicyServiceStub(d.channel("reader:bob"))
    assert read.GetPolicy(api.GetPolicyRequest(name="policies/pretrain", version=2), timeout=10).policy == two
    globals()["operator"] = api.FleetServiceStub(d.channel("operator:alice"))
    globals()["reader"] = api.FleetServiceStub(d.channel("reader:bob"))


@case
def watch_shows_every_kind():
    c = cluster("seen", api.MODE_APPROVE)
    w = api.WatchServiceStub(d.channel("reader:bob"))
    K = api.ResourceKind
    # checkpoints: test-audit.py
    kinds = [K.Value(k) for k in K.keys()
             if k not in ("RESOURCE_KIND_UNSPECIFIED", "RESOURCE_KIND_EVIDENCE", "RESOURCE_KIND_AUDIT_CHECKPOINT")]
    stream = w.Watch(api.WatchRequest(parent="clusters/-", kinds=kinds), timeout=60)
    state = []
    for e in stream:
        state.append(e)
        if e.type == api.WATCH_EVENT_TYPE_SYNCED:
            break
    assert {e.name for e in state if e.kind == api.RESOURCE_KIND_NODE} >= {f"clusters/seen/nodes/{n}" for n in NODES}
    newest = [e for e in state if e.kind == api.RESOURCE_KIND_POLICY and e.name == "policies/pretrain"]
    assert len(newest) <= 1, "old versions are no part of the current state"
    assert not [e for e in state if e.kind == api.RESOURCE_KIND_AUDIT]
    ad = c.fails("1")
    api.AdviceServiceStub(d.channel("operator:alice")).ApproveAdvice(api.ApproveAdviceRequest(name=ad.name, generation=1), timeout=5)
    x = operator.AddExclusion(api.AddExclusionRequest(parent="clusters/seen", node="n1", reason="r"), timeout=5).exclusion
    win = operator.CreateMaintenanceWindow(api.CreateMaintenanceWindowRequest(parent="clusters/seen", end_time=at(60), reason="r"),
                                           timeout=5).window
    api.PolicyServiceStub(d.channel("operator:alice")).ApplyPolicy(api.ApplyPolicyRequest(policy_id="w", document=DOC), timeout=5)
    act = dict(journal_seq=1, epoch=c.grant.epoch, advice=ad.name, generation=1, attempt=ad.attempt, verb=api.VERB_CANCEL)
    c.agent.durable(c.agent.numbered(action=api.ActionReport(phase=api.ACTION_PHASE_INTENT, **act)))
    got = {}
    for e in stream:
        assert e.type == api.WATCH_EVENT_TYPE_CHANGED and e.WhichOneof("resource") and e.resume_token, e
        got.setdefault(e.kind, []).append(e)
        if e.kind == api.RESOURCE_KIND_AUDIT and e.audit.verb == "action.intent":
            break
    stream.cancel()
    assert set(got) == set(kinds), [K.Name(k) for k in set(kinds) - set(got)]
    assert any(e.exclusion.name == x.name for e in got[api.RESOURCE_KIND_EXCLUSION])
    assert any(e.maintenance_window.name == win.name for e in got[api.RESOURCE_KIND_MAINTENANCE_WINDOW])
    assert got[api.RESOURCE_KIND_INCIDENT][0].incident.kind == api.INCIDENT_KIND_JOB_REVIVED
    assert [e.policy.name for e in got[api.RESOURCE_KIND_POLICY]] == ["policies/w"]
    assert [list(e.node.exclusions) for e in got[api.RESOURCE_KIND_NODE] if e.name.endswith("/n1")] == [[x.name]]
    # audit events come whole and without a gap, and say what the log says
    told = [e.audit for e in got[api.RESOURCE_KIND_AUDIT] if e.cluster == "seen"]
    assert [a.seq for a in told] == list(range(told[0].seq, told[0].seq + len(told)))
    listed = {a.seq: a for a in c.audit(page_size=1000)}
    assert all(listed[a.seq] == a for a in told), told
    assert "policy.apply" in [e.audit.verb for e in got[api.RESOURCE_KIND_AUDIT]]
    c.close()


@case
def audit_alone_in_bulk():
    """More audit events than one read ahead, and a resume in the middle."""
    c = cluster("bulk", api.MODE_OBSERVE)
    w = api.WatchServiceStub(d.channel("reader:bob"))
    ask = dict(parent="clusters/bulk", kinds=[api.RESOURCE_KIND_AUDIT])
    stream = w.Watch(api.WatchRequest(**ask), timeout=60)
    assert next(stream).type == api.WATCH_EVENT_TYPE_SYNCED
    for i in range(100):
        operator.SetClusterMode(api.SetClusterModeRequest(name="clusters/bulk", mode=2 + i % 2, reason=f"turn {i}"), timeout=5)
    first = [next(stream) for i in range(40)]
    stream.cancel()
    rest = w.Watch(api.WatchRequest(resume_token=first[-1].resume_token, **ask), timeout=60)
    more = [next(rest) for i in range(60)]
    rest.cancel()
    said = [e.audit.detail.split(": ")[-1] for e in first + more]
    assert said == [f"turn {i}" for i in range(100)], said
    c.close()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
