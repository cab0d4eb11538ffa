#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""advisord store: check, backup, restore, copy, promote, on SQLite and on a real MariaDB, with a real advisord serving."""
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advmaria  # noqa: E402
import advstack  # noqa: E402
from advlab import Skip, wait_for  # noqa: E402
from advstore import field, tool  # noqa: E402

import grpc  # noqa: E402

api = advstack.stubs()
CASES = []
MODES = (api.MODE_OBSERVE, api.MODE_APPROVE, api.MODE_ACT)
SHORT = {"store.ownership_lease": "3s", "agent.lease": "2s", "store.timeout": "2s"}
_maria = []


def case(f):
    CASES.append(f)
    return f


def maria():
    if not advmaria.available():
        raise Skip("no MariaDB server here")
    if not _maria:
        _maria.append(advmaria.Maria())
    m = _maria[0]
    m.start()
    m.sql("DROP DATABASE advisor; CREATE DATABASE advisor")
    return m


def on_mysql(m):
    return {**SHORT, "store.url": m.url(), "store.password_file": m.password_file}


class Load:
    """Changes a cluster's mode as fast as it goes; knows what was acknowledged last."""

    def __init__(self, d, cluster="alpha", create=True):
        self.d = d
        self.cluster = cluster
        self.fleet = api.FleetServiceStub(d.channel("admin:load"))
        self.acknowledged = 0
        self.error = None
        self.end = threading.Event()
        if create:
            wait_for("a cluster to be made", self._create, 30)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _create(self):
        try:
            self.fleet.CreateCluster(api.CreateClusterRequest(cluster_id=self.cluster, request_id=f"make-{self.cluster}"),
                                     timeout=10)
            return True
        except grpc.RpcError:
            return False

    def _run(self):
        n = 0
        while not self.end.is_set():
            n += 1
            try:
                self.fleet.SetClusterMode(api.SetClusterModeRequest(
                    name=f"clusters/{self.cluster}", mode=MODES[n % 3], request_id=f"{self.cluster}-{n}",
                    reason=f"load-{n}"), timeout=10)
                self.acknowledged = n
            except grpc.RpcError as e:
                self.error = e
                return

    def wait(self, n):
        wait_for(f"{n} writes of load", lambda: self.acknowledged >= n or self.error, 60)
        if self.error:
            raise AssertionError(f"load ended: {self.error}")

    def stop(self):
        self.end.set()
        self.thread.join(30)
        return self.acknowledged


def reasons(path):
    """The numbers of acknowledged writes that a store file holds."""
    db = sqlite3.connect(path)
    try:
        rows = db.execute("SELECT detail FROM audit WHERE verb LIKE '%mode%'").fetchall()
    finally:
        db.close()
    return {int(r[0].rsplit("load-", 1)[1].split('"')[0]) for r in rows if "load-" in r[0]}


def events(d):
    """The same of a store that is served."""
    audit = api.AuditServiceStub(d.channel("reader:audit"))
    token, got = "", set()
    while True:
        r = audit.ListAuditEvents(api.ListAuditEventsRequest(parent="clusters/-", page_size=1000, page_token=token), timeout=20)
        got |= {int(e.detail.rsplit("load-", 1)[1].split('"')[0]) for e in r.events if "load-" in e.detail}
        token = r.next_page_token
        if not token:
            return got


@case
def a_good_store_is_ok_also_while_it_is_served():
    d = advstack.Advisord()
    load = Load(d)
    load.wait(20)
    out = tool(d, "check")
    assert out.rstrip().endswith("ok"), out
    assert field(out, "engine") == "sqlite" and field(out, "term") == "1", out
    assert int(field(out, "audit")) >= 20, out
    assert field(out, "chains").startswith("2 of audit events") or field(out, "chains").startswith("1 of"), out
    load.stop()
    d.stop()
    a, b = tool(d, "info"), tool(d, "info")
    assert a == b and len(field(a, "content")) == 64
    shutil.rmtree(d.dir)


