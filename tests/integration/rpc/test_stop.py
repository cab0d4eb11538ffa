# SPDX-License-Identifier: Apache-2.0
"""Graceful stop: live calls may end, then are cancelled; everything is released."""
import signal
import threading
import time

from rpclib import Client, Server, case, fails, grpc, main, pb, wait_for


@case
def calls_in_flight_end():
    s = Server("--grace-ms", "5000")
    with Client(s.port) as c:
        f = c.echo.future(pb.EchoRequest(text="x", delay_ms=500))
        time.sleep(0.15)
        s.proc.send_signal(signal.SIGTERM)
        assert f.result(10).text == "x"
        fails(grpc.StatusCode.UNAVAILABLE, lambda: c.echo(pb.EchoRequest(), timeout=5))
    assert s.proc.wait(20) == 0, s.stderr()


@case
def endless_streams_are_cancelled():
    s = Server("--grace-ms", "300")
    with Client(s.port) as c:
        stop = threading.Event()

        def talk():
            yield pb.EchoRequest(text="a")
            stop.wait(20)

        call = c.chat(talk())
        assert next(call).text == "a"
        slow = c.count(pb.CountRequest(n=1_000_000, size=1000))
        watch = c.ch.unary_stream("/grpc.health.v1.Health/Watch", lambda b: b, lambda b: b)(b"")
        assert next(watch) == b"\x08\x01"
        t = time.monotonic()
        s.proc.send_signal(signal.SIGTERM)
        assert next(watch) == b"\x08\x02", "health says NOT_SERVING first"
        fails(grpc.StatusCode.UNAVAILABLE, lambda: next(call))
        assert time.monotonic() - t >= 0.25
        stop.set()
        assert s.proc.wait(20) == 0, s.stderr()
        del slow


@case
def stop_at_once_and_under_load():
    for load in (False, True):
        s = Server("--grace-ms", "0")
        with Client(s.port) as c:
            end = threading.Event()

            def hammer():
                while not end.is_set():
                    try:
                        c.echo(pb.EchoRequest(text="x", delay_ms=1), timeout=5)
                    except grpc.RpcError:
                        return

            threads = [threading.Thread(target=hammer) for _ in range(8 if load else 0)]
            for t in threads:
                t.start()
            time.sleep(0.3)
            s.proc.send_signal(signal.SIGTERM)
            assert s.proc.wait(20) == 0, s.stderr()
            end.set()
            for t in threads:
                t.join()


@case
def killed_clients():
    with Server() as s, Client(s.port) as c:
        for _ in range(5):
            with Client(s.port) as d:
                streams = [d.count(pb.CountRequest(n=100000, size=500)) for _ in range(20)]
                for x in streams:
                    next(x)
            del streams
        wait_for("all gone", lambda: c.stats().calls_live == 1)


main()
