#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What people say to advice, over the API: approve, reject, verdict; who may, by which generation, and what the agent hears."""
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


d = advstack.Advisord(**{"detect.log_settle": "50ms", "decide.advice_valid": "600s"})
fleet = api.FleetServiceStub(d.channel("admin:root"))
reader = api.AdviceServiceStub(d.channel("reader:bob"))
people = api.AdviceServiceStub(d.channel("operator:alice"))


def Cluster(name, mode, **hello):
    return advstack.FakeCluster(api, d, name, mode, **hello)


@case
def approve_makes_it_executable():
    c = Cluster("yes", api.MODE_APPROVE)
    ad = c.fails("1")
    assert ad.actionability == api.ACTIONABILITY_NEEDS_APPROVAL and ad.status.disposition == api.DISPOSITION_PENDING, ad
    assert not ad.HasField("approval") and ad.revision, ad
    waiting = lambda: [a.name for a in reader.ListAdvice(api.ListAdviceRequest(parent="clusters/-", only_awaiting_approval=True),  # noqa: E731
                                                         timeout=5).advice]
    assert waiting() == [ad.name]
    yes = lambda stub=people, **kw: stub.ApproveAdvice(api.ApproveAdviceRequest(**{  # noqa: E731
        "name": ad.name, "generation": 1, **kw}), timeout=10).advice
    refused(lambda: yes(reader), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: yes(generation=0), S.INVALID_ARGUMENT, "GENERATION_MISSING", "generation")
    refused(lambda: yes(generation=2), S.ABORTED, "GENERATION_MISMATCH")
    refused(lambda: yes(reason="x\n"), S.INVALID_ARGUMENT, "TEXT_MALFORMED", "reason")
    refused(lambda: yes(reason="é" * 501), S.INVALID_ARGUMENT, "TEXT_TOO_LONG", "reason")
    refused(lambda: yes(name=ad.name.replace("attempts/0", "attempts/9")), S.NOT_FOUND, "ATTEMPT_NOT_FOUND")
    refused(lambda: yes(name="", ref=c.ref("99")), S.NOT_FOUND, "JOB_NOT_FOUND")
    refused(lambda: yes(name=""), S.INVALID_ARGUMENT, "NAME_MISSING")
    got = yes(reason="looked at n2, é", request_id="r1")
    assert got.actionability == api.ACTIONABILITY_ACTIONABLE and got.generation == 1, got
    assert got.approval.by == "operator:alice" and got.approval.decision == api.APPROVAL_DECISION_APPROVED, got
    assert got.approval.generation == 1 and got.approval.reason == "looked at n2, é" and got.approval.time.seconds, got
    assert yes(reason="looked at n2, é", request_id="r1") == got
    refused(lambda: yes(reason="other", request_id="r1"), S.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    refused(lambda: yes(), S.FAILED_PRECONDITION, "NOT_AWAITING_APPROVAL")
    assert waiting() == []
    order = c.order()
    assert order.name == ad.name and order.actionability == api.ACTIONABILITY_ACTIONABLE, order
    assert order.generation == 1 and order.approved_generation == 1, order
    text = " ".join(reader.ExplainAdvice(api.ExplainAdviceRequest(name=ad.name), timeout=5).text)
    assert "operator:alice approved generation 1: looked at n2" in text, text
    told = {e.kind: e.text for e in c.timeline("1").entries}
    assert told["approval"].startswith("operator:alice approved generation 1: looked at n2") and "verdict" not in told, told
    people.RecordVerdict(api.RecordVerdictRequest(name=ad.name, generation=1, verdict=api.VERDICT_VALUE_WRONG, why="disk"), timeout=10)
    told = {e.kind: e.text for e in c.timeline("1").entries}
    assert told["verdict"] == "operator:alice found generation 1 wrong: disk", told
    audit = api.AuditServiceStub(d.channel("reader:bob")).ListAuditEvents(
        api.ListAuditEventsRequest(parent="clusters/yes", verb="advice.approve"), timeout=5).events
    assert [(e.principal, e.subject) for e in audit] == [("operator:alice", ad.name)], audit
    c.agent.close()


@case
def a_mode_that_acts_needs_no_approval_and_carries_none():
    c = Cluster("acts", api.MODE_ACT)
    ad = c.fails("1")
    assert ad.actionability == api.ACTIONABILITY_ACTIONABLE
    assert c.order().approved_generation == 0
    refused(lambda: people.ApproveAdvice(api.ApproveAdviceRequest(name=ad.name, generation=1), timeout=5),
            S.FAILED_PRECONDITION, "NOT_AWAITING_APPROVAL")
    c.agent.close()


@case
def consent_that_was_lowered_stands_above_approval():
    c = Cluster("lowered", api.MODE_APPROVE, ceiling=api.Ceiling(mode=api.MODE_APPROVE))
    ad = c.fails("1")
    # the agent's journal would not survive: consent falls, the advice is lowered with it or the approval refused
    c.agent.heartbeat(ceiling=api.Ceiling(mode=api.MODE_OBSERVE, reason="changed"))
    wait_for("the ceiling", lambda: fleet.GetCluster(api.GetClusterRequest(name="clusters/lowered"), timeout=5)
             .cluster.effective_mode == api.MODE_OBSERVE)
    refused(lambda: people.ApproveAdvice(api.ApproveAdviceRequest(name=ad.name, generation=1), timeout=5),
            S.FAILED_PRECONDITION, "MODE_TOO_LOW")
    c.agent.close()


@case
def reject_ends_it():
    c = Cluster("no", api.MODE_APPROVE)
    ad = c.fails("1")
    no = lambda stub=people, **kw: stub.RejectAdvice(api.RejectAdviceRequest(**{  # noqa: E731
        "ref": c.ref("1"), "generation": 1, **kw}), timeout=10).advice
    refused(lambda: no(reader), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    got = no(reason="the user is at it", request_id="n1")
    assert got.status.disposition == api.DISPOSITION_ABANDONED and got.status.reason == api.DISPOSITION_REASON_REJECTED, got
    assert got.approval.decision == api.APPROVAL_DECISION_REJECTED and got.actionability != api.ACTIONABILITY_ACTIONABLE, got
    refused(lambda: people.ApproveAdvice(api.ApproveAdviceRequest(name=ad.name, generation=1), timeout=5),
            S.FAILED_PRECONDITION, "NOT_AWAITING_APPROVAL")
    refused(lambda: no(), S.FAILED_PRECONDITION, "NOT_AWAITING_APPROVAL")
    c.agent.close()


@case
def what_is_approved_and_not_begun_can_be_rejected():
    c = Cluster("yesno", api.MODE_APPROVE)
    ad = c.fails("1")
    people.ApproveAdvice(api.ApproveAdviceRequest(name=ad.name, generation=1), timeout=5)
    assert c.order().actionability == api.ACTIONABILITY_ACTIONABLE
    people.RejectAdvice(api.RejectAdviceRequest(name=ad.name, generation=1), timeout=5)
    order = c.order()
    assert order.actionability == api.ACTIONABILITY_SHADOW and order.approved_generation == 0, order
    c.agent.numbered(advice_status=api.AdviceStatusReport(
        advice=ad.name, observed_generation=1, epoch=c.grant.epoch, disposition=api.DISPOSITION_PENDING,
        reason=api.DISPOSITION_REASON_MODE_TOO_LOW))
    c.agent.durable(c.agent.seq)
    assert c.advice("1").status.reason == api.DISPOSITION_REASON_REJECTED
    c.agent.close()


@case
def nobody_approves_in_time():
    late = advstack.Advisord(**{"detect.log_settle": "50ms", "decide.advice_valid": "2s"})
    global d, fleet, reader, people
    keep = d, fleet, reader, people
    d, fleet = late, api.FleetServiceStub(late.channel("admin:root"))
    reader, people = api.AdviceServiceStub(d.channel("reader:bob")), api.AdviceServiceStub(d.channel("operator:alice"))
    try:
        c = Cluster("late", api.MODE_APPROVE)
        ad = c.fails("1")
        got = wait_for("the advice to be given up", lambda: (lambda a: a if a.status.disposition ==
                                                             api.DISPOSITION_ABANDONED else None)(c.advice("1")))
        assert got.status.reason == api.DISPOSITION_REASON_EXPIRED and not got.HasField("approval"), got
        refused(lambda: people.ApproveAdvice(api.ApproveAdviceRequest(name=ad.name, generation=1), timeout=5),
                S.FAILED_PRECONDITION, "NOT_AWAITING_APPROVAL")
        c.agent.close()
    finally:
        d, fleet, reader, people = keep
        late.stop()


@case
def verdicts():
    c = Cluster("verdicts", api.MODE_OBSERVE)
    ad = c.fails("1")
    say = lambda stub=people, **kw: stub.RecordVerdict(api.RecordVerdictRequest(**{  # noqa: E731
        "name": ad.name, "generation": 1, "verdict": api.VERDICT_VALUE_WRONG, **kw}), timeout=10).advice
    refused(lambda: say(reader), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: say(verdict=0), S.INVALID_ARGUMENT, "VERDICT_MALFORMED", "verdict")
    refused(lambda: say(generation=4), S.ABORTED, "GENERATION_MISMATCH")
    got = say(why="it was the network")
    assert got.verdict.value == api.VERDICT_VALUE_WRONG and got.verdict.by == "operator:alice", got
    assert got.verdict.why == "it was the network" and got.generation == 1, got
    got = say(verdict=api.VERDICT_VALUE_RIGHT)  # a later one takes its place
    assert got.verdict.value == api.VERDICT_VALUE_RIGHT and got.verdict.why == "", got
    d.kill()
    d.start()
    again = api.AdviceServiceStub(d.channel("reader:bob")).GetAdvice(api.GetAdviceRequest(name=ad.name), timeout=10).advice
    assert again.verdict == got.verdict
    c.agent.close()


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
