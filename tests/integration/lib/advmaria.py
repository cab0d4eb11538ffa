# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB server for tests, without systemd: in a folder of its own, on a free port and a socket there.

It can be frozen, killed, started again, made read-only, put on a small disk and filled up. `Proxy` stands between a
client and the server's port and can cut connections, reset them or let nothing through. tests/lab/mariadb-lab is this
module as a command.

Users: root without a password (socket only), `advisor` with the password in Maria.password_file and all rights on the
database `advisor`.
"""
import atexit
import fcntl
import os
import pwd
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

CACHE = os.environ.get("ADVISOR_LAB_CACHE", "/tmp/advisor-lab-cache")
PASSWORD = "it's a \"secret\\"
DISK_SPARE = 64 * 1024  # left on a full disk


def _wait_for(what, probe, timeout=60.0, every=0.02):
    end = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"timed out waiting for {what}")
        time.sleep(every)


def _born(pid):
    """Start time of a live process that is no zombie, in clock ticks since boot; None without one."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def available():
    return all(shutil.which(p, path=os.environ.get("PATH", "") + ":/usr/sbin") for p in
               ("mariadbd", "mariadb-install-db", "mariadb", "openssl"))


class Maria:
    """One server. All of it is in self.dir; a second object with the same folder controls the same server."""

    def __init__(self, folder=None, disk_mb=0, options=(), start=True):
        # without a folder of the caller's the server ends with this process, however that ends
        self.dir = folder or tempfile.mkdtemp(prefix="advmaria-")
        self.own = folder is None
        self.data = f"{self.dir}/disk/data"
        self.sock = f"{self.dir}/s.sock"
        self.port_file = f"{self.dir}/port"
        self.pid_file = f"{self.dir}/pid"
        self.log = f"{self.dir}/err.log"
        self.password_file = f"{self.dir}/password"
        self.ca = f"{self.dir}/tls/ca.crt"
        self.options_file = f"{self.dir}/options"
        self.root = os.geteuid() == 0
        self.user = "mysql" if self.root else pwd.getpwuid(os.geteuid()).pw_name
        if self.own:
            atexit.register(self.purge)
        if not os.path.isdir(self.data):
            self._make(disk_mb, options)
        if start:
            self.start()

    # ---- making it
    def _make(self, disk_mb, options):
        os.makedirs(f"{self.dir}/disk", exist_ok=True)
        os.chmod(self.dir, 0o755)
        if disk_mb:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={disk_mb}m,mode=755", "advmaria", f"{self.dir}/disk"],
                           check=True)
        self._certificates()
        shutil.copytree(self._prepared(), self.data, symlinks=True)
        with open(self.password_file, "w") as f:
            f.write(PASSWORD + "\n")
        quoted = PASSWORD.replace("\\", "\\\\").replace("'", "\\'")
        with open(f"{self.dir}/init.sql", "w") as f:  # run at each start; one statement a line
            f.write(f"CREATE DATABASE IF NOT EXISTS advisor;\n"
                    f"CREATE USER IF NOT EXISTS advisor@'%' IDENTIFIED BY '{quoted}';\n"
                    f"GRANT ALL ON advisor.* TO advisor@'%';\n")
        with open(self.options_file, "w") as f:
            f.write("".join(o + "\n" for o in options))
        self._own(self.dir, f"{self.dir}/disk", self.data)

    def _own(self, *tops):
        if not self.root:
            return
        who = pwd.getpwnam(self.user)
        for top in tops:
            os.chown(top, who.pw_uid, who.pw_gid)
        for folder, dirs, files in os.walk(self.data):
            for name in dirs + files:
                os.chown(os.path.join(folder, name), who.pw_uid, who.pw_gid)

    def _prepared(self):
        """An empty data folder for this version; made once, since that is the slow part."""
        version = subprocess.run(["mariadbd", "--version"], capture_output=True, text=True, check=True,
                                 env=self._env()).stdout
        name = "advisor-" + re.sub(r"[^A-Za-z0-9.]+", "_", version)[:80] + f"-{os.geteuid()}"
        os.makedirs(CACHE, exist_ok=True)
        done = os.path.join(CACHE, name)
        with open(done + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.isdir(done):
                tmp = f"{done}.{os.getpid()}"
                shutil.rmtree(tmp, ignore_errors=True)
                os.mkdir(tmp)
                if self.root:
                    who = pwd.getpwnam(self.user)
                    os.chown(tmp, who.pw_uid, who.pw_gid)
                subprocess.run(["mariadb-install-db", "--no-defaults", f"--user={self.user}", f"--datadir={tmp}",
                                "--auth-root-authentication-method=normal", "--skip-test-db",
                                "--innodb-log-file-size=8M"], check=True, env=self._env(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                os.rename(tmp, done)
        return done

    @staticmethod
    def _env():
        return {**os.environ, "PATH": os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"}

    def _certificates(self):
        tls = f"{self.dir}/tls"
        os.makedirs(tls, exist_ok=True)

        def openssl(*args):
            subprocess.run(["openssl", *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        for name in ("ca", "other-ca"):
            openssl("req", "-x509", *key, "-days", "30", "-subj", f"/CN={name}", "-keyout", f"{tls}/{name}.key",
                    "-out", f"{tls}/{name}.crt")
        with open(f"{tls}/ext", "w") as f:
            f.write("subjectAltName=DNS:localhost\n")  # and not 127.0.0.1: a wrong name is to be had, too
        openssl("req", *key, "-subj", "/CN=mariadb", "-keyout", f"{tls}/server.key", "-out", f"{tls}/server.csr")
        openssl("x509", "-req", "-in", f"{tls}/server.csr", "-CA", f"{tls}/ca.crt", "-CAkey", f"{tls}/ca.key",
                "-CAcreateserial", "-days", "30", "-extfile", f"{tls}/ext", "-out", f"{tls}/server.crt")
        for name in os.listdir(tls):
            os.chmod(f"{tls}/{name}", 0o644)

    # ---- running it
    @property
    def port(self):
        with open(self.port_file) as f:
            return int(f.read())

    @property
    def pid(self):
        """The live server's, or None."""
        try:
            with open(self.pid_file) as f:
                pid, born = f.read().split()
        except (OSError, ValueError):
            return None
        return int(pid) if _born(pid) == born else None

    def start(self, wait=True):
        if self.pid:
            return
        for attempt in range(5):
            if not os.path.exists(self.port_file):  # a restart keeps its port, as a real one would
                with socket.socket() as s:
                    s.bind(("127.0.0.1", 0))
                    port = s.getsockname()[1]
                with open(self.port_file, "w") as f:
                    f.write(str(port))
            self._launch()
            if not wait or self._answers():
                return
            os.unlink(self.port_file)  # somebody else was quicker
        raise AssertionError(f"mariadbd did not start: {self.tail_log()}")

    def _launch(self):
        with open(self.options_file) as f:
            more = [line for line in f.read().splitlines() if line]
        tls = f"{self.dir}/tls"
        # rather than --user, since a change of identity drops the parent's death signal
        become = ["--reuid", self.user, "--regid", self.user, "--init-groups"] if self.root else []
        argv = ["setpriv", *become, *(["--pdeathsig", "KILL"] if self.own else []), "--",
                "mariadbd", "--no-defaults", f"--datadir={self.data}", f"--socket={self.sock}",
                "--bind-address=127.0.0.1", f"--port={self.port}", f"--init-file={self.dir}/init.sql",
                f"--log-error={self.log}", f"--pid-file={self.dir}/disk/own.pid", "--skip-name-resolve",
                "--performance-schema=OFF", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M",
                "--innodb-flush-log-at-trx-commit=1", f"--ssl-ca={tls}/ca.crt", f"--ssl-cert={tls}/server.crt",
                f"--ssl-key={tls}/server.key", *more]
        with open(self.log, "ab") as log:
            if self.root:
                os.fchmod(log.fileno(), 0o666)
            p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env(), cwd=self.dir,
                                 start_new_session=True)
        with open(self.pid_file, "w") as f:
            f.write(f"{p.pid} {_born(p.pid)}")
        self.proc = p

    def _answers(self):
        def probe():
            if self.proc.poll() is not None:
                return "ended"
            return "up" if self._client("SELECT 1").returncode == 0 else None
        return _wait_for("MariaDB: " + self.tail_log(), probe) == "up"

    def signal(self, number):
        pid = self.pid
        if pid:
            os.kill(pid, number)

    def freeze(self):
        self.signal(signal.SIGSTOP)
        # SIGSTOP is asynchronous for a process of many threads
        _wait_for("the server to stand still", lambda: all(self._stopped(t) for t in os.listdir(f"/proc/{self.pid}/task")), 10)

    def _stopped(self, task):
        try:
            with open(f"/proc/{self.pid}/task/{task}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0] == "T"
        except OSError:
            return True

    def thaw(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        self.thaw()
        self._end(signal.SIGTERM)

    def _end(self, number):
        pid = self.pid
        if not pid:
            return
        os.kill(pid, number)
        if getattr(self, "proc", None) and self.proc.pid == pid:
            try:
                self.proc.wait(30)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
            return
        try:
            _wait_for("MariaDB's end", lambda: not self.pid, 30)
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            _wait_for("MariaDB's end", lambda: not self.pid, 10)

    def restart(self):
        self.stop()
        self.start()

    def purge(self):
        self.kill()
        subprocess.run(["umount", f"{self.dir}/disk"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)

    def tail_log(self, n=5):
        try:
            with open(self.log, errors="replace") as f:
                return " / ".join(f.read().splitlines()[-n:])
        except OSError:
            return ""

    # ---- looking into it, as root
    def _client(self, text, db=None):
        return subprocess.run(["mariadb", "--no-defaults", "-u", "root", "-S", self.sock, "-N", "-B", "--connect-timeout=5",
                               *([db] if db else []), "-e", text], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def sql(self, text, db="advisor"):
        """Rows as lists of text."""
        p = self._client(text, db)
        if p.returncode != 0:
            raise AssertionError(f"{text}: {p.stderr.strip()}")
        return [line.split("\t") for line in p.stdout.splitlines()]

    def read_only(self, on=True):
        self.sql(f"SET GLOBAL read_only = {int(on)}")

    def fill_disk(self):
        """Leaves nearly nothing of a disk_mb disk."""
        room = os.statvfs(f"{self.dir}/disk")
        size = room.f_bavail * room.f_frsize - DISK_SPARE
        if size > 0:
            with open(f"{self.dir}/disk/ballast", "wb") as f:
                os.posix_fallocate(f.fileno(), 0, size)

    def empty_disk(self):
        try:
            os.unlink(f"{self.dir}/disk/ballast")
        except FileNotFoundError:
            pass

    def url(self, how="socket", port=None):
        if how == "socket":
            return f"mysql://advisor@/advisor?socket={self.sock}"
        return f"mysql://advisor@{how}:{port or self.port}/advisor"


class Proxy:
    """Between clients and a server's port. set(how, after): what befalls each connection once the server has sent
    `after` bytes on it: None nothing, "close", "reset", "stall" (nothing passes any more, both ways)."""

    def __init__(self, target_port, how=None, after=0):
        self.target = target_port
        self.lock = threading.Lock()
        self.how, self.after = how, after
        self.pairs = set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, how=None, after=0):
        """For connections open now, too."""
        with self.lock:
            self.how, self.after = how, after
            pairs = list(self.pairs)
        for p in pairs:
            p.wake()

    def stall(self):
        """Nothing passes any more, on old and new connections; none is closed."""
        self.set("stall", 0)

    def cut(self, how="reset"):
        """Ends what is open now; new connections are as set()."""
        with self.lock:
            pairs = list(self.pairs)
        for p in pairs:
            p.end_as = how
            p.wake()

    def close(self):
        self.listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target), 10)
            except OSError:
                client.close()
                continue
            pair = _Pair(self, client, server)
            with self.lock:
                self.pairs.add(pair)
            threading.Thread(target=pair.run, daemon=True).start()


class _Pair:
    """One connection through a Proxy. One thread does all with its sockets: a close() while another thread reads from
    one would be put off by the kernel."""

    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.end_as = None
        self.passed = 0
        self.bell_r, self.bell_w = os.pipe()

    def wake(self):
        try:
            os.write(self.bell_w, b"!")
        except OSError:
            pass

    def run(self):
        try:
            for s in (self.client, self.server):
                s.settimeout(None)
            while self.step():
                pass
        except OSError:
            pass
        with self.proxy.lock:
            self.proxy.pairs.discard(self)
        for s in (self.client, self.server):
            if self.end_as == "reset":
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
        os.close(self.bell_r)
        os.close(self.bell_w)

    def step(self):
        with self.proxy.lock:
            how, after = self.proxy.how, self.proxy.after
        stalled = how == "stall" and self.passed >= after
        ready, _, _ = select.select([self.bell_r] if stalled else [self.bell_r, self.client, self.server], [], [])
        if self.bell_r in ready:
            os.read(self.bell_r, 64)
            return not self.end_as
        for source, sink in ((self.server, self.client), (self.client, self.server)):
            if source not in ready:
                continue
            data = source.recv(65536)
            if not data:
                return False
            if source is self.server:
                if how and self.passed + len(data) > after:
                    data = data[:after - self.passed]
                    if how != "stall":
                        self.end_as = how
                self.passed += len(data)
            sink.sendall(data)
            if self.end_as or (how == "stall" and self.passed >= after):
                break
        return not self.end_as


def main(argv):
    """The command; see tests/lab/mariadb-lab."""
    import argparse
    ap = argparse.ArgumentParser(prog="mariadb-lab", description=(
        "A MariaDB server of its own in a folder. `run` starts one, runs a command with ADVISOR_MARIADB_* in its environment"
        " and removes it; without the server's packages it says so and exits with 77."))
    ap.add_argument("verb", choices=["up", "start", "stop", "kill", "freeze", "thaw", "restart", "purge", "sql", "url", "env",
                                     "fill", "unfill", "proxy", "run"])
    ap.add_argument("args", nargs=argparse.REMAINDER)
    ap.add_argument("--dir", help="its folder; `run` makes one")
    ap.add_argument("--disk", type=int, default=0, metavar="MB", help="put the data on a small disk of its own (root)")
    ap.add_argument("--option", action="append", default=[], help="of mariadbd, repeatable")
    a = ap.parse_args(argv)
    args = a.args[1:] if a.args[:1] == ["--"] else a.args
    for s in (signal.SIGTERM, signal.SIGINT):
        signal.signal(s, lambda *_: sys.exit(1))
    if a.verb == "run":
        if not available():
            print("skip mariadb no MariaDB server here")
            return 77
        if a.disk and os.geteuid() != 0:
            print("skip mariadb only root can give it a disk of its own")
            return 77
        m = Maria(disk_mb=a.disk, options=a.option)
        return subprocess.run(args, env={**os.environ, **environment(m)}).returncode
    if not a.dir:
        ap.error("--dir is needed")
    if a.verb == "up":
        Maria(os.path.abspath(a.dir), a.disk, a.option)
        return 0
    m = Maria(os.path.abspath(a.dir), start=False)
    if a.verb == "sql":
        for row in m.sql(" ".join(args)):
            print("\t".join(row))
    elif a.verb == "url":
        print(m.url(*args))
    elif a.verb == "env":
        for k, v in environment(m).items():
            print(f"export {k}='{v}'")
    elif a.verb == "fill":
        m.fill_disk()
    elif a.verb == "unfill":
        m.empty_disk()
    elif a.verb == "proxy":  # HOW AFTER: prints its port, serves until its stdin ends
        p = Proxy(m.port, args[0] if args and args[0] != "none" else None, int(args[1]) if len(args) > 1 else 0)
        print(p.port, flush=True)
        sys.stdin.read()
        p.close()
    else:
        getattr(m, a.verb)()
    return 0


def environment(m):
    return {"ADVISOR_MARIADB_DIR": m.dir, "ADVISOR_MARIADB_SOCKET": m.sock, "ADVISOR_MARIADB_PORT": str(m.port),
            "ADVISOR_MARIADB_PASSWORD_FILE": m.password_file, "ADVISOR_MARIADB_CA": m.ca,
            **({"ADVISOR_MARIADB_DISK": "1"} if os.path.ismount(f"{m.dir}/disk") else {}),
            "ADVISOR_MARIADB_LAB": os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                                                 "lab", "mariadb-lab"))}