@case
def damage_is_named():
    d = advstack.Advisord()
    load = Load(d)
    load.wait(12)
    load.stop()
    d.stop()
    path = d.config["store.path"]
    whole = path + ".whole"
    shutil.copy(path, whole)
    damages = [
        ("UPDATE objects SET record = x'0801ff' WHERE kind = 1 AND cluster = 'alpha'", "objects: store: object alpha, kind 1"),
        ("DELETE FROM objects WHERE kind = 1 AND cluster = 'alpha'", "audit: events of alpha, which is not there"),
        ("INSERT INTO objects VALUES('nowhere', 2, 'x', x'0a0178')", "object nowhere, kind 2"),
        ("INSERT INTO objects VALUES('alpha', 2, 'x', x'0a0179120131')", "the record is of another object"),
        ("DELETE FROM changes WHERE seq = 5", "changes: 6 follows 4"),
        ("UPDATE audit SET principal = 'somebody' WHERE cluster = 'alpha' AND seq = 3", "event 3 is not what its hash says"),
        ("UPDATE audit SET detail = 'else' WHERE cluster = 'alpha' AND seq = 3", "event 3: the detail is not what its hash says"),
        ("DELETE FROM audit WHERE cluster = 'alpha' AND seq = 3", "event 4 follows 2"),
        ("DELETE FROM audit WHERE cluster = 'alpha' AND seq = (SELECT max(seq) FROM audit WHERE cluster = 'alpha')",
         "alpha: the chain ends with event"),
        ("DELETE FROM audit WHERE cluster = 'alpha'", "audit: alpha: all events are missing, of which"),
        ("DELETE FROM audit WHERE cluster = 'alpha' AND seq = 1", "alpha: event 2 is the oldest, and no checkpoint says what was before it"),
        ("DELETE FROM audit WHERE cluster = 'alpha' AND seq <= 10", "alpha: event 11 is the oldest, and no checkpoint"),
        ("UPDATE audit SET prev_hash = hash WHERE cluster = 'alpha' AND seq = 4", "event 4 does not follow event 3"),
        ("UPDATE requests SET hash = '' WHERE id LIKE '%:alpha-3'", ":alpha-3\": no id, hash or time"),
        ("UPDATE meta SET value = 'x' WHERE key = 'store_uuid'", "meta: no identity"),
    ]
    for sql, said in damages:
        for end in ("", "-wal", "-shm"):
            if os.path.exists(path + end):
                os.unlink(path + end)
        shutil.copy(whole, path)
        db = sqlite3.connect(path)
        assert db.execute(sql).rowcount >= 1, f"{sql}: it damages nothing"
        db.commit()
        db.close()
        out = tool(d, "check", rc=1)
        assert said in out and "problem" in out, f"{sql}: {out}"
    with open(path, "r+b") as f:  # a page of the file itself
        f.seek(4096 * 3)
        f.write(b"\xa5" * 4096)
    tool(d, "check", rc=1)
    with open(path, "wb") as f:
        f.write(b"not a database" * 1000)
    assert "STORE_CORRUPT" in tool(d, "check", rc=1)
    os.unlink(path)
    assert "No such file" in tool(d, "check", rc=1)
    assert not os.path.exists(path), "a check made a store"


@case
def backups_while_serving_hold_everything_acknowledged_before():
    d = advstack.Advisord()
    load = Load(d)
    folder = tempfile.mkdtemp(prefix="advbackup-")
    for i in range(8):
        load.wait(load.acknowledged + 15)
        before = load.acknowledged
        path = f"{folder}/{i}.db"
        out = tool(d, "backup", path)
        assert "on disk" in out
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert not os.path.exists(path + "-wal")
        got = reasons(path)
        assert got >= set(range(1, before + 1)), f"{before} acknowledged, missing {set(range(1, before + 1)) - got}"
        assert got == set(range(1, len(got) + 1)), "not of one moment"
        assert tool(d, "check", path).rstrip().endswith("ok")
    assert "there already" in tool(d, "backup", f"{folder}/0.db", rc=1)
    assert "advisord" in tool(d, "backup", "/no/such/folder/x.db", rc=1)
    load.stop()
    d.stop()
    shutil.rmtree(folder)


