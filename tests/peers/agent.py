#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A second agent, written from proto/ and docs/agent-protocol.md alone, for the small scheduler beside it.

It is here to show that the contract can be kept by somebody who has not read ours: the suite beside it holds both to the
same. One thread decides everything; others only bring it messages (a session's reader) or take bytes away (the log
stream). All state that must survive is in the journal.

Usage: agent.py CONFIG.json, see DEFAULTS below."""
import hashlib
import json
import os
import queue
import random
import signal
import sys
import threading
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration", "lib"))
import advstack  # noqa: E402
import grpc  # noqa: E402

from scheduler import Client, Refused  # noqa: E402

DEFAULTS = {
    "server_name": "localhost", "poll_ms": 1000, "backoff_min_ms": 100, "backoff_max_ms": 1000, "landing_bound_ms": 2000,
    "command_deadline_ms": 3000, "ceiling": None, "max_lag_bytes": 64 << 20, "log_rate": 1 << 30, "die_at": None,
}
CHUNK = 32 << 10           # log bytes in one message
LOGS_QUEUED = 8            # messages that wait for the log stream; the file is the rest of the buffer
UPDATE_JOBS = 50           # jobs or nodes in one StateUpdate
REREAD_S = 10              # log bytes that may not have been judged when a stream broke
LINGER_S = 5               # a log is read on after its attempt's end
FRESH_S = 60               # an attempt first seen so soon after its end is read as well

api = None  # the stubs


def boot():
    """Counts suspend, so a lease cannot outlive the sleep of its holder."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def say(text, **kw):
    print(f"{time.time():.3f} {text} " + " ".join(f"{k}={v}" for k, v in kw.items()), flush=True)


