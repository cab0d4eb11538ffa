#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small real training job: data-parallel gradient descent over a few Slurm tasks, with checkpoints.

Each rank computes gradients of a linear model on its own data; rank 0 averages them over TCP, prints one line a step and
saves the model now and then. What it prints looks like what the common frameworks print, each line behind its node's
name as multi-node launchers do it. Only Python's standard library is used.

  train.py --steps 60 --save-every 10 --checkpoints DIR

DEMO_FAULT makes it fail on purpose:
  ecc:STEP:RANK   attempt 0: the given rank's device fails at this step, for real-looking reasons
  importerror     a module is missing, in every attempt
  caught:STEP     at this step device memory runs out; the program handles it and goes on
"""
import argparse
import json
import os
import random
import socket
import struct
import sys
import time
import traceback

WIDTH = 48        # weights of the model
SAMPLES = 24      # per rank and step
RATE = 0.02
PEER_TIMEOUT_S = 60

RANK = int(os.environ.get("SLURM_PROCID", "0"))
WORLD = int(os.environ.get("SLURM_NTASKS", "1"))
ATTEMPT = int(os.environ.get("SLURM_RESTART_COUNT", "0") or 0)
NODE = os.environ.get("SLURMD_NODENAME") or socket.gethostname()


UNCORRECTABLE = ("CUDA error: uncorrectable ECC error encountered\n"
                 "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
                 "incorrect.")


class DeviceError(RuntimeError):
    """What a framework raises when the runtime library of the device reports a fault."""


def say(text, stream=sys.stdout):
    for line in text.rstrip("\n").split("\n"):
        stream.write(f"{NODE}: {line}\n")
    stream.flush()  # an interrupted program loses what it only buffered


class Group:
    """All ranks of the job; rank 0 adds up."""

    def __init__(self, folder):
        self.peers = []
        if WORLD == 1:
            return
        meeting = os.path.join(folder, f".rank0.{os.environ.get('SLURM_JOB_ID', '0')}.{ATTEMPT}")
        if RANK == 0:
            server = socket.create_server(("127.0.0.1", 0))
            server.settimeout(PEER_TIMEOUT_S)
            with open(meeting + ".new", "w", encoding="ascii") as f:
                f.write(str(server.getsockname()[1]))
            os.rename(meeting + ".new", meeting)
            self.peers = [server.accept()[0] for _ in range(WORLD - 1)]
            server.close()
            os.unlink(meeting)
        else:
            end = time.monotonic() + PEER_TIMEOUT_S
            while not os.path.exists(meeting):
                if time.monotonic() > end:
                    raise TimeoutError("rank 0 did not come")
                time.sleep(0.05)
            with open(meeting, encoding="ascii") as f:
                self.peers = [socket.create_connection(("127.0.0.1", int(f.read())))]
        for p in self.peers:
            p.settimeout(PEER_TIMEOUT_S)

    @staticmethod
    def _send(peer, values):
        peer.sendall(struct.pack(f"<{len(values)}d", *values))

    @staticmethod
    def _receive(peer, n):
        data = b""
        while len(data) < 8 * n:
            part = peer.recv(8 * n - len(data))
            if not part:
                raise ConnectionResetError(104, "Connection reset by peer")
            data += part
        return list(struct.unpack(f"<{n}d", data))

    def all_reduce(self, values):
        """The mean over all ranks, on all ranks."""
        if not self.peers:
            return values
        n = len(values)
        if RANK == 0:
            total = list(values)
            for p in self.peers:
                total = [a + b for a, b in zip(total, self._receive(p, n))]
            total = [v / WORLD for v in total]
            for p in self.peers:
                self._send(p, total)
            return total
        self._send(self.peers[0], values)
        return self._receive(self.peers[0], n)


class Model:
    def __init__(self):
        self.step = 0
        self.weights = [0.0] * WIDTH
        rng = random.Random(1)
        self.truth = [rng.uniform(-1, 1) for _ in range(WIDTH)]

    def gradient(self):
        """Gradient and loss of this rank's share of a step's data."""
        rng = random.Random(self.step * 1000 + RANK)
        grad, loss = [0.0] * WIDTH, 0.0
        for _ in range(SAMPLES):
            x = [rng.gauss(0, 1) for _ in range(WIDTH)]
            err = sum((w - t) * v for w, t, v in zip(self.weights, self.truth, x))
            loss += err * err / SAMPLES
            grad = [g + 2 * err * v / SAMPLES for g, v in zip(grad, x)]
        return grad + [loss]

    def save(self, folder):
        path = os.path.join(folder, f"iter_{self.step:07d}.json")
        for name, text in ((path, json.dumps({"step": self.step, "weights": self.weights})),
                           (os.path.join(folder, "latest_checkpointed_iteration.txt"), str(self.step))):
            with open(name + ".new", "w", encoding="ascii") as f:
                f.write(text)
                f.flush()
                os.fsync(f.fileno())
            os.rename(name + ".new", name)
        say(f"  successfully saved checkpoint at iteration {self.step:7d} to {folder}")

    def load(self, folder):
        try:
            with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), encoding="ascii") as f:
                step = int(f.read())
        except FileNotFoundError:
            if RANK == 0:
                say(f"WARNING: could not find the metadata file {folder}/latest_checkpointed_iteration.txt")
                say("    will not load any checkpoints and will start from random")
            return
        with open(os.path.join(folder, f"iter_{step:07d}.json"), encoding="ascii") as f:
            saved = json.load(f)
        self.step, self.weights = saved["step"], saved["weights"]
        if RANK == 0:
            say(f"  successfully loaded checkpoint from {folder} at iteration {self.step}")


def maybe_fail(step, fault):
    kind, _, rest = fault.partition(":")
    if kind == "ecc" and ATTEMPT == 0 and rest == f"{step}:{RANK}":
        raise DeviceError(UNCORRECTABLE)
    if kind == "caught" and rest == str(step) and RANK == 0:
        raise MemoryError


def train_step(model, group, fault):
    maybe_fail(model.step + 1, fault)
    mean = group.all_reduce(model.gradient())
    model.weights = [w - RATE * g for w, g in zip(model.weights, mean)]
    model.step += 1
    return mean[-1]


def careful_step(model, group, fault):
    """A step whose lack of memory is handled, as trainers do it."""
    try:
        return train_step(model, group, fault)
    except MemoryError:
        say("Traceback (most recent call last):\n"
            "  File \"train.py\", line 160, in train_step\n"
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity; "
            "76.60 GiB already allocated; 1.02 GiB free)", sys.stderr)
        say("WARNING: out of memory, emptying the cache and repeating the step with half of the micro batch")
        return train_step(model, group, "")


def run(args, fault):
    if fault == "importerror":
        import apex_fused_layers
    os.makedirs(args.checkpoints, exist_ok=True)
    model = Model()
    group = Group(args.checkpoints)
    model.load(args.checkpoints)
    while model.step < args.steps:
        begun = time.monotonic()
        loss = careful_step(model, group, fault)
        time.sleep(max(0.0, args.step_ms / 1000 - (time.monotonic() - begun)))
        if RANK != 0:
            continue
        took = (time.monotonic() - begun) * 1000
        say(f" iteration {model.step:8d}/{args.steps:8d} | consumed samples: {model.step * SAMPLES * WORLD:12d} | "
            f"elapsed time per iteration (ms): {took:.1f} | learning rate: {RATE:.3E} | global batch size: "
            f"{SAMPLES * WORLD:5d} | lm loss: {loss:.6E} |")
        if model.step % args.save_every == 0 or model.step == args.steps:
            model.save(args.checkpoints)
    if RANK == 0:
        say(f"[after training is done] lm loss {loss:.6E}" if model.step else "nothing to do")


def main():
    p = argparse.ArgumentParser(description="A small real training job.")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--save-every", type=int, default=10)
    p.add_argument("--step-ms", type=float, default=200)
    p.add_argument("--checkpoints", required=True)
    args = p.parse_args()
    try:
        run(args, os.environ.get("DEMO_FAULT", ""))
    except Exception:
        # The traceback behind the node's name, as launchers print it.
        text = traceback.format_exc().replace("__main__.", "").replace("DeviceError: ", "RuntimeError: ")
        say(text, sys.stderr)
        time.sleep(0.5)  # a process on a device takes its time to die; the others notice after that
        os._exit(1)


if __name__ == "__main__":
    main()
