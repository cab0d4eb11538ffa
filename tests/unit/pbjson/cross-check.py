#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""cross-check.py PBJSON_CAT PROTO_DIR: random messages must print as Google's Python library prints them."""
import json
import random
import struct
import subprocess
import sys
import tempfile

cat, proto_dir = sys.argv[1:3]
tmp = tempfile.mkdtemp()
subprocess.run(["protoc", "-I", proto_dir, f"--python_out={tmp}", "pbjson_test.proto"], check=True)
sys.path.insert(0, tmp)
try:
    from google.protobuf import json_format
except ImportError:
    sys.exit(77)
import pbjson_test_pb2 as pb  # noqa: E402

rnd = random.Random(7)
TEXT = ["", "a", "\u20ac\U0001f600", '"\\/\b\f\n\r\t', "\x01\x1f", "long " * 50, "<&>'"]


def integer(bits, signed):
    lo, hi = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return rnd.choice([0, 1, lo, hi, rnd.randint(lo, hi), rnd.randint(0, 1000)])


def floating():
    return rnd.choice([0.0, 1.0, -1.5, 0.1, 1e-7, 1e22, 123456789.125, 5e-324, rnd.random(), rnd.uniform(-1e9, 1e9)])


def data():
    return bytes(rnd.randrange(256) for _ in range(rnd.randrange(8)))


def stamp(t):
    t.seconds = rnd.randint(-62135596800, 253402300799)
    t.nanos = rnd.choice([0, 5 * 10**8, 123456000, 1, 999999999])


def span(d):
    s = rnd.randint(-315576000000, 315576000000)
    n = rnd.choice([0, 5 * 10**8, 123456000, 1, 999999999])
    d.seconds, d.nanos = s, (-n if s < 0 else n)


def fill(m, depth):
    def maybe():
        return rnd.random() < 0.4
    for name, bits, signed in (("i32", 32, 1), ("s32", 32, 1), ("sf32", 32, 1), ("u32", 32, 0), ("f32", 32, 0),
                               ("i64", 64, 1), ("s64", 64, 1), ("sf64", 64, 1), ("u64", 64, 0), ("f64", 64, 0),
                               ("with_2_digits", 32, 1), ("trailing_", 32, 1)):
        if maybe():
            setattr(m, name, integer(bits, signed))
    if maybe():
        m.a_float = struct.unpack("f", struct.pack("f", rnd.choice([0.1, 3.5, 1e-3, 16777216.0, rnd.random()])))[0]
    if maybe():
        m.a_double = floating()
    m.a_bool = maybe()
    m.a_string = rnd.choice(TEXT)
    m.some_bytes = data()
    m.color = rnd.choice([0, 1, 7, 42])
    if depth > 0 and maybe():
        fill(m.child, depth - 1)
    if maybe():
        stamp(m.when)
    if maybe():
        span(m.how_long)
    if maybe():
        m.nothing.SetInParent()
    c = rnd.randrange(6)
    if c == 1:
        m.choice_int = integer(32, 1)
    elif c == 2:
        m.choice_string = rnd.choice(TEXT)
    elif c == 3 and depth > 0:
        m.choice_message.SetInParent()
        fill(m.choice_message, depth - 1)
    elif c == 4:
        m.choice_bool = maybe()
    elif c == 5:
        span(m.choice_duration)
    for _ in range(rnd.choice([0, 0, 1, 3])):
        m.many_i64.append(integer(64, 1))
        m.many_strings.append(rnd.choice(TEXT))
        m.many_bytes.append(data())
        m.many_colors.append(rnd.choice([0, 1, 7, 42]))
        m.many_doubles.append(floating())
        m.many_bools.append(maybe())
        stamp(m.many_times.add())
        m.labels[rnd.choice(TEXT)] = rnd.choice(TEXT)
        m.by_flag[maybe()] = rnd.choice([0, 1, 7])
        if depth > 0:
            fill(m.many_children.add(), depth - 1)
            fill(m.by_number[integer(64, 1)], depth - 1)


messages = [pb.Everything() for _ in range(400)]
for m in messages[1:]:
    fill(m, 2)
frames = b"".join(struct.pack("<I", len(b)) + b for b in (m.SerializeToString() for m in messages))
for defaults in (False, True):
    out = subprocess.run([cat] + (["--defaults"] if defaults else []), input=frames, capture_output=True, check=True)
    lines = out.stdout.decode().splitlines()
    assert len(lines) == len(messages), out.stderr
    for m, line in zip(messages, lines):
        want = json.loads(json_format.MessageToJson(m, including_default_value_fields=defaults))
        assert json.loads(line) == want, f"\n{line}\n{json.dumps(want)}"
        assert json_format.Parse(line, pb.Everything()) == m, line
print(f"ok {2 * len(messages)} messages")
