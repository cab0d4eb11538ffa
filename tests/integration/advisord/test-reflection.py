#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reflection lists and describes to a client in another language exactly what the protos say is served, and each method so
described answers."""
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import advstack  # noqa: E402

import grpc  # noqa: E402

api = advstack.stubs()
out = tempfile.mkdtemp(prefix="reflection-")
proto = os.path.join(advstack.ROOT, "proto")
include = subprocess.run(["pkg-config", "--variable=includedir", "protobuf"], capture_output=True, text=True).stdout.strip()
every = sorted(os.path.relpath(os.path.join(where, f), proto) for where, _, files in os.walk(proto) for f in files
               if f.endswith(".proto"))
subprocess.run(["protoc", "-I", proto, "-I", include or "/usr/include", "--include_imports", "-o", f"{out}/all.binpb", *every],
               check=True)
subprocess.run(["protoc", "-I", proto, f"--python_out={out}", "grpc/reflection/v1/reflection.proto"], check=True)

from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: E402

with open(f"{out}/grpc/reflection/v1/reflection_pb2.py") as f:  # the package grpc is the library's: loaded by itself
    space = {}
    exec(compile(f.read(), "reflection_pb2.py", "exec"), space)
Q, R = space["ServerReflectionRequest"], space["ServerReflectionResponse"]

# what the protos say; AttributionService is implemented by sites, not here
NOT_SERVED = {"advisor.v1.AttributionService"}
with open(f"{out}/all.binpb", "rb") as f:
    files = descriptor_pb2.FileDescriptorSet.FromString(f.read()).file
want = {}
for f in files:
    for s in f.service:
        want[f"{f.package}.{s.name}"] = {m.name: (m.input_type, m.output_type, m.client_streaming, m.server_streaming) for m in s.method}
for name in NOT_SERVED:
    assert name in want, f"{name} is excused, and not in the protos"
    del want[name]

CASES = []
d = advstack.Advisord()
channel = d.channel("admin:root")


def case(f):
    CASES.append(f)
    return f


def ask(version, *requests):
    call = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                 request_serializer=lambda m: m.SerializeToString(), response_deserializer=R.FromString)
    return list(call(iter(requests), timeout=20))


@case
def the_services_are_those_of_the_protos():
    for version in ("v1", "v1alpha"):
        listed = [s.name for s in ask(version, Q(list_services=""))[0].list_services_response.service]
        assert sorted(listed) == sorted(set(listed)) == sorted(want), sorted(set(listed) ^ set(want))
    for name in NOT_SERVED:
        r = ask("v1", Q(file_containing_symbol=name))[0]
        # its messages are described, since its file is in the set; it is not listed, and a call of it is refused
        assert r.HasField("file_descriptor_response") or r.error_response.error_code == 5, r


@case
def each_service_is_described_whole():
    """A client that knows nothing can make every message from what it is told alone."""
    pool, seen = descriptor_pool.DescriptorPool(), {}

    def learn(blobs):
        for f in map(descriptor_pb2.FileDescriptorProto.FromString, blobs):
            if f.name in seen:
                continue
            seen[f.name] = f
            for dep in f.dependency:
                r = ask("v1", Q(file_by_filename=dep))[0]
                assert r.HasField("file_descriptor_response"), f"{dep}: {r.error_response}"
                learn(r.file_descriptor_response.file_descriptor_proto)
            pool.Add(f)

    for name, methods in want.items():
        r = ask("v1", Q(file_containing_symbol=name))[0]
        assert r.HasField("file_descriptor_response"), f"{name}: {r.error_response}"
        learn(r.file_descriptor_response.file_descriptor_proto)
        s = pool.FindServiceByName(name)
        got = {m.name: ("." + m.input_type.full_name, "." + m.output_type.full_name) for m in s.methods}
        assert got == {k: v[:2] for k, v in methods.items()}, (name, set(got) ^ set(methods))
        proto_of = descriptor_pb2.ServiceDescriptorProto()
        s.CopyToProto(proto_of)
        assert {m.name: (m.client_streaming, m.server_streaming) for m in proto_of.method} == {k: v[2:] for k, v in methods.items()}


@case
def each_method_is_served():
    for name, methods in want.items():
        for method, (_, _, client, server) in methods.items():
            kind = {(False, False): "unary_unary", (False, True): "unary_stream", (True, False): "stream_unary",
                    (True, True): "stream_stream"}[client, server]
            call = getattr(channel, kind)(f"/{name}/{method}", lambda b: b, lambda b: b)
            try:
                # a field 1 that no message has as a number: refused by the door, or by the handler; known at least
                r = call(iter([b"\x0a\x01\xff"]) if client else b"\x0a\x01\xff", timeout=3)
                if server:
                    next(iter(r), None)
            except grpc.RpcError as e:
                assert e.code() != grpc.StatusCode.UNIMPLEMENTED or "POLICY_NOT_EVALUATED" in str(e.trailing_metadata()), \
                    f"{name}/{method}: {e.details()}"
    call = channel.unary_unary("/advisor.v1.AttributionService/Attribute", lambda b: b, lambda b: b)
    advstack.refused(lambda: call(b"", timeout=5), grpc.StatusCode.UNIMPLEMENTED, "UNKNOWN_METHOD")


@case
def stops_clean():
    d.stop()


advstack.run(CASES)
