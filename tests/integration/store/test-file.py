#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The file of an SQLite store: one advisord has it, by whatever name; what happens to it while it is served; what is forgotten is
in none of its bytes."""
import atexit
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402
from advlab import Skip, wait_for  # noqa: E402
from advstore import field, tool  # noqa: E402

import grpc  # noqa: E402

api = advstack.stubs()
S = grpc.StatusCode
CASES = []
MODES = (api.MODE_ACT, api.MODE_OBSERVE)
RULES = tempfile.mkdtemp(prefix="advrules-")  # starts cost seconds with all of them
atexit.register(shutil.rmtree, RULES, ignore_errors=True)
shutil.copy(os.path.join(advstack.ROOT, "rules", "gpu.yaml"), RULES)


def case(f):
    CASES.append(f)
    return f


def refused_start(d, path):
    """What another advisord says that is to serve @path with the configuration of @d."""
    folder = tempfile.mkdtemp(prefix="other-", dir=d.dir)
    with open(f"{folder}/advisord.yaml", "w") as f:
        for k, v in {**d.config, "listen": '["127.0.0.1:0"]', "port_file": f"{folder}/port", "store.path": path}.items():
            f.write(f"{k}: {v}\n")
    p = subprocess.run([os.environ["ADVISORD"], "--config", f"{folder}/advisord.yaml"], capture_output=True, text=True, timeout=60)
    assert p.returncode != 0 and not os.path.exists(f"{folder}/port"), f"{path} was served twice: {p.stderr}"
    return p.stdout + p.stderr


class Site:
    """An advisord, a cluster with an agent that holds its lease, and numbered writes to it."""

    def __init__(self, **config):
        self.d = advstack.Advisord(**{"agent.silence_timeout": "60s", "rules.dir": RULES, **config})
        self.path = os.path.realpath(self.d.config["store.path"])
        self.c = advstack.FakeCluster(api, self.d, "alpha", mode=api.MODE_ACT)
        assert self.c.grant.epoch.counter
        self.n, self.acked = 0, []
        self.stubs()

    def stubs(self):
        self.fleet = api.FleetServiceStub(self.d.channel("admin:root"))

    def write(self):
        self.n += 1
        self.fleet.SetClusterMode(api.SetClusterModeRequest(name="clusters/alpha", mode=MODES[self.n % 2], reason=f"write-{self.n}.",
                                                            request_id=f"w{self.n}"), timeout=20)
        self.acked.append(self.n)

    def stored(self):
        audit, got, token = api.AuditServiceStub(self.d.channel("reader:audit")), [], ""
        while True:
            r = audit.ListAuditEvents(api.ListAuditEventsRequest(parent="clusters/alpha", verb="mode.set", page_size=1000,
                                                                 page_token=token), timeout=20)
            got += [int(e.detail.rsplit("write-", 1)[1].split(".")[0]) for e in r.events if "write-" in e.detail]
            token = r.next_page_token
            if not token:
                return got

    def goes_dark(self, what):
        """What is seen once the file is not what it was."""
        advstack.has_reason(self.c.agent.wait_end(30), "STORE_UNAVAILABLE")  # of itself: nobody writes anything
        wait_for("health to say NOT_SERVING", lambda: self.d.serving() is False, 30)
        for _ in range(2):
            e = advstack.refused(self.write, S.UNAVAILABLE, "STORE_REPLACED")
            assert what in e.details() and self.path in e.details(), e.details()
            a = advstack.FakeAgent(api, self.d.channel("agent:alpha"), "alpha")
            a.wait_end(30)
            assert not a.all("welcome"), a.got
            a.close()
        wait_for("the log to say what is amiss", lambda: f"{what} was removed or replaced" in self.d.log_text(), 10)
        assert "the store failed: dropping memory" in self.d.log_text()

    def goes_on(self, acked=None):
        """What was acknowledged is there, once; it is written again, and an agent has the lease."""
        want = list(self.acked if acked is None else acked)
        wait_for("health to say SERVING", lambda: self.d.serving(), 60)
        self.stubs()
        self.write()
        self.acked = want + [self.n]
        assert self.stored() == self.acked, (self.stored(), self.acked)
        old = self.c.grant.epoch
        a = advstack.FakeAgent(api, self.d.channel("agent:alpha"), "alpha", highest_epoch=old)
        a.wait("welcome", lambda w: w.HasField("grant"), 30)
        self.c.agent.close()
        self.c.agent = a

    def end(self):
        self.c.agent.close()
        self.d.stop()
        out = tool(self.d, "check")
        assert out.rstrip().endswith("ok"), out


@case
def a_file_is_served_once_by_whatever_name():
    s = Site()
    s.write()
    d, path = s.d, s.path
    os.symlink("advisor.db", f"{d.dir}/link.db")
    os.link(path, f"{d.dir}/hard.db")
    others = (f"{d.dir}/link.db", f"{d.dir}/./hard.db")
    for _ in range(2):
        for other in others:
            out = refused_start(d, other)
            assert "STORE_LOCKED" in out and "another advisord has it open" in out and os.path.realpath(other) in out, out
        os.unlink(path + ".lock")  # and again without it
    backup = f"{d.dir}/backup.db"
    tool(d, "backup", backup)
    for args in (("restore", backup), ("promote",)):
        assert "STORE_SERVED" in tool(d, *args, rc=1)
    s.write()  # it was not disturbed
    assert d.serving() and not s.c.agent.error
    # while nobody serves it, it has two names all the same, and may have a log beside each
    d.kill()
    out = refused_start(d, f"{d.dir}/hard.db")
    assert "STORE_LINKED" in out and "2 names" in out and "hard.db" in out, out
    assert "STORE_LINKED" in tool(d, "promote", rc=1)
    os.unlink(f"{d.dir}/hard.db")
    d.config["store.path"] = f"{d.dir}/link.db"
    d.start()
    s.goes_on()
    s.end()
    os.unlink(path)
    out = refused_start(d, f"{d.dir}/link.db")
    assert "STORE_FILE" in out and "the link leads nowhere" in out and not os.path.exists(path), out
    out = refused_start(d, f"{d.dir}/nowhere/advisor.db")
    assert "STORE_FILE" in out and "the folder of" in out and "No such file" in out, out


@case
def what_is_put_back_is_served_again():
    folder = tempfile.mkdtemp(prefix="advlink-")
    link = f"{folder}/link.db"
    try:
        os.symlink("one.db", link)
        open(f"{folder}/one.db", "w").close()  # there has to be something at its end
        s = Site(**{"store.path": link})
        assert "there was no store: a new, empty one was made" in s.d.log_text()
        s.write()
        # the link turned to another file
        open(f"{folder}/two.db", "w").close()
        os.symlink("two.db", f"{folder}/new.db")
        os.rename(f"{folder}/new.db", link)
        s.goes_dark("the link to it")
        os.symlink("one.db", f"{folder}/new.db")
        os.rename(f"{folder}/new.db", link)
        s.goes_on()
        assert os.path.getsize(f"{folder}/two.db") == 0
        # the file moved away
        os.rename(s.path, s.path + ".aside")
        s.goes_dark("the file")
        os.rename(s.path + ".aside", s.path)
        s.goes_on()
        # the log removed: a stop writes what is in it to the file
        for _ in range(5):
            s.write()
        os.unlink(s.path + "-wal")
        s.goes_dark("its log (-wal)")
        s.d.stop()
        s.d.start()
        s.goes_on()
        # another file in its place, until the operator has stopped
        backup = s.d.dir + "/backup.db"
        tool(s.d, "backup", backup)
        s.write()
        os.rename(s.path, s.path + ".aside")
        os.rename(backup, s.path)
        s.goes_dark("the file")
        s.d.stop()
        assert os.path.getsize(s.path + "-wal") == 0, "a log of one file beside another"
        os.rename(s.path + ".aside", s.path)
        s.d.start()
        s.goes_on()
        s.end()
    finally:
        shutil.rmtree(folder)


@case
def what_is_lost_comes_from_a_backup():
    s = Site()
    backup = s.d.dir + "/backup.db"
    for _ in range(5):
        s.write()
    tool(s.d, "backup", backup)
    acked = list(s.acked)
    # somebody restores with cp; the log that lies there is of the other file
    for _ in range(10):
        s.write()
    shutil.copy(backup, s.path + ".new")
    os.rename(s.path + ".new", s.path)
    s.goes_dark("the file")
    assert "STORE_LOCKED" in refused_start(s.d, s.path)  # the place is taken all the same
    s.d.stop()
    assert field(tool(s.d, "promote"), "term") == "2"
    assert tool(s.d, "check").rstrip().endswith("ok")
    s.d.start()
    s.goes_on(acked)
    # cut short
    acked = list(s.acked)
    os.unlink(backup)
    tool(s.d, "backup", backup)
    s.write()
    os.truncate(s.path, os.path.getsize(s.path) // 2 // 4096 * 4096)
    s.goes_dark("a part of the file")
    s.d.stop()
    assert "restored with term" in tool(s.d, "restore", backup)
    s.d.start()
    s.goes_on(acked)
    # gone
    acked = list(s.acked)
    os.unlink(backup)
    tool(s.d, "backup", backup)
    s.write()
    os.unlink(s.path)
    s.goes_dark("the file")
    s.d.stop()
    assert "restored with term" in tool(s.d, "restore", backup)
    s.d.start()
    s.goes_on(acked)
    s.end()


@case
def another_store_that_is_put_in_place_keeps_its_log():
    s = Site()
    old = f"{s.d.dir}/old.db"
    for in_place in (False, True):
        for _ in range(3):
            s.write()
        acked = list(s.acked)
        for end in ("", "-wal"):  # what yesterday's killed advisord left: the file is behind, its log has the rest
            shutil.copyfile(s.path + end, old + end)
        log = open(old + "-wal", "rb").read()
        assert log
        s.write()
        if in_place:  # the file keeps its inode: SQLite itself would not see it
            os.rename(old + "-wal", s.path + "-wal")
            shutil.copyfile(old, s.path)
        else:
            os.rename(old, s.path)
            os.rename(old + "-wal", s.path + "-wal")
        s.goes_dark("its log (-wal)" if in_place else "the file")
        s.d.stop()
        assert open(s.path + "-wal", "rb").read() == log, "the log of what was put there is another one"
        if in_place:
            assert "both are left as they are" in s.d.log_text()
        tool(s.d, "promote")
        assert tool(s.d, "check").rstrip().endswith("ok")
        s.d.start()
        s.goes_on(acked)
    s.end()


def write_that_waits_before_its_commit(s):
    """A call whose commit is held up, and the file that lets it go on."""
    go = f"{s.d.dir}/go"
    s.d.start(env={"ADVISOR_FAILPOINT": f"sqlite.before_commit=pause:{go}"})
    s.stubs()
    request = api.SetClusterModeRequest(name="clusters/alpha", mode=api.MODE_OFF, reason="write-99.", request_id="w99")
    future = s.fleet.SetClusterMode.future(request, timeout=60)
    wait_for("the commit", lambda: "failpoint sqlite.before_commit hit" in s.d.log_text() or future.done(), 30)
    if future.done():
        raise Skip("a build without failpoints")
    return request, future, go


@case
def a_write_is_not_acknowledged_when_the_file_went_during_it():
    s = Site()
    s.write()
    s.c.agent.close()
    s.d.stop()
    _, future, go = write_that_waits_before_its_commit(s)
    os.rename(s.path, s.path + ".aside")
    open(go, "w").close()
    advstack.refused(future.result, S.UNAVAILABLE, "STORE_REPLACED")
    s.d.stop()


@case
def a_write_whose_file_cannot_be_looked_at_may_be_stored():
    s = Site()
    s.write()
    s.c.agent.close()
    s.d.stop()
    request, future, go = write_that_waits_before_its_commit(s)
    os.rename(s.path, s.path + ".aside")
    os.symlink(os.path.basename(s.path), s.path)  # leads to itself: an error that says nothing of the file
    open(go, "w").close()
    advstack.refused(future.result, S.UNAVAILABLE, "STORE_OUTCOME_UNKNOWN")
    advstack.refused(lambda: s.fleet.SetClusterMode(request, timeout=20), S.UNAVAILABLE, "STORE_UNAVAILABLE")  # not tried
    os.rename(s.path + ".aside", s.path)
    wait_for("health to say SERVING", lambda: s.d.serving(), 60)
    s.fleet.SetClusterMode(request, timeout=20)
    assert s.stored() == [1, 99], s.stored()  # it was stored, and is not carried out twice
    s.d.stop()


@case
def a_restore_keeps_the_link():
    folder = tempfile.mkdtemp(prefix="advlink-")
    try:
        os.makedirs(f"{folder}/real")
        os.symlink("real/advisor.db", f"{folder}/link.db")
        open(f"{folder}/real/advisor.db", "w").close()
        s = Site(**{"store.path": f"{folder}/link.db"})
        s.write()
        backup = s.d.dir + "/backup.db"
        tool(s.d, "backup", backup)
        acked = list(s.acked)
        s.write()
        s.c.agent.close()
        s.d.kill()  # with its log, which lies beside the file, not beside the link
        assert os.path.exists(f"{folder}/real/advisor.db-wal")
        assert "term 2" in tool(s.d, "restore", backup)
        assert os.readlink(f"{folder}/link.db") == "real/advisor.db"
        assert sorted(os.listdir(folder)) == ["link.db", "real"], os.listdir(folder)
        assert not set(os.listdir(f"{folder}/real")) - {"advisor.db", "advisor.db.lock"}, os.listdir(f"{folder}/real")
        s.d.start()
        s.goes_on(acked)
        s.end()
    finally:
        shutil.rmtree(folder)


def holds(path, *words):
    """Which of @words stand in the bytes of a store's files."""
    data = b""
    for end in ("", "-wal", "-shm", "-journal"):
        if os.path.exists(path + end):
            with open(path + end, "rb") as f:
                data += f.read()
    return [w for w in words if w.encode() in data]


