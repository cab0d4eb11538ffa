#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent is killed at each point of the first write, PRESERVE; after a restart the job is recovered exactly once."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402

s = advcrash.CrashStack()
POINTS = ("agent.order_received", "slurm.after_read", "agent.after_lease_check", "agent.after_intent",
          "slurm.after_authorize", "spawn.before_fork", "slurm.after_command", "slurm.after_verify",
          "agent.before_outcome", "agent.after_outcome")

s.agent.start()
s.wait_connected()
advstack.run([advcrash.agent_point(s, p, "preserve") for p in POINTS] + [
    advcrash.child_killed(s, "preserve"),
    advcrash.child_paused(s, "preserve"),
    advcrash.command_hangs(s, "preserve", thaw_first=True),
    advcrash.command_hangs(s, "preserve", thaw_first=False),
    advcrash.clean_end(s)])
