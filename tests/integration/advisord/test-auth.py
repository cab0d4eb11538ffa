#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Who may call: tokens of a real https identity provider, bindings to clusters, accounts and users, quotas."""
import atexit
import hashlib
import hmac
import json
import os
import shutil
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402
from advtoken import Idp, b64, bearer  # noqa: E402

import grpc  # noqa: E402

S = grpc.StatusCode
refused = advstack.refused
api = advstack.stubs()
CASES = []
RULES = tempfile.mkdtemp(prefix="advrules-")  # restarts cost seconds with all of them
atexit.register(shutil.rmtree, RULES, ignore_errors=True)
shutil.copy(os.path.join(advstack.ROOT, "rules", "gpu.yaml"), RULES)

BINDINGS = """
issuers:
  - alias: corp
    issuer: https://idp.test
    audience: [advisor]
    keys: {url}
    ca: {ca}
    skew: 0s
bindings:
  - {{principals: ["jwt:corp:alice"], role: operator}}
  - {{principals: ["jwt-group:corp:sre"], role: operator, clusters: ["prod-*"]}}
  - {{principals: ["jwt-group:corp:ml"], role: reader, clusters: ["prod-1"], accounts: ["ml-*"]}}
  - {{principals: ["jwt:corp:joe"], role: user, clusters: ["prod-1"]}}
  - {{principals: ["jwt-email:corp:*@audit.test"], role: reader}}
  - {{principals: ["operator:narrow"], role: operator, clusters: ["dev"]}}
  - {{principals: ["admin:weak"], role: reader, clusters: ["dev"]}}
{more}
"""


def case(f):
    CASES.append(f)
    return f


class World:
    """An advisord with bindings, and its identity provider."""

    def __init__(self, **config):
        self.dir = tempfile.mkdtemp(prefix="advauth-")
        os.chmod(self.dir, 0o755)
        self.ca = advstack.Ca(f"{self.dir}/idp-ca", "idp-ca")
        self.idp = Idp(self.ca, f"{self.dir}/idp")
        self.idp.add_key("one")
        self.path = f"{self.dir}/auth.yaml"
        self.bind()
        self.d = advstack.Advisord(**{"auth.bindings": self.path, **config})
        self.admin = self.d.channel("admin:root")
        self.open = self.d.channel()  # no certificate

    def bind(self, more="", text=None):
        with open(self.path + ".new", "w") as f:
            f.write(text if text is not None else BINDINGS.format(url=self.idp.url, ca=self.ca.cert, more=more))
        os.rename(self.path + ".new", self.path)

    def token(self, *a, **kw):
        return self.idp.token("one", *a, **kw)

    def clusters(self, token, channel=None):
        r = api.FleetServiceStub(channel or self.open).ListClusters(api.ListClustersRequest(), timeout=10,
                                                                   metadata=bearer(token) if token else None)
        return [c.name.split("/")[1] for c in r.clusters]

    def ready(self):
        """The keys were read."""
        token = self.token()

        def probe():
            try:
                return self.clusters(token) is not None
            except grpc.RpcError as e:
                assert e.code() == S.UNAVAILABLE, e
                return False
        wait_for("the issuer's keys", probe)
        return self

    def stop(self):
        self.d.stop()
        self.idp.stop()


w = World()
fleet = api.FleetServiceStub(w.admin)
for name in ("dev", "prod-1", "prod-2"):
    fleet.CreateCluster(api.CreateClusterRequest(cluster_id=name), timeout=10)
w.ready()


def job(job_id, hash_, user, account, workflow=""):
    return api.JobObservation(job_id=job_id, state=api.JOB_STATE_RUNNING, state_raw="RUNNING", batch=True, requeueable=True,
                              submit_unix=1000, user=user, account=account, partition="main", nodes="n1", detail_known=True,
                              name=b"train", hash=hash_,
                              comment=b'{"advisor":{"workflow":"%s"}}' % workflow.encode() if workflow else b"{}")


