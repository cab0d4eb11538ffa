# SPDX-License-Identifier: Apache-2.0
"""A control plane made of Python, for a real agent: it orders what a sane one never would, or talks nonsense."""
import queue
import threading
from concurrent import futures


class FakeControl:
    def __init__(self, api, ca, script=None, server_name="fake-advisord"):
        """@script: called with the iterator of requests, yields messages or raw bytes; None behaves well."""
        import grpc
        self.api = api
        self.script = script
        self.got = []       # of all sessions
        self.sessions = 0
        self.pushes = 0
        self.counter = 0
        self.contexts = []
        self.orders = {}    # name → AdviceOrder
        self.lock = threading.Lock()
        cert, key = ca.issue(server_name, "DNS:localhost", "IP:127.0.0.1")
        creds = grpc.ssl_server_credentials([(open(key, "rb").read(), open(cert, "rb").read())], open(ca.cert, "rb").read(),
                                            True)
        self.server = grpc.server(futures.ThreadPoolExecutor(16))
        raw = (lambda m: m if isinstance(m, bytes) else m.SerializeToString())
        handlers = {
            "Session": grpc.stream_stream_rpc_method_handler(self._session, api.SessionRequest.FromString, raw),
            "PushLogs": grpc.stream_unary_rpc_method_handler(self._push, api.PushLogsRequest.FromString, raw),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("advisor.v1.AgentService", handlers),))
        self.port = self.server.add_secure_port("127.0.0.1:0", creds)
        self.server.start()

    def stop(self):
        self.server.stop(0).wait()

    def _push(self, requests, context):
        self.pushes += 1
        for _ in requests:
            pass
        return self.api.PushLogsResponse()

    def _session(self, requests, context):
        self.sessions += 1
        self.contexts.append(context)
        yield from (self.script or self.behave)(requests, context)

    def hang_up(self):
        """Ends the sessions under way."""
        for c in self.contexts:
            c.cancel()
        self.contexts.clear()

    def welcome(self, **kw):
        self.counter += 1
        a = self.api
        w = dict(session_id=f"fake-{self.counter}", store_uuid="fake", server_version="0", heartbeat_interval_ms=500,
                 silence_timeout_ms=3000, cluster_mode=a.MODE_ACT, send_snapshot=True, grant=self.grant())
        w.update(kw)
        return a.SessionResponse(welcome=a.Welcome(**w))

    def grant(self):
        return self.api.LeaseGrant(epoch=self.api.Epoch(term=1, counter=self.counter), lease_ms=20000)

    def behave(self, requests, context):
        """As advisord does, with whatever is in self.orders as the advice."""
        a, out, sent, pull = self.api, queue.Queue(), {}, [0]

        def answer():
            with self.lock:
                new = [o for o in self.orders.values() if sent.get(o.name) != o.generation]
                if not pull[0] or (sent and not new):
                    return
                sent.update({o.name: o.generation for o in new})
                sent[""] = 0
                out.put(a.SessionResponse(advice_batch=a.AdviceBatch(pull_id=pull[0], advice=new)))
                pull[0] = 0

        def read():
            try:
                for m in requests:
                    self.got.append(m)
                    kind = m.WhichOneof("message")
                    if kind == "hello":
                        out.put(self.welcome())
                    elif kind == "heartbeat":
                        out.put(a.SessionResponse(heartbeat_ack=a.HeartbeatAck(id=m.heartbeat.id, grant=self.grant(),
                                                                             cluster_mode=a.MODE_ACT)))
                    elif kind == "pull":
                        pull[0] = m.pull.id
                    elif m.seq:
                        out.put(a.SessionResponse(ack=a.Ack(durable_through_seq=m.seq)))
                    answer()
            except Exception:  # the call has ended
                pass
            out.put(None)
        threading.Thread(target=read, daemon=True).start()
        while (m := out.get()) is not None:
            yield m

    def job(self, job_id):
        """The newest observation of the job with its details."""
        seen = [j for m in list(self.got) if m.HasField("state_update") for j in m.state_update.jobs if j.job_id == job_id]
        return next((j for j in reversed(seen) if j.detail_known), None)

    def order(self, job, restart_count=0, **kw):
        """Restart this attempt, whatever it looks like; @job as observed."""
        a, name = self.api, f"clusters/lab/jobs/fake{job.job_id}/attempts/{restart_count}/advice"
        o = dict(name=name, generation=1, attempt=a.AttemptRef(cluster="lab", job_id=job.job_id, restart_count=restart_count),
                 submit_unix=job.submit_unix, incarnation_unix=job.incarnation_unix, desired_state=a.DESIRED_STATE_RESTARTED,
                 actionability=a.ACTIONABILITY_ACTIONABLE, valid_for_ms=600000, correlation_id=f"fake-{job.job_id}")
        o.update(kw)
        with self.lock:
            self.orders[o["name"]] = a.AdviceOrder(**o)
        return o["name"]

    def statuses(self, name):
        return [m.advice_status for m in list(self.got) if m.HasField("advice_status") and m.advice_status.advice == name]

    def actions(self, name):
        return [m.action for m in list(self.got) if m.HasField("action") and m.action.advice == name]
