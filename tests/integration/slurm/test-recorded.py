#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What three releases of Slurm answered (recorded/, made by record.py) means the same to the adapter; and an answer that no
release gives yet is tolerated, or refused as a whole, and never half understood. Needs no Slurm."""
import copy
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import advstack  # noqa: E402
import recorded  # noqa: E402

TIMES = ("submit", "eligible", "start", "end")


def tapes():
    for name in sorted(os.listdir(f"{HERE}/recorded")):
        if re.fullmatch(r"\d+\.\d+\.\d+\.json", name):
            with open(f"{HERE}/recorded/{name}") as f:
                yield name[:-5], json.load(f)


def meaning(job):
    """Of times only which are known."""
    m = {k: v for k, v in job.items() if k not in TIMES}
    if "priority" in m:  # releases count differently; held is 0 with all
        m["priority"] = min(m["priority"], 1)
    m["parts"] = [{k: v for k, v in part.items() if k not in TIMES} for part in job.get("parts", [])]
    m["times"] = " ".join(k for k in TIMES if job.get(k, 0) > 0)
    return m


def ended(job):
    return job["end"] and job["state"] not in ("RUNNING", "PENDING", "SPECIAL_EXIT")


def play(calls):
    p = recorded.Player(calls)
    try:
        seen = p.run("observe")
        jobs = {}
        for j in seen["jobs"]:
            one = p.run("inspect", j["id"])
            assert one["found"] == "found", one
            # both looks at a job say the same
            assert {k: one["job"][k] for k in j} == j, (j, one["job"])
            jobs[j["id"]] = meaning(one["job"])
            past = p.run("history", j["id"], "--expect-submit", j["submit"]) if ended(j) else {"found": "not asked"}
            jobs[j["id"]]["history"] = meaning(past)
        return {"complete": seen["complete"], "describe": p.run("describe"), "jobs": jobs, "nodes": p.run("nodes")}
    finally:
        p.close()


def releases_mean_the_same():
    with open(f"{HERE}/recorded/expected.json") as f:
        want = json.load(f)
    n = 0
    for version, calls in tapes():
        got = play(calls)
        got["describe"].pop("version")
        expected = copy.deepcopy(want["common"])
        for path, value in want.get(version, {}).items():
            *way, last = path.split("/")
            at = expected
            for w in way:
                at = at[w]
            at[last] = value
        for part in expected:
            if part == "jobs":
                assert got["jobs"].keys() == expected["jobs"].keys(), (version, list(got["jobs"]))
                for i in expected["jobs"]:
                    diff = {k: (expected["jobs"][i].get(k), v) for k, v in got["jobs"][i].items() if expected["jobs"][i].get(k) != v}
                    assert not diff, f"{version} job {i} (expected, got): {diff}"
            else:
                assert got[part] == expected[part], f"{version} {part}: {got[part]}, expected {expected[part]}"
        n += 1
    assert n == 3, f"{n} releases"


def bulk(calls):
    return next(c for c in calls if c["argv"][0] == "squeue" and "-O" in c["argv"] and "@NONCE@" not in str(c["argv"]))


def altered(calls, change):
    """The observation when the bulk answer is changed."""
    calls = copy.deepcopy(calls)
    b = bulk(calls)
    b["out"] = change(b["out"])
    p = recorded.Player(calls)
    try:
        return p.run("observe")
    finally:
        p.close()


def an_unknown_state_is_of_one_job_only():
    for version, calls in tapes():
        seen = altered(calls, lambda t: t.replace("|NODE_FAIL|", "|QUANTUM_FAIL|", 1))
        assert seen["complete"], (version, seen["error"])
        odd = [j for j in seen["jobs"] if j["state"] == "UNKNOWN"]
        assert len(odd) == 1 and odd[0]["state_text"] == "QUANTUM_FAIL", (version, odd)


def a_line_that_does_not_fit_is_no_fewer_jobs():
    for version, calls in tapes():
        for what, change in (("a field is gone", lambda t: t.replace("|main|", "|", 1)),
                             ("a field is new", lambda t: t.replace("|main|", "|main|new|", 1)),
                             ("cut off", lambda t: t[:len(t) - 9]),
                             ("another line", lambda t: t + "squeue: error: something\n")):
            seen = altered(calls, change)
            assert not seen["complete"] and seen["unknown_reason"] == "malformed", (version, what, seen)


def a_silent_tool_is_no_empty_cluster():
    for version, calls in tapes():
        calls = copy.deepcopy(calls)
        bulk(calls).update(rc=1, out="", err="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")
        p = recorded.Player(calls)
        try:
            seen = p.run("observe")
        finally:
            p.close()
        assert not seen["complete"] and seen["unknown_reason"] == "unavailable", (version, seen)


if "--show" in sys.argv:  # for a new recording: what is common, and where releases differ
    got = {v: play(c) for v, c in tapes()}
    for g in got.values():
        g["describe"].pop("version")
    first = next(iter(got.values()))
    out = {"common": first}
    for v, g in list(got.items())[1:]:
        diff = {f"jobs/{i}/{k}": x for i in g["jobs"] for k, x in g["jobs"][i].items() if first["jobs"].get(i, {}).get(k) != x}
        diff.update({part: g[part] for part in ("complete", "describe", "nodes") if g[part] != first[part]})
        out[v] = diff
    json.dump(out, sys.stdout, indent=1, sort_keys=True)
    print()
    sys.exit(0)
advstack.run([releases_mean_the_same, an_unknown_state_is_of_one_job_only, a_line_that_does_not_fit_is_no_fewer_jobs,
              a_silent_tool_is_no_empty_cluster])
