#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What two replicas over one MariaDB do when something breaks. In each case writers go on at both replicas, and repeat with
the same request id what they have no answer to. Afterwards: each write that was acknowledged is in the audit log, no write
is there twice, and the cluster has an owner and grants leases again, without anybody's help."""
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))

import advmaria
import advstack
from advlab import wait_for
from advreplicas import Replicas, knock

if not advmaria.available():
    print("skip: needs MariaDB's server and client")
    sys.exit(77)

api = advstack.stubs()
import grpc  # noqa: E402  (after the stubs, which keep generated packages out of its way)

A, B = 0, 1
RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN)


class Writers:
    """One writer a replica, each write with an id of its own until it is acknowledged."""

    def __init__(self, fleet, cluster):
        self.fleet, self.cluster = fleet, cluster
        self.acked, self.tried, self.reasons = [], 0, set()
        self.over = threading.Event()
        self.on = threading.Event()
        self.on.set()
        self.idle = 0
        self.newest = [0] * len(fleet.r)
        self.threads = [threading.Thread(target=self._write, args=(i,), daemon=True) for i in range(len(fleet.r))]
        self.errors = []
        for t in self.threads:
            t.start()

    def _write(self, i):
        n = 0
        try:
            stub = self.fleet.fleet(i)
            while not self.over.is_set():
                if not self.on.is_set():
                    self.idle += 1
                    self.on.wait()
                n += 1
                self.newest[i] = n
                self._one(stub, i, f"w{i}-{n}")
        except Exception as e:  # told by check()
            self.errors.append(f"writer {i}: {e!r}")

    def _one(self, stub, i, name):
        self.tried += 1
        while True:
            try:
                # the writer of a replica that was killed goes on at the other
                use = stub if self.fleet.r[i].proc.poll() is None else self.fleet.fleet(1 - i)
                use.SetClusterMode(api.SetClusterModeRequest(
                    name=f"clusters/{self.cluster}", mode=api.MODE_OBSERVE, reason=name,
                    request_id=f"{self.cluster}-{name}"), timeout=8)
                self.acked.append(name)
                return
            except grpc.RpcError as e:
                if e.code() not in RETRY:
                    raise
                details = dict(e.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
                self.reasons |= {r for r in ("STORE_UNAVAILABLE", "STORE_READ_ONLY", "STORE_FULL", "NOT_OWNER", "OWNER_SILENT")
                                 if r.encode() in details}
                if self.over.is_set() and self.gave_up():
                    return
                time.sleep(0.1)  # a client's back-off, no wait for a condition

    def gave_up(self):
        return time.monotonic() > self.until

    def progress(self, what, n=3, timeout=60):
        """Both replicas acknowledge again."""
        for i in range(len(self.fleet.r)):
            base = sum(x.startswith(f"w{i}-") for x in self.acked)
            wait_for(f"writes at replica {i} {what}; {self.errors}; {sorted(self.reasons)}",
                     lambda: sum(x.startswith(f"w{i}-") for x in self.acked) >= base + n, timeout)

    def pause(self):
        self.idle = 0
        self.on.clear()
        wait_for("the writers to rest", lambda: self.idle == len(self.threads), 60)

    def check(self):
        self.until = time.monotonic() + 30
        self.over.set()
        for t in self.threads:
            t.join(60)
        assert not self.errors, self.errors
        live = next(r for r in self.fleet.r if r.proc.poll() is None)
        found, token = [], ""
        stub = api.AuditServiceStub(live.channel("reader:test"))
        while True:
            page = stub.ListAuditEvents(api.ListAuditEventsRequest(
                parent=f"clusters/{self.cluster}", verb="mode.set", page_size=1000, page_token=token), timeout=20)
            found += [e.detail.rsplit(": ", 1)[-1] for e in page.events]
            token = page.next_page_token
            if not token:
                break
        lost = set(self.acked) - set(found)
        twice = {x for x in found if found.count(x) > 1}
        assert not lost, f"acknowledged and lost: {sorted(lost)}"
        assert not twice, f"carried out twice: {sorted(twice)}"
        assert len(self.acked) > 5, self.acked
        return found


class Keep:
    def purge(self):
        pass


def told(replicas, *lines):
    """What an operator sees of it: health, and lines of the log."""
    for r in replicas:
        wait_for("health to say NOT_SERVING", lambda: r.serving() is False, 30)
    for line in lines:
        wait_for(f"{line!r} in a log", lambda: any(line in r.log_text() for r in replicas), 30)


class Scene:
    """Two replicas, a cluster with an agent at A, and writers; with a database of its own if it is to be hurt."""

    def __init__(self, name, proxied=(), disk_mb=0, options=(), **config):
        self.f = Replicas(api, db=advmaria.Maria(disk_mb=disk_mb, options=options), proxied=proxied, **config)
        self.name = name
        self.f.create(name, A)
        self.agent = knock(self.f, name, A)
        self.agent.granted()
        self.f.everywhere(name)
        self.w = Writers(self.f, name)
        self.w.progress("before anything happens")

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        try:
            if kind is None:
                self.w.progress("afterwards")
                for r in self.f.r:
                    wait_for("health to say SERVING", lambda: r.serving(), 60)
                self.w.check()
                self.agent.close()
                # nobody stands down for ever: an agent is let in and granted a lease
                again = knock(self.f, self.name, B)
                again.granted(60)
                again.close()
        finally:
            self.w.over.set()
            self.w.until = 0
            self.f.stop()


def the_owner_dies_during_a_commit():
    for point in ("turn.before_commit", "mysql.before_commit", "mysql.after_commit", "turn.after_commit"):
        f = Replicas(api)
        name = "dies"
        try:
            f.create(name, A)
            agent = knock(f, name, A)
            agent.granted()
            f.everywhere(name)
            agent.close()
            f.r[A].stop()
            f.r[A].start(env={"ADVISOR_FAILPOINT": f"{point}=kill@40"})
            agent = knock(f, name, A)  # it owns the cluster again, and dies at one of the commits that follow
            w = Writers(f, name)
            wait_for(f"the owner to die at {point}", lambda: f.r[A].proc.poll() is not None, 60)
            agent.close()
            heir = knock(f, name, B, "j2")
            heir.granted(60)
            wait_for("writes at the heir", lambda: len(w.acked) > 10, 60)
            w.check()
            heir.close()
        finally:
            f.stop()


def the_database_is_killed_and_comes_back():
    with Scene("dbkill") as s:
        s.f.db.kill()
        wait_for("the writers to notice", lambda: "STORE_UNAVAILABLE" in s.w.reasons, 30)
        advstack.wait_for("the agent to be told", lambda: s.agent.error, 30)
        told(s.f.r, "the store failed: dropping memory", "store still unavailable, will retry")
        s.f.db.start()


def the_database_is_restarted():
    with Scene("dbrestart") as s:
        for _ in range(2):
            s.f.db.restart()
            s.w.progress("after a restart")


def the_database_hangs():
    with Scene("dbhang") as s:
        s.f.db.freeze()
        e = s.agent.wait_end(30)  # no answer, no lease: the agent stops acting in time
        assert e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), e
        wait_for("the writers to notice", lambda: s.w.reasons, 30)
        told(s.f.r, "store still unavailable, will retry")
        s.f.db.thaw()