def agent_with_jobs(cluster, *jobs):
    a = advstack.FakeAgent(api, w.d.channel(f"agent:{cluster}"), cluster)
    a.wait("welcome")
    digest = 77
    for j in jobs:
        digest ^= j.hash
    a.durable(a.numbered(state_update=api.StateUpdate(
        full_begin=True, full_end=True, jobs=jobs, digest=digest,
        nodes=[api.NodeObservation(name="n1", state_raw="IDLE", available=True, hash=77)])))
    return a


def list_jobs(token=None, parent="clusters/-", channel=None):
    r = api.JobServiceStub(channel or w.open).ListJobs(api.ListJobsRequest(parent=parent), timeout=10,
                                                      metadata=bearer(token) if token else None)
    return sorted(j.job_id for j in r.jobs)


@case
def a_token_is_enough():
    assert w.clusters(w.token()) == ["dev", "prod-1", "prod-2"]
    r = api.FleetServiceStub(w.open).SetClusterMode(
        api.SetClusterModeRequest(name="clusters/dev", mode=api.MODE_APPROVE, reason="by token"), timeout=10,
        metadata=bearer(w.token()))
    assert r.cluster.mode == api.MODE_APPROVE
    events = api.AuditServiceStub(w.admin).ListAuditEvents(
        api.ListAuditEventsRequest(parent="clusters/dev", verb="mode.set"), timeout=10).events
    assert [e.principal for e in events] == ["jwt:corp:alice"], events
    refused(lambda: api.FleetServiceStub(w.open).CreateCluster(api.CreateClusterRequest(cluster_id="x"), timeout=10,
                                                              metadata=bearer(w.token())), S.PERMISSION_DENIED, "ROLE_TOO_LOW")


@case
def every_algorithm_of_the_list():
    for alg in ("RS256", "EdDSA"):
        w.idp.add_key(alg, alg)
        token = w.idp.token(alg)
        wait_for(f"the new {alg} key", lambda: not isinstance(attempt(token), grpc.RpcError), 20)


def attempt(token):
    try:
        return w.clusters(token)
    except grpc.RpcError as e:
        return e


@case
def tokens_that_are_refused():
    now = int(time.time())
    no = lambda reason, token: refused(lambda: w.clusters(token), S.UNAUTHENTICATED, reason)  # noqa: E731
    no("TOKEN_EXPIRED", w.token(exp=now - 1))
    no("TOKEN_NOT_YET_VALID", w.token(nbf=now + 100))
    no("TOKEN_NOT_YET_VALID", w.token(iat=now + 100))
    no("TOKEN_AUDIENCE", w.token(aud="somebody-else"))
    no("TOKEN_ISSUER", w.token(iss="https://evil.test"))
    no("TOKEN_SUBJECT", w.token(sub=""))
    no("TOKEN_MALFORMED", w.token(exp=None))
    no("TOKEN_MALFORMED", "not.a.token")
    no("TOKEN_MALFORMED", w.token(header={"crit": ["x"]}))
    no("TOKEN_SIGNATURE", w.token()[:-6] + "AAAAAA")
    # no signature at all, and the public key as a secret
    h, c, _ = w.token().split(".")
    none = b64(json.dumps({"alg": "none", "kid": "one"}).encode())
    no("TOKEN_ALGORITHM", f"{none}.{c}.AAAA")
    hs = b64(json.dumps({"alg": "HS256", "kid": "one"}).encode())
    secret = w.idp.run("pkey", "-in", w.idp.keys["one"][1], "-pubout")
    no("TOKEN_ALGORITHM", f"{hs}.{c}." + b64(hmac.new(secret, f"{hs}.{c}".encode(), hashlib.sha256).digest()))
    # a good token with other claims
    other = b64(json.dumps({"iss": "https://idp.test", "aud": "advisor", "sub": "root", "exp": now + 99}).encode())
    no("TOKEN_SIGNATURE", f"{h}.{other}.{w.token().split('.')[2]}")
    refused(lambda: api.FleetServiceStub(w.open).ListClusters(api.ListClustersRequest(), timeout=10,
                                                             metadata=bearer(w.token()) + bearer(w.token())),
            S.UNAUTHENTICATED, "AUTHORIZATION_MALFORMED")
    refused(lambda: api.FleetServiceStub(w.open).ListClusters(api.ListClustersRequest(), timeout=10,
                                                             metadata=[("authorization", "Basic YTpi")]),
            S.UNAUTHENTICATED, "AUTHORIZATION_MALFORMED")
    refused(lambda: w.clusters(None), S.UNAUTHENTICATED, "NO_IDENTITY")
    refused(lambda: w.clusters(w.token(sub="nobody")), S.PERMISSION_DENIED, "NOT_BOUND")
    # a token that is no good is not made good by the certificate beside it
    refused(lambda: w.clusters(w.token(exp=now - 1), channel=w.admin), S.UNAUTHENTICATED, "TOKEN_EXPIRED")


