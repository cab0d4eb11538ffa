#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Agent and advisord are killed together; in whichever order they come back, the job is recovered exactly once."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402

s = advcrash.CrashStack(few_rules=True)
POINTS = (("agent.order_received", "preserve"), ("agent.after_lease_check", "preserve"),
          ("agent.after_intent", "preserve"), ("spawn.before_fork", "preserve"), ("slurm.after_command", "preserve"),
          ("agent.before_outcome", "preserve"), ("agent.after_outcome", "preserve"), ("slurm.after_command", "constrain"),
          ("agent.after_intent", "release"), ("slurm.after_command", "release"), ("agent.before_status", "preserve"))

s.agent.start()
s.wait_connected()
advstack.run([advcrash.both_point(s, p, step, i % 2 == 0) for i, (p, step) in enumerate(POINTS)] + [
    advcrash.both_point(s, "slurm.after_command", "preserve", False),
    advcrash.clean_end(s)])