class Journal:
    """Lines that are on disk before anything that rests on them happens."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.path = f"{folder}/journal"
        self.id, self.epoch, self.seq = None, (0, 0), 0
        self.steps = {}   # seq → {"intent": …, "outcome": … or None}
        self.holds = {}   # job id → the intent that made the hold
        self.incarnations = {}  # job id → first submit time, once it was seen
        if os.path.exists(self.path):
            with open(self.path) as f:
                for line in f:
                    if line.endswith("\n"):  # a torn last line was never relied on
                        self._take(json.loads(line))
        self.file = open(self.path, "a")
        if self.id is None:
            self.put(kind="journal", id=str(uuid.uuid4()))

    def _take(self, r):
        kind = r["kind"]
        if kind == "journal":
            self.id = r["id"]
        elif kind == "epoch":
            self.epoch = tuple(r["epoch"])
        elif kind == "intent":
            self.seq = r["seq"]
            self.steps[r["seq"]] = {"intent": r, "outcome": None}
        elif kind == "outcome":
            self.steps[r["seq"]]["outcome"] = r
        elif kind == "hold":
            self.holds[r["job"]] = r
        elif kind == "hold_end":
            self.holds.pop(r["job"], None)
        elif kind == "incarnation":
            self.incarnations[r["job"]] = r["submit"]

    def put(self, **r):
        self.file.write(json.dumps(r) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        self._take(r)

    def open_steps(self):
        return [s["intent"] for s in self.steps.values() if not s["outcome"]]


class Snapshot:
    """What the control plane was told, by hash, and what it has yet to be told."""

    def __init__(self):
        self.records, self.sent, self.digest = {}, {}, 0   # by ("job" | "node", id)
        self.full, self.begun, self.observed_ms = True, False, 0

    def observe(self, records):
        self.records = records
        self.observed_ms = int(time.time() * 1000)

    def restart(self):
        self.sent, self.digest, self.full, self.begun = {}, 0, True, False

    def updates(self):
        """What there is to tell now, in pieces."""
        gone = [k for k in self.sent if k not in self.records]
        news = [k for k, m in self.records.items() if self.sent.get(k) != m.hash]
        while self.observed_ms and (self.full or gone or news):
            u = api.StateUpdate(observe_wall_ms=self.observed_ms, full_begin=self.full and not self.begun)
            for k in gone:
                self.digest ^= self.sent.pop(k)
                (u.gone_job_ids if k[0] == "job" else u.gone_nodes).append(k[1])
            gone = []
            for k in news[:UPDATE_JOBS]:
                m = self.records[k]
                (u.jobs if k[0] == "job" else u.nodes).append(m)
                self.digest ^= self.sent.get(k, 0) ^ m.hash
                self.sent[k] = m.hash
            news = news[UPDATE_JOBS:]
            if self.full:
                self.begun = True
                u.full_end = not news
                self.full = not u.full_end
            u.digest = 0 if self.full else self.digest
            yield u


class Log:
    """One output file of one attempt, as far as it was handed over."""

    def __init__(self, job):
        self.ref = api.AttemptRef(job_id=job["id"], restart_count=job["restarts"])
        self.path = job["stdout"]
        self.offset = self.dropped = self.unsaid = self.counted = 0
        self.marks = [(time.monotonic(), 0)]   # positions at starts of lines, for reading again
        self.ended_at = None
        self.told = None

    def read(self, max_lag):
        """The next piece as (offset, bytes, bytes left out before it), or None at the end of the file."""
        try:
            with open(self.path, "rb") as f:
                size = os.fstat(f.fileno()).st_size
                if size - self.offset > max_lag:
                    to = size - max_lag // 2
                    self.unsaid += to - self.offset
                    self.dropped += to - max(self.offset, self.counted)  # not twice, when it is read again
                    self.offset = self.counted = to
                f.seek(self.offset)
                data = f.read(CHUNK)
        except FileNotFoundError:
            return None
        if not data:
            return None
        piece = (self.offset, data, self.unsaid)
        line = data.rfind(b"\n")
        if line >= 0 and time.monotonic() - self.marks[-1][0] > 1:
            self.marks.append((time.monotonic(), self.offset + line + 1))
            while len(self.marks) > 2 and time.monotonic() - self.marks[1][0] > REREAD_S:
                self.marks.pop(0)
        self.unsaid = 0
        self.offset += len(data)
        return piece

    def rewind(self):
        self.offset, self.unsaid = self.marks[0][1], 0
        self.marks = self.marks[:1]


class Session:
    """One Session call and what belongs to it."""

    def __init__(self, agent):
        self.agent = agent
        c = agent.cfg
        with open(c["ca"], "rb") as ca, open(c["cert"], "rb") as cert, open(c["key"], "rb") as key:
            creds = grpc.ssl_channel_credentials(ca.read(), key.read(), cert.read())
        self.channel = grpc.secure_channel(c["target"], creds, [
            ("grpc.ssl_target_name_override", c["server_name"]), ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0)])
        self.stub = api.AgentServiceStub(self.channel)
        self.out = queue.Queue()
        self.welcome = None
        self.seq = self.beats = self.pulls = 0
        self.heard = time.monotonic()
        self.sent_at = {}          # heartbeat id → when it was sent
        self.next_beat = None
        self.orders_known = False
        self.hello_at = boot()
        self.send(hello=agent.hello())
        self.call = self.stub.Session(iter(self.out.get, None))
        threading.Thread(target=self._read, daemon=True).start()
        self.logs = None           # queue of the log stream
        self.logs_over = True

    def _read(self):
        error = None
        try:
            for m in self.call:
                self.agent.inbox.put((self, m))
        except grpc.RpcError as e:
            error = e
        self.agent.inbox.put((self, error))

    def send(self, **kw):
        self.out.put(api.SessionRequest(**kw))

    def numbered(self, **kw):
        self.seq += 1
        self.send(seq=self.seq, **kw)
        return self.seq

    def open_logs(self):
        """A stream of its own, so that the session's messages never stand behind log bytes."""
        self.logs, self.logs_over = queue.Queue(LOGS_QUEUED), False
        self.logs.put(api.PushLogsRequest(session_id=self.welcome.session_id))
        mine = self.logs

        def run():
            try:
                self.stub.PushLogs(iter(mine.get, None))
            except grpc.RpcError as e:
                say("log stream ended", code=e.code().name, why=e.details())
            self.logs_over = True
        threading.Thread(target=run, daemon=True).start()

    def close(self):
        self.out.put(None)
        self.call.cancel()
        if self.logs:
            self.logs_over = True
        self.channel.close()


class Order:
    def __init__(self):
        self.order = None
        self.epoch = None
        self.expires = 0.0
        self.confirmed = False   # heard of in this session
        self.done = False
        self.told = None
        self.constrained = False
        self.again = 0.0         # not before


