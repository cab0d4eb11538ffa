# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: a release build, figures as `name value unit`, limits for --check."""
import argparse
import os
import statistics
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration", "lib"))


def release_build(*targets):
    """Builds the targets without sanitizers in build-bench/ and returns their paths."""
    build = os.path.join(ROOT, "build-bench")
    if not os.path.exists(os.path.join(build, "build.ninja")):
        subprocess.run(["meson", "setup", build, ROOT, "--buildtype=release", "-Dtests=disabled"], check=True,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", build, *targets], check=True, stdout=subprocess.DEVNULL)
    return [os.path.join(build, t) for t in targets]


def stack_build():
    d, a, t = release_build("controlplane/advisord", "advisor-agent/advisor-agent", "advisor-agent/tail/advisor-tail")
    os.environ.update(ADVISORD=d, ADVISOR_AGENT=a, ADVISOR_TAIL=t)


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(round(p / 100 * (len(values) - 1))))]


class Figures:
    def __init__(self, about):
        self.parser = argparse.ArgumentParser(description=about)
        self.parser.add_argument("--check", action="store_true", help="exit 1 when a figure misses its target")
        self.missed = []
        self.judges = True

    def parse(self):
        self.args = self.parser.parse_args()
        return self.args

    def show(self, name, value, unit, most=None, least=None):
        print(f"{name} {value:.3f} {unit}", flush=True)
        if not self.judges:
            return
        if most is not None and value > most:
            self.missed.append(f"{name} is {value:.3f} {unit}, target at most {most}")
        if least is not None and value < least:
            self.missed.append(f"{name} is {value:.3f} {unit}, target at least {least}")

    def cannot(self, name, why):
        """A figure that this machine does not allow to take: said, and no miss."""
        print(f"# not measured: {name}: {why}", flush=True)

    def spread(self, name, values, unit, **limits):
        """Median and 95th percentile; the limits hold for the latter."""
        self.show(name + "_p50", statistics.median(values), unit)
        self.show(name + "_p95", percentile(values, 95), unit, **limits)

    def end(self):
        for m in self.missed:
            print(f"# missed: {m}", flush=True)
        sys.exit(1 if self.args.check and self.missed else 0)
