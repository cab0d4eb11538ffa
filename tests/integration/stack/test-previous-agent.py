#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The agent of an earlier commit (tests/previous-agent) with today's control plane: it recovers a job, and obeys.

It is built from the repository's own history, so this needs a clone and not an export."""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")


def git(*args, **kw):
    return subprocess.run(["git", "-C", ROOT, "-c", "safe.directory=*", *args], capture_output=True, check=True, **kw).stdout


with open(os.path.join(ROOT, "tests", "previous-agent")) as f:
    commit = next(line for line in f.read().splitlines() if line and not line.startswith("#"))
try:
    git("cat-file", "-e", commit + "^{commit}")
except (OSError, subprocess.CalledProcessError):
    print(f"skip: no clone with commit {commit} here")
    sys.exit(77)

build = os.path.join(os.environ.get("MESON_BUILD_ROOT", tempfile.gettempdir()), "previous-agent")
done = os.path.join(build, "built")
if not os.path.exists(done) or open(done).read() != commit:
    shutil.rmtree(build, ignore_errors=True)
    os.makedirs(f"{build}/src")
    subprocess.run(["tar", "-x", "-C", f"{build}/src"], input=git("archive", commit), check=True)
    with open(f"{build}/log", "w") as log:
        for argv in (["meson", "setup", f"{build}/out", f"{build}/src", "-Dfailpoints=true"],
                     ["ninja", "-C", f"{build}/out", "advisor-agent/advisor-agent", "advisor-agent/tail/advisor-tail"]):
            if subprocess.run(argv, stdout=log, stderr=log).returncode != 0:
                print("not ok build_of_the_previous_agent", " ".join(argv))
                print(open(log.name).read()[-3000:], file=sys.stderr)
                sys.exit(1)
    with open(done, "w") as f:
        f.write(commit)
env = {**os.environ, "ADVISOR_AGENT": f"{build}/out/advisor-agent/advisor-agent",
       "ADVISOR_TAIL": f"{build}/out/advisor-agent/tail/advisor-tail"}
sys.exit(subprocess.run([sys.executable, os.path.join(HERE, "test-recover.py")], env=env).returncode)