@case
def what_is_forgotten_is_in_no_byte():
    d = advstack.Advisord(**{"rules.dir": RULES})
    path = d.config["store.path"]
    c = advstack.FakeCluster(api, d, "gone", api.MODE_APPROVE, [f"n{i + 1}" for i in range(4)])
    words = ("mallory", "mauve-run", "teal-flow", "umber-path", "ochre-excerpt", "sepia-reason")
    kw = dict(user="mallory", name=b"mauve-run", comment=b'{"advisor":{"workflow":"teal-flow"}}', stdout_path=b"/home/umber-path/out")
    people = api.AdviceServiceStub(d.channel("operator:olga"))
    for i in range(1, 9):  # so many that pages of the file are split and filled anew
        line = b"n2: RuntimeError: CUDA error: uncorrectable ECC error encountered ochre-excerpt of mallory %d\n" % i
        ad = c.fails(str(i), line, **kw)
        people.RejectAdvice(api.RejectAdviceRequest(name=ad.name, generation=1, reason="sepia-reason"), timeout=20)
    for i in range(1, 9):
        c.gone(str(i))
    assert not set(words) - set(holds(path, *words)), "nothing to be forgotten"
    fleet = api.FleetServiceStub(d.channel("admin:root"))
    r = fleet.ForgetUser(api.ForgetUserRequest(parent="clusters/gone", user="mallory"), timeout=60)
    assert r.forgotten_jobs == 8, r
    assert not holds(path, *words), f"still there when it was answered: {holds(path, *words)}"

    # Somebody reads the file meanwhile: what is in the log stays until they are done, and goes with the next write.
    ad = c.fails("20", b"n2: RuntimeError: CUDA error: uncorrectable ECC error encountered ochre-excerpt\n", **kw)
    c.gone("20")
    db = sqlite3.connect(path)
    db.execute("BEGIN")
    assert db.execute("SELECT count(*) FROM objects").fetchone()[0]
    assert fleet.ForgetUser(api.ForgetUserRequest(parent="clusters/gone", user="mallory"), timeout=60).forgotten_jobs == 1
    assert holds(path, *words), "the reader holds nothing up: this case shows nothing"
    db.rollback()
    db.close()
    fleet.SetClusterMode(api.SetClusterModeRequest(name="clusters/gone", mode=api.MODE_OBSERVE), timeout=20)
    assert not holds(path, *words), holds(path, *words)
    c.close()
    d.stop()
    assert not holds(path, *words), holds(path, *words)
    assert tool(d, "check").rstrip().endswith("ok")


advstack.run(CASES)
