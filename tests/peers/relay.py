# SPDX-License-Identifier: Apache-2.0
"""Stands between an agent and a real control plane, sees all of AgentService that passes, and may change it.

Both sides are mTLS: to the agent it is the control plane, to the control plane it is that cluster's agent. A test sets
`up` and `down` to functions (session, message) → message, list of messages, or None to swallow it; without them all goes
through untouched. What went through is kept, and rules() says whether it was according to the contract."""
import queue
import threading
import time
from concurrent import futures

import grpc


class Refusal(Exception):
    """Raised by a hook: ends the agent's call with this status."""

    def __init__(self, code, text, retry_after_ms=None, reason="NOT_NOW"):
        super().__init__(text)
        self.code, self.text, self.retry_after_ms, self.reason = code, text, retry_after_ms, reason


class Heard:
    """One message as it was sent by its side (before hooks), and as it went on."""

    def __init__(self, session, side, sent, passed):
        self.at, self.session, self.side, self.sent, self.passed = time.time(), session, side, sent, passed

    def body(self):
        kind = self.sent.WhichOneof("message")
        return getattr(self.sent, kind) if kind else None


class Tally:
    """What was sent of one job's log. A new stream may send again what an older one has sent."""

    def __init__(self):
        self.seen = self.dropped = self.through = self.at = 0
        self.wrong = None

    def take(self, c, fresh):
        if not fresh and c.offset != self.at + c.dropped_before:
            self.wrong = self.wrong or f"offset {c.offset} after {self.at} with {c.dropped_before} left out"
        if fresh and c.offset - c.dropped_before > self.through:
            self.wrong = self.wrong or f"a new stream begins at {c.offset}, {self.through} was sent"
        self.dropped += max(0, c.offset - max(self.through, c.offset - c.dropped_before))
        self.at = c.offset + len(c.data)
        self.seen += max(0, self.at - max(self.through, c.offset))
        self.through = max(self.through, self.at)


class Session:
    """One Session call of an agent."""

    def __init__(self, relay, number):
        self.relay, self.number = relay, number
        self.begun = time.monotonic()
        self.hello = self.welcome = self.refusal = None
        self.over = threading.Event()
        self.ended_by = None       # (code, text) as the agent was told
        self.out = queue.Queue()   # to the agent
        self.up = queue.Queue()    # to the control plane
        self.pull = 0              # the agent's outstanding one
        self.unasked = 0           # batches of ours that it took for answers
        self.pushes = []

    def send(self, m):
        """To the agent, as if the control plane had said it."""
        self.out.put(m)

    def end(self, code, text, retry_after_ms=None, reason="NOT_NOW"):
        self.refusal = Refusal(code, text, retry_after_ms, reason)
        self.out.put(None)

    def order(self, *orders):
        """Answers the agent's outstanding Pull with these orders; its next Pull then stays here."""
        self.unasked += 1
        self.send(self.relay.api.SessionResponse(advice_batch=self.relay.api.AdviceBatch(pull_id=self.pull, advice=orders)))


