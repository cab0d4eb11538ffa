# SPDX-License-Identifier: Apache-2.0
"""`advisord store ...`, as the tests of the store use it."""
import os
import subprocess


def tool(d, *args, rc=0, config=None):
    """Runs `advisord store ...` with the configuration of @d; returns its output."""
    path = f"{d.dir}/tool.yaml"
    with open(path, "w") as f:
        for k, v in {**d.config, **(config or {})}.items():
            f.write(f"{k}: {v}\n")
    p = subprocess.run([os.environ["ADVISORD"], "--config", path, "store", *args], capture_output=True, text=True, timeout=120)
    if rc is not None and p.returncode != rc:
        raise AssertionError(f"store {' '.join(args)}: exit code {p.returncode}: {p.stdout}{p.stderr}")
    return p.stdout + p.stderr


def field(text, name):
    for line in text.splitlines():
        if line.startswith(name + " "):
            return line.split(None, 1)[1]
    raise AssertionError(f"no {name} in: {text}")
