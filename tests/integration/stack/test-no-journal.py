#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An agent whose journal is damaged is given the lease first. It cannot write the epoch down, so it stands back and the
other one of the cluster acts."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advcrash  # noqa: E402
import advstack  # noqa: E402
from advlab import wait_for  # noqa: E402

s = advcrash.CrashStack(**{"agent.lease": "12s", "agent.heartbeat_interval": "500ms"})
damaged = s.agent
sound = advstack.Agent(s, name="second", **{"poll.interval": "1s"})


def damage():
    """One byte in the middle: not a torn end, which is mended."""
    damaged.start()
    damaged.wait_log("lease granted")
    s.wait_connected()
    s.recovered(s.fail())
    damaged.kill()
    path = f"{damaged.home}/state/journal"
    with open(path, "rb") as f:
        data = bytearray(f.read())
    lines = data.split(b"\n")
    assert len(lines) > 4, lines
    data[len(lines[0]) + len(lines[1]) // 2] ^= 1
    with open(path, "wb") as f:
        f.write(data)


def the_sound_one_acts():
    damaged.start()
    damaged.wait_log("staying away")
    sound.start()
    s.agent = sound
    sound.wait_log("lease granted")
    s.wait_connected()
    job = s.fail()
    s.recovered(job)
    assert sound.journal_id() in {x.journal_id for x in s.timeline(job).actions}
    assert damaged.log().count("session opened") == 1, damaged.log()[-2000:]
    wait_for("both to live", lambda: damaged.alive() and sound.alive(), 1)


advstack.run([damage, the_sound_one_acts, advcrash.clean_end(s)])