class Relay:
    def __init__(self, api, cp, cluster, port=0):
        self.api, self.cp, self.cluster = api, cp, cluster
        self.heard, self.sessions = [], []
        self.pushed = []  # session ids, as log streams named them
        self.logs = {}    # job id → Tally
        self.up = self.down = self.push = None
        self.dials = []
        self.lock = threading.Lock()
        cert, key = cp.ca.issue("relay", "DNS:localhost", "IP:127.0.0.1")
        self.creds = (open(key, "rb").read(), open(cert, "rb").read(), open(cp.ca.cert, "rb").read())
        cert, key = cp.ca.issue(f"relay-agent-{cluster}", f"URI:advisor:agent:{cluster}")
        self.client = (self.creds[2], open(key, "rb").read(), open(cert, "rb").read())
        self.port = port
        self.open()

    def open(self):
        raw = (lambda b: b)
        handlers = {
            "Session": grpc.stream_stream_rpc_method_handler(self._session, self.api.SessionRequest.FromString,
                                                             lambda m: m.SerializeToString()),
            "PushLogs": grpc.stream_unary_rpc_method_handler(self._push, self.api.PushLogsRequest.FromString,
                                                             lambda m: m.SerializeToString()),
            "Renew": grpc.unary_unary_rpc_method_handler(self._renew, raw, raw),
        }
        self.server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0)])
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("advisor.v1.AgentService", handlers),))
        self.port = self.server.add_secure_port(f"127.0.0.1:{self.port}", grpc.ssl_server_credentials(
            [self.creds[:2]], self.creds[2], True))
        self.server.start()

    def close(self):
        """Nobody listens here any more; open() comes back on the same port."""
        self.server.stop(0).wait()

    def channel(self):
        return grpc.secure_channel(f"127.0.0.1:{self.cp.port}", grpc.ssl_channel_credentials(*self.client),
                                   [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)])

    def live(self, match=lambda s: True):
        """The newest session that is welcome and not over."""
        return next((s for s in reversed(self.sessions) if s.welcome and not s.over.is_set() and match(s)), None)

    def note(self, s, side, sent, passed):
        with self.lock:
            self.heard.append(Heard(s, side, sent, passed))

    def all(self, side, kind, session=None, since=0):
        """What that side said of that kind, oldest first."""
        with self.lock:
            return [h for h in self.heard[since:] if h.side == side and h.sent.WhichOneof("message") == kind and
                    (session is None or h.session is session)]

    def tally(self, job):
        return self.logs.get(job) or Tally()

    def mark(self):
        with self.lock:
            return len(self.heard)

    def _through(self, hook, s, m):
        if not hook:
            return [m]
        copy = type(m)()
        copy.CopyFrom(m)
        got = hook(s, copy)
        return got if isinstance(got, list) else [got] if got is not None else []

    def _fail(self, context, r):
        st = self.api.Status(code=r.code.value[0], message=r.text)
        st.details.add().Pack(self.api.ErrorInfo(reason=r.reason, domain="advisor"))
        if r.retry_after_ms is not None:
            info = self.api.RetryInfo()
            info.retry_delay.FromMilliseconds(r.retry_after_ms)
            st.details.add().Pack(info)
        context.set_trailing_metadata((("grpc-status-details-bin", st.SerializeToString()),))
        context.abort(r.code, r.text)

    # Session

    def _session(self, requests, context):
        s = Session(self, len(self.sessions))
        self.sessions.append(s)
        threading.Thread(target=self._from_agent, args=(s, requests), daemon=True).start()
        channel = self.channel()
        call = self.api_stub(channel).Session(iter(s.up.get, None))
        threading.Thread(target=self._from_server, args=(s, call), daemon=True).start()
        try:
            while (m := s.out.get()) is not None:
                if s.welcome is None and m.WhichOneof("message") == "welcome":
                    s.welcome = m.welcome
                yield m
            if s.refusal:
                s.ended_by = (s.refusal.code, s.refusal.text)
                s.over.set()
                self._fail(context, s.refusal)
        finally:
            s.over.set()
            s.up.put(None)
            call.cancel()
            channel.close()

    def api_stub(self, channel):
        return self.api.AgentServiceStub(channel)

    def _from_agent(self, s, requests):
        try:
            for m in requests:
                kind = m.WhichOneof("message")
                if kind == "hello":
                    s.hello = m.hello
                passed = self._through(self.up, s, m)
                self.note(s, "agent", m, passed)
                if kind == "pull":
                    s.pull = m.pull.id
                    if s.unasked:  # the control plane still has the one before
                        s.unasked -= 1
                        continue
                for p in passed:
                    s.up.put(p)
        except Refusal as r:
            s.refusal = r
            s.out.put(None)
        except Exception:  # the call has ended
            pass
        s.up.put(None)

    def _from_server(self, s, call):
        try:
            for m in call:
                if m.WhichOneof("message") == "advice_batch":
                    m.advice_batch.pull_id = s.pull
                passed = self._through(self.down, s, m)
                self.note(s, "server", m, passed)
                for p in passed:
                    s.out.put(p)
        except Refusal as r:
            s.refusal = s.refusal or r
        except grpc.RpcError as e:
            if not s.over.is_set() and not s.refusal:
                # as it came, with its details
                s.refusal = Refusal(e.code(), e.details())
                details = dict(e.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
                for d in self.api.Status.FromString(details).details:
                    info, retry = self.api.ErrorInfo(), self.api.RetryInfo()
                    if d.Unpack(info):
                        s.refusal.reason = info.reason
                    if d.Unpack(retry):
                        s.refusal.retry_after_ms = retry.retry_delay.ToMilliseconds()
        s.out.put(None)

    # PushLogs and Renew

    def _push(self, requests, context):
        chunks = queue.Queue(4)
        channel = self.channel()
        call = self.api_stub(channel).PushLogs.future(iter(chunks.get, None))

        def read():
            fresh, session = {}, None  # the first message of a stream names its session
            try:
                for m in requests:
                    if m.session_id:
                        session = m.session_id
                        self.pushed.append(session)
                    for c in m.chunks:
                        self.logs.setdefault(c.attempt.job_id, Tally()).take(c, fresh.setdefault(c.attempt.job_id, True))
                        fresh[c.attempt.job_id] = False
                    for p in self._through(self.push, session, m):
                        chunks.put(p)
            except Exception:  # the call has ended
                pass
            chunks.put(None)
        threading.Thread(target=read, daemon=True).start()
        context.add_callback(call.cancel)
        try:
            return call.result()
        except grpc.RpcError as e:
            details = dict(e.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
            context.abort(e.code(), e.details())
        except grpc.FutureCancelledError:
            context.abort(grpc.StatusCode.CANCELLED, "cancelled")
        finally:
            channel.close()

    def _renew(self, request, context):
        with self.channel() as channel:
            call = channel.unary_unary("/advisor.v1.AgentService/Renew", lambda b: b, lambda b: b)
            try:
                return call(request, timeout=20)
            except grpc.RpcError as e:
                context.set_trailing_metadata(e.trailing_metadata() or ())
                context.abort(e.code(), e.details())

    # the contract, as far as it can be read off what an agent says

    def rules(self):
        """Every sentence of the protocol that one can check by listening. Returns how many messages were looked at."""
        with self.lock:
            heard = list(self.heard)
        state = {}
        for h in heard:
            st = state.setdefault(h.session.number, dict(n=0, seq=0, beat=0, pull=0, answered=True, granted=False, known={},
                                                         full=False, offered={}, intents=set(), epoch=None, welcome=None))
            try:
                (self._agent_rules if h.side == "agent" else self._server_rules)(h, st)
            except AssertionError as e:
                raise AssertionError(f"session {h.session.number}: {e}; message {h.sent}") from None
        return len(heard)

    def _server_rules(self, h, st):
        for m in h.passed:
            kind = m.WhichOneof("message")
            if kind == "welcome":
                st["welcome"] = m.welcome
                st["granted"] = m.welcome.HasField("grant")
                st["must_be_full"] = m.welcome.send_snapshot
            elif kind == "heartbeat_ack":
                st["granted"] = m.heartbeat_ack.HasField("grant")
            elif kind == "advice_batch":
                for o in m.advice_batch.advice:
                    st["offered"].setdefault(o.name, set()).add(o.generation)
        st["answered"] = st["answered"] or h.sent.WhichOneof("message") == "advice_batch"

    def _agent_rules(self, h, st):
        m, kind = h.sent, h.sent.WhichOneof("message")
        st["n"] += 1
        assert (kind == "hello") == (st["n"] == 1), "Hello comes first, and once"
        if kind in ("hello", "heartbeat", "pull"):
            assert m.seq == 0, "this kind is not numbered"
        else:
            st["seq"] += 1
            assert m.seq == st["seq"], f"seq {m.seq}, expected {st['seq']}"
            assert st["welcome"] is not None, "nothing may be said before Welcome"
        if kind == "hello":
            assert m.hello.cluster and m.hello.instance_id and m.hello.journal_id and m.hello.ceiling.mode, "Hello lacks something"
            assert "advisor.v1" in m.hello.api_versions
        elif kind == "heartbeat":
            st["beat"] += 1
            assert m.heartbeat.id == st["beat"], "heartbeat ids rise by one"
            st["epoch"] = m.heartbeat.epoch if m.heartbeat.HasField("epoch") else None
        elif kind == "pull":
            assert m.pull.id > st["pull"], "pull ids rise"
            st["pull"] = m.pull.id
        elif kind == "state_update":
            self._state_rules(m.state_update, st)
        elif kind == "advice_status":
            r = m.advice_status
            assert r.observed_generation in st["offered"].get(r.advice, ()) or self._offered_before(r, h.session), \
                "a status of what nobody ordered"
            assert r.HasField("epoch") and r.disposition and r.reason
        elif kind == "action":
            a = m.action
            assert a.journal_seq and a.HasField("epoch") and a.verb and a.phase and a.attempt.job_id
            if a.phase == self.api.ACTION_PHASE_INTENT:
                st["intents"].add(a.journal_seq)
                assert a.read_before, "what was read before the write"
            else:
                assert a.journal_seq in st["intents"] or self._intent_before(a, h), "an outcome without its intent"
                assert a.command and a.observed

    def _offered_before(self, r, session):
        return any(o.name == r.advice and o.generation == r.observed_generation for h in self.heard
                   if h.session.number <= session.number for p in h.passed if h.side == "server" and
                   p.WhichOneof("message") == "advice_batch" for o in p.advice_batch.advice)

    def _intent_before(self, a, upto):
        for h in self.heard:
            if h is upto:
                return False
            if h.side == "agent" and h.sent.WhichOneof("message") == "action" and h.sent.action.journal_seq == a.journal_seq and \
               h.sent.action.phase == self.api.ACTION_PHASE_INTENT and \
               h.session.hello.journal_id == upto.session.hello.journal_id:
                return True
        return False

    def _state_rules(self, u, st):
        if u.full_begin:
            st["known"], st["full"] = {}, True
        assert u.full_begin or not st.get("must_be_full"), "Welcome asked for a full snapshot first"
        st["must_be_full"] = False
        known = st["known"]
        for j in u.jobs:
            assert j.hash and j.job_id
            known["j", j.job_id] = j.hash
        for n in u.nodes:
            known["n", n.name] = n.hash
        for j in u.gone_job_ids:
            known.pop(("j", j), None)
        for n in u.gone_nodes:
            known.pop(("n", n), None)
        if u.full_end:
            assert st["full"], "full_end without full_begin"
            st["full"], st["whole"] = False, True
        if st["full"]:
            assert u.digest == 0, "the digest is 0 while a full snapshot is under way"
        elif st.get("whole"):
            x = 0
            for v in known.values():
                x ^= v
            assert u.digest == x, f"digest {u.digest:x}, the records make {x:x}"
