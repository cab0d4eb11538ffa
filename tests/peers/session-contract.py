#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The session contract, held against an agent from outside: through the API, the scheduler's own record, and what passes
between agent and control plane. Both agents have to pass the same.

Usage: session-contract.py peer|ours [words of case names]"""
import os
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sites  # noqa: E402
import advstack  # noqa: E402
import grpc  # noqa: E402

from relay import Refusal  # noqa: E402

kind = sys.argv.pop(1)
site = {"peer": sites.PeerSite, "ours": sites.OurSite}[kind]()
api, relay = site.api, site.relay
S = grpc.StatusCode
CASES = []
UNIT = site.until


def case(f):
    CASES.append(f)
    return f


def heard(side, word, since=0, match=lambda b: True, session=None):
    return [h for h in relay.all(side, word, session, since) if match(h.body())]


def wait_heard(what, side, word, since=0, match=lambda b: True, job=None, timeout=30, session=None):
    """The first such message from then on."""
    return UNIT(what, lambda: next(iter(heard(side, word, since, match, session)), None), job, timeout)


def renewed(old, timeout=30):
    """A later session than that, welcomed."""
    return UNIT("a new session", lambda: relay.live(lambda s: s.number > old.number), timeout=timeout)


def live():
    return UNIT("a live session", relay.live)


def untouched():
    relay.up = relay.down = relay.push = None


def once(word, change):
    """A hook that changes the first message of that kind and lets all else through."""
    done = []

    def hook(s, m):
        if done or m.WhichOneof("message") != word:
            return m
        got = change(s, m)
        if got is not m:
            done.append(m)
        return got
    hook.done = done
    return hook


def settled():
    """As before each case: connected, its state known, nothing between."""
    untouched()
    if not site.agent.alive():
        site.agent.start()
    site.connected()
    return live()


@case
def hello_and_welcome():
    site.mode(api.MODE_ACT)
    site.agent.start()
    c = site.connected()
    s = live()
    h = s.hello
    assert h.cluster == site.cluster and h.agent_version and h.scheduler and h.instance_id and h.journal_persistent, h
    assert h.journal_id == site.agent.journal_id() and h.ceiling.mode == api.MODE_ACT and h.verbs, h
    assert not h.HasField("resume") and abs(h.agent_wall_ms / 1000 - time.time()) < 60, h
    if kind == "ours":
        assert h.limits.message_bytes == 256 << 10 and h.limits.orders == 8 and h.limits.exclude_nodes_bytes == 4095, h.limits
    w = s.welcome
    assert w.limits.message_bytes == 1 << 20 and w.limits.log_message_bytes == 256 << 10, w.limits
    assert w.session_id and w.store_uuid and w.heartbeat_interval_ms == 300 and w.silence_timeout_ms == 2000, w
    assert w.HasField("grant") and w.send_snapshot and w.cluster_mode == api.MODE_ACT, w
    assert c.agent_version == h.agent_version and c.scheduler == h.scheduler and c.ceiling == api.MODE_ACT, c
    assert c.epoch == w.grant.epoch and c.effective_mode == api.MODE_ACT, c
    # another process of the same folder: a new instance, the same journal, which knows the epoch
    site.agent.kill()
    site.agent.start()
    t = renewed(s)
    assert t.hello.instance_id != h.instance_id and t.hello.journal_id == h.journal_id, t.hello
    assert t.hello.highest_epoch == w.grant.epoch, (t.hello, w)
    assert t.welcome.HasField("grant") and t.welcome.grant.epoch.counter > w.grant.epoch.counter, t.welcome


@case
def snapshot_then_deltas():
    s = settled()
    first = wait_heard("a full snapshot", "agent", "state_update", match=lambda u: u.full_begin, session=s)
    wait_heard("its end", "agent", "state_update", match=lambda u: u.full_end, session=s)
    assert heard("agent", "state_update", session=s)[0] is first
    assert wait_heard("its acknowledgement", "server", "ack", session=s).body().durable_through_seq >= 1
    mark = relay.mark()
    job = site.endless()
    h = wait_heard("the job in a delta", "agent", "state_update", mark, lambda u: any(j.job_id == job for j in u.jobs), job)
    assert not h.body().full_begin and not h.body().full_end
    UNIT("the job to run", lambda: (a := site.attempt(job)) and a.state == api.JOB_STATE_RUNNING, job)
    wait_heard("its details", "agent", "state_update", mark, lambda u: any(
        j.job_id == job and j.detail_known and b"advisor" in j.comment and j.stdout_path for j in u.jobs), job)
    j = next(j for h in reversed(heard("agent", "state_update", mark)) for j in h.body().jobs if j.job_id == job)
    assert j.submit_unix and j.incarnation_unix == j.submit_unix and j.start_unix and j.batch and j.nodes, j
    site.end(job)
    UNIT("the job to be cancelled", lambda: site.attempt(job).state == api.JOB_STATE_CANCELLED, job)
    assert not heard("agent", "state_update", mark, lambda u: u.full_begin), "a second snapshot that nobody asked for"


@case
def digest_mismatch_is_mended_by_a_resync():
    s = settled()
    mark = relay.mark()

    def spoil(s, m):
        if not m.state_update.digest:
            return m
        m.state_update.digest ^= 1
        return [m]
    relay.up = once("state_update", spoil)
    job = site.endless()
    wait_heard("a ResyncRequest", "server", "resync", mark, job=job)
    begin = wait_heard("a full snapshot", "agent", "state_update", mark, lambda u: u.full_begin, job)
    assert begin.session is s, "the session need not end for this"
    wait_heard("its end", "agent", "state_update", mark, lambda u: u.full_end, job)
    site.connected()
    site.end(job)
    UNIT("the job to be cancelled", lambda: site.attempt(job).state == api.JOB_STATE_CANCELLED, job)


@case
def a_gap_in_the_sequence_is_refused_and_nothing_is_lost():
    s = settled()
    mark = relay.mark()
    relay.up = once("action", lambda s, m: None)  # swallows the first intent
    job = site.fail()
    UNIT("the session to end", lambda: s.over.is_set(), job)
    untouched()
    assert s.ended_by[0] == S.OUT_OF_RANGE and s.refusal.reason == "SEQUENCE_GAP", s.ended_by
    t = renewed(s)
    site.converged(job)
    intents = heard("agent", "action", mark, lambda a: a.phase == api.ACTION_PHASE_INTENT and a.journal_seq ==
                    heard("agent", "action", mark)[0].body().journal_seq)
    assert len(intents) >= 2 and intents[1].session is t and intents[1].sent.seq >= 1, "the lost intent was told again"
    assert all(a.HasField("outcome_time") for a in site.timeline(job).actions) and len(site.timeline(job).actions) == 3


@case
def a_resume_that_holds_sends_nothing_again():
    s = settled()
    UNIT("all to be acknowledged", lambda: heard("server", "ack", session=s) and heard("server", "ack", session=s)[-1].body()
         .durable_through_seq == max(h.sent.seq for h in relay.heard if h.session is s and h.side == "agent"))
    job = site.endless()
    UNIT("the job to run", lambda: (a := site.attempt(job)) and a.state == api.JOB_STATE_RUNNING, job)
    last = heard("agent", "state_update", session=s)[-1].body().digest
    mark = relay.mark()
    s.end(S.UNAVAILABLE, "the way is cut", 300)
    t = renewed(s)
    assert t.hello.HasField("resume") and t.hello.resume.epoch == s.welcome.grant.epoch, t.hello
    assert t.hello.resume.digest in {h.body().digest for h in heard("agent", "state_update", session=s)} | {last}, t.hello
    assert not t.welcome.send_snapshot and t.welcome.grant.epoch != s.welcome.grant.epoch, t.welcome
    site.connected()
    site.end(job)
    wait_heard("a delta", "agent", "state_update", mark, session=t, job=job)
    UNIT("the job to be cancelled", lambda: site.attempt(job).state == api.JOB_STATE_CANCELLED, job)
    assert not heard("agent", "state_update", mark, lambda u: u.full_begin), "sent again although it was not needed"


@case
def a_resume_that_does_not_hold_sends_all_again():
    s = settled()

    def spoil(s, m):
        if not m.hello.HasField("resume"):
            return m
        m.hello.resume.digest ^= 1
        return [m]
    relay.up = once("hello", spoil)
    mark = relay.mark()
    s.end(S.UNAVAILABLE, "the way is cut", 300)
    t = renewed(s)
    assert t.hello.HasField("resume") and t.welcome.send_snapshot, t.welcome
    wait_heard("a full snapshot", "agent", "state_update", mark, lambda u: u.full_end, session=t)
    site.connected()


@case
def heartbeats_keep_time_and_extend_the_lease():
    settled()
    mark, begin = relay.mark(), time.monotonic()
    UNIT("twenty heartbeats", lambda: len(heard("agent", "heartbeat", mark)) >= 20)
    each = (time.monotonic() - begin) / 20
    assert 0.2 < each < 0.6, f"one each {each:.2f} s where 0.3 s were asked for"
    beats = heard("agent", "heartbeat", mark)
    epoch = site.view().epoch
    assert all(h.body().epoch == epoch and h.body().cluster_mode == api.MODE_ACT for h in beats)
    wait_heard("their answers", "server", "heartbeat_ack", mark, lambda a: a.id >= beats[-1].body().id)
    acks = heard("server", "heartbeat_ack", mark)
    assert all(a.body().grant.epoch == epoch and 11000 < a.body().grant.lease_ms <= 12000 for a in acks), acks[-1].sent


def shorten(s, m):
    """A lease that never covers a command."""
    word = m.WhichOneof("message")
    if word in ("welcome", "heartbeat_ack") and getattr(m, word).HasField("grant"):
        getattr(m, word).grant.lease_ms = sites.BOUND_MS + sites.DEADLINE_MS - 500
    return m


@case
def a_lease_too_short_for_a_command_lets_nothing_be_written():
    s = settled()

    relay.down = shorten
    mark = relay.mark()
    s.end(S.UNAVAILABLE, "the way is cut", 300)
    renewed(s)
    job = site.fail()
    wait_heard("the order", "server", "advice_batch", mark, lambda b: any(
        o.attempt.job_id == job and o.actionability == api.ACTIONABILITY_ACTIONABLE for o in b.advice), job)
    time.sleep(3)  # time in which it could be broken
    assert not site.writes(job), site.explain(job)
    untouched()
    site.converged(job)


@case
def a_standby_stands_by_and_takes_over():
    s = settled()
    second = site.another("second")
    second.start()
    b = UNIT("the second's session", lambda: relay.live(lambda x: x.hello.journal_id != s.hello.journal_id))
    assert not b.welcome.HasField("grant") and b.welcome.lease_holder == s.hello.journal_id, b.welcome
    assert not b.welcome.send_snapshot
    UNIT("some heartbeats of the standby", lambda: len(heard("agent", "heartbeat", session=b)) >= 5)
    said = {h.sent.WhichOneof("message") for h in relay.heard if h.session is b and h.side == "agent"}
    assert said <= {"hello", "heartbeat", "pull"}, f"a standby has nothing to tell, it said {said}"
    assert all(not h.body().HasField("epoch") for h in heard("agent", "heartbeat", session=b))
    assert all(not h.body().HasField("grant") for h in heard("server", "heartbeat_ack", session=b))
    assert b.welcome.session_id not in relay.pushed
    job = site.fail()
    site.converged(job)
    assert {a.journal_id for a in site.timeline(job).actions} == {s.hello.journal_id}
    # the holder dies; nobody acts until its lease is over, then the other one does, under a higher epoch
    site.agent.kill()
    died = time.monotonic()
    job = site.fail()
    g = wait_heard("the take-over", "server", "heartbeat_ack", match=lambda a: a.HasField("grant"), session=b, timeout=40)
    assert time.monotonic() - died > 9, "given away while the first could still act"
    grant = g.body().grant
    assert grant.epoch.counter > s.welcome.grant.epoch.counter and grant.settle, grant
    wait_heard("a ResyncRequest", "server", "resync", session=b)
    wait_heard("a full snapshot", "agent", "state_update", match=lambda u: u.full_end, session=b)
    first_agent, site.agent = site.agent, second
    site.connected()
    site.converged(job)
    assert {a.journal_id for a in site.timeline(job).actions} == {b.hello.journal_id}
    # the first one comes back and stands by
    first_agent.start()
    c = UNIT("the first one back", lambda: relay.live(lambda x: x.number > b.number))
    assert not c.welcome.HasField("grant") and c.welcome.lease_holder == b.hello.journal_id, c.welcome
    second.kill()
    site.agent = first_agent
    site.connected()
    assert site.view().epoch.counter > grant.epoch.counter


@case
def open_intents_are_handed_over():
    """The first dies between its command and the outcome; the second is told, waits, looks, and does not do it again."""
    s = settled()
    second = next((a for a in site.agents if a is not site.agent), None) or site.another("second")
    site.agent.kill()
    site.agent.start(die_at="before_outcome")
    s = renewed(s)
    site.connected()
    second.start()
    b = UNIT("the second's session", lambda: relay.live(lambda x: x.hello.journal_id != s.hello.journal_id))
    job = site.fail(seen_by=second)
    site.agent.wait_dead()
    assert site.writes(job) == ["preserve"], site.writes(job)
    intent = UNIT("the intent to be recorded", lambda: (t := site.timeline(job)) and list(t.actions), job)[0]
    assert not intent.HasField("outcome_time")
    g = wait_heard("the take-over", "server", "heartbeat_ack", match=lambda a: a.HasField("grant"), session=b, timeout=40)
    open_ = list(g.body().grant.open_intents)
    assert g.body().grant.settle and [(o.job_id, o.verb, o.journal_seq) for o in open_] == [
        (job, api.VERB_PRESERVE, intent.journal_seq)], g.body()
    taken = time.monotonic()
    first, site.agent = site.agent, second
    wait_heard("its first intent", "agent", "action", session=b, timeout=40)
    assert time.monotonic() - taken > sites.BOUND_MS / 1000, "it did not wait for what could still land"
    site.converged(job)
    # and one that comes back to its own open intent says so in Hello
    second.kill()
    first.start()
    site.agent = first
    t = renewed(b, 60)
    if t.hello.journal_id != s.hello.journal_id or not t.hello.open_intents:
        raise AssertionError(f"its open intent is not in Hello: {t.hello}")
    assert t.hello.open_intents[0].job_id == job and t.hello.open_intents[0].verb == api.VERB_PRESERVE
    site.connected()
    UNIT("its outcome to be told", lambda: all(a.HasField("outcome_time") for a in site.timeline(job).actions), job)
    assert site.writes(job) == ["preserve", "constrain", "release"]


@case
def orders_are_pulled_and_carried_out_once():
    s = settled()
    mark = relay.mark()
    job = site.fail()
    a = site.converged(job)
    assert a.generation == 1 and a.status.observed_generation == 1 and a.desired_state == api.DESIRED_STATE_RESTARTED, a
    batch = wait_heard("the order", "server", "advice_batch", mark, lambda b: any(o.attempt.job_id == job for o in b.advice))
    o = next(o for o in batch.body().advice if o.attempt.job_id == job)
    assert o.name.endswith("/advice") and o.generation == 1 and o.exclude_nodes == site.attempt(job).nodes and o.valid_for_ms
    # each write: an intent, then its outcome, in the order of the journal
    acts = [h.body() for h in heard("agent", "action", mark, lambda m: m.attempt.job_id == job)]
    assert [(x.verb, x.phase) for x in acts] == [(v, p) for v in (api.VERB_PRESERVE, api.VERB_CONSTRAIN, api.VERB_RELEASE)
                                                 for p in (api.ACTION_PHASE_INTENT, api.ACTION_PHASE_OUTCOME)], acts
    epoch = site.view().epoch
    assert all(x.generation == 1 and x.epoch == epoch and x.advice == o.name for x in acts)
    assert all(x.command == api.COMMAND_RESULT_ACCEPTED and x.observed == api.OBSERVED_YES for x in acts[1::2])
    seqs = [x.journal_seq for x in acts[::2]]
    assert seqs == sorted(seqs) and len(set(seqs)) == 3
    t = site.timeline(job)
    assert [x.verb for x in t.actions] == [x.verb for x in acts[::2]] and all(
        x.journal_id == s.hello.journal_id and x.observed == api.OBSERVED_YES for x in t.actions)
    # the one outstanding Pull
    pulls = heard("agent", "pull", session=live())
    answers = heard("server", "advice_batch", session=live())
    assert len(pulls) - len(answers) in (0, 1), (len(pulls), len(answers))


@case
def an_older_generation_is_ignored():
    s = settled()
    batches = []

    def raise_it(s, m):
        if m.WhichOneof("message") == "advice_batch":
            for o in m.advice_batch.advice:
                o.generation += 5
                batches.append(o)
        return m

    def lower_it(s, m):
        word = m.WhichOneof("message")
        if word == "advice_status" and m.advice_status.observed_generation > 5:
            m.advice_status.observed_generation -= 5
        elif word == "action" and m.action.generation > 5:
            m.action.generation -= 5
        return m
    relay.down, relay.up = raise_it, lower_it
    job = site.fail()
    UNIT("the order", lambda: any(o.attempt.job_id == job for o in batches), job)
    old = api.AdviceOrder()
    old.CopyFrom(next(o for o in batches if o.attempt.job_id == job))
    old.generation, old.exclude_nodes = 2, "nowhere"
    live().order(old)
    site.converged(job)
    assert site.job(job)["excluded"] != "nowhere"
    untouched()
    s = live()
    s.end(S.UNAVAILABLE, "the way is cut", 300)
    renewed(s)
    site.connected()


@case
def a_status_of_another_generation_changes_nothing():
    s = settled()

    def other(s, m):
        if m.advice_status.disposition != api.DISPOSITION_CONVERGED:
            return m
        m.advice_status.observed_generation = 99
        return [m]
    hook = relay.up = once("advice_status", other)
    job = site.fail()
    UNIT("the agent to say that it converged", lambda: hook.done, job)
    seq = hook.done[0].seq
    wait_heard("its acknowledgement", "server", "ack", match=lambda a: a.durable_through_seq >= seq, session=s, job=job)
    a = site.advice(job)
    assert a.status.disposition == api.DISPOSITION_PENDING, a
    # in the next session the order comes again, and the answer is told again
    s.end(S.UNAVAILABLE, "the way is cut", 300)
    renewed(s)
    site.converged(job)


@case
def an_order_that_turns_into_no_action_is_let_go_and_acknowledged():
    s = settled()
    mark = relay.mark()
    relay.down = shorten  # so that it is not carried out before it changes
    s.end(S.UNAVAILABLE, "the way is cut", 300)
    renewed(s)
    site.connected()
    job = site.weak_fault()
    a = UNIT("the order", lambda: (a := site.advice(job)) and a.desired_state == api.DESIRED_STATE_RESTARTED and a, job)
    wait_heard("it to be sent", "server", "advice_batch", mark, lambda b: any(o.name == a.name for o in b.advice), job)
    site.say(job, "ModuleNotFoundError: No module named 'flash_attn'")
    b = UNIT("another opinion", lambda: (b := site.advice(job)) and b.generation == 2 and b, job)
    assert b.desired_state == api.DESIRED_STATE_NO_ACTION, b
    m = wait_heard("an answer", "agent", "advice_status", mark, lambda m: m.advice == a.name and m.observed_generation == 2, job)
    assert m.body().disposition == api.DISPOSITION_CONVERGED, m.sent
    UNIT("it to be heard", lambda: site.advice(job).status.observed_generation == 2, job)
    untouched()
    time.sleep(2)  # time in which the lease would suffice again
    assert not site.writes(job), site.explain(job)


@case
def advice_that_is_for_reading_only_is_not_sent():
    settled()
    mark = relay.mark()
    job = site.user_fault()
    a = UNIT("the advice", lambda: site.advice(job), job)
    assert a.desired_state == api.DESIRED_STATE_NO_ACTION and a.status.disposition == api.DISPOSITION_CONVERGED, a
    UNIT("some heartbeats", lambda: len(heard("agent", "heartbeat", mark)) >= 5)
    assert not heard("server", "advice_batch", mark, lambda b: any(o.name == a.name for o in b.advice))
    assert not site.writes(job)


@case
def what_the_agent_does_not_know_is_answered_unsupported():
    settled()

    def future_state(o):
        o.desired_state = 77

    def future_feature(o):
        o.required_features.append("time_travel")
    for change in (future_state, future_feature):
        mark = relay.mark()

        def spoil(s, m):
            if m.WhichOneof("message") == "advice_batch":
                for o in m.advice_batch.advice:
                    change(o)
            return m
        relay.down = spoil
        job = site.fail()
        a = UNIT("the answer", lambda: (a := site.advice(job)) and a.status.disposition == api.DISPOSITION_ABANDONED and a, job)
        assert a.status.reason == api.DISPOSITION_REASON_UNSUPPORTED_BY_AGENT, a
        assert not site.writes(job) and heard("agent", "advice_status", mark)
        untouched()


@case
def unknown_messages_and_values_are_passed_over():
    """A later control plane may say more than this agent knows; it goes on."""
    s = settled()
    mark = relay.mark()
    s.send(api.SessionResponse.FromString(b"\x9a\x06\x02\x08\x01"))           # a message of number 99
    later = api.SessionResponse.FromString(b"\x3a\x00" + b"\xfa\x06\x01x")    # an empty Goodbye would end it: only the unknown
    later.ClearField("message")
    s.send(later)
    beat = api.HeartbeatAck.FromString(heard("server", "heartbeat_ack", session=s)[-1].body().SerializeToString() + b"\xa0\x06\x07")
    s.send(api.SessionResponse(heartbeat_ack=beat))
    UNIT("more heartbeats", lambda: len(heard("agent", "heartbeat", mark, session=s)) >= 5)
    assert not s.over.is_set()


@case
def a_lowered_mode_is_obeyed_and_said_to_be():
    s = settled()
    mark = relay.mark()
    site.mode(api.MODE_OBSERVE)
    wait_heard("the agent to be told", "server", "heartbeat_ack", mark, lambda a: a.cluster_mode == api.MODE_OBSERVE)
    wait_heard("the agent to say so", "agent", "heartbeat", mark, lambda h: h.cluster_mode == api.MODE_OBSERVE, timeout=5)
    UNIT("it to be effective", lambda: site.view().mode_effective)
    job = site.fail()
    a = UNIT("the advice", lambda: site.advice(job), job)
    assert a.actionability == api.ACTIONABILITY_SHADOW, a
    time.sleep(3)  # time in which it could be broken
    assert not site.writes(job), site.explain(job)
    # what was advised under the lower mode stays as it is when the mode is raised
    site.mode(api.MODE_ACT)
    UNIT("it to be effective", lambda: site.view().mode_effective)
    time.sleep(1)
    assert not site.writes(job), site.explain(job)
    assert s is live(), "a session need not end for that"


@case
def a_held_job_is_given_back_when_the_mode_is_lowered():
    s = settled()
    site.agent.kill()
    site.agent.start(die_at="after_outcome")
    renewed(s)
    site.connected()
    job = site.fail()
    site.agent.wait_dead()
    assert site.writes(job) == ["preserve"], site.writes(job)
    site.mode(api.MODE_OBSERVE)
    site.agent.start()
    UNIT("it to be given back and done", lambda: site.job(job)["state"] == "COMPLETED", job, 60)
    assert site.job(job)["excluded"] == "" and site.writes(job).count("preserve") == 1, site.explain(job)
    site.mode(api.MODE_ACT)
    site.connected()


@case
def the_sites_ceiling_is_told_and_obeyed():
    settled()
    mark = relay.mark()
    site.agent.ceiling("observe")
    wait_heard("the agent to say so", "agent", "heartbeat", mark, lambda h: h.ceiling.mode == api.MODE_OBSERVE)
    UNIT("the cluster to show it", lambda: site.view().ceiling == api.MODE_OBSERVE)
    assert site.view().effective_mode == api.MODE_OBSERVE
    # even a control plane that was taken over cannot make the agent exceed it
    s = live()

    def lie(s, m):
        if m.WhichOneof("message") == "heartbeat":
            m.heartbeat.ceiling.CopyFrom(api.Ceiling(mode=api.MODE_ACT))
        return m
    relay.up = lie
    UNIT("the cluster to believe in act", lambda: site.view().effective_mode == api.MODE_ACT)
    job = site.fail()
    wait_heard("the order", "server", "advice_batch", mark, lambda b: any(o.attempt.job_id == job for o in b.advice), job)
    time.sleep(3)  # time in which it could be broken
    assert not site.writes(job), site.explain(job)
    UNIT("it to say why not", lambda: site.advice(job).status.reason in (
        api.DISPOSITION_REASON_MODE_TOO_LOW, api.DISPOSITION_REASON_NOT_AUTHORIZED_BY_CLUSTER), job)
    untouched()
    site.agent.ceiling("act")
    UNIT("the cluster to show it", lambda: site.view().ceiling == api.MODE_ACT)
    site.converged(job)
    assert s is live()


@case
def silence_of_the_agent_ends_its_session():
    s = settled()
    site.agent.signal(signal.SIGSTOP)
    begin = time.monotonic()
    try:
        UNIT("the session to end", lambda: s.over.is_set(), timeout=20)
        assert s.ended_by[0] == S.DEADLINE_EXCEEDED and s.refusal.reason == "AGENT_SILENT", s.ended_by
        assert time.monotonic() - begin > sites.SILENCE_S - 0.5
        UNIT("it to be shown", lambda: site.view().agent_state == api.AGENT_STATE_UNREACHABLE)
    finally:
        site.agent.signal(signal.SIGCONT)
    renewed(s)
    site.connected()


@case
def silence_of_the_control_plane_ends_it_too():
    s = settled()
    relay.down = lambda s, m: None if m.WhichOneof("message") == "heartbeat_ack" else m
    begin = time.monotonic()
    UNIT("the agent to give it up", lambda: s.over.is_set(), timeout=20)
    took = time.monotonic() - begin
    assert s.ended_by is None and took > sites.SILENCE_S - 0.5, (s.ended_by, took)
    untouched()
    renewed(s)
    site.connected()


def attempts(n, timeout=60):
    """When the next @n sessions were begun."""
    at = len(relay.sessions)
    UNIT(f"{n} attempts", lambda: len(relay.sessions) >= at + n, timeout=timeout)
    return [s.begun for s in relay.sessions[at:at + n]]


@case
def a_refused_agent_comes_back_when_it_is_told_to():
    def refuse(s, m):
        if m.WhichOneof("message") == "hello":
            raise Refusal(S.RESOURCE_EXHAUSTED, "too many sessions", 2500)
        return m
    s = settled()
    relay.up = refuse
    s.end(S.RESOURCE_EXHAUSTED, "too many sessions", 2500)
    ended = time.monotonic()
    begun = [ended] + attempts(3)
    gaps = [b - a for a, b in zip(begun, begun[1:])]
    assert all(2.4 < g < 4.5 for g in gaps), f"told to come back after 2.5 s, it came after {gaps}"
    untouched()
    t = renewed(s)
    site.connected()
    t.send(api.SessionResponse(goodbye=api.Goodbye(reason="moving", retry_after_ms=3000)))
    left = time.monotonic()
    UNIT("it to leave", lambda: t.over.is_set())
    came = attempts(1)[0] - left
    assert 2.9 < came < 5, f"told to come back after 3 s, it came after {came:.1f}"
    site.connected()


@case
def nobody_there_is_no_reason_to_hammer():
    s = settled()
    relay.close()
    UNIT("the session to be over", lambda: s.over.is_set())
    time.sleep(4)
    relay.open()
    begin = time.monotonic()
    renewed(s)
    assert time.monotonic() - begin < 6, "backoff_max is 1 s"
    site.connected()


def counts_add_up(job, size):
    """Waits until all of the job's log was sent or left out; then everybody's count is the same."""
    UNIT(f"all {size} bytes to be sent or left out", lambda: site.written(job) == size == relay.tally(job).through, job, 120)
    t = relay.tally(job)
    assert not t.wrong, t.wrong
    assert t.seen + t.dropped == size, (t.seen, t.dropped)
    a = UNIT(f"the count to be {t.dropped}", lambda: (a := site.attempt(job)) and a.telemetry_dropped_bytes == t.dropped and a, job)
    told = heard("agent", "telemetry", match=lambda m: m.attempt.job_id == job)
    assert told[-1].body().dropped_bytes == t.dropped, told[-1].sent
    assert a.telemetry == (api.TELEMETRY_STATE_PARTIAL if t.dropped else api.TELEMETRY_STATE_COMPLETE), a
    assert len(told) < 100, f"{len(told)} reports for one job"
    return t.seen, t.dropped


@case
def a_log_flood_delays_no_heartbeat():
    """Jobs write as fast as the disk takes it, and the agent reads as fast as it may. The silence limit is 2 s."""
    settled()
    site.agent.stop()
    plain = dict(site.agent.config)
    site.much_logs(site.agent)
    site.agent.start()
    UNIT("its session", lambda: relay.live())
    site.connected()
    s, epoch, mark = live(), site.view().epoch, relay.mark()
    size, begun = 250_000_000, time.monotonic()
    jobs = [site.noisy(size) for _ in range(3)]
    shed = 0
    for job, _ in jobs:
        seen, dropped = counts_add_up(job, size)
        shed += dropped
    took = time.monotonic() - begun
    sent = heard("agent", "heartbeat", mark, session=s)
    gaps = [b.at - a.at for a, b in zip(sent, sent[1:])]
    acks = {h.body().id: h.at for h in heard("server", "heartbeat_ack", mark, session=s)}
    waits = [acks[h.body().id] - h.at for h in sent if h.body().id in acks]
    print(f"# {3 * size / 1e6 / took:.0f} MB/s written, {shed / 1e6:.0f} of {3 * size / 1e6:.0f} MB left out in {took:.1f} s; "
          f"{len(sent)} heartbeats, {max(gaps):.2f} s apart at most, answered after {max(waits):.2f} s at most", flush=True)
    assert max(gaps) < sites.SILENCE_S and max(waits) < sites.SILENCE_S, (max(gaps), max(waits))
    assert live() is s and not s.over.is_set(), "the session did not last"
    assert site.view().epoch == epoch and site.view().agent_state == api.AGENT_STATE_CONNECTED
    for _, until in jobs:
        open(until, "w").close()
    site.agent.stop()
    site.agent.config = plain
    site.agent.start()
    site.connected()


@case
def shed_log_bytes_are_counted_and_told():
    s = settled()
    site.agent.stop()
    plain = dict(site.agent.config)
    site.few_logs(site.agent)
    site.agent.start()
    renewed(s)
    site.connected()
    size = 30_000_000  # more than is read at once for a start
    job, until = site.noisy(size)
    a = UNIT("telemetry to be PARTIAL", lambda: (a := site.attempt(job)) and
             a.telemetry == api.TELEMETRY_STATE_PARTIAL and a.telemetry_dropped_bytes and a, job)
    assert a.telemetry_reason, a
    seen, dropped = counts_add_up(job, size)
    assert dropped > 0 and seen > 0, (seen, dropped)
    open(until, "w").close()
    site.agent.stop()
    site.agent.config = plain
    site.agent.start()
    site.connected()


@case
def a_lower_limit_of_the_control_plane_is_kept():
    """Ours reads pieces of up to 32 kB; told that less is taken, it sends less, and nothing is lost."""
    if kind != "ours":
        return  # the other one's pieces are small
    s = settled()
    pushed = []

    def lower(_, m):
        m.welcome.limits.log_message_bytes = 9000
        return api.SessionResponse.FromString(m.SerializeToString())

    def push(session, m):
        if session != s.welcome.session_id:  # what that one still had under way knew of no limit
            pushed.append(m.ByteSize())
        return m
    relay.down, relay.push = once("welcome", lower), push
    site.agent.kill()
    site.agent.start()
    renewed(s)
    site.connected()
    size = 300_000
    job, until = site.noisy(size)
    seen, dropped = counts_add_up(job, size)
    assert (seen, dropped) == (size, 0) and max(pushed) <= 9000 and max(pushed) > 8000, (seen, dropped, max(pushed))
    open(until, "w").close()


@case
def a_whole_log_is_complete():
    s = settled()
    job = site.fail()
    site.converged(job)
    a = UNIT("telemetry to be COMPLETE", lambda: (a := site.attempt(job)) and a.telemetry == api.TELEMETRY_STATE_COMPLETE and a, job)
    assert a.telemetry_dropped_bytes == 0
    assert s.welcome.session_id in relay.pushed, "the first message names the session"


@case
def a_killed_control_plane_loses_nothing_told():
    s = settled()
    job = site.fail()
    UNIT("the advice", lambda: site.advice(job), job)
    site.cp.kill()
    site.cp.start()
    renewed(s)
    site.converged(job)


@case
def a_store_behind_the_journal_is_met_with_observation():
    s = settled()
    db = site.cp.config["store.path"]
    site.cp.stop()
    saved = {f: open(db + f, "rb").read() for f in ("", "-wal", "-shm") if os.path.exists(db + f)}
    site.cp.start()
    t = renewed(s)
    site.connected()
    assert t.welcome.grant.epoch.counter > s.welcome.grant.epoch.counter
    site.cp.stop()
    for f in ("", "-wal", "-shm"):
        if os.path.exists(db + f):
            os.unlink(db + f)
    for f, data in saved.items():
        with open(db + f, "wb") as out:
            out.write(data)
    site.cp.start()
    u = renewed(t)
    assert u.hello.highest_epoch == t.welcome.grant.epoch, u.hello
    assert u.welcome.grant.epoch.term > t.welcome.grant.epoch.term and u.welcome.cluster_mode == api.MODE_OBSERVE, u.welcome
    c = UNIT("the cluster to say so", lambda: (c := site.view()) and c.effective_mode == api.MODE_OBSERVE and c)
    assert any("behind" in r for r in c.mode_reasons), c
    UNIT("it to be obeyed", lambda: site.view().mode_effective)
    job = site.fail()
    a = UNIT("the advice", lambda: site.advice(job), job)
    assert a.actionability == api.ACTIONABILITY_SHADOW, a
    assert not site.writes(job)
    site.mode(api.MODE_ACT)
    site.connected()
    site.converged(site.fail())


@case
def all_that_was_said_kept_the_rules():
    n = relay.rules()
    print(f"# {n} messages of {len(relay.sessions)} sessions", flush=True)
    assert n > 500 or len(sys.argv) > 1
    site.close()


try:
    advstack.run(CASES)
finally:  # when only some were run: threads that serve would keep the process
    for a in site.agents:
        a.kill()
    relay.close()
