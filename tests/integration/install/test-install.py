#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What `meson install` puts where, and that the programs look there; the examples of docs/install.md are good.

usage: test-install.py MESON SOURCE BUILD
"""
import os
import re
import subprocess
import sys
import tempfile

meson, source, build = sys.argv[1:]


def run(*args, rc=0):
    p = subprocess.run(args, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert p.returncode == rc, f"{' '.join(args)}: {p.returncode}: {p.stdout[-2000:]}{p.stderr[-2000:]}"
    return p.stdout


def default_of(program, key):
    """The default of a setting, out of the program's own reference."""
    m = re.search(rf"^\| `{re.escape(key)}` \|.*?\| `([^`]*)` \|", run(program, "--dump-config-docs"), re.M)
    assert m, f"{program}: no {key}"
    return m.group(1)


with tempfile.TemporaryDirectory(prefix="advisor-install-") as dest:
    run(meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", dest)
    found = {}
    for folder, _, files in os.walk(dest):
        for f in files:
            found.setdefault(f, os.path.join(folder, f))
    for name in ("advisord", "advisorctl", "advisor-agent", "advisor-tail", "advisor-watchdog"):
        assert name in found and os.access(found[name], os.X_OK), (name, sorted(found))
    assert not os.stat(found["advisor-tail"]).st_mode & 0o6000, "who installs it decides whether it is setuid"
    # the rules are where advisord and advisorctl look, all of them, and good
    rules = default_of(found["advisord"], "rules.dir")
    want = sorted(f for f in os.listdir(f"{source}/rules") if f.endswith(".yaml"))
    assert want and sorted(f for f in os.listdir(dest + rules) if f.endswith(".yaml")) == want, (rules, want)
    assert f"default: {rules})" in run(found["advisorctl"], "rules", "test", "--help")
    run(found["advisorctl"], "rules", "lint", dest + rules)
    assert dest + default_of(found["advisor-agent"], "tail.helper") == found["advisor-tail"]
    print("ok installed_where_it_is_looked_for")

    # settings as the page has them
    with open(f"{source}/docs/install.md") as f:
        page = f.read()
    blocks = [re.sub(r"^   ", "", b, flags=re.M) for b in re.findall(r"^ *```yaml\n(.*?)^ *```", page, re.S | re.M)]
    daemon, ceiling, agent, watchdog = blocks
    for program, text in (("advisord", daemon), ("advisor-agent", agent), ("advisor-watchdog", watchdog)):
        path = f"{dest}/{program}.yaml"
        with open(path, "w") as f:
            f.write(text)
        run(found[program], "--config", path, "--check-config")
    assert ceiling.startswith("mode: observe"), ceiling
    # units start what is installed
    for unit in ("advisord", "advisor-agent", "advisor-watchdog"):
        with open(f"{source}/examples/systemd/{unit}.service") as f:
            exe = re.search(r"^ExecStart=(\S+)", f.read(), re.M).group(1)
        assert exe.startswith("/usr/local/") and os.path.basename(exe) == unit, exe
        assert exe in page, f"{exe} is not in docs/install.md"
    print("ok the_page_is_right")