@case
def a_backup_is_restored_with_a_new_term():
    d = advstack.Advisord()
    load = Load(d)
    load.wait(10)
    backup = d.dir + "/backup.db"
    tool(d, "backup", backup)
    in_backup = reasons(backup)
    load.wait(load.acknowledged + 10)
    content = field(tool(d, "info", config={"store.path": backup}), "content")
    assert "STORE_SERVED" in tool(d, "restore", backup, rc=1)
    load.wait(load.acknowledged + 5)  # it was not disturbed
    load.stop()
    d.kill()  # with its log not taken in
    assert os.path.exists(d.config["store.path"] + "-wal")
    assert "term 2" in tool(d, "restore", backup)
    info = tool(d, "info")
    assert field(info, "content") == content and field(info, "term") == "2", info
    d.start()
    assert events(d) == in_backup
    Load(d, "beta").wait(3)
    d.stop()
    # again: above what is there, not only above the backup
    assert "term 3" in tool(d, "restore", backup)
    # where nothing is there
    os.unlink(d.config["store.path"])
    assert "term 2" in tool(d, "restore", backup)
    assert tool(d, "check").rstrip().endswith("ok")
    # a damaged one is refused
    db = sqlite3.connect(backup)
    db.execute("DELETE FROM changes WHERE seq = 3")
    db.commit()
    db.close()
    assert "--force" in tool(d, "restore", backup, rc=1)
    assert field(tool(d, "info"), "term") == "2"
    assert "term 3" in tool(d, "restore", backup, "--force")


