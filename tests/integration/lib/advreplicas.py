# SPDX-License-Identifier: Apache-2.0
"""Replicas of advisord over one real MariaDB."""
import os
import shutil
import signal
import tempfile
import threading

from advlab import wait_for
from advmaria import Maria, Proxy
from advstack import Advisord, Ca, FakeAgent


class Replica(Advisord):
    """One advisord of a fleet; `proxy` (its way to the database) can be cut or stalled."""

    def __init__(self, fleet, number, **config):
        self.fleet = fleet
        self.proxy = None
        config = {**fleet.config, **config}
        if config.pop("proxied", False):
            self.proxy = Proxy(fleet.db.port)
            config["store.url"] = fleet.db.url("127.0.0.1", self.proxy.port)
        folder = f"{fleet.dir}/r{number}"
        os.makedirs(folder, exist_ok=True)
        super().__init__(folder, tls=False, **config)

    def channel(self, name=None, *sans, ca=None):
        import grpc
        if name is None or sans or ca:
            return super().channel(name, *sans, ca=ca)
        with self.fleet.lock:  # writers ask from several threads
            if name not in self.fleet.issued:
                cert, key = self.ca.issue(name.replace(":", "-"), f"URI:advisor:{name}")
                self.fleet.issued[name] = open(key, "rb").read(), open(cert, "rb").read()
            with open(self.ca.cert, "rb") as f:
                credentials = grpc.ssl_channel_credentials(f.read(), *self.fleet.issued[name])
        return grpc.secure_channel(f"127.0.0.1:{self.port}", credentials, [("grpc.use_local_subchannel_pool", 1)])

    def start(self, env=None):
        if not self.tls:
            self.tls, self.ca = True, self.fleet.ca
            self.config.pop("insecure", None)
            self.config.update({"tls.cert": self.fleet.cert[0], "tls.key": self.fleet.cert[1], "tls.ca": self.fleet.ca.cert})
        super().start(env)


class Replicas:
    """A database, replicas, and short leases, so that what takes a minute in life takes seconds here."""

    OWNER_LEASE_S = 4.0
    ACTION_LEASE_S = 3.0

    def __init__(self, api, n=2, db=None, env=None, proxied=(), **config):
        self.api = api
        self.lock, self.issued = threading.Lock(), {}
        self.dir = tempfile.mkdtemp(prefix="replicas-")
        os.chmod(self.dir, 0o755)
        self.db = db or Maria()
        self.ca = Ca(f"{self.dir}/tls")
        self.cert = self.ca.issue("advisord", "DNS:localhost", "IP:127.0.0.1")
        self.config = {
            "store.url": self.db.url("127.0.0.1"), "store.password_file": self.db.password_file, "store.timeout": "1s",
            "store.ownership_lease": f"{int(self.OWNER_LEASE_S * 1000)}ms",
            "agent.lease": f"{int(self.ACTION_LEASE_S * 1000)}ms", "agent.heartbeat_interval": "300ms",
            "agent.silence_timeout": "2s", **config,
        }
        self.r = [Replica(self, i, **({"proxied": True} if i in proxied else {})) for i in range(n)]

    def stop(self):
        try:
            for r in self.r:
                if r.proc.poll() is None:
                    r.proc.send_signal(signal.SIGCONT)
                r.stop()
        finally:
            self.db.purge()
            shutil.rmtree(self.dir, ignore_errors=True)

    # what the database says
    def owner(self, cluster):
        """(replica, epoch) of the ownership lease that holds at present; None when it is free."""
        rows = self.db.sql("SELECT owner, epoch FROM owners WHERE owner <> '' AND until_at >= NOW(6) AND cluster = "
                          f"'{cluster}'")
        return (rows[0][0], int(rows[0][1])) if rows else None

    def wait_owned(self, cluster, timeout=30):
        return wait_for(f"an owner of {cluster}", lambda: self.owner(cluster), timeout)

    # calls
    def fleet(self, i=0, name="admin:root"):
        return self.api.FleetServiceStub(self.r[i].channel(name))

    def create(self, cluster, i=0, mode=None, timeout=30):
        f = self.fleet(i)
        f.CreateCluster(self.api.CreateClusterRequest(cluster_id=cluster), timeout=timeout)
        if mode:
            f.SetClusterMode(self.api.SetClusterModeRequest(name=f"clusters/{cluster}", mode=mode), timeout=timeout)

    def everywhere(self, cluster, timeout=30):
        """Until each replica has followed the cluster's creation: at once is promised only where it was made."""
        import grpc

        def seen(i):
            try:
                return self.fleet(i).GetCluster(self.api.GetClusterRequest(name=f"clusters/{cluster}"), timeout=10)
            except grpc.RpcError as e:
                if e.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE):
                    raise
        for i, r in enumerate(self.r):
            if r.proc.poll() is None:
                wait_for(f"{cluster} at replica {i}", lambda: seen(i), timeout)

    def mode(self, cluster, i=0):
        return self.fleet(i).GetCluster(self.api.GetClusterRequest(name=f"clusters/{cluster}"), timeout=10).cluster.mode

    def agent(self, cluster, i=0, journal="j1", **hello):
        return Beating(self.api, self.r[i].channel(f"agent:{cluster}"), cluster, journal=journal, **hello)


class Beating(FakeAgent):
    """Sends heartbeats by itself and notes when it was granted what."""

    def __init__(self, *args, **hello):
        self.quiet = threading.Event()
        super().__init__(*args, **hello)
        self.beats = threading.Thread(target=self._beat, daemon=True)
        self.beats.start()

    def _beat(self):
        while not self.quiet.wait(0.3) and self.error is None:
            if any(m.HasField("welcome") for m in self.got):
                self.heartbeat(observation_age_ms=0)

    def granted(self, timeout=30):
        """The epoch of the newest grant, once there is one."""
        return wait_for("a grant", lambda: self.error is None and self.told()[1] or self._ended(), timeout)

    def _ended(self):
        if self.error is not None:
            raise AssertionError(f"session ended: {self.error.code()} {self.error.details()}")

    def close(self):
        self.quiet.set()
        super().close()


def knock(replicas, cluster, i, journal="j1", timeout=40, **hello):
    """What a real agent does: comes back until it is let in. Returns the agent with its welcome."""
    def probe():
        a = replicas.agent(cluster, i, journal, **hello)
        wait_for("welcome or refusal", lambda: a.all("welcome") or a.error, 20)
        if a.all("welcome"):
            return a
        a.close()
        return None
    return wait_for(f"replica {i} to let the agent of {cluster} in", probe, timeout)