def the_database_is_read_only():
    with Scene("dbro") as s:
        s.f.db.read_only(True)
        s.f.db.sql("KILL USER advisor")  # what is connected keeps its rights in a transaction under way
        wait_for("the writers to notice", lambda: "STORE_READ_ONLY" in s.w.reasons, 30)
        text = wait_for("the operator to be told", lambda: [x for r in s.f.r for x in open(f"{r.dir}/advisord.log", errors="replace")
                                                           if "read-only" in x or "read only" in x], 30)
        assert text
        s.f.db.read_only(False)


def the_disk_of_the_database_is_full():
    with Scene("dbfull", disk_mb=160, options=("--innodb-log-file-size=8M", "--innodb-data-file-path=ibdata1:12M:autoextend")) as s:
        s.f.db.fill_disk()
        # rows of some size, so that the table has to grow
        stub = s.f.fleet(A)
        failed = []

        def full():
            for n in range(200):
                try:
                    stub.SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{s.name}", mode=api.MODE_OBSERVE,
                                                                  reason=f"big{n} " + "x" * 200), timeout=8)
                except grpc.RpcError as e:
                    failed.append(e)
                    assert e.code() in RETRY, e
                    return b"STORE_FULL" in dict(e.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        wait_for(f"a full disk to be noticed; {failed[-1:]}", full, 120)
        wait_for("the operator to be told", lambda: any("disk" in x or "space" in x or "full" in x for r in s.f.r
                                                        for x in open(f"{r.dir}/advisord.log", errors="replace")), 30)
        s.f.db.empty_disk()


def somebody_locks_the_rows():
    """A lock wait that ends in time and one that does not; and a deadlock, which the database resolves against us or not."""
    with Scene("locks") as s:
        for seconds in (0.5, 4):
            p = subprocess.Popen(["mariadb", "--no-defaults", "-u", "root", "-S", s.f.db.sock, "advisor", "-e",
                                  f"START TRANSACTION; SELECT * FROM owners WHERE cluster = '{s.name}' FOR UPDATE; "
                                  f"SELECT SLEEP({seconds}); ROLLBACK"], stdout=subprocess.DEVNULL)
            assert p.wait(30) == 0
            s.w.progress(f"after a lock of {seconds} s")
        for _ in range(10):
            # takes what a commit takes, in the other order
            subprocess.run(["mariadb", "--no-defaults", "-u", "root", "-S", s.f.db.sock, "advisor", "-e",
                            "START TRANSACTION; SELECT * FROM sequence FOR UPDATE; SELECT SLEEP(0.05); "
                            f"SELECT * FROM owners WHERE cluster = '{s.name}' FOR UPDATE; ROLLBACK"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
        s.w.progress("after deadlocks")


def connections_are_reset_in_the_middle_of_results():
    with Scene("reset", proxied=(A, B)) as s:
        for after in (50, 200, 700, 3000):
            for r in s.f.r:
                r.proxy.set("reset", after)
            s.f.r[A].proxy.cut()
            s.f.r[B].proxy.cut("close")
            wait_for("the writers to notice", lambda: "STORE_UNAVAILABLE" in s.w.reasons, 30)
            for r in s.f.r:
                r.proxy.set(None)
                r.proxy.cut()
            s.w.reasons.clear()
            s.w.progress(f"after resets at byte {after}")


def a_replica_is_cut_from_the_store_but_not_from_its_agent():
    with Scene("cutdb", proxied=(A,)) as s:
        epoch = s.agent.told()[1]
        s.f.r[A].proxy.stall()
        e = s.agent.wait_end(30)
        assert e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), e
        told([s.f.r[A]], "store still unavailable, will retry")
        assert s.f.r[B].serving()
        # the agent finds the other one, which takes the cluster over when the lease has run out
        moved = knock(s.f, s.name, B, "j1", 60)
        assert moved.granted(60).counter > epoch.counter
        s.f.r[A].proxy.set(None)
        s.f.r[A].proxy.cut()
        s.w.progress("once its way to the database is back")
        assert moved.error is None, "the replica that was away took the cluster back"
        moved.close()


def moves_to(s, i):
    """Another agent of the cluster comes to that replica, and comes back, as a real one does, should a busy machine have kept its
    heartbeats for too long; until it has the lease. Returns (agent, epoch)."""
    def probe():
        a = knock(s.f, s.name, i, "j2", 60)
        try:
            return a, a.granted(60)
        except AssertionError:
            a.close()
            if a.error is None or a.error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            return None
    return wait_for(f"replica {i} to grant the lease", probe, 90)


def a_replica_is_cut_from_its_agent_but_not_from_the_store():
    with Scene("cutagent") as s:
        epoch = s.agent.told()[1]
        s.agent.quiet.set()  # nothing of it arrives any more; its connection is open
        moved, newer = moves_to(s, B)
        assert newer.counter > epoch.counter
        moved.close()


def two_replicas_fight_for_one_cluster():
    """Two agents of one cluster, one at each replica, and both want it: one at a time has it, and it settles."""
    with Scene("fight") as s:
        other = []

        def rival():
            while not stop.is_set():
                a = s.f.agent(s.name, B, "j2")
                wait_for("an answer", lambda: a.all("welcome") or a.error, 30)
                other.append(a)
                if a.all("welcome"):
                    return
                a.close()
        stop = threading.Event()
        t = threading.Thread(target=rival, daemon=True)
        t.start()
        wait_for("the rival to be refused a few times", lambda: len(other) >= 3, 60)
        assert s.agent.error is None and all(not a.all("welcome") for a in other)
        rows = s.f.db.sql(f"SELECT epoch FROM owners WHERE cluster = '{s.name}'")
        stop.set()
        t.join(30)
        assert int(rows[0][0]) < 20, rows
        for a in other:
            a.close()


def the_clock_of_a_replica_jumps():
    f = Replicas(api)
    name = "jump"
    offset = f"{f.dir}/offset"
    try:
        f.r[A].stop()
        open(offset, "w").write("0")
        f.r[A].start(env={"ADVISOR_WALL_OFFSET": offset})
        f.create(name, A)
        agent = knock(f, name, A)
        epoch = agent.granted()
        f.everywhere(name)
        w = Writers(f, name)
        w.progress("before the jumps")
        for seconds in (3600, -3600, 36000, -36000):
            open(offset, "w").write(str(seconds))
            acks = len(agent.all("heartbeat_ack"))
            wait_for("heartbeats after the jump", lambda: len(agent.all("heartbeat_ack")) > acks + 10, 30)
            assert agent.error is None and agent.told()[1].counter == epoch.counter, f"the jump by {seconds} s cost the lease"
            w.progress(f"after the jump by {seconds} s")
        w.check()
        agent.close()
    finally:
        f.stop()


def yesterdays_backup_comes_back():
    """While the agents hold newer epochs. Nothing may be acted upon before a person has looked."""
    with Scene("backup") as s:
        s.w.pause()  # setting the mode is a person's confirmation: nobody does so here
        s.f.fleet(A).SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{s.name}", mode=api.MODE_ACT), timeout=20)
        # --replace: a living replica may write its row between the making of a table and its lock
        dump = subprocess.run(["mariadb-dump", "--no-defaults", "-u", "root", "-S", s.f.db.sock, "--single-transaction",
                               "--replace", "advisor"], capture_output=True, check=True, timeout=60).stdout
        s.agent.close()
        s.agent = knock(s.f, s.name, A)  # a grant that the backup does not know
        newest = s.agent.granted()
        p = subprocess.run(["mariadb", "--no-defaults", "-u", "root", "-S", s.f.db.sock, "advisor"], input=dump,
                           capture_output=True, timeout=120)
        assert p.returncode == 0, p.stderr
        end = s.agent.wait_end(30)  # by what it had asked, or with all the others
        details = dict(end.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        assert b"STORE_REPLACED" in details or b"STORE_UNAVAILABLE" in details, end
        back = knock(s.f, s.name, A, highest_epoch=newest)
        epoch = back.granted(60)
        assert (epoch.term, epoch.counter) > (newest.term, newest.counter), (epoch, newest)
        for i in (A, B):
            def behind():
                try:
                    c = s.f.fleet(i).GetCluster(api.GetClusterRequest(name=f"clusters/{s.name}"), timeout=10).cluster
                except grpc.RpcError as e:
                    assert e.code() == grpc.StatusCode.UNAVAILABLE, e
                    return None  # it has just seen that this is another history, and loads it
                return c if any("behind" in r for r in c.mode_reasons) else None
            c = wait_for(f"replica {i} to say that the store is behind", behind, 30)
            assert c.mode == api.MODE_ACT and c.effective_mode == api.MODE_OBSERVE, c
        # a person confirms, and it goes on
        s.f.fleet(B).SetClusterMode(api.SetClusterModeRequest(name=f"clusters/{s.name}", mode=api.MODE_ACT), timeout=20)
        wait_for("the mode to hold again", lambda: s.f.fleet(A).GetCluster(
            api.GetClusterRequest(name=f"clusters/{s.name}"), timeout=10).cluster.effective_mode == api.MODE_ACT, 20)
        back.close()
        s.w.on.set()


def copy_of(db):
    """A second server that holds what @db holds at this moment: a replica of the database that falls behind from here on."""
    dump = subprocess.run(["mariadb-dump", "--no-defaults", "-u", "root", "-S", db.sock, "--single-transaction", "advisor"],
                          capture_output=True, check=True, timeout=60).stdout
    other = advmaria.Maria()
    subprocess.run(["mariadb", "--no-defaults", "-u", "root", "-S", other.sock, "advisor"], input=dump, check=True, timeout=120,
                   stdout=subprocess.DEVNULL)
    return other


def the_database_moves_to_a_server_that_was_behind():
    """Its address leads to another server in the middle of everything. What the old one alone knew is gone; but nothing is built
    on it: what is acknowledged from then on is there, and the chain of audit events and the numbers of changes have no hole."""
    with Scene("moved", proxied=(A, B)) as s:
        old, s.f.db = s.f.db, copy_of(s.f.db)
        try:
            s.w.progress("of which the copy knows nothing")
            for r in s.f.r:
                r.proxy.target = s.f.db.port
            for r in s.f.r:
                r.proxy.cut()
            behind = {f"w{i}-{n}" for i in (A, B) for n in range(1, s.w.newest[i] + 1)}  # may be gone, or not
            s.w.progress("on the other server")
            s.w.pause()
            s.w.acked = [x for x in s.w.acked if x not in behind]
            rows = s.f.db.sql("SELECT COUNT(*), MIN(seq), MAX(seq), COUNT(DISTINCT revision) FROM changes WHERE cluster = 'moved'"
                              " AND kind <> 0")[0]
            assert rows[0] == rows[3], f"a revision was given out twice: {rows}"
            for what, table in (("audit events", "audit WHERE cluster = 'moved'"), ("changes", "changes")):
                n, first, last = (int(x) for x in s.f.db.sql(f"SELECT COUNT(*), MIN(seq), MAX(seq) FROM {table}")[0])
                assert n == last - first + 1, f"a hole in the {what}: {n} from {first} to {last}"
            s.w.on.set()
        finally:
            old.purge()


def an_owner_is_frozen_and_thawed():
    """Longer than its lease. What it is asked while it stands still it must not answer from what it knew."""
    with Scene("frozen") as s:
        epoch = s.agent.told()[1]
        name = f"clusters/{s.name}"
        readers, writers = s.f.fleet(A, "reader:test"), s.f.fleet(A)
        readers.GetCluster(api.GetClusterRequest(name=name), timeout=10)  # both are connected
        writers.GetCluster(api.GetClusterRequest(name=name), timeout=10)
        s.f.r[A].proc.send_signal(signal.SIGSTOP)
        try:
            moved = knock(s.f, s.name, B, "j2", 60)
            assert moved.granted(60).counter > epoch.counter
            s.f.fleet(B).SetClusterMode(api.SetClusterModeRequest(name=name, mode=api.MODE_OBSERVE, reason="the newest"), timeout=20)
            newest = s.f.fleet(B).GetCluster(api.GetClusterRequest(name=name), timeout=20).cluster
            read = readers.GetCluster.future(api.GetClusterRequest(name=name), timeout=30)
            write = writers.SetClusterMode.future(api.SetClusterModeRequest(
                name=name, mode=api.MODE_OBSERVE, reason="asked of the frozen one", etag=newest.etag), timeout=30)
        finally:
            s.f.r[A].proc.send_signal(signal.SIGCONT)
        try:
            got = read.result().cluster
            assert int(got.etag[1:]) >= int(newest.etag[1:]), f"stale: {got} after {newest}"
        except grpc.RpcError as e:
            assert e.code() in RETRY, e
        try:
            write.result()
        except grpc.RpcError as e:
            assert e.code() in RETRY + (grpc.StatusCode.ABORTED,), e  # or somebody set it meanwhile
        assert s.agent.wait_end(30).code() in RETRY + (grpc.StatusCode.ABORTED,)
        assert moved.error is None, "the thawed one took the cluster back"
        moved.close()


cases = [the_owner_dies_during_a_commit, the_database_is_killed_and_comes_back, the_database_is_restarted,
         the_database_hangs, the_database_is_read_only, the_disk_of_the_database_is_full, somebody_locks_the_rows,
         connections_are_reset_in_the_middle_of_results, a_replica_is_cut_from_the_store_but_not_from_its_agent,
         a_replica_is_cut_from_its_agent_but_not_from_the_store, two_replicas_fight_for_one_cluster,
         the_database_moves_to_a_server_that_was_behind, an_owner_is_frozen_and_thawed,
         the_clock_of_a_replica_jumps, yesterdays_backup_comes_back]

GROUPS = {"database": [c for c in cases if "database" in c.__name__ or "disk" in c.__name__],
          "owner": [c for c in cases if "database" not in c.__name__ and "disk" not in c.__name__]}

if __name__ == "__main__":
    pick, sys.argv = sys.argv[1:], sys.argv[:1]  # groups or names; run() takes parts of names
    names = {c.__name__ for p in pick for c in GROUPS.get(p, [])} | set(pick)
    advstack.run([c for c in cases if not pick or c.__name__ in names])