@case
def an_agent_needs_its_certificate():
    refused(lambda: next(api.AgentServiceStub(w.open).Session(iter([]), timeout=10, metadata=bearer(w.token()))),
            S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: next(api.AgentServiceStub(w.open).Session(iter([]), timeout=10)), S.UNAUTHENTICATED, "NO_IDENTITY")


@case
def bindings_limit_what_is_seen_and_done():
    agents = [agent_with_jobs("prod-1", job("1", 1, "joe", "ml-a", "both"), job("2", 2, "ann", "ml-b", "ml"),
                              job("3", 3, "ann", "hr", "both")),
              agent_with_jobs("dev", job("9", 9, "joe", "ml-a", "both"))]
    sre, ml = w.token("s", groups=["sre", "other"]), w.token("m", groups="ml")
    joe = w.token("joe", preferred_username="joe")
    audit = w.token("a", email="x@audit.test", email_verified=True)
    jobs = api.JobServiceStub(w.open)
    get = lambda token, name: jobs.GetJob(api.GetJobRequest(name=name), timeout=10, metadata=bearer(token)).job  # noqa: E731
    name = {j.job_id: j.name for j in api.JobServiceStub(w.admin).ListJobs(api.ListJobsRequest(parent="clusters/-"),
                                                                         timeout=10).jobs}
    # lists
    assert w.clusters(sre) == ["prod-1", "prod-2"] and w.clusters(ml) == ["prod-1"] and w.clusters(joe) == ["prod-1"]
    assert list_jobs(sre) == ["1", "2", "3"] and list_jobs(ml) == ["1", "2"] and list_jobs(joe) == ["1"]
    assert list_jobs(audit) == ["1", "2", "3", "9"]
    # of a workflow what may be seen counts, and where that is nothing there is none, nor another page of it
    def flows(token, parent="clusters/-"):
        out, page = [], ""
        while True:
            r = jobs.ListWorkflows(api.ListWorkflowsRequest(parent=parent, page_size=1, page_token=page), timeout=10,
                                   metadata=bearer(token))
            out += [(f.name.removeprefix("clusters/"), f.jobs) for f in r.workflows]
            assert r.workflows or not page, "a page of nothing"
            page = r.next_page_token
            if not page:
                return out
    prod, dev = "prod-1/workflows/", "dev/workflows/"
    assert flows(audit) == [(dev + "both", 1), (prod + "both", 2), (prod + "ml", 1)], flows(audit)
    assert flows(sre) == [(prod + "both", 2), (prod + "ml", 1)] == flows(sre, "clusters/prod-1"), flows(sre)
    assert flows(ml) == [(prod + "both", 1), (prod + "ml", 1)] and flows(joe) == [(prod + "both", 1)], (flows(ml), flows(joe))
    refused(lambda: jobs.GetWorkflow(api.GetWorkflowRequest(name="clusters/" + prod + "ml"), timeout=10, metadata=bearer(joe)),
            S.NOT_FOUND, "WORKFLOW_NOT_FOUND")
    # what may not be seen does not exist
    assert get(ml, name["2"]).user == "ann"
    for token, n in ((ml, "3"), (joe, "2"), (joe, "3"), (sre, "9"), (ml, "9"), (joe, "9")):
        reason = "CLUSTER_NOT_FOUND" if n == "9" else "JOB_NOT_FOUND"
        refused(lambda: get(token, name[n]), S.NOT_FOUND, reason)
        refused(lambda: jobs.ListAttempts(api.ListAttemptsRequest(parent=name[n]), timeout=10, metadata=bearer(token)),
                S.NOT_FOUND, reason)
        ref = api.AttemptRef(cluster="dev" if n == "9" else "prod-1", job_id=n)
        refused(lambda: jobs.GetJobTimeline(api.GetJobTimelineRequest(ref=ref), timeout=10, metadata=bearer(token)),
                S.NOT_FOUND, reason)
    refused(lambda: list_jobs(joe, "clusters/dev"), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    f = api.FleetServiceStub(w.open)
    mode = lambda token, c: f.SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{c}", mode=api.MODE_ACT),  # noqa: E731
                                             timeout=10, metadata=bearer(token))
    mode(sre, "prod-2")
    refused(lambda: mode(sre, "dev"), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    refused(lambda: mode(sre, "nowhere"), S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    refused(lambda: mode(ml, "prod-1"), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: mode(joe, "prod-1"), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    # operator here, reader there
    both = w.token("b", groups=["sre"], email="b@audit.test", email_verified=True)
    refused(lambda: mode(both, "dev"), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    # an address that nobody has verified is what somebody typed in
    refused(lambda: w.clusters(w.token("a2", email="x@audit.test")), S.PERMISSION_DENIED, "NOT_BOUND")
    refused(lambda: w.clusters(w.token("a3", email="x@audit.test", email_verified=False)), S.PERMISSION_DENIED, "NOT_BOUND")
    # the audit log: everything of a cluster only for who may see all of it
    def verbs(token, parent="clusters/-"):
        return {(e.cluster, e.verb) for e in api.AuditServiceStub(w.open).ListAuditEvents(
            api.ListAuditEventsRequest(parent=parent, page_size=1000), timeout=10, metadata=bearer(token)).events}
    assert {c for c, _ in verbs(sre)} == {"prod-1", "prod-2"} and ("prod-1", "agent.connected") in verbs(sre)
    assert not any(v == "agent.connected" for _, v in verbs(ml) | verbs(joe)), verbs(ml)
    assert {c for c, _ in verbs(ml) | verbs(joe)} <= {"prod-1"}
    for a in agents:
        a.close()


@case
def certificates_are_limited_by_bindings_that_name_them():
    narrow, weak = w.d.channel("operator:narrow"), w.d.channel("admin:weak")
    free = w.d.channel("operator:free")
    assert w.clusters(None, narrow) == ["dev"] and w.clusters(None, weak) == ["dev"]
    assert w.clusters(None, free) == ["dev", "prod-1", "prod-2"]
    refused(lambda: api.FleetServiceStub(weak).SetClusterMode(
        api.SetClusterModeRequest(name="clusters/dev", mode=api.MODE_ACT), timeout=10), S.PERMISSION_DENIED, "ROLE_TOO_LOW")
    refused(lambda: api.FleetServiceStub(narrow).GetCluster(api.GetClusterRequest(name="clusters/prod-1"), timeout=10),
            S.NOT_FOUND, "CLUSTER_NOT_FOUND")
    user = w.d.channel("user:joe")  # a user's certificate: own jobs, in every cluster
    agents = [agent_with_jobs("prod-1", job("1", 1, "joe", "ml-a"), job("2", 2, "ann", "ml-b")),
              agent_with_jobs("dev", job("9", 9, "joe", "ml-a"))]
    assert list_jobs(channel=user) == ["1", "9"]
    for a in agents:
        a.close()


class Watcher:
    def __init__(self, token=None, channel=None, **req):
        self.got, self.error = [], None
        self.call = api.WatchServiceStub(channel or w.open).Watch(api.WatchRequest(parent="clusters/-", **req), timeout=60,
                                                                 metadata=bearer(token) if token else None)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for m in self.call:
                self.got.append(m)
        except grpc.RpcError as e:
            self.error = e

    def synced(self):
        wait_for("SYNCED", lambda: any(m.type == api.WATCH_EVENT_TYPE_SYNCED for m in list(self.got)) or self.error)
        assert not self.error, self.error
        return self

    def names(self):
        return [m.name for m in list(self.got) if m.name]

    def jobs(self):
        return {m.job.job_id for m in list(self.got) if m.HasField("job")}


@case
def a_watch_shows_what_may_be_seen_and_ends_when_that_changes():
    a = agent_with_jobs("prod-1", job("1", 1, "joe", "ml-a"), job("2", 2, "ann", "ml-b"), job("3", 3, "ann", "hr"))
    ml, joe = Watcher(w.token("m", groups=["ml"])).synced(), Watcher(w.token("joe", preferred_username="joe")).synced()
    op = Watcher(w.token()).synced()
    cert = Watcher(channel=w.d.channel("operator:narrow")).synced()
    assert ml.jobs() == {"1", "2"} and joe.jobs() == {"1"} and op.jobs() >= {"1", "2", "3"}
    more = [job("11", 11, "joe", "ml-a"), job("12", 12, "ann", "ml-b"), job("13", 13, "ann", "hr")]
    a.durable(a.numbered(state_update=api.StateUpdate(jobs=more, digest=77 ^ 1 ^ 2 ^ 3 ^ 11 ^ 12 ^ 13)))
    wait_for("the changes", lambda: {"11", "12", "13"} <= op.jobs() and {"11", "12"} <= ml.jobs() and "11" in joe.jobs())
    assert ml.jobs() == {"1", "2", "11", "12"} and joe.jobs() == {"1", "11"}, (ml.jobs(), joe.jobs())
    assert not any("prod-2" in n or "/dev" in n for n in ml.names() + joe.names())
    assert not any("prod" in n for n in cert.names()), cert.names()
    token = ml.got[-1].resume_token
    generation = len(op.got)
    # a bad file changes nothing
    w.bind(text="bindings: [{principals: ['jwt:corp:alice'], role: root}]")
    wait_for("the bad file to be seen", lambda: "bindings not reloaded" in w.d.tail_log(50), 30)
    assert w.clusters(w.token()) == ["dev", "prod-1", "prod-2"] and not ml.error and not op.error
    # nor does one that was cut to nothing: a certificate that the bindings limit would have its role everywhere
    w.bind(text="")
    wait_for("the empty file to be seen", lambda: "auth.yaml:1:1: nothing in it" in w.d.tail_log(50), 30)
    seen = api.FleetServiceStub(w.d.channel("operator:narrow")).ListClusters(api.ListClustersRequest(), timeout=10).clusters
    assert not any(c.name == "clusters/prod-1" for c in seen) and not cert.error, seen
    # more rights for one, fewer for another, the same for the third
    w.bind(more='  - {principals: ["jwt-group:corp:ml"], role: reader, clusters: ["dev"]}\n'
                '  - {principals: ["operator:narrow"], role: reader, clusters: ["prod-2"]}\n')
    wait_for("the watches to end", lambda: ml.error and cert.error, 30)
    for x in (ml, cert):
        assert x.error.code() == S.ABORTED, x.error
        assert b"PERMISSIONS_CHANGED" in dict(x.error.trailing_metadata())["grpc-status-details-bin"]
    assert not joe.error and not op.error and len(op.got) >= generation
    assert w.clusters(w.token("m", groups=["ml"])) == ["dev", "prod-1"]
    # a token of before stands for another view
    refused(lambda: next(api.WatchServiceStub(w.open).Watch(
        api.WatchRequest(parent="clusters/-", resume_token=token), timeout=10,
        metadata=bearer(w.token("m", groups=["ml"])))), S.INVALID_ARGUMENT, "RESUME_TOKEN_INVALID")
    w.bind()
    wait_for("the old rights", lambda: w.clusters(w.token("m", groups=["ml"])) == ["prod-1"], 30)
    for x in (joe, op):
        x.call.cancel()
    a.close()


@case
def who_sees_some_hears_what_goes_and_nothing_of_others():
    v = World(**{"retention.interval": "1s", "retention.jobs": "4s", "retention.audit": "1s", "rules.dir": RULES,
                 "detect.log_settle": "50ms"}).ready()
    c = advstack.FakeCluster(api, v.d, "prod-1", api.MODE_ACT, ["n1", "n2", "n3"])
    c.fails("2", user="ann")
    c.job("1", "COMPLETED", user="joe", end_unix=int(time.time()))
    ad = c.advice("2")
    c.agent.durable(c.agent.numbered(action=api.ActionReport(
        phase=api.ACTION_PHASE_INTENT, journal_seq=1, epoch=c.grant.epoch, advice=ad.name, generation=1, attempt=ad.attempt,
        verb=api.VERB_CANCEL)))
    incidents = lambda token: api.FleetServiceStub(v.open).ListIncidents(  # noqa: E731
        api.ListIncidentsRequest(parent="clusters/-"), timeout=10, metadata=bearer(token)).incidents
    alice, joe = v.token(), v.token("joe", preferred_username="joe")
    (i,) = incidents(alice)
    assert i.kind == api.INCIDENT_KIND_JOB_REVIVED and not incidents(joe), i
    assert [x.name for x in incidents(v.token("ann", preferred_username="ann", groups=["ml"]))] == []
    get = lambda token: api.FleetServiceStub(v.open).GetIncident(api.GetIncidentRequest(name=i.name), timeout=10,  # noqa: E731
                                                                 metadata=bearer(token))
    assert get(alice)
    refused(lambda: get(joe), S.NOT_FOUND, "INCIDENT_NOT_FOUND")
    wait_for("a checkpoint", lambda: api.AuditServiceStub(v.admin).ListAuditCheckpoints(
        api.ListAuditCheckpointsRequest(parent="clusters/prod-1"), timeout=5).checkpoints, 30)
    job_name = api.JobServiceStub(v.open).ListJobs(api.ListJobsRequest(parent="clusters/prod-1"), timeout=5,
                                                   metadata=bearer(joe)).jobs[0].name
    mine = Watcher(joe, channel=v.open).synced()
    kinds = {m.kind for m in list(mine.got)}
    assert api.RESOURCE_KIND_JOB in kinds and not kinds & {api.RESOURCE_KIND_AUDIT_CHECKPOINT, api.RESOURCE_KIND_INCIDENT}, kinds
    c.gone("1")
    wait_for("the removal", lambda: any(m.type == api.WATCH_EVENT_TYPE_REMOVED and m.name == job_name for m in list(mine.got)), 30)
    mine.call.cancel()
    c.close()
    v.stop()


@case
def a_stream_ends_with_its_token():
    watcher = Watcher(w.token(life=4)).synced()
    wait_for("the end", lambda: watcher.error, 20)
    assert watcher.error.code() == S.UNAUTHENTICATED, watcher.error
    assert b"IDENTITY_EXPIRED" in dict(watcher.error.trailing_metadata())["grpc-status-details-bin"]


@case
def keys_rotate():
    w.idp.add_key("two")
    old, new = w.token(), w.idp.token("two")
    first = attempt(new)
    if isinstance(first, grpc.RpcError):  # being read, or read a moment ago
        assert first.code() in (S.UNAVAILABLE, S.UNAUTHENTICATED), first
    wait_for("the new key", lambda: not isinstance(attempt(new), grpc.RpcError), 20)
    assert w.clusters(old)
    # the provider is away: what is known stays
    w.idp.broken = True
    asked = w.idp.asked
    unknown = w.idp.token("two", header={"kid": "three"})
    wait_for("a failed read", lambda: isinstance(attempt(unknown), grpc.RpcError) and w.idp.asked > asked, 20)
    assert w.clusters(old) and w.clusters(new)
    asked = w.idp.asked
    for _ in range(30):
        attempt(unknown)
    assert w.idp.asked - asked <= 1, "strangers make us flood the provider"
    # the old key is withdrawn
    w.idp.broken = False
    w.idp.published = ["two"]
    wait_for("the old key to go", lambda: isinstance(attempt(unknown), grpc.RpcError) and isinstance(attempt(old), grpc.RpcError), 40)
    assert attempt(old).code() == S.UNAUTHENTICATED
    refused(lambda: w.clusters(unknown), S.UNAUTHENTICATED, "TOKEN_KEY_UNKNOWN")
    assert w.clusters(new)


@case
def an_unreachable_provider_is_no_reason_not_to_start():
    v = World()
    v.stop()
    v.d.start()
    e = refused(lambda: v.clusters(v.token(), v.d.channel()), S.UNAVAILABLE, "TOKEN_KEYS_UNAVAILABLE")
    assert b"RetryInfo" in dict(e.trailing_metadata())["grpc-status-details-bin"]
    assert v.clusters(None, v.d.channel("reader:bob")) == []  # certificates do not need it
    v.d.stop()


@case
def quotas():
    d = advstack.Advisord(**{"limits.calls_per_second": 5, "limits.burst": 20, "limits.calls_in_flight": 3})
    one, other = api.FleetServiceStub(d.channel("reader:one")), api.FleetServiceStub(d.channel("reader:other"))
    ask = lambda f: f.ListClusters(api.ListClustersRequest(), timeout=10)  # noqa: E731

    def until_refused():
        for n in range(100):
            try:
                ask(one)
            except grpc.RpcError as e:
                return n, e
        raise AssertionError("never refused")
    n, e = until_refused()
    assert 20 <= n <= 40 and e.code() == S.RESOURCE_EXHAUSTED, (n, e)
    details = dict(e.trailing_metadata())["grpc-status-details-bin"]
    assert b"RATE_LIMITED" in details and b"RetryInfo" in details
    ask(other)  # not touched by it
    wait_for("the bucket to fill again", lambda: ok(lambda: ask(one)), 10)
    watches = [api.WatchServiceStub(d.channel("reader:two")).Watch(api.WatchRequest(parent="clusters/-"), timeout=30)
               for _ in range(3)]
    for x in watches:
        next(x)
    two = api.FleetServiceStub(d.channel("reader:two"))
    refused(lambda: ask(two), S.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
    watches[0].cancel()
    wait_for("a place", lambda: ok(lambda: ask(two)), 10)
    for x in watches:
        x.cancel()
    d.stop()


def ok(f):
    try:
        f()
        return True
    except grpc.RpcError as e:
        assert e.code() == S.RESOURCE_EXHAUSTED, e
        return False


@case
def guessing_is_not_for_free():
    bad = w.idp.token("two", exp=1)
    good = w.idp.token("two")
    assert w.clusters(good)
    reasons = set()
    for _ in range(200):
        e = attempt(bad)
        details = dict(e.trailing_metadata())["grpc-status-details-bin"]
        reasons.add("RATE_LIMITED" if b"RATE_LIMITED" in details else "TOKEN_EXPIRED" if b"TOKEN_EXPIRED" in details else details)
    assert reasons == {"TOKEN_EXPIRED", "RATE_LIMITED"}, reasons
    assert w.clusters(good), "a token that was good before is not asked again"
    assert w.clusters(None, w.d.channel("reader:bob")) is not None


@case
def a_clean_end():
    w.stop()


advstack.run(CASES)
