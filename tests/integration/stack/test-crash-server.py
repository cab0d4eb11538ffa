#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""advisord is killed around each commit of a recovery, and at odd moments; the job is recovered exactly once."""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402

s = advcrash.CrashStack(few_rules=True)
POINTS = ("turn.before_commit", "sqlite.before_commit", "turn.after_commit")
# the suspicion; the confirmed anomaly with its advice; the action's intent, its outcome; the status
THINGS = (("anomaly", 1), ("advice", 1), ("action", 1), ("action", 2), ("advice", 2))


def odd_moments(n):
    """Two jobs at once, and kills whenever it pleases."""
    def case():
        seed = random.randrange(1 << 30)
        print(f"# seed {seed}", flush=True)
        r = random.Random(seed)
        jobs = [s.fail(STEP_S=0.1), s.fail(STEP_S=0.2)]
        for _ in range(4):
            time.sleep(r.uniform(0.1, 1.2))
            s.cp.kill()
            s.cp.start()
        for job in jobs:
            s.recovered(job)
    return advcrash.named(f"server_killed_at_odd_moments_{n}", case)


s.agent.start()
s.wait_connected()
advstack.run([advcrash.server_point(s, p, what, n) for what, n in THINGS for p in POINTS] +
             [odd_moments(n) for n in range(3)] + [advcrash.clean_end(s)])
