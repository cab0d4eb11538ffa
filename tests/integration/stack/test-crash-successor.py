#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent is killed at points of the writes to the waiting successor, CONSTRAIN and RELEASE, and when it tells."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402

s = advcrash.CrashStack()
POINTS = {
    "constrain": ("slurm.after_read", "agent.after_intent", "spawn.before_fork", "slurm.after_command", "agent.after_outcome"),
    "release": ("agent.after_lease_check", "slurm.after_authorize", "slurm.after_verify", "agent.before_outcome",
                "agent.after_outcome"),
}


s.agent.start()
s.wait_connected()
advstack.run([advcrash.agent_point(s, p, step) for step, points in POINTS.items() for p in points] + [
    advcrash.agent_point(s, "agent.before_status", "preserve"),  # the first one told is the convergence
    advcrash.child_killed(s, "constrain"),
    advcrash.child_paused(s, "release"),
    advcrash.command_hangs(s, "constrain", thaw_first=False),
    advcrash.command_hangs(s, "release", thaw_first=True),
    advcrash.clean_end(s)])