def _killed_restores(d, path, backup, then, now, before, after):
    """Restores that are killed: at each named step, where it is known what is left (@now what is there at first, @then the
    backup), and at moments spread over as long as one takes on this machine, where it is one or the other."""
    argv = [os.environ["ADVISORD"], "--config", path, "store", "restore", backup]

    def left():
        out = tool(d, "check")
        assert out.rstrip().endswith("ok"), out
        return field(tool(d, "info"), "content")

    for points, want in ((before, now), (after, then)):
        for point in points:
            p = subprocess.run(argv, env={**os.environ, "ADVISOR_FAILPOINT": f"{point}=kill"}, capture_output=True, timeout=120)
            assert p.returncode == -signal.SIGKILL, f"{point}: {p.returncode} {p.stderr}"
            got = left()
            assert got == want, f"killed at {point}: {got}, expected {want}"
    began = time.monotonic()
    subprocess.run(argv, check=True, capture_output=True, timeout=120)
    whole = time.monotonic() - began
    for i in range(10):
        p = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            p.wait(whole * (i + 0.5) / 10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        assert left() in (then, now)


@case
def a_restore_that_is_killed_leaves_one_or_the_other():
    d = advstack.Advisord()
    load = Load(d)
    load.wait(30)
    backup = d.dir + "/backup.db"
    tool(d, "backup", backup)
    load.wait(load.acknowledged + 30)
    load.stop()
    d.stop()
    then = field(tool(d, "info", config={"store.path": backup}), "content")
    now = field(tool(d, "info"), "content")
    assert then != now
    _killed_restores(d, f"{d.dir}/tool.yaml", backup, then, now,
                     ("image.begun", "image.before_commit", "image.after_commit", "image.before_drop_log",
                      "image.before_rename"), ("image.after_rename",))
    d.start()
    d.stop()


@case
def sqlite_is_copied_to_mysql_while_it_serves():
    m = maria()
    d = advstack.Advisord()
    load = Load(d)
    load.wait(25)
    out = tool(d, "copy", m.url(), "--password-file", m.password_file)
    assert "copied with term 2" in out, out
    wait_for("the source to stop acknowledging", lambda: load.error, 30)
    assert load.error.code() == grpc.StatusCode.UNAVAILABLE, load.error
    acknowledged = load.acknowledged
    d.kill()
    # nobody serves the source by mistake
    d.config.update(SHORT)
    try:
        d.start()
    except AssertionError as e:
        assert "copied to mysql://" in str(e) and "not to be served" in str(e), e
    else:
        raise AssertionError("a sealed store was served")
    assert "expected an empty database" in tool(d, "copy", m.url(), "--password-file", m.password_file, rc=1)
    # the copy has it all, and goes on
    here, there = tool(d, "info"), tool(d, "info", config=on_mysql(m))
    assert field(here, "content") == field(there, "content") and field(here, "store") == field(there, "store")
    assert "copied to mysql://" in field(here, "sealed")
    assert tool(d, "check", config=on_mysql(m)).rstrip().endswith("ok")
    d.config.update(on_mysql(m))
    d.start()
    got = events(d)
    assert got >= set(range(1, acknowledged + 1)), f"lost: {set(range(1, acknowledged + 1)) - got}"
    Load(d, "beta").wait(10)
    load2 = Load(d, "alpha", create=False)  # the copied cluster has an owner again
    load2.wait(5)
    load2.stop()
    d.stop()
    assert tool(d, "check").rstrip().endswith("ok")
    other = advstack.Advisord()
    other.stop()
    assert "expected an empty database" in tool(other, "copy", m.url(), "--password-file", m.password_file, rc=1)
    assert "sealed" not in tool(other, "info")


@case
def a_copy_that_fails_gives_the_source_back():
    m = maria()
    d = advstack.Advisord()
    load = Load(d)
    load.wait(10)
    tool(d, "copy", m.url(), rc=1)  # no password
    load.wait(load.acknowledged + 5)
    m.read_only()
    out = tool(d, "copy", m.url(), "--password-file", m.password_file, rc=1)
    m.read_only(False)
    assert "STORE_READ_ONLY" in out and "sealed" in out, out
    assert "sealed" not in tool(d, "info").replace("unsealed", "")
    load.stop()
    wait_for("the source to serve again", lambda: _writes(d), 30)
    # by hand
    tool(d, "seal", "kept for the record")
    assert "kept for the record" in tool(d, "seal", "again", rc=1)
    assert not _writes(d)
    tool(d, "unseal")
    wait_for("the source to serve again", lambda: _writes(d), 30)
    d.stop()


def _writes(d):
    try:
        api.FleetServiceStub(d.channel("admin:w")).SetClusterMode(
            api.SetClusterModeRequest(name="clusters/alpha", mode=api.MODE_OBSERVE, reason="w"), timeout=5)
        return True
    except grpc.RpcError:
        return False


@case
def mysql_is_backed_up_while_two_replicas_serve_and_restored():
    m = maria()
    a, b = advstack.Advisord(**on_mysql(m)), advstack.Advisord(**on_mysql(m))
    loads = [Load(a, "alpha"), Load(b, "beta")]
    backup = a.dir + "/backup.db"
    for i in range(3):
        for load in loads:
            load.wait(load.acknowledged + 10)
        before = [load.acknowledged for load in loads]
        if os.path.exists(backup):
            os.unlink(backup)
        tool(a, "backup", backup)
        assert len(reasons(backup)) >= max(before)
        assert tool(a, "check", backup).rstrip().endswith("ok")
    content = field(tool(a, "info", config={"store.url": '""', "store.path": backup}), "content")
    assert "STORE_SERVED" in tool(a, "restore", backup, rc=1)
    for load in loads:
        load.wait(load.acknowledged + 5)
        load.stop()
    assert tool(a, "check").rstrip().endswith("ok")
    assert "STORE_SERVED" in tool(a, "promote", rc=1)
    a.stop()
    b.kill()  # its lease has to end first
    assert "STORE_SERVED" in tool(a, "restore", backup, rc=1)
    wait_for("the killed replica's lease to end", lambda: "restored with term 2" in tool(a, "restore", backup, rc=None), 30)
    info = tool(a, "info")
    assert field(info, "content") == content and field(info, "term") == "2"
    a.start()
    b.start()
    for d, name in ((a, "alpha"), (b, "beta")):
        load = Load(d, name, create=False)
        load.wait(5)
        load.stop()
    a.stop()
    b.stop()
    assert field(tool(a, "promote"), "term") == "3"
    assert tool(a, "check").rstrip().endswith("ok")
    # and the other way: into SQLite
    again = a.dir + "/again.db"
    tool(a, "backup", again)
    s = {"store.url": '""', "store.path": a.dir + "/new.db"}
    assert "term 4" in tool(a, "restore", again, config=s)
    assert tool(a, "check", config=s).rstrip().endswith("ok")


@case
def a_mysql_restore_that_is_killed_leaves_one_or_the_other():
    m = maria()
    a = advstack.Advisord(**on_mysql(m))
    load = Load(a)
    load.wait(40)
    backup = a.dir + "/backup.db"
    tool(a, "backup", backup)
    load.wait(load.acknowledged + 20)
    load.stop()
    a.stop()
    then = field(tool(a, "info", config={"store.url": '""', "store.path": backup}), "content")
    now = field(tool(a, "info"), "content")
    assert then != now
    path = f"{a.dir}/restore.yaml"
    shutil.copy(f"{a.dir}/tool.yaml", path)
    _killed_restores(a, path, backup, then, now, ("image.begun", "image.before_commit"), ("image.after_commit",))
    a.start()
    a.stop()


@case
def yesterdays_backup_under_running_replicas_is_noticed():
    """Put in place by other means than ours: no replica goes on with what it knew."""
    m = maria()
    a, b = advstack.Advisord(**on_mysql(m)), advstack.Advisord(**on_mysql(m))
    load = Load(a)
    load.wait(10)
    dump = subprocess.run(["mariadb-dump", "--no-defaults", "-uroot", "-S", m.sock, "--single-transaction", "--hex-blob", "advisor"],
                          capture_output=True, check=True).stdout
    then = load.acknowledged
    load.wait(then + 10)
    load.stop()
    get = api.GetClusterRequest(name="clusters/alpha")  # from memory: a replica that does not know the newest yet has nothing to drop
    seen = [api.FleetServiceStub(d.channel("reader:both")) for d in (a, b)]
    wait_for("both replicas to know the newest", lambda: len({s.GetCluster(get, timeout=10).cluster.SerializeToString() for s in seen}) == 1, 30)
    subprocess.run(["mariadb", "--no-defaults", "-uroot", "-S", m.sock, "advisor"], input=dump, check=True)

    def agree():
        try:
            got = [events(d) for d in (a, b)]
        except grpc.RpcError:
            return False
        return got[0] == got[1] and max(got[0]) < then + 5 and got[0]
    wait_for("both replicas to show what the database holds", agree, 30)
    for d in (a, b):  # audit events are read from the database; that memory follows is told by the log
        def noticed():
            with open(d.dir + "/advisord.log") as f:
                return f.read().count("state loaded from the store") >= 2
        wait_for("a replica to drop what it knew", noticed, 30)
    wait_for("writing again", lambda: _writes(a), 30)
    a.stop()
    b.stop()
    assert tool(a, "check").rstrip().endswith("ok")


@case
def wrong_command_lines():
    d = advstack.Advisord()
    d.stop()
    for args in ((), ("nonsense",), ("backup",), ("check", "a", "b"), ("promote", "x"), ("restore", "--what", "x")):
        assert "usage:" in tool(d, *args, rc=2)
    assert "usage:" in tool(d, "help")
    p = subprocess.run([os.environ["ADVISORD"], "sing"], capture_output=True, text=True)
    assert p.returncode == 2 and "unexpected argument" in p.stderr
    assert "expected a file" in tool(d, "restore", "mysql://a@h/d", rc=1)
    assert "expected a configured SQLite store" in tool(d, "copy", d.dir + "/x.db", rc=1)
    assert "STORE_CORRUPT" in tool(d, "check", "/etc/services", rc=1)
    other = d.dir + "/other.db"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE notes(t)")
    db.commit()
    db.close()
    assert "STORE_FOREIGN" in tool(d, "check", other, rc=1)
    assert "STORE_FOREIGN" in tool(d, "restore", other, rc=1)


advstack.run(CASES)
