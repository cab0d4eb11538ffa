#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference provider of attributions: says which node is likeliest to blame for the end of an attempt, by what is in the question.

    advisor_attribution.py --stubs DIR [--listen 127.0.0.1:16500] [--cert FILE --key FILE --ca FILE]

DIR has the Python stubs of advisor/v1 (README.md says how they are made). With --cert it serves TLS and asks for a certificate of --ca.
It keeps nothing and asks nobody: the same question has the same answer.

Points of a node, out of 100:
  anomaly that names it       80 if its class is a node's own and it may be retried, else 20
  evidence about it           its weight, if it has a class of a node's own, else a third of that
  earlier attempt on it       10 for each that failed, 30 at most, and never alone
The most of one kind counts, kinds add up, 95 is the most. A node with 50 or more is named. If these are more than half of the attempt's nodes
(and more than one), none is named: they have a cause in common. The class is the one with most points behind it.
"""
import argparse
import re
import signal
import sys
from collections import defaultdict
from concurrent import futures

NODE_CLASSES = {"gpu_hardware", "node_failure", "network_fabric"}
NAMED_FROM = 50
MOST = 95
VERSION = "advisor-attribution 1.0"


def names(hostlist):
    """"n[1-3,07],login1" one by one, as the scheduler writes lists."""
    out = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", hostlist):
        grown = [""]
        for text, inside in re.findall(r"([^\[]+)|\[([^\]]*)\]", part):
            ends = [text]
            if inside:
                ends = []
                for span in inside.split(","):
                    lo, _, hi = span.partition("-")
                    ends += [str(i).zfill(len(lo)) for i in range(int(lo), int(hi or lo) + 1)]
            grown = [g + e for g in grown for e in ends]
            if len(grown) > 65536:
                raise ValueError("more than 65,536 hosts")
        out += grown
    return out


def points(request):
    """{node: points}, {node: {class: points}}, {node: uids}, {node: why}"""
    own = set(names(request.attempt.nodes))
    kinds = defaultdict(lambda: defaultdict(int))
    classes = defaultdict(lambda: defaultdict(int))
    uids, why = defaultdict(list), defaultdict(list)

    def give(node, kind, n, fault_class, uid, words):
        if node not in own or n <= 0:
            return
        kinds[node][kind] = max(kinds[node][kind], n)
        if fault_class:
            classes[node][fault_class] = max(classes[node][fault_class], n)
        uids[node].append(uid)
        why[node].append(words)

    for a in request.anomalies:
        strong = a.fault_class in NODE_CLASSES and a.retryable != "no"
        for node in a.nodes:
            give(node, "anomaly", 80 if strong else 20, a.fault_class if strong else "", a.uid, f"{a.rule or 'the scheduler'} names it")
    for e in request.evidence:
        if e.kind == "attribution":
            continue  # an answer of before is no evidence for the next
        strong = e.fault_class in NODE_CLASSES
        for node in e.nodes:
            give(node, "evidence", e.weight_percent if strong else e.weight_percent // 3, e.fault_class if strong else "", e.uid,
                 f"{e.source} says {e.rule or e.kind}")
    for t in request.earlier_attempts:
        if t.state_raw not in ("FAILED", "NODE_FAIL", "BOOT_FAIL"):
            continue
        for node in set(names(t.nodes)) & set(kinds):
            kinds[node]["earlier"] = min(30, kinds[node]["earlier"] + 10)
            why[node].append(f"attempt {t.index} failed on it")
    return {n: min(MOST, sum(k.values())) for n, k in kinds.items()}, classes, uids, why


def attribute(request, api):
    score, classes, uids, why = points(request)
    named = sorted((n for n, s in score.items() if s >= NAMED_FROM and classes[n]), key=lambda n: (-score[n], n))
    if not named:
        return api.AttributeResponse()
    total = defaultdict(int)
    for n in named:
        for c, s in classes[n].items():
            total[c] += s
    fault_class = min(total, key=lambda c: (-total[c], c))
    n_own = len(names(request.attempt.nodes))
    if len(named) > 1 and 2 * len(named) > n_own:
        return api.AttributeResponse(attributions=[api.Attribution(
            fault_class=fault_class, confidence_percent=score[named[0]], provider=VERSION,
            summary=f"{len(named)} of {n_own} nodes have it: a cause in common",
            evidence_uids=sorted({u for n in named for u in uids[n]})[:50])])
    return api.AttributeResponse(attributions=[api.Attribution(
        fault_class=max(classes[n], key=lambda c: (classes[n][c], c)), nodes=[n], confidence_percent=score[n], provider=VERSION,
        summary="; ".join(dict.fromkeys(why[n]))[:300], evidence_uids=uids[n][:50]) for n in named[:4]])


def serve(args):
    sys.path.insert(0, args.stubs)
    import grpc
    from advisor.v1 import attribution_service_pb2 as api
    from advisor.v1 import attribution_service_pb2_grpc as rpc

    class Service(rpc.AttributionServiceServicer):
        def Attribute(self, request, context):
            return attribute(request, api)

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=[("grpc.so_reuseport", 0)])
    rpc.add_AttributionServiceServicer_to_server(Service(), server)
    if args.cert:
        key, cert, ca = (open(f, "rb").read() for f in (args.key, args.cert, args.ca))
        port = server.add_secure_port(args.listen, grpc.ssl_server_credentials([(key, cert)], ca, require_client_auth=True))
    else:
        port = server.add_insecure_port(args.listen)
    server.start()
    print(f"serving on port {port}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: server.stop(1))
    server.wait_for_termination()


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--stubs", required=True, help="folder with the generated advisor/v1 modules")
    p.add_argument("--listen", default="127.0.0.1:16500")
    p.add_argument("--cert", help="server certificate, PEM; needs --key and --ca")
    p.add_argument("--key")
    p.add_argument("--ca")
    args = p.parse_args()
    if args.cert and not (args.key and args.ca):
        p.error("--cert needs --key and --ca")
    serve(args)


if __name__ == "__main__":
    main()
