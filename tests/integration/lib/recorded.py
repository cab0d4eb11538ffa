# SPDX-License-Identifier: Apache-2.0
"""Answers of Slurm's tools, recorded on one machine and played on another, with the adapter's driver between."""
import base64
import json
import os
import re
import shutil
import subprocess
import tempfile

TOOLS = ("squeue", "scontrol", "sinfo", "sacct", "scancel", "sacctmgr")
# the random words that the adapter puts between fields are new in each call
NONCE = re.compile(r"@x[0-9a-f]{32}@")

RECORDER = r"""#!/usr/bin/python3
import base64, json, os, subprocess, sys, tempfile
tool = os.path.basename(sys.argv[0])
real = json.load(open(os.path.join(os.path.dirname(sys.argv[0]), "real")))[tool]
p = subprocess.run([real, *sys.argv[1:]], capture_output=True)
b64 = lambda b: base64.b64encode(b).decode()
fd, path = tempfile.mkstemp(prefix="call-", dir=os.path.dirname(sys.argv[0]))
with os.fdopen(fd, "w") as f:
    json.dump({"argv": [tool, *sys.argv[1:]], "rc": p.returncode, "out": b64(p.stdout), "err": b64(p.stderr)}, f)
sys.stdout.buffer.write(p.stdout)
sys.stderr.buffer.write(p.stderr)
sys.exit(p.returncode)
"""

PLAYER = r"""#!/usr/bin/python3
import json, os, re, sys
nonce = re.compile("@x[0-9a-f]{32}@")
argv = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
found = nonce.search(" ".join(argv))
key = [nonce.sub("@NONCE@", a) for a in argv]
for c in json.load(open(os.path.join(os.path.dirname(sys.argv[0]), "tape"))):
    if c["argv"] == key:
        put = lambda s: s.replace("@NONCE@", found.group() if found else "").encode("latin-1")
        sys.stdout.buffer.write(put(c["out"]))
        sys.stderr.buffer.write(put(c["err"]))
        sys.exit(c["rc"])
sys.exit("not on the tape: " + " ".join(key))
"""


def _tools(folder, text):
    for tool in TOOLS:
        path = os.path.join(folder, tool)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o755)


class Tape:
    """Runs the driver in a lab and keeps what the tools answered."""

    def __init__(self, lab):
        self.lab = lab
        self.dir = os.path.join(lab.dir, "tape")
        os.makedirs(self.dir)
        os.chmod(self.dir, 0o777)
        _tools(self.dir, RECORDER)
        with open(os.path.join(self.dir, "real"), "w") as f:
            json.dump({t: lab.exec("sh", "-c", f"command -v {t}") for t in TOOLS}, f)

    def run(self, *words):
        driver = f'PATH={self.dir}:$PATH exec {self.lab.tool} --state {self.lab.dir}/home/laboper/state "$@"'
        return json.loads(self.lab.exec("sh", "-c", driver, "sh", *map(str, words), user="laboper"))

    def calls(self):
        """Each call once, under names that are no lab's own."""
        seen = {}
        for name in sorted(os.listdir(self.dir), key=lambda n: os.stat(os.path.join(self.dir, n)).st_mtime_ns):
            if not name.startswith("call-"):
                continue
            with open(os.path.join(self.dir, name)) as f:
                c = json.load(f)
            c["argv"] = [self._neutral(a) for a in c["argv"]]
            for k in ("out", "err"):
                c[k] = self._neutral(base64.b64decode(c[k]).decode("latin-1"))
            seen[json.dumps(c["argv"])] = c
        return list(seen.values())

    def _neutral(self, text):
        return NONCE.sub("@NONCE@", text.replace(self.lab.dir, "/lab").replace(self.lab.name, "lab"))


class Player:
    """The driver with tools that answer from a tape."""

    def __init__(self, calls):
        self.dir = tempfile.mkdtemp(prefix="advplay-")
        _tools(self.dir, PLAYER)
        with open(os.path.join(self.dir, "tape"), "w") as f:
            json.dump(calls, f)
        with open(os.path.join(self.dir, "slurm.conf"), "w") as f:
            f.write("ClusterName=lab\n")

    def run(self, *words):
        # the adapter asks about whom it runs as
        p = subprocess.run([os.environ["ADAPTERCTL"], "--state", self.dir, "--user", "laboper", *map(str, words)], capture_output=True,
                           timeout=60, stdin=subprocess.DEVNULL,
                           env={**os.environ, "PATH": f"{self.dir}:/usr/bin:/bin", "SLURM_CONF": f"{self.dir}/slurm.conf"})
        if p.returncode != 0:
            raise AssertionError(f"{words}: exit code {p.returncode}: {p.stderr.decode(errors='replace')}")
        return json.loads(p.stdout)

    def close(self):
        shutil.rmtree(self.dir)