class Agent:
    def __init__(self, cfg):
        self.cfg = {**DEFAULTS, **cfg}
        self.inbox = queue.Queue()
        self.journal = Journal(self.cfg["state_dir"])
        self.instance = str(uuid.uuid4())
        self.scheduler = Client(self.cfg["scheduler"], self.cfg["command_deadline_ms"] / 1000)
        self.snapshot = Snapshot()
        self.jobs = {}
        self.session = None
        self.dial_at = 0.0
        self.failures = 0
        self.mode = api.MODE_OBSERVE
        self.lease = None        # {"epoch", "until"}
        self.settling = False    # no write before the landing bound has passed since a good read
        self.settled_at = None   # when it has; None until there was that read
        self.good_read = None
        self.resumable = False
        self.ceiling_told = None
        self.outbox = []         # [seq in this session or 0, kind, message]: kept until acknowledged
        self.orders = {}
        self.old_steps = self.journal.open_steps()
        self.reported_again = False
        self.logs = {}
        self.tokens = 0
        self.next_poll = 0.0
        self.focus_until = 0.0
        self.writing = False

    # the control plane

    def ceiling(self):
        """The lower of what the site allows and what this agent can vouch for. An unreadable file allows nothing."""
        path = self.cfg["ceiling"]
        if not path:
            return api.Ceiling(mode=api.MODE_ACT)
        try:
            with open(path) as f:
                return api.Ceiling(mode=api.Mode.Value("MODE_" + f.read().strip().upper()))
        except (OSError, ValueError) as e:
            return api.Ceiling(mode=api.MODE_OFF, reason=str(e)[:200])

    def hello(self):
        h = api.Hello(cluster=self.cfg["cluster"], agent_version="peer-1", api_versions=["advisor.v1"],
                      instance_id=self.instance, journal_id=self.journal.id, journal_persistent=True, scheduler="toy 1.0",
                      verbs=[api.VERB_PRESERVE, api.VERB_CONSTRAIN, api.VERB_RELEASE], ceiling=self.ceiling(),
                      agent_wall_ms=int(time.time() * 1000))
        if self.journal.epoch != (0, 0):
            h.highest_epoch.CopyFrom(self.epoch_msg(self.journal.epoch))
        if self.resumable:
            h.resume.CopyFrom(api.Resume(epoch=self.epoch_msg(self.lease["epoch"]), digest=self.snapshot.digest))
        for i in self.journal.open_steps():
            h.open_intents.append(api.OpenIntent(journal_seq=i["seq"], epoch=self.epoch_msg(i["epoch"]), advice=i["advice"],
                                                 generation=i["generation"], job_id=i["job"], restart_count=i["restarts"],
                                                 verb=i["verb"]))
        self.ceiling_told = h.ceiling
        return h

    @staticmethod
    def epoch_msg(e):
        return api.Epoch(term=e[0], counter=e[1])

    def dial(self):
        self.session = Session(self)

    def lost(self, why, retry_after=None):
        """The session has ended. The lease goes on until its time is over, but each order must be confirmed anew."""
        say("session ended", why=why, retry_after=retry_after)
        stable = self.session.welcome and time.monotonic() - self.session.welcomed > 5
        self.failures = 0 if stable else self.failures + 1
        wait = min(self.cfg["backoff_max_ms"], self.cfg["backoff_min_ms"] * 2 ** min(self.failures, 16)) / 1000
        wait *= random.uniform(0.5, 1)
        if retry_after is not None:
            wait = retry_after * random.uniform(1, 1.25)
        self.dial_at = time.monotonic() + wait
        self.resumable = bool(self.lease) and bool(self.snapshot.sent) and not self.snapshot.full
        for o in self.outbox:
            o[0] = 0
        for x in self.orders.values():
            x.confirmed = False
        self.session.close()
        self.session = None

    def on_error(self, e):
        if e is None:
            self.lost("the server ended the session")
            return
        details = dict(e.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        self.lost(f"{e.code().name}: {e.details()}", retry_after(details))

    def grant(self, g, sent_at):
        epoch = (g.epoch.term, g.epoch.counter)
        fresh = not self.lease or self.lease["epoch"] != epoch
        if epoch > self.journal.epoch:
            self.journal.put(kind="epoch", epoch=epoch)
        until = sent_at + g.lease_ms / 1000
        self.lease = {"epoch": epoch, "until": until if fresh else max(until, self.lease["until"])}
        if g.settle or (fresh and (g.open_intents or self.old_steps)):
            self.settling, self.settled_at = True, None
        if fresh:
            say("lease granted", epoch=epoch, settle=self.settling, open_intents=len(g.open_intents))

    def on_message(self, m):
        s, kind = self.session, m.WhichOneof("message")
        if not s.welcome and kind not in ("welcome", "goodbye"):
            self.lost("no Welcome first")
            return
        getattr(self, "on_" + kind, lambda m: None)(getattr(m, kind)) if kind else None

    def on_welcome(self, w):
        s = self.session
        s.welcome, s.welcomed = w, time.monotonic()
        s.heard, s.next_beat = s.welcomed, s.welcomed + w.heartbeat_interval_ms / 1000
        self.mode = w.cluster_mode
        if w.HasField("grant"):
            self.grant(w.grant, s.hello_at)
            s.open_logs()
            self.rewind_logs()
            if not self.reported_again:  # the last run may have died before it could tell
                self.reported_again = True
                for step in self.journal.steps.values():
                    if step["intent"]["at"] > time.time() - 3600:
                        self.report_step(step)
        else:
            self.lease = None
            say("standing by", holder=w.lease_holder)
        if w.send_snapshot:
            self.snapshot.restart()
        self.next_poll = 0
        s.pulls += 1
        s.send(pull=api.Pull(id=s.pulls))
        self.flush()

    def on_heartbeat_ack(self, a):
        s = self.session
        s.heard = time.monotonic()
        if a.cluster_mode != self.mode:
            self.mode = a.cluster_mode
            s.next_beat = 0  # say at once that it is obeyed
        sent_at = s.hello_at if a.id == 0 else s.sent_at.get(a.id)
        s.sent_at = {k: v for k, v in s.sent_at.items() if k >= a.id}
        if sent_at is None:
            return
        if a.HasField("grant"):
            had = self.lease is not None
            self.grant(a.grant, sent_at)
            if s.logs_over:
                s.open_logs()
                self.rewind_logs()
            if not had:
                self.ceiling_told = None  # as a standby's it was not the cluster's
            self.flush()
        else:
            self.lease = None

    def on_ack(self, a):
        self.outbox = [o for o in self.outbox if not 0 < o[0] <= a.durable_through_seq]

    def on_resync(self, r):
        say("resync", why=r.reason)
        self.snapshot.restart()
        self.next_poll = 0

    def on_focus(self, f):
        self.focus_until = time.monotonic() + (f.for_ms / 1000 if f.job_ids else 0)

    def on_goodbye(self, g):
        self.lost(f"goodbye: {g.reason}", g.retry_after_ms / 1000)

    def on_advice_batch(self, b):
        s = self.session
        if b.pull_id != s.pulls:
            return
        for o in b.advice:
            self.take_order(o)
        if not b.more:
            s.orders_known = True
        s.pulls += 1
        s.send(pull=api.Pull(id=s.pulls))

    def beat(self):
        s = self.session
        s.beats += 1
        h = api.Heartbeat(id=s.beats, agent_wall_ms=int(time.time() * 1000), cluster_mode=self.mode,
                          write_in_flight=self.writing)
        if self.lease:
            h.epoch.CopyFrom(self.epoch_msg(self.lease["epoch"]))
        ceiling = self.ceiling()
        if ceiling != self.ceiling_told:
            h.ceiling.CopyFrom(ceiling)
            self.ceiling_told = ceiling
        age = time.monotonic() - self.good_read if self.good_read else 1e6
        if age > 3 * self.cfg["poll_ms"] / 1000 + 5:
            h.observation_age_ms = int(age * 1000)
        s.next_beat = time.monotonic() + s.welcome.heartbeat_interval_ms / 1000
        s.sent_at[s.beats] = boot()
        s.send(heartbeat=h)

    def report(self, **kw):
        self.outbox.append([0, kw])
        self.flush()

    def flush(self):
        """What is to be told: first what must not be lost, then the newest state. A standby has nothing to tell."""
        s = self.session
        if not s or not s.welcome or not self.lease:
            return
        for o in self.outbox:
            if o[0] == 0:
                o[0] = s.numbered(**o[1])
        for u in self.snapshot.updates():
            s.numbered(state_update=u)

    # the scheduler

    def poll(self):
        try:
            began, seen = boot(), self.scheduler("list")
        except OSError as e:
            say("the scheduler cannot be read", why=e)
            return
        self.good_read = time.monotonic()
        if self.lease and self.settling and self.settled_at is None:
            self.settled_at = began + self.cfg["landing_bound_ms"] / 1000  # then nothing of an earlier holder can land any more
        self.jobs = {j["id"]: j for j in seen["jobs"]}
        records = {}
        for j in seen["jobs"]:
            if j["restarts"] == 0 and self.journal.incarnations.get(j["id"]) != j["submit"]:
                self.journal.put(kind="incarnation", job=j["id"], submit=j["submit"])
            o = api.JobObservation(
                job_id=j["id"], state=api.JobState.Value("JOB_STATE_" + j["state"]), state_raw=j["state"],
                restart_count=j["restarts"], requeueable=True, batch=True, exit_code=j["exit_code"], submit_unix=j["submit"],
                eligible_unix=int(j["eligible"]), start_unix=j["start"], end_unix=j["end"],
                incarnation_unix=self.journal.incarnations.get(j["id"], 0), held=j["held"],
                reason="JobHeldUser" if j["held"] else "", nodes=j["nodes"], user=j["user"], uid=j["uid"], partition="main",
                detail_known=True, name=j["scene"].encode(), comment=j["comment"].encode(), stdout_path=j["stdout"].encode(),
                excluded_nodes=",".join(j["excluded"]), num_nodes=1)
            o.hash = digest_of(o)
            records["job", j["id"]] = o
        for n in seen["nodes"]:
            o = api.NodeObservation(name=n["name"], state_raw=n["state"], available=True)
            o.hash = digest_of(o)
            records["node", n["name"]] = o
        self.snapshot.observe(records)
        self.follow_logs()
        self.flush()

    # logs

    def follow_logs(self):
        for j in self.jobs.values():
            key = (j["id"], j["restarts"])
            fresh = j["state"] == "FAILED" and j["end"] > time.time() - FRESH_S
            if key not in self.logs and (j["state"] == "RUNNING" or fresh) and self.lease:
                self.logs[key] = Log(j)
                self.logs[key].ref.cluster = self.cfg["cluster"]
            log = self.logs.get(key)
            if log and j["state"] != "RUNNING" and log.ended_at is None:
                log.ended_at = time.monotonic()
        for key, log in list(self.logs.items()):
            if key[0] not in self.jobs:
                log.ended_at = log.ended_at or time.monotonic()
            elif self.jobs[key[0]]["restarts"] > key[1] and log.ended_at is None:
                log.ended_at = time.monotonic()

    def rewind_logs(self):
        for log in self.logs.values():
            log.rewind()

    def push_logs(self):
        """One piece of each file in turn, as long as the stream takes them. True when there may be more."""
        s, more = self.session, False
        if not s or s.logs_over or not self.lease:
            return False
        for log in list(self.logs.values()):
            if log.ended_at and time.monotonic() - log.ended_at > LINGER_S + REREAD_S:
                continue
            if s.logs.full() or self.tokens <= 0:
                more = True
                break
            piece = log.read(self.cfg["max_lag_bytes"])
            if piece:
                more = True
                self.tokens -= len(piece[1])
                s.logs.put(api.PushLogsRequest(chunks=[api.LogChunk(
                    attempt=log.ref, stream="stdout", offset=piece[0], data=piece[1], dropped_before=piece[2],
                    observe_wall_ms=int(time.time() * 1000))]))
            state = (api.TELEMETRY_STATE_PARTIAL, "shed under load") if log.dropped else (api.TELEMETRY_STATE_COMPLETE, "")
            if (state, log.dropped) != log.told and (piece is None or not log.told or log.told[0] != state):
                log.told = (state, log.dropped)
                self.report(telemetry=api.TelemetryReport(attempt=log.ref, state=state[0], reason=state[1],
                                                          dropped_bytes=log.dropped))
        return more

    # advice

    def take_order(self, o):
        x = self.orders.setdefault(o.name, Order())
        if x.order and o.generation < x.order.generation:
            return
        if not x.order or o.generation > x.order.generation or not x.confirmed or o.actionability != x.order.actionability:
            x.done, x.told = False, None
            x.constrained = x.constrained and x.order and o.generation == x.order.generation
        x.order, x.confirmed, x.epoch, x.again = o, True, self.lease["epoch"], 0
        x.expires = boot() + o.valid_for_ms / 1000
        say("order", name=o.name, generation=o.generation, desired=o.desired_state, actionability=o.actionability)

    def tell(self, x, disposition, reason, text=""):
        d, r = getattr(api, "DISPOSITION_" + disposition), getattr(api, "DISPOSITION_REASON_" + reason)
        if disposition != "PENDING":
            x.done = True
        if x.told == (d, r):
            return
        x.told = (d, r)
        say("status", advice=x.order.name, disposition=disposition, reason=reason, why=text)
        self.report(advice_status=api.AdviceStatusReport(
            advice=x.order.name, observed_generation=x.order.generation, epoch=self.epoch_msg(x.epoch), disposition=d, reason=r,
            detail=text[:500], observe_wall_ms=int(time.time() * 1000)))

    def settled(self):
        if self.settling and self.settled_at is not None and boot() >= self.settled_at:
            self.settling = False
        return not self.settling and self.good_read

    def may_write(self):
        """What the lease has left covers the command and everything that could still land after it."""
        need = (self.cfg["command_deadline_ms"] + self.cfg["landing_bound_ms"]) / 1000
        return self.lease and self.settled() and self.lease["until"] - boot() > need

    def allowed(self, order):
        """Mode of the cluster and ceiling of the site, the lower of both; a person's yes counts for its generation."""
        return min(self.mode, self.ceiling().mode) >= (api.MODE_APPROVE if self.approved(order) else api.MODE_ACT)

    @staticmethod
    def approved(order):
        return order.approved_generation != 0 and order.approved_generation == order.generation

    def consents(self, job, order):
        try:
            c = json.loads(job["comment"])["advisor"]
        except (ValueError, KeyError, TypeError):
            return False
        modes = ("act", "approve") if self.approved(order) else ("act",)
        return isinstance(c, dict) and c.get("mode", "act") in modes and c.get("max_restarts", 1) != 0

    def carry_out(self, x):
        o = x.order
        if o.desired_state == api.DESIRED_STATE_NO_ACTION:
            return self.tell(x, "CONVERGED", "ALREADY_SATISFIED")
        if o.desired_state != api.DESIRED_STATE_RESTARTED or o.required_features:
            return self.tell(x, "ABANDONED", "UNSUPPORTED_BY_AGENT", "desired state or feature not known here")
        if boot() >= x.expires:
            return self.tell(x, "ABANDONED", "EXPIRED")
        if o.actionability != api.ACTIONABILITY_ACTIONABLE or not self.allowed(o):
            return self.tell(x, "PENDING", "MODE_TOO_LOW")
        try:
            job = self.scheduler("job", id=o.attempt.job_id)
        except OSError as e:
            return self.tell(x, "PENDING", "SCHEDULER_UNAVAILABLE", str(e))
        if not job:
            return self.tell(x, "ABANDONED", "JOB_GONE")
        first = self.journal.incarnations.get(job["id"], 0)
        if not first or not o.incarnation_unix:
            return self.tell(x, "PENDING", "NOT_AUTHORIZED_BY_CLUSTER", "which job the id means is not confirmed")
        n = o.attempt.restart_count
        if first != o.incarnation_unix or job["restarts"] < n:
            return self.tell(x, "ABANDONED", "JOB_ID_REUSED")
        if job["restarts"] > n + 1:
            return self.tell(x, "SUPERSEDED", "ATTEMPT_SUPERSEDED")
        verb = None
        if job["restarts"] == n:
            if job["state"] == "FAILED":
                verb = api.VERB_PRESERVE
            elif job["state"] == "COMPLETED":
                return self.tell(x, "ABANDONED", "ALREADY_SATISFIED")
            elif job["state"] == "CANCELLED":
                return self.tell(x, "ABANDONED", "CONFLICTING_USER_ACTION")
        else:
            if not self.requeued_by_us(x):
                return self.tell(x, "SUPERSEDED", "ATTEMPT_SUPERSEDED", "somebody else requeued it")
            if job["state"] == "CANCELLED":
                return self.tell(x, "ABANDONED", "CONFLICTING_USER_ACTION")
            if job["state"] != "PENDING" or not job["held"]:
                self.end_hold(job["id"])
                return self.tell(x, "CONVERGED", "DESIRED_STATE_OBSERVED")
            verb = api.VERB_RELEASE if x.constrained else api.VERB_CONSTRAIN
        if verb is None:
            return None  # it still runs or settles
        if not self.consents(job, o):
            return self.tell(x, "ABANDONED", "OPTED_OUT")
        if x.epoch != self.lease["epoch"] or not self.may_write():
            return None  # confirmed anew or extended soon; else there is nobody to act for
        exclude = [h for h in o.exclude_nodes.split(",") if h]
        if self.act(verb, job, exclude, o.name, o.generation) and verb == api.VERB_CONSTRAIN:
            x.constrained = True
        return None

    def requeued_by_us(self, x):
        mine = [s for s in self.journal.steps.values() if s["intent"]["advice"] == x.order.name and
                s["intent"]["verb"] == api.VERB_PRESERVE]
        if mine:  # our own record knows best
            return any(not s["outcome"] or s["outcome"]["observed"] != api.OBSERVED_NO for s in mine)
        return x.order.requeued_by_advice

    def act(self, verb, job, exclude, advice, generation):
        """One write: intent on disk, told; the command; a fresh look; outcome on disk, told."""
        name = {api.VERB_PRESERVE: "preserve", api.VERB_CONSTRAIN: "constrain", api.VERB_RELEASE: "release"}[verb]
        seq = self.journal.seq + 1
        read = f"{job['state']} restarts={job['restarts']} held={job['held']}"
        self.journal.put(kind="intent", seq=seq, epoch=self.lease["epoch"], advice=advice, generation=generation, job=job["id"],
                         restarts=job["restarts"], verb=verb, read_before=read, at=time.time())
        if verb == api.VERB_PRESERVE:
            self.journal.put(kind="hold", job=job["id"], advice=advice, restarts=job["restarts"] + 1)
        step = self.journal.steps[seq]
        self.report_step(step, ["intent"])
        self.die("after_intent")
        args = dict(id=job["id"], submit=job["submit"], restarts=job["restarts"])
        if verb == api.VERB_CONSTRAIN:
            args["exclude"] = exclude
        self.writing = True
        try:
            self.scheduler(name, **args)
            command, reason = api.COMMAND_RESULT_ACCEPTED, "ok"
        except Refused as e:
            command, reason = api.COMMAND_RESULT_REFUSED, str(e)
        except OSError as e:
            command, reason = api.COMMAND_RESULT_TIMED_OUT, str(e)
        self.writing = False
        self.die("before_outcome")
        self.close_step(step, command, reason)
        self.die("after_outcome")
        return command == api.COMMAND_RESULT_ACCEPTED

    def close_step(self, step, command, reason):
        i = step["intent"]
        try:
            job = self.scheduler("job", id=i["job"])
            there = job and {api.VERB_PRESERVE: job["restarts"] > i["restarts"],
                             api.VERB_CONSTRAIN: job["eligible"] < time.time() + 100,
                             api.VERB_RELEASE: not job["held"]}[i["verb"]]
            observed = api.OBSERVED_YES if there else api.OBSERVED_NO
        except OSError:
            observed = api.OBSERVED_UNKNOWN
        self.journal.put(kind="outcome", seq=i["seq"], command=command, observed=observed, reason=reason[:60])
        if i["verb"] == api.VERB_PRESERVE and observed == api.OBSERVED_NO or \
           i["verb"] == api.VERB_RELEASE and observed == api.OBSERVED_YES:
            self.end_hold(i["job"])
        self.report_step(step, ["outcome"])

    def report_step(self, step, phases=("intent", "outcome")):
        i, out = step["intent"], step["outcome"]
        for phase in phases:
            if phase == "outcome" and not out:
                continue
            m = api.ActionReport(
                journal_seq=i["seq"], epoch=self.epoch_msg(i["epoch"]), advice=i["advice"], generation=i["generation"],
                attempt=api.AttemptRef(cluster=self.cfg["cluster"], job_id=i["job"], restart_count=i["restarts"]),
                verb=i["verb"], phase=api.ACTION_PHASE_INTENT, read_before=i["read_before"],
                observe_wall_ms=int(time.time() * 1000))
            if phase == "outcome":
                m.phase, m.command, m.observed, m.reason = (api.ACTION_PHASE_OUTCOME, out["command"], out["observed"],
                                                            out["reason"])
            self.report(action=m)

    def end_hold(self, job_id):
        if job_id in self.journal.holds:
            self.journal.put(kind="hold_end", job=job_id)

    def give_back(self):
        """A job in our hold that nobody wants held any more is released, whatever the mode: that is only undoing."""
        for job_id, hold in list(self.journal.holds.items()):
            x = self.orders.get(hold["advice"])
            mode = min(self.mode, self.ceiling().mode)
            kept = x and x.confirmed and not x.done and mode >= api.MODE_APPROVE and \
                x.order.actionability >= api.ACTIONABILITY_NEEDS_APPROVAL
            if kept or not self.session or not self.session.orders_known or not self.may_write():
                continue
            try:
                job = self.scheduler("job", id=job_id)
            except OSError:
                continue
            if not job or job["restarts"] != hold["restarts"] or not job["held_by_requeue"]:
                self.end_hold(job_id)  # somebody else's by now
                continue
            say("giving back", job=job_id)
            self.act(api.VERB_CONSTRAIN, job, [], hold["advice"], 0)
            self.act(api.VERB_RELEASE, job, [], hold["advice"], 0)

    def tick_orders(self):
        if not self.lease or boot() >= self.lease["until"]:
            return
        if self.settled() and self.old_steps:
            for i in self.old_steps:  # of an earlier run: what it did, if anything, is visible by now
                if not self.journal.steps[i["seq"]]["outcome"]:
                    self.close_step(self.journal.steps[i["seq"]], api.COMMAND_RESULT_TIMED_OUT, "the agent ended meanwhile")
            self.old_steps = []
        for x in list(self.orders.values()):
            if x.confirmed and not x.done and time.monotonic() >= x.again:
                x.again = time.monotonic() + 0.25
                self.carry_out(x)
        self.give_back()

    def die(self, point):
        if self.cfg["die_at"] == point:
            time.sleep(0.3)  # what was said before gets out
            os.kill(os.getpid(), signal.SIGKILL)

    # the loop

    def run(self):
        last = time.monotonic()
        while True:
            now = time.monotonic()
            self.tokens = min(self.tokens + (now - last) * self.cfg["log_rate"], max(self.cfg["log_rate"], CHUNK))
            last = now
            s = self.session
            if not s and now >= self.dial_at:
                self.dial()
            elif s and s.welcome:
                if now - s.heard > s.welcome.silence_timeout_ms / 1000:
                    self.lost("no heartbeat answer in time", 0)
                elif now >= s.next_beat:
                    self.beat()
            elif s and now - s.heard > 20:
                self.lost("no answer to Hello")
            if now >= self.next_poll:
                self.next_poll = now + (0.25 if now < self.focus_until else self.cfg["poll_ms"] / 1000)
                self.poll()
            self.tick_orders()
            more = self.push_logs()
            try:
                while True:
                    of, m = self.inbox.get(timeout=0.002 if more else 0.05)
                    if of is not self.session:
                        continue  # of one that was given up
                    if m is None or isinstance(m, grpc.RpcError):
                        self.on_error(m)
                    else:
                        self.on_message(m)
                    more = True
            except queue.Empty:
                pass


def digest_of(record):
    """Never 0, and well mixed: many of these are XORed."""
    return int.from_bytes(hashlib.sha256(record.SerializeToString(deterministic=True)).digest()[:8], "big") or 1


def retry_after(details):
    """Seconds from the RetryInfo of a google.rpc.Status, None when there is none."""
    for d in api.Status.FromString(details).details:
        info = api.RetryInfo()
        if d.Unpack(info):
            return info.retry_delay.seconds + info.retry_delay.nanos / 1e9
    return None


def main():
    global api
    api = advstack.stubs()
    with open(sys.argv[1]) as f:
        agent = Agent(json.load(f))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    agent.run()


if __name__ == "__main__":
    main()
